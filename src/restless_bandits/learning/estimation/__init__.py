"""Chains from interleaved observations: estimates, standard errors, and identifiability.

    found = rb.estimate(agent.record)
    found.arms[0].transitions, found.arms[0].standard_errors

An observation "k, τ slots after s" is a draw from row s of P^τ. The observations of an arm therefore have the
likelihood Π P^τ(s, k)^n[s, τ, k], whatever arms were pulled in between. The chain is assumed to be a birth-death chain,
each row with a flat prior (Dirichlet(1); one pseudo-count for every category on the scale of logits, to keep modes
interior). Fisher scoring from several starts finds the mode: with even waits alone λ cannot be distinguished from −λ,
and a climb from a single start may end on the wrong side. All modes nearly as likely as the best are returned. Standard
errors come from Fisher's information at the mode by the delta method.

An arm that reacts has two chains, of which no order of states is assumed: see ``reacting``. ``transitions`` is then the
chain of slots without a pull, and ``active_transitions`` the chain of slots with a pull. Its first observation, and
observations after a pull without an observation, are not used.

If waits were so long that only the stationary distribution shows, or with next to no data, the transitions are not
identified: ``estimate`` then refuses, and the exception carries the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.html_tables import html_table, numbers_text
from restless_bandits._internal.validation import Array, IntArray, positive
from restless_bandits.learning.estimation import arm_kernels as arms
from restless_bandits.learning.estimation import chain_kernels as kernels
from restless_bandits.learning.estimation import reacting_kernels
from restless_bandits.learning.estimation.arm_kernels import RIVAL as RIVAL
from restless_bandits.learning.estimation.chain_kernels import Observations as Observations
from restless_bandits.learning.estimation.chain_kernels import chain_of as chain_of
from restless_bandits.learning.estimation.reacting import not_identified, reacting_modes
from restless_bandits.learning.estimation.reacting_kernels import ByState
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import ZERO_TO_ONE, Range, checked_range, outside

PRIOR = 1.0
FEW_OBSERVATIONS = 10
"""A state observed less often is called scarce in the refusal of an estimate."""
THOROUGH = 4
"""The number of plans between searches of modes from additional starts."""
LONG_WAIT = 10
"""The least wait, in slots, for which slower starting chains are added to ``starts``."""


@dataclass(frozen=True, eq=False)
class Mode:
    """A local maximum of the posterior."""

    transitions: Array
    standard_errors: Array
    log_posterior: float


@dataclass(frozen=True, eq=False)
class ReactingMode(Mode):
    """A local maximum of the posterior of both chains of an arm that reacts."""

    active_transitions: Array
    """The chain of slots with a pull."""
    active_standard_errors: Array


@dataclass(frozen=True, eq=False)
class ArmEstimate:
    """The estimate of an arm."""

    name: str
    observations: int
    modes: tuple[Mode, ...]
    """The likeliest first; several modes if the data cannot decide between them."""
    rewards: Array
    """Mean rewards by state, NaN for a state never observed."""
    reward_errors: Array
    identified: bool
    """Whether the data say more of every move than the prior does."""
    not_identified: tuple[str, ...]
    """Of an arm that reacts: sentences about the parts of its chains that the data do not identify."""

    @property
    def transitions(self) -> Array:
        return self.modes[0].transitions

    @property
    def standard_errors(self) -> Array:
        return self.modes[0].standard_errors

    @property
    def active_transitions(self) -> Array | None:
        """The chain of slots with a pull; None for an arm that does not react."""
        mode = self.modes[0]
        return mode.active_transitions if isinstance(mode, ReactingMode) else None

    @property
    def active_standard_errors(self) -> Array | None:
        mode = self.modes[0]
        return mode.active_standard_errors if isinstance(mode, ReactingMode) else None


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimates of all arms."""

    arms: tuple[ArmEstimate, ...]

    def __repr__(self) -> str:
        seen = sum(arm.observations for arm in self.arms)
        vague = sum(not arm.identified for arm in self.arms)
        doubt = f", {vague} not identified" if vague else ""
        return f"<Estimate: {len(self.arms)} arms, {seen} observations{doubt}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], ESTIMATE_HEADS, map(estimate_row, self.arms))


ESTIMATE_HEADS = ("arm", "observations", "identified", "mean rewards", "transitions", "standard errors")


def estimate_row(arm: ArmEstimate) -> tuple[object, ...]:
    """Return the row of an arm in a table of estimates."""
    chains = ("; ".join(map(numbers_text, rows)) for rows in (arm.transitions, arm.standard_errors))
    return arm.name, arm.observations, "yes" if arm.identified else "no", numbers_text(arm.rewards), *chains


class NotIdentified(ProblemError):  # noqa: N818 - a refusal, not a fault
    """The data do not identify the transitions of some arm; ``estimate`` has the estimate."""

    def __init__(self, message: str, estimate: Estimate) -> None:
        super().__init__(message)
        self.estimate = estimate


def estimate(
    record: Record,
    *,
    names: Sequence[str] | None = None,
    prior: float = PRIOR,
    strict: bool = True,
    reward_ranges: Sequence[Range] | None = None,
) -> Estimate:
    """Estimate the chains and rewards of all arms from a record.

    A record keeps waits of more than 512 slots in bins, a quarter of their length wide, represented by their middles.
    For data with mostly such waits use ``rb.data.fit``, which has exact waits.

    Parameters
    ----------
    record
        The observations: of an ``Agent``, of a run, or entered manually with ``observe`` and ``skip``.
    names
        Names of the arms, for messages.
    prior
        Pseudo-counts for every category of every row.
    strict
        Raise ``NotIdentified`` if the data do not identify the transitions of an arm; the exception has the estimate.
    reward_ranges
        The lowest and the highest reward of each arm, as ``task.reward_ranges``; (0, 1) each by default. Standard
        errors of mean rewards are upper bounds, valid for rewards at the two ends.

    """
    positive("prior", prior)
    record = record.frozen()
    labels = [f"arm {i}" for i in range(record.n_arms)] if names is None else list(names)
    if len(labels) != record.n_arms:
        raise ProblemError(f"there are {len(labels)} names for {record.n_arms} arms; give one for each")
    ranges = [ZERO_TO_ONE] * record.n_arms if reward_ranges is None else list(reward_ranges)
    if len(ranges) != record.n_arms:
        raise ProblemError(f"there are {len(ranges)} reward_ranges for {record.n_arms} arms; give one for each")
    ranges = [checked_range(f"reward_ranges[{i}]", ends) for i, ends in enumerate(ranges)]
    about = enumerate(zip(labels, ranges, strict=True))
    found = Estimate(tuple(_estimate_arm(record, arm, label, prior, ends) for arm, (label, ends) in about))
    vague = [arm for arm in found.arms if not arm.identified]
    if vague and strict and vague[0].not_identified:
        remedy = "or get the estimate with strict=False"
        raise NotIdentified(f"{vague[0].name}: {vague[0].not_identified[0]}, {remedy}", found)
    if vague and strict:
        arm, seen = vague[0], record.seen(found.arms.index(vague[0]))
        reason = _too_little(arm.observations, seen)
        raise NotIdentified(f"{arm.name}: {reason}, or get the estimate with strict=False", found)
    return found


def _too_little(observations: int, seen: IntArray) -> str:
    """Return the reason why observations do not identify transitions, with the remedy; ``seen`` counts states."""
    scarce = int(np.argmin(seen))
    if seen[scarce] >= FEW_OBSERVATIONS:
        return (
            f"{observations} observations identify at most its stationary distribution, not its transitions; pull the "
            "arm in consecutive slots"
        )
    few = int(seen[scarce])
    times = "was never observed" if few == 0 else f"was observed {few} time{'s' if few > 1 else ''}"
    return (
        f"{observations} observations do not identify its transitions, as state {scarce} {times}; pull the arm more "
        "often, or use fewer states"
    )


def _estimate_arm(record: Record, arm: int, name: str, prior: float, ends: Range) -> ArmEstimate:
    counts = record.counts(arm)
    n = counts.shape[2]
    seen = record.seen(arm)
    with np.errstate(invalid="ignore", divide="ignore"):
        rewards = record.reward_sums(arm) / seen
        low, high = ends
        off = 1e-9 * max(abs(low), abs(high))
        if outside(rewards, (low - off, high + off)).any():
            raise ProblemError(
                f"{name}: mean rewards are not between {low:.12g} and {high:.12g}; give reward_ranges, as the task has"
            )
        errors = np.sqrt(np.maximum((rewards - low) * (high - rewards), 0.0) / seen)
    observations = int(counts[:n].sum())
    if n == 1:
        still = Mode(np.ones((1, 1)), np.zeros((1, 1)), 0.0)
        if record.reacts[arm]:
            still = ReactingMode(np.ones((1, 1)), np.zeros((1, 1)), 0.0, np.ones((1, 1)), np.zeros((1, 1)))
        return ArmEstimate(name, observations, (still,), rewards, errors, True, ())
    if record.reacts[arm]:
        pairs, sentences = likely_pairs(reacting_kernels.gather_by_state(arm, counts_of(record)), n, prior)
        return ArmEstimate(name, observations, pairs, rewards, errors, not sentences, sentences)
    modes, identified = likely_chains(observations_of(record, arm), n, prior)
    return ArmEstimate(name, observations, modes, rewards, errors, identified, ())


def counts_of(record: Record) -> arms.Counts:
    """Return the counts of a record for kernels: always read-only, to avoid a second compilation."""
    counts, visits, seen = (flat.view() for flat in (record.flat_counts, record.flat_visits, record.flat_seen))
    for view in (counts, visits, seen):
        view.setflags(write=False)
    bases = record.count_base, record.row_base, record.state_base
    return arms.Counts(counts, visits, seen, *bases, record.n_states)


def observations_of(record: Record, arm: int) -> Observations:
    """Return the observations of an arm, without its first observation."""
    return arms.gather(arm, counts_of(record))


def likely_chains(seen: Observations, n: int, prior: float = PRIOR) -> tuple[tuple[Mode, ...], bool]:
    """Return the chains of ``n`` states between which observations cannot decide, the likeliest first.

    And whether the data say more of every move than the prior does.
    """
    best, *rivals = modes_of(seen, n, starts_for(seen, n), prior=prior)
    kept = [best] + [rival for rival in rivals if rival.value > best.value - RIVAL]
    modes = tuple(Mode(chain_of(one.theta, n), _errors(one, n), one.value) for one in kept)
    return modes, _data_outweigh_prior(best, n, prior)


def likely_pairs(seen: ByState, n: int, prior: float = PRIOR) -> tuple[tuple[ReactingMode, ...], tuple[str, ...]]:
    """Return the pairs of chains of an arm that reacts between which observations cannot decide, the likeliest first.

    And a sentence for each part of the chains that the observations do not identify.
    """
    found = reacting_modes(seen, n, prior)
    modes = []
    for one in found:
        errors = one.standard_errors()
        modes.append(ReactingMode(one.chains[0], errors[0], one.value, one.chains[1], errors[1]))
    return tuple(modes), not_identified(found, seen, n, prior)


def starts_for(seen: Observations, n: int) -> list[Array]:
    """Return the starts of climbs to the modes of some observations."""
    return [*arms.standard_starts(n), *_slow_starts(seen, n)]


def _slow_starts(observations: Observations, n: int) -> list[Array]:
    """Chains that move about once in a wait, for a usual wait and for the longest.

    After long waits all quick chains are alike: from them no climb leads to a slow chain of far higher likelihood.
    """
    elapsed, _, seen = observations
    if not elapsed.size:
        return []
    before = np.cumsum(seen.sum(axis=1))
    usual = elapsed[np.searchsorted(before, before[-1] / 2)]
    waits = {int(wait) for wait in (usual, elapsed[-1]) if wait > LONG_WAIT}
    return [np.full(2 * (n - 1), max(-math.log(wait), -kernels.LARGEST_LOGIT)) for wait in sorted(waits)]


@dataclass(frozen=True, eq=False)
class LogitMode:
    """A mode on the scale of logits: θ of ``_kernels``."""

    theta: Array
    value: float
    information: Array

    @property
    def covariance(self) -> Array:
        return arms.inverse(self.information)


def move_errors(mode: LogitMode) -> Array:
    """Return the standard errors of the moves, in the order of θ."""
    return kernels.move_errors(mode.theta, (len(mode.theta) + 2) // 2, mode.covariance)


def modes_of(
    seen: Observations, n: int, begin: Sequence[Array] | None = None, *, prior: float = PRIOR, thorough: bool = True
) -> list[LogitMode]:
    """Return the different modes of some observations, the best first: see ``_arms.find_modes``.

    Climbs begin at the given starts, else at chains that move as often as not, seldom, and nearly always.
    """
    starts = arms.standard_starts(n) if begin is None else np.array(begin)
    modes = arms.room_for(starts)
    found = arms.find_modes(seen, n, starts, prior, thorough, modes)
    return [LogitMode(modes.theta[m], float(modes.value[m]), modes.information[m]) for m in range(found)]


@dataclass(frozen=True, eq=False)
class Fits:
    """The likeliest chain of every arm on the scale of logits, and the standard errors of its transitions: flat arrays.

    The entries of an arm begin at ``first[arm]``, in the order of θ; an arm of one state has none.
    """

    n_states: IntArray
    first: IntArray
    theta: Array
    errors: Array
    notes: dict[str, Any]
    """The notes that the next plan needs in the record to continue."""

    def chains(self, widths: Array) -> Array:
        """Return all chains, flat, with transitions a given number of standard errors better than the likeliest."""
        deviations = np.repeat(widths, np.diff(self.first)) * self.errors
        return arms.moved_chains(self.theta, self.first, deviations, self.n_states)


def fit_from_last(record: Record) -> Fits:
    """Fit the chains of all arms, starting from the last plan: only arms with new observations.

    Every ``THOROUGH`` plans, arms with changes since the last thorough fit get additional starts.
    """
    thorough = record.plans % THOROUGH == 0
    first = first_logits(record)
    pulls, counts = record.pulls, counts_of(record)
    before = {name: _noted_pulls(record, name) for name in ("fitted", "searched")}
    last, errors = noted_thetas(record, "modes"), noted_thetas(record, "errors")
    stale = pulls != before["searched" if thorough else "fitted"]
    if last is None or errors is None:
        stale[:] = True
    theta = np.zeros(first[-1]) if last is None else last
    errors = np.zeros(first[-1]) if errors is None else errors
    for arm in np.flatnonzero(stale & (record.n_states > 1)).tolist():
        mine, n = slice(first[arm], first[arm + 1]), int(record.n_states[arm])
        begin = None if last is None else [theta[mine]]
        best = modes_of(arms.gather(arm, counts), n, begin, thorough=thorough)[0]
        theta[mine], errors[mine] = best.theta, move_errors(best)
    notes = {
        "modes": by_arm(theta, first),
        "errors": by_arm(errors, first),
        "fitted": pulls.tolist(),
        "searched": (pulls if thorough else before["searched"]).tolist(),
    }
    return Fits(record.n_states, first, theta, errors, notes)


def first_logits(record: Record) -> IntArray:
    """Return the offsets of each arm's logits in the flat array, and the end of the last."""
    return np.concatenate([[0], np.cumsum(2 * (record.n_states - 1))])


def by_arm(theta: Array, first: IntArray) -> list[list[float]]:
    """Return the logits of every arm in the form of notes."""
    flat = theta.tolist()
    return [flat[low:high] for low, high in pairwise(first.tolist())]


def noted_thetas(record: Record, name: str) -> Array | None:
    """Return the logits of all arms, flat, from the notes of the last plan under a name, or None if absent."""
    return noted_logits(record, name, 2 * (record.n_states - 1))


def noted_logits(record: Record, name: str, sizes: IntArray) -> Array | None:
    """Return noted logits, of given numbers for each arm: see ``noted_thetas``."""
    noted = record.notes.get(name)
    if noted is None:
        return None
    # An arm of one state has no logits: its notes may be empty.
    if [len(theta or ()) for theta in noted] == sizes.tolist():
        found = np.array([logit for theta in noted for logit in theta or ()], dtype=np.float64)
        if (np.abs(found) <= kernels.LARGEST_LOGIT).all():
            return found
    raise ProblemError(f"the notes of the last plan hold {name} that are no numbers for the moves of every arm")


def _noted_pulls(record: Record, name: str) -> IntArray:
    """Return each arm's number of pulls at its last fit; a negative number without a fit."""
    noted = record.notes.get(name)
    if noted is None:
        return np.full(record.n_arms, -1)
    found = np.array(noted)
    if found.dtype != np.int64 or found.shape != (record.n_arms,):
        raise ProblemError(f"the notes of the last plan hold {name} that are no pulls of every arm")
    return found


def _errors(mode: LogitMode, n: int) -> Array:
    chain = chain_of(mode.theta, n)
    slopes = np.zeros((n, n, len(mode.theta)))
    for j in range(len(mode.theta)):
        row, target = kernels.move_of(j, n)
        slopes[row, :, j] = -chain[row] * chain[row, target]
        slopes[row, target, j] += chain[row, target]
    variance = np.einsum("skj,ji,ski->sk", slopes, mode.covariance, slopes)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def _data_outweigh_prior(mode: LogitMode, n: int, prior: float) -> bool:
    """Whether the data's information is more than the prior's in every direction."""
    none = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, n), dtype=np.int64))
    gradient, of_prior = np.empty(len(mode.theta)), np.empty_like(mode.information)
    kernels.log_posterior(mode.theta, n, none, prior, gradient, of_prior)
    # Whitened by the prior: eigenvalues of the data's share of the information, in units of the prior's.
    scale = np.linalg.cholesky(of_prior)
    white = np.linalg.solve(scale, np.linalg.solve(scale, mode.information - of_prior).T)
    return bool(np.linalg.eigvalsh(0.5 * (white + white.T)).min() >= 1.0)
