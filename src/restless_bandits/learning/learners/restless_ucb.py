"""Restless-UCB (Wang, Huang, Lui, NeurIPS 2020, Algorithm 1): explore every arm, then commit to an optimistic plan.

Explore: pull each arm until one-step transitions out of each of its states have been observed m(T) times. Commit: build
the instance R', with chains that drift to better states as far as the confidence radius allows and rewards as high as
allowed. An offline oracle gives the policy for R', which is followed to the end.

Differs from the paper, where the paper is silent:

- rows stay stochastic: ``up' = max(0, P̂(k,k+1) − rad)``, ``down' = min(1 − up', P̂(k,k−1) + rad)``, the rest stays.
  Without clipping nothing changes, and P' still dominates P whenever the event of Lemma 1 holds;
- rewards are truncated at 1, or at the end of their range, with the radius as a share of the range, and made
  nonincreasing, ``r'(k) = min_{j≤k} r'(j)``: still optimistic;
- only transitions under consecutive pulls count towards m(T); the first pull of an arm after a pause does not;
- a state never left while exploring (the horizon came first, or m = 0) has up' = 0, down' = 1 and the reward of the
  next better state.

Without a horizon, or with ``anytime=yes``, the horizon is guessed: ``FIRST_GUESS`` slots, doubled whenever the guess is
reached. Each guess T starts a further round of Algorithm 1, with exploration up to m(T) observations, observations of
earlier rounds included, and a new commitment. At the last guess, at most twice the true T, exploration takes up to
2^(2/3) = 1.59 times its length with T known; the radius, too, is the radius of the guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, positive
from restless_bandits.learning.learners.base import Learner, present_problem, require_choice
from restless_bandits.learning.learners.violations import warn_of_violations
from restless_bandits.model import markov, optimism
from restless_bandits.model.checks import MOST_SLOTS
from restless_bandits.model.optimism import exploration_count
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import values_of
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import EveryStateSeen, Forever, Plan, Slots
from restless_bandits.policies.policies import SingleArm

FIRST_GUESS = 1000


@dataclass(frozen=True)
class RestlessUCB(Learner):
    """Explore then commit, optimistically.

    Parameters
    ----------
    oracle
        The oracle that plans on R': whittle as in the paper's experiments, or any other oracle. An approximate oracle
        gives the variant of the paper's Theorem 2.
    m
        m(T): a number, or a function of the horizon; ⌈T^(2/3)⌉ by default.
    rewards
        ``learned``, or ``known`` as in the published comparison; known rewards have no radius.
    radius
        ``paper`` (√(ln T / 2m)), ``none``, ``counts`` (the same with the actual counts), or a number that scales the
        paper's.
    anytime
        Whether to play without a horizon even if a horizon is given.

    """

    name: ClassVar[str] = "restless-ucb"
    oracle: str = "whittle"
    m: int | Callable[[int], int] | None = None
    rewards: str = "learned"
    radius: str | float = "paper"
    anytime: bool = False

    def __post_init__(self) -> None:
        oracles.find_oracle(self.oracle)
        require_choice(self, "rewards", self.rewards, ("learned", "known"))
        if isinstance(self.radius, str):
            require_choice(self, "radius", self.radius, ("paper", "none", "counts"))
        else:
            positive("restless-ucb: radius", self.radius, or_zero=True)
        if not isinstance(self.anytime, bool):
            raise ProblemError(f"restless-ucb: anytime is {shortened(self.anytime)}; it must be yes or no")
        if not callable(self.m) and self.m is not None:
            check_int("restless-ucb: m", self.m, 1, MOST_SLOTS)

    def caution(self, task: Task, problem: Problem | None = None) -> str | None:
        """Return the expected length of exploration if longer than the horizon.

        An arm takes m(T) visits to its rarest state, with its share of the slots from the problem; without a problem,
        as many visits to each of its states. Arms are explored one after the other.
        """
        if task.horizon is None or self.anytime:
            return None
        shares = [1.0 / n for n in task.n_states]
        if problem is not None:
            shares = [float(markov.stationary(arm.one_step).min()) for arm in problem.arms]
        if min(shares) <= 0.0:
            return f"{self.name} will explore for ever, as some state is never seen again"
        slots = self.observations(task.horizon) * sum(1.0 / share for share in shares)
        if slots <= task.horizon:
            return None
        about = "at least" if problem is None else "about"
        return (
            f"{self.name} will explore all the {task.horizon:,} slots: it needs {about} {slots:,.0f} before it plays "
            "by what it has seen"
        )

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        notes = warn_of_violations(self.name, record, task)
        horizon = self.horizon(record, task)
        times = self.observations(horizon)
        known = horizon == task.horizon
        left = horizon - record.slots
        for arm in range(task.n_arms):
            if not record.every_state_seen(arm, times):
                explored = EveryStateSeen(arm, times)
                return Plan(SingleArm(arm, task.plays), explored if known else explored | Slots(left), notes)
        policy = oracles.policy(self.oracle, self.optimistic_problem(record, task), slots=horizon)
        return Plan(policy, Forever() if known else Slots(left), notes)

    def horizon(self, record: Record, task: Task) -> int:
        """The horizon, or its present guess."""
        if task.horizon is not None and not self.anytime:
            return task.horizon
        guess = FIRST_GUESS
        while guess <= record.slots:
            guess *= 2
        return guess

    def observations(self, horizon: int) -> int:
        """m(T)."""
        if callable(self.m):
            return int(self.m(horizon))
        return exploration_count(horizon) if self.m is None else self.m

    def radii(self, counts: IntArray, horizon: int) -> Array:
        """The confidence radius of estimates by their numbers of observations."""
        if self.radius == "none":
            return np.zeros(counts.shape)
        if self.radius == "counts":
            return np.sqrt(math.log(horizon) / (2.0 * np.maximum(counts, 1)))
        scale = 1.0 if self.radius == "paper" else float(self.radius)
        return np.full(counts.shape, scale * math.sqrt(math.log(horizon) / (2.0 * self.observations(horizon))))

    def optimistic_problem(self, record: Record, task: Task) -> Problem:
        """The instance R' of Algorithm 1, line 6, started from the present belief."""
        horizon = self.horizon(record, task)
        chains, rewards = [], []
        sums = np.split(task.normalized_sums(record.flat_rewards, record.flat_seen), record.state_base[1:-1])
        for i in range(task.n_arms):
            transitions = record.transitions(i)
            chains.append(optimistic_chain(transitions, self.radii(transitions.sum(axis=1), horizon)))
            seen = record.seen(i)
            bounds = optimistic_rewards(sums[i], seen, self.radii(seen, horizon))
            rewards.append(values_of(bounds, task.reward_ranges[i]))
        return present_problem(record, task, chains, task.rewards or rewards)


def optimistic_chain(transitions: IntArray, radii: Array) -> Array:
    """P' from one-step counts; a state never left moves to the better state with probability 1."""
    estimate = np.eye(len(transitions), k=-1)
    estimate[0, 0] = 1.0
    counts = transitions.sum(axis=1)
    left = counts > 0
    estimate[left] = transitions[left] / counts[left, None]
    return optimism.optimistic_chain(estimate, radii)


def optimistic_rewards(sums: Array, counts: IntArray, radii: Array) -> Array:
    """R' from sums of rewards; a state never observed may pay the maximum."""
    return optimism.optimistic_rewards(np.where(counts > 0, sums / np.maximum(counts, 1), 1.0), radii)
