"""Draws from the posterior of birth-death chains, by independence Metropolis.

Candidates come from a mixture of multivariate t distributions with five degrees of freedom, one at each mode, scaled by
Fisher's information there. The weight of a mode is its share of the posterior (Laplace), but at least ``LEAST_WEIGHT``:
a chain on one side of "λ or −λ" must be able to cross. The chain of draws continues from the last draw, and its
stationary distribution is exactly the posterior.

Compiled, with NumPy's own generator: Numba makes the same draws as NumPy.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from restless_bandits._compile import njit
from restless_bandits.arrays import Array, IntArray
from restless_bandits.estimation import PRIOR, THOROUGH, by_arm, counts_of, first_logits, noted_thetas
from restless_bandits.estimation._arms import (
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
from restless_bandits.estimation._kernels import LARGEST_LOGIT, Observations, log_posterior
from restless_bandits.record import Record

FREEDOM = 5.0
LEAST_WEIGHT = 0.1
FIRST_STEPS, STEPS = 20, 6
"""Steps of the sampler at the first plan and at every later plan."""


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
    _draw_arms(rng, counts_of(record), first, modes, last is not None, draws, begin is not None, thorough, PRIOR, steps)
    chains = moved_chains(draws, first, np.zeros(first[-1]), np.zeros(record.n_arms), record.n_states)
    return Draws(chains, {"modes": by_arm(modes, first), "draws": by_arm(draws, first)})


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


@njit
def _draw_arms(
    rng: np.random.Generator,
    record: Counts,
    first: IntArray,
    modes: Array,
    modes_known: bool,
    draws: Array,
    draws_known: bool,
    thorough: bool,
    prior: float,
    steps: int,
) -> None:
    """Update the modes and the draws of all arms: both continue from their last values, if known."""
    for arm in range(record.n_states.shape[0]):
        n = record.n_states[arm]
        if n == 1:
            continue
        size = 2 * (n - 1)
        seen = gather(arm, record)
        mode, drawn = modes[first[arm] : first[arm + 1]], draws[first[arm] : first[arm + 1]]
        starts = mode.copy().reshape(1, size) if modes_known else standard_starts(n)
        found = room_for(starts)
        count = find_modes(seen, n, starts, prior, thorough, found)
        for j in range(size):
            mode[j] = found.theta[0, j]
            if not draws_known:
                drawn[j] = mode[j]
        metropolis(rng, seen, n, prior, proposal_of(found, count), drawn, steps)
