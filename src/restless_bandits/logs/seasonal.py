"""A chain for each phase of a season: fits of logs whose arms move differently at different hours.

The steps of a phase, from a slot in the phase to a slot not later than its end, are fitted as a separate log, and give
a separate problem: the arms at night, if it were always night. Pairs of observations across a border are not used. In
each phase an arm has the states observed in the phase. A player who knows the hour takes the problem of the hour;
``SeasonFit.problem`` joins the phases into a single problem with changes, for simulations.

All tests of ``checks`` are repeated given the phase: remaining rejections are unrelated to these phases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report
from restless_bandits._internal.validation import check_int
from restless_bandits.logs.associations import association
from restless_bandits.logs.checks import Finding, findings_of, steps_of
from restless_bandits.logs.fitting import ArmFit, Fit, check_fit_options, fit, fit_arm, fit_notes, problem_of
from restless_bandits.logs.seasons import Season, season_of
from restless_bandits.logs.traces import Trace
from restless_bandits.model.changes import Change
from restless_bandits.model.problem import Problem

MOST_CHANGES = 100_000


@dataclass(frozen=True, eq=False)
class SeasonFit:
    """A problem for each phase of a season, with the evidence of the log against them."""

    season: Season
    phases: tuple[int, ...]
    """The phases in which the log has steps of every arm; other phases have no fit."""
    fits: tuple[Fit, ...]
    """A fit for each of ``phases``; their tests are the tests of the season, equal for all."""
    plain: Fit
    """The fit without a season."""
    notes: tuple[str, ...]

    @property
    def tests(self) -> tuple[Finding, ...]:
        """All tests given the phase, rejections first."""
        return self.fits[0].tests

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Evidence of the log against a chain for each phase; empty without a rejection."""
        return self.fits[0].findings

    @property
    def labels(self) -> tuple[str, ...]:
        """Short names of the fitted phases, such as ``0600-1200``."""
        return tuple(self.season.labels[phase] for phase in self.phases)

    def problem(self, cycles: int) -> Problem:
        """Return a problem that passes through the phases a number of times, each as a change: for simulations.

        Its first slot is the first slot of the first phase. Every phase needs a fit and a length of whole slots.
        """
        check_int("cycles", cycles)
        bounds = np.array([*self.season.starts, 1 + self.season.starts[0]]) * self.season.length
        borders = np.rint(bounds - bounds[0]).astype(np.int64)
        if len(self.phases) < self.season.phases or np.abs(bounds - bounds[0] - borders).max() > 1e-6:
            raise ProblemError(
                "a problem that goes through the phases needs a fit of each and phases of whole slots; choose other "
                "phases"
            )
        first = self.fits[0].problem
        for arm, name in enumerate(self.plain.trace.names):
            if len({(one.arms[arm].states, one.arms[arm].reward_law) for one in self.fits}) > 1:
                raise ProblemError(
                    f"arm {name!r} has other states or rewards in other phases, and a problem that changes has the "
                    "same in all; choose other phases or fewer states"
                )
        if cycles * len(self.fits) * first.n_arms > MOST_CHANGES:
            raise ProblemError(f"cycles is {cycles}, which makes more than {MOST_CHANGES} changes; ask for fewer")
        changes = [
            _change(cycle * int(borders[-1]) + int(borders[phase]) + 1, found.arms[arm], first.arms[arm].reward_law)
            for cycle in range(cycles)
            for phase, found in enumerate(self.fits)
            for arm in range(first.n_arms)
            if cycle or phase
        ]
        name = f"{self.plain.problem.name}, {cycles} cycle{'s' if cycles > 1 else ''}".lstrip(", ")
        return Problem(
            first.arms, name=name, source=self.plain.problem.source, findings=first.findings, changes=changes
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless fit --season … --json``."""
        return {
            "season": self.season.as_dict(),
            "phases": [{"phase": label} | found.as_dict() for label, found in zip(self.labels, self.fits, strict=True)],
            "notes": list(self.notes),
            "tests": [test.as_dict() for test in self.tests],
            "fit": self.fits[0].problem.findings.as_dict(),
            "plain": {
                "tests": [test.as_dict() for test in self.plain.tests],
                "fit": self.plain.problem.findings.as_dict(),
            },
        }

    def __repr__(self) -> str:
        head = f"<SeasonFit: {self.plain.problem.name or 'trace'}, phases {', '.join(self.labels)}"
        told = [f"  rejected: {finding}" for finding in self.fits[0].problem.findings.findings]
        return "\n".join([head, *(f"  note: {note}" for note in self.notes), *told]) + ">"


def _change(slot: int, arm: ArmFit, distribution: str) -> Change:
    # Fixed rewards follow from states, and are the same in all phases.
    return Change(slot, arm.name, arm.transitions, None if distribution == "fixed" else arm.rewards)


def fit_season(
    trace: Trace,
    season: float | str,
    *,
    phases: int | Sequence[float] = 4,
    shape: str = "birth-death",
    lags: Sequence[int] | None = None,
    name: str | None = None,
    announce: Report | None = None,
) -> SeasonFit:
    """Fit a problem for each phase of a season.

    Parameters
    ----------
    trace
        The log.
    season
        The length of the cycle: a number of slots, or a text such as ``24h`` or ``7d`` for slots on a clock; then days
        begin at midnight and weeks on Monday.
    phases
        The number of phases of equal length; or their starts, in the unit of the season, such as ``[6, 10, 16, 22]``.
    shape, lags, name, announce
        As for ``fit``.

    """
    trace.refuse_actions("a fit with a season has one chain for each arm; leave the season out")
    check_fit_options(shape, lags)
    cycle = season_of(trace, season, phases)
    plain = fit(trace, shape=shape, lags=lags, name=name, announce=announce)
    there = [
        [bool(cycle.inside(phase)(times[:-1], times[1:]).any()) for times in _times(trace)]
        for phase in range(cycle.phases)
    ]
    fitted = tuple(phase for phase in range(cycle.phases) if all(there[phase]))
    if not fitted:
        raise ProblemError("no phase has consecutive observations of every arm; use fewer phases")
    by_phase = [_phase_arms(trace, cycle, phase, shape, lags) for phase in fitted]
    comparisons = [
        _in_phase(arm.law_test, cycle.names[phase])
        for phase, arms in zip(fitted, by_phase, strict=True)
        for arm in arms
    ]
    tests = findings_of(trace, comparisons, cycle)
    fits = []
    for phase, arms in zip(fitted, by_phase, strict=True):
        label = f"{plain.problem.name}, {cycle.labels[phase]}".lstrip(", ")
        problem = problem_of(trace, arms, shape, label, tests, cycle.names[phase])
        fits.append(Fit(problem, arms, shape, trace, fit_notes(trace, arms, shape), tests))
    notes = [
        f"{cycle.names[phase]} nothing is fitted: {_missing(trace, there[phase])} without consecutive observations"
        for phase in range(cycle.phases)
        if phase not in fitted
    ]
    notes.append(_verdict(trace, cycle, plain, tests))
    return SeasonFit(cycle, fitted, tuple(fits), plain, tuple(notes))


def _phase_arms(trace: Trace, season: Season, phase: int, shape: str, lags: Sequence[int] | None) -> tuple[ArmFit, ...]:
    """The arms of a phase, each with the states observed in the phase."""
    inside = season.inside(phase)
    keep = np.asarray(season.phases_of(trace.times) == phase)
    for arm, times in enumerate(_times(trace)):
        # The last step of a phase ends with the phase.
        ends = times[1:][inside(times[:-1], times[1:])]
        keep |= (trace.arms == arm) & np.isin(trace.times, ends)
    columns = {name: getattr(trace, name)[keep] for name in ("times", "arms", "states", "rewards")}
    part = dataclasses.replace(trace, **columns, probabilities=None)
    return tuple(fit_arm(part, arm, shape, lags, True, (season, phase)) for arm in range(trace.n_arms))


def _times(trace: Trace) -> list[Any]:
    return [trace.of_arm(arm)[0] for arm in range(trace.n_arms)]


def _missing(trace: Trace, there: Sequence[bool]) -> str:
    absent = [name for name, seen in zip(trace.names, there, strict=True) if not seen]
    if len(absent) == trace.n_arms:
        return "all arms are"
    return f"arm {absent[0]!r} is" if len(absent) == 1 else f"{len(absent)} arms are"


def _in_phase(test: Finding, phase: str) -> Finding:
    arm = f"arm {test.arm!r}"
    return dataclasses.replace(test, sentence=test.sentence.replace(f"{arm}:", f"{arm}, {phase}:", 1))


def _verdict(trace: Trace, season: Season, plain: Fit, tests: Sequence[Finding]) -> str:
    """Whether moves differ between phases at all, and the dependence that the phases leave unexplained."""
    strongest = 0.0
    for arm in range(trace.n_arms):
        steps = steps_of(trace, arm, season)
        found = association(steps.kinds, season.phases_of(steps.starts), steps.after)
        strongest = max(strongest, found.effect)
    before, after = len(plain.findings), sum(test.rejects for test in tests)
    left = f"{after or 'none'} of {len(tests)} {'reject' if after > 1 else 'rejects'}"
    return (
        f"phases change the moves by up to {strongest:.2f} on the scale of a correlation; {before} of "
        f"{len(plain.tests)} tests {'rejects' if before == 1 else 'reject'} one chain for all phases, and with a chain "
        f"for each {left}"
    )
