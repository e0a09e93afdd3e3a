"""Compiled estimation of all arms in a single call: observations of each arm, and the modes of their posterior.

Numbers of all arms are concatenated, as in a ``Record``: θ of an arm begins at ``first[arm]``, and its 2(n − 1) entries
are in the order of ``_kernels``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import helper, njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.estimation.chain_kernels import Observations, chain_of, climb, twin_of
from restless_bandits.model.record import BIN_MIDDLES, N_BINS

RIVAL = 3.0
"""Modes whose log-posterior is less than this amount below the best are kept."""
DIFFERENT = 1e-3
"""Modes whose chains differ by less are identical."""
MOST_RIVALS = 3
"""Climbs from the twin and the mirrors of a mode."""
LEAST_PIVOT = 1e-15


class Counts(NamedTuple):
    """The counts of a ``Record`` with the offsets of each arm."""

    counts: IntArray
    visits: IntArray
    seen: IntArray
    count_base: IntArray
    row_base: IntArray
    state_base: IntArray
    n_states: IntArray


class Modes(NamedTuple):
    """Room for modes: of each θ, log-posterior and information, the best first."""

    theta: Array
    value: Array
    information: Array


@njit
def gather(arm: int, record: Counts) -> Observations:
    """Return the observations of an arm, without its first observation."""
    n = record.n_states[arm]
    row, count = record.row_base[arm], record.count_base[arm]
    pulls = 0
    for k in range(n):
        pulls += record.seen[record.state_base[arm] + k]
    room = min(pulls, n * N_BINS)
    elapsed, states = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    seen = np.empty((room, n), dtype=np.int64)
    cells, found = 0, 0
    for b in range(N_BINS):
        if found == pulls:
            break
        for s in range(n):
            visits = record.visits[row + s * N_BINS + b]
            if visits:
                elapsed[cells], states[cells] = BIN_MIDDLES[b], s
                for k in range(n):
                    seen[cells, k] = record.counts[count + (s * N_BINS + b) * n + k]
                cells += 1
                found += visits
    return elapsed[:cells], states[:cells], seen[:cells]


@njit
def room_for(starts: Array) -> Modes:
    """Return arrays for all modes that climbs from some starts may reach."""
    room, size = starts.shape[0] + MOST_RIVALS, starts.shape[1]
    return Modes(np.empty((room, size)), np.empty(room), np.empty((room, size, size)))


@njit
def find_modes(seen: Observations, n: int, starts: Array, prior: float, thorough: bool, modes: Modes) -> int:
    """Write the different modes reached by climbs from some starts and from rivals of the best; return their number.

    The first rival has the opposite correlation. A thorough search has more rivals. For two states these are chains
    with the moves of a single row reversed: two waits for each of two rows are two quadratic equations, and each row
    alone may have converged to the wrong root. For more states the further rival is a fast chain. A climb that would
    end more than ``RIVAL`` below the best is abandoned, and its last point is among the modes.
    """
    parameters, begun = 2 * (n - 1), starts.shape[0]
    climbs = begun + (1 if not thorough else 3 if n == 2 else 2)
    theta, value = np.empty((climbs, parameters)), np.empty(climbs)
    information = np.empty((climbs, parameters, parameters))
    twin = np.empty(parameters)
    best, goal = 0, -np.inf
    for c in range(climbs):
        if c == begun:
            goal = value[best] - RIVAL
            twin = twin_of(theta[best], n)
        for j in range(parameters):
            if c < begun:
                theta[c, j] = starts[c, j]
            elif c == begun:
                theta[c, j] = twin[j]
            else:
                mirrored = theta[best, j] * (1.0 if (c == begun + 1) == (j == 0) else -1.0)
                theta[c, j] = mirrored if n == 2 else 1.0
        value[c] = climb(theta[c], n, seen, prior, goal, information[c])
        if c < begun and value[c] > value[best]:
            best = c
    order = np.empty(climbs, dtype=np.int64)
    for c in range(climbs):
        place = c
        while place > 0 and value[order[place - 1]] < value[c]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = c
    found = 0
    for place in range(climbs):
        c = order[place]
        chain = chain_of(theta[c], n)
        new = True
        for other in range(found):
            new = new and _distance(chain, chain_of(modes.theta[other], n)) > DIFFERENT
        if new:
            modes.value[found] = value[c]
            for j in range(parameters):
                modes.theta[found, j] = theta[c, j]
                for i in range(parameters):
                    modes.information[found, j, i] = information[c, j, i]
            found += 1
    return found


@helper
def _distance(chain: Array, other: Array) -> float:
    most = 0.0
    for s in range(chain.shape[0]):
        for k in range(chain.shape[0]):
            most = max(most, abs(chain[s, k] - other[s, k]))
    return most


@njit
def standard_starts(n: int) -> Array:
    """Chains that move as often as not, seldom, and nearly always."""
    starts = np.empty((3, 2 * (n - 1)))
    for j in range(2 * (n - 1)):
        starts[0, j], starts[1, j], starts[2, j] = 0.0, -2.0, 2.0
    return starts


@njit
def root(matrix: Array) -> Array:
    """The lower triangular L with L Lᵀ = matrix, for a symmetric positive definite matrix.

    Rounding must not leave a direction without any information: no pivot is less than ``LEAST_PIVOT`` of its entry.
    """
    n = matrix.shape[0]
    lower = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            total = matrix[i, j]
            for k in range(j):
                total -= lower[i, k] * lower[j, k]
            if i == j:
                lower[i, i] = math.sqrt(max(total, LEAST_PIVOT * matrix[i, i]))
            else:
                lower[i, j] = total / lower[j, j]
    return lower


@njit
def inverse_root(lower: Array) -> Array:
    """The inverse of a lower triangular matrix."""
    n = lower.shape[0]
    found = np.zeros((n, n))
    for k in range(n):
        found[k, k] = 1.0 / lower[k, k]
        for i in range(k + 1, n):
            total = 0.0
            for j in range(k, i):
                total -= lower[i, j] * found[j, k]
            found[i, k] = total / lower[i, i]
    return found


@njit
def inverse(matrix: Array) -> Array:
    """The inverse of a symmetric, positive definite matrix."""
    n = matrix.shape[0]
    half = inverse_root(root(matrix))
    found = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            total = 0.0
            for k in range(max(i, j), n):
                total += half[k, i] * half[k, j]
            found[i, j] = total
    return found


@helper
def write_moved(chain: Array, deviations: Array, chains: Array, at: int) -> None:
    """Write a chain, flat, from a position on, with transitions better by deviations in the order of θ.

    Transitions to worse states are less likely and transitions to better states more, as in
    ``optimism.optimistic_chain``.
    """
    n = chain.shape[0]
    for k in range(n):
        up, down = 0.0, 0.0
        # Moves to better states first, from the second state on; then moves to worse states.
        if k < n - 1:
            up = max(0.0, chain[k, k + 1] - deviations[n - 1 + k])
            chains[at + k * n + k + 1] = up
        if k > 0:
            down = min(1.0 - up, chain[k, k - 1] + deviations[k - 1])
            chains[at + k * n + k - 1] = down
        chains[at + k * n + k] = max(0.0, 1.0 - (up + down))


@njit
def moved_chains(theta: Array, first: IntArray, deviations: Array, n_states: IntArray) -> Array:
    """The chains of all arms, flat, with transitions better than those of θ by deviations in the order of θ."""
    chains = np.zeros((n_states * n_states).sum())
    at = 0
    for arm in range(n_states.shape[0]):
        low, high = first[arm], first[arm + 1]
        write_moved(chain_of(theta[low:high], n_states[arm]), deviations[low:high], chains, at)
        at += n_states[arm] ** 2
    return chains
