"""Worker processes: their start, and their end together with the parent process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Protocol

from restless_bandits._internal.compiling import compiling, compiling_long
from restless_bandits._internal.errors import harmless

COMPILING = (compiling, compiling_long)
"""Flags from workers to the parent process."""


class _Flag(Protocol):
    """An event of threads, or of processes."""

    def set(self) -> None: ...

    def wait(self) -> bool: ...


def _hand_on(known: _Flag, told: _Flag) -> None:
    known.wait()
    told.set()


def listen_to_workers(flags: Sequence[_Flag]) -> None:
    """Forward the flags of workers to this process."""
    for theirs, ours in zip(flags, COMPILING, strict=True):
        threading.Thread(target=_hand_on, args=(theirs, ours), daemon=True).start()


def begin_worker(flags: Sequence[_Flag] = ()) -> None:
    """Leave Ctrl-C to the parent, set its flags during compilation, and end with the parent."""
    for ours, parents in zip(COMPILING, flags, strict=False):
        threading.Thread(target=_hand_on, args=(ours, parents), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = _warn_in_one_line
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _warn_in_one_line(message: Warning | str, *_: object, **__: object) -> None:
    print(harmless(f"Warning: {message}"), file=sys.stderr)


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
