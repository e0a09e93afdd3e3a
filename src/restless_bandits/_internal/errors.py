"""The errors that this package raises on purpose.

A user's mistake is a ``ProblemError``: one sentence with subject, place, value and remedy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MOST_SHOWN = 50
"""Known words that a message lists."""


class ProblemError(ValueError):
    """An invalid problem, or an invalid request about a problem."""


class UntrustedModuleError(ProblemError):
    """Stored data that names code in a module; loading the data would import the module."""


class ConflictError(ProblemError):
    """Feedback that contradicts earlier feedback; the earlier feedback stands."""


class ReaderGoneError(Exception):
    """The reader of the output closed the pipe, as in ``restless index … | head``."""


class StoppedError(Exception):
    """A user stopped a command before its first output."""


def shortened(value: object, most: int = 60) -> str:
    """Return a value as Python shows it, on a single line and shortened to a readable length."""
    try:
        shown = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write thousands of digits
        return "a number of thousands of digits"
    return shown if len(shown) <= most else shown[: most - 3] + "..."


_ORDERS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    r"""Return text for a terminal, with control characters escaped.

    >>> print(harmless("red \x1b[31m"))
    red \x1b[31m
    """
    return _ORDERS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint naming the nearest known word, or the known words if none is near.

    >>> did_you_mean("papr-1", ["paper-1", "queue-5"])
    "did you mean 'paper-1'?"
    """
    known = list(known)
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f"did you mean {by_lower[near[0]]!r}?"
    return "choose from " + ", ".join(known[:MOST_SHOWN]) + (", …" if len(known) > MOST_SHOWN else "")


def check_known(word: object, known: Iterable[str], complaint: str) -> None:
    """Refuse an unknown word: the complaint, the word, and the nearest known word or all of them."""
    known = list(known)
    if word not in known:
        raise ProblemError(f"{complaint} {shortened(word)}; {did_you_mean(str(word)[:60], known)}")
