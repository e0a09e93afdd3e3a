"""Policies as data: functions from what is known (last seen states, elapsed slots) to the arms to pull.

Every policy can be asked directly, ``policy(last_states, elapsed)``, and for many situations at once,
``policy.choose(last_states, elapsed)`` with one row each. A state that was never seen is ``None`` in the first form and
``UNKNOWN`` (−1) in the second. Ties go to the lowest arm number, with a tolerance of 1e-12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from restless_bandits.beliefs import UNKNOWN, JointBeliefs
from restless_bandits.markov import Array, IntArray

TIE = 1e-12


class Policy:
    """What every policy can do; a new kind defines ``choose``."""

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        """Return the arms to pull, one row for each situation: ``plays`` arm numbers in ascending order."""
        raise NotImplementedError

    def __call__(self, last_states: Sequence[int | None], elapsed: Sequence[int]) -> int | tuple[int, ...]:
        """Return the arm to pull, or a tuple of arms where several are."""
        states = [UNKNOWN if s is None else s for s in last_states]
        arms = self.choose(np.array([states], dtype=np.int64), np.array([elapsed], dtype=np.int64))[0].tolist()
        return int(arms[0]) if len(arms) == 1 else tuple(arms)


def top_arms(scores: Array, plays: int) -> IntArray:
    """Return for each row the ``plays`` highest scores, in ascending order of arms; ties go to lower numbers."""
    left = scores.copy()
    rows = np.arange(len(left))
    chosen = np.empty((len(left), plays), dtype=np.int64)
    for k in range(plays):
        near = left >= left.max(axis=1, keepdims=True) - TIE
        chosen[:, k] = near.argmax(axis=1)
        left[rows, chosen[:, k]] = -np.inf
    chosen.sort(axis=1)
    return chosen


@dataclass(frozen=True, eq=False)
class IndexPolicy(Policy):
    """Pull the arms of highest index, an arm's index depending on its own belief alone.

    ``tables[arm][s, τ - 1]``; beyond its last column a table stays as it is. The last row, one more than there are
    states, is for an arm never seen.
    """

    tables: tuple[Array, ...]
    plays: int = 1

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        scores = np.empty(last_states.shape)
        for i, table in enumerate(self.tables):
            column = np.minimum(elapsed[:, i], table.shape[1]) - 1
            scores[:, i] = table[last_states[:, i], column]
        return top_arms(scores, self.plays)


@dataclass(frozen=True, eq=False)
class JointPolicy(Policy):
    """A choice for every joint belief, with the bias function it comes from.

    ``action`` and ``bias`` run over the joint beliefs of ``beliefs``; an action is a row of ``beliefs.actions``. The bias
    answers where the table has no entry (nothing was pulled for a while, or the start is unknown): every choice
    leads back into the table, and the best of them is one step of looking ahead.
    """

    beliefs: JointBeliefs
    action: IntArray
    bias: Array

    @cached_property
    def plays(self) -> int:
        return self.beliefs.plays

    def choose(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        joint = self.beliefs.locate(last_states, elapsed)
        place = self.beliefs.index(joint)
        action = self.action[place].astype(np.int64)
        off = np.flatnonzero(place < 0)
        if off.size:
            action[off] = top_arms(self.action_values(joint[off]), 1)[:, 0]
        chosen: IntArray = self.beliefs.actions[action]
        return chosen

    def action_values(self, joint: IntArray) -> Array:
        """Return ``reward + E[bias after]`` of every action in given joint beliefs, one column an action."""
        values = np.empty((len(joint), len(self.beliefs.actions)))
        for a in range(values.shape[1]):
            after, chances = self.beliefs.successors(joint, a)
            places = self.beliefs.index(after.reshape(-1, after.shape[-1])).reshape(after.shape[:2])
            values[:, a] = self.beliefs.rewards(joint, a) + (chances * self.bias[places]).sum(axis=1)
        return values
