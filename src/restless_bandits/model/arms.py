"""Arms: a Markov chain, or a table of state distributions, with a mean reward for each state.

The slot standard is stated at the head of ``problem``. The chain of a *reacting* arm takes another step in a slot in
which the arm is pulled. An arm may pay in slots without a pull, and a pull after a slot without a pull may cost.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.blocks import last_sums
from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.validation import (
    Array,
    check_int,
    is_whole,
    positive,
    probability,
)
from restless_bandits.model import markov
from restless_bandits.model.checks import (
    ARM_REMEDIES,
    PAGE,
    RESTED_REMEDIES,
    check_distributions,
    check_text,
    finite_numbers,
    keywords_of,
    read_only,
    refuse_first,
    refusing_keywords,
)
from restless_bandits.model.rewards import (
    REWARD_LAWS,
    ZERO_TO_ONE,
    Range,
    RewardLaw,
    checked_range,
    checked_spread,
    chosen_law,
    normalized_rewards,
    outside,
    range_within,
    rewards_or_costs,
)
from restless_bandits.model.support import ARM_FEATURES

SMALLEST = 1e-150
"""Smaller probabilities of transitions count as zero: no run will ever see such a transition."""


def proper_chains(transitions: Array) -> Array:
    """Return transition matrices in their normalized form: see ``Arm.chain``."""
    possible = np.where(transitions < SMALLEST, 0.0, transitions)
    return np.asarray(possible / last_sums(possible)[..., None])


@dataclass(frozen=True, eq=False)
class BaseArm:
    """The common part of all arms: mean rewards, name, initial state or none, distribution and range of the rewards."""

    rewards: Array
    name: str = dataclasses.field(default="", kw_only=True)
    initial: int | None = dataclasses.field(default=None, kw_only=True)
    reward_law: RewardLaw = dataclasses.field(default="bernoulli", kw_only=True)
    reward_range: Range = dataclasses.field(default=ZERO_TO_ONE, kw_only=True)
    reward_spread: float | None = dataclasses.field(default=None, kw_only=True)
    passive_rewards: Array | None = dataclasses.field(default=None, kw_only=True)
    setup_cost: float = dataclasses.field(default=0.0, kw_only=True)
    count: int = dataclasses.field(default=1, kw_only=True)
    in_costs: bool = dataclasses.field(default=False, init=False)
    """Whether the arm was stated by costs: its rewards are the negative costs, and outputs show costs."""

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

    @property
    def reacts(self) -> bool:
        """Whether a pull changes the step of the arm."""
        return False

    @property
    def features(self) -> tuple[str, ...]:
        """The fields beyond those of an uncontrolled chain that differ from their defaults: see ``support``."""
        return ()

    @property
    def initial_given(self) -> int | list[float] | None:
        """The initial state or distribution as given: the value of ``initial`` in a TOML file."""
        return self.initial

    @property
    def mean_rewards(self) -> Array:
        """Mean rewards by state and action; action 0 rests, action 1 pulls."""
        resting = np.zeros(self.n_states) if self.passive_rewards is None else self.passive_rewards
        return read_only(np.column_stack([resting, self.rewards]))

    @cached_property
    def limiting_matrix(self) -> Array:
        """Row s is the long-run share of time in each state, starting from s, of a reacting arm without pulls."""
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

    def _shown(self, dynamics: str) -> str:
        """The arm as a Python expression, ``dynamics`` included; default values are left out."""
        fields: tuple[tuple[str, Any], ...] = (
            ("name", ""),
            ("initial", None),
            ("reward_law", "bernoulli"),
            ("reward_range", ZERO_TO_ONE),
            ("reward_spread", None),
            ("setup_cost", 0.0),
            ("count", 1),
        )
        values = vars(self) | {"initial": self.initial_given}
        means = self.stated()
        if self.in_costs:
            fields = tuple(
                ("cost_range", ZERO_TO_ONE) if key == "reward_range" else (key, none) for key, none in fields
            )
            values["cost_range"] = means["cost_range"]
        others = [f"{key}={values[key]!r}" for key, default in fields if values.get(key, default) != default]
        word = "costs" if self.in_costs else "rewards"
        return f"{type(self).__name__}({', '.join([dynamics, f'{word}={means[word].tolist()}', *others])})"

    def stated(self) -> dict[str, Any]:
        """Return the means, their range and the means without a pull by the keywords that state them: rewards or
        costs.
        """
        low, high = self.reward_range
        if not self.in_costs:
            return {"rewards": self.rewards, "reward_range": self.reward_range, "passive_rewards": self.passive_rewards}
        passive = None if self.passive_rewards is None else 0.0 - self.passive_rewards
        # 0 − x, and not −x, which may be −0.
        return {"costs": 0.0 - self.rewards, "cost_range": (0.0 - high, 0.0 - low), "passive_costs": passive}

    def named(self, name: str) -> Self:
        """Return the same arm under another name."""
        other = copy.copy(self)
        object.__setattr__(other, "name", name)
        return other

    def normalized_to(self, common: Range, *, at_rest: bool = False) -> Self:
        """Return the same arm with rewards as shares of a range that contains the arm's own range.

        With ``at_rest`` the rewards of slots without a pull become shares as well, also where they are zero.
        """
        other = copy.copy(self)
        ends = range_within(self.reward_range, common)
        object.__setattr__(other, "rewards", read_only(np.clip(normalized_rewards(self.rewards, common), *ends)))
        object.__setattr__(other, "reward_range", ends)
        low, width = common[0], common[1] - common[0]
        if at_rest:
            object.__setattr__(other, "passive_rewards", read_only((self.mean_rewards[:, 0] - low) / width))
        object.__setattr__(other, "setup_cost", self.setup_cost / width)
        return other

    def of_count(self, count: int) -> Self:
        """Return the same kind of arm with another number of arms."""
        other = copy.copy(self)
        object.__setattr__(other, "count", count)
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
        Row s is the distribution of the state one slot after s, if the arm is not pulled in s.
    rewards
        Mean rewards of a pull by state within ``reward_range``, best first unless the arm reacts or is observed.
    costs, cost_range, passive_costs
        The same in place of ``rewards``, ``reward_range`` and ``passive_rewards``, for numbers to minimize. The rewards
        of the arm are the negative costs, and outputs show costs.
    active_transitions
        The same as ``transitions`` for a slot with a pull; by default ``transitions``.
    passive_rewards
        Mean rewards of a slot without a pull, by state, with the distribution and range of ``rewards``; by default
        such a slot pays nothing.
    setup_cost
        The cost of a pull in a slot after a slot without a pull, and of the first pull.
    count
        The number of arms of this kind. Twelve arms of a kind with the name ``a`` are called ``a-01`` to ``a-12``; a
        single arm keeps the name of its kind.
    name
        The name of the arm; a problem calls arms without a name by their numbers.
    initial
        The state one step before slot 1, if known, or its distribution. By default the stationary distribution of
        ``transitions``; of several, the limit from the uniform distribution.
    reward_law
        ``bernoulli`` (one of the ends of the range), ``fixed``, ``bounded`` or ``beta``: see ``rewards``. By default
        ``bernoulli`` for the range (0, 1), and for other ranges ``beta`` with a warning.
    reward_range
        The lowest and the highest reward that the arm can pay, in your units; by default (0, 1).
    reward_spread
        The standard deviation of a ``beta`` distribution as a share of the largest possible, strictly between 0 and 1.

    """

    transitions: Array = dataclasses.field(kw_only=True)
    active_transitions: Array | None = dataclasses.field(default=None, kw_only=True)
    _start: Array | None = dataclasses.field(default=None, init=False)

    @refusing_keywords("Arm", ARM_REMEDIES)
    def __init__(
        self,
        transitions: npt.ArrayLike,
        rewards: npt.ArrayLike | None = None,
        *,
        costs: npt.ArrayLike | None = None,
        active_transitions: npt.ArrayLike | None = None,
        passive_rewards: npt.ArrayLike | None = None,
        passive_costs: npt.ArrayLike | None = None,
        setup_cost: float = 0.0,
        count: int = 1,
        name: str = "",
        initial: int | npt.ArrayLike | None = None,
        reward_law: RewardLaw | None = None,
        reward_range: Sequence[float] | None = None,
        cost_range: Sequence[float] | None = None,
        reward_spread: float | None = None,
    ) -> None:
        check_text(name, "arm: name")
        object.__setattr__(self, "name", name)
        given = rewards_or_costs(self._label, rewards, costs, reward_range, cost_range, passive_rewards, passive_costs)
        rewards, reward_range, passive_rewards = given
        object.__setattr__(self, "in_costs", costs is not None)
        unit = ZERO_TO_ONE if costs is None else (-1.0, 0.0)
        reward_law, reward_spread = chosen_law(self._label, rewards, reward_law, reward_range, reward_spread, unit)
        state = None if isinstance(initial, Sequence | np.ndarray) and not isinstance(initial, str) else initial
        self._set_common(rewards, name, state, reward_law, reward_range, reward_spread)  # type: ignore[arg-type]
        passive = self._checked_chain(transitions, "transitions")
        object.__setattr__(self, "transitions", passive)
        if initial is not state:
            self._set_start(initial)
        if active_transitions is not None:
            active = self._checked_chain(active_transitions, "active_transitions")
            object.__setattr__(self, "active_transitions", None if np.array_equal(active, passive) else active)
        if passive_rewards is not None:
            self._set_passive_rewards(passive_rewards)
        if setup_cost != 0.0:
            object.__setattr__(self, "setup_cost", positive(self._label + "setup_cost", setup_cost, or_zero=True))
        if count != 1:
            object.__setattr__(self, "count", check_int(self._label + "count", count))

    def _checked_chain(self, given: npt.ArrayLike, word: str) -> Array:
        matrix = finite_numbers(given, self._label + word, 2)
        n = self.n_states
        if matrix.shape != (n, n):
            raise ProblemError(
                f"{self._label}{word} has {matrix.shape[0]} rows of {matrix.shape[1]} entries, but there are "
                f"{n} rewards; give {n} rows of {n}"
            )
        check_distributions(matrix, self._label + word)
        return read_only(matrix)

    def _set_start(self, given: Any) -> None:
        """Keep an initial distribution; a distribution of a single state is that state."""
        start = finite_numbers(given, self._label + "initial", 1)
        if len(start) != self.n_states:
            raise ProblemError(
                f"{self._label}initial has {len(start)} entries, but there are {self.n_states} states; give a state, "
                "or a probability for each state"
            )
        check_distributions(start, self._label + "initial")
        if start.max() == 1.0 and np.count_nonzero(start) == 1:
            object.__setattr__(self, "initial", int(start.argmax()))
        else:
            object.__setattr__(self, "_start", read_only(start))

    def _set_passive_rewards(self, given: npt.ArrayLike) -> None:
        means = finite_numbers(given, self._label + "passive_rewards", 1)
        if len(means) != self.n_states:
            raise ProblemError(
                f"{self._label}passive_rewards has {len(means)} entries, but there are {self.n_states} rewards; give "
                "one for each state"
            )
        low, high = self.reward_range
        why = f"is {{:.12g}}; means must lie between {low:.12g} and {high:.12g}, as those of rewards"
        refuse_first(self._label + "passive_rewards", means, outside(means, (low, high)), why)
        # A mean of zero at an end of the range always pays zero, as does an arm without passive rewards.
        if means.any() or 0.0 not in (low, high):
            object.__setattr__(self, "passive_rewards", read_only(means))

    @classmethod
    @refusing_keywords("Arm.rested", RESTED_REMEDIES, set(keywords_of(__init__)) - {"active_transitions"})
    def rested(cls, transitions: npt.ArrayLike, rewards: npt.ArrayLike | None = None, **options: Any) -> Self:
        """Return an arm whose state changes in slots with a pull only: the arm of the classical Markovian bandit.

        ``options`` are those of ``Arm`` other than ``active_transitions``.
        """
        n = len(finite_numbers(transitions, "arm: transitions", 2))
        return cls(np.eye(n), rewards, active_transitions=transitions, **options)

    @classmethod
    @refusing_keywords(
        "Arm.two_state", dict.fromkeys({*ARM_REMEDIES, *keywords_of(__init__)}, f"Arm states such arms ({PAGE})")
    )
    def two_state(
        cls,
        stay_best: float,
        stay_worst: float,
        rewards: tuple[float, float] | None = None,
        *,
        costs: tuple[float, float] | None = None,
        name: str = "",
        initial: int | None = None,
        reward_law: RewardLaw | None = None,
        reward_range: Sequence[float] | None = None,
        cost_range: Sequence[float] | None = None,
        reward_spread: float | None = None,
    ) -> Self:
        """Return a two-state arm from the probabilities of staying in its best and in its worst state.

        By default the arm pays 1 and 0.
        """
        label = f"arm {name!r}: " if name else "arm: "
        for word, value in (("stay_best", stay_best), ("stay_worst", stay_worst)):
            probability(label + word, value)
        # 1 − p as a person would write it: 0.3 for 0.7, not 0.30000000000000004.
        leave_best, leave_worst = (round(1.0 - stay, 15) for stay in (stay_best, stay_worst))
        rows = [[stay_best, leave_best], [leave_worst, stay_worst]]
        paying: Any = {"reward_law": reward_law, "reward_range": reward_range, "reward_spread": reward_spread}
        means = (1.0, 0.0) if rewards is None and costs is None else rewards
        return cls(rows, means, costs=costs, cost_range=cost_range, name=name, initial=initial, **paying)

    @cached_property
    def chain(self) -> Array:
        """The normalized transition matrix. Rows sum to one as nearly as doubles can. Probabilities below 1e-150 are
        zero: no run will ever see such a transition, and ratios of these numbers would overflow.
        """
        return read_only(proper_chains(self.transitions))

    @cached_property
    def active_chain(self) -> Array:
        """The normalized transition matrix of slots with a pull; ``chain`` unless the arm reacts."""
        return self.chain if self.active_transitions is None else read_only(proper_chains(self.active_transitions))

    @property
    def reacts(self) -> bool:
        return self.active_transitions is not None

    @property
    def features(self) -> tuple[str, ...]:
        if self.active_transitions is self.passive_rewards is self._start is None and not self.setup_cost:
            return ()
        given = (self.active_transitions, self.passive_rewards, self.setup_cost or None, self._start)
        return tuple(word for word, value in zip(ARM_FEATURES, given, strict=True) if value is not None)

    @property
    def one_step(self) -> Array:
        return self.chain

    @cached_property
    def stationary(self) -> Array:
        """The stationary distribution of an arm that is not pulled; of several, the limit from the uniform
        distribution.
        """
        return read_only(self.limiting_matrix.mean(axis=0))

    @property
    def initial_distribution(self) -> Array:
        """The distribution of the state one step before slot 1."""
        if self.initial is not None:
            return np.asarray(np.eye(self.n_states)[self.initial])
        return self.stationary if self._start is None else np.asarray(self._start / self._start.sum())

    @property
    def is_stationary_at_start(self) -> bool:
        """Whether the arm starts from the stationary distribution of an arm that is not pulled."""
        return self.initial is None and self._start is None

    @property
    def initial_given(self) -> int | list[float] | None:
        if self._start is None:
            return self.initial
        given: list[float] = self._start.tolist()
        return given

    def changed(self, transitions: npt.ArrayLike | None = None, rewards: npt.ArrayLike | None = None) -> Arm:
        """Return the same arm with another chain, other mean rewards, or both."""
        found = Arm(
            self.transitions if transitions is None else transitions,
            self.rewards if rewards is None else rewards,
            name=self.name,
            initial=self.initial,
            reward_law=self.reward_law,
            reward_range=self.reward_range,
            reward_spread=self.reward_spread,
        )
        object.__setattr__(found, "in_costs", self.in_costs)
        return found

    def state_distributions(self, length: int) -> Array:
        """Return ``laws[τ][s]`` for τ = 0..length: the distribution of the state τ slots after a pull that saw s, by
        powers of the chain.

        An arm with an unknown initial state has one more row, s = n_states, for an arm never pulled; an arm that reacts
        or has a set-up cost always has, because its initial state is no pull.
        """
        stack = powers = markov.powers(self.chain, length)
        if self.reacts:
            stack = np.concatenate([powers[:1], self.active_chain @ powers[:-1]])
        if self.initial is None and self._start is None:
            unseen = np.broadcast_to(self.stationary, (length + 1, 1, self.n_states))
            stack = np.concatenate([stack, unseen], axis=1)
        elif self.initial is None or self.reacts or self.setup_cost:
            stack = np.concatenate([stack, (self.initial_distribution @ powers)[:, None]], axis=1)
        return stack

    def hashed_parts(self) -> tuple[Any, ...]:
        numbers = "arm", self.transitions.tobytes(), *super().hashed_parts()
        given = (self.active_transitions, self.passive_rewards, self.setup_cost or None, self._start)
        more = [
            (word, value.tobytes() if isinstance(value, np.ndarray) else value)
            for word, value in zip(ARM_FEATURES, given, strict=True)
            if value is not None
        ]
        if self.count > 1:
            more.append(("count", self.count))
        return (*numbers, *itertools.chain.from_iterable(more))

    def __repr__(self) -> str:
        arrays = [(word, getattr(self, word)) for word in ("transitions", "active_transitions")]
        arrays += [(word, value) for word, value in self.stated().items() if word.startswith("passive")]
        return self._shown(", ".join(f"{word}={array.tolist()}" for word, array in arrays if array is not None))


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
            raise ProblemError(f"{self._label}laws holds no distributions for τ = 1; give at least one")
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
        return self._shown(f"laws=<{self.length} distributions of {self.n_states} states>")


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
