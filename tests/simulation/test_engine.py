"""The compiled engine against plain Python, and what its accounts must say."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, IndexPolicy, Problem
from restless_bandits._internal.random_streams import plan_generator, world_words
from restless_bandits.model.record import BIN_EDGES, N_BINS, Record, elapsed_bin
from restless_bandits.policies import (
    CountDoubled,
    Cycle,
    EmpiricalUCB,
    EveryStateSeen,
    Forever,
    Plan,
    SeenIn,
    SingleArm,
    Slots,
)
from restless_bandits.policies.plans import RuleWatch
from restless_bandits.simulation.engine import GapTable, Run, World, play_run
from tests import reference


def random_index_policy(problem, seed, length=7):
    rng = np.random.default_rng(seed)
    return IndexPolicy(tuple(rng.random((n + 1, length)) for n in problem.n_states), problem.plays)


def plain_run(problem, plans, horizon, seed):
    """The slot loop in plain Python: record, rules and accounts one slot at a time."""
    world = reference.World(problem, world_words(seed, problem.content, 0))
    record = Record(problem.n_states, problem.initial)
    plans = iter(plans)
    while record.slots < horizon:
        plan = next(plans)
        watch, started = RuleWatch(plan.until, record), record.slots
        while record.slots < horizon:
            arms = plan.policy.choose_now(record)
            previous = [(int(record.last_state[i]), int(record.elapsed[i])) for i in arms]
            states, rewards = world.pull(arms)
            record.observe(arms, states, rewards)
            if watch.met(record, arms, previous):
                break
        record.plan_lengths.append(record.slots - started)
    return world, record


def compiled_run(problem, plans, horizon, seed, checkpoints=None, gap_table=None):
    points = np.array([horizon] if checkpoints is None else checkpoints)
    run = Run(World(problem, gap_table), horizon, points, world_words(seed, problem.content, 0), trace=True)
    for plan in plans:
        if run.done:
            break
        run.play(plan)
    return run


def assert_same(run, world, record):
    """Draw for draw: every pull, state and reward, every count, every plan's length."""
    arms = np.array([arms for arms, _, _ in world.history])
    np.testing.assert_array_equal(run.trace.arms, arms)
    np.testing.assert_array_equal(run.trace.states, [states for _, states, _ in world.history])
    np.testing.assert_array_equal(run.trace.rewards, [rewards for _, _, rewards in world.history])
    for name in ("flat_counts", "flat_visits", "flat_seen", "flat_rewards", "pulls", "last_state", "last_slot"):
        np.testing.assert_array_equal(getattr(run.record, name), getattr(record, name), err_msg=name)
    for arm in range(record.n_arms):
        np.testing.assert_array_equal(record.seen(arm), record.counts(arm).sum(axis=(0, 1)))
        np.testing.assert_array_equal(record.visits(arm), record.counts(arm).sum(axis=2))
        assert record.pulls[arm] == record.counts(arm).sum()
    assert run.record.plan_lengths == record.plan_lengths
    assert run.record.slots == record.slots
    assert run.totals.sums[0] == pytest.approx(sum(sum(rewards) for _, _, rewards in world.history))
    assert run.totals.sums[1] == pytest.approx(world.expected, abs=1e-9)


PROBLEMS = {
    "paper": Problem.builtin("paper-1"),
    "mixed": Problem.random(3, [2, 4, 1], seed=1),
    "unknown": Problem.random(3, [2, 3, 2], seed=2, initial="unknown"),
    "two plays": Problem.random(4, 2, seed=3, plays=2),
    "fixed": Problem.random(2, 3, seed=4, reward_law="fixed"),
    "slow": Problem([Arm.two_state(0.999, 0.998, initial=0), Arm.two_state(0.5, 0.5, (0.4, 0.2), initial=0)]),
    "periodic": Problem([Arm([[0, 1], [1, 0]], [1, 0], initial=0), Arm.two_state(0.7, 0.8, initial=1)]),
    "many": Problem.random(40, 2, seed=5),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("kind", ["index", "single", "cycle", "ucb", "whittle"])
def test_every_policy_matches_the_plain_loop(name, kind):
    problem = PROBLEMS[name]
    policy = {
        "index": lambda: random_index_policy(problem, 1),
        "single": lambda: SingleArm(problem.n_arms - 1, problem.plays),
        "cycle": lambda: Cycle(problem.plays),
        "ucb": lambda: EmpiricalUCB(2.0, problem.plays),
        "whittle": lambda: rb.oracles.policy("whittle", problem),
    }[kind]()
    plans = [Plan(policy, Slots(700)), Plan(Cycle(problem.plays), Slots(3)), Plan(policy, Forever())]
    run = compiled_run(problem, plans, 1500, seed=3)
    assert_same(run, *plain_run(problem, plans, 1500, seed=3))


@pytest.mark.parametrize("name", ["paper", "mixed", "unknown", "two plays", "periodic"])
def test_joint_policies_match_the_plain_loop(name):
    problem = PROBLEMS[name]
    plans = [Plan(rb.oracles.policy("exact", problem), Forever())]
    assert_same(compiled_run(problem, plans, 800, seed=5), *plain_run(problem, plans, 800, seed=5))


RULES = {
    "slots": Slots(7),
    "no slots": Slots(0),
    "every": EveryStateSeen(0, 12),
    "every met at once": EveryStateSeen(0, 0),
    "seen": SeenIn(1, 0),
    "doubled": CountDoubled(),
    "doubled from 3 on": CountDoubled(cap=3),
    "more than doubled from 3 on": CountDoubled(cap=3, strict=True),
    "either": CountDoubled() | Slots(20) | SeenIn(0, 0),
    "two of a kind": EveryStateSeen(0, 30) | EveryStateSeen(1, 5),
    "for ever": Forever(),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["paper", "unknown", "two plays"])
def test_every_rule_matches_the_plain_loop(rule, name):
    problem = PROBLEMS[name]

    def plans():
        for i in itertools.count():
            for policy in (random_index_policy(problem, 3 * i), SingleArm(0, problem.plays), Cycle(problem.plays)):
                yield Plan(policy, RULES[rule])

    run = compiled_run(problem, plans(), 1200, seed=9)
    assert_same(run, *plain_run(problem, plans(), 1200, seed=9))
    if rule == "slots":
        assert set(run.record.plan_lengths[:-1]) == {7}


def test_a_pool_begins_with_the_bin_of_its_cap():
    problem = PROBLEMS["paper"]
    assert elapsed_bin(650) == elapsed_bin(720) == elapsed_bin(700) < elapsed_bin(900)

    def plans():
        for wait in itertools.cycle((650, 720, 900)):
            yield Plan(SingleArm(0), Slots(wait))
            yield Plan(SingleArm(1), CountDoubled(cap=700) | Slots(2))

    run = compiled_run(problem, plans(), 30_000, seed=1)
    assert_same(run, *plain_run(problem, plans(), 30_000, seed=1))
    assert {1, 2} <= set(run.record.plan_lengths)


def test_a_rule_looks_at_its_own_plan_only():
    problem = PROBLEMS["paper"]
    plans = [Plan(SingleArm(0), rule) for rule in (Slots(40), CountDoubled(), CountDoubled(strict=True), Forever())]
    run = compiled_run(problem, plans, 400, seed=2)
    assert_same(run, *plain_run(problem, plans, 400, seed=2))
    assert min(run.record.plan_lengths[1:3]) > 10


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(17, 60), st.integers(1, 9))
def test_many_arms_take_the_tree_and_choose_alike(seed, n_arms, length):
    """Indices with few values make ties, which must go to the lowest arm in both."""
    problem = Problem.random(n_arms, 2, seed=seed)
    rng = np.random.default_rng(seed)
    tables = tuple(rng.integers(0, 5, size=(3, length)) / 4 for _ in range(n_arms))
    plans = [Plan(IndexPolicy(tables), Slots(90)), Plan(IndexPolicy(tables), Forever())]
    assert_same(compiled_run(problem, plans, 150, seed), *plain_run(problem, plans, 150, seed))


def test_checkpoints_are_the_sums_at_their_slots():
    problem = PROBLEMS["paper"]
    plans = [Plan(random_index_policy(problem, 1), Slots(33))] * 100
    points = [1, 2, 33, 34, 500, 1000]
    run = compiled_run(problem, plans, 1000, seed=1, checkpoints=points)
    rewards = np.cumsum(run.trace.rewards.sum(axis=1))
    np.testing.assert_allclose(run.totals.at[:, 0], rewards[np.array(points) - 1])


class TestGap:
    @pytest.mark.parametrize("name", ["paper", "unknown", "two plays", "mixed"])
    def test_the_optimal_player_has_none(self, name):
        problem = PROBLEMS[name]
        solution = rb.oracles.exact(problem)
        run = compiled_run(problem, [Plan(solution.policy, Forever())], 3000, seed=2, gap_table=GapTable.of(solution))
        assert run.totals.sums[2] == 0

    @pytest.mark.parametrize("name", ["paper", "unknown", "two plays"])
    def test_is_the_price_of_each_choice(self, name):
        """Summed again from the trace with the policy's own lookups."""
        problem = PROBLEMS[name]
        solution = rb.oracles.exact(problem)
        policy = random_index_policy(problem, 7)
        run = compiled_run(problem, [Plan(policy, Forever())], 400, seed=2, gap_table=GapTable.of(solution))
        record = Record(problem.n_states, problem.initial)
        total = 0.0
        actions = solution.policy.beliefs.actions.tolist()
        for arms, states, rewards in zip(*run.trace, strict=True):
            joint = solution.policy.beliefs.locate(record.last_states[None], record.elapsed[None])
            values = solution.policy.action_values(joint)[0]
            total += values.max() - values[actions.index(arms.tolist())]
            record.observe(arms.tolist(), states.tolist(), rewards.tolist())
        assert run.totals.sums[2] == pytest.approx(total, abs=1e-8)


def test_no_table_of_gaps_where_there_is_no_bias():
    frozen = Problem([Arm(np.eye(2), [1, 0], initial=1), Arm(np.eye(2), [0.7, 0.2], initial=0)])
    assert GapTable.of(rb.oracles.exact(frozen)) is None
    assert GapTable.of(rb.oracles.whittle(PROBLEMS["paper"])) is None


def test_a_policy_the_engine_does_not_know():
    class Own(rb.Policy):
        pass

    with pytest.raises(rb.ProblemError, match="the simulator cannot play a Own"):
        compiled_run(PROBLEMS["paper"], [Plan(Own(), Forever())], 10, seed=0)


def test_bins_of_elapsed_slots():
    assert [elapsed_bin(tau) for tau in (1, 2, 512)] == [0, 1, 511]
    assert elapsed_bin(513) == 512
    for b in range(512, N_BINS - 1):
        assert elapsed_bin(int(BIN_EDGES[b])) == b
        assert elapsed_bin(int(BIN_EDGES[b + 1]) - 1) == b
    assert elapsed_bin(1 << 50) == N_BINS - 1


def test_streams_do_not_meet():
    """Different coordinates, different draws; the same ones, the same draws."""
    words = {tuple(world_words(seed, content, run)) for seed in (0, 1) for content in ("", "ab") for run in range(3)}
    assert len(words) == 12
    firsts = {plan_generator(0, "ab", run, plan).random() for run in range(3) for plan in range(3)}
    assert len(firsts) == 9
    assert plan_generator(0, "ab", 1, 2).random() == plan_generator(0, "ab", 1, 2).random()


@given(
    st.integers(0, 1 << 150),
    st.one_of(st.just(""), st.text("0123456789abcdef", min_size=1, max_size=64)),
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
)
def test_the_generator_of_a_plan_is_that_of_its_coordinates(seed, content, run, plan):
    key = (int(content[:32] or "0", 16), run, 1, plan)
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
    assert plan_generator(seed, content, run, plan).random(3).tolist() == expected.random(3).tolist()


def test_law_of_what_is_seen():
    """Frequencies after fixed waits against P^τ: chi-square over 8 cells, each at a false-alarm rate of 1e-6 / 8.

    A law off by 0.02 in one entry would be found with near certainty at these counts.
    """
    problem = Problem([Arm.two_state(0.7, 0.8, initial=1), Arm.two_state(0.6, 0.9, (0.5, 0.1), initial=1)])
    run = compiled_run(problem, [Plan(random_index_policy(problem, 3), Forever())], 200_000, seed=11)
    jobs = 0
    for i, arm in enumerate(problem.arms):
        laws = arm.state_distributions(4)
        for s in range(2):
            for tau in (1, 2):
                counts = run.record.counts(i)[s, tau - 1]
                if counts.sum() > 1000:
                    jobs += 1
                    expected = counts.sum() * laws[tau, s]
                    assert ((counts - expected) ** 2 / expected).sum() < 28.4
    assert jobs >= 3


def test_what_was_seen_follows_from_the_counts():
    problem = rb.Problem.random(n_arms=5, n_states=3, seed=1, plays=2)
    record = play_run(rb.learner("ucb1"), World(problem), 500, np.array([500]), seed=0, run=0).record
    again = Record.from_dict(problem.task(), record.to_dict())
    assert np.array_equal(again.flat_seen, record.flat_seen)
    for arm in range(5):
        assert np.array_equal(record.seen(arm), record.counts(arm).sum(axis=(0, 1)))
    assert np.array_equal(record.pulls, [record.visits(arm).sum() for arm in range(5)])
