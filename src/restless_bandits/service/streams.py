"""An agent's events as they happen: server-sent events, which a reader can take up again where it left off.

What is sent is read from the log a page at a time, so a reader that is slow costs no memory, and one that comes back
with the number of its last event misses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from restless_bandits.service.operations import ServiceError

RoleOf = Callable[[], Awaitable[str | None]]
"""The role that a reader has now, None where the token is revoked or the session has ended: its stream ends then."""
ROUTES = ("/agents/{name}/stream", "/page/live")
LOOK_AGAIN = 1.0
"""Seconds after which the log is read without a sign: another process may have written to it."""
QUIET = 15.0
"""Seconds after which a line is sent that says nothing, so that nobody on the way takes the connection for dead."""
TOGETHER = 0.05
"""Seconds in which events are gathered."""


class Streams:
    """The streams that are open; all of them end when the service stops."""

    def __init__(self, keeper: Any, most: int, page: int) -> None:
        self._keeper, self._most, self._page = keeper, most, page
        self.open = 0
        """How many places are held."""
        self._stopping = False
        self._wakers: set[asyncio.Event] = set()
        self.at_stop: list[Callable[[], None]] = []
        """What else is to be ended with the streams."""

    def stop(self) -> None:
        """Let every stream send what it has and end."""
        self._stopping = True
        for wake in self._wakers:
            wake.set()
        for end in self.at_stop:
            end()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places for streams, from before the request is looked at until its answer has ended."""
        if self.open >= self._most:
            raise ServiceError(429, f"{self._most} streams are open already; close one", retry_after=5.0)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def lines(self, name: str, after: int, role_of: RoleOf) -> AsyncIterator[bytes]:
        """Yield the events that are numbered above ``after``, for ever."""
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        # Each is registered before the log is read: what is committed in between wakes it.
        unlisten = self._keeper.listen(name, _waker(loop, wake))
        self._wakers.add(wake)
        try:
            yield b"retry: 1000\n: events of an agent\n\n"
            last_sent = loop.time()
            while await role_of() is not None:
                wake.clear()
                try:
                    page = await asyncio.to_thread(self._keeper.events, name, after, self._page)
                except ServiceError:  # it was deleted, or the store does not answer: the reader comes again and is told
                    return
                if page["events"]:
                    yield b"".join(map(framed, page["events"]))
                    after, last_sent = page["events"][-1]["seq"], loop.time()
                    if len(page["events"]) == self._page:
                        continue
                if self._stopping:
                    return
                if loop.time() - last_sent > QUIET:
                    yield b": still here\n\n"
                    last_sent = loop.time()
                await asyncio.sleep(TOGETHER)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake.wait(), LOOK_AGAIN)
        finally:
            self._wakers.discard(wake)
            unlisten()

    async def frames(
        self, name: str | None, make: Callable[[], Awaitable[dict[str, Any] | None]], every: float, role_of: RoleOf
    ) -> AsyncIterator[bytes]:
        """Yield what ``make`` returns, if anything, when an agent has changed, and once in ``every`` seconds at most.

        Without a name nobody says when something has changed, and it is asked every so often.
        """
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        unlisten = (lambda: None) if name is None else self._keeper.listen(name, _waker(loop, wake))
        self._wakers.add(wake)
        try:
            yield b"retry: 1000\n\n"
            last_sent = loop.time()
            while not self._stopping and await role_of() is not None:
                wake.clear()
                try:
                    frame = await make()
                except ServiceError:  # as above
                    return
                if frame is not None:
                    yield b"data: " + json.dumps(frame, separators=(",", ":"), allow_nan=False).encode() + b"\n\n"
                    last_sent = loop.time()
                elif loop.time() - last_sent > QUIET:
                    yield b": still here\n\n"
                    last_sent = loop.time()
                await asyncio.sleep(every)
                if name is not None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(wake.wait(), LOOK_AGAIN)
        finally:
            self._wakers.discard(wake)
            unlisten()


def framed(event: dict[str, Any]) -> bytes:
    """An event as a stream holds it."""
    data = json.dumps(event, separators=(",", ":"), allow_nan=False)
    return f"id: {event['seq']}\nevent: {event['kind']}\ndata: {data}\n\n".encode()


def _waker(loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> Callable[[int], None]:
    def called(_: int) -> None:
        # From the writer's thread, after every commit: the loop is disturbed only if it does not know yet.
        if not wake.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(wake.set)

    return called
