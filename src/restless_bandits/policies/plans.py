"""Plans: a policy, a stop rule, and notes for the next plan.

Rules are data, like policies: the compiled engine and ``Agent`` both follow a rule slot by slot, with equal results.
Rules combine with ``|``: the plan ends with the first slot after which some rule is met. A plan lasts at least one
slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import IntArray
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.record import N_BINS, Record, elapsed_bin
from restless_bandits.model.tasks import Task
from restless_bandits.policies.observed import ObservedPolicy
from restless_bandits.policies.policies import Policy


class Rule:
    """When a plan ends."""

    def __or__(self, other: Rule) -> AnyOf:
        return AnyOf((*_parts(self), *_parts(other)))


@dataclass(frozen=True)
class Forever(Rule):
    """Never."""


@dataclass(frozen=True)
class Slots(Rule):
    """After a number of slots."""

    count: int


@dataclass(frozen=True)
class EveryStateSeen(Rule):
    """When one-step transitions out of every state of an arm have been observed a given number of times in the run."""

    arm: int
    times: int


@dataclass(frozen=True)
class CountDoubled(Rule):
    """When some count of (arm, last state, elapsed slots) within the plan reaches max(1, its count before the plan).

    With a truncation (``cap``), all elapsed slots from the truncation on share one count; a truncation above 512 is
    rounded down to the first of its bin (see ``record``). A strict rule waits for one more than the count before.
    """

    cap: int | None = None
    strict: bool = False


@dataclass(frozen=True)
class VisitsDoubled(Rule):
    """When the counted steps from some state of a kind of observed arms, under some action, are more than twice those
    before the plan.
    """


@dataclass(frozen=True)
class SeenIn(Rule):
    """When an arm is observed in a given state."""

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
    """A learner's answer: follow the policy until the rule is met.

    ``notes`` is the learner's only memory. The caller that follows the plan keeps the notes, and the next plan finds
    them in ``record.notes``. Notes are stored as JSON: texts, numbers, lists, and dictionaries with texts as keys.
    """

    policy: Policy
    until: Rule
    notes: Mapping[str, Any] = field(default_factory=dict)


def check_plan(plan: Plan, task: Task | ObservedTask, who: str) -> None:
    """Raise ``ProblemError`` for a plan that cannot be followed: a value of another type, or a plan with unknown
    arms.
    """
    if not isinstance(plan, Plan) or not isinstance(plan.policy, Policy) or not isinstance(plan.until, Rule):
        raise ProblemError(f"{who} answered with {plan!r}; it must be a Plan of a policy and a rule")
    if isinstance(task, ObservedTask):
        _check_observed_plan(plan, task, who)
        return
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


def _check_observed_plan(plan: Plan, task: ObservedTask, who: str) -> None:
    policy, mine = plan.policy, task.layout
    if not isinstance(policy, ObservedPolicy):
        raise ProblemError(
            f"{who} plans with a {type(policy).__name__}, but all states are observed; give a policy of the present "
            "states, such as a PriorityPolicy"
        )
    for part in _parts(plan.until):
        if not isinstance(part, Slots | Forever | VisitsDoubled):
            raise ProblemError(
                f"{who} waits for {type(part).__name__}, which is for arms that are seen when pulled; give Slots, "
                "VisitsDoubled or Forever"
            )
    same = policy.layout is mine or (
        np.array_equal(policy.layout.n_states, mine.n_states)
        and np.array_equal(policy.layout.kind_of_arm, mine.kind_of_arm)
    )
    if not same:
        raise ProblemError(f"{who} plans for other arms; make its policy with task.layout")
    if policy.plays != task.plays:
        raise ProblemError(f"{who} plans to pull {policy.plays} arms a slot, but there are {task.plays} to pull")


def observed_end(rule: Rule, visits: IntArray) -> tuple[int, IntArray]:
    """Return a rule for observed arms as the most slots of its plan, and the visits that end the plan.

    ``visits`` are the counted steps by place and action before the plan; without a rule on visits the array is empty.
    """
    parts = _parts(rule)
    slots = min((part.count for part in parts if isinstance(part, Slots)), default=NEVER)
    doubled = any(isinstance(part, VisitsDoubled) for part in parts)
    return slots, 2 * visits + 1 if doubled else visits[:0]


NEVER = 1 << 62
"""More slots than any run has."""


class RuleTable(NamedTuple):
    """All parts of a rule in the layout of the checks."""

    slots: int
    every: IntArray
    """Rows (arm, times)."""
    seen_in: IntArray
    """Rows (arm, state)."""
    doubled: bool
    pool: int
    """The first bin of elapsed slots with a shared count; ``N_BINS`` for none."""
    beyond: int
    """The required excess over the count before a plan: 1 for a strict rule, else 0."""

    @classmethod
    def of(cls, rule: Rule) -> RuleTable:
        """Return the table of a rule; any number of rules of the same kind may be combined."""
        slots, strict, doubled, pool = NEVER, True, False, N_BINS
        every, seen_in = [], []
        for part in _parts(rule):
            if isinstance(part, Slots):
                slots = min(slots, part.count)
            elif isinstance(part, CountDoubled):
                doubled, strict = True, strict and part.strict
                pool = min(pool, elapsed_bin(part.cap) if part.cap else N_BINS)
            elif isinstance(part, EveryStateSeen):
                every.append((part.arm, part.times))
            elif isinstance(part, SeenIn):
                seen_in.append((part.arm, part.state))
        return cls(slots, _rows(every), _rows(seen_in), doubled, pool, int(doubled and strict))


def _rows(pairs: list[tuple[int, int]]) -> IntArray:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2) if pairs else _NO_ROWS


_NO_ROWS: IntArray = np.zeros((0, 2), dtype=np.int64)


class ObservedRuleWatch:
    """Follows a rule through a plan for observed arms, a slot at a time: the same as the compiled engine."""

    def __init__(self, rule: Rule, record: ObservedRecord) -> None:
        self._start = record.slots
        self._slots, self._end_visits = observed_end(rule, record.visits)

    def met(self, record: ObservedRecord) -> bool:
        """Whether the plan ends, once the states that follow a slot of the plan are entered."""
        over = record.slots - self._start >= self._slots
        return over or bool(len(self._end_visits) and (record.visits >= self._end_visits).any())


class RuleWatch:
    """Follows a rule through a plan, a slot at a time: the same as the compiled engine, in plain Python.

    Late feedback counts on arrival: as an increase of a count since the start of the plan, and as an observed state if
    its slot lies within the plan. ``over`` says that late feedback has met the rule; the plan then ends with the slot
    of arrival.
    """

    def __init__(self, rule: Rule, record: Record, *, over: bool = False) -> None:
        self._table = RuleTable.of(rule)
        self._start = record.slots
        self._before = record.flat_visits.copy() if self._table.doubled else record.flat_visits[:0]
        self.over = over

    def met(self, record: Record, arms: list[int], previous: list[tuple[int, int]]) -> bool:
        """Whether the plan ends after the slot just recorded.

        ``arms`` were pulled in the slot; ``previous`` has the last state and elapsed slots of each arm before the pull.
        """
        return (
            self.over
            or record.slots - self._start >= self._table.slots
            or self._every_state_seen(record)
            or any(arm in arms and record.last_state[arm] == state for arm, state in self._table.seen_in)
            or any(self._doubled(record, arm, *cell) for arm, cell in zip(arms, previous, strict=True))
        )

    def told_late(self, record: Record, arm: int, slot: int, state: int, grown: list[tuple[int, int]]) -> None:
        """Process feedback for an earlier slot, and the resulting increases of counts."""
        waited_for = slot > self._start and (arm, state) in map(tuple, self._table.seen_in.tolist())
        self.over |= (
            waited_for or self._every_state_seen(record) or any(self._doubled(record, arm, *cell) for cell in grown)
        )

    def _every_state_seen(self, record: Record) -> bool:
        return any(record.every_state_seen(int(arm), int(times)) for arm, times in self._table.every)

    def _doubled(self, record: Record, arm: int, state: int, elapsed: int) -> bool:
        if not self._table.doubled:
            return False
        row = int(record.row_base[arm]) + state * N_BINS
        first = min(elapsed_bin(elapsed), self._table.pool)
        cells = slice(row + first, row + (N_BINS if first == self._table.pool else first + 1))
        before, now = int(self._before[cells].sum()), int(record.flat_visits[cells].sum())
        return now - before >= max(1, before + self._table.beyond)


def renumbered(rule: Rule, arms: Sequence[int]) -> Rule:
    """Return a rule for arms 0, 1, … with the arms replaced by given numbers."""
    if isinstance(rule, AnyOf):
        return AnyOf(tuple(renumbered(part, arms) for part in rule.rules))
    return replace(rule, arm=arms[rule.arm]) if isinstance(rule, EveryStateSeen | SeenIn) else rule
