"""A copy of a store into a store of any kind: the way from SQLite to PostgreSQL, and back."""

from __future__ import annotations

import contextlib

from sqlalchemy import func, insert, select, text
from sqlalchemy.exc import SQLAlchemyError

from restless_bandits._internal.errors import ProblemError
from restless_bandits.service.storage.schema import about, agents, metadata, tokens
from restless_bandits.service.storage.store import Store, open_store

ROWS = 2_000
"""Rows of a single write."""


def copy_store(source: Store, where: str) -> int:
    """Copy agents, logs, plans and tokens into an empty store; return the number of rows.

    All or nothing: a single transaction writes, and all reads see the store at the same moment.
    """
    with contextlib.closing(open_store(where)) as target:
        if target.engine.url == source.engine.url:
            raise ProblemError(f"{target.shown} is the store itself; name another one")
        try:
            return _copied(source, target)
        except SQLAlchemyError as error:
            reason = " ".join(str(getattr(error, "orig", None) or error).split())
            raise ProblemError(f"cannot copy {source.shown} to {target.shown}: {reason}") from None


def _copied(source: Store, target: Store) -> int:
    one_moment = {} if source.is_sqlite else {"isolation_level": "REPEATABLE READ"}
    count = 0
    with (
        source.engine.connect().execution_options(**one_moment) as reader,
        target.engine.connect().execution_options(writes=True) as writer,
        reader.begin(),
        writer.begin(),
    ):
        for table in (agents, tokens):
            if writer.execute(select(func.count()).select_from(table)).scalar_one():
                raise ProblemError(f"{target.shown} holds {table.name} already; name an empty store")
        for table in metadata.sorted_tables:
            if table is about:
                continue
            found = reader.execution_options(yield_per=ROWS).execute(select(table))
            for rows in found.mappings().partitions(ROWS):
                writer.execute(insert(table), [dict(row) for row in rows])
                count += len(rows)
        if not target.is_sqlite:
            # New agents get numbers above the copied numbers.
            writer.execute(
                text("SELECT setval(pg_get_serial_sequence('agents', 'id'), (SELECT coalesce(max(id), 1) FROM agents))")
            )
    return count
