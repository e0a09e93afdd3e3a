"""The default for observed arms: a bonus for unknown rows in the first slots, then posterior sampling.

A plan scores places, pairs (kind, state), by the Lagrangian index D(s) of one model of the chains, D being the
advantage of pulling over resting at the subsidy at which the mean number of pulls fits the budget.

1. In the first ``BONUS_SLOTS`` slots the model is the posterior mean, with Dirichlet(1, …, 1) priors, and the score is

       D(s) + β (σ(s, 1) − σ(s, 0) / 2),

   with σ(s, a) the posterior standard deviation of r(s, a) + Σ P_a(s, z) h(z), h the relative values of the model. A
   pull of a doubtful active row teaches, and so does a rest in a state whose passive row is in doubt: a learner that
   explores active rows alone never rests again in a state in which it once pulls for good.
2. From then on the model is a draw: every row of both chains from Dirichlet(κ (1 + c)) after counts c. Narrower draws,
   κ > 1, waste fewer pulls on rows that are known well enough, and recover later from bad luck. κ = 4 for a horizon of
   up to ``FEW_PULLS`` pulls of each place on average, else κ = 2. Beyond ``FEW_PULLS`` κ = 1, but for a horizon of up
   to ``MANY_PULLS``.
3. From ``JOINT_SLOTS`` slots on the drawn problem of a few arms is solved exactly, over the joint states. Index
   policies of five arms lose more than a percent of the optimum on some problems.

Where arms share kinds, slot 1 pulls arms drawn uniformly: a plan by (kind, state) would spend all pulls of the slot on
the arms of a few kinds. A plan lasts 2 % of the slots so far. Rewards, where they are not known, have Beta(1, 1) priors
as in ``observed_posterior``. There is no proof of a regret for this learner: see docs/learners.md. The constants come
from random problems on which no table of the documentation rests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners.base import ALL, Learner, require_choice
from restless_bandits.learning.learners.observed_arms import (
    arms_of,
    dirichlet,
    drawn_rewards,
    lagrangian_policy,
    mean_chains,
    mean_rewards,
    next_slots,
    posterior_parameters,
)
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.exact import solve_joint
from restless_bandits.oracles.observed.relaxation import relax_observed
from restless_bandits.policies.observed import JointStatePolicy, PriorityPolicy, UniformPolicy
from restless_bandits.policies.plans import Plan, Slots

BONUS, PASSIVE_SHARE, BONUS_SLOTS = 1.5, 0.5, 100
"""The bonus β of an active row, the share of β for a passive row, and the slots with a bonus."""
FEW_PULLS, MANY_PULLS = 100, 1_000
"""Pulls of each place on average: a horizon with few of them is short, with more than many of them long."""
JOINT_SLOTS, JOINT_STATES, JOINT_CHOICES, JOINT_TOLERANCE = 1_000, 64, 64, 1e-5
"""The slot from which on a drawn problem is solved exactly, and the largest numbers of joint states and choices."""


@dataclass(frozen=True)
class BonusPosterior(Learner):
    """Begin with a bonus for unknown rows, and go on by posterior sampling.

    Parameters
    ----------
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "bonus-posterior"
    plans_often: ClassVar[bool] = True
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    @property
    def observed(self) -> frozenset[str]:
        return ALL

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        learned = self.rewards == "learned"
        if record.slots == 0 and task.n_arms > len(task.layout.counts):
            return Plan(UniformPolicy(task.layout, task.plays, int(rng.integers(1 << 62))), Slots(1))
        parameters = posterior_parameters(record, task)
        if record.slots < BONUS_SLOTS:
            means = mean_rewards(record, task, learned)
            doubt = _reward_variance(record, means) if learned else np.zeros_like(means)
            return Plan(_with_bonus(task, parameters, means, doubt, rng), next_slots(record))
        chains = [dirichlet(_concentration(record.slots, task) * given, rng) for given in parameters]
        arms = arms_of(task, chains, drawn_rewards(record, task, learned, rng))
        exactly = record.slots >= JOINT_SLOTS and _is_small(task)
        return Plan(joint_policy(arms) if exactly else lagrangian_policy(arms, rng), next_slots(record))


def _concentration(slots: int, task: ObservedTask) -> float:
    """Return κ, by the pulls of each place so far and up to the horizon."""
    horizon = np.inf if task.horizon is None else task.horizon
    so_far, in_all = (many * task.plays / task.layout.size for many in (slots, horizon))
    if in_all < FEW_PULLS:
        return 4.0
    return 1.0 if in_all > MANY_PULLS and so_far >= FEW_PULLS else 2.0


def _reward_variance(record: ObservedRecord, means: Array) -> Array:
    """Return the variance of the Beta posterior of each mean reward."""
    return means * (1.0 - means) / (3.0 + record.paid.reshape(-1, 2))


def _with_bonus(
    task: ObservedTask, parameters: list[Array], rewards: Array, reward_variance: Array, rng: np.random.Generator
) -> PriorityPolicy:
    """Return the policy of the posterior mean's Lagrangian index and a bonus for doubt."""
    arms = arms_of(task, [mean_chains(given) for given in parameters], rewards)
    relaxation = relax_observed(arms)
    parts = []
    for given, dual in zip(parameters, relaxation.duals, strict=True):
        row, values = mean_chains(given), dual.bias[:, None, None, :]
        spread = (row * values**2).sum(axis=-1) - (row * values).sum(axis=-1) ** 2
        parts.append((np.maximum(spread, 0.0) / (given.sum(axis=-1) + 1.0)).reshape(-1, 2))
    doubt = np.sqrt(np.concatenate(parts) + reward_variance)
    score = relaxation.lagrangian_index + BONUS * (doubt[:, 1] - PASSIVE_SHARE * doubt[:, 0])
    floor = 0.0 if task.at_most else -np.inf
    return PriorityPolicy(task.layout, score, task.plays, floor, rng.random(task.layout.size))


def _is_small(task: ObservedTask) -> bool:
    """Whether a drawn problem can be solved over its joint states in a millisecond."""
    layout = task.layout
    single = layout.kinds is None and bool((layout.counts == 1).all())
    few = layout.n_arms <= math.log2(JOINT_STATES) and math.prod(layout.n_states.tolist()) <= JOINT_STATES
    return single and few and math.comb(layout.n_arms, task.plays) <= JOINT_CHOICES


def joint_policy(arms: ObservedArms) -> JointStatePolicy:
    """Return the optimal policy of a few arms over their joint states."""
    found = solve_joint(arms, tolerance=JOINT_TOLERANCE)
    actions = np.zeros((len(found.choices), arms.n_arms), dtype=np.int64)
    for number, choice in enumerate(found.choices):
        actions[number, list(choice)] = 1
    table = found.choice.reshape(arms.layout.sizes.tolist())
    return JointStatePolicy(arms.layout, table, actions, arms.plays)
