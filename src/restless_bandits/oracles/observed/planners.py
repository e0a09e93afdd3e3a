"""Planners of observed problems: a policy of the present states, and a bracket of the best long-run reward.

| name | rule |
|---|---|
| ``whittle`` | highest Whittle index; the last turn to rest where an arm is not indexable |
| ``lp-index`` | highest advantage of pulling at the best subsidy of the relaxation (Hawkins 2003; Brown, Smith 2020) |
| ``id`` | wishes drawn from the relaxed policy, settled in a fixed order (Hong, Xie, Chen, Wang 2024) |
| ``lp-update`` | the relaxation of the next slots, solved anew in each slot (Gast, Gaujal, Yan 2024) |
| ``myopic`` | highest difference of rewards between pulling and resting now |
| ``best-arm`` | the best fixed arms, pulled for ever |
| ``exact`` | the optimum over joint states, or over the numbers of arms of one kind in each state |
| ``auto`` | ``exact`` for small problems, else the best of the others by the fluid test and by simulation |

The upper end is the bound of the relaxation, with rounding, or the proof of ``exact``. The lower end is proved too, by
the best fixed arms. The gain of an index policy is simulated by ``rb.solve`` and called that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report
from restless_bandits._internal.validation import Array, is_number, positive
from restless_bandits.model.problem import Problem
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.exact import (
    count_states,
    count_work,
    joint_work,
    solve_counts,
    solve_joint,
)
from restless_bandits.oracles.observed.fixed import fixed_gains
from restless_bandits.oracles.observed.fluid import fluid_gain
from restless_bandits.oracles.observed.relaxation import ObservedRelaxation, relax_observed
from restless_bandits.oracles.observed.rollout import short_gain
from restless_bandits.oracles.solution import CERTIFIED_WIDTH, Oracle, Solution
from restless_bandits.policies.lookahead import LookaheadPolicy
from restless_bandits.policies.observed import (
    CountTablePolicy,
    JointStatePolicy,
    ObservedPolicy,
    PriorityPolicy,
    RandomizedPolicy,
)

TOLERANCE = 1e-9
"""The width of the bracket of ``exact``, in widths of the range of rewards."""
JOINT_STATES = 20_000
"""Joint states, or divisions of one kind among the states, up to which ``auto`` takes ``exact``."""
JOINT_WORK, COUNT_WORK = 2e9, 1e9
"""Multiplications of one sweep up to which ``auto`` takes ``exact``, over joint states and over counts."""
LARGEST_COUNT_WORK = 1e11
"""Multiplications of one sweep over counts that ``exact`` takes in at all."""
EXACT_WORK, FEWEST_SWEEPS, MOST_SWEEPS = 2e10, 30, 100_000
"""Multiplications of all sweeps of ``exact`` in ``auto``, and the sweeps that are made whatever they cost."""
LARGEST_JOINT = 5_000_000
"""Joint states that ``exact`` takes in at all."""
FEW_ARMS = 10
"""Arms up to which ``auto`` compares the Lagrangian with Whittle's index, even if no two of them are alike."""
FLUID_PLACES = 400
"""Pairs of a kind and a state up to which the fluid test is made."""
FLUID_LOSS = 1e-3
"""A loss in the fluid test, relative to the bound, from which on ``auto`` tries ``lp-update`` and ``id``."""
SMALLEST_SCALE = 1e-2
"""The smallest bound a slot and arm, in widths of the range of rewards, to which losses are related."""


def observed_relaxation(problem: Problem, discount: float | None = None) -> ObservedRelaxation:
    """Return the relaxation of a problem; the last results are cached."""
    return _relaxation(problem, 1.0 if discount is None else discount)


@lru_cache(maxsize=4)
def _relaxation(problem: Problem, discount: float) -> ObservedRelaxation:
    return relax_observed(ObservedArms.of(problem), discount=discount)


def _priority(problem: Problem, score: Array, floor: float = 0.0, tie_break: Array | None = None) -> PriorityPolicy:
    """Return a priority; if fewer pulls are allowed, places whose score is at most the floor are never pulled."""
    layout = ObservedArms.of(problem).layout
    return PriorityPolicy(layout, score, problem.plays, floor if problem.at_most else -math.inf, tie_break)


def whittle_priority(problem: Problem, discount: float | None = None) -> PriorityPolicy:
    found = observed_relaxation(problem, discount)
    return _priority(problem, found.whittle_index(ObservedArms.of(problem)))


def lagrangian_priority(problem: Problem, discount: float | None = None) -> PriorityPolicy:
    """Return the priority of the Lagrangian index; equal indices go to the higher Whittle index.

    The index is an advantage after the subsidy. Where pulls are to spare they cost nothing, so arms are pulled as long
    as the advantage without the subsidy is positive.
    """
    found = observed_relaxation(problem, discount)
    tie_break = found.tie_break(ObservedArms.of(problem))
    return _priority(problem, found.lagrangian_index, -found.subsidy if problem.at_most else 0.0, tie_break)


def myopic_priority(problem: Problem, discount: float | None = None) -> PriorityPolicy:
    score = np.concatenate([(g.active_rewards - g.passive_rewards).reshape(-1) for g in problem.groups])
    return _priority(problem, score)


def best_fixed(problem: Problem, discount: float | None = None) -> PriorityPolicy:
    arms = ObservedArms.of(problem)
    pulled, resting = fixed_gains(arms, 1.0 if discount is None else discount)
    return _priority(problem, np.repeat(pulled - resting, arms.layout.n_states))


def relaxed_wishes(problem: Problem, discount: float | None = None) -> RandomizedPolicy:
    arms = ObservedArms.of(problem)
    wish = observed_relaxation(problem, discount).wishes(arms)
    return RandomizedPolicy(arms.layout, wish, problem.plays, problem.at_most)


def lookahead(problem: Problem, discount: float | None = None) -> LookaheadPolicy:
    if discount is not None:
        raise ProblemError("lp-update plans for the average reward; leave out discount")
    arms, found = ObservedArms.of(problem), observed_relaxation(problem)
    if arms.layout.size > FLUID_PLACES:
        raise ProblemError(
            f"lp-update solves a linear program over {arms.layout.size:,} pairs of a kind and a state in every slot; "
            f"more than {FLUID_PLACES} take too long, so give lp-index or id"
        )
    return LookaheadPolicy(
        arms.layout,
        active=arms.flat(group.active for group in arms.groups),
        passive=arms.flat(group.passive for group in arms.groups),
        active_rewards=arms.flat(group.active_rewards for group in arms.groups),
        passive_rewards=arms.flat(group.passive_rewards for group in arms.groups),
        bias=arms.flat(dual.bias for dual in found.duals),
        plays=problem.plays,
        at_most=problem.at_most,
    )


POLICIES: Mapping[str, Callable[..., ObservedPolicy]] = {
    "whittle": whittle_priority,
    "lp-index": lagrangian_priority,
    "relaxation": lagrangian_priority,
    "id": relaxed_wishes,
    "lp-update": lookahead,
    "myopic": myopic_priority,
    "best-arm": best_fixed,
}
RULES = {
    "whittle": "highest Whittle index",
    "lp-index": "highest Lagrangian index",
    "relaxation": "highest Lagrangian index",
    "id": "wishes of the relaxed policy in a fixed order",
    "lp-update": "relaxation of the next slots in each slot",
    "myopic": "highest difference of the rewards of pulling and resting",
    "best-arm": "the best fixed arms",
}


@lru_cache(maxsize=4)
def _policy(problem: Problem, name: str, discount: float | None) -> ObservedPolicy:
    """Return a policy by the name of its planner; a policy that was simulated for a comparison is returned again."""
    return POLICIES[name](problem, discount)


def observed_policy(problem: Problem, name: str) -> ObservedPolicy:
    """Return the policy of a planner, without a bracket."""
    refuse_unsupported(problem, name)
    if name in POLICIES:
        return _policy(problem, name, None)
    found = solve_observed(problem, name).policy
    assert isinstance(found, ObservedPolicy)
    return found


def solve_observed(
    problem: Problem,
    name: str,
    *,
    discount: float | None = None,
    tolerance: float = TOLERANCE,
    seconds: float = math.inf,
    report: Report | None = None,
) -> Solution:
    """Return a policy with a bracket; with a discount β all numbers are 1 − β times the total reward of the start."""
    started = time.perf_counter()
    refuse_unsupported(problem, name)
    if discount is not None and not (is_number(discount) and 0.0 < discount < 1.0):
        raise ProblemError(f"discount is {discount!r}; give a number between 0 and 1, or leave it out for the average")
    positive("tolerance", tolerance)
    if name == "exact":
        return _exact(problem, discount, tolerance, seconds, started)
    if name == "auto":
        chosen, why = choose_observed(problem, discount)
        if report is not None:
            report(why)
        if chosen == "exact":
            found = affordable_optimum(problem, discount, tolerance, seconds)
        else:
            found = solve_observed(problem, chosen, discount=discount)
        return _named(found, "auto", why, time.perf_counter() - started)
    return bracketed_observed(problem, name, _policy(problem, name, discount), RULES[name], started, discount)


def bracketed_observed(
    problem: Problem, name: str, policy: ObservedPolicy, how: str, started: float, discount: float | None = None
) -> Solution:
    """Return a policy with what can be proved around it: the best fixed arms, and the bound of the relaxation."""
    relaxed = observed_relaxation(problem, discount)
    lower = fixed_lower(problem, discount)
    details: dict[str, Any] = {"arms": problem.n_arms, "plays": problem.plays, "bound": "relaxation"}
    details["subsidy"] = relaxed.subsidy
    if relaxed.interval[0] < relaxed.interval[1]:
        details["subsidies"] = [None if math.isinf(end) else end for end in relaxed.interval]
    bound = max(relaxed.bound, lower)
    gain = lower if name == "best-arm" else None
    certified = gain is not None and bound - lower <= CERTIFIED_WIDTH * _width(problem)
    taken = time.perf_counter() - started
    how += _remarks(problem, relaxed)
    return Solution(problem, name, policy, gain, lower, bound, certified, how, taken, details=details)


def _named(found: Solution, oracle: str, why: str, seconds: float) -> Solution:
    return Solution(**{**vars(found), "oracle": oracle, "why": why, "seconds": seconds})


def _width(problem: Problem) -> float:
    return problem.reward_range[1] - problem.reward_range[0]


def _remarks(problem: Problem, found: ObservedRelaxation) -> str:
    """What a reader should know of the arms: those without an index, and those with several recurrent classes."""
    remarks = []
    violating = int((~found.indexable).sum())
    multichain = sum(int(sweep.discounted.sum()) for sweep in found.sweeps)
    if violating:
        remarks.append(f"{violating} of {len(problem.kind_counts)} kinds of arms not indexable")
    if multichain:
        remarks.append(f"{multichain} kinds with several recurrent classes, planned with a discount close to 1")
    low, high = found.interval
    if low < high:
        remarks.append(f"all subsidies from {low:.6g} to {high:.6g} give the bound, {found.subsidy:.6g} was taken")
    return "".join(f"; {remark}" for remark in remarks)


def fixed_lower(problem: Problem, discount: float | None = None) -> float:
    """Return a proved lower bound of the optimum: what the best fixed arms earn."""
    arms = ObservedArms.of(problem)
    pulled, resting = fixed_gains(arms, 1.0 if discount is None else discount)
    gained, counts = pulled - resting, arms.layout.counts
    order = np.argsort(-gained, kind="stable")
    taken = np.clip(problem.plays - (np.cumsum(counts[order]) - counts[order]), 0, counts[order])
    if problem.at_most:
        taken = np.where(gained[order] > 0, taken, 0)
    parts = np.concatenate([counts * resting, taken * gained[order]])
    rounding = (24 + math.log2(len(parts))) * 2.0**-53 * float(np.abs(parts).sum() + np.abs(counts * resting).sum())
    return float(np.nextafter(parts.sum() - rounding, -np.inf))


def exact_states(problem: Problem) -> tuple[float, bool]:
    """Return the number of states that ``exact`` needs, and whether these are numbers of arms of one kind."""
    arms = ObservedArms.of(problem)
    if len(arms.layout.counts) == 1 and arms.n_arms > 1:
        return float(count_states(arms.n_arms, int(arms.layout.n_states[0]))), True
    # A product of a million factors overflows.
    return math.exp(min(700.0, float(np.log(arms.layout.sizes).sum()))), False


def _sweep_work(problem: Problem) -> float:
    """Return about the multiplications of one sweep of ``exact``."""
    arms = ObservedArms.of(problem)
    return count_work(arms) if exact_states(problem)[1] else joint_work(arms)


def takes_exact(problem: Problem) -> bool:
    """Return whether ``auto`` takes ``exact``."""
    states, by_counts = exact_states(problem)
    return states <= JOINT_STATES and _sweep_work(problem) <= (COUNT_WORK if by_counts else JOINT_WORK)


def affordable_optimum(
    problem: Problem, discount: float | None = None, tolerance: float = TOLERANCE, seconds: float = math.inf
) -> Solution:
    """Return what ``exact`` finds in a number of sweeps that depends on the problem alone."""
    most = FEWEST_SWEEPS
    if exact_states(problem)[0] <= LARGEST_JOINT:
        most = min(MOST_SWEEPS, max(FEWEST_SWEEPS, int(EXACT_WORK / _sweep_work(problem))))
    return _exact(problem, discount, tolerance, seconds, time.perf_counter(), most)


def _exact(
    problem: Problem,
    discount: float | None,
    tolerance: float,
    seconds: float,
    started: float,
    most: int = MOST_SWEEPS,
) -> Solution:
    arms, beta = ObservedArms.of(problem), 1.0 if discount is None else discount
    states, by_counts = exact_states(problem)
    if states > LARGEST_JOINT:
        what = "divisions of its arms among their states" if by_counts else "joint states"
        raise ProblemError(
            f"exact would need {states:.3g} {what}, more than {LARGEST_JOINT:,}; give auto, lp-index or whittle"
        )
    if by_counts and count_work(arms) > LARGEST_COUNT_WORK:
        raise ProblemError(
            f"a sweep of exact over the divisions of the arms would take {count_work(arms):.1g} multiplications, more "
            f"than {LARGEST_COUNT_WORK:.0g}; give auto, lp-index or whittle"
        )
    wanted = tolerance * _width(problem)
    policy: ObservedPolicy
    found = observed_relaxation(problem, discount)
    # Relative values at a discount close to one are too large for a start.
    usual = not any(sweep.discounted.any() for sweep in found.sweeps)
    bias = arms.flat(dual.bias for dual in found.duals) if usual else None
    options: dict[str, Any] = {"tolerance": wanted, "discount": beta, "most": most, "seconds": seconds, "bias": bias}
    if by_counts:
        counted = solve_counts(arms, **options)
        lower, upper, sweeps = counted.lower, counted.upper, counted.sweeps
        policy = CountTablePolicy(arms.layout, counted.counts, counted.pulls, problem.plays)
        how = f"value iteration over {len(counted.counts):,} divisions of the arms among the states, {sweeps:,} sweeps"
    else:
        joint = solve_joint(arms, **options)
        lower, upper, sweeps = joint.lower, joint.upper, joint.sweeps
        actions = np.zeros((len(joint.choices), arms.n_arms), dtype=np.int64)
        for row, choice in enumerate(joint.choices):
            actions[row, list(choice)] = 1
        policy = JointStatePolicy(arms.layout, joint.choice, actions, problem.plays)
        how = f"value iteration over {joint.value.size:,} joint states, {sweeps:,} sweeps"
    bound = found.bound
    lower, upper = max(lower, fixed_lower(problem, discount)), min(upper, bound)
    certified = upper - lower <= max(wanted, CERTIFIED_WIDTH * _width(problem))
    if not certified:
        how += (
            "; the bracket did not close in the sweeps or seconds allowed, or the optimum depends on the initial states"
        )
    details = {"states": round(states), "sweeps": sweeps, "bound": "exact" if upper < bound else "relaxation"}
    gain = lower + 0.5 * (upper - lower) if certified else None
    taken = time.perf_counter() - started
    return Solution(problem, "exact", policy, gain, lower, upper, certified, how, taken, details=details)


def choose_observed(problem: Problem, discount: float | None = None) -> tuple[str, str]:
    """Return the choice of ``auto`` and the reason."""
    arms = ObservedArms.of(problem)
    states, by_counts = exact_states(problem)
    if takes_exact(problem):
        what = "divisions of the arms among the states" if by_counts else "joint states"
        return "exact", f"exact, as there are {round(states):,} {what}"
    size = arms.layout.size
    crowded = size <= FLUID_PLACES and arms.n_arms >= 4 * size and discount is None
    if crowded:
        return _by_fluid_test(problem, arms)
    # Arms of one kind move together, so that an order of priority may lose much, long before the limit of many arms.
    alike = size <= FLUID_PLACES and arms.n_arms > len(arms.layout.counts)
    if (arms.n_arms <= FEW_ARMS or alike) and discount is None:
        gains = {name: short_gain(problem, _policy(problem, name, None)) for name in ("lp-index", "whittle")}
        best = max(gains, key=lambda name: gains[name])
        return best, f"{best}, the better of lp-index and whittle in a simulation"
    shown = f"{states:.3g}" if states < 1e300 else "more than 1e300"
    return "lp-index", f"lp-index, as {shown} joint states are too many for exact"


def _by_fluid_test(problem: Problem, arms: ObservedArms) -> tuple[str, str]:
    """Choose the priority with the smaller loss in the limit of many arms, or a policy without such a limit."""
    bound = observed_relaxation(problem).bound / arms.n_arms
    scale = max(abs(bound), SMALLEST_SCALE * _width(problem))
    losses = {}
    for name in ("lp-index", "whittle"):
        policy = _policy(problem, name, None)
        assert isinstance(policy, PriorityPolicy)
        losses[name] = (bound - fluid_gain(arms, policy)) / scale
    best = min(losses, key=lambda name: losses[name])
    if losses[best] <= FLUID_LOSS:
        return best, f"{best}, which loses {100 * max(losses[best], 0.0):.2g} % of the bound with very many arms"
    gains = {name: short_gain(problem, _policy(problem, name, None)) for name in (best, "lp-update", "id")}
    chosen = max(gains, key=lambda name: gains[name])
    why = (
        f"{chosen}, the best of {best}, lp-update and id in a simulation, as any priority of states loses "
        f"{100 * losses[best]:.2g} % of the bound with very many arms"
    )
    return chosen, why


def _oracle(name: str) -> Oracle:
    """Return a planner of observed problems alone."""

    def only_observed(problem: Problem) -> None:
        if problem.observed != "all":
            raise ProblemError(
                f"the oracle {name} is for arms that are all observed; give a problem with observed = 'all', or an "
                "oracle such as whittle"
            )

    def solve(problem: Problem, **options: Any) -> Solution:
        only_observed(problem)
        return solve_observed(problem, name, **options)

    def policy(problem: Problem) -> ObservedPolicy:
        only_observed(problem)
        return observed_policy(problem, name)

    return Oracle(name, solve, policy, accepts=only_observed)


LP_INDEX, ID, LP_UPDATE = (_oracle(name) for name in ("lp-index", "id", "lp-update"))
