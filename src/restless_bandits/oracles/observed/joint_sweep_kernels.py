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
            after[row : row + right] = 0.0
            for z in range(n):
                probability = chain[s, z]
                if probability != 0.0:
                    other = (before * n + z) * right
                    for k in range(right):
                        after[row + k] += probability * value[other + k]


@njit
def _step_first(
    chain: Array,
    reward: Array,
    value: Array,
    paid: Array,
    c: int,
    best: Array,
    choice: IntArray,
    total: Array,
    held: bool,
) -> None:
    """Average values over the next state of the first arm, and keep the best totals and the choice behind them.

    With ``held`` the totals of the given choices are kept.
    """
    n, right = len(reward), len(total)
    for s in range(n):
        for k in range(right):
            total[k] = paid[k] + reward[s]
        for z in range(n):
            probability = chain[s, z]
            if probability != 0.0:
                for k in range(right):
                    total[k] += probability * value[z * right + k]
        for k in range(right):
            better = choice[s * right + k] == c if held else total[k] > best[s * right + k]
            best[s * right + k] = total[k] if better else best[s * right + k]
            choice[s * right + k] = c if better else choice[s * right + k]


@njit
def sweep_joint(
    actions: IntArray,
    sizes: IntArray,
    chains: Array,
    rewards: Array,
    value: Array,
    best: Array,
    choice: IntArray,
    held: bool,
) -> None:
    """Write the best values after one slot and the choices that reach them, ties to the first choice.

    With ``held`` the choices are given, and the values that they reach are written.

    ``actions[c, i]`` is the action of arm i in choice c; neighbours among the choices agree on the last arms and share
    the work for them. ``chains[i, a]`` and ``rewards[i, a]`` are those of arm i, padded with zeros. The first arm comes
    last, as its steps are the most frequent ones and those over the longest rows.
    """
    n_choices, n_arms = actions.shape
    size = len(value)
    # Row i: values averaged over the steps of the arms from i on, and what these arms pay.
    partial = np.empty((n_arms + 1, size))
    paid = np.zeros((n_arms + 1, size))
    total = np.empty(size // sizes[0])
    partial[n_arms] = value
    best[:] = -np.inf
    for c in range(n_choices):
        last = n_arms - 1
        if c > 0:
            while last > 0 and actions[c, last] == actions[c - 1, last]:
                last -= 1
        right = 1
        for i in range(n_arms - 1, 0, -1):
            n = sizes[i]
            if i <= last:
                a = actions[c, i]
                _step_axis(chains[i, a], partial[i + 1], partial[i], size // (right * n), n, right)
                for s in range(n):
                    for k in range(right):
                        paid[i, s * right + k] = paid[i + 1, k] + rewards[i, a, s]
            right *= n
        a, n = actions[c, 0], sizes[0]
        _step_first(chains[0, a], rewards[0, a, :n], partial[1], paid[1], c, best, choice, total, held)
