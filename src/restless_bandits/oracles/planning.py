"""Plans for learners: as precise as the moment needs, and no slower than their gain justifies.

A learner plans hundreds of times in a run, on problems known only approximately. Value iteration over joint beliefs
need not prove anything then. Truncations and tolerance follow the number of slots played: over a stretch as long as the
past, a plan loses a fraction of a slot's reward. All choices depend on the problem and the slots alone, never on an
earlier plan. A run that was stored and read back therefore continues with the same plans.

A coarse table can be too large for any run. A *rough* table may then serve: the table ends after so few slots that the
last seen state still matters, and holds its final distribution from there on. The loss of a rough table is not bounded,
and may exceed the loss of Whittle's index. Both are therefore simulated on the problem in a rollout, and a rough table
that falls behind is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.chain_powers import converged_powers
from restless_bandits.model.problem import Problem
from restless_bandits.oracles import joint_kernels as kernels
from restless_bandits.oracles.exact import exact
from restless_bandits.oracles.index_kernels import FlatArms, settled_lengths
from restless_bandits.oracles.normalization import normalized
from restless_bandits.oracles.observed.planners import observed_policy
from restless_bandits.oracles.solution import Oracle
from restless_bandits.oracles.whittle import flat_arms, index_tables, whittle_policy
from restless_bandits.policies.choice_kernels import choices_of
from restless_bandits.policies.policies import IndexPolicy, JointPolicy, Policy
from restless_bandits.processes.beliefs import (
    HiddenProcess,
    JointBeliefs,
    forgetting_beliefs,
    has_lost_row,
    hidden_process,
    remembering_beliefs,
    side_by_side,
    truncation_for,
)

COARSEST, FINEST = 1e-3, 3e-6
"""Deviations of truncated distributions, and tolerances, at the start of a run and at the end of a long run."""
LOSS = 1.0
"""The accepted loss of a plan over as many slots as were played."""
MOST_SWEEPS = 5_000
SMALL_TABLE = 4_000
"""A number of joint beliefs that is always worth a table."""
MEDIUM_TABLE = 20_000
"""Joint beliefs up to which a table may be as fine as worthwhile; larger tables are coarse."""
SLOTS_PER_BELIEF = 5
"""Played slots per joint belief of a larger table: planning stays a part of the time."""
BELIEFS_PER_LASTING_SLOT = 10
"""Joint beliefs per slot of the plan's length, if the length is known."""
LARGEST_TABLE = 400_000
LINKED_TABLE = 1_000_000
"""Joint beliefs up to which links are worth their memory."""
HUGE_TABLE = 20_000_000
MOST_TABLE_ARMS = 10
"""Arms beyond which no table over joint beliefs is tried: with three beliefs for each arm, no table would fit."""
LONGEST_PLANNING_TRUNCATION = 2_000
PLANNING_INDEX_TV_ERROR, TWO_STATE_TV_ERROR = 3e-3, 1e-9
LONGEST_INDEX = 300
"""Elapsed slots of a homotopy: the time grows with their square, and takes some hundredths of a second here."""
ROUGH_TV_ERRORS = (0.05, 0.1, 0.2)
"""Deviations at which rough tables end."""
BELIEFS_PER_SLOT = 60
"""Joint beliefs of a rough table per slot of the plan's length."""
LARGEST_ROUGH_TABLE = 600_000
ROLLOUT, SHORTEST_ROLLOUT = 10, 30_000
"""Slots of a rollout: a number for every slot of the winner's plan, and never fewer than the second value."""
BATCHES = 32


@normalized
def joint_plan(problem: Problem, precision: float, *, most_beliefs: int | None = None) -> JointPolicy | None:
    """Return the policy of value iteration to a precision, or None if the table would be larger than allowed.

    ``precision`` is the span of the last update, and the total variation within which truncated distributions are
    distinguished. The policy loses at most about ``precision`` a slot.
    """
    arms = [_beliefs(arm, precision) for arm in problem.arms]
    if most_beliefs is not None and _table_size(arms, problem.plays) > most_beliefs:
        return None
    return iterated(arms, problem.plays, precision)[0]


def _table_size(arms: Sequence[HiddenProcess], plays: int) -> int:
    return JointBeliefs.count([arm.size for arm in arms], [arm.n_states for arm in arms], plays)


def iterated(
    arms: Sequence[HiddenProcess], plays: int, tolerance: float, *, linked: bool = True
) -> tuple[JointPolicy, float]:
    """Return the policy of value iteration over joint beliefs until the span of an update is within the tolerance.

    Returns the span as well, which is larger after ``MOST_SWEEPS`` without convergence. With one play, links are made
    first, unless the table is large or links are unwanted. For slowly forgetting arms, whose tables have long rows,
    sweeps without links are as fast.
    """
    joint = JointBeliefs(arms, plays)
    iterate = kernels.Iterate(np.zeros(joint.size), np.empty(joint.size), np.zeros(joint.size, dtype=np.int16))
    links = kernels.link(joint.table) if linked and plays == 1 and joint.size <= LINKED_TABLE else kernels.NO_LINKS
    span = kernels.iterate_values(iterate, tolerance, MOST_SWEEPS, links, joint.table, joint.distributions)
    return JointPolicy(joint, iterate.action, iterate.values), span


def _beliefs(arm: AnyArm, tv_error: float) -> HiddenProcess:
    if isinstance(arm, Arm) and not has_lost_row(arm):
        distributions, reached = converged_powers(arm.chain.copy(), tv_error, LONGEST_PLANNING_TRUNCATION)
        if reached <= tv_error:
            # Most chains forget, and the check is many times faster than a search for the reason.
            return forgetting_beliefs(
                distributions[:-1], distributions[-1].mean(axis=0), arm.rewards, arm.initial, reached
            )
    return hidden_process(arm, truncation_for(arm, tv_error))


def precision_at(slots: int) -> float:
    """Return the precision that is worth its time after so many slots."""
    return float(min(COARSEST, max(FINEST, LOSS / max(slots, 1))))


def most_beliefs_at(slots: int, lasting: int = 0) -> int:
    """Return the largest worthwhile table of joint beliefs after so many slots, for ``lasting`` more."""
    worth = max(SMALL_TABLE, slots // SLOTS_PER_BELIEF, BELIEFS_PER_LASTING_SLOT * lasting)
    return int(min(LARGEST_TABLE, worth))


@normalized
def exact_policy(problem: Problem, slots: int, lasting: int = 0) -> Policy:
    """Plan over joint beliefs as precisely as worthwhile after so many slots, or as memory allows.

    The precision ignores the number of slots that will follow the plan: the exact oracle trades nothing.
    """
    return joint_plan(problem, precision_at(slots), most_beliefs=HUGE_TABLE) or exact(problem).policy


def auto_policy(problem: Problem, slots: int | None = None, lasting: int = 0) -> Policy:
    """Return the plan of a learner, or of observed arms the policy that ``auto`` chooses."""
    if problem.observed == "all":
        return observed_policy(problem, "auto")
    return _belief_policy(problem, slots, lasting)


@normalized
def _belief_policy(problem: Problem, slots: int | None, lasting: int) -> Policy:
    """Plan over joint beliefs while the table is small for the slots played, else by Whittle's index.

    Without ``slots`` the choice is the choice of a long run. A plan that will be followed for ``lasting`` slots may
    have a larger table. If no other table will ever be small enough, the plan may have a rough table.
    """
    played = 10_000_000 if slots is None else slots
    if problem.n_arms == problem.plays:
        return whittle_policy(problem)
    if problem.n_arms > MOST_TABLE_ARMS:
        return quick_whittle(problem)
    allowed = most_beliefs_at(played, lasting)
    fine = joint_plan(problem, precision_at(played), most_beliefs=min(allowed, MEDIUM_TABLE))
    if fine is not None:
        return fine
    coarse = [_beliefs(arm, COARSEST) for arm in problem.arms]
    size = _table_size(coarse, problem.plays)
    if size <= allowed:
        return iterated(coarse, problem.plays, COARSEST)[0]
    rough = rough_policy(problem, lasting) if size > LARGEST_TABLE else None
    return rough or quick_whittle(problem)


def rough_policy(problem: Problem, lasting: int) -> Policy | None:
    """Return the better of a rough table and Whittle's index; None if no table is small enough for ``lasting``."""
    chains = [arm for arm in problem.arms if isinstance(arm, Arm) and not has_lost_row(arm)]
    if problem.plays > 1 or len(chains) < problem.n_arms:
        return None
    for tv_error in ROUGH_TV_ERRORS:
        settled = [converged_powers(arm.chain.copy(), tv_error, LONGEST_PLANNING_TRUNCATION) for arm in chains]
        if all(reached <= tv_error for _, reached in settled):
            arms = [
                remembering_beliefs(distributions, arm) for (distributions, _), arm in zip(settled, chains, strict=True)
            ]
            if _table_size(arms, 1) <= min(LARGEST_ROUGH_TABLE, BELIEFS_PER_SLOT * lasting):
                rough, whittle = iterated(arms, 1, COARSEST)[0], quick_whittle(problem)
                ours, theirs = rollouts(problem, rough, whittle, max(SHORTEST_ROLLOUT, ROLLOUT * lasting))
                standard_error = np.sqrt((ours.var() + theirs.var()) / (BATCHES - 1))
                return whittle if theirs.mean() - ours.mean() > 2 * standard_error else rough
    return None


def rollouts(problem: Problem, table: JointPolicy, index: IndexPolicy, slots: int) -> tuple[Array, Array]:
    """Return simulated rewards a slot of a table over joint beliefs and of indices, in batches of ``slots`` in all."""
    chains = [arm.chain.copy() for arm in problem.arms if isinstance(arm, Arm)]
    settled = [converged_powers(chain, PLANNING_INDEX_TV_ERROR, LONGEST_PLANNING_TRUNCATION)[0] for chain in chains]
    sums = [np.cumsum(distributions, axis=2) for distributions in settled]
    for running in sums:
        # Exactly 1, without a rounding error: the search for a sampled state ends here.
        running[:, :, -1] = 1.0
    rewards = side_by_side(
        [distributions @ arm.rewards for distributions, arm in zip(settled, problem.arms, strict=True)]
    )
    arms = kernels.RolloutArms(np.array([len(distributions) for distributions in settled]), side_by_side(sums), rewards)
    draws = np.random.default_rng(0).random((BATCHES, -(-slots // BATCHES)))
    ours, theirs = (kernels.rollout(draws, arms, choices_of(policy, "a rollout")) for policy in (table, index))
    return ours, theirs


@normalized
def quick_whittle(problem: Problem) -> IndexPolicy:
    """Plan by Whittle's index on short tables: see ``index_plan``. Arms that do not forget need long tables."""
    chains = [arm for arm in problem.arms if isinstance(arm, Arm) and arm.is_ergodic and not has_lost_row(arm)]
    if len(chains) < problem.n_arms:
        return whittle_policy(problem)
    return index_plan(flat_arms(chains), problem.plays) or whittle_policy(problem)


def index_plan(arms: FlatArms, plays: int) -> IndexPolicy | None:
    """Plan by Whittle's index on tables that end when distributions agree within ``PLANNING_INDEX_TV_ERROR``.

    Two states use the closed form on longer tables, at almost no cost. The table of another slowly forgetting arm ends
    after ``LONGEST_INDEX`` slots; an example is an arm under optimism whose best state is seldom seen. None if the
    systems behind an index are singular.
    """
    lengths = settled_lengths(arms, PLANNING_INDEX_TV_ERROR, TWO_STATE_TV_ERROR, LONGEST_PLANNING_TRUNCATION)
    lengths = np.where(arms.n_states == 2, lengths, np.minimum(lengths, LONGEST_INDEX))
    tables = index_tables(arms, lengths)
    return None if tables is None else IndexPolicy(tables, plays)


def plan_without_table(arms: FlatArms, plays: int, slots: int, lasting: int) -> IndexPolicy | None:
    """Return the plan of ``auto_policy`` if a table over joint beliefs would be too large; None if a table may do.

    The function takes arrays, because making a problem of many arms takes longer than planning.
    """
    return None if tables_fit(arms, plays, slots, lasting) else index_plan(arms, plays)


def tables_fit(arms: FlatArms, plays: int, slots: int, lasting: int) -> bool:
    """Return whether ``auto_policy`` may use a table over joint beliefs."""
    if len(arms.n_states) > MOST_TABLE_ARMS:
        return False
    states = arms.n_states.tolist()

    def size(tv_error: float) -> int:
        """The least size of a table whose distributions agree within a deviation."""
        truncations = settled_lengths(arms, tv_error, tv_error, LONGEST_PLANNING_TRUNCATION)
        return JointBeliefs.count((arms.n_states * (truncations - 1) + 1).tolist(), states, plays)

    coarse = size(COARSEST)
    if coarse <= most_beliefs_at(slots, lasting) or len(states) == plays:
        return True
    return coarse > LARGEST_TABLE and size(ROUGH_TV_ERRORS[-1]) <= min(LARGEST_ROUGH_TABLE, BELIEFS_PER_SLOT * lasting)


EXACT = Oracle("exact", exact, lambda problem: exact(problem).policy, exact_policy)
