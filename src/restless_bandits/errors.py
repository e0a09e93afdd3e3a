"""The errors that this package raises on purpose.

What a user can cause is a ``ProblemError``: one sentence with what, where, the value and the remedy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ProblemError(ValueError):
    """A problem, or a question about one, that makes no sense as stated."""


class ReaderGoneError(Exception):
    """The reader of our output went away, as in ``restless index … | head``; it has what it wanted."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint naming the nearest known word, or all of them when none is near.

    >>> did_you_mean("papr-1", ["paper-1", "queue-5"])
    "did you mean 'paper-1'?"
    """
    known = list(known)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return "choose from " + ", ".join(known)


def check_known(word: object, known: Iterable[str], complaint: str) -> None:
    """Refuse a word that is not among those known: the complaint, the word, and the nearest or all of them."""
    known = list(known)
    if word not in known:
        raise ProblemError(f"{complaint} {word!r}; {did_you_mean(str(word), known)}")
