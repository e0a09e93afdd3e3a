"""Chains from interleaved observations: estimates, standard errors, and what the data cannot tell.

    found = rb.estimate(agent.record)
    found.arms[0].transitions, found.arms[0].standard_errors

An observation "k, τ slots after s" is a draw from row s of P^τ, so all that was seen of an arm has the likelihood
Π P^τ(s, k)^n[s, τ, k], whatever arms were pulled in between. The chain is taken to be a birth-death chain, each row
with a flat prior (Dirichlet(1); one pseudo-count for every category on the scale of logits, so that modes are
interior), and the mode is found by Fisher scoring from several starts: with even waits alone λ cannot be told from −λ,
and a climb from one start may end on the wrong side. Modes that are nearly as likely as the best are all returned.
Standard errors come from Fisher's information at the mode by the delta method.

Where waits were so long that only the stationary law shows, or where there are next to no data, the moves are not
identified: ``estimate`` then refuses, and the refusal carries the estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from restless_bandits.arrays import Array, positive
from restless_bandits.errors import ProblemError
from restless_bandits.estimation import _kernels as kernels
from restless_bandits.estimation._kernels import Observations as Observations
from restless_bandits.estimation._kernels import chain_of as chain_of
from restless_bandits.record import BIN_MIDDLES, Record

PRIOR = 1.0
RIVAL = 3.0
"""Modes whose log-posterior is less than this below the best are kept."""
THOROUGH = 4
"""Every so many plans modes are looked for from more starts."""
LONG_WAIT = 10
"""Slots of a wait for which slower chains are tried than those of ``starts``."""
DIFFERENT = 1e-3
"""Modes whose chains differ by less are one."""


@dataclass(frozen=True, eq=False)
class Mode:
    """A local maximum of the posterior."""

    transitions: Array
    standard_errors: Array
    log_posterior: float


@dataclass(frozen=True, eq=False)
class ArmEstimate:
    """What is known of one arm."""

    name: str
    observations: int
    modes: tuple[Mode, ...]
    """The likeliest first; more than one where the data cannot decide between them."""
    rewards: Array
    """Mean rewards by state, not a number where a state was never seen."""
    reward_errors: Array
    identified: bool
    """Whether the data say more of every move than the prior does."""

    @property
    def transitions(self) -> Array:
        return self.modes[0].transitions

    @property
    def standard_errors(self) -> Array:
        return self.modes[0].standard_errors


@dataclass(frozen=True, eq=False)
class Estimate:
    """What is known of all arms."""

    arms: tuple[ArmEstimate, ...]


class NotIdentified(ProblemError):  # noqa: N818 - a refusal, not a fault
    """The data do not tell the moves of some arm; ``estimate`` is what they tell."""

    def __init__(self, message: str, estimate: Estimate) -> None:
        super().__init__(message)
        self.estimate = estimate


def estimate(
    record: Record, *, names: Sequence[str] | None = None, prior: float = PRIOR, strict: bool = True
) -> Estimate:
    """Estimate the chains and rewards of all arms from what was seen.

    A record keeps waits of more than 512 slots in bins, a quarter of their length wide; they count as the middle of
    theirs. Where such waits are the rule, take ``rb.data.fit``, which knows them exactly.

    Parameters
    ----------
    record
        What was seen: of an ``Agent``, of a run, or filled by hand with ``observe`` and ``skip``.
    names
        Names of the arms, for messages.
    prior
        Pseudo-counts for every category of every row.
    strict
        Raise ``NotIdentified`` where the data do not tell the moves of an arm; the exception carries the estimate.

    """
    positive("prior", prior)
    record = record.frozen()
    labels = [f"arm {i}" for i in range(record.n_arms)] if names is None else list(names)
    if len(labels) != record.n_arms:
        raise ProblemError(f"there are {len(labels)} names for {record.n_arms} arms; give one for each")
    found = Estimate(tuple(_estimate_arm(record, arm, label, prior) for arm, label in enumerate(labels)))
    vague = [arm for arm in found.arms if not arm.identified]
    if vague and strict:
        raise NotIdentified(
            f"{vague[0].name}: {vague[0].observations} observations tell at most its stationary law, not its moves; "
            "pull it in consecutive slots, or take what is known with strict=False",
            found,
        )
    return found


def _estimate_arm(record: Record, arm: int, name: str, prior: float) -> ArmEstimate:
    counts = record.counts(arm)
    n = counts.shape[2]
    seen = record.seen(arm)
    with np.errstate(invalid="ignore", divide="ignore"):
        rewards = record.reward_sums(arm) / seen
        errors = np.sqrt(np.maximum(rewards * (1 - rewards), 0.0) / seen)
    observations = int(counts[:-1].sum())
    if n == 1:
        still = Mode(np.ones((1, 1)), np.zeros((1, 1)), 0.0)
        return ArmEstimate(name, observations, (still,), rewards, errors, identified=True)
    modes, identified = likely_chains(observations_of(record, arm), n, prior)
    return ArmEstimate(name, observations, modes, rewards, errors, identified)


def observations_of(record: Record, arm: int) -> Observations:
    """Return what was seen of an arm, without its first sight."""
    bins, states = np.divmod(np.flatnonzero(record.visits(arm)[:-1].T), record.n_states[arm])
    return BIN_MIDDLES[bins], states, record.counts(arm)[states, bins]


def likely_chains(seen: Observations, n: int, prior: float = PRIOR) -> tuple[tuple[Mode, ...], bool]:
    """Return the chains of ``n`` states between which observations cannot decide, the likeliest first.

    And whether the data say more of every move than the prior does.
    """
    best, *rivals = modes_of(seen, n, [*starts(n), *_slow_starts(seen, n)], prior=prior)
    kept = [best] + [rival for rival in rivals if rival.value > best.value - RIVAL]
    modes = tuple(Mode(chain_of(one.theta, n), _errors(one, n), one.value) for one in kept)
    return modes, _data_outweigh_prior(best, n, prior)


def _slow_starts(observations: Observations, n: int) -> list[Array]:
    """Chains that move about once in a wait, for a usual one and for the longest.

    After long waits quick chains are all alike: from them there is no way up to a slow one that is far likelier.
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
        return np.asarray(np.linalg.inv(self.information), dtype=np.float64)


def move_errors(mode: LogitMode) -> Array:
    """Return the standard errors of the moves, in the order of θ."""
    return kernels.move_errors(mode.theta, (len(mode.theta) + 2) // 2, mode.covariance)


def climb(seen: Observations, n: int, prior: float, start: Array, goal: float = -np.inf) -> LogitMode:
    """Climb to a mode from a start; no further than shows that it will not be as high as ``goal``."""
    theta = np.array(start, dtype=np.float64)
    information = np.empty((len(theta), len(theta)))
    value = kernels.climb(theta, n, seen, prior, goal, information)
    return LogitMode(theta, value, information)


def modes_of(
    seen: Observations, n: int, begin: Sequence[Array] | None = None, *, prior: float = PRIOR, thorough: bool = True
) -> list[LogitMode]:
    """Return the different modes that climbs from some starts and from rivals of the best end in, the best first.

    The first rival has the opposite correlation. Thorough, there are more: two waits for each of two rows are two
    quadratic equations, and each row alone may have settled on the wrong root. A climb that would end more than
    ``RIVAL`` below the best is given up, and stands in the list where it stopped.
    """
    found = [climb(seen, n, prior, start) for start in (starts(n) if begin is None else begin)]
    best = max(found, key=lambda one: one.value)
    rivals = [kernels.twin_of(best.theta, n)]
    if thorough:
        rivals += _mirrors(best.theta, n)
    found += [climb(seen, n, prior, rival, goal=best.value - RIVAL) for rival in rivals]
    modes: list[LogitMode] = []
    for one in sorted(found, key=lambda one: -one.value):
        chain = chain_of(one.theta, n)
        if all(np.abs(chain - chain_of(other.theta, n)).max() > DIFFERENT for other in modes):
            modes.append(one)
    return modes


def noted_theta(record: Record, name: str, arm: int) -> Array | None:
    """Return the θ of an arm that the notes of the last plan keep under a name, None where there are none."""
    last = record.notes.get(name)
    if last is None:
        return None
    theta = np.array(last[arm], dtype=np.float64)
    if theta.shape != (2 * (record.n_states[arm] - 1),) or not (np.abs(theta) <= kernels.LARGEST_LOGIT).all():
        raise ProblemError(f"the notes of the last plan hold {name} that are no logits of the moves of arm {arm}")
    return theta


def modes_from_last(record: Record, arm: int) -> list[LogitMode]:
    """Return ``modes_of`` an arm, from the best of the last plan, which its notes keep; now and then thoroughly."""
    last = noted_theta(record, "modes", arm)
    begin = None if last is None else [last]
    n = int(record.n_states[arm])
    return modes_of(observations_of(record, arm), n, begin, thorough=record.plans % THOROUGH == 0)


def _mirrors(theta: Array, n: int) -> list[Array]:
    """For two states the chain with the moves of one row reversed; else fast chains."""
    if n != 2:
        return [np.full(len(theta), 1.0)]
    return [theta * np.array(signs) for signs in ((1.0, -1.0), (-1.0, 1.0))]


def starts(n: int) -> list[Array]:
    """Chains that move as often as not, seldom, and nearly always."""
    return [np.full(2 * (n - 1), logit) for logit in (0.0, -2.0, 2.0)]


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
