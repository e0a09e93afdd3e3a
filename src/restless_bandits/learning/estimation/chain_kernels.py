"""Compiled kernels of the estimation: the likelihood of interleaved observations and its mode.

A birth-death chain of n states has 2(n − 1) parameters. For each row these are the logits of its step down (to a better
state) and of its step up (to a worse state) against staying; θ = (down of row 1, …, down of row n − 1, up of row 0, …,
up of row n − 2).

Plain loops throughout: a slice assignment alone would make Numba compile its message for different shapes, with its
string functions, for seconds before the first result.
"""

from __future__ import annotations

import math

import numpy as np

from restless_bandits._internal.compiling import helper, inlined, njit
from restless_bandits._internal.validation import Array, IntArray

LARGEST_LOGIT = 14.0
LARGEST_STEP = 2.0
GAIN = 1e-7
MOST_STEPS = 60
HOPELESS = 20.0
"""The ratio of the shortfall to the expected gain of the next step at which a climb is abandoned."""
OVERSHOT = 0.5
"""Slope after a step, downward, as a share of the slope before, from which on the step was too long."""
SETTLED = 1e-13
"""The largest change of powers that counts as convergence."""
IMPOSSIBLE = 1e-14
"""Smaller probabilities are structural zeros: their observations are impossible for a birth-death chain and are
ignored.
"""
LONG_JUMP = 64
"""Gaps between elapsed slots beyond which powers are computed by squaring."""

Observations = tuple[IntArray, IntArray, IntArray]
"""Elapsed slots, in ascending order, last states, and the number of observations of each state then."""


@njit
def chain_of(theta: Array, n: int) -> Array:
    """Return the birth-death chain of given logits: θ as at the top of this file."""
    chain = np.zeros((n, n))
    for row in range(n):
        down = math.exp(theta[row - 1]) if row > 0 else 0.0
        up = math.exp(theta[n - 1 + row]) if row < n - 1 else 0.0
        total = 1.0 + down + up
        chain[row, row] = 1.0 / total
        if row > 0:
            chain[row, row - 1] = down / total
        if row < n - 1:
            chain[row, row + 1] = up / total
    return chain


@njit
def move_of(j: int, n: int) -> tuple[int, int]:
    """Return the transition of a parameter: from a state, to a state."""
    return (j + 1, j) if j < n - 1 else (j - (n - 1), j - (n - 1) + 1)


@inlined
def entry_slopes(chain: Array) -> Array:
    """The derivatives of the chain in each parameter, which affects its own row alone."""
    n = chain.shape[0]
    slopes = np.zeros((2 * (n - 1), n, n))
    for j in range(2 * (n - 1)):
        row, target = move_of(j, n)
        for k in range(n):
            slopes[j, row, k] = chain[row, k] * ((1.0 if k == target else 0.0) - chain[row, target])
    return slopes


@helper
def _multiply(power: Array, slope: Array, other: Array, other_slope: Array, out: Array, out_slope: Array) -> None:
    """The product of two powers, and its derivatives by the product rule."""
    n = power.shape[0]
    for s in range(n):
        for k in range(n):
            total = 0.0
            for m in range(n):
                total += power[s, m] * other[m, k]
            out[s, k] = total
    for j in range(slope.shape[0]):
        for s in range(n):
            for k in range(n):
                total = 0.0
                for m in range(n):
                    total += slope[j, s, m] * other[m, k] + power[s, m] * other_slope[j, m, k]
                out_slope[j, s, k] = total


@helper
def _copy(power: Array, slope: Array, out: Array, out_slope: Array) -> None:
    n = power.shape[0]
    for s in range(n):
        for k in range(n):
            out[s, k] = power[s, k]
            for j in range(slope.shape[0]):
                out_slope[j, s, k] = slope[j, s, k]


@inlined
def power_step(chain: Array, slopes: Array, power: Array, slope: Array, out: Array, out_slope: Array) -> float:
    """A further slot: ``out = power · chain`` with derivatives; returns the largest change."""
    n = chain.shape[0]
    change = 0.0
    for s in range(n):
        for k in range(n):
            total = power[s, k] * chain[k, k]
            if k > 0:
                total += power[s, k - 1] * chain[k - 1, k]
            if k < n - 1:
                total += power[s, k + 1] * chain[k + 1, k]
            out[s, k] = total
            change = max(change, abs(total - power[s, k]))
    for j in range(slope.shape[0]):
        row = move_of(j, n)[0]
        for s in range(n):
            for k in range(n):
                total = slope[j, s, k] * chain[k, k] + power[s, row] * slopes[j, row, k]
                if k > 0:
                    total += slope[j, s, k - 1] * chain[k - 1, k]
                if k < n - 1:
                    total += slope[j, s, k + 1] * chain[k + 1, k]
                out_slope[j, s, k] = total
                change = max(change, abs(total - slope[j, s, k]))
    return change


@helper
def two_state_power_steps(chain: Array, slopes: Array, power: Array, slope: Array, slots: int) -> bool:
    """Some slots more, for two states; ``power`` and ``slope`` are replaced; returns whether the powers have settled.

    The operations of ``power_step`` in the same order, and so the same bits, without loops over two entries.
    """
    c00, c01, c10, c11 = chain[0, 0], chain[0, 1], chain[1, 0], chain[1, 1]
    # The first parameter affects the second row of the chain alone, and the second parameter the first row.
    d0, d1, u0, u1 = slopes[0, 1, 0], slopes[0, 1, 1], slopes[1, 0, 0], slopes[1, 0, 1]
    settled = False
    for _ in range(slots):
        settled = True
        for s in range(2):
            p0, p1 = power[s, 0], power[s, 1]
            a0, a1 = slope[0, s, 0], slope[0, s, 1]
            b0, b1 = slope[1, s, 0], slope[1, s, 1]
            power[s, 0] = q0 = p0 * c00 + p1 * c10
            power[s, 1] = q1 = p1 * c11 + p0 * c01
            slope[0, s, 0] = e0 = a0 * c00 + p1 * d0 + a1 * c10
            slope[0, s, 1] = e1 = a1 * c11 + p1 * d1 + a0 * c01
            slope[1, s, 0] = f0 = b0 * c00 + p0 * u0 + b1 * c10
            slope[1, s, 1] = f1 = b1 * c11 + p0 * u1 + b0 * c01
            change = max(abs(q0 - p0), abs(q1 - p1), abs(e0 - a0), abs(e1 - a1), abs(f0 - b0), abs(f1 - b1))
            settled = settled and change < SETTLED
        if settled:
            break
    return settled


@inlined
def _jump(chain: Array, slopes: Array, power: Array, slope: Array, slots: int) -> None:
    """Many slots more, by squaring; ``power`` and ``slope`` are replaced."""
    n, parameters = chain.shape[0], slope.shape[0]
    square, square_slope = np.empty((n, n)), np.empty((parameters, n, n))
    out, out_slope = np.empty((n, n)), np.empty((parameters, n, n))
    _copy(chain, slopes, square, square_slope)
    while slots > 0:
        if slots & 1:
            _multiply(power, slope, square, square_slope, out, out_slope)
            _copy(out, out_slope, power, slope)
        slots >>= 1
        if slots:
            _multiply(square, square_slope, square, square_slope, out, out_slope)
            _copy(out, out_slope, square, square_slope)


@njit
def log_posterior(
    theta: Array, n: int, observations: Observations, prior: float, gradient: Array, information: Array
) -> float:
    """The log-posterior of a chain; its gradient and Fisher's information are written.

    ``prior`` is a pseudo-count for every category of every row.
    """
    elapsed, states, seen = observations
    parameters = 2 * (n - 1)
    chain = chain_of(theta, n)
    slopes = entry_slopes(chain)
    power, slope = np.empty((n, n)), np.empty((parameters, n, n))
    out, out_slope = np.empty((n, n)), np.empty((parameters, n, n))
    _copy(chain, slopes, power, slope)
    for j in range(parameters):
        gradient[j] = 0.0
        for i in range(parameters):
            information[j, i] = 0.0
    value = 0.0

    at = 1
    settled = False
    for c in range(elapsed.shape[0]):
        if not settled and elapsed[c] - at > LONG_JUMP:
            _jump(chain, slopes, power, slope, elapsed[c] - at)
        elif n == 2 and not settled:
            settled = two_state_power_steps(chain, slopes, power, slope, elapsed[c] - at)
        else:
            while at < elapsed[c] and not settled:
                change = power_step(chain, slopes, power, slope, out, out_slope)
                power, out = out, power
                slope, out_slope = out_slope, slope
                at += 1
                settled = change < SETTLED
        at = elapsed[c]
        s = states[c]
        total = 0
        for k in range(n):
            total += seen[c, k]
        for k in range(n):
            p = power[s, k]
            if p <= IMPOSSIBLE:
                continue
            if seen[c, k]:
                value += seen[c, k] * math.log(p)
            share, weight = seen[c, k] / p, total / p
            for j in range(parameters):
                gradient[j] += share * slope[j, s, k]
                scaled = weight * slope[j, s, k]
                for i in range(j + 1):
                    information[j, i] += scaled * slope[i, s, k]
    for row in range(n):
        categories = (row > 0) + 1 + (row < n - 1)
        for k in range(max(0, row - 1), min(n, row + 2)):
            value += prior * math.log(chain[row, k])
        for j in range(parameters):
            origin, target = move_of(j, n)
            if origin != row:
                continue
            gradient[j] += prior * (1.0 - categories * chain[row, target])
            for i in range(j + 1):
                origin, other = move_of(i, n)
                if origin == row:
                    same = 1.0 if i == j else 0.0
                    information[j, i] += prior * categories * chain[row, target] * (same - chain[row, other])
    for j in range(parameters):
        for i in range(j):
            information[i, j] = information[j, i]
    return value


@njit
def newton_step(gradient: Array, information: Array, damped: Array, step: Array) -> None:
    """Write the step of Fisher scoring, at most ``LARGEST_STEP`` long in any logit; ``damped`` is room for work.

    Elimination without pivots, sufficient for damped information, which is positive definite.
    """
    parameters = gradient.shape[0]
    for j in range(parameters):
        step[j] = gradient[j]
        for i in range(parameters):
            damped[j, i] = information[j, i]
        damped[j, j] += 1e-9 * (1.0 + information[j, j])
    for j in range(parameters):
        for i in range(j + 1, parameters):
            factor = damped[i, j] / damped[j, j]
            step[i] -= factor * step[j]
            for k in range(j + 1, parameters):
                damped[i, k] -= factor * damped[j, k]
    largest = 0.0
    for j in range(parameters - 1, -1, -1):
        for k in range(j + 1, parameters):
            step[j] -= damped[j, k] * step[k]
        step[j] /= damped[j, j]
        largest = max(largest, abs(step[j]))
    if largest > LARGEST_STEP:
        for j in range(parameters):
            step[j] *= LARGEST_STEP / largest


@helper
def _moved(theta: Array, scale: float, step: Array, out: Array) -> None:
    """Write θ + scale · step, within the largest logits."""
    for j in range(theta.shape[0]):
        out[j] = min(max(theta[j] + scale * step[j], -LARGEST_LOGIT), LARGEST_LOGIT)


@helper
def _dot(one: Array, other: Array) -> float:
    total = 0.0
    for j in range(one.shape[0]):
        total += one[j] * other[j]
    return total


@inlined
def climb(theta: Array, n: int, seen: Observations, prior: float, goal: float, information: Array) -> float:
    """Fisher scoring from ``theta`` up to a mode; ``theta`` and ``information`` are overwritten; returns the
    log-posterior.

    A step is at most ``LARGEST_STEP`` long in any logit and is halved until the log-posterior does not decrease. A step
    over the ridge, with nearly the opposite slope at its end, is shortened to the zero of its slope: the expected
    information may be half of the observed, and the climb would oscillate. The climb ends when a step's expected gain
    is less than ``GAIN``, or too small compared with the shortfall from ``goal``.
    """
    parameters = theta.shape[0]
    gradient, trial_gradient, cut_gradient = np.empty(parameters), np.empty(parameters), np.empty(parameters)
    trial_information, cut_information = np.empty((parameters, parameters)), np.empty((parameters, parameters))
    trial, cut, step, damped = (
        np.empty(parameters),
        np.empty(parameters),
        np.empty(parameters),
        np.empty_like(information),
    )
    value = log_posterior(theta, n, seen, prior, gradient, information)
    for _ in range(MOST_STEPS):
        newton_step(gradient, information, damped, step)
        promised = _dot(step, gradient)
        if promised < GAIN or HOPELESS * promised < goal - value:
            break
        moved = False
        found = value
        for _ in range(12):
            _moved(theta, 1.0, step, trial)
            found = log_posterior(trial, n, seen, prior, trial_gradient, trial_information)
            if found >= value:
                moved = True
                break
            for j in range(parameters):
                step[j] *= 0.5
        if not moved:
            break
        slope, slope_after = _dot(gradient, step), _dot(trial_gradient, step)
        if slope_after < -OVERSHOT * slope:
            _moved(theta, slope / (slope - slope_after), step, cut)
            found_there = log_posterior(cut, n, seen, prior, cut_gradient, cut_information)
            if found_there > found:
                found = found_there
                trial, cut = cut, trial
                trial_gradient, cut_gradient = cut_gradient, trial_gradient
                trial_information, cut_information = cut_information, trial_information
        better = found - value
        value = found
        for j in range(parameters):
            theta[j], gradient[j] = trial[j], trial_gradient[j]
            for i in range(parameters):
                information[j, i] = trial_information[j, i]
        if better < GAIN:
            break
    return value


@helper
def twin_of(theta: Array, n: int) -> Array:
    """A start for the other mode: for two states the same stationary distribution and the opposite correlation; else
    slow.
    """
    if n != 2:
        return np.full(theta.shape[0], -1.5)
    down = 1.0 / (1.0 + math.exp(-theta[0]))
    up = 1.0 / (1.0 + math.exp(-theta[1]))
    # 1 − λ is the sum of both moves; the twin's sum is 1 + λ, shared in the same proportion.
    scale = (2.0 - (down + up)) / max(down + up, 1e-9)
    down, up = down * scale, up * scale
    most = max(down, up)
    if most > 0.999:
        down, up = down * 0.999 / most, up * 0.999 / most
    twin = np.empty(2)
    twin[0], twin[1] = math.log(max(down, 1e-6) / (1.0 - down)), math.log(max(up, 1e-6) / (1.0 - up))
    return twin


@njit
def move_errors(theta: Array, n: int, covariance: Array) -> Array:
    """Standard errors of the probabilities to step down and up, in the order of θ, by the delta method."""
    chain = chain_of(theta, n)
    parameters = theta.shape[0]
    errors = np.empty(parameters)
    slope = np.empty(parameters)
    for j in range(parameters):
        row, target = move_of(j, n)
        for i in range(parameters):
            origin, other = move_of(i, n)
            slope[i] = 0.0
            if origin == row:
                slope[i] = chain[row, target] * ((1.0 if i == j else 0.0) - chain[row, other])
        variance = 0.0
        for i in range(parameters):
            for m in range(parameters):
                variance += slope[i] * covariance[i, m] * slope[m]
        errors[j] = math.sqrt(max(variance, 0.0))
    return errors
