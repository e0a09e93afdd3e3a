"""Regret along horizons, with every run kept, and what is asked of it: means, spreads, growth, exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from restless_bandits.arrays import Array, IntArray
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
        """Return the ends of the confidence intervals of the mean, by Student's law."""
        width = stats.t.ppf(0.5 + confidence / 2, self.runs - 1) * self.stderr
        return self.mean - width, self.mean + width

    def at(self, horizon: int) -> Array:
        return np.asarray(self.regret[:, self.column(horizon)])

    def column(self, horizon: int) -> int:
        return int(np.flatnonzero(self.horizons == horizon)[0])

    def growth(self, end: int | None = None, of: Array | None = None) -> tuple[float, float] | None:
        """Return the exponent of the growth over the last decade of T up to ``end``, and its standard error.

        log(R(T) / R(T₀)) / log(T / T₀), with T₀ the largest horizon that is at most T/10; R is the regret, or what
        ``of`` has in its place. None where that is undefined: no such horizon, or a mean that is not positive.
        """
        values = self.regret if of is None else of
        last = len(self.horizons) - 1 if end is None else self.column(end)
        before = np.flatnonzero(self.horizons * 10 <= self.horizons[last])
        if not before.size or self.runs < 2:
            return None
        start = int(before[-1])
        low, high = values[:, start], values[:, last]
        if low.mean() <= 0 or high.mean() <= 0:
            return None
        decades = math.log(self.horizons[last] / self.horizons[start])
        exponent = math.log(high.mean() / low.mean()) / decades
        # The delta method, on pairs: what is common to both ends of a run cancels.
        residual = high / high.mean() - low / low.mean()
        return exponent, float(residual.std(ddof=1)) / math.sqrt(self.runs) / decades

    def as_dict(self) -> dict[str, Any]:
        return {
            "learner": self.label,
            "spec": self.spec,
            "runs": self.runs,
            "regret_kind": self.kind,
            "horizons": self.horizons.tolist(),
            "regret_mean": self.mean.tolist(),
            "regret_stderr": self.stderr.tolist(),
            "regret_sd": self.regret.std(axis=0, ddof=1).tolist(),
            "regret_max": self.regret.max(axis=0).tolist(),
            "spread_kind": self.spread_kind,
            "spread_sd": self.spread.std(axis=0, ddof=1).tolist(),
            "growth": self.growth(),
        }


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
