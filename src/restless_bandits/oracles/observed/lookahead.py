"""The linear program over the next slots behind the policy ``lp-update``, and its rounding to whole arms.

In each slot the program takes the present fractions of arms in every (kind, state), follows their expectation for H
slots under a budget in each of them, and pays the end by the bias of the relaxed problem. Only the first slot is played
(Gast, Gaujal, Yan 2024). Few kinds keep the program small, however many arms there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.fluid import flat_rewards

SLOTS = 20


class Lookahead:
    """The program for one problem, whose right-hand side alone depends on the present counts.

    Variables are, slot after slot, the mass pulled and the mass resting in every (kind, state).
    """

    def __init__(self, arms: ObservedArms, bias: Array, slots: int = SLOTS) -> None:
        size = len(bias)
        active, passive = flat_rewards(arms)
        step_active = scipy.sparse.block_diag([chain for g in arms.groups for chain in g.active]).T
        step_passive = scipy.sparse.block_diag([chain for g in arms.groups for chain in g.passive]).T
        here = scipy.sparse.identity(size)
        blocks: list[list[Any]] = [[None] * (2 * slots) for _ in range(slots)]
        for slot in range(slots):
            blocks[slot][2 * slot] = blocks[slot][2 * slot + 1] = here
            if slot:
                blocks[slot][2 * slot - 2], blocks[slot][2 * slot - 1] = -step_active, -step_passive
        self._equal: Any = scipy.sparse.bmat(blocks, format="csr")
        once = np.concatenate([np.ones(size), np.zeros(size)])
        self._budget: Any = scipy.sparse.kron(scipy.sparse.identity(slots), once[None]).tocsr()
        paid = np.tile(np.concatenate([active, passive]), slots)
        paid[-2 * size : -size] += step_active.T @ bias
        paid[-size:] += step_passive.T @ bias
        self._cost, self._size, self._slots = -paid, size, slots
        self.arms = arms

    def pulled_mass(self, mass: Array) -> Array:
        """Return the mass to pull in each (kind, state) in the present slot."""
        budget = np.full(self._slots, self.arms.plays / self.arms.n_arms)
        right = np.concatenate([mass, np.zeros(self._size * (self._slots - 1))])
        if self.arms.at_most:
            limits: dict[str, Any] = {"A_ub": self._budget, "b_ub": budget, "A_eq": self._equal, "b_eq": right}
        else:
            limits = {"A_eq": scipy.sparse.vstack([self._equal, self._budget]), "b_eq": np.append(right, budget)}
        found = scipy.optimize.linprog(self._cost, **limits, method="highs")
        if found.status != 0:
            raise ProblemError(f"the linear program of lp-update ended without a solution: {found.message}")
        return np.asarray(np.clip(np.asarray(found.x)[: self._size], 0.0, mass))

    def pulls(self, counts: IntArray) -> IntArray:
        """Return the number of arms to pull in each (kind, state), of so many arms in each."""
        n_arms = self.arms.n_arms
        wished = self.pulled_mass(counts / n_arms) * n_arms
        total = int(min(self.arms.plays, round(wished.sum()))) if self.arms.at_most else self.arms.plays
        return rounded(wished, counts, total)


def rounded(wished: Array, most: IntArray, total: int) -> IntArray:
    """Return whole numbers near ``wished``, each at most ``most``, that sum to ``total``: the largest remainders."""
    found = np.minimum(np.floor(wished + 1e-9).astype(np.int64), most)
    while (left := total - int(found.sum())) != 0:
        room = found < most if left > 0 else found > 0
        order = np.argsort(np.where(room, np.sign(left) * (found - wished), np.inf), kind="stable")
        chosen = order[: min(abs(left), int(room.sum()))]
        if not len(chosen):
            raise ProblemError(f"{total} pulls do not fit among {int(most.sum())} arms")
        found[chosen] += np.sign(left)
    return found
