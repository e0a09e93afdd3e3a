"""The certified optimum of small observed problems: relative value iteration over joint states, or over counts.

Joint states are tuples of states, and a choice of arms is applied axis by axis: the contraction along the axis of an
arm is shared by all choices that agree on the arms before. Arms of one kind are exchangeable, so the number of arms in
each state is enough: C(N + n − 1, n − 1) states in place of n^N.

For every function v, min (Tv − v) ≤ optimum ≤ max (Tv − v), widened by the rounding of one sweep. Where the bracket
stops shrinking, as it does for periodic chains, further sweeps move half of the way. A problem whose optimum depends on
the initial state leaves a bracket that does not close. With a discount β, the bracket is (1 − β) times the value from
the start: v at the start plus the extremes of Tv − v.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.kinds import KindGroup
from restless_bandits.oracles.observed.arms import ObservedArms

UNIT = 2.0**-53
DAMPING = 0.5
"""The weight of the old values in a sweep, once the bracket stops shrinking."""
STALLED_SWEEPS = 12
"""Sweeps without a narrower bracket after which sweeps are damped, and four times as many after which they end."""


@dataclass(frozen=True, eq=False)
class JointValues:
    """Values over the joint states of all arms, the choice in each, and a bracket of the optimum."""

    value: Array
    choice: IntArray
    """The number of the choice in each joint state, in the order of ``choices``."""
    choices: tuple[tuple[int, ...], ...]
    lower: float
    upper: float
    sweeps: int


def joint_choices(n_arms: int, plays: int, *, at_most: bool = False) -> tuple[tuple[int, ...], ...]:
    """Return all choices of arms, fewer than ``plays`` included if that is allowed."""
    sizes = range(plays + 1) if at_most else (plays,)
    found = [choice for size in sizes for choice in itertools.combinations(range(n_arms), size)]
    # In the order of the arms' actions, so that neighbours agree on the first arms.
    return tuple(sorted(found, key=lambda choice: [arm not in choice for arm in range(n_arms)]))


def joint_work(arms: ObservedArms) -> float:
    """Return about the multiplications of one sweep over joint states."""
    sizes = arms.layout.sizes
    fewest = 0 if arms.at_most else arms.plays
    leaves = sum(math.comb(arms.n_arms, size) for size in range(fewest, arms.plays + 1))
    states: list[int] = sizes.tolist()
    return math.prod(states) * leaves * 2.0 * max(states)


class JointSweep:
    """Sweeps of the optimality operator over the joint states of a few arms."""

    def __init__(self, arms: ObservedArms, discount: float = 1.0) -> None:
        self.discount = discount
        self.choices = joint_choices(arms.n_arms, arms.plays, at_most=arms.at_most)
        self.actions = np.zeros((len(self.choices), arms.n_arms), dtype=np.int64)
        for number, choice in enumerate(self.choices):
            self.actions[number, list(choice)] = 1
        most = int(arms.layout.n_states.max())
        self.sizes = arms.layout.sizes
        self.shape: tuple[int, ...] = tuple(self.sizes.tolist())
        self.chains = np.zeros((arms.n_arms, 2, most, most))
        self.rewards = np.zeros((arms.n_arms, 2, most))
        for i, kind in enumerate(np.repeat(np.arange(len(arms.layout.counts)), arms.layout.counts).tolist()):
            group = next(g for g in arms.groups if g.kinds.start <= kind < g.kinds.stop)
            k, n = kind - group.first, group.n_states
            self.chains[i, :, :n, :n] = group.passive[k], group.active[k]
            self.rewards[i, :, :n] = group.passive_rewards[k], group.active_rewards[k]
        self.largest = float(np.abs(self.rewards).max(axis=(1, 2)).sum())

    def __call__(self, value: Array) -> tuple[Array, IntArray]:
        """Return the best values after one slot and the choices that reach them, ties to the first choice."""
        from restless_bandits.oracles.observed.joint_sweep_kernels import sweep_joint

        best, choice = np.empty(value.size), np.zeros(value.size, dtype=np.int64)
        flat = np.ascontiguousarray(value * self.discount).reshape(-1)
        sweep_joint(self.actions, self.sizes, self.chains, self.rewards, flat, best, choice)
        return best.reshape(self.shape), choice.reshape(self.shape)

    def rounding(self, value: Array) -> float:
        """Return a bound of the rounding of one sweep at some values."""
        terms = sum(self.shape) + 3 * len(self.shape) + 4
        return terms * UNIT * (float(np.abs(value).max()) + self.largest)


def solve_joint(
    arms: ObservedArms,
    *,
    tolerance: float = 1e-9,
    discount: float = 1.0,
    most: int = 100_000,
    seconds: float = math.inf,
) -> JointValues:
    """Solve a problem over the joint states of its arms; after so many seconds the bracket may be wider."""
    deadline = time.perf_counter() + seconds
    sweep, start = JointSweep(arms, discount), np.ones(1)
    for group in arms.groups:
        for one, count in zip(group.start, group.count, strict=True):
            for _ in range(count):
                start = np.multiply.outer(start, one)
    found = _iterated(sweep, start.reshape(sweep.shape), ..., tolerance, discount, most, deadline)
    value, choice, low, high, sweeps = found
    return JointValues(value, choice, sweep.choices, low, high, sweeps)


@dataclass(frozen=True, eq=False)
class CountValues:
    """Values over the numbers of arms in each state, for arms of one kind, and a bracket of the optimum."""

    counts: IntArray
    """The possible counts, a row each."""
    value: Array
    pulls: IntArray
    """The number of arms to pull in each state, a row for each row of ``counts``."""
    lower: float
    upper: float
    sweeps: int


def compositions(total: int, parts: int) -> IntArray:
    """Return all ways to write a number as an ordered sum of so many numbers, in lexicographic order."""
    if parts == 1:
        return np.array([[total]])
    rows = [np.insert(compositions(total - first, parts - 1), 0, first, axis=1) for first in range(total + 1)]
    return np.concatenate(rows)


def count_states(n_arms: int, n_states: int) -> int:
    """Return the number of possible counts."""
    return math.comb(n_arms + n_states - 1, n_states - 1)


class CountSweep:
    """Sweeps of the optimality operator over counts of arms of one kind.

    Values are kept in a table with an axis for all states but the last. Averaging over the next state of one arm turns
    values for k arms into values for k − 1 arms; arms are added type by type, a type being a state and an action, and
    choices that agree on the first types share the work.
    """

    def __init__(
        self, group: KindGroup, n_arms: int, plays: int, *, at_most: bool = False, discount: float = 1.0
    ) -> None:
        self.n_arms, self.n_states, self.plays, self.discount = n_arms, group.n_states, plays, discount
        self.fewest = 0 if at_most else plays
        self.chains = group.active[0], group.passive[0]
        self.rewards = group.active_rewards[0], group.passive_rewards[0]
        self.shape = (n_arms + 1,) * (group.n_states - 1)
        self.counts = compositions(n_arms, group.n_states)
        self.largest = n_arms * float(max(np.abs(reward).max() for reward in self.rewards))

    def __call__(self, value: Array) -> tuple[Array, IntArray]:
        """Return the best values after one slot, and the pulls in each state that reach them, a row for each count."""
        best: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        self._branch(value * self.discount, 0.0, 0, (), (), best)
        after, pulls = np.zeros(self.shape), np.zeros_like(self.counts)
        for row, counts in enumerate(map(tuple, self.counts.tolist())):
            after[counts[:-1]], pulls[row] = best[counts]
        return after, pulls

    def _branch(
        self,
        table: Array,
        reward: float,
        state: int,
        counts: tuple[int, ...],
        pulls: tuple[int, ...],
        best: dict[tuple[int, ...], tuple[float, tuple[int, ...]]],
    ) -> None:
        """Choose the numbers of pulled and of resting arms in a state, then go on with the next state."""
        left, pulls_left = self.n_arms - sum(counts), self.plays - sum(pulls)
        if state == self.n_states:
            total = float(table.flat[0]) + reward
            if counts not in best or total > best[counts][0]:
                best[counts] = total, pulls
            return
        final = state == self.n_states - 1
        for pulled in range(min(left, pulls_left) + 1):
            if pulled:
                table = self._one_arm_less(table, self.chains[0][state])
                reward += float(self.rewards[0][state])
            if final and sum(pulls) + pulled < self.fewest:
                continue
            rest_table, rest_reward = table, reward
            for resting in range(left - pulled + 1):
                if resting:
                    rest_table = self._one_arm_less(rest_table, self.chains[1][state])
                    rest_reward += float(self.rewards[1][state])
                if final and resting < left - pulled:
                    continue
                if left - pulled - resting < pulls_left - pulled and self.fewest:
                    break
                self._branch(rest_table, rest_reward, state + 1, (*counts, pulled + resting), (*pulls, pulled), best)

    def _one_arm_less(self, table: Array, distribution: Array) -> Array:
        """Average over the next state of one arm."""
        smaller = [slice(0, size - 1) for size in table.shape]
        total = distribution[-1] * table[tuple(smaller)]
        for state in range(self.n_states - 1):
            shifted = list(smaller)
            shifted[state] = slice(1, table.shape[state])
            total = total + distribution[state] * table[tuple(shifted)]
        return np.asarray(total)

    def rounding(self, value: Array) -> float:
        """Return a bound of the rounding of one sweep at some values."""
        terms = self.n_arms * (self.n_states + 2) + 2 * self.n_states * self.n_arms + 4
        return terms * UNIT * (float(np.abs(value).max()) + self.largest)


def solve_counts(
    arms: ObservedArms,
    *,
    tolerance: float = 1e-9,
    discount: float = 1.0,
    most: int = 100_000,
    seconds: float = math.inf,
) -> CountValues:
    """Solve a problem of one kind over the numbers of arms in each state; see ``solve_joint``."""
    deadline = time.perf_counter() + seconds
    group = arms.groups[0]
    sweep = CountSweep(group, arms.n_arms, arms.plays, at_most=arms.at_most, discount=discount)
    inside = tuple(sweep.counts[:, :-1].T)
    start = np.zeros(sweep.shape)
    start[inside] = scipy.stats.multinomial.pmf(sweep.counts, arms.n_arms, group.start[0])
    value, pulls, low, high, count = _iterated(sweep, start, inside, tolerance, discount, most, deadline)
    return CountValues(sweep.counts, value[inside], pulls, low, high, count)


def _iterated(
    sweep: JointSweep | CountSweep,
    start: Array,
    inside: Any,
    tolerance: float,
    discount: float,
    most: int,
    deadline: float,
) -> tuple[Array, IntArray, float, float, int]:
    """Iterate until the bracket is narrower than the tolerance, or no longer shrinks; ``inside`` are real states.

    ``start`` holds the probability of each state in slot 1.
    """
    value = np.zeros(start.shape)
    narrowest, stalled, damping = np.inf, 0, 0.0
    count = 0
    while True:
        count += 1
        after, choice = sweep(value)
        step = (after - value)[inside]
        # The discounted value of the start, where Tv − v between a and b means values between v + a / (1 − β) and b.
        base = (1 - discount) * float((start * value).sum()) if discount < 1.0 else 0.0
        widen = sweep.rounding(value)
        low, high = base + float(step.min()) - widen, base + float(step.max()) + widen
        stalled = 0 if high - low < 0.999 * narrowest else stalled + 1
        narrowest = min(narrowest, high - low)
        ended = count == most or stalled == 4 * STALLED_SWEEPS or time.perf_counter() > deadline
        if high - low <= tolerance or ended:
            return value, choice, float(np.nextafter(low, -np.inf)), float(np.nextafter(high, np.inf)), count
        damping = DAMPING if stalled >= STALLED_SWEEPS else damping
        value = damping * value + (1 - damping) * after
        if discount == 1.0:
            value -= value.flat[0]
