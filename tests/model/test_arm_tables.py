"""Problems from tables of arms: every format, kinds, and the sentence of every mistake."""

import numpy as np
import pytest

from restless_bandits import Arm, Problem, ProblemError, rank
from restless_bandits._internal import tables
from tests.optional import needed

PATIENTS = {
    "name": ["ana", "ben", "cy"],
    "district": ["north", "north", "south"],
    "p_passive_0_1": [0.1, 0.2, 0.3],
    "p_passive_1_1": [0.5, 0.6, 0.7],
    "p_active_0_1": [0.4, 0.2, 0.3],
    "p_active_1_1": [0.5, 0.9, 0.7],
    "reward_0": [0, 0, 0],
    "reward_1": [1, 1, 0.5],
}


def csv_of(columns):
    rows = [list(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(",".join(map(str, row)) for row in rows) + "\n"


@pytest.fixture
def patients():
    chains = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.8, 0.2], [0.4, 0.6]], [[0.7, 0.3], [0.3, 0.7]]])
    active = np.array([[[0.6, 0.4], [0.5, 0.5]], [[0.8, 0.2], [0.1, 0.9]], [[0.7, 0.3], [0.3, 0.7]]])
    rewards = np.array([[[0, 0], [0, 1]], [[0, 0], [0, 1]], [[0, 0], [0, 0.5]]])
    return Problem.from_arrays(np.stack([chains, active], axis=2), rewards, reward_axes="nsa", names=PATIENTS["name"])


def close(one, other):
    assert [arm.name for arm in one.arms] == [arm.name for arm in other.arms]
    for group, expected in zip(one.groups, other.groups, strict=True):
        for word in ("active", "passive", "active_rewards", "passive_rewards", "count", "start"):
            assert getattr(group, word) == pytest.approx(getattr(expected, word), abs=1e-12)


def test_every_format(tmp_path, patients, monkeypatch):
    path = tmp_path / "arms.csv"
    path.write_text(csv_of(PATIENTS))
    pyarrow, parquets = needed("pyarrow"), needed("pyarrow.parquet")
    table, parquet = pyarrow.table(PATIENTS), tmp_path / "arms.parquet"
    parquets.write_table(table, parquet)
    for source in (PATIENTS, path, str(path), table, parquet):
        close(Problem.from_table(source, plays=1), patients)
    monkeypatch.setattr(tables, "arrow", lambda: None)
    close(Problem.from_table(path, plays=1), patients)


def test_counts_initial_states_and_an_arm_that_does_not_react():
    table = {"p_passive_0_0": [0.5], "p_passive_0_1": [0.25], "p_passive_1_0": [0.5], "p_passive_1_2": [0.5]}
    table |= {"p_passive_2_1": [0.0], "p_passive_2_2": [1.0], "count": [12], "initial": [2]}
    problem = Problem.from_table(table, plays=3, rewards=[0, 0.5, 1], passive_rewards=[0, 0, 0.2], observed="pulled")
    arm = problem.arms[11]
    assert (problem.n_arms, arm.name, arm.initial, arm.reacts) == (12, "arm 1-12", 2, False)
    assert arm.transitions.tolist() == [[0.5, 0.25, 0.25], [0.5, 0, 0.5], [0, 0, 1]]
    assert arm.mean_rewards.tolist() == [[0, 0], [0, 0.5], [0.2, 1]]


def test_kinds_by_name():
    fast = Arm([[0.2, 0.8], [0.8, 0.2]], [0, 1], name="fast")
    slow = Arm([[0.9, 0.1], [0.1, 0.9]], [0, 1], active_transitions=[[0.5, 0.5], [0.1, 0.9]], name="slow")
    table = {"arm": ["a", "b", "c"], "kind": ["slow", "fast", "slow"]}
    problem = Problem.from_table(table, plays=1, kinds=[fast, slow])
    expected = Problem([slow.named("a"), fast.named("b"), slow.named("c")], observed="all")
    close(problem, expected)
    assert [arm.reward_law for arm in problem.arms] == ["bernoulli"] * 3
    close(Problem.from_table(table, plays=1, kinds={"fast": fast, "slow": slow}), expected)
    close(Problem.from_table(table, plays=1, kinds=Problem([fast, slow])), expected)


def test_kinds_that_differ_in_more_than_numbers():
    big = Arm([[0.2, 0.5, 0.3], [0, 1, 0], [0.5, 0.5, 0]], [0, 1, 0.5], setup_cost=0.1, name="big")
    small = Arm([[0.9, 0.1], [0.1, 0.9]], [0, 1], name="small", initial=1)
    table = {"arm": ["a", "b", "c"], "kind": ["small", "big", "small"], "count": [1, 4, 2]}
    problem = Problem.from_table(table, plays=2, kinds=[big, small])
    close(
        problem, Problem([small.named("a"), big.named("b").of_count(4), small.named("c").of_count(2)], observed="all")
    )
    assert problem.n_arms == 7
    assert rank(problem, {"a": 1, "b-1": 3, "b-2": 0, "b-3": 1, "b-4": 2, "c-1": 0, "c-2": 1}).names
    assert Problem.from_table({"kind": table["kind"]}, plays=2, kinds=[big, small]).names[1] == "arm 2"


def test_names_positions_and_sizes():
    arm = Arm([[0.2, 0.8], [0.8, 0.2]], [0, 1], name="a")
    problem = Problem([arm.of_count(12), arm.named("b")], plays=3, observed="all")
    assert list(problem.names) == [one.name for one in problem.arms]
    assert problem.names[1:3] == ("a-02", "a-03")
    assert problem.arm_numbers(["b", "a-12", "a-01"]).tolist() == [12, 11, 0]
    with pytest.raises(ProblemError, match="there is no arm 'a'"):
        problem.arm_numbers(["b", "a"])
    assert problem.with_arms(26).plays == 6
    assert problem.with_arms(26, plays=1).kind_counts.tolist() == [24, 2]
    assert problem.with_plays(13).plays == 13
    with pytest.raises(ProblemError, match=r"14 arms cannot be divided like 13 arms; give a multiple of 13"):
        problem.with_arms(14, plays=2)


def test_the_range_of_a_slot():
    arm = Arm([[0.2, 0.8], [0.8, 0.2]], [-1, 1], reward_range=(-1, 1), name="a")
    assert Problem([arm.of_count(5)], plays=2, observed="all").slot_range is None
    assert Problem([arm.of_count(5)], plays=2, observed="all", at_most=True).slot_range == (-5, 5)
    dear = Arm([[0.2, 0.8], [0.8, 0.2]], [0, 1], setup_cost=0.5, name="a")
    assert Problem([dear.of_count(5)], plays=2).slot_range == (-1, 5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"p_active_1_1": None}, "the table of arms has no column p_active_1_1; add it"),
        ({"reward_1": None}, "the table of arms has no column reward_1; add it"),
        ({"p_passive_1_1": [0.5, 1.6, 0.7]}, "row 1: p_passive_1_1 is 1.6; a probability must lie between 0 and 1"),
        ({"p_passive_1_0": [0.5, 0.4, 0.4]}, "row 2: the sum of p_passive_1_0 to p_passive_1_1 is 1.1; it must be 1"),
        ({"reward_1": ["1", "", "x"]}, "row 1: reward_1 is missing; give a number"),
        ({"reward_1": ["1", "x", "1"]}, "row 1: reward_1 is 'x', which is no finite number; give a number"),
        ({"name": ["ana", "ben", "ana"]}, "row 2: name is 'ana', as in an earlier row; give each arm once"),
        ({"name": ["ana", None, "cy"]}, "row 1: name is missing; give a text"),
        ({"count": [1, -2, 1]}, "row 1: count is -2; it must be a whole number of at least 1"),
        ({"initial": [0, 0, 3]}, "row 2: initial is 3; it must be a state from 0 to 1"),
        ({"p_resting_0_1": [0, 0, 0]}, "has a column 'p_resting_0_1'; write p_passive_0_1"),
    ],
)
def test_mistakes(change, sentence):
    table = {key: column for key, column in (PATIENTS | change).items() if column is not None}
    with pytest.raises(ProblemError) as error:
        Problem.from_table(table, plays=1)
    assert sentence in str(error.value)


def test_sums_along_another_axis():
    chain = {"p_passive_0_0": [0.9], "p_passive_0_1": [0.5], "p_passive_1_0": [0.1], "p_passive_1_1": [0.5]}
    with pytest.raises(ProblemError, match=r"sum of p_passive_0_0 to p_passive_0_1 is 1.4; it must be 1; the sums"):
        Problem.from_table(chain | {"reward_0": [0], "reward_1": [1]}, plays=1)
    with pytest.raises(ProblemError, match=r"transitions\[0\] sums to 1.4, not 1; its columns do, so exchange"):
        Arm([[0.9, 0.5], [0.1, 0.5]], [0, 1])


def test_other_mistakes(tmp_path):
    def refused(sentence, table=PATIENTS, **options):
        with pytest.raises(ProblemError) as error:
            Problem.from_table(table, **({"plays": 1} | options))
        assert sentence in str(error.value)

    arm = Arm([[0.2, 0.8], [0.8, 0.2]], [0, 1], name="fast")
    refused("plays is 4; it must be a whole number from 1 to 3", plays=4)
    refused("has no column kind", kinds=[arm])
    refused("there is no kind 'fats'; did you mean 'fast'?", {"kind": ["fats"]}, kinds=[arm])
    refused("names kinds of arms; give the arms of these kinds as kinds", {"kind": ["fast"]})
    kinds = [arm, Arm([[1]], [1], name="big")]
    refused("has a column initial, and the kinds differ", {"kind": ["fast"], "initial": [0]}, kinds=kinds)
    refused("has columns reward_0, … already; leave out rewards", rewards=[0, 1])
    refused("rewards is [0]; give a number for each of 2 states", PATIENTS | {"x": [1, 1, 1]}, passive_rewards=[0])
    refused("has no rows", {"p_passive_0_0": []})
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    refused("begin it with a line such as name,p_passive_0_1", empty)
