"""What learners would have earned on a log: they choose, and the log answers.

A log answers for any choice only where every arm was logged in every slot. ``replay`` takes the longest such stretch,
or the one that is named, and lets each learner play it by ``ask`` and ``tell``: it sees the logged state and reward of
the arm it pulls and nothing of the others. Chains move the same whoever looks, so what it earns is what it would have
earned, not an estimate. Beside it stand what the best fixed arm, the best arm of every single slot and an arm drawn at
random would have earned. The best arm of every slot is out of reach: nobody knows the states of the arms not pulled.

A learner starts knowing nothing of the log but the numbers of arms and states. One that needs more (``whittle`` and the
other players who know the problem, ``rewards=known``) is told what was fitted to the whole log, the stretch included.

Rewards are told as they were logged. A learner that draws nothing at random is played once, as every run would be the
same.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from restless_bandits.agent import Agent
from restless_bandits.arrays import Array, IntArray, whole
from restless_bandits.data.cells import LAST_SLOT
from restless_bandits.data.fitting import fit, mean_rewards
from restless_bandits.data.traces import Trace
from restless_bandits.errors import ProblemError
from restless_bandits.forecasts import Report, Watch
from restless_bandits.learners import Learner, by_label
from restless_bandits.plans import Plan
from restless_bandits.problem import Problem, Task
from restless_bandits.record import Record
from restless_bandits.walks import play_along


@dataclass(frozen=True, eq=False)
class ReplayedLearner:
    """What one learner did."""

    spec: str
    totals: Array
    """Rewards earned in all, an entry for every run."""
    pulls: IntArray
    """How often each arm was pulled: (run, arm)."""

    @property
    def runs(self) -> int:
        return len(self.totals)

    @property
    def mean(self) -> float:
        return float(self.totals.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean over runs, which is about the learner's draws: the log is one and the same."""
        return float(self.totals.std(ddof=1) / np.sqrt(self.runs)) if self.runs > 1 else 0.0


@dataclass(frozen=True, eq=False)
class Replay:
    """Learners on the same stretch of a log, and the yardsticks beside them."""

    learners: tuple[ReplayedLearner, ...]
    names: tuple[str, ...]
    first: int
    """The first slot of the stretch."""
    slots: int
    arm_totals: Array
    """What each arm alone would have earned."""
    hindsight: float
    """What the best arm of every slot would have earned."""
    seed: int
    source: str

    @property
    def best_arm(self) -> str:
        """The arm that would have earned most alone; of equals the first."""
        return self.names[int(self.arm_totals.argmax())]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as ``restless replay --json`` prints it."""
        best = float(self.arm_totals.max())

        def earned(total: float) -> dict[str, float]:
            return {"reward_total": total, "reward_mean": total / self.slots}

        return {
            "trace": self.source,
            "first_slot": self.first,
            "last_slot": self.first + self.slots - 1,
            "slots": self.slots,
            "seed": self.seed,
            "arms": [
                {"name": name} | earned(total) for name, total in zip(self.names, self.arm_totals.tolist(), strict=True)
            ],
            "best_arm": {"name": self.best_arm} | earned(best),
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
                }
                for one in self.learners
            ],
        }

    def __repr__(self) -> str:
        lines = [f"<Replay: {self.source or 'trace'}, {self.slots} slots from {self.first} on, seed {self.seed}"]
        lines += [f"  {one.spec}  {one.mean:.6g}" + f" ± {one.error:.3g}" * (one.runs > 1) for one in self.learners]
        lines.append(f"  best fixed arm, {self.best_arm!r}  {self.arm_totals.max():.6g}")
        return "\n".join(lines) + ">"


def replay(
    trace: Trace,
    learners: Learner | str | Sequence[Learner | str],
    *,
    first: int | None = None,
    last: int | None = None,
    horizon: int | None = None,
    runs: int = 10,
    seed: int = 0,
    shape: str = "birth-death",
    report: Report | None = None,
    announce: Report | None = None,
) -> Replay:
    """Play learners against a stretch of a trace in which every arm was logged in every slot.

    Parameters
    ----------
    trace
        What was logged.
    learners
        Learners or their specs.
    first, last
        The first and the last slot of the stretch; the longest complete stretch between them where one is not given.
    horizon
        Play only so many slots of it.
    runs, seed
        Runs of a learner that draws at random, and where its draws come from.
    shape
        Of the chains that players who know the problem are told: see ``fit``.
    report
        Called with a line before each run.
    announce
        Called with a line for what should be known at once: how long a learner takes, if that is long, and what it will
        not get done.

    """
    whole("runs", runs)
    whole("seed", seed, 0)
    for what, slot in (("first", first), ("last", last)):
        if slot is not None:
            whole(what, slot, 0, LAST_SLOT - 1)
    players = by_label(learners)
    start, slots = _stretch(trace, first, last)
    if horizon is not None:
        slots = whole("horizon", horizon, 1, slots, "the slots of the complete stretch")
    rows = slice(*np.searchsorted(trace.times, [start, start + slots]).tolist())
    lowest = np.array([best for best, _ in trace.spans])
    states = trace.states[rows].reshape(slots, trace.n_arms) - lowest
    rewards = trace.rewards[rows].reshape(slots, trace.n_arms)

    def times_of(watched: _Watched) -> Callable[[], int]:
        return lambda: runs if any(watched.drew) else 1

    def play_all(label: str, learner: Learner, task: Task) -> ReplayedLearner:
        totals, pulls = [], []
        watch = None if announce is None else Watch(slots, announce)
        if announce is not None and (caution := learner.caution(task)):
            announce(caution)
        for run in range(runs):
            if report is not None:
                report(f"{label}: run {run + 1} of up to {runs}, {slots} slots")
            watched = _Watched(learner, [])
            agent = Agent(watched, task, seed=seed, run=run, content=trace.content, on_change="ignore")
            reward = (
                rewards.item if watch is None or run else _watched_rewards(rewards, watch, label, times_of(watched))
            )
            chosen = play_along(agent, states, reward)[:, 0]
            totals.append(float(rewards[np.arange(slots), chosen].sum()))
            pulls.append(np.bincount(chosen, minlength=trace.n_arms))
            if not any(watched.drew):
                break
        return ReplayedLearner(label, np.array(totals), np.array(pulls))

    tasks = _tasks(trace, list(players.values()), slots, shape)
    played = tuple(play_all(*player, task) for player, task in zip(players.items(), tasks, strict=True))
    arm_totals, hindsight = rewards.sum(axis=0), float(rewards.max(axis=1).sum())
    return Replay(played, trace.names, start, slots, arm_totals, hindsight, int(seed), trace.source)


def _watched_rewards(told: Array, watch: Watch, label: str, times: Callable[[], int]) -> Callable[[int, int], float]:
    """The rewards of a run that is watched as they are asked for."""
    what = f"{label} in {len(told)} slots"

    def reward(slot: int, arm: int) -> float:
        watch.at(slot, what, times)
        return float(told[slot, arm])

    return reward


def _stretch(trace: Trace, first: int | None, last: int | None) -> tuple[int, int]:
    """The first slot and the length of the longest complete stretch within bounds; the bounds given must be its own."""
    times, counts = np.unique(trace.times, return_counts=True)
    low = int(times[0]) if first is None else int(first)
    high = int(times[-1]) if last is None else int(last)
    if low > high:
        raise ProblemError(f"the stretch from slot {low} to slot {high} is empty; give a later end or an earlier start")
    full = times[(counts == trace.n_arms) & (times >= low) & (times <= high)]
    if not full.size:
        where = "" if first is None and last is None else f" from {low} to {high}"
        raise ProblemError(
            f"no slot{where} has all {trace.n_arms} arms logged, and a log answers only for what it holds; "
            "log every arm in every slot, or leave out arms that are rarely logged"
        )
    wanted = [
        stretch
        for stretch in np.split(full, np.flatnonzero(np.diff(full) != 1) + 1)
        if (first is None or stretch[0] == low) and (last is None or stretch[-1] == high)
    ]
    if not wanted:
        # The first hole of what was asked for, or the last where only its end was given.
        complete = set(full.tolist())
        there = itertools.count(high, -1) if first is None else itertools.count(low)
        slot = next(slot for slot in there if slot not in complete)
        missing = np.setdiff1d(np.arange(trace.n_arms), trace.arms[trace.times == slot])
        raise ProblemError(
            f"arm {trace.names[missing[0]]!r} was not logged in slot {slot}, and the stretch that was asked for needs "
            "it; leave out --from and --to to take the longest complete one"
        )
    longest = max(wanted, key=len)
    return int(longest[0]), len(longest)


def _tasks(trace: Trace, players: Sequence[Learner], horizon: int, shape: str) -> list[Task]:
    """What each learner is told; chains are fitted only if one must know them."""
    ranges = (trace.reward_range,) * trace.n_arms
    unknown: tuple[None, ...] = (None,) * trace.n_arms
    bare = Task(trace.sizes, 1, trace.reward_laws, unknown, trace.names, horizon, reward_ranges=ranges)
    known = tuple(tuple(mean_rewards(trace, arm)[0].tolist()) for arm in range(trace.n_arms))
    fitted: Problem | None = None
    tasks = []
    for player in players:
        if player.needs <= {"rewards"}:
            tasks.append(dataclasses.replace(bare, rewards=known) if player.needs else bare)
            player.check(tasks[-1])
        else:
            fitted = fit(trace, shape=shape, lags=(), tests=False).problem if fitted is None else fitted
            tasks.append(player.task(fitted, horizon))
    return tasks


@dataclass(frozen=True)
class _Watched(Learner):
    """A learner that notes whether it has drawn at random."""

    name: ClassVar[str] = "watched"
    learner: Learner
    drew: list[bool]

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        before = rng.bit_generator.state
        plan = self.learner.plan(record, task, rng)
        self.drew.append(rng.bit_generator.state != before)
        return plan
