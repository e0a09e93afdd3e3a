"""Agent cache: agents in memory, rebuilt from the store at any time.

Recovery loads the last snapshot and applies the later events of the log. Every lookup compares the number of events
with the store and applies events of other processes. An agent changed by a refused request is rebuilt.
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

from restless_bandits._internal.errors import ProblemError, UntrustedModuleError
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.agent_kinds import created_by, of_state
from restless_bandits.service.clock import BY_ASKING
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.planning import Planner, WaitError
from restless_bandits.service.storage.schema import SNAPSHOT_VERSION
from restless_bandits.service.storage.session import AgentRow, Session, Snapshot
from restless_bandits.service.storage.store import Store, StoreError

LOG = logging.getLogger(__name__)
DAMAGE = (ArithmeticError, AttributeError, LookupError, ProblemError, RecursionError, TypeError, ValueError, zlib.error)
"""Exceptions raised by a damaged snapshot or a damaged log."""
PART = 1_000
"""Slots of delayed feedback per encoded line of a snapshot."""
QUICK_BYTES, QUICK_EVENTS = 10_000, 200
"""Largest snapshot and longest log loaded in the writer thread; larger agents would delay all other requests."""
QUICK_ARMS = 1_000
"""Arms up to which an event takes about the same time."""
CACHE = 400_000_000
"""Approximate maximum memory of all cached agents in bytes."""
UNCHECKED_AGENTS = 64
"""Number of agents up to which the cache skips the memory check."""
NOW_AND_THEN = 500
"""Groups of requests between two memory checks: agents grow with their feedback."""


class Group:
    """State of a group of requests: the session, the rows of its agents, and the agents changed so far."""

    def __init__(self, session: Session, rows: dict[str, AgentRow]) -> None:
        self.session, self.rows = session, rows
        self.touched: dict[str, ServiceAgent] = {}


class AgentCache:
    """Agent cache of a process.

    A separate thread loads an agent with a long recovery, and requests to other agents continue. ``WaitError`` is
    raised for the agent until the load is complete.
    """

    def __init__(
        self, store: Store, planner: Planner, counts: Counter[str], times: defaultdict[str, float], most: int
    ) -> None:
        self._store, self._planner, self._counts, self._times, self._most = store, planner, counts, times, most
        self._coming: dict[str, Future[ServiceAgent]] = {}
        self._loading = threading.Lock()
        self._agents: OrderedDict[str, ServiceAgent] = OrderedDict()
        self._unreadable: dict[str, tuple[int, int, str]] = {}
        self._grown = self._groups = 0

    def __len__(self) -> int:
        return len(self._agents)

    def add(self, agent_state: ServiceAgent) -> None:
        """Add a new agent to the cache."""
        self._agents[agent_state.name] = agent_state
        self._grown += 1

    def drop(self, names: Iterable[str]) -> None:
        """Remove agents from the cache; the next request reloads an agent from the store."""
        for name in names:
            self._agents.pop(name, None)

    @property
    def unreadable(self) -> dict[str, str]:
        """Agents with a failed last load, and the reasons."""
        return {name: reason for name, (_, _, reason) in list(self._unreadable.items())}

    def find(self, name: str, group: Group) -> ServiceAgent | None:
        """Return an agent in the state of the store plus the changes of this group; None for an unknown name."""
        if name in group.touched:
            return group.touched[name]
        row = group.rows.get(name)
        # Removed first, so that an error below leaves no stale entry in the cache.
        agent_state = self._agents.pop(name, None)
        if row is None:
            self._unreadable.pop(name, None)
            return None
        if agent_state is not None and agent_state.number == row.id and agent_state.seq <= row.seq:
            try:
                _play_after(agent_state, row.seq, group.session)
            except DAMAGE as error:
                LOG.warning("agent %r in memory does not fit its log and is loaded anew: %s", name, error)
                agent_state = None
        else:
            agent_state = None
        self._agents[name] = agent_state = agent_state or self._loaded(row, group.session)
        if agent_state.snapshot_refused:
            # Here, because the thread of a long load only reads.
            group.session.remove_snapshot(row.id)
            agent_state.snapshot_refused = False
        return agent_state

    def _loaded(self, row: AgentRow, session: Session) -> ServiceAgent:
        """Return a small agent at once; load a large agent in another thread, and raise ``WaitError`` until ready."""
        coming = self._coming.get(row.name)
        if coming is None:
            kept = session.snapshot(row.id)
            size, seq = (0, 0) if kept is None else (len(kept.content), kept.seq)
            # The events of a log may need kernels, and a compilation would delay all other requests.
            if self._planner.kernels.done() and size <= QUICK_BYTES and row.seq - seq <= _quick_events(row):
                return self._load(row, session)
            coming = self._coming[row.name] = Future()
            # A daemon thread, because the process must not wait for a load at its end.
            threading.Thread(target=self._keep, args=(coming, row), name="loader", daemon=True).start()
        if not coming.done():
            raise WaitError(coming, "an agent is being loaded")
        del self._coming[row.name]
        try:
            agent_state = coming.result()
        except StoreError:
            agent_state = None
        if agent_state is None or agent_state.number != row.id or agent_state.seq > row.seq:
            return self._load(row, session)
        # Apply the events added during the load.
        agent_state.core.planner = self._planner
        try:
            _play_after(agent_state, row.seq, session)
        except DAMAGE as error:
            LOG.warning("agent %r was loaded and does not fit the events added since: %s", row.name, error)
            return self._load(row, session)
        return agent_state

    def _keep(self, promise: Future[ServiceAgent], row: AgentRow) -> None:
        """Complete the future of a loaded agent; a lock permits a single load at a time."""
        try:
            with self._loading:
                promise.set_result(self.load_in_background(row))
        except BaseException as error:
            promise.set_exception(error)

    def load_in_background(self, row: AgentRow) -> ServiceAgent:
        """Return an agent loaded outside the writer thread, with a separate planner."""
        # Garbage collection over many new objects would stop all threads repeatedly.
        gc.disable()
        try:
            with self._store.reading() as session:
                return self._load(row, session, Planner(session.plan, trust_modules=self._planner.trust_modules))
        finally:
            gc.enable()

    def _load(self, row: AgentRow, session: Session, planner: Planner | None = None) -> ServiceAgent:
        """Return an agent from its last snapshot and the later events, or from the whole log after a snapshot error."""
        begun = time.perf_counter()
        known = self._unreadable.get(row.name)
        if known is not None and known[:2] == (row.id, row.seq):
            # The log is unchanged since the failure, and another read of a long log is slow.
            raise ServiceError(503, known[2])
        planner = planner or self._planner
        kept = session.snapshot(row.id)
        if kept is not None and kept.version > SNAPSHOT_VERSION:
            kept = None
        agent_state = None
        try:
            if kept is not None and _is_trusted(kept, row):
                agent_state = self._try_snapshot(kept, row, session, planner)
            if agent_state is None:
                agent_state = self._of_log(row, kept, session, planner)
        except UntrustedModuleError as error:
            raise self._unreadable_for(row, f"cannot load agent {row.name!r}: {error}") from error
        self._unreadable.pop(row.name, None)
        self._counts["loads"] += 1
        self._times["load"] += time.perf_counter() - begun
        self._grown += 1
        return agent_state

    def _of_log(self, row: AgentRow, kept: Snapshot | None, session: Session, planner: Planner) -> ServiceAgent:
        """Return an agent from its whole log. A damaged log falls back to an untrusted snapshot, if present."""
        try:
            first = next(session.events(row.id, 0, 1), {"kind": "nothing"})
            agent_state = created_by(row.id, row.name, first, planner)
            _play_after(agent_state, row.seq, session)
        except UntrustedModuleError:
            raise
        except DAMAGE as error:
            if kept is not None and not _is_trusted(kept, row):
                found = self._try_snapshot(kept, row, session, planner)
                if found is not None:
                    LOG.warning("the log of agent %r is damaged, its snapshot is used instead: %s", row.name, error)
                    found.snapshot_seq = 0  # Makes a new snapshot due.
                    return found
            reason = f"the log of agent {row.name!r} is damaged: {error}; go back to an earlier copy"
            raise self._unreadable_for(row, reason) from error
        if kept is not None:
            LOG.warning("agent %r is rebuilt from its whole log, and its snapshot is thrown away", row.name)
            self._counts["snapshots_refused"] += 1
            agent_state.snapshot_refused = True
        return agent_state

    def _unreadable_for(self, row: AgentRow, reason: str) -> ServiceError:
        """Register an agent as unreadable, and return the refusal of its requests."""
        LOG.error("agent %r cannot be loaded: %s", row.name, reason)
        self._unreadable[row.name] = row.id, row.seq, reason
        return ServiceError(503, reason)

    def _try_snapshot(self, kept: Snapshot, row: AgentRow, session: Session, planner: Planner) -> ServiceAgent | None:
        """Return an agent from a snapshot and the later events; log a warning and return None if the load fails."""
        try:
            if kept.seq > row.seq:
                raise ProblemError(f"the snapshot is of event {kept.seq}, and the store counts {row.seq} events")
            agent_state = of_snapshot(row.id, kept, planner)
            _play_after(agent_state, row.seq, session)
            if agent_state.core.slots != row.slots:
                raise ProblemError(f"the snapshot leads to slot {agent_state.core.slots}, and the store to {row.slots}")
        except UntrustedModuleError:
            raise
        except DAMAGE as error:
            LOG.warning("the snapshot of agent %r does not fit its log: %s", row.name, error)
            return None
        return agent_state

    def undo(self, name: str, before: int, group: Group) -> None:
        """Rebuild an agent without a refused request, and reapply the earlier requests of the group."""
        spoilt = group.touched.pop(name, None) or self._agents.get(name)
        self._agents.pop(name, None)
        row = group.rows.get(name)
        if spoilt is None:
            return
        kept = [event for event in spoilt.pending if event["seq"] <= before]
        if row is None:
            if not kept:
                # A new agent without events loses its row.
                group.session.remove_agent(spoilt.number)
                return
            again = created_by(spoilt.number, name, kept[0], self._planner)
            again.pending.append(kept[0])
            rest = kept[1:]
        elif not kept:
            # The next request loads the agent, in another thread if the agent is large.
            return
        else:
            again, rest = self._load(row, group.session), kept
        plans = {plan.digest: plan for plan in spoilt.core.new_plans}
        for event in rest:
            if event["kind"] == "plan":
                self._planner.keep(plans[event["digest"]])
                again.core.new_plans.append(plans[event["digest"]])
            again.repeat(event)
            again.pending.append(event)
        self._agents[name] = again
        if kept:
            group.touched[name] = again

    def make_room(self) -> None:
        """Remove the least recently used agents while the cache exceeds its maximum memory."""
        self._groups += 1
        if len(self._agents) <= UNCHECKED_AGENTS or (self._grown < UNCHECKED_AGENTS and self._groups < NOW_AND_THEN):
            return
        self._grown = self._groups = 0
        total = sum(agent_state.weight for agent_state in self._agents.values())
        while total > self._most and len(self._agents) > 1:
            _, agent_state = self._agents.popitem(last=False)
            total -= agent_state.weight


def _quick_events(row: AgentRow) -> int:
    """The number of events that the writer thread applies by itself; an event of very many arms takes longer."""
    return min(QUICK_EVENTS, QUICK_EVENTS * QUICK_ARMS // max(1, row.arms))


def of_snapshot(number: int, kept: Snapshot, planner: Planner) -> ServiceAgent:
    """Return the agent of a snapshot; a damaged snapshot raises an exception of ``DAMAGE``."""
    head, *parts = zlib.decompress(kept.content).split(b"\n")
    data = json.loads(head)
    for part in parts:
        data["player"]["window"]["slots"] += json.loads(part)
    agent_state = of_state(number, data, planner)
    if agent_state.seq != kept.seq:
        raise ProblemError(f"the snapshot is stored as of event {kept.seq}, and holds event {agent_state.seq}")
    return agent_state


def snapshot_of(agent_state: dict[str, Any]) -> Snapshot:
    """Return the snapshot of an agent from the result of ``to_dict``.

    The slots of delayed feedback are encoded in parts, a line each. A single call to the JSON encoder for all slots
    would block other threads, and so would a single call to the decoder.
    """
    core = agent_state["player"]
    window = core.get("window")
    # An agent of observed arms has no delayed feedback, and its columns are packed.
    slots = [] if window is None else window["slots"]
    head = agent_state if window is None else agent_state | {"player": core | {"window": window | {"slots": []}}}
    lines = [head, *(slots[i : i + PART] for i in range(0, len(slots), PART))]
    content = b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in lines)
    return Snapshot(agent_state["seq"], SNAPSHOT_VERSION, zlib.compress(content, 1))


def _is_trusted(kept: Snapshot, row: AgentRow) -> bool:
    """Return whether a snapshot holds logged events only, as far as its version tells."""
    return kept.version > 1 or row.clock == BY_ASKING


def _play_after(agent_state: ServiceAgent, until: int, session: Session) -> None:
    """Apply the events added to the log of an agent."""
    for event in session.events(agent_state.number, agent_state.seq, until):
        agent_state.repeat(event)
    if agent_state.seq != until:
        raise ProblemError(f"the log ends at event {agent_state.seq}, and the store counts {until} events")
