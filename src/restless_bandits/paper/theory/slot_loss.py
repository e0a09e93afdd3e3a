"""The loss per slot of the optimal policy of an optimistic problem (Lemma 2 of the paper)."""

from __future__ import annotations

from restless_bandits.model.problem import Problem
from restless_bandits.oracles import evaluate, exact

__all__ = ["slot_loss"]


def slot_loss(problem: Problem, optimistic: Problem) -> float:
    """Return μ(π*', R') − μ(π*', R): the gain of the best policy of R' in R', less its gain in R (Lemma 2)."""
    solution = exact(optimistic)
    return solution.upper - evaluate(problem, solution.policy).gain
