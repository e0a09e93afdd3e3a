"""Compiled waiting of one arm with a subsidy: see ``lagrangian``."""

from __future__ import annotations

import numpy as np

from restless_bandits._compile import njit
from restless_bandits.arrays import Array


@njit
def resting_values(pull: Array, last: Array, slot: float) -> tuple[Array, Array]:
    """Return what resting is worth in each belief [t, s], and what the better of pulling and resting is at t = 0.

    ``last`` is the value at the end of the table, where waiting longer changes nothing, and a slot at rest pays
    ``slot``. From the end back, slot by slot, because rounding depends on the order of the sums.
    """
    best, value = np.empty_like(pull), last.copy()
    for t in range(len(pull) - 1, -1, -1):
        for s in range(len(value)):
            best[t, s] = slot + value[s]
            if t < len(pull) - 1:
                value[s] = np.maximum(pull[t, s], best[t, s])
    return best, value
