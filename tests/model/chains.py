"""Chains and problems that the tests of theory share."""

import numpy as np
from hypothesis import strategies as st

from restless_bandits import Problem
from restless_bandits.model.optimism import optimistic_chain
from restless_bandits.paper import theory
from restless_bandits.paper.theory.event import estimate_within

PAPER = Problem.builtin("paper-1")
THREE = Problem.random(2, 3, seed=5, floor=0.1)


def chain_of(n_states, seed, kind="paper", floor=0.03):
    return Problem.random(1, n_states, seed=seed, kind=kind, floor=floor).arms[0].chain


def optimistic(chain, rad, rng):
    """P' for estimates drawn from all that E allows."""
    return optimistic_chain(estimate_within(chain, rad, rng), np.full(len(chain), rad))


def drifting(n, down=0.98, up=0.01):
    chain = np.diag(np.full(n - 1, up), 1) + np.diag(np.full(n - 1, down), -1)
    return chain + np.diag(1 - chain.sum(axis=1))


def horizon_for(chain):
    """The first T with rad(T) ≤ c1/3."""
    return theory.radius_below_from(chain[chain > 0].min() / 3)


random_chains = st.tuples(st.integers(2, 6), st.integers(0, 10**6))
