"""Checks of numbers and texts that describe a problem; each error names the entry at fault."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast, overload

import numpy as np

from restless_bandits._internal.errors import ProblemError, did_you_mean, shortened
from restless_bandits._internal.validation import (
    Array,
    BoolArray,
    as_whole,
    is_whole,
)

F = TypeVar("F", bound=Callable[..., Any])

MOST_SLOTS = 1 << 62
"""Slots that can be counted in 64 bits."""


ROW_SUM_TOLERANCE = 1e-9
"""The largest accepted deviation of a row sum from 1; within it, distributions use the row divided by its sum."""

PAGE, PROBLEM_PAGE = "docs/how-to/reacting-arms.md", "docs/how-to/own-problem.md"
OTHER_WORDS = {
    **dict.fromkeys(("passive", "P0", "passive_transitions", "p_passive"), "transitions, the chain without a pull"),
    **dict.fromkeys(("active", "P1", "p_active"), "active_transitions, the chain with a pull"),
    **dict.fromkeys(("R0", "passive_reward"), "passive_rewards, paid without a pull"),
    **dict.fromkeys(("R", "R1", "reward", "active_rewards"), "rewards, paid by a pull"),
    **dict.fromkeys(("P", "T", "transition", "matrix"), "transitions, or Problem.from_arrays for arrays of many arms"),
    **dict.fromkeys(("observed", "plays", "at_most"), "the argument of this name of Problem"),
    "states": "rewards, one for each state",
}
"""Words of other packages and papers, and their place here."""
ARM_REMEDIES = {word: f"take {here} ({PAGE})" for word, here in OTHER_WORDS.items()}
CHAINS = tuple(word for word, here in OTHER_WORDS.items() if "the chain" in here)
RESTED_REMEDIES = ARM_REMEDIES | dict.fromkeys(
    (*CHAINS, "active_transitions"), f"its state changes in slots with a pull only, by transitions ({PAGE})"
)


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
    if raw.ndim == 3 > dimensions:
        raise ProblemError(
            f"{what} is a stack of {len(raw)} matrices; an arm that reacts to pulls has transitions without a pull and "
            f"active_transitions with one ({PAGE})"
        )
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
    remedy = "make its probabilities add up to one"
    square = distributions.ndim == 2 and distributions.shape[0] == distributions.shape[1]
    if square and (np.abs(distributions.sum(axis=0) - 1.0) <= ROW_SUM_TOLERANCE).all():
        remedy = "its columns do, so exchange rows and columns"
    refuse_first(what, sums, wrong, f"sums to {{:.12g}}, not 1; {remedy}")


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters that keywords may give."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        name for name, one in inspect.signature(function).parameters.items() if one.kind in kinds and name != "self"
    ]


def refusing_keywords(what: str, remedies: Mapping[str, str], known: Collection[str] | None = None) -> Callable[[F], F]:
    """Return a decorator that refuses unknown keywords with a ``ProblemError`` and a remedy.

    An unknown keyword is refused before Python complains of missing ones. ``known`` are by default the keywords of the
    function.
    """

    def decorated(function: F) -> F:
        words = keywords_of(function) if known is None else list(known)

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for word in given:
                if word not in words:
                    remedy = remedies[word] if word in remedies else did_you_mean(word, words)
                    raise ProblemError(f"{what} has no argument {word!r}; {remedy}")
            return function(*args, **given)

        return cast("F", checked)

    return decorated


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


@overload
def check_horizon(horizon: int) -> int: ...
@overload
def check_horizon(horizon: int | None) -> int | None: ...
def check_horizon(horizon: int | None) -> int | None:
    """Return a horizon as an integer, None for none."""
    horizon = as_whole(horizon)
    if horizon is not None and (not is_whole(horizon) or horizon < 1):
        raise ProblemError(f"horizon is {shortened(horizon)}; where one is given, it must be a positive whole number")
    if horizon is not None and horizon > 10**100:
        raise ProblemError("horizon is beyond 10^100, where its powers are no longer numbers; give a shorter one")
    return horizon


def check_length(horizon: int | None) -> None:
    """Refuse to play more slots than can be counted in 64 bits; the theory's formulas take longer horizons."""
    if horizon is not None and horizon > MOST_SLOTS:
        raise ProblemError("horizon is beyond 2^62, which no run reaches; give a shorter one")
