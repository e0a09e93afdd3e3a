"""Small problems written out: every joint belief that can be reached, with its transitions as a sparse matrix.

Two questions are answered here. What does a given policy earn, from the start: the chain it makes may have several
recurrent classes (a myopic player locks onto an arm), so each class is solved and weighted by the probability of ending
there. And what can be earned at best where arms have several recurrent classes or a period: then the optimum
depends on where one starts, no bracket over all beliefs closes, and the problem is split into its maximal end
components, inside which a player can stay for ever and the gain is constant. Each component is solved by value
iteration with bounds, and by policy iteration where the chains are too slow for that; which of them to aim for is a
reachability problem, solved by policy iteration. Work is bounded by counts of sweeps and of linear systems, and the
answer is proved wherever they end.

However they were found, the answers are proved afterwards, with D the mean change in a step and its errors bounded as
in ``_enclosure``.

*Ending in a class.* Let ĥ be what was found, |D ĥ| ≤ ρ outside of the classes, and w ≥ 0 with D w ≤ −c there and w = 0
inside. Then ĥ ± max (ρ/c)·w are a super- and a submartingale, so ĥ is off by at most that: the inverse of I − Q has no
negative entry. For w we take the expected number of moves from one belief to another, and not of slots, so that a
belief which is hardly ever left costs nothing.

*The optimum.* Let g be constant on each component, D g < 0 for every choice that may leave one, and g ≥ reward + D b
for every choice that stays, b any function. Then no policy earns more than g(x) from x on: g(X_t) is a supermartingale,
and b + M·g pays for whatever exceeds it, if M is large enough. The values found, plus a multiple of the most moves that
any policy can make, are such a g.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts load when they are first used, which is not at every start

from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.oracles.enclosure import UNIT, DistributionErrors, ErrorSteps, sums
from restless_bandits.policies.policies import Policy
from restless_bandits.processes.beliefs import JointBeliefs

MOST_BELIEFS = 200_000
MOST_NUMBERED = 2**62
"""Combinations of the beliefs of all arms, whether they can be reached or not, that can have a number each."""
MOST_SWEEPS, FEWEST_SWEEPS = 2_000, 100
"""Steps of value iteration, as bounds hold after any number; and those after which it is first asked for progress."""
MOST_POLICIES = 100
"""Steps of policy iteration, likewise."""
MOST_SWEPT = 1_000_000_000
"""Chances that value iteration inside of components takes in, over all sweeps: some seconds."""
MOST_SETTLED, MOST_SOLVED = 30, 1_000_000
"""Steps of policy iteration inside of components, and beliefs in the linear systems of all steps, two a step."""
LOST = 1e-12
"""A difference of two solutions of one system that is beyond the rounding of a sound solver."""
TINY = 1e-18
"""What makes an inequality strict where any number above zero does."""
REFINEMENTS = 2
"""Corrections of the solution of a linear system by its residual."""
LONG = 1e6
"""Slots of the horizon whose value orders the choices of a multichain problem: gains first, then bias."""


class TooLargeError(Exception):
    """More joint beliefs than an explicit solution is made for."""


@dataclass(frozen=True)
class Explored:
    """Joint beliefs reached from the start (row 0), and what every choice leads to.

    ``matrix`` has one row for each pair of a choice and a belief, choice by choice; ``reward`` and ``tv_error``
    likewise, with the mean reward and the total variation that truncation may have added to the distribution.
    ``relative`` and ``moved`` bound all that the distribution is off by: see ``DistributionErrors``.
    """

    beliefs: IntArray
    matrix: Any
    reward: Array
    tv_error: Array
    n_choices: int
    plays: int
    relative: Array
    moved: Array

    @property
    def size(self) -> int:
        return len(self.beliefs)

    @cached_property
    def steps(self) -> ErrorSteps:
        return ErrorSteps(self.matrix, self.reward, self.relative, self.moved, self.plays)


def explore(
    joint: JointBeliefs,
    policy: Policy | None = None,
    most: int = MOST_BELIEFS,
    errors: Sequence[DistributionErrors] | None = None,
    *,
    every: bool = False,
) -> Explored:
    """Follow a policy, or every action, from the start through all joint beliefs that can occur.

    With ``every`` those count too that can follow in truth and not by the distributions as they are truncated: the
    matrix then has zeros for them. Without ``errors`` nothing is said of what the distributions are off by.
    """
    support = joint
    if every and errors is not None:
        arms = [
            replace(arm, distribution=one.possible.astype(float)) for arm, one in zip(joint.arms, errors, strict=True)
        ]
        support = JointBeliefs(arms, joint.plays)
    sizes = [arm.size for arm in joint.arms]
    if math.prod(sizes) > MOST_NUMBERED:
        raise TooLargeError
    weights = np.array([math.prod(sizes[i + 1 :]) for i in range(len(sizes))], dtype=np.int64)
    frontier = joint.start[None, :]
    # A set, because slow chains are explored in thousands of thin layers.
    known = set((frontier @ weights).tolist())
    layers = [frontier]
    while len(frontier):
        after = np.concatenate(
            [states[probability > 0] for states, probability, _ in _choices(support, frontier, policy)]
        )
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

    rows, columns, probabilities, rewards, deviations = [], [], [], [], []
    offs: list[Array] = []
    may_follow = (
        [probability > 0 for _, probability, _ in _choices(support, beliefs, policy)] if support is not joint else []
    )
    for choice, (after, probability, pulled) in enumerate(_choices(joint, beliefs, policy)):
        # What has no probability to follow was not visited: any place will do for it.
        target = order[np.searchsorted(sorted_keys, after @ weights).clip(max=len(order) - 1)]
        rows.append(np.repeat(np.arange(len(beliefs)) + choice * len(beliefs), after.shape[1]))
        columns.append(target.reshape(-1))
        probabilities.append(probability.reshape(-1))
        reward, tv_error, off = np.zeros(len(beliefs)), np.zeros(len(beliefs)), np.zeros((2, len(beliefs)))
        # Products of probabilities, and sums of those that lead to the same place.
        off[0] = (joint.plays + after.shape[1]) * UNIT
        for i, arm in enumerate(joint.arms):
            hit = (pulled == i).any(axis=1)
            reward[hit] += arm.reward[beliefs[hit, i], 1]
            tv_error[hit] += arm.tv_error[beliefs[hit, i], 1]
            if errors is not None:
                off[:, hit] += np.stack([errors[i].relative, errors[i].moved])[:, beliefs[hit, i]]
        rewards.append(reward)
        deviations.append(np.minimum(tv_error, 1.0))
        offs.append(off)
    entries = np.concatenate(probabilities), np.concatenate(rows), np.concatenate(columns)
    if may_follow:
        mask = np.concatenate([follows.reshape(-1) for follows in may_follow])
        entries = entries[0][mask], entries[1][mask], entries[2][mask]
    shape = (len(rewards) * len(beliefs), len(beliefs))
    matrix = scipy.sparse.csr_array((entries[0], (entries[1], entries[2])), shape=shape)
    if not may_follow:
        matrix.eliminate_zeros()
    relative, moved = np.concatenate(offs, axis=1)
    moved = np.minimum(moved, 1.0)
    reward, tv_error = np.concatenate(rewards), np.concatenate(deviations)
    return Explored(beliefs, matrix, reward, tv_error, len(rewards), joint.plays, relative, moved)


def _choices(joint: JointBeliefs, beliefs: IntArray, policy: Policy | None) -> list[tuple[IntArray, Array, IntArray]]:
    """For each choice (one for a policy, else one an action): successors, their probabilities, the arms pulled.

    Rows of a policy's choice may come from different actions, so outcomes are padded with probabilities of zero.
    """
    if policy is None:
        every = (np.broadcast_to(action, (len(beliefs), joint.plays)) for action in joint.actions)
        return [(*joint.successors(beliefs, a), pulled) for a, pulled in enumerate(every)]
    states = np.stack([arm.last_state[beliefs[:, i]] for i, arm in enumerate(joint.arms)], axis=1)
    slots = np.stack([arm.elapsed[beliefs[:, i]] for i, arm in enumerate(joint.arms)], axis=1)
    pulled = policy.choose(states, slots)
    widest = int(np.prod(sorted((arm.n_states for arm in joint.arms), reverse=True)[: joint.plays]))
    after = np.repeat(beliefs[:, None, :], widest, axis=1)
    probability = np.zeros((len(beliefs), widest))
    for a, action in enumerate(joint.actions):
        here = np.flatnonzero((pulled == action).all(axis=1))
        if here.size:
            some, probabilities = joint.successors(beliefs[here], a)
            after[here] = some[:, :1]
            after[here, : some.shape[1]] = some
            probability[here, : some.shape[1]] = probabilities
    return [(after, probability, pulled)]


class ChainGain(NamedTuple):
    """What a policy earns a slot from the start, and how far off that may be.

    ``error`` is proved where there are several recurrent classes. Where there is one it leaves out rounding, which
    ``rounding`` adds.
    """

    gain: float
    error: float
    rounding: float
    classes: int


def chain_gain(explored: Explored) -> ChainGain:
    """Solve the chain of a policy: the gain of each recurrent class, weighted by the probability of ending there.

    The gain of a class is bounded by the residuals of its linear system. The error accounts for truncation inside each
    class by the spread of the bias, as in value iteration.
    """
    closed, label = _closed_classes(explored)
    recurrent = np.isin(label, closed)
    found, biases = np.zeros((explored.size, 2)), np.zeros(explored.size)
    for component in closed:
        members = np.flatnonzero(label == component)
        matrix, reward = explored.matrix[members][:, members], explored.reward[members]
        try:
            gain, bias = _gain_and_bias(matrix, reward)
        except RuntimeError:
            gain, bias = math.nan, np.zeros(0)
        if not (math.isfinite(gain) and np.isfinite(bias).all()):
            # A matrix that is singular in doubles; any bias will do for a bound.
            gain, bias = float(reward.mean()), np.zeros(members.size)
        residual = reward + matrix @ bias - bias
        error = max(float(np.ptp(residual)), abs(float(residual.mean()) - gain))
        spread = float(np.ptp(bias)) + explored.plays
        found[members] = gain, error + float(explored.tv_error[members].max()) * spread
        biases[members] = bias
    rate, off = explored.steps.rates(biases)
    proved = float((np.abs(rate - found[:, 0]) + off)[recurrent].max()) + 4 * UNIT * explored.plays
    transient = np.flatnonzero(~recurrent)
    if len(closed) > 1:
        gain, error = _ending(explored, transient, found[:, 0], proved)
        return ChainGain(gain, error, 0.0, len(closed))
    own = found[np.flatnonzero(recurrent)[0]].copy()
    if label[0] not in closed:
        leaving = explored.matrix[transient]
        system = scipy.sparse.eye_array(transient.size) - leaving[:, transient]
        try:
            found[transient] = scipy.sparse.linalg.splu(system.tocsc()).solve(leaving @ found)
        except RuntimeError:
            found[0] = np.nan
        if not abs(found[0, 0] - own[0]) <= LOST:
            # The way there cannot change the gain: a solver that says so has lost a small probability in 1 − p.
            found[0] = own
    gain, error = (float(value) for value in found[0])
    return ChainGain(gain, error, max(0.0, proved + abs(gain - float(own[0])) - error), 1)


def _ending(explored: Explored, transient: IntArray, gains: Array, proved: float) -> tuple[float, float]:
    """What is earned from the start on the way to several classes, whose gains are known to ``proved``; its error."""
    rows = explored.matrix[transient].tocoo()
    moves = rows.col != transient[rows.row]
    entries = rows.data[moves], (rows.row[moves], rows.col[moves])
    out = sums(entries[1][0], entries[0], transient.size)
    leaving = scipy.sparse.csr_array(entries, shape=rows.shape)
    nothing = 0.5 * explored.plays, 0.5 * explored.plays
    value, moved = gains.copy(), np.zeros(explored.size)
    try:
        solver = scipy.sparse.linalg.splu((scipy.sparse.diags_array(out) - leaving[:, transient]).tocsc())
    except RuntimeError:
        return nothing
    value[transient] = solver.solve(leaving @ value)
    for _ in range(REFINEMENTS):
        value[transient] += solver.solve(explored.steps.drift(value)[0][transient])
    moved[transient] = solver.solve(out)
    gain = float(value[0])
    if not (np.isfinite(value).all() and np.isfinite(moved).all() and 0 <= gain <= explored.plays):
        return nothing
    error = proved + _multiple(explored.steps, np.abs, value, moved, transient) * float(moved[0])
    return gain, min(error, max(gain, explored.plays - gain))


def _multiple(steps: ErrorSteps, size: Any, values: Array, moved: Array, rows: IntArray) -> float:
    """How many times ``moved`` outweighs the change of the values in some rows, all of them; infinite if not proved."""
    change, off = steps.drift(values)
    fall, slack = steps.drift(moved)
    left, least = (size(change) + off)[rows], -(fall + slack)[rows]
    if moved.min() < 0 or not (least > 0).all():
        return math.inf
    return max(0.0, float((left / least).max(initial=0.0))) * (1 + 8 * UNIT) + TINY


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
    gains, bias = _gains_and_biases(matrix, reward, np.zeros(len(reward), dtype=np.int64))
    return float(gains[0]), bias


def _gains_and_biases(matrix: Any, reward: Array, reference: IntArray) -> tuple[Array, Array]:
    """Solve g + h = r + P h for chains that do not meet, each with one recurrent class and h = 0 in its reference.

    ``reference`` holds the state of reference of every state's chain. The diagonal of I − P is the sum of the
    probabilities to move, and residuals come from differences, so a probability of 1e-14 to leave a belief is not lost.
    """
    size = len(reward)
    moves = matrix.tocoo()
    moving = moves.row != moves.col
    source, there, probability = moves.row[moving], moves.col[moving], moves.data[moving]
    out = sums(source, probability, size)
    # h is zero in a reference, so its column is free to carry the gain.
    first = np.zeros(size)
    first[reference] = 1.0
    carry = scipy.sparse.csr_array((np.ones(size), (np.arange(size), reference)), shape=(size, size))
    leaving = scipy.sparse.csr_array((probability, (source, there)), shape=(size, size))
    system = (scipy.sparse.diags_array(out) - leaving) @ scipy.sparse.diags_array(1.0 - first) + carry
    solver = scipy.sparse.linalg.splu(system.tocsc())
    bias, gains, left = np.zeros(size), np.zeros(size), reward
    for _ in range(1 + REFINEMENTS):
        step = solver.solve(left)
        gains, step[reference] = gains + step[reference], 0.0
        bias = bias + step
        left = reward + sums(source, probability * (bias[there] - bias[source]), size) - gains
    return gains, bias


def chain_bias(explored: Explored) -> Array | None:
    """Return the bias of a policy over the beliefs it reaches.

    None if the policy may end in several classes, or if the beliefs of its class hardly meet: a singular system.
    """
    if len(_closed_classes(explored)[0]) > 1:
        return None
    try:
        return _gain_and_bias(explored.matrix, explored.reward)[1]
    except RuntimeError:
        return None


@dataclass(frozen=True)
class MultichainAnswer:
    """A bound of the best gain from the start, proved, and for every explored belief an action and a long value.

    ``value`` orders choices, gains first, and ``gain`` is what it holds for the start; neither is proved.
    """

    gain: float
    upper: float
    action: IntArray
    value: Array
    components: int


def solve_multichain(explored: Explored, tolerance: float, parts: EndComponents | None = None) -> MultichainAnswer:
    """Bound the best gain from the start of a problem whose optimum may depend on it, and look for who earns it.

    ``parts`` are the end components of a problem with the same matrix, if they are known.
    """
    parts = EndComponents(explored) if parts is None else parts.of(explored)
    found = _component_gains(parts, tolerance)
    # What a slow chain earns at last may be more than it pays within the horizon, so values are those of few slots.
    value = np.where(parts.inside, found.bias, 0.0)
    if (found.most - found.least)[1:].max(initial=0.0) > tolerance:
        found = _settled(parts, found, tolerance)
    gains = _reach(parts, found.least, moves=False)
    action = _multichain_actions(parts, found, gains)
    upper = _proved_upper(parts, found.bias)
    return MultichainAnswer(float(gains[0]), upper, action, LONG * gains + value, parts.count - 1)


def _proved_upper(parts: EndComponents, bias: Array) -> float:
    """A gain that no policy exceeds from the start; infinite where nothing is proved."""
    steps, stays = parts.explored.steps, parts.stays.reshape(-1)
    rate, off = steps.rates(bias)
    high = np.full(parts.count, -np.inf)
    np.maximum.at(high, np.tile(parts.component, parts.explored.n_choices)[stays], (rate + off)[stays])
    values, moved = _reach(parts, high, moves=False), _reach(parts, np.zeros(parts.count), moves=True)
    if not (np.isfinite(values).all() and np.isfinite(moved).all()):
        return math.inf
    short = max(0.0, float((high[parts.component] - values)[parts.inside].max()))
    times = _multiple(steps, np.asarray, values, moved, np.flatnonzero(~stays))
    upper = float(values[0]) + short
    # A start inside a component that nothing leaves needs no move, even where none is proved to end.
    upper += times * float(moved[0]) if (~stays).any() else 0.0
    return upper + 4 * UNIT * (1.0 + abs(upper))


class _Exits(NamedTuple):
    """The choices that may leave a component, or begin outside of all, and their moves to other nodes."""

    node: IntArray
    """The node of each choice."""
    choice: IntArray
    """The choice of each move."""
    there: IntArray
    probability: Array

    def change(self, values: Array) -> Array:
        """Return the mean change of the values by each choice."""
        parts = self.probability * (values[self.there] - values[self.node[self.choice]])
        return sums(self.choice, parts, self.node.size)


class EndComponents:
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
        self.node = np.where(self.inside, self.component - 1, self.count - 2 + np.cumsum(~self.inside))
        """Components and the beliefs outside of them, numbered together: where to go is chosen between these."""
        exits = np.flatnonzero(~self.stays.reshape(-1))
        rows = explored.matrix[exits].tocoo()
        there, left = self.node[rows.col], self.node[exits % n]
        moves = there != left[rows.row]
        self.exits = _Exits(left, rows.row[moves], there[moves], rows.data[moves])

    def of(self, explored: Explored) -> EndComponents:
        """Return the components of another problem, of which only the rewards differ."""
        other = copy.copy(self)
        other.explored = explored
        return other

    @cached_property
    def ways(self) -> tuple[IntArray, IntArray, IntArray]:
        """The belief, the action and the next belief of each step of positive probability, for actions that stay."""
        rows = self.explored.matrix.tocoo()
        stays = self.stays.reshape(-1)[rows.row] & (rows.data > 0)
        action, source = np.divmod(rows.row[stays].astype(np.int64), self.explored.size)
        return source, action, rows.col[stays].astype(np.int64)

    def rates(self, bias: Array) -> tuple[Array, Array]:
        """``[action, belief]``: reward and mean change of the bias, −∞ for actions that leave; their errors."""
        rate, off = self.explored.steps.rates(bias)
        return np.where(self.stays, rate.reshape(self.stays.shape), -np.inf), off.reshape(self.stays.shape)

    def staying(self, bias: Array) -> Array:
        """``[action, belief]``: reward and bias that follow an action that stays, −∞ for others."""
        table = (self.explored.reward + self.explored.matrix @ bias).reshape(self.stays.shape)
        return np.where(self.stays, table, -np.inf)

    def leaving(self, values: Array) -> Array:
        """``[action, belief]``: the mean value after an action that may leave, −∞ for others."""
        return np.where(self.stays, -np.inf, (self.explored.matrix @ values).reshape(self.stays.shape))


class _Gains(NamedTuple):
    """A bias, the least and the most that each component gains a slot, and the action that earns the least."""

    bias: Array
    least: Array
    most: Array
    action: IntArray


def _ends(parts: EndComponents, change: Array) -> tuple[Array, Array]:
    """The least and the most change of a bias in each component."""
    inside, component = parts.inside, parts.component
    low, high = np.full(parts.count, np.inf), np.full(parts.count, -np.inf)
    np.minimum.at(low, component[inside], change[inside])
    np.maximum.at(high, component[inside], change[inside])
    return low, high


def _component_gains(parts: EndComponents, tolerance: float) -> _Gains:
    """Value iteration inside all components at once, given up where the sweeps that are left will not do.

    Whether they will is asked after a number of sweeps that doubles, from how the residual fell since the last time.
    """
    bias, earlier, asked = np.zeros(parts.explored.size), math.inf, FEWEST_SWEEPS
    most = max(FEWEST_SWEEPS, min(MOST_SWEEPS, MOST_SWEPT // max(1, parts.explored.matrix.nnz)))
    for sweep in range(1, most + 1):
        table = parts.staying(bias)
        change = np.where(parts.inside, table.max(axis=0) - bias, 0.0)
        low, high = _ends(parts, change)
        residual = float((high - low)[1:].max(initial=0.0))
        if residual <= tolerance:
            break
        if sweep == FEWEST_SWEEPS // 2:
            earlier = residual
        if sweep == asked:
            if hopeless(earlier, residual, tolerance, sweep - asked // 2, most - sweep):
                break
            earlier, asked = residual, 2 * asked
        # Lazy steps, less the component's own gain, so that periodic play settles and values stay small.
        middle = np.concatenate([[0.0], 0.5 * (low[1:] + high[1:])])
        bias = np.where(parts.inside, bias + 0.9 * (change - middle[parts.component]), 0.0)
    return _Gains(bias, low, high, table.argmax(axis=0))


def hopeless(earlier: float, now: float, enough: float, sweeps: int, left: float) -> bool:
    """Whether a residual that fell so far in some sweeps will not be small enough after those that are left."""
    if not 0.0 < now < earlier:
        return now > enough
    return math.log(now / enough) * sweeps > left * math.log(earlier / now)


def _settled(parts: EndComponents, found: _Gains, tolerance: float) -> _Gains:
    """Policy iteration inside all components at once: for each the narrowest of the brackets that were met.

    In a component every belief can be reached from every other, so each policy is changed to end in the best of its
    recurrent classes. What a choice is better by must exceed the rounding of the comparison.
    """
    action, best = found.action, found
    inside = np.flatnonzero(parts.inside)
    for _ in range(min(MOST_SETTLED, 1 + MOST_SOLVED // (2 * len(action)))):
        solved = settled_policy(parts, action, inside)
        if solved is None:
            break
        action, bias = solved
        rate, off = parts.rates(bias)
        low, high = _ends(parts, rate.max(axis=0))
        narrower = high - low < best.most - best.least
        here = narrower[parts.component] & parts.inside
        best = _Gains(
            np.where(here, bias, best.bias),
            np.where(narrower, low, best.least),
            np.where(narrower, high, best.most),
            np.where(here, action, best.action),
        )
        if (best.most - best.least)[1:].max() <= tolerance:
            break
        everywhere = np.arange(len(action))
        kept = (rate + off)[action, everywhere]
        pick = (rate - off).argmax(axis=0)
        better = parts.inside & ((rate - off)[pick, everywhere] > kept)
        if not better.any():
            break
        action = np.where(better, pick, action)
    return best


def settled_policy(parts: EndComponents, action: IntArray, inside: IntArray) -> tuple[IntArray, Array] | None:
    """A policy changed so that each component has one recurrent class, the best it had, and its bias.

    None where the linear systems are singular.
    """
    n = parts.explored.size
    matrix = parts.explored.matrix[action[inside] * n + inside][:, inside]
    matrix.eliminate_zeros()
    reward = parts.explored.reward[action[inside] * n + inside]
    count, label = scipy.sparse.csgraph.connected_components(matrix, directed=True, connection="strong")
    closed = np.ones(count, dtype=bool)
    edges = matrix.tocoo()
    closed[label[edges.row[label[edges.row] != label[edges.col]]]] = False
    recurrent = np.flatnonzero(closed[label])
    first = np.full(count, -1, dtype=np.int64)
    first[label[recurrent[::-1]]] = np.arange(recurrent.size)[::-1]
    try:
        gains, _ = _gains_and_biases(matrix[recurrent][:, recurrent], reward[recurrent], first[label[recurrent]])
        if not np.isfinite(gains).all():
            return None
        # The recurrent belief of the largest gain stands for each component, and all others lead to its class.
        home = np.full(parts.count, -1, dtype=np.int64)
        order = np.argsort(gains, kind="stable")
        home[parts.component[inside[recurrent[order]]]] = recurrent[order]
        reference = home[parts.component[inside]]
        done = np.zeros(n, dtype=bool)
        done[inside[label == label[reference]]] = True
        own = parts.ways[1] == action[parts.ways[0]]
        done |= _steps_towards(parts.ways[0][own], parts.ways[2][own], np.flatnonzero(done), n) >= 0
        action = _leading_to(parts, action, np.flatnonzero(done))
        matrix = parts.explored.matrix[action[inside] * n + inside][:, inside]
        gains, found = _gains_and_biases(matrix, parts.explored.reward[action[inside] * n + inside], reference)
    except RuntimeError:
        return None
    if not (np.isfinite(gains).all() and np.isfinite(found).all()):
        return None
    bias = np.zeros(n)
    bias[inside] = found
    return action, bias


def _leading_to(parts: EndComponents, action: IntArray, done: IntArray) -> IntArray:
    """A policy that takes a shortest way to some beliefs from all others of their components."""
    source, choice, there = parts.ways
    ahead = _steps_towards(source, there, done, len(action))
    leads = ahead[source] == there
    changed = action.copy()
    # The first of several actions that do.
    changed[source[leads][::-1]] = choice[leads][::-1]
    return changed


def _steps_towards(source: IntArray, there: IntArray, done: IntArray, size: int) -> IntArray:
    """The next belief on a shortest way to some beliefs, along edges; negative for these, and where there is no way."""
    rows, columns = np.append(there, np.full(done.size, size)), np.append(source, done)
    graph = scipy.sparse.csr_array((np.ones(rows.size), (rows, columns)), shape=(size + 1, size + 1))
    _, before = scipy.sparse.csgraph.breadth_first_order(graph, size)
    ahead = before[:size].astype(np.int64)
    return np.where(ahead == size, -1, ahead)


def _reach(parts: EndComponents, stay: Array, *, moves: bool) -> Array:
    """Best expected value of the component one ends in, from every belief, by policy iteration.

    ``stay`` is what each component is worth, and a component counts as a single belief. With ``moves`` every move from
    one to another is worth 1 besides. Not numbers where the linear systems are singular.
    """
    exits = parts.exits
    count = int(parts.node.max()) + 1
    ends = np.full(count, -np.inf)
    ends[: parts.count - 1] = stay[1:]
    out = sums(exits.choice, exits.probability, exits.node.size)
    pays = out if moves else np.zeros(out.size)
    matrix = scipy.sparse.csr_array((exits.probability, (exits.choice, exits.there)), shape=(out.size, count))
    chosen = np.full(count, -1)
    chosen[exits.node] = np.arange(out.size)
    chosen[: parts.count - 1] = -1
    for _ in range(MOST_POLICIES):
        goes = np.flatnonzero(chosen >= 0)
        picked = scipy.sparse.csr_array((np.ones(goes.size), (goes, chosen[goes])), shape=(count, out.size)) @ matrix
        diagonal, right = np.ones(count), ends.copy()
        diagonal[goes], right[goes] = out[chosen[goes]], pays[chosen[goes]]
        try:
            solver = scipy.sparse.linalg.splu((scipy.sparse.diags_array(diagonal) - picked).tocsc())
        except RuntimeError:
            return np.full(parts.node.size, np.nan)
        values = solver.solve(right)
        for _ in range(REFINEMENTS):
            left = ends - values
            left[goes] = (pays + exits.change(values))[chosen[goes]]
            values = values + solver.solve(left)
        worth = values[exits.node] + np.divide(pays + exits.change(values), out, out=np.zeros(out.size), where=out > 0)
        top, pick = np.full(count, -np.inf), np.full(count, -1)
        np.maximum.at(top, exits.node, worth)
        best = worth == top[exits.node]
        pick[exits.node[best]] = np.flatnonzero(best)
        better = np.maximum(top, ends) > values + 32 * UNIT * (1.0 + np.abs(values))
        if not better.any():
            break
        chosen = np.where(better, np.where(ends >= top, -1, pick), chosen)
    return np.asarray(values[parts.node])


def _multichain_actions(parts: EndComponents, found: _Gains, values: Array) -> IntArray:
    """A policy that earns ``values``: stay where staying is best, else walk to an exit and take it."""
    settled = parts.inside & (values <= found.least[parts.component] + 1e-12)
    ahead = parts.leaving(values)
    action: IntArray = np.where(settled, found.action, ahead.argmax(axis=0))
    done = settled | (ahead.max(axis=0) >= values - 1e-12)
    return _leading_to(parts, action, np.flatnonzero(done))
