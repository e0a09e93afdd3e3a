"""The neighbour space and λ_max."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Arm, Problem
from restless_bandits.model import markov
from restless_bandits.paper import theory
from tests.model.chains import PAPER, THREE, optimistic


class TestNeighbours:
    def test_two_states(self):
        assert theory.neighbour_distance(PAPER) == pytest.approx(2 * 0.2 / 3)
        assert theory.lambda_max(PAPER) == pytest.approx(0.5 + 4 * 0.2 / 3)
        assert rb.check(PAPER).lambda_max_bounds == theory.lambda_max_bounds(PAPER)

    def test_not_defined(self):
        assert theory.lambda_max_bounds(Problem([Arm(np.eye(2), [1, 0])])) is None
        assert theory.lambda_max(Problem.random(1, 3, seed=0, kind="general")) is None

    def test_optimistic_chains_are_neighbours_and_none_exceeds_the_bound(self):
        rng = np.random.default_rng(0)
        low, high = theory.lambda_max_bounds(THREE)
        distance = theory.neighbour_distance(THREE)
        rad = distance / 2
        for arm in THREE.arms:
            for _ in range(100):
                other = optimistic(arm.chain, rad, rng)
                assert theory.is_neighbour(arm.chain, other, distance)
                assert abs(markov.second_eigenvalue(other)) <= high
        assert low <= high < 1
        assert not theory.is_neighbour(arm.chain, arm.chain[::-1], distance)
