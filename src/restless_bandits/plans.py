"""Plans: a policy, a rule that says when to think again, and what to remember until then.

Rules are data, like policies: the compiled engine and ``Agent`` both follow them, slot by slot and to the same end.
They combine with ``|``: the plan ends with the slot after which the first of them is met. A plan lasts at least one
slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from restless_bandits.arrays import IntArray
from restless_bandits.errors import ProblemError
from restless_bandits.policies import Policy
from restless_bandits.problem import Task
from restless_bandits.record import N_BINS, Record, elapsed_bin


class Rule:
    """When a plan ends."""

    def __or__(self, other: Rule) -> AnyOf:
        return AnyOf((*_parts(self), *_parts(other)))


@dataclass(frozen=True)
class Forever(Rule):
    """Never."""


@dataclass(frozen=True)
class Slots(Rule):
    """After so many slots."""

    count: int


@dataclass(frozen=True)
class EveryStateSeen(Rule):
    """When one-step transitions out of every state of an arm have been observed so many times, over the whole run."""

    arm: int
    times: int


@dataclass(frozen=True)
class CountDoubled(Rule):
    """When some count of (arm, last state, elapsed slots) within the plan reaches max(1, its count before the plan).

    With a cap, all elapsed slots from it on share one count. A strict rule waits for one more than the count before.
    """

    cap: int | None = None
    strict: bool = False


@dataclass(frozen=True)
class SeenIn(Rule):
    """When an arm is seen in a given state."""

    arm: int
    state: int


@dataclass(frozen=True)
class AnyOf(Rule):
    """When the first of several rules is met; made by ``|``."""

    rules: tuple[Rule, ...]


def _parts(rule: Rule) -> tuple[Rule, ...]:
    return rule.rules if isinstance(rule, AnyOf) else (rule,)


@dataclass(frozen=True)
class Plan:
    """What a learner answers: follow this policy until that rule is met.

    ``notes`` is all that the learner will remember: whoever follows the plan keeps it, and the next plan finds it in
    ``record.notes``. It is stored as JSON, so it holds texts, numbers, lists and dictionaries with texts for keys.
    """

    policy: Policy
    until: Rule
    notes: Mapping[str, Any] = field(default_factory=dict)


def check_plan(plan: Plan, task: Task, who: str) -> None:
    """Raise ``ProblemError`` for a plan that nobody could follow: what is no plan, or names arms that there are not."""
    if not isinstance(plan, Plan) or not isinstance(plan.policy, Policy) or not isinstance(plan.until, Rule):
        raise ProblemError(f"{who} answered with {plan!r}; it must be a Plan of a policy and a rule")
    sizes = plan.policy.n_states
    if sizes is not None and sizes != task.n_states:
        raise ProblemError(f"{who} plans for arms of {sizes} states, but there are arms of {task.n_states}")
    plays = getattr(plan.policy, "plays", task.plays)
    if plays != task.plays:
        raise ProblemError(f"{who} plans to pull {plays} arms a slot, but there are {task.plays} to pull")
    for part in (plan.policy, *_parts(plan.until)):
        arm = getattr(part, "arm", 0)
        if not 0 <= arm < task.n_arms:
            raise ProblemError(f"{who} plans with arm {arm}, but arms are numbered from 0 to {task.n_arms - 1}")
        if isinstance(part, SeenIn) and not 0 <= part.state < task.n_states[arm]:
            raise ProblemError(
                f"{who} waits for state {part.state} of arm {arm}, which has {task.n_states[arm]} states"
            )


@dataclass(frozen=True)
class RuleTable:
    """All parts of a rule in the form in which they are checked."""

    slots: int
    every: IntArray
    """Rows (arm, times)."""
    seen_in: IntArray
    """Rows (arm, state)."""
    doubled: bool
    cap: int
    """From which on elapsed slots share one count; more than any wait where they do not."""
    beyond: int
    """How many more than the count before a plan the count within it must be: 1 for a strict rule, else 0."""

    @classmethod
    def of(cls, rule: Rule) -> RuleTable:
        """Return the table of a rule; any number of rules of one kind may be combined."""
        parts = _parts(rule)
        doubled = [part for part in parts if isinstance(part, CountDoubled)]
        return cls(
            slots=min((part.count for part in parts if isinstance(part, Slots)), default=1 << 62),
            every=_rows([(part.arm, part.times) for part in parts if isinstance(part, EveryStateSeen)]),
            seen_in=_rows([(part.arm, part.state) for part in parts if isinstance(part, SeenIn)]),
            doubled=bool(doubled),
            cap=min((part.cap for part in doubled if part.cap), default=1 << 62),
            beyond=int(all(part.strict for part in doubled)),
        )

    def counts_before(self, record: Record) -> tuple[IntArray, IntArray]:
        """Counts at the start of a plan: by (arm, state, bin), and pooled from the cap on by (arm, state)."""
        if not self.doubled:
            return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
        rows = record.flat_visits.reshape(-1, N_BINS)
        return record.flat_visits.copy(), rows[:, elapsed_bin(self.cap) :].sum(axis=1)


def _rows(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


class Watch:
    """Follows a rule through a plan, one slot at a time: what the engine does in compiled code, in plain Python."""

    def __init__(self, rule: Rule, record: Record) -> None:
        self._table = RuleTable.of(rule)
        self._start = record.slots
        self._before, self._pooled_before = self._table.counts_before(record)

    def met(self, record: Record, arms: list[int], previous: list[tuple[int, int]]) -> bool:
        """Whether the plan ends after the slot just recorded.

        ``arms`` were pulled in it, each with its last state and elapsed slots before that in ``previous``.
        """
        table = self._table
        if record.slots - self._start >= table.slots:
            return True
        if any(record.every_state_seen(int(arm), int(times)) for arm, times in table.every):
            return True
        if any(arm in arms and record.last_state[arm] == state for arm, state in table.seen_in):
            return True
        return table.doubled and any(
            self._doubled(record, arm, state, elapsed) for arm, (state, elapsed) in zip(arms, previous, strict=True)
        )

    def _doubled(self, record: Record, arm: int, state: int, elapsed: int) -> bool:
        visits = record.visits(arm)[state]
        row = int(record.row_base[arm]) // N_BINS + state
        if elapsed >= self._table.cap:
            before, now = self._pooled_before[row], visits[elapsed_bin(self._table.cap) :].sum()
        else:
            before, now = self._before[row * N_BINS + elapsed_bin(elapsed)], visits[elapsed_bin(elapsed)]
        return bool(now - before >= max(1, before + self._table.beyond))
