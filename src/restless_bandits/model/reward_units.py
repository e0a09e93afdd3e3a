"""Gains in the units of a problem and as shares of its reward range."""

from __future__ import annotations

from restless_bandits.model.problem import Problem
from restless_bandits.model.rewards import ZERO_TO_ONE


def gain_of(problem: Problem, share: float) -> float:
    """Return a normalized gain of all plays together, in the units of the problem."""
    low, high = problem.reward_range
    return share if problem.reward_range == ZERO_TO_ONE else problem.paying_arms * low + (high - low) * share


def share_of(problem: Problem, gain: float) -> float:
    """Return a gain as a normalized gain."""
    low, high = problem.reward_range
    return gain if problem.reward_range == ZERO_TO_ONE else (gain - problem.paying_arms * low) / (high - low)


def difference_of(problem: Problem, share: float) -> float:
    """Return a normalized difference of gains in the units of the problem."""
    low, high = problem.reward_range
    return share if problem.reward_range == ZERO_TO_ONE else (high - low) * share
