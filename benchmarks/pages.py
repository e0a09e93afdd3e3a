"""Pages of the documentation whose numbers come from kept results.

What is measured is kept as JSON in docs/benchmarks. Parts of a page between ``<!-- name -->`` and ``<!-- end -->`` are
written from it, everything else is left as it is, and tests compare the two. ``python -m benchmarks.pages`` writes
docs/benchmarks.md anew from what is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, FOLDER = DOCS / "benchmarks.md", DOCS / "benchmarks"


def filled(page: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with every marked part made anew."""

    def part(mark: re.Match[str]) -> str:
        return f"<!-- {mark[1]} -->\n\n{parts[mark[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", part, page, flags=re.DOTALL)


def load(name: str) -> dict[str, Any]:
    """Return what was kept under a name, nothing if there is none."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def keep(name: str, found: Mapping[str, Any]) -> None:
    FOLDER.mkdir(exist_ok=True)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    (FOLDER / f"{name}.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def written(page: str) -> str:
    """Return docs/benchmarks.md as the kept results say."""
    from benchmarks import earnings, planning, scale, service

    parts = {
        "scale": lambda: scale.table(load(scale.KEPT)),
        "planning": lambda: planning.table(load(planning.KEPT)),
        "earnings": lambda: earnings.tables(load(earnings.KEPT)),
        "problems": lambda: earnings.other_table(load(earnings.OTHERS)),
        "service": lambda: service.table(load(service.KEPT)),
    }
    return filled(page, parts)


def write() -> None:
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
