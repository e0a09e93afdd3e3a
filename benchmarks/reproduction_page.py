"""The numbers of docs/reproduction.md and the report, from a full reproduction that is kept beside the page.

``python -m benchmarks.reproduction_page out`` takes the results, the report and the figures of a finished
``restless reproduce --out out`` into docs/reproduction, and stores them in the package with the first runs of each
line, for the quick form to confirm; without a folder the page and the report are written anew from the results that are
there.
Parts of the page between ``<!-- name -->`` and ``<!-- end -->`` are written, everything else is left as it is, and
tests/paper/test_reproduction_page.py compares the two.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pages import DOCS, filled
from restless_bandits.paper.experiments.design import design
from restless_bandits.paper.experiments.page import page as page_of
from restless_bandits.paper.experiments.reproduction import with_sample
from restless_bandits.paper.experiments.stored import shipped_folder
from restless_bandits.paper.experiments.writing import amount, error_of, seconds, slots

PAGE, KEPT = DOCS / "reproduction.md", DOCS / "reproduction"
REPORT = KEPT / "report.html"

Results = dict[str, Any]


def main() -> None:
    if len(sys.argv) > 1:
        keep(Path(sys.argv[1]))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), results()), encoding="utf-8")
    REPORT.write_text(report(results()), encoding="utf-8")


def keep(out: Path) -> None:
    """Take over what a reader wants of a reproduction; what was played stays where it is."""
    shutil.rmtree(KEPT, ignore_errors=True)
    (KEPT / "figures").mkdir(parents=True)
    for name in ("results.json", "report.html"):
        shutil.copy(out / name, KEPT / name)
    for figure in sorted((out / "figures").glob("*.png")):
        shutil.copy(figure, KEPT / "figures" / figure.name)
    with_sample(out).write(shipped_folder())


def results() -> Results:
    found: Results = json.loads((KEPT / "results.json").read_text(encoding="utf-8"))
    return found


def report(found: Results) -> str:
    """Return the report on the results; nothing is played for it."""
    return page_of(design(), found)


def written(page: str, found: Results) -> str:
    """Return the page with every marked part made from the results."""
    return filled(page, {name: partial(part, found) for name, part in PARTS.items()})


OUTCOMES = ("holds from T", "holds", "does not hold here", "not yet", "undecided", "no violation")


def run_by(found: Results) -> str:
    counts = Counter(next(one for one in OUTCOMES if claim["verdict"].startswith(one)) for claim in found["claims"])
    verdicts = ", ".join(
        f"{counts[one]} *{one}{' some T on' * one.endswith('from')}*" for one in OUTCOMES if counts[one]
    )
    waited = found["weather"]["waited"]
    return (
        f"A full run, `{found['command']}`, seed {found['seed']}. Its {len(found['claims'])} verdicts:\n{verdicts}.\n"
        f"While times were measured runs waited {waited:.0%} of the time for the processor."
    )


def regret(protocol: str) -> Callable[[Results], str]:
    """A table of the regret at the end of each figure."""

    def table(found: Results) -> str:
        figures = [figure for figure in found["figures"] if figure["protocol"] == protocol]
        labels = list(dict.fromkeys(line["learner"] for figure in figures for line in figure["lines"]))
        rows = []
        for figure in figures:
            lines = {line["learner"]: line for line in figure["lines"]}
            end = min(line["horizons"][-1] for line in lines.values())
            cells = [_at(lines[label], end) if label in lines else "–" for label in labels]
            runs = min(line["runs"] for line in lines.values())
            rows.append([f"{_title(figure['item'])}, T = {slots(end)}", *cells, str(runs)])
        return _table(["", *labels, "runs"], rows)

    return table


def _at(line: Results, horizon: int) -> str:
    j = line["horizons"].index(horizon)
    text = f"{amount(line['regret_mean'][j])} ± {error_of(line['regret_stderr'][j])}"
    # A number stays on one line, however narrow the column.
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _title(item: str) -> str:
    return next(one.title for one in design().items if one.name == item)


def times(found: Results) -> str:
    arms = sorted({entry["arms"] for entry in found["table"]})
    by_learner: dict[str, dict[int, float]] = {}
    for entry in found["table"]:
        by_learner.setdefault(entry["learner"], {})[entry["arms"]] = entry["seconds"]
    rows = [
        [label, *(seconds(by_arms[n]) if n in by_arms else "–" for n in arms)] for label, by_arms in by_learner.items()
    ]
    return _table(["", *(f"{n} arms" for n in arms)], rows)


def ledger(found: Results) -> str:
    """Every claim with its verdicts: one for each protocol, or one."""
    by_claim: dict[str, dict[str, str]] = {}
    for entry in found["claims"]:
        by_claim.setdefault(entry["claim"], {})[entry["protocol"]] = entry["verdict"]
    rows = [
        [claim, verdicts.get("published", verdicts.get("", "–")), verdicts.get("fair", "" if "" in verdicts else "–")]
        for claim, verdicts in by_claim.items()
    ]
    return _table(["claim", "published protocol", "fair protocol"], rows)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [heads, ["---"] * len(heads), *rows])


PARTS: dict[str, Callable[[Results], str]] = {
    "run": run_by,
    "published": regret("published"),
    "fair": regret("fair"),
    "times": times,
    "ledger": ledger,
}
"""What writes each part of the page, by its mark."""

if __name__ == "__main__":
    main()
