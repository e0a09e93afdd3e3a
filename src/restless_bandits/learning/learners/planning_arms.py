"""Planning inputs of learners that plan on all arms at once: arms as arrays, started from the last observed states."""

from __future__ import annotations

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners.base import present_problem
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.oracles.index_kernels import FlatArms, birth_death_limits
from restless_bandits.oracles.planning import LONGEST_INDEX, plan_without_table, tables_fit
from restless_bandits.oracles.reacting_index_kernels import EXTRA_ROWS, ReactingArms, reacting_tables
from restless_bandits.policies.policies import IndexPolicy, Policy

REACTING_TV_ERROR = 1e-6
"""The deviation at which tables of arms that react end; the homotopy takes little of a plan's time."""


def present_arms(record: Record, chains: Array, rewards: Array) -> FlatArms:
    """Return arms with birth-death chains and mean rewards from concatenated arrays."""
    return FlatArms(record.n_states, chains, rewards, birth_death_limits(record.n_states, chains))


def policy_on(oracle: str, arms: FlatArms, record: Record, task: Task, lasting: int = 0) -> Policy:
    """Return an oracle's policy on some arms for the coming slots, ``lasting`` of them if known.

    A problem is constructed only on demand: for many arms the construction takes longer than planning.
    """
    slots = record.slots + 1
    quick = plan_without_table(arms, task.plays, slots, lasting) if oracle == "auto" else None
    if quick is not None:
        return quick
    problem = present_problem(record, task, arms.chain_list(), arms.reward_list())
    return oracles.policy(oracle, problem, slots=slots, lasting=lasting)


def reacting_arms(record: Record, task: Task, passive: Array, active: Array, rewards: Array) -> ReactingArms:
    """Return arms with given chains and mean rewards, and the pay at rest and set-up costs of a task."""
    resting = np.concatenate(task.passive_rewards) if task.passive_rewards else np.zeros(len(rewards))
    costs = np.array(task.setup_costs) if task.setup_costs else np.zeros(task.n_arms)
    return ReactingArms(record.n_states, passive, active, rewards, resting, costs)


def reacting_policy(oracle: str, arms: ReactingArms, record: Record, task: Task) -> Policy:
    """Return an oracle's policy on arms that react; ``auto`` is Whittle's index."""
    if oracle not in ("auto", "whittle"):
        return oracles.policy(oracle, _reacting_problem(arms, record, task))
    flat, lengths = reacting_tables(arms, REACTING_TV_ERROR, LONGEST_INDEX)
    rows = arms.n_states + EXTRA_ROWS
    ends = np.cumsum(rows * lengths)
    # The last row is for arms of which a pull without an observation is known.
    tables = tuple(
        flat[end - n * length : end].reshape(n, length)[: n - (not lost)]
        for end, n, length, lost in zip(
            ends.tolist(), rows.tolist(), lengths.tolist(), record.tracks_pulls, strict=True
        )
    )
    return IndexPolicy(tables, task.plays, lost_rows=tuple(record.tracks_pulls.tolist()))


def _reacting_problem(arms: ReactingArms, record: Record, task: Task) -> Problem:
    """Return a problem of arms that react, which start from their stationary distributions."""
    states, squares = np.cumsum(arms.n_states)[:-1], np.cumsum(arms.n_states**2)[:-1]
    drawn = []
    for i, n in enumerate(arms.n_states.tolist()):
        passive, active = (np.split(chains, squares)[i].reshape(n, n) for chains in (arms.passive, arms.active))
        drawn.append(
            Arm(
                passive,
                np.split(arms.rewards, states)[i],
                active_transitions=active if record.reacts[i] else None,
                passive_rewards=np.split(arms.resting, states)[i],
                setup_cost=float(arms.setup_costs[i]),
                name=task.names[i],
                reward_law="fixed",
                reward_range=task.reward_ranges[i],
            )
        )
    return Problem(drawn, plays=task.plays)


def lasting_policy(policy: Policy, oracle: str, arms: FlatArms, record: Record, task: Task, lasting: int) -> Policy:
    """Return a policy of ``policy_on`` unchanged, or a rough table if worthwhile for ``lasting`` slots."""
    index = oracle == "auto" and isinstance(policy, IndexPolicy)
    if not index or not tables_fit(arms, task.plays, record.slots + 1, lasting):
        return policy
    return policy_on(oracle, arms, record, task, lasting)
