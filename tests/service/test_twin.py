"""The twin: one service dies at every named place in turn, the other never. Their logs are the same, event by event."""

import os
import shutil
import signal
import sqlite3
from contextlib import closing

import pytest

from restless_bandits.service import failpoints
from restless_bandits.service.audit import audit
from restless_bandits.service.storage.store import open_store
from tests.service.one_agent import GUARD
from tests.service.processes import Served, Visitor, context, prepare

SLOTS = 90


def world(slot, arm):
    """What an arm gives in a slot."""
    return {"state": (slot * 7 + arm * 3) // 4 % 2, "reward": float((slot * 5 + arm) % 3 == 0)}


def play(visitor):
    """A client's day: late, lost, repeated and overruled answers, batches, arms and learners that come and go."""
    made = {"name": "twin", "arms": ["x", "y", "z"], "learner": "likelihood-ucb", "seed": 11, "on_change": "forget"}
    visitor.ok("POST", "/agents", made)
    path, open_ones = "/agents/twin", []

    def tell(decision):
        seen = world(decision["slot"], decision["numbers"][0])
        visitor.ok("POST", f"{path}/tell", {"decision": decision["decision"], **seen})

    for step in range(1, SLOTS + 1):
        decision = visitor.ok("POST", f"{path}/ask", {"request": f"r{step}"})
        if step % 11 == 0:
            visitor.ok("POST", f"{path}/tell", {"decision": decision["decision"], "lost": True})
        elif step % 7 == 0:
            open_ones.append(decision)
        elif step % 13 == 0:
            visitor.ok("POST", f"{path}/tell", {"decision": decision["decision"], "arm": "x", **world(step, 0)})
        else:
            tell(decision)
            if step % 5 == 0:
                tell(decision)
        if step % 17 == 0:
            while open_ones:
                tell(open_ones.pop())
        if step % 19 == 0:
            visitor.ok("POST", f"{path}/skip", {"slots": 3, "request": f"s{step}"})
        if step == 30:
            visitor.ok("PATCH", path, {"add_arm": {"name": "w"}})
        if step == 45:
            visitor.ok("PATCH", path, {"retire_arm": "y", "late": 500})
        if step == 60:
            visitor.ok("PATCH", path, {"learner": "ucb1"})
        if step == 70:
            visitor.ok("PATCH", path, {"restore_arm": "y", "learner": "likelihood-ucb"})
        if step % 23 == 0:
            asks = [{"ask": {"request": f"b{step}.{i}"}} for i in range(4)]
            answers = visitor.ok("POST", f"{path}/batch", {"operations": asks})["answers"]
            for answer in reversed(answers):
                tell(answer)
    assert visitor.send("POST", f"{path}/tell", {"decision": "1-1", "state": 0, "reward": 0.0, "arm": "z"})[0] == 409
    return visitor.log("twin")


def check_whole(store, log):
    """What every store must hold: no event missing, no decision twice, and an audit that finds nothing."""
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    decisions = [event["decision"] for event in log if event["kind"] == "ask" and not event.get("again")]
    assert len(set(decisions)) == len(decisions)
    opened = open_store(store)
    found = audit(opened)
    opened.close()
    assert found.same, found.sentence


@pytest.fixture(scope="module")
def twin_log(tmp_path_factory):
    """The log of the one that never died."""
    store = tmp_path_factory.mktemp("twin") / "twin.db"
    served = Served(store)
    assert served.start()
    visitor = Visitor([served.port], served.token)
    log = play(visitor)
    visitor.close()
    served.stop()
    assert served.starts == 1
    check_whole(store, log)
    kinds = {event["kind"] for event in log}
    assert kinds == {"create", "ask", "tell", "lost", "skip", "plan", "arm", "learner"}
    return log


AT_EVERY_REQUEST = ("before-begin", "after-begin", "before-commit", "after-commit", "before-answer", "after-answer")
NOW_AND_THEN = ("before-snapshot", "after-snapshot", "before-plan", "after-plan")
DEATHS = [
    *(f"{name}:1" for name in (*NOW_AND_THEN, *AT_EVERY_REQUEST)),
    *(f"{name}:2" for name in (*NOW_AND_THEN[2:], *AT_EVERY_REQUEST)),
    *(f"{name}:5" for name in AT_EVERY_REQUEST),
]
"""Where it dies, each time it has begun again."""


@pytest.mark.slow
def test_one_that_dies_everywhere_has_the_same_log(tmp_path, twin_log):
    store = tmp_path / "mortal.db"
    served = Served(store)
    deaths = iter(DEATHS)
    served.start_somehow(iter(["before-migration:1", "after-migration:1", next(deaths)]))
    assert served.starts == 3

    def gone():
        served.died()
        served.start_somehow(deaths)

    visitor = Visitor([served.port], served.token, gone)
    log = play(visitor)
    assert log == twin_log
    assert next(deaths, None) is None, "it went through all of them"
    visitor.close()
    served.stop()
    check_whole(store, log)
    named = {death.partition(":")[0] for death in DEATHS}
    assert named | {"before-migration", "after-migration", "before-backup", "after-backup"} == set(failpoints.NAMES)


@pytest.mark.parametrize("place", ["before-backup", "after-backup"])
def test_a_backup_that_dies_leaves_the_store_whole(tmp_path, place):
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    store = open_store(path)
    token = store.tokens.make("read")
    child = context().Process(target=back_up, args=(str(path), str(copy), f"{place}:1"), daemon=True)
    child.start()
    child.join(GUARD)
    assert child.exitcode == -signal.SIGKILL
    assert copy.exists() == (place == "after-backup")
    if copy.exists():
        again = open_store(copy)
        assert again.tokens.role_of(token) == "read"
        again.close()
    assert store.tokens.role_of(token) == "read"
    store.close()


def back_up(path, copy, failpoint):
    prepare(failpoint)
    open_store(path).backup(copy)


def test_a_truncated_wal_is_a_shorter_log(tmp_path, twin_log):
    """What a disk that lied about its writes may leave: an earlier moment, whole in itself."""
    store = tmp_path / "s.db"
    served = Served(store)
    assert served.start()
    visitor = Visitor([served.port], served.token)
    play(visitor)
    visitor.close()
    served.kill()
    wal = tmp_path / "s.db-wal"
    content = wal.read_bytes()
    assert len(content) > 100_000
    (tmp_path / "s.db-shm").unlink()
    lengths = []
    for share in (0.9, 0.5, 0.2, 0.0):
        folder = tmp_path / str(share)
        folder.mkdir()
        shutil.copy(store, folder / "s.db")
        (folder / "s.db-wal").write_bytes(content[: int(len(content) * share)])
        opened = open_store(folder / "s.db")
        found = audit(opened)
        assert found.same, found.sentence
        lengths.append(found.events)
        opened.close()
        with closing(sqlite3.connect(folder / "s.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert lengths == sorted(lengths, reverse=True)
    assert 0 < lengths[1] < lengths[0] < len(twin_log)


def test_failpoints_cost_nothing_where_nobody_asks():
    assert failpoints.passed is failpoints.no_failpoint
    os.environ.pop(failpoints.FAILPOINT_VARIABLE, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.FAILPOINT_VARIABLE, "nowhere:1")
        with pytest.raises(ValueError, match="names no failpoint"):
            failpoints.from_environment()
