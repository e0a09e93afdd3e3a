"""Decides claims: each test takes what was measured and returns findings, never a typed verdict.

Two lines are compared run by run: run r of every learner is played by the same draws of the world, so the differences
of the runs are independent of one another, and Student's test of their mean is a paired one. Spreads are compared by
the logarithm of the ratio of standard deviations, whose standard error follows from the sample kurtosis (delta method).
Growth is the exponent of the regret over the last decade of T. Every finding is two-sided at ``LEVEL``; what does not
reach it is undecided, and so are all comparisons of fewer than three runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from restless_bandits.arrays import Array, IntArray
from restless_bandits.experiments.curves import Curve, Panel
from restless_bandits.experiments.writing import amount, plus_minus, seconds, slots

LEVEL = 1e-3
"""The chance that a finding between equals comes out for or against."""
LINEAR = 0.9
"""The exponent of growth between what is called sublinear and linear."""
LOG_SLACK = 0.08
"""What logarithms add to an exponent over the decades of T that are measured: T^(2/3) ln T grows like T^0.74."""

HOLDS, FAILS, FROM = "holds", "does not hold here", "holds from T ≈"
UNDECIDED, NOT_RUN = "undecided at this sample size", "not run"
SIDES = {1: HOLDS, -1: FAILS, 0: UNDECIDED}
"""Outcomes by the side of a limit on which an estimate lies, 0 where that is in doubt."""
BADGES = {HOLDS: "holds", FAILS: "fails", FROM: "from", UNDECIDED: "open", NOT_RUN: "none"}
TALLY = {HOLDS: "hold", FROM: "hold from some T on", FAILS: "do not", UNDECIDED: "undecided"}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the test that decides it."""

    id: str
    place: str
    text: str
    test: str = "theory"
    options: Mapping[str, Any] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    """The protocols under which it is decided; none for claims about running times and the like."""


@dataclass(frozen=True)
class Finding:
    """What a test found in one place."""

    where: str
    outcome: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    from_horizon: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"where": self.where, "outcome": self.outcome, "text": self.text, **self.numbers}


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
        known = worded(self)
        part = self.outcome != NOT_RUN and any(one.outcome == NOT_RUN for one in self.findings)
        return f"{known} (on what was run)" if part else known

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.claim.id,
            "place": self.claim.place,
            "claim": self.claim.text,
            "protocol": self.protocol,
            "verdict": self.text,
            "findings": [one.as_dict() for one in self.findings],
        }


def worded(one: Finding | Verdict) -> str:
    """Return the outcome, with the horizon from which on it holds."""
    return one.outcome if one.from_horizon is None else f"{FROM} {slots(one.from_horizon)}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was measured."""

    panels: Mapping[tuple[str, str], Panel] = field(default_factory=dict)
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
    """By the name of a check: what it found (experiments/lemmas.py)."""

    @classmethod
    def together(cls, parts: Iterable[Evidence]) -> Evidence:
        merged: dict[str, dict[Any, Any]] = {one.name: {} for one in fields(cls)}
        for part in parts:
            for name, entries in merged.items():
                entries |= getattr(part, name)
        return cls(**merged)


def decide(claim: Claim, evidence: Evidence) -> list[Verdict]:
    """Return the verdicts on a claim: one for each protocol, or one."""
    test = TESTS[claim.test]
    return [combine(claim, protocol, [*test(claim, evidence, protocol)]) for protocol in claim.protocols or ("",)]


def combine(claim: Claim, protocol: str, findings: Sequence[Finding]) -> Verdict:
    """A claim holds where all of its parts hold, and fails where one does.

    Between: from the largest T from which a part holds, if all others hold; undecided if a part is. Parts that were not
    run are left aside, and the verdict says so.
    """
    found = {finding.outcome for finding in findings}
    outcome = next((one for one in (FAILS, UNDECIDED, FROM, HOLDS) if one in found), NOT_RUN)
    begins = max(finding.from_horizon or 0.0 for finding in findings) if outcome == FROM else None
    return Verdict(claim, protocol, outcome, tuple(findings), begins)


def sign(values: Array) -> int:
    """Return the sign of the mean of independent values if it is beyond doubt at ``LEVEL``, else 0."""
    n = len(values)
    return 0 if n < 3 else beyond(float(values.mean()), float(values.std(ddof=1)) / math.sqrt(n), n, 0.0)


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
        if meeting is not None:
            text += f"; growing on as over the last decade, the lines would meet at T ≈ {slots(meeting)}"
        return Finding(where, FAILS, text, numbers | {"would_meet_at": meeting})
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
    return Finding(where, SIDES[side], text, numbers | {"ratio": math.exp(ratio)})


def _log_sd_error(values: Array) -> float:
    """The standard error of the logarithm of a sample's standard deviation."""
    n = len(values)
    centred = values - values.mean()
    kurtosis = float((centred**4).mean() / (centred**2).mean() ** 2)
    return 0.5 * math.sqrt(max(kurtosis - (n - 3) / (n - 1), 1.0 / n) / n)


def grows(curve: Curve, where: str, *, limit: float, above: bool) -> Finding:
    found = curve.growth()
    end, runs = int(curve.horizons[-1]), curve.runs
    numbers: dict[str, Any] = {"horizon": end, curve.label: _summary(curve.at(end))}
    if found is None:
        text = f"{curve.label}: mean regret is not positive over the last decade, so it has no exponent"
        return Finding(where, UNDECIDED, text, numbers)
    exponent, error = found
    text = f"{curve.label} grows like T^{exponent:.3f} ± {error:.3f} over the decade up to T = {slots(end)}"
    side = beyond(exponent, error, runs, limit) * (1 if above else -1)
    return Finding(where, SIDES[side], text, numbers | {"exponent": exponent, "exponent_stderr": error})


def _summary(values: Array) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "stderr": float(values.std(ddof=1)) / math.sqrt(len(values)),
        "sd": float(values.std(ddof=1)),
        "runs": len(values),
    }


def _missing(where: str) -> Finding:
    return Finding(where, NOT_RUN, "not part of this run")


Test = Callable[[Claim, Evidence, str], Iterable[Finding]]
"""From a claim, what was measured and a protocol, if the test is made under one, to findings."""


def _on_curves(test: Callable[..., Finding], **options: Callable[[Mapping[str, Any]], Any]) -> Test:
    """Make a test of a curve, or of one against each opponent, for every item.

    ``options`` are arguments of the test, made from the options of the claim.
    """

    def findings(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[Finding]:
        of, arguments = claim.options["of"], {name: make(claim.options) for name, make in options.items()}
        asked = [(of, other) for other in claim.options["than"]] if "than" in claim.options else [(one,) for one in of]
        for item in claim.items:
            panel = evidence.panels.get((item, protocol))
            for labels in asked:
                curves = [panel.curve(label) for label in labels] if panel is not None else [None]
                yield _missing(item) if None in curves else test(*curves, where=item, **arguments)

    return findings


def _exploration(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[Finding]:
    for item in claim.items:
        panel, bound = evidence.panels.get((item, protocol)), evidence.exploration_bounds.get(item)
        curve = None if panel is None else panel.curve(claim.options["of"])
        if curve is None or curve.exploration is None or bound is None:
            yield _missing(item)
            continue
        end = int(curve.horizons[-1])
        lengths, growth = curve.exploration[:, -1], curve.growth(of=curve.exploration)
        limit, allowed = bound(end), float(claim.options["factor"]) * bound(end)
        text = f"{plus_minus(lengths)} slots at T = {slots(end)}, N m(T) / d_min = {amount(limit)}"
        numbers: dict[str, Any] = {"horizon": end, "length": _summary(lengths), "bound": limit}
        if growth is None:
            yield Finding(item, UNDECIDED, text, numbers)
            continue
        text += f", growing like T^{growth[0]:.3f} ± {growth[1]:.3f}"
        # Short, and growing slowly: against the claim where either is, for it where both are.
        sides = -sign(lengths - allowed), -beyond(*growth, curve.runs, 2 / 3 + LOG_SLACK)
        numbers |= {"exponent": growth[0], "exponent_stderr": growth[1]}
        yield Finding(item, SIDES[min(sides)], text, numbers)


def _posterior(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[Finding]:
    for problem, weights in evidence.posteriors.items():
        text = f"{problem}: weight {weights.mean():.4f} on the true chains on average over {len(weights)} runs"
        yield Finding(claim.items[0], SIDES[sign(weights - 0.5)], text, {"weight": _summary(weights)})
    if not evidence.posteriors:
        yield _missing(claim.items[0])


def _compare_times(where: str, text: str, slow: Array, quick: Array, factor: float, *, more: bool) -> Finding:
    """Whether one time is more than a factor of another, or at most that."""
    ratio = float(slow.mean() / quick.mean())
    error = math.hypot(_relative_error(slow), _relative_error(quick))
    width = stats.norm.ppf(1 - LEVEL / 2) * error
    side = int(math.log(ratio / factor) > width) - int(math.log(ratio / factor) < -width)
    return Finding(where, SIDES[side if more else -side], f"{text}: {ratio:.3g} times", {"ratio": ratio})


def _relative_error(times: Array) -> float:
    """The standard error of a mean time as a share of it; with fewer than three runs a guess on the safe side."""
    n = len(times)
    return 0.15 if n < 3 else float(times.std(ddof=1) / times.mean()) / math.sqrt(n)


def _faster(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[Finding]:
    label, factor = claim.options["of"], float(claim.options["factor"])
    for other in claim.options["than"]:
        for arms in claim.options["arms"]:
            where = f"{arms} arms"
            mine, theirs = (evidence.times.get(one, {}).get(arms) for one in (label, other))
            if mine is None or theirs is None:
                yield _missing(where)
                continue
            text = f"{other} takes {seconds(float(theirs.mean()))}, {label} {seconds(float(mine.mean()))}"
            yield _compare_times(where, text, theirs, mine, factor, more=True)


def _growth_with_arms(claim: Claim, evidence: Evidence, protocol: str, *, more: bool) -> Iterator[Finding]:
    """From the fewest to the most arms by at most a factor; or with every arm from three on by more than that."""
    times = evidence.times.get(claim.options["of"], {})
    arms = sorted(n for n in times if n >= 3 or not more)
    steps = list(pairwise(arms)) if more else [(arms[0], arms[-1])] if arms else []
    for few, many in steps:
        before, after = times[few], times[many]
        text = f"{seconds(float(before.mean()))} with {few} arms, {seconds(float(after.mean()))} with {many}"
        factor = float(claim.options["factor"])
        yield _compare_times(f"{few} to {many} arms", text, after, before, factor, more=more)
    if not steps:
        yield _missing("table-1")


def _linear_build(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[Finding]:
    times = sorted(evidence.build_times.items())
    if len(times) < 2:
        yield _missing("table-1")
        return
    (fewest, first), (most, last) = times[0], times[-1]
    exponent = math.log(last / first) / math.log(most / fewest)
    text = ", ".join(f"{seconds(spent)} for {n} arms" for n, spent in times) + f": like N^{exponent:.2f}"
    outcome = HOLDS if exponent <= 1.2 else FAILS
    yield Finding(f"{fewest} to {most} arms", outcome, text, {"exponent": exponent})


def _theory(claim: Claim, evidence: Evidence, protocol: str) -> Iterable[Finding]:
    return evidence.theory.get(claim.options["check"]) or [_missing("theory")]


UNDER_PROTOCOLS: dict[str, Test] = {
    "lower_regret": _on_curves(lower_along),
    "lower_spread": _on_curves(less_spread, factor=lambda options: float(options["factor"])),
    "linear": _on_curves(partial(grows, limit=LINEAR, above=True)),
    "sublinear": _on_curves(partial(grows, limit=LINEAR, above=False)),
    "order": _on_curves(partial(grows, above=False), limit=lambda options: float(options["exponent"]) + LOG_SLACK),
    "exploration": _exploration,
}
"""Tests that are made under a protocol."""
TESTS: Mapping[str, Test] = UNDER_PROTOCOLS | {
    "posterior": _posterior,
    "faster": _faster,
    "flat_time": partial(_growth_with_arms, more=False),
    "steep_time": partial(_growth_with_arms, more=True),
    "linear_build": _linear_build,
    "theory": _theory,
}
