"""The true states of all arms, drawn a slot at a time, pulled or not.

The engine draws pulled arms only and does not need this module. Walks, the Gymnasium environment and the demo of the
service show all states.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import BaseArm, TableArm
from restless_bandits.model.markov import stationary, thresholds
from restless_bandits.model.problem import Problem
from restless_bandits.model.rewards import draw_reward
from restless_bandits.model.support import SUPPORT, refuse_unsupported


class ChainWorld:
    """All arms of a problem, stepped together; every step takes a uniform draw for each arm.

    ``entry`` names the caller in the table of ``support``.
    """

    def __init__(self, problem: Problem, entry: str) -> None:
        refuse_unsupported(problem, entry)
        if any(isinstance(arm, TableArm) for arm in problem.kinds):
            subject = SUPPORT[entry].subject
            raise ProblemError(
                f"{subject} needs chains, and a table of distributions is none; give problems made of Arm"
            )
        problem.require_drawn()
        self.problem = problem
        self._pieces = {piece.first: piece.problem for piece in problem.pieces}
        self._every = np.arange(problem.n_arms)
        self._enter(1)

    def _enter(self, slot: int) -> None:
        """Take the chains and rewards of the piece that begins in a slot."""
        self.arms: tuple[BaseArm, ...] = self._pieces[slot].arms
        most = max(self.problem.n_states)
        self._thresholds = np.full((len(self.arms), most, most), np.inf)
        for i, arm in enumerate(self.arms):
            self._thresholds[i, : arm.n_states, : arm.n_states] = thresholds(arm.one_step)

    def begin(self, uniforms: Array) -> None:
        """Return to the states one step before slot 1."""
        self._enter(1)
        self.slot = 0
        starts = [
            (thresholds(stationary(arm.one_step)) <= draw).sum() if arm.initial is None else arm.initial
            for arm, draw in zip(self.arms, uniforms, strict=True)
        ]
        self.states: IntArray = np.array(starts, dtype=np.int64)

    def step(self, uniforms: Array) -> IntArray:
        """Move all arms into the next slot and return their states there."""
        self.slot += 1
        if self.slot > 1 and self.slot in self._pieces:
            self._enter(self.slot)
        self.states = (self._thresholds[self._every, self.states] <= uniforms[:, None]).sum(axis=1)
        return self.states

    def reward(self, arm: int, rng: np.random.Generator) -> float:
        """Draw the reward of a pull of an arm in its present state."""
        return draw_reward_of(self.arms[arm], int(self.states[arm]), rng)


def draw_reward_of(arm: BaseArm, state: int, rng: np.random.Generator) -> float:
    """Draw the reward of a pull of an arm in a state."""
    return draw_reward(arm.reward_law, float(arm.rewards[state]), arm.reward_range, arm.reward_spread, rng)
