import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restless_bandits import Problem
from restless_bandits.model import markov


def random_chain(seed, size, kind="paper"):
    return Problem.random(1, size, seed=seed, kind=kind).arms[0].chain


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["paper", "birth-death", "general"]))
def test_powers_are_matrix_powers(seed, size, kind):
    chain = random_chain(seed, size, kind)
    stack = markov.powers(chain, 9)
    for tau in range(10):
        np.testing.assert_allclose(stack[tau], np.linalg.matrix_power(chain, tau), atol=1e-14)


def test_long_powers_stay_laws():
    chain = np.array([[0.9921678865358946, 0.0078321134641054], [0.0158526392273741, 0.9841473607726259]])
    far = markov.powers(chain, 5000)[-1]
    assert np.abs(far.sum(axis=1) - 1).max() < 1e-15
    np.testing.assert_allclose(far, [markov.stationary(chain)] * 2, atol=1e-14)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["paper", "general"]))
def test_stationary_law_is_invariant(seed, size, kind):
    chain = random_chain(seed, size, kind)
    distribution = markov.stationary(chain)
    assert distribution.min() >= 0
    np.testing.assert_allclose(distribution @ chain, distribution, atol=1e-14)
    assert distribution.sum() == pytest.approx(1, abs=1e-14)


def test_two_state_stationary_law_in_closed_form():
    np.testing.assert_allclose(markov.stationary(np.array([[0.7, 0.3], [0.2, 0.8]])), [0.4, 0.6], atol=1e-15)


ABSORBING_ENDS = np.array([[1, 0, 0], [0.3, 0.4, 0.3], [0, 0, 1]])
FLIP = np.array([[0.0, 1], [1, 0]])


def test_several_recurrent_classes():
    assert [members.tolist() for members in markov.recurrent_classes(ABSORBING_ENDS)] == [[0], [2]]
    np.testing.assert_allclose(markov.limit_laws(ABSORBING_ENDS), [[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1]], atol=1e-15)
    assert not markov.is_ergodic(ABSORBING_ENDS)
    assert markov.mixing_time(ABSORBING_ENDS, 0.1) is None


def test_periods():
    assert markov.period(FLIP, np.array([0, 1])) == 2
    assert markov.period(np.array([[0, 1, 0], [0, 0, 1], [1.0, 0, 0]]), np.arange(3)) == 3
    assert markov.period(np.array([[0.5, 0.5], [1, 0]]), np.arange(2)) == 1
    assert not markov.is_ergodic(FLIP)
    assert markov.is_ergodic(np.array([[1, 0], [0.3, 0.7]]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("paper-1", [9, 3]), ("paper-2", [13, 4]), ("lms-heavy-tree-s", [64, 28])],
)
def test_mixing_times_for_reference(name, expected):
    """To 1/√T in L1 norm at T = 1e5."""
    arms = Problem.builtin(name).arms
    assert [markov.mixing_time(arm.chain, 1e5**-0.5) for arm in arms] == expected


@given(st.integers(0, 10**6), st.integers(2, 5), st.floats(1e-6, 1.5))
def test_mixing_time_is_the_first(seed, size, epsilon):
    chain = random_chain(seed, size)
    distribution = markov.stationary(chain)
    found = markov.mixing_time(chain, epsilon)
    gaps = 2 * markov.distances(markov.powers(chain, found)[1:], distribution)
    assert gaps[-1] <= epsilon * (1 + 1e-9)
    assert np.all(gaps[:-1] > epsilon * (1 - 1e-9))


NEVER_MIXED = np.array([[1 - 2.0**-50, 2.0**-50], [2.0**-50, 1 - 2.0**-50]])


@given(st.integers(0, 10**6), st.sampled_from(["birth-death", "general"]), st.sampled_from([1e-13, 1e-3, 0.5]))
def test_mixing_times_of_a_stack_are_those_of_each(seed, kind, epsilon):
    chains = np.array([*(random_chain(seed + i, 2, kind) for i in range(5)), NEVER_MIXED, [[0.5, 0.5], [0.5, 0.5]]])
    found = markov.mixing_times(chains, np.array([markov.stationary(chain) for chain in chains]), epsilon)
    assert found.tolist() == [markov.mixing_time(chain, epsilon) or 0 for chain in chains]
    assert found[-1] == 1
    assert found[-2] == 0


@pytest.mark.parametrize(("p", "expected"), [([[0.7, 0.3], [0.2, 0.8]], 0.5), ([[0.2, 0.8], [0.9, 0.1]], -0.7)])
def test_second_eigenvalue_keeps_its_sign(p, expected):
    assert markov.second_eigenvalue(np.array(p)) == pytest.approx(expected)


@given(st.integers(0, 10**6), st.integers(2, 6))
def test_second_eigenvalue_of_birth_death_chains(seed, size):
    chain = random_chain(seed, size)
    values = np.sort(np.abs(np.linalg.eigvals(chain)))
    assert abs(markov.second_eigenvalue(chain)) == pytest.approx(values[-2], abs=1e-9)


class TestNeighbourSpace:
    def test_two_states_in_closed_form(self):
        """|λ| + 2·(2 c1/3), attained."""
        low, high = markov.neighbour_eigenvalue_bounds(np.array([[0.7, 0.3], [0.2, 0.8]]), 2 * 0.2 / 3)
        assert low == high == pytest.approx(0.5 + 4 * 0.2 / 3)
        low, high = markov.neighbour_eigenvalue_bounds(np.array([[0.2, 0.8], [0.9, 0.1]]), 2 * 0.1 / 3)
        assert low == high == pytest.approx(0.7 + 4 * 0.1 / 3)

    @given(st.integers(0, 10**6), st.integers(3, 6), st.sampled_from(["paper", "birth-death"]))
    def test_bounds_hold_for_every_neighbour_drawn(self, seed, size, kind):
        chain = random_chain(seed, size, kind)
        near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 1
        distance = 2 * chain[near].min() / 3
        low, high = markov.neighbour_eigenvalue_bounds(chain, distance)
        assert abs(markov.second_eigenvalue(chain)) - 1e-12 <= low <= high + 1e-12
        assert high <= 1
        rng = np.random.default_rng(seed)
        for _ in range(50):
            neighbour = chain + np.where(near, rng.uniform(-distance, distance, chain.shape), 0)
            neighbour[np.arange(size), np.arange(size)] += 1 - neighbour.sum(axis=1)
            if (np.abs(neighbour - chain) <= distance + 1e-12).all() and neighbour.min() >= 0:
                assert abs(markov.second_eigenvalue(neighbour)) <= high + 1e-9

    def test_the_bracket_is_tight_on_the_queue(self):
        for arm in Problem.builtin("queue-5").arms:
            low, high = markov.neighbour_eigenvalue_bounds(arm.chain, 2 * 0.08 / 3)
            assert high - low < 1e-9

    def test_other_chains_are_refused(self):
        with pytest.raises(ValueError, match="birth-death"):
            markov.neighbour_eigenvalue_bounds(np.full((3, 3), 1 / 3), 0.1)


def test_dominance():
    assert markov.dominates(np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]))
    assert not markov.dominates(np.array([0.4, 0.5, 0.1]), np.array([0.5, 0.3, 0.2]))


@pytest.mark.parametrize("chance", [2.2e-311, 1e-200, 1e-140])
def test_chances_next_to_nothing(chance):
    arm = Problem.random(1, 2, seed=0).arms[0]
    arm = type(arm)([[0.0, 1.0], [chance, 1 - chance]], [1, 0], initial=0)
    np.testing.assert_allclose(arm.stationary, [0, 1], atol=1e-100)
    long = type(arm)([[0.5, 0.5, 0], [chance, 0.5, 0.5], [0, chance, 1 - chance]], [1, 0.5, 0], initial=0)
    np.testing.assert_allclose(long.stationary, [0, 0, 1], atol=1e-100)
