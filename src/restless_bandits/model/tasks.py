"""Tasks: the part of a problem that a learner may know."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known, did_you_mean, shortened
from restless_bandits._internal.validation import (
    Array,
    IntArray,
    check_int,
    check_ints,
    is_number,
    positive,
)
from restless_bandits.model.checks import check_horizon, check_text, finite_numbers, read_only, refusing_keywords
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

OBSERVED_REMEDIES = dict.fromkeys(
    ("observed", "kinds", "at_most"), "arms that are all observed have rb.ObservedTask.of_arms(arms, n_states, kinds=…)"
)


@dataclass(frozen=True)
class Task:
    """The part of a problem that a learner may know: its shape, never its chains.

    ``rewards``, ``mixing`` and ``problem`` are present only for a learner that declares a need for them. A task is
    valid once made: an invalid task raises ``ProblemError``. Of observed arms the task is an ``ObservedTask``.
    """

    observed: ClassVar[str] = "pulled"
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
    state_names: tuple[tuple[str, ...], ...] = ()
    """The names of the states of each arm, which feedback may use in place of numbers; empty for none."""
    in_costs: bool = False
    """Whether rewards are negative costs: feedback may give costs, and outputs show costs."""

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
        given["state_names"] = _checked_state_names(self.state_names, sizes)
        if not isinstance(self.in_costs, bool):
            raise ProblemError(f"task: in_costs is {shortened(self.in_costs)}; give true or false")
        for key, value in given.items():
            object.__setattr__(self, key, value)
        known = self.problem
        if known is not None and not (
            callable(getattr(known, "task", None))
            and known.task() == dataclasses.replace(self, **_UNTOLD, unit=ZERO_TO_ONE)
        ):
            raise ProblemError("task: its arms are not those of its problem; make it with problem.task(...)")

    @classmethod
    @refusing_keywords("Task.of_arms", OBSERVED_REMEDIES)
    def of_arms(
        cls,
        arms: Sequence[str | Mapping[str, Any]],
        n_states: int = 2,
        *,
        plays: int = 1,
        reward_law: RewardLaw | None = None,
        reward_range: Sequence[float] | None = None,
        cost_range: Sequence[float] | None = None,
        state_names: Sequence[str] | None = None,
        reacts: bool = False,
        horizon: int | None = None,
    ) -> Task:
        """Return the task of arms given by their names, all alike but for what an arm states itself.

        Parameters
        ----------
        arms
            Names, or mappings with ``name`` and any of ``n_states``, ``reward_law``, ``reward_range``, ``state_names``,
            ``reacts``, ``passive_rewards`` and ``setup_cost`` for an arm that differs.
        n_states
            The number of states; state 0 is the best.
        plays, horizon
            As for ``Problem`` and ``problem.task``.
        reward_law
            The distribution of rewards: by default ``bernoulli``, zero or one, and ``bounded``, any number within the
            range, where a range is given.
        reward_range, cost_range
            The lowest and the highest reward, (0, 1) by default, or the lowest and the highest cost: costs are
            minimized.
        state_names
            The names of the states, the best first.
        reacts
            Whether pulls change the steps of the arms.

        """
        if isinstance(arms, str | Mapping) or not isinstance(arms, Iterable):
            raise ProblemError(f"arms is {shortened(arms)}; give a list of names")
        listed: list[dict[str, Any]] = [dict(arm) if isinstance(arm, Mapping) else {"name": arm} for arm in arms]
        if cost_range is not None:
            if reward_range is not None:
                raise ProblemError("reward_range and cost_range are given; give one of the two")
            low, high = checked_range("cost_range", cost_range)
            reward_range = (0.0 - high, 0.0 - low)
        known = ("name", "n_states", "reward_law", "reward_range", "state_names", "reacts", "passive_rewards")
        for arm in listed:
            for key in arm:
                check_known(key, (*known, "setup_cost"), f"arm {shortened(arm.get('name'))} has no field")
            check_text(arm.get("name", ""), "arms: name")
        names = [arm.get("name", "") or f"arm {i + 1}" for i, arm in enumerate(listed)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ProblemError(f"two arms are called {twice!r}; give each arm its own name")
        sizes = [check_int("n_states", arm.get("n_states", n_states)) for arm in listed]
        laws: list[RewardLaw] = []
        ranges = []
        for arm in listed:
            ends = arm.get("reward_range", reward_range)
            ranges.append(ZERO_TO_ONE if ends is None else checked_range("reward_range", ends))
            default: RewardLaw = "bernoulli" if ends is None or ranges[-1] == ZERO_TO_ONE else "bounded"
            laws.append(arm.get("reward_law") or reward_law or default)
        own_names = [arm.get("state_names", state_names) for arm in listed]
        named = any(one is not None for one in own_names)
        resting = [arm.get("passive_rewards") or (0.0,) * size for arm, size in zip(listed, sizes, strict=True)]
        return cls(
            n_states=tuple(sizes),
            plays=plays,
            reward_laws=tuple(laws),
            initial=(None,) * len(listed),
            names=tuple(names),
            horizon=horizon,
            reward_ranges=tuple(ranges),
            reacts=tuple(arm.get("reacts", reacts) for arm in listed),
            passive_rewards=tuple(tuple(row) for row in resting),
            setup_costs=tuple(arm.get("setup_cost", 0.0) for arm in listed),
            state_names=tuple(
                _numbered(size) if one is None else one for one, size in zip(own_names, sizes, strict=True)
            )
            if named
            else (),
            in_costs=cost_range is not None,
        )

    def state_number(self, arm: int, state: Any) -> Any:
        """Return the number of a state given by name; a number is returned unchanged."""
        if not isinstance(state, str):
            return state
        known = self.state_names[arm] if self.state_names else ()
        if state not in known:
            hint = did_you_mean(state[:60], known) if known else "its states have no names; give the number"
            raise ProblemError(f"arm {self.names[arm]!r} has no state {shortened(state)}; {hint}")
        return known.index(state)

    def common(self) -> dict[str, Any]:
        """Return the fields that all arms have in common, by the keywords of ``Agent.add_arm``."""
        fields = {
            "n_states": self.n_states,
            "reward_law": self.reward_laws,
            "reward_range": self.reward_ranges,
            "reacts": self.reacts,
            "passive_rewards": self.passive_rewards,
            "setup_cost": self.setup_costs,
            "state_names": self.state_names,
        }
        return {key: values[0] for key, values in fields.items() if len(set(values)) == 1}

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
        arm = {
            "reacts": False,
            "setup_costs": 0.0,
            "passive_rewards": (0.0,) * arm["n_states"],
            "state_names": _numbered(arm["n_states"]),
        } | arm
        zeros: dict[str, Any] = {
            "passive_rewards": tuple((0.0,) * size for size in self.n_states),
            "setup_costs": (0.0,) * self.n_arms,
        }
        if "state_names" in arm and arm["state_names"] != _numbered(arm["n_states"]):
            zeros["state_names"] = tuple(map(_numbered, self.n_states))
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
            what = f"reward {value!r}"
            if self.in_costs:
                what, low, high = f"cost {0.0 - value!r}", 0.0 - high, 0.0 - low
            raise ProblemError(f"arm {name!r}: {what} is not between {low:.12g} and {high:.12g}")
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


# The constructor of a dataclass is written by its decorator, so it is wrapped here.
Task.__init__ = refusing_keywords("Task", OBSERVED_REMEDIES)(Task.__init__)  # type: ignore[method-assign]


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
_OF_ARMS = (*_ALWAYS, "rewards", "mixing", "passive_rewards", "setup_costs", "state_names")


def _numbered(size: int) -> tuple[str, ...]:
    """The names of states without names: their numbers."""
    return tuple(map(str, range(size)))


def _checked_state_names(names: Any, sizes: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    """Return the names of states, different within each arm."""
    if not isinstance(names, list | tuple) or len(names) not in (0, len(sizes)):
        raise ProblemError(f"task: state_names is {shortened(names)}; give names for each of {len(sizes)} arms")
    found = []
    for i, (row, size) in enumerate(zip(names, sizes, strict=False)):
        if isinstance(row, str) or not isinstance(row, Iterable) or len(listed := list(row)) != size:
            raise ProblemError(f"state_names is {shortened(row)}; give a name for each of {size} states, best first")
        for name in listed:
            check_text(name, f"task: state_names[{i}]")
        if len(set(listed)) < size:
            raise ProblemError(f"state_names is {shortened(row)}; give each state its own name")
        found.append(tuple(listed))
    return tuple(found)


_UNTOLD: dict[str, Any] = dict.fromkeys(("horizon", "rewards", "mixing", "problem")) | {"state_names": ()}


REVEALABLE = ("rewards", "mixing", "problem")


def task_fields(task: Task) -> dict[str, Any]:
    """Return the fields of a task for storage; names of states and costs only where there are some."""
    return {key: value for key, value in vars(task).items() if value or key not in ("state_names", "in_costs")}
