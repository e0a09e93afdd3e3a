"""Planning inputs of learners that plan on all arms at once: arms as arrays, started from the last observed states."""

from __future__ import annotations

from restless_bandits import oracles
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners.base import present_problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.oracles.index_kernels import FlatArms, birth_death_limits
from restless_bandits.oracles.planning import plan_without_table, tables_fit
from restless_bandits.policies.policies import IndexPolicy, Policy


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


def lasting_policy(policy: Policy, oracle: str, arms: FlatArms, record: Record, task: Task, lasting: int) -> Policy:
    """Return a policy of ``policy_on`` unchanged, or a rough table if worthwhile for ``lasting`` slots."""
    index = oracle == "auto" and isinstance(policy, IndexPolicy)
    if not index or not tables_fit(arms, task.plays, record.slots + 1, lasting):
        return policy
    return policy_on(oracle, arms, record, task, lasting)
