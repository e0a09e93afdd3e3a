import json
import sys
from contextlib import contextmanager
from signal import SIGINT, SIGTERM

import pytest

import restless_bandits as rb
from restless_bandits.cli import main
from restless_bandits.cli import simulate as command
from restless_bandits.simulation import simulate
from tests.simulation.test_runner import interrupt_at, no_run_from

TWO = ["--learner", "restless-ucb:m=50", "--learner", "round-robin"]
FIELDS = {
    "spec",
    "checkpoints",
    "regret_kind",
    "regret_mean",
    "regret_stderr",
    "regret_sd",
    "regret_max",
    "realised_regret_mean",
    "realised_regret_stderr",
    "expected_regret_mean",
    "expected_regret_stderr",
    "reward_mean",
    "seconds",
    "slots_per_second",
}


@pytest.fixture
def restless(capsys, monkeypatch):
    """Run the command in this process: exit code, stdout, stderr, as ``main`` leaves them."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["restless", "simulate", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def as_json(restless):
    def run(*words):
        code, out, err = restless(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return run


def test_json_contract(as_json):
    found = as_json("paper-1", *TWO, "--horizon", "2000", "--runs", "8", "--seed", "4", "--checkpoints", "log:6")
    assert {"problem", "horizon", "runs", "seed", "comparator", "learners"} <= set(found)
    assert [found[key] for key in ("problem", "horizon", "runs", "seed")] == ["paper-1", 2000, 8, 4]
    assert set(found["comparator"]) == {"kind", "gain", "lower", "upper"}
    assert found["comparator"]["kind"] == "certified"
    assert found["comparator"]["lower"] <= found["comparator"]["gain"] <= found["comparator"]["upper"]
    assert [row["spec"] for row in found["learners"]] == TWO[1::2]
    for row in found["learners"]:
        assert set(row) >= FIELDS
        assert row["checkpoints"][-1] == 2000
        assert row["regret_kind"] == "gap"
        for field in FIELDS - {"spec", "regret_kind", "seconds", "slots_per_second"}:
            assert len(row[field]) == len(row["checkpoints"])
            assert all(isinstance(value, int | float) for value in row[field])


def test_json_is_the_result(as_json):
    found = as_json("paper-1", *TWO, "--horizon", "500", "--runs", "5", "--jobs", "1", "--comparator", "0.5")
    same = simulate(rb.Problem.builtin("paper-1"), TWO[1::2], 500, runs=5, comparator=0.5).as_dict()
    for mine, theirs in zip(found["learners"], same["learners"], strict=True):
        for key in set(theirs) - {"seconds", "slots_per_second"}:
            assert mine[key] == theirs[key]
    assert found["comparator"] == same["comparator"] == {"kind": "given", "gain": 0.5, "lower": 0.5, "upper": 0.5}


def test_one_run_has_null_spreads(as_json):
    (row,) = as_json("paper-2", "--learner", "ucb1", "--horizon", "50", "--runs", "1")["learners"]
    for key in ("regret_stderr", "regret_sd", "realised_regret_stderr", "expected_regret_stderr"):
        assert row[key] == [None] * len(row["checkpoints"])


def test_table_for_people(restless):
    code, out, err = restless("paper-1", *TWO, "--horizon", "2000", "--runs", "5")
    assert (code, err) == (0, "")
    for text in (*TWO[1::2], "worst", "reward a slot", "gap", "±", "0.456464072", "the certified optimum"):
        assert text in out
    assert "±" not in restless("paper-1", "--learner", "ucb1", "--horizon", "50", "--runs", "1")[1]


def test_other_comparators_are_named(restless):
    words = ("--learner", "myopic", "--horizon", "500", "--runs", "2")
    assert "upper end of a bracket" in restless("queue-5", *words)[1]
    assert "0.5 times" in restless("paper-1", *words, "--ratio", "0.5")[1]
    out = restless("paper-2", *words, "--comparator", "whittle")[1]
    assert "the gain of whittle" in out
    assert "expected" in out
    assert "that was given" in restless("paper-2", *words, "--comparator", "0.3")[1]


def test_a_bracket_shows_both_ends(restless, as_json, monkeypatch):
    words = ("queue-5", "--learner", "myopic", "--horizon", "500", "--runs", "3")
    (row,) = as_json(*words)["learners"]
    assert row["regret_mean"] == row["regret_against_upper_mean"]
    assert row["regret_max"] == row["regret_against_upper_max"]
    found = as_json(*words)["comparator"]
    monkeypatch.setenv("COLUMNS", "80")
    out = restless(*words)[1]
    assert max(map(len, out.splitlines())) <= 80
    for what in ("mean", "max"):
        low, high = (row[f"regret_against_{end}_{what}"][-1] for end in ("lower", "upper"))
        assert low < high
        assert f"{high:.5g}" in out
    for share in ("share_of_upper", "share_of_policy"):
        assert f"{row[share][-1]:.1%}" in out
    assert f"{found['lower']:.9g} ≤ μ* ≤ {found['upper']:.9g}" in out
    assert f"simulated, {found['lower_confidence']:.1%} confidence; proved: {found['proved_lower']:.6g}" in out


def test_a_problem_file_without_a_name(as_json, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("[[arms]]\nrewards=[1,0]\ntransitions=[[0.7,0.3],[0.2,0.8]]\n")
    assert as_json(str(path), "--learner", "ucb1", "--horizon", "20", "--runs", "2")["problem"] == str(path)


def test_out_resumes_and_tells_of_damage(restless, as_json, tmp_path):
    words = ["paper-1", *TWO, "--horizon", "300", "--runs", "6", "--out", str(tmp_path / "out")]
    first = as_json(*words)
    assert as_json(*words) == first
    next(tmp_path.rglob("runs-*.npz")).write_bytes(b"PK")
    code, out, err = restless(*words, "--json")
    assert code == 0
    assert err.startswith("Warning: ")
    assert "is damaged" in err
    assert err.count("\n") == 1
    again = json.loads(out)
    for mine, theirs in zip(first["learners"], again["learners"], strict=True):
        assert mine["regret_mean"] == theirs["regret_mean"]


@pytest.mark.parametrize(
    ("stored", "number", "exit_code"), [(True, SIGTERM, 143), (True, SIGINT, 130), (False, SIGINT, 130)]
)
def test_ctrl_c_shows_what_is_finished(restless, monkeypatch, tmp_path, stored, number, exit_code):
    @contextmanager
    def interrupting(title):
        yield interrupt_at(9, number)

    monkeypatch.setattr(command, "show_progress", interrupting)
    words = ["paper-1", *TWO, "--horizon", "300", "--runs", "60", "--jobs", "1", "--json"]
    with no_run_from(20, monkeypatch):
        code, out, err = restless(*words, *(["--out", str(tmp_path / "Out")] if stored else []))
    assert code == exit_code
    assert err.startswith("Interrupted: ")
    assert err.count("\n") == 1
    assert ("Out; the same again resumes" in err) == stored
    assert 4 <= json.loads(out)["runs"] <= 20


def test_progress_is_for_terminals(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with command.show_progress("title") as advance:
        assert advance is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with command.show_progress("a [/x] title") as advance:
        advance(3, 10)
    assert capsys.readouterr().out == ""


BAD = {
    "learner": (["--learner", "restles-ucb", "--horizon", "9"], "did you mean 'restless-ucb'?"),
    "option": (["--learner", "restless-ucb:radus=1", "--horizon", "9"], "did you mean 'radius'?"),
    "horizon": (["--learner", "ucb1", "--horizon", "0"], "horizon is 0"),
    "horizon too long": (["--learner", "ucb1", "--horizon", str(2**63)], "horizon is beyond 2^62"),
    "runs": (["--learner", "ucb1", "--horizon", "9", "--runs", "-2"], "runs is -2"),
    "seed": (["--learner", "ucb1", "--horizon", "9", "--seed", "-2"], "seed is -2"),
    "jobs": (["--learner", "ucb1", "--horizon", "9", "--jobs", "many"], "jobs is 'many'"),
    "checkpoints": (["--learner", "ucb1", "--horizon", "9", "--checkpoints", "lg:3"], "checkpoints is 'lg:3'"),
    "comparator": (["--learner", "ucb1", "--horizon", "9", "--comparator", "whitle"], "did you mean 'whittle'?"),
    "ratio": (["--learner", "ucb1", "--horizon", "9", "--ratio", "0"], "ratio is 0.0"),
    "nan": (["--learner", "ucb1", "--horizon", "9", "--comparator", "nan"], "finite"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence_and_exit_2(restless, words, message):
    code, out, err = restless("paper-1", *words, "--json")
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert message in err
    assert err.count("\n") == 1


def test_learners_that_refuse_and_foreign_folders(restless, tmp_path):
    code, out, err = restless("queue-5", "--learner", "guha", "--horizon", "9")
    assert (code, out) == (2, "")
    assert "'fast, bursty' has 5 states" in err
    (tmp_path / "mine.txt").write_text("x")
    code, out, err = restless("paper-1", "--learner", "ucb1", "--horizon", "9", "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert "name a new or empty folder" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("problem", "spec"), [("paper-1", "likelihood-ucb"), ("collapsing", "posterior")])
def test_without_a_learner_the_default_plays(restless, problem, spec):
    code, out, _ = restless(problem, "--horizon", "200", "--runs", "2", "--json")
    assert code == 0
    assert [entry["spec"] for entry in json.loads(out)["learners"]] == [spec]
