"""The simulated policies of the paper's proofs. Statistical tests have a false-alarm rate of 1e-6 each."""

import dataclasses
import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.cli.app import app
from restless_bandits.model import markov
from restless_bandits.paper.theory import (
    check_coupling,
    correspond,
    couple,
    couple_starts,
    joint_law,
    lemma_1,
    optimistic_problem,
    trajectory_fit,
)

REPAIRS = ("sign", "offset", "start", "end")
PAGE = Path(__file__).parents[2] / "docs" / "theory" / "coupling.md"
ALTERNATING = Problem([Arm([[0, 1], [1, 0]], [1, 0], initial=0), Arm([[0, 1], [1, 0]], [1, 0], initial=1)])


def improved(chain, rng):
    """A birth-death chain that dominates another, by any amount, and need not obey Assumption 3."""
    better = np.zeros_like(chain)
    for k in range(len(chain)):
        up = chain[k, k + 1] * rng.random() if k + 1 < len(chain) else 0.0
        if k + 1 < len(chain):
            better[k, k + 1] = up
        if k > 0:
            better[k, k - 1] = chain[k, k - 1] + (1 - up - chain[k, k - 1]) * rng.random()
        better[k, k] = 1 - better[k].sum()
    return better


@st.composite
def pairs(draw):
    """P, which obeys Assumptions 2 and 3, and a P' ≽ P."""
    seed = draw(st.integers(0, 2**32))
    chain = Problem.random(1, draw(st.integers(1, 6)), seed=seed).arms[0].chain
    return chain, improved(chain, np.random.default_rng(seed))


class TestCorrespond:
    @given(pairs(), st.integers(1, 60), st.data())
    def test_the_virtual_law_is_exact_and_never_better(self, pair, tau, data):
        """The heart of Lemma 1, by enumeration: Σ_k v'_k q_j(k) = v_j, and q_j(k) = 0 for j < k if s' ≤ s."""
        chain, better = pair
        n = len(chain)
        virtual = data.draw(st.integers(0, n - 1))
        real = data.draw(st.integers(0, virtual))
        v = np.linalg.matrix_power(chain, tau)[virtual]
        v_real = np.linalg.matrix_power(better, tau)[real]
        assert markov.dominates(v_real, v)
        total = np.zeros(n)
        for k in range(n):
            if joint_law(v, v_real)[k].any():
                chances = correspond(v, v_real, k)
                assert chances.min() >= 0
                assert chances.sum() == pytest.approx(1, abs=1e-12)
                assert v_real[k] * chances[:k].sum() <= 1e-12
                total += v_real[k] * chances
        np.testing.assert_allclose(total, v, atol=1e-12)

    @given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6))
    def test_marginals_need_no_order(self, weights):
        v, v_real = (np.array(column) + 1e-3 for column in zip(*weights, strict=True))
        v, v_real = v / v.sum(), v_real / v_real.sum()
        joint = joint_law(v, v_real)
        np.testing.assert_allclose(joint.sum(axis=1), v_real, atol=1e-12)
        np.testing.assert_allclose(joint.sum(axis=0), v, atol=1e-12)
        np.testing.assert_allclose(joint_law(v, v), np.diag(v), atol=1e-12)

    @pytest.mark.parametrize("repaired", [few for n in range(4) for few in combinations(REPAIRS, n)])
    def test_every_correction_of_the_printed_formula_is_needed(self, repaired):
        """With any of the four typos left in, what Algorithm 3 returns is not a law, or not the right one."""
        v, v_real = np.array([0.2, 0.5, 0.3]), np.array([0.5, 0.3, 0.2])
        laws = np.array([printed(v, v_real, k, repaired) for k in range(3)])
        are_laws = laws.min() >= 0 and np.allclose(laws.sum(axis=1), 1)
        assert not are_laws or not np.allclose(v_real @ laws, v)
        right = [printed(v, v_real, k, REPAIRS) for k in range(3)]
        np.testing.assert_allclose(right, [correspond(v, v_real, k) for k in range(3)], atol=1e-12)

    @pytest.mark.parametrize(("laws", "state"), [(([1.0], [0.5, 0.5]), 0), (([1.0], [1.0]), 1), (([1, 0], [1, 0]), 1)])
    def test_refusals(self, laws, state):
        with pytest.raises(ProblemError, match=f"{state}"):
            correspond(np.array(laws[0]), np.array(laws[1]), state)


def printed(v, v_real, k, repaired):
    """Algorithm 3 as the paper prints it, line by line, with some of its typos repaired; beyond M, p is 1."""
    start, end = v_real[:k].sum(), v_real[: k + 1].sum()
    p = [*np.cumsum([0.0, *v]), 1.0]  # p[j] is the paper's p_j
    width = end - start if "sign" in repaired else start - end
    chances = []
    for j in range(1, len(v) + 1):
        low, high = (p[j - 1], p[j]) if "offset" in repaired else (p[j], p[j + 1])
        low = max(low, start) if "start" in repaired else low
        share = 0.0 if p[j] < start else min(high, end) - low
        chances.append((max(0.0, share) if "end" in repaired else share) / width)
    return np.array(chances)


class TestCouple:
    def test_whole_trajectories_by_enumeration(self):
        """All trajectories of four slots: the virtual ones have the law of the policy in R, and none is better."""
        problem = Problem.random(2, 3, seed=8, initial="unknown")
        better = optimistic_problem(problem, 5000)
        policy = rb.oracles.policy("whittle", problem)

        def distribution(arm, s, tau):
            return arm.stationary if s is None else np.linalg.matrix_power(arm.chain, tau)[s]

        def step(last, elapsed, i, seen):
            waits = [1 if j == i else tau + 1 for j, tau in enumerate(elapsed)]
            return tuple(seen if j == i else s for j, s in enumerate(last)), tuple(waits)

        direct, coupled = Counter(), Counter()
        paths = [((None, None), (1, 1), (), 1.0)]
        for _ in range(4):
            grown = []
            for last, elapsed, path, chance in paths:
                i = policy(last, elapsed)
                v = distribution(problem.arms[i], last[i], elapsed[i])
                grown += [(*step(last, elapsed, i, j), (*path, j), chance * v[j]) for j in range(3)]
            paths = grown
        for *_, path, chance in paths:
            direct[path] += chance
        both = [((None, None), (None, None), (1, 1), (), 1.0)]
        for _ in range(4):
            grown = []
            for last, real, elapsed, path, chance in both:
                i = policy(last, elapsed)
                v, v_real = (distribution(p.arms[i], s[i], elapsed[i]) for p, s in ((problem, last), (better, real)))
                for k, j in np.argwhere(joint_law(v, v_real) > 1e-15).tolist():
                    assert j >= k
                    after, waits = step(last, elapsed, i, j)
                    share = chance * v_real[k] * correspond(v, v_real, k)[j]
                    grown.append((after, step(real, elapsed, i, k)[0], waits, (*path, j), share))
            both = grown
        for *_, path, chance in both:
            coupled[path] += chance
        assert sum(coupled.values()) == pytest.approx(1, abs=1e-12)
        assert max(abs(direct[path] - coupled[path]) for path in direct.keys() | coupled.keys()) < 1e-12

    @pytest.mark.parametrize(
        "problem",
        [
            Problem.builtin("paper-1"),
            Problem.builtin("queue-5"),
            Problem.random(4, [2, 3, 1, 4], seed=3, plays=2, initial="unknown"),
        ],
        ids=["two states", "five states", "two plays"],
    )
    def test_a_whole_run(self, problem):
        """Order in every slot, and both trajectories have their laws, at a false-alarm rate of 1e-6."""
        found = check_coupling(problem, 20_000, seed=5, slots=5_000)
        run = found.coupling
        assert run.never_better
        assert found.violations == 0
        assert run.rewards_ordered
        assert run.setbacks.any()
        assert found.virtual_fit.p_value > 1e-6
        assert found.real_fit.p_value > 1e-6
        assert found.holds
        assert found.real_mean > found.virtual_mean
        assert run.arms.shape == (5_000, problem.plays)

    def test_the_fit_would_see_a_wrong_law(self):
        """Real states taken for virtual ones, a wait counted twice, and the states of one slot given to the next.

        The first is wrong by rad(20 000) = 0.08 a law, and seen in 10 000 slots.
        """
        run = couple(Problem.builtin("paper-1"), horizon=20_000, seed=1)
        assert trajectory_fit(run.problem, run.arms, run.real_states).p_value < 1e-6
        squared = Problem([Arm(a.chain @ a.chain, a.rewards, initial=a.initial) for a in run.problem.arms])
        assert trajectory_fit(squared, run.arms, run.virtual_states).p_value < 1e-6
        assert trajectory_fit(run.problem, run.arms, np.roll(run.virtual_states, 1, axis=0)).p_value < 1e-6

    def test_the_fit_by_hand(self):
        """An arm of one state has nothing to fit but the spread itself; the bound is that of the docstring."""
        fit = trajectory_fit(Problem([Arm([[1.0]], [1], initial=0)]), np.zeros((100, 1), int), np.zeros((100, 1), int))
        assert (fit.cells, fit.pulls) == (1, 100)
        assert dataclasses.replace(fit, statistic=3.0).p_value == pytest.approx(200 * np.exp(-18))
        assert dataclasses.replace(fit, statistic=fit.alarm).p_value == pytest.approx(1e-6)

    def test_the_same_seed_gives_the_same_run(self):
        problem = Problem.builtin("paper-2")
        one, same, other = (check_coupling(problem, seed=seed, slots=500) for seed in (3, 3, 4))
        for field in ("arms", "elapsed", "real_states", "virtual_states"):
            np.testing.assert_array_equal(getattr(one.coupling, field), getattr(same.coupling, field))
        assert one.virtual_fit == same.virtual_fit
        assert one.real_fit == same.real_fit
        assert (one.coupling.virtual_states != other.coupling.virtual_states).any()

    def test_a_given_policy_and_a_given_instance(self):
        problem = Problem.builtin("paper-1")
        run = couple(problem, problem, policy=rb.policies.SingleArm(1), slots=200)
        assert set(run.arms[:, 0]) == {1}
        np.testing.assert_array_equal(run.real_states, run.virtual_states)
        assert run.met == 1

    def test_states_too_rare_to_be_drawn(self):
        """Twelve slots after the best state the worst one has probability 1e-20: no room between 1 − ε and 1."""
        chain = 0.97 * np.eye(12) + 0.02 * np.eye(12, k=-1) + 0.01 * np.eye(12, k=1)
        chain[0, 0] += 0.02
        chain[11, 11] += 0.01
        problem = Problem([Arm(chain, np.linspace(1, 0, 12), initial=0)] * 12)
        assert couple(problem, policy=rb.policies.Cycle(), horizon=10**9, slots=500).never_better

    def test_without_assumption_3_order_is_lost_and_laws_are_not(self):
        """Alternating arms: what is good now is bad next, so a better real state makes for a worse one."""
        chain = [[0.1, 0.9], [0.9, 0.1]]
        problem = Problem([Arm(chain, [1, 0], initial=0), Arm(chain, [1, 0], initial=1)])
        with pytest.raises(ProblemError, match=r"arm 'arm 1': P\(0,1\) \+ P\(1,0\) is 1.8; this needs at most 1"):
            couple(problem)
        run = couple(problem, checked=False, slots=5_000)
        assert not run.never_better
        assert not run.rewards_ordered
        assert trajectory_fit(run.problem, run.arms, run.virtual_states).p_value > 1e-6

    def test_refusals(self):
        problem = Problem.builtin("paper-1")
        better = optimistic_problem(problem, 1000)

        def changed(**parts):
            given = [{"transitions": arm.chain, "rewards": arm.rewards, "initial": arm.initial} for arm in better.arms]
            return Problem([Arm(**(arm | parts)) for arm in given])

        refused = {
            "reaches the states 0 to 0 with a probability that is 0.2 too low": changed(
                transitions=[[0.5, 0.5], [0.3, 0.7]]
            ),
            r"rewards\[0\] of the optimistic problem is 0.5, less than 1": changed(rewards=[0.5, 0.2]),
            "initial is None in the optimistic problem and 1": changed(initial=None),
            "the optimistic problem has states": Problem.builtin("table-3"),
        }
        for message, pair in refused.items():
            with pytest.raises(ProblemError, match=message):
                couple(problem, pair)
        worse_start = Problem([Arm(a.chain, a.rewards, initial=0) for a in problem.arms])
        with pytest.raises(ProblemError, match="initial is 1 in the optimistic problem and 0"):
            couple(worse_start, better)
        table = Problem([TableArm(problem.arms[0].state_distributions(5), [1, 0], initial=1)])
        for what in (lambda: couple(table, table), lambda: couple(table)):
            with pytest.raises(ProblemError, match="is a table of distributions"):
                what()
        for options, message in (({"slots": 0}, "slots is 0"), ({"seed": -1}, "seed is -1"), ({"horizon": 0}, "horiz")):
            with pytest.raises(ProblemError, match=message):
                couple(problem, **options)
        jumping = Problem([Arm([[0.5, 0.2, 0.3], [0.2, 0.5, 0.3], [0, 0.5, 0.5]], [1, 0.5, 0])])
        with pytest.raises(ProblemError, match="jumps over a state"):
            couple(jumping)


class TestCoupleStarts:
    @pytest.mark.parametrize(("real", "virtual"), [(0, 4), (4, 0)])
    def test_they_differ_in_one_arm_until_they_meet(self, real, virtual):
        problem = Problem.builtin("queue-5")
        met = 0
        for seed in range(6):
            run = couple_starts(problem, 1, real=real, virtual=virtual, slots=1_000, seed=seed)
            differ = (run.real_states != run.virtual_states)[:, 0]
            assert trajectory_fit(run.problem, run.arms, run.virtual_states).p_value > 1e-6
            assert trajectory_fit(run.optimistic, run.arms, run.real_states).p_value > 1e-6
            ahead, behind = sorted((run.real_states, run.virtual_states), key=lambda states: int(states.sum()))
            assert (ahead <= behind).all()
            if differ.any():
                met += 1
                assert set(run.arms[differ, 0]) == {1}
                pulls = np.flatnonzero(run.arms[:, 0] == 1)
                first = pulls[~differ[pulls]][0]
                assert differ[:first].any()
                assert not differ[first:].any()
                assert run.met == 2 + np.flatnonzero(differ)[-1]
        assert met > 0

    def test_arms_that_never_meet(self):
        run = couple_starts(ALTERNATING, 0, real=0, virtual=1, policy=rb.policies.SingleArm(0), slots=50)
        assert run.met is None

    def test_refusals(self):
        problem = Problem.builtin("paper-1")
        with pytest.raises(ProblemError, match="arm is 2; the arms are 0 to 1"):
            couple_starts(problem, 2, real=0, virtual=1)
        with pytest.raises(ProblemError, match="initial is 5"):
            couple_starts(problem, 0, real=5, virtual=1)


class TestLemma1:
    @settings(max_examples=12)
    @given(st.integers(0, 2**32), st.integers(2, 3), st.integers(100, 10**7))
    def test_random_problems(self, seed, states, horizon):
        problem = Problem.random(2, [2, states], seed=seed, floor=0.1)
        found = lemma_1(problem, horizon)
        assert found.verdict == "certified"
        rng = np.random.default_rng(seed)
        better = Problem([Arm(improved(a.chain, rng), a.rewards, initial=a.initial) for a in problem.arms])
        assert lemma_1(problem, optimistic=better).verdict != "refuted"

    @pytest.mark.parametrize("name", ["paper-1", "paper-2", "lms-urban-s", "rf-2", "table-3"])
    def test_builtin_problems(self, name):
        found = lemma_1(Problem.builtin(name), 100_000)
        assert found.verdict == "certified"
        assert found.lower <= found.upper <= found.optimistic_lower <= found.optimistic_upper

    def test_a_radius_of_zero_leaves_it_open(self):
        """At T = 1 the radius is zero and both instances are one."""
        found = lemma_1(Problem.builtin("paper-1"), 1)
        assert found.verdict == "undecided"
        assert (found.lower, found.upper) == (found.optimistic_lower, found.optimistic_upper)

    def test_without_assumption_3_it_is_false(self):
        """Two arms that alternate out of phase: in R one of them is good in every slot, and everybody knows which."""
        with pytest.raises(ProblemError, match="this needs at most 1"):
            lemma_1(ALTERNATING)
        found = lemma_1(ALTERNATING, 100_000, checked=False)
        assert found.upper == pytest.approx(1)
        assert found.optimistic_upper < 0.8
        assert found.verdict == "refuted"
        # An ergodic one, with Assumptions 1, 2 and 4, where the rewards are known.
        risky, safe = Arm([[0.1, 0.9], [0.9, 0.1]], [1, 0], initial=0), Arm([[1.0]], [0.7], initial=0)
        better = Arm([[0.15, 0.85], [0.9, 0.1]], [1, 0], initial=0)
        found = lemma_1(Problem([risky, safe]), optimistic=Problem([better, safe]), checked=False)
        assert found.verdict == "refuted"


class TestCommand:
    def run(self, *words):
        return CliRunner().invoke(app, ["check", *words])

    def test_json(self):
        plain, found = (json.loads(self.run("paper-1", "--json", *more).stdout) for more in ((), ("--coupling",)))
        coupling = found.pop("coupling")
        assert found == plain
        assert coupling["holds"] is True
        assert coupling["order_violations"] == 0
        assert coupling["slots"] == 10_000
        assert coupling["real_reward_mean"] > coupling["virtual_reward_mean"]
        assert len(coupling["first"]) == 20
        assert set(coupling["first"][0]) == {
            "slot", "arms", "elapsed", "real_states", "virtual_states", "real_rewards", "virtual_rewards"
        }  # fmt: skip

    def test_the_page_shows_what_the_command_prints(self):
        shown = [line.rstrip() for line in self.run("paper-1", "--coupling").stdout.splitlines()]
        start = next(i for i, line in enumerate(shown) if line.startswith("coupling:"))
        assert "\n".join(shown[start:]).strip() in PAGE.read_text(encoding="utf-8")

    def test_refusals(self, tmp_path):
        path = tmp_path / "p.toml"
        ALTERNATING.save(path)
        refused = self.run(str(path), "--coupling")
        assert isinstance(refused.exception, ProblemError)
        assert "P(0,1) + P(1,0) is 2; this needs at most 1" in str(refused.exception)
        assert "--seed is for --coupling" in str(self.run("paper-1", "--seed", "1").exception)
