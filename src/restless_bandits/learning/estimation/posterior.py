"""Chains from the posterior of an arm, as a measure of the uncertainty of its estimate.

The sampler and its proposals come from ``sampling``, of which a learner uses a single draw a plan.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.learning.estimation import PRIOR, Observations, chain_of, modes_of, starts_for
from restless_bandits.learning.estimation.arm_kernels import Modes
from restless_bandits.learning.estimation.sampling import FIRST_STEPS, STEPS, metropolis, proposal_of


def posterior_chains(seen: Observations, n: int, draws: int, rng: np.random.Generator) -> Array:
    """Return birth-death chains of ``n`` states drawn from the posterior of some observations: (draw, state, state)."""
    if n == 1:
        return np.ones((draws, 1, 1))
    modes = modes_of(seen, n, starts_for(seen, n))
    room = Modes(*(np.array([getattr(one, name) for one in modes]) for name in ("theta", "value", "information")))
    proposal = proposal_of(room, len(modes))
    theta, found = modes[0].theta.copy(), np.empty((draws, n, n))
    for draw in range(draws):
        metropolis(rng, seen, n, PRIOR, proposal, theta, STEPS if draw else FIRST_STEPS)
        found[draw] = chain_of(theta, n)
    return found
