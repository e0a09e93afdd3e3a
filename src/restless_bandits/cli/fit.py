"""``restless fit``: a problem from logged observations.

The JSON output is ``as_dict`` of a ``Fit``, or with a season of a ``SeasonFit``, with ``out``, ``plot`` and ``report``
for the files written.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import check_writable, same_file, save_file
from restless_bandits.cli import output
from restless_bandits.cli.logs import ByOption, Log, ObservedOption, ShapeOption, numbers
from restless_bandits.cli.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from restless_bandits._internal.validation import Array
    from restless_bandits.logs import ArmFit, Finding, Fit, SeasonFit

PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html", ".htm")
MOST_PANELS = 12
"""Arms of one picture; further arms are not drawn."""
MOST_TESTS = 20
"""Lines of a table of tests."""


def fit(
    log: Log,
    out: Annotated[Path | None, typer.Option(metavar="PROBLEM.toml", help="Write the problem to a file.")] = None,
    shape: ShapeOption = "birth-death",
    lags: Annotated[
        str | None,
        typer.Option(metavar="τ,τ,…", help="Compare distributions after these waits.", show_default="1,2,5,10,…"),
    ] = None,
    season: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="A chain for each phase of a cycle: 24h, 7d, or slots.")
    ] = None,
    phases: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="Number of phases of the season, or their starts: 6,10,16,22.", show_default="4"
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FIT.png", help="Draw observed and predicted distributions into a file.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FIT.html", help="Write the full report, with pictures, as one page.")
    ] = None,
    observed: ObservedOption = None,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fit a problem to logged observations, and report how well the problem explains them.

    Example: restless fit trace.csv --states 3 --low-is-better --out problem.toml --report fit.html
    """
    _check_outputs(log.path, {"--out": out, "--plot": plot, "--report": report})
    if season is None and phases is not None:
        raise ProblemError("--phases needs a season; add --season 24h, or leave --phases out")
    if season is not None and (observed, by) != (None, None):
        raise ProblemError("a season is for arms that no pull changes; leave --season, or --observed and --by, out")
    if season is not None and plot is not None:
        raise ProblemError("--plot draws one chain for each arm, and a season has one for each phase; leave one out")
    trace = log.read()
    from restless_bandits import logs

    asked: Any = {"shape": shape, "lags": numbers(lags, "--lags", int), "announce": output.announce}
    written: dict[str, Any] = {}
    found: Fit | SeasonFit
    if season is not None:
        found = logs.fit_season(trace, season, phases=_phases(phases), **asked)
        named = {} if out is None else {one: out.with_name(f"{out.stem}-{one}{out.suffix}") for one in found.labels}
        _check_outputs(log.path, {f"--out for {one}": path for one, path in named.items()} | {"--report": report})
        problems = dict(zip(found.labels, found.fits, strict=True))
        files = {path: problems[one].problem.to_toml().encode() for one, path in named.items()}
        written["out"] = [str(path) for path in named.values()] or None
    else:
        asked |= {"observed": observed, "by": by}
        found = logs.fit(trace, **asked)
        files = {} if out is None else {out: found.problem.to_toml().encode()}
        if plot is not None:
            trace.refuse_actions("the picture shows one chain for each arm; leave --plot out")
            files[plot] = _picture(found, plot.suffix[1:])
        written |= {"out": out and str(out), "plot": plot and str(plot)}
    if report is not None:
        files[report] = logs.report(found, announce=output.progress).encode()
    for path, content in files.items():
        save_file(path, content)
    if as_json:
        output.emit(found.as_dict() | written | {"report": report and str(report)})
        return
    lines = _fit_lines(found) if isinstance(found, logs.Fit) else _season_lines(found)
    output.lines(lines + (["", "written: " + ", ".join(map(str, files))] if files else []))


def _season_lines(found: SeasonFit) -> list[str]:
    lines = [_head(found.plain)]
    for label, phase, one in zip(found.labels, found.phases, found.fits, strict=True):
        lines += ["", f"phase {label}, {found.season.names[phase]}:"]
        for arm in one.arms:
            lines += ["", *_chain_lines(one, arm)]
        lines += [f"note: {note}" for note in one.notes]
    lines += ["", *(f"note: {note}" for note in found.notes)]
    return lines + test_lines(found.tests, found.fits[0].problem.findings.findings)


def _phases(text: str | None) -> Any:
    """Return the number of phases, or their first slots."""
    if text is None:
        return 4
    found = numbers(text, "--phases", float)
    return int(text) if "," not in text and text.strip().isdecimal() else found


def _head(found: Fit) -> str:
    trace = found.trace
    return (
        f"{found.problem.name or 'trace'}: {len(trace)} observations of {trace.n_arms} arm"
        f"{'s' if trace.n_arms > 1 else ''} in slots {trace.times[0]} to {trace.times[-1]}, "
        f"{trace.n_states} states, {found.shape} chains"
    )


def _fit_lines(found: Fit) -> list[str]:
    lines = [_head(found)]
    if found.trace.edges is not None:
        lines.append("edges between states, from the best: " + ", ".join(f"{edge:.6g}" for edge in found.trace.edges))
    for arm in found.arms:
        lines += ["", *_chain_lines(found, arm)]
        if arm.laws:
            lines.append("      τ   pairs   same state seen   predicted           χ² (df)   p")
        for check in arm.laws:
            fit_of = (
                f"{check.chi_square:9.2f} ({check.degrees})   {check.p_value:.2g}"
                if check.degrees
                else "        –       –"
            )
            predicted = f"{check.same_predicted:.4f} ± {check.same_error:.4f}"
            lines.append(f"  {check.lag:5d}  {check.pairs:6d}   {check.same_observed:15.4f}   {predicted}  {fit_of}")
    lines += [""] * bool(found.notes) + [f"note: {note}" for note in found.notes]
    return lines + test_lines(found.tests, found.problem.findings.findings)


def _chain_lines(found: Fit, arm: ArmFit) -> list[str]:
    places = ".4f" if found.trace.reward_range == (0.0, 1.0) else ".5g"
    share = "no consecutive slots" if not arm.steps else f"{arm.jump_share:.2%} of {arm.steps} steps jump"
    what = "arm"
    if arm.group is not None:
        what, share = ("arm" if found.by == "arm" else "kind"), f"{arm.steps} steps"
        share = f"{len(arm.group.arms)} arms, {share}" if found.by != "arm" else share
    lines = [f"{what} {arm.name!r}: {arm.looks} observations, {share}, rewards {arm.reward_law}"]
    head = "  ".join(f"{'to ' + str(arm.states[0] + k):^15}" for k in range(len(arm.rewards)))
    lines.append(f"  state       reward       {head}".rstrip())
    group = arm.group
    resting = (arm.rewards, arm.reward_errors) if group is None else (group.rewards[0], group.reward_errors[0])
    lines += _row_lines(arm, arm.transitions, arm.standard_errors, places, resting)
    if arm.active_transitions is not None and arm.active_standard_errors is not None:
        lines.append("  the same after a pull:")
        pulled = (arm.rewards, arm.reward_errors)
        lines += _row_lines(arm, arm.active_transitions, arm.active_standard_errors, places, pulled)
    return lines


def _row_lines(
    arm: ArmFit, chain: Array, standard_errors: Array, places: str, rewards: tuple[Array, Array]
) -> list[str]:
    """Return the rows of a chain, with the rewards and their errors; a row without errors is not from the log."""
    lines = []
    for s, row in enumerate(chain):
        errors = standard_errors[s]
        digits = max(4, *(1 - math.floor(math.log10(error)) for error in errors if error > 0), 0)
        cells = zip(row, errors, strict=True)
        moves = "  ".join(
            f"{f'({p:.{digits}f})':^15}"
            if math.isnan(error)
            else f"{p:.{digits}f} ± {error:.{digits}f}"
            if p > 0
            else f"{'0':^15}"
            for p, error in cells
        )
        paid = f"{rewards[0][s]:{places}}"
        reward = paid + (f" ± {rewards[1][s]:{places}}" if rewards[1][s] > 0 else "")
        lines.append(f"  {arm.states[0] + s:5d}  {reward:15s}  {moves}")
    return lines


def test_lines(tests: Sequence[Finding], sentences: Sequence[str]) -> list[str]:
    """Return the tests as text: a line for each rejecting test, and a sentence for each kind of test."""
    if not tests:
        return []
    against = [test for test in tests if test.rejects]
    if not against:
        least = min(tests, key=lambda test: test.adjusted)
        of = "" if least.arm is None else f" of arm {least.arm!r}"
        many = f"none of {len(tests)} tests rejects" if len(tests) > 1 else "the one test does not reject"
        return ["", f"{many} the model; the smallest p, adjusted, is {least.adjusted:.2g} ({least.kind}{of})"]
    lines = ["", f"{len(against)} of {len(tests)} tests reject the model (p adjusted for their number, below 0.001):"]
    lines.append("  test            effect       p  arm")
    lines += [
        f"  {test.kind:14s}  {test.effect:6.2f}  {test.adjusted:6.0e}  {'all' if test.arm is None else repr(test.arm)}"
        for test in against[:MOST_TESTS]
    ]
    if len(against) > MOST_TESTS:
        lines.append(f"  and {len(against) - MOST_TESTS} more")
    return [*lines, *(f"rejected: {sentence}" for sentence in sentences)]


def _picture(found: Fit, kind: str) -> bytes:
    """Return a picture with a panel for each arm, as bytes."""
    from restless_bandits import plots

    with plots.style():
        from matplotlib.figure import Figure

        arms = found.arms[:MOST_PANELS]
        columns = min(3, len(arms))
        rows = math.ceil(len(arms) / columns)
        figure = Figure(figsize=(3.6 * columns + 0.4, 2.9 * rows + 0.3), layout="constrained", dpi=150)
        panels: Any = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for n, arm in enumerate(arms):
            plots.distributions(arm, ax=panels[n])
            if n % columns:
                panels[n].set_ylabel("")
        for panel in panels[len(arms) :]:
            panel.set_axis_off()
        cut = "" if len(arms) == len(found.arms) else f", the first {len(arms)} of {len(found.arms)} arms"
        figure.suptitle(f"{found.problem.name}: observed (marks) and fitted (lines), {found.shape} chains{cut}")
        content = io.BytesIO()
        figure.savefig(content, format=kind)
    return content.getvalue()


def _check_outputs(trace: Path, outputs: Mapping[str, Path | None]) -> None:
    """Refuse outputs that cannot be written, or that would overwrite the log or each other."""
    given = [(option, path) for option, path in outputs.items() if path is not None]
    for n, (option, path) in enumerate(given):
        check_writable(path)
        if same_file(path, trace):
            raise ProblemError(f"{option} is {path}, which is the trace itself; name another file")
        for other, there in given[:n]:
            if same_file(path, there):
                raise ProblemError(f"{other} and {option} are both {there}; name two files")
    plot, report = outputs.get("--plot"), outputs.get("--report")
    if plot is not None and plot.suffix.lower() not in PICTURES:
        raise ProblemError(f"cannot draw {plot}; give a name that ends in {', '.join(PICTURES)}")
    if report is not None and report.suffix.lower() not in PAGES:
        raise ProblemError(f"--report is {report}; give a name that ends in .html")
