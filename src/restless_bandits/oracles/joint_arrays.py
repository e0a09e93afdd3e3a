"""Value iteration over small tables of joint beliefs with NumPy, where compiling ``_joint.sweep_rows`` takes longer.

Results are those of ``_joint.sweep_rows`` to the last bit: every number is computed by the same operations in the same
order, on all joint beliefs of a table at once.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.oracles.joint_kernels import STEP, Iterate
from restless_bandits.policies.policies import TIE
from restless_bandits.processes.beliefs import JointBeliefs, JointDistributions


class _Truncated(NamedTuple):
    """The joint beliefs in which the distribution of an action's outcomes is known within a distance only."""

    places: IntArray
    distance: Array
    probabilities: Array
    """``[outcome, place]``."""
    payoffs: Array
    """``[outcome, place]``: the reward, without the value of the joint belief that follows."""


class _Action(NamedTuple):
    """An action in all joint beliefs. Arrays of outcomes are ``[outcome, z]``, the last arm pulled running fastest."""

    reward: Array
    after: IntArray
    probability: Array
    """The probability of what is seen of the arms pulled, without ``inner``."""
    inner: Array | None
    """The factor of the arm that runs fastest in the table, where the action pulls that arm."""
    truncated: _Truncated


class ArraySweep:
    """One step of value iteration on a whole table, as ``_joint.sweep_rows`` takes it on some rows."""

    def __init__(self, joint: JointBeliefs, distributions: JointDistributions | None = None) -> None:
        beliefs = joint.everywhere()
        distributions = joint.distributions if distributions is None else distributions
        self._actions = [_action(joint, distributions, beliefs, a) for a in range(len(joint.actions))]
        self.work = sum(action.after.size for action in self._actions)
        """Outcomes of all actions in all joint beliefs."""

    def __call__(self, iterate: Iterate, shift: float, side: int) -> tuple[float, float, float, float]:
        """Write the next values and the greedy choice, and return the four ranges of ``_joint.sweep_rows``."""
        values, improved, action = iterate
        top, optimistic, chosen_q = (np.full(len(values), -np.inf) for _ in range(3))
        chosen_least = np.empty(len(values))
        for number, (reward, after, probability, inner, truncated) in enumerate(self._actions):
            reached = values[after]
            q = reward.copy()
            for o in range(len(reached)):
                weight = probability[o] * reached[o]
                q += weight if inner is None else weight * inner[o]
            high, low = q, q
            if len(truncated.places):
                payoffs = truncated.payoffs + reached[:, truncated.places]
                high, low = q.copy(), q.copy()
                high[truncated.places] += _most_gained(truncated.probabilities, payoffs, truncated.distance)
                low[truncated.places] -= _most_gained(truncated.probabilities, -payoffs, truncated.distance)
            np.maximum(optimistic, high, out=optimistic)
            value = q if side == 0 else high if side > 0 else low
            np.maximum(top, value, out=top)
            better = value > chosen_q + TIE
            chosen_q[better], chosen_least[better], action[better] = value[better], low[better], number
        change = top - values
        improved[:] = values + STEP * (change - shift)
        lower, upper = (chosen_least - values).min(), (optimistic - values).max()
        return float(change.min()), float(change.max()), float(lower), float(upper)


def _action(joint: JointBeliefs, distributions: JointDistributions, beliefs: IntArray, number: int) -> _Action:
    """An action of a table, whose joint beliefs are given row by row."""
    size, fastest, strides = len(beliefs), joint.order[-1], joint.strides[number]
    pulled = [int(i) for i in joint.actions[number] if i != fastest]
    pulls_fastest = fastest in joint.actions[number]
    # In the order of sums and products of ``sweep_rows``: the arm that runs fastest comes last.
    ordered = [*pulled, int(fastest)] if pulls_fastest else pulled
    waits = [i for i in range(joint.n_arms) if i not in ordered]
    base = np.full(size, joint.offsets[number])
    for i in waits:
        base += strides[i] * joint.arms[i].passive[beliefs[:, i]]
    reward, distance = np.zeros(size), np.zeros(size)
    for i in ordered:
        reward += distributions.reward[i, beliefs[:, i]]
        distance += distributions.tv_error[i, beliefs[:, i]]
    outcomes = list(itertools.product(*(range(joint.arms[i].n_states) for i in ordered)))
    after = np.empty((len(outcomes), size), dtype=np.int64)
    probability, inner = np.ones((len(outcomes), size)), np.empty((len(outcomes), size))
    payoffs = np.zeros((len(outcomes), 1))
    for o, states in enumerate(outcomes):
        after[o] = base
        for i, state in zip(ordered, states, strict=True):
            after[o] += state * strides[i]
            payoffs[o] += distributions.rewards[i, state]
            seen = distributions.distribution[i, beliefs[:, i], state]
            if i == fastest:
                inner[o] = seen
            else:
                probability[o] *= seen
    places = np.flatnonzero(distance > 0.0)
    probabilities = (probability * inner if pulls_fastest else probability)[:, places]
    truncated = _Truncated(places, distance[places], probabilities, np.repeat(payoffs, len(places), axis=1))
    return _Action(reward, after, probability, inner if pulls_fastest else None, truncated)


def _most_gained(probabilities: Array, payoffs: Array, distance: Array) -> Array:
    """How far each mean of payoffs ``[outcome, place]`` can rise, as ``_joint._most_gained`` has it."""
    best = payoffs.max(axis=0)
    gained, left = np.zeros(len(distance)), distance.copy()
    below = np.full(len(distance), -np.inf)
    for _ in payoffs:
        worst = np.where(payoffs > below, payoffs, np.inf).min(axis=0)
        open_ = (left > 0.0) & (worst < best)
        if not open_.any():
            break
        mass = np.zeros(len(distance))
        for o in range(len(payoffs)):
            mass += np.where(payoffs[o] == worst, probabilities[o], 0.0)
        moved = np.where(open_, np.minimum(left, mass), 0.0)
        gained += np.where(open_, moved * (best - np.where(open_, worst, best)), 0.0)
        left -= moved
        below = worst
    return gained
