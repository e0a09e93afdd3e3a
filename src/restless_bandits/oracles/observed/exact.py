"""The certified optimum of small observed problems: relative value iteration over joint states, or over counts.

Joint states are tuples of states, and a choice of arms is applied axis by axis: the contraction along the axis of an
arm is shared by all choices that agree on the arms before. Arms of one kind are exchangeable, so the number of arms in
each state is enough: C(N + n − 1, n − 1) states in place of n^N. The pulled and the resting arms then move
independently, and a sweep is two products of matrices for each number of pulls.

For every function v, min (Tv − v) ≤ optimum ≤ max (Tv − v), widened by the rounding of one sweep. So v may come from
anywhere: sweeps start from the relative values of the relaxation and are extrapolated from the last sweeps (Anderson
acceleration). After many sweeps, policies are improved by Howard's steps, whose values GMRES finds. Where the bracket
stops shrinking, further sweeps move half of the way; where it still does not shrink, plain sweeps go on from the values
of the narrowest bracket. A problem whose optimum depends on the initial state leaves a bracket that does not close.
With a discount β, the bracket is (1 − β) times the value from the start: v at the start plus the extremes of Tv − v.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass

import numpy as np
import scipy

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.kinds import KindGroup
from restless_bandits.oracles.observed.arms import ObservedArms

UNIT = 2.0**-53
DAMPING = 0.5
"""The weight of the old values in a sweep, once the bracket stops shrinking."""
STALLED_SWEEPS, PLAIN_AFTER, PLAIN_SWEEPS = 12, 48, 3000
"""Sweeps without a narrower bracket after which sweeps are damped, after which they are no longer extrapolated until
the bracket shrinks again, and after which they end. A choice may turn only after a thousand damped sweeps.
"""
POLICY_AFTER, POLICY_STEPS = 60, 12
"""Sweeps after which the policy is improved from its own values, once, and steps of this kind."""
GMRES_VECTORS, GMRES_ROUNDS = 80, 3
REMEMBERED_SWEEPS = 16
"""The sweeps from which the next values are extrapolated."""


@dataclass(frozen=True, eq=False)
class JointValues:
    """Values over the joint states of all arms, the choice in each, and a bracket of the optimum."""

    value: Array
    choice: IntArray
    """The number of the choice in each joint state, in the order of ``choices``."""
    choices: tuple[tuple[int, ...], ...]
    lower: float
    upper: float
    sweeps: int


def joint_choices(n_arms: int, plays: int, *, at_most: bool = False) -> tuple[tuple[int, ...], ...]:
    """Return all choices of arms, fewer than ``plays`` included if that is allowed."""
    sizes = range(plays + 1) if at_most else (plays,)
    found = [choice for size in sizes for choice in itertools.combinations(range(n_arms), size)]
    # In the order of the arms' actions, the last arm first, so that neighbours agree on the last arms.
    return tuple(sorted(found, key=lambda choice: [arm not in choice for arm in reversed(range(n_arms))]))


def joint_work(arms: ObservedArms) -> float:
    """Return about the multiplications of one sweep over joint states."""
    sizes = arms.layout.sizes
    fewest = 0 if arms.at_most else arms.plays
    leaves = sum(math.comb(arms.n_arms, size) for size in range(fewest, arms.plays + 1))
    states: list[int] = sizes.tolist()
    return math.prod(states) * leaves * 2.0 * max(states)


class JointSweep:
    """Sweeps of the optimality operator over the joint states of a few arms."""

    def __init__(self, arms: ObservedArms, discount: float = 1.0) -> None:
        self.discount = discount
        self.choices = joint_choices(arms.n_arms, arms.plays, at_most=arms.at_most)
        self.actions = np.zeros((len(self.choices), arms.n_arms), dtype=np.int64)
        for number, choice in enumerate(self.choices):
            self.actions[number, list(choice)] = 1
        most = int(arms.layout.n_states.max())
        self.sizes = arms.layout.sizes
        self.shape: tuple[int, ...] = tuple(self.sizes.tolist())
        self.chains = np.zeros((arms.n_arms, 2, most, most))
        self.rewards = np.zeros((arms.n_arms, 2, most))
        for i, kind in enumerate(np.repeat(np.arange(len(arms.layout.counts)), arms.layout.counts).tolist()):
            group = next(g for g in arms.groups if g.kinds.start <= kind < g.kinds.stop)
            k, n = kind - group.first, group.n_states
            self.chains[i, :, :n, :n] = group.passive[k], group.active[k]
            self.rewards[i, :, :n] = group.passive_rewards[k], group.active_rewards[k]
        self.largest = float(np.abs(self.rewards).max(axis=(1, 2)).sum())

    def __call__(self, value: Array) -> tuple[Array, IntArray]:
        """Return the best values after one slot and the choices that reach them, ties to the first choice."""
        from restless_bandits.oracles.observed.joint_sweep_kernels import sweep_joint

        best, choice = np.empty(value.size), np.zeros(value.size, dtype=np.int64)
        flat = np.ascontiguousarray(value * self.discount).reshape(-1)
        sweep_joint(self.actions, self.sizes, self.chains, self.rewards, flat, best, choice, False)
        return best.reshape(self.shape), choice.reshape(self.shape)

    def policy_values(self, value: Array, choice: IntArray, gain: float, tolerance: float) -> tuple[Array, int]:
        """Return the relative values of a policy by GMRES, and about as many sweeps as they took.

        ``value`` and ``gain`` are the values and the gain to start from. Unconverged values are returned as they are.
        """
        from restless_bandits.oracles.observed.joint_sweep_kernels import sweep_joint

        used, numbers = np.unique(choice, return_inverse=True)
        actions, numbers = self.actions[used], numbers.reshape(-1)
        calls = 0

        def after(values: Array) -> Array:
            nonlocal calls
            calls += 1
            best = np.empty(values.size)
            sweep_joint(actions, self.sizes, self.chains, self.rewards, values, best, numbers, True)
            return best

        def equations(given: Array) -> Array:
            # Place 0 holds the gain; the relative value of this state is zero.
            relative = given.reshape(-1).copy()
            relative[0] = 0.0
            return relative - (after(relative) - paid) + given.flat[0]

        paid = after(np.zeros(value.size))
        start = value.reshape(-1) - value.flat[0]
        start[0] = gain
        system = scipy.sparse.linalg.LinearOperator((value.size, value.size), matvec=equations, dtype=np.float64)
        found, _ = scipy.sparse.linalg.gmres(
            system, paid, x0=start, rtol=0.0, atol=tolerance, restart=GMRES_VECTORS, maxiter=GMRES_ROUNDS
        )
        found[0] = 0.0
        return found.reshape(self.shape), math.ceil(calls * len(used) / len(self.choices))

    def rounding(self, value: Array) -> float:
        """Return a bound of the rounding of one sweep at some values."""
        terms = sum(self.shape) + 3 * len(self.shape) + 4
        return terms * UNIT * (float(np.abs(value).max()) + self.largest)


def solve_joint(
    arms: ObservedArms,
    *,
    tolerance: float = 1e-9,
    discount: float = 1.0,
    most: int = 100_000,
    seconds: float = math.inf,
    bias: Array | None = None,
) -> JointValues:
    """Solve a problem over the joint states of its arms; after so many seconds the bracket may be wider.

    ``bias`` holds relative values of single arms over places, whose sums are the values to start from.
    """
    deadline = time.perf_counter() + seconds
    sweep, start = JointSweep(arms, discount), np.ones(1)
    for group in arms.groups:
        for one, count in zip(group.start, group.count, strict=True):
            for _ in range(count):
                start = np.multiply.outer(start, one)
    value = np.zeros(sweep.shape)
    if bias is not None:
        parts = np.split(bias, arms.layout.offset[1:])
        for axis, kind in enumerate(np.repeat(np.arange(len(parts)), arms.layout.counts).tolist()):
            value += np.moveaxis(parts[kind].reshape(-1, *[1] * (value.ndim - 1)), 0, axis)
    found = _iterated(sweep, value, start.reshape(sweep.shape), tolerance, discount, most, deadline)
    value, choice, low, high, sweeps = found
    return JointValues(value, choice, sweep.choices, low, high, sweeps)


@dataclass(frozen=True, eq=False)
class CountValues:
    """Values over the numbers of arms in each state, for arms of one kind, and a bracket of the optimum."""

    counts: IntArray
    """The possible counts, a row each."""
    value: Array
    pulls: IntArray
    """The number of arms to pull in each state, a row for each row of ``counts``."""
    lower: float
    upper: float
    sweeps: int


def compositions(total: int, parts: int) -> IntArray:
    """Return all ways to write a number as an ordered sum of so many numbers, in lexicographic order."""
    if parts == 1:
        return np.array([[total]])
    rows = [np.insert(compositions(total - first, parts - 1), 0, first, axis=1) for first in range(total + 1)]
    return np.concatenate(rows)


def composition_ranks(counts: IntArray) -> IntArray:
    """Return the position of each row among all compositions of its sum, in lexicographic order."""
    found: IntArray = np.zeros(counts.shape[:-1], dtype=np.int64)
    left = counts.sum(axis=-1)
    for state in range(counts.shape[-1] - 1):
        others = counts.shape[-1] - 1 - state
        after = left - counts[..., state]
        found += _splits(left, others) - _splits(after, others)
        left = after
    return found


def _splits(most: IntArray, parts: int) -> IntArray:
    """Return the number of ways to write the numbers up to ``most`` as an ordered sum of so many numbers."""
    table = np.array([math.comb(number + parts, parts) for number in range(int(most.max()) + 1)])
    return np.asarray(table[most])


def count_states(n_arms: int, n_states: int) -> int:
    """Return the number of possible counts."""
    return math.comb(n_arms + n_states - 1, n_states - 1)


def count_work(arms: ObservedArms) -> float:
    """Return about the multiplications of one sweep over the counts of one kind."""
    n = int(arms.layout.n_states[0])
    total = 0.0
    for plays in range(0 if arms.at_most else arms.plays, arms.plays + 1):
        pulled, resting = float(count_states(plays, n)), float(count_states(arms.n_arms - plays, n))
        total += pulled * resting * (pulled + resting)
    return total


def moved_counts(chain: Array, fewest: int, most: int) -> list[Array]:
    """Return, for each number of arms in a range, the distribution of their counts after a step from each count."""
    n = len(chain)
    rows = [compositions(number, n) for number in range(most + 1)]
    latest = np.ones((1, 1))
    found = [latest] if fewest == 0 else []
    for before, counts in itertools.pairwise(rows):
        first = (counts > 0).argmax(axis=1)
        others = latest[composition_ranks(counts - np.eye(n, dtype=np.int64)[first])]
        moved = np.zeros((len(counts), len(counts)))
        for state in range(n):
            moved[:, composition_ranks(before + np.eye(n, dtype=np.int64)[state])] += chain[first, state, None] * others
        latest = moved
        if found or counts[0].sum() == fewest:
            found.append(latest)
    return found


@dataclass(frozen=True, eq=False)
class PullsSweep:
    """All choices with one number of pulls: pairs of the counts of the resting and of the pulled arms."""

    resting: Array
    """The distribution of the counts of the resting arms after a step, a row for each of their counts."""
    pulled: Array
    reward: Array
    """The mean reward of each pair."""
    sums: IntArray
    """The position of the counts of all arms, for each pair."""
    order: IntArray
    """The pairs, sorted by their sums."""
    begin: IntArray
    """The first pair of each sum that occurs, in ``order``."""
    pulls: IntArray
    """The counts of the pulled arms."""


class CountSweep:
    """Sweeps of the optimality operator over counts of arms of one kind."""

    def __init__(
        self, group: KindGroup, n_arms: int, plays: int, *, at_most: bool = False, discount: float = 1.0
    ) -> None:
        n = group.n_states
        self.n_arms, self.n_states, self.discount = n_arms, n, discount
        self.counts = compositions(n_arms, n)
        fewest = 0 if at_most else plays
        pulled = moved_counts(group.active[0], fewest, plays)
        resting = moved_counts(group.passive[0], n_arms - plays, n_arms - fewest)
        self.parts = tuple(
            self._part(group, pulls, n_arms - pulls, resting[plays - pulls], pulled[pulls - fewest])
            for pulls in range(fewest, plays + 1)
        )
        self.terms = 3 * n_arms * (n + 2) + max(sum(part.reward.shape) for part in self.parts) + 8
        self.largest = n_arms * float(
            max(np.abs(group.active_rewards[0]).max(), np.abs(group.passive_rewards[0]).max())
        )

    def _part(self, group: KindGroup, pulls: int, rests: int, resting: Array, pulled: Array) -> PullsSweep:
        rested, chosen = compositions(rests, self.n_states), compositions(pulls, self.n_states)
        reward = (rested @ group.passive_rewards[0])[:, None] + chosen @ group.active_rewards[0]
        sums = composition_ranks(rested[:, None] + chosen[None])
        order = np.argsort(sums, axis=None, kind="stable")
        begin = np.flatnonzero(np.diff(sums.reshape(-1)[order], prepend=-1))
        return PullsSweep(resting, pulled, reward, sums, order, begin, chosen)

    def __call__(self, value: Array) -> tuple[Array, IntArray]:
        """Return the best values after one slot, and the pulls in each state that reach them, a row for each count."""
        best, pulls = np.full(len(self.counts), -np.inf), np.zeros_like(self.counts)
        for part in self.parts:
            total = part.resting @ (self.discount * value[part.sums]) @ part.pulled.T + part.reward
            ordered = total.reshape(-1)[part.order]
            highest = np.maximum.reduceat(ordered, part.begin)
            lengths = np.diff(part.begin, append=len(ordered))
            reaching = np.flatnonzero(ordered == np.repeat(highest, lengths))
            chosen = part.order[reaching[np.searchsorted(reaching, part.begin)]]
            counts = part.sums.reshape(-1)[part.order[part.begin]]
            better = highest > best[counts]
            best[counts[better]] = highest[better]
            pulls[counts[better]] = part.pulls[chosen[better] % len(part.pulls)]
        return best, pulls

    def rounding(self, value: Array) -> float:
        """Return a bound of the rounding of one sweep at some values."""
        return self.terms * UNIT * (float(np.abs(value).max()) + self.largest)


def solve_counts(
    arms: ObservedArms,
    *,
    tolerance: float = 1e-9,
    discount: float = 1.0,
    most: int = 100_000,
    seconds: float = math.inf,
    bias: Array | None = None,
) -> CountValues:
    """Solve a problem of one kind over the numbers of arms in each state; see ``solve_joint``."""
    deadline = time.perf_counter() + seconds
    group = arms.groups[0]
    sweep = CountSweep(group, arms.n_arms, arms.plays, at_most=arms.at_most, discount=discount)
    start = scipy.stats.multinomial.pmf(sweep.counts, arms.n_arms, group.start[0])
    value = np.zeros(len(sweep.counts)) if bias is None else sweep.counts @ bias
    value, pulls, low, high, count = _iterated(sweep, value, start, tolerance, discount, most, deadline)
    return CountValues(sweep.counts, value, pulls, low, high, count)


def _iterated(
    sweep: JointSweep | CountSweep,
    value: Array,
    start: Array,
    tolerance: float,
    discount: float,
    most: int,
    deadline: float,
) -> tuple[Array, IntArray, float, float, int]:
    """Iterate until the bracket is narrower than the tolerance, or no longer shrinks.

    ``start`` holds the probability of each state in slot 1.
    """
    narrowest, stalled, damping = np.inf, 0, 0.0
    best_after = value
    past: list[tuple[Array, Array]] = []
    count, steps_left, improved = 0, 0, False
    lowest, highest, best_choice = -np.inf, np.inf, None
    while True:
        count += 1
        after, choice = sweep(value)
        step = after - value
        # The discounted value of the start, where Tv − v between a and b means values between v + a / (1 − β) and b.
        base = (1 - discount) * float((start * value).sum()) if discount < 1.0 else 0.0
        widen = sweep.rounding(value)
        low, high = base + float(step.min()) - widen, base + float(step.max()) + widen
        # A policy of the choices of a sweep earns its lower end.
        if best_choice is None or low > lowest:
            lowest, best_choice = low, choice
        highest = min(highest, high)
        width = high - low
        stalled = 0 if width < 0.999 * narrowest else stalled + 1
        # A bracket that is made of rounding shrinks no further.
        longest = PLAIN_SWEEPS if width > 4 * widen else PLAIN_AFTER
        ended = count >= most or stalled >= longest or time.perf_counter() > deadline
        if highest - lowest <= tolerance or ended:
            return value, best_choice, float(np.nextafter(lowest, -np.inf)), float(np.nextafter(highest, np.inf)), count
        if isinstance(sweep, JointSweep) and discount == 1.0 and not improved and count >= POLICY_AFTER:
            steps_left, improved = POLICY_STEPS, True
        if isinstance(sweep, JointSweep) and steps_left:
            best_after = after if width <= narrowest else best_after
            value, spent = sweep.policy_values(value, choice, float(step.mean()), 0.3 * tolerance)
            count, steps_left, past = count + spent, steps_left - 1, []
            if not steps_left or not np.isfinite(value).all():
                value, steps_left = best_after, 0
        elif stalled == PLAIN_AFTER:
            value, past = best_after, []
        else:
            damping = DAMPING if stalled >= STALLED_SWEEPS else damping
            after = damping * value + (1 - damping) * after
            if width <= narrowest:
                best_after = after
            past = [*past[-REMEMBERED_SWEEPS:], (step - step.mean(), after)] if stalled < PLAIN_AFTER else []
            value = _extrapolated(past) if past else after
        narrowest = min(narrowest, width)
        if discount == 1.0:
            value = value - value.flat[0]


def _extrapolated(past: list[tuple[Array, Array]]) -> Array:
    """Return the combination of values after sweeps whose steps, up to a constant, add up to the least square."""
    step, after = past[-1]
    if len(past) == 1:
        return after
    steps = np.stack([(step - other).reshape(-1) for other, _ in past[:-1]], axis=1)
    weights = np.linalg.lstsq(steps, step.reshape(-1), rcond=1e-10)[0]
    found = after.copy()
    for weight, (_, other) in zip(weights, past[:-1], strict=True):
        found -= weight * (after - other)
    return found
