"""Ctrl-C and SIGTERM: what was accepted is finished and answered, streams end, the process is gone in five seconds."""

import contextlib
import http.client
import itertools
import json
import signal
import socket
import threading
import time

import restless_bandits as rb
from restless_bandits.service import planning
from tests.service.clients import Process

WITHIN = 5.0
"""Seconds from the signal to the end: the contract."""


def read_for_ever(server, name, opened):
    """Read a stream until it ends; returns what came."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request("GET", f"/agents/{name}/stream?after=0", headers={"Authorization": f"Bearer {server.token}"})
        with connection.getresponse() as response:
            first = response.read(1)
            opened.release()
            return first + response.read()


def play_for_ever(server, number, acknowledged, opened):
    """Ask and tell until the service is gone."""
    headers = {"Authorization": f"Bearer {server.token}"}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
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
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
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
            assert opened.acquire(timeout=20)
        with half_a_request(server) as half, contextlib.closing(socket.create_connection(("127.0.0.1", server.port))):
            time.sleep(0.2)
            begun = time.monotonic()
            server.process.terminate()
            code, err = server.end(timeout=WITHIN)
            assert time.monotonic() - begun < WITHIN
            assert half.recv(12) == b"HTTP/1.1 400"
        assert (code, err) == (0, "")
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive()
    assert len(streams) == 3
    assert all(text.startswith(b"retry:") and b"event: create" in text for text in streams)
    with Process(store, env={"NUMBA_CACHE_DIR": str(tmp_path)}) as again:
        assert again.token is None, "it is shown once"
        with rb.Client(again.url, server.token) as client:
            log = {event["request"]: event["decision"] for event in client.agent("a").events() if "request" in event}
            assert len(acknowledged) >= 12
            assert log | dict(acknowledged) == log, "everything that was answered is there"
            client.create("b", ["x", "y"])
        # A first plan whose kernels are still to be compiled takes longer than a stop may.
        told = []
        waiting = threading.Thread(target=ask_once, args=(again.port, server.token, told), daemon=True)
        waiting.start()
        time.sleep(0.3)
        again.process.send_signal(signal.SIGINT)
        code, err = again.end(timeout=WITHIN)
        waiting.join(5)
        assert (code, err, told) == (0, "", [503])


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
