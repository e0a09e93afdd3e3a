"""Compiled kernels for arms that react: the likelihood of observations under two chains, its slopes, and the sampler.

After an observation of state s in a pull, the state τ slots later has the distribution e_s P_active P_passive^(τ − 1),
and after an observation without a pull e_s P_passive^τ.
For two states with a_s = P_active(s, 1), ρ = P_passive(1, 1) − P_passive(0, 1) and the stationary probability π of
state 1 the probability of state 1 is π + ρ^(τ − 1) (a_s − π).

No order of states is assumed. θ has the logits of all rows of P_passive, then of all rows of P_active, against staying:
of row s for the states k ≠ s in ascending order. An arm that does not react has one chain, and θ ends with its rows.
"""

from __future__ import annotations

import math

import numpy as np

from restless_bandits._internal.compiling import helper, njit
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.learning.estimation.arm_kernels import Counts
from restless_bandits.learning.estimation.chain_kernels import LARGEST_LOGIT, LONG_JUMP, SETTLED
from restless_bandits.model.record import BIN_MIDDLES, N_BINS

LEAST_PROBABILITY = 1e-14
"""Smaller probabilities count as this one."""
LARGEST_SCALE = 2.0
"""The largest scale of a step of the sampler, in logits; the smallest is one standard error of a well-observed row."""

ByState = tuple[IntArray, IntArray, IntArray]
"""The first entry of each row, and one end; elapsed slots in ascending order by row; and the number of observations of
each state. Row s is of arms last seen in state s without a pull, row n + s of arms last seen in state s in a pull.
"""


@njit
def parameter_count(n: int, reacts: bool) -> int:
    """Return the number of logits of an arm."""
    return (2 if reacts else 1) * n * (n - 1)


@njit
def gather_by_state(arm: int, record: Counts) -> ByState:
    """Return the observations of an arm after a pull with an observation, by last state."""
    n = record.n_states[arm]
    row, count = record.row_base[arm], record.count_base[arm]
    cells = 0
    for place in range(n * N_BINS):
        cells += record.visits[row + place] != 0
    first = np.zeros(2 * n + 1, dtype=np.int64)
    elapsed, seen = np.empty(cells, dtype=np.int64), np.empty((cells, n), dtype=np.int64)
    found = 0
    for s in range(n):
        for b in range(N_BINS):
            if record.visits[row + s * N_BINS + b]:
                elapsed[found] = BIN_MIDDLES[b]
                for k in range(n):
                    seen[found, k] = record.counts[count + (s * N_BINS + b) * n + k]
                found += 1
        first[n + s + 1] = found
    return first, elapsed, seen


@njit
def write_row(theta: Array, n: int, row: int, chains: Array) -> None:
    """Write one row of the two chains: rows 0 to n − 1 are of P_passive, rows n to 2n − 1 of P_active."""
    s = row % n
    at = row * (n - 1)
    most = 0.0
    for k in range(n - 1):
        most = max(most, theta[at + k])
    total = math.exp(-most)
    out = chains[row // n, s]
    out[s] = total
    for k in range(n - 1):
        weight = math.exp(theta[at + k] - most)
        out[k if k < s else k + 1] = weight
        total += weight
    for k in range(n):
        out[k] /= total


@njit
def chains_of(theta: Array, n: int, reacts: bool) -> Array:
    """Return P_passive and P_active of given logits, ``[action, s, k]``."""
    chains = np.empty((2, n, n))
    for row in range(2 * n if reacts else n):
        write_row(theta, n, row, chains)
    if not reacts:
        for s in range(n):
            for k in range(n):
                chains[1, s, k] = chains[0, s, k]
    return chains


@helper
def _step(now: Array, chain: Array, then: Array) -> float:
    """Write the distribution one slot later, and return its largest change."""
    change = 0.0
    for k in range(now.shape[0]):
        total = 0.0
        for j in range(now.shape[0]):
            total += now[j] * chain[j, k]
        then[k] = total
        change = max(change, abs(total - now[k]))
    return change


@helper
def _jump(now: Array, chain: Array, slots: int) -> None:
    """Replace a distribution by the distribution many slots later, by squaring."""
    n = now.shape[0]
    power, square, then = chain.copy(), np.empty((n, n)), np.empty(n)
    while slots > 0:
        if slots & 1:
            _step(now, power, then)
            for k in range(n):
                now[k] = then[k]
        slots >>= 1
        for s in range(n):
            _step(power[s], power, square[s])
        power, square = square, power


@njit
def log_likelihood_after(row: int, chains: Array, seen: ByState, work: Array) -> float:
    """Return the log-likelihood of the observations of a row; ``work`` is room for two distributions."""
    first, elapsed, counts = seen
    n = chains.shape[1]
    value = 0.0
    if n == 2:
        passive = chains[0]
        move = passive[0, 1] + passive[1, 0]
        memory = 1.0 - move
        rest = passive[0, 1] / move if move > 0.0 else 0.5
        away = chains[row // n, row % n, 1] - rest
        fade = 1.0
        at = 1
        for c in range(first[row], first[row + 1]):
            if elapsed[c] - at > 8:
                fade *= memory ** (elapsed[c] - at)
            else:
                for _ in range(elapsed[c] - at):
                    fade *= memory
            at = elapsed[c]
            p = min(max(rest + fade * away, LEAST_PROBABILITY), 1.0 - LEAST_PROBABILITY)
            if counts[c, 1]:
                value += counts[c, 1] * math.log(p)
            if counts[c, 0]:
                value += counts[c, 0] * math.log1p(-p)
        return value
    now, then = work[0], work[1]
    for k in range(n):
        now[k] = chains[row // n, row % n, k]
    at, settled = 1, False
    for c in range(first[row], first[row + 1]):
        if elapsed[c] - at > LONG_JUMP and not settled:
            _jump(now, chains[0], elapsed[c] - at)
            at = elapsed[c]
        while at < elapsed[c] and not settled:
            settled = _step(now, chains[0], then) < SETTLED
            now, then = then, now
            at += 1
        at = elapsed[c]
        for k in range(n):
            if counts[c, k]:
                value += counts[c, k] * math.log(max(now[k], LEAST_PROBABILITY))
    return value


@njit
def _log_prior(chains: Array, rows: int) -> float:
    """The logarithm of the density of flat priors for some rows, on the scale of logits."""
    n = chains.shape[1]
    value = 0.0
    for row in range(rows):
        for k in range(n):
            value += math.log(max(chains[row // n, row % n, k], 1e-300))
    return value


@njit
def log_density(theta: Array, n: int, reacts: bool, seen: ByState) -> float:
    """Return the log-posterior density of some logits, up to a constant: each row of both chains has a flat prior."""
    chains, work = chains_of(theta, n, reacts), np.empty((2, n))
    value = _log_prior(chains, 2 * n if reacts else n)
    for row in range(2 * n):
        if seen[0][row] < seen[0][row + 1]:
            value += log_likelihood_after(row, chains, seen, work)
    return value


@njit
def draw_from_prior(rng: np.random.Generator, theta: Array, n: int) -> None:
    """Write logits of rows that are uniform on the simplex."""
    for row in range(theta.shape[0] // (n - 1)):
        staying = math.log(rng.standard_exponential())
        for k in range(n - 1):
            logit = math.log(rng.standard_exponential()) - staying
            theta[row * (n - 1) + k] = min(max(logit, -LARGEST_LOGIT), LARGEST_LOGIT)


@njit
def random_walk(rng: np.random.Generator, theta: Array, n: int, reacts: bool, seen: ByState, steps: int) -> int:
    """Make some Metropolis steps from ``theta``, which is overwritten; return the number of accepted candidates.

    A candidate differs in one logit, in one row, or everywhere. The scale of a step is log-uniform between a standard
    error of the best-observed row and ``LARGEST_SCALE``: weakly identified directions are much wider than others. The
    stationary distribution is exactly the posterior.
    """
    size = theta.shape[0]
    most = 0
    for row in range(2 * n):
        times = 0
        for c in range(seen[0][row], seen[0][row + 1]):
            for k in range(n):
                times += seen[2][c, k]
        most = max(most, times)
    widest = math.log(LARGEST_SCALE)
    range_of_scales = widest + 0.5 * math.log(most + 4.0)
    candidate = theta.copy()
    now = log_density(theta, n, reacts, seen)
    accepted = 0
    for _ in range(steps):
        scale = math.exp(widest - range_of_scales * rng.random())
        kind = rng.random()
        low, high = 0, size
        if kind < 0.5:
            low = int(rng.random() * size)
            high = low + 1
        elif n > 2 and kind < 0.75:
            low = int(rng.random() * (size // (n - 1))) * (n - 1)
            high = low + n - 1
        inside = True
        for j in range(size):
            candidate[j] = theta[j]
            if low <= j < high:
                candidate[j] += scale * rng.standard_normal()
                inside = inside and abs(candidate[j]) <= LARGEST_LOGIT
        if not inside:
            continue
        then = log_density(candidate, n, reacts, seen)
        if math.log(1.0 - rng.random()) < then - now:
            now = then
            accepted += 1
            for j in range(low, high):
                theta[j] = candidate[j]
    return accepted


@njit
def draw_reacting(
    rng: np.random.Generator,
    record: Counts,
    reacts: BoolArray,
    first: IntArray,
    draws: Array,
    known: bool,
    steps: int,
    passive: Array,
    active: Array,
) -> None:
    """Update the draws of all arms, and write their chains, flat; without known draws start from the prior.

    ``steps`` is the number of steps for each row of each chain.
    """
    at = 0
    for arm in range(record.n_states.shape[0]):
        n = record.n_states[arm]
        if n == 1:
            passive[at] = active[at] = 1.0
            at += 1
            continue
        theta = draws[first[arm] : first[arm + 1]]
        if not known:
            draw_from_prior(rng, theta, n)
        random_walk(rng, theta, n, reacts[arm], gather_by_state(arm, record), steps * (theta.shape[0] // (n - 1)))
        chains = chains_of(theta, n, reacts[arm])
        for s in range(n):
            for k in range(n):
                passive[at + s * n + k], active[at + s * n + k] = chains[0, s, k], chains[1, s, k]
        at += n * n


@njit
def write_slopes(chains: Array, rows: int, slopes: Array) -> None:
    """Write the derivatives of P_passive and P_active in each logit: ``slopes[action, j, k]``, of the logit's row."""
    n = chains.shape[1]
    for row in range(rows):
        s, own = row % n, chains[row // n, row % n]
        for i in range(n - 1):
            target = i if i < s else i + 1
            for k in range(n):
                slopes[row * (n - 1) + i, k] = own[k] * ((1.0 if k == target else 0.0) - own[target])


@njit
def log_posterior(
    theta: Array, n: int, reacts: bool, seen: ByState, prior: float, gradient: Array, information: Array
) -> float:
    """Return the log-posterior; write its gradient and Fisher's information.

    ``prior`` is a pseudo-count for every category of every row.
    """
    first, elapsed, counts = seen
    size = theta.shape[0]
    rows = size // (n - 1)
    chains, own = chains_of(theta, n, reacts), np.empty((size, n))
    write_slopes(chains, rows, own)
    for j in range(size):
        gradient[j] = 0.0
        for i in range(size):
            information[j, i] = 0.0
    value = 0.0
    for row in range(rows):
        probabilities = chains[row // n, row % n]
        for k in range(n):
            value += prior * math.log(max(probabilities[k], LEAST_PROBABILITY))
        for i in range(n - 1):
            j = row * (n - 1) + i
            target = i if i < row % n else i + 1
            gradient[j] += prior * (1.0 - n * probabilities[target])
            for other in range(n - 1):
                state = other if other < row % n else other + 1
                same = 1.0 if i == other else 0.0
                information[j, row * (n - 1) + other] += (
                    prior * n * probabilities[target] * (same - probabilities[state])
                )
    now, then = np.empty(n), np.empty(n)
    slope, next_slope = np.empty((size, n)), np.empty((size, n))
    for row in range(2 * n):
        for k in range(n):
            now[k] = chains[row // n, row % n, k]
            for j in range(size):
                slope[j, k] = own[j, k] if j // (n - 1) == row % rows else 0.0
        at, settled = 1, False
        for c in range(first[row], first[row + 1]):
            while at < elapsed[c] and not settled:
                change = 0.0
                for k in range(n):
                    then[k] = 0.0
                    for i in range(n):
                        then[k] += now[i] * chains[0, i, k]
                    change = max(change, abs(then[k] - now[k]))
                    for j in range(size):
                        total = 0.0
                        for i in range(n):
                            total += slope[j, i] * chains[0, i, k]
                        if j < n * (n - 1):
                            total += now[j // (n - 1)] * own[j, k]
                        next_slope[j, k] = total
                        change = max(change, abs(total - slope[j, k]))
                now, then = then, now
                slope, next_slope = next_slope, slope
                at += 1
                settled = change < SETTLED
            at = elapsed[c]
            times = 0
            for k in range(n):
                times += counts[c, k]
            for k in range(n):
                p = max(now[k], LEAST_PROBABILITY)
                if counts[c, k]:
                    value += counts[c, k] * math.log(p)
                for j in range(size):
                    gradient[j] += counts[c, k] / p * slope[j, k]
                    for i in range(j + 1):
                        information[j, i] += times / p * slope[j, k] * slope[i, k]
    for j in range(size):
        for i in range(j):
            information[i, j] = information[j, i]
    return value
