"""The true states of all arms, drawn a slot at a time, pulled or not.

The engine draws pulled arms only and does not need this module. Walks, the Gymnasium environment and the demo of the
service show all states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import Arm, TableArm
from restless_bandits.model.markov import thresholds
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
        self.arms = [arm for arm in self._pieces[slot].arms if isinstance(arm, Arm)]
        most = max(self.problem.n_states)
        self._thresholds = np.full((2, len(self.arms), most, most), np.inf)
        for i, arm in enumerate(self.arms):
            for action, chain in enumerate((arm.chain, arm.active_chain)):
                self._thresholds[action, i, : arm.n_states, : arm.n_states] = thresholds(chain)

    def begin(self, uniforms: Array) -> None:
        """Return to the states one step before slot 1."""
        self._enter(1)
        self.slot = 0
        starts = [
            (thresholds(arm.initial_distribution) <= draw).sum() if arm.initial is None else arm.initial
            for arm, draw in zip(self.arms, uniforms, strict=True)
        ]
        self.states: IntArray = np.array(starts, dtype=np.int64)

    def step(self, uniforms: Array, pulled: Sequence[int] = ()) -> IntArray:
        """Move all arms into the next slot, ``pulled`` being the arms pulled in this one, and return their states."""
        self.slot += 1
        if self.slot > 1 and self.slot in self._pieces:
            self._enter(self.slot)
        action = np.zeros(len(self.arms), dtype=np.int64)
        action[list(pulled)] = 1
        self.states = (self._thresholds[action, self._every, self.states] <= uniforms[:, None]).sum(axis=1)
        return self.states

    def reward(self, arm: int, rng: np.random.Generator) -> float:
        """Draw the reward of a pull of an arm in its present state."""
        return draw_reward_of(self.arms[arm], int(self.states[arm]), rng)


def draw_reward_of(arm: Arm, state: int, rng: np.random.Generator) -> float:
    """Draw the reward of a pull of an arm in a state."""
    return draw_reward(arm.reward_law, float(arm.rewards[state]), arm.reward_range, arm.reward_spread, rng)
