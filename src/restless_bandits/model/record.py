"""The sufficient statistic of a run's observations, of a size that does not grow with time.

An observation is "arm i, last observed in s, was observed in k, τ slots later". The record counts observations,
``counts(i)[s, bin(τ), k]``, with τ exact up to 512 and in geometric bins beyond. Further fields are the sums of rewards
by state, the number of slots and of past plans, the present belief (last observed state and slot of every arm), and the
notes of the last plan, the further memory of a learner. A learner maps a record to a plan and keeps nothing itself. The
learner gets the record ``frozen``: the plan is its only output.

A pull without an observation changes nothing for an uncontrolled arm: τ counts the slots since the last observation. It
moves a reacting arm by another chain. The belief about the arm is then "lost", τ counts the slots since the pull, and
the next observation counts in a row of its own, ``counts(i)[n_states + 1]``: no transition leads across the pull. The
record keeps the slots of the latest such pulls, from which the exact distribution of the state follows. The same holds
for an arm with a set-up cost, whose next pull is cheaper after a pull. Such arms begin as never observed, whatever
their initial state: the step from an initial state is one without a pull.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.html_tables import html_table
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_int, check_ints, is_number
from restless_bandits.model.checks import MOST_SLOTS
from restless_bandits.model.tasks import Task

if TYPE_CHECKING:
    from restless_bandits.model.problem import Problem

EXACT_ELAPSED = 512
MOST_COUNTS = 1 << 30
"""The largest number of counts in a record: 8 GB."""
LOST = -2
"""The last state of a reacting arm after a pull without an observation, as an argument of policies."""
MOST_UNSEEN_PULLS = 4096
"""The largest number of pulls without an observation that a record keeps for an arm."""


def _edges() -> IntArray:
    """The first τ of every bin."""
    edges = list(range(1, EXACT_ELAPSED + 2))
    while edges[-1] < 1 << 40:
        edges.append(max(edges[-1] + 1, edges[-1] * 5 // 4))
    return np.array(edges, dtype=np.int64)


BIN_EDGES = _edges()
N_BINS = len(BIN_EDGES)
_BIN_ENDS = np.append(BIN_EDGES[1:] - 1, MOST_SLOTS)
BIN_MIDDLES = BIN_EDGES.copy()
BIN_MIDDLES[EXACT_ELAPSED:-1] = np.sqrt(BIN_EDGES[EXACT_ELAPSED:-1]) * np.sqrt(BIN_EDGES[EXACT_ELAPSED + 1 :])
"""The representative τ of every bin, for distributions after τ slots."""


def elapsed_bin(elapsed: int) -> int:
    """Return the bin of a number of elapsed slots: ``elapsed − 1`` up to 512, geometric beyond.

    In plain Python, for kernels to compile as well.
    """
    if elapsed <= EXACT_ELAPSED:
        return elapsed - 1
    low, high = EXACT_ELAPSED, N_BINS
    while high - low > 1:
        middle = (low + high) // 2
        if BIN_EDGES[middle] <= elapsed:
            low = middle
        else:
            high = middle
    return low


class UnseenPulls(NamedTuple):
    """The pulls of a reacting arm after its last observation, all of them without an observation."""

    state: int
    """The state of the last observation, ``n_states`` for none, ``n_states + 1`` for a forgotten observation."""
    slot: int
    """The slot of the last observation; 0 for none."""
    pulls: tuple[int, ...]
    """The slots of the pulls, in ascending order; the latest ``MOST_UNSEEN_PULLS`` of them."""

    def then(self, slots: Sequence[int], forgotten: int) -> UnseenPulls:
        """Return the same pulls and later pulls; beyond the largest number, the first ones are dropped, and the last
        state is ``forgotten``.
        """
        pulls = (*self.pulls, *slots)
        if len(pulls) <= MOST_UNSEEN_PULLS:
            return UnseenPulls(self.state, self.slot, pulls)
        return UnseenPulls(forgotten, pulls[-MOST_UNSEEN_PULLS], pulls[-MOST_UNSEEN_PULLS:])


def check_fits(n_states: Sequence[int]) -> None:
    """Refuse arms whose counts no record can hold."""
    if sum((int(n) + 1) * N_BINS * int(n) for n in n_states) > MOST_COUNTS:
        raise ProblemError(
            f"arms of up to {max(n_states)} states take more counts than fit into memory; give fewer states or arms"
        )


class Record:
    """Counts, sums and the present belief of a run.

    Arrays of all arms are concatenated, for the compiled engine; methods return each arm's own view. The row s =
    n_states of ``counts(arm)`` and ``visits(arm)`` is for an arm never observed before. A reacting arm has one more
    row, for observations after a pull without an observation.
    """

    def __init__(
        self,
        n_states: Sequence[int],
        initial: Sequence[int | None],
        reacts: Sequence[bool] | None = None,
        tracks_pulls: Sequence[bool] | None = None,
    ) -> None:
        check_fits(n_states)
        self.n_states = np.array(n_states, dtype=np.int64)
        self.reacts: BoolArray = np.zeros(len(self.n_states), dtype=np.bool_)
        """Arms whose chain reacts to pulls."""
        if reacts is not None:
            self.reacts[:] = reacts
        self.tracks_pulls: BoolArray = self.reacts.copy()
        """Arms for which pulls without an observation count: arms that react, and arms with a set-up cost."""
        if tracks_pulls is not None:
            self.tracks_pulls[:] = tracks_pulls
        rows = (self.n_states + 1 + self.tracks_pulls) * N_BINS
        self.row_base = np.concatenate([[0], np.cumsum(rows)])
        self.count_base = np.concatenate([[0], np.cumsum(rows * self.n_states)])
        self.state_base = np.concatenate([[0], np.cumsum(self.n_states)])
        self.flat_counts: IntArray = np.zeros(self.count_base[-1], dtype=np.int64)
        self.flat_visits: IntArray = np.zeros(self.row_base[-1], dtype=np.int64)
        self.flat_seen: IntArray = np.zeros(self.state_base[-1], dtype=np.int64)
        self.flat_rewards: Array = np.zeros(self.state_base[-1])
        start = [n if s is None else s for n, s in zip(n_states, initial, strict=True)]
        self.last_state: IntArray = np.where(self.tracks_pulls, self.n_states, np.array(start, dtype=np.int64))
        self.last_slot: IntArray = np.zeros(len(self.n_states), dtype=np.int64)
        self.forgotten: BoolArray = np.zeros(len(self.n_states), dtype=np.bool_)
        """Arms with forgotten observations: their paths begin as for arms never observed, whatever the initial state.
        Paths of reacting arms begin as after a pull without an observation.
        """
        self.unseen: Mapping[int, UnseenPulls] = {}
        """The pulls since the last observation of the reacting arms for which there are any, by arm."""
        self.slots = 0
        self.restarted = 0, 0
        """Slots and plans before the start of the learner's time."""
        self.plan_lengths: list[int] = []
        self.notes: Mapping[str, Any] = {}

    @classmethod
    def of(cls, task: Task) -> Record:
        """Return the empty record of a task."""
        return cls(task.n_states, task.initial, task.reacts, task.tracks_pulls)

    @classmethod
    def of_problem(cls, problem: Problem) -> Record:
        """Return the empty record of a problem."""
        if problem.features:
            return cls.of(problem.task())
        return cls(problem.n_states, problem.initial)

    @property
    def n_arms(self) -> int:
        return len(self.n_states)

    @property
    def pulls(self) -> IntArray:
        """How often each arm was pulled and observed."""
        return np.add.reduceat(self.flat_seen, self.state_base[:-1])

    def __repr__(self) -> str:
        observed = f"{int(self.flat_seen.sum())} observations"
        return f"<Record: {self.n_arms} arms, {self.slots} slots, {observed}, {self.plans} plans>"

    def _repr_html_(self) -> str:
        rows = ((f"arm {arm}", *row) for arm, row in enumerate(record_rows(self)))
        return html_table(repr(self)[1:-1], ("", *RECORD_HEADS), rows)

    @property
    def plans(self) -> int:
        """Number of past plans."""
        return len(self.plan_lengths)

    @property
    def elapsed(self) -> IntArray:
        """Slots since the last observation of each arm, as of the coming slot: at least 1.

        For a reacting arm, slots since the last pull, observed or not.
        """
        return self.slots + 1 - self.last_slot

    @property
    def last_states(self) -> IntArray:
        """Last observed states, −1 for an arm never observed, ``LOST`` after a pull of a reacting arm without an
        observation: an argument of policies.
        """
        states = np.where(self.last_state == self.n_states, -1, self.last_state)
        return np.where(states > self.n_states, LOST, states) if self.unseen else states

    def counts(self, arm: int) -> IntArray:
        """Observations of an arm, ``[s, bin(τ), k]``."""
        view = self.flat_counts[self.count_base[arm] : self.count_base[arm + 1]]
        return view.reshape(-1, N_BINS, int(self.n_states[arm]))

    def visits(self, arm: int) -> IntArray:
        """Observations of an arm in any state, ``[s, bin(τ)]``."""
        return self.flat_visits[self.row_base[arm] : self.row_base[arm + 1]].reshape(-1, N_BINS)

    def transitions(self, arm: int) -> IntArray:
        """One-step transitions ``[s, k]``: observations in consecutive slots."""
        return self.counts(arm)[: self.n_states[arm], 0]

    def seen(self, arm: int) -> IntArray:
        """The number of observations of an arm in each state, each with a reward."""
        return self.flat_seen[self.state_base[arm] : self.state_base[arm + 1]]

    def reward_sums(self, arm: int) -> Array:
        """Sums of the rewards observed in each state."""
        return self.flat_rewards[self.state_base[arm] : self.state_base[arm + 1]]

    def mean_rewards(self, arm: int, unseen: float) -> Array:
        """Mean rewards of an arm by state; ``unseen`` for a state never observed."""
        seen = self.seen(arm)
        return np.where(seen > 0, self.reward_sums(arm) / np.maximum(seen, 1), unseen)

    def every_state_seen(self, arm: int, times: int) -> bool:
        """Whether every state of an arm has at least a given number of observed one-step transitions."""
        return bool((self.visits(arm)[: self.n_states[arm], 0] >= times).all())

    def observe(self, arms: Sequence[int], states: Sequence[int], rewards: Sequence[float]) -> None:
        """Enter the observations of a slot, and end the slot."""
        self.slots += 1
        for arm, state, reward in zip(arms, states, rewards, strict=True):
            self.see(arm, self.slots, state, reward)

    def see(self, arm: int, slot: int, state: int, reward: float) -> None:
        """Enter an observation of an arm, in the latest slot with an observation of the arm."""
        self._count(arm, int(self.last_state[arm]), int(slot - self.last_slot[arm]), state, 1)
        place = self.state_base[arm] + state
        self.flat_seen[place] += 1
        self.flat_rewards[place] += reward
        self.last_state[arm] = state
        self.last_slot[arm] = slot
        if self.unseen:
            self._keep_unseen(arm, None)

    def lose(self, arm: int, slot: int) -> None:
        """Enter a pull of a reacting arm without an observation, in the latest slot with a pull of the arm."""
        lost = int(self.n_states[arm]) + 1
        before = self.unseen.get(arm) or UnseenPulls(int(self.last_state[arm]), int(self.last_slot[arm]), ())
        self.lead_to(arm, lost, slot, before.then([slot], lost))

    def lead_to(self, arm: int, last_state: int, last_slot: int, unseen: UnseenPulls | None = None) -> None:
        """Replace the present belief about an arm; counts are changed separately."""
        self.last_state[arm], self.last_slot[arm] = last_state, last_slot
        self._keep_unseen(arm, unseen)

    def _keep_unseen(self, arm: int, unseen: UnseenPulls | None) -> None:
        # Copies of the record share the mapping.
        others = {other: pulls for other, pulls in self.unseen.items() if other != arm}
        self.unseen = others if unseen is None else others | {arm: unseen}

    def renew(
        self,
        arm: int,
        counts: IntArray,
        sums: Sequence[float],
        last_state: int,
        last_slot: int,
        unseen: UnseenPulls | None = None,
    ) -> None:
        """Replace the counts, flat, and the sums of rewards of an arm with forgotten observations.

        The path of the arm starts as ``forgotten`` says, and leads to ``last_state`` in ``last_slot``.
        """
        self.counts(arm)[:] = counts.reshape(self.counts(arm).shape)
        self._count_visits(arm)
        self.reward_sums(arm)[:] = sums
        self.lead_to(arm, last_state, last_slot, unseen)
        self.forgotten[arm] = True

    def _count_visits(self, arm: int) -> None:
        self.visits(arm)[:] = self.counts(arm).sum(axis=2)
        self.seen(arm)[:] = self.counts(arm).sum(axis=(0, 1))

    def restart(self, slot: int) -> None:
        """Restart the learner's time after a slot, with the next plan."""
        self.restarted = slot, self.plans

    def in_learners_time(self) -> Record:
        """Return the record in the learner's time, counted from the last restart, as an independent copy.

        Slots and plans before the restart are not counted. Observations stay.
        """
        slots, plans = self.restarted
        other = self.copy()
        other.slots -= slots
        other.last_slot[other.last_state != other.n_states] -= slots
        other.unseen = {
            arm: UnseenPulls(state, slot - slots, tuple(pull - slots for pull in pulls))
            for arm, (state, slot, pulls) in self.unseen.items()
        }
        other.plan_lengths = self.plan_lengths[plans:]
        other.restarted = 0, 0
        return other

    def skip(self, slots: int) -> None:
        """Let slots pass without an observation."""
        self.slots += slots

    def insert(
        self, arm: int, slot: int, state: int, before: tuple[int, int], after: tuple[int, int] | None
    ) -> list[tuple[int, int]]:
        """Enter the state of an arm in a past slot; the reward is added separately.

        ``before`` and ``after`` are the states and slots of the neighbouring observations. The observation between the
        two is split into two. Returns the new observations, as (last state, elapsed slots).
        """
        s, last = before
        entered = [(s, slot - last, state)]
        if after is None:
            self.last_state[arm], self.last_slot[arm] = state, slot
        else:
            entered.append((state, after[1] - slot, after[0]))
            self._count(arm, s, after[1] - last, after[0], -1)
        for observed in entered:
            self._count(arm, *observed, 1)
        self.seen(arm)[state] += 1
        return [(last_state, elapsed) for last_state, elapsed, _ in entered]

    def recount(
        self, arm: int, observed: tuple[int, int], before: tuple[int, int] | None, now: tuple[int, int] | None
    ) -> list[tuple[int, int]]:
        """Count an observation, a state and its slot, after another belief; the reward is added separately.

        ``before`` and ``now`` are the last states and slots of the belief before the observation, so far and from now
        on; None if the observation is not counted. Returns the new observation, as (last state, elapsed slots).
        """
        state, slot = observed
        if before is not None:
            self._count(arm, before[0], slot - before[1], state, -1)
            self.seen(arm)[state] -= 1
        if now is None:
            return []
        self._count(arm, now[0], slot - now[1], state, 1)
        self.seen(arm)[state] += 1
        return [(now[0], slot - now[1])]

    def _count(self, arm: int, last_state: int, elapsed: int, state: int, change: int) -> None:
        row = last_state * N_BINS + elapsed_bin(elapsed)
        self.flat_visits[self.row_base[arm] + row] += change
        self.flat_counts[self.count_base[arm] + row * self.n_states[arm] + state] += change

    def add_arm(self, n_states: int, reacts: bool = False, tracks_pulls: bool = False) -> None:
        """Add space for one more arm, never observed, with the next number."""
        given = (self.n_states, n_states), (self.reacts, reacts), (self.tracks_pulls, tracks_pulls or reacts)
        sizes, *kinds = ([*mine.tolist(), new] for mine, new in given)
        grown = Record(sizes, [None] * len(sizes), *kinds)
        for name in _CHANGING:
            mine = getattr(self, name)
            getattr(grown, name)[: len(mine)] = mine
        names = ("slots", "restarted", "plan_lengths", "notes", "unseen")
        kept = {name: getattr(self, name) for name in names}
        self.__dict__.update(grown.__dict__, **kept)

    def only(self, arms: Sequence[int]) -> Record:
        """Return the observations of a selection of arms, numbered in the given order, as an independent copy."""
        chosen = list(arms)
        sizes, *kinds = (mine[chosen].tolist() for mine in (self.n_states, self.reacts, self.tracks_pulls))
        part = Record(sizes, [None] * len(arms), *kinds)
        for name, base in _BASES.items():
            mine, starts = getattr(self, name), getattr(self, base)
            np.concatenate([mine[starts[arm] : starts[arm + 1]] for arm in arms], out=getattr(part, name))
        for name in ("last_state", "last_slot", "forgotten"):
            getattr(part, name)[:] = getattr(self, name)[chosen]
        part.unseen = {place: self.unseen[arm] for place, arm in enumerate(arms) if arm in self.unseen}
        part.slots, part.restarted, part.plan_lengths = self.slots, self.restarted, list(self.plan_lengths)
        part.remember(self.notes)
        return part

    def copy(self) -> Record:
        """Return an independent copy."""
        other = Record.__new__(Record)
        other.__dict__.update(self.__dict__)
        for name in _CHANGING:
            setattr(other, name, getattr(self, name).copy())
        other.plan_lengths = list(self.plan_lengths)
        other.remember(self.notes)
        return other

    def frozen(self, rewards: Array | None = None) -> Record:
        """Return the record as a learner gets it: the same numbers, read-only; a write raises.

        ``rewards``, sums in other units, may replace the sums of the record.
        """
        other = _FrozenRecord.__new__(_FrozenRecord)
        inside = other.__dict__
        inside.update(self.__dict__, plan_lengths=FrozenLengths(self.plan_lengths), notes=frozen_note(self.notes))
        if self.unseen:
            inside["unseen"] = MappingProxyType(dict(self.unseen))
        if rewards is not None:
            inside["flat_rewards"] = rewards
        for name in _CHANGING:
            inside[name] = view = inside[name].view()
            view.setflags(write=False)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: of many counts, mostly zero, only the nonzero entries."""
        state = dict(self.__dict__)
        for name in _MANY:
            where = np.flatnonzero(state[name])
            state[name] = len(state[name]), where, state[name][where]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _MANY:
            size, where, values = state[name]
            self.__dict__[name] = array = np.zeros(size, dtype=np.int64)
            array[where] = values

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Keep the notes of the new plan in place of the notes of the last plan."""
        self.notes = plain_notes(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values; counts are listed where nonzero."""
        where = np.flatnonzero(self.flat_counts)
        forgetful: dict[str, Any] = {}
        if self.forgotten.any() or self.restarted != (0, 0):
            forgetful = {"forgotten": np.flatnonzero(self.forgotten).tolist(), "restarted": list(self.restarted)}
        if self.unseen:
            forgetful["unseen"] = unseen_to_list(self.unseen)
        return {
            "counts": [where.tolist(), self.flat_counts[where].tolist()],
            "rewards": self.flat_rewards.tolist(),
            "last_state": self.last_state.tolist(),
            "last_slot": self.last_slot.tolist(),
            "slots": self.slots,
            "plan_lengths": list(self.plan_lengths),
            "notes": plain_notes(self.notes),
            **forgetful,
        }

    @classmethod
    def from_dict(cls, task: Task, data: dict[str, Any]) -> Record:
        """Return the record that ``to_dict`` wrote; visits and numbers of observations follow from the counts.

        Raises ``ProblemError`` for numbers that no run can produce: inconsistent with each other or with the task.
        """
        record = cls.of(task)
        where, values = data["counts"]
        places = check_ints("counts[0]", where, 0, len(record.flat_counts) - 1)
        record.slots = check_int("slots", data["slots"], 0, MOST_SLOTS)
        record.flat_counts[places] = check_ints("counts[1]", values, 1, MOST_SLOTS, length=len(places))
        if len(set(places)) < len(places) or sum(values) > task.n_arms * record.slots:
            raise ProblemError(f"counts hold more than can be seen in {record.slots} slots")
        for arm in range(record.n_arms):
            record._count_visits(arm)
        sums = data["rewards"]
        if not isinstance(sums, list) or len(sums) != len(record.flat_rewards) or not all(map(is_number, sums)):
            raise ProblemError(f"rewards is {shortened(sums)}; it must be a list of {len(record.flat_rewards)} numbers")
        record.flat_rewards[:] = sums
        record.forgotten[check_ints("forgotten", data.get("forgotten", []), 0, record.n_arms - 1)] = True
        start = np.where(record.forgotten, record.n_states + record.tracks_pulls, record.last_state)
        most = int((record.n_states + record.tracks_pulls).max())
        record.last_state[:] = check_ints("last_state", data["last_state"], 0, most, length=record.n_arms)
        record.last_slot[:] = check_ints("last_slot", data["last_slot"], 0, record.slots, length=record.n_arms)
        record.plan_lengths = check_ints("plan_lengths", data["plan_lengths"])
        if sum(record.plan_lengths) > record.slots:
            raise ProblemError(f"plan_lengths add up to more than {record.slots} slots")
        slots, plans = check_ints("restarted", data.get("restarted", [0, 0]), 0, record.slots, length=2)
        if plans > record.plans:
            raise ProblemError(f"restarted is after {plans} plans, but there were {record.plans}")
        record.restarted = slots, plans
        record.remember(data["notes"])
        record.unseen = unseen_from_list(task, data.get("unseen", []), record.slots)
        for arm in range(record.n_arms):
            record._check_arm(arm, int(start[arm]), task)
        return record

    def _check_arm(self, arm: int, start: int, task: Task) -> None:
        """Refuse numbers that no path of this arm from its start to its last state produces."""
        n, last, slot = int(self.n_states[arm]), int(self.last_state[arm]), int(self.last_slot[arm])
        tracks_pulls = bool(self.tracks_pulls[arm])
        seen, sums = self.seen(arm), self.reward_sums(arm)
        rows = n + 1 + tracks_pulls
        moves = self.visits(arm).sum(axis=1) - np.pad(seen, (0, rows - n))
        ends = np.zeros(rows, dtype=np.int64)
        ends[start] += 1
        if last < rows:
            ends[last] -= 1
        lost = ends - moves
        # A path leaves every state as often as it enters the state, except for its two ends. A pull of a reacting arm
        # without an observation leads from any state to the last row.
        leads = (lost[:-1] >= 0).all() and not lost.sum() if tracks_pulls else not lost.any()
        if last >= rows or (last == n and slot > 0) or not leads or (last > n) != (arm in self.unseen):
            raise ProblemError(f"counts of arm {task.names[arm]!r} do not lead to last_state {last}")
        if last > n and self.unseen[arm].pulls[-1] != slot:
            raise ProblemError(f"unseen pulls of arm {task.names[arm]!r} do not lead to last_slot {slot}")
        waits = self.visits(arm).sum(axis=0)
        bins = np.flatnonzero(waits).tolist()
        least, most = (sum(int(waits[b]) * int(ends_of[b]) for b in bins) for ends_of in (BIN_EDGES, _BIN_ENDS))
        # Between an observation of a reacting arm and a pull without an observation, slots are in no wait.
        if not least <= slot or (slot > most and not tracks_pulls):
            raise ProblemError(f"waits of arm {task.names[arm]!r} do not add up to last_slot {slot}")
        # Rewards lie within their range; their sums are rounded.
        low, high = task.reward_ranges[arm]
        off = 1e-9 * max(abs(low), abs(high)) * seen
        if not ((sums >= low * seen - (off if low else 0)) & (sums <= high * seen + off)).all():
            raise ProblemError(f"rewards of arm {task.names[arm]!r} are not those of what was seen")


def unseen_to_list(unseen: Mapping[int, UnseenPulls]) -> list[list[Any]]:
    """Return pulls without an observation as JSON values."""
    return [[arm, state, slot, list(pulls)] for arm, (state, slot, pulls) in sorted(unseen.items())]


def unseen_from_list(task: Task, data: Any, slots: int) -> dict[int, UnseenPulls]:
    """Return the pulls that ``unseen_to_list`` wrote, of a run of so many slots; impossible pulls are refused."""
    found = {}
    for arm, state, slot, pulls in data:
        number = check_int("unseen: arm", arm, 0, task.n_arms - 1)
        last = check_int("unseen: state", state, 0, task.n_states[number] + 1)
        first = check_int("unseen: slot", slot, 0, slots)
        known = tuple(check_ints("unseen: pulls", pulls, first, slots))
        ascending = list(known) == sorted(set(known)) and 0 < len(known) <= MOST_UNSEEN_PULLS
        if not task.tracks_pulls[number] or not ascending or (known[0] == first and last <= task.n_states[number]):
            raise ProblemError(f"unseen pulls of arm {task.names[number]!r} are not those of a reacting arm")
        found[number] = UnseenPulls(last, first, known)
    if len(found) < len(data):
        raise ProblemError("unseen pulls name an arm twice")
    return found


_BASES = {
    "flat_counts": "count_base",
    "flat_visits": "row_base",
    "flat_seen": "state_base",
    "flat_rewards": "state_base",
}
"""Concatenated arrays of all arms, with the offset of each arm."""
_MANY = ("flat_counts", "flat_visits")
_CHANGING = (*_BASES, "last_state", "last_slot", "forgotten")


RECORD_HEADS = ("pulls", "states seen", "last state", "slots ago")


def record_rows(record: Record) -> Iterator[tuple[object, ...]]:
    """Yield the row of each arm in a table of a record."""
    for arm, pulls in enumerate(record.pulls.tolist()):
        seen = record.seen(arm).tolist()
        last, slot = int(record.last_state[arm]), int(record.last_slot[arm])
        known = last < record.n_states[arm] and slot > 0
        yield pulls, ", ".join(map(str, seen)), last if known else "–", record.slots + 1 - slot if known else "–"


class _FrozenRecord(Record):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a learner may not change {name} of its record; memory goes into the notes of its plan")


class FrozenLengths(Sequence[int]):
    """The lengths of past plans, read-only: not copied, since a run may have many thousands."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    def __getitem__(self, index: Any) -> Any:
        return self._lengths[index]

    def __len__(self) -> int:
        return len(self._lengths)


def frozen_note(note: Any) -> Any:
    """Return a read-only form of a note, for learners."""
    # Notes of many arms hold thousands of numbers: a call for each would be slow.
    if isinstance(note, list | tuple):
        return tuple(note) if _FROZEN_ALREADY.issuperset(map(type, note)) else tuple(map(frozen_note, note))
    if isinstance(note, Mapping):
        return MappingProxyType({key: frozen_note(entry) for key, entry in note.items()})
    return note


_FROZEN_ALREADY = frozenset((float, int, str, bool))


def plain_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return notes in their stored form; an error names values that JSON cannot hold."""
    if not isinstance(notes, Mapping):
        raise ProblemError(f"the notes of a plan are {notes!r}; give a dictionary")
    if not notes:
        return {}
    try:
        if {*map(type, notes)} != {str}:
            return cast(dict[str, Any], _through_json(dict(notes)))
        return {name: _stored_note(note) for name, note in notes.items()}
    except (TypeError, ValueError) as error:
        raise ProblemError(f"the notes of a plan cannot be stored as JSON: {error}") from None


def _stored_note(note: Any) -> Any:
    # Rows of floats, the notes of many arms, are already in their stored form; JSON would take most of a plan's time.
    if type(note) is list and all(type(row) is list and _FLOATS.issuperset(map(type, row)) for row in note):
        return [row.copy() for row in note]
    return _through_json(note)


_FLOATS = frozenset((float,))


def _through_json(note: Any) -> Any:
    return json.loads(json.dumps(note, default=_thawed))


def _thawed(note: Any) -> dict[str, Any]:
    if isinstance(note, MappingProxyType):
        return dict(note)
    raise TypeError(f"{note!r} is no text, number, list or dictionary")
