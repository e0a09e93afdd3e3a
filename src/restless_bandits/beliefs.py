"""Beliefs: what can be known of an arm, cut to a finite number, and the joint beliefs of a problem.

What is known of an arm is the pair (last seen state s, elapsed slots τ). There are infinitely many such pairs, but as
τ grows the law of an ergodic chain forgets s. So pairs with τ ≥ L, the *cap*, are taken as one belief with the
stationary law; the total variation between that law and the true ones is kept as the belief's ``deviation`` and every
bound computed from capped beliefs accounts for it. An arm never seen is in that belief from the start.

A chain that does not forget (several recurrent classes, or a period) keeps s beyond the cap, and steps through one
period there. The laws of a table arm stay put beyond its end by definition, so its cap costs nothing unless it is cut.

With ``plays`` arms pulled in every slot, that many arms have τ = 1 in every belief after the first. A joint belief is
therefore stored in the *block* of the arms just pulled, whose coordinates are their states, next to the beliefs of all
other arms: for four arms this is a thousand times smaller than the product of all beliefs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from restless_bandits import markov
from restless_bandits.arrays import Array, IntArray
from restless_bandits.errors import ProblemError
from restless_bandits.problem import AnyArm, Arm, Problem, TableArm

UNKNOWN = -1
"""The last seen state of an arm that was never seen."""

LONGEST_CAP = 1 << 14
LONGEST_PERIOD = 1 << 10
MOST_CHOICES = (1 << 15) - 1


@dataclass(frozen=True)
class ArmBeliefs:
    """The capped beliefs of one arm, numbered from 0.

    ``law[b]`` is the law of the state seen if the arm is pulled in belief b; if it is not, b turns into ``passive[b]``;
    seeing k leads to ``first[k]``, that is (k, τ = 1). ``deviation[b]`` bounds the total variation between ``law[b]``
    and every true law that b stands for.
    """

    law: Array
    passive: IntArray
    first: IntArray
    deviation: Array
    rewards: Array
    numbers: IntArray
    """``numbers[s, τ - 1]`` is the belief for τ up to the cap; the last row is for an arm never seen."""
    period: int
    start: int

    @property
    def size(self) -> int:
        return len(self.law)

    @property
    def cap(self) -> int:
        return int(self.numbers.shape[1])

    @property
    def n_states(self) -> int:
        return len(self.first)

    @cached_property
    def reward(self) -> Array:
        """Mean reward of pulling the arm in each belief."""
        means: Array = self.law @ self.rewards
        return means

    @cached_property
    def last_state(self) -> IntArray:
        """For each belief the first last-seen state that leads to it, ``UNKNOWN`` if only an arm never seen does."""
        return self._origin[0]

    @cached_property
    def elapsed(self) -> IntArray:
        """For each belief the fewest elapsed slots that lead to it."""
        return self._origin[1]

    @cached_property
    def _origin(self) -> tuple[IntArray, IntArray]:
        states = np.full(self.size, UNKNOWN, dtype=np.int64)
        slots = np.full(self.size, self.cap, dtype=np.int64)
        for tau in range(self.cap, 0, -1):
            for s in range(self.n_states - 1, -1, -1):
                b = self.numbers[s, tau - 1]
                states[b], slots[b] = s, tau
        return states, slots

    def locate(self, last_state: npt.ArrayLike, elapsed: npt.ArrayLike) -> IntArray:
        """Return the belief for last seen states (``UNKNOWN`` for never) and elapsed slots."""
        states = np.asarray(last_state, dtype=np.int64)
        slots = np.asarray(elapsed, dtype=np.int64)
        beyond = self.cap - self.period + (slots - self.cap - 1) % self.period + 1
        column = np.where(slots <= self.cap, slots, beyond) - 1
        found: IntArray = self.numbers[states, column]
        return found


def arm_beliefs(arm: AnyArm, cap: int, *, forget: bool = True) -> ArmBeliefs:
    """Return the beliefs of an arm, capped.

    With ``forget=False`` an ergodic arm keeps its last state beyond the cap, for policies that look at it there.
    """
    if isinstance(arm, TableArm):
        return _table_beliefs(arm, min(cap, arm.length), forget)
    if not arm.is_ergodic:
        return _unforgetting_beliefs(arm, cap)
    laws = markov.powers(arm.chain, cap)
    deviation = float(markov.distances(laws[cap], arm.stationary))
    if forget:
        return forgetting_beliefs(laws[1:cap], arm.stationary, deviation, arm)
    grid = np.concatenate([laws[1:], np.broadcast_to(arm.stationary, (cap, 1, arm.n_states))], axis=1)
    grid[-1] = arm.stationary
    spread = np.zeros((cap, arm.n_states + 1))
    spread[-1, :-1] = deviation
    return _grid(grid, spread, arm, period=1)


def forgetting_beliefs(laws: Array, limit: Array, deviation: float, arm: AnyArm) -> ArmBeliefs:
    """Beliefs (s, τ < cap) and one for all that lies at or beyond the cap; ``laws[τ - 1]`` are those below it."""
    below, n = len(laws), arm.n_states
    last = n * below
    numbers = np.full((n + 1, below + 1), last, dtype=np.int64)
    numbers[:n, :below] = np.arange(last).reshape(n, below)
    passive = np.append(numbers[:n, 1:].reshape(-1), last)
    deviations = np.zeros(last + 1)
    deviations[last] = deviation
    return ArmBeliefs(
        law=np.concatenate([laws[:, :n].transpose(1, 0, 2).reshape(last, n), limit[None]]),
        passive=passive,
        first=numbers[:n, 0].copy(),
        deviation=deviations,
        rewards=arm.rewards,
        numbers=numbers,
        period=1,
        start=last if arm.initial is None else int(numbers[arm.initial, 0]),
    )


def remembering_beliefs(laws: Array, arm: Arm) -> ArmBeliefs:
    """Beliefs (s, τ ≤ cap) that stay as they are at the cap, whether or not their chain has forgotten s by then.

    ``laws[τ - 1]`` are those up to the cap. Nothing is known of how far they are from the true ones beyond it.
    """
    if arm.initial is None:
        laws = np.concatenate([laws, np.broadcast_to(arm.stationary, (len(laws), 1, arm.n_states))], axis=1)
    return _grid(laws, np.ones(laws.shape[:2]), arm, period=1)


def _grid(laws: Array, deviation: Array, arm: AnyArm, period: int) -> ArmBeliefs:
    """Beliefs (s, τ ≤ cap), unseen row included, that step back by a period at the cap: ``laws[τ - 1][s]``."""
    cap, rows, n = laws.shape
    numbers = np.arange(rows * cap).reshape(rows, cap)
    passive = np.concatenate([numbers[:, 1:], numbers[:, cap - period, None]], axis=1)
    if arm.initial is not None and rows == n:
        numbers = np.concatenate([numbers, numbers[arm.initial, None]])
    return ArmBeliefs(
        law=laws.transpose(1, 0, 2).reshape(rows * cap, n),
        passive=passive.reshape(-1),
        first=numbers[:n, 0].copy(),
        deviation=deviation.T.reshape(-1),
        rewards=arm.rewards,
        numbers=numbers,
        period=period,
        start=int(numbers[n if arm.initial is None else arm.initial, 0]),
    )


def _unforgetting_beliefs(arm: Arm, cap: int) -> ArmBeliefs:
    """Beliefs of a chain with several recurrent classes or a period."""
    period = table_period(arm)
    if period > LONGEST_PERIOD:
        raise ProblemError(f"arm {arm.name!r} repeats itself only after {period} slots, too many to follow")
    cap = max(cap, period)
    laws = arm.law_table(cap)[1:]
    n = arm.n_states
    limits = markov.powers(arm.chain, period)[1:] @ _limit_of_powers(arm.chain, period)
    deviation = np.zeros(laws.shape[:2])
    for tau in range(cap - period + 1, cap + 1):
        gap = 0.5 * np.abs(laws[tau - 1, :n] - limits[(tau - 1) % period]).sum(axis=1)
        # Both this law and every later one of the same phase are within ``gap`` of their common limit.
        deviation[tau - 1, :n] = 2 * gap
    deviation[deviation < 4e-16] = 0.0
    return _grid(laws, deviation, arm, period)


def table_period(arm: AnyArm) -> int:
    """Return the steps by which an arm's laws repeat at the end of a table: 1 unless its chain has a period."""
    if isinstance(arm, TableArm) or arm.is_ergodic:
        return 1
    return math.lcm(*(markov.period(arm.chain, members) for members in markov.recurrent_classes(arm.chain)))


def _limit_of_powers(chain: Array, period: int) -> Array:
    """Lim P^{kd} as k grows, for d a multiple of every class's period."""
    matrix: Array = np.linalg.matrix_power(chain, period)
    for _ in range(60):
        squared = matrix @ matrix
        squared /= squared.sum(axis=1, keepdims=True)
        if np.abs(squared - matrix).max() <= 1e-16:
            break
        matrix = squared
    return matrix


def _table_beliefs(arm: TableArm, cap: int, forget: bool) -> ArmBeliefs:
    laws = arm.law_table(arm.length)[1:]
    end = laws[-1]
    if forget and np.ptp(end, axis=0).max() == 0 and np.ptp(laws[:, arm.n_states :], axis=0).max(initial=0) == 0:
        gaps = markov.distances(laws, end[0])
        return forgetting_beliefs(laws[: cap - 1], end[0], float(gaps[cap - 1 :].max()), arm)
    deviation = np.zeros((cap, laws.shape[1]))
    beyond = np.abs(laws[cap - 1 :] - laws[cap - 1]).sum(axis=-1).max(axis=0)
    deviation[-1] = 0.5 * beyond
    return _grid(laws[:cap], deviation, arm, period=1)


def cap_for(arm: AnyArm, deviation: float, longest: int = LONGEST_CAP) -> int:
    """Return the first cap whose deviation is at most the given one, or the longest allowed."""
    if isinstance(arm, TableArm):
        return _table_cap(arm, deviation, longest)
    if not arm.is_ergodic:
        return _unforgetting_cap(arm, deviation, longest)
    found = markov.mixing_time(arm.chain, 2 * deviation)
    return longest if found is None else min(found, longest)


def _table_cap(arm: TableArm, deviation: float, longest: int) -> int:
    laws = arm.law_table(arm.length)[1:]
    low, high = 1, len(laws)
    while low < high:
        middle = (low + high) // 2
        if float(_table_beliefs(arm, middle, True).deviation.max()) <= deviation:
            high = middle
        else:
            low = middle + 1
    return min(low, longest)


def _unforgetting_cap(arm: Arm, deviation: float, longest: int) -> int:
    cap = 1
    while cap < longest and float(arm_beliefs(arm, cap).deviation.max()) > deviation:
        cap *= 2
    low, high = cap // 2 + 1, min(cap, longest)
    while low < high:
        middle = (low + high) // 2
        if float(arm_beliefs(arm, middle).deviation.max()) <= deviation:
            high = middle
        else:
            low = middle + 1
    return arm_beliefs(arm, high).cap


class JointBeliefs:
    """The joint beliefs of several arms with a number of plays, in blocks by the arms just pulled.

    Block a belongs to ``actions[a]``. Inside it a joint belief has one digit an arm: the state seen for an arm of
    the action, the belief number for any other; the digit of ``order[-1]`` runs fastest.
    """

    def __init__(self, arms: Sequence[ArmBeliefs], plays: int) -> None:
        choices = math.comb(len(arms), plays)
        if choices > MOST_CHOICES:
            raise ProblemError(
                f"{plays} plays of {len(arms)} arms leave {choices} choices a slot, too many for a table"
            )
        self.arms = tuple(arms)
        self.plays = plays
        n = len(arms)
        self.actions = np.array(list(itertools.combinations(range(n), plays)), dtype=np.int64)
        self.radix = np.array(
            [[arm.n_states if i in action else arm.size for i, arm in enumerate(arms)] for action in self.actions],
            dtype=np.int64,
        )
        # The arm with the most beliefs runs fastest, which gives sweeps over the table their long rows.
        self.order = np.argsort([arm.size for arm in arms], kind="stable")
        self.strides = np.ones_like(self.radix)
        for slower, faster in zip(self.order[-2::-1], self.order[:0:-1], strict=True):
            self.strides[:, slower] = self.strides[:, faster] * self.radix[:, faster]
        self.offsets = np.concatenate([[0], np.cumsum(self.radix.prod(axis=1))])

    @staticmethod
    def count(sizes: Sequence[int], n_states: Sequence[int], plays: int) -> int:
        """Return how many joint beliefs there would be, without making them."""
        # The elementary symmetric polynomial Σ_A Π_{i∈A} states_i Π_{j∉A} size_j by its recursion over arms.
        totals = [1] + [0] * plays
        for size, states in zip(sizes, n_states, strict=True):
            for k in range(plays, -1, -1):
                totals[k] = totals[k] * size + (totals[k - 1] * states if k else 0)
        return totals[plays]

    @property
    def n_arms(self) -> int:
        return len(self.arms)

    @property
    def size(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def start(self) -> IntArray:
        """The beliefs of the arms before slot 1."""
        return np.array([arm.start for arm in self.arms], dtype=np.int64)

    @cached_property
    def _seen(self) -> list[IntArray]:
        """For each arm and belief the state just seen, −1 where τ > 1."""
        tables = []
        for arm in self.arms:
            table = np.full(arm.size, -1, dtype=np.int64)
            table[arm.first[::-1]] = np.arange(arm.n_states)[::-1]
            tables.append(table)
        return tables

    def index(self, beliefs: IntArray) -> IntArray:
        """Return the place of each joint belief (a row of belief numbers), −1 for one in no block.

        In no block are beliefs in which fewer than ``plays`` arms have τ = 1: the start of a problem with unknown
        initial states, and whatever follows slots in which nothing was pulled.
        """
        seen = np.stack([table[beliefs[:, i]] for i, table in enumerate(self._seen)], axis=1)
        result = np.full(len(beliefs), -1, dtype=np.int64)
        for a, action in enumerate(self.actions):
            fits = (result < 0) & (seen[:, action] >= 0).all(axis=1)
            if fits.any():
                digits = beliefs[fits].copy()
                digits[:, action] = seen[np.ix_(fits, action)]
                result[fits] = self.offsets[a] + digits @ self.strides[a]
        return result

    def locate(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        """Return belief numbers, row by row, for last seen states and elapsed slots."""
        columns = [arm.locate(last_states[:, i], elapsed[:, i]) for i, arm in enumerate(self.arms)]
        return np.stack(columns, axis=1)

    def successors(self, beliefs: IntArray, action: int) -> tuple[IntArray, Array]:
        """Return the joint beliefs after an action and their probabilities: arrays (n, outcomes, arms), (n, outcomes).

        Outcomes run over the states of the action's arms, the last of them fastest.
        """
        pulled = self.actions[action]
        after = np.stack([arm.passive[beliefs[:, i]] for i, arm in enumerate(self.arms)], axis=1)
        outcomes = np.array(list(itertools.product(*(range(self.arms[i].n_states) for i in pulled))), dtype=np.int64)
        successors = np.repeat(after[:, None, :], len(outcomes), axis=1)
        chances = np.ones((len(beliefs), len(outcomes)))
        for position, i in enumerate(pulled):
            arm = self.arms[i]
            successors[:, :, i] = arm.first[outcomes[:, position]]
            chances *= arm.law[beliefs[:, i]][:, outcomes[:, position]]
        return successors, chances

    def rewards(self, beliefs: IntArray, action: int) -> Array:
        """Return the mean reward of an action in each joint belief."""
        total: Array = sum((self.arms[i].reward[beliefs[:, i]] for i in self.actions[action]), np.zeros(len(beliefs)))
        return total

    def refine(self, values: Array, finer: JointBeliefs) -> Array:
        """Carry a function over to finer joint beliefs: each takes the value of the coarser one it is cut to."""
        maps = []
        for coarse, fine in zip(self.arms, finer.arms, strict=True):
            states = np.where(fine.last_state == UNKNOWN, fine.n_states, fine.last_state)
            maps.append(coarse.locate(states, fine.elapsed))
        result = np.empty(finer.size)
        for a, action in enumerate(self.actions):
            block = values[self.offsets[a] : self.offsets[a + 1]].reshape(self.radix[a, self.order])
            block = block.transpose(np.argsort(self.order)).transpose(finer.order)
            picks = [np.arange(self.radix[a, i]) if i in action else maps[i] for i in finer.order]
            result[finer.offsets[a] : finer.offsets[a + 1]] = block[np.ix_(*picks)].reshape(-1)
        return result


def joint_beliefs(problem: Problem, caps: Sequence[int], *, forget: bool = True) -> JointBeliefs:
    """Return the joint beliefs of a problem with a cap for each arm."""
    arms = [arm_beliefs(arm, cap, forget=forget) for arm, cap in zip(problem.arms, caps, strict=True)]
    return JointBeliefs(arms, problem.plays)
