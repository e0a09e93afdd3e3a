"""``restless benchmark``: a run, its verification, the page, and sentences for mistakes."""

import json
import sys

import pytest

from restless_bandits.cli import main
from restless_bandits.cli.benchmark import TRACKS
from restless_bandits.simulation.benchmark import instances, pages, running, submissions


@pytest.fixture
def restless(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    chosen = [one for one in instances.instances_of("index") if one.name == "three-states"]
    for module in (pages, running, submissions):
        monkeypatch.setattr(module, "instances_of", lambda track: chosen if track == "index" else [])
    monkeypatch.delitem(sys.modules, "mine", raising=False)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["restless", "benchmark", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    yield run
    sys.modules.pop("mine", None)


def test_tracks(restless):
    assert tuple(instances.TRACKS) == TRACKS
    code, out, _ = restless("tracks")
    assert code == 0
    assert "three-states-1000000" in out
    rows = json.loads(restless("tracks", "--json")[1])["instances"]
    assert {row["track"] for row in rows} == set(TRACKS)
    assert all(row["licence"] for row in rows)


def test_run_verify_table(restless, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def function(start):\n    print('thinking')\n    return [0.37401552, 0.181994233, 0.0]\n"
    )
    code, out, err = restless("run", "index", "--policy", "mine:function", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["score"]["mean"] == pytest.approx(2 / 3)
    code, out, _ = restless("verify", "submission.json", "--policy", "mine:function")
    assert code == 0
    assert "1 runs played again with the same code: they agree" in out
    code, _, err = restless("verify", "submission.json")
    assert code == 2
    assert "which is not part of this package; name the code to run by --policy" in err
    (tmp_path / "mine.py").write_text("def function(start):\n    return [1, 2, 3]\n")
    sys.modules.pop("mine")
    code, out, err = restless("verify", "submission.json", "--policy", "mine:function")
    assert code == 2
    assert "other code than the submission's" in out
    assert "submission.json does not agree: three-states, seed 1: reward 0, and the submission says 0.666666667" in err
    code, out, _ = restless("table", "--submissions", ".", "--out", "page.md")
    assert (code, out) == (0, "1 submissions are in page.md\n")
    assert "mine:function" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "index"], "give one of --policy, --learner and --program"),
        (["run", "index", "--policy", "random", "--learner", "ts"], "give one of --policy, --learner and --program"),
        (["run", "chess", "--policy", "random"], "there is no track 'chess'"),
        (["run", "index", "--policy", "nobody:nothing"], "cannot import nobody"),
        (["run", "planning", "--policy", "random"], "track planning has no instances yet"),
        (["run", "index", "--policy", "random", "--held-out", "none"], "cannot read none"),
        (["run", "index", "--policy", "random", "--out", "no/where.json"], "there is no folder"),
        (["verify", "nothing.json"], "cannot read nothing.json"),
        (["table"], "benchmark/submissions holds no submissions"),
    ],
)
def test_mistakes(restless, words, sentence, tmp_path):
    code, out, err = restless(*words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert not list(tmp_path.iterdir())
