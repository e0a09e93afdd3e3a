"""A problem from a trace: chains with standard errors, mean rewards, and how well the chains explain the log.

*Chains.* ``birth-death`` (the default, what the paper and most learners assume) is the likeliest chain that moves by at
most one state, from all observations, those after gaps included: see ``estimation``. Moves over more states than slots
have passed are impossible for such a chain. They are counted and left out, so that what is fitted is the chain given
that it does not jump, the nearest birth-death chain in the sense of Kullback and Leibler. ``free`` is any chain, from
the moves between consecutive slots alone, with the same prior: (count + 1) / (total + states), standard errors
√(p(1 − p) / (total + states)). For two states, logged in every slot, both are the same.

*Comparison of laws.* If a chain is right, a state τ slots after s has the law P^τ(s). For some τ this is held against
pairs of observations τ slots apart, whatever was logged between them. The pairs do not overlap (their starts agree
modulo τ), so that, given their starts, their ends are independent draws, and the sum of (seen − expected)²/expected has
about the χ² law; neighbouring states are pooled until five are expected. The chain was fitted to the same log, to the
pairs with τ = 1 most of all: a small p-value is bad news for the chain, a large one is no proof of it.

Where a policy chose what to log, a look between the two decides whether there is a second one, and such pairs would be
a biased sample (the fit itself is not: given the last look, the next has the law P^τ whoever chose it). So it is tested
whether the length of waits depends on the state they begin in; where it does, pairs are looks with none between them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits import markov
from restless_bandits._compile import clock
from restless_bandits.arrays import Array, IntArray, whole
from restless_bandits.data.reading import LAST_SLOT
from restless_bandits.data.traces import Trace
from restless_bandits.errors import ProblemError, check_known
from restless_bandits.estimation import PRIOR, ArmEstimate, Estimate, Mode, NotIdentified, likely_chains
from restless_bandits.forecasts import Report, paced
from restless_bandits.problem import Arm, Findings, Problem
from restless_bandits.rewards import RewardLaw

SHAPES = ("birth-death", "free")
FEWEST_PAIRS = 10
"""Pairs of observations without which nothing is said of a lag."""
EXPECTED = 5.0
"""Expected counts below which states are pooled."""
FORGOTTEN = 0.01
"""A law this near to the stationary one, in total variation, tells nothing more of the moves."""
DOUBTFUL = 1e-3
"""A chain is called a misfit when the smallest of its p-values, times their number, is below this."""


@dataclass(frozen=True, eq=False)
class LawCheck:
    """States seen ``lag`` slots apart, and what the fitted chain says of them."""

    lag: int
    pairs: int
    counts: IntArray
    """Pairs by the state at their start and at their end."""
    predicted: Array
    """The law of the end by the state at the start: a power of the fitted chain."""
    same_observed: float
    """The share of pairs that end in the state they start in."""
    same_predicted: float
    same_error: float
    """The standard error of that share, if the chain is right."""
    chi_square: float
    degrees: int
    p_value: float
    """Not a number where there are too few pairs for a comparison."""

    @property
    def observed(self) -> Array:
        """Shares of the end by the state at the start; not numbers where no pair starts."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    def as_dict(self) -> dict[str, Any]:
        names = "pairs observed predicted same_observed same_predicted same_error chi_square degrees p_value"
        return {"tau": self.lag} | {name: getattr(self, name) for name in names.split()}


LEAST_SPREAD = 1e-3
"""A fitted spread stays this far from 0 and 1, where there is no beta law."""


@dataclass(frozen=True, eq=False)
class ArmFit(ArmEstimate):
    """One arm: its chain, its rewards, and how they fit."""

    states: tuple[int, int]
    """The best and the worst state seen, by their common numbers; the arm's own state 0 is the first of them."""
    looks: int
    """Lines of the log."""
    reward_law: RewardLaw
    """``beta`` for rewards that are neither at the ends of their range nor fixed by the state."""
    reward_spread: float | None
    """The standard deviation of a ``beta`` law, as a share of the largest possible."""
    steps: int
    """Observations in consecutive slots."""
    jumps: int
    """Those of them that moved over more than one state."""
    unused: int
    """Observations that the shape could not use: impossible moves, or, for a free chain, all after a gap."""
    selective: bool
    """Whether the waits between looks depend on the state, as when a policy chose what to log."""
    laws: tuple[LawCheck, ...]

    @property
    def jump_share(self) -> float:
        """The share of steps over more than one state; not a number without steps."""
        return self.jumps / self.steps if self.steps else math.nan

    @property
    def misfit(self) -> str | None:
        """Why the log rejects the chain, if it does."""
        tested = [law for law in self.laws if law.degrees]
        worst = min(tested, key=lambda law: law.p_value, default=None)
        if worst is None or worst.p_value * len(tested) >= DOUBTFUL:
            return None
        p = f"= {worst.p_value:.1g}" if worst.p_value > 0 else "below 1e-300"
        return (
            f"arm {self.name!r}: what was seen {worst.lag} slots apart does not fit the chain (p {p}); "
            "its states are no Markov chain of this shape"
        )

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
            "laws": [law.as_dict() for law in self.laws],
        }


@dataclass(frozen=True, eq=False)
class Fit:
    """A problem made from a trace, and what is to be thought of it."""

    problem: Problem
    arms: tuple[ArmFit, ...]
    shape: str
    trace: Trace
    notes: tuple[str, ...]
    """What a user of the problem should know: jumps, ambiguities, laws that do not fit.

    That the log rejects the chains stands in ``problem.findings`` too, and goes wherever the problem goes.
    """

    def as_dict(self) -> dict[str, Any]:
        """Return everything as ``restless fit --json`` prints it."""
        return {
            "trace": self.trace.source,
            "problem": self.problem.name,
            "shape": self.shape,
            "observations": len(self.trace),
            "first_slot": int(self.trace.times[0]),
            "last_slot": int(self.trace.times[-1]),
            "states": self.trace.n_states,
            "edges": self.trace.edges,
            "reward_range": self.trace.reward_range,
            "arms": [arm.as_dict() for arm in self.arms],
            "notes": list(self.notes),
            "fit": self.problem.findings.as_dict(),
        }

    def __repr__(self) -> str:
        head = f"<Fit: {self.problem.name or 'trace'}, {self.shape} chains, {len(self.trace)} observations"
        return "\n".join([head, *(f"  note: {note}" for note in self.notes)]) + ">"


def fit(
    trace: Trace,
    *,
    shape: str = "birth-death",
    lags: Sequence[int] | None = None,
    name: str | None = None,
    strict: bool = True,
    announce: Report | None = None,
) -> Fit:
    """Fit a problem to a trace.

    Parameters
    ----------
    trace
        What was logged.
    shape
        ``birth-death`` or ``free``.
    lags
        The τ for which laws are compared; 1, 2, 5, 10, … where not given.
    name
        The problem's name; the file's without its ending where not given.
    strict
        Raise ``NotIdentified`` where the log does not tell the moves of an arm; the exception carries the estimate.
    announce
        Called with a line that says how long it will take, if that is long.

    """
    check_known(shape, SHAPES, "there is no shape")
    if lags is not None and not np.iterable(lags):
        raise ProblemError(f"lags is {lags!r}; give a list of whole numbers, such as [1, 2, 5]")
    for lag in () if lags is None else lags:
        whole("a lag", lag, 1, LAST_SLOT - 1)
    numbers = paced(range(trace.n_arms), f"fit of {trace.n_arms} arms", announce, clock)
    arms = tuple(_fit_arm(trace, arm, shape, lags, strict) for arm in numbers)
    stem = trace.source.rpartition(".")[0] or trace.source
    about = ("name", "reward_law", "reward_spread")
    problem = Problem(
        [
            Arm(
                one.transitions,
                one.rewards,
                reward_range=trace.reward_range,
                **{key: getattr(one, key) for key in about},
            )
            for one in arms
        ],
        name=stem if name is None else name,
        source=f"Fitted to {trace.source or 'a trace'}: {len(trace)} observations in slots {trace.times[0]} to "
        f"{trace.times[-1]}, {shape} chains.",
        findings=Findings(rejected=_rejection(arms)),
    )
    notes = [note for arm in arms for note in _arm_notes(arm, shape, trace.n_states)]
    if trace.gap > 1:
        notes.insert(
            0, f"all waits are multiples of {trace.gap}; if that is the length of a slot, say so (--slot {trace.gap})"
        )
    return Fit(problem, arms, shape, trace, tuple(notes))


def _rejection(arms: Sequence[ArmFit]) -> str | None:
    """Why the log rejects the chains, told of the first arm that it does so for."""
    misfits = [arm.misfit for arm in arms if arm.misfit is not None]
    if len(misfits) < 2:
        return misfits[0] if misfits else None
    others = len(misfits) - 1
    return f"{misfits[0]}, and {others} other arm{'s fit' if others > 1 else ' fits'} no better"


def mean_rewards(trace: Trace, arm: int) -> tuple[Array, Array]:
    """Return the mean reward of an arm in each of its states, with standard errors.

    A state between others that was never seen takes a mean between theirs; it has no standard error, and nor has a
    logged reward that was seen once.
    """
    best, worst = trace.spans[arm]
    if trace.levels is not None:
        return np.array(trace.levels[best : worst + 1]), np.zeros(worst - best + 1)
    _, states, rewards = trace.of_arm(arm)
    seen = np.bincount(states, minlength=worst - best + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.bincount(states, weights=rewards, minlength=len(seen)) / seen
        squares = np.bincount(states, weights=(rewards - means[states]) ** 2, minlength=len(seen))
        errors = np.sqrt(squares / (seen - 1) / seen)
    errors[seen < 2] = math.nan
    known = np.flatnonzero(seen)
    return np.clip(np.interp(np.arange(len(seen)), known, means[known]), *trace.reward_range), errors


def reward_spread(trace: Trace, arm: int) -> float:
    """Return the spread of the beta law (see ``rewards``) that varies as much as an arm's rewards within its states."""
    _, states, rewards = trace.of_arm(arm)
    low, high = trace.reward_range
    means = mean_rewards(trace, arm)[0][states]
    largest = float(((means - low) * (high - means)).sum())
    variance = float(((rewards - means) ** 2).sum())
    return min(max(math.sqrt(variance / largest), LEAST_SPREAD), 1 - LEAST_SPREAD)


def _fit_arm(trace: Trace, arm: int, shape: str, lags: Sequence[int] | None, strict: bool) -> ArmFit:
    times, states, _ = trace.of_arm(arm)
    waits, moved = np.diff(times), np.abs(np.diff(states))
    useful = moved <= waits if shape == "birth-death" else waits == 1
    found = _estimated(trace, arm, shape, waits[useful], states[:-1][useful], states[1:][useful])
    if strict and not found.identified:
        raise NotIdentified(_refusal(trace, arm, states[:-1][useful], found), Estimate((found,)))
    rewards, errors = mean_rewards(trace, arm)
    selective = _is_selective(times, states)
    varies = trace.reward_laws[arm] == "bounded"
    of_arm = {"name": trace.names[arm], "rewards": rewards, "reward_errors": errors}
    return ArmFit(
        **vars(found) | of_arm,
        states=trace.spans[arm],
        looks=len(times),
        reward_law="beta" if varies else trace.reward_laws[arm],
        reward_spread=reward_spread(trace, arm) if varies else None,
        steps=int((waits == 1).sum()),
        jumps=int(((waits == 1) & (moved > 1)).sum()),
        unused=int((~useful).sum()),
        selective=selective,
        laws=tuple(_law_checks(times, states, found.transitions, lags, trace.gap, selective)),
    )


def _estimated(trace: Trace, arm: int, shape: str, waits: IntArray, before: IntArray, after: IntArray) -> ArmEstimate:
    """The chain of an arm, from pairs of looks that the shape can explain, one after the other."""
    name, n = f"arm {trace.names[arm]!r}", trace.sizes[arm]
    if shape == "birth-death" and n > 1:
        # By the exact wait and the first state; a record would keep long waits in bins.
        keys, places = np.unique(waits * n + before, return_inverse=True)
        seen = np.zeros((len(keys), n), dtype=np.int64)
        np.add.at(seen, (places, after), 1)
        modes, identified = likely_chains((keys // n, keys % n, seen), n)
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
    return ArmEstimate(name, len(waits), modes, nothing, nothing, identified)


def _refusal(trace: Trace, arm: int, before: IntArray, found: ArmEstimate) -> str:
    """Why the moves of an arm are not told by its log, and what is."""
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
    law = " ".join(f"{share:.3f}" for share in seen / seen.sum())
    slot = f", or say --slot {trace.gap} if slots are that long" if trace.gap > 1 else ""
    return (
        f"{found.name}: {found.observations} observations tell at most its stationary law, about {law}, and not its "
        f"moves; log it in consecutive slots{slot}"
    )


def _law_checks(
    times: IntArray, states: IntArray, chain: Array, lags: Sequence[int] | None, gap: int, selective: bool
) -> list[LawCheck]:
    """The comparison for each lag for which there are pairs; without given lags until the chain has forgotten."""
    if len(chain) == 1:
        return []
    stationary = markov.stationary(chain)
    checks: list[LawCheck] = []
    for lag in _usual_lags(times, gap) if lags is None else lags:
        starts, ends = _pairs(times, int(lag), selective)
        if len(starts) < (FEWEST_PAIRS if lags is None else 1):
            continue
        power = np.linalg.matrix_power(chain, int(lag))
        checks.append(_law_check(int(lag), states[starts], states[ends], power / power.sum(axis=1, keepdims=True)))
        if lags is None and markov.distances(power, stationary) < FORGOTTEN:
            break
    return checks


def _usual_lags(times: IntArray, gap: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … times the gap that all waits have in common, and the commonest wait, if there is any."""
    waits, counts = np.unique(np.diff(times), return_counts=True)
    if not waits.size:
        return []
    longest = int(times[-1] - times[0])
    ladder = (gap * digit * 10**power for power in range(19) for digit in (1, 2, 5))
    return sorted({int(waits[counts.argmax()]), *itertools.takewhile(lambda lag: lag <= longest, ladder)})


def _is_selective(times: IntArray, states: IntArray) -> bool:
    """Whether waits longer than the median follow some states more often than others, beyond doubt."""
    from scipy import stats

    waits = np.diff(times)
    long = waits > np.median(waits) if waits.size else np.zeros(0, dtype=bool)
    table = np.zeros((int(states.max()) + 1, 2))
    np.add.at(table, (states[:-1], long.astype(np.int64)), 1)
    table = table[table.sum(axis=1) > 0]
    if len(table) < 2 or not long.any():
        return False
    return bool(stats.chi2_contingency(table).pvalue < DOUBTFUL)


def _pairs(times: IntArray, lag: int, selective: bool) -> tuple[IntArray, IntArray]:
    """Observations ``lag`` slots apart that do not overlap: starts of the remainder modulo the lag that most have."""
    if selective:
        starts = np.flatnonzero(np.diff(times) == lag)
        return starts, starts + 1
    later = np.searchsorted(times, times + lag)
    there = later < len(times)
    there[there] = times[later[there]] == times[there] + lag
    starts = np.flatnonzero(there)
    if not starts.size:
        return starts, starts
    kinds, which = np.unique(times[starts] % lag, return_inverse=True)
    chosen = starts[which == np.argmax(np.bincount(which, minlength=len(kinds)))]
    return chosen, later[chosen]


def _law_check(lag: int, before: IntArray, after: IntArray, predicted: Array) -> LawCheck:
    from scipy import stats

    n = len(predicted)
    counts = np.zeros((n, n), dtype=np.int64)
    np.add.at(counts, (before, after), 1)
    same = np.diagonal(predicted)[before]
    chi_square, degrees = 0.0, 0
    for row in range(n):
        seen, expected = _pooled(counts[row], counts[row].sum() * predicted[row])
        chi_square += float(((seen - expected) ** 2 / expected).sum()) if len(seen) > 1 else 0.0
        degrees += max(0, len(seen) - 1)
    error = float(np.sqrt((same * (1 - same)).sum())) / len(before)
    p_value = float(stats.chi2.sf(chi_square, degrees)) if degrees else math.nan
    shares = (float((before == after).mean()), float(same.mean()), error)
    return LawCheck(lag, len(before), counts, predicted, *shares, chi_square, degrees, p_value)


def _pooled(seen: IntArray, expected: Array) -> Array:
    """What was seen and expected of groups: neighbouring states until enough is expected; a rest joins the last."""
    groups = [np.zeros(2)]
    for count, mean in zip(seen, expected, strict=True):
        if groups[-1][1] >= EXPECTED:
            groups.append(np.zeros(2))
        groups[-1] += np.array([count, mean])
    if len(groups) > 1 and groups[-1][1] < EXPECTED:
        rest = groups.pop()
        groups[-1] += rest
    return np.array(groups).T


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
        notes.append(": its moves are not told by the log, and the chain depends on the prior as much as on the data")
    rise = np.diff(arm.rewards)
    if rise.size and rise.max() > 0:
        k = int(rise.argmax())
        error = math.hypot(arm.reward_errors[k], arm.reward_errors[k + 1])
        more = f"{rise[k]:.2g}" + (f" ± {error:.1g}" if error > 0 else "")
        notes.append(f": state {best + k + 1} pays {more} more than state {best + k}, against Assumption 1")
    if arm.selective:
        notes.append(
            ": how long it went unlogged depends on its state, as when a policy chose what to log; "
            "laws are compared for looks with none between them"
        )
    named = [f"arm {arm.name!r}{'' if note.startswith(':') else ' '}{note}" for note in notes]
    return named if arm.misfit is None else [*named, arm.misfit]
