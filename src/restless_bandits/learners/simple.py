"""What a person would try first, and players who know the problem: the yardsticks.

``round-robin`` pulls the arms in turn. ``ucb1`` (Auer, Cesa-Bianchi, Fischer 2002) treats arms as if their rewards were
independent draws. The informed players are told the whole problem and play what an oracle answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits.errors import ProblemError
from restless_bandits.learners.base import Learner
from restless_bandits.plans import Forever, Plan
from restless_bandits.policies import Cycle, EmpiricalUCB
from restless_bandits.problem import Task
from restless_bandits.record import Record


@dataclass(frozen=True)
class RoundRobin(Learner):
    """Pull the arms in turn, for ever."""

    name: ClassVar[str] = "round-robin"

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        return Plan(Cycle(task.plays), until=Forever())


@dataclass(frozen=True)
class UCB1(Learner):
    """Pull the arm with the highest mean reward plus √(width · ln t / pulls)."""

    name: ClassVar[str] = "ucb1"
    width: float = 2.0

    def __post_init__(self) -> None:
        if not self.width >= 0:
            raise ProblemError(f"ucb1: width is {self.width!r}; it must not be negative")

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        return Plan(EmpiricalUCB(self.width, task.plays), until=Forever())


@dataclass(frozen=True)
class Informed(Learner):
    """A player who knows the problem and plays an oracle's policy from the first slot."""

    name: ClassVar[str]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"problem"})

    def check(self, task: Task) -> None:
        # An oracle that cannot take the problem says so now and not in the middle of a run.
        if task.problem is not None and self.name == "guha":
            oracles.policy(self.name, task.problem)

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        if task.problem is None:
            raise ProblemError(f"{self.name} must be told the problem; make its task with reveal=['problem']")
        return Plan(oracles.policy(self.name, task.problem), until=Forever())


@dataclass(frozen=True)
class ExactPlayer(Informed):
    """Plays the certified optimum."""

    name: ClassVar[str] = "exact"


@dataclass(frozen=True)
class WhittlePlayer(Informed):
    """Plays the true Whittle indices."""

    name: ClassVar[str] = "whittle"


@dataclass(frozen=True)
class MyopicPlayer(Informed):
    """Plays the highest mean reward of the next pull."""

    name: ClassVar[str] = "myopic"


@dataclass(frozen=True)
class GuhaPlayer(Informed):
    """Plays the balanced dual of two-state arms."""

    name: ClassVar[str] = "guha"


@dataclass(frozen=True)
class BestArmPlayer(Informed):
    """Pulls the arm of highest average for ever."""

    name: ClassVar[str] = "best-arm"
