"""Posterior sampling and certainty equivalence for observed arms (Thompson 1933; Strens 2000; Osband et al. 2013).

A plan draws every row of both chains of every kind from its posterior, Dirichlet(1 + c) after counts c, and follows the
Lagrangian index of the drawn problem at its own subsidy. Passive rows are drawn too: a state in which an arm is always
pulled never shows its passive row again, and a learner without doubt about that row never rests there. A plan lasts
2 % of the slots so far.

``concentration`` κ draws from Dirichlet(κ (1 + c)), a distribution with the same mean and a narrower spread: κ = 2
earns more up to ten thousand slots, κ = 1 in the long run.

``certainty-equivalent`` follows the index of the posterior means and does not explore: a baseline that gets stuck.

Differs from the papers: the Lagrangian index stands in for an optimal policy of the drawn problem, which no one can
compute, and plans end by the growth of time alone. Rewards, where they are not known, have Beta(1, 1) priors; a reward
between the ends of the range counts as a fractional success.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
from restless_bandits.policies.plans import Plan


def plan_on_draw(
    record: ObservedRecord, task: ObservedTask, rng: np.random.Generator, *, concentration: float, learned: bool
) -> Plan:
    """Return the plan of posterior sampling; ``learned`` says that rewards are drawn too."""
    chains = [dirichlet(concentration * given, rng) for given in posterior_parameters(record, task)]
    rewards = drawn_rewards(record, task, learned, rng)
    return Plan(lagrangian_policy(arms_of(task, chains, rewards), rng), next_slots(record))


@dataclass(frozen=True)
class CertaintyEquivalent(Learner):
    """Follow the Lagrangian index of the posterior means, without exploration.

    Parameters
    ----------
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "certainty-equivalent"
    plans_often: ClassVar[bool] = True
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    @property
    def observed(self) -> frozenset[str]:
        return ALL

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        chains = [mean_chains(given) for given in posterior_parameters(record, task)]
        rewards = mean_rewards(record, task, self.rewards == "learned")
        return Plan(lagrangian_policy(arms_of(task, chains, rewards), rng), next_slots(record))
