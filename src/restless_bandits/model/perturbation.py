"""How far P' leads from P, Lemmas 8 to 13 of the paper (Wang, Huang, Lui 2020, Appendix A.2), measured and bounded.

Each comparison gives, for elapsed slots τ, the largest value over all starts and the bound of a lemma. Starts are
states: a distance is convex in the start, and no distribution is worse than the worst state.

Differs from the paper:

- Lemma 9 is true, its proof is not. The telescoping sum has P − P' in the middle, v P'^a (P − P') P^b, not at the end,
  and the largest entry of xP may exceed the largest entry of x. Total variation does not grow under P, rows of P and P'
  are within 2 rad in total variation, and no entry of a difference of distributions exceeds their total variation. With
  δ(P^b) the largest total variation between rows of P^b the same sum gives more:

      max_v ‖vP^τ − vP'^τ‖_TV ≤ 2 rad Σ_{b<τ} δ(P^b).

  This bound is ``proved_law_gap``. As δ(P^b) falls geometrically, the bound stays finite, without logarithm and without
  λ_max.
- Lemmas 10 and 13 quote ‖vP^τ − d‖₁ ≤ M λ^τ ‖v − d‖₁ for λ = |λ₂|. The inequality is false from three states on: a
  chain that drifts from one end to the other needs as many steps as states before approaching its limit, whatever its
  eigenvalues. ``forgetting`` shows a counterexample. True for reversible chains, and therefore for birth-death chains,
  is ‖e_s P^τ − d‖₁ ≤ λ^τ √(1/d_s − 1) (Diaconis, Stroock 1991), with a constant that may be exponential in M, and
  enters sums over τ by its logarithm.
- Lemma 10's other half, ‖d − d'‖_∞ ≤ 2M rad / (1 − λ), follows from ‖d − d'‖_TV ≤ 2 rad K with Kemeny's constant
  K = Σ_{i≥2} 1/(1 − λ_i): ``kemeny_constant``.
- Lemma 12 bounds r(z) − r'(z); its proof and its use need the absolute value. Its r' ≤ 1 needs the truncation of
  ``optimism``.

Gaps in proofs do not make statements false: no tested chain violates Lemmas 10, 11 or 12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm
from restless_bandits.model.optimism import gap, radius
from restless_bandits.model.rewards import normalized_rewards
from restless_bandits.model.support import refuse_unsupported

__all__ = [
    "Comparison",
    "any_law_gap",
    "contractions",
    "forgetting",
    "kemeny_constant",
    "law_gaps",
    "linear_law_gap",
    "proved_law_gap",
    "reversible_forgetting",
    "reward_gap",
    "settled_law_gap",
    "total_contraction",
]

ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Comparison:
    """Measured and allowed values, along elapsed slots."""

    elapsed: IntArray
    measured: Array
    bound: Array

    @property
    def ratios(self) -> Array:
        """The measured values, less a rounding allowance, as ratios to the allowed values."""
        above = np.maximum(self.measured - ROUNDING, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: Array = np.where(above > 0.0, above / self.bound, 0.0)
        return ratios

    @property
    def worst(self) -> float:
        """The largest ratio."""
        return float(self.ratios.max(initial=0.0))

    @property
    def worst_at(self) -> int:
        """The elapsed slots with the largest ratio."""
        return int(self.elapsed[self.ratios.argmax()])

    @property
    def holds(self) -> bool:
        return self.worst <= 1 + 1e-9


def law_gaps(chain: Array, other: Array, length: int) -> Array:
    """Return the largest difference of a state's probability, over all starts, after τ = 1..length slots."""
    difference = markov.powers(chain, length)[1:] - markov.powers(other, length)[1:]
    return np.asarray(np.abs(difference).max(axis=(1, 2)))


def linear_law_gap(chain: Array, other: Array, rad: float, length: int) -> Comparison:
    """Lemma 9: after τ slots, distributions differ by at most 2τ rad(T)."""
    elapsed = np.arange(1, length + 1)
    return Comparison(elapsed, law_gaps(chain, other, length), 2 * rad * elapsed.astype(np.float64))


def settled_law_gap(chain: Array, other: Array, horizon: int, lambda_max: float, length: int) -> Comparison:
    """Lemma 10: from τ > ln T / ln(1/λ_max) on, by at most 2M rad(T)/(1 − λ_max) + 2M/T."""
    first = math.floor(math.log(horizon) / math.log(1 / lambda_max)) + 1
    elapsed = np.arange(first, max(first, length) + 1)
    n = len(chain)
    allowed = 2 * n / (1 - lambda_max) * radius(horizon) + 2 * n / horizon
    measured = law_gaps(chain, other, int(elapsed[-1]))[first - 1 :]
    return Comparison(elapsed, measured, np.full(elapsed.size, allowed))


def any_law_gap(chain: Array, other: Array, horizon: int, lambda_max: float, length: int) -> Comparison:
    """Lemma 11: at any τ, by at most gap(T)."""
    allowed = gap(horizon, len(chain), lambda_max)
    return Comparison(np.arange(1, length + 1), law_gaps(chain, other, length), np.full(length, allowed))


def reward_gap(arm: AnyArm, other: AnyArm, horizon: int, lambda_max: float, length: int) -> Comparison:
    """Lemma 12: the mean reward of a pull after τ slots differs by at most 2 rad(T) + M gap(T), as shares."""
    for one in (arm, other):
        refuse_unsupported(one, "theory")
    shares = (normalized_rewards(one.rewards, arm.reward_range) for one in (arm, other))
    distributions = (markov.powers(one.one_step, length)[1:] for one in (arm, other))
    means, others = (distribution @ rewards for distribution, rewards in zip(distributions, shares, strict=True))
    allowed = 2 * radius(horizon) + arm.n_states * gap(horizon, arm.n_states, lambda_max)
    return Comparison(np.arange(1, length + 1), np.abs(means - others).max(axis=1), np.full(length, allowed))


def forgetting(chain: Array, rate: float, length: int) -> Comparison:
    """The inequality in the proof of Lemma 13: ‖e_s P^τ − d‖₁ ≤ M λ^τ ‖e_s − d‖₁, for τ = 0..length.

    ``measured`` is the largest ‖e_s P^τ − d‖₁ / ‖e_s − d‖₁ over s. The inequality is false; see the module's docstring.
    """
    distances = _distances(chain, length)
    bound = len(chain) * _geometric(rate, length)
    return Comparison(np.arange(length + 1), (distances / distances[0]).max(axis=1), bound)


def reversible_forgetting(chain: Array, length: int) -> Comparison:
    """The valid inequality for birth-death chains: ‖e_s P^τ − d‖₁ ≤ |λ₂|^τ √(1/d_s − 1), for τ = 0..length.

    ``measured`` is the largest ratio of the left side to the root, over s.
    """
    distances = _distances(chain, length) / np.sqrt(1 / markov.stationary(chain) - 1)
    bound = _geometric(abs(markov.second_eigenvalue(chain)), length)
    return Comparison(np.arange(length + 1), distances.max(axis=1), bound)


def _distances(chain: Array, length: int) -> Array:
    """‖e_s P^τ − d‖₁ for every τ up to a length and every s."""
    return np.asarray(np.abs(markov.powers(chain, length) - markov.stationary(chain)).sum(axis=2))


def _geometric(rate: float, length: int) -> Array:
    return np.array([rate**tau for tau in range(length + 1)])


def contractions(chain: Array, length: int) -> Array:
    """Return δ(P^τ) for τ = 0..length: the largest total variation between two rows."""
    stack = markov.powers(chain, length)
    return np.asarray(0.5 * np.abs(stack[:, :, None, :] - stack[:, None, :, :]).sum(axis=3).max(axis=(1, 2)))


def proved_law_gap(chain: Array, other: Array, rad: float, length: int) -> Comparison:
    """Lemma 9 repaired and sharpened: after τ slots, by at most 2 rad Σ_{b<τ} δ(P^b)."""
    bound = 2 * rad * np.cumsum(contractions(chain, length - 1))
    return Comparison(np.arange(1, length + 1), law_gaps(chain, other, length), bound)


def total_contraction(chain: Array) -> float:
    """Return an upper bound of Σ_{τ≥0} δ(P^τ), tight to a millionth; 1/(1 − |λ|) for two states.

    δ is submultiplicative: the sum is at most its first n terms over 1 − δ(P^n).
    """
    if len(chain) == 1:
        return 1.0
    if len(chain) == 2:
        rate = abs(markov.second_eigenvalue(chain))
        return 1 / (1 - rate) if rate < 1 else math.inf
    for exponent in range(4, 17, 2):
        apart = contractions(chain, 2**exponent)
        if apart[-1] <= 1e-6:
            return float(apart[:-1].sum() / (1 - apart[-1]))
    return math.inf


def kemeny_constant(chain: Array) -> float:
    """Return K = Σ_{i≥2} 1/(1 − λ_i); stationary distributions of P and P' are within 2 rad K in total variation.

    d' − d = d'(P' − P)A, A the group inverse of I − P. Columns of A are largest on the diagonal, rows sum to 0: for i ≠
    j Σ_k (A(i,k) − A(j,k))⁺ ≤ Σ_k (A(k,k) − A(j,k)) = trace A = K. A difference of distributions grows at most K-fold.
    """
    if not markov.is_ergodic(chain):
        raise ProblemError("Kemeny's constant needs a chain that forgets its start")
    values = np.linalg.eigvals(chain)
    others = np.delete(values, int(np.argmin(np.abs(values - 1))))
    return float((1 / (1 - others)).sum().real)
