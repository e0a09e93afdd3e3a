"""Values of policies: computed if possible, else simulated.

    rb.evaluate(problem, policy, simulate=True)

A simulated gain is the mean over independent runs: its standard error needs no assumption on the mixing of a run. The
first half of each run is left out. The average is taken of the mean reward given the true belief, with less noise than
the rewards themselves and the same mean. If the two halves of the rest differ by more than randomness explains, the
start is not forgotten, and longer runs are played.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import world_words
from restless_bandits._internal.validation import Array, check_int
from restless_bandits.model.checks import check_length
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.oracles import Evaluation
from restless_bandits.oracles.evaluation import check_policy
from restless_bandits.oracles.explicit_chains import MOST_BELIEFS
from restless_bandits.oracles.observed.rollout import Budget, ObservedWorld, mean_rewards
from restless_bandits.policies.lookahead import LookaheadPolicy
from restless_bandits.policies.observed import ObservedPolicy
from restless_bandits.policies.plans import Forever, Plan
from restless_bandits.policies.policies import Policy
from restless_bandits.simulation.engine import EXPECTED, Run, World

RUNS = 32
SLOTS, FEWEST_SLOTS = 100_000, 10_000
"""Slots of a run: with several plays as few as the total work of some seconds allows, but never fewer than the
second.
"""
MOST_ARM_EVALUATIONS = 1_500_000_000
"""Arm evaluations in all runs with several plays a slot."""
LONGER, LONGEST = 4, 16
"""The factor by which drifting runs are extended, and the largest total factor."""
DRIFT = 0.003
"""The probability that runs which have forgotten their start are classified as drifting, and extended in vain."""
CONFIDENCE = 0.95
OBSERVED_SECONDS = 1.0
"""Approximate seconds of one core for a simulated gain on observed arms."""


def evaluate(
    problem: AnyProblem,
    policy: Policy,
    *,
    simulate: bool = False,
    most: int = MOST_BELIEFS,
    slots: int | None = None,
    runs: int = RUNS,
    seed: int = 0,
) -> Evaluation:
    """Return the long-run gain of a policy.

    Parameters
    ----------
    problem, policy
        Any policy with a computable gain; for a simulation a policy that the engine supports.
    simulate
        Whether to simulate; by default the gain of a small problem is computed, with a bound of its error.
    most
        The largest number of joint beliefs for a computation; a larger number is a ``ProblemError``.
    slots
        Slots of each simulated run; the first half is left out. The default is 100 000, more if the start is not
        forgotten by then, or fewer for many arms with several plays.
    runs, seed
        The number of independent runs, at least two, and the seed of their draws.

    """
    problem = as_problem(problem)
    if not simulate:
        return oracles.evaluate(problem, policy, most=most)
    check_policy(problem, policy)
    problem.require_steady("the gain of a policy")
    runs, seed = check_int("runs", runs, 2), check_int("seed", seed, 0)
    if problem.observed == "all":
        return _observed_evaluation(problem, policy, slots, runs, seed)
    world = World(problem)
    if slots is not None:
        check_length(check_int("slots", slots, 4))
        return _summary(_halves(world, policy, slots, runs, seed), slots)
    affordable = SLOTS if problem.plays == 1 else MOST_ARM_EVALUATIONS // (runs * problem.n_arms * problem.plays)
    slots = first = min(SLOTS, max(FEWEST_SLOTS, affordable))
    while _drifts(halves := _halves(world, policy, slots, runs, seed)) and slots < LONGEST * first:
        slots *= LONGER
    return _summary(halves, slots)


def _observed_evaluation(problem: Problem, policy: Policy, slots: int | None, runs: int, seed: int) -> Evaluation:
    if not isinstance(policy, ObservedPolicy):
        raise ProblemError(f"all states are observed, and a {type(policy).__name__} does not take them")
    budget = Budget.of(ObservedWorld(problem), policy, OBSERVED_SECONDS)
    if slots is not None:
        budget = Budget(runs, check_int("slots", slots, 4))
        check_length(budget.slots)
    found = _summary(mean_rewards(problem, policy, budget, seed), budget.slots)
    if isinstance(policy, LookaheadPolicy):
        found = replace(found, how=f"{found.how}; runs start from the end of the policy's expected path")
    return found


def _halves(world: World, policy: Policy, slots: int, runs: int, seed: int) -> Array:
    """Mean expected rewards a slot in the third and in the fourth quarter of each run: (run, quarter)."""
    marks = np.array([slots // 2, slots // 2 + (slots - slots // 2) // 2, slots])
    found = np.empty((runs, 2))
    for number in range(runs):
        run = Run(world, slots, marks, world_words(seed, world.problem.content, number))
        run.play(Plan(policy, Forever()))
        found[number] = np.diff(run.totals.at[:, EXPECTED]) / np.diff(marks)
    return found


def _drifts(halves: Array) -> bool:
    change = halves[:, 1] - halves[:, 0]
    return abs(float(change.mean())) > _reach(change, 1 - DRIFT)


def _stderr(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _reach(values: Array, confidence: float) -> float:
    """Half the width of the confidence interval of a mean."""
    from scipy import stats

    return float(stats.t.ppf(0.5 + confidence / 2, len(values) - 1)) * _stderr(values)


def _summary(halves: Array, slots: int) -> Evaluation:
    means = halves.mean(axis=1)
    gain, reach = float(means.mean()), _reach(means, CONFIDENCE)
    how = f"simulated in {len(means)} runs of {slots:,} slots, the first half of each left out"
    if _drifts(halves):
        how += "; the rest still drifts, so the error of the gain may exceed its standard error"
    return Evaluation(gain, math.inf, None, None, stderr=_stderr(means), interval=(gain - reach, gain + reach), how=how)
