"""Agent state machine of the service: events go to a list, and worker processes compute the plans."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError
from typing import Any

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import is_whole
from restless_bandits.agent.core import PendingPlan
from restless_bandits.agent.stored import StoredAgent
from restless_bandits.learning.change_detection import Alarm
from restless_bandits.learning.learners import Learner, as_learner
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import Plan
from restless_bandits.service import failpoints
from restless_bandits.service.operations import Create, ServiceError
from restless_bandits.service.planning import PlanNeededError, Planner, origin
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.stored_plans import StoredPlan

Event = dict[str, Any]
LOG = logging.getLogger(__name__)
TRY_AGAIN = 1_000
"""Slots between a failed plan of a learner and the next attempt."""


class ServiceAgentCore(StoredAgent):
    """State machine with a list of events, and with plans from worker processes, stored under their digests."""

    def __init__(
        self, learner: Learner | str, task: Task, *, planner: Planner, plan: StoredPlan | None = None, **options: Any
    ) -> None:
        self.planner = planner
        super().__init__(learner, task, **options | {"planning": "background"})
        self.stored = plan
        """The plan in use."""
        self.events: list[Event] = []
        self.new_plans: list[StoredPlan] = []
        self.plans = 0
        """The number of plans begun so far."""
        self._try_at = 0

    def _checked_learner(self, learner: Learner | str, task: Task) -> Learner:
        """Return the learner after a check against the arms; every spec comes from a request or a store."""
        return super()._checked_learner(as_learner(learner, trust_modules=self.planner.trust_modules), task)

    def _log(self, kind: str, **content: Any) -> None:
        if self._replaying:
            return
        if kind == "on_change":
            kind, content = "learner", {"on_change": content["what"]}
        elif kind == "late":
            kind, content = "learner", {"late": content["slots"]}
        self.events.append({"kind": kind, **content})

    def _log_learner(self, learner: Learner) -> None:
        self._log("learner", spec=learner.spec)

    def _warn(self, alarm: Alarm) -> None:
        """Do nothing: the view of the agent shows the alarms."""

    def _plan_now(self, record: Record) -> Plan:
        if self._replaying:
            raise ProblemError(f"slot {self.slots + 1} has no plan")
        return self._follow(self.planner.now(self._ingredients(record)))

    def _submit(self) -> None:
        if (
            self._pending_plan is not None
            and self._pending_plan.promise is None
            and not self._replaying
            and self.slots >= self._try_at
        ):
            promise: Any = self.planner.later(self._ingredients(self._pending_plan.record))
            self._pending_plan.promise = promise

    def _adopt_if_made(self) -> None:
        due = self._pending_plan
        if due is None:
            return
        self._submit()
        promise: Any = due.promise
        if promise is None:
            return
        if not promise.done():
            if self.planner.patient:
                raise PlanNeededError(promise)
            return
        try:
            plan = self.planner.result(promise)
        except (BrokenExecutor, CancelledError):
            due.promise = None  # The next submission goes to another worker.
            self._submit()
            return
        except Exception:  # from a learner, perhaps a user's: the old plan stays in use until the next attempt
            LOG.exception("%s failed to plan", self.learner.name)
            self.planner.failed += 1
            due.promise, self._try_at = None, self.slots + TRY_AGAIN
            return
        self._begin(self._follow(plan), due.record)
        self._pending_plan = None

    def _follow(self, plan: StoredPlan) -> Plan:
        failpoints.passed("before-plan")
        self.plans += 1
        self._log("plan", slot=self.slots + 1, plan=self.plans, digest=plan.digest, **origin())
        self.new_plans.append(plan)
        self.stored = plan
        return plan.plan

    def _plan_again(self, begun: Record) -> Plan:
        assert self.stored is not None
        return self.stored.plan

    def _try_planning(self) -> None:
        """Do nothing: planning in the writer thread would delay every agent."""

    def repeat(self, event: Event, *, check: bool = False) -> bool:
        """Apply an event of the log. With ``check``, return whether the present code would make the same decision."""
        self._replaying = True
        try:
            return self._apply(event, check)
        finally:
            self._replaying = False

    def _apply(self, event: Event, check: bool) -> bool:
        kind = event["kind"]
        if kind == "plan":
            self._repeat_plan(event)
            return True
        if kind == "learner" and "spec" not in event:
            if "late" in event:
                self.late = event["late"]
            else:
                self.on_change = event["on_change"]
            return True
        told = {key: value for key, value in event.items() if key not in _ASIDE}
        return self._apply_event(told, trust_modules=self.planner.trust_modules, check=check)

    def next_arms(self) -> tuple[int, ...]:
        """Return the arms that the present plan chooses for the coming slot."""
        return self._choice()

    def next_ingredients(self) -> tuple[Any, ...]:
        """Return the arguments of ``make_plan`` for the next plan."""
        return self._ingredients(self.record.copy() if self._pending_plan is None else self._pending_plan.record)

    def _repeat_plan(self, event: Event) -> None:
        due: PendingPlan | None = self._pending_plan
        if (self._plan is not None and due is None) or event["slot"] != self.slots + 1:
            raise ProblemError(f"event {event['seq']}: no plan is due in slot {self.slots + 1}")
        plan = self.planner.stored(event["digest"])
        self._begin(plan.plan, self.record.copy() if due is None else due.record)
        if due is not None and due.promise is not None:
            due.promise.cancel()
        self._pending_plan = None
        self.stored, self.plans = plan, event["plan"]


_ASIDE = ("at", "request", "decision", "plan")


def is_word(word: object, quotas: Quotas) -> bool:
    """Return whether a value is a valid name or id: a text within the length limit that every database can store."""
    if not isinstance(word, str) or not 1 <= len(word) <= quotas.name or "\0" in word:
        return False
    # A lone surrogate is not a character.
    return word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word)


def check_word(field: str, word: object, quotas: Quotas) -> None:
    """Raise if a value is not a valid name or id."""
    if not is_word(word, quotas):
        raise ServiceError(422, f"{field} is {shortened(word)}; give a text of 1 to {quotas.name} letters", field)


def check_late(late: object, quotas: Quotas) -> None:
    """Raise if the buffer for delayed feedback would exceed the limit on memory."""
    if is_whole(late) and late > quotas.late:  # type: ignore[operator]
        raise ServiceError(422, f"late is {late} slots; the service takes at most {quotas.late}", "late")


def check_created(given: Create, quotas: Quotas) -> None:
    """Raise if a new agent exceeds the size limits or has an invalid name."""
    check_word("name", given.name, quotas)
    check_late(given.late, quotas)
    arms = given.arms
    if isinstance(arms, int):
        raise ServiceError(422, "arms is a number; name the arms, or give observed 'all'", "arms")
    for word in ("kinds", "rewards"):
        if getattr(given, word) is not None or given.at_most:
            raise ServiceError(422, f"{word} and at_most are for observed arms; give observed 'all'", word)
    for field, value in (("arms", len(arms)), ("plays", given.plays), ("states", given.n_states)):
        if value > getattr(quotas, field):
            raise ServiceError(422, f"{field} are {value}; the service takes at most {getattr(quotas, field)}", field)
    names = [arm if isinstance(arm, str) else arm.get("name") for arm in arms]
    for name in names:
        if not isinstance(name, str) or not 1 <= len(name) <= quotas.name:
            raise ServiceError(
                422, f"an arm is called {shortened(name)}; give a name of 1 to {quotas.name} letters", "arms"
            )
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ServiceError(422, f"two arms are called {twice!r}; every arm needs a name of its own", "arms")


def settings_of(given: Create, seed: int) -> dict[str, Any]:
    """Return the settings of a new agent in the form of its first event."""
    assert not isinstance(given.arms, int)
    arms: Sequence[Mapping[str, Any]] = [{"name": arm} if isinstance(arm, str) else arm for arm in given.arms]
    usual = given.reward_range
    if given.cost_range is not None:
        if given.reward_range != (0.0, 1.0):
            raise ServiceError(422, "reward_range and cost_range are given; give one of the two", "cost_range")
        usual = (0.0 - given.cost_range[1], 0.0 - given.cost_range[0])
    ranges = [list(arm.get("reward_range") or usual) for arm in arms]
    return {
        "task": {
            "names": [arm["name"] for arm in arms],
            "n_states": [arm.get("n_states") or given.n_states for arm in arms],
            "reward_laws": [
                arm.get("reward_law") or given.reward_law or ("bernoulli" if ends == [0.0, 1.0] else "bounded")
                for arm, ends in zip(arms, ranges, strict=True)
            ],
            "reward_ranges": ranges,
            "initial": [None] * len(arms),
            "plays": given.plays,
            "horizon": given.horizon,
            **_features_of(given, arms),
        },
        "learner": given.learner,
        "seed": seed,
        "seeded": given.seed is not None,
        "late": given.late,
        "on_change": given.on_change,
        "memory": given.memory,
    }


def _features_of(given: Create, arms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields of a task of arms that react, pay at rest or cost a set-up; none of them for other arms."""
    reacts = [arm.get("reacts", given.reacts) for arm in arms]
    resting = [list(arm.get("passive_rewards") or [0.0] * (arm.get("n_states") or given.n_states)) for arm in arms]
    costs = [arm.get("setup_cost", 0.0) for arm in arms]
    found: dict[str, tuple[Any, bool]] = {"reacts": (reacts, any(reacts)), "setup_costs": (costs, any(costs))}
    found["passive_rewards"] = resting, any(map(any, resting))
    named = [arm.get("state_names", given.state_names) for arm in arms]
    sizes = [arm.get("n_states") or given.n_states for arm in arms]
    names = [[str(s) for s in range(n)] if one is None else list(one) for one, n in zip(named, sizes, strict=True)]
    found["state_names"] = names, any(one is not None for one in named)
    found["in_costs"] = given.cost_range is not None, given.cost_range is not None
    return {key: value for key, (value, is_given) in found.items() if is_given}


def core_of(settings: Mapping[str, Any], planner: Planner) -> ServiceAgentCore:
    task = Task(**settings["task"])
    options = {key: settings[key] for key in ("seed", "late", "on_change", "memory")}
    return ServiceAgentCore(settings["learner"], task, planner=planner, **options)
