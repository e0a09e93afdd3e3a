"""Kills at random moments under eight clients, a full disk, a disk that refuses: nothing acknowledged is missing.

``RESTLESS_KILLS`` says how often; the soak asks for more than the tests do.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from restless_bandits.service.audit import audit
from restless_bandits.service.operations import Ask, Create, ServiceError, Tell
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.writer import CommandProcessor
from tests.service.one_agent import GUARD, Kept
from tests.service.processes import Served, Visitor, context, prepare

KILLS = int(os.environ.get("RESTLESS_KILLS", "10"))
CLIENTS = 8
PLANNING = 4.0
"""Seconds in which workers begin and make some plans."""
LATE, SLOT = 5, 0.02
"""Of an agent whose answers are often too late: slots, and seconds of each."""
PAUSE = 3 * LATE * SLOT
"""Seconds in which all leave that agent alone, time and again: longer than its window."""
BY_ASKING = {"one": {}, "two": {}}
AGENTS = {**BY_ASKING, "clocked": {"clock": f"{SLOT * 1000:.0f}ms", "late": LATE}}
"""Agents, and in what they differ."""


def seen(agent, slot, arm):
    return {"state": (slot + arm + len(agent)) // 3 % 2, "reward": float((slot * 5 + arm) % 2)}


def play_until(over, number, ports, token, acknowledged, troubles, agents=tuple(AGENTS)):
    """A client: asks, tells late or at once, pauses, and writes down what it was promised."""
    visitor = Visitor(ports, token)
    draws = random.Random(number)
    waiting = []
    count = 0
    try:
        while not over.is_set():
            count += 1
            agent = draws.choice(agents)
            if agent not in BY_ASKING and time.monotonic() // PAUSE % 2:
                continue
            request = f"{number}.{count}"
            decision = visitor.ok("POST", f"/agents/{agent}/ask", {"request": request})
            acknowledged.append((agent, "ask", decision["decision"], request))
            if agent in BY_ASKING and draws.random() < 0.1:
                visitor.ok("POST", f"/agents/{agent}/tell", {"decision": decision["decision"], "lost": True})
            waiting.append((agent, decision))
            draws.shuffle(waiting)
            while len(waiting) > draws.randrange(4):
                agent, decision = waiting.pop()
                if agent not in BY_ASKING and time.monotonic() // PAUSE % 2:
                    over.wait(PAUSE)
                told = seen(agent, decision["slot"], decision["numbers"][0])
                answer = visitor.ok("POST", f"/agents/{agent}/tell", {"decision": decision["decision"], **told})
                assert answer["used"] or agent not in BY_ASKING
                acknowledged.append((agent, "tell", decision["decision"], (told["state"], told["reward"])))
    except BaseException as error:
        troubles.append(error)
    finally:
        visitor.close()


def check_promises(logs, acknowledged):
    """Everything that was acknowledged is in the log, once, and as it was acknowledged."""
    asked, made, told = {}, set(), {}
    for agent, log in logs.items():
        assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
        for event in log:
            if event["kind"] == "ask":
                assert event.get("again", False) == ((agent, event["decision"]) in made), "a decision was made twice"
                made.add((agent, event["decision"]))
                assert (agent, event["request"]) not in asked, "a request was entered twice"
                asked[agent, event["request"]] = event["decision"]
            elif event["kind"] == "tell":
                assert (agent, event["decision"]) not in told, "an answer was entered twice"
                told[agent, event["decision"]] = (event["states"][0], event["rewards"][0])
    for agent, kind, decision, content in acknowledged:
        if kind == "ask":
            assert asked[agent, content] == decision
        else:
            assert told[agent, decision] == content


def begin(served, agents=tuple(AGENTS)):
    served.start_somehow()
    visitor = Visitor([served.port], served.token)
    for name in agents:
        made = {"name": name, "arms": ["x", "y", "z"], "learner": "likelihood-ucb", "seed": 3, "on_change": "forget"}
        visitor.ok("POST", "/agents", made | AGENTS[name])
    visitor.close()


def check_under_kills(services, kills, agents=tuple(AGENTS), *, mortal=None, pause=0.15):
    """Eight clients play on services of one store, one of which is killed again and again, or only ``mortal`` is.

    It lives for up to ``pause`` seconds after something was done.
    """
    store = services[0].store
    begin(services[0], agents)
    for other in services[1:]:
        other.token = services[0].token
        other.start_somehow()
    over, acknowledged, troubles = threading.Event(), [], []
    noted = acknowledged, troubles
    ports = [served.port for served in services]
    clients = [
        threading.Thread(
            target=play_until,
            args=(over, number, [*ports[number % 2 :], *ports[: number % 2]], services[0].token, *noted, agents),
        )
        for number in range(CLIENTS)
    ]
    try:
        for client in clients:
            client.start()
        draws = random.Random(20)
        counts = []
        for _ in range(kills):
            before = len(acknowledged)
            # At least something is done between two deaths, and the moment is nobody's choice.
            deadline = time.monotonic() + GUARD
            while len(acknowledged) < before + 10 and time.monotonic() < deadline and not troubles:
                time.sleep(0.01)
            time.sleep(draws.random() * pause)
            victim = mortal or draws.choice(services)
            victim.kill()
            counts.append(len(acknowledged) - before)
            victim.start_somehow()
    finally:
        over.set()
        for client in clients:
            client.join(GUARD)
    assert not troubles, troubles[0]
    assert min(counts) >= 10
    logs = []
    for served in services:
        visitor = Visitor([served.port], served.token)
        logs.append({name: visitor.log(name) for name in agents})
        assert visitor.ok("GET", "/health")["status"] == "ok"
        visitor.close()
    assert all(one == logs[0] for one in logs)
    for served in services:
        served.stop()
    check_promises(logs[0], acknowledged)
    opened = open_store(store)
    found = audit(opened)
    opened.close()
    assert found.same, found.sentence
    assert found.snapshots
    starts = sum(served.starts for served in services)
    print(f"{kills} kills, {starts} starts, {len(acknowledged)} acknowledged; {found.sentence}")
    return logs[0]


@pytest.mark.slow
def test_kills_at_random_moments_under_eight_clients(tmp_path):
    log = check_under_kills([Served(tmp_path / "s.db")], KILLS)
    assert any(event.get("unused") for event in log["clocked"]), "some answers came too late"


@pytest.mark.slow
def test_kills_of_the_service_with_its_workers(tmp_path):
    check_under_kills([Served(tmp_path / "s.db", workers=True)], max(2, KILLS // 3), ("one", "clocked"), pause=PLANNING)


@pytest.mark.slow
def test_kills_of_either_of_two_services_on_one_file(tmp_path):
    check_under_kills([Served(tmp_path / "s.db"), Served(tmp_path / "s.db")], max(3, KILLS // 2))


def play_until_full(path, fill, make_room, pipe):
    """A child that plays until nothing more can be written, and on when there is room again."""
    prepare(None)
    store = open_store(path)
    writer = CommandProcessor(store)
    writer.start()
    writer.submit("a", [Create("a", ["x", "y"], learner="ucb1", seed=1)]).result(GUARD)
    fill(path)
    promised, refusals = [], []
    for i in range(5000):
        try:
            decision = writer.submit("a", [Ask(f"r{i}")]).result(GUARD)[0]
            promised.append(decision["decision"])
            writer.submit("a", [Tell(decision["decision"], state=i % 2, reward=1.0)]).result(GUARD)
        except ServiceError as error:
            refusals.append((error.status, str(error), error.retry_after))
            if len(refusals) == 3:
                break
    readable = writer.agent("a")["asked"]
    make_room(path)
    promised.append(writer.submit("a", [Ask("room again")]).result(GUARD)[0]["decision"])
    writer.stop()
    pipe.send((promised, refusals, readable))


def limit_files(path):
    """Files may not grow beyond a limit: what a full disk does to whoever writes, for everybody to try."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = max(Path(name).stat().st_size for name in (path, f"{path}-wal"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200_000, resource.RLIM_INFINITY))


def limit_files_no_more(path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def leave_little_room(path):
    disk = os.statvfs(Path(path).parent)
    with Path(path).with_name("ballast").open("wb") as file:
        file.write(b"x" * max(0, disk.f_bavail * disk.f_frsize - 200_000))


def throw_off_ballast(path):
    Path(path).with_name("ballast").unlink()


def check_a_full_disk(path, fill, make_room):
    mine, theirs = context().Pipe(duplex=False)
    child = context().Process(target=play_until_full, args=(str(path), fill, make_room, theirs), daemon=True)
    child.start()
    theirs.close()
    promised, refusals, readable = mine.recv()
    mine.close()
    child.join(GUARD)
    assert len(promised) > 5
    assert len(refusals) == 3
    for status, sentence, retry_after in refusals:
        assert status == 503
        assert retry_after
        assert sentence.startswith("the store is unavailable now:")
        assert "\n" not in sentence
    again = Kept(path)
    log = again.log()
    asked = [event["decision"] for event in log if event["kind"] == "ask"]
    assert set(promised) <= set(asked)
    assert readable == len(asked) - 1
    assert len(set(asked)) == len(asked)
    found = audit(again.store)
    again.close()
    assert found.same, found.sentence


def test_files_that_may_not_grow_are_one_sentence_and_lose_nothing(tmp_path):
    check_a_full_disk(tmp_path / "s.db", limit_files, limit_files_no_more)


def test_a_full_disk_is_one_sentence_and_loses_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    made = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip("there is no permission to mount a small disk; run the tests as root")
    try:
        check_a_full_disk(disk / "s.db", leave_little_room, throw_off_ballast)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("moment", ["add_events", "update_agents", "commit"])
def test_a_commit_that_fails_is_refused_and_the_agent_is_what_it_was(kept, monkeypatch, moment):
    a = kept()
    a.create()
    first = a.ask("first")
    before = a.read(), a.log(), a.record()
    fail_once(monkeypatch, a.store, moment)
    futures = [
        a.writer.submit("a", [Tell(first["decision"], state=1, reward=1.0)]),
        a.writer.submit("a", [Ask("second")]),
    ]
    errors = [future.exception(GUARD) for future in futures]
    refused = [error for error in errors if error is not None]
    assert refused
    assert all(error.status == 503 and error.retry_after for error in refused)
    if len(refused) == 2:
        assert (a.read(), a.log(), a.record()) == before
    assert a.tell(first, state=1, reward=1.0)["used"]
    assert a.ask("second")["slot"] == 2
    assert audit(a.store).same


def fail_once(monkeypatch, store, moment):
    """Let the next statement of a kind, or the next commit, fail as a driver does."""
    import sqlite3

    from restless_bandits.service import failpoints
    from restless_bandits.service.storage.session import Session

    left = [1]

    def fail():
        if left:
            left.clear()
            raise sqlite3.OperationalError("disk I/O error")

    if moment == "commit":
        monkeypatch.setattr(failpoints, "passed", lambda name: fail() if name == "before-commit" else None)
        return
    method = getattr(Session, moment)

    def failing(self, *given):
        fail()
        return method(self, *given)

    monkeypatch.setattr(Session, moment, failing)
