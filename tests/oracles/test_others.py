"""Relaxation, myopic, guha, best arm, evaluation."""

import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import restless_bandits as rb
from restless_bandits import Arm, IndexPolicy, Problem, ProblemError, TableArm
from restless_bandits.oracles.guha import PricedArm, balance_price
from restless_bandits.oracles.lagrangian import SubsidisedArms, relax
from restless_bandits.oracles.myopic import table_length
from restless_bandits.registry import FINITE_ORACLES, OBSERVED_ORACLES
from restless_bandits.testing import check_oracle, observed_trial_problems
from tests.reference import simulate, subsidised_dual


@pytest.mark.parametrize(
    ("oracle", "name", "gain", "digits"),
    [
        ("whittle", "paper-1", 0.456464072293, 1e-11),
        ("whittle", "paper-2", 0.28583239, 5e-9),
        ("myopic", "paper-1", 0.44666453, 5e-9),
        ("myopic", "paper-2", 0.25, 1e-12),
        ("best-arm", "paper-1", 0.4, 1e-12),
        ("best-arm", "paper-2", 0.25, 1e-12),
    ],
)
def test_reference_gains(oracle, name, gain, digits):
    assert rb.oracles.oracle(oracle)(Problem.builtin(name)).gain == pytest.approx(gain, abs=digits)


@pytest.mark.parametrize(("name", "bound"), [("paper-1", 0.46061408), ("paper-2", 0.29349477)])
def test_reference_relaxation(name, bound):
    solution = rb.oracles.relaxation(Problem.builtin(name))
    assert solution.upper == pytest.approx(bound, abs=5e-9)
    assert not solution.certified


def dual_by_linear_program(problem, truncation):
    """Occupation measures of all arms with an average number of plays: the relaxation as one linear program."""
    cost, blocks, plays_row = [], [], []
    sizes = []
    for arm in problem.arms:
        laws = arm.state_distributions(truncation)[1:]
        states = [(s, t) for s in range(arm.n_states) for t in range(truncation)]
        number = {state: i for i, state in enumerate(states)}
        flow = np.zeros((len(states), 2 * len(states)))
        for (s, t), i in number.items():
            flow[i, [i, len(states) + i]] += 1
            for k in range(arm.n_states):
                flow[number[k, 0], i] -= laws[t, s, k]
            flow[number[s, min(t + 1, truncation - 1)], len(states) + i] -= 1
            cost.append(-laws[t, s] @ arm.rewards)
        cost += [0.0] * len(states)
        plays_row += [1.0] * len(states) + [0.0] * len(states)
        blocks.append(np.vstack([flow, np.ones(2 * len(states))]))
        sizes.append(len(states))
    rows = sum(block.shape[0] for block in blocks)
    matrix = np.zeros((rows + 1, len(cost)))
    right = []
    r = c = 0
    for block, size in zip(blocks, sizes, strict=True):
        matrix[r : r + block.shape[0], c : c + block.shape[1]] = block
        right += [0.0] * size + [1.0]
        r, c = r + block.shape[0], c + block.shape[1]
    matrix[-1] = plays_row
    found = linprog(cost, A_eq=matrix, b_eq=[*right, problem.plays], method="highs")
    assert found.success
    return -found.fun


@settings(max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from(["paper", "birth-death", "general"]), st.integers(1, 2))
def test_relaxation_is_the_linear_program(seed, kind, plays):
    problem = Problem.random(3, [2, 3, 2], seed=seed, kind=kind, plays=plays)
    tables = Problem(
        [TableArm(arm.state_distributions(6), arm.rewards, initial=arm.initial) for arm in problem.arms], plays=plays
    )
    assert rb.oracles.relaxation_bound(tables) == pytest.approx(dual_by_linear_program(problem, 6), abs=1e-8)


def test_relaxation_bounds_every_subsidy_from_below():
    problem = Problem.builtin("queue-5")
    best = relax(problem)
    arms = SubsidisedArms(problem.arms)
    for subsidy in np.linspace(0.1, 0.95, 9):
        assert arms.solve(subsidy)[0] - subsidy * 3 >= best.bound - 1e-12


@settings(max_examples=15)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["paper", "birth-death", "general"]),
    st.sampled_from(["random", "unknown"]),
    st.floats(0, 1),
)
def test_arms_with_a_subsidy_are_those_solved_one_by_one(seed, kind, initial, subsidy):
    drawn = Problem.random(6, [2, 3, 4, 1, 2, 3], seed=seed, kind=kind, initial=initial).arms
    tables = [TableArm(arm.state_distributions(9), arm.rewards, initial=arm.initial) for arm in drawn[4:]]
    together = SubsidisedArms([*drawn[:4], *tables])
    total, rests = together.solve(subsidy)
    duals = together.duals(subsidy)
    assert total == pytest.approx(sum(dual.bound for dual in duals), abs=1e-13)
    assert rests == pytest.approx(sum(dual.rest for dual in duals), abs=1e-13)
    for arm, dual in zip(together.arms, duals, strict=True):
        laws = arm.state_distributions(dual.advantage.shape[1])[1:].copy()
        if isinstance(arm, Arm):
            laws[-1] = arm.stationary
        unseen = laws[:, -1] if initial == "unknown" else np.broadcast_to(laws[-1, -1], (len(laws), arm.n_states))
        gain, rest, advantage, excess = subsidised_dual(laws[:, : arm.n_states], arm.rewards, unseen, subsidy)
        assert dual.gain == pytest.approx(gain, abs=1e-12)
        # Over thousands of slots the bound holds rounding of its own, of which ``rounding`` is the proved limit.
        assert dual.bound == pytest.approx(gain + excess, abs=max(1e-11, dual.rounding))
        np.testing.assert_allclose(dual.advantage, advantage, atol=1e-9)
        # Where several policies are best they rest as they like.
        if gain == subsidy or np.abs(advantage).min() > 1e-9:
            assert dual.rest == pytest.approx(rest, abs=1e-9)


def test_relaxation_of_arms_whose_gain_depends_on_the_start():
    frozen = Problem([Arm(np.eye(2), [1, 0], initial=1), Arm(np.eye(2), [0.7, 0.2], initial=0)])
    assert rb.oracles.relaxation_bound(frozen) == pytest.approx(0.7, abs=1e-6)
    flipping = Problem([Arm([[0, 1], [1, 0]], [1, 0], initial=0)] * 1 + [Arm([[1.0]], [0.2])])
    assert rb.oracles.relaxation_bound(flipping) >= rb.oracles.exact(flipping).lower - 1e-9


class TestGuha:
    @settings(max_examples=25)
    @given(st.integers(0, 10**6), st.integers(2, 4), st.booleans())
    def test_certificate_holds_in_every_belief(self, seed, n_arms, poor):
        """Reward plus change of the potentials of the arm pulled is at least λ*, whatever is known: no idling.

        Written out from the definition of the potential, for all pairs of a good or waiting belief of each arm.
        """
        drawn = Problem.random(n_arms, 2, seed=seed, floor=0.05)
        arms = [Arm(a.transitions, [a.rewards[0], 0 if poor else a.rewards[1]], initial=1) for a in drawn.arms]
        problem = Problem(arms)
        priced = [PricedArm(arm, table_length(arm)) for arm in problem.arms]
        price = balance_price(priced)
        assert sum(arm.value(price) for arm in priced) == pytest.approx(price, abs=1e-12)
        policy = rb.oracles.policy("guha", problem)
        potentials, laws = [], [arm.state_distributions(61)[1:] for arm in problem.arms]
        for arm, one in zip(problem.arms, priced, strict=True):
            profit = one.value(price)
            wait = np.arange(1, len(one.from_bad) + 1)
            costs = (profit * wait + price - arm.rewards[1]) / one.from_bad
            t = int(costs.argmin()) + 1
            bonus = costs[t - 1] - (arm.rewards[0] - arm.rewards[1])
            table = np.zeros((2, 62))
            if profit > 0:
                table[1] = profit * (np.minimum(np.arange(1, 63), t) - 1)
                table[0] = profit * (t - 1)
                table[0, 0] = bonus
            potentials.append(table)
        rng = np.random.default_rng(seed)
        for _ in range(60):
            states, slots = rng.integers(2, size=n_arms), rng.integers(2, 60, size=n_arms)
            slots[rng.integers(n_arms)] = 1
            pulled = policy(states.tolist(), slots.tolist())
            change = 0.0
            for i in range(n_arms):
                before = potentials[i][states[i], slots[i] - 1]
                if i == pulled:
                    distribution = laws[i][slots[i] - 1, states[i]]
                    change += distribution @ (problem.arms[i].rewards + potentials[i][:, 0]) - before
                else:
                    change += potentials[i][states[i], slots[i]] - before
            assert change >= price - 1e-9

    @settings(max_examples=10)
    @given(st.integers(0, 10**6))
    def test_ratio_where_it_is_claimed(self, seed):
        drawn = Problem.random(2, 2, seed=seed, floor=0.05)
        problem = Problem([Arm(a.transitions, [a.rewards[0], 0], initial=1) for a in drawn.arms])
        solution = rb.oracles.guha(problem)
        assert solution.ratio == 0.5
        best = rb.oracles.exact(problem)
        assert solution.gain >= 0.5 * best.lower - 1e-9
        assert 2 * solution.details["price"] >= best.lower - 1e-9
        assert solution.gain >= solution.details["price"] - 1e-9

    @pytest.mark.parametrize(
        "problem",
        [
            Problem.builtin("lms-urban-s"),
            Problem([Arm([[0.2, 0.8], [0.9, 0.1]], [1, 0], initial=0), Arm.two_state(0.7, 0.8, initial=0)]),
            Problem(Problem.builtin("table-3").arms, plays=2),
            Problem([Arm([[1, 0], [0, 1]], [1, 0], initial=0), Arm.two_state(0.7, 0.8, initial=0)]),
        ],
        ids=["bad state pays", "negative", "two plays", "frozen"],
    )
    def test_no_ratio_elsewhere(self, problem):
        solution = rb.oracles.guha(problem)
        assert solution.ratio is None
        assert "no ratio is claimed" in solution.how

    def test_no_bound_where_an_arm_may_stay_for_ever(self):
        frozen = Problem([Arm([[1, 0], [0, 1]], [1, 0], initial=0), Arm.two_state(0.5, 0.6, (0.8, 0), initial=0)])
        solution = rb.oracles.guha(frozen)
        assert 2 * solution.details["price"] < solution.gain == 1
        assert "bounds μ*" not in solution.how

    def test_faults(self):
        with pytest.raises(ProblemError, match="has 5 states; guha is for two-state arms"):
            rb.oracles.guha(Problem.builtin("queue-5"))
        with pytest.raises(ProblemError, match="order the states"):
            rb.oracles.guha(Problem([Arm.two_state(0.7, 0.8, (0, 1))]))

    def test_bad_state_that_is_never_left(self):
        problem = Problem([Arm([[0.6, 0.4], [0, 1]], [1, 0.2], initial=0), Arm.two_state(0.7, 0.8, initial=0)])
        assert np.isfinite(rb.oracles.guha(problem).gain)


class TestEvaluation:
    def test_locking_policies_have_several_classes(self):
        """Stay with whatever was seen good, else with what was never left: worked out by hand for two frozen arms."""
        problem = Problem([Arm(np.eye(2), [1, 0]), Arm(np.eye(2), [0.7, 0.2])])
        first = np.array([[1.0], [0.0], [0.5]])
        found = rb.evaluate(problem, IndexPolicy((first, np.array([[0.7], [0.2], [0.4]]))))
        assert found.gain == pytest.approx(0.5 + 0.25 * 0.7 + 0.25 * 0.2)
        assert found.classes == 3

    @pytest.mark.parametrize("seed", range(4))
    def test_round_robin_in_closed_form(self, seed):
        """Two arms in turn: each chain is seen every second slot, so each earns half its average."""
        problem = Problem.random(2, 3, seed=seed)
        longest = np.tile(np.arange(1.0, 21.0), (4, 1))
        found = rb.evaluate(problem, IndexPolicy((longest, longest)))
        average = 0.5 * sum(arm.stationary @ arm.rewards for arm in problem.arms)
        assert found.gain == pytest.approx(average, abs=1e-11)
        assert found.error < 1e-11

    def test_a_policy_of_ones_own(self):
        class Second(rb.Policy):
            def choose(self, last_states, elapsed):
                return np.ones((len(last_states), 1), dtype=np.int64)

        assert rb.evaluate(Problem.builtin("paper-2"), Second()).gain == pytest.approx(0.25, abs=1e-12)

    def test_too_large(self):
        with pytest.raises(ProblemError, match="more than 50 joint beliefs"):
            rb.evaluate(Problem.builtin("paper-2"), rb.oracles.policy("whittle", Problem.builtin("paper-2")), most=50)

    @pytest.mark.parametrize(
        ("problem", "oracle"),
        [
            (Problem.builtin("paper-2"), "exact"),
            (Problem.builtin("paper-2"), "whittle"),
            (Problem.random(3, [2, 3, 2], seed=8, plays=2, initial="unknown"), "myopic"),
        ],
        ids=["exact", "whittle", "two plays"],
    )
    def test_against_simulation(self, problem, oracle):
        """Means of 200 batches of 300 slots against the computed gain.

        Two-sided t-test at 1e-6 (|t| < 5.05 with 199 degrees of freedom); a gain off by six standard errors, here
        about 0.008, would be found with probability 0.8.
        """
        policy = rb.oracles.policy(oracle, problem)
        rewards = simulate(problem, policy, 60_000, seed=20)
        batches = rewards.reshape(200, 300).mean(axis=1)
        t = (batches.mean() - rb.evaluate(problem, policy).gain) / (batches.std(ddof=1) / math.sqrt(200))
        assert abs(t) < 5.05


class TestConformance:
    """Every oracle takes every kind of arm and answers with a policy and a bracket."""

    KINDS: ClassVar = {
        "paper": Problem.builtin("paper-1"),
        "three states": Problem.random(2, 3, seed=1),
        "mixed sizes": Problem.random(3, [2, 3, 1], seed=2),
        "general": Problem.random(2, 3, seed=3, kind="general"),
        "negative": Problem([Arm([[0.2, 0.8], [0.9, 0.1]], [1, 0], initial=0), Arm.two_state(0.3, 0.4, initial=1)]),
        "absorbing": Problem([Arm([[1, 0], [0.3, 0.7]], [1, 0], initial=1), Arm.two_state(0.7, 0.8, initial=1)]),
        "frozen": Problem([Arm(np.eye(2), [1, 0], initial=1), Arm.two_state(0.7, 0.8, initial=1)]),
        "unknown": Problem([Arm.two_state(0.7, 0.8), Arm.two_state(0.5, 0.6, (0.8, 0))]),
        "two plays": Problem.random(3, 2, seed=4, plays=2),
        "all plays": Problem.random(2, 2, seed=5, plays=2),
        "one arm": Problem([Arm.two_state(0.7, 0.8, initial=1)]),
        "fixed rewards": Problem([Arm.two_state(0.7, 0.8, initial=1, reward_law="fixed")] * 1),
        "table": Problem(
            [TableArm(arm.state_distributions(20), arm.rewards, initial=1) for arm in Problem.builtin("paper-2").arms]
        ),
        "worthless": Problem([Arm.two_state(0.7, 0.8, (0, 0), initial=1), Arm.two_state(0.5, 0.5, (0, 0), initial=1)]),
    }

    @pytest.mark.usefixtures("known")
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("name", [name for name in rb.oracles.ORACLES if name not in OBSERVED_ORACLES])
    def test_every_oracle_on_every_kind(self, name, kind):
        problem = self.KINDS[kind]
        if name == "guha" and max(problem.n_states) != 2:
            with pytest.raises(ProblemError, match="guha is for two-state arms"):
                rb.oracles.oracle(name)(problem)
            return
        check_oracle(name, [problem])
        solution = rb.oracles.oracle(name)(problem)
        assert solution.oracle == name
        assert solution.problem is problem
        assert solution.lower <= solution.upper
        assert solution.how
        assert solution.seconds > 0
        assert solution.gain is not None
        assert solution.gain == pytest.approx(rb.evaluate(problem, solution.policy).gain, abs=1e-9)
        assert solution.gain <= solution.upper + 1e-9
        assert "Solution by" in repr(solution)

    @pytest.mark.parametrize("name", [name for name in rb.oracles.ORACLES if name not in ("guha", *FINITE_ORACLES)])
    def test_every_oracle_on_observed_arms(self, name):
        for problem in observed_trial_problems().values():
            check_oracle(name, [problem])
            solution = rb.oracles.oracle(name)(problem)
            assert (solution.oracle, solution.problem) == (name, problem)
            assert solution.how

    @pytest.mark.parametrize("name", OBSERVED_ORACLES)
    def test_some_oracles_are_for_observed_arms_alone(self, name):
        with pytest.raises(ProblemError, match=f"the oracle {name} is for arms that are all observed; give a problem"):
            rb.oracles.oracle(name)(self.KINDS["paper"])

    def test_unknown_oracle(self):
        with pytest.raises(ProblemError, match="no oracle 'whitle'; did you mean 'whittle'"):
            rb.oracles.oracle("whitle")
        assert rb.oracles.oracle("best_arm") is rb.oracles.best_arm
