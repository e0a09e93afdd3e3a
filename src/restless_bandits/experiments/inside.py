"""What runs have learned: the chains that Restless-UCB estimates, and the weight that TS-9 gives to the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from restless_bandits.arrays import Array
from restless_bandits.learners import RestlessUCB, ThompsonSampling
from restless_bandits.problem import Problem
from restless_bandits.simulation.engine import World, play_run


@dataclass(frozen=True, eq=False)
class Estimates:
    """Stay probabilities of two-state arms as Restless-UCB estimates them: arrays (run, arm, state)."""

    problem: Problem
    estimated: Array
    optimistic: Array
    truth: Array
    """(arm, state)."""
    horizon: int


def estimates(problem: Problem, horizon: int, runs: int, seed: int = 0) -> Estimates:
    """Run Restless-UCB to its commitment and read what it has learned."""
    learner = RestlessUCB()
    world, task = World(problem), learner.task(problem, horizon)
    estimated, optimistic = [], []
    for run in range(runs):
        record = play_run(learner, world, horizon, np.array([horizon]), seed=seed, run=run).record
        counts = [record.transitions(arm) for arm in range(problem.n_arms)]
        estimated.append([np.diag(one) / np.maximum(one.sum(axis=1), 1) for one in counts])
        chains = learner.optimistic_problem(record, task)
        optimistic.append([np.diag(chains.arms[arm].one_step) for arm in range(problem.n_arms)])
    truth = np.array([np.diag(problem.arms[arm].one_step) for arm in range(problem.n_arms)])
    return Estimates(problem, np.array(estimated), np.array(optimistic), truth, horizon)


def posterior_at_truth(problem: Problem, horizon: int, runs: int, seed: int = 0) -> Array:
    """Return, for each run of TS-9, the posterior probability of the true chains of all arms at the horizon."""
    learner = ThompsonSampling(support=9)
    world = World(problem)
    weights = []
    for run in range(runs):
        record = play_run(learner, world, horizon, np.array([horizon]), seed=seed, run=run).record
        weight = 1.0
        for arm in range(problem.n_arms):
            same = np.abs(learner.chains(2) - problem.arms[arm].one_step).max(axis=(1, 2)) < 1e-9
            weight *= float(learner.posterior(record, arm)[same].sum())
        weights.append(weight)
    return np.array(weights)
