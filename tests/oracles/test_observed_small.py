"""Small observed problems: exact solutions, brackets and ties, against chains over joint states written anew."""

import itertools

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Problem
from restless_bandits.model.layout import Layout
from restless_bandits.oracles.observed import ObservedArms, solve_counts, solve_joint
from restless_bandits.oracles.observed.planners import (
    affordable_optimum,
    choose_observed,
    fixed_lower,
    observed_policy,
    observed_relaxation,
    solve_observed,
)
from restless_bandits.oracles.observed.rollout import short_gain
from restless_bandits.policies.observed import PriorityPolicy


def joint_chain(problem, policy):
    """The chain over joint states under a policy that is not random, and the mean reward in each."""
    sizes = [arm.n_states for arm in problem.arms]
    states = list(itertools.product(*map(range, sizes)))
    chain, reward = np.empty((len(states), len(states))), np.zeros(len(states))
    for number, state in enumerate(states):
        pulled = set(policy.arms(np.array(state)).tolist())
        row = np.ones(1)
        for i, (arm, s) in enumerate(zip(problem.arms, state, strict=True)):
            row = np.multiply.outer(row, (arm.active_chain if i in pulled else arm.chain)[s]).ravel()
            reward[number] += arm.mean_rewards[s, int(i in pulled)]
        chain[number] = row
    return chain, reward


def gain_of(problem, policy):
    chain, reward = joint_chain(problem, policy)
    system = np.eye(len(chain)) - chain
    system[:, 0] = 1
    return np.linalg.solve(system, reward)[0]


def optimum(problem, discount=None, sweeps=3000):
    """Value iteration over joint states, a choice at a time; with a discount 1 − β times the value of the start."""
    arms = list(problem.arms)
    sizes = [arm.n_states for arm in arms]
    states = list(itertools.product(*map(range, sizes)))
    fewest = 0 if problem.at_most else problem.plays
    chains, rewards = [], []
    for plays in range(fewest, problem.plays + 1):
        for pulled in itertools.combinations(range(len(arms)), plays):
            chain = np.ones((1, 1))
            for i, arm in enumerate(arms):
                chain = np.kron(chain, arm.active_chain if i in pulled else arm.chain)
            paid = [sum(arm.mean_rewards[s[i], int(i in pulled)] for i, arm in enumerate(arms)) for s in states]
            chains.append(chain)
            rewards.append(paid)
    chains, rewards, beta = np.array(chains), np.array(rewards), 1.0 if discount is None else discount
    value = np.zeros(len(states))
    for _ in range(sweeps):
        after = (rewards + beta * chains @ value).max(axis=0)
        step, value = after - value, after - (after[0] if discount is None else 0)
        if np.ptp(step) < 1e-12 and (discount is None or np.abs(step).max() < 1e-12):
            break
    if discount is None:
        return step.mean()
    start = np.ones(1)
    for arm in arms:
        start = np.kron(start, arm.initial_distribution @ arm.chain)
    return (1 - beta) * start @ value


def drawn(seed, n_arms, n_states, plays, concentration=1.0, **options):
    rng = np.random.default_rng(seed)
    chains = rng.dirichlet(np.full(n_states, concentration), (n_arms, n_states, 2))
    rewards = rng.random((n_arms, n_states, 2))
    return Problem.from_arrays(chains, rewards, plays=plays, observed="all", **options)


def alike(seed, n_arms, n_states, plays, **options):
    rng = np.random.default_rng(seed)
    chains, rewards = rng.dirichlet(np.ones(n_states), (n_states, 2)), rng.random((n_states, 2))
    rewards[:, 0] *= 1.2 if options else 1.0
    rewards = rewards.clip(0, 1)
    return Problem.from_arrays(chains, rewards, plays=plays, count=n_arms, axes="saz", observed="all", **options)


class TestExact:
    @pytest.mark.parametrize("discount", [None, 0.9])
    @pytest.mark.parametrize("options", [{}, {"at_most": True}])
    def test_value_iteration_written_anew(self, discount, options):
        for problem in (drawn(1, 3, 2, 1, **options), alike(2, 3, 3, 2, **options)):
            found = solve_observed(problem, "exact", discount=discount)
            expected = optimum(problem, discount)
            assert found.certified
            assert found.lower - 1e-9 <= expected <= found.upper + 1e-9

    @pytest.mark.parametrize("options", [{}, {"at_most": True}])
    @pytest.mark.parametrize("problem", [drawn(3, 4, 2, 2, 0.3), alike(4, 4, 3, 1)])
    def test_policies_earn_the_optimum(self, problem, options):
        problem = Problem(problem.kinds, plays=problem.plays, observed="all", **options)
        found = solve_observed(problem, "exact")
        assert gain_of(problem, found.policy) == pytest.approx(found.gain, abs=1e-8)

    def test_counts_and_joint_states_agree_with_many_arms(self):
        arms = ObservedArms.of(alike(5, 9, 2, 4))
        joint, counts = solve_joint(arms), solve_counts(arms)
        assert max(joint.lower, counts.lower) <= min(joint.upper, counts.upper)

    def test_slow_chains_close_in_few_sweeps(self):
        """Plain sweeps shrink the bracket by .998 each and would need ten thousand."""
        stay = 0.001
        chains = np.array([[[1 - stay, stay], [1 - 3 * stay, 3 * stay]], [[stay, 1 - stay], [2 * stay, 1 - 2 * stay]]])
        rewards = np.array([[0.0, 0.1], [0.8, 1.0]])
        problem = Problem.from_arrays(chains, rewards, plays=2, count=5, axes="saz", observed="all")
        found = solve_observed(problem, "exact")
        assert found.certified
        assert found.details["sweeps"] < 200
        assert found.gain == pytest.approx(optimum(problem, sweeps=40_000), abs=1e-6)

    def test_periodic_chains_close(self):
        turn = np.array([[0.0, 1.0], [1.0, 0.0]])
        chains = np.stack([np.stack([turn, turn], axis=1)] * 2)
        rewards = np.array([[[0.0, 1.0], [0.0, 0.2]], [[0.0, 0.5], [0.0, 0.4]]])
        found = solve_observed(Problem.from_arrays(chains, rewards, plays=2, observed="all"), "exact")
        assert found.certified
        assert found.gain == pytest.approx(1.05, abs=1e-8)

    @pytest.mark.parametrize("family", ["sparse", "nearly deterministic", "absorbing", "rested", "slow"])
    @pytest.mark.parametrize("plays", [1, 4])
    def test_auto_is_certified(self, family, plays):
        for seed in range(4):
            rng, n = np.random.default_rng(seed), 2 + seed % 2
            chains = rng.dirichlet(np.full(n, 0.1 if family == "sparse" else 1.0), (5, n, 2))
            if family == "nearly deterministic":
                chains = 0.999 * np.eye(n)[rng.integers(0, n, (5, n, 2))] + 0.001 / n
            elif family == "absorbing":
                chains[:, -1, 0] = np.eye(n)[-1]
            elif family == "rested":
                chains[:, :, 0] = np.eye(n)
            elif family == "slow":
                chains = 0.001 * chains + 0.999 * np.eye(n)[:, None]
            rewards = rng.random((5, n, 2))
            problem = Problem.from_arrays(chains, rewards, plays=plays, observed="all", at_most=seed > 1)
            assert solve_observed(problem, "auto").certified

    def test_a_choice_that_turns_late(self):
        """Rested arms: the bracket stands still for dozens of sweeps before it closes."""
        for seed in (0, 4, 7, 10, 23):
            rng = np.random.default_rng(seed)
            chains = rng.dirichlet([1, 1], (6, 2, 2))
            chains[:, :, 0] = np.eye(2)
            problem = Problem.from_arrays(chains, rng.random((6, 2, 2)), plays=3, observed="all", at_most=True)
            assert solve_observed(problem, "exact").certified

    def test_policies_are_improved_where_sweeps_are_slow(self):
        """Arms that leave their cycles once in ten thousand slots."""
        for seed in range(3):
            rng = np.random.default_rng(seed)
            cycles = np.eye(2)[rng.integers(0, 2, (9, 2, 2))]
            chains = (1 - 1e-4) * cycles + 1e-4 * rng.dirichlet([1, 1], (9, 2, 2))
            problem = Problem.from_arrays(chains, rng.random((9, 2, 2)), plays=1 + seed, observed="all")
            found = solve_observed(problem, "exact")
            assert found.certified
            assert gain_of(problem, found.policy) == pytest.approx(found.gain, abs=1e-8)

    def test_sweeps_of_auto_do_not_depend_on_the_clock(self):
        problem = drawn(6, 4, 2, 2)
        assert affordable_optimum(problem).details["sweeps"] == affordable_optimum(problem).details["sweeps"]
        assert rb.solve(problem).certified


class TestBrackets:
    @pytest.mark.parametrize("options", [{}, {"at_most": True}])
    def test_lower_exact_upper(self, options):
        for seed in range(6):
            problem = drawn(seed, 3, 2 + seed % 2, 1, (1.0, 0.2)[seed % 2], **options)
            expected = optimum(problem)
            for name in ("whittle", "lp-index", "id", "lp-update", "myopic", "best-arm", "exact", "auto"):
                found = solve_observed(problem, name)
                assert found.lower <= expected + 1e-9
                assert found.upper >= expected - 1e-9
                assert found.lower <= found.upper

    def test_the_fixed_arms_earn_the_lower_end(self):
        for seed in range(8):
            problem = drawn(seed, 3, 3, 1, (1.0, 0.3)[seed % 2])
            policy = observed_policy(problem, "best-arm")
            assert fixed_lower(problem) <= gain_of(problem, policy) + 1e-12
            assert fixed_lower(problem) == pytest.approx(gain_of(problem, policy), abs=1e-9)

    @pytest.mark.parametrize("at_most", [False, True])
    def test_wishes_fit_the_budget_and_earn_the_bound(self, at_most):
        problem = drawn(3, 12, 4, 5, 0.5, at_most=at_most)
        found, arms = observed_relaxation(problem), ObservedArms.of(problem)
        wish = found.wishes(arms).reshape(12, 4)
        group, active, gain = arms.groups[0], 0.0, 0.0
        for k in range(12):
            chain = wish[k, :, None] * group.active[k] + (1 - wish[k, :, None]) * group.passive[k]
            system = np.vstack([(np.eye(4) - chain).T, np.ones(4)])
            stationary = np.linalg.lstsq(system, [0, 0, 0, 0, 1], rcond=None)[0]
            active += stationary @ wish[k]
            gain += stationary @ (wish[k] * group.active_rewards[k] + (1 - wish[k]) * group.passive_rewards[k])
        assert active == pytest.approx(5, abs=1e-9) if found.subsidy > 0 or not at_most else active <= 5 + 1e-9
        assert gain == pytest.approx(found.bound, abs=1e-8)


class TestBudgets:
    def test_a_budget_that_does_not_bind_is_not_filled(self):
        """At rest every arm earns more: no arm is pulled, by any planner."""
        problem = drawn(1, 4, 2, 2, at_most=True)
        rewards = np.stack([np.ones((4, 2)), np.zeros((4, 2))], axis=2)
        chains = np.full((4, 2, 2, 2), 0.5)
        problem = Problem.from_arrays(chains, rewards, plays=2, observed="all", at_most=True)
        for name in ("whittle", "lp-index", "id", "lp-update", "myopic", "best-arm", "exact"):
            assert len(observed_policy(problem, name).arms(np.zeros(4, dtype=int))) == 0

    def test_spare_pulls_are_free(self):
        """The Lagrangian index is taken after the subsidy; pulls that nobody else wants cost nothing."""
        losses, floors = [], []
        for seed in range(12):
            rng = np.random.default_rng(seed)
            chains, rewards = rng.dirichlet(np.ones(2), (4, 2, 2)), rng.random((4, 2, 2))
            rewards[:, :, 0] = 0.3 + 0.6 * rewards[:, :, 0]
            problem = Problem.from_arrays(chains, rewards, plays=2, observed="all", at_most=True)
            policy = observed_policy(problem, "lp-index")
            best = solve_observed(problem, "exact").gain
            losses.append(1 - gain_of(problem, policy) / best)
            without = PriorityPolicy(policy.layout, policy.score, 2, 0.0)
            floors.append(1 - gain_of(problem, without) / best)
        assert np.mean(losses) < 0.5 * np.mean(floors)

    def test_whole_pulls(self):
        """Budgets are whole numbers: every policy pulls exactly B arms, whatever the relaxation wishes."""
        problem = drawn(2, 7, 3, 3)
        rng = np.random.default_rng(0)
        for name in ("whittle", "lp-index", "id", "lp-update", "myopic", "best-arm"):
            policy = observed_policy(problem, name)
            for _ in range(5):
                arms = policy.arms(rng.integers(0, 3, 7))
                assert len(set(arms.tolist())) == len(arms) == 3


class TestTies:
    def test_equal_scores_go_to_the_second_score_then_to_the_place(self):
        layout = Layout(np.array([2, 2]), np.array([1, 1]))
        policy = PriorityPolicy(layout, np.array([0.5, 0.1, 0.5, 0.1 + 1e-14]), 1)
        assert policy.order.tolist() == [0, 2, 1, 3]
        second = PriorityPolicy(layout, policy.score, 1, -np.inf, np.array([0.0, 0.0, 1.0, 2.0]))
        assert second.order.tolist() == [2, 0, 3, 1]
        again = PriorityPolicy.from_arrays(second.to_arrays())
        assert again.order.tolist() == second.order.tolist()

    def test_lp_index_breaks_ties_by_whittle(self):
        """Bandits with two arms of one advantage at the subsidy: the higher Whittle index goes first."""
        problem = Problem.builtin("conveyor-8")
        policy = observed_policy(problem, "lp-index")
        assert policy.tie_break == pytest.approx(observed_relaxation(problem).whittle_index(ObservedArms.of(problem)))

    def test_lowest_numbers_of_a_place(self):
        rng = np.random.default_rng(0)
        layout = Layout(np.array([3, 2]), np.array([6, 5]))
        for _ in range(20):
            states = np.concatenate([rng.integers(0, 3, 6), rng.integers(0, 2, 5)])
            pulls = rng.integers(0, layout.numbers(states) + 1)
            places, expected = layout.first + states, []
            for place in range(layout.size):
                expected += np.flatnonzero(places == place)[: pulls[place]].tolist()
            assert layout.lowest(states, pulls).tolist() == sorted(expected)


class TestAuto:
    def test_arms_that_are_alike_are_simulated(self):
        """Ten arms each of three nearly deterministic kinds: Whittle's index loses half as much as the Lagrangian."""
        rng = np.random.default_rng([30, 7, sum(map(ord, "neardet"))])
        n = int(rng.integers(2, 6))
        rewards = rng.random((3, n, 2))
        rewards[:, :, 0] = 0
        chains = np.eye(n)[rng.integers(0, n, (3, n, 2))] * 0.999 + 0.001 / n
        problem = Problem.from_arrays(
            chains, rewards, plays=7, count=[10] * 3, observed="all", reward_axes="nsa", reward_law="fixed"
        )
        name, why = choose_observed(problem)
        assert name == "whittle"
        assert why == "whittle, the better of lp-index and whittle in a simulation"
        gains = {name: short_gain(problem, observed_policy(problem, name)) for name in ("whittle", "lp-index")}
        assert gains["whittle"] > 1.01 * gains["lp-index"]
