"""Both chains of an arm that reacts, from observations of pulls: modes, standard errors, and identifiability.

With a_s the row of state s of P_active and P the matrix P_passive, the state τ slots after a pull in s has the
distribution a_s P^(τ − 1). The rows of P_active are identified by pulls in consecutive slots (τ = 1) only. The
stationary distribution of P is identified by long waits, and the speed of P by short waits above τ = 1, if a_s is not
stationary. Even numbers of rests alone leave an eigenvalue ρ of P and −ρ alike.

The chains are identified if the observations have at least as much of Fisher's information as the prior in every
direction of the logits, at the mode. Of a direction in which they have less, the rows that take part are named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.estimation import reacting_kernels as kernels
from restless_bandits.learning.estimation.arm_kernels import DIFFERENT, RIVAL
from restless_bandits.learning.estimation.chain_kernels import LARGEST_LOGIT, LARGEST_STEP, twin_of

MOST_STEPS = 200
GAIN = 1e-9
TAKES_PART = 0.1
"""The squared length in a row, of a unit vector of logits, from which on the row takes part in a direction."""


@dataclass(frozen=True, eq=False)
class LogitPair:
    """A local maximum of the posterior of both chains, on the scale of logits: see ``reacting_kernels``."""

    theta: Array
    value: float
    information: Array
    chains: Array
    """P_passive and P_active."""

    def standard_errors(self) -> Array:
        """Return the standard errors of the entries of both chains, by the delta method."""
        n = self.chains.shape[1]
        slopes = np.empty((len(self.theta), n))
        kernels.write_slopes(self.chains, 2 * n, slopes)
        covariance, variance = np.linalg.inv(self.information), np.empty((2 * n, n))
        for row in range(2 * n):
            mine = slice(row * (n - 1), (row + 1) * (n - 1))
            variance[row] = np.einsum("jk,ji,ik->k", slopes[mine], covariance[mine, mine], slopes[mine])
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)).reshape(2, n, n))


def reacting_modes(seen: kernels.ByState, n: int, prior: float) -> list[LogitPair]:
    """Return the different modes that are nearly as likely as the best, the best first."""
    climbed = [_climb(theta, seen, n, prior) for theta in _starts(seen, n)]
    best = max(climbed, key=lambda mode: mode.value)
    climbed += [_climb(theta, seen, n, prior) for theta in _twins(best, n)]
    climbed.sort(key=lambda mode: -mode.value)
    kept: list[LogitPair] = []
    for mode in climbed:
        new = all(np.abs(mode.chains - other.chains).max() > DIFFERENT for other in kept)
        if new and mode.value > climbed[0].value - RIVAL:
            kept.append(mode)
    return kept


def _starts(seen: kernels.ByState, n: int) -> list[Array]:
    """Rows of P_active from consecutive pulls; a P_passive that moves often, seldom, nearly always, or once a wait."""
    first, elapsed, counts = seen
    rows = np.zeros((n, n))
    for s in range(n):
        begin, end = first[n + s], first[n + s + 1]
        row = np.log(0.5 + (counts[begin] if begin < end and elapsed[begin] == 1 else np.zeros(n)))
        rows[s] = row - row[s]
    active = rows[~np.eye(n, dtype=bool)]
    waits = _rests(seen)
    levels = [0.0, -2.0, 2.0, *({-math.log(np.median(waits)), -math.log(waits.max())} if waits.size else ())]
    starts = [np.concatenate([np.full(n * (n - 1), level), active]) for level in levels]
    return [np.clip(start, -LARGEST_LOGIT, LARGEST_LOGIT) for start in starts]


def _twins(mode: LogitPair, n: int) -> list[Array]:
    """Starts for modes with the opposite correlation at rest: for two states the twins of a mode, else none.

    P_active is the same, as odd waits suggest, or mirrored at the stationary distribution, as even waits suggest.
    """
    if n != 2:
        return []
    passive = twin_of(mode.theta[1::-1].copy(), n)[::-1]
    move = mode.chains[0, [0, 1], [1, 0]]
    rest = move[0] / move.sum()
    mirrored = np.clip(2 * rest - mode.chains[1, :, 1], 1e-3, 1 - 1e-3)
    logits = np.log(mirrored / (1 - mirrored)) * [1, -1]
    return [np.concatenate([passive, active]) for active in (mode.theta[2:], logits)]


def _climb(theta: Array, seen: kernels.ByState, n: int, prior: float) -> LogitPair:
    """Fisher scoring; a step is at most ``LARGEST_STEP`` long in any logit, and halved until it does not descend."""
    size = len(theta)
    gradient, information = np.empty(size), np.empty((size, size))
    value = kernels.log_posterior(theta, n, True, seen, prior, gradient, information)
    for _ in range(MOST_STEPS):
        step = np.linalg.solve(information + 1e-9 * np.eye(size), gradient)
        step *= min(1.0, LARGEST_STEP / max(np.abs(step).max(), LARGEST_STEP))
        promised, found = float(step @ gradient), -np.inf
        if promised < GAIN:
            break
        next_gradient, next_information = np.empty(size), np.empty((size, size))
        for halvings in range(20):
            trial = np.clip(theta + step * 0.5**halvings, -LARGEST_LOGIT, LARGEST_LOGIT)
            found = kernels.log_posterior(trial, n, True, seen, prior, next_gradient, next_information)
            if found >= value:
                break
        if found < value + GAIN:
            break
        theta, value, gradient, information = trial, found, next_gradient, next_information
    return LogitPair(theta, value, information, kernels.chains_of(theta, n, True))


def not_identified(modes: list[LogitPair], seen: kernels.ByState, n: int, prior: float) -> tuple[str, ...]:
    """Return a sentence for each part of the chains that the observations do not identify, with its remedy."""
    mode = modes[0]
    none = np.zeros(2 * n + 1, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, n), dtype=np.int64)
    of_prior = np.empty_like(mode.information)
    kernels.log_posterior(mode.theta, n, True, none, prior, np.empty(len(mode.theta)), of_prior)
    # Whitened by the prior: the eigenvalues are the information of the observations in units of the prior's.
    scale = np.linalg.cholesky(of_prior)
    white = np.linalg.solve(scale, np.linalg.solve(scale, mode.information - of_prior).T)
    shares, directions = np.linalg.eigh(0.5 * (white + white.T))
    parts = (directions[:, shares < 1.0] ** 2).reshape(2 * n, n - 1, -1).sum(axis=1).max(axis=1, initial=0.0)
    sentences = [_sentence(row, seen, n) for row in np.flatnonzero(parts >= TAKES_PART).tolist()]
    if len(modes) > 1:
        sentences.append(
            "two pairs of chains explain the observations nearly equally well; pull the arm after odd and after even "
            "numbers of rests"
        )
    return tuple(dict.fromkeys(sentences))


def _rests(seen: kernels.ByState) -> IntArray:
    """The waits between observations with a slot without a pull."""
    first, elapsed, _ = seen
    resting = np.arange(len(elapsed)) < first[len(first) // 2]
    return np.asarray(elapsed[resting | (elapsed > 1)])


def _sentence(row: int, seen: kernels.ByState, n: int) -> str:
    first, elapsed, counts = seen
    s = row % n
    if row >= n:
        mine = slice(first[row], first[row + 1])
        times = int(counts[mine][elapsed[mine] == 1].sum())
        return (
            f"active_transitions[{s}] is not identified: {times} pulls came in the slot after a pull in state {s}; "
            "pull the arm in consecutive slots"
        )
    waits = _rests(seen)
    if not waits.size:
        return "transitions is not identified: no pull came after a rest; rest the arm between pulls"
    low, high = int(waits.min()), int(waits.max())
    return (
        f"transitions[{s}] is not identified by waits of {low if low == high else f'{low} to {high}'} slots; rest the "
        "arm for one slot, for a few, and for many between pulls"
    )
