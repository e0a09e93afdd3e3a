"""Cases that once went wrong: each was found by an independent computation, named beside it."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Arm, IndexPolicy, Problem, ProblemError, TableArm
from restless_bandits.oracles import exact, myopic, relaxation, whittle, whittle_index
from tests.reference import subsidised_advantage

FLIP = Arm([[0, 1], [1, 0]], [1, 0], initial=0, name="flip")
CONSTANT = Arm([[1]], [0.5], initial=0, name="constant")


class TestPeriods:
    def test_myopic_play_of_a_flipping_arm_earns_three_quarters(self):
        """Good in every second slot and seen coming: 1 there, 0.5 in between."""
        problem = Problem([FLIP, CONSTANT])
        assert myopic(problem).gain == pytest.approx(0.75)
        assert exact(problem).gain == pytest.approx(0.75)

    def test_index_policies_repeat_with_the_period(self):
        three = Arm([[0, 1, 0], [0, 0, 1], [1, 0, 0]], [0.9, 0.3, 0], initial=0, name="three")
        problem = Problem([FLIP, three, CONSTANT])
        solution = relaxation(problem)
        elapsed = np.array([[tau, 1, 1] for tau in range(1, 40)])
        states = np.zeros_like(elapsed)
        chosen = solution.policy.choose(states, elapsed)[:, 0]
        np.testing.assert_array_equal(chosen[-8:], chosen[-14:-6])
        assert solution.gain == pytest.approx(rb.evaluate(problem, solution.policy).gain)

    def test_whittle_index_of_a_periodic_chain_with_three_states(self):
        """By a dynamic program on many rounds, where the two-state closed form agrees."""
        arm = Arm([[0, 1, 0], [1, 0, 0], [0, 0, 1]], [0.94086, 0.40323, 0.23345], initial=0)
        table = whittle_index(arm, length=4).table
        assert table[0, 0] == pytest.approx(0.40323, abs=1e-5)
        assert table[0, 1] == pytest.approx(0.94086, abs=1e-5)

    def test_a_period_too_long_is_told(self):
        chain = np.zeros((28, 28))
        start = 0
        for length in (2, 3, 5, 7, 11):
            for k in range(length):
                chain[start + k, start + (k + 1) % length] = 1
            start += length
        with pytest.raises(ProblemError, match="repeats itself only after 2310 slots"):
            rb.oracles.relaxation_bound(Problem([Arm(chain, np.linspace(1, 0, 28), initial=0), CONSTANT]))


class TestNeverSeen:
    def test_a_frozen_arm_is_worth_a_look(self):
        """One look tells for ever, so its index is its best reward."""
        table = whittle_index(Arm(np.eye(2), [0.9, 0.1])).table
        np.testing.assert_allclose(table[-1], 0.9, atol=1e-6)
        assert exact(Problem([Arm(np.eye(2), [0.9, 0.1]), Arm([[1.0]], [0.6])])).gain == pytest.approx(0.75)

    @pytest.mark.parametrize("seed", range(4))
    def test_a_table_has_its_own_row(self, seed):
        """The row for "never seen" as one more state that is never returned to, by the dynamic program."""
        rng = np.random.default_rng(seed)
        laws = rng.dirichlet(np.ones(2), size=(5, 3))
        rewards = np.sort(rng.random(2))[::-1]
        found = whittle_index(TableArm(laws, rewards))
        if not found.indexable:
            return
        square = np.concatenate([laws, np.zeros((5, 3, 1))], axis=2)
        padded = np.append(rewards, 0.0)
        for t in range(5):
            m = found.table[2, t]
            assert subsidised_advantage(square, padded, m - 2e-4)[2, t] > -1e-6
            assert subsidised_advantage(square, padded, m + 2e-4)[2, t] < 1e-6


class TestBrackets:
    def test_caps_are_refined_where_every_arm_is_pulled(self):
        solution = exact(Problem([Arm([[0.94, 0.06], [0.9395, 0.0605]], [1, 0], initial=0)]))
        assert solution.certified
        assert solution.gain == pytest.approx(0.9395 / 0.9995, abs=1e-9)

    def test_gain_lies_in_the_bracket_whatever_the_memory(self):
        for seed in range(10):
            problem = Problem.random(2, 2, seed=seed)
            for memory in (300, 2000):
                solution = exact(problem, memory=memory)
                if solution.gain is not None:
                    assert solution.lower <= solution.gain <= solution.upper

    def test_no_bound_above_the_largest_rewards(self):
        slow = [Arm.two_state(1 - 1e-4, 1 - 1e-4, initial=0), Arm.two_state(1 - 1e-4, 1 - 2e-4, initial=0)]
        assert rb.oracles.relaxation_bound(Problem(slow)) <= 1

    def test_laws_that_still_move_at_the_longest_cap_prove_nothing(self):
        """Two classes, one of which mixes too slowly to be cut: the truth is 0.5 · (1 + 0.5) at most."""
        arm = Arm([[1 - 1e-5, 1e-5, 0], [1e-5, 1 - 1e-5, 0], [0, 0, 1]], [1, 0, 0], initial=0)
        solution = exact(Problem([arm, CONSTANT]))
        assert not solution.certified
        assert solution.lower <= 0.75 <= solution.upper <= 1


class TestSize:
    def test_many_plays(self):
        problem = Problem.random(24, 2, seed=1, plays=12)
        solution = whittle(problem)
        assert solution.gain is None
        assert solution.lower <= solution.upper
        with pytest.raises(ProblemError, match="choices a slot"):
            exact(problem)

    def test_many_arms_without_warnings(self):
        assert myopic(Problem.random(200, 2, seed=1)).gain is None

    def test_slow_chains_can_be_evaluated(self):
        """Thousands of thin layers; this took minutes when every layer was merged into a sorted list."""
        pair = [Arm.two_state(0.99, 0.99, initial=0), Arm.two_state(0.99, 0.98, initial=0)]
        assert whittle(Problem(pair)).gain is not None

    def test_random_problems_with_a_high_floor(self):
        chain = Problem.random(1, 5, seed=1, floor=0.333).arms[0].chain
        assert chain[chain > 0].min() >= 0.333


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: rb.evaluate(p, None), "None is not a policy"),
        (lambda p: rb.evaluate(p, rb.oracles.policy("whittle", Problem.builtin("rf-3"))), "is for arms of"),
        (lambda p: rb.evaluate(p, IndexPolicy((np.ones((3, 1)),) * 2, plays=2)), "pulls 2 arms"),
        (lambda p: rb.oracles.policy("whittle", p)([0, 0], [0, 1]), "give at least 1"),
        (lambda p: rb.oracles.policy("whittle", p)([0, 5], [1, 1]), "arm 1 has no state 5"),
        (lambda p: rb.oracles.policy("exact", p)([0], [1]), "for 2 arms, but 1"),
        (lambda p: whittle_index(p.arms[0], method="foo"), "there is no method 'foo'"),
        (lambda p: whittle_index(p.arms[0], length=2.5), "length is 2.5"),
        (lambda p: exact(p, memory=float("inf")), "memory is inf"),
        (lambda p: p.require("monoton"), "did you mean 'monotone'"),
        (lambda p: Arm.two_state("a", 0.5), "stay_best is 'a'"),
        (lambda p: Problem(5), "arms is 5"),
        (lambda p: Problem.random(2, 2.5), "n_states is 2.5"),
        (lambda p: Problem.random(2, seed=-1), "seed is -1"),
        (lambda p: Problem([Arm([[1.0]], [0.5], name="\ud800")]), "half of a character"),
        (lambda p: Problem.from_toml("a = " + "[" * 5000), "not valid TOML"),
        (lambda p: rb.load_problem("x" * 5000), "cannot read"),
    ],
)
def test_faults_are_told_in_one_sentence(call, message):
    with pytest.raises(ProblemError, match=message) as caught:
        call(Problem.builtin("paper-1"))
    assert "\n" not in str(caught.value)


def test_whole_numbers_of_numpy_are_whole_numbers():
    assert Problem.random(2, np.int64(2), seed=1, plays=1).plays == 1
    assert Problem([Arm([[1.0]], [0.5])], plays=np.int64(1)).plays == 1


def test_markup_in_names_is_text(tmp_path, capsys):
    from restless_bandits.cli import output

    problem = Problem([Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], name="[red]x[/nope]", initial=0)], name="[b]")
    output.diagnosis(rb.check(problem), None, as_json=False)
    assert "[red]x[/nope]" in capsys.readouterr().out


def test_a_floor_next_to_nothing_has_no_horizon():
    problem = Problem([Arm([[1 - 1e-200, 1e-200], [0.5, 0.5]], [1, 0], initial=0)])
    assert rb.check(problem).theory_from is None
