"""Columns of a log as numbers and times; an error names the first invalid cell.

Cells are texts in CSV, and values of other types in JSON, Parquet and data frames. A column of texts from Arrow is
converted by Arrow; if Arrow refuses a cell, Python converts the column or finds the fault. A missing state, value or
reward is NaN; a time, an arm or a probability must be present.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray

Stamps = npt.NDArray[np.datetime64]
"""Times in microseconds."""
LAST_SLOT = 1 << 62
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Words, in small letters, for a missing number."""
OPTIONAL = ("state", "value", "reward")
"""Columns with optional cells: a line with a missing cell is no observation."""
REMEDIES = {
    "state": "give a whole number, 0 for the best state",
    "value": "give a number, or leave the line out",
    "reward": "give a number, or leave the line out",
    "probability": "give the probability with which the arm was chosen, or leave the column out",
    "action": "give 1 for a pull and 0 for a rest, or rename the column if it has another meaning",
}

_OFFSET = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$", re.ASCII)
_FIRST_YEAR = np.datetime64("0001-01-01")

Place = Callable[[int], str]
"""From the number of an observation to its place, as named in messages."""
Cells = Any
"""A column: an array of numbers or times, texts of Arrow (``pyarrow.ChunkedArray``), ``Stamped``, or a list."""


class Stamped(NamedTuple):
    """Clock times: in UTC for times with zones, with the zones; without zones for others."""

    times: Stamps
    zones: frozenset[str] = frozenset()


def offset_name(offset: timedelta | None) -> str:
    """Return the zone of an offset from UTC."""
    return str(timezone(offset or timedelta(0))).removeprefix("UTC") or "UTC"


def zone_name(zone: tzinfo | str) -> str:
    """Return the name of a zone, or its offset for a zone without a name; UTC as a last resort."""
    if isinstance(zone, str):
        return "UTC" if zone in ("Z", "+00:00") else zone
    named = getattr(zone, "key", None) or getattr(zone, "zone", None)
    offset = zone.utcoffset(None)
    return str(named) if named else "UTC" if offset is None else offset_name(offset)


def arrow() -> Any:
    """Return pyarrow with its modules, or None if pyarrow is not installed."""
    try:
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError:
        return None
    return pyarrow


def length_of(cells: Cells) -> int:
    """Return the number of cells of a column."""
    return len(cells.times if isinstance(cells, Stamped) else cells)


def listed(cells: Cells) -> list[Any]:
    """Return a column as a list."""
    if isinstance(cells, Stamped):
        cells = cells.times
    convert = getattr(cells, "to_pylist", None) or getattr(cells, "tolist", None)
    return list(cells) if convert is None else list(convert())


def arms_of(cells: Cells, place: Place, word: str = "arm") -> tuple[IntArray, list[str]]:
    """Return arms (or kinds, by the word) by numbers, and the name of each number, in order of appearance."""
    if hasattr(cells, "dictionary_encode"):
        encoded = cells.combine_chunks().dictionary_encode()
        different, rows = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    else:
        cells = listed(cells)
        try:
            codes = {cell: code for code, cell in enumerate(dict.fromkeys(cells))}
        except TypeError:
            row, cell = next((i, cell) for i, cell in enumerate(cells) if isinstance(cell, list | dict))
            raise ProblemError(f"{place(row)}: {word} is {shortened(cell)}, which is no name; give one") from None
        different, rows = list(codes), np.fromiter(map(codes.__getitem__, cells), np.int64, len(cells))
    numbers: dict[str, int] = {}
    number_of = np.empty(len(different), dtype=np.int64)
    for code, cell in enumerate(different):
        name = "" if is_missing(cell) else arm_name(cell)
        if not name:
            at = place(int(np.argmax(rows == code)))
            raise ProblemError(f"{at}: {word} is missing; name it or leave the line out")
        number_of[code] = numbers.setdefault(name, len(numbers))
    return number_of[rows], list(numbers)


def arm_name(cell: Any) -> str:
    """Return the name of an arm; 3.0, as a frame with missing cells makes of 3, is 3."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty: None, NaN, a word for a missing number, or a missing value of pandas."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING_WORDS
    try:
        return cell is None or bool(cell != cell)
    except TypeError:
        # The comparison of pandas.NA with itself is NA, neither true nor false.
        return True


def numbers_of(name: str, cells: Cells, place: Place) -> npt.NDArray[Any]:
    """Return a column of numbers, as integers for states; NaN for missing optional numbers."""
    found = _numbers(name, cells)
    if found is None:
        cells = listed(cells)
        optional = name in OPTIONAL
        found = _numbers(name, [math.nan if optional and is_missing(cell) else cell for cell in cells])
    if found is None:
        row, fault = next((i, fault) for i, cell in enumerate(cells) if (fault := _fault(name, cell)))
        raise ProblemError(f"{place(row)}: {fault}")
    return found


def _numbers(name: str, cells: Cells) -> npt.NDArray[Any] | None:
    """Numbers, or None if the column does not allow some cell."""
    if name == "state" and (whole := _integers(cells)) is not None:
        return whole
    numbers = floats(cells)
    if numbers is None:
        return None
    there = numbers if name not in OPTIONAL else numbers[~np.isnan(numbers)]
    if not np.isfinite(there).all():
        return None
    if name == "state":
        if (there != np.floor(there)).any() or (np.abs(there) >= LAST_SLOT).any():
            return None
        return numbers if len(there) < len(numbers) else numbers.astype(np.int64)
    return numbers


def _integers(cells: Cells) -> IntArray | None:
    """Whole numbers with all their digits, as nanoseconds since 1970 are more than a double can hold; else None."""
    if hasattr(cells, "cast"):
        # Hexadecimal numbers are integers for Arrow, and no numbers for Python.
        return None if _cast(cells, "float64") is None else _cast(cells, "int64")
    if isinstance(cells, np.ndarray):
        return cells.astype(np.int64) if cells.dtype.kind in "bi" or cells.dtype in (np.uint8, np.uint16) else None
    kinds = set(map(type, cells))
    with contextlib.suppress(ValueError, OverflowError):
        if kinds <= {int, bool}:
            return np.array(cells, dtype=np.int64)
        if kinds == {str}:
            return np.fromiter(map(int, cells), np.int64, len(cells))
    return None


def floats(cells: Cells) -> npt.NDArray[np.float64] | None:
    """Return a column as numbers, None if a cell is no number."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    if hasattr(cells, "cast"):
        return _cast(cells, "float64")
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "mM":
        return None
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        return np.fromiter(map(float, cells), np.float64, len(cells))
    return None


def _cast(cells: Any, kind: Any) -> npt.NDArray[Any] | None:
    """Texts of Arrow as another type; None if a text is not of the type."""
    try:
        found: npt.NDArray[Any] = cells.cast(kind).to_numpy(zero_copy_only=False)
    except ValueError:
        return None
    return found


def times_of(cells: Cells, place: Place) -> npt.NDArray[Any] | Stamped:
    """Return times: numbers, as integers if possible, or clock times."""
    if isinstance(cells, Stamped):
        return cells
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        stamps = cells.astype("datetime64[us]")
        if np.isnat(stamps).any():
            raise ProblemError(f"{place(int(np.argmax(np.isnat(stamps))))}: {_fault('time', None)}")
        return Stamped(stamps)
    if (whole := _integers(cells)) is not None and (np.abs(whole) < LAST_SLOT).all():
        return whole
    numbers = floats(cells)
    if numbers is not None and np.isfinite(numbers).all() and (np.abs(numbers) < LAST_SLOT).all():
        return numbers
    if (stamps_of_arrow := uniform_stamps(cells)) is not None:
        return stamps_of_arrow
    cells = listed(cells)
    try:
        return parsed_stamps(cells)
    except (ValueError, TypeError, OverflowError):
        faults = ((i, _fault("time", cell, zoned=_is_zoned(cells[0]))) for i, cell in enumerate(cells))
        row, fault = next((i, fault) for i, fault in faults if fault)
        raise ProblemError(f"{place(row)}: {fault}") from None


def uniform_stamps(cells: Cells) -> Stamped | None:
    """Clock times by Arrow, at once; None without pyarrow, and for times that only Python accepts."""
    if (pyarrow := arrow()) is None:
        return None
    try:
        texts = cells if hasattr(cells, "cast") else pyarrow.array(cells, pyarrow.string())
    except (pyarrow.ArrowException, TypeError, ValueError):
        return None
    if texts.null_count:
        return None
    stamps, zones = _cast(texts, pyarrow.timestamp("us")), frozenset[str]()
    if stamps is None:
        stamps = _cast(texts, pyarrow.timestamp("us", "UTC"))
        ends = pyarrow.compute.utf8_slice_codeunits(texts, -6).unique().to_pylist()
        offsets = {found[0] if (found := _OFFSET.search(end)) else "" for end in ends}
        if stamps is None or "" in offsets:
            return None
        zones = frozenset(offset_name(_moment(f"2000-01-01T00:00{end}").utcoffset()) for end in offsets)
    return None if (stamps < _FIRST_YEAR).any() else Stamped(stamps, zones)


def parsed_stamps(cells: Sequence[Any]) -> Stamped:
    """Clock times; each different text is parsed once, because logs of several arms repeat them."""
    different = dict.fromkeys(cells)
    moments = list(map(_moment, different))
    zones: set[Any] = {moment.tzinfo for moment in moments}
    if zones == {None}:
        stamps, names = np.array(moments, dtype="datetime64[us]"), frozenset[str]()
    elif None in zones:
        raise ValueError("some times have a zone")
    else:
        offsets = [moment.utcoffset() or timedelta(0) for moment in moments]
        local = [moment.replace(tzinfo=None) for moment in moments]
        stamps = np.array(local, dtype="datetime64[us]") - np.array(offsets, dtype="timedelta64[us]")
        # A zone with a name has several offsets.
        names = frozenset(map(zone_name, zones) if len(zones) == 1 else map(offset_name, offsets))
    if len(different) == len(cells):
        return Stamped(stamps, names)
    places = dict(zip(different, range(len(stamps)), strict=True))
    return Stamped(stamps[np.fromiter(map(places.__getitem__, cells), np.int64, len(cells))], names)


def _moment(cell: Any) -> datetime:
    if isinstance(cell, str):
        return datetime.fromisoformat(cell.strip())
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime.combine(cell, time())
    raise TypeError(f"{cell!r} is no time")


def _is_zoned(cell: Any) -> bool | None:
    """Whether a clock time has a zone; None for other texts."""
    with contextlib.suppress(ValueError, TypeError):
        return _moment(cell).tzinfo is not None
    return None


def _fault(name: str, cell: Any, *, zoned: bool | None = None) -> str:
    """The error of a cell, if any; ``zoned`` says whether the first time has a zone, None for a number."""
    missing = is_missing(cell)
    if missing and name in OPTIONAL:
        return ""
    text = str(cell).strip()
    if missing and (text == "" or not isinstance(cell, str | float)):
        return f"{name} is missing; leave the whole line out, as gaps are allowed"
    if name == "time" and zoned is not None:
        return _stamp_fault(cell, zoned)
    if name == "time" and _is_zoned(cell) is not None:
        return f"time is {shortened(cell)}, a time of a clock, but the first one is a number; give all times alike"
    try:
        number = float(cell) if isinstance(cell, int | float | str) else float(text)
    except (ValueError, OverflowError):
        if name == "time":
            return (
                f"time is {text[:40]!r}, which is neither a number nor a time in ISO 8601; give the slot as a whole "
                "number, or a time such as 2024-05-01T12:00:00Z"
            )
        comma = name != "state" and text.count(",") == 1
        remedy = "write decimals with a point" if comma else REMEDIES[name]
        return f"{name} is {text[:40]!r}, which is not a number; {remedy}"
    if not math.isfinite(number):
        return f"{name} is {text[:40]}; leave the line out, as gaps are allowed"
    if name == "state" and not number.is_integer():
        return f"state is {text[:40]}, which is not whole; {REMEDIES[name]}, or call the column value to bin it"
    if name in ("time", "state") and abs(number) >= LAST_SLOT:
        return f"{name} is {text[:40]}, which is too large; count from a later start"
    return ""


def _stamp_fault(cell: Any, zoned: bool) -> str:
    """The error of a time in a log whose first time is a clock time."""
    here = _is_zoned(cell)
    if here is None:
        return f"time is {shortened(cell)}, which is no time in ISO 8601 as the first one is; give all times alike"
    if here == zoned:
        return ""
    why = "a zone, but those before it have none; give every time a zone, or none"
    if zoned:
        why = "no zone, but those before it have one; write it with Z or an offset such as +01:00"
    return f"time {shortened(str(cell))} has {why}"
