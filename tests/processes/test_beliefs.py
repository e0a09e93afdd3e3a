import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restless_bandits import Arm, Problem, TableArm
from restless_bandits.processes.beliefs import (
    UNKNOWN,
    JointBeliefs,
    hidden_process,
    joint_beliefs,
    truncation_for,
    truncations_for,
)

FLIP = [[0, 1], [1, 0]]
ENDS = [[1, 0, 0], [0.3, 0.4, 0.3], [0, 0, 1]]


def arms():
    two = Arm.two_state(0.7, 0.8, initial=1)
    return {
        "two states": two,
        "unknown": Arm.two_state(0.7, 0.8),
        "negative": Arm([[0.1, 0.9], [0.8, 0.2]], [1, 0], initial=0),
        "four states": Problem.random(1, 4, seed=3).arms[0],
        "absorbing": Arm([[1, 0], [0.3, 0.7]], [1, 0], initial=1),
        "two ends": Arm(ENDS, [1, 0.5, 0], initial=1),
        "two ends unknown": Arm(ENDS, [1, 0.5, 0]),
        "periodic": Arm(FLIP, [1, 0], initial=1),
        "one state": Arm([[1.0]], [0.5]),
        "table": TableArm(two.state_distributions(9), [1, 0], initial=1),
        "table unknown": TableArm(Arm.two_state(0.7, 0.8).state_distributions(9), [1, 0]),
    }


@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("truncation", [1, 2, 5, 30])
@pytest.mark.parametrize("name", arms())
def test_laws_are_within_the_deviation_for_ever(name, truncation, forget):
    arm = arms()[name]
    beliefs = hidden_process(arm, truncation, forget=forget)
    truth = arm.state_distributions(200)
    rows = list(range(arm.n_states)) + ([arm.n_states] if arm.initial is None else [])
    for s in rows:
        state = UNKNOWN if s == arm.n_states else s
        b = int(beliefs.locate(state, 1))
        if s < arm.n_states:
            assert b == beliefs.after_pull[s]
        for tau in range(1, 200):
            assert b == beliefs.locate(state, tau)
            gap = 0.5 * np.abs(truth[tau, s] - beliefs.distribution[b]).sum()
            assert gap <= beliefs.tv_error[b, 1] + 1e-13
            b = int(beliefs.passive[b])


@pytest.mark.parametrize("name", arms())
def test_start_is_the_initial_state_one_slot_ago(name):
    arm = arms()[name]
    beliefs = hidden_process(arm, 5)
    assert beliefs.start_node == beliefs.locate(UNKNOWN if arm.initial is None else arm.initial, 1)


@pytest.mark.parametrize("name", arms())
@pytest.mark.parametrize("tv_error", [0.3, 1e-3, 1e-8])
def test_caps_are_the_first_that_suffice(name, tv_error):
    arm = arms()[name]
    truncation = truncation_for(arm, tv_error)
    assert hidden_process(arm, truncation).tv_error.max() <= tv_error
    if truncation > 2 and arm.n_states > 1:
        assert hidden_process(arm, truncation - 1).tv_error.max() > tv_error


@pytest.mark.parametrize("tv_error", [0.3, 1e-3, 1e-8])
def test_caps_of_many_arms_are_those_of_each(tv_error):
    many = [*arms().values(), *Problem.random(9, [2, 3, 4] * 3, seed=1).arms]
    assert truncations_for(many, tv_error) == [truncation_for(arm, tv_error) for arm in many]


@given(st.integers(0, 10**6), st.integers(1, 4), st.data())
def test_every_joint_belief_has_its_own_place(seed, n_arms, data):
    plays = data.draw(st.integers(1, n_arms))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=n_arms, max_size=n_arms))
    truncations = data.draw(st.lists(st.integers(1, 3), min_size=n_arms, max_size=n_arms))
    problem = Problem.random(n_arms, sizes, seed=seed, plays=plays)
    joint = joint_beliefs(problem, truncations)
    assert joint.size == JointBeliefs.count([arm.size for arm in joint.arms], problem.n_states, plays)
    everything = np.array(list(itertools.product(*(range(arm.size) for arm in joint.arms))))
    place = joint.index(everything)
    fresh = sum(np.isin(everything[:, i], arm.after_pull).astype(int) for i, arm in enumerate(joint.arms))
    assert np.array_equal(place >= 0, fresh >= plays)
    inside = place[place >= 0]
    assert len(np.unique(inside)) == len(inside)
    assert inside.max() < joint.size


@given(st.integers(0, 10**6), st.integers(2, 3))
def test_all_that_follows_is_in_the_table(seed, n_arms):
    problem = Problem.random(n_arms, 2, seed=seed, initial="unknown")
    joint = joint_beliefs(problem, [3] * n_arms)
    assert joint.index(joint.start[None])[0] == -1
    frontier = joint.start[None]
    for _ in range(6):
        after = [joint.successors(frontier, a) for a in range(len(joint.actions))]
        for states, chances in after:
            assert (joint.index(states.reshape(-1, n_arms)) >= 0).all()
            np.testing.assert_allclose(chances.sum(axis=1), 1)
        frontier = np.unique(np.concatenate([s.reshape(-1, n_arms) for s, _ in after]), axis=0)


def test_refining_reads_the_value_of_the_cut_belief():
    problem = Problem.random(3, [2, 3, 2], seed=1)
    coarse, fine = joint_beliefs(problem, [2, 3, 4]), joint_beliefs(problem, [5, 3, 9])
    values = np.random.default_rng(0).random(coarse.size)
    carried = coarse.refine(values, fine)
    rng = np.random.default_rng(1)
    for _ in range(200):
        states = np.array([[rng.integers(arm.n_states) for arm in fine.arms]])
        slots = rng.integers(1, 12, size=(1, 3))
        slots[0, rng.integers(3)] = 1
        here, there = coarse.index(coarse.locate(states, slots))[0], fine.index(fine.locate(states, slots))[0]
        seen = (slots[0] == 1).sum()
        if seen == 1:
            assert carried[there] == values[here]


def test_other_laws_leave_places_as_they_are():
    problem = Problem.random(3, [2, 3, 2], seed=6, initial="unknown")
    other = Problem.random(3, [2, 3, 2], seed=7, initial="unknown")
    one, two = (JointBeliefs([hidden_process(arm, 5) for arm in some.arms], 2) for some in (problem, other))
    table, distributions = one.table, one.distributions
    both = one.with_laws(two.arms)
    for mine, theirs in zip((*both.table, *both.distributions), (*two.table, *two.distributions), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert both.table is table
    assert one.distributions is distributions
