"""The lower bound of regret for any learner on a problem: C such that lim inf R(T)/ln T ≥ C.

With Δ the gaps of the optimal solution, θ the problem, and KL the divergence of another model θ' by a pull (state and
reward),

    C = min Σ w(z, a) Δ(z, a)   over measures w that the process of joint beliefs can carry,
        such that Σ w(z, a) KL(z, a) ≥ 1 for every confusing θ',

and θ' is confusing if θ' has the distributions of θ in all beliefs pulled by optimal play, and a larger optimum
(Graves, Lai 1997; Burnetas, Katehakis 1997; Ok, Proutiere, Tranos 2018). See docs/theory/limit.md for the proof.

The dual problem is the largest Σ λ_j over confusing models θ_j such that no policy earns more than μ* when every pull
pays a bonus Σ λ_j KL_j on top of its reward. Both sides use the same solver. *Columns* are policies: the best policy
for the bonus explores too little or too much, and gives the cost and the information of exploration. *Rows* are models:
the model that the present exploration excludes least (``confusion``). A linear program joins the two.

All of this is a search, on a table of joint beliefs with short truncations. The result is then verified on the table of
the exact solution. Each model is confusing because the exact oracle proves an optimum above μ*. The bonus pays no
policy because of a potential φ with Δ ≥ Σ λ_j KL_j + E φ(after) − φ for every pull that is not free. These proofs give
``lower``. The upper end is the cost of the found exploration, divided by the information against the nearest confusing
model found by a search from several starts: no proof.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # its parts load when they are first used

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report, warning
from restless_bandits._internal.validation import ActionArray, Array, BoolArray
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.exact import exact, joint_beliefs_needed
from restless_bandits.oracles.solution import Solution
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels
from restless_bandits.paper.regret_lower_bound.arena import Arena
from restless_bandits.paper.regret_lower_bound.confusion import (
    Confusing,
    divergence,
    extremes,
    moved,
    nearest_confusing,
)
from restless_bandits.paper.regret_lower_bound.identification import LEAST_MARGIN, FreePlay, free_play, margin, twins
from restless_bandits.policies.policies import JointPolicy
from restless_bandits.processes.beliefs import JointBeliefs, joint_beliefs, truncation_for

MOST_ARMS, MOST_STATES = 3, 3
MOST_TWO_STATE_ARMS = 4
MOST_BELIEFS = 2_000_000
SECONDS_PER_BELIEF = 4e-5
"""Of a single core, measured on the built-in problems."""
SEARCH_BELIEFS = 30_000
"""The number of joint beliefs of the search table, unless its truncations would become too short."""
FINEST, COARSEST = 1e-7, 1e-3
"""The range of deviations at the truncations of search tables."""
LEAST_CAPS = (64, 40, 24, 16, 8)
"""Lower limits of the truncations of all arms: the first with a small table, or else the last."""
ZERO = 1e-8
"""Gaps up to here count as none: the exact solution's are off by less."""
COLUMNS, ROWS = 60, 40
LEAST_IMPROVEMENT = 2e-4
"""The least relative change by which a new policy or a new model is accepted."""
PROOF_TOLERANCE = 3e-8
"""Width of the bracket of a confusing model's optimum: models are found with ``confusion.MARGIN`` to spare."""
PUSH = 1e-4
"""By how much, first, a model is moved away from the true arm whose optimum is not proved to lie above μ*."""
MOST_PUSHED = 0.5
SLACK = 1e-8
"""The slack added to each slot of an excursion in the proof, a margin for rounding."""
MOST_SWEEPS = 5_000
BONUS_REDUCTIONS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3)
"""Shares by which the bonus is reduced until the proof succeeds."""


@dataclass(frozen=True, eq=False)
class RegretLowerBound:
    """The lower bound of regret: the least loss for each unit of ln T of any learner that is good on every problem.

    ``lower`` is proved up to the truncations and the rounding of the exact solution; ``upper`` is the result of a
    search. Both are 0 if optimal play identifies all arms. If ``exact`` is false, the search covered only models that
    differ in a single arm: ``lower`` still holds, and the constant itself may lie above ``upper``.
    """

    problem: Problem
    slope: float
    lower: float
    upper: float
    exact: bool
    unused: tuple[str, ...]
    """The arms that optimal play does not identify."""
    model: Problem | None
    """The nearest confusing problem; of several, the problem of largest weight."""
    policy: JointPolicy | None
    """The exploration policy of least cost; in a mixture, the policy with most of the cost."""
    margin: float
    """The smallest margin of all identified arms under optimal play."""
    how: str
    seconds: float

    @property
    def sentence(self) -> str:
        """The meaning of the limit, in a line."""
        if not self.unused:
            return "limit: 0, optimal play identifies every arm, so nothing forces regret to grow with ln T"
        names = " and ".join(self.unused)
        if self.upper == 0.0:
            return f"limit: 0, optimal play does not identify {names}, but no model of it would pay"
        if math.isinf(self.upper):
            return f"limit: at least {self.lower:.4g}, but optimal play shows a part of {names}, which is not covered"
        more = "" if self.exact else ", one arm at a time"
        return (
            f"limit: {self.slope:.4g} (from {self.lower:.5g} to {self.upper:.5g}{more}): any learner that is good "
            f"everywhere loses at least so much for each unit of ln T, as optimal play does not show {names}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the limit in the form of ``restless check --limit --json``."""
        names = ("slope", "lower", "upper", "exact", "unused", "margin", "how", "seconds")
        model = None
        if self.model is not None:
            pairs = zip(self.problem.arms, self.model.arms, strict=True)
            changed = [arm for before, arm in pairs if arm != before and isinstance(arm, Arm)]
            model = [{"name": arm.name, "transitions": arm.transitions, "rewards": arm.rewards} for arm in changed]
        return {name: getattr(self, name) for name in names} | {"model": model}

    def __repr__(self) -> str:
        return f"<Limit: {self.slope:.6g}, {self.lower:.6g} to {self.upper:.6g}>"


@dataclass(frozen=True, eq=False)
class _Column:
    """A policy, its cost a slot, and its frequencies of pulls of each arm in each of its beliefs."""

    action: ActionArray
    cost: float
    pulls: Array


@dataclass(frozen=True, eq=False)
class _Balance:
    """The solution of the linear program: the weight of each policy, the weight of each model, and the total cost."""

    amounts: Array
    weights: Array
    cost: float


class _Program:
    """The linear program over policies and models of an arena."""

    def __init__(self, arena: Arena, *, most: bool = False) -> None:
        self.arena, self._most = arena, most
        self.columns: list[_Column] = []
        self.rows: list[tuple[int, Arm]] = []
        self._bonus: list[Array] = []

    def add_model(self, arm: int, model: Arm) -> None:
        self.rows.append((arm, model))
        self._bonus.append(divergence(self.arena.arm(arm), model, self.arena.truncations[arm], most=self._most))

    def add_policy(self, action: ActionArray, play: kernels.PolicyOccupation) -> bool:
        """Accept a policy; return False for a policy without cost, such as optimal play, or without information on
        any model.
        """
        column = _Column(action, play.cost, play.pulls)
        if play.cost <= 0.0 or not any(self._shown(column, j) > 0 for j in range(len(self.rows))):
            return False
        self.columns.append(column)
        return True

    def _shown(self, column: _Column, row: int) -> float:
        arm, bonus = self.rows[row][0], self._bonus[row]
        return float(column.pulls[arm, : len(bonus)] @ bonus)

    def bonus(self, weights: Array) -> dict[int, Array]:
        """Bonuses of pulls on top of their rewards, arm by arm."""
        total: dict[int, Array] = {}
        for weight, (arm, _), bonus in zip(weights, self.rows, self._bonus, strict=True):
            total[arm] = total.get(arm, np.zeros(len(bonus))) + weight * bonus
        return total

    def solve(self) -> _Balance:
        """Balance the costs of policies against their information on each model."""
        # In units of each policy's cost: rare excursions then weigh as much as constant ones.
        shown = np.array([[self._shown(one, j) / one.cost for one in self.columns] for j in range(len(self.rows))])
        found = scipy.optimize.linprog(np.ones(len(self.columns)), A_ub=-shown, b_ub=-np.ones(len(self.rows)))
        assert found.x is not None, found.message
        amounts = found.x / [one.cost for one in self.columns]
        return _Balance(amounts, np.maximum(0.0, -found.ineqlin.marginals), float(found.x.sum()))

    def balance(self) -> _Balance:
        """Accept policies until no other policy pays for itself by the bonus."""
        for _ in range(COLUMNS):
            found = self.solve()
            solved = self.arena.solve(bonus=self.bonus(found.weights))
            earned = sum(
                float(solved.play.pulls[i, : len(bonus)] @ bonus) for i, bonus in self.bonus(found.weights).items()
            )
            if earned * (1.0 - LEAST_IMPROVEMENT) <= solved.play.cost or not self.add_policy(
                solved.action, solved.play
            ):
                break
        return self.solve()

    def pulls(self, balance: _Balance, arm: int) -> Array:
        """The frequency of pulls of an arm in each of its beliefs, for each unit of ln T."""
        size = self.arena.joint.arms[arm].size
        columns = zip(balance.amounts, self.columns, strict=True)
        total: Array = sum((amount * one.pulls[arm, :size] for amount, one in columns), np.zeros(size))
        return total


def regret_limit(problem: AnyProblem, *, announce: Report | None = None) -> RegretLowerBound:
    """Return the least slope of regret in ln T of any learner that is good on every problem.

    For two or three arms of up to three states, and up to four of two states, with one play; chains and mean rewards
    count as unknown, the order of states and the zeros of the chains as known. Takes seconds to minutes; ``announce``
    is called with a line of text before a long computation.

    >>> import restless_bandits as rb
    >>> regret_limit(rb.Problem.builtin("paper-1")).slope
    0.0
    """
    started = time.perf_counter()
    problem = as_problem(problem)
    _accept(problem)
    solution = exact(problem)
    if not solution.certified or solution.bias is None or not isinstance(solution.policy, JointPolicy):
        raise ProblemError("the exact oracle does not certify its optimum, and the limit of regret rests on that")
    solved = solution.policy.beliefs
    joint = _joint_beliefs(problem, [arm.truncation for arm in solved.arms])
    table = Arena(problem, joint, ZERO, solved.refine(solution.bias, joint))
    known = _Known(problem, solution, table, free_play(table))
    made = f"joint beliefs: {table.joint.size:,}; smallest gap of a pull that is not free: {known.play.smallest:.2g}"
    if known.margin < np.inf:
        made += f"; margin of identification: {known.margin:.2g}"

    def limit(lower: float, upper: float, how: str, **found: Any) -> RegretLowerBound:
        unused = tuple(problem.arms[i].name for i in known.unused)
        details = {"exact": len(unused) < 2, "model": None, "policy": None} | found
        middle = lower if math.isinf(upper) else 0.5 * (lower + upper)
        seconds = time.perf_counter() - started
        return RegretLowerBound(
            problem, middle, lower, upper, unused=unused, margin=known.margin, seconds=seconds, how=how, **details
        )

    if not known.unused:
        return limit(0.0, 0.0, f"rank of what optimal play shows; {made}")
    arena = _search_arena(known)
    line = warning(SECONDS_PER_BELIEF * table.joint.size, "a search for models that optimal play cannot tell apart")
    if announce is not None and line is not None:
        announce(line)
    found = _search(arena, known)
    if known.in_part:
        names = " and ".join(problem.arms[i].name for i in known.in_part)
        made += f"; {names} identified in part: other models of it are left out, so only the lower end holds"
    if found is None:
        return limit(
            0.0, math.inf if known.in_part else 0.0, f"no confusing model pays; {made}", exact=not known.in_part
        )
    lower, upper, model, policy, parts = _prove(arena, known, *found)
    how = (
        f"{len(found[0].rows)} models and {len(found[0].columns)} policies, {parts}; lower end by a potential on the "
        f"table of the exact solution, upper end by a search; {made}"
    )
    details = {"exact": len(known.unused) < 2 and not known.in_part, "model": model, "policy": policy}
    return limit(lower, math.inf if known.in_part else upper, how, **details)


def _accept(problem: Problem) -> None:
    """Refuse problems outside the scope of the program."""
    problem.require_steady("the limit of regret")
    refuse_unsupported(problem, "theory")
    if problem.plays != 1:
        raise ProblemError(f"plays is {problem.plays}; the limit of regret is for one play")
    sizes = problem.n_states
    most = MOST_TWO_STATE_ARMS if max(sizes) <= 2 else MOST_ARMS
    if len(sizes) > most or max(sizes) > MOST_STATES:
        raise ProblemError(
            f"the problem has {len(sizes)} arms of up to {max(sizes)} states; the limit of regret is for {MOST_ARMS} "
            f"arms of up to {MOST_STATES} states, or {MOST_TWO_STATE_ARMS} of two"
        )
    for arm in problem.arms:
        if not isinstance(arm, Arm) or not arm.is_ergodic:
            raise ProblemError(
                f"arm {arm.name!r} is no chain that forgets where it started; the limit of regret needs such arms"
            )
        if arm.reward_law not in ("bernoulli", "fixed") or arm.reward_range != ZERO_TO_ONE:
            raise ProblemError(
                f"arm {arm.name!r} has {arm.reward_law} rewards from {arm.reward_range[0]:.12g} to "
                f"{arm.reward_range[1]:.12g}; the limit of regret is for bernoulli or fixed ones from 0 to 1, so take "
                "problem.normalized() where all arms have one range, and the slope times its width"
            )
    needed = joint_beliefs_needed(problem)
    if needed > MOST_BELIEFS:
        raise ProblemError(
            f"the exact solution takes {needed:,.0f} joint beliefs, and the limit of regret is for up to "
            f"{MOST_BELIEFS:,}; its chains forget too slowly"
        )


@dataclass(frozen=True, eq=False)
class _Known:
    """The exact solution, and the observations of arms under optimal play."""

    problem: Problem
    solution: Solution
    table: Arena
    play: FreePlay

    @cached_property
    def pulled(self) -> list[tuple[Arm, BoolArray, int]]:
        """Every arm with its beliefs pulled by optimal play, and its truncation."""
        beliefs = enumerate(zip(self.play.looked, self.table.truncations, strict=True))
        return [(self.table.arm(i), *one) for i, one in beliefs]

    @cached_property
    def margins(self) -> list[float]:
        return [margin(*one) for one in self.pulled]

    @cached_property
    def never(self) -> list[int]:
        """The arms not pulled by optimal play, except for arms known from a single observation."""
        arms = self.problem.arms
        unknown = [arm.n_states > 1 or arm.reward_law == "bernoulli" for arm in arms]
        return [i for i, looked in enumerate(self.play.looked) if unknown[i] and not looked.any()]

    @cached_property
    def in_part(self) -> list[int]:
        """The arms pulled but not determined by their distributions, not even among models nearby."""
        looked = [one.any() for one in self.play.looked]
        return [i for i, one in enumerate(self.margins) if one < LEAST_MARGIN and looked[i]]

    @cached_property
    def doubles(self) -> list[tuple[int, Arm]]:
        """Models that optimal play cannot distinguish from an arm, and under which another policy would pay."""
        known = [(i, one) for i, one in enumerate(self.pulled) if self.margins[i] >= LEAST_MARGIN]
        return [(i, twin) for i, one in known for twin in twins(*one) if self.pays(i, twin)]

    @cached_property
    def unused(self) -> list[int]:
        return sorted({*self.never, *self.in_part, *(i for i, _ in self.doubles)})

    @cached_property
    def margin(self) -> float:
        """The margin of the identified arms."""
        return min((one for i, one in enumerate(self.margins) if i not in self.unused), default=math.inf)

    def changed(self, arm: int, model: Arm) -> Problem:
        """The problem with another model of one arm."""
        arms = [model if i == arm else one for i, one in enumerate(self.problem.arms)]
        return Problem(arms, name=self.problem.name)

    def pays(self, arm: int, model: Arm) -> bool:
        """Whether the optimum with another model is proved to lie above the problem's optimum."""
        return exact(self.changed(arm, model), tolerance=PROOF_TOLERANCE).lower > self.solution.upper


def _joint_beliefs(problem: Problem, truncations: Sequence[int]) -> JointBeliefs:
    """The joint beliefs of a problem; truncations leave room for other models, which may forget more slowly."""

    def size(truncations: Sequence[int]) -> int:
        beliefs = [(truncation - 1) * n + 1 for truncation, n in zip(truncations, problem.n_states, strict=True)]
        return JointBeliefs.count(beliefs, problem.n_states, 1)

    for least in LEAST_CAPS:
        longer = [
            max(truncation, least) if n > 1 else 1 for truncation, n in zip(truncations, problem.n_states, strict=True)
        ]
        if size(longer) <= max(SEARCH_BELIEFS, size(truncations)):
            break
    return joint_beliefs(problem, longer)


def _search_arena(known: _Known) -> Arena:
    """The table for the search of models and policies: the finest small table."""
    tv_error, arena = FINEST, known.table
    while arena.joint.size > SEARCH_BELIEFS and tv_error < 2.0 * COARSEST:
        joint = _joint_beliefs(known.problem, [truncation_for(arm, tv_error) for arm in known.problem.arms])
        if joint.size <= SEARCH_BELIEFS or tv_error > 0.5 * COARSEST:
            arena = Arena(known.problem, joint, ZERO)
        tv_error *= 10.0
    return arena


def _search(arena: Arena, known: _Known) -> tuple[_Program, _Balance] | None:
    """Add models and policies alternately until neither changes the result; None if no model pays."""
    program = _Program(arena)
    for arm, twin in known.doubles:
        _take_in(program, arm, twin, 1.0)
    arms = []
    for arm in known.never:
        # As for a pull in every slot, until a better exploration is known.
        weights = np.zeros(arena.joint.arms[arm].size)
        weights[arena.joint.arms[arm].after_pull] = known.table.arm(arm).stationary
        starts = (nearest_confusing(arena, arm, weights, start) for start in extremes(known.table.arm(arm)))
        found = next((one for one in starts if one is not None), None)
        if found is not None:
            arms.append(arm)
            _take_in(program, arm, found.model)
    if not program.rows:
        return None
    balance = program.balance()
    for _ in range(ROWS):
        for thorough in (False, True):
            nearer = [_nearest_of_program(program, balance, arm, thorough) for arm in arms]
            fresh = [one for one in nearer if one is not None and one.distance < 1.0 - LEAST_IMPROVEMENT]
            for one in fresh:
                _take_in(program, one.arm, one.model)
            if fresh:
                break
        if not fresh:
            break
        balance = program.balance()
    return program, balance


def _take_in(program: _Program, arm: int, model: Arm, beyond: float = 1.02) -> None:
    """Add a model, and the best policy for a model a little beyond, which distinguishes the two."""
    program.add_model(arm, model)
    arena = program.arena
    solved = arena.solve(arm, moved(arena.arm(arm), model, beyond))
    program.add_policy(solved.action, arena.follow(solved.action))


def _nearest_of_program(program: _Program, balance: _Balance, arm: int, thorough: bool) -> Confusing | None:
    """The model of an arm that the present exploration excludes least; if thorough, from all starts."""
    weighed = [(w, model) for w, (i, model) in zip(balance.weights, program.rows, strict=True) if i == arm]
    heaviest = max(range(len(weighed)), key=lambda j: weighed[j][0])
    quick = {heaviest, len(weighed) - 1}
    starts = [weighed[j][1] for j in quick]
    if thorough:
        starts = [model for j, (w, model) in enumerate(weighed) if w > 0.0 and j not in quick]
        starts += extremes(program.arena.arm(arm))
    return _nearest(program, arm, program.pulls(balance, arm), starts)


def _nearest(program: _Program, arm: int, weights: Array, starts: Sequence[Arm]) -> Confusing | None:
    found = [nearest_confusing(program.arena, arm, weights, start) for start in starts]
    return min((one for one in found if one is not None), key=lambda one: one.distance, default=None)


def _prove(
    arena: Arena, known: _Known, program: _Program, balance: _Balance
) -> tuple[float, float, Problem, JointPolicy, str]:
    """Verify the search result on the table of the exact solution; return both ends, model, policy, a remark."""
    table = known.table
    place = arena.joint.refine(np.arange(arena.joint.size, dtype=np.float64), table.joint).astype(np.int64)
    final, amounts = _Program(table, most=True), []
    for weight, (arm, model) in zip(balance.weights, program.rows, strict=True):
        if weight > LEAST_IMPROVEMENT * balance.weights.sum():
            final.add_model(arm, _proved_to_pay(known, arm, model))
    for amount, column in zip(balance.amounts, program.columns, strict=True):
        if amount * column.cost > 1e-6 * balance.cost:
            action = column.action[place]
            if final.add_policy(action, table.follow(action)):
                amounts.append(amount)
    explored = replace(balance, amounts=np.array(amounts))
    spent = explored.amounts * [one.cost for one in final.columns]
    first = int(np.argmax(spent))
    policy = JointPolicy(table.joint, final.columns[first].action, table.values)
    distances = [1.0]
    for arm in {arm for arm, _ in program.rows} & set(known.never):
        size = arena.joint.arms[arm].size
        weights = _folded(final.pulls(explored, arm), known.problem.n_states[arm], size)
        # The search has just used all other starts, for nearly the same weights.
        near = _nearest(program, arm, weights, [model for i, model in final.rows if i == arm])
        distances += [] if near is None else [near.distance]

    found, short = final.solve(), 1.0
    for share in BONUS_REDUCTIONS:
        if _nobody_is_paid(known, final, (1.0 - share) * found.weights):
            short = share
            break
        solved = table.solve(bonus=final.bonus(found.weights))
        if final.add_policy(solved.action, solved.play):
            found = final.solve()
    lower = (1.0 - short) * float(found.weights.sum())
    # The search stops once another model would change next to nothing.
    upper = max(lower, (1.0 + LEAST_IMPROVEMENT) * float(spent.sum()) / min(distances))
    arm, model = final.rows[int(np.argmax(found.weights))]
    parts = f"of which the first bears {spent[first] / spent.sum():.0%} of the cost"
    return lower, upper, known.changed(arm, model), policy, parts


def _proved_to_pay(known: _Known, arm: int, model: Arm) -> Arm:
    """A confusing model, moved away from the true arm until its optimum is proved to lie above μ*."""
    true, push, further = known.table.arm(arm), PUSH, model
    while not known.pays(arm, further):
        if push > MOST_PUSHED:
            raise ProblemError(
                f"a model of arm {true.name!r} seems to pay, but no optimum above that of the problem can be "
                "proved; the limit of regret is out of reach here"
            )
        further = moved(true, model, 1.0 + push)
        push *= 2.0
    return further


def _nobody_is_paid(known: _Known, program: _Program, weights: Array) -> bool:
    """Whether a potential proves that no excursion is worth its cost under the given bonuses."""
    table, joint = known.table, known.table.joint
    net = np.zeros(joint.distributions.reward.shape)
    for arm, bonus in program.bonus(weights).items():
        net[arm, : len(bonus)] = bonus
    worst, _ = kernels.excursion_values(
        net, table.gap, known.play.free, table.links, joint.table.strides, joint.table.n_states,
        joint.distributions.distribution, SLACK, MOST_SWEEPS,
    )  # fmt: skip
    return bool(worst <= 0.0)


def _folded(weights: Array, n_states: int, size: int) -> Array:
    """Weights on the beliefs of a long truncation, mapped to the beliefs of a shorter truncation."""
    rows = weights[:-1].reshape(n_states, -1)
    length = (size - 1) // n_states
    return np.append(rows[:, :length].reshape(-1), weights[-1] + rows[:, length:].sum())
