"""The common decorators for compiling kernels with Numba.

Kernels take and return plain arrays. Kernels are compiled at their first call, cached on disk if possible, release the
interpreter lock, and never use fast-math: results are the same on every run and in every thread.

Compiling takes most of a first command's time. Compilation is therefore reported to observers and limited to the
necessary: kernels are not callable from C, and the garbage collector pauses meanwhile. Numba itself is loaded with the
first kernel, not with this module.
"""

from __future__ import annotations

import gc
import inspect
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event, Timer
from typing import Any, Literal, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

LONG = 2.0
"""Seconds of compiling after which a waiting user should be informed."""

compiling = Event()
"""Set as soon as a kernel missing in the cache on disk is compiled, in this process or in a worker."""

compiling_long = Event()
"""Set when compilation has taken ``LONG`` seconds in one process."""


class _Watch:
    """The actions around a compilation. A kernel compiles other kernels within; only the outermost counts.

    Numba compiles in one thread at a time, and begins and ends within its lock.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._started = 0.0
        self._spent = 0.0
        self._collecting = False
        self._timer = Timer(0.0, compiling_long.set)

    def begin(self) -> None:
        self._depth += 1
        if self._depth > 1:
            return
        compiling.set()
        self._collecting = gc.isenabled()
        gc.disable()
        self._started = time.monotonic()
        if self._spent < LONG:
            self._timer = Timer(LONG - self._spent, compiling_long.set)
            self._timer.daemon = True
            self._timer.start()

    @property
    def spent(self) -> float:
        """The seconds of compiling so far."""
        return self._spent + (time.monotonic() - self._started if self._depth else 0.0)

    def end(self) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._spent += time.monotonic() - self._started
        self._timer.cancel()
        if self._collecting:
            gc.enable()


_watch = _Watch()


def clock() -> float:
    """Return the seconds of a clock that pauses during compilation, which occurs only once for a kernel."""
    return time.monotonic() - _watch.spent


@cache
def _numba() -> Any:
    """Return Numba, with the observers of compilation in place."""
    import numba
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: event.Event) -> None:
            _watch.begin()

        def on_end(self, event: event.Event) -> None:
            _watch.end()

    # Numba's events carry no types.
    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
    return numba


def is_kept(kernel: Any) -> bool:
    """Return whether a kernel is in the cache on disk, judged by file names and times."""
    folder = kernel.stats.cache_path
    if folder is None:
        return False
    made = Path(inspect.getfile(kernel.py_func)).stat().st_mtime
    return any(path.stat().st_mtime >= made for path in Path(folder).glob(f"*.{kernel.py_func.__name__}-*.nbi"))


def njit(function: F) -> F:
    """Compile a kernel, cached in a writable package folder or in the user's cache folder."""
    return _compile(function, "never")


def inlined(function: F) -> F:
    """Compile a helper into the kernels that call it: passing arrays in an inner loop would cost too much.

    Inlining a helper with a single call also compiles faster: Numba optimises a called function again with every
    caller.
    """
    return _compile(function, "always")


def _compile(function: F, inline: Literal["never", "always"]) -> F:
    options = {"nogil": True, "fastmath": False, "inline": inline, "no_cfunc_wrapper": True}
    try:
        compiled = _numba().njit(cache=True, **options)(function)
    except RuntimeError:
        # Without a writable folder, Numba raises here, before any compilation.
        compiled = _numba().njit(**options)(function)
    return cast(F, compiled)
