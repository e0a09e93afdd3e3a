"""What a fitted chain says of looks τ slots apart, and what was seen.

If a chain is right, a state τ slots after s has the law P^τ(s). For some τ this is held against
pairs of observations τ slots apart, whatever was logged between them. The pairs do not overlap (their starts agree
modulo τ), so that, given their starts, their ends are independent draws, and the sum of (seen − expected)²/expected has
about the χ² law; neighbouring states are pooled until five are expected. The chain was fitted to the same log, to the
pairs with τ = 1 most of all: a small p-value is bad news for the chain, a large one is no proof of it.

Where a policy chose what to log, a look between the two decides whether there is a second one, and such pairs would be
a biased sample (the fit itself is not: given the last look, the next has the law P^τ whoever chose it). So it is tested
whether the length of waits depends on the state they begin in; where it does, pairs are looks with none between them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits import markov
from restless_bandits.arrays import Array, IntArray
from restless_bandits.data.seasons import Inside

FEWEST_PAIRS = 10
"""Pairs of observations without which nothing is said of a lag."""
EXPECTED = 5.0
"""Expected counts below which states are pooled."""
FORGOTTEN = 0.01
"""A law this near to the stationary one, in total variation, tells nothing more of the moves."""
BEYOND_DOUBT = 1e-3
"""Waits are taken to depend on states where chance would make them seem to less often than this."""


@dataclass(frozen=True, eq=False)
class LawCheck:
    """States seen ``lag`` slots apart, and what the fitted chain says of them."""

    lag: int
    pairs: int
    counts: IntArray
    """Pairs by the state at their start and at their end."""
    predicted: Array
    """The law of the end by the state at the start: a power of the fitted chain."""
    same_observed: float
    """The share of pairs that end in the state they start in."""
    same_predicted: float
    same_error: float
    """The standard error of that share, if the chain is right."""
    chi_square: float
    degrees: int
    p_value: float
    """Not a number where there are too few pairs for a comparison."""

    @property
    def observed(self) -> Array:
        """Shares of the end by the state at the start; not numbers where no pair starts."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    def as_dict(self) -> dict[str, Any]:
        names = "pairs observed predicted same_observed same_predicted same_error chi_square degrees p_value"
        return {"tau": self.lag} | {name: getattr(self, name) for name in names.split()}


def law_checks(
    times: IntArray,
    states: IntArray,
    chain: Array,
    lags: Sequence[int] | None,
    gap: int,
    selective: bool,
    inside: Inside | None = None,
) -> list[LawCheck]:
    """Return the comparison for each lag that has pairs; without given lags until the chain has forgotten."""
    if len(chain) == 1:
        return []
    stationary = markov.stationary(chain)
    checks: list[LawCheck] = []
    for lag in _usual_lags(times, gap) if lags is None else lags:
        starts, ends = _pairs(times, int(lag), selective, inside)
        if len(starts) < (FEWEST_PAIRS if lags is None else 1):
            continue
        power = np.linalg.matrix_power(chain, int(lag))
        checks.append(_law_check(int(lag), states[starts], states[ends], power / power.sum(axis=1, keepdims=True)))
        if lags is None and markov.distances(power, stationary) < FORGOTTEN:
            break
    return checks


def _usual_lags(times: IntArray, gap: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … times the gap that all waits have in common, and the commonest wait, if there is any."""
    waits, counts = np.unique(np.diff(times), return_counts=True)
    if not waits.size:
        return []
    longest = int(times[-1] - times[0])
    ladder = (gap * digit * 10**power for power in range(19) for digit in (1, 2, 5))
    return sorted({int(waits[counts.argmax()]), *itertools.takewhile(lambda lag: lag <= longest, ladder)})


def is_selective(times: IntArray, states: IntArray) -> bool:
    """Return whether waits longer than the median follow some states more often than others, beyond doubt."""
    from scipy import stats

    waits = np.diff(times)
    long = waits > np.median(waits) if waits.size else np.zeros(0, dtype=bool)
    table = np.zeros((int(states.max()) + 1, 2))
    np.add.at(table, (states[:-1], long.astype(np.int64)), 1)
    table = table[table.sum(axis=1) > 0]
    if len(table) < 2 or not long.any():
        return False
    return bool(stats.chi2_contingency(table).pvalue < BEYOND_DOUBT)


def _pairs(times: IntArray, lag: int, selective: bool, inside: Inside | None = None) -> tuple[IntArray, IntArray]:
    """Observations ``lag`` slots apart that do not overlap: starts of the remainder modulo the lag that most have."""
    if selective:
        starts = np.flatnonzero(np.diff(times) == lag)
        if inside is not None:
            starts = starts[inside(times[starts], times[starts + 1])]
        return starts, starts + 1
    later = np.searchsorted(times, times + lag)
    there = later < len(times)
    there[there] = times[later[there]] == times[there] + lag
    if inside is not None:
        there[there] = inside(times[there], times[later[there]])
    starts = np.flatnonzero(there)
    if not starts.size:
        return starts, starts
    kinds, which = np.unique(times[starts] % lag, return_inverse=True)
    chosen = starts[which == np.argmax(np.bincount(which, minlength=len(kinds)))]
    return chosen, later[chosen]


def _law_check(lag: int, before: IntArray, after: IntArray, predicted: Array) -> LawCheck:
    from scipy import stats

    n = len(predicted)
    counts = np.zeros((n, n), dtype=np.int64)
    np.add.at(counts, (before, after), 1)
    same = np.diagonal(predicted)[before]
    chi_square, degrees = 0.0, 0
    for row in range(n):
        seen, expected = _pooled(counts[row], counts[row].sum() * predicted[row])
        chi_square += float(((seen - expected) ** 2 / expected).sum()) if len(seen) > 1 else 0.0
        degrees += max(0, len(seen) - 1)
    error = float(np.sqrt((same * (1 - same)).sum())) / len(before)
    p_value = float(stats.chi2.sf(chi_square, degrees)) if degrees else math.nan
    shares = (float((before == after).mean()), float(same.mean()), error)
    return LawCheck(lag, len(before), counts, predicted, *shares, chi_square, degrees, p_value)


def _pooled(seen: IntArray, expected: Array) -> Array:
    """What was seen and expected of groups: neighbouring states until enough is expected; a rest joins the last."""
    groups = [np.zeros(2)]
    for count, mean in zip(seen, expected, strict=True):
        if groups[-1][1] >= EXPECTED:
            groups.append(np.zeros(2))
        groups[-1] += np.array([count, mean])
    if len(groups) > 1 and groups[-1][1] < EXPECTED:
        rest = groups.pop()
        groups[-1] += rest
    return np.array(groups).T
