"""The paper's figures: the regret of every line of every protocol on one problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy import stats

from restless_bandits import plots
from restless_bandits._internal.charts import Axis, ChartLine, ChartStyle, Point, chart, legend
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.templates import code, render
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners import learner
from restless_bandits.model.exploration import fact_1
from restless_bandits.model.problem import Problem
from restless_bandits.paper.experiments.agreement import NEW, STORED, Check, check_runs
from restless_bandits.paper.experiments.curves import Curve, Panel
from restless_bandits.paper.experiments.items import Colours, Item, Numbers, Part, Work, canvas
from restless_bandits.paper.experiments.limiting_policy import limiting_loss
from restless_bandits.paper.experiments.stored import Sample, StoredResults
from restless_bandits.paper.experiments.verdicts import Evidence, lower_along
from restless_bandits.paper.experiments.writing import amount, error_of, slots
from restless_bandits.simulation.comparator import Comparator, certified_gains, comparator_for, exact_if_small
from restless_bandits.simulation.jobs import SimulationJob
from restless_bandits.simulation.results import SimulationResult
from restless_bandits.simulation.runner import collect
from restless_bandits.simulation.scheduler import JobResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WHITTLE_HORIZON = 1_000_000
SHOWN = (10_000, 100_000, 1_000_000, 10_000_000)
"""Horizons that tables show, beside the last."""
NOTHING_PLAYED: Numbers = {"horizons": (), "regret": ()}
Enter = Callable[[SimulationJob, float], JobResults]
Entered = dict[tuple[str, str], list[JobResults]]
"""The runs of lines, by the names of protocol and line."""


@dataclass(frozen=True)
class Line:
    """A learner of a protocol, drawn as one line of every figure."""

    label: str
    spec: str
    spec_many: str = ""
    anew: bool = False
    horizon: int = 0
    """How far the line goes at least; 0 leaves it to the item."""
    cost: float = 0.1
    most_arms: int = 1000
    """Left out of figures with more arms, where it would take too long."""
    extra: bool = False
    """Not in the paper, so that no claim depends on it."""
    quick_runs: int = 0
    """Runs in the quick form; 0 leaves it to the item."""
    quick_horizon: int = 0
    """How far the quick form plays the line; 0 plays whole runs."""
    quick_arms: int = 1000
    """The quick form draws the line as stored in figures with more arms, where a run takes over a second."""

    def spec_for(self, problem: Problem) -> str:
        return self.spec_many if self.spec_many and problem.n_arms > 2 else self.spec


@dataclass(frozen=True)
class Protocol:
    name: str
    title: str
    about: str
    horizons: tuple[int, ...]
    comparator: str
    lines: tuple[Line, ...]
    kind: str | None = None
    """The kind of regret that is compared; None for the best there is."""
    spread_kind: str | None = None
    """The kind whose spread is compared."""

    def lines_for(self, problem: Problem) -> list[Line]:
        return [line for line in self.lines if problem.n_arms <= line.most_arms]


@dataclass(frozen=True)
class RegretFigure(Item):
    """One problem under every protocol."""

    place: str
    problem: str
    runs: int
    fair_runs: int
    horizon: int
    protocols: tuple[Protocol, ...]
    note: str = ""
    long_horizon: int = 10_000_000
    """No line goes farther, whatever it asks for."""
    extra_runs: int | None = None
    """Runs of lines that no claim depends on, where they are not as many as others."""
    whittle_runs: int = 100
    """Runs from which the gain of the Whittle policy is estimated where it cannot be computed."""
    compared_runs: int = 0
    """Runs of a line in the quick form, where its first runs are not those stored; 0 outside of the quick form."""
    stored_runs: int = 0
    """Runs of each line that are stored with the package."""

    @classmethod
    def read(cls, entry: Mapping[str, Any], protocols: tuple[Any, ...]) -> Self:
        return cls(**entry, protocols=protocols)

    def with_runs(self, runs: int) -> RegretFigure:
        protocols = tuple(
            replace(one, lines=tuple(replace(line, quick_runs=0) for line in one.lines)) for one in self.protocols
        )
        return replace(self, runs=runs, fair_runs=runs, extra_runs=None, protocols=protocols)

    def runs_of(self, protocol: Protocol, line: Line) -> int:
        if self.compared_runs and line.quick_runs:
            return line.quick_runs
        if line.extra and self.extra_runs is not None:
            return self.extra_runs
        return self.fair_runs if protocol.name == "fair" else self.runs

    def horizons(self, protocol: Protocol, line: Line) -> tuple[int, ...]:
        if protocol.name != "fair":
            return protocol.horizons
        most = max(self.horizon, min(line.horizon, self.long_horizon))
        if self.compared_runs and line.quick_horizon:
            most = min(most, line.quick_horizon)
        return tuple(slots for slots in protocol.horizons if slots <= most)

    def jobs(self, protocol: Protocol, line: Line, seed: int) -> list[SimulationJob]:
        """Return the jobs of a line: a single job, or a job for each horizon."""
        problem = Problem.builtin(self.problem)
        player, horizons = learner(line.spec_for(problem)), self.horizons(protocol, line)
        runs = self.runs_of(protocol, line)
        marks = [(slots,) for slots in horizons] if line.anew else [horizons]
        return [SimulationJob(problem, player, player.spec, mark[-1], mark, seed, runs) for mark in marks]

    def begin(self, work: Work) -> Callable[[], Part]:
        problem = Problem.builtin(self.problem)
        enter = work.group()
        lines_of = {protocol.name: protocol.lines_for(problem) for protocol in self.protocols}
        all_results = self._entered([(one, line) for one in self.protocols for line in lines_of[one.name]], enter, work)
        known = {protocol.name: _comparator(problem, protocol.comparator) for protocol in self.protocols}
        simulated: JobResults | None = None
        if None in known.values():
            player = learner("whittle")
            whole, runs = WHITTLE_HORIZON, self.whittle_runs
            simulated = enter(SimulationJob(problem, player, player.spec, whole, (whole,), work.seed, runs), 0.006)

        def part() -> Part:
            estimate = None if simulated is None else _simulated(simulated)
            panels = {}
            for protocol in self.protocols:
                compared = known[protocol.name] or estimate
                assert compared is not None
                curves = tuple(
                    _curve(line.label, protocol, all_results[protocol.name, line.label], compared)
                    for line in lines_of[protocol.name]
                )
                panels[protocol.name] = Panel(self.name, protocol.name, self.problem, compared, curves)
            measured = {(self.name, protocol): panel for protocol, panel in panels.items()}
            bounds = {self.name: partial(fact_1, problem)}
            limiting_losses = {
                (self.name, name, line.label): limit
                for name, protocol in panels.items()
                for line in lines_of[name]
                if (limit := limiting_loss(problem, learner(line.spec_for(problem)), protocol.comparator, work.seed))
            }
            fair, mine = panels["fair"].curves, panels["fair"].curve("Restless-UCB")
            meetings = [lower_along(mine, one, self.name).text for one in fair if mine and one is not mine]
            drawn = {name: panel.as_dict() for name, panel in panels.items()}
            return Part(
                Evidence(measured, bounds, limiting_losses=limiting_losses),
                {"figures": list(drawn.values()), "meetings": {self.name: meetings}},
                pictures={self.name: partial(draw_panels, drawn)},
            )

        return part

    def _entered(self, lines: Sequence[tuple[Protocol, Line]], enter: Enter, work: Work) -> Entered:
        """Enter the runs of some lines."""
        return {
            (protocol.name, line.label): [enter(job, line.cost) for job in self.jobs(protocol, line, work.seed)]
            for protocol, line in lines
        }

    @property
    def replayed(self) -> list[tuple[Protocol, Line]]:
        """The lines that the quick form plays."""
        problem = Problem.builtin(self.problem)
        lines = ((protocol, line) for protocol in self.protocols for line in protocol.lines_for(problem))
        return [(protocol, line) for protocol, line in lines if problem.n_arms <= line.quick_arms]

    def sample(self, work: Work, stored: Mapping[str, Numbers]) -> Iterator[Sample]:
        """Play the runs that are stored with the package, against the comparators of panels by their protocol."""
        every = self.with_runs(self.stored_runs)
        all_results = every._entered(every.replayed, work.group(), work)
        work.play(chain.from_iterable(all_results.values()))
        for protocol, line in every.replayed:
            against = Comparator.from_dict(stored[protocol.name]["comparator"])
            curve = _curve(line.label, protocol, all_results[protocol.name, line.label], against)
            yield Sample.of(self.name, protocol.name, curve)

    def confirm(self, work: Work, stored: StoredResults) -> Callable[[], Part]:
        panels = {protocol.name: stored.panel(self.name, protocol.name) for protocol in self.protocols}
        lines = self.replayed
        all_results = self._entered(lines, work.group(), work)

        def compare(protocol: Protocol, line: Line) -> tuple[Curve, Check]:
            against = Comparator.from_dict(panels[protocol.name]["comparator"])
            curve = _curve(line.label, protocol, all_results[protocol.name, line.label], against)
            sample = stored.samples.get((self.name, protocol.name, line.label))
            return curve, check_runs(self.name, protocol.name, curve, sample, work.seed == stored.seed)

        def part() -> Part:
            work.say(self.name)
            work.play(chain.from_iterable(all_results.values()))
            # Lines whose runs are not those stored need more runs for a test.
            others = [(protocol.name, line.label) for protocol, line in lines if compare(protocol, line)[1].other_code]
            for key in others:
                jobs = (job_results.job for job_results in all_results[key])
                enter_more = work.group()
                all_results[key] = [
                    enter_more(replace(job, runs=max(job.runs, self.compared_runs)), 0.1) for job in jobs
                ]
            work.play(chain.from_iterable(all_results[key] for key in others))
            found = {(protocol.name, line.label): compare(protocol, line) for protocol, line in lines}
            problem = Problem.builtin(self.problem)
            unplayed = [
                Check(self.name, protocol.name, line.label, "runs", 0, 0, STORED)
                for protocol in self.protocols
                for line in protocol.lines_for(problem)
                if (protocol.name, line.label) not in found
            ]
            shown = [_with_runs(panels[one.name], one, found) for one in self.protocols]
            numbers = {"figures": shown, "meetings": {self.name: stored.results["meetings"][self.name]}}
            checks = (*(check for _, check in found.values()), *unplayed)
            drawn = {one["protocol"]: one for one in shown}
            return Part(numbers=numbers, checks=checks, pictures={self.name: partial(draw_panels, drawn)})

        return part

    @property
    def chapter(self) -> tuple[str, str]:
        return "figures", "Figures"

    def about(self, looks: ChartStyle) -> str:
        labels = list(dict.fromkeys(line.label for protocol in self.protocols for line in protocol.lines))
        switches = legend(labels, looks, "Lines in all figures", wide=True)
        return render("paper/experiments/figures.html.j2", protocols=self.protocols, legend=switches)

    def section(self, numbers: Numbers, looks: ChartStyle) -> str:
        panels = {one["protocol"]: one for one in numbers["figures"] if one["item"] == self.name}
        labels = dict.fromkeys(line["learner"] for panel in panels.values() for line in panel["lines"])
        return render(
            "paper/experiments/figure.html.j2",
            item=self,
            legend=legend(list(labels), looks, "Lines", stored=_never_played(panels)),
            panels=_charts(panels, looks),
            tables=[_panel_table(panels[one.name], one) for one in self.protocols],
            meetings=numbers["meetings"][self.name],
        )


def _curve(label: str, protocol: Protocol, all_results: list[JobResults], compared: Comparator) -> Curve:
    """The curve of a line that was played at several checkpoints, or anew for each horizon."""
    results = [collect([job_results], job_results.job.runs, compared) for job_results in all_results]
    kind = protocol.kind or results[0].kinds[-1]
    spread_kind = protocol.spread_kind or kind
    regret, spread = (
        np.concatenate([result.regret(which)[0] for result in results], axis=1) for which in (kind, spread_kind)
    )
    horizons = np.concatenate([result.checkpoints for result in results])
    explored = None
    if all_results[0].job.learner.name == "restless-ucb":
        explored = np.stack([_explored(result) for result in results], axis=1)
    return Curve(label, results[0].learners[0], kind, horizons, regret, spread, spread_kind, explored)


def _explored(result: SimulationResult) -> Array:
    """The slots before the last plan of each run; all of them where the horizon came first."""
    lengths = next(iter(result.plan_lengths.values()))
    arms = len(result.arms)
    return np.array([float(one[:arms].sum() if len(one) > arms else one.sum()) for one in lengths])


def _comparator(problem: Problem, wanted: str) -> Comparator | None:
    """What regret is measured against; None for the Whittle policy where its gain cannot be computed."""
    # A problem whose gain ships with the package need not be solved.
    solution = None if problem.content in certified_gains() else exact_if_small(problem)
    try:
        return comparator_for(problem, wanted, solution)
    except ProblemError:
        if wanted != "whittle":
            raise
        return None


def _simulated(job_results: JobResults) -> Comparator:
    """The gain of the Whittle policy, from runs."""
    optimum = _comparator(job_results.job.problem, "auto")
    assert optimum is not None
    loss = collect([job_results], job_results.job.runs, optimum).regret()[0, :, -1] / WHITTLE_HORIZON
    gain = optimum.gain - float(loss.mean())
    width = 3 * float(loss.std(ddof=1)) / math.sqrt(len(loss))
    return Comparator("whittle, simulated", gain, gain - width, gain + width)


def _with_runs(panel: Numbers, protocol: Protocol, found: Mapping[tuple[str, str], tuple[Curve, Check]]) -> Numbers:
    """A stored panel, with the runs that were played here, and with lines that are not stored."""
    lines = []
    known = {line["learner"] for line in panel["lines"]}
    for line in panel["lines"]:
        curve, check = found.get((protocol.name, line["learner"]), (None, None))
        played = None
        if curve is not None and check is not None and check.outcome != NEW:
            played = {"horizons": curve.horizons.tolist(), "regret": curve.regret.tolist(), "equal": check.equal}
        lines.append({**line, "stored": True, "played": played})
    new = [curve for (name, label), (curve, _) in found.items() if name == protocol.name and label not in known]
    lines += [{**curve.as_dict(), "stored": False, "played": None} for curve in new if curve.runs > 1]
    return {**panel, "lines": lines}


def _never_played(panels: Mapping[str, Numbers]) -> set[str]:
    """The lines of the quick form that are drawn as they are stored."""
    lines = [line for panel in panels.values() for line in panel["lines"] if line.get("stored")]
    return {line["learner"] for line in lines} - {line["learner"] for line in lines if line["played"]}


class View(NamedTuple):
    """A panel of a figure: lines up to a horizon, on linear or logarithmic scales."""

    title: str
    lines: Sequence[Numbers]
    most: float
    log: bool


def _views(panels: Mapping[str, Numbers]) -> list[View]:
    """Return the panels of a figure from the numbers of its protocols."""
    published, fair = panels["published"]["lines"], panels["fair"]["lines"]
    together = min(line["horizons"][-1] for line in fair)
    return [
        View("published protocol", published, math.inf, False),
        View("fair protocol", fair, together, False),
        View("fair protocol, logarithmic", fair, math.inf, True),
    ]


def draw_panels(panels: Mapping[str, Numbers], colours: Colours) -> Figure:
    """Draw a figure from the numbers of its protocols."""
    figure = canvas(13.5, 3.6)
    unplayed = _never_played(panels)
    for ax, (title, lines, most, log) in zip(figure.subplots(1, 3), _views(panels), strict=True):
        shown = [line_of(line, most) for line in lines]
        names = [f"{one.label} (stored)" if one.label in unplayed else one.label for one in shown]
        drawn = [replace(one, label=name) for one, name in zip(shown, names, strict=True)]
        own = {name: colours[one.label] for one, name in zip(shown, names, strict=True)}
        plots.regret(drawn, ax=ax, log=log, colours=own)
        _dot_runs(ax, lines, colours, log=log)
        ax.set_title(title)
        if not log:
            ax.get_legend().remove()
            ax.axhline(0, color="black", linewidth=0.6)
    return figure


def _dot_runs(ax: Axes, lines: Sequence[Numbers], colours: Colours, *, log: bool) -> None:
    """Draw single runs of the quick form as dots."""
    for line in lines:
        played = line.get("played") or NOTHING_PLAYED
        for run in played["regret"]:
            shown = [(t, value) for t, value in zip(played["horizons"], run, strict=True) if value > 0 or not log]
            if shown:
                ax.plot(*zip(*shown, strict=True), ".", color=colours[line["learner"]], markersize=3, alpha=0.6)


def line_of(line: Numbers, most: float = math.inf) -> plots.RegretLine:
    """Return a line as it is drawn, up to some horizon."""
    shown = [j for j, horizon in enumerate(line["horizons"]) if horizon <= most]
    horizons, mean, error = (np.array(line[key])[shown] for key in ("horizons", "regret_mean", "regret_stderr"))
    width = stats.t.ppf(0.975, line["runs"] - 1) * error
    return plots.RegretLine(line["learner"], horizons, mean, mean - width, mean + width)


def _charts(panels: Numbers, looks: ChartStyle) -> Iterator[str]:
    """The panels of a figure, from the numbers of its protocols."""
    for title, lines, most, log in _views(panels):
        traces = [ChartLine(line["learner"], [*_points(line, most)]) for line in lines]
        traces += [ChartLine(line["learner"], dots, "runs") for line in lines if (dots := [*_dots(line, most)])]
        yield chart(title, traces, Axis("slots T", log), Axis("regret", log), looks)


def _points(line: Numbers, most: float) -> Iterator[Point]:
    width = float(stats.t.ppf(0.975, line["runs"] - 1))
    for j, horizon in enumerate(line["horizons"]):
        if horizon <= most:
            mean, reach = line["regret_mean"][j], width * line["regret_stderr"][j]
            yield Point(horizon, mean, f"T = {slots(horizon)}: {_mean_at(line, horizon)}", mean - reach, mean + reach)


def _dots(line: Numbers, most: float) -> Iterator[Point]:
    """The single runs that the quick form played."""
    played = line.get("played") or NOTHING_PLAYED
    for number, run in enumerate(played["regret"]):
        for horizon, value in zip(played["horizons"], run, strict=True):
            if horizon <= most:
                yield Point(horizon, value, f"T = {slots(horizon)}: {amount(value)} in run {number} on this machine")


def _panel_table(panel: Numbers, protocol: Protocol) -> tuple[str, str, list[str], list[list[Any]]]:
    """The caption, the title, the heads and the rows of a table."""
    lines, against = panel["lines"], panel["comparator"]
    every = sorted({horizon for line in lines for horizon in line["horizons"]})
    shown = [t for t in every if t in SHOWN or t == every[-1]]
    rows = [
        [
            code(_labelled(line), line["spec"]),
            *(_mean_at(line, t) for t in shown),
            amount(line["spread_sd"][-1]),
            amount(line["regret_max"][-1]),
            line["runs"],
        ]
        for line in lines
    ]
    open_by = against["upper"] - against["lower"]
    known = f" ± {open_by / 2:.2g}" if open_by > 0 else ""
    caption = (
        f"{protocol.title.capitalize()}: {lines[0]['regret_kind']} regret against {against['gain']:.9g}{known} a slot "
        f"({against['kind']}); mean ± standard error, and at the end the standard deviation "
        f"({lines[0]['spread_kind']}) and the worst run"
    )
    heads = ["learner", *(f"T = {slots(t)}" for t in shown), "sd", "worst", "runs"]
    return caption, protocol.title, heads, rows


def _labelled(line: Numbers) -> str:
    """The name of a line; the quick form says which lines it did not play."""
    return f"{line['learner']} (stored)" if line.get("stored") and not line["played"] else str(line["learner"])


def _mean_at(line: Numbers, horizon: int) -> str:
    if horizon not in line["horizons"]:
        return "–"
    j = line["horizons"].index(horizon)
    return f"{amount(line['regret_mean'][j])} ± {error_of(line['regret_stderr'][j])}"
