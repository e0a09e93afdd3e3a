"""The audit finds what was changed in a log, and is content with what was not."""

import json
import shutil
import sqlite3
import tempfile
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from restless_bandits.service import planning
from restless_bandits.service.audit import audit, first_difference
from restless_bandits.service.operations import Ask, Create, ServiceError
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.storage.stored_plans import packed, unpacked
from tests.service.one_agent import GUARD, Kept, plan_at_once


@pytest.fixture(scope="module")
def made(quick):
    """A store with a log of all kinds of events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning.background, "submit", plan_at_once)
        a = Kept(quick / "audited.db")
        a.create(learner="likelihood-ucb", arms="xyz", on_change="forget")
        for i in range(40):
            decision = a.ask()
            if i % 4:
                a.tell(decision, state=(i // 3) % 2, reward=float(i % 2))
        a.patch(add_arm="w")
        a.patch(retire_arm="y")
        for i in range(10):
            a.tell(a.ask(), state=i % 2, reward=1.0)
        a.close()
    return a.where


@pytest.fixture
def told(made, quick):
    """A copy of it."""
    return Path(shutil.copy(made, tempfile.mkdtemp(dir=quick)))


def change(store, statement, *values):
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute(statement, values).rowcount == 1
        connection.commit()


def body(store, seq):
    with closing(sqlite3.connect(store)) as connection:
        return json.loads(connection.execute("SELECT body FROM events WHERE seq = ?", (seq,)).fetchone()[0])


def events(store, kind):
    with closing(sqlite3.connect(store)) as connection:
        return [row[0] for row in connection.execute("SELECT seq FROM events WHERE kind = ? ORDER BY seq", (kind,))]


def audited(path):
    store = open_store(path)
    try:
        return audit(store)
    finally:
        store.close()


def test_what_was_not_changed(told):
    found = audited(told)
    assert found.same
    assert found.plans > 5
    assert found.foreign == 0
    assert "all reproduced" in found.sentence


def rewrite(told, seq, **fields):
    changed = json.dumps(body(told, seq) | fields)
    change(told, "UPDATE events SET body = ? WHERE seq = ?", changed, seq)


def test_another_decision(told):
    seq = events(told, "ask")[17]
    arms = body(told, seq)["arms"]
    rewrite(told, seq, arms=[(arms[0] + 1) % 3])
    found = audited(told)
    assert not found.same
    assert f"event {seq}" in found.sentence
    assert "was decided as arms" in found.sentence


def test_another_answer_leads_to_another_plan(told):
    seq = events(told, "tell")[3]
    before = body(told, seq)
    rewrite(told, seq, states=[1 - before["states"][0]])
    assert not audited(told).same


def test_an_event_that_is_missing(told):
    for seq in (events(told, "tell")[5], max(events(told, "tell"))):
        change(told, "DELETE FROM events WHERE seq = ?", seq)
        assert not audited(told).same


def test_another_plan(told):
    seq = events(told, "plan")[2]
    other = body(told, events(told, "plan")[-1])["digest"]
    rewrite(told, seq, digest=other)
    assert f"event {seq}" in audited(told).sentence


def test_a_plan_that_is_damaged_or_gone(told):
    digest = body(told, events(told, "plan")[2])["digest"]
    change(told, "UPDATE plans SET content = ? WHERE digest = ?", b"nonsense", digest)
    assert "damaged" in audited(told).sentence
    change(told, "DELETE FROM plans WHERE digest = ?", digest)
    assert "not in the store" in audited(told).sentence


def with_snapshot(told):
    """One of the middle of the log, made by playing on."""
    a = Kept(told, snapshot_every=5)
    for i in range(10):
        a.tell(a.ask(f"more {i}"), state=i % 2, reward=1.0)
    a.close()


def test_a_snapshot_is_compared_with_the_log(told, at_once):
    with_snapshot(told)
    found = audited(told)
    assert found.same
    assert found.snapshots == 1
    with closing(sqlite3.connect(told)) as connection:
        seq, content = connection.execute("SELECT seq, content FROM snapshots").fetchone()
    head, *parts = zlib.decompress(content).split(b"\n")
    data = json.loads(head)
    data["totals"]["told"] += 1
    changed = b"\n".join([json.dumps(data).encode(), *parts])
    change(told, "UPDATE snapshots SET content = ?", zlib.compress(changed))
    found = audited(told)
    assert not found.same
    assert f"the snapshot of event {seq} differs from the replay of the log: totals.told is" in found.sentence
    change(told, "UPDATE snapshots SET content = ?", b"nonsense")
    assert "cannot be loaded" in audited(told).sentence
    change(told, "UPDATE snapshots SET seq = 99999")
    assert "a snapshot of event 99999" in audited(told).sentence


def test_the_first_difference_is_named_by_its_place():
    one = {"a": [1, {"b": 0.5}], "c": None}
    assert first_difference(one, one) is None
    assert first_difference(one, {"a": [1, {"b": 0.5 + 1e-9}], "c": None}, 1e-6) is None
    assert first_difference(one, {"a": [1, {"b": 0.75}], "c": None}) == "a[1].b is 0.5, and 0.75 in the log"
    assert first_difference(one, {"a": [1], "c": None}).startswith("a is [1, {'b': 0.5}], and [1]")


@pytest.mark.parametrize("kind", ["ask", "tell", "plan", "arm", "create"])
@pytest.mark.parametrize("text", ["{}", "[]", "nonsense", '{"slot": "x", "arms": 3}'])
def test_nonsense_is_a_difference_and_no_crash(told, kind, text):
    change(told, "UPDATE events SET body = ? WHERE seq = ?", text, events(told, kind)[0])
    assert not audited(told).same


def test_a_damaged_log_is_one_sentence_and_harms_no_other(told, at_once):
    with closing(sqlite3.connect(told)) as connection:
        connection.execute("DELETE FROM snapshots")
        connection.commit()
    rewrite(told, events(told, "tell")[3], states=[7])
    a = Kept(told)
    with pytest.raises(ServiceError, match="the log of agent 'a' is damaged") as caught:
        a.read()
    assert caught.value.status == 503
    good = a.writer.submit("good", [Create("good", ["x"], learner="ucb1"), Ask("1")])
    with pytest.raises(ServiceError, match="damaged"):
        a.ask()
    assert good.result(GUARD)[1]["slot"] == 1
    a.close()


def test_plans_of_another_release_are_followed_and_it_says_so(told, monkeypatch):
    monkeypatch.setattr("restless_bandits.service.audit.origin", lambda: {"release": "9.9", "processor": "other"})
    found = audited(told)
    assert found.same
    assert (found.plans, found.foreign) == (0, len(events(told, "plan")))
    assert "of another release or processor" in found.sentence


def test_a_release_that_would_plan_otherwise(told, monkeypatch):
    monkeypatch.setattr("restless_bandits.agent.core.plan_generator", lambda *_: None)

    def other(*given):
        plan = planning.make_packed_plan(*given)
        return ("0" * 32, plan[1])

    monkeypatch.setattr("restless_bandits.service.audit.make_packed_plan", other)
    assert "would be" in audited(told).sentence


def test_every_learners_plans_can_be_stored():
    from restless_bandits.agent.core import make_plan
    from restless_bandits.agent.observed import make_observed_plan
    from restless_bandits.learning.learners import as_learner
    from restless_bandits.model.observed_record import ObservedRecord
    from restless_bandits.model.observed_task import ObservedTask
    from restless_bandits.model.record import Record
    from restless_bandits.model.tasks import Task
    from restless_bandits.registry import learner_names

    task = Task((2, 2, 2), 1, ("bernoulli",) * 3, (None,) * 3, ("x", "y", "z"), horizon=1000)
    record = Record.of(task)
    for i in range(30):
        record.observe([i % 3], [i // 3 % 2], [float(i % 2)])
    observed = ObservedTask.of_arms(3)
    seen = ObservedRecord.of(observed)
    for i in range(30):
        seen.observe([i % 2, i // 2 % 2, 1])
        seen.act(np.array([i % 3]))
    seen.observe([0, 1, 0])
    stored = []
    for name in learner_names():
        learner = as_learner(name)
        if learner.needs or task.observed not in learner.observed:
            continue
        if "all" in learner.observed:
            digest, content = packed(make_observed_plan(learner, seen, observed, None, 1, "", 0))
            assert packed(unpacked(digest, content).plan)[0] == digest, name
            stored.append(name)
        if "pulled" not in learner.observed:
            continue
        plan = make_plan(learner, record, task, [0, 1, 2], 1, "", 0)
        again = unpacked(*packed(plan))
        assert again.plan == plan, name
        assert packed(again.plan)[0] == again.digest
        stored.append(name)
    assert len(stored) > 12
