"""Learning arms that react and are seen when pulled: likelihood, draws, estimates and indices of both chains."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits.learning.estimation import counts_of, sampling
from restless_bandits.learning.estimation import reacting_kernels as kernels
from restless_bandits.model.record import Record
from restless_bandits.oracles import reacting_index_kernels as indices

PASSIVE, ACTIVE = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[0.3, 0.7], [0.1, 0.9]])

FAST = np.array([[0.6, 0.4], [0.4, 0.6]])
"""A chain that has a twin with the opposite memory."""


def watched(passive, active, waits, seed):
    """A record of one reacting arm pulled after such waits, and its observations (s, τ, k)."""
    rng, n = np.random.default_rng(seed), len(passive)
    record, observations, last = Record([n], [None], [True]), [], None
    for wait in waits:
        row = np.full(n, 1 / n) if last is None else active[last] @ np.linalg.matrix_power(passive, int(wait) - 1)
        state = int(rng.choice(n, p=row / row.sum()))
        record.skip(int(wait) - 1)
        record.observe([0], [state], [0.0])
        if last is not None:
            observations.append((last, int(wait), state))
        last = state
    return record.frozen(), observations


def by_state(record):
    return kernels.gather_by_state(0, counts_of(record))


def slow_log_likelihood(chains, observations):
    passive, active = chains
    rows = ((active @ np.linalg.matrix_power(passive, wait - 1))[s, k] for s, wait, k in observations)
    return float(np.log(list(rows)).sum())


@settings(max_examples=10)
@given(n=st.integers(2, 4), seed=st.integers(0, 10_000), reacts=st.booleans())
def test_the_likelihood_is_the_product_of_probabilities(n, seed, reacts):
    rng = np.random.default_rng(seed)
    passive, active = rng.dirichlet(np.ones(n), (2, n))
    waits = rng.choice([1, 2, 3, 17, 150, 400], 30)
    record, observations = watched(passive, active, waits, seed)
    theta = rng.normal(size=kernels.parameter_count(n, reacts))
    chains = kernels.chains_of(theta, n, reacts)
    np.testing.assert_allclose(chains.sum(axis=2), 1.0, atol=1e-14)
    assert reacts or np.array_equal(*chains)
    drawn = chains if reacts else chains[:1]
    expected = slow_log_likelihood(chains, observations) + np.log(drawn).sum()
    assert kernels.log_density(theta, n, reacts, by_state(record)) == pytest.approx(expected, abs=1e-9)


def test_slopes_and_information_are_those_of_the_likelihood():
    n = 3
    rng = np.random.default_rng(5)
    seen = by_state(watched(*rng.dirichlet(np.ones(n), (2, n)), rng.choice([1, 2, 3, 9], 400), 5)[0])
    size = kernels.parameter_count(n, True)
    theta, gradient, information = rng.normal(size=size), np.empty(size), np.empty((size, size))
    value = kernels.log_posterior(theta, n, True, seen, 1.0, gradient, information)
    assert value == pytest.approx(kernels.log_density(theta, n, True, seen), abs=1e-9)
    steps = 1e-5 * np.eye(size)
    slopes = [
        (kernels.log_density(theta + step, n, True, seen) - kernels.log_density(theta - step, n, True, seen)) / 2e-5
        for step in steps
    ]
    np.testing.assert_allclose(gradient, slopes, atol=1e-5)
    # Fisher's information is the mean of the outer products of slopes over all outcomes of the observations.
    none = (np.zeros(2 * n + 1, dtype=np.int64), seen[1][:0], seen[2][:0])
    expected, unused = np.empty((size, size)), np.empty(size)
    kernels.log_posterior(theta, n, True, none, 1.0, unused, expected)
    chains, first, elapsed, counts = kernels.chains_of(theta, n, True), *seen
    for s in range(n):
        for c in range(first[n + s], first[n + s + 1]):
            rows = [
                kernels.chains_of(theta + sign * step, n, True)[1, s]
                @ np.linalg.matrix_power(kernels.chains_of(theta + sign * step, n, True)[0], elapsed[c] - 1)
                for step in steps
                for sign in (1, -1)
            ]
            slope = (np.array(rows[::2]) - np.array(rows[1::2])) / 2e-5
            row = chains[1, s] @ np.linalg.matrix_power(chains[0], elapsed[c] - 1)
            expected += counts[c].sum() * (slope / row) @ slope.T
    np.testing.assert_allclose(information, expected, rtol=1e-5, atol=1e-5)


def test_draws_follow_the_posterior_on_a_grid():
    # 2000 independent draws, each from the prior and 1000 steps on, in eight parts of equal posterior probability for
    # each of four parameters. Chi-squared with 7 degrees of freedom is beyond 42.7 with probability 4e-7, one of four
    # with probability below 2e-6. A shift of all draws by a fifth of a standard deviation adds about 80.
    record, _ = watched(PASSIVE, ACTIVE, np.random.default_rng(1).choice([1, 2, 3, 6], 40), 1)
    seen = by_state(record)
    first, elapsed, counts = seen[0][2:], seen[1], seen[2]
    points = (np.arange(32) + 0.5) / 32
    p0, p1, a0, a1 = np.meshgrid(points, points, points, points, indexing="ij", sparse=True)
    log_posterior = np.zeros((32,) * 4)
    for s, a in ((0, a0), (1, a1)):
        for c in range(first[s], first[s + 1]):
            memory = p1 - p0
            q = p0 / (1 - memory) + memory ** float(elapsed[c] - 1) * (a - p0 / (1 - memory))
            log_posterior += counts[c, 1] * np.log(q) + counts[c, 0] * np.log1p(-q)
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()

    rng, draws = np.random.default_rng(2), np.empty((2000, 4))
    theta = np.empty(4)
    for draw in draws:
        kernels.draw_from_prior(rng, theta, 2)
        kernels.random_walk(rng, theta, 2, True, seen, 1000)
        chains = kernels.chains_of(theta, 2, True)
        draw[:] = chains[0, 0, 1], chains[0, 1, 1], chains[1, 0, 1], chains[1, 1, 1]
    for axis in range(4):
        marginal = posterior.sum(axis=tuple(other for other in range(4) if other != axis))
        below = np.interp(draws[:, axis], np.arange(33) / 32, np.concatenate([[0], np.cumsum(marginal)]))
        found = np.bincount(np.minimum((8 * below).astype(int), 7), minlength=8)
        assert ((found - 250) ** 2 / 250).sum() < 42.7


def test_a_prior_draw_stays_a_prior_draw_without_observations():
    # Means of 4000 entries that are uniform for two states: off by 5 standard errors with probability 6e-7, times four.
    record = Record([2], [None], [True])
    seen, rng, theta = by_state(record.frozen()), np.random.default_rng(3), np.empty(4)
    drawn = np.empty((4000, 4))
    for draw in drawn:
        kernels.draw_from_prior(rng, theta, 2)
        kernels.random_walk(rng, theta, 2, True, seen, 20)
        draw[:] = kernels.chains_of(theta, 2, True)[:, :, 0].ravel()
    assert (np.abs(drawn.mean(axis=0) - 0.5) < 5 / np.sqrt(12 * 4000)).all()
    assert (np.abs(drawn.var(axis=0) - 1 / 12) < 5 * np.sqrt(1 / 180 / 4000)).all()


def test_draws_go_on_from_the_notes_and_an_arm_that_does_not_react_has_one_chain():
    record = Record([2, 3, 1, 2], [None] * 4, [True, True, False, False])
    rng = np.random.default_rng(4)
    for _ in range(60):
        arm = int(rng.integers(4))
        record.observe([arm], [int(rng.integers(record.n_states[arm]))], [0.0])
    draws = sampling.draw_reacting_chains(record.frozen(), np.random.default_rng(0))
    again = sampling.draw_reacting_chains(record.frozen(), np.random.default_rng(0))
    np.testing.assert_array_equal(draws.passive, again.passive)
    assert [len(theta) for theta in draws.notes["draws"]] == [4, 12, 0, 2]
    assert draws.passive[13] == draws.active[13] == 1.0
    np.testing.assert_array_equal(draws.passive[14:], draws.active[14:])
    assert (draws.passive[:13] != draws.active[:13]).all()
    record.remember(draws.notes)
    further = sampling.draw_reacting_chains(record.frozen(), np.random.default_rng(1))
    assert (further.passive != draws.passive).any()


def test_the_estimate_recovers_both_chains():
    # Each of the 16 free entries is within five of its standard errors but for a probability of 6e-7.
    rng = np.random.default_rng(6)
    three = rng.dirichlet(np.ones(3), (2, 3))
    for chains, pulls in (((PASSIVE, ACTIVE), 2000), (tuple(three), 20_000)):
        record, _ = watched(*chains, rng.choice([1, 1, 2, 3, 8], pulls), 6)
        found = rb.estimate(record).arms[0]
        assert found.identified
        assert found.not_identified == ()
        assert len(found.modes) == 1
        assert (np.abs(found.transitions - chains[0]) < 5 * found.standard_errors).all()
        assert (np.abs(found.active_transitions - chains[1]) < 5 * found.active_standard_errors).all()
        assert found.standard_errors.max() < 0.1
        assert found.active_standard_errors.max() < 0.05


@pytest.mark.parametrize(
    ("waits", "words"),
    [
        ([1], ["transitions is not identified: no pull came after a rest"]),
        ([2], ["active_transitions[0] is not identified: 0 pulls", "active_transitions[1]", "transitions[0]"]),
        (
            [40],
            ["active_transitions[1] is not identified", "transitions[1] is not identified by waits of 40"],
        ),
        (
            [1, 3],
            ["two pairs of chains explain the observations nearly equally well; pull the arm after odd and after"],
        ),
    ],
)
def test_the_estimate_says_what_is_not_identified(waits, words):
    record, _ = watched(FAST if len(waits) > 1 else PASSIVE, ACTIVE, np.resize(waits, 3000), 7)
    found = rb.estimate(record, strict=False).arms[0]
    assert not found.identified
    for word in words:
        assert any(sentence.startswith(word) or word in sentence for sentence in found.not_identified), word
    with pytest.raises(rb.ProblemError, match="or get the estimate with strict=False"):
        rb.estimate(record, names=["patient"])


def test_even_rests_alone_leave_a_memory_and_its_negative_alike():
    record, _ = watched(FAST, ACTIVE, np.random.default_rng(8).choice([1, 3], 5000), 8)
    one, other = rb.estimate(record, strict=False).arms[0].modes
    memories = sorted(mode.transitions[1, 1] - mode.transitions[0, 1] for mode in (one, other))
    assert memories[0] == pytest.approx(-memories[1], abs=0.05)
    assert one.log_posterior - other.log_posterior < 1.0


def resting_values(passive, active, rewards, resting, cost, subsidy, length):
    """Advantage of a pull over a rest in each belief (s, τ ≤ length) under optimal play, by policy iteration.

    Pay at rest and set-up costs stand where they are earned and paid; rows as in ``belief_distributions``.
    """
    n = len(rewards)
    rest = np.linalg.matrix_power(passive, 4000)[0]
    starts = np.concatenate([active, rest[None], (rest @ active)[None]])
    beliefs = np.array([[start @ np.linalg.matrix_power(passive, t) for t in range(length)] for start in starts])
    size = len(starts) * length
    pay, step = np.zeros((size, 2)), np.zeros((size, 2, size))
    for row, t in itertools.product(range(len(starts)), range(length)):
        node, belief = row * length + t, beliefs[row, t]
        paid = cost if t > 0 or row == n else 0.0
        pay[node] = subsidy + belief @ resting, belief @ rewards - paid
        step[node, 0, row * length + min(t + 1, length - 1)] = 1.0
        step[node, 1, np.arange(n) * length] = belief
    choice = np.zeros(size, dtype=int)
    # A discount this close to 1 changes values of beliefs against each other by about 1e-6.
    discount = 1 - 1e-6
    for _ in range(100):
        chosen = step[np.arange(size), choice], pay[np.arange(size), choice]
        values = pay + discount * step @ np.linalg.solve(np.eye(size) - discount * chosen[0], chosen[1])
        gain = values[:, 1] - values[:, 0]
        better = np.where(np.abs(gain) > 1e-7, (gain > 0).astype(int), choice)
        if (better == choice).all():
            break
        choice = better
    return (values[:, 1] - values[:, 0]).reshape(len(starts), length)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_the_index_is_the_subsidy_at_which_rests_become_better(seed):
    rng, n = np.random.default_rng(seed), 2 + seed % 2
    passive, active = rng.dirichlet(np.full(n, 3.0), (2, n))
    rewards, resting = rng.random((2, n))
    cost = 0.1 * (seed > 0)
    table = indices.reacting_index(passive, active, rewards, resting, cost, 1e-12, 60)
    # With a set-up cost the advantage of a pull may jump from above zero to below at the index.
    for row, t in itertools.product(range(n + 2), range(2)):
        below, above = (
            resting_values(passive, active, rewards, resting, cost, table[row, t] + shift, 30)[row, t]
            for shift in (-1e-4, 1e-4)
        )
        assert below > -1e-5
        assert above < 1e-5
        assert below - above > 1e-5


def test_tables_of_many_arms_are_those_of_each():
    rng = np.random.default_rng(9)
    sizes = [2, 3, 2]
    parts = [[*rng.dirichlet(np.ones(n), (2, n)), *rng.random((2, n))] for n in sizes]
    flat = [np.concatenate([part[k].ravel() for part in parts]) for k in range(4)]
    arms = indices.ReactingArms(np.array(sizes), *flat, np.array([0.0, 0.2, 0.1]))
    tables, lengths = indices.reacting_tables(arms, 1e-6, 50)
    each = [indices.reacting_index(*part, cost, 1e-6, 50) for part, cost in zip(parts, arms.setup_costs, strict=True)]
    assert lengths.tolist() == [table.shape[1] for table in each]
    np.testing.assert_array_equal(tables, np.concatenate([table.ravel() for table in each]))


def test_counts_of_lost_pulls_are_no_observations_of_a_state():
    record = Record([2], [None], [True])
    record.observe([0], [1], [0.0])
    record.skip(1)
    record.lose(0, 2)
    record.observe([0], [0], [0.0])
    record.observe([0], [1], [0.0])
    first, elapsed, seen = by_state(record.frozen())
    assert first.tolist() == [0, 0, 0, 1, 1]
    assert elapsed.tolist() == [1]
    assert seen.tolist() == [[0, 1]]


def reacting_problem(n_arms=3, n_states=2, seed=0, **options):
    rng = np.random.default_rng(seed)
    arms = []
    for i in range(n_arms):
        passive, active = rng.dirichlet(np.ones(n_states), (2, n_states))
        rewards, resting = -np.sort(-rng.random((2, n_states)))
        arms.append(
            rb.Arm(passive, rewards, active_transitions=active, passive_rewards=resting, name=str(i), **options)
        )
    return rb.Problem(arms)


@pytest.mark.parametrize("options", [{}, {"setup_cost": 0.15}])
def test_the_index_is_that_of_the_oracle(options):
    for arm in reacting_problem(3, 3, seed=2, **options).arms:
        expected = rb.oracles.whittle_index(arm, length=8).table
        parts = arm.transitions, arm.active_transitions, arm.rewards, arm.passive_rewards
        found = indices.reacting_index(*parts, arm.setup_cost, 1e-13, 200)[:, :8]
        np.testing.assert_allclose(found, expected[:, : found.shape[1]], atol=1e-9)


def play(problem, learner, slots, seed=0):
    """An agent's plays of a problem, with its mean pay a slot."""
    rng = np.random.default_rng(seed)
    reveal = {"rewards"} if learner == "posterior:rewards=known" else ()
    agent = rb.Agent(learner, problem.task(reveal=reveal), seed=seed)
    states, paid = [0] * problem.n_arms, 0.0
    for _ in range(slots):
        pulled = agent.ask()
        paid += sum(
            arm.mean_rewards[state, int(i == pulled)]
            for i, (arm, state) in enumerate(zip(problem.arms, states, strict=True))
        )
        mean = problem.arms[pulled].rewards[states[pulled]]
        agent.tell(states[pulled], float(rng.random() < mean))
        chains = [arm.active_chain if i == pulled else arm.chain for i, arm in enumerate(problem.arms)]
        states = [int(rng.choice(len(chain), p=chain[s])) for chain, s in zip(chains, states, strict=True)]
    return agent, paid / slots


@pytest.mark.parametrize("spec", ["posterior", "posterior:rewards=known", "ts:prior=continuous,oracle=myopic"])
def test_posterior_plays_reacting_arms(spec):
    problem = reacting_problem(3, 3, seed=1)
    agent, _ = play(problem, spec, 120)
    again, _ = play(problem, spec, 120)
    assert agent.record.pulls.tolist() == again.record.pulls.tolist()
    lengths = agent.record.plan_lengths
    assert lengths[:50] == [1] * 50
    # From slot 100 on a plan lasts 2 % of the slots before it.
    assert lengths[-2] == 3 if sum(lengths) == 120 else lengths[-1] <= 3
    assert sorted(map(len, agent.record.notes["draws"])) == [12, 12, 12]


def test_posterior_finds_the_arm_that_gains_by_pulls():
    # Pulls keep arm "a" good and spoil the others; play that is right by half its slots pays over .75 a slot more than
    # a random arm would. A random choice earns about a third of the difference of 1.
    stuck, spoiled = [[0.02, 0.98], [0.02, 0.98]], [[0.98, 0.02], [0.9, 0.1]]
    arms = [rb.Arm(stuck, [1, 0], active_transitions=spoiled, name="a")]
    arms += [rb.Arm(spoiled, [0.5, 0], active_transitions=stuck, passive_rewards=[0, 0], name=name) for name in "bc"]
    problem = rb.Problem(arms)
    _, paid = play(problem, "posterior", 600)
    assert paid > 0.75


@pytest.mark.parametrize("spec", ["restless-ucb", "colored-ucrl2", "likelihood-dominance", "likelihood-ucb", "ts"])
def test_learners_of_one_chain_refuse_reacting_arms_and_name_others(spec):
    problem = reacting_problem()
    with pytest.raises(rb.ProblemError, match=rf"arm '0' has active_transitions, .*{spec}.* posterior") as refused:
        rb.Agent(spec, problem.task(100), seed=0)
    assert str(refused.value).count("\n") == 0


@pytest.mark.parametrize("spec", ["posterior", "round-robin", "ucb1", "rca"])
def test_the_simulator_and_the_agent_play_reacting_arms_alike(spec):
    collapsing = rb.Problem.random_reacting(3, kind="collapsing", seed=0)
    costly = rb.Arm([[0.8, 0.2], [0.3, 0.7]], [0.9, 0.1], setup_cost=0.1, initial=1, name="costly")
    mixed = rb.Problem([costly, *reacting_problem(1, 3, seed=4, setup_cost=0.1).arms])
    problems = [collapsing, mixed]
    rb.testing.check_learner(spec, problems, horizon=60)
