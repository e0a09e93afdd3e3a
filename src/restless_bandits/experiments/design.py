"""What is to be run, read from ``paper.toml``, and what is claimed of it, from ``claims.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from restless_bandits.errors import ProblemError, did_you_mean
from restless_bandits.learners import learner
from restless_bandits.problem import Problem
from restless_bandits.simulation.cells import Cell


@dataclass(frozen=True)
class Line:
    """A learner of a protocol, drawn as one line of every figure."""

    label: str
    spec: str
    spec_many: str = ""
    anew: bool = False
    horizon: int = 0
    """How far the line goes at least; 0 leaves it to the item."""
    cost: float = 0.1
    most_arms: int = 1000
    """Left out of figures with more arms, where it would take too long."""

    def spec_for(self, problem: Problem) -> str:
        return self.spec_many if self.spec_many and problem.n_arms > 2 else self.spec


@dataclass(frozen=True)
class Protocol:
    name: str
    title: str
    about: str
    horizons: tuple[int, ...]
    comparator: str
    lines: tuple[Line, ...]
    kind: str | None = None
    """The kind of regret that is compared; None for the best there is."""
    spread_kind: str | None = None
    """The kind whose spread is compared."""

    def lines_for(self, problem: Problem) -> list[Line]:
        """Return the lines of the figure of a problem."""
        return [line for line in self.lines if problem.n_arms <= line.most_arms]


@dataclass(frozen=True)
class Item:
    """A figure: one problem under every protocol."""

    name: str
    title: str
    place: str
    problem: str
    runs: int
    fair_runs: int
    horizon: int
    note: str = ""

    def runs_of(self, protocol: Protocol) -> int:
        return self.fair_runs if protocol.name == "fair" else self.runs


@dataclass(frozen=True)
class TableLine:
    label: str
    spec: str
    runs: tuple[int, ...]
    paper: tuple[float, ...]


@dataclass(frozen=True)
class TimeTable:
    name: str
    title: str
    place: str
    horizon: int
    problems: tuple[str, ...]
    arms: tuple[int, ...]
    lines: tuple[TableLine, ...]


@dataclass(frozen=True)
class Inside:
    name: str
    title: str
    problems: tuple[str, ...]
    horizon: int
    runs: int
    quick_runs: int
    walk_horizon: int
    walk_slots: int


@dataclass(frozen=True)
class Theory:
    """The lemmas and theorems: on which problems, at which horizons, with how many draws."""

    name: str
    title: str
    problems: tuple[str, ...]
    quick_problems: tuple[str, ...]
    horizons: tuple[int, ...]
    event_runs: int
    quick_event_runs: int
    exploration_runs: int
    quick_exploration_runs: int
    estimates: int
    """Draws of estimated chains that the event E allows, for every arm."""
    coupling_slots: int
    quick_coupling_slots: int


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and the test that decides it."""

    id: str
    place: str
    text: str
    test: str
    options: Mapping[str, Any]
    items: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    """The protocols under which it is decided; none for claims about running times and the like."""


@dataclass(frozen=True)
class Design:
    """All that a reproduction runs."""

    protocols: tuple[Protocol, ...]
    items: tuple[Item, ...]
    table: TimeTable | None
    inside: Inside | None
    claims: tuple[Claim, ...]
    theory: Theory | None = None
    quick: bool = False
    long_horizon: int = 0
    names: tuple[str, ...] = field(default=())
    """All items that there are, wanted or not."""

    def protocol(self, name: str) -> Protocol:
        return next(protocol for protocol in self.protocols if protocol.name == name)

    def horizons(self, item: Item, protocol: Protocol, line: Line) -> tuple[int, ...]:
        """Return the horizons of a line in a figure."""
        if protocol.name != "fair":
            return protocol.horizons
        most = max(item.horizon, min(line.horizon, self.long_horizon) if self.long_horizon else line.horizon)
        return tuple(slots for slots in protocol.horizons if slots <= most)

    def cells(self, item: Item, protocol: Protocol, line: Line, seed: int) -> list[Cell]:
        """Return what must be played for a line: one cell, or one for each horizon."""
        problem = Problem.builtin(item.problem)
        spec = line.spec_for(problem)
        player, runs = learner(spec), item.runs_of(protocol)
        horizons = self.horizons(item, protocol, line)
        marks = [(slots,) for slots in horizons] if line.anew else [horizons]
        return [Cell(problem, player, player.spec, mark[-1], mark, seed, runs) for mark in marks]


def design(wanted: Sequence[str] = (), *, quick: bool = False) -> Design:
    """Return the whole design, or the part of it that the wanted items need."""
    whole = _read()
    unknown = [name for name in wanted if name not in whole.names]
    if unknown:
        raise ProblemError(f"there is no item {unknown[0]!r}; {did_you_mean(unknown[0], whole.names)}")
    chosen = set(wanted or whole.names)
    items = tuple(item for item in whole.items if item.name in chosen)
    table = whole.table if whole.table is not None and whole.table.name in chosen else None
    inside = whole.inside if whole.inside is not None and whole.inside.name in chosen else None
    theory = whole.theory if whole.theory is not None and whole.theory.name in chosen else None
    part = replace(whole, items=items, table=table, inside=inside, theory=theory)
    return _quick(part) if quick else part


def _quick(whole: Design) -> Design:
    few = _toml("paper.toml")["quick"]
    items = tuple(
        replace(
            item,
            runs=min(item.runs, few["runs"]),
            fair_runs=min(item.fair_runs, few["fair_runs"]),
            horizon=min(item.horizon, few["horizon"]),
        )
        for item in whole.items
    )
    table = whole.table
    if table is not None:
        table = replace(table, lines=tuple(replace(line, runs=(1,) * len(line.runs)) for line in table.lines))
    inside = None if whole.inside is None else replace(whole.inside, runs=whole.inside.quick_runs)
    theory = whole.theory
    if theory is not None:
        theory = replace(
            theory,
            problems=theory.quick_problems,
            event_runs=theory.quick_event_runs,
            exploration_runs=theory.quick_exploration_runs,
            coupling_slots=theory.quick_coupling_slots,
        )
    part = replace(whole, items=items, table=table, inside=inside, theory=theory)
    return replace(part, quick=True, long_horizon=int(few["long_horizon"]))


@cache
def _read() -> Design:
    paper = _toml("paper.toml")
    protocols = []
    for name, entry in paper["protocols"].items():
        lines = tuple(Line(**line) for line in entry.pop("lines"))
        protocols.append(Protocol(name=name, **_frozen(entry), lines=lines))
    items = tuple(Item(**entry) for entry in paper["items"])
    table_lines = tuple(TableLine(**_frozen(line)) for line in paper["table"].pop("lines"))
    table = TimeTable(**_frozen(paper["table"]), lines=table_lines)
    inside = Inside(**_frozen(paper["inside"]))
    theory = Theory(**_frozen(paper["theory"]))
    claims = []
    for entry in _toml("claims.toml")["claims"]:
        compared = entry.get("test") in REGRET_TESTS
        claims.append(
            Claim(
                **{key: entry.pop(key) for key in ("id", "place", "text", "test")},
                items=tuple(entry.pop("items", ())),
                protocols=tuple(entry.pop("protocols", [p.name for p in protocols] if compared else ())),
                options=entry,
            )
        )
    names = tuple([item.name for item in items] + [table.name, inside.name, theory.name])
    return Design(tuple(protocols), items, table, inside, tuple(claims), theory, names=names)


REGRET_TESTS = ("lower_regret", "lower_spread", "linear", "sublinear", "order", "exploration")
"""Tests that are made under a protocol."""


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _frozen(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
