"""Traces of logged observations, read from a file, a data frame or columns in memory; errors explain a refused log.

A log is a table with a line for every observation of an arm: ``time`` (the slot, an integer, or a clock time), ``arm``
(a name or a number), ``state`` (0 is the best) or ``value`` (any measured number, binned into states), and optionally
``reward``. A wide log has a line for every time and a column for every arm. Slots without an observation of an arm have
no line, or an empty cell. Lines may come in any order.

*Actions.* A log of arms that react to pulls has a column ``action``: 1 for a pull, 0 for a rest. A line of a pull
without a state is a pull that was not seen. Slots without a line of an arm are rests. A column ``kind`` names the kind
of the line's arm: arms of a kind are taken to share their chains.

*States from values.* Edges are common to all arms: a state has the same meaning for every arm, see ``binning``. A value
on an edge belongs to the better side. The best state holds the highest values, or the lowest with ``low_is_better``.

*Rewards.* Logged rewards, within [0, 1] or within a given range; or a reward for each state; or, without either, evenly
spaced rewards from 1 for the best state down to 0 for the worst.

*States of an arm.* An arm has the states from its best to its worst observed state. For an arm without state 0 (a
server never in the best state) the arm's own numbers begin at its best state. ``Trace.spans`` has the ranges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.logs.binning import Edges, LoggedValues, States, binned, check_number, cut, numbers_of
from restless_bandits.logs.clocks import Clock
from restless_bandits.logs.reading import LONGEST_NUMBER, Columns, Named, columns_in_memory, columns_of, exact
from restless_bandits.logs.slots import one_look_a_slot, slots_of
from restless_bandits.model.record import BIN_EDGES, Record
from restless_bandits.model.rewards import ZERO_TO_ONE, Range, RewardLaw, checked_range, outside

SAME_REWARD = 1e-9
"""The largest difference of equal rewards of a state, as in ``Agent``."""
OTHER_PULLS = "a log of other pulls says nothing of the states that these pulls would have made"

Moment = str | int | datetime
"""A slot, or a time of a log with a clock; a text in the form of ISO 8601, or of a time of day."""
Binning = tuple[States, Edges, bool]
"""The options ``states``, ``edges`` and ``low_is_better`` of ``read_trace``."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Logged observations, valid once made: an entry for every observation, sorted by slot and within a slot by arm."""

    times: IntArray
    """Slots: the times of the log, or, with a slot length, numbers from 0 on."""
    arms: IntArray
    states: IntArray
    """States by their common numbers, 0 the best."""
    rewards: Array
    """As logged, within ``reward_range``."""
    names: tuple[str, ...]
    levels: tuple[float, ...] | None = None
    """The reward of each state for rewards that follow from states; None for logged rewards."""
    edges: tuple[float, ...] | None = None
    """The edges between states, from the best state to the worst; None for logged states."""
    source: str = ""
    """The name of the file."""
    reward_range: Range = ZERO_TO_ONE
    """The lowest and the highest reward that any arm can pay."""
    probabilities: Array | None = None
    """The logged probability of the choice of each line's arm, if present in the log: see ``offpolicy``."""
    clock: Clock | None = None
    """The clock of the slots; None for a log with numbered slots."""
    notes: tuple[str, ...] = ()
    """Remarks on the reading of the log: ignored, omitted or guessed parts."""
    actions: IntArray | None = None
    """Whether the arm was pulled in each line (1) or not (0), if logged: the arms may react to pulls."""
    unseen: tuple[IntArray, IntArray] | None = None
    """With ``actions``: the slots and arms of pulls without an observation."""
    kinds: tuple[IntArray, tuple[str, ...]] | None = None
    """The kind of each arm by number, and the names of the kinds, if logged."""

    def __post_init__(self) -> None:
        for column in (self.times, self.arms, self.states, self.rewards, self.probabilities, self.actions):
            if column is not None:
                column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.times)

    @property
    def n_arms(self) -> int:
        return len(self.names)

    @cached_property
    def n_states(self) -> int:
        """The number of common states."""
        return int(self.states.max()) + 1

    @cached_property
    def _rows(self) -> tuple[IntArray, ...]:
        order = np.argsort(self.arms, kind="stable")
        return tuple(np.split(order, np.searchsorted(self.arms[order], np.arange(1, self.n_arms))))

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The best and the worst observed state of each arm."""
        return tuple((int(self.states[rows].min()), int(self.states[rows].max())) for rows in self._rows)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of states of each arm."""
        return tuple(worst - best + 1 for best, worst in self.spans)

    @cached_property
    def gap(self) -> int:
        """The greatest common divisor of all waits between observations of an arm; 0 without repeated observations."""
        return int(np.gcd.reduce(np.concatenate([np.diff(self.times[rows]) for rows in self._rows])))

    def __getitem__(self, times: slice) -> Trace:
        """Return the log from a time on, and before another: ``trace["2024-05-01T12:00":]``, or ``trace[100:200]``.

        A time is a slot, or with a clock a ``datetime`` or a text in the form of ISO 8601. Slots, states and edges stay
        those of the whole log; arms without a line are left out.
        """
        if not isinstance(times, slice) or times.step is not None:
            raise ProblemError(f"a log is cut by its times, such as trace[100:200]; {shortened(times)} is no slice")
        return self._part(
            *self._slots(times.start, times.stop, after=False), _spelled(times.start, times.stop, "before")
        )

    def between(self, first: Moment | None = None, last: Moment | None = None) -> Trace:
        """Return the log from a slot or time to another, both included; otherwise as a slice of the log."""
        return self._part(*self.slots_between(first, last), _spelled(first, last, "to"))

    def slots_between(self, first: Moment | None = None, last: Moment | None = None) -> tuple[int, int]:
        """Return the first and the last slot that begin between two slots or times, both included."""
        return self._slots(first, last, after=True)

    def _slots(self, first: Moment | None, last: Moment | None, *, after: bool) -> tuple[int, int]:
        """The first slot from a time on, and the last slot before another time, or up to it with ``after``."""
        low, high = int(self.times[0]), int(self.times[-1])
        if first is not None:
            low = self._first_slot(first, after=False)
        if last is not None:
            high = self._first_slot(last, after=after) - 1
        return low, high

    def _first_slot(self, time: Moment, *, after: bool) -> int:
        """The first slot that begins at a time or later, with ``after`` only later; else one beyond the log."""
        if isinstance(time, str) and time.strip().isdecimal():
            time = int(time[:LONGEST_NUMBER])
        if not isinstance(time, str | datetime):
            return check_int("a slot", time, 0) + after
        if self.clock is None or self.clock.origin is None:
            raise ProblemError(f"{time} is a clock time, and the log has none; give a slot, such as {self.times[0]}")
        slots = np.unique(self.times)
        reached = self.clock.reached(slots, time, after=after)
        return int(slots[reached][0]) if reached.any() else int(slots[-1]) + 1

    def _part(self, first: int, last: int, named: str) -> Trace:
        """The lines within two slots."""
        kept = (self.times >= first) & (self.times <= last)
        if not kept.any():
            raise ProblemError(f"the log has no line {named}; it has {self._stretch}")
        present, arms = np.unique(self.arms[kept], return_inverse=True)
        states = self.states[kept]
        n_states = int(states.max()) + 1
        if len(np.unique(states)) == 1:
            raise ProblemError(f"only one state was seen {named}; give a longer part of the log")
        unseen, kinds = self.unseen, self.kinds
        if unseen is not None:
            there = (unseen[0] >= first) & (unseen[0] <= last) & np.isin(unseen[1], present)
            unseen = unseen[0][there], np.searchsorted(present, unseen[1][there])
        if kinds is not None:
            used, numbers = np.unique(kinds[0][present], return_inverse=True)
            kinds = numbers, tuple(kinds[1][kind] for kind in used.tolist())
        return replace(
            self,
            times=self.times[kept],
            arms=arms,
            states=states,
            rewards=self.rewards[kept],
            names=tuple(self.names[arm] for arm in present.tolist()),
            levels=None if self.levels is None else self.levels[:n_states],
            edges=None if self.edges is None else self.edges[: n_states - 1],
            probabilities=None if self.probabilities is None else self.probabilities[kept],
            notes=(*self.notes, f"{int(kept.sum())} of {len(self)} lines taken: {named}"),
            actions=None if self.actions is None else self.actions[kept],
            unseen=unseen,
            kinds=kinds,
        )

    @property
    def _stretch(self) -> str:
        first, last = int(self.times[0]), int(self.times[-1])
        if self.clock is None or self.clock.origin is None:
            return f"slots {first} to {last}"
        return f"slots from {self.clock.show(first)} to {self.clock.show(last)}"

    def of_arm(self, arm: int) -> tuple[IntArray, IntArray, Array]:
        """Return the slots, the states by the arm's own numbers, and the rewards of an arm."""
        rows = self._rows[arm]
        return self.times[rows], self.states[rows] - self.spans[arm][0], self.rewards[rows]

    def pulls_of_arm(self, arm: int) -> tuple[IntArray, IntArray]:
        """Return the actions of an arm's observations, and the slots of its pulls without an observation."""
        assert self.actions is not None
        assert self.unseen is not None
        return self.actions[self._rows[arm]], self.unseen[0][self.unseen[1] == arm]

    @cached_property
    def is_all_observed(self) -> bool:
        """Whether the log has the state of every arm in every slot from the arm's first to its last line."""
        if self.actions is None or self.unseen is None or len(self.unseen[0]):
            return False
        span = int(self.times[-1] - self.times[0]) + 1
        if len(self) == self.n_arms * span:
            return True
        ends = np.array([self.times[rows[[0, -1]]] for rows in self._rows])
        return bool((self.actions == 0).any()) and len(self) == int((ends[:, 1] - ends[:, 0] + 1).sum())

    def refuse_actions(self, why: str) -> None:
        """Raise for a log with actions, whose arms may react to pulls."""
        if self.actions is not None:
            raise ProblemError(f"the log has actions, so its arms may react to pulls: {why}")

    def shades(self, columns: int) -> Array:
        """Return the badness of the states of each arm in intervals of the log: 0 the best, 1 the worst, (arm,
        interval).

        There are at most ``columns`` of equal length; NaN without entries.
        """
        first, slots = int(self.times[0]), int(self.times[-1] - self.times[0]) + 1
        columns = min(check_int("columns", columns), slots)
        cells = self.arms * columns + (self.times - first) * columns // slots
        looks = np.bincount(cells, minlength=self.n_arms * columns)
        worse = np.bincount(cells, weights=self.states, minlength=self.n_arms * columns)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(worse / looks / (self.n_states - 1)).reshape(self.n_arms, columns)

    @cached_property
    def reward_laws(self) -> tuple[RewardLaw, ...]:
        """``bernoulli`` if all logged rewards of an arm are the lowest or the highest, ``fixed`` if each state
        always paid the same, else ``bounded``.
        """
        return tuple(self._reward_law(arm) for arm in range(self.n_arms))

    def _reward_law(self, arm: int) -> RewardLaw:
        _, states, rewards = self.of_arm(arm)
        if self.levels is None and np.isin(rewards, self.reward_range).all():
            return "bernoulli"
        spreads = (np.ptp(rewards[states == state]) for state in np.unique(states))
        return "fixed" if max(spreads) <= SAME_REWARD * max(map(abs, self.reward_range)) else "bounded"

    @cached_property
    def content(self) -> str:
        """A hash of the numbers alone; random choices depend on the hash."""
        digest = hashlib.sha256(str(self.n_arms).encode())
        for column in (self.times, self.arms, self.states, self.rewards):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def record(self, arms: Sequence[int] | None = None) -> Record:
        """Return the observations of some arms (by default all) as a record that starts at the first slot of the log.

        The record is equal to a record made by ``observe`` and ``skip``, a slot at a time.
        """
        chosen = range(self.n_arms) if arms is None else arms
        record = Record([self.sizes[arm] for arm in chosen], [None] * len(chosen))
        first, last = int(self.times[0]), int(self.times[-1])
        for i, arm in enumerate(chosen):
            times, states, rewards = self.of_arm(arm)
            slots = times - first + 1
            before = np.concatenate([[self.sizes[arm]], states[:-1]])
            columns = np.searchsorted(BIN_EDGES, np.diff(slots, prepend=0), side="right") - 1
            np.add.at(record.counts(i), (before, columns, states), 1)
            np.add.at(record.visits(i), (before, columns), 1)
            record.seen(i)[:] = np.bincount(states, minlength=self.sizes[arm])
            record.reward_sums(i)[:] = np.bincount(states, weights=rewards, minlength=self.sizes[arm])
            record.last_state[i], record.last_slot[i] = states[-1], slots[-1]
        record.slots = last - first + 1
        return record

    def __repr__(self) -> str:
        plural = "s" if self.n_arms > 1 else ""
        stretch = f"slots {self.times[0]} to {self.times[-1]}"
        return f"<Trace: {len(self)} observations of {self.n_arms} arm{plural}, {self.n_states} states, {stretch}>"


def _spelled(first: Moment | None, last: Moment | None, end: str) -> str:
    """The name of a part of a log."""
    ends = {"from": first, end: last}
    return " ".join(f"{word} {time}" for word, time in ends.items() if time is not None) or "in all"


def read_trace(
    source: str | Path | Any,
    *,
    columns: Named | None = None,
    wide: bool = False,
    slot: float | str | None = None,
    duplicates: str = "refuse",
    states: States = None,
    edges: Edges = None,
    low_is_better: bool = False,
    rewards: Sequence[float] | None = None,
    reward_range: tuple[float, float] | None = None,
) -> Trace:
    """Read a trace from a file or a data frame; errors name the file and the line.

    Parameters
    ----------
    source
        A file: CSV in UTF-8 with a header (commas, semicolons or tabs), JSON lines (``.jsonl``, ``.ndjson``), each of
        them packed by gzip or not, or Parquet (``.parquet``, needs pyarrow); or a frame of pandas or polars, an object
        with the Arrow stream interface, or a mapping from names to columns.
    columns
        The names of the columns time, arm, state, value, reward, probability, action and kind, if different:
        ``{"time": "time_hour", "arm": "origin", "value": "late"}``. Several names for value or state, or ``"*"`` for
        all others, declare a column for each arm. ``Trace.notes`` names the columns not used.
    wide
        Whether each arm has a column: by default all columns but the time, with values.
    slot
        The length of a slot: a number, in the unit of the times (seconds for clock times), or with a unit, as in
        ``"15min"``: ms, s, min or m, h, d, w. By default integers are slots, and for other times the length is guessed;
        ``Trace.notes`` reports the guess.
    duplicates
        The treatment of several lines of an arm in a slot: ``"refuse"``, the ``"mean"`` of their values and rewards, or
        the ``"last"`` line by time. With ``"refuse"`` times are rounded to slots counted from the first time; with the
        others a slot is a bin, such as a full hour.
    states
        The number of states for binned values, by default 2; a range such as ``"2..5"`` for a choice by cross-validated
        likelihood, reported in ``Trace.notes``. See ``binning``.
    edges
        Values that separate states, ascending or descending; or ``"quantile"``, the default, for states with about
        equal shares of all values; or ``"found"``, for states that are most informative of their successors.
    low_is_better
        Whether low values are good.
    rewards
        The reward of each state, the best first, in place of logged or evenly falling rewards.
    reward_range
        The range of logged rewards, in their own units; by default (0, 1).

    """
    read = columns_of(source, columns, wide)
    return _trace(read, (states, edges, low_is_better), rewards, reward_range, (slot, duplicates))


def trace(
    time: npt.ArrayLike,
    arm: Sequence[Any] | npt.NDArray[Any],
    *,
    state: npt.ArrayLike | None = None,
    value: npt.ArrayLike | None = None,
    reward: npt.ArrayLike | None = None,
    probability: npt.ArrayLike | None = None,
    action: npt.ArrayLike | None = None,
    kind: Sequence[Any] | npt.NDArray[Any] | None = None,
    slot: float | str | None = None,
    duplicates: str = "refuse",
    states: States = None,
    edges: Edges = None,
    low_is_better: bool = False,
    rewards: Sequence[float] | None = None,
    reward_range: tuple[float, float] | None = None,
) -> Trace:
    """Return a trace of columns in memory, an entry for every observation; options are the options of ``read_trace``.

    >>> trace([0, 1, 2], ["a", "a", "a"], state=[0, 1, 0])
    <Trace: 3 observations of 1 arm, 2 states, slots 0 to 2>
    """
    given = {"time": time, "arm": arm, "state": state, "value": value, "reward": reward}
    given |= {"probability": probability, "action": action, "kind": kind}
    read = columns_in_memory(given)
    return _trace(read, (states, edges, low_is_better), rewards, reward_range, (slot, duplicates))


def _trace(
    columns: Columns,
    binning: Binning,
    levels: Sequence[float] | None,
    reward_range: Range | None,
    slotting: tuple[float | str | None, str],
) -> Trace:
    states, edges, low_is_better = binning
    slot, duplicates = slotting
    times, clock, notes = slots_of(columns, slot, bins=duplicates != "refuse")
    sized = slot is not None or clock is not None
    columns, times = one_look_a_slot(columns, times, duplicates, sized)
    columns, times, unseen = _without_unseen_pulls(columns, times)
    if "state" in columns.numbers:
        if states is not None or edges is not None or low_is_better:
            raise ProblemError("the trace has a state column, so there are no values to bin; leave the binning out")
        seen, cuts = columns.numbers["state"], None
        _check_states(columns)
    else:
        values = columns.numbers["value"]
        cuts, choice = cut(LoggedValues(values, times, columns.numbers["arm"]), states, edges, low_is_better)
        seen, notes = binned(values, cuts, low_is_better), [*notes, *choice]
    n_states = int(seen.max()) + 1
    if n_states == 1:
        raise ProblemError("only one state was ever seen, and there is nothing to learn of it; log more, or bin finer")
    if levels is None and "reward" in columns.numbers:
        (rewards, ends), paid = _logged_rewards(columns, reward_range), None
    else:
        if reward_range is not None:
            raise ProblemError("a reward range is for logged rewards, and none are used here; leave it out")
        paid = _levels(levels, n_states)
        rewards, ends = np.array(paid)[seen], ZERO_TO_ONE
    found = times, columns.numbers["arm"], seen, rewards
    between = None if cuts is None else tuple(cuts.tolist())
    said = (*columns.notes, *notes)
    return Trace(
        *found,
        columns.names,
        paid,
        between,
        columns.source,
        ends,
        _probabilities(columns),
        clock,
        said,
        columns.numbers.get("action"),
        unseen,
        _kinds(columns),
    )


def _without_unseen_pulls(
    columns: Columns, times: IntArray
) -> tuple[Columns, IntArray, tuple[IntArray, IntArray] | None]:
    """Return the observations, their slots, and the slots and arms of pulls without an observation."""
    lost = columns.numbers.get("unseen")
    if lost is None:
        return columns, times, None
    rows, place = np.flatnonzero(~lost), columns.place
    if not rows.size:
        raise ProblemError("no pull of the log was seen; log the states of pulled arms")
    numbers = {name: column[rows] for name, column in columns.numbers.items()}
    seen = replace(columns, numbers=numbers, place=lambda row: place(int(rows[row])))
    return seen, times[rows], (times[lost], columns.numbers["arm"][lost])


def _kinds(columns: Columns) -> tuple[IntArray, tuple[str, ...]] | None:
    """The kind of each arm by number, and the names of the kinds; an arm of two kinds is refused."""
    kinds = columns.numbers.get("kind")
    if kinds is None:
        return None
    arms = columns.numbers["arm"]
    of_arm = np.zeros(len(columns.names), dtype=np.int64)
    of_arm[arms[::-1]] = kinds[::-1]
    wrong = np.flatnonzero(of_arm[arms] != kinds)
    if wrong.size:
        row = int(wrong[0])
        arm, one, other = columns.names[arms[row]], columns.kinds[kinds[row]], columns.kinds[of_arm[arms[row]]]
        raise ProblemError(
            f"{columns.place(row)}: arm {arm!r} is of kind {one!r} here and of kind {other!r} elsewhere; give an arm "
            "one kind"
        )
    present, numbers = np.unique(of_arm, return_inverse=True)
    return numbers, tuple(columns.kinds[kind] for kind in present.tolist())


def _probabilities(columns: Columns) -> Array | None:
    """The logged probabilities of the choices of arms, if present."""
    probabilities = columns.numbers.get("probability")
    if probabilities is not None:
        remedy = "give the probability with which the arm was chosen, above 0 and at most 1"
        columns.refuse("probability", probabilities <= 0, f"cannot be, as the arm was chosen; {remedy}")
        columns.refuse("probability", probabilities > 1, f"is no probability; {remedy}")
    return probabilities


def _check_states(columns: Columns) -> None:
    states = columns.numbers["state"]
    columns.refuse("state", states < 0, "is negative; states count from 0, the best")
    seen = np.unique(states)
    holes = np.flatnonzero(seen != np.arange(len(seen)))
    if holes.size:
        raise ProblemError(
            f"no line has state {holes[0]}, but there is a state {seen[holes[0]]}; "
            "number the states from 0, the best, without holes"
        )
    check_number(len(seen))


def _logged_rewards(columns: Columns, reward_range: Range | None) -> tuple[Array, Range]:
    """Logged rewards and their range."""
    low, high = checked_range("the reward range", ZERO_TO_ONE if reward_range is None else reward_range)
    rewards = columns.numbers["reward"]
    least, most = rewards.min(), rewards.max()
    if least == most:
        # A range must have a length: from zero to the only reward.
        least, most = min(least, 0.0), max(most, 0.0) or float(least == 0)
    remedy = f"--reward-range {exact(least)},{exact(most)} takes all of them"
    beyond = outside(rewards, (low, high))
    columns.refuse("reward", beyond, f"is not between {exact(low)} and {exact(high)}; {remedy}")
    return rewards, (low, high)


def _levels(given: Sequence[float] | None, states: int) -> tuple[float, ...]:
    if given is None:
        return tuple(np.linspace(1.0, 0.0, states).tolist())
    levels = numbers_of(given)
    if not levels.size or levels.min() < 0 or levels.max() > 1:
        raise ProblemError(f"rewards are {given!r}; give a number between 0 and 1 for each state, such as 1,0.4,0")
    if len(levels) != states:
        raise ProblemError(f"there are {len(levels)} rewards for {states} states; give one for each, the best first")
    return tuple(levels.tolist())
