"""Simulated runs on observed arms against chains over joint states and slow NumPy steps.

Statistical tests use fixed seeds; each would reject a correct simulator for one seed in a thousand.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from restless_bandits import Problem
from restless_bandits.oracles.observed import rollout_kernels as kernels
from restless_bandits.oracles.observed.planners import observed_policy, observed_relaxation
from restless_bandits.oracles.observed.rollout import Budget, ObservedWorld, mean_rewards, play_observed
from restless_bandits.policies.observed import PriorityPolicy, RandomizedPolicy
from tests.oracles.test_observed_small import alike, drawn, gain_of

FALSE_ALARM = 1e-3


def within(runs, expected):
    """Whether the mean of independent runs agrees with a number, by a t-test."""
    reach = stats.t.ppf(1 - FALSE_ALARM / 2, len(runs) - 1) * runs.std(ddof=1) / np.sqrt(len(runs))
    return abs(runs.mean() - expected) < reach


def rewards_of(problem, policy, slots, runs, *, by_counts=False, column=1):
    """The rewards of the last slot of each run, realised (column 0) or as means (column 1)."""
    world = ObservedWorld(problem)
    world.by_counts = by_counts
    marks = np.array([slots - 1, slots])
    found = [play_observed(policy, world, marks, seed=5, run=run).totals.at[:, column] for run in range(runs)]
    return np.diff(np.array(found), axis=1)[:, 0]


class TestChoice:
    """Chains that move in one way only: a run is then the same as plain NumPy, slot for slot."""

    @pytest.mark.parametrize("plays", [1, 4, 9])
    @pytest.mark.parametrize(("n", "floor"), [(5, -np.inf), (5, 0.3), (2, 0.3)])
    def test_by_rank(self, plays, n, floor):
        rng, n_arms = np.random.default_rng(3), 12
        steps = rng.integers(0, n, (n_arms, n, 2))
        chains, rewards = np.eye(n)[steps], rng.random((n_arms, n, 2))
        problem = Problem.from_arrays(chains, rewards, plays=plays, observed="all", initial=rng.integers(0, n, n_arms))
        score = rng.integers(0, 6, n_arms * n) / 5.0
        policy = PriorityPolicy(ObservedWorld(problem).layout, score, plays, floor)
        marks = np.arange(1, 31)
        run = play_observed(policy, ObservedWorld(problem), marks, seed=1, run=0)
        state = steps[np.arange(n_arms), [arm.initial_distribution.argmax() for arm in problem.arms], 0]
        total, pulls = 0.0, np.zeros(n_arms, dtype=int)
        for slot in range(30):
            place = np.arange(n_arms) * n + state
            order = np.lexsort((np.arange(n_arms), place, -score[place]))
            allowed = [i for i in order if score[place[i]] > floor]
            pulled = np.isin(np.arange(n_arms), allowed[:plays]).astype(int)
            assert policy.arms(state).tolist() == np.flatnonzero(pulled).tolist()
            total += rewards[np.arange(n_arms), state, pulled].sum()
            pulls += pulled
            assert run.totals.at[slot, 1] == pytest.approx(total, abs=1e-9)
            state = steps[np.arange(n_arms), state, pulled]
        assert run.record.pulls.tolist() == pulls.tolist()

    @pytest.mark.parametrize("levels", [7, 10_000])
    @pytest.mark.parametrize("plays", [1, 300, 499])
    def test_two_states_have_a_kernel_of_their_own(self, plays, levels):
        rng, n_arms = np.random.default_rng(plays), 500
        chains, rewards = rng.dirichlet([1, 1], (n_arms, 2, 2)), rng.random((n_arms, 2, 2))
        world = ObservedWorld(Problem.from_arrays(chains, rewards, plays=plays, observed="all"))
        ranks = rng.integers(0, levels, 2 * n_arms).astype(np.int32)
        found = []
        for play in (kernels.play_by_rank, kernels.play_two_states_by_rank):
            words, state = np.arange(1, 5, dtype=np.uint64), np.zeros(n_arms, dtype=np.uint16)
            sums, pulls = np.zeros(2), np.zeros(n_arms, dtype=np.int32)
            shift = 6
            coarse, fine = np.zeros((levels >> shift) + 1, dtype=np.int64), np.zeros(1 << shift, dtype=np.int64)
            search = kernels.RankSearch(np.zeros(n_arms, dtype=np.int32), coarse, fine, np.zeros(91, np.int64), shift)
            arms = (world.arms, world.draws) if play is kernels.play_by_rank else (world.arms.cumulative, world.reward)
            play(words, *arms, state, ranks, 0, plays, search, 50, sums, pulls)
            assert pulls.sum() == 50 * plays
            found.append((words, state, sums, pulls))
        assert all((one == other).all() for one, other in zip(*found, strict=True))

    @pytest.mark.parametrize("at_most", [False, True])
    def test_by_wish(self, at_most):
        """Sure wishes: the first arms win, and the last arms without a wish fill the budget."""
        chains = np.stack([np.eye(2)] * 2, axis=1)[None].repeat(6, axis=0)
        rewards = np.zeros((6, 2, 2))
        rewards[:, :, 1] = 2.0 ** -np.arange(1, 7)[:, None]
        states = np.array([1, 0, 1, 0, 0, 0])
        problem = Problem.from_arrays(chains, rewards, plays=4, observed="all", at_most=at_most, initial=states)
        policy = RandomizedPolicy(ObservedWorld(problem).layout, np.tile([0.0, 1.0], 6), 4, at_most)
        expected = [0, 2] if at_most else [0, 2, 4, 5]
        assert policy.arms(states).tolist() == expected
        assert rewards_of(problem, policy, 3, 1)[0] == pytest.approx(rewards[expected, 0, 1].sum(), abs=1e-12)
        many = RandomizedPolicy(policy.layout, np.ones(12), 4, at_most)
        assert many.arms(states).tolist() == [0, 1, 2, 3]
        assert rewards_of(problem, many, 3, 1)[0] == pytest.approx(rewards[:4, 0, 1].sum(), abs=1e-12)


class TestGains:
    @pytest.mark.parametrize("problem", [drawn(1, 4, 3, 2, 0.5), alike(2, 4, 3, 1)])
    @pytest.mark.parametrize("name", ["whittle", "exact"])
    def test_long_runs_earn_the_gain_of_the_joint_chain(self, problem, name):
        policy = observed_policy(problem, name)
        runs = mean_rewards(problem, policy, Budget(24, 1500)).mean(axis=1)
        assert within(runs, gain_of(problem, policy))

    def test_wishes_earn_the_gain_of_the_joint_chain(self):
        problem = drawn(4, 3, 2, 1)
        policy = observed_policy(problem, "id")
        wish = policy.wish.reshape(3, 2)
        arms, states = list(problem.arms), list(itertools.product(range(2), repeat=3))
        chain, reward = np.zeros((8, 8)), np.zeros(8)
        for number, state in enumerate(states):
            for wishes in itertools.product(range(2), repeat=3):
                sure = np.array([wish[i, s] for i, s in enumerate(state)])
                likely = np.where(wishes, sure, 1 - sure).prod()
                pulled = wishes.index(1) if any(wishes) else 2
                row = np.ones(1)
                for i, arm in enumerate(arms):
                    row = np.kron(row, (arm.active_chain if i == pulled else arm.chain)[state[i]])
                    reward[number] += likely * arm.mean_rewards[state[i], int(i == pulled)]
                chain[number] += likely * row
        system = np.eye(8) - chain
        system[:, 0] = 1
        runs = mean_rewards(problem, policy, Budget(24, 1500)).mean(axis=1)
        assert within(runs, np.linalg.solve(system, reward)[0])

    @pytest.mark.parametrize("law", ["bernoulli", "beta"])
    def test_drawn_rewards_have_their_means(self, law):
        options = {"reward_law": law} if law == "bernoulli" else {"reward_law": law, "reward_spread": 0.2}
        problem = Problem(
            (replace(Problem.builtin("maintenance-observed").kinds[0], count=6, **options),), plays=2, observed="all"
        )
        policy = observed_policy(problem, "whittle")
        for by_counts in (False, True) if law == "bernoulli" else (False,):
            paid, means = (rewards_of(problem, policy, 4, 300, by_counts=by_counts, column=c) for c in (0, 1))
            assert within(paid - means, 0.0)
            assert paid.std() > means.std()


class TestCounts:
    def test_counts_and_arms_agree_in_distribution(self):
        problem = alike(6, 30, 3, 11)
        policy = observed_policy(problem, "whittle")
        for slots in (2, 6):
            counts, arms = (rewards_of(problem, policy, slots, 400, by_counts=way) for way in (True, False))
            assert stats.ks_2samp(counts, arms).pvalue > FALSE_ALARM

    def test_counts_agree_with_slow_steps(self):
        """The mean reward of slot 4, against single arms that NumPy steps."""
        problem = alike(7, 12, 3, 5)
        policy = observed_policy(problem, "lp-index")
        counts = rewards_of(problem, policy, 4, 400, by_counts=True)
        arm, rng = problem.arms[0], np.random.default_rng(9)
        slow = []
        for _ in range(400):
            states = rng.choice(3, size=12, p=arm.initial_distribution @ arm.chain)
            for _ in range(4):
                pulled = np.isin(np.arange(12), policy.arms(states))
                reward = arm.mean_rewards[states, pulled.astype(int)].sum()
                chains = np.where(pulled[:, None], arm.active_chain[states], arm.chain[states])
                states = (rng.random(12)[:, None] >= chains.cumsum(axis=1)[:, :-1]).sum(axis=1)
            slow.append(reward)
        assert stats.ks_2samp(counts, slow).pvalue > FALSE_ALARM


class TestLookahead:
    def test_the_expected_path_ends_near_the_relaxed_mass(self):
        """lp-update on the conveyor needs hundreds of slots from its start, where all arms stand still."""
        problem = Problem.builtin("conveyor-8").with_arms(1000)
        policy, bound = observed_policy(problem, "lp-update"), observed_relaxation(problem).bound / 1000
        mass = policy.path_end(ObservedWorld(problem).start, 60)
        pulled = policy.pulled_mass(mass)
        reward = pulled @ policy.active_rewards + (mass - pulled) @ policy.passive_rewards
        assert reward == pytest.approx(bound, rel=0.02)
