"""Problems of observed arms for tests of learners."""

import numpy as np

import restless_bandits as rb


def drawn(n_arms=8, n_states=2, *, seed=3, plays=2, **options):
    rng = np.random.default_rng(seed)
    chains, rewards = rng.dirichlet(np.ones(n_states), (n_arms, n_states, 2)), rng.random((n_arms, n_states, 2))
    return rb.Problem.from_arrays(chains, rewards, plays=plays, **options)


def ragged():
    """Kinds of two and three states, some of several arms, with resting pay below zero."""
    rng = np.random.default_rng(5)
    arms = [
        rb.Arm(
            rng.dirichlet(np.ones(n), n),
            rng.random(n),
            active_transitions=rng.dirichlet(np.ones(n), n),
            passive_rewards=rng.random(n) - 0.5,
            reward_range=(-0.5, 1),
            reward_law="fixed",
            count=count,
        )
        for n, count in ((2, 1), (3, 2), (2, 3))
    ]
    return rb.Problem(arms, plays=2, observed="all")
