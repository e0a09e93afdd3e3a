"""Compiled kernels of the test for changes: likelihoods, code lengths of chains, and estimated gains of a change.

Observations have the form of ``estimation``: elapsed slots in ascending order, last states, and counts of each observed
state.
"""

from __future__ import annotations

import math

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.estimation.arm_kernels import inverse
from restless_bandits.learning.estimation.chain_kernels import LONG_JUMP, SETTLED, Observations, chain_of, log_posterior
from restless_bandits.model.chain_powers import multiply, power_of

LEVELS = 12
"""Lattices of chains: on the l-th every angle takes one of 2^l values."""
LEAST_PROBABILITY = 1e-300
DAMPING = 0.1
"""Information added to every logit before a score is divided by the information."""


@njit
def log_likelihood(chain: Array, observations: Observations) -> float:
    """The log-likelihood of a birth-death chain. Observations impossible for such a chain are left out."""
    elapsed, states, seen = observations
    n = chain.shape[0]
    power, out = chain.copy(), np.empty((n, n))
    value = 0.0
    at = 1
    settled = False
    for c in range(elapsed.shape[0]):
        if not settled and elapsed[c] - at > LONG_JUMP:
            multiply(power, power_of(chain, elapsed[c] - at), out)
            power, out = out, power
        else:
            while at < elapsed[c] and not settled:
                multiply(power, chain, out)
                change = 0.0
                for s in range(n):
                    for k in range(n):
                        change = max(change, abs(out[s, k] - power[s, k]))
                power, out = out, power
                at += 1
                settled = change < SETTLED
        at = elapsed[c]
        s = states[c]
        for k in range(n):
            if seen[c, k] and abs(k - s) <= elapsed[c]:
                value += seen[c, k] * math.log(max(power[s, k], LEAST_PROBABILITY))
    return value


@njit
def _rounded(probability: float, level: int) -> float:
    """The nearest probability on a lattice even in the angle φ of probability = sin² φ, in which Fisher's
    information is constant.
    """
    step = 0.5 * math.pi / 2**level
    cell = min(int(math.asin(math.sqrt(min(max(probability, 0.0), 1.0))) / step), 2**level - 1)
    return math.sin((cell + 0.5) * step) ** 2


@njit
def lattice_chain(chain: Array, level: int) -> Array:
    """The nearest chain on a lattice: for each row the probability to move, and for an inner row the share of moves
    down.
    """
    n = chain.shape[0]
    found = np.zeros((n, n))
    for row in range(n):
        down = chain[row, row - 1] if row > 0 else 0.0
        up = chain[row, row + 1] if row < n - 1 else 0.0
        move = _rounded(down + up, level)
        if row == 0:
            share = 0.0
        elif row == n - 1:
            share = 1.0
        else:
            share = _rounded(down / (down + up), level)
        found[row, row] = 1.0 - move
        if row > 0:
            found[row, row - 1] = move * share
        if row < n - 1:
            found[row, row + 1] = move * (1.0 - share)
    return found


@njit
def coded_likelihood(theta: Array, n: int, information: Array, observations: Observations) -> float:
    """A lower bound of the log of the mixture of likelihoods over all lattice chains, from a single chain near
    ``theta``.

    The mixture gives each level the weight 1/LEVELS, and a level's 2^(l·2(n − 1)) chains equal weights. Among the
    chains nearest to θ, one on every level, the bound uses the best by the curvature at θ; any chain would be valid.
    """
    chain = chain_of(theta, n)
    parameters = theta.shape[0]
    best, least = 1, np.inf
    away = np.empty(parameters)
    for level in range(1, LEVELS + 1):
        near = lattice_chain(chain, level)
        for j in range(n - 1):
            away[j] = math.log(near[j + 1, j] / near[j + 1, j + 1]) - theta[j]
            away[n - 1 + j] = math.log(near[j, j + 1] / near[j, j]) - theta[n - 1 + j]
        cost = parameters * level * math.log(2.0)
        for j in range(parameters):
            for i in range(parameters):
                cost += 0.5 * away[j] * information[j, i] * away[i]
        if cost < least:
            best, least = level, cost
    code = parameters * best * math.log(2.0) + math.log(LEVELS)
    value: float = log_likelihood(lattice_chain(chain, best), observations) - code
    return value


@njit
def score_gains(theta: Array, n: int, elapsed: IntArray, states: IntArray, later: IntArray) -> Array:
    """The approximate gain in log-likelihood of two chains over the common chain of ``theta``, for each split.

    ``later[c]`` are the observations after the c-th split; ``later[0]`` are all. The gain follows from the score of the
    later observations, which is minus the score of the earlier observations, and the information of both.
    """
    splits, parameters = later.shape[0], theta.shape[0]
    gains = np.zeros(splits)
    gradient = np.empty(parameters)
    whole, after = np.empty((parameters, parameters)), np.empty((parameters, parameters))
    before = np.empty((parameters, parameters))
    log_posterior(theta, n, (elapsed, states, later[0]), 0.0, gradient, whole)
    for c in range(1, splits):
        log_posterior(theta, n, (elapsed, states, later[c]), 0.0, gradient, after)
        for j in range(parameters):
            for i in range(parameters):
                before[j, i] = whole[j, i] - after[j, i]
            after[j, j] += DAMPING
            before[j, j] += DAMPING
        gains[c] = 0.5 * (_quadratic(gradient, inverse(after)) + _quadratic(gradient, inverse(before)))
    return gains


@njit
def _quadratic(vector: Array, matrix: Array) -> float:
    total = 0.0
    for j in range(vector.shape[0]):
        for i in range(vector.shape[0]):
            total += vector[j] * matrix[j, i] * vector[i]
    return total


@njit
def _mixed(ones: float, zeros: float) -> float:
    """Log of the mean of p^ones · (1 − p)^zeros over Beta(½, ½): Krichevsky and Trofimov's mixture."""
    together = math.lgamma(ones + 0.5) + math.lgamma(zeros + 0.5) - math.lgamma(ones + zeros + 1.0)
    return together - math.log(math.pi)


@njit
def _likeliest(ones: float, zeros: float) -> float:
    """Log of the largest p^ones · (1 − p)^zeros."""
    total = ones + zeros
    value = 0.0
    if ones > 0.0:
        value += ones * math.log(ones / total)
    if zeros > 0.0:
        value += zeros * math.log(zeros / total)
    return value


@njit
def split_ratios(sums: Array, seen: IntArray) -> Array:
    """Log of the evidence for changed means of numbers between 0 and 1, for each split: ``[split, mean]``.

    ``sums[c]`` and ``seen[c]`` are sums and counts after the c-th split; split 0 has all.
    """
    splits, n = sums.shape
    ratios = np.zeros((splits, n))
    for k in range(n):
        # Sums of rewards are rounded: the remainder may be below zero by some bits.
        ones, zeros = max(sums[0, k], 0.0), max(seen[0, k] - sums[0, k], 0.0)
        whole = _likeliest(ones, zeros)
        for c in range(1, splits):
            # Most distributions are observed rarely: between most splits there is no new observation.
            if c > 1 and sums[c, k] == sums[c - 1, k] and seen[c, k] == seen[c - 1, k]:
                ratios[c, k] = ratios[c - 1, k]
                continue
            later, missing = max(sums[c, k], 0.0), max(seen[c, k] - sums[c, k], 0.0)
            earlier = _mixed(max(ones - later, 0.0), max(zeros - missing, 0.0))
            ratios[c, k] = earlier + _mixed(later, missing) - whole
    return ratios
