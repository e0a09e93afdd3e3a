"""The time of an agent: slots that follow decisions, or the wall clock.

Times are whole microseconds since 1970, so that what is stored is what was meant.
"""

from __future__ import annotations

import re
import time

from restless_bandits.errors import ProblemError, shortened

BY_ASKING = "ask"
UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
LONGEST = 366 * UNITS["d"]


def now() -> int:
    """Return the time of the wall clock."""
    return time.time_ns() // 1000


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
