"""Changes: the slot from which an arm has another chain or other mean rewards.

The head of ``problem`` defines when a change takes effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import (
    Array,
    check_int,
    is_whole,
)
from restless_bandits.model.checks import MOST_SLOTS, finite_numbers, read_only


@dataclass(frozen=True, eq=False)
class Change:
    """A change of an arm from a slot on: another chain, other mean rewards, or both; see the head of this file.

    ``arm`` is the number or the name of the arm; a problem keeps the name. The rewards may be given as costs.
    """

    slot: int
    arm: int | str
    transitions: Array | None = None
    rewards: Array | None = None

    def __init__(
        self,
        slot: int,
        arm: int | str,
        transitions: npt.ArrayLike | None = None,
        rewards: npt.ArrayLike | None = None,
        costs: npt.ArrayLike | None = None,
    ) -> None:
        if costs is not None:
            if rewards is not None:
                raise ProblemError(f"change at slot {slot}: costs and rewards are given; give one of the two instead")
            rewards = 0.0 - finite_numbers(costs, f"change at slot {slot}: costs", 1)
        check_int("change: slot", slot, 2, MOST_SLOTS)
        if not is_whole(arm) and not isinstance(arm, str):
            raise ProblemError(f"change at slot {slot}: arm is {shortened(arm)}; give its number or its name")
        if transitions is None and rewards is None:
            raise ProblemError(f"change at slot {slot}: nothing changes; give transitions, rewards, or both")
        object.__setattr__(self, "slot", int(slot))
        object.__setattr__(self, "arm", arm if isinstance(arm, str) else int(arm))
        for key, value, axes in (("transitions", transitions, 2), ("rewards", rewards, 1)):
            numbers = None if value is None else read_only(finite_numbers(value, f"change at slot {slot}: {key}", axes))
            object.__setattr__(self, key, numbers)

    def hashed_parts(self) -> tuple[Any, ...]:
        """Return the numbers of the change, for hashes and comparisons."""
        given = (None if part is None else part.tobytes() for part in (self.transitions, self.rewards))
        return self.slot, self.arm, *given

    def __eq__(self, other: object) -> bool:
        return self.hashed_parts() == other.hashed_parts() if isinstance(other, Change) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hashed_parts())
