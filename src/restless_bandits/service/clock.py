"""Clock of an agent: slots advance with decisions or with the wall clock.

Times are integer microseconds since 1970, so that storage is exact.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from restless_bandits._internal.errors import ProblemError, shortened

LOG = logging.getLogger(__name__)
BY_ASKING = "ask"
UNIT_MICROSECONDS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
LONGEST_SLOT_LENGTH = 366 * UNIT_MICROSECONDS["d"]
LONGEST_JUMP = 10 * UNIT_MICROSECONDS["m"]
"""Largest accepted difference, in microseconds, between the wall clock and the time elapsed since the start."""


def now() -> int:
    """Return the time of the wall clock in microseconds since 1970."""
    return time.time_ns() // 1000


def steady() -> int:
    """Return the microseconds since the boot of the machine, suspension included; no user can set this clock."""
    source = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if source is None else time.clock_gettime_ns(source)) // 1000


class BoundedClock:
    """Wall clock without jumps longer than ``LONGEST_JUMP``.

    Slots never go backwards. A clock set a year ahead by mistake, and then back, would hold an agent in a single slot
    for a year. After a longer jump in either direction, time continues as before the jump. The wall clock is followed
    again when its difference is within the bound, or after a restart of the service.
    """

    def __init__(self, wall: Callable[[], int] = now, steady: Callable[[], int] = steady) -> None:
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()
        self.jump = 0
        """Microseconds of the ignored jump of the wall clock; 0 without a jump."""

    def __call__(self) -> int:
        """Return the time in microseconds since 1970."""
        wall, expected = self._wall(), self._steady() + self._offset
        ahead = wall - expected
        if abs(ahead) <= LONGEST_JUMP:
            if self.jump:
                LOG.warning("the service follows the clock of this machine again")
            self.jump, self._offset = 0, self._offset + ahead
            return wall
        if not self.jump:
            LOG.error(
                "the clock of this machine jumped by %.0f seconds, and the service ignores the jump; correct the "
                "clock, or restart the service if the clock is correct now",
                ahead / UNIT_MICROSECONDS["s"],
            )
        self.jump = ahead
        return expected


def slot_length(clock: str) -> int | None:
    """Return the length of a slot in microseconds, or None for slots that advance with decisions.

    >>> slot_length("1.5s"), slot_length("ask")
    (1500000, None)
    """
    if clock == BY_ASKING:
        return None
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([a-z]{1,2})", clock) if isinstance(clock, str) else None
    length = round(float(found[1]) * UNIT_MICROSECONDS[found[2]]) if found and found[2] in UNIT_MICROSECONDS else 0
    if not 1_000 <= length <= LONGEST_SLOT_LENGTH:
        raise ProblemError(
            f"clock is {shortened(clock)}; give 'ask', or the length of a slot such as '1s', '250ms' or '5m', "
            "from 1ms to 366d"
        )
    return length


def slot_at(moment: int, made: int, length: int) -> int:
    """Return the slot of a time in microseconds; the first slot begins with the creation of the agent."""
    return max(0, moment - made) // length + 1
