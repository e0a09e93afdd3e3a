"""Numbers as people write them."""

from __future__ import annotations

import math

from restless_bandits._internal.validation import Array


def slots(horizon: float) -> str:
    """Write a number of slots as people do: 53 000, 1.2e7."""
    if horizon < 1e6:
        digits = max(0, math.floor(math.log10(max(horizon, 1))) - 1)
        return f"{round(horizon, -digits):,.0f}".replace(",", " ")
    return f"{horizon:.2g}".replace("e+0", "e").replace("e+", "e")


def amount(value: float) -> str:
    """Write a regret: whole where it is large."""
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 100 else f"{value:.3g}"


def error_of(value: float) -> str:
    """Write a standard error: two digits, or whole where it is large."""
    return f"{value:.2g}" if value < 100 else amount(value)


def plus_minus(values: Array) -> str:
    return f"{amount(float(values.mean()))} ± {error_of(float(values.std(ddof=1)) / math.sqrt(len(values)))}"


def seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"
