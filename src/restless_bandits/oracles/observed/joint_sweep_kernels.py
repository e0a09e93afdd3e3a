"""Compiled sweep of the optimality operator over the joint states of a few observed arms: see ``exact``."""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray


@njit
def _step_axis(chain: Array, value: Array, after: Array, left: int, n: int, right: int) -> None:
    """Average values over the next state of one arm: axes (arms before, arm, arms after)."""
    for before in range(left):
        for s in range(n):
            row = (before * n + s) * right
            for k in range(right):
                after[row + k] = 0.0
            for z in range(n):
                probability = chain[s, z]
                if probability != 0.0:
                    other = (before * n + z) * right
                    for k in range(right):
                        after[row + k] += probability * value[other + k]


@njit
def sweep_joint(
    actions: IntArray, sizes: IntArray, chains: Array, rewards: Array, value: Array, best: Array, choice: IntArray
) -> None:
    """Write the best values after one slot and the choices that reach them, ties to the first choice.

    ``actions[c, i]`` is the action of arm i in choice c; choices are in lexicographic order, so neighbours share the
    work for the arms in which they agree. ``chains[i, a]`` and ``rewards[i, a]`` are those of arm i, padded with zeros.
    """
    n_choices, n_arms = actions.shape
    size = len(value)
    partial = np.empty((n_arms + 1, size))
    paid = np.zeros((n_arms + 1, size))
    partial[0] = value
    best[:] = -np.inf
    for c in range(n_choices):
        first = 0
        if c > 0:
            while first < n_arms and actions[c, first] == actions[c - 1, first]:
                first += 1
        left = 1
        for i in range(n_arms):
            n = sizes[i]
            if i >= first:
                a = actions[c, i]
                _step_axis(chains[i, a], partial[i], partial[i + 1], left, n, size // (left * n))
                for before in range(left):
                    for s in range(n):
                        paid[i + 1, before * n + s] = paid[i, before] + rewards[i, a, s]
            left *= n
        for k in range(size):
            total = partial[n_arms, k] + paid[n_arms, k]
            if total > best[k]:
                best[k] = total
                choice[k] = c
