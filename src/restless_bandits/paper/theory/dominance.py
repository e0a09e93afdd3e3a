"""The regret bound of ``likelihood-dominance``, term by term, with its constants (docs/theory/likelihood-dominance.md).

Theorem 1, for arms of two states: with N arms, c = min P_i(worst, best), β₂ = 9 ln(T + 1) + 2e, regret after T slots
is at most

    (1 + √2) √(β₂ T) N √(2 (1 + ln T)) / c  +  reward, episode, failure and planning terms.

Theorem 2, for more states, uses bounds by colour, (last state, elapsed slots). With C colours, C' = C + ΣM_i cells, β =
ln(2MC'T²), S = min(√C, Σ_i √(M_i (1 + ln L_i))), and Φ the largest number of pulls until an observation of an arm's
best state, *whatever the gaps between pulls*, the first term is (2 + √2) √(βT) S Φ. Φ comes from the least f with
f(best) = 0 and f = 1 + sup_τ P^τ f elsewhere; for two states Φ = 1/c.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits.model import markov
from restless_bandits.model.arms import Arm
from restless_bandits.model.optimism import chain_arms, first_horizon
from restless_bandits.model.potentials import is_stochastically_monotone, least_potential
from restless_bandits.model.problem import Problem
from restless_bandits.model.reward_units import difference_of

__all__ = ["DominanceBound", "dominance_bound", "dominance_bound_from", "likelihood_width"]


TERMS = ("laws", "rewards", "episodes", "failure", "planning")


@dataclass(frozen=True)
class DominanceBound:
    """The regret bound at a horizon, term by term; valid from ``cells`` slots on."""

    horizon: int
    laws: float
    """The term of the widths of the distributions."""
    rewards: float
    """From the widths of the rewards."""
    episodes: float
    """The term of plan changes."""
    failure: float
    """The term of the failure of a bound; for more than two states with the slack of the truncations."""
    planning: float
    """The term of plans that are optimal to 1/√t only."""
    truncations: tuple[int, ...]
    """Truncations, the elapsed slots from which on observations are pooled; none for two states."""
    cells: int
    """The least horizon; 0 for two states."""
    level: float
    """β₂, or β."""
    pulls: float
    """Φ."""

    @property
    def total(self) -> float:
        """The bound; infinite if the horizon is too short for the theorem."""
        if self.horizon < self.cells:
            return math.inf
        return sum(float(getattr(self, name)) for name in TERMS)


def dominance_bound(problem: Problem, horizon: int) -> DominanceBound:
    """Return the bound of Theorem 1, or of Theorem 2 if an arm has more than two states."""
    return _bound_of(problem)(horizon)


def dominance_bound_from(problem: Problem, gain: float) -> int | None:
    """Return the first T from which on the bound is below T times the optimal gain; None if there is none below 10^18.

    Before that T even a player with the least possible reward would satisfy the bound.
    """
    bound, gain = _bound_of(problem), gain - problem.plays * problem.reward_range[0]
    return first_horizon(lambda horizon: bound(horizon).total < horizon * gain)


def _bound_of(problem: Problem) -> Callable[[int], DominanceBound]:
    """Return the bound by horizon, for a problem that satisfies the theorems' assumptions."""
    problem.require("monotone")
    arms = chain_arms(problem, "the bound is for Markov chains")
    for arm in arms:
        if not is_stochastically_monotone(arm.chain):
            raise ProblemError(
                f"arm {arm.name!r}: its chain is not stochastically monotone; the bound needs better states to lead "
                "to better ones"
            )
    pulls = max(float(least_potential(arm.chain)[-1]) for arm in arms)
    width = difference_of(problem, 1.0)

    def bound(horizon: int) -> DominanceBound:
        two = max(problem.n_states) == 2
        found = _two_state_bound(problem, pulls, horizon) if two else _colour_bound(problem, arms, pulls, horizon)
        # The theorems are for rewards between 0 and 1, and regret grows with the width of their range.
        return replace(found, **{name: width * getattr(found, name) for name in TERMS})

    return bound


def likelihood_width(horizon: int) -> float:
    """Return β₂ = 9 ln(T + 1) + 2e.

    With probability 1 − 1/T the level bounds Σ n (G_θ − G)² over all (last state, elapsed slots) of a two-state arm in
    every slot, with n the number of observations there, G the probability of good and G_θ the probability of good for
    any chain θ in the confidence set.

    >>> round(likelihood_width(10**6), 1)
    129.8
    """
    return 9 * math.log(horizon + 1) + 2 * math.e


def _two_state_bound(problem: Problem, pulls: float, horizon: int) -> DominanceBound:
    """Theorem 1."""
    arms, plays, states = problem.n_arms, problem.plays, sum(problem.n_states)
    log = math.log(horizon)
    level = likelihood_width(horizon)
    # Σ √n over all (last state, elapsed slots) of all arms.
    spread = arms * math.sqrt(2 * horizon * (1 + log))
    reward_width = (math.sqrt(log) + math.sqrt(math.log(states) + 2 * log)) / math.sqrt(2)
    by_rewards = states * (1 + math.log2(horizon))
    epochs = range(1, math.floor(math.log2(horizon)) + 1)
    reward_failures = 6.2 + sum(
        math.e * math.ceil(j * (j + 1) * math.log(2) ** 2) * (1.2 + 5 * 2.0**-j) for j in epochs
    )
    failure = arms * (1.2 * (1 + len(epochs)) + 10) + states * reward_failures + arms + 1
    return DominanceBound(
        horizon=horizon,
        laws=(1 + math.sqrt(2)) * math.sqrt(level) * spread * pulls,
        rewards=(1 + math.sqrt(2)) * reward_width * math.sqrt(states * horizon * plays),
        episodes=arms * pulls * (2 + 1.5 * spread + by_rewards + math.log(horizon, 1.1)),
        failure=plays * failure,
        planning=2.5 * math.sqrt(horizon) + 10,
        truncations=(),
        cells=0,
        level=level,
        pulls=pulls,
    )


def _colour_bound(problem: Problem, arms: Sequence[Arm], pulls: float, horizon: int) -> DominanceBound:
    """Theorem 2."""
    states, plays = problem.n_states, problem.plays
    truncations = tuple(forgetting_cap(arm, 1 / horizon) for arm in arms)
    colours = sum(n * (truncation - 1) + 1 for n, truncation in zip(states, truncations, strict=True))
    cells = colours + sum(states)
    level = math.log(2 * cells * max(states)) + 2 * math.log(horizon)
    by_waits = sum(math.sqrt(n * (1 + math.log(truncation))) for n, truncation in zip(states, truncations, strict=True))
    width = (2 + math.sqrt(2)) * math.sqrt(level * horizon * plays)
    n_episodes = 1 + cells * math.log2(max(2.0, 4 * horizon * plays / cells)) + math.log(horizon, 1.1)
    return DominanceBound(
        horizon=horizon,
        laws=width * min(math.sqrt(colours), by_waits) * pulls,
        rewards=width * math.sqrt(sum(states)),
        episodes=problem.n_arms * pulls * n_episodes,
        failure=plays * (2 * pulls + 1),
        planning=2.5 * math.sqrt(horizon) + 10,
        truncations=truncations,
        cells=cells,
        level=level,
        pulls=pulls,
    )


def forgetting_cap(arm: Arm, memory: float) -> int:
    """Return the first τ at which the last state changes no Pr(≤ k) by more than a given amount.

    For a monotone chain the change is the difference between the best and the worst state, and falls with τ.
    """
    chain = arm.chain

    def difference(tau: int) -> float:
        distribution = markov.power(chain, tau)
        return float(np.cumsum(distribution[0] - distribution[-1]).max())

    found: int | None
    if len(chain) == 2 and memory < (rate := float(chain[0, 0] - chain[1, 0])) < 1:
        found = math.ceil(math.log(memory) / math.log(rate) - 1e-9)
    else:
        found = first_horizon(lambda tau: difference(tau) <= memory)
    if found is None:
        raise ProblemError(f"arm {arm.name!r} never forgets its state; the bound needs a chain that does")
    return found
