"""What ``restless fit`` and ``restless replay`` share: the options that say how a log is read, and the reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from restless_bandits.errors import ProblemError

if TYPE_CHECKING:
    from restless_bandits.data import Trace

Number = TypeVar("Number", int, float)

TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE.csv", help="Columns time, arm, state or value, and perhaps reward.")
]
StatesOption = Annotated[
    int | None, typer.Option(metavar="M", help="Bin values into M states by quantiles.", show_default="2")
]
EdgesOption = Annotated[str | None, typer.Option(metavar="A,B,…", help="Bin values at these edges instead.")]
LowOption = Annotated[bool, typer.Option("--low-is-better", help="Low values are the good ones; else high ones are.")]
RewardsOption = Annotated[
    str | None,
    typer.Option(
        metavar="R,R,…",
        help="The reward of each state, best first, in place of logged ones.",
        show_default="logged, or evenly from 1 to 0",
    ),
]
RangeOption = Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="What logged rewards lie between.")]
SlotOption = Annotated[
    float | None, typer.Option(metavar="LENGTH", help="Round times to slots of this length, counted from the first.")
]
ShapeOption = Annotated[str, typer.Option(metavar="SHAPE", help="Chains: birth-death, or free (any moves).")]


def read_log(path: Path, edges: str | None, rewards: str | None, reward_range: str | None, **others: Any) -> Trace:
    """Read a log by what was given on the command line."""
    ends = numbers(reward_range, "--reward-range", float)
    if ends is not None and len(ends) != 2:
        raise ProblemError(f"--reward-range is {reward_range!r}; give the lowest and the highest reward, such as 0,100")
    from restless_bandits import data

    cuts, means = numbers(edges, "--edges", float), numbers(rewards, "--rewards", float)
    scale = None if ends is None else (ends[0], ends[1])
    return data.read_trace(path, edges=cuts, rewards=means, reward_range=scale, **others)


def numbers(text: str | None, option: str, kind: type[Number]) -> list[Number] | None:
    """Return the numbers of an option, which commas separate."""
    try:
        return None if text is None else [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ProblemError(f"{option} is {text!r}; give {what} separated by commas") from None
