"""The page without a browser: who gets in, what it is served, and what it shows."""

import asyncio
import json
import re
import time
from types import SimpleNamespace
from urllib.parse import quote, urlencode

import numpy as np
import pytest

from restless_bandits.service.api import auth
from restless_bandits.service.dashboard import analysis, page
from restless_bandits.service.dashboard.analysis import LogSummary
from restless_bandits.service.dashboard.executor import snapshot_of
from restless_bandits.service.dashboard.page import Codes, recent
from tests.service.clients import GUARD, Inside, call

ARMS = ["x", "y"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    inside = Inside(tmp_path_factory.mktemp("page"))
    made = inside("POST", "/agents", {"name": "a", "arms": ARMS, "learner": "round-robin", "seed": 1})
    assert made.status == 201
    rng = np.random.default_rng(0)
    steps = []
    for n in range(120):
        decision = inside("POST", "/agents/a/ask", {"request": str(n)}).json()
        told = {"lost": True} if n % 40 == 39 else {"state": int(rng.integers(2)), "reward": float(rng.integers(2))}
        steps.append({"tell": {"decision": decision["decision"], **told}})
    assert inside("POST", "/agents/a/batch", {"operations": steps}).status == 200
    yield inside
    inside.app.streams.stop()
    inside.close()


def get(service, path, role="read", **more):
    return service("GET", path, role=role, **more)


def entered(service, token, *headers):
    body = urlencode({"token": token}).encode()
    return service("POST", "/login", body, role=None, headers=headers)


def cookie_of(reply):
    """What a browser sends back."""
    return b"cookie", reply.headers["set-cookie"].partition(";")[0].encode()


class TestLogin:
    def test_the_page_asks_for_a_token(self, service):
        reply = get(service, "/", role=None)
        assert (reply.status, reply.headers["location"]) == (303, "/login")
        assert "<script" not in get(service, "/login", role=None).body.decode()

    def test_a_token_becomes_a_cookie(self, service):
        reply = entered(service, service.tokens["read"])
        assert reply.status == 200
        cookie = reply.headers["set-cookie"].lower()
        for needed in ("httponly", "samesite=strict", "path=/", f"max-age={auth.SESSION_SECONDS}"):
            assert needed in cookie
        assert "secure" not in cookie, "browsers keep no such cookie without TLS"
        assert cookie.startswith("restless_session=")
        assert service.tokens["read"].lower() not in cookie
        name = reply.headers["set-cookie"].partition(";")[0].encode()
        assert get(service, "/", role=None, headers=[(b"cookie", name)]).status == 200
        assert get(service, "/page/overview", role=None, headers=[(b"cookie", name)]).status == 200

    def test_a_cookie_over_tls_belongs_to_this_host(self, service):
        body = urlencode({"token": service.tokens["read"]}).encode()
        cookie = service("POST", "/login", body, role=None, scheme="https").headers["set-cookie"]
        assert cookie.startswith("__Host-restless_session=")
        parts = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert parts == {"httponly", "samesite=strict", "path=/", "secure", f"max-age={auth.SESSION_SECONDS}"}

    @pytest.mark.parametrize("token", ["", "x", "rb-wrong", "é" * 40, "x" * 5000])
    def test_what_is_no_token(self, service, token):
        reply = entered(service, token)
        assert reply.status == 401
        assert "set-cookie" not in reply.headers
        assert "This token is not known." in reply.body.decode()

    @pytest.mark.parametrize("path", ["/login", "/logout"])
    @pytest.mark.parametrize(
        "header",
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"same-site"), (b"origin", b"https://elsewhere")],
    )
    def test_a_form_of_another_site(self, service, path, header):
        body = urlencode({"token": service.tokens["read"]}).encode()
        reply = service("POST", path, body, role=None, headers=[header])
        assert reply.status == 403
        assert "set-cookie" not in reply.headers

    def test_logging_out(self, service):
        """The session ends here, not in the browser alone; others of the same token go on."""
        mine, other = (cookie_of(entered(service, service.tokens["read"])) for _ in range(2))
        reply = service("POST", "/logout", role=None, headers=[mine])
        assert reply.status == 303
        assert "max-age=0" in reply.headers["set-cookie"].lower()
        assert get(service, "/agents", role=None, headers=[mine]).status == 401
        assert get(service, "/agents", role=None, headers=[other]).status == 200

    def test_logging_in_again_ends_the_session_before(self, service):
        before = cookie_of(entered(service, service.tokens["read"]))
        after = cookie_of(entered(service, service.tokens["read"], before))
        assert get(service, "/agents", role=None, headers=[before]).status == 401
        assert get(service, "/agents", role=None, headers=[after]).status == 200

    def test_a_stream_ends_with_its_session(self, service):
        cookie = cookie_of(entered(service, service.tokens["read"]))
        paths = ["/page/live", "/page/live?name=a", "/agents/a/stream?after=0"]
        streams = [
            asyncio.run_coroutine_threadsafe(call(service.app, "GET", path, headers=[cookie]), service.loop)
            for path in paths
        ]
        while service.app.streams.open < len(paths):
            assert not any(stream.done() for stream in streams)
            time.sleep(0.01)
        service("POST", "/logout", role=None, headers=[cookie])
        assert [stream.result(GUARD).status for stream in streams] == [200, 200, 200]

    def test_sessions_are_few_and_do_not_last(self, service, monkeypatch):
        async def role(token):
            return "admin"

        sessions = auth.Sessions(SimpleNamespace(role=role), most=4, most_of_token=2)
        mine = [sessions.begin("t") for _ in range(3)]
        assert [asyncio.run(sessions.role(one)) for one in mine] == [None, "read", "read"]
        others = [sessions.begin(f"t{n}") for n in range(3)]
        assert [asyncio.run(sessions.role(one)) for one in [*mine, *others]] == [None, None, *["read"] * 4]
        now = time.monotonic()
        monkeypatch.setattr(auth.time, "monotonic", lambda: now + auth.SESSION_SECONDS + 1)
        assert asyncio.run(sessions.role(others[-1])) is None
        sessions.begin("t")
        assert len(sessions) == 1

    def test_a_code_logs_in_once(self, tmp_path):
        codes = Codes()
        inside = Inside(tmp_path, codes=codes)
        try:
            code = codes.make(inside.tokens["admin"])
            reply = inside("GET", f"/login?code={code}", role=None)
            assert inside("GET", "/", role=None, headers=[cookie_of(reply)]).status == 200
            assert "set-cookie" not in inside("GET", f"/login?code={code}", role=None).headers
        finally:
            inside.app.stop()
            inside.close()

    def test_a_code_works_once(self, service):
        codes = Codes()
        code = codes.make("secret")
        assert codes.take("other") is None
        assert codes.take(code) == "secret"
        assert codes.take(code) is None

    def test_a_code_does_not_last(self, monkeypatch):
        codes = Codes()
        monkeypatch.setattr(page, "CODE_SECONDS", -1.0)
        assert codes.take(codes.make("secret")) is None


class TestFiles:
    def test_a_strict_policy(self, service):
        policy = entered(service, service.tokens["read"]).headers["content-security-policy"]
        assert policy == page.POLICY
        assert "unsafe" not in policy
        assert "http" not in policy

    def test_assets(self, service):
        reply = get(service, "/assets/main.js", role=None)
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/javascript")
        assert reply.headers["x-content-type-options"] == "nosniff"

    def test_the_icon(self, service):
        assert get(service, "/favicon.ico", role=None).headers["content-type"].startswith("image/svg")

    @pytest.mark.parametrize("name", ["index.html", "nothing.js", "..%2Fpage.py", "%2e%2e/page.py", "main.js/x", ""])
    def test_nothing_else_is_served(self, service, name):
        assert get(service, f"/assets/{name}", role=None).status == 404

    def test_nothing_inline(self, service):
        for name, content in page.Page(service.writer, None, None, service.app.streams, Codes()).files.items():
            text = content.decode()
            assert "innerHTML" not in text
            assert "eval(" not in text
            if name.endswith(".html"):
                assert "style=" not in text
                assert "<style" not in text
                assert not re.search(r"\son\w+=", text)
                assert text.count("<script") == text.count('<script type="module" src="/assets/')


@pytest.mark.parametrize(
    "path", ["overview", "agent?name=a", "thoughts?name=a", "what-if?arms=[]", "live", "live?name=a"]
)
def test_reading_needs_a_token(service, path):
    assert get(service, f"/page/{path}", role=None).status == 401


@pytest.mark.parametrize(
    ("path", "status"), [("agent", 422), ("agent?name=b", 404), ("thoughts?name=b", 404), ("live?name=b", 404)]
)
def test_agents_that_are_not_there(service, path, status):
    reply = get(service, f"/page/{path}")
    assert reply.status == status
    assert reply.json()["error"]


def test_all_agents_at_a_glance(service):
    found = get(service, "/page/overview").json()
    (agent,) = found["agents"]
    assert found["count"] == 1
    assert (agent["name"], agent["slots"], agent["lost"], agent["open"]) == ("a", 120, 3, 0)
    assert 0 < agent["lately"] < 1
    assert get(service, "/page/overview?search=nobody").json() == {"agents": [], "count": 0}


def test_one_agent(service):
    found = get(service, "/page/agent?name=a").json()
    slots = {one["slot"]: one["arms"] for one in found["recent"]}
    assert sorted(slots) == list(range(1, 121))
    assert list(slots[40].values()) == [{"lost": True}]
    assert [set(seen) for seen in slots[1].values()] == [{"state", "reward"}]
    assert found["present"]["seq"] == found["agent"]["seq"] == found["after"]


def test_thoughts_are_those_of_the_agent(service):
    """Through the processes, as the page gets them; the same numbers as the service tells elsewhere."""
    found = get(service, "/page/thoughts?name=a").json()
    while found["behind"]:  # a log is read for a second at a time
        time.sleep(0.2)
        found = get(service, "/page/thoughts?name=a").json()
    estimate = get(service, "/agents/a/estimate").json()
    for arm, known in zip(found["arms"], estimate["arms"], strict=True):
        for mine, theirs in (("transitions", "transitions"), ("errors", "standard_errors"), ("rewards", "rewards")):
            assert arm[mine] == known[theirs]
    assert sum(answers for _, answers, _ in found["rewards"]["bins"]) == 117
    assert found["plans"][0]["slot"] == 1
    assert [moment["slot"] for moment in found["tightening"]][:1] == [25]


def test_the_optimum_has_a_bracket_and_an_uncertainty(service):
    snapshot = service.writer.read("a", snapshot_of)
    found = analysis.optimum(snapshot)
    assert found["certified"]
    assert found["lower"] <= found["gain"] <= found["upper"] <= found["lower"] + 1e-3
    assert found["low"] < found["gain"] < found["high"]
    assert found["draws"] > 4


def tried(arms, plays=1):
    return f"/page/what-if?plays={plays}&arms={quote(json.dumps(arms))}"


def arm(stay=0.7, pay=1.0, **more):
    chain = [[stay, 1 - stay], [0.2, 0.8]]
    return {"name": "x", "transitions": chain, "rewards": [pay, 0.0], "reward_range": [0.0, 1.0], **more}


def test_what_if(service):
    other = arm(0.6, 0.8, name="y")
    found = get(service, tried([arm(), other])).json()
    better = get(service, tried([arm(0.9), other])).json()
    assert found["certified"]
    assert better["gain"] > found["gain"] + 0.01
    assert {pull for row in found["policy"] for pull in row["pulls"]} <= {0, 1}
    # An arm just seen in its good state, which is likely to last, is pulled again.
    row = next(row for row in better["policy"] if (row["last"], row["state"], row["other"]) == (0, 0, 1))
    assert set(row["pulls"]) == {0}


def test_what_if_arms_react(service):
    reacting = arm(active_transitions=[[0.3, 0.7], [0.1, 0.9]])
    found, without, paid = (
        get(service, tried([one, arm(0.6, 0.8, name="y")])).json()["gain"]
        for one in (reacting, arm(), reacting | {"passive_rewards": [0.5, 0.0], "setup_cost": 0.0})
    )
    assert found < without - 0.01
    assert paid > found + 0.01


@pytest.mark.parametrize(
    "path",
    [
        "/page/what-if",
        "/page/what-if?arms=nonsense",
        "/page/what-if?arms=" + "[" * 4000,
        tried({}),
        tried([]),
        tried([1]),
        tried([arm()] * 25),
        tried([arm()], plays=7),
        tried([arm()], plays="x"),
        tried([arm()], plays="%C2%B2"),
        tried([arm()], plays="%D9%A3"),
        tried([arm()], plays=""),
        tried([arm(stay=1.5)]),
        tried([arm(pay=float("nan"))]),
        tried([arm(pay=2.0)]),
        tried([arm(reward_range=[1, 0])]),
        tried([arm(transitions=[[1]])]),
        tried([arm(extra=1)]),
        tried([arm(active_transitions=[[1.0]])]),
        tried([arm(active_transitions=[[0.5, 0.6], [0.5, 0.5]])]),
        tried([arm(passive_rewards=[1.0])]),
        tried([arm(passive_rewards=[1.0, 2.0])]),
        tried([arm(setup_cost=-1.0)]),
        tried([arm(setup_cost=[1.0])]),
    ],
)
def test_what_cannot_be(service, path):
    reply = get(service, path)
    assert reply.status == 422, reply.body
    assert reply.json()["error"]


def test_what_is_tried_has_each_key_once(service):
    given = json.dumps([arm()]).replace("{", '{"rewards": [0.5, 0.5], ', 1)
    reply = get(service, f"/page/what-if?arms={quote(given)}")
    assert (reply.status, reply.json()["field"]) == (400, "rewards")


def told(slot, arm, state=0, reward=1.0, **more):
    return {"kind": "tell", "slot": slot, "arms": [arm], "states": [state], "rewards": [reward], **more}


def asked(slot, arm, **more):
    return {"kind": "ask", "slot": slot, "arms": [arm], **more}


def test_what_happened_lately():
    events = [asked(1, 0), asked(2, 1), told(2, 1, 1, 0.5), asked(3, 0), {"kind": "lost", "slot": 1, "arms": [0]}]
    assert recent([*events, asked(3, 0, again=True), {"kind": "plan", "slot": 4}]) == [
        {"slot": 1, "arms": {0: {"lost": True}}},
        {"slot": 2, "arms": {1: {"state": 1, "reward": 0.5}}},
        {"slot": 3, "arms": {0: {}}},
    ]


def test_an_answer_after_all():
    assert recent([{"kind": "lost", "slot": 1, "arms": [0]}, told(1, 0)])[0]["arms"] == {0: {"state": 0, "reward": 1.0}}


def test_a_long_log_stays_light():
    summary = LogSummary(1)
    task = {"n_states": [2, 2], "plays": 1, "reward_laws": ["bernoulli"] * 2, "initial": [None] * 2, "names": ARMS}
    summary.take({"kind": "create", "seq": 1, "task": task})
    rng = np.random.default_rng(0)
    slots = 20_000
    rewards = rng.random(slots)
    for slot in range(1, slots + 1):
        summary.take(told(slot, slot % 2, int(rewards[slot - 1] < 0.5), float(rewards[slot - 1]), seq=slot + 1))
    assert len(summary.bins) <= analysis.MOST_BINS
    assert sum(answers for _, answers, _ in summary.bins) == slots
    assert sum(total for total, _, _ in summary.bins) == pytest.approx(rewards.sum())
    # Bins hold consecutive slots.
    assert summary.bins[1][0] == pytest.approx(rewards[summary.width : 2 * summary.width].sum())
    assert len(summary.tightening) < 20
    errors = [moment["arms"][0][1][0][0] for moment in summary.tightening]
    assert errors[-1] < errors[0] / 4


def test_why_plans_end(service):
    summary = LogSummary(1)
    task = {"n_states": [2, 2], "plays": 1, "reward_laws": ["bernoulli"] * 2, "initial": [None] * 2, "names": ARMS}
    events = [
        {"kind": "create", "task": task},
        {"kind": "plan", "plan": 1, "slot": 1, "digest": "d1", "at": 1},
        asked(5, 0),
        {"kind": "plan", "plan": 2, "slot": 6, "digest": "d2", "at": 2},
        {"kind": "arm", "change": "add", "name": "z", "n_states": 3, "at": 3},
        {"kind": "plan", "plan": 3, "slot": 9, "digest": "d3", "at": 4},
        {"kind": "learner", "spec": "ts-9", "at": 5},
        {"kind": "plan", "plan": 4, "slot": 12, "digest": "d4", "at": 6},
    ]
    for seq, event in enumerate(events, 1):
        summary.take({**event, "seq": seq})
    assert [plan["ended"] for plan in summary.plans] == ["", "arm z was added", "the learner became ts-9", None]
    assert [plan["slots"] for plan in summary.plans] == [5, 3, 3, None]
    assert [mark["kind"] for mark in summary.marks] == ["arm", "learner"]
    assert summary.record.n_states.tolist() == [2, 2, 3]
