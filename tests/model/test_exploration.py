"""The length of the exploration phase, by recursion and by simulation (false alarm 1e-6)."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError
from restless_bandits.model.exploration import expected_slots
from restless_bandits.paper import theory
from restless_bandits.simulation.engine import World, play_run
from tests.model.chains import PAPER, THREE, chain_of

SIGMAS = stats.norm.isf(5e-7)


def expected_cover(chain, start, m):
    """E of the steps until every state was left m times, by recursion over the counts."""
    n = len(chain)
    counts = sorted(itertools.product(range(m + 1), repeat=n), key=sum, reverse=True)
    after = {}
    for left in counts:
        if min(left) >= m:
            after[left] = np.zeros(n)
            continue
        # value[s]: steps still to come when s is about to be left; counts beyond m do not matter.
        more = np.zeros((n, n))
        constant = np.ones(n)
        for s in range(n):
            if left[s] < m:
                step = tuple(c + (k == s) for k, c in enumerate(left))
                constant[s] += chain[s] @ after[step]
            else:
                more[s] = chain[s]
        after[left] = np.linalg.solve(np.eye(n) - more, constant)
    return float(start @ after[(0,) * n])


class TestExploration:
    @given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 1))
    def test_two_states_by_recursion(self, seed, m, first):
        chain, start = chain_of(2, seed, kind="birth-death"), np.array([first, 1 - first])
        assume(min(chain[0, 1], chain[1, 0]) >= 1e-3)
        assert expected_slots(chain, start, m) == pytest.approx(expected_cover(chain, start, m), rel=1e-9)

    @pytest.mark.parametrize("problem", [PAPER, THREE], ids=lambda one: one.name)
    def test_bounds_hold_the_mean(self, problem):
        """First arm from its start: by recursion; m(8) = 4."""
        found = theory.exploration_length(problem, 8)
        arm = problem.arms[0]
        exact = expected_cover(arm.chain, np.eye(arm.n_states)[arm.initial], 4)
        assert found.lower_by_arm[0] <= exact <= found.upper_by_arm[0]
        assert theory.exploration_bound(problem, 8) == found.upper
        if arm.n_states == 2:
            assert found.expected_by_arm[0] == pytest.approx(exact)
        else:
            assert math.isnan(found.expected)

    def test_hitting_moments_of_a_geometric_wait(self):
        mean, second = theory.hitting_moments(np.array([[0.75, 0.25], [0.5, 0.5]]), 1)
        assert mean == pytest.approx([4, 0])
        assert second == pytest.approx([(2 - 0.25) / 0.25**2, 0])

    def test_against_simulation_and_against_the_learner(self):
        horizon = 1000
        expected = theory.exploration_length(PAPER, horizon).expected
        lengths, counts = theory.simulate_exploration(PAPER, horizon, 400)
        played = []
        world, learner = World(PAPER), rb.learner("restless-ucb:oracle=best-arm")
        for run in range(200):
            record = play_run(learner, world, horizon, np.array([horizon]), seed=1, run=run).record
            played.append(sum(record.plan_lengths[:2]))
        for drawn in (lengths.sum(axis=1), np.array(played)):
            error = drawn.std(ddof=1) / math.sqrt(len(drawn))
            # A twentieth more than the normal law needs, for the skew of 200 runs.
            assert abs(drawn.mean() - expected) < 1.05 * SIGMAS * error
            assert error < 0.01 * expected
        assert (lengths[:, 0] == counts[0].sum(axis=(1, 2))).all()
        assert (lengths[:, 1] == 1 + counts[1].sum(axis=(1, 2))).all()

    def test_fact_1_needs_its_order(self):
        """Where two states are equally likely the wait for the last one adds about √m: N m / d_min is exceeded."""
        even = Problem([Arm.two_state(0.9, 0.9, initial=0)])
        for horizon in (10**3, 10**6):
            found = theory.exploration_length(even, horizon)
            excess = (found.expected - found.fact_1) / math.sqrt(found.observations)
            assert 1 < excess < 10
            assert found.expected < found.upper

    def test_refusals(self):
        with pytest.raises(ProblemError, match="never seen again"):
            theory.exploration_length(Problem([Arm([[1, 0], [0.5, 0.5]], [1, 0])]), 100)
        with pytest.raises(ProblemError, match="plays is 2"):
            theory.exploration_length(Problem(THREE.arms, plays=2), 100)

    def test_lengths_beyond_the_largest_double(self):
        """The search for the first informative horizon overflowed, and a warning was shown."""
        seldom = Arm([[1 - 1e-8, 1e-8], [1e-150, 1.0]], [1, 0])
        problem = Problem([seldom, Arm([[1 - 1e-8, 1e-8], [0.5, 0.5]], [1, 0], initial=0)])
        assert theory.exploration_length(problem, 10**12).lower > 9e149
        with pytest.raises(ProblemError, match=r"horizon is 1000.*; exploration takes over 1e308 slots"):
            theory.exploration_length(problem, 10**300)
        assert rb.check(problem).bounds.vacuous_until is None
