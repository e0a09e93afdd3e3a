"""The Lagrangian relaxation: an upper bound of μ*, and the index that comes with it.

Let every arm be pulled or not on its own, and pay a subsidy m for each slot in which it rests. With g_i(m) the best
average of arm i alone, weak duality gives for every m

    μ* ≤ Σ_i g_i(m) − m (N − plays).

The bound is convex in m; its minimum is Whittle's relaxation. At the minimising m the *Lagrangian index* of a belief is
the advantage of pulling over resting (Brown, Smith 2020). Unlike Whittle's index it is defined for every arm.

A policy for one arm matters only through the slots σ(s) it waits after seeing s, so an arm is solved by policy
iteration over σ with one small linear system a step. Beyond the end of the table of distributions the true
distributions differ by at most ``tv_error``, which enters the bound as in ``exact``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when they are first used, which is not at every start

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.enclosure import UNIT, distribution_errors
from restless_bandits.oracles.evaluation import best_arm_gain, best_arm_rounding, forgets_when_pulled
from restless_bandits.oracles.explicit_chains import EndComponents, Explored, solve_multichain
from restless_bandits.oracles.lagrangian_kernels import BOUND, REST, LagrangianTables, solve_arms, write_distributions
from restless_bandits.oracles.normalization import upper_of
from restless_bandits.processes.beliefs import has_lost_row, hidden_process, table_period, truncations_for
from restless_bandits.processes.resting_pay import without_resting_pay

RELAXATION_TV_ERROR = 1e-13
RELAXATION_TOLERANCE = 1e-11
"""How far value iteration goes where the gain of an arm depends on its start; the bound holds wherever it stops."""
MOST_HALVES, MOST_SECTIONS, NARROWEST = 60, 45, 1e-14
"""Steps of the search for a subsidy where slopes are known, and where they are not, and the interval that ends it."""
GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)


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


class SubsidisedArms:
    """Arms that may rest for a subsidy, each on its own, solved for one subsidy after the other."""

    def __init__(self, arms: Sequence[AnyArm]) -> None:
        self.arms = arms
        truncation = np.array(truncations_for(arms, RELAXATION_TV_ERROR))
        self._processes = {
            i: hidden_process(arm, int(truncation[i]), forget=False) for i, arm in enumerate(arms) if has_lost_row(arm)
        }
        for i, process in self._processes.items():
            truncation[i] = process.truncation
        n_states = np.array([arm.n_states for arm in arms])
        n_rows = n_states + 1 + np.array([has_lost_row(arm) for arm in arms])
        self.looping = np.array([_loops(arm) for arm in arms])
        rows = np.where(self.looping, n_rows * truncation, 0)
        base, mean_base, state_base = (np.append(0, np.cumsum(size)) for size in (rows * n_states, rows, n_states))
        rewards, room = np.concatenate([arm.rewards for arm in arms]), (np.empty(base[-1]), np.empty(mean_base[-1]))
        tv_error, defect = np.zeros((2, len(arms)))
        self.tables = LagrangianTables(
            n_states, n_rows, truncation, base, mean_base, state_base, rewards, tv_error, defect, *room
        )
        self._write_distributions()
        self.sigma = np.zeros(len(rewards), dtype=np.int64)
        """The slots that each arm waits after each state; the search for the best ones goes on from here."""
        self.found = np.full((len(arms), 4), np.nan)
        self.advantage = np.empty_like(self.tables.mean)
        self._solve_loops(0.0)
        self.looping &= np.isfinite(self.found[:, REST])
        self._started: dict[int, _StartedArm] = {}

    def _write_distributions(self) -> None:
        chains: dict[int, list[int]] = {}
        for i in np.flatnonzero(self.looping).tolist():
            arm = self.arms[i]
            if i in self._processes:
                process = self._processes[i]
                distributions = process.distribution.reshape(*process.numbers.shape, -1)
                self.tables.distribution[self.tables.base[i] : self.tables.base[i + 1]] = distributions.swapaxes(
                    1, 2
                ).ravel()
                self._of_arm(self.tables.mean, i)[:] = process.reward[:, 1].reshape(process.numbers.shape)
                self.tables.tv_error[i] = process.tv_error.max()
                self.tables.defect[i] = np.abs(distributions.sum(axis=2) - 1.0).max()
                continue
            if isinstance(arm, Arm):
                chains.setdefault(arm.n_states, []).append(i)
                continue
            n, truncation = arm.n_states, int(self.tables.truncation[i])
            distributions = arm.state_distributions(truncation)[1:]
            if arm.initial is not None:
                distributions = np.concatenate(
                    [distributions, np.broadcast_to(distributions[-1, n - 1], (truncation, 1, n))], axis=1
                )
            self.tables.distribution[self.tables.base[i] : self.tables.base[i + 1]] = distributions.transpose(
                1, 2, 0
            ).ravel()
            self._of_arm(self.tables.mean, i)[:] = (distributions @ arm.rewards).T
            self.tables.tv_error[i] = hidden_process(arm, truncation).tv_error.max()
            self.tables.defect[i] = np.abs(distributions.sum(axis=2) - 1.0).max()
        for alike in chains.values():
            some = [arm for arm in (self.arms[i] for i in alike) if isinstance(arm, Arm)]
            limits = np.array([arm.stationary for arm in some])
            write_distributions(np.array([arm.chain for arm in some]), limits, np.array(alike), self.tables)

    def _of_arm(self, numbers: Array, i: int) -> Array:
        """Return the part ``[s, τ - 1]`` of an arm in numbers that have the order of ``LagrangianTables.mean``."""
        start, end = self.tables.mean_base[i : i + 2]
        return numbers[start:end].reshape(int(self.tables.rows[i]), -1)

    def _solve_loops(self, subsidy: float) -> None:
        which = np.flatnonzero(self.looping)
        solve_arms(subsidy, which, self.tables, self.sigma, self.found, self.advantage)

    def solve(self, subsidy: float) -> tuple[float, float]:
        """Return the sum of all bounds at a subsidy, and of all shares of slots at rest: NaN where one is not known."""
        self._solve_loops(subsidy)
        for i in np.flatnonzero(np.isnan(self.found[:, REST])).tolist():
            dual = self._from_start(i).solve(subsidy)
            self.found[i] = dual.gain, dual.bound, dual.rest, dual.rounding
        return float(self.found[:, BOUND].sum()), float(self.found[:, REST].sum())

    def _from_start(self, i: int) -> _StartedArm:
        if i not in self._started:
            self._started[i] = _StartedArm(self.arms[i], int(self.tables.truncation[i]))
        return self._started[i]

    def duals(self, subsidy: float) -> tuple[ArmDual, ...]:
        """Return every arm at the subsidy that was solved for last."""
        return tuple(
            self._from_start(i).solve(subsidy)
            if math.isnan(rest)
            else ArmDual(gain, bound, rest, self._of_arm(self.advantage, i), rounding)
            for i, (gain, bound, rest, rounding) in enumerate(self.found.tolist())
        )


class _StartedArm:
    """An arm whose gain depends on where it starts: solved as a small decision process from its initial belief."""

    def __init__(self, arm: AnyArm, truncation: int) -> None:
        self.arm = arm
        self.beliefs = beliefs = hidden_process(arm, truncation)
        every_row = np.arange(len(beliefs.numbers))[:, None]
        self._grid = beliefs.locate(every_row, np.arange(1, truncation + 1)[None, :])
        # Distributions that still move at the longest truncation prove nothing from the start.
        self._parts = None if beliefs.tv_error.max() > 1e-12 else self._written_out()

    def _written_out(self) -> EndComponents:
        """The choices of each belief, with the rewards of resting left at zero, and its end components."""
        beliefs, n = self.beliefs, self.beliefs.size
        errors = distribution_errors([self.arm], [beliefs])[0]
        # The solver starts from row 0: exchange it with the initial belief.
        self._swap = swap = np.arange(n)
        swap[[0, beliefs.start_node]] = swap[[beliefs.start_node, 0]]
        rows, seen = np.nonzero(errors.possible)
        pulled = scipy.sparse.csr_array(
            (beliefs.distribution[rows, seen], (swap[rows], swap[beliefs.after_pull[seen]])), shape=(n, n)
        )
        rested = scipy.sparse.csr_array((np.ones(n), (swap, swap[beliefs.passive])), shape=(n, n))
        matrix = scipy.sparse.vstack([pulled, rested]).tocsr()
        reward = np.concatenate([beliefs.reward[swap, 1], np.zeros(n)])
        off = [np.concatenate([part[swap], np.zeros(n)]) for part in (errors.relative, errors.moved)]
        return EndComponents(Explored(np.zeros((n, 1), dtype=np.int64), matrix, reward, np.zeros(2 * n), 2, 1, *off))

    def solve(self, subsidy: float) -> ArmDual:
        """Return what ``SubsidisedArms.solve`` does, without a share of slots at rest."""
        trivial = max(subsidy, float(self.arm.rewards.max()))
        if self._parts is None:
            # The next reward stands in for the advantage.
            return ArmDual(subsidy, trivial, float("nan"), self.beliefs.reward[self._grid, 1] - subsidy, 0.0)
        n, explored = self.beliefs.size, self._parts.explored
        reward = np.concatenate([explored.reward[:n], np.full(n, subsidy)])
        mdp = replace(explored, reward=reward)
        answer = solve_multichain(mdp, RELAXATION_TOLERANCE, self._parts)
        after = np.asarray(mdp.matrix @ answer.value)
        advantage = ((reward[:n] + after[:n]) - (reward[n:] + after[n:]))[self._swap]
        return ArmDual(answer.gain, min(answer.upper, trivial), float("nan"), advantage[self._grid], 0.0)


@dataclass(frozen=True)
class Relaxation:
    """The best subsidy, the bound of μ* it proves, and each arm there."""

    subsidy: float
    bound: float
    most: float
    """What no policy exceeds whatever the subsidy, rounding included."""
    arms: tuple[ArmDual, ...]

    @property
    def rounding(self) -> float:
        """What rounding may put the bound off by."""
        count, largest = len(self.arms), 1.0 + abs(self.subsidy)
        return sum(dual.rounding for dual in self.arms) + 4 * count**2 * UNIT * largest

    @property
    def above(self) -> float:
        """The bound of μ*, rounding included."""
        return min(self.most, math.nextafter(self.bound + self.rounding, math.inf))


class _Point(NamedTuple):
    """A bound of the dual, its subsidy, the slots at rest there, and the waits that it comes from."""

    bound: float
    subsidy: float
    rest: float
    sigma: IntArray


def relax(problem: Problem) -> Relaxation:
    """Minimise the dual bound over the subsidy.

    Every subsidy gives a valid bound, so the search only has to be good. The slope of the bound is the expected number
    of arms at rest less N − plays; where an arm's gain depends on its start there is no such slope, and the interval is
    searched by golden section instead.
    """
    arms = SubsidisedArms(problem.arms)
    spare = problem.n_arms - problem.plays
    # Indices lie between the smallest and the largest reward, and with them the minimum.
    low, high = float(arms.tables.rewards.min()), float(arms.tables.rewards.max())
    trivial = math.fsum(sorted((float(arm.rewards.max()) for arm in problem.arms), reverse=True)[: problem.plays])
    most = trivial if problem.plays == 1 else math.nextafter(trivial, math.inf)
    if spare == 0:
        # All arms are pulled in every slot: nothing is relaxed, and the closed form is the optimum.
        most = min(most, math.nextafter(best_arm_gain(problem) + best_arm_rounding(problem), math.inf))

    def at(subsidy: float) -> _Point:
        bounds, rest = arms.solve(subsidy)
        return _Point(min(trivial, bounds - subsidy * spare), subsidy, rest, arms.sigma.copy())

    if spare and any(has_lost_row(arm) for arm in problem.arms):
        low, high = _widened(at, low, high)
    best = _least(at, low, high, spare) if spare else at(low)
    arms.sigma[:] = best.sigma
    at(best.subsidy)
    return Relaxation(best.subsidy, best.bound, most, arms.duals(best.subsidy))


def _loops(arm: AnyArm) -> bool:
    """Whether every policy that keeps pulling an arm has one gain, as far as its chains show."""
    return (forgets_when_pulled(arm) and table_period(arm) == 1) if has_lost_row(arm) else arm.is_ergodic


def _widened(at: Callable[[float], _Point], low: float, high: float) -> tuple[float, float]:
    """Return an interval with the least bound: the indices of arms that react may lie beyond all rewards."""
    for _ in range(MOST_HALVES):
        width = high - low
        if at(low - width).bound < at(low).bound:
            low -= width
        elif at(high + width).bound < at(high).bound:
            high += width
        else:
            break
    return low, high


def _least(at: Callable[[float], _Point], low: float, high: float, spare: int) -> _Point:
    """Return the best bound between two subsidies: by halves while slopes are known, then by golden section."""
    best = at(low)
    for _ in range(MOST_HALVES):
        if high - low <= NARROWEST:
            return best
        middle = at(0.5 * (low + high))
        best = min(best, middle, key=_bound)
        if not math.isfinite(middle.rest):
            break
        low, high = (middle.subsidy, high) if middle.rest < spare else (low, middle.subsidy)
    else:
        return best
    left, right = at(high - GOLDEN * (high - low)), at(low + GOLDEN * (high - low))
    for _ in range(MOST_SECTIONS):
        best = min(best, left, right, key=_bound)
        if high - low <= NARROWEST:
            break
        if left.bound < right.bound:
            high, right = right.subsidy, left
            left = at(high - GOLDEN * (high - low))
        else:
            low, left = left.subsidy, right
            right = at(low + GOLDEN * (high - low))
    return best


def _bound(point: _Point) -> float:
    return point.bound


def relaxation_bound(problem: AnyProblem) -> float:
    """Return the relaxation's upper bound of μ*."""
    problem = as_problem(problem)
    problem.require_steady("a bound")
    refuse_unsupported(problem, "bound")
    if problem.observed == "all":
        # Imported on demand: problems that are seen when pulled need none of these modules.
        from restless_bandits.oracles.observed.planners import observed_relaxation

        return observed_relaxation(problem).bound
    reduced = without_resting_pay(problem)
    bound = upper_of(reduced.problem, relax(reduced.problem.normalized()).above) + reduced.rate
    return bound if reduced.problem is problem else bound + reduced.error + 2 * UNIT * (abs(bound) + abs(reduced.rate))
