"""Properties of a problem: the paper's assumptions, its constants, mixing, indexability."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from restless_bandits._internal.validation import Array
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.assumptions import Assumption
from restless_bandits.model.checks import check_horizon
from restless_bandits.model.neighbours import lambda_max_bounds
from restless_bandits.model.optimism import radius_below_from
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.regret_bounds import (
    RegretBound,
    approximation_bound,
    approximation_bound_from,
    regret_bound,
    regret_bound_from,
)
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.relaxation import relaxation_bound
from restless_bandits.oracles.whittle import whittle_index

DIAGNOSIS_HORIZON = 100_000
MOST_KINDS = 1000
"""Kinds in a diagnosis."""


@dataclass(frozen=True)
class ArmDiagnosis:
    """An arm: its stationary distribution, λ, mixing, indexability.

    ``mixing`` is the number of slots until every row of P^τ is within 1/√T of the stationary distribution in L1 norm,
    the truncation of colored-UCRL2. ``mixing_quarter`` is the textbook mixing time, a quarter in total variation. Both
    are ``None`` for chains that never mix.
    """

    name: str
    stationary: Array
    second_eigenvalue: float
    mixing: int | None
    mixing_quarter: int | None
    indexable: bool
    index_violation: float


@dataclass(frozen=True)
class Bounds:
    """The regret bounds of the paper's theorems at the horizon, and the first T at which each bound is informative.

    A bound is informative if it is below T times the best long-run reward, with the relaxation's upper bound ``most``
    for the latter; no bound is informative before ``vacuous_until``. ``None`` means later than 10^36. Theorem 2 depends
    on the span U of the approximate policy's bias in R': its bound is ``fixed`` plus ``per_span`` times U.
    """

    most: float
    theorem_1: RegretBound
    vacuous_until: int | None
    theorem_1_proved: RegretBound
    """The bound with the proved constants, instead of the paper's."""
    proved_vacuous_until: int | None
    theorem_2_fixed: float
    theorem_2_per_span: float
    theorem_2_vacuous_until: int | None
    """Even for U = 0."""

    def as_dict(self) -> dict[str, Any]:
        """Return the bounds in the form of ``restless check --json``."""

        def until(horizon: int | None) -> int | float | None:
            # Some JSON readers do not accept integers beyond 2^53.
            return horizon if horizon is None or horizon < 1 << 53 else float(horizon)

        def theorem(bound: RegretBound, horizon: int | None) -> dict[str, Any]:
            return {"bound": bound.total, "terms": bound.terms, "vacuous_until": until(horizon)}

        return {
            "most": self.most,
            "theorem_1": theorem(self.theorem_1, self.vacuous_until),
            "theorem_1_proved": theorem(self.theorem_1_proved, self.proved_vacuous_until),
            "theorem_2": {
                "fixed": self.theorem_2_fixed,
                "per_span": self.theorem_2_per_span,
                "vacuous_until": until(self.theorem_2_vacuous_until),
            },
        }


@dataclass(frozen=True)
class Diagnosis:
    """A problem held against the paper's assumptions.

    ``lambda_max`` is the supremum of |λ₂| over the neighbour spaces of all arms. ``lambda_max_bounds`` bracket the
    supremum: the lower bound is attained, the upper bound proved. ``theory_from`` is the T from which on rad(T) ≤ c1/3.
    All three are ``None`` if the paper does not define them: no birth-death chains, or c1 = 0.
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
    bounds: Bounds | None = None
    """``None`` if an assumption fails, or with more than one play."""

    @property
    def holds(self) -> bool:
        """Whether all four assumptions hold."""
        return all(found.holds for found in self.assumptions.values())

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless check --json``."""
        constants = ("c1", "d_min", "lambda_max", "lambda_max_bounds", "theory_from")
        return {
            "problem": self.problem.name,
            "plays": self.problem.plays,
            "assumptions": {
                key: {"holds": one.holds, "worst": {"arm": one.arm, "state": one.state, "value": one.value}}
                for key, one in self.assumptions.items()
            },
            **{name: getattr(self, name) for name in constants},
            "bounds": None if self.bounds is None else self.bounds.as_dict(),
            "horizon": self.horizon,
            "fit": self.problem.findings.as_dict(),
            "arms": [dataclasses.asdict(arm) for arm in self.arms],
        }


@dataclass(frozen=True)
class KindDiagnosis:
    """A kind of arms: the chain of slots without a pull, the chain of slots with a pull, and rewards by state.

    ``passive_stationary`` and ``active_stationary`` are the long-run shares of time in each state without pulls and
    with a pull in every slot. ``mixing`` is that of ``ArmDiagnosis`` for the chain without pulls.
    """

    name: str
    count: int
    transitions: Array
    active_transitions: Array
    passive_rewards: Array
    rewards: Array
    setup_cost: float
    passive_stationary: Array
    active_stationary: Array
    mixing: int | None


@dataclass(frozen=True)
class KindsDiagnosis:
    """A problem with arms that react to pulls or are all observed: its kinds of arms.

    The assumptions and constants of the Restless-UCB paper are not defined for such problems.
    """

    problem: Problem
    horizon: int
    kinds: tuple[KindDiagnosis, ...]
    """The first kinds of the problem, at most ``MOST_KINDS``."""

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless check --json``."""
        problem = self.problem
        return {
            "problem": problem.name,
            "n_arms": problem.n_arms,
            "n_kinds": len(problem.kinds),
            "plays": problem.plays,
            "observed": problem.observed,
            "at_most": problem.at_most,
            "features": problem.features,
            "horizon": self.horizon,
            "kinds": [dataclasses.asdict(kind) for kind in self.kinds],
        }


def check(problem: AnyProblem, *, horizon: int = DIAGNOSIS_HORIZON) -> Diagnosis | KindsDiagnosis:
    """Diagnose a problem; ``horizon`` sets the accuracy of ``mixing``.

    A problem with ``features``, such as arms that react to pulls, gets a diagnosis of its kinds.
    """
    problem = as_problem(problem)
    problem.require_steady("a diagnosis")
    refuse_unsupported(problem, "check")
    horizon = check_horizon(horizon)
    if problem.features:
        kinds = (kind for kind in problem.kinds[:MOST_KINDS] if isinstance(kind, Arm))
        return KindsDiagnosis(problem, horizon, tuple(_diagnose_kind(kind, horizon) for kind in kinds))
    assumptions = problem.assumptions
    c1 = max(0.0, assumptions["bounded_below"].value)
    bounds = lambda_max_bounds(problem)
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
        bounds=None if bounds is None else _bounds(problem, horizon, bounds[1]),
    )


def _bounds(problem: Problem, horizon: int, rate: float) -> Bounds | None:
    if problem.plays != 1 or not all(found.holds for found in problem.assumptions.values()):
        return None
    most = relaxation_bound(problem)
    fixed, more = (approximation_bound(problem, horizon, span, lambda_max=rate).total for span in (0.0, 1.0))
    return Bounds(
        most=most,
        theorem_1=regret_bound(problem, horizon, lambda_max=rate),
        vacuous_until=regret_bound_from(problem, most, lambda_max=rate),
        theorem_1_proved=regret_bound(problem, horizon, constants="proved"),
        proved_vacuous_until=regret_bound_from(problem, most, constants="proved"),
        theorem_2_fixed=fixed,
        theorem_2_per_span=more - fixed if math.isfinite(fixed) else math.inf,
        theorem_2_vacuous_until=approximation_bound_from(problem, most, 0.0, lambda_max=rate),
    )


def _diagnose_kind(arm: Arm, horizon: int) -> KindDiagnosis:
    means = arm.mean_rewards
    return KindDiagnosis(
        name=arm.name,
        count=arm.count,
        transitions=arm.chain,
        active_transitions=arm.active_chain,
        passive_rewards=means[:, 0],
        rewards=means[:, 1],
        setup_cost=arm.setup_cost,
        passive_stationary=arm.stationary,
        active_stationary=markov.limit_laws(arm.active_chain).mean(axis=0),
        mixing=markov.mixing_time(arm.chain, 1 / math.sqrt(horizon)),
    )


def _diagnose(arm: AnyArm, horizon: int) -> ArmDiagnosis:
    chain = arm.one_step
    index = whittle_index(arm)
    distribution, rate = markov.stationary(chain), markov.second_eigenvalue(chain)
    mixing, quarter = (markov.mixing_time(chain, near) for near in (1 / math.sqrt(horizon), 0.5))
    return ArmDiagnosis(arm.name, distribution, rate, mixing, quarter, index.indexable, index.violation)
