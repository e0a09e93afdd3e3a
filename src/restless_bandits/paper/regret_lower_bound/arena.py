"""A problem's joint beliefs, with fast repeated solutions for replaced arms or bonuses.

Two questions arise many times. What is the optimal gain with one arm replaced? What is the optimal gain with a bonus
for pulls in belief b on top of the reward? Both leave the joint beliefs and their successors unchanged: the table is
made once, and every solution starts from the last solution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import ActionArray, Array
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem
from restless_bandits.oracles import joint_kernels
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels
from restless_bandits.processes.beliefs import JointBeliefs, JointDistributions

TOLERANCE = 2e-9
"""Span of the last update of a solution, about the accuracy of its gain."""
FINEST_TOLERANCE = 1e-11
"""The same for the problem itself, the source of all gaps."""
MOST_SWEEPS = 20_000


@dataclass(frozen=True, eq=False)
class Solved:
    """The optimal policy of a changed problem, with its long-run behaviour."""

    gain: float
    action: ActionArray
    values: Array
    play: kernels.PolicyOccupation


class Arena:
    """A problem with one play over truncated joint beliefs; gaps up to ``zero`` count as none."""

    def __init__(self, problem: Problem, joint: JointBeliefs, zero: float, start: Array | None = None) -> None:
        self.problem, self.joint = problem, joint
        self.truncations = tuple(arm.truncation for arm in joint.arms)
        self.links = joint_kernels.link(joint.table)
        self._warm = np.zeros(joint.size) if start is None else start
        self._home = 0
        self.gap = np.zeros((self.joint.size, problem.n_arms))
        first = self.solve(tolerance=FINEST_TOLERANCE)
        table, distributions = self.joint.table, self.joint.distributions
        gap = kernels.gaps_of(
            first.values, distributions.reward, self.links, table.strides, table.n_states, distributions.distribution
        )
        self.gap = np.where(gap <= zero, 0.0, gap)
        self._home = first.play.home
        self.values, self.gain = first.values, first.gain

    def arm(self, i: int) -> Arm:
        """Return an arm of the problem, which is a Markov chain."""
        arm = self.problem.arms[i]
        assert isinstance(arm, Arm)
        return arm

    def distributions_with(
        self, arm: int | None, model: Arm | None, bonus: Mapping[int, Array] | None
    ) -> JointDistributions:
        """Return the distributions and rewards of all arms with another model of one arm, and bonuses on top of
        rewards.
        """
        distributions = self.joint.distributions
        distribution, reward = distributions.distribution.copy(), distributions.reward.copy()
        if arm is not None and model is not None:
            other = kernels.distributions_of(model.chain, self.truncations[arm])
            distribution[arm, : len(other), : model.n_states] = other
            reward[arm, : len(other)] = other @ model.rewards
        for i, extra in (bonus or {}).items():
            reward[i, : len(extra)] += extra
        return distributions._replace(distribution=distribution, reward=reward)

    def solve(
        self,
        arm: int | None = None,
        model: Arm | None = None,
        bonus: Mapping[int, Array] | None = None,
        tolerance: float = TOLERANCE,
    ) -> Solved:
        """Find the optimal policy with an arm replaced, or with bonuses, and follow the policy."""
        distributions, size = self.distributions_with(arm, model, bonus), self.joint.size
        iterate = joint_kernels.Iterate(self._warm.copy(), np.empty(size), np.zeros(size, dtype=np.int16))
        joint_kernels.iterate_values(iterate, tolerance, MOST_SWEEPS, self.links, self.joint.table, distributions)
        values = iterate.values - iterate.values[self._home]
        self._warm = values
        play = self._play(iterate.action, values, distributions)
        return Solved(float((play.pulls * distributions.reward).sum()), iterate.action, values, play)

    def follow(self, action: ActionArray) -> kernels.PolicyOccupation:
        """Return the long-run behaviour of a policy in the problem itself."""
        return self._play(action, self.values, self.joint.distributions)

    def _play(self, action: ActionArray, values: Array, distributions: JointDistributions) -> kernels.PolicyOccupation:
        # From the most frequent joint belief of optimal play: a policy that never returns from there is of no use.
        table = self.joint.table
        return kernels.occupy(
            self._home, action, values, self.gap, self.links, table.strides, table.n_states, distributions.distribution
        )
