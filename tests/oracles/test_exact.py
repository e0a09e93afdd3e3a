import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.oracles import exact
from tests.reference import brute_force_gain

FLIP = [[0, 1], [1, 0]]


def as_tables(problem, truncation):
    """The problem in which laws stay put beyond the cap: what brute force can enumerate, exactly."""
    arms = [TableArm(arm.state_distributions(truncation), arm.rewards, initial=arm.initial) for arm in problem.arms]
    return Problem(arms, plays=problem.plays)


def brute_force(problem, truncation):
    tables = [arm.state_distributions(truncation)[1:] for arm in problem.arms]
    return brute_force_gain(tables, [arm.rewards for arm in problem.arms], problem.initial, problem.plays)


def assert_contains(solution, low, high):
    assert solution.lower <= high + 1e-11
    assert solution.upper >= low - 1e-11


@pytest.mark.parametrize(
    ("name", "gain"), [("paper-1", 0.456464072293), ("paper-2", 0.286004062011), ("table-3", 0.456464072293)]
)
def test_the_optimum_of_the_paper(name, gain):
    solution = exact(Problem.builtin(name))
    assert solution.certified
    assert solution.lower <= gain + 1e-12
    assert solution.upper >= gain - 1e-12
    assert solution.upper - solution.lower <= 1e-9
    assert solution.gain == pytest.approx(gain, abs=1e-10)


@pytest.mark.parametrize("name", ["lms-urban-s", "lms-heavy-tree-s", "rf-2"])
def test_bracket_of_real_problems(name):
    problem = Problem.builtin(name)
    solution = exact(problem)
    assert solution.upper - solution.lower <= 1e-8
    earned = rb.evaluate(problem, solution.policy)
    assert solution.lower - 1e-12 <= earned.gain <= solution.upper + 1e-12


@settings(max_examples=15)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 4, 1), (2, 2, 1), (2, 3, 1), (3, 2, 1), (2, 2, 2), (3, 2, 2)]),
    st.sampled_from(["paper", "birth-death", "general"]),
)
def test_agrees_with_brute_force_on_tables(seed, shape, kind):
    n_arms, n_states, plays = shape
    problem = Problem.random(n_arms, n_states, seed=seed, plays=plays, kind=kind)
    truncation = 3 if n_arms == 3 else 5
    low, high = brute_force(problem, truncation)
    solution = exact(as_tables(problem, truncation))
    assert_contains(solution, low, high)
    assert solution.upper - solution.lower <= 1e-9


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from(["paper", "birth-death"]))
def test_bracket_of_the_true_problem_contains_longer_brute_force(seed, kind):
    """Chains whose memory is gone after 12 slots up to what the comparison allows for."""
    problem = Problem.random(2, 2, seed=seed, kind=kind, floor=0.2)
    left = max(abs(arm.chain[0, 0] - arm.chain[1, 0]) for arm in problem.arms) ** 12
    low, high = brute_force(problem, 12)
    spread = 20 * left
    solution = exact(problem)
    assert solution.lower <= high + spread
    assert solution.upper >= low - spread


def test_tables_that_are_no_powers():
    rng = np.random.default_rng(3)
    for _ in range(5):
        laws = [rng.dirichlet(np.ones(2), size=(4, 2)) for _ in range(2)]
        rewards = [np.sort(rng.random(2))[::-1] for _ in range(2)]
        problem = Problem([TableArm(distribution, r, initial=0) for distribution, r in zip(laws, rewards, strict=True)])
        assert_contains(exact(problem), *brute_force_gain(laws, rewards, [0, 0]))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.permutations([0, 1, 2]))
def test_relabelling_arms_changes_nothing(seed, order):
    problem = Problem.random(3, [2, 3, 2], seed=seed, floor=0.1)
    turned = Problem([problem.arms[i] for i in order])
    one, other = exact(problem), exact(turned)
    assert one.gain == pytest.approx(other.gain, abs=2e-10)


@pytest.mark.usefixtures("known")
@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 2), st.sampled_from(["paper", "birth-death", "general"]))
def test_order_of_all_oracles(seed, plays, kind):
    """Relaxation ≥ exact ≥ every policy that can be evaluated, and every bracket holds the optimum."""
    problem = Problem.random(3, 2, seed=seed, plays=plays, kind=kind, floor=0.1)
    best = exact(problem)
    assert rb.oracles.relaxation_bound(problem) >= best.lower - 1e-9
    for name in ("whittle", "myopic", "guha", "relaxation", "best-arm"):
        solution = rb.oracles.oracle(name)(problem)
        assert solution.lower <= best.upper + 1e-9, name
        assert solution.upper >= best.lower - 1e-9, name
        if solution.gain is not None:
            assert solution.gain <= best.upper + 1e-9, name


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 2))
def test_bias_solves_the_optimality_equation(seed, plays):
    """In every belief of the table the best action's reward plus bias is bias plus gain, up to the bracket's width."""
    problem = Problem.random(2, [2, 3], seed=seed, plays=plays, floor=0.1)
    solution = exact(problem)
    joint = solution.policy.beliefs
    rng = np.random.default_rng(seed)
    beliefs = np.stack([rng.integers(arm.size, size=200) for arm in joint.arms], axis=1)
    pulled = joint.actions[rng.integers(len(joint.actions), size=200)]
    for i, arm in enumerate(joint.arms):
        hit = (pulled == i).any(axis=1)
        beliefs[hit, i] = arm.after_pull[rng.integers(arm.n_states, size=int(hit.sum()))]
    here = solution.bias[joint.index(beliefs)]
    values = solution.policy.action_values(beliefs).max(axis=1)
    np.testing.assert_allclose(values - here, solution.gain, atol=1e-9)


class TestKindsOfChains:
    def test_absorbing_best_state_is_worth_waiting_for(self):
        problem = Problem([Arm([[1, 0], [0.3, 0.7]], [1, 0], initial=1), Arm.two_state(0.7, 0.8, (0.9, 0), initial=0)])
        assert exact(problem).gain == pytest.approx(1, abs=1e-9)

    def test_absorbing_worst_state(self):
        problem = Problem([Arm([[0.5, 0.5], [0, 1]], [1, 0], initial=0), Arm.two_state(0.7, 0.8, (0.5, 0), initial=0)])
        assert exact(problem).gain == pytest.approx(0.2, abs=1e-9)

    def test_negative_correlation(self):
        problem = Problem([Arm([[0.2, 0.8], [0.9, 0.1]], [1, 0], initial=1)] * 1 + [Arm.two_state(0.1, 0.2)])
        assert_contains(exact(as_tables(Problem(problem.arms[:1]), 4)), *brute_force(Problem(problem.arms[:1]), 4))
        solution = exact(problem)
        assert solution.certified
        assert rb.evaluate(problem, solution.policy).gain == pytest.approx(solution.gain, abs=1e-9)

    def test_independent_draws_are_the_classical_bandit(self):
        problem = Problem([Arm([[0.3, 0.7]] * 2, [1, 0]), Arm([[0.6, 0.4]] * 2, [0.9, 0.1]), Arm([[1.0]], [0.55])])
        assert exact(problem).gain == pytest.approx(0.58, abs=1e-10)

    def test_one_arm_is_its_average(self):
        arm = Problem.random(1, 4, seed=2).arms[0]
        assert exact(Problem([arm])).gain == pytest.approx(arm.stationary @ arm.rewards, abs=1e-10)

    @pytest.mark.parametrize("seed", range(3))
    def test_all_arms_pulled_is_the_sum_of_averages(self, seed):
        problem = Problem.random(3, [2, 3, 2], seed=seed, plays=3)
        total = sum(arm.stationary @ arm.rewards for arm in problem.arms)
        assert exact(problem).gain == pytest.approx(total, abs=1e-9)

    def test_unknown_start_has_the_same_gain(self):
        known = Problem.builtin("paper-2")
        unknown = Problem([Arm(arm.transitions, arm.rewards) for arm in known.arms])
        assert exact(unknown).gain == pytest.approx(exact(known).gain, abs=1e-10)


class TestMultichain:
    """The optimum depends on the start; answers in closed form."""

    @pytest.mark.parametrize(
        ("arms", "gain"),
        [
            ([(np.eye(2), [1, 0], 1), (np.eye(2), [0.7, 0.2], 0)], 0.7),
            ([(np.eye(2), [1, 0], 0), (np.eye(2), [0.7, 0.2], 0)], 1.0),
            # Unknown: look at the better arm; if it is bad (1/2) try the other, and take the best of what is known.
            ([(np.eye(2), [1, 0], None), (np.eye(2), [0.7, 0.2], None)], 0.5 + 0.25 * 0.7 + 0.25 * 0.2),
            ([(FLIP, [1, 0], 0), (FLIP, [1, 0], 1)], 1.0),
            ([(FLIP, [1, 0], 0), (FLIP, [1, 0], 0)], 0.5),
            # Opposite phases with chance 1/2, and a look at both tells.
            ([(FLIP, [1, 0], None), (FLIP, [1, 0], None)], 0.75),
            # The first arm ends best or worst with equal chance; else the second one's average 0.42 is left.
            (
                [
                    ([[1, 0, 0], [0.3, 0.4, 0.3], [0, 0, 1]], [1, 0.5, 0], 1),
                    ([[0.7, 0.3], [0.2, 0.8]], [0.9, 0.1], 0),
                ],
                0.5 * 1 + 0.5 * 0.42,
            ),
        ],
        ids=["frozen", "frozen good", "frozen unknown", "opposite", "in step", "unknown phases", "two ends"],
    )
    def test_closed_forms(self, arms, gain):
        problem = Problem([Arm(chain, rewards, initial=start) for chain, rewards, start in arms])
        solution = exact(problem)
        assert solution.multichain
        assert "multichain" in solution.how
        assert solution.bias is None
        assert solution.lower <= gain + 1e-11
        assert solution.upper >= gain - 1e-11
        assert solution.upper - solution.lower <= 1e-9
        assert solution.gain == pytest.approx(gain, abs=1e-9)
        assert rb.evaluate(problem, solution.policy).gain == pytest.approx(gain, abs=1e-9)

    def test_the_paper_is_not_multichain(self):
        assert not exact(Problem.builtin("paper-1")).multichain


class TestLimits:
    def test_a_small_memory_gives_a_wider_bracket_that_still_holds(self):
        problem = Problem.builtin("lms-suburban-l")
        tight = exact(problem)
        for memory in (30_000, 200_000):
            loose = exact(problem, memory=memory)
            assert loose.details["memory"] <= memory
            assert "too large" in loose.how
            assert loose.lower <= tight.upper
            assert loose.upper >= tight.lower
            assert loose.upper - loose.lower > 1e-9

    def test_says_what_it_takes_before_it_takes_it(self):
        lines = []
        exact(Problem.builtin("paper-1"), report=lines.append)
        assert lines[-1] == "truncations 36, 11: 184 joint beliefs, 0.0 MB"

    def test_threads_do_not_change_the_answer(self):
        problem = Problem.builtin("lms-suburban-l")
        one, two = exact(problem, threads=1), exact(problem, threads=2)
        assert (one.lower, one.upper) == (two.lower, two.upper)
        np.testing.assert_array_equal(one.policy.action, two.policy.action)

    def test_faults(self):
        problem = Problem.builtin("paper-1")
        with pytest.raises(ProblemError, match="tolerance is 0"):
            exact(problem, tolerance=0)
        with pytest.raises(ProblemError, match="memory is 0"):
            exact(problem, memory=0)
        with pytest.raises(ProblemError, match="even with the shortest truncations there are 90 joint beliefs"):
            exact(Problem.random(30, 3, seed=1), memory=1000)
        with pytest.raises(ProblemError, match="choices a slot"):
            exact(Problem.random(30, 2, seed=1, plays=15))

    def test_an_asked_tolerance_is_certified(self):
        solution = exact(Problem.builtin("lms-urban-s"), tolerance=1e-2)
        assert solution.certified
        assert 1e-6 < solution.upper - solution.lower <= 1e-2
