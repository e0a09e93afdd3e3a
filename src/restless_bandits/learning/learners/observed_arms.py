"""What learners of observed arms share: chains from counts, mean rewards, and policies of indices over places.

Each row of each kind's two chains has a flat prior, Dirichlet(1, …, 1), so its posterior after counts c is
Dirichlet(1 + c). All kinds of one number of states are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.model.kinds import KindGroup
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.relaxation import relax_observed, sweep_groups
from restless_bandits.policies.observed import PriorityPolicy
from restless_bandits.policies.plans import Slots

GROWTH = 50
"""A plan lasts one slot for so many slots before it: plans get rarer as the posterior changes less."""

Chains = Callable[[Array], Array]
"""A function from posterior parameters (kind, state, action, next state) to chains of the same shape."""


def next_slots(record: ObservedRecord) -> Slots:
    """Return the rule of a plan that lasts for 2 % of the slots so far."""
    return Slots(max(1, record.slots // GROWTH))


def posterior_parameters(record: ObservedRecord, task: ObservedTask) -> list[Array]:
    """Return 1 + counts of each group of kinds: (kind, state, action, next state)."""
    return [np.asarray(1.0 + record.group_counts(kinds, n), dtype=np.float64) for kinds, n in task.kind_groups]


def dirichlet(parameters: Array, rng: np.random.Generator) -> Array:
    """Draw distributions along the last axis."""
    drawn = rng.standard_gamma(parameters)
    if parameters.shape[-1] == 2:
        drawn[..., 0] /= drawn[..., 0] + drawn[..., 1]
        drawn[..., 1] = 1.0 - drawn[..., 0]
        return drawn
    drawn /= drawn.sum(axis=-1, keepdims=True)
    return drawn


def mean_chains(parameters: Array) -> Array:
    """Return the posterior means along the last axis."""
    return np.asarray(parameters / parameters.sum(axis=-1, keepdims=True))


def mean_rewards(record: ObservedRecord, task: ObservedTask, learned: bool) -> Array:
    """Return mean rewards (place, action): the known ones, or the means of a Beta(1, 1) prior for each."""
    if not learned and task.rewards is not None:
        return task.rewards
    return ((1.0 + record.flat_rewards) / (2.0 + record.paid)).reshape(-1, 2)


def drawn_rewards(record: ObservedRecord, task: ObservedTask, learned: bool, rng: np.random.Generator) -> Array:
    """Return mean rewards (place, action): the known ones, or draws from Beta(1 + rewards, 1 + paid − rewards)."""
    if not learned and task.rewards is not None:
        return task.rewards
    sums = np.clip(record.flat_rewards, 0.0, record.paid)
    return np.asarray(rng.beta(1.0 + sums, 1.0 + record.paid - sums)).reshape(-1, 2)


def arms_of(task: ObservedTask, chains: Sequence[Array], rewards: Array) -> ObservedArms:
    """Return the arms of chains (kind, state, action, next state) for each group of kinds, and of mean rewards."""
    groups, place = [], 0
    for (kinds, n), chain in zip(task.kind_groups, chains, strict=True):
        many = len(chain)
        means = rewards[place : place + many * n].reshape(many, n, 2)
        place += many * n
        count, start = task.layout.counts[kinds], np.full((many, n), 1.0 / n)
        passive, active = (np.ascontiguousarray(chain[:, :, action]) for action in (0, 1))
        resting, pulled = (np.ascontiguousarray(means[:, :, action]) for action in (0, 1))
        groups.append(KindGroup(kinds.start, active, passive, pulled, resting, count, start))
    return ObservedArms(tuple(groups), task.layout, task.plays, task.at_most)


def lagrangian_policy(arms: ObservedArms, rng: np.random.Generator) -> PriorityPolicy:
    """Return the policy of the Lagrangian index at the arms' own subsidy; ties are broken at random."""
    index = relax_observed(arms).lagrangian_index
    return PriorityPolicy(arms.layout, index, arms.plays, *_ending(arms, rng))


def whittle_policy(arms: ObservedArms, rng: np.random.Generator) -> PriorityPolicy:
    """Return the policy of Whittle's index; ties are broken at random."""
    index = arms.flat(sweep.indices(g.n_states) for sweep, g in zip(sweep_groups(arms), arms.groups, strict=True))
    return PriorityPolicy(arms.layout, index, arms.plays, *_ending(arms, rng))


def _ending(arms: ObservedArms, rng: np.random.Generator) -> tuple[float, Array]:
    """The score from which on places are pulled, and a random order of equal scores."""
    return 0.0 if arms.at_most else -np.inf, rng.random(arms.layout.size)
