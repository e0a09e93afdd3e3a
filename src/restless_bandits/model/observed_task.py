"""Tasks of observed arms: the part of a problem that a learner may know where all states are seen.

``Task`` holds a tuple for each property of the arms, with an entry for each arm. A task of observed arms may have a
million arms, so it is a class of its own with the same interface: arrays over kinds and places, and names on demand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, did_you_mean, shortened
from restless_bandits._internal.validation import (
    Array,
    IntArray,
    check_int,
    is_number,
    is_whole,
)
from restless_bandits.model.checks import check_horizon
from restless_bandits.model.layout import Layout
from restless_bandits.model.rewards import ZERO_TO_ONE, Range, checked_range

if TYPE_CHECKING:
    from restless_bandits.model.problem import Problem


@dataclass(frozen=True, eq=False)
class ObservedTask:
    """The part of a problem of observed arms that a learner may know: its shape, never its chains.

    ``rewards`` and ``problem`` are present only for a learner that declares a need for them.
    """

    observed: ClassVar[str] = "all"
    mixing: ClassVar[None] = None
    """Mixing times are for arms that are seen when pulled."""

    layout: Layout
    """The kind of each arm, and the number of states of each kind. The arms of a kind share their chains."""
    plays: int
    names: Sequence[str]
    at_most: bool = False
    """Whether fewer than ``plays`` arms may be pulled."""
    horizon: int | None = None
    rewards: Array | None = None
    """Known mean rewards: (place, action), action 1 pulls."""
    reward_range: Range = ZERO_TO_ONE
    """The lowest and the highest reward of a slot of an arm, pulled or not."""
    unit: Range = ZERO_TO_ONE
    """The range of the normalized rewards, see ``shared``; (0, 1) for rewards that are not normalized."""
    problem: Problem | None = None
    kind_names: Sequence[str] = ()
    """The names of the kinds; empty for none."""
    state_names: tuple[str, ...] = ()
    """The names of the states, which feedback may use in place of numbers; empty for none."""
    in_costs: bool = False

    def __post_init__(self) -> None:
        if len(self.names) != self.n_arms:
            raise ProblemError(f"task: {len(self.names)} names for {self.n_arms} arms; give one for each arm")
        check_int("task: plays", self.plays, 1, self.n_arms, "the number of arms")
        object.__setattr__(self, "horizon", check_horizon(self.horizon))
        low, high = checked_range("task: reward_range", self.reward_range)
        object.__setattr__(self, "reward_range", (low, high))
        if self.rewards is not None:
            means = np.array(self.rewards, dtype=np.float64)
            if means.shape != (self.layout.size, 2) or not ((means >= low) & (means <= high)).all():
                raise ProblemError(
                    f"task: rewards must be a mean between {low:.12g} and {high:.12g} for each state of each kind, "
                    "without and with a pull"
                )
            means.setflags(write=False)
            object.__setattr__(self, "rewards", means)
        most = int(self.layout.n_states.max())
        names = tuple(self.state_names)
        if names and (len(names) != most or len(set(names)) < most or not all(isinstance(one, str) for one in names)):
            raise ProblemError(f"state_names is {shortened(self.state_names)}; give {most} different texts")
        object.__setattr__(self, "state_names", names)

    @classmethod
    def of_arms(
        cls,
        arms: int | Sequence[str],
        n_states: int | Sequence[int] = 2,
        *,
        plays: int = 1,
        kinds: Sequence[int | str] | None = None,
        rewards: npt.ArrayLike | None = None,
        reward_range: Sequence[float] | None = None,
        cost_range: Sequence[float] | None = None,
        state_names: Sequence[str] | None = None,
        at_most: bool = False,
        horizon: int | None = None,
    ) -> Self:
        """Return the task of arms given by their names or by their number.

        Parameters
        ----------
        arms
            Names, or the number of arms, which are then called ``arm 1``, ``arm 2``, ….
        n_states
            The number of states of every arm, or of each kind in the order of their first arms.
        plays, at_most, horizon
            As for ``Problem`` and ``problem.task``.
        kinds
            The kind of each arm, a number or a name: the arms of a kind share their chains. By default every arm is a
            kind of its own.
        rewards
            Known mean rewards: by state, whatever is done; or by state and action; or by kind, state and action.
        reward_range, cost_range
            The lowest and the highest reward, (0, 1) by default, or the lowest and the highest cost: costs are
            minimized.
        state_names
            The names of the states.

        """
        names: Sequence[str]
        if is_whole(arms):
            names = NumberedNames(check_int("arms", arms))
        elif isinstance(arms, str | Mapping) or not isinstance(arms, Sequence):
            raise ProblemError(f"arms is {shortened(arms)}; give a list of names, or the number of arms")
        else:
            names = tuple(arms)
            wrong = next((name for name in names if not isinstance(name, str) or not name), None)
            if wrong is not None or not names:
                raise ProblemError(f"arms: a name is {shortened(wrong)}; give each arm a text")
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ProblemError(f"two arms are called {twice!r}; give each arm its own name")
        n_arms, numbers = len(names), None
        kind_names: tuple[str, ...] = ()
        if kinds is not None:
            kind_names, numbers = _numbered_kinds(kinds, n_arms)
        n_kinds = n_arms if numbers is None else len(kind_names)
        given = np.asarray(n_states)
        if given.dtype.kind not in "iu" or given.shape not in ((), (n_kinds,)) or given.min() < 1:
            raise ProblemError(
                f"n_states is {shortened(n_states)}; give one number, or one for each of {n_kinds} kinds"
            )
        sizes = np.ascontiguousarray(np.broadcast_to(given, (n_kinds,)), dtype=np.int64)
        layout = Layout(sizes, np.ones(n_kinds, dtype=np.int64))
        if numbers is not None:
            layout = Layout.of_kinds(sizes, numbers)
        if cost_range is not None:
            if reward_range is not None:
                raise ProblemError("reward_range and cost_range are given; give one of the two")
            least, most = checked_range("cost_range", cost_range)
            reward_range = (0.0 - most, 0.0 - least)
        return cls(
            layout,
            plays,
            names,
            at_most=bool(at_most),
            horizon=horizon,
            rewards=None if rewards is None else _means(rewards, layout),
            reward_range=ZERO_TO_ONE if reward_range is None else checked_range("reward_range", reward_range),
            kind_names=kind_names,
            state_names=tuple(state_names or ()),
            in_costs=cost_range is not None,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObservedTask):
            return NotImplemented
        mine, theirs = (
            (task.plays, task.at_most, task.horizon, task.reward_range, task.unit, task.state_names, task.in_costs)
            for task in (self, other)
        )
        columns: list[tuple[Any, Any]] = [(self.layout.n_states, other.layout.n_states), (self.kinds, other.kinds)]
        if (self.rewards is None) != (other.rewards is None) or mine != theirs:
            return False
        if self.rewards is not None and other.rewards is not None:
            columns.append((self.rewards, other.rewards))
        same_names = self.names is other.names or list(self.names) == list(other.names)
        return all(np.array_equal(*pair) for pair in columns) and same_names

    def __hash__(self) -> int:
        return hash((self.n_arms, self.layout.size, self.plays, self.horizon))

    @property
    def n_arms(self) -> int:
        return self.layout.n_arms

    @property
    def n_states(self) -> IntArray:
        """The number of states of each arm."""
        return self.layout.sizes

    @property
    def kinds(self) -> IntArray:
        """The number of each arm's kind."""
        return self.layout.kind_of_arm

    @property
    def features(self) -> tuple[str, ...]:
        """The fields beyond those of uncontrolled arms: see ``support``."""
        return ("observed", "at_most") if self.at_most else ("observed",)

    @cached_property
    def kind_groups(self) -> tuple[tuple[slice, int], ...]:
        """The runs of consecutive kinds of one number of states, each with this number."""
        sizes = self.layout.n_states
        ends = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
        return tuple((slice(low, high), int(sizes[low])) for low, high in pairwise(ends))

    def state_number(self, arm: int, state: Any) -> Any:
        """Return the number of a state given by name; a number is returned unchanged."""
        if not isinstance(state, str):
            return state
        known = self.state_names[: int(self.n_states[arm])]
        if state not in known:
            hint = did_you_mean(state[:60], known) if known else "its states have no names; give the number"
            raise ProblemError(f"arm {self.names[arm]!r} has no state {shortened(state)}; {hint}")
        return known.index(state)

    @property
    def is_normalized(self) -> bool:
        """Whether the range of rewards is (0, 1): normalized and original rewards are then equal."""
        return self.reward_range == ZERO_TO_ONE

    def shared(self) -> ObservedTask:
        """Return the task as learners get it: rewards as shares of their range, which is then ``unit``."""
        return self if self.is_normalized else self._shared

    @cached_property
    def _shared(self) -> ObservedTask:
        low, high = self.reward_range
        rewards = None if self.rewards is None else np.clip((self.rewards - low) / (high - low), 0.0, 1.0)
        problem = None if self.problem is None else self.problem.normalized()
        about: dict[str, Any] = {"rewards": rewards, "problem": problem, "reward_range": ZERO_TO_ONE}
        return dataclasses.replace(self, **about, unit=self.reward_range)

    def normalized_sums(self, sums: Array, paid: IntArray) -> Array:
        """Return sums of rewards as shares of the range of rewards; ``paid`` is the number of rewards of each sum."""
        low, high = self.reward_range
        return sums if self.is_normalized else (sums - low * paid) / (high - low)

    def check_reward(self, arm: int, reward: object) -> float:
        """Return a reward of an arm as a float; a reward outside its range raises ``ProblemError``."""
        low, high = self.reward_range
        if not is_number(reward):
            raise ProblemError(f"arm {self.names[arm]!r}: reward {reward!r} is not a number")
        value = float(reward)  # type: ignore[arg-type]
        if not low <= value <= high:
            what = f"reward {value!r}"
            if self.in_costs:
                what, low, high = f"cost {0.0 - value!r}", 0.0 - high, 0.0 - low
            raise ProblemError(f"arm {self.names[arm]!r}: {what} is not between {low:.12g} and {high:.12g}")
        return value

    def only(self, arms: Sequence[int] | IntArray, *, plays: int | None = None) -> ObservedTask:
        """Return the task of a selection of arms, numbered in the given order; all kinds stay."""
        chosen = np.asarray(arms, dtype=np.int64)
        layout = Layout.of_kinds(self.layout.n_states, self.kinds[chosen])
        names = tuple(self.names[int(arm)] for arm in chosen)
        changed: dict[str, Any] = {"layout": layout, "names": names, "problem": None}
        return dataclasses.replace(self, **changed, plays=min(self.plays, len(chosen)) if plays is None else plays)

    def with_arm(self, name: str, kind: int | str | None = None, n_states: int | None = None) -> ObservedTask:
        """Return the task with one more arm: of a known kind, or of a new kind with a number of states."""
        if self.problem is not None:
            raise ProblemError("the task holds the whole problem, to which no arm can be added; reveal less of it")
        sizes, kind_names = self.layout.n_states, self.kind_names
        rewards = self.rewards
        if isinstance(kind, str) and kind in kind_names:
            kind = list(kind_names).index(kind)
        if isinstance(kind, int | np.integer) and not isinstance(kind, bool):
            number = check_int("kind", kind, 0, len(sizes) - 1)
        else:
            if rewards is not None:
                raise ProblemError("rewards of the other arms are told; give the new arm a kind among theirs")
            if kind is not None and not kind_names:
                raise ProblemError(f"there is no kind {shortened(kind)}; kinds are numbered from 0 to {len(sizes) - 1}")
            number = len(sizes)
            sizes = np.append(sizes, check_int("n_states", sizes[0] if n_states is None else n_states))
            if kind_names:
                kind_names = (*kind_names, name if kind is None else str(kind))
        layout = Layout.of_kinds(sizes, np.append(self.kinds, number))
        about: dict[str, Any] = {"layout": layout, "names": (*self.names, name), "kind_names": kind_names}
        return dataclasses.replace(self, **about)

    def to_arrays(self) -> dict[str, Any]:
        """Return the task for storage, without names and problem."""
        own: dict[str, Any] = {**self.layout.to_arrays(), "plays": np.array(self.plays)}
        own |= {"at_most": np.array(self.at_most), "reward_range": np.array(self.reward_range)}
        own |= {"horizon": np.array(-1 if self.horizon is None else self.horizon)}
        return own if self.rewards is None else own | {"rewards": self.rewards}


class NumberedNames(Sequence[str]):
    """The names ``arm 1``, ``arm 2``, …, made on demand."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(f"arm {number + 1}" for number in range(self._count)[place])
        return f"arm {range(self._count)[place] + 1}"


def _numbered_kinds(kinds: Sequence[int | str], n_arms: int) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of kinds in the order of their first arms, and the number of each arm's kind."""
    given = np.asarray(kinds)
    if given.shape != (n_arms,) or given.dtype.kind not in "iuU":
        raise ProblemError(f"kinds is {shortened(kinds)}; give a number or a text for each of {n_arms} arms")
    labels, firsts, which = np.unique(given, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return tuple(str(label) for label in labels[order]), rank[which]


def _means(rewards: npt.ArrayLike, layout: Layout) -> Array:
    """Return mean rewards by place and action."""
    means = np.asarray(rewards, dtype=np.float64)
    sizes = layout.n_states
    n = int(sizes[0])
    fits = (n,), (n, 2), (len(sizes), n, 2)
    if (sizes != n).any() or means.shape not in fits:
        raise ProblemError(f"rewards has shape {means.shape}; give one of the shapes {', '.join(map(str, fits))}")
    if means.ndim == 1:
        means = np.stack([means, means], axis=1)
    return np.broadcast_to(means, (len(sizes), n, 2)).reshape(-1, 2)
