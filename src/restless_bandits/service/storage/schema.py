"""Tables of a store for SQLite and PostgreSQL, and the migration of stores of earlier releases.

The event log is the source of truth (event sourcing). All other tables derive from the log or cache results: the last
event number of each agent, plans by digest, and snapshots for recovery.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.engine import Connection

from restless_bandits._internal.errors import ProblemError
from restless_bandits.service import failpoints

VERSION = 1
LOG_VERSION = 2
"""Since version 2 arms may react to pulls, and ``lost`` may say that an arm was not pulled."""
SNAPSHOT_VERSION = 2
"""Snapshots of version 1 of agents with a wall clock may hold slots that passed without an event in the log."""

metadata = MetaData()
_number = BigInteger().with_variant(Integer, "sqlite")

about = Table("about", metadata, Column("key", Text, primary_key=True), Column("value", Text, nullable=False))

agents = Table(
    "agents",
    metadata,
    Column("id", _number, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("ended", BigInteger),
    Column("seq", BigInteger, nullable=False),
    Column("slots", BigInteger, nullable=False),
    Column("learner", Text, nullable=False),
    Column("clock", Text, nullable=False),
    Column("arms", Integer, nullable=False),
)
Index(
    "agents_by_name",
    agents.c.name,
    unique=True,
    sqlite_where=agents.c.ended.is_(None),
    postgresql_where=agents.c.ended.is_(None),
)

events = Table(
    "events",
    metadata,
    Column("agent", _number, ForeignKey("agents.id"), nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("slot", BigInteger),
    Column("request", Text),
    Column("at", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    PrimaryKeyConstraint("agent", "seq"),
    sqlite_with_rowid=False,
)
Index("events_by_slot", events.c.agent, events.c.slot)
Index(
    "events_by_request",
    events.c.agent,
    events.c.request,
    unique=True,
    sqlite_where=events.c.request.is_not(None),
    postgresql_where=events.c.request.is_not(None),
)

plans = Table(
    "plans",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("agent", _number, ForeignKey("agents.id"), primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("role", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("made", BigInteger, nullable=False),
    Column("revoked", BigInteger),
)

MIGRATIONS: dict[int, tuple[str, ...]] = {}
"""SQL statements of the migration from each version to the next version."""


def bring_up_to_date(connection: Connection, where: str) -> None:
    """Create the tables of an empty store, or migrate tables of an earlier version; atomic."""
    if connection.dialect.name == "postgresql":
        # With two processes starting at once, the second process finds the tables of the first process.
        connection.execute(text("SELECT pg_advisory_xact_lock(7261730)"))
    if not inspect(connection).has_table("about"):
        failpoints.passed("before-migration")
        if inspect(connection).get_table_names():
            raise ProblemError(f"{where} holds tables of another application; name a new file or database")
        metadata.create_all(connection)
        rows = {"schema": VERSION, "log": LOG_VERSION}
        connection.execute(insert(about), [{"key": key, "value": str(value)} for key, value in rows.items()])
        return
    found = int(connection.execute(select(about.c.value).where(about.c.key == "schema")).scalar_one())
    if found > VERSION:
        raise ProblemError(
            f"{where} was written by a later release (schema version {found}, this release reads {VERSION}); "
            "use that release"
        )
    for version in range(found, VERSION):
        failpoints.passed("before-migration")
        for statement in MIGRATIONS[version]:
            connection.execute(text(statement))
        connection.execute(update(about).where(about.c.key == "schema").values(value=str(version + 1)))
