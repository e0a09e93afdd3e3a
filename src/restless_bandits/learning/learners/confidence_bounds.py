"""Upper confidence bounds of means of binary draws, compiled."""

from __future__ import annotations

import math

import numpy as np

from restless_bandits._internal.compiling import helper, njit
from restless_bandits._internal.validation import Array, BoolArray, IntArray


@njit
def kl_upper(mean: float, bound: float) -> float:
    """Return the largest u ≥ mean with kl(mean, u) ≤ bound, for Bernoulli distributions, from above.

    Newton's method on a convex increasing function, started to the right of the root: every step stays there, and the
    result is always an upper bound.
    """
    if mean >= 1.0:
        return 1.0
    if mean <= 0.0:
        return -math.expm1(-bound)
    entropy = -mean * math.log(mean) - (1.0 - mean) * math.log1p(-mean)
    # Pinsker's inequality, and −mean · ln u ≥ 0 if Pinsker's bound is vacuous.
    u = min(mean + math.sqrt(0.5 * bound), -math.expm1(-(bound + entropy) / (1.0 - mean)))
    for _ in range(60):
        if u <= mean or u >= 1.0:
            break
        excess = -entropy - mean * math.log(u) - (1.0 - mean) * math.log1p(-u) - bound
        step = excess * u * (1.0 - u) / (u - mean)
        if step <= 1e-13:
            break
        u -= step
    return min(1.0, max(mean, u))


@njit
def kl_upper_bounds(sums: Array, counts: IntArray, level: float) -> Array:
    """``kl_upper`` for sums of rewards between 0 and 1."""
    bounds = np.empty(sums.shape[0])
    for k in range(sums.shape[0]):
        bounds[k] = kl_upper(sums[k] / counts[k], level / counts[k]) if counts[k] > 0 else 1.0
    return bounds


@njit
def monotone_fit(sums: Array, counts: IntArray) -> Array:
    """The likeliest nonincreasing means of binary draws, by state: neighbours that violate the order are pooled."""
    n = sums.shape[0]
    total, weight = np.empty(n), np.empty(n)
    first = np.empty(n, dtype=np.int64)
    blocks = 0
    for k in range(n):
        total[blocks], weight[blocks], first[blocks] = sums[k], counts[k], k
        blocks += 1
        # An empty block fits anywhere.
        while blocks > 1 and (
            weight[blocks - 1] == 0
            or weight[blocks - 2] == 0
            or total[blocks - 1] * weight[blocks - 2] > total[blocks - 2] * weight[blocks - 1]
        ):
            total[blocks - 2] += total[blocks - 1]
            weight[blocks - 2] += weight[blocks - 1]
            blocks -= 1
    means = np.empty(n)
    for b in range(blocks):
        end = first[b + 1] if b + 1 < blocks else n
        for k in range(first[b], end):
            means[k] = total[b] / weight[b] if weight[b] > 0 else 0.5
    return means


@njit
def binary_divergence(p: float, q: float) -> float:
    """The divergence between two binary distributions."""
    found = 0.0
    if p > 0.0:
        found += p * math.log(p / q) if q > 0.0 else math.inf
    if p < 1.0:
        found += (1.0 - p) * math.log((1.0 - p) / (1.0 - q)) if q < 1.0 else math.inf
    return found


@helper
def order_cost(sums: Array, counts: IntArray) -> float:
    """How much less likely the likeliest nonincreasing means are than the likeliest of all: a divergence."""
    fitted = monotone_fit(sums, counts)
    cost = 0.0
    for k in range(sums.shape[0]):
        if counts[k] > 0:
            cost += counts[k] * binary_divergence(sums[k] / counts[k], fitted[k])
    return cost


@njit
def monotone_upper_bounds(sums: Array, counts: IntArray, level: float) -> Array:
    """Upper bounds of nonincreasing means by the likelihood ratio: within ``level`` of the likeliest nonincreasing
    means.

    If the plain means are in order, the result is the plain bounds. Otherwise some means are far from the truth by
    probability, and the loss of likelihood by the order is added to the level.
    """
    bounds = kl_upper_bounds(sums, counts, level + order_cost(sums, counts))
    for k in range(1, sums.shape[0]):
        bounds[k] = min(bounds[k], bounds[k - 1])
    return bounds


@njit
def arm_upper_bounds(sums: Array, counts: IntArray, first: IntArray, levels: Array, ordered: BoolArray) -> Array:
    """Upper bounds of the mean rewards of all arms, flat, each arm at its own level and from ``first[arm]`` on.

    ``monotone_upper_bounds`` for arms with ordered states, else separate bounds of every state.
    """
    bounds = np.empty(sums.shape[0])
    for arm in range(levels.shape[0]):
        low, high = first[arm], first[arm + 1]
        if ordered[arm]:
            found = monotone_upper_bounds(sums[low:high], counts[low:high], levels[arm])
        else:
            found = kl_upper_bounds(sums[low:high], counts[low:high], levels[arm])
        for k in range(high - low):
            bounds[low + k] = found[k]
    return bounds


@njit
def arm_means(sums: Array, counts: IntArray, first: IntArray, ordered: BoolArray) -> Array:
    """The likeliest mean rewards of all arms, flat: nonincreasing with the state for arms that are ``ordered``."""
    means = np.empty(sums.shape[0])
    for arm in range(ordered.shape[0]):
        low, high = first[arm], first[arm + 1]
        fitted = monotone_fit(sums[low:high], counts[low:high])
        for k in range(low, high):
            means[k] = fitted[k - low] if ordered[arm] else sums[k] / counts[k]
    return means
