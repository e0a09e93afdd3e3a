"""A learner of observed arms in your own loop: ``ask`` with the states of all arms, pull the arms, ``tell`` rewards.

    agent = rb.Agent(arms=names, observed="all", n_states=2, plays=100)
    arms = agent.ask(states=states)
    agent.tell(rewards=rewards)             # optional: the next states are feedback enough where rewards are known

A class of its own, with the public face of ``Agent``. Most of ``AgentCore`` has no meaning where all states are seen:
late feedback of single pulls, waits since the last sighting, beliefs by waiting times. And an agent of a million arms
is a few arrays here, where ``AgentCore`` has lists with an entry for each arm.

A slot begins with ``ask``. The states count the steps of the last slot, a new plan is made if the rule of the present
plan is met, and the decision stands: it counts as carried out, unless ``tell(pulled=…)`` says what was pulled instead.
The agent follows the same plans as the simulator. Its state is a function of the events and their order.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ConflictError, ProblemError, did_you_mean, shortened
from restless_bandits._internal.html_tables import html_table
from restless_bandits._internal.random_streams import plan_generator
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_int, is_number, is_whole
from restless_bandits.agent.agent_files import KIND, AgentFiles, explained
from restless_bandits.agent.feedback import Decision, reward_of
from restless_bandits.agent.history import Event, History, read_events
from restless_bandits.agent.observed_choice import chosen_arms, first_arms, next_beliefs, place_scores
from restless_bandits.agent.packing import packed, packed_change, unpacked, unpacked_change
from restless_bandits.learning.estimation import ArmEstimate, Estimate, ReactingMode
from restless_bandits.learning.learners import Learner, as_learner, default_learner
from restless_bandits.learning.learners.base import check_features, checked_plan
from restless_bandits.model.checks import MOST_SLOTS, check_length
from restless_bandits.model.layout import Layout
from restless_bandits.model.observed_record import UNSEEN, ObservedRecord
from restless_bandits.model.observed_task import NumberedNames, ObservedTask
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.observed.ranking import Ranking
from restless_bandits.policies.observed import ObservedPolicy, PriorityPolicy
from restless_bandits.policies.plans import ObservedRuleWatch, Plan
from restless_bandits.policies.policies import Policy

OBSERVED_FORMAT = f"{KIND} of observed arms, version 1"
TASK_WORDS = ("plays", "at_most", "horizon", "kind_names", "state_names", "in_costs")
"""Fields of a task that are JSON as they are."""
DIFFERENT = "different feedback for this slot was told before; the first stands"

States = Mapping[str, int | str | None] | Sequence[int | str | None] | npt.ArrayLike


class ObservedAgent:
    """A learner of observed arms with its observations: see the module.

    Parameters
    ----------
    learner
        A learner or its spec; by default ``rb.default_learner(task)``.
    task
        The learner's knowledge: an ``ObservedTask``.
    seed, run, content
        Coordinates of the random choices. With those of a simulated run (``content`` is ``problem.content``) the agent
        makes the choices of the run.
    history
        A new file for all events: see ``replay``.

    """

    def __init__(
        self,
        learner: Learner | str | None,
        task: ObservedTask,
        *,
        seed: int = 0,
        run: int = 0,
        content: str = "",
        history: str | Path | None = None,
    ) -> None:
        check_length(task.horizon)
        self.task = task
        self.seed, self.run, self.content = check_int("seed", seed, 0), check_int("run", run, 0), content
        if not isinstance(content, str) or set(content) - set("0123456789abcdef"):
            raise ProblemError(f"content is {shortened(content)}; give problem.content, or leave it out")
        self._serving: BoolArray = np.ones(task.n_arms, dtype=np.bool_)
        self.record = ObservedRecord.of(task)
        self._learner = self._checked_learner(default_learner(task) if learner is None else learner)
        self._missing: IntArray = np.zeros(0, dtype=np.int64)
        self._beliefs: Array = np.zeros((0, int(task.layout.n_states.max())))
        self._plan: Plan | None = None
        self._plan_record: ObservedRecord | None = None
        self._decision: IntArray | None = None
        self._history: History | None = None
        self._files = AgentFiles()
        if history is not None:
            self.keep_history(history)

    def __repr__(self) -> str:
        arms = f"{len(self.arms_in_service)} of {self.task.n_arms} arms in service"
        return f"<ObservedAgent: {self.learner.label}, {arms}, {self.slots} slots>"

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], ("kind", "arms", "steps"), self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for kind, name in enumerate(self.kind_names[:20]):
            yield name, int(self.task.layout.counts[kind]), int(self.record.counts(kind).sum())

    @property
    def slots(self) -> int:
        """The number of slots with a decision or skipped."""
        return self.record.slots

    @property
    def arms(self) -> Sequence[str]:
        """The names of all arms, in the order of their numbers."""
        return self.task.names

    @property
    def kind_names(self) -> Sequence[str]:
        """The names of the kinds; of an arm that is a kind of its own the name of the arm."""
        return self.task.kind_names or self.task.names

    @property
    def arms_in_service(self) -> tuple[int, ...]:
        """The numbers of the arms in service."""
        return tuple(np.flatnonzero(self._serving).tolist())

    @property
    def in_service(self) -> tuple[str, ...]:
        """The names of the arms in service: the arms that may be pulled."""
        names = self.task.names
        return tuple(names[arm] for arm in self.arms_in_service)

    @property
    def is_open(self) -> bool:
        """Whether the present slot has a decision of which no reward was told."""
        return self._decision is not None and bool(np.isnan(self.record.last_rewards).all())

    @property
    def n_in_service(self) -> int:
        """The number of arms in service."""
        return int(self._serving.sum())

    def has_arm(self, name: str) -> bool:
        """Whether there is an arm of this name, in service or not."""
        return name in self._number_by_name

    def is_in_service(self, arm: int | str) -> bool:
        """Whether an arm may be pulled."""
        return bool(self._serving[self._number_of(arm)])

    @property
    def missing_beliefs(self) -> tuple[IntArray, Array]:
        """The arms in service whose present state was not seen, and the distribution of the state of each."""
        return self._missing, self._beliefs

    @property
    def present_policy(self) -> Policy | None:
        """The policy in use, over the arms in service in ascending order; None before the first plan."""
        return None if self._plan is None else self._plan.policy

    @property
    def has_plan(self) -> bool:
        """Whether a plan is in use."""
        return self._plan is not None

    @property
    def open(self) -> list[Decision]:
        """The decision of the present slot, if nothing was told of it."""
        if not self.is_open or self._decision is None:
            return []
        return [Decision(self.slots, tuple(self._decision.tolist()), self._named(self._decision))]

    @property
    def learner(self) -> Learner:
        """The learner; assignable at any slot. A new learner gets all observations."""
        return self._learner

    @learner.setter
    def learner(self, learner: Learner | str) -> None:
        found = self._checked_learner(learner)
        self._log_learner(found)
        self._end_plan()
        self._learner = found

    def ask(self, states: States | None = None, *, exclude: Iterable[int | str] = ()) -> int | tuple[int, ...]:
        """Return the arms to pull in a new slot with these states; without states, the present decision again.

        The states are a sequence in the order of the arms, or a mapping by name. None, −1 or no entry is a missing
        state; states of retired arms are left out. ``exclude`` names arms that cannot be pulled in this slot. With one
        play a slot the answer is an arm, else a tuple of arms.
        """
        if states is None:
            if self._decision is None:
                raise ProblemError("ask needs the states of all arms in the new slot, as in ask(states=[...])")
            return self._answer(self._decision)
        return self._answer(self._ask(self._states_of(states), self._numbers_of(exclude, "exclude")))

    def tell(
        self,
        rewards: Mapping[str, float] | Sequence[float | None] | npt.ArrayLike | None = None,
        *,
        costs: Any = None,
        pulled: Iterable[int | str] | None = None,
    ) -> None:
        """Enter rewards of the present slot, and what was pulled in place of the decision.

        Rewards are a sequence in the order of the arms, or a mapping by name, None or not a number where unknown; an
        arm at rest earns too. ``costs`` are negative rewards. ``pulled`` names the arms that were really pulled. Equal
        feedback changes nothing, different feedback is refused, and the next ``ask`` ends the slot.
        """
        if self._decision is None:
            raise ProblemError("tell without ask: ask with the states of a slot first")
        if costs is not None and isinstance(costs, Mapping):
            costs = {name: reward_of(None, cost) for name, cost in costs.items()}
        elif costs is not None:
            costs = [None if cost is None else reward_of(None, cost) for cost in costs]
        given = reward_of(rewards, None) if costs is None else costs
        if costs is not None and rewards is not None:
            raise ProblemError("rewards and costs are given; give one of the two")
        actions = None if pulled is None else self._numbers_of(pulled, "pulled")
        paid = None if given is None else self._rewards_of(given)
        self._tell(paid, actions)

    def skip(self, slots: int = 1) -> None:
        """Let slots pass in which no state is seen and no arm is pulled."""
        slots = check_int("the number of slots to skip", slots, 1, MOST_SLOTS - 1 - self.slots)
        self._log("skip", slots=slots)
        nothing = np.full(self.task.n_arms, UNSEEN, dtype=np.int64)
        missing = self._missing_in(nothing)
        for _ in range(slots):
            self._beliefs = next_beliefs(self.record, self.task, missing, self._beliefs, self._missing)
            self._missing = missing
            self.record.observe(nothing)
            self.record.act(np.zeros(0, dtype=np.int64))
        self._decision = None

    def rank(
        self, states: States | None = None, *, top: int | None = None, exclude: Iterable[int | str] = ()
    ) -> Ranking:
        """Return the arms in service by their present indices, the highest first: at most ``top`` of them.

        The states are those of ``ask``, by default of the present slot. The call changes nothing: it ranks by the plan
        in use, or by the plan that the first ``ask`` would make. By a plan without indices, such as pulls at random,
        the list holds the arms that are pulled, and their indices are not numbers.
        """
        most = self.task.n_arms if top is None else check_int("top", top)
        banned = self._numbers_of(exclude, "exclude")
        if states is None:
            if self._decision is None:
                raise ProblemError("rank needs the states of all arms, as in rank(states=[...], top=100)")
            present, missing, beliefs = self._seen_states, self._missing, self._beliefs
        else:
            present = self._states_of(states)
            missing = self._missing_in(present)
            beliefs = next_beliefs(self.record, self.task, missing, self._beliefs, self._missing)
        plan = self._made(self.record) if self._plan is None else self._plan
        available = self._available(banned)
        own, at, held = self._in_service(missing, beliefs)
        if not isinstance(plan.policy, PriorityPolicy):
            chosen = self._decision
            if states is not None or chosen is None:
                assert isinstance(plan.policy, ObservedPolicy)
                chosen = own[chosen_arms(plan.policy, self.slots + 1, present[own], at, held, available[own])]
            chosen = chosen[available[chosen]][:most]
            return Ranking(self.task, chosen, present[chosen], np.full(len(chosen), math.nan))
        ranks, scores = place_scores(plan.policy, present[own], at, held)
        first = first_arms(ranks, scores, available[own], most)
        return Ranking(self.task, own[first], present[own[first]], scores[first])

    def add_arm(self, name: str, kind: int | str | None = None, *, n_states: int | None = None) -> int:
        """Take a new arm into service from the coming slot on; return its number.

        An arm of a known kind starts with what is known of the kind. Without a kind the arm is a kind of its own, of
        ``n_states`` states, by default as many as the first kind has.
        """
        if not isinstance(name, str) or not name:
            raise ProblemError(f"the name of an arm is {shortened(name)}; give a text")
        if name in self._number_by_name:
            remedy = "restore_arm brings it back" if not self._serving[self._number_by_name[name]] else "give another"
            raise ProblemError(f"there is an arm {name!r} already; {remedy}")
        task = self.task.with_arm(name, kind, n_states)
        self._log("arm", change="add", name=name, arm_kind=kind, n_states=n_states)
        self._end_plan()
        self.task, self.record = task, self.record.with_arm(task.layout)
        self._serving = np.append(self._serving, True)
        self._note_missing(task.n_arms - 1)
        for word in ("_number_by_name", "_task_in_service"):
            self.__dict__.pop(word, None)
        return task.n_arms - 1

    def retire_arm(self, arm: int | str) -> None:
        """Take an arm out of service: later decisions do not pull the arm, and its observations are kept."""
        number = self._number_of(arm)
        if not self._serving[number]:
            raise ProblemError(f"arm {self.task.names[number]!r} is out of service already")
        if self.task.problem is not None:
            raise ProblemError(
                "the task holds the whole problem, whose arms stay; reveal less of it, or exclude the arm"
            )
        if int(self._serving.sum()) == self.task.plays:
            raise ProblemError(
                f"arm {self.task.names[number]!r} cannot be retired: {self.task.plays} arms are pulled a slot and no "
                "more are in service; add another first"
            )
        self._serve("retire", number)

    def restore_arm(self, arm: int | str) -> None:
        """Return a retired arm to service, with its observations."""
        number = self._number_of(arm)
        if self._serving[number]:
            raise ProblemError(f"arm {self.task.names[number]!r} is in service already")
        self._serve("restore", number)

    def belief(self) -> Array:
        """Return the distribution of each arm's state in the present slot: (arm, state), zeros beyond its states.

        A state that was seen has probability one, and a retired arm has no distribution.
        """
        width = int(self.task.layout.n_states.max())
        found = np.zeros((self.task.n_arms, width))
        states = self._seen_states
        seen = np.flatnonzero((states != UNSEEN) & self._serving)
        found[seen, states[seen]] = 1.0
        found[self._missing] = self._beliefs
        found[~self._serving] = math.nan
        return found

    def estimate(self) -> Estimate:
        """Return the estimated rows of each kind with standard errors, and the mean rewards of pulls."""
        return estimate_kinds(self.record, self.task)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the agent to a JSON file, atomically: see ``Agent.save``."""
        self._files.write(path, self.to_dict(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Self:
        """Return the agent of a file that ``save`` wrote; its decisions continue identically: see ``Agent.load``."""
        files = AgentFiles()
        data = files.read(path, [OBSERVED_FORMAT])
        with explained(path):
            agent = cls.from_dict(data, learner, trust_modules=trust_modules)
        agent._files = files
        return agent

    def keep_history(self, path: str | Path) -> None:
        """Append every event from now on to a new file; the file begins with the present state of the agent."""
        if self._history is not None:
            raise ProblemError(f"the history of this agent is kept in {self._history.path} already")
        if self._spec() is None:
            raise ProblemError(f"{self._learner.name} is a learner without a spec, and a history needs a spec")
        history = History(path)
        history.append("create", agent=self.to_dict())
        self._history = history

    def history(self, since: int = 0) -> Iterator[Event]:
        """Yield the events of the history with numbers above ``since``, as dictionaries."""
        if self._history is None:
            raise ProblemError("this agent has no history; make the agent with history=, or call keep_history")
        return self._history.read(since)

    @classmethod
    def replay(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Self:
        """Return the agent of a history; its decisions continue identically, and so does its history.

        Decisions are recomputed and compared with those of the file, which stand: see ``Agent.replay``.
        """
        events, length, last = read_events(path)
        if not events or events[0]["kind"] != "create":
            raise ProblemError(f"{path} is not the history of an agent; keep one with Agent(..., history=path)")
        differs = None
        with explained(path):
            agent = cls.from_dict(events[0]["agent"], learner, trust_modules=trust_modules)
            for event in events[1:]:
                if not agent.apply_event(event, trust_modules=trust_modules) and differs is None:
                    differs = event["slot"]
        if differs is not None:
            warnings.warn(
                f"{path}: slot {differs} is decided otherwise today, maybe by another release; the decisions of the "
                "file stand",
                RuntimeWarning,
                stacklevel=2,
            )
        agent._history = History(path, len(events), length, last)
        return agent

    def apply_event(self, event: Event, *, trust_modules: bool = False) -> bool:
        """Apply an event of a history again; return whether a recomputed decision agrees."""
        kind = event["kind"]
        if kind == "ask":
            states = unpacked_change(self.record.last_states, event["states"])
            asked = unpacked(event["arms"])
            banned = unpacked(event["exclude"]) if "exclude" in event else np.zeros(0, dtype=np.int64)
            if event["slot"] != self.slots + 1 or states.shape != (self.task.n_arms,):
                raise ProblemError(f"slot {event['slot']} cannot be asked for")
            self.task.layout.checked(np.maximum(states, 0))
            return np.array_equal(self._ask(states, banned, asked), asked)
        if kind == "tell":
            rewards = unpacked(event["rewards"]) if "rewards" in event else None
            self._tell(rewards, unpacked(event["pulled"]) if "pulled" in event else None)
        elif kind == "skip":
            self.skip(event["slots"])
        elif kind == "arm" and event["change"] == "add":
            self.add_arm(event["name"], event["arm_kind"], n_states=event["n_states"])
        elif kind == "arm":
            changes = {"retire": self.retire_arm, "restore": self.restore_arm}
            changes[event["change"]](event["name"])
        elif kind == "learner":
            self.learner = as_learner(event["spec"], trust_modules=trust_modules)
        else:
            raise ProblemError(f"it holds an event of the unknown kind {shortened(kind)}")
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        begun = self._plan_record
        return {
            "format": OBSERVED_FORMAT,
            "learner": self._spec(),
            "task": task_to_dict(self.task),
            "seed": self.seed,
            "run": self.run,
            "content": self.content,
            "retired": packed(np.flatnonzero(~self._serving)),
            "record": _record_to_dict(self.record),
            "plan_record": None if begun is None else _record_to_dict(begun),
            "missing": packed(self._missing),
            "beliefs": packed(self._beliefs),
            "decision": None if self._decision is None else packed(self._decision),
        }

    @classmethod
    def from_dict(
        cls, data: dict[str, Any], learner: Learner | None = None, *, trust_modules: bool = False, **own: Any
    ) -> Self:
        """Return the agent of a result of ``to_dict``, with every field validated."""
        if data.get("format") != OBSERVED_FORMAT:
            raise ProblemError("it is not an agent of observed arms of this version")
        if learner is None and data["learner"] is None:
            raise ProblemError("its learner has no spec; pass the learner as learner=")
        task = task_from_dict(data["task"])
        made = learner or as_learner(data["learner"], trust_modules=trust_modules)
        about = {"seed": data["seed"], "run": data["run"], "content": data["content"]}
        agent = cls(made, task, **about, **own)
        agent._serving[unpacked(data["retired"])] = False
        check_int("the number of arms in service", int(agent._serving.sum()), task.plays)
        agent.record = _record_from_dict(task, data["record"])
        missing, beliefs = unpacked(data["missing"]), unpacked(data["beliefs"])
        if beliefs.shape != (len(missing), int(task.layout.n_states.max())) or not np.isfinite(beliefs).all():
            raise ProblemError("its beliefs do not fit its missing arms")
        if len(missing) and (missing.min() < 0 or missing.max() >= task.n_arms or (np.diff(missing) <= 0).any()):
            raise ProblemError("its missing arms are no arms in ascending order")
        agent._missing, agent._beliefs = missing, beliefs
        if data["decision"] is not None:
            agent._decision = task_arms(task, unpacked(data["decision"]))
        if data["plan_record"] is not None:
            begun = _record_from_dict(task, data["plan_record"])
            if begun.slots > agent.slots or begun.plan_lengths != agent.record.plan_lengths:
                raise ProblemError("plan_record does not lead to record")
            agent._begin(agent._plan_again(begun), begun)
            agent.record.remember(agent._plan.notes if agent._plan is not None else {})
        return agent

    @property
    def _seen_states(self) -> IntArray:
        """The states of the present slot: those of the last decision."""
        return self.record.last_states

    @cached_property
    def _number_by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.task.names)}

    @cached_property
    def _task_in_service(self) -> ObservedTask:
        return self.task if self._serving.all() else self.task.only(np.flatnonzero(self._serving))

    def _answer(self, arms: IntArray) -> int | tuple[int, ...]:
        chosen: list[int] = arms.tolist()
        return chosen[0] if self.task.plays == 1 and len(chosen) == 1 else tuple(chosen)

    def _named(self, arms: IntArray) -> tuple[str, ...]:
        names = self.task.names
        return tuple(names[arm] for arm in arms.tolist())

    def _number_of(self, arm: Any) -> int:
        if isinstance(arm, str):
            number = self._number_by_name.get(arm)
            if number is None:
                raise ProblemError(f"there is no arm {shortened(arm)}; {did_you_mean(arm[:60], self._some_names)}")
            return number
        if not is_whole(arm) or not 0 <= arm < self.task.n_arms:
            raise ProblemError(f"there is no arm {shortened(arm)}; arms are 0 to {self.task.n_arms - 1}")
        return int(arm)

    @property
    def _some_names(self) -> Sequence[str]:
        """Names among which a name like an unknown one is looked for."""
        return self.task.names[:1000]

    def _numbers_of(self, arms: Iterable[int | str], what: str) -> IntArray:
        """Return the numbers of arms given by name or number, ascending."""
        if isinstance(arms, str):
            raise ProblemError(f"{what} is {shortened(arms)}; give a list of arms")
        return np.unique(np.array([self._number_of(arm) for arm in arms], dtype=np.int64))

    def _states_of(self, states: States) -> IntArray:
        """Return the states of all arms, ``UNSEEN`` where missing and for retired arms."""
        n = self.task.n_arms
        if isinstance(states, Mapping):
            found = np.full(n, UNSEEN, dtype=np.int64)
            numbers = np.array([self._number_of(name) for name in states], dtype=np.int64)
            retired = numbers[~self._serving[numbers]]
            if len(retired):
                raise ProblemError(
                    f"arm {self.task.names[int(retired[0])]!r} is out of service; leave it out, or restore_arm brings "
                    "it back"
                )
            found[numbers] = self._column(list(states.values()), numbers)
        else:
            column: Any = states if isinstance(states, np.ndarray) else list(states)  # type: ignore[arg-type]
            if np.ndim(column) != 1 or len(column) != n:
                raise ProblemError(f"states is {shortened(states)}; give the state of each of {n} arms, or a mapping")
            found = self._column(column, np.arange(n))
        found[~self._serving] = UNSEEN
        return found

    def _column(self, values: Any, numbers: IntArray) -> IntArray:
        """Return states of arms as numbers."""
        try:
            given = np.asarray(values)
        except ValueError:
            given = np.empty(len(values), dtype=object)
            given[:] = values
        if given.dtype.kind == "f":
            given = np.where(np.isnan(given), UNSEEN, given)
            whole = given.astype(np.int64)
            given = whole if (whole == given).all() else given.astype(object)
        if given.dtype.kind not in "iu":
            listed = [self._state_of(arm, one) for arm, one in zip(numbers.tolist(), list(values), strict=True)]
            given = np.array(listed, dtype=np.int64)
        wrong = (given < UNSEEN) | (given >= self.task.layout.sizes[numbers])
        if wrong.any():
            row = int(wrong.argmax())
            arm = int(numbers[row])
            most = int(self.task.layout.sizes[arm]) - 1
            raise ProblemError(
                f"arm {self.task.names[arm]!r} has no state {given[row]}; its states are 0 to {most}, and None is for "
                "a state that was not seen"
            )
        return given.astype(np.int64)

    def _state_of(self, arm: int, state: Any) -> int:
        number = self.task.state_number(arm, state)
        if number is None or (isinstance(number, float) and math.isnan(number)):
            return UNSEEN
        if not is_whole(number):
            raise ProblemError(f"arm {self.task.names[arm]!r}: state {shortened(state)} is no whole number")
        return int(number)

    def _rewards_of(self, given: Any) -> Array:
        """Return the rewards of all arms, not a number where none is told."""
        n, (low, high) = self.task.n_arms, self.task.reward_range
        found = np.full(n, math.nan)
        if isinstance(given, Mapping):
            numbers = [self._number_of(name) for name in given]
            values: Any = list(given.values())
        else:
            values = given if isinstance(given, np.ndarray) else list(given)
            if np.ndim(values) != 1 or len(values) != n:
                raise ProblemError(f"rewards is {shortened(given)}; give the reward of each of {n} arms, or a mapping")
            numbers = list(range(n))
        try:
            column = np.array(values, dtype=np.float64)  # None is not a number
        except (TypeError, ValueError):
            bad = next(i for i, one in enumerate(values) if one is not None and not is_number(one))
            self.task.check_reward(numbers[bad], values[bad])
            raise
        outside = ~np.isnan(column) & ~((column >= low) & (column <= high))
        if outside.any():
            row = int(outside.argmax())
            self.task.check_reward(numbers[row], float(column[row]))
        found[numbers] = column
        return found

    def _available(self, banned: IntArray) -> BoolArray:
        """Return the arms that may be pulled."""
        available = self._serving.copy()
        available[banned] = False
        if not self.task.at_most and int(available.sum()) < self.task.plays:
            raise ProblemError(
                f"{int(available.sum())} arms are left, fewer than plays = {self.task.plays}; exclude fewer"
            )
        return available

    def _missing_in(self, states: IntArray) -> IntArray:
        return np.flatnonzero((states == UNSEEN) & self._serving)

    def _in_service(self, missing: IntArray, beliefs: Array) -> tuple[IntArray, IntArray, Array]:
        """Return the arms in service, and of them the positions of those missing, with their beliefs."""
        own = np.flatnonzero(self._serving)
        kept = self._serving[missing]
        return own, np.searchsorted(own, missing[kept]), beliefs[kept]

    def _note_missing(self, number: int) -> None:
        """Give an arm that came in the present slot its belief, the uniform distribution."""
        size, width = int(self.task.layout.sizes[number]), int(self.task.layout.n_states.max())
        at, own = int(np.searchsorted(self._missing, number)), np.zeros((len(self._missing), width))
        own[:, : self._beliefs.shape[1]] = self._beliefs
        self._missing = np.insert(self._missing, at, number)
        self._beliefs = np.insert(own, at, (np.arange(width) < size) / size, axis=0)

    def _ask(self, states: IntArray, banned: IntArray, asked: IntArray | None = None) -> IntArray:
        """Begin a slot and return its decision; with ``asked`` these arms stand in place of the decision."""
        available, missing = self._available(banned), self._missing_in(states)
        beliefs = next_beliefs(self.record, self.task, missing, self._beliefs, self._missing)
        # A copy, so that an ask that fails changes nothing.
        record, plan = self.record.copy(), self._plan
        record.observe(states)
        if plan is not None and self._watch.met(record):
            record.plan_lengths.append(self._plan_slots)
            plan = None
        begun = None if plan is not None else record.copy()
        if begun is not None:
            plan = self._plan_now(begun)
        assert plan is not None
        assert isinstance(plan.policy, ObservedPolicy)
        own, at, held = self._in_service(missing, beliefs)
        chosen = own[chosen_arms(plan.policy, self.slots + 1, states[own], at, held, available[own])]
        kept = {"exclude": packed(banned)} if len(banned) else {}
        stands = chosen if asked is None else task_arms(self.task, asked)
        change = packed_change(self.record.last_states, states)
        self._log("ask", slot=self.slots + 1, states=change, arms=packed(stands), **kept)
        self.record, self._missing, self._beliefs = record, missing, beliefs
        if begun is not None:
            self._begin(plan, begun)
        record.act(stands)
        self._decision = stands
        return chosen

    def _tell(self, paid: Array | None, actions: IntArray | None) -> None:
        """Enter checked feedback of the present slot."""
        record = self.record
        if self._decision is None or (paid is not None and paid.shape != record.last_rewards.shape):
            raise ProblemError("feedback does not fit the present slot")
        before = record.last_rewards
        new = None if paid is None else np.where(np.isnan(before), paid, math.nan)
        if paid is not None:
            both = ~np.isnan(paid) & ~np.isnan(before)
            if (paid[both] != before[both]).any():
                arm = int(np.flatnonzero(both)[np.argmax(paid[both] != before[both])])
                raise ConflictError(f"slot {self.slots}: arm {self.task.names[arm]!r}: {DIFFERENT}")
        moved = actions is not None and not np.array_equal(actions, np.flatnonzero(record.last_pulled))
        if moved and not np.isnan(before).all():
            raise ConflictError(f"slot {self.slots}: rewards were told for other pulls; {DIFFERENT}")
        pays = new is not None and not np.isnan(new).all()
        if not moved and not pays:
            return
        told = {"rewards": packed(new)} if pays and new is not None else {}
        if moved and actions is not None:
            told["pulled"] = packed(actions)
        self._log("tell", slot=self.slots, **told)
        if moved and actions is not None:
            record.pulls[record.last_pulled] -= 1
            record.last_pulled[:] = False
            record.last_pulled[actions] = True
            record.pulls[actions] += 1
        if pays and new is not None:
            record.pay(new)
            record.last_rewards = np.where(np.isnan(new), before, new)

    def _serve(self, change: str, number: int) -> None:
        self._log("arm", change=change, name=self.task.names[number])
        self._end_plan()
        self._serving[number] = change == "restore"
        if change == "restore":
            self._note_missing(number)
        else:
            kept = self._missing != number
            self._missing, self._beliefs = self._missing[kept], self._beliefs[kept]
        self.__dict__.pop("_task_in_service", None)

    def _checked_learner(self, learner: Learner | str) -> Learner:
        """Return the learner if it can play these arms, else raise."""
        found, task = as_learner(learner), self._task_in_service
        check_features(found, task)  # type: ignore[arg-type]
        for need in sorted(found.needs):
            if getattr(task, need) is None:
                raise ProblemError(f"{found.label} needs to be told {need}; make its task with reveal=[{need!r}]")
        found.check(task)
        return found

    def _ingredients(self, record: ObservedRecord) -> tuple[Any, ...]:
        """Return the arguments of ``make_observed_plan`` for a plan from a record."""
        arms = None if self._serving.all() else np.flatnonzero(self._serving)
        return self._learner, record, self._task_in_service, arms, self.seed, self.content, self.run

    def _made(self, record: ObservedRecord) -> Plan:
        return make_observed_plan(*self._ingredients(record))

    def _plan_again(self, begun: ObservedRecord) -> Plan:
        """Return the stored plan, recomputed from the record and the notes at its start."""
        return self._made(begun)

    def _plan_now(self, begun: ObservedRecord) -> Plan:
        """Return a new plan for the coming slot."""
        return self._made(begun)

    def _begin(self, plan: Plan, begun: ObservedRecord) -> None:
        self.record.remember(plan.notes)
        self._plan, self._plan_record, self._watch = plan, begun, ObservedRuleWatch(plan.until, begun)

    @property
    def _plan_slots(self) -> int:
        """The number of slots of the present plan."""
        return 0 if self._plan_record is None else self.slots - self._plan_record.slots

    def _end_plan(self) -> None:
        """End the present plan at once, as invalid for the coming slots; the next plan starts without notes."""
        # A plan without slots does not count, and the next plan takes its number.
        if self._plan_slots:
            self.record.plan_lengths.append(self._plan_slots)
        self._plan = self._plan_record = None
        self.record.remember({})

    def _log(self, kind: str, **content: Any) -> None:
        """Append an event to the history, if the agent keeps one."""
        if self._history is not None:
            self._history.append(kind, **content)

    def _log_learner(self, learner: Learner) -> None:
        """Log a new learner; without a log the learner may lack a spec."""
        if self._history is not None:
            self._log("learner", spec=learner.spec)

    def _spec(self) -> str | None:
        """The spec of the learner; a learner with a function among its options has none."""
        try:
            return self._learner.spec
        except ProblemError:
            return None


def estimate_kinds(record: ObservedRecord, task: ObservedTask, most: int | None = None) -> Estimate:
    """Return the estimated rows of each kind, or of the first ones, with standard errors, and the rewards of pulls."""
    found = []
    low, high = task.reward_range
    for kind, name in enumerate((task.kind_names or task.names)[:most]):
        counts = record.counts(kind)
        n, totals = len(counts), counts.sum(axis=2)
        rows = (counts + 1.0) / (totals + n)[:, :, None]
        errors = np.sqrt(rows * (1 - rows) / (totals + n)[:, :, None])
        first = int(task.layout.offset[kind])
        at = 2 * np.arange(first, first + n) + 1
        with np.errstate(invalid="ignore"):
            pay = record.flat_rewards[at] / record.paid[at]
            share = (pay - low) / (high - low)
            # The largest variance of a number with this mean in the range.
            spread = (high - low) * np.sqrt(share * (1 - share) / record.paid[at])
        mode = ReactingMode(rows[:, 0], errors[:, 0], 0.0, rows[:, 1], errors[:, 1])
        few = tuple(
            f"after a {verb} in state {state} no step was seen"
            for action, verb in enumerate(("rest", "pull"))
            for state in np.flatnonzero(totals[:, action] == 0).tolist()
        )
        found.append(ArmEstimate(f"kind {name!r}", int(totals.sum()), (mode,), pay, spread, not few, few))
    return Estimate(tuple(found))


def make_observed_plan(
    learner: Learner,
    record: ObservedRecord,
    task: ObservedTask,
    arms: IntArray | None,
    seed: int,
    content: str,
    run: int,
) -> Plan:
    """Return a learner's plan for the arms in service, described by the task, from the record of all arms.

    The plan is a function of the arguments, here or in a worker.
    """
    part = record if arms is None else record.only(arms)
    return checked_plan(learner, part, task, plan_generator(seed, content, run, record.plans))


def task_arms(task: ObservedTask, arms: IntArray) -> IntArray:
    """Return stored numbers of arms, checked."""
    if arms.ndim != 1 or (len(arms) and (arms.min() < 0 or arms.max() >= task.n_arms or (np.diff(arms) <= 0).any())):
        raise ProblemError("a decision is no list of arms in ascending order")
    return arms


def task_to_dict(task: ObservedTask) -> dict[str, Any]:
    """Return the JSON form of a task; numbered names are stored by their number."""
    names = {"numbered": len(task.names)} if isinstance(task.names, NumberedNames) else list(task.names)
    own = {word: getattr(task, word) for word in TASK_WORDS}
    own |= {"kind_names": list(task.kind_names), "state_names": list(task.state_names)}
    return own | {
        "n_states": packed(task.layout.n_states),
        "counts": packed(task.layout.counts),
        "kinds": None if task.layout.kinds is None else packed(task.layout.kinds),
        "names": names,
        "rewards": None if task.rewards is None else packed(task.rewards),
        "reward_range": list(task.reward_range),
        "problem": None if task.problem is None else task.problem.to_toml(),
    }


def task_from_dict(data: Mapping[str, Any]) -> ObservedTask:
    """Return the task of ``task_to_dict``."""
    arrays = {word: unpacked(data[word]) for word in ("n_states", "counts")}
    if data["kinds"] is not None:
        arrays["kinds"] = unpacked(data["kinds"])
    names = data["names"]
    named: Sequence[str] = NumberedNames(check_int("numbered", names["numbered"])) if isinstance(names, dict) else names
    if not all(isinstance(name, str) for name in named):
        raise ProblemError("names of arms are no texts")
    own = {word: data[word] for word in TASK_WORDS} | {"kind_names": tuple(data["kind_names"])}
    return ObservedTask(
        Layout.from_arrays(arrays),
        names=named if isinstance(named, NumberedNames) else tuple(named),
        rewards=None if data["rewards"] is None else unpacked(data["rewards"]),
        reward_range=tuple(data["reward_range"]),
        problem=None if data["problem"] is None else Problem.from_toml(data["problem"]),
        **own,
    )


def _record_to_dict(record: ObservedRecord) -> dict[str, Any]:
    arrays = record.to_arrays()
    return {"notes": json.loads(json.dumps(dict(record.notes)))} | {name: packed(one) for name, one in arrays.items()}


def _record_from_dict(task: ObservedTask, data: Mapping[str, Any]) -> ObservedRecord:
    empty = ObservedRecord.of(task).to_arrays()
    arrays = {name: unpacked(data[name]).astype(one.dtype) for name, one in empty.items()}
    try:
        return ObservedRecord.from_arrays(task, arrays, data["notes"])
    except ValueError as error:
        raise ProblemError(f"its record is damaged: {error}") from None
