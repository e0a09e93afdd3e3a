"""Where the service keeps its agents: a SQLite file, or a PostgreSQL database that several processes share.

SQLite writes ahead and waits for the disk at every commit. Whoever writes takes the rows of the agents that it touches
for itself, in ascending order, until the commit: in PostgreSQL one by one, in SQLite all at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Row, create_engine, delete, event, func, insert, select, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from restless_bandits.errors import ProblemError, shortened
from restless_bandits.files import check_writable
from restless_bandits.service import failpoints
from restless_bandits.service.schema import agents, bring_up_to_date, events, plans, snapshots
from restless_bandits.service.tokens import Tokens

BUSY = 5.0
"""Seconds to wait for another process that writes to the same SQLite file."""

EventRow = dict[str, Any]


class StoreError(Exception):
    """What was to be written is not, and not in part: the disk is full, the connection lost, the file locked."""


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
        with store.writing() as connection:
            bring_up_to_date(connection, shown)
        failpoints.passed("after-migration")
    except (StoreError, DBAPIError) as error:
        engine.dispose()
        raise ProblemError(f"cannot open the store {shown}: {error}") from None
    except ProblemError:
        engine.dispose()
        raise
    return store


def _options(name: str) -> dict[str, Any]:
    if name == "sqlite":
        # A connection costs little, and one that is kept by a thread of the web server would keep old pages alive.
        return {"poolclass": NullPool, "connect_args": {"timeout": BUSY, "check_same_thread": False}}
    return {"pool_pre_ping": True, "pool_size": 8, "max_overflow": 32, "connect_args": {"connect_timeout": 5}}


def _set_up_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        # Transactions are begun below, not by the driver's guess.
        connection.isolation_level = None
        cursor = connection.cursor()
        for setting in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={int(BUSY * 1000)}"):
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
        self._writer: Connection | None = None

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        self._let_go()
        self.engine.dispose()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Read what is committed."""
        try:
            with self.engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(_reason(error)) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Write, all or nothing: when this ends without an error, everything is on disk. For one thread at a time."""
        failpoints.passed("before-begin")
        try:
            if self._writer is None or self._writer.closed:
                self._writer = self.engine.connect().execution_options(writes=True)
            with self._writer.begin():
                failpoints.passed("after-begin")
                yield self._writer
                failpoints.passed("before-commit")
            failpoints.passed("after-commit")
        except (SQLAlchemyError, sqlite3.Error) as error:
            self._let_go()
            raise StoreError(_reason(error)) from error
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Close the connection of the writer: whatever is wrong with it, the next one is new."""
        if self._writer is not None:
            with contextlib.suppress(SQLAlchemyError, sqlite3.Error):
                self._writer.close()
            self._writer = None

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


def rows_of(connection: Connection, names: Iterable[str], *, lock: bool) -> dict[str, Row[Any]]:
    """Return the rows of agents by their names, taken for ourselves in ascending order if they are to be changed."""
    of = select(agents).where(agents.c.name.in_(list(names)), agents.c.ended.is_(None)).order_by(agents.c.id)
    return {row.name: row for row in connection.execute(of.with_for_update() if lock else of)}


def all_rows(connection: Connection) -> Sequence[Row[Any]]:
    return connection.execute(select(agents).where(agents.c.ended.is_(None)).order_by(agents.c.name)).all()


def count_agents(connection: Connection) -> int:
    return int(connection.execute(select(func.count()).where(agents.c.ended.is_(None))).scalar_one())


def add_agent(connection: Connection, row: dict[str, Any]) -> int | None:
    """Enter an agent and return its number; None where another process has entered one of its name."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as upsert
    else:
        from sqlalchemy.dialects.sqlite import insert as upsert  # type: ignore[assignment]
    found = connection.execute(upsert(agents).values(row).on_conflict_do_nothing().returning(agents.c.id)).first()
    return None if found is None else int(found.id)


def remove_agent(connection: Connection, number: int) -> None:
    """Take back an agent that was entered in this transaction."""
    connection.execute(delete(agents).where(agents.c.id == number))


def read_events(connection: Connection, agent: int, after: int, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the events of an agent that are numbered above ``after``, in their order."""
    of = select(events).where(events.c.agent == agent, events.c.seq > after).order_by(events.c.seq).limit(limit)
    for row in connection.execution_options(yield_per=2000).execute(of):
        yield as_event(row)


def events_of_slot(connection: Connection, agent: int, slot: int) -> list[dict[str, Any]]:
    of = select(events).where(events.c.agent == agent, events.c.slot == slot).order_by(events.c.seq)
    return [as_event(row) for row in connection.execute(of)]


def event_of_request(connection: Connection, agent: int, request: str) -> dict[str, Any] | None:
    of = select(events).where(events.c.agent == agent, events.c.request == request)
    row = connection.execute(of).first()
    return None if row is None else as_event(row)


def as_event(row: Row[Any]) -> dict[str, Any]:
    event = {"seq": row.seq, "kind": row.kind, "at": row.at}
    if row.request is not None:
        event["request"] = row.request
    return event | json.loads(row.body)


def write_events(connection: Connection, rows: list[EventRow]) -> None:
    connection.execute(insert(events), rows)


def write_plans(connection: Connection, contents: dict[str, bytes]) -> None:
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as upsert
    else:
        from sqlalchemy.dialects.sqlite import insert as upsert  # type: ignore[assignment]
    rows = [{"digest": digest, "content": content} for digest, content in sorted(contents.items())]
    connection.execute(upsert(plans).on_conflict_do_nothing(), rows)


def read_plan(connection: Connection, digest: str) -> bytes | None:
    found = connection.execute(select(plans.c.content).where(plans.c.digest == digest)).scalar()
    return None if found is None else bytes(found)


def write_rows(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Bring the rows of agents up to date."""
    from sqlalchemy import bindparam

    of = update(agents).where(agents.c.id == bindparam("number"))
    changing = {key: bindparam(key) for key in rows[0] if key != "number"}
    connection.execute(of.values(changing), rows)


def write_snapshot(connection: Connection, agent: int, seq: int, version: int, content: bytes) -> None:
    """Put a snapshot in the place of an older one."""
    row = {"agent": agent, "seq": seq, "version": version, "content": content}
    connection.execute(delete(snapshots).where(snapshots.c.agent == agent))
    connection.execute(insert(snapshots), row)


def read_snapshot(connection: Connection, agent: int) -> Row[Any] | None:
    return connection.execute(select(snapshots).where(snapshots.c.agent == agent)).first()


def _reason(error: Exception) -> str:
    """The first line of what the driver says."""
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split("\n")[0].split()) or type(cause).__name__
