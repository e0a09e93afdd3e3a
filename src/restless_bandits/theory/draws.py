"""The random streams of the checks by simulation."""

from __future__ import annotations

import numpy as np

from restless_bandits.errors import ProblemError
from restless_bandits.problem import Problem

FALSE_ALARM = 1e-6
"""The chance that a check by simulation refutes what is true."""


def generator(problem: Problem, seed: int, stream: int) -> np.random.Generator:
    """Return a generator that hangs on the seed, the problem's content and the check alone."""
    if not isinstance(seed, int) or seed < 0:
        raise ProblemError(f"seed is {seed!r}; give a whole number that is not negative")
    content = int(problem.content[:32], 16)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(content, stream)))
