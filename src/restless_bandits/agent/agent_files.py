"""Agents in JSON files: written whole, with a digest, and never over observations of another process."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import check_writable, locked, read_file, save_file

KIND = "restless-bandits agent"
"""The beginning of the format of every stored agent."""


class AgentFiles:
    """The files that an agent was loaded from or saved to, with the mark of each as the agent left it."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def write(self, path: str | Path, data: dict[str, Any], *, overwrite: bool) -> None:
        """Write an agent, atomically; without ``overwrite`` a file with unknown content is not replaced."""
        content = json.dumps(data | {"digest": digest_of(data)}, separators=(",", ":")).encode()
        check_writable(path)
        with locked(path):
            if not overwrite:
                self._check_unchanged(path)
            save_file(path, content)
        self._known[os.path.realpath(path)] = _mark(content)

    def read(self, path: str | Path, formats: Sequence[str]) -> dict[str, Any]:
        """Return the data of a file of one of the formats, with its digest checked."""
        content = read_file(path)
        try:
            data: Any = json.loads(content)
            if not isinstance(data, dict) or data.get("format") not in formats:
                raise ValueError
        except (ValueError, RecursionError):
            raise ProblemError(f"{path} is not a stored agent of this version; write one with Agent.save") from None
        # Files of earlier versions have no digest.
        if "digest" in data and data.pop("digest") != digest_of(data):
            raise ProblemError(f"{path} is damaged: it does not hold what was written; go back to an earlier copy")
        self._known[os.path.realpath(path)] = _mark(content)
        return data

    def _check_unchanged(self, path: str | Path) -> None:
        """Refuse to replace a file with content unknown to this agent."""
        if not Path(path).exists():
            return
        present, known = read_file(path), self._known.get(os.path.realpath(path))
        if known not in (None, _mark(present)):
            found = "was saved by another process since this agent read or wrote it"
        elif known is None and KIND.encode() in present[:100]:
            found = "holds another agent"
        else:
            return
        raise ProblemError(
            f"{path} {found}, and saving would lose the observations of that agent; load it and go on from there, "
            "save under another name, or give overwrite=True"
        )


@contextlib.contextmanager
def explained(path: str | Path) -> Iterator[None]:
    """Name the file in errors about invalid stored data."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"cannot load {path}: {error}") from None
    except Exception as error:  # of a learner, maybe somebody else's, to which what is stored makes no sense
        reason = f"it is damaged, or its learner fails on the content: {error!r}"
        raise ProblemError(f"cannot load {path}: {reason}; go back to an earlier copy") from error


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of(data: dict[str, Any]) -> str:
    """A checksum of all stored data, which detects damage that leaves plausible numbers."""
    return _mark(json.dumps(data).encode())
