"""The interface of learners: an immutable description with a method that maps observations to a plan.

``plan`` is a function, called for a new plan after the end of each plan. Its arguments are the read-only record of all
observations, the task (the learner's knowledge of the problem), and a random generator. The generator is made anew for
each plan from the seed, the run and the plan's number. Equal records and generators give equal plans. Memory beyond the
record goes into the ``notes`` of the plan, and the next plan finds the notes in ``record.notes``. The same learner
drives the compiled simulator, a plan at a time, and ``Agent``, a slot at a time.

A learner gets rewards as shares of a common range of all arms, independent of units. ``task.reward_ranges`` are the
parts of [0, 1] that each arm can pay, the full interval for arms of equal range.

A new learner is a frozen dataclass derived from ``Learner``, with a name and a method ``plan``; its fields are its
options, on the command line too. ``needs`` declares the required parts of the problem beyond its shape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.validation import LARGEST_INTEGER, Array
from restless_bandits.model.arms import AnyArm, Arm, TableArm
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.support import UNCONTROLLED
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import Plan, check_plan
from restless_bandits.registry import ALIASES, LEARNERS, home_of

PULLED = frozenset({"pulled"})
ALL = frozenset({"all"})
DEEPEST = 10
"""Brackets in each other; a list of matrices has three."""


@dataclasses.dataclass(frozen=True)
class Learner:
    """The contract of every learner."""

    name: ClassVar[str] = "learner"
    plans_often: ClassVar[bool] = False
    """Whether a run has so many plans that planning takes most of the time: simulations then prefer processes."""
    pools_kinds: ClassVar[bool] = True
    """Whether plans for observed arms read no states of single arms: the numbers of arms in each state may then step
    in place of the arms.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__

    @property
    def needs(self) -> frozenset[str]:
        """The required parts of the problem: a subset of rewards, mixing, problem.

        A learner with an option ``rewards`` needs the rewards for the value ``known``.
        """
        return frozenset({"rewards"} if getattr(self, "rewards", None) == "known" else ())

    @property
    def features(self) -> frozenset[str]:
        """The features of arms that this learner plays beyond uncontrolled chains: see ``model.support``.

        None by default: a learner that assumes one chain for each arm refuses arms that react to pulls, and a learner
        that counts no rewards but those of pulls refuses arms that pay at rest.
        """
        return UNCONTROLLED

    @property
    def observed(self) -> frozenset[str]:
        """What this learner plays: ``pulled``, arms that are seen when pulled, or ``all``, observed arms, or both."""
        return PULLED

    def check(self, task: Any) -> None:
        """Raise ``ProblemError`` if this learner cannot play this task."""

    def caution(self, task: Task, problem: Problem | None = None) -> str | None:
        """Return a caution about the play of a task, or None; ``problem`` is given if known."""
        return None

    def plan(self, record: Any, task: Any, rng: np.random.Generator) -> Plan:
        """Return the next plan, given all observations.

        Record and task are a ``Record`` and a ``Task``, of observed arms an ``ObservedRecord`` and an ``ObservedTask``.
        """
        raise NotImplementedError

    def rehearse(self, record: Any, task: Any) -> None:
        """Call the kernels that come last in the first plans, given an empty record; nothing by default.

        A second process thereby compiles these kernels while the first process compiles the others.
        """

    def task(self, problem: Problem, horizon: int | None) -> Task:
        """Return this learner's task of a problem, checked."""
        task = problem.task(horizon, reveal=self.needs)
        check_features(self, task)
        self.check(task)
        return task

    @property
    def options(self) -> str:
        """The options that differ from their defaults, in the syntax of the command line: ``key=value,…``."""
        given = [(field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self)]
        return ",".join(f"{key}={format_option(value)}" for key, value, default in given if value != default)

    @property
    def spec(self) -> str:
        """The spec of this learner on the command line; ``rb.learner`` makes an equal learner from the spec.

        The original spec, if the learner was made from a spec; else its name, or the home of a third-party learner,
        with options.
        """
        asked: str | None = vars(self).get("_asked")
        if asked is not None:
            return asked
        registered = self.name in LEARNERS and LEARNERS[self.name] is type(self)
        return with_options(self.name if registered else home_of(type(self)), self.options)

    @property
    def label(self) -> str:
        """The label in results: the original spec, else name and options."""
        return vars(self).get("_asked") or with_options(self.name, self.options)


def check_features(learner: Learner, task: Task) -> None:
    """Raise ``ProblemError`` if a learner does not support a feature of a task's arms."""
    asked = vars(learner).get("_asked") or learner.name
    if task.observed not in learner.observed:
        arms = {"all": "arms that are all observed", "pulled": "arms that are seen when pulled"}[task.observed]
        raise ProblemError(
            f"{asked} cannot play {arms}; learners that play such arms are {', '.join(_learners_of(task))}"
        )
    if task.observed == "all":
        return
    missing = next((word for word in task.features if word not in learner.features), None)
    if missing is not None:
        having = task.reacts.index(True) if missing == "active_transitions" else None
        subject = "an arm" if having is None else f"arm {task.names[having]!r}"
        others = ", ".join(_learners_of(task))
        raise ProblemError(
            f"{subject} has {missing}, and {asked} plays uncontrolled arms only; learners that play such arms "
            f"are {others}"
        )


def _learners_of(task: Task) -> list[str]:
    """The names of the learners of the package that support the features of a task and need no more of the problem."""
    specs = {name: name for name in LEARNERS.own} | ALIASES
    found = []
    for name, spec in specs.items():
        word, rest = LEARNERS.split(spec)
        options = [part.partition("=") for part in split_outside_brackets(rest)]
        kind = LEARNERS[word] if word in LEARNERS.own else None
        if kind is None:
            continue
        made = kind(**{key: parse_option(value) for key, _, value in options})
        told = all(getattr(task, need) is not None for need in made.needs)
        plays = task.observed in made.observed
        if told and plays and (task.observed == "all" or made.features.issuperset(task.features)):
            found.append(name)
    return found


def checked_plan(
    learner: Learner, record: Record | ObservedRecord, task: Task | ObservedTask, rng: np.random.Generator
) -> Plan:
    """Return the learner's next plan, checked against the task.

    The learner gets rewards as shares of a common range of all arms: see ``Task.shared``.
    """
    told, rewards = task.shared(), None
    if isinstance(record, ObservedRecord) and isinstance(task, ObservedTask):
        if told is not task:
            rewards = task.normalized_sums(record.flat_rewards, record.paid)
    elif isinstance(record, Record) and isinstance(told, Task) and isinstance(task, Task) and told is not task:
        rewards = told.sums(task.normalized_sums(record.flat_rewards, record.flat_seen), record.flat_seen)
    plan = learner.plan(record.frozen(rewards), told, rng)
    check_plan(plan, task, learner.name)
    return plan


def next_plan(
    learner: Learner, record: Record | ObservedRecord, task: Task | ObservedTask, rng: np.random.Generator
) -> Plan:
    """Return the learner's next plan, and keep its notes in the record."""
    plan = checked_plan(learner, record, task, rng)
    record.remember(plan.notes)
    return plan


def with_options(word: str, options: str) -> str:
    """Return a spec: a name or home with options, or the short name of both."""
    # An alias without options is a former name.
    short = {spec: name for name, spec in ALIASES.items() if ":" in spec}
    full = f"{word}:{options}" if options else word
    return short.get(full, full)


def present_problem(
    record: Record, task: Task, distributions: Sequence[Array], rewards: Sequence[Array | Sequence[float]] | Array
) -> Problem:
    """Return the problem of given chains, or tables of distributions, and mean rewards, started from the last
    observed states.
    """
    arms: list[AnyArm] = []
    for i, (distribution, n) in enumerate(zip(distributions, task.n_states, strict=True)):
        state = int(record.last_state[i])
        about: Any = {"name": task.names[i], "initial": state if state < n else None}
        # No plan depends on how rewards vary.
        paid = "bounded" if task.reward_laws[i] == "beta" else task.reward_laws[i]
        about |= {"reward_law": paid, "reward_range": task.reward_ranges[i]}
        # The last row of a table is for an arm never observed.
        table = distribution[:, :n] if state < n else distribution
        arms.append(
            Arm(distribution, rewards[i], **about) if distribution.ndim == 2 else TableArm(table, rewards[i], **about)
        )
    return Problem(arms, plays=task.plays)


def require_horizon(learner: Learner, task: Task) -> int:
    """Return the horizon of a task; a task without a horizon raises."""
    if task.horizon is None:
        raise ProblemError(f"{learner.name} needs to know the horizon; give one")
    return task.horizon


def require_one_play(learner: Learner, task: Task) -> None:
    """Refuse tasks with several plays a slot."""
    if task.plays != 1:
        raise ProblemError(f"{learner.name} pulls one arm a slot, but the problem has plays = {task.plays}")


def require_choice(learner: Learner, option: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not a value of the option."""
    check_known(value, allowed, f"{learner.name}: {option} is")


def format_option(value: Any) -> str:
    """Return an option's value in the syntax of the command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "[" + ",".join(format_option(entry) for entry in value) + "]"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if callable(value):
        raise ProblemError("a learner with a function as an option has no spec; give a number or a word")
    return str(value)


def parse_option(text: str) -> Any:
    """Read an option's value: a number, yes or no, a bracketed list, or a word."""
    text = text.strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise ProblemError(f"the list {shortened(text)} lacks its closing bracket")
        return tuple(parse_option(part) for part in split_outside_brackets(text[1:-1]))
    if text in ("yes", "true"):
        return True
    if text in ("no", "false"):
        return False
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if abs(number) <= LARGEST_INTEGER:
            return number
    return text


def split_outside_brackets(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth > DEEPEST:
            raise ProblemError(f"{shortened(text)} has more than {DEEPEST} brackets in each other; no option has")
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [*parts, current] if current.strip() or parts else []
