"""Compiled play of observed arms: all arms step in every slot, with one draw for the step of an arm.

Draws come from xoshiro256++ as in all simulations. The next state is the number of cumulative probabilities that a
draw reaches, so no branch depends on a random outcome. The arms of highest rank are found by a histogram over the ranks
near the lowest rank of the slot before, so a slot takes O(arms + √ranks) operations and no sort. Random rewards take a
second draw for each paying arm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.compiling import helper, inlined, njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.draw_kernels import PAYS_BETA, beta_variable, draw

Words = npt.NDArray[np.uint64]
Ranks = npt.NDArray[np.int32]
States = npt.NDArray[np.uint16]


class ArmArrays(NamedTuple):
    """Observed arms side by side, as positions in tables over places, the pairs of a kind and a state."""

    offset: Ranks
    """The place of each arm's state 0."""
    row: IntArray
    """The position of each arm's cumulative probabilities of state 0 at rest."""
    width: States
    """The number of states less one of each arm."""
    cumulative: Array
    """After each place and action: the cumulative probabilities of all next states but the last."""
    reward: Array
    """Mean rewards of each place and action; action 1 pulls."""


class RewardDraws(NamedTuple):
    """Random rewards: how they are drawn by place, and their parameters by place and action, see ``paid_reward``.

    The arrays are empty if all rewards are their means.
    """

    pays: IntArray
    low: Array
    width: Array
    first: Array
    second: Array


class RankSearch(NamedTuple):
    """Working memory of the search of the highest ranks, and the number of low bits in the second histogram."""

    rank: Ranks
    coarse: IntArray
    fine: IntArray
    window: IntArray
    """The histogram of the ranks around the last lowest rank, an odd number of them."""
    shift: int


@helper
def paid_reward(pays: int, u: float, low: float, width: float, first: float, second: float) -> float:
    """A drawn reward: one of the two ends, the upper with the probability ``first``, or a beta variable."""
    if pays == PAYS_BETA:
        return low + width * beta_variable(u, first, second)
    return low + width * (u < first)


@inlined
def lowest_rank(search: RankSearch, before: int, plays: int) -> tuple[int, int]:
    """Return the lowest rank among the ``plays`` highest, and the last arm of this rank to take.

    The lowest rank moves little from slot to slot: the ranks around ``before``, the last one, are searched first, and
    all ranks where that is too narrow. Of one rank the arms of lowest number are taken.
    """
    rank, coarse, fine, window, shift = search
    width = np.uint32(len(window) - 1)
    lowest = np.int32(before - len(window) // 2)
    highest = np.int32(lowest + len(window) - 1)
    left, inside = plays, 0
    for i in range(len(rank)):
        left -= rank[i] > highest
    window[:] = 0
    for i in range(len(rank)):
        place = np.uint32(rank[i] - lowest)
        if place <= width:
            window[place] += 1
            inside += 1
    if 0 < left <= inside:
        at = len(window) - 1
        while window[at] < left:
            left -= window[at]
            at -= 1
        cut = int(lowest) + at
    else:
        coarse[:] = 0
        for i in range(len(rank)):
            coarse[rank[i] >> shift] += 1
        left, bucket = plays, len(coarse) - 1
        while coarse[bucket] < left:
            left -= coarse[bucket]
            bucket -= 1
        fine[:] = 0
        for i in range(len(rank)):
            if rank[i] >> shift == bucket:
                fine[rank[i] - (bucket << shift)] += 1
        at = len(fine) - 1
        while fine[at] < left:
            left -= fine[at]
            at -= 1
        cut = (bucket << shift) + at
    last = -1
    while left > 0:
        last += 1
        left -= rank[last] == cut
    return cut, last


@helper
def next_state(cumulative: Array, place: int, steps: int, u: float) -> int:
    """The next state: the number of cumulative probabilities that a draw reaches."""
    following = 0
    for k in range(steps):
        following += u >= cumulative[place + k]
    return following


@njit
def play_by_rank(
    words: Words,
    arms: ArmArrays,
    draws: RewardDraws,
    state: States,
    ranks: Ranks,
    floor: int,
    plays: int,
    search: RankSearch,
    slots: int,
    sums: Array,
    pulls: Ranks,
) -> None:
    """Play slots in which the ``plays`` arms of highest rank are pulled, equal ranks in the order of arm numbers.

    ``ranks`` holds a rank for each place. Arms of a rank below ``floor`` are not pulled. ``state`` is written over,
    ``sums`` grows by the realised and by the mean rewards, ``pulls`` by the pulls of each arm.
    """
    offset, row, width, cumulative, reward = arms
    pays, low, breadth, first, second = draws
    rank = search.rank
    n_arms, random = len(state), len(pays) > 0
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
    for i in range(n_arms):
        rank[i] = ranks[offset[i] + state[i]]
    cut = 0
    for _ in range(slots):
        cut, last = lowest_rank(search, cut, plays)
        if cut < floor:
            cut, last = floor, n_arms
        mean, realised = 0.0, 0.0
        for i in range(n_arms):
            pulled = int(rank[i] >= cut + (i > last))
            s, place = int(state[i]), offset[i] + int(state[i])
            mean += reward[2 * place + pulled]
            pulls[i] += pulled
            if random and breadth[2 * place + pulled] != 0.0:
                u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
                at = 2 * place + pulled
                realised += paid_reward(pays[place], u, low[at], breadth[at], first[at], second[at])
            elif random:
                realised += reward[2 * place + pulled]
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            s = next_state(cumulative, row[i] + (2 * s + pulled) * width[i], int(width[i]), u)
            state[i] = s
            rank[i] = ranks[offset[i] + s]
        sums[0] += realised if random else mean
        sums[1] += mean
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3


@njit
def play_two_states_by_rank(
    words: Words,
    thresholds: Array,
    reward: Array,
    state: States,
    ranks: Ranks,
    floor: int,
    plays: int,
    search: RankSearch,
    slots: int,
    sums: Array,
    pulls: Ranks,
) -> None:
    """Play ``play_by_rank`` with arms of two states each and mean rewards: the same steps without tables of sizes.

    ``thresholds`` holds the probabilities of state 0 after each place and action.
    """
    rank, n_arms = search.rank, len(state)
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
    for i in range(n_arms):
        rank[i] = ranks[2 * i + state[i]]
    cut = 0
    for _ in range(slots):
        cut, last = lowest_rank(search, cut, plays)
        if cut < floor:
            cut, last = floor, n_arms
        mean = 0.0
        for i in range(n_arms):
            pulled = int(rank[i] >= cut + int(i > last))
            # Of unsigned positions Numba need not ask whether they count from the end.
            at = np.uint64(4 * i) + np.uint64(2 * int(state[i]) + pulled)
            mean += reward[at]
            pulls[i] += np.int32(pulled)
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            following = np.uint64(u >= thresholds[at])
            state[i] = following
            rank[i] = ranks[np.uint64(2 * i) + following]
        sums[0] += mean
        sums[1] += mean
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3


@njit
def step_pulled(
    words: Words, arms: ArmArrays, draws: RewardDraws, state: States, pulled: npt.NDArray[np.bool_], sums: Array
) -> None:
    """Play a slot in which given arms are pulled."""
    offset, row, width, cumulative, reward = arms
    pays, low, breadth, first, second = draws
    random = len(pays) > 0
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
    mean, realised = 0.0, 0.0
    for i in range(len(state)):
        a, s, place = int(pulled[i]), int(state[i]), offset[i] + int(state[i])
        mean += reward[2 * place + a]
        if random and breadth[2 * place + a] != 0.0:
            u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
            at = 2 * place + a
            realised += paid_reward(pays[place], u, low[at], breadth[at], first[at], second[at])
        elif random:
            realised += reward[2 * place + a]
        u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
        state[i] = next_state(cumulative, row[i] + (2 * s + a) * width[i], int(width[i]), u)
    sums[0] += realised if random else mean
    sums[1] += mean
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3


@njit
def choose_by_wish(
    words: Words,
    offset: Ranks,
    state: States,
    wish: Array,
    plays: int,
    at_most: bool,
    pulled: npt.NDArray[np.bool_],
) -> None:
    """Mark the arms to pull by wishes of the probabilities of their places: see ``RandomizedPolicy``."""
    s0, s1, s2, s3 = words[0], words[1], words[2], words[3]
    left = plays
    for i in range(len(state)):
        u, s0, s1, s2, s3 = draw(s0, s1, s2, s3)
        pulled[i] = u < wish[offset[i] + state[i]] and left > 0
        left -= pulled[i]
    i = len(state) - 1
    while left > 0 and not at_most:
        left -= not pulled[i]
        pulled[i] = True
        i -= 1
    words[0], words[1], words[2], words[3] = s0, s1, s2, s3


class KindArrays(NamedTuple):
    """Kinds of arms for play by counts: tables over places."""

    offset: IntArray
    """The place of each kind's state 0, and the number of places at the end."""
    conditional: Array
    """After (place, action): the probability of a next state given that no earlier one came; rows are padded."""
    reward: Array
    """Mean rewards of each place and action."""


@njit
def step_counts(
    generator: np.random.Generator,
    kinds: KindArrays,
    draws: RewardDraws,
    numbers: IntArray,
    pulls: IntArray,
    sums: Array,
) -> None:
    """Play a slot: ``pulls`` of the ``numbers`` of arms in each place are pulled, and ``numbers`` is written over."""
    offset, conditional, reward = kinds
    pays, low, breadth, first, _ = draws
    mean, realised = 0.0, 0.0
    after = np.zeros_like(numbers)
    for kind in range(len(offset) - 1):
        begin, n = offset[kind], offset[kind + 1] - offset[kind]
        for s in range(n):
            for a in range(2):
                left = pulls[begin + s] if a == 1 else numbers[begin + s] - pulls[begin + s]
                if left == 0:
                    continue
                at = 2 * (begin + s) + a
                mean += left * reward[at]
                if len(pays) > 0:
                    if breadth[at] != 0.0:
                        realised += left * low[at] + breadth[at] * generator.binomial(left, first[at])
                    else:
                        realised += left * reward[at]
                for k in range(n - 1):
                    moved = generator.binomial(left, conditional[at, k])
                    after[begin + k] += moved
                    left -= moved
                    if left == 0:
                        break
                after[begin + n - 1] += left
    numbers[:] = after
    sums[0] += realised if len(pays) > 0 else mean
    sums[1] += mean


@njit
def play_counts_by_rank(
    generator: np.random.Generator,
    kinds: KindArrays,
    draws: RewardDraws,
    order: IntArray,
    plays: int,
    numbers: IntArray,
    slots: int,
    sums: Array,
    pulled: IntArray,
) -> None:
    """Play slots in which arms are pulled in an order of places; places out of the order are never pulled."""
    pulls = np.zeros_like(numbers)
    for _ in range(slots):
        left = plays
        pulls[:] = 0
        for place in order:
            pulls[place] = min(left, numbers[place])
            left -= pulls[place]
        pulled += pulls
        step_counts(generator, kinds, draws, numbers, pulls, sums)
