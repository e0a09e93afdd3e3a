"""What every item of a reproduction is: something to run, and its part of the evidence, the numbers and the report.

An item is data from ``paper.toml``, of a class that its ``kind`` names. It begins its work before anything is played:
it measures what must be measured while nothing else runs, and enters what must be played. What it returns makes its
part when that has been played.
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
"""A guess at a run that is timed, for the estimate of the time left."""

Tell = Callable[[float, float, str], None]
"""Told the seconds of work done and of all work, by estimate, and what is being done."""
Colours = Mapping[str, str]
"""By learner, the same in all figures."""
Numbers = Mapping[str, Any]
"""What ``results.json`` holds: the report is made of it alone."""


@dataclass(frozen=True)
class Item:
    """Something that can be reproduced by its name."""

    name: str
    title: str

    @classmethod
    def read(cls, entry: Mapping[str, Any], protocols: tuple[Any, ...]) -> Self:
        """Return the item of an entry of ``paper.toml``; ``protocols`` are those of its figures."""
        return cls(**entry)

    def with_runs(self, runs: int) -> Item:
        """Return the item with so many runs of every line, if it has lines."""
        return self

    def begin(self, work: Work) -> Callable[[], Part]:
        """Measure without other work, enter the runs to play, and return the function that makes the part from them."""
        raise NotImplementedError

    def confirm(self, work: Work, stored: StoredResults) -> Callable[[], Part]:
        """Enter the runs of the quick form, and return the function that plays and compares them.

        By default the part is made anew, without a comparison.
        """
        return self.begin(work)

    @property
    def chapter(self) -> tuple[str, str]:
        """The chapter of the report in which it stands: its mark and its title."""
        return self.name, self.title

    def about(self, looks: ChartStyle) -> str:
        """Return what is said at the beginning of the chapter."""
        return ""

    def section(self, numbers: Numbers, looks: ChartStyle) -> str:
        """Return its section of the report, from what was found."""
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
    """All that must be played and timed, and how much of it is done, in seconds of one core.

    Guesses give way to what was measured.
    """

    def __init__(self, place: Path, seed: int, pool: Pool, progress: Tell | None) -> None:
        self.place, self.seed = place, seed
        self._store = open_folder(place / "cells")
        self._pool, self._progress = pool, progress
        self._groups: list[list[JobResults]] = []
        self._costs: dict[int, float] = {}
        """A guess at the seconds of a run, by the book's identity."""
        self._expected = 0
        self._timed: list[float] = []
        self._shown = -math.inf

    def group(self) -> Callable[[SimulationJob, float], JobResults]:
        """Begin a group of cells that are played side by side; what is returned enters one.

        The number beside the cell is about how many seconds a run of 100 000 slots on two arms takes.
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
        """Expect so many runs that are timed."""
        self._expected += runs

    def timed(self, what: str, spent: float) -> None:
        """One of them is done."""
        self._timed.append(spent)
        self.say(what)

    def play(self, all_results: Iterable[JobResults] | None = None) -> None:
        """Play all that was entered, or some books of it."""
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
