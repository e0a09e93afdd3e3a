"""Completions for the tab key: names of problems, learners, oracles and items.

A shell asks for completions at every press of the key. So this module never loads the library, whose compiler takes a
second: names come from the registries, which load nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
FILES = (".toml", ".csv", ".parquet")
"""The ends of the names of files that hold problems."""


def one_of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a completion from names, which are computed at each request."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def builtin(incomplete: str) -> list[str]:
    """Built-in problems."""
    return sorted(path.stem for path in (PACKAGE / "model" / "problems").glob(f"{incomplete}*.toml"))


def problem(incomplete: str) -> list[str]:
    """Built-in problems, TOML files, tables of arms, and folders on the way to them."""
    return [*builtin(incomplete), *_files(incomplete)]


def item(incomplete: str) -> list[str]:
    """Items of ``restless reproduce``."""
    design = tomllib.loads((PACKAGE / "paper" / "experiments" / "paper.toml").read_text(encoding="utf-8"))
    return [entry["name"] for entry in design["items"] if entry["name"].startswith(incomplete)]


def _files(incomplete: str) -> Iterator[str]:
    folder, slash, start = incomplete.rpartition("/")
    folder += slash
    try:
        entries = sorted(Path(folder or ".").iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(start) and not entry.name.startswith("."):
            if entry.suffix in FILES:
                yield folder + entry.name
            elif entry.is_dir():
                yield folder + entry.name + "/"
