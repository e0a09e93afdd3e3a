"""The project's one way to compile a kernel with Numba.

Kernels take and return plain arrays. They are compiled at their first call, kept on disk where that is possible,
release the interpreter lock, and never use fast-math: results are the same on every run and in every thread.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any, Literal, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

compiling = Event()
"""Set as soon as something is compiled that was not kept on disk, here or in a process that plays for this one."""


class _Watch(event.Listener):
    def on_start(self, event: event.Event) -> None:
        compiling.set()

    def on_end(self, event: event.Event) -> None:
        pass


# Numba's events carry no types.
event.register("numba:compile", _Watch())  # type: ignore[no-untyped-call]


def njit(function: F) -> F:
    """Compile a kernel: cached where the package's folder or the user's cache folder can be written."""
    return _compile(function, "never")


def inlined(function: F) -> F:
    """Compile a helper into the kernels that call it: handing arrays on in an inner loop would cost too much."""
    return _compile(function, "always")


def _compile(function: F, inline: Literal["never", "always"]) -> F:
    try:
        compiled = numba.njit(cache=True, nogil=True, fastmath=False, inline=inline)(function)
    except RuntimeError:
        # Numba finds no folder to write to and says so here, before it compiles anything.
        compiled = numba.njit(nogil=True, fastmath=False, inline=inline)(function)
    return cast(F, compiled)
