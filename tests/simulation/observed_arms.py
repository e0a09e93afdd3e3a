"""Problems of observed arms for tests, and a player that follows plans a slot at a time, in plain Python."""

import numpy as np

import restless_bandits as rb
from restless_bandits._internal.random_streams import plan_generator, world_generator, world_words
from restless_bandits.learning.learners.base import next_plan
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.oracles.observed.rollout import ObservedWorld
from restless_bandits.oracles.observed.rollout_kernels import step_pulled
from restless_bandits.policies.plans import ObservedRuleWatch


def drawn(n_arms=8, n_states=2, *, seed=3, plays=2, **options):
    rng = np.random.default_rng(seed)
    chains, rewards = rng.dirichlet(np.ones(n_states), (n_arms, n_states, 2)), rng.random((n_arms, n_states, 2))
    return rb.Problem.from_arrays(chains, rewards, plays=plays, **options)


def ragged():
    """Kinds of two and three states, some of several arms, with resting pay below zero."""
    rng = np.random.default_rng(5)
    arms = [
        rb.Arm(
            rng.dirichlet(np.ones(n), n),
            rng.random(n),
            active_transitions=rng.dirichlet(np.ones(n), n),
            passive_rewards=rng.random(n) - 0.5,
            reward_range=(-0.5, 1),
            reward_law="fixed",
            count=count,
        )
        for n, count in ((2, 1), (3, 2), (2, 3))
    ]
    return rb.Problem(arms, plays=2, observed="all")


def played_by_hand(learner, problem, slots, *, seed=0, run=0):
    """Return the record and the arms pulled in each slot, of a player that knows ``ObservedRecord`` alone."""
    task = learner.task(problem, slots)
    world, record, watch, path = ObservedWorld(problem), ObservedRecord.of(task), None, []
    words, sums = world_words(seed, problem.content, run), np.zeros(2)
    state = world.first_states(world_generator(seed, problem.content, run)).astype(np.uint16)
    begun = 0
    for slot in range(1, slots + 1):
        record.observe(state)
        if watch is None or watch.met(record):
            if watch is not None:
                record.plan_lengths.append(record.slots - begun)
            begun = record.slots
            rng = plan_generator(seed, problem.content, run, record.plans)
            plan = next_plan(learner, record, task, rng)
            watch = ObservedRuleWatch(plan.until, record)
        chosen = plan.policy.arms_in(slot, record.last_states)
        pulled = np.isin(np.arange(problem.n_arms), chosen)
        paid = world.reward[2 * (world.layout.first + record.last_states) + pulled]
        record.act(chosen)
        record.pay(paid)
        step_pulled(words, world.arms, world.draws, state, pulled, sums)
        path.append(chosen.tolist())
    record.observe(state)
    record.plan_lengths.append(record.slots - begun)
    return record, path
