"""Every example runs by itself and leaves a picture."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.optional import needed

needed("matplotlib")

EXAMPLES = Path(__file__).parent.parent / "examples"
SHORT = {
    "satellite_channels.py": ["--horizon", "400", "--runs", "2"],
    "job_dispatch.py": ["--horizon", "100", "--runs", "1"],
    "production_loop.py": ["--slots", "400"],
    "own_learner.py": ["--horizon", "400", "--runs", "2"],
    "compare_learners.py": ["--horizon", "400", "--runs", "2"],
}
PNG = b"\x89PNG\r\n"


def test_none_is_left_out():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHORT)


@pytest.mark.parametrize("name", sorted(set(SHORT) - {"production_loop.py"}))
def test_runs_and_leaves_a_picture(name, tmp_path, monkeypatch, capsys):
    out = tmp_path / "picture.png"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SHORT[name], "--out", str(out)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out.endswith(f"picture: {out}\n")
    assert out.read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]


def test_goes_on_when_killed(tmp_path, monkeypatch, capfd):
    """The process that dies is started by the example itself."""
    name = "production_loop.py"
    out = tmp_path / "picture.png"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *SHORT[name], "--out", str(out)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    told = capfd.readouterr().out
    assert told.endswith(f"picture: {out}\n")
    assert out.read_bytes().startswith(PNG)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
    assert "killed in slot 250" in told
    assert "going on after slot 250" in told
    assert "never died: True" in told
