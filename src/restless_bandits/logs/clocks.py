"""The clock of slots: the length of a slot, the start of the first slot, and the zone; and durations in words.

A log with time stamps has a clock. A log with numbers has a clock if a slot with a unit declares the numbers as
seconds; a log with numbered slots has none.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.cells import Stamps
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import BoolArray, IntArray, positive

UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
"""Seconds of each unit; ``m`` is short for ``min``."""
MICRO = 1_000_000
_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+|[0-9]+\.)\s*(ms|s|m|min|h|d|w)\s*")


@dataclass(frozen=True)
class Clock:
    """The clock of slots."""

    seconds: float
    """How long a slot lasts."""
    origin: np.datetime64 | None = None
    """The start of slot 0, in microseconds: in UTC for a log with a zone, else local time; None if only the length
    of a slot is known.
    """
    zone: str = ""
    """Empty for times without a zone, else ``UTC``, an offset such as ``+01:00``, or a name such as ``Europe/Oslo``."""

    def at(self, slots: IntArray | int) -> Stamps:
        """Return the starts of slots as local times of the zone."""
        if self.origin is None:
            raise ProblemError("the start of the first slot is unknown; log times such as 2024-05-01T12:00")
        steps = np.atleast_1d(np.asarray(slots, dtype=np.int64)) * round(self.seconds * MICRO)
        there = self.origin.astype("datetime64[us]") + steps.astype("timedelta64[us]")
        local: Stamps = there + _offsets(there, self.zone)
        return local

    def reached(self, slots: IntArray, moment: str | datetime, *, after: bool = False) -> BoolArray:
        """Return whether slots begin at a moment or later, or later with ``after``.

        A moment without an offset is a time of the log's zone. A time of day will do where all slots lie in one day.
        """
        compare = np.greater if after else np.greater_equal
        local = self.at(slots)
        found = moment if isinstance(moment, datetime) else _moment(moment, local)
        if found.tzinfo is None:
            return np.asarray(compare(local, np.datetime64(found)))
        if not self.zone:
            raise ProblemError(f"{moment} has an offset, and the times of the log have none; leave the offset out")
        utc = replace(self, zone="UTC").at(slots)
        return np.asarray(compare(utc, np.datetime64(found.astimezone(UTC).replace(tzinfo=None))))

    def show(self, slot: int) -> str:
        """Return when a slot began, for people: ``2013-01-01 05:00 UTC``."""
        text = str(self.at(slot)[0]).replace("T", " ").removesuffix(".000000")
        text = text.removesuffix(":00") if self.seconds % 60 == 0 else text
        return f"{text} {self.zone}".strip()


def _moment(text: str, local: Stamps) -> datetime:
    """Return the moment of a text, in the form of ISO 8601."""
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(text.strip())
    days = np.unique(local.astype("datetime64[D]"))
    try:
        of_day = time.fromisoformat(text.strip())
    except ValueError:
        raise ProblemError(f"{shortened(text)} is no time; give one such as 2024-05-01T12:00") from None
    if len(days) > 1:
        raise ProblemError(f"{text} is on several days of the log; give the day too, such as {days[0]}T{text.strip()}")
    return datetime.combine(days[0].item(), of_day)


def parse_duration(what: str, given: Any) -> tuple[float, float]:
    """Return a duration, and the seconds of its unit or 0 without a unit; a duration with a unit is in seconds.

    >>> parse_duration("slot", "15min"), parse_duration("slot", 60)
    ((900.0, 60.0), (60.0, 0.0))
    """
    if not isinstance(given, str):
        return positive(what, given), 0.0
    try:
        return positive(what, float(given)), 0.0
    except ProblemError:
        raise
    except ValueError:
        found = _DURATION.fullmatch(given)
    unit = UNIT_SECONDS["min" if found[2] == "m" else found[2]] if found else 0.0
    if found is None or not math.isfinite(length := float(found[1]) * unit):
        raise ProblemError(
            f"{what} is {shortened(given)}; give a number and a unit, ms, s, min, h, d or w, such as 15min, or a plain "
            "number"
        )
    return positive(what, length), unit


def spell(seconds: float) -> str:
    """Return a duration in the largest unit that divides the duration.

    >>> spell(5400.0), spell(86400.0), spell(0.25)
    ('90min', '1d', '250ms')
    """
    for unit, length in reversed(UNIT_SECONDS.items()):
        if seconds >= length and math.isclose(seconds / length, round(seconds / length), rel_tol=1e-9):
            return f"{round(seconds / length)}{unit}"
    return f"{seconds:g}s"


def _offsets(there: Stamps, zone: str) -> npt.NDArray[np.timedelta64]:
    """The difference of local time from UTC."""
    nothing = np.zeros(there.shape, dtype="timedelta64[us]")
    if zone in ("", "UTC"):
        return nothing
    if zone[0] in "+-":
        return nothing + np.timedelta64(datetime.fromisoformat(f"2000-01-01T00:00{zone}").utcoffset())
    from zoneinfo import ZoneInfo

    # All zones change their clocks at full quarters of an hour of UTC.
    quarters, places = np.unique(there.astype("datetime64[s]").astype(np.int64) // 900, return_inverse=True)
    try:
        place = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise ProblemError(f"there is no zone {zone!r} on this machine; give times in UTC, or install tzdata") from None
    ahead_of = [datetime.fromtimestamp(900 * int(q), place).utcoffset() or timedelta(0) for q in quarters]
    return np.array(ahead_of, dtype="timedelta64[us]")[places]
