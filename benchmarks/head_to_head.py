"""Every learner on every built-in problem: writes docs/head-to-head.md and its figure.

Run with ``python -m benchmarks.head_to_head`` (about an hour on two cores; what was played is kept in
``out/head-to-head`` and the same command goes on from there). ``--random 200`` compares the default learner with
Restless-UCB on so many random problems instead, and ``--worst 1000`` looks for the worst of so many runs.
"""

from __future__ import annotations

import argparse
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import restless_bandits as rb
from restless_bandits import plots
from restless_bandits.arrays import Array
from restless_bandits.learners import DEFAULT
from restless_bandits.simulation.pools import cores

HORIZONS = (10_000, 100_000, 1_000_000)
MOST_RUNS, FEWEST_RUNS = 100, 4
SECONDS = 16.0
"""Seconds of one core that a learner gets on a problem, unless ``MORE_SECONDS`` says otherwise."""
MORE_SECONDS = {"likelihood-ucb": 2000.0, "likelihood-dominance": 100.0, "restless-ucb": 100.0}
TOO_LONG = 60.0
"""Seconds of a run beyond which a learner is left out."""
SLOW = {"queue-5": ("posterior", "likelihood-dominance", "colored-ucrl2:cap=10")}
"""Known to take longer than that; even a trial would."""
LEARNERS = (
    "likelihood-ucb",
    "posterior",
    "likelihood-dominance",
    "restless-ucb",
    "restless-ucb:anytime=yes",
    "colored-ucrl2:cap=10",
    "ts-9",
    "ts-4",
    "dsee",
    "rca",
    "ucb1",
    "round-robin",
)
ANEW = ("restless-ucb", "colored-ucrl2:cap=10")
"""Learners that are told their horizon, and so are run anew for each."""
QUEUE_GAIN = 0.830877
"""queue-5 has no certified optimum: the gain of Whittle's policy there, simulated (40 runs of 1e6, ± 1e-4)."""
DOCS = Path(__file__).resolve().parent.parent / "docs"
OUT = Path("out") / "head-to-head"


@dataclass
class Cell:
    """The regrets of one learner on one problem, (run, horizon), or why there are none."""

    regret: Array | None
    seconds: float = math.nan
    kind: str = ""
    why: str = ""


def measure(problem: rb.Problem, spec: str) -> Cell:
    learner = rb.learner(spec)
    if spec in SLOW.get(problem.name, ()):
        return Cell(None, why="a run would take minutes")
    try:
        learner.task(problem, HORIZONS[-1])
    except rb.ProblemError as error:
        return Cell(None, why=str(error))
    against = QUEUE_GAIN if problem.name == "queue-5" else "auto"
    # Once to compile, once to see how long a run takes.
    rb.simulate(problem, spec, 1000, runs=1, seed=1, comparator=against)
    started = time.perf_counter()
    rb.simulate(problem, spec, HORIZONS[-1] // 10, runs=1, seed=1, comparator=against)
    alone = 10 ** (0.8 if learner.plans_often else 1.0) * (time.perf_counter() - started)
    if alone > TOO_LONG:
        return Cell(None, why=f"a run would take about {alone:.0f} s")
    allowed = MORE_SECONDS.get(spec, SECONDS)
    runs = int(min(MOST_RUNS, max(FEWEST_RUNS, allowed / alone)))
    runs -= runs % 2

    def play(horizon: int, checkpoints: list[int]) -> rb.SimulationResult:
        return rb.simulate(
            problem, spec, horizon, runs=runs, checkpoints=checkpoints, comparator=against, engine="auto", out=OUT
        )

    if spec in ANEW:
        results = [play(horizon, [horizon]) for horizon in HORIZONS]
        regret = np.concatenate([result.regret()[0] for result in results], axis=1)
    else:
        results = [play(HORIZONS[-1], list(HORIZONS))]
        regret = results[0].regret()[0]
    return Cell(regret, float(results[-1].seconds.mean()), results[-1].kinds[-1])


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def row(spec: str, cell: Cell) -> str:
    if cell.regret is None:
        return f"| `{spec}` | – | – | – | – | – | – |"
    runs = len(cell.regret)
    errors = cell.regret.std(axis=0, ddof=1) / math.sqrt(runs)
    means = [f"{number(m)} ± {number(e)}" for m, e in zip(cell.regret.mean(axis=0), errors, strict=True)]
    worst = number(cell.regret[:, -1].max())
    return f"| `{spec}` | {' | '.join(means)} | {worst} | {cell.seconds:.2g} | {runs} |"


def losses(cells: dict[str, dict[str, Cell]]) -> list[str]:
    """Who has a smaller mean than the default learner, where and when."""
    found = []
    for name, by_spec in cells.items():
        mine = by_spec[DEFAULT].regret
        for spec, cell in by_spec.items():
            if spec == DEFAULT or mine is None or cell.regret is None:
                continue
            better = [
                f"{number(theirs)} against {number(ours)} at T = {horizon:.0e}".replace("e+0", "e")
                for theirs, ours, horizon in zip(cell.regret.mean(axis=0), mine.mean(axis=0), HORIZONS, strict=True)
                if theirs < ours
            ]
            if better:
                found.append(f"- `{spec}` on {name}: {', '.join(better)} ({len(cell.regret)} runs).")
    return found or [f"`{DEFAULT}` has the smallest mean everywhere."]


def figure(cells: dict[str, dict[str, Cell]], path: Path) -> None:
    """Regret at the longest horizon over that of Restless-UCB."""
    from matplotlib.figure import Figure

    shown = ("likelihood-ucb", "posterior", "likelihood-dominance", "colored-ucrl2:cap=10", "ts-9", "ts-4", "ucb1")
    with plots.style():
        drawn = Figure(figsize=(10, 4.2), layout="constrained")
        ax = drawn.subplots()
        for n, spec in enumerate(shown):
            places, ratios = [], []
            for place, by_spec in enumerate(cells.values()):
                mine, theirs = by_spec[spec].regret, by_spec["restless-ucb"].regret
                if mine is not None and theirs is not None:
                    places.append(place)
                    ratios.append(max(1e-4, float(mine[:, -1].mean() / theirs[:, -1].mean())))
            ax.plot(places, ratios, plots.MARKS[n], color=plots.COLOURS[n], markersize=7, label=spec)
        ax.axhline(1, color="black", linewidth=1)
        ax.set_yscale("log")
        ax.set_xticks(range(len(cells)), list(cells), rotation=30, ha="right")
        ax.set_ylabel("regret at T = 1e6, Restless-UCB = 1")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        drawn.savefig(path, dpi=130)


def write(cells: dict[str, dict[str, Cell]]) -> None:
    lines = [
        "# Head to head",
        "",
        "Every learner on every built-in problem but the four of the table of running times (`table-2` to `table-5`:",
        "paper-1 with more arms), rewards learned, seed 0; `python -m benchmarks.head_to_head` writes this page.",
        "Regret is the mean ± standard error over the runs in the last column, of the least noisy kind;",
        "*worst* is the worst run at T = 1e6, and the seconds are those of one run of 1e6 slots, two runs at a time.",
        "A dash: the learner cannot play the problem (a support for two states only, a table that is too large), or",
        "takes over a minute a run.",
        "",
        "![Regret at T = 1e6 as a multiple of that of Restless-UCB](head-to-head.png)",
        "",
    ]
    for name, by_spec in cells.items():
        problem = rb.Problem.builtin(name)
        kinds = ", ".join(sorted({cell.kind for cell in by_spec.values() if cell.kind}))
        against = "the certified optimum"
        if name == "queue-5":
            against = "the simulated gain of Whittle's policy, 0.8309 ± 0.0001"
        lines += [
            f"## {name}",
            "",
            f"{problem.n_arms} arms of {max(problem.n_states)} states; {kinds} regret against {against}.",
            "",
            "| learner | T = 1e4 | T = 1e5 | T = 1e6 | worst | seconds | runs |",
            "|---|---|---|---|---|---|---|",
            *(row(spec, cell) for spec, cell in by_spec.items()),
            "",
        ]
    lines += ["## Where the default learner loses", "", *losses(cells)]
    (DOCS / "head-to-head.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    figure(cells, DOCS / "head-to-head.png")


RANDOM_HORIZON = 1_000_000


def random_problem(k: int) -> rb.Problem:
    return rb.Problem.random(n_arms=2 + k % 3, n_states=2 + k // 3 % 3, seed=1_000_000 + k)


def random_difference(k: int) -> tuple[float, bool]:
    """How much more the default learner earns than Restless-UCB on random problem k, and whether that one committed."""
    problem, rival = random_problem(k), rb.RestlessUCB()
    result = rb.simulate(
        problem, [DEFAULT, rival], RANDOM_HORIZON, runs=1, checkpoints=1, comparator="best-arm", jobs=1
    )
    mine, theirs = result.expected_reward[:, 0, -1]
    explored = len(result.plan_lengths[rival.spec][0]) > problem.n_arms
    return float(mine - theirs), explored


def random_problems(count: int) -> None:
    """The default learner and Restless-UCB on random problems: who earns more?"""
    with ProcessPoolExecutor(cores()) as pool:
        found = list(pool.map(random_difference, range(count)))
    gains = np.array([gain for gain, _ in found])
    for k in np.flatnonzero(gains <= 0):
        why = "" if found[k][1] else "; Restless-UCB spent all slots exploring its first arms"
        print(f"lost: random problem {k}, by {-gains[k]:.1f}{why}")
    print(
        f"{count} random problems, T = {RANDOM_HORIZON}: {DEFAULT} earns more than restless-ucb on {(gains > 0).sum()} "
        f"of them, by {gains.mean():.0f} on average, {gains.min():.1f} at least and {gains.max():.0f} at most"
    )


def worst_runs(names: list[str], runs: int) -> None:
    """The default learner over many runs: how bad is the worst?"""
    for name in names or ["paper-2", "lms-suburban-l"]:
        problem = rb.Problem.builtin(name)
        result = rb.simulate(problem, DEFAULT, HORIZONS[-1], runs=runs, checkpoints=list(HORIZONS), out=OUT)
        regret = result.regret()[0]
        worst = ", ".join(f"{number(value)}" for value in np.sort(regret[:, -1])[::-1][:5])
        print(f"{name}: {row(DEFAULT, Cell(regret, float(result.seconds.mean())))} worst five: {worst}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, metavar="COUNT", help="random problems instead")
    parser.add_argument("--worst", type=int, metavar="RUNS", help="the worst of many runs instead")
    parser.add_argument("problems", nargs="*", help="built-in problems; all without any")
    chosen = parser.parse_args()
    if chosen.random:
        random_problems(chosen.random)
        return
    if chosen.worst:
        worst_runs(chosen.problems, chosen.worst)
        return
    cells: dict[str, dict[str, Cell]] = {}
    for name in chosen.problems or [name for name in rb.builtin_problems() if not name.startswith("table")]:
        cells[name] = {}
        for spec in LEARNERS:
            cells[name][spec] = measure(rb.Problem.builtin(name), spec)
            print(f"{name}: {row(spec, cells[name][spec])}", flush=True)
    if not chosen.problems:
        write(cells)


if __name__ == "__main__":
    main()
