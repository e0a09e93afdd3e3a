"""A run of a learner on observed arms: plans made in Python, slots played in compiled code.

All arms step in every slot. Where many arms share a kind, the numbers of arms in each place step instead, see
``rollout``: counts pooled by kind are all that most learners read. A run uses the draws of a run of a policy that knows
the problem, so results are compared on the same draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from restless_bandits._internal.random_streams import plan_generator, world_generator, world_words
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.learners.base import Learner, next_plan
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.oracles.observed.rollout import ObservedTotals, ObservedWorld, place_ranks, rank_search
from restless_bandits.policies.observed import (
    CountedPolicy,
    JointStatePolicy,
    ObservedPolicy,
    PriorityPolicy,
    UniformPolicy,
)
from restless_bandits.policies.plans import Plan, observed_end
from restless_bandits.simulation import observed_kernels as kernels

NO_RANKS = np.zeros(0, dtype=np.int32)
NO_TABLE = kernels.ChoiceTable(
    np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros((0, 0), dtype=np.int64)
)


class LearnerRun:
    """A run of a learner on observed arms: its record, its totals, and the plans played so far.

    With ``by_counts`` the numbers of arms in each place step. The record then has no states of single arms, and its
    ``pulls`` stand at the first arm of each kind.
    """

    def __init__(
        self, world: ObservedWorld, task: Any, checkpoints: IntArray, seed: int, run: int, *, by_counts: bool
    ) -> None:
        self.world, self.checkpoints, self.by_counts = world, checkpoints, by_counts
        content, layout = world.problem.content, world.layout
        self._words, self._rng = world_words(seed, content, run), world_generator(seed, content, run)
        self.record = record = ObservedRecord.of(task)
        self.totals = ObservedTotals(np.zeros((len(checkpoints), 3)))
        self._sums: Array = np.zeros(2)
        self._mark = 0
        if by_counts:
            self._numbers = world.first_numbers(self._rng)
            self._pulled = np.zeros(layout.size, dtype=np.int64)
            self._firsts = np.cumsum(layout.counts) - layout.counts
        else:
            record.observe(world.first_states(self._rng))
            self._search = rank_search(layout.n_arms, layout.size)

    @property
    def done(self) -> bool:
        return self._mark == len(self.checkpoints)

    def play(self, plan: Plan) -> None:
        """Play a plan until it ends, at most to the last checkpoint."""
        record, policy = self.record, plan.policy
        assert isinstance(policy, ObservedPolicy)
        most, end_visits = observed_end(plan.until, record.visits)
        started = record.slots
        counting = kernels.Counting(record.flat_counts, record.visits, record.paid, record.flat_rewards, end_visits)
        play = (self._counts if self.by_counts else self._arms)(policy, counting)
        while not self.done:
            ahead = min(int(self.checkpoints[self._mark]) - record.slots, most - (record.slots - started))
            over = play(ahead)
            if record.slots == self.checkpoints[self._mark]:
                self.totals.at[self._mark, :2] = self._sums
                self._mark += 1
            if over or record.slots - started >= most:
                break
        record.plan_lengths.append(record.slots - started)

    def _arms(self, policy: ObservedPolicy, counting: kernels.Counting) -> Any:
        """Return a function that plays slots by steps of single arms, and returns whether the plan is over."""
        world, record = self.world, self.record
        ranks, floor = place_ranks(policy) if isinstance(policy, PriorityPolicy) else (NO_RANKS, 0)
        joint = _joint_table(policy) if isinstance(policy, JointStatePolicy) else NO_TABLE
        compiled = len(ranks) > 0 or len(joint.choice) > 0
        memory = kernels.ArmMemory(
            record.first_row,
            record.last_states,
            record.previous_states,
            record.last_pulled,
            record.last_rewards,
            record.pulls,
        )

        def play(slots: int) -> bool:
            last, over = record.slots + slots, False
            while record.slots < last and not over:
                if not compiled:
                    record.last_pulled[:] = False
                    record.last_pulled[policy.arms_in(record.slots + 1, record.last_states)] = True
                stretch = last - record.slots if compiled else 1
                given = (world.arms, world.draws, ranks, floor, policy.plays, joint, self._search, memory, counting)
                played, over = kernels.learn_slots(self._words, *given, stretch, self._sums)
                record.slots += played
            return over

        return play

    def _counts(self, policy: ObservedPolicy, counting: kernels.Counting) -> Any:
        """Return a function that plays slots by steps of numbers of arms, and returns whether the plan is over."""
        world, record, layout = self.world, self.record, self.world.layout
        order = policy.allowed if isinstance(policy, PriorityPolicy) else np.zeros(0, dtype=np.int64)
        pulls = np.zeros(layout.size, dtype=np.int64)
        base = record.count_base, counting, self._numbers, self._pulled

        def play(slots: int) -> bool:
            last, over = record.slots + slots, False
            while record.slots < last and not over:
                stretch = last - record.slots
                if not isinstance(policy, PriorityPolicy):
                    pulls[:], stretch = _pulls(policy, record.slots + 1, self._numbers), 1
                given = (world.kinds, world.draws, order, policy.plays, pulls, *base)
                played, over = kernels.learn_counts(self._rng, *given, stretch, self._sums)
                record.slots += played
            record.pulls[self._firsts] = np.add.reduceat(self._pulled, layout.offset)
            return over

        return play


def _joint_table(policy: JointStatePolicy) -> kernels.ChoiceTable:
    sizes = policy.layout.sizes
    stride = np.cumprod(np.append(sizes[1:], 1)[::-1])[::-1]
    choice = np.ascontiguousarray(policy.choice.reshape(-1), dtype=np.int64)
    return kernels.ChoiceTable(np.ascontiguousarray(stride), choice, policy.actions.astype(np.int64))


def _pulls(policy: ObservedPolicy, slot: int, numbers: IntArray) -> IntArray:
    if isinstance(policy, UniformPolicy):
        return policy.pulls_in(slot, numbers)
    assert isinstance(policy, CountedPolicy)
    return policy.pulls(numbers)


def learn_observed(
    learner: Learner, world: ObservedWorld, horizon: int, checkpoints: IntArray, *, seed: int, run: int
) -> LearnerRun:
    """Play a run of a learner to the horizon; ``checkpoints`` are slots in ascending order, the horizon the last."""
    content = world.problem.content
    task = learner.task(world.problem, horizon)
    by_counts = world.by_counts and learner.pools_kinds
    played = LearnerRun(world, task, checkpoints, seed, run, by_counts=by_counts)
    while not played.done:
        rng = plan_generator(seed, content, run, played.record.plans)
        played.play(next_plan(learner, played.record, task, rng))
    return played
