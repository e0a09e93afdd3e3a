import errno
import json
import os
import signal
import subprocess
import sys

import pytest

import restless_bandits as rb
from restless_bandits.learning.learners import RestlessUCB
from restless_bandits.simulation import SimulationInterrupted, scheduler, simulate, storage
from restless_bandits.simulation import jobs as jobs_module
from tests.simulation.test_runner import assert_same, interrupt_at, no_run_from

SPECS = ["restless-ucb:m=40", "ucb1"]
HORIZON = 1000


@pytest.fixture(scope="module")
def problem():
    return rb.Problem.builtin("paper-2")


@pytest.fixture(scope="module")
def whole(problem):
    return simulate(problem, SPECS, HORIZON, runs=23, seed=5)


@pytest.fixture
def stored(problem, tmp_path, monkeypatch):
    """Simulate with storage in blocks of five; ``runs`` can be asked for."""
    monkeypatch.setattr(scheduler, "RUNS_PER_FILE", 5)
    monkeypatch.setattr(scheduler, "PIECE_SECONDS", 0.0)

    def run(runs=23, **options):
        return simulate(problem, SPECS, HORIZON, runs=runs, seed=5, out=tmp_path / "out", **options)

    return run


@pytest.fixture
def played(monkeypatch):
    """The runs that are really played, as (learner, run)."""
    seen = []
    play = jobs_module.play_run

    def watch(learner, world, horizon, *rest, run, **options):
        if horizon > 1:
            seen.append((learner.spec, run))
        return play(learner, world, horizon, *rest, run=run, **options)

    monkeypatch.setattr(jobs_module, "play_run", watch)
    return seen


def blocks(folder):
    return sorted(folder.rglob("runs-*.npz"))


def test_storing_changes_nothing_and_a_second_time_plays_nothing(stored, whole, played):
    assert_same(stored(), whole)
    assert len(played) == len(set(played)) == 46
    first = stored()
    assert len(played) == 46
    assert_same(first, whole)
    assert_same(stored(), first, seconds=True)


def test_more_and_fewer_runs_use_what_is_there(stored, whole, played):
    stored(runs=8)
    assert_same(stored(), whole)
    assert len(played) == len(set(played)) == 46
    few = stored(runs=3)
    assert len(played) == 46
    assert (few.regret() == whole.regret()[:, :3]).all()


def test_another_comparator_plays_nothing_again(stored, played):
    stored()
    stored(comparator="whittle", ratio=0.9)
    assert len(played) == 46


def test_another_seed_horizon_or_checkpoints_plays_again(problem, played, tmp_path):
    for options in ({}, {"seed": 1}, {"horizon": 101}, {"checkpoints": 3}, {"learners": "ucb1:width=1.5"}):
        simulate(problem, **({"learners": "ucb1", "horizon": 100, "runs": 2, "out": tmp_path} | options))
    assert len(played) == 10
    keys = [json.loads(path.read_text()) for path in tmp_path.glob("*/key.json")]
    assert len(keys) == 5
    assert all(key["problem"] == problem.content and key["version"] == rb.__version__ for key in keys)


def test_another_version_plays_again(stored, played, monkeypatch):
    stored(runs=2)
    monkeypatch.setattr(storage, "__version__", "0.0.0")
    stored(runs=2)
    assert len(played) == 8
    monkeypatch.setattr(storage, "fingerprint", lambda: "other code")
    stored(runs=2)
    assert len(played) == 12


def test_a_deleted_block_is_played_again(stored, whole, played, tmp_path):
    stored()
    blocks(tmp_path)[1].unlink()
    assert_same(stored(), whole)
    assert 46 < len(played) <= 51


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "text", "other key"])
def test_a_damaged_block_is_played_again_with_a_warning(stored, whole, played, tmp_path, damage):
    stored()
    path = blocks(tmp_path)[2]
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "empty": b"",
            "truncated": content[:middle],
            "flipped": content[:middle] + bytes(b ^ 0xFF for b in content[middle:][:64]) + content[middle + 64 :],
            "text": b"hello",
            "other key": next(block for block in blocks(tmp_path) if block.parent != path.parent).read_bytes(),
        }[damage]
    )
    with pytest.warns(RuntimeWarning, match=r"runs-.*\.npz is damaged; .* played again"):
        assert_same(stored(), whole)
    assert 46 < len(played) <= 51
    assert_same(stored(), whole)
    assert len(played) <= 51


def test_blocks_come_while_playing_and_leave_nothing_else(stored, tmp_path):
    counts = []
    stored(progress=lambda done, total: counts.append(len(blocks(tmp_path))), jobs=1)
    assert counts[20] >= 2
    names = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert all(name in ("manifest.json", "key.json") or name.startswith("runs-") for name in names)


def test_slow_runs_are_stored_one_by_one(stored, tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "STORE_INTERVAL_SECONDS", 0.0)
    stored(runs=4)
    assert len(blocks(tmp_path)) == 8


def test_ctrl_c_keeps_what_is_finished(stored, whole, played, monkeypatch):
    kept = pytest.raises(SimulationInterrupted, match=r"runs are finished and stored in .*; the same again resumes$")
    with no_run_from(10, monkeypatch), kept as caught:
        stored(progress=interrupt_at(17))
    assert 17 <= sum(caught.value.finished.values()) <= 20
    assert_same(stored(), whole)
    assert len(played) == len(set(played)) == 46


KILLED = """
import sys, time
import restless_bandits as rb
from restless_bandits.simulation import scheduler as playing, simulate
playing.RUNS_PER_FILE, playing.PIECE_SECONDS = 5, 0.0
def progress(done, total):
    if done == 19:
        print("now", flush=True)
        time.sleep(600)
problem = rb.Problem.builtin("paper-2")
simulate(problem, {specs!r}, {horizon}, runs=23, seed=5, jobs=2, out=sys.argv[1], progress=progress)
"""


def test_a_kill_in_the_middle_loses_no_stored_block(stored, whole, played, tmp_path):
    code = KILLED.format(specs=SPECS, horizon=HORIZON)
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "out")], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"now\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert len(blocks(tmp_path)) >= 2
    assert_same(stored(), whole)
    assert 46 - 19 <= len(played) <= 46 - 10


def test_a_full_disk_is_one_sentence_and_what_is_stored_stays(stored, whole, played, tmp_path, monkeypatch):
    real, calls = os.fsync, []

    def full(number):
        calls.append(number)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(rb.ProblemError, match=r"cannot write .*No space left.* intact; make room .* resume"):
        stored()
    kept = blocks(tmp_path)
    assert len(kept) == 3
    assert not list(tmp_path.rglob("*.tmp"))
    monkeypatch.setattr(os, "fsync", real)
    played.clear()
    assert_same(stored(), whole)
    assert len(played) == 46 - 15


class TestFolders:
    def test_a_foreign_folder_is_refused_and_left_alone(self, problem, tmp_path):
        (tmp_path / "thesis.tex").write_text("do not touch")
        with pytest.raises(rb.ProblemError, match="holds other files and no results of ours; name a new or empty"):
            simulate(problem, "ucb1", 10, runs=1, out=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

    @pytest.mark.parametrize("text", ["{", "[]", '{"what": "a web page"}', '{"name": "x"}'])
    def test_a_foreign_manifest(self, problem, tmp_path, text):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(rb.ProblemError, match=r"manifest\.json is not one of ours"):
            simulate(problem, "ucb1", 10, runs=1, out=tmp_path)
        assert (tmp_path / "manifest.json").read_text() == text

    def test_a_later_format(self, problem, tmp_path):
        (tmp_path / "manifest.json").write_text(json.dumps({"what": storage.WHAT, "format": 99}))
        with pytest.raises(rb.ProblemError, match="is in format 99, not 1"):
            simulate(problem, "ucb1", 10, runs=1, out=tmp_path)

    def test_a_file(self, problem, tmp_path):
        path = tmp_path / "file"
        path.write_text("x")
        with pytest.raises(rb.ProblemError, match="cannot use"):
            simulate(problem, "ucb1", 10, runs=1, out=path)

    def test_an_empty_and_a_nested_folder(self, problem, tmp_path):
        simulate(problem, "ucb1", 10, runs=1, out=tmp_path)
        simulate(problem, "ucb1", 10, runs=1, out=tmp_path / "a" / "b")
        assert json.loads((tmp_path / "manifest.json").read_text())["what"] == storage.WHAT

    def test_a_learner_without_a_spec(self, problem, tmp_path):
        with pytest.raises(rb.ProblemError, match=r"cannot store runs of restless-ucb: .* has no spec"):
            simulate(problem, RestlessUCB(m=lambda horizon: 5), 100, out=tmp_path)
