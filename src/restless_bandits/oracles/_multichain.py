"""Exact solutions of problems whose optimum may depend on where they start."""

from __future__ import annotations

import time

import numpy as np

from restless_bandits.beliefs import cap_for, joint_beliefs
from restless_bandits.oracles._explicit import TooLargeError, chain_gain, explore, solve_multichain
from restless_bandits.oracles.bracket import bracketed
from restless_bandits.oracles.lagrangian import relaxation_bound
from restless_bandits.oracles.relaxation import lagrangian_policy
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Solution
from restless_bandits.policies import JointPolicy
from restless_bandits.problem import Problem

EXACT_DEVIATION = 1e-15
LONGEST = 4096
LARGEST_TABLE = 20_000_000
MULTICHAIN = (
    "multichain: an arm has several recurrent classes or a period, so the optimum may depend on the initial states"
)


def solve_from_start(problem: Problem, tolerance: float, started: float) -> Solution:
    """Solve a multichain problem from its initial states.

    Caps are taken where laws equal their limits to the last digits, so that capping adds no more than rounding does.
    """
    caps = [cap_for(arm, EXACT_DEVIATION, LONGEST) for arm in problem.arms]
    joint = joint_beliefs(problem, caps)
    try:
        # Laws that still move at the longest cap would add an error that nothing here accounts for.
        if joint.size > LARGEST_TABLE or max(arm.deviation.max() for arm in joint.arms) > 1e-12:
            raise TooLargeError
        explored = explore(joint)
    except TooLargeError:
        how = f"{MULTICHAIN}; too large to solve from there, so the bracket is that of the Lagrangian index"
        return bracketed(problem, "exact", lagrangian_policy(problem), how, started)
    answer = solve_multichain(explored, 0.1 * tolerance)
    place = joint.index(explored.beliefs)
    inside = place >= 0
    action = np.zeros(joint.size, dtype=np.int16)
    value = np.zeros(joint.size)
    action[place[inside]] = answer.action[inside]
    value[place[inside]] = answer.value[inside]
    policy = JointPolicy(joint, action, value)

    gain, error, _ = chain_gain(explore(joint, policy))
    slack = 1e-11
    lower, upper = gain - error - slack, max(answer.upper, gain) + slack
    upper = max(lower, min(upper, relaxation_bound(problem)))
    return Solution(
        problem=problem,
        oracle="exact",
        policy=policy,
        gain=gain,
        lower=lower,
        upper=upper,
        certified=upper - lower <= max(CERTIFIED_WIDTH, tolerance),
        how=f"{MULTICHAIN}; solved over {explored.size:,} joint beliefs with {answer.components} end components",
        seconds=time.perf_counter() - started,
        multichain=True,
        details={"beliefs": explored.size, "components": answer.components},
    )
