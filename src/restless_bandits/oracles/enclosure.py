"""Error bounds of a problem written out in doubles, for proofs.

The proofs need the mean change D v(x) = Σ_y p(x, y) (v(y) − v(x)) of a function v in a step. Computed from differences
the mean change is off by a share of Σ p |v(y) − v(x)| alone, whatever the size of v. In a state that is left once in
10^14 slots v changes by as little, and the error is a share of that change. Three sources contribute to the error.

*Rounding of distributions.* All terms of P^τ are positive, so that each entry is off by a share of itself. With u the
unit roundoff, the chain's rows are divided by their sums to n·u; a product of two powers and the division of its rows
by their sums add 4n·u to the shares of both, so P^τ is within 6nτ·u. Stationary distributions and the probabilities of
ending in each class are found by eliminating states without a subtraction: each of n steps changes entries by a share
of (n + 4)·u, and results are ratios of sums of products of at most n entries (the Markov chain tree theorem), so they
are within 16n³·u. Tables are taken as given, their rows divided by their sums.

*Truncation.* Beyond its truncation the distribution of an arm is within a total variation of the one used in its place,
and more states may be seen: ``possible``. For chains that do not forget, the distance is measured to a power P^2p in
place of the limit. If at most t of every row of P^p lies outside of the recurrent classes (those of P^d, d the period),
and rows of one class differ by at most δ, then P^2p is within t + δ of the limit: a path in a class after p slots has
the limiting distribution of that class, within δ, after p more.

*Rounding of the sums themselves*, (m + 3)·u for m outcomes.

Probabilities below 1e-300 count as zero, like entries of a chain below 1e-150.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm, TableArm
from restless_bandits.processes.beliefs import HiddenProcess, has_lost_row, limiting_matrix, table_period

UNIT = 2.0**-53
SECOND_ORDER = 1.0 + 1e-6
"""Bounds are of first order in the unit roundoff; this makes up for the rest, as shares stay below 1e-7."""


class DistributionErrors(NamedTuple):
    """Error bounds of the distributions of an arm's beliefs."""

    relative: Array
    """``[b]``: each entry is within this share of itself."""
    moved: Array
    """``[b]``: besides, the distribution is within this total variation."""
    possible: BoolArray
    """``[b, k]``: whether the true distribution may have the state."""


def distribution_errors(arms: Sequence[AnyArm], beliefs: Sequence[HiddenProcess]) -> list[DistributionErrors]:
    """Return the error bounds of arms, from the arms and their beliefs."""
    return [_errors_of(arm, one) for arm, one in zip(arms, beliefs, strict=True)]


def _errors_of(arm: AnyArm, beliefs: HiddenProcess) -> DistributionErrors:
    n, possible = arm.n_states, beliefs.distribution > 0
    truncated = np.zeros(beliefs.size, dtype=bool)
    if isinstance(arm, TableArm):
        relative = np.abs(beliefs.distribution.sum(axis=1) - 1.0) + 2 * n * UNIT
        truncated[beliefs.numbers[:, -1]] = True
        moved = np.where(truncated & (beliefs.tv_error[:, 1] > 0), beliefs.tv_error[:, 1] + 4 * n * UNIT, 0.0)
        cut = arm.laws[beliefs.truncation :]
        later = np.broadcast_to((cut > 0).any(axis=(0, 1)), possible.shape)
        return DistributionErrors(relative, moved, possible | (later & (moved > 0)[:, None]))
    never = beliefs.last_state < 0
    relative = np.where(never, 16.0 * n**3, 6.0 * n * beliefs.elapsed) * UNIT
    if has_lost_row(arm):
        # The rows of an arm never pulled and of unanswered pulls begin with a stationary distribution.
        relative = (16.0 * n**3 * never + 6.0 * n * (beliefs.elapsed + 2)) * UNIT
    seen = beliefs.numbers[: None if has_lost_row(arm) else n, beliefs.truncation - beliefs.period :]
    truncated[seen] = True
    rough = beliefs.tv_error[:, 1] + relative + 4 * n * UNIT
    if arm.is_ergodic:
        # Every later distribution is a mixture of the rows with the measured error.
        return DistributionErrors(relative, np.where(truncated, rough, 0.0), possible | truncated[:, None])
    period = table_period(arm)
    _, off = limiting_matrix(arm.chain, period)
    sure = possible.sum(axis=1) == 1
    sure &= _settled_paths(arm)[beliefs.distribution.argmax(axis=1)] & (beliefs.tv_error[:, 1] == 0)
    moved = np.where(truncated & ~sure, rough + 2 * off + 4e-16, 0.0)
    later = possible @ markov.reachable(markov.power(arm.chain, period) > 0)
    return DistributionErrors(relative, moved, possible | (later & (moved > 0)[:, None]))


def _settled_paths(arm: Arm) -> BoolArray:
    """The states with a deterministic future: their distributions are exact, however long the wait."""
    moves = arm.chain > 0
    drawn: BoolArray = (markov.reachable(moves) & (moves.sum(axis=1) > 1)).any(axis=1)
    return ~drawn


def sums(places: IntArray, parts: Array, count: int) -> Array:
    """Return the sums of the parts that belong to each place."""
    return np.asarray(np.bincount(places, parts, count), dtype=np.float64)


class ErrorSteps:
    """The steps of a problem written out, a row for each choice and belief, with bounds of their errors."""

    def __init__(self, matrix: Any, reward: Array, relative: Array, moved: Array, plays: int) -> None:
        rows, n = matrix.shape
        self._matrix, self._reward, self._moved, self._plays = matrix, reward, moved, plays
        counts = np.diff(matrix.indptr)
        self._row = np.repeat(np.arange(rows), counts)
        self._source = self._row % n
        self._relative = (relative + (counts + 3) * UNIT) * SECOND_ORDER

    def _changes(self, values: Array) -> tuple[Array, Array, Array]:
        """D v of every row, Σ p |v(y) − v(x)|, and the range of v over the successors."""
        change = values[self._matrix.indices] - values[self._source]
        part: Array = self._matrix.data * change
        mean = sums(self._row, part, len(self._reward))
        size = sums(self._row, np.abs(part), len(self._reward))
        starts = self._matrix.indptr[:-1]
        spread: Array = np.maximum.reduceat(change, starts) - np.minimum.reduceat(change, starts)
        return mean, size, spread

    def drift(self, values: Array) -> tuple[Array, Array]:
        """Return D v of every row, and bounds of the distance to the true values."""
        mean, size, spread = self._changes(values)
        return mean, self._relative * size + self._moved * spread * SECOND_ORDER

    def rates(self, bias: Array) -> tuple[Array, Array]:
        """Return reward plus D of a bias for every row, and bounds of the distance to the true values."""
        mean, size, spread = self._changes(bias)
        rate = self._reward + mean
        off = self._relative * (size + 2 * np.abs(self._reward) + np.abs(rate))
        return rate, off + self._moved * (spread + self._plays) * SECOND_ORDER
