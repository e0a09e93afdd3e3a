"""Every route: what it takes, what it answers, and how it refuses."""

import asyncio
import json
import threading

import pytest

from restless_bandits.service.quotas import Quotas
from tests.service.clients import GUARD, HOST, Inside

AGENT = {"name": "a", "arms": ["x", "y", {"name": "z", "n_states": 3}], "learner": "round-robin", "seed": 5}


@pytest.fixture
def service(tmp_path):
    inside = Inside(tmp_path)
    yield inside
    inside.close()


@pytest.fixture
def agent(service):
    reply = service("POST", "/agents", AGENT)
    assert reply.status == 201, reply.body
    return service


def ask(service, request, name="a"):
    reply = service("POST", f"/agents/{name}/ask", {"request": request}, role="play")
    assert reply.status == 200, reply.body
    return reply.json()


def tell(service, **fields):
    return service("POST", "/agents/a/tell", fields, role="play")


def test_a_decision_and_its_answer(agent):
    first = ask(agent, "1")
    assert set(first) >= {"decision", "slot", "arms", "numbers", "plan"}
    assert isinstance(first["decision"], str)
    assert (first["slot"], first["arms"], first["numbers"]) == (1, ["x"], [0])
    assert ask(agent, "1") == first
    told = tell(agent, decision=first["decision"], state=1, reward=0.0)
    assert told.status == 200
    assert tell(agent, decision=first["decision"], state=1, reward=0.0).json() == told.json()
    other = tell(agent, decision=first["decision"], state=0, reward=0.0)
    assert other.status == 409
    assert set(other.json()) == {"error", "field"}
    second = ask(agent, "2")
    assert (second["slot"], second["arms"]) == (2, ["y"])
    assert tell(agent, decision=second["decision"], lost=True).status == 200
    third = ask(agent, "3")
    assert third["slot"] == 3
    assert tell(agent, decision=third["decision"], arm="x", state=0, reward=1.0).status == 200
    events = agent("GET", "/agents/a/events", role="read").json()
    kinds = [event["kind"] for event in events["events"] if event["kind"] != "plan"]
    assert kinds == ["create", "ask", "tell", "ask", "lost", "ask", "tell"]
    assert [event["seq"] for event in events["events"]] == list(range(1, events["next"] + 1))
    assert {event["decision"] for event in events["events"] if event["kind"] == "ask"} == {
        first["decision"],
        second["decision"],
        third["decision"],
    }


def test_events_come_in_pages(agent):
    for number in range(7):
        ask(agent, str(number))
    whole = agent("GET", "/agents/a/events").json()["events"]
    after, found = 0, []
    while True:
        page = agent("GET", f"/agents/a/events?after={after}&limit=3").json()
        if not page["events"]:
            assert page["next"] == after
            break
        assert len(page["events"]) <= 3
        found += page["events"]
        after = page["next"]
    assert found == whole
    digits = ("after=%C2%B2", "after=%D9%A3", "limit=%EF%BC%91", "after=1_0", "after=%201", "after=%2B1", "after=1.0")
    for wrong in ("after=-1", "after=x", "limit=0", "limit=100000", "after=1e400", "after=", *digits):
        reply = agent("GET", f"/agents/a/events?{wrong}")
        assert reply.status == 422
        assert reply.json()["field"] == wrong.partition("=")[0]


def test_a_batch_is_all_or_nothing(agent):
    steps = [{"ask": {"request": "p"}}, {"skip": {"slots": 2}}, {"ask": {"request": "q"}}]
    answers = agent("POST", "/agents/a/batch", {"operations": steps}, role="play").json()["answers"]
    assert [answers[0]["slot"], answers[2]["slot"]] == [1, 3 + answers[0]["slot"] - 1]
    before = agent("GET", "/agents/a/events").json()
    bad = [{"ask": {"request": "r"}}, {"tell": {"decision": answers[0]["decision"], "state": 9, "reward": 0.0}}]
    reply = agent("POST", "/agents/a/batch", {"operations": bad}, role="play")
    assert reply.status == 422
    assert agent("GET", "/agents/a/events").json() == before


def test_changes_of_an_agent(agent):
    changed = agent("PATCH", "/agents/a", {"add_arm": "w", "retire_arm": "x", "late": 7, "on_change": "ignore"})
    assert changed.status == 200, changed.body
    seen = agent("GET", "/agents/a").json()
    assert {arm["name"]: arm["in_service"] for arm in seen["task"]["arms"]} == {
        "x": False,
        "y": True,
        "z": True,
        "w": True,
    }
    assert (seen["late"], seen["on_change"]) == (7, "ignore")
    assert agent("PATCH", "/agents/a", {"restore_arm": "x", "learner": "ucb1"}).status == 200
    assert agent("GET", "/agents/a").json()["learner"] == "ucb1"
    for wrong, field in (({"retire_arm": "nobody"}, "retire_arm"), ({}, None), ({"seed": 4}, "seed")):
        reply = agent("PATCH", "/agents/a", wrong)
        assert (reply.status, reply.json()["field"]) == (422, field)


def test_what_is_known(agent):
    for number in range(30):
        decision = ask(agent, str(number))
        tell(agent, decision=decision["decision"], state=number // 3 % 2, reward=float(number % 2))
    assert agent("GET", "/agents/a/estimate", role="read").status == 200
    belief = agent("GET", "/agents/a/belief", role="read")
    assert belief.status == 200
    json.loads(belief.body, parse_constant=pytest.fail)
    assert [one["name"] for one in agent("GET", "/agents", role="read").json()["agents"]] == ["a"]


def test_deleted_and_made_again(agent):
    ask(agent, "1")
    assert agent("DELETE", "/agents/a").status == 200
    for method, path in (("GET", "/agents/a"), ("DELETE", "/agents/a"), ("GET", "/agents/a/events")):
        reply = agent(method, path)
        assert reply.status == 404
        assert "'a'" in reply.json()["error"]
    assert agent("POST", "/agents", AGENT).status == 201
    assert ask(agent, "1")["slot"] == 1


def test_the_same_agent_twice(agent):
    assert agent("POST", "/agents", AGENT).status in (200, 201)
    reply = agent("POST", "/agents", AGENT | {"arms": ["p", "q"]})
    assert reply.status == 409


def test_several_plays(service):
    assert service("POST", "/agents", AGENT | {"plays": 2}).status == 201
    decision = ask(service, "1")
    assert len(decision["arms"]) == len(decision["numbers"]) == 2
    assert tell(service, decision=decision["decision"], state=0, reward=1.0).status == 422
    assert tell(service, decision=decision["decision"], state=[0, 1], reward=[1.0, 0.0]).status == 200


def test_health_and_metrics(agent):
    ask(agent, "1")
    health = agent("GET", "/health", role=None)
    assert (health.status, health.json()["status"]) == (200, "ok")
    text = agent("GET", "/metrics", role="read").body.decode()
    assert 'restless_requests_total{route="/agents/{name}/ask",status="200"} 1.0' in text
    assert 'restless_request_seconds_count{route="/agents/{name}/ask"} 1.0' in text
    assert "restless_keeper_commits_total" in text


def test_requests_are_counted_by_the_table_of_routes(agent):
    """Whatever is asked for, with or without a token, the number of lines stays what the routes give."""

    def lines():
        return [line for line in agent("GET", "/metrics").body.decode().splitlines() if "route=" in line]

    strange = ["/agents/x/{}", "/{}", "/agents/{}/ask/x", "/page/{}", "/agents/a{}", "/assets/{}", "/agents/{}/stream"]
    for path in strange:
        agent("GET", path.format("x"), role=None, host=b"evil.example")
        agent("GET", path.format("x"), role=None)
        agent("GET", path.format("x"))
    lines()
    before = lines()
    for n in range(20):
        for path in strange:
            assert agent("GET", path.format(n), role=None).status in (401, 404)
            assert agent("GET", path.format(n)).status in (404, 422)
    found = lines()
    assert len(found) == len(before)
    labels = {line.partition('route="')[2].partition('"')[0] for line in found}
    assert labels <= {route.path for route in agent.app.app.routes} | {"other"}
    assert {"other", "/agents/{name}", "/agents/{name}/stream"} <= labels


def test_there_are_no_more_streams_than_the_limit(tmp_path):
    """All are asked for before the first one begins to be sent."""
    most = 3
    inside = Inside(tmp_path, Quotas(streams=most))
    try:
        assert inside("POST", "/agents", AGENT).status == 201
        begun, free = threading.Semaphore(0), threading.Event()
        held = inside.writer.look_later("a", lambda _: (begun.release(), free.wait(GUARD)))
        assert begun.acquire(timeout=GUARD)

        async def statuses():
            readers = [Reader(inside, path, 1) for path in 4 * ["/agents/a/stream?after=0", "/agents/a/stream"]]
            tasks = [asyncio.ensure_future(reader.read()) for reader in readers]
            while sum(reader.status == 429 for reader in readers) < len(readers) - most:
                await asyncio.sleep(0.01)
            free.set()
            while sum(reader.status == 200 for reader in readers) < most:
                await asyncio.sleep(0.01)
            for reader in readers:
                reader.on_finalized()
            await asyncio.gather(*tasks)
            return [reader.status for reader in readers]

        found = inside.run(statuses())
        assert sorted(found) == most * [200] + (8 - most) * [429]
        assert held.result(GUARD)
        for _ in range(2 * most):  # what is refused for another reason gives its place back
            assert inside("GET", "/agents/nobody/stream").status == 404
            assert inside("GET", "/agents/a/stream?after=x").status == 422
    finally:
        inside.close()


def test_a_keeper_that_fails_is_told_in_one_sentence(agent, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(agent.writer, "submit", fail)
    monkeypatch.setattr(agent.writer, "agents", fail)
    for reply in (agent("POST", "/agents/a/ask", {"request": "1"}), agent("GET", "/agents")):
        assert reply.status == 503
        assert "retry-after" in reply.headers
        assert "secret" not in reply.body.decode()
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


class Reader:
    """A reader of a stream, which goes away after so many events."""

    def __init__(self, service, path, events, headers=()):
        self.text, self.status, self._wanted = b"", None, events
        self._gone = asyncio.Event()
        self._service, self._path, self._headers = service, path, headers

    async def read(self):
        path, _, query = self._path.partition("?")
        token = self._service.tokens["read"]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [HOST, (b"authorization", f"Bearer {token}".encode()), *self._headers],
        }

        async def receive():
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            self.status = message.get("status", self.status)
            self.text += message.get("body", b"")
            if self.text.count(b"data: ") >= self._wanted:
                self.on_finalized()

        await self._service.app(scope, receive, send)

    def on_finalized(self):
        self._gone.set()

    def events(self):
        return [json.loads(line[6:]) for line in self.text.decode().splitlines() if line.startswith("data: ")]


def test_a_stream_goes_on_where_it_was(agent, caplog):
    ask(agent, "1")
    known = agent("GET", "/agents/a/events").json()["events"]
    reader = Reader(agent, "/agents/a/stream?after=0", len(known))
    agent.run(reader.read())
    assert reader.events() == known
    assert f"id: {known[-1]['seq']}\nevent: {known[-1]['kind']}\n" in reader.text.decode()
    later = Reader(agent, "/agents/a/stream", 2, [(b"last-event-id", b"1")])
    agent.run(later.read())
    assert later.events()[:2] == known[1:3]

    async def new():
        """What comes after somebody began to listen."""
        reader = Reader(agent, "/agents/a/stream", 1)
        task = asyncio.ensure_future(reader.read())
        while b"events" not in reader.text:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(lambda: agent.writer.submit("a", [Ask("2")]).result(GUARD))
        await task
        return reader.events()

    from restless_bandits.service.operations import Ask

    assert agent.run(new())[0]["seq"] == known[-1]["seq"] + 1
    for path, headers, status in (
        ("/agents/b/stream", (), 404),
        ("/agents/a/stream", [(b"last-event-id", b"x")], 422),
        ("/agents/a/stream?after=-1", (), 422),
    ):
        assert agent("GET", path, headers=headers).status == status
