"""What is to be run, read from ``paper.toml``, and what is claimed of it, from ``claims.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

from restless_bandits.errors import check_known
from restless_bandits.experiments.figures import Line, Protocol, RegretFigure
from restless_bandits.experiments.inside import Inside
from restless_bandits.experiments.items import Item
from restless_bandits.experiments.lemmas import Lemmas
from restless_bandits.experiments.timing import TimeTable
from restless_bandits.experiments.verdicts import UNDER_PROTOCOLS, Claim

KINDS: Mapping[str, type[Item]] = {"figure": RegretFigure, "times": TimeTable, "inside": Inside, "lemmas": Lemmas}


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
        items.append(KINDS[kind].read(paper["usual"].get(kind, {}) | entry | smaller, protocols))
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
