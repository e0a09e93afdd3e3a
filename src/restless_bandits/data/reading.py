"""A log as columns of numbers, from a CSV file or from memory, or a sentence that says where it makes no sense.

The columns are ``time``, ``arm``, ``state`` or ``value``, and perhaps ``reward`` and ``probability``, with an entry for
every observation.
What the numbers mean is the concern of ``traces``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits.arrays import BoolArray
from restless_bandits.errors import ProblemError, did_you_mean
from restless_bandits.files import read_file

COLUMNS = ("time", "arm", "state", "value", "reward", "probability")
DELIMITERS = (",", ";", "\t")
CHUNK = 1 << 16
"""Lines that are turned into numbers at a time: a long file is never held as text cells."""
LAST_SLOT = 1 << 62
LONGEST_NUMBER = 100
"""Digits from which on the name of an arm is no number."""
REMEDIES = {
    "time": "give the slot as a whole number",
    "state": "give a whole number, 0 for the best state",
    "value": "give a number, or leave the line out",
    "reward": "give a number, or leave the line out",
    "probability": "give the chance with which the arm was chosen, or leave the column out",
}

Place = Callable[[int], str]
"""From the number of an observation to where it stands, as messages call it."""


@dataclass(frozen=True, eq=False)
class Columns:
    """What a log holds, an entry for every observation."""

    numbers: Mapping[str, npt.NDArray[Any]]
    """By column; arms as places in ``names``."""
    names: tuple[str, ...]
    place: Place
    source: str = ""
    """The name of the file."""

    def refuse(self, column: str, bad: BoolArray, why: str) -> None:
        """Raise with the first entry of a column that is bad, if one is."""
        if bad.any():
            row = int(np.argmax(bad))
            raise ProblemError(f"{self.place(row)}: {column} is {exact(self.numbers[column][row])}, which {why}")


def exact(number: float) -> str:
    """Return a number with all its digits, so that it can be given back: 5 for 5.0, 1.0000001 and not 1."""
    return str(number).removesuffix(".0")


def columns_of_file(path: Path) -> Columns:
    """Read the columns of a CSV file; errors name the file and the line."""
    text, source = _read_text(path), path.name

    def place(row: int) -> str:
        # Read again for it, as this is wanted only once something is wrong.
        line, _ = next(itertools.islice(_rows(text, source), row + 1, None))
        return f"{source}, line {line}"

    rows = _rows(text, source)
    header = [cell.strip().lower() for cell in next(rows, (0, [""]))[1]]
    if not any(header):
        raise ProblemError(f"{source} is empty; begin it with a line such as time,arm,state")
    if header[0].startswith(tuple("0123456789+-.")):
        raise ProblemError(f"{source} has no header; begin it with a line such as time,arm,state")
    if "" in header:
        raise ProblemError(
            f"{source}: column {header.index('') + 1} has no name in the header; leave the column out "
            "(pandas writes none with to_csv(…, index=False))"
        )
    _check_names(header, source)
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in header}
    labels: dict[str, int] = {}
    done = 0
    while chunk := [row for _, row in itertools.islice(rows, CHUNK)]:
        for i, row in enumerate(chunk):
            if len(row) != len(header):
                raise ProblemError(
                    f"{place(done + i)} has {len(row)} cells, the header has {len(header)}; "
                    "give every line as many as the header"
                )
        for name, cells in zip(header, zip(*chunk, strict=True), strict=True):
            parts[name].append(_parsed(name, cells, labels, place, done))
        done += len(chunk)
    if not done:
        raise ProblemError(f"{source} holds no observations, only a header; add a line for each")
    return _columns({name: np.concatenate(part) for name, part in parts.items()}, labels, place, source)


def columns_in_memory(given: Mapping[str, Any]) -> Columns:
    """Return columns that are given as arrays or lists, without those that are None."""
    # Names are kept as they are: NumPy would turn a missing one among strings into the word nan.
    cells = {
        name: np.atleast_1d(np.asarray(column, dtype=object if name == "arm" else None)).tolist()
        for name, column in given.items()
        if column is not None
    }
    lengths = {name: len(column) for name, column in cells.items()}
    if len(set(lengths.values())) > 1:
        raise ProblemError(f"columns have different lengths {lengths}; give an entry for every observation")
    if not cells["time"]:
        raise ProblemError("the trace holds no observations; give at least one")
    _check_names(list(cells), "the trace")
    cells["arm"] = ["" if _is_missing(cell) else str(cell) for cell in cells["arm"]]
    labels: dict[str, int] = {}
    place = "observation {}".format
    return _columns({name: _parsed(name, cells[name], labels, place, 0) for name in cells}, labels, place)


def _columns(numbers: dict[str, npt.NDArray[Any]], labels: dict[str, int], place: Place, source: str = "") -> Columns:
    """The columns with numbered arms in the order of their numbers, named ones as they came."""
    names = list(labels)
    if all(name.isdecimal() and len(name) < LONGEST_NUMBER for name in names):
        names.sort(key=lambda name: (int(name), name))
        places = {name: n for n, name in enumerate(names)}
        numbers["arm"] = np.array([places[label] for label in labels], dtype=np.int64)[numbers["arm"]]
    return Columns(numbers, tuple(names), place, source)


def _read_text(path: Path) -> str:
    content = read_file(path)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ProblemError(f"{path.name} is in UTF-16; save it as CSV in UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProblemError(
            f"{path.name}, line {line}: the byte {content[error.start]:#04x} is not UTF-8; save the file in UTF-8"
        ) from None


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV file that are not empty, with their numbers; the header is the first."""
    first = text.lstrip().split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise ProblemError(f"{name}, line {reader.line_num}: {error}; check the quotation marks there") from None


def _check_names(header: list[str], name: str) -> None:
    for column in header:
        if column not in COLUMNS:
            hint = did_you_mean(column, COLUMNS)
            remedy = hint if hint.startswith("did") else f"remove it, or rename it: {hint}"
            raise ProblemError(f"{name} has an unknown column {column!r}; {remedy}")
        if header.count(column) > 1:
            raise ProblemError(f"{name} has two columns {column!r}; keep one")
    for column in ("time", "arm"):
        if column not in header:
            raise ProblemError(f"{name} has no column {column!r}; it needs time, arm, and state or value")
    if ("state" in header) == ("value" in header):
        have = "both a state and a value column" if "state" in header else "neither a state nor a value column"
        raise ProblemError(f"{name} has {have}; give one of them")


def _is_missing(cell: Any) -> bool:
    """Whether a cell in memory is what an empty one in a file is: None, not a number, or what pandas puts there."""
    try:
        return cell is None or bool(cell != cell)
    except TypeError:
        # Whether pandas.NA differs from itself is itself NA, which is neither true nor false.
        return True


def _parsed(name: str, cells: Sequence[Any], labels: dict[str, int], place: Place, first: int) -> npt.NDArray[Any]:
    """A column of numbers, whole ones where they can be; or the first cell that is at fault. ``labels`` grows."""
    if name == "arm":
        # Numbered by the order in which they came.
        arms = np.array([labels.setdefault(cell.strip(), len(labels)) for cell in cells], dtype=np.int64)
        if "" in labels:
            row = first + int(np.argmax(arms == labels[""]))
            raise ProblemError(f"{place(row)}: arm is missing; name it or leave the line out")
        return arms
    if name in ("time", "state"):
        # Nanoseconds since 1970 are more than a double can hold.
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            return np.array(list(map(_uncut, cells)), dtype=np.int64)
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        numbers = np.array(list(map(float, cells)), dtype=np.float64)
        if name == "state" and not (np.isfinite(numbers) & (numbers == np.floor(numbers))).all():
            raise ValueError
        if np.isfinite(numbers).all() and (name not in ("time", "state") or np.abs(numbers).max() < LAST_SLOT):
            return numbers.astype(np.int64) if name == "state" else numbers
    row, fault = next((i, fault) for i, cell in enumerate(cells) if (fault := _fault(name, cell)))
    raise ProblemError(f"{place(first + row)}: {fault}")


def _uncut(cell: Any) -> int:
    """A whole number; floats from memory must not be cut."""
    if isinstance(cell, float) and not cell.is_integer():
        raise ValueError
    return int(cell)


def _fault(name: str, cell: Any) -> str:
    text = str(cell).strip()
    if not text:
        return f"{name} is missing; leave the whole line out, as gaps are allowed"
    try:
        number = float(text)
    except (ValueError, OverflowError):
        comma = name not in ("time", "state") and text.count(",") == 1
        remedy = "write decimals with a point" if comma else REMEDIES[name]
        return f"{name} is {text[:40]!r}, which is not a number; {remedy}"
    if not math.isfinite(number):
        return f"{name} is {text[:40]}; leave the line out, as gaps are allowed"
    if name == "state" and not number.is_integer():
        return f"state is {text[:40]}, which is not whole; {REMEDIES[name]}, or call the column value to bin it"
    if name in ("time", "state") and abs(number) >= LAST_SLOT:
        return f"{name} is {text[:40]}, which is too large; count from a later start"
    return ""
