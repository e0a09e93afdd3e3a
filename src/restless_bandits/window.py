"""A buffer for delayed feedback: the decisions and feedback of an agent's last slots.

Feedback may come late, twice, in any order, or never. The record must equal the record after feedback in order of
slots. Counts are integers: an observation split in two by late feedback is subtracted, and two observations are added.
Only sums of rewards depend on the order of addition, by rounding. The buffer therefore keeps every observation of the
last slots, and the sums and last observations at the end of the slots before. Slots before the buffer are final.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from restless_bandits.arrays import is_number, whole, wholes
from restless_bandits.errors import ProblemError, shortened
from restless_bandits.problem import MOST_SLOTS, Task
from restless_bandits.record import Record, elapsed_bin
from restless_bandits.tallies import Tally


class Sight(NamedTuple):
    """An observation of an arm in a slot, with the belief before: the last state and the slots since then."""

    slot: int
    arm: int
    last_state: int
    elapsed: int
    state: int
    reward: float


@dataclass(slots=True)
class Entry:
    """The decision and feedback of a slot."""

    asked: tuple[int, ...] = ()
    """The arms of the decision, in ascending order; empty without a decision."""
    told: dict[int, tuple[int, float]] = field(default_factory=dict)
    """State and reward of the arms with feedback."""
    lost: frozenset[int] = frozenset()
    """Arms with abandoned feedback; most entries share the empty set."""

    def missing(self, plays: int) -> list[int]:
        """Return the arms of the decision whose feedback may still arrive and was not abandoned."""
        if len(self.told) + len(self.lost) >= plays:
            return []
        return [arm for arm in self.asked if arm not in self.told and arm not in self.lost]


class Window:
    """The last ``late`` past slots, and the present slot.

    Callers that change the record call ``note`` after ``record.observe``, ``enter`` for late feedback, and ``settle``
    after slots have passed.
    """

    def __init__(self, record: Record, late: int) -> None:
        self.late = late
        self._follow(record)

    def _follow(self, record: Record) -> None:
        """Start with a record whose slots are all final."""
        self.edge = record.slots
        """The last final slot."""
        self._slots = record.slots
        self._entries: dict[int, Entry] = {}
        self._sights: list[deque[tuple[int, int, float]]] = [deque() for _ in range(record.n_arms)]
        self._settled = list(zip(record.last_state.tolist(), record.last_slot.tolist(), strict=True))
        self._sums = [record.reward_sums(arm).tolist() for arm in range(record.n_arms)]
        self._since = [1] * record.n_arms
        """The first slot of each arm that counts: earlier observations are forgotten."""

    def add_arm(self, n_states: int) -> None:
        """Add space for one more arm, never observed."""
        self._sights.append(deque())
        self._settled.append((n_states, 0))
        self._sums.append([0.0] * n_states)
        self._since.append(1)

    def entry(self, slot: int) -> Entry:
        """Return the entry of a slot for changes."""
        return self._entries.setdefault(slot, Entry())

    def look(self, slot: int) -> Entry:
        """Return the entry of a slot for reading."""
        return self._entries.get(slot) or Entry()

    def entries(self) -> list[tuple[int, Entry]]:
        """Return the slots with an entry, in order."""
        return sorted(self._entries.items())

    def note(self, record: Record, arms: Sequence[int], states: Sequence[int], rewards: Sequence[float]) -> None:
        """Keep the observations of the slot that the record has just entered."""
        told = self.entry(record.slots).told
        for arm, state, reward in zip(arms, states, rewards, strict=True):
            told[arm] = state, reward
            self._sights[arm].append((record.slots, state, reward))

    def enter(self, record: Record, slot: int, arm: int, state: int, reward: float) -> list[tuple[int, int]]:
        """Enter late feedback into the record; return the new observations, as (last state, elapsed)."""
        entry = self.entry(slot)
        entry.told[arm] = state, reward
        entry.lost -= {arm}
        if slot < self._since[arm]:
            return []
        sights = self._sights[arm]
        place = len(sights)
        while place and sights[place - 1][0] > slot:
            place -= 1
        before = (sights[place - 1][1], sights[place - 1][0]) if place else self._settled[arm]
        after = (sights[place][1], sights[place][0]) if place < len(sights) else None
        grown = record.insert(arm, slot, state, before, after)
        sights.insert(place, (slot, state, reward))
        sums = record.reward_sums(arm)
        if after is None:
            # The latest of all, as for feedback nearly in order.
            sums[state] += reward
            return grown
        total = self._sums[arm][state]
        for _, seen, paid in sights:
            if seen == state:
                total += paid
        sums[state] = total
        return grown

    def recent(self, arm: int) -> tuple[tuple[int, int], Sequence[tuple[int, int, float]]]:
        """Return the final last state and slot of an arm, and later observations: slot, state, reward."""
        return self._settled[arm], self._sights[arm]

    def forget(self, record: Record, arm: int, since: int, kept: Tally | None) -> None:
        """Forget the observations of an arm before a slot; ``kept`` holds the final observations since then.

        The record becomes equal to a record without the earlier feedback.
        """
        n = int(record.n_states[arm])
        if kept is None:
            self._settled[arm], self._sums[arm] = (n, 0), [0.0] * n
        else:
            self._sums[arm] = kept.sums.tolist()
        self._since[arm] = max(since, self._since[arm])
        self._sights[arm] = sights = deque(sight for sight in self._sights[arm] if sight[0] >= since)
        counts = np.zeros(record.counts(arm).size, dtype=np.int64) if kept is None else kept.alone()
        record.renew(arm, counts, self._sums[arm], *self._settled[arm])
        for sight in sights:
            record.see(arm, *sight)

    def settle(self, record: Record, leave: Callable[[Sight], None] | None = None) -> None:
        """Make the slots older than ``late`` final; ``leave`` is called for each of their observations."""
        edge = max(self.edge, record.slots - self.late)
        few = edge - self.edge <= len(self._entries)
        for slot in range(self.edge + 1, edge + 1) if few else sorted(slot for slot in self._entries if slot <= edge):
            entry = self._entries.pop(slot, None)
            for arm, (state, reward) in entry.told.items() if entry else ():
                if slot < self._since[arm]:
                    continue
                self._sights[arm].popleft()
                if leave is not None:
                    last_state, last_slot = self._settled[arm]
                    leave(Sight(slot, arm, last_state, slot - last_slot, state, reward))
                self._settled[arm] = state, slot
                self._sums[arm][state] += reward
        self.edge, self._slots = edge, record.slots

    def check_followed(self, record: Record) -> bool:
        """Start again after a manual change of the record, with all slots final; False after a change."""
        followed = self._slots == record.slots
        if not followed:
            self._follow(record)
        return followed

    def sights(self, since: int = 0) -> Iterator[Sight]:
        """Yield the observations after a slot, in order of slots and arms, without final slots."""
        last = list(self._settled)
        for slot, entry in self.entries():
            for arm, (state, reward) in sorted(entry.told.items()):
                if slot < self._since[arm]:
                    continue
                if slot > since:
                    yield Sight(slot, arm, last[arm][0], slot - last[arm][1], state, reward)
                last[arm] = state, slot

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, independent of later changes of the buffer."""
        return {
            "late": self.late,
            "edge": self.edge,
            "last_state": [state for state, _ in self._settled],
            "last_slot": [slot for _, slot in self._settled],
            "rewards": [list(row) for row in self._sums],
            "since": list(self._since),
            "slots": [
                [
                    slot,
                    list(entry.asked),
                    [[arm, *seen] for arm, seen in sorted(entry.told.items())],
                    sorted(entry.lost),
                ]
                for slot, entry in self.entries()
            ],
        }

    @classmethod
    def from_dict(cls, task: Task, record: Record, data: dict[str, Any]) -> Window:
        """Return the buffer that ``to_dict`` wrote, or raise ``ProblemError`` for a buffer inconsistent with the
        record.
        """
        window = cls(record, whole("late", data["late"], 0, MOST_SLOTS))
        window.edge = edge = whole("edge", data["edge"], max(0, record.slots - window.late), record.slots)
        n_arms = task.n_arms
        states = wholes("window: last_state", data["last_state"], 0, max(task.n_states), length=n_arms)
        slots = wholes("window: last_slot", data["last_slot"], 0, edge, length=n_arms)
        sums = data["rewards"]
        shape = [len(row) if isinstance(row, list) and all(map(is_number, row)) else -1 for row in sums]
        if shape != list(task.n_states) or any(state > n for state, n in zip(states, task.n_states, strict=True)):
            raise ProblemError("window: its rewards or states are not those of the arms")
        window._settled = list(zip(states, slots, strict=True))
        window._sums = [[float(total) for total in row] for row in sums]
        window._since = wholes("window: since", data["since"], 1, record.slots + 1, length=n_arms)
        last = edge
        for slot, asked, told, lost in data["slots"]:
            last = whole("window: slot", slot, last + 1, record.slots + 1)
            entry = window.entry(last)
            entry.asked = tuple(_arms(asked, task))
            entry.lost = frozenset(_arms(lost, task))
            for arm, state, reward in told:
                number = whole("window: arm", arm, 0, n_arms - 1)
                seen = whole("window: state", state, 0, task.n_states[number] - 1), float(reward)
                entry.told[number] = seen
                if last >= window._since[number]:
                    window._sights[number].append((last, *seen))
            if (
                len(entry.asked) not in (0, task.plays)
                or not entry.lost <= set(entry.asked)
                or entry.lost & entry.told.keys()
                or not len(entry.told) == len(told) <= task.plays
                or (told and last > record.slots)
            ):
                raise ProblemError(f"window: slot {last} holds answers that it cannot have")
        window._check_leads_to(record)
        return window

    def _check_leads_to(self, record: Record) -> None:
        """Refuse observations that, after the final slots, do not lead to the record's last observations, sums and
        counts.
        """
        last, sums = list(self._settled), [list(row) for row in self._sums]
        counted: Counter[tuple[int, tuple[int, int, int]]] = Counter()
        for sight in self.sights():
            counted[sight.arm, (sight.last_state, elapsed_bin(sight.elapsed), sight.state)] += 1
            last[sight.arm] = sight.state, sight.slot
            sums[sight.arm][sight.state] += sight.reward
        for arm in range(record.n_arms):
            now = int(record.last_state[arm]), int(record.last_slot[arm])
            if last[arm] != now or sums[arm] != record.reward_sums(arm).tolist():
                raise ProblemError("the window does not lead to record")
        if any(record.counts(arm)[cell] < times for (arm, cell), times in counted.items()):
            raise ProblemError("the window holds more than the record counts")


def _arms(listed: Any, task: Task) -> list[int]:
    arms = wholes("window: arms", listed, 0, task.n_arms - 1)
    if arms != sorted(set(arms)):
        raise ProblemError(f"window: arms are {shortened(listed)}; they must be distinct and in ascending order")
    return arms
