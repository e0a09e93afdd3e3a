"""The process of an entrant, with a time limit for each answer and a limit for a run.

A watchdog thread kills the process at the end of the time, which ends the wait for its answer: the same way works with
pipes of every system. The entrant's text on stderr goes into a file; its last line explains the death of a process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from restless_bandits._internal.errors import ProblemError, harmless
from restless_bandits.simulation.benchmark.messages import AnswerError, decode, encode

LONGEST_LINE = 1 << 27
"""Bytes of the longest answer."""
LOOK_SECONDS = 0.02
"""Seconds between two looks of the watchdog."""
END_SECONDS = 1.0
"""Seconds that an entrant has to end by itself after the last message."""
REFERENCE_STEPS = 40_000


class EntrantFailedError(AnswerError):
    """The death of an entrant's process, or its end by a time limit."""


@dataclass(frozen=True)
class TimeLimits:
    """Time limits of an entrant in seconds."""

    answer: float = 60.0
    run: float = 600.0


class EntrantProcess:
    """An entrant as a process of its own, that gets messages only."""

    def __init__(
        self, command: Sequence[str], time_limits: TimeLimits, cancelled: threading.Event | None = None
    ) -> None:
        self._time_limits, self._started = time_limits, time.monotonic()
        self._expired, self._cancelled = "", cancelled or threading.Event()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, start_new_session=True
            )
        except OSError as error:
            self._stderr.close()
            raise ProblemError(f"cannot start the program {command[0]}: {error.strerror or error}") from None
        self._deadline: float | None = None
        self._ended = threading.Event()
        self._cpu_at_start, self.cpu_seconds = 0.0, float("nan")
        threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._stderr):
            # The rest of a message to a dead process cannot be written.
            with contextlib.suppress(OSError, ValueError):
                if file is not None:
                    file.close()

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._deadline = time.monotonic() + self._time_limits.answer
        try:
            self._process.stdin.write(encode(message))
            self._process.stdin.flush()
            line = self._process.stdout.readline(LONGEST_LINE)
        except (OSError, ValueError):
            line = b""
        self._deadline = None
        if not line.endswith(b"\n"):
            raise EntrantFailedError(self._reason(len(line) == LONGEST_LINE))
        return decode(line)

    def mark_start(self) -> None:
        """Count CPU seconds from now on: the start of an interpreter is no part of a method."""
        self._cpu_at_start = self._cpu()

    def end(self) -> None:
        """Send the last message and wait for the end of the process."""
        self.cpu_seconds = self._cpu() - self._cpu_at_start
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            assert self._process.stdin is not None
            self._process.stdin.write(encode({"type": "end"}))
            self._process.stdin.close()
            self._process.wait(END_SECONDS)

    def _cpu(self) -> float:
        """Return the CPU seconds of the process and its ended children, where the system tells; else NaN."""
        try:
            text = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return float("nan")
        ticks = text.rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / float(os.sysconf("SC_CLK_TCK"))

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            now, deadline = time.monotonic(), self._deadline
            if deadline is not None and now > deadline:
                self._expired = f"it gave no answer within {self._time_limits.answer:g} s"
            elif now - self._started > self._time_limits.run:
                self._expired = f"its run took more than {self._time_limits.run:g} s"
            elif self._cancelled.is_set():
                self._expired = "the command was interrupted"
            if self._expired:
                self._kill()
                return

    def _kill(self) -> None:
        """End the process with its children."""
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self._process.kill()
            elif self._process.poll() is None:
                os.killpg(self._process.pid, 9)

    def _reason(self, too_long: bool) -> str:
        if too_long:
            return f"its answer has more than {LONGEST_LINE} bytes"
        try:
            code: int | None = self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if self._expired:
            return self._expired
        self._stderr.seek(0)
        lines = self._stderr.read().decode(errors="replace").strip().splitlines()
        said = f": {harmless(lines[-1])[:200]}" if lines else ""
        return f"it closed its answers{said}" if code is None else f"it ended with exit code {code}{said}"


def reference_seconds() -> float:
    """Return the CPU seconds of the reference program: a loop of Python and small products of NumPy.

    The program runs beside every run of an entrant, in the same load, and is the unit of CPU time.
    """
    started = time.thread_time()
    total, matrix, vector = 0.0, np.full((8, 8), 0.125), np.ones(8)
    for step in range(REFERENCE_STEPS):
        total += step % 7
        if step % 4 == 0:
            vector = matrix @ vector
    assert total > 0
    assert vector[0] > 0
    return time.thread_time() - started
