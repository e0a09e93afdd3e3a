"""A problem from a trace: chains with standard errors, mean rewards, and how well the chains explain the log.

*Chains.* ``birth-death`` (the default, as in the paper and for most learners) is the maximum-likelihood chain with
moves by at most one state, from all observations, observations after gaps included: see ``estimation``. Moves over more
states than elapsed slots are impossible for such a chain. Impossible moves are counted and left out. The fit is thus
the chain conditional on no jumps, the nearest birth-death chain in the sense of Kullback and Leibler. ``free`` is any
chain, from the moves between consecutive slots alone, with the same prior: (count + 1) / (total + states), standard
errors √(p(1 − p) / (total + states)). For two states, logged in every slot, both are the same.

*Observed arms.* A log with actions, and with a line of every arm in every slot, is of arms that are all observed. Each
kind, or each arm, has the rows of a pull and of a rest from counts: see ``observed_counts``, and for the tests
``observed_checks``.

*Actions.* Another log with actions is of arms that react to pulls. Each arm has two chains without an order of states,
from all observations that no unseen pull separates: see ``estimation.reacting``. ``shape`` and ``lags`` then have no
meaning, and no test is made. Lines of rests have the rewards at rest; without such lines arms at rest pay nothing.

``laws`` and ``checks`` test the chains against the log.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.cells import LAST_SLOT
from restless_bandits._internal.compiling import clock
from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.html_tables import html_table
from restless_bandits._internal.progress import Report, paced
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.learning.estimation import (
    ESTIMATE_HEADS,
    PRIOR,
    ArmEstimate,
    Estimate,
    Mode,
    NotIdentified,
    Observations,
    ReactingMode,
    estimate_row,
    likely_chains,
    likely_pairs,
)
from restless_bandits.logs.checks import Finding, findings_of, rejection, shown_probability, summaries
from restless_bandits.logs.distribution_checks import LawCheck, is_selective, law_checks
from restless_bandits.logs.observed_checks import observed_findings
from restless_bandits.logs.observed_counts import LEAST_SPREAD, ObservedGroup, Steps, counted, groups_of, steps_between
from restless_bandits.logs.seasons import Season
from restless_bandits.logs.traces import Trace
from restless_bandits.model import markov
from restless_bandits.model.arms import Arm
from restless_bandits.model.findings import Findings
from restless_bandits.model.problem import OBSERVATIONS, Problem
from restless_bandits.model.rewards import RewardLaw

SHAPES = ("birth-death", "free")
MOST_DOUBTS = 20
"""The largest number of notes about rows that a log does not tell."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ArmFit(ArmEstimate):
    """An arm: its chain, its rewards, and their fit."""

    states: tuple[int, int]
    """The best and the worst observed state, by their common numbers; the best is the arm's own state 0."""
    looks: int
    """Lines of the log."""
    reward_law: RewardLaw
    """``beta`` for rewards that are neither at the ends of their range nor fixed by the state."""
    reward_spread: float | None
    """The standard deviation of a ``beta`` distribution, as a share of the largest possible."""
    steps: int
    """Observations in consecutive slots."""
    jumps: int
    """Consecutive observations with moves over more than one state."""
    unused: int
    """Observations unused by the shape: impossible moves, or, for a free chain, all observations after a gap."""
    selective: bool
    """Whether the waits between observations depend on the state, as for a log of a policy's choices."""
    laws: tuple[LawCheck, ...]
    passive_rewards: Array | None = None
    """Of an arm that reacts: the mean reward of each state in slots without a pull, None if unknown."""
    group: ObservedGroup | None = None
    """Of observed arms: the counts of the arm, or of a kind of arms."""

    @property
    def jump_share(self) -> float:
        """The share of steps over more than one state; NaN without steps."""
        return self.jumps / self.steps if self.steps else math.nan

    @property
    def law_test(self) -> Finding:
        """The comparison by τ as a single test: its smallest p-value times their number."""
        tested = [distribution for distribution in self.laws if distribution.degrees]
        worst = min(tested, key=lambda distribution: (distribution.p_value, -distribution.chi_square), default=None)
        if worst is None:
            return Finding("laws", self.name, math.nan, 0.0, "", "")
        p_value = min(1.0, worst.p_value * len(tested))
        apart = f"{worst.lag} slot{'s' if worst.lag > 1 else ''} apart"
        sentence = (
            f"arm {self.name!r}: what was seen {apart} does not fit the chain, {worst.same_observed:.0%} in the same "
            f"state where it says {worst.same_predicted:.0%} ({shown_probability(p_value)})"
        )
        effect = math.sqrt(max(0.0, worst.chi_square - worst.degrees) / worst.pairs)
        remedy = "its states are no Markov chain of this shape: try other states, or shorter slots"
        if self.jumps and not np.triu(self.transitions, 2).any():
            remedy = (
                f"{self.jump_share:.1%} of its steps jump over a state, and birth-death chains leave these out: try "
                "--shape free, wider states, or shorter slots"
            )
        return Finding("laws", self.name, p_value, effect, sentence, remedy)

    def as_dict(self) -> dict[str, Any]:
        rewards = ("rewards", "reward_errors", "reward_law", "reward_spread")
        steps = ("steps", "jumps", "jump_share", "unused", "identified", "selective")
        return {
            "name": self.name,
            "states": list(range(self.states[0], self.states[1] + 1)),
            "observations": self.looks,
            "transitions": self.transitions,
            "standard_errors": self.standard_errors,
            **{name: getattr(self, name) for name in rewards},
            "stationary": markov.stationary(self.transitions),
            **{name: getattr(self, name) for name in steps},
            "modes": [dataclasses.asdict(mode) for mode in self.modes],
            "laws": [distribution.as_dict() for distribution in self.laws],
            **(self._reacting_part() if self.active_transitions is not None else {}),
            **(self.group.as_dict() if self.group is not None else {}),
        }

    def _reacting_part(self) -> dict[str, Any]:
        names = ("active_transitions", "active_standard_errors", "passive_rewards", "not_identified")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, eq=False)
class Fit:
    """A problem made from a trace, with an assessment of the fit."""

    problem: Problem
    arms: tuple[ArmFit, ...]
    shape: str
    trace: Trace
    notes: tuple[str, ...]
    """Remarks for users of the problem: jumps, ambiguities, arms with few observed states."""
    tests: tuple[Finding, ...] = ()
    """All performed tests, rejections first: see ``checks``."""
    by: str = "arm"
    """What ``arms`` holds: an entry for each ``arm``, for each ``kind`` of observed arms, or for ``all`` of them."""

    @property
    def arm_kinds(self) -> dict[str, str]:
        """The kind of each arm of an observed log by name: with ``problem`` the arms of ``Problem.from_table``."""
        names = self.trace.names
        return {names[arm]: one.name for one in self.arms if one.group for arm in one.group.arms.tolist()}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Evidence of the log against the model, the strongest first; empty without a rejection.

        ``problem.findings`` has the same in sentences, as part of the problem.
        """
        return tuple(test for test in self.tests if test.rejects)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless fit --json``."""
        return {
            "trace": self.trace.source,
            "problem": self.problem.name,
            "shape": self.shape,
            **({"by": self.by} if self.arms[0].group is not None else {}),
            "observations": len(self.trace),
            "first_slot": int(self.trace.times[0]),
            "last_slot": int(self.trace.times[-1]),
            "states": self.trace.n_states,
            "edges": self.trace.edges,
            "reward_range": self.trace.reward_range,
            "arms": [arm.as_dict() for arm in self.arms],
            "notes": list(self.notes),
            "tests": [test.as_dict() for test in self.tests],
            "fit": self.problem.findings.as_dict(),
        }

    def __repr__(self) -> str:
        head = f"<Fit: {self.problem.name or 'trace'}, {self.shape} chains, {len(self.trace)} observations"
        told = [f"  rejected: {finding}" for finding in self.problem.findings.findings]
        return "\n".join([head, *(f"  note: {note}" for note in self.notes), *told]) + ">"

    def _repr_html_(self) -> str:
        title, *notes = repr(self)[1:-1].splitlines()
        return html_table(title, ESTIMATE_HEADS, map(estimate_row, self.arms), " ".join(note.strip() for note in notes))


def fit(
    trace: Trace,
    *,
    shape: str = "birth-death",
    lags: Sequence[int] | None = None,
    name: str | None = None,
    strict: bool = True,
    tests: bool = True,
    announce: Report | None = None,
    observed: Literal["all", "pulled"] | None = None,
    by: Literal["kind", "arm", "all"] | None = None,
) -> Fit:
    """Fit a problem to a trace.

    Parameters
    ----------
    trace
        The log.
    shape
        ``birth-death`` or ``free``.
    lags
        The τ at which distributions are compared; by default 1, 2, 5, 10, ….
    name
        The problem's name; by default the file's name without its ending.
    strict
        Raise ``NotIdentified`` if the log does not identify the transitions of an arm; the exception has the estimate.
        Rows of observed arms that the log does not tell are notes instead.
    tests
        Test the model against the log.
    announce
        A function for a line with the expected duration, if long.
    observed
        Of a log with actions: whether the states of ``all`` arms were seen in every slot, or those of ``pulled`` arms.
        By default all if the log has a line for each arm in each slot from the arm's first to its last line.
    by
        What shares a chain among observed arms: a ``kind`` (the default for a log with a column kind), each ``arm``
        (the default for others), or ``all`` arms.

    """
    check_fit_options(shape, lags)
    if trace.actions is None and not observed is by is None:
        raise ProblemError("the log has no column action, so observed and by have no meaning; name the column")
    if observed is not None:
        check_known(observed, OBSERVATIONS, "observed is")
    if trace.actions is not None and (trace.is_all_observed if observed is None else observed == "all"):
        return _fit_observed(trace, by, name, tests)
    if by not in (None, "arm"):
        raise ProblemError(f"by is {by!r}, and arms that are seen when pulled are fitted one by one; leave it out")
    if trace.actions is not None:
        pairs = tuple(_fit_reacting_arm(trace, arm, strict) for arm in range(trace.n_arms))
        return Fit(_reacting_problem(trace, pairs, name), pairs, "free", trace, _reacting_notes(trace, pairs))
    numbers = paced(range(trace.n_arms), f"fit of {trace.n_arms} arms", announce, clock)
    arms = tuple(fit_arm(trace, arm, shape, lags, strict) for arm in numbers)
    tested = findings_of(trace, [arm.law_test for arm in arms]) if tests else ()
    return Fit(problem_of(trace, arms, shape, name, tested), arms, shape, trace, fit_notes(trace, arms, shape), tested)


def check_fit_options(shape: str, lags: Sequence[int] | None) -> None:
    """Refuse invalid options of a fit."""
    check_known(shape, SHAPES, "there is no shape")
    if lags is not None and not np.iterable(lags):
        raise ProblemError(f"lags is {lags!r}; give a list of whole numbers, such as [1, 2, 5]")
    for lag in () if lags is None else lags:
        check_int("a lag", lag, 1, LAST_SLOT - 1)


def problem_of(
    trace: Trace, arms: Sequence[ArmFit], shape: str, name: str | None, tests: Sequence[Finding], phase: str = ""
) -> Problem:
    """Return the problem of fitted arms, with the findings against the fit."""
    stem = trace.source.rpartition(".")[0] or trace.source
    about = ("name", "reward_law", "reward_spread")
    made = [
        Arm(one.transitions, one.rewards, reward_range=trace.reward_range, **{key: getattr(one, key) for key in about})
        for one in arms
    ]
    source = (
        f"Fitted to {trace.source or 'a trace'}: {sum(arm.looks for arm in arms)} observations in slots "
        f"{trace.times[0]} to {trace.times[-1]}{phase and f', those {phase}'}, {shape} chains."
    )
    findings = Findings(rejection(tests), tuple(summaries(tests)))
    return Problem(made, name=stem if name is None else name, source=source, findings=findings)


def _fit_reacting_arm(trace: Trace, arm: int, strict: bool) -> ArmFit:
    """Fit both chains of an arm, from pairs of observations without an unseen pull between them."""
    times, states, _ = trace.of_arm(arm)
    actions, unseen = trace.pulls_of_arm(arm)
    n, waits = trace.sizes[arm], np.diff(times)
    useful = np.searchsorted(unseen, times[:-1]) == np.searchsorted(unseen, times[1:])
    before = (n * actions + states)[:-1][useful]
    label, nothing = f"arm {trace.names[arm]!r}", np.full(n, math.nan)
    if n == 1:
        still = np.ones((1, 1)), np.zeros((1, 1))
        found = ArmEstimate(label, len(before), (ReactingMode(*still, 0.0, *still),), nothing, nothing, True, ())
    else:
        elapsed, rows, counts = observations(waits[useful], before, states[1:][useful], 2 * n)
        order = np.lexsort((elapsed, rows))
        first = np.searchsorted(rows[order], np.arange(2 * n + 1))
        modes, sentences = likely_pairs((first, elapsed[order], counts[order][:, :n].copy()), n)
        found = ArmEstimate(label, len(before), modes, nothing, nothing, not sentences, sentences)
    if strict and not found.identified:
        raise NotIdentified(f"{label}: {found.not_identified[0]}", Estimate((found,)))
    pulled = actions == 1
    rewards, errors = mean_rewards(trace, arm, pulled)
    varies = trace.reward_laws[arm] == "bounded"
    of_arm = {"name": trace.names[arm], "rewards": rewards, "reward_errors": errors}
    return ArmFit(
        **vars(found) | of_arm,
        states=trace.spans[arm],
        looks=len(times),
        reward_law="beta" if varies else trace.reward_laws[arm],
        reward_spread=reward_spread(trace, arm, pulled) if varies else None,
        steps=int((useful & (waits == 1)).sum()),
        jumps=0,
        unused=int((~useful).sum()),
        selective=False,
        laws=(),
        passive_rewards=None if pulled.all() else mean_rewards(trace, arm, ~pulled)[0],
    )


def _fit_observed(trace: Trace, by: str | None, name: str | None, tests: bool) -> Fit:
    """Fit the kinds, or the arms, of a log of observed arms."""
    of_arm, names, by = groups_of(trace, by)
    steps = steps_between(trace)
    if not len(steps):
        raise ProblemError("no arm has lines in two consecutive slots, so no step is known; log more, or give --slot")
    groups = counted(trace, steps, of_arm, names)
    arms = tuple(_observed_fit(trace, group, by) for group in groups)
    tested = observed_findings(trace, steps, of_arm, groups, by) if tests else ()
    made = [
        Arm(
            one.transitions,
            one.rewards,
            active_transitions=one.active_transitions,
            passive_rewards=one.passive_rewards,
            name=one.name,
            count=len(group.arms),
            reward_law=one.reward_law,
            reward_spread=one.reward_spread,
            reward_range=trace.reward_range,
        )
        for one, group in zip(arms, groups, strict=True)
    ]
    pulls = _pulls_by_slot(trace)
    stem = trace.source.rpartition(".")[0] or trace.source
    problem = Problem(
        made,
        plays=max(1, round(float(pulls.mean()))),
        observed="all",
        name=stem if name is None else name,
        source=_observed_source(trace),
        findings=Findings(rejection(tested), tuple(summaries(tested))),
    )
    notes = _observed_notes(trace, steps, arms, by, pulls)
    return Fit(problem, arms, "free", trace, notes, tested, by)


def _observed_source(trace: Trace) -> str:
    return (
        f"Fitted to {trace.source or 'a trace'}: {len(trace)} observations in slots {trace.times[0]} to "
        f"{trace.times[-1]}, chains of pulls and of rests."
    )


def _observed_fit(trace: Trace, group: ObservedGroup, by: str) -> ArmFit:
    chains, errors = group.chains, group.errors
    doubts = tuple(group.doubts("arm" if by == "arm" else "kind"))
    mode = ReactingMode(chains[0], errors[0], 0.0, chains[1], errors[1])
    return ArmFit(
        name=group.name,
        observations=int(group.totals.sum()),
        modes=(mode,),
        rewards=group.rewards[1],
        reward_errors=group.reward_errors[1],
        identified=group.is_seen,
        not_identified=doubts,
        states=(0, trace.n_states - 1),
        looks=group.lines,
        reward_law=group.reward_law,
        reward_spread=group.reward_spread,
        steps=int(group.totals.sum()),
        jumps=0,
        unused=group.lines - len(group.arms) - int(group.totals.sum()),
        selective=False,
        laws=(),
        passive_rewards=group.rewards[0],
        group=group,
    )


def _observed_notes(trace: Trace, steps: Steps, arms: Sequence[ArmFit], by: str, pulls: IntArray) -> tuple[str, ...]:
    what = {"kind": "each kind", "arm": "each arm"}.get(by, "all arms together")
    notes = [f"all arms are observed: counts of steps after a pull and after a rest, for {what}"]
    if not steps.actions.any() or steps.actions.all():
        missing = "pull" if not steps.actions.any() else "rest"
        notes.append(f"the log has no step after a {missing}, so it tells nothing of the effect of a pull")
    if pulls.min() < pulls.max():
        notes.append(
            f"the log has {pulls.min()} to {pulls.max()} pulls a slot, and plays is their mean, "
            f"{max(1, round(float(pulls.mean())))}; set plays if it is another"
        )
    spans = len(trace) // max(1, trace.n_arms)
    if not trace.is_all_observed:
        unused = sum(arm.unused for arm in arms)
        notes.append(f"{unused} lines follow a slot without a line of their arm, and are no steps")
    elif spans < len(pulls):
        notes.append(f"arms came or left: an arm has lines in {spans} of {len(pulls)} slots on average")
    doubts = [sentence for arm in arms for sentence in arm.not_identified]
    notes += doubts[:MOST_DOUBTS]
    if len(doubts) > MOST_DOUBTS:
        notes.append(f"and {len(doubts) - MOST_DOUBTS} more rows of which the log tells too little")
    return tuple(notes)


def _pulls_by_slot(trace: Trace) -> IntArray:
    """The number of pulls in each slot of a log with actions, unseen pulls included."""
    assert trace.actions is not None
    assert trace.unseen is not None
    slots = np.concatenate([trace.times[trace.actions == 1], trace.unseen[0]]) - trace.times[0]
    length = int(max(trace.times[-1] - trace.times[0], slots.max(initial=0))) + 1
    return np.bincount(slots[slots >= 0], minlength=length)


def _reacting_problem(trace: Trace, arms: Sequence[ArmFit], name: str | None) -> Problem:
    """Return the problem of fitted arms that react, whose states are seen when pulled."""
    pulls = _pulls_by_slot(trace)
    made = [
        Arm(
            one.transitions,
            one.rewards,
            active_transitions=one.active_transitions,
            passive_rewards=one.passive_rewards,
            name=one.name,
            reward_law=one.reward_law,
            reward_spread=one.reward_spread,
            reward_range=trace.reward_range,
        )
        for one in arms
    ]
    source = (
        f"Fitted to {trace.source or 'a trace'}: {len(trace)} observations in slots {trace.times[0]} to "
        f"{trace.times[-1]}, chains of pulls and of rests."
    )
    stem = trace.source.rpartition(".")[0] or trace.source
    about: dict[str, Any] = {"name": stem if name is None else name, "source": source}
    return Problem(made, plays=max(1, int(pulls.max())), **about)


def _reacting_notes(trace: Trace, arms: Sequence[ArmFit]) -> tuple[str, ...]:
    pulls = _pulls_by_slot(trace)
    notes = ["the arms may react to pulls: each has a chain of pulls and a chain of rests, and no test is made"]
    if pulls.min() < pulls.max():
        notes.append(f"the log has {pulls.min()} to {pulls.max()} pulls a slot, and plays is {max(1, pulls.max())}")
    if all(arm.passive_rewards is None for arm in arms):
        notes.append("no rest has a state, so arms at rest are taken to pay nothing; set passive_rewards if they do")
    notes += [f"arm {arm.name!r}: {sentence}" for arm in arms for sentence in arm.not_identified]
    return tuple(notes)


def fit_notes(trace: Trace, arms: Sequence[ArmFit], shape: str) -> tuple[str, ...]:
    """Return remarks for users of fitted arms."""
    notes = [note for arm in arms for note in _arm_notes(arm, shape, trace.n_states)]
    if trace.gap > 1:
        notes.insert(
            0, f"all waits are multiples of {trace.gap}; if that is the length of a slot, say so (--slot {trace.gap})"
        )
    return tuple(notes)


def mean_rewards(trace: Trace, arm: int, keep: Mask | None = None) -> tuple[Array, Array]:
    """Return the mean reward of an arm in each of its states, with standard errors.

    A state between observed states, itself never observed, gets a mean between theirs, without a standard error. A
    single logged reward has no standard error either. ``keep`` selects observations.
    """
    best, worst = trace.spans[arm]
    if trace.levels is not None:
        return np.array(trace.levels[best : worst + 1]), np.zeros(worst - best + 1)
    _, states, rewards = _kept(trace, arm, keep)
    seen = np.bincount(states, minlength=worst - best + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.bincount(states, weights=rewards, minlength=len(seen)) / seen
        squares = np.bincount(states, weights=(rewards - means[states]) ** 2, minlength=len(seen))
        errors = np.sqrt(squares / (seen - 1) / seen)
    errors[seen < 2] = math.nan
    known = np.flatnonzero(seen)
    if not known.size:
        return np.full(len(seen), trace.reward_range[0]), errors
    return np.clip(np.interp(np.arange(len(seen)), known, means[known]), *trace.reward_range), errors


def reward_spread(trace: Trace, arm: int, keep: Mask | None = None) -> float:
    """Return the spread of the beta distribution (see ``rewards``) with the variance of an arm's rewards within its
    states.
    """
    _, states, rewards = _kept(trace, arm, keep)
    if not rewards.size:
        return 1 - LEAST_SPREAD
    low, high = trace.reward_range
    means = mean_rewards(trace, arm, keep)[0][states]
    largest = float(((means - low) * (high - means)).sum())
    variance = float(((rewards - means) ** 2).sum())
    return min(max(math.sqrt(variance / largest), LEAST_SPREAD), 1 - LEAST_SPREAD)


def _kept(trace: Trace, arm: int, keep: Mask | None) -> tuple[IntArray, IntArray, Array]:
    times, states, rewards = trace.of_arm(arm)
    return (times, states, rewards) if keep is None else (times[keep], states[keep], rewards[keep])


def fit_arm(
    trace: Trace,
    arm: int,
    shape: str,
    lags: Sequence[int] | None,
    strict: bool,
    phase: tuple[Season, int] | None = None,
) -> ArmFit:
    """Fit an arm; with a phase of a season to the steps within the phase, and to the rewards of its slots."""
    times, states, _ = trace.of_arm(arm)
    waits, moved = np.diff(times), np.abs(np.diff(states))
    inside = None if phase is None else phase[0].inside(phase[1])
    within = np.ones(len(waits), dtype=bool) if inside is None else inside(times[:-1], times[1:])
    here = None if phase is None else phase[0].phases_of(times) == phase[1]
    useful = within & (moved <= waits if shape == "birth-death" else waits == 1)
    found = _estimated(trace, arm, shape, waits[useful], states[:-1][useful], states[1:][useful])
    if strict and not found.identified:
        raise NotIdentified(_refusal(trace, arm, states[:-1][useful], found, phase), Estimate((found,)))
    rewards, errors = mean_rewards(trace, arm, here)
    selective = is_selective(times, states)
    varies = trace.reward_laws[arm] == "bounded"
    of_arm = {"name": trace.names[arm], "rewards": rewards, "reward_errors": errors}
    return ArmFit(
        **vars(found) | of_arm,
        states=trace.spans[arm],
        looks=len(times) if here is None else int(here.sum()),
        reward_law="beta" if varies else trace.reward_laws[arm],
        reward_spread=reward_spread(trace, arm, here) if varies else None,
        steps=int((within & (waits == 1)).sum()),
        jumps=int((within & (waits == 1) & (moved > 1)).sum()),
        unused=int((within & ~useful).sum()),
        selective=selective,
        laws=tuple(law_checks(times, states, found.transitions, lags, trace.gap, selective, inside)),
    )


def _estimated(trace: Trace, arm: int, shape: str, waits: IntArray, before: IntArray, after: IntArray) -> ArmEstimate:
    """The chain of an arm, from consecutive pairs of observations that the shape allows."""
    name, n = f"arm {trace.names[arm]!r}", trace.sizes[arm]
    if shape == "birth-death" and n > 1:
        modes, identified = likely_chains(observations(waits, before, after, n), n)
    else:
        counts = np.zeros((n, n))
        np.add.at(counts, (before, after), 1)
        total = counts.sum(axis=1, keepdims=True) + n * PRIOR
        chain = (counts + PRIOR) / total
        value = float(((counts + PRIOR) * np.log(chain)).sum())
        modes = (Mode(chain, np.sqrt(chain * (1 - chain) / total), value),)
        # As for birth-death chains, the data must say more of every row than the prior does.
        identified = n == 1 or bool((counts.sum(axis=1) >= n * PRIOR).all())
    nothing = np.full(n, math.nan)
    return ArmEstimate(name, len(waits), modes, nothing, nothing, identified, ())


def observations(waits: IntArray, before: IntArray, after: IntArray, n: int) -> Observations:
    """Return pairs of observations counted by exact wait and state before; a record would keep long waits in bins."""
    keys, places = np.unique(waits * n + before, return_inverse=True)
    seen = np.zeros((len(keys), n), dtype=np.int64)
    np.add.at(seen, (places, after), 1)
    return keys // n, keys % n, seen


def _refusal(
    trace: Trace, arm: int, before: IntArray, found: ArmEstimate, phase: tuple[Season, int] | None = None
) -> str:
    """The reason why a log does not identify the transitions of an arm, with the identified part."""
    if phase is not None:
        return (
            f"{found.name}: {found.observations} steps {phase[0].names[phase[1]]} are too few to estimate its "
            "transitions; use fewer phases or fewer states"
        )
    first, n = trace.spans[arm][0], trace.sizes[arm]
    seen = np.bincount(trace.of_arm(arm)[1], minlength=n)
    if not seen.all():
        return (
            f"{found.name} was never seen in state {first + int(np.argmin(seen))}, but in better and in worse ones, so "
            "the moves from there are not known; use fewer states"
        )
    looks = np.bincount(before, minlength=n)
    rare, few = int(np.argmin(looks)), ("never", "once", "twice")
    if looks[rare] < len(few):
        return (
            f"{found.name} was {few[looks[rare]]} seen again after state {first + rare}, so the moves from there are "
            "not known; log more, or use fewer states"
        )
    distribution = " ".join(f"{share:.3f}" for share in seen / seen.sum())
    slot = f", or say --slot {trace.gap} if slots are that long" if trace.gap > 1 else ""
    return (
        f"{found.name}: {found.observations} observations identify at most its stationary distribution, about "
        f"{distribution}, "
        f"and not its transitions; log the arm in consecutive slots{slot}"
    )


def _arm_notes(arm: ArmFit, shape: str, n_states: int) -> list[str]:
    notes = []
    best, worst = arm.states
    if best == worst:
        times = "once" if arm.looks == 1 else f"{arm.looks} times"
        notes.append(f"was seen {times}, in state {best} only, and is taken for constant")
    elif arm.states != (0, n_states - 1):
        notes.append(f"was seen in states {best} to {worst} only, and has no others")
    if arm.jumps and shape == "birth-death":
        notes.append(
            f": {arm.jumps} of {arm.steps} steps ({arm.jump_share:.2%}) jump over a state, and a birth-death chain "
            "leaves them out; --shape free keeps them, but Restless-UCB assumes there are none"
        )
    if arm.unused and shape == "free":
        notes.append(f": {arm.unused} observations after a gap are not used, as a free chain takes steps only")
    for rival in arm.modes[1:]:
        lower = arm.modes[0].log_posterior - rival.log_posterior
        rows = " / ".join(" ".join(f"{p:.3f}" for p in row) for row in rival.transitions)
        notes.append(f": another chain is nearly as likely (log-posterior lower by {lower:.2f}): {rows}")
    if not arm.identified:
        notes.append(
            ": the log does not identify its transitions, and the chain depends on the prior as much as on the data"
        )
    rise = np.diff(arm.rewards)
    if rise.size and rise.max() > 0:
        k = int(rise.argmax())
        error = math.hypot(arm.reward_errors[k], arm.reward_errors[k + 1])
        more = f"{rise[k]:.2g}" + (f" ± {error:.1g}" if error > 0 else "")
        notes.append(f": state {best + k + 1} pays {more} more than state {best + k}, against Assumption 1")
    if arm.selective:
        notes.append(
            ": how long it went unlogged depends on its state, as when a policy chose what to log; "
            "distributions are compared for consecutive observations"
        )
    return [f"arm {arm.name!r}{'' if note.startswith(':') else ' '}{note}" for note in notes]
