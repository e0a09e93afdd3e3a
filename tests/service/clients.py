"""Ways to a service for tests: straight into the application, and a process of its own."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote

from restless_bandits.service.api.app import build
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.writer import CommandProcessor
from tests.internal.test_compiling import LINE as COMPILING
from tests.service.one_agent import GUARD

HOST = (b"host", b"127.0.0.1:8787")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.decode(): v.decode() for k, v in headers}, body

    def json(self):
        return json.loads(self.body)


async def call(app, method, path, body=b"", token=None, headers=(), chunks=None, host=HOST[1], scheme="http"):
    """One request to an ASGI application, without a network."""
    raw, _, query = path.partition("?")
    path = unquote(raw)
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    given = [(b"host", host), *headers]
    if token is not None:
        given.append((b"authorization", f"Bearer {token}".encode()))
    if chunks is None:
        chunks = [body]
        given.append((b"content-length", str(len(body)).encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": scheme,
        "path": path,
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": given,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8787),
    }
    waiting = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    waiting[-1]["more_body"] = False
    waiting.reverse()
    found = {"status": 0, "headers": [], "body": b""}

    async def receive():
        if waiting:
            return waiting.pop()
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            found.update(status=message["status"], headers=message["headers"])
        else:
            found["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return Reply(found["status"], found["headers"], found["body"])


class Inside:
    """A service in this process, with an event loop in a thread, spoken to without a network."""

    def __init__(self, folder, quotas=None, **more):
        quotas = quotas or Quotas()
        self.store = open_store(str(Path(folder) / "inside.db"))
        self.writer = CommandProcessor(self.store, quotas=quotas)
        self.writer.start()
        self.tokens = {role: self.store.tokens.make(role) for role in ("read", "play", "admin")}
        self.app = build(self.writer, self.store.tokens, quotas=quotas, **more)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, coroutine, timeout=GUARD):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def __call__(self, method, path, body=b"", role="admin", **more):
        return self.run(call(self.app, method, path, body, self.tokens.get(role), **more))

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(GUARD)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.writer.stop(5)
        self.store.close()


class Process:
    """``restless serve`` as a process of its own."""

    def __init__(self, store, *words, port=0, env=None):
        command = [sys.executable, "-m", "restless_bandits", "serve", "--store", str(store), "--port", str(port)]
        self.process = subprocess.Popen(
            [*command, "--json", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate(timeout=GUARD)[1])
        self.started = json.loads(line)
        self.url = self.started["url"]
        self.port = int(self.url.rpartition(":")[2])
        self.token = self.started["token"]

    def kill(self):
        self.process.kill()
        self.end()

    def end(self, timeout=GUARD):
        """What it leaves: exit code and stderr, but for what it says where kernels are still to be compiled."""
        _, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, err.replace(COMPILING, "")

    def stop(self, timeout=GUARD):
        self.process.terminate()
        return self.end(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):
            if self.process.poll() is None:
                self.kill()
