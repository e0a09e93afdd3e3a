"""Likelihood-UCB: use every observation through its likelihood, explore by optimism, commit to the mode.

No regret bound is proved for this learner; ``likelihood-dominance`` is the one with a proof. What it has is the least
regret that was measured.

Interleaved observations are samples of P^τ, and their counts are sufficient for the chain (see ``estimation``). At
every plan the mode of the posterior of each arm is found anew, from the last mode and from its twin of opposite
correlation (now and then from more starts: see ``estimation``). Two kinds of plans alternate:

- *optimistic*: moves to better states as likely and moves to worse ones as unlikely as √(2·α·ln t) standard errors
  allow, rewards at their KL upper bounds at the level α·ln t, nonincreasing in the state;
- *certainty-equivalent*: the mode, and mean rewards with half a pseudo-count.

Optimistic plans last max(5M, t^(2/3)/2) slots, M the most states of an arm, and are made as long as they have taken
fewer than ``explore``·t^(2/3) slots in all; otherwise the mode is followed until 1.1 t. A count of (arm, last state,
elapsed slots) that has doubled ends an optimistic plan too; with more than ``FEW_ARMS`` arms one of (arm, last state).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits.arrays import Array, positive, whole
from restless_bandits.estimation import Fits, fit_from_last
from restless_bandits.learners._bounds import arm_upper_bounds
from restless_bandits.learners._present import policy_on, present_arms
from restless_bandits.learners.base import Learner, require_choice
from restless_bandits.learners.violations import warn_of_violations
from restless_bandits.oracles._indices import FlatArms
from restless_bandits.plans import CountDoubled, Plan, Slots
from restless_bandits.problem import Task
from restless_bandits.record import Record

GROWTH = 0.1
FEW_ARMS = 3
"""Arms up to which counts of every wait are told apart where a plan ends by a doubled count."""


@dataclass(frozen=True)
class LikelihoodUCB(Learner):
    """Optimistic and certainty-equivalent plans on the mode of the likelihood, in turn. No regret bound is proved.

    Parameters
    ----------
    alpha
        Scales the level α·ln t of the confidence bounds. Below ½ some runs lock onto one arm.
    explore
        Optimistic plans take at most about ``explore``·t^(2/3) slots.
    oracle
        What plans: ``auto`` (exact while the table of joint beliefs is small, Whittle beyond) or any other oracle.
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "likelihood-ucb"
    plans_often: ClassVar[bool] = True
    alpha: float = 0.5
    explore: float = 5.0
    oracle: str = "auto"
    rewards: str = "learned"

    def __post_init__(self) -> None:
        for option in ("alpha", "explore"):
            positive(f"{self.name}: {option}", getattr(self, option))
        oracles.find_oracle(self.oracle)
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        notes = warn_of_violations(self.name, record, task)
        t = record.slots + 1
        fits = fit_from_last(record)
        spent = optimistic_slots(record.notes, record)
        optimistic = spent < self.explore * t ** (2 / 3)
        if optimistic:
            disordered = [arm for arm, assumption in notes.get("violations", ()) if assumption == 1]
            arms = self.optimistic_arms(record, task, fits, disordered)
            slots = max(5 * max(task.n_states), math.ceil(0.5 * t ** (2 / 3)))
        else:
            arms = self.likeliest_arms(record, task, fits)
            slots = math.ceil(GROWTH * t)
        notes |= fits.notes | {"optimistic": optimistic, "spent": spent}
        # A doubled count tells much to a plan that explores and next to nothing to one that follows the mode. With many
        # arms some count of a state and a wait is nearly always new: there all waits count together.
        doubled = CountDoubled(cap=1 if task.n_arms > FEW_ARMS else None)
        until = Slots(slots) | doubled if optimistic else Slots(slots)
        # What is followed for long is worth more planning; optimistic plans are many and short.
        lasting = 0 if optimistic else slots
        return Plan(policy_on(self.oracle, arms, record, task, lasting), until, notes)

    def likeliest_arms(self, record: Record, task: Task, fits: Fits) -> FlatArms:
        """The mode, with mean rewards."""
        seen, sums = record.flat_seen, task.share_sums(record.flat_rewards, record.flat_seen)
        return _arms(record, task, fits, 0.0, (sums + 0.5) / (seen + 1), unseen=0.5)

    def optimistic_arms(self, record: Record, task: Task, fits: Fits, disordered: Sequence[int] = ()) -> FlatArms:
        """Moves as favourable as the standard errors allow, and rewards at their upper bounds.

        Bounds fall with the state but for arms that are ``disordered``: seen to pay more in worse states.
        """
        level = self.alpha * math.log(record.slots + 1)
        levels, ordered = np.full(task.n_arms, level), np.ones(task.n_arms, dtype=np.bool_)
        ordered[list(disordered)] = False
        sums = task.share_sums(record.flat_rewards, record.flat_seen)
        bounds = arm_upper_bounds(sums, record.flat_seen, record.state_base, levels, ordered)
        return _arms(record, task, fits, math.sqrt(2 * level), bounds, unseen=1.0)


def optimistic_slots(notes: Mapping[str, Any], record: Record) -> int:
    """How many slots optimistic plans have taken so far."""
    last = record.plan_lengths[-1] if notes.get("optimistic") and record.plan_lengths else 0
    return whole("likelihood-ucb: spent", notes.get("spent", 0), 0, record.slots) + last


def _arms(record: Record, task: Task, fits: Fits, width: float, rewards: Array, unseen: float) -> FlatArms:
    """Chains so many standard errors better than the mode, with learned rewards unless they are known.

    Learned rewards come as shares of the arms' ranges. A fixed reward that was seen is known, too.
    """
    if task.rewards is not None:
        means = np.concatenate(task.rewards)
    else:
        if "fixed" in task.reward_laws:
            fixed = np.repeat(np.array(task.reward_laws) == "fixed", record.n_states)
            seen = record.flat_seen
            sums = task.share_sums(record.flat_rewards, seen)
            rewards = np.where(fixed, np.where(seen > 0, sums / np.maximum(seen, 1), unseen), rewards)
        means = task.values(rewards)
    return present_arms(record, fits.chains(np.full(task.n_arms, width)), means)
