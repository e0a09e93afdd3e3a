"""An event log of an agent, a line of JSON for each event, from which ``replay`` restores the agent.

    {"seq": 3, "kind": "tell", "slot": 1, "arms": [0], "states": [1], "rewards": [0.0], "mark": "5f0c…"}

The mark of a line is a digest of the line and of the previous mark: changes, omissions and insertions are detected. A
process killed during a write leaves a last line without an end; the event did not take effect, and the next writer
overwrites the line. One process at a time may write: the writer holds a lock on the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import check_writable, hold, read_file

Event = dict[str, Any]


def read_events(path: str | Path) -> tuple[list[Event], int, str]:
    """Return the complete events of a file without marks, their length in bytes, and the last mark."""
    events, length, mark = [], 0, ""
    for number, line in enumerate(read_file(path).splitlines(keepends=True), start=1):
        if not line.endswith(b"\n"):
            break  # Torn while it was written.
        try:
            event = json.loads(line)
            found = event.pop("mark")
            mark = _mark(mark, event)
            if event["seq"] != number or found != mark or not isinstance(event["kind"], str):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ProblemError(
                f"{path} is damaged in line {number}: it does not hold what was written; go back to an earlier copy"
            ) from None
        events.append(event)
        length += len(line)
    return events, length, mark


class History:
    """The event log of an agent; the first write opens and locks the file.

    ``events``, ``length`` and ``last`` are the results of ``read_events``, empty for a new file.
    """

    def __init__(self, path: str | Path, events: int = 0, length: int = 0, last: str = "") -> None:
        check_writable(path)
        self.path, self.events, self._length, self._last = Path(path), events, length, last
        self._file: int | None = None

    def append(self, kind: str, **content: Any) -> None:
        """Append an event; a failed write leaves the file unchanged and raises ``ProblemError``."""
        event = {"seq": self.events + 1, "kind": kind, **content}
        mark = _mark(self._last, event)
        line = json.dumps(event | {"mark": mark}).encode() + b"\n"
        file = self._open() if self._file is None else self._file
        try:
            if os.write(file, line) != len(line):
                raise OSError("the disk is full")
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._length)
            raise ProblemError(f"cannot write {self.path}: {error.strerror or error}") from None
        self.events, self._length, self._last = self.events + 1, self._length + len(line), mark

    def _open(self) -> int:
        file = hold(self.path)
        try:
            # Text after the last complete event may be an incomplete event.
            tail = read_file(self.path)[self._length :]
            if os.fstat(file).st_size < self._length or b"\n" in tail:
                found = "was written to by another process since this agent read it" if self.events else "is not empty"
                raise ProblemError(
                    f"{self.path} {found}; go on from what it holds with Agent.replay, or name another file"
                )
            os.ftruncate(file, self._length)
        except BaseException:
            os.close(file)
            raise
        self._file = file
        # At any end of the agent, close the file and release it for the next writer.
        weakref.finalize(self, os.close, file)
        return file

    def read(self, since: int = 0) -> Iterator[Event]:
        """Yield the events numbered above ``since``."""
        yield from read_events(self.path)[0][since:]


def _mark(before: str, event: Event) -> str:
    return hashlib.sha256((before + json.dumps(event)).encode()).hexdigest()[:16]
