"""Server-sent events of agents: a reader can resume a stream after the last received event.

The log is read page by page, so a slow reader costs no memory. A reader that reconnects with the number of its last
event misses no event.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from restless_bandits.service.operations import ServiceError

RoleOf = Callable[[], Awaitable[str | None]]
"""The present role of a reader, None after revocation or the end of the session: the stream then ends."""
ROUTES = ("/agents/{name}/stream", "/page/live")
LOOK_AGAIN = 1.0
"""Seconds after which the log is read without a notification: another process may have written to the log."""
QUIET = 15.0
"""Seconds after which a comment line is sent, so that no proxy takes the connection for dead."""
TOGETHER = 0.05
"""Seconds in which events are collected."""


class Streams:
    """The open streams; all of them end when the service stops."""

    def __init__(self, writer: Any, most: int, page: int) -> None:
        self._writer, self._most, self._page = writer, most, page
        self.open = 0
        """The number of reserved places."""
        self._stopping = False
        self._wakers: set[asyncio.Event] = set()
        self.at_stop: list[Callable[[], None]] = []
        """Further actions at the stop of the streams."""

    def stop(self) -> None:
        """Let every stream send its remaining events and end."""
        self._stopping = True
        for wake in self._wakers:
            wake.set()
        for end in self.at_stop:
            end()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Reserve a place in the stream quota, from before the check of the request to the end of the answer."""
        if self.open >= self._most:
            raise ServiceError(429, f"{self._most} streams are open already; close one", retry_after=5.0)
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    async def lines(self, name: str, after: int, role_of: RoleOf) -> AsyncIterator[bytes]:
        """Yield the events with numbers above ``after``, without end."""
        last = after

        async def page() -> tuple[bytes, bool]:
            nonlocal last
            events = (await asyncio.to_thread(self._writer.events, name, last, self._page))["events"]
            last = events[-1]["seq"] if events else last
            return b"".join(map(framed, events)), len(events) == self._page

        async for part in self._parts(name, page, TOGETHER, role_of):
            yield part

    async def frames(
        self, name: str | None, make: Callable[[], Awaitable[dict[str, Any] | None]], every: float, role_of: RoleOf
    ) -> AsyncIterator[bytes]:
        """Yield results of ``make`` other than None after changes of an agent, at most once in ``every`` seconds.

        Without an agent's name no notification exists, and ``make`` is called at regular intervals.
        """

        async def framed_now() -> tuple[bytes, bool]:
            frame = None if self._stopping else await make()
            data = None if frame is None else json.dumps(frame, separators=(",", ":"), allow_nan=False)
            return b"" if data is None else f"data: {data}\n\n".encode(), False

        async for part in self._parts(name, framed_now, every, role_of):
            yield part

    async def _parts(
        self, name: str | None, make: Callable[[], Awaitable[tuple[bytes, bool]]], every: float, role_of: RoleOf
    ) -> AsyncIterator[bytes]:
        """Yield bytes of ``make`` after changes of an agent, until the stop.

        ``make`` also returns whether more bytes follow at once.
        """
        loop, wake = asyncio.get_running_loop(), asyncio.Event()
        # Registration precedes the first read of the log: a commit in between wakes the stream.
        unlisten = (lambda: None) if name is None else self._writer.listen(name, _waker(loop, wake))
        self._wakers.add(wake)
        try:
            yield b"retry: 1000\n: events of an agent\n\n"
            last_sent = loop.time()
            while await role_of() is not None:
                wake.clear()
                try:
                    part, more = await make()
                except ServiceError:
                    # The agent was deleted, or the store fails: a reader gets the error at reconnection.
                    return
                if part or loop.time() - last_sent > QUIET:
                    yield part or b": still here\n\n"
                    last_sent = loop.time()
                if more:
                    continue
                if self._stopping:
                    return
                await asyncio.sleep(every)
                if name is not None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(wake.wait(), LOOK_AGAIN)
        finally:
            self._wakers.discard(wake)
            unlisten()


def framed(event: dict[str, Any]) -> bytes:
    """Return an event in the format of a stream."""
    data = json.dumps(event, separators=(",", ":"), allow_nan=False)
    return f"id: {event['seq']}\nevent: {event['kind']}\ndata: {data}\n\n".encode()


def _waker(loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> Callable[[int], None]:
    def called(_: int) -> None:
        # Called by the writer's thread after every commit; a loop that is already notified is not woken again.
        if not wake.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(wake.set)

    return called
