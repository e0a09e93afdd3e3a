"""What an arm earns that is pulled for ever, or rests for ever: the gains of fixed arms, proved from below.

For every function h of an arm's state, the gain of a policy is at least min over s of r(s) + (P h)(s) − h(s), from any
initial state. The minimum is taken at the h of one linear solve, and lowered by the rounding of its evaluation.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.blocks import blocks, last_sums, row_max
from restless_bandits._internal.validation import Array
from restless_bandits.model.kinds import KindGroup
from restless_bandits.oracles.index_kernels import NEAR_ONE
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.relaxation import UNIT, gain_and_bias


def fixed_gains(arms: ObservedArms, discount: float = 1.0) -> tuple[Array, Array]:
    """Return proved lower bounds of the gains of each kind, pulled for ever and resting for ever."""
    pulled, resting = [], []
    for whole in arms.groups:
        for rows in blocks(whole.n_kinds, whole.n_states**2):
            group = whole.part(rows)
            pulled.append(_least(group, group.active, group.active_rewards, discount))
            resting.append(_least(group, group.passive, group.passive_rewards, discount))
    return np.concatenate(pulled), np.concatenate(resting)


def _least(group: KindGroup, chain: Array, reward: Array, discount: float) -> Array:
    n = group.n_states
    with np.errstate(all="ignore"):
        try:
            _, bias = gain_and_bias(chain, reward, np.full(len(reward), discount))
        except np.linalg.LinAlgError:
            bias = np.full_like(reward, np.inf)
        # A chain with several recurrent classes has no relative values: a discount close to one stands in.
        failed = ~(row_max(np.abs(bias)) < 1e9 * (1 + row_max(np.abs(reward))))
    if failed.any():
        _, bias[failed] = gain_and_bias(
            chain[failed], reward[failed], np.full(int(failed.sum()), min(discount, NEAR_ONE))
        )
    after = reward + discount * np.einsum("ksz,kz->ks", chain, bias)
    scale = row_max(np.abs(bias)) + row_max(np.abs(reward))
    start = (1 - discount) * last_sums(group.start * bias)
    return np.asarray(start - row_max(bias - after) - (3 * n + 8) * UNIT * scale)
