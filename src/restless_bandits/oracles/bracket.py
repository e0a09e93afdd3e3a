"""The bracket of μ* around a policy without a proof, and the consistency check of the two ends of a bracket."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from restless_bandits._internal.errors import ProblemError
from restless_bandits.model.problem import Problem
from restless_bandits.model.reward_units import difference_of, share_of
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.oracles.enclosure import UNIT
from restless_bandits.oracles.evaluation import best_arm_gain, best_arm_rounding, evaluate
from restless_bandits.oracles.lagrangian import Relaxation, relax
from restless_bandits.oracles.normalization import in_units, rounding_of, with_resting_pay
from restless_bandits.oracles.observed.planners import bracketed_observed
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Solution
from restless_bandits.policies.observed import ObservedPolicy
from restless_bandits.policies.policies import Policy
from restless_bandits.processes.resting_pay import without_resting_pay

MOST_EVALUATED = 60_000
"""The largest number of joint beliefs for an evaluation of the policy by default: about a second."""


class ContradictionError(RuntimeError):
    """Two bounds of a number that exclude each other: one of the two computations has a defect."""


class End(NamedTuple):
    """A computed end of a bracket, and a bound of its rounding."""

    value: float
    rounding: float = 0.0

    @property
    def below(self) -> float:
        """The largest double proved to be at most the end: a proved lower end."""
        return math.nextafter(self.value - self.rounding, -math.inf) if self.rounding else self.value

    @property
    def above(self) -> float:
        """The least double proved to be at least the end: a proved upper end."""
        return math.nextafter(self.value + self.rounding, math.inf) if self.rounding else self.value


def bracket(problem: Problem, oracle: str, lower: End, upper: End) -> tuple[float, float]:
    """Return the two ends, each moved outward by its own rounding."""
    if lower.below <= upper.above:
        return lower.below, upper.above
    raise ContradictionError(
        f"{oracle} on {problem}: μ* would be at least {lower.value!r} and at most {upper.value!r}, which rounding does "
        f"not explain ({lower.rounding:.1e} and {upper.rounding:.1e}); one of the two is wrong, so please report the "
        "problem, or mend the oracle if it is yours"
    )


def highest(*ends: End) -> End:
    """Return the highest of some proved lower ends."""
    return max(ends, key=lambda end: end.below)


def lowest(*ends: End) -> End:
    """Return the lowest of some proved upper ends."""
    return min(ends, key=lambda end: end.above)


def fixed_arms(problem: Problem) -> End:
    """Return the gain of the best fixed arms, as a lower end."""
    return End(best_arm_gain(problem), best_arm_rounding(problem))


def relaxed(problem: Problem, found: Relaxation | None = None) -> End:
    """Return the bound of the relaxation, as an upper end."""
    found = relax(problem) if found is None else found
    return lowest(End(found.bound, found.rounding), End(found.most))


def bracketed(
    problem: Problem,
    oracle: str,
    policy: Policy,
    how: str,
    started: float,
    *,
    gain: float | None = None,
    earns: End | None = None,
    upper: float | End | None = None,
    ratio: float | None = None,
    details: Mapping[str, Any] | None = None,
) -> Solution:
    """Return the solution of a policy, with a proved bracket.

    The gain of the policy, evaluated if the problem is small enough, or the gain of the best fixed arm bounds μ* from
    below; the relaxation bounds μ* from above. A given ``gain`` (at least ``earns``, if ``earns`` is less) or ``upper``
    end counts as proved; a contradiction to the bounds computed here raises ``ContradictionError``. All numbers are in
    the units of the problem.
    """
    problem.require_steady("an oracle")
    if problem.observed == "all":
        if not isinstance(policy, ObservedPolicy):
            raise ProblemError(
                f"the oracle {oracle} answered with a {type(policy).__name__}, which takes no states of all arms; "
                "answer observed problems with a PriorityPolicy, for example"
            )
        return bracketed_observed(problem, oracle, policy, how, started)
    reduced = without_resting_pay(problem)
    if reduced.problem is not problem:
        top = End(upper) if isinstance(upper, float) else upper
        less: dict[str, Any] = {"gain": None if gain is None else gain - reduced.rate}
        less |= {"earns": _moved(earns, -reduced.rate), "upper": _moved(top, -reduced.rate)}
        solution = bracketed(reduced.problem, oracle, policy, how, started, **less, ratio=ratio, details=details)
        return with_resting_pay(problem, reduced, solution)
    if problem.reward_range != ZERO_TO_ONE:
        high, low = (End(end) if isinstance(end, float) else end for end in (upper, earns))
        shares: dict[str, Any] = {
            name: None if end is None else _normalized_end(problem, end)
            for name, end in (("upper", high), ("earns", low))
        }
        shares["gain"] = None if gain is None else share_of(problem, gain)
        about: dict[str, Any] = {"ratio": ratio, "details": details}
        return in_units(problem, bracketed(problem.normalized(), oracle, policy, how, started, **shares, **about))
    fixed = fixed_arms(problem)
    own = End(gain, fixed.rounding) if earns is None and gain is not None else earns
    if gain is None and problem.plays == problem.n_arms:
        # All arms are pulled in every slot, whatever the policy.
        gain, own = fixed.value, fixed
    elif gain is None:
        try:
            found = evaluate(problem, policy, most=MOST_EVALUATED)
            gain, own = found.gain, End(found.gain - found.error, found.rounding + UNIT * problem.plays)
        except ProblemError:
            how += f"; its gain is not computed, as it meets more than {MOST_EVALUATED:,} joint beliefs"
    low = fixed if own is None else highest(fixed, own)
    high = relaxed(problem) if upper is None else upper if isinstance(upper, End) else End(upper)
    if upper is None or oracle == "relaxation":
        details = dict(details or {}) | {"bound": "relaxation"}
    least, most = bracket(problem, oracle, low, high)
    certified = own is not None and most - own.below <= CERTIFIED_WIDTH
    # No policy earns more than the upper end, whatever the rounding of its gain.
    gain = None if gain is None else min(gain, most)
    seconds = time.perf_counter() - started
    return Solution(
        problem, oracle, policy, gain, least, most, certified, how, seconds, ratio=ratio, details=details or {}
    )


def _moved(end: End | None, by: float) -> End | None:
    return None if end is None else End(end.value + by, end.rounding + 2 * UNIT * (abs(end.value) + abs(by)))


def _normalized_end(problem: Problem, end: End) -> End:
    rounding = end.rounding + rounding_of(problem, end.value)
    return End(share_of(problem, end.value), rounding / difference_of(problem, 1.0))
