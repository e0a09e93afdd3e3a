"""The fluid limit of a priority order: what the order earns when every kind has very many arms.

With many arms of few kinds the fractions of arms in each state follow a deterministic path x ← y P_active + (x − y)
P_passive, where y fills the budget in the order of priority. The path may end in a cycle or a trap that loses much more
than a heterogeneous problem of the same size would (Gast, Gaujal, Yan 2023). The test starts from the uniform
distribution and from each single state, never from the relaxed distribution, which is a fixed point, and keeps the
worst start.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.policies.observed import PriorityPolicy

PATH_STEPS = 3000
"""Steps of a path; the second half is averaged."""


def priority_fill(mass: Array, order: IntArray, budget: float) -> Array:
    """Return the mass that a budget pulls in an order of places, highest priority first; rows are separate paths.

    Places out of the order are never pulled.
    """
    ordered = mass[:, order]
    before = np.cumsum(ordered, axis=1) - ordered
    pulled = np.zeros_like(mass)
    pulled[:, order] = np.clip(budget - before, 0.0, ordered)
    return pulled


def stepped(arms: ObservedArms, mass: Array, pulled: Array) -> Array:
    """Return the mass one slot later; rows are separate paths."""
    after = np.empty_like(mass)
    rested = mass - pulled
    begin = 0
    for group in arms.groups:
        end = begin + group.n_kinds * group.n_states
        shape = (len(mass), group.n_kinds, group.n_states)
        moved = np.einsum("pks,ksz->pkz", pulled[:, begin:end].reshape(shape), group.active)
        moved += np.einsum("pks,ksz->pkz", rested[:, begin:end].reshape(shape), group.passive)
        after[:, begin:end] = moved.reshape(len(mass), -1)
        begin = end
    return after


def flat_rewards(arms: ObservedArms) -> tuple[Array, Array]:
    """Return mean rewards of pulling and of resting, flat over (kind, state)."""
    return arms.flat(g.active_rewards for g in arms.groups), arms.flat(g.passive_rewards for g in arms.groups)


def fluid_starts(arms: ObservedArms) -> Array:
    """Return the starts of the fluid test, a row each: the uniform distribution and each single state."""
    most = int(arms.layout.n_states.max())
    weight = np.repeat(arms.layout.counts / arms.n_arms, arms.layout.n_states)
    state = np.arange(len(weight)) - np.repeat(arms.layout.offset, arms.layout.n_states)
    last = np.repeat(arms.layout.n_states, arms.layout.n_states) - 1
    uniform = weight / (last + 1)
    single = [np.where(state == np.minimum(s, last), weight, 0.0) for s in range(most)]
    return np.stack([uniform, *single])


def fluid_gain(arms: ObservedArms, policy: PriorityPolicy, *, steps: int = PATH_STEPS) -> float:
    """Return the lowest long-run reward a slot and arm of a priority, over the starts."""
    mass = fluid_starts(arms)
    active, passive = flat_rewards(arms)
    earned = np.zeros(len(mass))
    for step in range(steps):
        pulled = priority_fill(mass, policy.allowed, arms.plays / arms.n_arms)
        if step >= steps // 2:
            earned += pulled @ active + (mass - pulled) @ passive
        mass = stepped(arms, mass, pulled)
    return float(earned.min()) / (steps - steps // 2)
