"""Audit of a store: replay of every event log from the first event, with a check of every decision.

Replayed decisions follow the stored plans. A plan of this release and this kind of processor is recomputed from the
record of its time and must be equal. Any other plan is followed as stored, and the audit counts such plans. Every
snapshot is loaded and compared with the replayed agent.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from restless_bandits._internal.errors import ProblemError, UntrustedModuleError, shortened
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.agent_cache import DAMAGE, of_snapshot
from restless_bandits.service.agent_kinds import created_by
from restless_bandits.service.observed import ServiceObservedCore
from restless_bandits.service.planning import Planner, origin
from restless_bandits.service.storage.schema import SNAPSHOT_VERSION
from restless_bandits.service.storage.session import AgentRow, Session, Snapshot
from restless_bandits.service.storage.store import Store
from restless_bandits.service.storage.stored_plans import make_packed_plan


@dataclass
class Audit:
    """Result of an audit: counts, and the first difference."""

    agents: int = 0
    events: int = 0
    decisions: int = 0
    plans: int = 0
    snapshots: int = 0
    foreign: int = 0
    """Plans of another release or processor, followed as stored."""
    difference: str | None = None
    """The first difference in a sentence, or None."""

    @property
    def same(self) -> bool:
        return self.difference is None

    @property
    def sentence(self) -> str:
        if self.difference is not None:
            return self.difference
        counted = ", ".join(
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((self.agents, "agent"), (self.events, "event"), (self.decisions, "decision"))
        )
        done = f"{counted}: all reproduced; plans recomputed: {self.plans}"
        if self.snapshots:
            done += f"; snapshots equal to the log: {self.snapshots}"
        if self.foreign:
            done += f"; plans of another release or processor, followed as stored: {self.foreign}"
        return done


def audit(
    store: Store,
    *,
    plans: bool = True,
    trust_modules: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Replay all event logs of a store; ``plans=False`` skips the recomputation of plans, the slowest part.

    ``trust_modules`` accepts learners and oracles named by ``module:Class``, and imports the modules.
    ``progress`` is called from time to time with the number of events so far.
    """
    found = Audit()
    with store.reading() as session:
        planner = Planner(session.plan, trust_modules=trust_modules)
        for row in session.ever_rows():
            found.agents += 1
            try:
                found.difference = _audit_agent(session, row, planner, found, plans, progress)
            except UntrustedModuleError as error:
                raise ProblemError(f"cannot audit agent {row.name!r}: {error}") from None
            except DAMAGE as error:
                found.difference = f"agent {row.name!r}, after event {found.events} of the store: {error}"
            if found.difference is not None:
                return found
    return found


def _audit_agent(
    session: Session,
    row: AgentRow,
    planner: Planner,
    found: Audit,
    plans: bool,
    progress: Callable[[int], None] | None,
) -> str | None:
    number, name, last = row.id, row.name, row.seq
    agent_state: ServiceAgent | None = None
    seq = 0
    # The snapshot is read first; events written meanwhile by other processes come after the snapshot.
    snapshot = session.snapshot(number)
    if snapshot is not None and snapshot.version > SNAPSHOT_VERSION:
        snapshot = None
    for event in session.events(number):
        seq += 1
        found.events += 1
        if progress is not None and found.events % 10_000 == 0:
            progress(found.events)
        if event["seq"] != seq:
            return f"agent {name!r}: event {seq} is missing"
        if agent_state is None:
            agent_state = created_by(number, name, event, planner)
        else:
            differs = _audit_event(agent_state, event, found, plans)
            if differs:
                return f"agent {name!r}, event {seq}: {differs}"
        if snapshot is not None and seq == snapshot.seq:
            differs = _audit_snapshot(agent_state, snapshot, planner, found)
            if differs:
                return f"agent {name!r}: the snapshot of event {seq} {differs}; the service uses the log"
    if seq != last:
        return f"agent {name!r}: the log ends at event {seq}, and the store counts {last} events"
    if snapshot is not None and snapshot.seq > seq:
        return f"agent {name!r}: the log ends at event {seq}, and there is a snapshot of event {snapshot.seq}"
    return None


def _audit_event(agent_state: ServiceAgent, event: dict[str, Any], found: Audit, plans: bool) -> str | None:
    """Apply an event of the log; return the difference between the event and the replay, or None."""
    if agent_state.ended:
        return "the event comes after the deletion of the agent"
    if event["kind"] == "plan":
        differs = _audit_plan(agent_state, event, found, plans)
        if differs:
            return differs
    if event["kind"] == "ask" and not event.get("again"):
        found.decisions += 1
        if event["decision"] != agent_state.decision_id(event["slot"]) or event["plan"] != agent_state.core.plans:
            return f"decision {event['decision']} does not match slot {event['slot']} and its plan"
    if not agent_state.repeat(event, check=True):
        if agent_state.is_observed:
            return f"slot {event['slot']} was decided as other arms than the replay chooses"
        chosen = list(agent_state.core.next_arms())
        return f"slot {event['slot']} was decided as arms {event['arms']}, and the replay chooses arms {chosen}"
    return None


def _audit_snapshot(agent_state: ServiceAgent, snapshot: Snapshot, planner: Planner, found: Audit) -> str | None:
    """Load a snapshot; return its difference from the replayed agent, or None."""
    found.snapshots += 1
    try:
        stored = of_snapshot(agent_state.number, snapshot, planner)
    except UntrustedModuleError:
        raise
    except DAMAGE as error:
        return f"cannot be loaded: {error}"
    # Another processor may round results computed from the record differently.
    tolerance = 1e-6 if found.foreign else 0.0
    differs = first_difference(_json_form(stored), _json_form(agent_state), tolerance)
    return None if differs is None else f"differs from the replay of the log: {differs}"


def _json_form(agent_state: ServiceAgent) -> Any:
    return json.loads(json.dumps(agent_state.to_dict()))


def first_difference(one: Any, other: Any, tolerance: float = 0.0, where: str = "") -> str | None:
    """Return the path and the values of the first difference of two JSON-compatible values; None if equal."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(f"{where}.{key}" if where else key, one[key], other[key]) for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, float) and isinstance(other, float):
        same = math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
        return None if same else f"{where} is {one!r}, and {other!r} in the log"
    else:
        return None if one == other else f"{where} is {shortened(one)}, and {shortened(other)} in the log"
    return next(filter(None, (first_difference(a, b, tolerance, place) for place, a, b in pairs)), None)


def _audit_plan(agent_state: ServiceAgent, event: dict[str, object], found: Audit, plans: bool) -> str | None:
    """Recompute a plan of this release and processor; return its difference from the stored plan, or None."""
    made_by = {key: event[key] for key in ("release", "processor")}
    if made_by != origin():
        found.foreign += 1
        return None
    if not plans:
        return None
    core: Any = agent_state.core
    found.plans += 1
    if isinstance(core, ServiceObservedCore):
        core.recomputes = True  # with the states of the slot, which come with its ask
        return None
    with warnings.catch_warnings(action="ignore"):
        digest, _ = make_packed_plan(*core.next_ingredients())
    if digest != event["digest"]:
        return f"plan {event['plan']} is {event['digest']}, and would be {digest} today"
    return None
