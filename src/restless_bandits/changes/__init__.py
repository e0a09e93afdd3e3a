"""Has an arm changed? A sequential test with a bound on false alarms, in memory that hardly grows with time.

The hypothesis is that an arm has had one birth-death chain and one mean reward for each state since its test began.
Against it stand changes at every ``GRID``-th slot. The evidence for a change at slot u is a ratio of likelihoods,

    (mixture over chains and rewards before u) · (the same after u) / (the likeliest chain and rewards for all),

which is at most the ratio against the true chain and rewards, whatever these are, and that one is a nonnegative
supermartingale with mean 1 (universal inference: Wasserman, Ramdas, Balakrishnan 2020). By Ville's inequality it ever
reaches 1/a with probability at most a. Each u may spend a = rate · GRID; so an arm that never changes gives at most
rate · t alarms in t slots on average, and the rates of all arms add up to the one that was asked for.

Rewards of a state have the mixture of Krichevsky and Trofimov, Beta(½, ½), in closed form. The ratio of binary laws is
convex in the reward, so it stays a supermartingale for rewards anywhere in [0, 1] whose mean is constant. Chains have a
mixture over lattices, of which one chain near the mode is a lower bound (``_kernels.coded_likelihood``). The chain and
the rewards of each state have changed or not with equal weights, so that a change of one part does not pay for the
others. Rewards of a fixed law need no mixture: one that differs is a change.

The likeliest chain is found by climbing, from all starts before an alarm is given; the bound takes it that a climb ends
no lower than the true chain. Observations are kept in blocks, at most ``KEEP`` of about the same size: of long ago only
coarse times of change are left. Leaving some out makes the test no less valid.

The mathematics and what was measured are in docs/theory/changes.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits.arrays import Array, IntArray, is_number, whole, wholes
from restless_bandits.changes import _kernels as kernels
from restless_bandits.errors import ProblemError, shortened
from restless_bandits.estimation import Observations, chain_of, modes_of
from restless_bandits.record import BIN_MIDDLES, N_BINS, elapsed_bin

ALARM_RATE = 1e-6
"""False alarms a slot, of all arms together."""
GRID = 32
"""Slots from one possible time of change to the next."""
LEAST = 16
"""Observations of a block."""
KEEP = 3
"""Blocks of about the same number of observations; of more, the two oldest become one."""
FLAT = 0.01
"""Pseudo-counts with which the likeliest chain is looked for: so few that they hardly move it off the edge."""
SAME_REWARD = 1e-9


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


@dataclass(frozen=True, eq=False)
class Block:
    """What was seen of an arm from a slot on: counts as a ``Record`` has them, where they are not zero."""

    since: int
    """The first slot of the block; something was seen in it, then or later."""
    first_slot: int
    """The slot of the first observation."""
    first_place: int
    places: IntArray
    """Where the counts stand in ``record.counts(arm)``, flattened; in ascending order."""
    counts: IntArray
    sums: Array
    """Sums of rewards by state."""

    @property
    def observations(self) -> int:
        return int(self.counts.sum())

    def joined(self, later: Block) -> Block:
        """Return this block and the one after it as one."""
        places, where = np.unique(np.concatenate([self.places, later.places]), return_inverse=True)
        counts = np.zeros(len(places), dtype=np.int64)
        np.add.at(counts, where, np.concatenate([self.counts, later.counts]))
        return Block(self.since, self.first_slot, self.first_place, places, counts, self.sums + later.sums)

    def to_list(self) -> list[Any]:
        """Return the block as JSON can hold it."""
        numbers = [self.since, self.first_slot, self.first_place]
        return [*numbers, self.places.tolist(), self.counts.tolist(), self.sums.tolist()]

    @classmethod
    def from_list(cls, data: Any, n_states: int) -> Block:
        """Return the block that ``to_list`` wrote; what cannot be one is refused."""
        if not isinstance(data, list) or len(data) != 6:
            raise ProblemError(f"a block of observations is {shortened(data)}; it must be a list of 6")
        since, first_slot, first_place, places, counts, sums = data
        since, first_slot = whole("a block's first slot", since), whole("a block's first observation", first_slot)
        places = wholes("a block's places", places, 0, (n_states + 1) * N_BINS * n_states - 1)
        counts = wholes("a block's counts", counts, length=len(places))
        if first_place not in places or sorted(set(places)) != places or first_slot < since:
            raise ProblemError(
                f"a block of observations begins with {shortened(data[:3])}, which does not fit the rest"
            )
        if not isinstance(sums, list) or len(sums) != n_states or not all(map(is_number, sums)):
            raise ProblemError(f"a block's sums are {shortened(sums)}; they must be a list of {n_states} numbers")
        found = cls(
            since, first_slot, first_place, np.array(places), np.array(counts), np.array(sums, dtype=np.float64)
        )
        seen = seen_of(found, n_states)
        if not ((found.sums >= 0) & (found.sums <= (1 + 1e-9) * seen)).all():
            raise ProblemError(f"a block's sums are {shortened(sums)}, which are not those of what was seen")
        return found


def seen_of(block: Block, n_states: int) -> IntArray:
    """Return how often each state was seen in a block."""
    seen = np.zeros(n_states, dtype=np.int64)
    np.add.at(seen, block.places % n_states, block.counts)
    return seen


@dataclass(frozen=True, eq=False)
class Finding:
    """A change of one arm, and what was seen of it since."""

    since: int
    evidence: float
    what: str
    kept: Block


class ArmTest:
    """The test of one arm: what was seen of it since the test began, in blocks."""

    def __init__(self, n_states: int, *, fixed: bool = False) -> None:
        self.n_states = n_states
        self.fixed = fixed
        self._restart()

    def _restart(self) -> None:
        self._blocks: list[Block] = []
        self._open: list[tuple[int, int, int, float]] = []  # slot, place, state, reward
        self._mode: Array | None = None
        self._values: dict[int, float] = {}  # rewards of a fixed law

    def observe(
        self, slot: int, last_state: int, elapsed: int, state: int, reward: float, threshold: float
    ) -> Finding | None:
        """Enter an observation; return a change if one has come to light.

        Parameters
        ----------
        slot, last_state, elapsed, state, reward
            In this slot the arm was seen in ``state``, so many slots after ``last_state``, which is the number of
            states for an arm never seen before. Rewards lie between 0 and 1.
        threshold
            The least evidence for an alarm, from ``alarm_threshold``.

        """
        found: tuple[int, float, str, list[Block]] | None = None
        if self.fixed and abs(self._values.get(state, reward) - reward) > SAME_REWARD:
            found = slot, math.inf, "rewards", []
        elif len(self._open) >= LEAST and (slot - 1) // GRID > (self._open[-1][0] - 1) // GRID:
            self._close()
            found = self._tested(threshold)
        if found:
            self._restart()
        self._values[state] = reward
        place = (last_state * N_BINS + elapsed_bin(elapsed)) * self.n_states + state
        self._open.append((slot, place, state, reward))
        if found is None:
            return None
        since, evidence, what, blocks = found
        kept = self._opened(since)
        for block in reversed(blocks):
            kept = block.joined(kept)
        return Finding(since, evidence, what, kept)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "blocks": [block.to_list() for block in self._blocks],
            "open": [list(entry) for entry in self._open],
            "mode": None if self._mode is None else self._mode.tolist(),
            "values": [[state, value] for state, value in self._values.items()] if self.fixed else [],
        }

    @classmethod
    def from_dict(cls, data: Any, n_states: int, *, fixed: bool = False) -> ArmTest:
        """Return the test that ``to_dict`` wrote; what cannot be one is refused."""
        test = cls(n_states, fixed=fixed)
        test._blocks = [Block.from_list(block, n_states) for block in data["blocks"]]
        for entry in data["open"]:
            slot, place, state = wholes("an observation", entry[:3], 0)
            if not is_number(entry[3]) or place >= (n_states + 1) * N_BINS * n_states or state != place % n_states:
                raise ProblemError(f"an observation of a test is {shortened(entry)}, which is none")
            test._open.append((slot, place, state, float(entry[3])))
        starts = [block.since for block in test._blocks] + [entry[0] for entry in test._open]
        if starts != sorted(starts):
            raise ProblemError("observations of a test are not in the order of their slots")
        if data["mode"] is not None:
            mode = np.array(data["mode"], dtype=np.float64)
            if mode.shape != (2 * (n_states - 1),) or not np.isfinite(mode).all():
                raise ProblemError(
                    f"the mode of a test is {shortened(data['mode'])}, which is none of {n_states} states"
                )
            test._mode = mode
        test._values = {whole("a state", state, 0, n_states - 1): float(value) for state, value in data["values"]}
        return test

    def _opened(self, since: int) -> Block:
        """The open block."""
        first_slot, first_place = self._open[0][:2]
        places, counts = np.unique([entry[1] for entry in self._open], return_counts=True)
        sums = np.zeros(self.n_states)
        for _, _, state, reward in self._open:
            sums[state] += reward
        return Block(since, first_slot, first_place, places, counts.astype(np.int64), sums)

    def _close(self) -> None:
        """Add the open block to the closed ones, and join the two oldest of a size of which there are too many."""
        self._blocks.append(self._opened((self._open[0][0] - 1) // GRID * GRID + 1))
        self._open = []
        sizes = [(block.observations // LEAST).bit_length() for block in self._blocks]
        at = len(sizes) - 1
        # Sizes fall from the oldest block to the newest, but for arms that are now pulled more often than before.
        while at > 0:
            low = at
            while low > 0 and sizes[low - 1] <= sizes[at]:
                low -= 1
            if at - low + 1 <= KEEP:
                at = low - 1
                continue
            joined = self._blocks[low].joined(self._blocks[low + 1])
            self._blocks[low : low + 2] = [joined]
            sizes[low : low + 2] = [(joined.observations // LEAST).bit_length()]
            at = len(sizes) - 1

    def _tested(self, threshold: float) -> tuple[int, float, str, list[Block]] | None:
        """The likeliest time of change if its evidence reaches the threshold, else None."""
        if len(self._blocks) < 2:
            return None
        n, splits = self.n_states, len(self._blocks)
        places, where = np.unique(np.concatenate([block.places for block in self._blocks]), return_inverse=True)
        matrix = np.zeros((splits, len(places)), dtype=np.int64)
        rows = np.repeat(np.arange(splits), [len(block.places) for block in self._blocks])
        matrix[rows, where] = np.concatenate([block.counts for block in self._blocks])
        later = np.cumsum(matrix[::-1], axis=0)[::-1]
        parts = np.zeros((splits, 1 + n))
        if not self.fixed:
            sums = np.cumsum(np.array([block.sums for block in self._blocks])[::-1], axis=0)[::-1]
            seen = np.zeros((splits, n), dtype=np.int64)
            for k in range(n):
                seen[:, k] = later[:, places % n == k].sum(axis=1)
            parts[:, 1:] = kernels.reward_ratios(np.ascontiguousarray(sums), seen)
        chains = None if n == 1 else self._chains(places, later)
        promising: list[int] = []
        if chains is not None:
            parts[:, 0] = -math.inf
            gains = self._promises(chains)
            promising = [c for c in range(1, splits) if 2 * gains[c] + _mixed(parts[c, 1:]) >= threshold]
            for c in promising:
                parts[c, 0] = self._chain_evidence(chains, c, thorough=False)
        best = max(range(1, splits), key=lambda c: _mixed(parts[c]))
        if _mixed(parts[best]) < threshold:
            return None
        if chains is not None and parts[best, 0] > 0:
            parts[best, 0] = self._chain_evidence(chains, best, thorough=True)
            if _mixed(parts[best]) < threshold:
                return None
        chain, rewards = parts[best, 0] > 0, (parts[best, 1:] > 0).any()
        what = " and ".join(name for name, changed in (("chain", chain), ("rewards", rewards)) if changed)
        return self._blocks[best].since, _mixed(parts[best]), what, self._blocks[best:]

    def _chains(self, places: IntArray, later: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Observations after every split: elapsed slots, last states, and counts ``[split, cell, state]``."""
        n = self.n_states
        cells, where = np.unique(places // n, return_inverse=True)
        states, bins = cells // N_BINS, cells % N_BINS
        # The first sight of an arm tells nothing of its chain.
        order = np.argsort(bins, kind="stable")
        order = order[states[order] < n]
        table = np.zeros((len(later), len(cells), n), dtype=np.int64)
        table[:, where, places % n] = later
        return BIN_MIDDLES[bins[order]], states[order], np.ascontiguousarray(table[:, order])

    def _promises(self, chains: tuple[IntArray, IntArray, IntArray]) -> Array:
        """About what each split gains, from the likeliest chain of all, which is found on the way."""
        elapsed, states, later = chains
        everything = elapsed, states, later[0]
        begin = None if self._mode is None else [self._mode]
        self._mode = modes_of(everything, self.n_states, begin, prior=FLAT, thorough=begin is None)[0].theta
        return kernels.score_gains(self._mode, self.n_states, elapsed, states, later)

    def _chain_evidence(self, chains: tuple[IntArray, IntArray, IntArray], split: int, *, thorough: bool) -> float:
        """Log of the evidence that the chain changed at a split."""
        elapsed, states, later = chains
        n, everything = self.n_states, (elapsed, states, later[0])
        assert self._mode is not None
        parts: list[Observations] = [
            _seen(elapsed, states, later[0] - later[split]),
            _seen(elapsed, states, later[split]),
        ]
        fits = [modes_of(part, n, [self._mode], thorough=False)[0] for part in parts]
        if thorough:
            starts = [self._mode, *(fit.theta for fit in fits)]
            found = [*modes_of(everything, n, prior=FLAT), *modes_of(everything, n, starts, prior=FLAT)]
            self._mode = max(found, key=lambda mode: mode.value).theta
        return sum(
            kernels.coded_likelihood(fit.theta, n, fit.information, part) for fit, part in zip(fits, parts, strict=True)
        ) - kernels.log_likelihood(chain_of(self._mode, n), everything)


def _seen(elapsed: IntArray, states: IntArray, counts: IntArray) -> Observations:
    there = counts.any(axis=1)
    return elapsed[there], states[there], counts[there]


def _mixed(parts: Array) -> float:
    """Log of the evidence of all parts together, each of which has changed or not with equal weights."""
    return float((np.logaddexp(parts, 0.0) - math.log(2.0)).sum())


def alarm_threshold(alarm_rate: float, n_arms: int) -> float:
    """Return the least evidence for an alarm, so that all arms together give so many false ones a slot on average."""
    return math.log(n_arms / (alarm_rate * GRID))
