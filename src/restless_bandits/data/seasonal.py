"""A chain for each phase of a season: what to do with a log whose arms move otherwise at other hours.

The steps of a phase, from a slot in it to one not later than its end, are fitted as a log of their own, and give a
problem of their own: what an arm does at night, if it were always night. Looks on the two sides of a border are used
by neither. An arm has in each phase the states that it was seen in there. A player who knows the hour takes the
problem of the hour; ``SeasonFit.problem`` strings the phases together as one problem that changes, for simulations.

Whether the season is the answer is asked again, by all tests of ``checks``, with the phase known: what still rejects
is no matter of these phases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits.arrays import whole
from restless_bandits.data.associations import association
from restless_bandits.data.checks import Finding, findings_of, steps_of
from restless_bandits.data.fitting import ArmFit, Fit, check_fit_options, fit, fit_arm, fit_notes, problem_of
from restless_bandits.data.seasons import Season, season_of
from restless_bandits.data.traces import Trace
from restless_bandits.errors import ProblemError
from restless_bandits.forecasts import Report
from restless_bandits.problem import Change, Problem

MOST_CHANGES = 100_000


@dataclass(frozen=True, eq=False)
class SeasonFit:
    """A problem for each phase of a season, and what the log holds against them."""

    season: Season
    phases: tuple[int, ...]
    """The phases in which the log has steps of every arm; there is no fit for others."""
    fits: tuple[Fit, ...]
    """A fit for each of ``phases``; their tests are those of the season, the same for all."""
    plain: Fit
    """The fit without a season."""
    notes: tuple[str, ...]

    @property
    def tests(self) -> tuple[Finding, ...]:
        """All tests made with the phase known, those that reject first."""
        return self.fits[0].tests

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the log holds against a chain for each phase; empty where it does not reject that."""
        return self.fits[0].findings

    @property
    def labels(self) -> tuple[str, ...]:
        """Short names of the fitted phases, such as ``0600-1200``."""
        return tuple(self.season.labels[phase] for phase in self.phases)

    def problem(self, cycles: int) -> Problem:
        """Return one problem that goes through the phases so many times, each as a change: for simulations.

        Its first slot is the first of the first phase. It needs a fit of every phase, and phases of whole slots.
        """
        whole("cycles", cycles)
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
        """Return everything as ``restless fit --season … --json`` prints it."""
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


def _change(slot: int, arm: ArmFit, law: str) -> Change:
    # Fixed rewards follow from states, and are the same in all phases.
    return Change(slot, arm.name, arm.transitions, None if law == "fixed" else arm.rewards)


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
        What was logged.
    season
        The length of the cycle: a number of slots, or such as ``24h`` or ``7d`` where slots are on a clock; then days
        begin at midnight and weeks on Monday.
    phases
        How many, of one length; or where they begin, in the unit of the season, such as ``[6, 10, 16, 22]``.
    shape, lags, name, announce
        As for ``fit``.

    """
    check_fit_options(shape, lags)
    cycle = season_of(trace, season, phases)
    plain = fit(trace, shape=shape, lags=lags, name=name, announce=announce)
    there = [
        [bool(cycle.inside(phase)(times[:-1], times[1:]).any()) for times in _times(trace)]
        for phase in range(cycle.phases)
    ]
    fitted = tuple(phase for phase in range(cycle.phases) if all(there[phase]))
    if not fitted:
        raise ProblemError("no phase has looks at every arm that follow each other; use fewer phases")
    by_phase = [_phase_arms(trace, cycle, phase, shape, lags) for phase in fitted]
    laws = [
        _in_phase(arm.law_test, cycle.names[phase])
        for phase, arms in zip(fitted, by_phase, strict=True)
        for arm in arms
    ]
    tests = findings_of(trace, laws, cycle)
    fits = []
    for phase, arms in zip(fitted, by_phase, strict=True):
        label = f"{plain.problem.name}, {cycle.labels[phase]}".lstrip(", ")
        problem = problem_of(trace, arms, shape, label, tests, cycle.names[phase])
        fits.append(Fit(problem, arms, shape, trace, fit_notes(trace, arms, shape), tests))
    notes = [
        f"{cycle.names[phase]} nothing is fitted: {_missing(trace, there[phase])} without looks that follow each other"
        for phase in range(cycle.phases)
        if phase not in fitted
    ]
    notes.append(_verdict(trace, cycle, plain, tests))
    return SeasonFit(cycle, fitted, tuple(fits), plain, tuple(notes))


def _phase_arms(trace: Trace, season: Season, phase: int, shape: str, lags: Sequence[int] | None) -> tuple[ArmFit, ...]:
    """The arms of a phase, each with the states that it was seen in there."""
    inside = season.inside(phase)
    keep = np.asarray(season.phases_of(trace.times) == phase)
    for arm, times in enumerate(_times(trace)):
        # Where a phase ends its last step ends too.
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
    """Whether moves differ between phases at all, and what the phases leave unexplained."""
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
