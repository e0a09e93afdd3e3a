"""The compiled engine: plays the slots of a plan and records all results.

Arrays come in named tuples. The state of an arm is drawn at a pull, from the exact distribution given its last observed
state and elapsed slots; arms without a pull cost nothing. Each pull takes two draws, for the state and for the reward,
whatever the reward distribution: the stream of draws depends on the pulls alone. Beta variables need more than one
draw; the further draws come from a separate stream, seeded by the second draw of the pull.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from restless_bandits._internal.compiling import helper, inlined, njit
from restless_bandits._internal.validation import ActionArray, Array, IntArray
from restless_bandits.model.draw_kernels import (
    PAYS_END,
    PAYS_MEAN,
    PAYS_ONE,
    Words,
    beta_variable,
    draw,
)
from restless_bandits.model.record import N_BINS, elapsed_bin
from restless_bandits.policies.choice_kernels import action_number, sort_arms, take_best
from restless_bandits.policies.policies import TIE, FlatTables
from restless_bandits.processes.beliefs import JointTable, column_of

Tuple = TypeVar("Tuple", bound=tuple[Any, ...])

PAIR, INDEX, INDICES, JOINT, SINGLE, CYCLE, UCB = range(7)
"""Kinds of policies. The arm of highest index is pulled: ``PAIR`` is for two arms, ``INDEX`` for any number, with a
tournament tree of the arms whose index is constant by now. ``INDICES`` is for several plays.
"""

at = np.uint64
"""For array positions: Numba checks the sign of a signed position at every access, a third of the time of a slot."""

STATES, CAP, PERIOD, LAW, STATE, ROW, COUNT, PAYS = map(at, range(8))
"""Columns of ``WorldArrays.arms``: number of states; truncation and period of the distributions; offsets of the
distributions, states, rows of visits and counts; and the kind of reward draws.
"""

LAST_STATE, LAST_SLOT, LAW_ROW, INDEX_ROW, INDEX_LENGTH, INDEX_PERIOD = map(at, range(8, 14))
"""Columns that a plan adds: the belief, and the offsets of the arm's distributions and indices."""

WIDTH = at(16)
"""The number of columns of an arm, side by side because a slot needs nearly all of them for an arm. Two spare
columns make the width a power of two, quick to multiply by.
"""

_column_of, _bin_of = inlined(column_of), helper(elapsed_bin)


class WorldArrays(NamedTuple):
    """The true arms: distributions of the state τ slots after s, mean rewards of states, and parameters of reward
    draws.

    Row ``s · truncation + τ − 1`` of an arm's distributions holds cumulative probabilities of the states k below the
    last state. The last entry, which would be 1, is replaced by the mean reward. Beyond the truncation τ steps back by
    the period. Rows of ``draws`` are for states of arms with rewards other than 1 or 0 or the mean: the lowest and the
    highest reward, and the two shapes of the beta distribution, or in place of the first shape the probability of the
    highest reward.
    """

    arms: IntArray
    distribution: Array
    reward: Array
    draws: Array


class ChangeArrays(NamedTuple):
    """The later changes of a world, and their progress in a run.

    Change c happens at ``slot[c]``, to ``arm[c]``. The arm's distributions then begin at ``distribution[c]`` of
    ``WorldArrays.distribution``, with ``truncation[c]`` and ``period[c]``, and its rewards and draws at ``state[c]`` of
    ``reward`` and ``draws``. The arms, rewards and draws of the world belong to the run, and are overwritten. The first
    ``done[0]`` changes have happened.

    An arm not observed since its change has separate distributions, from ``base[arm]`` of ``crossed`` on, counted from
    slot ``since[arm]``, the last slot before the change; −1 for all other arms.
    """

    slot: IntArray
    arm: IntArray
    distribution: IntArray
    truncation: IntArray
    period: IntArray
    state: IntArray
    reward: Array
    draws: Array
    done: IntArray
    since: IntArray
    base: IntArray
    crossed: Array


class RestArrays(NamedTuple):
    """What arms are paid in slots without a pull, and what their pulls cost after such a slot.

    An arm that has rested for w slots after row s was paid ``w · rate + φ(s, 1) − φ(s, w + 1)``, with φ the mean of the
    potential of ``resting_pay``, in rows as those of the distributions: from ``base[arm]`` on.
    """

    rate: Array
    potential: Array
    base: IntArray
    setup_cost: Array


class Memory(NamedTuple):
    """The arrays of a ``Record``."""

    counts: IntArray
    visits: IntArray
    seen: IntArray
    rewards: Array
    last_state: IntArray
    last_slot: IntArray


class PolicyArrays(NamedTuple):
    """A policy: its kind and the data of the kind."""

    kind: int
    plays: int
    arm: int = 0
    width: float = 0.0
    action: ActionArray = np.zeros(1, dtype=np.int16)
    start: int = 0
    """The action before any observation, if the table over joint beliefs has no entry for the start."""
    ranges: Array = np.zeros(1)
    """Widths of the arms' reward ranges, if the policy needs them."""


class Blocks(NamedTuple):
    """The fields of a ``JointTable`` that give the position of a joint belief."""

    actions: IntArray
    offsets: IntArray
    strides: IntArray
    numbers: IntArray
    truncation: IntArray
    period: IntArray

    @classmethod
    def of(cls, table: JointTable) -> Blocks:
        return cls(table.actions, table.offsets, table.strides, table.numbers, table.truncation, table.period)


class Ending(NamedTuple):
    """A stop rule, see ``plans.RuleTable``, with the counts within a plan.

    ``left`` is, for each count (arm, state, bin), the number of further observations that end the plan, and is 0 until
    the plan's first observation of the kind; a pool uses its first bin. ``touched`` holds the positions of observed
    counts: other counts need no work before or after a plan.
    """

    slots: int
    every: IntArray
    seen_in: IntArray
    doubled: bool
    pool: int
    beyond: int
    left: IntArray
    touched: IntArray


class RunTotals(NamedTuple):
    """The accounts of a run: sums so far, and their values at the checkpoints.

    ``sums`` are realised reward, expected reward, gap; the pay of a rest is added with the pull that ends it, and at
    checkpoints. ``gap[z, a]`` is the gap of action a in joint belief z, and
    ``start_gap[a]`` the gap before any observation.
    """

    sums: Array
    checkpoints: IntArray
    at: Array
    gap: Array
    start_gap: Array


class Trajectory(NamedTuple):
    """Slot by slot: pulled arms, observed states, rewards. Empty if not requested."""

    arms: IntArray
    states: IntArray
    rewards: Array


NO_TABLES = FlatTables(np.zeros(1), *3 * [np.zeros(1, dtype=np.int64)])
"""In the place of indices, for policies of other kinds."""


def without_changes(named: Tuple) -> Tuple:
    """Return a named tuple as a plain tuple: Numba unpacks plain tuples in a third of the time."""
    return cast(Tuple, tuple(named))


@helper
def _drawn(pays: int, u: float, mean: float, draws: Array, state: int) -> float:
    """A reward of an arm whose rewards are not 1 or 0."""
    if pays == PAYS_MEAN:
        return mean
    low, high, first, second = draws[state, 0], draws[state, 1], draws[state, 2], draws[state, 3]
    reward = mean
    if pays == PAYS_END:
        reward = high if u < first else low
    elif first > 0.0 and second > 0.0:
        reward = min(high, low + (high - low) * beta_variable(u, first, second))
    return reward


@helper
def _change(
    c: int, changes: ChangeArrays, now: IntArray, arms: IntArray, distribution: Array, reward: Array, draws: Array
) -> None:
    """Apply a change; the slot before the change has passed."""
    i, before = changes.arm[c], changes.slot[c] - 1
    own = at(i) * WIDTH
    states, s = now[own + STATES], now[own + LAST_STATE]
    base, since = changes.base[i], changes.since[i]
    probabilities = np.zeros(states)
    unseen = now[own + LAST_SLOT] < before
    if unseen:
        # The distribution in the last slot before the change, from cumulative sums without the final 1.
        crossing = since >= 0
        source = changes.crossed if crossing else distribution
        begin = base if crossing else now[own + LAW_ROW]
        elapsed = before - (since if crossing else now[own + LAST_SLOT])
        row = begin + _column_of(elapsed, now[own + CAP], now[own + PERIOD]) * states
        below = 0.0
        for k in range(states - 1):
            probabilities[k] = source[row + k] - below
            below = source[row + k]
        probabilities[states - 1] = 1.0 - below
    arms[i, LAW], arms[i, CAP], arms[i, PERIOD] = changes.distribution[c], changes.truncation[c], changes.period[c]
    for column in (LAW, CAP, PERIOD):
        now[own + column] = arms[i, column]
    now[own + LAW_ROW] = arms[i, LAW] + s * arms[i, CAP] * states
    for k in range(states):
        reward[now[own + STATE] + k] = changes.reward[changes.state[c] + k]
        draws[now[own + STATE] + k] = changes.draws[changes.state[c] + k]
    changes.since[i] = before if unseen else -1
    if unseen:
        size = arms[i, CAP] * states
        for j in range(size):
            total = 0.0
            for k in range(states):
                total += probabilities[k] * distribution[arms[i, LAW] + k * size + j]
            changes.crossed[base + j] = total


@inlined
def _place(
    previous_action: int,
    slot: int,
    n_arms: int,
    now: IntArray,
    actions: IntArray,
    offsets: IntArray,
    strides: IntArray,
    numbers: IntArray,
    truncation: IntArray,
    period: IntArray,
) -> int:
    """The position of the present joint belief in a table, given the action of the slot before."""
    place: int = offsets[at(previous_action)]
    for i in range(n_arms):
        own = at(i) * WIDTH
        fresh = False
        for p in range(actions.shape[1]):
            fresh = fresh or actions[at(previous_action), at(p)] == i
        digit = now[own + LAST_STATE]
        if not fresh:
            column = _column_of(slot - now[own + LAST_SLOT], truncation[at(i)], period[at(i)])
            digit = numbers[at(i), at(digit), at(column)]
        place += digit * strides[at(previous_action), at(i)]
    return place


@helper
def _raise_leaf(tree: Array, leaves: int, arm: int, value: float) -> None:
    """Set a leaf of the tournament tree, and update the winners above."""
    node = leaves + arm
    tree[node] = value
    while node > 1:
        node //= 2
        tree[node] = max(tree[2 * node], tree[2 * node + 1])


@helper
def _first_leaf(tree: Array, leaves: int, at_least: float) -> int:
    """The lowest arm in the tree whose value is at least the bound; there must be such an arm."""
    node = 1
    while node < leaves:
        node = 2 * node if tree[2 * node] >= at_least else 2 * node + 1
    return node - leaves


@helper
def _rest_pay(i: int, rested: int, now: IntArray, resting: RestArrays) -> float:
    """What an arm was paid in a number of slots without a pull since its last pull, or since the start."""
    own = at(i) * WIDTH
    row = resting.base[i] + now[own + LAST_STATE] * now[own + CAP]
    gone = _column_of(rested + 1, now[own + CAP], now[own + PERIOD])
    return float(rested * resting.rate[i] + resting.potential[row] - resting.potential[row + gone])


@njit
def run_plan(
    words: Words,
    slot: int,
    horizon: int,
    previous_action: int,
    world: WorldArrays,
    memory: Memory,
    choice: PolicyArrays,
    flat: FlatTables,
    joint: Blocks,
    gap_table: Blocks,
    ending: Ending,
    totals: RunTotals,
    trace: Trajectory,
    changes: ChangeArrays | None,
    resting: RestArrays | None,
) -> tuple[int, int]:
    """Play a plan from the end of ``slot`` until its rule is met or the horizon is reached.

    ``previous_action`` is the action of the last slot, −1 before the first if no block holds the start. ``joint`` is
    the table of the policy, ``gap_table`` the table of the gaps; both number actions alike. Returns the last played
    slot and its action. All tuples are ``without_changes``, except ``changes`` and ``resting``: without these the
    kernel is compiled without their code.
    """
    arms, distribution, state_reward, draws = world
    counts, visits, seen, reward_sums, last_state, last_slot = memory
    kind, plays, arm, width, action_at, start, ranges = choice
    table, table_base, table_length, table_period = flat
    j_actions, j_offsets, j_strides, j_numbers, j_cap, j_period = joint
    p_actions, p_offsets, p_strides, p_numbers, p_cap, p_period = gap_table
    most_slots, every, seen_in, doubled, pool, beyond, left, touched = ending
    sums, checkpoints, sums_at, gap, start_gap = totals
    trace_arms, trace_states, trace_rewards = trace
    n_arms = arms.shape[0]
    priced = gap.shape[0] > 0
    tracing = trace_arms.shape[0] > 0
    watched = doubled or every.shape[0] > 0 or seen_in.shape[0] > 0
    chosen = np.zeros(plays, dtype=np.int64)
    scores = np.empty(n_arms)
    last = min(horizon, slot + max(1, most_slots))
    n_touched = 0
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]

    realised, expected, cost = sums[0], sums[1], sums[2]
    checkpoint = 0
    while checkpoint < checkpoints.shape[0] and checkpoints[checkpoint] <= slot:
        checkpoint += 1
    next_checkpoint = checkpoints[checkpoint] if checkpoint < checkpoints.shape[0] else horizon + 1

    # States of each watched arm that still lack transitions. A plan without lacking transitions lasts for a single
    # slot.
    lacking = np.zeros(every.shape[0], dtype=np.int64)
    for e in range(every.shape[0]):
        for s in range(arms[every[e, 0], STATES]):
            lacking[e] += visits[arms[every[e, 0], ROW] + s * N_BINS] < every[e, 1]
        if lacking[e] == 0:
            last = min(last, slot + 1)

    now = np.empty(at(n_arms) * WIDTH, dtype=np.int64)
    indexed = kind in (PAIR, INDEX, INDICES)
    for i in range(n_arms):
        own = at(i) * WIDTH
        for column in range(arms.shape[1]):
            now[own + at(column)] = arms[i, column]
        now[own + LAST_STATE], now[own + LAST_SLOT] = last_state[i], last_slot[i]
        now[own + LAW_ROW] = arms[i, LAW] + last_state[i] * arms[i, CAP] * arms[i, STATES]
        if indexed:
            now[own + INDEX_LENGTH], now[own + INDEX_PERIOD] = table_length[i], table_period[i]
            # One column before τ = 1: the number of elapsed slots is then added directly.
            now[own + INDEX_ROW] = table_base[i] + last_state[i] * table_length[i] - 1
    pulls = np.zeros(n_arms if kind == UCB else 0, dtype=np.int64)
    if kind == UCB:
        for i in range(n_arms):
            for k in range(arms[i, STATES]):
                pulls[i] += seen[arms[i, STATE] + k]

    # Arms with waits below the end of their table have changing indices; the others stay in the tree.
    leaves, n_moving = 1, 0
    if kind == INDEX:
        while leaves < n_arms:
            leaves *= 2
    tree = np.empty(2 * leaves)
    moving = np.empty(n_arms, dtype=np.int64)
    if kind == INDEX:
        for i in range(leaves):
            tree[leaves + i] = -np.inf
            if i < n_arms:
                if slot + 1 - last_slot[i] < table_length[i] or table_period[i] > 1:
                    moving[n_moving] = i
                    n_moving += 1
                else:
                    tree[leaves + i] = table[now[at(i) * WIDTH + INDEX_ROW] + table_length[i]]
        for node in range(leaves - 1, 0, -1):
            tree[node] = max(tree[2 * node], tree[2 * node + 1])

    while slot < last:
        slot += 1
        if changes is not None:
            while changes.done[0] < changes.slot.shape[0] and changes.slot[changes.done[0]] <= slot:
                _change(changes.done[0], changes, now, arms, distribution, state_reward, draws)
                changes.done[0] += 1
        if kind == PAIR:
            column = min(slot - now[LAST_SLOT], now[INDEX_LENGTH])
            first = table[at(now[INDEX_ROW] + column)]
            column = min(slot - now[WIDTH + LAST_SLOT], now[WIDTH + INDEX_LENGTH])
            second = table[at(now[WIDTH + INDEX_ROW] + column)]
            arm = 1 if first < second - TIE else 0
        elif kind == INDEX:
            most = -np.inf
            kept = 0
            for m in range(n_moving):
                i = moving[at(m)]
                own = at(i) * WIDTH
                elapsed = slot - now[own + LAST_SLOT]
                length, period = now[own + INDEX_LENGTH], now[own + INDEX_PERIOD]
                if elapsed < length or period > 1:
                    score = table[at(now[own + INDEX_ROW] + 1 + _column_of(elapsed, length, period))]
                    scores[at(i)] = score
                    most = max(most, score)
                    moving[at(kept)] = i
                    kept += 1
                else:
                    _raise_leaf(tree, leaves, i, table[at(now[own + INDEX_ROW] + length)])
            n_moving = kept
            most = max(most, tree[1])
            arm = n_arms
            if tree[1] >= most - TIE:
                arm = _first_leaf(tree, leaves, most - TIE)
            for m in range(n_moving):
                i = moving[at(m)]
                if scores[at(i)] >= most - TIE and i < arm:
                    arm = i
        elif kind == JOINT:
            action = start
            if previous_action >= 0:
                place = _place(
                    previous_action, slot, n_arms, now, j_actions, j_offsets, j_strides, j_numbers, j_cap, j_period
                )
                action = int(action_at[at(place)])
            arm = j_actions[at(action), at(0)]
            for p in range(1, plays):
                chosen[p] = j_actions[action, p]
            chosen[0] = arm
        elif kind != SINGLE or plays > 1:
            for i in range(n_arms):
                own = at(i) * WIDTH
                elapsed = slot - now[own + LAST_SLOT]
                if kind == INDICES:
                    column = _column_of(elapsed, now[own + INDEX_LENGTH], now[own + INDEX_PERIOD])
                    scores[at(i)] = table[at(now[own + INDEX_ROW] + 1 + column)]
                elif kind == UCB:
                    scores[at(i)] = np.inf
                    if pulls[i] > 0:
                        total = 0.0
                        for k in range(now[own + STATES]):
                            total += reward_sums[at(now[own + STATE] + k)]
                        scores[at(i)] = total / pulls[i] + np.sqrt(width * np.log(slot) / pulls[i]) * ranges[i]
                else:
                    scores[at(i)] = np.inf if kind == SINGLE and i == arm else float(elapsed)
            take_best(scores, chosen, plays)
            sort_arms(chosen)
            if plays == 1:
                arm = chosen[0]

        action = arm if plays == 1 else action_number(chosen, p_actions)
        if priced:
            if previous_action < 0:
                cost += start_gap[action]
            else:
                place = _place(
                    previous_action, slot, n_arms, now, p_actions, p_offsets, p_strides, p_numbers, p_cap, p_period
                )
                cost += gap[at(place), at(action)]
        previous_action = action

        done = False
        for p in range(plays):
            pulled = arm if plays == 1 else chosen[p]
            own = at(pulled) * WIDTH
            states = now[own + STATES]
            s = now[own + LAST_STATE]
            elapsed = slot - now[own + LAST_SLOT]
            column = _column_of(elapsed, now[own + CAP], now[own + PERIOD])
            row = now[own + LAW_ROW] + column * states
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            # Counting instead of searching: a state cannot be predicted, and a wrong guess costs ten comparisons.
            k = 0
            if states == 2:
                k += u >= distribution[at(row)]
            else:
                for j in range(states - 1):
                    k += u >= distribution[at(row + j)]
            pay = distribution[at(row + states - 1)]
            if changes is not None:  # noqa: SIM102 - alone Numba leaves it out where there are none
                if changes.since[pulled] >= 0:
                    column = _column_of(slot - changes.since[pulled], now[own + CAP], now[own + PERIOD])
                    row = changes.base[pulled] + column * states
                    k = 0
                    for j in range(states - 1):
                        k += u >= changes.crossed[row + j]
                    pay = changes.crossed[row + states - 1]
                    changes.since[pulled] = -1
            mean = state_reward[at(now[own + STATE] + k)]
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            pays = now[own + PAYS]
            reward = 1.0 * (u < mean) if pays == PAYS_ONE else _drawn(pays, u, mean, draws, now[own + STATE] + k)
            realised += reward
            expected += pay
            if resting is not None:
                paid = _rest_pay(pulled, elapsed - 1, now, resting)
                if elapsed > 1 or now[own + LAST_SLOT] == 0:
                    paid -= resting.setup_cost[pulled]
                realised += paid
                expected += paid

            elapsed_in = _bin_of(elapsed)
            count_cell = s * N_BINS + elapsed_in
            visit = now[own + ROW] + count_cell
            visits[at(visit)] += 1
            counts[at(now[own + COUNT] + count_cell * states + k)] += 1
            seen[at(now[own + STATE] + k)] += 1
            reward_sums[at(now[own + STATE] + k)] += reward
            now[own + LAST_STATE] = k
            now[own + LAST_SLOT] = slot
            now[own + LAW_ROW] += (k - s) * (now[own + CAP] * states)
            if indexed:
                now[own + INDEX_ROW] += (k - s) * now[own + INDEX_LENGTH]
            if kind == UCB:
                pulls[pulled] += 1
            if tracing:
                trace_arms[slot - 1, p] = pulled
                trace_states[slot - 1, p] = k
                trace_rewards[slot - 1, p] = reward

            if watched:
                if doubled:
                    counted = visit - max(0, elapsed_in - pool)
                    if left[at(counted)] == 0:
                        before = -1
                        for same in range(counted, visit + 1 if elapsed_in < pool else visit - elapsed_in + N_BINS):
                            before += visits[at(same)]
                        left[at(counted)] = max(1, before + beyond)
                        touched[at(n_touched)] = counted
                        n_touched += 1
                    left[at(counted)] -= 1
                    done = done or left[at(counted)] == 0
                for e in range(every.shape[0]):
                    complete = elapsed == 1 and s < states and visits[at(visit)] == every[at(e), at(1)]
                    if complete and pulled == every[at(e), at(0)]:
                        lacking[e] -= 1
                        done = done or lacking[e] == 0
                for e in range(seen_in.shape[0]):
                    done = done or (pulled == seen_in[e, 0] and k == seen_in[e, 1])
            if kind == INDEX and tree[at(leaves + pulled)] > -np.inf:
                # An arm is in the tree only while its index is constant.
                _raise_leaf(tree, leaves, pulled, -np.inf)
                moving[at(n_moving)] = pulled
                n_moving += 1

        if slot == next_checkpoint:
            sums_at[checkpoint, 0], sums_at[checkpoint, 1], sums_at[checkpoint, 2] = realised, expected, cost
            if resting is not None:
                for i in range(n_arms):
                    paid = _rest_pay(i, slot - now[at(i) * WIDTH + LAST_SLOT], now, resting)
                    sums_at[checkpoint, 0] += paid
                    sums_at[checkpoint, 1] += paid
            checkpoint += 1
            next_checkpoint = checkpoints[checkpoint] if checkpoint < checkpoints.shape[0] else horizon + 1
        if done:
            break

    for i in range(n_arms):
        own = at(i) * WIDTH
        last_state[i], last_slot[i] = now[own + LAST_STATE], now[own + LAST_SLOT]
    for i in range(n_touched):
        left[touched[i]] = 0
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3
    sums[0], sums[1], sums[2] = realised, expected, cost
    return slot, previous_action
