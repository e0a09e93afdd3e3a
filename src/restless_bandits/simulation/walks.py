"""A run with full information: the arm pulled in each slot, and the true states of all arms.

stretch = rb.walk(rb.Problem.builtin("paper-1"), "restless-ucb", horizon=3000).part(900, 120)
rb.plots.raster(stretch)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import BoolArray, IntArray
from restless_bandits.agent.agent import Agent
from restless_bandits.learning.learners import as_learner
from restless_bandits.learning.learners.base import Learner
from restless_bandits.model.arms import TableArm
from restless_bandits.model.markov import stationary, thresholds
from restless_bandits.model.problem import Problem, check_problem
from restless_bandits.model.rewards import draw_reward
from restless_bandits.model.support import refuse_unsupported

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


def play_along(agent: Agent, states: IntArray, reward: RewardFunction) -> IntArray:
    """Let an agent without observations play along paths of states, (slot, arm), and return its arms: (slot, play)."""
    paths = states.tolist()

    def answer(arms: Sequence[int]) -> tuple[Sequence[int], Sequence[float]]:
        slot = agent.slots
        return [paths[slot][arm] for arm in arms], [reward(slot, arm) for arm in arms]

    return np.array([play_slot(agent, answer)[0] for _ in paths], dtype=np.int64)


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


def walk(problem: Problem, learner: Learner | str, horizon: int, seed: int = 0) -> Walk:
    """Play a run slot by slot on chains drawn in full; the simulator draws pulled arms only."""
    check_problem(problem)
    refuse_unsupported(problem, "walk")
    if any(isinstance(arm, TableArm) for arm in problem.arms):
        raise ProblemError("a walk needs chains, and a table of distributions is none; give problems made of Arm")
    learner = as_learner(learner)
    agent = Agent(learner, learner.task(problem, horizon), seed=seed, on_change="ignore")
    rng = np.random.default_rng(seed)
    states, reward = drawn_chains(problem, horizon, rng)
    pulled = np.zeros(states.shape, dtype=bool)
    np.put_along_axis(pulled, play_along(agent, states, reward), values=True, axis=1)
    # The last slot with an observation of each arm, from 1 on, by the present slot; 0 stands for the initial states.
    slots = np.arange(1, horizon + 1)[:, None]
    looks = np.maximum.accumulate(np.where(pulled, slots, 0), axis=0)
    last = np.concatenate([np.zeros_like(looks[:1]), looks[:-1]])
    initial = [-1 if state is None else state for state in problem.initial]
    last_states = np.take_along_axis(np.concatenate([[initial], states]), last, axis=0)
    return Walk(problem, learner.spec, states, pulled, last_states, slots - last)


def drawn_chains(problem: Problem, horizon: int, rng: np.random.Generator) -> tuple[IntArray, RewardFunction]:
    """Draw the state of every arm in every slot, (slot, arm); return also a function that draws the rewards of
    pulled arms.
    """
    problem.require_drawn()
    states = np.stack([_path(problem, arm, horizon, rng) for arm in range(problem.n_arms)], axis=1)
    arms = [piece.problem.arms for piece in problem.pieces]
    pieces = np.searchsorted([piece.first for piece in problem.pieces], np.arange(1, horizon + 1), side="right") - 1

    def reward(slot: int, arm: int) -> float:
        one = arms[pieces[slot]][arm]
        mean = float(one.rewards[states[slot, arm]])
        return draw_reward(one.reward_law, mean, one.reward_range, one.reward_spread, rng)

    return states, reward


def _path(problem: Problem, arm: int, horizon: int, rng: np.random.Generator) -> IntArray:
    start = problem.initial[arm]
    chain = problem.arms[arm].one_step
    state = int((thresholds(stationary(chain)) <= rng.random()).sum()) if start is None else start
    path = np.empty(horizon, dtype=np.int64)
    draws = rng.random(horizon)
    ends = [*(piece.first - 1 for piece in problem.pieces[1:]), horizon]
    for piece, end in zip(problem.pieces, ends, strict=True):
        sums = thresholds(piece.problem.arms[arm].one_step)
        for slot in range(piece.first - 1, min(end, horizon)):
            path[slot] = state = int(np.searchsorted(sums[state], draws[slot], side="right"))
    return path
