"""The policies of a programme that lasts for a known number of slots: a priority of places for each slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.model.layout import Layout
from restless_bandits.policies.observed import CountedPolicy, PriorityPolicy


@dataclass(frozen=True, eq=False)
class HorizonPolicy(CountedPolicy):
    """Pull the arms whose places have the highest scores of the present slot; slots count from 1.

    Equal scores go to the higher ``tie_break``, then to the lower place.
    """

    layout: Layout
    score: Array
    """The score of each place in each slot: (slot, place)."""
    tie_break: Array
    floor: Array
    """The score that a place must exceed in each slot to be pulled; −∞ where all pulls are used."""
    plays: int

    @property
    def horizon(self) -> int:
        return len(self.score)

    @cached_property
    def by_slot(self) -> tuple[PriorityPolicy, ...]:
        """The priority of each slot."""
        rows = zip(self.score, self.tie_break, self.floor.tolist(), strict=True)
        return tuple(PriorityPolicy(self.layout, score, self.plays, floor, tie) for score, tie, floor in rows)

    def at(self, slot: int) -> PriorityPolicy:
        """Return the priority of a slot."""
        if not 1 <= slot <= self.horizon:
            raise ProblemError(f"slot is {slot}; the policy is for the slots 1 to {self.horizon}, so plan anew")
        return self.by_slot[slot - 1]

    def __call__(self, states: npt.ArrayLike, *given: Any) -> int | tuple[int, ...]:  # type: ignore[override]
        """Return the arm to pull in a slot, or a tuple of arms: ``policy(states, slot)``."""
        if len(given) != 1:
            raise ProblemError("the policy depends on the slot; ask it as policy(states, slot), slots count from 1")
        return self.at(check_int("slot", given[0], 1))(states)

    def arms_in(self, slot: int, states: IntArray) -> IntArray:
        return self.at(slot).arms(states)

    def pulls(self, numbers: IntArray) -> IntArray:
        raise ProblemError("the policy depends on the slot; ask policy.at(slot)")

    def to_arrays(self) -> dict[str, Any]:
        own = {"score": self.score, "tie_break": self.tie_break, "floor": self.floor, "plays": np.array(self.plays)}
        return self.layout.to_arrays() | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout = Layout.from_arrays(arrays)
        score, tie_break, floor = (np.asarray(arrays[name]) for name in ("score", "tie_break", "floor"))
        shape = (len(floor), layout.size)
        if score.shape != shape or tie_break.shape != shape or np.isnan(score).any() or np.isnan(tie_break).any():
            raise ValueError("the scores do not fit the kinds and slots")
        return cls(layout, score, tie_break, floor, check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms))
