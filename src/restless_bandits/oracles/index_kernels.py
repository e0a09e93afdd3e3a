"""Compiled tables of Whittle's index, of many arms in one call: the closed form of two states, and the homotopy.

Tables lie consecutively: the table of an arm begins at ``base[arm]``. A row has ``lengths[arm]`` slots; every state has
a row, and the last row is for an arm never seen.

For two states, with ω the probability of the good state, ω° its limit and λ the chain's memory, see ``whittle``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.chain_powers import converged_powers
from restless_bandits.oracles.homotopy_kernels import whittle_homotopy

INDEXABLE_TOLERANCE = 1e-9
ROUNDING = 1e-13
"""Rounding errors of values, relative to the return time to the rarest state in slots: values have the size of the
return time.
"""
NEAR_ONE = 1.0 - 1e-7
DISCOUNTED_TOLERANCE = 1e-6
FRESH = 16
"""Slots after which a power is computed afresh, so that rounding errors of products do not add up."""


class FlatArms(NamedTuple):
    """Chains, mean rewards and stationary distributions of many arms, concatenated in one array for each kind."""

    n_states: IntArray
    chains: Array
    rewards: Array
    limiting_distributions: Array

    def chain_list(self) -> list[Array]:
        """The chain of each arm."""
        ends = np.cumsum(self.n_states**2)
        return [chain.reshape(n, n) for chain, n in zip(np.split(self.chains, ends[:-1]), self.n_states, strict=True)]

    def reward_list(self) -> list[Array]:
        """The rewards of each arm."""
        return np.split(self.rewards, np.cumsum(self.n_states)[:-1])


@njit
def violation_tolerance(rarest: float) -> float:
    """The least advantage that violates indexability, for an arm whose rarest state has the given probability."""
    return max(INDEXABLE_TOLERANCE, min(ROUNDING / max(rarest, ROUNDING), DISCOUNTED_TOLERANCE))


@njit
def birth_death_limits(n_states: IntArray, chains: Array) -> Array:
    """Stationary distributions of birth-death chains whose every state but the best has a way to a better state."""
    limiting_distributions = np.empty(n_states.sum())
    at, state = 0, 0
    for n in n_states:
        total, weight = 1.0, 1.0
        limiting_distributions[state] = 1.0
        for k in range(n - 1):
            # The flow from a state to the next equals the flow back.
            weight *= chains[at + k * n + k + 1] / chains[at + (k + 1) * n + k]
            limiting_distributions[state + k + 1] = weight
            total += weight
        for k in range(n):
            limiting_distributions[state + k] /= total
        at, state = at + n * n, state + n
    return limiting_distributions


@njit
def settled_lengths(arms: FlatArms, tv_error: float, two_deviation: float, longest: int) -> IntArray:
    """The number of slots after which each arm's distributions agree up to a deviation; ``longest`` at most.

    Arms of two states have a deviation of their own.
    """
    lengths = np.empty(arms.n_states.shape[0], dtype=np.int64)
    at = 0
    for i in range(lengths.shape[0]):
        n = arms.n_states[i]
        if n == 2:
            memory = abs(arms.chains[at] - arms.chains[at + 2])
            left, length = memory, 1
            while left > two_deviation and length < longest:
                left *= memory
                length += 1
            lengths[i] = length
        else:
            lengths[i] = converged_powers(arms.chains[at : at + n * n].copy().reshape(n, n), tv_error, longest)[
                0
            ].shape[0]
        at += n * n
    return lengths


@njit
def two_state_tables(arms: FlatArms, base: IntArray, lengths: IntArray, tables: Array) -> None:
    """Write the closed form of every arm of two states."""
    at, state = 0, 0
    for i in range(lengths.shape[0]):
        n = arms.n_states[i]
        if n == 2:
            # The probability of the better state: either state may be the good state.
            good = 0 if arms.rewards[state] >= arms.rewards[state + 1] else 1
            low, high = arms.rewards[state + 1 - good], arms.rewards[state + good]
            stay, come = arms.chains[at + 3 * good], arms.chains[at + 2 - good]
            _two_state_table(stay, come, low, high - low, good, lengths[i], base[i], tables)
        at, state = at + n * n, state + n


@njit
def _two_state_table(
    stay: float, come: float, low: float, span: float, good: int, length: int, base: int, tables: Array
) -> None:
    """The closed form of one arm: ``stay`` and ``come`` are the probabilities to stay good and to turn good."""
    after_good, after_bad = base + good * length, base + (1 - good) * length
    memory = stay - come
    frozen = memory == 1.0
    rest = 0.0 if frozen else come / (1.0 - memory)
    never = 1.0
    if not frozen:
        never = rest / (1.0 - stay + rest) if memory >= 0.0 else _hopping_index(rest, stay, come, rest)
    fade = 1.0
    for t in range(length):
        tau = t + 1
        fade = memory**tau if t % FRESH == 0 else fade * memory
        if frozen:
            # A single observation reveals the state for ever, so an arm never seen is worth its possible outcome.
            from_good, from_bad = 1.0, 0.0
        elif memory < 0.0:
            from_good = _hopping_index(rest + fade * (1.0 - rest), stay, come, rest)
            from_bad = _hopping_index(rest * (1.0 - fade), stay, come, rest)
        elif t == 0:
            from_good, from_bad = stay, come
        else:
            omega = rest + fade * (1.0 - rest)
            from_good = omega / (1.0 - stay + omega)
            fall = -come * fade
            later = rest * (1.0 - memory * fade)
            below = 1.0 - stay + fall * tau + later
            from_bad = (fall * (tau + 1) + later) / below if below > 0.0 else 0.0
        tables[after_good + t] = low + span * from_good
        tables[after_bad + t] = low + span * from_bad
        tables[base + 2 * length + t] = low + span * never


@njit
def _hopping_index(omega: float, stay: float, come: float, rest: float) -> float:
    """λ < 0: beliefs hop from side to side of ω°, and every pair of pieces meets continuously."""
    if omega <= stay or omega >= come:
        return omega
    memory = stay - come
    after_good = rest + memory * (stay - rest)
    if omega < rest:
        rise = rest + memory * (omega - rest) - omega
        return (come - rise) / (1.0 + come - after_good + rise)
    return come / (1.0 + come - (after_good if omega < after_good else omega))


@njit
def homotopy_tables(arms: FlatArms, base: IntArray, lengths: IntArray, tables: Array) -> bool:
    """Write the index of every arm without two states; return whether all systems behind them could be solved."""
    at, state = 0, 0
    for i in range(lengths.shape[0]):
        n, length = arms.n_states[i], lengths[i]
        if n != 2:
            distributions = converged_powers(arms.chains[at : at + n * n].copy().reshape(n, n), 0.0, length)[0]
            distribution, mean = np.empty((n + 1, n, length)), np.zeros((n + 1, length))
            for t in range(length):
                # A chain whose distribution has stopped changing stays as before.
                source = min(t, distributions.shape[0] - 1)
                for s in range(n + 1):
                    for k in range(n):
                        distribution[s, k, t] = (
                            distributions[source, s, k] if s < n else arms.limiting_distributions[state + k]
                        )
                        mean[s, t] += distribution[s, k, t] * arms.rewards[state + k]
            rarest = 1.0
            for k in range(n):
                often = 0.0
                for s in range(n):
                    often = max(often, distribution[s, k, length - 1])
                rarest = min(rarest, often)
            table, _, _, solved = whittle_homotopy(distribution, mean, 1.0, violation_tolerance(rarest))
            if not solved:
                return False
            for s in range(n + 1):
                for t in range(length):
                    tables[base[i] + s * length + t] = table[s, t]
        at, state = at + n * n, state + n
    return True


@njit
def table_index(distributions: Array, rewards: Array) -> Array:
    """Whittle's index of an arm given as a table of distributions ``[s, τ - 1, k]``, at a discount of nearly 1.

    The result is empty if the systems behind the index are singular.
    """
    rows, length, n = distributions.shape
    distribution, mean = np.empty((rows, n, length)), np.zeros((rows, length))
    for s in range(rows):
        for t in range(length):
            for k in range(n):
                distribution[s, k, t] = distributions[s, t, k]
                mean[s, t] += distributions[s, t, k] * rewards[k]
    table, _, _, solved = whittle_homotopy(distribution, mean, NEAR_ONE, DISCOUNTED_TOLERANCE)
    return table if solved else np.empty((0, 0))
