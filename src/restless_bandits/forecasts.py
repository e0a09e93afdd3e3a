"""How long something will take, guessed from a small part of it, and how that is said."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
Report = Callable[[str], object]
"""Takes a line for whoever waits."""

LONG = 10.0
"""Seconds from which on a command says beforehand how long it will take."""
SOON = 1.0
"""Seconds after which enough of something is done to tell how long all of it will take."""
SHARE = 50
"""One in so many parts is tried, and at least one of ``FEW`` or more."""
FEW = 10


def duration(seconds: float) -> str:
    """Return a length of time in words of two digits.

    >>> duration(0.0334), duration(42.4), duration(171), duration(86400)
    ('0.033 s', '42 s', '2.9 min', '24 h')
    """
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.2g} {unit}"
    return f"{seconds:.2g} s" if seconds < 100 else f"{seconds:.0f} s"


def warning(seconds: float, why: str = "") -> str | None:
    """Return the line that says how long something will take, if that is long."""
    if not LONG < seconds < math.inf:
        return None
    about = f"this will take about {duration(seconds)}"
    return f"{about}: {why}" if why else about


def from_part(n: int, work: Callable[[int], object]) -> float:
    """Return about how many seconds ``work(n)`` takes, from those of a small part; 0 where there are too few parts."""
    if n < FEW:
        return 0.0
    part = max(1, n // SHARE)
    seconds = 0.0
    # What looks long is tried twice: the first time has loaded what the work needs.
    for _ in range(2):
        started = time.process_time()
        work(part)
        seconds = (time.process_time() - started) * n / part
        if seconds <= LONG:
            break
    return seconds


def paced(
    parts: Sequence[T], what: str, report: Report | None, clock: Callable[[], float] | None = None
) -> Iterable[T]:
    """Hand on parts to be worked at one by one; report once, as soon as it shows, that all of them will take long."""
    return parts if report is None else _paced(parts, what, report, clock or time.monotonic)


def _paced(parts: Sequence[T], what: str, report: Report, clock: Callable[[], float]) -> Iterator[T]:
    started, told = clock(), False
    for done, part in enumerate(parts):
        passed = clock() - started
        if done and not told and passed > SOON and (line := warning(passed * len(parts) / done, what)):
            report(line)
            told = True
        yield part


class Pace:
    """How fast something of known length goes on, and when it will be through.

    Marks are (how far, seconds so far). Work that gets rarer, as plans do that last longer and longer, takes a time
    that grows like a power of the length; the power is read off the last half of what is done. It is taken
    for at most ``most_power``, as at first all is new and much is to be done.
    """

    def __init__(self, length: int, most_power: float = 1.0) -> None:
        self.length, self.most_power = length, most_power
        self._marks: list[tuple[int, float]] = []

    def mark(self, done: int, seconds: float) -> None:
        self._marks.append((done, seconds))

    @property
    def total(self) -> float:
        """Seconds for all of it; 0 where nothing is known."""
        marks = [mark for mark in self._marks if mark[0] > 0]
        if not marks:
            return 0.0
        done, seconds = marks[-1]
        left = self.length / done
        if left <= 1:
            return seconds
        before = [mark for mark in marks if 2 * mark[0] <= done and mark[1] > 0]
        if not before:
            # A single stretch says nothing of the next one: as if each were as long as all before it.
            return seconds * (1 + math.log2(left))
        earlier, passed = before[-1]
        power = math.log(seconds / passed) / math.log(done / earlier)
        return float(seconds * left ** min(max(power, 0.0), self.most_power))


class Watch:
    """Watches something of known length as it goes on, and reports once if all of it will take long.

    ``clock`` may stand still for what happens only once, such as compiling.
    """

    def __init__(self, length: int, report: Report, clock: Callable[[], float] | None = None) -> None:
        self._pace, self._report, self._clock = Pace(length), report, clock or time.monotonic
        self._started, self._next, self._told = self._clock(), SOON, False

    def at(self, done: int, what: str, times: Callable[[], int] = lambda: 1) -> None:
        """Take note of how far it is; it will be done so many times, as far as is known by now."""
        if self._told:
            return
        passed = self._clock() - self._started
        if passed > self._next or done & (done - 1) == 0:
            self._pace.mark(done, passed)
        if passed > self._next:
            self._next = 2 * passed
            if line := warning(times() * self._pace.total, what):
                self._report(line)
                self._told = True
