"""The quick form of the reproduction: it confirms the stored results of the full one.

The first runs of every line are played again and compared with the stored runs. Verdicts are those of the full
reproduction; beside each stands whether the runs of this machine agree. Items are finished one after the other, and the
pictures of an item are written at once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from restless_bandits._internal.validation import to_jsonable
from restless_bandits.paper.experiments.agreement import (
    AGREES,
    DIFFERENT,
    DISAGREES,
    EQUAL,
    FEW,
    NEW,
    OPEN,
    SIMILAR,
    STORED,
    Agreement,
    Check,
    agreement,
    same_values,
    settled,
)
from restless_bandits.paper.experiments.comparing import LEVEL
from restless_bandits.paper.experiments.design import Design
from restless_bandits.paper.experiments.items import Part, Work
from restless_bandits.paper.experiments.stored import StoredResults
from restless_bandits.paper.experiments.verdicts import (
    FAILS,
    HOLDS,
    NOT_RUN,
    UNDER_PROTOCOLS,
    Claim,
    ClaimFinding,
    Evidence,
    decide,
)
from restless_bandits.simulation.storage import fingerprint

Drawn = Callable[[Part], None]
"""Called with each item as soon as it is done."""


@dataclass(frozen=True, eq=False)
class ConfirmedVerdict:
    """The verdict of the full reproduction on a claim under one protocol, and whether this machine agrees."""

    claim: Claim
    entry: Mapping[str, Any]
    """The entry of ``results.json``."""
    agreement: Agreement | None
    """None for a claim that no wanted item is about."""

    @property
    def protocol(self) -> str:
        return str(self.entry["protocol"])

    @property
    def outcome(self) -> str:
        return str(self.entry["outcome"])

    @property
    def text(self) -> str:
        return str(self.entry["verdict"])

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self.entry["findings"]
        return found

    def as_dict(self) -> dict[str, Any]:
        return {**self.entry, "agreement": None if self.agreement is None else self.agreement.as_dict()}


@dataclass(frozen=True, eq=False)
class Confirmation:
    """The comparison of this machine's runs with a full reproduction."""

    stored: StoredResults
    parts: tuple[Part, ...]
    checks: tuple[Check, ...]
    verdicts: tuple[ConfirmedVerdict, ...]

    def counts(self, what: str) -> tuple[int, int]:
        """Return how many runs or values are equal to stored ones, of how many."""
        some = [one for one in self.checks if one.what == what and one.outcome not in (STORED, NEW)]
        return sum(one.equal for one in some), sum(one.played for one in some)

    @property
    def compared(self) -> str:
        """The comparison in one sentence."""
        runs, values = (f"{equal} of {played}" for equal, played in map(self.counts, ("runs", "values")))
        told = f"{runs} runs equal the stored ones, and {values} computed values up to rounding"
        others = sorted({one.label for one in self.checks if one.other_code})
        if others:
            told += f"; other code or another processor: {', '.join(others)}"
        different = [one.name for one in self.checks if one.outcome == DIFFERENT]
        if different:
            told += f"; different: {', '.join(different)}"
        return told

    @property
    def agreed(self) -> str:
        """How many verdicts this machine agrees with, in one sentence."""
        told = Counter(one.agreement.outcome for one in self.verdicts if one.agreement is not None)
        words = {AGREES: "this machine agrees with {}", DISAGREES: "differs from {}", OPEN: "leaves {} open"}
        return ", ".join(text.format(told[outcome]) for outcome, text in words.items() if told[outcome])

    @property
    def origin(self) -> str:
        """The date and the code version of the stored results."""
        stamp = self.stored.stamp
        renewed = f", renewed {stamp.restamped}" if stamp.restamped else ""
        return f"full results of {stamp.date}, code {stamp.code}{renewed}"

    def as_dict(self) -> dict[str, Any]:
        runs, values = self.counts("runs"), self.counts("values")
        return {
            "full": {
                "date": self.stored.stamp.date,
                "code": self.stored.stamp.code,
                "restamped": self.stored.stamp.restamped,
                "seed": self.stored.seed,
                "versions": self.stored.results["versions"],
            },
            "code": fingerprint(),
            "level": LEVEL,
            "runs": {"equal": runs[0], "played": runs[1]},
            "values": {"equal": values[0], "computed": values[1]},
            "said": self.compared,
            "origin": self.origin,
            "checks": [one.as_dict() for one in self.checks],
        }


def confirm(plan: Design, work: Work, stored: StoredResults, done: Drawn) -> Confirmation:
    """Play and compare the items of a quick design, one after the other."""
    begun = [item.confirm(work, stored) for item in plan.items]
    parts = []
    for finish in begun:
        parts.append(finish())
        done(parts[-1])
    evidence = Evidence.together(part.evidence for part in parts)
    same_seed = work.seed == stored.seed
    computed = [one for claim in plan.claims for one in _computed(claim, evidence, stored, same_seed)]
    checks = settled([*(check for part in parts for check in part.checks), *computed])
    verdicts = tuple(verdict for claim in plan.claims for verdict in _verdicts(claim, plan, stored, checks))
    return Confirmation(stored, tuple(parts), checks, verdicts)


def _computed(claim: Claim, evidence: Evidence, stored: StoredResults, same_seed: bool) -> list[Check]:
    """Compare the findings of a claim that is not about lines and protocols."""
    known = stored.claims(claim.id)
    if claim.test in UNDER_PROTOCOLS or claim.test == "posterior" or not known:
        return []
    (verdict,) = decide(claim, evidence)
    if verdict.outcome == NOT_RUN:
        return []
    there = known[0]["findings"]
    if claim.test != "theory":
        return [_check_ratios(claim, verdict.findings, there)]
    here = json.loads(json.dumps(to_jsonable([one.as_dict() for one in verdict.findings])))
    alike = len(here) == len(there)
    equal = sum(same_values(one, other) for one, other in zip(here, there, strict=False)) if same_seed else 0
    similar = alike and all(one["outcome"] == other["outcome"] for one, other in zip(here, there, strict=False))
    outcome = EQUAL if alike and equal == len(there) else SIMILAR if similar else DIFFERENT
    return [Check("theory", "", claim.id, "values", len(here), equal, outcome)]


def _check_ratios(claim: Claim, here: Sequence[ClaimFinding], there: Sequence[Mapping[str, Any]]) -> Check:
    """Compare ratios of times that both this machine and the full reproduction decide."""
    known: dict[str, list[Mapping[str, Any]]] = {}
    for one in there:
        known.setdefault(one["where"], []).append(one)
    sides = []
    for finding in here:
        others = known.get(finding.where, [])
        other = others.pop(0) if others else None
        if other is not None and {finding.outcome, other["outcome"]} <= {HOLDS, FAILS}:
            sides.append(finding.outcome == other["outcome"])
    outcome = EQUAL if all(sides) and sides else DIFFERENT if sides else FEW
    return Check("table-1", "", claim.id, "ratios", len(sides), sum(sides), outcome)


def _verdicts(claim: Claim, plan: Design, stored: StoredResults, checks: Sequence[Check]) -> list[ConfirmedVerdict]:
    wanted = set(claim.items or (("theory",) if claim.test == "theory" else ("table-1",))) & set(plan.names)
    known = stored.claims(claim.id)
    if not wanted or not known:
        absent = [one.as_dict() for one in decide(claim, Evidence())]
        return [ConfirmedVerdict(claim, entry, None) for entry in absent]
    return [ConfirmedVerdict(claim, entry, _agreement(claim, entry["protocol"], wanted, checks)) for entry in known]


def _agreement(claim: Claim, protocol: str, wanted: set[str], checks: Sequence[Check]) -> Agreement:
    """Return the agreement on a claim, from the checks of its lines under one protocol."""
    if claim.test == "posterior":
        about = [one for one in checks if one.item in wanted and one.label.startswith(claim.options["of"])]
    elif claim.test in UNDER_PROTOCOLS:
        labels = {label for key in ("of", "than") for label in _each(claim.options.get(key, ()))}
        about = [one for one in checks if one.item in wanted and one.protocol == protocol and one.label in labels]
    else:
        about = [one for one in checks if one.label == claim.id]
    if about and all(one.what == "ratios" and not one.played for one in about):
        return Agreement(OPEN, "no ratio of times is decided both here and there")
    return agreement(about)


def _each(option: Any) -> tuple[str, ...]:
    return (option,) if isinstance(option, str) else tuple(option)
