"""A run with full information: the arm pulled in each slot, and the true states of all arms.

stretch = rb.walk(rb.Problem.builtin("paper-1"), "restless-ucb", horizon=3000).part(900, 120)
rb.plots.raster(stretch)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from restless_bandits._internal.validation import BoolArray, IntArray, check_int
from restless_bandits.agent.agent import Agent
from restless_bandits.learning.learners import as_learner
from restless_bandits.learning.learners.base import Learner
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.record import Record
from restless_bandits.simulation.chain_world import ChainWorld, draw_reward_of

FeedbackFunction = Callable[[Sequence[int]], tuple[Sequence[int], Sequence[float]]]
"""From the arms pulled in a slot to their states and rewards."""
RewardFunction = Callable[[int, int], float]
"""From the slot, counted from 0, and the pulled arm to its reward."""


def play_slot(agent: Agent, answer: FeedbackFunction) -> tuple[Sequence[int], Sequence[int], Sequence[float]]:
    """Let an agent play a slot; return the pulled arms, their states and their rewards."""
    choice = agent.ask()
    arms = (choice,) if isinstance(choice, int) else choice
    states, rewards = answer(arms)
    if isinstance(choice, int):
        agent.tell(states[0], rewards[0])
    else:
        agent.tell(states, rewards)
    return arms, states, rewards


@dataclass(frozen=True, eq=False)
class Walk:
    """A run with the states of all arms, observed or not."""

    problem: Problem
    learner: str
    states: IntArray
    """The true state of each arm in each slot: (slot, arm)."""
    pulled: BoolArray
    """Whether each arm was pulled in each slot: (slot, arm)."""
    last_states: IntArray
    """The belief before each slot: the last observed state of each arm, −1 for an arm never observed: (slot, arm)."""
    elapsed: IntArray
    """And the slots since then, at least 1: (slot, arm)."""
    first: int = 1
    """The number of the first slot."""

    @property
    def arms(self) -> IntArray:
        """The arm pulled in each slot; of several plays the first."""
        return np.asarray(self.pulled.argmax(axis=1))

    def part(self, start: int, length: int) -> Walk:
        """Return an interval of slots, from slot ``start`` on."""
        there = slice(start - self.first, start - self.first + length)
        columns = ("states", "pulled", "last_states", "elapsed")
        return replace(self, first=start, **{name: getattr(self, name)[there] for name in columns})


def walk(problem: AnyProblem, learner: Learner | str, horizon: int, seed: int = 0) -> Walk:
    """Play a run slot by slot on chains drawn in full; the simulator draws pulled arms only."""
    problem, horizon = as_problem(problem), check_int("horizon", horizon)
    learner = as_learner(learner)
    agent = Agent(learner, learner.task(problem, horizon), seed=seed, on_change="ignore")
    world = DrawnWorld(problem, horizon, np.random.default_rng(seed))
    pulled = np.zeros(world.path.shape, dtype=bool)
    for slot in range(horizon):
        pulled[slot, list(play_slot(agent, world.answer)[0])] = True
    states = world.path
    # The last slot with an observation of each arm, from 1 on, by the present slot; 0 stands for the initial states.
    slots = np.arange(1, horizon + 1)[:, None]
    looks = np.maximum.accumulate(np.where(pulled, slots, 0), axis=0)
    last = np.concatenate([np.zeros_like(looks[:1]), looks[:-1]])
    initial = Record.of_problem(problem).last_states
    last_states = np.take_along_axis(np.concatenate([[initial], states]), last, axis=0)
    return Walk(problem, learner.spec, states, pulled, last_states, slots - last)


class DrawnWorld(ChainWorld):
    """A world whose uniform draws for all slots are taken at its start, arm by arm."""

    def __init__(self, problem: Problem, horizon: int, rng: np.random.Generator) -> None:
        super().__init__(problem, "walk")
        starts, self._uniforms = np.zeros(problem.n_arms), np.empty((horizon, problem.n_arms))
        for arm, state in enumerate(problem.initial):
            if state is None:
                starts[arm] = rng.random()
            self._uniforms[:, arm] = rng.random(horizon)
        self.begin(starts)
        self._rng = rng
        self._pulled: Sequence[int] = ()
        self.path = np.empty((horizon, problem.n_arms), dtype=np.int64)
        """The states of all arms in the slots so far: (slot, arm)."""

    def answer(self, arms: Sequence[int]) -> tuple[list[int], list[float]]:
        """Play a slot: return the states and rewards of the pulled arms."""
        states = self.step(self._uniforms[self.slot], self._pulled)
        self._pulled = arms
        self.path[self.slot - 1] = states
        return states[list(arms)].tolist(), [self.reward(arm, self._rng) for arm in arms]


def drawn_chains(problem: Problem, horizon: int, rng: np.random.Generator) -> tuple[IntArray, RewardFunction]:
    """Draw the state of every arm in every slot, (slot, arm); return also a function that draws the rewards of
    pulled arms.
    """
    world = DrawnWorld(problem, horizon, rng)
    for _ in range(horizon):
        world.answer(())
    firsts = [piece.first for piece in problem.pieces]

    def reward(slot: int, arm: int) -> float:
        piece = problem.pieces[bisect_right(firsts, slot + 1) - 1].problem
        return draw_reward_of(cast(Arm, piece.arms[arm]), int(world.path[slot, arm]), rng)

    return world.path, reward
