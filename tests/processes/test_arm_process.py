"""The process of an arm: what each action pays, where it leads, and what truncation costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from restless_bandits import Arm, TableArm
from restless_bandits.processes.arm_process import observed_process
from restless_bandits.processes.beliefs import LOST, UNKNOWN, hidden_process, truncation_for


@st.composite
def arms(draw):
    """Arms with every combination of features, some with zeros in their chains."""
    n = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def chain():
        rows = rng.dirichlet(np.ones(n), size=n)
        zeros = rng.random((n, n)) < draw(st.sampled_from([0.0, 0.3]))
        rows[zeros & ~np.eye(n, dtype=bool)] = 0.0
        return rows / rows.sum(axis=1, keepdims=True)

    return Arm(
        chain(),
        rng.random(n),
        active_transitions=draw(st.sampled_from([None, 1])) and chain(),
        passive_rewards=draw(st.sampled_from([None, 1])) and rng.random(n),
        setup_cost=draw(st.sampled_from([0.0, 0.25])),
        initial=draw(st.sampled_from([None, 0])),
    )


def check_layout(process):
    sums = np.add.reduceat(process.prob, process.indptr[:-1])
    assert sums == pytest.approx(1.0, abs=1e-12)
    assert len(process.indptr) == 2 * process.size + 1
    assert process.target.max() < process.size
    assert process.start.sum() == pytest.approx(1.0)
    assert process.reward.shape == process.tv_error.shape == (process.size, 2)
    after = process.matrix(1).sum(axis=0) > 0
    assert set(np.flatnonzero(after)) <= set(process.after_pull.tolist())


class TestHidden:
    @given(arms(), st.integers(1, 12), st.booleans())
    def test_rows_are_distributions_and_rest_is_deterministic(self, arm, truncation, forget):
        process = hidden_process(arm, truncation, forget=forget)
        check_layout(process)
        assert process.deterministic_rest
        assert np.array_equal(process.matrix(0).argmax(axis=1), process.passive)
        assert not process.tv_error[:, 0].any()

    @given(arms(), st.booleans())
    def test_nodes_are_beliefs_within_their_error(self, arm, forget):
        process = hidden_process(arm, truncation_for(arm, 1e-4, 200), forget=forget)
        rest = np.zeros(arm.n_states) if arm.passive_rewards is None else arm.passive_rewards
        starts = [(s, row) for s, row in enumerate(arm.active_chain)]
        if arm.reacts or arm.setup_cost:
            starts += [(UNKNOWN, arm.initial_distribution @ arm.chain), (LOST, arm.stationary @ arm.active_chain)]
        for state, belief in starts:
            for tau in range(1, 9):
                node = int(process.locate(state, tau))
                assert 0.5 * np.abs(process.distribution[node] - belief).sum() <= process.tv_error[node, 1] + 1e-10
                if process.tv_error[node, 1] == 0:
                    cost = arm.setup_cost * (tau > 1 or state == UNKNOWN)
                    assert process.reward[node] == pytest.approx([belief @ rest, belief @ arm.rewards - cost], abs=1e-9)
                belief = belief @ arm.chain

    def test_a_table_is_a_process_too(self):
        arm = TableArm([[[0.5, 0.5], [0.2, 0.8], [0.3, 0.7]], [[0.4, 0.6]] * 3], [1, 0])
        process = hidden_process(arm, 5)
        check_layout(process)
        assert process.start[process.start_node] == 1.0

    def test_a_truncation_that_is_too_short_is_paid_for(self):
        arm = Arm([[0.99, 0.01], [0.02, 0.98]], [1, 0], active_transitions=[[0.5, 0.5], [0.1, 0.9]])
        assert hidden_process(arm, 5).tv_error.max() > 0.2
        assert hidden_process(arm, truncation_for(arm, 1e-10)).tv_error.max() <= 1e-10


class TestObserved:
    @given(arms())
    def test_nodes_are_states(self, arm):
        process = observed_process(arm)
        check_layout(process)
        n = arm.n_states
        for action, chain in enumerate((arm.chain, arm.active_chain)):
            folded = process.matrix(action).reshape(process.size, -1, n).sum(axis=1)
            assert folded[:n] == pytest.approx(chain)
        assert not process.tv_error.any()
        assert process.reward[-n:] == pytest.approx(arm.mean_rewards)
        assert process.size == (2 * n if arm.setup_cost else n)
        # The first pull, and a pull after a slot without one, costs a set-up.
        assert process.reward[:n, 1] == pytest.approx(arm.rewards - arm.setup_cost)
        assert process.after_pull.tolist() == list(range(process.size - n, process.size))
