"""TSDE with Whittle's index (Akbarzadeh, Mahajan 2023, "On learning Whittle index policy for restless bandits with
scalable regret").

Thompson sampling with dynamic episodes: at the start of an episode every row of both chains of every arm is drawn from
its posterior, Dirichlet(1 + c) after counts c, and Whittle's index of the drawn arms is followed. An episode ends when
it gets one slot longer than the episode before, or when some count of (arm, state, action) is more than twice its value
at the start of the episode.

Differs from the paper:

- the prior of a row is Dirichlet(1, …, 1), where the paper leaves the prior open;
- arms of a kind share their counts, so the second rule counts by kind;
- an arm without Whittle's index has the last subsidy at which each state turns to rest as its index;
- rewards are known in the paper. Learned rewards are drawn from Beta(1 + sum, 1 + number − sum) for each (state,
  action), with a reward between the ends of its range as a fractional success.
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
    posterior_parameters,
    whittle_policy,
)
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.policies.plans import Plan, Slots, VisitsDoubled


@dataclass(frozen=True)
class TSDE(Learner):
    """Follow Whittle's index of a draw from the posterior, episode by episode.

    Parameters
    ----------
    rewards
        ``learned``, or ``known`` as in the paper.

    """

    name: ClassVar[str] = "tsde"
    plans_often: ClassVar[bool] = True
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    @property
    def observed(self) -> frozenset[str]:
        return ALL

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        chains = [dirichlet(given, rng) for given in posterior_parameters(record, task)]
        rewards = drawn_rewards(record, task, self.rewards == "learned", rng)
        longer = record.plan_lengths[-1] + 1 if record.plan_lengths else 1
        return Plan(whittle_policy(arms_of(task, chains, rewards), rng), VisitsDoubled() | Slots(longer))
