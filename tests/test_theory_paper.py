"""The paper's lemmas and theorems: closed forms, enumerations, random chains, simulations (false alarm 1e-6 each)."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, markov, theory
from restless_bandits.optimism import optimistic_chain
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.theory.event import estimate_within
from restless_bandits.theory.exploration import _expected

PAPER = Problem.builtin("paper-1")
THREE = Problem.random(2, 3, seed=5, floor=0.1)
SIGMAS = stats.norm.isf(5e-7)


def chain_of(n_states, seed, kind="paper", floor=0.03):
    return Problem.random(1, n_states, seed=seed, kind=kind, floor=floor).arms[0].chain


def optimistic(chain, rad, rng):
    """P' for estimates drawn from all that E allows."""
    return optimistic_chain(estimate_within(chain, rad, rng), np.full(len(chain), rad))


def drifting(n, down=0.98, up=0.01):
    chain = np.diag(np.full(n - 1, up), 1) + np.diag(np.full(n - 1, down), -1)
    return chain + np.diag(1 - chain.sum(axis=1))


def horizon_for(chain):
    """The first T with rad(T) ≤ c1/3."""
    return theory.radius_below_from(chain[chain > 0].min() / 3)


random_chains = st.tuples(st.integers(2, 6), st.integers(0, 10**6))


def test_gap_by_hand():
    rad = math.sqrt(math.log(10**6) / 20_000)
    expected = (2 * math.log(10**6) / math.log(2) + 8 / 0.5) * rad + 8e-6
    assert theory.gap(10**6, 4, 0.5) == pytest.approx(expected)
    assert theory.gap(10**6, 4, 1.0) == math.inf
    assert theory.gap(10**6, 1, 0.0) == pytest.approx(2 * rad + 2e-6)


class TestNeighbours:
    def test_two_states(self):
        assert theory.neighbour_distance(PAPER) == pytest.approx(2 * 0.2 / 3)
        assert theory.lambda_max(PAPER) == pytest.approx(0.5 + 4 * 0.2 / 3)
        assert rb.check(PAPER).lambda_max_bounds == theory.lambda_max_bounds(PAPER)

    def test_not_defined(self):
        assert theory.lambda_max_bounds(Problem([Arm(np.eye(2), [1, 0])])) is None
        assert theory.lambda_max(Problem.random(1, 3, seed=0, kind="general")) is None

    def test_optimistic_chains_are_neighbours_and_none_exceeds_the_bound(self):
        rng = np.random.default_rng(0)
        low, high = theory.lambda_max_bounds(THREE)
        distance = theory.neighbour_distance(THREE)
        rad = distance / 2
        for arm in THREE.arms:
            for _ in range(100):
                other = optimistic(arm.chain, rad, rng)
                assert theory.is_neighbour(arm.chain, other, distance)
                assert abs(markov.second_eigenvalue(other)) <= high
        assert low <= high < 1
        assert not theory.is_neighbour(arm.chain, arm.chain[::-1], distance)


class TestEvent:
    def test_probability_by_enumeration(self):
        """All multinomial outcomes of m(30) = 10 observations of every state."""
        arm = Arm(chain_of(3, 1, floor=0.1), [0.9, 0.5, 0.2])
        m, rad = theory.exploration_count(30), theory.radius(30)
        expected = 1.0
        for k, row in enumerate(arm.chain):
            near = [j for j in range(3) if abs(j - k) <= 1]
            chance = 0.0
            for counts in itertools.product(range(m + 1), repeat=len(near)):
                if sum(counts) == m and all(
                    abs(n / m - row[j]) <= rad + 1e-9 for n, j in zip(counts, near, strict=True)
                ):
                    chance += stats.multinomial.pmf(counts, m, row[near])
            expected *= chance
        for mean in arm.rewards:
            expected *= sum(stats.binom.pmf(n, m, mean) for n in range(m + 1) if abs(n / m - mean) <= rad)
        assert m == 10
        assert expected < 0.99
        assert theory.event_probability(Problem([arm]), 30) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("problem", [PAPER, THREE, Problem.builtin("queue-5")], ids=lambda one: one.name)
    def test_runs_agree_with_lemma_and_computation(self, problem):
        found = theory.check_event(problem, 200, runs=20_000)
        assert found.agrees
        assert not found.refuted
        assert found.bound == max(0, 1 - 8 * problem.n_arms * problem.n_states[0] / 200)
        assert found.probability >= found.bound
        assert found == theory.check_event(problem, 200, runs=20_000)

    def test_the_checks_can_fail(self):
        found = theory.check_event(PAPER, 1000, runs=20_000)
        assert not dataclasses.replace(found, probability=0.99).agrees
        assert dataclasses.replace(found, held=19_000).refuted

    def test_fixed_rewards_are_known_at_once(self):
        arms = [Arm(arm.chain, arm.rewards, reward_law="fixed") for arm in THREE.arms]
        assert theory.event_probability(Problem(arms), 100) > theory.event_probability(THREE, 100)
        assert theory.check_event(Problem(arms), 100, runs=20_000).agrees

    def test_more_than_m_observations_do_no_harm(self):
        """The counts of an exploration that stops at its last state: Hoeffding's bound holds for all n ≥ m at once."""
        problem, horizon, runs = PAPER, 200, 4000
        _, counts = theory.simulate_exploration(problem, horizon, runs)
        held = np.ones(runs, dtype=bool)
        rad = theory.radius(horizon)
        for arm, found in zip(problem.arms, counts, strict=True):
            shares = found / found.sum(axis=2, keepdims=True)
            assert (found.sum(axis=2) >= theory.exploration_count(horizon)).all()
            held &= (np.abs(shares - arm.chain) <= rad).all(axis=(1, 2))
        assert stats.binom.cdf(held.sum(), runs, theory.event_bound(problem, horizon)) >= 1e-6


def expected_cover(chain, start, m):
    """E of the steps until every state was left m times, by recursion over the counts."""
    n = len(chain)
    counts = sorted(itertools.product(range(m + 1), repeat=n), key=sum, reverse=True)
    after = {}
    for left in counts:
        if min(left) >= m:
            after[left] = np.zeros(n)
            continue
        # value[s]: steps still to come when s is about to be left; counts beyond m do not matter.
        more = np.zeros((n, n))
        constant = np.ones(n)
        for s in range(n):
            if left[s] < m:
                step = tuple(c + (k == s) for k, c in enumerate(left))
                constant[s] += chain[s] @ after[step]
            else:
                more[s] = chain[s]
        after[left] = np.linalg.solve(np.eye(n) - more, constant)
    return float(start @ after[(0,) * n])


class TestExploration:
    @given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0, 1))
    def test_two_states_by_recursion(self, seed, m, first):
        chain, start = chain_of(2, seed, kind="birth-death"), np.array([first, 1 - first])
        if chain[0, 1] < 1e-3 or chain[1, 0] < 1e-3:
            return
        assert _expected(chain, start, m) == pytest.approx(expected_cover(chain, start, m), rel=1e-9)

    @pytest.mark.parametrize("problem", [PAPER, THREE], ids=lambda one: one.name)
    def test_bounds_hold_the_mean(self, problem):
        """First arm from its start: by recursion; m(8) = 4."""
        found = theory.exploration_length(problem, 8)
        arm = problem.arms[0]
        exact = expected_cover(arm.chain, np.eye(arm.n_states)[arm.initial], 4)
        assert found.lower_by_arm[0] <= exact <= found.upper_by_arm[0]
        assert theory.exploration_bound(problem, 8) == found.upper
        if arm.n_states == 2:
            assert found.expected_by_arm[0] == pytest.approx(exact)
        else:
            assert math.isnan(found.expected)

    def test_hitting_moments_of_a_geometric_wait(self):
        mean, second = theory.hitting_moments(np.array([[0.75, 0.25], [0.5, 0.5]]), 1)
        assert mean == pytest.approx([4, 0])
        assert second == pytest.approx([(2 - 0.25) / 0.25**2, 0])

    def test_against_simulation_and_against_the_learner(self):
        horizon = 1000
        expected = theory.exploration_length(PAPER, horizon).expected
        lengths, counts = theory.simulate_exploration(PAPER, horizon, 400)
        played = []
        world, learner = World(PAPER), rb.learner("restless-ucb:oracle=best-arm")
        for run in range(200):
            record = play_run(learner, world, horizon, np.array([horizon]), seed=1, run=run).record
            played.append(sum(record.plan_lengths[:2]))
        for drawn in (lengths.sum(axis=1), np.array(played)):
            error = drawn.std(ddof=1) / math.sqrt(len(drawn))
            # A twentieth more than the normal law needs, for the skew of 200 runs.
            assert abs(drawn.mean() - expected) < 1.05 * SIGMAS * error
            assert error < 0.01 * expected
        assert (lengths[:, 0] == counts[0].sum(axis=(1, 2))).all()
        assert (lengths[:, 1] == 1 + counts[1].sum(axis=(1, 2))).all()

    def test_fact_1_needs_its_order(self):
        """Where two states are equally likely the wait for the last one adds about √m: N m / d_min is exceeded."""
        even = Problem([Arm.two_state(0.9, 0.9, initial=0)])
        for horizon in (10**3, 10**6):
            found = theory.exploration_length(even, horizon)
            excess = (found.expected - found.fact_1) / math.sqrt(found.observations)
            assert 1 < excess < 10
            assert found.expected < found.upper

    def test_refusals(self):
        with pytest.raises(ProblemError, match="never seen again"):
            theory.exploration_length(Problem([Arm([[1, 0], [0.5, 0.5]], [1, 0])]), 100)
        with pytest.raises(ProblemError, match="plays is 2"):
            theory.exploration_length(Problem(THREE.arms, plays=2), 100)


class TestOrder:
    def test_the_order(self):
        assert theory.dominates(np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4, 0.2]))
        assert not theory.dominates(np.array([0.5, 0.1, 0.4]), np.array([0.4, 0.3, 0.3]))
        assert theory.dominance_margin(np.array([0.5, 0.1, 0.4]), np.array([0.4, 0.3, 0.3])) == pytest.approx(-0.1)
        assert theory.dominance_margin(np.ones(1), np.ones(1)) == 0

    @given(random_chains, st.floats(0.001, 0.3))
    def test_lemmas_3_5_6_7(self, which, rad):
        """Any radius, so that rows are clipped as well."""
        chain = chain_of(*which)
        rng = np.random.default_rng(which[1])
        better = optimistic(chain, rad, rng)
        assert theory.dominates(better, chain)
        assert theory.monotone_margin(chain) >= -1e-12
        n = len(chain)
        worse_law = rng.dirichlet(np.ones(n))
        # Mass moved to better states makes a law that dominates.
        law = worse_law.copy()
        for k in range(1, n):
            moved = rng.uniform() * law[k]
            law[k] -= moved
            law[rng.integers(k)] += moved
        assert theory.dominates(law, worse_law)
        assert theory.dominates(law @ better, law @ chain)
        assert theory.dominates(law @ chain, worse_law @ chain)
        for tau in (1, 2, 5, 20):
            power, better_power = (np.linalg.matrix_power(one, tau) for one in (chain, better))
            assert theory.dominates(law @ better_power, worse_law @ power)
        assert (theory.power_margins(better, chain, 20) >= -1e-12).all()

    @given(random_chains)
    def test_lemma_4_is_assumption_3(self, which):
        chain = chain_of(*which, kind="birth-death")
        slack = 1 - (np.diagonal(chain, 1) + np.diagonal(chain, -1)).max()
        margin = theory.monotone_margin(chain)
        assert margin == pytest.approx(slack, abs=1e-12) if slack < 0 else margin >= -1e-12

    def test_without_assumption_3(self):
        """Rows still dominate, powers need not: leaving a good state less often may make it less likely."""
        chain = np.array([[0.1, 0.9], [0.8, 0.2]])
        rad = 0.05
        better = optimistic_chain(chain + rad * np.array([[1, -1], [-1, 1]]), np.full(2, rad))
        np.testing.assert_allclose(better, [[0.2, 0.8], [0.8, 0.2]])
        margins = theory.power_margins(better, chain, 4)
        assert margins[1] >= 0
        assert margins[2] == pytest.approx(0.68 - 0.73)

    def test_assumption_3_is_what_is_missing(self):
        """Among chains that violate it, powers fail for many; among those that meet it for none (above)."""
        failures = 0
        for seed in range(300):
            chain = chain_of(3, seed, kind="birth-death")
            if theory.monotone_margin(chain) < -0.1:
                better = optimistic(chain, 0.02, np.random.default_rng(seed))
                failures += theory.power_margins(better, chain, 10).min() < -1e-6
        assert failures > 5


class TestPerturbation:
    @given(random_chains, st.floats(0.001, 0.3))
    def test_lemma_9_and_what_is_proved(self, which, rad):
        chain = chain_of(*which)
        other = optimistic(chain, rad, np.random.default_rng(which[1]))
        assert 0.5 * np.abs(chain - other).sum(axis=1).max() <= 2 * rad + 1e-12
        proved, linear = theory.proved_law_gap(chain, other, rad, 60), theory.linear_law_gap(chain, other, rad, 60)
        assert proved.holds
        assert linear.holds
        assert (proved.bound <= linear.bound + 1e-12).all()
        assert proved.bound[-1] <= 2 * rad * theory.total_contraction(chain) * (1 + 1e-9)

    def test_the_printed_proof_of_lemma_9_does_not_do(self):
        """The largest entry of a difference may grow under a chain that meets the assumptions; its sum may not."""
        chain = np.zeros((6, 6))
        for k, row in enumerate([(0.1, 0.9), (0.05, 0.9, 0.05), (0.9, 0.05, 0.05)]):
            chain[k, max(0, k - 1) : max(0, k - 1) + len(row)] = row
            chain[5 - k] = chain[k, ::-1]
        assert all(one.holds for one in Problem([Arm(chain, np.linspace(1, 0, 6))]).assumptions.values())
        difference = np.array([0.1, 0.1, 0.1, -0.1, -0.1, -0.1])
        assert np.abs(difference @ chain).max() > 0.26
        assert np.abs(difference @ chain).sum() <= np.abs(difference).sum()

    @settings(max_examples=25)
    @given(random_chains)
    def test_lemmas_10_to_12(self, which):
        chain = chain_of(*which)
        n, horizon = len(chain), horizon_for(chain)
        rad = theory.radius(horizon)
        rng = np.random.default_rng(which[1])
        rate = abs(markov.second_eigenvalue(chain))
        rewards = np.sort(rng.random(n))[::-1]
        for other in (optimistic_chain(chain, np.full(n, 2 * rad)), optimistic(chain, rad, rng)):
            # λ_max is at least the chain's own: bounds with that are smaller.
            length = min(400, 3 * math.ceil(math.log(horizon) / math.log(1 / rate)))
            assert theory.settled_law_gap(chain, other, horizon, rate, length).holds
            assert theory.any_law_gap(chain, other, horizon, rate, length).holds
            better = Arm(other, np.minimum(1, rewards + 2 * rad))
            assert theory.reward_gap(Arm(chain, rewards), better, horizon, rate, length).holds
            apart = 0.5 * np.abs(markov.stationary(chain) - markov.stationary(other)).sum()
            assert apart <= 2 * rad * theory.kemeny_constant(chain) + 1e-12

    def test_two_states_in_closed_form(self):
        chain = np.array([[0.7, 0.3], [0.2, 0.8]])
        assert theory.contractions(chain, 3) == pytest.approx([1, 0.5, 0.25, 0.125])
        assert theory.total_contraction(chain) == pytest.approx(2)
        assert theory.kemeny_constant(chain) == pytest.approx(2)
        other = np.array([[0.8, 0.2], [0.3, 0.7]])
        # Both have λ = .5, so laws differ by (1 − .5^τ) of what their limits do, .4 and .6.
        assert theory.law_gaps(chain, other, 3) == pytest.approx([0.1, 0.15, 0.175])
        assert theory.linear_law_gap(chain, other, 0.05, 3).worst == pytest.approx(1)
        assert theory.proved_law_gap(chain, other, 0.05, 3).worst == pytest.approx(1)

    def test_total_contraction_is_the_sum(self):
        chain = chain_of(4, 3)
        assert theory.total_contraction(chain) == pytest.approx(theory.contractions(chain, 3000).sum(), rel=1e-5)
        assert theory.total_contraction(np.eye(3)) == math.inf
        assert theory.total_contraction(np.eye(2)) == math.inf

    def test_the_inequality_of_lemma_13_is_false(self):
        """Also with λ_max of the neighbour space, which is larger than the chain's own |λ₂|."""
        for n in (3, 4, 6):
            chain = drifting(n)
            assert all(found.holds for found in Problem([Arm(chain, np.linspace(1, 0, n))]).assumptions.values())
            rate = markov.neighbour_eigenvalue_bounds(chain, 2 * 0.01 / 3)[1]
            found = theory.forgetting(chain, rate, 30)
            assert not found.holds
            assert found.worst > 1.4
            # From the far end nothing is known of the limit before the chain can have got there.
            assert found.measured[n - 2] > 0.98

    @given(random_chains)
    def test_what_is_true_instead(self, which):
        assert theory.reversible_forgetting(chain_of(*which), 40).holds
        if which[0] == 2:
            chain = chain_of(*which)
            assert theory.forgetting(chain, abs(markov.second_eigenvalue(chain)), 40).holds


class TestBias:
    def test_one_arm_in_closed_form(self):
        """λ (1 + λ + λ² + …) = λ/(1 − λ): the bound that is proved for two states is attained."""
        for stay_best, stay_worst in ((0.7, 0.8), (0.9, 0.85), (0.2, 0.3)):
            problem = Problem([Arm.two_state(stay_best, stay_worst, initial=1)])
            rate = stay_best + stay_worst - 1
            found = theory.bias_between_successors(rb.oracles.exact(problem))
            assert found == pytest.approx(abs(rate) / (1 - rate), abs=1e-7)
            assert found <= abs(rate) / (1 - abs(rate)) + 1e-7
            span = theory.policy_bias_span(problem, rb.policies.SingleArm(0))
            assert span == pytest.approx(found, abs=1e-7)

    @pytest.mark.parametrize("name", ["paper-1", "paper-2", "lms-urban-s", "lms-heavy-tree-s", "rf-2"])
    def test_appendix_b(self, name):
        problem = Problem.builtin(name)
        solution = rb.oracles.exact(problem)
        found = theory.bias_between_successors(solution)
        rate = max(abs(markov.second_eigenvalue(arm.chain)) for arm in problem.arms)
        assert 0 < found <= rate / (1 - rate) < theory.bias_bound(problem) / 4
        assert theory.policy_bias_span(problem, solution.policy) < theory.bias_bound(problem)

    def test_against_plain_value_differences(self):
        """Brute force: the bias at every belief after a pull, compared over the states of the arm."""
        solution = rb.oracles.exact(PAPER)
        beliefs, bias = solution.policy.beliefs, solution.bias
        widest = 0.0
        for arm, other in ((0, 1), (1, 0)):
            for belief in range(beliefs.arms[other].size):
                rows = np.zeros((2, 2), dtype=np.int64)
                rows[:, arm], rows[:, other] = beliefs.arms[arm].first, belief
                if belief in beliefs.arms[other].first:
                    continue
                low, high = bias[beliefs.index(rows)]
                widest = max(widest, abs(high - low))
        assert theory.bias_between_successors(solution) == pytest.approx(widest, abs=1e-9)

    def test_three_states(self):
        assert theory.bias_between_successors(rb.oracles.exact(THREE)) <= theory.bias_bound(THREE)

    def test_refusals(self):
        with pytest.raises(ProblemError, match="no bias function"):
            theory.bias_between_successors(rb.oracles.whittle(PAPER))
        with pytest.raises(ProblemError, match="plays is 2"):
            theory.bias_between_successors(
                rb.oracles.exact(Problem([*PAPER.arms, PAPER.arms[0].named("arm 3")], plays=2))
            )
        with pytest.raises(ProblemError, match="too many for its bias"):
            theory.policy_bias_span(PAPER, rb.policies.Cycle(), most=2)
        stuck = Problem([Arm(np.eye(2), [1, 0])])
        assert theory.policy_bias_span(stuck, rb.policies.SingleArm(0)) == math.inf
        assert theory.bias_bound(Problem([Arm(np.eye(2), [1, 0])])) == math.inf


class TestBounds:
    def test_theorem_1_by_hand(self):
        horizon = 10**6
        bound = theory.regret_bound(PAPER, horizon)
        rate = 0.5 + 0.8 / 3
        rad = math.sqrt(math.log(1e6) / 2e4)
        gap = (2 * math.log(1e6) / math.log(1 / rate) + 4 / (1 - rate)) * rad + 4e-6
        assert bound.rewards == pytest.approx(1e6 * (2 * rad + 2 * gap))
        assert bound.laws == pytest.approx(1e6 * 4 / (1 - rate) * gap)
        assert bound.failure == 32
        assert bound.ends == pytest.approx(2 * 4 / (1 - rate))
        assert bound.exploration == theory.exploration_length(PAPER, horizon).upper
        assert bound.total == pytest.approx(bound.rewards + bound.laws + bound.failure + bound.ends + bound.exploration)
        assert str(bound).startswith("Theorem 1 at T = 1000000, paper constants: ")
        early = theory.regret_bound(PAPER, 10_000)
        assert early.total == math.inf
        assert "exceeds c1/3" in str(early)

    def test_proved_constants_by_hand(self):
        horizon = 10**6
        bound = theory.regret_bound(PAPER, horizon, constants="proved")
        rad = math.sqrt(math.log(1e6) / 2e4)
        # λ = .5 and .1, Σ δ = 2; Φ = 1/(1 − λ − 2 rad), less than the pulls until the best state, 1/.2 and 1/.4.
        first, second = 1 / (0.5 - 2 * rad), 1 / (0.9 - 2 * rad)
        assert bound.gap == pytest.approx(4 * rad)
        assert bound.rewards == pytest.approx(1e6 * 6 * rad)
        assert bound.laws == pytest.approx(1e6 * 4 * rad * (first - 1))
        assert bound.ends == pytest.approx(first + second - 2)
        assert bound.total < theory.regret_bound(PAPER, horizon).total / 100

    def test_when_they_say_anything(self):
        gain = 0.456464072292
        for constants, about in (("paper", 8.16e13), ("proved", 3.95e5)):
            start = theory.regret_bound_from(PAPER, gain, constants=constants)
            assert start == pytest.approx(about, rel=0.02)
            for horizon, says in ((start, True), (start - 1, False)):
                assert (theory.regret_bound(PAPER, horizon, constants=constants).total < horizon * gain) == says
        assert theory.regret_bound_from(PAPER, 0.0) is None

    def test_measured_regret_is_below_the_proved_bound(self):
        """At a horizon at which the bound is below all that can be earned, so that a bad learner would exceed it."""
        gain = 0.456464072292
        horizon = 2 * theory.regret_bound_from(PAPER, gain, constants="proved")
        bound = theory.regret_bound(PAPER, horizon, constants="proved").total
        result = rb.simulate(PAPER, "restless-ucb:oracle=exact", horizon, runs=2, engine="threads")
        assert result.regret()[..., -1].max() < bound < horizon * gain

    def test_lemma_2(self):
        """The farthest R' that E allows: optimistic, and not by more than is proved."""
        rad = theory.radius(50_000)
        arms = [
            Arm(optimistic_chain(arm.chain, np.full(2, 2 * rad)), np.minimum(1, arm.rewards + 2 * rad), initial=1)
            for arm in PAPER.arms
        ]
        loss = theory.slot_loss(PAPER, Problem(arms))
        bounds = [theory.regret_bound(PAPER, 50_000, constants=one).per_slot for one in ("proved", "paper")]
        assert 0.1 < loss < bounds[0] < bounds[1]
        assert theory.slot_loss(PAPER, PAPER) == pytest.approx(0, abs=1e-8)
        assert theory.regret_bound(PAPER, 100).per_slot == math.inf

    def test_theorem_2(self):
        free, priced = (theory.approximation_bound(PAPER, 10**6, span) for span in (0.0, 3.0))
        assert free.theorem == 2
        assert free.laws == free.ends == 0
        assert priced.laws == pytest.approx(1e6 * 3 * priced.gap)
        assert priced.ends == 3
        first = theory.regret_bound(PAPER, 10**6)
        assert theory.approximation_bound(PAPER, 10**6, first.span).laws == pytest.approx(first.laws)
        early = theory.approximation_bound_from(PAPER, 0.456, 1.0)
        late = theory.approximation_bound_from(PAPER, 0.456, 1.0, ratio=0.5)
        assert early < late
        assert theory.approximation_bound(PAPER, late, 1.0).total < 0.5 * 0.456 * late

    def test_more_states(self):
        bound = theory.regret_bound(THREE, 10**8, constants="proved")
        pulls = [theory.least_potential(arm.chain)[-1] for arm in THREE.arms]
        assert bound.span == pytest.approx(max(pulls) - 1)
        assert bound.gap == pytest.approx(2 * bound.radius * max(theory.total_contraction(a.chain) for a in THREE.arms))
        # No slack in Assumption 3: P' may leave it, and nothing is proved.
        tight = np.array([[0.4, 0.6, 0.0], [0.4, 0.3, 0.3], [0.0, 0.3, 0.7]])
        assert theory.regret_bound(Problem([Arm(tight, [1, 0.5, 0])]), 10**8, constants="proved").total == math.inf

    def test_refusals(self):
        with pytest.raises(ProblemError, match="no constants 'prooved'; did you mean 'proved'"):
            theory.regret_bound(PAPER, 100, constants="prooved")
        with pytest.raises(ProblemError, match="this needs at most 1"):
            theory.regret_bound(Problem([Arm.two_state(0.1, 0.2)]), 100)
        with pytest.raises(ProblemError, match="plays is 2"):
            theory.regret_bound(Problem(PAPER.arms, plays=2), 100)
        with pytest.raises(ProblemError, match="span is -1"):
            theory.approximation_bound(PAPER, 100, -1.0)
        with pytest.raises(ProblemError, match="horizon is 0"):
            theory.regret_bound(PAPER, 0)


class TestCheck:
    def test_bounds_of_a_diagnosis(self):
        found = rb.check(PAPER, horizon=10**6).bounds
        assert found.theorem_1 == theory.regret_bound(PAPER, 10**6)
        assert found.most >= 0.456464072292
        assert found.vacuous_until == theory.regret_bound_from(PAPER, found.most)
        fixed = theory.approximation_bound(PAPER, 10**6, 0.0).total
        assert found.theorem_2_fixed == fixed
        assert fixed + 5 * found.theorem_2_per_span == pytest.approx(theory.approximation_bound(PAPER, 10**6, 5).total)

    def test_none_where_the_theorems_do_not_apply(self):
        assert rb.check(Problem([Arm.two_state(0.1, 0.2)])).bounds is None
        assert rb.check(Problem(PAPER.arms, plays=2)).bounds is None
        assert rb.check(Problem([Arm(np.eye(2), [1, 0])])).bounds is None
