"""The optimum with a proof: value iteration over joint beliefs, bracketing the true μ*.

A joint belief is what is known of all arms; pulling arms turns it into another one, with known chances, so the
problem is a Markov decision process. For any function v of the belief, with T the one-step optimality operator,

    min (Tv − v) ≤ μ* ≤ max (Tv − v).

Value iteration drives both sides together. Beliefs are capped (see ``beliefs``), and v is read as a function on all
true beliefs: each has the value of the belief it is cut to. The law of a true belief differs from that of its cap by
at most the belief's deviation in total variation, so its Tv differs by at most that deviation times the spread of
reward plus value over the states that may be seen. Widened by this, belief by belief and action by action, the bracket
is one of the true μ*. (The cruder bound of sup‖P^τ − P^L‖₁ × (1 + span v) for all beliefs at once also holds and is
tens of times wider.) The greedy policy for v earns at least the lower end.

Caps are chosen by levels: coarse caps first, the solution carried over to finer ones as a warm start, until the bracket
is as narrow as asked for or the next level would not fit into memory. Then the answer says so and gives its bracket,
its upper end improved by the relaxation bound where that is lower.

The gain does not depend on the start if the one-step law of every arm has one recurrent class and that one is aperiodic:
pulling the arms one after the other, long enough each, leads with positive chance from every belief to one and the same.
Otherwise the problem may be *multichain*, and is solved from its start by ``_explicit.solve_multichain``.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from restless_bandits import markov
from restless_bandits.beliefs import JointBeliefs, arm_beliefs, cap_for, joint_beliefs
from restless_bandits.errors import ProblemError
from restless_bandits.markov import Array, IntArray
from restless_bandits.oracles._kernels import sweep_rows
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Solution
from restless_bandits.policies import TIE, JointPolicy
from restless_bandits.problem import Arm, Problem

BYTES_PER_BELIEF = 18
"""Two value functions and an action."""
MEMORY = 600_000_000
WORK = 12_000_000_000
"""Belief updates after which the bracket reached so far is given: some minutes."""
FIRST_DEVIATION = 1e-3
SMALL = 200_000
STEP = 0.9

Report = Callable[[str], None]


@dataclass
class _Sweep:
    """What one step of value iteration found."""

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


class _Level:
    """Value iteration on one set of capped joint beliefs."""

    def __init__(self, joint: JointBeliefs, values: Array | None, pool: ThreadPoolExecutor, threads: int) -> None:
        self.joint = joint
        self.values = np.zeros(joint.size) if values is None else values
        self.improved = np.empty(joint.size)
        self.action = np.zeros(joint.size, dtype=np.int16)
        self.pool = pool
        self.sweeps = 0
        self._arrays = _padded(joint)
        parts = threads if joint.size >= SMALL else 1
        self._pieces: list[tuple[int, int, int]] = []
        for block in range(len(joint.actions)):
            rows = int((joint.offsets[block + 1] - joint.offsets[block]) // joint.radix[block, joint.order[-1]])
            cuts = np.linspace(0, rows, min(parts, rows) + 1).astype(int).tolist()
            self._pieces += [(block, low, high) for low, high in zip(cuts[:-1], cuts[1:], strict=True)]
        self.parallel = parts > 1

    def sweep(self, shift: float) -> _Sweep:
        """One step: afterwards ``improved`` holds the next values and ``action`` the greedy choice for ``values``."""

        def piece(task: tuple[int, int, int]) -> tuple[float, float, float, float]:
            block, low, high = task
            return sweep_rows(
                self.values, self.improved, self.action, low, high, block, *self._arrays, STEP, shift, TIE
            )

        found = list(self.pool.map(piece, self._pieces) if self.parallel else map(piece, self._pieces))
        least, most, lower, upper = np.array(found).T
        self.sweeps += 1
        return _Sweep(float(least.min()), float(most.max()), float(lower.min()), float(upper.max()))

    def solve(self, tolerance: float, work: float) -> _Sweep:
        """Iterate until the bracket is narrow enough, or until capping and not iteration limits it."""
        found = self.sweep(0.0)
        while True:
            cap_error = found.width - found.residual
            enough = found.width <= tolerance or found.residual <= max(0.3 * tolerance, 0.2 * cap_error)
            floor = 64 * np.finfo(float).eps * (1.0 + float(np.abs(self.values).max(initial=0.0)))
            if enough or found.residual <= floor or self.sweeps * self.joint.size > work:
                return found
            self.values, self.improved = self.improved, self.values
            found = self.sweep(0.5 * (found.least + found.most))


def exact(
    problem: Problem,
    *,
    tolerance: float = 1e-10,
    memory: int | None = None,
    threads: int | None = None,
    report: Report | None = None,
) -> Solution:
    """Solve a problem to a certified bracket of its optimum.

    Parameters
    ----------
    tolerance
        How narrow the bracket should become. A large problem stops at what fits into memory.
    memory
        Bytes that the tables may take; by default one gigabyte, or half of what is free if that is less.
    threads
        Threads for large tables; all cores by default. The result does not depend on it.
    report
        Called with a line of text before each level: its caps, joint beliefs and memory.
    """
    started = time.perf_counter()
    if not tolerance > 0:
        raise ProblemError(f"tolerance is {tolerance!r}; it must be positive")
    if memory is not None and memory < 1:
        raise ProblemError(f"memory is {memory!r} bytes; it must be positive")
    if math.comb(problem.n_arms, problem.plays) > np.iinfo(np.int16).max:
        raise ProblemError(
            f"{problem.n_arms} arms with {problem.plays} plays leave {math.comb(problem.n_arms, problem.plays)} choices "
            "a slot, too many for the exact oracle; use whittle"
        )
    memory = _memory_to_use() if memory is None else memory
    if not _gain_is_constant(problem):
        from restless_bandits.oracles._multichain import solve_from_start

        return solve_from_start(problem, tolerance, started)

    largest = memory // BYTES_PER_BELIEF
    deviation = FIRST_DEVIATION
    smallest = _size(problem, _caps(problem, 1.0))
    if smallest > largest:
        raise ProblemError(
            f"even with every arm capped at once there are {smallest} joint beliefs, {smallest * BYTES_PER_BELIEF} bytes, "
            f"more than the {memory} allowed; raise memory, or use whittle and relaxation"
        )
    if _size(problem, _caps(problem, deviation)) > largest:
        deviation = _finest_that_fits(problem, 1.0, deviation, largest)
    threads = threads or os.cpu_count() or 1
    values: Array | None = None
    previous: JointBeliefs | None = None
    log: list[dict[str, object]] = []
    work = 0
    with ThreadPoolExecutor(threads) as pool:
        while True:
            caps = _caps(problem, deviation)
            size = _size(problem, caps)
            if report:
                report(f"caps {', '.join(map(str, caps))}: {size:,} joint beliefs, {size * BYTES_PER_BELIEF / 1e6:,.1f} MB")
            joint = joint_beliefs(problem, caps)
            if previous is not None and values is not None:
                values = previous.refine(values, joint)
            level = _Level(joint, values, pool, threads)
            found = level.solve(tolerance, WORK - work)
            work += level.sweeps * size
            log.append({"caps": caps, "beliefs": size, "sweeps": level.sweeps, "width": found.width})
            finer = _next_deviation(problem, deviation, found, tolerance, largest)
            if found.width <= tolerance or finer is None or work >= WORK:
                break
            previous, values, deviation = joint, level.values, finer
            del level

    rounding = 64 * np.finfo(float).eps * (1.0 + float(np.abs(level.values).max()))
    lower, upper = found.lower - rounding, found.upper + rounding
    how = f"value iteration on {size:,} joint beliefs, caps {', '.join(map(str, caps))}"
    if upper - lower > tolerance + 2 * rounding:
        from restless_bandits.oracles.relaxation import relaxation_bound

        bound = relaxation_bound(problem)
        limit = "the work allowed" if work >= WORK else f"{memory / 1e9:.3g} GB"
        how += f"; too large for a bracket of {tolerance:g} within {limit}"
        if bound < upper:
            upper = bound
            how += ", upper end from the relaxation"
    policy = JointPolicy(joint, level.action, level.values)
    return Solution(
        problem=problem,
        oracle="exact",
        policy=policy,
        gain=0.5 * (lower + upper),
        lower=lower,
        upper=upper,
        certified=upper - lower <= max(CERTIFIED_WIDTH, tolerance),
        how=how,
        seconds=time.perf_counter() - started,
        details={"levels": log, "memory": size * BYTES_PER_BELIEF},
    )


def _gain_is_constant(problem: Problem) -> bool:
    return all(
        markov.is_ergodic(arm.chain if isinstance(arm, Arm) else arm.laws[1, : arm.n_states]) for arm in problem.arms
    )


def _caps(problem: Problem, deviation: float) -> list[int]:
    return [cap_for(arm, deviation) for arm in problem.arms]


def _size(problem: Problem, caps: Sequence[int]) -> int:
    sizes = [_belief_count(problem, i, cap) for i, cap in enumerate(caps)]
    return JointBeliefs.count(sizes, problem.n_states, problem.plays)


def _belief_count(problem: Problem, i: int, cap: int) -> int:
    arm = problem.arms[i]
    if isinstance(arm, Arm) and arm.is_ergodic:
        return arm.n_states * (cap - 1) + 1
    return arm_beliefs(arm, cap).size


def _finest_that_fits(problem: Problem, coarse: float, fine: float, largest: int) -> float:
    """The smallest deviation, between two, whose caps fit: ``coarse`` fits and ``fine`` does not."""
    low, high = math.log(fine), math.log(coarse)
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _size(problem, _caps(problem, math.exp(middle))) <= largest:
            high = middle
        else:
            low = middle
    return math.exp(high)


def _next_deviation(
    problem: Problem, deviation: float, found: _Sweep, tolerance: float, largest: int
) -> float | None:
    """The deviation of the next level, or None where no finer one helps or fits."""
    cap_error = found.width - found.residual
    if cap_error <= 0.2 * tolerance:
        return None
    size = _size(problem, _caps(problem, deviation))
    finer = max(1e-16, 0.3 * deviation * tolerance / cap_error)
    if _size(problem, _caps(problem, finer)) > SMALL:
        # A level in between costs little and leaves fewer sweeps for the large one.
        finer = max(finer, deviation**1.6)
    if _size(problem, _caps(problem, finer)) > largest:
        finer = _finest_that_fits(problem, deviation, finer, largest)
    # A few more beliefs would cost another solution and gain next to nothing.
    return finer if _size(problem, _caps(problem, finer)) > 1.05 * size else None


def _memory_to_use() -> int:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return MEMORY
    return min(MEMORY, free // 2) if free > 0 else MEMORY


def _padded(joint: JointBeliefs) -> tuple[IntArray | Array, ...]:
    """The arrays of all arms in the order in which the kernel takes them, padded to equal sizes."""
    n = joint.n_arms
    size = max(arm.size for arm in joint.arms)
    states = max(arm.n_states for arm in joint.arms)
    law = np.zeros((n, size, states))
    reward, deviation = np.zeros((n, size)), np.zeros((n, size))
    rewards = np.zeros((n, states))
    passive = np.zeros((n, size), dtype=np.int64)
    first = np.zeros((n, states), dtype=np.int64)
    for i, arm in enumerate(joint.arms):
        law[i, : arm.size, : arm.n_states] = arm.law
        reward[i, : arm.size] = arm.reward
        deviation[i, : arm.size] = arm.deviation
        passive[i, : arm.size] = arm.passive
        rewards[i, : arm.n_states] = arm.rewards
        first[i, : arm.n_states] = arm.first
    n_states = np.array([arm.n_states for arm in joint.arms], dtype=np.int64)
    return (
        joint.actions,
        joint.offsets,
        joint.strides,
        joint.radix,
        joint.order,
        law,
        reward,
        rewards,
        passive,
        first,
        deviation,
        n_states,
    )
