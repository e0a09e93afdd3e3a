"""Names of array types, a single check for each kind of number that a user gives, and JSON forms of numbers.

A check returns the number as a Python number, or raises a ``ProblemError`` of one sentence: the subject, the value, and
the condition.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened

Array = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ActionArray = npt.NDArray[np.int16]
BoolArray = npt.NDArray[np.bool_]

LARGEST_INTEGER = float(np.finfo(np.float64).max)
"""The largest finite double; larger integers have no double."""

EXACT_INTEGERS = float(1 << 53)
"""Up to this size every integer has a double of its own."""


def is_whole(value: object) -> bool:
    """Whether a value is an integer, NumPy's included; True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_whole(value: Any) -> Any:
    """Return a float without a fraction, such as 1e4, as an integer, and every other value unchanged."""
    is_float = isinstance(value, float | np.floating)
    return int(value) if is_float and float(value).is_integer() and abs(value) <= EXACT_INTEGERS else value


def is_number(value: object) -> bool:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_int(what: str, value: Any, least: int = 1, most: int | None = None, also: str = "") -> int:
    """Return an integer from ``least`` to ``most``; ``also`` is a remark at the end of the error message.

    A float such as 1e4 without a fraction is an integer too.

    >>> check_int("runs", 0)
    Traceback (most recent call last):
    ...
    restless_bandits._internal.errors.ProblemError: runs is 0; it must be a positive whole number
    """
    value = as_whole(value)
    if not is_whole(value) or value < least or (most is not None and value > most):
        kinds = {0: "a whole number that is not negative", 1: "a positive whole number"}
        kind = kinds.get(least, f"a whole number of at least {least}")
        if most is not None:
            # A number of nineteen digits is hard to read.
            end = f"{kind} and below 2^{most.bit_length()}"
            kind = end if most > 1 << 53 else f"a whole number from {least} to {most}"
        raise ProblemError(f"{what} is {shortened(value)}; it must be {kind}{also and ', ' + also}")
    return int(value)


def number_of(text: str) -> int | None:
    """Return the positive integer of a text of digits; None for other texts and for too many digits."""
    digits = text.strip()
    found = int(digits) if digits.isdecimal() and len(digits) < 100 else 0
    return found or None


def check_ints(
    what: str, values: Any, least: int = 1, most: int | None = None, *, length: int | None = None
) -> list[int]:
    """Return a list of integers, of a given length if ``length`` is given."""
    if not isinstance(values, list | tuple) or length not in (None, len(values)):
        count = "" if length is None else f"{length} "
        raise ProblemError(f"{what} is {shortened(values)}; it must be a list of {count}whole numbers")
    return [check_int(f"{what}[{i}]", value, least, most) for i, value in enumerate(values)]


def positive(what: str, value: Any, most: float = LARGEST_INTEGER, *, or_zero: bool = False) -> float:
    """Return a finite number above zero, or from zero on."""
    if not is_number(value) or not 0 <= value <= most or (value == 0 and not or_zero):
        kind = "a number, and must not be negative" if or_zero else "a positive number"
        kind += "" if most == LARGEST_INTEGER else f" of at most {most:g}"
        raise ProblemError(f"{what} is {shortened(value)}; it must be {kind}")
    return float(value)


def probability(what: str, value: Any) -> float:
    """Return a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ProblemError(f"{what} is {shortened(value)}; a probability must lie between 0 and 1")
    return float(value)


def to_jsonable(value: Any) -> Any:
    """Return a value in JSON form: arrays and tuples as lists, non-finite numbers as null."""
    if isinstance(value, dict):
        return {key: to_jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_jsonable(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
