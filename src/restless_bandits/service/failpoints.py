"""Named points for crash tests: a test kills the process there, to show that acknowledged operations survive.

``RESTLESS_FAILPOINT=after-commit:3`` kills the process by SIGKILL at the third pass of the point ``after-commit``.
Without the variable, a point is a call of a function that does nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

NAMES = (
    "before-begin",
    "after-begin",
    "before-commit",
    "after-commit",
    "before-answer",
    "after-answer",
    "before-snapshot",
    "after-snapshot",
    "before-plan",
    "after-plan",
    "before-migration",
    "after-migration",
    "before-backup",
    "after-backup",
)
FAILPOINT_VARIABLE = "RESTLESS_FAILPOINT"


def no_failpoint(name: str) -> None:
    """Pass a point without effect."""


def from_environment() -> Callable[[str], None]:
    wanted, _, number = os.environ.get(FAILPOINT_VARIABLE, "").partition(":")
    if not wanted:
        return no_failpoint
    if wanted not in NAMES:
        raise ValueError(f"{FAILPOINT_VARIABLE} names no failpoint: {wanted!r}")
    left = [int(number or "1")]

    def maybe_die(name: str) -> None:
        if name == wanted:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

    return maybe_die


passed: Callable[[str], None] = from_environment()
"""The function to call, with the name of a point, wherever the process may die."""
