"""A fit on a page: the verdict, the log, its states by phase, the chains, the tests, and the expected gain.

A single self-contained file, without network access, for light and dark and for narrow screens. All text from the log
(names of arms, of the file) is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

import numpy as np

from restless_bandits._internal.progress import Report
from restless_bandits._internal.validation import IntArray
from restless_bandits.logs import svg
from restless_bandits.logs.checks import Finding, calendar_groups, shown_probability
from restless_bandits.logs.expected_gain import ExpectedGain, best_fixed, expected_gain, interval
from restless_bandits.logs.fitting import ArmFit, Fit
from restless_bandits.logs.seasonal import SeasonFit
from restless_bandits.logs.traces import Trace
from restless_bandits.model import markov
from restless_bandits.oracles.evaluation import arm_average

MOST_ROWS = 40
"""The largest number of arms in a raster."""
MOST_ARMS = 12
"""The largest number of arms with their own drawing and table."""
COLUMNS = 260
PARTS = 12
"""Parts of the log if no phase is known."""
_KEY = '<span class="key" style="background:var(--{})"></span>'


def report(found: Fit | SeasonFit, *, draws: int | None = None, seed: int = 0, announce: Report | None = None) -> str:
    """Return a page of HTML about a fit.

    Parameters
    ----------
    found
        A fit, or a fit with a season, whose phases the page then shows too.
    draws, seed
        The number of problems drawn for the uncertainty of the gain (by default 50, fewer for many arms), and the seed.
    announce
        A function for a line before work that may take some seconds.

    """
    plain = found.plain if isinstance(found, SeasonFit) else found
    if announce is not None and plain.problem.n_arms > 1:
        announce("report: what a player could gain, on problems that explain the log")
    gain = expected_gain(plain, draws=draws, seed=seed)
    name = plain.problem.name or "trace"
    sections = [
        _verdict(found, gain),
        _section("The log", _log(plain.trace)),
        _section("States by phase", _occupancy(plain)),
        _section("Chains", _chains(plain)),
        _section("Tests", _tests(plain.tests)),
    ]
    if isinstance(found, SeasonFit):
        sections.append(_section("With a season", _season(found)))
    sections.append(_section("What a player could gain", _gain(plain, gain)))
    notes = [*plain.trace.notes, *plain.notes]
    if notes:
        sections.append(_section("Notes", _list(notes)))
    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}: does the model fit?</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(name)}: does the model fit?</h1>\n{_lead(plain)}\n"
        + "\n".join(sections)
        + "\n</main>\n</body>\n</html>\n"
    )


def _lead(found: Fit) -> str:
    trace = found.trace
    span = f"slots {trace.times[0]} to {trace.times[-1]}"
    if trace.clock is not None and trace.clock.origin is not None:
        span = f"{trace.clock.show(int(trace.times[0]))} to {trace.clock.show(int(trace.times[-1]))}"
    arms = f"{trace.n_arms} arm{'s' if trace.n_arms > 1 else ''}"
    edges = ""
    if trace.edges is not None:
        edges = "; states cut at " + ", ".join(f"{edge:.6g}" for edge in trace.edges)
    return (
        f'<p class="lead">{len(trace)} observations of {arms}, {escape(span)}; {trace.n_states} states, 0 the best, '
        f"{escape(found.shape)} chains{edges}.</p>"
    )


def _verdict(found: Fit | SeasonFit, gain: ExpectedGain | None) -> str:
    findings, tests = found.findings, found.tests
    plain = found.plain if isinstance(found, SeasonFit) else found
    model = "a chain for each phase" if isinstance(found, SeasonFit) else "the model"
    parts = []
    if findings:
        parts.append(f"<p><b>The log rejects {model}</b>: {len(findings)} of {len(tests)} tests.</p>")
        told = (
            found.fits[0].problem.findings.findings if isinstance(found, SeasonFit) else found.problem.findings.findings
        )
        parts.append(_list(told))
    elif tests:
        parts.append(
            f"<p><b>The log does not reject {model}</b>: none of {len(tests)} tests does. That is no proof of it; a "
            "longer log may.</p>"
        )
    else:
        parts.append("<p><b>Nothing was tested</b>: the log is too short, or tests were left out.</p>")
    if gain is not None:
        low, high = interval(gain.above)
        sure = "by this model" + (", which the log rejects," if plain.findings else "")
        parts.append(
            f"<p>Over always using {escape(repr(gain.best_arm))}, a player could gain {gain.above.mean():.4g} a slot "
            f"{sure} (95 %: {low:.4g} to {high:.4g}).</p>"
        )
    return f'<div class="card verdict{" fails" if findings else ""}">{"".join(parts)}</div>'


def _section(title: str, body: str) -> str:
    return f'<h2>{escape(title)}</h2>\n<div class="card">{body}</div>'


def _list(sentences: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table>{caption and f"<caption>{escape(caption)}</caption>"}<thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _first(names: Sequence[str], most: int) -> str:
    return "" if len(names) <= most else f'<p class="note">The first {most} of {len(names)} arms.</p>'


def _log(trace: Trace) -> str:
    first, last = int(trace.times[0]), int(trace.times[-1])
    rows = min(trace.n_arms, MOST_ROWS)
    shades = trace.shades(COLUMNS)[:rows]
    ticks = [(share, _when(trace, first + round(share * (last - first)))) for share in (0.0, 0.5, 1.0)]
    about = f"The log: {rows} arms by time, darker where states were worse, empty without observations"
    each = (last - first + 1) / shades.shape[1]
    thinned = f" Each column is the mean of {each:.3g} slots." if each > 1 else ""
    return (
        f'<div class="one">{svg.raster(trace.names[:rows], shades, ticks, about)}</div>'
        f'<p class="note">{_KEY.format("good")} best state, {_KEY.format("bad")} worst state; empty: not logged.'
        f"{thinned}</p>" + _first(trace.names, MOST_ROWS)
    )


def _when(trace: Trace, slot: int) -> str:
    if trace.clock is None or trace.clock.origin is None:
        return str(slot)
    return trace.clock.show(slot)[:10] if trace.clock.seconds >= 60 else trace.clock.show(slot)


def _phases(found: Fit) -> tuple[IntArray, list[str], str]:
    """The phase of every observation, the names of phases, and their kind: hours, parts of a visible period, or of
    the log.
    """
    trace = found.trace
    for kind, groups, _, parts in calendar_groups(trace.clock, trace.times, len(trace) // trace.n_arms):
        if kind == "day":
            return groups, [f"{24 * k // parts:02d}" for k in range(parts)], "hour of the day"
    for test in found.findings:
        if test.kind == "period" and test.period is not None:
            groups = np.floor(trace.times / test.period % 1 * PARTS).astype(np.int64)
            return groups, [f"{k + 1}" for k in range(PARTS)], f"twelfth of {test.period:.3g} slots"
    span = int(trace.times[-1] - trace.times[0]) + 1
    groups = (trace.times - trace.times[0]) * PARTS // span
    return groups, [f"{k + 1}" for k in range(PARTS)], "twelfth of the log"


def _occupancy(found: Fit) -> str:
    trace = found.trace
    groups, names, what = _phases(found)
    drawings = []
    for arm in range(min(trace.n_arms, MOST_ARMS)):
        mine = trace.arms == arm
        counts = np.zeros((trace.n_states, len(names)))
        np.add.at(counts, (trace.states[mine], groups[mine]), 1)
        with np.errstate(invalid="ignore"):
            shares = counts / counts.sum(axis=0)
        about = f"Shares of the states of {trace.names[arm]} by {what}, the best at the bottom"
        drawings.append(f"<div>{svg.stacked(shares, names, trace.names[arm], about)}</div>")
    lead = (
        f'<p class="note">The share of observations in each state by {escape(what)}; the best state at the bottom.</p>'
    )
    return lead + f'<div class="grid">{"".join(drawings)}</div>' + _first(trace.names, MOST_ARMS)


def _chains(found: Fit) -> str:
    lead = (
        '<p class="note">Probabilities of transitions in a slot, with standard errors. Below: the share of '
        "observations that find the arm in the same state τ slots later, observed (dots, two standard "
        "errors) and by the chain (line).</p>"
    )
    parts = []
    for arm in found.arms[:MOST_ARMS]:
        drawn = _memory(arm) if arm.laws else ""
        parts.append(f"<div>{_chain_table(arm)}{drawn}</div>")
    return lead + f'<div class="grid">{"".join(parts)}</div>' + _first([arm.name for arm in found.arms], MOST_ARMS)


def _chain_table(arm: ArmFit, caption: str = "") -> str:
    heads = ["state", "reward", *(f"to {arm.states[0] + k}" for k in range(len(arm.rewards)))]
    rows = []
    for state, moves in enumerate(arm.transitions):
        reward = _about(float(arm.rewards[state]), float(arm.reward_errors[state]))
        cells = (_about(float(p), float(arm.standard_errors[state, k])) if p > 0 else "0" for k, p in enumerate(moves))
        rows.append([str(arm.states[0] + state), reward, *cells])
    return _table(caption or f"{arm.name}: {arm.looks} looks", heads, rows)


def _about(value: float, error: float) -> str:
    """A number with its standard error, to two digits of the error."""
    if not error > 0:
        return f"{value:.4g}"
    digits = min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def _memory(arm: ArmFit) -> str:
    lags = [law.lag for law in arm.laws]
    along = np.unique(np.geomspace(1, max(10, *lags), 40).round().astype(np.int64))
    starts = np.sum([law.counts.sum(axis=1) for law in arm.laws], axis=0)
    weights = starts / starts.sum()
    powers = np.array([np.diagonal(markov.power(arm.transitions, int(lag))) @ weights for lag in along])
    about = f"{arm.name}: the share of observations in the same state some slots later, observed and by the chain"
    seen, errors = [law.same_observed for law in arm.laws], [law.same_error for law in arm.laws]
    return svg.memory("same state, τ slots later", lags, seen, errors, along.astype(np.float64), powers, about)


def _tests(tests: Sequence[Finding]) -> str:
    if not tests:
        return "<p>None were made.</p>"
    against, quiet = [test for test in tests if test.rejects], [test for test in tests if not test.rejects]
    lead = (
        '<p class="note">Each tests whether the next observation depends on a variable unknown to the chain. p is '
        "adjusted for the number of tests (Holm), and below 0.001 a test rejects; the effect is on the scale of a "
        "correlation.</p>"
    )
    parts = [lead]
    if against:
        told = _list(str(test) for test in against)
        parts.append(_test_table("These reject the model", against))
        parts.append(f"<details><summary>Each in a sentence</summary>{told}</details>")
    else:
        parts.append("<p>None rejects the model.</p>")
    if quiet:
        parts.append(f"<details><summary>{len(quiet)} that do not reject</summary>{_test_table('', quiet)}</details>")
    return "".join(parts)


def _test_table(caption: str, tests: Sequence[Finding]) -> str:
    rows = [
        [test.kind, test.arm or "all", f"{test.effect:.2f}", shown_probability(test.adjusted)[2:].lstrip("= ")]
        for test in tests
    ]
    return _table(caption, ["test", "arm", "effect", "p"], rows)


def _season(found: SeasonFit) -> str:
    rows = []
    for label, one in zip(found.labels, found.fits, strict=True):
        number, name = best_fixed(one.problem)
        rows.append([label, name, f"{arm_average(one.problem.arms[number]):.4g}"])
    chains = "".join(
        f"<h3>{escape(found.season.names[phase])}</h3>"
        f'<div class="grid">{"".join(f"<div>{_chain_table(arm)}</div>" for arm in one.arms[:MOST_ARMS])}</div>'
        for phase, one in zip(found.phases, found.fits, strict=True)
    )
    return (
        _list(found.notes)
        + "<p>The best fixed arm of each phase, were it always that phase:</p>"
        + _table("", ["phase", "arm", "reward a slot"], rows)
        + _tests(found.tests)
        + f"<details><summary>Chains by phase</summary>{chains}</details>"
    )


def _gain(found: Fit, gain: ExpectedGain | None) -> str:
    if gain is None:
        return "<p>There is one arm, and nothing to choose.</p>"
    rows = [
        (name, interval(drawn)[0], float(drawn.mean()), interval(drawn)[1])
        for name, drawn in (("player who knows the chains", gain.policy), (f"always {gain.best_arm}", gain.fixed))
    ]
    low, high = interval(gain.above)
    about = "Reward a slot of a player who knows the chains and of the best fixed arm, with 95 % intervals"
    share = float((gain.above > 0).mean())
    doubt = (
        " The log rejects this model, so these numbers are of the model and perhaps not of the arms: compare "
        "<code>restless replay</code>."
        if found.findings
        else ""
    )
    return (
        f'<div class="one">{svg.intervals(rows, about)}</div>'
        f"<p>The difference is {gain.above.mean():.4g} a slot (95 %: {low:.4g} to {high:.4g}), and above 0 in "
        f"{share:.0%} of {len(gain.above)} problems that explain the log as well.{doubt}</p>"
        '<p class="note">The player follows Whittle’s index for the fitted chains. No player can earn more than '
        f"{gain.bound:.4g} on them. A learner has to find the chains out, and earns less for as long.</p>"
    )
