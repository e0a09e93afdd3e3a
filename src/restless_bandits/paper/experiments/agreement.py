"""Agreement of what is computed here with stored results: run by run where the bits are equal, else by a test.

A run is a function of seed and code, so equal code on an equal processor gives equal bits. Another processor or another
version of a library may round otherwise, and a run then takes another course. Its regret still has the same
distribution. Such runs are compared with stored runs of other numbers, which are independent of them, by the rank test
of Wilcoxon, Mann and Whitney at the last horizon. The test is exact for every distribution; ties are broken by draws.
Holm's method keeps the probability of a single false alarm in a whole report at ``LEVEL``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from restless_bandits._internal.validation import Array
from restless_bandits.logs.checks import holm
from restless_bandits.paper.experiments.comparing import LEVEL
from restless_bandits.paper.experiments.curves import Curve
from restless_bandits.paper.experiments.stored import Sample
from restless_bandits.paper.experiments.writing import slots

EQUAL, SIMILAR, DIFFERENT = "equal", "no difference found", "different"
FEW, STORED, NEW = "too few runs to compare", "drawn as stored", "not among the stored results"
CHECK_BADGES = {EQUAL: "holds", SIMILAR: "holds", DIFFERENT: "fails", FEW: "open", STORED: "none", NEW: "none"}
ROUNDING = 1e-9
"""The relative difference up to which computed values are called equal; runs are compared bit by bit."""
NOT_PLAYED = "not played here"
AGREES, DISAGREES, OPEN = "agrees", "differs", "open"
"""Whether this machine agrees with a verdict; open where nothing was compared."""
AGREEMENT_BADGES = {AGREES: "holds", DISAGREES: "fails", OPEN: "none"}


@dataclass(frozen=True)
class Check:
    """The comparison of one line, or of one group of computed values, with its stored counterpart."""

    item: str
    protocol: str
    label: str
    what: str
    """``runs``, ``values`` or ``ratios``."""
    played: int
    equal: int
    outcome: str
    horizon: int | None = None
    """The last horizon up to which runs are compared."""
    p: float | None = None
    """The probability of ranks at least as uneven, if the distributions are equal; None without a test."""
    sizes: tuple[int, int] = (0, 0)
    """The numbers of runs here and of stored runs in that test."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.label, "on", self.item, f"({self.protocol})" if self.protocol else "")))

    @property
    def other_code(self) -> bool:
        """Whether values differ from the stored ones in any bit."""
        return self.what == "runs" and self.equal < self.played and self.outcome != NEW

    def as_dict(self) -> dict[str, Any]:
        told = {key: getattr(self, key) for key in ("item", "protocol", "label", "what", "played", "equal", "outcome")}
        return {**told, "horizon": self.horizon, "p": self.p, "compared": list(self.sizes), "said": self.text}

    @property
    def text(self) -> str:
        """The comparison in words."""
        if self.outcome in (STORED, NEW):
            return self.outcome
        if self.what == "ratios":
            return f"{self.equal} of {self.played} ratios that are decided here fall on the stored side"
        upto = "" if self.horizon is None else f" up to T = {slots(self.horizon)}"
        told = f"{self.equal} of {self.played} {self.what} equal{' up to rounding' * (self.what == 'values')}{upto}"
        if self.other_code:
            told += "; other code or another processor"
        if self.equal < self.played:
            told += f"; {self.outcome}"
        if self.p is not None:
            here, there = self.sizes
            told += f" (p = {self.p:.2g}, {here} runs against {there} stored ones)"
        return told


def check_runs(item: str, protocol: str, curve: Curve, sample: Sample | None, same_seed: bool) -> Check:
    """Compare the runs of a line with the stored ones of equal number; without a test the outcome is preliminary."""
    if sample is None or (sample.spec, sample.kind) != (curve.spec, curve.kind):
        return Check(item, protocol, curve.label, "runs", curve.runs, 0, NEW)
    shared = [int(one) for one in curve.horizons if one in sample.horizons]
    if not shared:
        return Check(item, protocol, curve.label, "runs", curve.runs, 0, NEW)
    columns = [curve.column(one) for one in shared]
    regret, spread = sample.columns(shared)
    runs = min(curve.runs, sample.runs)
    alike = [
        (here[:runs, columns] == there[:runs]).all(axis=1)
        for here, there in ((curve.regret, regret), (curve.spread, spread))
    ]
    equal = int((alike[0] & alike[1]).sum()) if same_seed else 0
    check = Check(item, protocol, curve.label, "runs", runs, equal, EQUAL, shared[-1])
    if equal == runs:
        return check
    # A run and the stored one of its number share their draws. Runs of other numbers are independent of it.
    few = min(runs, sample.runs // 2) if same_seed else runs
    here, there = curve.regret[:few, columns[-1]], regret[few if same_seed else 0 :, -1]
    return replace(check, outcome=SIMILAR, p=rank_test(here, there), sizes=(len(here), len(there)))


def same_values(here: Any, there: Any) -> bool:
    """Return whether two entries of JSON are equal, numbers up to ``ROUNDING``."""
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(same_values(here[key], there[key]) for key in here)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(same_values, here, there))
    if isinstance(here, float) and isinstance(there, float):
        return math.isclose(here, there, rel_tol=ROUNDING)
    return bool(here == there)


def rank_test(here: Array, there: Array) -> float:
    """Return the p-value that two independent samples come from one distribution: exact, two-sided.

    Ties are broken by draws, which keeps the test exact. Samples without values give 1.
    """
    n = len(here)
    if not n or not len(there):
        return 1.0
    values = np.concatenate([here, there])
    draws = np.random.default_rng(len(values)).random(len(values))
    ranks = np.empty(len(values))
    ranks[np.lexsort((draws, values))] = np.arange(len(values))
    return float(stats.mannwhitneyu(ranks[:n], ranks[n:], method="exact").pvalue)


def least_p(here: int, there: int) -> float:
    """Return the least p-value that ``rank_test`` can give to samples of two sizes."""
    return min(1.0, 2 / math.comb(here + there, here))


def settled(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the checks with their outcomes, at ``LEVEL`` for all tests together."""
    every = list(checks)
    tested = [one for one in every if one.p is not None]
    adjusted = iter(holm([one.p for one in tested if one.p is not None]))
    return tuple(one if one.p is None else _decided(one, next(adjusted), len(tested)) for one in every)


def _decided(check: Check, adjusted: float, tests: int) -> Check:
    if adjusted <= LEVEL:
        return replace(check, outcome=DIFFERENT)
    if check.what == "runs" and least_p(*check.sizes) * tests > LEVEL:
        return replace(check, outcome=FEW)
    return replace(check, outcome=SIMILAR)


@dataclass(frozen=True)
class Agreement:
    """Whether this machine agrees with a stored verdict."""

    outcome: str
    text: str

    def as_dict(self) -> dict[str, str]:
        return {"outcome": self.outcome, "said": self.text}


def agreement(checks: Sequence[Check]) -> Agreement:
    """Return the agreement that follows from the checks of all lines of a claim."""
    checks = [one for one in checks if one.outcome not in (STORED, NEW)]
    if not sum(one.played for one in checks):
        return Agreement(OPEN, NOT_PLAYED)
    counts = ", ".join(
        f"{sum(one.equal for one in some)} of {sum(one.played for one in some)} {what}"
        for what in ("runs", "values", "ratios")
        if (some := [one for one in checks if one.what == what])
    )
    counts += " on the stored side" if all(one.what == "ratios" for one in checks) else " equal"
    different = [one.name for one in checks if one.outcome == DIFFERENT]
    if different:
        return Agreement(DISAGREES, f"differs here: {', '.join(different)}; {counts}")
    if any(one.outcome == FEW for one in checks):
        return Agreement(OPEN, f"{counts}; {FEW}")
    if any(one.outcome == SIMILAR for one in checks):
        return Agreement(AGREES, f"agrees here: {counts}, {SIMILAR}")
    return Agreement(AGREES, f"agrees here: {counts}")
