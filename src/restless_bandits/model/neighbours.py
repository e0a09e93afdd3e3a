"""The neighbour space of a chain and λ_max (Wang, Huang, Lui 2020, Section 2).

The neighbour space of P_i holds the chains whose entries next to the diagonal, and on the diagonal, differ from the
entries of P_i by at most 2c1/3. λ^i is the supremum of |λ₂| over the space and λ_max the largest λ^i. Once rad(T) ≤
c1/3, every optimistic chain P' that Algorithm 1 can build under the event E lies in the space, and all entries of all
chains in the space are at least c1/3.

Differs from the paper: the paper states the conditions on the entries only, and means birth-death chains.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.model import markov
from restless_bandits.model.problem import Problem

__all__ = ["is_neighbour", "lambda_max", "lambda_max_bounds", "neighbour_distance"]

ROUNDING = 1e-12


def neighbour_distance(problem: Problem) -> float:
    """2c1/3, the size of the neighbour spaces; 0 if Assumption 4 fails."""
    return 2 * max(0.0, problem.assumptions["bounded_below"].value) / 3


def is_neighbour(chain: Array, other: Array, distance: float) -> bool:
    """Whether another chain lies in the neighbour space of a chain."""
    near = bool(np.abs(np.asarray(other) - chain).max() <= distance + ROUNDING)
    return near and markov.is_birth_death(other) and bool((other >= -ROUNDING).all())


def lambda_max_bounds(problem: Problem) -> tuple[float, float] | None:
    """Bracket λ_max: the lower end is attained by a found chain, the upper end proved.

    ``None`` if the paper does not define λ_max: no birth-death chains, or c1 = 0. For two states the ends are equal,
    max_i |λ_i| + 4c1/3; see ``markov.neighbour_eigenvalue_bounds`` for more states.
    """
    distance = neighbour_distance(problem)
    if not (problem.assumptions["birth_death"].holds and distance > 0):
        return None
    each = [markov.neighbour_eigenvalue_bounds(arm.one_step, distance) for arm in problem.arms]
    return max(low for low, _ in each), max(high for _, high in each)


def lambda_max(problem: Problem) -> float | None:
    """The attained λ_max: the lower end of its bracket."""
    bounds = lambda_max_bounds(problem)
    return None if bounds is None else bounds[0]
