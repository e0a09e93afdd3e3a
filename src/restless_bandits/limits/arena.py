"""A problem's joint beliefs, solved once, in which an arm can be replaced or paid a bonus and solved again.

Two questions are asked here many times. What would the best player earn if one arm were another? And what if pulling an
arm in belief b paid a bonus on top of its reward? Both leave the joint beliefs and where they lead as they are, so the
table is made once, and every solution starts from the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from restless_bandits.arrays import ActionArray, Array
from restless_bandits.beliefs import JointBeliefs, JointLaws
from restless_bandits.limits import _kernels as kernels
from restless_bandits.oracles import _joint
from restless_bandits.problem import Arm, Problem

TOLERANCE = 2e-9
"""Span of the last update of a solution: its gain is known to about that."""
FINEST_TOLERANCE = 1e-11
"""The same for the problem itself, whose gaps everything rests on."""
MOST_SWEEPS = 20_000


@dataclass(frozen=True, eq=False)
class Solved:
    """The best player of a problem that was changed, and what it does in the long run."""

    gain: float
    action: ActionArray
    values: Array
    play: kernels.Play


class Arena:
    """A problem with one play over capped joint beliefs; gaps up to ``zero`` count as none."""

    def __init__(self, problem: Problem, joint: JointBeliefs, zero: float, start: Array | None = None) -> None:
        self.problem, self.joint = problem, joint
        self.caps = tuple(arm.cap for arm in joint.arms)
        self.links = _joint.link(joint.table)
        self._warm = np.zeros(joint.size) if start is None else start
        self._home = 0
        self.gap = np.zeros((self.joint.size, problem.n_arms))
        first = self.solve(tolerance=FINEST_TOLERANCE)
        table, laws = self.joint.table, self.joint.laws
        gap = kernels.gaps_of(first.values, laws.reward, self.links, table.strides, table.n_states, laws.law)
        self.gap = np.where(gap <= zero, 0.0, gap)
        self._home = first.play.home
        self.values, self.gain = first.values, first.gain

    def laws_with(self, arm: int | None, model: Arm | None, bonus: Mapping[int, Array] | None) -> JointLaws:
        """Return the laws and rewards of all arms with another model of one arm, and bonuses on top of rewards."""
        laws = self.joint.laws
        law, reward = laws.law.copy(), laws.reward.copy()
        if arm is not None and model is not None:
            other = kernels.laws_of(model.chain, self.caps[arm])
            law[arm, : len(other), : model.n_states] = other
            reward[arm, : len(other)] = other @ model.rewards
        for i, extra in (bonus or {}).items():
            reward[i, : len(extra)] += extra
        return laws._replace(law=law, reward=reward)

    def solve(
        self,
        arm: int | None = None,
        model: Arm | None = None,
        bonus: Mapping[int, Array] | None = None,
        tolerance: float = TOLERANCE,
    ) -> Solved:
        """Find the best player where an arm is another, or where bonuses are paid, and follow it."""
        laws, size = self.laws_with(arm, model, bonus), self.joint.size
        iterate = _joint.Iterate(self._warm.copy(), np.empty(size), np.zeros(size, dtype=np.int16))
        _joint.iterate_values(iterate, tolerance, MOST_SWEEPS, self.links, self.joint.table, laws)
        values = iterate.values - iterate.values[self._home]
        self._warm = values
        play = self._play(iterate.action, values, laws)
        return Solved(float((play.pulls * laws.reward).sum()), iterate.action, values, play)

    def follow(self, action: ActionArray) -> kernels.Play:
        """Return what a policy does in the problem itself in the long run."""
        return self._play(action, self.values, self.joint.laws)

    def _play(self, action: ActionArray, values: Array, laws: JointLaws) -> kernels.Play:
        # From where optimal play is most often: a policy that never comes back from there is of no use.
        table = self.joint.table
        return kernels.occupy(self._home, action, values, self.gap, self.links, table.strides, table.n_states, laws.law)
