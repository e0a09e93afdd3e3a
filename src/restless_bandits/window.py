"""The last slots of an agent: what was decided in each, what was answered, and what may still come.

Answers come late, twice, in any order, or never. A record must be what the right order would have left, and it can be:
counts are whole numbers, so an observation that a late answer splits in two is taken back and two are counted. Only
sums of rewards depend on the order in which they are added, by rounding. So the window keeps every sight of the last
slots, and of all slots before them what the sums and the last sights were when they left: what is older is settled.
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
    """What was seen of an arm in a slot, and what was known of it before: its last state and the slots since then."""

    slot: int
    arm: int
    last_state: int
    elapsed: int
    state: int
    reward: float


@dataclass(slots=True)
class Entry:
    """What is known of one slot."""

    asked: tuple[int, ...] = ()
    """The arms that were decided on, in ascending order; none where nobody asked."""
    told: dict[int, tuple[int, float]] = field(default_factory=dict)
    """State and reward of the arms of which an answer has come."""
    lost: frozenset[int] = frozenset()
    """Arms whose answers were given up; most entries share the empty one."""

    def missing(self, plays: int) -> list[int]:
        """Return the arms of the decision whose answers may still come and were not given up."""
        if len(self.told) + len(self.lost) >= plays:
            return []
        return [arm for arm in self.asked if arm not in self.told and arm not in self.lost]


class Window:
    """The last ``late`` slots that have passed, and the present one.

    Whoever changes the record calls ``note`` after ``record.observe``, ``enter`` for an answer that is late, and
    ``settle`` when slots have passed.
    """

    def __init__(self, record: Record, late: int) -> None:
        self.late = late
        self._follow(record)

    def _follow(self, record: Record) -> None:
        """Begin with a record of which every slot is settled."""
        self.edge = record.slots
        """The last slot that is settled."""
        self._slots = record.slots
        self._entries: dict[int, Entry] = {}
        self._sights: list[deque[tuple[int, int, float]]] = [deque() for _ in range(record.n_arms)]
        self._settled = list(zip(record.last_state.tolist(), record.last_slot.tolist(), strict=True))
        self._sums = [record.reward_sums(arm).tolist() for arm in range(record.n_arms)]
        self._since = [1] * record.n_arms
        """The first slot of each arm that counts: what was seen before it is forgotten."""

    def add_arm(self, n_states: int) -> None:
        """Make room for one more arm, never seen."""
        self._sights.append(deque())
        self._settled.append((n_states, 0))
        self._sums.append([0.0] * n_states)
        self._since.append(1)

    def entry(self, slot: int) -> Entry:
        """Return what is known of a slot, to be changed."""
        return self._entries.setdefault(slot, Entry())

    def look(self, slot: int) -> Entry:
        """Return what is known of a slot, to look at."""
        return self._entries.get(slot) or Entry()

    def entries(self) -> list[tuple[int, Entry]]:
        """Return the slots of which something is known, in their order."""
        return sorted(self._entries.items())

    def note(self, record: Record, arms: Sequence[int], states: Sequence[int], rewards: Sequence[float]) -> None:
        """Keep what was seen in the slot that the record has just entered."""
        told = self.entry(record.slots).told
        for arm, state, reward in zip(arms, states, rewards, strict=True):
            told[arm] = state, reward
            self._sights[arm].append((record.slots, state, reward))

    def enter(self, record: Record, slot: int, arm: int, state: int, reward: float) -> list[tuple[int, int]]:
        """Enter a late answer into the record; return the observations that are new, as (last state, elapsed)."""
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
            # The latest of all, as answers nearly in order are.
            sums[state] += reward
            return grown
        total = self._sums[arm][state]
        for _, seen, paid in sights:
            if seen == state:
                total += paid
        sums[state] = total
        return grown

    def recent(self, arm: int) -> tuple[tuple[int, int], Sequence[tuple[int, int, float]]]:
        """Return the last state and slot of an arm that are settled, and its sights since: slot, state, reward."""
        return self._settled[arm], self._sights[arm]

    def forget(self, record: Record, arm: int, since: int, kept: Tally | None) -> None:
        """Forget what was seen of an arm before a slot; ``kept`` is all that is settled and was seen since then.

        The record becomes what it would be had the earlier answers never been told.
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
        """Let go of the slots that have become too old for an answer; ``leave`` is called for each of their sights."""
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
        """Begin anew where somebody has changed the record by hand, as what is in it is then settled; False if so."""
        followed = self._slots == record.slots
        if not followed:
            self._follow(record)
        return followed

    def sights(self, since: int = 0) -> Iterator[Sight]:
        """Yield what was seen after a slot, in the order of slots and arms; what is settled is no longer there."""
        last = list(self._settled)
        for slot, entry in self.entries():
            for arm, (state, reward) in sorted(entry.told.items()):
                if slot < self._since[arm]:
                    continue
                if slot > since:
                    yield Sight(slot, arm, last[arm][0], slot - last[arm][1], state, reward)
                last[arm] = state, slot

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; nothing of it changes when the window does."""
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
        """Return the window that ``to_dict`` wrote, or raise ``ProblemError`` where it does not lead to the record."""
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
        """Refuse sights that, after what is settled, do not leave the record's last sights, sums and counts."""
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
