"""One run with everything in sight: the arm pulled in each slot, and the true states of all arms behind it.

stretch = rb.walk(rb.Problem.builtin("paper-1"), "restless-ucb", horizon=3000).part(900, 120)
rb.plots.raster(stretch)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from restless_bandits.agent import Agent
from restless_bandits.arrays import BoolArray, IntArray
from restless_bandits.errors import ProblemError
from restless_bandits.learners import learner as learner_of
from restless_bandits.learners.base import Learner
from restless_bandits.markov import stationary
from restless_bandits.problem import Problem, TableArm


@dataclass(frozen=True, eq=False)
class Walk:
    """One run with the states of all arms, seen or not."""

    problem: Problem
    learner: str
    states: IntArray
    """The true state of each arm in each slot: (slot, arm)."""
    pulled: BoolArray
    """Which arms were pulled in each slot: (slot, arm)."""
    last_states: IntArray
    """What was known before each slot, the last seen state of each arm, −1 for one never seen: (slot, arm)."""
    elapsed: IntArray
    """And the slots since then, at least 1: (slot, arm)."""
    first: int = 1
    """The number of the first slot."""

    @property
    def arms(self) -> IntArray:
        """The arm pulled in each slot; of several plays the first."""
        numbers: IntArray = self.pulled.argmax(axis=1)
        return numbers

    def part(self, start: int, length: int) -> Walk:
        """Return a stretch of slots, from slot ``start`` on."""
        there = slice(start - self.first, start - self.first + length)
        return replace(
            self,
            states=self.states[there],
            pulled=self.pulled[there],
            last_states=self.last_states[there],
            elapsed=self.elapsed[there],
            first=start,
        )


def walk(problem: Problem, learner: Learner | str, horizon: int, seed: int = 0) -> Walk:
    """Play one run slot by slot on chains that are all drawn, which the simulator has no need to do."""
    if any(isinstance(arm, TableArm) for arm in problem.arms):
        raise ProblemError("a walk needs chains, and a table of laws is none; give problems made of Arm")
    learner = learner_of(learner) if isinstance(learner, str) else learner
    rng = np.random.default_rng(seed)
    states = np.stack([_path(problem, arm, horizon, rng) for arm in range(problem.n_arms)], axis=1)
    agent = Agent(learner, learner.task(problem, horizon), seed=seed)
    pulled = np.zeros(states.shape, dtype=bool)
    last_states, elapsed = np.empty_like(states), np.empty_like(states)
    for slot in range(horizon):
        last_states[slot], elapsed[slot] = agent.record.last_states, agent.record.elapsed
        choice = agent.ask()
        chosen = (choice,) if isinstance(choice, int) else choice
        seen = [int(states[slot, arm]) for arm in chosen]
        rewards = [_reward(problem, arm, state, rng) for arm, state in zip(chosen, seen, strict=True)]
        agent.tell(*((seen[0], rewards[0]) if isinstance(choice, int) else (seen, rewards)))
        pulled[slot, list(chosen)] = True
    return Walk(problem, learner.spec, states, pulled, last_states, elapsed)


def _path(problem: Problem, arm: int, horizon: int, rng: np.random.Generator) -> IntArray:
    chain = problem.arms[arm].one_step
    start = problem.initial[arm]
    state = int(rng.choice(len(chain), p=stationary(chain))) if start is None else int(start)
    sums = np.cumsum(chain, axis=1)
    path = np.empty(horizon, dtype=np.int64)
    for slot, u in enumerate(rng.random(horizon)):
        state = min(int(np.searchsorted(sums[state], u, side="right")), len(chain) - 1)
        path[slot] = state
    return path


def _reward(problem: Problem, arm: int, state: int, rng: np.random.Generator) -> float:
    mean = float(problem.arms[arm].rewards[state])
    return mean if problem.arms[arm].reward_law == "fixed" else float(rng.random() < mean)
