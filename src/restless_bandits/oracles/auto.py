"""The exact oracle if its estimated cost is at most a minute and a gigabyte; else Whittle's index.

Learners that plan with ``auto`` follow the rules of ``planning``: learners need many plans and no proof.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from restless_bandits._internal.progress import Report, duration
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.exact import MEMORY, SECONDS_PER_OUTCOME, Cost, cost, exact
from restless_bandits.oracles.observed.planners import choose_observed, solve_observed
from restless_bandits.oracles.planning import auto_policy
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.oracles.whittle import whittle

MOST_SECONDS = 60.0
"""Seconds of a single core, so that the choice does not depend on the number of cores."""
MOST_WORK = MOST_SECONDS / SECONDS_PER_OUTCOME
"""The limit of work of ``exact`` after too low an estimate: ``exact`` then ends with the bracket reached so far."""


class OracleChoice(NamedTuple):
    """The oracle that ``auto`` selects, and the reason."""

    oracle: str
    why: str


def choose(problem: Problem) -> OracleChoice:
    """Return the choice of ``auto`` without solving."""
    refuse_unsupported(problem, "auto")
    if problem.observed == "all":
        return OracleChoice(*choose_observed(problem))
    found = cost(problem)
    if found.certifies and found.seconds <= MOST_SECONDS:
        seconds = "less than a second" if found.seconds < 1 else f"about {duration(found.seconds)} of one core"
        megabytes = min(found.memory, MEMORY) / 1e6
        memory = "a megabyte" if megabytes < 1 else f"{megabytes:.0f} MB"
        return OracleChoice("exact", f"exact, as that takes {seconds} and up to {memory}")
    return OracleChoice("whittle", f"whittle, as exact would take {_too_much(problem, found)}")


def _too_much(problem: Problem, found: Cost) -> str:
    if found.certifies:
        return f"about {duration(found.seconds)} of one core"
    gigabytes = found.memory / 1e9
    if gigabytes < 1e6:
        return f"about {gigabytes:.2g} GB" if gigabytes < 10 else f"about {gigabytes:,.0f} GB"
    return f"more joint beliefs of {problem.n_arms} arms than any memory holds"


def auto(problem: AnyProblem, *, report: Report | None = None, discount: float | None = None) -> Solution:
    """Solve exactly within a minute and a gigabyte, else by Whittle's index; ``why`` gives the reason.

    Where all states are observed, ``auto`` chooses among the planners of such problems, and takes a discount.
    """
    problem = as_problem(problem)
    if problem.observed == "all":
        problem.require_steady("an oracle")
        return solve_observed(problem, "auto", report=report, discount=discount)
    choice = choose(problem)
    if report is not None:
        report(choice.why)
    found = exact(problem, work=MOST_WORK, report=report) if choice.oracle == "exact" else whittle(problem)
    return replace(found, oracle="auto", why=choice.why)


ORACLE = Oracle("auto", auto, auto_policy, auto_policy)
