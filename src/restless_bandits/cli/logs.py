"""The options for reading a log, common to ``restless fit``, ``replay`` and ``evaluate``, and the reader."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from restless_bandits._internal.errors import ProblemError
from restless_bandits.cli.output import say

if TYPE_CHECKING:
    from restless_bandits.logs import Trace

Number = TypeVar("Number", int, float)

TraceArgument = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        help="CSV, JSON lines (.jsonl) or Parquet, columns time, arm, state or value; perhaps reward, action, kind.",
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
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="TIME", help="Use the log from this time on: 2024-05-01T12:00, 12:00 in one day, or a slot."
    ),
]
UntilOption = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Use the log up to this time or slot.")]
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
ObservedOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="With a column action: the states of all arms were seen in each slot, or those of pulled arms.",
        show_default="all if each arm has a line in each slot",
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="Observed arms that share their chains: those of a kind, each arm alone, or all.",
        show_default="kind if there is such a column, else arm",
    ),
]
ShapeOption = Annotated[str, typer.Option(metavar="SHAPE", help="Chains: birth-death, or free (any moves).")]


def read_log(
    path: TraceArgument,
    states: StatesOption = None,
    edges: EdgesOption = None,
    low_is_better: LowOption = False,
    rewards: RewardsOption = None,
    reward_range: RangeOption = None,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    slot: SlotOption = None,
    duplicates: DuplicatesOption = "refuse",
    since: SinceOption = None,
    until: UntilOption = None,
) -> Trace:
    """Read a log with the options of the command line, and report ignored, omitted and guessed parts."""
    ends = numbers(reward_range, "--reward-range", float)
    if ends is not None and len(ends) != 2:
        raise ProblemError(f"--reward-range is {reward_range!r}; give the lowest and the highest reward, such as 0,100")
    from restless_bandits import logs

    trace = logs.read_trace(
        path,
        columns=_named(columns),
        wide=wide,
        slot=slot,
        duplicates=duplicates,
        states=states,
        edges=edges if edges in ("quantile", "found") else numbers(edges, "--edges", float),
        low_is_better=low_is_better,
        rewards=numbers(rewards, "--rewards", float),
        reward_range=None if ends is None else (ends[0], ends[1]),
    )
    if since is not None or until is not None:
        trace = trace.between(since, until)
    for note in trace.notes:
        say(note)
    return trace


@dataclass(frozen=True)
class Log:
    """The log of a command, not yet read."""

    path: Path
    read: Callable[[], Trace]


def takes_log(command: Callable[..., None], without: Container[str] = ()) -> Callable[..., None]:
    """Return a command with the argument and the options of ``read_log`` in place of its first parameter, a ``Log``."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    every = inspect.signature(read_log, eval_str=True, locals={"Trace": Any}).parameters.values()
    path, *options = (parameter for parameter in every if parameter.name not in without)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        file = given.pop(path.name)
        asked = {option.name: given.pop(option.name) for option in options}
        command(Log(file, lambda: read_log(file, **asked)), **given)

    parameters = [path, *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own[:-1], *options, own[-1]))]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


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
