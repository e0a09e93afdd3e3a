"""Learning arms that react and are seen when pulled: ``python -m benchmarks.reacting``.

Ten arms of two states, one pull a slot: ``Problem.random_reacting(10, kind="collapsing", seed=...)``. A good state pays
1 whether the arm is pulled or not, so a player of random pulls earns most of what the best player earns. The *lift* of
a learner is its reward above random pulls as a share of what Whittle's index with known chains earns above them. All
players meet the same random numbers.

What was measured is kept in docs/benchmarks/reacting.json, and the table in docs/learners.md is written from it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import restless_bandits as rb
from benchmarks import pages
from restless_bandits._internal.validation import Array

KEPT = "reacting"
PAGE = pages.DOCS / "learners.md"
SEEDS = range(1000, 1010)
"""Problems on which no constant of a learner was chosen."""
N_ARMS = 10
RUNS = {100: 12, 1_000: 4, 10_000: 2}
"""The number of runs of each player on each problem, by checkpoint: early sums need more runs than late ones."""
CHECKPOINTS = tuple(RUNS)
LEARNERS = ("posterior:rewards=known", "posterior", "round-robin")
INDEX, RANDOM = "whittle", "random"


def problem_of(seed: int) -> rb.Problem:
    return rb.Problem.random_reacting(N_ARMS, kind="collapsing", seed=seed)


class RandomPulls:
    """A player of random pulls, with the methods of an agent that ``play`` calls."""

    def __init__(self, n_arms: int, seed: int) -> None:
        self._n_arms, self._rng = n_arms, np.random.default_rng([seed, 1])

    def ask(self) -> int:
        return int(self._rng.integers(self._n_arms))

    def tell(self, state: int, reward: float) -> None:
        """Learn nothing."""


def play(spec: str, problem: rb.Problem, run: int, horizon: int = CHECKPOINTS[-1]) -> tuple[list[float], float]:
    """Return the expected rewards of all arms, summed up to each checkpoint, and the CPU seconds of a run."""
    started = time.process_time()
    player: Any = RandomPulls(problem.n_arms, run)
    if spec != RANDOM:
        player = rb.Agent(spec, rb.learner(spec).task(problem, None), seed=run)
    rng = np.random.default_rng([run, 2])
    arms = np.arange(problem.n_arms)
    chains = [arm for arm in problem.arms if isinstance(arm, rb.Arm)]
    ends = np.array([[arm.chain, arm.active_chain] for arm in chains]).cumsum(axis=3)
    pay = np.array([arm.mean_rewards for arm in chains])
    starts = np.array([arm.initial_distribution for arm in chains]).cumsum(axis=1)
    states = _drawn(starts, rng)
    pulled = np.zeros(problem.n_arms, dtype=np.int64)
    total, sums = 0.0, []
    for slot in range(1, horizon + 1):
        states = _drawn(ends[arms, pulled, states], rng)
        arm = player.ask()
        pulled[:] = 0
        pulled[arm] = 1
        total += float(pay[arms, states, pulled].sum())
        player.tell(int(states[arm]), float(rng.random() < pay[arm, states[arm], 1]))
        if slot in CHECKPOINTS:
            sums.append(total)
    return sums, time.process_time() - started


def _drawn(ends: Array, rng: np.random.Generator) -> Any:
    """Draw a state for each row of cumulative probabilities."""
    return np.minimum((rng.random(len(ends))[:, None] >= ends).sum(axis=1), ends.shape[1] - 1)


def measured(job: tuple[int, str, int]) -> tuple[list[float], float]:
    seed, spec, run = job
    return play(spec, problem_of(seed), run, max(slots for slots, runs in RUNS.items() if run < runs))


def lifts(seeds: range = SEEDS) -> dict[str, Any]:
    """Return the lift at each checkpoint on each problem and the CPU seconds of a run, by learner."""
    jobs = [
        (seed, spec, run) for spec in (INDEX, RANDOM, *LEARNERS) for seed in seeds for run in range(max(RUNS.values()))
    ]
    with ProcessPoolExecutor() as pool:
        played = dict(zip(jobs, pool.map(measured, jobs), strict=True))

    def mean(seed: int, spec: str, checkpoint: int) -> float:
        runs = range(RUNS[CHECKPOINTS[checkpoint]])
        return float(np.mean([played[seed, spec, run][0][checkpoint] for run in runs]))

    def lift(seed: int, spec: str, checkpoint: int) -> float:
        worst, best = (mean(seed, one, checkpoint) for one in (RANDOM, INDEX))
        return round((mean(seed, spec, checkpoint) - worst) / (best - worst), 4)

    found = {}
    for spec in LEARNERS:
        rows = [[lift(seed, spec, checkpoint) for checkpoint in range(len(CHECKPOINTS))] for seed in seeds]
        cpu = np.mean([played[seed, spec, run][1] for seed in seeds for run in range(RUNS[CHECKPOINTS[-1]])])
        found[spec] = {"lifts": rows, "cpu": round(float(cpu), 2)}
    return found


def table(kept: Mapping[str, Any]) -> str:
    """Return the table of the page."""
    heads = [f"mean lift, {slots} slots" for slots in CHECKPOINTS]
    lines = [f"| learner | {' | '.join(heads)} | least of {len(SEEDS)} problems | CPU of a run |", "|---" * 6 + "|"]
    for spec, cell in kept.items():
        found = np.array(cell["lifts"])
        errors = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        shown = " | ".join(f"{lift:.2f} ± {error:.2f}" for lift, error in zip(found.mean(axis=0), errors, strict=True))
        lines.append(f"| `{spec}` | {shown} | {found[:, -1].min():.2f} | {cell['cpu']:.1f} s |")
    return "\n".join(lines)


def written(page: str) -> str:
    """Return docs/learners.md as the kept results say."""
    return pages.filled(page, {"reacting": lambda: table(pages.load(KEPT))})


def main() -> None:
    pages.keep(KEPT, lifts())
    print(table(pages.load(KEPT)), flush=True)
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
