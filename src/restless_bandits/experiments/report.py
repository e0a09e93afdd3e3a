"""What a reproduction has found, and how it is written: all numbers as JSON, and one HTML file that opens anywhere."""

from __future__ import annotations

import base64
import json
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restless_bandits import __version__, plots
from restless_bandits.arrays import plain
from restless_bandits.experiments.design import Design
from restless_bandits.experiments.items import Part
from restless_bandits.experiments.verdicts import (
    FAILS,
    FROM,
    HOLDS,
    LEVEL,
    LINEAR,
    NOT_RUN,
    UNDECIDED,
    Verdict,
    worded,
)
from restless_bandits.experiments.writing import Html, fill, fill_each, join
from restless_bandits.files import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BADGES = {HOLDS: "holds", FAILS: "fails", FROM: "from", UNDECIDED: "open", NOT_RUN: "none"}
TALLY = {HOLDS: "hold", FROM: "hold from some T on", FAILS: "do not", UNDECIDED: "undecided"}
THEORY = "theory"
"""The test of claims that are computed, not measured."""
LIBRARIES = ("numpy", "scipy", "numba", "matplotlib")
DPI = 130


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was measured, and what it says of the paper's claims."""

    plan: Design
    command: str
    seed: int
    parts: tuple[Part, ...]
    """One for each item."""
    verdicts: tuple[Verdict, ...]

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.item.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers of the report, as ``restless reproduce --json`` prints them."""
        numbers: dict[str, Any] = {"figures": [], "table": [], "build_seconds": {}, "posterior_at_truth": {}}
        for part in self.parts:
            for key, found in part.as_dict().items():
                numbers[key] = numbers[key] + found if isinstance(found, list) else numbers[key] | found
        return {
            "command": self.command,
            "quick": self.plan.quick,
            "seed": self.seed,
            **numbers,
            "claims": [verdict.as_dict() for verdict in self.verdicts],
        }


def write_report(found: Reproduction, place: Path) -> None:
    """Write the numbers, the figures, and the report that contains them."""
    text = json.dumps(plain(found.as_dict()), indent=1, ensure_ascii=False) + "\n"
    write_file(place / "results.json", text.encode())
    drawn = {}
    folder = place / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    labels = dict.fromkeys(line.label for protocol in found.plan.protocols for line in protocol.lines)
    colours = {label: plots.COLOURS[n % len(plots.COLOURS)] for n, label in enumerate(labels)}
    for part in found.parts:
        for name, draw in part.pictures(colours).items():
            png, svg = _picture(name, draw)
            write_file(folder / f"{name}.png", png)
            write_file(folder / f"{name}.svg", svg)
            drawn[name] = "data:image/svg+xml;base64," + base64.b64encode(svg).decode("ascii")
    write_file(place / "report.html", page(found, drawn).encode())


def _picture(name: str, draw: Callable[[], Figure]) -> tuple[bytes, bytes]:
    """A picture as PNG and as SVG, the same bytes every time."""
    import matplotlib

    # Names inside an SVG come from this salt; without it they would differ from one time to the next.
    with plots.style(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure = draw()
        png, svg = BytesIO(), BytesIO()
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return png.getvalue(), svg.getvalue()


def page(found: Reproduction, drawn: dict[str, str]) -> str:
    """Return the report as one HTML document."""
    links, chapters = [("ledger", "Claims"), ("theory", "What the paper proves")], []
    shown = [(part, html) for part in found.parts if (html := part.html(drawn))]
    for (mark, title), group in groupby(shown, key=lambda pair: pair[0].chapter):
        parts = list(group)
        links.append((mark, title))
        links += [(part.item.name, part.item.title) for part, _ in parts if part.item.name != mark]
        about, sections = parts[0][0].about, join(html for _, html in parts)
        chapters.append(fill("chapter", id=mark, title=title, about=about, parts=sections))
    links.append(("colophon", "How this was made"))
    versions = (
        ("command", fill("code", text=found.command)),
        ("seed", found.seed),
        ("restless-bandits", __version__),
        ("Python", platform.python_version()),
        *((name, version(name)) for name in LIBRARIES),
    )
    measured = [verdict for verdict in found.verdicts if verdict.claim.test != THEORY]
    proved = [verdict for verdict in found.verdicts if verdict.claim.test == THEORY]
    titles = {protocol.name: protocol.title for protocol in found.plan.protocols}
    counts = [(title, [one for one in measured if one.protocol == name]) for name, title in titles.items()]
    counts += [("times and posteriors", [one for one in measured if not one.protocol]), ("theory", proved)]
    return fill(
        "page",
        style=Html(resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")),
        size="a quick reproduction, with few runs" if found.plan.quick else "a reproduction",
        links=Html("\n".join(fill("link", target=target, title=title) for target, title in links)),
        counts=join(_count(title, verdicts) for title, verdicts in counts),
        level=f"{LEVEL:g}",
        linear=f"{LINEAR:g}",
        measured=_ledger(measured, titles),
        proved=_ledger(proved, {"": "what was found"}),
        chapters=Html("\n".join(chapters)),
        versions=join(fill("version", name=name, text=text) for name, text in versions),
    )


def _count(title: str, verdicts: Sequence[Verdict]) -> Html:
    """How many verdicts there are of each outcome."""
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    badges = (
        fill("badge", kind=kind, text=f"{outcomes[outcome]} {outcome.rstrip('≈ ')}")
        for outcome, kind in BADGES.items()
        if outcomes[outcome]
    )
    return fill("count", title=title, badges=join(badges)) if outcomes else Html()


def _ledger(verdicts: Sequence[Verdict], titles: dict[str, str]) -> Html:
    """The claims with their verdicts, a column for each protocol; one without protocols stands across all columns."""
    rows = []
    for claim, group in groupby(verdicts, key=lambda verdict: verdict.claim):
        badges = {verdict.protocol: _badge(verdict) for verdict in group}
        if "" in badges:
            cells = fill("only_verdict", columns=len(titles), text=badges[""])
        else:
            cells = fill_each("verdict", (badges.get(name, "–") for name in titles))
        rows.append(fill("claim", id=claim.id, text=claim.text, place=claim.place, verdicts=cells))
    return fill("ledger", heads=fill_each("ledger_head", titles.values()), rows=join(rows))


def _badge(verdict: Verdict) -> Html:
    """The verdict, and below it what it was made from."""
    badge = fill("badge", kind=BADGES[verdict.outcome], text=verdict.text)
    findings = [one for one in verdict.findings if one.outcome != NOT_RUN]
    if not findings:
        return badge
    tally = Counter(one.outcome for one in findings)
    summary = ", ".join(f"{tally[outcome]} {words}" for outcome, words in TALLY.items() if tally[outcome])
    items = join(fill("finding", where=one.where, outcome=worded(one), text=one.text) for one in findings)
    return join([badge, fill("evidence", summary=summary, findings=items)])
