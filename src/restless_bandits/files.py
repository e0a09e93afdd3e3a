"""Files that are there whole or not at all, and what can stand in the way of writing one.

A file is written under a temporary name in the folder where it belongs, flushed to the disk, and renamed. A symbolic
link is followed, so that it goes on pointing where it points. A pipe or a device cannot be renamed onto without being
destroyed, so nothing is written to one.
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

from restless_bandits.errors import ProblemError

PATIENCE = 10.0
"""Seconds to wait for somebody who is writing the same file; writing takes milliseconds."""

Content = bytes | Callable[[IO[bytes]], Any]
"""What a file holds, or a function that writes it into the open file."""


def read_file(path: str | Path) -> bytes:
    """Return what a file holds; whatever prevents it is a ``ProblemError``."""
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProblemError(f"cannot read {str(path)[:200]}: {reason}") from None


def read_archive(path: str | Path) -> dict[str, Any]:
    """Return the arrays of an .npz file, without pickle; one that is damaged, in whatever way, is a ``ValueError``."""
    import numpy as np  # which takes longer to load than the command line's help

    # Opened here, because NumPy leaves a file open that turns out to be no archive.
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


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Let one process or thread at a time read and replace a file, of those who ask here.

    The lock is a file of its own beside it, since the file itself is replaced, and goes away with the block. The system
    takes it from a process that dies, whatever that one leaves behind.
    """
    place = Path(os.path.realpath(path))
    beside = place.with_name(f".{place.name}.lock")
    until = time.monotonic() + PATIENCE
    while True:
        try:
            number = os.open(beside, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise ProblemError(f"cannot write {path}: {error.strerror or error}") from None
        # One that somebody removed while we waited for it keeps nobody out.
        if _try_lock(number) and _is_open_as(beside, number):
            break
        os.close(number)
        if time.monotonic() > until:
            raise ProblemError(f"cannot write {path}: somebody else has been writing it for {PATIENCE:g} s; try again")
        time.sleep(0.01)
    try:
        yield
    finally:
        # Before the lock is given up, so that nobody waits for a name that is gone; Windows keeps what is open.
        with contextlib.suppress(OSError):
            beside.unlink()
        os.close(number)


def hold(path: str | Path) -> int:
    """Open a file for adding to it, and let nobody else do so as long as it is open; return its descriptor."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror or error}") from None
    # Windows locks single bytes, for readers too, and below 2 GB: one that is not soon read.
    os.lseek(number, 1 << 30, os.SEEK_SET)
    if not _try_lock(number):
        os.close(number)
        raise ProblemError(f"cannot write {path}: somebody else is writing to it; let one process at a time do so")
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
