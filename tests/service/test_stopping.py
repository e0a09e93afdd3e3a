"""Ctrl-C and SIGTERM: what was accepted is finished and answered, streams end, the process is gone in five seconds.

How long a process takes depends on the machine. What could delay a stop without end never ends here, and the waits of a
stop are bounded by constants that are added up.
"""

import contextlib
import http.client
import itertools
import json
import os
import signal
import socket
import threading
import time

import pytest

import restless_bandits as rb
from restless_bandits._internal import workers
from restless_bandits.service import planning
from restless_bandits.service.api import server as servers
from restless_bandits.service.operations import Ask, ServiceError
from restless_bandits.service.storage import store as storage
from restless_bandits.service.storage.session import Session
from tests.service.clients import GUARD, Process

WITHIN = 5.0
"""Seconds of waiting from the signal to the end, at most: the contract."""


PLUG_IN = """
import dataclasses
import os
import pathlib
import time

import restless_bandits as rb

@dataclasses.dataclass(frozen=True)
class Endless(rb.Learner):
    def plan(self, record, task, rng):
        pathlib.Path(os.environ["BEGUN"]).touch()
        time.sleep(600)
"""


def plug_in(folder):
    """Write a package with a learner whose plans begin and never end; returns the variables of its process."""
    description = folder / "endless-1.dist-info"
    description.mkdir()
    (description / "METADATA").write_text("Metadata-Version: 2.1\nName: endless\nVersion: 1\n")
    (description / "entry_points.txt").write_text("[restless_bandits.learners]\nendless = endless:Endless\n")
    (folder / "endless.py").write_text(PLUG_IN)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "BEGUN": str(folder / "begun")}


def read_for_ever(server, name, opened):
    """Read a stream until it ends; returns what came."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=GUARD)) as connection:
        connection.request("GET", f"/agents/{name}/stream?after=0", headers={"Authorization": f"Bearer {server.token}"})
        with connection.getresponse() as response:
            first = response.read(1)
            opened.release()
            return first + response.read()


def play_for_ever(server, number, acknowledged, opened):
    """Ask and tell until the service is gone."""
    headers = {"Authorization": f"Bearer {server.token}"}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=GUARD)) as connection:
        for count in itertools.count(1):
            try:
                connection.request("POST", "/agents/a/ask", json.dumps({"request": f"{number}.{count}"}), headers)
                with connection.getresponse() as response:
                    status, answer = response.status, json.loads(response.read())
            except (OSError, http.client.HTTPException):
                return
            if status != 200:
                assert status == 503, answer
                return
            acknowledged.append((f"{number}.{count}", answer["decision"]))
            if count == 3:
                opened.release()


def ask_once(port, token, told):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)) as connection:
        connection.request("POST", "/agents/b/ask", '{"request": "1"}', {"Authorization": f"Bearer {token}"})
        with connection.getresponse() as response:
            told.append(response.status)
            response.read()


def half_a_request(server):
    """A connection that began a request and never ends it."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(
        f"POST /agents/a/ask HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {server.token}\r\n"
        "content-length: 99\r\n\r\n{".encode()
    )
    return contextlib.closing(connection)


def test_what_was_accepted_is_answered_and_streams_end(tmp_path):
    store = tmp_path / "s.db"
    opened, acknowledged, streams = threading.Semaphore(0), [], []
    with Process(store) as server, rb.Client(server.url, server.token) as client:
        client.create("a", ["x", "y"], learner="round-robin")

        def read():
            streams.append(read_for_ever(server, "a", opened))

        threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
        for i in range(4):
            play = threading.Thread(target=play_for_ever, args=(server, i, acknowledged, opened), daemon=True)
            threads.append(play)
        for thread in threads:
            thread.start()
        for _ in threads:
            assert opened.acquire(timeout=GUARD)
        with half_a_request(server) as half, contextlib.closing(socket.create_connection(("127.0.0.1", server.port))):
            # What came before an answered request is read.
            with rb.Client(server.url, server.token) as another:
                another.agents()
            server.process.terminate()
            code, err = server.end()
            assert half.recv(12) == b"HTTP/1.1 400"
        assert (code, err) == (0, "")
        for thread in threads:
            thread.join(GUARD)
            assert not thread.is_alive()
    assert len(streams) == 3
    assert all(text.startswith(b"retry:") and b"event: create" in text for text in streams)
    with Process(store, env=plug_in(tmp_path) | {"NUMBA_CACHE_DIR": str(tmp_path)}) as again:
        assert again.token is None, "it is shown once"
        with rb.Client(again.url, server.token) as client:
            log = {event["request"]: event["decision"] for event in client.agent("a").events() if "request" in event}
            assert len(acknowledged) >= 12
            assert log | dict(acknowledged) == log, "everything that was answered is there"
            client.create("b", ["x", "y"], learner="endless")
        # A worker has begun a plan; another may compile, in an empty folder, the kernels of the service.
        told = []
        waiting = threading.Thread(target=ask_once, args=(again.port, server.token, told), daemon=True)
        waiting.start()
        while not (tmp_path / "begun").exists():
            assert waiting.is_alive(), told
            time.sleep(0.01)
        again.process.send_signal(signal.SIGINT)
        code, err = again.end()
        waiting.join(GUARD)
        assert (code, err, told) == (0, "", [503])


def test_the_waits_of_a_stop_are_within_its_limit():
    # The writer stops beside the requests; the pools of plans and of the dashboard end before and after them.
    pools = 3
    assert servers.WRITING < servers.ANSWERING
    waits = servers.ANSWERING, pools * workers.END_TIMEOUT_SECONDS, storage.CLOSE_TIMEOUT_SECONDS
    assert sum(waits) < WITHIN


def test_a_writer_that_does_not_come_back_leaves_no_request_without_an_answer(kept, monkeypatch):
    a = kept()
    a.create()
    stuck, over = threading.Event(), threading.Event()

    def wait(*_):
        stuck.set()
        over.wait(GUARD)

    monkeypatch.setattr(Session, "add_events", wait)
    executing = a.writer.submit("a", [Ask("1")])
    assert stuck.wait(GUARD)
    queued = a.writer.submit("b", [Ask("1")])
    a.writer.stop(0.1)
    a.store.close()
    for future in (executing, queued):
        with pytest.raises(ServiceError, match="stopping") as refused:
            future.result(0)
        assert refused.value.status == 503
    over.set()


def test_a_planner_that_stopped_starts_no_worker(monkeypatch):
    def submit(*_):
        raise AssertionError("a worker that starts after the end of the workers would hold up the exit")

    monkeypatch.setattr(planning.background, "submit", submit)
    planner = planning.Planner(lambda digest: None)
    planner.stop()
    assert planner.later(()).cancelled()
    monkeypatch.setattr(planning, "is_kept", lambda kernel: False)
    monkeypatch.setattr(planning, "warm_up", submit)
    planner.warm_up()
