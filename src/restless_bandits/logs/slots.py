"""Slots from times, with a single observation of an arm in each slot.

Times that number slots are unchanged. Other times are counted in slots of a given or guessed length. For an arm with a
single line a slot, such as a probe by an imprecise timer, times are rounded to the nearest slot, counted from the first
time. If several lines of a slot are merged, slots are bins, such as full hours: each holds the times from its beginning
up to the next beginning. For times with a zone, bins begin with the local hour, day or week.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.cells import LAST_SLOT
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.logs.clocks import MICRO, UNIT_SECONDS, Clock, parse_duration, spell
from restless_bandits.logs.reading import Columns, exact

PROBABLE = "with probabilities a slot holds one choice; make slots shorter (--slot)"
ONE_ACTION = "an arm is pulled or rests in a slot; say --duplicates last, or make slots shorter (--slot)"
DUPLICATES = ("refuse", "mean", "last")
USUAL = [n * UNIT_SECONDS[unit] for unit, numbers in (
    ("s", (1, 2, 5, 10, 15, 20, 30)), ("min", (1, 2, 5, 10, 15, 20, 30)), ("h", (1, 2, 3, 4, 6, 8, 12)), ("d", (1,)),
    ("w", (1,)),
) for n in numbers]  # fmt: skip
"""Usual slot lengths in seconds."""
NEAR_LENGTH = 0.1
"""The largest relative difference of a wait from a usual wait for the two to be identified."""
SHARE = 0.1
"""The share of waits that may be shorter than a guessed slot."""
SURE_SHARE = 0.3
"""The share of equal waits from which on no length is rounded."""
LEAST_STEPS = 10
"""The least number of steps whose common divisor is meaningful."""
UNIX = 1e8
"""Numbers from this size on are taken for seconds since 1970."""
DAY = 86400 * MICRO
WEEK = 7 * DAY
MONDAY = 4 * DAY
"""Microseconds from the beginning of 1970 to its first Monday."""


def slots_of(columns: Columns, slot: float | str | None, bins: bool) -> tuple[IntArray, Clock | None, list[str]]:
    """Return the slot of each observation, the clock of the slots, and remarks for readers."""
    times = columns.numbers["time"]
    if times.dtype.kind == "M":
        return _slots_of_stamps(columns, slot, bins)
    columns.refuse("time", times < 0, "is negative; count slots from 0 or later")
    notes: list[str] = []
    unit = 0.0
    if slot is None:
        if (times == np.floor(times)).all():
            return np.asarray(times, dtype=np.int64), None, _hint(times)
        length = _guess(columns, times.astype(np.float64))
        notes.append(_guessed(exact(length)))
    else:
        length, unit = parse_duration("slot", slot)
        notes += ["times are numbers, and taken for seconds, as the slot has a unit"] * bool(unit)
    start = times.min()
    with np.errstate(over="ignore", invalid="ignore"):
        origin = np.floor(start / length) * length if bins else start
        since = np.floor((times - origin) / length + (1e-9 if bins else 0.5))
    if not (np.abs(since) < LAST_SLOT).all():
        given, count = length if slot is None else slot, float(np.ptp(times)) / length
        raise ProblemError(f"slot is {given}, which makes {count:.3g} slots; give a longer one (--slot)")
    clock = None
    if unit:
        known = start >= UNIX
        began = np.datetime64(round(float(origin) * MICRO), "us") if known and start < LAST_SLOT / MICRO else None
        clock = Clock(length, began, "UTC" if began is not None else "")
    return since.astype(np.int64), clock, notes


def _slots_of_stamps(columns: Columns, slot: float | str | None, bins: bool) -> tuple[IntArray, Clock, list[str]]:
    zone, micros = columns.zone, columns.numbers["time"].astype(np.int64)
    local = micros if zone in ("", "UTC") else _local(micros, zone)
    notes = []
    if slot is None:
        seconds = _guess(columns, local / MICRO, usual=True)
        notes.append(_guessed(spell(seconds)))
    else:
        seconds, _ = parse_duration("slot", slot)
    length = round(seconds * MICRO)
    if length < 1 or length > LAST_SLOT:
        raise ProblemError(f"slot is {slot}, too short or too long for times of a clock; give one of at least 1e-6 s")
    if length % DAY == 0 and local is not micros:
        # Days are calendar days; in many places two days a year last 23 and 25 hours.
        zone, micros = "", local
    first = int(micros.min())
    origin = first
    if bins:
        ahead = 0 if micros is local else int(local[micros.argmin()]) - first
        origin = _bin_begins(first + ahead, length) - ahead
    since = (micros - origin) // length if bins else (2 * (micros - origin) + length) // (2 * length)
    return since, Clock(seconds, np.datetime64(origin, "us"), zone), notes


def _local(micros: IntArray, zone: str) -> IntArray:
    """Times as local times of a zone."""
    epoch = Clock(1 / MICRO, np.datetime64(0, "us"), zone)
    return epoch.at(micros).astype(np.int64)


def _bin_begins(first: int, length: int) -> int:
    """The beginning of the first time's bin: bins are counted from its midnight, bins of weeks from its Monday."""
    start = MONDAY + (first - MONDAY) // WEEK * WEEK if length % WEEK == 0 else first // DAY * DAY
    return start + (first - start) // length * length


def _hint(times: npt.NDArray[Any]) -> list[str]:
    """A hint for logs whose slot numbers have a common gap."""
    steps = np.diff(np.unique(times)).astype(np.int64)
    gap = int(np.gcd.reduce(steps)) if len(steps) >= LEAST_STEPS else 0
    if gap < 2:
        return []
    return [
        f"times number the slots, and all of them are multiples of {gap} apart; --slot {gap} if a slot is that long"
    ]


def _guessed(length: str) -> str:
    return f"guessed slot length: {length} (the usual gap between lines of one arm); override with --slot"


def _guess(columns: Columns, times: Array, *, usual: bool = False) -> float:
    """The length of a slot: the wait between lines of an arm with few shorter waits, or a usual wait nearby."""
    arms = columns.numbers["arm"]
    order = np.lexsort((times, arms))
    waits = np.diff(times[order])
    waits = waits[(np.diff(arms[order]) == 0) & (waits > 0)]
    if not waits.size:
        raise ProblemError("no arm has lines at two times, so the length of a slot is unknown; give it (--slot)")
    found = float(np.quantile(waits, SHARE, method="lower"))
    if np.isclose(waits, found, rtol=1e-6).mean() >= SURE_SHARE:
        return float(np.round(found, 6)) or found
    near = [length for length in USUAL if abs(found / length - 1) <= NEAR_LENGTH] if usual else []
    return min(near, key=lambda length: abs(found / length - 1)) if near else float(f"{found:.3g}")


def one_look_a_slot(columns: Columns, slots: IntArray, duplicates: str, sized: bool) -> tuple[Columns, IntArray]:
    """Return the observations sorted by slot and arm, with several observations of an arm in a slot merged as
    requested.

    ``sized`` says that slots have a length, which might be shorter.
    """
    if duplicates not in DUPLICATES:
        raise ProblemError(f"duplicates is {duplicates!r}; choose from {', '.join(DUPLICATES)}")
    arms = columns.numbers["arm"]
    keys: tuple[npt.NDArray[Any], ...] = (arms, slots)
    if duplicates == "last":
        keys = (columns.numbers["time"], *keys)
    order = np.lexsort(keys)
    same = (np.diff(slots[order]) == 0) & (np.diff(arms[order]) == 0)
    if same.any():
        if duplicates == "refuse":
            columns = _without_repeats(columns, slots, order, same, sized)
        if duplicates == "mean":
            return _means(columns, slots)
        order = order[np.append(~same, True)]
    return _taken(columns, order), slots[order]


def _without_repeats(columns: Columns, slots: IntArray, order: IntArray, same: BoolArray, sized: bool) -> Columns:
    """Return the columns with a note on identical lines; other lines of an arm in one slot are refused."""
    identical = same.copy()
    for column in columns.numbers.values():
        before, after = column[order[:-1]], column[order[1:]]
        identical &= (before == after) | ((before != before) & (after != after))  # NaN is equal to NaN here.
    if (same & ~identical).any():
        _refuse_duplicates(columns, slots, order, np.flatnonzero(same & ~identical), sized)
    count, first = int(identical.sum()), columns.place(int(order[1:][identical].min()))
    lines = "lines, each a repetition of another line" if count > 1 else "line, a repetition of another line"
    return replace(columns, notes=(*columns.notes, f"left out: {count} {lines}, the first at {first}"))


def _taken(columns: Columns, rows: IntArray) -> Columns:
    place = columns.place
    numbers = {name: column[rows] for name, column in columns.numbers.items()}
    return replace(columns, numbers=numbers, place=lambda row: place(int(rows[row])))


def _means(columns: Columns, slots: IntArray) -> tuple[Columns, IntArray]:
    """The mean value and reward of each arm in each slot."""
    for name, why in (
        ("state", "states have no mean; say --duplicates last"),
        ("probability", PROBABLE),
        ("action", ONE_ACTION),
    ):
        if name in columns.numbers:
            raise ProblemError(f"several lines of an arm lie in one slot, and {why}")
    arms = columns.numbers["arm"]
    averaged = [name for name in ("value", "reward") if name in columns.numbers]
    # Sorted by value too: sums do not depend on the order of lines.
    order = np.lexsort((*(columns.numbers[name] for name in averaged), arms, slots))
    first = np.append(True, (np.diff(slots[order]) != 0) | (np.diff(arms[order]) != 0))
    starts = np.flatnonzero(first)
    counts = np.diff(np.append(starts, len(order)))
    sums = {name: np.add.reduceat(columns.numbers[name][order], starts) / counts for name in averaged}
    taken = _taken(columns, order[starts])
    # A mean of equal numbers is the common number, whatever the rounding of their sum.
    for name in averaged:
        low = np.minimum.reduceat(columns.numbers[name][order], starts)
        high = np.maximum.reduceat(columns.numbers[name][order], starts)
        sums[name] = np.clip(sums[name], low, high)
    return replace(taken, numbers={**taken.numbers, **sums}), slots[order[starts]]


def _refuse_duplicates(columns: Columns, slots: IntArray, order: IntArray, bad: IntArray, sized: bool) -> None:
    worst = bad[np.argmin(order[bad + 1])]
    row, before = int(order[worst + 1]), int(order[worst])
    name = columns.names[int(columns.numbers["arm"][row])]
    here, there = columns.place(row), columns.place(before).removeprefix(f"{columns.source}, ")
    remedies = ["keep one of the two"]
    if sized:
        remedies.append("make slots shorter (--slot)")
    if columns.numbers["time"].dtype.kind == "M" and not columns.zone:
        remedies.append("log UTC if clocks were set back")
    told = ", ".join(remedies)
    raise ProblemError(
        f"{here}: arm {name!r} was logged in slot {int(slots[row])} before, at {there}; {told}, or say what to do with "
        "several: --duplicates mean or last"
    )
