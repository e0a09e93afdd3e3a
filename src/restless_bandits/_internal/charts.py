"""Charts and rasters of reports: SVG that is part of a page, so that it follows the colours of the page.

A chart is complete without a script. Each line carries its points as data, with a description of each point; a script
of the page may show them, switch lines off and on, and rescale the axis. Colours are classes, ``c0`` to ``c7``,
``good`` and ``bad``; ``charts.css`` defines the classes by variables of the page, for light and for dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from restless_bandits._internal.templates import render
from restless_bandits._internal.validation import Array

if TYPE_CHECKING:
    from markupsafe import Markup

WIDTH, HEIGHT = 400.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 42.0
"""Margins; numbers stand in the left and in the lower margin."""
UNLABELLED = 24.0
"""The lower margin below an axis without a label."""
LETTER = 7.0
"""The width of a letter."""
SHADES = 10
"""Shades between the best state and the worst."""
CHART_STYLES = 8
"""Colours and marks; further lines begin with the first again."""
MARKS = (
    "m-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
    "m-3,-3h6v6h-6z",
    "m0,-4l4,7h-8z",
    "m0,4l4,-7h-8z",
    "m0,-4.5l4,4.5l-4,4.5l-4,-4.5z",
    "m-1.3,-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
    "m-3.5,-1.8l1.7,-1.7l1.8,1.8l1.8,-1.8l1.7,1.7l-1.8,1.8l1.8,1.8l-1.7,1.7l-1.8,-1.8l-1.8,1.8l-1.7,-1.7l1.8,-1.8z",
    "m0,-4.8l1.3,3.4l3.6,.2l-2.8,2.3l.9,3.5l-3,-2l-3,2l.9,-3.5l-2.8,-2.3l3.6,-.2z",
)
"""A mark for each colour, as a path from its middle."""
ChartStyle = Mapping[str, int]
"""The number of a line's colour and mark, by its label: the same in all pictures."""


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    says: str
    """The description of the point for a reader who points at it; a script sees described points only."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart.

    The kind is ``line``, ``dashed``, ``curve`` (without marks), ``bars`` (marks with whiskers), ``dashes`` (levels) or
    ``runs`` (single marks).
    """

    label: str
    points: Sequence[Point]
    kind: str = "line"


@dataclass(frozen=True)
class Axis:
    label: str
    log: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    """Where they are not found from the numbers."""
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class AxisScale:
    """From numbers to places on the page."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    def __call__(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        share = ((math.log10(value) if self.log else value) - low) / (high - low)
        return self.start + share * (self.end - self.start)


def chart(
    title: str,
    traces: Sequence[ChartLine],
    x: Axis,
    y: Axis,
    looks: ChartStyle,
    height: float = HEIGHT,
    about: str = "",
) -> Markup:
    """Return a panel of a title, axes and lines; points that a log axis cannot show are left out."""
    shown = [ChartLine(one.label, [p for p in one.points if _visible(p, x, y)], one.kind) for one in traces]
    across = _scale((p.x for one in shown for p in one.points), x, LEFT + 6, WIDTH - RIGHT - 6)
    up = _scale(_heights(shown, y), y, height - _bottom(x), TOP)
    lines = [_line(one, across, up, looks[one.label] % CHART_STYLES) for one in shown if one.points]
    grid = [(up(value), text, "zero" if value == 0 else "grid") for value, text in _ticks(up, y, 5)]
    scales = {"y": [up.low, up.high], "log": y.log, "fixed": y.ends is not None}
    return _panel(title, about, height, LEFT, x, across, grid, lines=lines, scales=scales, y_label=y.label)


def legend(
    labels: Sequence[str], looks: ChartStyle, what: str, wide: bool = False, stored: Container[str] = ()
) -> Markup:
    """Return switches for lines, with their colours and marks; a wide legend is for all pictures of the page.

    The names of ``stored`` lines, which were not played on this machine, are marked.
    """
    styles = [looks[label] % CHART_STYLES for label in labels]
    shown = [f"{label} (stored)" if label in stored else label for label in labels]
    keys = [(label, name, look, MARKS[look]) for label, name, look in zip(labels, shown, styles, strict=True)]
    return render("_internal/legend.html.j2", what=what, kind="everywhere" if wide else "here", keys=keys)


def raster(
    title: str,
    names: Sequence[str],
    shades: Array,
    x: Axis,
    points: Sequence[Point] = (),
    row: float = 38.0,
    about: str = "",
) -> Markup:
    """Return a panel with a row of cells for each name, and a dot at each ``Point`` (number on the axis, row).

    The shades (row, column) are 0 for light and 1 for dark; NaN leaves a cell empty. Columns divide ``x.ends`` evenly.
    Neighbours of equal shade become one cell: a year of hours stays small.
    """
    rows, columns = shades.shape
    left = float(np.clip(10 + LETTER * max(map(len, names)), LEFT + 14, 110.0))
    assert x.ends is not None
    across = AxisScale(*x.ends, left, WIDTH - RIGHT, log=False)
    wide, between = (WIDTH - RIGHT - left) / columns, min(4.0, row / 8)
    cells = []
    for top, seen in zip(TOP + row * np.arange(rows), _levels(shades), strict=True):
        starts = np.concatenate([[0], np.flatnonzero(np.diff(seen)) + 1, [columns]])
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            cells.append((left + start * wide, top, (stop - start) * wide, row - between, int(seen[start])))
    dots = [(round(across(p.x), 1), p.says, TOP + p.y * row + (row - between) / 2) for p in points]
    pulled = {"kind": "pulled", "look": 0, "label": "", "points": _json(dots), "band": "", "stroke": ""}
    pulled["marks"] = "".join(f"M{_n(place)},{_n(level)}{MARKS[0]}" for place, _, level in dots)
    labels = [
        (TOP + k * row + (row - between) / 2, shortened(name, int((left - 6) / LETTER)), "")
        for k, name in enumerate(names)
    ]
    height = TOP + rows * row + _bottom(x)
    return _panel(title, about, height, left, x, across, labels, cells=cells, lines=[pulled] if points else [])


def stacked(title: str, names: Sequence[str], fractions: Array, about: str = "") -> Markup:
    """Return a panel of bars of total height one, a bar for each name: (state, bar), the best state at the bottom."""
    states, bars = fractions.shape
    across = AxisScale(0, bars, LEFT - 20, WIDTH - RIGHT, log=False)
    wide, high = across(1) - across(0), 90.0
    tops = TOP + high * (1 - np.cumsum(fractions, axis=0))
    cells = [
        (across(bar), float(tops[state, bar]), wide - 1, high * float(fractions[state, bar]), level)
        for state, level in enumerate(_levels(np.linspace(0, 1, states)).tolist())
        for bar in np.flatnonzero(~np.isnan(fractions[0])).tolist()
    ]
    every = max(1, math.ceil(bars * LETTER * (max(map(len, names)) + 1) / (WIDTH - RIGHT - LEFT)))
    x = Axis("", ticks=[(bar + 0.5, names[bar]) for bar in range(0, bars, every)])
    return _panel(
        title,
        about,
        TOP + high + UNLABELLED,
        LEFT - 20,
        x,
        across,
        [(TOP + 4, "1", ""), (TOP + high - 4, "0", "")],
        cells=cells,
    )


def shortened(words: str, letters: int) -> str:
    """Return a name shortened to the available width.

    >>> shortened("a long name", 6)
    'a lon…'
    """
    return words if len(words) <= letters else words[: letters - 1] + "…"


def _panel(
    title: str,
    about: str,
    height: float,
    left: float,
    x: Axis,
    across: AxisScale,
    y_ticks: Sequence[tuple[float, str, str]],
    *,
    cells: Sequence[tuple[float, float, float, float, int]] = (),
    lines: Sequence[Mapping[str, object]] = (),
    scales: Mapping[str, Any] | None = None,
    y_label: str = "",
) -> Markup:
    paths: dict[int, list[str]] = {}
    for place, top, wide, high, level in cells:
        if level >= 0:
            corner = f"M{place:.2f} {top:.1f}h{wide:.2f}v{high:.1f}h-{wide:.2f}z"
            paths.setdefault(level, []).append(corner)
    return render(
        "_internal/charts.svg.j2",
        n=_n,
        title=title,
        about=about or title,
        height=height,
        scales=_json(scales or {}),
        left=left,
        right=WIDTH - RIGHT,
        top=TOP,
        floor=height - _bottom(x),
        cells=[(round(level / (SHADES - 1), 2), "".join(path)) for level, path in sorted(paths.items())],
        x_ticks=[(across(value), text, _anchor(across(value))) for value, text in _ticks(across, x, 5)],
        x_label=x.label,
        y_ticks=y_ticks,
        y_label=y_label,
        lines=lines,
    )


def _bottom(x: Axis) -> float:
    return BOTTOM if x.label else UNLABELLED


def _levels(shades: Array) -> Array:
    """The number of the shade of each cell, −1 for an empty cell."""
    return np.where(np.isnan(shades), -1, np.floor(np.nan_to_num(shades) * (SHADES - 1) + 0.5)).astype(np.int64)


def _anchor(place: float) -> str:
    """The class of a text at a place, so that outer texts stay inside."""
    return "end" if place > WIDTH - RIGHT - 2 else "middle"


def _visible(point: Point, x: Axis, y: Axis) -> bool:
    return not (x.log and point.x <= 0) and not (y.log and point.y <= 0)


def _heights(traces: Sequence[ChartLine], y: Axis) -> Iterable[float]:
    """All values that the axis must reach; on a log axis the lower end of a band may run off the picture."""
    for one in traces:
        for point in one.points:
            yield point.y
            if point.high is not None:
                yield point.high
            if point.low is not None and not y.log:
                yield point.low


def _scale(values: Iterable[float], axis: Axis, start: float, end: float) -> AxisScale:
    every = [*values] or [1.0, 10.0]
    low, high = axis.ends or (min(every), max(every))
    if axis.ends is None and axis.log:
        low, high = low / 1.15, high * 1.15
    elif axis.ends is None:
        low = min(0.0, low)
        high = high if high > low else low + 1.0
    return AxisScale(low, high, start, end, axis.log)


def _ticks(scale: AxisScale, axis: Axis, about: int) -> Iterable[tuple[float, str]]:
    if axis.ticks:
        return axis.ticks
    if axis.log:
        decades = range(math.ceil(math.log10(scale.low)), math.floor(math.log10(scale.high)) + 1)
        every = -(-len(decades) // 6) if decades else 1
        return [(10.0**k, short(10.0**k)) for k in decades if k % every == 0]
    rough = (scale.high - scale.low) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * times for times in (1, 2, 5, 10) if size * times >= rough)
    counts = range(math.ceil(scale.low / step), math.floor(scale.high / step) + 1)
    return [(count * step, short(count * step)) for count in counts]


def _line(trace: ChartLine, across: AxisScale, up: AxisScale, look: int) -> dict[str, object]:
    places = [(across(p.x), up(p.y)) for p in trace.points]
    stroke = band = ""
    if trace.kind in ("line", "dashed", "curve"):
        stroke = "M" + "L".join(f"{_n(x)},{_n(y)}" for x, y in places)
    if trace.kind == "dashes":
        stroke = "".join(f"M{_n(x - 16)},{_n(y)}h32" for x, y in places)
    ends = [(x, *_ends(p, up)) for (x, _), p in zip(places, trace.points, strict=True)]
    if trace.kind == "bars":
        stroke = "".join(f"M{_n(x)},{_n(low)}V{_n(high)}" for x, low, high in ends)
    elif any(p.low is not None for p in trace.points):
        there, back = [f"{_n(x)},{_n(high)}" for x, _, high in ends], [f"{_n(x)},{_n(low)}" for x, low, _ in ends]
        band = "M" + "L".join([*there, *reversed(back)]) + "Z"
    marks = (
        "".join(f"M{_n(x)},{_n(y)}{MARKS[look]}" for x, y in places) if trace.kind in ("line", "bars", "runs") else ""
    )
    points = [
        [round(x, 1), p.says, *(_value(v) for v in (p.y, p.low, p.high))]
        for (x, _), p in zip(places, trace.points, strict=True)
        if p.says
    ]
    return {
        "label": trace.label,
        "kind": trace.kind,
        "look": look,
        "band": band,
        "stroke": stroke,
        "marks": marks,
        "points": _json(points) if points else "",
    }


def _ends(point: Point, up: AxisScale) -> tuple[float, float]:
    """The ends of a band, within the picture."""
    low, high = (point.y if end is None else end for end in (point.low, point.high))
    # On a log axis a band that reaches zero would run to minus infinity.
    return up(max(low, point.y / 10 if up.log else low, up.low)), up(min(high, up.high))


def _value(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _n(place: float) -> str:
    return f"{place:.1f}".removesuffix(".0")


def short(value: float) -> str:
    """Write a number at an axis: 20 000 as 20k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.6g}"
