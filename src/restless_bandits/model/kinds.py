"""Kinds of arms: the arms of a kind are alike but for their names, and a problem may have very many of them.

A problem keeps its kinds. The single arms are made on demand, so a million arms need neither a million objects nor a
loop: planners and simulators take the arrays of ``KindGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.blocks import blocks, last_sums
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_ints, is_whole
from restless_bandits.model import markov
from restless_bandits.model.arms import SMALLEST, AnyArm, Arm, TableArm, proper_chains
from restless_bandits.model.checks import ROW_SUM_TOLERANCE, check_distributions, refuse_first
from restless_bandits.model.rewards import (
    ZERO_TO_ONE,
    Range,
    RewardLaw,
    checked_range,
    normalized_rewards,
    range_within,
)

PRINTED_TOLERANCE = 1.000001e-8
"""The largest distance of a row sum from one in arrays: rows printed with eight digits are divided by their sums."""
ROWS_AT_ONCE = 1 << 16
"""Kinds in a table of bytes."""


@dataclass(frozen=True, eq=False)
class KindGroup:
    """Consecutive kinds with one number of states: chains (kind, state, next state) and mean rewards (kind, state).

    A set-up cost doubles the states of an observed arm: n + s is state s after a slot with a pull, and s without.
    """

    first: int
    """The number of the first kind."""
    active: Array
    passive: Array
    active_rewards: Array
    passive_rewards: Array
    count: IntArray
    """Arms of each kind."""
    start: Array
    """The distribution of each kind's state in slot 1."""

    @property
    def n_kinds(self) -> int:
        return len(self.active_rewards)

    @property
    def n_states(self) -> int:
        return int(self.active_rewards.shape[1])

    def part(self, rows: slice) -> KindGroup:
        """Return the group of consecutive kinds of this group."""
        words = ("active", "passive", "active_rewards", "passive_rewards", "count", "start")
        return KindGroup(self.first + rows.start, *(getattr(self, word)[rows] for word in words))

    @property
    def kinds(self) -> slice:
        """The positions of the group's kinds among all kinds."""
        return slice(self.first, self.first + self.n_kinds)


def group_kinds(kinds: Sequence[AnyArm], *, setup_costs: bool = False) -> tuple[KindGroup, ...]:
    """Return the arrays of kinds: a group for each run of kinds with one number of states.

    With ``setup_costs`` the kinds with a set-up cost have every state twice.
    """
    for kind in kinds:
        if isinstance(kind, TableArm):
            raise ProblemError(f"arm {kind.name!r} is a table of distributions, which has no transition matrix")
    arms = [kind for kind in kinds if isinstance(kind, Arm)]
    sizes = [(arm.n_states, setup_costs and arm.setup_cost > 0) for arm in arms]
    ends = [0, *(i for i in range(1, len(arms)) if sizes[i] != sizes[i - 1]), len(arms)]
    return tuple(_group(first, arms[first:last], setup_costs) for first, last in pairwise(ends))


def _group(first: int, arms: Sequence[Arm], setup_costs: bool) -> KindGroup:
    means = np.array([arm.mean_rewards for arm in arms])
    passive = np.array([arm.chain for arm in arms])
    start = np.array([arm.initial_distribution for arm in arms])[:, None] @ passive
    active = np.array([arm.active_chain for arm in arms])
    count = np.array([arm.count for arm in arms])
    group = KindGroup(first, active, passive, means[:, :, 1], means[:, :, 0], count, start[:, 0])
    costs = np.array([arm.setup_cost for arm in arms])
    return _with_setup_costs(group, costs) if setup_costs and costs.any() else group


def _with_setup_costs(group: KindGroup, costs: Array) -> KindGroup:
    """Return the group with every state twice: after a slot without a pull, and after a slot with one."""
    nowhere, nothing = np.zeros_like(group.active), np.zeros_like(group.start)
    return replace(
        group,
        active=np.tile(np.concatenate([nowhere, group.active], axis=2), (1, 2, 1)),
        passive=np.tile(np.concatenate([group.passive, nowhere], axis=2), (1, 2, 1)),
        active_rewards=np.concatenate([group.active_rewards - costs[:, None], group.active_rewards], axis=1),
        passive_rewards=np.tile(group.passive_rewards, (1, 2)),
        start=np.concatenate([group.start, nothing], axis=1),
    )


def counts_of(kinds: Sequence[AnyArm]) -> IntArray:
    """Return the number of arms of each kind."""
    return kinds.counts if isinstance(kinds, ArrayKinds) else np.array([kind.count for kind in kinds])


def names_of(kinds: Sequence[AnyArm]) -> Iterable[str]:
    """Return the names of kinds."""
    if isinstance(kinds, ArrayKinds):
        return kinds.names or (kinds.name(i) for i in range(len(kinds)))
    return (kind.name for kind in kinds)


def expanded(kinds: Sequence[AnyArm]) -> Sequence[AnyArm]:
    """Return the single arms of kinds: the kinds themselves if each has one arm."""
    if not isinstance(kinds, ArrayKinds) and max(map(attrgetter("count"), kinds)) == 1:
        return kinds
    counts = counts_of(kinds)
    if (counts == 1).all():
        return kinds
    numbers = kind_numbers(kinds)
    for name, number in numbers.items():
        if counts[number] == 1 and _numbered(numbers, counts, name) is not None:
            raise ProblemError(f"two arms are called {name!r}, one of them by its number in its kind; rename the other")
    return ExpandedArms(kinds)


def kind_numbers(kinds: Sequence[AnyArm]) -> dict[str, int]:
    """Return the number of each kind by its name."""
    return {name: number for number, name in enumerate(names_of(kinds))}


def find_arm(numbers: Mapping[str, int], counts: IntArray, firsts: IntArray, name: str) -> int | None:
    """Return the position of the arm with a given name, None without one.

    ``numbers`` holds the numbers of kinds by name, ``firsts`` the position of each kind's first arm.
    """
    kind = numbers.get(name)
    place = 1 if kind is not None and counts[kind] == 1 else None
    if place is None:
        kind, place = _numbered(numbers, counts, name) or (None, None)
    return None if kind is None or place is None else int(firsts[kind]) + place - 1


def _numbered(numbers: Mapping[str, int], counts: IntArray, name: str) -> tuple[int, int] | None:
    """Return the kind and the number of an arm called by its number in its kind."""
    base, _, digits = name.rpartition("-")
    kind = numbers.get(base)
    if kind is None or counts[kind] == 1 or not (digits.isascii() and digits.isdigit()):
        return None
    count = int(counts[kind])
    return (kind, int(digits)) if len(digits) == len(str(count)) and 1 <= int(digits) <= count else None


class _OfArms:
    """The positions of single arms in their kinds."""

    def __init__(self, kinds: Sequence[AnyArm]) -> None:
        self._kinds, self._counts = kinds, counts_of(kinds)
        self._ends = np.cumsum(self._counts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _located(self, place: int) -> tuple[int, str]:
        """Return the kind of an arm, and the end of the arm's name after the name of the kind."""
        number = range(len(self))[place]
        kind = int(np.searchsorted(self._ends, number, side="right"))
        count = int(self._counts[kind])
        within = number - int(self._ends[kind]) + count + 1
        return kind, "" if count == 1 else f"-{within:0{len(str(count))}}"


class ExpandedArms(_OfArms, Sequence[AnyArm]):
    """The single arms of kinds, made on demand."""

    @overload
    def __getitem__(self, place: int) -> AnyArm: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[AnyArm, ...]: ...
    def __getitem__(self, place: int | slice) -> AnyArm | tuple[AnyArm, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        kind, end = self._located(place)
        arm = self._kinds[kind]
        return arm.of_count(1).named(arm.name + end) if end else arm


class ArmNames(_OfArms, Sequence[str]):
    """The names of single arms, made on demand."""

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        kind, end = self._located(place)
        kinds = self._kinds
        return (kinds.name(kind) if isinstance(kinds, ArrayKinds) else kinds[kind].name) + end


@dataclass(frozen=True, eq=False)
class ArrayKinds(Sequence[Arm]):
    """Kinds of one number of states as arrays (kind, …), as given; an ``Arm`` is made on demand.

    Kinds without names are called by their numbers. ``initial`` holds a state or a distribution for each kind, or None.
    """

    transitions: Array
    active_transitions: Array
    rewards: Array
    passive_rewards: Array
    counts: IntArray
    names: Sequence[str] | None
    initial: Array | IntArray | None
    reward_law: RewardLaw
    reward_range: Range

    @property
    def n_states(self) -> int:
        return int(self.rewards.shape[1])

    @cached_property
    def _given(self) -> dict[str, BoolArray]:
        """Whether each kind has each feature: as ``Arm`` decides it."""
        pays = np.zeros(len(self), dtype=bool) if 0.0 in self.reward_range else np.ones(len(self), dtype=bool)
        starts = np.zeros(len(self), dtype=bool)
        if self.initial is not None and self.initial.ndim == 2:
            starts = (self.initial != 0.0).sum(axis=1) > 1
        return {
            "active_transitions": (self.active_transitions != self.transitions).any(axis=(1, 2)),
            "passive_rewards": pays | (self.passive_rewards != 0.0).any(axis=1),
            "initial": starts,
        }

    @property
    def features(self) -> frozenset[str]:
        return frozenset(word for word, given in self._given.items() if given.any())

    def name(self, number: int) -> str:
        return f"arm {number + 1}" if self.names is None else self.names[number]

    def __len__(self) -> int:
        return len(self.rewards)

    @overload
    def __getitem__(self, place: int) -> Arm: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Arm, ...]: ...
    def __getitem__(self, place: int | slice) -> Arm | tuple[Arm, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        i = range(len(self))[place]
        return Arm(
            self.transitions[i],
            self.rewards[i],
            active_transitions=self.active_transitions[i],
            passive_rewards=self.passive_rewards[i],
            count=int(self.counts[i]),
            name=self.name(i),
            initial=None if self.initial is None else self.initial[i],
            reward_law=self.reward_law,
            reward_range=self.reward_range,
        )

    @cached_property
    def group(self) -> KindGroup:
        """The arrays of all kinds, with normalized chains."""
        n, many = self.n_states, len(self)
        passive, active = _proper(self.transitions), _proper(self.active_transitions)
        start = np.empty((many, n))
        for rows in blocks(many, n * n):
            before = _stationary(passive[rows]) if self.initial is None else self.initial[rows]
            if before.ndim == 1:
                before = np.eye(n)[before.astype(np.int64)]
            start[rows] = (before[:, None] @ passive[rows])[:, 0] / before.sum(axis=1)[:, None]
        return KindGroup(0, active, passive, self.rewards, self.passive_rewards, self.counts, start)

    def normalized_to(self, common: Range, *, at_rest: bool) -> ArrayKinds:
        """Return the kinds with rewards as shares of a range: see ``Arm.normalized_to``."""
        low, width = common[0], common[1] - common[0]
        ends = range_within(self.reward_range, common)
        rewards = np.clip(normalized_rewards(self.rewards, common), *ends)
        resting = (self.passive_rewards - low) / width if at_rest else self.passive_rewards
        return replace(self, rewards=rewards, passive_rewards=resting, reward_range=ends)

    def content(self) -> Iterator[bytes]:
        """Yield the bytes of all kinds, as ``content_bytes`` gives them for an arm.

        Consecutive kinds whose numbers stand at the same places make a table of bytes with a row for each kind.
        """
        given = self._given
        columns: list[npt.NDArray[Any]] = [*given.values(), self.counts]
        if self.initial is not None:
            columns.append(self.initial if self.initial.ndim == 1 else self.initial.argmax(axis=1))
        differs = np.zeros(len(self) - 1, dtype=bool)
        for column in columns:
            differs |= column[1:] != column[:-1]
        ends = sorted({len(self), *(np.flatnonzero(differs) + 1).tolist(), *range(0, len(self), ROWS_AT_ONCE)})
        for low, high in pairwise(ends):
            tables = [self.transitions, self.rewards]
            tables += [getattr(self, word) for word, kinds in given.items() if kinds[low]]
            rows = (np.ascontiguousarray(table[low:high]).view(np.uint8).reshape(high - low, -1) for table in tables)
            constant = (
                None if isinstance(part, bytes) else np.frombuffer(repr(part).encode(), dtype=np.uint8)
                for part in self[low].hashed_parts()
            )
            parts = []
            for part in constant:
                parts.append(next(rows) if part is None else np.broadcast_to(part, (high - low, len(part))))
                parts.append(np.full((high - low, 1), ord("|"), dtype=np.uint8))
            yield np.concatenate(parts, axis=1).tobytes()


def content_bytes(numbers: Iterable[Any]) -> bytes:
    """Return the numbers of an arm or of a change as bytes for the hash of a problem."""
    return b"".join((part if isinstance(part, bytes) else repr(part).encode()) + b"|" for part in numbers)


def _proper(chains: Array) -> Array:
    """Return the normalized form of many chains: the same array if all are normalized."""
    many, numbers = len(chains), chains[0].size
    parts = (chains[rows] for rows in blocks(many, numbers))
    if all((last_sums(part) == 1.0).all() and not ((part > 0.0) & (part < SMALLEST)).any() for part in parts):
        return chains
    found = np.empty_like(chains)
    for rows in blocks(many, numbers):
        found[rows] = proper_chains(chains[rows])
    return found


def _stationary(chains: Array) -> Array:
    """Return the stationary distribution of each chain of a stack; of several, the limit from the uniform one."""
    found = np.empty(chains.shape[:2])
    regular = markov.are_regular(chains)
    if regular.all():
        return markov.irreducible_laws(chains)
    found[regular] = markov.irreducible_laws(chains[regular])
    others, which = np.unique(chains[~regular].reshape(-1, chains[0].size), axis=0, return_inverse=True)
    limits = [markov.limit_laws(chain.reshape(chains.shape[1:])).mean(axis=0) for chain in others]
    if limits:
        found[~regular] = np.array(limits)[which.reshape(-1)]
    return found


def read_arrays(
    transitions: npt.ArrayLike,
    rewards: npt.ArrayLike,
    *,
    axes: str,
    reward_axes: str | None,
    counts: Sequence[int] | int,
    names: Sequence[str] | None,
    initial: npt.ArrayLike | None,
    reward_law: RewardLaw,
) -> ArrayKinds:
    """Return the kinds of arrays with named axes: see ``Problem.from_arrays``."""
    chains = _chains(_numbers("P", transitions), axes)
    n, n_states = chains.shape[:2]
    means = _means(_numbers("R", rewards), axes, reward_axes, n, n_states)
    counts = [counts] * n if is_whole(counts) else list(counts)  # type: ignore[arg-type, list-item]
    if names is not None:
        names = list(names)
        if len(names) != n or len(set(names)) != n or not all(isinstance(name, str) and name for name in names):
            raise ProblemError(f"names is {shortened(names)}; give {n} different texts, one for each arm")
    low, high = min(0.0, float(means.min())), max(0.0, float(means.max()))
    ends = ZERO_TO_ONE if low == 0.0 and high <= 1.0 else checked_range("the range of R", (low, high))
    kinds = ArrayKinds(
        transitions=np.ascontiguousarray(chains[:, :, 0]),
        active_transitions=np.ascontiguousarray(chains[:, :, 1]),
        rewards=np.ascontiguousarray(means[:, :, 1]),
        passive_rewards=np.ascontiguousarray(means[:, :, 0]),
        counts=np.array(check_ints("count", counts, length=n), dtype=np.int64),
        names=names,
        initial=None if initial is None else _starts(initial, n, n_states),
        reward_law=reward_law,
        reward_range=ends,
    )
    _ = kinds[0]  # Refuses an unknown reward_law.
    return kinds


def _numbers(what: str, given: npt.ArrayLike) -> Array:
    try:
        raw = np.asarray(given)
    except ValueError:
        raise ProblemError(f"{what} has rows of different lengths; give an array") from None
    if raw.dtype.kind not in "iuf" or raw.size == 0:
        raise ProblemError(f"{what} is {shortened(given)}; give an array of numbers")
    numbers = raw.astype(np.float64) + 0.0
    refuse_first(what, numbers, ~np.isfinite(numbers), "is {:.12g}; it must be a finite number")
    return numbers


def _chains(chains: Array, axes: str) -> Array:
    """Return transition probabilities by kind, state, action and next state, checked."""
    letters = sorted(axes) if isinstance(axes, str) else []
    if letters not in (sorted("nsaz"), sorted("saz"), sorted("nsa"), sorted("sa")):
        raise ProblemError(
            f"axes is {shortened(axes)}; name each axis of P once: n arm, s state, a action, z next state, without n "
            "for one arm, without z for the probabilities of state 1 of two"
        )
    if chains.ndim != len(axes):
        raise ProblemError(f"P has {chains.ndim} axes, but axes = {axes!r} names {len(axes)}")
    if "z" not in axes:
        refuse_first("P", chains, (chains < 0) | (chains > 1), "is {:.12g}; a probability must lie between 0 and 1")
        chains, axes = np.stack([1.0 - chains, chains], axis=-1), axes + "z"
    if "n" not in axes:
        chains, axes = chains[None], "n" + axes
    given = np.transpose(chains, [axes.index(axis) for axis in "nsaz"])
    sizes = dict(zip("nsaz", given.shape, strict=True))
    if sizes["a"] != 2 or sizes["z"] != sizes["s"]:
        shown = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
        raise ProblemError(
            f"P has {shown} by axes = {axes!r}; give two actions and as many next states as states, or name other axes"
        )
    sums = given.sum(axis=3)
    wrong = np.abs(sums - 1.0) > PRINTED_TOLERANCE
    if wrong.any():
        others = [axis for axis, place in (("s", 1), ("a", 2), ("n", 0)) if _sums_to_one(given, place)]
        remedy = f"along {others[0]} it does, so exchange {others[0]} and z in axes" if others else "mend its rows"
        n, s, a = (int(i) for i in np.argwhere(wrong)[0])
        raise ProblemError(
            f"P sums to {sums[n, s, a]:.12g}, not 1, along z for arm {n}, state {s}, action {a}; {remedy}"
        )
    refuse_first("P", chains, chains < 0, "is {:.12g}; a probability must lie between 0 and 1")
    printed = np.abs(sums - 1.0) > ROW_SUM_TOLERANCE
    return np.where(printed[..., None], given / sums[..., None], given) if printed.any() else given


def _sums_to_one(chains: Array, axis: int) -> bool:
    return bool(np.abs(chains.sum(axis=axis) - 1.0).max() <= PRINTED_TOLERANCE)


def _means(means: Array, axes: str, reward_axes: str | None, n: int, n_states: int) -> Array:
    """Return mean rewards by kind, state and action, from an array with some of these axes."""
    sizes = {"n": n, "s": n_states, "a": 2}
    if reward_axes is None:
        readings = ["nsa", "ns", "sa", "s"] if "n" in axes else ["sa", "s"]
        # Rewards with all axes of P, in the order of P, are as likely.
        readings.append("".join(axis for axis in axes if axis != "z"))
        fitting = sorted({one for one in readings if means.shape == tuple(sizes[axis] for axis in one)})
        if len(fitting) != 1:
            why = "can be read as " + " and as ".join(fitting) if fitting else f"fits none of {', '.join(readings)}"
            shown = ", ".join(f"{axis} = {sizes[axis]}" for axis in "nsa")
            raise ProblemError(f"R has shape {means.shape}, which {why}, with {shown}; give reward_axes")
        reward_axes = fitting[0]
    letters = set(reward_axes) if isinstance(reward_axes, str) else set()
    if not {"s"} <= letters <= set("nsa") or len(letters) != len(reward_axes):
        raise ProblemError(f"reward_axes is {shortened(reward_axes)}; give nsa, ns, sa or s, in any order")
    if means.shape != tuple(sizes[axis] for axis in reward_axes):
        raise ProblemError(
            f"R has shape {means.shape}, but reward_axes = {reward_axes!r} means "
            f"{tuple(sizes[axis] for axis in reward_axes)}"
        )
    ordered = np.transpose(means, [reward_axes.index(axis) for axis in "nsa" if axis in letters])
    missing = tuple(place for place, axis in enumerate("nsa") if axis not in letters)
    return np.broadcast_to(np.expand_dims(ordered, missing), (n, n_states, 2))


def _starts(given: npt.ArrayLike, n: int, n_states: int) -> Array | IntArray:
    """Return the initial state or the initial distribution of each kind."""
    raw = np.asarray(given)
    if raw.dtype.kind in "iu" and raw.shape in ((), (n,)):
        states = np.broadcast_to(raw.astype(np.int64), (n,))
        bad = (states < 0) | (states >= n_states)
        refuse_first("initial", states.astype(float), bad, f"is {{:g}}; it must be a state from 0 to {n_states - 1}")
        return states
    if raw.dtype.kind != "f" or raw.shape not in ((n_states,), (n, n_states)):
        raise ProblemError(
            f"initial is {shortened(given)}; give a state for each of {n} arms, or a distribution over {n_states} "
            "states, for all arms or for each"
        )
    distributions = np.broadcast_to(raw.astype(np.float64), (n, n_states))
    check_distributions(distributions, "initial")
    return np.asarray(distributions)
