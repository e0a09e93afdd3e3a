"""Likelihood-UCB: the likelihood of all observations, the policy of its mode, and exploration of parameters left out.

No regret bound is proved for this learner; ``likelihood-dominance`` is the learner with a proof. Likelihood-UCB has the
least measured regret, with two arms and with hundreds.

Interleaved observations are samples of P^τ, and their counts are sufficient for the chain (see ``estimation``). At
every plan the mode of the posterior of each arm is computed anew, from the last mode and from its twin of opposite
correlation (now and then from more starts: see ``estimation``). Then:

- the optimal plan for the mode, with mean rewards that fall with the state, is simulated ahead on the mode itself. The
  simulation gives its observations, and therefore the knowledge of each arm after as many slots again;
- a second plan is made for arms as favourable as the *later* knowledge allows: transitions to better states more likely
  and transitions to worse states less, rewards at their KL upper bounds. Parameters observed for free under the mode
  need no optimism; parameters never observed keep full optimism. ``_exploring`` has the levels;
- if both plans agree in nearly every slot, the mode is followed until 1.1 t. Otherwise the second plan is followed for
  max(5M, t^(2/3)/2) slots, M the largest number of states, or until a count of (arm, last state, elapsed slots) has
  doubled; with more than ``FEW_ARMS`` arms half as many slots, and a count of (arm, last state).

An arm pulled by the plan of the mode but not by the second plan counts with its present knowledge: without pulls
nothing is learned. In the first ``EARLY`` slots, in which the mode has little meaning, all arms are as favourable as
the level ½ ln t allows.

This exploration agrees with the lower bound of regret (docs/theory/limit.md). An arm identified by optimal play needs
no exploration. Any other arm is pulled while a confusing model of the arm is likely enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.validation import Array, BoolArray, IntArray, positive
from restless_bandits.learning.estimation import Fits, first_logits, fit_from_last
from restless_bandits.learning.learners.base import Learner, require_choice
from restless_bandits.learning.learners.confidence_bounds import arm_means, arm_upper_bounds
from restless_bandits.learning.learners.exploration_kernels import (
    Ahead,
    LevelScale,
    compare,
    look_ahead,
    optimistic_chains,
    optimistic_rewards,
    weights_of,
)
from restless_bandits.learning.learners.planning_arms import lasting_policy, policy_on, present_arms
from restless_bandits.learning.learners.violations import warn_of_violations
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.oracles.index_kernels import FlatArms
from restless_bandits.policies.plans import CountDoubled, Plan, Rule, Slots
from restless_bandits.policies.policies import IndexPolicy

MODE_SLOTS_SHARE = 0.1
"""Slots for which the mode is followed, as a share of the played slots."""
EARLY = 60
LOOKED = 1_000
"""The number of simulated slots ahead on the mode."""
AHEAD = 1.0
"""The time at which later knowledge counts, as a multiple of the played slots."""
ALIKE = 0.005
"""The share of slots up to which two plans count as equal."""
LEAST_PULLS_SHARE = 0.25
"""The least pulls of an arm by the second plan, as a share of the pulls by which the first plan would have learned."""
FEW_ARMS = 3
"""The largest number of arms for stop rules with counts of every separate wait."""


@dataclass(frozen=True)
class LikelihoodUCB(Learner):
    """The mode of the likelihood, with optimism for parameters that its plan would not estimate. No regret bound is
    proved.

    Parameters
    ----------
    explore
        Scales the fair share of an arm's observations, t / N. Small values explore less, and may lock on a wrong arm.
    oracle
        The planning oracle: ``auto`` (exact for a small table of joint beliefs, Whittle beyond) or any other oracle.
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
        # A separate generator, for equal plans from equal records: no decision here is random.
        rng = np.random.default_rng(record.plans)
        ahead = look_ahead(rng, follow_mode, likely, record, fits, LOOKED, AHEAD * t)
        arms = self.exploring_arms(record, task, fits, ahead, ordered, likely)
        explore = policy_on(self.oracle, arms, record, task)
        differ, used = compare(rng, explore, follow_mode, likely, record, LOOKED)
        if differ <= ALIKE:
            slots = math.ceil(MODE_SLOTS_SHARE * t)
            follow_mode = lasting_policy(follow_mode, self.oracle, likely, record, task, slots)
            return Plan(follow_mode, Slots(slots), notes)
        left = LEAST_PULLS_SHARE * ahead.used > used
        if left.any():
            # Observations expected under the plan of the mode will not be made under another plan.
            arms = self.exploring_arms(record, task, fits, ahead.without(left, record, fits), ordered, likely)
            explore = policy_on(self.oracle, arms, record, task)
        explore = lasting_policy(explore, self.oracle, arms, record, task, longest_exploring(t, task))
        return Plan(explore, self.until(t, task), notes)

    def rehearse(self, record: Record, task: Task) -> None:
        """Look ahead and explore on even chains, which need no fit and no oracle: their kernels come first in a run."""
        first, pairs = first_logits(record), record.n_states**2
        fits = Fits(record.n_states, first, np.zeros(first[-1]), np.ones(first[-1]), {})
        ordered = np.ones(task.n_arms, dtype=np.bool_)
        rewards = arm_means(*_looks(record, task), record.state_base, ordered)
        shares = 1.0 / record.n_states
        likely = FlatArms(record.n_states, np.repeat(shares, pairs), rewards, np.repeat(shares, record.n_states))
        policy = IndexPolicy(tuple(np.zeros((n, 1)) for n in record.n_states.tolist()), task.plays)
        ahead = look_ahead(np.random.default_rng(0), policy, likely, record, fits, 1, 1.0)
        self.exploring_arms(record, task, fits, ahead, ordered, likely)

    def until(self, t: int, task: Task) -> Rule:
        """The stop rule of an exploring plan that begins in slot t."""
        # With many arms some count of a state and a wait is nearly always new: there all waits count together.
        return Slots(longest_exploring(t, task)) | CountDoubled(cap=1 if task.n_arms > FEW_ARMS else None)

    def exploring_arms(
        self, record: Record, task: Task, fits: Fits, ahead: Ahead, ordered: BoolArray, likely: FlatArms
    ) -> FlatArms:
        """Transitions and rewards as favourable as later knowledge allows, all parameters of an arm together."""
        scale = LevelScale.of(task.n_arms, record.slots + 1, self.explore)
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
        """Transitions as favourable as the standard errors allow, and rewards at their upper bounds.

        Bounds fall with the state, except for arms with higher observed rewards in worse states.
        """
        levels = np.full(task.n_arms, 0.5 * math.log(record.slots + 1))
        # Copies, because Numba would compile the kernels once more for arrays that cannot be written.
        sums, seen = _normalized_sums(record, task).copy(), record.flat_seen.copy()
        bounds = arm_upper_bounds(sums, seen, record.state_base, levels, ordered)
        chains = fits.chains(np.sqrt(2 * levels))
        return present_arms(record, chains, _rewards(record, task, bounds, unseen=1.0))


def longest_exploring(t: int, task: Task) -> int:
    """The largest length of an exploring plan that begins in slot t."""
    part = 0.5 if task.n_arms <= FEW_ARMS else 0.25
    return max(5 * max(task.n_states), math.ceil(part * math.pow(t, 2 / 3)))


def _normalized_sums(record: Record, task: Task) -> Array:
    """Sums of rewards as shares of the arms' ranges."""
    return task.normalized_sums(record.flat_rewards, record.flat_seen)


def _looks(record: Record, task: Task) -> tuple[Array, IntArray]:
    """Sums of rewards, as shares, and numbers of observations of all states, after a further observation of each
    with share one half.
    """
    return _normalized_sums(record, task) + 0.5, record.flat_seen + 1


def _rewards(record: Record, task: Task, normalized: Array, unseen: float) -> Array:
    """Rewards from shares of the arms' ranges, unless known.

    An observed fixed reward is known, too.
    """
    if task.rewards is not None:
        return np.concatenate(task.rewards)
    if "fixed" in task.reward_laws:
        fixed = np.repeat(np.array(task.reward_laws) == "fixed", record.n_states)
        seen = record.flat_seen
        means = np.where(seen > 0, _normalized_sums(record, task) / np.maximum(seen, 1), unseen)
        normalized = np.where(fixed, means, normalized)
    return task.values(normalized)
