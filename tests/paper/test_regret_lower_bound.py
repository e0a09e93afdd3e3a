"""The least regret that is possible, against a brute-force program, closed forms, and what must not change it."""

import json
import math

import numpy as np
import pytest
from benchmarks import limits
from benchmarks.pages import load
from scipy.optimize import linprog
from typer.testing import CliRunner

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError
from restless_bandits.cli.app import app
from restless_bandits.paper.regret_lower_bound import Arena, nearest_confusing
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels
from restless_bandits.paper.regret_lower_bound.confusion import divergence, extremes
from restless_bandits.paper.regret_lower_bound.identification import free_play, margin, twins
from restless_bandits.paper.theory import regret_limit
from restless_bandits.processes.beliefs import joint_beliefs

CLOSE = 1e-3
"""A relative difference: brackets are a few times 1e-4 wide."""


def sure(mean, **more):
    """An arm of one state: a plain Bernoulli arm."""
    return Arm([[1.0]], [mean], **more)


def kl(a, b):
    return sum(x * math.log(x / y) for x, y in ((a, b), (1 - a, 1 - b)) if x > 0)


class Lone:
    """One unknown arm of two states beside a sure one, by brute force: many models of it at once, in plain NumPy.

    Beliefs are (s, τ) with τ below the cap, side by side for each s, and one where the arm is forgotten.
    """

    truncation = 16

    def __init__(self, sure_mean, arm):
        self.known, self.arm = sure_mean, arm
        self.distribution = self.laws(arm.chain[None])[0]
        self.n = 2 * (self.truncation - 1) + 1
        self.rest = np.minimum(np.arange(self.n) + 1, self.n - 1)
        self.rest[self.truncation - 2] = self.n - 1
        self.seen = np.array([0, self.truncation - 1])

    def laws(self, chains):
        powers = [chains]
        for _ in range(self.truncation - 2):
            powers.append(powers[-1] @ chains)
        rows = [np.stack([power[:, s] for power in powers], axis=1) for s in range(2)]
        stationary = np.stack([chains[:, 1, 0], chains[:, 0, 1]], axis=1)
        return np.concatenate([*rows, (stationary / stationary.sum(axis=1, keepdims=True))[:, None]], axis=1)

    def gain(self, distribution, rewards, sweeps=300):
        """What is earned a slot at best, model by model, by plain value iteration."""
        earned = (distribution * rewards[:, None, :]).sum(axis=2)
        value = np.zeros(distribution.shape[:2])
        for _ in range(sweeps):
            pull = (
                earned
                + distribution[:, :, 0] * value[:, [self.seen[0]]]
                + distribution[:, :, 1] * value[:, [self.seen[1]]]
            )
            better = np.maximum(pull, self.known + value[:, self.rest])
            change = better - value
            value = better - better[:, [-1]]
        return change.min(axis=1)

    def limit(self, chains, rewards):
        """The program with a flow over beliefs and choices, and one row for each of some confusing models."""
        n, distribution = self.n, self.distribution
        cost = np.concatenate([np.zeros(n), self.known - distribution @ self.arm.rewards])  # rest, then pull
        flow = np.zeros((n, 2 * n))
        for b in range(n):
            flow[b, b] += 1.0
            flow[self.rest[b], b] -= 1.0
            flow[b, n + b] += 1.0
            for k in range(2):
                flow[self.seen[k], n + b] -= distribution[b, k]
        others = self.laws(chains)
        looks = (distribution * np.log(distribution / others)).sum(axis=2)
        for k in range(2):
            mean, model = self.arm.rewards[k], rewards[:, k]
            if self.arm.reward_law == "bernoulli":
                told = mean * np.log(mean / model) + (1 - mean) * np.log((1 - mean) / (1 - model))
                looks += distribution[:, k] * told[:, None]
        rows = np.concatenate([np.zeros_like(looks), looks], axis=1)
        # Resting where the arm is forgotten costs nothing, and its flow leads back to itself: free and unlimited.
        return linprog(cost, A_ub=-rows, b_ub=-np.ones(len(rows)), A_eq=flow, b_eq=np.zeros(n)).fun


def edge(pays, low, high, steps=40):
    """Where, between two arrays, ``pays`` turns true; the last place where it is."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        paid = pays(middle)
        low, high = np.where(paid, low, middle), np.where(paid, middle, high)
    return high


def test_brute_force_with_unknown_chain():
    """Rewards of a fixed law are known at once, so models are chains: a curve of them lies at the edge of paying."""
    arm = Arm([[0.5, 0.5], [0.3, 0.7]], [0.9, 0.1], reward_law="fixed")
    lone = Lone(0.5, arm)
    leave = np.linspace(0.01, 0.99, 197)
    rewards = np.tile(arm.rewards, (len(leave), 1))

    def chains(stay):
        return np.stack([np.stack([stay, 1 - stay], 1), np.stack([leave, 1 - leave], 1)], axis=1)

    def pays(stay):
        return lone.gain(lone.laws(chains(stay)), rewards) > lone.known + 1e-6

    stay = edge(pays, np.zeros(len(leave)), np.full(len(leave), 1 - 1e-9))
    there = pays(stay) & (stay > 0.5)
    slope = lone.limit(chains(stay)[there], rewards[there])
    found = regret_limit(Problem([sure(0.5), arm]))
    assert found.exact
    assert found.unused == ("arm 2",)
    assert slope == pytest.approx(found.slope, rel=5e-3)
    assert found.lower <= found.slope <= found.upper <= (1 + CLOSE) * found.lower


def brute_force_of_all(lone, chains, best_means):
    """The program with a row for every chain and mean of the best state of a grid, the worst state's at the edge."""
    count = len(best_means)
    chains, first = np.repeat(chains, count, axis=0), np.tile(best_means, len(chains))
    distribution = lone.laws(chains)

    def means(second):
        return np.stack([first, second], axis=1)

    def pays(second):
        return lone.gain(distribution, means(second), sweeps=120) > lone.known + 1e-6

    second = edge(pays, np.full(len(first), lone.arm.rewards[1]), np.full(len(first), 1 - 1e-9), steps=22)
    there = pays(second) & (second <= first)
    return lone.limit(chains[there], means(second)[there])


def two_state_chains(stays, leaves):
    stay, leave = (one.ravel() for one in np.meshgrid(stays, leaves))
    return np.stack([np.stack([stay, 1 - stay], 1), np.stack([leave, 1 - leave], 1)], axis=1)


def test_brute_force_with_unknown_chain_and_rewards():
    """A learner does not know that states are independent, so the constant lies above that of Lai and Robbins."""
    arm = Arm([[0.4, 0.6], [0.4, 0.6]], [0.7, 0.3])
    found = regret_limit(Problem([sure(0.7), arm]))
    around = np.linspace(0.34, 0.64, 9)
    slope = brute_force_of_all(Lone(0.7, arm), two_state_chains(around, around), np.linspace(0.8, 0.92, 9))
    assert slope <= found.upper
    assert slope >= 0.99 * found.lower
    assert found.upper <= (1 + CLOSE) * found.lower
    # If it did, only laws of state and reward together that are tilted towards rewards would have to be ruled out.
    distribution, paid = np.array([0.4 * 0.7, 0.4 * 0.3, 0.6 * 0.3, 0.6 * 0.7]), np.array([1, 0, 1, 0])
    tilted = [distribution * np.exp(t * paid) for t in np.linspace(0, 3, 30_001)]
    first = next(one / one.sum() for one in tilted if one @ paid >= 0.7 * one.sum())
    assert found.lower > 1.03 * (0.7 - 0.46) / float(distribution @ np.log(distribution / first))


@pytest.mark.parametrize("means", [(0.6, 0.5, 0.3), (0.2, 0.1, 0.15), (0.95, 0.9)])
def test_lai_and_robbins(means):
    """Arms of one state are the classical bandit: Σ gap / KL, one term for each arm that is not the best."""
    found = regret_limit(Problem([sure(mean) for mean in means]))
    best = max(means)
    classical = sum((best - mean) / kl(mean, best) for mean in means if mean < best)
    assert found.lower <= classical <= found.upper <= (1 + CLOSE) * found.lower
    assert len(found.unused) == len(means) - 1
    assert found.exact == (len(means) == 2)


def test_ties_leave_nothing_to_learn_of_the_tied():
    found = regret_limit(Problem([sure(0.5), sure(0.5), sure(0.4)]))
    assert found.unused == ("arm 3",)
    assert found.lower <= 0.1 / kl(0.4, 0.5) <= found.upper


@pytest.mark.parametrize("name", ["paper-1", "paper-2", "lms-urban-s", "lms-heavy-tree-s", "rf-2"])
def test_nothing_where_optimal_play_identifies_all_arms(name):
    found = regret_limit(Problem.builtin(name))
    assert (found.slope, found.lower, found.upper, found.unused, found.exact) == (0.0, 0.0, 0.0, (), True)
    assert found.margin > 1.0
    assert found.model is None
    assert "identifies every arm" in found.sentence


@pytest.mark.slow
def test_the_arm_that_optimal_play_of_lms_suburban_l_never_pulls():
    problem = Problem.builtin("lms-suburban-l")
    found = regret_limit(problem)
    assert 19.3 < found.lower <= found.slope <= found.upper < 19.45
    assert found.unused == ("60 deg",)
    assert found.exact
    before, after = problem.arms[1], found.model.arms[1]
    assert (after.rewards - before.rewards).round(2).tolist() == [0.03, 0.02]
    assert rb.oracles.exact(found.model).lower > rb.oracles.exact(problem).upper
    # It enters that arm when arms 3 and 1 were just seen bad, which optimal play never does, stays while it is good and
    # arm 3 has waited less than four slots, and leaves it once it is bad.
    assert found.policy((1, 1, 1), (2, 100, 1)) == 1
    assert rb.oracles.exact(problem).policy((1, 1, 1), (2, 100, 1)) != 1
    assert [found.policy((1, 0, 1), (8, 1, waited)) for waited in (2, 3, 4, 5)] == [1, 1, 2, 2]
    assert found.policy((1, 1, 1), (8, 1, 2)) == 2


HALF = Arm([[0.5, 0.5], [0.3, 0.7]], [0.9, 0.1], reward_law="fixed", name="unknown")
KNOWN = sure(0.5, name="known", reward_law="fixed")


@pytest.fixture(scope="module")
def plain():
    return regret_limit(Problem([KNOWN, HALF]))


def with_rewards(change):
    arms = (KNOWN, HALF)
    return Problem([Arm(a.transitions, change(a.rewards), name=a.name, reward_law="fixed") for a in arms])


def test_rewards_of_a_fixed_law_scale_the_limit(plain):
    """What is seen tells of chains alone, so gaps scale with rewards and confusing models stay what they are."""
    assert regret_limit(with_rewards(lambda r: r / 2)).slope == pytest.approx(plain.slope / 2, rel=CLOSE)


def test_a_constant_added_to_rewards_of_a_fixed_law_changes_nothing(plain):
    assert regret_limit(with_rewards(lambda r: r + 0.1)).slope == pytest.approx(plain.slope, rel=CLOSE)


def test_the_order_of_arms_changes_nothing(plain):
    found = regret_limit(Problem([HALF, KNOWN]))
    assert found.slope == pytest.approx(plain.slope, rel=CLOSE)
    assert found.unused == plain.unused == ("unknown",)


def test_an_arm_that_one_look_rules_out_changes_nothing(plain):
    found = regret_limit(Problem([KNOWN, HALF, sure(0.2, reward_law="fixed")]))
    assert found.slope == pytest.approx(plain.slope, rel=CLOSE)
    assert found.exact


def test_an_arm_that_no_model_makes_pay_is_unused_and_costs_nothing():
    """Its best reward, known once it was seen, is less than what is earned without it."""
    hopeless = Arm([[0.5, 0.5], [0.3, 0.7]], [0.8, 0.1], reward_law="fixed")
    found = regret_limit(Problem([sure(0.9), hopeless]))
    assert (found.slope, found.upper, found.unused) == (0.0, 0.0, ("arm 2",))
    assert "no model of it would pay" in found.sentence


def test_unknown_arms_add_up_beside_a_sure_one():
    """A pull costs what its own arm falls short of the sure one, so excursions to one arm do not help with another."""
    one, other = Arm([[0.6, 0.4], [0.3, 0.7]], [0.6, 0.2]), sure(0.4)
    both = regret_limit(Problem([sure(0.7), one, other]))
    assert not both.exact
    assert len(both.unused) == 2
    alone = regret_limit(Problem([sure(0.7), one])).slope + 0.3 / kl(0.4, 0.7)
    assert both.slope == pytest.approx(alone, rel=CLOSE)


def test_what_optimal_play_of_paper_1_looks_at():
    """Free play is what the optimal policy, followed by hand, does in the long run."""
    problem = Problem.builtin("paper-1")
    arena = Arena(problem, joint_beliefs(problem, [12, 12]), 1e-8)
    play = free_play(arena)
    policy, rng = rb.oracles.exact(problem).policy, np.random.default_rng(1)
    met, states, elapsed = [set(), set()], [1, 1], [1, 1]
    for slot in range(4_000):
        arm = policy(states, elapsed)
        if slot > 50 and elapsed[arm] < 5:
            met[arm].add((states[arm], elapsed[arm]))
        distribution = np.linalg.matrix_power(problem.arms[arm].chain, elapsed[arm])[states[arm]]
        elapsed = [tau + 1 for tau in elapsed]
        states[arm], elapsed[arm] = int(rng.random() > distribution[0]), 1
    cells = [
        {(s, tau) for s in range(2) for tau in range(1, 5) if looked[arm.locate(s, tau)]}
        for looked, arm in zip(play.looked, arena.joint.arms, strict=True)
    ]
    assert cells[0] == met[0] == {(0, 1), (1, 2), (1, 3)}
    assert cells[1] == met[1] == {(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)}
    assert play.smallest > 1e-3


def test_which_beliefs_determine_a_chain():
    arm, truncation = Arm([[0.3, 0.7], [0.6, 0.4]], [1.0, 0.0]), 9

    def looked(*taus):
        one = np.zeros(2 * (truncation - 1) + 1, dtype=bool)
        one[[s * (truncation - 1) + tau - 1 for s in range(2) for tau in taus]] = True
        return one

    long_ago = np.arange(2 * (truncation - 1) + 1) == 2 * (truncation - 1)
    assert margin(arm, looked(1), truncation) > 1.0
    assert margin(arm, looked(2), truncation) > 0.1
    assert margin(arm, long_ago, truncation) < 1e-9
    assert margin(arm, looked(), truncation) == 0.0
    # Waits of two slots cannot tell λ from −λ; those of one and two can.
    (twin,) = twins(arm, looked(2), truncation)
    assert twin.chain[0, 0] + twin.chain[1, 1] - 1 == pytest.approx(0.3, abs=1e-4)
    assert np.linalg.matrix_power(twin.chain, 2) == pytest.approx(np.linalg.matrix_power(arm.chain, 2), abs=1e-5)
    assert twins(arm, looked(1, 2), truncation) == []


def test_a_twin_that_optimal_play_cannot_tell_is_a_confusing_model():
    """Rank finds all identified, but a chain far away has the same laws: one pull out of turn tells them apart."""
    problem = Problem([Arm([[0.1, 0.9], [0.9, 0.1]], [1, 0]), Arm([[0.2, 0.8], [0.8, 0.2]], [0.8, 0])])
    found = regret_limit(problem)
    assert found.unused == ("arm 1",)
    assert found.model.arms[0].chain == pytest.approx(np.array([[0.8, 0.2], [0.9, 0.1]]), abs=1e-6)
    # After its good state optimal play leaves the first arm for a slot, so (0, 1) is what it never looks at.
    table = Arena(problem, joint_beliefs(problem, [60, 60]), 1e-8)
    resting = free_play(table).free.any(axis=1)
    there = resting & (table.links.belief[:, 0] == table.joint.arms[0].locate(0, 1))
    assert found.lower <= table.gap[there, 0].min() / kl(0.1, 0.8) <= found.upper


@pytest.fixture(scope="module")
def arena():
    problem = Problem([Arm([[0.8, 0.2], [0.3, 0.7]], [0.8, 0.4]), Arm([[0.6, 0.4], [0.2, 0.8]], [0.6, 0.3])])
    found = Arena(problem, joint_beliefs(problem, [30, 30]), 1e-8)
    assert found.gain == pytest.approx(rb.oracles.exact(problem).gain, abs=1e-6)
    return found


def test_no_model_nearby_is_nearer_and_pays(arena):
    rng = np.random.default_rng(5)
    true = arena.problem.arms[1]
    weights = rng.random(arena.joint.arms[1].size)
    found = [nearest_confusing(arena, 1, weights, start) for start in extremes(true)]
    best = min((one for one in found if one is not None), key=lambda one: one.distance)
    assert arena.solve(1, best.model).gain == pytest.approx(best.gain, abs=1e-7)
    assert best.gain > arena.gain
    assert best.distance == pytest.approx(weights @ divergence(true, best.model, 30))
    tried = 0
    for _ in range(400):
        chain = best.model.chain + rng.normal(scale=0.02, size=(2, 1)) * [[1, -1]]
        other = Arm(chain.clip(0.01, 0.99), (best.model.rewards + rng.normal(scale=0.02, size=2)).clip(0.01, 0.99))
        if weights @ divergence(true, other, 30) < (1 - CLOSE) * best.distance:
            tried += 1
            assert arena.solve(1, other).gain < arena.gain + 1e-6
    assert tried > 100


def test_nearest_rewards_meet_the_conditions_of_an_optimum():
    rng = np.random.default_rng(3)
    for _ in range(200):
        seen, means, share = rng.random(3) + 0.01, np.sort(rng.random(3))[::-1].copy(), rng.random(3)
        need = share @ means + rng.random() * share @ (1 - means)
        found = np.empty(3)
        assert kernels.nearest_rewards(seen, means, share, need, False, False, found) == 0.0
        assert share @ found == pytest.approx(need)
        price = seen * (found - means) / (found * (1 - found)) / share
        assert price == pytest.approx(np.full(3, price.mean()), rel=1e-6)
        ordered = np.empty(3)
        kernels.nearest_rewards(seen, means, share, need, True, False, ordered)
        assert (np.diff(ordered) <= 1e-12).all()
        assert share @ ordered == pytest.approx(need)
        if (np.diff(found) <= 0).all():
            assert ordered == pytest.approx(found)


def test_the_policy_explores_at_the_price_that_is_named(plain):
    """Where one policy bears all of the cost, what it loses for each unit of information is the limit."""
    problem = Problem([KNOWN, HALF])
    assert "bears 100%" in plain.how
    table = Arena(problem, plain.policy.beliefs, 1e-8)
    play = table.follow(plain.policy.action)
    loss = 0.5 - rb.evaluate(problem, plain.policy).gain
    assert loss == pytest.approx(play.cost, rel=1e-6)
    told = divergence(HALF, plain.model.arms[1], table.truncations[1])
    assert plain.lower <= loss / float(play.pulls[1, : len(told)] @ told) <= (1 + CLOSE) * plain.upper


@pytest.mark.parametrize(
    ("problem", "complaint"),
    [
        (Problem.builtin("queue-5"), "has 4 arms of up to 5 states"),
        (Problem.builtin("table-5"), "has 5 arms of up to 2 states"),
        (Problem.builtin("lms-urban-l"), "its chains forget too slowly"),
        (Problem([sure(0.5), sure(0.4)], plays=2), "plays is 2"),
        (Problem([sure(0.5), Arm([[0, 1], [1, 0]], [1, 0], name="clock")]), "'clock' is no chain that forgets"),
    ],
)
def test_what_is_out_of_reach_says_so(problem, complaint):
    with pytest.raises(ProblemError, match=complaint):
        regret_limit(problem)


def test_command(tmp_path):
    path = tmp_path / "two.toml"
    Problem([sure(0.6), sure(0.5)], name="two").save(path)
    shown = CliRunner().invoke(app, ["check", str(path), "--limit"]).stdout
    assert "limit: 4.9" in shown
    assert "for each unit of ln T" in shown
    answer = json.loads(CliRunner().invoke(app, ["check", str(path), "--limit", "--json"]).stdout)["limit"]
    assert answer["lower"] <= 0.1 / kl(0.5, 0.6) <= answer["upper"]
    assert answer["unused"] == ["arm 2"]
    assert answer["model"][0]["name"] == "arm 2"
    assert answer["model"][0]["rewards"][0] == pytest.approx(0.6, abs=1e-3)
    assert "limit" not in json.loads(CliRunner().invoke(app, ["check", str(path), "--json"]).stdout)
    assert "limit: 0" in CliRunner().invoke(app, ["check", "paper-2", "--limit"]).stdout
    refused = CliRunner().invoke(app, ["check", "queue-5", "--limit"])
    assert isinstance(refused.exception, ProblemError)


def test_the_page_shows_what_is_kept():
    page = limits.PAGE.read_text(encoding="utf-8")
    assert limits.written(page) == page
    kept = load(limits.KEPT)
    assert list(kept) == list(rb.builtin_problems(()))
    identified = ("paper-1", "paper-2", "lms-urban-s", "lms-heavy-tree-s", "rf-2", "rf-3")
    assert all(kept[name]["upper"] == 0 and kept[name]["margin"] > 1 for name in identified)
    assert 19.3 < kept["lms-suburban-l"]["lower"] <= kept["lms-suburban-l"]["upper"] < 19.45
    assert {name for name, found in kept.items() if "refused" in found} == {"queue-5", "table-5", "lms-urban-l"}
