"""The problem of a command: a built-in name, a TOML file or a table of arms, with another number of arms or plays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from restless_bandits._internal.errors import ProblemError

if TYPE_CHECKING:
    from restless_bandits.model.problem import Problem

TABLES = (".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson")

ArmsOption = Annotated[
    int | None,
    typer.Option(help="Number of arms, in the proportions of kinds and plays of the problem.", metavar="N"),
]
PlaysOption = Annotated[int | None, typer.Option(help="Number of plays a slot.", metavar="B")]
ObservedOption = Annotated[
    str | None,
    typer.Option(help="What is seen of a table of arms: all, or pulled.", metavar="WHAT", show_default="all"),
]
KindsOption = Annotated[
    str | None,
    typer.Option(help="Kinds of arms named in a table: a TOML file or a built-in name.", metavar="FILE"),
]


def is_table(name: str) -> bool:
    """Whether PROBLEM is a table of arms, by the end of its name."""
    return name.lower().removesuffix(".gz").endswith(TABLES)


def read_problem(
    name: str,
    arms: int | None = None,
    plays: int | None = None,
    observed: str | None = None,
    kinds: str | None = None,
    *,
    default_plays: int | None = None,
) -> Problem:
    """Return the problem of a command; ``default_plays`` is for commands that need no plays of a table."""
    from restless_bandits.model.problem import Problem, load_problem

    if not is_table(name):
        if observed is not None or kinds is not None:
            given = "--observed" if observed is not None else "--kinds"
            raise ProblemError(f"{given} is for tables of arms, and {name} is none; write it into the problem")
        stated = load_problem(name)
        if arms is not None:
            return stated.with_arms(arms, plays=plays)
        return stated if plays is None else stated.with_plays(plays)
    if arms is not None:
        raise ProblemError(f"--arms is for kinds of arms, and {name} has a row for each arm; leave --arms out")
    plays = default_plays if plays is None else plays
    if plays is None:
        raise ProblemError(f"{name} is a table of arms, which has no number of plays; give --plays")
    return Problem.from_table(
        name,
        plays=plays,
        kinds=None if kinds is None else load_problem(kinds),
        observed=cast(Literal["all", "pulled"], observed or "all"),
        name=Path(name).name,
    )


def check_output(option: str, out: Path | None, *others: str | Path | None) -> None:
    """Refuse an unwritable file, one of the other files, and a name of another format than CSV."""
    from restless_bandits._internal.files import check_writable, same_file

    if out is None:
        return
    check_writable(out)
    # A built-in problem may share its name with a file to write.
    files = [one for one in others if isinstance(one, Path) or (one is not None and Path(one).is_file())]
    if any(same_file(out, one) for one in files):
        raise ProblemError(f"{option} is {out}, which another part of the command names too; name another file")
    if is_table(out.name) and out.suffix.lower() != ".csv":
        raise ProblemError(f"{option} is {out}, and tables are written as CSV; name a file that ends in .csv")
