"""Does the log hold what would happen? It is played again from its first event, and every decision compared.

Decisions follow the stored plans. Where a plan was made by this release on this kind of processor, it is made again
from the record of its time and must be the same; where it was not, the stored one is followed and the audit says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from restless_bandits.errors import ProblemError, UntrustedModuleError
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.planning import Planner, origin
from restless_bandits.service.session import AgentRow, Session
from restless_bandits.service.store import Store
from restless_bandits.service.stored_plans import make_packed_plan


@dataclass
class Audit:
    """What an audit found."""

    agents: int = 0
    events: int = 0
    decisions: int = 0
    plans: int = 0
    foreign: int = 0
    """Plans of another release or processor, which were followed as they are stored."""
    difference: str | None = None
    """The first thing that differs, in a sentence."""

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
        done = f"{counted}: all as they would be made again; plans made anew: {self.plans}"
        if self.foreign:
            done += f", followed as they are stored, of another release or processor: {self.foreign}"
        return done


def audit(
    store: Store,
    *,
    plans: bool = True,
    trust_modules: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Play the whole log of a store again; ``plans=False`` makes no plan anew, which takes most of the time.

    ``trust_modules`` accepts learners and oracles named by ``module:Class``, and imports the modules.
    ``progress`` is called with the number of events so far, now and then.
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
            except (ProblemError, KeyError, TypeError, ValueError) as error:
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
    hosted: Hosted | None = None
    seq = 0
    for event in session.events(number):
        seq += 1
        found.events += 1
        if progress is not None and found.events % 10_000 == 0:
            progress(found.events)
        where = f"agent {name!r}, event {event['seq']}"
        if event["seq"] != seq:
            return f"agent {name!r}: event {seq} is missing"
        if hosted is None:
            hosted = Hosted.created_by(number, name, event, planner)
            continue
        if hosted.ended:
            return f"{where} comes after the agent was deleted"
        if event["kind"] == "plan":
            differs = _audit_plan(hosted, event, found, plans)
            if differs:
                return f"{where}: {differs}"
        if event["kind"] == "ask" and not event.get("again"):
            found.decisions += 1
            if event["decision"] != hosted.decision_id(event["slot"]) or event["plan"] != hosted.player.plans:
                return f"{where}: decision {event['decision']} is not that of slot {event['slot']} and its plan"
        if not hosted.repeat(event, check=True):
            chosen = list(hosted.player._choice())
            return f"{where}: slot {event['slot']} was decided as arms {event['arms']}, and is {chosen} today"
    if seq != last:
        return f"agent {name!r}: the log ends at event {seq}, and {last} were written"
    return None


def _audit_plan(hosted: Hosted, event: dict[str, object], found: Audit, plans: bool) -> str | None:
    """Make a plan again, where that must give the same one."""
    made_by = {key: event[key] for key in ("release", "processor")}
    if made_by != origin():
        found.foreign += 1
        return None
    if not plans:
        return None
    player = hosted.player
    found.plans += 1
    record = player.record.copy() if player._due is None else player._due.record
    with warnings.catch_warnings(action="ignore"):
        digest, _ = make_packed_plan(*player._ingredients(record))
    if digest != event["digest"]:
        return f"plan {event['plan']} is {event['digest']}, and would be {digest} today"
    return None
