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
    if name == "sqlite":
        _set_up_sqlite(engine)
    store = Store(engine, shown)
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


def _set_up_sqlite(engine: Engine) -> None:
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


class Store:
    """An open store; made by ``open_store``."""

    def __init__(self, engine: Engine, shown: str) -> None:
        self.engine, self.shown = engine, shown
        self.tokens = Tokens(engine)
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
    def reading(self) -> Iterator[Session]:
        """Read what is committed."""
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
            if self._writer is None:
                self._writer = self.engine.raw_connection()
            driver = self._writer.driver_connection
            if self.is_sqlite:
                # The driver begins nothing by itself. One that reads first and then writes would fail where somebody
                # has written in between.
                driver.execute("BEGIN IMMEDIATE")
            failpoints.passed("after-begin")
            yield Session(driver, self._texts)
            failpoints.passed("before-commit")
            committing = True
            if self.is_sqlite:
                driver.execute("COMMIT")
            else:
                driver.commit()
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
        if not self.is_sqlite:
            raise ProblemError("a PostgreSQL database is backed up by its own tools; use pg_dump")
        check_writable(path)
        target = Path(path)
        if target.exists():
            raise ProblemError(f"{path} is there already; name a new file for the backup")
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        failpoints.passed("before-backup")
        try:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            mine = sqlite3.connect(str(self.engine.url.database), timeout=BUSY)
            with contextlib.closing(mine) as source, contextlib.closing(sqlite3.connect(part)) as copy:
                source.backup(copy, pages=512)
                copy.execute("PRAGMA journal_mode=DELETE")
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            part.rename(target)
            folder = os.open(target.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
        except (sqlite3.Error, OSError) as error:
            part.unlink(missing_ok=True)
            raise ProblemError(f"cannot back up {self.shown} to {path}: {error}") from None
        failpoints.passed("after-backup")


def _reason(error: Exception) -> str:
    """The first line of what the driver says."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split("\n")[0].split()) or type(cause).__name__
