"""The analysis behind the dashboard, made in separate processes so that no decision waits for it.

The analysis has two sources: a snapshot of the agent's record from the writer, and the log, which is read from its
beginning and then followed. The summary of the log has a bounded size: rewards in at most ``MOST_BINS`` bins, the last
plans, and estimates at slots that grow by a constant factor.
"""

from __future__ import annotations

import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, to_jsonable
from restless_bandits.agent.core import DEFAULT_LATE_SLOTS
from restless_bandits.agent.delayed_feedback import FeedbackBuffer
from restless_bandits.learning.estimation import ArmEstimate, estimate
from restless_bandits.learning.estimation.sampling import draw_from_posterior, draw_reacting_chains
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task
from restless_bandits.oracles import Solution, exact, whittle, whittle_index
from restless_bandits.policies import plans
from restless_bandits.service.storage.store import Store, open_store
from restless_bandits.service.storage.stored_plans import unpacked
from restless_bandits.simulation.solving import forecast

MOST_BINS = 400
KEPT_PLANS, KEPT_MARKS, KEPT_SUMMARIES = 100, 100, 16
FIRST_MARK, APART = 25, 1.5
"""The slot of the first stored estimate, and the factor between the slots of successive estimates."""
READING = 1.0
"""Seconds that a request spends on reading the log; several requests share the reading of a long log."""
SHOWN_ARMS = 24
MOST_SOLVED = 64
"""Arms above which the optimum of the learned problem is not computed."""
FEWEST_DRAWS, DRAWS, DRAWING = 5, 24, 2.0
"""Problems drawn from the posterior for the uncertainty of the optimum, and the seconds after which the fewest suffice.
"""
SOLVE_GROWTH = 1.05
"""The growth factor of the number of slots before the optimum is computed anew."""
SHOWN_ELAPSED = 24
"""The number of slots since an observation, for which indices and policies are shown."""
TOLERANCE = 1e-5
FEATURES = ("active_transitions", "passive_rewards", "setup_cost")
"""Fields of a hypothetical arm that it may lack."""


def awake() -> dict[str, Any]:
    """Do nothing: the call makes a new process load its modules."""
    return {}


@dataclass(frozen=True)
class AgentSnapshot:
    """A snapshot of an agent, copied between two commits."""

    name: str
    seq: int
    record: Record
    task: Task
    service: tuple[int, ...]

    @property
    def shown(self) -> list[int]:
        """The displayed arms: all arms, or the most pulled arms in service, in their order."""
        if self.task.n_arms <= SHOWN_ARMS:
            return list(range(self.task.n_arms))
        pulls = self.record.pulls
        return sorted(sorted(self.service, key=lambda arm: -pulls[arm])[:SHOWN_ARMS])


@dataclass
class LogSummary:
    """A summary of an agent's log up to an event."""

    number: int
    seq: int = 0
    slots: int = 0
    names: list[str] = field(default_factory=list)
    ranges: list[Any] = field(default_factory=list)
    record: Record | None = None
    width: int = 1
    bins: list[list[float]] = field(default_factory=lambda: [[0.0, 0, 0]])
    """Rewards, feedback and lost feedback, in bins of ``width`` slots."""
    plans: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_PLANS))
    marks: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_MARKS))
    cause: str = ""
    """The reason for the end of the present plan, if the reason is not the plan's own rule."""
    next_mark: float = FIRST_MARK
    tightening: list[dict[str, Any]] = field(default_factory=list)
    pulls: FeedbackBuffer | None = None
    """The decisions and feedback of the last slots, where pulls without an observation count."""
    plays: int = 1
    late: int = DEFAULT_LATE_SLOTS

    def take(self, event: dict[str, Any]) -> None:
        """Add an event to the summary."""
        self.seq = event["seq"]
        getattr(self, f"_{event['kind']}", lambda _: None)(event)

    def _create(self, event: dict[str, Any]) -> None:
        task = Task(**event["task"])
        self.names, self.ranges = list(task.names), list(task.reward_ranges)
        self.record, self.plays, self.late = Record.of(task), task.plays, event.get("late", DEFAULT_LATE_SLOTS)
        if any(task.tracks_pulls):
            self.pulls = FeedbackBuffer(self.record, self.late)

    def _ask(self, event: dict[str, Any]) -> None:
        self._reach(event["slot"])
        if self.pulls is not None and not event.get("again"):
            self.pulls.entry(event["slot"]).asked = tuple(event["arms"])

    def _skip(self, event: dict[str, Any]) -> None:
        self._reach(event["until"] if "until" in event else self.slots + event["slots"])

    def _tell(self, event: dict[str, Any]) -> None:
        slot = event["slot"]
        self._reach(slot)
        into = self.bins[(slot - 1) // self.width]
        for arm, state, reward in zip(event["arms"], event["states"], event["rewards"], strict=True):
            into[0] += reward
            into[1] += 1
            if self.record is None or event.get("unused"):
                continue
            if self.pulls is not None:
                self.pulls.enter(self.record, slot, arm, state, reward)
            elif slot > self.record.last_slot[arm]:
                # An observation older than the last observation of its arm is omitted from the record.
                self.record.see(arm, slot, state, reward)
        if self.pulls is not None and self.record is not None and not event.get("unused"):
            self._end_slot(slot)

    def _lost(self, event: dict[str, Any]) -> None:
        self._reach(event["slot"])
        self.bins[(event["slot"] - 1) // self.width][2] += len(event["arms"])
        if self.pulls is not None and not event.get("unused"):
            entry = self.pulls.entry(event["slot"])
            entry.abandoned |= frozenset(event["arms"])
            if not event.get("pulled", True):
                entry.unpulled |= frozenset(event["arms"])
            self._end_slot(event["slot"])

    def _end_slot(self, slot: int) -> None:
        """Advance the record to the end of a slot, and enter the slot's pulls without an observation."""
        assert self.record is not None
        assert self.pulls is not None
        present = self.record.slots + 1
        if slot >= present:
            self.record.skip(slot - present + 1)
            self.pulls.enter_pulls(self.record, present, self.plays)
        if slot != present:
            self.pulls.enter_pulls(self.record, slot, self.plays)
        self.pulls.finalize(self.record)

    def _plan(self, event: dict[str, Any]) -> None:
        if self.plans:
            before = self.plans[-1]
            before["slots"] = event["slot"] - before["slot"]
            before["ended"] = self.cause
        kept = {key: event[key] for key in ("plan", "slot", "at", "digest")}
        self.plans.append(kept | {"slots": None, "ended": None})
        self.cause = ""

    def _arm(self, event: dict[str, Any]) -> None:
        done = {"add": "added", "retire": "retired", "restore": "brought back"}.get(event["change"], event["change"])
        self.cause = f"arm {event['name']} was {done}"
        self._mark(event, self.cause)
        if event["change"] == "add" and self.record is not None:
            self.names.append(event["name"])
            self.ranges.append(event.get("reward_range") or (0.0, 1.0))
            n, reacts, tracked = int(event["n_states"]), event.get("reacts", False), bool(event.get("setup_cost"))
            self.record.add_arm(n, reacts, reacts or tracked)
            if self.pulls is not None:
                self.pulls.add_arm(n, reacts or tracked)
            elif reacts or tracked:
                self.pulls = FeedbackBuffer(self.record, self.late)

    def _learner(self, event: dict[str, Any]) -> None:
        if "spec" in event:
            self.cause = f"the learner became {event['spec']}"
            self._mark(event, self.cause)
        if "late" in event:
            self.late = event["late"]
            if self.pulls is not None and self.record is not None:
                self.pulls.late = self.late
                self.pulls.finalize(self.record)

    def _mark(self, event: dict[str, Any], text: str) -> None:
        self.marks.append({"slot": self.slots, "at": event["at"] / 1e6, "kind": event["kind"], "text": text})

    def _reach(self, slot: int) -> None:
        """Advance to a slot: widen bins beyond the maximal number, and make an estimate when due."""
        if slot <= self.slots:
            return
        if self.pulls is not None:
            self._end_slot(slot - 1)
        if self.slots >= self.next_mark and self.record is not None:
            self._estimate()
        self.slots = slot
        while (slot - 1) // self.width >= MOST_BINS:
            even = [*self.bins, *([[0.0, 0, 0]] * (len(self.bins) % 2))]
            pairs = zip(even[::2], even[1::2], strict=True)
            self.bins = [[a + b for a, b in zip(*two, strict=True)] for two in pairs]
            self.width *= 2
        missing = (slot - 1) // self.width + 1 - len(self.bins)
        self.bins += [[0.0, 0, 0] for _ in range(missing)]

    def _estimate(self) -> None:
        assert self.record is not None
        while self.next_mark <= self.slots:
            self.next_mark *= APART
        if len(self.names) <= SHOWN_ARMS:
            found = estimate(self.record, names=self.names, strict=False, reward_ranges=self.ranges)
            arms = [[to_jsonable(arm.transitions), to_jsonable(arm.standard_errors)] for arm in found.arms]
            self.tightening.append({"slot": self.slots, "arms": arms})


_summaries: OrderedDict[tuple[str, str], LogSummary] = OrderedDict()


@cache
def _store(url: str) -> Store:
    return open_store(url)


def analyse(url: str, snapshot: AgentSnapshot) -> dict[str, Any]:
    """Return all displayed analyses of an agent, without the events of the present moment."""
    store = _store(url)
    summary, behind = _follow(store, url, snapshot)
    shown = snapshot.shown
    record = snapshot.record.only(shown) if len(shown) < snapshot.task.n_arms else snapshot.record
    found = _estimated(record, snapshot.task, shown)
    return {
        "name": snapshot.name,
        "seq": snapshot.seq,
        "slots": snapshot.record.slots,
        "behind": behind,
        "plays": snapshot.task.plays,
        "arms": [
            _arm(number, arm, snapshot) | {"index": to_jsonable(_indices(one))}
            for number, arm, one in zip(shown, found, _learned(found, snapshot.task, shown), strict=True)
        ],
        "rewards": {"width": summary.width, "bins": summary.bins},
        "plans": [_worded(store, plan) for plan in summary.plans],
        "marks": list(summary.marks),
        "tightening": _thinned(summary.tightening, 24),
    }


def _follow(store: Store, url: str, snapshot: AgentSnapshot) -> tuple[LogSummary, int]:
    """Read the next part of an agent's log, for a limited time; the second number counts the unread events."""
    key, deadline = (url, snapshot.name), time.monotonic() + READING
    with store.reading() as session:
        row = session.rows_of([snapshot.name], for_us=False).get(snapshot.name)
        if row is None:
            raise ProblemError(f"there is no agent {snapshot.name!r}")
        summary = _summaries.get(key)
        if summary is None or summary.number != row.id:
            summary = _summaries[key] = LogSummary(row.id)
        _summaries.move_to_end(key)
        while len(_summaries) > KEPT_SUMMARIES:
            _summaries.popitem(last=False)
        for event in session.events(row.id, summary.seq):
            summary.take(event)
            if summary.seq % 256 == 0 and time.monotonic() > deadline:
                break
    return summary, max(0, snapshot.seq - summary.seq)


def _arm(number: int, found: ArmEstimate, snapshot: AgentSnapshot) -> dict[str, Any]:
    state = int(snapshot.record.last_states[number])
    active: dict[str, Any] = {}
    if found.active_transitions is not None:
        active = {
            "active_transitions": to_jsonable(found.active_transitions),
            "active_errors": to_jsonable(found.active_standard_errors),
        }
    return {
        "number": number,
        "name": found.name,
        "in_service": number in snapshot.service,
        "observations": found.observations,
        "identified": found.identified,
        "transitions": to_jsonable(found.transitions),
        "errors": to_jsonable(found.standard_errors),
        **active,
        **_features_of(snapshot.task, number),
        "rewards": _numbers(found.rewards),
        "reward_errors": _numbers(found.reward_errors),
        "reward_range": list(snapshot.task.reward_ranges[number]),
        "last_state": state if state >= 0 else None,
        "elapsed": int(snapshot.record.elapsed[number]) if state >= 0 else None,
    }


def _features_of(task: Task, number: int) -> dict[str, Any]:
    """What an arm pays at rest, and what its set-up costs, where any arm does."""
    found: dict[str, Any] = {}
    if task.passive_rewards:
        found["passive_rewards"] = list(task.passive_rewards[number])
    if task.setup_costs:
        found["setup_cost"] = task.setup_costs[number]
    return found


def _numbers(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _estimated(record: Record, task: Task, numbers: Sequence[int]) -> tuple[ArmEstimate, ...]:
    names, ranges = [task.names[arm] for arm in numbers], [task.reward_ranges[arm] for arm in numbers]
    return estimate(record, names=names, strict=False, reward_ranges=ranges).arms


def _learned(found: Sequence[ArmEstimate], task: Task, numbers: Sequence[int]) -> list[Arm]:
    """Return the arms as estimated; a state without observations gets the middle of the reward range."""
    arms = []
    for number, arm in zip(numbers, found, strict=True):
        low, high = task.reward_ranges[number]
        rewards = np.where(np.isfinite(arm.rewards), np.clip(arm.rewards, low, high), (low + high) / 2)
        about = _features_of(task, number)
        if arm.active_transitions is not None:
            about["active_transitions"] = _safe(arm.active_transitions)
        arms.append(_made(arm.transitions, rewards, arm.name, (low, high), **about))
    return arms


def _made(transitions: Array, rewards: Array, name: str, reward_range: tuple[float, float], **features: Any) -> Arm:
    return Arm(_safe(transitions), rewards, name=name, reward_range=reward_range, reward_law="bounded", **features)


def _safe(transitions: Array) -> Array:
    # Away from 0 and 1, at which a chain and a bound would need unbounded time.
    safe = np.clip(transitions, 1e-6, None) * (np.asarray(transitions) > 0)
    return np.asarray(safe / safe.sum(axis=1, keepdims=True))


def _indices(arm: Arm) -> Array:
    """Return Whittle's index by last seen state, never seen, or pulled without an answer, and slots since."""
    return whittle_index(arm, length=SHOWN_ELAPSED).table[:, :SHOWN_ELAPSED]


def optimum(snapshot: AgentSnapshot) -> dict[str, Any]:
    """Return the optimum of the learned problem, certified or in a bracket, and its uncertainty."""
    service = snapshot.service
    record = snapshot.record.only(service)
    found = _estimated(record, snapshot.task, service)
    arms = _learned(found, snapshot.task, service)
    solved = best(Problem(arms, plays=snapshot.task.plays, name="learned"))
    drawn = _bounds_of_draws(record, found, arms, snapshot.task.plays)
    # For an optimum in a bracket, the upper bound shows the possible change.
    below, above = np.quantile(drawn, [0.025, 0.975]) - solved.upper
    return _shown_solution(solved) | {
        "at": snapshot.record.slots,
        "draws": len(drawn),
        "low": to_jsonable(solved.lower + below),
        "high": to_jsonable(solved.upper + above),
    }


def best(problem: Problem) -> Solution:
    """Solve a small problem exactly, a larger problem by Whittle's index, with a proved bracket."""
    try:
        if forecast(problem, "exact") is None:
            return exact(problem, tolerance=TOLERANCE)
    except ProblemError:
        pass
    return whittle(problem)


def _shown_solution(found: Solution) -> dict[str, Any]:
    middle = (found.lower + found.upper) / 2
    return {
        "gain": middle if found.gain is None or found.certified else found.gain,
        "lower": found.lower,
        "upper": found.upper,
        "certified": found.certified,
        "oracle": found.oracle,
    }


def _bounds_of_draws(record: Record, found: Sequence[ArmEstimate], arms: Sequence[Arm], plays: int) -> list[float]:
    """Upper bounds of the optima of problems drawn from the posterior: the uncertainty of the optimum."""
    rng, deadline = np.random.default_rng(0), time.monotonic() + DRAWING
    bounds: list[float] = []
    record = record.copy()
    while len(bounds) < FEWEST_DRAWS or (len(bounds) < DRAWS and time.monotonic() < deadline):
        passive, active, notes = _draw(record, any(arm.features for arm in arms), rng)
        record.remember(notes)
        place, drawn = 0, []
        for arm, one in zip(arms, found, strict=True):
            n = arm.n_states
            chain, pulled = (np.reshape(chains[place : place + n * n], (n, n)) for chains in (passive, active))
            place += n * n
            errors = np.where(np.isfinite(one.reward_errors), one.reward_errors, 0.0)
            rewards = np.clip(arm.rewards + errors * rng.standard_normal(n), *arm.reward_range)
            about: dict[str, Any] = {"active_transitions": _safe(pulled)} if arm.reacts else {}
            about |= {"passive_rewards": arm.passive_rewards, "setup_cost": arm.setup_cost}
            drawn.append(_made(chain, rewards, arm.name, arm.reward_range, **about))
        bounds.append(best(Problem(drawn, plays=plays, name="drawn")).upper)
    return bounds


def _draw(record: Record, reacting: bool, rng: np.random.Generator) -> tuple[Array, Array, Mapping[str, Any]]:
    """Draw the chains of all arms, at rest and when pulled, with the notes from which the next draw goes on."""
    if reacting:
        draws = draw_reacting_chains(record.frozen(), rng)
        return draws.passive, draws.active, draws.notes
    draw = draw_from_posterior(record.frozen(), rng)
    return draw.chains, draw.chains, draw.notes


def _worded(store: Store, plan: dict[str, Any]) -> dict[str, Any]:
    rules = _rules(store, plan["digest"])
    why = plan["ended"]
    if why == "":
        by_length = [one for one in rules if one == f"after {plan['slots']} slots"]
        why = by_length[0] if by_length else " or ".join(one for one in rules if not one.startswith("after"))
    shown = {key: plan[key] for key in ("plan", "slot", "slots", "digest")}
    return shown | {"at": plan["at"] / 1e6, "until": " or ".join(rules), "ended": why}


_known_rules: OrderedDict[str, tuple[str, ...]] = OrderedDict()


def _rules(store: Store, digest: str) -> tuple[str, ...]:
    if digest not in _known_rules:
        with store.reading() as session:
            content = session.plan(digest)
        try:
            until = plans.Forever() if content is None else unpacked(digest, content).plan.until
        except (ProblemError, zlib.error):
            until = plans.Forever()
        parts = until.rules if isinstance(until, plans.AnyOf) else (until,)
        _known_rules[digest] = tuple(_rule(one) for one in parts)
        if len(_known_rules) > 1000:
            _known_rules.popitem(last=False)
    return _known_rules[digest]


def _rule(rule: plans.Rule) -> str:
    if isinstance(rule, plans.Slots):
        return f"after {rule.count} slots"
    if isinstance(rule, plans.CountDoubled):
        return "when some count has doubled"
    if isinstance(rule, plans.EveryStateSeen):
        return f"when every state of arm {rule.arm} has been left {rule.times} times"
    if isinstance(rule, plans.SeenIn):
        return f"when arm {rule.arm} is seen in state {rule.state}"
    return "never"


def _thinned(values: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    step = -(-len(values) // most) if values else 1
    return values[::-step][::-1]


def what_if(arms: Sequence[dict[str, Any]], plays: int) -> dict[str, Any]:
    """Return the optimum and the indices of a given problem, and for two arms the optimal policy."""
    made = [
        Arm(
            np.array(arm["transitions"], dtype=np.float64),
            np.array(arm["rewards"], dtype=np.float64),
            name=str(arm["name"]),
            reward_range=tuple(arm["reward_range"]),
            reward_law="bounded",
            **{key: arm[key] for key in FEATURES if key in arm},
        )
        for arm in arms
    ]
    solved = best(Problem(made, plays=plays, name="what if"))
    return _shown_solution(solved) | {
        "index": [to_jsonable(_indices(arm)) for arm in made],
        "policy": _policy_map(solved, made) if len(made) == 2 and plays == 1 else None,
    }


def _policy_map(found: Solution, arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Return the arms that a two-arm policy pulls: by the last pulled arm, its state, the other arm's state and age."""
    rows = []
    for last in (0, 1):
        for state in range(arms[last].n_states):
            for other in range(arms[1 - last].n_states):
                states, choices = [other, other], []
                states[last] = state
                for elapsed in range(2, SHOWN_ELAPSED + 2):
                    waits = [elapsed, elapsed]
                    waits[last] = 1
                    picked = found.policy.choose(np.array([states]), np.array([waits]))
                    choices.append(int(np.ravel(picked)[0]))
                rows.append({"last": last, "state": state, "other": other, "pulls": choices})
    return rows
