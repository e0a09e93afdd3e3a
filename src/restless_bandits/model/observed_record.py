"""The sufficient statistic of a run on observed arms: counts of (kind, state, action, next state).

In each slot the player sees all states, ``observe``, picks arms, ``act``, and may be told rewards, ``pay``. The step of
an arm is counted once its next state is seen. Counts of the arms of a kind are pooled. The size of the record depends
on the kinds and the arms, never on time. An arm whose state is missing in a slot, −1, counts no step from or to there.

A place is a pair (kind, state), see ``layout``. Tables by place and action are flat, ``2 · place + action``; action 1
pulls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.model.layout import Layout
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.record import FrozenLengths, frozen_note, plain_notes

UNSEEN = -1
"""The state of an arm that is not seen in a slot."""
MOST_COUNTS = 1 << 30
"""The largest number of counts in a record: 8 GB."""


class ObservedRecord:
    """Counts, sums of rewards and the present states of a run on observed arms."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        sizes = layout.n_states
        blocks = 2 * sizes * sizes
        if int(blocks.sum()) > MOST_COUNTS:
            raise ProblemError(
                f"{len(sizes)} kinds of up to {sizes.max()} states take more counts than fit into memory; "
                "give fewer kinds or states"
            )
        self.count_base: IntArray = np.cumsum(blocks) - blocks
        """The position of each kind's counts in ``flat_counts``."""
        self.flat_counts: IntArray = np.zeros(int(blocks.sum()), dtype=np.int64)
        """Counts of steps: at ``count_base[kind] + (2 s + a) n + z``."""
        self.visits: IntArray = np.zeros(2 * layout.size, dtype=np.int64)
        """Counted steps by place and action."""
        self.paid: IntArray = np.zeros(2 * layout.size, dtype=np.int64)
        """The number of rewards by place and action."""
        self.flat_rewards: Array = np.zeros(2 * layout.size)
        """The sum of rewards by place and action."""
        n = layout.n_arms
        self.last_states: IntArray = np.full(n, UNSEEN, dtype=np.int64)
        """The states of the coming slot, once observed."""
        self.previous_states: IntArray = np.full(n, UNSEEN, dtype=np.int64)
        """The states of the last slot."""
        self.last_pulled: BoolArray = np.zeros(n, dtype=np.bool_)
        """The arms pulled in the last slot."""
        self.last_rewards: Array = np.full(n, np.nan)
        """The rewards of the last slot; not a number where none was told."""
        self.pulls: IntArray = np.zeros(n, dtype=np.int64)
        self.slots = 0
        self.observed = False
        """Whether the states of the coming slot are entered."""
        self.plan_lengths: list[int] = []
        self.notes: Mapping[str, Any] = {}

    @classmethod
    def of(cls, task: ObservedTask) -> Self:
        """Return the empty record of a task."""
        return cls(task.layout)

    @property
    def n_arms(self) -> int:
        return len(self.pulls)

    @property
    def plans(self) -> int:
        """Number of past plans."""
        return len(self.plan_lengths)

    def __repr__(self) -> str:
        steps = f"{int(self.visits.sum())} steps"
        return f"<ObservedRecord: {self.n_arms} arms, {self.slots} slots, {steps}, {self.plans} plans>"

    def counts(self, kind: int) -> IntArray:
        """Counted steps of a kind, ``[state, action, next state]``."""
        n = int(self.layout.n_states[kind])
        base = int(self.count_base[kind])
        return self.flat_counts[base : base + 2 * n * n].reshape(n, 2, n)

    def group_counts(self, kinds: slice, n: int) -> IntArray:
        """Counted steps of consecutive kinds of n states each, ``[kind, state, action, next state]``."""
        base, size = int(self.count_base[kinds.start]), 2 * n * n * (kinds.stop - kinds.start)
        return self.flat_counts[base : base + size].reshape(-1, n, 2, n)

    @cached_property
    def first_row(self) -> IntArray:
        """The position of each arm's counts in ``flat_counts``."""
        return self.count_base[self.layout.kind_of_arm]

    def observe(self, states: npt.ArrayLike) -> None:
        """Enter the states of all arms in the coming slot, ``UNSEEN`` for an arm that is not seen."""
        present = np.asarray(states, dtype=np.int64)
        if self.observed:
            raise ProblemError(f"the states of slot {self.slots + 1} are entered already")
        self.previous_states, self.last_states = self.last_states, present.copy()
        self.observed = True
        if self.slots == 0:
            return
        before, after = self.previous_states, self.last_states
        both = np.flatnonzero((before >= 0) & (after >= 0))
        rows = 2 * before[both] + self.last_pulled[both]
        sizes = self.layout.sizes[both]
        np.add.at(self.flat_counts, self.first_row[both] + rows * sizes + after[both], 1)
        np.add.at(self.visits, 2 * self.layout.first[both] + rows, 1)

    def act(self, pulled: IntArray) -> None:
        """Enter the arms pulled in the slot whose states are observed, and end the slot."""
        self.last_pulled = np.zeros(self.n_arms, dtype=np.bool_)
        self.last_pulled[pulled] = True
        self.last_rewards = np.full(self.n_arms, np.nan)
        self.pulls[pulled] += 1
        self.slots += 1
        self.observed = False

    def pay(self, rewards: Array) -> None:
        """Enter the rewards of all arms in the last slot; not a number where none is told.

        Rewards of an arm whose state was not seen are not counted.
        """
        states = self.previous_states if self.observed else self.last_states
        told = np.flatnonzero(~np.isnan(rewards) & (states >= 0))
        at = 2 * (self.layout.first[told] + states[told]) + self.last_pulled[told]
        np.add.at(self.flat_rewards, at, rewards[told])
        np.add.at(self.paid, at, 1)
        self.last_rewards = np.array(rewards, dtype=np.float64)

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Keep the notes of the new plan in place of the notes of the last plan."""
        self.notes = plain_notes(notes)

    def only(self, arms: Sequence[int] | IntArray) -> ObservedRecord:
        """Return the record of a selection of arms, numbered in the given order; the counts of all kinds stay."""
        chosen = np.asarray(arms, dtype=np.int64)
        part = self.copy()
        part.layout = Layout.of_kinds(self.layout.n_states, self.layout.kind_of_arm[chosen])
        part.__dict__.pop("first_row", None)
        for name in OF_ARMS:
            setattr(part, name, getattr(self, name)[chosen])
        return part

    def with_arm(self, layout: Layout) -> ObservedRecord:
        """Return the record with one more arm, of a known kind or of a new one: ``layout`` is that of the new task."""
        grown = ObservedRecord(layout)
        for name in (*COUNTED, *OF_ARMS):
            mine = getattr(self, name)
            getattr(grown, name)[: len(mine)] = mine
        for name in ("slots", "observed", "notes"):
            setattr(grown, name, getattr(self, name))
        grown.plan_lengths = list(self.plan_lengths)
        return grown

    def copy(self) -> ObservedRecord:
        """Return an independent copy."""
        other = ObservedRecord.__new__(ObservedRecord)
        other.__dict__.update(self.__dict__)
        for name in (*COUNTED, *OF_ARMS):
            setattr(other, name, getattr(self, name).copy())
        other.plan_lengths = list(self.plan_lengths)
        other.remember(self.notes)
        return other

    def frozen(self, rewards: Array | None = None) -> ObservedRecord:
        """Return the record as a learner gets it: the same numbers, read-only; a write raises.

        ``rewards``, sums in other units, may replace the sums of the record.
        """
        other = _FrozenObservedRecord.__new__(_FrozenObservedRecord)
        inside = other.__dict__
        inside.update(self.__dict__, plan_lengths=FrozenLengths(self.plan_lengths), notes=frozen_note(self.notes))
        if rewards is not None:
            inside["flat_rewards"] = rewards
        for name in (*COUNTED, *OF_ARMS):
            inside[name] = view = inside[name].view()
            view.setflags(write=False)
        return other

    def to_arrays(self) -> dict[str, Any]:
        """Return all fields but the notes as arrays, for storage."""
        own = {name: getattr(self, name) for name in (*COUNTED, *OF_ARMS)}
        lengths = np.array(self.plan_lengths, dtype=np.int64)
        return own | {"slots": np.array([self.slots, self.observed]), "plan_lengths": lengths}

    @classmethod
    def from_arrays(cls, task: ObservedTask, arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> Self:
        """Return the record that ``to_arrays`` wrote.

        Raises ``ValueError`` for arrays that no run can produce: inconsistent with each other or with the task.
        """
        record = cls.of(task)
        for name in (*COUNTED, *OF_ARMS):
            mine, given = getattr(record, name), np.asarray(arrays[name])
            if given.shape != mine.shape or given.dtype != mine.dtype:
                raise ValueError(f"{name} do not fit the task")
            mine[:] = given
        record.slots, record.observed = int(arrays["slots"][0]), bool(arrays["slots"][1])
        record.plan_lengths = [int(length) for length in arrays["plan_lengths"]]
        whole = (record.flat_counts, record.visits, record.paid, record.pulls)
        if min(int(part.min()) for part in whole) < 0 or record.slots < 0 or int(record.pulls.max()) > record.slots:
            raise ValueError("counts are no counts of the slots")
        if int(record.visits.sum()) != int(record.flat_counts.sum()) or int(record.visits.sum()) > (
            task.n_arms * record.slots
        ):
            raise ValueError("steps do not fit the counts")
        for states in (record.last_states, record.previous_states):
            if ((states < UNSEEN) | (states >= task.layout.sizes)).any():
                raise ValueError("an arm has no such state")
        if not np.isfinite(record.flat_rewards).all() or sum(record.plan_lengths) > record.slots:
            raise ValueError("rewards or plans do not fit the slots")
        record.remember(notes)
        return record


COUNTED = ("flat_counts", "visits", "paid", "flat_rewards")
"""Tables that grow with the slots."""
OF_ARMS = ("last_states", "previous_states", "last_pulled", "last_rewards", "pulls")
"""Columns with an entry for each arm."""


class _FrozenObservedRecord(ObservedRecord):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a learner may not change {name} of its record; memory goes into the notes of its plan")
