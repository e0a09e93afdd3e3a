"""The change detector of an arm: stores observations in segments, runs the test for a change, and removes old segments.

Observations arrive once final: in the order of slots, each arm separately. Segments of observations begin on a grid of
slots. At most ``SEGMENTS_KEPT`` segments have about the same size: an arm has some fifty segments after a million
slots. The last observations, whose slots may still get feedback, are passed to every test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, is_number
from restless_bandits.learning.change_detection import (
    CHANGE_GRID,
    LEAST_OBSERVATIONS,
    SEGMENTS_KEPT,
    ChangeTest,
    DetectedChange,
    SegmentedCounts,
)
from restless_bandits.learning.count_segments import CountSegment, Observed, observed
from restless_bandits.learning.observations import Observation
from restless_bandits.model.record import N_BINS, elapsed_bin
from restless_bandits.model.rewards import Range
from restless_bandits.model.tasks import Task

MEMORY_BLOCKS = 8
"""The number of blocks of equal length in a memory; the oldest block is forgotten in one step."""
TEST_INTERVAL_FRACTION = 256
"""The inverse of the share of new observations required before a repeated test. Detection of a change of a
well-known arm is delayed at most accordingly, and tests cost less and less.
"""
LEAST_MEMORY = MEMORY_BLOCKS * CHANGE_GRID


def stretch_of(memory: int) -> int:
    """Return the slots of each of the ``MEMORY_BLOCKS`` blocks of a memory, a multiple of the grid."""
    return memory // MEMORY_BLOCKS // CHANGE_GRID * CHANGE_GRID


class ArmChangeDetector:
    """The observations of an arm.

    Parameters
    ----------
    n_states, reward_range, fixed, reacts
        The arm; ``fixed`` says that its rewards are fixed, with immediate detection of a change, and ``reacts`` that a
        pull changes its step.
    stretch
        Slots after which a segment must end, because older slots may be forgotten there; 0 for none.

    """

    def __init__(
        self, n_states: int, reward_range: Range, *, fixed: bool, stretch: int = 0, reacts: bool = False
    ) -> None:
        self.n_states, self.reward_range, self.fixed, self.stretch = n_states, reward_range, fixed, stretch
        self.reacts = reacts
        self.begun = 1
        """The first slot of the test: earlier observations have served for an earlier alarm."""
        self._fresh = 0
        self._asked = 0
        self._mode: Array | None = None
        self._segments: list[CountSegment] = []
        self._counted = 0  # observations of all segments
        self._open: list[tuple[int, int, float]] = []  # slot, place, reward

    def enter(self, observation: Observation) -> None:
        """Enter a final observation."""
        if observation.slot < self.begun and not self.stretch:
            return
        if self._open:
            last = self._open[-1][0]
            full = len(self._open) >= LEAST_OBSERVATIONS and _cell(last) != _cell(observation.slot)
            if full or self._era(last) != self._era(observation.slot):
                self._close()
        place = (observation.last_state * N_BINS + elapsed_bin(observation.elapsed)) * self.n_states + observation.state
        self._open.append((observation.slot, place, observation.reward))

    def tell(self) -> None:
        """Count an observation, in any order."""
        self._fresh += 1

    def is_due(self, slot: int) -> bool:
        """Whether enough new observations have arrived, and the next time of change is reached."""
        enough = max(LEAST_OBSERVATIONS, (self._counted + len(self._open)) // TEST_INTERVAL_FRACTION)
        return self._fresh >= enough and _cell(slot) != self._asked

    def check(
        self,
        slot: int,
        before: tuple[int, int],
        observations: Sequence[tuple[int, int, float]],
        threshold: float,
        unseen: Sequence[int] = (),
    ) -> DetectedChange | None:
        """Test for a change of the arm, if due.

        Parameters
        ----------
        slot
            The slot that has just passed.
        before, observations
            The last final state and slot, and the observations (slot, state, reward) since then.
        threshold
            The least evidence for a change, from ``alarm_threshold``.
        unseen
            The slots since then with a pull of a reacting arm and no observation.

        """
        if not self.is_due(slot):
            return None
        self._fresh, self._asked = 0, _cell(slot)
        recent = _joined(self._opened(), observed(self.n_states, before, observations, unseen))
        seen = self._seen(recent.part(int(np.searchsorted(recent.slots, self.begun))))
        if len(seen.since) < 2:
            return None
        about: Any = {"reward_range": self.reward_range, "fixed": self.fixed, "reacts": self.reacts}
        test = ChangeTest(seen, self._mode, **about)
        change = test.run(threshold)
        self._mode = test.mode
        return change

    def restart(self, slot: int) -> None:
        """Restart the test with the observations from a slot on."""
        self.begun, self._fresh, self._mode = slot, 0, None
        if not self.stretch:
            self._segments, self._counted, self._open = [], 0, []

    def keep(self, since: int) -> CountSegment | None:
        """Drop the observations before a slot, and return all final observations since then.

        A segment that began earlier is dropped entirely.
        """
        self._segments = [segment for segment in self._segments if segment.since >= since]
        self._counted = sum(segment.observations for segment in self._segments)
        self._open = [entry for entry in self._open if entry[0] >= since]
        parts = [*self._segments, *([self._segment(self._opened())] if self._open else [])]
        return reduce(CountSegment.joined, parts) if parts else None

    def _era(self, slot: int) -> tuple[int, bool]:
        return (slot - 1) // self.stretch if self.stretch else 0, slot >= self.begun

    def _opened(self) -> Observed:
        if not self._open:
            return observed(self.n_states, (0, 0), ())
        slots, places, rewards = (np.array(column) for column in zip(*self._open, strict=True))
        return Observed(slots, places, rewards.astype(np.float64))

    def _segment(self, seen: Observed) -> CountSegment:
        return CountSegment.of(self._since(int(seen.slots[0])), seen, self.n_states)

    def _since(self, first: int) -> int:
        """The first slot of a segment with a given first observation: the next grid slot before the observation."""
        since = _cell(first) * CHANGE_GRID + 1
        return max(since, self.begun) if first >= self.begun else since

    def _close(self) -> None:
        """Add the open observations to the segments; with too many segments of a size, the two oldest are merged."""
        self._segments.append(self._segment(self._opened()))
        self._counted += len(self._open)
        self._open = []
        while True:
            kinds = [(*self._era(segment.since), _size(segment)) for segment in self._segments]
            crowded = next((kind for kind in reversed(kinds) if kinds.count(kind) > SEGMENTS_KEPT), None)
            if crowded is None:
                return
            oldest = kinds.index(crowded)
            # The next segment of the size follows at once, except after a pause with a smaller segment in between.
            self._segments[oldest : oldest + 2] = [self._segments[oldest].joined(self._segments[oldest + 1])]

    def _seen(self, recent: Observed) -> SegmentedCounts:
        """The segments available to the test, with the last observations in separate segments."""
        segments = [segment for segment in self._segments if segment.since >= self.begun]
        starts = _starts(recent.slots)
        lengths = np.diff([*starts, len(recent.slots)])
        own = len(segments) + np.repeat(np.arange(len(starts)), lengths)
        sums = np.zeros((len(segments) + len(starts), self.n_states))
        sums[: len(segments)] = [segment.sums for segment in segments] or np.empty((0, self.n_states))
        np.add.at(sums, (own, recent.places % self.n_states), recent.rewards)
        return SegmentedCounts(
            since=np.array(
                [*(segment.since for segment in segments), *(self._since(int(recent.slots[i])) for i in starts)]
            ),
            stretches=np.concatenate([np.repeat(np.arange(len(segments)), [len(one.places) for one in segments]), own]),
            places=np.concatenate([*(segment.places for segment in segments), recent.places]),
            counts=np.concatenate([*(segment.counts for segment in segments), np.ones(len(own), dtype=np.int64)]),
            sums=sums,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "begun": self.begun,
            "fresh": self._fresh,
            "asked": self._asked,
            "mode": None if self._mode is None else self._mode.tolist(),
            "tallies": [segment.to_list() for segment in self._segments],
            "open": [list(entry) for entry in self._open],
        }

    def restore(self, data: Any) -> None:
        """Restore the data that ``to_dict`` wrote; data inconsistent with the arm is refused."""
        n = self.n_states
        self.begun, self._fresh, self._asked = (check_int(key, data[key], 0) for key in ("begun", "fresh", "asked"))
        self._segments = [CountSegment.from_list(segment, n, reacts=self.reacts) for segment in data["tallies"]]
        self._counted = sum(segment.observations for segment in self._segments)
        for slot, place, reward in data["open"]:
            if not is_number(reward):
                raise ProblemError(f"the reward of an observation is {shortened(reward)}; it must be a number")
            most = (n + 1 + self.reacts) * N_BINS * n - 1
            self._open.append((check_int("a slot", slot), check_int("a place", place, 0, most), float(reward)))
        starts = [segment.first_slot for segment in self._segments] + [entry[0] for entry in self._open]
        if starts != sorted(set(starts)):
            raise ProblemError("segments of an arm are not in the order of their slots")
        if data["mode"] is not None:
            self._mode = np.array(data["mode"], dtype=np.float64)
            if self._mode.shape != (2 * (n - 1),) or not np.isfinite(self._mode).all():
                raise ProblemError(f"the mode of an arm is {shortened(data['mode'])}, which is none of {n} states")


def of_arm(task: Task, arm: int, stretch: int) -> ArmChangeDetector:
    """Return the lookout for an arm of a task."""
    about: Any = {"fixed": task.reward_laws[arm] == "fixed", "stretch": stretch, "reacts": task.tracks_pulls[arm]}
    return ArmChangeDetector(task.n_states[arm], task.reward_ranges[arm], **about)


def _cell(slot: int) -> int:
    return (slot - 1) // CHANGE_GRID


def _starts(slots: IntArray) -> list[int]:
    """The starts of the segments of the last observations: the newest has ``LEAST_OBSERVATIONS`` observations, older
    segments ever more.
    """
    starts: list[int] = []
    end = len(slots)
    for start in reversed(np.flatnonzero(np.diff((slots - 1) // CHANGE_GRID, prepend=-1)).tolist()):
        if end - start >= LEAST_OBSERVATIONS << len(starts) // SEGMENTS_KEPT or start == 0:
            starts.append(start)
            end = start
    return starts[::-1]


def _size(segment: CountSegment) -> int:
    return (segment.observations // LEAST_OBSERVATIONS).bit_length()


def _joined(one: Observed, other: Observed) -> Observed:
    return Observed(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))
