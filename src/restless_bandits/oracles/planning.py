"""Plans for learners: as good as the moment needs, and no slower than it is worth.

A learner plans hundreds of times in a run, on problems that it knows only so well. Value iteration over joint beliefs
then need not prove anything: caps and tolerance follow the number of slots that were played, so that what a plan loses
over a stretch as long as the past is a fraction of a slot's reward. Everything hangs on the problem and on the slots
alone, never on an earlier plan, so that a run that was stored and read back goes on with the same plans.
"""

from __future__ import annotations

import numpy as np

from restless_bandits.beliefs import joint_beliefs
from restless_bandits.oracles._kernels import iterate_values
from restless_bandits.oracles.exact import STEP, joint_size, padded, resolution_caps
from restless_bandits.oracles.whittle import whittle_policy
from restless_bandits.policies import TIE, JointPolicy, Policy
from restless_bandits.problem import Problem

COARSEST, FINEST = 1e-3, 1e-6
"""Deviations of capped laws, and tolerances, at the start of a run and at the end of a long one."""
LOSS = 0.1
"""What a plan may lose over as many slots as were played."""
MOST_SWEEPS = 5_000
SMALL_TABLE = 4_000
"""Joint beliefs that are always worth a table."""
SLOTS_PER_BELIEF = 5
"""Beyond that, a table may have a joint belief for so many slots played: planning stays a part of the time."""
LARGEST_TABLE = 400_000


def joint_plan(problem: Problem, precision: float, *, most_beliefs: int | None = None) -> JointPolicy | None:
    """Return the policy of value iteration to a precision, or None where its table would be larger than allowed.

    ``precision`` is the span of the last update, and the total variation within which capped laws are told apart: the
    policy loses at most about that much a slot.
    """
    caps = resolution_caps(problem, precision)
    if most_beliefs is not None and joint_size(problem, caps) > most_beliefs:
        return None
    joint = joint_beliefs(problem, caps)
    values, improved = np.zeros(joint.size), np.empty(joint.size)
    action = np.zeros(joint.size, dtype=np.int16)
    iterate_values(values, improved, action, STEP, precision, MOST_SWEEPS, TIE, *padded(joint))
    return JointPolicy(joint, action, values)


def precision_at(slots: int) -> float:
    """Return the precision that is worth having after so many slots."""
    return float(min(COARSEST, max(FINEST, LOSS / max(slots, 1))))


def most_beliefs_at(slots: int) -> int:
    """Return how large a table of joint beliefs is worth its time after so many slots."""
    return int(min(LARGEST_TABLE, max(SMALL_TABLE, slots // SLOTS_PER_BELIEF)))


def exact_policy(problem: Problem, slots: int) -> Policy:
    """Plan over joint beliefs as precisely as is worth it after so many slots, however large the table."""
    found = joint_plan(problem, precision_at(slots))
    assert found is not None
    return found


def auto_policy(problem: Problem, slots: int | None = None) -> Policy:
    """Plan over joint beliefs while their table is small for the slots played, else by Whittle's index.

    Without ``slots`` as for a long run.
    """
    played = 10_000_000 if slots is None else slots
    if problem.n_arms == problem.plays:
        return whittle_policy(problem)
    return joint_plan(problem, precision_at(played), most_beliefs=most_beliefs_at(played)) or whittle_policy(problem)
