"""Small drawings as SVG text, for a self-contained page.

Colours are classes, defined by the page's style sheet for light and dark. Widths suit a phone; the page scales them up.
All text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from restless_bandits._internal.validation import Array

WIDTH = 380
LEVELS = 10
"""Shades between the best state and the worst."""
LETTER = 7.0
"""The width of a letter of the small print."""


def drawing(width: float, height: float, about: str, parts: Iterable[str]) -> str:
    """Return a drawing with a description in words, for screen readers."""
    body = "".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(about)}">'
        f"<title>{escape(about)}</title>{body}</svg>"
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """Return words at a place."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a filled box."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" class="{kind}"/>'


def curve(xs: Iterable[float], ys: Iterable[float], kind: str) -> str:
    """Return a line through points."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f'<polyline points="{points}" class="{kind}"/>'


def shortened(words: str, letters: int) -> str:
    """Return a name shortened to the available width.

    >>> shortened("a long name", 6)
    'a lon…'
    """
    return words if len(words) <= letters else words[: letters - 1] + "…"


def raster(names: Sequence[str], shades: Array, ticks: Sequence[tuple[float, str]], about: str) -> str:
    """Return rows of cells, a row for each name: 0 is light, 1 dark, and NaN stays empty.

    Ticks have their position as a share of the width. Neighbours of equal shade become a single box, and all boxes of a
    shade a single path: a year of hours stays small.
    """
    rows, columns = shades.shape
    left = min(110.0, 10 + LETTER * max(len(name) for name in names))
    high = float(np.clip(160 / rows, 7, 18))
    wide = (WIDTH - left) / columns
    levels = np.where(np.isnan(shades), -1, np.floor(np.nan_to_num(shades) * (LEVELS - 1) + 0.5)).astype(np.int64)
    paths: dict[int, list[str]] = {}
    for row, seen in enumerate(levels):
        starts = np.concatenate([[0], np.flatnonzero(np.diff(seen)) + 1, [columns]])
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if seen[start] >= 0:
                place, length = left + start * wide, (stop - start) * wide
                corner = f"M{place:.2f} {row * high:.1f}h{length:.2f}v{high - 1:.1f}h-{length:.2f}z"
                paths.setdefault(int(seen[start]), []).append(corner)
    parts = [
        f'<path class="good" d="{"".join(d)}"/>'
        + (f'<path class="bad" fill-opacity="{level / (LEVELS - 1):.2f}" d="{"".join(d)}"/>' if level else "")
        for level, d in sorted(paths.items())
    ]
    fits = int((left - 6) / LETTER)
    parts += [text(left - 5, (row + 0.5) * high + 3, shortened(name, fits), "end") for row, name in enumerate(names)]
    parts += ticks_below(ticks, left, rows * high)
    return drawing(WIDTH, rows * high + 16, about, parts)


def ticks_below(ticks: Sequence[tuple[float, str]], left: float, height: float) -> list[str]:
    """Return words below a picture, each at its position, the outer words kept inside."""
    found = []
    for share, words in ticks:
        anchor = "start" if share < 0.08 else "end" if share > 0.92 else "middle"
        found.append(text(left + share * (WIDTH - left), height + 12, words, anchor, "soft"))
    return found


def stacked(shares: Array, names: Sequence[str], title: str, about: str) -> str:
    """Return bars of total height one, a bar for each column: shares of the states, the best at the bottom."""
    states, bars = shares.shape
    left, top, high = 26.0, 16.0, 70.0
    wide = (WIDTH - left) / bars
    parts = [text(0, 10, title, kind="strong")]
    for bar in range(bars):
        if np.isnan(shares[:, bar]).any():
            continue
        below = top + high
        for state in range(states):
            part = float(shares[state, bar]) * high
            below -= part
            place = left + bar * wide
            parts.append(box(place, below, wide - 1, part, "good"))
            if state:
                shade = f'fill-opacity="{state / (states - 1):.2f}" '
                parts.append(box(place, below, wide - 1, part, "bad").replace("<rect ", f"<rect {shade}"))
    parts += [text(left - 4, top + 8, "1", "end", "soft"), text(left - 4, top + high, "0", "end", "soft")]
    step = max(1, -(-bars // max(1, int((WIDTH - left) / (LETTER * (max(map(len, names)) + 1))))))
    for bar in range(0, bars, step):
        parts.append(text(left + (bar + 0.5) * wide, top + high + 12, names[bar], "middle", "soft"))
    return drawing(WIDTH, top + high + 16, about, parts)


def memory(
    title: str,
    lags: Sequence[int],
    seen: Sequence[float],
    errors: Sequence[float],
    along: Array,
    curve_of: Array,
    about: str,
) -> str:
    """Return the share in the same state some slots later: dots with two standard errors, and the chain's curve."""
    left, top, high = 26.0, 20.0, 80.0
    longest = np.log(max(float(along.max()), 2.0))

    def x(lag: float) -> float:
        return left + 8 + float(np.log(lag) / longest) * (WIDTH - left - 20)

    def y(share: float) -> float:
        return top + high * (1 - min(max(share, 0.0), 1.0))

    parts = [text(0, 10, title, kind="strong")]
    for share in (0.0, 0.5, 1.0):
        parts += [
            line(left, y(share), WIDTH, y(share), "grid"),
            text(left - 4, y(share) + 3, f"{share:g}", "end", "soft"),
        ]
    parts.append(curve([x(lag) for lag in along], [y(share) for share in curve_of], "fitted"))
    for lag, share, error in zip(lags, seen, errors, strict=True):
        parts.append(line(x(lag), y(share - 2 * error), x(lag), y(share + 2 * error), "bar"))
        parts.append(f'<circle cx="{x(lag):.1f}" cy="{y(share):.1f}" r="3" class="dot"/>')
        parts.append(text(x(lag), top + high + 12, str(lag), "middle", "soft"))
    return drawing(WIDTH, top + high + 16, about, parts)


def intervals(rows: Sequence[tuple[str, float, float, float]], about: str) -> str:
    """Return a line for each interval, with its middle: name, low, middle, high."""
    left = min(185.0, 10 + LETTER * max(len(row[0]) for row in rows))
    low, high = min(row[1] for row in rows), max(row[3] for row in rows)
    pad = 0.08 * (high - low) or 0.05
    low, high = low - pad, high + pad

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (WIDTH - left - 8)

    parts = []
    for n, (name, start, middle, stop) in enumerate(rows):
        y = 14 + 22 * n
        parts.append(text(left - 6, y + 3, shortened(name, int((left - 6) / LETTER)), "end"))
        parts.append(line(x(start), y, x(stop), y, "bar"))
        parts.append(f'<circle cx="{x(middle):.1f}" cy="{y}" r="3.5" class="dot"/>')
        parts.append(text(x(middle), y - 6, f"{middle:.4g}", "middle", "soft"))
    bottom = 14 + 22 * len(rows)
    parts += [
        text(x(low + pad), bottom, f"{low + pad:.4g}", "middle", "soft"),
        text(x(high - pad), bottom, f"{high - pad:.4g}", "middle", "soft"),
    ]
    return drawing(WIDTH, bottom + 6, about, parts)
