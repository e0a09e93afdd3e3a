"""The report as one HTML file, made of what ``results.json`` holds and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from restless_bandits._internal.charts import ChartStyle
from restless_bandits._internal.templates import render
from restless_bandits.paper.experiments.agreement import AGREEMENT_BADGES, CHECK_BADGES
from restless_bandits.paper.experiments.comparing import LEVEL
from restless_bandits.paper.experiments.design import Design
from restless_bandits.paper.experiments.items import Numbers
from restless_bandits.paper.experiments.verdicts import BADGES, TALLY

NAMES = {"badges": BADGES, "agreements": AGREEMENT_BADGES, "checks": CHECK_BADGES, "tally": TALLY}
"""Classes and words of outcomes."""


def looks_of(plan: Design) -> ChartStyle:
    """Return the number of the colour of each line, the same in all figures."""
    labels = dict.fromkeys(line.label for protocol in plan.protocols for line in protocol.lines)
    return {label: n for n, label in enumerate(labels)}


def page(plan: Design, numbers: Numbers) -> str:
    """Return the report on a design that was run, from its results as they are stored."""
    looks = looks_of(plan)
    confirmation = numbers.get("confirmation")
    links = [("confirmation", "What this machine confirms", True)] if confirmation else []
    links += [("ledger", "Claims", True), ("theory", "What the paper proves", False)]
    chapters = []
    shown = [(item, html) for item in plan.items if (html := item.section(numbers, looks))]
    for (mark, title), group in groupby(shown, key=lambda pair: pair[0].chapter):
        parts = list(group)
        links.append((mark, title, True))
        links += [(item.name, item.title, False) for item, _ in parts if item.name != mark]
        chapters.append((mark, title, parts[0][0].about(looks), [html for _, html in parts]))
    links += [("choices", "What we chose", True), ("colophon", "How this was made", True)]
    theory = {claim.id for claim in plan.claims if claim.test == "theory"}
    measured = [verdict for verdict in numbers["claims"] if verdict["id"] not in theory]
    proved = [verdict for verdict in numbers["claims"] if verdict["id"] in theory]
    titles = {protocol.name: protocol.title for protocol in plan.protocols}
    counted = [(title, [one for one in measured if one["protocol"] == name]) for name, title in titles.items()]
    counted += [("times and posteriors", [one for one in measured if not one["protocol"]]), ("theory", proved)]
    return render(
        "paper/experiments/report.html.j2",
        names=NAMES,
        confirmation=confirmation,
        origins=_origins(confirmation, numbers["versions"]) if confirmation else [],
        links=links,
        counts=[(title, Counter(one["outcome"] for one in verdicts)) for title, verdicts in counted],
        level=f"{LEVEL:g}",
        titles=titles,
        measured=_claims(measured),
        proved=_claims(proved),
        chapters=chapters,
        choices=plan.choices,
        command=numbers["command"],
        versions=[("seed", numbers["seed"]), *numbers["versions"].items()],
    )


def _origins(found: Numbers, versions: Numbers) -> list[list[str]]:
    """The code and the libraries of the stored results and of this machine."""
    full = found["full"]
    renewed = f" (fingerprint renewed on {full['restamped']})" if full["restamped"] else ""
    return [
        ["date", f"{full['date']}{renewed}", "–"],
        ["code", full["code"], found["code"]],
        *([name, full["versions"].get(name, "–"), own] for name, own in versions.items()),
    ]


def _claims(verdicts: Iterable[Numbers]) -> list[Numbers]:
    """The claims with their verdicts by protocol; a verdict without a protocol stands across all columns."""
    found: list[Numbers] = []
    for _, group in groupby(verdicts, key=lambda verdict: verdict["id"]):
        every: dict[str, Numbers] = {verdict["protocol"]: {"agreement": None, **verdict} for verdict in group}
        claim = next(iter(every.values()))
        found.append({**claim, "verdicts": every})
    return found
