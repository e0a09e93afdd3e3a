"""Likelihood-UCB: use every observation through its likelihood, follow the mode, be curious about what that leaves out.

No regret bound is proved for this learner; ``likelihood-dominance`` is the one with a proof. What it has is the least
regret that was measured, with two arms and with hundreds.

Interleaved observations are samples of P^τ, and their counts are sufficient for the chain (see ``estimation``). At
every plan the mode of the posterior of each arm is found anew, from the last mode and from its twin of opposite
correlation (now and then from more starts: see ``estimation``). Then:

- the plan that is best for the mode, with mean rewards that fall with the state, is followed ahead on the mode itself:
  what would it look at, and so what would be known of each arm after as many slots again?
- a second plan is made for arms that are as favourable as *that* knowledge leaves possible: moves to better states more
  likely and moves to worse ones less, rewards at their KL upper bounds. What following the mode tells for nothing
  needs no optimism; what it never looks at keeps all of it. ``_exploring`` has the levels;
- if both plans do the same in nearly every slot, the mode is followed until 1.1 t; else the second one, for
  max(5M, t^(2/3)/2) slots, M the most states of an arm, or until a count of (arm, last state, elapsed slots) has
  doubled; with more than ``FEW_ARMS`` arms half as many slots, and a count of (arm, last state).

An arm of which following the mode would tell something, but which the second plan leaves alone, counts as it is known
now: what is not followed tells nothing. In the first ``EARLY`` slots, in which the mode means little, all arms are as
favourable as the level ½ ln t allows.

This is the exploration that the limit of regret asks for (docs/theory/limit.md): an arm that optimal play identifies
needs none, and one that it does not is looked at while a confusing model of it is likely enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits.arrays import Array, BoolArray, IntArray, positive
from restless_bandits.estimation import Fits, fit_from_last
from restless_bandits.learners._bounds import arm_means, arm_upper_bounds
from restless_bandits.learners._exploring import (
    Ahead,
    Scale,
    compare,
    look_ahead,
    optimistic_chains,
    optimistic_rewards,
    weights_of,
)
from restless_bandits.learners._present import lasting_policy, policy_on, present_arms
from restless_bandits.learners.base import Learner, require_choice
from restless_bandits.learners.violations import warn_of_violations
from restless_bandits.oracles._indices import FlatArms
from restless_bandits.plans import CountDoubled, Plan, Rule, Slots
from restless_bandits.problem import Task
from restless_bandits.record import Record

GROWTH = 0.1
"""Slots for which the mode is followed, as a share of those played."""
EARLY = 60
LOOKED = 1_000
"""Slots that are played ahead on the mode."""
AHEAD = 1.0
"""Slots after which what would be known counts, as a multiple of those played."""
ALIKE = 0.005
"""Share of slots up to which two plans do the same."""
KEPT = 0.25
"""Pulls of an arm that the second plan must make, as a share of those by which the first would have learned."""
FEW_ARMS = 3
"""Arms up to which counts of every wait are told apart where a plan ends by a doubled count."""


@dataclass(frozen=True)
class LikelihoodUCB(Learner):
    """The mode of the likelihood, and optimism in what following it would not show. No regret bound is proved.

    Parameters
    ----------
    explore
        Scales the number of looks that is a fair share for an arm, t / N. Less explores less, and may lock.
    oracle
        What plans: ``auto`` (exact while the table of joint beliefs is small, Whittle beyond) or any other oracle.
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "likelihood-ucb"
    plans_often: ClassVar[bool] = True
    explore: float = 1.0
    oracle: str = "auto"
    rewards: str = "learned"

    def __post_init__(self) -> None:
        positive(f"{self.name}: explore", self.explore)
        oracles.find_oracle(self.oracle)
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        notes = warn_of_violations(self.name, record, task)
        ordered = np.ones(task.n_arms, dtype=np.bool_)
        ordered[[arm for arm, assumption in notes.get("violations", ()) if assumption == 1]] = False
        t = record.slots + 1
        fits = fit_from_last(record)
        notes |= fits.notes
        if t <= EARLY:
            arms = self.optimistic_arms(record, task, fits, ordered)
            return Plan(policy_on(self.oracle, arms, record, task), self.until(t, task), notes)
        likely = self.likeliest_arms(record, task, fits, ordered)
        follow_mode = policy_on(self.oracle, likely, record, task)
        # Of its own, so that equal records give equal plans: nothing that is decided here is a matter of chance.
        rng = np.random.default_rng(record.plans)
        ahead = look_ahead(rng, follow_mode, likely, record, fits, LOOKED, AHEAD * t)
        arms = self.exploring_arms(record, task, fits, ahead, ordered, likely)
        explore = policy_on(self.oracle, arms, record, task)
        differ, used = compare(rng, explore, follow_mode, likely, record, LOOKED)
        if differ <= ALIKE:
            slots = math.ceil(GROWTH * t)
            follow_mode = lasting_policy(follow_mode, self.oracle, likely, record, task, slots)
            return Plan(follow_mode, Slots(slots), notes)
        left = KEPT * ahead.used > used
        if left.any():
            # What was to be learned by following the mode will not be if that is not followed.
            arms = self.exploring_arms(record, task, fits, ahead.without(left, record, fits), ordered, likely)
            explore = policy_on(self.oracle, arms, record, task)
        explore = lasting_policy(explore, self.oracle, arms, record, task, longest_exploring(t, task))
        return Plan(explore, self.until(t, task), notes)

    def until(self, t: int, task: Task) -> Rule:
        """When an exploring plan ends that begins in slot t."""
        # With many arms some count of a state and a wait is nearly always new: there all waits count together.
        return Slots(longest_exploring(t, task)) | CountDoubled(cap=1 if task.n_arms > FEW_ARMS else None)

    def exploring_arms(
        self, record: Record, task: Task, fits: Fits, ahead: Ahead, ordered: BoolArray, likely: FlatArms
    ) -> FlatArms:
        """Moves and rewards that are as favourable as what will be known of them allows, all of an arm together."""
        scale = Scale.of(task.n_arms, record.slots + 1, self.explore)
        sums, seen = _looks(record, task)
        first, later = record.state_base, ahead.seen + 1

        def arms(weights: Array) -> FlatArms:
            chains = optimistic_chains(
                fits.theta, fits.first, ahead.errors, record.n_states, scale, ahead.pulls, weights
            )
            bounds = optimistic_rewards(sums, seen, later, first, ordered, scale, ahead.pulls, weights)
            return present_arms(record, chains, _rewards(record, task, bounds, unseen=1.0))

        return arms(weights_of(likely, arms(np.ones(task.n_arms))))

    def likeliest_arms(self, record: Record, task: Task, fits: Fits, ordered: BoolArray) -> FlatArms:
        """The mode, with the likeliest mean rewards."""
        means = arm_means(*_looks(record, task), record.state_base, ordered)
        return present_arms(record, fits.chains(np.zeros(task.n_arms)), _rewards(record, task, means, unseen=0.5))

    def optimistic_arms(self, record: Record, task: Task, fits: Fits, ordered: BoolArray) -> FlatArms:
        """Moves as favourable as the standard errors allow, and rewards at their upper bounds.

        Bounds fall with the state but for arms that were seen to pay more in worse states.
        """
        levels = np.full(task.n_arms, 0.5 * math.log(record.slots + 1))
        # Copies, because Numba would compile the kernels once more for arrays that cannot be written.
        sums, seen = _share_sums(record, task).copy(), record.flat_seen.copy()
        bounds = arm_upper_bounds(sums, seen, record.state_base, levels, ordered)
        chains = fits.chains(np.sqrt(2 * levels))
        return present_arms(record, chains, _rewards(record, task, bounds, unseen=1.0))


def longest_exploring(t: int, task: Task) -> int:
    """Slots after which an exploring plan ends that begins in slot t, if nothing ends it before."""
    part = 0.5 if task.n_arms <= FEW_ARMS else 0.25
    return max(5 * max(task.n_states), math.ceil(part * math.pow(t, 2 / 3)))


def _share_sums(record: Record, task: Task) -> Array:
    """Sums of rewards as shares of the arms' ranges."""
    return task.share_sums(record.flat_rewards, record.flat_seen)


def _looks(record: Record, task: Task) -> tuple[Array, IntArray]:
    """Sums of rewards, as shares, and numbers of looks at all states, after one look at each that paid half."""
    return _share_sums(record, task) + 0.5, record.flat_seen + 1


def _rewards(record: Record, task: Task, shares: Array, unseen: float) -> Array:
    """Rewards that were learned as shares of the arms' ranges, unless they are known.

    A fixed reward that was seen is known, too.
    """
    if task.rewards is not None:
        return np.concatenate(task.rewards)
    if "fixed" in task.reward_laws:
        fixed = np.repeat(np.array(task.reward_laws) == "fixed", record.n_states)
        seen = record.flat_seen
        means = np.where(seen > 0, _share_sums(record, task) / np.maximum(seen, 1), unseen)
        shares = np.where(fixed, means, shares)
    return task.values(shares)
