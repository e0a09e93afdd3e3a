import math
import os

import numpy as np
import pytest
from scipy import stats

import restless_bandits as rb
from restless_bandits._internal import progress
from restless_bandits.oracles import auto, exact, policy
from restless_bandits.oracles.auto import choose
from restless_bandits.policies import Policy, SingleArm
from restless_bandits.simulation import policy_values, solving

FALSE_ALARM = 1e-6
MANY = rb.Problem.random(30, 2, seed=11)
FADING = rb.Problem([rb.Arm([[0.999, 0.001], [0.0, 1.0]], [1, 0], initial=0)])
"""An arm that pays until it fails for good: its gain is 0, and a run begins far above that."""


@pytest.fixture
def enough_memory(monkeypatch):
    """As if nobody could tell how much memory is free."""

    def unknown(_):
        raise ValueError

    monkeypatch.setattr(os, "sysconf", unknown)


class TestSimulated:
    @pytest.mark.parametrize(
        ("problem", "oracle"),
        [
            (rb.Problem.builtin("paper-1"), "exact"),
            (rb.Problem.builtin("paper-2"), "myopic"),
            (rb.Problem.random(3, 3, seed=5), "whittle"),
            (rb.Problem.random(4, 2, seed=6, plays=2), "whittle"),
        ],
        ids=["exact", "myopic", "three states", "two plays"],
    )
    def test_agrees_with_what_is_computed(self, problem, oracle):
        """Off by 8 standard errors it would nearly always be found out."""
        played = policy(oracle, problem)
        found = rb.evaluate(problem, played, simulate=True, slots=20_000)
        computed = rb.evaluate(problem, played)
        assert (computed.stderr, computed.interval, computed.how) == (None, None, "computed")
        t = (found.gain - computed.gain) / found.stderr
        assert abs(t) < stats.t.ppf(1 - FALSE_ALARM / 2, policy_values.RUNS - 1)
        assert 0 < found.stderr < 0.01
        assert found.error == math.inf
        assert found.interval[0] < found.gain < found.interval[1]
        assert found.interval[1] - found.gain == pytest.approx(2.0395 * found.stderr, rel=1e-4)
        assert found.how == "simulated in 32 runs of 20,000 slots, the first half of each left out"

    def test_several_recurrent_classes(self):
        """An arm that ends up good or bad for good: runs differ, and their mean is the gain."""
        chain = [[1, 0, 0], [0.3, 0.4, 0.3], [0, 0, 1]]
        problem = rb.Problem([rb.Arm(chain, [1, 0.5, 0], initial=1)])
        found = rb.evaluate(problem, SingleArm(0), simulate=True, slots=200, runs=1000)
        assert abs(found.gain - 0.5) < stats.t.ppf(1 - FALSE_ALARM / 2, 999) * found.stderr
        assert found.stderr == pytest.approx(0.5 / math.sqrt(1000), rel=0.01)

    def test_a_start_that_is_not_forgotten_is_told(self):
        found = rb.evaluate(FADING, SingleArm(0), simulate=True, slots=1000, runs=400)
        assert found.gain > 0.3
        assert "still drifts" in found.how

    def test_a_start_that_is_not_forgotten_makes_runs_longer(self, monkeypatch):
        monkeypatch.setattr(policy_values, "SLOTS", 2_000)
        monkeypatch.setattr(policy_values, "FEWEST_SLOTS", 2_000)
        found = rb.evaluate(FADING, SingleArm(0), simulate=True, runs=400)
        assert found.gain < stats.t.ppf(1 - FALSE_ALARM, 399) * found.stderr
        assert found.gain < 0.1
        assert found.how == "simulated in 400 runs of 8,000 slots, the first half of each left out"

    @pytest.mark.parametrize(("work", "slots"), [(1, "10,000"), (2 * 4 * 2 * 12_000, "12,000"), (10**9, "100,000")])
    def test_several_plays_get_as_many_slots_as_they_can_afford(self, monkeypatch, work, slots):
        monkeypatch.setattr(policy_values, "MOST_ARM_EVALUATIONS", work)
        problem = rb.Problem.random(4, 2, seed=6, plays=2)
        found = rb.evaluate(problem, policy("whittle", problem), simulate=True, runs=2)
        assert f"2 runs of {slots} slots" in found.how

    def test_the_same_seed_gives_the_same_numbers(self):
        played = policy("whittle", MANY)
        first, again, other = (
            rb.evaluate(MANY, played, simulate=True, slots=400, runs=4, seed=seed) for seed in (3, 3, 4)
        )
        assert first == again
        assert first.gain != other.gain

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"runs": 1}, "runs is 1"),
            ({"slots": 3}, "slots is 3"),
            ({"seed": -1}, "seed is -1"),
        ],
    )
    def test_faults(self, options, message):
        with pytest.raises(rb.ProblemError, match=message):
            rb.evaluate(MANY, policy("myopic", MANY), simulate=True, **options)

    def test_policies_that_do_not_fit(self):
        with pytest.raises(rb.ProblemError, match="is for arms of"):
            rb.evaluate(MANY, policy("myopic", rb.Problem.builtin("paper-1")), simulate=True)
        with pytest.raises(rb.ProblemError, match="simulate it: "):
            rb.evaluate(MANY, policy("myopic", MANY))


class TestSolve:
    @pytest.mark.parametrize(
        "name", ["paper-1", "paper-2", "table-2", "table-3", "rf-2", "lms-urban-s", "lms-heavy-tree-s"]
    )
    def test_small_problems_are_solved_exactly_to_the_bit(self, name):
        problem = rb.Problem.builtin(name)
        found, before = rb.solve(problem), exact(problem)
        for part in ("oracle", "gain", "lower", "upper", "certified", "how", "policy", "gain_stderr"):
            assert getattr(found, part) == getattr(before, part)
        assert found.why.startswith("exact, as that takes less than a second")

    @pytest.mark.parametrize("name", rb.builtin_problems(()))
    def test_which_of_the_built_in_problems_are_small(self, name, enough_memory):
        assert choose(rb.Problem.builtin(name)).oracle == ("whittle" if name in ("queue-5", "lms-urban-l") else "exact")

    @pytest.mark.parametrize(
        ("problem", "why"),
        [
            (MANY, "more joint beliefs of 30 arms than any memory holds"),
            (rb.Problem.random(12, 2, seed=11), "more joint beliefs of 12 arms"),
            (rb.Problem.random(100, 2, seed=11, plays=5), "more joint beliefs of 100 arms"),
            (rb.Problem.builtin("lms-urban-l"), "about 5 GB"),
            (rb.Problem([rb.Arm(np.eye(4), [0.9, 0.6, 0.3, 0])] * 19), "more joint beliefs of 19 arms"),
        ],
        ids=["30 arms", "12 arms", "plays", "slow arms", "frozen"],
    )
    def test_large_problems_are_left_to_whittle(self, problem, why, enough_memory):
        choice = choose(problem)
        assert choice.oracle == "whittle"
        assert why in choice.why

    def test_many_arms(self):
        lines = []
        found = rb.solve(MANY, report=lines.append)
        plain = rb.oracles.whittle(MANY)
        assert (found.oracle, found.lower, found.upper) == ("whittle", plain.lower, plain.upper)
        assert plain.gain is plain.gain_stderr is None
        assert found.gain == pytest.approx(0.9698, abs=1e-3)
        assert 0 < found.gain_stderr < 1e-4
        assert found.as_dict()["gain_stderr"] == found.gain_stderr
        assert "(simulated)" in repr(found)
        assert lines == [found.why, "simulating what the policy earns"]
        assert "runs of 100,000 slots" in found.how

    def test_options_mean_exact(self):
        problem = rb.Problem.builtin("lms-suburban-l")
        found = rb.solve(problem, memory=100_000, tolerance=1e-3)
        assert (found.oracle, found.why) == ("exact", None)
        assert found.details["memory"] <= 100_000
        assert abs(found.gain - 0.4365876) < 8 * found.gain_stderr

    def test_python_and_the_oracle_agree(self):
        problem = rb.Problem.builtin("paper-2")
        assert auto(problem).why == rb.solve(problem).why
        assert rb.solve(problem, "best_arm").why is None

    def test_a_policy_that_cannot_be_played_has_no_gain(self):
        class First(Policy):
            def choose(self, last_states, elapsed):
                return np.zeros((len(last_states), 1), dtype=np.int64)

        found = rb.solve(MANY, rb.oracles.find_oracle(lambda problem: First()))
        assert found.gain is None


class TestForecast:
    def test_short_ones_say_nothing(self):
        assert solving.forecast(rb.Problem.builtin("paper-1")) is None
        assert solving.forecast(MANY) is None

    def test_long_ones_say_why(self, monkeypatch, enough_memory):
        exactly = solving.forecast(rb.Problem.builtin("lms-urban-l"), "exact")
        assert exactly.startswith("this will take about ")
        assert exactly.endswith("exact for 4 arms")
        assert "exact for 30 arms" in solving.forecast(MANY, "auto", {"memory": 10**9})
        monkeypatch.setattr(progress, "LONG_SECONDS", 0.0)
        assert "whittle, as exact would take more" in solving.forecast(MANY)
        assert solving.forecast(MANY, "myopic").endswith("myopic for 30 arms")
