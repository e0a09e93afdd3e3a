"""A cycle of slots cut into phases, such as the day into four parts, and the phase of a slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.logs.clocks import MICRO, Clock, parse_duration, spell
from restless_bandits.logs.traces import Trace

Mask = npt.NDArray[np.bool_]
Inside = Callable[[IntArray, IntArray], Mask]
"""A mask of the waits that count, from their first and last slots."""
DAY, WEEK = 86400.0, 604800.0
THURSDAY = 3 * DAY
"""Seconds from the Monday before the first of January 1970, a Thursday, to that day."""
MOST_PHASES = 48


@dataclass(frozen=True)
class Season:
    """A cycle cut into phases; the phase of a slot is the phase at its start."""

    length: float
    """Of the cycle, in slots."""
    starts: tuple[float, ...]
    """The starts of phases within the cycle, as shares, ascending; the last phase lasts until the first begins."""
    names: tuple[str, ...]
    """Names of the phases for sentences."""
    labels: tuple[str, ...]
    """Names of the phases for files."""
    clock: Clock | None = None
    """The clock of the cycle; None for a cycle counted from slot 0."""

    @property
    def phases(self) -> int:
        return len(self.starts)

    def visits_of(self, slots: IntArray) -> IntArray:
        """Return the number of phases begun so far, a different number for each visit of a phase."""
        # A thousandth of a slot more: the start of a phase may have no exact double.
        turns = (self._along(slots) + 1e-3) / self.length - self.starts[0]
        cycles = np.floor(turns)
        begun = np.searchsorted(np.array(self.starts) - self.starts[0], turns - cycles, side="right") - 1
        return np.asarray(cycles.astype(np.int64) * self.phases + begun)

    def phases_of(self, slots: IntArray) -> IntArray:
        return np.asarray(self.visits_of(slots) % self.phases)

    def inside(self, phase: int) -> Inside:
        """Whether waits lie within a phase: from a slot in the phase to a slot not later than its end."""

        def lies(starts: IntArray, ends: IntArray) -> Mask:
            stays = self.visits_of(starts)
            return np.asarray((stays % self.phases == phase) & (stays == self.visits_of(ends - 1)))

        return lies

    def _along(self, slots: IntArray) -> Array:
        """Slots since the beginning of some cycle: by the clock on the wall, weeks from Monday."""
        if self.clock is None or self.clock.origin is None:
            return np.asarray(slots, dtype=np.float64)
        return (wall_seconds(self.clock, slots) + THURSDAY) / self.clock.seconds

    def as_dict(self) -> dict[str, Any]:
        return {"slots": self.length, "starts": list(self.starts), "phases": list(self.labels)}


def wall_seconds(clock: Clock, slots: IntArray) -> Array:
    """Return local times of the starts of slots, in seconds since 1970."""
    return np.asarray(clock.at(slots).astype("datetime64[us]").astype(np.int64) / MICRO)


def season_of(trace: Trace, length: float | str, phases: int | Sequence[float] = 4) -> Season:
    """Return a season of a trace: ``24h`` for slots on a clock, or a number of slots.

    ``phases`` is their number, all of equal length, or their starts, in the unit of the length: hours for ``24h``.
    """
    given, unit = parse_duration("season", length)
    if unit and trace.clock is None:
        raise ProblemError(
            f"season is {length!r}, but it is not known how long a slot lasts; give a number of slots, such as 24, or "
            "the length of a slot (--slot 1h)"
        )
    clock = trace.clock if unit else None
    slots = given if clock is None else given / clock.seconds
    starts = _starts(phases, given / (unit or 1.0), length)
    span = int(trace.times[-1] - trace.times[0]) + 1
    if span < 2 * slots:
        raise ProblemError(f"season is {length}, and the log has {span} slots, less than two of it; give a shorter one")
    if slots < len(starts):
        raise ProblemError(f"season is {length}, which is {slots:g} slots for {len(starts)} phases; use fewer phases")
    return Season(slots, starts, *_names(starts, given, clock), clock)


def _starts(phases: int | Sequence[float], length: float, given: float | str) -> tuple[float, ...]:
    if isinstance(phases, int):
        return tuple((np.arange(check_int("phases", phases, 2, MOST_PHASES)) / phases).tolist())
    starts = np.array(list(phases), dtype=np.float64) if np.iterable(phases) else np.empty(0)
    ascending = len(starts) > 1 and (np.diff(starts) > 0).all() and starts[0] >= 0 and starts[-1] < length
    if not ascending or len(starts) > MOST_PHASES:
        raise ProblemError(
            f"phases is {shortened(phases)}; give their number, or where they begin within {given}, ascending, such as "
            "6,10,16,22"
        )
    return tuple((starts / length).tolist())


def _names(starts: Sequence[float], length: float, clock: Clock | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of phases for sentences, and for files: by the hour if the cycle is a day."""
    ends = [*starts[1:], starts[0]]
    if clock is not None and clock.origin is not None and length == DAY:
        hours = [(24 * first, 24 * last or 24.0) for first, last in zip(starts, ends, strict=True)]
        names = tuple(f"from {o_clock(first)} to {o_clock(last)}" for first, last in hours)
        return names, tuple(f"{o_clock(first)}-{o_clock(last)}".replace(":", "") for first, last in hours)
    what = spell(length) if clock is not None else f"{length:g} slots"
    numbers = range(1, len(starts) + 1)
    return tuple(f"in part {k} of {len(starts)} of {what}" for k in numbers), tuple(f"part{k}" for k in numbers)


def o_clock(hours: float) -> str:
    """Return an hour in the notation of clocks.

    >>> o_clock(6.5)
    '06:30'
    """
    return f"{int(hours):02d}:{round(60 * (hours % 1)):02d}"
