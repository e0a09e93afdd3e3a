"""Table 1: how long whole runs take, one thread, nothing else running; measured once and kept.

A measured time is kept with the code, the processor and the versions that it belongs to: an interrupted measurement
goes on where it stopped, and one made elsewhere is not taken for one's own.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np

from restless_bandits.arrays import Array
from restless_bandits.errors import ProblemError
from restless_bandits.experiments.design import TimeTable
from restless_bandits.files import write_file
from restless_bandits.learners import RestlessUCB, learner
from restless_bandits.problem import Problem
from restless_bandits.record import Record
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.simulation.storage import fingerprint

BUILD_ARMS = (16, 64, 256, 1024)
BUILD_REPEATS = 5


def processor() -> str:
    """Return the name of the processor, where the system tells it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def measure_times(
    table: TimeTable, path: Path, seed: int, advance: Callable[[float], None]
) -> tuple[dict[str, dict[int, Array]], dict[int, float]]:
    """Return the seconds of each run by learner and number of arms, and those of building the optimistic instance.

    ``advance`` is told the seconds spent on every run, found or measured.
    """
    kept = _Kept(path)
    times: dict[str, dict[int, Array]] = {}
    for label, spec, name, arms, runs in _cells(table):
        key = f"{name} {spec} {table.horizon} {seed}"
        world = None
        for run in range(runs):
            if len(kept.times(key)) <= run:
                if world is None:
                    # Loads and, the first time ever, compiles what this learner needs.
                    _play(spec, World(Problem.builtin(table.problems[0])), min(2000, table.horizon), seed, run)
                    world = World(Problem.builtin(name))
                kept.add(key, _play(spec, world, table.horizon, seed, run))
            advance(kept.times(key)[run])
        times.setdefault(label, {})[arms] = np.array(kept.times(key)[:runs])
    build = {}
    for arms in BUILD_ARMS:
        key = f"build {arms}"
        if not kept.times(key):
            kept.add(key, _build_seconds(arms))
        build[arms] = kept.times(key)[0]
    return times, build


def cells_of(table: TimeTable) -> int:
    """Return how many runs the table takes."""
    return sum(runs for *_, runs in _cells(table))


def _cells(table: TimeTable) -> Iterator[tuple[str, str, str, int, int]]:
    for line in table.lines:
        for name, arms, runs in zip(table.problems, table.arms, line.runs, strict=True):
            yield line.label, line.spec, name, arms, runs


def _play(spec: str, world: World, horizon: int, seed: int, run: int) -> float:
    player = learner(spec)
    started = time.perf_counter()
    play_run(player, world, horizon, np.array([horizon]), seed=seed, run=run)
    return time.perf_counter() - started


def _build_seconds(n_arms: int) -> float:
    """The least of a few times that the optimistic instance of so many arms takes."""
    problem = Problem.random(n_arms=n_arms, n_states=3, seed=0)
    task = problem.task(10_000)
    record = Record.of(task)
    for arm in range(n_arms):
        for state in (0, 1, 2, 2, 1, 0, 0):
            record.observe([arm], [state], [0.5])
    build = RestlessUCB().optimistic_problem
    best = np.inf
    for _ in range(BUILD_REPEATS):
        started = time.perf_counter()
        build(record, task)
        best = min(best, time.perf_counter() - started)
    return float(best)


class _Kept:
    """Times on disk, written after every run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._maker = {
            "code": fingerprint(),
            "processor": processor(),
            "python": platform.python_version(),
            "numba": numba.__version__,
        }
        self._times: dict[str, list[float]] = {}
        try:
            stored: Any = json.loads(path.read_text(encoding="utf-8"))
            if stored["maker"] == self._maker:
                self._times = {str(key): [float(t) for t in times] for key, times in stored["times"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass

    def times(self, key: str) -> list[float]:
        return self._times.get(key, [])

    def add(self, key: str, spent: float) -> None:
        self._times.setdefault(key, []).append(spent)
        text = json.dumps({"maker": self._maker, "times": self._times}, indent=1)
        try:
            write_file(self._path, text.encode())
        except OSError as error:
            raise ProblemError(f"cannot write {self._path}: {error.strerror or error}") from None
