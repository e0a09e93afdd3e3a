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

from restless_bandits.arrays import Array, IntArray, is_number, whole, wholes
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


class Record:
    """Counts, sums and the present belief of one run.

    Arrays of all arms lie one after the other, for the compiled engine; the methods give each arm's own view. The last
    row of ``counts(arm)`` and ``visits(arm)``, s = n_states, is for an arm that had never been seen.
    """

    def __init__(self, n_states: Sequence[int], initial: Sequence[int | None]) -> None:
        if sum((int(n) + 1) * N_BINS * int(n) for n in n_states) > MOST_COUNTS:
            raise ProblemError(
                f"arms of up to {max(n_states)} states take more counts than fit into memory; give fewer states or arms"
            )
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
        self.slots = 0
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
            s = int(self.last_state[arm])
            column = elapsed_bin(int(self.slots - self.last_slot[arm]))
            self.visits(arm)[s, column] += 1
            self.counts(arm)[s, column, state] += 1
            self.seen(arm)[state] += 1
            self.reward_sums(arm)[state] += reward
            self.last_state[arm] = state
            self.last_slot[arm] = self.slots

    def skip(self, slots: int) -> None:
        """Let slots pass in which nothing was seen."""
        self.slots += slots

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

    def remember(self, notes: Mapping[str, Any]) -> None:
        """Keep the notes of the plan that begins now, in place of those of the last one."""
        self.notes = plain_notes(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; counts are listed where they are not zero."""
        where = np.flatnonzero(self.flat_counts)
        return {
            "counts": [where.tolist(), self.flat_counts[where].tolist()],
            "rewards": self.flat_rewards.tolist(),
            "last_state": self.last_state.tolist(),
            "last_slot": self.last_slot.tolist(),
            "slots": self.slots,
            "plan_lengths": list(self.plan_lengths),
            "notes": plain_notes(self.notes),
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
            record.visits(arm)[:] = record.counts(arm).sum(axis=2)
            record.seen(arm)[:] = record.counts(arm).sum(axis=(0, 1))
        sums = data["rewards"]
        if not isinstance(sums, list) or len(sums) != len(record.flat_rewards) or not all(map(is_number, sums)):
            raise ProblemError(f"rewards is {shortened(sums)}; it must be a list of {len(record.flat_rewards)} numbers")
        record.flat_rewards[:] = sums
        start = record.last_state.copy()
        record.last_state[:] = wholes("last_state", data["last_state"], 0, max(task.n_states), length=record.n_arms)
        record.last_slot[:] = wholes("last_slot", data["last_slot"], 0, record.slots, length=record.n_arms)
        record.plan_lengths = wholes("plan_lengths", data["plan_lengths"])
        if sum(record.plan_lengths) > record.slots:
            raise ProblemError(f"plan_lengths add up to more than {record.slots} slots")
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


_CHANGING = ("flat_counts", "flat_visits", "flat_seen", "flat_rewards", "last_state", "last_slot")


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
