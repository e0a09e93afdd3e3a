"""Pools of workers: threads of this process, processes of this machine, or a cluster.

A pool takes a piece of a cell and returns a future of its runs. Threads start at once and share the tables of the
problem; threads suit learners with rare plans, whose runs are nearly all compiled code without the interpreter lock.
Learners with thousands of plans a run hold the lock most of the time, and two threads are then slower than one thread.
Processes start in about a second and are independent. A Dask cluster (``dask_pool``) has the workers of many machines.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from restless_bandits._internal.workers import WorkerPool
from restless_bandits.simulation.jobs import PlayedRun, SimulationJob, play_runs


@runtime_checkable
class Pool(Protocol):
    """A pool of workers for pieces of cells."""

    @property
    def width(self) -> int:
        """How many pieces are played at a time."""

    def submit(self, job: SimulationJob, numbers: Sequence[int]) -> Future[list[PlayedRun]]:
        """Promise some runs of a cell."""

    def close(self) -> None:
        """Start no further pieces; running pieces continue."""


def cores() -> int:
    """Return the number of cores available to this process, fewer than all cores in a container."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ThreadPool:
    """Threads that do not delay the end of the program.

    Daemons, unlike the threads of the standard library: after an interrupt the program does not wait for the end of a
    run.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._work: queue.SimpleQueue[tuple[Future[list[PlayedRun]], SimulationJob, Sequence[int]] | None] = (
            queue.SimpleQueue()
        )
        self._threads: list[threading.Thread] = []

    def submit(self, job: SimulationJob, numbers: Sequence[int]) -> Future[list[PlayedRun]]:
        promised: Future[list[PlayedRun]] = Future()
        self._work.put((promised, job, numbers))
        if len(self._threads) < self.width:
            self._threads.append(threading.Thread(target=self._play, daemon=True))
            self._threads[-1].start()
        return promised

    def _play(self) -> None:
        while (piece := self._work.get()) is not None:
            promised, job, numbers = piece
            if not promised.set_running_or_notify_cancel():
                continue
            try:
                promised.set_result(play_runs(job, numbers))
            except BaseException as error:
                promised.set_exception(error)

    def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)


class ProcessPool:
    """Processes that end with this process, however it ends."""

    def __init__(self, width: int) -> None:
        self.width = width
        self._pool = WorkerPool(width, report_compilation=True)

    def submit(self, job: SimulationJob, numbers: Sequence[int]) -> Future[list[PlayedRun]]:
        return self._pool.submit(play_runs, job, numbers)

    def close(self) -> None:
        self._pool.close()
