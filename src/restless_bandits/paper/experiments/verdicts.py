"""Decides claims: each test takes what was measured and returns findings, never a typed verdict.

Two lines are compared run by run: run r of every learner is played by the same draws of the world, so the differences
of the runs are independent of one another, and tests of their mean and spread are paired ones (``comparing``). A claim
has a part for each problem and opponent. ``LEVEL`` is that of the whole claim: the p-values of its parts are adjusted
for their number. What does not reach it is undecided, and so are all comparisons of fewer than three runs.

Whether regret grows linearly is decided by what the learner does in the limit where that is known
(``limiting_losses``), else by whether the regret a slot still falls. Running times are compared by their ratios; a
machine that was busy refutes nothing. What was tried on instances and not proved is "no violation", however many there
were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.logs.checks import holm
from restless_bandits.paper.experiments.comparing import LEVEL, Side, carriers, side_of_mean, side_of_spread
from restless_bandits.paper.experiments.curves import Curve, Panel
from restless_bandits.paper.experiments.limiting_policy import LimitingLoss
from restless_bandits.paper.experiments.writing import amount, plus_minus, seconds, slots

STEADY = 0.95
"""The share of its earlier rate from which on regret a slot is called steady, and regret linear."""
LOG_SLACK = 0.08
"""What logarithms add to an exponent over the decades of T that are measured: T^(2/3) ln T grows like T^0.74."""
HIGH_WEIGHT = 0.5
"""The weight of the posterior on the true chains that is called high."""
BUILD_EXPONENT = 1.2
"""The exponent of N up to which the time to build an instance is called linear."""
WAITED = 0.05
"""The share of its time that a timed run may spend waiting on a machine that is called quiet."""
JITTER = 1.25
"""How many times the least of several times of the same run the largest may be there, in the middle of all runs."""
GUESSED_TIME_ERROR = 0.15
"""The standard error of the logarithm of a time of which fewer than three runs were measured: a safe guess."""

HOLDS, FAILS, FROM, UNVIOLATED = "holds", "does not hold here", "holds from T ≈", "no violation"
UNDECIDED, NOT_YET, BUSY = "undecided at this sample size", "not yet at T =", "undecided: this machine was busy"
NOT_RUN = "not run"
SIDES = {1: HOLDS, -1: FAILS, 0: UNDECIDED}
"""Outcomes by the side of a limit on which an estimate lies, 0 where that is in doubt."""
BADGES = {
    HOLDS: "holds",
    UNVIOLATED: "holds",
    FAILS: "fails",
    FROM: "from",
    NOT_YET: "open",
    UNDECIDED: "open",
    BUSY: "open",
    NOT_RUN: "none",
}
TALLY = {
    HOLDS: "hold",
    UNVIOLATED: "without a violation",
    FROM: "hold from some T on",
    FAILS: "do not",
    NOT_YET: "not yet",
    UNDECIDED: "undecided",
    BUSY: "undecided on a busy machine",
}
SHORT_TALLY = TALLY | {FAILS: "do not hold", BUSY: "undecided"}
"""The same for all claims together."""
WEAKEST = (FAILS, UNDECIDED, BUSY, NOT_YET, FROM, UNVIOLATED, HOLDS)
"""A claim has the first of these outcomes that a part of it has."""


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
class ClaimFinding:
    """What a test found in one place."""

    where: str
    outcome: str
    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    horizon: float | None = None
    """From which T on it holds, or at which T not yet."""
    p: float | None = None
    """The probability of such an outcome without an effect; None for computed values, which are not estimated."""
    tried: int = 1
    """Instances on which a lemma was tried."""

    def as_dict(self) -> dict[str, Any]:
        tested = {} if self.p is None else {"p": self.p}
        said = {"where": self.where, "outcome": self.outcome, "worded": worded(self), "text": self.text}
        return {**said, **tested, **self.numbers}


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim under one protocol, or on a claim that has none."""

    claim: Claim
    protocol: str
    outcome: str
    findings: tuple[ClaimFinding, ...]
    horizon: float | None = None

    @property
    def tried(self) -> int:
        return sum(one.tried for one in self.findings if one.outcome != NOT_RUN)

    @property
    def text(self) -> str:
        known = worded(self)
        if self.outcome == UNVIOLATED:
            known += f" in {self.tried} instance{'s' * (self.tried != 1)}"
        part = self.outcome != NOT_RUN and any(one.outcome == NOT_RUN for one in self.findings)
        return f"{known} (on what was run)" if part else known

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.claim.id,
            "place": self.claim.place,
            "claim": self.claim.text,
            "protocol": self.protocol,
            "outcome": self.outcome,
            "verdict": self.text,
            "findings": [one.as_dict() for one in self.findings],
        }


def worded(one: ClaimFinding | Verdict) -> str:
    """Return the outcome, with the horizon that belongs to it."""
    return one.outcome if one.horizon is None else f"{one.outcome} {slots(one.horizon)}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was measured."""

    panels: Mapping[tuple[str, str], Panel] = field(default_factory=dict)
    """By item and protocol."""
    exploration_bounds: Mapping[str, Callable[[int], float]] = field(default_factory=dict)
    """By item: N m(T) / d_min."""
    posteriors: Mapping[str, Array] = field(default_factory=dict)
    """By problem: the posterior weight of the true chains, a number for each run."""
    limiting_losses: Mapping[tuple[str, str, str], LimitingLoss] = field(default_factory=dict)
    """By item, protocol and line: what a learner loses in the limit, where that is known."""
    times: Mapping[str, Mapping[int, Array]] = field(default_factory=dict)
    """By learner and number of arms: seconds of each run."""
    build_times: Mapping[int, Array] = field(default_factory=dict)
    """By number of arms: seconds to build the optimistic instance, in each of several rounds."""
    weather: Mapping[str, float] = field(default_factory=dict)
    """How quiet the machine was while times were measured: the shares ``waited`` and ``jitter``."""
    theory: Mapping[str, Sequence[ClaimFinding]] = field(default_factory=dict)
    """By the name of a check: what it found (paper/experiments/lemmas.py)."""

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


def combine(claim: Claim, protocol: str, findings: Sequence[ClaimFinding]) -> Verdict:
    """A claim holds where all of its parts hold, and fails where one does.

    Between: from the largest T from which a part holds, if all others hold; undecided if a part is. Parts that were not
    run are left aside, and the verdict says so.
    """
    findings = at_level(findings)
    found = {finding.outcome for finding in findings}
    outcome = next((one for one in WEAKEST if one in found), NOT_RUN)
    horizons = [one.horizon for one in findings if one.outcome == outcome and one.horizon is not None]
    return Verdict(claim, protocol, outcome, tuple(findings), max(horizons, default=None))


def at_level(findings: Sequence[ClaimFinding]) -> list[ClaimFinding]:
    """Leave undecided all findings that may be random, at ``LEVEL`` for all findings together."""
    adjusted = iter(holm([one.p for one in findings if one.p is not None]))
    return [
        replace(one, outcome=UNDECIDED, horizon=None)
        if one.p is not None and next(adjusted) > LEVEL and one.outcome != BUSY
        else one
        for one in findings
    ]


def lower_along(lower: Curve, higher: Curve, where: str) -> ClaimFinding:
    """Whether the mean of one curve is below that of another, and from which T on."""
    shared = np.intersect1d(lower.horizons, higher.horizons)
    runs = min(lower.runs, higher.runs)
    differences = np.stack([higher.at(int(t))[:runs] - lower.at(int(t))[:runs] for t in shared], axis=1)
    side = side_of_mean(differences[:, -1])
    # Which of the earlier horizons are against it, at the level for all of them together.
    early = [side_of_mean(differences[:, j]) for j in range(len(shared) - 1)]
    against = [j for j, p in enumerate(holm([one.p for one in early])) if early[j].sign < 0 and p <= LEVEL]
    end = int(shared[-1])
    a, b = lower.at(end), higher.at(end)
    text = f"{lower.label} {_mean_and_median(a)} against {higher.label} {_mean_and_median(b)} at T = {slots(end)}"
    numbers: dict[str, Any] = {"horizon": end, lower.label: _summary(a), higher.label: _summary(b)}
    if carried := carriers(differences[:, -1]):
        text += f"; {carried} of the difference"
    if side.at(LEVEL):
        text += f"; a loss in fewer than 3 of {runs} runs is not excluded"
    if side.at(LEVEL) < 0:
        numbers["would_meet_at"] = meeting = _meeting(lower, higher, end)
        if meeting is not None:
            text += f"; growing on as over the last decade, the lines would meet at T ≈ {slots(meeting)}"
    if side.at(LEVEL) > 0 and against:
        crossing = _crossing(shared, differences.mean(axis=0), against[-1])
        return ClaimFinding(where, FROM, f"{text}; the lines cross at T ≈ {slots(crossing)}", numbers, crossing, side.p)
    return ClaimFinding(where, SIDES[side.sign], text, numbers, p=side.p)


def _mean_and_median(values: Array) -> str:
    return f"{plus_minus(values)} (median {amount(float(np.median(values)))})"


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


def less_spread(steady: Curve, other: Curve, factor: float, where: str) -> ClaimFinding:
    """Whether one curve's standard deviation is smaller than another's by a factor, at the largest common T."""
    end = int(np.intersect1d(steady.horizons, other.horizons)[-1])
    runs = min(steady.runs, other.runs)
    a, b = (curve.spread[:runs, curve.column(end)] for curve in (steady, other))
    text = (
        f"standard deviation of {steady.spread_kind} regret: {steady.label} {amount(float(a.std(ddof=1)))}, "
        f"{other.label} {amount(float(b.std(ddof=1)))} at T = {slots(end)}"
    )
    if carried := carriers((b - b.mean()) ** 2):
        text += f"; {carried} of the variance of {other.label}"
    numbers = {"horizon": end, steady.label: _summary(a), other.label: _summary(b)}
    side = side_of_spread(factor * a, b)
    return ClaimFinding(where, SIDES[-side.sign], text, numbers, p=side.p)


def grows(curve: Curve, where: str, *, limit: float) -> ClaimFinding:
    """Whether the exponent of the growth over the last decade is below a limit."""
    found = curve.exponents()
    end = int(curve.horizons[-1])
    numbers: dict[str, Any] = {"horizon": end, curve.label: _summary(curve.at(end))}
    if found is None:
        text = f"{curve.label}: mean regret is not positive over the last decade, so it has no exponent"
        return ClaimFinding(where, UNDECIDED, text, numbers, p=1.0)
    exponent, error = _estimate(found)
    text = f"{curve.label} grows like T^{exponent:.3f} ± {error:.3f} over the decade up to T = {slots(end)}"
    side = side_of_mean(limit - found)
    return ClaimFinding(
        where, SIDES[side.sign], text, numbers | {"exponent": exponent, "exponent_stderr": error}, p=side.p
    )


def steady_loss(curve: Curve, limit: LimitingLoss | None, where: str, *, linear: bool) -> ClaimFinding:
    """Whether regret grows linearly, or whether it does not.

    In the limit, where that is known. Else by whether the regret a slot still falls: a rate that does is no proof that
    it falls to 0, nor one that is steady that it stays, but that is what can be seen up to the last T.
    """
    end = int(curve.horizons[-1])
    numbers: dict[str, Any] = {"horizon": end, curve.label: _summary(curve.at(end))}
    if limit is not None and limit.loses is not None:
        numbers["limit"] = [limit.lower, limit.upper]
        lost = f"loses {limit.lower:.3g} a slot" if limit.upper - limit.lower < 1e-3 * limit.upper else ""
        lost = lost or f"loses between {limit.lower:.2g} and {limit.upper:.2g} a slot"
        text = f"{curve.label} settles on a policy that {lost if limit.loses else 'loses nothing'}"
        return ClaimFinding(where, HOLDS if limit.loses is linear else FAILS, text, numbers)
    found = curve.late_rates()
    if found is None:
        text = f"{curve.label}: mean regret did not grow throughout, so its rate cannot be compared"
        return ClaimFinding(where, UNDECIDED, text, numbers, p=1.0)
    change, (start, middle, _) = found
    log_ratio, error = _estimate(change)
    ratio = math.exp(log_ratio)
    text = (
        f"{curve.label}: the regret a slot from T = {slots(middle)} to {slots(end)} is {ratio:.3g} ± "
        f"{ratio * error:.2g} times that from T = {slots(start)} on"
    )
    numbers |= {"rate_ratio": ratio, "rate_ratio_stderr": ratio * error}
    side = side_of_mean(change - math.log(STEADY))
    if (side.sign > 0) is linear:
        return ClaimFinding(where, HOLDS, text, numbers, p=side.p)
    return ClaimFinding(where, NOT_YET, text, numbers, float(end), side.p)


def _estimate(values: Array) -> tuple[float, float]:
    """The mean, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


def _summary(values: Array) -> dict[str, float]:
    mean, error = _estimate(values)
    sd, median = float(values.std(ddof=1)), float(np.median(values))
    return {"mean": mean, "stderr": error, "sd": sd, "median": median, "runs": len(values)}


def _missing(where: str) -> ClaimFinding:
    return ClaimFinding(where, NOT_RUN, "not part of this run")


Test = Callable[[Claim, Evidence, str], Iterable[ClaimFinding]]
"""From a claim, what was measured and a protocol, if the test is made under one, to findings."""


class Place(NamedTuple):
    """The place of a test of curves: an item, a protocol, the options of the claim, and the evidence."""

    item: str
    protocol: str
    options: Mapping[str, Any]
    evidence: Evidence


def _on_curves(test: Callable[..., ClaimFinding]) -> Test:
    """Make a test of a curve, or of a curve against each opponent, at the place of every item."""

    def findings(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[ClaimFinding]:
        of, than = claim.options["of"], claim.options.get("than")
        asked = [(one,) for one in of] if than is None else [(of, other) for other in than]
        for item in claim.items:
            panel = evidence.panels.get((item, protocol))
            for labels in asked:
                curves = [panel.curve(label) for label in labels] if panel is not None else [None]
                at = Place(item, protocol, claim.options, evidence)
                yield _missing(item) if None in curves else test(*curves, at)

    return findings


def _steady(curve: Curve, at: Place, *, linear: bool) -> ClaimFinding:
    limit = at.evidence.limiting_losses.get((at.item, at.protocol, curve.label))
    return steady_loss(curve, limit, at.item, linear=linear)


def _exploration(curve: Curve, at: Place) -> ClaimFinding:
    bound = at.evidence.exploration_bounds.get(at.item)
    if curve.exploration is None or bound is None:
        return _missing(at.item)
    end = int(curve.horizons[-1])
    lengths, growth = curve.exploration[:, -1], curve.exponents(of=curve.exploration)
    limit, allowed = bound(end), float(at.options["factor"]) * bound(end)
    text = f"{plus_minus(lengths)} slots at T = {slots(end)}, N m(T) / d_min = {amount(limit)}"
    numbers: dict[str, Any] = {"horizon": end, "length": _summary(lengths), "bound": limit}
    if growth is None:
        return ClaimFinding(at.item, UNDECIDED, text, numbers, p=1.0)
    exponent, error = _estimate(growth)
    text += f", growing like T^{exponent:.3f} ± {error:.3f}"
    numbers |= {"exponent": exponent, "exponent_stderr": error}
    # Short, and growing slowly: against the claim where either is, for it where both are.
    side = _both(side_of_mean(allowed - lengths), side_of_mean(2 / 3 + LOG_SLACK - growth))
    return ClaimFinding(at.item, SIDES[side.sign], text, numbers, p=side.p)


def _both(first: Side, second: Side) -> Side:
    """Return the side of two things that must both be so: for it by the weaker, against it by the stronger of them."""
    against = [one.p for one in (first, second) if one.sign < 0]
    if against:
        return Side(-1, min(1.0, 2 * min(against)))
    return Side(min(first.sign, second.sign), max(first.p, second.p))


def _posterior(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[ClaimFinding]:
    for problem, weights in evidence.posteriors.items():
        text = f"{problem}: weight {weights.mean():.4f} on the true chains on average over {len(weights)} runs"
        side = side_of_mean(weights - HIGH_WEIGHT)
        yield ClaimFinding(claim.items[0], SIDES[side.sign], text, {"weight": _summary(weights)}, p=side.p)
    if not evidence.posteriors:
        yield _missing(claim.items[0])


def _busy(evidence: Evidence) -> bool:
    return evidence.weather.get("waited", 0.0) > WAITED or evidence.weather.get("jitter", 1.0) > JITTER


def _timed(where: str, text: str, logs: Array, limit: float, evidence: Evidence, *, more: bool) -> ClaimFinding:
    """Whether the logarithm of a ratio of times is above a limit, or below; ``logs`` has a number for each round.

    A busy machine may be too noisy for what is so, and may delay one thing more than another: it refutes nothing.
    """
    shown = np.exp(float(logs.mean()))
    if len(logs) < 3:
        error = math.sqrt(2 / len(logs)) * GUESSED_TIME_ERROR
        distance = (float(logs.mean()) - limit) / error
        side = Side(int(np.sign(distance)), 2 * float(stats.norm.sf(abs(distance))))
        width = float(stats.norm.ppf(1 - LEVEL / 2)) * error
    else:
        side = side_of_mean(logs - limit)
        width = float(stats.t.ppf(1 - LEVEL / 2, len(logs) - 1)) * _estimate(logs)[1]
    low, high = shown * math.exp(-width), shown * math.exp(width)
    outcome = SIDES[side.sign if more else -side.sign]
    if _busy(evidence) and (outcome == FAILS or side.at(LEVEL) == 0):
        outcome = BUSY
    text = f"{text}: {shown:.3g} times ({low:.3g} to {high:.3g})"
    return ClaimFinding(where, outcome, text, {"ratio": shown, "interval": [low, high]}, p=side.p)


def _log_ratios(slow: Array, quick: Array) -> Array:
    """Of as many runs as both have."""
    runs = min(len(slow), len(quick))
    return np.asarray(np.log(slow[:runs] / quick[:runs]))


def _faster(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[ClaimFinding]:
    label, factor = claim.options["of"], float(claim.options["factor"])
    for other in claim.options["than"]:
        for arms in claim.options["arms"]:
            where = f"{arms} arms"
            mine, theirs = (evidence.times.get(one, {}).get(arms) for one in (label, other))
            if mine is None or theirs is None:
                yield _missing(where)
                continue
            text = f"{other} takes {seconds(float(theirs.mean()))}, {label} {seconds(float(mine.mean()))}"
            yield _timed(where, text, _log_ratios(theirs, mine), math.log(factor), evidence, more=True)


def _growth_with_arms(claim: Claim, evidence: Evidence, protocol: str, *, more: bool) -> Iterator[ClaimFinding]:
    """From the fewest to the most arms by at most a factor; or with every arm from three on by more than that."""
    times = evidence.times.get(claim.options["of"], {})
    arms = sorted(n for n in times if n >= 3 or not more)
    steps = list(pairwise(arms)) if more else [(arms[0], arms[-1])] if arms else []
    for few, many in steps:
        before, after = times[few], times[many]
        text = f"{seconds(float(before.mean()))} with {few} arms, {seconds(float(after.mean()))} with {many}"
        limit = math.log(float(claim.options["factor"]))
        yield _timed(f"{few} to {many} arms", text, _log_ratios(after, before), limit, evidence, more=more)
    if not steps:
        yield _missing("table-1")


def _linear_build(claim: Claim, evidence: Evidence, protocol: str) -> Iterator[ClaimFinding]:
    times = sorted(evidence.build_times.items())
    if len(times) < 2:
        yield _missing("table-1")
        return
    (fewest, first), (most, last) = times[0], times[-1]
    logs, decades = _log_ratios(last, first), math.log(most / fewest)
    text = ", ".join(f"{seconds(float(spent.min()))} for {n} arms" for n, spent in times)
    text += f": like N^{float(logs.mean()) / decades:.2f}"
    yield _timed(f"{fewest} to {most} arms", text, logs, BUILD_EXPONENT * decades, evidence, more=False)


def _theory(claim: Claim, evidence: Evidence, protocol: str) -> Iterable[ClaimFinding]:
    return evidence.theory.get(claim.options["check"]) or [_missing("theory")]


UNDER_PROTOCOLS: dict[str, Test] = {
    "lower_regret": _on_curves(lambda low, high, at: lower_along(low, high, at.item)),
    "lower_spread": _on_curves(lambda low, high, at: less_spread(low, high, float(at.options["factor"]), at.item)),
    "linear": _on_curves(partial(_steady, linear=True)),
    "sublinear": _on_curves(partial(_steady, linear=False)),
    "order": _on_curves(lambda one, at: grows(one, at.item, limit=float(at.options["exponent"]) + LOG_SLACK)),
    "exploration": _on_curves(_exploration),
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
