"""Waiting of the event loop for threads: a single wake-up per group of the writer's answers, pools for other work."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from restless_bandits.service.operations import ServiceError

T = TypeVar("T")


class LoopBridge:
    """Hands the results of futures of other threads to the event loop.

    A commit answers many requests at once. Waking the loop costs a system call, so the first answer of a group wakes
    the loop and the others only join the queue.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: deque[tuple[Future[Any], asyncio.Future[Any]]] = deque()
        self._woken = False

    def awaited(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return an awaitable for a future of another thread."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        mine: asyncio.Future[Any] = loop.create_future()

        def done(theirs: Future[Any]) -> None:
            self._done.append((theirs, mine))
            if not self._woken:
                self._woken = True
                with contextlib.suppress(RuntimeError):  # the loop has ended, and no request waits
                    loop.call_soon_threadsafe(self._hand_over)

        future.add_done_callback(done)
        return mine

    def _hand_over(self) -> None:
        # This assignment comes first, so that later answers wake the loop again: an answer may be found twice, never
        # missed.
        self._woken = False
        while self._done:
            theirs, mine = self._done.popleft()
            if mine.done():
                continue
            try:
                # In one pass: every query of a foreign future takes its lock.
                mine.set_result(theirs.result())
            except CancelledError:
                mine.cancel()
            except BaseException as error:
                mine.set_exception(error)


class BridgeThreads:
    """Threads for a single kind of blocking work: other kinds cannot occupy them."""

    def __init__(self, name: str, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._closed = False

    async def __call__(self, work: Callable[..., T], *given: Any) -> T:
        try:
            return await asyncio.wrap_future(self._threads.submit(work, *given))
        except (RuntimeError, asyncio.CancelledError):
            if self._closed:
                raise stopping() from None
            raise

    def close(self) -> None:
        """Drop the work that has not begun."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def stopping() -> ServiceError:
    return ServiceError(503, "the service is stopping; ask again", retry_after=1.0)
