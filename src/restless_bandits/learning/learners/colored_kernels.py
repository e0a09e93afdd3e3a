"""Compiled extended value iteration over joint beliefs, with the best distribution within each colour's L1 ball.

Beliefs (s, τ ≤ cap) of an arm with M states are numbered ``(τ − 1)·M + s``: waiting adds M to a number below the last
M. The extra belief of an arm never observed is constant under waiting, like beliefs at the truncation.

The values of all joint beliefs lie in a single array, in *rows*. A row belongs to the block of the arm just pulled.
Along a row another arm, the row's *inner* arm, takes all its beliefs, and all other coordinates are fixed. Along a row
the distribution of every arm but the inner arm is therefore constant, and the successors of its pull are contiguous
(waiting adds the same to every number). The successors of a pull of the inner arm are constant, and only its
distribution changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.compiling import inlined, njit
from restless_bandits._internal.validation import ActionArray, Array, IntArray
from restless_bandits.model.record import N_BINS
from restless_bandits.policies.policies import TIE
from restless_bandits.processes.beliefs import JointTable

STEP = 0.9
"""Lazy steps, because optimistic play is often periodic."""

PlaceArray = npt.NDArray[np.int32]


class Rows(NamedTuple):
    """Positions and successors of rows; rows of block a are ``row_base[a]`` to ``row_base[a + 1]``."""

    row_base: IntArray
    inner: IntArray
    """Inner arm of each block."""
    place: PlaceArray
    """The start of a row."""
    target: PlaceArray
    """The start of a row in the table of a ``JointPolicy``."""
    colour: PlaceArray
    """``[row, arm]``: the belief of every arm but the inner arm."""
    after: PlaceArray
    """``[row, arm]``: the successor's position if the arm is pulled and observed in 0. The inner arm, unless pulled
    itself, is in its belief 0.
    """
    outcome_stride: IntArray
    """``[arm]``: the step from the arm observed in k to the arm observed in k + 1."""
    inner_stride: IntArray
    """``[previous_action, arm]``: step of the block's inner arm in the block of the arm pulled."""
    ties: bool
    """Whether joint beliefs with equal elapsed slots count: they occur only while some arm was never pulled."""


class ColoredTables(NamedTuple):
    """Values by rows, the next values, and the tables of a ``JointPolicy`` at its own positions."""

    values: Array
    improved: Array
    action: ActionArray
    bias: Array


class Balls(NamedTuple):
    """Confidence sets: distributions within an L1 ball around an estimate, rewards up to a bound; ``[arm, belief(,
    state)]``.
    """

    estimate: Array
    half: Array
    """Half the radius: the movable mass."""
    least: Array
    """The least probability of state 0, sufficient for two states."""
    most: Array
    reward: Array
    """``[arm, state]``: upper bounds."""


@njit
def distribution_balls(
    counts: IntArray, truncation: int, width: float, margin: float, estimate: Array, half: Array
) -> None:
    """Write the estimate and half the radius, ``margin + √(width / n)``, of every observed colour of an arm.

    ``counts[s, bin(τ), k]`` are counts of a record; all τ from ``truncation`` on are merged.
    """
    n = counts.shape[2]
    seen = np.empty(n, dtype=np.int64)
    for s in range(n):
        for tau in range(1, truncation + 1):
            total = 0
            for k in range(n):
                seen[k] = 0
                for column in range(tau - 1, counts.shape[1] if tau == truncation else tau):
                    seen[k] += counts[s, column, k]
                total += seen[k]
            colour = (tau - 1) * n + s
            if total > 0:
                half[colour] = min(1.0, 0.5 * (margin + np.sqrt(width / total)))
                for k in range(n):
                    estimate[colour, k] = seen[k] / total


@njit
def reward_bounds(seen: IntArray, sums: Array, width: float, bounds: Array) -> None:
    """Write the upper bound ``mean + √(width / n)``, at most 1, of the reward of every observed state."""
    for k in range(seen.shape[0]):
        if seen[k] > 0:
            bounds[k] = min(1.0, sums[k] / seen[k] + np.sqrt(width / seen[k]))


@inlined
def _in_order(order: IntArray, count: int) -> None:
    for k in range(count):
        order[k] = k


@njit
def confidence_sets(
    n_states: IntArray,
    truncations: IntArray,
    counts: IntArray,
    count_base: IntArray,
    seen: IntArray,
    sums: Array,
    state_base: IntArray,
    log: float,
    law_width: float,
    reward_width: float,
    margin: float,
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the ``Balls`` of all arms, from the flat arrays of a record.

    Parameters without observations are unrestricted: any distribution, and the reward 1.
    """
    n_arms, widest, most_states = n_states.shape[0], 1 + (n_states * truncations).max(), n_states.max()
    estimate, half = np.zeros((n_arms, widest, most_states)), np.ones((n_arms, widest))
    least, most, reward = np.zeros((n_arms, widest)), np.ones((n_arms, widest)), np.ones((n_arms, most_states))
    for i in range(n_arms):
        n = n_states[i]
        for b in range(widest):
            for k in range(n):
                estimate[i, b, k] = 1 / n
        own = counts[count_base[i] : count_base[i + 1]].reshape((n + 1, N_BINS, n))
        distribution_balls(own, truncations[i], law_width * n * log, margin, estimate[i], half[i])
        first, end = state_base[i], state_base[i + 1]
        reward_bounds(seen[first:end], sums[first:end], reward_width * log, reward[i])
        for b in range(widest):
            least[i, b] = max(estimate[i, b, 0] - half[i, b], 0.0)
            most[i, b] = min(estimate[i, b, 0] + half[i, b], 1.0)
    return estimate, half, least, most, reward


@njit
def most_expected(estimate: Array, half: float, payoffs: Array, order: IntArray, count: int) -> float:
    """Return the largest mean of the payoffs over distributions within 2·half of the estimate in L1 norm.

    Mass goes to the highest payoff, up to 1, and is taken from the lowest payoffs. ``order`` is some order of the
    states and becomes the order by payoff; neighbouring beliefs mostly rank their successors alike, and the next sort
    is short.
    """
    for i in range(1, count):
        k = order[i]
        j = i - 1
        while j >= 0 and payoffs[order[j]] < payoffs[k]:
            order[j + 1] = order[j]
            j -= 1
        order[j + 1] = k
    best = order[0]
    moved = min(half, 1.0 - estimate[best])
    total = moved * payoffs[best]
    for k in range(count):
        total += estimate[k] * payoffs[k]
    for i in range(count - 1, 0, -1):
        k = order[i]
        taken = min(moved, estimate[k])
        total -= taken * payoffs[k]
        moved -= taken
    # Rounding may leave a small remainder without a donor state.
    return float(total - moved * payoffs[best])


@njit
def promises(
    estimate: Array,
    half: Array,
    reward: Array,
    sizes: IntArray,
    n_states: IntArray,
    truncations: IntArray,
    numbers: IntArray,
) -> tuple[Array, float]:
    """Return the highest mean reward of pulling each arm, ``[arm, s, τ − 1]``, and how far promises lie apart.

    The second result is the distance of the highest promise from the best sustainable promise, of permanent pulls of an
    arm.
    """
    tables = np.zeros(numbers.shape)
    order = np.empty(n_states.max(), dtype=np.int64)
    promise = np.empty(sizes.max())
    highest, always = -np.inf, -np.inf
    for i in range(sizes.shape[0]):
        _in_order(order, n_states[i])
        lowest = np.inf
        for b in range(sizes[i]):
            promise[b] = most_expected(estimate[i, b], half[i, b], reward[i], order, n_states[i])
            lowest, highest = min(lowest, promise[b]), max(highest, promise[b])
        always = max(always, lowest)
        for s in range(n_states[i] + 1):
            for column in range(truncations[i]):
                tables[i, s, column] = promise[numbers[i, s, column]]
    return tables, highest - always


@njit
def favoured(balls: Balls, arm: int, size: int, states: int) -> Array:
    """Return the distribution of highest mean reward in each belief of an arm."""
    reward = balls.reward[arm]
    order = np.empty(states, dtype=np.int64)
    for k in range(states):
        place = k
        while place > 0 and reward[order[place - 1]] < reward[k]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k
    distribution = np.empty((size, states))
    for b in range(size):
        for k in range(states):
            distribution[b, k] = balls.estimate[arm, b, k]
        moved = min(balls.half[arm, b], 1.0 - distribution[b, order[0]])
        distribution[b, order[0]] += moved
        for i in range(states - 1, 0, -1):
            taken = min(moved, distribution[b, order[i]])
            distribution[b, order[i]] -= taken
            moved -= taken
    return distribution


@inlined
def _larger(first: float, second: float) -> float:
    """The larger of two numbers, in a form that compiles to a single instruction."""
    return first if first > second else second


@inlined
def _sweep(
    tables: ColoredTables,
    previous_action: int,
    low: int,
    high: int,
    shift: float,
    greedy: bool,
    rows: Rows,
    table: JointTable,
    balls: Balls,
) -> tuple[float, float]:
    """One step on rows ``low`` to ``high`` of a block: ``improved = v + STEP·(Tv − v − shift)``.

    A greedy step writes v and the action that attains Tv (lowest arm within ``TIE``) to the policy's tables instead of
    ``improved``. Returns the minimum and the maximum of Tv − v, a bracket of the optimistic gain.
    """
    # Arrays under names of their own: reaching into the tuples in inner loops would cost too much.
    values, improved, action, bias = tables
    place, target, colour, after, outcome_stride = rows.place, rows.target, rows.colour, rows.after, rows.outcome_stride
    n_states, truncations, inner_stride, ties = (
        table.n_states,
        table.truncation,
        rows.inner_stride[previous_action],
        rows.ties,
    )
    estimate, half, least_probability, most_probability, reward = balls
    n_arms = n_states.shape[0]
    inner = rows.inner[previous_action]
    width = table.radix[previous_action, inner]
    inner_states = n_states[inner]
    # Below ``bulk`` waiting adds ``inner_states``; from ``bulk`` on the number is constant.
    bulk = inner_states * (truncations[inner] - 1)
    inner_least, inner_most = least_probability[inner, :width], most_probability[inner, :width]
    target_stride = table.strides[previous_action, inner]
    largest = 0
    for j in range(n_arms):
        largest = max(largest, n_states[j])
    order, payoffs = np.empty(largest, dtype=np.int64), np.empty(largest)
    q, top = np.empty(width), np.empty(width)
    chosen = np.empty(width, dtype=np.int16)
    # Extremes are kept position by position: a single extreme would make each step wait for the step before.
    least, most = np.empty(width), np.empty(width)
    for d in range(width):
        chosen[d], least[d], most[d] = 0, np.inf, -np.inf

    for r in range(low, high):
        for d in range(width):
            top[d] = -np.inf
        for j in range(n_arms):
            states = n_states[j]
            base = np.int64(after[r, j])
            if j == inner and states == 2:
                low_payoff = reward[j, 1] + values[base + outcome_stride[j]]
                rise = reward[j, 0] + values[base] - low_payoff
                probability = inner_most if rise > 0.0 else inner_least
                for d in range(width):
                    q[d] = low_payoff + probability[d] * rise
            elif j == inner:
                _in_order(order, states)
                for k in range(states):
                    payoffs[k] = reward[j, k] + values[base + k * outcome_stride[j]]
                for d in range(width):
                    q[d] = most_expected(estimate[j, d], half[j, d], payoffs, order, states)
            elif states == 2:
                belief = colour[r, j]
                r1, ahead = reward[j, 1], reward[j, 0] - reward[j, 1]
                lowest, highest = least_probability[j, belief], most_probability[j, belief]
                other = base + outcome_stride[j]
                # Unsigned positions avoid the check for negative numbers, which would prevent vectorised loops.
                if inner_stride[j] == 1:
                    near, far = base + inner_states, other + inner_states
                    for d in range(bulk):
                        rise = values[np.uint64(near + d)] - values[np.uint64(far + d)] + ahead
                        q[d] = values[np.uint64(far + d)] + r1 + _larger(lowest * rise, highest * rise)
                    for d in range(bulk, width):
                        rise = values[np.uint64(base + d)] - values[np.uint64(other + d)] + ahead
                        q[d] = values[np.uint64(other + d)] + r1 + _larger(lowest * rise, highest * rise)
                else:
                    for d in range(width):
                        e = (d + inner_states if d < bulk else d) * inner_stride[j]
                        rise = values[np.uint64(base + e)] - values[np.uint64(other + e)] + ahead
                        q[d] = values[np.uint64(other + e)] + r1 + _larger(lowest * rise, highest * rise)
            else:
                belief = colour[r, j]
                _in_order(order, states)
                for d in range(width):
                    next_place = base + (d + inner_states if d < bulk else d) * inner_stride[j]
                    for k in range(states):
                        payoffs[k] = reward[j, k] + values[next_place + k * outcome_stride[j]]
                    q[d] = most_expected(estimate[j, belief], half[j, belief], payoffs, order, states)
            if greedy:
                for d in range(width):
                    better = q[d] > top[d] + TIE
                    chosen[d] = j if better else chosen[d]
                    top[d] = q[d] if better else top[d]
            else:
                for d in range(width):
                    top[d] = _larger(q[d], top[d])

        start = np.int64(place[r])
        for d in range(width):
            top[d] -= values[np.uint64(start + d)]
        if not ties:
            # Unreachable positions must not delay the end: they take the residual of a position at the truncation.
            for j in range(n_arms):
                if j != inner:
                    # The arm of the block has waited one slot, its belief among the first.
                    tau = colour[r, j] // n_states[j] + 1
                    if (j == previous_action or tau < truncations[j]) and tau < truncations[inner]:
                        for d in range((tau - 1) * inner_states, tau * inner_states):
                            top[d] = top[bulk]
        for d in range(width):
            least[d] = top[d] if top[d] < least[d] else least[d]
            most[d] = _larger(top[d], most[d])
        if greedy:
            begin = np.int64(target[r])
            for d in range(width):
                action[begin + d * target_stride] = chosen[d]
                bias[begin + d * target_stride] = values[np.uint64(start + d)]
        else:
            for d in range(width):
                improved[np.uint64(start + d)] = values[np.uint64(start + d)] + STEP * (top[d] - shift)
    for d in range(width):
        least[0], most[0] = min(least[0], least[d]), max(most[0], most[d])
    return least[0], most[0]


@njit
def sweep_part(
    tables: ColoredTables,
    part: int,
    parts: int,
    shift: float,
    greedy: bool,
    rows: Rows,
    table: JointTable,
    balls: Balls,
) -> tuple[float, float]:
    """A step on one of several equal parts of every block: see ``_sweep``."""
    least, most = np.inf, -np.inf
    for previous_action in range(rows.inner.shape[0]):
        begin, count = (
            rows.row_base[previous_action],
            rows.row_base[previous_action + 1] - rows.row_base[previous_action],
        )
        low, high = begin + count * part // parts, begin + count * (part + 1) // parts
        found = _sweep(tables, previous_action, low, high, shift, greedy, rows, table, balls)
        least, most = min(least, found[0]), max(most, found[1])
    return least, most


@njit
def iterate(
    tables: ColoredTables, tolerance: float, most_sweeps: int, rows: Rows, table: JointTable, balls: Balls
) -> tuple[float, float, int]:
    """Iterate until the span of Tv − v is within the tolerance, then write the greedy policy.

    Returns the bracket of the optimistic gain proved by the last values, and the number of sweeps.
    """
    # Numba compiles a function anew for every constant argument; the result of a call is not a constant.
    part, parts, no, yes = int(0), int(1), bool(False), bool(True)  # noqa: RUF046, UP018
    least, most = sweep_part(tables, part, parts, 0.0, no, rows, table, balls)
    count = 1
    while most - least > tolerance and count < most_sweeps:
        tables = ColoredTables(tables.improved, tables.values, tables.action, tables.bias)
        least, most = sweep_part(tables, part, parts, 0.5 * (least + most), no, rows, table, balls)
        count += 1
    least, most = sweep_part(tables, part, parts, 0.0, yes, rows, table, balls)
    return least, most, count + 1
