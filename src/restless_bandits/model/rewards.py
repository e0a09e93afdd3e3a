"""Rewards in the user's units: distributions, ranges, and normalized rewards.

A reward of an arm lies within the arm's range, ``low`` to ``high``, (0, 1) by default; costs have a range such as
(−500, 0). Confidence bounds and posteriors are defined for *shares*, ``(reward − low) / (high − low)``, between 0 and 1
in any unit, and their results are mapped back.

Oracles and learners plan on shares as well, but of a common range that contains the ranges of all arms. The common
scale leaves every choice unchanged and gains are mapped back. Tolerances, also for ties, mean the same in any unit.

The distributions, for the mean m of a state, with share p:

- ``bernoulli``: ``high`` with probability p, else ``low``;
- ``fixed``: m, always;
- ``bounded``: any number within the range, with unknown distribution. Learners play such arms; a simulator cannot draw;
- ``beta``: ``low`` plus the width times a beta variable of mean p. Its standard deviation is ``reward_spread`` times
  the largest possible on [0, 1] with this mean, √(p (1 − p)). The shape parameters are p ν and (1 − p) ν with ν =
  1/spread² − 1: near a spread of 1 the distribution is nearly ``bernoulli``, near 0 nearly ``fixed``. A mean at an end
  of the range is always paid.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, is_number

RewardLaw = Literal["bernoulli", "fixed", "bounded", "beta"]
REWARD_LAWS: tuple[RewardLaw, ...] = ("bernoulli", "fixed", "bounded", "beta")

Range = tuple[float, float]
ZERO_TO_ONE: Range = (0.0, 1.0)
LARGEST_REWARD = 1e15
NARROWEST = 1e-6
"""The least width of a range as a share of its larger end: sums of rewards lose their digits in narrower ranges."""


def checked_range(what: str, value: Any) -> Range:
    """Return the ends of a range of rewards as floats, or raise with the error of the range."""
    pair = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(map(is_number, pair)) or not pair[0] < pair[1]:
        raise ProblemError(
            f"{what} is {shortened(value)}; give the lowest and the highest reward, such as (0, 54) or (-500, 0)"
        )
    low, high = float(pair[0]) + 0.0, float(pair[1]) + 0.0
    if not max(abs(low), abs(high)) <= LARGEST_REWARD:
        raise ProblemError(
            f"{what} is {shortened(value)}; no end may be beyond {LARGEST_REWARD:g}, so take a larger unit"
        )
    if high - low < NARROWEST * max(abs(low), abs(high)):
        raise ProblemError(
            f"{what} is {shortened(value)}, too narrow for numbers of its size; subtract a constant from all rewards"
        )
    return low, high


def checked_spread(what: str, distribution: RewardLaw, value: Any) -> float | None:
    """Return the spread of a beta distribution, None for other distributions, or raise with the error of the spread."""
    if distribution != "beta":
        if value is not None:
            raise ProblemError(
                f"{what} is {shortened(value)}, but its reward_law is {distribution!r}; only 'beta' has a spread"
            )
        return None
    if not is_number(value) or not 0 < value < 1:
        raise ProblemError(
            f"{what} is {shortened(value)}; a beta distribution needs a standard deviation strictly between 0 and 1, "
            "as a share of the largest possible"
        )
    return float(value)


TAKEN_SPREAD = 0.5
"""The spread of the beta distribution that is taken where none is given."""


def chosen_law(
    label: str,
    means: Any,
    distribution: RewardLaw | None,
    ends: Any,
    spread: float | None,
    default: Range = ZERO_TO_ONE,
) -> tuple[RewardLaw, float | None]:
    """Return the distribution of rewards and its spread; one that is taken in place of a missing one is said.

    Without a distribution the range ``default`` means one of its two ends, as outcomes of zero or one do. Rewards at
    the two ends of the range are alike under all distributions. Invalid means are refused later.
    """
    if distribution is not None:
        return distribution, spread
    low, high = checked_range(f"{label}reward_range", ends)
    values = np.asarray(means)
    is_numeric = values.dtype.kind in "iuf"
    if (
        (low, high) == default
        or not is_numeric
        or np.isin(values, (low, high)).all()
        or outside(values, (low, high)).any()
    ):
        return "bernoulli", spread
    if spread is not None:
        return "beta", spread
    warnings.warn(
        f"{label}no reward_law is given, and with the range {low:.12g} to {high:.12g} a beta distribution of spread "
        f"{TAKEN_SPREAD:g} is taken; give reward_law 'beta', 'fixed' (always the mean), 'bernoulli' (one of the two "
        "ends) or 'bounded' (unknown, for learners)",
        RuntimeWarning,
        stacklevel=4,
    )
    return "beta", TAKEN_SPREAD


def rewards_or_costs(
    label: str, rewards: Any, costs: Any, reward_range: Any, cost_range: Any, passive_rewards: Any, passive_costs: Any
) -> tuple[Any, Any, Any]:
    """Return rewards, their range and the rewards without a pull, of which all may be given as costs."""
    if costs is None:
        given = "cost_range" if cost_range is not None else "passive_costs" if passive_costs is not None else None
        if given is not None:
            raise ProblemError(f"{label}{given} is given without costs; give costs, or the rewards' own keyword")
        if rewards is None:
            raise ProblemError(f"{label}rewards are missing; give mean rewards by state, or costs to be minimized")
        return rewards, ZERO_TO_ONE if reward_range is None else reward_range, passive_rewards
    for word, value in (("rewards", rewards), ("reward_range", reward_range), ("passive_rewards", passive_rewards)):
        if value is not None:
            remedy = {"rewards": "one of the two"}.get(word, word.replace("reward", "cost"))
            raise ProblemError(f"{label}costs and {word} are given; give {remedy} instead")
    ends = checked_range(f"{label}cost_range", ZERO_TO_ONE if cost_range is None else cost_range)
    means = _negative(costs)
    is_numeric = isinstance(means, np.ndarray) and means.size > 0 and means.dtype.kind in "iuf"
    if cost_range is None and is_numeric and outside(0.0 - means, ends).any():
        raise ProblemError(f"{label}costs lie beyond 0 to 1; give a cost_range, such as (0, {2 * np.max(costs):.12g})")
    return means, (0.0 - ends[1], 0.0 - ends[0]), _negative(passive_costs)


def _negative(costs: Any) -> Any:
    """Return rewards from costs; a value of another kind is returned, for the checks of rewards to refuse it."""
    if costs is None:
        return None
    try:
        return 0.0 - np.asarray(costs)
    except (TypeError, ValueError):
        return costs


def outside(values: Array, ends: Range) -> Any:
    """Whether values lie outside of a range."""
    return (values < ends[0]) | (values > ends[1])


def normalized_rewards(values: Array, ends: Range) -> Array:
    """Return rewards as shares of their range; rewards of (0, 1) unchanged."""
    if ends == ZERO_TO_ONE:
        return values
    low, high = ends
    return np.asarray(np.clip((values - low) / (high - low), 0.0, 1.0))


def values_of(normalized: Array, ends: Range) -> Array:
    """Return shares of a range as rewards: never beyond the ends, despite rounding."""
    if ends == ZERO_TO_ONE:
        return normalized
    low, high = ends
    return np.asarray(np.clip(low + (high - low) * normalized, low, high))


def common_range(ranges: Iterable[Range]) -> Range:
    """Return the smallest range that contains all ranges."""
    lows, highs = zip(*ranges, strict=True)
    return min(lows), max(highs)


def range_within(ends: Range, common: Range) -> Range:
    """Return a range as shares of a wider range."""
    if common == ZERO_TO_ONE:
        return ends
    low, width = common[0], common[1] - common[0]
    return (ends[0] - low) / width, (ends[1] - low) / width


def normalized_sums(sums: Array, counts: IntArray, low: Array | float, width: Array | float) -> Array:
    """Return sums of a number of rewards as sums of shares: each between 0 and its count."""
    return np.asarray(np.clip((sums - counts * low) / width, 0.0, counts))


def beta_shapes(normalized: Array, spread: float) -> tuple[Array, Array]:
    """Return the two shape parameters of the beta distributions with given means; one parameter is 0 for a mean at
    an end.
    """
    both = 1.0 / spread**2 - 1.0
    return normalized * both, (1.0 - normalized) * both


def draw_reward(
    distribution: RewardLaw, mean: float, ends: Range, spread: float | None, rng: np.random.Generator
) -> float:
    """Draw a reward of a state; ``bounded`` rewards cannot be drawn."""
    if distribution == "fixed":
        return mean
    low, high = ends
    share = mean if ends == ZERO_TO_ONE else (mean - low) / (high - low)
    if distribution == "bernoulli":
        return high if rng.random() < share else low
    if distribution == "bounded" or spread is None:
        raise ProblemError(
            "bounded rewards have no known distribution to draw from; give reward_law 'beta' and a reward_spread"
        )
    if share <= 0.0 or share >= 1.0:
        return mean
    first, second = beta_shapes(np.array(share), spread)
    return float(values_of(rng.beta(first, second), ends))
