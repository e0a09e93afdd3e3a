"""Regret along horizons, with every run kept, and what is asked of it: means, spreads, growth, exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.simulation.comparator import Comparator


@dataclass(frozen=True, eq=False)
class Curve:
    """The regret of one learner along horizons: arrays (run, horizon).

    Rows are runs, and runs are independent; along a row values are not, whether they are read along one run or played
    anew, since run r is played by the same draws at every horizon.
    """

    label: str
    spec: str
    kind: str
    horizons: IntArray
    regret: Array
    spread: Array
    """Regret of the kind whose spread is compared; often the same."""
    spread_kind: str
    exploration: Array | None = None
    """For a learner that explores and then commits: the slots that it explored, (run, horizon)."""

    @property
    def runs(self) -> int:
        return len(self.regret)

    @property
    def mean(self) -> Array:
        return np.asarray(self.regret.mean(axis=0))

    @property
    def stderr(self) -> Array:
        return np.asarray(self.regret.std(axis=0, ddof=1) / math.sqrt(self.runs))

    def band(self, confidence: float = 0.95) -> tuple[Array, Array]:
        """Return the ends of the confidence intervals of the mean, by Student's distribution."""
        width = stats.t.ppf(0.5 + confidence / 2, self.runs - 1) * self.stderr
        return self.mean - width, self.mean + width

    def at(self, horizon: int) -> Array:
        return np.asarray(self.regret[:, self.column(horizon)])

    def column(self, horizon: int) -> int:
        return int(np.flatnonzero(self.horizons == horizon)[0])

    def growth(self, end: int | None = None, of: Array | None = None) -> tuple[float, float] | None:
        """Return the exponent of the growth over the last decade of T up to ``end``, and its standard error."""
        values = self.exponents(end, of)
        return None if values is None else (float(values.mean()), float(values.std(ddof=1)) / math.sqrt(self.runs))

    def exponents(self, end: int | None = None, of: Array | None = None) -> Array | None:
        """Return a number for each run, whose mean is the exponent of the growth over the last decade up to ``end``.

        log(R(T) / R(T₀)) / log(T / T₀), with T₀ the largest horizon that is at most T/10; R is the mean regret, or
        that of what ``of`` has in its place. None where that is undefined: no such horizon, or a mean that is not
        positive.
        """
        values = self.regret if of is None else of
        last = len(self.horizons) - 1 if end is None else self.column(end)
        before = np.flatnonzero(self.horizons * 10 <= self.horizons[last])
        if not before.size:
            return None
        start = int(before[-1])
        growth = log_ratios(values[:, last], values[:, start])
        return None if growth is None else growth / math.log(self.horizons[last] / self.horizons[start])

    def late_rates(self) -> tuple[Array, tuple[int, int, int]] | None:
        """Return a number for each run, whose mean is the log of how much the regret a slot has changed lately.

        The rate from T₁ to T against that from T₀ to T₁, where T is the last horizon, T₀ the largest that is at most
        T/100, or else the first, and T₁ lies between them on the scale of log T. Returns T₀, T₁ and T as well; None
        with fewer than three horizons, or where a rate is not positive.
        """
        if len(self.horizons) < 3:
            return None
        end = len(self.horizons) - 1
        start = max(0, int(np.searchsorted(self.horizons, self.horizons[-1] / 100, side="right")) - 1)
        centre = math.sqrt(self.horizons[start] * self.horizons[end])
        middle = int(np.abs(np.log(self.horizons[start + 1 : end] / centre)).argmin()) + start + 1
        marks = self.horizons[[start, middle, end]]
        rates = np.diff(self.regret[:, [start, middle, end]], axis=1) / np.diff(marks)
        change = log_ratios(rates[:, 1], rates[:, 0])
        return None if change is None else (change, (int(marks[0]), int(marks[1]), int(marks[2])))

    def as_dict(self) -> dict[str, Any]:
        return {
            "learner": self.label,
            "spec": self.spec,
            "runs": self.runs,
            "regret_kind": self.kind,
            "horizons": self.horizons.tolist(),
            "regret_mean": self.mean.tolist(),
            "regret_stderr": self.stderr.tolist(),
            "regret_median": np.median(self.regret, axis=0).tolist(),
            "regret_sd": self.regret.std(axis=0, ddof=1).tolist(),
            "regret_max": self.regret.max(axis=0).tolist(),
            "spread_kind": self.spread_kind,
            "spread_sd": self.spread.std(axis=0, ddof=1).tolist(),
            "growth": self.growth(),
        }


def log_ratios(above: Array, below: Array) -> Array | None:
    """Return a number for each run, whose mean is log(mean(above) / mean(below)); None where a mean is not positive.

    What each run adds is its derivative (the delta method): what is common to both of its values cancels.
    """
    over, under = float(above.mean()), float(below.mean())
    if len(above) < 2 or over <= 0 or under <= 0:
        return None
    return math.log(over / under) + above / over - below / under


@dataclass(frozen=True, eq=False)
class Panel:
    """One figure under one protocol."""

    item: str
    protocol: str
    problem: str
    comparator: Comparator
    curves: tuple[Curve, ...]

    def curve(self, label: str) -> Curve | None:
        return next((curve for curve in self.curves if curve.label == label), None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "item": self.item,
            "protocol": self.protocol,
            "problem": self.problem,
            "comparator": self.comparator.as_dict(),
            "lines": [curve.as_dict() for curve in self.curves],
        }
