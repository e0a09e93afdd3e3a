"""The worker processes of the dashboard: two processes of low priority for slow analyses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from restless_bandits.service import thinking
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.keeper import Keeper
from restless_bandits.service.thinking import Mind
from restless_bandits.service.waiting import ThreadPool
from restless_bandits.service.worker_pools import ProcessPools

FRESH = 1.0
"""Seconds for which an analysis is cached."""
POOLS = {"follow": 1, "solve": 1}
"""Processes: the first follows logs, the second solves problems."""


class Thinker:
    """Two processes for slow analyses, started at the first view: one follows logs, the other solves problems."""

    def __init__(self, keeper: Keeper, aside: ThreadPool) -> None:
        self._keeper, self._aside = keeper, aside
        self._pools, self._begun = ProcessPools(POOLS), False
        self._lock = threading.RLock()
        self._coming: dict[str, Future[dict[str, Any]]] = {}
        self._found: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._optima: OrderedDict[str, _Optimum] = OrderedDict()

    def begin(self) -> None:
        """Start the processes ahead of the first analysis."""
        if not self._begun:
            self._begun = True
            for pool in POOLS:
                self._pools.submit(pool, thinking.awake)

    async def think(self, name: str) -> dict[str, Any]:
        """Return the recent or a new analysis of an agent; simultaneous requests share the computation."""
        age, found = self._found.get(name, (0.0, {}))
        if time.monotonic() - age < FRESH:
            return found
        coming = await self._aside(self._thoughts_of, name)
        # A cancelled request does not cancel the analysis: other requests may wait for it.
        found = await self._pools.result("follow", asyncio.shield(asyncio.wrap_future(coming)))
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
                coming = self._coming[name] = self._pools.submit("follow", thinking.think, url, mind)
        return coming

    def _solve_if_due(self, mind: Mind) -> None:
        """Solve the learned problem in the background, if enough observations arrived since the last solution."""
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
            known.promise = self._pools.submit("solve", thinking.optimum, mind)

    async def what_if(self, arms: list[dict[str, Any]], plays: int) -> dict[str, Any]:
        """Return the optimum of the given hypothetical arms."""
        coming = await self._aside(self._pools.submit, "solve", thinking.what_if, arms, plays)
        return await self._pools.result("solve", asyncio.wrap_future(coming))

    def close(self) -> None:
        """End the processes, even in the middle of an analysis."""
        self._pools.close()


@dataclass
class _Optimum:
    """The optimum of an agent's learned problem: the last result, and the computation in progress."""

    found: dict[str, Any] | None = None
    promise: Future[dict[str, Any]] | None = None
    slots: int = 0
    service: tuple[int, ...] = ()

    def is_old(self, slots: int, service: tuple[int, ...]) -> bool:
        return service != self.service or slots >= thinking.GROWTH * self.slots

    def take(self) -> dict[str, Any] | None:
        """Return the last result; a failed solver leaves the previous result."""
        if self.promise is not None and self.promise.done() and not self.promise.cancelled():
            self.found = self.found if self.promise.exception() is not None else self.promise.result()
        return self.found


def mind_of(hosted: Hosted) -> Mind:
    """Return a snapshot of an agent."""
    player = hosted.player
    return Mind(hosted.name, hosted.seq, player.record.copy(), player.task, tuple(player._service))
