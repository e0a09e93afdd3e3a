"""Radii and the optimistic instance R' of Restless-UCB (Wang, Huang, Lui 2020): learners and theory stand on both.

m(T), rad(T) and gap(T) follow Section 3 and Appendix A; R' follows Algorithm 1, line 6, from any estimates.

Chains drift to better states as far as the radius allows, and rewards are as high as allowed. If every estimate is
within its radius, then P' ≽ P row by row and r' ≥ r, the conditions of Lemma 1 on R'.

Differs from the paper, where the paper is silent: rows stay stochastic, by ``up' = max(0, P̂(k,k+1) − rad)``, ``down' =
min(1 − up', P̂(k,k−1) + rad)``, the rest stays; rewards are truncated at 1 and made nonincreasing, ``r'(k) = min_{j≤k}
r'(j)``. Without clipping nothing changes, and R' stays optimistic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array
from restless_bandits.model.arms import Arm
from restless_bandits.model.checks import check_horizon
from restless_bandits.model.problem import Problem
from restless_bandits.model.rewards import normalized_rewards, values_of
from restless_bandits.model.support import refuse_unsupported


def exploration_count(horizon: int) -> int:
    """m(T) = ⌈T^(2/3)⌉: how often every state of every arm is observed before the policy commits."""
    cube: int = round(horizon ** (2 / 3))
    # Rounding must not raise an integer whose cube is T².
    return cube if cube**3 == horizon**2 else math.ceil(horizon ** (2 / 3))


def radius(horizon: int) -> float:
    """rad(T) = √(ln T / (2 m(T)))."""
    return math.sqrt(math.log(horizon) / (2 * exploration_count(horizon)))


def radius_below_from(bound: float) -> int | None:
    """Return the first T from which on rad(T) stays at or below a bound; None if there is none below 10^18.

    The proof of Theorem 1 needs rad(T) ≤ c1/3.
    """
    if not bound > 0:
        return None
    # Without the ceiling the radius is largest at T = e^1.5 and decreases from there; the ceiling never enlarges the
    # radius.
    found = first_horizon(lambda T: math.sqrt(math.log(T) / (2 * T ** (2 / 3))) <= bound, begin=8)
    while found is not None and found > 1 and radius(found - 1) <= bound:
        found -= 1
    return found


def first_horizon(holds: Callable[[int], bool], latest: int = 10**18, *, begin: int = 1) -> int | None:
    """Return the first T at which a monotone condition holds; None if the condition fails up to ``latest``.

    T is doubled from ``begin`` until the condition holds; bisection of the last step follows.
    """
    high = begin
    while not holds(high):
        if high > latest:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def gap(horizon: int, n_states: int, lambda_max: float) -> float:
    """Return (2 ln T / ln(1/λ_max) + 2M / (1 − λ_max)) rad(T) + 2M/T, the paper's gap at horizon T.

    By the paper's Lemma 11, the probabilities of a state under P and P' differ by at most the gap, after any number of
    slots without an observation. The first term is the possible accumulation until the chains have forgotten their
    start; the others bound the remaining difference. Infinite for λ_max = 1.

    >>> round(gap(10**6, 2, 0.5), 4)
    1.258
    """
    if not lambda_max < 1:
        return math.inf
    forgetting = 2 * math.log(horizon) / math.log(1 / lambda_max) if lambda_max > 0 else 0.0
    return (forgetting + 2 * n_states / (1 - lambda_max)) * radius(horizon) + 2 * n_states / horizon


def optimistic_chain(estimate: Array, radii: Array, better: Array | None = None) -> Array:
    """Return P' from an estimated birth-death chain and a radius for each row.

    Transitions to better states take the radii ``better``, if different from the radii of transitions to worse states.
    """
    better = radii if better is None else better
    up, down = np.zeros(len(estimate)), np.zeros(len(estimate))
    up[:-1] = np.maximum(0.0, np.diagonal(estimate, 1) - radii[:-1])
    down[1:] = np.minimum(1.0 - up[1:], np.diagonal(estimate, -1) + better[1:])
    chain: Array = np.diag(up[:-1], 1) + np.diag(down[1:], -1) + np.diag(np.maximum(0.0, 1.0 - (up + down)))
    return chain


def optimistic_rewards(estimate: Array, radii: Array) -> Array:
    """Return r' from estimated means and a radius for each: upper bounds, at most 1, nonincreasing."""
    return np.asarray(np.minimum.accumulate(np.minimum(1.0, estimate + radii)))


def chain_arms(problem: Problem, reason: str) -> list[Arm]:
    """Return the arms of a problem; arms other than Markov chains raise an error with the given reason."""
    arms = [arm for arm in problem.arms if isinstance(arm, Arm)]
    problem.require_steady("the theory")
    refuse_unsupported(problem, "theory")
    if len(arms) < problem.n_arms:
        table = next(arm for arm in problem.arms if not isinstance(arm, Arm))
        raise ProblemError(f"arm {table.name!r} is a table of distributions; {reason}")
    return arms


def optimistic_problem(problem: Problem, horizon: int) -> Problem:
    """Return R' at horizon T with every estimate equal to the truth: P and r moved by rad(T), with the problem's start.

    >>> arm = Arm([[0.7, 0.3], [0.2, 0.8]], [0.9, 0.0], initial=1)
    >>> optimistic_problem(Problem([arm]), 10**6).arms[0].transitions.round(4).tolist()
    [[0.7263, 0.2737], [0.2263, 0.7737]]
    """
    horizon = check_horizon(horizon)
    problem.require("birth_death")
    arms = []
    for arm in chain_arms(problem, "the optimistic instance is made from chains"):
        radii = np.full(arm.n_states, radius(horizon))
        # Radii of rewards are shares of the range.
        bounds = optimistic_rewards(normalized_rewards(arm.rewards, arm.reward_range), radii)
        arms.append(arm.changed(optimistic_chain(arm.chain, radii), values_of(bounds, arm.reward_range)))
    return Problem(arms, plays=problem.plays, name=f"{problem.name}, optimistic" if problem.name else "optimistic")
