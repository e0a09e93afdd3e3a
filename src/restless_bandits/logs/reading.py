"""A log as columns of numbers; an error names the first invalid entry.

The columns are ``time``, ``arm``, ``state`` or ``value``, and optionally ``reward``, ``probability``, ``action`` and,
with actions, ``kind``, with an entry for every observation. A log may use other names, or have a column for each arm
(*wide*) instead of a line for each observation (*long*); further columns are ignored. Lines without a state, value or
reward are no observations, and neither are empty cells of a wide log; with a column ``action`` such a line of a pull is
a pull without an observation. ``traces`` interprets the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.cells import OPTIONAL, Place, Stamped, arms_of, numbers_of, times_of
from restless_bandits._internal.errors import ProblemError, check_known, did_you_mean, shortened
from restless_bandits._internal.tables import Table, in_memory, table_in_memory, table_of
from restless_bandits._internal.validation import BoolArray

LOG_COLUMNS = ("time", "arm", "state", "value", "reward", "probability", "action", "kind")
MEASURED = ("state", "value")
ALL = "*"
"""In place of a column name: all columns without another role."""
LONGEST_NUMBER = 100
"""The number of digits from which on the name of an arm is not a number."""
MOST_NAMES = 20
"""The largest number of ignored columns that a note names."""

Named = Mapping[str, str | Sequence[str]]
"""A log's names of columns; several names, or ``*``, for one of ``MEASURED`` declare a wide log."""


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a log, an entry for every observation."""

    numbers: Mapping[str, npt.NDArray[Any]]
    """By column; arms as places in ``names``, times as numbers or in microseconds of a clock."""
    names: tuple[str, ...]
    place: Place
    source: str = ""
    """The name of the file."""
    kinds: tuple[str, ...] = ()
    """The names of the kinds, by the numbers of the column ``kind``."""
    zone: str = ""
    """The zone of clock times, which are then in UTC; empty without a zone."""
    notes: tuple[str, ...] = ()

    def refuse(self, column: str, bad: BoolArray, why: str) -> None:
        """Raise with the first invalid entry of a column, if any."""
        if bad.any():
            row = int(np.argmax(bad))
            raise ProblemError(f"{self.place(row)}: {column} is {exact(self.numbers[column][row])}, which {why}")


@dataclass(frozen=True)
class _Chosen:
    """The positions of the columns of a table."""

    single: dict[str, int]
    wide: tuple[str, list[int]] | None = None
    """For a wide log: whether the columns of arms hold states or values, and their positions."""


def exact(number: float) -> str:
    """Return a number with all its digits, for exact reading: 5 for 5.0, 1.0000001 and not 1."""
    return str(number).removesuffix(".0")


def columns_of(source: Any, named: Named | None = None, wide: bool = False) -> Columns:
    """Read the columns of a log; errors name the file and the line."""
    table = table_of(source)
    chosen = _chosen(table, *_checked_names(named, wide))
    used = [*chosen.single.values(), *(chosen.wide[1] if chosen.wide else [])]
    ignored = [name or f"number {i + 1}, without a name" for i, name in enumerate(table.names) if i not in used]
    return _columns(table, chosen, [_ignored(ignored, table.called)] if ignored else [])


def columns_in_memory(given: Mapping[str, Any]) -> Columns:
    """Return columns under their own names, without columns that are None."""
    table = table_in_memory({name: in_memory(column) for name, column in given.items() if column is not None})
    return _columns(table, _chosen(table, {}, None), [])


def _ignored(names: Sequence[str], source: str) -> str:
    shown = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    return f"ignored in {source}: column{'s' if len(names) > 1 else ''} {shown}"


def _checked_names(named: Named | None, wide: bool) -> tuple[dict[str, list[str]], str | None]:
    """A log's column names, each a list; and the role with a column for each arm, if any."""
    if named is not None and not isinstance(named, Mapping):
        raise ProblemError(f"columns is {shortened(named)}; give a mapping such as {{'time': 'time_hour'}}")
    found = {}
    for role, names in (named or {}).items():
        check_known(role, LOG_COLUMNS, "a log has no column")
        listed = [names] if isinstance(names, str) else list(names)
        if not listed or not all(isinstance(name, str) for name in listed):
            raise ProblemError(f"column {role} is {shortened(names)}; give the name that the log has for it")
        if (len(listed) > 1 or ALL in listed) and role not in MEASURED:
            raise ProblemError(f"column {role} is {', '.join(listed)}; give one name for it")
        found[role] = listed
    if wide and not any(role in found for role in MEASURED):
        found["value"] = [ALL]
    if "state" in found and "value" in found:
        raise ProblemError("columns are named for both state and value; name one of them")
    measured = [role for role in MEASURED if role in found and (wide or len(found[role]) > 1 or ALL in found[role])]
    if measured and "arm" in found:
        raise ProblemError("a wide log has arms in columns and no column arm; leave out either of the two")
    return found, measured[0] if measured else None


def _chosen(table: Table, named: Mapping[str, Sequence[str]], wide: str | None) -> _Chosen:
    single: dict[str, int] = {}
    for role in LOG_COLUMNS if wide is None else ("time",):
        if role in named:
            single[role] = _place(table, named[role][0], role)
        elif role not in MEASURED or not any(other in named for other in MEASURED):
            there = [i for i, name in enumerate(table.names) if name.lower() == role]
            if len(there) > 1:
                raise ProblemError(f"{table.called} has two columns {role!r}; keep one")
            if there and there[0] not in single.values():
                single[role] = there[0]
    if "kind" in single and "action" not in single:
        if "kind" in named:
            raise ProblemError(f"kinds are for logs with actions, and {table.called} has no column 'action'; name it")
        del single["kind"]
    for role in ("time",) if wide is not None else ("time", "arm"):
        if role not in single:
            needs = "it needs time, arm, and state or value" if wide is None else "it needs one beside those of arms"
            raise ProblemError(
                f"{table.called} has no column {role!r} among {_column_names(table)}; {needs}, {_remedy(role)}"
            )
    if wide is not None:
        return _Chosen(single, (wide, _arm_columns(table, named[wide], wide, single["time"])))
    if "state" in single and "value" in single:
        raise ProblemError(f"{table.called} has both a state and a value column; choose, as by --columns value=value")
    if "state" not in single and "value" not in single:
        have = f"{table.called} has neither a state nor a value column among {_column_names(table)}"
        raise ProblemError(f"{have}; {_remedy('value')}")
    return _Chosen(single)


def _column_names(table: Table) -> str:
    return ", ".join(name for name in table.names[:MOST_NAMES] if name) + ", …" * (len(table.names) > MOST_NAMES)


def _remedy(role: str) -> str:
    """The remedy for a missing column: its name in the log, or a statement that the log has none."""
    wide = "" if role == "time" else ", or --wide that each arm has a column"
    return f"--columns {role}=NAME says which it is{wide}"


def _place(table: Table, name: str, role: str) -> int:
    there = [i for i, other in enumerate(table.names) if other == name.strip()]
    there = there or [i for i, other in enumerate(table.names) if other.lower() == name.strip().lower()]
    if len(there) > 1:
        raise ProblemError(f"{table.called} has two columns {name!r}; keep one")
    if not there:
        hint = did_you_mean(name, [other for other in table.names if other])
        raise ProblemError(f"{table.called} has no column {name!r} for {role}; {hint}")
    return there[0]


def _arm_columns(table: Table, names: Sequence[str], role: str, time: int) -> list[int]:
    if ALL in names:
        found = [i for i, name in enumerate(table.names) if i != time and name]
    else:
        found = [_place(table, name, role) for name in names]
    labels = [table.names[i] for i in found]
    twice = next((name for name in labels if labels.count(name) > 1), None)
    if twice is not None:
        raise ProblemError(f"{table.called} has two columns {twice!r}; keep one")
    if not found or time in found:
        raise ProblemError(f"{table.called} has no columns for arms beside {table.names[time]!r}; name them")
    return found


def _columns(table: Table, chosen: _Chosen, notes: list[str]) -> Columns:
    """Read the chosen columns."""
    role, arms = chosen.wide or ("", [])
    cells = table.columns([*chosen.single.values(), *arms])
    single = dict(zip(chosen.single, cells, strict=False))
    times = times_of(single.pop("time"), table.place)
    zones: frozenset[str] = frozenset()
    if isinstance(times, Stamped):
        times, zones = times
    if not len(times):
        only = ", only a header; add a line for each" if table.source else "; give at least one"
        raise ProblemError(f"{table.called} holds no observations{only}")
    if len(zones) > 1:
        several = ", ".join(sorted(zones)[:4]) + (", …" if len(zones) > 4 else "")
        notes = [*notes, f"times have several offsets ({several}); slots and phases are counted in UTC"]
    zone = "UTC" if len(zones) > 1 else next(iter(zones), "")
    about = {"source": table.source, "zone": zone, "notes": tuple(notes)}
    if chosen.wide:
        by_name = {
            table.names[arm]: numbers_of(role, column, _at_column(table, arm))
            for arm, column in zip(arms, cells[1:], strict=True)
        }
        return _melted(times, role, [(name, by_name[name]) for name in _in_order(list(by_name))], table, about)
    numbers, names = arms_of(single.pop("arm"), table.place)
    of_kinds: dict[str, npt.NDArray[Any]] = {}
    if "kind" in single:
        of_kinds["kind"], kinds = arms_of(single.pop("kind"), table.place, "kind")
        about["kinds"] = tuple(kinds)
    others = {name: numbers_of(name, column, table.place) for name, column in single.items()}
    return _long({"time": times, "arm": numbers, **of_kinds, **others}, names, table, about)


def _at_column(table: Table, column: int) -> Place:
    return lambda row: f"{table.place(row)}, column {table.names[column]!r}"


def _long(numbers: dict[str, npt.NDArray[Any]], labels: Sequence[str], table: Table, about: dict[str, Any]) -> Columns:
    """The columns without lines that are no observations; arms with numbers are sorted by number."""
    missing = np.zeros(len(numbers["time"]), dtype=bool)
    for name in OPTIONAL:
        if name in numbers and numbers[name].dtype.kind == "f":
            missing |= np.isnan(numbers[name])
    place = table.place
    if "action" in numbers:
        wrong = (numbers["action"] != 0) & (numbers["action"] != 1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ProblemError(
                f"{table.place(row)}: action is {exact(numbers['action'][row])}; give 1 for a pull and 0 for a rest, "
                "or rename the column if it has another meaning"
            )
        numbers["action"] = numbers["action"].astype(np.int64)
        numbers["unseen"] = missing & (numbers["action"] == 1)
        missing &= ~numbers["unseen"]
        if "state" in numbers:
            numbers["state"] = np.where(np.isnan(numbers["state"]), 0, numbers["state"])
    if missing.any():
        rows = np.flatnonzero(~missing)
        what = " or ".join(name for name in OPTIONAL if name in numbers)
        first, count = table.place(int(np.argmax(missing))), int(missing.sum())
        if not rows.size:
            raise ProblemError(f"{table.called} holds no observations: no line has a {what}; name another column")
        note = f"left out: {count} line{'s' if count > 1 else ''} without a {what}, the first at {first}"
        about = about | {"notes": (*about["notes"], note)}
        numbers = {name: column[rows] for name, column in numbers.items()}
        place = _of_rows(table.place, rows)
    if "state" in numbers:
        numbers["state"] = numbers["state"].astype(np.int64, copy=False)
    seen = np.unique(numbers["arm"]).tolist()
    names = _in_order([labels[number] for number in seen])
    number_of = {name: number for number, name in enumerate(names)}
    places = np.zeros(len(labels), dtype=np.int64)
    places[seen] = [number_of[labels[number]] for number in seen]
    numbers["arm"] = places[numbers["arm"]]
    return Columns(numbers, tuple(names), place, **about)


def _in_order(names: list[str]) -> list[str]:
    """Arms with numbers as names in numeric order, other arms in order of appearance."""
    numbered = all(name.isdecimal() and len(name) < LONGEST_NUMBER for name in names)
    return sorted(names, key=lambda name: (int(name), name)) if numbered else names


def _of_rows(place: Place, rows: npt.NDArray[Any]) -> Place:
    return lambda row: place(int(rows[row]))


def _melted(
    times: npt.NDArray[Any],
    measured: str,
    columns: Sequence[tuple[str, npt.NDArray[Any]]],
    table: Table,
    about: dict[str, Any],
) -> Columns:
    """The observations of a wide log, line by line; empty cells are none."""
    cells = np.stack([column.astype(np.float64) for _, column in columns], axis=1)
    rows, arms = np.nonzero(~np.isnan(cells))
    if not rows.size:
        raise ProblemError(f"{table.called} holds no observations: every cell is empty; name other columns")
    seen = np.unique(arms)
    empty = [name for i, (name, _) in enumerate(columns) if i not in seen]
    if empty:
        about = about | {
            "notes": (*about["notes"], f"left out: arms without any cell, {', '.join(empty[:MOST_NAMES])}")
        }
    names = tuple(columns[i][0] for i in seen.tolist())
    found = cells[rows, arms]
    numbers = {"time": times[rows], "arm": np.searchsorted(seen, arms)}
    numbers[measured] = found.astype(np.int64) if measured == "state" else found

    def place(row: int) -> str:
        return f"{table.place(int(rows[row]))}, column {columns[int(arms[row])][0]!r}"

    return Columns(numbers, names, place, **about)
