"""The base class of the items of a reproduction: work to run, and a part of evidence, numbers and report.

An item is data from ``paper.toml``; its ``kind`` names its class. ``begin`` takes measurements that need an idle
machine, enters the runs to play, and returns the function that makes the part of the item after these runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from restless_bandits._internal.charts import ChartStyle
from restless_bandits.paper.experiments.agreement import Check
from restless_bandits.paper.experiments.stored import StoredResults
from restless_bandits.paper.experiments.verdicts import Evidence
from restless_bandits.simulation.jobs import SimulationJob
from restless_bandits.simulation.pools import Pool
from restless_bandits.simulation.scheduler import JobResults, play_jobs
from restless_bandits.simulation.storage import RunStore, open_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMED_SECONDS = 1.0
"""The assumed seconds of a timed run, for the estimate of the remaining time."""

Tell = Callable[[float, float, str], None]
"""Called with the estimated seconds of finished work and of all work, and the present activity."""
Colours = Mapping[str, str]
"""Colours by learner, the same in all figures."""
Numbers = Mapping[str, Any]
"""The content of ``results.json``, the only source of the report."""


@dataclass(frozen=True)
class Item:
    """A figure, table or set of checks that ``restless reproduce`` can name."""

    name: str
    title: str

    @classmethod
    def read(cls, entry: Mapping[str, Any], protocols: tuple[Any, ...]) -> Self:
        """Return the item of an entry of ``paper.toml``; ``protocols`` are the protocols of its figures."""
        return cls(**entry)

    def with_runs(self, runs: int) -> Item:
        """Return the item with a number of runs of every line, if the item has lines."""
        return self

    def begin(self, work: Work) -> Callable[[], Part]:
        """Measure without other work, enter the runs to play, and return the function that makes the part."""
        raise NotImplementedError

    def confirm(self, work: Work, stored: StoredResults) -> Callable[[], Part]:
        """Enter the runs of the quick form, and return the function that plays and compares them.

        By default the part is made anew, without a comparison.
        """
        return self.begin(work)

    @property
    def chapter(self) -> tuple[str, str]:
        """The chapter of the item in the report: the mark and the title."""
        return self.name, self.title

    def about(self, looks: ChartStyle) -> str:
        """Return the text at the beginning of the chapter."""
        return ""

    def section(self, numbers: Numbers, looks: ChartStyle) -> str:
        """Return the section of the item in the report, from the numbers."""
        return ""


@dataclass(frozen=True, eq=False)
class Part:
    """The results of an item; in the quick form stored numbers, and their comparison with those of this machine."""

    evidence: Evidence = field(default_factory=Evidence)
    """The measurements and computations of this machine, for claims."""
    numbers: dict[str, Any] = field(default_factory=dict)
    """Entries of ``results.json``."""
    checks: tuple[Check, ...] = ()
    """The comparisons of the quick form."""
    pictures: Mapping[str, Callable[[Colours], Figure]] = field(default_factory=dict)
    """Functions that draw the pictures of the item, by name."""


def canvas(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


class Work:
    """All runs to play and to time, and the finished share in seconds of one core.

    Measurements replace the first estimates.
    """

    def __init__(self, place: Path, seed: int, pool: Pool, progress: Tell | None) -> None:
        self.place, self.seed = place, seed
        self._store = open_folder(place / "cells")
        self._pool, self._progress = pool, progress
        self._groups: list[list[JobResults]] = []
        self._costs: dict[int, float] = {}
        """The estimated seconds of a run, by the identity of the job's results."""
        self._expected = 0
        self._timed: list[float] = []
        self._shown = -math.inf

    def group(self) -> Callable[[SimulationJob, float], JobResults]:
        """Begin a group of jobs that are played side by side; the returned function enters a job.

        Its ``cost`` is the approximate number of seconds of a run of 100 000 slots on two arms.
        """
        all_results: list[JobResults] = []
        self._groups.append(all_results)

        def enter(job: SimulationJob, cost: float) -> JobResults:
            job_results = JobResults(job, RunStore.open(self._store, job))
            all_results.append(job_results)
            # A little over the square root of the slots, times the arms.
            self._costs[id(job_results)] = cost * math.pow(job.horizon / 1e5, 0.7) * job.problem.n_arms / 2
            return job_results

        return enter

    def expect(self, runs: int) -> None:
        """Announce a number of timed runs."""
        self._expected += runs

    def timed(self, what: str, spent: float) -> None:
        """Enter the seconds of a finished timed run."""
        self._timed.append(spent)
        self.say(what)

    def play(self, all_results: Iterable[JobResults] | None = None) -> None:
        """Play all entered jobs, or some of the jobs."""
        self.say("beginning")
        play_jobs(self._groups if all_results is None else [[*all_results]], self._pool, self._played)

    def _played(self, job_results: JobResults) -> None:
        self.say(f"{job_results.job.problem.name}, {job_results.job.label}, T = {job_results.job.horizon}")

    def say(self, what: str) -> None:
        if self._progress is None or time.monotonic() - self._shown < 0.1:
            return
        self._shown = time.monotonic()
        done = sum(self._timed)
        average = done / len(self._timed) if self._timed else TIMED_SECONDS
        total = done + (self._expected - len(self._timed)) * average
        for job_results in (job_results for group in self._groups for job_results in group):
            seconds = job_results.seconds_a_run or self._costs[id(job_results)]
            done += seconds * len(job_results.finished) / self._pool.width
            total += seconds * job_results.job.runs / self._pool.width
        self._progress(done, total, what)
