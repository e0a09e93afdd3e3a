"""Worker processes: a pool that ends at once, even while a process starts, and goes on after a death."""

import multiprocessing
import os
import struct
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, CancelledError
from pathlib import Path

import pytest

from restless_bandits._internal.workers import WorkerPool

FOR_EVER = 600.0


def children():
    return {process.pid for process in multiprocessing.active_children()}


def test_a_process_that_starts_during_a_close_is_ended(monkeypatch):
    process_type = multiprocessing.get_context("spawn").Process
    started, registered = threading.Event(), threading.Event()
    start = process_type.start

    def slow_start(process):
        start(process)
        started.set()
        assert registered.wait(60)

    monkeypatch.setattr(process_type, "start", slow_start)
    before, pool = children(), WorkerPool(1)
    submitted, closed = [], threading.Thread(target=pool.close)
    submitting = threading.Thread(target=lambda: submitted.append(pool.submit(time.sleep, FOR_EVER)))
    submitting.start()
    assert started.wait(60)
    closed.start()
    # The close waits for the start: it has no other way to learn of the process.
    closed.join(0.1)
    registered.set()
    submitting.join(60)
    closed.join(60)
    with pytest.raises((BrokenExecutor, CancelledError)):
        submitted[0].result(60)
    assert children() <= before


def send_half_a_result(begun):
    """A worker of a pool in the midst of sending a large result: the length, and never the rest."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1_000_000))
    Path(begun).touch()
    time.sleep(FOR_EVER)


def test_a_process_that_is_sending_a_result_is_ended(tmp_path):
    before, pool, begun = children(), WorkerPool(1), tmp_path / "begun"
    coming = pool.submit(send_half_a_result, begun)
    while not begun.exists():
        time.sleep(0.01)
    pool.close()
    with pytest.raises(BrokenExecutor):
        coming.result(60)
    assert children() <= before


def test_a_closed_pool_starts_nothing():
    before, pool = children(), WorkerPool(1)
    pool.close()
    assert pool.submit(time.sleep, FOR_EVER).cancelled()
    assert (pool.processes(), children()) == ([], before)


def test_a_pool_whose_worker_died_takes_the_next_task():
    pool = WorkerPool(1, low_priority=True)
    try:
        with pytest.raises(BrokenExecutor):
            pool.submit(os._exit, 1).result(60)
        # The pool learns of the death from its own thread, a moment before or after the task does.
        for _ in range(3):
            try:
                priority = pool.submit(os.nice, 0).result(60)
                break
            except BrokenExecutor:
                continue
        assert priority == min(19, os.nice(0) + 10)
    finally:
        pool.close()
