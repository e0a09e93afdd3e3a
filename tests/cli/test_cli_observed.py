"""Commands on problems whose states are all observed: built-in instances, tables of arms, ranked lists."""

import csv
import json

import pytest

import restless_bandits as rb


@pytest.fixture
def as_json(restless):
    def run(*words):
        code, out, err = restless(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.fixture
def arms(tmp_path):
    """A table of six patients of two states, and a table of their states."""
    path, states = tmp_path / "arms.csv", tmp_path / "states.csv"
    rows = [
        "name,p_passive_0_1,p_passive_1_1,p_active_0_1,p_active_1_1,reward_0,reward_1,passive_reward_0,passive_reward_1"
    ]
    rows += [f"p{i},0.{i + 1},0.8,0.{i + 3},0.9,0,1,0,1" for i in range(6)]
    path.write_text("\n".join(rows) + "\n")
    states.write_text("name,state\n" + "".join(f"p{i},{i % 2}\n" for i in reversed(range(6))))
    return path, states


def test_published_numbers(as_json, restless, tmp_path):
    out = tmp_path / "indices.csv"
    found = as_json("solve", "three-states", "--arms", "1000", "--oracle", "whittle", "--indices", out)
    assert (found["indices"], found["list"], found["policy"]) == (str(out), None, None)
    assert found["upper"] / 1000 == pytest.approx(0.123800171, abs=5e-10)
    assert found["gain"] / 1000 == pytest.approx(0.1142, abs=5e-4)
    assert (found["details"]["arms"], found["details"]["plays"]) == (1000, 400)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["state"]) for row in rows] == [("cyclic", "0"), ("cyclic", "1"), ("cyclic", "2")]
    assert [float(row["index"]) for row in rows] == pytest.approx([0.37401552, 0.181994233, -0.02115716], abs=5e-9)
    fewer = as_json("solve", "three-states", "--arms", "1000", "--plays", "1", "--oracle", "best-arm")
    assert fewer["details"]["plays"] == 1
    assert "count = 10\n" in restless("problems", "show", "three-states", "--arms", "10")[1]


def test_index_by_state(as_json, restless):
    (arm,) = as_json("index", "circulant-4")["arms"]
    assert (arm["name"], arm["count"], arm["indexable"]) == ("cycle", 5, True)
    assert arm["index"] == [pytest.approx([value], abs=1e-12) for value in (-0.5, 0.5, 1, -1)]
    (arm,) = as_json("index", "circulant-4", "--discount", "0.99")["arms"]
    assert arm["index"][2] == pytest.approx([0.98990101], abs=5e-9)
    code, out, _ = restless("index", "conveyor-8")
    assert code == 0
    assert "0.033333333" in out


def test_an_arm_that_is_not_indexable_and_one_with_several_classes(tmp_path, restless, as_json):
    path = tmp_path / "odd.toml"
    still = rb.Arm.rested([[1, 0], [0, 1]], [1, 0.5], name="still")
    path.write_text(rb.Problem([still, still.named("other")], observed="all").to_toml())
    assert "several recurrent classes: 2 of 2 kinds" in restless("index", path)[1]
    first, second = as_json("index", path)["arms"][0]["index"]
    assert first == pytest.approx([1.0], abs=1e-6)
    assert second == pytest.approx([0.5], abs=1e-6)


def test_tables(arms, as_json, restless, tmp_path):
    path, states = arms
    found = as_json("solve", path, "--plays", "2")
    assert found["certified"]
    assert found["problem"] == "arms.csv"
    assert [arm["name"] for arm in as_json("index", path)["arms"]] == [f"p{i}" for i in range(6)]
    assert restless("check", path)[0] == 0
    runs = as_json("simulate", path, "--plays", "2", "--horizon", "50", "--runs", "2")
    assert runs["learners"][0]["spec"] == "lp-index"
    played = ("--plays", "2", "--learner", "lp-index", "--horizon", "9", "--runs", "2", "--comparator", "myopic")
    out = restless("simulate", path, *played)[1]
    assert " ± " in out.splitlines()[-1]
    assert out.endswith("the gain of myopic, simulated\n")
    out = tmp_path / "list.csv"
    ranked = as_json("rank", path, "--states", states, "--plays", "2", "--exclude", "p0,p2", "--out", out)["arms"]
    problem = rb.Problem.from_table(path, plays=2)
    expected = rb.rank(problem, {f"p{i}": i % 2 for i in range(6)}, exclude=["p0", "p2"])
    assert [arm["name"] for arm in ranked] == list(expected.names)
    with out.open() as file:
        assert [row["name"] for row in csv.DictReader(file)] == list(expected.names)
    assert "p2        0" in restless("rank", path, "--states", states, "--plays", "2")[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["solve", "ARMS"], "is a table of arms, which has no number of plays; give --plays"),
        (["solve", "ARMS", "--plays", "7"], "plays is 7; it must be a whole number from 1 to 6"),
        (["solve", "ARMS", "--plays", "2", "--arms", "60"], "has a row for each arm; leave --arms out"),
        (["solve", "ARMS", "--plays", "2", "--observed", "some"], "observed is 'some'; choose from pulled, all"),
        (["solve", "three-states", "--observed", "all"], "--observed is for tables of arms, and three-states is none"),
        (["solve", "three-states", "--arms", "7"], "7 arms cannot be divided like 5 arms with 2 plays"),
        (["solve", "three-states", "--arms", "-5"], "n_arms is -5; it must be a positive whole number"),
        (["solve", "three-states", "--discount", "1.5"], "discount is 1.5; give a number between 0 and 1"),
        (["solve", "paper-1", "--discount", "0.9"], "a discount is for problems with observed = 'all'"),
        (["solve", "three-states", "--memory", "1"], "memory is for arms that are seen when pulled"),
        (
            ["solve", "three-states", "--arms", "1000000", "--oracle", "exact"],
            "divisions of its arms among their states",
        ),
        (["solve", "paper-1", "--oracle", "lp-index"], "the oracle lp-index is for arms that are all observed"),
        (
            ["simulate", "three-states", "--horizon", "9", "--learner", "ts"],
            "ts cannot play arms that are",
        ),
        (["simulate", "three-states", "--horizon", "9", "--lost", "0.1"], "leave out lost and late"),
        (["index", "three-states", "--tau-max", "3"], "--tau-max is for arms that are seen when pulled"),
        (["rank", "paper-1", "--states", "STATES"], "rank needs the states of all arms"),
        (["rank", "ARMS", "--states", "STATES"], "give --plays"),
        (
            ["rank", "ARMS", "--states", "STATES", "--plays", "5", "--exclude", "p0,p1"],
            "4 arms are left, fewer than plays",
        ),
        (["rank", "ARMS", "--states", "STATES", "--plays", "1", "--exclude", "q0"], "there is no arm 'q0'"),
        (["rank", "ARMS", "--states", "FEWER", "--plays", "1"], "states has no state of arm 'p5'"),
        (
            ["rank", "ARMS", "--states", "WRONG", "--plays", "1"],
            "the state of p1 is 2; it must be a whole number from",
        ),
        (["rank", "ARMS", "--states", "ARMS", "--plays", "1"], "has no column state"),
        (
            ["rank", "ARMS", "--states", "STATES", "--plays", "1", "--out", "STATES"],
            "another part of the command",
        ),
        (["rank", "ARMS", "--states", "STATES", "--plays", "1", "--out", "list.parquet"], "tables are written as CSV"),
        (
            ["solve", "ARMS", "--plays", "1", "--states", "STATES"],
            "--states is for a list of arms; give --out",
        ),
        (
            ["solve", "ARMS", "--plays", "1", "--out", "x.csv", "--indices", "x.csv"],
            "another part of the command",
        ),
        (["solve", "paper-1", "--indices", "x.csv"], "is for arms that are all observed; give paper-1 observed"),
    ],
)
def test_mistakes(arms, restless, tmp_path, words, sentence):
    path, states = arms
    fewer, wrong = tmp_path / "fewer.csv", tmp_path / "wrong.csv"
    fewer.write_text(states.read_text().replace("p5,1\n", ""))
    wrong.write_text(states.read_text().replace("p1,1", "p1,2"))
    files = {"ARMS": path, "STATES": states, "FEWER": fewer, "WRONG": wrong}
    code, out, err = restless(*(files.get(word, word) for word in words))
    assert (code, out) == (2, "")
    assert sentence in err


def test_excluded_arms_in_a_table(arms, as_json, tmp_path, restless):
    path, states = arms
    away = tmp_path / "away.csv"
    away.write_text("name,why\np0,ill\np2,moved\n")
    given = ("rank", path, "--states", states, "--plays", "2")
    found = as_json(*given, "--exclude", away, "--exclude", "p4")["arms"]
    assert found == as_json(*given, "--exclude", "p0,p2,p4")["arms"]
    away.write_text("who\np0\n")
    code, _, err = restless(*given, "--exclude", away)
    assert (code, "away.csv has no column name; add it" in err) == (2, True)


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_list_of_a_solution(arms, as_json, restless, tmp_path):
    path, states = arms
    out, indices, ranked = (tmp_path / name for name in ("top.csv", "indices.csv", "ranked.csv"))
    given = (path, "--states", states, "--plays", "2")
    found = as_json("solve", *given, "--oracle", "lp-index", "--out", out, "--indices", indices)
    assert (found["list"], found["indices"], found["policy"]) == (str(out), str(indices), None)
    as_json("rank", *given, "--out", ranked)
    assert out.read_text() == ranked.read_text()
    index = {(row["name"], row["state"]): row["index"] for row in rows_of(indices)}
    assert len(index) == 12
    assert all(index[row["name"], row["state"]] == row["index"] for row in rows_of(out))
    assert f"the list is in {out}" in restless("solve", *given, "--out", out)[1]
    # The optimum has no index: its own arms, in the order of the Lagrangian index.
    optimum = rb.solve(rb.Problem.from_table(path, plays=2)).policy
    assert {row["name"] for row in rows_of(out)} == {f"p{i}" for i in optimum([i % 2 for i in range(6)])}


def test_the_list_without_states(as_json, tmp_path):
    out, indices = tmp_path / "top.csv", tmp_path / "indices.csv"
    as_json("solve", "circulant-4", "--arms", "1000", "--oracle", "whittle", "--out", out, "--indices", indices)
    rows = rows_of(out)
    assert [row["name"] for row in rows] == [f"cycle-{i:04d}" for i in range(1, 201)]
    # A state is as probable as another in slot 1.
    mean = sum(float(row["index"]) for row in rows_of(indices)) / 4
    assert all(row["state"] == "" and float(row["index"]) == pytest.approx(mean, abs=1e-12) for row in rows)


def test_the_list_of_a_programme_that_ends(as_json, tmp_path):
    out = tmp_path / "top.csv"
    found = as_json("solve", "maintenance-observed", "--arms", "60", "--horizon", "4", "--out", out)
    assert found["oracle"] == "fluid-priority"
    assert len(rows_of(out)) == found["details"]["plays"] == 10
    states, ranked = tmp_path / "states.csv", tmp_path / "ranked.csv"
    states.write_text("state\n" + "".join(f"{i % 3}\n" for i in range(60)))
    given = ("maintenance-observed", "--arms", "60", "--horizon", "4", "--states", states)
    as_json("solve", *given, "--out", out)
    as_json("rank", *given, "--out", ranked)
    assert out.read_text() == ranked.read_text()


def test_nothing_is_written_after_a_mistake(arms, restless, tmp_path):
    path, states = arms
    out, files = tmp_path / "list.csv", ["arms.csv", "states.csv"]
    for words in (
        ("rank", path, "--states", states, "--plays", "1", "--exclude", "x", "--out", out),
        ("solve", path, "--plays", "7", "--out", out, "--indices", tmp_path / "indices.csv"),
        ("solve", "paper-1", "--out", out),
        ("solve", path, "--states", path, "--plays", "1", "--out", out),
    ):
        code, printed, err = restless(*words)
        assert (code, printed, err.count("\n")) == (2, "", 1)
    assert sorted(file.name for file in tmp_path.iterdir()) == files
