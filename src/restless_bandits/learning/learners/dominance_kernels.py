"""Compiled bounds of the distributions of arms with more than two states: by colour, with implications between colours.

A *colour* is (last state s, elapsed slots τ). The distribution of an observation depends on its colour alone.
Observations of a colour are therefore independent draws, and for each k there is a Bernoulli KL bound U(s, τ, k) of
Pr(state ≤ k), 1 without observations. Bounds of different colours imply each other, and each is lowered accordingly:

(a) Pr(≤ k) grows with k; (b) and falls with s; (c) the distribution after τ₁ slots, pushed through the rows of τ₂,
bounds the distribution after τ₁ + τ₂; (d) from the truncation on all states count as a single pooled colour, plus the
remaining memory there. The distribution of the best state falls with τ, and bounds all later distributions.

*The truncation* needs no mixing time. The largest effect of the last state, D(τ) = max_k Pr(≤ k | best) − Pr(≤ k |
worst), obeys D(τ + τ') ≤ D(τ) D(τ') on a monotone chain. Upper bounds of D at τ = 1..8 come from the same observations,
and their powers bound the memory at every τ. The truncation is the first τ of negligible memory.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.learners.confidence_bounds import kl_upper

SHORT = 16
"""Elapsed slots of the shorter part of a composition."""
LOOKS = 8
"""Elapsed slots at which the contraction of an arm is estimated."""


@njit
def _contraction(counts: IntArray, elapsed: int, level: float) -> float:
    """An upper bound of max_k Pr(≤ k | best) − Pr(≤ k | worst), for states observed a given number of slots ago."""
    n_states = counts.shape[2]
    best, worst = counts[0, elapsed - 1], counts[n_states - 1, elapsed - 1]
    from_best, from_worst = 0, 0
    for k in range(n_states):
        from_best += best[k]
        from_worst += worst[k]
    if from_best == 0 or from_worst == 0:
        return 1.0
    most = 0.0
    good, bad = 0, 0
    for k in range(n_states - 1):
        good += best[k]
        bad += worst[k]
        upper = kl_upper(good / from_best, level / from_best)
        lower = 1.0 - kl_upper(1.0 - bad / from_worst, level / from_worst)
        most = max(most, upper - lower)
    return min(1.0, max(0.0, most))


@njit
def choose_truncation(counts: IntArray, level: float, negligible: float, longest: int) -> tuple[int, float]:
    """Return the truncation of an arm, and an upper bound of the remaining memory there.

    With D(τ) the largest effect of the last state on Pr(≤ k), D(τ + τ') ≤ D(τ) D(τ'): powers of D at a few τ bound D
    everywhere. The truncation is the first τ with a negligible bound, at most ``longest``.
    """
    n_states = counts.shape[2]
    if n_states == 1:
        return 1, 0.0
    gaps = np.empty(min(LOOKS, longest))
    least = 1.0
    for look in range(gaps.shape[0]):
        gaps[look] = _contraction(counts, look + 1, level)
        least = min(least, gaps[look])
    if least == 1.0:
        return longest, 1.0
    truncation = 1
    left = _memory(gaps, truncation)
    while left > negligible and truncation < longest:
        truncation += 1
        left = min(left, _memory(gaps, truncation))
    return truncation, left


@njit
def _memory(gaps: Array, elapsed: int) -> float:
    """A bound of the remaining memory after a number of slots, from ``gaps[τ - 1]``: integer powers of each."""
    left = 1.0
    for tau in range(1, min(gaps.shape[0], elapsed) + 1):
        left = min(left, gaps[tau - 1] ** (elapsed // tau))
    return left


@njit
def _running_bounds(bounds: Array, seen: IntArray, level: float, more: float) -> None:
    """Write bounds of Pr(≤ k), plus a margin, from the number of observations of each state; unchanged without
    observations.
    """
    total, below = 0, 0
    for k in range(seen.shape[0]):
        total += seen[k]
    if total:
        for k in range(bounds.shape[0]):
            below += seen[k]
            bounds[k] = min(1.0, kl_upper(below / total, level / total) + more)


@njit
def _forget(upper: Array, tau: int) -> None:
    """Give all last states the bounds of the best state at some τ."""
    for s in range(1, upper.shape[1]):
        for k in range(upper.shape[2]):
            upper[tau, s, k] = upper[tau, 0, k]


@njit
def raw_bounds(counts: IntArray, truncation: int, memory: float, level: float) -> Array:
    """Return ``upper[τ, s, k] ≥ Pr(≤ k, τ slots after s)`` for τ < truncation, each from its own observations.

    ``upper[truncation, 0]`` bounds the distributions for all waits from ``truncation`` on: pooled, plus their remaining
    memory.
    """
    n_states = counts.shape[2]
    upper = np.ones((truncation + 1, n_states, n_states - 1))
    for tau in range(1, truncation):
        for s in range(n_states):
            _running_bounds(upper[tau, s], counts[s, tau - 1], level, 0.0)
    if memory < 1.0:
        pooled = np.zeros(n_states, dtype=np.int64)
        for s in range(n_states):
            for column in range(truncation - 1, counts.shape[1]):
                for k in range(n_states):
                    pooled[k] += counts[s, column, k]
        _running_bounds(upper[truncation, 0], pooled, level, memory)
    _forget(upper, truncation)
    return upper


@njit
def _order(upper: Array, tau: int) -> None:
    """(a) and (b) at a given τ: no bound above the bound of a larger k, nor above the bound of a better last state."""
    n_states = upper.shape[1]
    for s in range(n_states):
        for k in range(n_states - 3, -1, -1):
            upper[tau, s, k] = min(upper[tau, s, k], upper[tau, s, k + 1])
        if s > 0:
            for k in range(n_states - 1):
                upper[tau, s, k] = min(upper[tau, s, k], upper[tau, s - 1, k])


@njit
def _compose(upper: Array, tau: int) -> None:
    """(c) at a given τ: the distribution after τ₁ slots, pushed through the rows of τ − τ₁; at ``truncation`` for the
    best row alone.

    Σ_j q_j u_j with q the distribution of cumulative sums U(s, τ₁) is u_last + Σ_j U(s, τ₁, j) (u_j − u_{j+1}). One of
    the two parts is at most ``SHORT`` slots: longer parts are compositions of short parts, and all pairs would take
    O(L²).
    """
    truncation, n_states = upper.shape[0] - 1, upper.shape[1]
    rows = 1 if tau == truncation else n_states
    first = 0
    while first < tau - 1:
        first += 1
        if first > SHORT and tau - first > SHORT:
            first = tau - SHORT
        rest = tau - first
        for s in range(rows):
            for k in range(n_states - 1):
                total = upper[rest, n_states - 1, k]
                for j in range(n_states - 1):
                    total += upper[first, s, j] * (upper[rest, j, k] - upper[rest, j + 1, k])
                upper[tau, s, k] = min(upper[tau, s, k], total)


@njit
def tighten(upper: Array) -> None:
    """Lower the bounds by their implications for each other; bounds of a monotone chain stay valid.

    (a) in k, (b) in the last state, (c) by composition, (d) at the truncation below the best row, all states alike.
    """
    truncation, n_states = upper.shape[0] - 1, upper.shape[1]
    if n_states == 1:
        return
    for tau in range(1, truncation + 1):
        _compose(upper, tau)
        if tau == truncation:
            for k in range(n_states - 1):
                for before in range(1, truncation):
                    upper[truncation, 0, k] = min(upper[truncation, 0, k], upper[before, 0, k])
            _forget(upper, truncation)
        _order(upper, tau)


@njit
def shortened(upper: Array, precision: float) -> Array:
    """Return the bounds with the earliest truncation that a precision allows, still bounds of the same distributions.

    The entry at the new truncation is the distribution of the best state there, an upper bound of later distributions
    except for rounding.
    """
    truncation, n_states = upper.shape[0] - 1, upper.shape[1]
    if n_states == 1:
        return upper
    least = np.empty(n_states - 1)
    for k in range(n_states - 1):
        least[k] = upper[truncation, 0, k]
    cut = truncation
    while cut > 1:
        near = True
        for k in range(n_states - 1):
            for s in range(n_states):
                least[k] = min(least[k], upper[cut - 1, s, k])
            near = near and upper[cut - 1, 0, k] - least[k] <= precision
        if not near:
            break
        cut -= 1
    short = np.empty((cut + 1, n_states, n_states - 1))
    for tau in range(cut + 1):
        for s in range(n_states):
            for k in range(n_states - 1):
                short[tau, s, k] = upper[tau, s, k]
    for tau in range(cut + 1, truncation + 1):
        for k in range(n_states - 1):
            short[cut, 0, k] = max(short[cut, 0, k], upper[tau, 0, k])
    _forget(short, cut)
    return short


@njit
def as_distributions(upper: Array) -> Array:
    """Return the distributions whose cumulative sums are the bounds, ``[τ, s, k]`` with the identity at τ = 0.

    The last row, for an arm never observed, is the distribution at the truncation: a stationary distribution lies below
    the distributions of the best state.
    """
    truncation, n_states = upper.shape[0] - 1, upper.shape[1]
    distributions = np.zeros((truncation + 1, n_states + 1, n_states))
    for tau in range(truncation + 1):
        for s in range(n_states + 1):
            if tau == 0 and s < n_states:
                distributions[0, s, s] = 1.0
                continue
            source = (truncation, 0) if s == n_states else (tau, s)
            below = 0.0
            for k in range(n_states - 1):
                reached = upper[source[0], source[1], k]
                distributions[tau, s, k] = max(0.0, reached - below)
                below = max(below, reached)
            distributions[tau, s, n_states - 1] = 1.0 - below
    return distributions


@njit
def optimistic_distributions(
    counts: IntArray, level: float, negligible: float, longest: int, precision: float
) -> tuple[Array, int]:
    """Return distributions that dominate an arm's, from its counts ``[s, bin(τ), k]``, and the truncation of their
    pooling.

    ``as_distributions`` describes their form.
    """
    truncation, memory = choose_truncation(counts, level, negligible, longest)
    upper = raw_bounds(counts, truncation, memory, level)
    tighten(upper)
    return as_distributions(shortened(upper, precision)), truncation
