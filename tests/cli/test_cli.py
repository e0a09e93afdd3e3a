import io
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import restless_bandits as rb
from restless_bandits._internal import progress
from restless_bandits._internal.validation import to_jsonable
from restless_bandits.cli import completion, main, reproduce
from restless_bandits.cli.app import app
from restless_bandits.simulation import time_estimates


@pytest.fixture
def as_json(restless):
    def run(*words):
        code, out, err = restless(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from numbers(entry)
    elif isinstance(value, float):
        yield value


def test_five_commands_to_begin_with(restless):
    code, out, _ = restless()
    assert code == 0
    assert out.count("\n  restless ") == 5
    for line in (line for line in out.splitlines() if line.startswith("  restless ")):
        name = line.split()[1]
        assert restless(name, "--help")[0] == 0, name


def test_whole_numbers_as_people_write_them(restless, as_json):
    assert as_json("simulate", "paper-1", "--learner", "ucb1", "--horizon", "1e2", "--runs", "2.0")["horizon"] == 100
    code, _, err = restless("simulate", "paper-1", "--horizon", "1.5")
    assert code == 2
    assert "'1.5' is not a whole number" in err


class TestProblems:
    def test_list(self, restless, as_json):
        assert [p["name"] for p in as_json("problems")["problems"]] == rb.builtin_problems()
        code, out, _ = restless("problems")
        assert code == 0
        assert "stand-in" in out
        assert all(name in out for name in rb.builtin_problems())

    def test_show_prints_toml_that_is_the_problem(self, restless, as_json, tmp_path):
        _, out, _ = restless("problems", "show", "queue-5")
        assert rb.Problem.from_toml(out) == rb.Problem.builtin("queue-5")
        assert as_json("problems", "show", "queue-5")["toml"] == out
        _, early, _ = restless("problems", "--json", "show", "queue-5")
        assert json.loads(early)["toml"] == out


class TestCheck:
    def test_json_contract(self, as_json):
        found = as_json("check", "paper-1")
        names = ["monotone", "birth_death", "positively_correlated", "bounded_below"]
        assert list(found["assumptions"]) == names
        for one in found["assumptions"].values():
            assert one["holds"] is True
            assert set(one["worst"]) == {"arm", "state", "value"}
        assert found["c1"] == 0.2
        assert found["d_min"] == pytest.approx(0.4)
        assert found["lambda_max"] == pytest.approx(0.5 + 4 * 0.2 / 3)
        assert found["lambda_max_bounds"] == pytest.approx([found["lambda_max"]] * 2)
        assert found["theory_from"] == pytest.approx(4.1e4, rel=0.01)
        assert [arm["name"] for arm in found["arms"]] == ["arm 1", "arm 2"]
        assert found["arms"][0]["stationary"] == pytest.approx([0.4, 0.6])
        assert [arm["second_eigenvalue"] for arm in found["arms"]] == pytest.approx([0.5, 0.1])
        assert [arm["mixing"] for arm in found["arms"]] == [9, 3]
        assert all(arm["indexable"] is True for arm in found["arms"])

    def test_bounds(self, as_json, restless):
        found = as_json("check", "paper-1")["bounds"]
        assert set(found) == {"most", "theorem_1", "theorem_1_proved", "theorem_2"}
        for key, until in (("theorem_1", 7.9e13), ("theorem_1_proved", 3.8e5)):
            assert found[key]["bound"] == pytest.approx(sum(found[key]["terms"].values()))
            assert found[key]["vacuous_until"] == pytest.approx(until, rel=0.02)
        assert found["theorem_2"]["fixed"] > 0 < found["theorem_2"]["per_span"]
        early = as_json("check", "paper-1", "--horizon", "1000")["bounds"]
        assert early["theorem_1"]["bound"] is early["theorem_2"]["fixed"] is early["theorem_2"]["per_span"] is None
        out = restless("check", "paper-1", "--horizon", "1000")[1]
        assert "Theorem 1 at T = 1000: no bound, vacuous until T ≈ 7.9e+13" in out

    def test_the_second_instance(self, as_json):
        assert as_json("check", "paper-2")["theory_from"] == pytest.approx(4.5e5, rel=0.01)

    def test_broken_assumptions_are_told_not_refused(self, as_json, restless, tmp_path):
        path = tmp_path / "p.toml"
        path.write_text(
            "[[arms]]\nname='x'\nrewards=[0.1,0.9,0.2]\ntransitions=[[0,0.5,0.5],[0.5,0.5,0],[0,0,1]]\ninitial=0\n"
        )
        found = as_json("check", str(path))
        assert not any(one["holds"] for key, one in found["assumptions"].items() if key != "positively_correlated")
        assert found["lambda_max"] is None
        assert found["theory_from"] is None
        code, out, _ = restless("check", str(path))
        assert code == 0
        assert "λ_max is not defined" in out
        assert "the theory does not apply" in out

    def test_chains_that_never_mix(self, as_json, restless, tmp_path):
        path = tmp_path / "p.toml"
        path.write_text("[[arms]]\nrewards=[1,0]\ntransitions=[[1,0],[0,1]]\ninitial=0\n")
        assert as_json("check", str(path))["arms"][0]["mixing"] is None
        assert "never" in restless("check", str(path))[1]

    def test_table_for_people(self, restless):
        code, out, _ = restless("check", "queue-5")
        assert code == 0
        assert "Assumption 3" in out
        assert "slow to recover" in out


class TestSolve:
    def test_json_contract(self, as_json):
        found = as_json("solve", "paper-1")
        assert {"problem", "oracle", "gain", "lower", "upper", "certified", "seconds"} <= set(found)
        assert (found["problem"], found["oracle"], found["certified"]) == ("paper-1", "exact", True)
        assert found["lower"] <= 0.456464072293 <= found["upper"]
        assert found["gain"] == pytest.approx(0.456464072293, abs=1e-9)

    @pytest.mark.parametrize("oracle", ["exact", "whittle", "myopic", "guha", "relaxation", "best-arm"])
    def test_every_oracle(self, restless, as_json, oracle):
        found = as_json("solve", "paper-2", "--oracle", oracle)
        assert found["lower"] <= 0.286004062012
        assert found["upper"] >= 0.286004062010
        code, out, _ = restless("solve", "paper-2", "--oracle", oracle)
        assert code == 0
        assert f"{found['gain']:.12f}" in out

    def test_stores_the_policy(self, as_json, tmp_path):
        path = tmp_path / "policy.npz"
        assert as_json("solve", "paper-1", "--out", str(path))["policy"] == str(path)
        problem = rb.Problem.builtin("paper-1")
        assert rb.evaluate(problem, rb.load_policy(path)).gain == pytest.approx(0.456464072293, abs=1e-10)

    def test_options_of_the_exact_oracle(self, as_json):
        found = as_json("solve", "lms-suburban-l", "--memory", "0.0002", "--tolerance", "1e-3")
        assert found["details"]["memory"] <= 200_000
        assert found["upper"] - found["lower"] <= 1e-2
        assert found["why"] is None

    def test_the_default_says_what_it_takes(self, restless, as_json):
        found = as_json("solve", "paper-1")
        assert found["why"] == "exact, as that takes less than a second and up to a megabyte"
        assert found["gain_stderr"] is None
        assert found["why"] in restless("solve", "paper-1")[1]

    def test_a_gain_that_must_be_simulated(self, restless, as_json):
        found = as_json("solve", "queue-5")
        assert (found["oracle"], found["certified"]) == ("whittle", False)
        assert found["lower"] <= found["gain"] - 8 * found["gain_stderr"]
        assert found["gain"] + 8 * found["gain_stderr"] <= found["upper"]
        code, out, err = restless("solve", "queue-5", "--oracle", "whittle")
        assert (code, err) == (0, "")
        gain = f"{found['gain']:.5f} ± {found['gain_stderr']:.5f} (simulated), μ* ≤ {found['upper']:.5f} (relaxation)"
        assert gain in out


class TestLong:
    """Whatever will take long says so at once, here where everything does."""

    @pytest.fixture
    def many(self, tmp_path, monkeypatch):
        monkeypatch.setattr(progress, "LONG_SECONDS", 0.0)
        # What tests before this one have compiled would make the first runs count for nothing.
        monkeypatch.setattr(time_estimates, "compiling", Event())
        path = tmp_path / "many.toml"
        path.write_text(rb.Problem.random(12, 2, seed=3).to_toml())
        return str(path)

    @pytest.mark.parametrize(
        ("command", "what"),
        [("solve", "whittle, as exact would take "), ("check", "check of 12 arms"), ("index", "index of 12 arms")],
    )
    @pytest.mark.parametrize("people", [False, True])
    def test_one_line_in_a_pipe_and_on_a_terminal(self, restless, many, monkeypatch, command, what, people):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: people)
        code, out, err = restless(command, many, "--json")
        assert code == 0
        assert json.loads(out)
        first, *others = err.splitlines()
        assert first.startswith("this will take about ")
        assert what in first
        assert bool(others) == (people and command == "solve")

    def test_simulate(self, restless, many):
        # So many that somebody looks before the last of them, however busy the machine is.
        words = ("--learner", "restless-ucb", "--horizon", "200", "--runs", "400", "--jobs", "1", "--comparator", "0.9")
        code, out, err = restless("simulate", many, *words, "--json")
        assert (code, json.loads(out)["runs"]) == (0, 400)
        caution, first = err.splitlines()
        assert caution.startswith("restless-ucb will explore all the 200 slots")
        assert "400 runs of restless-ucb" in first

    @pytest.mark.parametrize("people", [False, True])
    def test_reproduce(self, capsys, monkeypatch, people):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: people)
        with reproduce.show_progress() as tell:
            tell(0.0, 100.0, "figure-a")
            tell(1.0, 110.0, "figure-a")
        assert capsys.readouterr().err.count("this will take about 100 s") == 1


class TestIndex:
    @pytest.mark.parametrize("observed", ["pulled", "all"])
    def test_discounted_indices_of_arms_that_react(self, restless, as_json, tmp_path, observed):
        chains = [[0.97, 0.03], [0.03, 0.97]], [[0.96, 0.04], [0.01, 0.99]]
        arm = rb.Arm(chains[0], [0, 1], active_transitions=chains[1], passive_rewards=[0, 1], name="bad")
        rb.Problem([arm], observed=observed).save(tmp_path / "one.toml")
        cut = ("--tau-max", "3") if observed == "pulled" else ()
        found = as_json("index", str(tmp_path / "one.toml"), "--discount", "0.95", *cut)["arms"][0]
        if observed == "all":
            assert np.shape(found["index"]) == (2, 1)
        else:
            assert found["index"][0] == pytest.approx([0.1013333, 0.1060797, 0.1119035], abs=5e-8)
            assert len(found["lost"]) == 3
        code, out, _ = restless("index", str(tmp_path / "one.toml"))
        assert code == 0
        assert "bad" in out
        code, _, err = restless("index", str(tmp_path / "one.toml"), "--discount", "2")
        assert code == 2
        assert "strictly between 0 and 1" in err

    def test_json_contract(self, as_json):
        found = as_json("index", "paper-1", "--arm", "arm 1", "--tau-max", "5")
        (arm,) = found["arms"]
        assert arm["name"] == "arm 1"
        assert arm["indexable"] is True
        assert arm["index"][0] == pytest.approx([0.7, 0.647059, 0.612903, 0.59322, 0.582609], abs=1e-6)
        assert arm["index"][1] == pytest.approx([0.2, 0.363636, 0.458333, 0.509804, 0.537736], abs=1e-6)

    def test_tau_max_only_cuts(self, as_json):
        whole = as_json("index", "queue-5")["arms"]
        cut = as_json("index", "queue-5", "--tau-max", "3")["arms"]
        for one, other in zip(whole, cut, strict=True):
            assert [row[:3] for row in one["index"]] == other["index"]
        longer = as_json("index", "paper-1", "--tau-max", "400")["arms"][1]["index"][0]
        assert len(longer) == 400
        assert longer[-1] == pytest.approx(longer[20], abs=1e-9)

    def test_table_for_people(self, restless):
        code, out, _ = restless("index", "paper-1")
        assert code == 0
        assert "0.647059" in out


BAD = {
    "unknown problem": (["check", "paper-3"], "`restless problems` lists them"),
    "missing file": (["solve", "none.toml"], "`restless problems show paper-1` prints one"),
    "unknown oracle": (["solve", "paper-1", "--oracle", "exat"], "did you mean 'exact'?"),
    "unknown arm": (["index", "paper-1", "--arm", "arm 9"], "there is no arm 'arm 9'"),
    "folder for the policy": (["solve", "paper-1", "--out", "nowhere/p.npz"], "there is no folder nowhere"),
    "tolerance elsewhere": (["solve", "paper-1", "--oracle", "guha", "--tolerance", "1"], "leave them out"),
    "tolerance": (["solve", "paper-1", "--tolerance", "-1"], "tolerance is -1.0; it must be a positive number"),
    "horizon": (
        ["check", "paper-1", "--horizon", "0"],
        "horizon is 0; where one is given, it must be a positive whole number\n",
    ),
    "horizon too long": (["check", "paper-1", "--horizon", "1" + "0" * 400], "horizon is beyond 10^100"),
    "guha": (["solve", "queue-5", "--oracle", "guha"], "'fast, bursty' has 5 states"),
    "show": (["problems", "show", "rf-4"], "did you mean 'rf-3'?"),
    "no problem": (["check"], "Missing argument 'PROBLEM'; restless check --help shows the options\n"),
    "no such option": (["solve", "paper-1", "--orcale", "x"], "No such option: --orcale"),
    "no such command": (["chek"], "No such command 'chek'"),
    "no such number": (["index", "paper-1", "--tau-max", "x"], "Invalid value for '--tau-max'"),
    "digits": (["index", "paper-1", "--tau-max", "9" * 5000], "Invalid value for '--tau-max'"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence_and_exit_2(restless, words, message):
    code, out, err = restless(*words, "--json")
    assert len(err) < 1100
    assert code == 2
    assert out == ""
    assert err.startswith("Error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[[arms]]\nname='a'\nrewards=[1,0]\ntransitions=[[0.7,0.2],[0.2,0.8]]\n",
            "arm 'a': transitions[0] sums to 0.9",
        ),
        ("[[arms]]\nrewards=[2,0]\ntransitions=[[0.7,0.3],[0.2,0.8]]\n", "arm 'arm 1': rewards[0] is 2"),
        ("[[arms]]\nrewards=[1,0]\ntransitions=[[0.7,0.3]\n", "not valid TOML"),
    ],
)
@pytest.mark.parametrize("command", ["check", "solve", "index"])
def test_bad_files(restless, tmp_path, command, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    code, out, err = restless(command, str(path))
    assert (code, out) == (2, "")
    assert str(path) in err
    assert message in err
    assert err.count("\n") == 1


def test_a_table_that_nobody_reads_is_refused(restless):
    code, out, err = restless("index", "paper-1", "--tau-max", "1000000")
    assert (code, out) == (2, "")
    assert "give --json" in err


def test_unknown_commands_and_options_exit_2():
    runner = CliRunner()
    assert runner.invoke(app, ["chek", "paper-1"]).exit_code == 2
    assert runner.invoke(app, ["check", "paper-1", "--jsno"]).exit_code == 2
    assert runner.invoke(app, ["index", "paper-1", "--tau-max", "0"]).exit_code == 2


def test_version_and_help():
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output == f"restless-bandits {rb.__version__}\n"
    for command in commands():
        shown = runner.invoke(app, [*command, "--help"])
        assert shown.exit_code == 0
        # On one line, so that it can be copied.
        (example,) = (line for line in shown.output.splitlines() if line.strip().startswith("Example: "))
        assert f"Example: restless {' '.join(command)}" in example
        assert not example.endswith("-")


def commands(group=None, path=()):
    """The words of every command and group."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        yield (*path, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


class TestCompletion:
    def complete(self, *words):
        """What the bash script of ``restless --show-completion`` gets for its last word."""
        environment = {
            "_RESTLESS_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(("restless", *words)),
            "COMP_CWORD": str(len(words)),
        }
        shown = CliRunner().invoke(app, [], prog_name="restless", env=environment)
        return shown.output.split()

    @pytest.mark.parametrize(
        ("words", "answers"),
        [
            (["sol"], ["solve"]),
            (["solve", "paper"], ["paper-1", "paper-2"]),
            (["problems", "show", "rf"], ["rf-2", "rf-3"]),
            (["solve", "--oracle", "wh"], ["whittle"]),
            (["simulate", "paper-1", "--learner", "ts-"], ["ts-9", "ts-4"]),
            (["simulate", "paper-1", "--engine", "p"], ["processes"]),
            (["reproduce", "figure-a", "table"], ["table-1"]),
        ],
    )
    def test_names(self, words, answers):
        assert self.complete(*words) == answers

    def test_files(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "one.toml").touch()
        (tmp_path / "mine" / "notes.txt").touch()
        assert self.complete("check", "mi") == ["mine/"]
        assert self.complete("check", "mine/") == ["mine/one.toml"]
        assert self.complete("check", "nowhere/") == []

    def test_knows_what_the_library_knows(self):
        from restless_bandits.paper.experiments.design import design
        from restless_bandits.registry import ENGINES, ORACLES, learner_names

        assert self.complete("simulate", "--learner", "") == learner_names()
        assert self.complete("solve", "--oracle", "") == list(ORACLES)
        assert self.complete("simulate", "--engine", "") == list(ENGINES)
        assert completion.builtin("") == rb.builtin_problems()
        assert tuple(completion.item("")) == design().names


def test_json_has_no_numbers_that_json_lacks():
    assert to_jsonable({"a": [math.inf, np.float64("nan"), 1.0], "b": np.array([1, 2])}) == {
        "a": [None, None, 1.0],
        "b": [1, 2],
    }


def python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_and_helping_load_nothing_heavy():
    heavy = "sorted({'numpy', 'numba', 'scipy', 'matplotlib', 'pandas', 'gymnasium'} & set(sys.modules))"
    assert python(f"import sys, restless_bandits; print({heavy})") == "[]\n"
    assert python(f"import sys, restless_bandits.cli.app; print({heavy})") == "[]\n"
    assert python(f"import sys; from restless_bandits import Problem; print({heavy})") == "['numpy']\n"


def test_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "restless_bandits", "problems", "show", "paper-1", "--json"],
        capture_output=True,
        check=True,
    )
    assert rb.Problem.from_toml(json.loads(done.stdout)["toml"]) == rb.Problem.builtin("paper-1")


MARKUP = """
name = "a [/x] ≤ b"
[[arms]]
name = "[red]x[/]"
rewards = [1, 0]
transitions = [[0.7, 0.3], [0.2, 0.8]]
[[arms]]
name = "[/y]"
rewards = [0.8, 0]
transitions = [[0.5, 0.5], [0.4, 0.6]]
"""


@pytest.fixture
def markup(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(MARKUP, encoding="utf-8")
    return path


def test_names_that_look_like_markup(restless, markup):
    for words in (
        ["check", "--coupling"],
        ["solve"],
        ["index"],
        ["simulate", "--learner", "round-robin", "--horizon", "9", "--runs", "1"],
    ):
        code, out, err = restless(words[0], str(markup), *words[1:])
        assert (code, err) == (0, "")
        assert ("[/y]" if words[0] == "index" else "a [/x] ≤ b") in out


ORDERS = "\x1b[31m\x1b]0;mine\x07 \x9b2J\x7f\u202e\n"


def test_names_that_look_like_orders_to_the_terminal(restless, tmp_path):
    path, log = tmp_path / "mine.toml", tmp_path / "log.csv"
    named = rb.Problem([arm.named(f"{i}{ORDERS}") for i, arm in enumerate(rb.Problem.builtin("paper-1").arms)])
    rb.Problem(named.arms, name=f"p{ORDERS}").save(path)
    rows = [f'{slot},"{arm}\x1b[31m\x07",{(slot // 3 + arm) % 2}' for slot in range(60) for arm in range(2)]
    log.write_text("\n".join(["time,arm,state", *rows]))
    for words in (
        ["check", str(path), "--coupling"],
        ["solve", str(path)],
        ["solve", str(path), "--oracle", f"x{ORDERS}"],
        ["index", str(path)],
        ["index", str(path), "--arm", "x"],
        ["simulate", str(path), "--learner", "round-robin", "--horizon", "9", "--runs", "1"],
        ["simulate", str(path), "--learner", f"ucb1:width=1{ORDERS}", "--horizon", "9", "--runs", "1"],
        ["fit", str(log)],
        ["replay", str(log), "--learner", "round-robin"],
        [f"x{ORDERS}"],
    ):
        _, out, err = restless(*words)
        assert r"\x1b[31m" in out + err
        assert not set("".join(out.splitlines()) + "".join(err.splitlines())) & set(ORDERS) - set("[]031m;ine 2J")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_terminals_without_our_letters(markup, encoding, monkeypatch):
    def printed(*more):
        # As Python makes it for such a terminal.
        stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "argv", ["restless", "index", str(markup), "--tau-max", "1", *more])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code
        return stdout.buffer.getvalue().decode(encoding)

    assert "|? |" in printed()  # for τ
    assert json.loads(printed("--json"))["problem"] == "a [/x] ≤ b"


@pytest.fixture
def unread():
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_reader_that_goes_away_before_a_process_ends(unread):
    # Little is written, and so at the end.
    words = [sys.executable, "-m", "restless_bandits", "problems", "show", "queue-5"]
    done = subprocess.run(words, stdout=unread, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "words",
    [
        ["index", "paper-1", "--tau-max", "500"],  # a table
        ["index", "paper-1", "--tau-max", "20000", "--json"],  # more than any buffer holds
    ],
)
def test_a_reader_that_goes_away(restless, monkeypatch, unread, words):
    with os.fdopen(os.dup(unread), "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        code, _, err = restless(*words)
        monkeypatch.undo()
    assert (code, err) == (0, "")


class TestAnswersThatCannotBePrinted:
    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full; run the tests on Linux")
    @pytest.mark.parametrize("words", [["problems"], ["index", "paper-1", "--tau-max", "2000", "--json"], ["--help"]])
    def test_a_full_disk(self, restless, monkeypatch, words):
        with Path("/dev/full").open("w") as full:
            monkeypatch.setattr(sys, "stdout", full)
            code, _, err = restless(*words)
            monkeypatch.undo()
        assert (code, err) == (1, "Error: cannot print the answer: No space left on device\n")

    def test_a_closed_output(self, restless, monkeypatch):
        monkeypatch.setattr(sys, "stdout", None)
        code, _, err = restless("problems")
        assert (code, err) == (1, "Error: cannot print the answer: standard output is closed\n")

    def test_errors_that_nobody_reads_are_not_printed_among_answers(self, restless, monkeypatch):
        monkeypatch.setattr(sys, "stderr", None)
        code, out, _ = restless("check", "nothing")
        sys.stderr.close()
        assert (code, out) == (2, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_before_there_is_an_answer(restless, monkeypatch, number, code):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("restless_bandits.model.problem.load_problem", lambda _: signal.raise_signal(number))
    assert restless("solve", "paper-1")[::2] == (
        code,
        "Interrupted without an answer; run the command again to start anew\n",
    )
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_policy_does_not_replace_its_problem(restless, markup):
    code, _, err = restless("solve", str(markup), "--out", str(markup))
    assert code == 2
    assert "which another part of the command names too; name another file" in err
    assert markup.read_text(encoding="utf-8") == MARKUP


def test_every_public_name_is_there():
    for name in dir(rb):
        assert getattr(rb, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = rb.nonsense
