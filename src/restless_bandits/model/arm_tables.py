"""Arms from a table with a row for each arm: see ``Problem.from_table``.

| column | content |
|---|---|
| ``name`` or ``arm`` | the name of the arm; ``arm 1``, ``arm 2``, … without this column |
| ``p_passive_s_z`` | the probability of state z after state s in a slot without a pull |
| ``p_active_s_z`` | the same in a slot with a pull; without any such column a pull changes nothing |
| ``reward_s``, ``passive_reward_s`` | the mean reward in state s with and without a pull; 0 without a pull by default |
| ``kind`` | the name of a kind of arms, in place of probabilities and rewards |
| ``initial`` | the state one step before slot 1; the stationary distribution without this column |
| ``count`` | so many arms of this kind |

Of the probabilities after a state, one may be left out: it is what the others leave. Other columns are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.cells import arm_name, floats, is_missing, length_of, listed
from restless_bandits._internal.errors import ProblemError, check_known, did_you_mean, shortened
from restless_bandits._internal.tables import Table, table_of
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.kinds import PRINTED_TOLERANCE, ArrayKinds, read_arrays
from restless_bandits.model.rewards import RewardLaw

HEADER = "name,p_passive_0_1,p_passive_1_1,p_active_0_1,p_active_1_1,reward_0,reward_1"
NAMES = ("name", "arm")
OWN = (*NAMES, "kind", "count", "initial")
PROBABILITY = re.compile(r"p_(passive|active)_(\d{1,4})_(\d{1,4})")
REWARD = re.compile(r"(passive_)?reward_(\d{1,4})")
NUMBERED = ("p_", "reward_", "passive_reward_")
"""Beginnings of columns that stand for numbers of an arm; any other column is ignored."""

Kinds = Mapping[str, Arm] | Iterable[AnyArm]


def read_table(
    source: Any,
    kinds: Kinds | None = None,
    rewards: npt.ArrayLike | None = None,
    passive_rewards: npt.ArrayLike | None = None,
    reward_law: RewardLaw = "fixed",
) -> Sequence[AnyArm]:
    """Return the kinds of arms of a table, a row each, in the order of the rows."""
    table = table_of(source, "table of arms", "row", HEADER)
    columns = _Columns.of(table, "the table of arms")
    names, counts, initial = columns.names(), columns.integers("count", 1), columns.integers("initial", 0)
    if kinds is not None:
        if rewards is not None or passive_rewards is not None:
            raise ProblemError("rewards belong to the kinds of arms; leave out rewards and passive_rewards")
        return _of_kinds(columns, kinds, names, counts, initial)
    if "kind" in table.names and not any(PROBABILITY.fullmatch(name) for name in table.names):
        raise ProblemError(f"{columns.called} names kinds of arms; give the arms of these kinds as kinds, or --kinds")
    n = columns.n_states()
    columns.check_initial(initial, n)
    given = {"reward": rewards, "passive_reward": passive_rewards}
    passive = columns.chains("passive", n)
    active = columns.chains("active", n) if any(name.startswith("p_active_") for name in table.names) else passive
    pulled, resting = (columns.rewards(word, n, means) for word, means in given.items())
    return read_arrays(
        np.stack([passive, active], axis=2),
        np.stack([resting, pulled], axis=2),
        axes="nsaz",
        reward_axes="nsa",
        counts=1 if counts is None else counts.tolist(),
        names=names,
        initial=initial,
        reward_law=reward_law,
    )


def read_states(source: Any) -> dict[str, int] | IntArray:
    """Return the states of a table with the columns ``state`` and ``name`` or ``arm``: by name, else in their order."""
    columns = _Columns.of(table_of(source, "table of states", "row", "name,state"), "the table of states")
    states, names = columns.integers("state", 0), columns.names()
    if states is None:
        raise columns.missing("state")
    return states if names is None else dict(zip(names, states.tolist(), strict=True))


def read_names(source: Any) -> list[str]:
    """Return the names of arms in a table with a column ``name`` or ``arm``."""
    columns = _Columns.of(table_of(source, "table of names", "row", "name"), "the table of names")
    names = columns.names()
    if names is None:
        raise columns.missing("name")
    return names


@dataclass(frozen=True, eq=False)
class _Columns:
    """The columns of a table of arms, read on demand."""

    table: Table
    called: str
    n_rows: int

    @classmethod
    def of(cls, table: Table, what: str) -> _Columns:
        called = table.source or what
        twice = next((name for i, name in enumerate(table.names) if name in table.names[:i]), None)
        if twice is not None:
            raise ProblemError(f"{called} has two columns {shortened(twice)}; keep one")
        for name in table.names:
            if name.startswith(NUMBERED) and not (PROBABILITY.fullmatch(name) or REWARD.fullmatch(name)):
                raise ProblemError(
                    f"{called} has a column {shortened(name)}; write p_passive_0_1 for the probability of state 1 "
                    "after state 0 without a pull, p_active_0_1 with a pull, reward_0 and passive_reward_0 for rewards"
                )
        if not table.names:
            raise ProblemError(f"{called} has no columns; begin with {HEADER}")
        found = cls(table, called, length_of(table.columns([0])[0]))
        if not found.n_rows:
            raise ProblemError(f"{called} has no rows; give a row for each arm")
        return found

    def cells(self, name: str) -> Any:
        return self.table.columns([self.table.names.index(name)])[0]

    def missing(self, name: str) -> ProblemError:
        hint = did_you_mean(name, [one for one in self.table.names if one not in OWN and not one.startswith(NUMBERED)])
        hint = hint if hint.startswith("did") else "add it"
        return ProblemError(f"{self.called} has no column {name}; {hint}")

    def numbers(self, name: str) -> Array:
        """Return a column of finite numbers."""
        if name not in self.table.names:
            raise self.missing(name)
        cells = self.cells(name)
        found = floats(cells)
        if found is not None and np.isfinite(found).all():
            return found
        for row, cell in enumerate(listed(cells)):
            number = None if is_missing(cell) else floats([cell])
            if number is None or not np.isfinite(number).all():
                what = "missing" if is_missing(cell) else f"{shortened(cell)}, which is no finite number"
                raise ProblemError(f"{self.table.place(row)}: {name} is {what}; give a number")
        raise ProblemError(f"{self.called}: {name} is no column of numbers")

    def integers(self, name: str, least: int) -> IntArray | None:
        """Return a column of whole numbers, None without this column."""
        if name not in self.table.names:
            return None
        found = self.numbers(name)
        wrong = (found != np.floor(found)) | (found < least) | (found > 2**53)
        self.refuse(name, found, wrong, f"it must be a whole number of at least {least}")
        return found.astype(np.int64)

    def refuse(self, name: str, numbers: Array, wrong: BoolArray, remedy: str) -> None:
        """Refuse the first number of a column that is wrong."""
        if wrong.any():
            row = int(wrong.argmax())
            raise ProblemError(f"{self.table.place(row)}: {name} is {numbers[row]:.12g}; {remedy}")

    def check_initial(self, initial: IntArray | None, n_states: int) -> None:
        """Refuse an initial state that the arms do not have."""
        if initial is not None:
            remedy = f"it must be a state from 0 to {n_states - 1}"
            self.refuse("initial", initial.astype(np.float64), initial >= n_states, remedy)

    def texts(self, name: str) -> list[str]:
        cells = listed(self.cells(name))
        found = cells if set(map(type, cells)) == {str} else ["" if is_missing(c) else arm_name(c) for c in cells]
        found = list(map(str.strip, found))
        if not all(found):
            raise ProblemError(f"{self.table.place(found.index(''))}: {name} is missing; give a text")
        return found

    def names(self) -> list[str] | None:
        """Return the names of the arms, None without a column of names."""
        column = next((name for name in NAMES if name in self.table.names), None)
        if column is None:
            return None
        found = self.texts(column)
        if len(set(found)) < len(found):
            first: dict[str, int] = {}
            row = next(row for row, name in enumerate(found) if first.setdefault(name, row) != row)
            raise ProblemError(
                f"{self.table.place(row)}: {column} is {found[row]!r}, as in an earlier row; give each arm once"
            )
        return found

    def n_states(self) -> int:
        """Return the number of states that the columns name."""
        hits = [hit for name in self.table.names if (hit := PROBABILITY.fullmatch(name))]
        if not hits:
            raise self.missing("p_passive_0_1")
        states = [int(hit[place]) for hit in hits for place in (2, 3)]
        states += [int(hit[2]) for name in self.table.names if (hit := REWARD.fullmatch(name))]
        return 1 + max(states)

    def chains(self, action: str, n: int) -> Array:
        """Return the transition probabilities of an action: array (row, state, next state)."""
        found = np.zeros((self.n_rows, n, n))
        for s in range(n):
            words = [f"p_{action}_{s}_{z}" for z in range(n)]
            absent = [z for z in range(n) if words[z] not in self.table.names]
            if len(absent) > min(1, n - 1):
                raise self.missing(words[absent[-1]])
            for z in range(n):
                if z not in absent:
                    found[:, s, z] = column = self.numbers(words[z])
                    self.refuse(words[z], column, (column < 0) | (column > 1), "a probability must lie between 0 and 1")
            if absent:
                total = found[:, s].sum(axis=1)
                self.refuse(_sum(action, s, n), total, total > 1 + PRINTED_TOLERANCE, "it must be at most 1")
                found[:, s, absent[0]] = np.maximum(1 - total, 0.0)
        totals = found.sum(axis=2)
        wrong = np.abs(totals - 1) > PRINTED_TOLERANCE
        if wrong.any():
            remedy, state = "it must be 1", int(wrong.any(axis=0).argmax())
            if (np.abs(found.sum(axis=1) - 1) <= PRINTED_TOLERANCE).all():
                remedy += "; the sums over the first state are, so exchange the two states in the names of the columns"
            self.refuse(_sum(action, state, n), totals[:, state], wrong[:, state], remedy)
        return found

    def rewards(self, word: str, n: int, means: npt.ArrayLike | None) -> Array:
        """Return mean rewards: array (row, state), the same for all rows if given as ``means``."""
        named = any((hit := REWARD.fullmatch(name)) and bool(hit[1]) == (word != "reward") for name in self.table.names)
        if means is not None:
            argument = "rewards" if word == "reward" else "passive_rewards"
            if named:
                raise ProblemError(f"{self.called} has columns {word}_0, … already; leave out {argument}")
            try:
                common = np.asarray(means, dtype=np.float64)
            except (TypeError, ValueError):
                common = np.zeros(0)
            if common.shape != (n,) or not np.isfinite(common).all():
                raise ProblemError(f"{argument} is {shortened(means)}; give a number for each of {n} states")
            return np.broadcast_to(common, (self.n_rows, n))
        if not named and word != "reward":
            return np.zeros((self.n_rows, n))
        return np.stack([self.numbers(f"{word}_{s}") for s in range(n)], axis=1)


def _sum(action: str, state: int, n_states: int) -> str:
    return f"the sum of p_{action}_{state}_0 to p_{action}_{state}_{n_states - 1}"


def _of_kinds(
    columns: _Columns, kinds: Kinds, names: list[str] | None, counts: IntArray | None, initial: IntArray | None
) -> Sequence[AnyArm]:
    """Return the arms of a column of kinds."""
    if "kind" not in columns.table.names:
        raise columns.missing("kind")
    known: dict[str, Arm] = {}
    for name, kind in kinds.items() if isinstance(kinds, Mapping) else ((kind.name, kind) for kind in kinds):
        if not isinstance(kind, Arm):
            raise ProblemError(f"kinds has {shortened(kind)} as {shortened(name)}; give Arm objects")
        known[name] = kind
    words = columns.texts("kind")
    numbers = {name: number for number, name in enumerate(known)}
    unknown = next((row for row, word in enumerate(words) if word not in numbers), None)
    if unknown is not None:
        check_known(words[unknown], known, f"{columns.table.place(unknown)}: there is no kind")
    rows = np.fromiter(map(numbers.__getitem__, words), np.int64, len(words))
    if names is None and len(set(words)) == len(words):
        names = words
    chosen = list(known.values())
    if not _alike(chosen):
        if initial is not None:
            raise ProblemError(
                f"{columns.called} has a column initial, and the kinds differ in more than chains and mean rewards; "
                "give the kinds initial states, and leave the column out"
            )
        return _single_arms(chosen, rows, counts, names)
    columns.check_initial(initial, chosen[0].n_states)
    start: Array | IntArray | None = initial
    if initial is None and not all(kind.is_stationary_at_start for kind in chosen):
        start = np.stack([kind.initial_distribution for kind in chosen])[rows]
    active = [kind.transitions if kind.active_transitions is None else kind.active_transitions for kind in chosen]
    return ArrayKinds(
        transitions=np.stack([kind.transitions for kind in chosen])[rows],
        active_transitions=np.stack(active)[rows],
        rewards=np.stack([kind.rewards for kind in chosen])[rows],
        passive_rewards=np.stack([kind.mean_rewards[:, 0] for kind in chosen])[rows],
        counts=np.ones(len(rows), dtype=np.int64) if counts is None else counts,
        names=names,
        initial=start,
        reward_law=chosen[0].reward_law,
        reward_range=chosen[0].reward_range,
    )


def _alike(kinds: Sequence[Arm]) -> bool:
    """Return whether kinds differ in their chains and mean rewards alone, so that their arms fit into arrays."""
    plain = all(kind.reward_spread is None and not kind.setup_cost for kind in kinds)
    return plain and len({(kind.n_states, kind.reward_law, kind.reward_range) for kind in kinds}) == 1


def _single_arms(
    kinds: Sequence[Arm], rows: IntArray, counts: IntArray | None, names: Sequence[str] | None
) -> list[Arm]:
    """Return an arm for each row; ``rows`` has the number of each row's kind."""
    for kind in kinds:
        # The arms share what their kind has computed.
        kind.stationary.max()
    called = [f"arm {number}" for number in range(1, len(rows) + 1)] if names is None else names
    arms = [kinds[row].named(name) for row, name in zip(rows.tolist(), called, strict=True)]
    return arms if counts is None else [arm.of_count(n) for arm, n in zip(arms, counts.tolist(), strict=True)]
