"""Pictures in two steps: plain data of the picture first, the drawing second.

Every drawing function takes ``ax=`` and returns the Axes; without ``ax`` the function makes a figure. Matplotlib's
global settings stay unchanged; ``style()`` is a context that gives figures the look of the reports. Legends stand
beside the picture in figures with a layout engine, such as ``plt.subplots(layout="constrained")``.

    ax = rb.plots.regret(result, log=True)
    ax.figure.savefig("regret.png")
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.optional_dependencies import missing_extra
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_int
from restless_bandits.model import markov
from restless_bandits.model.arms import Arm
from restless_bandits.model.kinds import names_of
from restless_bandits.model.problem import Problem
from restless_bandits.simulation.results import SimulationResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.image import AxesImage

    from restless_bandits.learning.estimation import Estimate
    from restless_bandits.logs import ArmFit, Trace
    from restless_bandits.oracles.observed.occupancy import Occupancy
    from restless_bandits.simulation.walks import Walk

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, and one more colour."""
MARKS = ("o", "s", "^", "v", "D", "P", "X", "*")
STATE_COLOURS = ("#FFF7E0", "#3B4A5A")
"""The colours of the best and the worst state; other states are interpolated."""

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
    """The mean regret of a learner along slots, with the ends of its confidence intervals.

    For a bracket of the optimum, ``mean`` is the regret against the upper end and ``against_lower`` against the lower
    end.
    """

    label: str
    slots: IntArray
    mean: Array
    low: Array
    high: Array
    against_lower: Array | None = None


def regret_lines(result: SimulationResult, confidence: float = 0.95, kind: str | None = None) -> list[RegretLine]:
    """Return the data of ``regret`` for a result."""
    from scipy import stats

    lines = []
    lower = result.regret(kind, against="lower").mean(axis=1)
    for spec, values, other in zip(result.learners, result.regret(kind), lower, strict=True):
        mean, runs = values.mean(axis=0), len(values)
        if runs > 1:
            width = stats.t.ppf(0.5 + confidence / 2, runs - 1) * values.std(axis=0, ddof=1) / np.sqrt(runs)
        else:
            width = np.zeros(mean.shape)
        lines.append(
            RegretLine(
                spec, result.checkpoints, mean, mean - width, mean + width, other if result.comparator.ends else None
            )
        )
    return lines


def style() -> AbstractContextManager[None]:
    """Return a context that gives figures the look of the reports."""
    context: AbstractContextManager[None] = _pyplot().rc_context(dict(STYLE))
    return context


def regret(
    data: SimulationResult | Sequence[SimulationResult] | Mapping[str, SimulationResult] | Sequence[RegretLine],
    *,
    ax: Axes | None = None,
    log: bool = False,
    confidence: float = 0.95,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Draw mean regret against slots with confidence bands, a line for each learner.

    ``data`` is a result, several results, or the lines of ``regret_lines``. Lines of several results are labelled with
    the learner and the result: its key in a mapping, else the name of its problem, else its number.

    For a bracket of the optimum, regret lies between the solid line, against the upper end, and the dashed line,
    against the lower end. On log axes values that are not positive are left out.
    """
    lines = _lines_of(data, confidence)
    ax = _axes(ax)
    for n, line in enumerate(lines):
        colour, mark = _style(line.label, n, colours)
        shown = line.mean > 0 if log else np.ones(len(line.mean), dtype=bool)
        slots, mean, low, high = (part[shown] for part in (line.slots, line.mean, line.low, line.high))
        if log:
            # A band that reaches zero would run to minus infinity.
            low = np.maximum(low, mean / 10)
        ax.plot(slots, mean, color=colour, marker=mark, label=line.label)
        ax.fill_between(slots, low, high, color=colour, alpha=0.2, linewidth=0)
        if line.against_lower is not None:
            shown = line.against_lower > 0 if log else np.ones(len(line.slots), dtype=bool)
            ax.plot(line.slots[shown], line.against_lower[shown], color=colour, linestyle="--", linewidth=1)
    if log:
        ax.set(xscale="log", yscale="log")
    else:
        ax.xaxis.set_major_formatter(lambda slots, _: _short(slots))
    both = any(line.against_lower is not None for line in lines)
    ax.set(xlabel="slots T", ylabel="regret (dashed: against the lower end)" if both else "regret")
    _legend_beside(ax)
    return ax


def _lines_of(data: Any, confidence: float) -> Sequence[RegretLine]:
    """The lines of a result, of several results, or given as lines."""
    if isinstance(data, SimulationResult):
        return regret_lines(data, confidence)
    named = data if isinstance(data, Mapping) else dict(enumerate(data))
    if not all(isinstance(one, SimulationResult | RegretLine) for one in named.values()):
        raise ProblemError(f"data is {shortened(data)}; give a SimulationResult, or several as a list or a mapping")
    lines: list[RegretLine] = []
    for number, (key, one) in enumerate(named.items(), 1):
        if isinstance(one, RegretLine):
            lines.append(one)
            continue
        others = [other.problem for other in named.values() if other is not one and hasattr(other, "problem")]
        unique = one.problem and one.problem not in others
        name = key if isinstance(key, str) else one.problem if unique else f"result {number}"
        found = regret_lines(one, confidence)
        lines += found if len(named) == 1 else [replace(line, label=f"{line.label}, {name}") for line in found]
    return lines


def raster(stretch: Walk, *, ax: Axes | None = None) -> Axes:
    """Draw the arms pulled in each slot, over the true states of all arms: light is good.

    States are ordered by the mean rewards of a pull.
    """
    ax = _axes(ax)
    from matplotlib.patches import Patch

    slots, arms = stretch.states.shape
    shades = np.empty((arms, slots))
    for i, arm in enumerate(stretch.problem.arms):
        shades[i] = np.argsort(_best_first(arm.rewards))[stretch.states[:, i]] / max(1, arm.n_states - 1)
    _cells(ax, shades, stretch.first, cmap=_state_shades(), vmin=0, vmax=1)
    when, which = np.nonzero(stretch.pulled)
    # Small enough to lie side by side in a run of any length.
    size = float(np.clip(400 / slots, 1.5, 6))
    look: dict[str, Any] = {"color": COLOURS[1], "markersize": size, "markeredgecolor": "white", "markeredgewidth": 0.4}
    (dots,) = ax.plot(stretch.first + when, which, "o", **look)
    for border in range(1, arms):
        ax.axhline(border - 0.5, color="white", linewidth=2)
    ax.set_yticks(range(arms), [arm.name for arm in stretch.problem.arms])
    ax.tick_params("y", length=0)
    ax.set_xlabel("slot")
    key = [Patch(facecolor=colour, edgecolor="0.6", linewidth=0.5) for colour in STATE_COLOURS]
    _legend_beside(ax, handles=[*key, dots], labels=["best state", "worst state", "pulled"])
    return ax


def log(trace: Trace, *, columns: int = 400, ax: Axes | None = None) -> Axes:
    """Draw the states of a log, arm by time: light is good, and slots without an observation stay empty.

    Of more slots than ``columns`` each column is the mean of several.
    """
    ax = _axes(ax)
    from matplotlib.patches import Patch

    first, last = int(trace.times[0]), int(trace.times[-1])
    image = _cells(ax, trace.shades(columns), first, cmap=_state_shades(), vmin=0, vmax=1)
    image.set_extent((first - 0.5, last + 0.5, trace.n_arms - 0.5, -0.5))
    for border in range(1, trace.n_arms):
        ax.axhline(border - 0.5, color="white", linewidth=2)
    ax.set_yticks(range(trace.n_arms), trace.names)
    ax.tick_params("y", length=0)
    ax.set_xlabel("slot")
    key = [Patch(facecolor=colour, edgecolor="0.6", linewidth=0.5) for colour in STATE_COLOURS]
    _legend_beside(ax, handles=key, labels=["best state", "worst state"])
    return ax


@dataclass(frozen=True, eq=False)
class BeliefPath:
    """The belief of an arm along a walk."""

    name: str
    slots: IntArray
    distributions: Array
    """The distribution of the state given all observations before the slot: (slot, state)."""
    seen: IntArray
    """The observed state of the arm in the slot, −1 in slots without a pull."""
    rewards: Array
    """Mean rewards by state."""

    def jumps(self) -> tuple[Array, Array]:
        """Return slots and distributions for drawing: at an observation the distribution jumps within the slot."""
        looks = np.flatnonzero(self.seen >= 0)
        certain = np.eye(len(self.rewards))[self.seen[looks]]
        slots = np.insert(self.slots.astype(np.float64), looks + 1, self.slots[looks])
        return slots, np.insert(self.distributions, looks + 1, certain, axis=0)


def belief_paths(stretch: Walk) -> list[BeliefPath]:
    """Return the data of ``belief`` for a walk: row s of P^τ for every arm and slot."""
    stretch.problem.require_steady("a picture of beliefs")
    slots = np.arange(stretch.first, stretch.first + len(stretch.states))
    paths = []
    for i, arm in enumerate(stretch.problem.arms):
        elapsed = stretch.elapsed[:, i]
        distributions = arm.state_distributions(int(elapsed.max()))[elapsed, stretch.last_states[:, i]]
        seen = np.where(stretch.pulled[:, i], stretch.states[:, i], -1)
        paths.append(BeliefPath(arm.name, slots, distributions, seen, arm.rewards))
    return paths


def belief(data: Walk | Sequence[BeliefPath], *, arm: int | str | None = None, ax: Axes | None = None) -> Axes:
    """Draw the beliefs along a walk: the expected reward of each arm, or the probabilities of the states of one arm.

    Between observations the belief fades towards the stationary distribution; an observation, marked by a dot, makes
    the belief jump to the observed state. ``arm`` is a number or a name: the probability of each state of the arm is
    drawn, stacked, the state with the best reward below.
    """
    paths = data if isinstance(data, Sequence) else belief_paths(data)
    ax = _axes(ax)
    if arm is None:
        for n, path in enumerate(paths):
            slots, distributions = path.jumps()
            colour, mark = _style(path.name, n)
            ax.plot(slots, distributions @ path.rewards, color=colour, linewidth=1)
            looked = path.seen >= 0
            seen = path.rewards[path.seen[looked]]
            ax.plot(path.slots[looked], seen, mark, color=colour, label=path.name, markersize=4.5)
        ax.set_ylabel("expected reward")
        _legend_beside(ax)
    else:
        names = [path.name for path in paths]
        if isinstance(arm, str):
            check_known(arm, names, "there is no arm")
        path = paths[names.index(arm) if isinstance(arm, str) else check_int("arm", arm, 0, len(paths) - 1)]
        slots, distributions = path.jumps()
        order = _best_first(path.rewards)
        tops = np.concatenate([np.zeros((len(distributions), 1)), np.cumsum(distributions[:, order], axis=1)], axis=1)
        shades, n = _state_shades(), len(path.rewards)
        for place, k in enumerate(order.tolist()):
            # The legend of many states would hide the picture: the best and worst states are enough.
            named = n <= 6 or place in (0, n - 1)
            label = f"state {k}" + (" (best)" if place == 0 else "") if named else None
            shade = shades(place / max(1, n - 1))
            ax.fill_between(slots, tops[:, place], tops[:, place + 1], color=shade, linewidth=0, label=label)
            ax.plot(slots, tops[:, place + 1], color="white", linewidth=0.5)
        looks = path.slots[path.seen >= 0]
        ax.plot(looks, np.full(len(looks), 1.03), "v", color=COLOURS[1], markersize=4, label="seen")
        ax.set(ylim=(0, 1.06), ylabel=f"probability, {path.name}")
        ax.grid(visible=False)
        # Legend entries in the order of the stack.
        handles, labels = ax.get_legend_handles_labels()
        _legend_beside(ax, handles=handles[::-1], labels=labels[::-1])
    ax.set(xlim=(paths[0].slots[0] - 0.5, paths[0].slots[-1] + 0.5), xlabel="slot")
    return ax


@dataclass(frozen=True, eq=False)
class IndexTable:
    """Whittle's index of an arm that is seen when pulled: ``index[s, τ - 1]``.

    The rows after the states are for an arm never observed, if the arm can be unobserved, and for an arm whose last
    pull was not answered, if that differs.
    """

    name: str
    index: Array
    rows: tuple[str, ...]
    indexable: bool


def index_tables(problem: Problem, tau_max: int = 12) -> list[IndexTable]:
    """Return the data of ``index_map`` for a problem whose arms are seen when pulled: a table for each kind of arm."""
    problem.require_steady("a picture of indices")
    if problem.observed == "all":
        raise ProblemError("all states are observed, so an index does not depend on τ; take state_index_table")
    from restless_bandits.oracles import whittle_index

    tables = []
    for arm in problem.kinds:
        found = whittle_index(arm, length=tau_max)
        rows = [f"state {s}" for s in range(arm.n_states)]
        if found.lost_row:
            rows += ["never seen", "answer lost"]
        elif arm.initial is None:
            rows.append("never seen")
        tables.append(IndexTable(arm.name, found.table[: len(rows)], tuple(rows), found.indexable))
    return tables


def index_map(data: Problem | IndexTable | Sequence[IndexTable], *, tau_max: int = 12, ax: Axes | None = None) -> Axes:
    """Draw Whittle's index by last observed state and elapsed slots as a heat map of one arm or of all.

    Arms stand below each other on a common scale of colours: the arm to pull has the brighter cell. The picture of a
    problem whose states are all observed is that of ``state_indices``.
    """
    if isinstance(data, Problem):
        if data.observed == "all":
            return state_indices(data, ax=ax)
        data = index_tables(data, tau_max)
    tables = [data] if isinstance(data, IndexTable) else data
    ax = _axes(ax)
    index = np.concatenate([table.index for table in tables])
    n_rows, length = index.shape
    image = _cells(ax, index, 1, cmap="cividis")
    if length <= 15 and n_rows <= 16:
        _write_values(ax, index, 1)
    labels: list[str] = []
    for table in tables:
        if labels:
            ax.axhline(len(labels) - 0.5, color="white", linewidth=3)
        name = table.name if table.indexable else f"{table.name} (not indexable)"
        labels += [f"{name}, {row}" for row in table.rows] if len(tables) > 1 else table.rows
    every = -(-n_rows // 30)
    ax.set_yticks(range(0, n_rows, every), labels[::every])
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, length) if length <= 15 * step)
    ax.set_xticks([1, *range(step, length + 1, step)] if step > 1 else range(1, length + 1))
    ax.tick_params(length=0)
    if len(tables) == 1:
        ax.set_ylabel(name)
    ax.set_xlabel("slots since last seen τ")
    ax.figure.colorbar(image, ax=ax, label="Whittle index", pad=0.02)
    return ax


INDEX_LABELS = {"whittle": "Whittle index", "lp-index": "Lagrangian index", "myopic": "reward of a pull now"}
MOST_ROWS = 40
"""Rows of a picture of indices by state; of more kinds of arms so many are drawn, without names."""


@dataclass(frozen=True, eq=False)
class StateIndexTable:
    """An index by kind of arm and state, the kind with the highest index first."""

    label: str
    names: tuple[str, ...]
    index: Array
    """The index: (kind, state), NaN where a kind lacks a state."""
    indexable: BoolArray
    """Whether each kind is indexable."""
    pulled_from: int
    """The first column of states after a slot with a pull, which arms with a set-up cost have; else the columns."""


def state_index_table(problem: Problem, oracle: str = "whittle") -> StateIndexTable:
    """Return the data of ``state_indices`` for a problem whose states are all observed.

    ``oracle`` is ``whittle``, ``lp-index`` for the Lagrangian index, or ``myopic``.
    """
    from restless_bandits.oracles.observed.planners import observed_policy, observed_relaxation
    from restless_bandits.policies.observed import PriorityPolicy

    check_known(oracle, INDEX_LABELS, "there is no index")
    if problem.observed != "all":
        raise ProblemError("an index by state is of arms that are all observed; give a problem with observed = 'all'")
    policy = observed_policy(problem, oracle)
    assert isinstance(policy, PriorityPolicy)
    sizes = policy.layout.n_states
    index = np.full((len(sizes), int(sizes.max())), np.nan)
    index[np.arange(index.shape[1]) < sizes[:, None]] = policy.score
    order = np.argsort(-np.nanmax(index, axis=1), kind="stable")
    names, indexable = list(names_of(problem.kinds)), observed_relaxation(problem).indexable
    doubled = "setup_cost" in problem.features and len({arm.n_states for arm in problem.kinds}) == 1
    half = index.shape[1] // (2 if doubled else 1)
    return StateIndexTable(INDEX_LABELS[oracle], tuple(names[i] for i in order), index[order], indexable[order], half)


def state_indices(data: Problem | StateIndexTable, *, oracle: str = "whittle", ax: Axes | None = None) -> Axes:
    """Draw an index by kind of arm and state as a heat map, for arms that are all observed.

    The arms to pull have the brightest cells at their present states. Of more than 40 kinds evenly spaced rows are
    drawn.
    """
    table = state_index_table(data, oracle) if isinstance(data, Problem) else data
    ax = _axes(ax)
    many, states = table.index.shape
    rows = np.unique(np.linspace(0, many - 1, min(MOST_ROWS, many)).round().astype(np.int64))
    image = _cells(ax, table.index[rows], 0, cmap="cividis")
    if len(rows) <= 16 and states <= 15:
        _write_values(ax, table.index[rows], 0)
    if many > len(rows):
        ax.set_yticks([0, len(rows) - 1], ["1", f"{many:,}"])
        ax.set_ylabel("kinds of arms by their highest index")
    else:
        marks = ["" if table.indexable[row] else " (not indexable)" for row in rows]
        ax.set_yticks(range(many), [f"{name}{mark}" for name, mark in zip(table.names, marks, strict=True)])
    ticks = range(0, states, -(-states // 20))
    ax.set_xticks(ticks, [str(s) if s < table.pulled_from else f"{s - table.pulled_from}, pulled" for s in ticks])
    ax.tick_params(length=0)
    ax.set_xlabel("state")
    ax.figure.colorbar(image, ax=ax, label=table.label, pad=0.02)
    return ax


@dataclass(frozen=True, eq=False)
class GainLine:
    """The gain of a policy, a slot and arm, for several numbers of arms; or the bound of every policy."""

    label: str
    arms: IntArray
    gain: Array
    stderr: Array
    """Standard errors, 0 where the gain is computed."""
    is_bound: bool = False


def gain_lines(
    problem: Problem, arms: Sequence[int], oracles: Sequence[str] = ("whittle", "lp-index", "id")
) -> list[GainLine]:
    """Return the data of ``gains``: the bound of the relaxation first, then a line for each oracle.

    The problem, whose states are all observed, is stated again for each number of arms, in its own proportions.
    """
    from restless_bandits.oracles.observed.planners import observed_relaxation
    from restless_bandits.simulation.solving import solve

    if problem.observed != "all":
        raise ProblemError("gains by the number of arms are of arms that are all observed; give observed = 'all'")
    stated = [problem.with_arms(number) for number in arms]
    numbers = np.array([one.n_arms for one in stated])
    bounds = np.array([observed_relaxation(one).bound for one in stated]) / numbers
    lines = [GainLine("bound of any policy", numbers, bounds, np.zeros(len(stated)), is_bound=True)]
    for oracle in oracles:
        found = [solve(one, oracle) for one in stated]
        gain = np.array([np.nan if one.gain is None else one.gain for one in found]) / numbers
        lines.append(GainLine(oracle, numbers, gain, np.array([one.gain_stderr or 0.0 for one in found]) / numbers))
    return lines


def gains(lines: Sequence[GainLine], *, ax: Axes | None = None) -> Axes:
    """Draw gains a slot and arm against the number of arms, beside the bound of any policy, from ``gain_lines``.

    Bars are two standard errors to either side of a simulated gain.
    """
    ax = _axes(ax)
    policies = [line for line in lines if not line.is_bound]
    for n, line in enumerate(policies):
        colour, mark = _style(line.label, n)
        ax.errorbar(line.arms, line.gain, yerr=2 * line.stderr, color=colour, marker=mark, capsize=2, label=line.label)
    for line in lines:
        if line.is_bound:
            ax.plot(line.arms, line.gain, color="black", linestyle="--", linewidth=1.2, label=line.label)
    numbers = sorted({int(number) for line in lines for number in line.arms})
    ax.set_xscale("log")
    ax.set_xticks(numbers, [_short(number) for number in numbers])
    ax.minorticks_off()
    ax.set(xlabel="arms", ylabel="gain a slot and arm")
    _legend_beside(ax)
    return ax


def occupancy(data: Occupancy, *, ax: Axes | None = None) -> Axes:
    """Draw the fractions of arms in each state over time: dots for a simulated run, lines for the fluid path.

    ``rb.occupancy`` returns the data.
    """
    ax = _axes(ax)
    slots = np.arange(1, len(data.simulated) + 1)
    for state, fractions in enumerate(data.simulated.T):
        colour, mark = _style("", state)
        ax.plot(slots, fractions, mark, color=colour, markersize=3, label=f"state {state}")
        if data.fluid is not None:
            ax.plot(slots, data.fluid[:, state], color=colour, linewidth=1)
    if data.fluid is not None:
        ax.plot([], [], color="0.3", linewidth=1, label="fluid path")
    ax.set(xlabel="slot", ylabel="fraction of arms", ylim=(0, None))
    ax.set_title(f"{data.policy}, {data.n_arms:,} arms")
    _legend_beside(ax)
    return ax


@dataclass(frozen=True, eq=False)
class EstimateGroup:
    """Estimates of a parameter in several runs, beside its true value."""

    label: str
    truth: float
    values: Array
    optimistic: Array | None = None


def estimates(groups: Sequence[EstimateGroup], *, ax: Axes | None = None) -> Axes:
    """Draw estimated against true parameters: the middle 95 % of the runs, their mean, and the truth."""
    ax = _axes(ax)
    series = [("estimate", COLOURS[0], 0.0, [group.values for group in groups])]
    optimistic = [group.optimistic for group in groups if group.optimistic is not None]
    if len(optimistic) == len(groups):
        series.append(("optimistic", COLOURS[4], 0.22, optimistic))
    for label, colour, shift, values in series:
        places = np.arange(len(groups)) + shift - 0.11 * (len(series) - 1)
        means = np.array([one.mean() for one in values])
        ends = np.array([np.quantile(one, [0.025, 0.975]) for one in values]).T
        _error_bars(ax, places, means, ends, colour, f"{label}, 95 % of runs")
    _truths(ax, [group.truth for group in groups])
    ax.set_xticks(range(len(groups)), [group.label for group in groups])
    ax.set_ylabel("probability")
    ax.legend()
    return ax


@dataclass(frozen=True, eq=False)
class TransitionEstimate:
    """A transition of an arm: estimated probability, ends of its confidence interval, and true value if known."""

    arm: str
    move: str
    value: float
    low: float
    high: float
    truth: float | None = None


def transition_estimates(
    found: Estimate, problem: Problem | None = None, confidence: float = 0.95
) -> list[TransitionEstimate]:
    """Return the data of ``transitions`` for an estimate: the transitions to neighbouring states of all arms.

    An arm that reacts has those at rest and those of a pull. The probability of staying is the remainder. Intervals are
    the estimate plus and minus a number of standard errors, clipped to [0, 1]; true values are taken from ``problem``.
    """
    from scipy import stats

    width = float(stats.norm.ppf(0.5 + confidence / 2))
    moves = []
    for i, arm in enumerate(found.arms):
        true = None if problem is None else problem.arms[i]
        name = arm.name if true is None else true.name
        n = len(arm.transitions)
        neighbours = [(s, k) for s in range(n) for k in (s - 1, s + 1) if 0 <= k < n]
        chains = [("", arm.transitions, arm.standard_errors, None if true is None else true.one_step)]
        if arm.active_transitions is not None and arm.active_standard_errors is not None:
            truth = true.active_chain if isinstance(true, Arm) else None
            chains = [("\nat rest", *chains[0][1:])]
            chains.append(("\npulled", arm.active_transitions, arm.active_standard_errors, truth))
        for (when, chain, errors, truth), (s, k) in itertools.product(chains, neighbours):
            value, reach = float(chain[s, k]), width * float(errors[s, k])
            ends = max(0.0, value - reach), min(1.0, value + reach)
            known = None if truth is None else float(truth[s, k])
            moves.append(TransitionEstimate(name, f"{s}→{k}{when}", value, *ends, known))
    return moves


def transitions(
    data: Estimate | Sequence[TransitionEstimate],
    problem: Problem | None = None,
    *,
    ax: Axes | None = None,
    confidence: float = 0.95,
) -> Axes:
    """Draw the transitions estimated by ``rb.estimate`` with their confidence intervals, and the true values of
    ``problem``.
    """
    moves = data if isinstance(data, Sequence) else transition_estimates(data, problem, confidence)
    ax = _axes(ax)
    values = np.array([move.value for move in moves])
    ends = np.array([[move.low, move.high] for move in moves]).T
    _error_bars(ax, np.arange(len(moves)), values, ends, COLOURS[0], f"estimate, {confidence:.0%} interval")
    _truths(ax, [move.truth for move in moves])
    ax.set_xticks(range(len(moves)), [move.move for move in moves], fontsize="small" if len(moves) > 12 else None)
    names = list(dict.fromkeys(move.arm for move in moves))
    places = {name: [n for n, move in enumerate(moves) if move.arm == name] for name in names}
    for name in names[1:]:
        ax.axvline(places[name][0] - 0.5, color="black", linewidth=0.5, alpha=0.3)
    # A second line of labels, below the labels of the transitions.
    under = ax.secondary_xaxis(location=0)
    below = "\n" * max(1 + 2 * move.move.count("\n") for move in moves)
    under.set_xticks([float(np.mean(places[name])) for name in names], [below + name for name in names])
    under.tick_params("x", length=0)
    under.spines["bottom"].set_visible(False)
    ax.grid(visible=False, axis="x")
    # Room for the legend above all bars.
    top = 1.2 * float(max(ends.max(), *(move.truth or 0 for move in moves)))
    ax.set(xlim=(-0.6, len(moves) - 0.4), ylim=(0, top), ylabel="probability of the move")
    ax.legend(loc="upper left", ncols=2)
    return ax


def _cells(ax: Axes, values: Array, first: int, **look: Any) -> AxesImage:
    """A table as coloured cells; the middles of its columns are ``first`` and the integers after ``first``."""
    rows, columns = values.shape
    ax.grid(visible=False)
    extent = (first - 0.5, first + columns - 0.5, rows - 0.5, -0.5)
    return ax.imshow(values, aspect="auto", interpolation="nearest", extent=extent, **look)


def _write_values(ax: Axes, values: Array, first: int) -> None:
    """Write the numbers of a table into its cells; the middles of its columns are ``first`` and so on."""
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            colour = "black" if value > middle else "white"
            ax.text(column + first, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)


def _error_bars(ax: Axes, places: npt.ArrayLike, values: Array, ends: Array, colour: str, label: str) -> None:
    ax.errorbar(places, values, yerr=np.abs(ends - values), fmt="o", color=colour, capsize=3, label=label)


def _truths(ax: Axes, truths: Sequence[float | None]) -> None:
    known = [(place, truth) for place, truth in enumerate(truths) if truth is not None]
    for n, (place, truth) in enumerate(known):
        ax.plot([place - 0.3, place + 0.3], [truth, truth], color="black", linewidth=1.2, label=None if n else "truth")


def distributions(arm: ArmFit, *, ax: Axes | None = None) -> Axes:
    """Draw the probability that an arm is in the same state some slots later: observed shares, and the fitted chain's
    curve.

    Bars are two standard errors to either side under the fitted chain; a state without pairs at a lag has no mark
    there.
    """
    ax = _axes(ax)
    n = len(arm.transitions)
    lags = np.array([distribution.lag for distribution in arm.laws], dtype=np.int64)
    along = np.unique(np.geomspace(1, max(10, lags.max(initial=0)), 60).round().astype(np.int64))
    curves = np.array([np.diagonal(markov.power(arm.transitions, int(lag))) for lag in along])
    for state in range(n):
        colour, mark = _style("", state)
        ax.plot(along, curves[:, state], color=colour, linewidth=1.2)
        shares = np.array([distribution.observed[state, state] for distribution in arm.laws])
        predicted = np.array([distribution.predicted[state, state] for distribution in arm.laws])
        starts = np.array([distribution.counts[state].sum() for distribution in arm.laws])
        width = 2 * np.sqrt(predicted * (1 - predicted) / np.maximum(starts, 1))
        # States stand a little apart, or bars of equal shares would hide each other.
        places = lags * (1 + 0.03 * (state - (n - 1) / 2))
        label = f"state {arm.states[0] + state}"
        ax.errorbar(places, shares, yerr=width, fmt=mark, color=colour, capsize=2, markersize=4, label=label)
    ax.set_xscale("log")
    ticks = lags if len(lags) > 1 else np.array([1, 10])
    ax.set_xticks(ticks, [_short(lag) for lag in ticks])
    ax.minorticks_off()
    ax.set(ylim=(0, 1.02), xlabel="slots later, τ", ylabel="share in the same state", title=arm.name)
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
        colour, mark = _style(label, n, colours)
        ax.plot(list(by_arms), list(by_arms.values()), color=colour, marker=mark, label=label)
        if others is not None and (theirs := others.get(label)):
            ax.plot(list(theirs), list(theirs.values()), color=colour, linestyle="--", linewidth=1, alpha=0.6)
    arms = sorted({arms for by_arms in times.values() for arms in by_arms})
    ax.set(yscale="log", xticks=arms, xlabel="arms", ylabel="seconds a run")
    _legend_beside(ax)
    return ax


def _style(label: str, n: int, colours: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The colour and the mark of a line: by its position in ``colours``, if named there, for equal looks in every
    picture.
    """
    if colours is not None and label in colours:
        return colours[label], MARKS[list(colours).index(label) % len(MARKS)]
    return COLOURS[n % len(COLOURS)], MARKS[n % len(MARKS)]


def _best_first(rewards: Array) -> IntArray:
    """Return states in the order of their mean rewards, the best first, and ties by number."""
    return np.argsort(-rewards, kind="stable")


def _state_shades() -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("states", STATE_COLOURS)


def _legend_beside(ax: Axes, **what: Any) -> None:
    """A legend to the right of the picture, outside the data.

    A figure without a layout engine would clip the legend: there Matplotlib finds the best place within the axes.
    """
    if ax.figure.get_layout_engine() is None:
        ax.legend(**what)
    else:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), **what)


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
        raise ProblemError(missing_extra("a picture", "matplotlib", "plots")) from None


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    made: Axes = _pyplot().subplots(layout="constrained")[1]
    return made
