"""Files that are there whole or not at all, and what can stand in the way of writing one.

A file is written under a temporary name in the folder where it belongs, flushed to the disk, and renamed. A symbolic
link is followed, so that it goes on pointing where it points. A pipe or a device cannot be renamed onto without being
destroyed, so nothing is written to one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from restless_bandits.errors import ProblemError

Content = bytes | Callable[[IO[bytes]], Any]
"""What a file holds, or a function that writes it into the open file."""


def save_file(path: str | Path, content: Content) -> None:
    """Write what a user asked for; whatever prevents it is a ``ProblemError``."""
    check_writable(path)
    try:
        write_file(path, content)
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror or error}") from None


def write_file(path: str | Path, content: Content) -> None:
    """Write a file so that it is there whole or not at all; an ``OSError`` is the caller's to explain."""
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            temporary.chmod(stat.S_IMODE(place.stat().st_mode))
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_writable(path: str | Path) -> None:
    """Refuse a place where no file can be written, before any work is done for it."""
    try:
        place = Path(os.path.realpath(path))
    except (OSError, ValueError) as error:
        raise ProblemError(f"cannot write {path!r}: {error}; give another name") from None
    folder = place.parent
    if not folder.is_dir():
        raise ProblemError(f"cannot write {path}: there is no folder {Path(path).parent}; make it first")
    if place.is_dir():
        raise ProblemError(f"cannot write {path}: it is a folder; name a file in it")
    if place.exists() and not place.is_file():
        raise ProblemError(f"cannot write {path}: it is a pipe or a device and no file; name a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ProblemError(f"cannot write {path}: the folder {folder} is read-only for you; name another")
    if place.exists() and not os.access(place, os.W_OK):
        raise ProblemError(f"cannot write {path}: the file is read-only for you; name another")


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two names stand for one file, there or not."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False
