"""Small problems written out: every joint belief that can be reached, with its transitions as a sparse matrix.

Two questions are answered here. What does a given policy earn, from the start: the chain it makes may have several
recurrent classes (a myopic player locks onto an arm), so each class is solved and weighted by the chance of ending
there. And what can be earned at best where arms have several recurrent classes or a period: then the optimum
depends on where one starts, no bracket over all beliefs closes, and the problem is split into its maximal end
components, inside which a player can stay for ever and the gain is constant. Each component is solved by value
iteration with bounds; which of them to aim for is a reachability problem, iterated from below and from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its parts load when they are first used, which is not at every start

from restless_bandits.arrays import Array, BoolArray, IntArray
from restless_bandits.beliefs import JointBeliefs
from restless_bandits.policies import Policy

MOST_BELIEFS = 200_000
MOST_SWEEPS = 20_000
"""Steps of value iteration: bounds hold after any number of them."""
LONG = 1e6
"""Slots of the horizon whose value orders the choices of a multichain problem: gains first, then bias."""


class TooLargeError(Exception):
    """More joint beliefs than an explicit solution is made for."""


@dataclass(frozen=True)
class Explored:
    """Joint beliefs reached from the start (row 0), and what every choice leads to.

    ``matrix`` has one row for each pair of a choice and a belief, choice by choice; ``reward`` and ``deviation``
    likewise, with the mean reward and the total variation that capping may have added to the law.
    """

    beliefs: IntArray
    matrix: Any
    reward: Array
    deviation: Array
    n_choices: int
    plays: int

    @property
    def size(self) -> int:
        return len(self.beliefs)


def explore(joint: JointBeliefs, policy: Policy | None = None, most: int = MOST_BELIEFS) -> Explored:
    """Follow a policy, or every action, from the start through all joint beliefs that can occur."""
    sizes = [arm.size for arm in joint.arms]
    if math.prod(sizes) > 2**62:
        raise TooLargeError
    weights = np.array([math.prod(sizes[i + 1 :]) for i in range(len(sizes))], dtype=np.int64)
    frontier = joint.start[None, :]
    # A set, because slow chains are explored in thousands of thin layers.
    known = set((frontier @ weights).tolist())
    layers = [frontier]
    while len(frontier):
        after = np.concatenate([states[chance > 0] for states, chance, _ in _choices(joint, frontier, policy)])
        _, where = np.unique(after @ weights, return_index=True)
        frontier = after[where]
        keys = (frontier @ weights).tolist()
        frontier = frontier[[key not in known for key in keys]]
        known.update(keys)
        if len(known) > most:
            raise TooLargeError
        layers.append(frontier)
    beliefs = np.concatenate(layers)
    order = np.argsort(beliefs @ weights)
    sorted_keys = (beliefs @ weights)[order]

    rows, columns, chances, rewards, deviations = [], [], [], [], []
    for choice, (after, chance, pulled) in enumerate(_choices(joint, beliefs, policy)):
        # What has no chance to follow was not visited: any place will do for it.
        target = order[np.searchsorted(sorted_keys, after @ weights).clip(max=len(order) - 1)]
        rows.append(np.repeat(np.arange(len(beliefs)) + choice * len(beliefs), after.shape[1]))
        columns.append(target.reshape(-1))
        chances.append(chance.reshape(-1))
        reward, deviation = np.zeros(len(beliefs)), np.zeros(len(beliefs))
        for i, arm in enumerate(joint.arms):
            hit = (pulled == i).any(axis=1)
            reward[hit] += arm.reward[beliefs[hit, i]]
            deviation[hit] += arm.deviation[beliefs[hit, i]]
        rewards.append(reward)
        deviations.append(np.minimum(deviation, 1.0))
    matrix = scipy.sparse.csr_array(
        (np.concatenate(chances), (np.concatenate(rows), np.concatenate(columns))),
        shape=(len(rewards) * len(beliefs), len(beliefs)),
    )
    matrix.eliminate_zeros()
    return Explored(beliefs, matrix, np.concatenate(rewards), np.concatenate(deviations), len(rewards), joint.plays)


def _choices(joint: JointBeliefs, beliefs: IntArray, policy: Policy | None) -> list[tuple[IntArray, Array, IntArray]]:
    """For each choice (one for a policy, else one an action): successors, their chances, the arms pulled.

    Rows of a policy's choice may come from different actions, so outcomes are padded with chances of zero.
    """
    if policy is None:
        every = (np.broadcast_to(action, (len(beliefs), joint.plays)) for action in joint.actions)
        return [(*joint.successors(beliefs, a), pulled) for a, pulled in enumerate(every)]
    states = np.stack([arm.last_state[beliefs[:, i]] for i, arm in enumerate(joint.arms)], axis=1)
    slots = np.stack([arm.elapsed[beliefs[:, i]] for i, arm in enumerate(joint.arms)], axis=1)
    pulled = policy.choose(states, slots)
    widest = int(np.prod(sorted((arm.n_states for arm in joint.arms), reverse=True)[: joint.plays]))
    after = np.repeat(beliefs[:, None, :], widest, axis=1)
    chance = np.zeros((len(beliefs), widest))
    for a, action in enumerate(joint.actions):
        here = np.flatnonzero((pulled == action).all(axis=1))
        if here.size:
            some, probabilities = joint.successors(beliefs[here], a)
            after[here] = some[:, :1]
            after[here, : some.shape[1]] = some
            chance[here, : some.shape[1]] = probabilities
    return [(after, chance, pulled)]


def chain_gain(explored: Explored) -> tuple[float, float, int]:
    """Return what a policy earns a slot from the start, a bound of the error, and the number of recurrent classes.

    The gain of a class is bounded by the residuals of its linear system. The error accounts for capping inside each
    class by the spread of the bias, as in value iteration; the chances of ending in each class are taken as they come
    out of the linear solver.
    """
    closed, label = _closed_classes(explored)
    found = np.zeros((explored.size, 2))
    for component in closed:
        members = np.flatnonzero(label == component)
        matrix, reward = explored.matrix[members][:, members], explored.reward[members]
        gain, bias = _gain_and_bias(matrix, reward)
        residual = reward + matrix @ bias - bias
        error = max(float(np.ptp(residual)), abs(float(residual.mean()) - gain))
        spread = float(np.ptp(bias)) + explored.plays
        found[members] = gain, error + float(explored.deviation[members].max()) * spread
    transient = np.flatnonzero(~np.isin(label, closed))
    if label[0] not in closed:
        leaving = explored.matrix[transient]
        system = scipy.sparse.eye_array(transient.size) - leaving[:, transient]
        found[transient] = scipy.sparse.linalg.splu(system.tocsc()).solve(leaving @ found)
    return float(found[0, 0]), float(found[0, 1]), len(closed)


def _closed_classes(explored: Explored) -> tuple[IntArray, IntArray]:
    """The numbers of the recurrent classes of a policy's chain, and the number of the class of each belief."""
    matrix = explored.matrix
    count, label = scipy.sparse.csgraph.connected_components(matrix, directed=True, connection="strong")
    edges = matrix.tocoo()
    leaves = np.zeros(count, dtype=bool)
    leaves[label[edges.row[label[edges.row] != label[edges.col]]]] = True
    return np.flatnonzero(~leaves).astype(np.int64), label.astype(np.int64)


def _gain_and_bias(matrix: Any, reward: Array) -> tuple[float, Array]:
    """Solve g + h = r + P h with h = 0 in the first state, for a chain with one recurrent class."""
    size = len(reward)
    # h of the first belief is zero, so its column is free to carry the gain.
    first = np.zeros(size)
    first[0] = 1.0
    carry = scipy.sparse.csc_array(np.ones((size, 1))) @ scipy.sparse.csc_array(first[None, :])
    system = (scipy.sparse.eye_array(size) - matrix) @ scipy.sparse.diags_array(1.0 - first) + carry
    bias = scipy.sparse.linalg.splu(system.tocsc()).solve(reward)
    gain, bias[0] = float(bias[0]), 0.0
    return gain, bias


def chain_bias(explored: Explored) -> Array | None:
    """Return the bias of a policy over the beliefs it reaches; None if it may end in several classes."""
    if len(_closed_classes(explored)[0]) > 1:
        return None
    return _gain_and_bias(explored.matrix, explored.reward)[1]


@dataclass(frozen=True)
class MultichainAnswer:
    """Bounds of the best gain from the start, and for every explored belief an action and a long value."""

    lower: float
    upper: float
    action: IntArray
    value: Array
    components: int


def solve_multichain(explored: Explored, tolerance: float) -> MultichainAnswer:
    """Bracket the best gain from the start of a problem whose optimum may depend on it."""
    parts = _EndComponents(explored)
    bias, low, high = _component_gains(parts, tolerance)
    value_low, value_high = _reach(parts, low, low[1:].min()), _reach(parts, high, high[1:].max())
    action = _multichain_actions(parts, low, bias, value_low)
    value = LONG * value_low + np.where(parts.inside, bias, 0.0)
    return MultichainAnswer(float(value_low[0]), float(value_high[0]), action, value, parts.count - 1)


class _EndComponents:
    """The maximal end components of a problem written out, numbered from 1; 0 stands for beliefs in none of them."""

    def __init__(self, explored: Explored) -> None:
        self.explored = explored
        n = explored.size
        edges = explored.matrix.tocoo()
        pair, target = edges.row.astype(np.int64), edges.col.astype(np.int64)
        source = pair % n
        allowed = np.ones(n * explored.n_choices, dtype=bool)
        leaving = pair
        while leaving.size:
            keep = allowed[pair]
            graph = scipy.sparse.csr_array((np.ones(int(keep.sum())), (source[keep], target[keep])), shape=(n, n))
            _, label = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")
            leaving = pair[keep & (label[source] != label[target])]
            allowed[leaving] = False
        self.stays: BoolArray = allowed.reshape(explored.n_choices, n)
        """``[action, belief]``: whether the action stays inside the component of the belief."""
        self.inside: Any = self.stays.any(axis=0)
        _, numbers = np.unique(np.where(self.inside, label, -1), return_inverse=True)
        self.component = numbers + self.inside.all()
        self.count = int(self.component.max()) + 1

    def staying(self, bias: Array) -> Array:
        """``[action, belief]``: reward and bias that follow an action that stays, −∞ for others."""
        table = (self.explored.reward + self.explored.matrix @ bias).reshape(self.stays.shape)
        return np.where(self.stays, table, -np.inf)

    def leaving(self, values: Array) -> Array:
        """``[action, belief]``: the mean value after an action that may leave, −∞ for others."""
        return np.where(self.stays, -np.inf, (self.explored.matrix @ values).reshape(self.stays.shape))


def _component_gains(parts: _EndComponents, tolerance: float) -> tuple[Array, Array, Array]:
    """Value iteration inside all components at once: bias, and bounds of the gain of each component."""
    inside, component = parts.inside, parts.component
    bias = np.zeros(parts.explored.size)
    for _ in range(MOST_SWEEPS):
        change = np.where(inside, parts.staying(bias).max(axis=0) - bias, 0.0)
        low, high = np.full(parts.count, np.inf), np.full(parts.count, -np.inf)
        np.minimum.at(low, component[inside], change[inside])
        np.maximum.at(high, component[inside], change[inside])
        if float((high - low)[1:].max(initial=0.0)) <= tolerance:
            break
        # Lazy steps, less the component's own gain, so that periodic play settles and values stay small.
        middle = np.concatenate([[0.0], 0.5 * (low[1:] + high[1:])])
        bias = np.where(inside, bias + 0.9 * (change - middle[component]), 0.0)
    return bias, low, high


def _reach(parts: _EndComponents, gains: Array, first: float) -> Array:
    """Best expected gain of the component one ends in, from every belief; components count as single beliefs."""
    inside, component = parts.inside, parts.component
    stay = np.where(inside, gains[component], -np.inf)
    values = np.full(inside.size, first)
    for _ in range(MOST_SWEEPS):
        fresh = np.maximum(stay, parts.leaving(values).max(axis=0))
        shared = np.full(gains.size, -np.inf)
        np.maximum.at(shared, component, fresh)
        fresh = np.where(inside, shared[component], fresh)
        change = float(np.abs(fresh - values).max())
        values = fresh
        if change <= 1e-15:
            break
    return values


def _multichain_actions(parts: _EndComponents, gains: Array, bias: Array, values: Array) -> IntArray:
    """A policy that earns ``values``: stay greedily where staying is best, else walk to an exit and take it."""
    settled = parts.inside & (values <= gains[parts.component] + 1e-12)
    ahead = parts.leaving(values)
    action: IntArray = np.where(settled, parts.staying(bias).argmax(axis=0), ahead.argmax(axis=0))
    done = settled | (ahead.max(axis=0) >= values - 1e-12)
    while not done.all():
        grown = done.copy()
        reaches = (parts.explored.matrix @ done.astype(float)).reshape(parts.stays.shape) > 0
        for a, stays in enumerate(parts.stays):
            closer = ~grown & stays & reaches[a]
            action[closer] = a
            grown |= closer
        if (grown == done).all():
            break
        done = grown
    return action
