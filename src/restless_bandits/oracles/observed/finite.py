"""Observed arms over a known number of slots: a bound of every policy, and the fluid-priority policy.

The relaxation pulls B arms *on average* in every slot. With a price m_t of a pull in slot t, paid as a subsidy for
resting, and V_i(m) the best total reward of arm i alone,

    total reward of any policy ≤ L(m) = Σ_i V_i(m) − (N − B) Σ_t m_t    for every m (m ≥ 0 if at most B are pulled).

L is convex and piecewise linear. Few kinds and slots take the linear program over the expected numbers of arms in each
state, whose dual prices minimise L. Larger problems take cutting planes within a box around the best prices so far. The
reported bound is L at the prices found, by backward induction with its rounding, so it does not rest on either.

A *fluid-priority* policy (Zhang, Frazier 2021; Brown, Smith 2020) pulls first the states that the linear program pulls
always, then those that it pulls sometimes, and last the others. The score of a state is the advantage of pulling over
resting at the prices of pulls. An advantage is positive only where the program always pulls, and states of no advantage
stand in the order of the share that the program pulls.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.fluid import flat_rewards
from restless_bandits.oracles.observed.relaxation import UNIT, relax_observed
from restless_bandits.oracles.observed.rollout import ObservedWorld, horizon_rewards
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.policies.finite_horizon import HorizonPolicy
from restless_bandits.policies.lookahead import flow_program
from restless_bandits.policies.observed import PriorityPolicy

MOST_VARIABLES = 20_000
"""Variables of a linear program that is solved as a whole."""
MOST_SCORES = 100_000_000
"""Scores of all places in all slots that a policy holds."""
LONGEST = 10_000
"""Slots of a programme."""
CUT_PARTS = 16
"""Parts of the kinds with cutting planes of their own."""
CUT_TOLERANCE = 1e-6
"""The accepted gap of the cutting planes, relative to the bound."""
MOST_CUTS = 300
KEPT_CUTS = 60
NO_ADVANTAGE = 1e-7
"""An advantage below this share of the largest advantage counts as none."""


@dataclass(frozen=True, eq=False)
class HorizonRelaxation:
    """Prices of a pull in each slot, the bound of the total reward, and what the scores of a policy are made of."""

    prices: Array
    value: float
    """L at the prices, as computed."""
    bound: float
    """A proved upper bound of the expected total reward of every policy, rounding included."""
    score: Array
    """The advantage of pulling in each slot and place."""
    share: Array
    """The share of the mass in each slot and place that the linear program pulls; zeros without a linear program."""


def relax_horizon(arms: ObservedArms, horizon: int) -> HorizonRelaxation:
    """Return the relaxation over a number of slots from the arms' distributions of slot 1."""
    places = arms.layout.size
    if horizon * places > MOST_SCORES:
        raise ProblemError(
            f"{horizon:,} slots of {places:,} pairs of a kind and a state are more than {MOST_SCORES:,} scores; give "
            "fewer slots"
        )
    share = np.zeros((horizon, places))
    if 2 * horizon * places <= MOST_VARIABLES:
        prices, share = _by_linear_program(arms, horizon)
    else:
        prices = _by_cutting_planes(arms, horizon)
    score = np.empty((horizon, places))
    values, _, rounding = _evaluated(arms, prices, 1, score)
    spare = arms.n_arms - arms.plays
    value = float(values[0]) - spare * float(prices.sum())
    rounding += (horizon + 4) * UNIT * spare * float(np.abs(prices).sum())
    return HorizonRelaxation(prices, value, float(np.nextafter(value + rounding, np.inf)), score, share)


def _by_linear_program(arms: ObservedArms, horizon: int) -> tuple[Array, Array]:
    """Return the prices of pulls, and the share of the mass in each slot and place that is pulled."""
    chains = arms.flat(g.active for g in arms.groups), arms.flat(g.passive for g in arms.groups)
    weight = np.repeat(arms.layout.counts / arms.n_arms, arms.layout.n_states)
    mass = weight * arms.flat(group.start for group in arms.groups)
    program = flow_program(arms.layout, chains, flat_rewards(arms), horizon, np.zeros(arms.layout.size))
    found, prices = program.solved(mass, arms.plays / arms.n_arms, at_most=arms.at_most)
    pulled, total = found[:, 0].clip(0.0), found.clip(0.0).sum(axis=1)
    share = np.divide(pulled, total, out=np.zeros_like(pulled), where=total > NO_ADVANTAGE * weight)
    return np.maximum(prices, 0.0) if arms.at_most else prices, share


def _evaluated(arms: ObservedArms, prices: Array, parts: int, score: Array | None = None) -> tuple[Array, Array, float]:
    """Return the values and the expected rests of parts of the kinds at some prices, and a bound of the rounding."""
    from restless_bandits.oracles.observed.finite_kernels import value_of_prices

    value, resting, rounding = np.zeros(parts), np.zeros((parts, len(prices))), 0.0
    for group in arms.groups:
        given = group.active, group.passive, group.active_rewards, group.passive_rewards, group.start, group.count
        found = np.empty((0, 0)) if score is None else np.empty((len(prices), group.n_kinds * group.n_states))
        before = value.copy()
        largest = value_of_prices(tuple(np.ascontiguousarray(one) for one in given), prices, value, resting, found)
        if score is not None:
            begin = int(arms.layout.offset[group.first])
            score[:, begin : begin + found.shape[1]] = found
        each = len(prices) * (3 * group.n_states + 8) + 2 * group.n_kinds
        rounding += each * UNIT * (float(group.count.sum()) * largest + float(np.abs(value - before).sum()))
    return value, resting, rounding


def _by_cutting_planes(arms: ObservedArms, horizon: int) -> Array:
    """Return prices that minimise L up to a small gap."""
    n_arms, spare = arms.n_arms, 1 - arms.plays / arms.n_arms
    parts = min(CUT_PARTS, len(arms.layout.counts))
    lowest = 0.0 if arms.at_most else -np.inf
    rewards = flat_rewards(arms)
    unit = max(1e-300, max(float(np.ptp(np.concatenate(rewards))), float(np.abs(rewards[0] - rewards[1]).max())))
    centre = np.full(horizon, max(relax_observed(arms).subsidy, lowest))

    def evaluated(prices: Array) -> tuple[float, Array, Array]:
        value, resting, _ = _evaluated(arms, prices, parts)
        # The plane of each part: its height at the origin, and its slopes.
        slopes = resting / n_arms
        return float(value.sum()) / n_arms - spare * float(prices.sum()), value / n_arms - slopes @ prices, slopes

    best, heights, slopes = evaluated(centre)
    cuts, radius = [(heights, slopes)], unit
    cost = np.concatenate([np.full(horizon, -spare), np.ones(parts)])
    for _ in range(MOST_CUTS):
        rows = np.concatenate([np.concatenate([slope, -np.eye(parts)], axis=1) for _, slope in cuts])
        right = -np.concatenate([height for height, _ in cuts])
        box = [(max(lowest, middle - radius), middle + radius) for middle in centre.tolist()]
        found = scipy.optimize.linprog(cost, rows, right, bounds=box + [(None, None)] * parts, method="highs")
        if found.x is None or found.fun is None:
            break
        prices, gap = found.x[:horizon], best - float(found.fun)
        inside = bool((np.abs(prices - centre) < 0.999 * radius).all())
        if gap <= CUT_TOLERANCE * max(abs(best), unit):
            if inside or radius > 1e3 * unit:
                break
            radius *= 4
            continue
        value, heights, slopes = evaluated(prices)
        cuts = [*cuts[-KEPT_CUTS:], (heights, slopes)]
        if value < best - 0.1 * gap:
            centre, best = prices, value
            radius *= 1 if inside else 2
        else:
            radius *= 0.7
    return centre


def check_horizon(horizon: Any) -> int:
    """Return a number of slots."""
    return check_int("horizon", horizon, 1, LONGEST)


@lru_cache(maxsize=4)
def horizon_relaxation(problem: Problem, horizon: int) -> HorizonRelaxation:
    """Return the relaxation of a problem over some slots; the last results are cached."""
    return relax_horizon(ObservedArms.of(problem), horizon)


@lru_cache(maxsize=4)
def fluid_priority(problem: Problem, horizon: int) -> HorizonPolicy:
    """Return the fluid-priority policy of a number of slots."""
    return horizon_policy(ObservedArms.of(problem), horizon_relaxation(problem, horizon))


def horizon_policy(arms: ObservedArms, found: HorizonRelaxation) -> HorizonPolicy:
    """Return the policy of a relaxation."""
    scale = float(np.abs(found.score).max())
    score = np.where(np.abs(found.score) <= NO_ADVANTAGE * scale, 0.0, found.score)
    # As for the Lagrangian index: pulls to spare cost nothing.
    floor = -found.prices if arms.at_most else np.full(len(found.prices), -np.inf)
    return HorizonPolicy(arms.layout, score, found.share, floor, arms.plays)


def next_priority(problem: Problem, numbers: IntArray, horizon: int) -> PriorityPolicy:
    """Return the priority of the present slot, the first of ``horizon``; ``numbers`` counts the arms in each place."""
    arms = ObservedArms.of(problem)
    share = np.split(numbers / np.repeat(arms.layout.counts, arms.layout.n_states), arms.layout.offset[1:])
    groups = tuple(replace(group, start=np.stack(share[group.kinds])) for group in arms.groups)
    present = replace(arms, groups=groups)
    return horizon_policy(present, relax_horizon(present, check_horizon(horizon))).at(1)


def fixed_total(arms: ObservedArms, horizon: int) -> float:
    """Return a proved lower bound of the optimum: the total reward of the best fixed arms."""
    pulled: list[Array] = []
    resting: list[Array] = []
    scale = 0.0
    for group in arms.groups:
        for totals, chain, reward in (
            (pulled, group.active, group.active_rewards),
            (resting, group.passive, group.passive_rewards),
        ):
            value = np.zeros_like(reward)
            for _ in range(horizon):
                value = reward + np.einsum("ksz,kz->ks", chain, value)
            totals.append((group.start * value).sum(axis=1))
            scale = max(scale, horizon * (3 * group.n_states + 8) * float(np.abs(value).max()))
    always, never = np.concatenate(pulled), np.concatenate(resting)
    counts, gained = arms.layout.counts, always - never
    order = np.argsort(-gained, kind="stable")
    taken = np.clip(arms.plays - (np.cumsum(counts[order]) - counts[order]), 0, counts[order])
    if arms.at_most:
        taken = np.where(gained[order] > 0, taken, 0)
    total = float((counts * never).sum() + (taken * gained[order]).sum())
    return float(np.nextafter(total - 4 * (len(counts) + 2) * UNIT * arms.n_arms * scale, -np.inf))


def solve_horizon(problem: Problem, horizon: Any) -> Solution:
    """Return the fluid-priority policy with a bracket; all numbers are the expected reward a slot over the horizon."""
    started = time.perf_counter()
    slots = check_horizon(horizon)
    found, policy = horizon_relaxation(problem, slots), fluid_priority(problem, slots)
    earned = horizon_rewards(ObservedWorld(problem), policy, slots) / slots
    lower, upper = fixed_total(ObservedArms.of(problem), slots) / slots, found.bound / slots
    how = f"priorities of the fluid relaxation over {slots:,} slots; simulated in {len(earned)} runs"
    details = {"arms": problem.n_arms, "plays": problem.plays, "horizon": slots, "bound": "relaxation"}
    solution = Solution(
        problem,
        "fluid-priority",
        policy,
        float(earned.mean()),
        lower,
        max(upper, lower),
        False,
        how,
        0.0,
        details=details | {"prices": found.prices.tolist()},
        gain_stderr=float(earned.std(ddof=1)) / math.sqrt(len(earned)),
    )
    return replace(solution, seconds=time.perf_counter() - started)


def _only_observed(problem: Problem) -> None:
    if problem.observed != "all":
        raise ProblemError(
            "the oracle fluid-priority is for arms that are all observed; give a problem with observed = 'all', or an "
            "oracle such as whittle"
        )


def _solve(problem: Problem, *, horizon: int | None = None, discount: float | None = None) -> Solution:
    """Return ``solve_horizon`` of a problem of observed arms."""
    _only_observed(problem)
    if discount is not None:
        raise ProblemError("fluid-priority plans for the total reward of its slots; leave out discount")
    return solve_horizon(problem, _required(horizon))


def _required(horizon: int | None) -> int:
    if horizon is None:
        raise ProblemError("fluid-priority plans for a number of slots; give horizon, or an oracle such as lp-index")
    return check_horizon(horizon)


def _plan(problem: Problem, slots: int, lasting: int) -> HorizonPolicy:
    """Return the policy of the slots that follow."""
    _only_observed(problem)
    return fluid_priority(problem, check_horizon(lasting))


def _without_horizon(problem: Problem) -> HorizonPolicy:
    _only_observed(problem)
    return fluid_priority(problem, _required(None))


ORACLE = Oracle("fluid-priority", _solve, _without_horizon, _plan, accepts=_only_observed)
