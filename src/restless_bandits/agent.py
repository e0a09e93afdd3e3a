"""A learner in a loop of your own: ``ask`` which arm to pull, pull it, ``tell`` what was seen.

    agent = Agent(RestlessUCB(), problem.task(horizon=100_000), seed=7)
    arm = agent.ask()
    agent.tell(state=1, reward=0.0)

The agent follows the same plans as the simulator, a slot at a time. Its whole state is the record when the present
plan began, the record now, and a few numbers; ``save`` writes them as JSON and ``load`` reads them, at any slot, and
decisions go on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits.arrays import is_whole, whole, wholes
from restless_bandits.errors import ProblemError, shortened
from restless_bandits.files import check_writable, locked, read_file, save_file
from restless_bandits.learners import Learner, as_learner
from restless_bandits.learners.base import next_plan
from restless_bandits.plans import Plan, Watch
from restless_bandits.problem import MOST_SLOTS, Problem, Task, check_length
from restless_bandits.record import Record
from restless_bandits.streams import plan_generator

KIND = "restless-bandits agent"
FORMAT = f"{KIND}, version 1"


class Agent:
    """A learner with what it has seen.

    Parameters
    ----------
    learner
        A learner, or its spec such as ``"restless-ucb"``.
    task
        What it may know, from ``problem.task(...)``; a learner that needs more than the shape says what to reveal.
    seed, run, content
        Coordinates of its random choices. With those of a simulated run (``content`` is ``problem.content``) it makes
        the same ones.

    """

    def __init__(self, learner: Learner | str, task: Task, *, seed: int = 0, run: int = 0, content: str = "") -> None:
        self.learner = as_learner(learner)
        if not isinstance(task, Task):
            raise ProblemError(f"task is {shortened(task)}; give a Task, as problem.task(...) makes one")
        for need in sorted(self.learner.needs):
            if getattr(task, need) is None:
                raise ProblemError(f"{self.learner.name} needs to be told {need}; make its task with reveal=[{need!r}]")
        check_length(task.horizon)
        self.learner.check(task)
        self.task = task
        self.seed, self.run, self.content = whole("seed", seed, 0), whole("run", run, 0), content
        if not isinstance(content, str) or set(content) - set("0123456789abcdef"):
            raise ProblemError(f"content is {shortened(content)}; give problem.content, or leave it out")
        self.record = Record.of(task)
        self._plan: Plan | None = None
        self._asked: list[int] | None = None
        self._known: dict[str, str] = {}  # the mark of each file that it was loaded from or saved to, as it left it

    @property
    def slots(self) -> int:
        """Slots that have passed."""
        return self.record.slots

    def ask(self) -> int | tuple[int, ...]:
        """Return the arm to pull in the coming slot, a tuple where several are; asking again repeats the answer."""
        if self._asked is None:
            self._asked = self._present_plan().policy.choose_now(self.record)
        return self._asked[0] if self.task.plays == 1 else tuple(self._asked)

    def tell(
        self, state: int | Sequence[int], reward: float | Sequence[float], arm: int | Sequence[int] | None = None
    ) -> None:
        """Tell what was seen in the slot: the state and reward of the arm that was asked for.

        ``arm`` says that somebody overrode the choice and pulled another one. With several plays all are sequences of
        that length. What cannot have been seen is refused, and nothing changes.
        """
        arms = self._asked if arm is None else self._sequence(arm, "arm")
        if arms is None:
            raise ProblemError("tell without ask: ask for an arm first, or name the arm that was pulled")
        states, rewards = self._sequence(state, "state"), self._sequence(reward, "reward")
        order = np.argsort(arms, kind="stable").tolist() if arm is not None else range(len(arms))
        arms, states, rewards = ([values[i] for i in order] for values in (arms, states, rewards))
        self._check(arms, states, rewards)

        self._present_plan()
        previous = [(int(self.record.last_state[i]), int(self.record.elapsed[i])) for i in arms]
        self.record.observe(arms, states, [float(value) for value in rewards])
        self._pass(arms, previous)

    def skip(self, slots: int = 1) -> None:
        """Let slots pass in which nothing was pulled or the answer was lost."""
        slots = whole("the number of slots to skip", slots, 1, MOST_SLOTS - 1 - self.slots)
        self._present_plan()
        self.record.skip(slots)
        self._pass([], [])

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the agent to a JSON file; it appears whole or not at all.

        Refuses, with ``overwrite=False``, to replace what somebody else has saved there: another agent, or this one as
        another process has taught it since it was loaded or last saved.
        """
        spec: str | None = None  # One with a function among its options has none.
        with contextlib.suppress(ProblemError):
            spec = self.learner.spec
        problem = None if self.task.problem is None else self.task.problem.to_toml()
        data = {
            "format": FORMAT,
            "learner": spec,
            "task": {**vars(self.task), "problem": problem},
            "seed": self.seed,
            "run": self.run,
            "content": self.content,
            "record": self.record.to_dict(),
            "plan_record": None if self._plan is None else self._plan_record.to_dict(),
            "asked": self._asked,
        }
        content = json.dumps(data | {"digest": _digest(data)}).encode()
        check_writable(path)
        with locked(path):
            if not overwrite:
                self._check_unchanged(path)
            save_file(path, content)
        self._known[os.path.realpath(path)] = _mark(content)

    @classmethod
    def load(cls, path: str | Path, *, learner: Learner | None = None) -> Agent:
        """Read an agent that ``save`` wrote; it goes on with identical decisions.

        ``learner`` is the one that was saved, for a learner that cannot be found by its spec: made of a class inside of
        a function, or with a function among its options.
        """
        content = read_file(path)
        try:
            data = json.loads(content)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError
        except (ValueError, RecursionError):
            raise ProblemError(f"{path} is not a stored agent of this version; write one with Agent.save") from None
        # Files of earlier versions have no digest.
        if "digest" in data and data.pop("digest") != _digest(data):
            raise ProblemError(f"{path} is damaged: it does not hold what was written; go back to an earlier copy")
        if learner is None and data.get("learner", "") is None:
            raise ProblemError(f"{path} has a learner that no spec can name; hand it over as learner=")
        try:
            agent = cls._restored(data, learner)
        except ProblemError as error:
            raise ProblemError(f"cannot load {path}: {error}") from None
        except Exception as error:  # of a learner, maybe somebody else's, to which what is stored makes no sense
            reason = f"it is damaged, or its learner fails on what it holds: {error!r}"
            raise ProblemError(f"cannot load {path}: {reason}; go back to an earlier copy") from error
        agent._known[os.path.realpath(path)] = _mark(content)
        return agent

    @classmethod
    def _restored(cls, data: dict[str, Any], learner: Learner | None) -> Agent:
        """The agent that was stored; nothing of it is taken on trust."""
        told = dict(data["task"])
        if told["problem"] is not None:
            told["problem"] = Problem.from_toml(told["problem"])
        task = Task(**told)
        agent = cls(learner or data["learner"], task, seed=data["seed"], run=data["run"], content=data["content"])
        now = Record.from_dict(task, data["record"])
        begun = now if data["plan_record"] is None else Record.from_dict(task, data["plan_record"])
        counted = ("flat_counts", "last_slot")
        grown = all((getattr(now, name) >= getattr(begun, name)).all() for name in counted) and now.slots >= begun.slots
        # Sums of costs fall; what they exceed the least by does not, but for rounding.
        earned, before = (task.share_sums(one.flat_rewards, one.flat_seen) for one in (now, begun))
        grown = grown and bool((earned >= before - (0 if task.in_shares else 1e-9 * (1 + begun.flat_seen))).all())
        if not grown or begun.plan_lengths != now.plan_lengths or sum(begun.plan_lengths) > begun.slots:
            raise ProblemError("plan_record does not lead to record")
        # The plan is made again from the record of its start, with the notes that go with it: what is wrong with what
        # was stored shows now. From there on the present record counts.
        agent.record = begun
        notes = agent._present_plan().notes
        agent.record = now
        now.remember(notes)
        if data["asked"] is not None:
            asked = wholes("asked", data["asked"], 0, task.n_arms - 1, length=task.plays)
            if data["plan_record"] is None or asked != sorted(set(asked)):
                raise ProblemError(f"asked is {asked}; it must be the arms that a plan pulls, in ascending order")
            agent._asked = asked
        return agent

    def _check_unchanged(self, path: str | Path) -> None:
        """Refuse to replace what this agent does not know of."""
        if not Path(path).exists():
            return
        present, known = read_file(path), self._known.get(os.path.realpath(path))
        if known not in (None, _mark(present)):
            found = "was saved by somebody else since this agent read or wrote it"
        elif known is None and KIND.encode() in present[:100]:
            found = "holds another agent"
        else:
            return
        raise ProblemError(
            f"{path} {found}, and saving would lose what that one has seen; load it and go on from there, save under "
            "another name, or give overwrite=True"
        )

    def _present_plan(self) -> Plan:
        if self._plan is None:
            self._plan_record = self.record.copy()
            rng = plan_generator(self.seed, self.content, self.run, self.record.plans)
            self._plan = next_plan(self.learner, self.record, self.task, rng)
            self._watch = Watch(self._plan.until, self._plan_record)
        return self._plan

    def _pass(self, arms: list[int], previous: list[tuple[int, int]]) -> None:
        """A slot is over: the next one is asked anew, by a new plan if the rule of this one is met."""
        self._asked = None
        if self._watch.met(self.record, arms, previous):
            self.record.plan_lengths.append(self.record.slots - self._plan_record.slots)
            self._plan = None

    def _sequence(self, value: Any, what: str) -> list[Any]:
        """What was told as a list, one entry a play."""
        if self.task.plays == 1:
            return [value]
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray) or len(value) != self.task.plays:
            raise ProblemError(f"{what} is {value!r}; with {self.task.plays} plays give a sequence of that length")
        return list(value)

    def _check(self, arms: list[Any], states: list[Any], rewards: list[Any]) -> None:
        for arm in arms:
            if not is_whole(arm) or not 0 <= arm < self.task.n_arms:
                raise ProblemError(f"there is no arm {arm!r}; arms are 0 to {self.task.n_arms - 1}")
        if len(set(arms)) < len(arms):
            raise ProblemError(f"arms {arms} are not distinct; an arm can be pulled once a slot")
        for arm, state, reward in zip(arms, states, rewards, strict=True):
            name, n_states = self.task.names[arm], self.task.n_states[arm]
            if not is_whole(state) or not 0 <= state < n_states:
                raise ProblemError(f"arm {name!r} has no state {state!r}; its states are 0 to {n_states - 1}")
            reward = self.task.check_reward(arm, reward)
            if self.task.reward_laws[arm] != "fixed":
                continue
            seen = int(self.record.seen(arm)[state])
            before = self.record.reward_sums(arm)[state] / seen if seen else reward
            if abs(before - reward) > 1e-9 * max(map(abs, self.task.reward_ranges[arm])):
                raise ProblemError(
                    f"arm {name!r}: state {state} gave {before:.12g} before and {reward:.12g} now, as its law is fixed"
                )


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest(data: dict[str, Any]) -> str:
    """A mark of all that is stored, by which damage shows that leaves the numbers plausible."""
    return _mark(json.dumps(data).encode())
