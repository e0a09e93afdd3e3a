"""The stored form of a player, and the replay of its events: the basis of agent files and of the service's stores."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable
from typing import Any, Self

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.validation import check_int, check_ints, to_jsonable
from restless_bandits.agent.agent_files import KIND
from restless_bandits.agent.core import DEFAULT_LATE_SLOTS, AgentCore, PendingPlan
from restless_bandits.agent.delayed_feedback import FeedbackBuffer
from restless_bandits.agent.history import Event
from restless_bandits.learning.change_detection import ALARM_RATE, Alarm
from restless_bandits.learning.learners import Learner, as_learner
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task, task_fields
from restless_bandits.policies.plans import Plan

FORMAT = f"{KIND}, version 3"
FORMATS = (f"{KIND}, version 1", f"{KIND}, version 2", FORMAT)
"""Version 2 added delayed feedback, and version 3 arms that react to pulls, with pulls apart from observations."""


class StoredAgent(AgentCore):
    """A player with a stored form and a replay of events."""

    def _apply_event(self, event: Event, *, trust_modules: bool, check: bool = True) -> bool:
        """Apply an event of a history again; return whether a recomputed decision agrees, if requested.

        A stored spec names the learner of an event: ``trust_modules`` is the option of ``learners.learner``.
        """

        def one_or_all(key: str) -> Any:
            return event[key][0] if self.task.plays == 1 else event[key]

        kind = event["kind"]
        if kind == "ask":
            asked = tuple(check_ints("arms", event["arms"], 0, self.task.n_arms - 1, length=self.task.plays))
            among = event.get("among")
            available = None if among is None else self._available(check_ints("among", among, 0, self.task.n_arms - 1))
            chosen, entry = self._choice(available) if check else asked, self._buffer.entry(self.slots + 1)
            if event["slot"] != self.slots + 1 or entry.asked or list(asked) != sorted(set(asked)):
                raise ProblemError(f"slot {event['slot']} cannot be asked for")
            entry.asked = asked
            return asked == chosen
        if kind == "tell":
            self.tell(one_or_all("states"), one_or_all("rewards"), one_or_all("arms"), slot=event["slot"])
        elif kind == "lost":
            self.tell(arm=one_or_all("arms"), slot=event["slot"], lost=True, pulled=event.get("pulled", True))
        elif kind == "skip":
            self.skip(event["slots"])
        elif kind == "plan":
            if self._pending_plan is None:
                raise ProblemError(f"no plan is due in slot {self.slots + 1}")
            self._adopt(self._pending_plan)
        elif kind == "arm":
            check_known(event["change"], ("add", "retire", "restore"), "the change of an arm is")
            change = {key: value for key, value in event.items() if key not in ("seq", "kind", "change")}
            makes: dict[str, Callable[..., object]] = {
                "add": self._add_arm,
                "retire": self.retire_arm,
                "restore": self.restore_arm,
            }
            makes[event["change"]](change.pop("name"), **change)
        elif kind == "learner":
            self.learner = as_learner(event["spec"], trust_modules=trust_modules)
        elif kind == "on_change":
            self.on_change = event["what"]
        elif kind == "late":
            self.late = event["slots"]
        else:
            raise ProblemError(f"it holds an event of the unknown kind {shortened(kind)}")
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        problem = None if self.task.problem is None else self.task.problem.to_toml()
        begun = self._plan is not None
        return {
            "format": FORMAT,
            "learner": self._spec(),
            "task": {**task_fields(self.task), "problem": problem},
            "seed": self.seed,
            "run": self.run,
            "content": self.content,
            "planning": self.planning,
            "on_change": self._on_change,
            "alarm_rate": self.alarm_rate,
            "memory": self.memory,
            "alarms": [to_jsonable(vars(alarm)) for alarm in self._alarms],
            "lookouts": [arm.to_dict() for arm in self._detectors],
            "retired": sorted(set(range(self.task.n_arms)) - set(self._service)),
            "record": self.record.to_dict(),
            "plan_record": self._plan_record.to_dict() if begun else None,
            "over": begun and self._watch.over,
            "due_record": None if self._pending_plan is None else self._pending_plan.record.to_dict(),
            "window": self._buffer.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], learner: Learner | None, *, trust_modules: bool, **own: Any) -> Self:
        """Return the agent of a result of ``to_dict``, with every field validated. A plan in progress is not sent yet.

        Without ``learner`` the stored spec is resolved: ``trust_modules`` is the option of ``learners.learner``.
        """
        if learner is None and data["learner"] is None:
            raise ProblemError("its learner has no spec; pass the learner as learner=")
        told = dict(data["task"])
        if told["problem"] is not None:
            told["problem"] = Problem.from_toml(told["problem"])
        task = Task(**told)
        retired = check_ints("retired", data.get("retired", []), 0, task.n_arms - 1)
        service = [arm for arm in range(task.n_arms) if arm not in retired]
        check_int("the number of arms in service", len(service), task.plays)
        agent = cls(
            learner or as_learner(data["learner"], trust_modules=trust_modules),
            task.only(service) if retired else task,
            seed=data["seed"],
            run=data["run"],
            content=data["content"],
            planning=data.get("planning", "blocking"),
            on_change=data.get("on_change", "warn"),
            alarm_rate=data.get("alarm_rate", ALARM_RATE),
            **own,
        )
        agent.task, agent._service = task, service
        now = Record.from_dict(task, data["record"])
        begun, due = (
            None if data.get(key) is None else Record.from_dict(task, data[key])
            for key in ("plan_record", "due_record")
        )
        _check_sequence(begun, due, now)
        agent.record = now
        if data["format"] != FORMATS[0]:
            agent._buffer = FeedbackBuffer.from_dict(task, now, data["window"])
            agent._restore_lookouts(data)
        else:
            agent._buffer = FeedbackBuffer(now, DEFAULT_LATE_SLOTS)
            agent._test_for_changes()
            if data["asked"] is not None:
                asked = check_ints("asked", data["asked"], 0, task.n_arms - 1, length=task.plays)
                if begun is None or asked != sorted(set(asked)):
                    raise ProblemError(f"asked is {asked}; it must be the arms that a plan pulls, in ascending order")
                agent._buffer.entry(now.slots + 1).asked = tuple(asked)
        if begun is None:
            agent._try_planning()
        else:
            agent._begin(agent._plan_again(begun), begun, over=data.get("over", False) is True)
        if due is not None:
            due.remember(now.notes)
            agent._pending_plan = PendingPlan(due)
        return agent

    def _plan_again(self, begun: Record) -> Plan:
        """Return the stored plan, recomputed from the record and the notes at its start."""
        return self._made(begun)

    def _try_planning(self) -> None:
        """Make a plan in progress, as a trial: errors of stored data appear at once."""
        with warnings.catch_warnings(action="ignore"):
            self._made(self.record)

    def _restore_lookouts(self, data: dict[str, Any]) -> None:
        """Restore the change detection from stored data, for the present task."""
        memory = data.get("memory")
        self.memory = None if memory is None else self._checked_memory(memory)
        self._test_for_changes()
        stored = data.get("lookouts", [])
        if len(stored) not in (0, self.task.n_arms):
            raise ProblemError(f"lookouts are for {len(stored)} arms, and there are {self.task.n_arms}")
        for arm, kept in zip(self._detectors, stored, strict=False):
            arm.restore(kept)
        for fields in data.get("alarms", []):
            certain = fields["evidence"] is None
            self._alarms.append(Alarm(**{**fields, "evidence": math.inf if certain else fields["evidence"]}))

    def _spec(self) -> str | None:
        """The spec of the learner; a learner with a function among its options has none."""
        with contextlib.suppress(ProblemError):
            return self._learner.spec
        return None


def _check_sequence(begun: Record | None, due: Record | None, now: Record) -> None:
    """Refuse records that do not follow from an earlier record, or with an inconsistent number of plans."""
    if due is not None and begun is None:
        raise ProblemError("due_record is there without plan_record")
    if begun is None:
        return
    lengths = begun.plan_lengths
    follows = [(begun, now, "plan_record does not lead to record")]
    if due is not None:
        lengths = [*lengths, due.slots - begun.slots]
        follows = [
            (begun, due, "plan_record does not lead to due_record"),
            (due, now, "due_record does not lead to record"),
        ]
    for before, after, complaint in follows:
        # Late feedback may reveal that a reacting arm was not pulled.
        later = (after.last_slot >= before.last_slot) | after.tracks_pulls
        grown = (after.flat_seen >= before.flat_seen).all() and later.all()
        if not grown or after.slots < before.slots or after.plan_lengths != lengths:
            raise ProblemError(complaint)
