"""What a plan would show, followed ahead, and the optimism that is left."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits.learning.estimation import chain_kernels as kernels
from restless_bandits.learning.estimation import counts_of, fit_from_last, observations_of
from restless_bandits.learning.estimation.arm_kernels import inverse
from restless_bandits.learning.learners import exploration_kernels as exploring
from restless_bandits.learning.learners.confidence_bounds import arm_means, kl_upper, monotone_fit
from restless_bandits.model.record import Record
from restless_bandits.oracles import planning
from restless_bandits.oracles.whittle import flat_arms
from restless_bandits.policies.choice_kernels import choices_of
from restless_bandits.simulation.engine import World, play_run

HOPPING = [rb.Arm([[0.1, 0.9], [0.8, 0.2]], [0.9, 0.1]), rb.Arm([[0.6, 0.4], [0.3, 0.7]], [0.8, 0.1])]


def played(problem, slots=300, spec="round-robin"):
    return play_run(rb.learner(spec), World(problem), slots, np.array([slots]), seed=0, run=0).record


def ahead(problem, policy, other, record, slots, seed=0):
    both = choices_of(policy, "a test"), choices_of(other, "a test")
    rng = np.random.default_rng(seed)
    return exploring.follow(rng, *both, flat_arms(problem.arms), record.last_state.copy(), record.elapsed, slots)


class TestFollow:
    @pytest.mark.parametrize(
        ("problem", "kinds"),
        [
            (rb.Problem.builtin("paper-2"), ("table", "index")),
            (rb.Problem.builtin("paper-2"), ("index", "table")),
            (rb.Problem(HOPPING), ("table", "index")),
            (rb.Problem.random(n_arms=3, n_states=3, seed=4, plays=2), ("table", "index")),
            (rb.Problem.random(n_arms=12, n_states=4, seed=4, plays=3), ("index", "index")),
        ],
    )
    def test_pulls_what_the_policy_says(self, problem, kinds):
        makers = {"table": lambda: planning.joint_plan(problem, 1e-3), "index": lambda: planning.quick_whittle(problem)}
        policy, other = (makers[kind]() for kind in kinds)
        assert policy is not None
        record = played(problem)
        looks, differ = ahead(problem, policy, other, record, 400)
        states, elapsed = record.last_states.tolist(), record.elapsed.tolist()
        n, differences = problem.plays, 0
        for slot in range(400):
            mine = looks[n * slot : n * (slot + 1)]
            asked, others = (np.atleast_1d(p(states, elapsed)).tolist() for p in (policy, other))
            assert sorted(mine[:, 0].tolist()) == asked
            differences += asked != others
            elapsed = [wait + 1 for wait in elapsed]
            for arm, last, wait, seen in mine.tolist():
                assert (last, wait) == (states[arm], elapsed[arm] - 1)
                states[arm], elapsed[arm] = seen, 1
        assert differ == differences

    @pytest.mark.parametrize("problem", [rb.Problem(HOPPING), rb.Problem.random(n_arms=2, n_states=4, seed=1)])
    def test_sees_what_the_chains_show(self, problem):
        record = played(problem)
        looks, _ = ahead(problem, policy := planning.quick_whittle(problem), policy, record, 40_000)
        cells, counts = np.unique(looks[:, :3], axis=0, return_counts=True)
        # Normal scores of every state in the commonest cells: 4e-7 each beyond 5.1, at most 40 of them.
        for cell, count in list(zip(cells.tolist(), counts.tolist(), strict=True)):
            if count < 2_000:
                continue
            arm, last, wait = cell
            distribution = np.linalg.matrix_power(problem.arms[arm].chain, wait)[last]
            seen = np.bincount(looks[(looks[:, :3] == cell).all(axis=1), 3], minlength=len(distribution))
            spread = np.sqrt(count * distribution * (1 - distribution))
            assert (np.abs(seen - count * distribution) <= 5.1 * spread + 1e-9).all()

    def test_begins_where_nothing_was_pulled_or_seen(self):
        problem = rb.Problem.builtin("paper-1")
        record = Record((2, 2), (None, None))
        record.skip(5)
        policy = planning.joint_plan(problem, 1e-3)
        assert len(ahead(problem, policy, policy, record, 10)[0]) == 10


class TestAnticipate:
    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize("n_states", [2, 3])
    def test_as_if_it_had_been_seen(self, seed, n_states):
        problem = rb.Problem.random(n_arms=3, n_states=n_states, seed=seed)
        record = played(problem)
        fits = fit_from_last(record)
        looks = ahead(problem, policy := planning.quick_whittle(problem), policy, record, 200)[0]
        errors = fits.errors.copy()
        seen = exploring.anticipate(looks, 7.0, fits.theta, fits.first, counts_of(record), errors)
        for arm in range(3):
            theta = fits.theta[fits.first[arm] : fits.first[arm + 1]]
            gradient, information = np.empty(len(theta)), np.empty((len(theta), len(theta)))
            kernels.log_posterior(theta, n_states, observations_of(record, arm), 1.0, gradient, information)
            mine = looks[looks[:, 0] == arm]
            chain = kernels.chain_of(theta, n_states)
            for _, last, wait, _ in mine.tolist():
                # One look shows Σ ∇p ∇pᵀ / p; derivatives by differences.
                step, slopes = 1e-6, []
                for j in range(len(theta)):
                    up, down = theta.copy(), theta.copy()
                    up[j] += step
                    down[j] -= step
                    laws = [np.linalg.matrix_power(kernels.chain_of(one, n_states), wait)[last] for one in (up, down)]
                    slopes.append((laws[0] - laws[1]) / (2 * step))
                distribution = np.linalg.matrix_power(chain, wait)[last]
                can = distribution > 0
                information += 7 * np.array(slopes)[:, can] / distribution[can] @ np.array(slopes)[:, can].T
            expected = kernels.move_errors(theta, n_states, inverse(information))
            assert np.allclose(errors[fits.first[arm] : fits.first[arm + 1]], expected, rtol=1e-5)
            shown = np.bincount(mine[:, 3], minlength=n_states)
            assert np.allclose(seen[record.state_base[arm] : record.state_base[arm + 1]], record.seen(arm) + 7 * shown)

    def test_arms_that_are_left_alone_keep_their_errors(self):
        problem = rb.Problem.builtin("lms-suburban-l")
        record = played(problem, 3000)
        fits, policy = fit_from_last(record), planning.quick_whittle(problem)
        found = exploring.look_ahead(
            np.random.default_rng(0), policy, flat_arms(problem.arms), record, fits, 500, 3000.0
        )
        assert (found.used > 0).tolist() == [True, False, True]
        assert found.pulls.tolist() == [0, 1000, 0]
        assert (found.errors[2:4] == fits.errors[2:4]).all()
        assert (found.errors[[0, 1, 4, 5]] < fits.errors[[0, 1, 4, 5]]).all()
        back = found.without(np.array([True, False, True]), record, fits)
        assert (back.errors == fits.errors).all()
        assert (back.seen == record.flat_seen).all()
        assert (back.pulls == 1000).all()


class TestLevels:
    @given(st.floats(1, 1e6), st.floats(1, 1e6), st.integers(1, 1000))
    def test_between_nothing_and_a_whole_confidence_bound(self, looks, slots, n_arms):
        scale = exploring.LevelScale.of(n_arms, slots)
        level = exploring.level_of(looks, scale, 0.0, 1.0)
        x = math.log1p(scale.share / looks)
        assert scale.share > slots / n_arms
        assert 0 <= level <= x
        assert exploring.level_of(2 * looks, scale, 0.0, 1.0) < level
        assert exploring.level_of(1.0, scale, looks, 1.0) == level
        # What shares its level with others has it in full as well, but later.
        part = exploring.level_of(looks, scale, 0.0, 0.25)
        assert part == pytest.approx(min(x, x * x / scale.full / 4))
        if x > scale.full:
            assert level == x

    @given(st.integers(0, 10**6))
    def test_optimism_lies_above_the_mode(self, seed):
        rng = np.random.default_rng(seed)
        problem = rb.Problem.random(n_arms=3, n_states=3, seed=seed % 50)
        record = played(problem, 200)
        fits, ordered = fit_from_last(record), np.array([True, True, False])
        scale, pulls = exploring.LevelScale.of(3, 200), rng.choice([0.0, 20.0], size=3)
        likely = fits.chains(np.zeros(3)).reshape(3, 3, 3)
        weights = rng.uniform(0.1, 1, size=3)
        better = exploring.optimistic_chains(
            fits.theta, fits.first, fits.errors, record.n_states, scale, pulls, weights
        ).reshape(3, 3, 3)
        assert np.allclose(better.sum(axis=2), 1)
        assert (np.cumsum(better, axis=2) >= np.cumsum(likely, axis=2) - 1e-12).all()
        sums, seen, first = record.flat_rewards + 0.5, record.flat_seen + 1, record.state_base
        bounds = exploring.optimistic_rewards(sums, seen, seen.astype(float), first, ordered, scale, pulls, weights)
        means = arm_means(sums, seen, first, ordered)
        assert (bounds >= means - 1e-9).all()
        assert (np.diff(bounds.reshape(3, 3)[:2], axis=1) <= 0).all()

    def test_closed_forms(self):
        scale = exploring.LevelScale(100.0, 8.0)
        level = exploring.level_of(10.0, scale, 0.0, 1.0)
        assert level == pytest.approx(math.log(11) ** 2 / 8)
        bounds = exploring.optimistic_rewards(
            np.array([6.0, 1.0]), np.array([10, 10]), np.array([10.0, 40.0]), np.array([0, 2]), np.array([True]),
            scale, np.zeros(1), np.array([0.5]),
        )  # fmt: skip
        later = math.log(1 + 100 / 40) ** 2 / 8
        assert bounds.tolist() == [kl_upper(0.6, 0.5 * level / 10), kl_upper(0.1, 0.5 * later / 40)]
        chains = [
            exploring.optimistic_chains(
                np.zeros(2), np.array([0, 2]), np.array([0.01, 0.02]), np.array([2]), scale, np.array([10.0]), weights
            )
            for weights in (np.zeros(1), np.ones(1), np.array([0.25]))
        ]
        # A quarter of the level is half of the way.
        assert np.allclose(chains[2] - chains[0], (chains[1] - chains[0]) / 2)
        assert chains[1] - chains[0] == pytest.approx(math.sqrt(2 * level) * np.array([0.02, -0.02, 0.01, -0.01]))
        firsts, both = np.array([0, 2, 3]), np.array([True, True])
        means = arm_means(np.array([1.0, 3.0, 1.0]), np.array([2, 4, 4]), firsts, both)
        assert means.tolist() == [*monotone_fit(np.array([1.0, 3.0]), np.array([2, 4])), 0.25]


class TestWeights:
    @staticmethod
    def arms(*arms):
        return flat_arms([rb.Arm(chain, rewards) for chain, rewards in arms])

    def test_one_direction_has_all_of_its_level(self):
        likely = self.arms(([[0.6, 0.4], [0.2, 0.8]], [0.7, 0.3]), ([[0.6, 0.4], [0.2, 0.8]], [0.7, 0.3]))
        widest = self.arms(([[0.6, 0.4], [0.2, 0.8]], [0.9, 0.3]), ([[0.6, 0.4], [0.2, 0.8]], [0.7, 0.3]))
        assert exploring.weights_of(likely, widest).tolist() == [1, 1]

    @given(st.integers(0, 10**6))
    def test_against_stationary_laws(self, seed):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 5))
        likely, widest = (
            (rb.Problem.random(n_arms=1, n_states=n, seed=k).arms[0].chain, np.sort(rng.random(n))[::-1])
            for k in rng.integers(0, 1000, size=2)
        )

        def worth(chain, rewards):
            # Whatever stands in the diagonal: what leaves a state stays if it does not leave.
            moves = chain - np.diag(chain.sum(axis=1))
            distribution = np.linalg.lstsq(np.vstack([moves.T, np.ones(n)]), np.append(np.zeros(n), 1), rcond=None)[0]
            return distribution @ rewards

        more = []
        for a, b in ((a, b) for a in range(n) for b in range(n) if abs(a - b) == 1):
            chain = likely[0].copy()
            chain[a, b] = widest[0][a, b]
            more.append(worth(chain, likely[1]) - worth(*likely))
        for k in range(n):
            rewards = likely[1].copy()
            rewards[k] = widest[1][k]
            more.append(worth(likely[0], rewards) - worth(*likely))
        more = np.maximum(more, 0)
        found = exploring.weights_of(self.arms(likely), self.arms(widest))[0]
        assert found == pytest.approx((more**2).sum() / more.sum() ** 2 if more.sum() > 0 else 1, rel=1e-6)
        assert 1 / len(more) - 1e-9 <= found <= 1
