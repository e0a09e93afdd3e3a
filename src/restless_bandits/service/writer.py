"""Command processor with a single writer: one thread executes all requests of a process, many in one transaction.

``submit`` returns a future, completed after the commit is on disk. The thread takes all queued requests as a group and
executes each request in memory. The thread then writes all events in one transaction and completes the futures. After
a failed commit, every request of the group receives the error, and its agents are rebuilt from the store. Changes
of a failed group therefore have no effect.

An agent in memory is a cache entry. Every group compares the number of events with the store and applies events of
other processes. A request without its plan is deferred, and other requests continue.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from functools import partial
from itertools import chain
from typing import Any, Literal

from restless_bandits._internal.errors import ProblemError
from restless_bandits.service import clock, failpoints
from restless_bandits.service.agent import EventLookup, ServiceAgent, error_field, event_row
from restless_bandits.service.agent_cache import CACHE, AgentCache, Group, snapshot_of
from restless_bandits.service.agent_core import is_word
from restless_bandits.service.agent_kinds import create_agent
from restless_bandits.service.api.loop_bridge import stopping
from restless_bandits.service.jobs import NextGroupError, Request, Wakeup, as_refusal, busy, refuse, unknown
from restless_bandits.service.listeners import Listeners
from restless_bandits.service.operations import (
    RETRY_AFTER,
    Answer,
    Ask,
    Create,
    Delete,
    Operation,
    Patch,
    ServiceError,
    Skip,
    Tell,
)
from restless_bandits.service.planning import Planner, WaitError, origin
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.session import Session, Snapshot
from restless_bandits.service.storage.store import Store, StoreError, unavailable

LOG = logging.getLogger(__name__)
MOST_AT_ONCE = 2_000
"""Maximum number of operations in a transaction; a single larger request is still one transaction."""
TIDY_EVERY = 1_000
"""Commits between two checkpoints of the write-ahead log."""
SNAPSHOT_EVERY = 2_000
"""Events of an agent between two snapshots."""
GLANCE = 1.0
"""Seconds between two checks for commits of other processes, on behalf of listeners."""
LOOK_TIMEOUT_SECONDS = 30.0
"""Timeout of a read through the writer thread."""
WAIT_FOR_PLANS_VARIABLE = "RESTLESS_WAIT_FOR_PLANS"
"""Environment variable; if set, decisions wait for due plans, so that a run is exactly reproducible."""


class CommandProcessor:
    """Command processor for the agents of a store, with a single writer thread and an agent cache."""

    def __init__(
        self,
        store: Store,
        quotas: Quotas | None = None,
        *,
        now: Callable[[], int] | None = None,
        snapshot_every: int | None = None,
        cache: int = CACHE,
        trust_modules: bool = False,
    ) -> None:
        self.store, self.quotas = store, quotas or Quotas()
        # Jumps of a caller's clock are followed without a bound.
        self.clock = clock.BoundedClock() if now is None else clock.BoundedClock(now, now)
        self._snapshot_every = snapshot_every or SNAPSHOT_EVERY
        patient = bool(os.environ.get(WAIT_FOR_PLANS_VARIABLE))
        self.planner = Planner(self._read_plan, patient=patient, trust_modules=trust_modules)
        self._queue: queue.SimpleQueue[Request | Wakeup | None] = queue.SimpleQueue()
        self._deferred: dict[str, list[Request]] = {}
        self._executing: list[Request] = []
        """The requests of the present group, which a writer stuck on a disk never completes."""
        self._snapshots: queue.SimpleQueue[tuple[ServiceAgent, dict[str, Any]] | Literal["tidy"] | None] = (
            queue.SimpleQueue()
        )
        self._ready: OrderedDict[int, Snapshot] = OrderedDict()
        self._ahead_of_clock: set[str] = set()
        """Agents whose slots are ahead of the clock: an earlier clock was wrong, or this one is."""
        self._listeners = Listeners(store)
        self._counts: Counter[str] = Counter()
        self._times: defaultdict[str, float] = defaultdict(float)
        self._cache = AgentCache(store, self.planner, self._counts, self._times, cache)
        self._stopping = False
        self._accepting = threading.Lock()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._session: Session | None = None

    def start(self) -> None:
        """Start the writer thread and the maintenance thread."""
        for work in (self._write, self._tidy):
            thread = threading.Thread(target=work, name=f"keeper{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self, timeout: float = 5.0) -> None:
        """Complete the accepted requests and stop. Requests without an answer after the timeout are refused."""
        with self._accepting:
            self._stopping = True
        deadline = time.monotonic() + timeout
        while self._deferred and time.monotonic() < deadline - 0.5:
            time.sleep(0.01)
        self._queue.put(None)
        self._snapshots.put(None)
        self._ended.set()
        self.planner.stop()
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        for job in [*self._executing, *chain.from_iterable(list(self._deferred.values()))]:
            refuse(job, stopping())
        with contextlib.suppress(queue.Empty):
            while True:
                left = self._queue.get_nowait()
                if isinstance(left, Request):
                    refuse(left, stopping())

    def submit(self, agent: str, operations: Sequence[Operation]) -> Future[list[Answer]]:
        """Return a future of the answers to operations on an agent: all or none, completed when on disk."""
        job = Request(agent, list(operations))
        if len(operations) > self.quotas.batch:
            most = self.quotas.batch
            error = ServiceError(413, f"the batch holds {len(operations)} operations; send at most {most}", "batch")
            refuse(job, error)
        elif self._queue.qsize() > self.quotas.queue:
            refuse(job, ServiceError(503, "too many requests wait for the writer; ask again", retry_after=RETRY_AFTER))
        else:
            self._accept(job)
        return job.future

    def _accept(self, job: Request) -> None:
        if not is_word(job.agent, self.quotas):
            refuse(job, unknown(job.agent))
            return
        # No request may follow the end marker in the queue.
        with self._accepting:
            if not self._stopping:
                self._queue.put(job)
                return
        refuse(job, stopping())

    def agents(self) -> list[Answer]:
        """Return a summary of every agent from its row."""
        shown = ("name", "made", "learner", "clock", "arms", "slots", "seq")
        with self._reading() as session:
            rows = [row._replace(made=row.made / 1e6) for row in session.all_rows()]
        return [{key: getattr(row, key) for key in shown} for row in rows]

    def agent(self, name: str) -> Answer:
        """Return the public state of an agent."""
        shown: Answer = self.read(name, lambda agent_state: agent_state.view())
        return shown

    def events(self, name: str, after: int = 0, limit: int = 1000) -> Answer:
        """Return a page of the event log of an agent."""
        with self._reading() as session:
            row = session.rows_of([name], for_us=False).get(name) if is_word(name, self.quotas) else None
            if row is None:
                raise unknown(name)
            limit = max(1, min(limit, self.quotas.page))
            page = list(session.events(row.id, max(0, after), max(0, after) + limit))
        for event in page:
            event["at"] = event["at"] / 1e6
        return {"events": page, "next": page[-1]["seq"] if page else max(0, after)}

    def listen(self, name: str, callback: Callable[[int], None]) -> Callable[[], None]:
        """Register a callback for commits to an agent, and return a function that removes the callback.

        The argument of the callback is the number of the last event. Commits of other processes take about a second.
        """
        return self._listeners.add(name, callback)

    def stats(self) -> dict[str, Any]:
        """Return counters and total durations."""
        return {
            **{f"{name}_total": count for name, count in sorted(self._counts.items())},
            **{f"{name}_seconds_total": spent for name, spent in sorted(self._times.items())},
            "plans_made_total": self.planner.made,
            "plans_failed_total": self.planner.failed,
            "agents_in_memory": len(self._cache),
            "clock_jump_seconds": self.clock.jump / 1e6,
            "agents_unreadable": len(self._cache.unreadable),
            "agents_ahead": len(self._ahead_of_clock),
            "requests_waiting": self._queue.qsize() + sum(map(len, list(self._deferred.values()))),
        }

    def health(self) -> Answer:
        """Return the health report; raise ``ServiceError`` if the writer or the store does not work.

        ``status`` is ``degraded`` in three cases. The log of an agent is damaged: ``unreadable`` lists such agents, and
        other agents are not affected. The wall clock jumped by ``clock_jump`` seconds, and the jump is ignored. Or the
        slots of the agents ``ahead_of_clock`` are ahead of the clock by more than ``clock.LONGEST_JUMP``.
        """
        alive = bool(self._threads) and self._threads[0].is_alive()
        if not alive:
            raise ServiceError(503, "the writer does not run", retry_after=RETRY_AFTER)
        with self._reading() as session:
            session.count_agents()
        unreadable, early = sorted(self._cache.unreadable), sorted(self._ahead_of_clock)
        return {
            "status": "degraded" if unreadable or early or self.clock.jump else "ok",
            "unreadable": unreadable,
            "ahead_of_clock": early,
            "clock_jump": self.clock.jump / 1e6,
            "store": "sqlite" if self.store.is_sqlite else "postgresql",
            "version": origin()["release"],
        }

    def read(self, name: str, what: Callable[[ServiceAgent], Any]) -> Any:
        """Return the result of a function of an agent between two commits; the function must be fast and copy data."""
        try:
            return self.look_later(name, what).result(timeout=LOOK_TIMEOUT_SECONDS)
        except TimeoutError:
            raise busy() from None

    def look_later(self, name: str, what: Callable[[ServiceAgent], Any]) -> Future[Any]:
        """Return a future of the result of ``read``."""
        job = Request(name, read=what)
        self._accept(job)
        return job.future

    @contextlib.contextmanager
    def _reading(self) -> Any:
        try:
            with self.store.reading() as session:
                yield session
        except StoreError as error:
            raise unavailable(error) from None

    def _write(self) -> None:
        """Execute requests until the end marker."""
        ending = False
        while not (ending and self._queue.empty()):
            jobs: list[Request] = []
            size = 0
            while size < MOST_AT_ONCE:
                try:
                    found = self._queue.get(block=not jobs and not ending)
                except queue.Empty:
                    break
                if found is None:
                    ending = True
                elif isinstance(found, Wakeup):
                    jobs += self._deferred.pop(found.agent, [])
                elif found.agent in self._deferred and found.read is None:
                    # Requests to an agent are executed in the order of arrival.
                    self._deferred[found.agent].append(found)
                else:
                    jobs.append(found)
                size += len(found.operations) if isinstance(found, Request) else 1
            if jobs:
                self._executing = jobs
                self._carry_out(jobs)

    def _carry_out(self, jobs: list[Request], tries: int = 3) -> None:
        """Execute a group of requests in one transaction, and complete their futures."""
        begun = time.perf_counter()
        deferred: set[Request] = set()
        waited_for: list[tuple[Future[Any], Wakeup]] = []
        try:
            with self.store.writing() as session:
                self._session = session
                changing = {job.agent for job in jobs if job.read is None}
                rows = session.rows_of(changing, for_us=True)
                rows |= session.rows_of({job.agent for job in jobs} - changing, for_us=False)
                group = Group(session, rows)
                for job in jobs:
                    try:
                        if job.agent not in self._deferred or job.read is not None:
                            self._work(job, group)
                            continue
                    except WaitError as needed:
                        waited_for.append((needed.promise, Wakeup(job.agent)))
                    except NextGroupError:
                        self._queue.put(Wakeup(job.agent))
                    self._deferred.setdefault(job.agent, []).append(job)
                    deferred.add(job)
                worked = time.perf_counter()
                wrote = self._write_events(group)
        except StoreError as error:
            self._counts["failed_commits"] += 1
            self._cache.drop({job.agent for job in jobs})
            left = [job for job in jobs if job not in deferred]
            if error.passing and tries > 1:
                self._carry_out(left, tries - 1)
            else:
                for job in left:
                    refuse(job, unavailable(error))
            return
        except BaseException as error:  # after any error, complete the futures and keep the writer thread alive
            self._counts["failed_groups"] += 1
            self._cache.drop({job.agent for job in jobs})
            LOG.exception("a group of requests failed")
            for job in jobs:
                if job not in deferred:
                    refuse(job, as_refusal(error))
            return
        finally:
            self._session = None
            for promise, wakeup in waited_for:
                promise.add_done_callback(partial(self._resume, wakeup))
        self._counts["commits"] += wrote > 0
        self._counts["events"] += wrote
        self._counts["requests"] += len(jobs) - len(deferred)
        self._times["work"] += worked - begun
        self._times["commit"] += time.perf_counter() - worked
        failpoints.passed("before-answer")
        changed = [agent_state for agent_state in group.touched.values() if agent_state.pending]
        for agent_state in changed:
            agent_state.pending.clear()
            agent_state.core.new_plans.clear()
        for job in jobs:
            if job in deferred:
                continue
            if job.error is not None:
                refuse(job, job.error)
            elif not job.future.cancelled():
                with contextlib.suppress(Exception):
                    job.future.set_result(job.answers)
        failpoints.passed("after-answer")
        for agent_state in changed:
            self._listeners.tell(agent_state.name, agent_state.seq)
            if agent_state.ended:
                self._cache.drop([agent_state.name])
            elif agent_state.seq - agent_state.snapshot_seq >= min(self._snapshot_every, agent_state.most_events):
                self._take_snapshot(agent_state)
        if wrote and self._counts["commits"] % TIDY_EVERY == 0:
            self._snapshots.put("tidy")
        self._cache.make_room()

    def _take_snapshot(self, agent_state: ServiceAgent) -> None:
        """Queue the state of an agent for a snapshot; a failure costs the cache entry only."""
        agent_state.snapshot_seq = agent_state.seq
        try:
            self._snapshots.put((agent_state, agent_state.to_dict()))
        except Exception:  # an internal error; the next request rebuilds the agent from the store
            LOG.exception("no snapshot of agent %r can be taken", agent_state.name)
            self._cache.drop([agent_state.name])

    def _work(self, job: Request, group: Group) -> None:
        """Execute a request in memory; the answers or the error wait for the commit."""
        name = job.agent
        job.answers, job.error = None, None
        if job.now is None:
            job.now = self.clock()
        agent_state: ServiceAgent | None = None
        before = 0
        try:
            agent_state = self._cache.find(name, group)
            before = 0 if agent_state is None else agent_state.seq
            self._compare_with_clock(name, agent_state, job.now)
            if job.read is not None:
                if agent_state is None:
                    raise unknown(name)
                job.answers = job.read(agent_state)
                return
            if not self.planner.kernels.done():
                tells = sum(isinstance(operation, Tell) for operation in job.operations)
                if tells and (agent_state is None or agent_state.may_test_for_changes(tells)):
                    raise WaitError(self.planner.kernels, "kernels are being loaded")
            if (
                agent_state is not None
                and agent_state.pending
                and agent_state.is_large
                and agent_state.may_fail_half_way(len(job.operations), job.now)
            ):
                # A refusal would rebuild the agent and repeat the earlier requests of the group.
                raise NextGroupError
            answers = []
            for operation in job.operations:
                if isinstance(operation, Create):
                    if agent_state is not None and agent_state.ended and agent_state.seq != before:
                        raise ServiceError(409, f"agent {name!r} is deleted by this batch; create it in the next batch")
                    if agent_state is not None and agent_state.ended:
                        raise NextGroupError
                    answers.append(self._create(operation, job, agent_state, group))
                    agent_state = group.touched.get(name) or agent_state
                    continue
                if agent_state is None or agent_state.ended:
                    raise unknown(name)
                group.touched[name] = agent_state
                with error_field():
                    answers.append(self._operate(agent_state, operation, job.now, group.session))
            if agent_state is not None:
                agent_state.check_gathered()
            job.answers = answers
        except (WaitError, ProblemError, BrokenExecutor, CancelledError) as error:
            agent_state = group.touched.get(name) or agent_state
            if agent_state is not None and (agent_state.seq != before or agent_state.core.events):
                self._cache.undo(name, before, group)
            if isinstance(error, WaitError):
                raise
            job.error = as_refusal(error)
        except (StoreError, NextGroupError, *self.store.errors):
            raise
        except Exception as error:
            # Error of a learner, or an internal error: the request fails, and the agent keeps its former state.
            agent_state = group.touched.get(name) or agent_state
            if agent_state is not None:
                self._cache.undo(name, before, group)
            self._counts["failures"] += 1
            LOG.exception("a request to agent %r failed", name)
            job.error = as_refusal(error)

    def _compare_with_clock(self, name: str, agent_state: ServiceAgent | None, now: int) -> None:
        """Register an agent that stays in a slot for long, because its slots are ahead of the clock."""
        lead = 0 if agent_state is None else agent_state.ahead_of_clock(now)
        if lead <= clock.LONGEST_JUMP:
            self._ahead_of_clock.discard(name)
        elif name not in self._ahead_of_clock:
            self._ahead_of_clock.add(name)
            LOG.error(
                "the slots of agent %r are %.0f seconds ahead of the clock of this machine, and the agent stays in its "
                "slot until then; correct the clock, or make another agent if the clock is correct now",
                name,
                lead / clock.UNIT_MICROSECONDS["s"],
            )

    def _operate(self, agent_state: ServiceAgent, operation: Operation, now: int, session: Session) -> Answer:
        lookup = _lookup(agent_state, session)
        if isinstance(operation, Ask):
            return agent_state.ask(operation, now, lookup, self.quotas)
        if isinstance(operation, Tell):
            return agent_state.tell(operation, now, lookup)
        if isinstance(operation, Skip):
            return agent_state.skip(operation, now, lookup, self.quotas)
        if isinstance(operation, Patch):
            return agent_state.patch(operation, now, self.quotas)
        assert isinstance(operation, Delete)
        return agent_state.delete(now)

    def _create(self, given: Create, job: Request, agent_state: ServiceAgent | None, group: Group) -> Answer:
        """Create an agent. A repeated request with the same settings receives the same answer."""
        session = group.session
        if agent_state is not None and not agent_state.ended:
            first = next((e for e in agent_state.pending if e["kind"] == "create"), None)
            first = first or next(session.events(agent_state.number, 0, 1))
            if not agent_state.made_by(given, first):
                raise ServiceError(409, f"there is an agent {given.name!r} already; choose another name", "name")
            return agent_state.view()
        if session.count_agents() >= self.quotas.agents:
            raise ServiceError(429, f"there are {self.quotas.agents} agents, the maximum; delete an agent", "name")
        assert job.now is not None
        now, seed = job.now, job.seed if given.seed is None else given.seed
        with error_field():
            # The first construction has no number, so that a refusal leaves no row.
            made = create_agent(0, given, seed, now, self.planner, self.quotas)
        row = {"name": given.name, "made": now, "seq": 0, "slots": 0, "clock": given.clock}
        number = session.add_agent(row | {"learner": made.core.learner.spec, "arms": made.core.task.n_arms})
        if number is None:
            # Another process created the agent first; the next group reads its row.
            raise NextGroupError
        made.number = number
        group.touched[given.name] = made
        self._cache.add(made)
        return made.view()

    def _write_events(self, group: Group) -> int:
        """Write the events, plans and snapshots of a group; return the number of events."""
        session = group.session
        changed = [agent_state for agent_state in group.touched.values() if agent_state.pending]
        events = [event_row(agent_state.number, event) for agent_state in changed for event in agent_state.pending]
        plans = {plan.digest: plan.content for agent_state in changed for plan in agent_state.core.new_plans}
        if plans:
            session.add_plans(plans)
        if events:
            session.add_events(events)
            session.update_agents([_row_of(agent_state) for agent_state in changed])
        if plans:
            failpoints.passed("after-plan")
        while self._ready:
            number, snapshot = self._ready.popitem(last=False)
            failpoints.passed("before-snapshot")
            session.put_snapshot(number, *snapshot)
            failpoints.passed("after-snapshot")
        return len(events)

    def _tidy(self) -> None:
        """Run slow maintenance outside the writer thread: checkpoints of the write-ahead log, and encoded snapshots.

        The writer thread stores the encoded snapshots.
        """
        self.planner.warm_up()
        while True:
            try:
                found = self._snapshots.get(timeout=GLANCE)
            except queue.Empty:
                self._listeners.glance()
                continue
            if found is None:
                return
            if found == "tidy":
                self.store.tidy()
                continue
            agent_state, data = found
            self._ready[agent_state.number] = snapshot_of(data)

    def _resume(self, wakeup: Wakeup, _: Future[Any]) -> None:
        self._queue.put(wakeup)

    def _read_plan(self, digest: str) -> bytes | None:
        if self._session is not None:
            return self._session.plan(digest)
        with self.store.reading() as session:
            return session.plan(digest)


def _lookup(agent_state: ServiceAgent, session: Session) -> EventLookup:
    """Return the queries of an agent to the store; the query by slot includes events of the present group."""

    def of_slot(slot: int) -> list[dict[str, Any]]:
        waiting = [e for e in agent_state.pending if e.get("slot") == slot and e["kind"] in ("ask", "tell", "lost")]
        return [*session.events_of_slot(agent_state.number, slot), *waiting]

    def of_request(request: str) -> dict[str, Any] | None:
        return session.event_of_request(agent_state.number, request)

    return EventLookup(of_request, of_slot)


def _row_of(agent_state: ServiceAgent) -> dict[str, Any]:
    core = agent_state.core
    return {
        "number": agent_state.number,
        "seq": agent_state.seq,
        "slots": core.slots,
        "ended": agent_state.pending[-1]["at"] if agent_state.ended else None,
        "learner": core.learner.spec,
        "arms": core.task.n_arms,
    }
