"""The event E; statistical tests have a false-alarm rate of 1e-6 each."""

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from restless_bandits import Arm, Problem
from restless_bandits.paper import theory
from tests.model.chains import PAPER, THREE, chain_of


class TestEvent:
    def test_probability_by_enumeration(self):
        """All multinomial outcomes of m(30) = 10 observations of every state."""
        arm = Arm(chain_of(3, 1, floor=0.1), [0.9, 0.5, 0.2])
        m, rad = theory.exploration_count(30), theory.radius(30)
        expected = 1.0
        for k, row in enumerate(arm.chain):
            near = [j for j in range(3) if abs(j - k) <= 1]
            chance = 0.0
            for counts in itertools.product(range(m + 1), repeat=len(near)):
                if sum(counts) == m and all(
                    abs(n / m - row[j]) <= rad + 1e-9 for n, j in zip(counts, near, strict=True)
                ):
                    chance += stats.multinomial.pmf(counts, m, row[near])
            expected *= chance
        for mean in arm.rewards:
            expected *= sum(stats.binom.pmf(n, m, mean) for n in range(m + 1) if abs(n / m - mean) <= rad)
        assert m == 10
        assert expected < 0.99
        assert theory.event_probability(Problem([arm]), 30) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("problem", [PAPER, THREE, Problem.builtin("queue-5")], ids=lambda one: one.name)
    def test_runs_agree_with_lemma_and_computation(self, problem):
        found = theory.check_event(problem, 200, runs=20_000)
        assert found.agrees
        assert not found.refuted
        assert found.bound == max(0, 1 - 8 * problem.n_arms * problem.n_states[0] / 200)
        assert found.probability >= found.bound
        assert found == theory.check_event(problem, 200, runs=20_000)

    def test_the_checks_can_fail(self):
        found = theory.check_event(PAPER, 1000, runs=20_000)
        assert not dataclasses.replace(found, probability=0.99).agrees
        assert dataclasses.replace(found, held=19_000).refuted

    def test_fixed_rewards_are_known_at_once(self):
        arms = [Arm(arm.chain, arm.rewards, reward_law="fixed") for arm in THREE.arms]
        assert theory.event_probability(Problem(arms), 100) > theory.event_probability(THREE, 100)
        assert theory.check_event(Problem(arms), 100, runs=20_000).agrees

    def test_more_than_m_observations_do_no_harm(self):
        """The counts of an exploration that stops at its last state: Hoeffding's bound holds for all n ≥ m at once."""
        problem, horizon, runs = PAPER, 200, 4000
        _, counts = theory.simulate_exploration(problem, horizon, runs)
        held = np.ones(runs, dtype=bool)
        rad = theory.radius(horizon)
        for arm, found in zip(problem.arms, counts, strict=True):
            shares = found / found.sum(axis=2, keepdims=True)
            assert (found.sum(axis=2) >= theory.exploration_count(horizon)).all()
            held &= (np.abs(shares - arm.chain) <= rad).all(axis=(1, 2))
        assert stats.binom.cdf(held.sum(), runs, theory.event_bound(problem, horizon)) >= 1e-6
