"""One test for all questions of the kind "does this matter too?": likelihood ratios over strata.

If an arm is a Markov chain, what is seen next has a law that is known from the last state and the wait, whatever else
was known at that moment: the state before, the hour, the part of the log, what other arms did. So looks are sorted into
*strata* by last state and wait, and within each stratum it is asked whether *outcomes* (the next state) depend on
*groups* (the hour, …). No law needs to be known or to have any shape, gaps do no harm, and nor does a policy that chose
what to log by what it had seen.

The statistic is G² = 2 Σ seen · ln(seen / expected), with the expectation of independent rows and columns, summed over
strata; its law is about χ² with (rows − 1)(columns − 1) degrees in each. Two things keep that honest for small counts.
Neighbouring groups or outcomes are pooled until at least ``EXPECTED`` are expected everywhere, and each stratum's G² is
divided by Williams' factor, which brings its mean to that of χ². Pearson's sum of squares would not do:
where few are expected, its tail is too heavy.

Strata with too little for a table are taken together in one number, Σ group · outcome, whose mean, variance and
skewness over all orders of the outcomes within strata are known; with these a shifted gamma law (Pearson's type III)
tells how likely chance is to bring about as much. It is one more degree of freedom. Rates of false alarms, as measured,
are held by tests/data/test_associations.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from restless_bandits.arrays import Array, IntArray

EXPECTED = 5.0
"""Expected counts below which neighbours are pooled."""
MOST_SKEWED = 1.0
"""Skewness of Σ group · outcome beyond which it takes too few different values to have a law."""
TOLD = 20
"""Looks without which a group is not named as an example."""


@dataclass(frozen=True)
class Contrast:
    """Where outcomes differ most: in a stratum, the share of an outcome in the group that has most and least of it."""

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
    """Those in strata that could be used."""
    statistic: float
    degrees: int
    p_value: float
    """Not a number where there was too little to compare."""
    contrast: Contrast | None

    @property
    def effect(self) -> float:
        """The strength beyond chance on the scale of a correlation: √((G² − degrees) / looks), or 0."""
        return math.sqrt(max(0.0, self.statistic - self.degrees) / self.looks) if self.looks else 0.0


def association(strata: IntArray, groups: IntArray, outcomes: IntArray) -> Association:
    """Test whether outcomes depend on groups within strata; an entry for every look.

    Strata are any numbers; groups and outcomes count from 0, and numbers that follow each other are taken for
    neighbours.
    """
    from scipy import special

    statistic, degrees, looks = 0.0, 0, 0
    contrast, clearest = None, 0.0
    small: list[IntArray] = []
    order = np.argsort(strata, kind="stable")
    firsts = np.flatnonzero(np.diff(strata[order], prepend=strata[order[:1]] - 1))
    for rows in np.split(order, firsts[1:]):
        if len(rows) < 4 * EXPECTED:
            small.append(rows)
            continue
        table = np.zeros((int(groups[rows].max()) + 1, int(outcomes[rows].max()) + 1))
        np.add.at(table, (groups[rows], outcomes[rows]), 1)
        pooled = _pooled(table)
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
    """Return how likely chance is to make groups and outcomes go together so much within strata, and their correlation.

    Two-sided, by three moments over all orders of the outcomes within strata; not a number where these have so few
    different ones that no law is near.
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
    if abs(skew) > MOST_SKEWED or len(a) < 4 * EXPECTED:
        return math.nan, float((a * b).sum()) / scale
    return min(1.0, 2 * min(_tails(deviation, skew))), float((a * b).sum()) / scale


def _tails(deviation: float, skew: float) -> tuple[float, float]:
    """How much of Pearson's law of type III, with mean 0 and variance 1, lies above and below a number."""
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


def _pooled(table: Array) -> Array:
    """The table with neighbours added up until enough is expected in every cell, and at least two rows and columns.

    The smaller margin gives way first; a table that cannot be made so keeps one row or one column.
    """
    table = table[table.sum(axis=1) > 0][:, table.sum(axis=0) > 0]
    while min(table.shape) > 1:
        margins = table.sum(axis=1), table.sum(axis=0)
        smallest = [float(margin.min()) for margin in margins]
        if smallest[0] * smallest[1] >= EXPECTED * table.sum():
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
    """Return the clearest period of residuals that are 0 on average, and how likely chance is to show one as clear.

    A line of the periodogram is held against the mean of its neighbours, so that slow drifts and memory, which raise
    whole stretches of it, are no lines. For white residuals, whatever slots they are missing in, a line over the mean
    of 2m others has the law F(2, 4m); the chance is that times the number of lines (Bonferroni). Not a number where
    the log is too short.
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
    chance = math.exp(-2 * NEIGHBOURS * math.log1p(ratio[line] / (2 * NEIGHBOURS)))
    return size * scale / (first + line), min(1.0, chance * len(power))


MOST_SLOTS = 2**22
NEIGHBOURS = 24
"""Lines on either side to compare one with."""
BESIDE = 2
"""Nearest lines on either side that are left out, as a period between two lines shows in both."""


def _mean_around(power: Array) -> Array:
    """The mean of 2 · NEIGHBOURS lines near each, half of them on either side where there are so many."""
    size, reach = len(power), NEIGHBOURS + BESIDE
    sums = np.concatenate([[0.0], np.cumsum(power)])
    place = np.arange(size)
    start = np.clip(place - reach, 0, size - 2 * reach - 1)
    stop = start + 2 * reach + 1
    hole = np.clip(place - BESIDE, 0, size), np.clip(place + BESIDE + 1, 0, size)
    count = (stop - start) - (hole[1] - hole[0])
    around = (sums[stop] - sums[start] - (sums[hole[1]] - sums[hole[0]])) / count
    return np.asarray(np.maximum(around, power.sum() * 1e-12))
