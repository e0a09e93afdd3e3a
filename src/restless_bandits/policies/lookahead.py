"""The policy ``lp-update``: a linear program over the next slots in each slot, rounded to whole arms.

The program takes the present fractions of arms in every (kind, state), follows their expectation for some slots under
the budget in each of them, and pays the end by the bias of the relaxed problem. Only the first slot is played (Gast,
Gaujal, Yan 2024). Few kinds keep the program small, however many arms there are; a slot takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.model.layout import Layout
from restless_bandits.policies.observed import CountedPolicy

LOOKAHEAD_SLOTS = 20


@dataclass(frozen=True, eq=False)
class FlowProgram:
    """A linear program over some slots: the expected mass in each place, and the mass pulled of it.

    Variables are, slot after slot, the mass pulled and the mass resting in every place. Only the right-hand side
    depends on the present mass.
    """

    steps: tuple[Any, Any]
    """The chains of all places, pulled and resting."""
    flow: Any
    budget: Any
    cost: Array
    slots: int

    def solved(self, mass: Array, share: float, *, at_most: bool) -> tuple[Array, Array]:
        """Return the mass that is pulled and that rests, (slot, pulled or resting, place), and the price of a pull.

        ``share`` is the mass to pull in every slot; a price is the loss of reward by one pull less in a slot.
        """
        size = len(mass)
        most = np.full(self.slots, share)
        right = np.concatenate([mass, np.zeros(size * (self.slots - 1))])
        if at_most:
            given: dict[str, Any] = {"A_ub": self.budget, "b_ub": most, "A_eq": self.flow, "b_eq": right}
        else:
            both = scipy.sparse.vstack([self.flow, self.budget])
            given = {"A_eq": both, "b_eq": np.append(right, most)}
        found = scipy.optimize.linprog(self.cost, **given, method="highs")
        if found.status != 0:
            raise ProblemError(f"the linear program of the next slots ended without a solution: {found.message}")
        prices = found.ineqlin.marginals if at_most else found.eqlin.marginals[len(right) :]
        return np.asarray(found.x).reshape(self.slots, 2, size), -np.asarray(prices)


def flow_program(
    layout: Layout, chains: tuple[Array, Array], rewards: tuple[Array, Array], slots: int, end: Array
) -> FlowProgram:
    """Return the program of some slots; chains and rewards are those of pulling and of resting.

    Chains of all kinds stand one after the other, each flattened. ``end`` holds the value of each place at the end.
    """
    size = layout.size
    ends = np.cumsum(layout.n_states**2)[:-1]

    def steps(chains: Array) -> Any:
        square = [part.reshape(n, n) for part, n in zip(np.split(chains, ends), layout.n_states, strict=True)]
        return scipy.sparse.block_diag(square, format="csr")

    active, passive = map(steps, chains)
    here = scipy.sparse.identity(size)
    blocks: list[list[Any]] = [[None] * (2 * slots) for _ in range(slots)]
    for slot in range(slots):
        blocks[slot][2 * slot] = blocks[slot][2 * slot + 1] = here
        if slot:
            blocks[slot][2 * slot - 2], blocks[slot][2 * slot - 1] = -active.T, -passive.T
    once = np.concatenate([np.ones(size), np.zeros(size)])
    budget = scipy.sparse.kron(scipy.sparse.identity(slots), once[None]).tocsr()
    paid = np.tile(np.concatenate(rewards), slots)
    paid[-2 * size : -size] += active @ end
    paid[-size:] += passive @ end
    return FlowProgram((active, passive), scipy.sparse.bmat(blocks, format="csr"), budget, -paid, slots)


@dataclass(frozen=True, eq=False, repr=False)
class LookaheadPolicy(CountedPolicy):
    """Pull as a linear program over the next slots does in its first slot."""

    layout: Layout
    active: Array
    """Chains of all kinds when pulled, one after the other, each flattened."""
    passive: Array
    active_rewards: Array
    """Mean rewards of a pull, over places."""
    passive_rewards: Array
    bias: Array
    """The value of the end, over places."""
    plays: int
    at_most: bool = False
    slots: int = LOOKAHEAD_SLOTS

    @cached_property
    def _program(self) -> FlowProgram:
        chains, rewards = (self.active, self.passive), (self.active_rewards, self.passive_rewards)
        return flow_program(self.layout, chains, rewards, self.slots, self.bias)

    def pulled_mass(self, mass: Array) -> Array:
        """Return the mass to pull in each place in the present slot."""
        return np.asarray(np.clip(self._solved(mass)[0, 0], 0.0, mass))

    def path_end(self, mass: Array, programs: int) -> Array:
        """Return the mass at the end of the expected path of so many programs, each played for all of its slots."""
        steps = self._program.steps
        for _ in range(programs):
            pulled, rested = self._solved(mass)[-1].clip(0.0)
            mass = np.asarray(pulled @ steps[0] + rested @ steps[1])
            mass /= mass.sum()
        return mass

    def _solved(self, mass: Array) -> Array:
        return self._program.solved(mass, self.plays / self.layout.n_arms, at_most=self.at_most)[0]

    def pulls(self, numbers: IntArray) -> IntArray:
        n_arms = self.layout.n_arms
        wished = self.pulled_mass(numbers / n_arms) * n_arms
        total = int(min(self.plays, round(wished.sum()))) if self.at_most else self.plays
        return rounded(wished, numbers, total)

    def to_arrays(self) -> dict[str, Any]:
        tables = {name: getattr(self, name) for name in _TABLES}
        numbers = {name: np.array(getattr(self, name)) for name in ("plays", "at_most", "slots")}
        return self.layout.to_arrays() | tables | numbers

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        layout = Layout.from_arrays(arrays)
        tables = {name: arrays[name] for name in _TABLES}
        squares = int((layout.n_states**2).sum())
        for name, table in tables.items():
            shape = (squares if name in ("active", "passive") else layout.size,)
            if table.shape != shape or table.dtype != np.float64 or not np.isfinite(table).all():
                raise ValueError(f"{name} does not fit the kinds")
        plays = check_int("plays", arrays["plays"].tolist(), 0, layout.n_arms)
        return cls(layout, **tables, plays=plays, at_most=bool(arrays["at_most"]), slots=int(arrays["slots"]))


_TABLES = ("active", "passive", "active_rewards", "passive_rewards", "bias")


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
