"""Store of the agents of a service: a SQLite file, or a PostgreSQL database shared by several processes.

SQLite uses a write-ahead log and waits for the disk at every commit. A writing transaction locks the rows of its agents
until the commit. PostgreSQL locks row by row in ascending order, SQLite all rows at once.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, PoolProxiedConnection, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import check_writable
from restless_bandits._internal.optional_dependencies import install_command
from restless_bandits.service import failpoints
from restless_bandits.service.operations import RETRY_AFTER, ServiceError
from restless_bandits.service.storage.schema import bring_up_to_date
from restless_bandits.service.storage.session import Session, Statements
from restless_bandits.service.storage.tokens import Tokens

BUSY_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for another process with a write lock on the same SQLite file."""

CLOSE_TIMEOUT_SECONDS = 0.25
"""Seconds to wait at the close for a blocked writer."""

IN_EACH_OTHERS_WAY = ("40001", "40P01")
"""PostgreSQL error codes of a serialization failure and of a deadlock."""
LONGEST_WAL = 8_000
"""Pages of the write-ahead log that force a checkpoint at a commit; maintenance makes checkpoints much earlier."""


class StoreError(Exception):
    """Failed transaction without any effect: full disk, lost connection or locked file.

    ``passing`` marks an error to retry: a conflict with another process, or a connection lost before any effect.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


def unavailable(error: Exception) -> ServiceError:
    """Return the refusal of a request to a store that does not work."""
    return ServiceError(503, f"the store is unavailable now: {error}; send the request again", retry_after=RETRY_AFTER)


def open_store(where: str | Path) -> Store:
    """Open or create a store: a file, or a URL such as ``postgresql+psycopg://host/name``."""
    text = str(where)
    try:
        url = make_url(text if "://" in text else f"sqlite:///{text}")
    except (ArgumentError, ValueError):
        raise ProblemError(f"the store {shortened(text)} is no file and no database URL; give one of these") from None
    shown = url.render_as_string(hide_password=True) if "://" in text else text
    name = url.get_backend_name()
    if name == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ProblemError("a store in memory would lose everything; name a file")
        check_writable(url.database)
        if not Path(url.database).exists():
            # The file holds the hashes of tokens and all feedback: access for the owner only.
            os.close(os.open(url.database, os.O_CREAT | os.O_RDWR, 0o600))
    elif name != "postgresql":
        raise ProblemError(f"the store {shown} has an unknown kind of database; give a file or postgresql+psycopg://…")
    try:
        engine = create_engine(url, **_options(name))
    except (NoSuchModuleError, ImportError, SQLAlchemyError):
        raise ProblemError(
            f"the driver of {shown} is not installed; {install_command('postgres')} brings it, with the URL "
            "postgresql+psycopg://…"
        ) from None
    file = _set_up_sqlite(engine, shown) if name == "sqlite" else None
    store = Store(engine, shown, file)
    try:
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            bring_up_to_date(connection, shown)
        failpoints.passed("after-migration")
    except SQLAlchemyError as error:
        engine.dispose()
        raise ProblemError(f"cannot open the store {shown}: {_reason(error)}") from None
    except ProblemError:
        engine.dispose()
        raise
    return store


def _options(name: str) -> dict[str, Any]:
    if name == "sqlite":
        # A connection is cheap, and a connection kept by a thread of the web server would keep old pages alive.
        return {
            "poolclass": NullPool,
            "paramstyle": "named",
            "connect_args": {"timeout": BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
        }
    return {"pool_pre_ping": True, "pool_size": 8, "max_overflow": 32, "connect_args": {"connect_timeout": 5}}


def _set_up_sqlite(engine: Engine, shown: str) -> StoreFile:
    file = StoreFile(str(engine.url.database), shown)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, __: Any, options: dict[str, Any]) -> Any:
        return dialect.dbapi.connect(file.uri, **options, uri=True)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        # Transactions begin explicitly below, not by heuristics of the driver.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(BUSY_TIMEOUT_SECONDS * 1000)}")
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"wal_autocheckpoint={LONGEST_WAL}"):
            cursor.execute(f"PRAGMA {setting}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # A transaction that reads before a write would fail after a write of another process.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return file


class StoreFile:
    """File of a SQLite store, with checks of its identity.

    A service holds the file open and would keep writing to a deleted or replaced file. Commits acknowledged after the
    replacement would be lost at the next start.
    """

    def __init__(self, path: str, shown: str) -> None:
        self._path, self._shown = Path(path).absolute(), shown
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self.uri = f"{self._path.as_uri()}?mode=rw"
        """URI of the file for SQLite; the mode forbids the creation of a new file."""
        found = self._path.stat()
        self._identity, self._size = _identity(found), found.st_size
        self._log_identity: tuple[int, int] | None = None
        self._failure: StoreError | None = None

    def check(self) -> None:
        """Raise ``StoreError`` if the file is missing, replaced or truncated; a truncated file stays refused."""
        if self._failure is not None:
            raise self._failure
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._error(f"cannot be found ({error.strerror})") from None
        if _identity(found) != self._identity:
            raise self._error("is another file than the one that was opened")
        if found.st_size < self._size and not self._is_whole(found.st_size):
            # The next checkpoint makes the file longer again, and not whole.
            self._failure = self._error("is shorter than it was")
            raise self._failure
        self._size = found.st_size

    def expect_new_log(self) -> None:
        """Accept a new write-ahead log: the first connection creates the log, and the last connection removes it."""
        self._log_identity = None

    def check_log(self) -> None:
        """Raise ``StoreError``, now and at every later check, if the write-ahead log is not the connection's log."""
        found = None
        with contextlib.suppress(OSError):
            found = _identity(self._log.stat())
        if self._log_identity not in (None, found):
            self._failure = self._error(f"has lost {self._log.name}, which held the last commits")
            raise self._failure
        self._log_identity = found

    def _is_whole(self, size: int) -> bool:
        """Return whether the header agrees with the size, as after a VACUUM."""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            head = file.read(32)
            page = int.from_bytes(head[16:18], "big")
            pages = int.from_bytes(head[28:32], "big")
            return head.startswith(b"SQLite format 3\0") and size >= (65536 if page == 1 else page) * pages
        return False

    def _error(self, what: str) -> StoreError:
        return StoreError(f"{self._shown} {what}; stop the service and put the store back")


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class Store:
    """Open store, returned by ``open_store``."""

    def __init__(self, engine: Engine, shown: str, file: StoreFile | None = None) -> None:
        self.engine, self.shown, self._file = engine, shown, file
        self.tokens = Tokens(self._connected)
        self._texts = Statements(engine)
        assert engine.dialect.dbapi is not None
        self.errors = (SQLAlchemyError, engine.dialect.dbapi.Error)
        self._busy = threading.Lock()
        self._writer: PoolProxiedConnection | None = None

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        # A blocked writer, for example on a disk without response, keeps its connection until the end of the process.
        if self._busy.acquire(timeout=CLOSE_TIMEOUT_SECONDS):
            self._let_go()
            self._busy.release()
        self.engine.dispose()

    @contextlib.contextmanager
    def _connected(self, *, writes: bool = False) -> Iterator[Connection]:
        """Yield a connection within a transaction; errors of the store become a ``ServiceError``."""
        try:
            self._check_there()
            with self.engine.connect().execution_options(writes=writes) as connection, connection.begin():
                yield connection
        except (StoreError, *self.errors) as error:
            raise unavailable(error if isinstance(error, StoreError) else StoreError(_reason(error))) from error

    def _check_there(self) -> None:
        if self._file is not None:
            self._file.check()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session that reads committed data."""
        self._check_there()
        try:
            with self.engine.connect() as connection:
                yield Session(connection.connection.driver_connection, self._texts)
        except self.errors as error:
            raise StoreError(_reason(error)) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """Yield the session of an atomic transaction, on disk after a normal exit; a lock permits a single writer."""
        failpoints.passed("before-begin")
        self._busy.acquire()
        driver: Any = None
        committing = False
        try:
            self._check_there()
            if self._writer is None:
                self._writer = self.engine.raw_connection()
                if self._file is not None:
                    self._file.expect_new_log()
            driver = self._writer.driver_connection
            if self.is_sqlite:
                # The driver begins no transaction. A transaction that reads before a write would fail after a write
                # of another process.
                driver.execute("BEGIN IMMEDIATE")
            if self._file is not None:
                self._file.check_log()
            failpoints.passed("after-begin")
            yield Session(driver, self._texts)
            failpoints.passed("before-commit")
            committing = True
            if self.is_sqlite:
                driver.execute("COMMIT")
            else:
                driver.commit()
            # Commits to an unlinked file are lost to every process.
            self._check_there()
            failpoints.passed("after-commit")
        except self.errors as error:
            state = getattr(getattr(error, "orig", None) or error, "sqlstate", None)
            # A restarted database has closed the connection; before the commit, the transaction has no effect.
            cut_off = not committing and bool(getattr(driver, "closed", False))
            self._let_go()
            raise StoreError(_reason(error), passing=cut_off or state in IN_EACH_OTHERS_WAY) from error
        except BaseException:
            self._let_go()
            raise
        finally:
            self._busy.release()

    def _let_go(self) -> None:
        """Close the connection of the writer; the next transaction opens a new connection."""
        if self._writer is not None:
            with contextlib.suppress(*self.errors):
                self._writer.driver_connection.rollback()  # type: ignore[union-attr]
            with contextlib.suppress(*self.errors):
                self._writer.invalidate()
            self._writer = None

    def tidy(self) -> None:
        """Copy the write-ahead log to the database file without blocking a writer."""
        if self.is_sqlite:
            with contextlib.suppress(StoreError), self.reading() as session:
                session.checkpoint()

    def backup(self, path: str | Path) -> None:
        """Copy the store to a file during normal operation; the file appears complete or not at all."""
        if self._file is None:
            raise ProblemError("a PostgreSQL database is backed up by its own tools; use pg_dump")
        check_writable(path)
        target = Path(path)
        if target.exists():
            raise ProblemError(f"{path} is there already; name a new file for the backup")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        failpoints.passed("before-backup")
        try:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            self._file.check()
            mine = sqlite3.connect(self._file.uri, timeout=BUSY_TIMEOUT_SECONDS, uri=True)
            with contextlib.closing(mine) as source, contextlib.closing(sqlite3.connect(part)) as copy:
                source.backup(copy, pages=512)
                copy.execute("PRAGMA journal_mode=DELETE")
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.rename(target)
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except (sqlite3.Error, OSError, StoreError) as error:
            part.unlink(missing_ok=True)
            raise ProblemError(f"cannot back up {self.shown} to {path}: {error}") from None
        failpoints.passed("after-backup")


def _reason(error: Exception) -> str:
    """Return the first line of the error message of the driver."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split("\n")[0].split()) or type(cause).__name__
