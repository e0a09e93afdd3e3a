"""A buffer for delayed feedback: the decisions and feedback of an agent's last slots.

Feedback may come late, twice, in any order, or never. The record must equal the record after feedback in order of
slots. Counts are integers: an observation split in two by late feedback is subtracted, and two observations are added.
Only sums of rewards depend on the order of addition, by rounding. The buffer therefore keeps every observation of the
last slots, and the sums and last observations at the end of the slots before. Slots before the buffer are final.

A pull and an observation are two events. A decision is a pull of its arms as soon as its slot has passed: an arm
without feedback, so far or for ever, was pulled and not observed. For an uncontrolled arm such a pull changes nothing.
For a reacting arm it interrupts the path of the record, until late feedback takes its place.
"""

from __future__ import annotations

from bisect import bisect_left
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
from restless_bandits.model.record import Record, UnseenPulls, elapsed_bin, unseen_from_list, unseen_to_list
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
    unpulled: frozenset[int] = frozenset()
    """Those of them that were not pulled."""

    def missing(self, plays: int) -> list[int]:
        """Return the arms of the decision whose feedback may still arrive and was not abandoned."""
        if len(self.received) + len(self.abandoned) >= plays:
            return []
        return [arm for arm in self.asked if arm not in self.received and arm not in self.abandoned]

    def unseen(self, plays: int) -> list[int]:
        """Return the arms pulled without an observation, if the slot has passed: with abandoned or missing feedback.

        At most ``plays`` arms are pulled, and arms with feedback come first.
        """
        pulled = [*sorted(self.abandoned - self.unpulled), *self.missing(plays)]
        return pulled[: max(0, plays - len(self.received))]


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
        self._pulls: dict[int, list[int]] = {arm: [] for arm in np.flatnonzero(record.tracks_pulls).tolist()}
        """The slots of the pulls without an observation of each reacting arm, in ascending order."""
        self.tracks_pulls = bool(self._pulls)
        """Whether pulls without an observation count for any arm."""
        self._final_unseen = dict(record.unseen)
        """The same for final slots, since the last final observation."""

    def __len__(self) -> int:
        """Return the number of slots with an entry."""
        return len(self._entries)

    def add_arm(self, n_states: int, tracks_pulls: bool = False) -> None:
        """Add space for one more arm, never observed."""
        if tracks_pulls:
            self.tracks_pulls = True
            self._pulls[len(self._observations)] = []
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
        entry.unpulled -= {arm}
        if slot < self._since[arm]:
            return []
        observations = self._observations[arm]
        place = len(observations)
        while place and observations[place - 1][0] > slot:
            place -= 1
        before = (observations[place - 1][1], observations[place - 1][0]) if place else self._final[arm]
        after = (observations[place][1], observations[place][0]) if place < len(observations) else None
        if arm in self._pulls:
            grown = self._change(record, arm, slot, state)
        else:
            grown = record.insert(arm, slot, state, before, after)
        observations.insert(place, (slot, state, reward))
        if arm in self._pulls:
            record.lead_to(arm, *self._present(arm, int(record.n_states[arm]) + 1))
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

    def enter_pulls(self, record: Record, slot: int, plays: int) -> bool:
        """Enter the pulls of a past slot without an observation, as far as they are of reacting arms.

        Called whenever the slot's decision has passed or its feedback has changed. Returns whether pulls have changed.
        """
        entry = self._entries.get(slot) if self._pulls else None
        if entry is None:
            return False
        unseen, changed = entry.unseen(plays), False
        for arm in {*entry.asked, *entry.abandoned} & self._pulls.keys():
            pulls = self._pulls[arm]
            place = bisect_left(pulls, slot)
            known = place < len(pulls) and pulls[place] == slot
            if known == (arm in unseen) or arm in entry.received or slot < self._since[arm]:
                continue
            changed, lost_row = True, int(record.n_states[arm]) + 1
            if not known and slot > record.last_slot[arm]:
                pulls.append(slot)
                record.lose(arm, slot)
            else:
                self._change(record, arm, slot, None if known else lost_row)
                record.lead_to(arm, *self._present(arm, lost_row))
        return changed

    def _change(self, record: Record, arm: int, slot: int, state: int | None) -> list[tuple[int, int]]:
        """Change the counts of a reacting arm for an observed state in a past slot, or for a pull without an
        observation (``n_states + 1``), or for no pull (None).

        An observation itself is entered by the caller. Returns the new observations, as (last state, elapsed slots).
        """
        observations, pulls, lost_row = self._observations[arm], self._pulls[arm], int(record.n_states[arm]) + 1
        later = len(observations)
        while later and observations[later - 1][0] > slot:
            later -= 1
        before = (observations[later - 1][1], observations[later - 1][0]) if later else self._final[arm]
        first = bisect_left(pulls, slot)
        if first and pulls[first - 1] > before[1]:
            before = lost_row, pulls[first - 1]
        known = first < len(pulls) and pulls[first] == slot
        next_pull = pulls[first + known] if first + known < len(pulls) else MOST_SLOTS
        grown = []
        if later < len(observations) and observations[later][0] < next_pull:
            after = observations[later][1], observations[later][0]
            now = before if state is None else (state, slot)
            grown += record.recount(arm, after, (lost_row, slot) if known else before, now)
        if state is not None and state < lost_row:
            grown += record.recount(arm, (state, slot), None, before)
        if known:
            del pulls[first]
        if state == lost_row:
            pulls.insert(first, slot)
        return grown

    def _present(self, arm: int, lost_row: int) -> tuple[int, int, UnseenPulls | None]:
        """The last state and slot of a reacting arm, and the pulls since its last observation, if there are any."""
        (state, slot), unseen = self._final[arm], self._final_unseen.get(arm)
        if self._observations[arm]:
            (slot, state, _), unseen = self._observations[arm][-1], None
        pulls = self._pulls[arm]
        later = pulls[bisect_left(pulls, slot + 1) :]
        if later:
            unseen = (unseen or UnseenPulls(state, slot, ())).then(later, lost_row)
        return (state, slot, None) if unseen is None else (lost_row, unseen.pulls[-1], unseen)

    def recent(self, arm: int) -> tuple[tuple[int, int], Sequence[tuple[int, int, float]], Sequence[int]]:
        """Return the final last state and slot of an arm, and later observations: slot, state, reward.

        Last, the slots since then with a pull of a reacting arm and no observation.
        """
        return self._final[arm], self._observations[arm], self._pulls.get(arm, ())

    def forget(self, record: Record, arm: int, since: int, kept: CountSegment | None) -> None:
        """Forget the observations of an arm before a slot; ``kept`` holds the final observations since then.

        The record becomes equal to a record without the earlier feedback.
        """
        n, reacts = int(record.n_states[arm]), arm in self._pulls
        if kept is not None:
            self._sums[arm] = kept.sums.tolist()
        elif not reacts:
            self._final[arm], self._sums[arm] = (n, 0), [0.0] * n
        elif self._final[arm][0] != n or self._first_event(arm) < since:
            # The player's own pulls are not forgotten.
            slot, known = self._final[arm][1], self._final_unseen.get(arm)
            pulls = (slot,) if known is None else known.pulls
            self._final_unseen[arm] = UnseenPulls(n + 1, pulls[0], pulls)
            self._final[arm], self._sums[arm] = (n + 1, slot), [0.0] * n
        else:
            return
        self._since[arm] = max(since, self._since[arm])
        self._observations[arm] = observations = deque(
            observation for observation in self._observations[arm] if observation[0] >= since
        )
        empty = np.zeros(record.counts(arm).size, dtype=np.int64)
        counts = empty if kept is None else kept.as_first_segment(reacts=reacts)
        record.renew(arm, counts, self._sums[arm], *self._final[arm], self._final_unseen.get(arm))
        if not reacts:
            for observation in observations:
                record.see(arm, *observation)
            return
        self._pulls[arm] = [slot for slot in self._pulls[arm] if slot >= since]
        events: list[tuple[Any, ...]] = [*observations, *((slot,) for slot in self._pulls[arm])]
        for slot, *seen in sorted(events):
            if seen:
                record.see(arm, slot, *seen)
            else:
                record.lose(arm, slot)

    def _first_event(self, arm: int) -> int:
        """The first slot with a pull of a reacting arm in the buffer."""
        observations, pulls = self._observations[arm], self._pulls[arm]
        return min(observations[0][0] if observations else MOST_SLOTS, pulls[0] if pulls else MOST_SLOTS)

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
                if self.tracks_pulls:
                    self._final_unseen.pop(arm, None)
            if self.tracks_pulls and entry:
                self._finalize_pulls(slot, entry)
        self.finalized_through, self._slots = finalized_through, record.slots

    def _finalize_pulls(self, slot: int, entry: SlotFeedback) -> None:
        for arm in {*entry.asked, *entry.abandoned} & self._pulls.keys():
            if self._pulls[arm][:1] == [slot]:
                del self._pulls[arm][0]
                lost_row = len(self._sums[arm]) + 1
                before = self._final_unseen.get(arm) or UnseenPulls(*self._final[arm], ())
                self._final_unseen[arm] = before.then([slot], lost_row)
                self._final[arm] = lost_row, slot

    def check_followed(self, record: Record) -> bool:
        """Start again after a manual change of the record, with all slots final; False after a change."""
        followed = self._slots == record.slots
        if not followed:
            self._follow(record)
        return followed

    def observations(self, since: int = 0) -> Iterator[Observation]:
        """Yield the observations after a slot, in order of slots and arms, without final slots."""
        last = list(self._final)
        pulls = {arm: set(slots) for arm, slots in self._pulls.items() if slots}
        for slot, entry in self.entries():
            for arm, (state, reward) in sorted(entry.received.items()):
                if slot < self._since[arm]:
                    continue
                if slot > since:
                    yield Observation(slot, arm, last[arm][0], slot - last[arm][1], state, reward)
                last[arm] = state, slot
            for arm in {*entry.asked, *entry.abandoned} & pulls.keys():
                if slot in pulls[arm]:
                    last[arm] = len(self._sums[arm]) + 1, slot

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
                    *([sorted(entry.unpulled)] if entry.unpulled else []),
                ]
                for slot, entry in self.entries()
            ],
            **({"unseen": unseen_to_list(self._final_unseen)} if self._final_unseen else {}),
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
        rows = [n + tracked for n, tracked in zip(task.n_states, task.tracks_pulls, strict=True)]
        states = check_ints("window: last_state", data["last_state"], 0, max(rows), length=n_arms)
        slots = check_ints("window: last_slot", data["last_slot"], 0, finalized_through, length=n_arms)
        sums = data["rewards"]
        shape = [len(row) if isinstance(row, list) and all(map(is_number, row)) else -1 for row in sums]
        if shape != list(task.n_states) or any(state > n for state, n in zip(states, rows, strict=True)):
            raise ProblemError("window: its rewards or states are not those of the arms")
        buffer._final = list(zip(states, slots, strict=True))
        buffer._sums = [[float(total) for total in row] for row in sums]
        buffer._since = check_ints("window: since", data["since"], 1, record.slots + 1, length=n_arms)
        buffer._final_unseen = unseen_from_list(task, data.get("unseen", []), finalized_through)
        last = finalized_through
        for slot, asked, received, abandoned, *unpulled in data["slots"]:
            last = check_int("window: slot", slot, last + 1, record.slots + 1)
            entry = buffer.entry(last)
            entry.asked = tuple(_arms(asked, task))
            entry.abandoned = frozenset(_arms(abandoned, task))
            entry.unpulled = frozenset(_arms(unpulled[0], task)) if unpulled else frozenset()
            for arm, state, reward in received:
                number = check_int("window: arm", arm, 0, n_arms - 1)
                seen = check_int("window: state", state, 0, task.n_states[number] - 1), float(reward)
                entry.received[number] = seen
                if last >= buffer._since[number]:
                    buffer._observations[number].append((last, *seen))
            if (
                len(entry.asked) not in (0, task.plays)
                or any(not task.tracks_pulls[arm] for arm in entry.abandoned - set(entry.asked))
                or not entry.unpulled <= entry.abandoned
                or entry.abandoned & entry.received.keys()
                or not len(entry.received) == len(received) <= task.plays
                or (received and last > record.slots)
            ):
                raise ProblemError(f"window: slot {last} holds answers that it cannot have")
            for number in entry.unseen(task.plays) if last <= record.slots else ():
                if task.tracks_pulls[number] and last >= buffer._since[number]:
                    buffer._pulls[number].append(last)
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
            if arm in self._pulls:
                state, at, unseen = self._present(arm, int(record.n_states[arm]) + 1)
                last[arm] = state, at
                if unseen != record.unseen.get(arm):
                    raise ProblemError("the window does not lead to the unseen pulls of record")
            if last[arm] != now or sums[arm] != record.reward_sums(arm).tolist():
                raise ProblemError("the window does not lead to record")
        if any(record.counts(arm)[cell] < times for (arm, cell), times in counted.items()):
            raise ProblemError("the window holds more than the record counts")


def _arms(listed: Any, task: Task) -> list[int]:
    arms = check_ints("window: arms", listed, 0, task.n_arms - 1)
    if arms != sorted(set(arms)):
        raise ProblemError(f"window: arms are {shortened(listed)}; they must be distinct and in ascending order")
    return arms
