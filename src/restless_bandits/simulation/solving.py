"""Solutions of problems by a suitable oracle, and values of policies: computed if possible, else simulated.

    rb.solve(problem)                           # what ``restless solve`` does
    rb.evaluate(problem, policy, simulate=True)

A simulated gain is the mean over independent runs: its standard error needs no assumption on the mixing of a run. The
first half of each run is left out. The average is taken of the mean reward given the true belief, with less noise than
the rewards themselves and the same mean. If the two halves of the rest differ by more than randomness explains, the
start is not forgotten, and longer runs are played.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report, from_part, warning
from restless_bandits._internal.random_streams import world_words
from restless_bandits._internal.validation import Array, check_int
from restless_bandits.model.checks import check_length
from restless_bandits.model.problem import AnyProblem, Problem, as_problem, warn_of_rising_rewards
from restless_bandits.oracles import Evaluation, Oracle, Solution
from restless_bandits.oracles.auto import MOST_WORK, choose
from restless_bandits.oracles.evaluation import check_policy
from restless_bandits.oracles.exact import cost
from restless_bandits.oracles.explicit_chains import MOST_BELIEFS
from restless_bandits.oracles.observed.rollout import Budget, ObservedWorld, mean_rewards
from restless_bandits.policies.lookahead import LookaheadPolicy
from restless_bandits.policies.observed import ObservedPolicy
from restless_bandits.policies.plans import Forever, Plan
from restless_bandits.policies.policies import Policy
from restless_bandits.registry import FINITE_ORACLES
from restless_bandits.simulation.engine import Run, UnplayablePolicyError, World
from restless_bandits.simulation.pools import cores
from restless_bandits.simulation.results import EXPECTED

RUNS = 32
SLOTS, FEWEST_SLOTS = 100_000, 10_000
"""Slots of a run: with several plays as few as the total work of some seconds allows, but never fewer than the
second.
"""
MOST_ARM_EVALUATIONS = 1_500_000_000
"""Arm evaluations in all runs with several plays a slot."""
LONGER, LONGEST = 4, 16
"""The factor by which drifting runs are extended, and the largest total factor."""
DRIFT = 0.003
"""The probability that runs which have forgotten their start are classified as drifting, and extended in vain."""
CONFIDENCE = 0.95
OBSERVED_SECONDS = 1.0
"""Approximate seconds of one core for a simulated gain on observed arms."""


def evaluate(
    problem: AnyProblem,
    policy: Policy,
    *,
    simulate: bool = False,
    most: int = MOST_BELIEFS,
    slots: int | None = None,
    runs: int = RUNS,
    seed: int = 0,
) -> Evaluation:
    """Return the long-run gain of a policy.

    Parameters
    ----------
    problem, policy
        Any policy with a computable gain; for a simulation a policy that the engine supports.
    simulate
        Whether to simulate; by default the gain of a small problem is computed, with a bound of its error.
    most
        The largest number of joint beliefs for a computation; a larger number is a ``ProblemError``.
    slots
        Slots of each simulated run; the first half is left out. The default is 100 000, more if the start is not
        forgotten by then, or fewer for many arms with several plays.
    runs, seed
        The number of independent runs, at least two, and the seed of their draws.

    """
    problem = as_problem(problem)
    if not simulate:
        return oracles.evaluate(problem, policy, most=most)
    check_policy(problem, policy)
    problem.require_steady("the gain of a policy")
    runs, seed = check_int("runs", runs, 2), check_int("seed", seed, 0)
    if problem.observed == "all":
        return _observed_evaluation(problem, policy, slots, runs, seed)
    world = World(problem)
    if slots is not None:
        check_length(check_int("slots", slots, 4))
        return _summary(_halves(world, policy, slots, runs, seed), slots)
    affordable = SLOTS if problem.plays == 1 else MOST_ARM_EVALUATIONS // (runs * problem.n_arms * problem.plays)
    slots = first = min(SLOTS, max(FEWEST_SLOTS, affordable))
    while _drifts(halves := _halves(world, policy, slots, runs, seed)) and slots < LONGEST * first:
        slots *= LONGER
    return _summary(halves, slots)


def _observed_evaluation(problem: Problem, policy: Policy, slots: int | None, runs: int, seed: int) -> Evaluation:
    if not isinstance(policy, ObservedPolicy):
        raise ProblemError(f"all states are observed, and a {type(policy).__name__} does not take them")
    budget = Budget.of(ObservedWorld(problem), policy, OBSERVED_SECONDS)
    if slots is not None:
        budget = Budget(runs, check_int("slots", slots, 4))
        check_length(budget.slots)
    found = _summary(mean_rewards(problem, policy, budget, seed), budget.slots)
    if isinstance(policy, LookaheadPolicy):
        found = replace(found, how=f"{found.how}; runs start from the end of the policy's expected path")
    return found


def _halves(world: World, policy: Policy, slots: int, runs: int, seed: int) -> Array:
    """Mean expected rewards a slot in the third and in the fourth quarter of each run: (run, quarter)."""
    marks = np.array([slots // 2, slots // 2 + (slots - slots // 2) // 2, slots])
    found = np.empty((runs, 2))
    for number in range(runs):
        run = Run(world, slots, marks, world_words(seed, world.problem.content, number))
        run.play(Plan(policy, Forever()))
        found[number] = np.diff(run.totals.at[:, EXPECTED]) / np.diff(marks)
    return found


def _drifts(halves: Array) -> bool:
    change = halves[:, 1] - halves[:, 0]
    return abs(float(change.mean())) > _reach(change, 1 - DRIFT)


def _stderr(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _reach(values: Array, confidence: float) -> float:
    """Half the width of the confidence interval of a mean."""
    from scipy import stats

    return float(stats.t.ppf(0.5 + confidence / 2, len(values) - 1)) * _stderr(values)


def _summary(halves: Array, slots: int) -> Evaluation:
    means = halves.mean(axis=1)
    gain, reach = float(means.mean()), _reach(means, CONFIDENCE)
    how = f"simulated in {len(means)} runs of {slots:,} slots, the first half of each left out"
    if _drifts(halves):
        how += "; the rest still drifts, so the error of the gain may exceed its standard error"
    return Evaluation(gain, math.inf, None, None, stderr=_stderr(means), interval=(gain - reach, gain + reach), how=how)


def solve(
    problem: AnyProblem, oracle: str | Oracle = "auto", *, report: Report | None = None, **options: Any
) -> Solution:
    """Solve a problem as ``restless solve`` does: by a suitable oracle, with a simulated gain if no computation is
    possible.

    Parameters
    ----------
    problem
        The problem, the name of a built-in problem, or the path of a TOML file.
    oracle
        The name of an oracle, or an oracle. ``auto`` is exact if the estimated cost is at most a minute and a gigabyte,
        else Whittle's index; ``why`` then names the choice and the reason. With options, ``tolerance`` and ``memory``,
        the oracle is exact. Where all states are observed, ``auto`` chooses among the planners of such problems.
    report
        A function for progress lines.
    options
        The options of the oracle: ``tolerance`` and ``memory``, or ``discount`` or ``horizon`` where all states are
        observed. With a discount β all numbers are 1 − β times the total discounted reward, and no gain is simulated.
        With a horizon the oracle is fluid-priority, and all numbers are the expected reward a slot up to the horizon.

    """
    started, problem = time.perf_counter(), as_problem(problem)
    warn_of_rising_rewards(problem)
    problem.require_steady("an oracle")
    if problem.observed == "all":
        return _solve_observed(problem, oracle, report, options, started)
    for option in ("discount", "horizon"):
        if option in options:
            raise ProblemError(
                f"a {option} is for problems with observed = 'all'; leave it out, or state the problem so if all "
                "states are seen before the choice"
            )
    chosen, why = _oracle(problem, oracle, options)
    if report is not None and why is not None:
        report(why)
    if chosen.name == "exact":
        options["report"] = report
        if why is not None:
            options["work"] = MOST_WORK
    return _with_gain(replace(chosen(problem, **options), why=why), report, started)


def _solve_observed(
    problem: Problem, oracle: str | Oracle, report: Report | None, options: dict[str, Any], started: float
) -> Solution:
    """Return the solution of a problem of observed arms, with a simulated gain for the average reward."""
    chosen = oracles.find_oracle(oracle)
    if "memory" in options:
        raise ProblemError("memory is for arms that are seen when pulled; leave it out")
    if "tolerance" in options:
        if chosen.name not in ("auto", "exact"):
            raise ProblemError(f"tolerance is for the oracle exact, not for {chosen.name}; leave it out")
        chosen = oracles.find_oracle("exact")
    if "horizon" in options:
        if chosen.name not in ("auto", *FINITE_ORACLES):
            raise ProblemError(f"horizon is for the oracle fluid-priority, not for {chosen.name}; leave it out")
        chosen = oracles.find_oracle("fluid-priority")
    found = chosen(problem, **options | ({"report": report} if chosen.name == "auto" else {}))
    return found if "discount" in options else _with_gain(found, report, started)


def _with_gain(found: Solution, report: Report | None, started: float) -> Solution:
    """Return a solution with a simulated gain, if its gain is not computed and the simulator knows its policy."""
    if found.gain is not None:
        return found
    if report is not None:
        report("simulating what the policy earns")
    try:
        earned = evaluate(found.problem, found.policy, simulate=True)
    except UnplayablePolicyError:
        return found
    how, seconds = f"{found.how}; {earned.how}", time.perf_counter() - started
    return replace(found, gain=earned.gain, gain_stderr=earned.stderr, how=how, seconds=seconds)


def forecast(problem: Problem, oracle: str | Oracle = "auto", options: Mapping[str, Any] | None = None) -> str | None:
    """Return a line with the expected duration of ``solve`` and its reason; None for a short duration."""
    if problem.observed == "all":
        return None
    chosen, why = _oracle(problem, oracle, options or {})
    if chosen.name == "exact":
        return warning(cost(problem).seconds / cores(), why or f"exact for {problem.n_arms} arms")

    def work(part: Problem) -> None:
        chosen.policy(part)
        oracles.relaxation_bound(part)

    return warning(seconds_from_part(problem, work), why or f"{chosen.name} for {problem.n_arms} arms")


def seconds_from_part(problem: Problem, work: Callable[[Problem], object]) -> float:
    """Return the approximate seconds of a computation linear in the arms, from the seconds for a few arms."""
    return from_part(problem.n_arms, lambda arms: work(problem.only(range(arms), plays=min(problem.plays, arms))))


def _oracle(problem: Problem, oracle: str | Oracle, options: Mapping[str, Any]) -> tuple[Oracle, str | None]:
    """The oracle for a problem, and the reason of an automatic choice."""
    found = oracles.find_oracle(oracle)
    if found.name != "auto":
        return found, None
    name, why = ("exact", None) if options else choose(problem)
    return oracles.find_oracle(name), why
