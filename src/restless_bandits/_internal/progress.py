"""Estimates of durations from a small part of the work, and their wording."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")
Report = Callable[[str], object]
"""A function for progress lines."""

LONG_SECONDS = 10.0
"""The least duration, in seconds, that a command announces."""
FIRST_ESTIMATE_SECONDS = 1.0
"""Seconds of work after which the total duration can be estimated."""
TRIAL_FRACTION = 50
"""The inverse share of parts in a trial run, with at least one part of ``FEWEST_PARTS`` or more."""
FEWEST_PARTS = 10


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
    """Return the line that announces a long duration; None for a short duration."""
    if not LONG_SECONDS < seconds < math.inf:
        return None
    about = f"this will take about {duration(seconds)}"
    return f"{about}: {why}" if why else about


def from_part(n: int, work: Callable[[int], object]) -> float:
    """Return about how many seconds ``work(n)`` takes, from those of a small part; 0 for too few parts."""
    if n < FEWEST_PARTS:
        return 0.0
    part = max(1, n // TRIAL_FRACTION)
    seconds = 0.0
    # A long trial is repeated: the first run includes the loading of modules.
    for _ in range(2):
        started = time.process_time()
        work(part)
        seconds = (time.process_time() - started) * n / part
        if seconds <= LONG_SECONDS:
            break
    return seconds


def paced(
    parts: Sequence[T], what: str, report: Report | None, clock: Callable[[], float] | None = None
) -> Iterable[T]:
    """Yield the parts of the work; report once, as soon as the estimate is known, if the total will take long."""
    return parts if report is None else _paced(parts, what, report, clock or time.monotonic)


def _paced(parts: Sequence[T], what: str, report: Report, clock: Callable[[], float]) -> Iterator[T]:
    started, told = clock(), False
    for done, part in enumerate(parts):
        passed = clock() - started
        if (
            done
            and not told
            and passed > FIRST_ESTIMATE_SECONDS
            and (line := warning(passed * len(parts) / done, what))
        ):
            report(line)
            told = True
        yield part


class Pace:
    """The speed of work of known length, and its expected end.

    Marks are (progress, elapsed seconds). Work of decreasing density, such as plans of increasing length, takes a time
    that grows like a power of the length. The power is fitted to the last half of the marks, and limited to
    ``most_power``, because the start has the most work.
    """

    def __init__(self, length: int, most_power: float = 1.0) -> None:
        self.length, self.most_power = length, most_power
        self._marks: list[tuple[int, float]] = []

    def mark(self, done: int, seconds: float) -> None:
        self._marks.append((done, seconds))

    @property
    def total(self) -> float:
        """Total seconds; 0 without information."""
        marks = [mark for mark in self._marks if mark[0] > 0]
        if not marks:
            return 0.0
        done, seconds = marks[-1]
        left = self.length / done
        if left <= 1:
            return seconds
        before = [mark for mark in marks if 2 * mark[0] <= done and mark[1] > 0]
        if not before:
            # A single interval does not predict the next interval: each is assumed as long as all intervals before.
            return seconds * (1 + math.log2(left))
        earlier, passed = before[-1]
        power = math.log(seconds / passed) / math.log(done / earlier)
        return float(seconds * left ** min(max(power, 0.0), self.most_power))


class ProgressWatch:
    """Watches work of known length, and reports once if the total will take long.

    ``clock`` may exclude work that happens only once, such as compilation.
    """

    def __init__(self, length: int, report: Report, clock: Callable[[], float] | None = None) -> None:
        self._pace, self._report, self._clock = Pace(length), report, clock or time.monotonic
        self._started, self._next, self._shown = self._clock(), FIRST_ESTIMATE_SECONDS, False

    def at(self, done: int, what: str, times: Callable[[], int] = lambda: 1) -> None:
        """Record the progress; ``times`` is the number of repetitions known so far."""
        if self._shown:
            return
        passed = self._clock() - self._started
        if passed > self._next or done & (done - 1) == 0:
            self._pace.mark(done, passed)
        if passed > self._next:
            self._next = 2 * passed
            if line := warning(times() * self._pace.total, what):
                self._report(line)
                self._shown = True
