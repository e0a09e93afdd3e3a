"""Agents in memory: a cache of what the store holds, never more.

An agent is made of its last snapshot and the events since. Its number of events is held against the store's whenever it
is asked for, and what other processes have added is played after. One that a refused request has spoilt is made anew.
"""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
import zlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from restless_bandits.errors import ProblemError, UntrustedModuleError
from restless_bandits.service.clock import BY_ASKING
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.planning import Planner, WaitError
from restless_bandits.service.schema import SNAPSHOT_VERSION
from restless_bandits.service.session import AgentRow, Session, Snapshot
from restless_bandits.service.store import Store, StoreError

LOG = logging.getLogger(__name__)
DAMAGE = (ArithmeticError, AttributeError, LookupError, ProblemError, RecursionError, TypeError, ValueError, zlib.error)
"""What is raised where a snapshot or a log makes no sense."""
PART = 1_000
"""Slots of a window that are written and read at once."""
QUICK_BYTES, QUICK_EVENTS = 10_000, 200
"""A snapshot and a log of at most so much are loaded at once; others would keep everybody waiting."""
CACHE = 400_000_000
"""Bytes, roughly, that agents in memory may take together."""
FEW = 64
"""Agents for which nobody looks how much they take."""
NOW_AND_THEN = 500
"""Groups of requests after which it is looked at again: agents grow with what they are told."""


class Group:
    """What a group of requests has to do with: the rows of its agents, and the agents that it has touched."""

    def __init__(self, session: Session, rows: dict[str, AgentRow]) -> None:
        self.session, self.rows = session, rows
        self.touched: dict[str, Hosted] = {}


class Cabinet:
    """The agents of a process.

    An agent that takes long to load is loaded by a thread of its own, while requests to others go on: ``WaitError`` is
    raised for it until it is there.
    """

    def __init__(
        self, store: Store, planner: Planner, counts: Counter[str], times: defaultdict[str, float], most: int
    ) -> None:
        self._store, self._planner, self._counts, self._times, self._most = store, planner, counts, times, most
        self._coming: dict[str, Future[Hosted]] = {}
        self._loading = threading.Lock()
        self._agents: OrderedDict[str, Hosted] = OrderedDict()
        self._unreadable: dict[str, tuple[int, int, str]] = {}
        self._grown = self._groups = 0

    def __len__(self) -> int:
        return len(self._agents)

    def add(self, hosted: Hosted) -> None:
        """Keep an agent that was just made."""
        self._agents[hosted.name] = hosted
        self._grown += 1

    def drop(self, names: Iterable[str]) -> None:
        """Forget agents; they are made anew from the store when they are next asked for."""
        for name in names:
            self._agents.pop(name, None)

    @property
    def unreadable(self) -> dict[str, str]:
        """The agents that could not be loaded when they were last asked for, with the reasons."""
        return {name: reason for name, (_, _, reason) in list(self._unreadable.items())}

    def find(self, name: str, group: Group) -> Hosted | None:
        """Return an agent as the store has it, with what this group has done so far; None where there is none."""
        if name in group.touched:
            return group.touched[name]
        row = group.rows.get(name)
        # Taken out, so that one that fails on the way is not found again.
        hosted = self._agents.pop(name, None)
        if row is None:
            self._unreadable.pop(name, None)
            return None
        if hosted is not None and hosted.number == row.id and hosted.seq <= row.seq:
            try:
                _play_after(hosted, row.seq, group.session)
            except DAMAGE as error:
                LOG.warning("agent %r in memory does not fit its log and is loaded anew: %s", name, error)
                hosted = None
        else:
            hosted = None
        self._agents[name] = hosted = hosted or self._loaded(row, group.session)
        return hosted

    def _loaded(self, row: AgentRow, session: Session) -> Hosted:
        """Return an agent that is quick to load; have others loaded aside, and raise ``WaitError`` until they are."""
        coming = self._coming.get(row.name)
        if coming is None:
            kept = session.snapshot(row.id)
            size, seq = (0, 0) if kept is None else (len(kept.content), kept.seq)
            if size <= QUICK_BYTES and row.seq - seq <= QUICK_EVENTS:
                return self._load(row, session)
            coming = self._coming[row.name] = Future()
            # One that nobody waits for at the end of the process.
            threading.Thread(target=self._keep, args=(coming, row), name="loader", daemon=True).start()
        if not coming.done():
            raise WaitError(coming, "an agent is being loaded")
        del self._coming[row.name]
        try:
            hosted = coming.result()
        except StoreError:
            hosted = None
        if hosted is None or hosted.number != row.id or hosted.seq > row.seq:
            return self._load(row, session)
        # What has come meanwhile.
        hosted.player.planner = self._planner
        try:
            _play_after(hosted, row.seq, session)
        except DAMAGE as error:
            LOG.warning("agent %r was loaded and does not fit what came since: %s", row.name, error)
            return self._load(row, session)
        return hosted

    def _keep(self, promise: Future[Hosted], row: AgentRow) -> None:
        """Keep the promise of an agent, one at a time."""
        try:
            with self._loading:
                promise.set_result(self._load_aside(row))
        except BaseException as error:
            promise.set_exception(error)

    def _load_aside(self, row: AgentRow) -> Hosted:
        """Load an agent, in another thread than the writer's, with plans of its own."""
        # To look for cycles among so many new objects would stop all threads, again and again.
        gc.disable()
        try:
            with self._store.reading() as session:
                return self._load(row, session, Planner(session.plan, trust_modules=self._planner.trust_modules))
        finally:
            gc.enable()

    def _load(self, row: AgentRow, session: Session, planner: Planner | None = None) -> Hosted:
        """Make an agent of its last snapshot and the events since, of its whole log where the snapshot does not fit."""
        begun = time.perf_counter()
        known = self._unreadable.get(row.name)
        if known is not None and known[:2] == (row.id, row.seq):
            # Nothing was added to its log since, and to read a long one takes time.
            raise ServiceError(503, known[2])
        planner = planner or self._planner
        kept = session.snapshot(row.id)
        if kept is not None and kept.version > SNAPSHOT_VERSION:
            kept = None
        hosted = None
        try:
            if kept is not None and _is_trusted(kept, row):
                hosted = self._try_snapshot(kept, row, session, planner)
            if hosted is None:
                hosted = self._of_log(row, kept, session, planner)
        except UntrustedModuleError as error:
            raise self._unreadable_for(row, f"cannot load agent {row.name!r}: {error}") from error
        self._unreadable.pop(row.name, None)
        self._counts["loads"] += 1
        self._times["load"] += time.perf_counter() - begun
        self._grown += 1
        return hosted

    def _of_log(self, row: AgentRow, kept: Snapshot | None, session: Session, planner: Planner) -> Hosted:
        """Make an agent of its whole log; where that fails, of a snapshot that is not trusted, if there is one."""
        try:
            first = next(session.events(row.id, 0, 1), {"kind": "nothing"})
            hosted = Hosted.created_by(row.id, row.name, first, planner)
            _play_after(hosted, row.seq, session)
        except UntrustedModuleError:
            raise
        except DAMAGE as error:
            if kept is not None and not _is_trusted(kept, row):
                found = self._try_snapshot(kept, row, session, planner)
                if found is not None:
                    LOG.warning("the log of agent %r lacks something, its snapshot is used: %s", row.name, error)
                    found.snapshot_seq = 0  # A new one is due.
                    return found
            reason = f"the log of agent {row.name!r} is damaged: {error}; go back to an earlier copy"
            raise self._unreadable_for(row, reason) from error
        if kept is not None:
            LOG.warning("agent %r is made of its whole log, and its snapshot is thrown away", row.name)
            self._counts["snapshots_refused"] += 1
            if planner is self._planner:
                session.remove_snapshot(row.id)
            else:
                hosted.snapshot_seq = 0  # A thread that only reads leaves it to the next snapshot.
        return hosted

    def _unreadable_for(self, row: AgentRow, reason: str) -> ServiceError:
        """Take note of an agent that cannot be loaded, and return the refusal of requests to it."""
        LOG.error("agent %r cannot be loaded: %s", row.name, reason)
        self._unreadable[row.name] = row.id, row.seq, reason
        return ServiceError(503, reason)

    def _try_snapshot(self, kept: Snapshot, row: AgentRow, session: Session, planner: Planner) -> Hosted | None:
        """Make an agent of a snapshot and the events since; None, and a line in the service's log, where that fails."""
        try:
            if kept.seq > row.seq:
                raise ProblemError(f"it is of event {kept.seq}, and {row.seq} were written")
            hosted = of_snapshot(row.id, kept, planner)
            _play_after(hosted, row.seq, session)
            if hosted.player.slots != row.slots:
                raise ProblemError(f"it leads to slot {hosted.player.slots}, and {row.slots} have passed")
        except UntrustedModuleError:
            raise
        except DAMAGE as error:
            LOG.warning("the snapshot of agent %r does not fit its log: %s", row.name, error)
            return None
        return hosted

    def undo(self, name: str, before: int, group: Group) -> None:
        """Make an agent anew as it was before a request that is refused, with what others of its group have done."""
        spoilt = group.touched.pop(name, None) or self._agents.get(name)
        self._agents.pop(name, None)
        row = group.rows.get(name)
        if spoilt is None:
            return
        kept = [event for event in spoilt.pending if event["seq"] <= before]
        if row is None:
            if not kept:
                # Its row goes with it.
                group.session.remove_agent(spoilt.number)
                return
            again = Hosted.created_by(spoilt.number, name, kept[0], self._planner)
            again.pending.append(kept[0])
            rest = kept[1:]
        elif not kept:
            # It is loaded when it is next asked for, aside if that takes long.
            return
        else:
            again, rest = self._load(row, group.session), kept
        plans = {plan.digest: plan for plan in spoilt.player.new_plans}
        for event in rest:
            if event["kind"] == "plan":
                self._planner.keep(plans[event["digest"]])
                again.player.new_plans.append(plans[event["digest"]])
            again.repeat(event)
            again.pending.append(event)
        self._agents[name] = again
        if kept:
            group.touched[name] = again

    def make_room(self) -> None:
        """Forget the agents that were not asked for the longest, where all together take too much memory."""
        self._groups += 1
        if len(self._agents) <= FEW or (self._grown < FEW and self._groups < NOW_AND_THEN):
            return
        self._grown = self._groups = 0
        total = sum(hosted.weight for hosted in self._agents.values())
        while total > self._most and len(self._agents) > 1:
            _, hosted = self._agents.popitem(last=False)
            total -= hosted.weight


def of_snapshot(number: int, kept: Snapshot, planner: Planner) -> Hosted:
    """Return the agent of a snapshot; what is wrong with it is raised as one of ``DAMAGE``."""
    head, *parts = zlib.decompress(kept.content).split(b"\n")
    data = json.loads(head)
    for part in parts:
        data["player"]["window"]["slots"] += json.loads(part)
    hosted = Hosted.from_dict(number, data, planner)
    if hosted.seq != kept.seq:
        raise ProblemError(f"the snapshot says that it is of event {kept.seq}, and holds event {hosted.seq}")
    return hosted


def snapshot_of(hosted: dict[str, Any]) -> Snapshot:
    """Return the snapshot of an agent, from what its ``to_dict`` returned.

    The slots of its window are written in parts, a line each: to write or read all of them at once would not let other
    threads go on meanwhile.
    """
    player = hosted["player"]
    slots = player["window"]["slots"]
    head = hosted | {"player": player | {"window": player["window"] | {"slots": []}}}
    lines = [head, *(slots[i : i + PART] for i in range(0, len(slots), PART))]
    content = b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in lines)
    return Snapshot(hosted["seq"], SNAPSHOT_VERSION, zlib.compress(content, 1))


def _is_trusted(kept: Snapshot, row: AgentRow) -> bool:
    """Whether a snapshot holds nothing but what was logged, as far as its version tells."""
    return kept.version > 1 or row.clock == BY_ASKING


def _play_after(hosted: Hosted, until: int, session: Session) -> None:
    """Let an agent go through what was added to its log."""
    for event in session.events(hosted.number, hosted.seq, until):
        hosted.repeat(event)
    if hosted.seq != until:
        raise ProblemError(f"it ends at event {hosted.seq}, and {until} were written")
