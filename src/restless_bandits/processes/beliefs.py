"""Beliefs: the possible knowledge of an arm, truncated to a finite number, and the joint beliefs of a problem.

The belief of an arm is the pair (last observed state s, elapsed slots τ). There are infinitely many pairs, but as τ
grows the distribution of an ergodic chain forgets s. Pairs with τ ≥ L, the *truncation* (``truncation``), are merged
into a single belief with the stationary distribution. The total variation between the stationary and the true
distributions is the belief's ``tv_error``, and every bound computed from truncated beliefs accounts for the deviation.
An arm never observed is in the merged belief from the start.

A chain that does not forget (several recurrent classes, or a period) keeps s beyond the truncation, and steps through a
period there. The distributions of a table arm are constant beyond its end by definition: its truncation has no error
unless the table is shortened.

With ``plays`` arms pulled in every slot, exactly ``plays`` arms have τ = 1 in every belief after the first. A joint
belief is therefore stored in the *block* of the arms just pulled. Its coordinates are the states of the pulled arms and
the beliefs of all other arms. For four arms the table is a thousand times smaller than the product of all beliefs.
"""

from __future__ import annotations

import copy
import itertools
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm, TableArm, precompute_limits
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import LOST
from restless_bandits.processes.arm_process import ArmProcess

UNKNOWN = -1
"""The last observed state of an arm never observed; ``LOST`` is that of an arm whose last pull was not answered."""

LONGEST_TRUNCATION = 1 << 14
LONGEST_PERIOD = 1 << 10
MOST_CHOICES = (1 << 15) - 1

T = TypeVar("T", bound=np.generic)


def column_of(elapsed: int, truncation: int, period: int) -> int:
    """Return the column of a table for a number of elapsed slots: beyond the truncation, columns repeat with the
    period.

    In plain Python, for kernels to compile into their own code; ``columns_of`` is the same for arrays.
    """
    if elapsed <= truncation:
        return elapsed - 1
    return truncation - period + (elapsed - truncation - 1) % period


def columns_of(elapsed: IntArray, truncation: int, period: int) -> IntArray:
    """Return the columns of a table for numbers of elapsed slots: see ``column_of``."""
    return np.where(elapsed <= truncation, elapsed - 1, truncation - period + (elapsed - truncation - 1) % period)


def rows_of(last_state: IntArray, n_states: int) -> IntArray:
    """Return the rows of a table for last observed states: ``UNKNOWN`` and ``LOST`` are the rows after the states."""
    return np.where(last_state < 0, n_states - 1 - last_state, last_state)


def side_by_side(tables: Sequence[npt.NDArray[T]] | npt.NDArray[T]) -> npt.NDArray[T]:
    """Return tables of different sizes in one array; entries beyond a table are zero and never read."""
    shapes = [table.shape for table in tables]
    if shapes.count(shapes[0]) == len(shapes):
        return np.array(tables)
    together = np.zeros((len(tables), *map(max, zip(*shapes, strict=True))), dtype=tables[0].dtype)
    for place, table in zip(together, tables, strict=True):
        place[tuple(map(slice, table.shape))] = table
    return together


@dataclass(frozen=True)
class HiddenProcess(ArmProcess):
    """The process of an arm that is seen when pulled: its nodes are truncated beliefs, numbered from 0.

    Belief b has the distribution ``distribution[b]`` of the state that a pull shows. Without a pull, b turns into
    ``passive[b]``; an observation of k leads to ``after_pull[k]``, the pair (k, τ = 1). ``tv_error[b]`` bounds the
    total variation between ``distribution[b]`` and every true distribution merged into b.
    """

    distribution: Array
    rewards: Array
    """The mean reward of a pull in each state."""
    numbers: IntArray
    """``numbers[s, τ - 1]`` is the belief for τ up to the truncation. The row after the states is for an arm never
    pulled. A reacting arm has one more row, for an arm whose last pull was not answered.
    """
    period: int
    start_node: int

    @property
    def truncation(self) -> int:
        return int(self.numbers.shape[1])

    @property
    def n_states(self) -> int:
        return len(self.after_pull)

    @property
    def knows_lost_pulls(self) -> bool:
        """Whether there is a row for an arm whose last pull was not answered."""
        return len(self.numbers) == self.n_states + 2

    @property
    def passive(self) -> IntArray:
        """The belief after a slot without a pull."""
        return self.target[:: self.n_states + 1]

    @cached_property
    def last_state(self) -> IntArray:
        """For each belief the first last-observed state that leads to the belief; ``UNKNOWN`` for an arm never pulled
        only, ``LOST`` after an unanswered pull only.
        """
        return self._by_origin[0]

    @cached_property
    def elapsed(self) -> IntArray:
        """For each belief the fewest elapsed slots that lead to the belief."""
        return self._by_origin[1]

    @cached_property
    def _by_origin(self) -> tuple[IntArray, IntArray]:
        n, truncation = self.n_states, self.truncation
        states = np.full(self.size, UNKNOWN, dtype=np.int64)
        slots = np.full(self.size, truncation, dtype=np.int64)
        waits = np.broadcast_to(np.arange(truncation, 0, -1), (1, truncation))
        # Of several pairs with the same belief the last assignment counts: the fewest slots, and then the first state.
        if self.knows_lost_pulls:
            for row, code in ((n + 1, LOST), (n, UNKNOWN)):
                states[self.numbers[row]] = code
                slots[self.numbers[row, ::-1]] = waits[0]
        pairs = self.numbers[:n].T[::-1, ::-1]
        states[pairs] = np.broadcast_to(np.arange(n)[::-1], pairs.shape)
        slots[pairs] = np.broadcast_to(waits.T, pairs.shape)
        return states, slots

    def locate(self, last_state: npt.ArrayLike, elapsed: npt.ArrayLike) -> IntArray:
        """Return the belief for last observed states, ``UNKNOWN`` or ``LOST``, and elapsed slots."""
        columns = columns_of(np.asarray(elapsed, dtype=np.int64), self.truncation, self.period)
        found: IntArray = self.numbers[rows_of(np.asarray(last_state, dtype=np.int64), self.n_states), columns]
        return found


def numbered_beliefs(
    numbers: IntArray,
    distribution: Array,
    rewards: Array,
    initial: int | None,
    tv_error: Array | None = None,
    period: int = 1,
    setup_cost: float = 0.0,
) -> HiddenProcess:
    """Return beliefs with given distributions, numbered by last observed state and elapsed slots:
    ``HiddenProcess.numbers``.
    """
    truncation, n, size = numbers.shape[1], distribution.shape[1], len(distribution)
    passive = np.empty(size, dtype=np.int64)
    passive[numbers] = np.concatenate([numbers[:, 1:], numbers[:, truncation - period, None]], axis=1)
    first = numbers[:n, 0].copy()
    target = np.empty((size, n + 1), dtype=np.int64)
    target[:, 0], target[:, 1:] = passive, first
    ends = np.arange(0, size * (n + 1) + 1, n + 1)
    indptr = np.sort(np.concatenate([ends, ends[:-1] + 1]))
    start = int(numbers[n if initial is None else initial, 0])
    places = indptr, target.reshape(-1), first
    process = _processed(places, distribution, rewards, tv_error, start, numbers, period)
    if setup_cost:
        rested = np.ones(size, dtype=bool)
        rested[first] = rested[numbers[n + 1 :, 0]] = False
        process.reward[rested, 1] -= setup_cost
    return process


def _processed(
    places: tuple[IntArray, IntArray, IntArray],
    distribution: Array,
    rewards: Array,
    tv_error: Array | None,
    start: int,
    numbers: IntArray,
    period: int,
) -> HiddenProcess:
    """Return the process of beliefs: ``places`` are its ``indptr``, ``target`` and ``after_pull``."""
    size, n = distribution.shape
    reward, errors, prob = np.zeros((size, 2)), np.zeros((size, 2)), np.ones((size, n + 1))
    reward[:, 1], prob[:, 1:] = distribution @ rewards, distribution
    if tv_error is not None:
        errors[:, 1] = tv_error
    at_start = np.zeros(size)
    at_start[start] = 1.0
    indptr, target, first = places
    return HiddenProcess(
        reward, indptr, target, prob.reshape(-1), errors, first, at_start, True, distribution, rewards, numbers,
        period, start,
    )  # fmt: skip


def hidden_process(arm: AnyArm, truncation: int, *, forget: bool = True) -> HiddenProcess:
    """Return the process of an arm that is seen when pulled, with beliefs up to a truncation.

    With ``forget=False`` an ergodic arm keeps its last state beyond the truncation, for policies that depend on the
    state.
    """
    process = _hidden_process(arm, truncation, forget)
    if arm.passive_rewards is not None:
        process.reward[:, 0] = process.distribution @ arm.passive_rewards
    return process


def _hidden_process(arm: AnyArm, truncation: int, forget: bool) -> HiddenProcess:
    if isinstance(arm, TableArm):
        return _table_beliefs(arm, min(truncation, arm.length), forget)
    if has_lost_row(arm):
        return _reacting_process(arm, truncation, forget)
    if not arm.is_ergodic:
        return _unforgetting_beliefs(arm, truncation)
    distributions = markov.powers(arm.chain, truncation)
    tv_error = float(markov.distances(distributions[truncation], arm.stationary))
    if forget:
        return forgetting_beliefs(distributions[1:truncation], arm.stationary, arm.rewards, arm.initial, tv_error)
    grid = np.concatenate([distributions[1:], np.broadcast_to(arm.stationary, (truncation, 1, arm.n_states))], axis=1)
    grid[-1] = arm.stationary
    spread = np.zeros((truncation, arm.n_states + 1))
    spread[-1, :-1] = tv_error
    return _grid(grid, spread, arm, period=1)


def forgetting_beliefs(
    distributions: Array, limit: Array, rewards: Array, initial: int | None, tv_error: float = 0.0
) -> HiddenProcess:
    """Beliefs (s, τ < truncation) and one belief for all τ ≥ truncation.

    ``distributions[τ - 1]`` are the distributions for τ < truncation.
    """
    shape = _forgetting_shape(len(limit), len(distributions) + 1)
    n, last = shape.n_states, shape.size - 1
    deviations = np.zeros(shape.size)
    deviations[last] = tv_error
    distribution = np.concatenate([distributions[:, :n].transpose(1, 0, 2).reshape(last, n), limit[None]])
    start = last if initial is None else int(shape.after_pull[initial])
    places = shape.indptr, shape.target, shape.after_pull
    return _processed(places, distribution, rewards, deviations, start, shape.numbers, 1)


@lru_cache(maxsize=256)
def _forgetting_shape(n_states: int, truncation: int) -> HiddenProcess:
    """The shape of ``forgetting_beliefs``; kept, because learners plan on the same shapes again and again."""
    last = n_states * (truncation - 1)
    numbers = np.full((n_states + 1, truncation), last, dtype=np.int64)
    numbers[:n_states, : truncation - 1] = np.arange(last).reshape(n_states, truncation - 1)
    return numbered_beliefs(numbers, np.zeros((last + 1, n_states)), np.zeros(n_states), None)


def remembering_beliefs(distributions: Array, arm: Arm) -> HiddenProcess:
    """Beliefs (s, τ ≤ truncation), constant from the truncation on, whether or not their chain has forgotten s by
    then.

    ``distributions[τ - 1]`` are the distributions up to the truncation. Their distance from the true distributions
    beyond the truncation is unknown.
    """
    if arm.initial is None:
        distributions = np.concatenate(
            [distributions, np.broadcast_to(arm.stationary, (len(distributions), 1, arm.n_states))], axis=1
        )
    return _grid(distributions, np.ones(distributions.shape[:2]), arm, period=1)


def _grid(distributions: Array, tv_error: Array, arm: AnyArm, period: int) -> HiddenProcess:
    """Beliefs (s, τ ≤ truncation) of ``distributions[τ - 1][s]``, periodic from the truncation on.

    The last row is of an arm never observed.
    """
    truncation, rows, n = distributions.shape
    numbers = np.arange(rows * truncation).reshape(rows, truncation)
    if arm.initial is not None and rows == n:
        numbers = np.concatenate([numbers, numbers[arm.initial, None]])
    distribution = distributions.transpose(1, 0, 2).reshape(rows * truncation, n)
    return numbered_beliefs(numbers, distribution, arm.rewards, arm.initial, tv_error.T.reshape(-1), period)


def _unforgetting_beliefs(arm: Arm, truncation: int) -> HiddenProcess:
    period = table_period(arm)
    if period > LONGEST_PERIOD:
        raise ProblemError(f"arm {arm.name!r} repeats itself only after {period} slots, too many to follow")
    truncation = max(truncation, period)
    distributions = arm.state_distributions(truncation)[1:]
    n = arm.n_states
    limits = markov.powers(arm.chain, period)[1:] @ limiting_matrix(arm.chain, period)[0]
    tv_error = np.zeros(distributions.shape[:2])
    last = np.arange(truncation - period, truncation)
    # Twice the distance: these and all later distributions of the same phase are within the distance of their common
    # limit.
    tv_error[last, :n] = np.abs(distributions[last, :n] - limits[last % period]).sum(axis=-1)
    tv_error[tv_error < 4e-16] = 0.0
    return _grid(distributions, tv_error, arm, period)


class PullTable(NamedTuple):
    """What a pull shows and pays by last observed state and elapsed slots, in the rows of ``HiddenProcess.numbers``."""

    distributions: Array
    """``[s, τ - 1, k]``."""
    mean: Array
    """``[s, τ - 1]``: the mean reward of a pull, less its set-up cost."""
    advantage: Array
    """``[s, τ - 1]``: the same less the mean pay of resting."""


def table_of(arm: AnyArm, length: int) -> PullTable:
    """Return the table of an arm for τ = 1..length, without a truncation."""
    n = arm.n_states
    if has_lost_row(arm):
        distributions = _distributions_after_pulls(arm, length).transpose(1, 0, 2)
        cost = np.full(distributions.shape[:2], arm.setup_cost)
        cost[:n, 0] = cost[n + 1, 0] = 0.0
        mean = distributions @ arm.rewards - cost
    else:
        distributions = arm.state_distributions(length)[1:].transpose(1, 0, 2)
        if arm.initial is not None:
            # This row is never read, because the arm's state is known from the start; the stationary distribution
            # stands in.
            distributions = np.concatenate(
                [distributions[:n], np.broadcast_to(distributions[arm.initial, -1], (1, length, n))]
            )
        mean = distributions @ arm.rewards
    return PullTable(
        distributions, mean, mean if arm.passive_rewards is None else mean - distributions @ arm.passive_rewards
    )


def has_lost_row(arm: AnyArm) -> bool:
    """Whether tables of an arm have a row for a last pull that was not answered, because an unanswered pull changes the
    arm or the cost of its next pull.
    """
    return any(feature != "passive_rewards" for feature in arm.features)


def _distributions_after_pulls(arm: AnyArm, length: int) -> Array:
    """Return ``[τ - 1, s, k]`` for the rows of an arm for which a pull and a slot without a pull differ.

    The distribution τ slots after a pull in state s is ``e_s P_active P_passive^(τ−1)``. The row of an arm never pulled
    has ``initial P_passive^τ``, and the row of an unanswered pull ``stationary P_active P_passive^(τ−1)``.
    """
    assert isinstance(arm, Arm)  # tables of distributions have none of the features
    never, lost = arm.initial_distribution @ arm.chain, arm.stationary @ arm.active_chain
    first = np.concatenate([arm.active_chain, [never / never.sum(), lost / lost.sum()]])
    distributions = first @ markov.powers(arm.chain, length - 1)
    return np.asarray(distributions / distributions.sum(axis=-1, keepdims=True))


def _reacting_process(arm: Arm, truncation: int, forget: bool) -> HiddenProcess:
    """The process of an arm for which a pull and a slot without a pull differ: see ``_distributions_after_pulls``."""
    n, period = arm.n_states, table_period(arm)
    if period > LONGEST_PERIOD:
        raise ProblemError(f"arm {arm.name!r} repeats itself only after {period} slots, too many to follow")
    # The belief right after a pull is a belief of its own: a pull there takes no set-up.
    truncation = max(truncation, period + 1)
    distributions = _distributions_after_pulls(arm, truncation)
    tv_error = np.zeros(distributions.shape[:2])
    last = np.arange(truncation - period, truncation)
    unknown = arm.is_stationary_at_start
    if arm.is_ergodic:
        tv_error[-1] = markov.distances(distributions[-1][:, None], arm.stationary)
        distributions[-1] = arm.stationary
        if unknown:
            distributions[:, n] = arm.stationary
            tv_error[-1, n] = 0.0
    else:
        # Twice the distance: see ``_unforgetting_beliefs``.
        limits = markov.powers(arm.chain, period)[:-1] @ limiting_matrix(arm.chain, period)[0]
        tv_error[last] = np.abs(distributions[last] - distributions[0] @ limits[last % period]).sum(axis=-1)
        tv_error[tv_error < 4e-16] = 0.0
    if not (forget and arm.is_ergodic):
        numbers = np.arange((n + 2) * truncation).reshape(n + 2, truncation)
        distribution = distributions.transpose(1, 0, 2).reshape(-1, n)
        errors = tv_error.T.reshape(-1)
    else:
        rows = np.array([*range(n), n + 1] if unknown else range(n + 2))
        end = len(rows) * (truncation - 1)
        numbers = np.full((n + 2, truncation), end)
        numbers[rows, :-1] = np.arange(end).reshape(len(rows), -1)
        distribution = np.concatenate(
            [distributions[:-1, rows].transpose(1, 0, 2).reshape(end, n), distributions[-1, :1]]
        )
        errors = np.append(np.zeros(end), tv_error[-1].max())
    return numbered_beliefs(numbers, distribution, arm.rewards, None, errors, period, arm.setup_cost)


def table_period(arm: AnyArm) -> int:
    """Return the period of an arm's distributions at the end of a table: 1 unless the chain is periodic."""
    if isinstance(arm, TableArm) or arm.is_ergodic:
        return 1
    return math.lcm(*(markov.period(arm.chain, members) for members in markov.recurrent_classes(arm.chain)))


def limiting_matrix(chain: Array, period: int) -> tuple[Array, float]:
    """Return lim P^{kd} as k grows, for d a multiple of every class's period, and a bound of the error.

    The error is a total variation; ``oracles._enclosure`` explains the bound.
    """
    matrix = markov.powers(chain, period)[-1]
    n, slots = len(chain), period
    classes = markov.recurrent_classes(matrix)
    transient = np.setdiff1d(np.arange(n), np.concatenate(classes))
    for _ in range(60):
        apart = max(float(np.abs(matrix[members] - matrix[members[0]]).sum(axis=1).max()) for members in classes)
        rest = float(matrix[:, transient].sum(axis=1).max()) + apart
        matrix, slots = markov.powers(matrix, 2)[-1], 2 * slots
        if rest <= n * 1e-15:
            break
    return matrix, min(1.0, rest + 6 * n * slots * 2.0**-53)


def _table_beliefs(arm: TableArm, truncation: int, forget: bool) -> HiddenProcess:
    distributions = arm.state_distributions(arm.length)[1:]
    end = distributions[-1]
    if (
        forget
        and np.ptp(end, axis=0).max() == 0
        and np.ptp(distributions[:, arm.n_states :], axis=0).max(initial=0) == 0
    ):
        gaps = markov.distances(distributions, end[0])
        return forgetting_beliefs(
            distributions[: truncation - 1], end[0], arm.rewards, arm.initial, float(gaps[truncation - 1 :].max())
        )
    tv_error = np.zeros((truncation, distributions.shape[1]))
    tv_error[-1] = 0.5 * np.abs(distributions[truncation - 1 :] - distributions[truncation - 1]).sum(axis=-1).max(
        axis=0
    )
    return _grid(distributions[:truncation], tv_error, arm, period=1)


def truncation_for(arm: AnyArm, tv_error: float, longest: int = LONGEST_TRUNCATION) -> int:
    """Return the first truncation with at most the given deviation, or the longest allowed truncation."""
    return truncations_for([arm], tv_error, longest)[0]


def truncations_for(arms: Sequence[AnyArm], tv_error: float, longest: int = LONGEST_TRUNCATION) -> list[int]:
    """Return the truncations of many arms, arms of equal numbers of states at once: see ``truncation_for``."""
    precompute_limits(arms)
    truncations = [0] * len(arms)
    sizes: dict[int, list[int]] = {}
    for i, arm in enumerate(arms):
        if isinstance(arm, Arm) and arm.is_ergodic:
            sizes.setdefault(arm.n_states, []).append(i)
        else:
            truncations[i] = _remembering_cap(arm, tv_error, longest)
    for alike in sizes.values():
        some = [arm for arm in (arms[i] for i in alike) if isinstance(arm, Arm)]
        chains, distributions = np.array([arm.chain for arm in some]), np.array([arm.stationary for arm in some])
        times = markov.mixing_times(chains, distributions, 2 * tv_error)
        for i, time in zip(alike, np.where(times == 0, longest, np.minimum(times, longest)).tolist(), strict=True):
            # The first step after a pull is by another chain.
            truncations[i] = time + 1 if has_lost_row(arms[i]) else time
    return truncations


def _remembering_cap(arm: AnyArm, tv_error: float, longest: int) -> int:
    def enough(truncation: int) -> bool:
        return float(hidden_process(arm, truncation).tv_error.max()) <= tv_error

    def first(low: int, high: int) -> int:
        return low + bisect_left(range(low, high), True, key=enough)

    if isinstance(arm, TableArm):
        return min(first(1, arm.length), longest)
    truncation = 1
    while truncation < longest and not enough(truncation):
        truncation *= 2
    return hidden_process(arm, first(truncation // 2 + 1, min(truncation, longest))).truncation


class JointTable(NamedTuple):
    """The positions and successors of the joint beliefs of a ``JointBeliefs``, in the layout of the kernels.

    Block a belongs to ``actions[a]`` and begins at ``offsets[a]``. The position of a joint belief in the block is the
    sum of ``strides[a]`` times its digits; each digit is below ``radix[a]``. Further fields are the fields of every
    ``HiddenProcess``, side by side.
    """

    actions: IntArray
    offsets: IntArray
    strides: IntArray
    radix: IntArray
    order: IntArray
    n_states: IntArray
    first: IntArray
    passive: IntArray
    numbers: IntArray
    truncation: IntArray
    period: IntArray


class JointDistributions(NamedTuple):
    """The distributions and rewards of all arms of a ``JointBeliefs``, side by side: see ``HiddenProcess``."""

    distribution: Array
    reward: Array
    rewards: Array
    tv_error: Array


@lru_cache(maxsize=64)
def _blocks(
    sizes: tuple[int, ...], n_states: tuple[int, ...], plays: int
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """The first five fields of a ``JointTable``; kept, because learners plan on the same shapes again and again."""
    actions = np.array(list(itertools.combinations(range(len(sizes)), plays)), dtype=np.int64)
    radix = np.tile(np.array(sizes, dtype=np.int64), (len(actions), 1))
    np.put_along_axis(radix, actions, np.array(n_states, dtype=np.int64)[actions], axis=1)
    # The arm with the most beliefs runs fastest: sweeps over the table then have long rows.
    order = np.argsort(sizes, kind="stable")
    strides = np.ones_like(radix)
    for slower, faster in zip(order[-2::-1], order[:0:-1], strict=True):
        strides[:, slower] = strides[:, faster] * radix[:, faster]
    offsets = np.concatenate([[0], np.cumsum(radix.prod(axis=1))])
    return actions, offsets, strides, radix, order


class JointBeliefs:
    """The joint beliefs of several arms with a number of plays, in blocks by the arms just pulled.

    Block a belongs to ``actions[a]``. A joint belief has a digit for each arm of the block: the observed state for an
    arm of the action, the belief number for any other arm. The digit of ``order[-1]`` runs fastest.
    """

    def __init__(self, arms: Sequence[HiddenProcess], plays: int) -> None:
        choices = math.comb(len(arms), plays)
        if choices > MOST_CHOICES:
            raise ProblemError(
                f"{plays} plays of {len(arms)} arms leave {choices} choices a slot, too many for a table"
            )
        self.arms = tuple(arms)
        self.plays = plays
        sizes, n_states = tuple(arm.size for arm in arms), tuple(arm.n_states for arm in arms)
        self.actions, self.offsets, self.strides, self.radix, self.order = _blocks(sizes, n_states, plays)

    def with_laws(self, arms: Sequence[HiddenProcess]) -> JointBeliefs:
        """Return the same joint beliefs for arms with other distributions and rewards; positions are shared."""
        other = copy.copy(self)
        other.arms = tuple(arms)
        vars(other).pop("distributions", None)
        return other

    @cached_property
    def table(self) -> JointTable:
        """The positions and successors of joint beliefs, for kernels."""
        blocks = (self.actions, self.offsets, self.strides, self.radix, self.order)
        return JointTable(*blocks, *self._of_all_arms(JointTable._fields[len(blocks) :]))

    @cached_property
    def distributions(self) -> JointDistributions:
        """The distributions and rewards of all arms, for kernels."""
        return JointDistributions(*self._of_all_arms(JointDistributions._fields))

    def _of_all_arms(self, names: Sequence[str]) -> list[npt.NDArray[Any]]:
        columns = [[_field(arm, name) for arm in self.arms] for name in names]
        return [side_by_side(one) if isinstance(one[0], np.ndarray) else np.array(one, np.int64) for one in columns]

    @staticmethod
    def count(sizes: Sequence[int], n_states: Sequence[int], plays: int) -> int:
        """Return the number of joint beliefs without constructing the beliefs."""
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
        return np.array([arm.start_node for arm in self.arms], dtype=np.int64)

    @cached_property
    def seen_states(self) -> list[IntArray]:
        """For each arm and belief the state just observed, −1 for τ > 1."""
        return [np.where(arm.elapsed == 1, arm.last_state, -1) for arm in self.arms]

    def index(self, beliefs: IntArray) -> IntArray:
        """Return the position of each joint belief (a row of belief numbers), −1 for a belief outside all blocks.

        Outside all blocks are beliefs with fewer than ``plays`` arms at τ = 1: the start of a problem with unknown
        initial states, and beliefs after slots without a pull.
        """
        seen = np.stack([table[beliefs[:, i]] for i, table in enumerate(self.seen_states)], axis=1)
        result = np.full(len(beliefs), -1, dtype=np.int64)
        for a, action in enumerate(self.actions):
            fits = (result < 0) & (seen[:, action] >= 0).all(axis=1)
            if fits.any():
                digits = beliefs[fits].copy()
                digits[:, action] = seen[np.ix_(fits, action)]
                result[fits] = self.offsets[a] + digits @ self.strides[a]
        return result

    def everywhere(self) -> IntArray:
        """Return the joint belief at every place."""
        rows = []
        for a, action in enumerate(self.actions):
            places = np.arange(self.offsets[a + 1] - self.offsets[a])
            digits = places[:, None] // self.strides[a] % self.radix[a]
            for i in action:
                digits[:, i] = self.arms[i].after_pull[digits[:, i]]
            rows.append(digits)
        return np.concatenate(rows)

    def locate(self, last_states: IntArray, elapsed: IntArray) -> IntArray:
        """Return belief numbers, row by row, for last observed states and elapsed slots."""
        columns = [arm.locate(last_states[:, i], elapsed[:, i]) for i, arm in enumerate(self.arms)]
        return np.stack(columns, axis=1)

    def successors(self, beliefs: IntArray, action: int) -> tuple[IntArray, Array]:
        """Return the joint beliefs after an action and their probabilities: arrays (n, outcomes, arms), (n, outcomes).

        Outcomes run over the states of the action's arms, the last arm fastest.
        """
        pulled = self.actions[action]
        after = np.stack([arm.passive[beliefs[:, i]] for i, arm in enumerate(self.arms)], axis=1)
        outcomes = np.array(list(itertools.product(*(range(self.arms[i].n_states) for i in pulled))), dtype=np.int64)
        successors = np.repeat(after[:, None, :], len(outcomes), axis=1)
        probabilities = np.ones((len(beliefs), len(outcomes)))
        for position, i in enumerate(pulled):
            arm = self.arms[i]
            successors[:, :, i] = arm.after_pull[outcomes[:, position]]
            probabilities *= arm.distribution[beliefs[:, i]][:, outcomes[:, position]]
        return successors, probabilities

    def rewards(self, beliefs: IntArray, action: int) -> Array:
        """Return the mean reward of an action in each joint belief."""
        total: Array = sum(
            (self.arms[i].reward[beliefs[:, i], 1] for i in self.actions[action]), np.zeros(len(beliefs))
        )
        return total

    def refine(self, values: Array, finer: JointBeliefs) -> Array:
        """Transfer a function to finer joint beliefs: each belief takes the value of its coarser belief."""
        pairs = zip(self.arms, finer.arms, strict=True)
        maps = [coarse.locate(fine.last_state, fine.elapsed) for coarse, fine in pairs]
        result = np.empty(finer.size)
        for a, action in enumerate(self.actions):
            block = values[self.offsets[a] : self.offsets[a + 1]].reshape(self.radix[a, self.order])
            block = block.transpose(np.argsort(self.order)).transpose(finer.order)
            picks = [np.arange(self.radix[a, i]) if i in action else maps[i] for i in finer.order]
            result[finer.offsets[a] : finer.offsets[a + 1]] = block[np.ix_(*picks)].reshape(-1)
        return result


def _field(arm: HiddenProcess, name: str) -> Any:
    """A field of a process as the kernels name it: what a pull pays, its error, the beliefs after a pull."""
    if name in ("reward", "tv_error"):
        return getattr(arm, name)[:, 1]
    return arm.after_pull if name == "first" else getattr(arm, name)


def joint_beliefs(problem: Problem, truncations: Sequence[int], *, forget: bool = True) -> JointBeliefs:
    """Return the joint beliefs of a problem with a truncation for each arm."""
    arms = [
        hidden_process(arm, truncation, forget=forget)
        for arm, truncation in zip(problem.arms, truncations, strict=True)
    ]
    return JointBeliefs(arms, problem.plays)
