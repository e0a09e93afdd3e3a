"""The least regret that is possible on every built-in problem: the table of docs/theory/limit.md.

``python -m benchmarks.limits`` computes all that are within reach, a minute or two, and keeps them in
docs/benchmarks/limits.json; with names it computes only those anew. The page is written from what is kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import restless_bandits as rb
from benchmarks.pages import DOCS, filled, keep, load

PAGE, KEPT = DOCS / "theory" / "limit.md", "limits"


def measure(name: str) -> dict[str, Any]:
    """Return the limit of one problem, or why there is none."""
    started = time.process_time()
    try:
        found = rb.theory.regret_limit(rb.Problem.builtin(name))
    except rb.ProblemError as error:
        return {"refused": str(error)}
    numbers = {key: round(float(getattr(found, key)), 4) for key in ("lower", "upper", "margin")}
    others = {"exact": found.exact, "unused": list(found.unused), "seconds": round(time.process_time() - started, 1)}
    return numbers | others


def table(kept: Mapping[str, Any]) -> str:
    lines = ["| problem | limit | not identified | margin | seconds |", "|---|---|---|---|---|"]
    for name, found in kept.items():
        if "refused" in found:
            lines.append(f"| {name} | not in reach: {found['refused']} | | | |")
            continue
        limit = f"{found['lower']:.2f} to {found['upper']:.2f}" if found["upper"] else "0"
        if not found["exact"]:
            limit += ", one arm at a time"
        unused = ", ".join(found["unused"]) or "–"
        lines.append(f"| {name} | {limit} | {unused} | {found['margin']:.2g} | {found['seconds']:g} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page as the kept results say."""
    from benchmarks import certainty

    return filled(
        page, {"limits": lambda: table(load(KEPT)), "certainty": lambda: certainty.table(load(certainty.KEPT))}
    )


def write() -> None:
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def main(names: Sequence[str]) -> None:
    kept = load(KEPT)
    for name in names or rb.builtin_problems(()):
        kept[name] = measure(name)
    keep(KEPT, {name: kept[name] for name in rb.builtin_problems(()) if name in kept})
    write()


if __name__ == "__main__":
    main(sys.argv[1:])
