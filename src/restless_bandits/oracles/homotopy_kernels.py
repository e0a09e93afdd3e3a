"""Compiled homotopy of Whittle's index: see ``whittle``.

Plain loops compile in a third of the time of shorter array expressions. Numba treats the result of ``int`` as a
variable and a literal as a constant, and compiles callees anew for each constant. The constant is worthwhile only for
rows that are renewed from their start, because indices known not to be negative need no check.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import inlined, njit
from restless_bandits._internal.validation import Array, BoolArray, IntArray

REGIME_LOOP = 0
REGIME_STOP = 1
ALL_ROWS = -1


class Pulls(NamedTuple):
    """The result of a pull in belief (s, τ = t + 1): ``distribution[s, k, t]``, ``mean[s, t]``; and the discount of a
    slot.
    """

    distribution: Array
    mean: Array
    discount: float


class Affine(NamedTuple):
    """Functions base + m·slope of the subsidy m."""

    base: Array
    slope: Array


class Waits(NamedTuple):
    """A policy: the active beliefs, and the part of them that stays active when stopping sets in.

    ``after[s, t]`` is the next active time, the row's length for none, and ``sigma[s]`` the first.
    """

    active: BoolArray
    kept: BoolArray
    after: IntArray
    sigma: IntArray
    length: IntArray


@njit
def solve_in_place(system: Array, right: Array) -> float:
    """Gauss-Jordan elimination with row pivoting: ``right`` becomes the solution, ``system`` is overwritten.

    Returns the smallest pivot; a pivot near zero means that the system is singular.
    """
    n, columns = right.shape
    smallest = np.inf
    for i in range(n):
        pivot = i
        for j in range(i + 1, n):
            if abs(system[j, i]) > abs(system[pivot, i]):
                pivot = j
        size = abs(system[pivot, i])
        smallest = min(smallest, size)
        if size < 1e-300:
            return 0.0
        if pivot != i:
            for table in (system, right):
                for k in range(table.shape[1]):
                    table[i, k], table[pivot, k] = table[pivot, k], table[i, k]
        scale = 1.0 / system[i, i]
        for k in range(i, n):
            system[i, k] *= scale
        for k in range(columns):
            right[i, k] *= scale
        for j in range(n):
            factor = system[j, i]
            if j != i and factor != 0.0:
                for k in range(i, n):
                    system[j, k] -= factor * system[i, k]
                for k in range(columns):
                    right[j, k] -= factor * right[i, k]
    return smallest


@njit
def _policy_row(row: Array, state: int, sigma: int, pulls: Pulls, regime: int) -> tuple[float, float]:
    """Write one row of the linear system of a policy and return its right-hand side, affine in the subsidy."""
    distribution, mean, discount = pulls
    _, n, length = distribution.shape
    for k in range(n):
        row[k] = 0.0
    if regime == REGIME_STOP and sigma == length:
        row[state] = 1.0
        return 0.0, 0.0
    faded = discount**sigma
    for k in range(n):
        row[k] = -discount * faded * distribution[state, k, sigma]
    row[state] += 1.0
    if regime == REGIME_LOOP:
        # h of the last state is pinned to zero, so its column carries the gain.
        row[n - 1] = sigma + 1.0
        return mean[state, sigma], float(sigma)
    return faded * mean[state, sigma], -faded


@njit
def _write_values(
    values: Array, rewards: Array, x: Array, price: float, pulls: Pulls, lengths: IntArray, regime: int
) -> None:
    """Write rewards − g + P^τ(s)·h: g and h solve a policy's linear system; in stopping states a price replaces g."""
    distribution, _, discount = pulls
    rows, n, _ = distribution.shape
    loop = regime == REGIME_LOOP
    gain, count = (x[n - 1], n - 1) if loop else (price, n)
    for s in range(rows):
        length = lengths[s]
        for t in range(length):
            values[s, t] = rewards[s, t] - gain
        k = 0
        while k < count:
            weight = discount * x[k]
            if k + 2 < count:
                # Three at a time, in the same order: the sums pass through memory a third as often.
                second, third = discount * x[k + 1], discount * x[k + 2]
                for t in range(length):
                    sums = values[s, t] + distribution[s, k, t] * weight
                    values[s, t] = sums + distribution[s, k + 1, t] * second + distribution[s, k + 2, t] * third
                k += 3
            else:
                for t in range(length):
                    values[s, t] += distribution[s, k, t] * weight
                k += 1


@njit
def _renew_gaps(
    s: int,
    low: int,
    high: int,
    m: float,
    worst: float,
    gaps: Affine,
    values: Affine,
    x: Affine,
    waits: Waits,
    fades: Array,
    regime: int,
) -> float:
    """Renew D(s, t) = active − passive value in ``gaps`` for t from ``low`` to ``high``.

    ``values`` are the values of pulls and ``fades[w]`` is the discount of w slots. An affine D is largest at an end of
    its range of m, so D is checked at both ends of the range. Returns the largest D of a passive belief, or the
    previous ``worst``.
    """
    active, after = waits.active[s], waits.after[s]
    d0, d1, base, slope = gaps.base[s], gaps.slope[s], values.base[s], values.slope[s]
    length, n = waits.length[s], x.base.shape[0]
    loop = regime == REGIME_LOOP
    g0 = x.base[n - 1] if loop else 0.0
    g1 = x.slope[n - 1] if loop else 1.0
    # Plain separate loops, which take half the time of a single loop over all cases.
    gone = worst
    for t in range(low, high + 1):
        if not active[t]:
            gone = max(gone, d0[t] + m * d1[t])
    end = high + 1
    while end > low and after[end - 1] == length:
        # Passive for ever from here: worth m a slot, compared with the gain of the loop or with nothing.
        end -= 1
        d0[end] = g0 if loop else base[end]
        d1[end] = g1 - 1.0 if loop else slope[end]
    if loop:
        for t in range(low, end):
            following, wait = np.uint64(after[t]), float(after[t] - t)
            d0[t] = base[t] - base[following] + wait * g0
            d1[t] = slope[t] - slope[following] - wait * (1.0 - g1)
    else:
        for t in range(low, end):
            following, wait = np.uint64(after[t]), float(after[t] - t)
            faded = fades[after[t] - t]
            d0[t] = base[t] - faded * base[following] + wait * g0
            d1[t] = slope[t] - faded * slope[following] - wait * (1.0 - g1)
    for t in range(low, high + 1):
        if not active[t]:
            worst = max(worst, d0[t] + m * d1[t])
    return max(gone, worst)


@njit
def _first_turn(s: int, m: float, likely: int, gaps: Affine, waits: Waits) -> tuple[float, int]:
    """Return the least subsidy from ``m`` on at which an active belief of a row turns, and its time.

    A ``likely`` time is tried before all others, which saves nearly every division.
    """
    active, d0, d1 = waits.active[s], gaps.base[s], gaps.slope[s]
    first, turn = np.inf, -1
    if 0 <= likely < waits.length[s] and active[likely] and d1[likely] < 0.0:
        first, turn = max(m, -d0[likely] / d1[likely]), likely
    for t in range(waits.length[s]):
        reached = first * d1[t]
        # The time is needed only for a belief that may have turned by then.
        if active[t] and d1[t] < 0.0 and d0[t] + reached <= 1e-15 * (abs(d0[t]) + abs(reached)):
            root = max(m, -d0[t] / d1[t])
            # Among beliefs that turn together, the belief with the shortest wait goes first.
            if root < first or (root == first and t < turn):
                first, turn = root, t
    return first, turn


@inlined
def _net_value(distribution: Array, mean: Array, s: int, t: int, price: float, h: Array) -> float:
    """R(s, τ) − price + P^τ(s)·h."""
    value: float = mean[s, t] - price
    for k in range(h.shape[0]):
        value += distribution[s, k, t] * h[k]
    return value


@inlined
def _stopping_values(pulls: Pulls, price: float, sigma: IntArray) -> Array:
    """Optimal stopping at subsidy = gain = price: pulling pays R − price, waiting is free, never pulling is worth 0.

    Policy iteration from waits ``sigma`` (the length for never), which must stop almost surely. A policy that never
    stops has a singular system and is not accepted. Such a policy could only arise by rounding, or behind a belief that
    should have turned back.
    """
    distribution, mean = pulls.distribution, pulls.mean
    _, n, length = distribution.shape
    h, trial = np.empty(n), np.empty(n, dtype=np.int64)
    for s in range(n):
        h[s], trial[s] = 0.0, sigma[s]
    system = np.empty((n, n))
    right = np.empty((n, 1))
    stop = int(REGIME_STOP)
    for _ in range(10_000):
        for s in range(n):
            c0, c1 = _policy_row(system[s], s, trial[s], pulls, stop)
            right[s, 0] = c0 + price * c1
        if solve_in_place(system, right) < 1e-11:
            break
        for s in range(n):
            h[s] = right[s, 0]
        changed = False
        for s in range(n):
            best = h[s] + 1e-11 * (1.0 + abs(h[s]))
            if best < 0.0:
                best = 0.0
                trial[s] = length
                changed = True
            for t in range(length):
                value = _net_value(distribution, mean, s, t, price, h)
                if value > best:
                    best = value
                    trial[s] = t
                    changed = True
        if not changed:
            break
    return h


@inlined
def _enter_stopping(pulls: Pulls, price: float, h: Array, threshold: float, waits: Waits) -> tuple[int, float]:
    """Find the beliefs that stay active when stopping sets in: better than waiting by more than a threshold.

    Writes the beliefs to ``kept``, with the resulting next active times and first waits. Returns the number of turned
    beliefs, and the largest advantage of a belief that had turned before.
    """
    distribution, mean = pulls.distribution, pulls.mean
    active, kept, after, sigma, lengths = waits
    turned = 0
    worst = 0.0
    for s in range(distribution.shape[0]):
        # From the back, compared with the best remaining active belief: many tiny advantages must not add up.
        best = 0.0
        following = lengths[s]
        for t in range(lengths[s] - 1, -1, -1):
            value = _net_value(distribution, mean, s, t, price, h)
            after[s, t] = following
            kept[s, t] = active[s, t] and value - best > threshold
            if kept[s, t]:
                following = t
                best = value
            elif active[s, t]:
                turned += 1
            else:
                worst = max(worst, value - best)
        sigma[s] = following
    return turned, worst


@njit
def whittle_homotopy(
    distribution: Array, mean: Array, discount: float, tolerance: float
) -> tuple[Array, bool, float, bool]:
    """Whittle indices of the beliefs (s, τ = t + 1) of one arm by following the optimal policy in the subsidy m.

    ``distribution[s, k, t]`` is the probability of state k and ``mean[s, t]`` the mean reward. Rows beyond the states
    are beliefs without return, such as the belief of an arm never seen. With ``discount`` 1 the criterion is the
    average reward: the policy loops with gain g > m until m° with g(m°) = m°, and from m° on the problem is optimal
    stopping. With a discount below 1 the problem is optimal stopping from the start.

    Returns the indices, whether the arm is indexable, the largest advantage of a wrongly passive belief, and whether
    the linear systems could be solved. A wrongly passive belief turned passive and should be active again.
    """
    rows, n, length = distribution.shape
    pulls = Pulls(distribution, mean, discount)
    index = np.empty((rows, length))
    active, kept = np.empty((rows, length), dtype=np.bool_), np.empty((rows, length), dtype=np.bool_)
    after = np.empty((rows, length), dtype=np.int64)
    sigma, lengths = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    roots, turns = np.empty(rows), np.empty(rows, dtype=np.int64)
    base, slope = np.empty((rows, length)), np.empty((rows, length))
    d0, d1 = np.empty((rows, length)), np.empty((rows, length))
    change, nothing = np.empty((rows, length)), np.empty((rows, length))
    remaining = 0
    for s in range(rows):
        sigma[s], lengths[s], turns[s] = 0, length, -1
        for t in range(length):
            index[s, t], active[s, t], kept[s, t], after[s, t] = np.nan, True, True, t + 1
            d0[s, t], d1[s, t], nothing[s, t] = -np.inf, 0.0, 0.0
        # A distribution unchanged by waiting has two indices: the index of the end of the table, and a common index
        # before it.
        constant = discount == 1.0 and s >= n
        for k in range(n):
            for t in range(length):
                constant = constant and distribution[s, k, t] == distribution[s, k, 0]
        if constant:
            lengths[s] = min(2, length)
            after[s, lengths[s] - 1] = lengths[s]
        remaining += lengths[s]
    waits = Waits(active, kept, after, sigma, lengths)
    fades = np.empty(length)
    for wait in range(length):
        fades[wait] = discount**wait
    regime = int(REGIME_LOOP) if discount == 1.0 else int(REGIME_STOP)

    system, inverse, work = np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    solved = np.empty((n, n + 2))
    row, difference, pushed = np.empty(n), np.empty(n), np.empty(n)
    c0, c1, x0, x1 = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    direction = np.empty(n)
    x, values, gaps = Affine(x0, x1), Affine(base, slope), Affine(d0, d1)
    # The conversion by int(), here and below, prevents a new compilation of the callee for each literal.
    stale, earliest, latest = ALL_ROWS, int(0), int(0)  # noqa: RUF046, UP018

    m = -np.inf
    worst = 0.0
    # Rank-one updates are cheap and lose digits; a periodic fresh solution keeps both cost and error small.
    refresh_every = max(2, n // 2)
    updates = refresh_every
    while remaining > 0:
        if updates >= refresh_every:
            for s in range(n):
                c0[s], c1[s] = _policy_row(system[s], s, sigma[s], pulls, regime)
                for k in range(n):
                    work[s, k] = system[s, k]
                    solved[s, k] = 1.0 if k == s else 0.0
                solved[s, n], solved[s, n + 1] = c0[s], c1[s]
            if solve_in_place(work, solved) < 1e-13:
                return index, False, worst, False
            for s in range(n):
                for k in range(n):
                    inverse[s, k] = solved[s, k]
                x0[s], x1[s] = solved[s, n], solved[s, n + 1]
            _write_values(base, mean, x0, 0.0, pulls, lengths, regime)
            _write_values(slope, nothing, x1, 1.0, pulls, lengths, regime)
            updates = 0
            stale = ALL_ROWS
        turn_s = int(0)  # noqa: RUF046, UP018
        for s in range(rows):
            if stale in (ALL_ROWS, s):
                if stale == ALL_ROWS:
                    worst = _renew_gaps(s, 0, lengths[s] - 1, m, worst, gaps, values, x, waits, fades, regime)
                else:
                    worst = _renew_gaps(s, earliest, latest, m, worst, gaps, values, x, waits, fades, regime)
                roots[s], turns[s] = _first_turn(s, m, turns[s], gaps, waits)
            if roots[s] < roots[turn_s]:
                turn_s = s
        turn_t = turns[turn_s]
        if turn_t < 0:
            return index, False, worst, False
        m = roots[turn_s]

        if regime == REGIME_LOOP and after[turn_s, turn_t] == lengths[turn_s]:
            # At m° the loop neither gains nor loses, so stopping in the state of least relative value costs nothing.
            # The weights of the right-hand sides in the gain identify the states to which the loop returns.
            for s in range(rows):
                for t in range(length):
                    if not active[s, t]:
                        worst = max(worst, d0[s, t] + m * d1[s, t])
                    d0[s, t], d1[s, t] = -np.inf, 0.0
            regime = int(REGIME_STOP)
            least, stop = np.inf, -1
            for s in range(n):
                value = x0[s] + m * x1[s] if s < n - 1 else 0.0
                if inverse[n - 1, s] > 1e-12 and value < least:
                    least, stop = value, s
            sigma[stop] = length
            h = _stopping_values(pulls, m, sigma)
            threshold = 1e-13
            while True:
                turned, advantage = _enter_stopping(pulls, m, h, threshold, waits)
                for s in range(n):
                    _policy_row(work[s], s, sigma[s], pulls, regime)
                    for k in range(n + 2):
                        solved[s, k] = 0.0
                if threshold > 1e-9 or solve_in_place(work, solved) >= 1e-11:
                    break
                # Beliefs that are better active only by rounding close a loop; demand more.
                threshold *= 10.0
            worst = max(worst, advantage)
            for s in range(rows):
                for t in range(length):
                    if active[s, t] and not kept[s, t]:
                        index[s, t] = m
                    active[s, t] = active[s, t] and kept[s, t]
            remaining -= turned
            updates = refresh_every
            continue

        index[turn_s, turn_t] = m
        active[turn_s, turn_t] = False
        # The belief was not passive before, so no earlier advantage counts.
        d0[turn_s, turn_t], d1[turn_s, turn_t] = -np.inf, 0.0
        remaining -= 1
        # A turn from which no policy starts changes only the waits of earlier beliefs in its row.
        stale = turn_s
        following = after[turn_s, turn_t]
        t = turn_t - 1
        while t >= 0 and after[turn_s, t] == turn_t:
            after[turn_s, t] = following
            t -= 1
        earliest, latest, turns[turn_s] = t + 1, turn_t, following
        if sigma[turn_s] != turn_t:
            continue
        sigma[turn_s] = following
        if turn_s >= n:
            continue
        stale = ALL_ROWS
        new_c0, new_c1 = _policy_row(row, turn_s, following, pulls, regime)
        scale = 1.0
        for k in range(n):
            difference[k] = row[k] - system[turn_s, k]
            scale += difference[k] * inverse[k, turn_s]
        updates += 1
        if abs(scale) < 1e-8:
            updates = refresh_every
            continue
        step0 = c0[turn_s] - new_c0
        step1 = c1[turn_s] - new_c1
        for k in range(n):
            direction[k], pushed[k] = inverse[k, turn_s] / scale, 0.0
        for k in range(n):
            step0 += difference[k] * x0[k]
            step1 += difference[k] * x1[k]
            for j in range(n):
                pushed[j] += difference[k] * inverse[k, j]
        for k in range(n):
            x0[k] -= step0 * direction[k]
            x1[k] -= step1 * direction[k]
            for j in range(n):
                inverse[k, j] -= direction[k] * pushed[j]
        for k in range(n):
            system[turn_s, k] = row[k]
        c0[turn_s], c1[turn_s] = new_c0, new_c1
        _write_values(change, nothing, direction, 0.0, pulls, lengths, regime)
        for s in range(rows):
            for t in range(lengths[s]):
                base[s, t] -= step0 * change[s, t]
                slope[s, t] -= step1 * change[s, t]
    for s in range(rows):
        for t in range(length):
            worst = max(worst, d0[s, t] + m * d1[s, t])
        if lengths[s] < length:
            index[s, length - 1] = index[s, 1]
            for t in range(1, length - 1):
                index[s, t] = index[s, 0]
    return index, worst <= tolerance, worst, True
