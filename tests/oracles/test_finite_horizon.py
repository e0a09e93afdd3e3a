"""Programmes of a known number of slots: the bound, the fluid-priority policy, and what refuses them."""

import itertools

import numpy as np
import pytest
import scipy
from benchmarks.planning_instances import bernoulli_arms

import restless_bandits as rb
from restless_bandits.oracles.observed import ObservedArms, finite
from restless_bandits.oracles.observed.exact import JointSweep
from restless_bandits.oracles.observed.rollout import ObservedWorld, horizon_rewards


def random_problem(n_arms, plays, seed, n_states=2, **options):
    rng = np.random.default_rng(seed)
    chains = rng.dirichlet(np.ones(n_states), (n_arms, n_states, 2))
    means = rng.normal(size=(n_arms, n_states, 2))
    return rb.Problem.from_arrays(chains, means, plays=plays, **options)


def slow_bound(problem, horizon):
    """The linear program over state-action frequencies of single arms, written anew, arm by arm."""
    sizes = [(i, s, a) for i, arm in enumerate(problem.arms) for s in range(arm.n_states) for a in range(2)]
    column = {(t, *one): k for k, (t, one) in enumerate(itertools.product(range(horizon), sizes))}
    rows, right, budget, cost = [], [], [], np.zeros(len(column))
    for (_, i, s, a), k in column.items():
        cost[k] = -problem.arms[i].mean_rewards[s, a]
    for t in range(horizon):
        for i, arm in enumerate(problem.arms):
            first = arm.initial_distribution @ arm.chain
            for z in range(arm.n_states):
                row = np.zeros(len(column))
                row[[column[t, i, z, a] for a in range(2)]] = 1
                for s, a in itertools.product(range(arm.n_states), range(2)):
                    if t:
                        row[column[t - 1, i, s, a]] -= (arm.chain, arm.active_chain)[a][s, z]
                rows.append(row)
                right.append(0.0 if t else first[z])
        row = np.zeros(len(column))
        row[[k for (u, _, _, a), k in column.items() if u == t and a == 1]] = 1
        budget.append(row)
    most = np.full(horizon, problem.plays)
    if problem.at_most:
        given = {"A_eq": np.array(rows), "b_eq": right, "A_ub": np.array(budget), "b_ub": most}
    else:
        given = {"A_eq": np.array(rows + budget), "b_eq": np.concatenate([right, most])}
    return -scipy.optimize.linprog(cost, **given, method="highs").fun


def optimum(problem, horizon):
    """The best expected total reward over joint states."""
    sweep, start = JointSweep(ObservedArms.of(problem)), np.ones(1)
    value = np.zeros(sweep.shape)
    for _ in range(horizon):
        value, _ = sweep(value)
    for arm in problem.arms:
        start = np.multiply.outer(start, arm.initial_distribution @ arm.chain)
    return float((start.reshape(sweep.shape) * value).sum())


@pytest.mark.parametrize(("horizon", "published"), [(15, 3.516196287), (20, 4.814311826)])
def test_published(horizon, published):
    found = finite.relax_horizon(ObservedArms.of(bernoulli_arms(horizon, 300)), horizon)
    assert found.bound / 300 == pytest.approx(published, abs=5e-10)


@pytest.mark.parametrize("options", [{}, {"at_most": True}])
@pytest.mark.parametrize("horizon", [1, 6])
def test_bounds_equal_the_linear_program(horizon, options, monkeypatch):
    problem = random_problem(5, 2, 7, 3, **options)
    expected, arms = slow_bound(problem, horizon), ObservedArms.of(problem)
    assert finite.relax_horizon(arms, horizon).bound == pytest.approx(expected, abs=1e-9)
    monkeypatch.setattr(finite, "MOST_VARIABLES", 0)
    assert finite.relax_horizon(arms, horizon).bound == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("seed", range(6))
def test_fixed_arms_optimum_bound(seed):
    problem, horizon = random_problem(3, 1, seed, 3, at_most=seed % 2 == 0), 5
    arms = ObservedArms.of(problem)
    best, bound = optimum(problem, horizon), finite.relax_horizon(arms, horizon).bound
    assert finite.fixed_total(arms, horizon) <= best <= bound
    policy = finite.fluid_priority(problem, horizon)
    earned = horizon_rewards(ObservedWorld(problem), policy, horizon, 0.1)
    # Five standard errors: a false alarm has a probability of 3e-7.
    assert earned.mean() - 5 * earned.std(ddof=1) / np.sqrt(len(earned)) <= best


def test_the_loss_of_many_arms_vanishes():
    """The loss of the policy does not grow with the arms (Zhang, Frazier 2021)."""
    found = rb.solve(bernoulli_arms(6, 3000), horizon=6)
    assert found.oracle == "fluid-priority"
    assert found.gain + 5 * found.gain_stderr >= found.upper * (1 - 2e-4)
    assert found.gain - 5 * found.gain_stderr <= found.upper
    again = rb.solve(bernoulli_arms(6, 30), horizon=6)
    assert again.upper * 100 == pytest.approx(found.upper)


def test_the_policy_by_slot(tmp_path):
    problem = random_problem(6, 2, 1)
    policy = rb.solve(problem, horizon=4).policy
    states = [0, 1, 0, 1, 1, 0]
    scores = policy.score[-1].reshape(6, 2)[range(6), states]
    assert set(policy(states, 4)) == set(np.argsort(-scores)[:2].tolist())
    policy.save(tmp_path / "policy.npz")
    again = rb.load_policy(tmp_path / "policy.npz")
    assert all(again(states, slot) == policy(states, slot) for slot in range(1, 5))
    # In the last slot nothing lies ahead.
    assert policy.score[-1] + finite.horizon_relaxation(problem, 4).prices[-1] == pytest.approx(
        np.concatenate([arm.mean_rewards[:, 1] - arm.mean_rewards[:, 0] for arm in problem.arms])
    )


def test_simulations_play_the_horizon():
    problem = random_problem(30, 6, 2)
    found = rb.simulate(problem, ["fluid-priority", "myopic"], horizon=5, runs=200)
    earned = found.expected_reward[found.number("fluid-priority"), :, -1]
    solution = rb.solve(problem, horizon=5)
    error = 5.1 * (earned.std(ddof=1) / np.sqrt(200) + 5 * solution.gain_stderr)
    assert earned.mean() == pytest.approx(5 * solution.gain, abs=error)


def test_who_is_next_before_the_end():
    problem = random_problem(8, 3, 4)
    states = [0, 1] * 4
    last = rb.rank(problem, states, horizon=1)
    pays = [problem.arms[i].mean_rewards[s] @ [-1, 1] for i, s in enumerate(states)]
    assert last.arms.tolist() == np.argsort(-np.array(pays))[:3].tolist()
    usual, long = rb.rank(problem, states), rb.rank(problem, states, horizon=60)
    assert set(long.arms.tolist()) == set(usual.arms.tolist())


def test_mistakes():
    problem = random_problem(4, 1, 0)
    policy = rb.solve(problem, horizon=3).policy
    for ask, sentence in (
        (lambda: rb.solve(problem, "fluid-priority"), "give horizon"),
        (lambda: rb.solve(problem, "whittle", horizon=3), "horizon is for the oracle fluid-priority"),
        (lambda: rb.solve(problem, horizon=0), "horizon is 0"),
        (lambda: rb.solve(problem, horizon=3, discount=0.9), "leave out discount"),
        (lambda: rb.solve(rb.load_problem("paper-1"), horizon=3), "observed = 'all'"),
        (lambda: rb.rank(problem, [0] * 4, horizon=2, oracle="whittle"), "horizon is for"),
        (lambda: policy([0] * 4), r"policy\(states, slot\)"),
        (lambda: policy([0] * 4, 4), "slot is 4"),
        (lambda: finite.relax_horizon(ObservedArms.of(problem.with_arms(4)), 10**8), "fewer slots"),
    ):
        with pytest.raises(rb.ProblemError, match=sentence):
            ask()
