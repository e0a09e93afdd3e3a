import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Arm, IndexPolicy, Problem, ProblemError
from restless_bandits.policies.policies import top_arms
from restless_bandits.processes.beliefs import UNKNOWN


def test_ties_go_to_the_lowest_arm_within_the_tolerance():
    scores = np.array([[0.5, 0.5 + 5e-13, 0.2], [0.1, 0.2, 0.2], [0.5, 0.5 + 5e-12, 0.5]])
    assert top_arms(scores, 1)[:, 0].tolist() == [0, 1, 1]
    assert top_arms(scores, 2).tolist() == [[0, 1], [1, 2], [0, 1]]


def test_index_policy():
    policy = IndexPolicy((np.array([[0.9, 0.3], [0.1, 0.2], [0.4, 0.4]]), np.array([[0.5], [0.25], [0.6]])))
    assert policy([0, 0], [1, 1]) == 0
    assert policy([0, 0], [7, 1]) == 1, "beyond the table the last column holds"
    assert policy([1, 1], [2, 9]) == 1
    assert policy([None, 1], [1, 1]) == 0
    assert policy([None, None], [1, 1]) == 1
    assert IndexPolicy(policy.tables, plays=2)([0, 0], [1, 1]) == (0, 1)


def test_tables_of_one_shape_may_be_one_array(tmp_path):
    tables = np.random.default_rng(3).random((4, 3, 5))
    one, apart = IndexPolicy(tables), IndexPolicy(tuple(tables))
    assert one == apart
    assert one.n_states == apart.n_states == (2, 2, 2, 2)
    for mine, theirs in zip(one.flat, apart.flat, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    one.save(tmp_path / "p.npz")
    assert rb.load_policy(tmp_path / "p.npz") == one


def test_flat_tables_lie_one_after_the_other():
    tables = tuple(np.random.default_rng(4).random(shape) for shape in ((3, 5), (4, 2), (2, 7)))
    flat = IndexPolicy(tables, periods=(1, 2, 3)).flat
    assert flat.length.tolist() == [5, 2, 7]
    assert flat.period.tolist() == [1, 2, 3]
    for table, base in zip(tables, flat.base, strict=True):
        np.testing.assert_array_equal(flat.table[base : base + table.size].reshape(table.shape), table)


@pytest.mark.parametrize("oracle", ["exact", "whittle"])
@pytest.mark.parametrize("plays", [1, 2])
def test_stored_policies_choose_alike(tmp_path, oracle, plays):
    problem = Problem.random(3, [2, 3, 2], seed=4, plays=plays, initial="unknown")
    policy = rb.oracles.policy(oracle, problem)
    policy.save(tmp_path / "p.npz")
    again = rb.load_policy(tmp_path / "p.npz")
    rng = np.random.default_rng(0)
    states = np.stack([rng.integers(-1, n, size=500) for n in problem.n_states], axis=1)
    slots = rng.integers(1, 50, size=(500, 3))
    np.testing.assert_array_equal(policy.choose(states, slots), again.choose(states, slots))
    assert [path.name for path in tmp_path.iterdir()] == ["p.npz"]


def test_what_is_not_a_policy(tmp_path):
    with pytest.raises(ProblemError, match="cannot read"):
        rb.load_policy(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ProblemError, match="not a stored policy"):
        rb.load_policy(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ProblemError, match="not a stored policy"):
        rb.load_policy(tmp_path / "other.npz")
    with pytest.raises(ProblemError, match="cannot write"):
        rb.oracles.policy("whittle", Problem.builtin("paper-1")).save(tmp_path / "no" / "p.npz")


@pytest.mark.parametrize(
    ("oracle", "changes"),
    [
        ("whittle", {"plays": 3}),
        ("whittle", {"plays": 0}),
        ("whittle", {"periods": [1]}),
        ("whittle", {"periods": [1, 10**6]}),
        ("whittle", {"table_0": np.full((3, 4), np.nan)}),
        ("whittle", {"table_0": np.zeros(3)}),
        ("exact", {"plays": -1}),
        ("exact", {"action": np.full(7, 5)}),
        ("exact", {"arm_0_period": 0}),
        ("exact", {"arm_0_passive": np.zeros(4, dtype=int)}),
        ("exact", {"arm_0_start": 10**9}),
        ("exact", {"arm_0_rewards": [5.0, 0.0]}),
        ("exact", {"arm_1_law": np.zeros((9, 2))}),
    ],
)
def test_policies_that_choose_nothing(tmp_path, oracle, changes):
    path = tmp_path / "p.npz"
    rb.oracles.policy(oracle, Problem.builtin("paper-1")).save(path)
    with np.load(path) as stored:
        arrays = dict(stored)
    assert changes.keys() <= arrays.keys()
    np.savez(path, **arrays | changes)
    with pytest.raises(ProblemError, match="not a stored policy"):
        rb.load_policy(path)


def test_joint_policy_looks_ahead_where_its_table_ends():
    """With nothing pulled for a while no arm has τ = 1; the choice is then the best of one step, worked out here."""
    problem = Problem([Arm.two_state(0.7, 0.8, initial=1), Arm.two_state(0.5, 0.6, (0.8, 0), initial=1)])
    policy = rb.oracles.exact(problem).policy
    laws = [arm.state_distributions(60) for arm in problem.arms]
    for states in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        for slots in [(2, 3), (5, 2), (9, 9)]:
            values = []
            for i, other in ((0, 1), (1, 0)):
                value = 0.0
                for k in range(2):
                    after, wait = [0, 0], [1, 1]
                    after[i], after[other], wait[other] = k, states[other], slots[other] + 1
                    place = policy.beliefs.index(policy.beliefs.locate(np.array([after]), np.array([wait])))[0]
                    chance = laws[i][slots[i], states[i], k]
                    value += chance * (problem.arms[i].rewards[k] + policy.bias[place])
                values.append(value)
            assert policy(states, slots) == int(np.argmax(values))


def test_unknown_states_are_minus_one_in_bulk():
    problem = Problem([Arm.two_state(0.7, 0.8), Arm.two_state(0.5, 0.6, (0.8, 0))])
    policy = rb.oracles.exact(problem).policy
    bulk = policy.choose(np.array([[UNKNOWN, UNKNOWN]]), np.array([[1, 1]]))
    assert policy([None, None], [1, 1]) == bulk[0, 0]
