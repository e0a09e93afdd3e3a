"""The page of all submissions: a table, a picture and the published results of each track.

The page is Markdown with tables in HTML. ``docs/assets/sortable.js`` sorts a table by a click on a head. A picture is
SVG, score against CPU units.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import save_file
from restless_bandits.simulation.benchmark.instances import TRACKS, Instance, instances_of
from restless_bandits.simulation.benchmark.submissions import ScoreSummary, Submission, load_submission

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720.0, 330.0, 58.0, 150.0, 14.0, 46.0
LINE_HEIGHT = 13.0
"""The least distance between two labels of a picture."""
LOWEST_SHOWN = -0.25
"""The least score of a picture; lower scores stand at its floor."""
INTRODUCTION = """\
# The benchmark

<!-- Written by `restless benchmark table` from benchmark/submissions; changes by hand are lost. -->

Policies and learners on common instances. The **score** is the share of the gap between random play and the certified
optimum that is closed: 0 is random play, 1 the optimum. Where no optimum is certified, a proved upper bound takes its
place, and 1 may be out of reach. The score of a track is the mean over its instances, with a 95 % confidence interval
over seeds. A run that fails counts as random play. **CPU** is the mean CPU time of a run in units of a small reference
program that runs beside each run, without the start of the interpreter. A click on the head of a column sorts.

Submissions with *revealed* parameters know what the other entrants of the track must learn: they are references.

How to take part, and what an entrant gets to see: [Join the benchmark](how-to/join-benchmark.md).
"""
CITATION = """\
## How to cite

Cite the package, `CITATION.cff`, with the version and the date of this page, and the source of each instance used:
`restless benchmark tracks --json` lists the sources. The instances are in
`src/restless_bandits/simulation/benchmark/tracks`, all submissions with all their runs in `benchmark/submissions`.
"""


def write_page(folder: str | Path, out: str | Path) -> int:
    """Write the page and its pictures from the submissions of a folder; return the number of submissions."""
    folder, out = Path(folder), Path(out)
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ProblemError(f"{folder} holds no submissions; `restless benchmark run` writes one")
    found = [load_submission(path) for path in paths]
    parts = [INTRODUCTION]
    for track, about in TRACKS.items():
        several = sorted((one for one in found if one.track == track), key=lambda one: -one.score.mean)
        if several:
            picture = out.with_name(f"benchmark-{track}.svg")
            save_file(picture, picture_of(several).encode())
            parts.append(_section(track, about, several, picture.name))
    save_file(out, "\n".join([*parts, CITATION]).encode())
    return len(found)


def _section(track: str, about: str, several: Sequence[Submission], picture: str) -> str:
    instances = instances_of(track)
    lines = [
        f"## {track}",
        "",
        f"{about[0].upper()}{about[1:]}.",
        "",
        f"![Score against CPU units, {track}]({picture})",
        "",
    ]
    heads = [
        "entrant",
        "score",
        "95 %",
        "worst instance",
        "its score",
        "CPU",
        "failed runs",
        "seeds",
        "revealed",
        "date",
    ]
    lines += _table(heads, [_row(one) for one in several])
    lines += ["", '??? note "Every instance"', ""]
    names = [one.name for one in instances]
    rows = [[_label(one), *(f"{one.by_instance[name].mean:.3f}" for name in names)] for one in several]
    lines += [f"    {line}" for line in _table(["entrant", *names], rows)]
    best = [_reference_row(instance) for instance in instances]
    lines += ["", '??? note "Values of the instances"', ""]
    lines += [f"    {line}" for line in _table(["instance", "random play", "best", "proof", "by", "source"], best)]
    published = _published(instances, several)
    if published:
        heads = ["instance", "published by", "method", "reward", "score", "best score here", "source"]
        lines += ["", f"Published results, {track}: computed by others with their programs, not played here.", ""]
        lines += _table(heads, published)
    return "\n".join(lines) + "\n"


def _row(one: Submission) -> list[str]:
    score, worst = one.score, one.by_instance[one.worst]
    revealed = ", ".join(one.entrant["revealed"])
    numbers = [f"{score.mean:.4f}", f"{score.low:.4f} to {score.high:.4f}", one.worst, f"{worst.mean:.4f}", _cpu(score)]
    seeds = one.seeds + (", full" if one.full else "")
    return [_label(one), *numbers, str(score.failures), seeds, revealed, one.date]


def _cpu(score: ScoreSummary) -> str:
    return f"{score.cpu:.3g}" if math.isfinite(score.cpu) else ""


def _label(one: Submission) -> str:
    return one.name


def _reference_row(instance: Instance) -> list[str]:
    if instance.stored is None:
        by = "drawn for each seed", "", "" if instance.track == "index" else instance.method, "restless-bandits"
        return [instance.name, *by, instance.source]
    stored = instance.stored
    values = ["", ""] if stored.proof == "index" else [f"{stored.random:.6g}", f"{stored.best:.6g}"]
    return [instance.name, *values, stored.proof, stored.by, instance.source]


def _published(instances: Sequence[Instance], several: Sequence[Submission]) -> list[list[str]]:
    rows = []
    for instance in instances:
        if instance.stored is None:
            continue
        here = max(one.by_instance[instance.name].mean for one in several)
        for row in instance.published:
            score = instance.stored.score(row.reward)
            source = f"{row.source}{'; ' if row.note else ''}{row.note}"
            rows.append([instance.name, row.by, row.method, f"{row.reward:.6g}", f"{score:.4f}", f"{here:.4f}", source])
    return rows


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in HTML."""
    lines = ['<div class="sortable"><table>', "<thead><tr>" + "".join(map(_head, heads)) + "</tr></thead>", "<tbody>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return [*lines, "</tbody></table></div>"]


def _head(text: str) -> str:
    return f"<th>{html.escape(text)}</th>"


def picture_of(several: Sequence[Submission]) -> str:
    """Return the picture of a track: score against CPU units, on a logarithmic axis."""
    shown = [one for one in several if math.isfinite(one.score.cpu)]
    units = [max(one.score.cpu, 1e-2) for one in shown] or [1.0]
    low, high = math.floor(math.log10(min(units))), math.ceil(math.log10(max(units)) + 1e-9)
    floor = min(0.0, *(max(one.score.mean, LOWEST_SHOWN) for one in shown), 0.0)
    ceiling = max(1.0, *(one.score.high for one in shown), 1.0)

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(max(value, 1e-2)) - low) / max(1, high - low)

    def up(value: float) -> float:
        share = (min(max(value, floor), ceiling) - floor) / (ceiling - floor)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" font-family="sans-serif" '
        'font-size="11" fill="#777">'
    ]
    for decade in range(low, high + 1):
        x = across(10.0**decade)
        parts.append(f'<path d="M{x:.1f} {TOP:g}V{HEIGHT - BOTTOM:g}" stroke="#999" stroke-opacity=".3"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16:g}" text-anchor="middle">{10.0**decade:g}</text>')
    for tick in range(math.ceil(floor * 5), math.floor(ceiling * 5 + 1e-9) + 1):
        y = up(tick / 5)
        parts.append(f'<path d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}" stroke="#999" stroke-opacity=".3"/>')
        parts.append(f'<text x="{LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{tick / 5:g}</text>')
    middle = 0.5 * (LEFT + WIDTH - RIGHT)
    parts.append(f'<text x="{middle:g}" y="{HEIGHT - 8:g}" text-anchor="middle">CPU units of a run</text>')
    parts.append(f'<text x="{LEFT - 40:g}" y="{TOP + 4:g}">score</text>')
    taken: list[float] = []
    for one in sorted(shown, key=lambda submission: -submission.score.mean):
        x, y = across(one.score.cpu), up(one.score.mean)
        colour = "#b36b00" if one.entrant["revealed"] else "#00796b"
        ends = up(one.score.low), up(one.score.high)
        parts.append(f'<path d="M{x:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        label = max(y, *(place + LINE_HEIGHT for place in taken)) if taken else y
        taken.append(label)
        edge = WIDTH - RIGHT + 12
        parts.append(f'<path d="M{x:.1f} {y:.1f}L{edge - 4:g} {label:.1f}" stroke="{colour}" stroke-opacity=".35"/>')
        parts.append(f'<text x="{edge:g}" y="{label + 4:.1f}" fill="{colour}">{html.escape(one.name[:24])}</text>')
    return "\n".join([*parts, "</svg>\n"])
