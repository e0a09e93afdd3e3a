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
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import check_int, check_ints, is_number
from restless_bandits.learning.count_segments import CountSegment
from restless_bandits.learning.observations import Observation
from restless_bandits.model.checks import MOST_SLOTS
from restless_bandits.model.record import Record, elapsed_bin
from restless_bandits.model.tasks import Task


@dataclass(slots=True)
class SlotFeedback:
    """The decision and feedback of a slot."""

    asked: tuple[int, ...] = ()
    """The arms of the decision, in ascending order; empty without a decision."""
    received: dict[int, tuple[int, float]] = field(default_factory=dict)
    """State and reward of the arms with feedback."""
    abandoned: frozenset[int] = frozenset()
    """Arms with abandoned feedback; most entries share the empty set."""

    def missing(self, plays: int) -> list[int]:
        """Return the arms of the decision whose feedback may still arrive and was not abandoned."""
        if len(self.received) + len(self.abandoned) >= plays:
            return []
        return [arm for arm in self.asked if arm not in self.received and arm not in self.abandoned]


class FeedbackBuffer:
    """The last ``late`` past slots, and the present slot.

    Callers that change the record call ``note`` after ``record.observe``, ``enter`` for late feedback, and ``finalize``
    after slots have passed.
    """

    def __init__(self, record: Record, late: int) -> None:
        self.late = late
        self._follow(record)

    def _follow(self, record: Record) -> None:
        """Start with a record whose slots are all final."""
        self.finalized_through = record.slots
        """The last final slot."""
        self._slots = record.slots
        self._entries: dict[int, SlotFeedback] = {}
        self._observations: list[deque[tuple[int, int, float]]] = [deque() for _ in range(record.n_arms)]
        self._final = list(zip(record.last_state.tolist(), record.last_slot.tolist(), strict=True))
        self._sums = [record.reward_sums(arm).tolist() for arm in range(record.n_arms)]
        self._since = [1] * record.n_arms
        """The first slot of each arm that counts: earlier observations are forgotten."""

    def __len__(self) -> int:
        """Return the number of slots with an entry."""
        return len(self._entries)

    def add_arm(self, n_states: int) -> None:
        """Add space for one more arm, never observed."""
        self._observations.append(deque())
        self._final.append((n_states, 0))
        self._sums.append([0.0] * n_states)
        self._since.append(1)

    def check_slot(self, slot: int | None) -> int:
        """Return the slot of feedback, by default the present slot; refuse a slot that accepts no feedback."""
        present, first = self._slots + 1, self.finalized_through + 1
        number = present if slot is None else check_int("slot", slot)
        if number > present:
            raise ProblemError(f"slot {number} is in the future; the present slot is {present}")
        if number < first:
            raise ProblemError(
                f"slot {number} is too long ago: feedback may come {self.late} slots late, and slot {first} is the "
                "first that still accepts feedback"
            )
        return number

    def entry(self, slot: int) -> SlotFeedback:
        """Return the entry of a slot for changes."""
        return self._entries.setdefault(slot, SlotFeedback())

    def at(self, slot: int) -> SlotFeedback:
        """Return the entry of a slot for reading."""
        return self._entries.get(slot) or SlotFeedback()

    def entries(self) -> list[tuple[int, SlotFeedback]]:
        """Return the slots with an entry, in order."""
        return sorted(self._entries.items())

    def note(self, record: Record, arms: Sequence[int], states: Sequence[int], rewards: Sequence[float]) -> None:
        """Keep the observations of the slot that the record has just entered."""
        received = self.entry(record.slots).received
        for arm, state, reward in zip(arms, states, rewards, strict=True):
            received[arm] = state, reward
            self._observations[arm].append((record.slots, state, reward))

    def enter(self, record: Record, slot: int, arm: int, state: int, reward: float) -> list[tuple[int, int]]:
        """Enter late feedback into the record; return the new observations, as (last state, elapsed)."""
        entry = self.entry(slot)
        entry.received[arm] = state, reward
        entry.abandoned -= {arm}
        if slot < self._since[arm]:
            return []
        observations = self._observations[arm]
        place = len(observations)
        while place and observations[place - 1][0] > slot:
            place -= 1
        before = (observations[place - 1][1], observations[place - 1][0]) if place else self._final[arm]
        after = (observations[place][1], observations[place][0]) if place < len(observations) else None
        grown = record.insert(arm, slot, state, before, after)
        observations.insert(place, (slot, state, reward))
        sums = record.reward_sums(arm)
        if after is None:
            # The latest of all, as for feedback nearly in order.
            sums[state] += reward
            return grown
        total = self._sums[arm][state]
        for _, seen, paid in observations:
            if seen == state:
                total += paid
        sums[state] = total
        return grown

    def recent(self, arm: int) -> tuple[tuple[int, int], Sequence[tuple[int, int, float]]]:
        """Return the final last state and slot of an arm, and later observations: slot, state, reward."""
        return self._final[arm], self._observations[arm]

    def forget(self, record: Record, arm: int, since: int, kept: CountSegment | None) -> None:
        """Forget the observations of an arm before a slot; ``kept`` holds the final observations since then.

        The record becomes equal to a record without the earlier feedback.
        """
        n = int(record.n_states[arm])
        if kept is None:
            self._final[arm], self._sums[arm] = (n, 0), [0.0] * n
        else:
            self._sums[arm] = kept.sums.tolist()
        self._since[arm] = max(since, self._since[arm])
        self._observations[arm] = observations = deque(
            observation for observation in self._observations[arm] if observation[0] >= since
        )
        counts = np.zeros(record.counts(arm).size, dtype=np.int64) if kept is None else kept.as_first_segment()
        record.renew(arm, counts, self._sums[arm], *self._final[arm])
        for observation in observations:
            record.see(arm, *observation)

    def finalize(self, record: Record, on_finalized: Callable[[Observation], None] | None = None) -> None:
        """Make the slots older than ``late`` final; ``on_finalized`` is called for each of their observations."""
        finalized_through = max(self.finalized_through, record.slots - self.late)
        few = finalized_through - self.finalized_through <= len(self._entries)
        for slot in (
            range(self.finalized_through + 1, finalized_through + 1)
            if few
            else sorted(slot for slot in self._entries if slot <= finalized_through)
        ):
            entry = self._entries.pop(slot, None)
            for arm, (state, reward) in entry.received.items() if entry else ():
                if slot < self._since[arm]:
                    continue
                self._observations[arm].popleft()
                if on_finalized is not None:
                    last_state, last_slot = self._final[arm]
                    on_finalized(Observation(slot, arm, last_state, slot - last_slot, state, reward))
                self._final[arm] = state, slot
                self._sums[arm][state] += reward
        self.finalized_through, self._slots = finalized_through, record.slots

    def check_followed(self, record: Record) -> bool:
        """Start again after a manual change of the record, with all slots final; False after a change."""
        followed = self._slots == record.slots
        if not followed:
            self._follow(record)
        return followed

    def observations(self, since: int = 0) -> Iterator[Observation]:
        """Yield the observations after a slot, in order of slots and arms, without final slots."""
        last = list(self._final)
        for slot, entry in self.entries():
            for arm, (state, reward) in sorted(entry.received.items()):
                if slot < self._since[arm]:
                    continue
                if slot > since:
                    yield Observation(slot, arm, last[arm][0], slot - last[arm][1], state, reward)
                last[arm] = state, slot

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values, independent of later changes of the buffer."""
        return {
            "late": self.late,
            "edge": self.finalized_through,
            "last_state": [state for state, _ in self._final],
            "last_slot": [slot for _, slot in self._final],
            "rewards": [list(row) for row in self._sums],
            "since": list(self._since),
            "slots": [
                [
                    slot,
                    list(entry.asked),
                    [[arm, *seen] for arm, seen in sorted(entry.received.items())],
                    sorted(entry.abandoned),
                ]
                for slot, entry in self.entries()
            ],
        }

    @classmethod
    def from_dict(cls, task: Task, record: Record, data: dict[str, Any]) -> FeedbackBuffer:
        """Return the buffer that ``to_dict`` wrote, or raise ``ProblemError`` for a buffer inconsistent with the
        record.
        """
        buffer = cls(record, check_int("late", data["late"], 0, MOST_SLOTS))
        buffer.finalized_through = finalized_through = check_int(
            "edge", data["edge"], max(0, record.slots - buffer.late), record.slots
        )
        n_arms = task.n_arms
        states = check_ints("window: last_state", data["last_state"], 0, max(task.n_states), length=n_arms)
        slots = check_ints("window: last_slot", data["last_slot"], 0, finalized_through, length=n_arms)
        sums = data["rewards"]
        shape = [len(row) if isinstance(row, list) and all(map(is_number, row)) else -1 for row in sums]
        if shape != list(task.n_states) or any(state > n for state, n in zip(states, task.n_states, strict=True)):
            raise ProblemError("window: its rewards or states are not those of the arms")
        buffer._final = list(zip(states, slots, strict=True))
        buffer._sums = [[float(total) for total in row] for row in sums]
        buffer._since = check_ints("window: since", data["since"], 1, record.slots + 1, length=n_arms)
        last = finalized_through
        for slot, asked, received, abandoned in data["slots"]:
            last = check_int("window: slot", slot, last + 1, record.slots + 1)
            entry = buffer.entry(last)
            entry.asked = tuple(_arms(asked, task))
            entry.abandoned = frozenset(_arms(abandoned, task))
            for arm, state, reward in received:
                number = check_int("window: arm", arm, 0, n_arms - 1)
                seen = check_int("window: state", state, 0, task.n_states[number] - 1), float(reward)
                entry.received[number] = seen
                if last >= buffer._since[number]:
                    buffer._observations[number].append((last, *seen))
            if (
                len(entry.asked) not in (0, task.plays)
                or not entry.abandoned <= set(entry.asked)
                or entry.abandoned & entry.received.keys()
                or not len(entry.received) == len(received) <= task.plays
                or (received and last > record.slots)
            ):
                raise ProblemError(f"window: slot {last} holds answers that it cannot have")
        buffer._check_leads_to(record)
        return buffer

    def _check_leads_to(self, record: Record) -> None:
        """Refuse observations that, after the final slots, do not lead to the record's last observations, sums and
        counts.
        """
        last, sums = list(self._final), [list(row) for row in self._sums]
        counted: Counter[tuple[int, tuple[int, int, int]]] = Counter()
        for observation in self.observations():
            counted[observation.arm, (observation.last_state, elapsed_bin(observation.elapsed), observation.state)] += 1
            last[observation.arm] = observation.state, observation.slot
            sums[observation.arm][observation.state] += observation.reward
        for arm in range(record.n_arms):
            now = int(record.last_state[arm]), int(record.last_slot[arm])
            if last[arm] != now or sums[arm] != record.reward_sums(arm).tolist():
                raise ProblemError("the window does not lead to record")
        if any(record.counts(arm)[cell] < times for (arm, cell), times in counted.items()):
            raise ProblemError("the window holds more than the record counts")


def _arms(listed: Any, task: Task) -> list[int]:
    arms = check_ints("window: arms", listed, 0, task.n_arms - 1)
    if arms != sorted(set(arms)):
        raise ProblemError(f"window: arms are {shortened(listed)}; they must be distinct and in ascending order")
    return arms
