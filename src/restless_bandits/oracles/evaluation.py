"""What a policy, or fixed arms, earn in the long run, computed and not simulated: for that see ``solving``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.layout import Layout
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.reward_units import difference_of, gain_of
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.enclosure import UNIT, distribution_errors
from restless_bandits.oracles.explicit_chains import (
    MOST_BELIEFS,
    MOST_NUMBERED,
    ChainGain,
    TooLargeError,
    chain_gain,
    explore,
)
from restless_bandits.oracles.normalization import rounding_of
from restless_bandits.policies.policies import IndexPolicy, JointPolicy, Policy
from restless_bandits.processes.beliefs import JointBeliefs, has_lost_row, joint_beliefs, truncations_for
from restless_bandits.processes.resting_pay import without_resting_pay

EVALUATION_TV_ERROR = 1e-13


@dataclass(frozen=True)
class Evaluation:
    """The long-run reward a slot of a policy from the problem's initial states.

    ``error`` bounds how far ``gain`` may be off; ``classes`` counts the recurrent classes that the policy may end in,
    and ``beliefs`` the joint beliefs that it may meet. ``rounding`` bounds what comes on top of ``error``: with several
    classes only that of units, as ``error`` then holds all other rounding. The true gain is proved to lie within
    ``error + rounding`` of ``gain``.

    A gain that was simulated has a standard error, ``stderr``, and a confidence interval of 95 %, ``interval``; nothing
    bounds it, so its ``error`` is infinite, and classes and beliefs are not known. ``how`` says how it was got.
    """

    gain: float
    error: float
    classes: int | None
    beliefs: int | None
    rounding: float = 0.0
    stderr: float | None = None
    interval: tuple[float, float] | None = None
    how: str = "computed"


def evaluate(problem: AnyProblem, policy: Policy, *, most: int = MOST_BELIEFS) -> Evaluation:
    """Evaluate a policy exactly on a small problem.

    Follows the policy through every joint belief that it can reach and solves the chain that results. A policy of
    your own may be any ``Policy``; beyond the truncation of an arm it is asked at the truncation.
    Raises ``ProblemError`` where more than ``most`` joint beliefs can be reached.
    """
    problem = as_problem(problem)
    check_policy(problem, policy)
    problem.require_steady("the gain of a policy")
    refuse_unsupported(problem, "evaluate")
    if problem.observed == "all":
        raise ProblemError("all states are observed; simulate the policy: rb.evaluate(problem, policy, simulate=True)")
    reduced = without_resting_pay(problem)
    if reduced.problem is not problem:
        found = evaluate(reduced.problem, policy, most=most)
        gain = found.gain + reduced.rate
        rounding = found.rounding + reduced.error + 2 * UNIT * (abs(gain) + abs(reduced.rate))
        return replace(found, gain=gain, rounding=rounding)
    if problem.reward_range != ZERO_TO_ONE:
        found = evaluate(problem.normalized(), policy, most=most)
        error, rounding = (difference_of(problem, part) for part in (found.error, found.rounding))
        gain = gain_of(problem, found.gain)
        rounding += rounding_of(problem, gain) + 4 * UNIT * (error + rounding)
        return replace(found, gain=gain, error=error, rounding=rounding)
    truncations = truncations_for(problem.arms, EVALUATION_TV_ERROR)
    if isinstance(policy, IndexPolicy):
        truncations = [
            max(truncation, table.shape[1]) for truncation, table in zip(truncations, policy.tables, strict=True)
        ]
    elif isinstance(policy, JointPolicy):
        truncations = [
            max(truncation, arm.truncation) for truncation, arm in zip(truncations, policy.beliefs.arms, strict=True)
        ]
    try:
        if math.prod(problem.n_states) > MOST_NUMBERED:
            raise TooLargeError  # before any work
        earned, beliefs = follow(problem, joint_beliefs(problem, truncations, forget=False), policy, most)
    except TooLargeError:
        raise ProblemError(
            f"the policy can reach more than {most} joint beliefs, too many to evaluate exactly; simulate it: "
            "rb.evaluate(problem, policy, simulate=True)"
        ) from None
    return Evaluation(earned.gain, earned.error, earned.classes, beliefs, earned.rounding)


def check_policy(problem: Problem, policy: Policy) -> None:
    """Refuse what is no policy for a problem."""
    if not isinstance(policy, Policy):
        raise ProblemError(f"{policy!r} is not a policy; derive one from Policy or take an oracle's")
    # A set-up cost doubles the states of an observed arm.
    sizes = tuple(Layout.of(problem).sizes.tolist()) if problem.observed == "all" else problem.n_states
    if policy.n_states not in (None, sizes):
        raise ProblemError(
            f"the policy is for arms of {shortened(policy.n_states)} states, but the problem has {shortened(sizes)}"
        )
    plays = getattr(policy, "plays", problem.plays)
    if plays != problem.plays:
        raise ProblemError(f"the policy pulls {plays} arms a slot, but the problem has plays = {problem.plays}")


def follow(problem: Problem, joint: JointBeliefs, policy: Policy, most: int = MOST_BELIEFS) -> tuple[ChainGain, int]:
    """Return what a policy earns, and how many joint beliefs it may meet."""
    errors = distribution_errors(problem.arms, joint.arms)
    explored = explore(joint, policy, most, errors)
    found = chain_gain(explored)
    more = any((one.possible & (arm.distribution == 0)).any() for one, arm in zip(errors, joint.arms, strict=True))
    if more and (found.classes > 1 or not all(arm.is_ergodic and forgets_when_pulled(arm) for arm in problem.arms)):
        # Classes are proved only if they are closed in truth.
        found = chain_gain(explore(joint, policy, most, errors, every=True))
    return found, explored.size


def arm_average(arm: AnyArm) -> float:
    """Return the long-run reward of pulling an arm that pays nothing at rest in every slot, from its initial state."""
    if isinstance(arm, Arm) and has_lost_row(arm):
        return float(arm.initial_distribution @ arm.chain @ limit_when_pulled(arm) @ arm.rewards)
    start = arm.state_distributions(1)[1, arm.n_states if arm.initial is None else arm.initial]
    return float(start @ arm.limiting_matrix @ arm.rewards)


def limit_when_pulled(arm: AnyArm) -> Array:
    """Return the matrix whose row s is the long-run share of time in each state of an arm pulled in every slot."""
    return markov.limit_laws(arm.active_chain) if isinstance(arm, Arm) and arm.reacts else arm.limiting_matrix


def forgets_when_pulled(arm: AnyArm) -> bool:
    """Whether an arm pulled in every slot forgets its start: one recurrent class, without a period."""
    return markov.is_ergodic(arm.active_chain) if isinstance(arm, Arm) and arm.reacts else arm.is_ergodic


def best_arm_gain(problem: Problem) -> float:
    """Return what the best fixed arms earn a slot."""
    return sum(sorted((arm_average(arm) for arm in problem.arms), reverse=True)[: problem.plays])


def best_arm_rounding(problem: Problem) -> float:
    """Return a bound of what rounding puts ``best_arm_gain`` off by.

    Limits of chains come without a subtraction (see ``_enclosure``), so each average is within a share of itself. Where
    a chain has one class but states outside of it, what is computed of the way there is as good as its sum.
    """
    shares = []
    for arm in problem.arms:
        limit = limit_when_pulled(arm)
        lost = float(np.abs(limit.sum(axis=1) - 1.0).max()) if forgets_when_pulled(arm) else 0.0
        rows = float(np.abs(arm.state_distributions(1)[1].sum(axis=1) - 1.0).max())
        shares.append(40.0 * arm.n_states**3 * UNIT + 2.0 * arm.n_states * (lost + rows))
    return problem.plays * (max(shares) + problem.n_arms * UNIT)
