"""``restless evaluate``: the reward of other policies, from a log of the pulled arm alone.

The JSON output is ``as_dict`` of an ``OffPolicy``.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits.cli import completion, output
from restless_bandits.cli.logs import Log, ShapeOption
from restless_bandits.cli.options import JsonOption, SeedOption
from restless_bandits.cli.simulate import warnings_as_lines
from restless_bandits.registry import ORACLES, learner_names

if TYPE_CHECKING:
    from restless_bandits.logs import OffPolicy

TEXT_WIDTH = 80
"""Columns of the sentences below a table."""


def evaluate(
    log: Log,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="An oracle (whittle, best-arm, …), a learner, or a policy stored by solve (FILE.npz); repeatable.",
            show_default="auto and best-arm",
            autocompletion=completion.one_of(lambda: [*ORACLES, *learner_names()]),
        ),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(metavar="T", help="Slots that learners play.", show_default="all of the log, ≤ 10000"),
    ] = None,
    draws: Annotated[int, typer.Option(metavar="N", help="Problems drawn for the intervals of the model.")] = 100,
    confidence: Annotated[float, typer.Option(metavar="X", help="Confidence level of all intervals.")] = 0.95,
    seed: SeedOption = 0,
    shape: ShapeOption = "birth-death",
    as_json: JsonOption = False,
) -> None:
    """Estimate the reward of other policies, from a log in which only the pulled arm was seen.

    Estimates use the fitted model, and weighting if the log has a column probability: the probability of each choice.

    Example: restless evaluate pulls.csv --policy whittle --policy best-arm
    """
    trace = log.read()
    from restless_bandits import logs

    told: Any = {"report": output.progress, "announce": output.announce}
    asked: Any = {"draws": draws, "horizon": horizon, "confidence": confidence, "seed": seed, "shape": shape}
    with warnings_as_lines():
        found = logs.evaluate_policy(trace, policy or ["auto", "best-arm"], **asked, **told)
    if as_json:
        output.emit(found.as_dict())
    else:
        output.lines(lines_of(found))


def lines_of(found: OffPolicy) -> list[str]:
    """Return the answer as text: a line for each policy, followed by the basis of the numbers."""
    trace = found.fit.trace
    places = ".4f" if trace.reward_range == (0.0, 1.0) else ".5g"

    def shown(value: float | None, ends: tuple[float, float] | None, sign: str = "") -> str:
        if value is None:
            return "–"
        # The longer side of an interval that the range of rewards cuts.
        reach = "" if ends is None else f" ± {max(value - ends[0], ends[1] - value):{places}}"
        return f"{value:{sign}{places}}{reach}"

    rows = [("", "by the fitted model", "over best arm", "by weighting")]
    for one in found.policies:
        model, weighted = one.model, one.weighted
        modelled = shown(model.gain, model.interval), shown(model.above_best_arm, model.above_interval, "+")
        rows.append((one.label, *modelled, shown(weighted.gain, weighted.interval)))
    rows.append(("as logged", shown(found.logged, found.logged_interval), "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{trace.source or 'trace'}: {len(trace)} pulls of {trace.n_arms} arms in slots {trace.times[0]} to "
        f"{trace.times[-1]}; reward a slot, ± is an interval of {found.confidence:.3g}"
    ]
    for name, *cells in rows:
        told_cells = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        lines.append(f"{name:{widths[0]}}  {told_cells}".rstrip())
    from restless_bandits.logs.offpolicy import MODEL_ASSUMES
    from restless_bandits.logs.weighting import ASSUMES

    said = [f"by the fitted model assumes: {MODEL_ASSUMES}"]
    learners = sorted({one.horizon for one in found.policies if one.horizon is not None})
    said += [f"learners play {horizon} slots from the beginning, policies for ever" for horizon in learners]
    if any(one.weighted.gain is not None for one in found.policies):
        said.append(f"by weighting assumes: {ASSUMES}")
    if trace.probabilities is None:
        said.append(f"by weighting: {found.policies[0].weighted.sense}")
    else:
        said += [f"by weighting, {one.label}: {one.weighted.sense}" for one in found.policies]
    remark = found.fit.problem.findings.remark("answered for")
    said += [*(f"note: {note}" for note in found.notes), *([] if remark is None else [remark])]
    wrapped = (textwrap.wrap(line, TEXT_WIDTH, subsequent_indent="  ", break_long_words=False) for line in said)
    return [*lines, *(part for parts in wrapped for part in parts)]
