"""What is true of a problem: the paper's assumptions, its constants, mixing, indexability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from restless_bandits import markov
from restless_bandits.markov import Array
from restless_bandits.oracles.whittle import whittle_index
from restless_bandits.problem import AnyArm, Assumption, Problem
from restless_bandits.theory.radii import radius_below_from

HORIZON = 100_000


@dataclass(frozen=True)
class ArmDiagnosis:
    """One arm: its stationary law, λ, mixing, indexability.

    ``mixing`` counts the slots until every row of P^τ is within 1/√T of the stationary law in L1 norm, the cap of
    colored-UCRL2; ``mixing_quarter`` those until a quarter in total variation, as textbooks have it. Both are ``None``
    for chains that never mix.
    """

    name: str
    stationary: Array
    second_eigenvalue: float
    mixing: int | None
    mixing_quarter: int | None
    indexable: bool
    index_violation: float


@dataclass(frozen=True)
class Diagnosis:
    """A problem held against the paper's assumptions.

    ``lambda_max`` is the supremum of |λ₂| over the neighbour spaces of all arms; ``lambda_max_bounds`` bracket it: the
    lower one is attained, the upper one proved. ``theory_from`` is the T from which on rad(T) ≤ c1/3. All three are
    ``None`` where the paper does not define them: no birth-death chains, or c1 = 0.
    """

    problem: Problem
    horizon: int
    assumptions: Mapping[str, Assumption]
    c1: float
    d_min: float
    lambda_max: float | None
    lambda_max_bounds: tuple[float, float] | None
    theory_from: int | None
    arms: tuple[ArmDiagnosis, ...]

    @property
    def holds(self) -> bool:
        """Whether all four assumptions hold."""
        return all(found.holds for found in self.assumptions.values())


def check(problem: Problem, *, horizon: int = HORIZON) -> Diagnosis:
    """Diagnose a problem; ``horizon`` sets how closely ``mixing`` looks."""
    problem.task(horizon)
    assumptions = problem.assumptions
    c1 = max(0.0, assumptions["bounded_below"].value)
    bounds: tuple[float, float] | None = None
    if assumptions["birth_death"].holds and c1 > 0:
        each = [markov.neighbour_eigenvalue_bounds(arm.one_step, 2 * c1 / 3) for arm in problem.arms]
        bounds = max(low for low, _ in each), max(high for _, high in each)
    arms = tuple(_diagnose(arm, horizon) for arm in problem.arms)
    return Diagnosis(
        problem=problem,
        horizon=horizon,
        assumptions=assumptions,
        c1=c1,
        d_min=min(float(arm.stationary.min()) for arm in arms),
        lambda_max=None if bounds is None else bounds[0],
        lambda_max_bounds=bounds,
        theory_from=radius_below_from(c1 / 3) if bounds is not None else None,
        arms=arms,
    )


def _diagnose(arm: AnyArm, horizon: int) -> ArmDiagnosis:
    chain = arm.one_step
    index = whittle_index(arm)
    return ArmDiagnosis(
        name=arm.name,
        stationary=markov.stationary(chain),
        second_eigenvalue=markov.second_eigenvalue(chain),
        mixing=markov.mixing_time(chain, 1 / math.sqrt(horizon)),
        mixing_quarter=markov.mixing_time(chain, 0.5),
        indexable=index.indexable,
        index_violation=index.violation,
    )
