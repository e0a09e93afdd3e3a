"""Compiled backward induction of observed arms over a known number of slots: see ``finite``."""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array


@njit
def value_of_prices(arms: tuple[Array, ...], prices: Array, value: Array, resting: Array, score: Array) -> float:
    """Add the value of kinds of arms that are paid for rests, and their rests, and return the largest number met.

    ``arms`` holds chains of pulling and resting, mean rewards of pulling and resting, starts and counts of kinds.
    ``prices`` holds the subsidy for resting in each slot. ``value[g]`` and ``resting[g, slot]`` grow by the value and
    the expected rests of the kinds i with i mod len(value) = g. ``score[slot, place]`` is written: the advantage of
    pulling over resting; an empty array is left out.
    """
    active, passive, active_reward, passive_reward, start, count = arms
    n_kinds, n = active_reward.shape
    horizon, parts = len(prices), len(value)
    ahead, here, mass, moved = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    pulls = np.zeros((horizon, n), dtype=np.bool_)
    largest = 0.0
    for i in range(n_kinds):
        ahead[:] = 0.0
        for slot in range(horizon - 1, -1, -1):
            for s in range(n):
                pulled, rested = active_reward[i, s], passive_reward[i, s] + prices[slot]
                for k in range(n):
                    pulled += active[i, s, k] * ahead[k]
                    rested += passive[i, s, k] * ahead[k]
                pulls[slot, s] = pulled > rested
                here[s] = max(pulled, rested)
                largest = max(largest, abs(pulled), abs(rested))
                if len(score):
                    score[slot, i * n + s] = pulled - rested
            ahead[:] = here
        for s in range(n):
            value[i % parts] += count[i] * start[i, s] * ahead[s]
            mass[s] = start[i, s]
        for slot in range(horizon):
            moved[:] = 0.0
            for s in range(n):
                if mass[s] == 0.0:
                    continue
                if not pulls[slot, s]:
                    resting[i % parts, slot] += count[i] * mass[s]
                for k in range(n):
                    moved[k] += mass[s] * (active[i, s, k] if pulls[slot, s] else passive[i, s, k])
            mass[:] = moved
    return largest
