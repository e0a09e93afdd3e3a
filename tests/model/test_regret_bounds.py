"""Theorems 1 and 2, and what a check says of them."""

import math

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Arm, Problem, ProblemError
from restless_bandits.model.optimism import optimistic_chain
from restless_bandits.paper import theory
from tests.model.chains import PAPER, THREE


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
