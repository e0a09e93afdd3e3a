import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError, TableArm
from restless_bandits.theory import (
    dominance_bound,
    dominance_bound_from,
    explicit_potential,
    least_potential,
)
from restless_bandits.theory.dominance import forgetting_cap, is_stochastically_monotone

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
    """Lemma 4 and the least f: Σ_y P^τ(x, y) φ(y) ≤ φ(x) − 1 for x other than the best and every τ."""
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
    cap = forgetting_cap(arm, memory)

    def difference(tau):
        law = np.linalg.matrix_power(arm.chain, tau)
        return np.cumsum(law[0] - law[-1]).max()

    assert difference(cap) <= memory * (1 + 1e-6)
    assert cap == 1 or difference(cap - 1) > memory * (1 - 1e-6)
    # It multiplies at most, which is what the learner counts on.
    assert difference(7) <= difference(3) * difference(4) + 1e-12


def test_theorem_1_by_hand():
    problem = Problem.builtin("paper-1")
    horizon = 10**6
    bound = dominance_bound(problem, horizon)
    # λ = .5 and .1: .5^20 and .1^6 are at most 1e-6.
    assert bound.caps == (20, 6)
    colours = 39 + 11
    beta = math.log(2 * (colours + 4) * 1e12)
    assert bound.cells == colours + 4
    assert bound.level == pytest.approx(beta)
    width = (2 + math.sqrt(2)) * math.sqrt(beta * horizon)
    spread = min(math.sqrt(colours), sum(math.sqrt(2 * (1 + math.log(cap))) for cap in (20, 6)))
    assert bound.laws == pytest.approx(width * spread / 0.2)
    assert bound.rewards == pytest.approx(width * 2)
    assert bound.episodes == pytest.approx(2 / 0.2 * (1 + 54 * math.log2(4e6 / 54) + math.log(1e6) / math.log(1.5)))
    assert bound.total == pytest.approx(bound.laws + bound.rewards + bound.episodes + 11 + 2510)
    assert dominance_bound(problem, 10).total == math.inf


def test_when_the_bound_says_anything():
    for name, gain, about in (("paper-1", 0.456464072292, 1.6e6), ("paper-2", 0.286004062011, 1.9e7)):
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
    """At horizons at which the bound is below all that can be earned, so that a bad learner would exceed it."""
    quick = Problem([Arm.two_state(0.6, 0.5, initial=0), Arm.two_state(0.55, 0.5, (0.9, 0), initial=0)])
    for problem in (quick, Problem.builtin("paper-1")):
        gain = rb.oracles.exact(problem).lower
        horizon = 2 * dominance_bound_from(problem, gain)
        result = rb.simulate(problem, "dominance-ucb:level=theorem", horizon, runs=2, engine="threads")
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
        dominance_bound(Problem([Arm(np.eye(2), [1, 0])]), 100)
    with pytest.raises(ProblemError, match="table of laws"):
        dominance_bound(Problem([TableArm(np.full((1, 2, 2), 0.5), [1, 0], initial=0)]), 100)
