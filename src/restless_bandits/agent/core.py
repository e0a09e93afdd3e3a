"""The state machine of an agent: decisions by the present plan, feedback in any order, a new plan when the old one
ends.

The agent follows the same plans as the simulator, a slot at a time. Feedback may arrive late, twice, or not at all, and
arms may come and go. The state is a function of the events and their order: the record at the start of the present
plan, the record now, and the last slots, for which feedback may still arrive.

An ``AgentCore`` has no files. A subclass with storage overrides three methods. ``_log`` receives every event, after
every check that can fail and before any change; ``_plan_now`` and ``_submit`` make plans, here or in a worker.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import dataclass, replace
from typing import Any

from restless_bandits._internal import background
from restless_bandits._internal.errors import ConflictError, ProblemError, check_known, shortened
from restless_bandits._internal.random_streams import plan_generator
from restless_bandits._internal.validation import Array, check_int, positive, to_jsonable
from restless_bandits.agent.beliefs import present_distributions
from restless_bandits.agent.delayed_feedback import FeedbackBuffer, SlotFeedback
from restless_bandits.agent.feedback import FORGETFUL, Decision, FeedbackValidator, is_sequence, reward_of
from restless_bandits.agent.feedback import pulled as pulled_arms
from restless_bandits.agent.history import Event
from restless_bandits.learning.change_detection import ALARM_RATE, Alarm, DetectedChange, alarm_threshold, detector
from restless_bandits.learning.estimation import Estimate, estimate
from restless_bandits.learning.learners import Learner, as_learner
from restless_bandits.learning.learners.base import check_features, checked_plan
from restless_bandits.learning.observations import Observation
from restless_bandits.model.checks import MOST_SLOTS, check_length
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record, check_fits
from restless_bandits.model.rewards import ZERO_TO_ONE, Range, RewardLaw
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import Plan, RuleWatch, renumbered

PLANNING = ("blocking", "background")
ON_CHANGE = ("warn", "forget", "forget-all", "ignore")
DEFAULT_LATE_SLOTS = 1024


@dataclass(eq=False)
class PendingPlan:
    """A plan in progress: its record, and the future of the worker's result, if a worker makes the plan."""

    record: Record
    promise: Future[tuple[Plan, background.Warned]] | None = None


class AgentCore:
    """A learner with its observations; ``Agent``, the class for users, documents the parameters."""

    def __init__(
        self,
        learner: Learner | str,
        task: Task,
        *,
        seed: int = 0,
        run: int = 0,
        content: str = "",
        late: int = DEFAULT_LATE_SLOTS,
        planning: str = "blocking",
        on_change: str = "warn",
        alarm_rate: float = ALARM_RATE,
        memory: int | None = None,
    ) -> None:
        if not isinstance(task, Task):
            raise ProblemError(f"task is {shortened(task)}; give a Task, as problem.task(...) makes one")
        check_length(task.horizon)
        self.task = task
        self._service = list(range(task.n_arms))
        check_known(planning, PLANNING, "planning is")
        self.planning = planning
        self._learner = self._checked_learner(learner, task)
        self.seed, self.run, self.content = check_int("seed", seed, 0), check_int("run", run, 0), content
        if not isinstance(content, str) or set(content) - set("0123456789abcdef"):
            raise ProblemError(f"content is {shortened(content)}; give problem.content, or leave it out")
        self.record = Record.of(task)
        self._buffer = FeedbackBuffer(self.record, check_int("late", late, 0, MOST_SLOTS))
        check_known(on_change, ON_CHANGE, "on_change is")
        self._on_change = on_change
        self.alarm_rate = positive("alarm_rate", alarm_rate, 1.0)
        self.memory = memory if memory is None else self._checked_memory(memory)
        self._alarms: list[Alarm] = []
        self._test_for_changes()
        self._plan: Plan | None = None
        self._pending_plan: PendingPlan | None = None
        self._part: Record | None = None  # what was seen of the arms in service, where some are not
        self._replaying = False

    @property
    def slots(self) -> int:
        """The number of past slots."""
        return self.record.slots

    @property
    def open(self) -> list[Decision]:
        """Decisions without feedback, the oldest first: the decision of the present slot, if made, and earlier
        decisions whose feedback may still arrive and was not abandoned.
        """
        missing = ((slot, entry.missing(self.task.plays)) for slot, entry in self._buffer.entries())
        names = self.task.names
        return [Decision(slot, tuple(arms), tuple(names[arm] for arm in arms)) for slot, arms in missing if arms]

    def observations(self, since: int = 0) -> Iterator[Observation]:
        """Yield the observations after a slot, in order of slots, as far back as feedback may still arrive."""
        return self._buffer.observations(since)

    @property
    def validator(self) -> FeedbackValidator:
        """The checks of feedback against the present task."""
        return FeedbackValidator(self.task)

    @property
    def finalized_through(self) -> int:
        """The last final slot: no feedback is accepted for the slots up to it."""
        return self._buffer.finalized_through

    @property
    def buffered_slots(self) -> int:
        """The number of slots in the buffer for delayed feedback."""
        return len(self._buffer)

    def feedback_at(self, slot: int) -> SlotFeedback:
        """Return the decision and feedback of a slot in the buffer."""
        return self._buffer.at(slot)

    @property
    def is_planning(self) -> bool:
        """Whether a plan is in progress, in another process."""
        return self._pending_plan is not None

    @property
    def late(self) -> int:
        """The largest accepted delay of feedback, in slots; assignable at any slot."""
        return self._buffer.late

    @late.setter
    def late(self, late: int) -> None:
        slots = self._checked_late(late)
        self._log("late", slots=slots)
        self._buffer.late = slots
        self._buffer.finalize(self.record, self._on_finalized)

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms for changes of arms, in order of detection."""
        return tuple(self._alarms)

    @property
    def on_change(self) -> str:
        """The reaction to a change of an arm; assignable at any slot. Newly enabled tests begin at the present slot."""
        return self._on_change

    @on_change.setter
    def on_change(self, what: str) -> None:
        check_known(what, ON_CHANGE, "on_change is")
        self._log("on_change", what=what)
        if self._on_change == "ignore":
            for arm in self._detectors:
                arm.restart(self.slots + 1)
        self._on_change = what

    @property
    def in_service(self) -> tuple[str, ...]:
        """The names of the arms in service: the arms that may be pulled."""
        return tuple(self.task.names[arm] for arm in self._service)

    @property
    def arms_in_service(self) -> tuple[int, ...]:
        """The numbers of the arms in service."""
        return tuple(self._service)

    def belief(self, problem: Problem | None = None) -> tuple[Array, ...]:
        """Return the distribution of the present state of every arm: the state that a pull in the coming slot would
        show.

        The chains are those of ``problem``, by default of the problem that the task reveals, and otherwise the
        estimated chains. Pulls without an observation are accounted for exactly. The feedback of earlier slots that may
        still arrive changes the belief on arrival.
        """
        self._follow_record()
        known = self.task.problem if problem is None else problem
        return present_distributions(self.record, self.task, known)

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of all arms, in the order of their numbers."""
        return self.task.names

    def estimate(self, *, strict: bool = False) -> Estimate:
        """Return the estimated chains and mean rewards of all arms with standard errors: see ``rb.estimate``."""
        task = self.task
        return estimate(self.record, names=task.names, strict=strict, reward_ranges=task.reward_ranges)

    def ask_one(self, among: Sequence[int | str] | None = None) -> int:
        """Return the arm to pull in the coming slot of a task with one play a slot: see ``ask``."""
        if self.task.plays != 1:
            raise ProblemError(f"{pulled_arms(self.task.plays)} a slot; ask() returns all of them")
        found = self.ask(among)
        assert isinstance(found, int)
        return found

    def ask(self, among: Sequence[int | str] | None = None) -> int | tuple[int, ...]:
        """Return the arm to pull in the coming slot, a tuple for several plays; a repeated call returns the same
        decision.

        ``among`` names the arms available in this slot, if some cannot be pulled; the present plan then chooses by
        ``Policy.choose_among``. An arm with a long absence should be retired.
        """
        self._follow_record()
        present = self.slots + 1
        available = None if among is None else self._available(among)
        arms = self._buffer.at(present).asked
        if not arms:
            self._adopt_if_made()
            arms = self._choice(available)
            self._log("ask", slot=present, arms=list(arms), **({} if available is None else {"among": available}))
            self._buffer.entry(present).asked = arms
        elif available is not None and not set(arms) <= set(available):
            raise ProblemError(
                f"slot {present} was asked for before, and the answer is not among the arms that are there now; tell "
                "what was pulled instead, or that the answer is lost"
            )
        return arms[0] if self.task.plays == 1 else arms

    def tell(
        self,
        state: int | str | Sequence[int | str] | None = None,
        reward: float | Sequence[float] | None = None,
        arm: int | str | Sequence[int | str] | None = None,
        *,
        cost: float | Sequence[float] | None = None,
        slot: int | None = None,
        lost: bool = False,
        pulled: bool = True,
    ) -> None:
        """Enter the feedback of a slot: the observed state, by number or name, and reward of the requested arm.

        ``cost`` is the negative reward, in place of ``reward``.
        ``arm``, a name or a number, is the arm pulled, if the caller overrode the choice. ``slot`` is the slot of the
        feedback: an earlier slot, at most ``late`` slots ago, or the present slot, ``agent.slots + 1``, which ends with
        its feedback. The record is the same as after feedback in order of slots. Equal feedback for a slot and arm
        changes nothing, and different feedback is refused. ``lost=True`` says that no feedback is expected; feedback
        that arrives all the same is still accepted. Lost feedback is feedback of a pull, and so is missing feedback:
        the pull has moved an arm that reacts to pulls. ``pulled=False`` says that the arm was not pulled.

        With several plays, state, reward and arm are sequences of equal length. With named arms the sequences may be
        shorter, or single values; the feedback of the other arms may follow later. Impossible feedback is refused and
        changes nothing.
        """
        self._follow_record()
        reward = reward_of(reward, cost)
        number, validator = self._buffer.check_slot(slot), self.validator
        entry = self._buffer.at(number)
        arms = validator.arms_of(arm) if arm is not None else list(entry.asked)
        if not arms:
            if slot is None:
                raise ProblemError("tell without ask: ask for an arm first, or name the arm that was pulled")
            raise ProblemError(f"no decision was asked for in slot {number}; name the arm that was pulled")
        if lost or not pulled:
            if state is not None or reward is not None:
                raise ProblemError("lost feedback has no state and no reward; give these or lost=True")
            if arm is None:
                arms = entry.missing(self.task.plays) or sorted(entry.abandoned.intersection(entry.asked))
            self._lose(number, arms, pulled=pulled)
            return
        seen = validator.by_arm(arms, arm, state, reward)
        may_change = number == self.slots + 1 and self._on_change in FORGETFUL
        for one in seen:
            validator.check(self.record, *one, may_change=may_change)
        new = validator.new_feedback(number, seen, entry.received)
        if new:
            self._enter(number, *(list(column) for column in zip(*new, strict=True)))

    def skip(self, slots: int = 1) -> None:
        """Let slots pass without a pull, or without feedback so far.

        An open decision stays open, and accepts feedback later under its slot number.
        """
        self._follow_record()
        slots = check_int("the number of slots to skip", slots, 1, MOST_SLOTS - 1 - self.slots)
        self._present_plan()
        self._log("skip", slots=slots)
        self.record.skip(slots)
        if self._buffer.tracks_pulls:
            self._enter_pulls(self.slots - slots + 1)
        self._pass([], [])

    def add_arm(
        self,
        name: str,
        n_states: int | None = None,
        *,
        reward_law: RewardLaw | None = None,
        reward_range: Range | None = None,
        rewards: Sequence[float] | None = None,
        mixing: int | None = None,
        reacts: bool | None = None,
        passive_rewards: Sequence[float] | None = None,
        setup_cost: float | None = None,
        state_names: Sequence[str] | None = None,
    ) -> int:
        """Take a new arm into service from the coming decision on; return its number.

        The arm is explored like any arm never observed. ``rewards`` and ``mixing`` are required if the task reveals
        them for the other arms. Any other argument that is left out is as for all other arms if they have it in common,
        and else its default: two states, zero or one as reward.
        """
        common = self.task.common()
        given: dict[str, Any] = {
            "n_states": n_states,
            "reward_law": reward_law,
            "reward_range": reward_range,
            "reacts": reacts,
            "passive_rewards": passive_rewards,
            "setup_cost": setup_cost,
            "state_names": state_names,
        }
        asked = {key: value for key, value in given.items() if value is not None}
        if asked.get("n_states", common.get("n_states")) != common.get("n_states"):
            common.pop("passive_rewards", None), common.pop("state_names", None)
        if "reward_range" in asked:
            common.pop("reward_law", None)
        return self._add_arm(name, **common | asked, rewards=rewards, mixing=mixing)

    def _add_arm(
        self,
        name: str,
        n_states: int = 2,
        *,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Range = ZERO_TO_ONE,
        rewards: Sequence[float] | None = None,
        mixing: int | None = None,
        reacts: bool = False,
        passive_rewards: Sequence[float] | None = None,
        setup_cost: float = 0.0,
        state_names: Sequence[str] | None = None,
    ) -> int:
        """Take a new arm into service, as an event of a history says: without what other arms have in common."""
        if name in self.task.names:
            remedy = "give another name" if name in self.in_service else "restore_arm brings it back"
            raise ProblemError(f"there is an arm {name!r} already; {remedy}")
        told: Event = {"n_states": n_states, "rewards": rewards, "mixing": mixing}
        features: Event = {"reacts": reacts, "passive_rewards": passive_rewards, "setup_cost": setup_cost}
        features["state_names"] = state_names and tuple(state_names)
        features = {key: value for key, value in features.items() if value}
        paying = {_TASK_KEYS.get(key, key): value for key, value in features.items()}
        task = self.task.with_arm(names=name, reward_laws=reward_law, reward_ranges=reward_range, **told, **paying)
        given = {**told, "reward_law": reward_law, "reward_range": reward_range, **features}
        check_fits(task.n_states)
        number = task.n_arms - 1
        service = [*self._service, number]
        self._checked_learner(self._learner, task.only(service))
        self._log("arm", change="add", name=name, **to_jsonable(given))
        self._end_plan()
        self.task, self._service = task, service
        self.record.add_arm(task.n_states[number], reacts, task.tracks_pulls[number])
        self._buffer.add_arm(task.n_states[number], task.tracks_pulls[number])
        self._detectors.append(detector.of_arm(task, number, self._stretch))
        return number

    def retire_arm(self, arm: str | int) -> None:
        """Take an arm out of service: later decisions do not pull the arm, and its observations are kept.

        An open decision stands. The number of arms in service must stay at least the number of plays.
        """
        number = self.validator.number_of(arm)
        if number not in self._service:
            raise ProblemError(f"arm {self.task.names[number]!r} is out of service already")
        if len(self._service) == self.task.plays:
            why = f"{pulled_arms(self.task.plays)} a slot and no more are in service"
            raise ProblemError(f"arm {self.task.names[number]!r} cannot be retired: {why}; add another first")
        self._serve("retire", number, [other for other in self._service if other != number])

    def restore_arm(self, arm: str | int) -> None:
        """Return a retired arm to service, with its observations."""
        number = self.validator.number_of(arm)
        if number in self._service:
            raise ProblemError(f"arm {self.task.names[number]!r} is in service already")
        self._serve("restore", number, sorted([*self._service, number]))

    def _serve(self, change: str, number: int, service: list[int]) -> None:
        self._checked_learner(self._learner, self.task.only(service))
        self._log("arm", change=change, name=self.task.names[number])
        self._end_plan()
        self._service = service

    @property
    def learner(self) -> Learner:
        """The learner; assignable at any slot. A new learner gets all observations."""
        return self._learner

    @learner.setter
    def learner(self, learner: Learner | str) -> None:
        learner = self._checked_learner(learner, self._task_in_service())
        self._log_learner(learner)
        self._end_plan()
        self._learner = learner

    def _log_learner(self, learner: Learner) -> None:
        """Log a new learner; a learner may lack a spec."""

    def _log(self, kind: str, **content: Any) -> None:
        """Log an event: after every check that can fail, and before any change."""

    def _checked_learner(self, learner: Learner | str, task: Task) -> Learner:
        """Return the learner if it can play these arms, else raise."""
        found = as_learner(learner)
        check_features(found, task)
        for need in sorted(found.needs):
            if getattr(task, need) is None:
                raise ProblemError(f"{found.label} needs to be told {need}; make its task with reveal=[{need!r}]")
        found.check(task)
        if self.planning == "background":
            background.check_may_start()
            try:
                pickle.dumps(found)
            except Exception as error:  # an option may be anything, and fail in any way
                raise ProblemError(
                    f"{found.name} cannot be sent to a worker that plans in the background: {error}; use "
                    "planning='blocking'"
                ) from None
        return found

    def _all_in_service(self) -> bool:
        return len(self._service) == self.task.n_arms

    def _task_in_service(self) -> Task:
        return self.task if self._all_in_service() else self.task.only(self._service)

    def _available(self, among: Any) -> list[int]:
        """The numbers of the arms in service among the arms named as available."""
        named = among if is_sequence(among) else [among]
        available = sorted({self.validator.number_of(arm) for arm in named} & set(self._service))
        if len(available) < self.task.plays:
            raise ProblemError(
                f"{pulled_arms(self.task.plays)} a slot, and {len(available)} in service are there; skip the slot, as "
                "nobody can play it"
            )
        return available

    def _choice(self, available: list[int] | None = None) -> tuple[int, ...]:
        """The arms of the present plan for the coming slot, chosen among the available arms."""
        policy = self._present_plan().policy
        record, service = self.record, self._service
        if not self._all_in_service():
            if self._part is None:
                self._part = self.record.only(service)
            self._part.slots = self.slots
            record = self._part
        if available is None or len(available) == len(service):
            chosen = policy.choose_now(record)
        else:
            chosen = policy.choose_among(record, [service.index(arm) for arm in available])
        return tuple(service[arm] for arm in chosen)

    def _present_plan(self) -> Plan:
        if self._plan is None:
            begun = self.record.copy()
            self._begin(self._plan_now(begun), begun)
        assert self._plan is not None
        return self._plan

    def _ingredients(self, record: Record) -> tuple[Learner, Record, Task, list[int], int, str, int]:
        return self._learner, record, self._task_in_service(), self._service, self.seed, self.content, self.run

    def _made(self, record: Record) -> Plan:
        return make_plan(*self._ingredients(record))

    def _plan_now(self, record: Record) -> Plan:
        """Return a plan at once, for callers that cannot continue without a plan."""
        return self._made(record)

    def _begin(self, plan: Plan, begun: Record, *, over: bool = False) -> None:
        """Follow a plan made from the record at the end of the last plan."""
        self.record.remember(plan.notes)
        self._plan, self._plan_record, self._watch = plan, begun, RuleWatch(plan.until, begun, over=over)

    def _submit(self) -> None:
        """Send the plan in progress to a worker, unless already sent."""
        if self._pending_plan is not None and self._pending_plan.promise is None and not self._replaying:
            self._pending_plan.promise = background.submit(make_plan, *self._ingredients(self._pending_plan.record))

    def _adopt_if_made(self) -> None:
        if (
            self._pending_plan is not None
            and self._pending_plan.promise is not None
            and self._pending_plan.promise.done()
        ):
            self._adopt(self._pending_plan)

    def _adopt(self, due: PendingPlan) -> None:
        """Follow the finished plan from the coming slot on."""
        try:
            plan, warned = (self._made(due.record), []) if due.promise is None else due.promise.result()
        except (BrokenExecutor, CancelledError):
            # A dead worker costs the time to make the plan here, and nothing else: plans are deterministic.
            background.close()
            plan, warned = self._made(due.record), []
        for message, category in warned:
            warnings.warn(message, category, stacklevel=4)
        self._log("plan", slot=self.slots + 1, plan=due.record.plans)
        self._begin(plan, due.record)
        self._pending_plan = None

    def _end_plan(self) -> None:
        """End the present plan at once, as invalid for the coming slots; the next plan starts without notes."""
        begun = (
            self._pending_plan.record
            if self._pending_plan is not None
            else self._plan_record
            if self._plan is not None
            else None
        )
        # A plan without slots does not count, and the next plan takes its number.
        if begun is not None and self.slots > begun.slots:
            self.record.plan_lengths.append(self.slots - begun.slots)
        if self._pending_plan is not None and self._pending_plan.promise is not None:
            self._pending_plan.promise.cancel()
        self._plan = self._pending_plan = self._part = None
        self.record.remember({})

    def _enter(self, slot: int, arms: list[int], states: list[int], rewards: list[float]) -> None:
        """Enter checked feedback; the present slot ends with its feedback."""
        record, present = self.record, slot == self.slots + 1
        if present:
            self._present_plan()
        self._log("tell", slot=slot, arms=arms, states=states, rewards=rewards)
        for arm in arms:
            self._detectors[arm].tell()
        if present:
            contradicts = self.validator.contradicts
            certain = [i for i, s, r in zip(arms, states, rewards, strict=True) if contradicts(record, i, s, r)]
            previous = [(int(record.last_state[i]), int(record.elapsed[i])) for i in arms]
            record.observe(arms, states, rewards)
            if not set(arms) <= set(self._service):
                self._part = None
            elif self._part is not None:
                # Avoid a new collection of all counts in every slot.
                self._part.slots = slot - 1
                self._part.observe([self._service.index(arm) for arm in arms], states, rewards)
            self._buffer.note(record, arms, states, rewards)
            if self._buffer.tracks_pulls:
                self._enter_pulls(slot)
            self._pass(arms, previous)
        else:
            certain, self._part = [], None
            for arm, state, reward in zip(arms, states, rewards, strict=True):
                grown = self._buffer.enter(record, slot, arm, state, reward)
                if self._plan is not None and self._pending_plan is None:
                    self._watch.told_late(record, arm, slot, state, grown)
            if self._buffer.tracks_pulls:
                self._enter_pulls(slot)
        if self._on_change != "ignore":
            for arm in arms:
                self._look(arm, certain=arm in certain)

    def _lose(self, slot: int, arms: list[int], *, pulled: bool = True) -> None:
        """Abandon the feedback of some arms of a decision, pulled or not; the present slot ends with this call."""
        entry = self._buffer.at(slot)
        for arm in arms:
            # For an arm that reacts, a pull in place of the requested one counts without an observation, too.
            may_override = pulled and self.task.tracks_pulls[arm]
            if arm in entry.received or not (arm in entry.asked or may_override):
                why = "was told before" if arm in entry.received else "was not asked for"
                raise ConflictError(f"slot {slot}: arm {self.task.names[arm]!r} {why}, so its answer is not lost")
            if arm in entry.abandoned and (arm in entry.unpulled) == pulled:
                was = "not pulled" if pulled else "pulled"
                raise ConflictError(
                    f"slot {slot}: arm {self.task.names[arm]!r} was reported as {was} before; the first report stands"
                )
        if entry.abandoned.issuperset(arms):
            return
        if not entry.abandoned.union(arms) <= set(entry.asked):
            used = {*entry.received, *(entry.abandoned - entry.unpulled), *arms}
            if len(used) > self.task.plays:
                raise ConflictError(f"slot {slot} has its answer; {pulled_arms(self.task.plays)} a slot")
        if slot == self.slots + 1:
            self._present_plan()
            entry = self._buffer.entry(slot)
        self._log("lost", slot=slot, arms=arms, **({} if pulled else {"pulled": False}))
        entry.abandoned |= frozenset(arms)
        if not pulled:
            entry.unpulled |= frozenset(arms)
        present = slot == self.slots + 1
        if present:
            self.record.skip(1)
        if self._buffer.tracks_pulls:
            self._enter_pulls(slot)
        if present:
            self._pass([], [])

    def _enter_pulls(self, slot: int) -> None:
        """Enter the pulls of a past slot without an observation: see ``FeedbackBuffer``."""
        if self._buffer.enter_pulls(self.record, slot, self.task.plays):
            self._part = None

    def _pass(self, arms: list[int], previous: list[tuple[int, int]]) -> None:
        """End a slot: the next slot gets a new decision, by a new plan if the stop rule of the present plan is met."""
        self._buffer.finalize(self.record, self._on_finalized)
        if self._pending_plan is None and self._watch.met(self.record, arms, previous):
            self.record.plan_lengths.append(self.slots - self._plan_record.slots)
            if self.planning == "background":
                self._pending_plan = PendingPlan(self.record.copy())
                self._submit()
            else:
                self._plan = None
        if self.memory is not None and self._first_remembered() > self._remembered:
            self._forget_old()

    def _on_finalized(self, observation: Observation) -> None:
        """Pass on an observation that is final."""
        if self._on_change != "ignore" or self.memory is not None:
            self._detectors[observation.arm].enter(observation)

    def _test_for_changes(self) -> None:
        """Start the change detection with the coming observations."""
        self._detectors = [detector.of_arm(self.task, arm, self._stretch) for arm in range(self.task.n_arms)]
        for arm in self._detectors:
            arm.restart(self.slots + 1)
        self._remembered = self._first_remembered()

    def _follow_record(self) -> None:
        """Start again after a manual change of the record."""
        if not self._buffer.check_followed(self.record):
            self._test_for_changes()

    def _look(self, arm: int, *, certain: bool) -> None:
        """Raise an alarm if an arm has changed."""
        if not certain and not self._detectors[arm].is_due(self.slots):
            return
        before, observations, unseen = self._buffer.recent(arm)
        threshold = alarm_threshold(self.alarm_rate, len(self._service))
        change = DetectedChange(self.slots, math.inf, "rewards") if certain else None
        change = change or self._detectors[arm].check(self.slots, before, observations, threshold, unseen)
        if change is None:
            return
        alarm = Alarm(arm, self.task.names[arm], self.slots, change.since, change.evidence, change.what)
        self._alarms.append(alarm)
        if self._on_change in FORGETFUL:
            for other in range(self.task.n_arms) if self._on_change == "forget-all" else [arm]:
                self._forget(other, change.since)
                self._detectors[other].restart(self.slots + 1)
            self._renew_plan(change.since - 1)
            return
        self._detectors[arm].restart(self.slots + 1)
        self._warn(alarm)

    def _warn(self, alarm: Alarm) -> None:
        """Warn of a change of an arm under ``on_change="warn"``."""
        if not self._replaying:
            warnings.warn(f"{alarm}; on_change='forget' drops earlier observations", RuntimeWarning, stacklevel=5)

    def _forget(self, arm: int, since: int) -> None:
        """Forget the observations of an arm before a slot."""
        self._buffer.forget(self.record, arm, since, self._detectors[arm].keep(since))

    def _renew_plan(self, slot: int) -> None:
        """Plan anew, by a learner with its time restarted at a slot: the amount still to learn depends on time."""
        self._end_plan()
        # A learner with a known problem knows the changes, and counts slots to follow them.
        if self.task.problem is None:
            self.record.restart(slot)

    def _checked_memory(self, memory: Any) -> int:
        """Return a memory long enough for feedback to become final before its removal."""
        kept = check_int("memory", memory, detector.LEAST_MEMORY, MOST_SLOTS)
        _check_settled(kept, self.late)
        return kept

    def _checked_late(self, late: Any) -> int:
        slots = check_int("late", late, 0, MOST_SLOTS)
        if self.memory is not None:
            _check_settled(self.memory, slots)
        return slots

    @property
    def _stretch(self) -> int:
        return 0 if self.memory is None else detector.stretch_of(self.memory)

    def _first_remembered(self) -> int:
        """The first slot within the memory."""
        if self.memory is None:
            return 1
        return max(1, (self.slots // self._stretch - detector.MEMORY_BLOCKS + 1) * self._stretch + 1)

    def _forget_old(self) -> None:
        """Forget observations older than the memory."""
        self._remembered = since = self._first_remembered()
        for arm in range(self.task.n_arms):
            self._forget(arm, since)
        self._renew_plan(self.slots)


_TASK_KEYS = {"setup_cost": "setup_costs"}
"""Fields of a task whose name is the plural of an arm's field."""


def make_plan(
    learner: Learner, record: Record, task: Task, arms: Sequence[int], seed: int, content: str, run: int
) -> Plan:
    """Return a learner's plan for the arms in service, described by the task, from the record of all arms.

    The plan is a function of the arguments, here or in a worker. Its policy numbers the arms as in the task, its rule
    as in the record.
    """
    part = record if len(arms) == record.n_arms else record.only(arms)
    if record.restarted != (0, 0):
        part = part.in_learners_time()
    plan = checked_plan(learner, part, task, plan_generator(seed, content, run, record.plans))
    return plan if len(arms) == record.n_arms else replace(plan, until=renumbered(plan.until, arms))


def _check_settled(memory: int, late: int) -> None:
    """Refuse a memory shorter than the accepted delay of feedback."""
    if late > (detector.MEMORY_BLOCKS - 1) * detector.stretch_of(memory):
        raise ProblemError(
            f"memory is {memory} slots, too few for feedback that may come {late} slots late; give a smaller late"
        )
