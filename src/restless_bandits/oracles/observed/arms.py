"""Observed arms as arrays: kinds of arms grouped by their number of states, and how many arms are of each kind.

A problem of a million arms is a few arrays here, so planners never loop over arms.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, check_ints
from restless_bandits.model.kinds import KindGroup

ROW_SUM_TOLERANCE = 1.000001e-8
"""The largest accepted distance of a row sum from one; rows are divided by their sums."""


@dataclass(frozen=True, eq=False)
class ObservedArms:
    """All arms of an observed problem and the number of arms to pull in a slot."""

    groups: tuple[KindGroup, ...]
    kind: IntArray
    """The kind of each arm."""
    plays: int
    at_most: bool = False
    """Whether fewer than ``plays`` arms may be pulled."""

    @property
    def n_arms(self) -> int:
        return len(self.kind)

    @property
    def n_kinds(self) -> int:
        return sum(group.n_kinds for group in self.groups)

    @cached_property
    def n_states(self) -> IntArray:
        """The number of states of each kind."""
        return np.concatenate([np.full(group.n_kinds, group.n_states) for group in self.groups])

    @cached_property
    def offset(self) -> IntArray:
        """The position of each kind's state 0 in flat arrays over (kind, state)."""
        return np.cumsum(self.n_states) - self.n_states

    @cached_property
    def count(self) -> IntArray:
        """The number of arms of each kind."""
        return np.concatenate([group.count for group in self.groups])

    @classmethod
    def from_arrays(
        cls,
        transitions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        plays: int,
        axes: str = "nsaz",
        count: Sequence[int] | None = None,
        at_most: bool = False,
    ) -> Self:
        """Return arms of one number of states.

        Parameters
        ----------
        transitions
            Probabilities with the axes that ``axes`` names: n kind, s state, a action (1 pulls), z next state.
            Without n there is one kind.
        rewards
            Mean rewards with the same axes less z.
        plays
            The number of arms to pull in a slot.
        axes
            The order of the axes of ``transitions``, such as ``"saz"``.
        count
            The number of arms of each kind, 1 each if left out.
        at_most
            Whether fewer than ``plays`` arms may be pulled.

        """
        if sorted(axes) not in (sorted("nsaz"), sorted("saz")):
            raise ProblemError(f"axes is {shortened(axes)}; name each of n, s, a and z once, n only for several kinds")
        chains, means = np.asarray(transitions, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
        if chains.ndim != len(axes) or means.ndim != len(axes) - 1:
            raise ProblemError(
                f"transitions has {chains.ndim} axes and rewards {means.ndim}, but axes {axes!r} name {len(axes)} and "
                f"{len(axes) - 1}"
            )
        if "n" not in axes:
            chains, means, axes = chains[None], means[None], "n" + axes
        chains = np.transpose(chains, [axes.index(axis) for axis in "nsaz"])
        of_rewards = axes.replace("z", "")
        means = np.transpose(means, [of_rewards.index(axis) for axis in "nsa"])
        n_kinds, n_states = chains.shape[:2]
        if chains.shape != (n_kinds, n_states, 2, n_states) or means.shape != (n_kinds, n_states, 2):
            raise ProblemError(
                f"transitions has shape {chains.shape} and rewards {means.shape} in the order (n, s, a, z); give two "
                "actions, as many next states as states, and a reward for each kind, state and action"
            )
        if not (np.isfinite(chains).all() and np.isfinite(means).all()):
            raise ProblemError("transitions and rewards must be finite numbers")
        sums = chains.sum(axis=3)
        if (chains < 0).any() or np.abs(sums - 1).max() > ROW_SUM_TOLERANCE:
            raise ProblemError(f"transitions must be probabilities that sum to one along z{_other_axis(chains)}")
        chains = chains / sums[..., None]
        counts = (
            np.ones(n_kinds, dtype=np.int64)
            if count is None
            else np.array(check_ints("count", list(count), 1, length=n_kinds), dtype=np.int64)
        )
        check_int("plays", plays, 0 if at_most else 1, int(counts.sum()), "the number of arms")
        parts = [np.ascontiguousarray(chains[:, :, action]) for action in (1, 0)]
        parts += [np.ascontiguousarray(means[:, :, action]) for action in (1, 0)]
        start = np.full((n_kinds, n_states), 1 / n_states)
        group = KindGroup(0, parts[0], parts[1], parts[2], parts[3], counts, start)
        return cls((group,), np.repeat(np.arange(n_kinds), counts), plays, at_most)

    def flat(self, tables: Iterable[Array]) -> Array:
        """Return tables (kind, state), one for each group, as one flat array over (kind, state)."""
        return np.concatenate([table.reshape(-1) for table in tables])


def _other_axis(chains: Array) -> str:
    """Return a remark if the probabilities sum to one along another axis."""
    found = [name for name, axis in (("s", 1), ("a", 2)) if np.allclose(chains.sum(axis=axis), 1, atol=1e-6)]
    return f"; they do along {found[0]}, so exchange {found[0]} and z in axes" if found else ""
