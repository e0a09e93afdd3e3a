"""Normalized rewards: oracles work on shares of a common reward range, and solutions are converted back.

An affine map of all rewards leaves every choice unchanged, and maps gains alike. So tolerances, ties and certificates
have the same meaning in any unit: the tolerance of ``exact``, for example, is a share of the range. Policies stay
normalized. A problem whose rewards have the range (0, 1) is not changed.

*Rounding.* Rewards r become shares (r − low)/(high − low) by two subtractions and a division. Every share is therefore
within 3u of the true share, u the unit roundoff, and a gain of all plays within 3u for each play. ``SHARE_ROUNDING`` is
a third more, for terms of second order. The conversion back uses rational numbers and rounds outward, so that an end of
a bracket stays an end: a range such as (1e9, 1e9 + 1) has units of 1e-7 in its last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.reward_units import difference_of, gain_of
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Solution
from restless_bandits.processes.resting_pay import UNIT, WithoutRestingPay, without_resting_pay

SHARE_ROUNDING = 4 * 2.0**-53
"""A bound of what rounding puts a reward off by, as a share."""


Options = ParamSpec("Options")


Planned = TypeVar("Planned")


def lower_of(problem: Problem, share: float) -> float:
    """Return a lower end in shares as a lower end in the units of a problem."""
    return _outward(problem, share, -1)


def upper_of(problem: Problem, share: float) -> float:
    """Return an upper end in shares as an upper end in the units of a problem."""
    return _outward(problem, share, 1)


def _outward(problem: Problem, share: float, side: int) -> float:
    if problem.reward_range == ZERO_TO_ONE or not math.isfinite(share):
        return share
    low, high = map(Fraction, problem.reward_range)
    paying = problem.paying_arms
    true = paying * low + (high - low) * (Fraction(share) + side * paying * Fraction(SHARE_ROUNDING))
    if not problem.features:
        # Rewards lie within their range, so gains do.
        true = max(paying * low, min(true, paying * high))
    near = float(true)
    return near if (Fraction(near) - true) * side >= 0 else math.nextafter(near, side * math.inf)


def rounding_of(problem: Problem, gain: float) -> float:
    """Return a bound of the error of converting a gain to the units of a problem, or back, in these units."""
    if problem.reward_range == ZERO_TO_ONE:
        return 0.0
    low, high = problem.reward_range
    largest = max(abs(gain), problem.paying_arms * max(abs(low), abs(high), high - low))
    return 2 * problem.paying_arms * (high - low) * SHARE_ROUNDING + largest * SHARE_ROUNDING


def normalized(
    plan: Callable[Concatenate[Problem, Options], Planned],
) -> Callable[Concatenate[AnyProblem, Options], Planned]:
    """Decorate a planning function to work on normalized rewards of pulls; its answer stays normalized."""

    @wraps(plan)
    def planned(problem: Problem, /, *args: Options.args, **options: Options.kwargs) -> Planned:
        return plan(without_resting_pay(problem).problem.normalized(), *args, **options)

    return planning(planned)


def planning(
    plan: Callable[Concatenate[Problem, Options], Planned],
) -> Callable[Concatenate[AnyProblem, Options], Planned]:
    """Decorate a planning function for arms seen when pulled, in the units of the problem; others are passed on."""

    @wraps(plan)
    def planned(given: AnyProblem, /, *args: Options.args, **options: Options.kwargs) -> Planned:
        problem = as_problem(given)
        problem.require_steady("an oracle")
        refuse_unsupported(problem, entry_of(plan))
        if problem.observed == "all":
            from restless_bandits.oracles.observed.planners import observed_policy

            return cast(Planned, observed_policy(problem, entry_of(plan)))
        return plan(problem, *args, **options)

    return planned


def solved_normalized(
    solve: Callable[Concatenate[Problem, Options], Solution],
) -> Callable[Concatenate[AnyProblem, Options], Solution]:
    """Decorate a solver to work on normalized rewards of pulls, with its answer in the units of the problem."""

    @wraps(solve)
    def solved(problem: Problem, /, *args: Options.args, **options: Options.kwargs) -> Solution:
        reduced = without_resting_pay(problem)
        return as_stated(problem, reduced, solve(reduced.problem.normalized(), *args, **options))

    return solving(solved)


def as_stated(
    problem: Problem, reduced: WithoutRestingPay, found: Solution, tolerance: float = CERTIFIED_WIDTH
) -> Solution:
    """Return a solution of ``reduced.problem.normalized()`` as a solution of the problem."""
    if reduced.problem is problem:
        return in_units(problem, found)
    moved = replace(in_units(reduced.problem, found), how=f"{found.how}; pay at rest moved into the rewards of pulls")
    return with_resting_pay(problem, reduced, moved, tolerance)


def solving(
    solve: Callable[Concatenate[Problem, Options], Solution],
) -> Callable[Concatenate[AnyProblem, Options], Solution]:
    """Decorate a solver for arms seen when pulled, in the units of the problem; other problems are passed on."""

    @wraps(solve)
    def solved(given: AnyProblem, /, *args: Options.args, **options: Options.kwargs) -> Solution:
        problem = as_problem(given)
        problem.require_steady("an oracle")
        refuse_unsupported(problem, entry_of(solve))
        if problem.observed == "all":
            from restless_bandits.oracles.observed.planners import solve_observed

            return cast(Solution, cast(Any, solve_observed)(problem, entry_of(solve), *args, **options))
        return solve(problem, *args, **options)

    return solved


def entry_of(function: Callable[..., Any]) -> str:
    """Return the name of an oracle's module in the table of ``support``."""
    return function.__module__.rpartition(".")[2].replace("_", "-")


def with_resting_pay(
    problem: Problem, reduced: WithoutRestingPay, found: Solution, tolerance: float = CERTIFIED_WIDTH
) -> Solution:
    """Return a solution of ``without_resting_pay(problem)`` as a solution of the problem.

    The rewards of the former may have a much wider range. A certificate is for ``tolerance`` as a share of the range
    of the problem.
    """
    if reduced.problem is problem:
        return found
    lower, upper = found.lower + reduced.rate, found.upper + reduced.rate
    wider = reduced.error + 2 * UNIT * (max(abs(lower), abs(upper)) + abs(reduced.rate))
    lower, upper = math.nextafter(lower - wider, -math.inf), math.nextafter(upper + wider, math.inf)
    gain = None if found.gain is None else found.gain + reduced.rate
    least = lower if gain is None else min(lower, gain)
    certified = found.certified and upper - least <= difference_of(problem, tolerance)
    return replace(found, problem=problem, gain=gain, lower=lower, upper=upper, certified=certified, ratio=None)


def policy_units(problem: Problem) -> float:
    """Return the unit, in those of a problem, of the rewards and biases of its normalized policies."""
    return difference_of(without_resting_pay(problem).problem, 1.0)


def in_units(problem: Problem, found: Solution) -> Solution:
    """Return a solution of ``problem.normalized()`` as a solution of the problem."""
    if problem.reward_range == ZERO_TO_ONE:
        return found
    low, high = problem.reward_range
    changed: dict[str, Any] = {"lower": lower_of(problem, found.lower), "upper": upper_of(problem, found.upper)}
    if found.gain is not None:
        changed["gain"] = gain_of(problem, found.gain)
    if found.gain_stderr is not None:
        changed["gain_stderr"] = difference_of(problem, found.gain_stderr)
    # A ratio to μ* is the same in any unit, but depends on the zero of the scale.
    changed["ratio"] = found.ratio if low == 0.0 else None
    changed["how"] = f"{found.how}; on shares of the rewards' range from {low:.12g} to {high:.12g}"
    return replace(found, problem=problem, **changed)
