"""Distributions of states τ slots apart: the fitted chain against the log.

If a chain is right, a state τ slots after s has the distribution P^τ(s). For some τ the distribution is compared with
pairs of observations τ slots apart, whatever was logged between them. The pairs do not overlap (their starts agree
modulo τ): given their starts, their ends are independent draws. The sum of (observed − expected)²/expected is then
about χ² distributed; neighbouring states are pooled until five are expected. The chain was fitted to the same log,
mostly to the pairs with τ = 1: a small p-value is evidence against the chain, a large p-value is no proof.

If a policy chose the logged arms, an observation between the two decides on the second observation, and the pairs are a
biased sample. The fit itself is unbiased: given the last observation, the next has the distribution P^τ under any
policy. A test asks whether the length of waits depends on the state at their start. If so, pairs are consecutive
observations.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.logs.seasons import Inside
from restless_bandits.model import markov

FEWEST_PAIRS = 10
"""The least number of pairs of observations for a comparison at a lag."""
LEAST_EXPECTED_COUNT = 5.0
"""The least expected count; below, states are pooled."""
FORGOTTEN_TV_DISTANCE = 0.01
"""Distributions this near to the stationary distribution, in total variation, have no further information on the
moves.
"""
BEYOND_DOUBT = 1e-3
"""The p-value below which waits are taken to depend on states."""


@dataclass(frozen=True, eq=False)
class LawCheck:
    """States observed ``lag`` slots apart, and their distribution under the fitted chain."""

    lag: int
    pairs: int
    counts: IntArray
    """Pairs by the state at their start and at their end."""
    predicted: Array
    """The distribution of the end by the state at the start: a power of the fitted chain."""
    same_observed: float
    """The share of pairs with equal states at start and end."""
    same_predicted: float
    same_error: float
    """The standard error of ``same_observed``, if the chain is right."""
    chi_square: float
    degrees: int
    p_value: float
    """NaN with too few pairs for a comparison."""

    @property
    def observed(self) -> Array:
        """Shares of the end by the state at the start; NaN without pairs."""
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
    """Return the comparison for each lag with pairs; by default for lags until the chain has forgotten."""
    if len(chain) == 1:
        return []
    stationary = markov.stationary(chain)
    checks: list[LawCheck] = []
    for lag in _usual_lags(times, gap) if lags is None else lags:
        starts, ends = _pairs(times, int(lag), selective, inside)
        if len(starts) < (FEWEST_PAIRS if lags is None else 1):
            continue
        power = markov.power(chain, int(lag))
        checks.append(_law_check(int(lag), states[starts], states[ends], power))
        if lags is None and markov.distances(power, stationary) < FORGOTTEN_TV_DISTANCE:
            break
    return checks


def _usual_lags(times: IntArray, gap: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, … times the greatest common divisor of all waits, and the commonest wait, if any."""
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
    """Observations ``lag`` slots apart without overlap: starts with the most frequent remainder modulo the lag."""
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
        seen, expected = pooled_counts(counts[row], counts[row].sum() * predicted[row])
        chi_square += float(((seen - expected) ** 2 / expected).sum()) if len(seen) > 1 else 0.0
        degrees += max(0, len(seen) - 1)
    error = float(np.sqrt((same * (1 - same)).sum())) / len(before)
    p_value = float(stats.chi2.sf(chi_square, degrees)) if degrees else math.nan
    shares = (float((before == after).mean()), float(same.mean()), error)
    return LawCheck(lag, len(before), counts, predicted, *shares, chi_square, degrees, p_value)


def pooled_counts(seen: IntArray, expected: Array) -> Array:
    """Observed and expected counts of groups: neighbouring states until enough is expected; a rest joins the last
    group.
    """
    groups = [np.zeros(2)]
    for count, mean in zip(seen, expected, strict=True):
        if groups[-1][1] >= LEAST_EXPECTED_COUNT:
            groups.append(np.zeros(2))
        groups[-1] += np.array([count, mean])
    if len(groups) > 1 and groups[-1][1] < LEAST_EXPECTED_COUNT:
        rest = groups.pop()
        groups[-1] += rest
    return np.array(groups).T
