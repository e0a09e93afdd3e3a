"""Keeps what was seen of every arm in tallies, asks whether an arm has changed, and says what to keep of it.

Sights come here once they are settled: in the order of slots, each arm on its own. They are gathered in tallies that
begin on a grid of slots. Of tallies of about the same size there are at most ``KEEP``, so an arm has some fifty of
them after a million slots. The last sights, whose slots may still get answers, are handed over whenever a question is
asked.
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
"""Stretches of equal length in which a memory is kept; the oldest is forgotten as a whole."""
PATIENCE = 256
"""The share of what was seen that must be new before the question is asked again: a change of an arm that is known well
is found at most that much later, and asking costs less and less.
"""
LEAST_MEMORY = BLOCKS * GRID


def stretch_of(memory: int) -> int:
    """Return the slots of one of the ``BLOCKS`` stretches of a memory, a multiple of the grid."""
    return memory // BLOCKS // GRID * GRID


class ArmLookout:
    """What was seen of one arm.

    Parameters
    ----------
    n_states, reward_range, fixed
        The arm: whether its rewards are of a fixed law, of which a change shows at once.
    stretch
        Slots after which a tally must end, as what is older may be forgotten there; 0 for none.

    """

    def __init__(self, n_states: int, reward_range: Range, *, fixed: bool, stretch: int = 0) -> None:
        self.n_states, self.reward_range, self.fixed, self.stretch = n_states, reward_range, fixed, stretch
        self.begun = 1
        """The first slot that the test counts: what was seen before has served for an earlier alarm."""
        self._fresh = 0
        self._asked = 0
        self._mode: Array | None = None
        self._tallies: list[Tally] = []
        self._tallied = 0  # observations of all tallies
        self._open: list[tuple[int, int, float]] = []  # slot, place, reward

    def enter(self, sight: Sight) -> None:
        """Take a sight that is settled."""
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
        """Take note that something was told, in whatever order."""
        self._fresh += 1

    def is_due(self, slot: int) -> bool:
        """Whether enough was told since the last time, and the next time of change has come."""
        enough = max(LEAST, (self._tallied + len(self._open)) // PATIENCE)
        return self._fresh >= enough and _cell(slot) != self._asked

    def look(
        self, slot: int, before: tuple[int, int], sights: Sequence[tuple[int, int, float]], threshold: float
    ) -> Change | None:
        """Ask whether the arm has changed, if it is time to.

        Parameters
        ----------
        slot
            The slot that has just passed.
        before, sights
            The last state and slot that are settled, and the sights (slot, state, reward) since then.
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
        """Let the test begin anew, with what is seen from a slot on."""
        self.begun, self._fresh, self._mode = slot, 0, None
        if not self.stretch:
            self._tallies, self._tallied, self._open = [], 0, []

    def keep(self, since: int) -> Tally | None:
        """Drop what was seen before a slot, and return all that is settled since then.

        A tally that began before it is dropped as a whole.
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
        """The slot for which what begins with a first sight stands: the next one of the grid before it."""
        since = _cell(first) * GRID + 1
        return max(since, self.begun) if first >= self.begun else since

    def _close(self) -> None:
        """Add what is open to the tallies; of a size of which there are too many, the two oldest become one."""
        self._tallies.append(self._tally(self._opened()))
        self._tallied += len(self._open)
        self._open = []
        while True:
            kinds = [(*self._era(tally.since), _size(tally)) for tally in self._tallies]
            crowded = next((kind for kind in reversed(kinds) if kinds.count(kind) > KEEP), None)
            if crowded is None:
                return
            oldest = kinds.index(crowded)
            # Of its kind, the next one follows at once, but where a pause has left a smaller one in between.
            self._tallies[oldest : oldest + 2] = [self._tallies[oldest].joined(self._tallies[oldest + 1])]

    def _seen(self, recent: Observed) -> Seen:
        """The tallies of which the test may make use, and the last sights in stretches of their own."""
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
        """Return everything as JSON can hold it."""
        return {
            "begun": self.begun,
            "fresh": self._fresh,
            "asked": self._asked,
            "mode": None if self._mode is None else self._mode.tolist(),
            "tallies": [tally.to_list() for tally in self._tallies],
            "open": [list(entry) for entry in self._open],
        }

    def restore(self, data: Any) -> None:
        """Take what ``to_dict`` wrote; what cannot be of this arm is refused."""
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
    """Where the stretches of the last sights begin: the newest has ``LEAST`` of them, older ones ever more."""
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
