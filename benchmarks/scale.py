"""How long work takes on many arms, and how long until the first result: ``python -m benchmarks.scale``.

Words pick the rows that hold them all. Every row runs in a process of its own, up to three times, and the least counts.
Seconds are those of the processor, with compiled kernels loaded, unless a row says otherwise: a command "from an empty
compile cache" is timed by the wall, and so is ``make run`` from a fresh clone, which is left out unless it is named.
Memory is the peak of the whole process.

Results are kept in docs/benchmarks/scale.json, row by row, and docs/benchmarks.md is written from them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

import restless_bandits as rb
from benchmarks import pages
from restless_bandits._internal.random_streams import plan_generator, world_words
from restless_bandits.learning.learners.base import next_plan
from restless_bandits.simulation.bench import bench
from restless_bandits.simulation.engine import Run, World, play_run

SEED = 11
REPEATS = 3
MILLION, ARMS = 1_000_000, 10
LONG = 20.0
"""Seconds from which on once is enough."""
MOST_MEMORY = 0.6
"""Gigabytes that any row may take."""
KEPT = "scale"

Work = Callable[[], object]


class Row(NamedTuple):
    """A name, the first measurement and its target, and a function that measures."""

    name: str
    before: float | None
    wanted: float
    measure: Callable[[], float]
    unit: str = "s"
    alone: bool = False
    """Whether it runs only where it is named."""
    later: float | None = None
    """The later target, a share of what was measured when the first target was set aside."""

    @property
    def target(self) -> float:
        """The target that counts."""
        return self.wanted if self.later is None else self.later


def processor(prepare: Callable[[], Work]) -> float:
    """Return the least processor seconds of some work, made anew each time, as arms remember what was found out."""
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < LONG:
        work = prepare()
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def problem_of(n_arms: int, n_states: int, plays: int = 1, seed: int = SEED) -> rb.Problem:
    return rb.Problem.random(n_arms=n_arms, n_states=n_states, seed=seed, plays=plays)


def whittle(n_arms: int, n_states: int) -> float:
    def prepare() -> Work:
        problem = problem_of(n_arms, n_states)
        return lambda: rb.oracles.whittle(problem)

    return processor(prepare)


def run_of(learner: str, n_arms: int, n_states: int, horizon: int, plays: int = 1, seed: int = SEED) -> float:
    """One run of a learner; what it compiles is loaded before, by a short run on few arms."""
    few = problem_of(plays + 2, n_states, plays)
    play_run(rb.learner(learner), World(few), 300, np.array([300]), seed=0, run=0)
    # Plans over joint beliefs have kernels of their own, which many arms do not need.
    return processor(lambda: partial(played, learner, problem_of(n_arms, n_states, plays, seed), horizon))


def played(learner: str, problem: rb.Problem, horizon: int, run: int = 0) -> None:
    play_run(rb.learner(learner), World(problem), horizon, np.array([horizon]), seed=0, run=run)


def slowest_plans(learner: str, n_arms: int, horizon: int) -> float:
    """Return the 99th percentile of the milliseconds that a plan takes."""
    problem, maker = problem_of(n_arms, 2), rb.learner(learner)
    task = maker.task(problem, horizon)
    found = []
    for _ in range(REPEATS):
        run = Run(World(problem), horizon, np.array([horizon]), world_words(0, problem.content, 0))
        spent = []
        while not run.done:
            rng = plan_generator(0, problem.content, 0, run.record.plans)
            start = time.process_time()
            plan = next_plan(maker, run.record, task, rng)
            spent.append(1e3 * (time.process_time() - start))
            run.play(plan)
        found.append(float(np.percentile(spent, 99)))
    return min(found)


def job(learner: str, horizons: list[int], runs: int) -> float:
    """Many runs one after the other, as the authors' own program plays them."""
    world, maker = World(rb.Problem.builtin("paper-1")), rb.learner(learner)

    def work() -> None:
        for horizon in horizons:
            for run in range(runs):
                play_run(maker, world, horizon, np.array([horizon]), seed=0, run=run)

    work()
    return processor(lambda: work)


def command(*words: str, cold: bool) -> float:
    """Return the wall seconds of a command, from an empty compile cache or the second time in one."""
    found = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"NUMBA_CACHE_DIR": folder}
            for _ in range(1 if cold else 2):
                start = time.perf_counter()
                run = [sys.executable, "-m", "restless_bandits", *words]
                subprocess.run(run, env=environment, cwd=folder, capture_output=True, check=True)
                spent = time.perf_counter() - start
            found.append(spent)
    return min(found)


def fresh_make_run() -> float:
    """Return the wall seconds of ``make run`` in a fresh clone."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(pages.DOCS.parent), str(clone)], check=True)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        start = time.perf_counter()
        subprocess.run(["make", "run"], cwd=clone, env=environment, capture_output=True, check=True)
        return time.perf_counter() - start


def reading(name: str) -> float:
    """Return the processor seconds of reading a million lines of ten arms, of the form that the file's name says."""
    values = np.random.default_rng(SEED).random(MILLION).round(4).tolist()
    times: list[object] = list(range(MILLION // ARMS))
    if "stamps" in name:
        times = (np.datetime64("2024-01-01T00:00:00") + np.arange(MILLION // ARMS)).astype(str).tolist()
    line = '{{"time": {}, "arm": "server-{}", "value": {}}}\n' if name.endswith("jsonl") else "{},server-{},{}\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        with path.open("w", encoding="utf-8") as file:
            file.write("" if name.endswith("jsonl") else "time,arm,value\n")
            file.writelines(line.format(times[i // ARMS], i % ARMS, value) for i, value in enumerate(values))
        del values, times
        return processor(lambda: partial(rb.data.read_trace, path))


def slot() -> float:
    return bench().ratio["2 arms"]


def _rows() -> list[Row]:
    default, t4, t5 = "likelihood-ucb", 10_000, 100_000
    simulate = ("simulate", "paper-1", "--learner", default, "--horizon", "10000")
    return [
        Row("whittle, M = 2, N = 1000", 9.1, 0.3, partial(whittle, 1_000, 2)),
        Row("whittle, M = 2, N = 10 000", None, 3.0, partial(whittle, 10_000, 2)),
        Row("whittle, M = 4, N = 100", 4.9, 0.5, partial(whittle, 100, 4)),
        Row("whittle, M = 4, N = 1000", None, 5.0, partial(whittle, 1_000, 4)),
        Row("default, M = 2, N = 30, T = 1e4", 6.5, 1.0, partial(run_of, default, 30, 2, t4)),
        Row("default, M = 2, N = 100, T = 1e4", 36, 3.0, partial(run_of, default, 100, 2, t4)),
        Row("default, M = 2, N = 10, T = 1e5", 1.8, 1.8, partial(run_of, default, 10, 2, t5)),
        Row("default, M = 2, N = 100, T = 1e5", None, 10, partial(run_of, default, 100, 2, t5)),
        Row("default, M = 2, N = 1000, T = 1e5", None, 90, partial(run_of, default, 1_000, 2, t5)),
        Row("default, M = 2, N = 100, 5 plays, T = 1e4", 39, 5.0, partial(run_of, default, 100, 2, t4, 5)),
        Row("default, M = 4, N = 100, T = 1e4", 111, 15, partial(run_of, default, 100, 4, t4)),
        Row(
            "likelihood-dominance, M = 2, N = 100, T = 1e4",
            140,
            10,
            partial(run_of, "likelihood-dominance", 100, 2, t4),
        ),
        Row("posterior, M = 2, N = 100, T = 1e4", 60, 8.0, partial(run_of, "posterior", 100, 2, t4)),
        Row(
            "posterior, N = 100, T = 1e4, seed 23",
            20.8,
            10.4,
            partial(run_of, "posterior", 100, 2, t4, seed=23),
            later=4.8,
        ),
        Row("ts-9, M = 2, N = 100, T = 1e4", 1.6, 1.0, partial(run_of, "ts-9", 100, 2, t4)),
        Row("a plan of the default, N = 100, p99", 362, 15, partial(slowest_plans, default, 100, t4), "ms"),
        Row(
            "simulate paper-1, empty compile cache", 34, 12, partial(command, *simulate, cold=True), "s wall", later=10
        ),
        Row(
            "solve paper-1, empty compile cache",
            4.7,
            2.5,
            partial(command, "solve", "paper-1", cold=True),
            "s wall",
            later=1.6,
        ),
        Row("solve paper-1, again", 1.8, 1.0, partial(command, "solve", "paper-1", cold=False), "s wall", later=0.8),
        Row("--version, again", None, 0.15, partial(command, "--version", cold=False), "s wall"),
        Row("slot of 2 arms", 4.2, 3.0, slot, "draws"),
        Row("read a million lines, CSV", 2.9, 2.0, partial(reading, "log.csv")),
        Row("read a million lines, CSV, time stamps", None, 2.0, partial(reading, "stamps.csv")),
        Row("read a million lines, JSON", None, 2.0, partial(reading, "log.jsonl")),
        Row("ts-9, paper-1, T = 5e5", 0.36, 0.15, partial(job, "ts-9", [500_000], 1)),
        *(Row(f"authors' job, {name}", *times, partial(job, *AUTHORS[name])) for name, times in AUTHORS_TIMES.items()),
        Row("make run, fresh clone", 228, 150, fresh_make_run, "s wall", alone=True),
    ]


AUTHORS: dict[str, tuple[str, list[int], int]] = {
    "Restless-UCB": ("restless-ucb:rewards=known,radius=none", [5_000 * k for k in range(1, 11)], 20),
    "TS-9": ("ts-9:schedule=doubling,doubling=strict,pool=10,rewards=known", [50_000], 20),
    "colored-UCRL2": ("colored-ucrl2:cap=10,rewards=known", [50_000], 20),
}
"""What the authors' program plays on paper-1: of learners that need not know the horizon the last one alone."""
AUTHORS_TIMES = {"Restless-UCB": (0.55, 0.2), "TS-9": (0.16, 0.05), "colored-UCRL2": (0.38, 0.1)}
ROWS = _rows()


def table(kept: dict[str, list[float]]) -> str:
    """The table of docs/benchmarks.md; a row that was never measured is left out."""
    lines = ["| work | before | wanted | wanted later | measured | peak GB | met |", "|---|---|---|---|---|---|---|"]
    for row in ROWS:
        if row.name in kept:
            found, peak = kept[row.name]
            before = "–" if row.before is None else f"{row.before:g}"
            met = "yes" if found <= row.target and peak <= MOST_MEMORY else "**no**"
            peaks = f"{peak:.2f}" if row.unit in ("s", "ms") else ""
            later = "" if row.later is None else f"{row.later:g}"
            shown = f"{found:.2g}" if found < 100 else f"{found:.0f}"
            lines.append(f"| {row.name} | {before} | {row.wanted:g} {row.unit} | {later} | {shown} | {peaks} | {met} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only rows whose names hold these; all by default")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        found = ROWS[options.row].measure()
        print(json.dumps([found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6]))
        return
    for i, row in enumerate(ROWS):
        if all(word in row.name for word in options.words) and (options.words or not row.alone):
            again = [sys.executable, "-m", "benchmarks.scale", "--row", str(i)]
            printed = subprocess.run(again, capture_output=True, text=True, check=True).stdout
            kept = pages.load(KEPT) | {row.name: json.loads(printed.splitlines()[-1])}
            pages.keep(KEPT, kept)
            print(table({row.name: kept[row.name]}).splitlines()[-1], flush=True)
    pages.write()


if __name__ == "__main__":
    main()
