"""What is to be run, read from ``paper.toml``, and what is claimed of it, from ``claims.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

from restless_bandits._internal.errors import check_known
from restless_bandits.paper.experiments import comparing, lemmas, limiting_policy, verdicts
from restless_bandits.paper.experiments.figures import Line, Protocol, RegretFigure
from restless_bandits.paper.experiments.inside import Inside
from restless_bandits.paper.experiments.items import Item
from restless_bandits.paper.experiments.lemmas import Lemmas
from restless_bandits.paper.experiments.timing import TimeTable
from restless_bandits.paper.experiments.verdicts import UNDER_PROTOCOLS, Claim

ITEM_KINDS: Mapping[str, type[Item]] = {"figure": RegretFigure, "times": TimeTable, "inside": Inside, "lemmas": Lemmas}

CHOICES: Mapping[str, float] = {
    "Chance of a wrong finding in the whole of a claim where there is nothing to find": comparing.LEVEL,
    "Share of its earlier rate from which on regret a slot is called steady, and regret linear": verdicts.STEADY,
    "What logarithms may add to an exponent of T": verdicts.LOG_SLACK,
    "Loss a slot in the limit that is called none": limiting_policy.NOTHING,
    "Weight of the posterior on one chain of each arm from which on a learner has settled": limiting_policy.SURE_WEIGHT,
    "Weight of the posterior on the true chains that is called high": verdicts.HIGH_WEIGHT,
    "Exponent of N up to which the time to build an instance is called linear": verdicts.BUILD_EXPONENT,
    "Share of its time that a timed run may wait on a machine that is called quiet": verdicts.WAITED,
    "Ratio of the largest to the least time of the same run on such a machine": verdicts.JITTER,
    "Relative standard error of a time that was measured fewer than three times": verdicts.GUESSED_TIME_ERROR,
    "Times N m(T) / d_min that the proved bound of the exploration phase may be": lemmas.ORDER,
    "Standard errors by which a simulated exploration phase may be off": lemmas.ALLOWED_STANDARD_ERRORS,
}
"""What the verdicts depend on and the paper does not say, beside the factors of single claims."""


@dataclass(frozen=True)
class Design:
    """All that a reproduction runs."""

    protocols: tuple[Protocol, ...]
    items: tuple[Item, ...]
    claims: tuple[Claim, ...]
    quick: bool = False

    def protocol(self, name: str) -> Protocol:
        return next(protocol for protocol in self.protocols if protocol.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(item.name for item in self.items)

    @property
    def choices(self) -> list[tuple[str, str]]:
        """What was chosen for the verdicts, and by which number."""
        chosen = [(name, f"{value:g}") for name, value in CHOICES.items()]
        return chosen + [(claim.text, _worded_options(claim)) for claim in self.claims if _worded_options(claim)]


def _worded_options(claim: Claim) -> str:
    return ", ".join(f"{name} {claim.options[name]:g}" for name in ("factor", "exponent") if name in claim.options)


def design(wanted: Sequence[str] = (), *, quick: bool = False) -> Design:
    """Return the whole design, or the part of it that the wanted items need."""
    whole = _read(quick)
    for name in wanted:
        check_known(name, whole.names, "there is no item")
    return replace(whole, items=tuple(item for item in whole.items if item.name in (wanted or whole.names)))


@cache
def _read(quick: bool) -> Design:
    paper = _toml("paper.toml")
    protocols = tuple(
        Protocol(**{**entry, "name": name, "lines": tuple(Line(**line) for line in entry["lines"])})
        for name, entry in paper["protocols"].items()
    )
    items = []
    for entry in paper["items"]:
        kind = entry.pop("kind", "figure")
        smaller = paper["quick"].get(kind, {}) if quick else {}
        items.append(ITEM_KINDS[kind].read(paper["usual"].get(kind, {}) | entry | smaller, protocols))
    claims = []
    for entry in _toml("claims.toml")["claims"]:
        # What is no field of a claim is an option of its test.
        told: dict[str, Any] = {one.name: entry.pop(one.name) for one in fields(Claim) if one.name in entry}
        compared = tuple(one.name for one in protocols) if told.get("test") in UNDER_PROTOCOLS else ()
        claims.append(Claim(options=entry, **{"protocols": compared} | told))
    return Design(protocols, tuple(items), tuple(claims), quick)


def _toml(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return {key: _frozen(entry) for key, entry in tomllib.loads(text).items()}


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    if isinstance(value, dict):
        return {key: _frozen(entry) for key, entry in value.items()}
    return tuple(_frozen(entry) for entry in value) if isinstance(value, list) else value
