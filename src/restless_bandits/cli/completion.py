"""What the tab key knows: names of problems, learners, oracles and items.

A shell asks at every press of a key, so nothing here may load the library, whose compiler takes a second. Names of
learners and oracles are therefore written down once more; a test holds them to the library's own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent

LEARNERS = (
    "likelihood-ucb",
    "restless-ucb",
    "dominance-ucb",
    "colored-ucrl2",
    "ts",
    "ts-9",
    "ts-4",
    "posterior",
    "rca",
    "dsee",
    "round-robin",
    "ucb1",
    "exact",
    "whittle",
    "myopic",
    "guha",
    "best-arm",
)
ORACLES = ("exact", "auto", "whittle", "myopic", "guha", "relaxation", "best-arm")
COMPARATORS = ("auto", "exact", "whittle", "myopic", "guha", "best-arm")
ENGINES = ("auto", "threads", "processes", "dask")


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a completion from fixed names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def builtin(incomplete: str) -> list[str]:
    """Built-in problems."""
    return [name for name in _builtin() if name.startswith(incomplete)]


def problem(incomplete: str) -> list[str]:
    """Built-in problems, TOML files, and folders on the way to them."""
    return [*builtin(incomplete), *_files(incomplete)]


def item(incomplete: str) -> list[str]:
    """What ``restless reproduce`` can reproduce."""
    design = tomllib.loads((PACKAGE / "experiments" / "paper.toml").read_text(encoding="utf-8"))
    names = [entry["name"] for entry in design["items"]]
    return [name for name in names if name.startswith(incomplete)]


def _builtin() -> list[str]:
    return sorted(path.stem for path in (PACKAGE / "problems").glob("*.toml"))


def _files(incomplete: str) -> Iterator[str]:
    typed = incomplete.rpartition("/")
    folder = typed[0] + typed[1]
    try:
        entries = sorted(Path(folder or ".").iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(typed[2]) and not entry.name.startswith("."):
            if entry.suffix == ".toml":
                yield folder + entry.name
            elif entry.is_dir():
                yield folder + entry.name + "/"
