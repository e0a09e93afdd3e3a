"""Compiled arms with a subsidy for resting, all in one call: see ``lagrangian``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import inlined, njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.chain_powers import multiply, scale_rows
from restless_bandits.oracles.enclosure import UNIT
from restless_bandits.oracles.homotopy_kernels import solve_in_place

GAIN, BOUND, REST, ROUNDING = range(4)
MOST_STEPS = 100
BETTER = 1e-12
"""The least relative improvement of an accepted wait, for values of this size and beyond."""
LARGEST = 1e12
"""Values beyond which a system counts as singular."""


class LagrangianTables(NamedTuple):
    """The distributions of arms, concatenated: arm i begins at ``base[i]``, with the rows of ``HiddenProcess.numbers``.

    From there on, ``distribution`` holds ``[s, k, τ - 1]`` for ``rows[i]`` rows s and ``truncation[i]`` slots.
    ``mean`` holds ``[s, τ - 1]`` from ``mean_base[i]`` on, and ``rewards`` holds the rewards of the states from
    ``state_base[i]`` on.
    """

    n_states: IntArray
    rows: IntArray
    truncation: IntArray
    base: IntArray
    mean_base: IntArray
    state_base: IntArray
    rewards: Array
    tv_error: Array
    defect: Array
    """How far the sums of an arm's distributions are from one; zero for chains, whose distributions are scaled to it.
    """
    distribution: Array
    mean: Array


@njit
def write_distributions(
    chains: Array, limiting_distributions: Array, which: IntArray, tables: LagrangianTables
) -> None:
    """Write the distributions of chains of one size: powers, at the truncation the limit, and the deviation there."""
    n = chains.shape[1]
    now, after = np.empty((n, n)), np.empty((n, n))
    for j in range(len(which)):
        i = which[j]
        truncation, base, mean_base, states = (
            tables.truncation[i],
            tables.base[i],
            tables.mean_base[i],
            tables.state_base[i],
        )
        for s in range(n):
            for k in range(n):
                now[s, k] = chains[j, s, k]
        for t in range(truncation):
            if t > 0:
                multiply(now, chains[j], after)
                scale_rows(after)
                now, after = after, now
            if t == truncation - 1:
                worst = 0.0
                for s in range(n):
                    distance = 0.0
                    for k in range(n):
                        distance += abs(now[s, k] - limiting_distributions[j, k])
                        now[s, k] = limiting_distributions[j, k]
                    worst = max(worst, 0.5 * distance)
                tables.tv_error[i] = worst
            for s in range(n + 1):
                mean = 0.0
                for k in range(n):
                    probability = now[s, k] if s < n else limiting_distributions[j, k]
                    tables.distribution[base + (s * n + k) * truncation + t] = probability
                    mean += probability * tables.rewards[states + k]
                tables.mean[mean_base + s * truncation + t] = mean


@njit
def _best_wait(
    s: int, distribution: Array, mean: Array, h: Array, price: float, slot: float, values: Array
) -> tuple[int, float]:
    """Return the wait after state s with the largest R − price + slot·wait + P^τ(s)·h, and the largest value."""
    n, truncation = distribution.shape[1], distribution.shape[2]
    for t in range(truncation):
        values[t] = mean[s, t]
    for k in range(n):
        for t in range(truncation):
            values[t] += distribution[s, k, t] * h[k]
    best, most = 0, -np.inf
    for t in range(truncation):
        value = values[t] - price + slot * t
        if value > most:
            best, most = t, value
    return best, most


@inlined
def _loop(
    distribution: Array, mean: Array, subsidy: float, sigma: IntArray, h: Array, values: Array
) -> tuple[float, float, bool]:
    """Best policy that keeps pulling, from waits ``sigma``: gain, share of slots at rest, whether a single loop.

    Leaves relative values in ``h`` and the waits in ``sigma``.
    """
    n = len(h)
    system, right = np.empty((n, n)), np.empty((n, 2))
    gain, rest = 0.0, 0.0
    for _ in range(MOST_STEPS):
        for s in range(n):
            wait = sigma[s]
            for k in range(n):
                system[s, k] = (1.0 if k == s else 0.0) - distribution[s, k, wait]
            # h of the last state is zero, so its column carries the gain.
            system[s, n - 1] = wait + 1.0
            right[s, 0] = mean[s, wait] + subsidy * wait
            right[s, 1] = wait
        if solve_in_place(system, right) == 0.0:
            return gain, rest, False
        for s in range(n):
            if not (abs(right[s, 0]) <= LARGEST and abs(right[s, 1]) <= LARGEST):
                return gain, rest, False
        gain, rest = right[n - 1, 0], right[n - 1, 1]
        for s in range(n):
            h[s] = right[s, 0] if s < n - 1 else 0.0
        improved = False
        for s in range(n):
            best, most = _best_wait(s, distribution, mean, h, gain, subsidy - gain, values)
            if most > h[s] + BETTER * (1.0 + abs(h[s])):
                sigma[s] = best
                improved = True
        if not improved:
            break
    return gain, rest, True


@inlined
def _stop(distribution: Array, mean: Array, price: float, h: Array, values: Array) -> None:
    """Values ``h`` if permanent rest is optimal: pulling pays R − price, waiting is free, never pulling is worth 0."""
    n = len(h)
    system, right = np.empty((n, n)), np.empty((n, 1))
    sigma = np.full(n, -1)
    for s in range(n):
        h[s] = 0.0
    for _ in range(MOST_STEPS):
        improved = False
        for s in range(n):
            best, most = _best_wait(s, distribution, mean, h, price, 0.0, values)
            if most > h[s] + BETTER * (1.0 + abs(h[s])):
                sigma[s] = best
                improved = True
        if not improved:
            break
        for s in range(n):
            wait = sigma[s]
            for k in range(n):
                system[s, k] = (1.0 if k == s else 0.0) - (distribution[s, k, wait] if wait >= 0 else 0.0)
            right[s, 0] = mean[s, wait] - price if wait >= 0 else 0.0
        # Any values prove a bound; a policy that never stops has no values.
        if solve_in_place(system, right) == 0.0:
            break
        for s in range(n):
            h[s] = right[s, 0]


@inlined
def _advantages(
    distribution: Array, mean: Array, gain: float, subsidy: float, h: Array, out: Array
) -> tuple[float, float]:
    """Write the advantage of pulling over resting in every belief to ``out``.

    Returns the largest excess of the best choice over ``h`` right after an observation, and the largest intermediate
    number. The loop runs backwards, slot by slot, because rounding depends on the order of the sums.
    """
    rows, n, truncation = distribution.shape
    slot = subsidy - gain
    excess, largest = 0.0, 1.0
    for s in range(rows):
        for t in range(truncation):
            out[s, t] = mean[s, t] - gain
        for k in range(n):
            for t in range(truncation):
                out[s, t] += distribution[s, k, t] * h[k]
        value = 0.0
        for t in range(truncation - 1, -1, -1):
            pull = out[s, t]
            if t == truncation - 1:
                # Optimal permanent resting is worth 0; otherwise the policy never leaves a loop.
                value = max(pull, 0.0) if slot == 0.0 else pull
            rest = slot + value
            out[s, t] = pull - rest
            if s == n and rows == n + 1:
                # An arm never seen, whose belief no wait changes, is pulled in the next slot at the latest, or never.
                value = max(pull, 0.0) if slot == 0.0 else pull
            else:
                if t < truncation - 1:
                    value = max(pull, rest)
                largest = max(largest, abs(pull), abs(rest), abs(value))
        if s < n:
            excess = max(excess, value - h[s])
            largest = max(largest, abs(h[s]))
    return excess, max(largest, abs(gain))


@njit
def solve_arms(
    subsidy: float, which: IntArray, tables: LagrangianTables, sigma: IntArray, found: Array, advantage: Array
) -> None:
    """Solve arms for a subsidy: write ``found[i] = gain, bound, share of slots at rest, rounding``.

    ``sigma`` holds the initial waits, and then the best waits. An arm without a single loop has NaN for its share.
    Advantages have the order of ``LagrangianTables.mean``.
    """
    longest = 1
    for i in which:
        longest = max(longest, tables.truncation[i])
    values = np.empty(longest)
    for i in which:
        n, rows, truncation = tables.n_states[i], tables.rows[i], tables.truncation[i]
        distribution = tables.distribution[tables.base[i] : tables.base[i] + rows * n * truncation].reshape(
            (rows, n, truncation)
        )
        place, size = tables.mean_base[i], rows * truncation
        mean = tables.mean[place : place + size].reshape((rows, truncation))
        states = tables.state_base[i]
        h = np.empty(n)
        gain, rest, looping = _loop(distribution, mean, subsidy, sigma[states : states + n], h, values)
        if not looping:
            found[i, REST] = np.nan
            continue
        if gain <= subsidy:
            gain, rest = subsidy, 1.0
            _stop(distribution, mean, subsidy, h, values)
        excess, largest = _advantages(
            distribution, mean, gain, subsidy, h, advantage[place : place + size].reshape((rows, truncation))
        )
        low, high = np.inf, -np.inf
        for s in range(n):
            low, high = min(low, tables.rewards[states + s] + h[s]), max(high, tables.rewards[states + s] + h[s])
        spread = high - low
        found[i, GAIN], found[i, REST] = gain, rest
        found[i, BOUND] = gain + excess + tables.tv_error[i] * spread + 1e-15 * (1.0 + spread)
        # Values prove themselves: each belief is compared with its successors once, so that sums and means of n terms
        # count once, with numbers up to 2·largest. Distributions have a relative error (``_enclosure``). The errors of
        # distributions count as often as values differ. The deviation at the truncation is made of two distributions,
        # and its errors count as often too.
        shares = (6.0 * n * truncation + 16.0 * n**3) * UNIT
        found[i, ROUNDING] = ((8.0 * n + 16.0) * UNIT + 2.0 * tables.defect[i]) * largest + 2.0 * shares * (
            1.0 + spread
        )
