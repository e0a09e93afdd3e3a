"""Simulated runs on observed arms: all arms step in every slot, or the numbers of arms of each kind in each state do.

Arms of one kind are exchangeable, so under a ``CountedPolicy`` the numbers of arms in each (kind, state) are a Markov
chain: multinomial steps, exactly distributed as the steps of the single arms. A million arms of a few kinds then cost
what ten arms cost. Both ways use streams of their own, so a problem is always played in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from restless_bandits._internal.blocks import blocks
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import world_generator, world_words
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import AnyArm
from restless_bandits.model.draw_kernels import PAYS_BETA, PAYS_END, PAYS_MEAN
from restless_bandits.model.kinds import ArrayKinds
from restless_bandits.model.layout import Layout
from restless_bandits.model.problem import Problem
from restless_bandits.model.rewards import beta_shapes
from restless_bandits.oracles.observed import rollout_kernels as kernels
from restless_bandits.policies.finite_horizon import HorizonPolicy
from restless_bandits.policies.lookahead import LookaheadPolicy
from restless_bandits.policies.observed import (
    CountedPolicy,
    ObservedPolicy,
    PriorityPolicy,
    RandomizedPolicy,
)
from restless_bandits.policies.policies import Policy

SECONDS_PER_ARM, SECONDS_PER_PLACE, SECONDS_PER_CALL = 1e-8, 2.5e-7, 2e-5
SECONDS_PER_PROGRAM, SECONDS_PER_VARIABLE = 2e-3, 2e-5
"""Approximate seconds of one core: of an arm or a place in a slot, of a choice in Python, of a linear program."""
SHORT_SECONDS = 1.0
MOST_HORIZON_RUNS = 1_000
MOST_RUNS, FEWEST_RUNS = 32, 4
MOST_SLOTS, FEWEST_SLOTS, LONG_RUN, FEWEST_PROGRAMS = 100_000, 40, 1_000, 300
"""Slots of a run: the most, the fewest, the number from which on more runs are better than longer ones, and the fewest
of a policy that solves a linear program in every slot.
"""
PATH_PROGRAMS = 50
"""Linear programs that make the expected path of ``lp-update`` before its simulation."""
WINDOW_ROOTS = 3
"""The ranks on each side of the last lowest rank that are searched first, in roots of the number of places."""
ARMS_PER_PLACE = 4
"""Arms for each place, the pair of a kind and a state, from which on their numbers step instead of the arms."""


class ObservedWorld:
    """A problem of observed arms in the layout of the kernels.

    ``start`` holds the distribution of each kind's state in slot 1, over places; if left out, the problem's own.
    """

    def __init__(self, problem: Problem, start: Array | None = None) -> None:
        self.problem, self.layout = problem, Layout.of(problem)
        own = np.concatenate([group.start.reshape(-1) for group in problem.groups])
        self.start = own if start is None else start
        self.reward = np.concatenate(
            [np.stack([g.passive_rewards, g.active_rewards], axis=2).reshape(-1) for g in problem.groups]
        )
        self.draws = _reward_draws(problem, self.reward)

    @cached_property
    def by_counts(self) -> bool:
        """Whether the numbers of arms step, if the policy allows it: sums of beta variables have no simple draw."""
        crowded = self.layout.n_arms >= ARMS_PER_PLACE * self.layout.size
        return crowded and not bool((self.draws.pays == PAYS_BETA).any())

    @cached_property
    def arms(self) -> kernels.ArmArrays:
        """The arms for steps of single arms."""
        rows, tables, before = [], [], 0
        for group in self.problem.groups:
            n = group.n_states
            table = np.empty((group.n_kinds, n, 2, n - 1))
            for part in blocks(group.n_kinds, 2 * n * n):
                for action, chains in enumerate((group.passive, group.active)):
                    table[part, :, action] = chains[part].cumsum(axis=2)[:, :, :-1]
            rows.append(before + np.arange(group.n_kinds) * table[0].size)
            tables.append(table.reshape(-1))
            before += table.size
        row, first, sizes = np.concatenate(rows), self.layout.first, self.layout.sizes
        if not (self.layout.counts == 1).all():
            row = np.repeat(row, self.layout.counts)
        width = (sizes - 1).astype(np.uint16)
        cumulative = tables[0] if len(tables) == 1 else np.concatenate(tables)
        return kernels.ArmArrays(first.astype(np.int32), row, width, cumulative, self.reward)

    @cached_property
    def kinds(self) -> kernels.KindArrays:
        """The kinds for steps of numbers of arms."""
        most = int(self.layout.n_states.max())
        tables = []
        for group in self.problem.groups:
            chains = np.stack([group.passive, group.active], axis=2).reshape(-1, group.n_states)
            left = 1.0 - chains.cumsum(axis=1) + chains
            given = np.divide(chains, left, out=np.ones_like(chains), where=left > 0)
            table = np.ones((len(chains), most))
            table[:, : group.n_states] = given.clip(0.0, 1.0)
            tables.append(table)
        offset = np.append(self.layout.offset, self.layout.size)
        return kernels.KindArrays(offset, np.concatenate(tables), self.reward)

    def first_numbers(self, rng: np.random.Generator) -> IntArray:
        """Draw the number of arms in each place in slot 1."""
        ends = np.append(self.layout.offset, self.layout.size)
        parts = [
            rng.multinomial(count, self.start[low:high] / self.start[low:high].sum())
            for count, low, high in zip(self.layout.counts, ends[:-1], ends[1:], strict=True)
        ]
        return np.concatenate(parts).astype(np.int64)

    def first_states(self, rng: np.random.Generator) -> IntArray:
        """Draw the state of each arm in slot 1."""
        states, u = np.zeros(self.layout.n_arms, dtype=np.int64), rng.random(self.layout.n_arms)
        total = np.zeros(self.layout.n_arms)
        for state in range(int(self.layout.n_states.max()) - 1):
            inside = state < self.layout.sizes - 1
            total[inside] += self.start[self.layout.first[inside] + state]
            states += inside & (u >= total)
        return states


def _reward_draws(problem: Problem, reward: Array) -> kernels.RewardDraws:
    """The parameters of random rewards, over places and actions; empty if all rewards are their means."""
    kinds = problem.kinds
    parts = (
        [(kinds.counts * 0 + 1, kinds[0])] if isinstance(kinds, ArrayKinds) else [(np.ones(1), kind) for kind in kinds]
    )
    if all(kind.reward_law == "fixed" for _, kind in parts):
        empty = np.zeros(0)
        return kernels.RewardDraws(np.zeros(0, dtype=np.int64), *4 * (empty,))
    columns: list[list[Array]] = [[], [], [], [], []]
    begin = 0
    for alike, kind in parts:
        size = len(alike) * kind.n_states * (2 if kind.setup_cost else 1)
        for column, values in zip(columns, _drawn_like(kind, reward[2 * begin : 2 * (begin + size)]), strict=True):
            column.append(values)
        begin += size
    pays, *others = (np.concatenate(column) for column in columns)
    return kernels.RewardDraws(pays.astype(np.int64), *others)


def _drawn_like(kind: AnyArm, means: Array) -> tuple[Array, Array, Array, Array, Array]:
    """How the rewards of places and actions of one kind are drawn."""
    low, high = kind.reward_range
    cost = np.zeros(len(means))
    if kind.setup_cost:
        # The first half of the places follow a slot without a pull.
        cost[1 : len(means) // 2 : 2] = kind.setup_cost
        means = np.tile(kind.mean_rewards, (2, 1)).reshape(-1)
    share = (means - low) / (high - low)
    random = (share > 0.0) & (share < 1.0) & (kind.reward_law != "fixed")
    if kind.passive_rewards is None:
        random[::2] = False  # an arm at rest pays nothing, and nothing is drawn
    first, second = (share, share) if kind.reward_spread is None else beta_shapes(share, kind.reward_spread)
    how = {"beta": PAYS_BETA, "fixed": PAYS_MEAN}.get(kind.reward_law, PAYS_END)
    return np.full(len(means) // 2, how), low - cost, np.where(random, high - low, 0.0), first, second


@dataclass
class PolicyRecord:
    """The counts of a run of a policy on observed arms."""

    pulls: IntArray
    """Pulls of each arm; of each kind, at its first arm, where the numbers of arms step."""
    slots: int = 0
    plan_lengths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class ObservedTotals:
    """Realised reward, mean reward and gap, summed up to each checkpoint."""

    at: Array


class ObservedRun:
    """A run of a policy on observed arms."""

    def __init__(self, world: ObservedWorld, checkpoints: IntArray, seed: int, run: int) -> None:
        self.world, self.checkpoints = world, checkpoints
        content = world.problem.content
        self._words, self._rng = world_words(seed, content, run), world_generator(seed, content, run)
        self.record = PolicyRecord(np.zeros(world.layout.n_arms, dtype=np.int64))
        self.totals = ObservedTotals(np.zeros((len(checkpoints), 3)))
        self._sums = np.zeros(2)

    def play(self, policy: Policy) -> None:
        """Play a policy to the last checkpoint."""
        if not isinstance(policy, ObservedPolicy):
            raise ProblemError(
                f"the simulator of observed arms cannot play a {type(policy).__name__}; give a policy of the present "
                "states, such as those of the oracles whittle, lp-index, id, lp-update, myopic and exact"
            )
        counted = isinstance(policy, CountedPolicy) and self.world.by_counts
        play = self._counts(policy) if counted and isinstance(policy, CountedPolicy) else self._arms(policy)
        for number, slot in enumerate(self.checkpoints):
            play(int(slot) - self.record.slots)
            self.record.slots = int(slot)
            self.totals.at[number, :2] = self._sums
        self.record.plan_lengths.append(self.record.slots)

    def _stretches(self, policy: PriorityPolicy | HorizonPolicy, slots: int) -> Iterator[tuple[PriorityPolicy, int]]:
        """Yield the priorities of the next slots, and the number of slots of each."""
        if isinstance(policy, PriorityPolicy):
            yield policy, slots
        else:
            yield from ((policy.at(self.record.slots + 1 + ahead), 1) for ahead in range(slots))

    def _arms(self, policy: ObservedPolicy) -> Any:
        """Return a function that plays slots by steps of single arms."""
        world, layout = self.world, self.world.layout
        arms, draws = world.arms, world.draws
        state = world.first_states(self._rng).astype(np.uint16)
        if isinstance(policy, PriorityPolicy | HorizonPolicy):
            search = rank_search(layout.n_arms, layout.size)
            pulls = np.zeros(layout.n_arms, dtype=np.int32)
            plain = not len(draws.pays) and bool((layout.n_states == 2).all()) and bool((layout.counts == 1).all())

            def by_rank(slots: int) -> None:
                for one, length in self._stretches(policy, slots):
                    ranks, floor = place_ranks(one)
                    given = (state, ranks, floor, one.plays, search, length, self._sums, pulls)
                    if plain:
                        kernels.play_two_states_by_rank(self._words, arms.cumulative, arms.reward, *given)
                    else:
                        kernels.play_by_rank(self._words, arms, draws, *given)
                self.record.pulls[:] = pulls

            return by_rank
        pulled = np.zeros(layout.n_arms, dtype=np.bool_)

        def one_by_one(slots: int) -> None:
            for _ in range(slots):
                if isinstance(policy, RandomizedPolicy):
                    wishes = (world.arms.offset, state, policy.wish, policy.plays, policy.at_most, pulled)
                    kernels.choose_by_wish(self._words, *wishes)
                else:
                    pulled[:] = False
                    pulled[policy.arms(state.astype(np.int64))] = True
                self.record.pulls[pulled] += 1
                kernels.step_pulled(self._words, arms, draws, state, pulled, self._sums)

        return one_by_one

    def _counts(self, policy: CountedPolicy) -> Any:
        """Return a function that plays slots by steps of the numbers of arms."""
        world, layout = self.world, self.world.layout
        kinds, draws = world.kinds, world.draws
        numbers, pulled = world.first_numbers(self._rng), np.zeros(layout.size, dtype=np.int64)
        firsts = np.cumsum(layout.counts) - layout.counts

        def play(slots: int) -> None:
            if isinstance(policy, PriorityPolicy | HorizonPolicy):
                for one, length in self._stretches(policy, slots):
                    given = (kinds, draws, one.allowed, one.plays, numbers, length, self._sums, pulled)
                    kernels.play_counts_by_rank(self._rng, *given)
            else:
                for _ in range(slots):
                    pulls = policy.pulls(numbers)
                    pulled[:] += pulls
                    kernels.step_counts(self._rng, kinds, draws, numbers, pulls, self._sums)
            self.record.pulls[firsts] = np.add.reduceat(pulled, layout.offset)

        return play


def place_ranks(policy: PriorityPolicy) -> tuple[Any, int]:
    """The ranks of places, and the lowest rank that may be pulled."""
    size = policy.layout.size
    ranks = np.zeros(size, dtype=np.int32)
    ranks[policy.allowed] = size - 1 - np.arange(len(policy.allowed))
    return ranks, size - len(policy.allowed)


def rank_search(n_arms: int, size: int) -> kernels.RankSearch:
    """The memory of the search of the highest ranks."""
    shift = max(1, (size - 1).bit_length() // 2)
    coarse, fine = np.zeros((size >> shift) + 1, dtype=np.int64), np.zeros(1 << shift, dtype=np.int64)
    # The lowest rank that is pulled moves by some roots of the number of arms.
    window = np.zeros(2 * WINDOW_ROOTS * math.isqrt(size) + 1, dtype=np.int64)
    return kernels.RankSearch(np.zeros(n_arms, dtype=np.int32), coarse, fine, window, shift)


def play_observed(policy: Policy, world: ObservedWorld, checkpoints: IntArray, *, seed: int, run: int) -> ObservedRun:
    """Play a run of a policy to the last checkpoint; ``checkpoints`` are slots in ascending order."""
    played = ObservedRun(world, checkpoints, seed, run)
    played.play(policy)
    return played


@dataclass(frozen=True)
class Budget:
    """Independent runs and their slots, as many as some seconds allow."""

    runs: int
    slots: int

    @classmethod
    def of(cls, world: ObservedWorld, policy: ObservedPolicy, seconds: float) -> Budget:
        """Return a budget by the approximate seconds of a slot, so that it does not depend on the machine."""
        if isinstance(policy, LookaheadPolicy):
            slot = SECONDS_PER_PROGRAM + SECONDS_PER_VARIABLE * policy.slots * world.layout.size
        elif isinstance(policy, CountedPolicy) and world.by_counts:
            slot = SECONDS_PER_PLACE * world.layout.size
        else:
            slot = SECONDS_PER_ARM * world.layout.n_arms
        if not isinstance(policy, PriorityPolicy):
            slot += SECONDS_PER_CALL
        fewest = FEWEST_PROGRAMS if isinstance(policy, LookaheadPolicy) else FEWEST_SLOTS
        affordable = max(FEWEST_RUNS * fewest, int(seconds / slot))
        runs = min(MOST_RUNS, max(FEWEST_RUNS, affordable // LONG_RUN))
        return cls(runs, min(MOST_SLOTS, affordable // runs))


@lru_cache(maxsize=4)
def mean_rewards(problem: Problem, policy: ObservedPolicy, budget: Budget, seed: int = 0) -> Array:
    """Return the mean reward a slot in the third and in the fourth quarter of each run: (run, quarter).

    Runs of ``lp-update`` are short, so the arms start from the end of the policy's expected path. The last results are
    cached: ``auto`` compares policies, and the gain of the best one is asked for next.
    """
    world, slots = ObservedWorld(problem), budget.slots
    if isinstance(policy, LookaheadPolicy):
        counts = np.repeat(world.layout.counts, world.layout.n_states)
        ahead = policy.path_end(world.start * counts / world.layout.n_arms, PATH_PROGRAMS)
        world = ObservedWorld(problem, ahead * world.layout.n_arms / counts)
    marks = np.array([slots // 2, slots // 2 + (slots - slots // 2) // 2, slots])
    found = np.empty((budget.runs, 2))
    for number in range(budget.runs):
        run = play_observed(policy, world, marks, seed=seed, run=number)
        found[number] = np.diff(run.totals.at[:, 1]) / np.diff(marks)
    return found


def horizon_rewards(
    world: ObservedWorld, policy: ObservedPolicy, horizon: int, seconds: float = SHORT_SECONDS
) -> Array:
    """Return the mean reward of each run from the start to a horizon, of as many runs as some seconds allow."""
    slot = SECONDS_PER_PLACE * world.layout.size if world.by_counts else SECONDS_PER_ARM * world.layout.n_arms
    runs = int(seconds / (horizon * (slot + SECONDS_PER_CALL)))
    marks, runs = np.array([horizon]), min(MOST_HORIZON_RUNS, max(FEWEST_RUNS, runs))
    return np.array([play_observed(policy, world, marks, seed=0, run=run).totals.at[0, 1] for run in range(runs)])


def simulated_gain(problem: Problem, policy: ObservedPolicy, seconds: float = SHORT_SECONDS) -> tuple[float, float]:
    """Return the mean reward a slot of a simulation of some seconds, and its standard error."""
    means = mean_rewards(problem, policy, Budget.of(ObservedWorld(problem), policy, seconds)).mean(axis=1)
    return float(means.mean()), float(means.std(ddof=1)) / math.sqrt(len(means))


def short_gain(problem: Problem, policy: ObservedPolicy) -> float:
    """Return the mean reward a slot of a short simulation, for a comparison of policies on the same seeds."""
    return float(mean_rewards(problem, policy, Budget.of(ObservedWorld(problem), policy, SHORT_SECONDS)).mean())
