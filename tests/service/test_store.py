"""The store: what it opens and refuses, tokens, backups, snapshots, and what memory an agent may take."""

import json
import sqlite3
import stat
import threading
import zlib
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from restless_bandits._internal import background
from restless_bandits._internal.errors import ProblemError
from restless_bandits.learning.change_detection import LEAST_OBSERVATIONS
from restless_bandits.service import agent, agent_cache, agent_core, planning
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.agent_cache import snapshot_of
from restless_bandits.service.audit import audit
from restless_bandits.service.operations import Ask, Create, ServiceError, Tell
from restless_bandits.service.storage import schema
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.writer import WAIT_FOR_PLANS_VARIABLE
from tests.service.one_agent import GUARD, SECOND, Kept, plan_at_once

FROZEN = Path(__file__).parent.parent / "frozen"


class TestOpening:
    def test_a_new_file_is_for_its_owner_alone(self, tmp_path):
        store = open_store(tmp_path / "s.db")
        assert stat.S_IMODE((tmp_path / "s.db").stat().st_mode) == 0o600
        store.close()
        open_store(f"sqlite:///{tmp_path / 's.db'}").close()

    def test_a_commit_waits_for_the_disk(self, tmp_path):
        store = open_store(tmp_path / "s.db")
        with store.writing() as session:
            settings = {
                name: session.driver.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
            }
        store.close()
        assert settings == {"journal_mode": "wal", "synchronous": 2}

    @pytest.mark.parametrize(
        ("where", "complaint"),
        [
            ("", "would lose everything"),
            ("sqlite://", "would lose everything"),
            (":memory:", "would lose everything"),
            ("mysql://host/name", "unknown kind of database"),
            ("postgresql+nobody://host/name", "not installed"),
            ("nowhere/at/all.db", "nowhere"),
            ("://", "no file and no database URL"),
        ],
    )
    def test_what_is_no_store(self, where, complaint):
        with pytest.raises(ProblemError, match=complaint):
            open_store(where)

    def test_a_password_is_not_shown(self):
        with pytest.raises(ProblemError) as caught:
            open_store("postgresql+psycopg://me:secret@127.0.0.1:1/name")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("content", [b"something else", b"SQLite format 3\x00" + b"x" * 5000])
    def test_a_file_of_another_kind(self, tmp_path, content):
        (tmp_path / "s.db").write_bytes(content)
        with pytest.raises(ProblemError, match="cannot open the store"):
            open_store(tmp_path / "s.db")

    def test_a_database_of_something_else(self, tmp_path):
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            connection.execute("CREATE TABLE dear (diary TEXT)")
        with pytest.raises(ProblemError, match="holds tables of another application"):
            open_store(tmp_path / "s.db")

    def test_one_of_a_later_release(self, tmp_path):
        open_store(tmp_path / "s.db").close()
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            connection.execute("UPDATE about SET value = '99' WHERE key = 'schema'")
            connection.commit()
        with pytest.raises(ProblemError, match="later release"):
            open_store(tmp_path / "s.db")

    def test_one_of_an_earlier_release_is_brought_up_to_date(self, tmp_path, monkeypatch):
        open_store(tmp_path / "s.db").close()
        monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
        monkeypatch.setitem(
            schema.MIGRATIONS, schema.VERSION - 1, ("ALTER TABLE agents ADD COLUMN colour TEXT", "nonsense")
        )
        with pytest.raises(ProblemError, match="cannot open"):
            open_store(tmp_path / "s.db")
        monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION - 1, ("ALTER TABLE agents ADD COLUMN colour TEXT",))
        open_store(tmp_path / "s.db").close()
        open_store(tmp_path / "s.db").close()

    def test_a_frozen_store_opens_and_goes_on(self, tmp_path, at_once):
        """Written by the first release that had stores; whatever comes later reads it."""
        expected = json.loads((FROZEN / "store.json").read_text())
        (tmp_path / "store.db").write_bytes(zlib.decompress((FROZEN / "store.db.z").read_bytes()))
        a = Kept(tmp_path / "store.db", name="frozen")
        assert [event["kind"] for event in a.log()] == expected["kinds"]
        shown = a.read()
        assert {key: shown[key] for key in expected["agent"]} == expected["agent"]
        assert a.ask(expected["request"]) == expected["decision"]
        assert a.tell(expected["told"]["decision"], **expected["told"]["seen"])["used"]
        assert a.store.tokens.role_of(expected["token"]) == "play"
        a.tell(a.ask("new"), state=1, reward=1.0)
        found = audit(a.store)
        assert found.same, found.sentence
        assert found.foreign == expected["agent"]["plan"]
        a.close()


class TestTheFile:
    """Of a store that is deleted, replaced or cut off while it is in use."""

    @pytest.fixture
    def a(self, kept):
        a = kept()
        a.create()
        a.token = a.store.tokens.make("play")
        a.ask("first")
        return a

    def check_refused(self, a, words):
        ways = (
            lambda: a.ask("refused"),
            a.read,
            a.log,
            a.writer.health,
            lambda: a.store.tokens.role_of(a.token),
            lambda: a.store.tokens.make("play"),
        )
        for way in ways:
            with pytest.raises(ServiceError, match="the store is unavailable now: ") as caught:
                way()
            assert caught.value.status == 503
            assert words in str(caught.value)
        with pytest.raises(ProblemError, match=words):
            a.store.backup(a.where.with_name("copy.db"))

    def test_deleted_and_put_back(self, a):
        a.where.rename(a.where.with_name("aside.db"))
        self.check_refused(a, "cannot be found")
        assert not a.where.exists(), "nobody makes another one in its place"
        a.where.with_name("aside.db").rename(a.where)
        assert a.ask("first")["slot"] == 1
        assert a.ask("second")["slot"] == 2
        assert audit(a.store).same

    def test_replaced(self, a):
        a.store.backup(a.where.with_name("copy.db"))
        a.where.with_name("copy.db").replace(a.where)
        self.check_refused(a, "is another file than the one that was opened")

    def test_cut_off(self, a):
        a.store.tidy()
        # The close of a connection copies what was written ahead into the rest of the file.
        a.patch(add_arm="z" * 150)
        with a.where.open("r+b") as file:
            file.truncate(5000)
        self.check_refused(a, "is shorter than it was")

    def test_one_that_was_made_smaller_by_its_owner(self, a):
        a.patch(add_arm="z" * 150)
        with closing(sqlite3.connect(a.where)) as connection:
            connection.execute("CREATE TABLE large AS SELECT zeroblob(1000000)")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            a.read()
            size = a.where.stat().st_size
            connection.execute("DROP TABLE large")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert a.where.stat().st_size < size
        assert a.ask("second")["slot"] == 2

    def test_without_what_was_written_ahead(self, a):
        a.where.with_name(f"{a.where.name}-wal").unlink()
        for _ in range(2):
            with pytest.raises(ServiceError, match=r"has lost store.db-wal, which held the last commits"):
                a.ask("refused")


class TestTokens:
    @pytest.fixture
    def store(self, quick):
        store = open_store(quick / "tokens.db")
        yield store
        store.close()

    def test_roles(self, store):
        tokens = {role: store.tokens.make(role, f"for {role}") for role in ("read", "play", "admin")}
        assert {role: store.tokens.role_of(token) for role, token in tokens.items()} == {r: r for r in tokens}
        with pytest.raises(ProblemError, match="the role of a token"):
            store.tokens.make("king")

    def test_nobody(self, store):
        token = store.tokens.make("read")
        for wrong in (
            "",
            "x",
            token[:-1],
            token + "x",
            token[:-1] + ("a" if token[-1] != "a" else "b"),
            token.upper(),
            None,
            "rb-00000000-" + "a" * 43,
            "é" * 60,
        ):
            assert store.tokens.role_of(wrong) is None

    def test_the_store_holds_no_token(self, store, quick):
        token = store.tokens.make("admin")
        secret = token.split("-", 2)[2].encode()
        assert all(secret not in path.read_bytes() for path in quick.glob("tokens.db*"))
        assert not any(secret.decode() in str(row) for row in store.tokens.list())

    def test_revoked(self, store):
        token = store.tokens.make("admin", "gone")
        name = token.split("-")[1]
        assert store.tokens.revoke(name)
        assert store.tokens.role_of(token) is None
        assert not store.tokens.revoke(name)
        assert not store.tokens.revoke("nobody")
        assert next(row for row in store.tokens.list() if row["id"] == name)["revoked"]


class TestBackup:
    def test_while_it_is_being_written_to(self, kept, tmp_path):
        a = kept()
        a.create()
        asked = [a.writer.submit("a", [Ask(f"r{i}")]) for i in range(300)]
        a.store.backup(tmp_path / "copy.db")
        last = [future.result(GUARD)[0] for future in asked][-1]
        copy = Kept(tmp_path / "copy.db")
        assert audit(copy.store).same
        assert copy.read()["seq"] <= a.read()["seq"]
        assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
        assert copy.ask("r299")["slot"] <= last["slot"]
        copy.close()

    def test_what_is_there_is_not_replaced(self, kept, tmp_path):
        a = kept()
        (tmp_path / "copy.db").write_text("mine")
        with pytest.raises(ProblemError, match="is there already"):
            a.store.backup(tmp_path / "copy.db")
        with pytest.raises(ProblemError, match="nowhere"):
            a.store.backup(tmp_path / "nowhere" / "copy.db")
        assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]


class TestRecovery:
    @pytest.mark.parametrize("every", [1, 3, 50, 10_000])
    def test_snapshots_change_nothing(self, kept, every):
        a = kept(snapshot_every=every)
        a.create(learner="likelihood-ucb", arms="xyz", on_change="forget", late=20, memory=None)
        for i in range(60):
            decision = a.ask()
            if i % 3:
                a.tell(decision, state=i // 3 % 2, reward=float(i % 2))
            if i % 20 == 10:
                before = a.read(), a.record()
                a.reopen()
                assert (a.read(), a.record()) == before
        assert audit(a.store).same
        if every < 60:
            assert a.writer.stats()["loads_total"] == 1

    def test_a_recovery_begins_with_the_last_snapshot(self, kept):
        a = kept(snapshot_every=40)
        a.create()
        for i in range(100):
            a.tell(a.ask(), state=i % 2, reward=1.0)
        a.close()
        with closing(sqlite3.connect(a.where)) as connection:
            ((seq, version),) = connection.execute("SELECT seq, version FROM snapshots").fetchall()
            assert version == schema.SNAPSHOT_VERSION
            assert seq > 150
            # What is older is not read.
            connection.execute("UPDATE events SET body = 'nonsense' WHERE seq <= ?", (seq,))
            connection.commit()
        a.open()
        assert a.read()["slots"] == 100

    @pytest.mark.parametrize(
        "change",
        ["version = 99, content = X'00'", "content = X'00'", "content = X'789c'", "seq = 99999"],
    )
    def test_a_snapshot_that_cannot_be_used_is_left_alone(self, kept, change):
        a = kept(snapshot_every=10)
        a.create()
        for i in range(20):
            a.tell(a.ask(), state=i % 2, reward=1.0)
        before = a.read()
        a.close()
        with closing(sqlite3.connect(a.where)) as connection:
            connection.execute(f"UPDATE snapshots SET {change}")
            connection.commit()
        a.open()
        assert a.read() == before

    def test_a_snapshot_is_of_the_moment_in_which_it_was_taken(self, kept):
        """It is written later, by another thread, while the agent goes on."""
        a = kept()
        a.create(learner="likelihood-ucb", arms="xyz", on_change="forget", late=2)
        for i in range(20):
            a.tell(a.ask(), state=i % 2, reward=1.0)
        taken, then = a.writer.read("a", lambda agent: (agent.to_dict(), json.dumps(agent.to_dict())))
        for i in range(20):
            a.tell(a.ask(), state=i % 2, reward=1.0)
        assert json.dumps(taken) == then

    def test_what_is_not_in_the_log_is_in_no_snapshot(self, kept):
        a = kept()
        a.create(clock="1s")
        a.ask()

        def look(agent):
            agent.core.skip(3)
            with pytest.raises(RuntimeError, match="not gathered: skip"):
                agent.to_dict()
            agent.gather(a.time)
            with pytest.raises(RuntimeError, match="1 events that are not in the log"):
                agent.to_dict()

        a.writer.read("a", look)

    def test_an_operation_that_forgets_an_event_is_refused(self, kept, monkeypatch):
        a = kept(snapshot_every=1)
        a.create()
        a.ask()
        before = a.read(), a.log()
        with monkeypatch.context() as patch:
            patch.setattr(ServiceAgent, "skip", lambda agent, *_: agent.core.skip(5))
            with pytest.raises(ServiceError, match="not gathered: skip"):
                a.skip(5)
        assert (a.read(), a.log()) == before

    def test_a_snapshot_that_cannot_be_taken_harms_nobody(self, kept, monkeypatch):
        a = kept(snapshot_every=1)
        a.create()
        with monkeypatch.context() as patch:
            patch.setattr(ServiceAgent, "to_dict", lambda _: 1 // 0)
            assert a.ask()["slot"] == 1
        assert a.ask()["slot"] == 2
        assert a.writer.stats()["loads_total"] == 1

    def test_an_agent_in_memory_that_does_not_fit_its_log_is_loaded_anew(self, kept, caplog):
        a = kept()
        a.create(clock="1s")
        a.ask()
        a.writer.read("a", lambda agent: agent.core.record.skip(7))
        other = Kept(a.where)
        other.time = a.time + 3 * SECOND
        decision = other.ask("other")
        assert a.read() == other.read()
        assert "in memory does not fit its log" in caplog.text
        assert a.tell(decision, state=0, reward=1.0)["used"]
        other.close()

    @pytest.mark.parametrize("then", ["skip and ask", "skip alone", "nothing", "never logged"])
    def test_a_poisoned_snapshot_is_thrown_away(self, kept, caplog, then):
        """One that holds slots which passed and were logged later, or never: what was written once."""
        a = kept()
        a.create(clock="20ms", late=10)
        first = a.ask()
        a.time += 4 * SECOND
        version = 1 if then in ("nothing", "never logged") else 2
        if then == "never logged":
            poison(a, 2)
            a.reopen()
        else:
            poison(a, version)
        if then == "skip and ask":
            a.ask("late")
        if then in ("skip alone", "skip and ask"):
            assert not a.tell(first, state=0, reward=1.0)["used"]
        if then == "never logged":
            assert a.ask("late")["slot"] == 201
            change_snapshots(a, "version = 1")
        before = a.read()
        assert not audit(a.store).same
        a.reopen()
        assert a.read() == before
        assert a.writer.stats().get("snapshots_refused_total", 0) == (then != "never logged")
        assert ("thrown away" in caplog.text) == (then != "never logged")
        assert a.writer.health() | {"status": "ok", "unreadable": []} == a.writer.health()
        if then != "never logged":
            assert audit(a.store).same
        a.time += SECOND
        a.tell(a.ask(), state=1, reward=1.0)
        before = a.read()
        a.reopen()
        assert a.read() == before

    def test_a_snapshot_of_the_first_version_is_used_where_it_can_hold_no_more_than_the_log(self, kept):
        a = kept(snapshot_every=1)
        a.create()
        a.ask()
        a.ask()
        change_snapshots(a, "version = 1")
        before = a.read()
        a.reopen()
        assert a.read() == before
        assert "snapshots_refused_total" not in a.writer.stats()

    def test_health_names_an_agent_that_cannot_be_loaded(self, kept):
        a = kept()
        a.create()
        a.ask()
        a.writer.submit("good", [Create("good", ["x", "y"], learner="ucb1")]).result(GUARD)
        assert a.writer.health()["status"] == "ok"
        with closing(sqlite3.connect(a.where)) as connection:
            connection.execute("UPDATE events SET body = '{}' WHERE kind = 'ask'")
            connection.commit()
        a.reopen()
        for _ in range(2):
            with pytest.raises(ServiceError, match="the log of agent 'a' is damaged"):
                a.read()
        health = a.writer.health()
        assert (health["status"], health["unreadable"]) == ("degraded", ["a"])
        assert a.writer.stats()["agents_unreadable"] == 1
        assert a.writer.agent("good")["seq"] == 1

    def test_who_waits_for_an_agent_that_is_loaded_keeps_nobody_from_going_on(self, kept, monkeypatch):
        a = kept()
        a.create()
        a.ask("first")
        a.writer.submit("b", [Create("b", ["x", "y"], learner="ucb1")]).result(GUARD)
        monkeypatch.setattr(agent_cache, "QUICK_EVENTS", 1)
        go_on, load = threading.Event(), agent_cache.AgentCache.load_in_background
        monkeypatch.setattr(
            agent_cache.AgentCache, "load_in_background", lambda *given: go_on.wait(GUARD) and load(*given)
        )
        a.reopen()
        waiting = [a.writer.submit("a", [Ask(request)]) for request in ("first", "second")]
        looks = ThreadPoolExecutor(1)
        looking = looks.submit(a.read)
        assert [a.writer.submit("b", [Ask(str(i))]).result(GUARD)[0]["slot"] for i in range(3)] == [1, 2, 3]
        assert not any(one.done() for one in waiting)
        assert not looking.done()
        go_on.set()
        assert [one.result(GUARD)[0]["slot"] for one in waiting] == [1, 2]
        assert looking.result(GUARD)["name"] == "a"
        looks.shutdown()
        assert a.writer.stats()["loads_total"] == 1 + 1, "b is quick"

    def test_a_refused_batch_of_a_large_agent_is_undone_aside(self, kept, monkeypatch):
        a = kept()
        a.create()
        decisions = [a.ask() for _ in range(10)]
        monkeypatch.setattr(agent, "LARGE", 5)
        monkeypatch.setattr(agent_cache, "QUICK_EVENTS", 1)
        loaded, load = [], agent_cache.AgentCache.load_in_background
        monkeypatch.setattr(
            agent_cache.AgentCache, "load_in_background", lambda *given: loaded.append(1) or load(*given)
        )
        before = a.read(), a.log(), a.record()
        good = [a.writer.submit("a", [Ask(f"good {i}")]) for i in range(3)]
        bad = a.writer.submit("a", [Ask("bad"), Tell(decisions[0]["decision"], state=0, reward=0.3)])
        more = a.writer.submit("a", [Ask("more")])
        with pytest.raises(ServiceError, match="reward"):
            bad.result(GUARD)
        assert [one.result(GUARD)[0]["slot"] for one in (*good, more)] == [11, 12, 13, 14]
        assert len(loaded) == 1
        assert a.kinds()[-8:] == ["skip", "ask"] * 4
        assert len(a.log()) == len(before[1]) + 8
        assert audit(a.store).same

    def test_cold_agents_leave_the_memory(self, kept, monkeypatch):
        a = kept(cache=1)
        names = [f"n{i}" for i in range(80)]
        for name in names:
            a.writer.submit(name, [Create(name, ["x", "y"], learner="ucb1"), Ask("1")]).result(GUARD)
        assert a.writer.stats()["agents_in_memory"] < 66
        monkeypatch.setattr(agent_cache, "UNCHECKED_AGENTS", 0)
        monkeypatch.setattr(agent_cache, "NOW_AND_THEN", 1)
        assert [a.writer.submit(name, [Ask("1")]).result(GUARD)[0]["slot"] for name in names] == [1] * 80
        assert a.writer.stats()["agents_in_memory"] < 4


class TestPlanning:
    def test_who_waits_for_a_plan_keeps_nobody_from_going_on(self, kept, monkeypatch):
        a = kept()
        a.create()
        a.ask()
        promises = []

        def hold(work, *given):
            promises.append((Future(), work, given))
            return promises[-1][0]

        monkeypatch.setattr(planning.background, "submit", hold)
        slow = a.writer.submit("slow", [Create("slow", ["x", "y"], learner="round-robin"), Ask("1")])
        more = [a.writer.submit("slow", [Ask(str(i))]) for i in range(2, 5)]
        assert [a.ask()["slot"] for _ in range(3)] == [2, 3, 4], "another agent goes on"
        assert not slow.done()
        assert a.writer.stats()["requests_waiting"] == 4
        with pytest.raises(ServiceError, match="there is no agent"):
            a.writer.agent("slow")
        keep_promises(promises)
        assert slow.result(GUARD)[1]["slot"] == 1
        assert [future.result(GUARD)[0]["slot"] for future in more] == [2, 3, 4], "in the order in which they came"

    def test_many_may_wait_for_plans(self, kept, monkeypatch):
        a = kept()
        promises = []

        def hold(work, *given):
            promises.append((Future(), work, given))
            return promises[-1][0]

        monkeypatch.setattr(planning, "MOST_PLANS_IN_MEMORY", 2)
        monkeypatch.setattr(planning.background, "submit", hold)
        names = [f"n{i}" for i in range(9)]
        made = [Create(name, ["x", "y"], learner="likelihood-ucb", seed=i) for i, name in enumerate(names)]
        waiting = [a.writer.submit(one.name, [one, Ask("1"), Ask("2")]) for one in made]
        a.create()
        assert len(promises) == 9
        keep_promises(promises)
        assert [future.result(GUARD)[2]["slot"] for future in waiting] == [2] * 9
        assert len(promises) == 9, "each was made once"
        assert audit(a.store).same

    def test_who_waits_for_kernels_keeps_nobody_from_going_on(self, kept):
        """A missing kernel is compiled for many seconds, and not by the thread that executes all requests."""
        a = kept()
        a.create()
        for i in range(LEAST_OBSERVATIONS - 1):
            a.tell(a.ask(), state=i % 2, reward=1.0)
        a.reopen()
        a.writer.planner.kernels.result(GUARD)
        kernels = a.writer.planner.kernels = Future()
        decision = a.ask()
        waiting = a.writer.submit("a", [Tell(decision["decision"], state=1, reward=1.0)])
        behind = a.writer.submit("a", [Ask("behind")])
        b = a.writer.submit("b", [Create("b", ["x", "y"], learner="ucb1"), Ask("1")]).result(GUARD)[1]
        assert a.writer.submit("b", [Tell(b["decision"], state=1, reward=1.0)]).result(GUARD)[0]["used"]
        assert not waiting.done()
        assert not behind.done()
        kernels.set_result(None)
        assert waiting.result(GUARD)[0]["used"]
        assert behind.result(GUARD)[0]["slot"] == LEAST_OBSERVATIONS + 1

    def test_agents_that_differ_in_their_task_only_have_plans_of_their_own(self, kept):
        a = kept()
        tasks = [{}, {"plays": 2}, {"reward_range": (0.0, 5.0)}, {"reward_law": "fixed"}, {"horizon": 9}]
        for i, task in enumerate(tasks):
            made = Create(f"n{i}", ["x", "y", "z"], learner="ucb1", seed=1, **task)
            _, decision = a.writer.submit(made.name, [made, Ask("1")]).result(GUARD)
            assert len(decision["arms"]) == made.plays
        found = audit(a.store)
        assert found.same, found.sentence
        assert found.plans == len(tasks)

    def test_the_old_plan_goes_on_until_the_new_one_is_there(self, kept, monkeypatch):
        a = kept()
        a.create(learner="likelihood-ucb")
        a.ask()
        promises = []

        def hold(work, *given):
            promises.append((Future(), work, given))
            return promises[-1][0]

        monkeypatch.setattr(planning.background, "submit", hold)
        plans = set()
        for i in range(30):
            decision = a.ask()
            plans.add(decision["plan"])
            a.tell(decision, state=i % 2, reward=1.0)
        assert plans == {1}
        assert len(promises) == 1
        slots = a.read()["slots"]
        keep_promises(promises)
        assert a.ask()["plan"] == 2
        plan = [event for event in a.log() if event["kind"] == "plan"][-1]
        assert plan["slot"] == slots + 1
        assert audit(a.store).same

    def test_decisions_that_wait_for_plans(self, quick, at_once, monkeypatch):
        """So that a run can be repeated exactly, however long plans take."""
        monkeypatch.setenv(WAIT_FOR_PLANS_VARIABLE, "1")
        a = Kept(quick / "patient.db")
        a.create(learner="likelihood-ucb")
        promises = []

        def hold(work, *given):
            promises.append((Future(), work, given))
            return promises[-1][0]

        a.tell(a.ask(), state=0, reward=1.0)
        monkeypatch.setattr(planning.background, "submit", hold)
        for i in range(30):
            waiting = a.writer.submit("a", [Ask(f"r{i}")])
            a.read()  # Whoever looks comes after those who asked before.
            if not waiting.done():
                break
            a.tell(waiting.result()[0], state=i % 2, reward=1.0)
        assert not waiting.done()
        assert a.read()["planning"]
        keep_promises(promises)
        assert waiting.result(GUARD)[0]["plan"] == a.read()["plan"] > 1
        a.close()

    def test_a_worker_that_dies_is_replaced(self, kept, monkeypatch):
        a = kept()
        a.create()
        calls = []

        def dying(work, *given):
            calls.append(work)
            if len(calls) > 2:
                return plan_at_once(work, *given)
            promise = Future()
            promise.set_exception(BrokenExecutor("killed"))
            return promise

        monkeypatch.setattr(planning.background, "submit", dying)
        assert a.ask()["slot"] == 1
        assert len(calls) == 3

    def test_a_learner_that_fails_leaves_the_old_plan(self, kept, monkeypatch):
        a = kept()
        a.create(learner="likelihood-ucb")
        a.tell(a.ask(), state=0, reward=1.0)
        calls = []

        def failing(*_):
            calls.append(1)
            promise = Future()
            promise.set_exception(RuntimeError("no idea"))
            return promise

        monkeypatch.setattr(planning.background, "submit", failing)
        plans = set()
        for i in range(30):
            decision = a.ask()
            plans.add(decision["plan"])
            a.tell(decision, state=i % 2, reward=1.0)
        assert len(plans) <= 2
        assert len(calls) == 1, "and it is not asked again at once"
        assert a.writer.stats()["plans_failed_total"] == 1

    def test_a_learner_that_fails_at_first_is_one_sentence(self, kept, monkeypatch):
        a = kept()
        a.create()

        def failing(*_):
            promise = Future()
            promise.set_exception(RuntimeError("no idea"))
            return promise

        monkeypatch.setattr(planning.background, "submit", failing)
        with pytest.raises(ServiceError, match="its learner failed: RuntimeError") as caught:
            a.ask()
        assert caught.value.status == 503
        monkeypatch.setattr(planning.background, "submit", plan_at_once)
        assert a.ask()["slot"] == 1

    def test_workers_that_always_die_are_one_sentence(self, kept, monkeypatch):
        a = kept()
        a.create()

        def dead(*_):
            promise = Future()
            promise.set_exception(BrokenExecutor("killed"))
            return promise

        monkeypatch.setattr(planning.background, "submit", dead)
        with pytest.raises(ServiceError, match="workers") as caught:
            a.ask()
        assert caught.value.status == 503
        monkeypatch.setattr(planning.background, "submit", plan_at_once)
        assert a.ask()["slot"] == 1

    def test_real_workers(self, tmp_path):
        a = Kept(tmp_path / "s.db")
        a.create(learner="likelihood-ucb")
        try:
            assert a.ask()["plan"] == 1
        finally:
            a.close()
            background.close()


def change_snapshots(a, change):
    with closing(sqlite3.connect(a.where)) as connection:
        connection.execute(f"UPDATE snapshots SET {change}")
        connection.commit()


def poison(a, version):
    """Give an agent a snapshot that holds slots which have passed by its clock and are not in its log."""

    def poisoned(agent):
        planner = agent.core.planner
        other = ServiceAgent.from_dict(agent.number, json.loads(json.dumps(agent.to_dict())), planner)
        other.advance_to(a.time)
        other.pending.clear()
        other.seq = agent.seq
        return other.to_dict()

    snapshot = snapshot_of(a.writer.read("a", poisoned))
    with a.store.writing() as session:
        session.put_snapshot(1, snapshot.seq, version, snapshot.content)
        session.update_agents(
            [{"number": 1, "seq": snapshot.seq, "slots": 200, "ended": None, "learner": "ucb1", "arms": 2}]
        )


def keep_promises(promises):
    for promise, work, given in promises:
        promise.set_result(background.with_warnings(work, *given))


def freeze(folder=FROZEN):
    """Write the frozen store; to be done once for each release that changes its form."""
    background.submit = plan_at_once
    # By nobody's processor, so that every machine follows the plans as they are stored.
    agent_core.origin = lambda: {"release": "0.1.0", "processor": "any"}
    where = Path("frozen-store.db")
    a = Kept(where, name="frozen", snapshot_every=40)
    a.create(learner="likelihood-ucb", arms="xyz", on_change="forget", late=30)
    for i in range(40):
        decision = a.ask(f"r{i}")
        if i % 9 == 0:
            a.tell(decision, lost=True)
        elif i % 5:
            a.tell(decision, state=i // 3 % 2, reward=float(i % 2))
    a.skip(2)
    a.patch(add_arm="w")
    a.patch(retire_arm="y", learner="ucb1")
    a.tell(a.ask("r40"), state=1, reward=0.0)
    told = {"decision": "1-2", "seen": {"state": 0, "reward": 1.0}}
    a.tell(**{"decision": told["decision"], **told["seen"]})
    shown = a.read()
    expected = {
        "kinds": [event["kind"] for event in a.log()],
        "agent": {
            key: shown[key]
            for key in ("slots", "seq", "asked", "told", "lost", "reward", "learner", "plan", "digest", "late")
        },
        "request": "r17",
        "decision": a.ask("r17"),
        "told": told,
        "token": a.store.tokens.make("play"),
    }
    a.close()
    with closing(sqlite3.connect(where)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    (folder / "store.db.z").write_bytes(zlib.compress(where.read_bytes(), 9))
    (folder / "store.json").write_text(json.dumps(expected, indent=1) + "\n")
    where.unlink()


if __name__ == "__main__":
    freeze()
