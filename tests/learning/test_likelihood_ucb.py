"""Likelihood-UCB, its bounds, and the planner behind it."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits.learning.estimation import fit_from_last
from restless_bandits.learning.learners import LikelihoodUCB, learner
from restless_bandits.learning.learners.confidence_bounds import (
    binary_divergence,
    kl_upper,
    monotone_fit,
    monotone_upper_bounds,
)
from restless_bandits.learning.learners.planning_arms import lasting_policy, policy_on
from restless_bandits.model.record import Record
from restless_bandits.oracles import planning
from restless_bandits.oracles.index_kernels import birth_death_limits
from restless_bandits.oracles.whittle import flat_arms
from restless_bandits.policies import CountDoubled, IndexPolicy, JointPolicy, SingleArm
from restless_bandits.simulation.engine import World, play_run


def counts_and_sums():
    pair = st.integers(0, 30).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
    return st.lists(pair, min_size=1, max_size=5)


class TestBounds:
    @given(st.floats(0, 1), st.integers(1, 1000), st.floats(0.01, 20))
    def test_kl_upper_is_where_the_divergence_is_the_level(self, mean, count, level):
        bound = kl_upper(mean, level / count)
        assert mean - 1e-12 <= bound <= 1
        if 0 < mean < 0.99 and bound < 1 - 1e-9:
            assert count * binary_divergence(mean, bound) == pytest.approx(level, rel=1e-5, abs=1e-6)

    def test_coverage(self):
        # A KL bound at level ln(2e6) fails with chance at most 5e-7 for one count; 2000 tries of each of these.
        rng = np.random.default_rng(0)
        for p, n in itertools.product((0.05, 0.5, 0.9), (5, 50, 500)):
            shares = rng.binomial(n, p, size=2000) / n
            assert all(kl_upper(share, np.log(2e6) / n) >= p for share in shares)

    @given(counts_and_sums())
    def test_monotone_fit_is_the_best_there_is(self, pairs):
        counts = np.array([n for n, _ in pairs], dtype=np.int64)
        sums = np.array([float(s) for _, s in pairs])
        fitted = monotone_fit(sums, counts)
        assert (np.diff(fitted) <= 1e-12).all()

        def cost(means):
            return sum(
                n * binary_divergence(s / n, float(np.clip(m, 1e-12, 1 - 1e-12)))
                for n, s, m in zip(counts, sums, means, strict=True)
                if n
            )

        rng = np.random.default_rng(1)
        for _ in range(30):
            other = -np.sort(-np.clip(fitted + 0.1 * rng.standard_normal(len(fitted)), 0, 1))
            assert cost(other) >= cost(fitted) - 1e-6

    @given(counts_and_sums(), st.floats(0.1, 10))
    def test_monotone_bounds(self, pairs, level):
        counts = np.array([n for n, _ in pairs], dtype=np.int64)
        sums = np.array([float(s) for _, s in pairs])
        bounds = monotone_upper_bounds(sums, counts, level)
        assert (np.diff(bounds) <= 1e-12).all()
        assert (bounds >= monotone_fit(sums, counts) - 1e-9)[counts > 0].all()
        means = sums / np.maximum(counts, 1)
        if (counts > 0).all() and (np.diff(means) <= 0).all():
            plain = [kl_upper(m, level / n) for m, n in zip(means, counts, strict=True)]
            assert np.allclose(bounds, np.minimum.accumulate(plain))

    def test_an_unlucky_best_state_is_not_given_up(self):
        # Twenty draws of the better state with one success, twenty of the worse with eight: in order they cannot be,
        # and the better one may well pay as much as the worse has shown.
        sums, counts = np.array([1.0, 8.0]), np.array([20, 20])
        assert kl_upper(0.05, 6.9 / 20) < 0.41
        assert monotone_upper_bounds(sums, counts, 6.9)[0] > 0.45


class TestPlanner:
    @pytest.mark.parametrize("name", ["paper-1", "paper-2", "lms-urban-s", "rf-2"])
    @pytest.mark.parametrize("slots", [10, 10_000, 10**7])
    def test_loses_little(self, name, slots):
        problem = rb.Problem.builtin(name)
        policy = planning.auto_policy(problem, slots)
        assert isinstance(policy, JointPolicy)
        optimum = rb.oracles.exact(problem).gain
        assert rb.evaluate(problem, policy).gain >= optimum - planning.precision_at(slots)

    @given(st.integers(0, 10**6))
    def test_random_problems(self, seed):
        problem = rb.Problem.random(n_arms=2, n_states=3, seed=seed)
        policy = planning.joint_plan(problem, 1e-4)
        found = rb.evaluate(problem, policy)
        assert found.gain is None or found.gain >= rb.oracles.exact(problem).lower - 2e-3

    def test_large_tables_fall_back_on_whittle(self):
        problem = rb.Problem.builtin("lms-urban-l")
        quick = planning.auto_policy(problem, 10**6)
        assert isinstance(quick, IndexPolicy)
        full = rb.oracles.policy("whittle", problem)
        for mine, theirs in zip(quick.tables, full.tables, strict=True):
            width = min(mine.shape[1], theirs.shape[1])
            assert np.allclose(mine[:2, :width], theirs[:2, :width], atol=1e-9)

    def test_a_plan_that_lasts_may_take_a_rough_table(self):
        problem = rb.Problem.builtin("lms-urban-l")
        assert isinstance(planning.auto_policy(problem, 10**5, lasting=100), IndexPolicy)
        rough = planning.auto_policy(problem, 10**5, lasting=10**4)
        assert isinstance(rough, JointPolicy)
        ours, theirs = planning.rollouts(problem, rough, planning.quick_whittle(problem), 8_000_000)
        # A difference of 1.4e-3 a slot, and 3e-4 the standard error of it.
        assert ours.mean() > theirs.mean()

    def test_a_plan_that_lasts_may_take_a_larger_table(self):
        problem = rb.Problem.builtin("rf-3")
        assert isinstance(planning.auto_policy(problem, 10**5), IndexPolicy)
        table = planning.auto_policy(problem, 10**5, lasting=10**4)
        assert isinstance(table, JointPolicy)
        # Whittle's index loses 2e-5 a slot here.
        assert rb.evaluate(problem, table).gain > rb.oracles.exact(problem).lower - 1e-8
        assert planning.plan_without_table(flat_arms(problem.arms), 1, 10**5, 0) is not None
        assert planning.plan_without_table(flat_arms(problem.arms), 1, 10**5, 10**4) is None

    def test_an_index_is_kept_unless_the_plan_lasts(self):
        problem = rb.Problem.builtin("lms-urban-l")
        agent = rb.Agent("round-robin", problem.task(), seed=0)
        agent.skip(200_000)
        arms, about = flat_arms(problem.arms), (agent.record, problem.task())
        index = policy_on("auto", arms, *about)
        assert isinstance(index, IndexPolicy)
        assert lasting_policy(index, "auto", arms, *about, 100) is index
        assert lasting_policy(index, "whittle", arms, *about, 2_000) is index
        assert isinstance(lasting_policy(index, "auto", arms, *about, 2_000), JointPolicy)

    def test_a_rough_table_that_falls_behind_is_dropped(self, monkeypatch):
        # Tables this short take an arm that was seen bad for bad ever after, which costs 4.5e-3 a slot here.
        monkeypatch.setattr(planning, "ROUGH_TV_ERRORS", (0.2,))
        problem = rb.Problem.builtin("table-5")
        assert isinstance(planning.rough_policy(problem, 10**5), IndexPolicy)

    def test_several_plays_and_chains_that_never_settle_have_no_rough_table(self):
        arms = rb.Problem.builtin("lms-urban-l").arms
        assert planning.rough_policy(rb.Problem(arms, plays=2), 10**6) is None
        stuck = rb.Arm(transitions=[[1, 0], [0, 1]], rewards=[1, 0])
        assert planning.rough_policy(rb.Problem([*arms, stuck]), 10**6) is None

    @pytest.mark.parametrize("name", ["paper-2", "lms-suburban-l"])
    def test_rollouts_earn_what_policies_do(self, name):
        problem = rb.Problem.builtin(name)
        policies = planning.joint_plan(problem, 1e-3), planning.quick_whittle(problem)
        for policy, means in zip(policies, planning.rollouts(problem, *policies, 2_000_000), strict=True):
            error = means.std(ddof=1) / np.sqrt(len(means))
            # Student's t with 31 degrees: 6 standard errors, false alarms below 2e-6.
            assert abs(means.mean() - rb.evaluate(problem, policy).gain) < 6 * error

    def test_many_states_are_near_the_full_table(self):
        problem = rb.Problem.builtin("queue-5")
        quick, full = planning.quick_whittle(problem), rb.oracles.policy("whittle", problem)
        for mine, theirs in zip(quick.tables, full.tables, strict=True):
            width = min(mine.shape[1], theirs.shape[1])
            assert np.abs(mine[:5, :width] - theirs[:5, :width]).max() < 5e-3

    @pytest.mark.parametrize(("n_arms", "n_states", "plays"), [(6, 2, 1), (6, 3, 2), (12, 2, 1), (12, 4, 3)])
    def test_from_arrays_as_from_a_problem(self, n_arms, n_states, plays):
        problem = rb.Problem.random(n_arms=n_arms, n_states=n_states, seed=2, plays=plays)
        arms = flat_arms(problem.arms)
        assert np.allclose(birth_death_limits(arms.n_states, arms.chains), arms.limiting_distributions, atol=1e-12)
        for slots, lasting in ((10, 0), (10**5, 0), (10**7, 10**6)):
            policy = planning.auto_policy(problem, slots, lasting)
            quick = planning.plan_without_table(arms, plays, slots, lasting)
            if quick is None:
                assert n_arms <= planning.MOST_TABLE_ARMS
            else:
                assert quick == policy

    def test_arrays_are_for_tables_that_do_not_fit(self):
        for name, slots, fits in (("paper-2", 10, True), ("lms-urban-l", 10, False), ("queue-5", 10**6, False)):
            arms = flat_arms(rb.Problem.builtin(name).arms)
            assert (planning.plan_without_table(arms, 1, slots, 0) is None) == fits

    def test_a_chain_that_does_not_forget_takes_the_long_way(self):
        arms = [*rb.Problem.random(n_arms=11, n_states=2, seed=2).arms, rb.Arm([[0, 1], [1, 0]], [1, 0])]
        policy = planning.auto_policy(rb.Problem(arms), 1000)
        assert policy == rb.oracles.policy("whittle", rb.Problem(arms))

    def test_tables_grow_with_time(self):
        assert planning.most_beliefs_at(100) == planning.SMALL_TABLE
        assert planning.most_beliefs_at(10**6) == 200_000
        assert planning.most_beliefs_at(100, lasting=2_000) == 20_000
        assert planning.most_beliefs_at(100, lasting=10**9) == planning.LARGEST_TABLE
        assert planning.precision_at(1) == planning.COARSEST
        assert planning.precision_at(10**9) == planning.FINEST

    def test_auto_is_an_oracle(self):
        small, large = rb.Problem.builtin("paper-2"), rb.Problem.builtin("queue-5")
        assert rb.oracles.auto(small).certified
        assert isinstance(rb.oracles.policy("auto", large), IndexPolicy)
        assert isinstance(rb.oracles.policy("exact", small, slots=1000), JointPolicy)


class TestLearner:
    def test_options(self):
        assert learner("likelihood-ucb").spec == "likelihood-ucb"
        assert learner("likelihood-ucb:explore=2,oracle=whittle") == LikelihoodUCB(explore=2, oracle="whittle")
        for bad in ("explore=0", "explore=-1", "oracle=wittle", "rewards=given", "explore=yes", "alpha=1"):
            with pytest.raises(rb.ProblemError):
                learner(f"likelihood-ucb:{bad}")

    def test_optimistic_chain_dominates_the_mode(self):
        record = play_run(
            rb.learner("round-robin"), World(rb.Problem.builtin("queue-5")), 3000, np.array([3000]), seed=0, run=0
        ).record
        fits = fit_from_last(record)
        widths = (np.zeros(4), np.full(4, 2.0))
        for plain, better in zip(*(fits.chains(width).reshape(4, 5, 5) for width in widths), strict=True):
            assert np.allclose(better.sum(axis=1), 1)
            assert (better >= 0).all()
            assert (np.cumsum(better, axis=1) >= np.cumsum(plain, axis=1) - 1e-12).all()

    def test_follows_the_mode_where_that_shows_everything(self):
        # Optimal play of paper-1 looks at both arms from every side: once that is known, nothing is left to explore.
        problem = rb.Problem.builtin("paper-1")
        run = play_run(rb.learner("likelihood-ucb"), World(problem), 50_000, np.array([50_000]), seed=0, run=0)
        lengths = np.array(run.record.plan_lengths)
        late = np.cumsum(lengths) - lengths > 10_000
        assert lengths[late].sum() == 50_000 - (lengths.sum() - lengths[late].sum())
        starts = (np.cumsum(lengths) - lengths)[late][:-1]
        assert (lengths[late][:-1] == np.ceil(0.1 * (starts + 1))).all()

    def test_goes_on_exploring_what_the_mode_leaves_alone(self):
        # Optimal play of lms-suburban-l never pulls the second arm.
        problem = rb.Problem.builtin("lms-suburban-l")
        pulls = {
            horizon: play_run(
                rb.learner("likelihood-ucb"), World(problem), horizon, np.array([horizon]), seed=0, run=0
            ).record.pulls[1]
            for horizon in (2_000, 20_000)
        }
        assert 100 < pulls[2_000] < pulls[20_000] < 4_000

    def test_what_is_not_followed_tells_nothing(self):
        # The third arm, in use in two thirds of all slots by the best player, had a first impression of its better
        # state that was worse than that of its worse one. The mode would have looked at it, but was not followed.
        problem = rb.Problem.builtin("lms-suburban-l")
        run = play_run(rb.learner("likelihood-ucb"), World(problem), 10_000, np.array([10_000]), seed=0, run=50)
        assert run.record.pulls[2] > 2_000

    def test_an_oracle_whose_policy_cannot_be_followed_ahead(self, monkeypatch):
        monkeypatch.setattr("restless_bandits.learning.learners.likelihood_ucb.policy_on", lambda *_: SingleArm(0))
        task = rb.Problem.builtin("paper-1").task()
        record = Record.of(task)
        record.skip(1000)
        with pytest.raises(rb.ProblemError, match="cannot simulate ahead with an oracle that plays a SingleArm"):
            rb.learner("likelihood-ucb").plan(record.frozen(), task, np.random.default_rng(0))

    def test_far_below_restless_ucb(self):
        # The means are near 13 and 1370 on paper-2 at 1e5, their standard errors at most 6 and 30: 25 times is asked.
        # A false alarm is seven standard errors above the mean; a mean of 80 is found with probability .9999.
        result = rb.simulate(rb.Problem.builtin("paper-2"), ["likelihood-ucb", "restless-ucb"], 100_000, runs=4)
        mine, theirs = result.regret("gap")[:, :, -1]
        assert mine.mean() < theirs.mean() / 25
        assert mine.max() < theirs.mean() / 5

    def test_many_arms_do_not_end_plans_more_often(self):
        # A plan that explores ends by a doubled count of a state whatever the wait: every other wait of every other arm
        # would be one more count to double.
        ends = {}
        for n_arms in (3, 4, 30):
            task = rb.Problem.random(n_arms=n_arms, n_states=2, seed=1).task()
            plan = rb.learner("likelihood-ucb").plan(Record.of(task).frozen(), task, np.random.default_rng(0))
            ends[n_arms] = next(rule.cap for rule in plan.until.rules if isinstance(rule, CountDoubled))
        assert ends == {3: None, 4: 1, 30: 1}

    def test_known_rewards_and_fixed_ones(self):
        arms = [
            rb.Arm([[0.9, 0.1], [0.2, 0.8]], [0.9, 0.1], reward_law="fixed"),
            rb.Arm([[0.5, 0.5], [0.5, 0.5]], [0.6, 0.3]),
        ]
        for spec in ("likelihood-ucb", "likelihood-ucb:rewards=known", "posterior:rewards=known"):
            # Round-robin loses 130 and more, these at most 4.
            found = rb.simulate(rb.Problem(arms), [spec, "round-robin"], 1000, runs=2).regret("gap")[:, :, -1]
            assert found[0].max() < found[1].min() / 10


VIOLATORS = {
    1: [rb.Arm([[0.7, 0.3], [0.2, 0.8]], [0.2, 0.9]), rb.Arm([[0.5, 0.5], [0.4, 0.6]], [0.8, 0.1])],
    2: [
        rb.Arm([[0.6, 0.2, 0.2], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]], [1, 0.5, 0]),
        rb.Arm([[0.5, 0.5], [0.4, 0.6]], [0.8, 0.1]),
    ],
    3: [rb.Arm([[0.1, 0.9], [0.8, 0.2]], [0.9, 0.1]), rb.Arm([[0.5, 0.5], [0.4, 0.6]], [0.8, 0.1])],
}


@pytest.mark.parametrize("spec", ["likelihood-ucb", "restless-ucb", "posterior", "likelihood-dominance"])
@pytest.mark.parametrize("number", VIOLATORS)
def test_violations_are_named_and_do_no_harm(spec, number):
    problem = rb.Problem(VIOLATORS[number])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = play_run(rb.learner(spec), World(problem), 20_000, np.array([20_000]), seed=0, run=0)
    assert run.record.slots == 20_000
    told = [str(one.message) for one in caught]
    if spec == "restless-ucb":
        # Three plans in all: the violation is there to be seen when the second arm is explored or the last plan made.
        assert run.record.plans == 3
    assert any(f"'arm 1' violates Assumption {number}" in text for text in told)
    assert len(told) == len(set(told))


def test_lawful_arms_are_not_accused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # On five arms of five states a plan costs ten times as much.
        for name, slots in (("paper-1", 5000), ("lms-heavy-tree-s", 5000), ("queue-5", 500)):
            for spec in ("likelihood-ucb", "posterior"):
                run = play_run(
                    rb.learner(spec), World(rb.Problem.builtin(name)), slots, np.array([slots]), seed=1, run=0
                )
                # What was seen is looked at when a plan is made that is not the first.
                assert run.record.plans > 1
                assert run.record.notes["violations"] == []


class TestAnytime:
    def test_needs_no_horizon(self):
        problem = rb.Problem.builtin("paper-1")

        def pulled(spec, horizon):
            agent, arms = rb.Agent(spec, problem.task(horizon), seed=0), []
            for slot in range(1500):
                arms.append(agent.ask())
                agent.tell(slot // 3 % 2, 0.0)
            return arms

        without = pulled("restless-ucb", None)
        # The guess is 1000 slots: fewer observations suffice than a horizon of a million asks for, of both arms.
        explored = [without.index(1), 1500 - without[::-1].index(1)]
        assert 0 < explored[0] < explored[1] < 1500
        assert pulled("restless-ucb:anytime=yes", 10**6) == without
        assert 1 not in pulled("restless-ucb", 10**6)

    def test_guesses_double(self):
        task, record = rb.Problem.builtin("paper-1").task(), Record((2, 2), (1, 1))
        played = rb.RestlessUCB()
        for slots, guess in ((0, 1000), (999, 1000), (1000, 2000), (70_000, 128_000)):
            record.slots = slots
            assert played.horizon(record, task) == guess

    def test_the_horizon_is_not_looked_at(self):
        problem = rb.Problem.builtin("paper-2")
        long, short = (
            play_run(rb.learner("restless-ucb:anytime=yes"), World(problem), t, np.array([3000]), seed=0, run=0)
            for t in (50_000, 3000)
        )
        assert np.array_equal(long.totals.at, short.totals.at)

    def test_what_it_costs(self):
        # Known to take about 1.2 to 1.6 times the regret; 40 runs leave an error below 0.05.
        result = rb.simulate(
            rb.Problem.builtin("paper-1"), ["restless-ucb", "restless-ucb:anytime=yes"], 100_000, runs=40
        )
        known, guessed = result.regret("gap")[:, :, -1].mean(axis=1)
        assert 0.9 < guessed / known < 2.0
