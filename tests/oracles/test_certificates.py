"""Brackets of problems with several closed classes, held against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, Problem, TableArm
from restless_bandits.oracles import exact
from restless_bandits.oracles.bracket import ContradictionError, End, bracket, bracketed
from restless_bandits.oracles.solution import CERTIFIED_WIDTH
from tests.reference import rational_average, rational_gain

LEAKS = [1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14]
SECOND = [[0.7, 0.3], [0.2, 0.8]], [0.6, 0.1], 0


def problem_of(*arms, plays=1):
    """Arms (law, rewards, start) whose law is the same after every wait, so that all of it can be written out."""
    return Problem(
        [
            TableArm([np.eye(len(distribution)), distribution], rewards, initial=start)
            for distribution, rewards, start in arms
        ],
        plays=plays,
    )


def truth(*arms, plays=1):
    laws, rewards, starts = zip(*arms, strict=True)
    return rational_gain(laws, rewards, starts, plays)


def two_ends(leak):
    """Leaves its middle state hardly ever, and then for the best or, twice as often, for the worst."""
    return [[1, 0, 0], [leak, 1 - 3 * leak, 2 * leak], [0, 0, 1]], [1, 0.5, 0.1], 1


def shuttle(leak):
    """Goes to and fro between two states until it is caught."""
    return [[1, 0, 0, 0], [leak, 0, 1 - leak, 0], [0, 1 - leak, 0, leak], [0, 0, 0, 1]], [1, 0.5, 0.5, 0], 1


def halves(leak):
    """A closed class of two halves that hardly meet, or an end, after a start that is hardly left."""
    distribution = [
        [1 - 3 * leak, leak, 0, 0, 0, 2 * leak],
        [0, 0.5, 0.5, 0, 0, 0],
        [0, 0.5, 0.5 - leak, leak, 0, 0],
        [0, 0, 3 * leak, 0.5 - 3 * leak, 0.5, 0],
        [0, 0, 0, 0.5, 0.5, 0],
        [0, 0, 0, 0, 0, 1],
    ]
    return distribution, [0.9, 0.8, 0.7, 0.3, 0.2, 0.1], 0


def assert_proved(solution, gain):
    assert Fraction(solution.lower) <= gain <= Fraction(solution.upper)
    assert solution.certified == (solution.upper - solution.lower <= CERTIFIED_WIDTH)


@pytest.mark.parametrize("leak", LEAKS)
class TestNearlyDecomposable:
    def test_one_arm(self, leak):
        arms = [two_ends(leak)]
        solution = exact(problem_of(*arms))
        assert_proved(solution, truth(*arms))
        assert solution.certified
        assert solution.width < 1e-12

    def test_two_arms(self, leak):
        arms = [two_ends(leak), SECOND]
        solution = exact(problem_of(*arms))
        assert_proved(solution, truth(*arms))
        assert solution.certified

    def test_two_plays(self, leak):
        arms = [two_ends(leak), SECOND]
        assert_proved(exact(problem_of(*arms, plays=2)), truth(*arms, plays=2))

    def test_what_cannot_be_told_is_not_certified(self, leak):
        solution = exact(problem_of(shuttle(leak)))
        assert_proved(solution, truth(shuttle(leak)))
        assert solution.certified or leak < 1e-10

    def test_evaluation(self, leak):
        """A chain pulled in every slot, in the package's own rows."""
        distribution, rewards, start = two_ends(leak)
        arm = Arm(distribution, rewards, initial=start)
        found = rb.evaluate(Problem([arm]), rb.oracles.policy("best-arm", Problem([arm])))
        gain = truth((arm.transitions.tolist(), rewards, start))
        assert found.classes == 2
        assert abs(Fraction(found.gain) - gain) <= Fraction(found.error)
        assert found.error < 1e-12

    def test_fixed_arms(self, leak):
        arms = [two_ends(leak), SECOND]
        solution = rb.oracles.best_arm(problem_of(*arms))
        assert Fraction(solution.lower) <= truth(*arms) <= Fraction(solution.upper)
        assert abs(Fraction(rb.oracles.evaluation.arm_average(problem_of(*arms).arms[0])) - truth(arms[0])) < 1e-14

    def test_the_only_class_whatever_the_way(self, leak):
        """One class, and a start that is hardly left: the gain is that of the class."""
        arm = [[1 - leak, leak, 0], [0, 0.5, 0.5], [0, 0.25, 0.75]], [1, 0.5, 0], 0
        found = rb.evaluate(problem_of(arm), rb.oracles.policy("best-arm", problem_of(arm)))
        assert found.classes == 1
        assert abs(Fraction(found.gain) - truth(arm)) <= Fraction(found.error + found.rounding)
        assert found.error + found.rounding < 1e-11


@pytest.mark.parametrize("leak", [1e-9, 1e-14])
def test_a_class_that_is_nearly_two(leak):
    assert_proved(exact(problem_of(halves(leak))), truth(halves(leak)))


@settings(max_examples=4)
@given(st.integers(0, 10**6))
def test_random_multichain_problems(seed):
    """Two arms of sparse rows, chances from 1 down to 1e-14; where arms have one class nothing is lost."""
    rng = np.random.default_rng(seed)
    arms = []
    for n in (3, 2):
        distribution = np.where(rng.random((n, n)) < 0.5, 10.0 ** -rng.integers(0, 15, (n, n)), 0.0)
        distribution[np.arange(n), rng.integers(n, size=n)] += 1.0
        distribution /= distribution.sum(axis=1, keepdims=True)
        arms.append((distribution.tolist(), np.sort(rng.random(n))[::-1].tolist(), int(rng.integers(n))))
    problem = problem_of(*arms)
    gain = truth(*arms)
    for name in ("exact", "best-arm"):
        solution = rb.oracles.oracle(name)(problem)
        assert Fraction(solution.lower) <= gain <= Fraction(solution.upper), name


@settings(max_examples=5)
@given(st.integers(0, 10**6))
def test_caps_are_in_the_bracket(seed):
    """A chain with two ends, known to be left at once or waited for; the answer in closed form."""
    rng = np.random.default_rng(seed)
    best, worst = rng.uniform(0.1, 0.45, 2)
    chain = [[1, 0, 0], [best, 1 - best - worst, worst], [0, 0, 1]]
    problem = Problem([Arm(chain, [1, 0.5, 0], initial=1), Arm([[0.7, 0.3], [0.2, 0.8]], [0.5, 0.1], initial=0)])
    solution = exact(problem)
    row = [Fraction(p) / sum(map(Fraction, chain[1])) for p in chain[1]]
    second = rational_average(
        [{0: Fraction(7, 10), 1: Fraction(3, 10)}, {0: Fraction(1, 5), 1: Fraction(4, 5)}], [0, 1]
    )
    ends = row[0] / (row[0] + row[2])
    gain = ends + (1 - ends) * (Fraction(1, 2) - Fraction(2, 5) * second)
    assert Fraction(solution.lower) <= gain + Fraction(1e-15)
    assert Fraction(solution.upper) >= gain - Fraction(1e-15)
    assert solution.width < 1e-9


class TestContradictions:
    problem = Problem.builtin("paper-1")

    @pytest.mark.parametrize(("low", "high"), [(0.25, 0.5), (0.5, 0.375)])
    def test_ends_move_outward_by_their_rounding(self, low, high):
        lower, upper = bracket(self.problem, "mine", End(low, 0.25), End(high, 0.125))
        assert (lower, upper) == (np.nextafter(low - 0.25, -1), np.nextafter(high + 0.125, 1))

    def test_ends_without_rounding_stay_as_they_are(self):
        assert bracket(self.problem, "mine", End(0.25), End(0.5)) == (0.25, 0.5)

    def test_ends_that_cross_by_more_are_a_defect(self):
        with pytest.raises(ContradictionError, match=r"mine on .*paper-1.*at least 0\.5 and at most 0\.375.*report"):
            bracket(self.problem, "mine", End(0.5, 0.0625), End(0.375, 0.03125))

    def test_a_false_bound_is_not_clipped(self):
        policy = rb.oracles.policy("whittle", self.problem)
        with pytest.raises(ContradictionError, match=r"at most 0\.4"):
            bracketed(self.problem, "mine", policy, "by guess", 0.0, upper=0.4)
        with pytest.raises(ContradictionError, match=r"at least 0\.9"):
            bracketed(self.problem, "mine", policy, "by guess", 0.0, gain=0.9)

    @settings(max_examples=25)
    @given(st.integers(0, 10**6), st.integers(1, 3))
    def test_equal_ends_are_no_contradiction(self, seed, plays):
        """With all arms pulled, or one constant arm, both ends are the same number."""
        arms = Problem.random(3, [2, 3, 2], seed=seed, kind="general").arms
        for problem in (Problem(arms, plays=3), Problem([*arms[:plays], Arm([[1.0]], [1.0])])):
            solution = rb.oracles.best_arm(problem)
            assert solution.lower <= solution.upper
            assert solution.width < 1 if problem.plays == 1 else solution.width < 1e-9
