"""The observations of optimal play, and the arms that they identify.

A pull without a gap costs nothing. A player can repeat such a pull for ever if pulls without a gap alone lead back:
these pairs of joint belief and arm are the maximal end components of the pulls without a gap. In the long run any
learner gets their observations for free. An arm is *identified* if the distributions in its pulled beliefs determine
its chain, and every state's reward is observed.

A rank condition decides whether distributions determine a chain. With J the derivatives of all these distributions by
the free entries of the chain, each divided by the root of its probability, JᵀJ is Fisher's information. The smallest
singular value of J is the *margin*. Full rank excludes other chains nearby with the same distributions. A distant chain
may still have the same distributions: even waits alone cannot distinguish λ from −λ. A chain with the same
distributions is therefore also searched for from many starts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy  # its parts load when they are first used

from restless_bandits._internal.validation import Array, BoolArray
from restless_bandits.model.arms import Arm
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels
from restless_bandits.paper.regret_lower_bound.arena import Arena

LEAST_MARGIN = 1e-6
"""The smallest singular value of a determined chain."""
DERIVATIVE_STEP = 1e-6
"""Of numerical derivatives."""
TWIN_STARTS = 12
SAME_LAWS = 1e-12
"""The largest divergence, over all pulled beliefs, of equal distributions."""
APART = 1e-3
"""The least distance of different chains."""


@dataclass(frozen=True, eq=False)
class FreePlay:
    """The pulls that optimal play can repeat for ever."""

    free: BoolArray
    """``[joint belief, arm]``."""
    looked: tuple[BoolArray, ...]
    """For each arm whether it is pulled in each belief."""
    smallest: float
    """The smallest gap of all other pulls in recurrent joint beliefs of optimal play: with a zero gap there, more
    pulls would be free.
    """


def free_play(arena: Arena) -> FreePlay:
    """Return the pulls of optimal play, ties included."""
    table, distributions = arena.joint.table, arena.joint.distributions
    belief, after = arena.links
    free: BoolArray = arena.gap == 0.0
    size, n_arms = free.shape
    moves = [
        (i, after[:, i] + k * table.strides[i, i], distributions.distribution[i, belief[:, i], k] > 0)
        for i in range(n_arms)
        for k in range(int(table.n_states[i]))
    ]
    while True:
        source, target = [], []
        for i, place, can in moves:
            rows = np.flatnonzero(free[:, i] & can)
            source.append(rows)
            target.append(place[rows])
        rows, columns = np.concatenate(source), np.concatenate(target)
        graph = scipy.sparse.csr_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(size, size))
        label = scipy.sparse.csgraph.connected_components(graph, connection="strong")[1]
        kept = free.copy()
        for i, place, can in moves:
            # A pull that may lead elsewhere cannot be repeated for ever.
            kept[:, i] &= ~can | ((label[place] == label) & free[place].any(axis=1))
        if (kept == free).all():
            break
        free = kept
    looked = []
    for i, arm in enumerate(arena.joint.arms):
        one = np.zeros(arm.size, dtype=bool)
        one[belief[free[:, i], i]] = True
        looked.append(one)
    resting = free.any(axis=1)
    others = arena.gap[resting][~free[resting]]
    return FreePlay(free, tuple(looked), float(others.min(initial=np.inf)))


def margin(arm: Arm, looked: BoolArray, truncation: int) -> float:
    """Return the margin of an arm for some beliefs: 0 if these do not show every state."""
    distribution = kernels.distributions_of(arm.chain, truncation)
    if not looked.any() or not (distribution[looked] > 0).any(axis=0).all():
        return 0.0
    columns = []
    for s in range(arm.n_states):
        moves = np.flatnonzero(arm.chain[s] > 0)
        for k in moves[:-1]:
            # Half as far for a small probability, to keep all probabilities between zero and one.
            step = min(DERIVATIVE_STEP, 0.5 * arm.chain[s, k], 0.5 * arm.chain[s, moves[-1]])
            move = np.zeros_like(arm.chain)
            move[s, k], move[s, moves[-1]] = step, -step
            change = kernels.distributions_of(arm.chain + move, truncation) - kernels.distributions_of(
                arm.chain - move, truncation
            )
            columns.append((change[looked] / (2 * step) / np.sqrt(np.maximum(distribution[looked], 1e-12))).ravel())
    if not columns:
        return np.inf
    return float(np.linalg.svd(np.array(columns), compute_uv=False)[-1])


def twins(arm: Arm, looked: BoolArray, truncation: int) -> list[Arm]:
    """Return other chains with the same distributions in all pulled beliefs, as far as a search finds them."""
    possible = arm.chain > 0
    free = int(possible.sum()) - arm.n_states
    if free == 0:
        return []
    distribution = kernels.distributions_of(arm.chain, truncation)
    size, n = distribution.shape
    search = kernels.Search(
        distribution, np.array(arm.rewards), looked / looked.sum(), possible, False, True, truncation,
        np.zeros(size), np.zeros((size, n)), 0.0, 0.0, 0.0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    found: list[Array] = []
    for _ in range(TWIN_STARTS):
        distance, logits, _ = kernels.nearest_model(rng.normal(scale=2.0, size=free), search, 400 * free)
        chain = kernels.chain_of(logits, possible)
        others = [arm.chain, *found]
        if distance <= SAME_LAWS and min(float(np.abs(chain - one).max()) for one in others) > APART:
            found.append(chain)
    return [replace(arm, transitions=chain) for chain in found]
