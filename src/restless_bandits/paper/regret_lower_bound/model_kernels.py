"""Compiled parts of the lower bound of regret: occupation measures of policies, distances of arm models, excursions.

Beliefs of an arm are numbered as in ``beliefs.forgetting_beliefs``: (s, τ) with τ < truncation is
s·(truncation − 1) + τ − 1, and the last belief stands for all τ ≥ truncation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import ActionArray, Array, BoolArray, IntArray
from restless_bandits.learning.learners.confidence_bounds import binary_divergence
from restless_bandits.model.chain_powers import multiply, scale_rows
from restless_bandits.oracles.joint_kernels import STEP, Links

STATIONARY = 1e-13
"""The largest total change of the shares of joint beliefs that counts as stationary."""
MOST_STEPS = 20_000
SHARPEST_LOGIT = 25.0
SIMPLEX = 0.4
"""First steps of a search, in logits."""
SAME = 1e-11
"""A relative difference between the corners of a simplex at which a search ends."""


class PolicyOccupation(NamedTuple):
    """The long-run behaviour of a policy, arm by arm."""

    pulls: Array
    """``[arm, belief]``: pulls a slot."""
    worth: Array
    """``[arm, belief, state]``: pulls a slot, times the mean value of the joint belief after an observation of the
    state.
    """
    cost: float
    """Gaps a slot."""
    home: int
    """The most frequent joint belief."""


class Search(NamedTuple):
    """The nearest model of an arm whose gain, linear around another model, reaches a target."""

    distribution: Array
    """``[belief, state]``, of the true arm."""
    rewards: Array
    weights: Array
    """``[belief]``: the weight of pulls in each belief, which defines the distance."""
    possible: BoolArray
    """``[state, state]``: the possible transitions of a chain."""
    ordered: bool
    fixed: bool
    truncation: int
    pulls: Array
    worth: Array
    constant: float
    """The gain is this constant plus Σ worth·distribution' + Σ pulls·distribution'·rewards'."""
    target: float
    penalty: float
    """The penalty of a gain that is one unit below the target."""


@njit
def occupy(
    start: int,
    action: ActionArray,
    values: Array,
    gap: Array,
    links: Links,
    strides: IntArray,
    n_states: IntArray,
    distribution: Array,
) -> PolicyOccupation:
    """Follow a policy from a joint belief to its long run; see ``PolicyOccupation``."""
    belief, after = links
    size, most_states = belief.shape[0], distribution.shape[2]
    number = np.full(size, -1, dtype=np.int64)
    reached = np.empty(size, dtype=np.int64)
    number[start], reached[0], count, at = 0, start, 1, 0
    while at < count:
        z = reached[at]
        i = int(action[z])
        for k in range(n_states[i]):
            if distribution[i, belief[z, i], k] > 0.0:
                target = after[z, i] + k * strides[i, i]
                if number[target] < 0:
                    number[target], reached[count] = count, target
                    count += 1
        at += 1
    target_of = np.zeros((count, most_states), dtype=np.int64)
    probability = np.zeros((count, most_states))
    for at in range(count):
        z = reached[at]
        i = int(action[z])
        for k in range(n_states[i]):
            probability[at, k] = distribution[i, belief[z, i], k]
            if probability[at, k] > 0.0:
                target_of[at, k] = number[after[z, i] + k * strides[i, i]]
    share, moved = np.zeros(count), np.zeros(count)
    share[0] = 1.0
    for _ in range(MOST_STEPS):
        for at in range(count):
            moved[at] = (1.0 - STEP) * share[at]
        for at in range(count):
            for k in range(most_states):
                moved[target_of[at, k]] += STEP * share[at] * probability[at, k]
        change, total = 0.0, 0.0
        for at in range(count):
            change += abs(moved[at] - share[at])
            total += moved[at]
        for at in range(count):
            share[at] = moved[at] / total
        if change <= STATIONARY:
            break
    pulls, worth, cost = np.zeros(distribution.shape[:2]), np.zeros(distribution.shape), 0.0
    for at in range(count):
        z = reached[at]
        i = int(action[z])
        cost += share[at] * gap[z, i]
        pulls[i, belief[z, i]] += share[at]
        for k in range(n_states[i]):
            worth[i, belief[z, i], k] += share[at] * values[after[z, i] + k * strides[i, i]]
    return PolicyOccupation(pulls, worth, cost, reached[np.argmax(share)])


@njit
def gaps_of(
    values: Array, reward: Array, links: Links, strides: IntArray, n_states: IntArray, distribution: Array
) -> Array:
    """``[z, arm]``: the gap of a pull in each joint belief."""
    belief, after = links
    size, n_arms = belief.shape
    gap = np.empty((size, n_arms))
    for z in range(size):
        best = -np.inf
        for i in range(n_arms):
            value = reward[i, belief[z, i]]
            for k in range(n_states[i]):
                value += distribution[i, belief[z, i], k] * values[after[z, i] + k * strides[i, i]]
            gap[z, i] = value
            best = max(best, value)
        for i in range(n_arms):
            gap[z, i] = best - gap[z, i]
    return gap


@njit
def excursion_values(
    net: Array,
    gap: Array,
    free: BoolArray,
    links: Links,
    strides: IntArray,
    n_states: IntArray,
    distribution: Array,
    slack: float,
    most_sweeps: int,
) -> tuple[float, Array]:
    """Search a potential φ with φ(z) ≥ net(arm, belief) − gap + E φ(after) for every pull that is not free.

    φ is 0 in joint beliefs with a free pull, and elsewhere the value of the best excursion, with ``slack`` added to
    each of its slots. Once values have settled, the inequality therefore holds with a margin for rounding. Returns the
    largest violation without the slack, at most 0 for a valid φ; and φ.
    """
    belief, after = links
    size, n_arms = belief.shape
    resting = np.zeros(size, dtype=np.bool_)
    values = np.zeros(size)
    for z in range(size):
        for i in range(n_arms):
            resting[z] = resting[z] or free[z, i]
    worst, settled = np.inf, False
    for sweep in range(most_sweeps):
        # The last sweep changes nothing: all violations must refer to the same φ.
        last = settled or sweep == most_sweeps - 1
        worst, change = -np.inf, 0.0
        # Waiting leads to higher numbers: in backward order most successors of a belief are updated before the belief.
        for z in range(size - 1, -1, -1):
            best = -np.inf
            for i in range(n_arms):
                if free[z, i]:
                    continue
                value = net[i, belief[z, i]] - gap[z, i]
                for k in range(n_states[i]):
                    value += distribution[i, belief[z, i], k] * values[after[z, i] + k * strides[i, i]]
                best = max(best, value)
            worst = max(worst, best - values[z])
            if resting[z]:
                # Values only rise, as pulls without a gap take nothing: an excursion of positive value stays positive.
                if best > 0.0:
                    return best, values
            elif not last:
                change = max(change, best + slack - values[z])
                values[z] = best + slack
        if last:
            break
        settled = change <= 0.1 * slack
    return worst, values


@njit
def distributions_of(chain: Array, truncation: int) -> Array:
    """The distribution of the state in every belief of a chain; the last is stationary."""
    n = chain.shape[0]
    distribution = np.empty((n * (truncation - 1) + 1, n))
    power, product = chain.copy(), np.empty((n, n))
    for step in range(truncation - 1):
        for s in range(n):
            for k in range(n):
                distribution[s * (truncation - 1) + step, k] = power[s, k]
        multiply(power, chain, product)
        power, product = product, power
    for _ in range(60):
        apart = 0.0
        for s in range(1, n):
            for k in range(n):
                apart = max(apart, abs(power[s, k] - power[0, k]))
        if apart < 1e-15:
            break
        multiply(power, power, product)
        scale_rows(product)
        power, product = product, power
    for k in range(n):
        distribution[n * (truncation - 1), k] = power[0, k]
    return distribution


@njit
def divergence(distribution: Array, other: Array) -> Array:
    """``[belief]``: the Kullback-Leibler divergence of the observed state."""
    result = np.zeros(distribution.shape[0])
    for b in range(distribution.shape[0]):
        for k in range(distribution.shape[1]):
            if distribution[b, k] > 0.0:
                result[b] += (
                    distribution[b, k] * np.log(distribution[b, k] / other[b, k]) if other[b, k] > 0.0 else np.inf
                )
        result[b] = max(0.0, result[b])
    return result


@njit
def _tilted(seen: float, mean: float, push: float) -> float:
    """The r that minimises seen · kl(mean, r) − push · r."""
    if push <= 0.0:
        return mean
    if seen <= 0.0:
        return 1.0
    half = 0.5 * (push - seen)
    # Of the two forms of the root of push·r² − (push − seen)·r − seen·mean, the form without a difference.
    root = math.sqrt(half * half + push * seen * mean)
    if half > 0.0:
        return min(1.0, (half + root) / push)
    return min(1.0, seen * mean / (root - half)) if root > half else 0.0


@njit
def _tilt_all(seen: Array, means: Array, share: Array, price: float, ordered: bool, tilted: Array) -> float:
    """Tilt every mean by a price for a unit of its share; if states are ordered, the means are ordered too."""
    n = means.shape[0]
    first = np.empty(n, dtype=np.int64)
    pooled = np.empty((n, 3))
    pools = 0
    for k in range(n):
        first[pools] = k
        pooled[pools, 0], pooled[pools, 1], pooled[pools, 2] = seen[k], seen[k] * means[k], share[k]
        pools += 1
        while ordered and pools > 1:
            above, below = pooled[pools - 2], pooled[pools - 1]
            upper = _tilted(above[0], above[1] / above[0] if above[0] > 0.0 else 0.0, price * above[2])
            lower = _tilted(below[0], below[1] / below[0] if below[0] > 0.0 else 0.0, price * below[2])
            if upper >= lower:
                break
            for j in range(3):
                pooled[pools - 2, j] += pooled[pools - 1, j]
            pools -= 1
    total = 0.0
    for p in range(pools):
        mean = pooled[p, 1] / pooled[p, 0] if pooled[p, 0] > 0.0 else means[first[p]]
        value = _tilted(pooled[p, 0], mean, price * pooled[p, 2])
        for k in range(first[p], first[p + 1] if p + 1 < pools else n):
            tilted[k] = value
            total += share[k] * value
    return total


@njit
def nearest_rewards(
    seen: Array, means: Array, share: Array, need: float, ordered: bool, fixed: bool, found: Array
) -> float:
    """Write the nearest means with Σ share·mean ≥ need; return the shortfall if no means reach the need."""
    have, most = 0.0, 0.0
    for k in range(means.shape[0]):
        found[k] = means[k]
        have += share[k] * means[k]
        most += share[k]
    if have >= need or fixed:
        return max(0.0, need - have)
    if most <= need:
        found[:] = 1.0
        return need - most
    low, high = 0.0, 1.0
    while _tilt_all(seen, means, share, high, ordered, found) < need and high < 1e18:
        low, high = high, 4.0 * high
    for _ in range(70):
        middle = 0.5 * (low + high)
        if _tilt_all(seen, means, share, middle, ordered, found) < need:
            low = middle
        else:
            high = middle
        if high - low <= 1e-13 * high:
            break
    _tilt_all(seen, means, share, high, ordered, found)
    return 0.0


@njit
def chain_of(logits: Array, possible: BoolArray) -> Array:
    """The chain of given logits: for each row the logits of its possible transitions but the last, which has logit
    0.
    """
    n = possible.shape[0]
    chain = np.zeros((n, n))
    at = 0
    for s in range(n):
        last = 0
        for k in range(n):
            if possible[s, k]:
                last = k
        total = 0.0
        for k in range(n):
            if possible[s, k]:
                logit = 0.0
                if k != last:
                    logit = min(SHARPEST_LOGIT, max(-SHARPEST_LOGIT, logits[at]))
                    at += 1
                chain[s, k] = np.exp(logit)
                total += chain[s, k]
        for k in range(n):
            chain[s, k] /= total
    return chain


@njit
def _distance(logits: Array, search: Search, rewards: Array) -> float:
    """The distance of a chain from the true chain with the nearest paying rewards, which are written to ``rewards``."""
    chain = chain_of(logits, search.possible)
    other = distributions_of(chain, search.truncation)
    distribution, weights = search.distribution, search.weights
    n = distribution.shape[1]
    seen, share = np.zeros(n), np.zeros(n)
    gain, total = search.constant, 0.0
    for b in range(distribution.shape[0]):
        for k in range(n):
            gain += search.worth[b, k] * other[b, k]
            share[k] += search.pulls[b] * other[b, k]
            if weights[b] > 0.0 and distribution[b, k] > 0.0:
                seen[k] += weights[b] * distribution[b, k]
                total += weights[b] * distribution[b, k] * np.log(distribution[b, k] / other[b, k])
    missed = nearest_rewards(seen, search.rewards, share, search.target - gain, search.ordered, search.fixed, rewards)
    for k in range(n):
        if seen[k] > 0.0:
            total += seen[k] * max(0.0, binary_divergence(search.rewards[k], rewards[k]))
    return total + search.penalty * missed


@njit
def nearest_model(logits: Array, search: Search, most: int) -> tuple[float, Array, Array]:
    """Search from some logits by Nelder and Mead's simplex; returns the distance, the logits and the rewards."""
    n = logits.shape[0]
    rewards = np.empty(search.rewards.shape[0])
    if n == 0:
        return _distance(logits, search, rewards), logits, rewards
    corners, heights = np.empty((n + 1, n)), np.empty(n + 1)
    for j in range(n + 1):
        corners[j] = logits
        if j > 0:
            corners[j, j - 1] += SIMPLEX
        heights[j] = _distance(corners[j], search, rewards)
    for _ in range(most):
        order = np.argsort(heights)
        corners, heights = corners[order], heights[order]
        if heights[n] - heights[0] <= SAME * abs(heights[0]):
            break
        centre = np.zeros(n)
        for j in range(n):
            centre += corners[j] / n
        turned = 2.0 * centre - corners[n]
        height = _distance(turned, search, rewards)
        if height < heights[0]:
            further = 3.0 * centre - 2.0 * corners[n]
            beyond = _distance(further, search, rewards)
            if beyond < height:
                turned, height = further, beyond
            corners[n], heights[n] = turned, height
        elif height < heights[n - 1]:
            corners[n], heights[n] = turned, height
        else:
            side = turned if height < heights[n] else corners[n]
            nearer = 0.5 * (centre + side)
            inside = _distance(nearer, search, rewards)
            if inside < height and inside < heights[n]:
                corners[n], heights[n] = nearer, inside
            else:
                for j in range(1, n + 1):
                    corners[j] = 0.5 * (corners[0] + corners[j])
                    heights[j] = _distance(corners[j], search, rewards)
    best = int(np.argmin(heights))
    return _distance(corners[best], search, rewards), corners[best], rewards
