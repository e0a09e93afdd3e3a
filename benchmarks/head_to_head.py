"""Every learner on every built-in problem: writes docs/head-to-head.md and its figures from what is kept.

``python -m benchmarks.head_to_head`` measures all of it (more than an hour on two cores; runs are kept in
``out/head-to-head``, and the same command goes on from there), keeps every cell in docs/benchmarks/head-to-head.json
and writes the page. Problems, and learners after ``--learner``, say which cells to measure anew; ``--fill`` leaves out
those that have their runs, and begins with the cheapest; ``--time`` measures seconds alone, ``--write`` nothing.
``--random 200`` compares the default learner with Restless-UCB on so many random problems instead, and ``--worst 1000``
looks for the worst of so many runs.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import restless_bandits as rb
from benchmarks import controlled_learning, pages
from restless_bandits import plots
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners import DEFAULT
from restless_bandits.simulation.pools import cores

HORIZONS = (10_000, 100_000, 1_000_000)
MOST_RUNS, FEWEST_RUNS = 100, 20
MORE_RUNS = {"likelihood-ucb": 200}
SECONDS = 16.0
"""Seconds of one core that a learner gets on a problem for more than the fewest runs; see ``MORE_SECONDS``."""
MORE_SECONDS = {"likelihood-ucb": 200.0, "likelihood-dominance": 100.0, "restless-ucb": 100.0}
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
KEPT = "head-to-head"
PAGE = pages.DOCS / "head-to-head.md"
OUT = Path("out") / "head-to-head"


def shortened(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class Cell:
    """The regret of one learner on one problem, at each of ``HORIZONS``; no runs where it cannot be measured."""

    runs: int = 0
    means: Sequence[float] = ()
    errors: Sequence[float] = ()
    worst: float = math.nan
    seconds: float = math.nan
    kind: str = ""
    why: str = ""

    @classmethod
    def of(cls, regret: Array, seconds: float, kind: str = "") -> Cell:
        """Return the cell of some runs, ``[run, horizon]``."""
        runs = len(regret)
        errors = regret.std(axis=0, ddof=1) / math.sqrt(runs)
        means, spread = (tuple(shortened(value) for value in one) for one in (regret.mean(axis=0), errors))
        return cls(runs, means, spread, shortened(regret[:, -1].max()), shortened(seconds, 2), kind)

    @property
    def slope(self) -> float:
        """What was lost for each unit of ln T in the last decade."""
        return (self.means[-1] - self.means[-2]) / math.log(HORIZONS[-1] / HORIZONS[-2])


def comparator(problem: rb.Problem) -> float | str:
    return QUEUE_GAIN if problem.name == "queue-5" else "auto"


def processor_seconds(problem: rb.Problem, spec: str, horizon: int) -> float:
    """What a run takes, in processor time: other work on the machine does not count."""
    started = time.process_time()
    rb.simulate(problem, spec, horizon, runs=1, seed=1, comparator=comparator(problem), jobs=1)
    return time.process_time() - started


def measure(problem: rb.Problem, spec: str, jobs: int | None = None) -> Cell:
    learner = rb.learner(spec)
    if spec in SLOW.get(problem.name, ()):
        return Cell(why="a run would take minutes")
    try:
        learner.task(problem, HORIZONS[-1])
    except rb.ProblemError as error:
        return Cell(why=str(error))
    # Twice to compile, as larger tables come later; then once to see how long a run would take, once for how long it
    # does.
    processor_seconds(problem, spec, 1000)
    processor_seconds(problem, spec, HORIZONS[-1] // 10)
    alone = 10 ** (0.8 if learner.plans_often else 1.0) * processor_seconds(problem, spec, HORIZONS[-1] // 10)
    if alone > TOO_LONG:
        return Cell(why=f"a run would take about {alone:.0f} s")
    alone = processor_seconds(problem, spec, HORIZONS[-1])
    allowed = MORE_SECONDS.get(spec, SECONDS)
    runs = int(min(MORE_RUNS.get(spec, MOST_RUNS), max(FEWEST_RUNS, allowed / alone)))
    runs -= runs % 2

    def play(horizon: int, checkpoints: list[int]) -> rb.SimulationResult:
        return rb.simulate(
            problem,
            spec,
            horizon,
            runs=runs,
            checkpoints=checkpoints,
            comparator=comparator(problem),
            jobs=jobs,
            out=OUT,
        )

    if spec in ANEW:
        results = [play(horizon, [horizon]) for horizon in HORIZONS]
        regret = np.concatenate([result.regret()[0] for result in results], axis=1)
    else:
        results = [play(HORIZONS[-1], list(HORIZONS))]
        regret = results[0].regret()[0]
    return Cell.of(regret, alone, results[-1].kinds[-1])


def timed(cell: Cell, problem: rb.Problem, spec: str) -> Cell:
    """Return a cell with the seconds that a run takes now."""
    if not cell.runs:
        return cell
    processor_seconds(problem, spec, 1000)
    return replace(cell, seconds=shortened(processor_seconds(problem, spec, HORIZONS[-1]), 2))


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def row(spec: str, cell: Cell) -> str:
    if not cell.runs:
        return f"| `{spec}` | – | – | – | – | – | – | – |"
    means = [f"{number(m)} ± {number(e)}" for m, e in zip(cell.means, cell.errors, strict=True)]
    rest = f"{number(cell.slope)} | {number(cell.worst)} | {cell.seconds:.2g} | {cell.runs}"
    return f"| `{spec}` | {' | '.join(means)} | {rest} |"


Cells = dict[str, dict[str, Cell]]


def kept_cells() -> Cells:
    """Return what was measured, by problem and learner, in the order of the page."""
    kept = pages.load(KEPT)
    return {name: {spec: Cell(**kept[name][spec]) for spec in LEARNERS} for name in sorted(kept)}


def losses(cells: Cells) -> list[str]:
    """Who has a smaller mean than the default learner, where and when."""
    found = []
    for name, by_spec in cells.items():
        mine = by_spec[DEFAULT]
        for spec, cell in by_spec.items():
            better = [
                f"{number(theirs)} against {number(ours)} at T = {horizon:.0e}".replace("e+0", "e")
                for theirs, ours, horizon in zip(cell.means, mine.means, HORIZONS, strict=bool(cell.runs and mine.runs))
                if theirs < ours
            ]
            if better:
                found.append(f"- `{spec}` on {name}: {', '.join(better)} ({cell.runs} runs).")
    return found or [f"`{DEFAULT}` has the smallest mean everywhere."]


def ratio_figure(cells: Cells, path: Path) -> None:
    """Regret at the longest horizon over that of Restless-UCB."""
    from matplotlib.figure import Figure

    shown = ("likelihood-ucb", "posterior", "likelihood-dominance", "colored-ucrl2:cap=10", "ts-9", "ts-4", "ucb1")
    with plots.style():
        drawn = Figure(figsize=(10, 4.2), layout="constrained")
        ax = drawn.subplots()
        for n, spec in enumerate(shown):
            ratios = {
                place: max(1e-5, by_spec[spec].means[-1] / by_spec["restless-ucb"].means[-1])
                for place, by_spec in enumerate(cells.values())
                if by_spec[spec].runs and by_spec["restless-ucb"].runs
            }
            places, colour = list(ratios), plots.COLOURS[n]
            ax.plot(places, list(ratios.values()), plots.MARKS[n], color=colour, markersize=7, label=spec)
        ax.axhline(1, color="black", linewidth=1)
        ax.set_yscale("log")
        ax.set_xticks(range(len(cells)), list(cells), rotation=30, ha="right")
        ax.set_ylabel("regret at T = 1e6, Restless-UCB = 1")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        drawn.savefig(path, dpi=130)


def limit_figure(cells: Cells, path: Path) -> None:
    """Regret of the default learner against slots, with the limit where that is not zero."""
    from matplotlib.figure import Figure

    limits = pages.load("limits")
    with plots.style():
        drawn = Figure(figsize=(10, 4.2), layout="constrained")
        ax = drawn.subplots()
        for n, (name, by_spec) in enumerate(cells.items()):
            colour = plots.COLOURS[n % len(plots.COLOURS)]
            cell = by_spec[DEFAULT]
            if not cell.runs:
                continue
            # Where colours begin again, marks are others.
            mark = plots.MARKS[(n + n // len(plots.COLOURS)) % len(plots.MARKS)]
            ax.errorbar(HORIZONS, cell.means, cell.errors, color=colour, marker=mark, label=name)
            if limits.get(name, {}).get("lower", 0.0) > 0.0:
                slots = np.geomspace(HORIZONS[0], HORIZONS[-1], 50)
                ax.plot(slots, limits[name]["lower"] * np.log(slots), "--", color=colour, label=f"{name}: C ln T")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("slots T")
        ax.set_ylabel(f"regret of {DEFAULT}")
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        drawn.savefig(path, dpi=130)


def limit_sentence(name: str, limits: Mapping[str, Any]) -> str:
    """What is known of the least slope that any learner can have."""
    found = limits.get(name, {})
    if "lower" not in found:
        return "The least possible slope is not known."
    if found["upper"] == 0.0:
        return "The least possible slope is 0."
    return f"The least possible slope is between {found['lower']:.2f} and {found['upper']:.2f}."


def page(cells: Cells) -> str:
    limits = pages.load("limits")
    lines = [
        "# Head to head",
        "",
        "Every learner on every built-in problem except the four problems of the table of running times (`table-2` to",
        "`table-5`: paper-1 with more arms), rewards learned, seed 0. `python -m benchmarks.head_to_head` measures and",
        "writes the page.",
        "",
        "Regret is the mean ± standard error over the runs in the last column, of the least noisy kind. *Slope* is the",
        "loss for each unit of ln T between 1e5 and 1e6, for which [a limit](theory/limit.md) is known on some",
        "problems. *Worst* is the worst run at T = 1e6. Seconds are CPU time for a run of 1e6 slots (wall time in rows",
        "of four runs). A dash: the learner cannot play the problem (a support for two states only, a table that is",
        "too large), or takes over a minute a run.",
        "",
        "![Regret at T = 1e6 as a multiple of that of Restless-UCB](head-to-head.png)",
        "",
        "![Regret of the default learner at T = 1e4, 1e5 and 1e6, and the limit C ln T of",
        "lms-suburban-l](head-to-head-limit.png)",
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
            f"{problem.n_arms} arms of {max(problem.n_states)} states; {kinds} regret against {against}. "
            + limit_sentence(name, limits),
            "",
            "| learner | T = 1e4 | T = 1e5 | T = 1e6 | slope | worst | seconds | runs |",
            "|---|---|---|---|---|---|---|---|",
            *(row(spec, cell) for spec, cell in by_spec.items()),
            "",
        ]
    lines += ["## Where the default learner loses", "", *losses(cells)]
    return "\n".join(lines).rstrip() + "\n\n" + controlled_learning.second_half() + "\n"


def write(cells: Cells) -> None:
    PAGE.write_text(page(cells), encoding="utf-8")
    ratio_figure(cells, PAGE.with_suffix(".png"))
    limit_figure(cells, PAGE.with_name("head-to-head-limit.png"))


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
        cell = Cell.of(regret, float(result.seconds.mean()))
        print(f"{name}: {row(DEFAULT, cell)} worst five: {worst}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--random", type=int, metavar="COUNT", help="random problems instead")
    parser.add_argument("--worst", type=int, metavar="RUNS", help="the worst of many runs instead")
    parser.add_argument("--learner", action="append", choices=LEARNERS, help="only this one; may be given again")
    parser.add_argument("--fill", action="store_true", help="only cells with too few runs, the cheapest first")
    parser.add_argument("--time", action="store_true", help="only how long a run takes")
    parser.add_argument("--jobs", type=int, help="how many play at a time; all cores by default")
    parser.add_argument("--write", action="store_true", help="write the page from what is kept and measure nothing")
    parser.add_argument("problems", nargs="*", help="built-in problems; all without any")
    chosen = parser.parse_args()
    if chosen.random:
        random_problems(chosen.random)
        return
    if chosen.worst:
        worst_runs(chosen.problems, chosen.worst)
        return
    names = [name for name in rb.builtin_problems(()) if not name.startswith("table")]
    wanted = [(name, spec) for name in chosen.problems or names for spec in chosen.learner or LEARNERS]
    if chosen.fill:
        kept_so_far = kept_cells()
        wanted = sorted(
            (place for place in wanted if 0 < kept_so_far[place[0]][place[1]].runs < FEWEST_RUNS),
            key=lambda place: kept_so_far[place[0]][place[1]].seconds,
        )
    for name, spec in [] if chosen.write else wanted:
        problem = rb.Problem.builtin(name)
        cell = timed(kept_cells()[name][spec], problem, spec) if chosen.time else measure(problem, spec, chosen.jobs)
        print(f"{name}: {row(spec, cell)}", flush=True)
        kept = pages.load(KEPT)
        kept.setdefault(name, {})[spec] = {key: value for key, value in vars(cell).items() if value == value}
        pages.keep(KEPT, kept)
    write(kept_cells())


if __name__ == "__main__":
    main()
