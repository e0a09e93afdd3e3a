"""A run of a learner on a problem: plans made in Python, slots played in compiled code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import plan_generator, world_words
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.learners.base import Learner, next_plan
from restless_bandits.model.arms import AnyArm
from restless_bandits.model.draw_kernels import PAYS_BETA, PAYS_END, PAYS_MEAN, PAYS_ONE
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import ZERO_TO_ONE, beta_shapes, normalized_rewards
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.normalization import policy_units
from restless_bandits.oracles.solution import Solution
from restless_bandits.policies.plans import Plan, RuleTable
from restless_bandits.policies.policies import (
    TIE,
    Cycle,
    EmpiricalUCB,
    FlatTables,
    IndexPolicy,
    JointPolicy,
    Policy,
    SingleArm,
    top_arms,
)
from restless_bandits.processes.beliefs import (
    MOST_CHOICES,
    HiddenProcess,
    JointBeliefs,
    has_lost_row,
    hidden_process,
    truncation_for,
)
from restless_bandits.processes.resting_pay import resting_pay
from restless_bandits.simulation import world_kernels as kernels

ENGINE_TV_ERROR = 1e-15
LARGEST_GAP_TABLE = 40_000_000
REALISED, EXPECTED, GAP = range(3)
"""Positions in the last axis of the totals: realised reward, expected reward, gap."""


@dataclass(frozen=True)
class GapTable:
    """The exact solution of the problem, in the form of a table of gaps for every choice of a run."""

    beliefs: JointBeliefs
    gap: Array
    start_gap: Array

    @classmethod
    def of(cls, solution: Solution) -> GapTable | None:
        """Return the gaps of a solution, or None without a bias or if the table would be too large."""
        if solution.bias is None or not isinstance(solution.policy, JointPolicy):
            return None
        beliefs = solution.policy.beliefs
        if beliefs.size * len(beliefs.actions) > LARGEST_GAP_TABLE:
            return None
        parts = np.array_split(beliefs.everywhere(), 64)
        values = np.concatenate([solution.policy.action_values(part) for part in parts])
        gap = values.max(axis=1, keepdims=True) - values
        # Choices equal up to rounding have no gap.
        gap[gap <= TIE] = 0.0
        start = solution.policy.action_values(beliefs.start[None])[0]
        # A policy's numbers are in shares of the range of rewards.
        unit = policy_units(solution.problem)
        return cls(beliefs, unit * gap, unit * (start.max() - start))


class World:
    """A problem in the layout of the engine. An arm with ``bounded`` rewards of unknown distribution pays its means."""

    def __init__(self, problem: Problem, gap_table: GapTable | None = None) -> None:
        refuse_unsupported(problem, "simulate")
        self.problem = problem
        self.gap_table = gap_table
        changed = [
            (piece.first, i, arm)
            for before, piece in pairwise(problem.pieces)
            for i, (old, arm) in enumerate(zip(before.problem.arms, piece.problem.arms, strict=True))
            if arm is not old
        ]
        paying = [*problem.arms, *(arm for _, _, arm in changed)]
        arms = [hidden_process(arm, truncation_for(arm, ENGINE_TV_ERROR), forget=False) for arm in paying]
        law_bases = _bases([arm.distribution.size for arm in arms])
        distributions = [
            np.column_stack([arm.distribution[:, :-1].cumsum(axis=1), arm.distribution @ arm.rewards]).ravel()
            for arm in arms
        ]
        n = problem.n_arms
        record = Record.of_problem(problem)
        table = np.zeros((n, 8), dtype=np.int64)
        table[:, kernels.STATES] = problem.n_states
        table[:, kernels.CAP] = [arm.truncation for arm in arms[:n]]
        table[:, kernels.PERIOD] = [arm.period for arm in arms[:n]]
        table[:, kernels.LAW] = law_bases[:n]
        table[:, kernels.STATE] = record.state_base[:-1]
        table[:, kernels.ROW] = record.row_base[:-1]
        table[:, kernels.COUNT] = record.count_base[:-1]
        table[:, kernels.PAYS] = [_pays(arm) for arm in problem.arms]
        self.arrays = kernels.WorldArrays(table, np.concatenate(distributions), *_rewards(problem.arms))
        self.resting = _resting(problem, arms)
        self.changes = None
        if changed:
            slots, numbers, later = zip(*changed, strict=True)
            truncations = np.array([arm.truncation for arm in arms])
            # Space for the distributions of each arm not observed across a change: the largest need of any change.
            room = np.zeros(n, dtype=np.int64)
            np.maximum.at(room, list(numbers), truncations[n:] * table[list(numbers), kernels.STATES])
            self.changes = kernels.ChangeArrays(
                slot=np.array(slots),
                arm=np.array(numbers),
                distribution=law_bases[n:],
                truncation=truncations[n:],
                period=np.array([arm.period for arm in arms[n:]]),
                state=_bases([arm.n_states for arm in later]),
                **dict(zip(("reward", "draws"), _rewards(later), strict=True)),
                done=np.zeros(1, dtype=np.int64),
                since=np.full(n, -1),
                base=_bases(room.tolist()),
                crossed=np.zeros(int(room.sum())),
            )
        self.priced = _no_blocks(problem) if gap_table is None else kernels.Blocks.of(gap_table.beliefs.table)
        self.gap = np.zeros((0, 1)) if gap_table is None else gap_table.gap
        self.start_gap = np.zeros(1) if gap_table is None else gap_table.start_gap

    @cached_property
    def first_block(self) -> int:
        """The action of the block that contains the start, for arms with known initial states; −1 without such a
        block.
        """
        arms = enumerate(self.problem.arms)
        known = [i for i, arm in arms if arm.initial is not None and not has_lost_row(arm)][: self.problem.plays]
        same = np.flatnonzero((self.priced.actions == np.array(known)).all(axis=1)) if known else np.zeros(0)
        return int(same[0]) if len(known) == self.problem.plays and same.size else -1


def _resting(problem: Problem, processes: Sequence[HiddenProcess]) -> kernels.RestArrays | None:
    """The pay at rest and the set-up costs of a problem; None if there are none."""
    if not {"passive_rewards", "setup_cost"}.intersection(problem.features):
        return None
    pays = [resting_pay(arm) for arm in problem.arms]
    potentials = [process.distribution @ pay.potential for process, pay in zip(processes, pays, strict=True)]
    return kernels.RestArrays(
        rate=np.array([pay.rate for pay in pays]),
        potential=np.concatenate(potentials),
        base=_bases([len(one) for one in potentials]),
        setup_cost=np.array([arm.setup_cost for arm in problem.arms]),
    )


def _bases(sizes: list[int]) -> IntArray:
    return np.cumsum([0, *sizes[:-1]], dtype=np.int64)


def _pays(arm: AnyArm) -> int:
    """How the rewards of an arm are drawn."""
    if arm.reward_law == "bernoulli":
        return PAYS_ONE if arm.reward_range == ZERO_TO_ONE else PAYS_END
    return PAYS_BETA if arm.reward_law == "beta" else PAYS_MEAN


def _rewards(arms: Sequence[AnyArm]) -> tuple[Array, Array]:
    """The mean rewards of all states of some arms, and the parameters of their draws: see ``_kernels.World``."""
    rows = []
    for arm in arms:
        low, high = arm.reward_range
        shares = normalized_rewards(arm.rewards, arm.reward_range)
        first, second = (shares, shares) if arm.reward_spread is None else beta_shapes(shares, arm.reward_spread)
        rows.append(np.column_stack([np.full(arm.n_states, low), np.full(arm.n_states, high), first, second]))
    return np.concatenate([arm.rewards for arm in arms]), np.concatenate(rows)


def _no_blocks(problem: Problem) -> kernels.Blocks:
    """The actions of a problem alone, in place of a table over joint beliefs."""
    n, plays = problem.n_arms, problem.plays
    # Too many choices for any table over joint beliefs: action numbers are then not needed.
    listed = itertools.combinations(range(n), plays) if math.comb(n, plays) <= MOST_CHOICES else ()
    flat, square, cube = (np.zeros((1,) * axes, dtype=np.int64) for axes in (1, 2, 3))
    actions = np.array(list(listed), dtype=np.int64).reshape(-1, plays)
    return kernels.Blocks(actions, flat, square, cube, flat, flat)


class UnplayablePolicyError(ProblemError):
    """A policy of a kind unknown to the compiled engine."""


class Run:
    """A run: its record, its accounts, and the plans played so far."""

    def __init__(self, world: World, horizon: int, checkpoints: IntArray, words: Any, *, trace: bool = False) -> None:
        problem = world.problem
        self.world, self.horizon, self.words = world, horizon, words
        self.record = record = Record.of_problem(problem)
        self.previous_action = world.first_block
        shape = (horizon if trace else 0, problem.plays)
        self.trace = kernels.Trajectory(
            np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64), np.zeros(shape)
        )
        at = np.zeros((len(checkpoints), 3))
        self.totals = kernels.RunTotals(np.zeros(3), checkpoints, at, world.gap, world.start_gap)
        flat = record.flat_counts, record.flat_visits, record.flat_seen, record.flat_rewards
        self._memory = kernels.without_changes(kernels.Memory(*flat, record.last_state, record.last_slot))
        self._arms, self._changes = kernels.without_changes(world.arrays), world.changes
        if world.changes is not None:
            # Arrays that a change overwrites belong to the run.
            arms, distribution, *paid = world.arrays
            self._arms = kernels.without_changes(
                kernels.WorldArrays(arms.copy(), distribution, *(array.copy() for array in paid))
            )
            own = ("done", "since", "crossed")
            self._changes = world.changes._replace(**{name: getattr(world.changes, name).copy() for name in own})
        self._priced = kernels.without_changes(world.priced)
        self._outcomes = kernels.without_changes(self.totals), kernels.without_changes(self.trace)
        # Two numbers for each count; the system allocates only the used pages.
        size = len(record.flat_visits)
        self._rule_counts = np.zeros(size, dtype=np.int64), np.empty(size, dtype=np.int64)

    @property
    def done(self) -> bool:
        return self.record.slots >= self.horizon

    def play(self, plan: Plan) -> None:
        """Play a plan to its end, or to the horizon."""
        record = self.record
        ending = kernels.without_changes(kernels.Ending(*RuleTable.of(plan.until), *self._rule_counts))
        choice, flat, joint = _choice(plan.policy, self.world.problem, at_start=self.previous_action < 0)
        priced, started = self._priced, record.slots
        game = (self._arms, self._memory, choice, flat, joint or priced, priced, ending, *self._outcomes)
        record.slots, self.previous_action = kernels.run_plan(
            self.words, started, self.horizon, self.previous_action, *game, self._changes, self.world.resting
        )
        record.plan_lengths.append(record.slots - started)


def play_run(
    learner: Learner, world: World, horizon: int, checkpoints: IntArray, *, seed: int, run: int, trace: bool = False
) -> Run:
    """Play a run of a learner to the horizon; ``checkpoints`` are slots in ascending order."""
    problem = world.problem
    task = learner.task(problem, horizon)
    played = Run(world, horizon, checkpoints, world_words(seed, problem.content, run), trace=trace)
    while not played.done:
        rng = plan_generator(seed, problem.content, run, played.record.plans)
        played.play(next_plan(learner, played.record, task, rng))
    return played


def _choice(
    policy: Policy, problem: Problem, *, at_start: bool
) -> tuple[kernels.PolicyArrays, FlatTables, kernels.Blocks | None]:
    """A policy in the layout of the engine, with its tables of indices and its joint beliefs, if any.

    ``at_start`` marks a start for which a table over joint beliefs may have no entry yet.
    """
    plays = problem.plays
    flat, blocks = kernels.NO_TABLES, None
    if isinstance(policy, IndexPolicy):
        flat = policy.flat
        kind = kernels.INDEX if plays == 1 else kernels.INDICES
        if plays == 1 and problem.n_arms == 2 and max(policy.table_periods) == 1:
            kind = kernels.PAIR
        choice = kernels.PolicyArrays(kind, plays)
    elif isinstance(policy, JointPolicy):
        start = top_arms(policy.action_values(policy.beliefs.start[None]), 1)[0, 0] if at_start else 0
        choice = kernels.PolicyArrays(kernels.JOINT, plays, action=policy.action, start=int(start))
        blocks = kernels.without_changes(kernels.Blocks.of(policy.beliefs.table))
    elif isinstance(policy, SingleArm):
        choice = kernels.PolicyArrays(kernels.SINGLE, plays, arm=policy.arm)
    elif isinstance(policy, Cycle):
        choice = kernels.PolicyArrays(kernels.CYCLE, plays)
    elif isinstance(policy, EmpiricalUCB):
        ranges = np.array(policy.ranges) if policy.ranges else np.ones(problem.n_arms)
        choice = kernels.PolicyArrays(kernels.UCB, plays, width=float(policy.width), ranges=ranges)
    else:
        raise UnplayablePolicyError(
            f"the simulator cannot play a {type(policy).__name__}; give one of IndexPolicy, JointPolicy, SingleArm, "
            "Cycle or EmpiricalUCB"
        )
    return kernels.without_changes(choice), kernels.without_changes(flat), blocks
