"""Whittle's and Gittins' index of observed arms, and the gain of an arm as a function of a subsidy for resting.

An observed arm has n states, a chain and mean rewards for slots in which the arm is pulled, and others for slots in
which the arm rests. Resting also pays a subsidy m. As m rises from −∞ to ∞ the optimal policy of the arm turns from
"always pull" to "always rest"; between two *turns* the gain is affine in m, and the slope is the share of time at rest.
The arm is *indexable* if no state turns back to pulling (Whittle 1988); the subsidy at which a state turns to rest is
then the state's Whittle index. The homotopy follows all turns with one rank-one update each (Niño-Mora 2020; Gast,
Gaujal, Khun 2023). Two states have a closed form, and are always indexable.

An arm that is not indexable has no Whittle index. The result then says so, lists all turns, and gives the last subsidy
at which each state turns to rest as a priority. The gain as a function of m is exact for every arm.

An arm some of whose policies have several recurrent classes has no single gain. Such an arm is swept with the discount
``NEAR_ONE`` in place of the average reward, and the result says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.oracles.index_kernels import NEAR_ONE

BLOCKED_FROM = 150
"""States from which the rank-one updates are gathered into matrix products."""
UPDATES_PER_PRODUCT = 48
SINGULAR = 1e-12
"""A ratio of determinants below this number means several recurrent classes."""
FLAT = 1e-12
"""An advantage that falls by less than this share of the subsidy is constant: pulls now or later are alike there."""
TURNS_PER_STATE = 20
"""A sweep with more turns than this number for each state goes round in a circle of ties."""


@dataclass(frozen=True)
class Sweep:
    """Turns of many arms of one number of states, in the order of rising subsidies: arrays (arm, turn).

    ``subsidy`` is padded with infinity. ``state`` holds the state that turns to rest, or −1 − state where the state
    turns back to pulling. ``slope`` is the share of time at rest from the turn on, and ``base`` the gain of the arm
    that is always pulled.
    """

    subsidy: Array
    state: IntArray
    slope: Array
    base: Array
    discounted: BoolArray
    """Arms with several recurrent classes, which were swept with the discount ``NEAR_ONE``."""

    @property
    def n_arms(self) -> int:
        return len(self.base)

    def part(self, rows: slice) -> Sweep:
        """Return the turns of consecutive arms."""
        words = ("subsidy", "state", "slope", "base", "discounted")
        return Sweep(*(getattr(self, word)[rows] for word in words))

    def indices(self, n_states: int) -> Array:
        """Return the last subsidy at which each state turns to rest: array (arm, state)."""
        found = np.full((self.n_arms, n_states), np.inf)
        if self.state.shape[1] == n_states and (self.state >= 0).all() and np.isfinite(self.subsidy).all():
            # Every state turns once.
            found.reshape(-1)[np.arange(0, found.size, n_states)[:, None] + self.state] = self.subsidy
            return found
        rows = np.arange(self.n_arms)
        for turn in range(self.subsidy.shape[1]):
            real = np.isfinite(self.subsidy[:, turn]) & (self.state[:, turn] >= 0)
            found[rows[real], self.state[real, turn]] = self.subsidy[real, turn]
        return found

    @property
    def turning_back(self) -> BoolArray:
        """The arms of which a state turns back to pulling, which are not indexable."""
        return np.asarray((np.isfinite(self.subsidy) & (self.state < 0)).any(axis=1))

    def violations(self, n_states: int) -> Array:
        """Return the longest stretch of subsidies, for each arm, after which a resting state turns back to pulling."""
        worst = np.zeros(self.n_arms)
        back = np.isfinite(self.subsidy) & (self.state < 0)
        for arm in np.flatnonzero(back.any(axis=1)):
            rested_from = np.full(n_states, np.inf)
            for subsidy, state in zip(self.subsidy[arm], self.state[arm], strict=True):
                if not np.isfinite(subsidy):
                    break
                if state >= 0:
                    rested_from[state] = subsidy
                else:
                    worst[arm] = max(worst[arm], subsidy - rested_from[-1 - state])
        return worst

    def resting(self, subsidy: float, n_states: int) -> BoolArray:
        """Return which states rest at a subsidy, those that turn exactly there included: array (arm, state)."""
        found = np.zeros((self.n_arms, n_states), dtype=np.bool_)
        rows = np.arange(self.n_arms)
        for turn in range(self.subsidy.shape[1]):
            past = self.subsidy[:, turn] <= subsidy
            states = self.state[past, turn]
            found[rows[past], np.where(states >= 0, states, -1 - states)] = states >= 0
        return found


def sweep_arms(
    active: Array,
    passive: Array,
    active_rewards: Array,
    passive_rewards: Array,
    *,
    discount: float = 1.0,
    start: Array | None = None,
) -> Sweep:
    """Sweep arms of one number of states: chains (arm, state, next state), mean rewards (arm, state).

    A discount of 1 means the average reward. ``start`` holds the distribution of each arm in slot 1, uniform if left
    out; gains depend on it where the reward is discounted, and turns never do.
    """
    n_arms, n_states = active_rewards.shape
    if start is None:
        start = np.full((n_arms, n_states), 1 / n_states)
    arms = active, passive, active_rewards, passive_rewards
    found, multichain = _swept(*arms, discount, start)
    if discount == 1.0 and multichain.any():
        some = [part[multichain] for part in arms]
        again, _ = _swept(some[0], some[1], some[2], some[3], NEAR_ONE, start[multichain])
        found = _replaced(found, multichain, again)
    return Sweep(*found, multichain if discount == 1.0 else np.zeros(n_arms, dtype=np.bool_))


Swept = tuple[Array, IntArray, Array, Array]


def _replaced(found: Swept, rows: BoolArray, other: Swept) -> Swept:
    """Turns of all arms, those of some rows replaced."""
    width = max(found[0].shape[1], other[0].shape[1])
    parts = []
    for part, new, fill in zip(found[:3], other[:3], (np.inf, 0, 0), strict=True):
        wide = np.full((len(part), width), fill, dtype=part.dtype)
        wide[:, : part.shape[1]] = part
        wide[rows] = fill
        wide[rows, : new.shape[1]] = new
        parts.append(wide)
    base = found[3].copy()
    base[rows] = other[3]
    return parts[0], parts[1], parts[2], base


def _swept(
    active: Array, passive: Array, active_rewards: Array, passive_rewards: Array, discount: float, start: Array
) -> tuple[Swept, BoolArray]:
    """Turns of arms of one number of states, and which of the arms have several recurrent classes."""
    n_arms, n = active_rewards.shape
    if n == 1:
        zeros = np.zeros((n_arms, 1))
        difference = active_rewards - passive_rewards
        return (difference, zeros.astype(np.int64), zeros + 1, active_rewards[:, 0].copy()), np.zeros(
            n_arms, dtype=np.bool_
        )
    if n >= BLOCKED_FROM:
        return _blocked(active, passive, active_rewards, passive_rewards, discount, start)
    from restless_bandits.oracles.observed import sweep_kernels as kernels

    given = active, passive, active_rewards, passive_rewards, start
    arms = tuple(np.ascontiguousarray(part) for part in given)
    most = 2 if n == 2 else n + 2
    while True:
        subsidy: Array = np.full((n_arms, most), np.inf)
        state: IntArray = np.zeros((n_arms, most), dtype=np.int64)
        slope: Array = np.zeros((n_arms, most))
        base: Array = np.zeros(n_arms)
        turns: IntArray = np.zeros(n_arms, dtype=np.int64)
        outcome: IntArray = np.zeros(n_arms, dtype=np.int64)
        swept = subsidy, state, slope, base, turns, outcome
        if n == 2:
            kernels.sweep_two_states(arms, discount, swept)
        else:
            kernels.sweep(arms, discount, swept)
        if not (outcome == kernels.CYCLING).any() or most >= TURNS_PER_STATE * n:
            # A circle of ties that even this many turns do not leave is left to the discount.
            return (subsidy, state, slope, base), outcome != kernels.DONE
        most = TURNS_PER_STATE * n


def _blocked(
    active: Array, passive: Array, active_rewards: Array, passive_rewards: Array, discount: float, start: Array
) -> tuple[Swept, BoolArray]:
    """The sweep of ``sweep_kernels`` for large arms; a matrix product applies many updates of X at once."""
    n_arms, n = active_rewards.shape
    most = TURNS_PER_STATE * n
    lists, bases, multichain = [], np.zeros(n_arms), np.zeros(n_arms, dtype=np.bool_)
    for i in range(n_arms):
        turns, bases[i], multichain[i] = _one_blocked(
            active[i], passive[i], active_rewards[i], passive_rewards[i], discount, start[i], most
        )
        lists.append(turns)
    width = max(1, *(len(turns) for turns in lists))
    subsidy, state = np.full((n_arms, width), np.inf), np.zeros((n_arms, width), dtype=np.int64)
    slope = np.zeros((n_arms, width))
    for i, turns in enumerate(lists):
        for k, turn in enumerate(turns):
            subsidy[i, k], state[i, k], slope[i, k] = turn
    return (subsidy, state, slope, bases), multichain


def _one_blocked(
    active: Array,
    passive: Array,
    active_rewards: Array,
    passive_rewards: Array,
    discount: float,
    start: Array,
    most: int,
) -> tuple[list[tuple[float, int, float]], float, bool]:
    """The turns of one large arm as (subsidy, state, slope), the gain of pulling always, and a sign of failure."""
    n = len(active_rewards)
    matrix, change, occupied_by = np.eye(n) - discount * active, discount * (active - passive), (1 - discount) * start
    # The relative value of state 0 is zero; its column carries the gain.
    matrix[:, 0], change[:, 0], occupied_by[0] = 1.0, 0.0, 1.0
    try:
        solved = np.linalg.solve(matrix.T, np.concatenate([change, occupied_by[None]]).T).T
    except np.linalg.LinAlgError:
        return [], 0.0, True
    if not np.isfinite(solved).all() or np.abs(solved).max() > 1 / SINGULAR:
        return [], 0.0, True
    answer, occupation = np.ascontiguousarray(solved[:n]), solved[n].copy()
    columns, rows, gathered = np.empty((UPDATES_PER_PRODUCT, n)), np.empty((UPDATES_PER_PRODUCT, n)), 0
    base = float(occupation @ active_rewards)
    advantage, fall = active_rewards - passive_rewards + answer @ active_rewards, np.ones(n)
    resting = np.zeros(n, dtype=np.bool_)
    turns: list[tuple[float, int, float]] = []
    subsidy = 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        while True:
            open_to_turn = ((fall > 0) != resting) & (np.abs(fall) > FLAT)
            if not open_to_turn.any():
                return turns, base, not resting.all()
            steps = np.where(open_to_turn, advantage / fall, np.inf)
            if turns:
                np.maximum(steps, 0.0, out=steps)
            s = int(steps.argmin())
            if len(turns) == most:
                return turns, base, True
            step = float(steps[s])
            subsidy += step
            advantage -= step * fall
            advantage[s] = 0.0
            column = answer[:, s] - columns[:gathered].T @ rows[:gathered, s]
            row = answer[s] - columns[:gathered, s] @ rows[:gathered]
            sign = -1.0 if resting[s] else 1.0
            ratio = 1.0 + sign * column[s]
            if ratio < SINGULAR:
                return turns, base, True
            column *= sign / ratio
            fall -= column * fall[s]
            occupation -= sign / ratio * occupation[s] * row
            columns[gathered], rows[gathered], gathered = column, row, gathered + 1
            if gathered == UPDATES_PER_PRODUCT:
                answer -= columns.T @ rows
                gathered = 0
            resting[s] = not resting[s]
            turns.append((subsidy, s if resting[s] else -1 - s, float(occupation[resting].sum())))
