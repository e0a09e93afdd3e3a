"""The figures of the report, each as PNG and SVG, the same bytes every time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from restless_bandits import plots
from restless_bandits.experiments.curves import Curve
from restless_bandits.experiments.design import Item
from restless_bandits.experiments.inside import Estimates
from restless_bandits.experiments.reproduction import Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 130


@dataclass(frozen=True)
class Picture:
    name: str
    png: bytes
    svg: bytes


def pictures(found: Reproduction) -> Iterator[Picture]:
    """Draw all figures of a reproduction."""
    for item in found.plan.items:
        yield _picture(item.name, partial(_regret_figure, found, item))
    if found.times:
        yield _picture("table-1", lambda: _times_figure(found))
    if found.stretch is not None:
        yield _picture("raster", lambda: _raster_figure(found))
        yield _picture("estimates", lambda: _estimates_figure(found.estimates))


def _picture(name: str, draw: Callable[[], Figure]) -> Picture:
    import matplotlib

    # Names inside an SVG come from this salt; without it they would differ from one time to the next.
    with plots.style(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure = draw()
        png, svg = BytesIO(), BytesIO()
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(name, png.getvalue(), svg.getvalue())


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def line_of(curve: Curve, most: int | None = None) -> plots.RegretLine:
    """Return a curve as it is drawn, up to some horizon."""
    shown = slice(None) if most is None else slice(0, int(np.searchsorted(curve.horizons, most, side="right")))
    low, high = curve.band()
    return plots.RegretLine(curve.label, curve.horizons[shown], curve.mean[shown], low[shown], high[shown])


def _colours(found: Reproduction) -> dict[str, str]:
    """One colour for each learner, the same in all figures."""
    labels = dict.fromkeys(line.label for protocol in found.plan.protocols for line in protocol.lines)
    return {label: plots.COLOURS[n % len(plots.COLOURS)] for n, label in enumerate(labels)}


def _regret_figure(found: Reproduction, item: Item) -> Figure:
    figure = _figure(13.5, 3.6)
    left, middle, right = figure.subplots(1, 3)
    published, fair = found.panel(item.name, "published"), found.panel(item.name, "fair")
    colours = _colours(found)
    plots.regret([line_of(curve) for curve in published.curves], ax=left, colours=colours)
    left.set_title("published protocol")
    together = min(int(curve.horizons[-1]) for curve in fair.curves)
    plots.regret([line_of(curve, together) for curve in fair.curves], ax=middle, colours=colours)
    middle.set_title("fair protocol")
    plots.regret([line_of(curve) for curve in fair.curves], ax=right, log=True, colours=colours)
    right.set_title("fair protocol, logarithmic")
    left.get_legend().remove()
    middle.get_legend().remove()
    for ax in (left, middle):
        ax.axhline(0, color="black", linewidth=0.6)
    return figure


def _times_figure(found: Reproduction) -> Figure:
    figure = _figure(7.6, 3.8)
    ax = figure.subplots()
    table = found.plan.table
    assert table is not None
    ours = {label: {n: float(t.mean()) for n, t in by_arms.items()} for label, by_arms in found.times.items()}
    theirs = {line.label: dict(zip(table.arms, line.paper, strict=True)) for line in table.lines}
    plots.running_times(ours, others=theirs, ax=ax, colours=_colours(found))
    ax.set_title("a run of half a million slots (dashed: the paper's program)")
    return figure


def _raster_figure(found: Reproduction) -> Figure:
    figure = _figure(12.5, 1.9)
    ax = figure.subplots()
    assert found.stretch is not None
    plots.raster(found.stretch, ax=ax)
    ax.set_title("which arm is pulled; behind it the true states, light for good and dark for bad")
    return figure


def _estimates_figure(all_estimates: tuple[Estimates, ...]) -> Figure:
    figure = _figure(12.5, 3.4)
    for ax, one in zip(figure.subplots(1, len(all_estimates), squeeze=False)[0], all_estimates, strict=True):
        groups = []
        for arm in range(one.problem.n_arms):
            for state, name in enumerate(("good", "bad")):
                groups.append(
                    plots.EstimateGroup(
                        f"arm {arm + 1}\nstays {name}",
                        float(one.truth[arm, state]),
                        one.estimated[:, arm, state],
                        one.optimistic[:, arm, state],
                    )
                )
        plots.estimates(groups, ax=ax)
        ax.set_title(f"{one.problem.name}, T = {one.horizon}")
    return figure
