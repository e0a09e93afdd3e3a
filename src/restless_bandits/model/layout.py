"""The places of observed arms: tables over (kind, state), the states of all kinds one after the other.

A *place* is a position in such a table. Arms of one kind in one state are exchangeable, and share a place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray

if TYPE_CHECKING:
    from restless_bandits.model.problem import Problem


@dataclass(frozen=True, eq=False)
class Layout:
    """The places of arms: the number of states and the number of arms of each kind."""

    n_states: IntArray
    counts: IntArray
    kinds: IntArray | None = None
    """The number of each arm's kind; None where the arms of a kind are consecutive."""

    @classmethod
    def of(cls, problem: Problem) -> Self:
        sizes = [np.full(group.n_kinds, group.n_states) for group in problem.groups]
        return cls(np.concatenate(sizes), np.asarray(problem.kind_counts, dtype=np.int64))

    @classmethod
    def of_kinds(cls, n_states: IntArray, kinds: IntArray) -> Self:
        """Return the layout of arms given by the numbers of their kinds; a kind may have no arm."""
        counts = np.bincount(kinds, minlength=len(n_states))
        return cls(n_states, counts, None if bool((kinds[1:] >= kinds[:-1]).all()) else kinds)

    @property
    def n_arms(self) -> int:
        return len(self.first)

    @property
    def size(self) -> int:
        """The number of places."""
        return int(self.n_states.sum())

    @cached_property
    def offset(self) -> IntArray:
        """The place of each kind's state 0."""
        return np.cumsum(self.n_states) - self.n_states

    @cached_property
    def first(self) -> IntArray:
        """The place of each arm's state 0."""
        return self._of_arms(self.offset)

    @cached_property
    def sizes(self) -> IntArray:
        """The number of states of each arm."""
        return self._of_arms(self.n_states)

    @cached_property
    def kind_of_arm(self) -> IntArray:
        """The number of each arm's kind."""
        return self._of_arms(np.arange(len(self.counts)))

    def _of_arms(self, column: IntArray) -> IntArray:
        """Return a column of kinds as a column of arms."""
        if self.kinds is not None:
            return column[self.kinds]
        return column if (self.counts == 1).all() else np.repeat(column, self.counts)

    def checked(self, states: npt.ArrayLike) -> IntArray:
        """Return the states of all arms as an array."""
        given = np.asarray(states)
        if given.shape != (self.n_arms,) or given.dtype.kind not in "iu":
            raise ProblemError(f"states is {shortened(states)}; give the state of each of {self.n_arms} arms")
        wrong = (given < 0) | (given >= self.sizes)
        if wrong.any():
            arm = int(wrong.argmax())
            raise ProblemError(f"arm {arm} has no state {given[arm]}; its states are 0 to {self.sizes[arm] - 1}")
        return given.astype(np.int64)

    def numbers(self, states: IntArray) -> IntArray:
        """Return the number of arms in each place."""
        return np.bincount(self.first + states, minlength=self.size)

    def lowest(self, states: IntArray, pulls: IntArray) -> IntArray:
        """Return the arms to pull, ascending: of each place as many as ``pulls`` holds, those of lowest number."""
        places = self.first + states
        partial = (pulls > 0) & (pulls < np.bincount(places, minlength=self.size))
        chosen = (pulls > 0)[places]
        some = np.flatnonzero(partial[places])
        if len(some):
            order = some[np.argsort(places[some], kind="stable")]
            begin = np.flatnonzero(np.diff(places[order], prepend=-1))
            within = np.arange(len(order)) - np.repeat(begin, np.diff(begin, append=len(order)))
            chosen[order] = within < pulls[places[order]]
        return np.flatnonzero(chosen)

    def to_arrays(self) -> dict[str, Any]:
        own = {"n_states": self.n_states, "counts": self.counts}
        return own if self.kinds is None else own | {"kinds": self.kinds}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        sizes, counts = arrays["n_states"], arrays["counts"]
        if sizes.shape != counts.shape or sizes.dtype != np.int64 or counts.dtype != np.int64:
            raise ValueError("kinds are no numbers of states and of arms")
        if not len(sizes) or sizes.min() < 1 or counts.min() < 0 or not counts.sum():
            raise ValueError("a kind has no states, or there are no arms")
        if "kinds" not in arrays:
            return cls(sizes, counts)
        kinds = arrays["kinds"]
        if kinds.dtype != np.int64 or kinds.min() < 0 or (np.bincount(kinds) != counts[: kinds.max() + 1]).any():
            raise ValueError("the kinds of the arms do not fit the numbers of arms")
        return cls(sizes, counts, kinds)
