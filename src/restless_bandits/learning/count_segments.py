"""Counts of an arm's observations in a segment of time: the part of a record that can be kept or forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, check_ints, is_number
from restless_bandits.model.record import BIN_EDGES, N_BINS, elapsed_bin


class Observed(NamedTuple):
    """Observations of an arm in the order of slots: slots, places of their counts, rewards."""

    slots: IntArray
    places: IntArray
    rewards: Array

    def part(self, first: int, end: int | None = None) -> Observed:
        """Return the observations from one position to before another."""
        return Observed(self.slots[first:end], self.places[first:end], self.rewards[first:end])


def observed(
    n_states: int,
    before: tuple[int, int],
    observations: Sequence[tuple[int, int, float]],
    unseen: Sequence[int] = (),
) -> Observed:
    """Return observations from triples (slot, state, reward), after the last state observed before them.

    ``unseen`` are the slots of pulls of a reacting arm without an observation.
    """
    if not observations:
        return Observed(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0))
    slots, states, rewards = (np.array(column) for column in zip(*observations, strict=True))
    last = np.concatenate([[before[0]], states[:-1]])
    elapsed = np.diff(slots, prepend=before[1])
    if unseen:
        pulls = np.searchsorted(unseen, slots)
        lost = np.diff(pulls, prepend=0) > 0
        last = np.where(lost, n_states + 1, last)
        elapsed = np.where(lost, slots - np.array(unseen)[pulls - 1], elapsed)
    bins = np.searchsorted(BIN_EDGES, elapsed, side="right") - 1
    return Observed(slots, (last * N_BINS + bins) * n_states + states, rewards.astype(np.float64))


@dataclass(frozen=True, eq=False)
class CountSegment:
    """The nonzero counts of an arm from a slot on, with at least one observation."""

    since: int
    """The first slot of the segment."""
    first_slot: int
    """The slot of the first observation."""
    first_place: int
    places: IntArray
    """Positions of the counts in ``record.counts(arm)``, flattened; in ascending order."""
    counts: IntArray
    sums: Array
    """Sums of rewards by state."""

    @classmethod
    def of(cls, since: int, seen: Observed, n_states: int) -> CountSegment:
        """Return the segment of some observations."""
        places, counts = np.unique(seen.places, return_counts=True)
        sums = np.zeros(n_states)
        np.add.at(sums, seen.places % n_states, seen.rewards)
        return cls(since, int(seen.slots[0]), int(seen.places[0]), places, counts.astype(np.int64), sums)

    @property
    def n_states(self) -> int:
        return len(self.sums)

    @property
    def observations(self) -> int:
        return int(self.counts.sum())

    @property
    def seen(self) -> IntArray:
        """The number of observations of each state."""
        seen = np.zeros(self.n_states, dtype=np.int64)
        np.add.at(seen, self.places % self.n_states, self.counts)
        return seen

    def joined(self, later: CountSegment) -> CountSegment:
        """Return the union of this segment and a later segment."""
        places, where = np.unique(np.concatenate([self.places, later.places]), return_inverse=True)
        counts = np.zeros(len(places), dtype=np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, later.counts]))
        return CountSegment(self.since, self.first_slot, self.first_place, places, counts, self.sums + later.sums)

    def as_first_segment(self, *, reacts: bool = False) -> IntArray:
        """Return all counts, flat, without earlier observations: the first observation is then an initial
        observation.

        The first observation of an arm that reacts counts as after a pull without an observation.
        """
        n, row = self.n_states, self.n_states + reacts
        flat = np.zeros((row + 1) * N_BINS * n, dtype=np.int64)
        flat[self.places] = self.counts
        flat[self.first_place] -= 1
        flat[(row * N_BINS + elapsed_bin(self.first_slot)) * n + self.first_place % n] += 1
        return flat

    def to_list(self) -> list[Any]:
        """Return the segment as JSON values."""
        numbers = [self.since, self.first_slot, self.first_place]
        return [*numbers, self.places.tolist(), self.counts.tolist(), self.sums.tolist()]

    @classmethod
    def from_list(cls, data: Any, n_states: int, *, reacts: bool = False) -> CountSegment:
        """Return the segment that ``to_list`` wrote; invalid data is refused."""
        if not isinstance(data, list) or len(data) != 6:
            raise ProblemError(f"a segment is {shortened(data)}; it must be a list of 6")
        since, first_slot, first_place, places, counts, sums = data
        since, first_slot = (
            check_int("the slot of a segment", since),
            check_int("the first observation of a segment", first_slot),
        )
        places = check_ints("the places of a segment", places, 0, (n_states + 1 + reacts) * N_BINS * n_states - 1)
        counts = check_ints("the counts of a segment", counts, length=len(places))
        if first_place not in places or sorted(set(places)) != places or first_slot < since:
            raise ProblemError(f"a segment begins with {shortened(data[:3])}, which does not fit the rest")
        if not isinstance(sums, list) or len(sums) != n_states or not all(map(is_number, sums)):
            raise ProblemError(f"the sums of a segment are {shortened(sums)}; they must be {n_states} numbers")
        return cls(since, first_slot, first_place, np.array(places), np.array(counts), np.array(sums, dtype=np.float64))
