"""The order on laws and chains: Lemmas 3 to 7."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restless_bandits.model.optimism import optimistic_chain
from restless_bandits.paper import theory
from tests.model.chains import chain_of, optimistic, random_chains


class TestOrder:
    def test_the_order(self):
        assert theory.dominates(np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]))
        assert not theory.dominates(np.array([0.5, 0.1, 0.4]), np.array([0.4, 0.3, 0.3]))
        assert theory.dominance_margin(np.array([0.5, 0.1, 0.4]), np.array([0.4, 0.3, 0.3])) == pytest.approx(-0.1)
        assert theory.dominance_margin(np.ones(1), np.ones(1)) == 0

    @given(random_chains, st.floats(0.001, 0.3))
    def test_lemmas_3_5_6_7(self, which, rad):
        """Any radius, so that rows are clipped as well."""
        chain = chain_of(*which)
        rng = np.random.default_rng(which[1])
        better = optimistic(chain, rad, rng)
        assert theory.dominates(better, chain)
        assert theory.monotone_margin(chain) >= -1e-12
        n = len(chain)
        worse_law = rng.dirichlet(np.ones(n))
        # Mass moved to better states makes a law that dominates.
        distribution = worse_law.copy()
        for k in range(1, n):
            moved = rng.uniform() * distribution[k]
            distribution[k] -= moved
            distribution[rng.integers(k)] += moved
        assert theory.dominates(distribution, worse_law)
        assert theory.dominates(distribution @ better, distribution @ chain)
        assert theory.dominates(distribution @ chain, worse_law @ chain)
        for tau in (1, 2, 5, 20):
            power, better_power = (np.linalg.matrix_power(one, tau) for one in (chain, better))
            assert theory.dominates(distribution @ better_power, worse_law @ power)
        assert (theory.power_margins(better, chain, 20) >= -1e-12).all()

    @given(random_chains)
    def test_lemma_4_is_assumption_3(self, which):
        chain = chain_of(*which, kind="birth-death")
        slack = 1 - (np.diagonal(chain, 1) + np.diagonal(chain, -1)).max()
        margin = theory.monotone_margin(chain)
        assert margin == pytest.approx(slack, abs=1e-12) if slack < 0 else margin >= -1e-12

    def test_without_assumption_3(self):
        """Rows still dominate, powers need not: leaving a good state less often may make it less likely."""
        chain = np.array([[0.1, 0.9], [0.8, 0.2]])
        rad = 0.05
        better = optimistic_chain(chain + rad * np.array([[1, -1], [-1, 1]]), np.full(2, rad))
        np.testing.assert_allclose(better, [[0.2, 0.8], [0.8, 0.2]])
        margins = theory.power_margins(better, chain, 4)
        assert margins[1] >= 0
        assert margins[2] == pytest.approx(0.68 - 0.73)

    def test_assumption_3_is_what_is_missing(self):
        """Among chains that violate it, powers fail for many; among those that meet it for none (above)."""
        failures = 0
        for seed in range(300):
            chain = chain_of(3, seed, kind="birth-death")
            if theory.monotone_margin(chain) < -0.1:
                better = optimistic(chain, 0.02, np.random.default_rng(seed))
                failures += theory.power_margins(better, chain, 10).min() < -1e-6
        assert failures > 5
