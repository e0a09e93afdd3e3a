"""Policies as data: functions from the present belief (last observed states, elapsed slots) to the arms to pull.

A policy takes a single situation, ``policy(last_states, elapsed)``, or many situations at once,
``policy.choose(last_states, elapsed)``, one row each. A state never observed is ``None`` in the first form and
``UNKNOWN`` (−1) in the second. Ties go to the lowest arm number, with a tolerance of 1e-12.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import read_archive, save_file
from restless_bandits._internal.validation import ActionArray, Array, IntArray, check_int, check_ints
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.processes.beliefs import (
    UNKNOWN,
    HiddenProcess,
    JointBeliefs,
    columns_of,
    has_lost_row,
    numbered_beliefs,
    rows_of,
    table_period,
)

TIE = 1e-12
SMALL_TABLE_BELIEFS = 64
"""The largest number of outcomes of all choices for which plain Python evaluates a single situation."""

STORED_NAMES = ("law", "passive", "first", "deviation", "rewards", "numbers", "period", "start")
"""The arrays of an arm in a stored ``JointPolicy``."""

OBSERVED_KINDS = ("PriorityPolicy", "RandomizedPolicy", "CountTablePolicy", "JointStatePolicy")
STORED_KINDS = {
    **dict.fromkeys(("IndexPolicy", "JointPolicy"), __name__),
    **dict.fromkeys(OBSERVED_KINDS, "restless_bandits.policies.observed"),
    "LookaheadPolicy": "restless_bandits.policies.lookahead",
    "HorizonPolicy": "restless_bandits.policies.finite_horizon",
}
"""The kinds of stored policies, with the module of each."""


class Policy:
    """The interface of every policy; a new kind defines ``choose``, and ``to_arrays`` for storage."""

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        """Return the arms to pull, one row for each situation: ``plays`` arm numbers in ascending order."""
        raise NotImplementedError

    def __call__(self, last_states: Sequence[int | None], elapsed: Sequence[int]) -> int | tuple[int, ...]:
        """Return the arm to pull, or a tuple of arms for several plays."""
        if len(last_states) != len(elapsed) or any(tau < 1 for tau in elapsed):
            raise ProblemError(
                f"elapsed is {list(elapsed)!r} for last states {list(last_states)!r}; give at least 1 for every arm"
            )
        states = [UNKNOWN if s is None else s for s in last_states]
        self.check(states)
        arms = self.choose(np.array([states], dtype=np.int64), np.array([elapsed], dtype=np.int64))[0].tolist()
        return int(arms[0]) if len(arms) == 1 else tuple(arms)

    def check(self, last_states: Sequence[int]) -> None:
        """Raise ``ProblemError`` for states outside the arms of this policy."""
        sizes = self.n_states
        if sizes is None:
            return
        if len(sizes) != len(last_states):
            raise ProblemError(f"this policy is for {len(sizes)} arms, but {len(last_states)} states were given")
        for i, (state, size) in enumerate(zip(last_states, sizes, strict=True)):
            if state != UNKNOWN and not (isinstance(state, int | np.integer) and 0 <= state < size):
                raise ProblemError(f"arm {i} has no state {state!r}; its states are 0 to {size - 1}")

    @property
    def n_states(self) -> tuple[int, ...] | None:
        """Numbers of states of the policy's arms; None for a policy that accepts any arms."""
        return None

    def choose_now(self, record: Record) -> list[int]:
        """Return the arms to pull in the coming slot of a run."""
        chosen: list[int] = self.choose(record.last_states[None], record.elapsed[None])[0].tolist()
        return chosen

    def choose_among(self, record: Record, arms: Sequence[int]) -> list[int]:
        """Return the arms to pull in the coming slot among the available arms, given in ascending order.

        By default: the available arms of the unrestricted choice, then the arms that have waited longest. A policy with
        a better rule defines its own method. No policy foresees the availability of arms.
        """
        chosen = self.choose_now(record)
        kept = [arm for arm in chosen if arm in arms]
        spare = [arm for arm in arms if arm not in kept]
        waited = record.elapsed[spare].astype(np.float64)
        more = top_arms(waited[None], len(chosen) - len(kept))[0].tolist() if len(kept) < len(chosen) else []
        return sorted([*kept, *(spare[place] for place in more)])

    def __repr__(self) -> str:
        sizes = self.n_states
        if sizes is None:
            return f"<{type(self).__name__}>"
        states = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
        return f"<{type(self).__name__}: {len(sizes)} arm{'s' if len(sizes) > 1 else ''} of {states} states>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self)[1:-1])}</p>"

    def to_arrays(self) -> dict[str, Any]:
        """Return the fields as arrays, for storage; a kind without storage raises ``ProblemError``."""
        raise ProblemError(f"a {type(self).__name__} cannot be stored")

    def __eq__(self, other: object) -> bool:
        """Whether two policies are of the same kind with the same numbers."""
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Policy)
        try:
            mine, theirs = self.to_arrays(), other.to_arrays()
        except ProblemError:
            mine, theirs = vars(self), vars(other)
        return mine.keys() == theirs.keys() and all(np.array_equal(mine[key], theirs[key]) for key in mine)

    def __hash__(self) -> int:
        return hash((type(self), self.n_states))

    def save(self, path: str | Path) -> None:
        """Store the policy in an .npz file, atomically; ``load_policy`` reads the file."""
        arrays = self.to_arrays()
        save_file(path, lambda file: np.savez(file, kind=np.array(type(self).__name__), **arrays))


def top_arms(scores: Array, plays: int) -> IntArray:
    """Return for each row the ``plays`` highest scores, in ascending order of arms; ties go to lower numbers."""
    left = scores.copy()
    rows = np.arange(len(left))
    chosen = np.empty((len(left), plays), dtype=np.int64)
    for k in range(plays):
        most = left.max(axis=1, keepdims=True)
        near = (left >= most - TIE) | (left == most)
        chosen[:, k] = near.argmax(axis=1)
        left[rows, chosen[:, k]] = -np.inf
    chosen.sort(axis=1)
    return chosen


class FlatTables(NamedTuple):
    """The tables of an ``IndexPolicy`` in the layout of the kernels: concatenated, with the offset of each table."""

    table: Array
    base: IntArray
    length: IntArray
    period: IntArray


class ScoredPolicy(Policy):
    """Pull the arms of highest score; a new kind defines ``scores``, also used for choices among available arms."""

    plays: int

    def scores(self, last_states: IntArray, elapsed: IntArray) -> Array:
        """Return the score of every arm, one row for each situation."""
        raise NotImplementedError

    def scores_now(self, record: Record) -> Array:
        """Return the score of every arm in the coming slot of a run."""
        scores: Array = self.scores(record.last_states[None], record.elapsed[None])[0]
        return scores

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        return top_arms(self.scores(last_states, elapsed), self.plays)

    def choose_now(self, record: Record) -> list[int]:
        chosen: list[int] = top_arms(self.scores_now(record)[None], self.plays)[0].tolist()
        return chosen

    def choose_among(self, record: Record, arms: Sequence[int]) -> list[int]:
        places = top_arms(self.scores_now(record)[None, list(arms)], self.plays)[0].tolist()
        return [arms[place] for place in places]


@dataclass(frozen=True, eq=False, repr=False)
class IndexPolicy(ScoredPolicy):
    """Pull the arms of highest index; the index of an arm depends on its own belief alone.

    ``tables[arm][s, τ - 1]``; beyond its last column a table is constant, or steps back by the period of the arm. The
    last row, s = n_states, is for an arm never observed. Tables of equal shape may be passed as one array, without a
    split for a learner that plans often.
    """

    tables: tuple[Array, ...] | Array
    plays: int = 1
    periods: tuple[int, ...] = ()
    lost_rows: tuple[bool, ...] = ()
    """Whether each table has a row after these for an arm whose last pull was not answered; by default none has."""

    @classmethod
    def of(cls, problem: Problem, tables: Sequence[Array]) -> IndexPolicy:
        """Return the policy of a table for each arm of a problem."""
        periods = tuple(table_period(arm) for arm in problem.arms)
        lost = tuple(has_lost_row(arm) for arm in problem.arms) if problem.features else ()
        return cls(tuple(tables), problem.plays, periods, lost)

    @cached_property
    def n_states(self) -> tuple[int, ...]:
        if isinstance(self.tables, np.ndarray):
            return (self.tables.shape[1] - 1,) * len(self.tables)
        lost = self.lost_rows or (False,) * len(self.tables)
        return tuple(len(table) - 1 - more for table, more in zip(self.tables, lost, strict=True))

    @cached_property
    def flat(self) -> FlatTables:
        """All tables in a single array."""
        if isinstance(self.tables, np.ndarray):
            return FlatTables(self.tables.reshape(-1), *_layout(*self.tables.shape, self.periods))
        sizes = np.array([table.size for table in self.tables])
        lengths = np.array([table.shape[1] for table in self.tables])
        table = np.concatenate([table.reshape(-1) for table in self.tables])
        return FlatTables(table, np.cumsum(sizes) - sizes, lengths, np.array(self.table_periods))

    @cached_property
    def table_periods(self) -> tuple[int, ...]:
        """The period of every table, 1 by default."""
        return self.periods or (1,) * len(self.tables)

    def scores(self, last_states: IntArray, elapsed: IntArray) -> Array:
        scores = np.empty(last_states.shape)
        for i, (table, period) in enumerate(zip(self.tables, self.table_periods, strict=True)):
            scores[:, i] = table[
                rows_of(last_states[:, i], self.n_states[i]), columns_of(elapsed[:, i], table.shape[1], period)
            ]
        return scores

    def scores_now(self, record: Record) -> Array:
        flat, elapsed = self.flat, record.elapsed
        beyond = flat.length - flat.period + (elapsed - flat.length - 1) % flat.period
        columns = np.where(elapsed <= flat.length, elapsed - 1, beyond)
        return np.asarray(flat.table[flat.base + record.last_state * flat.length + columns])

    def to_arrays(self) -> dict[str, Any]:
        tables = {f"table_{i}": table for i, table in enumerate(self.tables)}
        stored = {"plays": np.array(self.plays), "periods": np.array(self.table_periods), **tables}
        return stored | {"lost_rows": np.array(self.lost_rows)} if any(self.lost_rows) else stored

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> IndexPolicy:
        count = sum(key.startswith("table_") for key in arrays)
        if not count:
            raise KeyError("table_0")
        tables = tuple(arrays[f"table_{i}"] for i in range(count))
        periods = check_ints("periods", arrays["periods"].tolist(), length=count)
        for table, period in zip(tables, periods, strict=True):
            if table.ndim != 2 or len(table) < 2 or table.shape[1] < period or table.dtype != np.float64:
                raise ValueError("a table is no index of states and slots")
            if np.isnan(table).any():
                raise ValueError("a table holds values that are not numbers")
        lost = tuple(map(bool, arrays["lost_rows"].tolist())) if "lost_rows" in arrays else ()
        if len(lost) not in (0, count):
            raise ValueError("the rows of unanswered pulls do not fit the tables")
        return cls(tables, check_int("plays", arrays["plays"].tolist(), 1, count), tuple(periods), lost)


@lru_cache(maxsize=16)
def _layout(n_arms: int, rows: int, length: int, periods: tuple[int, ...]) -> tuple[IntArray, IntArray, IntArray]:
    """Offsets, lengths and periods of tables of equal shape; cached for learners that plan often."""
    size = rows * length
    return np.arange(0, n_arms * size, size), np.full(n_arms, length), np.array(periods or (1,) * n_arms)


@dataclass(frozen=True)
class SingleArm(ScoredPolicy):
    """Pull the same arm in every slot; further plays go to the arms that have waited longest."""

    arm: int
    plays: int = 1

    def scores(self, last_states: IntArray, elapsed: IntArray) -> Array:
        scores = elapsed.astype(np.float64)
        scores[:, self.arm] = np.inf
        return scores


@dataclass(frozen=True)
class Cycle(ScoredPolicy):
    """Pull the arms in turn: always the arms that have waited longest."""

    plays: int = 1

    def scores(self, last_states: IntArray, elapsed: IntArray) -> Array:
        return elapsed.astype(np.float64)


@dataclass(frozen=True)
class EmpiricalUCB(ScoredPolicy):
    """UCB1 on the rewards of each arm, without states: mean + √(width · ln t / pulls), recomputed in every slot.

    The root is in units of ``ranges``, the widths of the arms' reward ranges; 1 by default. The policy reads the record
    and not beliefs, and is therefore defined within a run only.
    """

    width: float = 2.0
    plays: int = 1
    ranges: tuple[float, ...] = ()

    def scores(self, last_states: IntArray, elapsed: IntArray) -> Array:
        raise ProblemError("EmpiricalUCB chooses from rewards seen so far; ask it within a run")

    def scores_now(self, record: Record) -> Array:
        pulls = record.pulls
        means = np.add.reduceat(record.flat_rewards, record.state_base[:-1]) / np.maximum(pulls, 1)
        bonus = np.sqrt(self.width * np.log(record.slots + 1) / np.maximum(pulls, 1)) * (self.ranges or 1.0)
        return np.where(pulls > 0, means + bonus, np.inf)


@dataclass(frozen=True, eq=False, repr=False)
class JointPolicy(Policy):
    """A choice for every joint belief, with the corresponding bias function.

    ``action`` and ``bias`` run over the joint beliefs of ``beliefs``; an action is a row of ``beliefs.actions``. For a
    joint belief outside the table (no pulls for a while, or an unknown start) the policy looks one step ahead: every
    choice leads back into the table, and the bias ranks the choices.
    """

    beliefs: JointBeliefs
    action: ActionArray
    bias: Array

    @cached_property
    def plays(self) -> int:
        return self.beliefs.plays

    @property
    def n_states(self) -> tuple[int, ...]:
        return tuple(arm.n_states for arm in self.beliefs.arms)

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        joint = self.beliefs.locate(last_states, elapsed)
        place = self.beliefs.index(joint)
        action = self.action[place].astype(np.int64)
        off = np.flatnonzero(place < 0)
        if off.size:
            action[off] = top_arms(self.action_values(joint[off]), 1)[:, 0]
        return np.asarray(self.beliefs.actions[action])

    def choose_now(self, record: Record) -> list[int]:
        small = self._small
        if small is None:
            return super().choose_now(record)
        arms: list[int] = self.beliefs.actions[
            small.choose(record.last_state.tolist(), record.elapsed.tolist())
        ].tolist()
        return arms

    @cached_property
    def _small(self) -> _SmallJoint | None:
        """The same for a single situation, in plain Python, which is faster for few choices."""
        most = max(math.prod(self.n_states[i] for i in action) for action in self.beliefs.actions[:SMALL_TABLE_BELIEFS])
        # NumPy adds up eight numbers and more in another order.
        return _SmallJoint(self) if most < 8 and len(self.beliefs.actions) * most <= SMALL_TABLE_BELIEFS else None

    def choose_among(self, record: Record, arms: Sequence[int]) -> list[int]:
        """Return the arms to pull among the available arms: the best choice if all arms are available in all later
        slots.
        """
        wanted = self.choose_now(record)
        if set(wanted) <= set(arms):
            return wanted
        there = np.isin(self.beliefs.actions, list(arms)).all(axis=1)
        joint = self.beliefs.locate(record.last_states[None], record.elapsed[None])
        best = top_arms(self.action_values(joint)[:, there], 1)[0, 0]
        chosen: list[int] = self.beliefs.actions[np.flatnonzero(there)[best]].tolist()
        return chosen

    def action_values(self, joint: IntArray) -> Array:
        """Return ``reward + E[bias after]`` of every action in given joint beliefs, one column an action."""
        values = np.empty((len(joint), len(self.beliefs.actions)))
        for a in range(values.shape[1]):
            after, probabilities = self.beliefs.successors(joint, a)
            places = self.beliefs.index(after.reshape(-1, after.shape[-1])).reshape(after.shape[:2])
            values[:, a] = self.beliefs.rewards(joint, a) + (probabilities * self.bias[places]).sum(axis=1)
        return values

    def to_arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"plays": np.array(self.plays), "action": self.action, "bias": self.bias}
        for i, arm in enumerate(self.beliefs.arms):
            arrays |= {f"arm_{i}_{name}": np.asarray(value) for name, value in _storable(arm).items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> JointPolicy:
        arms: list[HiddenProcess] = []
        while f"arm_{len(arms)}_law" in arrays:
            names = (*STORED_NAMES, "reward")
            given = ((name, arrays.get(f"arm_{len(arms)}_{name}")) for name in names)
            arms.append(_stored_process({name: value for name, value in given if value is not None}))
        plays = check_int("plays", arrays["plays"].tolist(), 1, len(arms))
        action, bias = arrays["action"], arrays["bias"]
        size = JointBeliefs.count([arm.size for arm in arms], [arm.n_states for arm in arms], plays)
        if action.shape != (size,) or action.dtype.kind != "i" or bias.shape != (size,) or bias.dtype != np.float64:
            raise ValueError("the table does not fit its beliefs")
        beliefs = JointBeliefs(arms, plays)
        if action.min() < 0 or action.max() >= len(beliefs.actions) or not np.isfinite(bias).all():
            raise ValueError("the table holds unknown choices")
        return cls(beliefs, action.astype(np.int16), bias)


class _SmallJoint:
    """A ``JointPolicy`` of few choices, as lists, with the same choices and the same order of addition."""

    def __init__(self, policy: JointPolicy) -> None:
        beliefs = policy.beliefs
        self.action, self.bias = policy.action, policy.bias
        self.arms = [(arm.numbers.tolist(), arm.truncation, arm.period) for arm in beliefs.arms]
        self.seen = [seen.tolist() for seen in beliefs.seen_states]
        self.actions: list[list[int]] = beliefs.actions.tolist()
        self.offsets: list[int] = beliefs.offsets.tolist()
        self.strides: list[list[int]] = beliefs.strides.tolist()
        self.beliefs = beliefs

    @cached_property
    def successors(self) -> list[tuple[list[list[float]], list[int], list[int], list[float]]]:
        """Distributions, successor beliefs without and with an observation, and rewards of each arm."""
        return [
            (arm.distribution.tolist(), arm.passive.tolist(), arm.after_pull.tolist(), arm.reward[:, 1].tolist())
            for arm in self.beliefs.arms
        ]

    def choose(self, last_state: list[int], elapsed: list[int]) -> int:
        """Return the number of the action."""
        joint = []
        for (numbers, truncation, period), state, wait in zip(self.arms, last_state, elapsed, strict=True):
            column = wait - 1 if wait <= truncation else truncation - period + (wait - truncation - 1) % period
            joint.append(numbers[state][column])
        place = self.place(joint)
        if place >= 0:
            return int(self.action[place])
        values = [self.value(joint, action) for action in self.actions]
        least = max(values) - TIE
        return next(a for a, value in enumerate(values) if value >= least)

    def place(self, joint: list[int]) -> int:
        """The position of a joint belief, −1 outside all blocks."""
        for a, action in enumerate(self.actions):
            if all(self.seen[i][joint[i]] >= 0 for i in action):
                strides = self.strides[a]
                digits = (self.seen[i][b] if i in action else b for i, b in enumerate(joint))
                return self.offsets[a] + sum(digit * stride for digit, stride in zip(digits, strides, strict=True))
        return -1

    def value(self, joint: list[int], action: list[int]) -> float:
        """The reward of an action and the mean bias after it."""
        ahead = self.successors
        after = [passive[b] for (_, passive, _, _), b in zip(ahead, joint, strict=True)]
        total = 0.0
        for outcome in itertools.product(*(range(len(ahead[i][2])) for i in action)):
            probability = 1.0
            for i, state in zip(action, outcome, strict=True):
                after[i] = ahead[i][2][state]
                probability *= ahead[i][0][joint[i]][state]
            total += probability * float(self.bias[self.place(after)])
        reward = 0.0
        for i in action:
            reward += ahead[i][3][joint[i]]
        return reward + total


def _storable(process: HiddenProcess) -> dict[str, Any]:
    """The arrays of a stored process; what a pull pays is stored where it is not the mean reward of its states."""
    given = process.distribution, process.passive, process.after_pull, process.tv_error[:, 1], process.rewards
    found = dict(zip(STORED_NAMES, (*given, process.numbers, process.period, process.start_node), strict=True))
    usual = np.array_equal(process.reward[:, 1], process.distribution @ process.rewards)
    return found if usual else found | {"reward": process.reward[:, 1]}


def _stored_process(stored: Mapping[str, Any]) -> HiddenProcess:
    """The stored process of an arm; derived arrays must agree with the arrays they are derived from."""
    distribution, passive, first, tv_error, rewards, numbers = (stored[name] for name in STORED_NAMES[:6])
    n, truncation = distribution.shape[1], numbers.shape[1]
    period = check_int("period", stored["period"].tolist(), 1, truncation)
    start = check_int("start", stored["start"].tolist(), 0)
    numbers_fit = numbers.dtype.kind == "i" and len(numbers) in (n + 1, n + 2) and numbers.min() >= 0
    if not numbers_fit or len(distribution) != int(numbers.max()) + 1 or rewards.shape != (n,):
        raise ValueError("beliefs are not numbered")
    made = numbered_beliefs(numbers, distribution, rewards, None, tv_error, period)
    same = np.array_equal(made.passive, passive) and np.array_equal(made.after_pull, first)
    if not same or start not in numbers[:, 0] or tv_error.shape != (len(distribution),):
        raise ValueError("beliefs do not lead to each other")
    for array in (distribution, rewards, tv_error):
        if array.dtype != np.float64 or not ((array >= 0) & (array <= 1 + 1e-9)).all():
            raise ValueError("distributions and rewards do not lie between 0 and 1")
    if np.abs(distribution.sum(axis=1) - 1).max() > 1e-9:
        raise ValueError("distributions do not add up to one")
    if "reward" in stored:
        if stored["reward"].shape != tv_error.shape or not np.isfinite(stored["reward"]).all():
            raise ValueError("rewards of pulls are not numbers")
        made.reward[:, 1] = stored["reward"]
    at_start = np.zeros(made.size)
    at_start[start] = 1.0
    return replace(made, start=at_start, start_node=start)


def load_policy(path: str | Path) -> Policy:
    """Return a policy stored by ``Policy.save``."""
    try:
        arrays = read_archive(path)
        module = import_module(STORED_KINDS[kind := str(arrays.pop("kind"))])
        policy: Policy = getattr(module, kind).from_arrays(arrays)
        return policy
    except OSError as error:
        raise ProblemError(f"cannot read {path}: {error.strerror or error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise ProblemError(f"{path} is not a stored policy; write one with restless solve --out") from None
