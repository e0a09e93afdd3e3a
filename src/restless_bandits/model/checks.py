"""Checks of numbers and texts that describe a problem; each error names the entry at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import (
    Array,
    BoolArray,
    is_whole,
)

MOST_SLOTS = 1 << 62
"""Slots that can be counted in 64 bits."""


ROW_SUM_TOLERANCE = 1e-9
"""The largest accepted deviation of a row sum from 1; within it, distributions use the row divided by its sum."""


def finite_numbers(value: Any, what: str, dimensions: int) -> Array:
    """Return an array of finite numbers of a given dimension; an error names the faulty entry."""
    shape = {1: "a list of numbers", 2: "a list of rows of numbers", 3: "a stack of matrices"}[dimensions]
    try:
        raw = np.asarray(value)
    except ValueError:
        lengths = [len(row) if isinstance(row, Sequence) else 1 for row in value]
        raise ProblemError(
            f"{what}: rows have different lengths {lengths}; give every row as many entries as there are states"
        ) from None
    if raw.ndim != dimensions or raw.size == 0 or raw.dtype.kind not in "iuf":
        raise ProblemError(f"{what} must be {shape}, not {shortened(value)}")
    numbers = raw.astype(np.float64) + 0.0
    refuse_first(what, numbers, ~np.isfinite(numbers), "is {:.12g}; it must be a finite number")
    return numbers


def refuse_first(what: str, numbers: Array, bad: BoolArray, why: str) -> None:
    """Raise with the place and the value of the first bad number, if any number is bad."""
    if bad.any():
        first = tuple(np.argwhere(bad)[0].tolist())
        raise ProblemError(what + "".join(f"[{i}]" for i in first) + " " + why.format(numbers[first]))


def check_distributions(distributions: Array, what: str) -> None:
    """Check that the last axis holds probability distributions."""
    outside = (distributions < 0) | (distributions > 1 + ROW_SUM_TOLERANCE)
    refuse_first(what, distributions, outside, "is {:.12g}; a probability must lie between 0 and 1")
    sums = distributions.sum(axis=-1)
    wrong = np.abs(sums - 1.0) > ROW_SUM_TOLERANCE
    refuse_first(what, sums, wrong, "sums to {:.12g}, not 1; make its probabilities add up to one")


def check_text(text: object, what: str) -> None:
    if not isinstance(text, str):
        raise ProblemError(f"{what} must be a string, not {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ProblemError(f"{what} {text!r} holds half of a character; write it anew") from None


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def check_horizon(horizon: int | None) -> None:
    if horizon is not None and (not is_whole(horizon) or horizon < 1):
        raise ProblemError(f"horizon is {shortened(horizon)}; where one is given, it must be a positive whole number")
    if horizon is not None and horizon > 10**100:
        raise ProblemError("horizon is beyond 10^100, where its powers are no longer numbers; give a shorter one")


def check_length(horizon: int | None) -> None:
    """Refuse to play more slots than can be counted in 64 bits; the theory's formulas take longer horizons."""
    if horizon is not None and horizon > MOST_SLOTS:
        raise ProblemError("horizon is beyond 2^62, which no run reaches; give a shorter one")
