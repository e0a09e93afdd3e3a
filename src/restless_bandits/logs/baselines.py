"""Logged answers in a selection of slots, and baselines in hindsight on these slots: see ``replaying``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.logs.traces import Trace

FEW_ARMS = 10
"""The largest number of arms for a comparison of all orders, by the sets of their first arms."""


@dataclass(frozen=True, eq=False)
class LoggedSlots:
    """The lines of the played slots, sorted by slot and within a slot by arm."""

    n_arms: int
    starts: IntArray
    """The start of each slot's lines, and the end of the last."""
    arms: IntArray
    states: IntArray
    """By the arms' own numbers."""
    rewards: Array

    @classmethod
    def of(cls, trace: Trace, played: IntArray) -> LoggedSlots:
        """Return the answers of a trace in a selection of slots, all with entries."""
        rows = np.isin(trace.times, played)
        times, arms = trace.times[rows], trace.arms[rows]
        lowest = np.array([best for best, _ in trace.spans])
        starts = np.append(np.searchsorted(times, played), len(times))
        return cls(trace.n_arms, starts, arms, trace.states[rows] - lowest[arms], trace.rewards[rows])

    @property
    def counts(self) -> IntArray:
        """The number of available arms in each slot."""
        return np.diff(self.starts)

    @property
    def slots(self) -> IntArray:
        """The slot of every line, counted from 0."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)


@dataclass(frozen=True, eq=False)
class Baselines:
    """Rewards of policies that know the log."""

    arms: Array
    """Each fixed arm, pulled wherever available, and elsewhere a random available arm."""
    order: tuple[int, ...]
    """The best order of arms; its first available arm is pulled."""
    ordered: float
    """The reward of the best order."""
    exact: bool
    """Whether the search covered all orders; otherwise the order follows the means of arms."""
    random: float
    """An arm drawn at random, on average."""
    hindsight: float
    """The best arm of every slot."""
    there: IntArray
    """The number of slots in which each arm is available."""
    incomplete: int
    """Slots with an unavailable arm."""
    alone: int
    """Slots with a single available arm."""


def baselines(answers: LoggedSlots, *, lost: bool, lowest: float) -> Baselines:
    """Return the baselines in hindsight; if answers can be lost, lost answers pay the lowest reward."""
    n, slots, counts = answers.n_arms, answers.slots, answers.counts
    starts, rewards = answers.starts[:-1], answers.rewards
    own = np.bincount(answers.arms, weights=rewards, minlength=n)
    there = np.bincount(answers.arms, minlength=n)
    best = np.maximum.reduceat(rewards, starts)
    sums = np.add.reduceat(rewards, starts)
    if lost:
        means = (sums + (n - counts) * lowest) / n
        arms = own + (len(counts) - there) * lowest
        first = int(arms.argmax())
        order, ordered, exact = (first, *(arm for arm in range(n) if arm != first)), float(arms[first]), True
    else:
        means = sums / counts
        # The random reward of all slots, less the slots with the arm available.
        by_chance = np.bincount(answers.arms, weights=means[slots], minlength=n)
        complete = there == len(counts)
        arms = np.where(complete, own, own + (means.sum() - by_chance))
        order, ordered, exact = best_order(answers)
    few = counts < n
    numbers = there, int(few.sum()), int((counts == 1).sum()) if n > 1 else 0
    return Baselines(arms, order, ordered, exact, float(means.sum()), float(best.sum()), *numbers)


def best_order(answers: LoggedSlots) -> tuple[tuple[int, ...], float, bool]:
    """Return the best order under pulls of its first available arm, its reward, and whether the order is proved
    optimal.

    The contribution of an arm depends only on the set of arms before it: the best order of each set follows from the
    sets with one arm less.
    """
    n = answers.n_arms
    if n > FEW_ARMS or (answers.counts == n).all():
        own = np.bincount(answers.arms, weights=answers.rewards, minlength=n)
        means = own / np.maximum(np.bincount(answers.arms, minlength=n), 1)
        order = tuple(np.argsort(-means, kind="stable").tolist())
        return order, _earned(answers, order), bool((answers.counts == n).all())
    bits = 1 << answers.arms
    sets, places = np.unique(np.bitwise_or.reduceat(bits, answers.starts[:-1]), return_inverse=True)
    pays = np.zeros((len(sets), n))
    np.add.at(pays, (places[answers.slots], answers.arms), answers.rewards)
    totals, last = np.full(1 << n, -np.inf), np.zeros(1 << n, dtype=np.int64)
    totals[0] = 0.0
    for before in range((1 << n) - 1):
        adds = pays[(sets & before) == 0].sum(axis=0)
        for arm in range(n):
            after = before | 1 << arm
            if after != before and totals[before] + adds[arm] > totals[after]:
                totals[after], last[after] = totals[before] + adds[arm], arm
    backwards, left = [], (1 << n) - 1
    while left:
        backwards.append(int(last[left]))
        left ^= 1 << int(last[left])
    order = tuple(reversed(backwards))
    return order, _earned(answers, order), True


def _earned(answers: LoggedSlots, order: tuple[int, ...]) -> float:
    """The reward of an order under pulls of its first available arm."""
    ranks = np.empty(answers.n_arms, dtype=np.int64)
    ranks[list(order)] = np.arange(answers.n_arms)
    mine = ranks[answers.arms]
    first: BoolArray = mine == np.minimum.reduceat(mine, answers.starts[:-1])[answers.slots]
    return float(answers.rewards[first].sum())
