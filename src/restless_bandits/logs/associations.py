"""A test of dependence on a further variable: likelihood ratios over strata.

If an arm is a Markov chain, the next observation has a distribution determined by the last state and the wait, given
any other knowledge at the time: the state before, the hour, the part of the log, other arms. Observations are therefore
sorted into *strata* by last state and wait. The test asks whether within strata *outcomes* (the next state) depend on
*groups* (the hour, …). The distributions may be unknown and of any shape. Gaps do no harm, and neither does a logging
policy that depends on past observations.

The statistic is G² = 2 Σ observed · ln(observed / expected), with the expectation of independent rows and columns,
summed over strata. Its distribution is about χ² with (rows − 1)(columns − 1) degrees of freedom in each stratum. Two
corrections hold the level for small counts. Neighbouring groups or outcomes are pooled until at least ``EXPECTED`` are
expected everywhere, and each stratum's G² is divided by Williams' factor, which brings its mean to the mean of χ².
Pearson's sum of squares is unsuitable: for small expected counts its tail is too heavy.

Strata with too few data for a table are combined into a single number, Σ group · outcome. Its mean, variance and
skewness over all orders of the outcomes within strata are known. A shifted gamma distribution (Pearson's type III) then
gives the tail probability. The number adds a degree of freedom. tests/logs/test_associations.py checks the false-alarm
rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import Array, IntArray

LEAST_EXPECTED_COUNT = 5.0
"""The least expected count of a cell; below, neighbours are pooled."""
MOST_SKEWED = 1.0
"""The skewness of Σ group · outcome beyond which the number takes too few different values for the approximation."""
TOLD = 20
"""The least number of observations for a group to be named as an example."""


@dataclass(frozen=True)
class Contrast:
    """The largest difference of outcomes: in a stratum, the groups with the largest and the least share of an
    outcome.
    """

    stratum: int
    outcome: int
    most: int
    """The group with the largest share."""
    most_share: float
    least: int
    least_share: float


@dataclass(frozen=True)
class Association:
    """Whether outcomes depend on groups, given strata."""

    looks: int
    """Observations in usable strata."""
    statistic: float
    degrees: int
    p_value: float
    """NaN with too few data for a comparison."""
    contrast: Contrast | None

    @property
    def effect(self) -> float:
        """The strength beyond randomness on the scale of a correlation: √((G² − degrees) / looks), or 0."""
        return math.sqrt(max(0.0, self.statistic - self.degrees) / self.looks) if self.looks else 0.0


def association(strata: IntArray, groups: IntArray, outcomes: IntArray) -> Association:
    """Test whether outcomes depend on groups within strata; arguments have an entry for every observation.

    Strata are any numbers; groups and outcomes count from 0, and consecutive numbers are taken for neighbours.
    """
    from scipy import special

    statistic, degrees, looks = 0.0, 0, 0
    contrast, clearest = None, 0.0
    small: list[IntArray] = []
    order = np.argsort(strata, kind="stable")
    firsts = np.flatnonzero(np.diff(strata[order], prepend=strata[order[:1]] - 1))
    for rows in np.split(order, firsts[1:]):
        if len(rows) < 4 * LEAST_EXPECTED_COUNT:
            small.append(rows)
            continue
        table = np.zeros((int(groups[rows].max()) + 1, int(outcomes[rows].max()) + 1))
        np.add.at(table, (groups[rows], outcomes[rows]), 1)
        pooled = pooled_table(table)
        if min(pooled.shape) < 2:
            small.append(rows)
            continue
        ratio, free = _ratio(pooled)
        statistic, degrees, looks = statistic + ratio, degrees + free, looks + len(rows)
        if ratio - free > clearest:
            found = _contrast(int(strata[rows[0]]), table)
            contrast, clearest = (found, ratio - free) if found is not None else (contrast, clearest)
    if small:
        rows = np.concatenate(small)
        p_value, _ = trend(strata[rows], groups[rows], outcomes[rows])
        if math.isfinite(p_value):
            statistic += float(special.chdtri(1, max(p_value, 1e-300)))
            degrees, looks = degrees + 1, looks + len(rows)
    p_value = float(special.chdtrc(degrees, statistic)) if degrees else math.nan
    return Association(looks, statistic, degrees, p_value, contrast)


def trend(strata: IntArray, groups: IntArray | Array, outcomes: IntArray | Array) -> tuple[float, float]:
    """Return the p-value of the association of groups and outcomes within strata, and their correlation.

    Two-sided, by three moments over all orders of the outcomes within strata; NaN with too few different orders for the
    approximation.
    """
    _, which, counts = np.unique(strata, return_inverse=True, return_counts=True)
    size = len(counts)
    a, b = (
        numbers - (np.bincount(which, weights=numbers, minlength=size) / counts)[which]
        for numbers in (groups.astype(np.float64), outcomes.astype(np.float64))
    )

    def sums(numbers: Array) -> Array:
        return np.asarray(np.bincount(which, weights=numbers, minlength=size), dtype=np.float64)

    variance = float((sums(a**2) * sums(b**2) / np.maximum(counts - 1, 1)).sum())
    cubes = sums(a**3) * sums(b**3) * counts / np.maximum((counts - 1) * (counts - 2), 1)
    if variance <= 0:
        return math.nan, math.nan
    deviation = float((a * b).sum()) / math.sqrt(variance)
    skew = float(cubes.sum()) / variance**1.5
    scale = math.sqrt(float((a**2).sum()) * float((b**2).sum()))
    if abs(skew) > MOST_SKEWED or len(a) < 4 * LEAST_EXPECTED_COUNT:
        return math.nan, float((a * b).sum()) / scale
    return min(1.0, 2 * min(tail_probabilities(deviation, skew))), float((a * b).sum()) / scale


def tail_probabilities(deviation: float, skew: float) -> tuple[float, float]:
    """The probabilities above and below a number of Pearson's type III distribution with mean 0 and variance 1."""
    from scipy import special

    if abs(skew) < 1e-4:
        return float(special.ndtr(-deviation)), float(special.ndtr(deviation))
    shape = 4 / skew**2
    place = max(0.0, shape + math.copysign(1.0, skew) * deviation * math.sqrt(shape))
    tails = float(special.gammaincc(shape, place)), float(special.gammainc(shape, place))
    return tails if skew > 0 else tails[::-1]


def _ratio(table: Array) -> tuple[float, int]:
    """G² over Williams' factor, and its degrees of freedom."""
    total, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
    degrees = (len(rows) - 1) * (len(columns) - 1)
    expected = np.outer(rows, columns) / total
    seen = table > 0
    ratio = 2 * float((table[seen] * np.log(table[seen] / expected[seen])).sum())
    factor = 1 + (total * (1 / rows).sum() - 1) * (total * (1 / columns).sum() - 1) / (6 * total * degrees)
    return ratio / factor, degrees


def pooled_table(table: Array) -> Array:
    """The table with neighbours added up until enough is expected in every cell, and at least two rows and columns.

    The smaller margin is pooled first; a table without a solution keeps one row or one column.
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    while min(table.shape) > 1:
        margins = table.sum(axis=1), table.sum(axis=0)
        smallest = [float(margin.min()) for margin in margins]
        if smallest[0] * smallest[1] >= LEAST_EXPECTED_COUNT * table.sum():
            break
        axis = int(smallest[1] < smallest[0])
        if table.shape[axis] == 2 and table.shape[1 - axis] > 2:
            axis = 1 - axis
        table = _merged(table, axis, margins[axis])
    return table


def _merged(table: Array, axis: int, margin: Array) -> Array:
    """The smallest row (or column) added to its smaller neighbour."""
    low = int(margin.argmin())
    beside = [n for n in (low - 1, low + 1) if 0 <= n < len(margin)]
    into = min(beside, key=lambda n: margin[n])
    turned = np.moveaxis(table, axis, 0).copy()
    turned[into] += turned[low]
    return np.moveaxis(np.delete(turned, low, axis=0), 0, axis)


def _contrast(stratum: int, table: Array) -> Contrast | None:
    looks = table.sum(axis=1)
    named = np.flatnonzero(looks >= TOLD)
    if len(named) < 2:
        return None
    shares = table[named] / looks[named, None]
    outcome = int(np.ptp(shares, axis=0).argmax())
    most, least = int(shares[:, outcome].argmax()), int(shares[:, outcome].argmin())
    ends = float(shares[most, outcome]), float(shares[least, outcome])
    return Contrast(stratum, outcome, int(named[most]), ends[0], int(named[least]), ends[1])


def line_in_spectrum(times: IntArray, residuals: Array, fewest_cycles: int = 8) -> tuple[float, float]:
    """Return the clearest period of residuals with mean 0, and its p-value.

    A line of the periodogram is compared with the mean of its neighbours: slow drifts and memory, which raise wide
    ranges of the periodogram, are not lines. For white residuals, whatever the missing slots, a line over the mean of
    2m others has the distribution F(2, 4m). The p-value is the tail probability times the number of lines (Bonferroni).
    NaN for a log that is too short.
    """
    slots = times - times[0]
    scale = int(slots[-1]) // MOST_SLOTS + 1
    size = int(slots[-1]) // scale + 1
    first, last = fewest_cycles, (size - 1) // 2
    if last - first < 3 * NEIGHBOURS or len(times) < 4 * NEIGHBOURS:
        return math.nan, math.nan
    from scipy import fft

    series = np.bincount(slots // scale, weights=residuals, minlength=size)
    power = np.abs(fft.rfft(series)[first : last + 1]) ** 2
    around = _mean_around(power)
    if not around.any():
        return math.nan, math.nan
    ratio = power / around
    line = int(ratio.argmax())
    p_value = math.exp(-2 * NEIGHBOURS * math.log1p(ratio[line] / (2 * NEIGHBOURS)))
    return size * scale / (first + line), min(1.0, p_value * len(power))


MOST_SLOTS = 2**22
NEIGHBOURS = 24
"""Lines on either side for the comparison."""
BESIDE = 2
"""Nearest lines on either side that are left out: a period between two lines shows in both."""


def _mean_around(power: Array) -> Array:
    """The mean of 2 · NEIGHBOURS lines near each line, half of them on either side if the spectrum has enough lines."""
    size, reach = len(power), NEIGHBOURS + BESIDE
    sums = np.concatenate([[0.0], np.cumsum(power)])
    place = np.arange(size)
    start = np.clip(place - reach, 0, size - 2 * reach - 1)
    stop = start + 2 * reach + 1
    hole = np.clip(place - BESIDE, 0, size), np.clip(place + BESIDE + 1, 0, size)
    count = (stop - start) - (hole[1] - hole[0])
    around = (sums[stop] - sums[start] - (sums[hole[1]] - sums[hole[0]])) / count
    return np.asarray(np.maximum(around, power.sum() * 1e-12))
