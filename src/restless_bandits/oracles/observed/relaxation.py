"""The Lagrangian relaxation of an observed problem: a bound of every policy, and the Lagrangian index.

The relaxation pulls B arms *on average*. With g_i(m) the gain of arm i alone when resting pays a subsidy m,

    gain of any policy ≤ L(m) = Σ_i g_i(m) − m (N − B)        for every m (for every m ≥ 0 if at most B are pulled).

L is convex and piecewise linear, and the breakpoints are the turns of the sweeps of ``index``. A weighted selection
among the turns finds the minimum without sorting all turns and without a linear program. The minimum of L equals the
value of the linear program over state-action frequencies (Whittle 1988).

The reported bound does not rest on the sweeps: for every function h of an arm's state,

    g_i(m) ≤ max over s, a of r(s, a) + m·[a rests] + (P_a h)(s) − h(s),

so the bound is evaluated at the h of one linear solve and widened by the rounding of this evaluation.

The *Lagrangian index* of a state is the advantage D_i(s) of pulling over resting at the minimising subsidy (Hawkins
2003; Brown, Smith 2020). Where an interval of subsidies minimises L, the midpoint is taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from restless_bandits._internal.blocks import blocks, row_max
from restless_bandits._internal.validation import Array, BoolArray
from restless_bandits.model.kinds import KindGroup
from restless_bandits.oracles.index_kernels import NEAR_ONE
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.index import Sweep, sweep_arms

UNIT = 2.0**-53
SORTED_FROM = 4096
"""Turns that are sorted; of more of them those near the minimum are selected first."""
SAMPLED, SPREAD = 2000, 150
"""The turns of a sample, and the places of the sample before and after the estimated minimum that are kept."""
SLOPE_TOLERANCE = 1e-10
"""A slope of L below this share of the arms counts as zero: the minimiser is an interval there."""
BISECTIONS = 50
LOOSE = 1e-6
"""A bound above the minimum of L by more than this share is sought at other subsidies too."""
TIE_TOLERANCE = 1e-9
"""An advantage this close to zero, relative to the scale of rewards, belongs to a state that may be randomised."""


@dataclass(frozen=True, eq=False)
class KindDuals:
    """Kinds of one group at one subsidy: gains, proved upper bounds of the gains, biases, advantages of pulling."""

    gain: Array
    upper: Array
    bias: Array
    advantage: Array
    resting: BoolArray
    """States that rest at the subsidy, ties included."""


@dataclass(frozen=True, eq=False)
class ObservedRelaxation:
    """The minimum of L: a subsidy, the interval of minimising subsidies, the bound, and every kind there."""

    subsidy: float
    interval: tuple[float, float]
    value: float
    """The minimum of L in total reward a slot, as computed."""
    bound: float
    """A proved upper bound of every policy's gain, rounding included."""
    sweeps: tuple[Sweep, ...]
    duals: tuple[KindDuals, ...]
    discount: float

    @property
    def lagrangian_index(self) -> Array:
        """The Lagrangian index, flat over (kind, state)."""
        return np.concatenate([dual.advantage.reshape(-1) for dual in self.duals])

    def whittle_index(self, arms: ObservedArms) -> Array:
        """Return Whittle's index, flat over (kind, state); a priority where a kind is not indexable."""
        return arms.flat(sweep.indices(g.n_states) for sweep, g in zip(self.sweeps, arms.groups, strict=True))

    @property
    def indexable(self) -> BoolArray:
        """Whether each kind is indexable."""
        return ~np.concatenate([sweep.turning_back for sweep in self.sweeps])

    def tie_break(self, arms: ObservedArms) -> Array:
        """Return the order of places of one Lagrangian index: Whittle's index, the subsidy where there is none."""
        parts = []
        for sweep, group in zip(self.sweeps, arms.groups, strict=True):
            back = sweep.turning_back[:, None]
            parts.append(np.where(back, self.subsidy, sweep.indices(group.n_states)))
        return arms.flat(parts)

    def wishes(self, arms: ObservedArms) -> Array:
        """Return the relaxed policy: the probability of a pull in each place.

        States of positive advantage are pulled, of negative advantage rest, and states of no advantage are pulled with
        the common probability at which the mean number of pulls fits the budget.
        """
        scale = max(1e-300, max(float(np.abs(dual.advantage).max()) for dual in self.duals))
        tied = [np.abs(dual.advantage) <= TIE_TOLERANCE * scale for dual in self.duals]
        wish = [(dual.advantage > 0).astype(np.float64) for dual in self.duals]

        def active(probability: float, rows: Sequence[BoolArray]) -> float:
            total = 0.0
            for group, sweep, some, ties, sure in zip(arms.groups, self.sweeps, rows, tied, wish, strict=True):
                if some.any():
                    pulled = np.where(ties[some], probability, sure[some])
                    chain = pulled[:, :, None] * group.active[some] + (1 - pulled[:, :, None]) * group.passive[some]
                    discount = np.where(sweep.discounted[some], NEAR_ONE, self.discount)
                    share, bias = gain_and_bias(chain, pulled, discount)
                    share = share + (1 - discount) * (group.start[some] * bias).sum(axis=1)
                    total += float((group.count[some] * share).sum())
            return total

        random = [np.atleast_1d(ties.any(axis=1)) for ties in tied]
        missing = arms.plays - active(0.0, [~rows for rows in random])
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if active(middle, random) < missing else (low, middle)
        probability = 0.5 * (low + high)
        return arms.flat(np.where(ties, probability, sure) for ties, sure in zip(tied, wish, strict=True))


def sweep_groups(arms: ObservedArms, discount: float = 1.0) -> tuple[Sweep, ...]:
    """Return the sweep of every group of kinds."""
    return tuple(
        sweep_arms(g.active, g.passive, g.active_rewards, g.passive_rewards, discount=discount, start=g.start)
        for g in arms.groups
    )


def relax_observed(
    arms: ObservedArms, *, discount: float = 1.0, sweeps: tuple[Sweep, ...] | None = None
) -> ObservedRelaxation:
    """Minimise the dual function L; gains are mean rewards a slot, with a discount (1 − β) times the total."""
    sweeps = sweep_groups(arms, discount) if sweeps is None else sweeps
    turns, rises = [], []
    for sweep, group in zip(sweeps, arms.groups, strict=True):
        rise = sweep.slope.copy()
        rise[:, 1:] -= sweep.slope[:, :-1]
        rise *= group.count[:, None]
        real = np.isfinite(sweep.subsidy)
        whole = bool(real.all())
        turns.append(sweep.subsidy.reshape(-1) if whole else sweep.subsidy[real])
        rises.append(rise.reshape(-1) if whole else rise[real])
    turn, rise = (parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in (turns, rises))
    spare = arms.n_arms - arms.plays
    interval = _minimisers(turn, rise, float(spare), SLOPE_TOLERANCE * arms.n_arms)
    if arms.at_most:
        interval = max(interval[0], 0.0), max(interval[1], 0.0)
    subsidy = _middle(*interval)
    base = sum(float((group.count * sweep.base).sum()) for sweep, group in zip(sweeps, arms.groups, strict=True))
    value = base + float((rise * np.maximum(subsidy - turn, 0.0)).sum()) - subsidy * spare
    duals, bound = _proved_bound(arms, sweeps, subsidy, discount)
    if bound > value + LOOSE * (abs(value) + 1e-300) and any(sweep.discounted.any() for sweep in sweeps):
        # From the best class of states an arm may earn more than from its start: then another subsidy proves more.
        ends = (max(float(turn.min()), 0.0) if arms.at_most else float(turn.min())), float(turn.max())
        if ends[0] < ends[1]:
            search = scipy.optimize.minimize_scalar(
                lambda m: _proved_bound(arms, sweeps, float(m), discount)[1],
                bounds=ends,
                method="bounded",
                options={"maxiter": BISECTIONS},
            )
            bound = min(bound, float(search.fun))
    return ObservedRelaxation(subsidy, interval, value, bound, sweeps, duals, discount)


def _proved_bound(
    arms: ObservedArms, sweeps: tuple[Sweep, ...], subsidy: float, discount: float
) -> tuple[tuple[KindDuals, ...], float]:
    """Return all kinds at a subsidy, and an upper bound of every policy's gain, rounding included."""
    duals = tuple(duals_at(group, sweep, subsidy, discount) for group, sweep in zip(arms.groups, sweeps, strict=True))
    parts = np.concatenate([group.count * dual.upper for group, dual in zip(arms.groups, duals, strict=True)])
    spare = arms.n_arms - arms.plays
    # NumPy adds pairwise in blocks of 128 by eight sums: at most 16 + 3 + log2(parts) roundings for each number.
    roundings = (24 + math.log2(len(parts))) * UNIT * float(np.abs(parts).sum()) + 4 * UNIT * abs(subsidy) * spare
    return duals, float(np.nextafter(float(parts.sum()) - subsidy * spare + roundings, np.inf))


def _middle(low: float, high: float) -> float:
    if np.isinf(low) or np.isinf(high):
        return high if np.isinf(low) else low
    return low + 0.5 * (high - low)


def _minimisers(turn: Array, rise: Array, target: float, tolerance: float) -> tuple[float, float]:
    """Return the interval in which the slope of L is zero: where the rises up to m sum to the target."""
    if target <= tolerance:
        return -np.inf, float(turn.min())
    passed, values, weights = 0.0, turn, rise
    while len(values) > SORTED_FROM:
        # A sample shows between which two turns the target lies, but for the chance of its draw.
        step = len(values) // SAMPLED
        sample, heavy = values[::step], weights[::step]
        order = np.argsort(sample)
        share = np.searchsorted(np.cumsum(heavy[order]), (target - passed) / step) + SPREAD * np.array([-1, 1])
        low, high = sample[order[np.clip(share, 0, len(order) - 1)]]
        below, above = values < low, values > high
        before = float(np.sum(weights, where=below))
        after = float(np.sum(weights, where=above))
        between = ~(below | above)
        if passed + before >= target - tolerance:
            values, weights = values[below], weights[below]
        elif passed + float(np.sum(weights, where=between)) + before < target - tolerance and after > 0:
            passed += float(weights.sum()) - after
            values, weights = values[above], weights[above]
        elif between.all():
            break
        else:
            passed += before
            values, weights = values[between], weights[between]
    order = np.argsort(values, kind="stable")
    reached = passed + np.cumsum(weights[order])
    place = min(int(np.searchsorted(reached >= target - tolerance, True)), len(order) - 1)
    low = float(values[order[place]])
    if reached[place] > target + tolerance:
        return low, low
    later = turn[(turn > low) & (rise > tolerance)]
    return low, float(later.min()) if len(later) else np.inf


def duals_at(group: KindGroup, sweep: Sweep, subsidy: float, discount: float = 1.0) -> KindDuals:
    """Return the kinds of a group at a subsidy, each under the optimal policy that its sweep names."""
    many, n = group.n_kinds, group.n_states
    gain, upper, bias, advantage = np.empty(many), np.empty(many), np.empty((many, n)), np.empty((many, n))
    found = KindDuals(gain, upper, bias, advantage, np.empty((many, n), dtype=np.bool_))
    for rows in blocks(many, n * n):
        part = _duals_at(group.part(rows), sweep.part(rows), subsidy, discount)
        for word, values in vars(part).items():
            getattr(found, word)[rows] = values
    return found


def _duals_at(group: KindGroup, sweep: Sweep, subsidy: float, discount: float) -> KindDuals:
    n = group.n_states
    if n == 2:
        found = _two_state_duals(group, sweep, subsidy, discount)
    else:
        resting = sweep.resting(subsidy, n)
        reward = np.where(resting, group.passive_rewards + subsidy, group.active_rewards)
        chain = np.where(resting[:, :, None], group.passive, group.active)
        gain, bias = gain_and_bias(chain, reward, np.where(sweep.discounted, NEAR_ONE, discount))
        # The bound for the average reward takes the true chains, whatever discount has found the relative values.
        pulled = group.active_rewards + discount * _after(group.active, bias)
        rested = group.passive_rewards + subsidy + discount * _after(group.passive, bias)
        from_start = (1 - discount) * (group.start * bias).sum(axis=1) if discount != 1.0 else 0.0
        upper = row_max(np.maximum(pulled, rested) - bias) + from_start
        found = KindDuals(gain + from_start, upper, bias, pulled - rested, resting)
    scale = row_max(np.abs(found.bias)) + row_max(np.abs(group.active_rewards))
    scale += row_max(np.abs(group.passive_rewards)) + abs(subsidy)
    # An inner product of n probabilities, which sum to one within n units, and three sums.
    return replace(found, upper=found.upper + (3 * n + 8) * UNIT * scale)


def _two_state_duals(group: KindGroup, sweep: Sweep, subsidy: float, discount: float) -> KindDuals:
    """Return the kinds of two states at a subsidy, in a single pass."""
    from restless_bandits.oracles.observed.relaxation_kernels import duals_of_two_states

    many = group.n_kinds
    found = np.empty(many), np.empty(many), np.empty((many, 2)), np.empty((many, 2)), np.empty((many, 2), np.bool_)
    given = group.active, group.passive, group.active_rewards, group.passive_rewards, group.start
    arms = tuple(np.ascontiguousarray(part) for part in given)
    turns = np.ascontiguousarray(sweep.subsidy), np.ascontiguousarray(sweep.state), sweep.discounted
    duals_of_two_states(arms, turns, (subsidy, discount, NEAR_ONE), found)
    return KindDuals(*found)


def _after(chains: Array, values: Array) -> Array:
    """Return the expectation of values (kind, state) after a step of each kind's chain."""
    after: Array = np.einsum("ksz,kz->ks", chains, values)
    return after


def gain_and_bias(chain: Array, reward: Array, discount: Array) -> tuple[Array, Array]:
    """Return gains and relative values h of given policies: g + h = r + β P h with h = 0 in state 0."""
    n = reward.shape[1]
    if n == 1:
        return reward[:, 0], np.zeros_like(reward)
    if n == 2:
        x, y = discount * chain[:, 0, 1], discount * chain[:, 1, 1]
        bias = np.zeros_like(reward)
        bias[:, 1] = (reward[:, 1] - reward[:, 0]) / (1 + x - y)
        return reward[:, 0] + x * bias[:, 1], bias
    matrix = np.eye(n) - discount[:, None, None] * chain
    matrix[:, :, 0] = 1.0
    bias = np.asarray(np.linalg.solve(matrix, reward[:, :, None])[:, :, 0], dtype=np.float64)
    gain = bias[:, 0].copy()
    bias[:, 0] = 0.0
    return gain, bias
