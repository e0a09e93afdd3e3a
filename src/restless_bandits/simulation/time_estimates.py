"""Estimates of the duration of a simulation: from its first runs, or from the beginning of a separate trial run."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence

import numpy as np

from restless_bandits._internal.compiling import compiling
from restless_bandits._internal.progress import Pace, Report, duration, warning
from restless_bandits._internal.random_streams import plan_generator, world_words
from restless_bandits.learning.learners.base import next_plan
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import Plan
from restless_bandits.simulation.engine import Run
from restless_bandits.simulation.jobs import SimulationJob, play_runs, world_of
from restless_bandits.simulation.scheduler import JobResults

TRIAL_AFTER_SECONDS = 1.5
"""Seconds after which a learner without a finished run gets a trial run."""
TRIAL_SECONDS, TRIAL_SLOTS = 1.0, 100_000
ANSWERED_SLOTS = 1000
"""Slots of a trial run played by an agent."""
OBSERVED_STEPS = 1_000_000
"""Steps of arms in a trial run on observed arms."""
FIRST_SLOTS = 300
"""Slots by which learners have made plans of every kind."""
PLANS_POWER = 0.7
"""The largest long-run exponent of the number of plans as a power of the slots: about the exponent of
``likelihood-ucb``.
"""
MINUTE = 60.0
"""Seconds of a single run from which on a warning is given even without reports."""


class TimeEstimate:
    """Monitors the results of a simulation, and reports its duration once if long."""

    def __init__(self, all_results: Sequence[JobResults], width: int, report: Report | None) -> None:
        self._books, self._width, self._report = all_results, width, report
        self._tried: dict[int, float] = {}
        self._shown = False
        self._started = time.monotonic()

    def look(self) -> None:
        if self._shown:
            return
        passed = time.monotonic() - self._started
        seconds = [self._seconds_a_run(n, passed) for n in range(len(self._books))]
        known = [one for one in seconds if one is not None]
        if len(known) < len(seconds):
            return
        spent = [one * len(job_results.missing) for one, job_results in zip(known, self._books, strict=True)]
        n = int(np.argmax(spent))
        left = max(sum(spent) / self._width, *(one for one, rest in zip(known, spent, strict=True) if rest), 0.0)
        job = self._books[n].job
        runs = f"{job.runs} run{'s' if job.runs > 1 else ''} of {job.label}, {duration(known[n])} each"
        if (line := warning(passed + left, runs)) is None:
            return
        if self._report is not None:
            self._report(line)
        elif known[n] > MINUTE:
            warnings.warn(line, RuntimeWarning, stacklevel=2)
        self._shown = True

    def _seconds_a_run(self, n: int, passed: float) -> float | None:
        """The seconds of a run of a cell, or None if not known yet."""
        finished = [float(one.seconds[0]) for one in self._books[n].finished.values()]
        if compiling.is_set():
            # A first run, or a trial run, would include one-time compilation.
            return min(finished) if len(finished) > 1 else None
        if finished:
            return sum(finished) / len(finished)
        if passed > TRIAL_AFTER_SECONDS and n not in self._tried:
            self._tried[n] = seconds_by_trial(self._books[n].job)
        return self._tried.get(n)


def seconds_by_trial(job: SimulationJob) -> float:
    """Return the approximate seconds of a run of a cell, from its first second."""
    if job.problem.observed == "all" or not job.answers.prompt:
        # A slot takes longer than its share of a plan: the first slots represent all slots.
        most = ANSWERED_SLOTS if job.problem.observed == "pulled" else max(1, OBSERVED_STEPS // job.problem.n_arms)
        slots, begun = min(job.horizon, most), time.thread_time()
        beginning = dataclasses.replace(job, horizon=slots, checkpoints=(slots,))
        play_runs(beginning, [0])
        return (time.thread_time() - begun) * job.horizon / slots
    task = job.learner.task(job.problem, job.horizon)
    run = _beginning(job, TRIAL_SLOTS)
    # Slots take constant time, plans get rarer. The first plan has also loaded all modules.
    pace = Pace(job.horizon, PLANS_POWER)
    first, planning, playing = 0.0, 0.0, 0.0
    until = time.monotonic() + TRIAL_SECONDS
    while not run.done and time.monotonic() < until:
        # The thread's own time: others play at the same time.
        begun = time.thread_time()
        plan = _next_plan(job, run, task)
        planned = time.thread_time()
        run.play(plan)
        planning, playing = planning + planned - begun, playing + time.thread_time() - planned
        if run.record.plans == 1:
            first, planning = planning, 0.0
        else:
            pace.mark(run.record.slots, planning)
    return first + pace.total + playing * job.horizon / max(run.record.slots, 1)


def play_beginning(job: SimulationJob) -> None:
    """Play the first slots of a cell, to trigger compilation only."""
    task = job.learner.task(job.problem, job.horizon)
    run = _beginning(job, FIRST_SLOTS)
    with warnings.catch_warnings():
        # Warnings are repeated in the real run.
        warnings.simplefilter("ignore")
        while not run.done:
            run.play(_next_plan(job, run, task))


def _beginning(job: SimulationJob, most: int) -> Run:
    slots = min(job.horizon, most)
    return Run(world_of(job.problem), slots, np.array([slots]), world_words(job.seed, job.problem.content, 0))


def _next_plan(job: SimulationJob, run: Run, task: Task) -> Plan:
    rng = plan_generator(job.seed, job.problem.content, 0, run.record.plans)
    return next_plan(job.learner, run.record, task, rng)
