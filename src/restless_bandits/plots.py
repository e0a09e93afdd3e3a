"""Pictures: what to draw is worked out first, as plain data, and drawn second.

Every drawing function takes ``ax=`` and returns the Axes; without one it makes a figure. Nothing here changes
Matplotlib's global settings; ``style()`` is a context that gives figures the look of the reports.

    ax = rb.plots.regret(result, log=True)
    ax.figure.savefig("regret.png")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from restless_bandits.errors import ProblemError
from restless_bandits.markov import Array, IntArray
from restless_bandits.simulation.results import SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from restless_bandits.data import ArmFit
    from restless_bandits.walks import Walk

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, and one more."""
MARKS = ("o", "s", "^", "v", "D", "P", "X", "*")
STATE_COLOURS = ("#FFF7E0", "#3B4A5A")
"""The best and the worst state; those between lie between."""

STYLE: Mapping[str, Any] = {
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "figure.dpi": 110,
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
}


@dataclass(frozen=True, eq=False)
class RegretLine:
    """The mean regret of a learner along slots, with the ends of its confidence intervals."""

    label: str
    slots: IntArray
    mean: Array
    low: Array
    high: Array


def regret_lines(result: SimulationResult, confidence: float = 0.95, kind: str | None = None) -> list[RegretLine]:
    """Return what ``regret`` draws of a result."""
    from scipy import stats

    lines = []
    for spec, values in zip(result.learners, result.regret(kind), strict=True):
        mean, runs = values.mean(axis=0), len(values)
        if runs > 1:
            width = stats.t.ppf(0.5 + confidence / 2, runs - 1) * values.std(axis=0, ddof=1) / np.sqrt(runs)
        else:
            width = np.zeros(mean.shape)
        lines.append(RegretLine(spec, result.checkpoints, mean, mean - width, mean + width))
    return lines


def style() -> AbstractContextManager[None]:
    """Return a context in which figures have the look of the reports."""
    context: AbstractContextManager[None] = _pyplot().rc_context(dict(STYLE))
    return context


def regret(
    data: SimulationResult | Sequence[RegretLine],
    *,
    ax: Axes | None = None,
    log: bool = False,
    confidence: float = 0.95,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Draw mean regret against slots with confidence bands, a line for each learner.

    On log axes what is not positive is left out.
    """
    lines = regret_lines(data, confidence) if isinstance(data, SimulationResult) else data
    ax = _axes(ax)
    for n, line in enumerate(lines):
        colour, mark = _look(line.label, n, colours)
        shown = line.mean > 0 if log else np.ones(len(line.mean), dtype=bool)
        slots, mean = line.slots[shown], line.mean[shown]
        low, high = line.low[shown], line.high[shown]
        if log:
            # A band that reaches zero would run to minus infinity.
            low = np.maximum(low, mean / 10)
        ax.plot(slots, mean, color=colour, marker=mark, label=line.label)
        ax.fill_between(slots, low, high, color=colour, alpha=0.2, linewidth=0)
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
    else:
        ax.xaxis.set_major_formatter(lambda slots, _: _short(slots))
    ax.set_xlabel("slots T")
    ax.set_ylabel("regret")
    ax.legend()
    return ax


def raster(stretch: Walk, *, ax: Axes | None = None) -> Axes:
    """Draw which arm was pulled in each slot, with the true states of all arms behind: light is good."""
    from matplotlib.colors import LinearSegmentedColormap

    ax = _axes(ax)
    slots, arms = stretch.states.shape
    worst = np.array([max(1, arm.n_states - 1) for arm in stretch.problem.arms])
    shade = LinearSegmentedColormap.from_list("states", STATE_COLOURS)
    ax.imshow(
        (stretch.states / worst).T,
        aspect="auto",
        interpolation="nearest",
        cmap=shade,
        vmin=0,
        vmax=1,
        extent=(stretch.first - 0.5, stretch.first + slots - 0.5, arms - 0.5, -0.5),
    )
    numbers = np.arange(stretch.first, stretch.first + slots)
    ax.plot(numbers, stretch.arms, "o", color=COLOURS[1], markersize=3.5, markeredgecolor="white", markeredgewidth=0.4)
    for border in range(1, arms):
        ax.axhline(border - 0.5, color="white", linewidth=2)
    ax.set_yticks(range(arms), [arm.name or f"arm {n + 1}" for n, arm in enumerate(stretch.problem.arms)])
    ax.set_xlabel("slot")
    ax.grid(visible=False)
    return ax


@dataclass(frozen=True, eq=False)
class EstimateGroup:
    """Estimates of one parameter in several runs, beside its true value."""

    label: str
    truth: float
    values: Array
    optimistic: Array | None = None


def estimates(groups: Sequence[EstimateGroup], *, ax: Axes | None = None) -> Axes:
    """Draw estimated against true parameters: the middle 95 % of the runs, their mean, and the truth."""
    ax = _axes(ax)
    series = [("estimate", COLOURS[0], 0.0, [group.values for group in groups])]
    if all(group.optimistic is not None for group in groups):
        series.append(
            ("optimistic", COLOURS[4], 0.22, [group.optimistic for group in groups if group.optimistic is not None])
        )
    for label, colour, shift, values in series:
        places = np.arange(len(groups)) + shift - 0.11 * (len(series) - 1)
        means = np.array([one.mean() for one in values])
        ends = np.array([np.quantile(one, [0.025, 0.975]) for one in values]).T
        reach = np.abs(ends - means)
        ax.errorbar(places, means, yerr=reach, fmt="o", color=colour, capsize=3, label=f"{label}, 95 % of runs")
    for place, group in enumerate(groups):
        name = "truth" if place == 0 else None
        ax.plot([place - 0.3, place + 0.3], [group.truth, group.truth], color="black", linewidth=1.2, label=name)
    ax.set_xticks(range(len(groups)), [group.label for group in groups])
    ax.set_ylabel("probability")
    ax.legend()
    return ax


def laws(arm: ArmFit, *, ax: Axes | None = None) -> Axes:
    """Draw the chance that an arm is in the same state some slots later: observed shares, and the fitted chain's curve.

    Bars are two standard errors to either side, as the fitted chain has them; a state that no pair starts in at some
    lag has no mark there.
    """
    ax = _axes(ax)
    n = len(arm.transitions)
    lags = np.array([law.lag for law in arm.laws], dtype=np.int64)
    along = np.unique(np.geomspace(1, max(10, lags.max(initial=0)), 60).round().astype(np.int64))
    curves = np.array([np.diagonal(np.linalg.matrix_power(arm.transitions, int(lag))) for lag in along])
    for state in range(n):
        colour, mark = COLOURS[state % len(COLOURS)], MARKS[state % len(MARKS)]
        ax.plot(along, curves[:, state], color=colour, linewidth=1.2)
        shares = np.array([law.observed[state, state] for law in arm.laws])
        predicted = np.array([law.predicted[state, state] for law in arm.laws])
        starts = np.array([law.counts[state].sum() for law in arm.laws])
        width = 2 * np.sqrt(predicted * (1 - predicted) / np.maximum(starts, 1))
        # States stand a little apart, or bars of equal shares would hide each other.
        places = lags * (1 + 0.03 * (state - (n - 1) / 2))
        label = f"state {arm.states[0] + state}"
        ax.errorbar(places, shares, yerr=width, fmt=mark, color=colour, capsize=2, markersize=4, label=label)
    ax.set_xscale("log")
    ticks = lags if len(lags) > 1 else np.array([1, 10])
    ax.set_xticks(ticks, [_short(lag) for lag in ticks])
    ax.minorticks_off()
    ax.set_ylim(0, 1.02)
    ax.set_xlabel("slots later, τ")
    ax.set_ylabel("share in the same state")
    ax.set_title(arm.name)
    ax.legend()
    return ax


def running_times(
    times: Mapping[str, Mapping[int, float]],
    *,
    others: Mapping[str, Mapping[int, float]] | None = None,
    ax: Axes | None = None,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Draw seconds of a run against the number of arms; ``others`` are drawn dashed, for comparison."""
    ax = _axes(ax)
    for n, (label, by_arms) in enumerate(times.items()):
        colour, mark = _look(label, n, colours)
        ax.plot(list(by_arms), list(by_arms.values()), color=colour, marker=mark, label=label)
        if others is not None and label in others:
            theirs = others[label]
            ax.plot(list(theirs), list(theirs.values()), color=colour, linestyle="--", linewidth=1, alpha=0.6)
    ax.set_yscale("log")
    ax.set_xticks(sorted({arms for by_arms in times.values() for arms in by_arms}))
    ax.set_xlabel("arms")
    ax.set_ylabel("seconds a run")
    ax.legend()
    return ax


def _look(label: str, n: int, colours: Mapping[str, str] | None) -> tuple[str, str]:
    """The colour and the mark of a line: by its place in ``colours`` where that names it, so in every picture alike."""
    if colours is not None and label in colours:
        return colours[label], MARKS[list(colours).index(label) % len(MARKS)]
    return COLOURS[n % len(COLOURS)], MARKS[n % len(MARKS)]


def _short(slots: float) -> str:
    """20 000 as 20k, 1 500 000 as 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(slots) >= size:
            return f"{slots / size:g}{letter}"
    return f"{slots:g}"


def _pyplot() -> Any:
    try:
        return import_module("matplotlib.pyplot")
    except ImportError:
        raise ProblemError("pictures need matplotlib; pip install 'restless-bandits[plots]' brings it") from None


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    made: Axes = _pyplot().subplots(layout="constrained")[1]
    return made
