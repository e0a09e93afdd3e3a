"""Simulated runs on arms that are all observed: stored, resumed, in any pool, against any comparator."""

import warnings

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.simulation import jobs, time_estimates
from restless_bandits.simulation.jobs import SimulationJob

POLICIES = ["lp-index", "myopic"]


def drawn(**options):
    """Arms that are paid at rest, some of them less than zero."""
    rng = np.random.default_rng(3)
    chains, rewards = rng.dirichlet(np.ones(3), (8, 3, 2)), rng.random((8, 3, 2)) - 0.3
    return rb.Problem.from_arrays(chains, rewards, plays=4, reward_law="bernoulli", **options)


@pytest.mark.parametrize("options", [{}, {"at_most": True}, {"count": 30}])
def test_results_are_stored_and_resumed(tmp_path, options):
    problem = drawn(**options)
    first = rb.simulate(problem, POLICIES, 60, runs=2, out=tmp_path / "runs", comparator=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        more = rb.simulate(problem, POLICIES, 60, runs=4, out=tmp_path / "runs", comparator=1.0)
    assert (more.seconds[:, :2] == first.seconds).all()
    anew = rb.simulate(problem, POLICIES, 60, runs=4, comparator=1.0)
    for word in ("realised_reward", "expected_reward", "pulls"):
        assert (getattr(more, word) == getattr(anew, word)).all()
    more.save(tmp_path / "result.npz")
    loaded = rb.SimulationResult.load(tmp_path / "result.npz")
    assert (loaded.pulls == more.pulls).all()
    assert loaded.slot_range == problem.slot_range
    assert loaded.arms == tuple(f"arm {i + 1}" for i in range(8))
    most = 4 * 60
    assert (more.pulls.sum(axis=2) <= most).all()
    assert options.get("at_most") or (more.pulls.sum(axis=2) == most).all()


def test_impossible_rewards_are_refused(tmp_path):
    result = rb.simulate(drawn(), "lp-index", 60, runs=2, comparator=1.0)
    result.outcomes[0].at[0, -1, 0] = 61 * 8
    result.save(tmp_path / "result.npz")
    with pytest.raises(rb.ProblemError, match="not a stored simulation result"):
        rb.SimulationResult.load(tmp_path / "result.npz")


@pytest.mark.slow
def test_processes_play_the_same_runs():
    problem = drawn()
    threads, processes = (
        rb.simulate(problem, POLICIES, 60, runs=3, engine=engine, jobs=2, comparator=1.0)
        for engine in ("threads", "processes")
    )
    assert (threads.realised_reward == processes.realised_reward).all()


def test_pulls_of_very_many_kinds_are_counted_together(monkeypatch):
    problem = drawn()
    every = rb.simulate(problem, "lp-index", 60, runs=2, comparator=1.0).pulls
    monkeypatch.setattr(jobs, "MOST_PULL_COLUMNS", 7)
    found = rb.simulate(problem, "lp-index", 60, runs=2, comparator=1.0)
    assert found.arms == ("all arms",)
    assert (found.pulls[:, :, 0] == every.sum(axis=2)).all()


def test_comparators():
    problem = drawn(count=30)
    best = rb.simulate(problem, "lp-index", 60, runs=2, comparator="lp-index").comparator
    bracket = rb.simulate(problem, "lp-index", 60, runs=2)
    assert best.kind == "lp-index"
    assert 0 < best.stderr < 0.01 * best.gain
    assert best.lower == best.gain == best.upper
    assert bracket.comparator.lower < best.gain < bracket.comparator.upper + 4 * best.stderr
    assert bracket.comparator.ends == ("lower", "upper")
    small = drawn().only([0, 1], plays=1)
    assert rb.simulate(small, "lp-index", 60, runs=2).comparator.kind == "exact"
    with pytest.raises(rb.ProblemError, match="the oracle guha does not support"):
        rb.simulate(problem, "lp-index", 60, runs=2, comparator="guha")


def test_a_trial_run_estimates_the_duration():
    job = SimulationJob(drawn(), rb.learner("lp-index"), "lp-index", 1000, (1000,), 0, 2)
    assert time_estimates.seconds_by_trial(job) > 0
