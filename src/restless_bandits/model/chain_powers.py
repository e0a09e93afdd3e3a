"""Compiled powers of Markov chains, for kernels and NumPy code alike; ``markov.powers`` is the stack in NumPy."""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.compiling import helper, njit
from restless_bandits._internal.validation import Array


@helper
def multiply(one: Array, other: Array, out: Array) -> None:
    """Write the product of two square matrices."""
    n = one.shape[0]
    for s in range(n):
        for k in range(n):
            total = one[s, 0] * other[0, k]
            for m in range(1, n):
                total += one[s, m] * other[m, k]
            out[s, k] = total


@helper
def scale_rows(matrix: Array) -> None:
    """Divide every row by its sum, because rounding errors would grow with the exponent."""
    n = matrix.shape[0]
    for s in range(n):
        total = 0.0
        for k in range(n):
            total += matrix[s, k]
        for k in range(n):
            matrix[s, k] /= total


@helper
def spread_of_rows(matrix: Array) -> float:
    """Return the largest total variation between two rows."""
    n = matrix.shape[0]
    worst = 0.0
    for s in range(n):
        for other in range(s):
            distance = 0.0
            for k in range(n):
                distance += abs(matrix[s, k] - matrix[other, k])
            worst = max(worst, 0.5 * distance)
    return worst


@njit
def power_of(chain: Array, exponent: int) -> Array:
    """Return a power of a chain by squaring."""
    n = chain.shape[0]
    found, square, product = np.eye(n), chain.copy(), np.empty((n, n))
    while exponent > 0:
        if exponent & 1:
            multiply(found, square, product)
            found, product = product, found
        exponent >>= 1
        if exponent:
            multiply(square, square, product)
            square, product = product, square
    return found


@njit
def converged_powers(chain: Array, tv_error: float, longest: int) -> tuple[Array, float]:
    """Powers ``[τ - 1, s, k]`` of a chain up to the first whose rows agree within a deviation, and the deviation there.

    Rows that agree lie within the deviation of the stationary distribution, and so do the rows of all later powers. If
    rows do not agree within ``longest`` slots, the returned deviation exceeds the requested deviation.
    """
    n = chain.shape[0]
    powers = np.empty((longest, n, n))
    for step in range(longest):
        if step == 0:
            # Numba compiles an assignment of whole arrays with the text of its error message: seconds.
            for s in range(n):
                for k in range(n):
                    powers[0, s, k] = chain[s, k]
        else:
            multiply(powers[step - 1], chain, powers[step])
        worst = spread_of_rows(powers[step])
        if worst <= tv_error:
            break
    return powers[: step + 1], worst
