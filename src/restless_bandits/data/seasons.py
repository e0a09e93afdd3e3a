"""A cycle of slots cut into phases, such as the day into four parts: which phase a slot lies in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from restless_bandits.arrays import IntArray

Mask = npt.NDArray[np.bool_]
Inside = Callable[[IntArray, IntArray], Mask]
"""Which of the waits from some slots to others count."""


@dataclass(frozen=True)
class Season:
    """A cycle that is cut into phases of equal length; the phase of a slot is that in which it begins."""

    length: float
    """Of the cycle, in slots."""
    phases: int
    names: tuple[str, ...]
    start: float = 0.0
    """A slot, perhaps a broken one and before the log, at which a first phase begins."""

    def visits_of(self, slots: IntArray) -> IntArray:
        """Return the number of phases that have begun since the start, which tells stays in one phase apart."""
        # A thousandth of a slot more, as a phase may begin at a number that cannot be held.
        return np.floor((slots - self.start + 1e-3) / self.length * self.phases).astype(np.int64)

    def phases_of(self, slots: IntArray) -> IntArray:
        return np.asarray(self.visits_of(slots) % self.phases)

    def inside(self, phase: int) -> Inside:
        """Return which waits lie within a phase: from a slot in it, to one not later than its end."""

        def lies(starts: IntArray, ends: IntArray) -> Mask:
            stays = self.visits_of(starts)
            return np.asarray((stays % self.phases == phase) & (stays == self.visits_of(ends - 1)))

        return lies
