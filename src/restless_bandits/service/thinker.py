"""Who finds out what is slow for the live page: two processes of low priority, and threads that are the page's own."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from restless_bandits.service import thinking
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.keeper import Keeper
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.thinking import Mind

FRESH = 1.0
"""Seconds for which thoughts are kept."""
PATIENCE = 60.0
THREADS = 4

T = TypeVar("T")


class Aside:
    """Threads of the page's own: whoever looks must not take those in which tokens are checked."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="page")

    async def __call__(self, work: Callable[..., T], *given: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Thinker:
    """Two processes that find out what is slow, begun when somebody looks: one follows logs, the other one solves."""

    def __init__(self, keeper: Keeper, aside: Aside) -> None:
        self._keeper, self._aside = keeper, aside
        self._pools: dict[str, ProcessPoolExecutor] = {}
        self._lock = threading.RLock()
        self._coming: dict[str, Future[dict[str, Any]]] = {}
        self._found: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._optima: OrderedDict[str, _Optimum] = OrderedDict()

    def _submit(self, pool: str, work: Callable[..., dict[str, Any]], *given: Any) -> Future[dict[str, Any]]:
        with self._lock:
            if pool not in self._pools:
                context = multiprocessing.get_context("spawn")
                self._pools[pool] = ProcessPoolExecutor(1, mp_context=context, initializer=thinking.begin_thinking)
            try:
                return self._pools[pool].submit(work, *given)
            except BrokenExecutor:
                del self._pools[pool]
                raise _died() from None

    def begin(self) -> None:
        """Begin the processes, for somebody who will ask in a moment."""
        for pool in ("follow", "solve"):
            if pool not in self._pools:
                self._submit(pool, thinking.awake)

    async def think(self, name: str) -> dict[str, Any]:
        """Return the thoughts of an agent, made now or a moment ago; whoever asks meanwhile gets the same."""
        age, found = self._found.get(name, (0.0, {}))
        if time.monotonic() - age < FRESH:
            return found
        coming = await self._aside(self._thoughts_of, name)
        # Who goes away does not take the thought with him: others may wait for it.
        found = await self._result("follow", asyncio.shield(asyncio.wrap_future(coming)))
        for plan in found["plans"]:
            plan["seconds"] = self._keeper.planner.took.get(plan["digest"])
        solved = self._optima.get(name)
        found["optimum"] = None if solved is None else solved.take()
        found["solving"] = solved is not None and solved.promise is not None and not solved.promise.done()
        self._found[name] = time.monotonic(), found
        self._found.move_to_end(name)
        if len(self._found) > thinking.KEPT_TRAILS:
            gone, _ = self._found.popitem(last=False)
            self._coming.pop(gone, None)
        return found

    def _thoughts_of(self, name: str) -> Future[dict[str, Any]]:
        with self._lock:
            coming = self._coming.get(name)
            if coming is None or coming.done():
                mind = self._keeper.look(name, mind_of)
                self._solve_if_due(mind)
                url = self._keeper.store.engine.url.render_as_string(hide_password=False)
                coming = self._coming[name] = self._submit("follow", thinking.think, url, mind)
        return coming

    def _solve_if_due(self, mind: Mind) -> None:
        """Have the learned problem solved, if enough has been learned since that was done last."""
        slots, service = mind.record.slots, mind.service
        if len(service) > thinking.MOST_SOLVED or len(service) < mind.task.plays or not mind.record.pulls.any():
            self._optima.pop(mind.name, None)
            return
        known = self._optima.setdefault(mind.name, _Optimum())
        self._optima.move_to_end(mind.name)
        if len(self._optima) > thinking.KEPT_TRAILS:
            self._optima.popitem(last=False)
        if (known.promise is None or known.promise.done()) and known.is_old(slots, service):
            known.take()
            known.slots, known.service = slots, service
            known.promise = self._submit("solve", thinking.optimum, mind)

    async def what_if(self, arms: list[dict[str, Any]], plays: int) -> dict[str, Any]:
        """Return what would be best if the arms were such."""
        coming = await self._aside(self._submit, "solve", thinking.what_if, arms, plays)
        return await self._result("solve", asyncio.wrap_future(coming))

    async def _result(self, pool: str, coming: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(PATIENCE):
                return await coming
        except BrokenExecutor:
            with self._lock:
                self._pools.pop(pool, None)
            raise _died() from None
        except TimeoutError:
            raise ServiceError(503, "this takes too long now; ask again", retry_after=5.0) from None

    def close(self) -> None:
        """End the processes, whatever they do."""
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            processes = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()


@dataclass
class _Optimum:
    """The optimum of what an agent has learned: the last that was found, and the next one on its way."""

    found: dict[str, Any] | None = None
    promise: Future[dict[str, Any]] | None = None
    slots: int = 0
    service: tuple[int, ...] = ()

    def is_old(self, slots: int, service: tuple[int, ...]) -> bool:
        return service != self.service or slots >= thinking.GROWTH * self.slots

    def take(self) -> dict[str, Any] | None:
        """Return the last one that was found; a solver that failed leaves the one before."""
        if self.promise is not None and self.promise.done() and not self.promise.cancelled():
            self.found = self.found if self.promise.exception() is not None else self.promise.result()
        return self.found


def _died() -> ServiceError:
    return ServiceError(503, "the process that thinks has died; ask again", retry_after=1.0)


def mind_of(hosted: Hosted) -> Mind:
    """Return a copy of what an agent knows."""
    player = hosted.player
    return Mind(hosted.name, hosted.seq, player.record.copy(), player.task, tuple(player._service))
