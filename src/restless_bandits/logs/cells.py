"""Cells of a log as numbers and times, a block of a column at a time; an error names the first invalid cell.

Cells are texts in CSV, and values of other types in JSON, Parquet and data frames. A missing state, value or reward is
NaN; a time, an arm or a probability must be present.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray
from restless_bandits.logs.clocks import MICRO, Stamps, offset_name, zone_name

LAST_SLOT = 1 << 62
DIGITS = 20
"""The digits of a time to the microsecond."""
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})
"""Words, in small letters, for a missing number."""
OPTIONAL = ("state", "value", "reward")
"""Columns with optional cells: a line with a missing cell is no observation."""
REMEDIES = {
    "state": "give a whole number, 0 for the best state",
    "value": "give a number, or leave the line out",
    "reward": "give a number, or leave the line out",
    "probability": "give the probability with which the arm was chosen, or leave the column out",
}

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_ZONE = re.compile(rb"Z|[+-]\d\d:?\d\d")

Place = Callable[[int], str]
"""From the number of an observation to its place, as named in messages."""
Cells = Sequence[Any] | npt.NDArray[Any]


class Stamped(NamedTuple):
    """Clock times: in UTC for times with zones, with the zones; without zones for others."""

    times: Stamps
    zones: frozenset[str] = frozenset()


class Labels:
    """Arms, numbered in order of appearance."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._known: dict[Any, int] = {}

    def of(self, cells: Cells, place: Place, first: int) -> IntArray:
        """Return the numbers of named arms, new arms included."""
        if isinstance(cells, np.ndarray):
            cells = cells.tolist()
        known = self._known
        try:
            different = dict.fromkeys(cells)
        except TypeError:
            row, cell = next((i, cell) for i, cell in enumerate(cells) if isinstance(cell, list | dict))
            raise ProblemError(f"{place(first + row)}: arm is {shortened(cell)}, which is no name; give one") from None
        for cell in different:
            if cell not in known:
                name = "" if is_missing(cell) else arm_name(cell)
                if not name:
                    row = first + next(i for i, other in enumerate(cells) if other is cell or other == cell)
                    raise ProblemError(f"{place(row)}: arm is missing; name it or leave the line out")
                known[cell] = self.numbers.setdefault(name, len(self.numbers))
        return np.fromiter(map(known.__getitem__, cells), np.int64, len(cells))


def arm_name(cell: Any) -> str:
    """Return the name of an arm; 3.0, as a frame with missing cells makes of 3, is 3."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty: None, NaN, a word for a missing number, or a missing value of pandas."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING
    try:
        return cell is None or bool(cell != cell)
    except TypeError:
        # The comparison of pandas.NA with itself is NA, neither true nor false.
        return True


def numbers_of(name: str, cells: Cells, place: Place, first: int) -> npt.NDArray[Any]:
    """Return a column of numbers, as integers for states; NaN for missing optional numbers."""
    found = _numbers(name, cells)
    if found is None and name in OPTIONAL:
        found = _numbers(name, [math.nan if is_missing(cell) else cell for cell in cells])
    if found is None:
        row, fault = next((i, fault) for i, cell in enumerate(cells) if (fault := _fault(name, cell)))
        raise ProblemError(f"{place(first + row)}: {fault}")
    return found


def _numbers(name: str, cells: Cells) -> npt.NDArray[Any] | None:
    """Numbers, or None if the column does not allow some cell."""
    if name == "state" and (whole := _whole(cells)) is not None:
        return whole
    numbers = _floats(cells)
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


def _whole(cells: Cells) -> IntArray | None:
    """Whole numbers with all their digits, as nanoseconds since 1970 are more than a double can hold; else None."""
    if isinstance(cells, np.ndarray):
        return cells.astype(np.int64) if cells.dtype.kind in "bi" or cells.dtype in (np.uint8, np.uint16) else None
    kinds = set(map(type, cells))
    with contextlib.suppress(ValueError, OverflowError):
        if kinds <= {int, bool}:
            return np.array(cells, dtype=np.int64)
        if kinds == {str}:
            return np.fromiter(map(int, cells), np.int64, len(cells))
    return None


def _floats(cells: Cells) -> npt.NDArray[np.float64] | None:
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "mM":
        return None
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        return np.fromiter(map(float, cells), np.float64, len(cells))
    return None


def times_of(cells: Cells, place: Place, first: int) -> npt.NDArray[Any] | Stamped:
    """Return times: numbers, as integers if possible, or clock times."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M":
        stamps = cells.astype("datetime64[us]")
        if np.isnat(stamps).any():
            raise ProblemError(f"{place(first + int(np.argmax(np.isnat(stamps))))}: {_fault('time', None)}")
        return Stamped(stamps)
    if (whole := _whole(cells)) is not None and (np.abs(whole) < LAST_SLOT).all():
        return whole
    numbers = _floats(cells)
    if numbers is not None and np.isfinite(numbers).all() and (np.abs(numbers) < LAST_SLOT).all():
        return numbers
    listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
    try:
        return uniform_stamps(listed) or parsed_stamps(listed)
    except (ValueError, TypeError, OverflowError):
        faults = ((i, _fault("time", cell, zoned=_is_zoned(listed[0]))) for i, cell in enumerate(listed))
        row, fault = next((i, fault) for i, fault in faults if fault)
        raise ProblemError(f"{place(first + row)}: {fault}") from None


def uniform_stamps(cells: Sequence[Any]) -> Stamped | None:
    """Clock times of equal format except for their digits, in a tenth of the time; else None."""
    written = _STAMP.fullmatch(cells[0]) if isinstance(cells[0], str) else None
    if written is None or set(map(type, cells)) != {str} or len(set(map(len, cells))) > 1:
        return None
    try:
        texts = np.array(cells, dtype=np.bytes_)
    except UnicodeEncodeError:
        return None
    letters, width = texts.view(np.uint8).reshape(len(cells), -1), written.end(1)
    digits = np.array([letter.isdigit() for letter in cells[0][:width]])
    head = letters[:, :width]
    if letters.shape[1] != len(cells[0]) or (head[:, ~digits] != head[0, ~digits]).any():
        return None
    stamps = _from_digits(head[:, digits].astype(np.int64) - ord("0"))
    if stamps is None:
        return None
    if written[2] is None:
        return Stamped(stamps)
    ends, places = np.unique(
        np.ascontiguousarray(letters[:, width:]).view(f"S{len(cells[0]) - width}")[:, 0], return_inverse=True
    )
    if not all(_ZONE.fullmatch(end) for end in ends.tolist()):
        return None
    ahead = [datetime.fromisoformat(f"2000-01-01T00:00{end.decode()}").utcoffset() for end in ends.tolist()]
    offsets = np.array(ahead, dtype="timedelta64[us]")
    return Stamped(stamps - offsets[places], frozenset(offset_name(offset or timedelta(0)) for offset in ahead))


def _from_digits(digits: IntArray) -> Stamps | None:
    """Times from their digits: four for the year, two for each further field, and fractions of a second; else None.

    NumPy reads texts too, but release 1.26.0 crashes on an invalid time.
    """

    def number(first: int, last: int) -> IntArray:
        return digits[:, first:last] @ 10 ** np.arange(last - first)[::-1]

    if (digits < 0).any() or (digits > 9).any():
        return None
    # Seconds and their fractions may be absent.
    digits = np.pad(digits, ((0, 0), (0, DIGITS - digits.shape[1])))
    year, (month, day, hour, minute, second) = number(0, 4), (number(k, k + 2) for k in range(4, 14, 2))
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]")
    length = ((months + 1).astype("datetime64[D]") - days).astype(np.int64)
    dated = (year > 0) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)
    if not (dated & (hour < 24) & (minute < 60) & (second < 60)).all():
        return None
    since = ((day - 1) * 86400 + hour * 3600 + minute * 60 + second) * MICRO + number(14, DIGITS)
    stamps: Stamps = days.astype("datetime64[us]") + since.astype("timedelta64[us]")
    return stamps


def parsed_stamps(cells: Sequence[Any]) -> Stamped:
    """Clock times; each different text is parsed once, because logs of several arms repeat them."""
    different = dict.fromkeys(cells)
    moments = list(map(_moment, different))
    zones = {moment.tzinfo for moment in moments}
    if zones == {None}:
        stamps, names = np.array(moments, dtype="datetime64[us]"), frozenset[str]()
    elif None in zones:
        raise ValueError("some times have a zone")
    else:
        ahead = [moment.utcoffset() or timedelta(0) for moment in moments]
        local = [moment.replace(tzinfo=None) for moment in moments]
        stamps = np.array(local, dtype="datetime64[us]") - np.array(ahead, dtype="timedelta64[us]")
        names = frozenset(_zone_names(zones, ahead))
    if len(different) == len(cells):
        return Stamped(stamps, names)
    places = dict(zip(different, range(len(stamps)), strict=True))
    return Stamped(stamps[np.fromiter(map(places.__getitem__, cells), np.int64, len(cells))], names)


def _zone_names(zones: set[Any], ahead: Sequence[timedelta]) -> set[str]:
    """The name of the only zone, if there is a single named zone; else offsets from UTC."""
    return {zone_name(zone) for zone in zones} if len(zones) == 1 else {offset_name(offset) for offset in set(ahead)}


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
    if here != zoned:
        return f"time {shortened(str(cell))} has {zone_fault(zoned)}"
    return ""


def zone_fault(zoned: bool) -> str:
    """Return the error of a time if earlier times have a zone, or have none."""
    if zoned:
        return "no zone, but those before it have one; write it with Z or an offset such as +01:00"
    return "a zone, but those before it have none; give every time a zone, or none"
