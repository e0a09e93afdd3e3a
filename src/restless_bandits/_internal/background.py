"""Background work of this process in worker processes of low priority: one pool, started on first use.

A pool with dead workers is replaced by the next task. A closed pool is replaced too.
"""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.workers import WorkerPool

T = TypeVar("T")

MOST_WORKERS = 4

Warned = list[tuple[str, type[Warning]]]

_pools: dict[int, WorkerPool] = {}
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
        pool = _pools[os.getpid()] = WorkerPool(min(MOST_WORKERS, os.cpu_count() or 1), low_priority=True)
    return pool.submit(with_warnings, work, *given)


def workers() -> int:
    """Return the number of worker processes that have started."""
    pool = _pools.get(os.getpid())
    return 0 if pool is None else len(pool.processes())


def close() -> None:
    """End the workers of this process, if any; tasks that have not begun are cancelled."""
    pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        pool.close()


def with_warnings(work: Callable[..., T], *given: Any) -> tuple[T, Warned]:
    """Return the result of a function and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = work(*given)
    return result, [(str(warning.message), warning.category) for warning in caught]
