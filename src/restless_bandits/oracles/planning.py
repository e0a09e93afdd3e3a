"""Plans for learners: as good as the moment needs, and no slower than it is worth.

A learner plans hundreds of times in a run, on problems that it knows only so well. Value iteration over joint beliefs
then need not prove anything: caps and tolerance follow the number of slots that were played, so that what a plan loses
over a stretch as long as the past is a fraction of a slot's reward. Everything hangs on the problem and on the slots
alone, never on an earlier plan, so that a run that was stored and read back goes on with the same plans.
"""

from __future__ import annotations

import numpy as np

from restless_bandits.beliefs import ArmBeliefs, JointBeliefs, arm_beliefs, cap_for, forgetting_beliefs
from restless_bandits.oracles._kernels import iterate_linked, iterate_values, link, settle
from restless_bandits.oracles.exact import STEP, exact, padded
from restless_bandits.oracles.whittle import index_by_homotopy, two_state_index, whittle_policy
from restless_bandits.policies import TIE, IndexPolicy, JointPolicy, Policy
from restless_bandits.problem import AnyArm, Arm, Problem

COARSEST, FINEST = 1e-3, 3e-6
"""Deviations of capped laws, and tolerances, at the start of a run and at the end of a long one."""
LOSS = 1.0
"""What a plan may lose over as many slots as were played."""
MOST_SWEEPS = 5_000
SMALL_TABLE = 4_000
"""Joint beliefs that are always worth a table."""
MEDIUM_TABLE = 20_000
"""Joint beliefs up to which a table may be as fine as is worth it; larger ones are coarse."""
SLOTS_PER_BELIEF = 5
"""Beyond that, a table may have a joint belief for so many slots played: planning stays a part of the time."""
LARGEST_TABLE = 400_000
LINKED_TABLE = 100_000
"""Joint beliefs up to which links fit into the caches."""
HUGE_TABLE = 20_000_000
LONGEST_CAP = 2_000
INDEX_DEVIATION, TWO_STATE_DEVIATION = 3e-3, 1e-9


def joint_plan(problem: Problem, precision: float, *, most_beliefs: int | None = None) -> JointPolicy | None:
    """Return the policy of value iteration to a precision, or None where its table would be larger than allowed.

    ``precision`` is the span of the last update, and the total variation within which capped laws are told apart: the
    policy loses at most about that much a slot.
    """
    arms = [_beliefs(arm, precision) for arm in problem.arms]
    size = JointBeliefs.count([arm.size for arm in arms], problem.n_states, problem.plays)
    if most_beliefs is not None and size > most_beliefs:
        return None
    joint = JointBeliefs(arms, problem.plays)
    values, improved = np.zeros(joint.size), np.empty(joint.size)
    action = np.zeros(joint.size, dtype=np.int16)
    arrays = padded(joint)
    if problem.plays == 1 and joint.size <= LINKED_TABLE:
        _, offsets, strides, radix, _, law, reward, _, passive, first, _, n_states = arrays
        links = link(offsets, strides, radix, passive, first)
        iterate_linked(
            values, improved, action, STEP, precision, MOST_SWEEPS, TIE, *links, strides, law, reward, n_states
        )
    else:
        iterate_values(values, improved, action, STEP, precision, MOST_SWEEPS, TIE, *arrays)
    return JointPolicy(joint, action, values)


def _beliefs(arm: AnyArm, deviation: float) -> ArmBeliefs:
    """The beliefs of an arm, capped where its laws are within a deviation of each other."""
    if isinstance(arm, Arm):
        laws, reached = settle(arm.chain, deviation, LONGEST_CAP)
        if reached <= deviation:
            # Most chains forget, and this is many times faster than finding out why.
            return forgetting_beliefs(laws[:-1], laws[-1].mean(axis=0), reached, arm)
    return arm_beliefs(arm, cap_for(arm, deviation))


def precision_at(slots: int) -> float:
    """Return the precision that is worth having after so many slots."""
    return float(min(COARSEST, max(FINEST, LOSS / max(slots, 1))))


def most_beliefs_at(slots: int) -> int:
    """Return how large a table of joint beliefs is worth its time after so many slots."""
    return int(min(LARGEST_TABLE, max(SMALL_TABLE, slots // SLOTS_PER_BELIEF)))


def exact_policy(problem: Problem, slots: int) -> Policy:
    """Plan over joint beliefs as precisely as is worth it after so many slots, or as memory allows."""
    return joint_plan(problem, precision_at(slots), most_beliefs=HUGE_TABLE) or exact(problem).policy


def auto_policy(problem: Problem, slots: int | None = None) -> Policy:
    """Plan over joint beliefs while their table is small for the slots played, else by Whittle's index.

    Without ``slots`` as for a long run.
    """
    played = 10_000_000 if slots is None else slots
    if problem.n_arms == problem.plays:
        return whittle_policy(problem)
    allowed = most_beliefs_at(played)
    fine = joint_plan(problem, precision_at(played), most_beliefs=min(allowed, MEDIUM_TABLE))
    return fine or joint_plan(problem, COARSEST, most_beliefs=allowed) or quick_whittle(problem)


def quick_whittle(problem: Problem) -> Policy:
    """Plan by Whittle's index on tables that end where laws are within ``INDEX_DEVIATION`` of each other.

    Two states take the closed form, on longer tables, for next to nothing. An arm that is not indexable keeps the first
    subsidy at which each belief turns passive.
    """
    tables = []
    for arm in problem.arms:
        two = arm.n_states == 2
        if not isinstance(arm, Arm):
            return whittle_policy(problem)
        laws, reached = settle(arm.chain, TWO_STATE_DEVIATION if two else INDEX_DEVIATION, LONGEST_CAP)
        if reached > INDEX_DEVIATION:
            return whittle_policy(problem)
        length = len(laws)
        tables.append(two_state_index(arm, length) if two else index_by_homotopy(arm, length, length).table)
    return IndexPolicy(tuple(tables), problem.plays)
