"""The fractions of arms in each state, slot by slot: in a simulated run, and on the fluid path.

The fluid path is the limit of very many arms of each kind: a deterministic path of the fractions, on which a policy
pulls the same fraction of arms as in the run. The run stays near the path for a number of slots, the longer the more
arms there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import world_generator, world_words
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.model.layout import Layout
from restless_bandits.model.problem import AnyProblem, as_problem
from restless_bandits.oracles.observed import rollout_kernels as kernels
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.finite import fluid_priority
from restless_bandits.oracles.observed.fluid import priority_fill, stepped
from restless_bandits.oracles.observed.planners import observed_policy
from restless_bandits.oracles.observed.rollout import ObservedWorld
from restless_bandits.policies.finite_horizon import HorizonPolicy
from restless_bandits.policies.lookahead import LookaheadPolicy
from restless_bandits.policies.observed import CountedPolicy, ObservedPolicy, PriorityPolicy, RandomizedPolicy


@dataclass(frozen=True, eq=False)
class Occupancy:
    """The fraction of all arms in each state along slots from 1 on, under one policy."""

    policy: str
    n_arms: int
    simulated: Array
    """The fractions in a simulated run: (slot, state)."""
    fluid: Array | None
    """The fractions on the fluid path; None for a policy without such a path."""


def occupancy(
    problem: AnyProblem, oracle: str = "lp-index", slots: int = 100, *, state: int | None = None, seed: int = 0
) -> Occupancy:
    """Return the fractions of arms in each state over slots, simulated and on the fluid path.

    Parameters
    ----------
    problem
        A problem with ``observed="all"``, or its name or path.
    oracle
        The planner of the policy; ``fluid-priority`` plans for these slots.
    slots
        The number of slots.
    state
        The state of all arms in slot 1; by default the states are drawn from the arms' own distributions.
    seed
        The seed of the simulated run.

    """
    problem = as_problem(problem)
    if problem.observed != "all":
        raise ProblemError("occupancy follows the states of all arms; give a problem with observed = 'all'")
    slots = check_int("slots", slots, 1, 1_000_000)
    ends = oracle == "fluid-priority"
    policy: ObservedPolicy = fluid_priority(problem, slots) if ends else observed_policy(problem, oracle)
    world = ObservedWorld(problem)
    if state is not None:
        fewest = int(world.layout.n_states.min())
        state = check_int("state", state, 0, fewest - 1)
        world = ObservedWorld(problem, (_states(world.layout) == state).astype(np.float64))
    fluid = _fluid(world, policy, slots)
    return Occupancy(oracle, problem.n_arms, _simulated(world, policy, slots, seed), fluid)


def _states(layout: Layout) -> IntArray:
    """Return the state of each place."""
    return np.arange(layout.size) - np.repeat(layout.offset, layout.n_states)


def _simulated(world: ObservedWorld, policy: ObservedPolicy, slots: int, seed: int) -> Array:
    layout, content = world.layout, world.problem.content
    rng, words, sums = world_generator(seed, content, 0), world_words(seed, content, 0), np.zeros(2)
    none = np.zeros(0)
    draws = kernels.RewardDraws(np.zeros(0, dtype=np.int64), none, none, none, none)
    found = np.empty((slots, int(layout.n_states.max())))
    by_place = _states(layout)
    counted = isinstance(policy, CountedPolicy)
    numbers = world.first_numbers(rng) if counted else np.zeros(0, dtype=np.int64)
    state = np.zeros(0, dtype=np.uint16) if counted else world.first_states(rng).astype(np.uint16)
    for slot in range(slots):
        if not counted:
            numbers = layout.numbers(state.astype(np.int64))
        found[slot] = np.bincount(by_place, numbers, found.shape[1]) / layout.n_arms
        now = policy.at(slot + 1) if isinstance(policy, HorizonPolicy) else policy
        if isinstance(now, CountedPolicy):
            kernels.step_counts(rng, world.kinds, draws, numbers, now.pulls(numbers), sums)
            continue
        here, pulled = state.astype(np.int64), np.zeros(layout.n_arms, dtype=np.bool_)
        pulled[now.arms(here, rng) if isinstance(now, RandomizedPolicy) else now.arms(here)] = True
        kernels.step_pulled(words, world.arms, draws, state, pulled, sums)
    return found


def _fluid(world: ObservedWorld, policy: ObservedPolicy, slots: int) -> Array | None:
    if not isinstance(policy, PriorityPolicy | HorizonPolicy | LookaheadPolicy):
        return None
    layout, arms = world.layout, ObservedArms.of(world.problem)
    mass = (world.start * np.repeat(layout.counts, layout.n_states) / layout.n_arms)[None]
    found, by_place = np.empty((slots, int(layout.n_states.max()))), _states(layout)
    for slot in range(slots):
        found[slot] = np.bincount(by_place, mass[0], found.shape[1])
        if isinstance(policy, LookaheadPolicy):
            pulled = policy.pulled_mass(mass[0])[None]
        else:
            now = policy.at(slot + 1) if isinstance(policy, HorizonPolicy) else policy
            pulled = priority_fill(mass, now.allowed, arms.plays / arms.n_arms)
        mass = stepped(arms, mass, pulled)
    return found
