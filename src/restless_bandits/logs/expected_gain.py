"""The expected gain over the best fixed arm, by a fitted problem, with its uncertainty given the log.

The policy is Whittle's for the fitted problem, made once. The policy and the best arm of the fit play problems that
explain the log equally well (``redraws``). Both are held fixed, as in later use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.random_streams import check_generator
from restless_bandits._internal.validation import Array, check_int
from restless_bandits.logs.fitting import Fit
from restless_bandits.logs.model_values import CONFIDENCE, MOST_DRAWS, REDRAW
from restless_bandits.logs.offpolicy import followed
from restless_bandits.logs.posterior_problems import posterior_problems
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.evaluation import arm_average
from restless_bandits.simulation.engine import World

DRAWS, FEWEST_DRAWS = 50, 10
MOST_CHAINS = 2000
"""The largest default number of drawn chains, unless the least number of draws needs more."""


@dataclass(frozen=True, eq=False)
class ExpectedGain:
    """Rewards a slot in problems that explain the log: of a policy, and of the best arm of the fit."""

    best_arm: str
    policy: Array
    fixed: Array
    bound: float
    """An upper bound of any player's gain on the fitted problem."""

    @property
    def above(self) -> Array:
        """The gain of the policy over the arm."""
        return np.asarray(self.policy - self.fixed)

    def as_dict(self) -> dict[str, Any]:
        return {"best_arm": self.best_arm, "draws": len(self.policy), "bound": self.bound} | {
            name: {"mean": float(drawn.mean()), "interval": interval(drawn)}
            for name, drawn in (("policy", self.policy), ("fixed", self.fixed), ("above", self.above))
        }


def interval(drawn: Array) -> tuple[float, float]:
    """Return the ends of the central interval with a share of ``CONFIDENCE`` of the draws."""
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def expected_gain(found: Fit, *, draws: int | None = None, seed: int = 0) -> ExpectedGain | None:
    """Return the expected gain of a player; None for a single arm.

    The default is 50 draws, and fewer for more than 40 arms.
    """
    problem = found.problem
    if problem.n_arms == 1:
        return None
    if draws is None:
        draws = max(FEWEST_DRAWS, min(DRAWS, MOST_CHAINS // problem.n_arms))
    draws, seed = check_int("draws", draws, FEWEST_DRAWS, MOST_DRAWS), check_int("seed", seed, 0)
    number, name = best_fixed(problem)
    policy = oracles.policy("whittle", problem)
    drawn = posterior_problems(found, draws, check_generator(seed, found.trace.content, REDRAW))
    fixed = np.array([arm_average(one.arms[number]) for one in drawn])
    bound = oracles.relaxation(problem).upper
    return ExpectedGain(name, followed(policy, [World(one) for one in drawn], seed), fixed, bound)


def best_fixed(problem: Problem) -> tuple[int, str]:
    """Return the number and the name of the best fixed arm."""
    number = int(np.argmax([arm_average(arm) for arm in problem.arms]))
    return number, problem.arms[number].name
