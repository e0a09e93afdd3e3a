"""The optimum with a proof: value iteration over joint beliefs, bracketing the true μ*.

A joint belief is what is known of all arms; pulling arms turns it into another one, with known probabilities, so the
problem is a Markov decision process. For any function v of the belief, with T the one-step optimality operator,

    min (Tv − v) ≤ μ* ≤ max (Tv − v).

Value iteration drives both sides together. Beliefs are truncated (see ``beliefs``), and v is read as a function on all
true beliefs: each has the value of the belief it is cut to. The distribution of a true belief differs from that of its
truncation by at most the belief's total-variation error, so the least and the most value of an action under
distributions so near bound its true value. With these, belief by belief, the bracket is one of the true μ*. (The cruder
bound sup‖P^τ − P^L‖₁ × (1 + span v) for all beliefs at once also holds and is several times wider.) The greedy policy
for v earns at least the lower end.

Truncations are chosen by levels: coarse ones first, the solution carried over to finer ones as a warm start, until the
bracket is as narrow as asked for or the next level would not fit into memory. There, the worst belief of all is too
hard a judge: truncated beliefs are visited rarely. So the last level is iterated twice more, with the most and with the
least value of each action under distributions within the errors. Both operators are nonexpansive and shift with
constants, so their brackets close too, and what truncation may change now counts as often as it happens. The answer
then says that it is limited, its ends improved by the relaxation and the best fixed arm where those are better.

The gain does not depend on the start if the one-step chain of every arm has one recurrent class and that class
is aperiodic: pulling the arms one after the other, long enough each, leads with positive probability from every belief
to one and the same. Otherwise the problem may be *multichain*, and is solved from its start (see ``explicit_chains``).
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from restless_bandits._internal.compiling import is_loaded
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report
from restless_bandits._internal.validation import Array, positive
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.problem import Problem
from restless_bandits.model.reward_units import difference_of
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.bracket import End, bracket, bracketed, fixed_arms, highest, lowest, relaxed
from restless_bandits.oracles.enclosure import UNIT, distribution_errors
from restless_bandits.oracles.evaluation import arm_average, follow, forgets_when_pulled
from restless_bandits.oracles.explicit_chains import MOST_BELIEFS, TooLargeError, explore, hopeless, solve_multichain
from restless_bandits.oracles.joint_arrays import ArraySweep
from restless_bandits.oracles.joint_kernels import Iterate, sweep_rows
from restless_bandits.oracles.normalization import as_stated, solving
from restless_bandits.oracles.relaxation import lagrangian_policy
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Solution
from restless_bandits.policies.policies import JointPolicy
from restless_bandits.processes.beliefs import (
    MOST_CHOICES,
    JointBeliefs,
    JointDistributions,
    has_lost_row,
    hidden_process,
    joint_beliefs,
    truncation_for,
)
from restless_bandits.processes.resting_pay import without_resting_pay

BYTES_PER_BELIEF = 18
"""Bytes of two value functions and an action."""
MEMORY = 600_000_000
MOST_OUTCOMES = 270_000_000
"""The default limit on outcomes of actions, over all joint beliefs, in a sweep: about a second."""
MOST_SWEPT_OUTCOMES = 20_000_000_000
"""The default limit on outcomes of actions over all sweeps, then the present bracket is final: about a minute."""
MOST_SWEEPS = 20_000
"""The largest number of sweeps of a level; small tables of chains that hardly move reach the limit."""
MOST_UNASKED, FEWEST_UNASKED, UNASKED_OF_A_SIDE = 40, 8, 10
UNASKED_WORK, MOST_UNASKED_WORK = 100_000_000, 1_000_000_000
"""The work before the first forecast whether the rest suffices, and bounds on the sweeps before the forecast; either
end of a limited bracket has an upper bound of its own."""
FIRST_TABLE = 1_000_000
"""Joint beliefs of the first table; if the residual of the first table stalls, no larger table is tried."""
FIRST_TV_ERROR = 1e-3
SECONDS_PER_OUTCOME = 3e-9
"""Seconds of one core, measured on the built-in problems; true times are between half and three times the estimate."""
NEEDED_TV_ERROR = 1e-11
"""The total-variation error of truncated beliefs at the width of the default bracket."""
CERTIFYING_TV_ERROR = 1e-6
"""An error that leaves room for a certificate: brackets of first levels are about ten times as wide as their error."""
SECONDS_PER_ARMS_SQUARED = 1e-9
LIMITED_SWEEPS = 3
"""Passes over a table that is too short for its problem: the first, and a pass for either end."""
PILOT = 3_000
"""Joint beliefs of the table that is iterated to count sweeps: some hundredths of a second."""
SHARE_OF_SWEEPS = 0.6
"""The share of these sweeps in a solution by levels: coarser levels do a part of the work of the last level."""
MOST_COUNTED_ARMS, MOST_COUNTED_CHOICES = 20, 1000
"""Limits beyond which counting joint beliefs alone would take long."""
SMALL = 200_000
"""Joint beliefs below which threads and intermediate levels cost more time than they save."""

LARGEST_ARRAY_SWEEP = 30_000
"""The largest number of outcomes, over all actions and joint beliefs, for a sweep with NumPy."""
MOST_ARRAY_WORK, ARRAY_OVERHEAD = 20_000_000, 5_000
"""Outcomes that a process sweeps with NumPy before the sweep is compiled, about the time of compiling, and the overhead
of a sweep in outcomes. Both ways give the same bits."""
REPORT_SECONDS = 3.0
"""The interval of progress reports of a long level."""

MULTICHAIN = (
    "multichain: an arm has several recurrent classes or a period, so the optimum may depend on the initial states"
)
MULTICHAIN_TV_ERROR, MULTICHAIN_TRUNCATION, MULTICHAIN_TABLE = 1e-15, 4096, 20_000_000
SECONDS_EXPLORED = 2e-5
"""Seconds of one core for an outcome of a joint belief of a multichain problem."""


@dataclass(frozen=True)
class Cost:
    """The estimated cost of an exact solution, known before its start."""

    beliefs: float
    """Joint beliefs for a bracket of the default width; infinity if there are too many to count."""
    seconds: float
    """Seconds of one core, with as many joint beliefs as fit into memory."""
    certifies: bool
    """Whether the joint beliefs that fit suffice for a certificate."""

    @property
    def memory(self) -> float:
        """Bytes for all joint beliefs."""
        return self.beliefs * BYTES_PER_BELIEF


def joint_beliefs_needed(problem: Problem) -> float:
    """Return about the number of joint beliefs of an exact solution; infinity if counting alone would take long."""
    many = problem.n_arms > MOST_COUNTED_ARMS
    if many or math.comb(problem.n_arms, problem.plays) > MOST_COUNTED_CHOICES:
        return math.inf
    return _truncations_and_size(problem, NEEDED_TV_ERROR)[1]


def cost(problem: Problem) -> Cost:
    """Return the estimated cost of ``exact``.

    The time of a sweep is proportional to the joint beliefs and to the outcomes of all actions. The number of sweeps is
    measured on a table that is short enough to be iterated at once.
    """
    refuse_unsupported(problem, "exact")
    reduced = without_resting_pay(problem).problem
    if reduced is not problem:
        problem = reduced.normalized()
    needed, outcomes = joint_beliefs_needed(problem), _outcomes(problem.n_states, problem.plays)
    largest = _memory_to_use(problem) // BYTES_PER_BELIEF
    # Short truncations make short rows, and the time of a row grows with the square of the number of arms.
    row = SECONDS_PER_ARMS_SQUARED * problem.n_arms**2 / (2 * max(problem.n_states) + 1)
    limited = LIMITED_SWEEPS * min(needed, largest) * outcomes * (SECONDS_PER_OUTCOME + row)
    if math.isinf(needed):
        return Cost(needed, limited, certifies=False)
    if not all(map(_meets, problem.arms)):
        # Those that can be reached are found first, and too many of them end the search.
        truncations = [truncation_for(arm, MULTICHAIN_TV_ERROR, MULTICHAIN_TRUNCATION) for arm in problem.arms]
        sizes = [
            hidden_process(arm, truncation).size for arm, truncation in zip(problem.arms, truncations, strict=True)
        ]
        needed = JointBeliefs.count(sizes, problem.n_states, problem.plays)
        return Cost(needed, SECONDS_EXPLORED * min(needed, MOST_BELIEFS) * outcomes, needed <= MULTICHAIN_TABLE)
    certifies = _truncations_and_size(problem, CERTIFYING_TV_ERROR)[1] <= largest
    seconds = SECONDS_PER_OUTCOME * min(needed, largest) * outcomes * _sweeps_of_a_pilot(problem)
    return Cost(needed, seconds if certifies else max(seconds, limited), certifies)


class _Sweep(NamedTuple):
    """The results of a step of value iteration: the range of Tv − v, and the bracket of the gain."""

    least: float
    most: float
    lower: float
    upper: float

    @property
    def residual(self) -> float:
        return self.most - self.least

    @property
    def width(self) -> float:
        return self.upper - self.lower

    @property
    def truncation_error(self) -> float:
        return self.width - self.residual


class TruncationLevel:
    """Value iteration on one set of truncated joint beliefs."""

    array_work: ClassVar[int] = 0
    """The work of this process with NumPy so far, see ``MOST_ARRAY_WORK``."""

    def __init__(
        self,
        arms: Sequence[AnyArm],
        joint: JointBeliefs,
        values: Array | None,
        pool: ThreadPoolExecutor,
        threads: int,
        report: Report | None = None,
    ) -> None:
        self.joint = joint
        self.outcomes = _outcomes(joint.table.n_states.tolist(), joint.plays)
        self._arms = arms
        self._report = report
        start = np.zeros(joint.size) if values is None else values
        self.iterate = Iterate(start, np.empty(joint.size), np.zeros(joint.size, dtype=np.int16))
        self.updates = 0
        small = joint.size * self.outcomes <= LARGEST_ARRAY_SWEEP
        self._array_sweep = ArraySweep(joint) if small and self._compiling_is_dearer else None
        self._pool = pool
        self._parallel = joint.size >= SMALL and threads > 1
        self._pieces: list[tuple[int, int, int]] = []
        for block in range(len(joint.actions)):
            rows = int((joint.offsets[block + 1] - joint.offsets[block]) // joint.radix[block, joint.order[-1]])
            cuts = np.linspace(0, rows, min(threads if self._parallel else 1, rows) + 1).astype(int).tolist()
            self._pieces += [(block, low, high) for low, high in itertools.pairwise(cuts)]

    @property
    def _compiling_is_dearer(self) -> bool:
        return self.array_work < MOST_ARRAY_WORK and not is_loaded(sweep_rows)

    @property
    def rounding(self) -> float:
        """The least residual to expect, as sums of values are rounded."""
        return float(64 * np.finfo(float).eps * (1.0 + np.abs(self.iterate.values).max(initial=0.0)))

    def proved(self, side: int = 0) -> tuple[End, End]:
        """Return the ends of the bracket that the present values prove, each with its rounding.

        In one more sweep every distribution may be off by its rounding as well as by its truncation. Entries within a
        share ε of themselves put a distribution, scaled to sum one, off by at most ε in total variation. The rest is
        the rounding of the sweep: sums over m outcomes of at most ``plays`` factors each, times the largest value that
        is summed, and a few operations on the result.
        """
        distributions = self.joint.distributions
        wider, defect = distributions.tv_error.copy(), 0.0
        for i, (errors, arm) in enumerate(
            zip(distribution_errors(self._arms, self.joint.arms), self.joint.arms, strict=True)
        ):
            wider[i, : arm.size] += errors.relative
            defect = max(defect, float(np.abs(arm.distribution.sum(axis=1) - 1.0).max()))
        found = self.sweep(0.0, side, distributions._replace(tv_error=wider))
        plays, states = self.joint.plays, self.joint.table.n_states
        terms = float(np.sort(states)[-plays:].prod()) + 2.0 * plays * (float(states.max()) + 2.0) + 16.0
        dearest = max(float(-arm.reward[:, 1].min()) for arm in self.joint.arms)
        largest = 2.0 * plays * (1.0 + max(0.0, dearest)) + float(np.abs(self.iterate.values).max(initial=0.0))
        rounding = (terms * UNIT + plays * defect) * largest
        return End(found.lower, rounding), End(found.upper, rounding)

    def iterate_until(
        self, enough: Callable[[_Sweep], float], work: float = MOST_SWEPT_OUTCOMES, side: int = 0
    ) -> _Sweep:
        """Iterate until the residual is small enough, or stop where the remaining work does not suffice for that.

        With a side: the least (−1) or the most (1) that distributions within the errors allow, a bound there. After a
        number of sweeps that doubles, the fall of the residual since the last time tells whether the work suffices.
        """
        outcomes = self.joint.size * self.outcomes
        most, sweeps = min(MOST_SWEEPS, work / outcomes), 1
        affordable = max(FEWEST_UNASKED, int(MOST_UNASKED_WORK // outcomes))
        first = max(min(UNASKED_OF_A_SIDE if side else MOST_UNASKED, affordable), int(UNASKED_WORK // outcomes))
        asked, earlier = first, math.inf
        found = self.sweep(0.0, side)
        told = time.monotonic()
        while not (found.residual <= max(enough(found), self.rounding) or sweeps >= most):
            values, improved, action = self.iterate
            self.iterate = Iterate(improved, values, action)
            found = self.sweep(0.5 * (found.least + found.most), side)
            sweeps += 1
            if sweeps == first // 2:
                earlier = found.residual
            if sweeps == asked:
                if hopeless(earlier, found.residual, enough(found), sweeps - asked // 2, most - sweeps):
                    break
                asked, earlier = 2 * asked, found.residual
            if self._report is not None and time.monotonic() - told > REPORT_SECONDS:
                told = time.monotonic()
                self._report(f"{self.updates // self.joint.size} sweeps: changes within {found.residual:.1e}")
        return found

    def sweep(self, shift: float, side: int, distributions: JointDistributions | None = None) -> _Sweep:
        """Take a step, after which ``iterate`` holds the next values and the greedy choice for the present values."""
        self.updates += self.joint.size
        if self._array_sweep is not None and self._compiling_is_dearer:
            array_sweep = self._array_sweep if distributions is None else ArraySweep(self.joint, distributions)
            TruncationLevel.array_work += array_sweep.work + ARRAY_OVERHEAD
            return _Sweep(*array_sweep(self.iterate, shift, side))
        distributions = self.joint.distributions if distributions is None else distributions

        def piece(task: tuple[int, int, int]) -> tuple[float, float, float, float]:
            return sweep_rows(self.iterate, *task, shift, side, self.joint.table, distributions)

        found = list(self._pool.map(piece, self._pieces) if self._parallel else map(piece, self._pieces))
        least, most, lower, upper = zip(*found, strict=True)
        return _Sweep(min(least), max(most), min(lower), max(upper))


@solving
def exact(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    memory: int | None = None,
    work: float = MOST_SWEPT_OUTCOMES,
    threads: int | None = None,
    report: Report | None = None,
) -> Solution:
    """Solve a problem to a certified bracket of its optimum.

    Parameters
    ----------
    problem
        Any problem; arms may be chains or tables, absorbing, negatively correlated or periodic.
    tolerance
        The width of the bracket to aim for, as a share of the range of rewards if the range is not (0, 1). Memory
        limits the bracket of a large problem.
    memory
        The limit on the bytes of the tables; by default enough for a minute or two of work, at most 0.6 GB and half of
        the free memory. More memory narrows the bracket of a large problem and takes longer.
    work
        The limit on outcomes of actions in value iteration, about 3e8 a second on one core, by default a minute of
        work. At the limit, or as soon as the limit is too low for the tolerance, the present bracket is the result. The
        result does not depend on the clock.
    threads
        Threads for large tables; all cores by default. The result does not depend on the number.
    report
        Called with a line of text before each level (truncations, joint beliefs and memory) and every few seconds.

    """
    positive("tolerance", tolerance)
    positive("work", work)
    if memory is not None:
        positive("memory", memory)
    choices = math.comb(problem.n_arms, problem.plays)
    if choices > MOST_CHOICES:
        raise ProblemError(
            f"{problem.n_arms} arms with {problem.plays} plays leave {choices} choices a slot, "
            "too many for the exact oracle; use whittle"
        )
    reduced = without_resting_pay(problem)
    # Pay at rest, moved into the rewards of pulls, widens the range of which tolerances are shares.
    scale = difference_of(problem, 1.0) / difference_of(reduced.problem, 1.0)
    found = _solve(reduced.problem.normalized(), tolerance, scale, memory, work, threads, report)
    return as_stated(problem, reduced, found, max(CERTIFIED_WIDTH, tolerance))


def _solve(
    problem: Problem,
    stated: float,
    scale: float,
    memory: int | None,
    work: float,
    threads: int | None,
    report: Report | None,
) -> Solution:
    """Solve a normalized problem without pay at rest; ``scale`` times the stated tolerance is the tolerance."""
    started = time.perf_counter()
    tolerance, certified_width = stated * scale, CERTIFIED_WIDTH * scale
    if not all(map(_meets, problem.arms)):
        return _solve_from_start(problem, tolerance, certified_width, started)
    memory = _memory_to_use(problem) if memory is None else memory
    threads = threads or os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        given = work
        level, found, log, work = _solve_by_levels(problem, tolerance, memory, work, pool, threads, report)
        limited, always = found.width > tolerance, False
        low, high = level.proved()
        wide = limited or found.width > 0.5 * certified_width
        if wide:
            fixed, bound = fixed_arms(problem), relaxed(problem)
            always = limited and bound.above - fixed.below <= tolerance
        if limited and not always:
            enough = max(0.3 * tolerance, min(1e-3, 1e-2 * found.truncation_error))
            level.iterate_until(lambda _: enough, 0.5 * work, side=1)
            high = lowest(high, level.proved(1)[1])
            # Last, because the lower end is proved for the policy and the values of the last iteration.
            level.iterate_until(lambda _: enough, 0.5 * work, side=-1)
            low = level.proved(-1)[0]
    how = f"value iteration on {level.joint.size:,} joint beliefs, truncations {', '.join(map(str, log[-1]['caps']))}"
    action = level.iterate.action
    if always:
        # The proof holds for the optimum and for these arms, but not for the iterated choices.
        low, high = fixed, bound
        averages = np.array([arm_average(arm) for arm in problem.arms])
        best = int(averages[level.joint.actions].sum(axis=1).argmax())
        action = np.full_like(action, best)
        names = ", ".join(problem.arms[i].name for i in level.joint.actions[best].tolist())
        how += f"; then always {names}, which the relaxation proves to be optimal"
    elif limited:
        how += f"; too large or too slow for a bracket of {stated:g} within {memory / 1e9:.2g} GB"
        how += f" and {given:.2g} outcomes"
    earned = low.below
    if wide and high.above - low.below > certified_width:
        low, high = highest(low, fixed), lowest(high, bound)
    lower, upper = bracket(problem, "exact", low, high)
    policy = JointPolicy(level.joint, action, level.iterate.values)
    # The policy's gain lies between what it is proved to earn and the upper end; a wide bracket leaves it open.
    gain = max(lower, 0.5 * (earned + upper)) if upper - earned <= certified_width else None
    certified = upper - earned <= max(certified_width, tolerance)
    if not certified:
        how += "; not certified"
    details = {"levels": log, "memory": level.joint.size * BYTES_PER_BELIEF}
    seconds = time.perf_counter() - started
    return Solution(problem, "exact", policy, gain, lower, upper, certified, how, seconds, details=details)


def _solve_by_levels(
    problem: Problem,
    tolerance: float,
    memory: int,
    work: float,
    pool: ThreadPoolExecutor,
    threads: int,
    report: Report | None,
) -> tuple[TruncationLevel, _Sweep, list[dict[str, Any]], float]:
    """Solve with finer and finer truncations, each started from the one before.

    Returns the last level, its last sweep, a log of all levels, and the remaining work.
    """

    def enough(found: _Sweep) -> float:
        # Narrow, or limited by truncation and not by iteration.
        return max(tolerance - found.truncation_error, 0.3 * tolerance, 0.2 * found.truncation_error)

    largest = memory // BYTES_PER_BELIEF
    smallest = _truncations_and_size(problem, 1.0)[1]
    if smallest > largest:
        raise ProblemError(
            f"even with the shortest truncations there are {smallest:,} joint beliefs, too many for "
            f"{largest * BYTES_PER_BELIEF / 1e9:.3g} GB; raise memory, or use whittle and relaxation"
        )
    first = min(largest, max(smallest, FIRST_TABLE))
    tv_error: float | None = _finest_that_fits(problem, 1.0, FIRST_TV_ERROR, first)
    joint: JointBeliefs | None = None
    values: Array | None = None
    log: list[dict[str, Any]] = []
    while True:
        assert tv_error is not None
        truncations, size = _truncations_and_size(problem, tv_error)
        if report is not None:
            megabytes = size * BYTES_PER_BELIEF / 1e6
            report(f"truncations {', '.join(map(str, truncations))}: {size:,} joint beliefs, {megabytes:,.1f} MB")
        coarser, joint = joint, joint_beliefs(problem, truncations)
        if coarser is not None and values is not None:
            values = coarser.refine(values, joint)
        level = TruncationLevel(problem.arms, joint, values, pool, threads, report)
        found = level.iterate_until(enough, work)
        work -= level.updates * level.outcomes
        log.append({"caps": truncations, "beliefs": size, "sweeps": level.updates // size, "width": found.width})
        stalled = found.residual > max(enough(found), level.rounding, found.truncation_error)
        tv_error = _next_tv_error(problem, tv_error, found, tolerance, largest)
        if found.width <= tolerance or stalled or tv_error is None or work <= 0:
            return level, found, log, max(work, 0.0)
        values = level.iterate.values
        del level


def _meets(arm: AnyArm) -> bool:
    """Whether pulls lead an arm from every belief to one and the same state; then no gain depends on the start."""
    return forgets_when_pulled(arm) if has_lost_row(arm) else markov.is_ergodic(arm.one_step)


def _truncations_and_size(problem: Problem, tv_error: float) -> tuple[list[int], int]:
    """The truncation of each arm for a total-variation error, and the number of joint beliefs."""
    truncations = [truncation_for(arm, tv_error) for arm in problem.arms]
    sizes = []
    for arm, truncation in zip(problem.arms, truncations, strict=True):
        forgets = isinstance(arm, Arm) and arm.is_ergodic and not has_lost_row(arm)
        sizes.append(arm.n_states * (truncation - 1) + 1 if forgets else hidden_process(arm, truncation).size)
    return truncations, JointBeliefs.count(sizes, problem.n_states, problem.plays)


def _finest_that_fits(problem: Problem, coarse: float, fine: float, largest: int) -> float:
    """The smallest error between two whose truncations fit; the truncations of ``coarse`` do."""
    if _truncations_and_size(problem, fine)[1] <= largest:
        return fine
    low, high = math.log(fine), math.log(coarse)
    for _ in range(40):
        middle = 0.5 * (low + high)
        fits = _truncations_and_size(problem, math.exp(middle))[1] <= largest
        low, high = (low, middle) if fits else (middle, high)
    return math.exp(high)


def _next_tv_error(problem: Problem, tv_error: float, found: _Sweep, tolerance: float, largest: int) -> float | None:
    """The total-variation error of the next level, or None where no smaller one helps or fits."""
    if found.truncation_error <= 0.2 * tolerance:
        return None
    truncations, size = _truncations_and_size(problem, tv_error)
    finer = max(1e-16, 0.3 * tv_error * tolerance / found.truncation_error)
    if _truncations_and_size(problem, finer)[1] > SMALL:
        # A level in between costs little and leaves fewer sweeps for the large one.
        finer = max(finer, tv_error**1.6)
    finer = _finest_that_fits(problem, tv_error, finer, largest)
    # In a large table a few more beliefs would cost another solution and gain next to nothing.
    better, better_size = _truncations_and_size(problem, finer)
    return finer if better != truncations and (size <= SMALL or better_size > 1.05 * size) else None


def _sweeps_of_a_pilot(problem: Problem) -> float:
    """The approximate number of sweeps of the last level, with sweeps of coarser levels counted by their size."""
    if _truncations_and_size(problem, 1.0)[1] > PILOT:
        return float(max(truncation_for(arm, NEEDED_TV_ERROR) for arm in problem.arms))
    truncations, size = _truncations_and_size(problem, _finest_that_fits(problem, 1.0, FIRST_TV_ERROR, PILOT))
    with ThreadPoolExecutor(1) as pool:
        level = TruncationLevel(problem.arms, joint_beliefs(problem, truncations), None, pool, 1)
    found = level.iterate_until(lambda _: NEEDED_TV_ERROR)
    if found.residual > max(NEEDED_TV_ERROR, level.rounding):
        return float(MOST_SWEEPS)
    return SHARE_OF_SWEEPS * level.updates / size


def _outcomes(n_states: Sequence[int], plays: int) -> int:
    """The number of outcomes of all actions in a joint belief."""
    return JointBeliefs.count([1] * len(n_states), n_states, plays)


def _memory_to_use(problem: Problem) -> int:
    """The default memory of the tables: limited by the work, and by half of the free memory."""
    memory = min(MEMORY, BYTES_PER_BELIEF * (MOST_OUTCOMES // _outcomes(problem.n_states, problem.plays)))
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return memory
    return min(memory, free // 2) if free > 0 else memory


def _solve_from_start(problem: Problem, tolerance: float, certified_width: float, started: float) -> Solution:
    """Solve a multichain problem from its initial states.

    Truncations are taken where distributions equal their limits to the last digits; the bracket includes the effects
    of truncation and rounding.
    """
    truncations = [truncation_for(arm, MULTICHAIN_TV_ERROR, MULTICHAIN_TRUNCATION) for arm in problem.arms]
    joint = joint_beliefs(problem, truncations)
    try:
        # Distributions that still move at the longest truncation prove nothing.
        if joint.size > MULTICHAIN_TABLE or max(arm.tv_error.max() for arm in joint.arms) > 1e-12:
            raise TooLargeError
        errors = distribution_errors(problem.arms, joint.arms)
        explored = explore(joint, errors=errors, every=True)
    except TooLargeError:
        how = f"{MULTICHAIN}; too large to solve from there, so the bracket is that of the Lagrangian index"
        return bracketed(problem, "exact", lagrangian_policy(problem), how, started)
    answer = solve_multichain(explored, 0.1 * tolerance)
    place = joint.index(explored.beliefs)
    inside = place >= 0
    action, value = np.zeros(joint.size, dtype=np.int16), np.zeros(joint.size)
    action[place[inside]], value[place[inside]] = answer.action[inside], answer.value[inside]
    policy = JointPolicy(joint, action, value)

    earned, _ = follow(problem, joint, policy)
    low, high = End(earned.gain - earned.error, earned.rounding + UNIT * problem.plays), End(answer.upper)
    if high.above - low.below > tolerance:
        high = lowest(high, relaxed(problem))
    lower, upper = bracket(problem, "exact", low, high)
    certified = upper - lower <= max(certified_width, tolerance)
    how = f"{MULTICHAIN}; solved over {explored.size:,} joint beliefs with {answer.components} end components"
    details = {"beliefs": explored.size, "components": answer.components}
    seconds = time.perf_counter() - started
    return Solution(
        problem, "exact", policy, earned.gain, lower, upper, certified, how, seconds, multichain=True, details=details
    )
