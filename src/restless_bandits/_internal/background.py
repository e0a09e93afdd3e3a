"""Background work in worker processes: a single pool for this process, started on first use.

The pool ends with the process, or when closed. A pool with dead workers is dropped, and the next task starts a new
pool.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any, TypeVar

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.workers import begin_worker

T = TypeVar("T")

MOST_WORKERS = 4
END_TIMEOUT_SECONDS = 2.0
"""Seconds of waiting for the thread of a pool whose workers were terminated."""

Warned = list[tuple[str, type[Warning]]]

_pools: dict[int, ProcessPoolExecutor] = {}
"""The pool by process number: a forked process has no pool yet."""


def check_may_start() -> None:
    """Refuse workers to a script without a guard of its main part: every worker would run the script again."""
    # Python's own flag of a just started process that is still importing the main script.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ProblemError(
            "a process that plans in the background runs this script anew; guard its main part by "
            'if __name__ == "__main__":'
        )


def submit(work: Callable[..., T], *given: Any) -> Future[tuple[T, Warned]]:
    """Return a future for a function's result and its warnings."""
    pool = _pools.get(os.getpid())
    if pool is None:
        # Spawned, not forked: a fork in the presence of threads can stop for ever.
        context = multiprocessing.get_context("spawn")
        width = min(MOST_WORKERS, os.cpu_count() or 1)
        pool = _pools[os.getpid()] = ProcessPoolExecutor(width, mp_context=context, initializer=_begin_aside)
    try:
        return pool.submit(_listened, work, *given)
    except BrokenExecutor as error:
        close()
        broken: Future[tuple[T, Warned]] = Future()
        broken.set_exception(error)
        return broken


def _begin_aside() -> None:
    begin_worker()
    # Background work has low priority: other work may wait for the processor.
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)


def close() -> None:
    """End the workers of this process, if any; tasks that have not begun are dropped."""
    pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        processes = list((pool._processes or {}).values())
        manager: Any = pool._executor_manager_thread
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with contextlib.suppress(OSError, ValueError):
                process.terminate()
        # The thread of the pool still holds semaphores: at an exit before its end, Python reports them as leaked.
        if manager is not None and manager is not threading.current_thread():
            manager.join(END_TIMEOUT_SECONDS)


def _listened(work: Callable[..., T], *given: Any) -> tuple[T, Warned]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = work(*given)
    return result, [(str(one.message), one.category) for one in caught]
