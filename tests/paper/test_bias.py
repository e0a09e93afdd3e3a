"""The bias between successors: closed forms, and plain value differences."""

import math

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError
from restless_bandits.model import markov
from restless_bandits.paper import theory
from tests.model.chains import PAPER, THREE


class TestBias:
    def test_one_arm_in_closed_form(self):
        """λ (1 + λ + λ² + …) = λ/(1 − λ): the bound that is proved for two states is attained."""
        for stay_best, stay_worst in ((0.7, 0.8), (0.9, 0.85), (0.2, 0.3)):
            problem = Problem([Arm.two_state(stay_best, stay_worst, initial=1)])
            rate = stay_best + stay_worst - 1
            found = theory.bias_between_successors(rb.oracles.exact(problem))
            assert found == pytest.approx(abs(rate) / (1 - rate), abs=1e-7)
            assert found <= abs(rate) / (1 - abs(rate)) + 1e-7
            span = theory.policy_bias_span(problem, rb.policies.SingleArm(0))
            assert span == pytest.approx(found, abs=1e-7)

    @pytest.mark.parametrize("name", ["paper-1", "paper-2", "lms-urban-s", "lms-heavy-tree-s", "rf-2"])
    def test_appendix_b(self, name):
        problem = Problem.builtin(name)
        solution = rb.oracles.exact(problem)
        found = theory.bias_between_successors(solution)
        rate = max(abs(markov.second_eigenvalue(arm.chain)) for arm in problem.arms)
        assert 0 < found <= rate / (1 - rate) < theory.bias_bound(problem) / 4
        assert theory.policy_bias_span(problem, solution.policy) < theory.bias_bound(problem)

    def test_against_plain_value_differences(self):
        """Brute force: the bias at every belief after a pull, compared over the states of the arm."""
        solution = rb.oracles.exact(PAPER)
        beliefs, bias = solution.policy.beliefs, solution.bias
        widest = 0.0
        for arm, other in ((0, 1), (1, 0)):
            for belief in range(beliefs.arms[other].size):
                rows = np.zeros((2, 2), dtype=np.int64)
                rows[:, arm], rows[:, other] = beliefs.arms[arm].after_pull, belief
                if belief in beliefs.arms[other].after_pull:
                    continue
                low, high = bias[beliefs.index(rows)]
                widest = max(widest, abs(high - low))
        assert theory.bias_between_successors(solution) == pytest.approx(widest, abs=1e-9)

    def test_three_states(self):
        assert theory.bias_between_successors(rb.oracles.exact(THREE)) <= theory.bias_bound(THREE)

    def test_refusals(self):
        with pytest.raises(ProblemError, match="no bias function"):
            theory.bias_between_successors(rb.oracles.whittle(PAPER))
        with pytest.raises(ProblemError, match="plays is 2"):
            theory.bias_between_successors(
                rb.oracles.exact(Problem([*PAPER.arms, PAPER.arms[0].named("arm 3")], plays=2))
            )
        with pytest.raises(ProblemError, match="too many for its bias"):
            theory.policy_bias_span(PAPER, rb.policies.Cycle(), most=2)
        stuck = Problem([Arm(np.eye(2), [1, 0])])
        assert theory.policy_bias_span(stuck, rb.policies.SingleArm(0)) == math.inf
        assert theory.bias_bound(Problem([Arm(np.eye(2), [1, 0])])) == math.inf
