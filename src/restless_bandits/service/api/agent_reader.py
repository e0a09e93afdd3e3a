"""Reads of agents that block no thread: lookups by the writer, and estimates by worker processes.

The number of simultaneous estimates is bounded. Requests for the same estimate of the same events share a computation,
so a client that repeats a request adds no work.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.api.loop_bridge import BridgeThreads, LoopBridge
from restless_bandits.service.jobs import busy
from restless_bandits.service.operations import Answer, ServiceError
from restless_bandits.service.views import encoded
from restless_bandits.service.worker_pools import ReaderPool
from restless_bandits.service.writer import LOOK_TIMEOUT_SECONDS, CommandProcessor

T = TypeVar("T")

ESTIMATE_WORKERS = 2
Key = tuple[str, int, int]
"""The name of a view, the number of an agent, and the number of its last event."""


class AgentReader:
    """Reads agents for the event loop."""

    def __init__(self, writer: CommandProcessor, bridge: LoopBridge, most_estimates: int) -> None:
        self._writer, self._bridge, self._most = writer, bridge, most_estimates
        self._pool = ReaderPool(min(ESTIMATE_WORKERS, os.cpu_count() or 1))
        self._starts = BridgeThreads("estimates", 1)
        self._running = 0
        self._coming: dict[Key, asyncio.Future[bytes]] = {}

    async def look(self, name: str, what: Callable[[ServiceAgent], T]) -> T:
        """Return what a function reads in an agent, between two commits."""
        try:
            async with asyncio.timeout(LOOK_TIMEOUT_SECONDS):
                found: T = await self._bridge.awaited(self._writer.look_later(name, what))
                return found
        except TimeoutError:
            raise busy() from None

    async def compute(self, view: Callable[..., Answer], name: str) -> bytes:
        """Return a view of an agent's record as JSON."""
        key = await self.look(name, lambda agent_state: (view.__name__, agent_state.number, agent_state.seq))
        coming = self._coming.get(key)
        if coming is None:
            if self._running >= self._most:
                most = self._most
                raise ServiceError(429, f"{most} estimates are being computed already; ask again", retry_after=5.0)
            self._running += 1
            coming = self._coming[key] = asyncio.ensure_future(self._run(view, name))
            coming.add_done_callback(lambda done: self._forget(key, done))
        # A cancelled reader does not cancel the computation of the others.
        return await asyncio.shield(coming)

    async def _run(self, view: Callable[..., Answer], name: str) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            packed = await self.look(name, lambda agent_state: agent_state.packed_known())
            computed: Future[bytes] = await self._starts(self._pool.submit, encoded, view, packed)
        except BaseException:
            self._running -= 1
            raise

        def release(_: Future[bytes]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._release)

        # A computation without remaining readers still occupies a worker.
        computed.add_done_callback(release)
        return await self._pool.result(asyncio.wrap_future(computed))

    def _release(self) -> None:
        self._running -= 1

    def _forget(self, key: Key, done: asyncio.Future[bytes]) -> None:
        del self._coming[key]
        if not done.cancelled():
            done.exception()  # retrieved, because all readers may have been cancelled

    def close(self) -> None:
        self._starts.close()
        self._pool.close()
