"""A fit on a page: the verdict, the log, its states by phase, the chains, the tests, and the expected gain.

A single self-contained file, without network access, for light and dark and for narrow screens. ``report.html.j2`` is
the template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from restless_bandits._internal.charts import Axis, ChartLine, Point, chart, raster, shortened, stacked
from restless_bandits._internal.progress import Report
from restless_bandits._internal.templates import render
from restless_bandits._internal.validation import IntArray
from restless_bandits.logs.checks import calendar_groups
from restless_bandits.logs.expected_gain import ExpectedGain, best_fixed, expected_gain, interval
from restless_bandits.logs.fitting import ArmFit, Fit
from restless_bandits.logs.observed_report import observed_report
from restless_bandits.logs.report_parts import about, test_rows, when
from restless_bandits.logs.seasonal import SeasonFit
from restless_bandits.logs.traces import Trace
from restless_bandits.model import markov
from restless_bandits.oracles.evaluation import arm_average

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_ROWS = 40
"""The largest number of arms in a raster."""
MOST_ARMS = 12
"""The largest number of arms with their own drawing and table."""
RASTER_COLUMNS = 260
PARTS = 12
"""Parts of the log if no phase is known."""
LOOKS = {"observed": 0, "by the chain": 1}
"""Colours of the lines of a chart."""


def report(found: Fit | SeasonFit, *, draws: int | None = None, seed: int = 0, announce: Report | None = None) -> str:
    """Return a page of HTML about a fit.

    Parameters
    ----------
    found
        A fit, or a fit with a season, whose phases the page then shows too.
    draws, seed
        The number of problems drawn for the uncertainty of the gain (by default 50, fewer for many or observed arms),
        and the seed.
    announce
        A function for a line before work that may take some seconds.

    """
    season = found if isinstance(found, SeasonFit) else None
    plain = season.plain if season else found
    assert isinstance(plain, Fit)
    if plain.arms[0].group is not None:
        return observed_report(plain, draws=draws, seed=seed, announce=announce)
    plain.trace.refuse_actions("the page shows one chain for each arm; leave --report out")
    if announce is not None and plain.problem.n_arms > 1:
        announce("report: what a player could gain, on problems that explain the log")
    gain = expected_gain(plain, draws=draws, seed=seed)
    trace = plain.trace
    first, last = int(trace.times[0]), int(trace.times[-1])
    known = trace.clock is not None and trace.clock.origin is not None
    span = f"{when(trace, first)} to {when(trace, last)}" if known else f"slots {first} to {last}"
    phase, occupancy = _occupancy(plain)
    low, high = interval(gain.above) if gain else (0.0, 0.0)
    return render(
        "logs/report.html.j2",
        found=found,
        plain=plain,
        season=season is not None,
        trace=trace,
        span=span,
        edges=", ".join(f"{edge:.6g}" for edge in trace.edges or ()),
        gain=gain,
        above=f"{gain.above.mean():.4g}" if gain else "",
        interval=f"{low:.4g} to {high:.4g}",
        log=_log(trace, first, last),
        each=(last - first + 1) / RASTER_COLUMNS,
        phase=phase,
        occupancy=occupancy,
        chain=_chain,
        memory=_memory,
        test_rows=test_rows,
        best_by_phase=_best_by_phase(season) if season else [],
        intervals=_intervals(gain) if gain else "",
        notes=[*trace.notes, *plain.notes],
        most_rows=MOST_ROWS,
        most_arms=MOST_ARMS,
    )


def _log(trace: Trace, first: int, last: int) -> Markup:
    rows = min(trace.n_arms, MOST_ROWS)
    middle = first + round((last - first) / 2)
    ticks = [(float(slot), _day(trace, slot)) for slot in (first, middle, last)]
    slots = Axis("", ticks=ticks, ends=(first - 0.5, last + 0.5))
    about = f"The log: {rows} arms by time, darker where states were worse, empty without observations"
    high = float(np.clip(160 / rows, 7, 18))
    return raster("", trace.names[:rows], trace.shades(RASTER_COLUMNS)[:rows], slots, row=high, about=about)


def _day(trace: Trace, slot: int) -> str:
    """The date of a slot, or the time of a short slot."""
    return when(trace, slot)[:10] if trace.clock is not None and trace.clock.seconds >= 60 else when(trace, slot)


def _phases(found: Fit) -> tuple[IntArray, list[str], str]:
    """The phase of every observation, the names of phases, and their kind: hours, parts of a visible period, or of
    the log.
    """
    trace = found.trace
    for kind, groups, _, parts in calendar_groups(trace.clock, trace.times, len(trace) // trace.n_arms):
        if kind == "day":
            return groups, [f"{24 * k // parts:02d}" for k in range(parts)], "hour of the day"
    for test in found.findings:
        if test.kind == "period" and test.period is not None:
            groups = np.floor(trace.times / test.period % 1 * PARTS).astype(np.int64)
            return groups, [f"{k + 1}" for k in range(PARTS)], f"twelfth of {test.period:.3g} slots"
    span = int(trace.times[-1] - trace.times[0]) + 1
    groups = (trace.times - trace.times[0]) * PARTS // span
    return groups, [f"{k + 1}" for k in range(PARTS)], "twelfth of the log"


def _occupancy(found: Fit) -> tuple[str, list[Markup]]:
    """The shares of the states of each arm by phase, and the name of the phase."""
    trace = found.trace
    groups, names, what = _phases(found)
    drawn = []
    for arm, name in enumerate(trace.names[:MOST_ARMS]):
        mine = trace.arms == arm
        counts = np.zeros((trace.n_states, len(names)))
        np.add.at(counts, (trace.states[mine], groups[mine]), 1)
        with np.errstate(invalid="ignore"):
            shares = counts / counts.sum(axis=0)
        drawn.append(stacked(name, names, shares, f"Shares of the states of {name} by {what}, the best at the bottom"))
    return what, drawn


def _chain(arm: ArmFit) -> tuple[list[str], list[list[str]]]:
    """The heads and the rows of the table of a chain."""
    heads = ["state", "reward", *(f"to {arm.states[0] + k}" for k in range(len(arm.rewards)))]
    rows = []
    for state, moves in enumerate(arm.transitions):
        reward = about(float(arm.rewards[state]), float(arm.reward_errors[state]))
        cells = (about(float(p), float(arm.standard_errors[state, k])) if p > 0 else "0" for k, p in enumerate(moves))
        rows.append([str(arm.states[0] + state), reward, *cells])
    return heads, rows


def _memory(arm: ArmFit) -> Markup | str:
    if not arm.laws:
        return ""
    lags = [check.lag for check in arm.laws]
    along = np.unique(np.geomspace(1, max(10, *lags), 40).round().astype(np.int64))
    starts = np.sum([check.counts.sum(axis=1) for check in arm.laws], axis=0)
    weights = starts / starts.sum()
    powers = [float(np.diagonal(markov.power(arm.transitions, int(lag))) @ weights) for lag in along]
    seen = [
        Point(
            check.lag,
            check.same_observed,
            "",
            check.same_observed - 2 * check.same_error,
            check.same_observed + 2 * check.same_error,
        )
        for check in arm.laws
    ]
    curve = [Point(float(lag), share, "") for lag, share in zip(along, powers, strict=True)]
    lines = [ChartLine("by the chain", curve, "curve"), ChartLine("observed", seen, "bars")]
    x = Axis("τ slots later", log=True, ticks=[(float(lag), str(lag)) for lag in lags])
    y = Axis("", ticks=[(share, f"{share:g}") for share in (0.0, 0.5, 1.0)], ends=(0.0, 1.0))
    about = f"{arm.name}: the share of observations in the same state some slots later, observed and by the chain"
    return chart("in the same state", lines, x, y, LOOKS, 170.0, about)


def _best_by_phase(found: SeasonFit) -> list[list[str]]:
    rows = []
    for label, one in zip(found.labels, found.fits, strict=True):
        number, name = best_fixed(one.problem)
        rows.append([label, name, f"{arm_average(one.problem.arms[number]):.4g}"])
    return rows


def _intervals(gain: ExpectedGain) -> Markup:
    names = ("knows the chains", f"always {shortened(gain.best_arm, 12)}")
    points, ticks = [], []
    for n, (name, drawn) in enumerate(zip(names, (gain.policy, gain.fixed), strict=True)):
        mean = float(drawn.mean())
        points.append(Point(n, mean, "", *interval(drawn)))
        ticks.append((float(n), f"{name}: {mean:.4g}"))
    ends = [end for point in points for end in (point.low, point.high) if end is not None]
    pad = 0.08 * (max(ends) - min(ends)) or 0.05
    x = Axis("", ticks=ticks, ends=(-0.5, 1.5))
    y = Axis("reward a slot", ends=(min(ends) - pad, max(ends) + pad))
    about = "Reward a slot of a player who knows the chains and of the best fixed arm, with 95 % intervals"
    return chart("", [ChartLine("observed", points, "bars")], x, y, LOOKS, 170.0, about)
