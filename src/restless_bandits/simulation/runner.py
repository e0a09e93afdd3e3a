"""Many learners, many runs, all cores.

Run r of a learner hangs on the seed, the problem's content and r alone, so nothing here changes a number: not how many
threads there are, nor which runs were found on disk, nor who else is playing. Threads, not processes: nearly all of a
run is compiled code that releases the interpreter lock, and threads share the tables of the problem and start at once.
A worker takes one run at a time, run by run over all learners, so that what is finished when somebody interrupts is
the same runs of everybody. The calling thread alone keeps accounts and writes to the disk.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np

from restless_bandits.errors import ProblemError
from restless_bandits.learners import learner as learner_of
from restless_bandits.learners.base import Learner
from restless_bandits.learners.simple import Informed, RoundRobin
from restless_bandits.markov import IntArray
from restless_bandits.plans import Plan
from restless_bandits.problem import Problem, Task
from restless_bandits.record import Record
from restless_bandits.simulation import _kernels as kernels
from restless_bandits.simulation.comparator import Comparator, comparator_for, exact_if_small
from restless_bandits.simulation.engine import Pricing, Run, World, play_run
from restless_bandits.simulation.results import Outcomes, SimulationResult, Traces
from restless_bandits.simulation.storage import Store, open_folder

BLOCK = 25
"""Runs of a learner that are stored together."""
PATIENCE = 5.0
"""Seconds after which finished runs are stored even if they are fewer."""
LAST_WAIT = 1.0
"""Seconds that an interrupted simulation waits for runs that are nearly done."""

Progress = Callable[[int, int], None]


class SimulationInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle of a simulation, with what was finished.

    ``result`` holds the first runs, as many as every learner has finished, or is None where that is none; ``finished``
    counts the finished runs of each learner.
    """

    def __init__(self, finished: dict[str, int], total: int, result: SimulationResult | None, out: Path | None) -> None:
        self.finished, self.total, self.result, self.out = finished, total, result, out
        stored = "" if out is None else f" and stored in {out}; the same again resumes"
        super().__init__(f"Interrupted: {sum(finished.values())} of {total} runs are finished{stored}")


def simulate(
    problem: Problem,
    learners: Learner | str | Iterable[Learner | str],
    horizon: int,
    *,
    runs: int = 100,
    seed: int = 0,
    jobs: int | None = None,
    checkpoints: int | str | Sequence[int] = 10,
    comparator: str | float = "auto",
    ratio: float = 1.0,
    trace: bool = False,
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Run learners on a problem.

    Parameters
    ----------
    problem
        The problem.
    learners
        Learners, or specs such as ``"restless-ucb:radius=none"``; one or several.
    horizon
        Slots of every run.
    runs
        Runs of every learner. Run r is the same whatever else is run.
    seed
        The seed of the whole.
    jobs
        Threads; all cores by default.
    checkpoints
        So many, evenly spaced and ending at the horizon; ``"log:20"`` for logarithmic ones; or a list of slots, to
        which the horizon is added.
    comparator
        What regret is measured against: ``auto`` (the optimum, or its bracket), ``exact``, ``whittle``, ``myopic``,
        ``guha``, ``best-arm``, or a number.
    ratio
        Approximation regret: ``ratio · t · gain − Σ reward``.
    trace
        Keep every slot in ``result.traces``.
    out
        A folder in which finished runs are kept; the same call again resumes, and more runs use those that are there.
    progress
        Called with the number of finished runs and of all runs.

    """
    horizon = _whole("horizon", horizon, 1)
    runs = _whole("runs", runs, 1)
    seed = _whole("seed", seed, 0)
    jobs = _cores() if jobs is None else _whole("jobs", jobs, 1)
    if not (np.isfinite(ratio) and ratio > 0):
        raise ProblemError(f"ratio is {ratio!r}; it must be a positive number")
    if trace and out is not None:
        raise ProblemError("traces are not stored; leave out either trace or out")
    marks = checkpoint_slots(checkpoints, horizon)
    players = _players(learners)
    # A learner that cannot play this problem says so before any work is done.
    for player in players.values():
        player.task(problem, horizon)
    folder = None if out is None else open_folder(out)

    solution = exact_if_small(problem)
    compared = comparator_for(problem, comparator, solution)
    world = World(problem, None if solution is None else Pricing.of(solution))
    job = _Job(problem, players, world, horizon, marks, seed, runs, trace, compared, float(ratio))
    if folder is not None:
        for spec, player in players.items():
            job.stores[spec] = Store.open(
                folder,
                problem,
                player,
                seed=seed,
                horizon=horizon,
                checkpoints=marks,
                priced=world.pricing is not None,
            )
            job.finished[spec] = job.stores[spec].load(runs)
    _play_all(job, jobs, progress)
    return job.result(runs)


def checkpoint_slots(checkpoints: int | str | Sequence[int], horizon: int) -> IntArray:
    """Return checkpoints as ascending slots that end at the horizon.

    >>> checkpoint_slots(4, 1000).tolist()
    [250, 500, 750, 1000]
    >>> checkpoint_slots("log:4", 1000).tolist()
    [1, 10, 100, 1000]
    """
    if isinstance(checkpoints, str):
        kind, _, count = checkpoints.rpartition(":")
        if kind not in ("", "log") or not count.strip().isdecimal() or int(count) < 1:
            raise ProblemError(f"checkpoints is {checkpoints!r}; give a number, or log: and a number as in log:20")
        if kind == "log":
            spaced = np.geomspace(1, horizon, int(count)) if int(count) > 1 else np.array([horizon])
            return _ascending(np.rint(spaced).astype(np.int64), horizon)
        checkpoints = int(count)
    if isinstance(checkpoints, int | np.integer):
        count_of = min(_whole("checkpoints", checkpoints, 1), horizon)
        return _ascending(np.array([-(-horizon * k // count_of) for k in range(1, count_of + 1)]), horizon)
    slots = [_whole("a checkpoint", slot, 1) for slot in checkpoints]
    beyond = [slot for slot in slots if slot > horizon]
    if beyond:
        raise ProblemError(f"checkpoint {beyond[0]} lies beyond the horizon {horizon}; leave it out")
    return _ascending(np.array(slots, dtype=np.int64), horizon)


def _ascending(slots: IntArray, horizon: int) -> IntArray:
    return np.union1d(np.clip(slots, 1, horizon), [horizon]).astype(np.int64)


def _whole(what: str, value: object, least: int) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        kind = "a positive whole number" if least else "a whole number that is not negative"
        raise ProblemError(f"{what} is {value!r}; it must be {kind}")
    return int(value)


def _cores() -> int:
    """The cores that this process may use, which a container makes fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _players(learners: Learner | str | Iterable[Learner | str]) -> dict[str, Learner]:
    """The learners by spec, or by name and number where a function among the options leaves them without one."""
    several = [learners] if isinstance(learners, Learner | str) else list(learners)
    if not several:
        raise ProblemError("there is no learner to run; give at least one")
    players: dict[str, Learner] = {}
    for one in several:
        player = learner_of(one) if isinstance(one, str) else one
        if not isinstance(player, Learner):
            raise ProblemError(f"{one!r} is not a learner; give a spec such as 'restless-ucb', or a Learner")
        try:
            label = player.spec
        except ProblemError:
            label = f"{player.name}#{len(players) + 1}"
        if label in players:
            raise ProblemError(f"learner {label!r} is given twice; it would play the same runs again")
        players[label] = player
    return players


@dataclass
class _Job:
    """All there is to play, and what of it is finished."""

    problem: Problem
    players: dict[str, Learner]
    world: World
    horizon: int
    checkpoints: IntArray
    seed: int
    runs: int
    trace: bool
    comparator: Comparator
    ratio: float
    stores: dict[str, Store] = field(default_factory=dict)
    finished: dict[str, dict[int, Outcomes]] = field(default_factory=dict)
    traces: dict[str, dict[int, kernels.Trace]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for spec in self.players:
            self.finished.setdefault(spec, {})
            self.traces.setdefault(spec, {})

    @property
    def total(self) -> int:
        return self.runs * len(self.players)

    @property
    def done(self) -> int:
        return sum(len(runs) for runs in self.finished.values())

    def pending(self) -> list[tuple[str, int]]:
        """What is left, run by run."""
        return [(spec, run) for run in range(self.runs) for spec in self.players if run not in self.finished[spec]]

    def common(self) -> int:
        """How many of the first runs every learner has finished."""
        first_missing = [
            next((run for run in range(self.runs) if run not in done), self.runs) for done in self.finished.values()
        ]
        return min(first_missing)

    def result(self, runs: int) -> SimulationResult:
        """The first runs of every learner."""
        outcomes, traces = [], {}
        for spec in self.players:
            outcomes.append(Outcomes.stack([self.finished[spec][run] for run in range(runs)]))
            if self.trace:
                parts = [self.traces[spec][run] for run in range(runs)]
                traces[spec] = Traces(
                    np.stack([part.arms for part in parts]),
                    np.stack([part.states for part in parts]),
                    np.stack([part.rewards for part in parts]),
                )
        return SimulationResult(
            problem=self.problem.name,
            content=self.problem.content,
            arms=tuple(arm.name for arm in self.problem.arms),
            learners=tuple(self.players),
            horizon=self.horizon,
            seed=self.seed,
            checkpoints=self.checkpoints,
            comparator=self.comparator,
            ratio=self.ratio,
            priced=self.world.pricing is not None,
            outcomes=tuple(outcomes),
            traces=traces,
        )


@dataclass(frozen=True)
class _Settled(Learner):
    """A player whose one plan is made already."""

    name: ClassVar[str] = "settled"
    settled: Plan

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        return self.settled


def _ready(player: Learner, problem: Problem, horizon: int) -> Learner:
    """Return the learner; an informed one, whose plan is the same in every run, with its plan made once for all."""
    if not isinstance(player, Informed):
        return player
    task = player.task(problem, horizon)
    return _Settled(player.plan(Record.of(task), task, np.random.default_rng(0)))


@dataclass(frozen=True)
class _Played:
    spec: str
    run: int
    outcome: Outcomes
    trace: kernels.Trace


class _Workers:
    """Threads that play what is pending and hand it over through ``answers``; an exception is an answer too."""

    def __init__(self, job: _Job, jobs: int) -> None:
        self.answers: queue.SimpleQueue[_Played | BaseException] = queue.SimpleQueue()
        self._job = job
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        pending = job.pending()
        self.pending = len(pending)
        self._next = iter(pending)
        wanted = {spec for spec, _ in pending}
        self._players = {
            spec: _ready(player, job.problem, job.horizon) for spec, player in job.players.items() if spec in wanted
        }
        # Daemons: somebody who interrupts does not want to wait for a run of a minute to end.
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(jobs, len(pending)))]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            while not self._stopping.is_set():
                with self._lock:
                    task = next(self._next, None)
                if task is None:
                    return
                self.answers.put(self._play(*task))
        except BaseException as error:
            self.answers.put(error)

    def _play(self, spec: str, run: int) -> _Played:
        job = self._job
        started = time.perf_counter()
        played = play_run(
            self._players[spec],
            job.world,
            job.horizon,
            job.checkpoints,
            seed=job.seed,
            run=run,
            trace=job.trace,
        )
        return _Played(spec, run, _outcome(played, time.perf_counter() - started), played.trace)

    def stop(self, wait: float) -> list[_Played]:
        """Let no new run begin; return what comes in while waiting."""
        self._stopping.set()
        deadline = time.monotonic() + wait
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        late = []
        with contextlib.suppress(queue.Empty):
            while True:
                answer = self.answers.get_nowait()
                if isinstance(answer, _Played):
                    late.append(answer)
        return late


def _outcome(played: Run, seconds: float) -> Outcomes:
    return Outcomes(
        at=played.account.at[None],
        pulls=played.record.pulls[None].copy(),
        seconds=np.array([seconds]),
        plan_lengths=(np.array(played.record.plan_lengths, dtype=np.int64),),
    )


def _play_all(job: _Job, jobs: int, progress: Progress | None) -> None:
    """Play what is pending; what is finished is stored whatever happens."""
    if progress is not None:
        progress(job.done, job.total)
    if job.done == job.total:
        return
    # Loads the compiled engine, so that its time is not charged to whoever plays first.
    play_run(RoundRobin(), job.world, 1, np.array([1]), seed=0, run=0)
    workers = _Workers(job, jobs)
    ledger = _Ledger(job)
    try:
        for _ in range(workers.pending):
            answer = _next_answer(workers)
            if isinstance(answer, BaseException):
                raise answer
            ledger.enter(answer)
            if progress is not None:
                progress(job.done, job.total)
        ledger.store()
    except KeyboardInterrupt:
        for answer in workers.stop(LAST_WAIT):
            ledger.enter(answer)
        ledger.store()
        whole = job.common()
        counts = {spec: len(runs) for spec, runs in job.finished.items()}
        out = next((store.folder.parent for store in job.stores.values()), None)
        raise SimulationInterrupted(counts, job.total, job.result(whole) if whole else None, out) from None
    except BaseException:
        workers.stop(0.0)
        # The first error is the one to tell; a disk that is full stays full.
        with contextlib.suppress(ProblemError):
            ledger.store()
        raise


def _next_answer(workers: _Workers) -> _Played | BaseException:
    while True:
        # With a timeout, because a wait without one cannot be interrupted on every system.
        with contextlib.suppress(queue.Empty):
            return workers.answers.get(timeout=0.5)


class _Ledger:
    """Enters finished runs and stores them block by block."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._unstored: dict[str, dict[int, Outcomes]] = {spec: {} for spec in job.stores}
        self._stored_at = dict.fromkeys(job.stores, time.monotonic())

    def enter(self, played: _Played) -> None:
        job, spec = self._job, played.spec
        job.finished[spec][played.run] = played.outcome
        if job.trace:
            job.traces[spec][played.run] = played.trace
        if spec in job.stores:
            waiting = self._unstored[spec]
            waiting[played.run] = played.outcome
            if len(waiting) >= BLOCK or time.monotonic() - self._stored_at[spec] > PATIENCE:
                self._store(spec)

    def store(self) -> None:
        """Store all that is not yet stored."""
        for spec in self._job.stores:
            self._store(spec)

    def _store(self, spec: str) -> None:
        waiting = self._unstored[spec]
        if waiting:
            self._job.stores[spec].save(waiting)
            self._unstored[spec] = {}
        self._stored_at[spec] = time.monotonic()
