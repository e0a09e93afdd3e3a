"""Compiled play of observed arms under a plan of a learner: the steps of ``rollout_kernels``, and what is counted.

The draws of an arm's step are those of a run of a policy that knows the problem, so learners and policies are compared
on the same draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.model.draw_kernels import draw
from restless_bandits.oracles.observed.rollout_kernels import (
    ArmArrays,
    KindArrays,
    RankSearch,
    RewardDraws,
    lowest_rank,
    next_state,
    paid_reward,
)

Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int32]


class Counting(NamedTuple):
    """The tables of an ``ObservedRecord`` that a slot writes to."""

    counts: IntArray
    visits: IntArray
    paid: IntArray
    rewards: Array
    end_visits: IntArray
    """The visits by place and action that end the plan; empty for none."""


class ArmMemory(NamedTuple):
    """The columns of an ``ObservedRecord``: an entry for each arm."""

    row: IntArray
    """The position of each arm's counts."""
    state: IntArray
    previous: IntArray
    pulled: BoolArray
    reward: Array
    pulls: IntArray


class ChoiceTable(NamedTuple):
    """A policy over the joint states of a few arms; empty for another policy."""

    stride: IntArray
    """The step of the joint state with the state of each arm."""
    choice: IntArray
    """The choice in each joint state."""
    actions: IntArray
    """1 for each arm to pull: a row for each choice."""


@njit
def learn_slots(
    words: Words,
    arms: ArmArrays,
    draws: RewardDraws,
    ranks: Ranks,
    floor: int,
    plays: int,
    joint: ChoiceTable,
    search: RankSearch,
    memory: ArmMemory,
    counting: Counting,
    slots: int,
    sums: Array,
) -> tuple[int, bool]:
    """Play slots in which the ``plays`` arms of highest rank are pulled; return their number and whether
    a limit of visits is reached.

    ``ranks`` holds a rank for each place, or is empty: ``joint`` then chooses, and without it the arms marked in
    ``memory.pulled`` are pulled. Arms of a rank below ``floor`` are not pulled. ``sums`` grows by the realised and by
    the mean rewards.
    """
    offset, row, width, cumulative, reward = arms
    pays, low, breadth, first, second = draws
    count_row, state, previous, pulled, last_reward, pulls = memory
    counts, visits, paid, rewards, end_visits = counting
    rank = search.rank
    n_arms, random, ranked, limited = len(state), len(pays) > 0, len(ranks) > 0, len(end_visits) > 0
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
    if ranked:
        for i in range(n_arms):
            rank[i] = ranks[offset[i] + state[i]]
    cut, last, played, over = 0, 0, 0, False
    while played < slots and not over:
        if ranked:
            cut, last = lowest_rank(search, cut, plays)
            if cut < floor:
                cut, last = floor, n_arms
        elif len(joint.choice) > 0:
            code = 0
            for i in range(n_arms):
                code += joint.stride[i] * state[i]
            for i in range(n_arms):
                pulled[i] = joint.actions[joint.choice[code], i] == 1
        mean, realised = 0.0, 0.0
        for i in range(n_arms):
            a = int(rank[i] >= cut + (i > last)) if ranked else int(pulled[i])
            s = state[i]
            at = 2 * (offset[i] + s) + a
            mean += reward[at]
            pulls[i] += a
            earned = reward[at]
            if random and breadth[at] != 0.0:
                u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
                earned = paid_reward(pays[at >> 1], u, low[at], breadth[at], first[at], second[at])
            realised += earned
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            following = next_state(cumulative, row[i] + (2 * s + a) * width[i], int(width[i]), u)
            counts[count_row[i] + (2 * s + a) * (int(width[i]) + 1) + following] += 1
            visits[at] += 1
            paid[at] += 1
            rewards[at] += earned
            over |= limited and visits[at] >= end_visits[at]
            previous[i], state[i], pulled[i], last_reward[i] = s, following, a == 1, earned
            if ranked:
                rank[i] = ranks[offset[i] + following]
        sums[0] += realised if random else mean
        sums[1] += mean
        played += 1
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3
    return played, over


@njit
def learn_counts(
    generator: np.random.Generator,
    kinds: KindArrays,
    draws: RewardDraws,
    order: IntArray,
    plays: int,
    pulls: IntArray,
    count_base: IntArray,
    counting: Counting,
    numbers: IntArray,
    pulled: IntArray,
    slots: int,
    sums: Array,
) -> tuple[int, bool]:
    """Play slots by the numbers of arms in each place; return as ``learn_slots``.

    ``order`` holds the places in the order of priority; places out of the order are never pulled. Without an order the
    arms in each place that ``pulls`` counts are pulled. ``numbers`` is written over, ``pulled`` grows by the pulls in
    each place.
    """
    offset, conditional, reward = kinds
    pays, low, breadth, first, _ = draws
    counts, visits, paid, rewards, end_visits = counting
    random, limited = len(pays) > 0, len(end_visits) > 0
    after = np.zeros_like(numbers)
    played, over = 0, False
    while played < slots and not over:
        left = plays
        for place in order:
            pulls[place] = min(left, numbers[place])
            left -= pulls[place]
        pulled += pulls
        after[:] = 0
        mean, realised = 0.0, 0.0
        for kind in range(len(offset) - 1):
            begin, n = offset[kind], offset[kind + 1] - offset[kind]
            for s in range(n):
                for a in range(2):
                    many = pulls[begin + s] if a == 1 else numbers[begin + s] - pulls[begin + s]
                    if many == 0:
                        continue
                    at = 2 * (begin + s) + a
                    mean += many * reward[at]
                    earned = many * reward[at]
                    if random and breadth[at] != 0.0:
                        earned = many * low[at] + breadth[at] * generator.binomial(many, first[at])
                    realised += earned
                    visits[at] += many
                    paid[at] += many
                    rewards[at] += earned
                    over |= limited and visits[at] >= end_visits[at]
                    row, rest = count_base[kind] + (2 * s + a) * n, many
                    for k in range(n - 1):
                        moved = generator.binomial(rest, conditional[at, k])
                        after[begin + k] += moved
                        counts[row + k] += moved
                        rest -= moved
                        if rest == 0:
                            break
                    after[begin + n - 1] += rest
                    counts[row + n - 1] += rest
        numbers[:] = after
        sums[0] += realised if random else mean
        sums[1] += mean
        played += 1
    return played, over
