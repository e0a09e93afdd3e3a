import inspect
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.model import markov
from restless_bandits.model.arms import precompute_limits

GOOD = [[0.7, 0.3], [0.2, 0.8]]


def test_the_documented_example():
    problem = Problem(
        [
            Arm(transitions=[[0.7, 0.3], [0.2, 0.8]], rewards=[1, 0]),
            Arm.two_state(stay_best=0.5, stay_worst=0.6, rewards=(0.8, 0)),
        ]
    )
    assert problem.n_arms == 2
    assert problem.plays == 1
    assert problem.initial == (None, None)
    assert [arm.name for arm in problem.arms] == ["arm 1", "arm 2"]
    assert problem.arms[1].transitions.tolist() == [[0.5, 0.5], [0.4, 0.6]]


class TestArm:
    def test_the_signature_shows_the_parameters(self):
        assert list(inspect.signature(rb.Arm).parameters)[:2] == ["transitions", "rewards"]

    def test_laws_are_powers_with_a_row_for_never_seen(self):
        table = Arm(GOOD, [1, 0]).state_distributions(3)
        assert table.shape == (4, 3, 2)
        np.testing.assert_allclose(table[2, :2], np.linalg.matrix_power(GOOD, 2))
        np.testing.assert_allclose(table[:, 2], [[0.4, 0.6]] * 4)
        assert Arm(GOOD, [1, 0], initial=1).state_distributions(3).shape == (4, 2, 2)

    def test_numbers_cannot_be_changed(self):
        arm = Arm(GOOD, [1, 0])
        with pytest.raises(ValueError, match="read-only"):
            arm.transitions[0, 0] = 0.5
        with pytest.raises(AttributeError):
            arm.name = "other"

    def test_does_not_alias_its_input(self):
        matrix = np.array(GOOD)
        arm = Arm(matrix, [1, 0])
        matrix[0] = [1, 0]
        assert arm.transitions[0, 0] == 0.7

    def test_equality_is_by_content(self):
        assert Arm(GOOD, [1, 0]) == Arm(GOOD, [1.0, 0.0])
        assert Arm(GOOD, [1, 0]) != Arm(GOOD, [1, 0], initial=0)
        assert len({Arm(GOOD, [1, 0]), Arm(GOOD, [1, 0])}) == 1

    def test_repr_makes_the_arm_again(self):
        arm = Arm(GOOD, [1, 0], name="a", initial=1, reward_law="fixed")
        assert eval(repr(arm)) == arm

    def test_rows_are_kept_as_given_and_used_scaled(self):
        third = 0.3333333333
        arm = Arm([[third, third, third]] * 3, [1, 0.5, 0], initial=0)
        assert arm.transitions[0, 0] == third
        assert arm.chain.sum(axis=1).tolist() == [1.0, 1.0, 1.0]


BAD_ARMS = {
    "row sum": (dict(transitions=[[0.7, 0.2], [0.2, 0.8]]), r"transitions\[0\] sums to 0\.9, not 1"),
    "negative": (dict(transitions=[[0.7, 0.3], [-0.2, 1.2]]), r"transitions\[1\]\[0\] is -0\.2"),
    "nan": (dict(transitions=[[0.7, 0.3], [float("nan"), 0.8]]), r"transitions\[1\]\[0\] is nan"),
    "infinite": (dict(rewards=[float("inf"), 0]), r"rewards\[0\] is inf"),
    "shape": (dict(transitions=[[0.7, 0.3]]), r"1 rows of 2 entries, but there are 2 rewards"),
    "ragged": (dict(transitions=[[0.7, 0.3], [1.0]]), r"different lengths \[2, 1\]"),
    "not square": (dict(transitions=[[1, 0, 0], [0, 1, 0]]), r"2 rows of 3 entries"),
    "vector": (dict(transitions=[0.7, 0.3]), r"must be a list of rows"),
    "text": (dict(transitions=[["a", "b"], ["c", "d"]]), r"must be a list of rows"),
    "no rewards": (dict(rewards=[]), r"rewards must be a list of numbers"),
    "reward above": (dict(rewards=[1.5, 0]), r"rewards\[0\] is 1\.5; .*between 0 and 1"),
    "reward below": (dict(rewards=[1, -0.1]), r"rewards\[1\] is -0\.1"),
    "initial": (dict(initial=2), r"initial is 2; it must be a state from 0 to 1"),
    "initial float": (dict(initial=0.5), r"initial is 0\.5"),
    "initial bool": (dict(initial=True), r"initial is True"),
    "law": (dict(reward_law="bernouli"), r"unknown reward_law 'bernouli'; did you mean 'bernoulli'\?"),
    "name": (dict(name=3), r"name must be a string"),
}


@pytest.mark.parametrize(("change", "message"), BAD_ARMS.values(), ids=BAD_ARMS.keys())
def test_bad_arms(change, message):
    with pytest.raises(ProblemError, match=message) as caught:
        Arm(**({"transitions": GOOD, "rewards": [1, 0], "name": "a"} | change))
    if "name" not in change:
        assert str(caught.value).startswith("arm 'a': ")


class TestTableArm:
    def test_with_and_without_the_identity(self):
        powers = Arm(GOOD, [1, 0], initial=0).state_distributions(4)
        assert TableArm(powers, [1, 0], initial=0) == TableArm(powers[1:], [1, 0], initial=0)
        assert TableArm(powers, [1, 0], initial=0).length == 4

    def test_stays_put_beyond_its_end(self):
        arm = TableArm(Arm(GOOD, [1, 0], initial=0).state_distributions(4), [1, 0], initial=0)
        np.testing.assert_array_equal(arm.state_distributions(7)[4:], [arm.laws[4]] * 4)

    @pytest.mark.parametrize(
        ("laws", "initial", "message"),
        [
            (np.ones((3, 2, 2)), 0, r"laws\[0\]\[0\] sums to 2"),
            (np.full((3, 2, 2), 0.5), None, r"shape \(2, 2\), but 2 rewards call for \(3, 2\) \(the last row"),
            (np.full((3, 3, 2), 0.5), 0, r"call for \(2, 2\)"),
            (np.eye(2)[None], 0, r"no distributions for τ = 1"),
            (np.eye(2), 0, r"must be a stack of matrices"),
        ],
    )
    def test_bad_tables(self, laws, initial, message):
        with pytest.raises(ProblemError, match=message):
            TableArm(laws, [1, 0], initial=initial)

    def test_has_no_toml_form(self):
        with pytest.raises(ProblemError, match="has no TOML form"):
            Problem([TableArm(np.full((1, 2, 2), 0.5), [1, 0], initial=0)]).to_toml()


class TestProblem:
    @pytest.mark.parametrize("plays", [0, 3, 1.5, True, "1"])
    def test_bad_plays(self, plays):
        with pytest.raises(ProblemError, match=r"plays is .* from 1 to 2"):
            Problem([Arm(GOOD, [1, 0])] * 2, plays=plays)

    def test_other_faults(self):
        with pytest.raises(ProblemError, match="at least one arm"):
            Problem([])
        with pytest.raises(ProblemError, match=r"arms\[0\] is 3"):
            Problem([3])
        with pytest.raises(ProblemError, match="two arms are called 'a'"):
            Problem([Arm(GOOD, [1, 0], name="a"), Arm(GOOD, [1, 0], name="a")])

    def test_content_is_numbers_alone(self):
        one = Problem([Arm(GOOD, [1, 0], name="a")], name="x")
        other = Problem([Arm(GOOD, [1, 0], name="b")], name="y")
        assert one.content == other.content
        assert one != other
        assert one.content != Problem([Arm(GOOD, [1, 0], initial=0)]).content
        assert Problem([Arm(GOOD, [1, 0])] * 2).content != Problem([Arm(GOOD, [1, 0])] * 2, plays=2).content

    def test_assumptions_name_the_culprit(self):
        problem = Problem(
            [
                Arm([[0.5, 0.4, 0.1], [0.3, 0.4, 0.3], [0, 0.8, 0.2]], [0.5, 0.7, 0.1], name="bad"),
                Arm(GOOD, [1, 0], name="good"),
            ]
        )
        found = problem.assumptions
        assert not found["monotone"].holds
        assert (found["monotone"].arm, found["monotone"].state) == ("bad", 0)
        assert found["monotone"].value == pytest.approx(0.2)
        assert (found["birth_death"].arm, found["birth_death"].state, found["birth_death"].value) == ("bad", 0, 0.1)
        assert found["positively_correlated"].state == 1
        assert found["positively_correlated"].value == pytest.approx(1.1)
        assert found["bounded_below"].holds
        assert found["bounded_below"].value == 0.2

    @pytest.mark.parametrize(
        ("arm", "name", "message"),
        [
            (Arm(GOOD, [0, 1]), "monotone", r"rewards\[1\] exceeds rewards\[0\] by 1; order the states"),
            (Arm([[0.5, 0, 0.5], [0, 1, 0], [0, 0, 1]], [1, 1, 0]), "birth_death", r"transitions\[0\] jumps .* 0\.5"),
            (Arm([[0.2, 0.8], [0.9, 0.1]], [1, 0]), "positively_correlated", r"P\(0,1\) \+ P\(1,0\) is 1\.7"),
            (Arm([[1, 0], [0.5, 0.5]], [1, 0]), "bounded_below", r"transitions\[0\] reaches a neighbour .* 0;"),
        ],
    )
    def test_required_assumptions(self, arm, name, message):
        with pytest.raises(ProblemError, match=message):
            Problem([arm]).require(name)
        Problem([Arm(GOOD, [1, 0])]).require("monotone", "birth_death", "positively_correlated", "bounded_below")

    def test_unknown_arm(self):
        with pytest.raises(ProblemError, match="no arm 'arm3'; did you mean 'arm 1'"):
            Problem([Arm(GOOD, [1, 0])]).arm_number("arm3")


class TestTask:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (
                lambda: rb.Task(kinds=(0, 0)),
                "Task has no argument 'kinds'; arms that are all observed have rb.Observed",
            ),
            (lambda: rb.Task.of_arms(["a"], observed="all"), "has no argument 'observed'; arms that are all observed"),
            (lambda: rb.Task(n_state=(2,)), "Task has no argument 'n_state'; did you mean 'n_states'?"),
        ],
    )
    def test_unknown_arguments(self, make, message):
        with pytest.raises(ProblemError, match=re.escape(message)):
            make()

    problem = Problem([Arm(GOOD, [1, 0], initial=1), Arm.two_state(0.5, 0.6, (0.8, 0))])

    def test_tells_the_shape_and_nothing_more(self):
        task = self.problem.task(100)
        assert (task.n_arms, task.n_states, task.plays, task.horizon) == (2, (2, 2), 1, 100)
        assert task.initial == (1, None)
        assert task.rewards is task.mixing is task.problem is None
        assert self.problem.task().horizon is None

    def test_reveals_what_is_asked_for(self):
        task = self.problem.task(100_000, reveal=["rewards", "mixing"])
        assert task.rewards == ((1.0, 0.0), (0.8, 0.0))
        assert task.mixing == (9, 3)
        assert task.problem is None
        assert self.problem.task(reveal="problem").problem is self.problem

    def test_faults(self):
        with pytest.raises(ProblemError, match="cannot reveal 'reward'; did you mean 'rewards'"):
            self.problem.task(10, reveal=["reward"])
        for horizon in (0, -1, 1.5, True):
            with pytest.raises(ProblemError, match="horizon is"):
                self.problem.task(horizon)
        with pytest.raises(ProblemError, match="give a horizon"):
            self.problem.task(reveal=["mixing"])


class TestToml:
    @given(st.integers(0, 10**6), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.text(max_size=20))
    def test_round_trip_is_exact(self, seed, sizes, name):
        drawn = Problem.random(len(sizes), sizes, seed=seed, kind="general", reward_law="fixed")
        problem = Problem(drawn.arms, plays=len(sizes), name=name, source=name[::-1])
        again = Problem.from_toml(problem.to_toml())
        assert again == problem
        assert again.content == problem.content

    def test_save_and_load(self, tmp_path):
        problem = Problem.builtin("queue-5")
        problem.save(tmp_path / "q.toml")
        assert Problem.load(tmp_path / "q.toml") == problem
        assert rb.load_problem(tmp_path / "q.toml") == problem

    @given(st.text(max_size=30))
    def test_findings_go_along_and_count_for_nothing(self, why):
        plain = Problem.builtin("paper-1")
        problem = Problem(plain.arms, name=plain.name, source=plain.source, findings=rb.Findings(rejected=why))
        again = Problem.from_toml(problem.to_toml())
        assert again.findings == problem.findings == rb.Findings(why or None)
        assert (again, again.content, hash(again)) == (plain, plain.content, hash(plain))

    def test_findings_are_findings(self):
        with pytest.raises(ProblemError, match="findings is 'bad'; give Findings"):
            Problem(Problem.builtin("paper-1").arms, findings="bad")

    def test_defaults(self):
        problem = Problem.from_toml("[[arms]]\nrewards = [1, 0]\ntransitions = [[0.7, 0.3], [0.2, 0.8]]\n")
        assert problem.plays == 1
        assert problem.arms[0].reward_law == "bernoulli"
        assert problem.arms[0].initial is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("arms = 3", "no arms"),
            ("", "no arms"),
            ("[[arms]]\nrewards = [1, 0]\n", "arm 'arm 1': transitions is missing"),
            ("[[arms]]\nname = 'x'\ntransitions = [[1.0]]\n", "arm 'x': rewards is missing"),
            ("[[arms]]\nreward = [1]\n", "unknown key 'reward'; did you mean 'rewards'"),
            ("player = 2\n[[arms]]\n", "unknown key 'player'; did you mean 'plays'"),
            ("[[arms]\n", "not valid TOML"),
            ("[[arms]]\nrewards=[1,0]\ntransitions=[[nan,1],[0,1]]\n", r"transitions\[0\]\[0\] is nan"),
            ("[[arms]]\nrewards=[true,false]\ntransitions=[[1,0],[0,1]]\n", "rewards must be a list of numbers"),
            ("plays=2\n[[arms]]\nrewards=[1]\ntransitions=[[1]]\n", "plays is 2"),
            ("[fit]\nrejected=3\n[[arms]]\nrewards=[1]\ntransitions=[[1]]\n", "fit: rejected must be a string, not 3"),
            ("[fit]\nreject='x'\n[[arms]]\n", "fit: unknown key 'reject'; did you mean 'rejected'"),
            ("fit = 'bad'\n[[arms]]\n", r"fit is 'bad'; it must be a table \[fit\]"),
        ],
    )
    def test_faults_name_the_file(self, tmp_path, text, message):
        path = tmp_path / "bad.toml"
        path.write_text(text)
        with pytest.raises(ProblemError, match=message) as caught:
            Problem.load(path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)

    def test_unreadable_files(self, tmp_path):
        with pytest.raises(ProblemError, match=r"cannot read .*nothing\.toml: No such file"):
            Problem.load(tmp_path / "nothing.toml")
        with pytest.raises(ProblemError, match="cannot read"):
            Problem.load(tmp_path)
        (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(ProblemError, match="not a text file"):
            Problem.load(tmp_path / "binary.toml")

    def test_unknown_names(self):
        with pytest.raises(ProblemError, match=r"no built-in problem 'papr-1'.* did you mean 'paper-1'"):
            rb.load_problem("papr-1")
        with pytest.raises(ProblemError, match="did you mean 'queue-5'"):
            Problem.builtin("queue5")


class TestBuiltin:
    def test_all_of_them(self):
        lms = ["lms-heavy-tree-s", "lms-suburban-l", "lms-urban-l", "lms-urban-s"]
        tables = [f"table-{n}" for n in range(2, 6)]
        assert rb.builtin_problems(()) == [*lms, "paper-1", "paper-2", "queue-5", "rf-2", "rf-3", *tables]

    @pytest.mark.parametrize("name", rb.builtin_problems(()))
    def test_each_meets_the_assumptions_and_names_its_source(self, name):
        problem = Problem.builtin(name)
        assert problem.name == name
        assert problem.source
        assert all(found.holds for found in problem.assumptions.values())
        assert all(arm.initial == arm.n_states - 1 for arm in problem.arms)
        assert ("stand-in" in problem.source) == name.startswith("rf-")

    def test_the_numbers_of_the_paper(self):
        one, two = Problem.builtin("paper-1"), Problem.builtin("paper-2")
        assert [arm.transitions.tolist() for arm in one.arms] == [GOOD, [[0.5, 0.5], [0.4, 0.6]]]
        assert [arm.transitions.tolist() for arm in two.arms] == [[[0.7, 0.3], [0.1, 0.9]], [[0.7, 0.3], [0.5, 0.5]]]
        assert [arm.rewards.tolist() for arm in one.arms + two.arms] == [[1, 0], [0.8, 0], [0.8, 0], [0.4, 0]]

    def test_the_tables_are_nested(self):
        arms = Problem.builtin("table-5").arms
        stays = [(arm.transitions[0, 0], arm.transitions[1, 1], arm.rewards[0]) for arm in arms]
        assert stays == [(0.7, 0.8, 1), (0.5, 0.6, 0.8), (0.7, 0.9, 0.8), (0.7, 0.5, 0.4), (0.6, 0.7, 0.6)]
        for n in range(2, 5):
            assert Problem.builtin(f"table-{n}").arms == arms[:n]

    def test_the_stand_in_has_the_strong_state_first(self):
        problem = Problem.builtin("rf-3")
        assert problem.arms[0].transitions.tolist() == [[0.8934, 0.1066], [0.0645, 0.9355]]
        assert [arm.rewards.tolist() for arm in problem.arms] == [[1, 0]] * 3
        assert problem.arms[:2] == Problem.builtin("rf-2").arms


def test_arms_studied_together_know_what_each_finds_alone():
    odd = [Arm(np.eye(3), [1, 0.5, 0]), Arm([[0, 1], [1, 0]], [1, 0]), Arm([[0.5, 0.5], [0, 1]], [1, 0])]
    table = TableArm([[[0.5, 0.5], [0.4, 0.6]]], [1, 0], initial=0)
    for kind in ("paper", "birth-death", "general"):
        arms = [*Problem.random(12, [1, 2, 3, 4, 5, 9] * 2, seed=3, kind=kind).arms, *odd, table]
        precompute_limits(arms)
        for arm in arms:
            np.testing.assert_array_equal(arm.limiting_matrix, markov.limit_laws(arm.one_step))
            assert arm.is_ergodic == markov.is_ergodic(arm.one_step)
            assert not arm.limiting_matrix.flags.writeable
            if isinstance(arm, Arm):
                np.testing.assert_array_equal(arm.chain, Arm(arm.transitions, arm.rewards).chain)
                np.testing.assert_array_equal(arm.stationary, markov.stationary(arm.chain))


class TestRandom:
    @given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 6))
    def test_paper_kind_meets_all_assumptions(self, seed, n_arms, n_states):
        problem = Problem.random(n_arms, n_states, seed=seed)
        problem.require("monotone", "birth_death", "positively_correlated", "bounded_below")
        assert problem.assumptions["bounded_below"].value >= 0.02

    def test_rows_are_those_that_dirichlet_draws(self):
        for seed, size in ((5, 2), (6, 3), (7, 1)):
            first = np.random.default_rng(seed).dirichlet(np.ones(min(size, 2)))
            drawn = Problem.random(1, size, seed=seed, floor=0.1).arms[0].transitions[0, :2]
            np.testing.assert_array_equal(drawn, 0.1 + (1 - 0.1 * len(first)) * first)

    def test_birth_death_kind_has_negative_correlation(self):
        drawn = [Problem.random(1, 3, seed=seed, kind="birth-death") for seed in range(30)]
        assert all(problem.assumptions["birth_death"].holds for problem in drawn)
        assert any(not problem.assumptions["positively_correlated"].holds for problem in drawn)

    def test_same_seed_same_problem(self):
        assert Problem.random(3, [2, 3, 4], seed=5) == Problem.random(3, [2, 3, 4], seed=5)
        assert Problem.random(2, seed=5) != Problem.random(2, seed=6)
        assert Problem.random(2, seed=1, initial="unknown").initial == (None, None)
        assert Problem.random(2, 3, seed=1, initial="worst").initial == (2, 2)

    @pytest.mark.parametrize(
        "options",
        [dict(kind="papers"), dict(initial="best"), dict(floor=0.5), dict(n_arms=0), dict(n_states=[2, 3, 4])],
    )
    def test_faults(self, options):
        with pytest.raises(ProblemError):
            Problem.random(**options)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda arm: rb.Problem([arm], P0=arm.transitions), "'P0'; an arm takes transitions, .*reacting-arms.md"),
        (lambda arm: rb.Problem(P0=arm.transitions, R=3), "Problem has no argument 'P0'"),
        (lambda arm: rb.Problem([arm], rewards=[1, 0]), "'rewards'; give it to each Arm .docs/how-to/own-problem.md"),
        (lambda arm: rb.Problem([arm], play=1), "'play'; did you mean 'plays'"),
        (lambda arm: rb.Arm(passive=arm.transitions), "Arm has no argument 'passive'; take transitions"),
        (lambda arm: rb.Arm(arm.transitions, [1, 0], reward_rang=(0, 2)), "did you mean 'reward_range'"),
        (lambda arm: rb.Arm.rested(P0=arm.transitions), "Arm.rested has no argument 'P0'; its state changes in slots"),
        (lambda arm: rb.Arm.rested(arm.transitions, active_transitions=arm.transitions), "'active_transitions'; its"),
        (lambda arm: rb.Arm.two_state(0.7, 0.8, P1=arm.transitions), "Arm.two_state has no argument 'P1'; Arm states"),
    ],
)
def test_a_keyword_of_another_kind_is_answered_with_its_place(make, sentence):
    with pytest.raises(rb.ProblemError, match=sentence):
        make(rb.Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0]))


def test_signatures_show_the_keywords():
    assert list(inspect.signature(rb.Problem).parameters)[:3] == ["arms", "plays", "observed"]
    assert list(inspect.signature(rb.Arm).parameters)[:3] == ["transitions", "rewards", "costs"]
