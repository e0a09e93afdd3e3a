"""The test for changes: exact bounds by enumeration, likelihoods against their definition, power, blocks, storage."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from restless_bandits._internal.errors import ProblemError
from restless_bandits.learning import estimation
from restless_bandits.learning.change_detection import (
    CHANGE_GRID,
    LEAST_OBSERVATIONS,
    SEGMENTS_KEPT,
    Alarm,
    ChangeTest,
    SegmentedCounts,
    alarm_threshold,
)
from restless_bandits.learning.change_detection import change_kernels as kernels
from restless_bandits.learning.change_detection.detector import ArmChangeDetector
from restless_bandits.learning.count_segments import CountSegment, observed
from restless_bandits.learning.observations import Observation
from restless_bandits.model.record import Record
from tests import reference

PAPER = np.array([[0.7, 0.3], [0.2, 0.8]])
OTHER = np.array([[0.4, 0.6], [0.5, 0.5]])
THREE = np.array([[0.8, 0.2, 0.0], [0.3, 0.4, 0.3], [0.0, 0.4, 0.6]])
RARE = alarm_threshold(1e-6, 2)


class Walker:
    """An arm that is pulled after waits of its own and the lookout for its changes; ``late`` sights are not settled."""

    def __init__(self, n_states, seed, *, wait=1.0, distribution="bernoulli", late=0):
        self.rng = np.random.default_rng(seed)
        self.lookout = ArmChangeDetector(n_states, (0.0, 1.0), fixed=distribution == "fixed")
        self.n, self.wait, self.distribution, self.late = n_states, wait, distribution, late
        self.state, self.last, self.slot = 0, n_states, 0
        self.seen = []
        self.settled = 0

    def check(self, chain, rewards, threshold):
        elapsed = int(self.rng.geometric(self.wait))
        distribution = np.linalg.matrix_power(chain, elapsed)[self.state]
        self.state = int(self.rng.choice(self.n, p=distribution / distribution.sum()))
        mean = rewards[self.state]
        reward = (
            float(self.rng.random() < mean)
            if self.distribution == "bernoulli"
            else self.rng.beta(5 * mean, 5 * (1 - mean))
        )
        self.slot += elapsed
        self.seen.append(Observation(self.slot, 0, self.last, elapsed, self.state, float(reward)))
        self.last = self.state
        while self.settled < len(self.seen) - self.late:
            self.lookout.enter(self.seen[self.settled])
            self.settled += 1
        before = self.seen[self.settled - 1] if self.settled else Observation(0, 0, 0, 0, self.n, 0.0)
        recent = [(sight.slot, sight.state, sight.reward) for sight in self.seen[self.settled :]]
        self.lookout.tell()
        change = self.lookout.check(self.slot, (before.state, before.slot), recent, threshold)
        if change:
            self.lookout.restart(self.slot + 1)
        return change

    def play(self, chain, rewards, pulls, threshold=RARE):
        """Pull so often; return the changes that were found."""
        found = (self.check(chain, rewards, threshold) for _ in range(pulls))
        return [change for change in found if change]


@st.composite
def interleaved(draw):
    n = draw(st.integers(2, 4))
    size = draw(st.integers(1, 6))
    elapsed = sorted(draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 40, 130, 700]), min_size=size, max_size=size)))
    states = draw(st.lists(st.integers(0, n - 1), min_size=size, max_size=size))
    seen = draw(st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=size, max_size=size))
    theta = np.array(draw(st.lists(st.floats(-4, 4), min_size=2 * (n - 1), max_size=2 * (n - 1))))
    return n, (np.array(elapsed), np.array(states), np.array(seen)), theta


class TestEvidence:
    @given(interleaved())
    def test_likelihood_against_its_definition(self, case):
        n, cells, theta = case
        chain = estimation.chain_of(theta, n)
        assert kernels.log_likelihood(chain, cells) == pytest.approx(reference.log_likelihood(chain, cells), abs=1e-7)

    @given(st.integers(2, 4), st.integers(1, kernels.LEVELS), st.data())
    def test_lattices_hold_as_many_chains_as_are_paid_for(self, n, level, data):
        theta = np.array(data.draw(st.lists(st.floats(-8, 8), min_size=2 * (n - 1), max_size=2 * (n - 1))))
        chain = estimation.chain_of(theta, n)
        near = kernels.lattice_chain(chain, level)
        assert np.allclose(near.sum(axis=1), 1.0)
        assert ((near > 0) == (chain > 0)).all()
        assert np.allclose(kernels.lattice_chain(near, level), near), "a chain of the lattice is its own nearest"
        angles = np.arcsin(np.sqrt(1 - np.diag(near))) / (np.pi / 2) * 2**level
        assert np.allclose(angles % 1, 0.5), "chances to move lie in the middles of 2^level cells"

    @pytest.mark.parametrize(("n", "waits"), [(2, (1,) * 8), (2, (1, 3, 2, 1, 7, 2, 1)), (3, (1, 2, 1, 1, 5))])
    def test_codes_of_chains_are_no_more_than_a_probability(self, n, waits):
        # Whatever is seen, the code of a fit bounds one mixture from below: over all that can be seen it adds up to
        # less than 1. Were its price too low, short sequences would show it first.
        total = 0.0
        for path in itertools.product(range(n), repeat=len(waits)):
            cells = cells_of((0, *path), waits, n)
            fit = estimation.modes_of(cells, n)[0]
            possible = all(abs(k - s) <= wait for s, k, wait in zip((0, *path[:-1]), path, waits, strict=True))
            if possible:
                total += math.exp(kernels.coded_likelihood(fit.theta, n, fit.information, cells))
        assert 0.001 < total < 1

    @given(st.integers(1, 40), st.integers(1, 40), st.data())
    def test_a_code_is_near_the_best_there_is(self, moves, stays, data):
        # A chain of two states, where the best of all lattice chains can be looked up row by row.
        back, worse = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 40))
        cells = np.array([1, 1]), np.array([0, 1]), np.array([[stays, moves], [back, worse]])
        fit = estimation.modes_of(cells, 2)[0]
        found = kernels.coded_likelihood(fit.theta, 2, fit.information, cells)
        best = reference.best_code([[moves, stays], [back, worse]], kernels.LEVELS)
        assert best - 3.0 < found < best + 1e-9

    @pytest.mark.parametrize("mean", [0.0, 0.02, 0.3, 0.5, 0.9, 1.0])
    @pytest.mark.parametrize("split", [1, 4, 9])
    def test_mean_evidence_on_rewards_is_at_most_one(self, mean, split):
        # Exactly, over all sequences of ten binary rewards of one state.
        total = 0.0
        for rewards in itertools.product((0, 1), repeat=10):
            chance = mean ** sum(rewards) * (1 - mean) ** (10 - sum(rewards))
            total += chance * math.exp(reward_evidence(rewards, split))
        assert total <= 1 + 1e-12

    @pytest.mark.parametrize(
        ("values", "chances"), [((0.2, 0.6), (0.5, 0.5)), ((0.0, 0.5, 1.0), (0.1, 0.8, 0.1)), ((0.4,), (1.0,))]
    )
    def test_mean_evidence_on_bounded_rewards_is_at_most_one(self, values, chances):
        total = 0.0
        for drawn in itertools.product(range(len(values)), repeat=8):
            chance = math.prod(chances[i] for i in drawn)
            total += chance * math.exp(reward_evidence([values[i] for i in drawn], 4))
        assert total <= 1 + 1e-12

    @pytest.mark.parametrize("waits", [(1,) * 9, (1, 2, 1, 3, 1, 2, 2, 1, 1)])
    @pytest.mark.parametrize(
        "chain", [PAPER, OTHER, np.array([[0.98, 0.02], [0.05, 0.95]])], ids=["slow", "fast", "rare"]
    )
    def test_mean_evidence_of_everything_is_at_most_one(self, chain, waits):
        # Exactly, over all that nine looks at an arm can show, its rewards being its states; the change is looked for
        # after the fourth. The likeliest chain is the one that was found by climbing.
        split, total = 4, 0.0
        for path in itertools.product(range(2), repeat=len(waits)):
            states = (0, *path)
            chance = math.prod(
                np.linalg.matrix_power(chain, wait)[s, k] for s, k, wait in zip(states[:-1], path, waits, strict=True)
            )
            slots = np.cumsum(waits)
            seen = observed(2, (0, 0), [(int(slot), k, float(k)) for slot, k in zip(slots, path, strict=True)])
            parts = [
                CountSegment.of(1, seen.part(0, split), 2),
                CountSegment.of(1 + int(slots[split - 1]), seen.part(split), 2),
            ]
            change = ChangeTest(seen_in(parts)).run(-math.inf)
            total += chance * math.exp(change.evidence)
        assert 0.05 < total <= 1 + 1e-9

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=2))
    def test_rewards_against_integrals(self, parts):
        (ones, zeros), (later, missing) = parts
        whole = [ones + later, zeros + missing]
        sums = np.array([[float(whole[0])], [float(later)]])
        seen = np.array([[sum(whole)], [later + missing]])
        expected = reference.log_mixture(ones, zeros) + reference.log_mixture(later, missing)
        expected -= reference.log_best(*whole)
        assert kernels.split_ratios(sums, seen)[1, 0] == pytest.approx(expected, abs=1e-7)


def cells_of(path, waits, n):
    """Observations of a path, as the estimation takes them."""
    counts = {}
    for s, k, wait in zip(path[:-1], path[1:], waits, strict=True):
        counts.setdefault((wait, s), [0] * n)[k] += 1
    order = sorted(counts)
    return (
        np.array([wait for wait, _ in order]),
        np.array([s for _, s in order]),
        np.array([counts[cell] for cell in order]),
    )


def seen_in(tallies):
    """Tallies as they are asked about."""
    rows = np.repeat(np.arange(len(tallies)), [len(tally.places) for tally in tallies])
    places, counts = (np.concatenate([getattr(tally, name) for tally in tallies]) for name in ("places", "counts"))
    return SegmentedCounts(
        np.array([tally.since for tally in tallies]), rows, places, counts, np.stack([t.sums for t in tallies])
    )


def reward_evidence(rewards, split):
    sums = np.array([[float(sum(rewards))], [float(sum(rewards[split:]))]])
    return float(kernels.split_ratios(sums, np.array([[len(rewards)], [len(rewards) - split]]))[1, 0])


class TestAlarms:
    @pytest.mark.parametrize(
        ("chain", "rewards", "wait", "distribution"),
        [
            (PAPER, [1.0, 0.0], 1.0, "bernoulli"),
            (PAPER, [0.9, 0.2], 0.2, "bernoulli"),
            (np.array([[0.1, 0.9], [0.8, 0.2]]), [0.5, 0.5], 0.5, "beta"),
            (np.array([[0.99, 0.01], [0.02, 0.98]]), [0.8, 0.3], 0.05, "bernoulli"),
            (THREE, [0.9, 0.5, 0.2], 0.4, "beta"),
            (np.ones((1, 1)), [0.4], 0.5, "bernoulli"),
        ],
    )
    def test_false_alarms_are_as_rare_as_stated(self, chain, rewards, wait, distribution):
        # So many alarms are asked for that a rate too high would show: at most one in 60 slots.
        walker = Walker(len(chain), seed=5, wait=wait, distribution=distribution)
        threshold = alarm_threshold(1 / 60, 1)
        found = walker.play(chain, rewards, 2500, threshold)
        assert len(found) <= stats.poisson.isf(1e-6, walker.slot / 60)
        assert len(found) <= 3, "these tests are far on the safe side; with so many alarms something else is wrong"

    @pytest.mark.parametrize(("wait", "late"), [(1.0, 0), (0.5, 0), (1.0, 500)])
    @pytest.mark.parametrize("seed", range(3))
    def test_a_changed_chain_is_found(self, seed, wait, late):
        walker = Walker(2, seed, wait=wait, late=late)
        assert not walker.play(PAPER, [1.0, 0.0], 2000)
        change = walker.slot
        (first, *_) = walker.play(OTHER, [1.0, 0.0], 800)
        assert first.what == "chain"
        assert first.evidence >= RARE
        assert abs(first.since - change) < 300

    @pytest.mark.parametrize("distribution", ["bernoulli", "beta"])
    def test_changed_rewards_are_found(self, distribution):
        walker = Walker(2, seed=1, distribution=distribution)
        assert not walker.play(PAPER, [0.9, 0.2], 2000)
        (first, *_) = walker.play(PAPER, [0.5, 0.2], 500)
        assert first.what == "rewards"
        assert abs(first.since - 2000) < 200

    def test_both_are_found(self):
        walker = Walker(2, seed=3)
        walker.play(PAPER, [0.9, 0.2], 1000)
        (first, *_) = walker.play(OTHER, [0.2, 0.1], 500)
        assert first.what in ("chain and rewards", "rewards")
        # What is left tells the chain as well, once there is more of it.
        assert first.since > 900

    def test_an_alarm_in_words(self):
        alarm = Alarm(1, "server-b", 2000, 1889, 12.5, "chain")
        assert alarm.p_value == pytest.approx(math.exp(-12.5))
        assert str(alarm) == (
            "arm 'server-b' has changed its chain since about slot 1889 (evidence 12.5 nats), found in slot 2000"
        )
        assert "for certain" in str(Alarm(0, "a", 5, 5, math.inf, "rewards"))

    def test_more_arms_ask_for_more_evidence(self):
        assert alarm_threshold(1e-6, 100) == pytest.approx(math.log(100 / (1e-6 * CHANGE_GRID)))


class TestTallies:
    def test_they_hold_all_that_was_seen_and_stay_few(self):
        walker = Walker(2, seed=2, wait=0.5)
        walker.play(PAPER, [0.5, 0.5], 6000)
        kept = walker.lookout.to_dict()
        assert len(kept["tallies"]) <= SEGMENTS_KEPT * math.log2(6000 / LEAST_OBSERVATIONS)
        assert sum(sum(tally[4]) for tally in kept["tallies"]) + len(kept["open"]) == 6000
        begins = [tally[0] for tally in kept["tallies"]]
        assert begins == sorted(begins)
        assert all((begin - 1) % CHANGE_GRID == 0 for begin in begins), "changes are looked for on a grid that is fixed"

    @given(st.integers(0, 10_000), st.integers(1, 400))
    def test_what_is_kept_is_what_was_seen_since(self, seed, pulls):
        walker = Walker(2, seed, wait=0.5)
        walker.play(PAPER, [0.9, 0.0], pulls)
        since = 1 + CHANGE_GRID * (walker.slot // CHANGE_GRID // 2)
        stored = [tally[0] for tally in walker.lookout.to_dict()["tallies"]]
        since = max((begin for begin in stored if begin <= since), default=1)
        kept = walker.lookout.keep(since)
        later = [sight for sight in walker.seen if sight.slot >= since]
        # As if the earlier answers had never been told.
        record = Record((2,), (None,))
        for sight in later:
            record.see(0, sight.slot, sight.state, sight.reward)
        assert np.array_equal(kept.as_first_segment(), record.counts(0).ravel())
        assert np.array_equal(kept.sums, record.reward_sums(0))
        assert np.array_equal(kept.seen, record.seen(0))
        assert (kept.observations, kept.first_slot) == (len(later), later[0].slot)

    @settings(max_examples=10)
    @given(st.integers(0, 1000), st.integers(0, 500), st.sampled_from([0, 40]))
    def test_a_stored_lookout_goes_on_alike(self, seed, moment, late):
        straight, broken = (Walker(3, seed, wait=0.6, late=late) for _ in range(2))
        findings = []
        for walker in (straight, broken):
            found = walker.play(THREE, [0.9, 0.5, 0.1], moment)
            if walker is broken:
                stored = json.loads(json.dumps(walker.lookout.to_dict()))
                walker.lookout = ArmChangeDetector(3, (0.0, 1.0), fixed=False)
                walker.lookout.restore(stored)
            findings.append(found + walker.play(THREE[::-1, ::-1], [0.9, 0.5, 0.1], 300))
        assert findings[0] == findings[1]
        assert straight.lookout.to_dict() == broken.lookout.to_dict()

    @pytest.mark.parametrize(
        ("damage", "word"),
        [
            (lambda data: data["tallies"][0].pop(), "list of 6"),
            (lambda data: data["tallies"][0].__setitem__(2, 3), "does not fit"),
            (lambda data: data["tallies"][0].__setitem__(1, 0), "first observation"),
            (lambda data: data["tallies"][0][4].__setitem__(0, 0), "counts"),
            (lambda data: data["tallies"][0].__setitem__(5, [0.0]), "sums"),
            (lambda data: data["tallies"].reverse(), "order"),
            (lambda data: data["open"][0].__setitem__(1, 1 << 40), "place"),
            (lambda data: data["open"][0].__setitem__(2, "much"), "reward"),
            (lambda data: data.__setitem__("mode", [1.0]), "mode"),
        ],
    )
    def test_damage_is_refused(self, damage, word):
        walker = Walker(2, seed=9)
        walker.play(PAPER, [0.9, 0.0], 300)
        data = walker.lookout.to_dict()
        damage(data)
        with pytest.raises(ProblemError, match=word):
            ArmChangeDetector(2, (0.0, 1.0), fixed=False).restore(data)

    def test_tallies_join(self):
        one = CountSegment(1, 1, 4, np.array([4, 9]), np.array([1, 2]), np.array([1.0, 0.5]))
        other = CountSegment(33, 40, 9, np.array([9, 11]), np.array([3, 4]), np.array([1.0, 1.0]))
        both = one.joined(other)
        assert (both.since, both.first_slot, both.first_place) == (1, 1, 4)
        assert both.places.tolist() == [4, 9, 11]
        assert both.counts.tolist() == [1, 5, 4]
        assert both.sums.tolist() == [2.0, 1.5]

    @given(st.integers(0, 2), st.lists(st.tuples(st.integers(1, 3 * 512), st.integers(0, 1)), max_size=20))
    def test_places_are_those_of_the_record(self, before, waits):
        record = Record((2,), (None,))
        if before < 2:
            record.see(0, 1, before, 0.0)
            record.counts(0)[:] = 0
        slots = np.cumsum([1] + [wait for wait, _ in waits])[1:].tolist()
        sights = [(slot, state, 0.0) for slot, (_, state) in zip(slots, waits, strict=True)]
        found = observed(2, (before, 1 if before < 2 else 0), sights)
        for slot, state, reward in sights:
            record.see(0, slot, state, reward)
        places, counts = np.unique(found.places, return_counts=True)
        flat = record.counts(0).ravel()
        assert np.array_equal(np.flatnonzero(flat), places)
        assert np.array_equal(flat[places], counts)
