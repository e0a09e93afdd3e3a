"""Runs with lost and delayed feedback, to estimate the cost in advance.

The arms are pulled in each slot, whether or not their feedback arrives: rewards and regret are counted as in any other
run. Feedback is lost with probability ``lost``; otherwise its delay is uniform on 0, 1, … ``late`` slots. With a delay
of d slots, decisions know the feedback from d + 1 slots after its own slot on. An ``Agent`` plays the run slot by slot,
at the speed of Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from restless_bandits._internal.random_streams import answer_generator, world_words
from restless_bandits._internal.validation import Array, IntArray, check_int, probability
from restless_bandits.agent.agent import Agent
from restless_bandits.learning.learners.base import Learner
from restless_bandits.policies.plans import Plan, Slots
from restless_bandits.policies.policies import IndexPolicy
from restless_bandits.simulation.engine import Run, World

LATEST = 1_000_000


@dataclass(frozen=True)
class FeedbackDelays:
    """The distribution of delays: the probability of a loss, and the largest delay in slots."""

    lost: float = 0.0
    late: int = 0

    def __post_init__(self) -> None:
        probability("lost", self.lost)
        check_int("late", self.late, 0, LATEST)

    @property
    def prompt(self) -> bool:
        """Whether all feedback is immediate."""
        return self.lost == 0.0 and self.late == 0

    def fates(self, seed: int, content: str, run: int, slots: int) -> IntArray:
        """Return the delay of each slot's feedback in slots, −1 for a loss."""
        draws: Array = answer_generator(seed, content, run).random((slots, 2))
        delays = (draws[:, 1] * (self.late + 1)).astype(np.int64)
        return np.where(draws[:, 0] < self.lost, -1, delays)


PROMPT = FeedbackDelays()


def play_answered(
    learner: Learner,
    world: World,
    horizon: int,
    checkpoints: IntArray,
    *,
    seed: int,
    run: int,
    answers: FeedbackDelays,
) -> Run:
    """Play a run of a learner to the horizon, with delayed feedback; the run has its trace."""
    problem = world.problem
    played = Run(world, horizon, checkpoints, world_words(seed, problem.content, run), trace=True)
    task = learner.task(problem, horizon)
    late, content = answers.late + 1, problem.content
    agent = Agent(learner, task, seed=seed, run=run, content=content, late=late, on_change="ignore")
    underway: dict[int, list[int]] = {}
    for slot, fate in enumerate(answers.fates(seed, problem.content, run, horizon).tolist(), start=1):
        asked = agent.ask()
        arms = (asked,) if isinstance(asked, int) else asked
        played.play(_pull(problem.n_states, arms))
        if fate < 0:
            agent.tell(lost=True)
        else:
            underway.setdefault(slot + fate, []).append(slot)
        arrived = underway.pop(slot, [])
        if fate > 0:
            agent.skip()
        for of in arrived:
            states, rewards = (column[of - 1].tolist() for column in (played.trace.states, played.trace.rewards))
            several = problem.plays > 1
            agent.tell(states if several else states[0], rewards if several else rewards[0], slot=of)
    plans = agent.record.plan_lengths
    rest = horizon - sum(plans)
    played.record.plan_lengths = [*plans, rest] if rest else plans
    return played


@lru_cache(maxsize=1024)
def _pull(n_states: tuple[int, ...], arms: tuple[int, ...]) -> Plan:
    """Pull given arms in a slot."""
    tables = tuple(np.full((n + 1, 1), float(arm in arms)) for arm, n in enumerate(n_states))
    return Plan(IndexPolicy(tables, len(arms)), Slots(1))
