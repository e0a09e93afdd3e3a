"""Agents in memory: a cache of what the store holds, never more.

An agent is made of its last snapshot and the events since. Its number of events is held against the store's whenever it
is asked for, and what other processes have added is played after. One that a refused request has spoilt is made anew.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable

from restless_bandits.errors import ProblemError, UntrustedModuleError
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.planning import Planner
from restless_bandits.service.schema import SNAPSHOT_VERSION
from restless_bandits.service.session import AgentRow, Session

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
    """The agents of a process."""

    def __init__(self, planner: Planner, counts: Counter[str], times: defaultdict[str, float], most: int) -> None:
        self._planner, self._counts, self._times, self._most = planner, counts, times, most
        self._agents: OrderedDict[str, Hosted] = OrderedDict()
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

    def find(self, name: str, group: Group) -> Hosted | None:
        """Return an agent as the store has it, with what this group has done so far; None where there is none."""
        if name in group.touched:
            return group.touched[name]
        row = group.rows.get(name)
        # Taken out, so that one that fails on the way is not found again.
        hosted = self._agents.pop(name, None)
        if row is None:
            return None
        if hosted is None or hosted.number != row.id or hosted.seq > row.seq:
            hosted = self._load(row, group.session)
        elif hosted.seq < row.seq:
            _play_after(hosted, row.seq, group.session)
        self._agents[name] = hosted
        return hosted

    def _load(self, row: AgentRow, session: Session) -> Hosted:
        """Make an agent of its last snapshot and the events since."""
        begun = time.perf_counter()
        hosted = self._of_snapshot(row, session)
        if hosted is None:
            first = next(session.events(row.id, 0, 1), {"kind": "nothing"})
            with _damaged(row.name):
                hosted = Hosted.created_by(row.id, row.name, first, self._planner)
        _play_after(hosted, row.seq, session)
        self._counts["loads"] += 1
        self._times["load"] += time.perf_counter() - begun
        self._grown += 1
        return hosted

    def _of_snapshot(self, row: AgentRow, session: Session) -> Hosted | None:
        kept = session.snapshot(row.id)
        if kept is None or kept.version > SNAPSHOT_VERSION or kept.seq > row.seq:
            return None
        try:
            return Hosted.from_dict(row.id, json.loads(zlib.decompress(kept.content)), self._planner)
        except (zlib.error, ValueError, KeyError, TypeError):
            # The log is the truth, and all of it is there.
            self._counts["snapshots_refused"] += 1
            return None

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


class _damaged:  # noqa: N801 - reads as a word of the language
    """Say of which agent it is that a log makes no sense."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, UntrustedModuleError):
            raise ServiceError(503, f"cannot load agent {self._name!r}: {error}") from error
        if isinstance(error, ProblemError | KeyError | TypeError | ValueError | AttributeError):
            sentence = f"the log of agent {self._name!r} is damaged: {error}; go back to an earlier copy"
            raise ServiceError(503, sentence) from error


def _play_after(hosted: Hosted, until: int, session: Session) -> None:
    """Let an agent go through what was added to its log."""
    with _damaged(hosted.name):
        for event in session.events(hosted.number, hosted.seq, until):
            hosted.repeat(event)
        if hosted.seq != until:
            raise ProblemError(f"it ends at event {hosted.seq}, and {until} were written")
