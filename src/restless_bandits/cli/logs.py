"""The options for reading a log, common to ``restless fit``, ``replay`` and ``evaluate``, and the reader."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from restless_bandits._internal.errors import ProblemError
from restless_bandits.cli.output import say

if TYPE_CHECKING:
    from restless_bandits.logs import Trace

LogReader = Callable[[], "Trace"]
Number = TypeVar("Number", int, float)

TraceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        help="CSV, JSON lines (.jsonl) or Parquet, with columns time, arm, state or value, and perhaps reward.",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(metavar="ROLE=NAME,…", help="Names of the columns: time=when,arm=host,value=ms; value=* for --wide."),
]
WideOption = Annotated[
    bool, typer.Option("--wide", help="Each arm has a column, with values; empty cells were not logged.")
]
DuplicatesOption = Annotated[
    str, typer.Option(metavar="WHAT", help="Several lines of an arm in a slot: refuse, or take the mean or the last.")
]
StatesOption = Annotated[
    str | None,
    typer.Option(
        metavar="M", help="Bin values into M states; 2..5 chooses by cross-validated likelihood.", show_default="2"
    ),
]
EdgesOption = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,…", help="Bin values at these edges, at quantiles, or at edges found.", show_default="quantile"
    ),
]
LowOption = Annotated[bool, typer.Option("--low-is-better", help="Low values are good; by default high values are.")]
RewardsOption = Annotated[
    str | None,
    typer.Option(
        metavar="R,R,…",
        help="The reward of each state, best first, in place of logged ones.",
        show_default="logged, or evenly from 1 to 0",
    ),
]
RangeOption = Annotated[str | None, typer.Option(metavar="LOW,HIGH", help="Lowest and highest possible logged reward.")]
SlotOption = Annotated[
    str | None,
    typer.Option(metavar="LENGTH", help="The length of a slot: 1h, 15min, 30s, or a number in the unit of the times."),
]
ShapeOption = Annotated[str, typer.Option(metavar="SHAPE", help="Chains: birth-death, or free (any moves).")]


OPTIONS: dict[str, tuple[Any, object]] = {
    "states": (StatesOption, None),
    "edges": (EdgesOption, None),
    "low_is_better": (LowOption, False),
    "rewards": (RewardsOption, None),
    "reward_range": (RangeOption, None),
    "columns": (ColumnsOption, None),
    "wide": (WideOption, False),
    "slot": (SlotOption, None),
    "duplicates": (DuplicatesOption, "refuse"),
}
"""The type and the default of each option, in the order of the help."""


def reads_log(*, wide: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces the parameter ``read`` of a command by the options of a log.

    The command gets a function without arguments, which reads the log ``trace``.
    """
    names = [name for name in OPTIONS if wide or name != "wide"]
    options = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in OPTIONS.items()
        if name in names
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = signature(command, eval_str=True).parameters.values()

        @wraps(command)
        def run(trace: Path, **given: Any) -> None:
            read = partial(_read_log, trace, **{name: given.pop(name) for name in names})
            command(trace, read=read, **given)

        own = [one for p in parameters for one in (options if p.name == "read" else [p])]
        run.__signature__ = Signature(own)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in own}
        return run

    return decorate


def _read_log(
    path: Path,
    *,
    edges: str | None,
    rewards: str | None,
    reward_range: str | None,
    columns: str | None,
    **others: Any,
) -> Trace:
    """Read a log with the options of the command line, and report ignored, omitted and guessed parts."""
    ends = numbers(reward_range, "--reward-range", float)
    if ends is not None and len(ends) != 2:
        raise ProblemError(f"--reward-range is {reward_range!r}; give the lowest and the highest reward, such as 0,100")
    from restless_bandits import logs

    cuts: Any = edges if edges in ("quantile", "found") else numbers(edges, "--edges", float)
    means = numbers(rewards, "--rewards", float)
    scale = None if ends is None else (ends[0], ends[1])
    named = _named(columns)
    trace = logs.read_trace(path, columns=named, edges=cuts, rewards=means, reward_range=scale, **others)
    for note in trace.notes:
        say(note)
    return trace


def _named(text: str | None) -> dict[str, list[str]] | None:
    """Return the column names by their roles; a role may be given several times."""
    if text is None:
        return None
    found: dict[str, list[str]] = {}
    for part in text.split(","):
        role, equals, name = (word.strip() for word in part.partition("="))
        if not equals or not role or not name:
            raise ProblemError(f"--columns has {part!r}; give role=name, such as time=time_hour,arm=origin,value=late")
        found.setdefault(role, []).append(name)
    return found


def numbers(text: str | None, option: str, kind: type[Number]) -> list[Number] | None:
    """Return the numbers of an option, separated by commas."""
    try:
        return None if text is None else [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ProblemError(f"{option} is {text!r}; give {what} separated by commas") from None
