"""The report as one HTML file, made of what ``results.json`` holds and of nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import resources
from itertools import groupby

from restless_bandits.paper.experiments.agreement import AGREEMENT_BADGES, CHECK_BADGES
from restless_bandits.paper.experiments.comparing import LEVEL
from restless_bandits.paper.experiments.design import Design
from restless_bandits.paper.experiments.drawing import ChartStyle
from restless_bandits.paper.experiments.items import Numbers
from restless_bandits.paper.experiments.verdicts import BADGES, TALLY
from restless_bandits.paper.experiments.writing import Html, fill, fill_each, join, table


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
        about, sections = parts[0][0].about(looks), join(html for _, html in parts)
        chapters.append(fill("chapter", id=mark, title=title, about=about, parts=sections))
    links += [("choices", "What we chose", True), ("colophon", "How this was made", True)]
    versions = (("command", fill("code", text=numbers["command"])), ("seed", numbers["seed"]))
    theory = {claim.id for claim in plan.claims if claim.test == "theory"}
    measured = [verdict for verdict in numbers["claims"] if verdict["id"] not in theory]
    proved = [verdict for verdict in numbers["claims"] if verdict["id"] in theory]
    titles = {protocol.name: protocol.title for protocol in plan.protocols}
    counts = [(title, [one for one in measured if one["protocol"] == name]) for name, title in titles.items()]
    counts += [("times and posteriors", [one for one in measured if not one["protocol"]]), ("theory", proved)]
    return fill(
        "page",
        style=_asset("report.css"),
        script=_asset("report.js"),
        size=_size(confirmation) if confirmation else "a reproduction",
        confirmation=_confirmation(confirmation, numbers["versions"]) if confirmation else Html(),
        links=join(_link(*link) for link in links),
        counts=join(_count(title, verdicts) for title, verdicts in counts),
        level=f"{LEVEL:g}",
        measured=_ledger(measured, titles),
        proved=_ledger(proved, {"": "what was found"}),
        chapters=Html("\n".join(chapters)),
        choices=table(["what", "chosen"], plan.choices, "What we chose"),
        versions=join(
            fill("version", name=name, text=text) for name, text in (*versions, *numbers["versions"].items())
        ),
    )


def _asset(name: str) -> Html:
    return Html(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _link(target: str, title: str, chapter: bool) -> Html:
    return fill("link", target=target, title=title, inner="" if chapter else Html(' class="inner"'))


def _count(title: str, verdicts: Sequence[Numbers]) -> Html:
    outcomes = Counter(verdict["outcome"] for verdict in verdicts)
    badges = (
        fill("badge", kind=kind, text=f"{outcomes[outcome]} {outcome.split(' at T')[0].rstrip('≈ ')}")
        for outcome, kind in BADGES.items()
        if outcomes[outcome]
    )
    return fill("count", title=title, badges=join(badges)) if outcomes else Html()


def _size(confirmation: Numbers) -> str:
    return f"a full reproduction ({confirmation['origin']}), confirmed by a few runs on this machine,"


def _confirmation(found: Numbers, versions: Numbers) -> Html:
    """What was compared with the stored results, and whose code and libraries both are."""
    full = found["full"]
    renewed = f" (fingerprint renewed on {full['restamped']})" if full["restamped"] else ""
    rows = [
        ["date", f"{full['date']}{renewed}", "–"],
        ["code", full["code"], found["code"]],
        *([name, full["versions"].get(name, "–"), own] for name, own in versions.items()),
    ]
    checks = [
        [
            one["label"],
            fill("where", item=one["item"], protocol=one["protocol"]),
            fill("agreement", kind=CHECK_BADGES[one["outcome"]], text=one["said"]),
        ]
        for one in found["checks"]
    ]
    return fill(
        "confirmation",
        compared=found["said"],
        level=f"{found['level']:g}",
        origins=table(["", "full results", "this machine"], rows, "Code and versions"),
        checks=table(["line", "where", "compared with the stored results"], checks, "Comparisons"),
    )


def _ledger(verdicts: Sequence[Numbers], titles: dict[str, str]) -> Html:
    """The claims with their verdicts, a column for each protocol; one without protocols stands across all columns."""
    rows = []
    for mark, group in groupby(verdicts, key=lambda verdict: verdict["id"]):
        every = {verdict["protocol"]: verdict for verdict in group}
        if "" in every:
            cells = fill("only_verdict", columns=len(titles), text=_badge(every[""]))
        else:
            cells = join(
                fill("verdict", under=title, text=_badge(every[name]) if name in every else "–")
                for name, title in titles.items()
            )
        claim = next(iter(every.values()))
        rows.append(fill("claim", id=mark, text=claim["claim"], place=claim["place"], verdicts=cells))
    return fill("ledger", heads=fill_each("ledger_head", titles.values()), rows=join(rows))


def _badge(verdict: Numbers) -> Html:
    badge = fill("badge", kind=BADGES[verdict["outcome"]], text=verdict["verdict"])
    if agreement := verdict.get("agreement"):
        beside = fill("agreement", kind=AGREEMENT_BADGES[agreement["outcome"]], text=agreement["said"])
        badge = join([badge, " ", beside])
    findings = [one for one in verdict["findings"] if one["outcome"] in TALLY]
    if not findings:
        return badge
    tally = Counter(one["outcome"] for one in findings)
    summary = ", ".join(f"{tally[outcome]} {words}" for outcome, words in TALLY.items() if tally[outcome])
    items = join(fill("finding", where=one["where"], outcome=one["worded"], text=one["text"]) for one in findings)
    return join([badge, fill("evidence", summary=summary, findings=items)])
