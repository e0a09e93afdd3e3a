"""Statements of the service, compiled once for the database in use.

SQLAlchemy generates the text for SQLite or PostgreSQL. The driver executes the text directly, because every decision
costs a few statements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Engine, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from restless_bandits.service.storage.schema import agents, events, plans, snapshots

PAGE = 2_000
Event = dict[str, Any]


class AgentRow(NamedTuple):
    """Row of the table ``agents``; the fields are the columns."""

    id: int
    name: str
    made: int
    ended: int | None
    seq: int
    slots: int
    learner: str
    clock: str
    arms: int


class Snapshot(NamedTuple):
    """Compressed state of an agent after the event ``seq``."""

    seq: int
    version: int
    content: bytes


class Statements:
    """SQL texts of all statements for one kind of database."""

    def __init__(self, engine: Engine) -> None:
        self._dialect = engine.dialect
        upsert = postgresql.insert if engine.dialect.name == "postgresql" else sqlite.insert
        alive = agents.c.ended.is_(None)
        row = select(agents).where(agents.c.name == bindparam("name"), alive)
        log = select(events.c.seq, events.c.kind, events.c.request, events.c.at, events.c.body)
        log = log.where(events.c.agent == bindparam("agent"))
        part = log.where(events.c.seq > bindparam("after"), events.c.seq <= bindparam("until"))
        put: Any = upsert(agents)
        self.row = self._text(row)
        self.row_for_us = self._text(row.with_for_update())
        self.all_rows = self._text(select(agents).where(alive).order_by(agents.c.name))
        self.ever_rows = self._text(select(agents).order_by(agents.c.id))
        self.count = self._text(select(func.count()).select_from(agents).where(alive))
        entered = ["name", "made", "seq", "slots", "learner", "clock", "arms"]
        self.add_agent = self._text(put.on_conflict_do_nothing().returning(agents.c.id), entered)
        self.remove_agent = self._text(delete(agents).where(agents.c.id == bindparam("number")))
        changed: dict[str, Any] = {key: bindparam(key) for key in ("seq", "slots", "ended", "learner", "arms")}
        self.update_agent = self._text(update(agents).where(agents.c.id == bindparam("number")).values(changed))
        self.log = self._text(part.order_by(events.c.seq))
        self.of_slot = self._text(log.where(events.c.slot == bindparam("slot")).order_by(events.c.seq))
        self.of_request = self._text(log.where(events.c.request == bindparam("request")))
        self.add_events = self._text(insert(events), [column.name for column in events.c])
        kept: Any = upsert(plans)
        self.add_plans = self._text(kept.on_conflict_do_nothing(), ["digest", "content"])
        self.plan = self._text(select(plans.c.content).where(plans.c.digest == bindparam("digest")))
        mine = snapshots.c.agent == bindparam("agent")
        self.remove_snapshot = self._text(delete(snapshots).where(mine))
        placed: Any = upsert(snapshots)
        newer = {key: placed.excluded[key] for key in ("seq", "version", "content")}
        self.put_snapshot = self._text(
            placed.on_conflict_do_update(index_elements=[snapshots.c.agent], set_=newer),
            [column.name for column in snapshots.c],
        )
        self.snapshot = self._text(select(snapshots.c.seq, snapshots.c.version, snapshots.c.content).where(mine))

    def _text(self, statement: Any, columns: list[str] | None = None) -> str:
        return str(statement.compile(dialect=self._dialect, column_keys=columns))


class Session:
    """Queries and updates of the service on a connection of the driver."""

    def __init__(self, driver: Any, texts: Statements) -> None:
        self.driver, self._texts = driver, texts

    def _run(self, text: str, **values: Any) -> Any:
        cursor = self.driver.cursor()
        cursor.execute(text, values)
        return cursor

    def checkpoint(self) -> None:
        """Copy the write-ahead log of SQLite to the database file, as far as no reader blocks the copy."""
        self.driver.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def rows_of(self, names: Iterable[str], *, for_us: bool) -> dict[str, AgentRow]:
        """Return the rows of agents by name; ``for_us`` locks the rows for an update, in ascending order of names."""
        found = {}
        text = self._texts.row_for_us if for_us else self._texts.row
        for name in sorted(names):
            row = self._run(text, name=name).fetchone()
            if row is not None:
                found[name] = AgentRow(*row)
        return found

    def all_rows(self) -> list[AgentRow]:
        return [AgentRow(*row) for row in self._run(self._texts.all_rows).fetchall()]

    def ever_rows(self) -> list[AgentRow]:
        """Return the rows of all agents, deleted agents included, in order of creation."""
        return [AgentRow(*row) for row in self._run(self._texts.ever_rows).fetchall()]

    def count_agents(self) -> int:
        return int(self._run(self._texts.count).fetchone()[0])

    def add_agent(self, row: dict[str, Any]) -> int | None:
        """Insert an agent and return its number; None if the name is in use."""
        found = self._run(self._texts.add_agent, **row).fetchone()
        return None if found is None else int(found[0])

    def remove_agent(self, number: int) -> None:
        """Delete the row of an agent inserted in this transaction."""
        self._run(self._texts.remove_agent, number=number)

    def update_agents(self, rows: Sequence[dict[str, Any]]) -> None:
        self.driver.cursor().executemany(self._texts.update_agent, rows)

    def events(self, agent: int, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """Yield the events of an agent with numbers above ``after`` and at most ``until`` (None: to the end)."""
        while until is None or after < until:
            end = after + PAGE if until is None else min(after + PAGE, until)
            page = self._run(self._texts.log, agent=agent, after=after, until=end).fetchall()
            for row in page:
                yield _event(*row)
            # Event numbers have no gaps.
            if len(page) < end - after:
                return
            after = end

    def events_of_slot(self, agent: int, slot: int) -> list[Event]:
        return [_event(*row) for row in self._run(self._texts.of_slot, agent=agent, slot=slot).fetchall()]

    def event_of_request(self, agent: int, request: str) -> Event | None:
        row = self._run(self._texts.of_request, agent=agent, request=request).fetchone()
        return None if row is None else _event(*row)

    def add_events(self, rows: Sequence[dict[str, Any]]) -> None:
        self.driver.cursor().executemany(self._texts.add_events, rows)

    def add_plans(self, contents: dict[str, bytes]) -> None:
        rows = [{"digest": digest, "content": content} for digest, content in sorted(contents.items())]
        self.driver.cursor().executemany(self._texts.add_plans, rows)

    def plan(self, digest: str) -> bytes | None:
        row = self._run(self._texts.plan, digest=digest).fetchone()
        return None if row is None else bytes(row[0])

    def put_snapshot(self, agent: int, seq: int, version: int, content: bytes) -> None:
        """Insert or replace the snapshot of an agent in one statement, because other processes store snapshots too."""
        self._run(self._texts.put_snapshot, agent=agent, seq=seq, version=version, content=content)

    def remove_snapshot(self, agent: int) -> None:
        """Delete the snapshot of an agent; the event log suffices for recovery."""
        self._run(self._texts.remove_snapshot, agent=agent)

    def snapshot(self, agent: int) -> Snapshot | None:
        row = self._run(self._texts.snapshot, agent=agent).fetchone()
        return None if row is None else Snapshot(row[0], row[1], bytes(row[2]))


def _event(seq: int, kind: str, request: str | None, at: int, body: str) -> Event:
    event = {"seq": seq, "kind": kind, "at": at}
    if request is not None:
        event["request"] = request
    event.update(json.loads(body))
    return event
