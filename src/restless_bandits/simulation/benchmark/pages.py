"""The page of all submissions: a table, a picture and the published results of each track.

The page is Markdown with tables in HTML. ``docs/assets/sortable.js`` sorts a table by a click on a head. A picture is
SVG, score against CPU units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import save_file
from restless_bandits._internal.templates import render
from restless_bandits.simulation.benchmark.instances import TRACKS, Instance, instances_of
from restless_bandits.simulation.benchmark.submissions import ScoreSummary, Submission, load_submission

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 330, 58, 150, 14, 46
LINE_HEIGHT = 13.0
"""The least distance between two labels of a picture."""
LEAST_CPU = 1e-2
"""The least CPU units on the axis of a picture."""
LOWEST_SHOWN = -0.25
"""The least score of a picture; lower scores stand at its floor."""


def write_page(folder: str | Path, out: str | Path) -> int:
    """Write the page and its pictures from the submissions of a folder; return the number of submissions."""
    folder, out = Path(folder), Path(out)
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ProblemError(f"{folder} holds no submissions; `restless benchmark run` writes one")
    found = [load_submission(path) for path in paths]
    sections = []
    for track, about in TRACKS.items():
        several = sorted((one for one in found if one.track == track), key=lambda one: -one.score.mean)
        if several:
            picture = out.with_name(f"benchmark-{track}.svg")
            save_file(picture, f"{_picture_of(several)}\n".encode())
            sections.append({"track": track, "about": f"{about[0].upper()}{about[1:]}", "picture": picture.name})
            sections[-1] |= _tables(instances_of(track), several)
    page = render("simulation/benchmark/page.md.j2", sections=sections)
    save_file(out, f"{page}\n".encode())
    return len(found)


def _tables(instances: Sequence[Instance], several: Sequence[Submission]) -> dict[str, Any]:
    """Return the tables of a track, by the names of the template."""
    names = [one.name for one in instances]
    return {
        "submissions": [_row(one) for one in several],
        "instances": names,
        "by_instance": [[one.name, *(f"{one.by_instance[name].mean:.3f}" for name in names)] for one in several],
        "references": [_reference_row(instance) for instance in instances],
        "published": _published(instances, several),
    }


def _row(one: Submission) -> list[str]:
    score, worst = one.score, one.by_instance[one.worst]
    revealed = ", ".join(one.entrant["revealed"])
    numbers = [f"{score.mean:.4f}", f"{score.low:.4f} to {score.high:.4f}", one.worst, f"{worst.mean:.4f}", _cpu(score)]
    seeds = one.seeds + (", full" if one.full else "")
    return [one.name, *numbers, str(score.failures), seeds, revealed, one.date]


def _cpu(score: ScoreSummary) -> str:
    return f"{score.cpu:.3g}" if math.isfinite(score.cpu) else ""


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


def _picture_of(several: Sequence[Submission]) -> str:
    """Return the picture of a track: score against CPU units, on a logarithmic axis."""
    shown = [one for one in several if math.isfinite(one.score.cpu)]
    units = [max(one.score.cpu, LEAST_CPU) for one in shown] or [1.0]
    low, high = math.floor(math.log10(min(units))), math.ceil(math.log10(max(units)) + 1e-9)
    floor = min(0.0, *(max(one.score.mean, LOWEST_SHOWN) for one in shown), 0.0)
    ceiling = max(1.0, *(one.score.high for one in shown), 1.0)

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(max(value, LEAST_CPU)) - low) / max(1, high - low)

    def up(value: float) -> float:
        share = (min(max(value, floor), ceiling) - floor) / (ceiling - floor)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share

    marks: list[dict[str, Any]] = []
    for one in sorted(shown, key=lambda submission: -submission.score.mean):
        y = up(one.score.mean)
        mark = {"x": across(one.score.cpu), "y": y, "low": up(one.score.low), "high": up(one.score.high)}
        label = max([y, *(other["label"] + LINE_HEIGHT for other in marks)])
        colour = "#b36b00" if one.entrant["revealed"] else "#00796b"
        marks.append(mark | {"label": label, "colour": colour, "name": one.name[:24]})
    return render(
        "simulation/benchmark/picture.svg.j2",
        n="{:.1f}".format,
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        right=WIDTH - RIGHT,
        top=TOP,
        floor=HEIGHT - BOTTOM,
        decades=[(across(10.0**decade), f"{10.0**decade:g}") for decade in range(low, high + 1)],
        scores=[
            (up(tick / 5), f"{tick / 5:g}") for tick in range(math.ceil(floor * 5), math.floor(ceiling * 5 + 1e-9) + 1)
        ],
        marks=marks,
    )
