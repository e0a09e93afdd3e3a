"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from restless_bandits.cli import completion
from restless_bandits.registry import (
    ALIASES,
    DEFAULT,
    DEFAULT_OBSERVED,
    DEFAULT_REACTING,
    ENGINES,
    LEARNERS,
    learner_names,
)

ProblemArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM",
        help="A built-in name, a TOML file, or a table with a row for each arm (CSV, Parquet).",
        autocompletion=completion.problem,
    ),
]
LearnerOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC",
        help=f"name or name:key=value,…, once for each learner; if none, {DEFAULT}, {DEFAULT_REACTING} for arms that "
        f"react, or {DEFAULT_OBSERVED} for arms that are all observed. Names: "
        + ", ".join([*LEARNERS.own, *ALIASES])
        + ", those of installed plug-ins, or package.module:Class.",
        autocompletion=completion.one_of(learner_names),
    ),
]
SeedOption = Annotated[int, typer.Option(help="Same seed, same numbers.", metavar="N")]
JobsOption = Annotated[str, typer.Option(help="Number of parallel runs; does not change the numbers.", metavar="N")]
EngineOption = Annotated[
    str,
    typer.Option(
        help="threads, processes (faster for learners that plan often), dask or auto.",
        metavar="WHO",
        autocompletion=completion.one_of(lambda: ENGINES),
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(help="Address of a Dask scheduler, whose workers play: tcp://HOST:PORT.", metavar="ADDRESS"),
]
PieceOption = Annotated[
    int, typer.Option(help="Number of a piece of a changing problem, from 1 on.", metavar="N", show_default="1")
]


def whole_number(text: str) -> int:
    """Read an integer, which may be written as 1e4; any other text is a usage error."""
    from restless_bandits._internal.validation import as_whole, is_whole

    for read in (int, float):
        try:
            number = as_whole(read(text))
        except ValueError:
            continue
        if is_whole(number):
            return int(number)
    raise typer.BadParameter(f"{text!r} is not a whole number.")


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
