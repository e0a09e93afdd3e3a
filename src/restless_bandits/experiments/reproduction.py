"""Runs the paper's experiments, decides its claims, and writes the report.

Everything that is played is stored in ``cells`` under the output folder as it comes, by its content: a reproduction
that was killed goes on where it stopped and ends with the same bytes, and a longer one uses what a shorter one has
played.
Only the times of ``table-1`` are measurements; they too are kept once they are made.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits import plots
from restless_bandits.arrays import Array, plain
from restless_bandits.errors import ProblemError
from restless_bandits.experiments.curves import Curve, Panel, curve_of
from restless_bandits.experiments.design import Design, Item, Line, Protocol, design
from restless_bandits.experiments.inside import Estimates, estimates, posterior_at_truth
from restless_bandits.experiments.theory import check_theory
from restless_bandits.experiments.timing import cells_of, measure_times, processor
from restless_bandits.experiments.verdicts import Evidence, Finding, Verdict, decide
from restless_bandits.files import write_file
from restless_bandits.learners import learner
from restless_bandits.markov import stationary
from restless_bandits.optimism import exploration_count
from restless_bandits.problem import Problem
from restless_bandits.simulation.cells import Cell, solution_of
from restless_bandits.simulation.comparator import Comparator, comparator_for
from restless_bandits.simulation.engines import open_pool
from restless_bandits.simulation.playing import Book, play_books
from restless_bandits.simulation.pools import Pool
from restless_bandits.simulation.runner import collect
from restless_bandits.simulation.storage import Store, open_folder
from restless_bandits.walks import Walk, walk

WHITTLE_HORIZON = 1_000_000
WHITTLE_RUNS = 100
"""Slots and runs from which the gain of the Whittle policy is estimated where it cannot be computed."""
TABLE_SECONDS = 1.0
"""A guess at an average run of the table of times, for the estimate of the time left."""

Tell = Callable[[float, float, str], None]
"""Told the seconds of work done and of all work, by estimate, and what is being done."""


class ReproductionInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle; all that was finished is stored."""

    def __init__(self, out: Path) -> None:
        super().__init__(f"Interrupted; what was played is stored in {out}, and the same again goes on from there")


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was measured, and what it says of the paper's claims."""

    plan: Design
    command: str
    seed: int
    panels: tuple[Panel, ...]
    verdicts: tuple[Verdict, ...]
    times: Mapping[str, Mapping[int, Array]] = field(default_factory=dict)
    build_times: Mapping[int, float] = field(default_factory=dict)
    timed_on: str = ""
    estimates: tuple[Estimates, ...] = ()
    posteriors: Mapping[str, Array] = field(default_factory=dict)
    stretch: Walk | None = None

    def panel(self, item: str, protocol: str) -> Panel:
        return next(panel for panel in self.panels if (panel.item, panel.protocol) == (item, protocol))

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers of the report, as ``restless reproduce --json`` prints them."""
        figures = []
        for panel in self.panels:
            lines = [_numbers(curve) for curve in panel.curves]
            figures.append(
                {
                    "item": panel.item,
                    "protocol": panel.protocol,
                    "problem": panel.problem,
                    "comparator": panel.comparator.as_dict(),
                    "lines": lines,
                }
            )
        table = [
            {"learner": label, "arms": arms, "seconds": float(seconds.mean()), "runs": len(seconds)}
            for label, by_arms in self.times.items()
            for arms, seconds in by_arms.items()
        ]
        return {
            "command": self.command,
            "quick": self.plan.quick,
            "seed": self.seed,
            "figures": figures,
            "table": table,
            "build_seconds": {str(arms): seconds for arms, seconds in self.build_times.items()},
            "posterior_at_truth": {name: weights.tolist() for name, weights in self.posteriors.items()},
            "claims": [verdict.as_dict() for verdict in self.verdicts],
        }


def _numbers(curve: Curve) -> dict[str, Any]:
    return {
        "learner": curve.label,
        "spec": curve.spec,
        "runs": curve.runs,
        "regret_kind": curve.kind,
        "horizons": curve.horizons.tolist(),
        "regret_mean": curve.mean.tolist(),
        "regret_stderr": curve.stderr.tolist(),
        "regret_sd": curve.sd.tolist(),
        "regret_max": curve.worst.tolist(),
        "spread_kind": curve.spread_kind,
        "spread_sd": curve.spread.std(axis=0, ddof=1).tolist(),
        "growth": curve.growth(),
    }


def reproduce(
    items: Sequence[str] = (),
    *,
    quick: bool = False,
    out: str | Path = "out",
    seed: int = 0,
    runs: int | None = None,
    jobs: int | None = None,
    engine: str = "auto",
    address: str | None = None,
    progress: Tell | None = None,
) -> Reproduction:
    """Run the paper's experiments, or some of them, and write figures, numbers and the report.

    Parameters
    ----------
    items
        ``figure-a`` to ``figure-f``, ``appendix-a``, ``appendix-b``, ``table-1``, ``inside``, ``theory``; none for all.
    quick
        Fewer runs and shorter horizons: a minute or two instead of half an hour.
    out
        Gets ``report.html``, ``results.json``, ``figures/``, and ``cells/`` and ``times.json`` with what was played.
    seed
        The seed of everything.
    runs
        Runs of every line, in place of the design's.
    jobs
        Processes; all cores by default.
    engine
        ``threads``, ``processes``, ``dask``, or ``auto``: the cluster where there is an address, else processes.
    address
        The scheduler of a Dask cluster, as for ``simulate``. What is measured in seconds is measured here all the same.
    progress
        Told how far it is.

    """
    plan = design(items, quick=quick)
    plots.style()  # says so where there is nothing to draw with, before anything is played and not after
    for what, value, least in (("jobs", jobs, 1), ("seed", seed, 0), ("runs", runs, 2)):
        if value is None and what != "seed":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ProblemError(f"{what} is {value!r}; it must be a whole number of at least {least}")
    if runs is not None:
        plan = replace(plan, items=tuple(replace(item, runs=runs, fair_runs=runs) for item in plan.items))
    place = Path(out)
    # Before any work is done: a picture that cannot be drawn, a folder that cannot be written.
    with plots.style():
        pass
    command = " ".join(
        ["restless reproduce", *items, *(["--quick"] if quick else [])]
        + ([f"--seed {seed}"] if seed else [])
        + ([] if runs is None else [f"--runs {runs}"])
    )
    try:
        with open_pool(engine, jobs, address, often=True) as pool:
            measured = _measure(plan, place, seed, pool, progress)
    except KeyboardInterrupt:
        raise ReproductionInterrupted(place) from None
    verdicts = tuple(verdict for claim in plan.claims for verdict in decide(claim, measured.evidence(plan)))
    found = Reproduction(
        plan=plan,
        command=command,
        seed=seed,
        panels=tuple(measured.panels),
        verdicts=verdicts,
        times=measured.times,
        build_times=measured.build_times,
        timed_on=processor() if measured.times else "",
        estimates=tuple(measured.estimates),
        posteriors=measured.posteriors,
        stretch=measured.stretch,
    )
    from restless_bandits.experiments.report import write_report

    text = json.dumps(plain(found.as_dict()), indent=1, ensure_ascii=False) + "\n"
    try:
        write_file(place / "results.json", text.encode())
        write_report(found, place)
    except OSError as error:
        raise ProblemError(f"cannot write to {place}: {error.strerror or error}") from None
    return found


@dataclass
class _Measured:
    panels: list[Panel] = field(default_factory=list)
    times: dict[str, dict[int, Array]] = field(default_factory=dict)
    build_times: dict[int, float] = field(default_factory=dict)
    estimates: list[Estimates] = field(default_factory=list)
    posteriors: dict[str, Array] = field(default_factory=dict)
    stretch: Walk | None = None
    theory: dict[str, list[Finding]] = field(default_factory=dict)

    def evidence(self, plan: Design) -> Evidence:
        return Evidence(
            panels={(panel.item, panel.protocol): panel for panel in self.panels},
            exploration_bounds={item.name: exploration_bound(Problem.builtin(item.problem)) for item in plan.items},
            posteriors=self.posteriors,
            times=self.times,
            build_times=self.build_times,
            theory=self.theory,
        )


def exploration_bound(problem: Problem) -> Callable[[int], float]:
    """Return N m(T) / d_min as a function of T: what Fact 1 says of the exploration phase, without its logarithms."""
    rarest = min(float(stationary(arm.one_step).min()) for arm in problem.arms)
    return lambda horizon: problem.n_arms * exploration_count(horizon) / rarest


def _measure(plan: Design, place: Path, seed: int, pool: Pool, progress: Tell | None) -> _Measured:
    measured = _Measured()
    work = _Work(plan, open_folder(place / "cells"), seed)
    meter = _Meter(work, plan, pool, progress)
    if plan.table is not None:
        # First, while nothing else is running.
        meter.what = plan.table.name
        measured.times, measured.build_times = measure_times(plan.table, place / "times.json", seed, meter.timed)
    play_books(work.groups, pool, meter.played)
    for item in plan.items:
        measured.panels += [work.panel(item, protocol) for protocol in plan.protocols]
    if plan.inside is not None:
        meter.say(plan.inside.name)
        for name in plan.inside.problems:
            problem = Problem.builtin(name)
            measured.estimates.append(estimates(problem, plan.inside.horizon, plan.inside.runs, seed))
            measured.posteriors[name] = posterior_at_truth(problem, plan.inside.horizon, plan.inside.runs, seed)
        whole = walk(Problem.builtin(plan.inside.problems[0]), "restless-ucb", plan.inside.walk_horizon, seed)
        measured.stretch = _around_commitment(whole, plan.inside.walk_slots)
    if plan.theory is not None:
        meter.say(plan.theory.name)
        measured.theory = check_theory(plan.theory, seed)
    return measured


def _around_commitment(whole: Walk, length: int) -> Walk:
    """The slots around the one in which exploration, arm after arm, has ended and play first goes back and forth."""
    back = np.flatnonzero(np.diff(whole.arms) < 0)
    middle = int(back[0]) + 1 if back.size else len(whole.arms) // 2
    start = max(1, min(middle - length // 3, len(whole.arms) - length + 1))
    return whole.part(start, length)


class _Work:
    """All that must be played, as books, and how it is read."""

    def __init__(self, plan: Design, store: Path, seed: int) -> None:
        self.plan, self.seed = plan, seed
        self.groups: list[list[Book]] = []
        self.costs: dict[int, float] = {}
        """A guess at the seconds of a run, by the book's identity."""
        self._books: dict[tuple[str, str, str], list[Book]] = {}
        self._whittle: dict[str, Book] = {}
        for item in plan.items:
            group: list[Book] = []
            problem = Problem.builtin(item.problem)
            for protocol in plan.protocols:
                for line in protocol.lines_for(problem):
                    books = [Book(cell, Store.open(store, cell)) for cell in plan.cells(item, protocol, line, seed)]
                    self._books[item.name, protocol.name, line.label] = books
                    group += books
                    self.costs |= {id(book): _guess(line, book) for book in books}
            if any(protocol.comparator == "whittle" for protocol in plan.protocols) and not _evaluable(problem):
                book = self._whittle_book(problem, store)
                group.append(book)
                self._whittle[item.problem] = book
                self.costs[id(book)] = 0.05
            self.groups.append(group)

    @property
    def books(self) -> list[Book]:
        return [book for group in self.groups for book in group]

    def _whittle_book(self, problem: Problem, store: Path) -> Book:
        player = learner("whittle")
        runs = WHITTLE_RUNS // 5 if self.plan.quick else WHITTLE_RUNS
        cell = Cell(problem, player, player.spec, WHITTLE_HORIZON, (WHITTLE_HORIZON,), self.seed, runs)
        return Book(cell, Store.open(store, cell))

    def panel(self, item: Item, protocol: Protocol) -> Panel:
        """Return one figure under one protocol."""
        problem = Problem.builtin(item.problem)
        compared = self._comparator(problem, item, protocol)
        curves = []
        for line in protocol.lines_for(problem):
            books = self._books[item.name, protocol.name, line.label]
            results = [collect([book], book.cell.runs, compared) for book in books]
            curves.append(
                curve_of(
                    line.label,
                    results,
                    kind=protocol.kind,
                    spread_kind=protocol.spread_kind,
                    explores=books[0].cell.learner.name == "restless-ucb",
                )
            )
        return Panel(item.name, protocol.name, item.problem, compared, tuple(curves))

    def _comparator(self, problem: Problem, item: Item, protocol: Protocol) -> Comparator:
        solution = solution_of(problem)
        if protocol.comparator != "whittle" or item.problem not in self._whittle:
            return comparator_for(problem, protocol.comparator, solution)
        optimum = comparator_for(problem, "auto", solution)
        book = self._whittle[item.problem]
        result = collect([book], book.cell.runs, optimum)
        loss = result.regret()[0, :, -1] / WHITTLE_HORIZON
        gain = optimum.gain - float(loss.mean())
        width = 3 * float(loss.std(ddof=1)) / math.sqrt(len(loss))
        return Comparator("whittle, simulated", gain, gain - width, gain + width)


def _evaluable(problem: Problem) -> bool:
    """Whether the gain of the Whittle policy can be computed."""
    try:
        comparator_for(problem, "whittle", None)
    except ProblemError:
        return False
    return True


def _guess(line: Line, book: Book) -> float:
    """About the seconds of a run: a little over the square root of its slots, times its arms."""
    return line.cost * math.pow(book.cell.horizon / 1e5, 0.7) * book.cell.problem.n_arms / 2


class _Meter:
    """Tells how much of the work is done, in seconds of one core; guesses give way to what was measured."""

    def __init__(self, work: _Work, plan: Design, pool: Pool, progress: Tell | None) -> None:
        self._work, self._pool, self._progress = work, pool, progress
        self._table_runs = 0 if plan.table is None else cells_of(plan.table)
        self._timed: list[float] = []
        self._told = -math.inf
        self.what = ""

    def timed(self, seconds: float) -> None:
        self._timed.append(seconds)
        self.say(self.what)

    def played(self, book: Book) -> None:
        self.say(f"{book.cell.problem.name}, {book.cell.label}, T = {book.cell.horizon}")

    def say(self, what: str) -> None:
        if self._progress is None or time.monotonic() - self._told < 0.1:
            return
        self._told = time.monotonic()
        left = self._table_runs - len(self._timed)
        done = sum(self._timed)
        total = done + left * (done / len(self._timed) if self._timed else TABLE_SECONDS)
        for book in self._work.books:
            seconds = book.seconds_a_run or self._work.costs[id(book)]
            done += seconds * len(book.finished) / self._pool.width
            total += seconds * book.cell.runs / self._pool.width
        self._progress(done, total, what)
