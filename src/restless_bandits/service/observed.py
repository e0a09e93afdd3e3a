"""Agents of observed arms in the service: asked with the states of all arms, logged in packed columns.

The log holds the states of a slot as changes since the slot before. Plans come from worker processes, are stored under
their digests and are events of the log, as for other agents. A slot gets its plan with its states, so an ask waits for
its own plan; requests to other agents go on.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray
from restless_bandits.agent.observed import ObservedAgent, task_from_dict, task_to_dict
from restless_bandits.agent.packing import unpacked
from restless_bandits.learning.learners import Learner, as_learner, default_learner
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.policies.plans import Plan
from restless_bandits.service import failpoints
from restless_bandits.service.agent import EventLookup, ServiceAgent, error_field
from restless_bandits.service.agent_core import Event, check_word
from restless_bandits.service.operations import Answer, Ask, Create, Patch, ServiceError, Tell
from restless_bandits.service.planning import Planner, origin
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.schema import LOG_VERSION
from restless_bandits.service.storage.stored_plans import StoredPlan, make_packed_plan
from restless_bandits.service.views import KnownObserved

PATCHES = ("learner", "add_arm", "retire_arm", "restore_arm")
MOST_LISTED = 1_000
"""The number of arms up to which the view of an agent lists its arms."""
RECENT_SLOTS = 120
"""Slots of an agent whose numbers of arms by state are kept for the dashboard."""
FEWEST_EVENTS, SNAPSHOT_ARMS = 50, 4_000_000
"""Events between two snapshots: at least so many, and so many arms in all of them."""
LARGE_ARMS = 20_000
"""Arms above which rebuilding an agent takes about 100 ms."""


class ServiceObservedCore(ObservedAgent):
    """State machine with a list of events, and with plans from worker processes, stored under their digests."""

    def __init__(
        self,
        learner: Learner | str | None,
        task: ObservedTask,
        *,
        planner: Planner,
        plan: StoredPlan | None = None,
        **options: Any,
    ) -> None:
        self.planner = planner
        self.stored = plan
        """The plan in use."""
        self.events: list[Event] = []
        self.new_plans: list[StoredPlan] = []
        self.plans = 0
        """The number of plans begun so far."""
        self.recent: deque[tuple[int, list[int], list[int]]] = deque(maxlen=RECENT_SLOTS)
        """Of the last slots in memory: the slot, the numbers of arms by state, and those of pulled arms."""
        self.recomputes = False
        """Whether the next plan of a replay is recomputed and compared with the stored plan."""
        self._replaying = False
        self._replayed_plan: StoredPlan | None = None
        super().__init__(learner, task, **options)

    @property
    def is_planning(self) -> bool:
        """Whether decisions follow an old plan meanwhile: never, as a slot waits for its own plan."""
        return False

    def repeat(self, event: Event, *, check: bool = False) -> bool:
        """Apply an event of the log. With ``check``, return whether the present code would make the same decision."""
        self._replaying = True
        try:
            if event["kind"] == "plan":
                self._replayed_plan = self.planner.stored(event["digest"])
                self.stored, self.plans = self._replayed_plan, event["plan"]
                return True
            same = self.apply_event(event, trust_modules=self.planner.trust_modules)
            if self._replayed_plan is not None:
                raise ProblemError(f"event {event['seq']}: no plan is due in slot {self.slots}")
            return same or not check
        finally:
            self._replaying = False

    def _ask(self, states: IntArray, banned: IntArray, asked: IntArray | None = None) -> IntArray:
        chosen = super()._ask(states, banned, asked)
        most, own = int(self.task.layout.n_states.max()), states[list(self.arms_in_service)]
        # The last number is that of the arms that were not seen.
        every, pulled = (np.where(part < 0, most, part) for part in (own, states[self.record.last_pulled]))
        counts = (np.bincount(part, minlength=most + 1).tolist() for part in (every, pulled))
        self.recent.append((self.slots, *counts))
        return chosen

    def _plan_now(self, begun: ObservedRecord) -> Plan:
        if not self._replaying:
            return self._follow(self.planner.now(self._ingredients(begun)))
        plan, self._replayed_plan = self._replayed_plan, None
        if plan is None:
            raise ProblemError(f"slot {self.slots + 1} has no plan")
        if self.recomputes:
            self.recomputes = False
            digest, _ = make_packed_plan(*self._ingredients(begun))
            if digest != plan.digest:
                raise ProblemError(f"plan {self.plans} is {plan.digest}, and would be {digest} today")
        return plan.plan

    def _follow(self, plan: StoredPlan) -> Plan:
        failpoints.passed("before-plan")
        self.plans += 1
        self._log("plan", slot=self.slots + 1, plan=self.plans, digest=plan.digest, **origin())
        self.new_plans.append(plan)
        self.stored = plan
        return plan.plan

    def _plan_again(self, begun: ObservedRecord) -> Plan:
        assert self.stored is not None
        return self.stored.plan

    def _checked_learner(self, learner: Learner | str) -> Learner:
        """Return the learner after a check against the arms; every spec comes from a request or a store."""
        return super()._checked_learner(as_learner(learner, trust_modules=self.planner.trust_modules))

    def _log(self, kind: str, **content: Any) -> None:
        if self._replaying:
            return
        if kind == "tell" and "rewards" in content:
            rewards = unpacked(content["rewards"])
            content |= {"told": int((~np.isnan(rewards)).sum()), "earned": float(np.nansum(rewards))}
        self.events.append({"kind": kind, **content})

    def _log_learner(self, learner: Learner) -> None:
        self._log("learner", spec=learner.spec)


class ServiceObserved(ServiceAgent):
    """Agent of observed arms of a store, with the events not yet committed."""

    core: Any

    @classmethod
    def create(cls, number: int, given: Create, seed: int, now: int, planner: Planner, quotas: Quotas) -> Self:
        """Return a new agent; its first event is ``create``."""
        settings = observed_settings(given, seed, planner, quotas)
        made = cls(number, given.name, now, given.clock, _core_of(settings, planner))
        made._note(
            {"kind": "create", "version": LOG_VERSION, "name": given.name, "clock": given.clock, **settings}, now
        )
        return made

    @classmethod
    def created_by(cls, number: int, name: str, event: Event, planner: Planner) -> Self:
        """Return the agent of a ``create`` event from the log."""
        made = cls(number, name, event["at"], event["clock"], _core_of(event, planner))
        made.seq = 1
        return made

    @property
    def is_observed(self) -> bool:
        return True

    @property
    def most_events(self) -> int:
        """The largest number of events between two snapshots, by the time that an event takes at recovery."""
        return max(FEWEST_EVENTS, SNAPSHOT_ARMS // int(self.core.task.n_arms))

    @property
    def weight(self) -> int:
        """Approximate memory of the agent in bytes."""
        record = self.core.record
        return int(3 * (record.flat_counts.nbytes + 40 * record.n_arms) + 20_000)

    @property
    def is_large(self) -> bool:
        """Whether rebuilding the agent delays other requests noticeably."""
        return bool(self.core.task.n_arms > LARGE_ARMS)

    @property
    def open_decisions(self) -> int:
        """The number of decisions without feedback: of the present slot, if none was told."""
        return 1 if self.core.is_open else 0

    def made_by(self, given: Create, first: Event) -> bool:
        """Return whether the agent was created with the same settings."""
        if first.get("observed") != "all" or given.observed != "all":
            return False
        seed = first["seed"] if given.seed is None and not first["seeded"] else given.seed
        settings = observed_settings(given, seed, self.core.planner, Quotas())  # type: ignore[arg-type]
        told = json.loads(json.dumps({"clock": given.clock, **settings}))
        return all(first[key] == value for key, value in told.items())

    @classmethod
    def from_dict(cls, number: int, data: dict[str, Any], planner: Planner) -> Self:
        """Return the agent from the result of ``to_dict``."""
        plan = None if data["digest"] is None else planner.stored(data["digest"])
        options: dict[str, Any] = {"trust_modules": planner.trust_modules, "planner": planner, "plan": plan}
        core = ServiceObservedCore.from_dict(data["player"], None, **options)
        core.plans = data["plans"]
        return cls._with_core(number, data, core)

    def ask(self, given: Ask, now: int, lookup: EventLookup, quotas: Quotas) -> Answer:
        """Return the decision of a new slot with its states, or the earlier decision of the same request id."""
        check_word("request", given.request, quotas)
        known = self._recent.get(given.request) or lookup.request(given.request)
        if known is not None:
            if known["kind"] != "ask":
                raise ServiceError(
                    409, f"request {given.request!r} was not an ask; give every request its own id", "request"
                )
            return self._decision(known)
        if given.states is None:
            raise ServiceError(422, "states is missing; the agent observes all arms, so give their states", "states")
        if self.length is not None and self._slot_by_clock(now) <= self.core.slots:
            return self._again(given, self.core.slots, lookup, now)
        self.advance_to(now)
        with error_field("states"):
            self.core.ask(given.states, exclude=given.exclude)
        self.gather(now, request=given.request)
        return self._decision(self.pending[-1])

    def tell(self, given: Tell, now: int, lookup: EventLookup) -> Answer:
        """Record rewards of the present slot, or what was pulled; feedback of earlier slots is logged and not used."""
        if given.state is not None or given.reward is not None or given.cost is not None or given.arm is not None:
            raise ServiceError(422, "all arms are observed; tell rewards or costs, and what was pulled as pulled_arms")
        slot = self._slot_of(given)
        answer = {"decision": self.decision_id(slot), "slot": slot, "used": True}
        if given.costs is not None and given.rewards is not None:
            raise ServiceError(422, "rewards and costs are given; give one of the two", "costs")
        if not 1 <= slot <= self.core.slots:
            raise ServiceError(404, f"agent {self.name!r} has no decision of slot {slot}", "decision")
        if slot < self.core.slots:
            return self._tell_of_old_slot(given, slot, now, lookup.slot(slot))
        told = {"costs": given.costs} if given.costs is not None else {"rewards": given.rewards}
        self.core.tell(**told, pulled=given.pulled_arms)
        if self.core.events:
            self.core.events[-1]["digest"] = _digest_of(given)
        self.gather(now)
        return answer

    def _tell_of_old_slot(self, given: Tell, slot: int, now: int, events: list[Event]) -> Answer:
        """Log that feedback of an earlier slot came, unless the same message was logged before."""
        answer, digest = {"decision": self.decision_id(slot), "slot": slot, "used": True}, _digest_of(given)
        before = next((event for event in events if event.get("digest") == digest), None)
        if before is not None and not before.get("unused"):
            return answer
        if before is None:
            event = {"kind": "tell", "slot": slot, "unused": True, "digest": digest, "message": _content_of(given)}
            self._note(event | {"decision": answer["decision"]}, now)
        reason = f"slot {slot} is over, and its next states were seen; the answer is in the log and not used"
        return answer | {"used": False, "reason": reason}

    def patch(self, given: Patch, now: int, quotas: Quotas) -> Answer:
        """Apply the requested changes; a change to the present value has no effect."""
        core = self.core
        unknown = sorted(set(given.changes) - set(PATCHES))
        if unknown:
            raise ServiceError(
                422, f"{shortened(unknown[0])} is not for observed arms; change {', '.join(PATCHES)}", unknown[0]
            )
        for field, value in given.changes.items():
            with error_field(field):
                if field == "learner":
                    if value != core.learner.spec:
                        core.learner = value
                elif field == "add_arm":
                    self._add_observed_arm(value, quotas)
                elif core.is_in_service(value) == (field == "retire_arm"):
                    getattr(core, field)(value)
        self.gather(now)
        return self.view()

    def _add_observed_arm(self, value: Mapping[str, Any], quotas: Quotas) -> None:
        core, given = self.core, dict(value)
        name, kind, n_states = given.pop("name"), given.pop("kind", None), given.pop("n_states", None)
        if given:
            raise ServiceError(422, f"an observed arm has no field {next(iter(given))!r}; leave it out", "add_arm")
        if core.has_arm(name) and core.is_in_service(name):
            return
        if core.task.n_arms >= quotas.observed_arms:
            raise ServiceError(422, f"agent {self.name!r} has {core.task.n_arms} arms, the maximum allowed", "add_arm")
        core.add_arm(name, kind, n_states=n_states)

    def rank(self, states: Any, top: int | None, exclude: Sequence[str | int]) -> Answer:
        """Return the arms in service by their present indices, the highest first, by the plan in use."""
        if not self.core.has_plan:
            raise ServiceError(409, f"agent {self.name!r} has no plan yet; ask once before a ranking")
        with error_field("states"):
            found = self.core.rank(states, top=top, exclude=exclude)
        assert found.states is not None
        return {
            "slot": self.core.slots + (states is not None),
            "arms": list(found.names),
            "numbers": found.arms.tolist(),
            "states": [None if state < 0 else state for state in found.states.tolist()],
            "indices": [None if score != score else score for score in found.scores.tolist()],
        }

    def view(self) -> Answer:
        """Return the public state of the agent."""
        core, task = self.core, self.core.task
        stored = core.stored
        return {
            "name": self.name,
            "made": self.made / 1e6,
            "clock": self.clock,
            "observed": "all",
            "task": {
                "n_arms": task.n_arms,
                "in_service": core.n_in_service,
                "arms": self._listed_arms(),
                "kinds": list(task.kind_names[:MOST_LISTED]),
                "plays": task.plays,
                "at_most": task.at_most,
                "reward_range": list(task.reward_range),
                "state_names": list(task.state_names),
                "horizon": task.horizon,
                "in_costs": task.in_costs,
            },
            "learner": core.learner.spec,
            "seed": core.seed,
            "slots": core.slots,
            "seq": self.seq,
            "open": [],
            "asked": self.totals.asked,
            "told": self.totals.told,
            "lost": 0,
            "unused": self.totals.unused,
            "skipped": self.totals.skipped,
            "reward": self.totals.reward,
            **({"cost": 0.0 - self.totals.reward} if task.in_costs else {}),
            "alarms": [],
            "plan": core.plans,
            "digest": None if stored is None else stored.digest,
            "planning": False,
        }

    def _listed_arms(self) -> list[dict[str, Any]]:
        """The arms of a small agent."""
        core, task = self.core, self.core.task
        if task.n_arms > MOST_LISTED:
            return []
        kinds, pulls = task.kinds.tolist(), core.record.pulls.tolist()
        return [
            {
                "name": task.names[arm],
                "kind": task.kind_names[kinds[arm]] if task.kind_names else kinds[arm],
                "n_states": int(task.n_states[arm]),
                "in_service": core.is_in_service(arm),
                "pulls": pulls[arm],
            }
            for arm in range(task.n_arms)
        ]

    def packed_known(self) -> bytes:
        """Return ``KnownObserved``, pickled for a worker."""
        known: KnownObserved = (self.core.record, self.core.task, self.core.missing_beliefs, self.core.arms_in_service)
        return pickle.dumps(known)

    def may_test_for_changes(self, tells: int) -> bool:
        """Return whether a request may test arms for changes: observed arms are not tested."""
        return False

    def _decision(self, event: Event) -> Answer:
        """Return the answer to an ask from its event."""
        names, arms = self.core.task.names, unpacked(event["arms"]).tolist()
        return {
            "decision": event["decision"],
            "slot": event["slot"],
            "arms": [names[arm] for arm in arms],
            "numbers": arms,
            "plan": event["plan"],
        }

    def _follow_open(self, slot: int) -> None:
        """Do nothing: a slot of observed arms ends with the next states, told or not."""


def observed_settings(given: Create, seed: int, planner: Planner, quotas: Quotas) -> dict[str, Any]:
    """Return the settings of a new agent of observed arms in the form of its first event."""
    for field, usual in (
        ("late", 1024),
        ("on_change", "warn"),
        ("memory", None),
        ("reacts", False),
        ("reward_law", None),
    ):
        if getattr(given, field) != usual:
            raise ServiceError(422, f"{field} is for arms that are seen when pulled; leave it out", field)
    many = given.arms if isinstance(given.arms, int) else len(given.arms)
    for field, value in (("observed_arms", many), ("states", given.n_states)):
        if value > getattr(quotas, field):
            what = field.removeprefix("observed_")
            raise ServiceError(422, f"{what} are {value}; the service takes at most {getattr(quotas, field)}", what)
    names = given.arms
    if not isinstance(names, int):
        wrong = next((arm for arm in names if not isinstance(arm, str)), None)
        if wrong is not None:
            raise ServiceError(422, "observed arms are given by name alone; give kinds for arms that differ", "arms")
    usual_range = None if given.reward_range == (0.0, 1.0) else given.reward_range
    task = ObservedTask.of_arms(
        names,  # type: ignore[arg-type]
        given.n_states,
        plays=given.plays,
        kinds=given.kinds,
        rewards=given.rewards,
        reward_range=usual_range,
        cost_range=given.cost_range,
        state_names=given.state_names,
        at_most=given.at_most,
        horizon=given.horizon,
    )
    counts = int((2 * task.layout.n_states**2).sum())
    if counts > quotas.observed_counts:
        raise ServiceError(
            422,
            f"{len(task.layout.counts)} kinds of {given.n_states} states have {counts} counts, more than the "
            f"{quotas.observed_counts} that the service takes; give fewer kinds or states",
            "kinds",
        )
    learner = given.learner or default_learner(task).spec
    return {
        "observed": "all",
        "task": task_to_dict(task),
        "learner": learner,
        "seed": seed,
        "seeded": given.seed is not None,
    }


def _digest_of(given: Tell) -> str:
    """A digest of the content of feedback: the same message again has the same answer."""
    return hashlib.sha256(json.dumps(_content_of(given), sort_keys=True).encode()).hexdigest()[:32]


def _content_of(given: Tell) -> dict[str, Any]:
    words = ("rewards", "costs", "pulled_arms")
    return {word: value for word in words if (value := getattr(given, word)) is not None}


def _core_of(settings: Mapping[str, Any], planner: Planner) -> Any:
    task = task_from_dict(settings["task"])
    return ServiceObservedCore(settings["learner"], task, planner=planner, seed=settings["seed"])
