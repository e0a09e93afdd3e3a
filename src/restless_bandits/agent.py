"""A learner in a loop of your own: ``ask`` which arm to pull, pull it, ``tell`` what was seen.

    agent = Agent(RestlessUCB(), problem.task(horizon=100_000), seed=7)
    arm = agent.ask()
    agent.tell(state=1, reward=0.0)

The agent follows the same plans as the simulator, a slot at a time, for as long as the program runs: answers may come
late, twice, or not at all, arms may come and go, and plans may be made in another process. Whatever happens, its state
follows from what it was told and when: the record when the present plan began, the record now, and the last slots, in
which answers may still come. ``save`` writes them as JSON and ``load`` reads them, at any slot; a history holds every
event, and ``replay`` makes the same agent of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from restless_bandits.changes import ALARM_RATE
from restless_bandits.errors import ProblemError
from restless_bandits.files import check_writable, locked, read_file, save_file
from restless_bandits.hearing import Decision as Decision
from restless_bandits.history import Event, History, read_events
from restless_bandits.learners import Learner
from restless_bandits.player import LATE
from restless_bandits.player import make_plan as make_plan
from restless_bandits.problem import Task
from restless_bandits.stored_player import FORMATS, KIND, StoredPlayer


class Agent(StoredPlayer):
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
    late
        How many slots after its own an answer may come.
    planning
        ``blocking``: a plan that is due is made when the next decision is asked for. ``background``: it is made in a
        worker process, and decisions go on by the old one until it is there; only the first plan, and the first after
        arms or learner were exchanged or something was forgotten, is waited for. A script that asks for it must guard
        its main part by ``if __name__ == "__main__":``.
    on_change
        What to do when an arm is found to have changed: each is tested as long as it is pulled, and every change is
        entered into ``alarms``. ``warn``: a ``RuntimeWarning`` says so. ``forget``: what was seen of the arm before the
        change is dropped, and the next decision is planned anew. ``forget-all``: the same for all arms, for changes
        that come together. ``ignore``: nothing is tested.
    alarm_rate
        How many false alarms a slot all arms together may give on average.
    memory
        How many slots are remembered; None for all. What is older is forgotten, an eighth at a time.
    history
        A file, which must be new, to which every event is added: see ``replay``.

    """

    def __init__(
        self,
        learner: Learner | str,
        task: Task,
        *,
        seed: int = 0,
        run: int = 0,
        content: str = "",
        late: int = LATE,
        planning: str = "blocking",
        on_change: str = "warn",
        alarm_rate: float = ALARM_RATE,
        memory: int | None = None,
        history: str | Path | None = None,
    ) -> None:
        super().__init__(
            learner,
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

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the agent to a JSON file; it appears whole or not at all.

        Refuses, with ``overwrite=False``, to replace what somebody else has saved there: another agent, or this one as
        another process has taught it since it was loaded or last saved.
        """
        data = self._to_dict()
        content = json.dumps(data | {"digest": _digest(data)}, separators=(",", ":")).encode()
        check_writable(path)
        with locked(path):
            if not overwrite:
                self._check_unchanged(path)
            save_file(path, content)
        self._known[os.path.realpath(path)] = _mark(content)

    @classmethod
    def load(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Agent:
        """Read an agent that ``save`` wrote; it goes on with identical decisions.

        ``learner`` is the one that was saved, for a learner that cannot be found by its spec: made of a class inside of
        a function, or with a function among its options.

        A file may name registered learners and oracles only. ``trust_modules=True`` also accepts ``module:Class``,
        which imports the module and so runs its code: give it only for files of trusted writers.
        """
        content = read_file(path)
        try:
            data = json.loads(content)
            if not isinstance(data, dict) or data.get("format") not in FORMATS:
                raise ValueError
        except (ValueError, RecursionError):
            raise ProblemError(f"{path} is not a stored agent of this version; write one with Agent.save") from None
        # Files of earlier versions have no digest.
        if "digest" in data and data.pop("digest") != _digest(data):
            raise ProblemError(f"{path} is damaged: it does not hold what was written; go back to an earlier copy")
        with _explained(path):
            agent = cls._restored(data, learner, trust_modules=trust_modules)
            agent._submit()
        agent._known[os.path.realpath(path)] = _mark(content)
        return agent

    def keep_history(self, path: str | Path) -> None:
        """Add every event from now on to a file, which must be new; it begins with the agent as it is."""
        if self._history is not None:
            raise ProblemError(f"the history of this agent is kept in {self._history.path} already")
        if self._spec() is None:
            raise ProblemError(f"{self._learner.name} is a learner that no spec can name, of which no history is kept")
        history = History(path)
        history.append("create", agent=self._to_dict())
        self._history = history

    def history(self, since: int = 0) -> Iterator[Event]:
        """Yield the events of the history that are numbered above ``since``, as dictionaries."""
        if self._history is None:
            raise ProblemError("no history is kept of this agent; make it with history=, or call keep_history")
        return self._history.read(since)

    @classmethod
    def replay(cls, path: str | Path, *, learner: Learner | None = None, trust_modules: bool = False) -> Agent:
        """Make the agent again of which a history tells; it goes on with identical decisions, and with its history.

        A last line that was torn while it was written is left out: what it told of never happened. Decisions are made
        anew and held against those of the file, which stand; where one differs, as it may under another release or
        processor, a ``RuntimeWarning`` names the first.

        ``learner`` is the learner with which the history begins. ``trust_modules`` is that of ``load``.
        """
        events, length, last = read_events(path)
        if not events or events[0]["kind"] != "create":
            raise ProblemError(f"{path} is not the history of an agent; keep one with Agent(..., history=path)")
        with _explained(path):
            agent = cls._restored(events[0]["agent"], learner, trust_modules=trust_modules)
            agent._replaying = True
            differs = None
            for event in events[1:]:
                if not agent._repeat(event, trust_modules=trust_modules) and differs is None:
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

    def _log(self, kind: str, **content: Any) -> None:
        """Add an event to the history, if one is kept."""
        if self._history is not None:
            self._history.append(kind, **content)

    def _log_learner(self, learner: Learner) -> None:
        if self._history is not None:
            self._log("learner", spec=learner.spec)


@contextlib.contextmanager
def _explained(path: str | Path) -> Iterator[None]:
    """Say of what file it is that something stored makes no sense."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"cannot load {path}: {error}") from None
    except Exception as error:  # of a learner, maybe somebody else's, to which what is stored makes no sense
        reason = f"it is damaged, or its learner fails on what it holds: {error!r}"
        raise ProblemError(f"cannot load {path}: {reason}; go back to an earlier copy") from error


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest(data: dict[str, Any]) -> str:
    """A mark of all that is stored, by which damage shows that leaves the numbers plausible."""
    return _mark(json.dumps(data).encode())
