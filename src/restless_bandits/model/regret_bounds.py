"""The regret bounds of Theorems 1 and 2 of the paper (Wang, Huang, Lui 2020), term by term, with every constant.

The paper ends with Õ((N/d_min + M³/(1 − λ_max)²) T^(2/3)). Followed line by line, its proof gives for rad(T) ≤ c1/3 the
following bound of the regret of Restless-UCB with an optimal oracle:

    E[T₁]  +  T (2 rad(T) + M gap(T))  +  T M² gap(T) / (1 − λ_max)  +  8NM  +  C :

The terms are: exploration (Fact 1; here the upper bound of ``exploration``); the error of a slot's rewards (Lemma 12);
the error of distributions, ½ M gap(T) times the bias between successors U = 2M/(1 − λ_max) (Lemmas 11 and 16); the
failure of the event E, T times 8NM/T (Lemma 17); and a constant. In Theorem 2 the oracle is approximate, and the regret
is λTμ* − Σ x (the paper's Definition 2 lacks the T). There U is the span of the bias of the oracle's policy in R'; the
paper bounds the span by a diameter and gives no number.

Differs from the paper:

- C is "the diameter of applying π*' in R", a constant in T but not a number. A number exists. Summing μ' = r'(z) +
  E'[h'(z⁺)] − h'(z) over the slots played in R leaves h' at the end less h' at the beginning. These differ in τ as well
  as in states, and C = N U is an extension of Lemma 16, not proved. The number replaces the paper's detour by V_t −
  V'_t.
- ``constants="proved"`` leaves out the parts without a valid proof (``perturbation``, ``bias``) and uses proved parts
  instead:

      E[T₁]  +  T (2 rad + g)  +  T g (Φ − 1)  +  8NM  +  Σ_i (Φ_i − 1),     g = 2 rad max_i Σ_τ δ(P_i^τ),

  where g bounds the total variation between distributions and Φ_i − 1 the bias between the states of arm i in R'. For
  two states Φ_i = 1/(1 − |λ_i| − 2 rad). If P(k,k+1) + P(k+1,k) ≤ 1 − 2 rad, P' is certain to be stochastically
  monotone. Then Φ_i is also at most the largest number of pulls until an observation of the best state
  (``least_potential``; Lemma 5 of docs/theory/likelihood-dominance.md). A chain with neither has Φ_i = ∞, and the bound
  is vacuous.
- c1 is the largest that Assumption 4 allows. The proof holds with any smaller c1 of at least 3 rad(T); a smaller c1 may
  have a smaller λ_max.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.validation import Array
from restless_bandits.model.checks import check_horizon
from restless_bandits.model.exploration import exploration_bound
from restless_bandits.model.markov import second_eigenvalue
from restless_bandits.model.neighbours import lambda_max_bounds, neighbour_distance
from restless_bandits.model.optimism import first_horizon, gap, radius
from restless_bandits.model.perturbation import total_contraction
from restless_bandits.model.potentials import least_potential
from restless_bandits.model.problem import Problem
from restless_bandits.model.reward_units import difference_of

__all__ = ["RegretBound", "approximation_bound", "approximation_bound_from", "regret_bound", "regret_bound_from"]


@dataclass(frozen=True)
class RegretBound:
    """A regret bound at a horizon, term by term."""

    theorem: int
    constants: str
    horizon: int
    exploration: float
    """E[T₁], at the width of the range of rewards a slot."""
    rewards: float
    """The term of the error of a slot's rewards."""
    laws: float
    """The term of the error of distributions, times the bias between successors."""
    failure: float
    """From the event E failing."""
    ends: float
    """The bias between beginning and end of the exploitation phase: the paper's constant C."""
    radius: float
    gap: float
    span: float
    """U, the bias between successors."""
    applies: bool
    """Whether rad(T) ≤ c1/3; otherwise the proof does not apply."""

    @property
    def terms(self) -> dict[str, float]:
        """The parts of the sum, by name."""
        return {name: getattr(self, name) for name in ("exploration", "rewards", "laws", "failure", "ends")}

    @property
    def total(self) -> float:
        """The bound; infinite if the horizon is too short for the proof."""
        return sum(self.terms.values()) if self.applies else math.inf

    @property
    def per_slot(self) -> float:
        """The possible loss of a slot of the exploitation phase, Lemma 2: μ(π*', R') − μ(π*', R)."""
        return (self.rewards + self.laws) / self.horizon if self.applies else math.inf

    def __str__(self) -> str:
        parts = " + ".join(f"{name} {term:.3g}" for name, term in self.terms.items())
        beginning = f"Theorem {self.theorem} at T = {self.horizon}, {self.constants} constants:"
        if not self.applies:
            return f"{beginning} nothing, as rad(T) = {self.radius:.3g} exceeds c1/3"
        return f"{beginning} {self.total:.4g} = {parts}"


def regret_bound(
    problem: Problem, horizon: int, *, constants: str = "paper", lambda_max: float | None = None
) -> RegretBound:
    """Return the bound of Theorem 1.

    ``constants`` are the ``paper``'s, or the ``proved`` constants. ``lambda_max`` avoids its computation if known; the
    default is the proved end of its bracket.
    """
    horizon = check_horizon(horizon)
    return _bound_of(problem, constants, lambda_max)(horizon)


def regret_bound_from(
    problem: Problem, gain: float, *, constants: str = "paper", lambda_max: float | None = None
) -> int | None:
    """Return the first T from which on the bound is below T times a gain; None if there is none below 10^36.

    The gain is the optimal gain: before that T even a player without any reward would satisfy the bound. For rewards
    that do not begin at 0, the reference is the least reward.
    """
    return _first_below(_bound_of(problem, constants, lambda_max), gain - problem.reward_range[0])


def approximation_bound(
    problem: Problem, horizon: int, span: float, *, constants: str = "paper", lambda_max: float | None = None
) -> RegretBound:
    """Return the bound of Theorem 2, for a policy whose bias has a given span in R' (see ``policy_bias_span``)."""
    horizon = check_horizon(horizon)
    return _bound_of(problem, constants, lambda_max, span)(horizon)


def approximation_bound_from(
    problem: Problem,
    gain: float,
    span: float,
    *,
    ratio: float = 1.0,
    constants: str = "paper",
    lambda_max: float | None = None,
) -> int | None:
    """Return the first T from which on the bound of Theorem 2 is below λT times a gain; None if not below 10^36."""
    return _first_below(_bound_of(problem, constants, lambda_max, span), ratio * (gain - problem.reward_range[0]))


def _bound_of(
    problem: Problem, constants: str, lambda_max: float | None, span: float | None = None
) -> Callable[[int], RegretBound]:
    """Return the bound of Theorem 1 by horizon, or of Theorem 2 if the span of a policy's bias is given."""
    check_known(constants, ("paper", "proved"), "there are no constants")
    problem.require_steady("the theory")
    if problem.plays != 1:
        raise ProblemError(f"plays is {problem.plays}; the theorems are about one pull a slot")
    problem.require("monotone", "birth_death", "positively_correlated", "bounded_below")
    if span is not None and not span >= 0:
        raise ProblemError(f"span is {span!r}; the span of a bias is not negative")
    n, most, c1 = problem.n_arms, max(problem.n_states), 1.5 * neighbour_distance(problem)
    chains = [arm.one_step for arm in problem.arms]
    proved = constants == "proved"
    contraction, phis = (max(map(total_contraction, chains)), [*map(_phi, chains)]) if proved else (math.inf, [])
    bounds = lambda_max_bounds(problem) if lambda_max is None and not proved else None
    rate = lambda_max if lambda_max is not None else 1.0 if bounds is None else bounds[1]
    # The theorems are for rewards between 0 and 1; regret and bias scale with the width of the range.
    width = difference_of(problem, 1.0)

    def bound(horizon: int) -> RegretBound:
        rad = radius(horizon)
        if proved:
            apart = 2 * rad * contraction
            rewards, price = 2 * rad + apart, apart
            spans = [phi(rad) - 1 for phi in phis]
            widest, ends = max(spans), sum(spans)
        else:
            apart = gap(horizon, most, rate)
            rewards, price = 2 * rad + most * apart, 0.5 * most * apart
            widest = 2 * most / (1 - rate) if rate < 1 else math.inf
            ends = n * widest
        if span is not None:
            widest = ends = span / width
        return RegretBound(
            theorem=1 if span is None else 2,
            constants=constants,
            horizon=horizon,
            exploration=width * exploration_bound(problem, horizon),
            rewards=width * (horizon * rewards),
            laws=width * (horizon * (price * widest)),
            failure=width * (8 * n * most),
            ends=width * ends,
            radius=rad,
            gap=apart,
            span=width * widest,
            applies=rad <= c1 / 3,
        )

    return bound


def _phi(chain: Array) -> Callable[[float], float]:
    """Φ of an arm by radius: one more than the proved bias between its states in R'; 1 for a single state."""
    rate = abs(second_eigenvalue(chain)) if len(chain) <= 2 else math.inf
    pulls = float(least_potential(chain)[-1])
    slack = 1 - (np.diagonal(chain, 1) + np.diagonal(chain, -1)).max(initial=0.0)

    def phi(rad: float) -> float:
        by_rate = 1 / (1 - rate - 2 * rad) if rate + 2 * rad < 1 else math.inf
        return max(1.0, min(by_rate, pulls if slack >= 2 * rad else math.inf))

    return phi


def _first_below(bound: Callable[[int], RegretBound], gain: float) -> int | None:
    return first_horizon(lambda horizon: bound(horizon).total < horizon * gain, 10**36)
