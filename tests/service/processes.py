"""A service in a process that is forked from one which has loaded everything, so that it may die and begin often."""

import contextlib
import http.client
import json
import multiprocessing
import os
import signal
import socket
import time
from pathlib import Path

from tests.service.one_agent import GUARD

HERE = "tests.service.processes"
SNAPSHOTS = 23
"""Events after which a snapshot is made here, so that there are some."""


def context():
    found = multiprocessing.get_context("forkserver")
    # Pytest too: a new process loads the main module of ours.
    loaded = ("pytest", "restless_bandits.service.api.server", "tests.service.one_agent", "tests.service.compiled")
    found.set_forkserver_preload([HERE, *loaded])
    return found


def prepare(failpoint):
    """What a forked process does first."""
    from restless_bandits.service import failpoints, planning, writer
    from tests.service.one_agent import plan_at_once

    os.environ[failpoints.FAILPOINT_VARIABLE] = failpoint or ""
    failpoints.passed = failpoints.from_environment()
    writer.SNAPSHOT_EVERY = SNAPSHOTS
    planning.background.submit = plan_at_once


def run(store, port, failpoint, pipe, workers):
    """The child: serve until somebody kills it."""
    from restless_bandits._internal import background
    from restless_bandits.service.api import server

    submit = background.submit
    prepare(failpoint)
    if workers:
        background.submit = submit
        # Workers are children of a process that is to end with the tests, which Python does not provide for.
        multiprocessing.current_process()._config["daemon"] = False
        # A group of its own, so that the workers can be killed with it.
        os.setpgid(0, 0)
    server.serve(server.Settings(store=store, port=port), lambda started: pipe.send(started.token))


class Served:
    """A service that dies and comes again, always on the same port; with its workers where it has real ones."""

    def __init__(self, store, *, workers=False, port=None):
        self.store, self.workers = str(store), workers
        self.context = context()
        if port is None:
            with contextlib.closing(socket.socket()) as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
        self.port = port
        self.token = None
        self.process = None
        self.starts = 0

    def start(self, failpoint=None):
        """Whether it has begun to answer: a failpoint may kill it before."""
        mine, theirs = self.context.Pipe(duplex=False)
        self.process = self.context.Process(
            target=run, args=(self.store, self.port, failpoint, theirs, self.workers), daemon=True
        )
        self.process.start()
        self.starts += 1
        theirs.close()
        with contextlib.closing(mine):
            try:
                self.token = mine.recv() or self.token
            except EOFError:
                self.process.join(GUARD)
                return False
        if self.token is None:
            # Made by one that died before it could say so; it is kept beside the store.
            self.token = Path(f"{self.store}.token").read_text().strip()
        return True

    def start_somehow(self, failpoints=None):
        """Begin, with the next failpoint of an iterator for as long as it dies at once."""
        while not self.start(next(failpoints or iter(()), None)):
            assert self.process.exitcode == -signal.SIGKILL

    def kill(self):
        (os.killpg if self.workers else os.kill)(self.process.pid, signal.SIGKILL)
        self.process.join(GUARD)

    def stop(self):
        if self.process is not None and self.process.is_alive():
            self.process.terminate()
            self.process.join(GUARD)

    def died(self):
        self.process.join(GUARD)
        assert self.process.exitcode == -signal.SIGKILL, self.process.exitcode


class Visitor:
    """A client that sends a message until it is answered, whatever happens to the service meanwhile."""

    def __init__(self, ports, token, gone=None):
        self.ports, self.token = list(ports), token
        self.gone = gone or (lambda: time.sleep(0.02))
        """What to do where nobody answers."""
        self.connection = None
        self.refused = 0

    def send(self, method, path, body=None):
        """The status and the answer."""
        deadline = time.monotonic() + GUARD
        while time.monotonic() < deadline:
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.ports[0], timeout=20)
                text = None if body is None else json.dumps(body)
                self.connection.request(method, path, text, {"Authorization": f"Bearer {self.token}"})
                with self.connection.getresponse() as response:
                    status, answer = response.status, json.loads(response.read())
            except (OSError, http.client.HTTPException):
                self.close()
                self.ports.append(self.ports.pop(0))
                self.gone()
                continue
            if status == 503:
                self.refused += 1
                time.sleep(0.05)
                continue
            return status, answer
        raise AssertionError(f"nobody answered {method} {path}")

    def ok(self, method, path, body=None):
        status, answer = self.send(method, path, body)
        assert status < 300, (status, answer, path, body)
        return answer

    def log(self, name):
        """All events, without their times."""
        events, after = [], 0
        while page := self.ok("GET", f"/agents/{name}/events?after={after}")["events"]:
            events += page
            after = page[-1]["seq"]
        return [{key: value for key, value in event.items() if key not in ("at", "processor")} for event in events]

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
