"""The myopic policy: pull the arm with the largest expected reward now, and ignore the value of information."""

from __future__ import annotations

import time
from collections.abc import Sequence

from restless_bandits._internal.validation import Array
from restless_bandits.model.arms import AnyArm
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.bracket import bracketed
from restless_bandits.oracles.normalization import planning, solving
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.policies.policies import IndexPolicy
from restless_bandits.processes.beliefs import table_of, truncation_for, truncations_for

TABLE_TV_ERROR = 1e-10
"""The end of index tables: distributions are this close to their limits.

A smaller distance would do harm. A table continued until its numbers equal their limits in floating point would contain
ties, although the true order is strict for every τ. On paper-2 such ties make a myopic player appear to return to arm
1, which never happens. At the end of a table, differences of this size are still well above the tolerance for ties.
"""


def table_length(arm: AnyArm) -> int:
    """Return the number of columns of an arm's index table."""
    return truncation_for(arm, TABLE_TV_ERROR)


def table_lengths(arms: Sequence[AnyArm]) -> list[int]:
    """Return the ``table_length`` of each of many arms."""
    return truncations_for(arms, TABLE_TV_ERROR)


def index_distributions(arm: AnyArm, length: int) -> Array:
    """Return ``distributions[s, τ - 1]``, the distributions behind an index table: see ``table_of``."""
    return table_of(arm, length).distributions


@planning
def myopic_policy(problem: Problem) -> IndexPolicy:
    """Return the policy whose index is the mean reward of the next pull, less the mean pay of resting."""
    shares = problem.normalized()
    lengths = zip(shares.arms, table_lengths(shares.arms), strict=True)
    return IndexPolicy.of(problem, [table_of(arm, length).advantage for arm, length in lengths])


@solving
def myopic(problem: Problem) -> Solution:
    """Pull the arms of highest mean reward in this slot."""
    started = time.perf_counter()
    how = "highest mean reward of the next pull"
    how += ", less the mean pay of resting" if "passive_rewards" in problem.features else ""
    return bracketed(problem, "myopic", myopic_policy(problem), how, started)


ORACLE = Oracle("myopic", myopic, myopic_policy)
