"""How far laws under P and P' are apart: Lemmas 8 to 13."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from restless_bandits import Arm, Problem
from restless_bandits.model import markov
from restless_bandits.model.optimism import optimistic_chain
from restless_bandits.paper import theory
from tests.model.chains import chain_of, drifting, horizon_for, optimistic, random_chains


class TestPerturbation:
    @given(random_chains, st.floats(0.001, 0.3))
    def test_lemma_9_and_what_is_proved(self, which, rad):
        chain = chain_of(*which)
        other = optimistic(chain, rad, np.random.default_rng(which[1]))
        assert 0.5 * np.abs(chain - other).sum(axis=1).max() <= 2 * rad + 1e-12
        proved, linear = theory.proved_law_gap(chain, other, rad, 60), theory.linear_law_gap(chain, other, rad, 60)
        assert proved.holds
        assert linear.holds
        assert (proved.bound <= linear.bound + 1e-12).all()
        assert proved.bound[-1] <= 2 * rad * theory.total_contraction(chain) * (1 + 1e-9)

    def test_the_printed_proof_of_lemma_9_does_not_do(self):
        """The largest entry of a difference may grow under a chain that meets the assumptions; its sum may not."""
        chain = np.zeros((6, 6))
        for k, row in enumerate([(0.1, 0.9), (0.05, 0.9, 0.05), (0.9, 0.05, 0.05)]):
            chain[k, max(0, k - 1) : max(0, k - 1) + len(row)] = row
            chain[5 - k] = chain[k, ::-1]
        assert all(one.holds for one in Problem([Arm(chain, np.linspace(1, 0, 6))]).assumptions.values())
        difference = np.array([0.1, 0.1, 0.1, -0.1, -0.1, -0.1])
        assert np.abs(difference @ chain).max() > 0.26
        assert np.abs(difference @ chain).sum() <= np.abs(difference).sum()

    @settings(max_examples=25)
    @given(random_chains)
    def test_lemmas_10_to_12(self, which):
        chain = chain_of(*which)
        n, horizon = len(chain), horizon_for(chain)
        rad = theory.radius(horizon)
        rng = np.random.default_rng(which[1])
        rate = abs(markov.second_eigenvalue(chain))
        rewards = np.sort(rng.random(n))[::-1]
        for other in (optimistic_chain(chain, np.full(n, 2 * rad)), optimistic(chain, rad, rng)):
            # λ_max is at least the chain's own: bounds with that are smaller.
            length = min(400, 3 * math.ceil(math.log(horizon) / math.log(1 / rate)))
            assert theory.settled_law_gap(chain, other, horizon, rate, length).holds
            assert theory.any_law_gap(chain, other, horizon, rate, length).holds
            better = Arm(other, np.minimum(1, rewards + 2 * rad))
            assert theory.reward_gap(Arm(chain, rewards), better, horizon, rate, length).holds
            apart = 0.5 * np.abs(markov.stationary(chain) - markov.stationary(other)).sum()
            assert apart <= 2 * rad * theory.kemeny_constant(chain) + 1e-12

    def test_two_states_in_closed_form(self):
        chain = np.array([[0.7, 0.3], [0.2, 0.8]])
        assert theory.contractions(chain, 3) == pytest.approx([1, 0.5, 0.25, 0.125])
        assert theory.total_contraction(chain) == pytest.approx(2)
        assert theory.kemeny_constant(chain) == pytest.approx(2)
        other = np.array([[0.8, 0.2], [0.3, 0.7]])
        # Both have λ = .5, so laws differ by (1 − .5^τ) of what their limits do, .4 and .6.
        assert theory.law_gaps(chain, other, 3) == pytest.approx([0.1, 0.15, 0.175])
        assert theory.linear_law_gap(chain, other, 0.05, 3).worst == pytest.approx(1)
        assert theory.proved_law_gap(chain, other, 0.05, 3).worst == pytest.approx(1)

    def test_total_contraction_is_the_sum(self):
        chain = chain_of(4, 3)
        assert theory.total_contraction(chain) == pytest.approx(theory.contractions(chain, 3000).sum(), rel=1e-5)
        assert theory.total_contraction(np.eye(3)) == math.inf
        assert theory.total_contraction(np.eye(2)) == math.inf

    def test_the_inequality_of_lemma_13_is_false(self):
        """Also with λ_max of the neighbour space, which is larger than the chain's own |λ₂|."""
        for n in (3, 4, 6):
            chain = drifting(n)
            assert all(found.holds for found in Problem([Arm(chain, np.linspace(1, 0, n))]).assumptions.values())
            rate = markov.neighbour_eigenvalue_bounds(chain, 2 * 0.01 / 3)[1]
            found = theory.forgetting(chain, rate, 30)
            assert not found.holds
            assert found.worst > 1.4
            # From the far end nothing is known of the limit before the chain can have got there.
            assert found.measured[n - 2] > 0.98

    @example((2, 21195))  # Nearly equal, and rounding counts once both are 1e-12.
    @given(random_chains)
    def test_what_is_true_instead(self, which):
        assert theory.reversible_forgetting(chain_of(*which), 40).holds
        if which[0] == 2:
            chain = chain_of(*which)
            assert theory.forgetting(chain, abs(markov.second_eigenvalue(chain)), 40).holds
