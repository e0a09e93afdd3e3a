"""``restless evaluate``: the reward of other policies, from a log of the pulled arm alone, or of observed arms.

The JSON output is ``as_dict`` of an ``OffPolicy`` or of an ``ObservedOffPolicy``.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits.cli import completion, output
from restless_bandits.cli.logs import ByOption, Log, ObservedOption, ShapeOption
from restless_bandits.cli.options import JsonOption, SeedOption
from restless_bandits.cli.simulate import warnings_as_lines
from restless_bandits.registry import ORACLES, learner_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from restless_bandits.logs import ObservedOffPolicy, OffPolicy

TEXT_WIDTH = 80
"""Columns of the sentences below a table."""


def evaluate(
    log: Log,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POLICY",
            help="An oracle (whittle, best-arm, …), a learner, or a policy stored by solve (FILE.npz); repeatable. "
            "Where all arms are observed, random is one too, and learners are not.",
            show_default="auto and best-arm; all observed: lp-index and random",
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
    observed: ObservedOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the reward of other policies, from a log of the pulled arm alone, or of arms that were all seen.

    Estimates use the fitted model, and weighting if the log has a column probability: the probability of each choice.

    Example: restless evaluate pulls.csv --policy whittle --policy best-arm
    """
    trace = log.read()
    from restless_bandits import logs

    told: Any = {"report": output.progress, "announce": output.announce}
    asked: Any = {"draws": draws, "horizon": horizon, "confidence": confidence, "seed": seed, "shape": shape}
    asked |= {"observed": observed, "by": by}
    usual = ["auto", "best-arm"] if trace.actions is None else ["lp-index", "random"]
    with warnings_as_lines():
        found = logs.evaluate_policy(trace, policy or usual, **asked, **told)
    if as_json:
        output.emit(found.as_dict())
    elif isinstance(found, logs.OffPolicy):
        output.lines(lines_of(found))
    else:
        output.lines(observed_lines(found))


def lines_of(found: OffPolicy) -> list[str]:
    """Return the answer as text: a line for each policy, followed by the basis of the numbers."""
    trace = found.fit.trace
    shown = _shown_by(trace.reward_range)
    rows = [("", "by the fitted model", "over best arm", "by weighting")]
    for one in found.policies:
        model, weighted = one.model, one.weighted
        modelled = shown(model.gain, model.interval), shown(model.above_best_arm, model.above_interval, "+")
        rows.append((one.label, *modelled, shown(weighted.gain, weighted.interval)))
    rows.append(("as logged", shown(found.logged, found.logged_interval), "", ""))
    lines = [
        f"{trace.source or 'trace'}: {len(trace)} pulls of {trace.n_arms} arms in slots {trace.times[0]} to "
        f"{trace.times[-1]}; reward a slot, ± is an interval of {found.confidence:.3g}"
    ]
    lines += _table(rows)
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
    return [*lines, *_wrapped(said)]


def observed_lines(found: ObservedOffPolicy) -> list[str]:
    """Return the answer for observed arms as text."""
    from restless_bandits.logs.observed_offpolicy import MODEL_ASSUMES, WEIGHTING_ASSUMES

    trace, shown = found.fit.trace, _shown_by(found.fit.trace.reward_range)
    rows = [("", "by the fitted model", "over random", "by weighting")]
    for one in found.policies:
        lift = float(one.model.above.mean())
        over = "" if one.label == "random" else shown(lift, one.model.above_interval, "+")
        weighted = shown(one.weighted.gain, one.weighted.interval)
        rows.append((one.label, shown(one.model.gain, one.model.interval), over, weighted))
    rows.append(("as logged", shown(found.logged, found.logged_interval), "", ""))
    lines = [
        f"{trace.source or 'trace'}: {trace.n_arms} arms, all observed, in slots {trace.times[0]} to "
        f"{trace.times[-1]}; reward an arm and slot, ± is an interval of {found.confidence:.3g}",
        *_table(rows),
    ]
    said = [f"by the fitted model assumes: {MODEL_ASSUMES}"]
    if any(one.weighted.gain is not None for one in found.policies):
        said.append(f"by weighting assumes: {WEIGHTING_ASSUMES}")
    if trace.probabilities is None:
        said.append(f"by weighting: {found.policies[0].weighted.sense}")
    else:
        said += [f"by weighting, {one.label}: {one.weighted.sense}" for one in found.policies]
    remark = found.fit.problem.findings.remark("answered for")
    said += [*(f"note: {note}" for note in found.notes), *([] if remark is None else [remark])]
    return [*lines, *_wrapped(said)]


def _shown_by(reward_range: tuple[float, float]) -> Callable[..., str]:
    """Return a function that writes a value with the reach of its interval."""
    places = ".4f" if reward_range == (0.0, 1.0) else ".5g"

    def shown(value: float | None, ends: tuple[float, float] | None, sign: str = "") -> str:
        if value is None:
            return "–"
        # The longer side of an interval that the range of rewards cuts.
        reach = "" if ends is None else f" ± {max(value - ends[0], ends[1] - value):{places}}"
        return f"{value:{sign}{places}}{reach}"

    return shown


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        told_cells = "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        lines.append(f"{name:{widths[0]}}  {told_cells}".rstrip())
    return lines


def _wrapped(sentences: Sequence[str]) -> list[str]:
    wrapped = (textwrap.wrap(line, TEXT_WIDTH, subsequent_indent="  ", break_long_words=False) for line in sentences)
    return [part for parts in wrapped for part in parts]
