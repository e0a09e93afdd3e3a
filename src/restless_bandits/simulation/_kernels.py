"""The compiled engine: slots of a plan, one after the other, with everything recorded.

Arrays come in named tuples. The state of an arm is drawn when it is pulled, from the exact law of its last seen state
and elapsed slots; arms nobody looks at cost nothing. Each pull takes two draws, one for the state and one for the
reward, whatever the reward law, so that the stream of draws depends on the pulls alone.

Draws come from xoshiro256++ (Blackman, Vigna 2021), whose four words are the stream's state: a few instructions a draw
where a call into a bit generator would cost more than the rest of the slot.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from restless_bandits._compile import inlined, njit
from restless_bandits.arrays import ActionArray, Array, IntArray
from restless_bandits.beliefs import JointTable, column_of
from restless_bandits.policies import TIE, FlatTables
from restless_bandits.record import N_BINS, elapsed_bin

Word = np.uint64
Words = npt.NDArray[np.uint64]

INDEX, INDEX_MANY, JOINT, SINGLE, CYCLE, UCB = range(6)
"""Kinds of policies. ``INDEX_MANY`` keeps arms whose index has stopped moving in a tournament tree."""

STATES, CAP, PERIOD, LAW, STATE, ROW, COUNT, FIXED = range(8)
"""Columns of ``World.arms``: numbers of states, cap and period of the laws, where its laws, states, rows of visits and
counts begin, and whether its rewards are fixed. Side by side, because one slot needs all of them for one arm."""

LAST_STATE, LAST_SLOT, LAW_ROW, INDEX_ROW, INDEX_LENGTH, INDEX_PERIOD = range(6)
"""Columns of what is known of each arm within a plan: the belief, and where its laws and its indices begin."""

_column_of, _bin_of = inlined(column_of), inlined(elapsed_bin)


class World(NamedTuple):
    """The true arms: laws of what is seen after s and τ slots, and mean rewards of states.

    Row ``s · cap + τ − 1`` of an arm's laws holds, for k below the last state, the chance to see a state up to k, and
    in place of the last one, which would be 1, the mean reward. Beyond the cap τ steps back by the period.
    """

    arms: IntArray
    law: Array
    reward: Array


class Memory(NamedTuple):
    """The arrays of a ``Record``."""

    counts: IntArray
    visits: IntArray
    rewards: Array
    last_state: IntArray
    last_slot: IntArray


class Choice(NamedTuple):
    """A policy: its kind and what that kind needs."""

    kind: int
    plays: int
    arm: int = 0
    width: float = 0.0
    flat: FlatTables = FlatTables(np.zeros(1), *3 * [np.zeros(1, dtype=np.int64)])
    action: ActionArray = np.zeros(1, dtype=np.int16)
    start: int = 0
    """The action before anything was seen, where the table over joint beliefs has no entry for it."""


class Ending(NamedTuple):
    """A stop rule, see ``plans.RuleTable``, and where the counts within a plan are kept.

    ``left`` says for each count (arm, state, bin) how many more of it end the plan, and is 0 until the plan meets it;
    a pool lies at its first bin. ``touched`` is room for the numbers of those met, so that nothing need be done for all
    the others, neither before a plan nor after it.
    """

    slots: int
    every: IntArray
    seen_in: IntArray
    doubled: bool
    pool: int
    beyond: int
    left: IntArray
    touched: IntArray


class Account(NamedTuple):
    """What a run is charged: sums so far, and their values at the checkpoints.

    ``sums`` are realised reward, expected reward, gap; ``gap[z, a]`` is what action a costs in joint belief z, and
    ``start_gap[a]`` what it costs before anything was seen.
    """

    sums: Array
    checkpoints: IntArray
    at: Array
    gap: Array
    start_gap: Array


class Trace(NamedTuple):
    """Slot by slot: arms pulled, states seen, rewards. Of no length where it is not wanted."""

    arms: IntArray
    states: IntArray
    rewards: Array


@inlined
def draw(s0: Word, s1: Word, s2: Word, s3: Word) -> tuple[float, Word, Word, Word, Word]:
    """Draw a double in [0, 1) and step the stream, whose words stay in registers between draws."""
    mixed = s0 + s3
    result = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return np.int64(result >> np.uint64(11)) * (1.0 / 9007199254740992.0), s0, s1, s2, s3


@inlined
def _place(
    block: int,
    slot: int,
    now: IntArray,
    actions: IntArray,
    offsets: IntArray,
    strides: IntArray,
    numbers: IntArray,
    cap: IntArray,
    period: IntArray,
) -> int:
    """Where the present joint belief lies in a table over them, given the action of the slot before."""
    place: int = offsets[block]
    for i in range(now.shape[0]):
        fresh = False
        for p in range(actions.shape[1]):
            fresh = fresh or actions[block, p] == i
        digit = now[i, LAST_STATE]
        if not fresh:
            column = _column_of(slot - now[i, LAST_SLOT], cap[i], period[i])
            # Unsigned places spare the checks for negative ones.
            digit = numbers[np.uint64(i), np.uint64(digit), np.uint64(column)]
        place += digit * strides[block, i]
    return place


@njit
def _number_of(chosen: IntArray, actions: IntArray) -> int:
    """The number of an action, its arms in ascending order."""
    for a in range(actions.shape[0]):
        for p in range(actions.shape[1]):
            if actions[a, p] != chosen[p]:
                break
        else:
            return a
    return -1


@inlined
def _take_best(scores: Array, chosen: IntArray, plays: int) -> None:
    """Write the arms of highest score, ascending; ties within the tolerance go to the lowest number."""
    n = scores.shape[0]
    for p in range(plays):
        most = -np.inf
        for i in range(n):
            most = max(most, scores[i])
        for i in range(n):
            if scores[i] >= most - TIE or scores[i] == most:
                chosen[p] = i
                scores[i] = -np.inf
                break
    for p in range(1, plays):
        arm = chosen[p]
        q = p - 1
        while q >= 0 and chosen[q] > arm:
            chosen[q + 1] = chosen[q]
            q -= 1
        chosen[q + 1] = arm


@njit
def _raise_leaf(tree: Array, leaves: int, arm: int, value: float) -> None:
    """Set a leaf of the tournament tree and the winners above it."""
    node = leaves + arm
    tree[node] = value
    while node > 1:
        node //= 2
        tree[node] = max(tree[2 * node], tree[2 * node + 1])


@njit
def _first_leaf(tree: Array, leaves: int, at_least: float) -> int:
    """The lowest arm in the tree whose value is at least so much; there must be one."""
    node = 1
    while node < leaves:
        node = 2 * node if tree[2 * node] >= at_least else 2 * node + 1
    return node - leaves


@njit
def run_plan(
    words: Words,
    slot: int,
    horizon: int,
    block: int,
    world: World,
    memory: Memory,
    choice: Choice,
    joint: JointTable,
    pricing: JointTable,
    ending: Ending,
    account: Account,
    trace: Trace,
) -> tuple[int, int]:
    """Play a plan from the end of ``slot`` until its rule is met or the horizon is reached.

    ``block`` is the action of the last slot, −1 before the first where no block holds the start. ``joint`` is the table
    of the policy, ``pricing`` that of the gaps; both number actions alike. Returns the last slot played and its action.
    """
    # Arrays under names of their own: reaching into the tuples in every slot would cost more than the slot itself.
    arms, law, state_reward = world
    counts, visits, reward_sums, last_state, last_slot = memory
    table, table_base, table_length, table_period = choice.flat
    every, seen_in, pool, beyond = ending.every, ending.seen_in, ending.pool, ending.beyond
    left, touched, n_touched = ending.left, ending.touched, 0
    gap, checkpoints = account.gap, account.checkpoints
    j_actions, j_offsets, j_strides, _, _, _, _, _, j_numbers, j_cap, j_period = joint
    p_actions, p_offsets, p_strides, _, _, _, _, _, p_numbers, p_cap, p_period = pricing
    actions_at = choice.action
    n_arms = arms.shape[0]
    plays = choice.plays
    kind = choice.kind
    priced = gap.shape[0] > 0
    tracing = trace.arms.shape[0] > 0
    chosen = np.zeros(plays, dtype=np.int64)
    scores = np.empty(n_arms)
    started = slot
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]

    realised, expected, cost = account.sums[0], account.sums[1], account.sums[2]
    checkpoint = 0
    while checkpoint < checkpoints.shape[0] and checkpoints[checkpoint] <= slot:
        checkpoint += 1

    # States of each watched arm that still lack transitions.
    lacking = np.zeros(every.shape[0], dtype=np.int64)
    for e in range(every.shape[0]):
        arm = every[e, 0]
        for s in range(arms[arm, STATES]):
            lacking[e] += visits[arms[arm, ROW] + s * N_BINS] < every[e, 1]

    # Indices begin one before τ = 1, so that the elapsed slots are added as they are.
    indexed = kind in (INDEX, INDEX_MANY)
    now = np.zeros((n_arms, 6), dtype=np.int64)
    repeats = False
    for i in range(n_arms):
        now[i, LAST_STATE], now[i, LAST_SLOT] = last_state[i], last_slot[i]
        now[i, LAW_ROW] = arms[i, LAW] + last_state[i] * arms[i, CAP] * arms[i, STATES]
        if indexed:
            now[i, INDEX_LENGTH], now[i, INDEX_PERIOD] = table_length[i], table_period[i]
            now[i, INDEX_ROW] = table_base[i] + last_state[i] * table_length[i] - 1
            repeats = repeats or table_period[i] > 1
    pulls = np.zeros(n_arms, dtype=np.int64)
    if kind == UCB:
        for i in range(n_arms):
            pulls[i] = visits[arms[i, ROW] : arms[i, ROW] + (arms[i, STATES] + 1) * N_BINS].sum()

    # Arms that wait below the end of their table have moving indices; the others rest in the tree.
    leaves, n_moving = 1, 0
    moving, tree = np.zeros(1, dtype=np.int64), np.zeros(2)
    if kind == INDEX_MANY:
        while leaves < n_arms:
            leaves *= 2
        tree = np.full(2 * leaves, -np.inf)
        moving = np.empty(n_arms, dtype=np.int64)
        for i in range(n_arms):
            if slot + 1 - now[i, LAST_SLOT] < now[i, INDEX_LENGTH] or now[i, INDEX_PERIOD] > 1:
                moving[n_moving] = i
                n_moving += 1
            else:
                tree[leaves + i] = table[now[i, INDEX_ROW] + now[i, INDEX_LENGTH]]
        for node in range(leaves - 1, 0, -1):
            tree[node] = max(tree[2 * node], tree[2 * node + 1])

    while slot < horizon:
        slot += 1
        if kind == INDEX:
            most = -np.inf
            for i in range(n_arms):
                column = min(slot - now[i, LAST_SLOT], now[i, INDEX_LENGTH])
                if repeats:
                    column = 1 + _column_of(slot - now[i, LAST_SLOT], now[i, INDEX_LENGTH], now[i, INDEX_PERIOD])
                scores[i] = table[now[i, INDEX_ROW] + column]
                most = max(most, scores[i])
            if plays > 1:
                _take_best(scores, chosen, plays)
            elif n_arms == 2:
                chosen[0] = 1 if scores[0] < scores[1] - TIE else 0
            else:
                # Leaving at the winner lets the processor guess it and go on before the scores are in.
                best = 0
                while scores[best] < most - TIE:
                    best += 1
                chosen[0] = best
        elif kind == INDEX_MANY:
            most = -np.inf
            kept = 0
            for m in range(n_moving):
                i = moving[m]
                elapsed = slot - now[i, LAST_SLOT]
                if elapsed < now[i, INDEX_LENGTH] or now[i, INDEX_PERIOD] > 1:
                    column = _column_of(elapsed, now[i, INDEX_LENGTH], now[i, INDEX_PERIOD])
                    scores[i] = table[now[i, INDEX_ROW] + 1 + column]
                    most = max(most, scores[i])
                    moving[kept] = i
                    kept += 1
                else:
                    _raise_leaf(tree, leaves, i, table[now[i, INDEX_ROW] + now[i, INDEX_LENGTH]])
            n_moving = kept
            most = max(most, tree[1])
            best = n_arms
            if tree[1] >= most - TIE:
                best = _first_leaf(tree, leaves, most - TIE)
            for m in range(n_moving):
                if scores[moving[m]] >= most - TIE and moving[m] < best:
                    best = moving[m]
            chosen[0] = best
        elif kind == JOINT:
            action = choice.start
            if block >= 0:
                place = _place(block, slot, now, j_actions, j_offsets, j_strides, j_numbers, j_cap, j_period)
                action = actions_at[place]
            for p in range(plays):
                chosen[p] = j_actions[action, p]
        elif kind == UCB:
            for i in range(n_arms):
                scores[i] = np.inf
                if pulls[i] > 0:
                    total = 0.0
                    for k in range(arms[i, STATES]):
                        total += reward_sums[arms[i, STATE] + k]
                    scores[i] = total / pulls[i] + np.sqrt(choice.width * np.log(slot) / pulls[i])
            _take_best(scores, chosen, plays)
        elif kind == SINGLE and plays == 1:
            chosen[0] = choice.arm
        else:
            for i in range(n_arms):
                scores[i] = slot - now[i, LAST_SLOT]
            if kind == SINGLE:
                scores[choice.arm] = np.inf
            _take_best(scores, chosen, plays)

        action = chosen[0] if plays == 1 else _number_of(chosen, p_actions)
        if priced:
            if block < 0:
                cost += account.start_gap[action]
            else:
                place = _place(block, slot, now, p_actions, p_offsets, p_strides, p_numbers, p_cap, p_period)
                cost += gap[place, action]
        block = action

        done = False
        for p in range(plays):
            arm = chosen[p]
            states = arms[arm, STATES]
            s = now[arm, LAST_STATE]
            elapsed = slot - now[arm, LAST_SLOT]
            row = now[arm, LAW_ROW] + _column_of(elapsed, arms[arm, CAP], arms[arm, PERIOD]) * states
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            # Counting instead of searching: a state cannot be predicted, and a wrong guess costs ten comparisons.
            k = 0
            if states == 2:
                k += u >= law[row]
            else:
                for j in range(states - 1):
                    k += u >= law[row + j]
            mean = state_reward[arms[arm, STATE] + k]
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            reward = mean if arms[arm, FIXED] else 1.0 * (u < mean)
            realised += reward
            expected += law[row + states - 1]

            elapsed_in = _bin_of(elapsed)
            cell = s * N_BINS + elapsed_in
            visit = arms[arm, ROW] + cell
            visits[visit] += 1
            counts[arms[arm, COUNT] + cell * states + k] += 1
            reward_sums[arms[arm, STATE] + k] += reward
            pulls[arm] += 1
            now[arm, LAST_STATE] = k
            now[arm, LAST_SLOT] = slot
            now[arm, LAW_ROW] += (k - s) * (arms[arm, CAP] * states)
            if indexed:
                now[arm, INDEX_ROW] += (k - s) * now[arm, INDEX_LENGTH]
            if tracing:
                trace.arms[slot - 1, p] = arm
                trace.states[slot - 1, p] = k
                trace.rewards[slot - 1, p] = reward

            if ending.doubled:
                counted = visit - max(0, elapsed_in - pool)
                if left[counted] == 0:
                    before = -1
                    for same in range(counted, visit + 1 if elapsed_in < pool else visit - elapsed_in + N_BINS):
                        before += visits[same]
                    left[counted] = max(1, before + beyond)
                    touched[n_touched] = counted
                    n_touched += 1
                left[counted] -= 1
                done = done or left[counted] == 0
            for e in range(every.shape[0]):
                if arm == every[e, 0] and elapsed == 1 and s < states:
                    lacking[e] -= visits[visit] == every[e, 1]
            for e in range(seen_in.shape[0]):
                done = done or (arm == seen_in[e, 0] and k == seen_in[e, 1])
            if kind == INDEX_MANY and tree[leaves + arm] > -np.inf:
                # In the tree it has a place only while it rests.
                _raise_leaf(tree, leaves, arm, -np.inf)
                moving[n_moving] = arm
                n_moving += 1

        for e in range(every.shape[0]):
            done = done or lacking[e] == 0
        if checkpoint < checkpoints.shape[0] and slot == checkpoints[checkpoint]:
            account.at[checkpoint, 0], account.at[checkpoint, 1], account.at[checkpoint, 2] = realised, expected, cost
            checkpoint += 1
        if done or slot - started >= ending.slots:
            break

    for i in range(n_arms):
        last_state[i], last_slot[i] = now[i, LAST_STATE], now[i, LAST_SLOT]
    for i in range(n_touched):
        left[touched[i]] = 0
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3
    account.sums[0], account.sums[1], account.sums[2] = realised, expected, cost
    return slot, block
