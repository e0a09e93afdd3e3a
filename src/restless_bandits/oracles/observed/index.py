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
from typing import Any

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

    def turns(self, arm: int) -> tuple[tuple[float, int, int], ...]:
        """Return the turns of an arm: the subsidy, the state, and the action from there on; action 1 pulls."""
        real = np.isfinite(self.subsidy[arm])
        listed = zip(self.subsidy[arm, real].tolist(), self.state[arm, real].tolist(), strict=True)
        return tuple((subsidy, state, 0) if state >= 0 else (subsidy, -1 - state, 1) for subsidy, state in listed)

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
    found, outcome = _by_kernel(kernels, arms, discount, 2 if n == 2 else n + 2)
    cycling = outcome == kernels.CYCLING
    if cycling.any():
        # Arms with states that turn back. A circle of ties that even this many turns do not leave is left to the
        # discount.
        some = tuple(part[cycling] for part in arms)
        again, outcome[cycling] = _by_kernel(kernels, some, discount, TURNS_PER_STATE * n)
        found = _replaced(found, cycling, again)
    return found, outcome != kernels.DONE


def _by_kernel(kernels: Any, arms: tuple[Array, ...], discount: float, most: int) -> tuple[Swept, IntArray]:
    """Return the turns of arms with room for ``most`` of each, cut to those that occur, and the outcomes."""
    n_arms, n = arms[2].shape
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
    width = max(1, int(turns.max(initial=0)))
    if width < most:
        subsidy, slope = np.ascontiguousarray(subsidy[:, :width]), np.ascontiguousarray(slope[:, :width])
        state = np.ascontiguousarray(state[:, :width])
    return (subsidy, state, slope, base), outcome


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
        # Row k: the column of X of state k, and the occupation of state k.
        rows = np.linalg.solve(matrix.T, np.concatenate([change, occupied_by[None]]).T)
    except np.linalg.LinAlgError:
        return [], 0.0, True
    if not np.isfinite(rows).all() or np.abs(rows).max() > 1 / SINGULAR:
        return [], 0.0, True
    base = float(rows[:, n] @ active_rewards)
    advantage, fall = active_rewards - passive_rewards + active_rewards @ rows[:, :n], np.ones(n)
    resting = np.zeros(n, dtype=np.bool_)
    answers = _Answers(rows)
    turns: list[tuple[float, int, float]] = []
    subsidy = at_rest = 0.0
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
            update = answers.turned(s, -1.0 if resting[s] else 1.0)
            if update is None:
                return turns, base, True
            before = float(fall[s])
            fall -= update[:n] * before
            at_rest += float(update[n]) * before
            resting[s] = not resting[s]
            turns.append((subsidy, s if resting[s] else -1 - s, at_rest))


class _Answers:
    """The columns of X for the states that have not turned, a row each; a matrix product applies many turns at once.

    Columns of states that have turned are left as they are, and brought up to date where a state turns back.
    """

    def __init__(self, rows: Array) -> None:
        self._rows, self._states = rows, np.arange(len(rows))
        self._blocks: list[tuple[list[int], Array]] = []
        """The turns that were applied: states and updates."""
        self._left: dict[int, tuple[int, Array]] = {}
        """Rows of states that have turned, with the number of blocks that were applied."""
        self._begin_block()

    def _begin_block(self) -> None:
        n = self._rows.shape[1] - 1
        self._place = np.full(n, -1)
        self._place[self._states] = np.arange(len(self._states))
        self._turned: list[int] = []
        self._updates = np.empty((UPDATES_PER_PRODUCT, n + 1))
        self._factors = np.empty((UPDATES_PER_PRODUCT, len(self._states)))

    def turned(self, s: int, sign: float) -> Array | None:
        """Turn a state and return the update of X and of the occupation by each unit; None for a singular matrix."""
        if self._place[s] < 0:
            self._take_up(s)
        count, place = len(self._turned), self._place[s]
        factors, updates = self._factors[:count], self._updates[:count]
        column = self._rows[place] - factors[:, place] @ updates
        ratio = 1.0 + sign * float(column[s])
        if ratio < SINGULAR:
            return None
        self._factors[count] = self._rows[:, s] - updates[:, s] @ factors
        update: Array = self._updates[count]
        np.multiply(column, sign / ratio, out=update)
        self._turned.append(s)
        if len(self._turned) == UPDATES_PER_PRODUCT:
            self._apply()
        return update

    def _apply(self) -> None:
        """Apply the turns of a block to the states that have not turned in it."""
        gone = np.isin(self._states, self._turned)
        for place in np.flatnonzero(gone).tolist():
            self._left[int(self._states[place])] = len(self._blocks), self._rows[place].copy()
        count = len(self._turned)
        updates = self._updates[:count]
        self._rows = self._rows[~gone] - self._factors[:count, ~gone].T @ updates
        self._states = self._states[~gone]
        self._blocks.append((self._turned, updates))
        self._begin_block()

    def _take_up(self, s: int) -> None:
        """Bring the column of a state that has turned before up to date."""
        self._apply()
        applied, column = self._left.pop(s)
        for states, updates in self._blocks[applied:]:
            for state, update in zip(states, updates, strict=True):
                column -= column[state] * update
        self._rows, self._states = np.concatenate([self._rows, column[None]]), np.append(self._states, s)
        self._begin_block()
