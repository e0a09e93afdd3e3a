"""How the event loop waits for threads: for the keeper's by one wake-up of a group of answers, for others by pools."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from restless_bandits.service.operations import ServiceError

T = TypeVar("T")


class Bridge:
    """Hands the results of futures of other threads to the event loop.

    A commit answers many requests at once. Waking the loop costs a system call, so the first answer of a group wakes it
    and the others only queue up behind.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: deque[tuple[Future[Any], asyncio.Future[Any]]] = deque()
        self._woken = False

    def waiting(self, future: Future[Any]) -> asyncio.Future[Any]:
        """Return what to await for a future of another thread."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        mine: asyncio.Future[Any] = loop.create_future()

        def done(theirs: Future[Any]) -> None:
            self._done.append((theirs, mine))
            if not self._woken:
                self._woken = True
                with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                    loop.call_soon_threadsafe(self._hand_over)

        future.add_done_callback(done)
        return mine

    def _hand_over(self) -> None:
        # First, so that what is done from here on wakes the loop again: an answer may be found twice early, never late.
        self._woken = False
        while self._done:
            theirs, mine = self._done.popleft()
            if mine.done():
                continue
            try:
                # In one go: each question to a future of another thread takes its lock.
                mine.set_result(theirs.result())
            except CancelledError:
                mine.cancel()
            except BaseException as error:
                mine.set_exception(error)


class ThreadPool:
    """Threads for one kind of blocking work: other kinds cannot take them."""

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
        """Drop work that has not begun."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)


def stopping() -> ServiceError:
    return ServiceError(503, "the service is stopping; ask again", retry_after=1.0)
