"""Worker processes: their start, and their end together with the parent process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any, Protocol, TypeVar

from restless_bandits._internal.compiling import compiling, compiling_long
from restless_bandits._internal.errors import harmless

T = TypeVar("T")

COMPILING = (compiling, compiling_long)
"""Flags from workers to the parent process."""
END_TIMEOUT_SECONDS = 0.5
"""Seconds of waiting for killed workers, and for the thread of their pool."""
LOW_PRIORITY = 10


class _Flag(Protocol):
    """An event of threads, or of processes."""

    def set(self) -> None: ...

    def wait(self) -> bool: ...


def _hand_on(known: _Flag, told: _Flag) -> None:
    known.wait()
    told.set()


def listen_to_workers(flags: Sequence[_Flag]) -> None:
    """Forward the flags of workers to this process."""
    for theirs, ours in zip(flags, COMPILING, strict=True):
        threading.Thread(target=_hand_on, args=(theirs, ours), daemon=True).start()


class WorkerPool:
    """Processes of this machine for functions: started on first use, and ended with this process.

    After the death of a process, the next task starts new processes. Workers of low priority suit tasks beside requests
    or decisions, which need the processor at once.
    """

    def __init__(self, workers: int, *, low_priority: bool = False, report_compilation: bool = False) -> None:
        self._workers, self._nice = workers, LOW_PRIORITY if low_priority else 0
        # Spawned, not forked: a fork in the presence of threads can stop for ever.
        self._context = multiprocessing.get_context("spawn")
        self._flags: tuple[_Flag, ...] = ()
        if report_compilation:
            self._flags = (self._context.Event(), self._context.Event())
            listen_to_workers(self._flags)
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()
        self.closed = False

    def submit(self, work: Callable[..., T], *given: Any) -> Future[T]:
        """Return a future for the result of a function: cancelled if the pool is closed.

        The call blocks while a process starts.
        """
        # A process that starts during a close would be missed by the close, and the exit would wait for its task.
        with self._lock:
            if self.closed:
                cancelled: Future[T] = Future()
                cancelled.cancel()
                return cancelled
            if self._executor is not None:
                with contextlib.suppress(BrokenExecutor):
                    return self._executor.submit(work, *given)
            self._executor = ProcessPoolExecutor(
                self._workers, mp_context=self._context, initializer=begin_worker, initargs=(self._flags, self._nice)
            )
            return self._executor.submit(work, *given)

    def processes(self) -> list[multiprocessing.process.BaseProcess]:
        """Return the processes of the pool."""
        return [] if self._executor is None else list((self._executor._processes or {}).values())

    def close(self) -> None:
        """End all processes, even during work, and cancel the tasks that have not begun."""
        with self._lock:
            self.closed = True
            if self._executor is None:
                return
            processes, executor, self._executor = self.processes(), self._executor, None
            manager: Any = executor._executor_manager_thread
            results: Any = executor._result_queue
            executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with contextlib.suppress(OSError, ValueError):
                process.kill()
        deadline = time.monotonic() + END_TIMEOUT_SECONDS
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        # The thread of the pool would wait for ever for the rest of a result whose worker was killed while sending: the
        # pipe ends only with this last open end.
        results._writer.close()
        # The thread of the pool still holds semaphores: at an exit before its end, Python reports them as leaked.
        if manager is not None and manager is not threading.current_thread():
            manager.join(max(0.0, deadline - time.monotonic()))


def begin_worker(flags: Sequence[_Flag] = (), nice: int = 0) -> None:
    """Leave Ctrl-C to the parent, set its flags during compilation, and end with the parent."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(nice)
    for ours, parents in zip(COMPILING, flags, strict=False):
        threading.Thread(target=_hand_on, args=(ours, parents), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = _warn_in_one_line
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _warn_in_one_line(message: Warning | str, *_: object, **__: object) -> None:
    print(harmless(f"Warning: {message}"), file=sys.stderr)


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
