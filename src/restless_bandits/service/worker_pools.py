"""Worker processes of low priority for readers, apart from those that make plans."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from typing import Any, TypeVar

from restless_bandits._internal.workers import begin_worker
from restless_bandits.service.api.loop_bridge import stopping
from restless_bandits.service.operations import ServiceError

T = TypeVar("T")

RESULT_TIMEOUT_SECONDS = 60.0


class ProcessPools:
    """Process pools by name, each with its own number of workers; a pool whose workers died is replaced."""

    def __init__(self, workers: Mapping[str, int]) -> None:
        self._workers = workers
        self._pools: dict[str, ProcessPoolExecutor] = {}
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, pool: str, work: Callable[..., T], *given: Any) -> Future[T]:
        """Start a function in a process of a pool; the call blocks while a process starts."""
        with self._lock:
            if self._closed:
                raise stopping()
            if pool not in self._pools:
                context = multiprocessing.get_context("spawn")
                workers = self._workers[pool]
                self._pools[pool] = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin_low_priority)
            try:
                return self._pools[pool].submit(work, *given)
            except BrokenExecutor:
                del self._pools[pool]
                raise _died() from None

    async def result(self, pool: str, coming: asyncio.Future[T]) -> T:
        """Return the result of a function; a slow worker and a dead worker are refusals."""
        try:
            async with asyncio.timeout(RESULT_TIMEOUT_SECONDS):
                return await coming
        except (BrokenExecutor, asyncio.CancelledError) as error:
            if self._closed:
                raise stopping() from None
            if isinstance(error, asyncio.CancelledError):
                raise
            with self._lock:
                self._pools.pop(pool, None)
            raise _died() from None
        except TimeoutError:
            raise ServiceError(503, "the computation takes too long now; ask again", retry_after=5.0) from None

    def close(self) -> None:
        """End all processes, even during work."""
        with self._lock:
            self._closed = True
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()


def _begin_low_priority() -> None:
    begin_worker()
    with contextlib.suppress(AttributeError, OSError):
        os.nice(10)


def _died() -> ServiceError:
    return ServiceError(503, "the worker process of the computation died; ask again", retry_after=1.0)
