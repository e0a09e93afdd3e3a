"""Indices and bounds of observed arms against policy iteration, HiGHS, another package, and mistakes of programs."""

import numpy as np
import pytest
from scipy.optimize import linprog

from restless_bandits import Arm, Problem
from restless_bandits.oracles import whittle_index
from restless_bandits.oracles.observed import ObservedArms, relax_observed, sweep_arms
from restless_bandits.oracles.observed.planners import observed_policy, observed_relaxation
from restless_bandits.oracles.observed.rollout import Budget, mean_rewards
from restless_bandits.policies.lookahead import rounded
from tests.optional import needed


def advantages(chains, rewards, subsidies, discount=1.0):
    """The advantage of pulling in each state at each subsidy, by policy iteration."""
    n, rows = len(rewards), np.arange(len(rewards))
    pulled = np.ones((len(subsidies), n), dtype=int)
    while True:
        matrix = np.eye(n) - discount * chains[rows, pulled]
        if discount == 1.0:
            matrix[:, :, 0] = 1.0
        paid = rewards[rows, pulled] + (1 - pulled) * subsidies[:, None]
        value = np.linalg.solve(matrix, paid[:, :, None])[:, :, 0]
        if discount == 1.0:
            value[:, 0] = 0.0
        ahead = rewards + discount * np.einsum("saz,kz->ksa", chains, value)
        found = ahead[:, :, 1] - ahead[:, :, 0] - subsidies[:, None]
        better = np.where(np.abs(found) > 1e-11 * (1 + np.abs(value).max()), found > 0, pulled)
        if (better == pulled).all():
            return found
        pulled = better.astype(int)


def drawn(rng, n):
    """An arm of one of three families: dense, sparse, or with many zeros and one recurrent class for every policy."""
    family = rng.integers(3)
    chains = rng.dirichlet(np.full(n, (1.0, 0.1, 1.0)[family]), (n, 2))
    if family == 2 and n > 2:
        chains = chains * (rng.random(chains.shape) < 0.4)
        chains[:, :, 0] += 0.05
    elif family == 1:
        chains[:, :, 0] += 0.001
    return chains / chains.sum(axis=2, keepdims=True), rng.random((n, 2))


def swept(chains, rewards, discount=1.0):
    parts = chains[:, 1], chains[:, 0], rewards[:, 1], rewards[:, 0]
    return sweep_arms(*(part[None] for part in parts), discount=discount)


def check_index(chains, rewards, discount):
    """Below its index a state is pulled, above it rests: within 1e-10, on both sides of every turn."""
    n, near = len(rewards), 1e-10
    sweep = swept(chains, rewards, discount)
    assert not sweep.discounted[0]
    found = sweep.indices(n)[0]
    scale = near * max(1.0, np.abs(found).max())
    tiny = 1e-5 * scale
    if (sweep.state[0][np.isfinite(sweep.subsidy[0])] < 0).any():
        turns, states = sweep.subsidy[0], sweep.state[0]
        for turn, state in zip(turns[np.isfinite(turns)], states, strict=False):
            sides = advantages(chains, rewards, turn + np.array([-scale, scale]), discount)
            side = sides[:, state if state >= 0 else -1 - state] * (1 if state >= 0 else -1)
            assert side[0] >= -tiny
            assert side[1] <= tiny
        return True
    below, above = (np.diag(advantages(chains, rewards, found + side, discount)) for side in (-scale, scale))
    assert (below >= -tiny).all()
    assert (above <= tiny).all()
    grid = np.quantile(found, np.linspace(0, 1, 7)) + 1e-3
    assert (
        (advantages(chains, rewards, grid, discount) <= tiny)
        | (np.abs(grid[:, None] - found) < 1e-9)
        | (found > grid[:, None])
    ).all()
    return False


def linear_program(problem, discount=1.0):
    """The value of the relaxation by HiGHS, over state-action frequencies."""
    arms = ObservedArms.of(problem)
    pays, flows, right, one = [], [], [], []
    size = 2 * arms.layout.size
    begin = 0
    for group in arms.groups:
        for k in range(group.n_kinds):
            n, count = group.n_states, group.count[k]
            rows = np.zeros((n, size))
            for s in range(n):
                for a, chain in enumerate((group.passive[k], group.active[k])):
                    rows[s, begin + 2 * s + a] += 1
                    rows[:, begin + 2 * s + a] -= discount * chain[s]
            flows.append(rows)
            right.append((1 - discount) * count * group.start[k])
            pays.append(np.stack([group.passive_rewards[k], group.active_rewards[k]], axis=1).ravel())
            total = np.zeros(size)
            total[begin : begin + 2 * n] = 1
            one.append((total, count))
            begin += 2 * n
    flow, right = np.vstack(flows), np.concatenate(right)
    if discount == 1.0:
        flow = np.vstack([flow, [row for row, _ in one]])
        right = np.concatenate([right, [count for _, count in one]])
    equations = np.vstack([flow, np.tile([0.0, 1.0], size // 2)])
    right, pays = np.append(right, problem.plays), np.concatenate(pays)
    if problem.at_most:
        equations = np.hstack([equations, np.eye(len(right))[:, -1:]])
        pays = np.append(pays, 0.0)
    found = linprog(-pays, A_eq=equations, b_eq=right, method="highs").x
    # HiGHS stops within its tolerances: the equations are solved once more for the frequencies that are not zero.
    used = found > 1e-8
    return pays[used] @ np.linalg.lstsq(equations[:, used], right, rcond=None)[0]


def check_bound(rng, n, discount, at_most):
    arms = [drawn(rng, n) for _ in range(3)]
    problem = Problem.from_arrays(
        np.array([chains for chains, _ in arms]),
        np.array([rewards for _, rewards in arms]),
        plays=4,
        count=[3, 2, 4],
        observed="all",
        at_most=at_most,
    )
    found = relax_observed(ObservedArms.of(problem), discount=discount)
    expected = linear_program(problem, discount)
    assert found.value == pytest.approx(expected, abs=1e-9)
    assert expected - 1e-9 <= found.bound <= expected + 1e-9


class TestIndependentSolvers:
    def test_indices_of_300_arms(self):
        rng = np.random.default_rng(12)
        violating = [check_index(*drawn(rng, 2 + number % 29), (1.0, 0.95)[number % 2]) for number in range(300)]
        assert 0 < sum(violating) < 100

    def test_bounds_of_300_arms(self):
        rng = np.random.default_rng(14)
        for number in range(100):
            check_bound(rng, 2 + number % 29, (1.0, 0.95)[number % 2], number % 4 > 1)

    def test_bounds_of_arms_with_several_recurrent_classes(self):
        """The linear program takes the best class of states of each arm, whatever the start."""
        for seed in range(8):
            rng = np.random.default_rng(seed)
            n, n_arms = int(rng.integers(2, 6)), 5
            chains, rewards = np.eye(n)[rng.integers(0, n, (n_arms, n, 2))], rng.random((n_arms, n, 2))
            problem = Problem.from_arrays(chains, rewards, plays=1 + seed % 4, observed="all", at_most=seed > 5)
            found, expected = relax_observed(ObservedArms.of(problem)), linear_program(problem)
            assert any(sweep.discounted.any() for sweep in found.sweeps)
            assert found.bound == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("discount", [1.0, 0.99])
    def test_another_package(self, discount):
        peer = needed("markovianbandit")
        rng, verdicts = np.random.default_rng(15), []
        for number in range(60):
            chains, rewards = drawn(rng, 3 + number % 5)
            parts = chains[:, 0], chains[:, 1], rewards[:, 0], rewards[:, 1]
            other = peer.restless_bandit_from_P0P1_R0R1(*(np.ascontiguousarray(part) for part in parts))
            sweep = swept(chains, rewards, discount)
            indexable = not (sweep.state[0][np.isfinite(sweep.subsidy[0])] < 0).any()
            assert indexable == other.is_indexable(discount=discount)
            verdicts.append(indexable)
            if indexable:
                assert sweep.indices(len(rewards))[0] == pytest.approx(
                    other.whittle_indices(discount=discount), abs=1e-9
                )
        assert 0 < sum(verdicts) < len(verdicts)

    def test_an_arm_that_is_not_indexable(self):
        state = np.random.RandomState(2791)
        chains = state.exponential(size=(4, 2, 4))
        assert check_index(chains / chains.sum(axis=2, keepdims=True), state.rand(4, 2), 1.0)


class TestPublished:
    def test_three_states(self):
        problem = Problem.builtin("three-states").with_arms(1000)
        found = observed_relaxation(problem)
        expected = [0.37401552, 0.181994233, -0.02115716]
        assert found.whittle_index(ObservedArms.of(problem)) == pytest.approx(expected, abs=5e-9)
        assert found.bound / 1000 == pytest.approx(0.1238001673, abs=5e-9)
        earned = mean_rewards(problem, observed_policy(problem, "whittle"), Budget(16, 10_000)).mean() / 1000
        assert round(earned, 4) == 0.1142

    def test_conveyor(self):
        problem = Problem.builtin("conveyor-8").with_arms(1000)
        found = observed_relaxation(problem)
        assert found.bound / 1000 == pytest.approx(0.0125, abs=1e-12)
        expected = [1 / 40, 1 / 30, 1 / 20, 1 / 10, -1 / 40, -1 / 30, -1 / 20, -1 / 10]
        assert found.whittle_index(ObservedArms.of(problem)) == pytest.approx(expected, abs=1e-12)

    def test_all_turns_of_an_arm_that_is_not_indexable(self):
        """Hong, Xie, Chen, Wang (2024), the example of an arm without an index."""
        chains = [
            [[0.1902, 0.4156, 0.3942], [0.7796, 0.0903, 0.1301]],
            [[0.5676, 0.4191, 0.0133], [0.1903, 0.1863, 0.6234]],
            [[0.0191, 0.1097, 0.8712], [0.2901, 0.3901, 0.3198]],
        ]
        passive, active = np.array(chains).transpose(1, 0, 2)
        arm = Arm(passive, [0.9631, 0.7963, 0.1057], active_transitions=active, passive_rewards=[0.458, 0.5308, 0.6873])
        expected = {
            None: [
                (-0.3733123772189334, 1, 0),
                (-0.034888708752714874, 2, 0),
                (0.2486245675202899, 1, 1),
                (0.3822222906555212, 0, 0),
                (0.6047760036934434, 1, 0),
            ],
            0.9: [
                (-0.2771041808457093, 1, 0),
                (-0.12355858556596891, 2, 0),
                (0.21351213489101545, 1, 1),
                (0.4077701452803057, 0, 0),
                (0.5231675264026269, 1, 0),
            ],
        }
        for discount, turns in expected.items():
            found = whittle_index(arm, observed="all", discount=discount)
            assert not found.indexable
            assert [turn[1:] for turn in found.turns] == [turn[1:] for turn in turns]
            assert [turn[0] for turn in found.turns] == pytest.approx([turn[0] for turn in turns], abs=1e-12)
            assert found.violation == pytest.approx(turns[2][0] - turns[0][0], abs=1e-12)
            assert found.table[:, 0] == pytest.approx([turns[3][0], turns[4][0], turns[1][0]], abs=1e-12)
            assert found.as_dict()["turns"] == found.turns


class TestMistakesOfPrograms:
    def test_indices_beyond_one(self):
        """A search in [−1, 1] misses them."""
        chains = np.array([[[0.99, 0.01], [0.2, 0.8]], [[0.05, 0.95], [0.05, 0.95]]])
        rewards = np.array([[0.0, 0.0], [1.0, 1.0]])
        index = swept(chains, rewards, 0.95).indices(2)[0]
        assert index[0] > 4
        assert not check_index(chains, rewards, 0.95)

    def test_no_made_up_index(self):
        """An arm of two parts that do not meet has no gain; it is said, and no number such as −10 stands in."""
        chains = np.stack([np.eye(3)] * 2, axis=1)
        rewards = np.array([[0, 0.1], [0, 0.5], [0, 0.9]])
        sweep = swept(chains, rewards)
        assert sweep.discounted[0]
        assert sweep.indices(3)[0] == pytest.approx([0.1, 0.5, 0.9], abs=1e-6)

    def test_one_subsidy_for_all_states(self):
        """A subsidy that is paid in a single state gives another number."""
        rng = np.random.default_rng(3)
        chains, rewards, discount = rng.dirichlet(np.full(3, 0.3), (3, 2)), rng.random((3, 2)), 0.9
        index = swept(chains, rewards, discount).indices(3)[0]

        def alone(state):
            low, high = -20.0, 20.0
            for _ in range(60):
                middle = 0.5 * (low + high)
                paid = rewards.copy()
                paid[state, 0] += middle
                pulls = advantages(chains, paid, np.zeros(1), discount)[0, state] > 0
                low, high = (middle, high) if pulls else (low, middle)
            return low

        assert max(abs(alone(s) - index[s]) for s in range(3)) > 0.05
        check_index(chains, rewards, discount)

    def test_periodic_chains(self):
        """A thousand undiscounted sweeps of a periodic chain end nowhere."""
        turn = np.roll(np.eye(3), 1, axis=1)
        chains = np.stack([turn, 0.5 * turn + 0.5 * np.eye(3)], axis=1)
        check_index(chains, np.array([[0.2, 0.9], [0.5, 0.4], [0.1, 0.3]]), 1.0)

    def test_whole_numbers_near_fractions(self):
        """The numbers sum to the budget, and never exceed the arms of a place."""
        rng = np.random.default_rng(2)
        for _ in range(50):
            numbers = rng.integers(0, 9, 6)
            total = int(rng.integers(0, numbers.sum() + 1))
            wished = numbers * rng.random(6)
            found = rounded(wished, numbers, total)
            assert found.sum() == total
            assert ((found >= 0) & (found <= numbers)).all()
        assert rounded(np.array([1.2, 1.7, 0.1]), np.array([3, 3, 3]), 3).tolist() == [1, 2, 0]
