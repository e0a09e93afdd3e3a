import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.learning.learners.likelihood_sets import confidence_set
from restless_bandits.model.potentials import is_stochastically_monotone
from restless_bandits.paper.theory import (
    dominance_bound,
    dominance_bound_from,
    explicit_potential,
    least_potential,
    likelihood_width,
)
from restless_bandits.paper.theory.dominance import forgetting_cap
from restless_bandits.simulation.engine import World, play_run

SLOW = np.array([[0.5, 0.5, 0.0], [0.5, 0.49, 0.01], [0.0, 0.001, 0.999]])


def monotone_chain(n_states, seed):
    return Problem.random(1, n_states, seed=seed, floor=0.03).arms[0].chain


def iterated(chain, length=400):
    """f = 1 + max_τ P^τ f, plainly from zero: an increasing sequence that stays below the least solution."""
    powers = [np.linalg.matrix_power(chain, tau) for tau in range(1, length)]
    f = np.zeros(len(chain))
    for _ in range(100_000):
        onward = 1 + np.max([power @ f for power in powers], axis=0)
        onward[0] = 0.0
        if np.abs(onward - f).max() < 1e-9:
            break
        f = onward
    return f


@settings(max_examples=20)
@given(st.sampled_from([2, 3, 4]), st.integers(0, 10**6))
def test_potentials_satisfy_their_inequality(n_states, seed):
    """Lemma 6 and the least f: Σ_y P^τ(x, y) φ(y) ≤ φ(x) − 1 for x other than the best and every τ."""
    chain = monotone_chain(n_states, seed)
    for potential in (least_potential(chain), explicit_potential(chain)):
        assert potential[0] == 0
        assert (np.diff(potential) >= -1e-9 * potential[-1]).all()
        power = np.eye(n_states)
        for _ in range(300):
            power = power @ chain
            assert ((power @ potential)[1:] <= potential[1:] - 1 + 1e-8 * potential[-1]).all()
    assert (least_potential(chain) <= explicit_potential(chain) + 1e-8).all()
    hitting = np.linalg.solve(np.eye(n_states - 1) - chain[1:, 1:], np.ones(n_states - 1))[-1]
    assert hitting - 1e-8 <= least_potential(chain)[-1]
    assert explicit_potential(chain)[-1] <= (hitting**2 + 2 * hitting) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_least_potential_is_that_of_plain_iteration(seed):
    chain = Problem.random(1, 3, seed=seed, floor=0.15).arms[0].chain
    np.testing.assert_allclose(least_potential(chain), iterated(chain), rtol=1e-5)


def test_hitting_times_alone_are_not_enough():
    """A chain whose worst state takes 1022 steps to the best, but 11 012 pulls at the worst gaps."""
    hitting = np.linalg.solve(np.eye(2) - SLOW[1:, 1:], np.ones(2))
    assert hitting[-1] == pytest.approx(1022, rel=1e-6)
    assert least_potential(SLOW)[-1] == pytest.approx(11_012, rel=1e-3)
    assert explicit_potential(SLOW)[-1] == pytest.approx(11_264, rel=1e-3)


def test_special_chains():
    assert least_potential(np.array([[0.7, 0.3], [0.2, 0.8]])).tolist() == pytest.approx([0, 5])
    assert least_potential(np.ones((1, 1))).tolist() == [0]
    assert explicit_potential(np.ones((1, 1))).tolist() == [0]
    assert math.isinf(least_potential(np.eye(2))[1])
    stuck = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    assert math.isinf(least_potential(stuck)[-1])


@settings(max_examples=20)
@given(st.sampled_from([2, 3, 4]), st.integers(0, 10**6), st.sampled_from([1e-2, 1e-6]))
def test_caps_are_where_the_last_state_is_forgotten(n_states, seed, memory):
    arm = Arm(monotone_chain(n_states, seed), np.zeros(n_states))
    truncation = forgetting_cap(arm, memory)

    def difference(tau):
        distribution = np.linalg.matrix_power(arm.chain, tau)
        return np.cumsum(distribution[0] - distribution[-1]).max()

    assert difference(truncation) <= memory * (1 + 1e-6)
    assert truncation == 1 or difference(truncation - 1) > memory * (1 - 1e-6)
    # It multiplies at most, which is what the learner counts on.
    assert difference(7) <= difference(3) * difference(4) + 1e-12


def test_theorem_1_by_hand():
    problem = Problem.builtin("paper-1")
    horizon = 10**6
    bound = dominance_bound(problem, horizon)
    log = math.log(horizon)
    assert likelihood_width(horizon) == bound.level == pytest.approx(9 * log + 2 * math.e)
    # Two arms; c = .2.
    spread = 2 * math.sqrt(2 * horizon * (1 + log))
    assert bound.laws == pytest.approx((1 + math.sqrt(2)) * math.sqrt(bound.level) * spread / 0.2)
    widths = (math.sqrt(log) + math.sqrt(math.log(4e12))) / math.sqrt(2)
    assert bound.rewards == pytest.approx((1 + math.sqrt(2)) * widths * 2000)
    episodes = 2 + 1.5 * spread + 4 * (1 + math.log2(1e6)) + log / math.log(1.1)
    assert bound.episodes == pytest.approx(2 / 0.2 * episodes)
    failures = sum(math.e * math.ceil(j * (j + 1) * math.log(2) ** 2) * (1.2 + 5 / 2**j) for j in range(1, 20))
    assert bound.failure == pytest.approx(2 * (1.2 * 20 + 10) + 4 * (6.2 + failures) + 3)
    assert bound.total == pytest.approx(bound.laws + bound.rewards + bound.episodes + bound.failure + 2510)


def test_planning_terms_add_up():
    """Σ ℓ_k/√t_k over episodes that are as long as the slot rule lets them is at most 2.5 √T + 10."""
    t, lost = 1, 0.0
    while t < 10**9:
        length = (t - 1) // 10 + 5
        lost += length / math.sqrt(t)
        t += length
        assert lost <= 2.5 * math.sqrt(t - 1) + 10
        assert t >= 1.1 * (t - length)


def test_episodes_by_counts_are_at_most_this_many():
    """1 + log₂ n ≤ 1.5 √n, which turns a sum over cells into one that the waits bound."""
    n = np.arange(1, 10**6)
    assert (1 + np.log2(n) <= 1.5 * np.sqrt(n) * (1 + 1e-12)).all()


def chain_powers(best, worst, waits):
    chain = np.array([[best, 1 - best], [worst, 1 - worst]])
    return np.array([np.linalg.matrix_power(chain, tau) for tau in waits])


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(2, 300))
def test_nets_of_chains(seed, horizon):
    """Lemma 2: some chain of the net is within a factor 1 + 1/T of every move, so of all powers by powers of that."""
    rng = np.random.default_rng(seed)
    worst, best = sorted(rng.random(2) ** rng.choice([0.1, 1, 10]))
    net = np.arange(1, horizon + 1) / (horizon + 1)
    near = [
        x[np.argmax((y <= x * (1 + 1 / horizon) + 1e-15) & (1 - y <= (1 - x) * (1 + 1 / horizon) + 1e-15))]
        for x, y in ((net, best), (net, worst))
    ]
    waits = np.arange(1, horizon + 1)
    ours, theirs = chain_powers(best, worst, waits), chain_powers(*near, waits)
    factor = (1 + 1 / horizon) ** waits
    assert (ours <= factor[:, None, None] * theirs * (1 + 1e-9)).all()
    assert (np.abs(ours - theirs).max(axis=(1, 2)) <= (math.e - 1) * waits / horizon + 1e-12).all()


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 300))
def test_chains_near_the_truth_have_mass(seed, slots):
    """Lemma 1: a chain that is the truth but for a part 1/(t + 1) keeps a share of 1/e of the likelihood at least."""
    rng = np.random.default_rng(seed)
    worst, best = sorted(rng.choice([0.0, 1.0, *rng.random(3)], size=2))
    other = sorted(rng.random(2))
    part = 1 / (slots + 1)
    waits = rng.multinomial(slots, np.full(5, 0.2))
    waits = waits[waits > 0]
    near = chain_powers((1 - part) * best + part * other[1], (1 - part) * worst + part * other[0], waits)
    truth = chain_powers(best, worst, waits)
    assert (near >= truth * (1 - part) ** waits[:, None, None] * (1 - 1e-12)).all()
    assert np.prod((1 - part) ** waits) >= math.exp(-1)


@pytest.mark.parametrize("name", ["paper-2", "lms-urban-s"])
def test_widths_are_those_of_the_theorem(name):
    """Σ n (G_θ − G)² ≤ β₂ for the chains of the program's sets, at their edges, and the truth never above.

    The sets of the program are a little larger than those of the theorem; β₂ has room for that many times over.
    """
    problem = Problem.builtin(name)
    for horizon in (300, 30_000):
        run = play_run(rb.learner("likelihood-dominance"), World(problem), horizon, np.array([horizon]), seed=0, run=1)
        for i, arm in enumerate(problem.arms):
            counts = run.record.counts(i)[:2].sum(axis=2)
            waits = np.flatnonzero(counts.sum(axis=0)) + 1
            truth = chain_powers(arm.transitions[0, 0], arm.transitions[1, 0], waits)[:, :, 0]
            largest = 0.0
            for low, high, at_low, at_high in confidence_set(run.record.counts(i), math.log(horizon + 1)):
                for chance, share in ((low, at_low), (high, at_high)):
                    if 0 <= share <= 1:
                        chain = chain_powers(1 - (1 - share) * chance, share * chance, waits)[:, :, 0]
                        largest = max(largest, float((counts[:, waits - 1].T * (chain - truth) ** 2).sum()))
            assert 1 < largest <= likelihood_width(horizon)


def test_when_the_bound_says_anything():
    for name, gain, about in (("paper-1", 0.456464072292, 2.0e7), ("paper-2", 0.286004062011, 2.5e8)):
        problem = Problem.builtin(name)
        start = dominance_bound_from(problem, gain)
        assert start == pytest.approx(about, rel=0.05)
        assert dominance_bound(problem, start).total < start * gain
        assert dominance_bound(problem, start - 1).total >= (start - 1) * gain
    assert dominance_bound_from(problem, 0.0) is None


def test_more_states_cost_more():
    three = Problem.random(2, 3, seed=1, floor=0.1)
    bound = dominance_bound(three, 10**6)
    assert bound.pulls == pytest.approx(max(least_potential(arm.chain)[-1] for arm in three.arms))
    assert bound.level == pytest.approx(math.log(2 * 3 * bound.cells) + 2 * math.log(10**6))
    assert np.isfinite(bound.total)


def test_measured_regret_is_below_the_bound():
    """At a horizon at which the bound is below all that can be earned, so that a bad learner would exceed it."""
    problem = Problem([Arm.two_state(0.6, 0.5, initial=0), Arm.two_state(0.55, 0.5, (0.9, 0), initial=0)])
    gain = rb.oracles.exact(problem).lower
    horizon = 2 * dominance_bound_from(problem, gain)
    result = rb.simulate(problem, "likelihood-dominance", horizon, runs=2, engine="threads")
    bound = dominance_bound(problem, horizon).total
    assert bound < horizon * gain
    assert result.regret()[..., -1].max() < bound


def test_refusals():
    with pytest.raises(ProblemError, match=r"rewards\[1\] exceeds"):
        dominance_bound(Problem([Arm.two_state(0.7, 0.8, (0, 1))]), 100)
    negative = Arm.two_state(0.1, 0.2)
    assert not is_stochastically_monotone(negative.chain)
    with pytest.raises(ProblemError, match="not stochastically monotone"):
        dominance_bound(Problem([negative]), 100)
    with pytest.raises(ProblemError, match="never forgets"):
        dominance_bound(Problem([Arm(np.eye(3), [1, 0.5, 0])]), 100)
    with pytest.raises(ProblemError, match="table of distributions"):
        dominance_bound(Problem([TableArm(np.full((1, 2, 2), 0.5), [1, 0], initial=0)]), 100)
