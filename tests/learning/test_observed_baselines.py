"""Baselines for observed arms, done right: each test fails for a fault of a published program."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.learning.learners.observed_arms import (
    arms_of,
    dirichlet,
    mean_chains,
    posterior_parameters,
    whittle_policy,
)
from restless_bandits.learning.learners.q_learning import q_step, subsidy_step
from restless_bandits.learning.learners.ucwhittle import empirical_chains, extreme_chains, moved, optimistic_arms, radii
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.oracles.observed.index import sweep_arms
from restless_bandits.oracles.observed.relaxation import relax_observed
from restless_bandits.oracles.observed.rollout import ObservedWorld
from restless_bandits.simulation.observed_engine import learn_observed
from tests.simulation.observed_arms import drawn


def relaxed_value(arms, subsidy):
    """The mean over arms of the best gain at a subsidy, by value iteration over each arm."""
    (group,) = arms.groups
    value, gain = np.zeros_like(group.active_rewards), 0.0
    for _ in range(600):
        pulled = group.active_rewards + np.einsum("ksz,kz->ks", group.active, value)
        rested = group.passive_rewards + subsidy + np.einsum("ksz,kz->ks", group.passive, value)
        best = 0.5 * np.maximum(pulled, rested) + 0.5 * value
        gain = 2 * (best - value).mean(axis=1)
        value = best - best[:, :1]
    return float(np.mean(gain))


class TestCounts:
    def test_every_step_is_counted_with_the_action_of_its_own_arm(self):
        # A pull leads to state 1 and a rest to state 0: the counts tell the actions.
        chains = np.zeros((4, 2, 2, 2))
        chains[:, :, 0, 0] = chains[:, :, 1, 1] = 1.0
        problem = rb.Problem.from_arrays(chains, np.zeros((4, 2, 2)), plays=1)
        run = learn_observed(rb.learner("random"), ObservedWorld(problem), 200, np.array([200]), seed=0, run=0)
        for arm in range(4):
            counts = run.record.counts(arm)
            assert counts[:, 0, 1].sum() == counts[:, 1, 0].sum() == 0
            assert counts[:, 1].sum() == run.record.pulls[arm] > 20

    def test_the_action_of_another_arm_mixes_the_rows(self):
        record = ObservedRecord.of(drawn(2, plays=1).task())
        naive = np.zeros((2, 2, 2), dtype=int)  # arm, action, next state, with the action of the next arm
        state, rng = np.zeros(2, dtype=int), np.random.default_rng(0)
        for _ in range(100):
            record.observe(state)
            arm = int(rng.integers(2))
            record.act(np.array([arm]))
            after = np.array([int(i == arm) for i in range(2)])
            for i in range(2):
                naive[i, int((i + 1) % 2 == arm), after[i]] += 1
            state = after
        assert naive[0, 1, 0] > 0
        assert record.counts(0)[:, 1, 0].sum() == 0


class TestQLearning:
    def test_a_step_changes_its_own_cell_by_its_own_reward(self):
        steps = np.array([0, 1]), np.array([1, 2]), np.array([0, 1]), np.array([1.0, 0.25])
        table, visits = q_step(np.zeros((2, 4)), np.zeros((2, 4)), steps, 0.9)
        assert table.tolist() == [[0, 1.0, 0, 0], [0, 0, 0.25, 0]]
        assert visits.tolist() == [[0, 1, 0, 0], [0, 0, 1, 0]]

    def test_arms_of_a_kind_move_their_cell_to_the_mean_of_their_targets(self):
        steps = np.zeros(2, dtype=int), np.array([1, 1]), np.array([0, 0]), np.array([1.0, 0.0])
        table, _ = q_step(np.zeros((1, 4)), np.zeros((1, 4)), steps, 0.9)
        assert table.tolist() == [[0, 0.5, 0, 0]]

    def test_the_subsidy_is_paid_for_resting_alone(self):
        subsidy = np.array([[0.7, 0.7]])
        zero = np.zeros((1, 2, 4)), subsidy, np.zeros((1, 4))
        rest = subsidy_step(*zero, (np.array([0]), np.array([0]), np.array([0]), np.array([0.0])), 1, False)[0]
        pull = subsidy_step(*zero, (np.array([0]), np.array([1]), np.array([0]), np.array([0.0])), 1, False)[0]
        assert (rest[0, :, 0] > 0).all()
        assert (pull == 0).all()

    def test_relative_values_take_no_discount(self):
        # A constant reward of 1: the mean of the table is the gain, 1. With a discount of .9 as well it would be 1/1.1.
        tables, visits, rng = np.zeros((1, 1, 2)), np.zeros((1, 2)), np.random.default_rng(0)
        for slot in range(1, 400):
            steps = np.zeros(1, dtype=int), rng.integers(2, size=1), np.zeros(1, dtype=int), np.ones(1)
            tables, _, visits = subsidy_step(tables, np.zeros((1, 1)), visits, steps, slot, False)
        assert tables.mean() == pytest.approx(1.0, abs=0.01)

    def test_the_slow_step_waits_for_its_slot_and_finds_the_index(self):
        problem = rb.Problem.from_arrays(
            np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]]]), np.array([0.0, 1.0]), axes="saz", count=60
        )
        (group,) = problem.groups
        index = sweep_arms(group.active, group.passive, group.active_rewards, group.passive_rewards).indices(2)[0]
        chains = np.stack([group.passive[0], group.active[0]], axis=1).cumsum(axis=2)
        rng, state = np.random.default_rng(1), np.zeros(60, dtype=int)
        tables, subsidy = np.zeros((1, 2, 4)), np.zeros((1, 2))
        both = subsidy.copy(), tables.copy()
        for slot in range(1, 1200):
            row = 2 * state + rng.integers(2, size=60)
            after = (rng.random(60) >= chains[state, row % 2, 0]).astype(int)
            steps = np.zeros(60, dtype=int), row, after, state.astype(float)
            slow = slot % 4 == 0
            before = subsidy
            # Sixty arms are sixty times the visits: the step sizes of a single arm.
            tables, subsidy, _ = subsidy_step(tables, subsidy, np.full((1, 4), slot * 0.2), steps, slot, slow)
            assert slow or (subsidy == before).all()
            # The fault of a published program: the subsidy is taken off both actions, and cancels.
            naive, _, _ = subsidy_step(both[1], np.zeros((1, 2)), np.full((1, 4), slot * 0.2), steps, slot, False)
            both = both[0] + slow * 0.02 * (naive[:, [0, 1], [1, 3]] - naive[:, [0, 1], [0, 2]]), naive
            state = after
        assert np.abs(subsidy[0] - index).max() < 0.1
        assert np.abs(both[0][0] - index).max() > 0.5


class TestIndices:
    def test_indices_beyond_one_are_found(self):
        rng = np.random.default_rng(0)
        chains, rewards = rng.dirichlet(np.ones(4), (1500, 4, 2)), rng.random((1500, 4, 2))
        parts = chains[:, :, 1], chains[:, :, 0], rewards[:, :, 1], rewards[:, :, 0]
        index = sweep_arms(*parts).indices(4)
        beyond = np.argwhere(np.abs(index) > 1.0)
        assert len(beyond) > 30  # what a search in [−1, 1] returns as an end of its interval
        assert np.isfinite(index).all()
        for arm, state in beyond[:6]:
            # At its index a state is worth the same pulled and at rest, by an independent solve.
            one = [part[arm : arm + 1] for part in parts]
            subsidy = index[arm, state]
            values = np.zeros(4)
            for _ in range(1500):
                pulled = one[2][0] + one[0][0] @ values
                rested = one[3][0] + subsidy + one[1][0] @ values
                values = np.maximum(pulled, rested)
                values -= values[0]
            pulled, rested = one[2][0] + one[0][0] @ values, one[3][0] + subsidy + one[1][0] @ values
            assert pulled[state] == pytest.approx(rested[state], abs=1e-6)

    def test_the_pool_of_the_ucwhittle_paper(self):
        legacy = np.random.RandomState(42)
        p = legacy.random_sample((100, 2, 2))
        for arm in range(100):
            for state in range(2):
                if p[arm, state, 1] < p[arm, state, 0]:
                    p[arm, state, 1] = p[arm, state, 0] + legacy.rand() * (1 - p[arm, state, 0])
        for arm in range(100):
            for action in range(2):
                if p[arm, 1, action] < p[arm, 0, action]:
                    p[arm, 1, action] = p[arm, 0, action] + legacy.rand() * (1 - p[arm, 0, action])
        problem = rb.Problem.from_arrays(p, np.array([0.0, 1.0]), axes="nsa", plays=10)
        (group,) = problem.groups
        parts = group.active, group.passive, group.active_rewards, group.passive_rewards
        found = sweep_arms(*parts, discount=0.9).indices(2)[:5]
        expected = [
            [0.764504, 0.234339],
            [0.78218, 0.67498],
            [0.136597, 0.04792],
            [0.088931, -0.013632],
            [0.300244, 0.477394],
        ]
        assert found == pytest.approx(np.array(expected), abs=1e-6)


class TestConfidenceBounds:
    def test_rows_of_highest_value_lie_in_their_balls_and_beat_all_others(self):
        rng = np.random.default_rng(4)
        chains, radius = rng.dirichlet(np.ones(4), (3, 4, 2)), rng.random((3, 4, 2))
        values = rng.random((3, 4))
        best = moved(chains, radius, values)
        assert best.sum(axis=-1) == pytest.approx(1.0)
        assert best.min() >= 0
        assert (np.abs(best - chains).sum(axis=-1) <= radius + 1e-12).all()
        worth = (best * values[:, None, None]).sum(axis=-1)
        for _ in range(300):
            other = rng.dirichlet(np.ones(4), (3, 4, 2))
            step = radius / np.maximum(np.abs(other - chains).sum(axis=-1), radius)
            inside = chains + step[..., None] * (other - chains)
            assert ((inside * values[:, None, None]).sum(axis=-1) <= worth + 1e-12).all()

    def test_the_optimistic_chains_have_the_highest_gain_in_the_balls(self):
        problem = drawn(6, 3, plays=2)
        task = rb.learner("ucwhittle:rewards=known").task(problem, 500)
        run = learn_observed(rb.learner("random"), ObservedWorld(problem), 60, np.array([60]), seed=0, run=0)
        means = [empirical_chains(run.record.group_counts(kinds, n)) for kinds, n in task.kind_groups]
        radius = [0.3 * one for one in radii(run.record, task)]
        subsidy = relax_observed(arms_of(task, means, task.rewards)).subsidy
        optimistic = relaxed_value(optimistic_arms(task, means, radius, task.rewards, subsidy), subsidy)
        # Bounds that are compared with themselves leave the empirical chains.
        assert optimistic > relaxed_value(arms_of(task, means, task.rewards), subsidy) + 0.05
        rng = np.random.default_rng(2)
        for _ in range(15):
            other = rng.dirichlet(np.full(3, 0.3), means[0].shape[:3])
            step = radius[0] / np.maximum(np.abs(other - means[0]).sum(axis=-1), radius[0])
            inside = means[0] + step[..., None] * (other - means[0])
            assert relaxed_value(arms_of(task, [inside], task.rewards), subsidy) <= optimistic + 1e-6

    def test_extreme_chains_move_pulls_up_and_rests_down(self):
        means, radius = [np.full((1, 2, 2, 2), 0.5)], [np.full((1, 2, 2), 0.4)]
        (found,) = extreme_chains(means, radius, [np.array([[0.0, 1.0]])])
        assert found[0, :, 1, 1] == pytest.approx(0.7)
        assert found[0, :, 0, 1] == pytest.approx(0.3)

    def test_the_radius_is_the_published_one_and_shrinks(self):
        problem = drawn(3, plays=1)
        task = problem.task()
        record = ObservedRecord.of(task)
        before = radii(record, task)[0]
        assert before == pytest.approx(np.sqrt(4 * np.log(4 * 2 * 3 * 1)))
        run = learn_observed(rb.learner("random"), ObservedWorld(problem), 3000, np.array([3000]), seed=0, run=0)
        after = radii(run.record, task)[0]
        visits = run.record.visits.reshape(3, 2, 2)
        assert after == pytest.approx(np.sqrt(4 * np.log(4 * 2 * 3 * 3001) / visits))


class TestPosterior:
    def test_draws_have_the_mean_of_the_posterior_and_narrow(self):
        parameters = np.array([[3.0, 1.0], [1.0, 1.0]])
        for concentration in (1.0, 4.0):
            rng = np.random.default_rng(0)
            drawn_rows = np.array([dirichlet(concentration * parameters, rng) for _ in range(20_000)])
            assert drawn_rows.mean(axis=0) == pytest.approx(mean_chains(parameters), abs=0.01)
            mean, total = mean_chains(parameters)[:, 0], concentration * parameters.sum(axis=1)
            assert drawn_rows[:, :, 0].var(axis=0) == pytest.approx(mean * (1 - mean) / (total + 1), rel=0.05)

    def test_equal_indices_are_taken_in_a_random_order(self):
        task = rb.learner("tsde:rewards=known").task(drawn(6, plays=1), 10)
        arms = arms_of(
            task, [mean_chains(one) for one in posterior_parameters(ObservedRecord.of(task), task)], task.rewards * 0
        )
        first = {int(whittle_policy(arms, np.random.default_rng(seed)).order[0]) // 2 for seed in range(60)}
        assert first == set(range(6))
