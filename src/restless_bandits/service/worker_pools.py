"""Worker processes for readers, apart from those that make plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any, TypeVar

from restless_bandits._internal.workers import WorkerPool
from restless_bandits.service.api.loop_bridge import stopping
from restless_bandits.service.operations import ServiceError

T = TypeVar("T")

RESULT_TIMEOUT_SECONDS = 60.0


class ReaderPool:
    """Worker processes of low priority whose failures are refusals of requests."""

    def __init__(self, workers: int) -> None:
        self._pool = WorkerPool(workers, low_priority=True)

    def submit(self, work: Callable[..., T], *given: Any) -> Future[T]:
        """Start a function in a process; the call blocks while a process starts."""
        return self._pool.submit(work, *given)

    async def result(self, coming: asyncio.Future[T]) -> T:
        """Return the result of a function; a slow worker and a dead worker are refusals."""
        try:
            async with asyncio.timeout(RESULT_TIMEOUT_SECONDS):
                return await coming
        except (BrokenExecutor, asyncio.CancelledError) as error:
            if self._pool.closed:
                raise stopping() from None
            if isinstance(error, asyncio.CancelledError):
                raise
            raise ServiceError(503, "the worker process of the computation died; ask again", retry_after=1.0) from None
        except TimeoutError:
            raise ServiceError(503, "the computation takes too long now; ask again", retry_after=5.0) from None

    def close(self) -> None:
        """End all processes, even during work."""
        self._pool.close()
