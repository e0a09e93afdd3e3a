"""Colored-UCRL2 (Ortner, Ryabko, Auer, Munos 2012): optimism in the face of uncertainty over joint beliefs.

The belief of an arm is (last observed state s, elapsed slots τ), truncated: τ ≥ cap counts as τ = cap. A pull of arm i
has the *colour* (i, s, min(τ, cap)). Situations of equal colour share their distribution, and observations are pooled
by colour. Before each episode every colour gets a confidence set, an L1 ball around the empirical distribution.
Extended value iteration finds the best policy with the most favourable distributions and rewards in these sets. The
policy is followed until the count of some colour has doubled.

Differs from the paper:

- the paper bounds the mean reward of every colour. Here the reward depends on the arm and the observed state. Bounds
  are kept by (arm, state), ``r̂ + √(reward_width · ln(2Ct/δ) / n)``, and count with their state. They need no ε for the
  truncation, are tighter, and as optimistic;
- an arm never observed, with unknown initial state, has a separate colour. Nothing is known of the colour until the
  first observation of the arm, and the colour never returns;
- a colour without observations allows every distribution, and a state never observed the reward 1, whatever the widths;
- value iteration takes lazy steps, because optimistic play is often periodic. Each episode starts from zero: a plan
  depends on the record alone. If the first step is the last, as for most of the early plans, the plan is made without
  the table of joint beliefs, from the promises of single arms;
- joint beliefs with two arms of equal waits (below their truncations) occur only until every arm has been pulled, and
  are left out from then on.
"""

from __future__ import annotations

import itertools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray, check_int, positive
from restless_bandits.learning.learners import colored_kernels as kernels
from restless_bandits.learning.learners.base import Learner, require_choice, require_horizon, require_one_play
from restless_bandits.model.record import EXACT_ELAPSED, Record
from restless_bandits.model.rewards import values_of
from restless_bandits.model.tasks import Task
from restless_bandits.policies.plans import CountDoubled, Forever, Plan
from restless_bandits.policies.policies import IndexPolicy, JointPolicy, SingleArm
from restless_bandits.processes.beliefs import HiddenProcess, JointBeliefs, numbered_beliefs

LARGEST_TABLE = 20_000_000
"""The largest number of joint beliefs that fits the memory of a run."""
THREADED = 100_000
"""The number of joint beliefs from which on two threads pay off."""
MOST_SWEEPS = 100_000


@dataclass(frozen=True)
class ColoredUCRL2(Learner):
    """Optimistic episodes over joint beliefs.

    Parameters
    ----------
    cap
        The truncation of elapsed slots, for every arm. By default each arm's mixing time to 1/√T, which must then be
        revealed.
    delta
        Probability of a failure of confidence sets; 1/T by default.
    reward_width, law_width
        The constants in the radii of rewards and distributions.
    rewards
        ``learned``, or ``known`` as in the published comparison; known rewards have no radius.

    """

    name: ClassVar[str] = "colored-ucrl2"
    cap: int | None = None
    delta: float | None = None
    reward_width: float = 3.5
    law_width: float = 56.0
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "rewards", self.rewards, ("learned", "known"))
        if self.cap is not None:
            check_int(f"{self.name}: cap", self.cap, most=EXACT_ELAPSED)
        if self.delta is not None and not 0 < self.delta < 1:
            raise ProblemError(f"{self.name}: delta is {shortened(self.delta)}; it must lie between 0 and 1")
        for option in ("reward_width", "law_width"):
            positive(f"{self.name}: {option}", getattr(self, option), or_zero=True)

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | ({"mixing"} if self.cap is None else set())

    def check(self, task: Task) -> None:
        require_horizon(self, task)
        require_one_play(self, task)
        if task.n_arms == 1:
            return
        caps = self.caps(task)
        size = _table_size(task, caps)
        if size > LARGEST_TABLE:
            caps_tried = range(1, EXACT_ELAPSED + 1)
            fits = sum(_table_size(task, (cap,) * task.n_arms) <= LARGEST_TABLE for cap in caps_tried)
            advice = (
                f"; give a cap of at most {fits}" if fits else ", and too many with any cap; there are too many arms"
            )
            raise ProblemError(
                f"{self.name}: caps {', '.join(map(str, caps))} make {size:,} joint beliefs, "
                f"more than {LARGEST_TABLE:,}{advice}"
            )

    def caps(self, task: Task) -> tuple[int, ...]:
        """The truncation of every arm."""
        if self.cap is not None:
            return (self.cap,) * task.n_arms
        if task.mixing is None:
            raise ProblemError(f"{self.name} needs a cap, or mixing times; make its task with reveal=['mixing']")
        caps = []
        for name, mixing in zip(task.names, task.mixing, strict=True):
            if mixing is None:
                raise ProblemError(f"{self.name}: {name!r} never mixes, so its elapsed slots have no cap; give one")
            if mixing > EXACT_ELAPSED:
                raise ProblemError(
                    f"{self.name}: {name!r} takes {mixing} slots to mix, more than the {EXACT_ELAPSED} told apart; "
                    "give a cap"
                )
            caps.append(mixing)
        return tuple(caps)

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        if task.n_arms == 1:
            return Plan(SingleArm(0), until=Forever())
        caps = self.caps(task)
        unseen = tuple((record.last_state == record.n_states).tolist())
        layout = table_layout(task.n_states, task.initial, caps, unseen, 0 in record.pulls)
        balls = self.confidence_sets(record, task)
        tolerance = 1.0 / math.sqrt(record.slots + 1)
        until = CountDoubled(cap=max(caps))
        joint = layout.joint.table
        sets = balls.estimate, balls.half, balls.reward
        tables, apart = kernels.promises(*sets, layout.sizes, joint.n_states, joint.truncation, joint.numbers)
        if apart <= tolerance:
            # Value iteration would end with its first step, and the greedy choice for zeros is the highest promise.
            alike = len(set(zip(task.n_states, caps, strict=True))) == 1
            own = zip(tables, task.n_states, caps, strict=True)
            return Plan(IndexPolicy(tables if alike else tuple(one[: n + 1, :cap] for one, n, cap in own)), until)
        return Plan(extended_value_iteration(layout, balls, tolerance).policy, until)

    def confidence_sets(self, record: Record, task: Task) -> kernels.Balls:
        """The plausible distributions and rewards at the start of an episode, colour by colour."""
        horizon = require_horizon(self, task)
        caps = self.caps(task)
        colours = sum(n * cap for n, cap in zip(task.n_states, caps, strict=True))
        # ln(2Ct/δ), with δ = 1/T unless given.
        log = math.log(2 * colours * (record.slots + 1)) - math.log(1 / horizon if self.delta is None else self.delta)
        widths = log, self.law_width, self.reward_width, 1 / math.sqrt(horizon)
        sums = task.normalized_sums(record.flat_rewards, record.flat_seen)
        counted = record.flat_counts, record.count_base, record.flat_seen, sums, record.state_base
        balls = kernels.Balls(*kernels.confidence_sets(record.n_states, np.array(caps), *counted, *widths))
        if not task.is_normalized:
            for bounds, ends in zip(balls.reward, task.reward_ranges, strict=True):
                bounds[:] = values_of(bounds, ends)
        for bounds, known in zip(balls.reward, task.rewards or (), strict=False):
            bounds[: len(known)] = known
        return balls


def _table_size(task: Task, caps: tuple[int, ...]) -> int:
    sizes = [n * cap + (initial is None) for n, cap, initial in zip(task.n_states, caps, task.initial, strict=True)]
    return JointBeliefs.count(sizes, task.n_states, 1)


class TableLayout(NamedTuple):
    """Joint beliefs with given truncations, and the rows in the order of value iteration."""

    joint: JointBeliefs
    sizes: IntArray
    rows: kernels.Rows


@lru_cache(maxsize=4)
def table_layout(
    n_states: tuple[int, ...],
    initial: tuple[int | None, ...],
    caps: tuple[int, ...],
    unseen: tuple[bool, ...],
    ties: bool,
) -> TableLayout:
    arms = [_shape(*arm) for arm in zip(n_states, initial, caps, unseen, strict=True)]
    joint = JointBeliefs(arms, 1)
    order = joint.order.tolist()
    sizes = np.array([arm.size for arm in arms])

    # In the block of arm a its own state runs slowest, and of the other arms the last in order fastest.
    strides = np.zeros((len(arms), len(arms)), dtype=np.int64)
    offsets = [0]
    for a, n in enumerate(n_states):
        step = 1
        for i in [*reversed([i for i in order if i != a]), a]:
            strides[a, i] = step
            step *= int(sizes[i])
        offsets.append(offsets[-1] + n * int(strides[a, a]))

    inner = np.array([order[-1] if a != order[-1] else order[-2] for a in range(len(arms))])
    tables = []
    for a, x in enumerate(inner.tolist()):
        outer = [i for i in order if i not in (a, x)]
        grids = np.meshgrid(*(np.arange(n_states[a] if i == a else sizes[i]) for i in [a, *outer]), indexing="ij")
        digits = np.zeros((grids[0].size, len(arms)), dtype=np.int64)
        for i, grid in zip([a, *outer], grids, strict=True):
            digits[:, i] = grid.reshape(-1)
        if not ties:
            digits = digits[_distinct(digits, outer, arms)]
        colour = digits.copy()
        colour[:, a] = arms[a].after_pull[digits[:, a]]
        waited = np.stack([arm.passive[colour[:, i]] for i, arm in enumerate(arms)], axis=1)
        waited[:, x] = 0
        # The pulled arm is left out of its successors: its observed state there is 0.
        after = np.stack(
            [offsets[j] + waited @ np.where(np.arange(len(arms)) == j, 0, strides[j]) for j in range(len(arms))], 1
        )
        place, target = offsets[a] + digits @ strides[a], joint.offsets[a] + digits @ joint.strides[a]
        tables.append((place, target, colour, after))
    places, targets, colours, follows = (np.concatenate(table).astype(np.int32) for table in zip(*tables, strict=True))
    row_base = np.concatenate([[0], np.cumsum([len(place) for place, *_ in tables])])
    steps = (strides.diagonal().copy(), strides[:, inner].T.copy())
    return TableLayout(joint, sizes, kernels.Rows(row_base, inner, places, targets, colours, follows, *steps, ties))


def _distinct(digits: IntArray, outer: list[int], arms: list[HiddenProcess]) -> IntArray:
    """Rows in which all arms below their truncations have different waits, longer than the wait of the arm just
    pulled.
    """
    waits = [np.where(arms[i].elapsed < arms[i].truncation, arms[i].elapsed, 0)[digits[:, i]] for i in outer]
    fine = np.ones(len(digits), dtype=bool)
    for wait in waits:
        fine &= wait != 1
    for one, other in itertools.combinations(waits, 2):
        fine &= (one != other) | (one == 0)
    return np.flatnonzero(fine)


def _shape(n: int, initial: int | None, cap: int, unseen: bool) -> HiddenProcess:
    """The beliefs (s, min(τ, cap)) of an arm, with a further belief for an arm never observed; distributions and
    rewards come later.
    """
    numbers = np.arange(n * cap).reshape(cap, n).T
    never = np.full((1, cap), n * cap) if unseen else numbers[:1]
    size = n * cap + unseen
    return numbered_beliefs(np.concatenate([numbers, never]), np.full((size, n), 1 / n), np.ones(n), initial)


@dataclass(frozen=True)
class Optimum:
    """The result of extended value iteration: the policy, a bracket of its optimistic gain, and the number of
    sweeps.
    """

    policy: JointPolicy
    lower: float
    upper: float
    sweeps: int


def extended_value_iteration(layout: TableLayout, balls: kernels.Balls, tolerance: float) -> Optimum:
    """Solve the optimistic problem until the span of an update is within the tolerance."""
    values, improved, bias = (np.zeros(layout.joint.size) for _ in range(3))
    tables = kernels.ColoredTables(values, improved, np.zeros(layout.joint.size, dtype=np.int16), bias)
    solve = _iterate_in_threads if layout.joint.size >= THREADED else kernels.iterate
    found = solve(tables, tolerance, MOST_SWEEPS, layout.rows, layout.joint.table, balls)
    # Without a table entry (see ``JointPolicy``) distributions are the most favourable to reward: after skipped pulls,
    # one-step lookahead needs no more.
    arms = [
        replace(
            arm,
            distribution=kernels.favoured(balls, i, arm.size, arm.n_states),
            rewards=balls.reward[i, : arm.n_states],
        )
        for i, arm in enumerate(layout.joint.arms)
    ]
    return Optimum(JointPolicy(layout.joint.with_laws(arms), tables.action, bias), *found)


def _iterate_in_threads(
    tables: kernels.ColoredTables, tolerance: float, most_sweeps: int, *problem: Any
) -> tuple[float, float, int]:
    """``kernels.iterate``, to the last digit, with rows divided among threads."""
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:

        def sweep(shift: float, greedy: bool) -> tuple[float, float]:
            def part(number: int) -> tuple[float, float]:
                return kernels.sweep_part(tables, number, threads, shift, greedy, *problem)

            found = list(pool.map(part, range(threads)))
            return min(least for least, _ in found), max(most for _, most in found)

        least, most = sweep(0.0, False)
        count = 1
        while most - least > tolerance and count < most_sweeps:
            tables = tables._replace(values=tables.improved, improved=tables.values)
            least, most = sweep(0.5 * (least + most), False)
            count += 1
        return *sweep(0.0, True), count + 1
