"""``restless replay``: learners played against a log. The JSON output is ``as_dict`` of a ``Replay``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits.cli import output
from restless_bandits.cli.logs import Log, ShapeOption
from restless_bandits.cli.options import JsonOption, LearnerOption, SeedOption, whole_number
from restless_bandits.cli.simulate import warnings_as_lines

if TYPE_CHECKING:
    from restless_bandits.logs import Replay

LONGEST_ORDER = 60
"""Letters available to the best order of arms."""


def replay(
    log: Log,
    learner: LearnerOption = None,
    missing: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="An arm not logged in a slot is unavailable, or its feedback lost; stretch plays complete slots only.",
        ),
    ] = "unavailable",
    closed: Annotated[
        str, typer.Option(metavar="HOW", help="In slots without a log entry, time passes or stops.")
    ] = "passes",
    horizon: Annotated[
        int | None, typer.Option(metavar="T", help="Number of slots to play.", parser=whole_number)
    ] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="The first time or slot to play.", show_default="first of the log"),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="The last time or slot to play.", show_default="last of the log"),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(metavar="SLOTS", help="Length of the window that learners remember.", show_default="all"),
    ] = None,
    runs: Annotated[
        int, typer.Option(metavar="N", help="Runs of a randomized learner; other learners play once.")
    ] = 10,
    seed: SeedOption = 0,
    shape: ShapeOption = "birth-death",
    as_json: JsonOption = False,
) -> None:
    """Estimate the rewards of learners on a log.

    Players that know the problem (exact, whittle, …) use the problem fitted to the whole log.

    Example: restless replay trace.csv --learner likelihood-ucb --learner ts-9 --learner whittle
    """
    trace = log.read()
    from restless_bandits import logs
    from restless_bandits.learning.learners import DEFAULT

    low, high = trace.slots_between(first, last)
    stretch: Any = {
        "first": None if first is None else low,
        "last": None if last is None else high,
        "horizon": horizon,
        "missing": missing,
        "closed": closed,
        "memory": memory,
    }
    told: Any = {"report": output.progress, "announce": output.announce}
    with warnings_as_lines():
        found = logs.replay(trace, learner or [DEFAULT], runs=runs, seed=seed, shape=shape, **told, **stretch)
    if found.warning is not None:
        output.say(f"Warning: {found.warning}")
    if as_json:
        output.emit(found.as_dict())
    else:
        output.lines(_replay_lines(found))


def _replay_lines(found: Replay) -> list[str]:
    """Return the replay as text: the log, then a line for each learner and for each baseline."""
    best, seen = float(found.arm_totals.max()), found.baselines
    rows = [
        (one.spec, one.mean, f" ± {one.error:.1f}" if one.error else "", f"{one.runs:4d}") for one in found.learners
    ]
    known = {
        f"best fixed arm, {found.best_arm!r}": best,
        "an arm drawn at random": seen.random,
        "best arm of every slot": found.hindsight,
    }
    order = ", ".join(found.best_order)
    if seen.incomplete and found.missing == "unavailable":
        known = {"best fixed order" + "*" * (len(order) <= LONGEST_ORDER): seen.ordered} | known
    rows += [(name, total, "", "   –") for name, total in known.items()]
    width = max(len(name) for name, *_ in rows)
    lines = [
        f"{name:{width}}  {f'{total:.1f}{error}':>20}  {total / found.slots:8.4f}  {total - best:+13.1f}  {runs}"
        for name, total, error, runs in rows
    ]
    lines.insert(len(found.learners), "in hindsight:")
    return [
        *_played_lines(found),
        f"{'':{width}}  {'reward':>20}  {'a slot':>8}  {'over best arm':>13}  runs",
        *lines,
        *([f"* the first that is there of {order}"] if any(name.endswith("*") for name in known) else []),
    ]


def _played_lines(found: Replay) -> list[str]:
    """Return the description of the played part of the log."""
    seen, arms = found.baselines, len(found.names)
    held = f"all {arms} arms" if not seen.incomplete else f"some of {arms} arms"
    lines = [f"{found.source or 'trace'}: {found.slots} slots with {held}, {found.first} to {found.last}"]
    if found.clock is not None and found.clock.origin is not None:
        lines.append(f"from {found.clock.show(found.first)} to {found.clock.show(found.last)}")
    lines.append(f"used: {found.used:.1%} of the log")
    if seen.incomplete:
        lines[-1] += f"; {seen.incomplete} slots lack an arm"
        lines[-1] += f", {seen.alone} of them leave no choice" if found.missing == "unavailable" else ""
    if found.skipped:
        lines.append(f"closed: {found.skipped} slots with nothing logged, in which time {found.closed}")
    if any(one.lost.any() for one in found.learners):
        shares = ", ".join(f"{one.spec} {one.lost.mean() / found.slots:.1%}" for one in found.learners)
        lines.append(f"answers lost: {shares}")
    return lines
