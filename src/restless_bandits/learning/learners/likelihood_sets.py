"""Compiled confidence sets of two-state arms from the likelihood of all their observations, with the allowed
distributions.

A two-state chain with nonnegative correlation redraws its state in every slot with some probability r, from its
stationary distribution, in which the probability of the good state is p. Its second eigenvalue is 1 − r, P(1, 1) = 1 −
(1 − p) r, P(2, 1) = p r. Let y(τ) = 1 − (1 − r)^τ, the probability of a redraw within τ slots. The probability of the
good state τ slots later is 1 − (1 − p) y after good, and p y after bad. Therefore

    ℓ(r, p) = Σ stays from good · ln(1 − (1 − p) y) + leaves from good · ln((1 − p) y)
              + stays in bad · ln(1 − p y) + leaves from bad · ln(p y),

summed over waits τ. Three facts make proved bounds cheap. First, ℓ is concave in the probabilities 1 − (1 − p) y and p
y: its tangent in them lies above ℓ everywhere. Second, both are linear in p: ℓ is concave in p for each r. Third, y is
concave in r. A chain uniform on 0 ≤ P(2, 1) ≤ P(1, 1) ≤ 1 has the density 2r in (r, p).

docs/theory/likelihood-dominance.md derives the bounds step by step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.record import BIN_EDGES, N_BINS

EDGE = 1e-12
"""Stationary probabilities are restricted to the interval from this number to one minus this number."""
STEPS = 40
"""The largest number of steps of a root search, far more than needed."""
SLIGHT = 1e-3
"""The tolerance of a peak in nats: a tangent at another point costs a little sharpness, never validity."""
NEAR = 0.05
"""The tolerance of an edge in nats."""
SCAN = 14
"""Redraw probabilities, evenly spaced in their logarithm, from which the search for the likeliest starts."""
DROP = 4.5
"""Nats below the peak at which cells of the integral end."""
COLUMNS, CELLS = 9, 7
"""Columns and cells a column of the integral."""
STRIPS = 8
"""Strips on each side of the likeliest redraw probability."""
FINEST = 8
"""The largest number of parts of a strip in which no tangent falls."""
MOST_STRIPS = 400
ROUNDING = 1e-13
"""The rounding error of sums of logarithms, in nats for each observation."""


class Samples(NamedTuple):
    """The observations of an arm: for each wait the numbers of observations in the same state and in the other
    state.
    """

    waits: Array
    stayed_good: Array
    left_good: Array
    stayed_bad: Array
    left_bad: Array


@njit
def gather(counts: IntArray, favourable: bool) -> Samples:
    """Return the observations of a two-state arm, from its counts ``[s, bin(τ), k]``, without its first observation.

    Waits counted in a bin are replaced by the waits that make the observations most likely, or least likely: leaving is
    likelier after long waits and staying after short waits.
    """
    found = 0
    for b in range(N_BINS):
        pulls = counts[0, b, 0] + counts[0, b, 1] + counts[1, b, 0] + counts[1, b, 1]
        if pulls:
            found += 1 if b + 1 < N_BINS and BIN_EDGES[b + 1] == BIN_EDGES[b] + 1 else 2
    samples = Samples(np.zeros(found), np.zeros(found), np.zeros(found), np.zeros(found), np.zeros(found))
    at = 0
    for b in range(N_BINS):
        pulls = counts[0, b, 0] + counts[0, b, 1] + counts[1, b, 0] + counts[1, b, 1]
        if not pulls:
            continue
        first = BIN_EDGES[b]
        last = BIN_EDGES[b + 1] - 1 if b + 1 < N_BINS else 2 * first
        samples.waits[at] = first if favourable else last
        samples.stayed_good[at], samples.stayed_bad[at] = counts[0, b, 0], counts[1, b, 1]
        if first != last:
            at += 1
            samples.waits[at] = last if favourable else first
        samples.left_good[at], samples.left_bad[at] = counts[0, b, 1], counts[1, b, 0]
        at += 1
    return samples


@njit
def mirrored(samples: Samples) -> Samples:
    """The same with good and bad exchanged: ``p`` becomes ``1 − p``."""
    return Samples(samples.waits, samples.stayed_bad, samples.left_bad, samples.stayed_good, samples.left_good)


@njit
def redrawn(waits: Array, probability: float) -> Array:
    """y(τ): the probability of a redraw within each wait."""
    found = np.empty(waits.shape[0])
    rate = math.log1p(-probability) if probability < 1.0 else -math.inf
    for c in range(waits.shape[0]):
        found[c] = -math.expm1(waits[c] * rate)
    return found


@njit
def along(samples: Samples, drawn: Array, share: float) -> tuple[float, float, float]:
    """The log-likelihood at a stationary probability of good, and its first two derivatives in the probability."""
    rest = 1.0 - share
    left_good, left_bad = 0.0, 0.0
    value, slope, curvature = 0.0, 0.0, 0.0
    for c in range(drawn.shape[0]):
        y = drawn[c]
        if samples.left_good[c] + samples.left_bad[c] > 0.0:
            value += (samples.left_good[c] + samples.left_bad[c]) * math.log(y)
            left_good += samples.left_good[c]
            left_bad += samples.left_bad[c]
        if samples.stayed_good[c] > 0.0:
            probability = 1.0 - rest * y
            value += samples.stayed_good[c] * math.log(probability)
            slope += samples.stayed_good[c] * y / probability
            curvature -= samples.stayed_good[c] * (y / probability) ** 2
        if samples.stayed_bad[c] > 0.0:
            probability = 1.0 - share * y
            value += samples.stayed_bad[c] * math.log(probability)
            slope -= samples.stayed_bad[c] * y / probability
            curvature -= samples.stayed_bad[c] * (y / probability) ** 2
    if left_good > 0.0:
        value += left_good * math.log(rest)
        slope -= left_good / rest
        curvature -= left_good / rest**2
    if left_bad > 0.0:
        value += left_bad * math.log(share)
        slope += left_bad / share
        curvature -= left_bad / share**2
    return value, slope, curvature


@njit
def peak(samples: Samples, drawn: Array, start: float) -> tuple[float, float]:
    """The likeliest stationary probability of good given a redraw probability, and its log-likelihood, to
    ``SLIGHT``.
    """
    low, high = EDGE, 1.0 - EDGE
    share = min(max(start, low), high)
    value = 0.0
    for _ in range(STEPS):
        value, slope, curvature = along(samples, drawn, share)
        # A concave function gains at most this amount up to the end of the bracket.
        if slope > 0.0:
            low = share
            if slope * (high - share) <= SLIGHT:
                break
        else:
            high = share
            if slope * (low - share) <= SLIGHT:
                break
        # The rule of Newton's method for a peak inside; near an end the distance may be underestimated.
        if slope * slope <= -2.0 * SLIGHT * curvature:
            break
        step = share - slope / curvature
        if not low < step < high:
            step = math.sqrt(low * high) if slope < 0.0 else 1.0 - math.sqrt((1.0 - low) * (1.0 - high))
        share = step
    return share, value


@njit
def right_edge(samples: Samples, drawn: Array, top: float, goal: float) -> float:
    """A stationary probability of good above the likeliest, ``top``, at which the log-likelihood is near a goal
    below.
    """
    low, high = top, 1.0 - EDGE
    value, slope, curvature = along(samples, drawn, top)
    share = top + math.sqrt(2.0 * max(value - goal, SLIGHT) / max(-curvature, EDGE))
    for _ in range(STEPS):
        if not low < share < high:
            # By repeated halves of the way to 1, possibly many.
            share = 1.0 - math.sqrt((1.0 - low) * (1.0 - high))
        value, slope, curvature = along(samples, drawn, share)
        if abs(value - goal) <= NEAR or high - low <= EDGE:
            break
        if value > goal:
            low = share
        else:
            high = share
        share = share - (value - goal) / slope if slope < 0.0 else high
    return share


@njit
def ridge(samples: Samples, log_probability: float, start: float) -> tuple[float, float]:
    """``peak`` as a function of the logarithm of a redraw probability."""
    return peak(samples, redrawn(samples.waits, math.exp(log_probability)), start)


@njit
def likeliest(samples: Samples, lowest: float) -> tuple[float, float, float]:
    """The logarithm of the redraw probability, the stationary probability and the log-likelihood of about the likeliest
    chain.

    A scan, then golden sections until the log-likelihood is flat to a nat. Any of several peaks is sufficient: bounds
    depend on the peak only in their sharpness.
    """
    share, best, at = 0.5, -math.inf, 0
    for k in range(SCAN):
        share, value = ridge(samples, lowest * k / (SCAN - 1), share)
        if value > best:
            best, at = value, k
    low, high = lowest * min(at + 1, SCAN - 1) / (SCAN - 1), lowest * max(at - 1, 0) / (SCAN - 1)
    value_low, value_high = -math.inf, -math.inf
    golden = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - golden * (high - low), low + golden * (high - low)
    share_left, value_left = ridge(samples, left, share)
    share_right, value_right = ridge(samples, right, share_left)
    for _ in range(STEPS):
        if max(value_left, value_right) - min(value_low, value_high) < 1.0:
            break
        if value_left > value_right:
            high, value_high, right, share_right, value_right = right, value_right, left, share_left, value_left
            left = high - golden * (high - low)
            share_left, value_left = ridge(samples, left, share_right)
        else:
            low, value_low, left, share_left, value_left = left, value_left, right, share_right, value_right
            right = low + golden * (high - low)
            share_right, value_right = ridge(samples, right, share_left)
    if value_left > value_right:
        return left, share_left, value_left
    return right, share_right, value_right


@njit
def drop_at(samples: Samples, top: float, share: float, value: float, drop: float, limit: float) -> float:
    """The approximate point at which the ridge has dropped a given amount below its top, toward a limit; else the
    limit.

    The square root of the drop is nearly linear, and the search uses this.
    """
    inside, outside = top, limit
    at = limit
    for _ in range(STEPS):
        share, found = ridge(samples, at, share)
        dropped = max(value - found, SLIGHT)
        if dropped < drop:
            if at == limit:
                return limit
            inside = at
        else:
            outside = at
        if 0.7 * drop <= dropped <= 1.3 * drop:
            break
        at = top + (at - top) * math.sqrt(drop / dropped)
        if not min(inside, outside) < at < max(inside, outside):
            at = 0.5 * (inside + outside)
    return at


@njit
def stay_mean(rest: float, tilt: float, half: float, thick: float, y: Array, slope: float, bend: float) -> float:
    """A lower bound of the mean of ln(1 − q y) for a redraw probability uniform within ``half`` of a middle.

    There q = rest + tilt · (redraw probability − middle) + a term uniform within ``thick``, and y runs from ``y[0]`` by
    ``y[1]`` to ``y[2]``, with slope and bend (less its second derivative) at the middle. With z the relative deviation
    of 1 − q y from its value in the middle, ln(1 + z) ≥ z − c z² as long as z is not below the limit of c.
    """
    middle = 1.0 - rest * float(y[1])
    least = 1.0 - (rest + abs(tilt) * half + thick) * y[2]
    if least <= 0.0:
        return -math.inf
    # All even derivatives of y are negative and all odd derivatives positive: means over a symmetric interval lie
    # between the mean of the first term of a series and the mean of the chord.
    shift = -tilt * (half * (y[2] - y[0]) / 6.0 if tilt > 0.0 else slope * half * half / 3.0)
    shift += rest * bend * half * half / 6.0
    rise, fall = (y[1] - y[0]) / half, (y[2] - y[1]) / half
    steepest = max(
        max(abs(tilt * y[0] + rest * rise), abs(tilt * y[0] + rest * fall)),
        max(abs(tilt * y[2] + rest * rise), abs(tilt * y[2] + rest * fall)),
    )
    square = ((thick * y[2]) ** 2 + (steepest * half) ** 2) / 3.0
    z = 1.0 - least / middle
    c = 0.5 + z if z < 1e-3 else -(z + math.log1p(-z)) / (z * z)
    return math.log(middle) + float(shift / middle - c * square / (middle * middle))


@njit
def share_mean(share: float, reach: float, square: float) -> float:
    """A lower bound of the mean of ln p for p symmetric about ``share``, within a reach, with a mean square."""
    z = reach / share
    if z >= 1.0:
        return -math.inf
    # Even powers of the deviation are at most its square times a power of the reach.
    return math.log(share) + (0.5 * square * math.log1p(-z * z) / (reach * reach) if z > 1e-6 else -square / share**2)


@njit
def log_mixture(samples: Samples, top: float, share: float, value: float, lowest: float) -> float:
    """A lower bound of ln ∫ L, L the likelihood and the chain uniform on 0 ≤ P(2, 1) ≤ P(1, 1) ≤ 1.

    The integral uses columns of redraw probabilities, and in each of them cells, parallelograms along the ridge. The
    integral over a cell is at least its size times exp of the mean of the logarithm (Jensen); lower bounds of means are
    summed.
    """
    start = drop_at(samples, top, share, value, DROP, lowest)
    end = drop_at(samples, top, share, value, DROP, 0.0)
    if end - start < 1e-9:
        start = end - 1.0
    other = mirrored(samples)
    waits, size = samples.waits, samples.waits.shape[0]
    y, slope, bend = np.empty((size, 3)), np.empty(size), np.empty(size)
    total, scale = 0.0, -math.inf
    for column in range(COLUMNS):
        low, high = (
            math.exp(start + (end - start) * column / COLUMNS),
            math.exp(start + (end - start) * (column + 1) / COLUMNS),
        )
        probability, half = 0.5 * (low + high), 0.5 * (high - low)
        outer = (redrawn(waits, low), redrawn(waits, probability), redrawn(waits, high))
        share, best = peak(samples, outer[1], share)
        above = right_edge(samples, outer[1], share, best - DROP)
        below = 1.0 - right_edge(other, outer[1], 1.0 - share, best - DROP)
        _, _, curvature = along(samples, outer[1], share)
        # Mean of ln(2 · redraw probability · size of a cell) over the column.
        base = math.log(8.0 * half) + (high * math.log(high) - low * math.log(low)) / (2.0 * half) - 1.0
        mixed, leaves, left_good, left_bad = 0.0, 0.0, 0.0, 0.0
        for c in range(size):
            for e in range(3):
                y[c, e] = outer[e][c]
            left = 1.0 - y[c, 1]
            slope[c] = waits[c] * left / (1.0 - probability) if probability < 1.0 else 0.0
            bend[c] = slope[c] * (waits[c] - 1.0) / (1.0 - probability) if probability < 1.0 else 0.0
            mixed += slope[c] * (
                samples.stayed_good[c] / (1.0 - (1.0 - share) * y[c, 1]) ** 2
                - samples.stayed_bad[c] / (1.0 - share * y[c, 1]) ** 2
            )
            moves = samples.left_good[c] + samples.left_bad[c]
            if moves > 0.0:
                # Simpson's rule, a lower bound of the mean because the fourth derivative is negative.
                leaves += moves * (math.log(y[c, 0]) + 4.0 * math.log(y[c, 1]) + math.log(y[c, 2])) / 6.0
            left_good += samples.left_good[c]
            left_bad += samples.left_bad[c]
        inside = below > 2.0 * EDGE and above < 1.0 - 2.0 * EDGE
        tilt = -mixed / curvature if inside and curvature < 0.0 else 0.0
        thick = 0.5 * (above - below) / CELLS
        reach = abs(tilt) * half + thick
        square = ((tilt * half) ** 2 + thick**2) / 3.0
        for cell in range(CELLS):
            middle = below + (2 * cell + 1) * thick
            if middle - reach < 0.0 or middle + reach > 1.0:
                continue
            mean = base + math.log(thick) + leaves
            if left_bad > 0.0:
                mean += left_bad * share_mean(middle, reach, square)
            if left_good > 0.0:
                mean += left_good * share_mean(1.0 - middle, reach, square)
            for c in range(size):
                if samples.stayed_good[c] > 0.0:
                    mean += samples.stayed_good[c] * stay_mean(
                        1.0 - middle, -tilt, half, thick, y[c], slope[c], bend[c]
                    )
                if samples.stayed_bad[c] > 0.0:
                    mean += samples.stayed_bad[c] * stay_mean(middle, tilt, half, thick, y[c], slope[c], bend[c])
            if mean > scale:
                total = total * math.exp(scale - mean) + 1.0
                scale = mean
            elif mean > -math.inf:
                total += math.exp(mean - scale)
    return scale + math.log(total) if total > 0.0 else -math.inf


class Tangent(NamedTuple):
    """Upper bounds of the log-likelihood over a strip of redraw probabilities, from a single tangent.

    At the lower end, at the stationary probability p, the log-likelihood is at most (1 − p) ``low_bad`` + p
    ``low_good``, at the upper end likewise, and in between at most the linear interpolation.
    """

    low_bad: float
    low_good: float
    high_bad: float
    high_good: float


@njit
def tangent(samples: Samples, low: Array, middle: Array, high: Array, share: float) -> Tangent:
    """Lay the tangent in the probabilities of good at the middle of a strip and a given stationary probability.

    ``low``, ``middle`` and ``high`` are y at the ends of the strip and halfway. y is concave and exceeds its chord by
    at most twice its excess halfway.
    """
    rest = 1.0 - share
    value, _, _ = along(samples, middle, share)
    low_bad, low_good, high_bad, high_good, over_bad, over_good = value, value, value, value, 0.0, 0.0
    for c in range(middle.shape[0]):
        y = middle[c]
        from_good, from_bad = 0.0, 0.0
        if samples.stayed_good[c] > 0.0:
            from_good += samples.stayed_good[c] / (1.0 - rest * y)
        if samples.left_good[c] > 0.0:
            from_good -= samples.left_good[c] / (rest * y)
        if samples.stayed_bad[c] > 0.0:
            from_bad -= samples.stayed_bad[c] / (1.0 - share * y)
        if samples.left_bad[c] > 0.0:
            from_bad += samples.left_bad[c] / (share * y)
        here = rest * from_good * y - share * from_bad * y
        low_bad += here - from_good * low[c]
        low_good += here + from_bad * low[c]
        high_bad += here - from_good * high[c]
        high_good += here + from_bad * high[c]
        excess = max(0.0, 2.0 * y - low[c] - high[c])
        over_bad += max(0.0, -from_good) * excess
        over_good += max(0.0, from_bad) * excess
    return Tangent(low_bad + over_bad, low_good + over_good, high_bad + over_bad, high_good + over_good)


@njit
def strip_bound(
    samples: Samples, low: float, high: float, goal: float, start: float
) -> tuple[int, float, float, float]:
    """Bound the stationary probabilities at which the log-likelihood reaches a goal, for redraw probabilities in a
    strip.

    The first result is 0 if the goal is nowhere reached, 1 with bounds at the lower and the upper end if the goal is
    reached at most below the line between the bounds, and 2 if nothing is known. The last result is the likeliest
    stationary probability halfway.
    """
    middle = redrawn(samples.waits, 0.5 * (low + high))
    ends = redrawn(samples.waits, low), redrawn(samples.waits, high)
    top, value = peak(samples, middle, start)
    if value < goal:
        plane = tangent(samples, ends[0], middle, ends[1], top)
        if max(max(plane.low_bad, plane.low_good), max(plane.high_bad, plane.high_good)) < goal:
            return 0, 0.0, 0.0, top
    # To the right of the peak by at least a nat, where the tangent falls.
    share = right_edge(samples, middle, top, min(goal, value - 1.0))
    plane = tangent(samples, ends[0], middle, ends[1], share)
    falls = plane.low_bad - plane.low_good, plane.high_bad - plane.high_good
    gentle, steep = min(falls[0], falls[1]), max(falls[0], falls[1])
    if not gentle > 0.0:
        return 2, 1.0, 1.0, top
    above_low = (1.0 - share) * plane.low_bad + share * plane.low_good - goal
    above_high = (1.0 - share) * plane.high_bad + share * plane.high_good - goal
    at_low = share + above_low / (gentle if above_low > 0.0 else steep)
    at_high = share + above_high / (gentle if above_high > 0.0 else steep)
    if not max(at_low, at_high) < 1.0:
        return 1, 1.0, 1.0, top
    if max(at_low, at_high) < 0.0:
        return 0, 0.0, 0.0, top
    return 1, at_low, at_high, top


@njit
def frontier(samples: Samples, goal: float, top: float, share: float, value: float, lowest: float) -> tuple[Array, int]:
    """Strips that cover all chains whose log-likelihood reaches a goal, and the number of strips.

    A strip is (r₀, r₁, p₀, p₁): redraw probabilities from r₀ to r₁, stationary probabilities at most on the line from
    p₀ to p₁. Strips extend from the likeliest probability to both sides, evenly in its logarithm; after an empty strip
    the next strip is twice as wide.
    """
    strips = np.empty((MOST_STRIPS, 4))
    found = 0
    for side in range(2):
        limit = lowest if side == 0 else 0.0
        edge = drop_at(samples, top, share, value, max(1.0, value - goal), limit)
        fine = (edge - top) / STRIPS
        if side == 1 and top == 0.0:
            break
        if fine == 0.0:
            fine = -1.0 if side == 0 else 0.0
        width, at, start = fine, top, share
        near = math.exp(top)
        while found < MOST_STRIPS - 2:
            after = at + width
            last = after <= lowest if side == 0 else after >= -1e-9
            far = (0.0 if side == 0 else 1.0) if last else math.exp(after)
            low, high = (far, near) if side == 0 else (near, far)
            kind, at_low, at_high, peak_share = strip_bound(samples, low, high, goal, start)
            if kind > 0 and abs(width) > 1.5 * abs(fine):
                width *= 0.5
                continue
            if kind == 2 and abs(width) * FINEST > 1.5 * abs(fine):
                width *= 0.5
                continue
            if kind > 0:
                strips[found, 0], strips[found, 1], strips[found, 2], strips[found, 3] = low, high, at_low, at_high
                found += 1
            width = 2.0 * width if kind == 0 else fine
            at, near, start = after, far, peak_share
            if last:
                break
        if found >= MOST_STRIPS - 2:
            # Never observed so far; nothing is then claimed of the rest.
            rest_low, rest_high = (0.0, near) if side == 0 else (near, 1.0)
            strips[found, 0], strips[found, 1], strips[found, 2], strips[found, 3] = rest_low, rest_high, 1.0, 1.0
            found += 1
    return strips, found


@njit
def distributions_above(strips: Array, longest: int, precision: float) -> Array:
    """Return distributions that dominate those of all chains in some strips, ``[τ, s, k]`` with the identity at τ = 0.

    The table ends at the first τ at which the distributions after good and after bad agree within the precision, and at
    the latest at ``longest``. The last entry is the distribution after good, which no later distribution exceeds. The
    last row is for an arm never observed.

    Along the edge of a strip 1 − (1 − p) y is greatest at an end. p y is at most the sum of three terms: the linear
    interpolation of its ends, a quarter of the product of the differences if they are opposite, and p times the excess
    of y over its chord.
    """
    n = strips.shape[0]
    kept = np.ones((n, 3))
    good, bad = np.ones(longest + 1), np.ones(longest + 1)
    end = longest
    for tau in range(1, longest + 1):
        most_good, most_bad = 0.0, 0.0
        for i in range(n):
            low, high, at_low, at_high = strips[i]
            kept[i, 0] *= 1.0 - low
            kept[i, 1] *= 1.0 - 0.5 * (low + high)
            kept[i, 2] *= 1.0 - high
            y_low, y_high = 1.0 - kept[i, 0], 1.0 - kept[i, 2]
            most_good = max(most_good, max(1.0 - (1.0 - at_low) * y_low, 1.0 - (1.0 - at_high) * y_high))
            excess = max(0.0, kept[i, 0] + kept[i, 2] - 2.0 * kept[i, 1])
            more = 0.25 * max(0.0, at_low - at_high) * (y_high - y_low) + max(0.0, max(at_low, at_high)) * excess
            most_bad = max(most_bad, max(at_low * y_low, at_high * y_high) + more)
        good[tau] = min(good[tau - 1], most_good + ROUNDING * tau)
        bad[tau] = min(good[tau], most_bad + ROUNDING * tau)
        if good[tau] - bad[tau] <= precision:
            end = tau
            break
    distributions = np.zeros((end + 1, 3, 2))
    for tau in range(end, -1, -1):
        if tau == 0:
            distributions[0, 0, 0], distributions[0, 1, 1] = 1.0, 1.0
        else:
            # The distribution after bad gets better with every slot.
            bad[tau] = good[end] if tau == end else min(bad[tau], bad[tau + 1])
            distributions[tau, 0, 0], distributions[tau, 0, 1] = good[tau], 1.0 - good[tau]
            distributions[tau, 1, 0], distributions[tau, 1, 1] = bad[tau], 1.0 - bad[tau]
        distributions[tau, 2, 0], distributions[tau, 2, 1] = good[end], 1.0 - good[end]
    return distributions


def confidence_set(counts: IntArray, level: float) -> Array:
    """Strips, as ``frontier`` makes them, that cover {θ : ℓ(θ) ≥ ln ∫ L − level} of a two-state arm."""
    # In Python: a single kernel around all of these would be optimised again as a whole, for seconds.
    upper, lower = gather(counts, True), gather(counts, False)
    seen = upper.stayed_good + upper.left_good + upper.stayed_bad + upper.left_bad
    total, slots = float(seen.sum()), float(seen @ upper.waits)
    if total == 0.0:
        strips = np.ones((1, 4))
        strips[0, 0] = 0.0
        return strips
    lowest = -math.log(slots + 1.0) - 2.0
    top, share, value = likeliest(upper, lowest)
    goal = log_mixture(lower, top, share, value, lowest) - level - ROUNDING * (1.0 + total)
    strips, found = frontier(upper, goal, top, share, value, lowest)
    return strips[:found]


def dominating_distributions(counts: IntArray, level: float, longest: int, precision: float) -> Array:
    """Distributions from ``distributions_above`` that dominate those of all chains in a confidence set."""
    return distributions_above(confidence_set(counts, level), longest, precision)
