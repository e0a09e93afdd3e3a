"""The pictures of the report: SVG that is part of the page, so that it follows its colours and tells its numbers.

A chart is drawn whole here and needs no script to be read or printed. Each line carries its points as data, with the
words that tell them; ``report.js`` shows these words to whoever points at one, switches lines off and on, and stretches
the axis to what is left. Colours are classes, ``c0`` to ``c7``, and stand in ``report.css``, for light and for dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from restless_bandits.paper.experiments.writing import Html, fill, join

WIDTH, HEIGHT = 400.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 12.0, 12.0, 42.0
"""Margins, of which the left and the lower hold numbers."""
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
    """What is told of the point to whoever points at it."""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class ChartLine:
    """A line of a chart.

    The kind is ``line``, ``dashed``, ``bars`` (marks with whiskers), ``dashes`` (levels) or ``runs`` (single marks).
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


def chart(title: str, traces: Sequence[ChartLine], x: Axis, y: Axis, looks: ChartStyle) -> Html:
    """Return one panel: its title, axes and lines. On log axes what is not positive is left out."""
    shown = [ChartLine(one.label, [p for p in one.points if _visible(p, x, y)], one.kind) for one in traces]
    across = _scale((p.x for one in shown for p in one.points), x, LEFT + 6, WIDTH - RIGHT - 6)
    up = _scale(_heights(shown, y), y, HEIGHT - BOTTOM, TOP)
    lines = join(_line(one, across, up, looks[one.label] % CHART_STYLES) for one in shown if one.points)
    scales = json.dumps({"y": [up.low, up.high], "log": y.log, "fixed": y.ends is not None}, separators=(",", ":"))
    return fill("panel", title=title, scales=scales, axes=join([_ticks_x(across, x), _ticks_y(up, y)]), lines=lines)


def legend(
    labels: Sequence[str], looks: ChartStyle, what: str, wide: bool = False, stored: Container[str] = ()
) -> Html:
    """Return switches for lines, with their colours and marks; a wide one is for all pictures of the page.

    Lines that are ``stored`` and were not played on this machine are marked.
    """
    keys = (
        fill(
            "switch",
            label=label,
            shown=f"{label} (stored)" if label in stored else label,
            look=looks[label] % CHART_STYLES,
            mark=MARKS[looks[label] % CHART_STYLES],
        )
        for label in labels
    )
    return fill("legend", what=what, kind="everywhere" if wide else "here", switches=join(keys))


def raster(title: str, names: Sequence[str], states: Sequence[Sequence[int]], points: Sequence[Point]) -> Html:
    """Return one panel of arms by slots: ``states[slot][arm]`` as shades, and a dot at each ``Point`` (slot, arm)."""
    first, last, arms = round(points[0].x), round(points[-1].x), len(names)
    row, left = 38.0, LEFT + 14
    height = TOP + arms * row + BOTTOM
    across = AxisScale(first - 0.5, last + 0.5, left, WIDTH - RIGHT, log=False)
    cells, labels = [], []
    for arm, name in enumerate(names):
        top = TOP + arm * row
        labels.append(fill("tick_y", x=_n(left - 6), y=_n(top + row / 2 + 4), text=name, grid=""))
        for state, group in groupby(enumerate(seen[arm] for seen in states), key=lambda pair: pair[1]):
            slots = [slot for slot, _ in group]
            start, end = across(first + slots[0] - 0.5), across(first + slots[-1] + 0.5)
            cells.append(fill("cell_of", state=state, x=_n(start), y=_n(top + 2), w=_n(end - start), h=_n(row - 4)))
    ticks = [slot for slot in range(first, last + 1) if slot % 10 == 0]
    axis = Axis("slot", ticks=[(float(slot), str(slot)) for slot in ticks])
    dots = [(round(across(p.x), 1), p.says, TOP + (p.y + 0.5) * row) for p in points]
    marks = "".join(f"M{_n(place)},{_n(level)}{MARKS[0]}" for place, _, level in dots)
    return fill(
        "raster",
        title=title,
        height=_n(height),
        cells=join(cells),
        axes=join([*labels, _ticks_x(across, axis, height)]),
        marks=marks,
        points=json.dumps(dots, separators=(",", ":"), ensure_ascii=False),
    )


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


def _ticks_x(scale: AxisScale, axis: Axis, height: float = HEIGHT) -> Html:
    ticks = [
        fill("tick_x", x=_n(scale(v)), y=_n(height - BOTTOM + 17), text=text) for v, text in _ticks(scale, axis, 5)
    ]
    return join([*ticks, fill("label_x", x=_n((scale.start + scale.end) / 2), y=_n(height - 6), text=axis.label)])


def _ticks_y(scale: AxisScale, axis: Axis) -> Html:
    ticks = []
    for value, text in _ticks(scale, axis, 5):
        y = scale(value)
        line = fill("grid", x1=_n(LEFT), x2=_n(WIDTH - RIGHT), y=_n(y), kind="zero" if value == 0 else "grid")
        ticks.append(fill("tick_y", x=_n(LEFT - 6), y=_n(y + 4), text=text, grid=line))
    label = fill("label_y", y=_n((HEIGHT - BOTTOM + TOP) / 2), text=axis.label)
    return join([fill("ticks", ticks=join(ticks)), label])


def _line(trace: ChartLine, across: AxisScale, up: AxisScale, look: int) -> Html:
    places = [(across(p.x), up(p.y)) for p in trace.points]
    stroke = band = ""
    if trace.kind in ("line", "dashed"):
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
    ]
    return fill(
        "line",
        label=trace.label,
        kind=trace.kind,
        look=look,
        band=band,
        stroke=stroke,
        marks=marks,
        points=json.dumps(points, separators=(",", ":"), ensure_ascii=False),
    )


def _ends(point: Point, up: AxisScale) -> tuple[float, float]:
    """The ends of a band, within the picture."""
    low, high = (point.y if end is None else end for end in (point.low, point.high))
    # On a log axis a band that reaches zero would run to minus infinity.
    low = max(low, point.y / 10, up.low) if up.log else low
    return up(low), up(min(high, up.high) if up.log else high)


def _value(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")


def _n(place: float) -> str:
    return f"{place:.1f}".removesuffix(".0")


def short(value: float) -> str:
    """Write a number at an axis: 20 000 as 20k."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.6g}"
