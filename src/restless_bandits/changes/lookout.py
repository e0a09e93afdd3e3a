"""The change detector of an arm: stores observations in segments, runs the test for a change, and removes old segments.

Observations arrive once final: in the order of slots, each arm separately. Segments of observations begin on a grid of
slots. At most ``KEEP`` segments have about the same size: an arm has some fifty segments after a million slots. The
last observations, whose slots may still get feedback, are passed to every test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from restless_bandits.arrays import Array, IntArray, is_number, whole
from restless_bandits.changes import GRID, KEEP, LEAST, Change, Question, Seen
from restless_bandits.errors import ProblemError, shortened
from restless_bandits.problem import Task
from restless_bandits.record import N_BINS, elapsed_bin
from restless_bandits.rewards import Range
from restless_bandits.tallies import Observed, Tally, observed
from restless_bandits.window import Sight

BLOCKS = 8
"""The number of blocks of equal length in a memory; the oldest block is forgotten in one step."""
PATIENCE = 256
"""The inverse of the share of new observations required before a repeated test. Detection of a change of a
well-known arm is delayed at most accordingly, and tests cost less and less.
"""
LEAST_MEMORY = BLOCKS * GRID


def stretch_of(memory: int) -> int:
    """Return the slots of each of the ``BLOCKS`` blocks of a memory, a multiple of the grid."""
    return memory // BLOCKS // GRID * GRID


class ArmLookout:
    """The observations of an arm.

    Parameters
    ----------
    n_states, reward_range, fixed
        The arm; ``fixed`` says that its rewards are fixed, with immediate detection of a change.
    stretch
        Slots after which a segment must end, because older slots may be forgotten there; 0 for none.

    """

    def __init__(self, n_states: int, reward_range: Range, *, fixed: bool, stretch: int = 0) -> None:
        self.n_states, self.reward_range, self.fixed, self.stretch = n_states, reward_range, fixed, stretch
        self.begun = 1
        """The first slot of the test: earlier observations have served for an earlier alarm."""
        self._fresh = 0
        self._asked = 0
        self._mode: Array | None = None
        self._tallies: list[Tally] = []
        self._tallied = 0  # observations of all tallies
        self._open: list[tuple[int, int, float]] = []  # slot, place, reward

    def enter(self, sight: Sight) -> None:
        """Enter a final observation."""
        if sight.slot < self.begun and not self.stretch:
            return
        if self._open:
            last = self._open[-1][0]
            full = len(self._open) >= LEAST and _cell(last) != _cell(sight.slot)
            if full or self._era(last) != self._era(sight.slot):
                self._close()
        place = (sight.last_state * N_BINS + elapsed_bin(sight.elapsed)) * self.n_states + sight.state
        self._open.append((sight.slot, place, sight.reward))

    def tell(self) -> None:
        """Count an observation, in any order."""
        self._fresh += 1

    def is_due(self, slot: int) -> bool:
        """Whether enough new observations have arrived, and the next time of change is reached."""
        enough = max(LEAST, (self._tallied + len(self._open)) // PATIENCE)
        return self._fresh >= enough and _cell(slot) != self._asked

    def look(
        self, slot: int, before: tuple[int, int], sights: Sequence[tuple[int, int, float]], threshold: float
    ) -> Change | None:
        """Test for a change of the arm, if due.

        Parameters
        ----------
        slot
            The slot that has just passed.
        before, sights
            The last final state and slot, and the observations (slot, state, reward) since then.
        threshold
            The least evidence for a change, from ``alarm_threshold``.

        """
        if not self.is_due(slot):
            return None
        self._fresh, self._asked = 0, _cell(slot)
        recent = _joined(self._opened(), observed(self.n_states, before, sights))
        seen = self._seen(recent.part(int(np.searchsorted(recent.slots, self.begun))))
        if len(seen.since) < 2:
            return None
        question = Question(seen, self._mode, reward_range=self.reward_range, fixed=self.fixed)
        change = question.answer(threshold)
        self._mode = question.mode
        return change

    def restart(self, slot: int) -> None:
        """Restart the test with the observations from a slot on."""
        self.begun, self._fresh, self._mode = slot, 0, None
        if not self.stretch:
            self._tallies, self._tallied, self._open = [], 0, []

    def keep(self, since: int) -> Tally | None:
        """Drop the observations before a slot, and return all final observations since then.

        A segment that began earlier is dropped entirely.
        """
        self._tallies = [tally for tally in self._tallies if tally.since >= since]
        self._tallied = sum(tally.observations for tally in self._tallies)
        self._open = [entry for entry in self._open if entry[0] >= since]
        parts = [*self._tallies, *([self._tally(self._opened())] if self._open else [])]
        return reduce(Tally.joined, parts) if parts else None

    def _era(self, slot: int) -> tuple[int, bool]:
        return (slot - 1) // self.stretch if self.stretch else 0, slot >= self.begun

    def _opened(self) -> Observed:
        if not self._open:
            return observed(self.n_states, (0, 0), ())
        slots, places, rewards = (np.array(column) for column in zip(*self._open, strict=True))
        return Observed(slots, places, rewards.astype(np.float64))

    def _tally(self, seen: Observed) -> Tally:
        return Tally.of(self._since(int(seen.slots[0])), seen, self.n_states)

    def _since(self, first: int) -> int:
        """The first slot of a segment with a given first observation: the next grid slot before the observation."""
        since = _cell(first) * GRID + 1
        return max(since, self.begun) if first >= self.begun else since

    def _close(self) -> None:
        """Add the open observations to the segments; with too many segments of a size, the two oldest are merged."""
        self._tallies.append(self._tally(self._opened()))
        self._tallied += len(self._open)
        self._open = []
        while True:
            kinds = [(*self._era(tally.since), _size(tally)) for tally in self._tallies]
            crowded = next((kind for kind in reversed(kinds) if kinds.count(kind) > KEEP), None)
            if crowded is None:
                return
            oldest = kinds.index(crowded)
            # The next segment of the size follows at once, except after a pause with a smaller segment in between.
            self._tallies[oldest : oldest + 2] = [self._tallies[oldest].joined(self._tallies[oldest + 1])]

    def _seen(self, recent: Observed) -> Seen:
        """The segments available to the test, with the last observations in separate segments."""
        tallies = [tally for tally in self._tallies if tally.since >= self.begun]
        starts = _starts(recent.slots)
        lengths = np.diff([*starts, len(recent.slots)])
        own = len(tallies) + np.repeat(np.arange(len(starts)), lengths)
        sums = np.zeros((len(tallies) + len(starts), self.n_states))
        sums[: len(tallies)] = [tally.sums for tally in tallies] or np.empty((0, self.n_states))
        np.add.at(sums, (own, recent.places % self.n_states), recent.rewards)
        return Seen(
            since=np.array([*(tally.since for tally in tallies), *(self._since(int(recent.slots[i])) for i in starts)]),
            stretches=np.concatenate([np.repeat(np.arange(len(tallies)), [len(one.places) for one in tallies]), own]),
            places=np.concatenate([*(tally.places for tally in tallies), recent.places]),
            counts=np.concatenate([*(tally.counts for tally in tallies), np.ones(len(own), dtype=np.int64)]),
            sums=sums,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "begun": self.begun,
            "fresh": self._fresh,
            "asked": self._asked,
            "mode": None if self._mode is None else self._mode.tolist(),
            "tallies": [tally.to_list() for tally in self._tallies],
            "open": [list(entry) for entry in self._open],
        }

    def restore(self, data: Any) -> None:
        """Restore the data that ``to_dict`` wrote; data inconsistent with the arm is refused."""
        n = self.n_states
        self.begun, self._fresh, self._asked = (whole(key, data[key], 0) for key in ("begun", "fresh", "asked"))
        self._tallies = [Tally.from_list(tally, n) for tally in data["tallies"]]
        self._tallied = sum(tally.observations for tally in self._tallies)
        for slot, place, reward in data["open"]:
            if not is_number(reward):
                raise ProblemError(f"the reward of an observation is {shortened(reward)}; it must be a number")
            most = (n + 1) * N_BINS * n - 1
            self._open.append((whole("a slot", slot), whole("a place", place, 0, most), float(reward)))
        starts = [tally.first_slot for tally in self._tallies] + [entry[0] for entry in self._open]
        if starts != sorted(set(starts)):
            raise ProblemError("tallies of an arm are not in the order of their slots")
        if data["mode"] is not None:
            self._mode = np.array(data["mode"], dtype=np.float64)
            if self._mode.shape != (2 * (n - 1),) or not np.isfinite(self._mode).all():
                raise ProblemError(f"the mode of an arm is {shortened(data['mode'])}, which is none of {n} states")


def of_arm(task: Task, arm: int, stretch: int) -> ArmLookout:
    """Return the lookout for an arm of a task."""
    fixed = task.reward_laws[arm] == "fixed"
    return ArmLookout(task.n_states[arm], task.reward_ranges[arm], fixed=fixed, stretch=stretch)


def _cell(slot: int) -> int:
    return (slot - 1) // GRID


def _starts(slots: IntArray) -> list[int]:
    """The starts of the segments of the last observations: the newest has ``LEAST`` observations, older segments
    ever more.
    """
    starts: list[int] = []
    end = len(slots)
    for start in reversed(np.flatnonzero(np.diff((slots - 1) // GRID, prepend=-1)).tolist()):
        if end - start >= LEAST << len(starts) // KEEP or start == 0:
            starts.append(start)
            end = start
    return starts[::-1]


def _size(tally: Tally) -> int:
    return (tally.observations // LEAST).bit_length()


def _joined(one: Observed, other: Observed) -> Observed:
    return Observed(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))
