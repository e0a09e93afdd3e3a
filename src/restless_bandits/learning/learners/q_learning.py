"""Two learners of Whittle's index by Q-learning, without a model of the chains: baselines.

``wiql`` (Biswas, Aggarwal, Varakantham, Tambe 2021, "Learn to intervene"): one table of each kind,

    Q(s, a) ← Q(s, a) + [r + β max Q(s′, ·) − Q(s, a)] / ν(s, a),

for the observed step of each arm under its own action, with ν the visits so far. The index of s is Q(s, 1) − Q(s, 0).

``wibql`` (Avrachenkov, Borkar 2022, "Whittle index based Q-learning for restless bandits with average reward"): a table
and a subsidy of each kind for each reference state x,

    Q_x(s, a) ← Q_x(s, a) + α [r + (1 − a) λ(x) + max Q_x(s′, ·) − mean Q_x − Q_x(s, a)],
    λ(x)      ← λ(x) + γ [Q_x(x, 1) − Q_x(x, 0)],

where the subsidy is paid for resting alone. The second step is slower, and is taken once in as many slots as there are
arms. The index of x is λ(x).

Both choose at random with probability ε = N/(N + t) in slot t, else the highest indices. Every plan lasts one slot.

Differs from the papers:

- ``wiql`` has a discount β, since its undiscounted table grows without bound;
- the papers leave the random order of equal indices open; here it is drawn for each plan;
- the arms of a kind share a table; of several arms in one (state, action) the mean of their targets counts;
- with ``rewards=learned`` a step whose reward was not told teaches nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray, positive
from restless_bandits.learning.learners.base import ALL, Learner, require_choice
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.policies.observed import ObservedPolicy, PriorityPolicy, UniformPolicy
from restless_bandits.policies.plans import Plan, Slots

STEP, SLOW_STEP, SLOTS_A_STEP = 0.5, 0.2, 100
"""The first steps of ``wibql``, and the visits for which a step keeps its size."""


@dataclass(frozen=True)
class _QLearner(Learner):
    """What both learners share: the steps of a slot, and the choice by indices or at random."""

    plans_often: ClassVar[bool] = True
    pools_kinds: ClassVar[bool] = False
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    @property
    def observed(self) -> frozenset[str]:
        return ALL

    def check(self, task: ObservedTask) -> None:
        if len({n for _, n in task.kind_groups}) > 1:
            raise ProblemError(f"{self.name} has tables of one size; give arms of one number of states, or tsde")

    def policy(self, record: ObservedRecord, task: ObservedTask, index: Array, rng: np.random.Generator) -> Any:
        """Return the policy of one slot: at random with probability N/(N + t), else the highest indices."""
        chosen: ObservedPolicy
        if rng.random() < task.n_arms / (task.n_arms + record.slots + 1):
            chosen = UniformPolicy(task.layout, task.plays, int(rng.integers(1 << 62)))
        else:
            floor = 0.0 if task.at_most else -np.inf
            chosen = PriorityPolicy(task.layout, index, task.plays, floor, rng.random(task.layout.size))
        return chosen


def last_steps(record: ObservedRecord, task: ObservedTask, learned: bool) -> tuple[IntArray, IntArray, IntArray, Array]:
    """Return the steps of the last slot: kind, (state, action) as 2 s + a, next state and reward of each arm."""
    before, after = record.previous_states, record.last_states
    both = (before >= 0) & (after >= 0)
    rows = 2 * before + record.last_pulled
    if learned:
        paid = record.last_rewards
    else:
        assert task.rewards is not None
        paid = task.rewards.reshape(-1)[np.where(both, 2 * task.layout.first + rows, 0)]
    told = np.flatnonzero(both & ~np.isnan(paid)) if record.slots else np.zeros(0, dtype=np.int64)
    return task.kinds[told], rows[told], after[told], paid[told]


@dataclass(frozen=True)
class WIQL(_QLearner):
    """Learn Q by kind, and follow Q(s, 1) − Q(s, 0).

    Parameters
    ----------
    rewards
        ``learned``, or ``known``.
    discount
        The discount β.

    """

    name: ClassVar[str] = "wiql"
    discount: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("wiql: discount", self.discount, 1.0)

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        n_kinds, n = len(task.layout.counts), task.kind_groups[0][1]
        table, visits = (
            np.array(record.notes[word]) if record.notes else np.zeros((n_kinds, 2 * n)) for word in ("q", "visits")
        )
        kind, row, after, paid = last_steps(record, task, self.rewards == "learned")
        table, visits = q_step(table, visits, (kind, row, after, paid), self.discount)
        index = (table[:, 1::2] - table[:, ::2]).reshape(-1)
        notes = {"q": table.tolist(), "visits": visits.tolist()}
        return Plan(self.policy(record, task, index, rng), Slots(1), notes)


def q_step(
    table: Array, visits: Array, steps: tuple[IntArray, IntArray, IntArray, Array], discount: float
) -> tuple[Array, Array]:
    """Return Q(kind, 2 s + a) and the visits after the steps of a slot."""
    kind, row, after, paid = steps
    best = np.maximum(table[:, ::2], table[:, 1::2])
    error = paid + discount * best[kind, after] - table[kind, row]
    visits = visits.copy()
    np.add.at(visits, (kind, row), 1.0)
    table = table.copy()
    np.add.at(table, (kind, row), error / visits[kind, row])
    return table, visits


@dataclass(frozen=True)
class WIBQL(_QLearner):
    """Learn a subsidy of each state by two time scales, and follow the subsidies.

    Parameters
    ----------
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "wibql"

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        n_kinds, n = len(task.layout.counts), task.kind_groups[0][1]
        sizes = {"q": n * 2 * n, "subsidy": n, "visits": 2 * n}
        q, subsidy, visits = (
            np.array(record.notes[word]) if record.notes else np.zeros((n_kinds, size)) for word, size in sizes.items()
        )
        steps = last_steps(record, task, self.rewards == "learned")
        slow = record.slots > 0 and record.slots % task.n_arms == 0
        tables, subsidy, visits = subsidy_step(q.reshape(n_kinds, n, 2 * n), subsidy, visits, steps, record.slots, slow)
        notes = {"q": tables.reshape(n_kinds, -1).tolist(), "subsidy": subsidy.tolist(), "visits": visits.tolist()}
        return Plan(self.policy(record, task, subsidy.reshape(-1), rng), Slots(1), notes)


def subsidy_step(
    tables: Array,
    subsidy: Array,
    visits: Array,
    steps: tuple[IntArray, IntArray, IntArray, Array],
    slot: int,
    slow: bool,
) -> tuple[Array, Array, Array]:
    """Return Q_x(kind, x, 2 s + a), λ(kind, x) and the visits after the steps of a slot; ``slow`` moves λ too."""
    kind, row, after, paid = steps
    visits = visits.copy()
    np.add.at(visits, (kind, row), 1.0)
    best = np.maximum(tables[:, :, ::2], tables[:, :, 1::2])
    target = paid[:, None] + np.where(row % 2 == 0, 1.0, 0.0)[:, None] * subsidy[kind] + best[kind, :, after]
    error = target - tables.mean(axis=2)[kind] - tables[kind, :, row]
    size = STEP / np.ceil(visits[kind, row] / SLOTS_A_STEP)
    many = np.zeros_like(visits)
    np.add.at(many, (kind, row), 1.0)
    tables = tables.copy()
    states = np.arange(tables.shape[1])
    np.add.at(tables, (kind[:, None], states[None, :], row[:, None]), (size / many[kind, row])[:, None] * error)
    if slow:
        step = SLOW_STEP / (1.0 + math.ceil(slot * math.log(slot + 1) / (SLOTS_A_STEP * 50)))
        subsidy = subsidy + step * (tables[:, states, 2 * states + 1] - tables[:, states, 2 * states])
    return tables, subsidy, visits
