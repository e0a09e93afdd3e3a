"""Replays of a log: learners choose arms, and the log supplies states and rewards.

Each learner plays the log by ``ask`` and ``tell``. A learner sees the logged state and reward of the pulled arm only.
Chains move independently of observations: a logged answer is therefore the learner's actual reward, not an estimate.
``missing`` says how pulls of arms without a logged entry are treated.

``unavailable``: an arm without an entry in a slot cannot be pulled in the slot. The learner gets the available arms,
and its plan chooses among them (``Policy.choose_among``). An index policy takes the highest available index. A joint
table takes the best choice under full availability in later slots. No learner foresees absences. ``lost``: any arm can
be pulled, and the feedback of an arm without an entry is lost. The learner sees nothing, and the slot pays the lowest
reward of the range, for every player. ``stretch``: only the longest interval with entries of every arm in every slot is
played, or a given interval.

Slots without any entry cannot be played. ``closed`` says whether time *passes* in closed slots (chains move and
learners count the slots) or *stops* (the slot before is followed by the slot after).

*In hindsight.* A fixed arm is pulled wherever available, and elsewhere a random available arm. All players thus play
the same slots, and on a complete log the fixed arm is pulled alone. A fixed order pulls its first available arm. The
best order is found among all orders of up to ten arms, and by the means of the arms for more. The best available arm of
every slot is out of reach: the states of the arms not pulled are unknown.

A learner starts without knowledge of the log, except for the numbers of arms and states. A learner with further needs
(``whittle`` and other policies for a known problem, ``rewards=known``) gets a fit to the full log, which includes the
slots to be played.

Rewards are the logged rewards. A learner without random choices is played once: every run would be the same.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from restless_bandits._internal.cells import LAST_SLOT
from restless_bandits._internal.compiling import clock as compile_clock
from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.progress import ProgressWatch, Report
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.agent.agent import Agent
from restless_bandits.learning.learners import Learner, by_label
from restless_bandits.learning.learners.base import check_features
from restless_bandits.logs.baselines import Baselines, LoggedSlots, baselines
from restless_bandits.logs.clocks import Clock
from restless_bandits.logs.fitting import fit, mean_rewards
from restless_bandits.logs.traces import OTHER_PULLS, Trace
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import Plan

MISSING = ("unavailable", "lost", "stretch")
CLOSED = ("passes", "stops")
MUCH = 0.5
"""The share of slots without a choice above which a replay warns."""
LITTLE = 0.9
"""The share of the playable slots below which a replay warns."""


@dataclass(frozen=True, eq=False)
class ReplayedLearner:
    """The result of one learner."""

    spec: str
    totals: Array
    """Rewards earned in all, an entry for every run."""
    pulls: IntArray
    """How often each arm was pulled: (run, arm)."""
    lost: IntArray
    """Slots with lost feedback, an entry for every run."""
    rewards: Array
    """The reward in each played slot: (run, slot)."""

    @property
    def runs(self) -> int:
        return len(self.totals)

    @property
    def mean(self) -> float:
        return float(self.totals.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean over runs, from the learner's random choices: the log is the same in all
        runs.
        """
        return float(self.totals.std(ddof=1) / np.sqrt(self.runs)) if self.runs > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Replay:
    """Learners on the same slots of a log, with baselines."""

    learners: tuple[ReplayedLearner, ...]
    names: tuple[str, ...]
    first: int
    """The first played slot."""
    last: int
    """The last played slot."""
    slots: int
    """How many were."""
    used: float
    """The played share of the slots with entries."""
    baselines: Baselines
    seed: int
    source: str
    missing: str = "unavailable"
    closed: str = "passes"
    skipped: int = 0
    """Slots without entries between the first and the last played slot."""
    warning: str | None = None
    """The warning for a small used share of the log, unless requested, or for few choices."""
    clock: Clock | None = None

    @property
    def arm_totals(self) -> Array:
        """The reward of each fixed arm, pulled wherever available, and elsewhere a random available arm."""
        return self.baselines.arms

    @property
    def hindsight(self) -> float:
        """The reward of the best arm of every slot."""
        return self.baselines.hindsight

    @property
    def best_arm(self) -> str:
        """The fixed arm of highest reward; among equals the first."""
        return self.names[int(self.arm_totals.argmax())]

    @property
    def best_order(self) -> tuple[str, ...]:
        """The order of arms with the highest reward, if the first available arm is pulled."""
        return tuple(self.names[arm] for arm in self.baselines.order)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless replay --json``."""
        best = float(self.arm_totals.max())
        seen = self.baselines

        def earned(total: float) -> dict[str, float]:
            return {"reward_total": total, "reward_mean": total / self.slots}

        return {
            "trace": self.source,
            "first_slot": self.first,
            "last_slot": self.last,
            "slots": self.slots,
            "used": self.used,
            "missing": self.missing,
            "closed": self.closed,
            "skipped": self.skipped,
            "incomplete": seen.incomplete,
            "without_choice": seen.alone,
            "seed": self.seed,
            "arms": [
                {"name": name, "there": there} | earned(total)
                for name, there, total in zip(self.names, seen.there.tolist(), seen.arms.tolist(), strict=True)
            ],
            "best_arm": {"name": self.best_arm} | earned(best),
            "best_order": {"names": self.best_order, "exact": seen.exact} | earned(seen.ordered),
            "random_arm": earned(seen.random),
            "hindsight": earned(self.hindsight),
            "learners": [
                {
                    "spec": one.spec,
                    "runs": one.runs,
                    "reward_total_mean": one.mean,
                    "reward_total_stderr": one.error,
                    "reward_totals": one.totals,
                    "reward_mean": one.mean / self.slots,
                    "above_best_arm": one.mean - best,
                    "share_of_hindsight": one.mean / self.hindsight if self.hindsight > 0 else None,
                    "pulls_mean": one.pulls.mean(axis=0),
                    "lost_mean": float(one.lost.mean()),
                }
                for one in self.learners
            ],
        }

    def __repr__(self) -> str:
        lines = [f"<Replay: {self.source or 'trace'}, {self.slots} slots from {self.first} on, seed {self.seed}"]
        lines += [f"  {one.spec}  {one.mean:.6g}" + f" ± {one.error:.3g}" * (one.runs > 1) for one in self.learners]
        lines.append(f"  best fixed arm, {self.best_arm!r}  {self.arm_totals.max():.6g}")
        return "\n".join([*lines, *([f"  {self.warning}"] if self.warning else [])]) + ">"


def replay(
    trace: Trace,
    learners: Learner | str | Sequence[Learner | str],
    *,
    first: int | None = None,
    last: int | None = None,
    horizon: int | None = None,
    missing: str = "unavailable",
    closed: str = "passes",
    runs: int = 10,
    seed: int = 0,
    shape: str = "birth-death",
    memory: int | None = None,
    report: Report | None = None,
    announce: Report | None = None,
) -> Replay:
    """Play learners against a trace, possibly incomplete.

    Parameters
    ----------
    trace
        The log.
    learners
        Learners or their specs.
    first, last
        The first and the last slot to play, by default of the log; with ``missing="stretch"`` of the longest complete
        interval between the bounds.
    horizon
        The largest number of slots to play.
    missing
        The treatment of an arm without an entry in a slot: ``"unavailable"``, the arm cannot be pulled; ``"lost"``, its
        feedback is lost; or ``"stretch"``, only a complete interval is played.
    closed
        Whether time ``"passes"`` in slots without entries, or ``"stops"``.
    runs, seed
        The number of runs of a learner with random choices, and the seed of its draws.
    shape
        The shape of the chains for policies with a known problem: see ``fit``.
    memory
        The number of remembered slots of learners, by default all. See ``Agent``.
    report
        A function for a line before each run.
    announce
        A function for a line of immediate interest: the expected duration of a learner, if long, and the cautions of
        learners (``Learner.caution``).

    """
    check_int("runs", runs)
    check_int("seed", seed, 0)
    for what, slot in (("first", first), ("last", last)):
        if slot is not None:
            check_int(what, slot, 0, LAST_SLOT - 1)
    check_known(missing, MISSING, "missing is")
    check_known(closed, CLOSED, "closed is")
    trace.refuse_actions(f"{OTHER_PULLS}; fit the log, and simulate learners on the fitted problem")
    players = by_label(learners)
    played, possible, logged = _played(trace, first, last, horizon, missing)
    answers = LoggedSlots.of(trace, played)
    if trace.n_arms > 1 and int(answers.counts.max()) == 1:
        raise ProblemError(
            "no slot has two arms logged, so there is nothing to choose between; restless evaluate tells of a log of "
            "pulls what another policy would have earned"
        )
    waits = np.diff(played, prepend=played[0] - 1) - 1
    skipped = int(waits.sum())
    if closed == "stops":
        waits[:] = 0
    length = len(played) + int(waits.sum())

    def times_of(watched: _Watched) -> Callable[[], int]:
        return lambda: runs if any(watched.drew) else 1

    def play_all(label: str, learner: Learner, task: Task) -> ReplayedLearner:
        pulls, lost, rewards = [], [], []
        watch = None if announce is None else ProgressWatch(len(played), announce, compile_clock)
        if announce is not None and (caution := learner.caution(task)):
            announce(caution)
        for run in range(runs):
            if report is not None:
                report(f"{label}: run {run + 1} of up to {runs}, {len(played)} slots")
            watched = _Watched(learner, [])
            own: dict[str, Any] = {"content": trace.content, "on_change": "ignore", "memory": memory, "late": 0}
            agent = Agent(watched, task, seed=seed, run=run, **own)

            def at(slot: int, run: int = run, watched: _Watched = watched) -> None:
                if watch is not None and not run:
                    watch.at(slot, f"{label} in {len(played)} slots", times_of(watched))

            arms, rows = _play(agent, answers, waits, lose=missing == "lost", at=at)
            there = rows >= 0
            rewards.append(np.where(there, answers.rewards[rows], trace.reward_range[0]))
            pulls.append(np.bincount(arms, minlength=trace.n_arms))
            lost.append(int((~there).sum()))
            if not any(watched.drew):
                break
        earned = np.array(rewards)
        return ReplayedLearner(label, earned.sum(axis=1), np.array(pulls), np.array(lost), earned)

    known = trace if closed == "passes" else _without_closed(trace)
    tasks = _tasks(known, list(players.values()), length, shape)
    found = tuple(play_all(*player, task) for player, task in zip(players.items(), tasks, strict=True))
    return Replay(
        learners=found,
        names=trace.names,
        first=int(played[0]),
        last=int(played[-1]),
        slots=len(played),
        used=len(played) / logged,
        baselines=baselines(answers, lost=missing == "lost", lowest=trace.reward_range[0]),
        seed=int(seed),
        source=trace.source,
        missing=missing,
        closed=closed,
        skipped=skipped,
        warning=_warning(answers, possible, missing),
        clock=trace.clock,
    )


def _play(
    agent: Agent, answers: LoggedSlots, waits: IntArray, *, lose: bool, at: Callable[[int], None]
) -> tuple[IntArray, IntArray]:
    """Let an agent without observations play all slots; return its arms, and the rows of the answers, −1 for none."""
    arms, states, rewards = answers.arms.tolist(), answers.states.tolist(), answers.rewards.tolist()
    starts = answers.starts.tolist()
    chosen = np.empty(len(waits), dtype=np.int64)
    rows = np.full(len(waits), -1)
    for slot, wait in enumerate(waits.tolist()):
        at(slot)
        if wait:
            agent.skip(wait)
        start, end = starts[slot], starts[slot + 1]
        there = arms[start:end]
        arm = agent.ask(None if lose or len(there) == answers.n_arms else there)
        assert isinstance(arm, int)
        chosen[slot] = arm
        if arm in there:
            row = rows[slot] = start + there.index(arm)
            agent.tell(states[row], rewards[row])
        else:
            agent.tell(lost=True)
    return chosen, rows


def _played(
    trace: Trace, first: int | None, last: int | None, horizon: int | None, missing: str
) -> tuple[IntArray, int, int]:
    """The slots to play, the number of requested playable slots, and the number of slots with entries."""
    times, counts = np.unique(trace.times, return_counts=True)
    low = int(times[0]) if first is None else int(first)
    high = int(times[-1]) if last is None else int(last)
    if low > high:
        raise ProblemError(f"the stretch from slot {low} to slot {high} is empty; give a later end or an earlier start")
    inside = (times >= low) & (times <= high)
    played, what = times[inside], "the slots in which anything was logged"
    if missing == "stretch":
        full = times[inside & (counts == trace.n_arms)]
        played, what = _stretch(trace, full, first, last), "the slots of the complete stretch"
    elif not played.size:
        raise ProblemError(
            f"nothing was logged from slot {low} to slot {high}; the log has slots {times[0]} to {times[-1]}"
        )
    possible = int(inside.sum())
    if horizon is not None:
        played = played[: check_int("horizon", horizon, 1, len(played), what)]
        possible = min(possible, len(played))
    return played, possible, len(times)


def _warning(answers: LoggedSlots, possible: int, missing: str) -> str | None:
    played, alone = len(answers.counts), int((answers.counts == 1).sum())
    if played < LITTLE * possible:
        return (
            f"only {played} of {possible} slots with anything logged were played ({played / possible:.1%}), as arms "
            "are missing in the others; --missing unavailable plays them all"
        )
    if missing != "stretch" and answers.n_arms > 1 and alone > MUCH * played:
        return (
            f"{alone} of {played} slots have one arm logged ({alone / played:.1%}), so that little depends on choices, "
            "and the logging policy may have made them; restless evaluate is for logs of pulls"
        )
    return None


def _without_closed(trace: Trace) -> Trace:
    """The trace with time stopped in slots without entries."""
    _, places = np.unique(trace.times, return_inverse=True)
    return dataclasses.replace(trace, times=places.astype(np.int64), clock=None)


def _stretch(trace: Trace, full: IntArray, first: int | None, last: int | None) -> IntArray:
    """The longest run of consecutive slots among the complete slots within bounds; given bounds must be its ends."""
    if not full.size:
        low = trace.times[0] if first is None else first
        high = trace.times[-1] if last is None else last
        where = "" if first is None and last is None else f" from {low} to {high}"
        raise ProblemError(
            f"no slot{where} has all {trace.n_arms} arms logged, and a replay needs logged states and rewards; "
            "log every arm in every slot, or leave out arms that are rarely logged"
        )
    wanted = [
        stretch
        for stretch in np.split(full, np.flatnonzero(np.diff(full) != 1) + 1)
        if (first is None or stretch[0] == first) and (last is None or stretch[-1] == last)
    ]
    if not wanted:
        # The first gap in the requested interval, or the last gap if only the end was given.
        complete = set(full.tolist())
        there = itertools.count(last, -1) if first is None and last is not None else itertools.count(first or 0)
        slot = next(slot for slot in there if slot not in complete)
        missing = np.setdiff1d(np.arange(trace.n_arms), trace.arms[trace.times == slot])
        raise ProblemError(
            f"arm {trace.names[missing[0]]!r} was not logged in slot {slot}, and the stretch that was asked for needs "
            "it; leave out --from and --to to take the longest complete one"
        )
    return max(wanted, key=len)


def _tasks(trace: Trace, players: Sequence[Learner], horizon: int, shape: str) -> list[Task]:
    """The task of each learner; chains are fitted only for learners that need them."""
    ranges = (trace.reward_range,) * trace.n_arms
    unknown: tuple[None, ...] = (None,) * trace.n_arms
    bare = Task(trace.sizes, 1, trace.reward_laws, unknown, trace.names, horizon, reward_ranges=ranges)
    known = tuple(tuple(mean_rewards(trace, arm)[0].tolist()) for arm in range(trace.n_arms))
    fitted: Problem | None = None
    tasks = []
    for player in players:
        if player.needs <= {"rewards"}:
            tasks.append(dataclasses.replace(bare, rewards=known) if player.needs else bare)
            check_features(player, tasks[-1])
            player.check(tasks[-1])
        else:
            fitted = fit(trace, shape=shape, lags=(), tests=False).problem if fitted is None else fitted
            tasks.append(player.task(fitted, horizon))
    return tasks


@dataclass(frozen=True)
class _Watched(Learner):
    """A learner with a record of its use of randomness."""

    name: ClassVar[str] = "watched"
    learner: Learner
    drew: list[bool]

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        before = rng.bit_generator.state
        plan = self.learner.plan(record, task, rng)
        self.drew.append(rng.bit_generator.state != before)
        return plan
