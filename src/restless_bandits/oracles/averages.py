"""What fixed arms earn in the long run."""

from __future__ import annotations

from restless_bandits.markov import limit_laws
from restless_bandits.problem import AnyArm, Problem


def arm_average(arm: AnyArm) -> float:
    """Return the long-run reward of pulling an arm in every slot, from its initial state."""
    start = arm.law_table(1)[1, arm.n_states if arm.initial is None else arm.initial]
    return float(start @ limit_laws(arm.one_step) @ arm.rewards)


def best_arm_gain(problem: Problem) -> float:
    """Return what the best fixed arms earn a slot."""
    return sum(sorted((arm_average(arm) for arm in problem.arms), reverse=True)[: problem.plays])
