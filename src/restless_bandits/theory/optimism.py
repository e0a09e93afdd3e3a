"""The optimistic instance R' of Restless-UCB (Wang, Huang, Lui 2020, Algorithm 1, line 6), from any estimates.

Chains drift to better states as much as the radius allows, and rewards are as high. Where every estimate is within its
radius, P' ≽ P row by row and r' ≥ r: all that Lemma 1 asks of R'.

Differs from the paper, where the paper is silent: rows stay stochastic, by ``up' = max(0, P̂(k,k+1) − rad)``,
``down' = min(1 − up', P̂(k,k−1) + rad)``, the rest stays; rewards are capped at 1 and made nonincreasing,
``r'(k) = min_{j≤k} r'(j)``. Nothing changes where nothing clips, and R' stays optimistic.
"""

from __future__ import annotations

import numpy as np

from restless_bandits.errors import ProblemError
from restless_bandits.markov import Array
from restless_bandits.problem import Arm, Problem, TableArm
from restless_bandits.theory.radii import radius


def optimistic_chain(estimate: Array, radii: Array, better: Array | None = None) -> Array:
    """Return P' from an estimated birth-death chain and a radius for each row.

    Moves to better states take the radii ``better``, where these are others than those of moves to worse ones.
    """
    better = radii if better is None else better
    n = len(estimate)
    chain = np.zeros((n, n))
    for k in range(n):
        up = 0.0
        if k + 1 < n:
            up = max(0.0, estimate[k, k + 1] - radii[k])
            chain[k, k + 1] = up
        if k > 0:
            chain[k, k - 1] = min(1.0 - up, estimate[k, k - 1] + better[k])
        chain[k, k] = max(0.0, 1.0 - chain[k].sum())
    return chain


def optimistic_rewards(estimate: Array, radii: Array) -> Array:
    """Return r' from estimated means and a radius for each: upper bounds, at most 1, nonincreasing."""
    lowered: Array = np.minimum.accumulate(np.minimum(1.0, estimate + radii))
    return lowered


def optimistic_problem(problem: Problem, horizon: int) -> Problem:
    """Return R' at horizon T where every estimate is the truth: P and r moved by rad(T), started as the problem is.

    >>> arm = Arm([[0.7, 0.3], [0.2, 0.8]], [0.9, 0.0], initial=1)
    >>> optimistic_problem(Problem([arm]), 10**6).arms[0].transitions.round(4).tolist()
    [[0.7263, 0.2737], [0.2263, 0.7737]]
    """
    problem.task(horizon)
    problem.require("birth_death")
    arms = []
    for arm in problem.arms:
        if isinstance(arm, TableArm):
            raise ProblemError(f"arm {arm.name!r} is a table of laws; the optimistic instance is made from chains")
        radii = np.full(arm.n_states, radius(horizon))
        chain, rewards = optimistic_chain(arm.chain, radii), optimistic_rewards(arm.rewards, radii)
        arms.append(Arm(chain, rewards, name=arm.name, initial=arm.initial, reward_law=arm.reward_law))
    return Problem(arms, plays=problem.plays, name=f"{problem.name}, optimistic" if problem.name else "optimistic")
