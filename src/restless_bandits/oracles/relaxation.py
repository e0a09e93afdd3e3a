"""The Lagrangian relaxation as an oracle: an upper bound of μ*, and the policy of its index. See ``lagrangian``."""

from __future__ import annotations

import time

from restless_bandits.model.problem import Problem
from restless_bandits.oracles.bracket import bracketed, relaxed
from restless_bandits.oracles.lagrangian import relax, relaxation_bound
from restless_bandits.oracles.normalization import normalized, solved_normalized
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.policies.policies import IndexPolicy

__all__ = ["lagrangian_policy", "relaxation", "relaxation_bound"]


@normalized
def lagrangian_policy(problem: Problem) -> IndexPolicy:
    """Return the policy of the Lagrangian index."""
    return IndexPolicy.of(problem, [dual.advantage for dual in relax(problem).arms])


@solved_normalized
def relaxation(problem: Problem) -> Solution:
    """Bound μ* from above by the Lagrangian relaxation; the policy is that of the Lagrangian index."""
    started = time.perf_counter()
    found = relax(problem)
    policy = IndexPolicy.of(problem, [dual.advantage for dual in found.arms])
    how = f"Lagrangian relaxation at subsidy {found.subsidy:.6g}; policy by the Lagrangian index"
    details = {"subsidy": found.subsidy}
    return bracketed(problem, "relaxation", policy, how, started, upper=relaxed(problem, found), details=details)


ORACLE = Oracle("relaxation", relaxation, lagrangian_policy)
