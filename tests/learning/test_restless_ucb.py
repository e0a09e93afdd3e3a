import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Problem
from restless_bandits.learning.learners.restless_ucb import RestlessUCB, optimistic_chain, optimistic_rewards
from restless_bandits.model import markov
from restless_bandits.simulation.engine import GapTable, World, play_run


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 300), st.floats(0, 0.5))
def test_the_optimistic_chain_dominates_on_the_event(seed, size, times, radius):
    """Lemma on P' and P: whenever every estimate is within the radius, every row of P' dominates that of P."""
    chain = Problem.random(1, size, seed=seed).arms[0].chain
    rng = np.random.default_rng(seed)
    counts = np.array([rng.multinomial(times, row) for row in chain])
    event = np.abs(counts / times - chain).max()
    radius = max(radius, event)
    better = optimistic_chain(counts, np.full(size, radius))
    assert better.min() >= 0
    np.testing.assert_allclose(better.sum(axis=1), 1, atol=1e-12)
    assert markov.is_birth_death(better)
    assert markov.dominates(better, chain, 1e-9)


def test_the_optimistic_chain_by_hand():
    counts = np.array([[70, 30, 0], [20, 50, 30], [0, 40, 60]])
    np.testing.assert_allclose(
        optimistic_chain(counts, np.full(3, 0.1)), [[0.8, 0.2, 0], [0.3, 0.5, 0.2], [0, 0.5, 0.5]], atol=1e-12
    )
    np.testing.assert_allclose(
        optimistic_chain(counts, np.full(3, 0.5)), [[1, 0, 0], [0.7, 0.3, 0], [0, 0.9, 0.1]], atol=1e-12
    )
    unseen = np.array([[5, 5], [0, 0]])
    np.testing.assert_allclose(optimistic_chain(unseen, np.zeros(2)), [[0.5, 0.5], [1, 0]])


def test_optimistic_rewards_are_capped_and_monotone():
    bounds = optimistic_rewards(np.array([9.0, 2.0, 4.0, 0.0]), np.array([10, 10, 10, 0]), np.full(4, 0.15))
    np.testing.assert_allclose(bounds, [1.0, 0.35, 0.35, 0.35])


def test_explores_in_order_and_then_commits():
    problem = Problem.builtin("paper-1")
    learner = RestlessUCB(m=50)
    run = play_run(learner, World(problem), 5000, np.array([5000]), seed=0, run=0, trace=True)
    first, second, rest = run.record.plan_lengths
    arms = run.trace.arms[:, 0]
    assert set(arms[:first]) == {0}
    assert set(arms[first : first + second]) == {1}
    assert first + second + rest == 5000
    for arm, length in ((0, first), (1, second)):
        start = 0 if arm == 0 else first
        states = run.trace.states[start : start + length, 0]
        # The first pull of arm 1 comes after a pause and is no transition; that of arm 0 follows its known start.
        previous = np.concatenate([[1], states[:-1]]) if arm == 0 else states[:-1]
        leaving = np.bincount(previous, minlength=2)
        assert leaving.min() == 50


def test_radii():
    learner = RestlessUCB()
    m = 10_000
    assert learner.observations(10**6) == m
    paper = math.sqrt(math.log(10**6) / (2 * m))
    counts = np.array([100, 400])
    np.testing.assert_allclose(learner.radii(counts, 10**6), [paper, paper])
    np.testing.assert_allclose(RestlessUCB(radius=0.5).radii(counts, 10**6), [paper / 2, paper / 2])
    np.testing.assert_allclose(RestlessUCB(radius="none").radii(counts, 10**6), [0, 0])
    by_counts = np.sqrt(math.log(10**6) / (2 * counts))
    np.testing.assert_allclose(RestlessUCB(radius="counts").radii(counts, 10**6), by_counts)


@pytest.mark.parametrize(
    ("name", "spec", "low", "high"),
    [
        ("paper-1", "restless-ucb:rewards=known,radius=none", 505 - 15, 505 + 15),
        ("paper-2", "restless-ucb:rewards=known,radius=none", 622 - 15, 622 + 15),
        ("paper-1", "restless-ucb:rewards=known", 630, 690),
        ("paper-2", "restless-ucb:rewards=known", 770, 810),
    ],
)
def test_regret_of_the_paper_at_50_000(name, spec, low, high):
    """Mean gap regret of 300 runs within the bounds measured before, widened by five standard errors (rate 1e-6)."""
    problem = Problem.builtin(name)
    world = World(problem, GapTable.of(rb.oracles.exact(problem)))
    learner = rb.learner(spec)
    points = np.array([50_000])
    gaps = [play_run(learner, world, 50_000, points, seed=3, run=run).totals.sums[2] for run in range(300)]
    error = np.std(gaps, ddof=1) / math.sqrt(len(gaps))
    assert low - 5 * error <= np.mean(gaps) <= high + 5 * error


def test_any_oracle_will_do():
    problem = Problem.builtin("paper-2")
    for oracle in ("whittle", "guha", "exact", "myopic"):
        run = play_run(RestlessUCB(oracle=oracle), World(problem), 3000, np.array([3000]), seed=0, run=0)
        assert run.record.slots == 3000
