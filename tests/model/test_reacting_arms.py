"""Arms that react to pulls, pay at rest or are all observed: fields, kinds, arrays, files, and who supports them."""

import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from typer.testing import CliRunner

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.cli.app import app
from restless_bandits.model import exploration
from restless_bandits.model.reward_units import gain_of, share_of
from restless_bandits.model.support import (
    ARM_FEATURES,
    PROBLEM_FEATURES,
    SUPPORT,
    refuse_unsupported,
    supported,
)
from restless_bandits.simulation.chain_world import ChainWorld
from tests.optional import needed

PASSIVE, ACTIVE = [[0.9, 0.1], [0.4, 0.6]], [[0.3, 0.7], [0.1, 0.9]]
REACTING = Arm(PASSIVE, [1, 0], active_transitions=ACTIVE, passive_rewards=[0.5, 0], setup_cost=0.1)
PLAIN = Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0])


def drawn(rng, n_arms=3, n_states=2):
    chains = rng.dirichlet(np.ones(n_states), (n_arms, n_states, 2))
    return chains, rng.random((n_arms, n_states, 2))


class TestArm:
    def test_an_arm_without_new_fields_is_the_same_as_before(self):
        plain = Arm(PASSIVE, [1, 0], active_transitions=PASSIVE, passive_rewards=[0, 0], setup_cost=0, count=1)
        assert plain == Arm(PASSIVE, [1, 0])
        assert not plain.reacts
        assert plain.features == ()
        assert plain.active_chain is plain.chain

    def test_chains_rewards_and_features(self):
        assert REACTING.reacts
        assert REACTING.features == ("active_transitions", "passive_rewards", "setup_cost")
        assert (REACTING.chain.tolist(), REACTING.active_chain.tolist()) == (PASSIVE, ACTIVE)
        assert REACTING.mean_rewards.tolist() == [[0.5, 1], [0, 0]]
        np.testing.assert_allclose(REACTING.stationary, [0.8, 0.2])

    def test_distributions_after_a_pull_and_before_the_first(self):
        table = Arm(PASSIVE, [1, 0], active_transitions=ACTIVE, initial=1).state_distributions(3)
        powers = [np.linalg.matrix_power(PASSIVE, k) for k in range(4)]
        assert table.shape == (4, 3, 2)
        np.testing.assert_allclose(table[0, :2], np.eye(2))
        for elapsed in (1, 2, 3):
            np.testing.assert_allclose(table[elapsed, :2], ACTIVE @ powers[elapsed - 1])
            np.testing.assert_allclose(table[elapsed, 2], powers[elapsed][1])

    def test_an_initial_distribution(self):
        arm = Arm(PASSIVE, [1, 0], initial=[0.25, 0.75])
        assert arm.initial is None
        assert arm.features == ("initial",)
        assert arm.initial_distribution.tolist() == [0.25, 0.75]
        np.testing.assert_allclose(arm.state_distributions(1)[1, 2], [0.25, 0.75] @ np.array(PASSIVE))
        assert Arm(PASSIVE, [1, 0], initial=[0, 1]) == Arm(PASSIVE, [1, 0], initial=1)
        assert Arm(PASSIVE, [1, 0]).initial_distribution == pytest.approx([0.8, 0.2])

    def test_a_rested_arm_stays_in_its_initial_state(self):
        arm = Arm.rested([[1, 0], [0.5, 0.5]], [0.9, 0.4], name="a", initial=1)
        assert arm.state_distributions(5)[:, 2].tolist() == [[0, 1]] * 6
        assert arm.active_chain.tolist() == [[1, 0], [0.5, 0.5]]
        assert Arm.rested([[1, 0], [0.5, 0.5]], [0.9, 0.4]).initial_distribution.tolist() == [0.5, 0.5]

    def test_repr_makes_the_arm_again(self):
        arm = Arm(
            PASSIVE, [3, -1], active_transitions=ACTIVE, passive_rewards=[1, 0], setup_cost=0.2, count=3, name="a",
            initial=[0.25, 0.75], reward_range=(-1, 4), reward_law="fixed",
        )  # fmt: skip
        assert eval(repr(arm)) == arm

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (dict(active_transitions=[[0.7, 0.2], [0.2, 0.8]]), r"active_transitions\[0\] sums to 0\.9, not 1"),
            (dict(active_transitions=[[1.0]]), "active_transitions has 1 rows of 1 entries, but there are 2 rewards"),
            (dict(passive_rewards=[1]), "passive_rewards has 1 entries, but there are 2 rewards"),
            (dict(passive_rewards=[2, 0]), r"passive_rewards\[0\] is 2; means must lie between 0 and 1"),
            (dict(setup_cost=-1), "setup_cost is -1; it must be a number, and must not be negative"),
            (dict(setup_cost=float("nan")), "setup_cost is nan"),
            (dict(setup_cost="1"), "setup_cost is '1'"),
            (dict(count=0), "count is 0; it must be a positive whole number"),
            (dict(count=1.5), "count is 1.5"),
            (dict(initial=[0.5, 0.4]), r"initial sums to 0\.9, not 1"),
            (dict(initial=[1.0]), "initial has 1 entries, but there are 2 states"),
            (dict(initial="1"), "initial is '1'; it must be a state from 0 to 1"),
        ],
    )
    def test_faults(self, change, message):
        with pytest.raises(ProblemError, match=message) as caught:
            Arm(PASSIVE, [1, 0], name="a", **change)
        assert str(caught.value).startswith("arm 'a': ")


class TestKinds:
    problem = Problem([Arm(PASSIVE, [1, 0], name="nurse", count=12), PLAIN], plays=3)

    def test_arms_of_a_kind_are_numbered(self):
        arms = self.problem.arms
        assert (len(arms), self.problem.n_arms, len(self.problem.kinds)) == (13, 13, 2)
        assert [arms[i].name for i in (0, 8, 11, 12)] == ["nurse-01", "nurse-09", "nurse-12", "arm 2"]
        assert all(arm.count == 1 for arm in arms)
        assert arms[-1].name == "arm 2"
        assert [arm.name for arm in arms[10:]] == ["nurse-11", "nurse-12", "arm 2"]
        assert [self.problem.arm_number(arm.name) for arm in arms] == list(range(13))
        assert self.problem.kind_of_arm.tolist() == [0] * 12 + [1]
        assert self.problem.n_states == (2,) * 13

    @pytest.mark.parametrize("name", ["nurse", "nurse-1", "nurse-13", "nurse-00", "nurse-١٢", "nurse-"])
    def test_unknown_arms(self, name):
        with pytest.raises(ProblemError, match="there is no arm"):
            self.problem.arm_number(name)

    def test_names_must_differ(self):
        with pytest.raises(ProblemError, match="two arms are called 'a-2', one of them by its number in its kind"):
            Problem([Arm(PASSIVE, [1, 0], name="a", count=2), Arm(PASSIVE, [1, 0], name="a-2")])
        Problem([Arm(PASSIVE, [1, 0], name="a", count=20), Arm(PASSIVE, [1, 0], name="a-2")])

    def test_equality_and_content(self):
        again = Problem([Arm(PASSIVE, [1, 0], name="nurse", count=12), PLAIN], plays=3)
        assert (again, again.content) == (self.problem, self.problem.content)
        assert again.content != Problem([Arm(PASSIVE, [1, 0], count=11), PLAIN], plays=3).content

    def test_uncontrolled_kinds_are_played(self):
        whole = rb.oracles.whittle(Problem([Arm(PASSIVE, [1, 0], count=3)])).gain
        assert whole == rb.oracles.whittle(Problem([Arm(PASSIVE, [1, 0])] * 3)).gain

    def test_the_same_proportions_of_more_arms(self):
        problem = Problem([Arm(PASSIVE, [1, 0], count=3), Arm(ACTIVE, [1, 0], count=2)], plays=2, observed="all")
        more = problem.with_arms(1000)
        assert (more.kind_counts.tolist(), more.plays, more.observed) == ([600, 400], 400, "all")
        with pytest.raises(
            ProblemError, match="7 arms cannot be divided like 5 arms with 2 plays; give a multiple of 5"
        ):
            problem.with_arms(7)

    def test_groups_are_runs_of_kinds_of_one_size(self):
        three = Arm(np.eye(3), [0, 1, 0.5], initial=2)
        problem = Problem([PLAIN, REACTING, three, PLAIN.of_count(4).named("b")])
        groups = problem.groups
        assert [(group.first, group.n_kinds, group.n_states) for group in groups] == [(0, 2, 2), (2, 1, 3), (3, 1, 2)]
        assert groups[0].active.tolist() == [PLAIN.chain.tolist(), ACTIVE]
        assert groups[0].passive_rewards.tolist() == [[0, 0], [0.5, 0]]
        assert groups[1].start.tolist() == [[0, 0, 1]]
        assert groups[2].count.tolist() == [4]
        np.testing.assert_allclose(groups[0].start[1], REACTING.stationary)


class TestProblem:
    def test_new_fields_enter_the_content_where_they_differ(self):
        plain = Problem([PLAIN, PLAIN])
        others = [
            Problem([PLAIN, PLAIN], observed="all"),
            Problem([PLAIN, PLAIN], at_most=True),
            Problem([PLAIN, PLAIN], at_most=True, observed="all"),
            Problem([PLAIN, Arm(PLAIN.transitions, [1, 0], active_transitions=ACTIVE)]),
            Problem([PLAIN, Arm(PLAIN.transitions, [1, 0], passive_rewards=[1, 0])]),
            Problem([PLAIN, Arm(PLAIN.transitions, [1, 0], setup_cost=1)]),
            Problem([PLAIN, Arm(PLAIN.transitions, [1, 0], initial=[0.5, 0.5])]),
            Problem([Arm(PLAIN.transitions, [1, 0], count=2)]),
        ]
        assert Problem([PLAIN, PLAIN], observed="pulled", at_most=False) == plain
        assert len({problem.content for problem in [plain, *others]}) == 9
        assert not any(problem == plain for problem in others)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (dict(observed="none"), "observed is 'none'; choose from pulled, all"),
            (dict(at_most=1), "at_most is 1; it must be true or false"),
            (dict(plays=3), "plays is 3; .* the number of arms"),
        ],
    )
    def test_faults(self, given, message):
        with pytest.raises(ProblemError, match=message):
            Problem([PLAIN, PLAIN], **given)

    def test_reacting_arms_do_not_change(self):
        with pytest.raises(ProblemError, match="changes at slot 5 and has active_transitions"):
            Problem([REACTING], changes=[rb.Change(5, 0, rewards=[0.5, 0])])

    def test_parts_keep_what_is_observed(self):
        problem = Problem([PLAIN, REACTING], observed="all", at_most=True, name="x")
        assert problem.only([1]) == Problem([REACTING.named("arm 2")], observed="all", at_most=True)

    @pytest.mark.parametrize("at_most", [False, True])
    def test_normalized_rewards_leave_choices_and_gains_unchanged(self, at_most):
        arms = [
            Arm(
                PASSIVE,
                [40, -10],
                passive_rewards=[20, 0],
                setup_cost=12,
                reward_range=(-20, 60),
                reward_law="bernoulli",
            ),
            Arm(PASSIVE, [5, 9], active_transitions=ACTIVE, reward_range=(4, 10), reward_law="bernoulli"),
        ]
        problem = Problem(arms, at_most=at_most)
        shares = problem.normalized()
        for pulled in ({0}, {1}, *([set()] if at_most else [])):

            def earned(one, pulled=pulled):
                return sum(arm.mean_rewards[1, int(i in pulled)] for i, arm in enumerate(one.arms))

            assert gain_of(problem, earned(shares)) == pytest.approx(earned(problem))
            assert share_of(problem, earned(problem)) == pytest.approx(earned(shares))
        assert shares.arms[0].setup_cost == 0.15

    def test_uncontrolled_arms_keep_their_normalized_rewards(self):
        problem = Problem([Arm(PASSIVE, [40, -10], reward_range=(-20, 60), reward_law="bernoulli")] * 2)
        assert problem.normalized().arms[0].rewards.tolist() == [0.75, 0.125]
        assert gain_of(problem, 0.75) == 40


class TestToml:
    @given(st.integers(0, 10**6), st.sampled_from(["pulled", "all"]), st.booleans())
    def test_round_trip_is_exact(self, seed, observed, at_most):
        rng = np.random.default_rng(seed)
        arms = []
        for n in rng.integers(1, 4, size=3):
            (pair,), (means,) = drawn(rng, 1, n)
            fields = {
                "active_transitions": pair[:, 1], "passive_rewards": means[:, 0], "setup_cost": rng.random(),
                "count": int(rng.integers(2, 20)), "initial": rng.dirichlet(np.ones(n)),
            }  # fmt: skip
            kept = {key: value for key, value in fields.items() if rng.random() < 0.6}
            arms.append(Arm(pair[:, 0], means[:, 1], reward_law="fixed", **kept))
        problem = Problem(arms, plays=2, observed=observed, at_most=at_most)
        again = Problem.from_toml(problem.to_toml())
        assert again == problem
        assert again.content == problem.content

    def test_the_words_are_those_of_python(self):
        text = Problem([REACTING.of_count(2)], observed="all", at_most=True).to_toml()
        for line in (
            "count = 2",
            "setup_cost = 0.1",
            'observed = "all"',
            "at_most = true",
            "passive_rewards = [0.5, 0.0]",
        ):
            assert line in text.splitlines()

    def test_today_s_files_hold_none_of_them(self):
        words = {"count", "setup_cost", "observed", "at_most", "passive_rewards", "active_transitions"}
        assert words.isdisjoint(re.findall(r"^(\w+) =", Problem.builtin("paper-1").to_toml(), re.MULTILINE))


class TestArrays:
    P, R = drawn(np.random.default_rng(3), n_arms=5, n_states=3)

    def arms(self, names=None):
        return [
            Arm(
                self.P[i, :, 0], self.R[i, :, 1], active_transitions=self.P[i, :, 1], passive_rewards=self.R[i, :, 0],
                reward_law="fixed",
            )
            for i in range(5)
        ]  # fmt: skip

    def test_is_the_problem_of_its_arms(self):
        arrays = Problem.from_arrays(self.P, self.R, plays=2)
        single = Problem(self.arms(), plays=2, observed="all")
        assert arrays.content == single.content
        assert arrays == single
        assert single == arrays
        assert list(arrays.arms) == list(single.arms)
        assert arrays.features == single.features
        assert arrays.arm_number("arm 4") == 3
        assert arrays.to_toml() == single.to_toml()
        for one, two in zip(arrays.groups, single.groups, strict=True):
            for field in ("active", "passive", "active_rewards", "passive_rewards", "start", "count"):
                np.testing.assert_allclose(getattr(one, field), getattr(two, field), atol=1e-15)

    @given(st.integers(0, 10**6))
    def test_content_where_arms_have_different_features(self, seed):
        rng = np.random.default_rng(seed)
        P, R = drawn(rng, 8)
        alike, silent = rng.random((2, 8)) < 0.5
        P[alike, :, 1] = P[alike, :, 0]
        R[silent, :, 0] = 0
        initial = [None, rng.integers(2, size=8), np.where(rng.random((8, 1)) < 0.5, [0.5, 0.5], [0.0, 1.0])][seed % 3]
        arrays = Problem.from_arrays(P, R, initial=initial, count=[1, 1, 2, 3, 12, 1, 1, 1])
        assert arrays == Problem(list(arrays.kinds), observed="all")
        assert arrays.features == Problem(list(arrays.kinds), observed="all").features

    @pytest.mark.parametrize("axes", ["nsaz", "nasz", "zasn", "sazn"])
    def test_any_order_of_axes(self, axes):
        P = np.transpose(self.P, ["nsaz".index(axis) for axis in axes])
        R = np.transpose(self.R, ["nsa".index(axis) for axis in axes if axis != "z"])
        assert Problem.from_arrays(P, R, axes=axes) == Problem.from_arrays(self.P, self.R)

    def test_one_arm_and_the_probabilities_of_the_second_state(self):
        P, R = drawn(np.random.default_rng(4), n_arms=4)
        assert Problem.from_arrays(P[0], R[0], axes="saz") == Problem.from_arrays(P[:1], R[:1])
        assert Problem.from_arrays(P[0].transpose(0, 1, 2), R[0], axes="saz", count=3).n_arms == 3
        second = Problem.from_arrays(P[..., 1], R, axes="nsa")
        np.testing.assert_allclose(second.groups[0].active, P[:, :, 1], atol=1e-15)

    @pytest.mark.parametrize(("axes", "pick"), [("ns", np.s_[:, :, 1]), ("sa", np.s_[0]), ("s", np.s_[0, :, 1])])
    def test_rewards_with_fewer_axes(self, axes, pick):
        problem = Problem.from_arrays(self.P, self.R[pick], reward_axes=axes)
        assert problem == Problem.from_arrays(self.P, self.R[pick])
        group = problem.groups[0]
        if "a" not in axes:
            np.testing.assert_array_equal(group.active_rewards, group.passive_rewards)

    def test_rewards_of_any_size(self):
        problem = Problem.from_arrays(self.P, 10 * self.R - 5)
        low, high = problem.reward_range
        assert (low, high) == ((10 * self.R - 5).min(), (10 * self.R - 5).max())
        shares = problem.normalized()
        assert shares == Problem(
            [arm.normalized_to((low, high), at_rest=True) for arm in problem.kinds], observed="all"
        )

    def test_printed_rows_are_divided_by_their_sums(self):
        P = self.P.copy()
        P[1, 2, 0, 0] += 8e-9
        assert Problem.from_arrays(P, self.R).arms[1].transitions[2].sum() == pytest.approx(1, abs=1e-15)
        np.testing.assert_array_equal(Problem.from_arrays(P, self.R).arms[0].transitions, self.P[0, :, 0])

    def test_a_hundred_thousand_arms_are_not_made(self, monkeypatch):
        made = []
        original = Arm.__init__
        monkeypatch.setattr(Arm, "__init__", lambda self, *a, **k: (made.append(1), original(self, *a, **k))[1])
        P, R = drawn(np.random.default_rng(5), n_arms=100_000)
        problem = Problem.from_arrays(P, R, plays=10_000, names=[f"p{i}" for i in range(100_000)])
        _ = (
            problem.content,
            problem.groups,
            problem.features,
            problem.n_states,
            repr(problem),
            problem.arm_number("p77"),
        )
        assert len(made) < 20

    FAULTS = (
        (dict(axes="nsa"), "P has 4 axes, but axes = 'nsa' names 3"),
        (dict(axes="nsax"), "axes is 'nsax'; name each axis of P once"),
        (dict(axes="znas"), r"P has n = 3, s = 3, a = 2, z = 5 by axes = 'znas'; give two actions"),
        (
            dict(P=P.transpose(0, 3, 2, 1)),
            "P sums to .*, not 1, along z for arm 0, state 0, action 0; along s it does, ",
        ),
        (dict(P=P * 0.5), "along z for arm 0, state 0, action 0; mend its rows"),
        (dict(P=np.where(P[1, 1, 1, 1] == P, np.nan, P)), r"P\[1\]\[1\]\[1\]\[1\] is nan"),
        (dict(P="x"), "P is 'x'; give an array of numbers"),
        (dict(R=R[:4]), r"R has shape \(4, 3, 2\), which fits none of nsa, ns, sa, s"),
        (dict(R=R, reward_axes="sa"), r"R has shape \(5, 3, 2\), but reward_axes = 'sa' means \(3, 2\)"),
        (dict(reward_axes="na"), "reward_axes is 'na'; give nsa, ns, sa or s"),
        (dict(names=["a"] * 5), "names is .*; give 5 different texts"),
        (dict(initial=3), r"initial\[0\] is 3; it must be a state from 0 to 2"),
        (dict(initial=[0.5, 0.5]), "initial is .*; give a state for each of 5 arms"),
        (dict(count=[1, 2]), "count is .*; it must be a list of 5 whole numbers"),
        (dict(reward_law="fixd"), "unknown reward_law 'fixd'"),
        (dict(plays=6), "plays is 6"),
    )

    @pytest.mark.parametrize(("given", "message"), FAULTS)
    def test_faults(self, given, message):
        with pytest.raises(ProblemError, match=message):
            Problem.from_arrays(**({"P": self.P, "R": self.R} | given))

    def test_two_readings_are_refused(self):
        P, R = drawn(np.random.default_rng(6), n_arms=2)
        with pytest.raises(ProblemError, match=r"R has shape \(2, 2\), which can be read as ns and as sa"):
            Problem.from_arrays(P, R[0])
        with pytest.raises(ProblemError, match="can be read as nas and as nsa"):
            Problem.from_arrays(P.swapaxes(1, 2), R, axes="nasz")
        assert Problem.from_arrays(P, R[0], reward_axes="sa").arms[1].mean_rewards.tolist() == R[0].tolist()


SAMPLES = {
    "active_transitions": Problem([Arm(PASSIVE, [1, 0], active_transitions=ACTIVE, initial=0), PLAIN]),
    "passive_rewards": Problem([Arm(PASSIVE, [1, 0], passive_rewards=[0.5, 0], initial=0), PLAIN]),
    "setup_cost": Problem([Arm(PASSIVE, [1, 0], setup_cost=0.1, initial=0), PLAIN]),
    "initial": Problem([Arm(PASSIVE, [1, 0], initial=[0.25, 0.75]), PLAIN]),
    "observed": Problem([PLAIN, PLAIN], observed="all"),
    "at_most": Problem([PLAIN, PLAIN], at_most=True),
}
"""A problem with each feature alone."""
USES: dict[str, Callable[[Problem], object]] = {
    **{
        name: rb.oracles.oracle(name)
        for name in ("exact", "auto", "whittle", "relaxation", "myopic", "best-arm", "guha")
    },
    "planning": lambda problem: rb.oracles.policy("auto", problem, 1000),
    "beliefs": lambda problem: rb.processes.beliefs.joint_beliefs(problem, [5, 5]),
    "index": lambda problem: [rb.oracles.whittle_index(arm) for arm in problem.arms],
    "bound": rb.oracles.relaxation_bound,
    "evaluate": lambda problem: rb.evaluate(
        problem,
        rb.oracles.policy("myopic", SAMPLES["observed"] if problem.observed == "all" else Problem([PLAIN, PLAIN])),
        simulate=problem.observed == "all",
    ),
    "simulate": lambda problem: rb.simulate(problem, "whittle", 20, runs=1),
    "walk": lambda problem: rb.walk(problem, "round-robin", 20),
    "gym": lambda problem: (needed("gymnasium"), rb.gym.RestlessBanditEnv(problem).reset()),
    "benchmark": lambda problem: ChainWorld(problem, "benchmark"),
    "demo": lambda problem: __import__("restless_bandits.service.demo").service.demo.DemoWorld(
        problem, np.random.default_rng(0)
    ),
    "task": lambda problem: problem.task(100),
    "check": rb.check,
    "theory": lambda problem: problem.assumptions,
}
"""How each entry of the table is used."""


class TestBuiltin:
    def test_the_numbers_of_their_sources(self):
        bad, healing = Problem.builtin("collapsing").kinds
        assert (bad.transitions.tolist(), bad.active_transitions.tolist()) == (
            [[0.97, 0.03], [0.03, 0.97]],
            [[0.96, 0.04], [0.01, 0.99]],
        )
        assert (healing.transitions.tolist(), healing.active_transitions.tolist()) == (
            [[0.25, 0.75], [0.03, 0.97]],
            [[0.23, 0.77], [0.01, 0.99]],
        )
        rows = {
            arm.name: arm.transitions.tolist() for name in ("cpap", "cpap-all") for arm in Problem.builtin(name).kinds
        }
        assert rows == {
            "female": [[0.786, 0.214], [0.209, 0.791]],
            "male": [[0.649, 0.351], [0.147, 0.853]],
            "patient": [[0.731, 0.269], [0.172, 0.828]],
        }
        cycle = Problem.builtin("circulant-4").kinds[0]
        np.testing.assert_array_equal(cycle.active_transitions, cycle.transitions.T)

    @pytest.mark.parametrize("name", sorted({*rb.builtin_problems()} - {*rb.builtin_problems(())}))
    def test_each_names_its_source_and_grows(self, name):
        problem = Problem.builtin(name)
        assert problem.name == name
        assert len(problem.source) > 40
        assert name in rb.builtin_problems(problem.features)
        assert name not in rb.builtin_problems(set(problem.features[1:]))
        more = problem.with_arms(300)
        assert more.n_arms == 300
        assert more.plays * problem.n_arms == 300 * problem.plays

    @pytest.mark.parametrize(("name", "share"), [("circulant-4", 0.2), ("three-states", 0.4), ("conveyor-8", 0.5)])
    def test_bounds_of_the_observed_problems(self, name, share):
        """Published or derived bounds of a slot and arm, by the linear program over state and action frequencies."""
        problem = Problem.builtin(name)
        assert problem.plays == share * problem.n_arms
        (group,) = problem.groups
        n = group.n_states
        flow = np.hstack([np.eye(n) - group.passive[0].T, np.eye(n) - group.active[0].T])
        equal = np.vstack([flow, np.ones(2 * n), np.repeat([0.0, 1.0], n)])
        gain = np.concatenate([group.passive_rewards[0], group.active_rewards[0]])
        found = linprog(-gain, A_eq=equal, b_eq=[*np.zeros(n), 1, share])
        assert -found.fun == pytest.approx({0.2: 0.2, 0.4: 0.123800171, 0.5: 0.0125}[share], abs=1e-8)


class TestRandom:
    @pytest.mark.parametrize("kind", ["health", "dirichlet", "collapsing"])
    def test_what_each_kind_promises(self, kind):
        problem = Problem.random_reacting(40, kind=kind, seed=1)
        (group,) = problem.groups
        assert (problem.plays, problem.observed) == (4, "pulled" if kind == "collapsing" else "all")
        assert problem == Problem.random_reacting(40, kind=kind, seed=1)
        if kind == "dirichlet":
            assert (group.active_rewards != group.passive_rewards).all()
            return
        assert (group.active[:, :, 1] >= group.passive[:, :, 1]).all()
        assert (group.active_rewards == [0, 1]).all()
        assert (group.passive_rewards == [0, 1]).all()

    def test_a_pull_of_a_health_arm_leads_to_better_states(self):
        (group,) = Problem.random_reacting(30, 4, seed=2).groups
        assert ((group.active - group.passive) @ np.arange(4) >= 0).all()
        np.testing.assert_allclose(group.active_rewards, [[0, 1 / 3, 2 / 3, 1]] * 30)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (dict(kind="helth"), "unknown kind of random problem: 'helth'; did you mean 'health'"),
            (dict(kind="collapsing", n_states=3), "n_states is 3; collapsing arms have two states"),
            (dict(n_states=1), "n_states is 1"),
            (dict(seed=-1), "seed is -1"),
        ],
    )
    def test_faults(self, given, message):
        with pytest.raises(ProblemError, match=message):
            Problem.random_reacting(10, **given)


class TestCheck:
    def test_a_diagnosis_of_kinds(self):
        found = rb.check(Problem([REACTING.named("a").of_count(3), Arm.rested([[1, 0], [0, 1]], [1, 0], name="b")]))
        first, second = found.kinds
        assert (first.name, first.count, first.setup_cost) == ("a", 3, 0.1)
        np.testing.assert_allclose(first.passive_stationary, [0.8, 0.2])
        np.testing.assert_allclose(first.active_stationary, [0.125, 0.875])
        assert first.mixing > 1
        assert second.mixing is None
        assert found.as_dict()["features"] == ("active_transitions", "passive_rewards", "setup_cost")

    def test_the_command_prints_both_chains(self):
        shown = CliRunner().invoke(app, ["check", "maintenance"]).stdout
        assert "maintenance: 3 arms of 3 states, reacting, 1 play" in shown
        assert "0.8 0.2 0" in shown
        assert "0.8 0 0.2" in shown
        told = json.loads(CliRunner().invoke(app, ["check", "cpap", "--json"]).stdout)
        assert [kind["count"] for kind in told["kinds"]] == [2, 2]
        refused = CliRunner().invoke(app, ["check", "cpap", "--limit"]).exception
        assert "which the theory of the Restless-UCB paper does not support" in str(refused)


class TestSupport:
    def test_every_feature_has_a_sample_and_every_entry_a_use(self):
        assert list(SAMPLES) == [*ARM_FEATURES, *PROBLEM_FEATURES]
        assert set(USES) == set(SUPPORT)
        assert [problem.features for problem in SAMPLES.values()] == [(feature,) for feature in SAMPLES]

    @pytest.mark.parametrize("entry", SUPPORT)
    @pytest.mark.parametrize("feature", SAMPLES)
    def test_every_cell_works_or_refuses_in_one_sentence(self, feature, entry):
        problem = SAMPLES[feature]
        if feature in supported(entry, problem.observed) or (
            entry in ("index", "beliefs") and feature in PROBLEM_FEATURES
        ):
            USES[entry](problem)
            return
        with pytest.raises(ProblemError, match=r"does not support|cannot play") as caught:
            USES[entry](problem)
        message = str(caught.value)
        assert "\n" not in message
        assert feature in message or "initial distribution" in message

    @pytest.mark.parametrize(
        "use",
        [
            lambda problem: rb.theory.exploration_length(problem, 1000),
            lambda problem: rb.theory.exploration_bound(problem, 1000),
            lambda problem: exploration.fact_1(problem, 1000),
            lambda problem: rb.theory.reward_gap(problem.arms[1], problem.arms[0], 1000, 0.9, 5),
            lambda problem: rb.theory.regret_bound(problem, 1000, lambda_max=0.9),
            lambda problem: rb.theory.check_event(problem, 1000),
            lambda problem: rb.theory.check_coupling(problem, 1000),
            lambda problem: rb.theory.regret_limit(problem),
        ],
    )
    def test_every_part_of_the_theory_refuses(self, use):
        with pytest.raises(ProblemError, match="the theory of the Restless-UCB paper does not support"):
            use(SAMPLES["active_transitions"])

    def test_the_sentence_names_the_feature_and_the_remedy(self):
        with pytest.raises(ProblemError) as caught:
            refuse_unsupported(SAMPLES["setup_cost"], "guha")
        assert str(caught.value).startswith("arm 'arm 1' has setup_cost, which the oracle guha does not support; ")
        with pytest.raises(ProblemError, match="the problem has observed = 'all', which the oracle guha does not"):
            refuse_unsupported(SAMPLES["observed"], "guha")

    def test_tables_of_distributions_have_no_matrices(self):
        problem = Problem([TableArm(np.full((1, 2, 2), 0.5), [1, 0], initial=0)], observed="all")
        with pytest.raises(ProblemError, match="has no transition matrix"):
            _ = problem.groups
