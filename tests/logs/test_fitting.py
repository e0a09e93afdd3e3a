"""Fits of known chains, by hand and by statistics; what a log does not tell."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.learning.estimation import Mode
from restless_bandits.logs import distribution_checks, fitting
from tests.logs.logs import BEYOND, THREE, logged, paths
from tests.optional import needed


def test_lags_are_a_list():
    with pytest.raises(rb.ProblemError, match=r"lags is 5; give a list of whole numbers, such as \[1, 2, 5\]"):
        rb.data.fit(rb.data.trace([0, 1, 2], ["x"] * 3, state=[0, 1, 0]), lags=5)


def test_by_hand():
    # From 0: stays 3, leaves 2; from 1: back 2, stays 1. One pseudo-count for each move.
    states = [0, 0, 0, 1, 1, 0, 0, 1, 0]
    for shape in ("birth-death", "free"):
        found = rb.data.fit(rb.data.trace(range(9), ["x"] * 9, state=states), shape=shape)
        arm = found.arms[0]
        assert arm.transitions == pytest.approx(np.array([[4 / 7, 3 / 7], [3 / 5, 2 / 5]]), abs=1e-4)
        errors = [np.sqrt(4 / 7 * 3 / 7 / 7), np.sqrt(3 / 5 * 2 / 5 / 5)]
        assert arm.standard_errors[:, 0] == pytest.approx(errors, rel=1e-3)
        assert (arm.looks, arm.steps, arm.jumps, arm.unused) == (9, 8, 0, 0)
        assert arm.rewards.tolist() == [1.0, 0.0]
        assert found.problem.arms[0].transitions.tolist() == arm.transitions.tolist()
        assert found.problem.arms[0].reward_law == "fixed"


def test_jumps_are_counted_and_left_out():
    # From 0: three to 1, one jump to 2. Row 0 is that of the moves to neighbours alone.
    states = [0, 1, 0, 1, 2, 1, 0, 2, 1, 0, 1, 2, 2, 1, 1, 0, 0]
    trace = rb.data.trace(range(len(states)), [0] * len(states), state=states)
    near, free = rb.data.fit(trace), rb.data.fit(trace, shape="free")
    for found in (near, free):
        assert (found.arms[0].steps, found.arms[0].jumps) == (16, 1)
        assert found.arms[0].jump_share == 1 / 16
    assert (near.arms[0].unused, free.arms[0].unused) == (1, 0)
    assert near.arms[0].transitions[0] == pytest.approx([2 / 6, 4 / 6, 0], abs=1e-4)
    assert free.arms[0].transitions[0] == pytest.approx([2 / 8, 4 / 8, 2 / 8])
    assert near.arms[0].standard_errors[0, 0] == pytest.approx(np.sqrt(2 / 9 / 6), rel=1e-3)
    assert near.problem.assumptions["birth_death"].holds
    assert not free.problem.assumptions["birth_death"].holds
    assert "1 of 16 steps (6.25%) jump over a state" in str(near)


def test_round_trip_with_gaps():
    # Chains, means and laws of a known problem from looks at 40 % of the slots. A normal variable leaves five
    # standard errors with a chance below 6e-7; the p-values would be below 1e-6 once in a million times each.
    trace = logged(THREE, paths(THREE, 12_000, seed=5), seed=6, share=0.4)
    found = rb.data.fit(trace)
    for arm in found.arms:
        truth = THREE.arms[THREE.arm_number(arm.name)]
        moves = truth.transitions > 0
        gaps = np.abs(arm.transitions - truth.transitions)[moves]
        assert (gaps < BEYOND * arm.standard_errors[moves]).all()
        assert (arm.standard_errors[moves] < 0.03).all()
        assert (np.abs(arm.rewards - truth.rewards) <= BEYOND * arm.reward_errors + 1e-12).all()
        assert (arm.reward_errors < 0.02).all()
        assert arm.jumps == 0
        assert not arm.selective
        assert [distribution.lag for distribution in arm.laws][:4] == [1, 2, 5, 10]
        for distribution in arm.laws:
            assert distribution.p_value > 1e-6
            assert abs(distribution.same_observed - distribution.same_predicted) < BEYOND * distribution.same_error
    assert rb.Problem.from_toml(found.problem.to_toml()) == found.problem


@pytest.mark.parametrize("wait", [60, 640, 2000])
def test_long_waits_of_slow_chains(wait):
    # Quick chains are all alike after such waits, and records keep the long ones in bins: neither may show.
    chain = np.array([[1 - 0.3 / wait, 0.3 / wait], [0.5 / wait, 1 - 0.5 / wait]])
    distribution = np.linalg.matrix_power(chain, wait)
    rng = np.random.default_rng(wait)
    states = [0]
    for u in rng.random(4000):
        states.append(int(u >= distribution[states[-1], 0]))
    trace = rb.data.trace(wait * np.arange(4001), [0] * 4001, state=states)
    (arm,) = rb.data.fit(trace).arms
    # Five standard errors: false alarms below 1e-6 each.
    for s, k in ((0, 1), (1, 0)):
        assert abs(arm.transitions[s, k] - chain[s, k]) < 5 * arm.standard_errors[s, k]
        assert arm.standard_errors[s, k] < 0.1 * chain[s, k]
    assert arm.laws[0].lag == wait
    assert arm.laws[0].p_value > 1e-6


def test_law_check_against_a_slow_count():
    trace = logged(THREE, paths(THREE, 1200, seed=8), seed=9, share=0.7)
    arm = rb.data.fit(trace, lags=[3]).arms[0]
    times, states, _ = trace.of_arm(0)
    at = dict(zip(times.tolist(), states.tolist(), strict=True))
    found = []
    for phase in range(3):
        counts = np.zeros((3, 3), dtype=int)
        for t in at:
            if t % 3 == phase and t + 3 in at:
                counts[at[t], at[t + 3]] += 1
        found.append(counts)
    most = max(found, key=lambda counts: counts.sum())
    (distribution,) = arm.laws
    assert np.array_equal(distribution.counts, most)
    power = np.linalg.matrix_power(arm.transitions, 3)
    assert distribution.predicted == pytest.approx(power)
    assert distribution.same_observed == pytest.approx(np.trace(most) / most.sum())
    same = (most.sum(axis=1) @ np.diag(power)) / most.sum()
    assert distribution.same_predicted == pytest.approx(same)
    expected = most.sum(axis=1, keepdims=True) * power
    assert expected.min() > distribution_checks.LEAST_EXPECTED_COUNT  # so that nothing is pooled
    assert distribution.chi_square == pytest.approx(((most - expected) ** 2 / expected).sum())
    assert distribution.degrees == 6


def test_pooling():
    seen, expected = distribution_checks.pooled_counts(np.array([1, 2, 30, 4, 1]), np.array([2.0, 3.5, 20.0, 4.0, 0.5]))
    assert seen.tolist() == [3, 35]
    assert expected.tolist() == [5.5, 24.5]
    seen, expected = distribution_checks.pooled_counts(np.array([3, 0]), np.array([2.0, 1.0]))
    assert (seen.tolist(), expected.tolist()) == ([3], [3])


def test_states_that_are_no_chain_are_called_so():
    # A clock that changes state every five slots, one look in ten at random.
    rng = np.random.default_rng(10)
    states = np.where(rng.random(1000) < 0.1, rng.integers(0, 2, 1000), np.arange(1000) // 5 % 2)
    found = rb.data.fit(rb.data.trace(range(1000), ["x"] * 1000, state=states))
    assert min(distribution.p_value for distribution in found.arms[0].laws) < 1e-6
    assert "does not fit the chain" in str(found)


def test_logs_of_a_policy():
    # A policy stays while the state is good, so a look two slots later follows good looks more often than bad ones.
    walk = rb.walk(rb.Problem.builtin("paper-1"), "whittle", horizon=6000, seed=2)
    times = np.arange(6000)
    found = rb.data.fit(rb.data.trace(times, walk.arms, state=walk.states[times, walk.arms]))
    for arm, truth in zip(found.arms, walk.problem.arms, strict=True):
        assert arm.selective
        assert (np.abs(arm.transitions - truth.transitions) < BEYOND * arm.standard_errors).all()
        assert all(distribution.p_value > 1e-6 for distribution in arm.laws if distribution.degrees)
    assert "as when a policy chose what to log" in str(found)


def test_refusals():
    rng = np.random.default_rng(3)
    far = rb.data.trace(np.arange(200) * 1000, ["x"] * 200, state=rng.integers(0, 2, 200))
    with pytest.raises(
        rb.NotIdentified, match=r"arm 'x': 199 observations identify at most its stationary distribution, about 0"
    ):
        rb.data.fit(far)
    loose = rb.data.fit(far, strict=False)
    assert not loose.arms[0].identified
    assert any("the log does not identify its transitions" in note for note in loose.notes)
    assert "--slot 1000" in str(loose)
    with pytest.raises(rb.NotIdentified) as refused:
        rb.data.fit(rb.data.trace(range(9), ["x"] * 9, state=[0, 1, 0, 1, 0, 0, 1, 0, 2]), shape="free")
    assert "arm 'x' was never seen again after state 2" in str(refused.value)
    assert isinstance(refused.value.estimate.arms[0].modes[0], Mode)
    with pytest.raises(rb.NotIdentified, match="arm 'x' was never seen in state 1, but in better and in worse ones"):
        rb.data.fit(rb.data.trace([0, 1, 2, 0, 1], list("xxxyy"), state=[0, 2, 0, 1, 0]))
    trace = rb.data.trace(range(4), ["x"] * 4, state=[0, 1, 0, 1])
    with pytest.raises(rb.ProblemError, match="there is no shape 'fre'; did you mean 'free'"):
        rb.data.fit(trace, shape="fre")
    with pytest.raises(rb.ProblemError, match=r"a lag is 0; it must be a positive whole number and below 2\^62"):
        rb.data.fit(trace, lags=[0])


def test_two_chains_that_cannot_be_told_apart():
    # Even waits tell λ² only.
    states = paths(rb.Problem.builtin("paper-1"), 3000, seed=1)[::2, 0]
    found = rb.data.fit(rb.data.trace(np.arange(1500) * 2, ["x"] * 1500, state=states))
    assert len(found.arms[0].modes) > 1
    eigenvalues = [mode.transitions[0, 0] - mode.transitions[1, 0] for mode in found.arms[0].modes]
    assert min(eigenvalues) < 0 < max(eigenvalues)
    assert any("another chain is nearly as likely" in note for note in found.notes)
    assert [distribution.lag for distribution in found.arms[0].laws][:2] == [2, 4]


def test_odd_arms():
    states = [0, 1, 0, 1, 1, 0, 0, 1] + [1, 2, 1, 1, 2, 2, 1, 2] + [2] * 8
    trace = rb.data.trace(list(range(8)) * 3, ["a"] * 8 + ["b"] * 8 + ["c"] * 8, state=states)
    found = rb.data.fit(trace)
    assert [arm.n_states for arm in found.problem.arms] == [2, 2, 1]
    assert [arm.rewards.tolist() for arm in found.problem.arms] == [[1.0, 0.5], [0.5, 0.0], [0.0]]
    assert "arm 'b' was seen in states 1 to 2 only" in str(found)
    assert "arm 'c' was seen 8 times, in state 2 only, and is taken for constant" in str(found)
    rising = rb.data.trace(range(8), ["a"] * 8, state=states[:8], rewards=[0.2, 0.6])
    assert "state 1 pays 0.4 more than state 0, against Assumption 1" in str(rb.data.fit(rising))


def test_rewards_by_hand():
    trace = rb.data.trace(range(5), ["a"] * 5, state=[0, 0, 2, 2, 1], reward=[0.5, 0.7, 0.1, 0.1, 0.3])
    means, errors = fitting.mean_rewards(trace, 0)
    assert means == pytest.approx([0.6, 0.3, 0.1])
    assert errors[[0, 2]] == pytest.approx([0.1, 0.0])
    assert np.isnan(errors[1])
    hole = rb.data.trace([0, 1, 2, 0, 1], list("aaabb"), state=[0, 2, 0, 1, 0], reward=[1, 0.2, 1, 0, 1])
    assert fitting.mean_rewards(hole, 0)[0] == pytest.approx([1, 0.6, 0.2])


def test_picture_of_distributions():
    figure = needed("matplotlib.figure")
    arm = rb.data.fit(logged(THREE, paths(THREE, 600, seed=15), seed=16), lags=[1, 4]).arms[0]
    ax = rb.plots.distributions(arm, ax=figure.Figure().subplots())
    curves = [line for line in ax.lines if line.get_marker() == "None" and len(line.get_xdata()) > 2]
    assert len(curves) == 3
    for state, (curve, marks) in enumerate(zip(curves, ax.containers, strict=True)):
        power = np.linalg.matrix_power(arm.transitions, 4)
        drawn = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
        assert drawn[4] == pytest.approx(power[state, state])
        assert marks[0].get_ydata() == pytest.approx([distribution.observed[state, state] for distribution in arm.laws])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["state 0", "state 1", "state 2"]
