"""UCWhittle (Wang, Xu, Taneja, Tambe 2023, "Optimistic Whittle index policy: online learning for restless bandits").

Each row of each chain has a confidence ball around its empirical distribution p̂, in L1 and of radius

    d = scale · √(2 n ln(4 n N t) / max(1, v)),

for n states, N arms, slot t and v visits of the row; the published radius has ``scale=1``. A plan follows Whittle's
index of chains in these balls:

``form=value``
    the chains of highest gain at a subsidy for resting. For given relative values of the states the best row of a ball
    moves d/2 of its probability to the best state, away from the worst ones (Jaksch, Ortner, Auer 2010), so the chains
    and their relative values are found in turn: no quadratic program is solved;
``form=extreme``
    rows of pulls moved up and rows of rests moved down, by the relative values of the empirical chains: of two states
    the upper bound of the good state for pulls, the lower bound for rests.

Differs from the paper:

- the reward is the average one, where the paper discounts within episodes of fixed length from a fixed start;
- the subsidy at which chains are optimistic is that of the Lagrangian relaxation of the last plan's chains, where the
  paper takes the lowest index pulled last;
- a plan lasts 2 % of the slots so far, since no episode resets the arms;
- arms of a kind share their counts, and N is the number of kinds;
- rewards are known in the paper. Learned rewards are the posterior means of a Beta(1, 1) prior: no bonus is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits._internal.validation import Array, IntArray, positive
from restless_bandits.learning.learners.base import ALL, Learner, require_choice
from restless_bandits.learning.learners.observed_arms import (
    arms_of,
    mean_rewards,
    next_slots,
    whittle_policy,
)
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.relaxation import duals_at, relax_observed, sweep_groups
from restless_bandits.policies.plans import Plan

MOST_ROUNDS = 30
"""Changes of chains after which the search for the chains of highest gain ends."""


@dataclass(frozen=True)
class UCWhittle(Learner):
    """Follow Whittle's index of optimistic chains.

    Parameters
    ----------
    form
        ``value``, the chains of highest gain, or ``extreme``, active rows moved up and passive rows moved down.
    scale
        The radius in units of the published one; a tenth earns far more.
    rewards
        ``learned``, or ``known`` as in the paper.

    """

    name: ClassVar[str] = "ucwhittle"
    plans_often: ClassVar[bool] = True
    form: str = "value"
    scale: float = 1.0
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "form", self.form, ("value", "extreme"))
        require_choice(self, "rewards", self.rewards, ("learned", "known"))
        positive("ucwhittle: scale", self.scale, or_zero=True)

    @property
    def observed(self) -> frozenset[str]:
        return ALL

    def plan(self, record: ObservedRecord, task: ObservedTask, rng: np.random.Generator) -> Plan:
        means = [empirical_chains(record.group_counts(kinds, n)) for kinds, n in task.kind_groups]
        radius = [self.scale * half for half in radii(record, task)]
        rewards = mean_rewards(record, task, self.rewards == "learned")
        plain = arms_of(task, means, rewards)
        if self.form == "extreme":
            values = [dual.bias for dual in relax_observed(plain).duals]
            arms = arms_of(task, extreme_chains(means, radius, values), rewards)
            return Plan(whittle_policy(arms, rng), next_slots(record))
        subsidy = record.notes["subsidy"] if record.notes else relax_observed(plain).subsidy
        arms = optimistic_arms(task, means, radius, rewards, subsidy)
        notes = {"subsidy": relax_observed(arms).subsidy}
        return Plan(whittle_policy(arms, rng), next_slots(record), notes)


def empirical_chains(counts: IntArray) -> Array:
    """Return the frequencies of next states; a row never seen is uniform."""
    visits = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.where(visits > 0, counts / np.maximum(visits, 1), 1.0 / counts.shape[-1]))


def radii(record: ObservedRecord, task: ObservedTask) -> list[Array]:
    """Return the published L1 radius of each row of each group of kinds: (kind, state, action)."""
    found = []
    for kinds, n in task.kind_groups:
        visits = np.maximum(record.group_counts(kinds, n).sum(axis=-1), 1)
        level = math.log(4.0 * n * len(task.layout.counts) * (record.slots + 1))
        found.append(np.sqrt(2.0 * n * level / visits))
    return found


def moved(chains: Array, radius: Array, values: Array) -> Array:
    """Return the rows of highest expected value in L1 balls: chains (kind, state, action, next state), values (kind,
    state).
    """
    order = np.argsort(values, axis=1, kind="stable")  # the worst state first
    places = np.broadcast_to(order[:, None, None, :], chains.shape)
    sorted_rows = np.take_along_axis(chains, places, axis=3)
    added = np.minimum(0.5 * radius, 1.0 - sorted_rows[..., -1])
    reached = np.maximum(np.cumsum(sorted_rows, axis=3) - added[..., None], 0.0)
    rows = np.diff(reached, axis=3, prepend=0.0)
    rows[..., -1] += added
    found = np.empty_like(chains)
    np.put_along_axis(found, places, rows, axis=3)
    return found


def extreme_chains(means: Sequence[Array], radius: Sequence[Array], values: Sequence[Array]) -> list[Array]:
    """Return chains whose active rows are moved up and whose passive rows are moved down in the values."""
    found = []
    for mean, ball, value in zip(means, radius, values, strict=True):
        up, down = moved(mean, ball, value), moved(mean, ball, -value)
        up[:, :, 0] = down[:, :, 0]
        found.append(up)
    return found


def optimistic_arms(
    task: ObservedTask, means: Sequence[Array], radius: Sequence[Array], rewards: Array, subsidy: float
) -> ObservedArms:
    """Return the arms whose chains in the balls have the highest gain at a subsidy."""
    arms, chains = arms_of(task, means, rewards), list(means)
    for _ in range(MOST_ROUNDS):
        duals = [duals_at(*pair, subsidy) for pair in zip(arms.groups, sweep_groups(arms), strict=True)]
        better = [moved(mean, ball, dual.bias) for mean, ball, dual in zip(means, radius, duals, strict=True)]
        if all(np.allclose(new, old, rtol=0, atol=1e-12) for new, old in zip(better, chains, strict=True)):
            break
        chains, arms = better, arms_of(task, better, rewards)
    return arms
