"""Table 1: how long whole runs take, nothing else running; measured once and kept.

Times are seconds of the processor, of all threads together, and of warm code. Everything is measured in rounds, once in
each and in an order that is drawn anew, so that what else the machine does falls on all alike; the least time of a run
counts. A time in which something was compiled is thrown away. How long runs waited for the processor, and how much the
times of one run differ, says whether the machine was quiet.

A measured time is kept with the code, the processor and the versions that it belongs to: an interrupted measurement
goes on where it stopped, and one made elsewhere is not taken for one's own.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numba
import numpy as np
from markupsafe import Markup
from numba.core.event import install_recorder

from restless_bandits import plots
from restless_bandits._internal.charts import Axis, ChartLine, ChartStyle, Point, chart, legend
from restless_bandits._internal.compiling import processor_name
from restless_bandits._internal.files import save_file
from restless_bandits._internal.templates import code, render
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners import RestlessUCB, learner
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.paper.experiments.items import Colours, Item, Numbers, Part, Work, canvas
from restless_bandits.paper.experiments.stored import StoredResults
from restless_bandits.paper.experiments.verdicts import Evidence
from restless_bandits.paper.experiments.writing import seconds, slots
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.simulation.storage import fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUILD_ARMS = (16, 64, 256, 1024)
BUILDS = 3
"""How often the instances are built in each round."""
TITLE = "a run of half a million slots (dashed: the paper's program)"


def processor() -> str:
    """Return the name of the processor, or else its kind."""
    return processor_name() or platform.machine()


@dataclass(frozen=True)
class TableLine:
    label: str
    spec: str
    runs: tuple[int, ...]
    paper: tuple[float, ...]
    cost: tuple[float, ...] = ()
    """About how many seconds a run takes, where that is long."""


@dataclass(frozen=True)
class TimeTable(Item):
    """Table 1: whole runs of every line on every number of arms."""

    place: str
    horizon: int
    problems: tuple[str, ...]
    arms: tuple[int, ...]
    lines: tuple[TableLine, ...]
    repeats: int
    """How often each run is timed; one that is the only one of its kind is timed once."""
    most_runs: int = 1000
    """No more runs are timed."""
    single: float = math.inf
    """Of runs that take more seconds only one is timed."""
    longest: float = math.inf
    """Runs that take more seconds are left out."""

    @classmethod
    def read(cls, entry: Mapping[str, Any], protocols: tuple[Any, ...]) -> Self:
        return cls(**{**entry, "lines": tuple(TableLine(**line) for line in entry["lines"])})

    @property
    def published(self) -> dict[str, dict[int, float]]:
        """The seconds of a run in the paper, by line and number of arms."""
        return {line.label: dict(zip(self.arms, line.paper, strict=True)) for line in self.lines}

    def runs_of(self, line: TableLine) -> list[int]:
        """Return how many runs of a line are timed, for each number of arms."""
        costs = line.cost or (0.0,) * len(line.runs)
        limits = [0 if cost > self.longest else 1 if cost > self.single else self.most_runs for cost in costs]
        return [min(runs, limit) for runs, limit in zip(line.runs, limits, strict=True)]

    def begin(self, work: Work) -> Callable[[], Part]:
        """Measure at once, while nothing else is running."""
        times, build, weather = measure_times(self, work.place / "times.json", work.seed, work, self.name)
        table = [
            {"learner": label, "arms": arms, "seconds": float(spent.mean()), "runs": len(spent)}
            for label, by_arms in times.items()
            for arms, spent in by_arms.items()
        ]
        least = {str(arms): float(spent.min()) for arms, spent in build.items()}
        machine = {"timed_on": processor()}
        numbers = {"table": table, "build_seconds": least, "weather": dict(weather), "machine": machine}
        evidence = Evidence(times=times, build_times=build, weather=weather)
        return partial(self._part, evidence, numbers)

    def _part(self, evidence: Evidence, numbers: dict[str, Any]) -> Part:
        return Part(evidence, numbers, pictures={self.name: partial(_draw_times, self, numbers)})

    def confirm(self, work: Work, stored: StoredResults) -> Callable[[], Part]:
        """Return the function that measures some runs; what takes too long is shown as it is stored."""

        def part() -> Part:
            found = self.begin(work)()
            measured = {(entry["learner"], entry["arms"]): entry for entry in found.numbers["table"]}
            known = {(entry["learner"], entry["arms"]): {**entry, "stored": True} for entry in stored.results["table"]}
            return self._part(found.evidence, found.numbers | {"table": list((known | measured).values())})

        return part

    def section(self, numbers: Numbers, looks: ChartStyle) -> str:
        times: dict[str, dict[int, Numbers]] = {line.label: {} for line in self.lines}
        for entry in numbers["table"]:
            times[entry["learner"]][entry["arms"]] = entry
        rows: list[list[object]] = []
        for line in self.lines:
            ours = times[line.label]
            cells = [_cell(ours.get(arms), paper) for arms, paper in zip(self.arms, line.paper, strict=True)]
            runs = (str(ours[arms]["runs"] if arms in ours else 0) for arms in self.arms)
            rows.append([code(line.label, line.spec), *cells, ", ".join(runs)])
        spent = {label: {arms: one["seconds"] for arms, one in ours.items()} for label, ours in times.items()}
        return render(
            "paper/experiments/times.html.j2",
            item=self,
            horizon=slots(self.horizon),
            processor=numbers["machine"]["timed_on"],
            heads=["learner", *(f"{arms} arms" for arms in self.arms), "runs"],
            rows=rows,
            legend=legend([line.label for line in self.lines], looks, "Lines"),
            panel=self._chart(spent, looks),
            build=", ".join(f"{n} arms {seconds(t)}" for n, t in numbers["build_seconds"].items()),
            weather=numbers["weather"],
        )

    def _chart(self, times: Mapping[str, Mapping[int, float]], looks: ChartStyle) -> str:
        traces = [
            ChartLine(label, [Point(arms, t, f"{arms} arms: {seconds(t)}{where}") for arms, t in by_arms.items()], kind)
            for kind, where, every in (("dashed", " in the paper", self.published), ("line", "", times))
            for label, by_arms in every.items()
        ]
        arms = Axis("arms", ticks=[(float(arms), str(arms)) for arms in self.arms])
        ends = (min(self.arms) - 0.2, max(self.arms) + 0.2)
        return chart(TITLE, traces, replace(arms, ends=ends), Axis("seconds a run", log=True), looks)


def _cell(entry: Numbers | None, paper: float) -> Markup:
    """A time measured here, and the time of the paper."""
    mark = " (stored)" if entry is not None and entry.get("stored") else ""
    spent = "–" if entry is None else seconds(entry["seconds"]) + mark
    return Markup('{} <span class="note">of {} s</span>').format(spent, f"{paper:g}")


class ElapsedSeconds(NamedTuple):
    """Seconds of the processor, and seconds on the wall."""

    spent: float
    passed: float


def clock(work: Callable[[], object]) -> ElapsedSeconds:
    """Time some work, and again for as long as something was compiled on the way."""
    while True:
        with install_recorder("numba:compile") as compiled:
            passed, spent = time.perf_counter(), time.process_time()
            work()
            found = ElapsedSeconds(time.process_time() - spent, time.perf_counter() - passed)
        if not compiled.buffer:
            return found


def measure_times(
    table: TimeTable, path: Path, seed: int, work: Work | None = None, what: str = ""
) -> tuple[dict[str, dict[int, Array]], dict[int, Array], dict[str, float]]:
    """Return the seconds of each run by learner and number of arms, and those of building the optimistic instance.

    For building, the seconds of each round. And how quiet the machine was.
    """
    kept = StoredTimes(path)
    jobs: dict[str, Callable[[], object]] = {f"build {arms}": partial(_build, *_observed(arms)) for arms in BUILD_ARMS}
    specs: dict[str, str] = {}
    rounds = [BUILDS * list(jobs) for _ in range(table.repeats)]
    cells: dict[tuple[str, int], list[str]] = {}
    for line in table.lines:
        for name, arms, runs in zip(table.problems, table.arms, table.runs_of(line), strict=True):
            keys = [f"{name} {line.spec} {table.horizon} {seed} {run}" for run in range(runs)]
            cells[line.label, arms] = keys
            jobs |= {key: partial(_play, line.spec, name, table.horizon, seed, run) for run, key in enumerate(keys)}
            specs |= dict.fromkeys(keys, line.spec)
            for one in rounds[: 1 if runs == 1 else None]:
                one += keys
    wanted = Counter(key for one in rounds for key in one)
    if work is not None:
        work.expect(wanted.total())
    # What has been measured before is not measured again: a round keeps what is still to be done of it.
    missing = {key: number - len(kept.clocks(key)) for key, number in wanted.items()}
    rng = np.random.default_rng(seed)
    for one in rounds:
        for key in rng.permutation(one).tolist():
            if missing[key] > 0:
                missing[key] -= 1
                if key in specs:
                    _warm_up(specs[key], table.problems[0], table.horizon)
                kept.add(key, clock(jobs[key]))
            if work is not None:
                work.timed(what, kept.clocks(key)[-1].spent)
    least = {key: min(one.spent for one in kept.clocks(key)) for key in wanted}
    times: dict[str, dict[int, Array]] = {}
    for (label, arms), keys in cells.items():
        if keys:
            times.setdefault(label, {})[arms] = np.array([least[key] for key in keys])
    build = {arms: np.array([one.spent for one in kept.clocks(f"build {arms}")]) for arms in BUILD_ARMS}
    return times, build, _weather([kept.clocks(key) for keys in cells.values() for key in keys])


def _weather(measured: list[list[ElapsedSeconds]]) -> dict[str, float]:
    """How long runs waited, as a share of all time, and how far the times of the same run are apart, in the middle."""
    every = [one for clocks in measured for one in clocks]
    # Several threads may spend more than what passes on the wall.
    waited = math.fsum(max(0.0, one.passed - one.spent) for one in every) / math.fsum(one.passed for one in every)
    jitter = [max(clocks).spent / min(clocks).spent for clocks in measured if len(clocks) > 1]
    return {"waited": waited, "jitter": float(np.median(jitter)) if jitter else 1.0}


@cache
def _warm_up(spec: str, problem: str, horizon: int) -> None:
    """Load or compile all that a learner needs, by a run that nobody times."""
    _play(spec, problem, horizon, 0, 0)


def _play(spec: str, problem: str, horizon: int, seed: int, run: int) -> None:
    play_run(learner(spec), _world(problem), horizon, np.array([horizon]), seed=seed, run=run)


@cache
def _world(problem: str) -> World:
    return World(Problem.builtin(problem))


def _observed(n_arms: int) -> tuple[Record, Task]:
    """A problem of so many arms of which something is known."""
    task = Problem.random(n_arms=n_arms, n_states=3, seed=0).task(10_000)
    record = Record.of(task)
    for arm in range(n_arms):
        for state in (0, 1, 2, 2, 1, 0, 0):
            record.observe([arm], [state], [0.5])
    return record, task


def _build(record: Record, task: Task) -> Problem:
    return RestlessUCB().optimistic_problem(record, task)


class StoredTimes:
    """Times on disk, written after every run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        versions = {"python": platform.python_version(), "numba": numba.__version__}
        self._maker = {"code": fingerprint(), "processor": processor(), **versions}
        self._times: dict[str, list[ElapsedSeconds]] = {}
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            stored: Any = json.loads(path.read_text(encoding="utf-8"))
            if stored["maker"] == self._maker:
                times = {
                    key: [ElapsedSeconds(float(spent), float(passed)) for spent, passed in clocks]
                    for key, clocks in stored["times"].items()
                }
                if all(0 < one < math.inf for clocks in times.values() for clock in clocks for one in clock):
                    self._times = times

    def clocks(self, key: str) -> list[ElapsedSeconds]:
        return self._times.get(key, [])

    def add(self, key: str, measured: ElapsedSeconds) -> None:
        self._times.setdefault(key, []).append(measured)
        save_file(self._path, json.dumps({"maker": self._maker, "times": self._times}, indent=1).encode())


def _draw_times(item: TimeTable, numbers: Numbers, colours: Colours) -> Figure:
    figure = canvas(7.6, 3.8)
    ax = figure.subplots()
    ours: dict[str, dict[int, float]] = {}
    for entry in numbers["table"]:
        ours.setdefault(entry["learner"], {})[entry["arms"]] = entry["seconds"]
    plots.running_times(ours, others=item.published, ax=ax, colours=colours)
    ax.set_title(TITLE)
    return figure
