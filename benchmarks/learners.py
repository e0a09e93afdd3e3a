"""How long whole runs of the learners take. Run with ``python -m benchmarks.learners``; times are warm."""

from __future__ import annotations

import resource
import time

import numpy as np

import restless_bandits as rb
from restless_bandits.simulation.engine import World, play_run

HORIZON = 500_000
COLORED_TARGETS = {"table-2": 0.1, "table-3": 0.3, "table-4": 3.0, "table-5": 45.0}


def seconds_of_a_run(spec: str, name: str, run: int) -> float:
    learner, world = rb.learner(spec), World(rb.Problem.builtin(name))
    start = time.perf_counter()
    play_run(learner, world, HORIZON, np.array([HORIZON]), seed=0, run=run)
    return time.perf_counter() - start


def main() -> None:
    for spec in ("ts-9", "colored-ucrl2:cap=10"):
        seconds_of_a_run(spec, "table-2", 0)
    for spec in ("ts-9:rewards=known", "ts-9"):
        times = [seconds_of_a_run(spec, "paper-1", run) for run in range(5)]
        print(f"{spec}, paper-1, T = {HORIZON}: {min(times):.2f} s a run, best of 5 (target 0.3)")
    start = time.perf_counter()
    rb.simulate(rb.Problem.builtin("paper-1"), "restless-ucb", HORIZON, runs=1000)
    print(f"restless-ucb, paper-1, T = {HORIZON}, 1000 runs: {time.perf_counter() - start:.1f} s (target 30)")
    for name, target in COLORED_TARGETS.items():
        spent = seconds_of_a_run("colored-ucrl2:cap=10", name, 0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"colored-ucrl2:cap=10, {name}, T = {HORIZON}: {spent:.2f} s (target {target:g}), peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
