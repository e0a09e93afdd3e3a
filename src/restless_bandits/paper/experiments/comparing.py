"""Whether the mean, or the spread, of one learner's runs is below that of another's: paired tests for heavy tails.

Regret has them: most runs of a learner end alike, and a few lock in and lose fifty standard deviations more. Student's
test then calls differences of mean zero significant far too often, since a sample that happens to hold few of the large
losses has a mean that is too small and a spread that is too small as well. So two p-values are computed, and the larger
one counts:

- Student's, of t = √n m / s. It is safe wherever both samples come from one distribution, however heavy
  its tails: differences are then symmetric, and a large difference increases s as much as m;
- Student's again, of Hall's transformation of t by the sample skewness g (Hall 1992, On the removal of skewness by
  transformation), h = t + a t²/3 + a² t³/27 + a/6 with a = g / √n. It has the cube of Wilson and Hilferty in it, which
  is nearly exact for counts of rare events: large losses on one side with n p ≥ 8.

A loss so rare that the sample may hold none of it cannot be excluded by any test.

Spreads are compared through squares. Where both samples come from one distribution, the differences of squared
distances from the medians are symmetric, and Student's test applies to them. Where the distributions differ, the mean
of squared distances from the means, and not from the medians, is the difference of the variances: Hall's test uses
these distances. They would not suffice alone: with half of a small sample locked in, all of them are equal.

Measured rates of false alarms and of findings are held by tests/paper/test_comparing.py.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from restless_bandits._internal.validation import Array

LEVEL = 1e-3
LEAST_VALUES = 3
"""Fewer values decide nothing."""
CARRIED = 0.5
"""The share of a sum from which on the few values that make it up are named."""


class Side(NamedTuple):
    """On which side of 0 a mean lies, and the p-value of that: two-sided, 1 where nothing speaks for either."""

    sign: int
    p: float

    def at(self, level: float) -> int:
        """Return the sign if it is beyond doubt at a level, else 0."""
        return self.sign if self.p <= level else 0


UNKNOWN = Side(0, 1.0)


def side_of_mean(values: Array) -> Side:
    """Return on which side of 0 the mean of independent values lies."""
    return _agreed(len(values), [_student(values), _hall(values)])


def side_of_spread(a: Array, b: Array) -> Side:
    """Return the sign of the difference of two standard deviations of paired samples."""
    n = len(a)
    if n < LEAST_VALUES:
        return UNKNOWN
    # The lower of two middle values: half-way between them all distances of a sample of two values are equal.
    symmetric, centred = (
        (a - centre(a)) ** 2 - (b - centre(b)) ** 2 for centre in (lambda x: np.sort(x)[(n - 1) // 2], np.mean)
    )
    return _agreed(n, [_student(symmetric), _student(centred), _hall(centred)])


def _agreed(n: int, statistics: list[float]) -> Side:
    """The side on which all statistics lie, by the least of them."""
    signs = {math.copysign(1, one) if one else 0 for one in statistics}
    if n < LEAST_VALUES or len(signs) > 1 or 0 in signs:
        return UNKNOWN
    least = min(abs(one) for one in statistics)
    # All on one side by chance alone: n coins that fall alike. Only equal values come near it.
    p = 2.0 ** (1 - n) if math.isinf(least) else 2 * float(stats.t.sf(least, n - 1))
    return Side(int(signs.pop()), p)


def _student(values: Array) -> float:
    n = len(values)
    if n < LEAST_VALUES or not values.any():
        return 0.0
    # A scale on which squares neither vanish nor overflow.
    values = values / np.abs(values).max()
    mean = float(values.mean())
    spread = float(values.std(ddof=1))
    # Equal values: what is left of their spread is rounding.
    return math.copysign(math.inf, mean) if spread <= 1e-12 * abs(mean) else math.sqrt(n) * mean / spread


def _hall(values: Array) -> float:
    t = _student(values)
    if t == 0.0 or math.isinf(t):
        return t
    centred = values / np.abs(values).max()
    centred = centred - centred.mean()
    a = float((centred**3).mean() / (centred**2).mean() ** 1.5) / math.sqrt(len(values))
    return t + a * t**2 / 3 + a**2 * t**3 / 27 + a / 6


def carriers(values: Array) -> str:
    """Say which few values carry a mean: "2 of 40 runs carry 81 %" of all, signs aside; else nothing."""
    n, sizes = len(values), np.sort(np.abs(values))
    few = max(1, n // 20)
    if n < 2 * LEAST_VALUES or not sizes.any():
        return ""
    share = float(sizes[-few:].sum() / sizes.sum())
    return f"{few} of {n} runs {'carries' if few == 1 else 'carry'} {share:.0%}" if share > CARRIED else ""
