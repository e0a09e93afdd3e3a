"""Observed arms of a log: steps between consecutive slots, and their counts by kind or by arm.

A log of observed arms has the state of each arm in each slot, and the action that was taken after a look at it. A step
of an arm is a pair of consecutive slots: the next state is a draw from the row (state, action). Counts of steps are
therefore all that a fit needs, and rows are shares of counts with a flat prior (Dirichlet(1)): (count + 1) / (total +
states), standard errors √(p(1 − p) / (total + states)).

*Actions may depend on the past.* Rows stay right, as long as an action depends on what the log has: states, actions and
rewards until the slot. A row without any step cannot be told from the log. Such a row is taken from the other action,
so that a pull is assumed to change nothing where no pull was seen, and has no standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.estimation import PRIOR
from restless_bandits.logs.traces import SAME_REWARD, Trace
from restless_bandits.model.rewards import RewardLaw

GROUPINGS = ("kind", "arm", "all")
ACTIONS = ("rest", "pull")
LEAST_SPREAD = 1e-3
"""The least distance of a fitted spread from 0 and 1, where the beta distribution does not exist."""
FEW_STEPS = 10
"""The number of steps below which a row is called rare: its standard errors may exceed 0.15."""
FEW_ARMS, SMALL_SHARE = 5.0, 0.1
"""Steps of a row are called selective if effectively fewer arms, and a smaller share of a group's arms, made them."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of observed arms between consecutive slots, sorted by arm and slot."""

    arms: IntArray
    slots: IntArray
    """The slot before the step."""
    actions: IntArray
    before: IntArray
    after: IntArray
    previous: IntArray
    """``2 · state + action`` one slot before the step, −1 where the log has no such line."""

    def __len__(self) -> int:
        return len(self.arms)


def steps_between(trace: Trace) -> Steps:
    """Return the steps of all arms of a log with actions."""
    assert trace.actions is not None
    order = np.lexsort((trace.times, trace.arms))
    arms, slots, states, actions = (column[order] for column in (trace.arms, trace.times, trace.states, trace.actions))
    follows = (np.diff(arms) == 0) & (np.diff(slots) == 1)
    rows = np.flatnonzero(follows)
    known = np.append(False, follows)[rows]
    previous = np.where(known, 2 * states[rows - 1] + actions[rows - 1], -1)
    return Steps(arms[rows], slots[rows], actions[rows], states[rows], states[rows + 1], previous)


@dataclass(frozen=True, eq=False)
class ObservedGroup:
    """The counts of a kind, or of a single arm."""

    name: str
    arms: IntArray
    """The numbers of the arms."""
    lines: int
    counts: IntArray
    """Steps by action, state and next state."""
    behind: Array
    """The effective number of arms behind the steps of each action and state."""
    rewards: Array
    """Mean rewards by action and state."""
    reward_errors: Array
    """Their standard errors, NaN where unknown."""
    reward_law: RewardLaw
    reward_spread: float | None
    in_states: IntArray
    """Lines by action and state."""

    @cached_property
    def totals(self) -> IntArray:
        """Steps by action and state."""
        return np.asarray(self.counts.sum(axis=2))

    @cached_property
    def chains(self) -> Array:
        """The rows by action, state and next state."""
        n = self.counts.shape[2]
        rows = (self.counts + PRIOR) / (self.totals + n * PRIOR)[:, :, None]
        empty = self.totals == 0
        return np.asarray(np.where((empty & ~empty[::-1])[:, :, None], rows[::-1], rows))

    @cached_property
    def errors(self) -> Array:
        """Standard errors of the rows, NaN for rows without a step."""
        n = self.counts.shape[2]
        found = np.sqrt(self.chains * (1 - self.chains) / (self.totals + n * PRIOR)[:, :, None])
        return np.where((self.totals == 0)[:, :, None], math.nan, found)

    @property
    def is_seen(self) -> bool:
        """Whether every row of a state that was seen has a step."""
        return not bool((self.totals == 0)[:, self.in_states.sum(axis=0) > 0].any())

    def doubts(self, word: str) -> Iterator[str]:
        """Yield sentences about rows with too few or too selective steps; ``word`` is kind or arm."""
        for action, verb in enumerate(ACTIONS):
            for state, total in enumerate(self.totals[action].tolist()):
                row = f"{word} {self.name!r}: after a {verb} in state {state}"
                if self.in_states[:, state].sum() == 0:
                    if action == 0:
                        yield f"{word} {self.name!r} was never seen in state {state}, so its rows there are not known"
                elif total == 0:
                    other = ACTIONS[1 - action]
                    taken = f"is taken from that of a {other}" if self.totals[1 - action, state] else "is the prior"
                    yield f"{row} no step was logged; its row {taken}, and an effect of the pull cannot be told"
                elif total < FEW_STEPS:
                    yield f"{row} only {total} step{'s were' if total > 1 else ' was'} logged, and the row is vague"
                elif self.behind[action, state] < min(FEW_ARMS, SMALL_SHARE * len(self.arms)):
                    yield (
                        f"{row} the {total} steps come from effectively {self.behind[action, state]:.1f} of "
                        f"{len(self.arms)} arms, so the row is right for the others only if the arms are alike"
                    )

    def as_dict(self) -> dict[str, Any]:
        return {
            "arms": len(self.arms),
            "steps": self.counts,
            "effective_arms": self.behind,
            "mean_rewards": self.rewards,
            "mean_reward_errors": self.reward_errors,
        }


def groups_of(trace: Trace, by: str | None) -> tuple[IntArray, tuple[str, ...], str]:
    """Return the group of each arm, the names of the groups, and what a group is: ``kind``, ``arm`` or ``all``."""
    by = ("kind" if trace.kinds else "arm") if by is None else by
    check_known(by, GROUPINGS, "arms are not grouped by")
    if by == "arm":
        return np.arange(trace.n_arms), trace.names, by
    if by == "all":
        return np.zeros(trace.n_arms, dtype=np.int64), ("arm",), by
    if trace.kinds is None:
        raise ProblemError("the log has no column kind; name it (--columns kind=NAME), or group by arm or all")
    return *trace.kinds, by


def counted(trace: Trace, steps: Steps, of_arm: IntArray, names: tuple[str, ...]) -> tuple[ObservedGroup, ...]:
    """Return the counts of each group of arms."""
    assert trace.actions is not None
    n, size = trace.n_states, len(names)
    rows = (of_arm[steps.arms] * 2 + steps.actions) * n + steps.before
    counts = np.bincount(rows * n + steps.after, minlength=size * 2 * n * n).reshape(size, 2, n, n)
    keys, each = np.unique(rows * trace.n_arms + steps.arms, return_counts=True)
    squares = np.bincount(keys // trace.n_arms, weights=each.astype(np.float64) ** 2, minlength=size * 2 * n)
    totals = counts.sum(axis=3)
    behind = totals**2 / np.maximum(squares.reshape(size, 2, n), 1.0)
    lines = np.bincount(of_arm[trace.arms], minlength=size)
    seen = np.bincount((of_arm[trace.arms] * 2 + trace.actions) * n + trace.states, minlength=size * 2 * n)
    paid = _paid(trace, of_arm, size)
    members = np.split(np.argsort(of_arm, kind="stable"), np.cumsum(np.bincount(of_arm, minlength=size))[:-1])
    return tuple(
        ObservedGroup(
            name,
            members[k],
            int(lines[k]),
            counts[k],
            behind[k],
            in_states=seen.reshape(size, 2, n)[k],
            **{word: values[k] for word, values in paid.items()},
        )
        for k, name in enumerate(names)
    )


def _paid(trace: Trace, of_arm: IntArray, size: int) -> Mapping[str, Any]:
    """The rewards of each group: means by action and state with standard errors, and the distribution.

    A mean without a line is that of all groups, or else that of the other action.
    """
    assert trace.actions is not None
    n, (low, high) = trace.n_states, trace.reward_range
    if trace.levels is not None:
        means = np.broadcast_to(np.array(trace.levels), (size, 2, n)).copy()
        of_all = {"reward_law": ["fixed"] * size, "reward_spread": [None] * size}
        return {"rewards": means, "reward_errors": np.zeros_like(means), **of_all}
    cells = (of_arm[trace.arms] * 2 + trace.actions) * n + trace.states
    seen = np.bincount(cells, minlength=size * 2 * n)
    sums = np.bincount(cells, weights=trace.rewards, minlength=size * 2 * n)
    with np.errstate(invalid="ignore", divide="ignore"):
        raw = sums / seen
        gaps = trace.rewards - raw[cells]
        squares = np.bincount(cells, weights=gaps**2, minlength=size * 2 * n)
        errors = np.where(seen > 1, np.sqrt(squares / np.maximum(seen - 1, 1) / np.maximum(seen, 1)), math.nan)
        every = sums.reshape(size, 2, n).sum(axis=0) / seen.reshape(size, 2, n).sum(axis=0)
    every = np.where(np.isnan(every), every[::-1], every)
    means = raw.reshape(size, 2, n)
    means = np.where(np.isnan(means), np.where(np.isnan(every), (low + high) / 2, every), means).clip(low, high)
    of_line = of_arm[trace.arms]
    within = np.bincount(of_line, weights=gaps**2, minlength=size)
    largest = np.bincount(of_line, weights=(raw[cells] - low) * (high - raw[cells]), minlength=size)
    ends_only = np.bincount(of_line, weights=(trace.rewards != low) & (trace.rewards != high), minlength=size) == 0
    tiny = np.bincount(of_line, minlength=size) * (SAME_REWARD * max(abs(low), abs(high))) ** 2
    laws = np.where(ends_only, "bernoulli", np.where(within <= tiny, "fixed", "beta")).tolist()
    spreads = [
        float(np.clip(math.sqrt(w / most), LEAST_SPREAD, 1 - LEAST_SPREAD)) if law == "beta" else None
        for law, w, most in zip(laws, within, largest, strict=True)
    ]
    return {
        "rewards": means,
        "reward_errors": errors.reshape(size, 2, n),
        "reward_law": laws,
        "reward_spread": spreads,
    }
