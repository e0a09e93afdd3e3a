"""What learners do in the limit."""

import pytest

import restless_bandits as rb
from restless_bandits.paper.experiments.limiting_policy import LimitingLoss, limiting_loss
from restless_bandits.simulation.comparator import comparator_for


def found(name, spec):
    problem = rb.Problem.builtin(name)
    return limiting_loss(problem, rb.learner(spec), comparator_for(problem, "auto", None))


def test_a_support_with_the_truth_loses_nothing():
    assert found("paper-1", "ts-9").loses is False


def test_a_support_without_it_loses_what_its_runs_lose():
    limit = found("paper-1", "ts-4")
    assert limit.loses is True
    assert limit.upper - limit.lower < 1e-9
    spec = "ts-4:rewards=known"
    result = rb.simulate(rb.Problem.builtin("paper-1"), spec, 100_000, runs=6, checkpoints=[50_000, 100_000])
    before, after = result.regret()[0].T
    late = (after - before) / 50_000
    # The runs differ by 4e-5 from one another, and draws other than the mode still occur.
    assert late.mean() == pytest.approx(limit.lower, abs=1e-4)


def test_a_support_that_leads_to_the_best_play_loses_nothing():
    """The chains of rf-2 are not in the support; the policy for those that are is the best one all the same."""
    assert found("rf-2", "ts-4").loses is False


@pytest.mark.parametrize("spec", ["restless-ucb", "posterior", "colored-ucrl2"])
def test_nothing_is_known_of_others(spec):
    assert found("paper-1", spec) is None


def test_bounds_may_leave_it_open():
    assert LimitingLoss(-1e-3, 1e-3).loses is None
