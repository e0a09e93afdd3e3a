"""Table 1: how long whole runs take, one thread, nothing else running; measured once and kept.

A measured time is kept with the code, the processor and the versions that it belongs to: an interrupted measurement
goes on where it stopped, and one made elsewhere is not taken for one's own.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numba
import numpy as np

from restless_bandits import plots
from restless_bandits.arrays import Array
from restless_bandits.experiments.items import Colours, Item, Part, Work, canvas
from restless_bandits.experiments.verdicts import Evidence
from restless_bandits.experiments.writing import Html, fill, seconds, slots, table
from restless_bandits.files import save_file
from restless_bandits.learners import RestlessUCB, learner
from restless_bandits.problem import Problem
from restless_bandits.record import Record
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.simulation.storage import fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUILD_ARMS = (16, 64, 256, 1024)


def processor() -> str:
    """Return the name of the processor, where the system tells it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


@dataclass(frozen=True)
class TableLine:
    label: str
    spec: str
    runs: tuple[int, ...]
    paper: tuple[float, ...]


@dataclass(frozen=True)
class TimeTable(Item):
    """Table 1: whole runs of every line on every number of arms."""

    place: str
    horizon: int
    problems: tuple[str, ...]
    arms: tuple[int, ...]
    lines: tuple[TableLine, ...]
    most_runs: int = 1000
    """No time is measured more often."""

    @classmethod
    def read(cls, entry: Mapping[str, Any], protocols: tuple[Any, ...]) -> Self:
        return cls(**{**entry, "lines": tuple(TableLine(**line) for line in entry["lines"])})

    def runs_of(self, line: TableLine) -> list[int]:
        """Return how many runs of a line are timed, for each number of arms."""
        return [min(runs, self.most_runs) for runs in line.runs]

    @property
    def runs(self) -> int:
        return sum(sum(self.runs_of(line)) for line in self.lines)

    def begin(self, work: Work) -> Callable[[], Part]:
        """Measure at once, while nothing else is running."""
        work.expect(self.runs)
        times, build = measure_times(self, work.place / "times.json", work.seed, partial(work.timed, self.name))
        return lambda: TimesPart(self, Evidence(times=times, build_times=build), processor())


def measure_times(
    table: TimeTable, path: Path, seed: int, advance: Callable[[float], None]
) -> tuple[dict[str, dict[int, Array]], dict[int, float]]:
    """Return the seconds of each run by learner and number of arms, and those of building the optimistic instance.

    ``advance`` is told the seconds spent on every run, found or measured.
    """
    kept = _Kept(path)
    times: dict[str, dict[int, Array]] = {}
    for line in table.lines:
        for name, arms, runs in zip(table.problems, table.arms, table.runs_of(line), strict=True):
            key = f"{name} {line.spec} {table.horizon} {seed}"
            world = None
            for run in range(runs):
                if len(kept.times(key)) <= run:
                    if world is None:
                        # Loads and, the first time ever, compiles what this learner needs.
                        warm = World(Problem.builtin(table.problems[0]))
                        _play(line.spec, warm, min(2000, table.horizon), seed, run)
                        world = World(Problem.builtin(name))
                    kept.add(key, _play(line.spec, world, table.horizon, seed, run))
                advance(kept.times(key)[run])
            times.setdefault(line.label, {})[arms] = np.array(kept.times(key)[:runs])
    build = {}
    for arms in BUILD_ARMS:
        key = f"build {arms}"
        if not kept.times(key):
            kept.add(key, _build_seconds(arms))
        build[arms] = kept.times(key)[0]
    return times, build


def _play(spec: str, world: World, horizon: int, seed: int, run: int) -> float:
    player = learner(spec)
    return _seconds(lambda: play_run(player, world, horizon, np.array([horizon]), seed=seed, run=run))


def _build_seconds(n_arms: int) -> float:
    """The least of five times that the optimistic instance of so many arms takes."""
    problem = Problem.random(n_arms=n_arms, n_states=3, seed=0)
    task = problem.task(10_000)
    record = Record.of(task)
    for arm in range(n_arms):
        for state in (0, 1, 2, 2, 1, 0, 0):
            record.observe([arm], [state], [0.5])
    build = partial(RestlessUCB().optimistic_problem, record, task)
    return min(_seconds(build) for _ in range(5))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class _Kept:
    """Times on disk, written after every run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        versions = {"python": platform.python_version(), "numba": numba.__version__}
        self._maker = {"code": fingerprint(), "processor": processor(), **versions}
        self._times: dict[str, list[float]] = {}
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            stored: Any = json.loads(path.read_text(encoding="utf-8"))
            if stored["maker"] == self._maker:
                self._times = {str(key): [float(t) for t in times] for key, times in stored["times"].items()}

    def times(self, key: str) -> list[float]:
        return self._times.get(key, [])

    def add(self, key: str, spent: float) -> None:
        self._times.setdefault(key, []).append(spent)
        save_file(self._path, json.dumps({"maker": self._maker, "times": self._times}, indent=1).encode())


@dataclass(frozen=True, eq=False)
class TimesPart(Part):
    item: TimeTable
    timed_on: str

    def as_dict(self) -> dict[str, Any]:
        table = [
            {"learner": label, "arms": arms, "seconds": float(spent.mean()), "runs": len(spent)}
            for label, by_arms in self.evidence.times.items()
            for arms, spent in by_arms.items()
        ]
        build = {str(arms): spent for arms, spent in self.evidence.build_times.items()}
        return {"table": table, "build_seconds": build}

    def pictures(self, colours: Colours) -> dict[str, Callable[[], Figure]]:
        return {self.item.name: lambda: self._draw(colours)}

    def _draw(self, colours: Colours) -> Figure:
        figure = canvas(7.6, 3.8)
        ax = figure.subplots()
        ours = {
            label: {n: float(t.mean()) for n, t in by_arms.items()} for label, by_arms in self.evidence.times.items()
        }
        theirs = {line.label: dict(zip(self.item.arms, line.paper, strict=True)) for line in self.item.lines}
        plots.running_times(ours, others=theirs, ax=ax, colours=colours)
        ax.set_title("a run of half a million slots (dashed: the paper's program)")
        return figure

    def html(self, drawn: Mapping[str, str]) -> Html:
        item = self.item
        rows = []
        for line in item.lines:
            cells = [
                fill("time", spent=seconds(float(self.evidence.times[line.label][arms].mean())), paper=f"{paper:g}")
                for arms, paper in zip(item.arms, line.paper, strict=True)
            ]
            learner_cell = fill("learner", label=line.label, spec=line.spec)
            rows.append([learner_cell, *cells, ", ".join(map(str, item.runs_of(line)))])
        return fill(
            "times",
            title=item.title,
            place=item.place,
            horizon=slots(item.horizon),
            processor=self.timed_on,
            table=table(["learner", *(f"{arms} arms" for arms in item.arms), "runs"], rows),
            picture=drawn[item.name],
            build=", ".join(f"{n} arms {seconds(spent)}" for n, spent in self.evidence.build_times.items()),
        )
