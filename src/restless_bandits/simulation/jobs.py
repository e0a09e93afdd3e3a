"""Cells, the units of simulations, and the runs of a cell.

A cell is all runs of a learner on a problem. Run r depends on the seed, the problem's content and r alone: a cell can
be played in any pieces, in any order, by any worker. ``play_runs`` is a function of its arguments, with the same bytes
in a thread, in another process and on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.compiling import compiling_ahead
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import IntArray, check_int
from restless_bandits.learning.learners.base import Learner
from restless_bandits.learning.learners.simple import Informed, RoundRobin
from restless_bandits.model.kinds import names_of
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.support import REACTING
from restless_bandits.model.tasks import Task
from restless_bandits.oracles.observed.rollout import ObservedRun, ObservedWorld, play_observed
from restless_bandits.policies.plans import Plan
from restless_bandits.policies.policies import Policy
from restless_bandits.registry import FINITE_ORACLES
from restless_bandits.simulation import world_kernels as kernels
from restless_bandits.simulation.comparator import exact_if_small
from restless_bandits.simulation.engine import GapTable, Run, World, play_run
from restless_bandits.simulation.feedback_delays import PROMPT, FeedbackDelays, play_answered
from restless_bandits.simulation.observed_engine import LearnerRun, learn_observed
from restless_bandits.simulation.results import Outcomes

MOST_RUNS = 1_000_000
"""Runs of a cell, whose outcomes are all held in memory."""
MOST_PULL_COLUMNS = 10_000
"""Kinds of observed arms from which on pulls are counted for all arms together."""


@dataclass(frozen=True, eq=False)
class SimulationJob:
    """All runs of a learner on a problem."""

    problem: Problem
    learner: Learner
    label: str
    """The name of the learner in results: its spec, if any."""
    horizon: int
    checkpoints: tuple[int, ...]
    """Ascending slots; the last is the horizon."""
    seed: int
    runs: int
    trace: bool = False
    answers: FeedbackDelays = PROMPT

    def __post_init__(self) -> None:
        check_int("runs", self.runs, 1, MOST_RUNS)


@dataclass(frozen=True)
class PlayedRun:
    number: int
    outcome: Outcomes
    trace: kernels.Trajectory | None


def play_runs(job: SimulationJob, numbers: Sequence[int]) -> list[PlayedRun]:
    if job.problem.observed == "all":
        return _play_observed(job, numbers)
    world, player = world_of(job.problem), job.learner
    if isinstance(player, Informed):
        player = _settled(player, job.problem, job.horizon)
    checkpoints = np.array(job.checkpoints, dtype=np.int64)
    played = []
    for number in numbers:
        started = time.perf_counter()
        run = _play(job, player, world, checkpoints, number)
        seconds = np.array([time.perf_counter() - started])
        lengths = np.array(run.record.plan_lengths, dtype=np.int64)
        outcome = Outcomes(run.totals.at[None], run.record.pulls[None], seconds, (lengths,))
        played.append(PlayedRun(number, outcome, run.trace if job.trace else None))
    return played


def _play_observed(job: SimulationJob, numbers: Sequence[int]) -> list[PlayedRun]:
    """Play runs of a policy or of a learner on observed arms."""
    world = _observed_world(job.problem)
    checkpoints = np.array(job.checkpoints, dtype=np.int64)
    played = []
    for number in numbers:
        started = time.perf_counter()
        run = _observed_run(job, world, checkpoints, number)
        seconds = np.array([time.perf_counter() - started])
        lengths = np.array(run.record.plan_lengths, dtype=np.int64)
        pulls = np.add.reduceat(run.record.pulls, job.problem.kind_firsts)
        if len(pulls) > MOST_PULL_COLUMNS:
            pulls = pulls.sum(keepdims=True)
        outcome = Outcomes(run.totals.at[None], pulls[None], seconds, (lengths,))
        played.append(PlayedRun(number, outcome, None))
    return played


def _observed_run(
    job: SimulationJob, world: ObservedWorld, checkpoints: IntArray, number: int
) -> ObservedRun | LearnerRun:
    coordinates = {"seed": job.seed, "run": number}
    if isinstance(job.learner, Informed):
        policy = _observed_policy(job.problem, job.learner, job.horizon)
        return play_observed(policy, world, checkpoints, **coordinates)
    return learn_observed(job.learner, world, job.horizon, checkpoints, **coordinates)


def pull_columns(problem: Problem) -> Sequence[str]:
    """Return the names of the columns of pulls in the outcomes of a problem.

    A problem whose states are all observed may have a million arms: its pulls are counted by kind of arms, or for all
    arms together if there are very many kinds.
    """
    if problem.observed != "all":
        return problem.names
    many = len(problem.kinds) > MOST_PULL_COLUMNS
    return ("all arms",) if many else tuple(names_of(problem.kinds))


@lru_cache(maxsize=2)
def _observed_world(problem: Problem) -> ObservedWorld:
    return ObservedWorld(problem)


def check_playable(problem: Problem, learner: Learner, horizon: int, answers: FeedbackDelays, *, trace: bool) -> None:
    """Refuse a learner, or an option of a simulation, for observed arms."""
    if problem.observed == "all":
        if not answers.prompt:
            raise ProblemError(
                "all states are observed in every slot, so no answer is lost or late; leave out lost and late"
            )
        if trace:
            raise ProblemError("trace is for arms that are seen when pulled; leave it out")
        if isinstance(learner, Informed):
            _observed_policy(problem, learner, horizon)
        else:
            learner.task(problem, horizon)


@lru_cache(maxsize=8)
def _observed_policy(problem: Problem, learner: Informed, horizon: int) -> Policy:
    if learner.oracle in FINITE_ORACLES:
        oracle = oracles.find_oracle(learner.oracle)
        assert oracle.plan is not None
        return oracle.plan(problem, 0, horizon)
    return oracles.policy(learner.oracle, problem)


def _play(job: SimulationJob, player: Learner, world: World, checkpoints: IntArray, number: int) -> Run:
    if job.answers.prompt:
        return play_run(player, world, job.horizon, checkpoints, seed=job.seed, run=number, trace=job.trace)
    return play_answered(player, world, job.horizon, checkpoints, seed=job.seed, run=number, answers=job.answers)


@lru_cache(maxsize=2)
def world_of(problem: Problem) -> World:
    """Return the world of a problem, with gaps if small enough; the last two worlds are cached."""
    solution = exact_if_small(problem)
    world = World(problem, None if solution is None else GapTable.of(solution))
    if not compiling_ahead.is_set():
        # Loads the compiled engine: its time is not charged to the first learner. If another process compiles the
        # engine, the first plan is computed in the meantime.
        play_a_slot(world)
    return world


def play_a_slot(world: World) -> None:
    """Play one slot by a learner that plans without a kernel, which loads or compiles the engine."""
    play_run(RoundRobin(), world, 1, np.array([1]), seed=0, run=0)


@lru_cache(maxsize=256)
def is_priced(problem: Problem) -> bool:
    """Whether gaps are known for every choice of a run, as gap regret needs them."""
    return problem.observed == "pulled" and world_of(problem).gap_table is not None


@dataclass(frozen=True, eq=False)
class _Settled(Learner):
    name: ClassVar[str] = "settled"
    settled: tuple[tuple[int, Plan], ...]
    """The plan of each piece of the problem, from its first slot on."""

    @property
    def features(self) -> frozenset[str]:
        return REACTING

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        return next(plan for first, plan in reversed(self.settled) if first <= record.slots + 1)


@lru_cache(maxsize=8)
def _settled(player: Informed, problem: Problem, horizon: int) -> Learner:
    """A learner with a known problem, whose plans are the same in every run, with its plans made once for all runs."""
    task = player.task(problem, horizon)
    record, rng = Record.of(task), np.random.default_rng(0)
    plans = []
    for piece in problem.pieces:
        if piece.first <= horizon:
            record.slots = piece.first - 1
            plans.append((piece.first, player.plan(record, task, rng)))
    return _Settled(tuple(plans))
