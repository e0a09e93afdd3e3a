"""Draws from the posterior of a birth-death chain, by independence Metropolis.

Candidates come from a mixture of multivariate t laws with five degrees of freedom, one at each mode with the scale of
Fisher's information there, weighted by the mode's share of the posterior (Laplace), but never below ``LEAST_WEIGHT``: a
chain that is on one side of "λ or −λ" must be able to cross. The chain of draws goes on from the last one, and its
stationary law is the posterior, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from restless_bandits.arrays import Array
from restless_bandits.estimation import LogitMode, Observations
from restless_bandits.estimation import _kernels as kernels

FREEDOM = 5.0
LEAST_WEIGHT = 0.1


class Proposal:
    """The mixture from which candidates are drawn."""

    def __init__(self, modes: Sequence[LogitMode]) -> None:
        roots = [np.linalg.cholesky(mode.covariance) for mode in modes]
        sizes = np.array([np.log(np.diag(root)).sum() for root in roots])
        logs = np.array([mode.value for mode in modes]) + sizes
        weights = np.maximum(np.exp(logs - logs.max()), LEAST_WEIGHT)
        self.weights: Array = weights / weights.sum()
        self.centres = np.stack([mode.theta for mode in modes])
        self._roots = np.stack(roots)
        self._inverse_roots = np.stack([np.linalg.inv(root) for root in roots])
        # Logarithms of the weights and scales; the constant of the t law is common to all and cancels.
        self._logs = np.log(self.weights) - sizes

    def draw(self, rng: np.random.Generator) -> Array:
        m = min(int(np.searchsorted(np.cumsum(self.weights), rng.random(), side="right")), len(self.weights) - 1)
        normal = rng.standard_normal(self.centres.shape[1])
        scale = math.sqrt(FREEDOM / rng.chisquare(FREEDOM))
        return np.asarray(self.centres[m] + scale * (self._roots[m] @ normal))

    def log_density(self, theta: Array) -> float:
        """The logarithm of the mixture's density, up to a constant."""
        away = np.einsum("mij,mj->mi", self._inverse_roots, theta - self.centres)
        size = self.centres.shape[1]
        logs = self._logs - 0.5 * (FREEDOM + size) * np.log1p((away**2).sum(axis=1) / FREEDOM)
        most = logs.max()
        return float(most + math.log(np.exp(logs - most).sum()))


def metropolis(
    seen: Observations,
    n: int,
    prior: float,
    modes: Sequence[LogitMode],
    start: Array,
    steps: int,
    rng: np.random.Generator,
) -> tuple[Array, int]:
    """Make some steps from ``start``; return where they end and how many candidates were accepted."""
    proposal = Proposal(modes)
    gradient, information = np.empty(len(start)), np.empty((len(start), len(start)))

    def excess(theta: Array) -> float:
        if np.abs(theta).max() > kernels.LARGEST_LOGIT:
            return -math.inf
        return kernels.log_posterior(theta, n, seen, prior, gradient, information) - proposal.log_density(theta)

    theta, now = start, excess(start)
    accepted = 0
    for _ in range(steps):
        candidate = proposal.draw(rng)
        then = excess(candidate)
        if math.log(1.0 - rng.random()) < then - now:
            theta, now = candidate, then
            accepted += 1
    return theta, accepted
