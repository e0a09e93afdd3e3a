"""The present state distributions of the arms of an agent, with every pull accounted for, observed or not.

An arm observed in s has the distribution ``e_s P_active P^(τ−1)`` of its state τ slots later, if not pulled in between.
A pull without an observation in slot t takes the distribution b_t in the slot to ``b_t P_active P^(τ−1)``.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array
from restless_bandits.learning.estimation import estimate
from restless_bandits.model.arms import Arm
from restless_bandits.model.markov import power, stationary
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task


def present_distributions(record: Record, task: Task, problem: Problem | None) -> tuple[Array, ...]:
    """Return the distribution of every arm's state in the coming slot, by the chains of a problem or else estimated."""
    if problem is None:
        found = estimate(record, names=task.names, strict=False, reward_ranges=task.reward_ranges).arms
        beliefs = []
        for number, (one, initial) in enumerate(zip(found, task.initial, strict=True)):
            active = one.transitions if one.active_transitions is None else one.active_transitions
            start = None if initial is None else np.eye(len(active))[initial]
            beliefs.append(state_distribution(record, number, one.transitions, active, start))
        return tuple(beliefs)
    if problem.n_states != task.n_states:
        raise ProblemError(f"the problem has arms of {problem.n_states} states, the agent of {task.n_states}")
    beliefs = []
    for number, arm in enumerate(problem.arms):
        if not isinstance(arm, Arm):
            raise ProblemError(f"arm {arm.name!r} is a table of distributions; a belief needs chains")
        chains = arm.chain, arm.active_chain, arm.initial_distribution
        beliefs.append(state_distribution(record, number, *chains))
    return tuple(beliefs)


def state_distribution(record: Record, arm: int, passive: Array, active: Array, start: Array | None = None) -> Array:
    """Return the distribution of the state of an arm in the coming slot.

    ``start`` is the distribution one step before slot 1, by default the stationary distribution of ``passive``.
    """
    n, present = int(record.n_states[arm]), record.slots + 1
    unseen = record.unseen.get(arm)
    state, slot, pulls = unseen or (int(record.last_state[arm]), int(record.last_slot[arm]), ())

    @cache
    def rest(slots: int) -> Array:
        return power(passive, slots)

    first, *later = *pulls, present
    if state > n:
        distribution = np.asarray(stationary(passive))
    elif state == n:
        distribution = (np.asarray(stationary(passive)) if start is None else start) @ rest(first - slot)
    elif slot == 0 or active is passive:
        distribution = rest(first)[state]
    else:
        distribution = active[state] @ rest(first - slot - 1)
    for pull, following in zip(pulls, later, strict=True):
        distribution = distribution @ active @ rest(following - pull - 1)
    return np.asarray(distribution)
