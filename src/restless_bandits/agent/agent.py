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

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.html_tables import html_table
from restless_bandits.agent.agent_files import AgentFiles, explained
from restless_bandits.agent.core import DEFAULT_LATE_SLOTS
from restless_bandits.agent.core import make_plan as make_plan
from restless_bandits.agent.feedback import Decision as Decision
from restless_bandits.agent.history import Event, History, read_events
from restless_bandits.agent.observed import OBSERVED_FORMAT, ObservedAgent
from restless_bandits.agent.stored import FORMATS, StoredAgent
from restless_bandits.learning.change_detection import ALARM_RATE
from restless_bandits.learning.learners import Learner, default_learner
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.problem import OBSERVATIONS
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
    observed
        ``pulled``, or ``all``: all states are seen before the choice, and the agent is an ``ObservedAgent``, which is
        asked as ``ask(states=[...])``. A task of observed arms says so itself.
    kinds, rewards, at_most
        Of observed arms: as for ``ObservedTask.of_arms``.
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

    def __new__(cls, learner: Any = None, task: Any = None, *, observed: str = "pulled", **about: Any) -> Any:
        """Return an agent; of observed arms an ``ObservedAgent``, which has another state and the same face."""
        check_known(observed, OBSERVATIONS, "observed is")
        if observed == "pulled" and not isinstance(learner, ObservedTask) and not isinstance(task, ObservedTask):
            return super().__new__(cls)
        return _observed_agent(learner, task, about)

    def __init__(
        self,
        learner: Learner | str | Task | ObservedTask | None = None,
        task: Task | ObservedTask | None = None,
        *,
        arms: int | Sequence[str | Mapping[str, Any]] | None = None,
        n_states: int | None = None,
        observed: str = "pulled",
        kinds: Sequence[int | str] | None = None,
        rewards: Any = None,
        at_most: bool | None = None,
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
        for word, value in (("kinds", kinds), ("rewards", rewards), ("at_most", at_most)):
            if value is not None:
                raise ProblemError(f"{word} is for arms that are all observed; give observed='all', or leave it out")
        of_arms = _task_of(task, arms, {key: value for key, value in about.items() if value is not None})
        super().__init__(
            default_learner(of_arms) if learner is None else learner,  # type: ignore[arg-type]
            of_arms,
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
        self._files = AgentFiles()
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
        self._files.write(path, self.to_dict(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Agent:
        """Return the agent of a file that ``save`` wrote; its decisions continue identically.

        ``learner`` is the saved learner, if its spec does not identify it: a learner whose class is local to a
        function, or with a function among its options.

        A file may name registered learners and oracles only. ``trust_modules=True`` also accepts ``module:Class``,
        which imports the module and so runs its code: use the option only for files of trusted writers.
        """
        files = AgentFiles()
        data = files.read(path, [*FORMATS, OBSERVED_FORMAT])
        if data["format"] == OBSERVED_FORMAT:
            return cast(Agent, ObservedAgent.load(path, learner=learner, trust_modules=trust_modules))
        with explained(path):
            agent = cls.from_dict(data, learner, trust_modules=trust_modules)
            agent._submit()
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
        first = events[0].get("agent")
        if isinstance(first, dict) and first.get("format") == OBSERVED_FORMAT:
            return cast(Agent, ObservedAgent.replay(path, learner=learner, trust_modules=trust_modules))
        with explained(path):
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

    def _log(self, kind: str, **content: Any) -> None:
        """Append an event to the history, if the agent keeps a history."""
        if self._history is not None:
            self._history.append(kind, **content)

    def _log_learner(self, learner: Learner) -> None:
        if self._history is not None:
            self._log("learner", spec=learner.spec)


OBSERVED_WORDS = (
    *("arms", "n_states", "plays", "kinds", "rewards", "reward_range", "cost_range", "state_names", "at_most"),
    "horizon",
)
"""Arguments of ``Agent`` for observed arms."""


def _observed_agent(learner: Any, task: Any, about: dict[str, Any]) -> ObservedAgent:
    """Return an agent of observed arms, from the arguments of ``Agent``."""
    if isinstance(learner, Task | ObservedTask):
        if task is not None:
            raise ProblemError("two tasks are given; give a learner and a task")
        learner, task = None, learner
    own = {word: about.pop(word) for word in ("seed", "run", "content", "history") if word in about}
    given = {word: value for word, value in about.items() if value is not None}
    foreign = next((word for word in given if word not in OBSERVED_WORDS), None)
    if foreign is not None:
        raise ProblemError(f"{foreign} is for arms that are seen when pulled, and all are observed; leave it out")
    arms = given.pop("arms", None)
    if arms is None:
        if not isinstance(task, ObservedTask):
            raise ProblemError(
                'an agent of observed arms needs arms; give arms=["a", "b"] with n_states, or the task of a problem '
                "with observed = 'all'"
            )
        if given:
            raise ProblemError(f"{next(iter(given))} is for an agent made with arms=; a task says it itself")
        return ObservedAgent(learner, task, **own)
    if task is not None:
        raise ProblemError("task and arms are given; give one of the two")
    return ObservedAgent(learner, ObservedTask.of_arms(arms, **given), **own)


def _task_of(task: Task | ObservedTask | None, arms: Any, about: dict[str, Any]) -> Task:
    """Return the task, given as such or by its arms."""
    if arms is None:
        if task is not None and not isinstance(task, Task):
            raise ProblemError(f"task is {shortened(task)}; give a Task, as problem.task(...) makes one")
        if task is None:
            raise ProblemError('an agent needs arms; give arms=["a", "b"] with n_states, or task=problem.task()')
        if about:
            raise ProblemError(f"{next(iter(about))} is for an agent made with arms=; a task says it itself")
        return task
    if task is not None:
        raise ProblemError("task and arms are given; give one of the two")
    return Task.of_arms(arms, **about)
