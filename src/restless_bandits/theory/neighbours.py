"""The neighbour space of a chain and λ_max (Wang, Huang, Lui 2020, Section 2).

The neighbour space of P_i holds the chains whose entries next to the diagonal, and on it, differ from those of P_i by
at most 2c1/3; λ^i is the supremum of |λ₂| over it and λ_max the largest λ^i. Once rad(T) ≤ c1/3, every optimistic chain
P' that Algorithm 1 can build while the event E holds lies in it, and all entries of all chains in it are at least c1/3.

Differs from the paper: it writes down the conditions on the entries only; meant are birth-death chains that meet them.
"""

from __future__ import annotations

import numpy as np

from restless_bandits import markov
from restless_bandits.arrays import Array
from restless_bandits.problem import Problem

__all__ = ["is_neighbour", "lambda_max", "lambda_max_bounds", "neighbour_distance"]

ROUNDING = 1e-12


def neighbour_distance(problem: Problem) -> float:
    """2c1/3, the size of the neighbour spaces; 0 where Assumption 4 fails."""
    return 2 * max(0.0, problem.assumptions["bounded_below"].value) / 3


def is_neighbour(chain: Array, other: Array, distance: float) -> bool:
    """Whether another chain lies in the neighbour space of a chain."""
    near = bool(np.abs(np.asarray(other) - chain).max() <= distance + ROUNDING)
    return near and markov.is_birth_death(other) and bool((other >= -ROUNDING).all())


def lambda_max_bounds(problem: Problem) -> tuple[float, float] | None:
    """Bracket λ_max: the lower end is attained by a chain that was found, the upper one proved.

    ``None`` where the paper does not define it: no birth-death chains, or c1 = 0. For two states the ends are equal,
    max_i |λ_i| + 4c1/3; see ``markov.neighbour_eigenvalue_bounds`` for more.
    """
    distance = neighbour_distance(problem)
    if not (problem.assumptions["birth_death"].holds and distance > 0):
        return None
    each = [markov.neighbour_eigenvalue_bounds(arm.one_step, distance) for arm in problem.arms]
    return max(low for low, _ in each), max(high for _, high in each)


def lambda_max(problem: Problem) -> float | None:
    """λ_max as far as it is attained: the lower end of its bracket."""
    bounds = lambda_max_bounds(problem)
    return None if bounds is None else bounds[0]
