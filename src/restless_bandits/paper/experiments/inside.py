"""What runs have learned: the chains that Restless-UCB estimates, and the weight that TS-9 gives to the truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from restless_bandits import plots
from restless_bandits._internal.charts import Axis, ChartLine, ChartStyle, Point, chart, legend, raster
from restless_bandits._internal.templates import render
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners import Learner, RestlessUCB, ThompsonSampling
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.paper.experiments.agreement import EQUAL, FEW, SIMILAR, Check, rank_test, same_values
from restless_bandits.paper.experiments.items import Colours, Item, Numbers, Part, Work, canvas
from restless_bandits.paper.experiments.stored import StoredResults
from restless_bandits.paper.experiments.verdicts import Evidence
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.simulation.walks import Walk, walk

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Inside(Item):
    """A stretch of one run, and what the runs have learned."""

    problems: tuple[str, ...]
    horizon: int
    runs: int
    walk_horizon: int
    walk_slots: int

    def begin(self, work: Work) -> Callable[[], Part]:
        def part() -> Part:
            work.say(self.name)
            learned, stretch = self.learned(self.runs, work.seed), self.stretch(work.seed)
            weights = {name: self.weights(name, work.seed) for name in self.problems}
            numbers = {
                "posterior_at_truth": {name: one.tolist() for name, one in weights.items()},
                "learned": _numbers_of(learned),
                "stretch": _described(stretch),
            }
            return Part(Evidence(posteriors=weights), numbers, pictures=self._pictures(learned, stretch))

        return part

    def confirm(self, work: Work, stored: StoredResults) -> Callable[[], Part]:
        return partial(self._confirmed, work, stored)

    def _confirmed(self, work: Work, stored: StoredResults) -> Part:
        """Compare all estimates, the first posterior weights, and the stretch of a run."""
        known = {key: stored.results[key] for key in ("posterior_at_truth", "learned", "stretch")}
        runs = min(map(len, known["posterior_at_truth"].values()))
        work.say(self.name)
        learned, stretch = self.learned(runs, work.seed), self.stretch(work.seed)
        same = work.seed == stored.seed
        checks = [_check_values(self.name, "Restless-UCB", known["learned"], learned, same)]
        drawn = _described(stretch) == known["stretch"] and same
        checks.append(Check(self.name, "", "the stretch of a run", "runs", 1, int(drawn), EQUAL if drawn else FEW))
        for name in self.problems:
            work.say(f"{self.name}: TS-9 on {name}")
            here = self.weights(name, work.seed)
            there = np.array(known["posterior_at_truth"][name])
            check = Check(self.name, "", f"TS-9, {name}", "runs", len(here), 0, EQUAL, self.horizon)
            equal = int((here == there[: len(here)]).sum()) if same else 0
            if equal < len(here):
                others = there[len(here) if same else 0 :]
                p, sizes = rank_test(here, others), (len(here), len(others))
                check = replace(check, outcome=SIMILAR, p=p, sizes=sizes)
            checks.append(replace(check, equal=equal))
        return Part(numbers=known, checks=tuple(checks), pictures=self._pictures(learned, stretch))

    def learned(self, runs: int, seed: int) -> list[Estimates]:
        """Return the estimates of some runs of Restless-UCB on every problem."""
        return [estimates(Problem.builtin(name), self.horizon, runs, seed) for name in self.problems]

    def weights(self, problem: str, seed: int) -> Array:
        """Return the posterior weight of the true chains at the end of each run of TS-9."""
        return posterior_at_truth(Problem.builtin(problem), self.horizon, self.runs, seed)

    def _pictures(self, learned: Sequence[Estimates], stretch: Walk) -> dict[str, Callable[[Colours], Figure]]:
        return {
            "raster": lambda colours: _draw_raster(stretch),
            "estimates": lambda colours: _draw_estimates(learned, self.horizon),
        }

    def stretch(self, seed: int) -> Walk:
        whole = walk(Problem.builtin(self.problems[0]), "restless-ucb", self.walk_horizon, seed)
        return _around_commitment(whole, self.walk_slots)

    def section(self, numbers: Numbers, looks: ChartStyle) -> str:
        return render(
            "paper/experiments/inside.html.j2",
            stretch=numbers["stretch"],
            rasters=_rasters(numbers["stretch"]),
            legend=legend(list(SERIES), SERIES, "Marks"),
            charts=(_estimates_chart(one, name, self.horizon) for name, one in numbers["learned"].items()),
            weights=[
                f"on {name} {np.mean(values):.4f} on average over {len(values)} runs, least {min(values):.2g}"
                for name, values in numbers["posterior_at_truth"].items()
            ],
        )


SERIES = {"estimate": 0, "optimistic": 4, "truth": 6}
"""What is drawn of the chains, and in which colour."""
ROW = 40
"""Slots in one panel of the raster, so that a phone shows them."""


def _rasters(stretch: Numbers) -> Iterator[str]:
    names, worst = stretch["arms"], max(map(max, stretch["states"]))
    for start in range(0, len(stretch["pulled"]), ROW):
        states, pulled = stretch["states"][start : start + ROW], stretch["pulled"][start : start + ROW]
        first = stretch["first"] + start
        last = first + len(states) - 1
        points = [
            Point(slot, arm, f"slot {slot}: {names[arm]} is pulled, in state {seen[arm]}")
            for slot, (seen, arm) in enumerate(zip(states, pulled, strict=True), first)
        ]
        ticks = [(float(slot), str(slot)) for slot in range(first, last + 1) if slot % 10 == 0]
        slots = Axis("slot", ticks=ticks, ends=(first - 0.5, last + 0.5))
        yield raster(f"slots {first} to {last}", names, np.transpose(states) / max(worst, 1), slots, points)


def _estimates_chart(found: Sequence[Numbers], problem: str, horizon: int) -> str:
    traces = []
    for shift, key in ((-0.12, "estimate"), (0.12, "optimistic")):
        points = []
        for n, one in enumerate(found):
            mean, low, high = one[key]
            says = f"{one['what']}: {mean:.4f} on average, 95 % of runs from {low:.4f} to {high:.4f}"
            points.append(Point(n + shift, mean, says, low, high))
        traces.append(ChartLine(key, points, "bars"))
    truths = [Point(n, one["truth"], f"{one['what']}: {one['truth']:g} in truth") for n, one in enumerate(found)]
    traces.insert(0, ChartLine("truth", truths, "dashes"))
    ticks = [(float(n), one["what"].replace("arm ", "").replace(" stays", ",")) for n, one in enumerate(found)]
    x = Axis("arm, and the state in which it stays", ticks=ticks, ends=(-0.5, len(found) - 0.5))
    return chart(f"{problem}, T = {horizon}", traces, x, Axis("probability", ends=(0.0, 1.0)), SERIES)


@dataclass(frozen=True, eq=False)
class Estimates:
    """Stay probabilities of two-state arms as Restless-UCB estimates them: arrays (run, arm, state)."""

    problem: Problem
    estimated: Array
    optimistic: Array
    truth: Array
    """(arm, state)."""

    @property
    def places(self) -> dict[tuple[int, int], str]:
        """The name of each probability, by arm and state."""
        states = list(enumerate(("good", "bad")))
        return {(arm, s): f"arm {arm + 1} stays {name}" for arm in range(self.problem.n_arms) for s, name in states}

    def of(self, place: tuple[int, int]) -> tuple[Array, Array]:
        """Return the estimates and the optimistic values of a probability, a number for each run."""
        return self.estimated[:, *place], self.optimistic[:, *place]

    def as_dict(self) -> list[dict[str, Any]]:
        """Return the truth, and of the runs the mean and the ends of the middle 95 %, for each arm and state."""
        found = []
        for place, what in self.places.items():
            entry: dict[str, Any] = {"what": what, "truth": float(self.truth[place])}
            for key, values in zip(("estimate", "optimistic"), self.of(place), strict=True):
                entry[key] = [float(values.mean()), *np.quantile(values, [0.025, 0.975]).tolist()]
            found.append(entry)
        return found


def _check_values(item: str, label: str, there: Numbers, estimated: Sequence[Estimates], same_seed: bool) -> Check:
    """Compare means and quantiles of estimates; where they differ, the means by a normal test."""
    here = _numbers_of(estimated)
    pairs = [(one, other) for name in there for one, other in zip(here[name], there[name], strict=True)]
    equal = sum(same_values(one, other) for one, other in pairs) if same_seed else 0
    check = Check(item, "", label, "values", len(pairs), equal, EQUAL)
    if equal == len(pairs):
        return check
    least = 1.0
    for (name, entries), one in zip(there.items(), estimated, strict=True):
        runs = len(one.estimated)
        errors = np.sqrt(2 / runs) * np.maximum(one.estimated.std(axis=0, ddof=1), 1e-12).ravel()
        means = [entry["estimate"][0] for entry in here[name]]
        apart = np.abs(np.array(means) - [entry["estimate"][0] for entry in entries]) / errors
        least = min(least, 2 * float(stats.norm.sf(apart.max())))
    return replace(check, outcome=SIMILAR, p=min(1.0, len(pairs) * least), sizes=(runs, runs))


def _records(learner: Learner, problem: Problem, horizon: int, runs: int, seed: int) -> Iterator[Record]:
    world = World(problem)
    for run in range(runs):
        yield play_run(learner, world, horizon, np.array([horizon]), seed=seed, run=run).record


def estimates(problem: Problem, horizon: int, runs: int, seed: int = 0) -> Estimates:
    """Run Restless-UCB to its commitment and read what it has learned."""
    learner = RestlessUCB()
    task = learner.task(problem, horizon)
    estimated, optimistic = [], []
    for record in _records(learner, problem, horizon, runs, seed):
        counts = [record.transitions(arm) for arm in range(problem.n_arms)]
        estimated.append([np.diag(one) / np.maximum(one.sum(axis=1), 1) for one in counts])
        optimistic.append([np.diag(arm.one_step) for arm in learner.optimistic_problem(record, task).arms])
    truth = np.array([np.diag(arm.one_step) for arm in problem.arms])
    return Estimates(problem, np.array(estimated), np.array(optimistic), truth)


def posterior_at_truth(problem: Problem, horizon: int, runs: int, seed: int = 0) -> Array:
    """Return, for each run of TS-9, the posterior probability of the true chains of all arms at the horizon."""
    learner = ThompsonSampling(support=9)
    true = [np.abs(learner.chains(2) - arm.one_step).max(axis=(1, 2)) < 1e-9 for arm in problem.arms]
    weights = [
        math.prod(float(learner.posterior(record, arm)[chains].sum()) for arm, chains in enumerate(true))
        for record in _records(learner, problem, horizon, runs, seed)
    ]
    return np.array(weights)


def _around_commitment(whole: Walk, length: int) -> Walk:
    """The slots around the one in which exploration, arm after arm, has ended and play first goes back and forth."""
    back = np.flatnonzero(np.diff(whole.arms) < 0)
    middle = int(back[0]) + 1 if back.size else len(whole.arms) // 2
    start = max(1, min(middle - length // 3, len(whole.arms) - length + 1))
    return whole.part(start, length)


def _numbers_of(learned: Sequence[Estimates]) -> dict[str, list[dict[str, Any]]]:
    return {one.problem.name: one.as_dict() for one in learned}


def _described(stretch: Walk) -> dict[str, Any]:
    """The stretch of a run as an entry of ``results.json``."""
    return {
        "learner": stretch.learner,
        "problem": stretch.problem.name,
        "first": stretch.first,
        "arms": [arm.name for arm in stretch.problem.arms],
        "states": stretch.states.tolist(),
        "pulled": stretch.pulled.argmax(axis=1).tolist(),
    }


def _draw_raster(stretch: Walk) -> Figure:
    figure = canvas(12.5, 1.9)
    ax = figure.subplots()
    plots.raster(stretch, ax=ax)
    ax.set_title("which arm is pulled; behind it the true states, light for good and dark for bad")
    return figure


def _draw_estimates(learned: Sequence[Estimates], horizon: int) -> Figure:
    figure = canvas(12.5, 3.4)
    for ax, one in zip(figure.subplots(1, len(learned), squeeze=False)[0], learned, strict=True):
        groups = [
            plots.EstimateGroup(what.replace(" stays", "\nstays"), float(one.truth[place]), *one.of(place))
            for place, what in one.places.items()
        ]
        plots.estimates(groups, ax=ax)
        ax.set_title(f"{one.problem.name}, T = {horizon}")
    return figure
