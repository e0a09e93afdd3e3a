"""Atomic writes of files, locks, and errors for places that cannot be written.

A file is written under a temporary name in its folder, flushed to the disk, and renamed. A symbolic link is followed
and keeps its target. A rename would destroy a pipe or a device: writes to pipes and devices are refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from restless_bandits._internal.errors import ProblemError

LOCK_TIMEOUT_SECONDS = 10.0
"""Seconds to wait for another writer of the same file; a write takes milliseconds."""

Content = bytes | Callable[[IO[bytes]], Any]
"""The content of a file, or a function that writes the content into the open file."""


def read_file(path: str | Path) -> bytes:
    """Return the content of a file; every failure is a ``ProblemError``."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProblemError(f"cannot read {str(path)[:200]}: {reason}") from None


def read_archive(path: str | Path) -> dict[str, Any]:
    """Return the arrays of an .npz file, without pickle; a damaged file is a ``ValueError``."""
    import numpy as np  # which takes longer to load than the command line's help

    # Opened here, because NumPy leaves an invalid archive open.
    with Path(path).open("rb") as file:
        try:
            with warnings.catch_warnings(action="error"), np.load(file, allow_pickle=False) as archive:
                arrays = dict(archive)
                if archive.zip.testzip() is not None:
                    raise ValueError("a checksum is wrong")
        except Exception as error:  # of zipfile, zlib, tokenize, ast and more: nobody lists what damage leads to
            raise ValueError(f"no archive of arrays: {error!r}") from None
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("it holds files that are no arrays")
    return arrays


def save_file(path: str | Path, content: Content) -> None:
    """Write a file requested by a user; every failure is a ``ProblemError``."""
    check_writable(path)
    try:
        write_file(path, content)
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror or error}") from None


def write_file(path: str | Path, content: Content) -> None:
    """Write a file atomically; the caller explains an ``OSError``."""
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


@contextlib.contextmanager
def locked(path: str | Path, timeout: float | None = None) -> Iterator[None]:
    """Let one process or thread at a time read and replace a file, among the callers of this function.

    The lock is a separate file next to the locked file, since the locked file is replaced; the block's end removes the
    lock. The system releases the lock of a dead process, whatever files the process leaves behind.
    """
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.lock")
    timeout = LOCK_TIMEOUT_SECONDS if timeout is None else timeout
    until = time.monotonic() + timeout
    while True:
        try:
            number = os.open(beside, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise ProblemError(f"cannot write {path}: {error.strerror or error}") from None
        # A lock file removed during the wait keeps no other process out.
        if _try_lock(number) and _is_open_as(beside, number):
            break
        os.close(number)
        if time.monotonic() > until:
            raise ProblemError(
                f"cannot write {path}: another process has been writing the file for {timeout:g} s; try again"
            )
        time.sleep(0.01)
    try:
        yield
    finally:
        # Before the release of the lock, to keep waiting processes from a removed name; Windows keeps open files.
        with contextlib.suppress(OSError):
            beside.unlink()
        os.close(number)


def hold(path: str | Path) -> int:
    """Open a file for appending, locked against other writers while open; return its descriptor."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror or error}") from None
    # Windows locks single bytes, for readers too, and below 2 GB: choose a byte far behind the content.
    os.lseek(number, 1 << 30, os.SEEK_SET)
    if not _try_lock(number):
        os.close(number)
        raise ProblemError(
            f"cannot write {path}: another process is writing to the file; let one process at a time write"
        )
    return number


def _is_open_as(path: Path, number: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(number))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(number: int) -> bool:
        try:
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(number: int) -> bool:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass  # A file system without locks: what is done under one is then nearly as safe.
        return True


def check_writable(path: str | Path) -> None:
    """Refuse a place where a file cannot be written, before any work for the file."""
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
    """Whether two names refer to the same file, existing or not."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False
