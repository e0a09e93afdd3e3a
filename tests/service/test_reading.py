"""Readers wait for estimates and for the writer, and take no turn from anyone else."""

import asyncio
import threading
from concurrent.futures import BrokenExecutor, Future

import pytest

from restless_bandits.service import worker_pools, writer
from restless_bandits.service.api import agent_reader
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.quotas import Quotas
from tests.service.clients import GUARD, Inside, call

MOST = 2
AGENTS = [f"a{n}" for n in range(MOST + 1)]


class Workers:
    """Worker processes that begin what they are given and end it when they are told to."""

    def __init__(self):
        self.given, self.begun = [], threading.Semaphore(0)

    def submit(self, work, *given):
        computed = Future()
        computed.set_running_or_notify_cancel()
        self.given.append(computed)
        self.begun.release()
        return computed


@pytest.fixture
def workers(monkeypatch):
    made = Workers()
    monkeypatch.setattr(worker_pools.ReaderPool, "submit", lambda _, *given: made.submit(*given))
    return made


@pytest.fixture
def service(tmp_path):
    inside = Inside(tmp_path, Quotas(estimates=MOST))
    for name in AGENTS:
        assert inside("POST", "/agents", {"name": name, "arms": ["x", "y"], "learner": "round-robin"}).status == 201
    yield inside
    inside.app.stop()
    inside.close()


def begin(service, path, role="read"):
    """A request that is being answered."""
    return asyncio.run_coroutine_threadsafe(call(service.app, "GET", path, token=service.tokens[role]), service.loop)


def test_estimates_that_do_not_end_hold_up_nobody_else(service, workers):
    waiting = [begin(service, f"/agents/{name}/estimate") for name in AGENTS[:MOST] for _ in range(20)]
    for _ in range(MOST):
        assert workers.begun.acquire(timeout=GUARD)
    new = service.store.tokens.make("read")  # nobody has asked for it yet, so it is looked up
    assert service.run(call(service.app, "GET", "/agents", token=new), 20).status == 200
    assert service("GET", "/health", role=None).status == 200
    assert service("GET", "/agents/a0", role="read").status == 200
    assert service("POST", "/agents/a2/ask", {"request": "1"}, role="play").status == 200
    for view in ("estimate", "belief"):
        refused = service("GET", f"/agents/a2/{view}", role="read")
        assert (refused.status, refused.headers["retry-after"]) == (429, "5")
        assert str(MOST) in refused.json()["error"]
    assert len(workers.given) == MOST, "requests for the same estimate share it"
    for computed in workers.given:
        computed.set_result(b'{"slots":0}')
    assert {one.result(GUARD).body for one in waiting} == {b'{"slots":0}'}
    after = begin(service, "/agents/a2/estimate")
    assert workers.begun.acquire(timeout=GUARD)
    workers.given[-1].set_result(b"{}")
    assert after.result(GUARD).status == 200


def test_an_agent_that_went_on_is_estimated_anew(service, workers):
    first = begin(service, "/agents/a0/estimate")
    assert workers.begun.acquire(timeout=GUARD)
    assert service("POST", "/agents/a0/ask", {"request": "1"}).status == 200
    second = begin(service, "/agents/a0/estimate")
    assert workers.begun.acquire(timeout=GUARD)
    for number, computed in enumerate(workers.given):
        computed.set_result(b"%d" % number)
    assert [first.result(GUARD).body, second.result(GUARD).body] == [b"0", b"1"]


def test_an_estimate_that_nobody_waits_for_still_takes_a_worker(service, workers, monkeypatch, caplog):
    monkeypatch.setattr(worker_pools, "RESULT_TIMEOUT_SECONDS", 0.01)
    for name in AGENTS[:MOST]:
        late = service("GET", f"/agents/{name}/estimate")
        assert workers.begun.acquire(timeout=GUARD)
        assert late.status == 503
        assert "retry-after" in late.headers
    assert service("GET", "/agents/a2/estimate").status == 429
    for computed in workers.given:
        computed.set_result(b"{}")
    monkeypatch.setattr(worker_pools, "RESULT_TIMEOUT_SECONDS", 20.0)
    after = begin(service, "/agents/a2/estimate")
    assert workers.begun.acquire(timeout=GUARD)
    workers.given[-1].set_exception(BrokenExecutor("killed"))
    assert (after.result(GUARD).status, caplog.records) == (503, [])


def test_a_writer_that_is_busy_is_told_in_one_sentence(service, monkeypatch, caplog):
    for module in (agent_reader, writer):
        monkeypatch.setattr(module, "LOOK_TIMEOUT_SECONDS", 0.01)
    free = threading.Event()
    held = service.writer.look_later("a0", lambda _: free.wait(GUARD))
    for path in ("/agents/a0", "/agents/a0/estimate", "/agents/a0/stream", "/page/agent?name=a0"):
        reply = service("GET", path)
        assert reply.status == 503
        assert "busy" in reply.json()["error"]
        assert "retry-after" in reply.headers
    with pytest.raises(ServiceError, match="busy"):
        service.writer.read("a1", lambda agent_state: agent_state.seq)
    free.set()
    assert held.result(GUARD)
    assert not caplog.records


def test_a_service_that_stops_begins_no_workers(service, caplog):
    service.app.stop()
    for path in ("/agents/a0/estimate", "/page/thoughts?name=a0", "/page/overview"):
        reply = service("GET", path)
        assert reply.status == 503
        assert "stopping" in reply.json()["error"]
    assert not caplog.records
