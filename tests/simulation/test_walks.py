"""One run with everything in sight."""

import numpy as np
import pytest

import restless_bandits as rb


def test_states_follow_the_chains():
    problem = rb.Problem.builtin("paper-1")
    path = rb.walk(problem, "round-robin", 20_000, seed=3).states
    for arm, stated in enumerate(problem.arms):
        for state in (0, 1):
            after = path[1:, arm][path[:-1, arm] == state]
            # Shares of binary draws: beyond five standard errors once in 1.7 million.
            share, error = (after == 0).mean(), np.sqrt(0.25 / len(after))
            assert abs(share - stated.chain[state, 0]) < 5 * error


def test_choices_are_the_learners():
    problem = rb.Problem.builtin("paper-2")
    taken = rb.walk(problem, "round-robin", 100)
    assert taken.arms.tolist() == [0, 1] * 50
    informed = rb.walk(problem, "best-arm", 50)
    assert len(set(informed.arms.tolist())) == 1


def test_same_seed_same_walk():
    problem = rb.Problem.builtin("paper-1")
    one, other, third = (rb.walk(problem, "restless-ucb", 800, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.states, other.states)
    assert np.array_equal(one.arms, other.arms)
    assert not np.array_equal(one.states, third.states)


def test_unknown_initial_states_and_several_plays():
    arm = rb.Arm.two_state(stay_best=0.7, stay_worst=0.8, rewards=(1, 0))
    problem = rb.Problem([arm, arm, arm], plays=2)
    taken = rb.walk(problem, "round-robin", 30)
    assert taken.states.shape == (30, 3)
    assert np.array_equal(taken.pulled.sum(axis=1), np.full(30, 2))
    assert taken.last_states[0].tolist() == [-1, -1, -1]


def test_what_was_known():
    taken = rb.walk(rb.Problem.builtin("queue-5"), "whittle", 200, seed=1)
    last = np.array(taken.problem.initial)
    elapsed = np.ones(4, dtype=int)
    for slot in range(200):
        assert np.array_equal(taken.last_states[slot], last)
        assert np.array_equal(taken.elapsed[slot], elapsed)
        last = np.where(taken.pulled[slot], taken.states[slot], last)
        elapsed = np.where(taken.pulled[slot], 1, elapsed + 1)


def test_part():
    whole = rb.walk(rb.Problem.builtin("paper-1"), "round-robin", 100)
    part = whole.part(41, 20)
    assert part.first == 41
    assert np.array_equal(part.states, whole.states[40:60])
    assert np.array_equal(part.part(51, 5).arms, whole.arms[50:55])


def test_tables_of_laws_are_refused():
    laws = rb.Arm.two_state(stay_best=0.7, stay_worst=0.8, rewards=(1, 0)).state_distributions(5)
    problem = rb.Problem([rb.TableArm(laws=laws, rewards=[1, 0])])
    with pytest.raises(rb.ProblemError, match="a walk needs chains"):
        rb.walk(problem, "round-robin", 10)
