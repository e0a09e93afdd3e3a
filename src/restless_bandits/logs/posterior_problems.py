"""Problems that explain a log equally well: chains and mean rewards drawn from the posterior.

*Chains.* Birth-death chains come from the posterior of all observations (see ``estimation``), free chains from the
Dirichlet distribution of each row, with the same flat prior.

*Rewards.* The mean reward of a state is the mean of its logged rewards with random weights, a Gamma(1) variable for
each reward. Half a reward more at either end of the range keeps the uncertainty of states observed once or never. For
rewards at the two ends this is the posterior of Jeffreys. Rewards that follow from states are known, and so are rewards
that were equal in all of several observations.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.learning.estimation import PRIOR
from restless_bandits.learning.estimation.posterior import posterior_chains
from restless_bandits.logs.fitting import Fit, observations
from restless_bandits.logs.traces import Trace
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem

AT_ENDS = 0.5
"""The weight of the rewards added at either end of the range."""


def posterior_problems(fit: Fit, draws: int, rng: np.random.Generator) -> list[Problem]:
    """Return problems drawn from the posterior given the log of a fit."""
    trace, about = fit.trace, ("name", "reward_law", "reward_range", "reward_spread")
    arms = []
    for number, arm in enumerate(fit.problem.arms):
        known = {key: getattr(arm, key) for key in about}
        chains = _chains(trace, number, fit.shape, draws, rng)
        rewards = _mean_rewards(trace, number, arm.rewards, draws, rng)
        arms.append([Arm(*parts, **known) for parts in zip(chains, rewards, strict=True)])
    return [Problem(drawn) for drawn in zip(*arms, strict=True)]


def _chains(trace: Trace, arm: int, shape: str, draws: int, rng: np.random.Generator) -> Array:
    times, states, _ = trace.of_arm(arm)
    n, waits = trace.sizes[arm], np.diff(times)
    if shape == "birth-death":
        able = np.abs(np.diff(states)) <= waits  # other moves are impossible for the chain
        return posterior_chains(observations(waits[able], states[:-1][able], states[1:][able], n), n, draws, rng)
    steps = waits == 1
    counts = np.full((n, n), PRIOR)
    np.add.at(counts, (states[:-1][steps], states[1:][steps]), 1)
    weights = rng.standard_gamma(counts, (draws, n, n))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def _mean_rewards(trace: Trace, arm: int, fitted: Array, draws: int, rng: np.random.Generator) -> Array:
    _, states, rewards = trace.of_arm(arm)
    often = np.bincount(states, minlength=len(fitted)).min() > 1
    if trace.levels is not None or (trace.reward_laws[arm] == "fixed" and often):
        return np.tile(fitted, (draws, 1))
    found = np.empty((draws, len(fitted)))
    for state in range(len(fitted)):
        values, counts = np.unique([*rewards[states == state], *trace.reward_range], return_counts=True)
        shapes = counts - (1 - AT_ENDS) * np.isin(values, trace.reward_range)
        for draw in range(draws):
            weights = rng.standard_gamma(shapes)
            found[draw, state] = weights @ values / weights.sum()
    return np.clip(found, *trace.reward_range)
