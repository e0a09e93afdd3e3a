"""Restless-bandit problems as data: arms, problems, and the part of a problem that a learner may know.

The slot standard, common to the whole package. Slots are t = 1..T. In each slot

1. the player picks ``plays`` arms,
2. of each it sees the present state and a random reward whose mean is ``rewards[state]``,
3. every chain takes one step, seen or not.

Initial states lie one step before slot 1. All knowledge of an arm is therefore the pair (last observed state, slots
since then τ ≥ 1), and its present state has the distribution ``P^τ[last observed state]``. States count from 0 and
**state 0 is the best** (Assumption 1 of Wang, Huang, Lui 2020: rewards do not increase with the state). The package
does not require the assumption; ``Problem.assumptions`` tests it. An arm without an initial state starts from its
stationary distribution.

Rewards are in the user's units, within a range for each arm: see ``rewards``.

*Changes.* From a slot t on an arm may have another chain, or other mean rewards. The step into slot t, at the end of
slot t − 1, is the first step of the new chain, and slot t the first with the new rewards. A piece from slot t on is
therefore a separate problem, with initial states one step before its first slot. For an arm last observed in s in slot
r < t, the state in slot u ≥ t has the distribution ``P_old^(t−1−r) P_new^(u−t+1)[s]``. Learners are not informed of
changes.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from restless_bandits import markov
from restless_bandits.arrays import Array, BoolArray, IntArray, is_number, is_whole, plain, probability, whole, wholes
from restless_bandits.assumptions import ASSUMPTIONS, Assumption, assumptions_of, complaint
from restless_bandits.errors import ProblemError, check_known, did_you_mean, shortened
from restless_bandits.files import save_file
from restless_bandits.problem_files import (
    ARM_KEYS,
    CHANGE_KEYS,
    RANDOM_KINDS,
    builtin_problems,
    builtin_text,
    parse_problem,
    problem_text,
    random_chain,
    read_problem_file,
)
from restless_bandits.rewards import (
    REWARD_LAWS,
    ZERO_TO_ONE,
    Range,
    RewardLaw,
    checked_range,
    checked_spread,
    common_range,
    outside,
    range_within,
    share_sums,
    shares_of,
)

MOST_SLOTS = 1 << 62
"""Slots that can be counted in 64 bits."""
ROW_SUM_TOLERANCE = 1e-9
"""The largest accepted deviation of a row sum from 1; within it, distributions use the row divided by its sum."""


def _numbers(value: Any, what: str, dimensions: int) -> Array:
    """Return an array of finite numbers of a given dimension; an error names the faulty entry."""
    shape = {1: "a list of numbers", 2: "a list of rows of numbers", 3: "a stack of matrices"}[dimensions]
    try:
        raw = np.asarray(value)
    except ValueError:
        lengths = [len(row) if isinstance(row, Sequence) else 1 for row in value]
        raise ProblemError(
            f"{what}: rows have different lengths {lengths}; give every row as many entries as there are states"
        ) from None
    if raw.ndim != dimensions or raw.size == 0 or raw.dtype.kind not in "iuf":
        raise ProblemError(f"{what} must be {shape}, not {shortened(value)}")
    numbers = raw.astype(np.float64) + 0.0
    _refuse(what, numbers, ~np.isfinite(numbers), "is {:.12g}; it must be a finite number")
    return numbers


def _refuse(what: str, numbers: Array, bad: BoolArray, why: str) -> None:
    """Raise with the place and the value of the first bad number, if any number is bad."""
    if bad.any():
        first = tuple(np.argwhere(bad)[0].tolist())
        raise ProblemError(what + "".join(f"[{i}]" for i in first) + " " + why.format(numbers[first]))


def _check_laws(laws: Array, what: str) -> None:
    """Check that the last axis holds probability distributions."""
    outside = (laws < 0) | (laws > 1 + ROW_SUM_TOLERANCE)
    _refuse(what, laws, outside, "is {:.12g}; a probability must lie between 0 and 1")
    sums = laws.sum(axis=-1)
    wrong = np.abs(sums - 1.0) > ROW_SUM_TOLERANCE
    _refuse(what, sums, wrong, "sums to {:.12g}, not 1; make its probabilities add up to one")


def _check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise ProblemError(f"{what} must be a string, not {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ProblemError(f"{what} {text!r} holds half of a character; write it anew") from None


def proper_chains(transitions: Array) -> Array:
    """Return transition matrices in their normalized form: see ``Arm.chain``."""
    possible = np.where(transitions < 1e-150, 0.0, transitions)
    return np.asarray(possible / possible.sum(axis=-1, keepdims=True))


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class _BaseArm:
    """The common part of all arms: mean rewards, name, initial state or none, distribution and range of the rewards."""

    rewards: Array
    name: str = dataclasses.field(default="", kw_only=True)
    initial: int | None = dataclasses.field(default=None, kw_only=True)
    reward_law: RewardLaw = dataclasses.field(default="bernoulli", kw_only=True)
    reward_range: Range = dataclasses.field(default=ZERO_TO_ONE, kw_only=True)
    reward_spread: float | None = dataclasses.field(default=None, kw_only=True)

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.rewards)

    @property
    def _label(self) -> str:
        return f"arm {self.name!r}: " if self.name else "arm: "

    @property
    def one_step(self) -> Array:
        """The distribution of the state one slot after each state."""
        raise NotImplementedError

    @cached_property
    def limits(self) -> Array:
        """Row s is the long-run share of time in each state if the arm is pulled in every slot, starting from s."""
        return _frozen(markov.limit_laws(self.one_step))

    @cached_property
    def is_ergodic(self) -> bool:
        """Whether an arm pulled in every slot forgets its start: one recurrent class, without a period."""
        return markov.is_ergodic(self.one_step)

    def _set_common(
        self,
        rewards: npt.ArrayLike,
        name: str,
        initial: int | None,
        reward_law: RewardLaw,
        reward_range: Sequence[float],
        reward_spread: float | None,
    ) -> None:
        _check_text(name, "arm: name")
        object.__setattr__(self, "name", name)
        means = _numbers(rewards, self._label + "rewards", 1)
        check_known(reward_law, REWARD_LAWS, f"{self._label}unknown reward_law")
        ends = checked_range(f"{self._label}reward_range", reward_range)
        spread = checked_spread(f"{self._label}reward_spread", reward_law, reward_spread)
        why = f"is {{:.12g}}; means must lie between {ends[0]:.12g} and {ends[1]:.12g}"
        remedy = "; widen the reward_range" if ends != ZERO_TO_ONE else ", or give a reward_range such as [0, 54]"
        _refuse(self._label + "rewards", means, outside(means, ends), why + remedy)
        if initial is not None and (not is_whole(initial) or not 0 <= initial < len(means)):
            raise ProblemError(
                f"{self._label}initial is {initial!r}; it must be a state from 0 to {len(means) - 1}, "
                "or be left out if unknown"
            )
        object.__setattr__(self, "rewards", _frozen(means))
        object.__setattr__(self, "initial", None if initial is None else int(initial))
        object.__setattr__(self, "reward_law", reward_law)
        object.__setattr__(self, "reward_range", ends)
        object.__setattr__(self, "reward_spread", spread)

    def _content(self) -> tuple[Any, ...]:
        """The numbers of the arm, without its name."""
        numbers = self.rewards.tobytes(), self.initial, self.reward_law
        # Default values are left out, to keep the seeds and stored runs of arms that use them.
        if self.reward_range == ZERO_TO_ONE and self.reward_spread is None:
            return numbers
        return *numbers, self.reward_range, self.reward_spread

    def _shown(self, laws: str) -> str:
        """The arm as a Python expression, ``laws`` included; default values are left out."""
        fields = (
            ("name", ""),
            ("initial", None),
            ("reward_law", "bernoulli"),
            ("reward_range", ZERO_TO_ONE),
            ("reward_spread", None),
        )
        others = [f"{key}={getattr(self, key)!r}" for key, default in fields if getattr(self, key) != default]
        return f"{type(self).__name__}({', '.join([laws, f'rewards={self.rewards.tolist()}', *others])})"

    def named(self, name: str) -> Self:
        """Return the same arm under another name."""
        other = copy.copy(self)
        object.__setattr__(other, "name", name)
        return other

    def in_shares_of(self, common: Range) -> Self:
        """Return the same arm with rewards as shares of a range that contains the arm's own range."""
        other = copy.copy(self)
        ends = range_within(self.reward_range, common)
        object.__setattr__(other, "rewards", _frozen(np.clip(shares_of(self.rewards, common), *ends)))
        object.__setattr__(other, "reward_range", ends)
        return other

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, _BaseArm)
        return self.name == other.name and self._content() == other._content()

    def __hash__(self) -> int:
        return hash((self.name, self._content()))


@dataclass(frozen=True, eq=False)
class Arm(_BaseArm):
    """A Markov chain with a mean reward for each state.

    >>> arm = Arm(transitions=[[0.7, 0.3], [0.2, 0.8]], rewards=[1, 0])
    >>> arm.law_table(2)[2].round(3).tolist()
    [[0.55, 0.45], [0.3, 0.7], [0.4, 0.6]]

    Parameters
    ----------
    transitions
        Row s is the distribution of the state one slot after s.
    rewards
        Mean rewards by state, best first, within ``reward_range``.
    name
        The name of the arm; a problem calls arms without a name by their numbers.
    initial
        The state one step before slot 1, if known.
    reward_law
        ``bernoulli``, ``fixed``, ``bounded`` or ``beta``: see ``rewards``.
    reward_range
        The lowest and the highest reward that the arm can pay, in your units.
    reward_spread
        The standard deviation of a ``beta`` distribution as a share of the largest possible, strictly between 0 and 1.

    """

    transitions: Array = dataclasses.field(kw_only=True)

    def __init__(
        self,
        transitions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Sequence[float] = ZERO_TO_ONE,
        reward_spread: float | None = None,
    ) -> None:
        self._set_common(rewards, name, initial, reward_law, reward_range, reward_spread)
        matrix = _numbers(transitions, self._label + "transitions", 2)
        n = self.n_states
        if matrix.shape != (n, n):
            raise ProblemError(
                f"{self._label}transitions has {matrix.shape[0]} rows of {matrix.shape[1]} entries, but there are "
                f"{n} rewards; give {n} rows of {n}"
            )
        _check_laws(matrix, self._label + "transitions")
        object.__setattr__(self, "transitions", _frozen(matrix))

    @classmethod
    def two_state(
        cls,
        stay_best: float,
        stay_worst: float,
        rewards: tuple[float, float] = (1.0, 0.0),
        *,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Sequence[float] = ZERO_TO_ONE,
        reward_spread: float | None = None,
    ) -> Self:
        """Return a two-state arm from the probabilities of staying in its best and in its worst state."""
        label = f"arm {name!r}: " if name else "arm: "
        for word, value in (("stay_best", stay_best), ("stay_worst", stay_worst)):
            probability(label + word, value)
        # 1 − p as a person would write it: 0.3 for 0.7, not 0.30000000000000004.
        leave_best, leave_worst = (round(1.0 - stay, 15) for stay in (stay_best, stay_worst))
        rows = [[stay_best, leave_best], [leave_worst, stay_worst]]
        paying: Any = {"reward_law": reward_law, "reward_range": reward_range, "reward_spread": reward_spread}
        return cls(rows, rewards, name=name, initial=initial, **paying)

    @cached_property
    def chain(self) -> Array:
        """The normalized transition matrix. Rows sum to one as nearly as doubles can. Probabilities below 1e-150 are
        zero: no run will ever see such a transition, and ratios of these numbers would overflow.
        """
        return _frozen(proper_chains(self.transitions))

    @property
    def one_step(self) -> Array:
        return self.chain

    @cached_property
    def stationary(self) -> Array:
        """The stationary distribution; of several, the limit from the uniform distribution."""
        return _frozen(self.limits.mean(axis=0))

    def changed(self, transitions: npt.ArrayLike | None = None, rewards: npt.ArrayLike | None = None) -> Arm:
        """Return the same arm with another chain, other mean rewards, or both."""
        return Arm(
            self.transitions if transitions is None else transitions,
            self.rewards if rewards is None else rewards,
            name=self.name,
            initial=self.initial,
            reward_law=self.reward_law,
            reward_range=self.reward_range,
            reward_spread=self.reward_spread,
        )

    def law_table(self, length: int) -> Array:
        """Return ``laws[τ][s]`` for τ = 0..length: the distribution of the state τ slots after s, by powers of the
        chain.

        An arm with an unknown initial state has one more row, s = n_states, for an arm never observed.
        """
        stack = markov.powers(self.chain, length)
        if self.initial is None:
            unseen = np.broadcast_to(self.stationary, (length + 1, 1, self.n_states))
            stack = np.concatenate([stack, unseen], axis=1)
        return stack

    def _content(self) -> tuple[Any, ...]:
        return "arm", self.transitions.tobytes(), *super()._content()

    def __repr__(self) -> str:
        return self._shown(f"transitions={self.transitions.tolist()}")


@dataclass(frozen=True, eq=False)
class TableArm(_BaseArm):
    """An arm given directly by its distributions: ``laws[τ][s, k]``, the probability of state k, τ slots after s.

    ``laws[0]`` is the identity; a table without the identity at its start is read as beginning at τ = 1. Beyond its
    last entry a table is constant. An arm with an unknown initial state has one more row in every distribution, for
    "never observed". Optimistic problems with separate bounds for each colour are of this kind: their entries are not
    powers of one matrix. Table arms exist in Python only; the TOML format does not have them.
    """

    laws: Array = dataclasses.field(kw_only=True)

    def __init__(
        self,
        laws: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Sequence[float] = ZERO_TO_ONE,
        reward_spread: float | None = None,
    ) -> None:
        self._set_common(rewards, name, initial, reward_law, reward_range, reward_spread)
        table = _numbers(laws, self._label + "laws", 3)
        n = self.n_states
        rows = n if self.initial is not None else n + 1
        if table.shape[1:] != (rows, n):
            why = "" if self.initial is not None else " (the last row is for an arm never seen, as initial is unknown)"
            raise ProblemError(
                f"{self._label}laws holds matrices of shape {table.shape[1:]}, but {n} rewards call for "
                f"{(rows, n)}{why}"
            )
        _check_laws(table, self._label + "laws")
        if not np.array_equal(table[0, :n], np.eye(n)):
            first = np.concatenate([np.eye(n), table[0, n:]])
            table = np.concatenate([first[None], table])
        if len(table) < 2:
            raise ProblemError(f"{self._label}laws holds no law for τ = 1; give at least one")
        object.__setattr__(self, "laws", _frozen(table))

    @property
    def one_step(self) -> Array:
        return self.laws[1, : self.n_states]

    @property
    def length(self) -> int:
        """The last τ of the table."""
        return len(self.laws) - 1

    def law_table(self, length: int) -> Array:
        """Return ``laws[τ][s]`` for τ = 0..length: the table truncated or extended."""
        if length <= self.length:
            return self.laws[: length + 1]
        tail = np.broadcast_to(self.laws[-1], (length - self.length, *self.laws.shape[1:]))
        return np.concatenate([self.laws, tail])

    def _content(self) -> tuple[Any, ...]:
        return "table", self.laws.shape, self.laws.tobytes(), *super()._content()

    def __repr__(self) -> str:
        return self._shown(f"laws=<{self.length} laws of {self.n_states} states>")


AnyArm = Arm | TableArm


def study(arms: Iterable[AnyArm]) -> None:
    """Compute chains and their limits for many arms at once: the same numbers as on demand, sooner."""
    sizes: dict[int, list[Arm]] = {}
    for arm in arms:
        if isinstance(arm, Arm) and "limits" not in vars(arm):
            sizes.setdefault(arm.n_states, []).append(arm)
    for alike in sizes.values():
        chains = proper_chains(np.array([arm.transitions for arm in alike]))
        regular = np.flatnonzero(markov.are_regular(chains))
        chains = _frozen(chains[regular])
        limits = _frozen(np.repeat(markov.irreducible_laws(chains)[:, None], chains.shape[1], axis=1))
        stationary = _frozen(limits.mean(axis=1))
        known = [alike[i] for i in regular.tolist()]
        for arm, *found in zip(known, chains, limits, stationary, strict=True):
            vars(arm).update(zip(("chain", "limits", "stationary"), found, strict=True), is_ergodic=True)


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

    def __post_init__(self) -> None:
        sizes = tuple(wholes("task: n_states", self.n_states))
        n_arms = len(sizes)
        if not n_arms:
            raise ProblemError("task: n_states is empty; a task needs at least one arm")
        given: dict[str, Any] = {"n_states": sizes}
        if isinstance(self.reward_ranges, list | tuple) and not self.reward_ranges:
            object.__setattr__(self, "reward_ranges", (ZERO_TO_ONE,) * n_arms)
        for key in _OF_ARMS[1:]:
            value = getattr(self, key)
            if value is None and key in REVEALABLE:
                continue
            if not isinstance(value, list | tuple) or len(value) != n_arms:
                raise ProblemError(f"task: {key} is {shortened(value)}; give an entry for each of {n_arms} arms")
            given[key] = tuple(value)
        whole("task: plays", self.plays, 1, n_arms, "the number of arms")
        _check_horizon(self.horizon)
        for i, size in enumerate(sizes):
            check_known(given["reward_laws"][i], REWARD_LAWS, f"task: reward_laws[{i}] is")
            _check_text(given["names"][i], f"task: names[{i}]")
            if given["initial"][i] is not None:
                whole(f"task: initial[{i}]", given["initial"][i], 0, size - 1, "or None if unknown")
            if given.get("mixing") and given["mixing"][i] is not None:
                whole(f"task: mixing[{i}]", given["mixing"][i])
        ranges = [checked_range(f"task: reward_ranges[{i}]", ends) for i, ends in enumerate(given["reward_ranges"])]
        given["reward_ranges"] = tuple(ranges)
        given["unit"] = checked_range("task: unit", self.unit)
        if "rewards" in given:
            means = [_numbers(row, f"task: rewards[{i}]", 1) for i, row in enumerate(given["rewards"])]
            beyond = any(outside(row, ends).any() for row, ends in zip(means, ranges, strict=True))
            if [len(row) for row in means] != list(sizes) or beyond:
                within = "0 and 1" if set(ranges) == {ZERO_TO_ONE} else "the ends of its range"
                raise ProblemError(f"task: rewards must be a mean between {within} for each state of each arm")
            given["rewards"] = tuple(tuple(row.tolist()) for row in means)
        for key, value in given.items():
            object.__setattr__(self, key, value)
        known = self.problem
        if known is not None and not (
            isinstance(known, Problem) and known.task() == dataclasses.replace(self, **_UNTOLD, unit=ZERO_TO_ONE)
        ):
            raise ProblemError("task: its arms are not those of its problem; make it with problem.task(...)")

    @property
    def n_arms(self) -> int:
        return len(self.n_states)

    def only(self, arms: Sequence[int]) -> Task:
        """Return the task of a selection of arms, numbered in the given order."""
        own = {key: getattr(self, key) for key in _OF_ARMS}
        part: dict[str, Any] = {key: value and tuple(value[arm] for arm in arms) for key, value in own.items()}
        known = self.problem and Problem([self.problem.arms[arm] for arm in arms], plays=self.plays)
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
        more: dict[str, Any] = {key: value and (*value, arm.get(key)) for key, value in own.items()}
        return dataclasses.replace(self, **more)

    @property
    def in_shares(self) -> bool:
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

    def share_sums(self, sums: Array, seen: IntArray) -> Array:
        """Return normalized sums of rewards, by state of all arms one after the other, as shares of the arms' ranges.

        Bounds and posteriors are computed from normalized sums; ``values`` maps their results back.
        """
        if self.in_shares:
            return sums
        low, high = _flat_ranges(self.n_states, self.reward_ranges)
        shares = share_sums(sums, seen, low, high - low)
        # For rewards at the two ends of a range, sums are counts, except for rounding.
        ends = np.repeat(np.array([law == "bernoulli" for law in self.reward_laws]), self.n_states)
        return np.where(ends, np.rint(shares), shares)

    def sums(self, shares: Array, seen: IntArray) -> Array:
        """Return sums of rewards from normalized sums: the inverse of ``share_sums``."""
        if self.in_shares:
            return shares
        low, high = _flat_ranges(self.n_states, self.reward_ranges)
        return np.asarray(seen * low + (high - low) * shares)

    def values(self, shares: Array) -> Array:
        """Return normalized rewards, by state of all arms one after the other, in the units of the rewards."""
        if self.in_shares:
            return shares
        low, high = _flat_ranges(self.n_states, self.reward_ranges)
        return np.asarray(np.clip(low + (high - low) * shares, low, high))


@lru_cache(maxsize=32)
def _shared(task: Task) -> Task:
    common = task.reward_range
    ranges = tuple(range_within(ends, common) for ends in task.reward_ranges)
    rewards = task.rewards and tuple(
        tuple(np.clip(shares_of(np.array(means), common), *ends).tolist())
        for means, ends in zip(task.rewards, ranges, strict=True)
    )
    problem = None if task.problem is None else task.problem.in_shares()
    return dataclasses.replace(task, reward_ranges=ranges, rewards=rewards, problem=problem, unit=common)


@lru_cache(maxsize=32)
def _flat_ranges(n_states: tuple[int, ...], ranges: tuple[Range, ...]) -> tuple[Array, Array]:
    """The lowest and the highest reward of every state of all arms."""
    low, high = (_frozen(np.repeat(np.array(ends), n_states)) for ends in zip(*ranges, strict=True))
    return low, high


_OF_ARMS = ("n_states", "reward_laws", "reward_ranges", "initial", "names", "rewards", "mixing")
_UNTOLD: dict[str, Any] = dict.fromkeys(("horizon", "rewards", "mixing", "problem"))
REVEALABLE = ("rewards", "mixing", "problem")


def _check_horizon(horizon: int | None) -> None:
    if horizon is not None and (not is_whole(horizon) or horizon < 1):
        raise ProblemError(f"horizon is {shortened(horizon)}; where one is given, it must be a positive whole number")
    if horizon is not None and horizon > 10**100:
        raise ProblemError("horizon is beyond 10^100, where its powers are no longer numbers; give a shorter one")


def check_length(horizon: int | None) -> None:
    """Refuse to play more slots than can be counted in 64 bits; the theory's formulas take longer horizons."""
    if horizon is not None and horizon > MOST_SLOTS:
        raise ProblemError("horizon is beyond 2^62, which no run reaches; give a shorter one")


@dataclass(frozen=True)
class Findings:
    """Findings of the fit of a problem to a log, as users of the problem should know them: the table ``[fit]``."""

    rejected: str | None = None
    """The reason why the log rejects the model, in a sentence; ``None`` without a rejection or without a log."""
    findings: tuple[str, ...] = ()
    """All evidence of the log against the model, the strongest first, each item with a remedy."""

    def __post_init__(self) -> None:
        if self.rejected is not None:
            _check_text(self.rejected, "fit: rejected")
        object.__setattr__(self, "rejected", self.rejected or None)
        given: object = self.findings
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ProblemError(f"fit: findings is {shortened(given)}; give a list of sentences")
        object.__setattr__(self, "findings", tuple(given))
        for sentence in self.findings:
            _check_text(sentence, "fit: findings")

    def remark(self, done: str) -> str | None:
        """Return a line that qualifies an answer, such as ``certified for`` the model; ``None`` without findings."""
        return f"{done} a model that its log rejects: {self.rejected}" if self.rejected else None

    def as_dict(self) -> dict[str, Any]:
        """Return the findings in the form of the JSON field ``fit``."""
        return {"rejected": self.rejected, "findings": list(self.findings)}


NO_FINDINGS = Findings()


@dataclass(frozen=True, eq=False)
class Change:
    """A change of an arm from a slot on: another chain, other mean rewards, or both; see the head of this file.

    ``arm`` is the number or the name of the arm; a problem keeps the name.
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
    ) -> None:
        whole("change: slot", slot, 2, MOST_SLOTS)
        if not is_whole(arm) and not isinstance(arm, str):
            raise ProblemError(f"change at slot {slot}: arm is {shortened(arm)}; give its number or its name")
        if transitions is None and rewards is None:
            raise ProblemError(f"change at slot {slot}: nothing changes; give transitions, rewards, or both")
        object.__setattr__(self, "slot", int(slot))
        object.__setattr__(self, "arm", arm if isinstance(arm, str) else int(arm))
        for key, value, axes in (("transitions", transitions, 2), ("rewards", rewards, 1)):
            numbers = None if value is None else _frozen(_numbers(value, f"change at slot {slot}: {key}", axes))
            object.__setattr__(self, key, numbers)

    def _content(self) -> tuple[Any, ...]:
        given = (None if part is None else part.tobytes() for part in (self.transitions, self.rewards))
        return self.slot, self.arm, *given

    def __eq__(self, other: object) -> bool:
        return self._content() == other._content() if isinstance(other, Change) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content())


@dataclass(frozen=True)
class Piece:
    """An interval of slots without a change of the problem."""

    first: int
    """The first slot of the interval."""
    problem: Problem
    """The problem of this piece, with the initial states or beliefs of the full problem."""


class Problem:
    """Several arms, of which ``plays`` are pulled in each slot.

    A problem is immutable, and valid once made: an invalid problem raises ``ProblemError``. ``findings`` holds the
    findings of a fit to a log. Findings are no part of ``content`` and do not enter comparisons of problems.
    ``changes`` lists the changes of arms with their slots, and ``pieces`` the problems between the changes.

    >>> problem = Problem([Arm.two_state(0.7, 0.8), Arm.two_state(0.5, 0.6, rewards=(0.8, 0))])
    >>> problem
    <Problem: 2 arms of 2 states, 1 play>
    """

    def __init__(
        self,
        arms: Iterable[AnyArm],
        *,
        plays: int = 1,
        name: str = "",
        source: str = "",
        findings: Findings = NO_FINDINGS,
        changes: Iterable[Change] = (),
    ) -> None:
        if not isinstance(arms, Iterable):
            raise ProblemError(f"arms is {arms!r}; give a list of Arm or TableArm objects")
        arms = tuple(arms)
        if not arms:
            raise ProblemError("a problem needs at least one arm")
        for i, arm in enumerate(arms):
            if not isinstance(arm, Arm | TableArm):
                raise ProblemError(f"arms[{i}] is {arm!r}; give Arm or TableArm objects")
        _check_text(name, "name")
        _check_text(source, "source")
        if not isinstance(findings, Findings):
            raise ProblemError(f"findings is {findings!r}; give Findings, or leave it out")
        self.plays = whole("plays", plays, 1, len(arms), "the number of arms")
        named = tuple(arm if arm.name else arm.named(f"arm {i + 1}") for i, arm in enumerate(arms))
        names = Counter(arm.name for arm in named)
        twice = next((name for name, count in names.items() if count > 1), None)
        if twice is not None:
            raise ProblemError(f"two arms are called {twice!r}; give each arm its own name")
        self.arms, self.name, self.source, self.findings = named, name, source, findings
        if not isinstance(changes, Iterable) or isinstance(changes, str | Mapping):
            raise ProblemError(f"changes is {shortened(changes)}; give a list of Change objects")
        self.changes = self._checked(tuple(changes))
        if self.changes:
            _ = self.pieces  # An arm that cannot change so says so now.

    def _checked(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Changes in the order of their slots, arms by name."""
        found = []
        for i, change in enumerate(changes):
            if not isinstance(change, Change):
                raise ProblemError(f"changes[{i}] is {shortened(change)}; give Change objects")
            number = change.arm if isinstance(change.arm, int) else self.arm_number(change.arm)
            if not 0 <= number < self.n_arms:
                raise ProblemError(f"changes[{i}]: there is no arm {number}; arms are 0 to {self.n_arms - 1}")
            found.append(dataclasses.replace(change, arm=self.arms[number].name))
        found.sort(key=lambda change: change.slot)
        twice = Counter((change.slot, change.arm) for change in found).most_common(1)
        if twice and twice[0][1] > 1:
            slot, arm = twice[0][0]
            raise ProblemError(f"arm {arm!r} changes twice at slot {slot}; say it in one change")
        return tuple(found)

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Read a problem from a TOML file; errors name the file."""
        return cls.from_toml(read_problem_file(path), origin=str(path))

    @classmethod
    def from_toml(cls, text: str, *, origin: str = "problem") -> Problem:
        """Return the problem of a TOML text; ``origin`` names the text in error messages."""
        head, arms, changes = parse_problem(text, origin)
        try:
            findings = Findings(**head.pop("fit", {}))
            changed = [Change(**change) for change in changes]
            return cls([Arm(**arm) for arm in arms], **head, findings=findings, changes=changed)
        except ProblemError as error:
            raise ProblemError(f"{origin}: {error}") from None

    @classmethod
    def builtin(cls, name: str) -> Problem:
        """Return a problem of the package by its name; ``builtin_problems()`` lists the names."""
        return cls.from_toml(builtin_text(name), origin=name)

    def to_toml(self) -> str:
        """Return the problem as TOML; reading the text returns the same problem, number for number."""
        tables = []
        for arm in self.arms:
            if isinstance(arm, TableArm):
                raise ProblemError(f"arm {arm.name!r} is a TableArm, which has no TOML form; keep it in Python")
            ends = None if arm.reward_range == ZERO_TO_ONE else plain(arm.reward_range)
            tables.append({key: plain(getattr(arm, key)) for key in ARM_KEYS} | {"reward_range": ends})
        head = {"name": self.name, "source": self.source, "plays": self.plays}
        changes = [{key: plain(getattr(change, key)) for key in CHANGE_KEYS} for change in self.changes]
        return problem_text(head, self.findings.as_dict(), tables, changes)

    def save(self, path: str | Path) -> None:
        """Write the problem to a TOML file, atomically."""
        save_file(path, self.to_toml().encode())

    @classmethod
    def random(
        cls,
        n_arms: int = 2,
        n_states: int | Sequence[int] = 2,
        *,
        seed: int | np.random.Generator | None = None,
        plays: int = 1,
        kind: Literal["paper", "birth-death", "general"] = "paper",
        floor: float = 0.02,
        initial: Literal["random", "worst", "unknown"] = "random",
        reward_law: RewardLaw = "bernoulli",
    ) -> Problem:
        """Draw a problem.

        Rows are uniform over the distributions that the kind allows, rewards uniform and sorted. ``paper`` keeps
        Assumptions 1 to 4 with c1 ≥ ``floor``; ``birth-death`` keeps 1 and 2 only: chains may be negatively correlated;
        and ``general`` keeps Assumption 1 alone. Each row is redrawn, given the row above, until the assumptions hold.
        """
        if kind not in RANDOM_KINDS:
            raise ProblemError(f"unknown kind {kind!r} of random problem; {did_you_mean(str(kind), RANDOM_KINDS)}")
        if initial not in ("random", "worst", "unknown"):
            raise ProblemError(f"initial is {initial!r}; choose from random, worst, unknown")
        if not 0 <= floor < 1 / 3:
            raise ProblemError(f"floor is {floor!r}; three neighbours leave room only for less than 1/3")
        whole("n_arms", n_arms)
        sizes = list(n_states) if isinstance(n_states, Iterable) else [n_states] * n_arms
        if len(sizes) != n_arms or not all(is_whole(size) and size >= 1 for size in sizes):
            raise ProblemError(f"n_states is {n_states!r}; give one number of states, or one for each of {n_arms} arms")
        try:
            rng = np.random.default_rng(seed)
        except (TypeError, ValueError):
            raise ProblemError(f"seed is {seed!r}; give a whole number that is not negative") from None
        arms = []
        for i, size in enumerate(sizes):
            transitions = random_chain(rng, size, kind, floor)
            rewards = np.sort(rng.random(size))[::-1]
            start = {"random": int(rng.integers(size)), "worst": size - 1, "unknown": None}[initial]
            arms.append(Arm(transitions, rewards, name=f"arm {i + 1}", initial=start, reward_law=reward_law))
        return cls(arms, plays=plays, name=f"random {kind}")

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The problems between changes, each from its first slot on; a problem without changes has one piece."""
        if not self.changes:
            return (Piece(1, self),)
        firsts = sorted({1, *(change.slot for change in self.changes)})
        arms, found = list(self.arms), []
        for slot, after in zip(firsts, [*firsts[1:], None], strict=True):
            for change in (change for change in self.changes if change.slot == slot):
                number = self.arm_number(str(change.arm))
                arm = arms[number]
                if arm.reward_law == "fixed" and change.rewards is not None:
                    raise ProblemError(
                        f"change at slot {slot}: arm {arm.name!r} has fixed rewards, which learners take never to "
                        "change; give it another reward_law"
                    )
                if not isinstance(arm, Arm):
                    raise ProblemError(
                        f"change at slot {slot}: arm {arm.name!r} is a table of distributions, which cannot change"
                    )
                try:
                    arms[number] = arm.changed(change.transitions, change.rewards)
                except ProblemError as error:
                    raise ProblemError(f"change at slot {slot}: {error}") from None
            slots = f"from slot {slot} on" if after is None else f"slots {slot} to {after - 1}"
            name = f"{self.name}, {slots}" if self.name else slots
            of_all: dict[str, Any] = {key: getattr(self, key) for key in ("plays", "source", "findings")}
            found.append(Piece(slot, Problem(arms, name=name, **of_all)))
        return tuple(found)

    @cached_property
    def reward_range(self) -> Range:
        """The smallest range that contains the rewards of all arms."""
        return common_range(arm.reward_range for arm in self.arms)

    def in_shares(self) -> Problem:
        """Return the same problem with rewards as shares of ``reward_range``: the problem itself for (0, 1)."""
        return self if self.reward_range == ZERO_TO_ONE else self._shares

    @cached_property
    def _shares(self) -> Problem:
        common = self.reward_range
        arms = [arm.in_shares_of(common) for arm in self.arms]
        changes = []
        for change in self.changes:
            ends = arms[self.arm_number(str(change.arm))].reward_range
            rewards = None if change.rewards is None else np.clip(shares_of(change.rewards, common), *ends)
            changes.append(dataclasses.replace(change, rewards=rewards))
        about: dict[str, Any] = {key: getattr(self, key) for key in ("plays", "name", "source", "findings")}
        return Problem(arms, changes=changes, **about)

    def require_drawn(self) -> None:
        """Raise ``ProblemError`` for an arm with an unknown reward distribution: no simulator can draw its rewards."""
        for arm in self.arms:
            if arm.reward_law == "bounded":
                raise ProblemError(
                    f"arm {arm.name!r} has bounded rewards of unknown distribution, which cannot be drawn; "
                    "give it reward_law 'beta' and a reward_spread"
                )

    def require_steady(self, what: str) -> None:
        """Raise ``ProblemError`` for a problem with changes; ``what`` names the caller, which accepts constant
        problems only.
        """
        if self.changes:
            raise ProblemError(
                f"the problem changes at slot {self.changes[0].slot}, and {what} is for problems that do not; take a "
                "piece of it, as problem.pieces[0].problem"
            )

    @property
    def n_arms(self) -> int:
        return len(self.arms)

    @property
    def n_states(self) -> tuple[int, ...]:
        return tuple(arm.n_states for arm in self.arms)

    @property
    def initial(self) -> tuple[int | None, ...]:
        return tuple(arm.initial for arm in self.arms)

    @cached_property
    def content(self) -> str:
        """A hash of the numbers alone, without names and sources. Seeds and stored results depend on the hash."""
        digest = hashlib.sha256(str(self.plays).encode())
        for arm in self.arms:
            for part in arm._content():
                digest.update(part if isinstance(part, bytes) else repr(part).encode())
                digest.update(b"|")
        for change in self.changes:
            slot, arm, *numbers = change._content()
            for part in ("change", slot, self.arm_number(str(arm)), *numbers):
                digest.update(part if isinstance(part, bytes) else repr(part).encode())
                digest.update(b"|")
        return digest.hexdigest()

    def arm_number(self, name: str) -> int:
        """Return the position of the arm with a given name."""
        names = [arm.name for arm in self.arms]
        check_known(name, names, "there is no arm")
        return names.index(name)

    def task(self, horizon: int | None = None, *, reveal: Iterable[str] = ()) -> Task:
        """Return the part of the problem that a learner may know: the shape, and the items that ``reveal`` names.

        ``mixing`` reveals, for each arm, the slots until its distribution is within 1/√horizon of the stationary
        distribution.
        """
        _check_horizon(horizon)
        wanted = {reveal} if isinstance(reveal, str) else set(reveal)
        for word in sorted(wanted):
            check_known(word, REVEALABLE, "cannot reveal")
        mixing: tuple[int | None, ...] | None = None
        if "mixing" in wanted:
            if horizon is None:
                raise ProblemError("mixing times are revealed to 1/√horizon; give a horizon")
            near = 1 / math.sqrt(horizon)
            mixing = tuple(
                markov.mixing_time(arm.chain, near) if isinstance(arm, Arm) else arm.length for arm in self.arms
            )
        return Task(
            n_states=self.n_states,
            plays=self.plays,
            reward_laws=tuple(arm.reward_law for arm in self.arms),
            initial=self.initial,
            names=tuple(arm.name for arm in self.arms),
            horizon=None if horizon is None else int(horizon),
            rewards=tuple(tuple(arm.rewards.tolist()) for arm in self.arms) if "rewards" in wanted else None,
            mixing=mixing,
            problem=self if "problem" in wanted else None,
            reward_ranges=tuple(arm.reward_range for arm in self.arms),
        )

    @cached_property
    def assumptions(self) -> Mapping[str, Assumption]:
        """The paper's Assumptions 1 to 4 over all pieces, each with the arm, state and value that decide it."""
        arms = (arm for piece in self.pieces for arm in piece.problem.arms)
        return assumptions_of((arm.name, arm.one_step, arm.rewards) for arm in arms)

    def require(self, *names: str) -> None:
        """Raise ``ProblemError`` for the first violation among the named assumptions.

        >>> Problem([Arm([[0.5, 0.5], [0.5, 0.5]], [0, 1])]).require("monotone")
        Traceback (most recent call last):
        ...
        restless_bandits.errors.ProblemError: arm 'arm 1': rewards[1] exceeds rewards[0] by 1; order the states ...
        """
        for name in names:
            check_known(name, ASSUMPTIONS, "there is no assumption")
            if not self.assumptions[name].holds:
                raise ProblemError(complaint(name, self.assumptions[name]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        parts = ("arms", "plays", "name", "source", "changes")
        return all(getattr(self, part) == getattr(other, part) for part in parts)

    def __hash__(self) -> int:
        return hash(self.content)

    def __repr__(self) -> str:
        sizes = sorted(set(self.n_states))
        states = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        plural = "s" if self.n_arms > 1 else ""
        title = f" {self.name!r}" if self.name else ""
        of = f"{self.n_arms} arm{plural} of {states} state{'s' if sizes[-1] > 1 else ''}"
        doubt = ", rejected by its log" if self.findings.rejected else ""
        changes = f", {len(self.changes)} change{'s' if len(self.changes) > 1 else ''}" if self.changes else ""
        return f"<Problem{title}: {of}, {self.plays} play{'s' if self.plays > 1 else ''}{changes}{doubt}>"


def check_problem(given: object) -> None:
    """Refuse values that are not problems, above all names: functions of Python take the problem itself."""
    if not isinstance(given, Problem):
        makes = f"load_problem({given!r})" if isinstance(given, str | Path) else "Problem([...])"
        raise ProblemError(f"problem is {shortened(given)}; give a Problem, such as restless_bandits.{makes} makes")


def load_problem(name_or_path: str | Path) -> Problem:
    """Return a built-in problem by its name, or a problem from a TOML file: the meaning of ``PROBLEM`` on the command
    line.
    """
    text = str(name_or_path)
    if text in builtin_problems():
        return Problem.builtin(text)
    path = Path(text)
    try:
        is_file = path.suffix == ".toml" or path.exists() or len(path.parts) > 1
    except (OSError, ValueError):
        is_file = True
    if is_file:
        return Problem.load(path)
    hint = did_you_mean(text, builtin_problems())
    raise ProblemError(
        f"there is no built-in problem {text!r} and no such file; {hint} (`restless problems` lists them)"
    )
