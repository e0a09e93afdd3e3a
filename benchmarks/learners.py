"""How long runs of the learners take. Run with ``python -m benchmarks.learners``.

Seconds of the processor, warm, the least of several rounds: machines are shared.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits._internal.random_streams import world_words
from restless_bandits.policies import CountDoubled, Plan, Slots
from restless_bandits.simulation.engine import Run, World, play_run

HORIZON = 500_000
COLORED_TARGETS = {"table-2": 0.1, "table-3": 0.3, "table-4": 3.0, "table-5": 45.0}
AUTHORS_JOBS = (
    ("restless-ucb", range(5_000, 50_001, 5_000), 0.2),
    ("ts-9:schedule=doubling", (50_000,), 0.05),
    ("colored-ucrl2:cap=10", (50_000,), 0.1),
)
"""What the paper's program computes on paper-1: learner, horizons and the seconds wanted for 20 runs of each."""
RUNS = 20


def least_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the seconds of the quickest round."""
    spent = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def play(spec: str, world: World, horizons: Iterable[int], runs: Iterable[int]) -> None:
    learner = rb.learner(spec)
    for horizon in horizons:
        for run in runs:
            play_run(learner, world, horizon, np.array([horizon]), seed=0, run=run)


def seconds_of_a_run(spec: str, world: World, horizon: int, rounds: int = 5) -> float:
    play(spec, world, (horizon,), (0,))
    return least_seconds(partial(play, spec, world, (horizon,), (0,)), rounds)


def main() -> None:
    paper = World(rb.Problem.builtin("paper-1"))
    for spec in ("ts-9:rewards=known", "ts-9"):
        spent = seconds_of_a_run(spec, paper, HORIZON)
        print(f"{spec}, paper-1, T = {HORIZON}: {spent:.3f} s a run (target 0.15)")
    many = World(rb.Problem.random(n_arms=100, n_states=2, seed=11))
    print(f"ts-9, 100 arms, T = 10000: {seconds_of_a_run('ts-9', many, 10_000, 3):.2f} s a run (target 1)")
    for spec, horizons, target in AUTHORS_JOBS:
        play(spec, paper, horizons, (0,))
        spent = least_seconds(partial(play, spec, paper, horizons, range(RUNS)), 5)
        print(f"{spec}, paper-1, {RUNS} runs of {len(horizons)} horizons: {spent:.3f} s (target {target:g})")
    print(f"a plan of 20 slots, 1000 arms: {1e3 * seconds_of_a_short_plan():.3f} ms (target 1)")
    start = time.perf_counter()
    rb.simulate(rb.Problem.builtin("paper-1"), "restless-ucb", HORIZON, runs=1000)
    print(f"restless-ucb, paper-1, T = {HORIZON}, 1000 runs: {time.perf_counter() - start:.1f} s (target 30)")
    for name, wanted in COLORED_TARGETS.items():
        spent = seconds_of_a_run("colored-ucrl2:cap=10", World(rb.Problem.builtin(name)), HORIZON, 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"colored-ucrl2:cap=10, {name}, T = {HORIZON}: {spent:.2f} s (target {wanted:g}), peak {peak:.2f} GB")


def seconds_of_a_short_plan(plans: int = 100) -> float:
    """Return what playing a plan of 20 slots takes, without making it."""
    problem = rb.Problem.random(n_arms=1000, n_states=2, seed=11)
    run = Run(World(problem), 1 << 40, np.array([1 << 40]), world_words(0, problem.content, 0))
    plan = Plan(oracles.policy("whittle", problem), CountDoubled(strict=True) | Slots(20))

    def play_plans() -> None:
        for _ in range(plans):
            run.play(plan)

    return least_seconds(play_plans, 5) / plans


if __name__ == "__main__":
    main()
