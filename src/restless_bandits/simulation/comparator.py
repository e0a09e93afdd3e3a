"""The reference gain of regret, with its accuracy.

``auto`` takes the best available comparator: the certified optimum of the package for the built-in problems, else the
exact solution for a small problem, else the bracket from the best evaluated policy (or the best fixed arms) to the
bound of the relaxation. Every comparator, and therefore every regret, names its kind.

``python -m restless_bandits.simulation.comparator`` solves the built-in problems again and rewrites the shipped gains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError, check_known, did_you_mean, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, is_number
from restless_bandits.model.problem import Problem
from restless_bandits.model.problem_files import builtin_problems
from restless_bandits.oracles.exact import BYTES_PER_BELIEF, joint_beliefs_needed
from restless_bandits.oracles.observed.planners import affordable_optimum, solve_observed, takes_exact
from restless_bandits.oracles.observed.rollout import simulated_gain
from restless_bandits.oracles.solution import Solution
from restless_bandits.policies.observed import ObservedPolicy
from restless_bandits.registry import COMPARATORS
from restless_bandits.simulation.policy_values import CONFIDENCE, evaluate

MOST_BELIEFS = 2_000_000
"""The largest number of joint beliefs that a simulation solves: some seconds."""
CERTIFYING_WORK = 60e9
"""The outcomes that certification of a built-in problem may take in: some minutes for the largest tables."""
MOST_CERTIFIED_BELIEFS = 1e9
"""The number of joint beliefs from which on certification of a built-in problem is not tried."""
POLICY_FIELDS = ("policy", "policy_gain", "lower_confidence", "proved_lower")
"""The fields of a comparator about the simulated policy beside a bracket."""
LARGEST_GAIN = 1e20
"""Far beyond the rewards of arms, see ``rewards``, and far below overflow."""

CERTIFIED = resources.files("restless_bandits").joinpath("model", "problems", "certified.json")


@dataclass(frozen=True)
class Comparator:
    """A long-run reward a slot, the reference of regret.

    ``gain`` lies between ``lower`` and ``upper``. The ends of a ``bracket`` are far apart; its ``gain`` is the upper
    end, for a regret that is never understated. Regret against either end is available. The lower end of a bracket is
    the lower confidence limit of a simulated index policy where no greater lower end is proved.

    A problem with changes has a comparator for each of its ``pieces``, with the first slot of the piece. Gain and ends
    are then means over the slots of the run, and the kind is the kind of the least accurate piece.
    """

    kind: str
    gain: float
    lower: float
    upper: float
    pieces: tuple[tuple[int, Comparator], ...] = ()
    stderr: float = 0.0
    """The standard error of a simulated gain, 0 for a computed gain."""
    policy: str = ""
    """The policy with the simulated gain ``policy_gain``, beside a bracket; empty without one."""
    policy_gain: float | None = None
    lower_confidence: float | None = None
    """The confidence level of a lower end from ``policy_gain``; None for a proved lower end."""
    proved_lower: float | None = None
    """The proved lower end below a simulated lower end; None where ``lower`` is proved."""

    @classmethod
    def over(cls, pieces: tuple[tuple[int, Comparator], ...], horizon: int) -> Comparator:
        """Return the comparator of the pieces of a problem; all pieces begin within the horizon."""
        kinds = {one.kind for _, one in pieces}
        kind = next((kind for kind in ("bracket", "exact") if kind in kinds), pieces[0][1].kind)
        bare, slots = cls(kind, 0.0, 0.0, 0.0, pieces), np.array([horizon])
        gain, lower, upper = (float(bare.earned(slots, end)[0]) / horizon for end in ("gain", "lower", "upper"))
        return cls(kind, gain, lower, upper, pieces)

    @property
    def optimal(self) -> bool:
        """Whether the comparator is the optimum up to rounding: the gaps then add up to the regret."""
        return self.kind in ("certified", "exact")

    @property
    def ends(self) -> tuple[str, ...]:
        """The ends of a bracket, for regret against both ends; empty for other kinds."""
        return ("lower", "upper") if self.kind == "bracket" else ()

    def against(self, end: str) -> float:
        """Return the gain, or an end."""
        known = {"gain": self.gain, "lower": self.lower, "upper": self.upper}
        check_known(end, known, "cannot measure regret against")
        return known[end]

    def earned(self, slots: IntArray, end: str = "gain") -> Array:
        """Return the cumulative reward of the comparator, or of an end of its bracket, at given slots."""
        if not self.pieces:
            return np.asarray(self.against(end) * slots)
        firsts = [first for first, _ in self.pieces]
        total = np.zeros(len(slots))
        for (first, one), last in zip(self.pieces, [*(slot - 1 for slot in firsts[1:]), math.inf], strict=True):
            total += one.against(end) * np.clip(slots - first + 1, 0, last - first + 1)
        return total

    def as_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("kind", "gain", "lower", "upper")}
        own |= {"stderr": self.stderr} if self.stderr else {}
        if self.policy:
            own |= {name: getattr(self, name) for name in POLICY_FIELDS}
        return (
            own | {"pieces": [{"first": first, **one.as_dict()} for first, one in self.pieces]} if self.pieces else own
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparator:
        """Return the comparator that ``as_dict`` wrote."""
        own = dict(data)
        pieces = []
        for piece in own.pop("pieces", ()):
            one = dict(piece)
            pieces.append((check_int("first", one.pop("first")), cls(**one)))
        return cls(**own, pieces=tuple(pieces))


@cache
def certified_gains() -> dict[str, dict[str, Any]]:
    """Return the certified gains of the package, by the content of the problem."""
    found: dict[str, dict[str, Any]] = json.loads(CERTIFIED.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=8)
def exact_if_small(problem: Problem) -> Solution | None:
    """Return the exact solution if cheap enough for a simulation and certified, else None.

    A function of the problem alone, never of the free memory: stored results depend on the solution. None for a problem
    with changes: its pieces have solutions, but their tables do not contain the belief of an arm not observed since a
    change.
    """
    if problem.changes or problem.observed == "all" or joint_beliefs_needed(problem) > MOST_BELIEFS:
        return None
    try:
        solution = oracles.exact(problem, memory=MOST_BELIEFS * BYTES_PER_BELIEF)
    except ProblemError:
        return None
    return solution if solution.certified and solution.gain is not None else None


def comparator_over(problem: Problem, wanted: str | float, horizon: int) -> Comparator:
    """Return the comparator of a run: for a problem with changes, of each piece within the horizon.

    The optimum of a piece is the optimum of a separate problem with the start of the full problem; for chains that
    forget their start, as most do, the start does not matter.
    """
    if not problem.changes or is_number(wanted):
        single = comparator_for(problem, wanted, exact_if_small(problem))
        return _with_policy(problem, single) if single.ends and wanted == "auto" else single
    reached = [piece for piece in problem.pieces if piece.first <= horizon]
    found = [(one.first, comparator_for(one.problem, wanted, exact_if_small(one.problem))) for one in reached]
    return Comparator.over(tuple(found), horizon)


def comparator_for(problem: Problem, wanted: str | float, solution: Solution | None) -> Comparator:
    """Return the requested comparator; ``solution`` is the result of ``exact_if_small``."""
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        if not abs(wanted) <= LARGEST_GAIN:
            most = f"a finite number of at most {LARGEST_GAIN:g}"
            raise ProblemError(f"comparator is {shortened(wanted)}; a gain must be {most}")
        return Comparator("given", float(wanted), float(wanted), float(wanted))
    word = wanted.replace("_", "-") if isinstance(wanted, str) else wanted
    if word not in COMPARATORS:
        hint = did_you_mean(str(wanted), COMPARATORS)
        words = hint if hint.startswith("choose") else f"a word: {hint}"
        raise ProblemError(f"there is no comparator {wanted!r}; give a number, or {words}")
    if problem.observed == "all" and word in ("auto", "exact"):
        return _observed_comparator(problem, word)
    if word not in ("auto", "exact"):
        found = oracles.oracle(word)(problem)
        gain = found.gain
        if gain is None and isinstance(found.policy, ObservedPolicy):
            gain, stderr = simulated_gain(problem, found.policy)
            return Comparator(word, gain, gain, gain, stderr=stderr)
        if gain is None:
            raise ProblemError(f"the problem is too large to evaluate {word} on it; compare with best-arm or auto")
        return Comparator(word, gain, gain, gain)
    shipped = certified_gains().get(problem.content)
    if shipped is not None:
        return Comparator("certified", shipped["gain"], shipped["lower"], shipped["upper"])
    if solution is None and word == "exact":
        solution = oracles.exact(problem)
        if not solution.certified or solution.gain is None:
            return Comparator("bracket", solution.upper, solution.lower, solution.upper)
    if solution is not None and solution.gain is not None:
        return Comparator("exact", solution.gain, solution.lower, solution.upper)
    bracket = _bracket(problem)
    return Comparator("bracket", bracket.upper, bracket.lower, bracket.upper)


def _observed_comparator(problem: Problem, word: str) -> Comparator:
    """Return the optimum of a small problem of observed arms, else the bracket up to the bound of the relaxation."""
    if word == "exact" or takes_exact(problem):
        found = affordable_optimum(problem)
        if found.certified and found.gain is not None:
            return Comparator("exact", found.gain, found.lower, found.upper)
    else:
        found = _bracket(problem)
    return Comparator("bracket", found.upper, found.lower, found.upper)


@lru_cache(maxsize=1)
def _bracket(problem: Problem) -> Solution:
    """Return the index policy of a problem with its bracket."""
    return solve_observed(problem, "lp-index") if problem.observed == "all" else oracles.whittle(problem)


@lru_cache(maxsize=8)
def _with_policy(problem: Problem, found: Comparator) -> Comparator:
    """Return a bracket with the simulated gain of the index policy, which may raise the lower end."""
    solution = _bracket(problem)
    try:
        earned = evaluate(problem, solution.policy, simulate=True)
    except ProblemError:
        return found  # The simulator does not play every problem: the bracket remains.
    assert earned.interval is not None
    assert earned.stderr is not None
    low = min(earned.interval[0], found.upper)
    named = replace(found, policy=solution.oracle, policy_gain=earned.gain, stderr=earned.stderr)
    if low <= found.lower:
        return named
    # One side of a two-sided interval.
    return replace(named, lower=low, proved_lower=found.lower, lower_confidence=0.5 + CONFIDENCE / 2)


def certify(names: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Solve built-in problems and return the certified gains in the form of the package's file, by content."""
    found: dict[str, dict[str, Any]] = {}
    for name in builtin_problems(()) if names is None else names:
        problem = Problem.builtin(name)
        needed = joint_beliefs_needed(problem)
        if problem.content in found or needed > MOST_CERTIFIED_BELIEFS:
            continue
        tolerance = 1e-11 if needed <= MOST_BELIEFS else 1e-10
        solution = oracles.exact(problem, tolerance=tolerance, work=CERTIFYING_WORK)
        if not solution.certified or solution.gain is None:
            continue
        known = {key: getattr(solution, key) for key in ("gain", "lower", "upper")}
        found[problem.content] = {"name": name, **known, "beliefs": solution.details["levels"][-1]["beliefs"]}
    return found


if __name__ == "__main__":
    Path(str(CERTIFIED)).write_text(json.dumps(certify(), indent=2) + "\n", encoding="utf-8")
