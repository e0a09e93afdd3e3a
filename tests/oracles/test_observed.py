"""Planning for observed arms: published numbers, linear programs, and policy iteration written anew."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog

from restless_bandits import Problem
from restless_bandits.oracles.observed import (
    ObservedArms,
    fluid_gain,
    relax_observed,
    solve_counts,
    solve_joint,
    sweep_arms,
)
from restless_bandits.oracles.observed import index as index_module
from restless_bandits.oracles.observed.planners import observed_policy
from restless_bandits.policies.observed import PriorityPolicy

# Gast, Gaujal, Yan (2020), the second of their examples; passive rewards are zero.
THREE_PASSIVE = [
    [0.02232142, 0.10229283, 0.87538575],
    [0.03426605, 0.17175704, 0.79397691],
    [0.52324756, 0.45523298, 0.02151947],
]
THREE_ACTIVE = [
    [0.14874601, 0.30435809, 0.54689589],
    [0.56845754, 0.41117331, 0.02036915],
    [0.25265570, 0.27310439, 0.4742399],
]
THREE_REWARDS = [[0, 0.37401552], [0, 0.11740814], [0, 0.07866135]]
CIRCULANT = np.array([[0.5, 0, 0, 0.5], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]])


def stacked(passive, active):
    return np.stack([np.asarray(passive, dtype=float), np.asarray(active, dtype=float)], axis=1)


def conveyor():
    """Hong, Xie, Chen, Wang (2023): eight states in a row, the right action moves on, the wrong one moves back."""
    back = (0, 1, 0.48, 0.47, 0.46, 0.45, 0.44, 0.43)
    chains, rewards = np.zeros((8, 2, 8)), np.zeros((8, 2))
    for s in range(8):
        right = 1 if s < 4 else 0
        chains[s, right, (s + 1) % 8] += 0.1
        chains[s, right, s] += 0.9
        chains[s, 1 - right, s] += 1 - back[s]
        chains[s, 1 - right, max(s - 1, 0)] += back[s]
    rewards[7, 0] = 0.1
    return chains, rewards


def arms_of(chains, rewards, plays, **options):
    """Arms in the uniform distribution in slot 1."""
    arms = ObservedArms.of(Problem.from_arrays(chains, rewards, plays=plays, **options))
    groups = [replace(g, start=np.full_like(g.start, 1 / g.n_states)) for g in arms.groups]
    return replace(arms, groups=tuple(groups))


def one_kind(chains, rewards, count, plays, **options):
    return arms_of(chains, rewards, plays, axes="saz", count=count, **options)


def drawn(rng, n_kinds, n_states, plays, concentration=1.0, **options):
    chains = rng.dirichlet(np.full(n_states, concentration), (n_kinds, n_states, 2))
    return arms_of(chains, rng.random((n_kinds, n_states, 2)), plays, **options)


def swept(chains, rewards, discount=1.0):
    chains, rewards = np.asarray(chains), np.asarray(rewards, dtype=float)
    return sweep_arms(
        chains[None, :, 1], chains[None, :, 0], rewards[None, :, 1], rewards[None, :, 0], discount=discount
    )


def gain_by_policy_iteration(chains, rewards, subsidy, discount):
    """The best gain of one arm from the uniform distribution, by plain policy iteration."""
    n = len(chains)
    action = np.ones(n, dtype=int)
    paid = rewards + np.array([subsidy, 0.0])
    for _ in range(100):
        matrix = np.eye(n) - discount * chains[np.arange(n), action]
        matrix[:, 0] = 1.0
        solved = np.linalg.solve(matrix, paid[np.arange(n), action])
        bias = np.concatenate([[0.0], solved[1:]])
        values = paid + discount * chains @ bias
        better = values[np.arange(n), 1 - action] > values[np.arange(n), action] + 1e-11
        if not better.any():
            return solved[0] + (1 - discount) * bias.mean()
        action = np.where(better, 1 - action, action)
    raise AssertionError("policy iteration does not end")


class TestIndex:
    def test_markovianbandit_example(self):
        state = np.random.RandomState(42)
        chains = state.exponential(size=(4, 2, 4))
        chains /= chains.sum(axis=2, keepdims=True)
        sweep = swept(chains, state.rand(4, 2))
        expected = [0.87536099, -0.08765819, -0.15279431, -0.51905682]
        assert sweep.indices(4)[0] == pytest.approx(expected, abs=5e-9)
        assert sweep.violations(4)[0] == 0

    def test_an_arm_that_is_not_indexable(self):
        state = np.random.RandomState(2791)
        chains = state.exponential(size=(4, 2, 4))
        chains /= chains.sum(axis=2, keepdims=True)
        assert swept(chains, state.rand(4, 2)).violations(4)[0] > 0.5

    @pytest.mark.parametrize(
        ("discount", "expected"),
        [(1.0, [-0.5, 0.5, 1, -1]), (0.99, [-0.495, 0.495, 0.98990101, -0.98990101])],
    )
    def test_circulant(self, discount, expected):
        rewards = np.repeat([[-1.0], [0], [0], [1]], 2, axis=1)
        sweep = swept(stacked(CIRCULANT, CIRCULANT.T), rewards, discount)
        assert sweep.indices(4)[0] == pytest.approx(expected, abs=5e-9)

    def test_restart(self):
        chains, rewards = np.zeros((5, 2, 5)), np.zeros((5, 2))
        for s in range(5):
            chains[s, 0, 0] += 0.1
            chains[s, 0, min(s + 1, 4)] += 0.9
            chains[s, 1, 0] = 1
            rewards[s, 0] = 0.9 ** (s + 1)
        expected = [-0.9, -0.729, -0.50949, -0.2587869, 0.009892611]
        assert swept(chains, rewards).indices(5)[0] == pytest.approx(expected, abs=5e-10)

    def test_acting_adds_a_probability(self):
        """Krishnan's closed form: acting adds d to the probability of the good state, which pays 1."""
        discount, p01, p11, d = 0.95, 0.3, 0.6, 0.2
        chains = [[[1 - p01, p01], [1 - p01 - d, p01 + d]], [[1 - p11, p11], [1 - p11 - d, p11 + d]]]
        found = swept(chains, [[0, 0], [1, 1]], discount).indices(2)[0]
        assert found == pytest.approx([discount * d / (1 - discount * (p11 - p01))] * 2, abs=1e-12)

    @pytest.mark.parametrize("discount", [1.0, 0.9])
    @pytest.mark.parametrize("concentration", [1.0, 0.1])
    def test_gains_follow_policy_iteration(self, discount, concentration):
        rng = np.random.default_rng(5)
        for n in (2, 3, 5, 9):
            chains = rng.dirichlet(np.full(n, concentration), (40, n, 2)) * (1 - 1e-6) + 1e-6 / n
            rewards = rng.random((40, n, 2))
            sweep = sweep_arms(chains[:, :, 1], chains[:, :, 0], rewards[:, :, 1], rewards[:, :, 0], discount=discount)
            rises = np.diff(sweep.slope, axis=1, prepend=0)
            for arm in range(0, 40, 4):
                for subsidy in (-0.5, 0.0, 0.3, 1.5):
                    real = np.isfinite(sweep.subsidy[arm])
                    passed = np.maximum(subsidy - sweep.subsidy[arm, real], 0)
                    gain = sweep.base[arm] + float(rises[arm, real] @ passed)
                    expected = gain_by_policy_iteration(chains[arm], rewards[arm], subsidy, discount)
                    assert gain == pytest.approx(expected, abs=1e-9)

    def test_large_arms_take_the_blocked_sweep(self, monkeypatch):
        rng = np.random.default_rng(1)
        arms = rng.dirichlet(np.ones(60), (2, 60)), rng.dirichlet(np.ones(60), (2, 60)), *rng.random((2, 2, 60))
        plain = sweep_arms(*arms)
        monkeypatch.setattr(index_module, "BLOCKED_FROM", 10)
        blocked = sweep_arms(*arms)
        assert blocked.indices(60) == pytest.approx(plain.indices(60), abs=1e-11)
        assert blocked.base == pytest.approx(plain.base, abs=1e-13)

    def test_blocked_sweeps_follow_states_that_turn_back(self, monkeypatch):
        rng = np.random.default_rng(2)
        chains = rng.dirichlet(np.full(6, 0.1), (100, 6, 2)) * 0.999 + 0.001 / 6
        rewards = rng.random((100, 6, 2))
        arms = chains[:, :, 1], chains[:, :, 0], rewards[:, :, 1], rewards[:, :, 0]
        plain = sweep_arms(*arms)
        assert ((plain.state < 0).sum(axis=1) > 0).sum() > 6
        monkeypatch.setattr(index_module, "BLOCKED_FROM", 5)
        monkeypatch.setattr(index_module, "UPDATES_PER_PRODUCT", 3)
        blocked = sweep_arms(*arms)
        assert (blocked.state == plain.state).all()
        assert blocked.subsidy == pytest.approx(plain.subsidy, abs=1e-11)
        assert blocked.slope == pytest.approx(plain.slope, abs=1e-11)

    def test_several_recurrent_classes_are_recognised(self):
        sweep = swept(stacked(np.eye(3), np.eye(3)), [[0, 0.1], [0, 0.5], [0, 0.9]])
        assert sweep.discounted.all()
        assert sweep.indices(3)[0] == pytest.approx([0.1, 0.5, 0.9], abs=1e-6)


def linear_program(arms, discount):
    """The value of the relaxation over discounted state-action frequencies, by HiGHS."""
    group = arms.groups[0]
    k, n = group.n_kinds, group.n_states
    paid = np.stack([group.passive_rewards, group.active_rewards], axis=2).reshape(-1)
    flow, right = np.zeros((k * n, 2 * k * n)), np.full(k * n, (1 - discount) / n)
    for kind in range(k):
        for s in range(n):
            for a, chain in enumerate((group.passive[kind], group.active[kind])):
                column = 2 * (kind * n + s) + a
                flow[kind * n + s, column] += 1
                flow[kind * n : kind * n + n, column] -= discount * chain[s]
    if discount == 1.0:
        flow = np.vstack([flow, np.kron(np.eye(k), np.ones(2 * n))])
        right = np.concatenate([right, np.ones(k)])
    pulls = np.tile([0.0, 1.0], k * n)[None]
    if arms.at_most:
        found = linprog(-paid, pulls, [arms.plays], flow, right, method="highs")
    else:
        found = linprog(-paid, A_eq=np.vstack([flow, pulls]), b_eq=np.append(right, arms.plays), method="highs")
    return -found.fun


class TestBound:
    def test_published(self):
        three = relax_observed(one_kind(stacked(THREE_PASSIVE, THREE_ACTIVE), THREE_REWARDS, 1000, 400))
        assert three.bound / 1000 == pytest.approx(0.123800171, abs=5e-10)
        circulant = stacked(CIRCULANT, CIRCULANT.T)
        arms = one_kind(circulant, np.repeat([[-1.0], [0], [0], [1]], 2, axis=1), 10, 2)
        assert relax_observed(arms).bound / 10 == pytest.approx(0.2, abs=1e-12)

    def test_an_interval_of_subsidies(self):
        arms = one_kind(*conveyor(), 1000, 500)
        found = relax_observed(arms)
        assert found.bound / 1000 == pytest.approx(0.0125, abs=1e-12)
        assert found.interval == pytest.approx((-0.025, 0.025), abs=1e-12)
        expected = [1 / 40, 1 / 30, 0.05, 0.1, -1 / 40, -1 / 30, -0.05, -0.1]
        assert found.whittle_index(arms) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("discount", [1.0, 0.9])
    @pytest.mark.parametrize("at_most", [False, True])
    def test_equals_the_linear_program(self, discount, at_most):
        rng = np.random.default_rng(3)
        for n, concentration in ((2, 1.0), (4, 1.0), (4, 0.2)):
            arms = drawn(rng, 6, n, 2, concentration, at_most=at_most)
            found = relax_observed(arms, discount=discount)
            expected = linear_program(arms, discount)
            assert found.value == pytest.approx(expected, abs=1e-8)
            assert expected - 1e-8 <= found.bound <= expected + 1e-6

    def test_all_arms_pulled(self):
        rng = np.random.default_rng(4)
        arms = drawn(rng, 3, 3, 3)
        assert relax_observed(arms).value == pytest.approx(linear_program(arms, 1.0), abs=1e-9)


class TestExact:
    def test_joint_states_and_counts_agree(self):
        rng = np.random.default_rng(6)
        chains, rewards = rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2))
        for at_most in (False, True):
            arms = one_kind(chains, rewards, 4, 2, at_most=at_most)
            joint, counts = solve_joint(arms), solve_counts(arms)
            assert joint.upper - joint.lower <= 1e-9
            assert max(joint.lower, counts.lower) <= min(joint.upper, counts.upper)
            assert joint.lower <= relax_observed(arms).bound

    def test_plain_value_iteration(self):
        rng = np.random.default_rng(7)
        arms = drawn(rng, 2, 2, 1)
        group = arms.groups[0]
        value = np.zeros((2, 2))
        for _ in range(400):
            best = np.full((2, 2), -np.inf)
            for pulled in (0, 1):
                chain = [group.active[k] if k == pulled else group.passive[k] for k in (0, 1)]
                paid = [group.active_rewards[k] if k == pulled else group.passive_rewards[k] for k in (0, 1)]
                best = np.maximum(best, paid[0][:, None] + paid[1][None] + chain[0] @ value @ chain[1].T)
            step = best - value
            value = 0.5 * (value + best)
        found = solve_joint(arms)
        assert found.lower - 1e-9 <= step.mean() <= found.upper + 1e-9


class TestManyArms:
    def test_fluid_test_predicts_the_trap(self):
        arms = one_kind(stacked(THREE_PASSIVE, THREE_ACTIVE), THREE_REWARDS, 1000, 400)
        found = relax_observed(arms)
        lost = 1 - fluid_gain(arms, PriorityPolicy(arms.layout, found.whittle_index(arms), 400)) / (found.bound / 1000)
        assert lost == pytest.approx(0.07753, abs=5e-6)

    def test_lookahead_fills_the_budget(self):
        rng = np.random.default_rng(8)
        problem = Problem.builtin("three-states").with_arms(1000)
        policy = observed_policy(problem, "lp-update")
        for _ in range(3):
            counts = rng.multinomial(1000, rng.dirichlet(np.ones(3)))
            pulls = policy.pulls(counts)
            assert pulls.sum() == 400
            assert (pulls <= counts).all()
            assert (pulls >= 0).all()
