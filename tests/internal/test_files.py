"""Files are there whole or not at all, and nothing that is no file is replaced by one."""

import errno
import os
import stat

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits._internal.files import check_writable, same_file, save_file, write_file

PAPER = rb.Problem.builtin("paper-1")


def result():
    return rb.simulate(PAPER, "round-robin", 9, runs=1)


SAVERS = {
    "problem": lambda: PAPER,
    "policy": lambda: rb.oracles.policy("myopic", PAPER),
    "agent": lambda: rb.Agent("round-robin", PAPER.task(9)),
    "result": result,
}


@pytest.fixture(params=SAVERS.values(), ids=SAVERS.keys())
def saver(request):
    return request.param()


def test_what_was_there_stays_when_the_disk_is_full(saver, tmp_path, monkeypatch):
    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "kept"
    path.write_text("kept")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(rb.ProblemError, match=r"cannot write .*kept: No space left"):
        saver.save(path)
    assert path.read_text() == "kept"
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed_and_pipes_left_alone(saver, tmp_path):
    (tmp_path / "folder").mkdir()
    target, link, pipe = tmp_path / "folder" / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    saver.save(link)
    assert link.is_symlink()
    assert target.stat().st_size > 0
    os.mkfifo(pipe)
    with pytest.raises(rb.ProblemError, match="it is a pipe or a device and no file; name a file"):
        saver.save(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(rb.ProblemError, match=f"cannot write {os.devnull}: it is a pipe or a device"):
        saver.save(os.devnull)


def test_permissions_of_a_file_stay(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o600)
    save_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.name == "nt" or stat.S_IMODE(path.stat().st_mode) == 0o600


def test_places_where_nothing_can_be_written(tmp_path, monkeypatch):
    path = tmp_path / "file"
    with pytest.raises(rb.ProblemError, match=r"there is no folder .*nowhere; make it first"):
        check_writable(tmp_path / "nowhere" / "file")
    with pytest.raises(rb.ProblemError, match="it is a folder; name a file in it"):
        check_writable(tmp_path)
    with pytest.raises(rb.ProblemError, match="null byte"):
        check_writable("a\0b")
    check_writable(path)
    path.write_bytes(b"")
    # Who may do everything cannot be forbidden anything, so permissions are asked of a stand-in.
    for forbidden, message in (
        (tmp_path, "the folder .* is read-only for you"),
        (path, "the file is read-only for you"),
    ):
        monkeypatch.setattr(os, "access", lambda place, mode, forbidden=forbidden: place != forbidden)
        with pytest.raises(rb.ProblemError, match=message):
            check_writable(path)


def test_an_interrupted_writer_leaves_nothing(tmp_path):
    def interrupted(file):
        file.write(np.zeros(100).tobytes())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "file", interrupted)
    assert not list(tmp_path.iterdir())


def test_one_file_under_two_names(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    assert same_file(one, tmp_path / "." / "one")
    assert not same_file(one, other)
    one.write_bytes(b"")
    os.link(one, other)
    assert same_file(one, other)
