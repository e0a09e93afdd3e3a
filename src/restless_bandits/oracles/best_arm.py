"""The best fixed arms: the baseline of the weak-regret literature."""

from __future__ import annotations

import time

import numpy as np

from restless_bandits.model.problem import Problem
from restless_bandits.oracles.bracket import bracketed, fixed_arms
from restless_bandits.oracles.evaluation import arm_average, best_arm_gain
from restless_bandits.oracles.normalization import normalized, solved_normalized
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.policies.policies import IndexPolicy


@normalized
def best_arm_policy(problem: Problem) -> IndexPolicy:
    """Return the policy that always pulls the arms of highest average."""
    averages = [arm_average(arm) for arm in problem.arms]
    tables = tuple(np.full((n + 1, 1), value) for n, value in zip(problem.n_states, averages, strict=True))
    return IndexPolicy(tables, problem.plays)


@solved_normalized
def best_arm(problem: Problem) -> Solution:
    """Always pull the arms of highest average reward: Σ of the ``plays`` highest π·r."""
    started = time.perf_counter()
    gain = best_arm_gain(problem)
    policy = best_arm_policy(problem)
    arms = policy([None] * problem.n_arms, [1] * problem.n_arms)
    names = [problem.arms[i].name for i in (arms if isinstance(arms, tuple) else (arms,))]
    how = f"always {', '.join(names)}; gain in closed form"
    return bracketed(problem, "best-arm", policy, how, started, gain=gain, earns=fixed_arms(problem))


ORACLE = Oracle("best-arm", best_arm, best_arm_policy)
