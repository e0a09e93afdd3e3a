"""Work in other processes that nobody waits for: one pool for all of this process, begun when it is first needed.

The pool ends with the process, or when it is closed. One whose workers died is forgotten, and the next piece of work
begins another.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import warnings
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any, TypeVar

from restless_bandits.errors import ProblemError
from restless_bandits.workers import begin_worker

T = TypeVar("T")

MOST_WORKERS = 4

Warned = list[tuple[str, type[Warning]]]

_pools: dict[int, ProcessPoolExecutor] = {}
"""The pool of this process, under its number: a process that was forked has none yet."""


def check_may_start() -> None:
    """Refuse to be asked for workers by a script that a worker runs anew because its main part is not guarded."""
    # Python's own sign that a process which was just started is still importing the main script.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ProblemError(
            "a process that plans in the background runs this script anew; guard its main part by "
            'if __name__ == "__main__":'
        )


def submit(work: Callable[..., T], *given: Any) -> Future[tuple[T, Warned]]:
    """Promise what a function returns, and the warnings that it gave on the way."""
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
    # Nobody waits for what is done here, but somebody may wait for the processor.
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)


def close() -> None:
    """End the workers of this process, if it has any; what they had not begun is dropped."""
    pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with contextlib.suppress(OSError, ValueError):
                process.terminate()


def _listened(work: Callable[..., T], *given: Any) -> tuple[T, Warned]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = work(*given)
    return result, [(str(one.message), one.category) for one in caught]
