"""Validates feedback: resolves arms, rejects impossible values, detects duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ConflictError, ProblemError, did_you_mean, shortened
from restless_bandits._internal.validation import is_number, is_whole
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task

FORGETFUL = ("forget", "forget-all")
SAME_REWARD = 1e-9
"""Rewards of a fixed distribution are equal if they differ by at most this share of the largest possible difference."""


@dataclass(frozen=True)
class Decision:
    """A decision with missing feedback: its slot number, and the arms without feedback."""

    slot: int
    arms: tuple[int, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FeedbackValidator:
    """Checks of feedback against a task."""

    task: Task

    def arms_of(self, arm: Any) -> list[int]:
        """Return the numbers of arms given by name or number."""
        plays = self.task.plays
        if plays == 1 or not is_sequence(arm):
            return [self.number_of(arm)]
        if not 1 <= len(arm) <= plays:
            raise ProblemError(f"arm is {shortened(arm)}; with {plays} plays name an arm, or at most {plays} of them")
        arms = [self.number_of(one) for one in arm]
        if len(set(arms)) < len(arms):
            raise ProblemError(f"arms {arms} are not distinct; an arm can be pulled once a slot")
        return arms

    def number_of(self, arm: Any) -> int:
        """Return the number of an arm given by name or number."""
        names = self.task.names
        if isinstance(arm, str):
            if names.count(arm) != 1:
                why = f"there is no arm {shortened(arm)}; {did_you_mean(arm[:60], names)}"
                raise ProblemError(f"two arms are called {arm!r}; give its number" if arm in names else why)
            return names.index(arm)
        if not is_whole(arm) or not 0 <= arm < self.task.n_arms:
            raise ProblemError(f"there is no arm {arm!r}; arms are 0 to {self.task.n_arms - 1}")
        return int(arm)

    def by_arm(self, arms: list[int], named: Any, state: Any, reward: Any) -> list[tuple[int, Any, Any]]:
        """Return the feedback of each arm, in ascending order of arms."""
        single = self.task.plays == 1 or (named is not None and not is_sequence(named))
        states, rewards = _listed(state, "state", len(arms), single), _listed(reward, "reward", len(arms), single)
        states = [self.task.state_number(arm, one) for arm, one in zip(arms, states, strict=True)]
        return sorted(zip(arms, states, rewards, strict=True), key=lambda one: one[0])

    def new_feedback(
        self, slot: int, seen: list[tuple[int, Any, Any]], received: Mapping[int, tuple[int, float]]
    ) -> list[tuple[int, int, float]]:
        """Return the new part of checked feedback; feedback that contradicts earlier feedback is refused."""
        new = [(arm, int(state), float(reward)) for arm, state, reward in seen if arm not in received]
        for arm, state, reward in seen:
            if arm in received and received[arm] != (state, reward):
                before, now = (f"state {s} with reward {r:.12g}" for s, r in (received[arm], (state, float(reward))))
                raise ConflictError(
                    f"slot {slot}: arm {self.task.names[arm]!r} was reported in {before}, and now in {now}; the "
                    "first report stands"
                )
        if len(received) + len(new) > self.task.plays:
            known = ", ".join(repr(self.task.names[i]) for i in sorted(received))
            raise ConflictError(f"slot {slot} has its answer, of {known}; {pulled(self.task.plays)} a slot")
        return new

    def check_possible(self, arm: int, state: Any, reward: Any) -> float:
        """Refuse a state or a reward impossible for an arm."""
        n_states = self.task.n_states[arm]
        if not is_whole(state) or not 0 <= state < n_states:
            raise ProblemError(
                f"arm {self.task.names[arm]!r} has no state {state!r}; its states are 0 to {n_states - 1}"
            )
        return self.task.check_reward(arm, reward)

    def check(self, record: Record, arm: int, state: Any, reward: Any, *, may_change: bool) -> None:
        """Refuse an impossible observation of an arm; with ``may_change``, a change of fixed rewards is possible."""
        name, reward = self.task.names[arm], self.check_possible(arm, state, reward)
        if self.contradicts(record, arm, state, reward) and not may_change:
            before = record.mean_rewards(arm, 0.0)[state]
            raise ProblemError(
                f"arm {name!r}: state {state} gave {before:.12g} before and {reward:.12g} now, but its rewards are "
                "fixed; on_change='forget' treats the difference as a change, in the present slot"
            )

    def contradicts(self, record: Record, arm: int, state: int, reward: float) -> bool:
        """Return whether a reward of a fixed distribution differs from earlier rewards."""
        if self.task.reward_laws[arm] != "fixed":
            return False
        apart = abs(float(record.mean_rewards(arm, reward)[state]) - reward)
        return apart > SAME_REWARD * max(map(abs, self.task.reward_ranges[arm]))


def is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def reward_of(reward: Any, cost: Any) -> Any:
    """Return the reward of a slot, of which the cost may be given instead; a cost that is no number is returned."""
    if cost is None:
        return reward
    if reward is not None:
        raise ProblemError("reward and cost are given; give one of the two")
    if is_sequence(cost):
        return [reward_of(None, one) for one in cost]
    return 0.0 - cost if is_number(cost) else cost


def _listed(value: Any, what: str, length: int, single: bool) -> list[Any]:
    """Feedback as a list, with an entry for each arm."""
    if single:
        return [value]
    if not is_sequence(value) or len(value) != length:
        raise ProblemError(f"{what} is {value!r}; with {length} plays give a sequence of that length")
    return list(value)


def pulled(plays: int) -> str:
    return "one arm is pulled" if plays == 1 else f"{plays} arms are pulled"
