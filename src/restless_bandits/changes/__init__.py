"""Has an arm changed? A sequential test with a bound on false alarms, in memory that hardly grows with time.

The hypothesis is that an arm has had one birth-death chain and one mean reward for each state since its test began.
Against it stand changes at every ``GRID``-th slot. The evidence for a change at slot u is a ratio of likelihoods,

    (mixture over chains and rewards before u) · (the same after u) / (the likeliest chain and rewards for all),

which is at most the ratio against the true chain and rewards, whatever these are, and that one is a nonnegative
supermartingale with mean 1 (universal inference: Wasserman, Ramdas, Balakrishnan 2020). By Ville's inequality it ever
reaches 1/a with probability at most a. Each u may spend a = rate · GRID; so an arm that never changes gives at most
rate · t alarms in t slots on average, and the rates of all arms add up to the one that was asked for.

Means of rewards have the mixture of Krichevsky and Trofimov, Beta(½, ½), in closed form. The ratio of binary laws is
convex in the reward, so it stays a supermartingale for rewards anywhere in [0, 1] whose mean is constant. Of the chain
there are three tests, with equal weights. One looks at moves within a slot, one at what is seen after every state and
every wait, each law on its own, in the same closed form; where few of them have changed, or waits are few, that takes
the least. The third takes all observations together, through the chain, with a mixture over lattices of chains, of
which one near the mode is a lower bound (``_kernels.coded_likelihood``). Whatever has several parts, such as the
rewards of several states, each has changed or not with equal weights, so that a change of one does not pay for the
others. Rewards of a fixed law need no test: one that differs is a change.

The likeliest chain is found by climbing, from all starts before an alarm is given; the bound takes it that a climb ends
no lower than the true chain. Observations are kept in tallies, at most ``KEEP`` of about the same size: of long ago
only coarse times of change are left (``lookout``). Leaving some out makes the test no less valid.

The mathematics and what was measured are in docs/theory/changes.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from restless_bandits.arrays import Array, IntArray
from restless_bandits.changes import _kernels as kernels
from restless_bandits.estimation import Observations, chain_of, modes_of
from restless_bandits.record import BIN_MIDDLES, N_BINS
from restless_bandits.rewards import ZERO_TO_ONE, Range

T = TypeVar("T", np.int64, np.float64)

ALARM_RATE = 1e-6
"""False alarms a slot, of all arms together."""
GRID = 32
"""Slots from one possible time of change to the next."""
LEAST = 16
"""Observations of a tally."""
KEEP = 3
"""Tallies of about the same number of observations; of more, the two oldest become one."""
MOST_PLACES = 50_000
"""Places of counts up to which a table of them is sooner made than what is there is sorted."""
FLAT = 0.01
"""Pseudo-counts with which the likeliest chain is looked for: so few that they hardly move it off the edge."""


@dataclass(frozen=True)
class Alarm:
    """An arm is found to have changed."""

    arm: int
    name: str
    slot: int
    """The slot in which it was found."""
    since: int
    """About the first slot after the change."""
    evidence: float
    """The log of how much likelier all that was seen is with the change than without; infinite where it is certain."""
    what: str
    """``chain``, ``rewards``, or ``chain and rewards``."""

    @property
    def p_value(self) -> float:
        """How likely so much evidence for a change at this time ever is, at most, if the arm never changes."""
        return math.exp(-self.evidence)

    def __str__(self) -> str:
        sure = "for certain" if math.isinf(self.evidence) else f"evidence {self.evidence:.1f} nats"
        changed = f"arm {self.name!r} has changed its {self.what} since about slot {self.since}"
        return f"{changed} ({sure}), found in slot {self.slot}"


@dataclass(frozen=True)
class Change:
    """A change of one arm: ``Alarm`` without the arm."""

    since: int
    evidence: float
    what: str


def alarm_threshold(alarm_rate: float, n_arms: int) -> float:
    """Return the least evidence for an alarm, so that all arms together give so many false ones a slot on average."""
    return math.log(n_arms / (alarm_rate * GRID))


class Seen(NamedTuple):
    """What was seen of an arm in stretches of slots that follow each other."""

    since: IntArray
    """The first slots of the stretches."""
    stretches: IntArray
    places: IntArray
    counts: IntArray
    """Counts, each with its stretch and its place in ``record.counts(arm)``, flattened."""
    sums: Array
    """Sums of rewards, ``[stretch, state]``."""


class Question:
    """Whether an arm has changed between two stretches of slots.

    ``mode`` are the logits of the likeliest chain when it was last looked for, and then of the one that was found;
    None where that never was.
    """

    def __init__(
        self, seen: Seen, mode: Array | None = None, *, reward_range: Range = ZERO_TO_ONE, fixed: bool = False
    ) -> None:
        self.since, self.mode = seen.since, mode
        stretches, n = seen.sums.shape
        self.n_states = n
        places, where = _numbered(seen.places, (n + 1) * N_BINS * n)
        cells = stretches * len(places)
        counts = np.bincount(seen.stretches * len(places) + where, weights=seen.counts, minlength=cells)
        later = _sums_from(counts.astype(np.int64).reshape(stretches, -1))
        self._elapsed, self._states, self._later = _cells(places, later, n)
        self._rewards = np.zeros(stretches)
        """Logs of the evidence that rewards changed before each stretch."""
        if not fixed:
            states = np.zeros((stretches, n), dtype=np.int64)
            np.add.at(states.T, places % n, later.T)
            low, high = reward_range
            shares = (_sums_from(seen.sums) - low * states) / (high - low)
            self._rewards = _all_parts(kernels.split_ratios(shares, states))

    def answer(self, threshold: float) -> Change | None:
        """Return the likeliest change if its evidence reaches the threshold."""
        chains = np.zeros((3, len(self.since)))
        if self.n_states > 1:
            laws = self._law_ratios()
            chains[:2] = _all_parts(laws[:, :, self._elapsed == 1]), _all_parts(laws)
            chains[2] = _or_not(-math.inf)
            # The score is an estimate of the gain, and what it promises must then pay for two codes.
            promises = 2 * self._promises() + self._rewards
            for time in np.flatnonzero(promises[1:] >= threshold).tolist():
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
        return Change(int(self.since[best]), float(evidence[best]), what)

    def _law_ratios(self) -> Array:
        """Logs of the evidence that laws of what is seen after a state and a wait changed: ``[stretch, 2, cell]``.

        Each law on its own, in two parts: how often another state is seen, and how often that one is a worse one.
        """
        rows, columns = self._states[:, None], np.arange(self.n_states)
        worse, better = (np.where(away, self._later, 0).sum(axis=2) for away in (columns > rows, columns < rows))
        everything = self._later.sum(axis=2)
        moves = kernels.split_ratios((worse + better).astype(np.float64), everything)
        ways = kernels.split_ratios(worse.astype(np.float64), worse + better)
        # From the first state and the last there is one way only.
        ends = (self._states == 0) | (self._states == self.n_states - 1)
        return np.stack([moves, np.where(ends, 0.0, ways)], axis=1)

    def _promises(self) -> Array:
        """About what each time of change gains, from the likeliest chain of all, which is found on the way."""
        everything = self._elapsed, self._states, self._later[0]
        begin = None if self.mode is None else [self.mode]
        self.mode = modes_of(everything, self.n_states, begin, prior=FLAT, thorough=begin is None)[0].theta
        return kernels.score_gains(self.mode, self.n_states, self._elapsed, self._states, self._later)

    def _chain_evidence(self, time: int, *, thorough: bool = False) -> float:
        """Log of the evidence that the chain changed before a stretch; thorough, the likeliest chain is sought anew.

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
        there = counts.any(axis=1)
        return self._elapsed[there], self._states[there], counts[there]


def _numbered(places: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return the places that there are, in ascending order, and the number of each among them."""
    if size > MOST_PLACES:
        found, where = np.unique(places, return_inverse=True)
        return found, where
    # Sooner than sorting, where there are not many places: this is asked again and again.
    numbers = np.zeros(size, dtype=np.int64)
    numbers[places] = 1
    found = np.flatnonzero(numbers)
    numbers[found] = np.arange(len(found))
    return found, numbers[places]


def _sums_from(rows: npt.NDArray[T]) -> npt.NDArray[T]:
    """Of every row, the sum of it and of those after it."""
    return np.ascontiguousarray(np.cumsum(rows[::-1], axis=0)[::-1])


def _cells(places: IntArray, later: IntArray, n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Observations from every stretch on: elapsed slots, last states, and counts ``[stretch, cell, state]``."""
    cells, where = np.unique(places // n, return_inverse=True)
    states, bins = cells // N_BINS, cells % N_BINS
    order = np.argsort(bins, kind="stable")
    # The first sight of an arm tells nothing of its chain.
    order = order[states[order] < n]
    table = np.zeros((len(later), len(cells), n), dtype=np.int64)
    table[:, where, places % n] = later
    return BIN_MIDDLES[bins[order]], states[order], np.ascontiguousarray(table[:, order])


def _or_not(evidence: Array | float) -> Array:
    """Logs of the evidence that something has changed or not, with equal weights."""
    return np.asarray(np.logaddexp(evidence, 0.0) - math.log(2.0))


def _all_parts(evidence: Array) -> Array:
    """Logs of the evidence of all parts together, each of which has changed or not; the first axis is of stretches."""
    return np.asarray(_or_not(evidence).sum(axis=tuple(range(1, evidence.ndim))))


def _either(tests: Array) -> Array:
    """Logs of the evidence of several tests of one thing, with equal weights."""
    return np.asarray(np.logaddexp.reduce(tests, axis=0) - math.log(len(tests)))
