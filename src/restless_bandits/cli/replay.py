"""``restless replay``: learners played against a log. Its JSON is what ``as_dict`` of a ``Replay`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits.cli import output
from restless_bandits.cli.logs import (
    ColumnsOption,
    DuplicatesOption,
    EdgesOption,
    LowOption,
    RangeOption,
    RewardsOption,
    ShapeOption,
    SlotOption,
    StatesOption,
    TraceArgument,
    WideOption,
    read_log,
)
from restless_bandits.cli.options import JsonOption, LearnerOption, SeedOption
from restless_bandits.cli.simulate import warnings_as_lines

if TYPE_CHECKING:
    from restless_bandits.data import Replay


def replay(
    trace: TraceArgument,
    learner: LearnerOption = None,
    horizon: Annotated[int | None, typer.Option(metavar="T", help="Play only so many slots of the stretch.")] = None,
    first: Annotated[
        int | None, typer.Option("--from", metavar="SLOT", help="Where the stretch begins.", show_default="longest")
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", metavar="SLOT", help="Where the stretch ends.", show_default="longest")
    ] = None,
    runs: Annotated[
        int, typer.Option(metavar="N", help="Runs of a learner that draws at random; others are played once.")
    ] = 10,
    seed: SeedOption = 0,
    states: StatesOption = None,
    edges: EdgesOption = None,
    low_is_better: LowOption = False,
    rewards: RewardsOption = None,
    reward_range: RangeOption = None,
    columns: ColumnsOption = None,
    wide: WideOption = False,
    slot: SlotOption = None,
    duplicates: DuplicatesOption = "refuse",
    shape: ShapeOption = "birth-death",
    as_json: JsonOption = False,
) -> None:
    """Tell what learners would have earned on the stretch of a log in which every arm is there in every slot.

    Players who know the problem (exact, whittle, …) are told what is fitted to the whole log.

    Example: restless replay trace.csv --learner likelihood-ucb --learner ts-9 --learner whittle
    """
    laid_out: Any = {"columns": columns, "wide": wide, "slot": slot, "duplicates": duplicates}
    binned: Any = {"states": states, "low_is_better": low_is_better}
    read = read_log(trace, edges, rewards, reward_range, **laid_out, **binned)
    from restless_bandits import data
    from restless_bandits.learners import DEFAULT

    stretch: Any = {"first": first, "last": last, "horizon": horizon}
    told: Any = {"report": output.progress, "announce": output.announce}
    with warnings_as_lines():
        found = data.replay(read, learner or [DEFAULT], runs=runs, seed=seed, shape=shape, **told, **stretch)
    if as_json:
        output.emit(found.as_dict())
    else:
        output.lines(_replay_lines(found))


def _replay_lines(found: Replay) -> list[str]:
    """The replay for people: a line for each learner and for each yardstick."""
    best = float(found.arm_totals.max())
    rows = [
        (one.spec, one.mean, f" ± {one.error:.1f}" if one.error else "", f"{one.runs:4d}") for one in found.learners
    ]
    known = {
        f"best fixed arm, {found.best_arm!r}": best,
        "an arm drawn at random": float(found.arm_totals.mean()),
        "best arm of every slot": found.hindsight,
    }
    rows += [(name, total, "", "   –") for name, total in known.items()]
    width = max(len(name) for name, *_ in rows)
    lines = [
        f"{name:{width}}  {f'{total:.1f}{error}':>20}  {total / found.slots:8.4f}  {total - best:+13.1f}  {runs}"
        for name, total, error, runs in rows
    ]
    lines.insert(len(found.learners), "in hindsight:")
    last = found.first + found.slots - 1
    return [
        f"{found.source or 'trace'}: {found.slots} slots with all {len(found.names)} arms, {found.first} to {last}",
        f"{'':{width}}  {'reward':>20}  {'a slot':>8}  {'over best arm':>13}  runs",
        *lines,
    ]
