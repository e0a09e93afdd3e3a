"""Arms with deadlines in problem files: their published index, their chains, and mistakes."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.model.deadlines import deadline_states

TEXT = """
plays = 1
observed = "all"
[[arms]]
deadline = {table}
[[arms]]
name = "other"
transitions = [[1.0]]
rewards = [0.0]
"""
TABLE = "{ longest = 2, load = 1, arrival = 0.5, cost = 0.25, penalty = 0.5 }"


def test_published_index():
    """Yu, Xu, Tong: a closed form at the discount .99."""
    problem, discount = rb.Problem.builtin("deadline-12-9"), 0.99
    index = rb.oracles.whittle_index(problem.arms[0], observed="all", discount=discount).table[:, 0]
    penalty = 0.2 * np.arange(10) ** 2
    expected = []
    for time, load in deadline_states(12, 9):
        late = load - max(time - 1, 0)
        due = discount ** (time - 1) * (penalty[late] - penalty[late - 1]) if load and late > 0 else 0.0
        expected.append(due + 0.5 if load else 0.0)
    assert len(expected) == 121
    assert index == pytest.approx(expected, abs=1e-10)


def test_ties_are_no_violations():
    """Without a discount a unit may be charged now or later: an advantage of zero over a range of subsidies."""
    found = rb.oracles.whittle_index(rb.Problem.builtin("deadline-12-9").arms[0], observed="all")
    assert found.indexable
    # Nothing can be put off at the deadline, so there is no tie there.
    assert found.table[2:11, 0] == pytest.approx(0.5 + 0.2 * (2 * np.arange(1, 10) - 1), abs=1e-9)


def test_a_small_arm():
    arm = rb.Problem.from_toml(TEXT.format(table=TABLE)).arms[0]
    # The states: empty, (1, 0), (1, 1), (2, 0), (2, 1). New jobs have load 1 and one or two slots.
    arrived = [0.5, 0, 0.25, 0, 0.25]
    assert arm.chain.tolist() == [arrived, arrived, arrived, [0, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert arm.active_chain.tolist() == [arrived, arrived, arrived, [0, 1, 0, 0, 0], [0, 1, 0, 0, 0]]
    assert arm.mean_rewards[:, 1].tolist() == [0, 0, 0.75, 0, 0.75]
    assert arm.mean_rewards[:, 0].tolist() == [0, 0, -0.5, 0, 0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("3", "deadline is 3; give a table with longest, load, arrival, cost, penalty"),
        (TABLE.replace("load = 1, ", ""), "deadline: load is missing"),
        (TABLE.replace("load", "loads"), "unknown key"),
        (TABLE.replace("0.5, cost", "1.5, cost"), "a probability must lie between 0 and 1"),
        (TABLE.replace("longest = 2", "longest = 2000"), "has 4,001 states; give at most 2,000"),
        (TABLE + "\nrewards = [0.0]", "rewards follows from deadline; leave rewards out"),
    ],
)
def test_mistakes(table, message):
    with pytest.raises(rb.ProblemError, match=message):
        rb.Problem.from_toml(TEXT.format(table=table))
