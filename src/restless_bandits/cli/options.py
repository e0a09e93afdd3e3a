"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from restless_bandits.cli import completion
from restless_bandits.registry import ALIASES, DEFAULT, DEFAULT_OBSERVED, ENGINES, LEARNERS, learner_names

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
        help=f"name or name:key=value,…, once for each learner; {DEFAULT} if none, or {DEFAULT_OBSERVED} for arms that "
        "are all observed. Names: "
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
