"""From which horizon on a bound says anything."""

from __future__ import annotations

from collections.abc import Callable

from restless_bandits.optimism import LATEST_HORIZON


def first_horizon(says_something: Callable[[int], bool], latest: int = LATEST_HORIZON) -> int | None:
    """Return the T at which a bound begins to say something; None if there is none up to ``latest``.

    A bound that is once below what there is to lose stays there, since it grows more slowly than T: T is doubled until
    it is, and the step between is halved.
    """
    high = 1
    while not says_something(high):
        high *= 2
        if high > latest:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if says_something(middle) else (middle, high)
    return high
