"""Solutions of problems by a suitable oracle, with a simulated gain if no computation is possible.

rb.solve(problem)                           # what ``restless solve`` does
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.progress import Report, from_part, warning
from restless_bandits.model.problem import AnyProblem, Problem, as_problem, warn_of_rising_rewards
from restless_bandits.oracles import Oracle, Solution
from restless_bandits.oracles.auto import MOST_WORK, choose
from restless_bandits.oracles.exact import cost
from restless_bandits.registry import FINITE_ORACLES
from restless_bandits.simulation.engine import UnplayablePolicyError
from restless_bandits.simulation.policy_values import evaluate
from restless_bandits.simulation.pools import cores


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
