"""Tasks: the part of a problem that a learner may know."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.validation import (
    Array,
    IntArray,
    check_int,
    check_ints,
    is_number,
    positive,
)
from restless_bandits.model.checks import check_horizon, check_text, finite_numbers, read_only
from restless_bandits.model.rewards import (
    REWARD_LAWS,
    ZERO_TO_ONE,
    Range,
    RewardLaw,
    checked_range,
    common_range,
    normalized_rewards,
    normalized_sums,
    outside,
    range_within,
)
from restless_bandits.model.support import ARM_FEATURES

if TYPE_CHECKING:
    from restless_bandits.model.problem import Problem


@dataclass(frozen=True)
class Task:
    """The part of a problem that a learner may know: its shape, never its chains.

    ``rewards``, ``mixing`` and ``problem`` are present only for a learner that declares a need for them. A task is
    valid once made: an invalid task raises ``ProblemError``.
    """

    n_states: tuple[int, ...]
    plays: int
    reward_laws: tuple[RewardLaw, ...]
    initial: tuple[int | None, ...]
    names: tuple[str, ...]
    horizon: int | None = None
    rewards: tuple[tuple[float, ...], ...] | None = None
    mixing: tuple[int | None, ...] | None = None
    problem: Problem | None = None
    reward_ranges: tuple[Range, ...] = ()
    """The lowest and the highest reward of each arm; (0, 1) by default."""
    unit: Range = ZERO_TO_ONE
    """The range of the normalized rewards, see ``shared``; (0, 1) for rewards that are not normalized."""
    reacts: tuple[bool, ...] = ()
    """Whether the chain of each arm takes another step in a slot with a pull; by default no chain does."""
    passive_rewards: tuple[tuple[float, ...], ...] = ()
    """Mean rewards of slots without a pull, by state of each arm: never observed, hence known; empty for none."""
    setup_costs: tuple[float, ...] = ()
    """The cost of a pull of each arm in a slot after one without a pull; empty for none."""

    def __post_init__(self) -> None:
        sizes = tuple(check_ints("task: n_states", self.n_states))
        n_arms = len(sizes)
        if not n_arms:
            raise ProblemError("task: n_states is empty; a task needs at least one arm")
        given: dict[str, Any] = {"n_states": sizes}
        if isinstance(self.reward_ranges, list | tuple) and not self.reward_ranges:
            object.__setattr__(self, "reward_ranges", (ZERO_TO_ONE,) * n_arms)
        if isinstance(self.reacts, list | tuple) and not self.reacts:
            object.__setattr__(self, "reacts", (False,) * n_arms)
        for key in (*_ALWAYS[1:], "rewards", "mixing"):
            value = getattr(self, key)
            if value is None and key in REVEALABLE:
                continue
            if not isinstance(value, list | tuple) or len(value) != n_arms:
                raise ProblemError(f"task: {key} is {shortened(value)}; give an entry for each of {n_arms} arms")
            given[key] = tuple(value)
        check_int("task: plays", self.plays, 1, n_arms, "the number of arms")
        given["horizon"] = check_horizon(self.horizon)
        for i, size in enumerate(sizes):
            check_known(given["reward_laws"][i], REWARD_LAWS, f"task: reward_laws[{i}] is")
            check_text(given["names"][i], f"task: names[{i}]")
            if not isinstance(given["reacts"][i], bool):
                raise ProblemError(f"task: reacts[{i}] is {shortened(given['reacts'][i])}; give true or false")
            if given["initial"][i] is not None:
                check_int(f"task: initial[{i}]", given["initial"][i], 0, size - 1, "or None if unknown")
            if given.get("mixing") and given["mixing"][i] is not None:
                check_int(f"task: mixing[{i}]", given["mixing"][i])
        ranges = [checked_range(f"task: reward_ranges[{i}]", ends) for i, ends in enumerate(given["reward_ranges"])]
        given["reward_ranges"] = tuple(ranges)
        given["unit"] = checked_range("task: unit", self.unit)
        if "rewards" in given:
            means = [finite_numbers(row, f"task: rewards[{i}]", 1) for i, row in enumerate(given["rewards"])]
            beyond = any(outside(row, ends).any() for row, ends in zip(means, ranges, strict=True))
            if [len(row) for row in means] != list(sizes) or beyond:
                within = "0 and 1" if set(ranges) == {ZERO_TO_ONE} else "the ends of its range"
                raise ProblemError(f"task: rewards must be a mean between {within} for each state of each arm")
            given["rewards"] = tuple(tuple(row.tolist()) for row in means)
        given |= {"passive_rewards": self._checked_passive_rewards(sizes), "setup_costs": ()}
        if self.setup_costs:
            if not isinstance(self.setup_costs, list | tuple) or len(self.setup_costs) != n_arms:
                raise ProblemError(f"task: setup_costs is {shortened(self.setup_costs)}; give a cost for each arm")
            costs = [positive("task: setup_costs", cost, or_zero=True) for cost in self.setup_costs]
            given["setup_costs"] = tuple(costs) if any(costs) else ()
        for key, value in given.items():
            object.__setattr__(self, key, value)
        known = self.problem
        if known is not None and not (
            callable(getattr(known, "task", None))
            and known.task() == dataclasses.replace(self, **_UNTOLD, unit=ZERO_TO_ONE)
        ):
            raise ProblemError("task: its arms are not those of its problem; make it with problem.task(...)")

    def _checked_passive_rewards(self, sizes: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
        rows = self.passive_rewards
        if not rows:
            return ()
        if not isinstance(rows, list | tuple) or len(rows) != len(sizes):
            raise ProblemError(f"task: passive_rewards is {shortened(rows)}; give a row for each of {len(sizes)} arms")
        means = [finite_numbers(row, f"task: passive_rewards[{i}]", 1) for i, row in enumerate(rows)]
        if [len(row) for row in means] != list(sizes):
            raise ProblemError("task: passive_rewards must be a mean for each state of each arm")
        return tuple(tuple(row.tolist()) for row in means) if any(row.any() for row in means) else ()

    @property
    def n_arms(self) -> int:
        return len(self.n_states)

    @property
    def features(self) -> tuple[str, ...]:
        """The fields beyond those of uncontrolled arms, as far as a learner sees them: see ``support``."""
        if not (self.passive_rewards or self.setup_costs or any(self.reacts)):
            return ()
        given = (any(self.reacts), bool(self.passive_rewards), bool(self.setup_costs))
        return tuple(word for word, is_given in zip(ARM_FEATURES, given, strict=False) if is_given)

    @property
    def tracks_pulls(self) -> tuple[bool, ...]:
        """Whether a pull without an observation counts: for arms that react, and for arms with a set-up cost."""
        if not self.setup_costs:
            return self.reacts
        return tuple(reacts or cost > 0 for reacts, cost in zip(self.reacts, self.setup_costs, strict=True))

    def only(self, arms: Sequence[int]) -> Task:
        """Return the task of a selection of arms, numbered in the given order."""
        own = {key: getattr(self, key) for key in _OF_ARMS}
        part: dict[str, Any] = {key: value and tuple(value[arm] for arm in arms) for key, value in own.items()}
        known = self.problem and self.problem.only(arms)
        return dataclasses.replace(self, **part, problem=known)

    def with_arm(self, **arm: Any) -> Task:
        """Return the task with one more arm, given by its fields: ``n_states=2, names="c", …``."""
        if self.problem is not None:
            raise ProblemError("the task holds the whole problem, to which no arm can be added; reveal less of it")
        for key in ("rewards", "mixing"):
            if getattr(self, key) is None and arm.get(key) is not None:
                raise ProblemError(f"{key} of the other arms are not revealed; leave out {key} of the new arm")
        if self.rewards is not None and arm.get("rewards") is None:
            raise ProblemError("rewards of the other arms are told; give those of the new one too")
        own = {key: getattr(self, key) for key in _OF_ARMS}
        arm = {"reacts": False, "setup_costs": 0.0, "passive_rewards": (0.0,) * arm["n_states"]} | arm
        zeros: dict[str, Any] = {
            "passive_rewards": tuple((0.0,) * size for size in self.n_states),
            "setup_costs": (0.0,) * self.n_arms,
        }
        own |= {key: own[key] or value for key, value in zeros.items()}
        more: dict[str, Any] = {key: value and (*value, arm.get(key)) for key, value in own.items()}
        return dataclasses.replace(self, **more)

    @property
    def is_normalized(self) -> bool:
        """Whether the range of every arm is (0, 1): normalized and original rewards are then equal."""
        return set(self.reward_ranges) == {ZERO_TO_ONE}

    @property
    def reward_range(self) -> Range:
        """The smallest range that contains the rewards of all arms."""
        return common_range(self.reward_ranges)

    def shared(self) -> Task:
        """Return the task as learners get it: rewards as shares of one range that contains the ranges of all arms.

        A learner whose arms have the same range may therefore take rewards to lie between 0 and 1. ``unit`` is the
        range.
        """
        return self if self.reward_range == ZERO_TO_ONE else _shared(self)

    def check_reward(self, arm: int, reward: object) -> float:
        """Return a reward of an arm as a float; a reward outside its distribution or range raises ``ProblemError``."""
        name, (low, high) = self.names[arm], self.reward_ranges[arm]
        if not is_number(reward):
            raise ProblemError(f"arm {name!r}: reward {reward!r} is not a number")
        value = float(reward)  # type: ignore[arg-type]
        if self.reward_laws[arm] == "bernoulli":
            if value not in (low, high):
                raise ProblemError(
                    f"arm {name!r}: reward {value!r} is neither {low:.12g} nor {high:.12g}, and its rewards are "
                    "bernoulli"
                )
        elif not low <= value <= high:
            raise ProblemError(f"arm {name!r}: reward {value!r} is not between {low:.12g} and {high:.12g}")
        return value

    def normalized_sums(self, sums: Array, seen: IntArray) -> Array:
        """Return normalized sums of rewards, by state of all arms one after the other, as shares of the arms' ranges.

        Bounds and posteriors are computed from normalized sums; ``values`` maps their results back.
        """
        if self.is_normalized:
            return sums
        low, high = _flat_ranges(self.n_states, self.reward_ranges)
        normalized = normalized_sums(sums, seen, low, high - low)
        # For rewards at the two ends of a range, sums are counts, except for rounding.
        ends = np.repeat(np.array([distribution == "bernoulli" for distribution in self.reward_laws]), self.n_states)
        return np.where(ends, np.rint(normalized), normalized)

    def sums(self, normalized: Array, seen: IntArray) -> Array:
        """Return sums of rewards from normalized sums: the inverse of ``normalized_sums``."""
        if self.is_normalized:
            return normalized
        low, high = _flat_ranges(self.n_states, self.reward_ranges)
        return np.asarray(seen * low + (high - low) * normalized)

    def values(self, normalized: Array) -> Array:
        """Return normalized rewards, by state of all arms one after the other, in the units of the rewards."""
        if self.is_normalized:
            return normalized
        low, high = _flat_ranges(self.n_states, self.reward_ranges)
        return np.asarray(np.clip(low + (high - low) * normalized, low, high))


@lru_cache(maxsize=32)
def _shared(task: Task) -> Task:
    common = task.reward_range
    ranges = tuple(range_within(ends, common) for ends in task.reward_ranges)
    rewards = task.rewards and tuple(
        tuple(np.clip(normalized_rewards(np.array(means), common), *ends).tolist())
        for means, ends in zip(task.rewards, ranges, strict=True)
    )
    problem = None if task.problem is None else task.problem.normalized()
    low, width = common[0], common[1] - common[0]
    passive = tuple(tuple((mean - low) / width for mean in row) for row in task.passive_rewards)
    costs = tuple(cost / width for cost in task.setup_costs)
    about: dict[str, Any] = {"rewards": rewards, "problem": problem, "passive_rewards": passive, "setup_costs": costs}
    return dataclasses.replace(task, reward_ranges=ranges, unit=common, **about)


@lru_cache(maxsize=32)
def _flat_ranges(n_states: tuple[int, ...], ranges: tuple[Range, ...]) -> tuple[Array, Array]:
    """The lowest and the highest reward of every state of all arms."""
    low, high = (read_only(np.repeat(np.array(ends), n_states)) for ends in zip(*ranges, strict=True))
    return low, high


_ALWAYS = ("n_states", "reward_laws", "reward_ranges", "initial", "names", "reacts")
_OF_ARMS = (*_ALWAYS, "rewards", "mixing", "passive_rewards", "setup_costs")


_UNTOLD: dict[str, Any] = dict.fromkeys(("horizon", "rewards", "mixing", "problem"))


REVEALABLE = ("rewards", "mixing", "problem")
