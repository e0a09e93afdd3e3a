"""The nearest confusing model of one arm: another chain, other rewards, for which the arm would pay.

Let an arm that optimal play leaves alone be pulled in its beliefs b as often as ``weights`` say. What is seen there
tells a model θ' of the arm from the true one, θ, by

    I(θ') = Σ_b weights[b] · (KL of the state seen in b + Σ_k law[b, k] · KL of the reward in state k).

θ' is *confusing* if the best player of the problem with θ' in the arm's place earns more than the best player now, μ*.
Sought is the smallest I(θ') among confusing models.

Whether θ' pays takes a solution over joint beliefs. A solution for one θ' also says, to first order, what the gain is
for others: if its player pulls the arm x_b times a slot in belief b, and v_k is the value of what follows state k,

    G(θ'') ≈ G(θ') + Σ_b x_b Σ_k [law''[b, k] · (r''_k + v_k) − law'[b, k] · (r'_k + v_k)].

On that, the nearest model takes no further solution: for a given chain the rewards have a closed form up to one root,
and the chain, of two parameters for two states, is found by Nelder and Mead's simplex in compiled code. Linearised
anew at what was found, this takes about ten solutions to come to rest. A model found so is a local minimum; several
starts make it likely that it is the smallest one, and nothing proves it.

What another model may be: the chain keeps the zeros of the true one, rewards of arms whose better states come first
keep that order, and rewards of a fixed law, which one look tells, keep their values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from restless_bandits.arrays import Array, BoolArray
from restless_bandits.limits import _kernels as kernels
from restless_bandits.limits.arena import TOLERANCE, Arena, Solved
from restless_bandits.problem import Arm

MARGIN = 1e-7
"""By how much a confusing model's gain exceeds the optimum: more than what solutions are off by."""
COARSE = 1e-5
"""Span of the last update of a solution in the first steps."""
MOST_LINEAR = 25
REST = 2e-5
"""A relative change of the distance at which it has come to rest."""
MOST_WORSE = 3
"""Steps that lead further away before the search ends with the nearest so model."""
MOST_TURNS = 250
"""Of the simplex, for each parameter of the chain."""
PENALTY = 30.0
"""For a gain that falls short, in units of the sum of all weights."""
FURTHER = 1.15
"""A model that turned out not to pay is moved away from the true one by this factor."""


@dataclass(frozen=True, eq=False)
class Confusing:
    """A model of an arm under which another policy would be better, and how far it is from the true arm."""

    arm: int
    model: Arm
    distance: float
    """Σ weights · divergence: with exploration so often, what is seen speaks for the true arm by so much."""
    gain: float


def extremes(arm: Arm) -> list[Arm]:
    """Return models to search from, which pay if any do: high rewards, and chains that seek the best state or stay."""
    n, possible = arm.n_states, arm.chain > 0
    best = np.eye(n)[[int(np.argmax(arm.rewards))] * n]
    stay, leave = np.eye(n), (1.0 - np.eye(n)) / max(1, n - 1)
    high = arm.rewards + (0.99 * (1.0 - arm.rewards) if arm.reward_law == "bernoulli" else 0.0)
    found = [replace(arm, rewards=high)] if arm.reward_law == "bernoulli" else []
    if n > 1:
        for aim, rewards in ((best, arm.rewards), (0.9 * stay + 0.1 * best, arm.rewards), (stay, high), (leave, high)):
            # Moves that cannot be made leave their share to the rest of the row.
            rows = np.where(possible, 0.9 * aim + 0.1 * arm.chain + 1e-3, 0.0)
            found.append(replace(arm, transitions=rows / rows.sum(axis=1, keepdims=True), rewards=rewards))
    return found


def divergence(arm: Arm, model: Arm, cap: int, *, most: bool = False) -> Array:
    """Return for each belief of an arm how far a model is from it by one look: state seen and reward.

    The last belief stands for all waits from the cap on, and has the stationary laws; with ``most`` it has the largest
    divergence of any of them.
    """
    rewards = np.zeros(arm.n_states)
    if arm.reward_law == "bernoulli":
        rewards = np.array([kernels.reward_divergence(a, b) for a, b in zip(arm.rewards, model.rewards, strict=True)])

    def of(length: int) -> Array:
        law, other = kernels.laws_of(arm.chain, length), kernels.laws_of(model.chain, length)
        shown = np.where(law > 0, law * np.where(law > 0, rewards, 0.0), 0.0)
        return np.asarray(kernels.divergence(law, other) + shown.sum(axis=1))

    found = of(cap)
    if most and cap > 1:
        longer = of(8 * cap)
        rows = longer[:-1].reshape(arm.n_states, -1)
        found[-1] = max(longer[-1], float(rows[:, cap - 1 :].max()))
    return found


def nearest_confusing(
    arena: Arena, arm: int, weights: Array, start: Arm, *, margin: float = MARGIN
) -> Confusing | None:
    """Return a confusing model of an arm that is nearest for some weights, searched from one; None if none pays.

    ``weights[b]`` is for the beliefs of the arena, and none may be negative. Where ``start`` does not pay, it is moved
    away from the true arm until it does.
    """
    true = arena.problem.arms[arm]
    assert isinstance(true, Arm)
    best: Confusing | None = None
    looked = weights > 0
    model, worse, excess = start, 0, 1.0
    for _ in range(MOST_LINEAR):
        # As long as a model pays far too much, its solution need not be precise.
        tolerance = min(COARSE, max(TOLERANCE, 1e-3 * excess))
        paying = _paying(arena, arm, true, model, arena.gain + 0.3 * margin, tolerance)
        if paying is None:
            break
        model, solved = paying
        excess = solved.gain - arena.gain
        distance = float(divergence(true, model, arena.caps[arm])[looked] @ weights[looked])
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
    """A model that pays, the given one or one further away from the true arm, with its solution."""
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
    """Return the model that lies so much of the way from one to another, beyond it for a share above one."""
    chain = np.maximum(true.chain + share * (model.chain - true.chain), np.where(true.chain > 0, 1e-12, 0.0))
    rewards = np.clip(true.rewards + share * (model.rewards - true.rewards), 0.0, 1.0)
    return replace(true, transitions=chain / chain.sum(axis=1, keepdims=True), rewards=rewards)


def _step(arena: Arena, arm: int, true: Arm, model: Arm, solved: Solved, weights: Array, target: float) -> Arm:
    """The nearest model whose gain, linear around the present one, reaches the target."""
    cap, n = arena.caps[arm], true.n_states
    law, other = kernels.laws_of(true.chain, cap), kernels.laws_of(model.chain, cap)
    size = len(law)
    pulls, worth = solved.play.pulls[arm, :size].copy(), solved.play.worth[arm, :size, :n].copy()
    here = float((worth * other).sum() + pulls @ other @ model.rewards)
    possible = true.chain > 0
    search = kernels.Search(
        law=law,
        rewards=np.array(true.rewards),
        weights=weights,
        possible=possible,
        ordered=bool((np.diff(true.rewards) <= 0).all()),
        fixed=true.reward_law == "fixed",
        cap=cap,
        pulls=pulls,
        worth=worth,
        constant=solved.gain - here,
        target=target,
        penalty=PENALTY * float(weights.sum()),
    )
    logits = _logits(model.chain, possible)
    most = MOST_TURNS * max(1, len(logits))
    _, logits, _ = kernels.nearest_model(logits, search, most)
    # Once more from a fresh simplex, as one may have grown flat.
    _, logits, rewards = kernels.nearest_model(logits, search, most)
    chain = kernels.chain_of(logits, possible)
    return replace(true, transitions=chain, rewards=rewards.clip(0.0, 1.0))


def _logits(chain: Array, possible: BoolArray) -> Array:
    found = []
    for row, can in zip(chain, possible, strict=True):
        moves = np.flatnonzero(can)
        found.append(np.log(np.maximum(row[moves[:-1]], 1e-12) / max(row[moves[-1]], 1e-12)))
    return np.concatenate(found) if found else np.zeros(0)
