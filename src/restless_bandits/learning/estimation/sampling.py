"""Draws from the posterior of birth-death chains, by independence Metropolis.

Candidates come from a mixture of multivariate t distributions with five degrees of freedom, one at each mode, scaled by
Fisher's information there. The weight of a mode is its share of the posterior (Laplace), but at least ``LEAST_WEIGHT``:
a chain on one side of "λ or −λ" must be able to cross. The chain of draws continues from the last draw, and its
stationary distribution is exactly the posterior.

Compiled, with NumPy's own generator: Numba makes the same draws as NumPy.

With many arms a plan lasts a few slots, in which few arms are pulled. The mixture of an arm is a function of the
observations of the arm and of the starting points of the search for modes. Each thread therefore keeps the last mixture
of every arm with both inputs, and searches for modes only after a change of any bit in the inputs.
"""

from __future__ import annotations

import math
import threading
from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.estimation import (
    PRIOR,
    THOROUGH,
    by_arm,
    counts_of,
    first_logits,
    noted_logits,
    noted_thetas,
)
from restless_bandits.learning.estimation.arm_kernels import (
    MOST_RIVALS,
    Counts,
    Modes,
    find_modes,
    gather,
    inverse,
    inverse_root,
    moved_chains,
    room_for,
    root,
    standard_starts,
)
from restless_bandits.learning.estimation.chain_kernels import LARGEST_LOGIT, Observations, log_posterior
from restless_bandits.learning.estimation.reacting_kernels import draw_reacting
from restless_bandits.model.record import N_BINS, Record

FREEDOM = 5.0
LEAST_WEIGHT = 0.1
FIRST_STEPS, STEPS = 20, 6
"""Steps of the sampler at the first plan and at every later plan."""
REACTING_FIRST_STEPS, REACTING_STEPS = 200, 40
"""The same for each row of the chains of arms that react."""


class Draws(NamedTuple):
    """A chain for every arm, flat, and the notes for the next plan."""

    chains: Array
    notes: dict[str, list[list[float]]]


def draw_from_posterior(record: Record, rng: np.random.Generator) -> Draws:
    """Draw a chain for every arm from the posterior over birth-death chains, going on from the last draws."""
    first = first_logits(record)
    last, begin = noted_thetas(record, "modes"), noted_thetas(record, "draws")
    modes = np.zeros(first[-1]) if last is None else last
    draws = np.zeros(first[-1]) if begin is None else begin
    thorough, steps = record.plans % THOROUGH == 0, FIRST_STEPS if begin is None else STEPS
    known = last is not None, begin is not None
    _draw_arms(rng, counts_of(record), first, modes, draws, known, thorough, PRIOR, steps, _cache.of(record, thorough))
    chains = moved_chains(draws, first, np.zeros(first[-1]), record.n_states)
    return Draws(chains, {"modes": by_arm(modes, first), "draws": by_arm(draws, first)})


class ReactingDraws(NamedTuple):
    """P_passive and P_active of every arm, flat, and the notes for the next plan."""

    passive: Array
    active: Array
    notes: dict[str, list[list[float]]]


def draw_reacting_chains(record: Record, rng: np.random.Generator) -> ReactingDraws:
    """Draw both chains of every arm from the posterior, going on from the last draws, or from the prior.

    A random walk on the scale of logits: see ``reacting_kernels``. Each row of both chains has a flat prior.
    """
    n = record.n_states
    sizes = n * (n - 1) * (1 + record.reacts)
    first = np.concatenate([[0], np.cumsum(sizes)])
    begin = noted_logits(record, "draws", sizes)
    draws = np.zeros(first[-1]) if begin is None else begin
    passive, active = np.empty(np.sum(n**2)), np.empty(np.sum(n**2))
    steps = REACTING_FIRST_STEPS if begin is None else REACTING_STEPS
    draw_reacting(rng, counts_of(record), record.reacts, first, draws, begin is not None, steps, passive, active)
    return ReactingDraws(passive, active, {"draws": by_arm(draws, first)})


class Proposal(NamedTuple):
    """The mixture of candidates: parameters of each mode, in the order of the modes."""

    centres: Array
    weights: Array
    roots: Array
    inverse_roots: Array
    logs: Array
    """Logarithms of the weights and scales; the constant of the t distribution is common to all and cancels."""


@njit
def proposal_of(modes: Modes, count: int) -> Proposal:
    """Return the mixture of the first modes."""
    size = modes.theta.shape[1]
    roots, inverses = np.empty((count, size, size)), np.empty((count, size, size))
    weights, logs = np.empty(count), np.empty(count)
    for m in range(count):
        scale = root(inverse(modes.information[m]))
        back = inverse_root(scale)
        logs[m] = 0.0
        for i in range(size):
            logs[m] += math.log(scale[i, i])
            for j in range(size):
                roots[m, i, j], inverses[m, i, j] = scale[i, j], back[i, j]
        weights[m] = modes.value[m] + logs[m]
    most = weights.max()
    for m in range(count):
        weights[m] = max(math.exp(weights[m] - most), LEAST_WEIGHT)
    total = weights.sum()
    for m in range(count):
        weights[m] /= total
        logs[m] = math.log(weights[m]) - logs[m]
    return Proposal(modes.theta[:count], weights, roots, inverses, logs)


@njit
def draw_candidate(rng: np.random.Generator, proposal: Proposal) -> Array:
    """Draw from the mixture."""
    count, size = proposal.centres.shape
    u, m, below = rng.random(), 0, proposal.weights[0]
    while below <= u and m < count - 1:
        m += 1
        below += proposal.weights[m]
    normal = np.empty(size)
    for j in range(size):
        normal[j] = rng.standard_normal()
    scale = math.sqrt(FREEDOM / rng.chisquare(FREEDOM))
    found = np.empty(size)
    for i in range(size):
        total = 0.0
        for j in range(i + 1):
            total += proposal.roots[m, i, j] * normal[j]
        found[i] = proposal.centres[m, i] + scale * total
    return found


@njit
def log_density(theta: Array, proposal: Proposal) -> float:
    """The logarithm of the mixture's density, up to a constant."""
    count, size = proposal.centres.shape
    logs = np.empty(count)
    for m in range(count):
        away = 0.0
        for i in range(size):
            total = 0.0
            for j in range(i + 1):
                total += proposal.inverse_roots[m, i, j] * (theta[j] - proposal.centres[m, j])
            away += total * total
        logs[m] = proposal.logs[m] - 0.5 * (FREEDOM + size) * math.log1p(away / FREEDOM)
    most: float = logs.max()
    total = 0.0
    for m in range(count):
        total += math.exp(logs[m] - most)
    return most + math.log(total)


@njit
def _excess(theta: Array, n: int, seen: Observations, prior: float, proposal: Proposal) -> float:
    """The log-ratio of the posterior density of a chain to its density in the mixture."""
    size = theta.shape[0]
    for j in range(size):
        if abs(theta[j]) > LARGEST_LOGIT:
            return -np.inf
    gradient, information = np.empty(size), np.empty((size, size))
    return log_posterior(theta, n, seen, prior, gradient, information) - log_density(theta, proposal)


@njit
def metropolis(
    rng: np.random.Generator, seen: Observations, n: int, prior: float, proposal: Proposal, theta: Array, steps: int
) -> int:
    """Make some steps from ``theta``, which is overwritten; return the number of accepted candidates."""
    now = _excess(theta, n, seen, prior, proposal)
    accepted = 0
    for _ in range(steps):
        candidate = draw_candidate(rng, proposal)
        then = _excess(candidate, n, seen, prior, proposal)
        if math.log(1.0 - rng.random()) < then - now:
            now = then
            for j in range(theta.shape[0]):
                theta[j] = candidate[j]
            accepted += 1
    return accepted


class MixtureCache(NamedTuple):
    """The last mixture of every arm, and the observations and the start of the climbs that it follows from."""

    cells: IntArray
    """Observations of each arm, −1 for an arm without a mixture."""
    elapsed: IntArray
    states: IntArray
    seen: IntArray
    start: Array
    modes: IntArray
    """How many modes each arm has."""
    centres: Array
    weights: Array
    roots: Array
    inverse_roots: Array
    logs: Array

    @classmethod
    def empty(cls, n_states: IntArray) -> MixtureCache:
        """Return a cache without any mixture."""
        arms, most = len(n_states), int(n_states.max())
        room, size, rivals = most * N_BINS, 2 * (most - 1), 1 + MOST_RIVALS
        return cls(
            cells=np.full(arms, -1),
            elapsed=np.empty((arms, room), dtype=np.int64),
            states=np.empty((arms, room), dtype=np.int64),
            seen=np.empty((arms, room, most), dtype=np.int64),
            start=np.empty((arms, size)),
            modes=np.zeros(arms, dtype=np.int64),
            centres=np.empty((arms, rivals, size)),
            weights=np.empty((arms, rivals)),
            roots=np.empty((arms, rivals, size, size)),
            inverse_roots=np.empty((arms, rivals, size, size)),
            logs=np.empty((arms, rivals)),
        )


class _Caches(threading.local):
    """The caches of a thread: thorough searches for modes find others, and have a cache of their own."""

    def __init__(self) -> None:
        self._n_states: list[int] = []
        self._caches: tuple[MixtureCache, MixtureCache] | None = None

    def of(self, record: Record, thorough: bool) -> MixtureCache:
        """Return the cache for the arms of a record."""
        n_states = record.n_states.tolist()
        if self._caches is None or self._n_states != n_states:
            self._n_states = n_states
            self._caches = MixtureCache.empty(record.n_states), MixtureCache.empty(record.n_states)
        return self._caches[thorough]


_cache = _Caches()


@njit
def _is_cached(cache: MixtureCache, arm: int, seen: Observations, start: Array) -> bool:
    """Whether the cache holds the mixture for these observations and this start."""
    elapsed, states, times = seen
    cells, n = times.shape
    if cache.cells[arm] != cells:
        return False
    for j in range(start.shape[0]):
        if cache.start[arm, j] != start[j]:
            return False
    for c in range(cells):
        if cache.elapsed[arm, c] != elapsed[c] or cache.states[arm, c] != states[c]:
            return False
        for k in range(n):
            if cache.seen[arm, c, k] != times[c, k]:
                return False
    return True


@njit
def _put(cache: MixtureCache, arm: int, seen: Observations, start: Array, mixture: Proposal) -> None:
    """Keep the mixture of an arm."""
    elapsed, states, times = seen
    cells, n = times.shape
    cache.cells[arm] = cells
    for c in range(cells):
        cache.elapsed[arm, c], cache.states[arm, c] = elapsed[c], states[c]
        for k in range(n):
            cache.seen[arm, c, k] = times[c, k]
    count, size = mixture.centres.shape
    cache.modes[arm] = count
    for j in range(size):
        cache.start[arm, j] = start[j]
    for m in range(count):
        cache.weights[arm, m], cache.logs[arm, m] = mixture.weights[m], mixture.logs[m]
        for i in range(size):
            cache.centres[arm, m, i] = mixture.centres[m, i]
            for j in range(size):
                cache.roots[arm, m, i, j] = mixture.roots[m, i, j]
                cache.inverse_roots[arm, m, i, j] = mixture.inverse_roots[m, i, j]


@njit
def _get(cache: MixtureCache, arm: int, size: int) -> Proposal:
    """Return the mixture of an arm."""
    count = cache.modes[arm]
    centres, weights, logs = np.empty((count, size)), np.empty(count), np.empty(count)
    roots, inverse_roots = np.empty((count, size, size)), np.empty((count, size, size))
    for m in range(count):
        weights[m], logs[m] = cache.weights[arm, m], cache.logs[arm, m]
        for i in range(size):
            centres[m, i] = cache.centres[arm, m, i]
            for j in range(size):
                roots[m, i, j], inverse_roots[m, i, j] = cache.roots[arm, m, i, j], cache.inverse_roots[arm, m, i, j]
    return Proposal(centres, weights, roots, inverse_roots, logs)


@njit
def _draw_arms(
    rng: np.random.Generator,
    record: Counts,
    first: IntArray,
    modes: Array,
    draws: Array,
    known: tuple[bool, bool],
    thorough: bool,
    prior: float,
    steps: int,
    cache: MixtureCache,
) -> None:
    """Update the modes and the draws of all arms: both continue from their last values, if known."""
    modes_known, draws_known = known
    for arm in range(record.n_states.shape[0]):
        n = record.n_states[arm]
        if n == 1:
            continue
        size = 2 * (n - 1)
        seen = gather(arm, record)
        mode, drawn = modes[first[arm] : first[arm + 1]], draws[first[arm] : first[arm + 1]]
        if modes_known and _is_cached(cache, arm, seen, mode):
            mixture = _get(cache, arm, size)
        else:
            starts = mode.copy().reshape(1, size) if modes_known else standard_starts(n)
            found = room_for(starts)
            mixture = proposal_of(found, find_modes(seen, n, starts, prior, thorough, found))
            if modes_known:
                _put(cache, arm, seen, mode, mixture)
        for j in range(size):
            mode[j] = mixture.centres[0, j]
            if not draws_known:
                drawn[j] = mode[j]
        metropolis(rng, seen, n, prior, mixture, drawn, steps)
