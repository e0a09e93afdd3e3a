"""An agent as the service keeps it: a player with a name, a clock, decisions by their ids, and a log in a store.

Every operation answers with what JSON can hold and leaves its events in ``pending``. One that raises may leave a part
of them; whoever keeps the agent then makes it anew from the store. Nothing here writes.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from restless_bandits.errors import ConflictError, ProblemError, shortened
from restless_bandits.service.clock import slot_at, slot_length
from restless_bandits.service.hosted_player import (
    Event,
    HostedPlayer,
    check_created,
    check_late,
    check_word,
    player_of,
    settings_of,
)
from restless_bandits.service.limits import Limits
from restless_bandits.service.operations import Answer, Ask, Create, Patch, ServiceError, Skip, Tell
from restless_bandits.service.planning import Planner
from restless_bandits.service.schema import LOG_VERSION
from restless_bandits.service.views import Known

RECENT = 256
"""Request ids that are kept at hand; older ones are in the store."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
PATCHES = ("learner", "late", "on_change", "add_arm", "retire_arm", "restore_arm")


@dataclass
class Totals:
    """What has happened, in numbers."""

    asked: int = 0
    told: int = 0
    lost: int = 0
    unused: int = 0
    skipped: int = 0
    reward: float = 0.0

    def count(self, event: Event) -> None:
        """Take note of an event."""
        kind = event["kind"]
        if kind == "ask":
            self.asked += not event.get("again", False)
        elif kind == "tell":
            self.told += len(event["arms"])
            self.reward += sum(event["rewards"])
            self.unused += len(event["arms"]) if event.get("unused") else 0
        elif kind == "lost":
            self.lost += len(event["arms"])
        elif kind == "skip":
            self.skipped += event["slots"]


class Lookup:
    """What an agent asks its store for, because it is too long ago to be at hand."""

    def __init__(self, request: Callable[[str], Event | None], slot: Callable[[int], list[Event]]) -> None:
        self.request, self.slot = request, slot


class Hosted:
    """One agent of a store."""

    def __init__(self, number: int, name: str, made: int, clock: str, player: HostedPlayer) -> None:
        self.number, self.name, self.made, self.clock, self.player = number, name, made, clock, player
        self.length = slot_length(clock)
        self.seq = 0
        """The number of the last event, committed or pending."""
        self.pending: list[Event] = []
        self.totals = Totals()
        self.ended = False
        self._open: dict[int, None] = {slot.slot: None for slot in player.open}
        self._recent: dict[str, Event] = {}
        self.snapshot_seq = 0

    @classmethod
    def create(cls, number: int, given: Create, seed: int, now: int, planner: Planner, limits: Limits) -> Self:
        """Return a new agent, whose creation is its first event."""
        check_created(given, limits)
        settings = settings_of(given, seed)
        hosted = cls(number, given.name, now, given.clock, player_of(settings, planner))
        hosted._note(
            {"kind": "create", "version": LOG_VERSION, "name": given.name, "clock": given.clock, **settings}, now
        )
        return hosted

    @classmethod
    def created_by(cls, number: int, name: str, event: Event, planner: Planner) -> Self:
        """Return the agent that an event of the log has made."""
        if event["kind"] != "create" or event["version"] > LOG_VERSION:
            raise ProblemError(f"the log of agent {name!r} is of a later release, or does not begin with its creation")
        hosted = cls(number, name, event["at"], event["clock"], player_of(event, planner))
        hosted.seq = 1
        return hosted

    @property
    def weight(self) -> int:
        """Bytes that the agent takes in memory, roughly."""
        record, window = self.player.record, self.player._window
        return 4 * (record.flat_counts.nbytes + record.flat_visits.nbytes) + 700 * len(window._entries) + 20_000

    def made_by(self, given: Create, first: Event) -> bool:
        """Whether the agent was made by the same words."""
        seed = first["seed"] if given.seed is None and not first["seeded"] else given.seed
        told = json.loads(json.dumps({"clock": given.clock, **settings_of(given, seed)}))  # type: ignore[arg-type]
        return all(first[key] == value for key, value in told.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the agent as JSON can hold it: what a snapshot is made of."""
        stored = self.player.stored
        return {
            "name": self.name,
            "made": self.made,
            "clock": self.clock,
            "seq": self.seq,
            "totals": asdict(self.totals),
            "plans": self.player.plans,
            "digest": None if stored is None else stored.digest,
            "player": self.player._to_dict(),
        }

    @classmethod
    def from_dict(cls, number: int, data: dict[str, Any], planner: Planner) -> Self:
        """Return the agent that ``to_dict`` wrote."""
        plan = None if data["digest"] is None else planner.stored(data["digest"])
        player = HostedPlayer._restored(
            data["player"], None, trust_modules=planner.trust_modules, planner=planner, plan=plan
        )
        player.plans = data["plans"]
        hosted = cls(number, data["name"], data["made"], data["clock"], player)
        hosted.seq = hosted.snapshot_seq = data["seq"]
        hosted.totals = Totals(**data["totals"])
        return hosted

    def repeat(self, event: Event, *, check: bool = False) -> bool:
        """Let an event of the log happen again; whether it is what would be decided today, if that is asked."""
        if event["seq"] != self.seq + 1:
            raise ProblemError(f"the log of agent {self.name!r} lacks event {self.seq + 1}")
        self.seq += 1
        player, kind = self.player, event["kind"]
        same = True
        if kind == "delete":
            self.ended = True
        elif not (event.get("again") or event.get("unused")):
            player._replaying = True
            try:
                same = player.repeat(event, check=check)
            finally:
                player._replaying = False
        self.totals.count(event)
        if kind in ("ask", "tell", "lost") and not event.get("again"):
            self._follow_open(event["slot"])
        if "request" in event:
            self._remember(event["request"], event)
        return same

    def ask(self, given: Ask, now: int, lookup: Lookup, limits: Limits) -> Answer:
        """Decide on a slot."""
        check_word("request", given.request, limits)
        known = self._recent.get(given.request) or lookup.request(given.request)
        if known is not None:
            if known["kind"] != "ask":
                raise ServiceError(
                    409, f"request {given.request!r} was no ask; give every request its own id", "request"
                )
            return self._decision(known)
        player = self.player
        self._pass_to(now)
        slot = player.slots + 1
        passes = bool(player._window.look(slot).asked)
        if passes and self.length is not None:
            return self._again(given, slot, lookup, now)
        if self.length is not None and slot > self._slot_by_clock(now) and player._window.look(slot - 1).asked:
            # Its answer has come already, within its slot.
            return self._again(given, slot - 1, lookup, now)
        self._check_open(limits.open_decisions, slots=slot - 1 + passes)
        if passes:
            player.skip()
        player.ask()
        self._gather(now, request=given.request)
        return self._decision(self.pending[-1])

    def _again(self, given: Ask, slot: int, lookup: Lookup, now: int) -> Answer:
        """Answer with the decision that a slot of the clock has."""
        self._gather(now)
        asked = [e for e in (*lookup.slot(slot), *self.pending) if e["kind"] == "ask" and e["slot"] == slot]
        kept = {key: asked[0][key] for key in ("slot", "arms", "plan", "decision")}
        self._note({"kind": "ask", "again": True, "request": given.request, **kept}, now)
        return self._decision(self.pending[-1])

    def tell(self, given: Tell, now: int, lookup: Lookup) -> Answer:
        """Take what was seen in a slot."""
        slot = self._slot_of(given)
        player = self.player
        if slot <= player._window.edge:
            return self._tell_old(given, slot, now, lookup.slot(slot))
        entry = player._window.look(slot)
        if given.decision is not None and not entry.asked:
            raise ServiceError(404, f"agent {self.name!r} has no decision {shortened(given.decision)}", "decision")
        complete = bool(entry.asked or entry.told) and not entry.missing(player.task.plays)
        if complete and given.lost and not entry.lost:
            raise ConflictError(f"slot {slot} was told before, so its answer is not lost")
        if not complete:
            # What has all its answers is repeated or refused, and no slot passes.
            self._pass_to(now)
            if slot <= player._window.edge:
                return self._tell_old(given, slot, now, lookup.slot(slot))
        player.tell(given.state, given.reward, _named(given.arm), slot=slot, lost=given.lost)
        self._gather(now)
        return {"decision": self.decision_id(slot), "slot": slot, "used": True}

    def _tell_old(self, given: Tell, slot: int, now: int, events: list[Event]) -> Answer:
        """Keep an answer that comes too late to be used, unless it was told in time."""
        player = self.player
        asked: list[int] = next((event["arms"] for event in events if event["kind"] == "ask"), [])
        told = {
            arm: (state, reward)
            for event in events
            if event["kind"] == "tell"
            for arm, state, reward in zip(event["arms"], event["states"], event["rewards"], strict=True)
        }
        lost = {arm for event in events if event["kind"] == "lost" for arm in event["arms"]}
        arms = player._arms_of(_named(given.arm)) if given.arm is not None else list(asked)
        if not arms:
            raise ServiceError(404, f"agent {self.name!r} has no decision of slot {slot}", "decision")
        answer = {"decision": self.decision_id(slot), "slot": slot, "used": True}
        unused = {
            **answer,
            "used": False,
            "reason": f"slot {slot} is more than {player.late} slots ago; the answer is kept in the log and not used",
        }
        if given.lost:
            if given.state is not None or given.reward is not None:
                raise ProblemError("an answer that is lost has no state and no reward; give these or lost")
            if (any(arm in told for arm in arms) and given.arm is not None) or (told and set(asked) <= told.keys()):
                raise ConflictError(f"slot {slot} was told before, so its answer is not lost")
            new = [arm for arm in arms if arm not in told]
            if set(new) <= lost:
                return unused if any(e.get("unused") for e in events if e["kind"] == "lost") else answer
            self._note({"kind": "lost", "slot": slot, "arms": new, "unused": True, "decision": answer["decision"]}, now)
            return unused
        seen = player._seen(arms, _named(given.arm), given.state, given.reward)
        for arm, state, reward in seen:
            player._check_possible(arm, state, reward)
        fresh = player._new_answers(slot, seen, told)
        if not fresh:
            return unused if any(e.get("unused") for e in events if e["kind"] == "tell") else answer
        columns = dict(zip(("arms", "states", "rewards"), map(list, zip(*fresh, strict=True)), strict=True))
        event = {"kind": "tell", "slot": slot, **columns, "unused": True, "decision": answer["decision"]}
        self._note(event, now)
        return unused

    def skip(self, given: Skip, now: int, lookup: Lookup, limits: Limits) -> Answer:
        """Let slots pass in which nobody asked."""
        if given.request is not None:
            check_word("request", given.request, limits)
            known = self._recent.get(given.request) or lookup.request(given.request)
            if known is not None:
                if known["kind"] != "skip" or known["slots"] != given.slots:
                    raise ServiceError(409, f"request {given.request!r} was another one; give every request its own id")
                return {"slots": known["until"]}
        if self.length is not None:
            raise ServiceError(
                409, f"slots of agent {self.name!r} pass by its clock, of {self.clock}; do not skip them"
            )
        self.player.skip(given.slots)
        self.player.events[-1]["until"] = self.player.slots
        self._gather(now, request=given.request)
        return {"slots": self.player.slots}

    def patch(self, given: Patch, now: int, limits: Limits) -> Answer:
        """Change what is asked to be changed; what is so already stays so."""
        player = self.player
        unknown = sorted(set(given.changes) - set(PATCHES))
        if unknown:
            raise ServiceError(
                422, f"{shortened(unknown[0])} cannot be changed; change {', '.join(PATCHES)}", unknown[0]
            )
        for field, value in given.changes.items():
            with blamed(field):
                if field == "late":
                    check_late(value, limits)
                if field == "learner":
                    if value != player.learner.spec:
                        player.learner = value
                elif field in ("late", "on_change"):
                    if value != getattr(player, field):
                        setattr(player, field, value)
                elif field == "add_arm":
                    self._add_arm(value, limits)
                elif (player.task.names[player._number_of(value)] in player.in_service) == (field == "retire_arm"):
                    getattr(player, field)(value)
        self._gather(now)
        return self.view()

    def _add_arm(self, value: str | Mapping[str, Any], limits: Limits) -> None:
        player, task = self.player, self.player.task
        arm = dict(value) if isinstance(value, Mapping) else {"name": value}
        name = arm.pop("name")
        arm = {key: tuple(entry) if isinstance(entry, list) else entry for key, entry in arm.items()}
        if name in player.in_service:
            number = task.names.index(name)
            usual = {"n_states": 2, "reward_law": "bernoulli", "reward_range": (0.0, 1.0)}
            there = task.n_states[number], task.reward_laws[number], task.reward_ranges[number]
            if usual | arm == dict(zip(usual, there, strict=True)):
                return
        if task.n_arms >= limits.arms:
            raise ServiceError(422, f"agent {self.name!r} has {task.n_arms} arms, the most that it may have", "add_arm")
        player.add_arm(name, **arm)

    def delete(self, now: int) -> Answer:
        """End the agent; its log stays."""
        self._note({"kind": "delete"}, now)
        self.ended = True
        return {"deleted": self.name}

    def view(self) -> Answer:
        """Return what may be shown of the agent."""
        player, task = self.player, self.player.task
        stored = player.stored
        return {
            "name": self.name,
            "made": self.made / 1e6,
            "clock": self.clock,
            "task": {
                "arms": [
                    {
                        "name": task.names[arm],
                        "n_states": task.n_states[arm],
                        "reward_law": task.reward_laws[arm],
                        "reward_range": list(task.reward_ranges[arm]),
                        "in_service": arm in player._service,
                        "pulls": int(pulls),
                    }
                    for arm, pulls in enumerate(player.record.pulls.tolist())
                ],
                "plays": task.plays,
                "horizon": task.horizon,
            },
            "learner": player.learner.spec,
            "seed": player.seed,
            "late": player.late,
            "on_change": player.on_change,
            "memory": player.memory,
            "slots": player.slots,
            "seq": self.seq,
            "open": [
                {"decision": self.decision_id(one.slot), "slot": one.slot, "arms": list(one.names)}
                for one in player.open[-1000:]
            ],
            "asked": self.totals.asked,
            "told": self.totals.told,
            "lost": self.totals.lost,
            "unused": self.totals.unused,
            "skipped": self.totals.skipped,
            "reward": self.totals.reward,
            "alarms": [asdict(alarm) | {"evidence": _finite(alarm.evidence)} for alarm in player.alarms],
            "plan": player.plans,
            "digest": None if stored is None else stored.digest,
            "planning": player._due is not None,
        }

    def packed_known(self) -> bytes:
        """Return ``Known``, pickled for a worker: unlike a copy, the pickle of a record leaves out its zeros."""
        player = self.player
        known: Known = (player.record, player.task.names, player.task.reward_ranges, list(player._service))
        return pickle.dumps(known)

    def decision_id(self, slot: int) -> str:
        return f"{self.number}-{slot}"

    def _decision(self, event: Event) -> Answer:
        """The answer to an ask, from its event."""
        names = self.player.task.names
        arms = event["arms"]
        return {
            "decision": event["decision"],
            "slot": event["slot"],
            "arms": [names[arm] for arm in arms],
            "numbers": list(arms),
            "plan": event["plan"],
        }

    def _slot_of(self, given: Tell) -> int:
        """The slot that an answer is for."""
        if given.decision is None:
            if given.slot is None:
                raise ServiceError(422, "name the decision that was carried out, or its slot", "decision")
            if given.slot < 1:
                raise ServiceError(422, f"slot is {given.slot}; slots are counted from 1", "slot")
            return given.slot
        number, _, digits = given.decision.partition("-")
        slot = int(digits) if number == str(self.number) and digits.isdecimal() and len(digits) < 20 else 0
        if not 1 <= slot <= self.player.slots + 1 or self.decision_id(slot) != given.decision:
            raise ServiceError(404, f"agent {self.name!r} has no decision {shortened(given.decision)}", "decision")
        if given.slot not in (None, slot):
            raise ServiceError(422, f"decision {given.decision!r} is of slot {slot}, not {given.slot}", "slot")
        return slot

    def _slot_by_clock(self, now: int) -> int:
        return 0 if self.length is None else slot_at(now, self.made, self.length)

    def _pass_to(self, now: int) -> None:
        """Let the slots pass that the clock has left behind; one that goes backwards changes nothing."""
        missing = self._slot_by_clock(now) - 1 - self.player.slots
        if missing > 0:
            self.player.skip(missing)

    def _follow_open(self, slot: int) -> None:
        """Keep track of which decisions are open."""
        window, plays = self.player._window, self.player.task.plays
        if slot > window.edge and window.look(slot).missing(plays):
            self._open[slot] = None
        else:
            self._open.pop(slot, None)

    def _check_open(self, most: int, slots: int) -> None:
        """Refuse one more open decision than there may be, when so many slots have passed."""
        # Those whose answers would come too late are no longer open.
        edge = max(self.player._window.edge, slots - self.player.late)
        while self._open and next(iter(self._open)) <= edge:
            del self._open[next(iter(self._open))]
        if len(self._open) >= most:
            raise ServiceError(
                429,
                f"agent {self.name!r} has {len(self._open)} open decisions, the most that it may have; tell what they "
                "gave, or that they are lost",
                retry_after=1.0,
            )

    def _gather(self, now: int, request: str | None = None) -> None:
        """Take over the events of the player; a request id belongs to the last of them."""
        events, self.player.events = self.player.events, []
        for event in events:
            if event["kind"] in ("ask", "tell", "lost"):
                event["decision"] = self.decision_id(event["slot"])
                if event["kind"] == "ask":
                    event["plan"] = self.player.plans
        if request is not None:
            events[-1]["request"] = request
        for event in events:
            self._note(event, now)

    def _note(self, event: Event, now: int) -> None:
        self.seq += 1
        event["seq"], event["at"] = self.seq, now
        self.pending.append(event)
        self.totals.count(event)
        if event["kind"] in ("ask", "tell", "lost") and not event.get("again"):
            self._follow_open(event["slot"])
        if "request" in event:
            self._remember(event["request"], event)

    def _remember(self, request: str, event: Event) -> None:
        self._recent[request] = event
        # What is not written yet is found nowhere else.
        if len(self._recent) > RECENT + len(self.pending):
            del self._recent[next(iter(self._recent))]


class blamed:  # noqa: N801 — reads as a word of the language
    """Turn what a player refuses into an answer that names the field to blame."""

    def __init__(self, field: str | None = None) -> None:
        self.field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ProblemError) and not isinstance(error, ServiceError):
            raise ServiceError(409 if isinstance(error, ConflictError) else 422, str(error), self.field) from None


def event_row(agent: int, event: Event) -> dict[str, Any]:
    """Return the row of an event."""
    aside = ("seq", "kind", "request", "at")
    body = _encode({key: value for key, value in event.items() if key not in aside})
    return {
        "agent": agent,
        "seq": event["seq"],
        "kind": event["kind"],
        "slot": event["slot"] if event["kind"] in ("ask", "tell", "lost") else None,
        "request": event.get("request"),
        "at": event["at"],
        "body": body,
    }


def _named(arm: Any) -> Any:
    return list(arm) if isinstance(arm, tuple) else arm


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
