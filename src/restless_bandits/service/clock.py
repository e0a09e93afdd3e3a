"""The time of an agent: slots that follow decisions, or the wall clock.

Times are whole microseconds since 1970, so that what is stored is what was meant.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from restless_bandits.errors import ProblemError, shortened

LOG = logging.getLogger(__name__)
BY_ASKING = "ask"
UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
LONGEST = 366 * UNITS["d"]
LONGEST_JUMP = 10 * UNITS["m"]
"""Microseconds by which the wall clock may depart at once from the time that has passed since the start."""


def now() -> int:
    """Return the time of the wall clock."""
    return time.time_ns() // 1000


def steady() -> int:
    """Return the time since the machine was started, which nobody sets; it goes on while the machine is suspended."""
    source = getattr(time, "CLOCK_BOOTTIME", None)
    return (time.monotonic_ns() if source is None else time.clock_gettime_ns(source)) // 1000


class BoundedClock:
    """The time of the wall clock, of which jumps longer than ``LONGEST_JUMP`` are not followed.

    Slots never go backwards. A clock that is set a year ahead by mistake, and then back, would keep an agent in one
    slot for that year. After a longer jump, in either direction, time goes on as before it, until the wall clock is
    back within the bound or the service starts anew.
    """

    def __init__(self, wall: Callable[[], int] = now, steady: Callable[[], int] = steady) -> None:
        self._wall, self._steady = wall, steady
        self._offset = wall() - steady()
        self.jump = 0
        """Microseconds by which the wall clock is ahead, where that is not followed; 0 where it is."""

    def __call__(self) -> int:
        """Return the time in microseconds since 1970."""
        wall, expected = self._wall(), self._steady() + self._offset
        ahead = wall - expected
        if abs(ahead) <= LONGEST_JUMP:
            if self.jump:
                LOG.warning("the clock of this machine is followed again")
            self.jump, self._offset = 0, self._offset + ahead
            return wall
        if not self.jump:
            LOG.error(
                "the clock of this machine jumped by %.0f seconds, which is not followed; set it right, or start the "
                "service anew if it is right now",
                ahead / UNITS["s"],
            )
        self.jump = ahead
        return expected


def slot_length(clock: str) -> int | None:
    """Return the length of a slot, None where every decision begins one.

    >>> slot_length("1.5s"), slot_length("ask")
    (1500000, None)
    """
    if clock == BY_ASKING:
        return None
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([a-z]{1,2})", clock) if isinstance(clock, str) else None
    length = round(float(found[1]) * UNITS[found[2]]) if found and found[2] in UNITS else 0
    if not 1_000 <= length <= LONGEST:
        raise ProblemError(
            f"clock is {shortened(clock)}; give 'ask', or the length of a slot such as '1s', '250ms' or '5m', "
            "from 1ms to 366d"
        )
    return length


def slot_at(moment: int, made: int, length: int) -> int:
    """Return the slot of a moment; the first one begins when the agent was made."""
    return max(0, moment - made) // length + 1
