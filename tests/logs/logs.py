"""Logs of known problems, drawn with NumPy alone."""

import numpy as np

import restless_bandits as rb

BEYOND = 5.0
"""Standard errors that a normal variable exceeds, to either side, with a chance below 6e-7."""

THREE = rb.Problem(
    [
        rb.Arm([[0.8, 0.2, 0], [0.1, 0.7, 0.2], [0, 0.25, 0.75]], [0.9, 0.5, 0.1], name="alpha"),
        rb.Arm([[0.6, 0.4, 0], [0.3, 0.4, 0.3], [0, 0.3, 0.7]], [1.0, 0.3, 0.0], name="beta"),
    ]
)


def paths(problem, slots, seed):
    """States of all arms in all slots, drawn with NumPy alone."""
    rng = np.random.default_rng(seed)
    states = np.empty((slots, problem.n_arms), dtype=np.int64)
    for i, arm in enumerate(problem.arms):
        state = 0
        for t, u in enumerate(rng.random(slots)):
            state = int(np.searchsorted(np.cumsum(arm.transitions[state])[:-1], u, side="right"))
            states[t, i] = state
    return states


def logged(problem, states, seed, share=1.0):
    """The trace of looks at random slots, with Bernoulli rewards."""
    rng = np.random.default_rng(seed)
    there = rng.random(states.shape) < share
    times, arms = np.nonzero(there)
    seen = states[times, arms]
    means = np.array([arm.rewards[seen] for arm in problem.arms])[arms, np.arange(len(arms))]
    names = np.array([arm.name for arm in problem.arms])[arms]
    return rb.data.trace(times, names, state=seen, reward=(rng.random(len(seen)) < means).astype(float))
