"""States from values: the edges of bins, and the number of states.

Edges are common to all arms. Given edges are used unchanged. ``quantile`` edges make the shares on both sides nearest
to k/M. ``found`` edges make a state most informative of the next state.

*The number of states* is chosen by cross-validated likelihood. Likelihoods of states cannot be compared between cuts,
because the outcomes differ. The model therefore predicts the values themselves, on a fine grid of ``CELLS`` cells: the
state of an observation gives the distribution of the next state, and within the next state the cell has the arm's usual
share. The log is cut into ``FOLDS`` folds, and each fold is predicted by counts of the others. The choice is the
smallest number of states within a standard error of the best. Only observations at the usual wait are used, and any
moves are allowed.

*Found edges* maximise the likelihood of the same model on the grid. The likelihood is the information of a state about
the next, Σ n ln(n · N / (n₊ · ₊n)) over arms. Each edge is moved in turn until no move gains; for the choice of a
number, edges are found again without each fold. No state has less than ``LEAST_SHARE`` of all values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.logs.reading import exact

MOST_STATES = 50
MOST_CHOSEN = 12
"""The largest number of states in a choice."""
CELLS = 40
FOLDS = 10
LEAST_SHARE = 0.03
FEWEST_LOOKS = 3
"""The least number of steps from every state of every arm for an accepted number of states."""
MOST_ARMS = 50
"""The largest number of arms for edges and choices: the arms with the most observations."""
QUANTILE, FOUND = "quantile", "found"
HALF = 0.5

States = int | str | None
Edges = Sequence[float] | str | None


@dataclass(frozen=True)
class Tried:
    """A number of states, with its prediction of held-out values."""

    states: int
    cuts: tuple[int, ...]
    """Edges as numbers of cells."""
    gain: float
    """The gain in log-likelihood an observation, over a prediction without the last state."""
    short: float = 0.0
    """The shortfall from the best, an observation."""
    error: float = 0.0
    """The standard error of the shortfall, over folds."""


@dataclass(frozen=True, eq=False)
class LoggedValues:
    """The columns of a log for the construction of states, an entry for every observation."""

    values: Array
    times: IntArray
    arms: IntArray


def cut(looks: LoggedValues, states: States, edges: Edges, low_is_better: bool) -> tuple[Array, list[str]]:
    """Return the edges, from the best state to the worst, and remarks for readers."""
    way = QUANTILE if edges is None else edges
    if not isinstance(way, str):
        if states is not None:
            raise ProblemError("a number of states and edges are both given; give one of them")
        return _given(looks.values, way, low_is_better), []
    if way not in (QUANTILE, FOUND):
        raise ProblemError(f"edges is {way!r}; give the values between states, or quantile, or found")
    wanted = _wanted(states)
    signed = LoggedValues(looks.values if low_is_better else -looks.values, looks.times, looks.arms)
    different, counts = np.unique(signed.values, return_counts=True)
    _check_different(looks.values, len(different), wanted[0])
    wanted = [number for number in wanted if number <= len(different)]
    by_quantiles = {number: _quantile_cuts(counts, number) for number in wanted}
    notes: list[str] = []
    if way == QUANTILE and len(wanted) == 1:
        chosen = by_quantiles[wanted[0]]
    else:
        chosen, notes = _chosen(signed, different, by_quantiles, way)
    edge_values = different[list(chosen)] if low_is_better else -different[list(chosen)]
    return edge_values, [note.format(edges=", ".join(f"{edge:.6g}" for edge in edge_values)) for note in notes]


def binned(values: Array, cuts: Array, low_is_better: bool) -> IntArray:
    """Return the states of values; a value on an edge belongs to the better side."""
    sign = 1.0 if low_is_better else -1.0
    return np.searchsorted(sign * cuts, sign * values, side="left").astype(np.int64)


def check_number(states: int) -> None:
    """Refuse more states than a chain can be fitted to."""
    if states > MOST_STATES:
        raise ProblemError(f"there are {states} states, more than {MOST_STATES}; bin them more coarsely")


def _wanted(states: States) -> list[int]:
    """The numbers of states to choose from: 3, or ``2..5``."""
    if isinstance(states, str):
        ends = re.fullmatch(r"\s*(\d{1,3})\s*(?:\.\.\s*(\d{1,3})\s*)?", states)
        if ends is None:
            raise ProblemError(f"states is {shortened(states)}; give a number, or two such as 2..5 to choose between")
        if ends[2] is not None:
            first, last = int(ends[1]), int(ends[2])
            if not 2 <= first <= last <= MOST_CHOSEN:
                raise ProblemError(
                    f"states is {states!r}; give numbers from 2 to {MOST_CHOSEN}, the smaller one first, such as 2..5"
                )
            return list(range(first, last + 1))
        states = int(ends[1])
    return [check_int("states", 2 if states is None else states, 2, MOST_STATES)]


def _given(values: Array, edges: Sequence[float], low_is_better: bool) -> Array:
    cuts = numbers_of(edges)
    if not cuts.size:
        raise ProblemError(f"edges are {edges!r}; give the values between states as numbers, such as 10,20")
    steps = np.diff(cuts)
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ProblemError(f"edges are {_listed(cuts)}; give them ascending or descending, each once")
    cuts = np.sort(cuts) if low_is_better else np.sort(cuts)[::-1]
    check_number(len(cuts) + 1)
    missing = np.setdiff1d(np.arange(len(cuts) + 1), binned(values, cuts, low_is_better))
    if missing.size:
        raise ProblemError(
            f"edges {_listed(cuts)} leave state {missing[0]} without a value, as values lie between "
            f"{exact(values.min())} and {exact(values.max())}; move or drop an edge"
        )
    return cuts


def _check_different(values: Array, different: int, states: int) -> None:
    if different == 1:
        raise ProblemError(
            f"all values are {exact(values[0])}, so there is one state and nothing to learn of it; log more"
        )
    if different < states:
        raise ProblemError(
            f"the values take {different} different numbers, too few for {states} states; ask for fewer states"
        )


def _quantile_cuts(counts: IntArray, states: int) -> tuple[int, ...]:
    """The last of the different values on the better side of each edge, with its share nearest to k/M."""
    shares = np.cumsum(counts) / counts.sum()
    cuts: list[int] = []
    for k in range(1, states):
        first = cuts[-1] + 1 if cuts else 0
        last = len(counts) - 1 - (states - k)
        cuts.append(first + int(np.argmin(np.abs(shares[first : last + 1] - k / states))))
    return tuple(cuts)


def _chosen(
    looks: LoggedValues, different: Array, by_quantiles: dict[int, tuple[int, ...]], way: str
) -> tuple[tuple[int, ...], list[str]]:
    """The cuts of the number of states with the best prediction, as positions among the different values."""
    ranks = np.searchsorted(different, looks.values)
    # Cells end about quantiles of many parts, at the widest gap near each, and wherever a cut by few may lie.
    shares = np.cumsum(np.bincount(ranks)) / len(ranks)
    near = np.searchsorted(shares, (np.arange(CELLS) + HALF) / CELLS)
    gaps = np.diff(different)
    fine = [
        first + int(gaps[first : max(last, first + 1)].argmax()) for first, last in pairwise(near) if first < len(gaps)
    ]
    ends = np.unique(np.concatenate([np.array(fine, dtype=np.int64), *map(np.array, by_quantiles.values())]))
    ends = ends[ends < len(different) - 1]
    cells = np.searchsorted(ends, ranks, side="left").astype(np.float64)
    counts, kept = transition_counts(LoggedValues(cells, looks.times, looks.arms), len(ends) + 1)
    total = counts.sum(axis=0)
    least = LEAST_SHARE * total.sum()

    def cuts_for(seen: Array, number: int) -> tuple[int, ...]:
        begin = tuple(int(np.searchsorted(ends, place)) + 1 for place in by_quantiles[number])
        return begin if way == QUANTILE else best_cuts(seen, begin, least)

    scores: dict[int, Array] = {}
    for number in by_quantiles:
        parts = [score_of_cuts(total - part, part, cuts_for(total - part, number)) for part in counts]
        scores[number] = np.array(parts)
    idle = np.array([score_of_cuts(total - part, part, ()) for part in counts])
    looks_of = counts.sum(axis=(1, 2, 3))
    tried = []
    for number, score in scores.items():
        cuts = cuts_for(total, number)
        if number == min(scores) or every_state_left(total, cuts):
            tried.append(Tried(number, cuts, float((score - idle).sum() / looks_of.sum())))
    best = max(tried, key=lambda one: one.gain)
    compared = [_compared(one, scores[one.states], scores[best.states], looks_of) for one in tried]
    chosen = next(one for one in compared if one.short <= one.error)
    places = tuple(int(ends[cell - 1]) for cell in chosen.cuts)
    return places, _notes(way, list(by_quantiles), compared, chosen, kept)


def _compared(one: Tried, score: Array, best: Array, looks: IntArray) -> Tried:
    useful = looks > 0
    short = (best - score)[useful] / looks[useful]
    error = float(short.std(ddof=1)) / math.sqrt(len(short)) if len(short) > 1 else 0.0
    return Tried(one.states, one.cuts, one.gain, float((best - score).sum() / looks.sum()), error)


def _notes(way: str, wanted: Sequence[int], tried: Sequence[Tried], chosen: Tried, arms: str) -> list[str]:
    if len(wanted) == 1:
        return [
            f"edges {{edges}} found: of all cuts into {chosen.states} states these are the most informative of the "
            f"next state, {chosen.gain:.4f} of log-likelihood an observation "
            f"in held-out parts of the log{arms}"
        ]
    gains = ", ".join(f"{one.states}: {one.gain:.4f}" for one in tried)
    rare = sorted(set(wanted) - {one.states for one in tried})
    left = f"; {', '.join(map(str, rare))} would leave an arm too rarely in a state" if rare else ""
    best = max(tried, key=lambda one: one.gain)
    why = (
        "the best"
        if best is chosen
        else f"short of {best.states} by {chosen.short:.4f}, within its error of {chosen.error:.4f}"
    )
    return [
        f"{chosen.states} of {wanted[0]} to {wanted[-1]} states chosen, edges {{edges}} ({way}): by cross-validated "
        f"log-likelihood an observation, relative to an unknown state ({gains}), it is {why}{left}{arms}"
    ]


def transition_counts(looks: LoggedValues, cells: int) -> tuple[Array, str]:
    """Steps by fold of the log, arm, cell before and cell after; and the used arms, if not all."""
    order = np.lexsort((looks.times, looks.arms))
    times, arms, seen = looks.times[order], looks.arms[order], looks.values[order].astype(np.int64)
    same = np.flatnonzero(np.diff(arms) == 0)
    waits = times[same + 1] - times[same]
    if not waits.size:
        raise ProblemError("no arm was seen twice, so states cannot be chosen by what follows them; give edges")
    lengths, counts = np.unique(waits, return_counts=True)
    steps = same[waits == lengths[counts.argmax()]]
    most = np.argsort(-np.bincount(arms[steps]), kind="stable")[:MOST_ARMS]
    number = np.full(int(arms.max()) + 1, -1)
    number[most] = np.arange(len(most))
    steps = steps[number[arms[steps]] >= 0]
    first, last = int(times.min()), int(times.max())
    folds = (times[steps] - first) * FOLDS // (last - first + 1)
    found = np.zeros((FOLDS, len(most), cells, cells))
    np.add.at(found, (folds, number[arms[steps]], seen[steps], seen[steps + 1]), 1)
    left_out = len(np.unique(arms)) > len(most)
    return found, f", by the {len(most)} arms with the most observations" if left_out else ""


def merged_counts(counts: Array, cuts: Sequence[int]) -> Array:
    """Counts by arm, state before and state after."""
    starts = [0, *cuts]
    return np.asarray(np.add.reduceat(np.add.reduceat(counts, starts, axis=1), starts, axis=2))


def score_of_cuts(train: Array, test: Array, cuts: Sequence[int]) -> float:
    """The log-likelihood of the cells of a part of the log, by counts of the others."""
    cells = train.shape[2]
    states = np.repeat(np.arange(len(cuts) + 1), np.diff([0, *cuts, cells]))
    moves = merged_counts(train, cuts) + HALF
    log_probabilities = np.log(moves / moves.sum(axis=2, keepdims=True))
    usual = train.sum(axis=1) + HALF
    of_state = np.add.reduceat(usual, [0, *cuts], axis=1)
    within = np.log(usual / of_state[:, states])
    return float((merged_counts(test, cuts) * log_probabilities).sum() + (test.sum(axis=1) * within).sum())


def every_state_left(counts: Array, cuts: Sequence[int]) -> bool:
    """Whether every arm has enough observations after every state between its best and its worst."""
    starts = merged_counts(counts, cuts).sum(axis=2)
    for row in starts:
        seen = np.flatnonzero(row)
        if seen.size and (row[seen[0] : seen[-1] + 1] < FEWEST_LOOKS).any():
            return False
    return True


def best_cuts(counts: Array, begin: Sequence[int], least: float) -> tuple[int, ...]:
    """Cuts that are most informative of the next state.

    Hill climbing, two neighbouring cuts at a time, from quantiles and from a greedy choice of cuts.
    """
    cells = counts.shape[1]
    sums = np.zeros((len(counts), cells + 1, cells + 1))
    sums[:, 1:, 1:] = counts.cumsum(axis=1).cumsum(axis=2)
    mass = np.concatenate([[0.0], counts.sum(axis=(0, 2)).cumsum()])

    def information(trials: IntArray) -> Array:
        ends = np.pad(trials, ((0, 0), (1, 1)), constant_values=((0, 0), (0, cells)))
        moves = np.diff(np.diff(sums[:, ends[:, :, None], ends[:, None, :]], axis=2), axis=3)
        alone = _entropy(moves.sum(axis=3), 2) + _entropy(moves.sum(axis=2), 2)
        gained = (alone - _entropy(moves, (2, 3)) - _entropy(moves.sum(axis=(2, 3)), ())).sum(axis=0)
        return np.where(np.diff(mass[ends], axis=1).min(axis=1) < least, -math.inf, gained)

    def best(trials: list[list[int]]) -> list[int]:
        return trials[int(information(np.array(trials)).argmax())]

    def climbed(cuts: list[int]) -> list[int]:
        while True:
            before = cuts
            for k in range(max(1, len(cuts) - 1)):
                bounds = [0, *cuts, cells]
                moved = min(2, len(cuts))
                free = range(bounds[k] + 1, bounds[k + moved + 1])
                # The present cuts come first, and of equals the first is kept: the loop ends.
                cuts = best([cuts, *([*cuts[:k], *new, *cuts[k + moved :]] for new in combinations(free, moved))])
            if cuts == before:
                return cuts

    grown: list[int] = []
    while len(grown) < len(begin):
        grown = climbed(best([sorted([*grown, place]) for place in range(1, cells) if place not in grown]))
    return tuple(best([climbed(list(begin)), grown]))


def _entropy(counts: Array, axes: int | tuple[int, ...]) -> Array:
    """−Σ n ln n."""
    return -np.asarray(np.sum(counts * np.log(np.maximum(counts, 1.0)), axis=axes))


def numbers_of(given: Any) -> Array:
    """Return a list of finite numbers; an empty list for any other value."""
    try:
        numbers = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        return np.empty(0)
    return numbers if numbers.ndim == 1 and np.isfinite(numbers).all() else np.empty(0)


def _listed(numbers: Array) -> str:
    return ",".join(exact(number) for number in numbers)
