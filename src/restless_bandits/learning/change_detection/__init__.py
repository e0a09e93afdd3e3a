"""Change detection for arms: a sequential test with a bound on false alarms, in memory that hardly grows with time.

The hypothesis is that an arm has had a constant birth-death chain and a constant mean reward for each state since its
test began. The alternatives are changes at every ``CHANGE_GRID``-th slot. The evidence for a change at slot u is a
ratio of likelihoods,

    (mixture over chains and rewards before u) · (the same after u) / (the likeliest chain and rewards for all),

at most the ratio against the true chain and rewards, for any true values. The latter ratio is a nonnegative
supermartingale with mean 1 (universal inference: Wasserman, Ramdas, Balakrishnan 2020). By Ville's inequality the ratio
ever reaches 1/a with probability at most a. Each u may spend a = rate · GRID: an arm that never changes gives at most
rate · t alarms in t slots on average, and the rates of all arms add up to the requested rate.

Means of rewards have the mixture of Krichevsky and Trofimov, Beta(½, ½), in closed form. The ratio of binary
distributions is convex in the reward, and stays a supermartingale for rewards anywhere in [0, 1] with constant mean.
The chain has three tests, with equal weights. The first uses transitions within a slot. The second uses observations
after every state and every wait, each distribution separately, in the same closed form; this test is the most sensitive
for few changed distributions or few different waits. The third combines all observations through the chain, with a
mixture over lattices of chains; a chain near the mode gives a lower bound (``_kernels.coded_likelihood``). For a
quantity with several parts, such as the rewards of several states, each part has changed or not with equal weights, and
a change of one part does not pay for the others. Fixed rewards need no test: a different reward is a change.

The likeliest chain is found by climbing, from all starts before an alarm; the bound assumes that a climb ends no lower
than the true chain. Observations are merged into segments, at most ``SEGMENTS_KEPT`` of about the same size: for old
slots only coarse times of change remain (``lookout``). The omission of times leaves the test valid.

An arm that reacts to pulls has no single chain and hence no third test. The distribution after a state and a wait is
constant for such an arm as well, as long as no pull in between lacks an observation.

docs/theory/changes.md has the mathematics and the measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.learning.change_detection import change_kernels as kernels
from restless_bandits.learning.estimation import Observations, chain_of, modes_of
from restless_bandits.model.record import BIN_MIDDLES, N_BINS
from restless_bandits.model.rewards import ZERO_TO_ONE, Range

T = TypeVar("T", np.int64, np.float64)

ALARM_RATE = 1e-6
"""False alarms a slot, of all arms together."""
CHANGE_GRID = 32
"""Slots between possible times of change."""
LEAST_OBSERVATIONS = 16
"""Observations of a segment."""
SEGMENTS_KEPT = 3
"""The largest number of segments with about equal numbers of observations; beyond, the two oldest are merged."""
MOST_PLACES = 50_000
"""The largest number of positions for which a table of all positions is faster than sorting."""
FLAT = 0.01
"""Pseudo-counts in the search of the likeliest chain: small enough to leave the chain near the edge."""


@dataclass(frozen=True)
class Alarm:
    """An arm is found to have changed."""

    arm: int
    name: str
    slot: int
    """The slot of the detection."""
    since: int
    """About the first slot after the change."""
    evidence: float
    """The log-likelihood ratio of all observations with and without the change; infinite for a certain change."""
    what: str
    """``chain``, ``rewards``, or ``chain and rewards``."""

    @property
    def p_value(self) -> float:
        """An upper bound of the probability of this evidence at any time, for a change at this time, if the arm
        never changes.
        """
        return math.exp(-self.evidence)

    def __str__(self) -> str:
        sure = "for certain" if math.isinf(self.evidence) else f"evidence {self.evidence:.1f} nats"
        changed = f"arm {self.name!r} has changed its {self.what} since about slot {self.since}"
        return f"{changed} ({sure}), found in slot {self.slot}"


@dataclass(frozen=True)
class DetectedChange:
    """A change of an arm: ``Alarm`` without the arm."""

    since: int
    evidence: float
    what: str


def alarm_threshold(alarm_rate: float, n_arms: int) -> float:
    """Return the least evidence for an alarm at a given mean number of false alarms a slot of all arms together."""
    return math.log(n_arms / (alarm_rate * CHANGE_GRID))


class SegmentedCounts(NamedTuple):
    """The observations of an arm in consecutive segments of slots."""

    since: IntArray
    """The first slots of the segments."""
    stretches: IntArray
    places: IntArray
    counts: IntArray
    """Counts, each with its segment and its position in ``record.counts(arm)``, flattened."""
    sums: Array
    """Sums of rewards, ``[stretch, state]``."""


class ChangeTest:
    """A test whether an arm has changed between two segments of slots.

    ``mode`` has the logits of the likeliest chain of an earlier search, and afterwards of this search; None before the
    first search.
    """

    def __init__(
        self,
        seen: SegmentedCounts,
        mode: Array | None = None,
        *,
        reward_range: Range = ZERO_TO_ONE,
        fixed: bool = False,
        reacts: bool = False,
    ) -> None:
        self.since, self.mode, self.reacts = seen.since, mode, reacts
        stretches, n = seen.sums.shape
        self.n_states = n
        places, where = _numbered(seen.places, (n + 1 + reacts) * N_BINS * n)
        cells = stretches * len(places)
        counts = np.bincount(seen.stretches * len(places) + where, weights=seen.counts, minlength=cells)
        later = _sums_from(counts.astype(np.int64).reshape(stretches, -1))
        self._elapsed, self._states, self._later = _cells(places, later, n)
        self._rewards = np.zeros(stretches)
        """Logs of the evidence for a change of rewards before each segment."""
        if not fixed:
            states = np.zeros((stretches, n), dtype=np.int64)
            np.add.at(states.T, places % n, later.T)
            low, high = reward_range
            shares = (_sums_from(seen.sums) - low * states) / (high - low)
            self._rewards = _all_parts(kernels.split_ratios(shares, states))

    def run(self, threshold: float) -> DetectedChange | None:
        """Return the likeliest change if its evidence reaches the threshold."""
        chains = np.zeros((3, len(self.since)))
        if self.n_states > 1:
            ratios = self._law_ratios()
            chains[:2] = _all_parts(ratios[:, :, self._elapsed == 1]), _all_parts(ratios)
            chains[2] = _or_not(-math.inf)
            # The score estimates the gain, and the estimated gain must pay for two codes.
            promises = None if self.reacts else 2 * self._promises() + self._rewards
            for time in [] if promises is None else np.flatnonzero(promises[1:] >= threshold).tolist():
                chains[2, time + 1] = _or_not(self._chain_evidence(time + 1))
        evidence = _either(chains) + self._rewards
        best = int(evidence[1:].argmax()) + 1
        if evidence[best] >= threshold and chains[2, best] > 0:
            chains[2, best] = _or_not(self._chain_evidence(best, thorough=True))
            evidence = _either(chains) + self._rewards
        if evidence[best] < threshold:
            return None
        changed = {"chain": _either(chains)[best] > 0, "rewards": self._rewards[best] > 0}
        what = " and ".join(name for name, is_so in changed.items() if is_so)
        return DetectedChange(int(self.since[best]), float(evidence[best]), what)

    def _law_ratios(self) -> Array:
        """Logs of the evidence for changed distributions after a state and a wait: ``[stretch, 2, cell]``.

        Each distribution separately, in two parts: the frequency of another state, and the frequency of a worse state
        among these.
        """
        rows, columns = self._states[:, None], np.arange(self.n_states)
        worse, better = (np.where(away, self._later, 0).sum(axis=2) for away in (columns > rows, columns < rows))
        everything = self._later.sum(axis=2)
        moves = kernels.split_ratios((worse + better).astype(np.float64), everything)
        ways = kernels.split_ratios(worse.astype(np.float64), worse + better)
        # From the first and the last state only one direction exists.
        ends = (self._states == 0) | (self._states == self.n_states - 1)
        return np.stack([moves, np.where(ends, 0.0, ways)], axis=1)

    def _promises(self) -> Array:
        """The approximate gain of each time of change, from the likeliest chain of all observations, also updated
        here.
        """
        everything = self._elapsed, self._states, self._later[0]
        begin = None if self.mode is None else [self.mode]
        self.mode = modes_of(everything, self.n_states, begin, prior=FLAT, thorough=begin is None)[0].theta
        return kernels.score_gains(self.mode, self.n_states, self._elapsed, self._states, self._later)

    def _chain_evidence(self, time: int, *, thorough: bool = False) -> float:
        """Log of the evidence for a change of the chain before a segment; if thorough, with a new search of the
        likeliest chain.

        Climbs then begin from all starts and from the chains before and after the change.
        """
        n, everything = self.n_states, (self._elapsed, self._states, self._later[0])
        parts = [self._seen(self._later[0] - self._later[time]), self._seen(self._later[time])]
        fits = [modes_of(part, n, None if self.mode is None else [self.mode], thorough=False)[0] for part in parts]
        if thorough or self.mode is None:
            starts = [fit.theta for fit in fits] + ([] if self.mode is None else [self.mode])
            found = [*modes_of(everything, n, prior=FLAT), *modes_of(everything, n, starts, prior=FLAT)]
            self.mode = max(found, key=lambda mode: mode.value).theta
        evidence = -kernels.log_likelihood(chain_of(self.mode, n), everything)
        for fit, part in zip(fits, parts, strict=True):
            evidence += kernels.coded_likelihood(fit.theta, n, fit.information, part)
        return evidence

    def _seen(self, counts: IntArray) -> Observations:
        available = counts.any(axis=1)
        return self._elapsed[available], self._states[available], counts[available]


def _numbered(places: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return the occurring positions in ascending order, and the number of each among them."""
    if size > MOST_PLACES:
        found, where = np.unique(places, return_inverse=True)
        return found, where
    # Faster than sorting for few positions: this function is called very often.
    numbers = np.zeros(size, dtype=np.int64)
    numbers[places] = 1
    found = np.flatnonzero(numbers)
    numbers[found] = np.arange(len(found))
    return found, numbers[places]


def _sums_from(rows: npt.NDArray[T]) -> npt.NDArray[T]:
    """For every row, the sum of the row and of all later rows."""
    return np.ascontiguousarray(np.cumsum(rows[::-1], axis=0)[::-1])


def _cells(places: IntArray, later: IntArray, n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Observations from every segment on: elapsed slots, last states, and counts ``[stretch, cell, state]``."""
    cells, where = np.unique(places // n, return_inverse=True)
    states, bins = cells // N_BINS, cells % N_BINS
    order = np.argsort(bins, kind="stable")
    # The first observation of an arm has no information on its chain.
    order = order[states[order] < n]
    table = np.zeros((len(later), len(cells), n), dtype=np.int64)
    table[:, where, places % n] = later
    return BIN_MIDDLES[bins[order]], states[order], np.ascontiguousarray(table[:, order])


def _or_not(evidence: Array | float) -> Array:
    """Logs of the evidence for "changed or not", with equal weights."""
    return np.asarray(np.logaddexp(evidence, 0.0) - math.log(2.0))


def _all_parts(evidence: Array) -> Array:
    """Logs of the joint evidence of all parts, each changed or not; the first axis is the segment."""
    return np.asarray(_or_not(evidence).sum(axis=tuple(range(1, evidence.ndim))))


def _either(tests: Array) -> Array:
    """Logs of the combined evidence of several tests for the same change, with equal weights."""
    return np.asarray(np.logaddexp.reduce(tests, axis=0) - math.log(len(tests)))
