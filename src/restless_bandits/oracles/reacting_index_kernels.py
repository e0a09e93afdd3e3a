"""Compiled tables of Whittle's index of arms that react and are seen when pulled, of many arms in one call.

A belief (s, τ) has the distribution e_s P_active P_passive^(τ − 1). Pay at rest is moved into the
rewards of pulls, as in ``processes.resting_pay``: with f a solution of f = q − q̄ + P_passive f, for pay at rest q with
long-run mean q̄, a pull in state k followed by rests earns more than rests alone by

    r(k) − q(k) + Σ_j (P_active(k, j) − P_passive(k, j)) f(j).

An arm with these rewards and no pay at rest has the same indices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.oracles.homotopy_kernels import solve_in_place, whittle_homotopy
from restless_bandits.oracles.index_kernels import DISCOUNTED_TOLERANCE, INDEXABLE_TOLERANCE, NEAR_ONE

EXTRA_ROWS = 2
"""Rows of a table beyond those of the states: an arm not yet pulled, and an arm with an unobserved pull."""


class ReactingArms(NamedTuple):
    """Chains, mean rewards, pay at rest and set-up costs of many arms, concatenated in one array for each kind."""

    n_states: IntArray
    passive: Array
    active: Array
    rewards: Array
    resting: Array
    setup_costs: Array


@njit
def pull_rewards(passive: Array, active: Array, rewards: Array, resting: Array) -> tuple[Array, Array]:
    """Return rewards of pulls that stand for the pay at rest as well, and the stationary distribution of a resting arm.

    The chain of a resting arm has one recurrent class.
    """
    n = rewards.shape[0]
    system, right = np.empty((n, n)), np.empty((n, 1))
    balance, shares = np.empty((n, n)), np.zeros((n, 1))
    for s in range(n):
        for k in range(n):
            system[s, k] = (1.0 if s == k else 0.0) - passive[s, k]
            balance[k, s] = system[s, k]
        right[s, 0] = resting[s]
    for s in range(n):
        # The potential of the last state is zero, and its column stands for the long-run mean.
        system[s, n - 1] = 1.0
        balance[n - 1, s] = 1.0
    shares[n - 1, 0] = 1.0
    solve_in_place(system, right)
    solve_in_place(balance, shares)
    right[n - 1, 0] = 0.0
    worth = np.empty(n)
    for s in range(n):
        worth[s] = rewards[s] - resting[s]
        for k in range(n):
            worth[s] += (active[s, k] - passive[s, k]) * right[k, 0]
    return worth, shares[:, 0].copy()


@njit
def belief_distributions(passive: Array, active: Array, rest: Array, tv_error: float, longest: int) -> Array:
    """Return the distributions of all beliefs, ``[row, k, τ - 1]``, up to the τ at which they agree.

    The last two rows are of an arm not yet pulled, and of an arm after an unobserved pull.
    """
    n = rest.shape[0]
    rows = n + EXTRA_ROWS
    distribution = np.zeros((rows, n, longest))
    for k in range(n):
        for s in range(n):
            distribution[s, k, 0] = active[s, k]
            distribution[n + 1, k, 0] += rest[s] * active[s, k]
        distribution[n, k, 0] = rest[k]
    length = 1
    while length < longest:
        left = 0.0
        for s in range(rows):
            away = 0.0
            for k in range(n):
                total = 0.0
                for j in range(n):
                    total += distribution[s, j, length - 1] * passive[j, k]
                distribution[s, k, length] = rest[k] if s == n else total
                away += abs(total - rest[k])
            left = max(left, 0.5 * away)
        length += 1
        if left <= tv_error:
            break
    return distribution[:, :, :length].copy()


@njit
def reacting_index(
    passive: Array, active: Array, rewards: Array, resting: Array, setup_cost: float, tv_error: float, longest: int
) -> Array:
    """Return Whittle's index of an arm, a row for each state and two more: see ``belief_distributions``.

    An arm that is not indexable keeps the first subsidy at which each belief turns passive. If the systems behind the
    index are singular, the table has the mean rewards of pulls.
    """
    n = rewards.shape[0]
    worth, rest = pull_rewards(passive, active, rewards, resting)
    distribution = belief_distributions(passive, active, rest, tv_error, longest)
    mean = np.zeros((n + EXTRA_ROWS, distribution.shape[2]))
    for s in range(n + EXTRA_ROWS):
        for t in range(mean.shape[1]):
            for k in range(n):
                mean[s, t] += distribution[s, k, t] * worth[k]
            # A pull in the slot after a pull has no set-up cost.
            if t > 0 or s == n:
                mean[s, t] -= setup_cost
    table, _, _, solved = whittle_homotopy(distribution, mean, 1.0, INDEXABLE_TOLERANCE)
    if not solved:
        table, _, _, solved = whittle_homotopy(distribution, mean, NEAR_ONE, DISCOUNTED_TOLERANCE)
    return table if solved else mean


@njit
def reacting_tables(arms: ReactingArms, tv_error: float, longest: int) -> tuple[Array, IntArray]:
    """Return the indices of all arms, one table after the other, and the length of each table."""
    count = arms.n_states.shape[0]
    lengths = np.zeros(count, dtype=np.int64)
    flat = np.empty(longest * int(np.sum(arms.n_states + EXTRA_ROWS)))
    at, state, end = 0, 0, 0
    for i in range(count):
        n = arms.n_states[i]
        passive = arms.passive[at : at + n * n].copy().reshape(n, n)
        active = arms.active[at : at + n * n].copy().reshape(n, n)
        rewards, resting = arms.rewards[state : state + n].copy(), arms.resting[state : state + n].copy()
        table = reacting_index(passive, active, rewards, resting, arms.setup_costs[i], tv_error, longest)
        lengths[i] = table.shape[1]
        for s in range(table.shape[0]):
            for t in range(table.shape[1]):
                flat[end] = table[s, t]
                end += 1
        at, state = at + n * n, state + n
    return flat[:end].copy(), lengths
