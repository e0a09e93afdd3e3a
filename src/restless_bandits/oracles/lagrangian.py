"""The Lagrangian relaxation: an upper bound of μ*, and the index that comes with it.

Let every arm be pulled or not on its own, and pay a subsidy m for each slot in which it rests. With g_i(m) the best
average of arm i alone, weak duality gives for every m

    μ* ≤ Σ_i g_i(m) − m (N − plays).

The bound is convex in m; its minimum is Whittle's relaxation. At the minimising m the *Lagrangian index* of a belief is
the advantage of pulling over resting (Brown, Smith 2020). Unlike Whittle's index it is defined for every arm.

A policy for one arm matters only through the slots σ(s) it waits after seeing s, so an arm is solved by policy
iteration over σ with one small linear system a step. Beyond the end of the table of laws the true laws differ by at
most ``deviation``, which enters the bound as in ``exact``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # its parts load when they are first used, which is not at every start

from restless_bandits.arrays import Array
from restless_bandits.beliefs import arm_beliefs, cap_for
from restless_bandits.markov import is_ergodic
from restless_bandits.oracles._enclosure import UNIT, LawErrors, law_errors
from restless_bandits.oracles._explicit import Explored, solve_multichain
from restless_bandits.oracles._lagrangian import resting_values
from restless_bandits.problem import AnyArm, Arm, Problem

DEVIATION = 1e-13
TOLERANCE = 1e-11
"""How far value iteration goes where the gain of an arm depends on its start; the bound holds wherever it stops."""


@dataclass(frozen=True)
class ArmDual:
    """One arm at one subsidy: its best average, a proved upper bound of it, the share of slots at rest, advantages."""

    gain: float
    bound: float
    rest: float
    advantage: Array
    """``advantage[s, τ - 1]`` of pulling over resting; the last row is for an arm never seen."""
    rounding: float
    """What rounding may put the bound off by, beyond what it holds already."""


class SubsidisedArm:
    """One arm that may rest for a subsidy, solved for any subsidy."""

    def __init__(self, arm: AnyArm) -> None:
        self.arm = arm
        cap = cap_for(arm, DEVIATION)
        self.beliefs = arm_beliefs(arm, cap)
        n = arm.n_states
        table = arm.law_table(cap)[1:]
        if isinstance(arm, Arm) and arm.is_ergodic:
            table = table.copy()
            table[-1, :] = arm.stationary
        self.laws = table[:, :n]
        self.unseen = table[:, n] if table.shape[1] > n else np.broadcast_to(table[-1, n - 1], (cap, n))
        self.means = self.laws @ arm.rewards
        self.deviation = float(self.beliefs.deviation.max())
        self.waits = np.arange(1.0, cap + 1.0)[:, None]
        self.sigma = np.zeros(n, dtype=np.int64)
        self.looping = is_ergodic(self.laws[0]) and self._loop(0.0) is not None

    def solve(self, subsidy: float) -> ArmDual:
        """Return gain, bound, rest share and advantages at a subsidy."""
        n = self.arm.n_states
        loop = self._loop(subsidy) if self.looping else None
        if loop is None:
            return self._solve_from_start(subsidy)
        gain, rest, h = loop
        if gain <= subsidy:
            gain, rest, h = subsidy, 1.0, self._stopping(subsidy)
        pull = self.means - gain + self.laws @ h
        # Where resting for ever is best it is worth 0; otherwise a loop is never left.
        last = np.maximum(pull[-1], 0.0) if gain == subsidy else pull[-1]
        best, value = resting_values(pull, last, subsidy - gain)
        unseen_pull = self.unseen @ self.arm.rewards - gain + self.unseen @ h
        unseen_value = np.maximum(unseen_pull, 0.0) if gain == subsidy else unseen_pull
        unseen = unseen_pull - (subsidy - gain) - np.append(unseen_value[1:], unseen_value[-1])
        spread = float(np.ptp(self.arm.rewards + h))
        excess = max(0.0, float((value - h).max()))
        bound = gain + excess + self.deviation * spread + 1e-15 * (1.0 + spread)
        # As many sums as there are slots in the table, one after the other, and the laws themselves (``_enclosure``).
        largest = max(1.0, abs(gain), *(float(np.abs(part).max()) for part in (h, pull, value, best)))
        rounding = (8.0 * n * len(pull) + 16.0 * n**3) * UNIT * largest
        return ArmDual(gain, bound, rest, np.concatenate([(pull - best).T, unseen[None]]), rounding)

    def _loop(self, subsidy: float) -> tuple[float, float, Array] | None:
        """Best policy that keeps pulling: gain, share of slots at rest, relative values. None if it is not one loop."""
        n = self.arm.n_states
        states = np.arange(n)
        for _ in range(1000):
            wait = self.sigma + 1.0
            system = np.eye(n) - self.laws[self.sigma, states]
            # h of the last state is zero, so its column carries the gain.
            system[:, -1] = wait
            right = np.column_stack([self.means[self.sigma, states] + subsidy * (wait - 1.0), wait - 1.0])
            try:
                solved = np.linalg.solve(system, right)
            except np.linalg.LinAlgError:
                return None
            if not np.isfinite(solved).all() or np.abs(solved).max() > 1e12:
                return None
            gain, rest = solved[-1]
            h = np.append(solved[:-1, 0], 0.0)
            values = self.means + self.laws @ h + subsidy * (self.waits - 1.0) - gain * self.waits
            best = values.argmax(axis=0)
            better = values[best, states] > h + 1e-12 * (1.0 + np.abs(h))
            if not better.any():
                break
            self.sigma = np.where(better, best, self.sigma)
        return float(gain), float(rest), h

    def _stopping(self, price: float) -> Array:
        """Values where resting for ever is optimal: pulling pays R − price, waiting is free, never is worth 0."""
        n = self.arm.n_states
        states = np.arange(n)
        h = np.zeros(n)
        sigma = np.full(n, -1)
        for _ in range(1000):
            values = self.means - price + self.laws @ h
            best = values.argmax(axis=0)
            better = values[best, states] > h + 1e-12 * (1.0 + np.abs(h))
            if not better.any():
                break
            sigma = np.where(better, best, sigma)
            pulls = sigma >= 0
            system = np.eye(n) - self.laws[sigma, states] * pulls[:, None]
            h = np.linalg.solve(system, np.where(pulls, self.means[sigma, states] - price, 0.0))
        return h

    def _solve_from_start(self, subsidy: float) -> ArmDual:
        """An arm whose gain depends on where it starts: solved as a small decision process from its initial belief."""
        beliefs = self.beliefs
        trivial = max(subsidy, float(self.arm.rewards.max()))
        if self.deviation > 1e-12:
            # Laws that still move at the longest cap prove nothing from the start; the next reward stands in.
            means = np.concatenate([self.means.T, (self.unseen @ self.arm.rewards)[None]])
            return ArmDual(subsidy, trivial, float("nan"), means - subsidy, 0.0)
        n, errors = beliefs.size, self.errors
        # The solver starts from row 0: exchange it with the initial belief.
        swap = np.arange(n)
        swap[[0, beliefs.start]] = swap[[beliefs.start, 0]]
        rows, seen = np.nonzero(errors.possible)
        pulled = scipy.sparse.csr_array(
            (beliefs.law[rows, seen], (swap[rows], swap[beliefs.first[seen]])), shape=(n, n)
        )
        rested = scipy.sparse.csr_array((np.ones(n), (swap, swap[beliefs.passive])), shape=(n, n))
        matrix = scipy.sparse.vstack([pulled, rested]).tocsr()
        reward = np.concatenate([beliefs.reward[swap], np.full(n, subsidy)])
        off = [np.concatenate([part[swap], np.zeros(n)]) for part in (errors.relative, errors.moved)]
        mdp = Explored(np.zeros((n, 1), dtype=np.int64), matrix, reward, np.zeros(2 * n), 2, 1, *off)
        answer = solve_multichain(mdp, TOLERANCE)
        after = np.asarray(matrix @ answer.value)
        advantage = ((reward[:n] + after[:n]) - (reward[n:] + after[n:]))[swap]
        rows_of = np.arange(beliefs.n_states + 1)[:, None]
        grid = beliefs.locate(rows_of, np.arange(1, beliefs.cap + 1)[None, :])
        return ArmDual(answer.gain, min(answer.upper, trivial), float("nan"), advantage[grid], 0.0)

    @cached_property
    def errors(self) -> LawErrors:
        """What the laws are off by."""
        return law_errors([self.arm], [self.beliefs])[0]


@dataclass(frozen=True)
class Relaxation:
    """The best subsidy, the bound of μ* it proves, and each arm there."""

    subsidy: float
    bound: float
    arms: tuple[ArmDual, ...]

    @property
    def rounding(self) -> float:
        """What rounding may put the bound off by."""
        count, largest = len(self.arms), 1.0 + abs(self.subsidy)
        return sum(dual.rounding for dual in self.arms) + 4 * count**2 * UNIT * largest


def relax(problem: Problem) -> Relaxation:
    """Minimise the dual bound over the subsidy.

    Every subsidy gives a valid bound, so the search only has to be good. The slope of the bound is the expected number
    of arms at rest less N − plays; where an arm's gain depends on its start there is no such slope, and the interval is
    cut in thirds instead.
    """
    arms = [SubsidisedArm(arm) for arm in problem.arms]
    spare = problem.n_arms - problem.plays
    # Indices lie between the smallest and the largest reward, and with them the minimum.
    low = min(float(arm.rewards.min()) for arm in problem.arms)
    high = max(float(arm.rewards.max()) for arm in problem.arms)
    trivial = sum(sorted((float(arm.rewards.max()) for arm in problem.arms), reverse=True)[: problem.plays])

    def at(subsidy: float) -> Relaxation:
        duals = tuple(arm.solve(subsidy) for arm in arms)
        return Relaxation(subsidy, min(trivial, sum(dual.bound for dual in duals) - subsidy * spare), duals)

    best = at(low)
    for _ in range(60 if all(arm.looping for arm in arms) else 40):
        if spare == 0 or high - low <= 1e-14:
            break
        found = [at(0.5 * (low + high))]
        rest = sum(dual.rest for dual in found[0].arms)
        if np.isfinite(rest):
            low, high = (found[0].subsidy, high) if rest < spare else (low, found[0].subsidy)
        else:
            left, right = at(low + (high - low) / 3), at(high - (high - low) / 3)
            low, high = (low, right.subsidy) if left.bound < right.bound else (left.subsidy, high)
            found += [left, right]
        best = min(best, *found, key=lambda one: one.bound)
    return best


def relaxation_bound(problem: Problem) -> float:
    """Return the relaxation's upper bound of μ*."""
    return relax(problem).bound
