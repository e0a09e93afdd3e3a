"""The nearest confusing model of an arm: another chain and other rewards, for which pulls of the arm would pay.

Let an arm unused by optimal play be pulled in its beliefs b with frequencies ``weights``. The information of the
observations against another model θ' of the arm, if the true model is θ, is

    I(θ') = Σ_b weights[b] · (KL of the state in b + Σ_k distribution[b, k] · KL of the reward in state k).

θ' is *confusing* if the best player of the problem with θ' in the arm's place earns more than the best player now, μ*.
Sought is the smallest I(θ') among confusing models.

A solution over joint beliefs decides whether θ' pays. The solution for a single θ' also gives the gain of others to
first order. If its policy pulls the arm x_b times a slot in belief b, and v_k is the value after state k,

    G(θ'') ≈ G(θ') + Σ_b x_b Σ_k [distribution''[b, k] · (r''_k + v_k) − distribution'[b, k] · (r'_k + v_k)].

Under the linearization, the nearest model takes no further solution. For a given chain the rewards have a closed form
up to a scalar root. The chain, with two parameters for two states, is found by Nelder and Mead's simplex in compiled
code. Repeated linearization at the result takes about ten solutions to converge. The result is a local minimum; several
starts make a global minimum likely, without proof.

Constraints on models: the chain keeps the zeros of the true chain. Rewards of arms with better states first keep their
order. Rewards of a fixed distribution, known after a single observation, keep their values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from restless_bandits._internal.validation import Array, BoolArray
from restless_bandits.learning.learners.confidence_bounds import binary_divergence
from restless_bandits.model.arms import Arm
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels
from restless_bandits.paper.regret_lower_bound.arena import TOLERANCE, Arena, Solved

MARGIN = 1e-7
"""The excess of a confusing model's gain over the optimum, above the error of solutions."""
COARSE = 1e-5
"""Span of the last update of a solution in the first steps."""
MOST_LINEAR = 25
REST = 2e-5
"""The relative change of the distance that counts as convergence."""
MOST_WORSE = 3
"""The number of steps of increasing distance before the search ends with the nearest model so far."""
MOST_TURNS = 250
"""Of the simplex, for each parameter of the chain."""
PENALTY = 30.0
"""The penalty of a gain below the target, in units of the sum of all weights."""
FURTHER = 1.15
"""The factor by which a model that does not pay is moved away from the true model."""


@dataclass(frozen=True, eq=False)
class Confusing:
    """A model of an arm under which another policy would be better, with its distance from the true arm."""

    arm: int
    model: Arm
    distance: float
    """Σ weights · divergence: the expected evidence of the exploration for the true arm."""
    gain: float


def extremes(arm: Arm) -> list[Arm]:
    """Return starting models for a search, which pay if any models do: high rewards, and chains that seek the best
    state or stay.
    """
    n, possible = arm.n_states, arm.chain > 0
    best = np.eye(n)[[int(np.argmax(arm.rewards))] * n]
    stay, leave = np.eye(n), (1.0 - np.eye(n)) / max(1, n - 1)
    high = arm.rewards + (0.99 * (1.0 - arm.rewards) if arm.reward_law == "bernoulli" else 0.0)
    found = [replace(arm, rewards=high)] if arm.reward_law == "bernoulli" else []
    if n > 1:
        for aim, rewards in ((best, arm.rewards), (0.9 * stay + 0.1 * best, arm.rewards), (stay, high), (leave, high)):
            # Impossible transitions leave their share to the rest of the row.
            rows = np.where(possible, 0.9 * aim + 0.1 * arm.chain + 1e-3, 0.0)
            found.append(replace(arm, transitions=rows / rows.sum(axis=1, keepdims=True), rewards=rewards))
    return found


def divergence(arm: Arm, model: Arm, truncation: int, *, most: bool = False) -> Array:
    """Return for each belief of an arm the divergence of a model by one observation of state and reward.

    The last belief stands for all waits from the truncation on, with the stationary distributions; with ``most`` its
    value is the largest divergence of any of these waits.
    """
    rewards = np.zeros(arm.n_states)
    if arm.reward_law == "bernoulli":
        pairs = zip(arm.rewards, model.rewards, strict=True)
        rewards = np.array([max(0.0, binary_divergence(mean, other)) for mean, other in pairs])

    def of(length: int) -> Array:
        distribution, other = kernels.distributions_of(arm.chain, length), kernels.distributions_of(model.chain, length)
        shown = np.where(distribution > 0, distribution * np.where(distribution > 0, rewards, 0.0), 0.0)
        return np.asarray(kernels.divergence(distribution, other) + shown.sum(axis=1))

    found = of(truncation)
    if most and truncation > 1:
        longer = of(8 * truncation)
        rows = longer[:-1].reshape(arm.n_states, -1)
        found[-1] = max(longer[-1], float(rows[:, truncation - 1 :].max()))
    return found


def nearest_confusing(
    arena: Arena, arm: int, weights: Array, start: Arm, *, margin: float = MARGIN
) -> Confusing | None:
    """Return the nearest confusing model of an arm for given weights, searched from a start; None if no model pays.

    ``weights[b]`` is for the beliefs of the arena, without negative entries. A ``start`` that does not pay is moved
    away from the true arm until the start pays.
    """
    true = arena.arm(arm)
    best: Confusing | None = None
    looked = weights > 0
    model, worse, excess = start, 0, 1.0
    for _ in range(MOST_LINEAR):
        # For a model with a large excess, a coarse solution is enough.
        tolerance = min(COARSE, max(TOLERANCE, 1e-3 * excess))
        paying = _paying(arena, arm, true, model, arena.gain + 0.3 * margin, tolerance)
        if paying is None:
            break
        model, solved = paying
        excess = solved.gain - arena.gain
        distance = float(divergence(true, model, arena.truncations[arm])[looked] @ weights[looked])
        change = distance - best.distance if best is not None else -distance
        if best is None or change < 0.0:
            best = Confusing(arm, model, distance, solved.gain)
        worse += change > 0.0
        if abs(change) <= REST * distance or worse > MOST_WORSE:
            break
        model = _step(arena, arm, true, model, solved, weights, arena.gain + margin)
    return best


def _paying(
    arena: Arena, arm: int, true: Arm, model: Arm, target: float, tolerance: float
) -> tuple[Arm, Solved] | None:
    """A model that pays, the given model or a model further away from the true arm, with its solution."""
    for _ in range(40):
        solved = arena.solve(arm, model, tolerance=tolerance)
        if solved.gain >= target and solved.play.pulls[arm].any():
            return model, solved
        further = moved(true, model, FURTHER)
        if max(np.abs(further.rewards - model.rewards).max(), np.abs(further.chain - model.chain).max()) < 1e-9:
            break
        model = further
    return None


def moved(true: Arm, model: Arm, share: float) -> Arm:
    """Return the model at a given share of the way between two models, beyond the second for a share above one."""
    chain = np.maximum(true.chain + share * (model.chain - true.chain), np.where(true.chain > 0, 1e-12, 0.0))
    rewards = np.clip(true.rewards + share * (model.rewards - true.rewards), 0.0, 1.0)
    return replace(true, transitions=chain / chain.sum(axis=1, keepdims=True), rewards=rewards)


def _step(arena: Arena, arm: int, true: Arm, model: Arm, solved: Solved, weights: Array, target: float) -> Arm:
    """The nearest model whose gain, linearized at the present model, reaches the target."""
    truncation, n = arena.truncations[arm], true.n_states
    distribution, other = (
        kernels.distributions_of(true.chain, truncation),
        kernels.distributions_of(model.chain, truncation),
    )
    size = len(distribution)
    pulls, worth = solved.play.pulls[arm, :size].copy(), solved.play.worth[arm, :size, :n].copy()
    here = float((worth * other).sum() + pulls @ other @ model.rewards)
    possible = true.chain > 0
    search = kernels.Search(
        distribution=distribution,
        rewards=np.array(true.rewards),
        weights=weights,
        possible=possible,
        ordered=bool((np.diff(true.rewards) <= 0).all()),
        fixed=true.reward_law == "fixed",
        truncation=truncation,
        pulls=pulls,
        worth=worth,
        constant=solved.gain - here,
        target=target,
        penalty=PENALTY * float(weights.sum()),
    )
    logits = _logits(model.chain, possible)
    most = MOST_TURNS * max(1, len(logits))
    _, logits, _ = kernels.nearest_model(logits, search, most)
    # Repeated from a fresh simplex, because a simplex may have degenerated.
    _, logits, rewards = kernels.nearest_model(logits, search, most)
    chain = kernels.chain_of(logits, possible)
    return replace(true, transitions=chain, rewards=rewards.clip(0.0, 1.0))


def _logits(chain: Array, possible: BoolArray) -> Array:
    found = []
    for row, can in zip(chain, possible, strict=True):
        moves = np.flatnonzero(can)
        found.append(np.log(np.maximum(row[moves[:-1]], 1e-12) / max(row[moves[-1]], 1e-12)))
    return np.concatenate(found) if found else np.zeros(0)
