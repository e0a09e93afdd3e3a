"""The report: one HTML file that opens anywhere, with every figure inside it."""

from __future__ import annotations

import base64
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path

from restless_bandits import __version__
from restless_bandits.experiments.curves import Curve, Panel
from restless_bandits.experiments.design import Claim, Item
from restless_bandits.experiments.figures import pictures
from restless_bandits.experiments.reproduction import Reproduction
from restless_bandits.experiments.verdicts import (
    FAILS,
    FROM,
    HOLDS,
    LEVEL,
    LINEAR,
    NOT_RUN,
    UNDECIDED,
    Verdict,
    amount,
    error_of,
    lower_along,
    seconds,
    slots,
)
from restless_bandits.files import write_file

BADGES = {HOLDS: "holds", FAILS: "fails", FROM: "from", UNDECIDED: "open", NOT_RUN: "none"}
THEORY = "theory"
"""The test of claims that are computed, not measured."""
LIBRARIES = ("numpy", "scipy", "numba", "matplotlib")

STYLE = """
:root { --ink: #1b2733; --soft: #5b6b7a; --line: #dde3e9; --paper: #ffffff; --tint: #f5f7f9;
  --holds: #0a7a50; --fails: #b5371b; --from: #9a6a00; --open: #5b6b7a; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--tint); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .8rem; }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; }
p { max-width: 78ch; }
nav { margin: 1rem 0 0; font-size: .92rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
a { color: #0b5d8f; }
.lead { font-size: 1.05rem; color: var(--soft); max-width: 75ch; margin: 0; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 1.1rem 1.3rem;
  margin: 0 0 1.2rem; overflow-x: auto; }
.place, .note { color: var(--soft); font-size: .88rem; margin: 0 0 .6rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; color: var(--soft); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.text { text-align: left; }
tr:last-child td { border-bottom: 0; }
code { font: .88em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
img { display: block; width: 100%; height: auto; margin: .4rem 0; }
img.narrow { max-width: 640px; }
.badge { display: inline-block; padding: .05rem .55rem; border-radius: 1rem; font-size: .85rem; font-weight: 600;
  color: #fff; background: var(--open); white-space: nowrap; }
.badge.holds { background: var(--holds); } .badge.fails { background: var(--fails); }
.badge.from { background: var(--from); } .badge.open { background: var(--open); }
.badge.none { background: transparent; color: var(--soft); border: 1px solid var(--line); }
details { margin-top: .35rem; } summary { cursor: pointer; color: var(--soft); font-size: .88rem; }
details ul { margin: .3rem 0 .2rem; padding-left: 1.1rem; font-size: .88rem; }
.counts { display: flex; flex-wrap: wrap; gap: 1.2rem; margin: 1.2rem 0 0; }
.counts div { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1.1rem; }
.counts b { display: block; font-size: .85rem; color: var(--soft); margin-bottom: .3rem; }
.counts .badge { margin-right: .5rem; }
.ledger td.text { min-width: 15rem; max-width: 24rem; }
@media print { body { background: #fff; } details { display: block; } .card { break-inside: avoid; } }
"""


def write_report(found: Reproduction, place: Path) -> None:
    """Write the figures, and the report that contains them."""
    drawn = {}
    folder = place / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures(found):
        write_file(folder / f"{picture.name}.png", picture.png)
        write_file(folder / f"{picture.name}.svg", picture.svg)
        drawn[picture.name] = "data:image/svg+xml;base64," + base64.b64encode(picture.svg).decode("ascii")
    write_file(place / "report.html", page(found, drawn).encode())


def page(found: Reproduction, drawn: dict[str, str]) -> str:
    """Return the report as one HTML document."""
    parts = [_head(found), _ledger(found)]
    if found.plan.items:
        parts.append('<h2 id="figures">Figures</h2>')
        parts += [f"<p><b>{escape(p.title.capitalize())}.</b> {escape(p.about)}</p>" for p in found.plan.protocols]
        parts.append(
            "<p>Bands are 95 % confidence intervals of the mean. A line that must be told its horizon is played anew "
            "for each one; the others are read along one run.</p>"
        )
        parts += [_figure(found, item, drawn[item.name]) for item in found.plan.items]
    if found.times:
        parts.append(_times(found, drawn["table-1"]))
    if found.stretch is not None:
        parts.append(_inside(found, drawn))
    parts.append(_colophon(found))
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Restless-UCB, reproduced</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def _head(found: Reproduction) -> str:
    links = [("#ledger", "Claims"), ("#theory", "What the paper proves")]
    links += [("#figures", "Figures")] if found.plan.items else []
    links += [(f"#{item.name}", item.title) for item in found.plan.items]
    links += [("#table-1", "Running times")] if found.times else []
    links += [("#inside", "Inside the learners")] if found.stretch is not None else []
    links.append(("#colophon", "How this was made"))
    nav = "\n".join(f'<a href="{target}">{escape(title)}</a>' for target, title in links)
    size = "a quick reproduction, with few runs" if found.plan.quick else "a reproduction"
    return (
        "<h1>Restless-UCB, reproduced</h1>\n"
        f'<p class="lead">Wang, Huang and Lui, NeurIPS 2020: {size} of every experiment of the paper, and a verdict on '
        "every claim it makes of them. Verdicts are computed, from the runs below and from the paper's formulas.</p>\n"
        f"<nav>{nav}</nav>\n{_counts(found)}"
    )


def _counts(found: Reproduction) -> str:
    boxes = []
    groups = [(protocol.title, protocol.name, False) for protocol in found.plan.protocols]
    for title, protocol, theory in (*groups, ("times and posteriors", "", False), ("theory", "", True)):
        outcomes = Counter(
            verdict.outcome
            for verdict in found.verdicts
            if verdict.protocol == protocol and (verdict.claim.test == THEORY) == theory
        )
        badges = "".join(
            f'<span class="badge {BADGES[outcome]}">{outcomes[outcome]} {escape(outcome.rstrip("≈ "))}</span>'
            for outcome in BADGES
            if outcomes[outcome]
        )
        if badges:
            boxes.append(f"<div><b>{escape(title)}</b>{badges}</div>")
    return f'<div class="counts">{"".join(boxes)}</div>'


def _badge(verdict: Verdict) -> str:
    items = "".join(
        f"<li><b>{escape(one.where)}</b> {escape(one.outcome if one.from_horizon is None else FROM)}"
        f"{'' if one.from_horizon is None else ' ' + slots(one.from_horizon)}: {escape(one.text)}</li>"
        for one in verdict.findings
        if one.outcome != NOT_RUN
    )
    tally = Counter(one.outcome for one in verdict.findings)
    parts = [f"{tally[HOLDS]} hold", f"{tally[FROM]} hold from some T on", f"{tally[FAILS]} do not"]
    parts.append(f"{tally[UNDECIDED]} undecided")
    summary = "evidence: " + ", ".join(part for part in parts if not part.startswith("0 "))
    evidence = f"<details><summary>{summary}</summary><ul>{items}</ul></details>" if items else ""
    return f'<span class="badge {BADGES[verdict.outcome]}">{escape(verdict.text)}</span>{evidence}'


def _ledger(found: Reproduction) -> str:
    return (
        '<h2 id="ledger">The claims, and what was found</h2>\n'
        f"<p>A claim holds where all of its parts do and fails where one does. Two lines are compared by their mean "
        f"regret, run by run, two-sided at a level of {LEVEL:g}; growth is the exponent of T over the last decade, "
        f"called linear above {LINEAR:g}. Whatever does not reach that is undecided.</p>\n"
        f"{_ledger_table(found, theory=False)}"
        '<h3 id="theory">What the paper proves</h3>\n'
        "<p>Lemmas and theorems, with every constant, computed on the problems of the figures and on one with five "
        "states. <i>Holds from T</i> says from where on a bound is below what there is to lose at all.</p>\n"
        f"{_ledger_table(found, theory=True)}"
    )


def _ledger_table(found: Reproduction, *, theory: bool) -> str:
    by_claim: dict[str, dict[str, Verdict]] = {}
    claims: dict[str, Claim] = {}
    for verdict in found.verdicts:
        if (verdict.claim.test == THEORY) == theory:
            by_claim.setdefault(verdict.claim.id, {})[verdict.protocol] = verdict
            claims[verdict.claim.id] = verdict.claim
    protocols = [] if theory else [protocol.name for protocol in found.plan.protocols]
    rows = []
    for key, verdicts in by_claim.items():
        claim = claims[key]
        cells = "".join(
            f'<td class="text">{_badge(verdicts[name])}</td>' if name in verdicts else '<td class="text">–</td>'
            for name in protocols
        )
        if "" in verdicts:
            cells = f'<td class="text" colspan="{max(1, len(protocols))}">{_badge(verdicts[""])}</td>'
        text = f'{escape(claim.text)}<div class="place">{escape(claim.place)}</div>'
        rows.append(f'<tr id="claim-{escape(key)}"><td class="text">{text}</td>{cells}</tr>')
    titles = ["what was found"] if theory else [protocol.title for protocol in found.plan.protocols]
    heads = "".join(f'<th style="text-align:left">{escape(title)}</th>' for title in titles)
    return (
        f'<div class="card"><table class="ledger"><thead><tr><th>claim</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _figure(found: Reproduction, item: Item, source: str) -> str:
    tables = "".join(_panel_table(found.panel(item.name, one.name), one.title) for one in found.plan.protocols)
    note = f'<p class="note">{escape(item.note)}</p>' if item.note else ""
    meetings = _meetings(found.panel(item.name, "fair"))
    return (
        f'<section class="card" id="{item.name}"><h3>{escape(item.title)}</h3>'
        f'<p class="place">{escape(item.place)}; problem <code>{escape(item.problem)}</code></p>{note}'
        f'<img src="{source}" alt="{escape(item.title)}: regret against slots under both protocols">'
        f"{tables}<details><summary>at which T do the lines cross?</summary><ul>{meetings}</ul></details></section>"
    )


def _meetings(panel: Panel) -> str:
    """How Restless-UCB fares against every other line of the fair protocol, and where that changes."""
    mine = panel.curve("Restless-UCB")
    others = [curve for curve in panel.curves if curve is not mine]
    if mine is None:
        return ""
    found = [lower_along(mine, other, panel.item) for other in others]
    return "".join(f"<li>{escape(one.text)}</li>" for one in found)


def _panel_table(panel: Panel, title: str) -> str:
    shown = _shown_horizons(panel.curves)
    heads = "".join(f"<th>T = {slots(t)}</th>" for t in shown)
    rows = []
    for curve in panel.curves:
        cells = []
        for t in shown:
            if t in curve.horizons:
                j = curve.column(t)
                cells.append(f"<td>{amount(float(curve.mean[j]))} ± {error_of(float(curve.stderr[j]))}</td>")
            else:
                cells.append("<td>–</td>")
        spread = float(curve.spread[:, -1].std(ddof=1))
        rows.append(
            f"<tr><td>{escape(curve.label)} <code>{escape(curve.spec)}</code></td>{''.join(cells)}"
            f"<td>{amount(spread)}</td><td>{amount(float(curve.worst[-1]))}</td><td>{curve.runs}</td></tr>"
        )
    against = panel.comparator
    first = panel.curves[0]
    known = f" ± {(against.upper - against.lower) / 2:.2g}" if against.upper > against.lower else ""
    caption = (
        f"{title.capitalize()}: {first.kind} regret against {against.gain:.9g}{known} a slot ({against.kind}); mean ± "
        f"standard error, and at the end the standard deviation ({first.spread_kind}) and the worst run"
    )
    return (
        f'<p class="note">{escape(caption)}</p><table><thead><tr><th>learner</th>{heads}<th>sd</th><th>worst</th>'
        f"<th>runs</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _shown_horizons(curves: Sequence[Curve]) -> list[int]:
    """A few horizons for a table: powers of ten, and the last one."""
    every = sorted({int(t) for curve in curves for t in curve.horizons})
    return [t for t in every if t in (10_000, 100_000, 1_000_000, 10_000_000) or t == every[-1]]


def _times(found: Reproduction, source: str) -> str:
    table = found.plan.table
    assert table is not None
    heads = "".join(f"<th>{arms} arms</th>" for arms in table.arms)
    rows = []
    for line in table.lines:
        cells = []
        for arms, paper in zip(table.arms, line.paper, strict=True):
            spent = found.times[line.label][arms]
            cells.append(f"<td>{seconds(float(spent.mean()))} <span class='note'>of {paper:g} s</span></td>")
        runs = ", ".join(str(one) for one in line.runs)
        rows.append(
            f"<tr><td>{escape(line.label)} <code>{escape(line.spec)}</code></td>{''.join(cells)}<td>{runs}</td></tr>"
        )
    build = ", ".join(f"{n} arms {seconds(spent)}" for n, spent in found.build_times.items())
    return (
        f'<h2 id="table-1">Running times</h2><section class="card"><h3>{escape(table.title)}</h3>'
        f'<p class="place">{escape(table.place)}; T = {slots(table.horizon)}, one thread of {escape(found.timed_on)}; '
        "after each time the one printed in the paper</p>"
        f"<table><thead><tr><th>learner</th>{heads}<th>runs</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f'<img class="narrow" src="{source}" alt="running times against the number of arms">'
        f"<p>To build the optimistic instance of Restless-UCB takes: {escape(build)}.</p></section>"
    )


def _inside(found: Reproduction, drawn: dict[str, str]) -> str:
    assert found.stretch is not None
    last = found.stretch.first + len(found.stretch.arms) - 1
    weights = "; ".join(
        f"on {escape(name)} {values.mean():.4f} on average over {len(values)} runs, least {values.min():.2g}"
        for name, values in found.posteriors.items()
    )
    return (
        '<h2 id="inside">Inside the learners</h2>'
        f'<section class="card"><h3>From exploring to committing</h3><p class="place">'
        f"<code>{escape(found.stretch.learner)}</code> on <code>{escape(found.stretch.problem.name)}</code>, slots "
        f"{found.stretch.first} to {last} of one run</p>"
        f'<img src="{drawn["raster"]}" alt="arm pulled in each slot with the true states behind"></section>'
        '<section class="card"><h3>Estimated and true chains</h3>'
        '<p class="place">Restless-UCB, at its commitment: what it estimates, and the optimistic chain that it plans '
        "on</p>"
        f'<img src="{drawn["estimates"]}" alt="estimated against true parameters"></section>'
        '<section class="card"><h3>What TS-9 believes</h3>'
        f"<p>Posterior weight of the true chains of all arms: {weights}.</p></section>"
    )


def _colophon(found: Reproduction) -> str:
    rows: Iterable[tuple[str, str]] = (
        ("command", f"<code>{escape(found.command)}</code>"),
        ("seed", str(found.seed)),
        ("restless-bandits", __version__),
        ("Python", platform.python_version()),
        *((name, version(name)) for name in LIBRARIES),
    )
    body = "".join(f'<tr><td>{escape(name)}</td><td class="text">{value}</td></tr>' for name, value in rows)
    return (
        f'<h2 id="colophon">How this was made</h2><div class="card"><table><tbody>{body}</tbody></table>'
        "<p>Run r of a learner hangs on the seed, the problem and r alone: the same command gives the same numbers on "
        "any number of cores, and the same bytes with the same versions on one kind of processor; running times are "
        "measurements. All numbers are in <code>results.json</code> beside this file, the figures as PNG and SVG in "
        "<code>figures</code>.</p></div>"
    )
