"""The bracket of μ* around a policy that comes with no proof of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from restless_bandits.errors import ProblemError
from restless_bandits.oracles.evaluation import best_arm_gain, evaluate
from restless_bandits.oracles.lagrangian import relaxation_bound
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Solution
from restless_bandits.policies import Policy
from restless_bandits.problem import Problem

MOST_EVALUATED = 60_000
"""Joint beliefs up to which an oracle evaluates its policy unasked: about a second."""


def bracketed(
    problem: Problem,
    oracle: str,
    policy: Policy,
    how: str,
    started: float,
    *,
    gain: float | None = None,
    upper: float | None = None,
    ratio: float | None = None,
    details: Mapping[str, Any] | None = None,
) -> Solution:
    """Return a policy with what can be proved around it.

    Its own gain, evaluated where the problem is small enough, or the gain of the best fixed arm bound μ* from below;
    the relaxation bounds it from above.
    """
    error = 0.0
    if gain is None:
        try:
            evaluation = evaluate(problem, policy, most=MOST_EVALUATED)
            gain, error = evaluation.gain, evaluation.error
        except ProblemError:
            how += f"; its gain is not evaluated, as it meets more than {MOST_EVALUATED:,} joint beliefs"
    upper = relaxation_bound(problem) if upper is None else upper
    fixed = best_arm_gain(problem)
    # Both ends are right up to rounding; where they touch, rounding must not make them cross.
    lower = min(upper, max(fixed, fixed if gain is None else gain - error))
    own = lower if gain is None else gain - error
    certified = gain is not None and upper - own <= CERTIFIED_WIDTH
    seconds = time.perf_counter() - started
    return Solution(
        problem, oracle, policy, gain, lower, upper, certified, how, seconds, ratio=ratio, details=details or {}
    )
