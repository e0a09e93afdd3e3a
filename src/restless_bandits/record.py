"""What was seen: the sufficient statistic of a run, of a size that does not grow with time.

An observation is "τ slots after arm i was last seen in s, it was seen in k". The record counts them,
``counts(i)[s, bin(τ), k]``, with τ exact up to 512 and in geometric bins beyond, next to the sums of rewards by state,
the number of slots and of past plans, the present belief (last seen state and slot of every arm), and the notes of the
last plan, for a learner that must remember more. A learner maps a record to a plan and keeps nothing itself; it is
handed the record ``frozen``, so that its plan is all that it can say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from restless_bandits.arrays import Array, BoolArray, IntArray, is_number, whole, wholes
from restless_bandits.errors import ProblemError, shortened
from restless_bandits.problem import MOST_SLOTS, Task

EXACT_ELAPSED = 512
MOST_COUNTS = 1 << 30
"""Counts that a record may hold: 8 GB."""


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
"""What a bin counts as where the law after so many slots is asked for."""


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


def check_fits(n_states: Sequence[int]) -> None:
    """Refuse arms whose counts no record can hold."""
    if sum((int(n) + 1) * N_BINS * int(n) for n in n_states) > MOST_COUNTS:
        raise ProblemError(
            f"arms of up to {max(n_states)} states take more counts than fit into memory; give fewer states or arms"
        )


class Record:
    """Counts, sums and the present belief of one run.

    Arrays of all arms lie one after the other, for the compiled engine; the methods give each arm's own view. The last
    row of ``counts(arm)`` and ``visits(arm)``, s = n_states, is for an arm that had never been seen.
    """

    def __init__(self, n_states: Sequence[int], initial: Sequence[int | None]) -> None:
        check_fits(n_states)
        self.n_states = np.array(n_states, dtype=np.int64)
        rows = (self.n_states + 1) * N_BINS
        self.row_base = np.concatenate([[0], np.cumsum(rows)])
        self.count_base = np.concatenate([[0], np.cumsum(rows * self.n_states)])
        self.state_base = np.concatenate([[0], np.cumsum(self.n_states)])
        self.flat_counts: IntArray = np.zeros(self.count_base[-1], dtype=np.int64)
        self.flat_visits: IntArray = np.zeros(self.row_base[-1], dtype=np.int64)
        self.flat_seen: IntArray = np.zeros(self.state_base[-1], dtype=np.int64)
        self.flat_rewards: Array = np.zeros(self.state_base[-1])
        start = [n if s is None else s for n, s in zip(n_states, initial, strict=True)]
        self.last_state: IntArray = np.array(start, dtype=np.int64)
        self.last_slot: IntArray = np.zeros(len(self.n_states), dtype=np.int64)
        self.forgotten: BoolArray = np.zeros(len(self.n_states), dtype=np.bool_)
        """Arms of which something is forgotten: they began as arms never seen, whatever was known at first."""
        self.slots = 0
        self.restarted = 0, 0
        """Slots and plans that had passed when the time that a learner counts began."""
        self.plan_lengths: list[int] = []
        self.notes: Mapping[str, Any] = {}

    @classmethod
    def of(cls, task: Task) -> Record:
        """Return the empty record of a task."""
        return cls(task.n_states, task.initial)

    @property
    def n_arms(self) -> int:
        return len(self.n_states)

    @property
    def pulls(self) -> IntArray:
        """How often each arm was pulled."""
        return np.add.reduceat(self.flat_seen, self.state_base[:-1])

    @property
    def plans(self) -> int:
        """Number of past plans."""
        return len(self.plan_lengths)

    @property
    def elapsed(self) -> IntArray:
        """Slots since each arm was last seen, as the coming slot counts them: at least 1."""
        return self.slots + 1 - self.last_slot

    @property
    def last_states(self) -> IntArray:
        """Last seen states, −1 for an arm never seen: what policies are asked with."""
        return np.where(self.last_state == self.n_states, -1, self.last_state)

    def counts(self, arm: int) -> IntArray:
        """Observations of an arm, ``[s, bin(τ), k]``."""
        view = self.flat_counts[self.count_base[arm] : self.count_base[arm + 1]]
        return view.reshape(-1, N_BINS, int(self.n_states[arm]))

    def visits(self, arm: int) -> IntArray:
        """Observations of an arm whatever was seen, ``[s, bin(τ)]``."""
        return self.flat_visits[self.row_base[arm] : self.row_base[arm + 1]].reshape(-1, N_BINS)

    def transitions(self, arm: int) -> IntArray:
        """One-step transitions ``[s, k]``: observations in consecutive slots."""
        return self.counts(arm)[:-1, 0]

    def seen(self, arm: int) -> IntArray:
        """How often an arm was seen in each state, each time with a reward."""
        return self.flat_seen[self.state_base[arm] : self.state_base[arm + 1]]

    def reward_sums(self, arm: int) -> Array:
        """Sums of the rewards that came with each state."""
        return self.flat_rewards[self.state_base[arm] : self.state_base[arm + 1]]

    def mean_rewards(self, arm: int, unseen: float) -> Array:
        """Mean rewards of an arm by state; ``unseen`` for a state that was never seen."""
        seen = self.seen(arm)
        return np.where(seen > 0, self.reward_sums(arm) / np.maximum(seen, 1), unseen)

    def every_state_seen(self, arm: int, times: int) -> bool:
        """Whether one-step transitions out of every state of an arm were observed so many times."""
        return bool((self.visits(arm)[:-1, 0] >= times).all())

    def observe(self, arms: Sequence[int], states: Sequence[int], rewards: Sequence[float]) -> None:
        """Enter what was seen in one slot, and let it pass."""
        self.slots += 1
        for arm, state, reward in zip(arms, states, rewards, strict=True):
            self.see(arm, self.slots, state, reward)

    def see(self, arm: int, slot: int, state: int, reward: float) -> None:
        """Enter what was seen of an arm in a slot, the latest in which it was seen."""
        self._count(arm, int(self.last_state[arm]), int(slot - self.last_slot[arm]), state, 1)
        place = self.state_base[arm] + state
        self.flat_seen[place] += 1
        self.flat_rewards[place] += reward
        self.last_state[arm] = state
        self.last_slot[arm] = slot

    def renew(self, arm: int, counts: IntArray, sums: Sequence[float], last_state: int, last_slot: int) -> None:
        """Put other counts, flat, and sums of rewards in place of those of an arm, of which something is forgotten.

        Its path begins anew, as that of an arm never seen, and leads to ``last_state`` in ``last_slot``.
        """
        self.counts(arm)[:] = counts.reshape(self.counts(arm).shape)
        self._count_visits(arm)
        self.reward_sums(arm)[:] = sums
        self.last_state[arm], self.last_slot[arm] = last_state, last_slot
        self.forgotten[arm] = True

    def _count_visits(self, arm: int) -> None:
        self.visits(arm)[:] = self.counts(arm).sum(axis=2)
        self.seen(arm)[:] = self.counts(arm).sum(axis=(0, 1))

    def restart(self, slot: int) -> None:
        """Let the time that a learner counts begin after a slot, with the next plan."""
        self.restarted = slot, self.plans

    def in_learners_time(self) -> Record:
        """Return the record as a learner gets it, whose time began at the last restart; it shares nothing that changes.

        Slots and plans before it are not counted. What was seen stays.
        """
        slots, plans = self.restarted
        other = self.copy()
        other.slots -= slots
        other.last_slot[other.last_state < other.n_states] -= slots
        other.plan_lengths = self.plan_lengths[plans:]
        other.restarted = 0, 0
        return other

    def skip(self, slots: int) -> None:
        """Let slots pass in which nothing was seen."""
        self.slots += slots

    def insert(
        self, arm: int, slot: int, state: int, before: tuple[int, int], after: tuple[int, int] | None
    ) -> list[tuple[int, int]]:
        """Enter the state that an arm was seen in in a slot that has passed; its reward is added apart.

        ``before`` and ``after`` are the states and slots of the sights around it. The observation that led from the one
        to the other becomes two. Returns those that are new, as (last state, elapsed slots).
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

    def _count(self, arm: int, last_state: int, elapsed: int, state: int, change: int) -> None:
        row = last_state * N_BINS + elapsed_bin(elapsed)
        self.flat_visits[self.row_base[arm] + row] += change
        self.flat_counts[self.count_base[arm] + row * self.n_states[arm] + state] += change

    def add_arm(self, n_states: int) -> None:
        """Make room for one more arm, never seen, whose number is the next one."""
        grown = Record([*self.n_states.tolist(), n_states], [None] * (self.n_arms + 1))
        for name in _CHANGING:
            mine = getattr(self, name)
            getattr(grown, name)[: len(mine)] = mine
        names = ("slots", "restarted", "plan_lengths", "notes")
        kept = {name: getattr(self, name) for name in names}
        self.__dict__.update(grown.__dict__, **kept)

    def only(self, arms: Sequence[int]) -> Record:
        """Return what was seen of some arms, numbered in this order; it shares nothing that changes."""
        part = Record(self.n_states[list(arms)].tolist(), [None] * len(arms))
        for name, base in _BASES.items():
            mine, starts = getattr(self, name), getattr(self, base)
            np.concatenate([mine[starts[arm] : starts[arm + 1]] for arm in arms], out=getattr(part, name))
        for name in ("last_state", "last_slot", "forgotten"):
            getattr(part, name)[:] = getattr(self, name)[list(arms)]
        part.slots, part.restarted, part.plan_lengths = self.slots, self.restarted, list(self.plan_lengths)
        part.remember(self.notes)
        return part

    def copy(self) -> Record:
        """Return a copy that shares nothing that changes."""
        other = Record.__new__(Record)
        other.__dict__.update(self.__dict__)
        for name in _CHANGING:
            setattr(other, name, getattr(self, name).copy())
        other.plan_lengths = list(self.plan_lengths)
        other.remember(self.notes)
        return other

    def frozen(self, rewards: Array | None = None) -> Record:
        """Return the record as a learner gets it: the same numbers, but every attempt to change them raises.

        Other sums of ``rewards``, in other units, may stand for those of the record.
        """
        other = _FrozenRecord.__new__(_FrozenRecord)
        inside = other.__dict__
        inside.update(self.__dict__, plan_lengths=_FrozenLengths(self.plan_lengths), notes=frozen_note(self.notes))
        if rewards is not None:
            inside["flat_rewards"] = rewards
        for name in _CHANGING:
            inside[name] = view = inside[name].view()
            view.setflags(write=False)
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Return what is sent to another process: of many counts, which are nearly all zero, those that are not."""
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
        """Keep the notes of the plan that begins now, in place of those of the last one."""
        self.notes = plain_notes(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; counts are listed where they are not zero."""
        where = np.flatnonzero(self.flat_counts)
        forgetful: dict[str, Any] = {}
        if self.forgotten.any() or self.restarted != (0, 0):
            forgetful = {"forgotten": np.flatnonzero(self.forgotten).tolist(), "restarted": list(self.restarted)}
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
        """Return the record that ``to_dict`` wrote; visits and sights follow from the counts.

        Raises ``ProblemError`` for what no run can have left: numbers that do not fit each other or the task.
        """
        record = cls.of(task)
        where, values = data["counts"]
        places = wholes("counts[0]", where, 0, len(record.flat_counts) - 1)
        record.slots = whole("slots", data["slots"], 0, MOST_SLOTS)
        record.flat_counts[places] = wholes("counts[1]", values, 1, MOST_SLOTS, length=len(places))
        if len(set(places)) < len(places) or sum(values) > task.n_arms * record.slots:
            raise ProblemError(f"counts hold more than can be seen in {record.slots} slots")
        for arm in range(record.n_arms):
            record._count_visits(arm)
        sums = data["rewards"]
        if not isinstance(sums, list) or len(sums) != len(record.flat_rewards) or not all(map(is_number, sums)):
            raise ProblemError(f"rewards is {shortened(sums)}; it must be a list of {len(record.flat_rewards)} numbers")
        record.flat_rewards[:] = sums
        record.forgotten[wholes("forgotten", data.get("forgotten", []), 0, record.n_arms - 1)] = True
        start = np.where(record.forgotten, record.n_states, record.last_state)
        record.last_state[:] = wholes("last_state", data["last_state"], 0, max(task.n_states), length=record.n_arms)
        record.last_slot[:] = wholes("last_slot", data["last_slot"], 0, record.slots, length=record.n_arms)
        record.plan_lengths = wholes("plan_lengths", data["plan_lengths"])
        if sum(record.plan_lengths) > record.slots:
            raise ProblemError(f"plan_lengths add up to more than {record.slots} slots")
        slots, plans = wholes("restarted", data.get("restarted", [0, 0]), 0, record.slots, length=2)
        if plans > record.plans:
            raise ProblemError(f"restarted is after {plans} plans, but there were {record.plans}")
        record.restarted = slots, plans
        record.remember(data["notes"])
        for arm in range(record.n_arms):
            record._check_arm(arm, int(start[arm]), task)
        return record

    def _check_arm(self, arm: int, start: int, task: Task) -> None:
        """Refuse numbers that no path of this arm from its start to its last state leaves behind."""
        n, last, slot = int(self.n_states[arm]), int(self.last_state[arm]), int(self.last_slot[arm])
        seen, sums = self.seen(arm), self.reward_sums(arm)
        moves = self.visits(arm).sum(axis=1) - np.append(seen, 0)
        ends = np.zeros(n + 1, dtype=np.int64)
        ends[start] += 1
        if last <= n:
            ends[last] -= 1
        # A path leaves every state as often as it comes there, but for its two ends.
        if last > n or (last == n and slot > 0) or not np.array_equal(moves, ends):
            raise ProblemError(f"counts of arm {task.names[arm]!r} do not lead to last_state {last}")
        waits = self.visits(arm).sum(axis=0)
        bins = np.flatnonzero(waits).tolist()
        least, most = (sum(int(waits[b]) * int(ends_of[b]) for b in bins) for ends_of in (BIN_EDGES, _BIN_ENDS))
        if not least <= slot <= most:
            raise ProblemError(f"waits of arm {task.names[arm]!r} do not add up to last_slot {slot}")
        # Rewards lie within their range; their sums are rounded.
        low, high = task.reward_ranges[arm]
        off = 1e-9 * max(abs(low), abs(high)) * seen
        if not ((sums >= low * seen - (off if low else 0)) & (sums <= high * seen + off)).all():
            raise ProblemError(f"rewards of arm {task.names[arm]!r} are not those of what was seen")


_BASES = {
    "flat_counts": "count_base",
    "flat_visits": "row_base",
    "flat_seen": "state_base",
    "flat_rewards": "state_base",
}
"""Arrays of all arms, and where each arm begins in them."""
_MANY = ("flat_counts", "flat_visits")
_CHANGING = (*_BASES, "last_state", "last_slot", "forgotten")


class _FrozenRecord(Record):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"a learner may not change {name} of its record; what it must remember goes into the notes of its plan"
        )


class _FrozenLengths(Sequence[int]):
    """The lengths of past plans, to look at: not copied, since a run may have many thousands."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths

    def __getitem__(self, index: Any) -> Any:
        return self._lengths[index]

    def __len__(self) -> int:
        return len(self._lengths)


def frozen_note(note: Any) -> Any:
    """Return what a learner sees of a note: it cannot be changed."""
    # Notes of many arms hold thousands of numbers: none of these takes a call of its own.
    if isinstance(note, Mapping):
        return MappingProxyType({key: frozen_note(entry) for key, entry in note.items()})
    if isinstance(note, list | tuple):
        return tuple([entry if type(entry) in _FROZEN_ALREADY else frozen_note(entry) for entry in note])
    return note


_FROZEN_ALREADY = (float, int, str, bool)


def plain_notes(notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return notes as they are stored and read again, or say that JSON cannot hold them."""
    if not isinstance(notes, Mapping):
        raise ProblemError(f"the notes of a plan are {notes!r}; give a dictionary")
    if not notes:
        return {}
    try:
        kept: dict[str, Any] = json.loads(json.dumps(dict(notes), default=_thawed))
    except (TypeError, ValueError) as error:
        raise ProblemError(f"the notes of a plan cannot be stored as JSON: {error}") from None
    return kept


def _thawed(note: Any) -> dict[str, Any]:
    if isinstance(note, MappingProxyType):
        return dict(note)
    raise TypeError(f"{note!r} is no text, number, list or dictionary")
