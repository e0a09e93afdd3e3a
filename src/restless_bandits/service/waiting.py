"""How the event loop waits for the keeper's thread: one wake-up for a whole group of answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import CancelledError, Future
from typing import Any


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
