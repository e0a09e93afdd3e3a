"""Logged observations: from a CSV file, or from columns in memory, to a ``Trace``, or a sentence that says why not.

A trace is a table with a line for every look at an arm: ``time`` (the slot, a whole number), ``arm`` (a name or a
number), ``state`` (0 is the best) or ``value`` (any measured number, binned into states), and perhaps ``reward``. Slots
in which an arm was not looked at have no line. Lines of different arms may come in any order; those of one arm are
sorted by time.

*States from values.* Edges are common to all arms, so that a state means the same everywhere. Given edges are taken as
they are; otherwise they are values of the data, cut where the shares above and below come nearest to k/M. A value on
an edge belongs to the better side. The best state is that of the highest values, or of the lowest.

*Rewards.* Those of the log, which must lie within [0, 1] or within a range that is scaled to it; or one for each state;
or, without either, from 1 for the best state evenly down to 0 for the worst.

*States of an arm.* An arm has the states from the best to the worst that was seen of it; where these do not begin with
0 (a server that is never in the best state), its own numbers begin there. ``Trace.spans`` tells which they are.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits.arrays import Array, IntArray
from restless_bandits.errors import ProblemError, did_you_mean
from restless_bandits.problem import RewardLaw
from restless_bandits.record import BIN_EDGES, Record

COLUMNS = ("time", "arm", "state", "value", "reward")
DELIMITERS = (",", ";", "\t")
CHUNK = 1 << 16
"""Lines that are turned into numbers at a time: a long file is never held as text cells."""
MOST_STATES = 50
FEWEST_STATES = 2
LAST_SLOT = 1 << 62
SAME_REWARD = 1e-9
"""Rewards of one state that differ by less are the same, as in ``Agent``."""

Place = Callable[[int], str]
"""From the number of an observation to where it stands, as messages call it."""


@dataclass(frozen=True, eq=False)
class Trace:
    """What was logged, valid once made: an entry for every observation, sorted by slot and within a slot by arm."""

    times: IntArray
    """Slots: the times of the log, or, with a slot length, numbers from 0 on."""
    arms: IntArray
    states: IntArray
    """States by their common numbers, 0 the best."""
    rewards: Array
    """Within [0, 1]."""
    names: tuple[str, ...]
    levels: tuple[float, ...] | None = None
    """The reward of each state where rewards follow from states; None where they were logged."""
    edges: tuple[float, ...] | None = None
    """Where values were cut into states, from the best state to the worst; None where states were logged."""
    source: str = ""
    """The name of the file."""

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
        ends = np.searchsorted(self.arms[order], np.arange(self.n_arms + 1))
        return tuple(order[ends[arm] : ends[arm + 1]] for arm in range(self.n_arms))

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The best and the worst state seen of each arm."""
        return tuple((int(self.states[rows].min()), int(self.states[rows].max())) for rows in self._rows)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of states of each arm."""
        return tuple(worst - best + 1 for best, worst in self.spans)

    @cached_property
    def gap(self) -> int:
        """The greatest common divisor of all waits between looks at an arm; 0 where no arm was seen twice."""
        return int(np.gcd.reduce(np.concatenate([np.diff(self.times[rows]) for rows in self._rows])))

    def of_arm(self, arm: int) -> tuple[IntArray, IntArray, Array]:
        """Return the slots, the states by the arm's own numbers, and the rewards of one arm."""
        rows = self._rows[arm]
        return self.times[rows], self.states[rows] - self.spans[arm][0], self.rewards[rows]

    @cached_property
    def reward_laws(self) -> tuple[RewardLaw, ...]:
        """``bernoulli`` where all logged rewards of an arm are 0 or 1, ``fixed`` where each state always paid the same.

        Any others are taken for ``bernoulli`` too, which is then a law with their means and not their own.
        """
        return tuple(self._reward_law(arm) for arm in range(self.n_arms))

    def _reward_law(self, arm: int) -> RewardLaw:
        _, states, rewards = self.of_arm(arm)
        if self.levels is None and np.isin(rewards, (0.0, 1.0)).all():
            return "bernoulli"
        low, high = np.full(self.sizes[arm], np.inf), np.full(self.sizes[arm], -np.inf)
        np.minimum.at(low, states, rewards)
        np.maximum.at(high, states, rewards)
        return "fixed" if (high - low <= SAME_REWARD).all() else "bernoulli"

    @cached_property
    def content(self) -> str:
        """A hash of the numbers alone, on which random choices hang."""
        digest = hashlib.sha256(str(self.n_arms).encode())
        for column in (self.times, self.arms, self.states, self.rewards):
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()

    def record(self, arms: Sequence[int] | None = None) -> Record:
        """Return what was seen of some arms (all if not given) as a record whose first slot is that of the log.

        It is the record that ``observe`` and ``skip`` would have made, a slot at a time.
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
            record.reward_sums(i)[:] = np.bincount(states, weights=rewards, minlength=self.sizes[arm])
            record.last_state[i], record.last_slot[i] = states[-1], slots[-1]
        record.slots = last - first + 1
        return record

    def __repr__(self) -> str:
        plural = "s" if self.n_arms > 1 else ""
        stretch = f"slots {self.times[0]} to {self.times[-1]}"
        return f"<Trace: {len(self)} observations of {self.n_arms} arm{plural}, {self.n_states} states, {stretch}>"


def read_trace(
    path: str | Path,
    *,
    states: int | None = None,
    edges: Sequence[float] | None = None,
    low_is_better: bool = False,
    rewards: Sequence[float] | None = None,
    reward_range: tuple[float, float] | None = None,
    slot: float | None = None,
) -> Trace:
    """Read a trace from a CSV file with a header; errors name the file and the line.

    Cells are separated by commas, semicolons or tabs, whichever the header has; the text is UTF-8.

    Parameters
    ----------
    path
        The file.
    states
        How many states to bin values into, by quantiles; 2 where neither this nor ``edges`` is given.
    edges
        Values that separate states instead, ascending or descending.
    low_is_better
        Whether low values are the good ones.
    rewards
        The reward of each state, the best first, in place of logged or evenly falling ones.
    reward_range
        What logged rewards lie between; they are scaled from there to [0, 1].
    slot
        The length of a slot in the unit of the time column; times are rounded to slots counted from the first one.

    """
    path = Path(path)
    table = _Table(_read_text(path), path.name)
    return _trace(
        table.columns(),
        table.place,
        states=states,
        edges=edges,
        low_is_better=low_is_better,
        levels=rewards,
        reward_range=reward_range,
        slot=slot,
        source=path.name,
    )


def trace(
    time: npt.ArrayLike,
    arm: Sequence[Any] | npt.NDArray[Any],
    *,
    state: npt.ArrayLike | None = None,
    value: npt.ArrayLike | None = None,
    reward: npt.ArrayLike | None = None,
    states: int | None = None,
    edges: Sequence[float] | None = None,
    low_is_better: bool = False,
    rewards: Sequence[float] | None = None,
    reward_range: tuple[float, float] | None = None,
    slot: float | None = None,
) -> Trace:
    """Make a trace from columns in memory, an entry for every observation; options are those of ``read_trace``.

    >>> trace([0, 1, 2], ["a", "a", "a"], state=[0, 1, 0])
    <Trace: 3 observations of 1 arm, 2 states, slots 0 to 2>
    """
    given = {"time": time, "arm": arm, "state": state, "value": value, "reward": reward}
    # Names are kept as they are: NumPy would turn a missing one among strings into the word nan.
    columns = {
        name: np.atleast_1d(np.asarray(column, dtype=object if name == "arm" else None)).tolist()
        for name, column in given.items()
        if column is not None
    }
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ProblemError(f"columns have different lengths {lengths}; give an entry for every observation")
    if not columns["time"]:
        raise ProblemError("the trace holds no observations; give at least one")

    def place(row: int) -> str:
        return f"observation {row}"

    _check_columns(list(columns), "the trace")
    parsed = {name: _parse(name, cells, place, 0) for name, cells in columns.items() if name != "arm"}
    labels: dict[str, int] = {}
    parsed["arm"] = _number_arms(["" if _is_missing(cell) else str(cell) for cell in columns["arm"]], labels, place, 0)
    return _trace(
        (parsed, labels),
        place,
        states=states,
        edges=edges,
        low_is_better=low_is_better,
        levels=rewards,
        reward_range=reward_range,
        slot=slot,
        source="",
    )


Columns = tuple[dict[str, npt.NDArray[Any]], dict[str, int]]
"""Numbers by column, and arms by label."""


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProblemError(f"cannot read {str(path)[:200]}: {reason}") from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ProblemError(f"{path.name} is in UTF-16; save it as CSV in UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProblemError(
            f"{path.name}, line {line}: the byte {content[error.start]:#04x} is not UTF-8; save the file in UTF-8"
        ) from None


class _Table:
    """A CSV file as text, and where its lines are."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        first = text.lstrip().split("\n", 1)[0]
        self.delimiter = max(DELIMITERS, key=first.count)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The lines that are not empty, with their numbers; the header is the first."""
        reader = csv.reader(io.StringIO(self.text, newline=""), delimiter=self.delimiter, strict=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise ProblemError(
                f"{self.name}, line {reader.line_num}: {error}; check the quotation marks there"
            ) from None

    def place(self, row: int) -> str:
        """Where an observation stands; read again for it, as this is wanted only once something is wrong."""
        line, _ = next(itertools.islice(self._rows(), row + 1, None))
        return f"{self.name}, line {line}"

    def columns(self) -> Columns:
        """Return the columns as numbers."""
        rows = self._rows()
        header = [cell.strip().lower() for cell in next(rows, (0, [""]))[1]]
        if not any(header):
            raise ProblemError(f"{self.name} is empty; begin it with a line such as time,arm,state")
        if header[0].startswith(tuple("0123456789+-.")):
            raise ProblemError(f"{self.name} has no header; begin it with a line such as time,arm,state")
        if "" in header:
            raise ProblemError(
                f"{self.name}: column {header.index('') + 1} has no name in the header; leave the column out "
                "(pandas writes none with to_csv(…, index=False))"
            )
        _check_columns(header, self.name)
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in header}
        labels: dict[str, int] = {}
        done = 0
        while chunk := [row for _, row in itertools.islice(rows, CHUNK)]:
            for i, row in enumerate(chunk):
                if len(row) != len(header):
                    raise ProblemError(
                        f"{self.place(done + i)} has {len(row)} cells, the header has {len(header)}; "
                        "give every line as many as the header"
                    )
            for name, cells in zip(header, zip(*chunk, strict=True), strict=True):
                if name == "arm":
                    parts[name].append(_number_arms(cells, labels, self.place, done))
                else:
                    parts[name].append(_parse(name, cells, self.place, done))
            done += len(chunk)
        if not done:
            raise ProblemError(f"{self.name} holds no observations, only a header; add a line for each")
        return {name: np.concatenate(columns) for name, columns in parts.items()}, labels


def _check_columns(header: list[str], name: str) -> None:
    for column in header:
        if column not in COLUMNS:
            hint = did_you_mean(column, COLUMNS)
            remedy = hint if hint.startswith("did") else f"remove it, or rename it: {hint}"
            raise ProblemError(f"{name} has an unknown column {column!r}; {remedy}")
        if header.count(column) > 1:
            raise ProblemError(f"{name} has two columns {column!r}; keep one")
    for column in ("time", "arm"):
        if column not in header:
            raise ProblemError(f"{name} has no column {column!r}; it needs time, arm, and state or value")
    if ("state" in header) == ("value" in header):
        have = "both a state and a value column" if "state" in header else "neither a state nor a value column"
        raise ProblemError(f"{name} has {have}; give one of them")


def _number_arms(cells: Iterable[str], labels: dict[str, int], place: Place, first: int) -> IntArray:
    """Arms by the order in which they came; ``labels`` grows."""
    numbers = np.array([labels.setdefault(cell.strip(), len(labels)) for cell in cells], dtype=np.int64)
    nameless = labels.get("")
    if nameless is not None:
        row = first + int(np.argmax(numbers == nameless))
        raise ProblemError(f"{place(row)}: arm is missing; name it or leave the line out")
    return numbers


def _is_missing(cell: Any) -> bool:
    """Whether a cell in memory is what an empty one in a file is: None, not a number, or what pandas puts there."""
    try:
        return cell is None or bool(cell != cell)
    except TypeError:
        # Whether pandas.NA differs from itself is itself NA, which is neither true nor false.
        return True


def _parse(name: str, cells: Sequence[Any], place: Place, first: int) -> npt.NDArray[Any]:
    """A column of numbers, whole ones where they can be; or the first cell that is at fault."""
    if name in ("time", "state"):
        # Nanoseconds since 1970 are more than a double can hold.
        with contextlib.suppress(ValueError, OverflowError, TypeError):
            return np.array(list(map(_whole, cells)), dtype=np.int64)
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        numbers = np.array(list(map(float, cells)), dtype=np.float64)
        if name == "state" and not (np.isfinite(numbers) & (numbers == np.floor(numbers))).all():
            raise ValueError
        if np.isfinite(numbers).all() and (name in ("value", "reward") or np.abs(numbers).max() < LAST_SLOT):
            return numbers.astype(np.int64) if name == "state" else numbers
    faults = ((i, _fault(name, cell)) for i, cell in enumerate(cells))
    row, fault = next((i, fault) for i, fault in faults if fault)
    raise ProblemError(f"{place(first + row)}: {fault}")


def _whole(cell: Any) -> int:
    """A whole number; floats from memory must not be cut."""
    if isinstance(cell, float) and not cell.is_integer():
        raise ValueError
    return int(cell)


REMEDIES = {
    "time": "give the slot as a whole number",
    "state": "give a whole number, 0 for the best state",
    "value": "give a number, or leave the line out",
    "reward": "give a number, or leave the line out",
}


def _fault(name: str, cell: Any) -> str:
    """What is wrong with a cell, if anything is."""
    text = str(cell).strip()
    if not text:
        return f"{name} is missing; leave the whole line out, as gaps are allowed"
    try:
        number = float(text)
    except (ValueError, OverflowError):
        comma = name in ("value", "reward") and text.count(",") == 1
        remedy = "write decimals with a point" if comma else REMEDIES[name]
        return f"{name} is {text[:40]!r}, which is not a number; {remedy}"
    if not math.isfinite(number):
        return f"{name} is {text[:40]}; leave the line out, as gaps are allowed"
    if name == "state" and not number.is_integer():
        return f"state is {text[:40]}, which is not whole; {REMEDIES[name]}, or call the column value to bin it"
    if name in ("time", "state") and abs(number) >= LAST_SLOT:
        return f"{name} is {text[:40]}, which is too large; count from a later start"
    return ""


def _trace(
    columns: Columns,
    place: Place,
    *,
    states: int | None,
    edges: Sequence[float] | None,
    low_is_better: bool,
    levels: Sequence[float] | None,
    reward_range: tuple[float, float] | None,
    slot: float | None,
    source: str,
) -> Trace:
    """The trace of some columns, checked."""
    numbers, labels = columns
    arms, names = _sorted_arms(numbers["arm"], labels)
    times = _slots(numbers["time"], slot, place)
    _check_order(times, arms, names, place, slot)
    if "state" in numbers:
        if states is not None or edges is not None or low_is_better:
            raise ProblemError("the trace has a state column, so there are no values to bin; leave the binning out")
        seen, cuts = numbers["state"], None
        _check_states(seen, place)
    else:
        cuts = _edges(numbers["value"], states, edges, low_is_better)
        seen = _binned(numbers["value"], cuts, low_is_better)
    n_states = int(seen.max()) + 1
    if n_states == 1:
        raise ProblemError("only one state was ever seen, and there is nothing to learn of it; log more, or bin finer")
    logged = numbers.get("reward")
    if levels is None and logged is not None:
        rewards, paid = _scaled(logged, reward_range, place), None
    else:
        if reward_range is not None:
            raise ProblemError("a reward range is for logged rewards, and none are used here; leave it out")
        paid = _levels(levels, n_states)
        rewards = np.array(paid)[seen]
    order = np.lexsort((arms, times))
    return Trace(
        times=_frozen(times[order]),
        arms=_frozen(arms[order]),
        states=_frozen(seen[order]),
        rewards=_frozen(rewards[order]),
        names=names,
        levels=paid,
        edges=None if cuts is None else tuple(cuts.tolist()),
        source=source,
    )


def _frozen(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    column.flags.writeable = False
    return column


def _sorted_arms(arms: IntArray, labels: dict[str, int]) -> tuple[IntArray, tuple[str, ...]]:
    """Numbered arms in the order of their numbers, named ones as they came."""
    names = list(labels)
    if all(name.isdecimal() for name in names):
        order = sorted(range(len(names)), key=lambda i: (int(names[i]), names[i]))
        place_of = np.empty(len(names), dtype=np.int64)
        place_of[order] = np.arange(len(names))
        return place_of[arms], tuple(names[i] for i in order)
    return arms, tuple(names)


def _slots(times: npt.NDArray[Any], slot: float | None, place: Place) -> IntArray:
    bad = np.flatnonzero(times < 0)
    if bad.size:
        raise ProblemError(
            f"{place(int(bad[0]))}: time is {times[bad[0]]}, which is negative; count slots from 0 or later"
        )
    if slot is not None:
        if isinstance(slot, bool) or not isinstance(slot, int | float | np.number) or not 0 < slot < math.inf:
            raise ProblemError(f"slot is {slot!r}; give the length of a slot as a positive number")
        since = np.floor((times - times.min()) / slot + 0.5)
        if since.max() >= LAST_SLOT:
            raise ProblemError(f"slot is {slot:g}, which makes {since.max():.3g} slots; give a longer one")
        return np.asarray(since, dtype=np.int64)
    bad = np.flatnonzero(times != np.floor(times))
    if bad.size:
        raise ProblemError(
            f"{place(int(bad[0]))}: time is {times[bad[0]]}, which is not whole; number the slots, "
            "or give the length of a slot (--slot)"
        )
    return np.asarray(times, dtype=np.int64)


def _check_order(times: IntArray, arms: IntArray, names: Sequence[str], place: Place, slot: float | None) -> None:
    """Each arm's lines must be sorted by time, one a slot."""
    order = np.argsort(arms, kind="stable")
    bad = np.flatnonzero((np.diff(arms[order]) == 0) & (np.diff(times[order]) <= 0))
    if not bad.size:
        return
    bad = bad[np.argmin(order[bad + 1])]
    row, before = int(order[bad + 1]), int(order[bad])
    name, now, then = names[arms[row]], int(times[row]), int(times[before])
    where = place(before).rpartition(", ")[2]
    if now == then:
        remedy = "keep one of the two" if slot is None else "keep one of the two, or make slots shorter (--slot)"
        raise ProblemError(f"{place(row)}: arm {name!r} was logged in slot {now} before, at {where}; {remedy}")
    raise ProblemError(
        f"{place(row)}: time {now} of arm {name!r} comes after its time {then}, at {where}; sort the log by time"
    )


def _check_states(states: IntArray, place: Place) -> None:
    bad = np.flatnonzero(states < 0)
    if bad.size:
        raise ProblemError(
            f"{place(int(bad[0]))}: state is {states[bad[0]]}, which is negative; states count from 0, the best"
        )
    seen = np.unique(states)
    holes = np.flatnonzero(seen != np.arange(len(seen)))
    if holes.size:
        raise ProblemError(
            f"no line has state {holes[0]}, but there is a state {seen[holes[0]]}; "
            "number the states from 0, the best, without holes"
        )
    _check_number(len(seen))


def _check_number(states: int) -> None:
    if states > MOST_STATES:
        raise ProblemError(f"there are {states} states, more than {MOST_STATES}; bin them more coarsely")


def _edges(values: Array, states: int | None, edges: Sequence[float] | None, low_is_better: bool) -> Array:
    """Where values are cut, from the best state to the worst."""
    if edges is None:
        return _quantile_edges(values, FEWEST_STATES if states is None else states, low_is_better)
    if states is not None:
        raise ProblemError("a number of states and edges are both given; give one of them")
    try:
        cuts = np.array(edges, dtype=np.float64)
    except (TypeError, ValueError):
        cuts = np.empty(0)
    if cuts.ndim != 1 or not cuts.size or not np.isfinite(cuts).all():
        raise ProblemError(f"edges are {edges!r}; give the values between states as numbers, such as 10,20")
    steps = np.diff(cuts)
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ProblemError(f"edges are {_listed(cuts)}; give them ascending or descending, each once")
    cuts = np.sort(cuts) if low_is_better else np.sort(cuts)[::-1]
    _check_number(len(cuts) + 1)
    seen = np.unique(_binned(values, cuts, low_is_better))
    missing = np.setdiff1d(np.arange(len(cuts) + 1), seen)
    if missing.size:
        raise ProblemError(
            f"edges {_listed(cuts)} leave state {missing[0]} without a value, as values lie between "
            f"{_exact(values.min())} and {_exact(values.max())}; move or drop an edge"
        )
    return cuts


def _quantile_edges(values: Array, states: int, low_is_better: bool) -> Array:
    """Cut between different values, where the share on the better side comes nearest to k/M."""
    if isinstance(states, bool) or not isinstance(states, int | np.integer) or states < FEWEST_STATES:
        raise ProblemError(f"states is {states!r}; give a whole number of at least {FEWEST_STATES}")
    _check_number(int(states))
    different, counts = np.unique(values if low_is_better else -values, return_counts=True)
    if len(different) == 1:
        raise ProblemError(
            f"all values are {_exact(values[0])}, so there is one state and nothing to learn of it; log more"
        )
    if len(different) < states:
        raise ProblemError(
            f"the values take {len(different)} different numbers, too few for {states} states; ask for fewer states"
        )
    shares = np.cumsum(counts) / len(values)
    cuts: list[int] = []
    for k in range(1, states):
        first = cuts[-1] + 1 if cuts else 0
        last = len(different) - 1 - (states - k)
        cuts.append(first + int(np.argmin(np.abs(shares[first : last + 1] - k / states))))
    return different[cuts] if low_is_better else -different[cuts]


def _binned(values: Array, cuts: Array, low_is_better: bool) -> IntArray:
    """The states of values; a value on an edge belongs to the better side."""
    sign = 1.0 if low_is_better else -1.0
    return np.searchsorted(sign * cuts, sign * values, side="left").astype(np.int64)


def _scaled(rewards: Array, reward_range: tuple[float, float] | None, place: Place) -> Array:
    low, high = (0.0, 1.0) if reward_range is None else _range(reward_range)
    bad = np.flatnonzero((rewards < low) | (rewards > high))
    if bad.size:
        least, most = float(rewards.min()), float(rewards.max())
        if least == most:
            # A range must have a length: from nothing to the one reward there is.
            least, most = min(least, 0.0), max(most, 0.0) or float(least == 0)
        raise ProblemError(
            f"{place(int(bad[0]))}: reward is {_exact(rewards[bad[0]])}, which is not between {_exact(low)} and "
            f"{_exact(high)}; --reward-range {_exact(least)},{_exact(most)} scales all of them"
        )
    scaled: Array = np.clip((rewards - low) / (high - low), 0.0, 1.0)
    return scaled


def _range(given: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise ProblemError(f"the reward range is {given!r}; give the lowest and the highest reward, such as 0,100")
    return low, high


def _levels(given: Sequence[float] | None, states: int) -> tuple[float, ...]:
    """The reward of each state, the best first."""
    if given is None:
        return tuple(np.linspace(1.0, 0.0, states).tolist())
    try:
        levels = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        levels = np.array([math.nan])
    if levels.ndim != 1 or not (np.isfinite(levels) & (levels >= 0) & (levels <= 1)).all():
        raise ProblemError(f"rewards are {given!r}; give a number between 0 and 1 for each state, such as 1,0.4,0")
    if len(levels) != states:
        raise ProblemError(f"there are {len(levels)} rewards for {states} states; give one for each, the best first")
    return tuple(levels.tolist())


def _listed(numbers: Array) -> str:
    return ",".join(_exact(number) for number in numbers)


def _exact(number: float) -> str:
    """A number with all its digits, so that it can be given back: 5 for 5.0, 1.0000001 and not 1."""
    return repr(float(number)).removesuffix(".0")
