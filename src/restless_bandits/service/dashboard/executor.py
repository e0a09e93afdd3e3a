"""The worker processes of the dashboard: two processes of low priority for slow analyses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.api.loop_bridge import BridgeThreads
from restless_bandits.service.dashboard import analysis
from restless_bandits.service.dashboard.analysis import AgentSnapshot
from restless_bandits.service.worker_pools import ReaderPool
from restless_bandits.service.writer import CommandProcessor

CACHE_SECONDS = 1.0
"""Seconds for which an analysis is cached."""


class DashboardExecutor:
    """Two processes for slow analyses, started at the first view: one follows logs, the other solves problems."""

    def __init__(self, writer: CommandProcessor, aside: BridgeThreads) -> None:
        self._writer, self._aside = writer, aside
        self._follow, self._solve, self._begun = ReaderPool(1), ReaderPool(1), False
        self._lock = threading.RLock()
        self._coming: dict[str, Future[dict[str, Any]]] = {}
        self._found: OrderedDict[str, tuple[float, dict[str, Any]]] = OrderedDict()
        self._optima: OrderedDict[str, _Optimum] = OrderedDict()

    def begin(self) -> None:
        """Start the processes ahead of the first analysis."""
        if not self._begun:
            self._begun = True
            for pool in (self._follow, self._solve):
                pool.submit(analysis.awake)

    async def think(self, name: str) -> dict[str, Any]:
        """Return the recent or a new analysis of an agent; simultaneous requests share the computation."""
        age, found = self._found.get(name, (0.0, {}))
        if time.monotonic() - age < CACHE_SECONDS:
            return found
        coming = await self._aside(self._analysis_of, name)
        # A cancelled request does not cancel the analysis: other requests may wait for it.
        found = await self._follow.result(asyncio.shield(asyncio.wrap_future(coming)))
        for plan in found["plans"]:
            plan["seconds"] = self._writer.planner.took.get(plan["digest"])
        solved = self._optima.get(name)
        found["optimum"] = None if solved is None else solved.take()
        found["solving"] = solved is not None and solved.promise is not None and not solved.promise.done()
        self._found[name] = time.monotonic(), found
        self._found.move_to_end(name)
        if len(self._found) > analysis.KEPT_SUMMARIES:
            gone, _ = self._found.popitem(last=False)
            self._coming.pop(gone, None)
        return found

    def _analysis_of(self, name: str) -> Future[dict[str, Any]]:
        with self._lock:
            coming = self._coming.get(name)
            if coming is None or coming.done():
                snapshot = self._writer.read(name, snapshot_of)
                self._solve_if_due(snapshot)
                url = self._writer.store.engine.url.render_as_string(hide_password=False)
                coming = self._coming[name] = self._follow.submit(analysis.analyse, url, snapshot)
        return coming

    def _solve_if_due(self, snapshot: AgentSnapshot) -> None:
        """Solve the learned problem in the background, if enough observations arrived since the last solution."""
        slots, service = snapshot.record.slots, snapshot.service
        if len(service) > analysis.MOST_SOLVED or len(service) < snapshot.task.plays or not snapshot.record.pulls.any():
            self._optima.pop(snapshot.name, None)
            return
        known = self._optima.setdefault(snapshot.name, _Optimum())
        self._optima.move_to_end(snapshot.name)
        if len(self._optima) > analysis.KEPT_SUMMARIES:
            self._optima.popitem(last=False)
        if (known.promise is None or known.promise.done()) and known.is_old(slots, service):
            known.take()
            known.slots, known.service = slots, service
            known.promise = self._solve.submit(analysis.optimum, snapshot)

    async def what_if(self, arms: list[dict[str, Any]], plays: int) -> dict[str, Any]:
        """Return the optimum of the given hypothetical arms."""
        coming = await self._aside(self._solve.submit, analysis.what_if, arms, plays)
        return await self._solve.result(asyncio.wrap_future(coming))

    def close(self) -> None:
        """End the processes, even in the middle of an analysis."""
        self._follow.close()
        self._solve.close()


@dataclass
class _Optimum:
    """The optimum of an agent's learned problem: the last result, and the computation in progress."""

    found: dict[str, Any] | None = None
    promise: Future[dict[str, Any]] | None = None
    slots: int = 0
    service: tuple[int, ...] = ()

    def is_old(self, slots: int, service: tuple[int, ...]) -> bool:
        return service != self.service or slots >= analysis.SOLVE_GROWTH * self.slots

    def take(self) -> dict[str, Any] | None:
        """Return the last result; a failed solver leaves the previous result."""
        if self.promise is not None and self.promise.done() and not self.promise.cancelled():
            self.found = self.found if self.promise.exception() is not None else self.promise.result()
        return self.found


def snapshot_of(agent_state: ServiceAgent) -> AgentSnapshot:
    """Return a snapshot of an agent."""
    core = agent_state.core
    return AgentSnapshot(agent_state.name, agent_state.seq, core.record.copy(), core.task, core.arms_in_service)
