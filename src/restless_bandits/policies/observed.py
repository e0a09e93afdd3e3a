"""Policies for observed arms: functions from the present states of all arms to the arms to pull.

Tables run over (kind, state), the states of all kinds one after the other: a *place* is a position there. Arms in one
place are exchangeable, and of them the arms of lowest number are pulled. A policy that depends on the number of arms in
each place alone is a ``CountedPolicy``: a million arms of a few kinds then cost as much as ten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.model.layout import Layout
from restless_bandits.policies.policies import TIE, Policy

SLOT_WORD = 0xD1342543DE82EF95
"""An odd number that spreads the slots over the words of random streams."""


class ObservedPolicy(Policy):
    """The interface of policies for observed arms; a new kind defines ``arms``."""

    layout: Layout
    plays: int

    def __call__(self, states: npt.ArrayLike, *given: Any) -> int | tuple[int, ...]:  # type: ignore[override]
        """Return the arm to pull, or a tuple of arms for several plays or if fewer may be pulled."""
        if given:
            raise ProblemError("a policy for observed arms takes the present states alone, as in policy(states)")
        chosen: list[int] = self.arms(self.layout.checked(states)).tolist()
        return chosen[0] if self.plays == 1 and len(chosen) == 1 else tuple(chosen)

    def arms(self, states: IntArray) -> IntArray:
        """Return the arms to pull in ascending order."""
        raise NotImplementedError

    def arms_in(self, slot: int, states: IntArray) -> IntArray:
        """Return the arms to pull in a slot in ascending order: what the simulator and ``Agent`` pull."""
        return self.arms(states)

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        raise ProblemError("a policy for observed arms needs the present states of all arms; ask it as policy(states)")

    @property
    def n_states(self) -> tuple[int, ...]:
        return tuple(self.layout.sizes.tolist())

    def __hash__(self) -> int:
        return hash((type(self), self.plays, self.layout.n_arms))


class CountedPolicy(ObservedPolicy):
    """A policy that depends on the number of arms in each place alone; a new kind defines ``pulls``."""

    def pulls(self, numbers: IntArray) -> IntArray:
        """Return the number of arms to pull in each place."""
        raise NotImplementedError

    def arms(self, states: IntArray) -> IntArray:
        return self.layout.lowest(states, self.pulls(self.layout.numbers(states)))


@dataclass(frozen=True, eq=False, repr=False)
class PriorityPolicy(CountedPolicy):
    """Pull the arms whose places have the highest scores.

    Equal scores go to the higher ``tie_break``, then to the lower place. A place with a score of at most ``floor`` is
    never pulled, if fewer pulls are allowed.
    """

    layout: Layout
    score: Array
    """The score of each place."""
    plays: int
    floor: float = -math.inf
    tie_break: Array | None = None
    """A second score of each place."""

    @cached_property
    def order(self) -> IntArray:
        """The places in the order of priority."""
        # Places of one score are put into their order below.
        order = np.argsort(-self.score)
        falls = np.diff(self.score[order], prepend=np.inf) < -TIE
        tied = ~falls
        tied[:-1] |= ~falls[1:]
        some = np.flatnonzero(tied)
        if len(some):
            second = np.zeros(len(order)) if self.tie_break is None else _levels(-self.tie_break)
            among = order[some]
            order[some] = among[np.lexsort((among, second[among], np.cumsum(falls)[some]))]
        return order

    @cached_property
    def allowed(self) -> IntArray:
        """The places that may be pulled, in the order of priority."""
        return self.order[self.score[self.order] > self.floor]

    def pulls(self, numbers: IntArray) -> IntArray:
        found = np.zeros_like(numbers)
        before = np.cumsum(numbers[self.allowed]) - numbers[self.allowed]
        found[self.allowed] = np.clip(self.plays - before, 0, numbers[self.allowed])
        return found

    def to_arrays(self) -> dict[str, Any]:
        own = {"score": self.score, "plays": np.array(self.plays), "floor": np.array(self.floor)}
        second = {} if self.tie_break is None else {"tie_break": self.tie_break}
        return self.layout.to_arrays() | own | second

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout, floor = Layout.from_arrays(arrays), float(arrays["floor"])
        plays = check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms)
        second = _table(arrays, "tie_break", layout) if "tie_break" in arrays else None
        return cls(layout, _table(arrays, "score", layout), plays, floor, second)


@dataclass(frozen=True, eq=False, repr=False)
class UniformPolicy(ObservedPolicy):
    """Pull arms drawn uniformly in each slot. The draws depend on the seed and the slot alone."""

    layout: Layout
    plays: int
    seed: int

    def __call__(self, states: npt.ArrayLike, *given: Any) -> int | tuple[int, ...]:  # type: ignore[override]
        """Return the arm to pull in a slot, or a tuple of arms: ``policy(states, slot)``."""
        if len(given) != 1:
            raise ProblemError("the policy depends on the slot; ask it as policy(states, slot), slots count from 1")
        chosen = self.arms_in(check_int("slot", given[0], 1), self.layout.checked(states)).tolist()
        return chosen[0] if self.plays == 1 else tuple(chosen)

    def arms(self, states: IntArray) -> IntArray:
        raise ProblemError("the policy depends on the slot; ask policy.arms_in(slot, states)")

    def arms_in(self, slot: int, states: IntArray) -> IntArray:
        from restless_bandits.model.draw_kernels import mark_uniformly

        marked = np.zeros(len(states), dtype=np.bool_)
        mark_uniformly(np.uint64((self.seed + slot * SLOT_WORD) % (1 << 64)), self.plays, marked)
        return np.flatnonzero(marked)

    def pulls_in(self, slot: int, numbers: IntArray) -> IntArray:
        """Return the number of arms to pull in each place, where the numbers of arms in the places step."""
        rng = np.random.default_rng([self.seed, slot])
        return np.asarray(rng.multivariate_hypergeometric(numbers, self.plays, method="marginals"), dtype=np.int64)

    def to_arrays(self) -> dict[str, Any]:
        return self.layout.to_arrays() | {"plays": np.array(self.plays), "seed": np.array(self.seed)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout = Layout.from_arrays(arrays)
        plays = check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms)
        return cls(layout, plays, check_int("seed", arrays["seed"].tolist(), 0))


@dataclass(frozen=True, eq=False, repr=False)
class RandomizedPolicy(ObservedPolicy):
    """Arms wish to be pulled with the probability of their place, and the order of arm numbers settles the budget.

    Of too many wishes the arms of highest number give way. Of too few, the arms of highest number without a wish are
    pulled, unless fewer pulls are allowed. The policy is ``id`` of Hong, Xie, Chen, Wang (2024).
    """

    layout: Layout
    wish: Array
    """The probability of a wish in each place."""
    plays: int
    at_most: bool = False

    def arms(self, states: IntArray, rng: np.random.Generator | None = None) -> IntArray:
        rng = np.random.default_rng() if rng is None else rng
        wished = rng.random(len(states)) < self.wish[self.layout.first + states]
        found = np.flatnonzero(wished)[: self.plays]
        if len(found) == self.plays or self.at_most:
            return found
        others = np.flatnonzero(~wished)
        return np.sort(np.concatenate([found, others[len(others) - (self.plays - len(found)) :]]))

    def to_arrays(self) -> dict[str, Any]:
        own = {"wish": self.wish, "plays": np.array(self.plays), "at_most": np.array(self.at_most)}
        return self.layout.to_arrays() | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout, at_most = Layout.from_arrays(arrays), bool(arrays["at_most"])
        wish, plays = _table(arrays, "wish", layout), check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms)
        if wish.min() < 0 or wish.max() > 1:
            raise ValueError("a wish is no probability")
        return cls(layout, wish, plays, at_most)


@dataclass(frozen=True, eq=False, repr=False)
class CountTablePolicy(CountedPolicy):
    """The number of arms to pull in each state, for every division of arms of one kind among the states."""

    layout: Layout
    numbers: IntArray
    """The possible numbers of arms in each state, a row each, in lexicographic order."""
    table: IntArray
    """The number of arms to pull in each state, a row for each row of ``numbers``."""
    plays: int

    def pulls(self, numbers: IntArray) -> IntArray:
        low, high = 0, len(self.numbers)
        for state in range(len(numbers)):
            column = self.numbers[low:high, state]
            low, high = (low + int(np.searchsorted(column, numbers[state], side)) for side in ("left", "right"))
        return np.asarray(self.table[low])

    def to_arrays(self) -> dict[str, Any]:
        own = {"numbers": self.numbers, "table": self.table, "plays": np.array(self.plays)}
        return self.layout.to_arrays() | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout = Layout.from_arrays(arrays)
        numbers, table = arrays["numbers"], arrays["table"]
        shape = (len(numbers), layout.size)
        if len(layout.counts) != 1 or numbers.shape != shape or table.shape != shape or (table > numbers).any():
            raise ValueError("the table does not fit its kind")
        return cls(layout, numbers, table, check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms))


@dataclass(frozen=True, eq=False, repr=False)
class JointStatePolicy(ObservedPolicy):
    """A choice of arms for every joint state of a few arms."""

    layout: Layout
    choice: IntArray
    """The number of the choice in each joint state, with an axis for each arm."""
    actions: IntArray
    """The choices: 1 for each arm to pull, a row each."""
    plays: int

    def arms(self, states: IntArray) -> IntArray:
        return np.flatnonzero(self.actions[self.choice[tuple(states.tolist())]])

    def to_arrays(self) -> dict[str, Any]:
        own = {"choice": self.choice, "actions": self.actions, "plays": np.array(self.plays)}
        return self.layout.to_arrays() | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout, choice, actions = Layout.from_arrays(arrays), arrays["choice"], arrays["actions"]
        if choice.shape != tuple(layout.sizes.tolist()) or actions.shape[1:] != (layout.n_arms,):
            raise ValueError("the table does not fit its arms")
        if choice.min() < 0 or choice.max() >= len(actions):
            raise ValueError("the table holds unknown choices")
        return cls(layout, choice, actions, check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms))


def _levels(score: Array) -> IntArray:
    """Return the number of each place's level, the lowest scores first; scores closer than ``TIE`` share a level."""
    order = np.argsort(score, kind="stable")
    found = np.empty(len(score), dtype=np.int64)
    with np.errstate(invalid="ignore"):  # infinite scores share a level
        found[order] = np.cumsum(np.diff(score[order], prepend=-np.inf) > TIE)
    return found


def _table(arrays: Mapping[str, Any], name: str, layout: Layout) -> Array:
    """Return a stored table over places."""
    found = np.asarray(arrays[name])
    if found.shape != (layout.size,) or found.dtype != np.float64 or np.isnan(found).any():
        raise ValueError(f"{name} is no number for each kind and state")
    return found
