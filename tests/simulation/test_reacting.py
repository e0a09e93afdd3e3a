"""Runs on arms that react to pulls: the engine against a direct simulation of the hidden chains."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits._internal.random_streams import world_words
from restless_bandits.policies.plans import Forever, Plan, Slots
from restless_bandits.simulation.engine import Run, World

SLOTS = 200_000


def problem(setup_cost=0.15, plays=1, initial=(None, 1, [0.2, 0.3, 0.5])):
    """Three arms: of two and three states, paid at rest or not, with three kinds of starts."""
    one = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]], setup_cost=setup_cost,
                 initial=initial[0])  # fmt: skip
    two = rb.Arm([[0.8, 0.2], [0.3, 0.7]], [0.8, 0], active_transitions=[[0.5, 0.5], [0.2, 0.8]],
                 passive_rewards=[0.3, 0.1], initial=initial[1])  # fmt: skip
    chains = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]], [[0.2, 0.2, 0.6], [0.3, 0.4, 0.3], [0.5, 0.3, 0.2]]
    three = rb.Arm(chains[0], [0.9, 0.5, 0.1], active_transitions=chains[1], passive_rewards=[0.0, 0.0, 0.2],
                   setup_cost=setup_cost / 2, initial=initial[2])  # fmt: skip
    return rb.Problem([one, two, three], plays=plays)


def played(problem, policy, slots=SLOTS, seed=0, checkpoints=None):
    points = np.array([slots] if checkpoints is None else checkpoints)
    run = Run(World(problem), slots, points, world_words(seed, problem.content, 0), trace=True)
    run.play(Plan(policy, Forever()))
    return run


def hidden(problem, policy, slots, seed):
    """The mean reward of each of a hundred stretches, with all chains drawn in every slot."""
    rng = np.random.default_rng(seed)
    n = problem.n_arms
    chains = [(np.cumsum(arm.chain, axis=1), np.cumsum(arm.active_chain, axis=1)) for arm in problem.arms]
    pays = [arm.mean_rewards for arm in problem.arms]
    states = [int(rng.choice(arm.n_states, p=arm.initial_distribution)) for arm in problem.arms]
    last, slot_of, pulled = np.full(n, -1), np.zeros(n, dtype=int), ()
    draws, total = rng.random((slots, n)), np.zeros(slots)
    choices = {}
    for slot in range(1, slots + 1):
        for i in range(n):
            states[i] = int(np.searchsorted(chains[i][i in pulled][states[i]], draws[slot - 1, i], side="right"))
        elapsed = np.minimum(slot - slot_of, 60)
        key = (*last.tolist(), *elapsed.tolist())
        if key not in choices:
            choices[key] = tuple(policy.choose(last[None], elapsed[None])[0].tolist())
        before, pulled = pulled, choices[key]
        for i in range(n):
            total[slot - 1] += pays[i][states[i], int(i in pulled)]
            if i in pulled:
                total[slot - 1] -= problem.arms[i].setup_cost * (i not in before)
                last[i], slot_of[i] = states[i], slot
    return total.reshape(100, -1).mean(axis=1)


@pytest.mark.parametrize("plays", [1, 2])
@pytest.mark.parametrize("oracle", ["exact", "whittle"])
def test_the_engine_earns_what_hidden_chains_pay(oracle, plays):
    some = problem(plays=plays)
    policy = oracles.policy(oracle, some)
    gain = oracles.evaluate(some, policy).gain
    run = played(some, policy)
    direct = hidden(some, policy, 20_000, seed=5)
    error = direct.std(ddof=1) / 10
    # Two-sided, four standard errors: a false alarm once in 16,000; stretches are as good as independent.
    assert abs(direct.mean() - gain) < 4 * error
    expected, realised = run.totals.at[-1, 1] / SLOTS, run.totals.at[-1, 0] / SLOTS
    assert abs(expected - gain) < 4 * 0.5 / np.sqrt(SLOTS / 10)
    assert abs(realised - gain) < 4 * 0.5 / np.sqrt(SLOTS / 10)


@pytest.mark.slow
def test_a_million_slots_of_hidden_chains_earn_the_certified_optimum():
    some = problem()
    found = oracles.exact(some)
    direct = hidden(some, found.policy, 1_000_000, seed=6)
    assert found.certified
    assert abs(direct.mean() - found.gain) < 4 * direct.std(ddof=1) / 10


def test_expected_pay_is_the_mean_given_the_beliefs():
    some = problem()
    points = np.array([1, 2, 3, 10, 57, 300])
    run = played(some, oracles.policy("whittle", some), slots=300, checkpoints=points)
    arms, states = run.trace.arms[:, 0], run.trace.states[:, 0]
    beliefs = [arm.initial_distribution for arm in some.arms]
    total, paid, pulled = 0.0, [], -1
    for slot in range(300):
        for i, arm in enumerate(some.arms):
            if i == pulled:
                beliefs[i] = np.eye(arm.n_states)[states[slot - 1]] @ arm.active_chain
            else:
                beliefs[i] = beliefs[i] @ arm.chain
        for i, arm in enumerate(some.arms):
            total += beliefs[i] @ arm.mean_rewards[:, int(i == arms[slot])]
        total -= some.arms[arms[slot]].setup_cost * (arms[slot] != pulled)
        pulled = arms[slot]
        paid.append(total)
    assert run.totals.at[:, 1] == pytest.approx(np.array(paid)[points - 1], abs=1e-9)


def test_a_plan_goes_on_where_the_last_one_ended():
    some = problem()
    policy = oracles.policy("whittle", some)
    whole = played(some, policy, slots=400, checkpoints=[100, 400])
    parts = Run(World(some), 400, np.array([100, 400]), world_words(0, some.content, 0), trace=True)
    while not parts.done:
        parts.play(Plan(policy, Slots(7)))
    assert np.array_equal(parts.trace.arms, whole.trace.arms)
    assert parts.totals.at == pytest.approx(whole.totals.at, abs=1e-9)


class TestSimulate:
    def test_regret_against_the_certified_optimum(self):
        some = problem()
        result = rb.simulate(some, ["exact", "whittle", "round-robin", "myopic"], 4000, runs=20, seed=1)
        assert result.comparator.kind == "exact"
        for kind in ("expected", "gap"):
            exact, _, robin, _ = result.regret(kind)[:, :, -1].mean(axis=1)
            assert abs(exact) < 6
            assert robin > 100
        gap, expected = (result.regret(kind)[:, :, -1] for kind in ("gap", "expected"))
        # The gaps of a run add up to its regret but for the bias at both ends and a martingale.
        assert np.abs(gap.mean(axis=1) - expected.mean(axis=1)).max() < 25

    def test_lost_and_late_answers(self):
        some = problem()
        prompt, lost = (
            rb.simulate(some, "whittle", 1000, runs=5, seed=1, lost=share, late=share and 3) for share in (0, 0.2)
        )
        ours, theirs = (result.regret("expected")[0, :, -1].mean() for result in (prompt, lost))
        assert ours < theirs < 300

    def test_evaluate_by_simulation(self):
        some = problem()
        policy = oracles.policy("myopic", some)
        found, exact = rb.evaluate(some, policy, simulate=True), rb.evaluate(some, policy)
        assert abs(found.gain - exact.gain) < 5 * found.stderr

    def test_a_walk_shows_all_states(self):
        walk = rb.walk(problem(), "round-robin", horizon=500, seed=2)
        assert walk.states.shape == (500, 3)
        assert (walk.last_states[0] == [-1, -1, -1]).all()
        seen = walk.pulled[:-1, 1]
        assert np.array_equal(walk.last_states[1:, 1][seen], walk.states[:-1, 1][seen])
