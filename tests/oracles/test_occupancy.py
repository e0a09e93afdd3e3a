"""Fractions of arms in each state: the fluid path of a hand-written recursion, and a run that stays near it."""

import numpy as np
import pytest

import restless_bandits as rb


@pytest.fixture(scope="module")
def problem():
    return rb.load_problem("three-states").with_arms(100_000)


def by_hand(problem, order, slots, fractions):
    (group,) = problem.groups
    found = []
    for _ in range(slots):
        found.append(fractions)
        pulled, left = np.zeros(3), problem.plays / problem.n_arms
        for state in order:
            pulled[state] = min(left, fractions[state])
            left -= pulled[state]
        fractions = pulled @ group.active[0] + (fractions - pulled) @ group.passive[0]
    return np.array(found)


def test_a_run_stays_near_the_fluid_path(problem):
    found = rb.occupancy(problem, "whittle", 40, state=1)
    expected = by_hand(problem, [0, 1, 2], 40, np.array([0.0, 1, 0]))
    assert found.fluid == pytest.approx(expected, abs=1e-12)
    assert found.simulated[0].tolist() == [0, 1, 0]
    # A fraction has a standard deviation of at most .0016; the order of priority does not magnify it.
    assert np.abs(found.simulated - found.fluid).max() < 0.02
    assert found.simulated.sum(axis=1) == pytest.approx(np.ones(40))


@pytest.mark.parametrize("oracle", ["lp-index", "lp-update", "id", "fluid-priority"])
def test_policies(oracle):
    problem = rb.load_problem("three-states").with_arms(2000)
    found = rb.occupancy(problem, oracle, 8)
    assert (found.fluid is None) == (oracle == "id")
    assert found.simulated.sum(axis=1) == pytest.approx(np.ones(8))
    if found.fluid is not None:
        assert np.abs(found.simulated - found.fluid).max() < 0.08
    again = rb.occupancy(problem, oracle, 8)
    assert np.array_equal(again.simulated, found.simulated)
    assert not np.array_equal(rb.occupancy(problem, oracle, 8, seed=1).simulated, found.simulated)


def test_single_arms_and_several_kinds():
    problem = rb.Problem.random_reacting(300, kind="health", seed=3)
    for oracle in ("whittle", "id"):
        found = rb.occupancy(problem, oracle, 30)
        assert found.simulated.shape == (30, 2)
        assert found.simulated[:, 0] == pytest.approx(1 - found.simulated[:, 1])
    expected = sum((group.count[:, None] * group.start).sum(axis=0) for group in problem.groups) / 300
    assert rb.occupancy(problem, "whittle", 1).fluid[0] == pytest.approx(expected)


def test_mistakes(problem):
    with pytest.raises(rb.ProblemError, match="give a problem with observed = 'all'"):
        rb.occupancy("paper-1")
    with pytest.raises(rb.ProblemError, match="state is 3; it must be a whole number from 0 to 2"):
        rb.occupancy(problem, state=3)
