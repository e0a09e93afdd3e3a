"""Baselines: simple learners, and policies that know the problem.

``round-robin`` pulls the arms in turn. ``ucb1`` (Auer, Cesa-Bianchi, Fischer 2002) treats rewards of an arm as
independent draws. Informed players get the full problem and play an oracle's policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import positive
from restless_bandits.learning.learners.base import ALL, PULLED, Learner
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.model.support import REACTING
from restless_bandits.model.tasks import Task
from restless_bandits.policies.observed import UniformPolicy
from restless_bandits.policies.plans import Forever, Plan, Slots
from restless_bandits.policies.policies import Cycle, EmpiricalUCB


@dataclass(frozen=True)
class RoundRobin(Learner):
    """Pull the arms in turn, for ever."""

    name: ClassVar[str] = "round-robin"

    @property
    def features(self) -> frozenset[str]:
        return REACTING

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        return Plan(Cycle(task.plays), until=Forever())


@dataclass(frozen=True)
class RandomArms(Learner):
    """Pull observed arms drawn uniformly in each slot: what a program without any rule earns."""

    name: ClassVar[str] = "random"

    @property
    def observed(self) -> frozenset[str]:
        return ALL

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        return Plan(UniformPolicy(task.layout, task.plays, int(rng.integers(1 << 62))), until=Forever())


@dataclass(frozen=True)
class UCB1(Learner):
    """Pull the arm with the highest mean reward plus √(width · ln t / pulls), the root in widths of the arm's range."""

    name: ClassVar[str] = "ucb1"
    width: float = 2.0

    def __post_init__(self) -> None:
        positive("ucb1: width", self.width, or_zero=True)

    @property
    def features(self) -> frozenset[str]:
        return REACTING

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        ranges: tuple[float, ...] = ()
        if task.unit != ZERO_TO_ONE or not task.is_normalized:
            # The policy reads rewards in original units; the learner gets shares of them.
            whole = task.unit[1] - task.unit[0]
            ranges = tuple(whole * (high - low) for low, high in task.reward_ranges)
        return Plan(EmpiricalUCB(self.width, task.plays, ranges), until=Forever())


@dataclass(frozen=True)
class Informed(Learner):
    """A player who knows the problem and plays an oracle's policy from the first slot.

    The oracle's name alone, as in ``whittle`` or ``best-arm``, is a short name in comparisons.

    For a problem with changes, each piece is played by its own policy. For an arm not observed since a change, the
    belief is computed as if the new chain had been present all the time: an error until the next observation of the
    arm.
    """

    name: ClassVar[str] = "informed"
    oracle: str = "exact"

    def __post_init__(self) -> None:
        oracles.find_oracle(self.oracle)

    @property
    def observed(self) -> frozenset[str]:
        return PULLED | ALL

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"problem"})

    @property
    def features(self) -> frozenset[str]:
        return REACTING

    def check(self, task: Task | ObservedTask) -> None:
        # An oracle unsuitable for the problem raises now and not in the middle of a run.
        for piece in () if task.problem is None else task.problem.pieces:
            oracles.find_oracle(self.oracle).accepts(piece.problem)

    def plan(self, record: Record | ObservedRecord, task: Task | ObservedTask, rng: np.random.Generator) -> Plan:
        if task.problem is None:
            raise ProblemError(f"{self.label} must be told the problem; make its task with reveal=['problem']")
        pieces, slot = task.problem.pieces, record.slots + 1
        number = sum(piece.first <= slot for piece in pieces) - 1
        until = Forever() if number + 1 == len(pieces) else Slots(pieces[number + 1].first - slot)
        return Plan(oracles.policy(self.oracle, pieces[number].problem), until)
