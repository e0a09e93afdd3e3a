"""Other people's learners and oracles: by module and name, as plug-ins, from the current folder, in other processes."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import restless_bandits as rb
from restless_bandits import ProblemError, registry
from restless_bandits.cli import main
from restless_bandits.registry import ALIASES, LEARNERS, ORACLES, learner_names
from tests.optional import needed

MINE = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import restless_bandits as rb
from restless_bandits.policies import Plan, Slots
from restless_bandits.policies import Cycle, IndexPolicy


@dataclass(frozen=True)
class Turns(rb.Learner):
    name: ClassVar[str] = "turns"
    slots: int = 10

    def plan(self, record, task, rng):
        return Plan(Cycle(task.plays), Slots(self.slots))


class NoLearner:
    pass


class NoPlan(rb.Learner):
    pass


def equal(problem):
    return IndexPolicy(tuple(np.ones((n + 1, 1)) for n in problem.n_states), problem.plays)


def three(problem):
    return 3
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("def f(:\n")
    return tmp_path


def run(folder, code, *words):
    """Run the command line as its script would, without the current folder on the path."""
    return subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if "src" in path)},
    )


COMMAND = "from restless_bandits.cli import main; main()"


@pytest.mark.parametrize("engine", ["processes", pytest.param("dask", marks=pytest.mark.slow)])
def test_modules_of_the_current_folder_in_every_engine(folder, here, engine):
    if engine == "dask":
        needed("distributed")
    specs = ["mine:Turns", "mine:Turns:slots=3", "round-robin"]
    expected = rb.simulate(rb.Problem.builtin("paper-1"), specs, 40, runs=2).regret().mean(axis=1)
    assert (expected[0] == expected[2]).all()
    words = ["simulate", "paper-1", "--horizon", "40", "--runs", "2", "--json", "--jobs", "1"]
    words += [word for spec in specs for word in ("--learner", spec)]
    done = run(folder, COMMAND, *words, "--engine", engine)
    assert done.returncode == 0, done.stderr
    found = {row["spec"]: row["regret_mean"] for row in json.loads(done.stdout)["learners"]}
    assert list(found) == specs
    assert list(found.values()) == expected.tolist()


def test_oracles_of_the_current_folder(folder):
    done = run(folder, COMMAND, "solve", "paper-1", "--oracle", "mine:equal", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["oracle"] == "mine:equal"
    assert answer["lower"] <= 0.456464072292 <= answer["upper"]


@pytest.fixture
def here(folder, monkeypatch):
    """The folder as the current one of this process, which forgets afterwards what it has loaded from there."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in ("mine", "broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("mine:NoLearner", "mine:NoLearner is no learner"),
        ("mine:NoPlan", "mine:NoPlan is no learner yet: it does not define plan"),
        ("mine:Turn", "has no learner 'Turn'; did you mean 'Turns'?"),
        ("nowhere:Turns", "cannot import nowhere for the learner 'nowhere:Turns'"),
        ("broken:Turns", "cannot import broken for the learner 'broken:Turns': SyntaxError"),
        ("mine:Turns:slot=3", "mine:Turns has no option 'slot'; did you mean 'slots'?"),
        ("mine", "there is no learner 'mine'; choose from likelihood-ucb"),
        ("informed:oracle=mine:nothing", "has no oracle 'nothing'"),
    ],
)
def test_bad_learners_are_one_sentence(here, spec, sentence):
    with pytest.raises(ProblemError) as refused:
        rb.learner(spec)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("oracle", "sentence"),
    [
        ("mine:three", "the oracle mine:three answered with 3"),
        ("mine:NoLearner", "'mine:NoLearner' is no oracle"),
        ("nowhere:f", "cannot import nowhere for the oracle"),
        ("whitle", "there is no oracle 'whitle'; did you mean 'whittle'?"),
    ],
)
def test_bad_oracles_are_one_sentence(here, oracle, sentence):
    with pytest.raises(ProblemError) as refused:
        rb.oracles.oracle(oracle)(rb.Problem.builtin("paper-1"))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "paper-1", "--horizon", "9", "--learner", "mine:Turn"),
        ("solve", "paper-1", "--oracle", "no:f"),
    ],
)
def test_bad_words_end_with_two(here, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["restless", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("Error: ")
    assert told.count("\n") == 1


def test_learners_plan_with_oracles_of_the_current_folder(here):
    result = rb.simulate(rb.Problem.builtin("paper-1"), "restless-ucb:oracle=mine:equal,m=2", 40, runs=1)
    assert result.learners == ("restless-ucb:oracle=mine:equal,m=2",)


def test_stored_runs_of_others_are_keyed_by_their_source(folder, here):
    def stored():
        sys.modules.pop("mine", None)
        rb.simulate(rb.Problem.builtin("paper-1"), "mine:Turns", horizon=20, runs=1, out="out")
        return {place.name for place in (folder / "out").iterdir() if place.is_dir()}

    first = stored()
    assert stored() == first
    (folder / "mine.py").write_text(MINE.replace("Slots(self.slots)", "Slots(self.slots + 1)"))
    assert len(stored()) == 2
    (folder / "mine.py").write_text(MINE)
    assert len(stored()) == 2


@pytest.fixture
def plugged_in(monkeypatch):
    """Two plug-ins, as if a package with these entry points were installed."""
    found = {
        "restless_bandits.learners": [EntryPoint("honest", "tests.test_testing:Honest", "restless_bandits.learners")],
        "restless_bandits.oracles": [
            EntryPoint("equal", "tests.test_testing:equal_indices", "restless_bandits.oracles")
        ],
    }
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.get(group, []))
    registry.plug_ins.cache_clear()
    yield
    registry.plug_ins.cache_clear()


def test_entry_points(plugged_in):
    assert "honest" in learner_names()
    learner = rb.learner("honest:growth=4")
    assert learner.growth == 4
    assert learner.spec == "honest:growth=4"
    assert "equal" in ORACLES
    assert rb.oracles.oracle("equal")(rb.Problem.builtin("paper-1")).oracle == "equal"
    with pytest.raises(ProblemError, match="did you mean 'honest'"):
        rb.learner("honst")


def test_what_was_asked_for_is_what_is_printed():
    problem = rb.Problem.builtin("paper-1")
    asked = ["ts-9", "posterior", "ts:support=4", "whittle", "restless-ucb:radius=0"]
    result = rb.simulate(problem, asked, horizon=20, runs=1)
    assert list(result.learners) == asked
    assert [rb.learner(spec).spec for spec in asked] == asked
    assert rb.ThompsonSampling(prior="continuous", oracle="auto").spec == "posterior"
    assert rb.learners.Informed("whittle").label == "whittle"
    with pytest.raises(ProblemError, match="'ts' is given twice, also as 'ts-9'"):
        rb.simulate(problem, ["ts-9", "ts"], horizon=20, runs=1)


def test_a_name_entered_by_the_program():
    from tests.test_testing import Honest, equal_indices

    LEARNERS["mine"], ORACLES["mine"] = Honest, equal_indices
    try:
        assert rb.learner("mine:growth=2") == Honest(2)
        assert rb.oracles.policy("mine", rb.Problem.builtin("paper-1")) == equal_indices(rb.Problem.builtin("paper-1"))
    finally:
        del LEARNERS["mine"], ORACLES["mine"]


def test_every_name_leads_home():
    for name in LEARNERS.own:
        assert LEARNERS[name].name == name
    for name in ORACLES.own:
        assert ORACLES[name].name == name
    for name in ALIASES:
        assert rb.learner(name).label == name


def test_asking_for_names_loads_nothing():
    code = "import sys; from restless_bandits.registry import *; learner_names(); list(ORACLES); "
    code += "print([name for name in sys.modules if name in ('numpy', 'numba', 'scipy')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("page", "names"), [("learners.md", learner_names()), ("oracles.md", list(ORACLES))], ids=["learners", "oracles"]
)
def test_the_tables_of_the_documentation_name_them_all(page, names):
    text = (Path(__file__).parent.parent / "docs" / page).read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    shown = {word for row in rows for word in re.findall("`([^`]+)`", row)}
    assert {name for name in shown if ":" not in name} == set(names)
