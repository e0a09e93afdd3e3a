"""Set-up costs of observed arms: a state after a slot with a pull is a state of its own."""

import numpy as np
import pytest

from restless_bandits import Arm, Problem, evaluate, simulate, solve
from restless_bandits.oracles.whittle import observed_indices, whittle_index

PASSIVE, ACTIVE = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[0.3, 0.7], [0.1, 0.9]])
COST = 0.3


@pytest.fixture(scope="module")
def problem():
    first = Arm(PASSIVE, [1, 0.2], active_transitions=ACTIVE, passive_rewards=[0.1, 0], setup_cost=COST, name="a")
    second = Arm([[0.8, 0.2], [0.3, 0.7]], [0.8, 0], active_transitions=[[0.5, 0.5], [0.2, 0.8]], name="b")
    return Problem([first, second.named("b"), first.named("c")], observed="all")


def optimum(problem, slots=3000):
    """The best gain by value iteration in plain Python over the states of all arms and the last pulled arm."""
    arms = problem.arms
    value = np.zeros((4, 2, 2, 2))  # the last pulled arm, 3 without one
    for _ in range(slots):
        best = np.full(value.shape, -np.inf)
        for pulled in range(3):
            chains = [arm.active_chain if i == pulled else arm.chain for i, arm in enumerate(arms)]
            ahead = np.einsum("ax,by,cz,xyz->abc", *chains, value[pulled])
            for i, arm in enumerate(arms):
                paid = arm.mean_rewards[:, int(i == pulled)]
                ahead += paid.reshape([-1 if axis == i else 1 for axis in range(3)])
            for last in range(4):
                cost = arms[pulled].setup_cost if last != pulled else 0.0
                best[last] = np.maximum(best[last], ahead - cost)
        step, value = best - value, 0.5 * (best + value)
        value -= value.min()
    return float(step.min()), float(step.max())


def test_the_optimum(problem):
    low, high = optimum(problem)
    found = solve(problem)
    assert found.certified
    assert found.lower - 1e-9 <= low <= high <= found.upper + 1e-9
    simulated = evaluate(problem, found.policy, simulate=True)
    assert abs(simulated.gain - low) < 6 * simulated.stderr
    assert solve(problem, "best-arm").lower <= low <= solve(problem, "lp-index").upper


def test_indices_are_those_of_the_arm(problem):
    found = observed_indices(problem)
    assert [index.table.shape for index in found] == [(4, 1), (2, 1), (4, 1)]
    for arm, index in zip(problem.arms, found, strict=True):
        assert index.table == pytest.approx(whittle_index(arm, observed="all").table, abs=1e-12)
    # A pull after a pull costs nothing.
    assert (found[0].table[2:] > found[0].table[:2]).all()


@pytest.mark.parametrize("count", [1, 20])
def test_drawn_rewards_have_their_means(problem, count):
    kinds = [arm.of_count(count) for arm in problem.arms]
    played = simulate(Problem(kinds, plays=count, observed="all"), "myopic", 4000, runs=8, comparator=0.0)
    error = played.realised_reward[0, :, -1] - played.expected_reward[0, :, -1]
    # Eight independent runs: a false alarm has a probability below 1e-4.
    assert abs(error.mean()) < 8 * error.std(ddof=1) / np.sqrt(len(error))
    dearer = Problem([arm.of_count(count) for arm in problem.arms[:1]], plays=count, observed="all")
    paid = simulate(dearer, "myopic", 4000, runs=2, comparator=0.0)
    # One kind and as many plays as arms: the cost is paid once by every arm.
    free = Problem([Arm(PASSIVE, [1, 0.2], active_transitions=ACTIVE, count=count)], plays=count, observed="all")
    gain = solve(free).gain
    assert paid.expected_reward[0, :, -1] == pytest.approx(4000 * gain - COST * count, abs=60 * np.sqrt(count))
