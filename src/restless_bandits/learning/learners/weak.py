"""Learners for weak regret: a search for the best single arm, and permanent pulls of the arm.

``rca`` (Tekin, Liu 2012, "Online learning of rested and restless bandits") cuts an arm's life at the returns to one of
its states: the cycles between returns are independent, and their means can be used as in UCB. ``dsee`` (Liu, Liu, Zhao
2011, 2013, "Learning in a changing world") explores and exploits in epochs that grow geometrically. Both have
logarithmic regret against the best single arm. Against μ*, the best policy that moves between arms, their regret is
linear. Both papers let an arm at rest follow any process, so arms may react to pulls.

The notes of each plan carry the rewards inside cycles or epochs to the next plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.validation import check_int, check_ints, is_number, positive
from restless_bandits.learning.learners.base import Learner, require_one_play
from restless_bandits.model.record import Record
from restless_bandits.model.support import REACTING
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import Plan, SeenIn, Slots
from restless_bandits.policies.policies import SingleArm

LONGEST_EPOCH = 1 << 60

Notes = dict[str, Any]


@dataclass(frozen=True)
class _Noted(Learner):
    """A learner that advances its notes and derives its plan from the notes."""

    @property
    def features(self) -> frozenset[str]:
        return REACTING

    def check(self, task: Task) -> None:
        require_one_play(self, task)

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        last = record.notes.get(self.name)
        nothing: Notes = {"arm": 0, "before": [0, 0.0], "counted": [0] * task.n_arms, "earned": [0.0] * task.n_arms}
        if last is not None:
            self.check_notes(last, record)
        notes = nothing | self.first(task) if last is None else self.advance(last, record, task)
        arm = notes["arm"]
        before = [int(record.pulls[arm]), float(record.reward_sums(arm).sum())]
        notes |= {"plan": record.plans, "before": before if notes["fresh"] else notes["before"]}
        return replace(self.planned(notes), notes={self.name: notes})

    def check_notes(self, notes: Mapping[str, Any], record: Record) -> None:
        """Refuse notes from a damaged file that no plan of this learner produces; common fields first."""
        pulls = record.pulls.tolist()
        check_int(f"{self.name}: arm", notes["arm"], 0, record.n_arms - 1)
        counted = check_ints(f"{self.name}: counted", notes["counted"], 0, length=record.n_arms)
        before, earned_before = notes["before"]
        # Of the arm with the last counted segment.
        check_int(f"{self.name}: before", before, 0, max(pulls))
        sums = [(earned_before, before), *zip(notes["earned"], counted, strict=True)]
        if any(n > most for n, most in zip(counted, pulls, strict=True)) or any(
            not is_number(reward) or not -1e-6 <= reward <= (1 + 1e-6) * n for reward, n in sums
        ):
            raise ProblemError(f"{self.name}: the notes of the last plan count more than was seen")

    def first(self, task: Task) -> Notes:
        """The initial notes, beside the common fields: none, for arm 0."""
        raise NotImplementedError

    def advance(self, notes: Mapping[str, Any], record: Record, task: Task) -> Notes:
        """The notes of the next plan, in a new dictionary; ``fresh`` if a counted segment begins with the plan."""
        raise NotImplementedError

    def planned(self, notes: Notes) -> Plan:
        """The plan described by the notes."""
        raise NotImplementedError


def _counted(notes: Mapping[str, Any], record: Record) -> Notes:
    """The notes with the segment that has just ended added to its arm's counted pulls and rewards."""
    arm = notes["arm"]
    pulls, earned = notes["before"]
    counted, rewards = list(notes["counted"]), list(notes["earned"])
    counted[arm] += int(record.pulls[arm]) - pulls
    rewards[arm] += float(record.reward_sums(arm).sum()) - earned
    return {**notes, "counted": counted, "earned": rewards}


@dataclass(frozen=True)
class RCA(_Noted):
    """Pull, in blocks of complete cycles, the arm of highest cycle mean + √(width · ln t / n), in widths of its range.

    An arm's regenerative state is its first observed state. A block pulls an arm until the state is observed, and then
    on to a return. Only pulls of the cycles between count, n for the arm and t for all arms.

    Differs from the paper:

    - a block lasts ``growth`` times the arm's counted pulls, and then to the next return: several complete cycles
      instead of a single cycle. By Wald's identity the mean stays unbiased in the same sense, and no arm is pulled more
      than this share beyond need. ``growth=0`` is the paper's single cycle, at the price of a plan for each;
    - a cycle counts the return at its end and not the visit at its beginning: the same number of pulls of the same
      distribution;
    - a second block on the same arm begins with the return that ended the first block, not with a further return.

    An arm that never returns to its regenerative state, such as a transient first state, is pulled for ever; the paper
    takes chains to be irreducible.
    """

    name: ClassVar[str] = "rca"
    width: float = 2.0
    growth: float = 0.1

    def __post_init__(self) -> None:
        for option in ("width", "growth"):
            positive(f"rca: {option}", getattr(self, option), or_zero=True)

    def check_notes(self, notes: Mapping[str, Any], record: Record) -> None:
        super().check_notes(notes, record)
        check_known(notes["phase"], ("meet", "cycles", "return", "approach"), "rca: phase is")
        for arm, (state, n) in enumerate(zip(notes["states"], record.n_states.tolist(), strict=True)):
            if state is not None or (arm == notes["arm"] and notes["phase"] != "meet"):
                check_int(f"rca: states[{arm}]", state, 0, n - 1)

    def first(self, task: Task) -> Notes:
        return {"phase": "meet", "fresh": False, "states": [None] * task.n_arms}

    def advance(self, notes: Mapping[str, Any], record: Record, task: Task) -> Notes:
        arm, phase = notes["arm"], notes["phase"]
        state = int(record.last_state[arm])
        if phase == "meet":
            if state >= record.n_states[arm]:  # its answer was lost
                return {**notes, "fresh": False}
            states = list(notes["states"])
            states[arm] = state
            return self.cycles({**notes, "states": states})
        if phase == "approach":
            return self.cycles(notes)
        if state != notes["states"][arm]:
            return {**notes, "phase": "return", "fresh": False}
        notes = _counted(notes, record)
        chosen = self.choose(notes, task)
        if notes["states"][chosen] is None:
            return {**notes, "arm": chosen, "phase": "meet", "fresh": False}
        if chosen == arm:
            return self.cycles(notes)
        return {**notes, "arm": chosen, "phase": "approach", "fresh": False}

    def cycles(self, notes: Mapping[str, Any]) -> Notes:
        """The notes of a plan that begins right after its arm was observed in its regenerative state."""
        slots = int(min(self.growth * notes["counted"][notes["arm"]], LONGEST_EPOCH))
        return {**notes, "phase": "cycles" if slots else "return", "slots": slots, "fresh": True}

    def choose(self, notes: Notes, task: Task) -> int:
        """The arm of highest index, an arm without a cycle first."""
        counted = np.array(notes["counted"])
        if not counted.all():
            return int(counted.argmin())
        bonus = np.sqrt(self.width * math.log(counted.sum()) / counted)
        widths = np.array([high - low for low, high in task.reward_ranges])
        return int((np.array(notes["earned"]) / counted + widths * bonus).argmax())

    def planned(self, notes: Notes) -> Plan:
        arm, phase = notes["arm"], notes["phase"]
        if phase in ("meet", "cycles"):
            return Plan(SingleArm(arm), until=Slots(1 if phase == "meet" else notes["slots"]))
        return Plan(SingleArm(arm), until=SeenIn(arm, notes["states"][arm]))


@dataclass(frozen=True)
class DSEE(_Noted):
    """Explore every arm for 4^n slots in the n-th exploration epoch, exploit for 2 · 4^n in the n-th exploitation
    epoch.

    Epochs count from 0. After each epoch, the next explores if each arm has been explored for less than D ln t slots,
    and otherwise pulls the arm of highest mean over all exploration.

    Differs from the paper: D is an option. The paper derives D from bounds on the chains' eigenvalues and on the gaps
    between the arms' means, both unknown to a learner. With a D too small for the problem the logarithmic bound is
    lost, as in the paper.
    """

    name: ClassVar[str] = "dsee"
    exploration: float = 10.0

    def __post_init__(self) -> None:
        positive("dsee: exploration", self.exploration)

    def check_notes(self, notes: Mapping[str, Any], record: Record) -> None:
        super().check_notes(notes, record)
        for key in ("explorations", "exploitations"):
            # An epoch of 4^64 slots never ends.
            check_int(f"dsee: {key}", notes[key], 0, 64)

    def first(self, task: Task) -> Notes:
        return {"exploring": True, "fresh": True, "explorations": 0, "exploitations": 0}

    def advance(self, notes: Mapping[str, Any], record: Record, task: Task) -> Notes:
        arm = notes["arm"]
        if notes["exploring"]:
            notes = _counted(notes, record)
            if arm + 1 < record.n_arms:
                return {**notes, "arm": arm + 1, "fresh": True}
            notes = {**notes, "explorations": notes["explorations"] + 1}
        else:
            notes = {**notes, "exploitations": notes["exploitations"] + 1}
        explored = (4 ** notes["explorations"] - 1) // 3
        if explored < self.exploration * math.log(record.slots):
            return {**notes, "arm": 0, "exploring": True, "fresh": True}
        means = np.array(notes["earned"]) / np.maximum(notes["counted"], 1)
        return {**notes, "arm": int(means.argmax()), "exploring": False, "fresh": False}

    def planned(self, notes: Notes) -> Plan:
        slots = 4 ** notes["explorations"] if notes["exploring"] else 2 * 4 ** notes["exploitations"]
        return Plan(SingleArm(notes["arm"]), until=Slots(min(slots, LONGEST_EPOCH)))
