"""Estimation from interleaved observations: derivatives, modes, coverage, refusals, the sampler."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import restless_bandits as rb
from restless_bandits.learning import estimation
from restless_bandits.learning.estimation import arm_kernels as arms
from restless_bandits.learning.estimation import chain_kernels as kernels
from restless_bandits.learning.estimation import sampling
from restless_bandits.model.record import BIN_MIDDLES, Record
from restless_bandits.simulation.engine import World, play_run


def played(problem, spec, slots, run=0):
    return play_run(rb.learner(spec), World(problem), slots, np.array([slots]), seed=4, run=run).record


def slow_log_posterior(theta, n, cells, prior):
    """The definition, with NumPy's matrix powers."""
    chain = kernels.chain_of(theta, n)
    total = 0.0
    for elapsed, state, seen in zip(*cells, strict=True):
        distribution = np.linalg.matrix_power(chain, int(elapsed))[state]
        total += sum(count * np.log(p) for count, p in zip(seen, distribution, strict=True) if count and p > 1e-14)
    return total + prior * np.log(chain[chain > 0]).sum()


@st.composite
def observations(draw):
    n = draw(st.integers(2, 4))
    size = draw(st.integers(1, 6))
    elapsed = sorted(draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 40, 130, 700]), min_size=size, max_size=size)))
    states = draw(st.lists(st.integers(0, n - 1), min_size=size, max_size=size))
    seen = draw(st.lists(st.lists(st.integers(0, 9), min_size=n, max_size=n), min_size=size, max_size=size))
    theta = np.array(draw(st.lists(st.floats(-3, 3), min_size=2 * (n - 1), max_size=2 * (n - 1))))
    return n, (np.array(elapsed), np.array(states), np.array(seen)), theta


class TestLikelihood:
    @given(observations())
    def test_against_the_definition(self, case):
        n, cells, theta = case
        size = len(theta)
        gradient, information = np.empty(size), np.empty((size, size))
        value = kernels.log_posterior(theta, n, cells, 1.0, gradient, information)
        assert value == pytest.approx(slow_log_posterior(theta, n, cells, 1.0), rel=1e-9, abs=1e-9)
        for j in range(size):
            step = np.zeros(size)
            step[j] = 1e-5
            up, down = (slow_log_posterior(theta + sign * step, n, cells, 1.0) for sign in (1, -1))
            assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=2e-4 * (1 + abs(value)))
        assert np.allclose(information, information.T)
        assert np.linalg.eigvalsh(information).min() > 0

    @pytest.mark.parametrize(("theta", "slots"), [((0.3, -1.2), 40), ((-9.0, 4.0), 64), ((2.0, 1.0), 400)])
    def test_steps_of_two_states_have_the_same_bits_as_those_of_any_number(self, theta, slots):
        chain = kernels.chain_of(np.array(theta), 2)
        slopes = kernels.entry_slopes.py_func(chain)
        general, unrolled = (chain.copy(), slopes.copy()), (chain.copy(), slopes.copy())
        settled = False
        for _ in range(slots):
            if not settled:
                out = np.empty((2, 2)), np.empty((2, 2, 2))
                settled = kernels.power_step.py_func(chain, slopes, *general, *out) < kernels.SETTLED
                general = out
        assert kernels.two_state_power_steps(chain, slopes, *unrolled, slots) == settled
        for one, other in zip(general, unrolled, strict=True):
            assert one.tobytes() == other.tobytes()

    def test_information_is_the_variance_of_the_score(self):
        # With data drawn from the chain itself the mean of score·scoreᵀ is Fisher's information: 4000 samples of one
        # observation each, entries within six standard errors.
        rng = np.random.default_rng(0)
        theta = np.array([0.3, -0.7, -1.0, 0.2])
        chain = kernels.chain_of(theta, 3)
        distribution = np.linalg.matrix_power(chain, 3)[1]
        gradient, information, zero = np.empty(4), np.empty((4, 4)), np.empty((4, 4))
        none = np.zeros((1, 3), dtype=np.int64)
        at = np.array([3]), np.array([1])
        prior_gradient = np.empty(4)
        kernels.log_posterior(theta, 3, (*at, none), 1.0, prior_gradient, zero)
        products = []
        for state in rng.choice(3, size=4000, p=distribution):
            kernels.log_posterior(theta, 3, (*at, np.eye(3, dtype=np.int64)[[state]]), 1.0, gradient, information)
            score = gradient - prior_gradient
            products.append(np.outer(score, score))
        products = np.array(products)
        error = products.std(axis=0) / np.sqrt(len(products))
        assert (np.abs(products.mean(axis=0) - (information - zero)) < 6 * error + 1e-12).all()

    def test_impossible_jumps_are_passed_over(self):
        cells = np.array([1]), np.array([0]), np.array([[3, 2, 5]])
        gradient, information = np.empty(4), np.empty((4, 4))
        assert np.isfinite(kernels.log_posterior(np.zeros(4), 3, cells, 1.0, gradient, information))


class TestSteps:
    @given(observations())
    def test_scores_are_solved_for(self, case):
        # Near the largest logits, where information is worst scaled, as well as in the middle.
        n, cells, theta = case
        size = len(theta)
        gradient, information, work, step = (
            np.empty(size),
            np.empty((size, size)),
            np.empty((size, size)),
            np.empty(size),
        )
        for point in (theta, np.clip(4 * theta, -kernels.LARGEST_LOGIT, kernels.LARGEST_LOGIT)):
            kernels.log_posterior(point, n, cells, 1.0, gradient, information)
            kernels.newton_step(gradient, information, work, step)
            wanted = np.linalg.solve(information + 1e-9 * np.diag(1 + np.diag(information)), gradient)
            wanted /= max(1.0, np.abs(wanted).max() / kernels.LARGEST_STEP)
            assert step == pytest.approx(wanted, rel=1e-6, abs=1e-9)


class TestModes:
    @settings(max_examples=25)
    @given(observations())
    def test_nothing_near_a_mode_is_better(self, case):
        n, cells, _ = case
        best = estimation.modes_of(cells, n)[0]
        rng = np.random.default_rng(0)
        for scale in (1e-3, 1e-1, 1.0):
            for _ in range(10):
                other = np.clip(best.theta + scale * rng.standard_normal(len(best.theta)), -14, 14)
                assert slow_log_posterior(other, n, cells, 1.0) <= best.value + 1e-5

    def test_even_waits_leave_two_modes(self):
        record = Record((2,), (1,))
        rng = np.random.default_rng(1)
        state = 1
        distribution = np.linalg.matrix_power(np.array([[0.7, 0.3], [0.2, 0.8]]), 2)
        for _ in range(4000):
            record.skip(1)
            state = int(rng.random() > distribution[state, 0])
            record.observe([0], [state], [0.0])
        (arm,) = rb.estimate(record).arms
        assert len(arm.modes) == 2
        memories = sorted(mode.transitions[0, 0] - mode.transitions[1, 0] for mode in arm.modes)
        assert memories == pytest.approx([-0.5, 0.5], abs=0.06)
        for mode in arm.modes:
            share = mode.transitions[1, 0] / (mode.transitions[1, 0] + mode.transitions[0, 1])
            assert share == pytest.approx(0.4, abs=0.05)

    def test_one_row_on_the_wrong_root(self):
        # From bad after one slot, from good after two: P²(good, good) is quadratic in the chance to stay good, and a
        # climb from the middle ends on the wrong root, 0.69, though 0.11 is likelier.
        cells = np.array([1, 2]), np.array([1, 0]), np.array([[2341, 582], [6186, 2338]])
        best, rival = estimation.modes_of(cells, 2)[:2]
        stays = [kernels.chain_of(mode.theta, 2)[0, 0] for mode in (best, rival)]
        assert sorted(stays) == pytest.approx([0.11, 0.69], abs=0.02)
        assert best.value >= rival.value

    def test_one_odd_wait_decides(self):
        record = played(rb.Problem.builtin("paper-1"), "round-robin", 3000)
        assert all(len(arm.modes) == 2 for arm in rb.estimate(record).arms)
        record = played(rb.Problem.builtin("paper-1"), "restless-ucb:m=100", 3000)
        assert all(len(arm.modes) == 1 for arm in rb.estimate(record).arms)


class TestEstimates:
    @pytest.mark.parametrize(("name", "spec"), [("paper-2", "ucb1"), ("queue-5", "round-robin"), ("rf-2", "whittle")])
    def test_errors_are_as_large_as_they_say(self, name, spec):
        # z-scores over 60 runs: their mean square is near 1, and outside [0.4, 1.9] with chance below 1e-5.
        problem = rb.Problem.builtin(name)
        squares = []
        for run in range(60):
            found = rb.estimate(played(problem, spec, 6000, run), strict=False)
            arm, true = found.arms[0], problem.arms[0].chain
            near = min(arm.modes, key=lambda mode: np.abs(mode.transitions - true).max())
            moves = ~np.eye(len(true), dtype=bool) & (true > 0)
            squares.append((((near.transitions - true) / np.where(moves, near.standard_errors, 1.0))[moves]) ** 2)
        assert (np.mean(squares, axis=0) > 0.4).all()
        assert (np.mean(squares, axis=0) < 1.9).all()

    def test_rewards(self):
        problem = rb.Problem.builtin("paper-1")
        found = rb.estimate(played(problem, "restless-ucb:m=500", 5000))
        for arm, stated in zip(found.arms, problem.arms, strict=True):
            assert (np.abs(arm.rewards - stated.rewards) <= 5 * arm.reward_errors + 1e-12).all()

    def test_rows_sum_to_one_and_single_states_are_fine(self):
        problem = rb.Problem([rb.Arm([[1.0]], [0.5]), rb.Arm.two_state(stay_best=0.7, stay_worst=0.8, rewards=(1, 0))])
        found = rb.estimate(played(problem, "restless-ucb:m=50", 2000))
        assert found.arms[0].transitions.tolist() == [[1.0]]
        assert np.allclose(found.arms[1].transitions.sum(axis=1), 1.0)


class TestRefusals:
    def test_only_the_stationary_law(self):
        record = Record((2,), (1,))
        rng = np.random.default_rng(0)
        for _ in range(500):
            record.skip(400)
            record.observe([0], [int(rng.random() > 0.4)], [0.0])
        with pytest.raises(
            rb.NotIdentified, match="arm 0: 500 observations identify at most its stationary distribution"
        ) as caught:
            rb.estimate(record)
        (arm,) = caught.value.estimate.arms
        share = arm.transitions[1, 0] / (arm.transitions[1, 0] + arm.transitions[0, 1])
        assert share == pytest.approx(0.4, abs=0.1)
        assert not rb.estimate(record, strict=False).arms[0].identified

    def test_nothing_seen(self):
        with pytest.raises(rb.NotIdentified, match="server: 0 observations"):
            rb.estimate(Record((3,), (None,)), names=["server"])

    def test_a_scarce_state(self):
        record = Record((3,), (None,))
        for state in [0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0] * 5 + [2]:
            record.observe([0], [state], [0.0])
        with pytest.raises(rb.NotIdentified, match=r"server: 60 observations .* as state 2 was observed 1 time; pull"):
            rb.estimate(record, names=["server"])

    def test_enough(self):
        assert all(arm.identified for arm in rb.estimate(played(rb.Problem.builtin("paper-1"), "ucb1", 2000)).arms)

    @pytest.mark.parametrize("prior", [0, -1, float("nan"), float("inf")])
    def test_bad_prior(self, prior):
        with pytest.raises(rb.ProblemError, match="prior is"):
            rb.estimate(Record((2,), (0,)), prior=prior)

    def test_names(self):
        with pytest.raises(rb.ProblemError, match="2 names for 1 arms"):
            rb.estimate(Record((2,), (0,)), names=["a", "b"])


class TestSampler:
    def test_candidates_are_those_of_numpy(self):
        # Two modes in three dimensions, drawn by hand from the same stream.
        rng = np.random.default_rng(5)
        half = rng.standard_normal((2, 3, 3))
        information = half @ half.transpose(0, 2, 1) + np.eye(3)
        modes = arms.Modes(rng.standard_normal((2, 3)), np.array([0.3, 0.0]), information)
        proposal = sampling.proposal_of(modes, 2)
        covariance = np.linalg.inv(information)
        shares = np.exp(modes.value) * np.sqrt(np.linalg.det(covariance))
        shares = np.maximum(shares / shares.max(), sampling.LEAST_WEIGHT)
        assert np.allclose(proposal.weights, shares / shares.sum())
        for seed in range(20):
            mine, theirs = np.random.default_rng(seed), np.random.default_rng(seed)
            m = int(theirs.random() >= proposal.weights[0])
            normal = theirs.standard_normal(3)
            wide = np.sqrt(sampling.FREEDOM / theirs.chisquare(sampling.FREEDOM))
            expected = modes.theta[m] + wide * np.linalg.cholesky(covariance[m]) @ normal
            assert np.allclose(sampling.draw_candidate(mine, proposal), expected)
            assert mine.random() == theirs.random()
        theta = rng.standard_normal((2, 3))
        laws = [
            sum(
                w * stats.multivariate_t(centre, scale, sampling.FREEDOM).pdf(one)
                for w, centre, scale in zip(proposal.weights, modes.theta, covariance, strict=True)
            )
            for one in theta
        ]
        ours = [sampling.log_density(one, proposal) for one in theta]
        assert ours[1] - ours[0] == pytest.approx(np.log(laws[1] / laws[0]))

    def grid_posterior(self, cells):
        """Mean and variance of (P(0,0), P(1,1)) under the posterior of a two-state chain, by a fine grid."""
        values = (np.arange(400) + 0.5) / 400
        stay_good, stay_bad = np.meshgrid(values, values, indexing="ij")
        memory, rest = stay_good + stay_bad - 1, (1 - stay_bad) / (2 - stay_good - stay_bad)
        logs = np.zeros_like(memory)
        for elapsed, state, seen in zip(*cells, strict=True):
            fade = memory**elapsed
            good = rest + fade * ((1 - rest) if state == 0 else -rest)
            logs += seen[0] * np.log(np.maximum(good, 1e-300)) + seen[1] * np.log(np.maximum(1 - good, 1e-300))
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        means = (weights * stay_good).sum(), (weights * stay_bad).sum()
        return means, (weights * (memory > 0)).sum()

    @pytest.mark.parametrize("waits", [[1, 2], [2, 4]])
    def test_draws_have_the_posterior(self, waits):
        rng = np.random.default_rng(3)
        chain = np.array([[0.75, 0.25], [0.35, 0.65]])
        record = Record((2,), (0,))
        state = 0
        for k in range(40):
            wait = waits[k % 2]
            record.skip(wait - 1)
            state = int(rng.random() > np.linalg.matrix_power(chain, wait)[state, 0])
            record.observe([0], [state], [0.0])
        cells = estimation.observations_of(record, 0)
        modes = estimation.modes_of(cells, 2)
        room = (np.stack([getattr(mode, name) for mode in modes]) for name in ("theta", "value", "information"))
        proposal = sampling.proposal_of(arms.Modes(*room), len(modes))
        theta, total, drawn = modes[0].theta.copy(), 0, []
        for _ in range(6000):
            total += sampling.metropolis(rng, cells, 2, 1.0, proposal, theta, 3)
            drawn.append(np.diag(kernels.chain_of(theta, 2)))
        drawn = np.array(drawn)
        means, positive = self.grid_posterior(cells)
        # Acceptance is above a half, so three steps between draws leave them nearly independent.
        assert total / 18_000 > 0.5
        error = drawn.std(axis=0) / np.sqrt(len(drawn) / 3)
        assert (np.abs(drawn.mean(axis=0) - means) < 5 * error).all()
        assert abs((drawn.sum(axis=1) > 1).mean() - positive) < 5 * np.sqrt(0.25 / 2000)


class TestAllArms:
    def record(self):
        problem = rb.Problem.random(n_arms=6, n_states=2, seed=3)
        more = [arm.named(f"more {i}") for i, arm in enumerate(rb.Problem.random(n_arms=2, n_states=4, seed=4).arms)]
        record = played(rb.Problem([*problem.arms, rb.Arm([[1.0]], [0.5]), *more]), "ucb1", 400)
        record.plan_lengths = []
        return record

    def test_what_was_seen(self):
        record = self.record()
        for arm, n in enumerate(record.n_states):
            cells = [
                (int(middle), s, record.counts(arm)[s, b].tolist())
                for b, middle in enumerate(BIN_MIDDLES)
                for s in range(n)
                if record.visits(arm)[s, b]
            ]
            elapsed, states, seen = estimation.observations_of(record, arm)
            assert list(zip(elapsed.tolist(), states.tolist(), seen.tolist(), strict=True)) == cells

    def test_the_same_modes_and_errors_as_one_by_one(self):
        record = self.record()
        fits = estimation.fit_from_last(record)
        for arm, n in enumerate(record.n_states.tolist()):
            mine = slice(fits.first[arm], fits.first[arm + 1])
            if n > 1:
                best = estimation.modes_of(estimation.observations_of(record, arm), n)[0]
                assert np.array_equal(fits.theta[mine], best.theta)
                assert np.array_equal(fits.errors[mine], estimation.move_errors(best))
            assert fits.notes["modes"][arm] == fits.theta[mine].tolist()

    def test_arms_that_did_not_change_are_left_alone(self):
        record = self.record()
        record.plan_lengths.append(record.slots)
        record.remember(estimation.fit_from_last(record).notes)
        # One arm is seen again; another one's mode is moved aside, and nobody looks there.
        record.observe([0], [1], [0.0])
        moved = [list(theta) for theta in record.notes["modes"]]
        moved[0], moved[1] = [0.1, 0.2], [0.3, 0.4]
        record.notes["modes"] = moved
        again = estimation.fit_from_last(record)
        assert again.notes["modes"][1:] == moved[1:]
        fresh = estimation.modes_of(estimation.observations_of(record, 0), 2)[0]
        assert np.allclose(kernels.chain_of(again.theta[:2], 2), kernels.chain_of(fresh.theta, 2), atol=1e-3)

    def test_a_thorough_look_comes_to_every_arm_that_changed(self):
        record = self.record()
        for plans in range(1, 2 * estimation.THOROUGH + 1):
            record.plan_lengths.append(1)
            record.observe([0 if plans % 2 else 3], [0], [1.0])
            notes = estimation.fit_from_last(record).notes
            assert notes["fitted"] == record.pulls.tolist()
            if plans % estimation.THOROUGH == 0:
                assert notes["searched"] == record.pulls.tolist()
            elif plans > estimation.THOROUGH:
                assert notes["searched"] != record.pulls.tolist()
            record.remember(notes)

    @pytest.mark.parametrize(
        "notes",
        [
            {"modes": [[0.0, 0.0]]},
            {"modes": [[0.0, 99.0]] * 2},
            {"modes": [[0.0, 0.0]] * 2, "fitted": [1]},
            {"modes": [[0.0, 0.0]] * 2, "fitted": [1, 0.5]},
            {"modes": [[0.0, 0.0]] * 2, "fitted": [1, 1], "searched": [[1], [2]]},
        ],
    )
    def test_notes_that_nobody_left(self, notes):
        record = Record((2, 2), (1, 1))
        record.remember(notes)
        with pytest.raises(rb.ProblemError, match="the notes of the last plan hold"):
            estimation.fit_from_last(record)

    @given(st.integers(1, 6), st.integers(0, 10**6))
    def test_small_matrices(self, n, seed):
        rng = np.random.default_rng(seed)
        half = rng.standard_normal((n, n))
        matrix = half @ half.T + 0.1 * np.eye(n)
        lower = arms.root(matrix)
        assert np.allclose(lower, np.linalg.cholesky(matrix), atol=1e-9)
        assert np.allclose(arms.inverse_root(lower) @ lower, np.eye(n), atol=1e-9)
        assert np.allclose(arms.inverse(matrix), np.linalg.inv(matrix), atol=1e-8)

    def test_no_direction_is_left_without_information(self):
        assert np.isfinite(arms.inverse(np.array([[1.0, 1.0 + 1e-15], [1.0 + 1e-15, 1.0]]))).all()
