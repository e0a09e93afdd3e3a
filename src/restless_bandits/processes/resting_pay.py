"""The pay of slots without a pull, moved into the rewards of pulls.

Let f solve Poisson's equation of the resting chain P, r_rest − ρ + P f − f = 0, with ρ its long-run mean. Adding the
change of f over each slot to the slot's reward changes no gain, no index and no choice, because the sum of the changes
stays bounded. A slot without a pull then pays ρ in every state. A pull in state s pays

    r_pull(s) + (P_active f)(s) − f(s),

so the arm is equivalent to an arm that pays nothing at rest, up to the constant ρ in each slot (Puterman 1994, section
8.2). With a discount β, f = (1 − β P)⁻¹ r_rest does the same without a constant. Kernels therefore know only rewards
of pulls. The total pay of a rest is ρ times its slots, less the change of the mean of f.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.problem import Problem

UNIT = 2.0**-53
CONSTANT = 1e-12
"""A relative difference of long-run means that counts as none."""


class RestingPay(NamedTuple):
    """What an arm earns at rest: ``rate`` a slot in the long run, and ``potential``, the f of each state."""

    rate: float
    potential: Array
    error: float
    """A bound of what the pay of a slot at rest differs from ``rate`` after the change of f is added."""


def resting_pay(arm: AnyArm, discount: float | None = None) -> RestingPay:
    """Return the pay at rest of an arm whose resting chain has one long-run mean."""
    n = arm.n_states
    if arm.passive_rewards is None:
        return RestingPay(0.0, np.zeros(n), 0.0)
    chain, pay = arm.one_step, arm.passive_rewards
    beta = 1.0 if discount is None else discount
    if discount is None:
        means = arm.limiting_matrix @ pay
        if np.ptp(means) > CONSTANT * (1.0 + np.abs(pay).max()):
            raise ProblemError(
                f"arm {arm.name!r} pays at rest, and its transitions have several recurrent classes, so its pay in the "
                'long run depends on its state; give observed="all", or leave passive_rewards out'
            )
        rate = float(means.mean())
        potential = np.asarray(np.linalg.solve(np.eye(n) - chain + arm.limiting_matrix, pay - rate), dtype=np.float64)
    else:
        rate = 0.0
        potential = np.asarray(np.linalg.solve(np.eye(n) - discount * chain, pay), dtype=np.float64)
    left = pay - rate + beta * (chain @ potential) - potential
    size = float(np.abs(pay).max() + abs(rate) + 2.0 * np.abs(potential).max())
    return RestingPay(rate, potential, float(np.abs(left).max()) + (3 * n + 6) * UNIT * size)


def pays_nothing_at_rest(arm: AnyArm, discount: float | None = None) -> AnyArm:
    """Return the equivalent arm without pay at rest, but for the constant ``resting_pay(arm).rate``."""
    if arm.passive_rewards is None:
        return arm
    assert isinstance(arm, Arm)  # a table of distributions has no pay at rest
    pay = resting_pay(arm, discount)
    beta = 1.0 if discount is None else discount
    rewards = arm.rewards - pay.rate + beta * (arm.active_chain @ pay.potential) - pay.potential
    return Arm(
        arm.transitions,
        rewards,
        active_transitions=arm.active_transitions,
        setup_cost=arm.setup_cost,
        name=arm.name,
        initial=arm.initial_given,
        reward_law="fixed",
        reward_range=_around(rewards),
    )


def _around(rewards: Array) -> tuple[float, float]:
    low, high = float(rewards.min()), float(rewards.max())
    return (low, high) if high - low > 1e-9 * max(1.0, abs(low), abs(high)) else (low - 0.5, high + 0.5)


class WithoutRestingPay(NamedTuple):
    """A problem without pay at rest, and what to add to its gain for the gain of the problem it stands for."""

    problem: Problem
    rate: float
    error: float
    """A bound of the error of the gain."""


def without_resting_pay(problem: Problem) -> WithoutRestingPay:
    """Return the equivalent problem in which arms at rest pay nothing; the problem itself if they pay nothing."""
    if "passive_rewards" not in problem.features:
        return WithoutRestingPay(problem, 0.0, 0.0)
    pays = [resting_pay(arm) for arm in problem.arms]
    arms = [pays_nothing_at_rest(arm) for arm in problem.arms]
    rate = float(sum(pay.rate for pay in pays))
    largest = max(float(np.abs(arm.rewards).max()) + 2 * float(np.abs(pay.potential).max()) for arm, pay in zip(
        problem.arms, pays, strict=True
    ))  # fmt: skip
    terms = 3 * max(problem.n_states) + 6
    error = sum(pay.error for pay in pays) + problem.plays * terms * UNIT * (largest + abs(rate))
    error += len(pays) * UNIT * sum(abs(pay.rate) for pay in pays)
    same = Problem(
        arms, plays=problem.plays, name=problem.name, source=problem.source, findings=problem.findings,
        observed=problem.observed, at_most=problem.at_most,
    )  # fmt: skip
    return WithoutRestingPay(same, rate, error)
