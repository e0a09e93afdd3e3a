"""Rewards in the user's units: laws, ranges, and that an affine image of a problem is the same problem."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import beta_shapes, draw_reward
from restless_bandits.paper import theory
from restless_bandits.simulation.world_kernels import beta_variable
from tests import reference

FALSE_ALARM = 1e-6
RANGES = [(0, 54), (-500, 0), (0, 5e4), (1e-3, 2e-3)]
LEARNERS = [
    "likelihood-ucb",
    "likelihood-dominance",
    "ts-9",
    "posterior",
    "restless-ucb",
    "colored-ucrl2:cap=3",
    "rca",
    "dsee",
    "ucb1",
    "whittle",
    "exact",
    "likelihood-ucb:rewards=known",
]
PAPER = rb.Problem.builtin("paper-1")


def image(problem, low, high, **options):
    """The affine image of a problem whose rewards lie between 0 and 1."""
    arms = [
        rb.Arm(
            arm.transitions,
            low + (high - low) * arm.rewards,
            name=arm.name,
            initial=arm.initial,
            reward_range=(low, high),
            **{"reward_law": arm.reward_law} | options,
        )
        for arm in problem.arms
    ]
    return rb.Problem(arms, plays=problem.plays, name=problem.name)


def draws_alike(*problems):
    """The same problems with the draws of one and the same, and none for which a gain ships with the package."""
    for problem in problems:
        vars(problem)["content"] = "5" * 64
    return problems


class TestAffineImages:
    @pytest.mark.parametrize("spec", LEARNERS)
    def test_learners_take_the_same_path(self, spec):
        low, high = RANGES[LEARNERS.index(spec) % len(RANGES)]
        bare = rb.Problem(PAPER.arms)
        both = draws_alike(bare, image(bare, low, high))
        one, other = (rb.simulate(problem, spec, 600, runs=2, seed=3, trace=True, jobs=1) for problem in both)
        assert np.array_equal(one.traces[spec].arms, other.traces[spec].arms)
        assert np.array_equal(one.traces[spec].states, other.traces[spec].states)
        assert other.traces[spec].rewards == pytest.approx(low + (high - low) * one.traces[spec].rewards)
        assert one.kinds == other.kinds == ("realised", "expected", "gap")
        for kind in one.kinds:
            assert other.regret(kind) / (high - low) == pytest.approx(one.regret(kind), abs=1e-7)

    @pytest.mark.parametrize("spec", ["likelihood-ucb", "likelihood-dominance", "restless-ucb", "rca", "ucb1"])
    def test_with_rewards_of_a_beta_law(self, spec):
        both = draws_alike(*(image(PAPER, *ends, reward_law="beta", reward_spread=0.5) for ends in ((0, 1), (-500, 0))))
        one, other = (rb.simulate(problem, spec, 400, runs=2, seed=3, trace=True, jobs=1) for problem in both)
        assert np.array_equal(one.traces[spec].arms, other.traces[spec].arms)
        assert other.regret("realised") / 500 == pytest.approx(one.regret("realised"), abs=1e-7)

    @settings(max_examples=8, deadline=None)
    @given(
        seed=st.integers(0, 1000),
        low=st.floats(-1e4, 1e4),
        width=st.floats(0.1, 1e4),
        plays=st.integers(1, 2),
    )
    @pytest.mark.parametrize("name", ["exact", "whittle", "myopic", "relaxation", "best-arm", "auto"])
    def test_oracles_answer_the_same(self, name, seed, low, width, plays):
        problem = rb.Problem.random(3, 2, seed=seed, plays=plays)
        low, high = float(low), float(low) + float(width)
        other = image(problem, low, high)
        one, found = (oracles.find_oracle(name)(stated) for stated in (problem, other))
        assert found.problem is other
        assert found.certified == one.certified
        off = 1e-12 * max(abs(low), abs(high)) / width
        for end in ("gain", "lower", "upper"):
            share = (getattr(found, end) - plays * low) / width
            assert share == pytest.approx(getattr(one, end), abs=1e-9 + plays * off)
        share = (oracles.evaluate(other, one.policy).gain - plays * low) / width
        assert share == pytest.approx(one.gain, abs=1e-9 + plays * off)

    def test_indices_are_stretched(self):
        for arm, other in zip(PAPER.arms, image(PAPER, -500, 0).arms, strict=True):
            table, stretched = rb.oracles.whittle_index(arm).table, rb.oracles.whittle_index(other).table
            assert stretched == pytest.approx(500 * table - 500)

    def test_bounds_of_the_theory_grow_with_the_width(self):
        problem = rb.Problem.random(2, 2, seed=1, floor=0.15)
        other = image(problem, -500, 0)
        for bound in (
            lambda stated: theory.regret_bound(stated, 10**9),
            lambda stated: theory.regret_bound(stated, 10**9, constants="proved"),
            lambda stated: theory.dominance_bound(stated, 10**9),
        ):
            assert bound(other).total == pytest.approx(500 * bound(problem).total)
        span = theory.approximation_bound(other, 10**9, 500 * 3.0)
        assert span.total == pytest.approx(500 * theory.approximation_bound(problem, 10**9, 3.0).total)
        gain = oracles.exact(problem).gain
        same = [theory.regret_bound_from(problem, gain), theory.regret_bound_from(other, 500 * gain - 500)]
        assert same[0] == pytest.approx(same[1], rel=1e-6)
        one, found = rb.check(problem), rb.check(other)
        assert (found.c1, found.theory_from) == (one.c1, one.theory_from)

    def test_the_bias_is_in_the_units_of_the_problem(self):
        one, other = (theory.bias_between_successors(oracles.exact(stated)) for stated in (PAPER, image(PAPER, 0, 54)))
        assert other == pytest.approx(54 * one)


class TestMixedUnits:
    """One arm in thousands, another in thousandths."""

    PROBLEM = rb.Problem(
        [
            rb.Arm.two_state(0.9, 0.9, rewards=(5000, 1e-3), initial=1, reward_range=(0, 5000), reward_law="bernoulli"),
            rb.Arm.two_state(0.7, 0.6, rewards=(4e-3, 1e-3), initial=1, reward_range=(0, 5e-3), reward_law="bernoulli"),
        ]
    )

    def test_indices_are_found_to_relative_precision(self):
        arm = rb.Arm(
            [[0.7, 0.3, 0.0], [0.2, 0.5, 0.3], [0.0, 0.4, 0.6]],
            [4e-3, 2e-3, 1e-3],
            reward_range=(0, 5e-3),
            initial=0,
            reward_law="bernoulli",
        )
        table = oracles.whittle_index(arm).table
        unit = oracles.whittle_index(rb.Arm(arm.transitions, arm.rewards / 5e-3, initial=0)).table
        assert table == pytest.approx(5e-3 * unit, rel=1e-9)

    def test_the_optimum_is_certified_to_a_share_of_the_range(self):
        found = oracles.exact(self.PROBLEM)
        tables = [arm.state_distributions(20)[1:] for arm in self.PROBLEM.arms]
        slow = reference.brute_force_gain(tables, [arm.rewards for arm in self.PROBLEM.arms], self.PROBLEM.initial)
        assert found.certified
        assert slow == pytest.approx((found.gain, found.gain), rel=1e-9)
        assert found.lower <= found.gain <= found.upper

    @pytest.mark.parametrize("spec", ["likelihood-ucb", "ts-9", "ucb1", "rca", "colored-ucrl2:cap=3"])
    def test_bounds_scale_arm_by_arm(self, spec):
        """An arm whose worst exceeds the best of another is soon all that is played: its rival's bounds are its own."""
        arms = [
            rb.Arm.two_state(0.5, 0.5, rewards=(110, 100), initial=1, reward_range=(99, 111), reward_law="fixed"),
            rb.Arm.two_state(0.5, 0.5, rewards=(0.5, 0.1), initial=1, reward_range=(0, 1)),
        ]
        result = rb.simulate(rb.Problem(arms), spec, 500, runs=2, seed=1)
        assert (result.pulls[0, :, 1] <= 25).all()


class TestLaws:
    @pytest.mark.parametrize(("share", "spread"), [(0.5, 0.5), (0.9, 0.2), (0.02, 0.7), (0.3, 0.9), (0.6, 0.01)])
    def test_the_engine_draws_beta_variables(self, share, spread):
        shapes = [float(shape) for shape in beta_shapes(np.array(share), spread)]
        uniforms = np.random.default_rng(1).random(20_000)
        drawn = np.array([beta_variable(u, *shapes) for u in uniforms])
        assert stats.kstest(drawn, stats.beta(*shapes).cdf).pvalue > FALSE_ALARM
        assert math.sqrt(stats.beta(*shapes).var()) == pytest.approx(spread * math.sqrt(share * (1 - share)))

    def test_so_do_walks_and_environments(self):
        rng = np.random.default_rng(2)
        drawn = [draw_reward("beta", 30.0, (0.0, 54.0), 0.4, rng) for _ in range(5000)]
        shapes = [float(shape) for shape in beta_shapes(np.array(30 / 54), 0.4)]
        assert stats.kstest(np.array(drawn) / 54, stats.beta(*shapes).cdf).pvalue > FALSE_ALARM
        assert draw_reward("beta", 54.0, (0.0, 54.0), 0.4, rng) == 54.0
        assert {draw_reward("bernoulli", -100.0, (-500.0, 0.0), None, rng) for _ in range(100)} == {-500.0, 0.0}

    def test_simulated_rewards_have_their_means_and_stay_in_their_range(self):
        arms = [
            rb.Arm([[1.0]], [40.0], initial=0, reward_law="beta", reward_spread=0.3, reward_range=(0, 54)),
            rb.Arm([[1.0]], [-100.0], initial=0, reward_range=(-500, 0), reward_law="bernoulli"),
            rb.Arm([[1.0]], [7.0], initial=0, reward_law="fixed", reward_range=(0, 54)),
            rb.Arm([[1.0]], [54.0], initial=0, reward_law="beta", reward_spread=0.3, reward_range=(0, 54)),
        ]
        result = rb.simulate(rb.Problem(arms), "round-robin", 4000, runs=10, seed=5, trace=True, comparator=0.0)
        paid = [result.traces["round-robin"].rewards[:, arm::4].ravel() for arm in range(4)]
        for rewards, mean, deviation in ((paid[0], 40, 0.3 * math.sqrt(40 * 14)), (paid[1], -100, 200)):
            off = stats.norm.isf(FALSE_ALARM / 2) * deviation / math.sqrt(len(rewards))
            assert abs(rewards.mean() - mean) < off
            assert rewards.std() == pytest.approx(deviation, rel=0.06)
        assert ((paid[0] >= 0) & (paid[0] <= 54)).all()
        assert set(paid[1].tolist()) == {-500.0, 0.0}
        assert set(paid[2].tolist()) == {7.0}
        assert set(paid[3].tolist()) == {54.0}

    def test_rewards_at_the_ends_of_a_range_are_the_ends(self, tmp_path):
        # The lowest reward plus the width is more than the highest in doubles, and no agent would take it.
        assert 0.3 + (0.9 - 0.3) > 0.9
        problem = rb.Problem([rb.Arm([[1.0]], [0.5], initial=0, reward_range=(0.3, 0.9), reward_law="bernoulli")])
        result = rb.simulate(problem, "round-robin", 50, runs=1, trace=True)
        assert set(result.traces["round-robin"].rewards.ravel().tolist()) == {0.3, 0.9}
        result.save(tmp_path / "result.npz")
        rb.SimulationResult.load(tmp_path / "result.npz")

    def test_bounded_rewards_are_played_and_not_drawn(self):
        problem = rb.Problem([rb.Arm([[0.5, 0.5], [0.5, 0.5]], [9, 1], reward_law="bounded", reward_range=(0, 10))])
        found = oracles.exact(problem)
        assert found.gain == pytest.approx(5)
        assert rb.evaluate(problem, found.policy, simulate=True, slots=100).gain == pytest.approx(5)
        for use in (
            lambda: rb.simulate(problem, "ucb1", 10),
            lambda: rb.walk(problem, "ucb1", 10),
            lambda: rb.gym.RestlessBanditEnv(problem),
        ):
            with pytest.raises(rb.ProblemError, match="cannot be drawn; give it reward_law 'beta'"):
                use()


class TestArms:
    @settings(max_examples=30, deadline=None)
    @given(
        low=st.floats(-1e6, 1e6),
        width=st.floats(1.1, 1e6),
        distribution=st.sampled_from(["bounded", "beta", "bernoulli"]),
    )
    def test_toml_and_back(self, low, width, distribution):
        ends, spread = (low, low + width), 0.25 if distribution == "beta" else None
        arm = rb.Arm(
            [[0.5, 0.5], [0.1, 0.9]], ends[::-1], reward_law=distribution, reward_range=ends, reward_spread=spread
        )
        problem = rb.Problem([arm])
        again = rb.Problem.from_toml(problem.to_toml())
        assert again == problem
        assert again.content == problem.content
        assert eval(repr(arm), {"Arm": rb.Arm}) == arm

    def test_defaults_leave_no_trace(self):
        said = rb.Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], reward_law="bernoulli", reward_range=[0, 1], initial=1)
        left_out = rb.Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], initial=1)
        assert said == left_out
        assert "reward_range" not in rb.Problem([said]).to_toml()
        assert rb.Problem([said]).content == rb.Problem([left_out]).content
        assert (
            rb.Problem([rb.Arm([[1.0]], [1], reward_range=(0, 2), reward_law="bernoulli")]).content
            != rb.Problem([rb.Arm([[1.0]], [1])]).content
        )

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rewards": [2, 0]}, r"rewards\[0\] is 2; means must lie between 0 and 1, or give a reward_range such as"),
            ({"rewards": [9, 0], "reward_range": (0, 5)}, r"rewards\[0\] is 9; .* widen the reward_range"),
            ({"reward_range": (1, 0)}, r"reward_range is \(1, 0\); give the lowest and the highest"),
            ({"reward_range": 54}, "reward_range is 54; give the lowest and the highest"),
            ({"reward_range": (0, math.inf)}, "no end may be beyond"),
            ({"reward_range": (1e9, 1e9 + 1)}, "too narrow for numbers of its size"),
            ({"reward_law": "beta"}, "reward_spread is None; a beta distribution needs"),
            ({"reward_law": "beta", "reward_spread": 1.0}, "reward_spread is 1.0; a beta distribution needs"),
            ({"reward_spread": 0.5}, "only 'beta' has a spread"),
            ({"reward_law": "gauss"}, "unknown reward_law 'gauss'"),
        ],
    )
    def test_mistakes_are_told_in_a_sentence(self, options, message):
        with pytest.raises(rb.ProblemError, match=message):
            rb.Arm(**{"transitions": [[0.5, 0.5], [0.5, 0.5]], "rewards": [1, 0]} | options)


class TestAgents:
    def task(self, **options):
        about = {"reward_laws": ("bounded", "bernoulli"), "reward_ranges": ((-500, 0), (0, 54))} | options
        return rb.Task((2, 2), 1, initial=(None, None), names=("a", "b"), **about)

    def test_any_number_within_the_range_may_be_told(self, tmp_path):
        agent = rb.Agent("likelihood-ucb", self.task(), seed=1)
        rng = np.random.default_rng(0)
        for slot in range(60):
            # No reward of the first arm can exceed one of the second: it is looked at for the test's sake alone.
            assert agent.ask() == 1
            reward = {"arm": 0, "reward": -500 * rng.random()} if slot % 3 else {"reward": 54.0}
            agent.tell(state=int(rng.integers(2)), **reward)
        agent.save(tmp_path / "agent.json")
        again = rb.Agent.load(tmp_path / "agent.json")
        assert again.task == agent.task
        assert again.record.to_dict() == agent.record.to_dict()
        assert again.ask() == agent.ask()
        found = rb.estimate(agent.record, strict=False, reward_ranges=agent.task.reward_ranges)
        assert np.nanmax(found.arms[0].rewards) <= 0

    @pytest.mark.parametrize(
        ("arm", "reward", "message"),
        [
            (0, 1.0, "reward 1.0 is not between -500 and 0"),
            (0, math.nan, "is not between"),
            (1, 1.0, "reward 1.0 is neither 0 nor 54, and its rewards are bernoulli"),
            (1, "54", "reward '54' is not a number"),
        ],
    )
    def test_what_cannot_be_is_refused(self, arm, reward, message):
        with pytest.raises(rb.ProblemError, match=message):
            rb.Agent("ucb1", self.task()).tell(state=0, reward=reward, arm=arm)

    def test_files_of_agents_without_ranges_can_be_read(self, tmp_path):
        agent = rb.Agent("likelihood-ucb", PAPER.task(100), seed=1)
        agent.save(tmp_path / "agent.json")
        stored = json.loads((tmp_path / "agent.json").read_text())
        del stored["digest"], stored["task"]["reward_ranges"], stored["task"]["unit"]
        (tmp_path / "old.json").write_text(json.dumps(stored))
        assert rb.Agent.load(tmp_path / "old.json").ask() == agent.ask()

    def test_what_learners_are_told_lies_between_0_and_1(self):
        told = self.task().shared()
        assert told.unit == (-500.0, 54.0)
        assert told.reward_ranges == ((0.0, 500 / 554), (500 / 554, 1.0))
        assert PAPER.task().shared() == PAPER.task()
        same = self.task(reward_ranges=((0, 54), (0, 54))).shared()
        assert same.is_normalized

    def test_sums_of_rewards_are_the_same_normalized(self):
        task = self.task(reward_laws=("bounded", "bounded"))
        sums, seen = np.array([-750.0, 0.0, 10.0, 54.0]), np.array([3, 0, 2, 1])
        shares = task.normalized_sums(sums, seen)
        assert shares == pytest.approx([1.5, 0, 10 / 54, 1])
        assert task.sums(shares, seen) == pytest.approx(sums)
        assert task.values(np.array([0.0, 0.5, 0.5, 1.0])).tolist() == [-500, -250, 27, 54]

    def test_a_task_says_what_is_wrong_with_its_ranges(self):
        with pytest.raises(rb.ProblemError, match=r"task: reward_ranges\[1\] is \(2, 1\)"):
            self.task(reward_ranges=((0, 1), (2, 1)))
        with pytest.raises(rb.ProblemError, match="give an entry for each of 2 arms"):
            self.task(reward_ranges=((0, 1),))

    def test_a_record_of_rewards_that_cannot_be_is_refused(self):
        task = self.task()
        record = Record.of(task)
        record.observe([0], [1], [-500.0])
        stored = record.to_dict()
        Record.from_dict(task, stored)
        stored["rewards"][1] = -501.0
        with pytest.raises(rb.ProblemError, match="are not those of what was seen"):
            Record.from_dict(task, stored)

    def test_estimates_ask_for_the_ranges_they_need(self):
        record = Record((1,), (0,))
        record.observe([0], [0], [40.0])
        record.observe([0], [0], [10.0])
        with pytest.raises(rb.ProblemError, match="mean rewards are not between 0 and 1; give reward_ranges"):
            rb.estimate(record)
        found = rb.estimate(record, reward_ranges=[(0, 50)])
        assert found.arms[0].reward_errors == pytest.approx([25 / math.sqrt(2)])


class TestLogs:
    def trace(self, rewards, **options):
        n = len(rewards)
        states = np.random.default_rng(3).integers(2, size=n)
        return rb.data.trace(range(n), ["a"] * n, state=states, reward=np.where(states == 0, rewards, -500), **options)

    def test_a_problem_is_fitted_in_the_units_of_the_log(self):
        rng = np.random.default_rng(4)
        paid = -500 * rng.beta(2, 6, size=2000)
        trace = self.trace(paid, reward_range=(-500, 0))
        assert trace.reward_laws == ("bounded",)
        found = rb.data.fit(trace)
        (arm,) = found.problem.arms
        assert (arm.reward_law, arm.reward_range) == ("beta", (-500.0, 0.0))
        seen = trace.rewards[trace.states == 0]
        assert arm.rewards == pytest.approx([seen.mean(), -500])
        # Var = spread² · (mean − low)(high − mean), and a beta law of shapes 2 and 6 has the spread 1/√(1 + 8).
        assert arm.reward_spread == pytest.approx(1 / 3, rel=0.1)
        rb.simulate(found.problem, "ucb1", 50, runs=1)
        assert found.as_dict()["reward_range"] == (-500.0, 0.0)

    def test_a_replay_tells_rewards_as_they_were_logged(self):
        trace = self.trace(-500 * np.random.default_rng(5).random(300), reward_range=(-500, 0))
        found = rb.data.replay(trace, ["round-robin", "ucb1", "whittle", "likelihood-ucb"])
        assert [one.mean for one in found.learners] == pytest.approx([trace.rewards.sum()] * 4)


def test_the_limit_of_regret_takes_rewards_from_0_to_1_alone():
    with pytest.raises(rb.ProblemError, match=r"take problem.normalized\(\) where all arms have one range"):
        theory.regret_limit(image(PAPER, 0, 54))
    assert theory.regret_limit(image(PAPER, 0, 54).normalized()).slope == 0.0


def test_the_event_takes_laws_whose_means_it_knows():
    assert theory.event_probability(image(PAPER, 0, 54), 1000) == pytest.approx(theory.event_probability(PAPER, 1000))
    with pytest.raises(rb.ProblemError, match="the event takes bernoulli or fixed ones"):
        theory.event_probability(image(PAPER, 0, 54, reward_law="bounded"), 1000)
