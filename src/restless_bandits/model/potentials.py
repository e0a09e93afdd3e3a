"""Potentials: expected numbers of pulls until an arm is seen in its best state."""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.model import markov
from restless_bandits.model.exploration import hitting_moments
from restless_bandits.model.stochastic_order import monotone_margin

__all__ = ["explicit_potential", "least_potential"]


POTENTIAL_TV_ERROR = 1e-13


LONGEST_WAIT = 1 << 14


def is_stochastically_monotone(chain: Array) -> bool:
    """Whether Pr(next ≤ k | s) falls with s for every k; Assumptions 2 and 3 imply the property."""
    return monotone_margin(chain) >= -1e-12


def least_potential(chain: Array) -> Array:
    """Return the least f with f(best) = 0 and f = 1 + sup_τ P^τ f elsewhere, by policy iteration.

    f(x) is the expected number of pulls until an observation of state 0, from x, for the worst choice of gaps between
    pulls. Infinite if state 0 may never be observed.
    """
    n = len(chain)
    if n == 1:
        return np.zeros(1)
    length = markov.mixing_time(chain, POTENTIAL_TV_ERROR)
    distributions = markov.powers(chain, min(length or LONGEST_WAIT, LONGEST_WAIT))[1:]
    if n == 2:
        least = float(distributions[:, 1, 0].min())
        return np.array([0.0, 1 / least if least > 0 else np.inf])
    gaps = np.zeros(n, dtype=np.int64)
    rows = np.arange(1, n)
    found = np.zeros(n)
    for _ in range(10_000):
        chosen = distributions[gaps[1:], rows][:, 1:]
        system = np.eye(n - 1) - chosen
        if np.linalg.cond(system) > 1e14:
            return np.concatenate([[0.0], np.full(n - 1, np.inf)])
        found = np.concatenate([[0.0], np.linalg.solve(system, np.ones(n - 1))])
        onward = distributions @ found
        better = onward.argmax(axis=0)
        gained = onward[better, np.arange(n)] - onward[gaps, np.arange(n)]
        improves = gained > 1e-10 * (1 + found)
        improves[0] = False
        if not improves.any():
            break
        gaps = np.where(improves, better, gaps)
    return found


def explicit_potential(chain: Array) -> Array:
    """Return φ of Lemma 6: ψ(x) + E_π[ψ]/π(best) for x other than the best, ψ the one-step hitting time of the best
    state.

    For a stochastically monotone chain φ is at least ``least_potential``.
    """
    hitting, _ = hitting_moments(chain, 0)
    stationary = markov.stationary(chain)
    potential: Array = hitting + (stationary @ hitting) / stationary[0]
    potential[0] = 0.0
    return potential
