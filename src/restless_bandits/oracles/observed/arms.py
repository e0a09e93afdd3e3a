"""What planners of observed arms read of a problem: kinds of arms as arrays, the layout of their states, the budget.

A problem of a million arms is a few arrays here, so planners never loop over arms.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.model.kinds import KindGroup
from restless_bandits.model.layout import Layout
from restless_bandits.model.problem import Problem


@dataclass(frozen=True, eq=False)
class ObservedArms:
    """The arms of a problem whose states are all observed, and the number of arms to pull in a slot."""

    groups: tuple[KindGroup, ...]
    layout: Layout
    plays: int
    at_most: bool = False
    """Whether fewer than ``plays`` arms may be pulled."""

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(problem.groups, Layout.of(problem), problem.plays, problem.at_most)

    @property
    def n_arms(self) -> int:
        return self.layout.n_arms

    def flat(self, tables: Iterable[Array]) -> Array:
        """Return tables (kind, state), one for each group, as one table over places."""
        return np.concatenate([table.reshape(-1) for table in tables])
