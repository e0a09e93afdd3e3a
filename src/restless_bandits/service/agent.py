"""Agent of the service: agent state machine, name, clock, decision ids and totals, rebuilt from an event log.

Every operation returns a JSON-compatible answer and appends its events to ``pending``. A failed operation may leave
some of its events there; the caller then rebuilds the agent from the store. This module writes nothing.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from restless_bandits._internal.errors import ConflictError, ProblemError, shortened
from restless_bandits.agent.feedback import reward_of
from restless_bandits.learning.change_detection import LEAST_OBSERVATIONS
from restless_bandits.model.tasks import Task
from restless_bandits.service.agent_core import (
    Event,
    ServiceAgentCore,
    check_created,
    check_late,
    check_word,
    core_of,
    settings_of,
)
from restless_bandits.service.clock import slot_at, slot_length
from restless_bandits.service.operations import Answer, Ask, Create, Patch, ServiceError, Skip, Tell
from restless_bandits.service.planning import Planner
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.schema import LOG_VERSION
from restless_bandits.service.views import Known

LARGE = 5_000
"""Slots of feedback above which rebuilding the agent takes about 100 ms."""
MOST_EVENTS = 1 << 62
"""No bound on the events between two snapshots beside that of the writer."""
RECENT = 256
"""Number of request ids in memory; older request ids are in the store."""
_encode = json.JSONEncoder(separators=(",", ":")).encode
PATCHES = ("learner", "late", "on_change", "add_arm", "retire_arm", "restore_arm")


@dataclass
class Totals:
    """Counters of the events of an agent, with the sum of its rewards."""

    asked: int = 0
    told: int = 0
    lost: int = 0
    unused: int = 0
    skipped: int = 0
    reward: float = 0.0

    def count(self, event: Event) -> None:
        """Count an event."""
        kind = event["kind"]
        if kind == "ask":
            self.asked += not event.get("again", False)
        elif kind == "tell" and "arms" not in event:  # of observed arms
            self.told += event.get("told", 0)
            self.reward += event.get("earned", 0.0)
            self.unused += bool(event.get("unused"))
        elif kind == "tell":
            self.told += len(event["arms"])
            self.reward += sum(event["rewards"])
            self.unused += len(event["arms"]) if event.get("unused") else 0
        elif kind == "lost":
            self.lost += len(event["arms"])
        elif kind == "skip":
            self.skipped += event["slots"]


class EventLookup:
    """Queries of an agent for old events, by request id and by slot; an agent holds recent events only."""

    def __init__(self, request: Callable[[str], Event | None], slot: Callable[[int], list[Event]]) -> None:
        self.request, self.slot = request, slot


class ServiceAgent:
    """Agent of a store, with the events not yet committed."""

    def __init__(self, number: int, name: str, made: int, clock: str, core: ServiceAgentCore) -> None:
        self.number, self.name, self.made, self.clock, self.core = number, name, made, clock, core
        self.length = slot_length(clock)
        self.seq = 0
        """The number of the last event, committed or pending."""
        self.pending: list[Event] = []
        self.totals = Totals()
        self.ended = False
        self._open: dict[int, None] = {slot.slot: None for slot in core.open}
        self._recent: dict[str, Event] = {}
        self.snapshot_seq = 0
        self.snapshot_refused = False
        """Whether the store holds a snapshot that does not fit the log."""

    @classmethod
    def create(cls, number: int, given: Create, seed: int, now: int, planner: Planner, quotas: Quotas) -> Self:
        """Return a new agent; its first event is ``create``."""
        check_created(given, quotas)
        settings = settings_of(given, seed)
        agent_state = cls(number, given.name, now, given.clock, core_of(settings, planner))
        agent_state._note(
            {"kind": "create", "version": LOG_VERSION, "name": given.name, "clock": given.clock, **settings}, now
        )
        return agent_state

    @classmethod
    def created_by(cls, number: int, name: str, event: Event, planner: Planner) -> Self:
        """Return the agent of a ``create`` event from the log."""
        agent_state = cls(number, name, event["at"], event["clock"], core_of(event, planner))
        agent_state.seq = 1
        return agent_state

    @property
    def is_observed(self) -> bool:
        """Whether the agent observes all arms."""
        return False

    @property
    def most_events(self) -> int:
        """The largest number of events between two snapshots, by the time that an event takes at recovery."""
        return MOST_EVENTS

    @property
    def weight(self) -> int:
        """Approximate memory of the agent in bytes."""
        record = self.core.record
        return 4 * (record.flat_counts.nbytes + record.flat_visits.nbytes) + 700 * self.core.buffered_slots + 20_000

    @property
    def is_large(self) -> bool:
        """Whether rebuilding the agent delays other requests noticeably."""
        return self.core.buffered_slots > LARGE

    @property
    def open_decisions(self) -> int:
        """The number of decisions with missing feedback."""
        return len(self._open)

    def made_by(self, given: Create, first: Event) -> bool:
        """Return whether the agent was created with the same settings."""
        seed = first["seed"] if given.seed is None and not first["seeded"] else given.seed
        told = json.loads(json.dumps({"clock": given.clock, **settings_of(given, seed)}))  # type: ignore[arg-type]
        if given.reward_law is None:
            # The law that is taken where none is given was another in earlier releases.
            told["task"]["reward_laws"] = first["task"]["reward_laws"]
        return all(first[key] == value for key, value in told.items())

    def check_gathered(self) -> None:
        """Raise if the player has events missing from ``pending``: a commit would omit these events from the log."""
        if self.core.events:
            kinds = ", ".join(event["kind"] for event in self.core.events)
            raise RuntimeError(f"agent {self.name!r} has events that were not gathered: {kinds}")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-compatible state of the agent: the content of a snapshot.

        Every event must be in the log. Recovery from a snapshot with an unlogged event would apply the event twice.
        """
        self.check_gathered()
        if self.pending:
            raise RuntimeError(f"agent {self.name!r} has {len(self.pending)} events that are not in the log")
        stored = self.core.stored
        return {
            "name": self.name,
            "made": self.made,
            "clock": self.clock,
            "seq": self.seq,
            "totals": asdict(self.totals),
            "plans": self.core.plans,
            "digest": None if stored is None else stored.digest,
            "player": self.core.to_dict(),
        }

    @classmethod
    def from_dict(cls, number: int, data: dict[str, Any], planner: Planner) -> Self:
        """Return the agent from the result of ``to_dict``."""
        plan = None if data["digest"] is None else planner.stored(data["digest"])
        core = ServiceAgentCore.from_dict(
            data["player"], None, trust_modules=planner.trust_modules, planner=planner, plan=plan
        )
        core.plans = data["plans"]
        return cls._with_core(number, data, core)

    @classmethod
    def _with_core(cls, number: int, data: dict[str, Any], core: Any) -> Self:
        agent_state = cls(number, data["name"], data["made"], data["clock"], core)
        agent_state.seq = agent_state.snapshot_seq = data["seq"]
        agent_state.totals = Totals(**data["totals"])
        return agent_state

    def repeat(self, event: Event, *, check: bool = False) -> bool:
        """Apply an event of the log. With ``check``, return whether the present code would make the same decision."""
        if event["seq"] != self.seq + 1:
            raise ProblemError(f"the log of agent {self.name!r} lacks event {self.seq + 1}")
        self.seq += 1
        core, kind = self.core, event["kind"]
        same = True
        if kind == "delete":
            self.ended = True
        elif not (event.get("again") or event.get("unused")):
            same = core.repeat(event, check=check)
        self.totals.count(event)
        if kind in ("ask", "tell", "lost") and not event.get("again"):
            self._follow_open(event["slot"])
        if "request" in event:
            self._remember(event["request"], event)
        return same

    def ask(self, given: Ask, now: int, lookup: EventLookup, quotas: Quotas) -> Answer:
        """Return the decision of the next slot, or the earlier decision of the same request id."""
        check_word("request", given.request, quotas)
        known = self._recent.get(given.request) or lookup.request(given.request)
        if known is not None:
            if known["kind"] != "ask":
                raise ServiceError(
                    409, f"request {given.request!r} was not an ask; give every request its own id", "request"
                )
            return self._decision(known)
        if given.states is not None or given.exclude:
            raise ServiceError(422, f"agent {self.name!r} sees the arms that are pulled; leave states out", "states")
        core = self.core
        slot = core.slots + self._behind(now) + 1
        passes = bool(core.feedback_at(slot).asked)
        if passes and self.length is not None:
            return self._again(given, slot, lookup, now)
        if self.length is not None and slot > self._slot_by_clock(now) and core.feedback_at(slot - 1).asked:
            # The decision of this slot has its feedback already.
            return self._again(given, slot - 1, lookup, now)
        self._check_open(quotas.open_decisions, slots=slot - 1 + passes)
        self.advance_to(now)
        if passes:
            core.skip()
        core.ask()
        self.gather(now, request=given.request)
        return self._decision(self.pending[-1])

    def _again(self, given: Ask, slot: int, lookup: EventLookup, now: int) -> Answer:
        """Return the existing decision of a slot of the clock."""
        self.gather(now)
        asked = [e for e in (*lookup.slot(slot), *self.pending) if e["kind"] == "ask" and e["slot"] == slot]
        kept = {key: asked[0][key] for key in ("slot", "arms", "plan", "decision")}
        self._note({"kind": "ask", "again": True, "request": given.request, **kept}, now)
        return self._decision(self.pending[-1])

    def tell(self, given: Tell, now: int, lookup: EventLookup) -> Answer:
        """Record the feedback of a slot."""
        if given.rewards is not None or given.costs is not None or given.pulled_arms is not None:
            raise ServiceError(
                422, f"agent {self.name!r} sees the arms that are pulled; tell state and reward of them", "rewards"
            )
        slot = self._slot_of(given)
        core = self.core
        if given.cost is not None:
            given = replace(given, reward=reward_of(given.reward, given.cost), cost=None)
        if not given.pulled:
            given = replace(given, lost=True)
        if slot <= core.finalized_through:
            return self._tell_old(given, slot, now, lookup.slot(slot))
        entry = core.feedback_at(slot)
        if given.decision is not None and not entry.asked:
            raise ServiceError(404, f"agent {self.name!r} has no decision {shortened(given.decision)}", "decision")
        answer = {"decision": self.decision_id(slot), "slot": slot, "used": True}
        complete = bool(entry.asked or entry.received) and not entry.missing(core.task.plays)
        if given.lost and entry.received:
            arms = list(entry.asked) if given.arm is None else core.validator.arms_of(_named(given.arm))
            _check_nothing_seen(given)
            if _lost_before(lookup.slot(slot), arms, entry.received, named=given.arm is not None):
                return answer
        if complete and given.lost and not entry.abandoned:
            raise ConflictError(f"slot {slot} was told before, so its answer is not lost")
        if not complete:
            # Feedback of a complete slot is a duplicate or a conflict; slots do not advance.
            self.advance_to(now)
            if slot <= core.finalized_through:
                return self._tell_old(given, slot, now, lookup.slot(slot))
        core.tell(given.state, given.reward, _named(given.arm), slot=slot, lost=given.lost, pulled=given.pulled)
        self.gather(now)
        return answer

    def _tell_old(self, given: Tell, slot: int, now: int, events: list[Event]) -> Answer:
        """Log feedback received too late for use, unless the feedback duplicates an earlier report."""
        core = self.core
        asked: list[int] = next((event["arms"] for event in events if event["kind"] == "ask"), [])
        told = {
            arm: (state, reward)
            for event in events
            if event["kind"] == "tell"
            for arm, state, reward in zip(event["arms"], event["states"], event["rewards"], strict=True)
        }
        arms = core.validator.arms_of(_named(given.arm)) if given.arm is not None else list(asked)
        if not arms:
            raise ServiceError(404, f"agent {self.name!r} has no decision of slot {slot}", "decision")
        unused = {"slot": slot, "unused": True, "late": core.late, "decision": self.decision_id(slot)}
        if not given.pulled:
            unused["pulled"] = False
        if given.lost:
            _check_nothing_seen(given)
            before = _lost_before(events, arms, told, named=given.arm is not None)
            if before:
                return self._stored(slot, before)
            if (any(arm in told for arm in arms) and given.arm is not None) or (told and set(asked) <= told.keys()):
                raise ConflictError(f"slot {slot} was told before, so its answer is not lost")
            self._note({"kind": "lost", "arms": [arm for arm in arms if arm not in told], **unused}, now)
            return self._stored(slot, self.pending[-1:])
        seen = core.validator.by_arm(arms, _named(given.arm), given.state, given.reward)
        for arm, state, reward in seen:
            core.validator.check_possible(arm, state, reward)
        fresh = core.validator.new_feedback(slot, seen, told)
        if not fresh:
            return self._stored(slot, [event for event in events if event["kind"] == "tell"])
        columns = dict(zip(("arms", "states", "rewards"), map(list, zip(*fresh, strict=True)), strict=True))
        self._note({"kind": "tell", **columns, **unused}, now)
        return self._stored(slot, self.pending[-1:])

    def _stored(self, slot: int, events: list[Event]) -> Answer:
        """Return the answer to feedback from the logged events of its slot; a repeated request has the same answer."""
        answer = {"decision": self.decision_id(slot), "slot": slot, "used": True}
        unused = next((event for event in events if event.get("unused")), None)
        if unused is None:
            return answer
        # Events of earlier releases lack the value of ``late`` at the time of the event.
        late = unused.get("late", self.core.late)
        reason = f"slot {slot} is more than {late} slots ago; the answer is kept in the log and not used"
        return {**answer, "used": False, "reason": reason}

    def skip(self, given: Skip, now: int, lookup: EventLookup, quotas: Quotas) -> Answer:
        """Advance by slots without a decision."""
        if given.request is not None:
            check_word("request", given.request, quotas)
            known = self._recent.get(given.request) or lookup.request(given.request)
            if known is not None:
                if known["kind"] != "skip" or known["slots"] != given.slots:
                    raise ServiceError(409, f"request {given.request!r} was another request; give each its own id")
                return {"slots": known["until"]}
        if self.length is not None:
            raise ServiceError(
                409, f"agent {self.name!r} has a clock of {self.clock}, which advances the slots; do not skip slots"
            )
        self.core.skip(given.slots)
        self.core.events[-1]["until"] = self.core.slots
        self.gather(now, request=given.request)
        return {"slots": self.core.slots}

    def patch(self, given: Patch, now: int, quotas: Quotas) -> Answer:
        """Apply the requested changes; a change to the present value has no effect."""
        core = self.core
        unknown = sorted(set(given.changes) - set(PATCHES))
        if unknown:
            raise ServiceError(
                422, f"{shortened(unknown[0])} cannot be changed; change {', '.join(PATCHES)}", unknown[0]
            )
        for field, value in given.changes.items():
            with error_field(field):
                if field == "late":
                    check_late(value, quotas)
                if field == "learner":
                    if value != core.learner.spec:
                        core.learner = value
                elif field in ("late", "on_change"):
                    if value != getattr(core, field):
                        setattr(core, field, value)
                elif field == "add_arm":
                    self._add_arm(value, quotas)
                elif (core.task.names[core.validator.number_of(value)] in core.in_service) == (field == "retire_arm"):
                    getattr(core, field)(value)
        self.gather(now)
        return self.view()

    def _add_arm(self, value: str | Mapping[str, Any], quotas: Quotas) -> None:
        core, task = self.core, self.core.task
        arm = dict(value) if isinstance(value, Mapping) else {"name": value}
        name = arm.pop("name")
        arm = {key: tuple(entry) if isinstance(entry, list) else entry for key, entry in arm.items()}
        if name in core.in_service:
            number = task.names.index(name)
            fields = _fields_of_arm(task, number)
            # Fields that are left out are those of all other arms, as at the first request.
            if fields | arm == fields:
                return
        if task.n_arms >= quotas.arms:
            raise ServiceError(422, f"agent {self.name!r} has {task.n_arms} arms, the maximum allowed", "add_arm")
        core.add_arm(name, **arm)

    def delete(self, now: int) -> Answer:
        """Delete the agent; the event log remains."""
        self._note({"kind": "delete"}, now)
        self.ended = True
        return {"deleted": self.name}

    def rank(self, states: Any, top: int | None, exclude: Sequence[str | int]) -> Answer:
        """Refuse: an index ranks arms whose states are all observed."""
        raise ServiceError(409, f"agent {self.name!r} sees the arms that are pulled; a ranking is for observed arms")

    def view(self) -> Answer:
        """Return the public state of the agent."""
        core, task = self.core, self.core.task
        stored = core.stored
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
                        "in_service": arm in core.arms_in_service,
                        "pulls": int(pulls),
                        "reacts": task.reacts[arm],
                        **({"passive_rewards": list(task.passive_rewards[arm])} if task.passive_rewards else {}),
                        **({"setup_cost": task.setup_costs[arm]} if task.setup_costs else {}),
                        **({"state_names": list(task.state_names[arm])} if task.state_names else {}),
                    }
                    for arm, pulls in enumerate(core.record.pulls.tolist())
                ],
                "plays": task.plays,
                "horizon": task.horizon,
                "in_costs": task.in_costs,
            },
            "learner": core.learner.spec,
            "seed": core.seed,
            "late": core.late,
            "on_change": core.on_change,
            "memory": core.memory,
            "slots": core.slots,
            "seq": self.seq,
            "open": [
                {"decision": self.decision_id(one.slot), "slot": one.slot, "arms": list(one.names)}
                for one in core.open[-1000:]
            ],
            "asked": self.totals.asked,
            "told": self.totals.told,
            "lost": self.totals.lost,
            "unused": self.totals.unused,
            "skipped": self.totals.skipped,
            "reward": self.totals.reward,
            **({"cost": 0.0 - self.totals.reward} if task.in_costs else {}),
            "alarms": [asdict(alarm) | {"evidence": _finite(alarm.evidence)} for alarm in core.alarms],
            "plan": core.plans,
            "digest": None if stored is None else stored.digest,
            "planning": core.is_planning,
        }

    def packed_known(self) -> bytes:
        """Return ``Known``, pickled for a worker: the pickle of a record omits the zeros, unlike a copy."""
        core = self.core
        known: Known = (core.record, core.task.names, core.task.reward_ranges, list(core.arms_in_service))
        return pickle.dumps(known)

    def decision_id(self, slot: int) -> str:
        return f"{self.number}-{slot}"

    def _decision(self, event: Event) -> Answer:
        """Return the answer to an ask from its event."""
        names = self.core.task.names
        arms = event["arms"]
        return {
            "decision": event["decision"],
            "slot": event["slot"],
            "arms": [names[arm] for arm in arms],
            "numbers": list(arms),
            "plan": event["plan"],
        }

    def _slot_of(self, given: Tell) -> int:
        """Return the slot of the feedback."""
        if given.decision is None:
            if given.slot is None:
                raise ServiceError(422, "the feedback has no decision and no slot; give decision or slot", "decision")
            if given.slot < 1:
                raise ServiceError(422, f"slot is {given.slot}; slots are counted from 1", "slot")
            return given.slot
        number, _, digits = given.decision.partition("-")
        slot = int(digits) if number == str(self.number) and digits.isdecimal() and len(digits) < 20 else 0
        if not 1 <= slot <= self.core.slots + 1 or self.decision_id(slot) != given.decision:
            raise ServiceError(404, f"agent {self.name!r} has no decision {shortened(given.decision)}", "decision")
        if given.slot not in (None, slot):
            raise ServiceError(422, f"decision {given.decision!r} is of slot {slot}, not {given.slot}", "slot")
        return slot

    def _slot_by_clock(self, now: int) -> int:
        return 0 if self.length is None else slot_at(now, self.made, self.length)

    def advance_to(self, now: int) -> None:
        """Advance to the present slot of the clock and log the skipped slots; a backward clock changes nothing."""
        missing = self._behind(now)
        if missing:
            self.core.skip(missing)
            self.gather(now)

    def _behind(self, now: int) -> int:
        """Return the number of slots that are over by the clock and not yet passed by the agent."""
        return max(0, self._slot_by_clock(now) - 1 - self.core.slots)

    def ahead_of_clock(self, now: int) -> int:
        """Return the microseconds until the clock reaches the last slot; positive after a clock that was ahead."""
        return 0 if self.length is None else max(0, self.made + (self.core.slots - 1) * self.length - now)

    def may_test_for_changes(self, tells: int) -> bool:
        """Return whether a request with this number of tells may test arms for changes, by compiled kernels."""
        return self.totals.told + tells * self.core.task.plays >= LEAST_OBSERVATIONS

    def may_fail_half_way(self, operations: int, now: int) -> bool:
        """Return whether a request with this number of operations may be refused after a partial change."""
        return operations > 1 or self._behind(now) > 0

    def _follow_open(self, slot: int) -> None:
        """Update the set of open decisions after an event of a slot."""
        core = self.core
        if slot > core.finalized_through and core.feedback_at(slot).missing(core.task.plays):
            self._open[slot] = None
        else:
            self._open.pop(slot, None)

    def _check_open(self, most: int, slots: int) -> None:
        """Raise if the agent has the maximum number of open decisions after ``slots`` slots."""
        # A decision closes when its feedback would be too late.
        edge = max(self.core.finalized_through, slots - self.core.late)
        while self._open and next(iter(self._open)) <= edge:
            del self._open[next(iter(self._open))]
        if len(self._open) >= most:
            raise ServiceError(
                429,
                f"agent {self.name!r} has {len(self._open)} open decisions, the maximum; send their feedback, or "
                "report the feedback as lost",
                retry_after=1.0,
            )

    def gather(self, now: int, request: str | None = None) -> None:
        """Move the events of the player to ``pending``; the last event receives the request id."""
        events, self.core.events = self.core.events, []
        for event in events:
            if event["kind"] in ("ask", "tell", "lost"):
                event["decision"] = self.decision_id(event["slot"])
                if event["kind"] == "ask":
                    event["plan"] = self.core.plans
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
        # Events not yet committed are in this cache only.
        if len(self._recent) > RECENT + len(self.pending):
            del self._recent[next(iter(self._recent))]


class error_field:  # noqa: N801 — lower case, like the context managers of contextlib
    """Context manager that translates errors of the player into a ``ServiceError`` with the name of the field."""

    def __init__(self, field: str | None = None) -> None:
        self.field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ProblemError) and not isinstance(error, ServiceError):
            raise ServiceError(409 if isinstance(error, ConflictError) else 422, str(error), self.field) from None


def event_row(agent: int, event: Event) -> dict[str, Any]:
    """Return an event as a row of the table ``events``."""
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


def _fields_of_arm(task: Task, arm: int) -> dict[str, Any]:
    return {
        "n_states": task.n_states[arm],
        "reward_law": task.reward_laws[arm],
        "reward_range": task.reward_ranges[arm],
        "reacts": task.reacts[arm],
        "setup_cost": task.setup_costs[arm] if task.setup_costs else 0.0,
        "passive_rewards": task.passive_rewards[arm] if task.passive_rewards else (0.0,) * task.n_states[arm],
        "state_names": task.state_names[arm] if task.state_names else None,
    }


def _check_nothing_seen(given: Tell) -> None:
    if given.state is not None or given.reward is not None:
        raise ProblemError("lost feedback has no state and no reward; give state and reward, or lost")


def _lost_before(events: list[Event], arms: list[int], told: Mapping[int, Any], *, named: bool) -> list[Event]:
    """Return the events that mark the feedback of all these arms as lost; an empty list otherwise.

    Feedback received after a loss report does not change the result. Without ``named``, arms with feedback are ignored.
    """
    found = [event for event in events if event["kind"] == "lost" and set(event["arms"]) & set(arms)]
    lost = {arm for event in found for arm in event["arms"]}
    return found if set(arms) <= (lost if named else lost | told.keys()) else []


def _named(arm: Any) -> Any:
    return list(arm) if isinstance(arm, tuple) else arm


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None
