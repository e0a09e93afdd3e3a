"""Where the service keeps its agents: a SQLite file, or a PostgreSQL database that several processes share.

SQLite writes ahead and waits for the disk at every commit. Whoever writes takes the rows of the agents that it touches
for itself, in ascending order, until the commit: in PostgreSQL one by one, in SQLite all at once.
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

from restless_bandits.errors import ProblemError, shortened
from restless_bandits.files import check_writable
from restless_bandits.service import failpoints
from restless_bandits.service.operations import RETRY_AFTER, ServiceError
from restless_bandits.service.schema import bring_up_to_date
from restless_bandits.service.session import Session, Statements
from restless_bandits.service.tokens import Tokens

BUSY = 5.0
"""Seconds to wait for another process that writes to the same SQLite file."""

IN_EACH_OTHERS_WAY = ("40001", "40P01")
"""What PostgreSQL calls a serialization failure and a deadlock."""
LONGEST_WAL = 8_000
"""Pages of the write-ahead log at which a commit copies them to their places; it is done aside long before."""


class StoreError(Exception):
    """What was to be written is not, and not in part: the disk is full, the connection lost, the file locked.

    ``passing`` says that two processes were in each other's way or that the connection was gone before anything was
    done, and that the same will do when it is tried again.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


def unavailable(error: Exception) -> ServiceError:
    """Return the refusal of whatever needs a store that does not work now."""
    return ServiceError(503, f"the store does not take anything now: {error}; ask again", retry_after=RETRY_AFTER)


def open_store(where: str | Path) -> Store:
    """Open a store, and make it where there is none: a file, or a URL such as ``postgresql+psycopg://host/name``."""
    text = str(where)
    try:
        url = make_url(text if "://" in text else f"sqlite:///{text}")
    except (ArgumentError, ValueError):
        raise ProblemError(f"the store {shortened(text)} is no file and no URL of a database") from None
    shown = url.render_as_string(hide_password=True) if "://" in text else text
    name = url.get_backend_name()
    if name == "sqlite":
        if not url.database or url.database == ":memory:":
            raise ProblemError("a store in memory would lose everything; name a file")
        check_writable(url.database)
        if not Path(url.database).exists():
            # The tokens' hashes and all that was told: for the owner alone.
            os.close(os.open(url.database, os.O_CREAT | os.O_RDWR, 0o600))
    elif name != "postgresql":
        raise ProblemError(f"the store {shown} is of a kind that is not known; give a file or postgresql+psycopg://…")
    try:
        engine = create_engine(url, **_options(name))
    except (NoSuchModuleError, ImportError, SQLAlchemyError):
        raise ProblemError(
            f"the driver of {shown} is not installed; pip install 'restless-bandits[postgres]' and write "
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
        # A connection costs little, and one that is kept by a thread of the web server would keep old pages alive.
        return {
            "poolclass": NullPool,
            "paramstyle": "named",
            "connect_args": {"timeout": BUSY, "check_same_thread": False},
        }
    return {"pool_pre_ping": True, "pool_size": 8, "max_overflow": 32, "connect_args": {"connect_timeout": 5}}


def _set_up_sqlite(engine: Engine, shown: str) -> StoreFile:
    file = StoreFile(str(engine.url.database), shown)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _: Any, __: Any, options: dict[str, Any]) -> Any:
        return dialect.dbapi.connect(file.uri, **options, uri=True)

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        # Transactions are begun below, not by the driver's guess.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={int(BUSY * 1000)}")
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"wal_autocheckpoint={LONGEST_WAL}"):
            cursor.execute(f"PRAGMA {setting}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # One that reads and then writes would fail where somebody has written in between.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN")

    return file


class StoreFile:
    """The file of a SQLite store, and whether it is still the one that was opened.

    A service keeps its file open, and would go on writing to one that has been deleted or replaced: what it then
    acknowledged would be lost at the next start.
    """

    def __init__(self, path: str, shown: str) -> None:
        self._path, self._shown = Path(path).absolute(), shown
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self.uri = f"{self._path.as_uri()}?mode=rw"
        """The file for SQLite, which is not to make one in its place."""
        found = self._path.stat()
        self._identity, self._size = _identity(found), found.st_size
        self._log_identity: tuple[int, int] | None = None
        self._lost: StoreError | None = None

    def check(self) -> None:
        """Raise ``StoreError`` where the file is gone, another one, or cut off."""
        if self._lost is not None:
            raise self._lost
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._error(f"cannot be found ({error.strerror})") from None
        if _identity(found) != self._identity:
            raise self._error("is another file than the one that was opened")
        if found.st_size < self._size and not self._is_whole(found.st_size):
            raise self._error("is shorter than it was")
        self._size = found.st_size

    def expect_new_log(self) -> None:
        """Expect another write-ahead log: it is made by the first connection, and removed with the last one."""
        self._log_identity = None

    def check_log(self) -> None:
        """Raise ``StoreError``, now and ever after, where the write-ahead log is not that of the connection."""
        found = None
        with contextlib.suppress(OSError):
            found = _identity(self._log.stat())
        if self._log_identity not in (None, found):
            self._lost = self._error(f"has lost {self._log.name}, which held what was written last")
            raise self._lost
        self._log_identity = found

    def _is_whole(self, size: int) -> bool:
        """Whether the header agrees with the size, as after a VACUUM."""
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
    """An open store; made by ``open_store``."""

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
        # A writer that does not end, as on a disk that does not answer, keeps its connection: it ends with the process.
        if self._busy.acquire(timeout=BUSY):
            self._let_go()
            self._busy.release()
        self.engine.dispose()

    @contextlib.contextmanager
    def _connected(self, *, writes: bool = False) -> Iterator[Connection]:
        """Yield a connection within a transaction; a store that does not work is refused in a sentence."""
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
        """Read what is committed."""
        self._check_there()
        try:
            with self.engine.connect() as connection:
                yield Session(connection.connection.driver_connection, self._texts)
        except self.errors as error:
            raise StoreError(_reason(error)) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[Session]:
        """Write, all or nothing: when this ends without an error, everything is on disk. One at a time does."""
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
                # The driver begins nothing by itself. One that reads first and then writes would fail where somebody
                # has written in between.
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
            # What went into a file without a name is not on disk for anybody.
            self._check_there()
            failpoints.passed("after-commit")
        except self.errors as error:
            state = getattr(getattr(error, "orig", None) or error, "sqlstate", None)
            # A database that was started anew has closed our connection; before the commit nothing can be there.
            cut_off = not committing and bool(getattr(driver, "closed", False))
            self._let_go()
            raise StoreError(_reason(error), passing=cut_off or state in IN_EACH_OTHERS_WAY) from error
        except BaseException:
            self._let_go()
            raise
        finally:
            self._busy.release()

    def _let_go(self) -> None:
        """Close the connection of the writer: whatever is wrong with it, the next one is new."""
        if self._writer is not None:
            with contextlib.suppress(*self.errors):
                self._writer.driver_connection.rollback()  # type: ignore[union-attr]
            with contextlib.suppress(*self.errors):
                self._writer.invalidate()
            self._writer = None

    def tidy(self) -> None:
        """Copy what was written ahead to its place, without anybody waiting for it."""
        if self.is_sqlite:
            with contextlib.suppress(StoreError), self.reading() as session:
                session.checkpoint()

    def backup(self, path: str | Path) -> None:
        """Copy the store to a file while it is being written to; the file appears whole or not at all."""
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
            mine = sqlite3.connect(self._file.uri, timeout=BUSY, uri=True)
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
    """The first line of what the driver says."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split("\n")[0].split()) or type(cause).__name__
