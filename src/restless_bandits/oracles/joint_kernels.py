"""Compiled value iteration over joint beliefs, and rollouts of its policies.

Tables come as named tuples (see ``beliefs.JointTable`` and ``JointDistributions``). Long loops use local names for
their arrays: access to a tuple in an inner loop would cost too much.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import helper, inlined, njit
from restless_bandits._internal.validation import ActionArray, Array, IntArray
from restless_bandits.policies.choice_kernels import Choices, choose
from restless_bandits.policies.policies import TIE
from restless_bandits.processes.beliefs import JointDistributions, JointTable, column_of

STEP = 0.9
"""The factor of lazy steps, so that values converge even under periodic optimal play."""

_column_of = inlined(column_of)


class Iterate(NamedTuple):
    """A value function v over joint beliefs, the next one, and the greedy choice for v."""

    values: Array
    improved: Array
    action: ActionArray


class Links(NamedTuple):
    """The joint beliefs that follow each pull in each joint belief of a problem with one play."""

    belief: IntArray
    """``[z, i]``: the belief of arm i in the joint belief z."""
    after: IntArray
    """``[z, i]``: the joint belief after a pull of arm i in state 0; the joint belief for state k lies k · strides[i,
    i] further on.
    """


class RolloutArms(NamedTuple):
    """The true arms of a rollout, each up to its truncation, and constant beyond."""

    truncation: IntArray
    sums: Array
    """``[arm, τ - 1, s]``: cumulative sums of the distribution of the observed state."""
    reward: Array


NO_LINKS = Links(np.empty((0, 0), dtype=np.int64), np.empty((0, 0), dtype=np.int64))


@helper
def _advance(outcome: IntArray, arms: IntArray, count: int, n_states: IntArray) -> bool:
    """Turn to the next joint outcome of some arms, the last arm fastest; after the last outcome, reset, False."""
    for p in range(count - 1, -1, -1):
        outcome[p] += 1
        if outcome[p] < n_states[arms[p]]:
            return True
        outcome[p] = 0
    return False


@helper
def _most_gained(probabilities: Array, payoffs: Array, count: int, distance: float, sign: float) -> float:
    """The largest rise of the mean of ``sign``·payoff when the distribution moves by at most a given total variation.

    Probability moves from the worst payoffs first, to the best payoff.
    """
    best = -np.inf
    for o in range(count):
        best = max(best, sign * payoffs[o])
    gained = 0.0
    left = distance
    below = -np.inf
    while left > 0.0:
        worst = np.inf
        for o in range(count):
            if sign * payoffs[o] > below:
                worst = min(worst, sign * payoffs[o])
        if worst >= best:
            break
        mass = 0.0
        for o in range(count):
            if sign * payoffs[o] == worst:
                mass += probabilities[o]
        moved = min(left, mass)
        gained += moved * (best - worst)
        left -= moved
        below = worst
    return gained


@njit
def sweep_rows(
    iterate: Iterate,
    previous_action: int,
    first_row: int,
    last_row: int,
    shift: float,
    side: int,
    table: JointTable,
    distributions: JointDistributions,
) -> tuple[float, float, float, float]:
    """One step of value iteration on some rows of one block of joint beliefs (see ``beliefs.JointBeliefs``).

    A row is all digits of the fastest arm, ``order[-1]``, with the digits of the other arms fixed. Along a row, the
    distributions and successors of every other arm's pull are constant or contiguous.

    The distribution of a truncated belief stands for all distributions within its deviation. An action therefore has
    three values: Q by the distribution itself, and the least and the largest Q over the distributions within the
    deviation. ``side`` (−1, 0, 1 for least, plain, largest) selects the iterated value. T is the maximum of the
    selected value over actions. The function writes ``improved = v + STEP·(T v − v − shift)`` and the maximizing action
    (lowest number within ``TIE``). Returns over the rows

        min (Tv − v), max (Tv − v), min of the chosen action's least value − v, max of every action's most − v.

    The last two bracket the optimal gain, for every v.
    """
    values, improved, action = iterate
    actions, offsets, strides, radix, order, n_states, first, passive, _, _, _ = table
    distribution, reward, rewards, tv_error = distributions
    n_arms = radix.shape[1]
    plays = actions.shape[1]
    inner = order[n_arms - 1]
    width = radix[previous_action, inner]
    in_block = np.empty(n_arms, dtype=np.bool_)
    for i in range(n_arms):
        in_block[i] = False
        for p in range(plays):
            in_block[i] = in_block[i] or actions[previous_action, p] == i

    row_belief, row_after = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    row_distribution, row_deviation = np.empty((n_states[inner], width)), np.empty(width)
    truncated = False
    # Waiting turns most beliefs into their successor in the row, which gives contiguous reads; a loop corrects the
    # other beliefs.
    contiguous = not in_block[inner]
    odd, n_odd = np.empty(width, dtype=np.int64), 0
    for d in range(width):
        b = first[inner, d] if in_block[inner] else d
        row_belief[d], row_after[d], row_deviation[d] = b, passive[inner, b], tv_error[inner, b]
        for k in range(n_states[inner]):
            row_distribution[k, d] = distribution[inner, b, k]
        truncated = truncated or row_deviation[d] > 0.0
        if not contiguous or row_after[d] != d + 1:
            odd[n_odd] = d
            n_odd += 1
    odd_q = np.empty(n_odd)

    belief, after = np.empty(n_arms, dtype=np.int64), np.empty(n_arms, dtype=np.int64)
    digits = np.empty(n_arms, dtype=np.int64)
    outcome, others = np.empty(plays, dtype=np.int64), np.empty(plays, dtype=np.int64)
    n_outcomes = 1
    for a in range(actions.shape[0]):
        count = 1
        for p in range(plays):
            count *= n_states[actions[a, p]]
        n_outcomes = max(n_outcomes, count)
    probabilities, payoffs = np.empty(n_outcomes), np.empty(n_outcomes)

    q, rise, fall = np.empty(width), np.empty(width), np.empty(width)
    top, optimistic = np.empty(width), np.empty(width)
    chosen, chosen_q, chosen_least = np.empty(width, dtype=np.int64), np.empty(width), np.empty(width)

    least, most, lower, upper = np.inf, -np.inf, np.inf, -np.inf
    rest = first_row
    for position in range(n_arms - 2, -1, -1):
        i = order[position]
        digits[i] = rest % radix[previous_action, i]
        rest //= radix[previous_action, i]

    for row in range(first_row, last_row):
        for position in range(n_arms - 1):
            i = order[position]
            belief[i] = first[i, digits[i]] if in_block[i] else digits[i]
            after[i] = passive[i, belief[i]]
        top[:], chosen_q[:], optimistic[:] = -np.inf, -np.inf, -np.inf
        for a in range(actions.shape[0]):
            base = offsets[a]
            for position in range(n_arms - 1):
                base += after[order[position]] * strides[a, order[position]]
            fixed_reward = 0.0
            fixed_deviation = 0.0
            n_others = 0
            pulls_inner = False
            for p in range(plays):
                i = actions[a, p]
                if i == inner:
                    pulls_inner = True
                    continue
                base -= after[i] * strides[a, i]
                fixed_reward += reward[i, belief[i]]
                fixed_deviation += tv_error[i, belief[i]]
                others[n_others] = i
                outcome[n_others] = 0
                n_others += 1
            q[:], odd_q[:], rise[:], fall[:] = fixed_reward, fixed_reward, 0.0, 0.0
            if pulls_inner:
                for d in range(width):
                    q[d] += reward[inner, row_belief[d]]
            while True:
                probability = 1.0
                place = base
                for p in range(n_others):
                    i = others[p]
                    probability *= distribution[i, belief[i], outcome[p]]
                    place += outcome[p] * strides[a, i]
                if pulls_inner:
                    for k in range(n_states[inner]):
                        weight = probability * values[place + k]
                        for d in range(width):
                            q[d] += weight * row_distribution[k, d]
                else:
                    if contiguous:
                        for d in range(width - 1):
                            q[d] += probability * values[place + d + 1]
                    for j in range(n_odd):
                        odd_q[j] += probability * values[place + row_after[odd[j]]]
                if not _advance(outcome, others, n_others, n_states):
                    break
            if not pulls_inner:
                for j in range(n_odd):
                    q[odd[j]] = odd_q[j]

            if fixed_deviation > 0.0 or (pulls_inner and truncated):
                for d in range(width):
                    spread = fixed_deviation + (row_deviation[d] if pulls_inner else 0.0)
                    if spread > 0.0:
                        n = 0
                        while True:
                            probability = 1.0
                            place = base if pulls_inner else base + row_after[d]
                            payoff = 0.0
                            for p in range(n_others):
                                i = others[p]
                                probability *= distribution[i, belief[i], outcome[p]]
                                place += outcome[p] * strides[a, i]
                                payoff += rewards[i, outcome[p]]
                            if pulls_inner:
                                for k in range(n_states[inner]):
                                    probabilities[n] = probability * row_distribution[k, d]
                                    payoffs[n] = payoff + rewards[inner, k] + values[place + k]
                                    n += 1
                            else:
                                probabilities[n] = probability
                                payoffs[n] = payoff + values[place]
                                n += 1
                            if not _advance(outcome, others, n_others, n_states):
                                break
                        rise[d] = _most_gained(probabilities, payoffs, n, spread, 1.0)
                        fall[d] = _most_gained(probabilities, payoffs, n, spread, -1.0)

            for d in range(width):
                optimistic[d] = max(optimistic[d], q[d] + rise[d])
                least_value = q[d] - fall[d]
                value = q[d]
                if side > 0:
                    value = q[d] + rise[d]
                elif side < 0:
                    value = least_value
                top[d] = max(top[d], value)
                better = value > chosen_q[d] + TIE
                chosen_q[d] = value if better else chosen_q[d]
                chosen_least[d] = least_value if better else chosen_least[d]
                chosen[d] = a if better else chosen[d]

        start = offsets[previous_action] + row * width
        for d in range(width):
            v = values[start + d]
            gain = top[d] - v
            least = min(least, gain)
            most = max(most, gain)
            lower = min(lower, chosen_least[d] - v)
            upper = max(upper, optimistic[d] - v)
            improved[start + d] = v + STEP * (gain - shift)
            action[start + d] = chosen[d]

        for position in range(n_arms - 2, -1, -1):
            i = order[position]
            digits[i] += 1
            if digits[i] < radix[previous_action, i]:
                break
            digits[i] = 0
    return least, most, lower, upper


def iterate_values(
    iterate: Iterate,
    tolerance: float,
    most_sweeps: int,
    links: Links,
    table: JointTable,
    distributions: JointDistributions,
) -> float:
    """Value iteration on a whole table of joint beliefs until the span of T v − v is within the tolerance.

    On return ``iterate`` holds v and the greedy choice for v. Links, if given, are many times faster on small tables.
    Returns the span, which exceeds the tolerance only if the sweeps have run out.
    """
    # Two kernels: with links, no caller should wait for the compilation of ``sweep_rows``, the largest kernel.
    if len(links.belief):
        return _iterate_linked(iterate, tolerance, most_sweeps, links, table, distributions)
    return _iterate_rows(iterate, tolerance, most_sweeps, table, distributions)


@njit
def _iterate_rows(
    iterate: Iterate, tolerance: float, most_sweeps: int, table: JointTable, distributions: JointDistributions
) -> float:
    inner = table.order[table.order.shape[0] - 1]
    # Numba compiles callees anew for every literal argument; the result of a call is not a literal.
    start, plain = int(0), int(0)  # noqa: RUF046, UP018
    shift, span = 0.0, np.inf
    for sweep in range(most_sweeps):
        least, most = np.inf, -np.inf
        for previous_action in range(table.actions.shape[0]):
            rows = (table.offsets[previous_action + 1] - table.offsets[previous_action]) // table.radix[
                previous_action, inner
            ]
            low, high, _, _ = sweep_rows(iterate, previous_action, start, rows, shift, plain, table, distributions)
            least, most = min(least, low), max(most, high)
        span = most - least
        if span <= tolerance or sweep == most_sweeps - 1:
            break
        for z in range(iterate.values.shape[0]):
            iterate.values[z] = iterate.improved[z]
        shift = 0.5 * (least + most)
    return span


@njit
def _iterate_linked(
    iterate: Iterate,
    tolerance: float,
    most_sweeps: int,
    links: Links,
    table: JointTable,
    distributions: JointDistributions,
) -> float:
    """Plain steps as in ``sweep_rows``, on all joint beliefs at once."""
    values, improved, action = iterate
    belief, after = links
    strides, n_states, distribution, reward = (
        table.strides,
        table.n_states,
        distributions.distribution,
        distributions.reward,
    )
    size, n_arms = belief.shape
    shift, span = 0.0, np.inf
    for sweep in range(most_sweeps):
        least, most = np.inf, -np.inf
        for z in range(size):
            top = -np.inf
            chosen = 0
            for i in range(n_arms):
                b = belief[z, i]
                q = reward[i, b]
                target, stride = after[z, i], strides[i, i]
                for k in range(n_states[i]):
                    q += distribution[i, b, k] * values[target + k * stride]
                if q > top + TIE:
                    chosen = i
                top = max(top, q)
            change = top - values[z]
            least, most = min(least, change), max(most, change)
            improved[z] = values[z] + STEP * (change - shift)
            action[z] = chosen
        span = most - least
        if span <= tolerance or sweep == most_sweeps - 1:
            break
        for z in range(size):
            values[z] = improved[z]
        shift = 0.5 * (least + most)
    return span


@njit
def link(table: JointTable) -> Links:
    """Return the links of a problem with one play."""
    offsets, strides, radix, first, passive = table.offsets, table.strides, table.radix, table.first, table.passive
    n_arms = radix.shape[1]
    size = offsets[n_arms]
    belief = np.empty((size, n_arms), dtype=np.int64)
    after = np.empty((size, n_arms), dtype=np.int64)
    waited = np.empty(n_arms, dtype=np.int64)
    for previous_action in range(n_arms):
        for place in range(offsets[previous_action + 1] - offsets[previous_action]):
            z = offsets[previous_action] + place
            for i in range(n_arms):
                digit = place // strides[previous_action, i] % radix[previous_action, i]
                belief[z, i] = first[i, digit] if i == previous_action else digit
                waited[i] = passive[i, belief[z, i]]
            for i in range(n_arms):
                target = offsets[i]
                for other in range(n_arms):
                    if other != i:
                        target += waited[other] * strides[i, other]
                after[z, i] = target
    return Links(belief, after)


@njit
def rollout(uniforms: Array, arms: RolloutArms, policy: Choices) -> Array:
    """Mean expected reward a slot of a policy that pulls one arm, for each row of ``uniforms``, a slot for each
    column.
    """
    truncations, sums, reward = arms
    n_arms = sums.shape[0]
    state, elapsed = np.zeros(n_arms, dtype=np.int64), np.ones(n_arms, dtype=np.int64)
    scores, chosen = np.empty(n_arms), np.zeros(1, dtype=np.int64)
    means = np.empty(uniforms.shape[0])
    for batch in range(uniforms.shape[0]):
        total = 0.0
        for slot in range(uniforms.shape[1]):
            choose(policy, state, elapsed, chosen[0], scores, chosen)
            arm = chosen[0]
            tau, last = _column_of(elapsed[arm], truncations[arm], 1), state[arm]
            total += reward[arm, tau, last]
            seen = 0
            while sums[arm, tau, last, seen] <= uniforms[batch, slot]:
                seen += 1
            for i in range(n_arms):
                elapsed[i] += 1
            state[arm], elapsed[arm] = seen, 1
        means[batch] = total / uniforms.shape[1]
    return means
