"""The common decorators for compiling kernels with Numba.

Kernels take and return plain arrays. Kernels are compiled at their first call, cached on disk if possible, release the
interpreter lock, and never use fast-math: results are the same on every run and in every thread.

Compiling takes most of a first command's time. Compilation is therefore reported to observers and limited to the
necessary: kernels are not callable from C, and the garbage collector pauses meanwhile. Numba is imported at the first
call of a kernel, not with the modules that define kernels.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache, update_wrapper
from pathlib import Path
from threading import Event, RLock, Timer
from typing import Any, Literal, TypeVar, cast

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import locked

F = TypeVar("F", bound=Callable[..., Any])

LONG_COMPILATION_SECONDS = 2.0
"""Seconds of compiling after which a waiting user should be informed."""

compiling = Event()
"""Set as soon as a kernel missing in the cache on disk is compiled, in this process or in a worker."""

compiling_long = Event()
"""Set when compilation has taken ``LONG_COMPILATION_SECONDS`` seconds in one process."""

compiling_ahead = Event()
"""Set if two processes compile for a command, in both of them: see ``compile_ahead``."""

COMPILATION_TIMEOUT_SECONDS = 60.0
"""Seconds of waiting for the other process."""


class CompilationTimer:
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
        if self._spent < LONG_COMPILATION_SECONDS:
            self._timer = Timer(LONG_COMPILATION_SECONDS - self._spent, compiling_long.set)
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


compilation_timer = CompilationTimer()


def clock() -> float:
    """Return the seconds of a clock that pauses during compilation, which occurs only once for a kernel."""
    return time.monotonic() - compilation_timer.spent


@cache
def _numba() -> Any:
    """Return Numba, with the observers of compilation in place."""
    import numba
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: event.Event) -> None:
            compilation_timer.begin()

        def on_end(self, event: event.Event) -> None:
            compilation_timer.end()

    # Numba's events carry no types.
    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]
    return numba


_loading = RLock()
"""Held while Numba is imported, which two threads may want at once."""


class Kernel:
    """A function whose Numba dispatcher is made at the first use: until then nothing of Numba is imported.

    A kernel that calls another one finds its dispatcher through the attributes, which are those of the dispatcher.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options = options
        self._dispatcher: Any = None
        # A helper has no entry point that Python could call: there it runs as it is written.
        self._call: Callable[..., Any] = function if options.get("no_cpython_wrapper") else self._first_call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __getattr__(self, name: str) -> Any:
        # Special methods and what other libraries probe for are no reason to import Numba.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = self.py_func.__qualname__
        if getattr(sys.modules.get(self.py_func.__module__), name, None) is self:
            return name
        return Kernel, (self.py_func, self._options)

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher of the function.

        The lock is Numba's own. A thread that compiles holds this lock while it looks up the kernels that it calls, so
        any second lock around it, such as that of ``functools.cached_property``, could end in a deadlock.
        """
        if self._dispatcher is None:
            with _loading:
                numba = _numba()
            from numba.core.compiler_lock import global_compiler_lock

            with global_compiler_lock:
                if self._dispatcher is None:
                    self._dispatcher = self._made(numba)
                    compile_in_turn(self._dispatcher)
                    if self._call == self._first_call:
                        self._call = self._dispatcher
        return self._dispatcher

    def _made(self, numba: Any) -> Any:
        try:
            return numba.njit(cache=True, **self._options)(self.py_func)
        except RuntimeError:
            # Without a writable folder, Numba raises here, before any compilation.
            return numba.njit(**self._options)(self.py_func)

    @property
    def is_made(self) -> bool:
        """Whether the dispatcher is made, and Numba therefore imported."""
        return self._dispatcher is not None

    def _first_call(self, *args: Any) -> Any:
        return self.dispatcher(*args)


def processor_name() -> str:
    """Return the name of the processor, whose kind decides rounding; empty where the system does not tell the name."""
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def is_kept(kernel: Any) -> bool:
    """Return whether a kernel is in the cache on disk, judged by file names and times."""
    folder = kernel.stats.cache_path
    if folder is None:
        return False
    made = Path(inspect.getfile(kernel.py_func)).stat().st_mtime
    return any(path.stat().st_mtime >= made for path in Path(folder).glob(f"*.{kernel.py_func.__name__}-*.nbi"))


def is_loaded(kernel: Any) -> bool:
    """Whether this process has compiled a kernel, or read a compiled version from disk."""
    return kernel.is_made and bool(kernel.dispatcher.overloads)


def compile_ahead(kernel: Any, code: str) -> None:
    """Let another process compile a kernel, and maybe others, by running some code, while this process works.

    A process is used because Numba compiles in one thread at a time. A kernel in the cache on disk needs no process,
    and without a writable cache folder the processes cannot share compiled kernels. Both processes compile in turns:
    see ``compile_in_turn``. If the process fails, this process compiles all kernels itself.
    """
    if kernel.stats.cache_path is None or is_kept(kernel):
        return
    with suppress(OSError):
        # The current folder is not on the import path: its modules do not belong to the package.
        words, nowhere = [sys.executable, "-P", "-c", COMPILE_IN_TURNS + code], subprocess.DEVNULL
        process = subprocess.Popen(words, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        atexit.register(process.kill)
        compiling_ahead.set()


COMPILE_IN_TURNS = f"from {__name__} import compiling_ahead\ncompiling_ahead.set()\n"


def compile_in_turn(dispatcher: Any) -> None:
    """Make a kernel wait, while two processes compile, for the process that compiles the kernel first.

    The waiting process then finds the kernel on disk. Kernels call no kernels that call them, so that no process waits
    for a process that waits.
    """
    from numba.core.compiler_lock import global_compiler_lock

    compile_or_load, folder = dispatcher.compile, dispatcher.stats.cache_path
    place = Path(folder or "") / f"{dispatcher.py_func.__module__}.{dispatcher.py_func.__name__}"

    def wait_and_compile(signature: Any) -> Any:
        if folder is None or not compiling_ahead.is_set():
            return compile_or_load(signature)
        # Numba's own lock of threads first: two threads that take the two in different order would wait for ever.
        with global_compiler_lock, ExitStack() as stack:
            # A kernel that takes too long elsewhere, or cannot be locked, is compiled here.
            with suppress(ProblemError):
                stack.enter_context(locked(place, COMPILATION_TIMEOUT_SECONDS))
            return compile_or_load(signature)

    dispatcher.compile = wait_and_compile


def njit(function: F) -> F:
    """Compile a kernel, cached in a writable package folder or in the user's cache folder."""
    return _kernel(function, "never")


def inlined(function: F) -> F:
    """Compile a helper into the kernels that call it: passing arrays in an inner loop would cost too much.

    Inlining a helper with a single call also compiles faster: Numba optimises a called function again with every
    caller.
    """
    return _kernel(function, "always")


def helper(function: F) -> F:
    """Compile a function that only kernels call: an entry point for Python would take time to compile."""
    return _kernel(function, "never", no_cpython_wrapper=True)


def _kernel(function: F, inline: Literal["never", "always"], **more: bool) -> F:
    options = {"nogil": True, "fastmath": False, "inline": inline, "no_cfunc_wrapper": True}
    return cast(F, Kernel(function, options | more))
