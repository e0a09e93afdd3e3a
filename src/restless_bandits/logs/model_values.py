"""The fitted model's value of a policy: gains on problems that are drawn from the posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass

from restless_bandits._internal.validation import Array

DRAWS, FEWEST_DRAWS, MOST_DRAWS = 100, 10, 10_000
CONFIDENCE = 0.95
REDRAW = 11
"""The number of the stream of draws from the posterior."""


@dataclass(frozen=True, eq=False)
class Modelled:
    """The fitted model's value of a policy."""

    gains: Array
    """Reward a slot on each drawn problem."""
    above: Array
    """The same less the gain there of the best fixed arm of the fit."""
    confidence: float
    reward_range: tuple[float, float]

    @property
    def gain(self) -> float:
        return float(self.gains.mean())

    @property
    def interval(self) -> tuple[float, float]:
        low, high = self._around(self.gains)
        return max(low, self.reward_range[0]), min(high, self.reward_range[1])

    @property
    def above_best_arm(self) -> float:
        return float(self.above.mean())

    @property
    def above_interval(self) -> tuple[float, float]:
        return self._around(self.above)

    def _around(self, drawn: Array) -> tuple[float, float]:
        from scipy import stats

        n = len(drawn)
        reach = float(stats.t.ppf(0.5 + self.confidence / 2, n - 1) * drawn.std(ddof=1)) * math.sqrt(1 + 1 / n)
        return float(drawn.mean()) - reach, float(drawn.mean()) + reach
