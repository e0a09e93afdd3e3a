"""What a learner does in the limit: where a support misses the truth, the policy on which it settles, and its loss.

Thompson sampling with a finite support that lacks an arm's chain ends up at the chains of the support that explain best
what its own play shows, and its own play is the policy for these chains. Such a pair is found by going back and forth:
play the policy of some chains for long, take the chains that the posterior then names, and so on until they stay. From
there on the regret grows by the same amount in every slot, which ``evaluate`` computes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import world_words
from restless_bandits.learning.learners import Learner, ThompsonSampling
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.oracles import evaluate
from restless_bandits.policies.plans import Plan, Slots
from restless_bandits.policies.policies import Policy
from restless_bandits.simulation.comparator import Comparator
from restless_bandits.simulation.engine import EXPECTED, Run, World

PLAYED_SLOTS = 500_000
"""Slots after which the posterior is asked."""
SURE_WEIGHT = 0.999
"""The weight that the posterior must put on one chain of each arm."""
ROUNDS = 12
IDLE = 100
"""Pulls up to which an arm is called never pulled: a few are made before the first states are known."""
RUNS = 20
"""Runs by which the gain is estimated where it cannot be computed; with ``ERRORS`` standard errors off at most."""
ALLOWED_STANDARD_ERRORS = 8.0
NOTHING = 1e-9
"""A loss a slot that is called none."""


@dataclass(frozen=True)
class LimitingLoss:
    """The loss a slot in the long run, between two bounds."""

    lower: float
    upper: float

    @property
    def loses(self) -> bool | None:
        """Whether regret grows linearly; None where the bounds leave that open."""
        return True if self.lower > NOTHING else False if self.upper <= NOTHING else None


def limiting_loss(problem: Problem, learner: Learner, against: Comparator, seed: int = 0) -> LimitingLoss | None:
    """Return what a learner loses in the limit against a comparator; None where it is not known."""
    if not isinstance(learner, ThompsonSampling) or learner.prior != "finite":
        return None
    world = World(problem)
    policy = settled_policy(world, learner, seed)
    if policy is None:
        return None
    try:
        found = evaluate(problem, policy)
        gain, error = found.gain, found.error
    except ProblemError:  # too many joint beliefs
        gains = [_play(world, policy, seed, run).totals.sums[EXPECTED] / PLAYED_SLOTS for run in range(RUNS)]
        gain, error = float(np.mean(gains)), ALLOWED_STANDARD_ERRORS * float(np.std(gains, ddof=1)) / math.sqrt(RUNS)
    return LimitingLoss(against.lower - gain - error, against.upper - gain + error)


def settled_policy(world: World, learner: ThompsonSampling, seed: int = 0) -> Policy | None:
    """Return the policy for chains that the posterior names when that policy is played; None if none is found.

    It begins with the chains of the support that are nearest to the truth, and an arm that is never pulled keeps its.
    """
    problem = world.problem
    task = problem.task(PLAYED_SLOTS, reveal=["rewards"])
    rewards = [arm.rewards.tolist() for arm in problem.arms]
    supports = [learner.chains(n) for n in problem.n_states]
    chains = [
        int(np.abs(support - arm.one_step).max(axis=(1, 2)).argmin())
        for support, arm in zip(supports, problem.arms, strict=True)
    ]
    for _ in range(ROUNDS):
        policy = learner.policy(Record.of(task), task, chains, rewards)
        record = _play(world, policy, seed, 0).record
        before, chains = chains, list(chains)
        for arm in range(problem.n_arms):
            weights = learner.posterior(record, arm)
            if record.counts(arm).sum() > IDLE:
                if weights.max() < SURE_WEIGHT:
                    return None
                chains[arm] = int(weights.argmax())
        if chains == before:
            return policy
    return None


def _play(world: World, policy: Policy, seed: int, run: int) -> Run:
    played = Run(world, PLAYED_SLOTS, np.array([PLAYED_SLOTS]), world_words(seed, world.problem.content, run))
    played.play(Plan(policy, Slots(PLAYED_SLOTS)))
    return played
