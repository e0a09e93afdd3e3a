"""A learner in your own loop: ``ask`` for the arm to pull, pull the arm, ``tell`` the observed state and reward.

    agent = Agent(RestlessUCB(), problem.task(horizon=100_000), seed=7)
    arm = agent.ask()
    agent.tell(state=1, reward=0.0)

The agent follows the same plans as the simulator, a slot at a time, for as long as the program runs. Feedback may
arrive late, twice, or not at all, arms may come and go, and plans may be made in another process. The state is a
function of the events and their order: the record at the start of the present plan, the record now, and the last slots,
for which feedback may still arrive. ``save`` writes the state as JSON and ``load`` reads it, at any slot. A history
holds every event, and ``replay`` makes the same agent from the events.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import check_writable, locked, read_file, save_file
from restless_bandits._internal.html_tables import html_table
from restless_bandits.agent.core import DEFAULT_LATE_SLOTS
from restless_bandits.agent.core import make_plan as make_plan
from restless_bandits.agent.feedback import Decision as Decision
from restless_bandits.agent.history import Event, History, read_events
from restless_bandits.agent.stored import FORMATS, KIND, StoredAgent
from restless_bandits.learning.change_detection import ALARM_RATE
from restless_bandits.learning.learners import Learner, default_learner
from restless_bandits.model.record import RECORD_HEADS, record_rows
from restless_bandits.model.rewards import RewardLaw
from restless_bandits.model.tasks import Task


class Agent(StoredAgent):
    """A learner with its observations.

    Parameters
    ----------
    learner
        A learner, or its spec such as ``"restless-ucb"``; by default ``rb.default_learner(task)``.
    task
        The learner's knowledge, from ``problem.task(...)``; a learner that needs more than the shape names the items to
        reveal in an error. A task may be the first argument.
    arms
        The names of the arms, in place of a task, with ``n_states`` and the other arguments of ``Task.of_arms``:
        ``Agent("likelihood-ucb", arms=["a", "b"], n_states=3, cost_range=(0, 2000), state_names=["idle", "busy",
        "down"])``.
    seed, run, content
        Coordinates of the random choices. With the coordinates of a simulated run (``content`` is ``problem.content``)
        the agent makes the choices of the run.
    late
        The largest accepted delay of feedback, in slots.
    planning
        ``blocking``: the next decision makes a plan that is due. ``background``: a worker process makes the plan, and
        decisions follow the old plan until then. Decisions wait only for the first plan, and for the first plan after
        a change of arms or learner or a removal of observations. A script with background plans must guard its main
        part by ``if __name__ == "__main__":``.
    on_change
        The reaction to a detected change of an arm. Each arm is tested as long as the arm is pulled, and every change
        is entered into ``alarms``. ``warn``: a ``RuntimeWarning`` reports the change. ``forget``: observations of the
        arm before the change are dropped, and the next decision is planned anew. ``forget-all``: the same for all
        arms, for simultaneous changes. ``ignore``: no tests.
    alarm_rate
        The mean number of false alarms a slot, of all arms together.
    memory
        The number of remembered slots; None for all. Older observations are forgotten, an eighth at a time.
    history
        A new file for all events: see ``replay``.

    """

    def __init__(
        self,
        learner: Learner | str | Task | None = None,
        task: Task | None = None,
        *,
        arms: Sequence[str | Mapping[str, Any]] | None = None,
        n_states: int | None = None,
        observed: str = "pulled",
        plays: int | None = None,
        reward_law: RewardLaw | None = None,
        reward_range: Sequence[float] | None = None,
        cost_range: Sequence[float] | None = None,
        state_names: Sequence[str] | None = None,
        reacts: bool | None = None,
        horizon: int | None = None,
        seed: int = 0,
        run: int = 0,
        content: str = "",
        late: int = DEFAULT_LATE_SLOTS,
        planning: str = "blocking",
        on_change: str = "warn",
        alarm_rate: float = ALARM_RATE,
        memory: int | None = None,
        history: str | Path | None = None,
    ) -> None:
        if isinstance(learner, Task):
            if task is not None:
                raise ProblemError("two tasks are given; give a learner and a task")
            learner, task = None, learner
        about = {
            "n_states": n_states,
            "plays": plays,
            "reward_law": reward_law,
            "reward_range": reward_range,
            "cost_range": cost_range,
            "state_names": state_names,
            "reacts": reacts,
            "horizon": horizon,
        }
        task = _task_of(task, arms, {key: value for key, value in about.items() if value is not None})
        if observed != "pulled":
            raise ProblemError(f"observed is {shortened(observed)}; an agent sees the arms that are pulled")
        super().__init__(
            default_learner(task) if learner is None else learner,
            task,
            seed=seed,
            run=run,
            content=content,
            late=late,
            planning=planning,
            on_change=on_change,
            alarm_rate=alarm_rate,
            memory=memory,
        )
        self._history: History | None = None
        self._known: dict[str, str] = {}  # the mark of each file that it was loaded from or saved to, as it left it
        if history is not None:
            self.keep_history(history)

    def __repr__(self) -> str:
        waiting = f", {len(self.open)} open" if self.open else ""
        arms = f"{len(self.in_service)} of {self.task.n_arms} arms in service"
        return f"<Agent: {self.learner.label}, {arms}, {self.slots} slots{waiting}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self)[1:-1], ("arm", "in service", *RECORD_HEADS), self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for number, row in enumerate(record_rows(self.record)):
            yield self.task.names[number], "yes" if number in self.arms_in_service else "no", *row

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the agent to a JSON file, atomically.

        With ``overwrite=False`` the call refuses to replace another agent, or this agent in a state that another
        process saved since the last load or save here.
        """
        data = self.to_dict()
        content = json.dumps(data | {"digest": digest_of(data)}, separators=(",", ":")).encode()
        check_writable(path)
        with locked(path):
            if not overwrite:
                self._check_unchanged(path)
            save_file(path, content)
        self._known[os.path.realpath(path)] = _mark(content)

    @classmethod
    def load(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Agent:
        """Return the agent of a file that ``save`` wrote; its decisions continue identically.

        ``learner`` is the saved learner, if its spec does not identify it: a learner whose class is local to a
        function, or with a function among its options.

        A file may name registered learners and oracles only. ``trust_modules=True`` also accepts ``module:Class``,
        which imports the module and so runs its code: use the option only for files of trusted writers.
        """
        content = read_file(path)
        try:
            data = json.loads(content)
            if not isinstance(data, dict) or data.get("format") not in FORMATS:
                raise ValueError
        except (ValueError, RecursionError):
            raise ProblemError(f"{path} is not a stored agent of this version; write one with Agent.save") from None
        # Files of earlier versions have no digest.
        if "digest" in data and data.pop("digest") != digest_of(data):
            raise ProblemError(f"{path} is damaged: it does not hold what was written; go back to an earlier copy")
        with _explained(path):
            agent = cls.from_dict(data, learner, trust_modules=trust_modules)
            agent._submit()
        agent._known[os.path.realpath(path)] = _mark(content)
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
    def replay(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Agent:
        """Return the agent of a history; its decisions continue identically, and so does its history.

        An incomplete last line is left out: its event did not take effect. Decisions are recomputed and compared with
        the decisions of the file, which stand. Another release or processor may cause differences; a ``RuntimeWarning``
        names the first.

        ``learner`` is the learner at the beginning of the history. ``trust_modules`` has the meaning of ``load``.
        """
        events, length, last = read_events(path)
        if not events or events[0]["kind"] != "create":
            raise ProblemError(f"{path} is not the history of an agent; keep one with Agent(..., history=path)")
        with _explained(path):
            agent = cls.from_dict(events[0]["agent"], learner, trust_modules=trust_modules)
            agent._replaying = True
            differs = None
            for event in events[1:]:
                if not agent._apply_event(event, trust_modules=trust_modules) and differs is None:
                    differs = event["slot"]
            agent._replaying = False
            agent._submit()
        if differs is not None:
            warnings.warn(
                f"{path}: slot {differs} is decided otherwise today, maybe by another release; the decisions of the "
                "file stand",
                RuntimeWarning,
                stacklevel=2,
            )
        agent._history = History(path, len(events), length, last)
        return agent

    def _check_unchanged(self, path: str | Path) -> None:
        """Refuse to replace a file with content unknown to this agent."""
        if not Path(path).exists():
            return
        present, known = read_file(path), self._known.get(os.path.realpath(path))
        if known not in (None, _mark(present)):
            found = "was saved by another process since this agent read or wrote it"
        elif known is None and KIND.encode() in present[:100]:
            found = "holds another agent"
        else:
            return
        raise ProblemError(
            f"{path} {found}, and saving would lose the observations of that agent; load it and go on from there, "
            "save under another name, or give overwrite=True"
        )

    def _log(self, kind: str, **content: Any) -> None:
        """Append an event to the history, if the agent keeps a history."""
        if self._history is not None:
            self._history.append(kind, **content)

    def _log_learner(self, learner: Learner) -> None:
        if self._history is not None:
            self._log("learner", spec=learner.spec)


def _task_of(task: Task | None, arms: Sequence[str | Mapping[str, Any]] | None, about: dict[str, Any]) -> Task:
    """Return the task, given as such or by its arms."""
    if arms is None:
        if task is None:
            raise ProblemError('an agent needs arms; give arms=["a", "b"] with n_states, or task=problem.task()')
        if about:
            raise ProblemError(f"{next(iter(about))} is for an agent made with arms=; a task says it itself")
        return task
    if task is not None:
        raise ProblemError("task and arms are given; give one of the two")
    return Task.of_arms(arms, **about)


@contextlib.contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    """Name the file in errors about invalid stored data."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"cannot load {path}: {error}") from None
    except Exception as error:  # of a learner, maybe somebody else's, to which what is stored makes no sense
        reason = f"it is damaged, or its learner fails on the content: {error!r}"
        raise ProblemError(f"cannot load {path}: {reason}; go back to an earlier copy") from error


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of(data: dict[str, Any]) -> str:
    """A checksum of all stored data, which detects damage that leaves plausible numbers."""
    return _mark(json.dumps(data).encode())
