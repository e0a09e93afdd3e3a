"""Arms: a Markov chain, or a table of state distributions, with a mean reward for each state.

The slot standard is stated at the head of ``problem``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.validation import (
    Array,
    is_whole,
    probability,
)
from restless_bandits.model import markov
from restless_bandits.model.checks import check_distributions, check_text, finite_numbers, read_only, refuse_first
from restless_bandits.model.rewards import (
    REWARD_LAWS,
    ZERO_TO_ONE,
    Range,
    RewardLaw,
    checked_range,
    checked_spread,
    outside,
    range_within,
    shares_of,
)


def proper_chains(transitions: Array) -> Array:
    """Return transition matrices in their normalized form: see ``Arm.chain``."""
    possible = np.where(transitions < 1e-150, 0.0, transitions)
    return np.asarray(possible / possible.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class BaseArm:
    """The common part of all arms: mean rewards, name, initial state or none, distribution and range of the rewards."""

    rewards: Array
    name: str = dataclasses.field(default="", kw_only=True)
    initial: int | None = dataclasses.field(default=None, kw_only=True)
    reward_law: RewardLaw = dataclasses.field(default="bernoulli", kw_only=True)
    reward_range: Range = dataclasses.field(default=ZERO_TO_ONE, kw_only=True)
    reward_spread: float | None = dataclasses.field(default=None, kw_only=True)

    @property
    def n_states(self) -> int:
        """The number of states."""
        return len(self.rewards)

    @property
    def _label(self) -> str:
        return f"arm {self.name!r}: " if self.name else "arm: "

    @property
    def one_step(self) -> Array:
        """The distribution of the state one slot after each state."""
        raise NotImplementedError

    @cached_property
    def limiting_matrix(self) -> Array:
        """Row s is the long-run share of time in each state if the arm is pulled in every slot, starting from s."""
        return read_only(markov.limit_laws(self.one_step))

    @cached_property
    def is_ergodic(self) -> bool:
        """Whether an arm pulled in every slot forgets its start: one recurrent class, without a period."""
        return markov.is_ergodic(self.one_step)

    def _set_common(
        self,
        rewards: npt.ArrayLike,
        name: str,
        initial: int | None,
        reward_law: RewardLaw,
        reward_range: Sequence[float],
        reward_spread: float | None,
    ) -> None:
        check_text(name, "arm: name")
        object.__setattr__(self, "name", name)
        means = finite_numbers(rewards, self._label + "rewards", 1)
        check_known(reward_law, REWARD_LAWS, f"{self._label}unknown reward_law")
        ends = checked_range(f"{self._label}reward_range", reward_range)
        spread = checked_spread(f"{self._label}reward_spread", reward_law, reward_spread)
        why = f"is {{:.12g}}; means must lie between {ends[0]:.12g} and {ends[1]:.12g}"
        remedy = "; widen the reward_range" if ends != ZERO_TO_ONE else ", or give a reward_range such as [0, 54]"
        refuse_first(self._label + "rewards", means, outside(means, ends), why + remedy)
        if initial is not None and (not is_whole(initial) or not 0 <= initial < len(means)):
            raise ProblemError(
                f"{self._label}initial is {initial!r}; it must be a state from 0 to {len(means) - 1}, "
                "or be left out if unknown"
            )
        object.__setattr__(self, "rewards", read_only(means))
        object.__setattr__(self, "initial", None if initial is None else int(initial))
        object.__setattr__(self, "reward_law", reward_law)
        object.__setattr__(self, "reward_range", ends)
        object.__setattr__(self, "reward_spread", spread)

    def hashed_parts(self) -> tuple[Any, ...]:
        """Return the numbers of the arm, without its name, for hashes and comparisons."""
        numbers = self.rewards.tobytes(), self.initial, self.reward_law
        # Default values are left out, to keep the seeds and stored runs of arms that use them.
        if self.reward_range == ZERO_TO_ONE and self.reward_spread is None:
            return numbers
        return *numbers, self.reward_range, self.reward_spread

    def _shown(self, laws: str) -> str:
        """The arm as a Python expression, ``laws`` included; default values are left out."""
        fields = (
            ("name", ""),
            ("initial", None),
            ("reward_law", "bernoulli"),
            ("reward_range", ZERO_TO_ONE),
            ("reward_spread", None),
        )
        others = [f"{key}={getattr(self, key)!r}" for key, default in fields if getattr(self, key) != default]
        return f"{type(self).__name__}({', '.join([laws, f'rewards={self.rewards.tolist()}', *others])})"

    def named(self, name: str) -> Self:
        """Return the same arm under another name."""
        other = copy.copy(self)
        object.__setattr__(other, "name", name)
        return other

    def normalized_to(self, common: Range) -> Self:
        """Return the same arm with rewards as shares of a range that contains the arm's own range."""
        other = copy.copy(self)
        ends = range_within(self.reward_range, common)
        object.__setattr__(other, "rewards", read_only(np.clip(shares_of(self.rewards, common), *ends)))
        object.__setattr__(other, "reward_range", ends)
        return other

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, BaseArm)
        return self.name == other.name and self.hashed_parts() == other.hashed_parts()

    def __hash__(self) -> int:
        return hash((self.name, self.hashed_parts()))


@dataclass(frozen=True, eq=False)
class Arm(BaseArm):
    """A Markov chain with a mean reward for each state.

    >>> arm = Arm(transitions=[[0.7, 0.3], [0.2, 0.8]], rewards=[1, 0])
    >>> arm.state_distributions(2)[2].round(3).tolist()
    [[0.55, 0.45], [0.3, 0.7], [0.4, 0.6]]

    Parameters
    ----------
    transitions
        Row s is the distribution of the state one slot after s.
    rewards
        Mean rewards by state, best first, within ``reward_range``.
    name
        The name of the arm; a problem calls arms without a name by their numbers.
    initial
        The state one step before slot 1, if known.
    reward_law
        ``bernoulli``, ``fixed``, ``bounded`` or ``beta``: see ``rewards``.
    reward_range
        The lowest and the highest reward that the arm can pay, in your units.
    reward_spread
        The standard deviation of a ``beta`` distribution as a share of the largest possible, strictly between 0 and 1.

    """

    transitions: Array = dataclasses.field(kw_only=True)

    def __init__(
        self,
        transitions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Sequence[float] = ZERO_TO_ONE,
        reward_spread: float | None = None,
    ) -> None:
        self._set_common(rewards, name, initial, reward_law, reward_range, reward_spread)
        matrix = finite_numbers(transitions, self._label + "transitions", 2)
        n = self.n_states
        if matrix.shape != (n, n):
            raise ProblemError(
                f"{self._label}transitions has {matrix.shape[0]} rows of {matrix.shape[1]} entries, but there are "
                f"{n} rewards; give {n} rows of {n}"
            )
        check_distributions(matrix, self._label + "transitions")
        object.__setattr__(self, "transitions", read_only(matrix))

    @classmethod
    def two_state(
        cls,
        stay_best: float,
        stay_worst: float,
        rewards: tuple[float, float] = (1.0, 0.0),
        *,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Sequence[float] = ZERO_TO_ONE,
        reward_spread: float | None = None,
    ) -> Self:
        """Return a two-state arm from the probabilities of staying in its best and in its worst state."""
        label = f"arm {name!r}: " if name else "arm: "
        for word, value in (("stay_best", stay_best), ("stay_worst", stay_worst)):
            probability(label + word, value)
        # 1 − p as a person would write it: 0.3 for 0.7, not 0.30000000000000004.
        leave_best, leave_worst = (round(1.0 - stay, 15) for stay in (stay_best, stay_worst))
        rows = [[stay_best, leave_best], [leave_worst, stay_worst]]
        paying: Any = {"reward_law": reward_law, "reward_range": reward_range, "reward_spread": reward_spread}
        return cls(rows, rewards, name=name, initial=initial, **paying)

    @cached_property
    def chain(self) -> Array:
        """The normalized transition matrix. Rows sum to one as nearly as doubles can. Probabilities below 1e-150 are
        zero: no run will ever see such a transition, and ratios of these numbers would overflow.
        """
        return read_only(proper_chains(self.transitions))

    @property
    def one_step(self) -> Array:
        return self.chain

    @cached_property
    def stationary(self) -> Array:
        """The stationary distribution; of several, the limit from the uniform distribution."""
        return read_only(self.limiting_matrix.mean(axis=0))

    def changed(self, transitions: npt.ArrayLike | None = None, rewards: npt.ArrayLike | None = None) -> Arm:
        """Return the same arm with another chain, other mean rewards, or both."""
        return Arm(
            self.transitions if transitions is None else transitions,
            self.rewards if rewards is None else rewards,
            name=self.name,
            initial=self.initial,
            reward_law=self.reward_law,
            reward_range=self.reward_range,
            reward_spread=self.reward_spread,
        )

    def state_distributions(self, length: int) -> Array:
        """Return ``laws[τ][s]`` for τ = 0..length: the distribution of the state τ slots after s, by powers of the
        chain.

        An arm with an unknown initial state has one more row, s = n_states, for an arm never observed.
        """
        stack = markov.powers(self.chain, length)
        if self.initial is None:
            unseen = np.broadcast_to(self.stationary, (length + 1, 1, self.n_states))
            stack = np.concatenate([stack, unseen], axis=1)
        return stack

    def hashed_parts(self) -> tuple[Any, ...]:
        return "arm", self.transitions.tobytes(), *super().hashed_parts()

    def __repr__(self) -> str:
        return self._shown(f"transitions={self.transitions.tolist()}")


@dataclass(frozen=True, eq=False)
class TableArm(BaseArm):
    """An arm given directly by its distributions: ``laws[τ][s, k]``, the probability of state k, τ slots after s.

    ``laws[0]`` is the identity; a table without the identity at its start is read as beginning at τ = 1. Beyond its
    last entry a table is constant. An arm with an unknown initial state has one more row in every distribution, for
    "never observed". Optimistic problems with separate bounds for each colour are of this kind: their entries are not
    powers of one matrix. Table arms exist in Python only; the TOML format does not have them.
    """

    laws: Array = dataclasses.field(kw_only=True)

    def __init__(
        self,
        laws: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw = "bernoulli",
        reward_range: Sequence[float] = ZERO_TO_ONE,
        reward_spread: float | None = None,
    ) -> None:
        self._set_common(rewards, name, initial, reward_law, reward_range, reward_spread)
        table = finite_numbers(laws, self._label + "laws", 3)
        n = self.n_states
        rows = n if self.initial is not None else n + 1
        if table.shape[1:] != (rows, n):
            why = "" if self.initial is not None else " (the last row is for an arm never seen, as initial is unknown)"
            raise ProblemError(
                f"{self._label}laws holds matrices of shape {table.shape[1:]}, but {n} rewards call for "
                f"{(rows, n)}{why}"
            )
        check_distributions(table, self._label + "laws")
        if not np.array_equal(table[0, :n], np.eye(n)):
            first = np.concatenate([np.eye(n), table[0, n:]])
            table = np.concatenate([first[None], table])
        if len(table) < 2:
            raise ProblemError(f"{self._label}laws holds no law for τ = 1; give at least one")
        object.__setattr__(self, "laws", read_only(table))

    @property
    def one_step(self) -> Array:
        return self.laws[1, : self.n_states]

    @property
    def length(self) -> int:
        """The last τ of the table."""
        return len(self.laws) - 1

    def state_distributions(self, length: int) -> Array:
        """Return ``laws[τ][s]`` for τ = 0..length: the table truncated or extended."""
        if length <= self.length:
            return self.laws[: length + 1]
        tail = np.broadcast_to(self.laws[-1], (length - self.length, *self.laws.shape[1:]))
        return np.concatenate([self.laws, tail])

    def hashed_parts(self) -> tuple[Any, ...]:
        return "table", self.laws.shape, self.laws.tobytes(), *super().hashed_parts()

    def __repr__(self) -> str:
        return self._shown(f"laws=<{self.length} laws of {self.n_states} states>")


AnyArm = Arm | TableArm


def precompute_limits(arms: Iterable[AnyArm]) -> None:
    """Compute chains and their limits for many arms at once: the same numbers as on demand, sooner."""
    sizes: dict[int, list[Arm]] = {}
    for arm in arms:
        if isinstance(arm, Arm) and "limiting_matrix" not in vars(arm):
            sizes.setdefault(arm.n_states, []).append(arm)
    for alike in sizes.values():
        chains = proper_chains(np.array([arm.transitions for arm in alike]))
        regular = np.flatnonzero(markov.are_regular(chains))
        chains = read_only(chains[regular])
        limiting_matrix = read_only(np.repeat(markov.irreducible_laws(chains)[:, None], chains.shape[1], axis=1))
        stationary = read_only(limiting_matrix.mean(axis=1))
        known = [alike[i] for i in regular.tolist()]
        for arm, *found in zip(known, chains, limiting_matrix, stationary, strict=True):
            vars(arm).update(zip(("chain", "limiting_matrix", "stationary"), found, strict=True), is_ergodic=True)
