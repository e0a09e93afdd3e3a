"""Oracles: functions from a problem to a ``Solution``, a policy with a bracket of the best long-run reward.

    rb.oracles.auto(problem)                    # the most precise oracle below within a minute
    rb.oracles.exact(problem)                   # the optimum, with a proof
    rb.oracles.whittle(problem)                 # Whittle's index policy; also myopic, guha, relaxation, best_arm
    rb.oracles.evaluate(problem, policy)        # the computed reward of any policy
    rb.oracles.policy("whittle", problem)       # the policy alone, for learners that plan often

Importing this package loads a compiler; ``import restless_bandits`` alone does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.auto import auto
from restless_bandits.oracles.best_arm import best_arm
from restless_bandits.oracles.bracket import ContradictionError, bracketed
from restless_bandits.oracles.evaluation import Evaluation, evaluate
from restless_bandits.oracles.exact import exact
from restless_bandits.oracles.guha import guha
from restless_bandits.oracles.myopic import myopic
from restless_bandits.oracles.observed.ranking import arms_of_policy, present_states, save_indices
from restless_bandits.oracles.relaxation import relaxation, relaxation_bound
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.oracles.whittle import ArmIndex, gittins_index, whittle, whittle_index
from restless_bandits.policies.policies import Policy
from restless_bandits.registry import ORACLES

__all__ = [
    "ORACLES",
    "ArmIndex",
    "ContradictionError",
    "Evaluation",
    "Oracle",
    "Solution",
    "arms_of_policy",
    "auto",
    "best_arm",
    "bracketed",
    "evaluate",
    "exact",
    "find_oracle",
    "gittins_index",
    "guha",
    "myopic",
    "oracle",
    "policy",
    "present_states",
    "relaxation",
    "relaxation_bound",
    "save_indices",
    "whittle",
    "whittle_index",
]


def find_oracle(given: str | Oracle | Callable[[Problem], Policy | Solution]) -> Oracle:
    """Return the oracle of a name, of a home such as ``package.module:function``, or made of a function.

    A function answers a problem with a ``Solution``, or with a ``Policy``, which is then evaluated and bracketed. Names
    may contain underscores in place of hyphens.
    """
    found, name = given, ""
    if isinstance(given, str):
        name = given if given in ORACLES or ":" in given else given.replace("_", "-")
        found = ORACLES.find(name, trust_modules=True)
    if isinstance(found, Oracle):
        return found
    if not callable(found) or isinstance(found, type):
        remedy = "give a name, or a function from a problem to a Policy or Solution"
        raise ProblemError(f"{shortened(given)} is no oracle; {remedy}")
    return _from_function(found, name or getattr(found, "__name__", "oracle"))


def _from_function(function: Callable[[Problem], Policy | Solution], name: str) -> Oracle:
    def answer(problem: Problem) -> Policy | Solution:
        found = function(problem)
        if not isinstance(found, Policy | Solution):
            raise ProblemError(f"the oracle {name} answered with {found!r}; it must be a Policy or a Solution")
        return found

    def solve(problem: Problem) -> Solution:
        started = time.perf_counter()
        found = answer(problem)
        return found if isinstance(found, Solution) else bracketed(problem, name, found, f"policy of {name}", started)

    def policy(problem: Problem) -> Policy:
        found = answer(problem)
        return found.policy if isinstance(found, Solution) else found

    return Oracle(name, solve, policy)


def oracle(name: str) -> Callable[..., Solution]:
    """Return the oracle's solving function under a name."""
    return find_oracle(name).solve


def policy(name: str | Oracle, problem: Problem, slots: int | None = None, lasting: int = 0) -> Policy:
    """Return the policy of the named oracle, without a bracket.

    ``exact`` and ``auto`` plan as precisely as worthwhile after so many slots. ``auto`` also accounts for a plan that
    will be followed for ``lasting`` slots (see ``planning``). Without ``slots``, ``exact`` plans as precisely as
    possible.
    """
    found = find_oracle(name)
    return found.policy(problem) if slots is None or found.plan is None else found.plan(problem, slots, lasting)
