"""The learning function m(T) and the confidence radius rad(T) of Restless-UCB (Wang, Huang, Lui 2020, Section 3)."""

from __future__ import annotations

import math

LATEST = 10**18


def exploration_count(horizon: int) -> int:
    """m(T) = ⌈T^(2/3)⌉: how often every state of every arm is observed before the policy commits."""
    cube: int = round(horizon ** (2 / 3))
    # A whole number whose cube is T² must not be lifted by rounding.
    return cube if cube**3 == horizon**2 else math.ceil(horizon ** (2 / 3))


def radius(horizon: int) -> float:
    """rad(T) = √(ln T / (2 m(T)))."""
    return math.sqrt(math.log(horizon) / (2 * exploration_count(horizon)))


def radius_below_from(bound: float) -> int | None:
    """Return the first T from which on rad(T) stays at or below a bound; None if there is none below 10^18.

    The proof of Theorem 1 needs rad(T) ≤ c1/3.
    """
    if not bound > 0:
        return None

    def smooth(horizon: float) -> float:
        return math.sqrt(math.log(horizon) / (2 * horizon ** (2 / 3)))

    # Without the ceiling the radius is largest at T = e^1.5 and falls from there on; with it it is never larger.
    low, high = 5, 8
    while smooth(high) > bound:
        low, high = high, 2 * high
        if low > LATEST:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if smooth(middle) <= bound else (middle + 1, high)
    while low > 1 and radius(low - 1) <= bound:
        low -= 1
    return low
