import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from restless_bandits import Arm, Problem, ProblemError, oracles
from restless_bandits.learning.learners import RoundRobin, thompson
from restless_bandits.learning.learners.thompson import ThompsonSampling, draw_rewards
from restless_bandits.model.record import BIN_EDGES, Record, elapsed_bin
from restless_bandits.policies import AnyOf, CountDoubled, IndexPolicy, JointPolicy, Slots
from restless_bandits.policies.plans import RuleTable
from restless_bandits.simulation.engine import GapTable, World, play_run

PAPER = {name: Problem.builtin(name) for name in ("paper-1", "paper-2")}
THREE_STATES = [
    [[0.8, 0.2, 0.0], [0.3, 0.4, 0.3], [0.0, 0.5, 0.5]],
    [[0.5, 0.5, 0.0], [0.2, 0.6, 0.2], [0.0, 0.1, 0.9]],
    [[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0.7, 0.2, 0.1]],
]


@pytest.fixture(scope="module")
def priced():
    return {name: World(problem, GapTable.of(oracles.exact(problem))) for name, problem in PAPER.items()}


def slow_posterior(matrices, observations):
    """Bayes' rule, one observation (s, τ, k) after the other; s is None for a first sight."""
    weights = [1.0 / len(matrices)] * len(matrices)
    for s, tau, k in observations:
        for j, matrix in enumerate(matrices):
            chain = np.array(matrix, dtype=float)
            if s is None:
                weights[j] *= np.linalg.matrix_power(0.5 * chain + 0.5 * np.eye(len(chain)), 2000)[0][k]
            else:
                weights[j] *= np.linalg.matrix_power(chain, tau)[s][k]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    return np.array(weights)


def grid(values):
    return [[[a, 1 - a], [1 - b, b]] for a, b in itertools.product(values, values)]


def watched(n_states, waits, states, known):
    """A record of one arm seen after such waits in such states, and the observations in it."""
    record = Record([n_states], [0 if known else None])
    observations, last = [], 0 if known else None
    for wait, state in zip(waits, states, strict=True):
        if wait > 1:
            record.skip(wait - 1)
        record.observe([0], [state], [0.0])
        observations.append((last, wait, state))
        last = state
    return record.frozen(), observations


@pytest.mark.parametrize(
    ("support", "values"), [(9, np.arange(1, 10) / 10), (4, np.arange(1, 5) / 5), ([0.2, 0.5, 0.8], [0.2, 0.5, 0.8])]
)
@settings(max_examples=15)
@given(seen=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 1)), max_size=25), known=st.booleans())
def test_the_posterior_is_bayes_rule(support, values, seen, known):
    record, observations = watched(2, [wait for wait, _ in seen], [state for _, state in seen], known)
    learner = ThompsonSampling(support=support)
    np.testing.assert_allclose(learner.chains(2), grid(values), atol=1e-15)
    expected = slow_posterior(grid(values), observations)
    np.testing.assert_allclose(learner.posterior(record, 0), expected, rtol=1e-9, atol=1e-13)


@given(seen=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2)), max_size=20), known=st.booleans())
def test_supports_of_matrices(seen, known):
    record, observations = watched(3, [wait for wait, _ in seen], [state for _, state in seen], known)
    expected = slow_posterior(THREE_STATES, observations)
    learner = ThompsonSampling(support=THREE_STATES)
    np.testing.assert_allclose(learner.posterior(record, 0), expected, rtol=1e-9, atol=1e-13)


def test_long_waits_count_as_the_first_wait_of_their_bin():
    slow = [[[0.999, 0.001], [0.001, 0.999]], [[0.9999, 0.0001], [0.0002, 0.9998]]]
    wait = 3000
    first = int(BIN_EDGES[elapsed_bin(wait)])
    assert 512 < first < wait
    record, _ = watched(2, [wait, wait], [1, 1], known=True)
    expected = slow_posterior(slow, [(0, first, 1), (1, first, 1)])
    np.testing.assert_allclose(ThompsonSampling(support=slow).posterior(record, 0), expected, rtol=1e-9)


def test_pooled_waits_count_as_the_pool():
    record, _ = watched(2, [3, 10, 11, 400, 2000, 9], [0, 1, 0, 1, 1, 0], known=True)
    seen = [(0, 3, 0), (0, 10, 1), (1, 10, 0), (0, 10, 1), (1, 10, 1), (1, 9, 0)]
    expected = slow_posterior(grid(np.arange(1, 10) / 10), seen)
    np.testing.assert_allclose(ThompsonSampling(pool=10).posterior(record, 0), expected, rtol=1e-9)
    assert np.abs(ThompsonSampling().posterior(record, 0) - expected).max() > 1e-6


def test_what_a_support_rules_out_leaves_the_least_impossible_chain():
    flip, stay = [[0, 1], [1, 0]], [[1, 0], [0, 1]]
    record, _ = watched(2, [1, 1, 1], [1, 0, 0], known=True)
    np.testing.assert_allclose(ThompsonSampling(support=[flip, stay]).posterior(record, 0), [1, 0], atol=1e-15)


def test_draws_follow_the_posterior():
    # Chi-squared with 8 degrees of freedom: beyond 44.0 with probability below 1e-6 (its 1 - 1e-6 quantile is 42.7).
    # A chain whose probability is off by 0.02 out of 0.1 would add 20 000 · 0.02² / 0.1 = 80.
    learner = ThompsonSampling(support=[0.3, 0.5, 0.7])
    record, _ = watched(2, [1, 2, 1, 3], [0, 0, 1, 1], known=True)
    posterior = learner.posterior(record, 0)
    rng = np.random.default_rng(0)
    n = 20_000
    drawn = np.bincount([learner.draw_chains(record, rng)[0] for _ in range(n)], minlength=9)
    assert ((drawn - n * posterior) ** 2 / (n * posterior)).sum() < 44.0


def test_every_arm_draws_from_its_own_posterior():
    arms = [Arm.two_state(0.7, 0.8), Arm(THREE_STATES[0], [1, 0.5, 0]), Arm.two_state(0.4, 0.6), Arm([[1]], [0.5])]
    support = [*THREE_STATES, *grid([0.3, 0.5, 0.7]), [[1.0]]]
    learner = ThompsonSampling(support=support)
    run = play_run(RoundRobin(), World(Problem(arms)), 40, np.array([40]), seed=0, run=0)
    for seed in range(20):
        numbers = learner.draw_chains(run.record.frozen(), np.random.default_rng(seed))
        for arm, u in enumerate(np.random.default_rng(seed).random(4)):
            below = np.cumsum(learner.posterior(run.record, arm))
            assert numbers[arm] == np.searchsorted(below[:-1], u, side="right")


@pytest.mark.parametrize("distribution", ["bernoulli", "fixed"])
def test_rewards_drawn_one_by_one_are_those_drawn_at_once(distribution, monkeypatch):
    problem = Problem.random(3, [2, 3, 2], seed=1, reward_law=distribution)
    run = play_run(RoundRobin(), World(problem), 50, np.array([50]), seed=0, run=0)
    draws = []
    for most in (0, 100):
        monkeypatch.setattr(thompson, "ONE_BY_ONE", most)
        draws.append(np.concatenate(draw_rewards(run.record, problem.task(), np.random.default_rng(2))))
    assert len(draws[0]) == 7
    np.testing.assert_array_equal(*draws)


@given(
    st.integers(1, 4),
    st.integers(0, 10_000),
    st.sampled_from([9, 4, (0.2, 0.5, 0.8), (0.0, 0.3, 1.0)]),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
def test_the_short_way_to_the_index_gives_what_the_oracle_gives(n_arms, seed, support, numbers):
    problem = Problem.random(n_arms, 2, seed=seed, initial="unknown")
    learner = ThompsonSampling(support=support)
    task, record = learner.task(problem, None), Record.of(problem.task())
    drawn = np.random.default_rng(seed).integers(len(learner.chains(2)), size=n_arms).tolist()
    rewards = [numbers[2 * i : 2 * i + 2] for i in range(n_arms)]
    short = learner.policy(record, task, drawn, rewards)
    long = oracles.policy("whittle", learner.problem(task, record, drawn, rewards))
    assert isinstance(short, IndexPolicy)
    for mine, theirs in zip(short.tables, long.tables, strict=True):
        shared = min(mine.shape[1], theirs.shape[1])
        np.testing.assert_allclose(mine[:, :shared], theirs[:, :shared], atol=1e-12)
        if shared < 512:
            np.testing.assert_allclose(
                mine[:, shared:], np.broadcast_to(theirs[:, -1:], mine[:, shared:].shape), atol=1e-12
            )


def episodes(run, pool, strict):
    """Replay a traced run and tell for each slot whether a count of its plan had doubled by then."""
    before, within, doubled = {}, {}, []
    last_state = dict(enumerate(run.world.problem.initial))
    last_slot = dict.fromkeys(last_state, 0)
    lengths = iter(run.record.plan_lengths)
    left = next(lengths)
    for t, (arm, state) in enumerate(
        zip(run.trace.arms[:, 0].tolist(), run.trace.states[:, 0].tolist(), strict=True), 1
    ):
        cell = (arm, last_state[arm], min(t - last_slot[arm], pool or t))
        within[cell] = within.get(cell, 0) + 1
        total, first = before.get(cell, 0) + within[cell], before.get(cell, 0)
        doubled.append(total > 2 * first if strict else total >= max(1, 2 * first))
        last_state[arm], last_slot[arm] = state, t
        left -= 1
        if left == 0:
            for key, count in within.items():
                before[key] = before.get(key, 0) + count
            within, left = {}, next(lengths, -1)
    return doubled


@pytest.mark.parametrize("pool", [0, 3])
@pytest.mark.parametrize("doubling", ["reached", "strict"])
@pytest.mark.parametrize("schedule", ["both", "doubling"])
def test_episodes_end_where_the_rules_say(schedule, doubling, pool, priced):
    learner = ThompsonSampling(schedule=schedule, doubling=doubling, pool=pool)
    run = play_run(learner, priced["paper-1"], 5000, np.array([5000]), seed=3, run=0, trace=True)
    lengths = run.record.plan_lengths
    doubled = episodes(run, pool, doubling == "strict")
    ends = np.cumsum(lengths).tolist()
    assert lengths[0] == 1
    assert ends[-1] == 5000
    by_length = by_doubling = start = 0
    # The last episode is cut by the horizon.
    for previous, length, end in zip([0, *lengths], lengths[:-1], ends[:-1], strict=False):
        longer = schedule == "both" and length == previous + 1
        assert longer or doubled[end - 1]
        assert not any(doubled[start : end - 1])
        assert schedule == "doubling" or length <= previous + 1
        by_length += longer and not doubled[end - 1]
        by_doubling += doubled[end - 1]
        start = end
    assert by_doubling > 10
    assert by_length > 10 if schedule == "both" else by_length == 0


def test_rules_as_data():
    task, rng = PAPER["paper-1"].task(), np.random.default_rng(0)
    record = Record.of(task)
    assert ThompsonSampling().plan(record.frozen(), task, rng).until == AnyOf((CountDoubled(), Slots(1)))
    record.plan_lengths = [1, 2, 7]
    assert ThompsonSampling().plan(record.frozen(), task, rng).until == AnyOf((CountDoubled(), Slots(8)))
    assert ThompsonSampling(schedule="doubling").plan(record.frozen(), task, rng).until == CountDoubled()
    pooled = ThompsonSampling(schedule="doubling", pool=10, doubling="strict")
    assert pooled.plan(record.frozen(), task, rng).until == CountDoubled(cap=10, strict=True)
    assert RuleTable.of(CountDoubled(cap=10, strict=True)).beyond == 1
    assert RuleTable.of(CountDoubled(cap=10, strict=True) | CountDoubled()).beyond == 0


def gap_regrets(learner, world, runs):
    """The regrets of the first run, of the first two, and so on, in order of size.

    What more runs can only make truer need not wait for all of them: it holds of all as soon as it holds of some.
    """
    lost = []
    for run in range(runs):
        played = play_run(learner, world, 50_000, np.array([50_000]), seed=1, run=run)
        lost.append(played.totals.sums[2])
        yield np.sort(lost)


@pytest.mark.parametrize("name", ["paper-1", "paper-2"])
def test_regret_with_both_rules_is_small_and_with_one_it_spreads(name, priced):
    # Over 320 runs of other seeds the lowest nine tenths average 16 with a standard deviation of 4; about one run in a
    # hundred is misled early, stays on one arm and loses 1800 (5000 on paper-1), which is why no plain mean is taken
    # here. The mean of the lowest 24 of 30 passes 40 only with seven such runs: C(30, 7) 0.015^7 = 4e-7.
    both = gap_regrets(ThompsonSampling(rewards="known"), priced[name], 30)
    assert any(len(lost) >= 24 and lost[:24].mean() < 40 for lost in both)
    # With doubling alone 16 % (paper-1) and 32 % (paper-2) of 600 runs lose more than 300: at most one in 100 does with
    # a probability of 0.84^100 + 100 · 0.16 · 0.84^99 = 5e-7.
    doubling = gap_regrets(ThompsonSampling(rewards="known", schedule="doubling"), priced[name], 100)
    assert any(len(lost) >= 2 and lost[-2] > 300 for lost in doubling)


def test_fixed_rewards_are_known_from_first_sight():
    problem = Problem(
        [
            Arm.two_state(0.7, 0.8, rewards=(0.75, 0.125), reward_law="fixed"),
            Arm.two_state(0.5, 0.6, rewards=(0.8, 0)),
        ]
    )
    task = problem.task()
    record = Record.of(task)
    record.observe([0], [1], [0.125])
    draws = np.array([draw_rewards(record, task, np.random.default_rng(seed)) for seed in range(2000)])
    assert (draws[:, 0, 1] == 0.125).all()
    # The mean of 2000 uniform draws is off by 5 of its standard errors, 0.032, with probability 6e-7.
    assert abs(draws[:, 0, 0].mean() - 0.5) < 0.033
    record.observe([1], [0], [1.0])
    draws = np.array([draw_rewards(record, task, np.random.default_rng(seed)) for seed in range(2000)])
    # Beta(2, 1): mean 2/3, standard deviation 0.236; the other state keeps its uniform law.
    assert abs(draws[:, 1, 0].mean() - 2 / 3) < 0.027
    assert abs(draws[:, 1, 1].mean() - 0.5) < 0.033


def test_learned_rewards_come_to_the_best_play(priced):
    # One run of 200 with another seed lost more than 500, so five of ten do with a chance below 252 · 0.02^5 = 8e-7.
    # Staying on the better arm costs (0.4565 - 0.4) · 50 000 = 2823.
    learned = gap_regrets(ThompsonSampling(), priced["paper-1"], 10)
    assert any((lost < 500).sum() >= 6 for lost in learned)


@pytest.mark.parametrize("plays", [1, 2])
@pytest.mark.parametrize("initial", ["random", "unknown"])
@pytest.mark.parametrize("rewards", ["learned", "known"])
def test_it_plays_several_arms_and_unknown_starts(plays, initial, rewards):
    problem = Problem.random(4, 2, seed=2, plays=plays, initial=initial)
    run = play_run(ThompsonSampling(support=4, rewards=rewards), World(problem), 2000, np.array([2000]), seed=0, run=0)
    assert run.record.slots == 2000
    assert run.record.pulls.sum() == 2000 * plays


@pytest.mark.parametrize("oracle", ["whittle", "myopic", "exact", "relaxation", "best-arm"])
def test_any_oracle_and_any_number_of_states(oracle):
    arms = [Arm(THREE_STATES[0], [1, 0.5, 0], initial=0), Arm(THREE_STATES[1], [0.9, 0.8, 0.1])]
    arms.append(Arm.two_state(0.7, 0.8))
    support = [*THREE_STATES, [[0.7, 0.3], [0.2, 0.8]], [[0.2, 0.8], [0.6, 0.4]]]
    learner = ThompsonSampling(support=support, rewards="known", oracle=oracle)
    problem = Problem(arms)
    horizon = 5 if oracle == "exact" else 100
    run = play_run(learner, World(problem), horizon, np.array([horizon]), seed=0, run=0)
    assert run.record.slots == horizon
    plan = learner.plan(run.record.frozen(), learner.task(problem, horizon), np.random.default_rng(0))
    assert isinstance(plan.policy, JointPolicy) == (oracle == "exact")


def test_the_same_stream_gives_the_same_plan():
    learner = ThompsonSampling()
    task = learner.task(PAPER["paper-1"], 1000)
    record = Record.of(task).frozen()
    plans = [learner.plan(record, task, np.random.default_rng(4)) for _ in range(2)]
    for first, second in zip(plans[0].policy.tables, plans[1].policy.tables, strict=True):
        np.testing.assert_array_equal(first, second)
    other = learner.plan(record, task, np.random.default_rng(5))
    assert not np.array_equal(other.policy.tables[0], plans[0].policy.tables[0])


def test_needs_and_specs():
    assert ThompsonSampling().needs == frozenset()
    assert ThompsonSampling(rewards="known").needs == {"rewards"}
    assert ThompsonSampling().spec == "ts"
    assert ThompsonSampling(support=[0.2, 0.5, 0.8], pool=10).spec == "ts:support=[0.2,0.5,0.8],pool=10"
    matrices = ThompsonSampling(support=np.array([[[0.5, 0.5], [0.25, 0.75]]]))
    assert matrices.support == (((0.5, 0.5), (0.25, 0.75)),)
    assert matrices.spec == "ts:support=[[[0.5,0.5],[0.25,0.75]]]"
    assert ThompsonSampling(support=[0.5]) == ThompsonSampling(support=(0.5,))
    hash(matrices)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(support=0), "ts: support is 0; a grid needs at least one value"),
        (dict(support="nine"), "ts: support is 'nine'"),
        (dict(support=[]), "ts: support is empty"),
        (dict(support=[0.2, 1.5]), r"ts: support\[1\] is 1.5; a probability must lie between 0 and 1"),
        (dict(support=[0.2, math.nan]), r"ts: support\[1\] is nan"),
        (dict(support=[[[0.5, 0.5], [0.5, 0.6]]]), r"'support\[0\]': transitions\[1\] sums to 1.1"),
        (dict(support=[[[0.5, 0.5]]]), r"'support\[0\]': transitions has 1 rows of 2 entries"),
        (dict(schedule="double"), "ts: schedule is 'double'; did you mean 'doubling'"),
        (dict(doubling="loose"), "ts: doubling is 'loose'"),
        (dict(pool=-1), "ts: pool is -1"),
        (dict(rewards="guessed"), "ts: rewards is 'guessed'"),
        (dict(oracle="witle"), "there is no oracle 'witle'; did you mean 'whittle'"),
        (dict(oracle="guha"), "ts: oracle guha wants the better state first"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ProblemError, match=message):
        ThompsonSampling(**options)


def test_what_a_support_cannot_be_played_on():
    three = Problem([Arm.two_state(0.7, 0.8), Arm(THREE_STATES[0], [1, 0.5, 0], name="queue")])
    with pytest.raises(ProblemError, match="ts: arm 'queue' has 3 states, but a grid is a support for two"):
        ThompsonSampling().task(three, 100)
    with pytest.raises(ProblemError, match="ts: arm 'arm 1' has 2 states, but no matrix of the support has 2 rows"):
        ThompsonSampling(support=THREE_STATES).task(three, 100)
    with pytest.raises(ProblemError, match="ts: 40000 chains of 2 states are too many"):
        ThompsonSampling(support=200).task(PAPER["paper-1"], 100)
    upside_down = Problem([Arm.two_state(0.7, 0.8, rewards=(0, 1))])
    with pytest.raises(ProblemError, match="order the states from best to worst"):
        ThompsonSampling(rewards="known", oracle="guha").task(upside_down, 100)
    task = PAPER["paper-1"].task()
    with pytest.raises(ProblemError, match="reveal="):
        ThompsonSampling(rewards="known").plan(Record.of(task).frozen(), task, np.random.default_rng(0))


@pytest.mark.parametrize("support", [10**6, 1 << 62, tuple(np.linspace(0.1, 0.9, 9999).tolist())])
def test_a_support_that_fills_the_memory_is_refused_before_it_does(support):
    with pytest.raises(ProblemError, match="are too many for a support; give fewer"):
        ThompsonSampling(support=support).task(Problem.builtin("paper-1"), 100)
