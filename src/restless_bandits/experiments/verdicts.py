"""Decides claims: each test takes what was measured and returns findings, never a typed verdict.

Two lines are compared run by run: run r of every learner is played by the same draws of the world, so the differences
of the runs are independent of one another, and Student's test of their mean is a paired one. Spreads are compared by
the logarithm of the ratio of standard deviations, whose standard error follows from the sample kurtosis (delta method).
Growth is the exponent of the regret over the last decade of T. Every finding is two-sided at ``LEVEL``; what does not
reach it is undecided, and so are all comparisons of fewer than three runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from restless_bandits.arrays import Array, IntArray
from restless_bandits.experiments.curves import Curve, Panel
from restless_bandits.experiments.design import Claim

LEVEL = 1e-3
"""The chance that a finding between equals comes out for or against."""
LINEAR = 0.9
"""The exponent of growth between what is called sublinear and linear."""
LOG_SLACK = 0.08
"""What logarithms add to an exponent over the decades of T that are measured: T^(2/3) ln T grows like T^0.74."""
BUILD_EXPONENT = 1.2

HOLDS, FAILS, FROM, UNDECIDED, NOT_RUN = (
    "holds",
    "does not hold here",
    "holds from T ≈",
    "undecided at this sample size",
    "not run",
)


@dataclass(frozen=True)
class Finding:
    """What a test found in one place."""

    where: str
    outcome: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    from_horizon: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim under one protocol, or on a claim that has none."""

    claim: Claim
    protocol: str
    outcome: str
    findings: tuple[Finding, ...]
    from_horizon: float | None = None

    @property
    def text(self) -> str:
        known = self.outcome
        if self.outcome == FROM and self.from_horizon is not None:
            known = f"{FROM} {slots(self.from_horizon)}"
        part = self.outcome != NOT_RUN and any(one.outcome == NOT_RUN for one in self.findings)
        return f"{known} (on what was run)" if part else known

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.claim.id,
            "place": self.claim.place,
            "claim": self.claim.text,
            "protocol": self.protocol,
            "verdict": self.text,
            "findings": [
                {"where": one.where, "outcome": one.outcome, "text": one.text, **one.numbers} for one in self.findings
            ],
        }


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was measured."""

    panels: Mapping[tuple[str, str], Panel]
    """By item and protocol."""
    exploration_bounds: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    """By item: N m(T) / d_min."""
    posteriors: Mapping[str, Array] = field(default_factory=dict)
    """By problem: the posterior weight of the true chains, a number for each run."""
    times: Mapping[str, Mapping[int, Array]] = field(default_factory=dict)
    """By learner and number of arms: seconds of each run."""
    build_times: Mapping[int, float] = field(default_factory=dict)
    """By number of arms: seconds to build the optimistic instance."""
    theory: Mapping[str, Sequence[Finding]] = field(default_factory=dict)
    """By the name of a check: what it found (experiments/theory.py)."""


def decide(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Return the verdicts on a claim: one for each protocol, or one."""
    if claim.protocols:
        return [combine(claim, protocol, _TESTS[claim.test](claim, evidence, protocol)) for protocol in claim.protocols]
    return [combine(claim, "", _TESTS[claim.test](claim, evidence, ""))]


def combine(claim: Claim, protocol: str, findings: Sequence[Finding]) -> Verdict:
    """A claim holds where all of its parts hold, and fails where one does.

    Between: from the largest T from which a part holds, if all others hold; undecided if a part is. Parts that were not
    run are left aside, and the verdict says so.
    """
    outcomes = {finding.outcome for finding in findings if finding.outcome != NOT_RUN}
    begins = None
    if not outcomes:
        outcome = NOT_RUN
    elif FAILS in outcomes:
        outcome = FAILS
    elif UNDECIDED in outcomes:
        outcome = UNDECIDED
    elif FROM in outcomes:
        outcome = FROM
        begins = max(finding.from_horizon or 0.0 for finding in findings)
    else:
        outcome = HOLDS
    return Verdict(claim, protocol, outcome, tuple(findings), begins)


def slots(horizon: float) -> str:
    """Write a number of slots as people do: 53 000, 1.2e7."""
    if horizon < 1e6:
        digits = max(0, math.floor(math.log10(max(horizon, 1))) - 1)
        return f"{round(horizon, -digits):,.0f}".replace(",", " ")
    return f"{horizon:.2g}".replace("e+0", "e").replace("e+", "e")


def amount(value: float) -> str:
    """Write a regret: whole where it is large."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def sign(values: Array) -> int:
    """Return the sign of the mean of independent values if it is beyond doubt at ``LEVEL``, else 0."""
    n = len(values)
    if n < 3:
        return 0
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    if spread == 0.0:
        return int(np.sign(mean))
    return int(np.sign(mean)) if abs(mean) > stats.t.ppf(1 - LEVEL / 2, n - 1) * spread / math.sqrt(n) else 0


def beyond(value: float, error: float, runs: int, limit: float) -> int:
    """Return on which side of a limit an estimate lies, 0 if that is in doubt at ``LEVEL``."""
    if runs < 3:
        return 0
    width = stats.t.ppf(1 - LEVEL / 2, runs - 1) * error
    return int(value - width > limit) - int(value + width < limit)


def lower_along(lower: Curve, higher: Curve, where: str) -> Finding:
    """Whether the mean of one curve is below that of another, and from which T on."""
    shared = np.intersect1d(lower.horizons, higher.horizons)
    runs = min(lower.runs, higher.runs)
    differences = np.stack([higher.at(int(t))[:runs] - lower.at(int(t))[:runs] for t in shared], axis=1)
    signs = [sign(differences[:, j]) for j in range(len(shared))]
    means = differences.mean(axis=0)
    end = int(shared[-1])
    a, b = lower.at(end), higher.at(end)
    text = f"{lower.label} {plus_minus(a)} against {higher.label} {plus_minus(b)} at T = {slots(end)}"
    numbers = {"horizon": end, lower.label: _summary(a), higher.label: _summary(b)}
    against = [j for j, one in enumerate(signs) if one < 0]
    if signs[-1] > 0 and not against:
        return Finding(where, HOLDS, text, numbers)
    if signs[-1] > 0:
        crossing = _crossing(shared, means, against[-1])
        return Finding(where, FROM, f"{text}; the lines cross at T ≈ {slots(crossing)}", numbers, crossing)
    if signs[-1] < 0:
        meeting = _meeting(lower, higher, end)
        later = (
            f"; growing on as over the last decade, the lines would meet at T ≈ {slots(meeting)}"
            if meeting is not None
            else ""
        )
        return Finding(where, FAILS, text + later, numbers | {"would_meet_at": meeting})
    return Finding(where, UNDECIDED, text, numbers)


def _crossing(horizons: IntArray, means: Array, last_against: int) -> float:
    """Where the difference of the means changes sign after the last horizon that is against, on the scale of log T."""
    j = next(k for k in range(last_against, len(means) - 1) if means[k] < 0 <= means[k + 1])
    share = -means[j] / (means[j + 1] - means[j])
    return float(horizons[j] * (horizons[j + 1] / horizons[j]) ** share)


def _meeting(lower: Curve, higher: Curve, end: int) -> float | None:
    """The T at which two lines would meet if both went on growing as they did; None if not before 1e12."""
    slow, fast = lower.growth(end), higher.growth(end)
    if slow is None or fast is None or fast[0] - slow[0] < 0.02:
        return None
    meeting = end * (lower.at(end).mean() / higher.at(end).mean()) ** (1 / (fast[0] - slow[0]))
    return float(meeting) if meeting < 1e12 else None


def less_spread(steady: Curve, other: Curve, factor: float, where: str) -> Finding:
    """Whether one curve's standard deviation is smaller than another's by a factor, at the largest common T."""
    end = int(np.intersect1d(steady.horizons, other.horizons)[-1])
    a, b = (curve.spread[:, curve.column(end)] for curve in (steady, other))
    runs = min(len(a), len(b))
    text = (
        f"standard deviation of {steady.spread_kind} regret: {steady.label} {amount(float(a.std(ddof=1)))}, "
        f"{other.label} {amount(float(b.std(ddof=1)))} at T = {slots(end)}"
    )
    numbers = {"horizon": end, steady.label: _summary(a), other.label: _summary(b)}
    if runs < 3 or min(a.std(), b.std()) == 0.0:
        return Finding(where, UNDECIDED, text, numbers)
    ratio = math.log(b.std(ddof=1) / a.std(ddof=1))
    error = math.hypot(_log_sd_error(a), _log_sd_error(b))
    side = beyond(ratio, error, runs, math.log(factor))
    return Finding(where, {1: HOLDS, -1: FAILS, 0: UNDECIDED}[side], text, numbers | {"ratio": math.exp(ratio)})


def _log_sd_error(values: Array) -> float:
    """The standard error of the logarithm of a sample's standard deviation."""
    n = len(values)
    centred = values - values.mean()
    kurtosis = float((centred**4).mean() / (centred**2).mean() ** 2)
    return 0.5 * math.sqrt(max(kurtosis - (n - 3) / (n - 1), 1.0 / n) / n)


def grows(curve: Curve, where: str, *, limit: float, above: bool) -> Finding:
    """Whether the exponent of growth lies above or below a limit."""
    found = curve.growth()
    end, runs = int(curve.horizons[-1]), curve.runs
    numbers: dict[str, Any] = {"horizon": end, curve.label: _summary(curve.at(end))}
    if found is None:
        text = f"{curve.label}: mean regret is not positive over the last decade, so it has no exponent"
        return Finding(where, UNDECIDED, text, numbers)
    exponent, error = found
    text = f"{curve.label} grows like T^{exponent:.3f} ± {error:.3f} over the decade up to T = {slots(end)}"
    side = beyond(exponent, error, runs, limit) * (1 if above else -1)
    outcome = {1: HOLDS, -1: FAILS, 0: UNDECIDED}[side]
    return Finding(where, outcome, text, numbers | {"exponent": exponent, "exponent_stderr": error})


def plus_minus(values: Array) -> str:
    """Write a mean with its standard error."""
    return f"{amount(float(values.mean()))} ± {error_of(float(values.std(ddof=1)) / math.sqrt(len(values)))}"


def error_of(value: float) -> str:
    """Write a standard error: two digits, or whole where it is large."""
    return f"{value:.2g}" if value < 100 else amount(value)


def _summary(values: Array) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "stderr": float(values.std(ddof=1)) / math.sqrt(len(values)),
        "sd": float(values.std(ddof=1)),
        "runs": len(values),
    }


def _missing(where: str) -> Finding:
    return Finding(where, NOT_RUN, "not part of this run")


def _over_pairs(
    claim: Claim, evidence: Evidence, protocol: str, test: Callable[[Curve, Curve, str], Finding]
) -> list[Finding]:
    """Make a test of two curves for every item and every opponent."""
    findings = []
    for item in claim.items:
        panel = evidence.panels.get((item, protocol))
        mine = None if panel is None else panel.curve(claim.options["of"])
        for label in claim.options["than"]:
            theirs = None if panel is None else panel.curve(label)
            findings.append(_missing(item) if mine is None or theirs is None else test(mine, theirs, item))
    return findings


def _over_curves(
    claim: Claim, evidence: Evidence, protocol: str, test: Callable[[Curve, str], Finding]
) -> list[Finding]:
    findings = []
    for item in claim.items:
        panel = evidence.panels.get((item, protocol))
        for label in claim.options["of"]:
            curve = None if panel is None else panel.curve(label)
            findings.append(_missing(item) if curve is None else test(curve, item))
    return findings


def _lower_regret(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    return _over_pairs(claim, evidence, protocol, lower_along)


def _lower_spread(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    factor = float(claim.options["factor"])
    return _over_pairs(claim, evidence, protocol, lambda a, b, where: less_spread(a, b, factor, where))


def _linear(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    return _over_curves(claim, evidence, protocol, lambda curve, where: grows(curve, where, limit=LINEAR, above=True))


def _sublinear(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    return _over_curves(claim, evidence, protocol, lambda curve, where: grows(curve, where, limit=LINEAR, above=False))


def _order(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    limit = float(claim.options["exponent"]) + LOG_SLACK
    return _over_curves(claim, evidence, protocol, lambda curve, where: grows(curve, where, limit=limit, above=False))


def _exploration(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    findings = []
    for item in claim.items:
        panel, bound = evidence.panels.get((item, protocol)), evidence.exploration_bounds.get(item)
        curve = None if panel is None else panel.curve(claim.options["of"])
        if curve is None or curve.exploration is None or bound is None:
            findings.append(_missing(item))
            continue
        end = int(curve.horizons[-1])
        lengths, growth = curve.exploration[:, -1], curve.exploration_growth()
        limit, allowed = bound(end), float(claim.options["factor"]) * bound(end)
        text = f"{plus_minus(lengths)} slots at T = {slots(end)}, N m(T) / d_min = {amount(limit)}"
        numbers: dict[str, Any] = {"horizon": end, "length": _summary(lengths), "bound": limit}
        if growth is None:
            findings.append(Finding(item, UNDECIDED, text, numbers))
            continue
        text += f", growing like T^{growth[0]:.3f} ± {growth[1]:.3f}"
        short = -sign(lengths - allowed)
        slow = -beyond(*growth, curve.runs, 2 / 3 + LOG_SLACK)
        outcome = HOLDS if short > 0 and slow > 0 else FAILS if short < 0 or slow < 0 else UNDECIDED
        findings.append(Finding(item, outcome, text, numbers | {"exponent": growth[0], "exponent_stderr": growth[1]}))
    return findings


def _posterior(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    findings = []
    for problem, weights in evidence.posteriors.items():
        text = f"{problem}: weight {weights.mean():.4f} on the true chains on average over {len(weights)} runs"
        outcome = {1: HOLDS, -1: FAILS, 0: UNDECIDED}[sign(weights - 0.5)]
        findings.append(Finding(claim.items[0], outcome, text, {"weight": _summary(weights)}))
    return findings or [_missing(claim.items[0])]


def _times(evidence: Evidence, label: str, arms: int) -> Array | None:
    return evidence.times.get(label, {}).get(arms)


def _compare_times(where: str, text: str, slow: Array, quick: Array, factor: float, *, more: bool) -> Finding:
    """Whether one time is more than a factor of another, or at most that."""
    ratio = float(slow.mean() / quick.mean())
    error = math.hypot(_relative_error(slow), _relative_error(quick))
    width = stats.norm.ppf(1 - LEVEL / 2) * error
    side = int(math.log(ratio / factor) > width) - int(math.log(ratio / factor) < -width)
    outcome = {1: HOLDS, -1: FAILS, 0: UNDECIDED}[side if more else -side]
    return Finding(where, outcome, f"{text}: {ratio:.3g} times", {"ratio": ratio})


def _relative_error(times: Array) -> float:
    """The standard error of a mean time as a share of it; with fewer than three runs a guess on the safe side."""
    n = len(times)
    return 0.15 if n < 3 else float(times.std(ddof=1) / times.mean()) / math.sqrt(n)


def _faster(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    label, factor = claim.options["of"], float(claim.options["factor"])
    findings = []
    for other in claim.options["than"]:
        for arms in claim.options["arms"]:
            where = f"{arms} arms"
            mine, theirs = _times(evidence, label, arms), _times(evidence, other, arms)
            if mine is None or theirs is None:
                findings.append(_missing(where))
                continue
            text = f"{other} takes {seconds(float(theirs.mean()))}, {label} {seconds(float(mine.mean()))}"
            findings.append(_compare_times(where, text, theirs, mine, factor, more=True))
    return findings


def _growth_with_arms(claim: Claim, evidence: Evidence, few: int, many: int, *, more: bool) -> Finding:
    label, where = claim.options["of"], f"{few} to {many} arms"
    before, after = _times(evidence, label, few), _times(evidence, label, many)
    if before is None or after is None:
        return _missing(where)
    text = f"{seconds(float(before.mean()))} with {few} arms, {seconds(float(after.mean()))} with {many}"
    return _compare_times(where, text, after, before, float(claim.options["factor"]), more=more)


def _flat_time(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    arms = sorted(evidence.times.get(claim.options["of"], {}))
    return [_growth_with_arms(claim, evidence, arms[0], arms[-1], more=False)] if arms else [_missing("table-1")]


def _steep_time(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    arms = [n for n in sorted(evidence.times.get(claim.options["of"], {})) if n >= 3]
    return [_growth_with_arms(claim, evidence, few, many, more=True) for few, many in pairwise(arms)] or [
        _missing("table-1")
    ]


def _linear_build(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    arms = sorted(evidence.build_times)
    if len(arms) < 2:
        return [_missing("table-1")]
    exponent = math.log(evidence.build_times[arms[-1]] / evidence.build_times[arms[0]]) / math.log(arms[-1] / arms[0])
    text = ", ".join(f"{seconds(evidence.build_times[n])} for {n} arms" for n in arms) + f": like N^{exponent:.2f}"
    outcome = HOLDS if exponent <= BUILD_EXPONENT else FAILS
    return [Finding(f"{arms[0]} to {arms[-1]} arms", outcome, text, {"exponent": exponent})]


def _theory(claim: Claim, evidence: Evidence, protocol: str) -> list[Finding]:
    return list(evidence.theory.get(claim.options["check"], ())) or [_missing("theory")]


def seconds(value: float) -> str:
    """Write a time as people do."""
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


_TESTS: Mapping[str, Callable[[Claim, Evidence, str], list[Finding]]] = {
    "lower_regret": _lower_regret,
    "lower_spread": _lower_spread,
    "linear": _linear,
    "sublinear": _sublinear,
    "order": _order,
    "exploration": _exploration,
    "posterior": _posterior,
    "faster": _faster,
    "flat_time": _flat_time,
    "steep_time": _steep_time,
    "linear_build": _linear_build,
    "theory": _theory,
}
