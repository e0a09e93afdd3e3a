"""m(T), rad(T) and gap(T) of Restless-UCB (Wang, Huang, Lui 2020, Section 3 and Appendix A)."""

from __future__ import annotations

import math

from restless_bandits.theory.horizons import LATEST


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


def gap(horizon: int, n_states: int, lambda_max: float) -> float:
    """Return (2 ln T / ln(1/λ_max) + 2M / (1 − λ_max)) rad(T) + 2M/T, the paper's gap at horizon T.

    By its Lemma 11 no chance of a state, however long it was not looked at, differs by more between P and P'. The first
    term is what can come together until the chains have forgotten their start, the others are what is left then.
    Infinite where λ_max is 1.

    >>> round(gap(10**6, 2, 0.5), 4)
    1.258
    """
    if not lambda_max < 1:
        return math.inf
    forgetting = 2 * math.log(horizon) / math.log(1 / lambda_max) if lambda_max > 0 else 0.0
    return (forgetting + 2 * n_states / (1 - lambda_max)) * radius(horizon) + 2 * n_states / horizon
