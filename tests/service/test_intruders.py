"""Nobody gets in without a token, nobody does more than the token allows, and nothing that is sent does any harm."""

import hashlib
import json
import logging
import random
import re
from urllib.parse import quote, urlencode

import pytest

from restless_bandits.service.api import auth
from restless_bandits.service.api.auth import AllowedHosts, is_loopback
from restless_bandits.service.quotas import Quotas
from tests.service.clients import Inside, call

AGENT = {"name": "a", "arms": ["x", "y"], "learner": "round-robin"}
ROUTES = {
    ("POST", "/agents"): "admin",
    ("GET", "/agents"): "read",
    ("GET", "/agents/{name}"): "read",
    ("PATCH", "/agents/{name}"): "admin",
    ("DELETE", "/agents/{name}"): "admin",
    ("POST", "/agents/{name}/ask"): "play",
    ("POST", "/agents/{name}/tell"): "play",
    ("POST", "/agents/{name}/skip"): "play",
    ("POST", "/agents/{name}/batch"): "play",
    ("POST", "/agents/{name}/rank"): "read",
    ("GET", "/agents/{name}/events"): "read",
    ("GET", "/agents/{name}/stream"): "read",
    ("GET", "/agents/{name}/estimate"): "read",
    ("GET", "/agents/{name}/belief"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/openapi.json"): "read",
    ("GET", "/health"): None,
}
ROLES = ["read", "play", "admin"]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    inside = Inside(tmp_path_factory.mktemp("intruders"))
    assert inside("POST", "/agents", AGENT).status == 201
    yield inside
    inside.close()


def log_of(service):
    return service("GET", "/agents/a/events?limit=1000").json()["events"]


def refused(reply, status):
    """Whether an answer is a refusal as every refusal looks."""
    assert reply.status == status, reply.body
    said = reply.json()
    assert set(said) == {"error", "field"}
    assert isinstance(said["error"], str)
    assert "Traceback" not in said["error"]
    assert "\n" not in said["error"]
    assert reply.headers["content-type"] == "application/json"
    return True


def test_the_table_has_every_route(service):
    described = service("GET", "/openapi.json").json()["paths"]
    found = {(method.upper(), path) for path, methods in described.items() for method in methods}
    assert found | {("GET", "/openapi.json")} == set(ROUTES)


def test_routes_that_are_not_described_need_a_token_too(service):
    """Those of the page: all but its login and its files, which are nobody's secret."""
    opened = {"/", "/login", "/logout", "/health", "/favicon.ico"}
    found = 0
    for route in service.app.app.routes:
        if route.path in opened or route.path.startswith("/assets/"):
            continue
        for method in route.methods:
            path = re.sub(r"{\w+(:\w+)?}", "a", route.path)
            assert service(method, path, role=None).status == 401, (method, path)
            found += 1
    assert found >= len(ROUTES) - 1


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_without_with_a_wrong_and_with_a_lesser_token(service, route):
    method, path = route[0], route[1].format(name="a")
    needed = ROUTES[route]
    before = log_of(service)
    if needed is None:
        assert service(method, path, role=None).status == 200
        return
    right = service.tokens["admin"]
    assert refused(service(method, path, role=None), 401)
    wrong = [
        right[:-1] + ("A" if right[-1] != "A" else "B"),
        right + "A",
        right.upper(),
        "",
        "x",
        "rb-00000000-" + 43 * "A",
    ]
    for token in wrong:
        reply = service.run(call(service.app, method, path, b"", token))
        assert refused(reply, 401)
        assert reply.headers["www-authenticate"] == "Bearer"
    for header in (right.encode(), b"Basic " + right.encode(), b"Bearer", b"Bearer \xff\xfe", b"bearer  "):
        reply = service.run(call(service.app, method, path, headers=[(b"authorization", header)]))
        assert refused(reply, 401)
    for role in ROLES[: ROLES.index(needed)]:
        assert refused(service(method, path, role=role), 403)
    assert log_of(service) == before


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "X"])
@pytest.mark.parametrize("path", ["/nowhere", "/agents/a/b/c", "/agents/", "//", "/agents/a/ask/", "/docs", "/redoc"])
def test_what_is_not_there_needs_a_token_too(service, method, path):
    assert service(method, path, role=None).status == 401
    if method != "HEAD":
        assert refused(service(method, path), 404)


def test_a_token_that_is_revoked_is_dead(service):
    token = service.store.tokens.make("read")
    assert service.store.tokens.revoke(token.split("-")[1])
    assert refused(service.run(call(service.app, "GET", "/agents", token=token)), 401)


def logged_in(service, token, scheme="http"):
    """The cookie that a browser gets for a token."""
    reply = service("POST", "/login", urlencode({"token": token}).encode(), role=None, scheme=scheme)
    assert reply.status == 200
    return b"a=b; " + reply.headers["set-cookie"].partition(";")[0].encode()


def test_a_session_reads_and_does_nothing_else(service):
    """Of whatever token: it is worth reading only, and it is no token."""
    cookie = logged_in(service, service.tokens["admin"])
    assert service("GET", "/agents", role=None, headers=[(b"cookie", cookie)]).status == 200
    for method, path, body in (
        ("POST", "/agents/a/skip", {}),
        ("POST", "/agents", AGENT),
        ("DELETE", "/agents/a", b""),
    ):
        assert refused(service(method, path, body, role=None, headers=[(b"cookie", cookie)]), 401)
    assert refused(service.run(call(service.app, "GET", "/agents", token=cookie.rpartition(b"=")[2].decode())), 401)


def test_no_cookie_holds_a_token(service):
    token = service.tokens["admin"].encode()
    assert token not in logged_in(service, token.decode())
    names = [b"restless_token", b"restless_session", b"__Host-restless_session"]
    values = [token, b'"\xff', b"", b"=" * 9, b"x" * 50_000, hashlib.sha256(token).hexdigest().encode()]
    for scheme in ("http", "https"):
        for name in names:
            for value in values:
                headers = [(b"cookie", name + b"=" + value)]
                assert refused(service("GET", "/agents", role=None, headers=headers, scheme=scheme), 401)
                assert service("GET", "/", role=None, headers=headers, scheme=scheme).status == 303


def test_a_cookie_of_one_scheme_is_worth_nothing_in_the_other(service):
    """One that was set over plain HTTP, by whoever is on the way, is not looked at over TLS."""
    for scheme, other in (("http", "https"), ("https", "http")):
        cookie = [(b"cookie", logged_in(service, service.tokens["read"], scheme))]
        assert service("GET", "/agents", role=None, headers=cookie, scheme=scheme).status == 200
        assert service("GET", "/agents", role=None, headers=cookie, scheme=other).status == 401


def test_a_session_ends_with_its_token(service, monkeypatch):
    monkeypatch.setattr(auth, "REMEMBERED", 0.0)
    token = service.store.tokens.make("admin")
    cookie = [(b"cookie", logged_in(service, token))]
    assert service("GET", "/agents", role=None, headers=cookie).status == 200
    assert service.store.tokens.revoke(token.split("-")[1])
    assert refused(service("GET", "/agents", role=None, headers=cookie), 401)


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        (b"127.0.0.1:8787", True),
        (b"127.0.0.1", True),
        (b"localhost:1", True),
        (b"LOCALHOST", True),
        (b"[::1]:8787", True),
        (b"10.1.2.3:80", True),
        (b"mine.example", True),
        (b"Mine.Example.:443", True),
        (b"evil.example", False),
        (b"localhost.evil.example", False),
        (b"127.0.0.1.evil.example:8787", False),
        (b"localhost:x", False),
        ("localhost:²".encode("latin-1"), False),
        (b"[::1", False),
        (b"[::1]x", False),
        (b"", False),
        (b"mine.example@evil.example", False),
        (b"\xff", False),
    ],
)
def test_names_of_this_machine(host, fine):
    assert (host in AllowedHosts(["mine.example"])) is fine


def test_a_foreign_name_is_refused_before_the_token_is_looked_at(service):
    reply = service.run(call(service.app, "GET", "/health", host=b"evil.example"))
    assert refused(reply, 400)


@pytest.mark.parametrize("header", ["host", "authorization"])
def test_two_headers_that_contradict_each_other(service, header):
    """Which of the two counts is what a proxy in front and the service could see differently."""
    values = {"host": b"127.0.0.1", "authorization": f"Bearer {service.tokens['admin']}".encode()}
    reply = service("GET", "/agents", headers=[(header.encode(), values[header])])
    assert refused(reply, 400)
    assert header in reply.json()["error"].lower()


def test_which_hosts_are_this_machine_alone():
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))


def test_headers_of_every_answer(service):
    origin = [(b"origin", b"https://evil.example")]
    replies = [
        service("GET", "/agents", headers=origin),
        service("POST", "/agents/a/ask", {"request": "headers"}, headers=origin),
        service("POST", "/agents/a/ask", {}, headers=origin),
        service("GET", "/health", role=None, headers=origin),
        service("GET", "/nowhere", headers=origin),
    ]
    for reply in replies:
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert not [name for name in reply.headers if name.startswith("access-control")]
        assert "server" not in reply.headers


@pytest.mark.parametrize("path", ["/agents", "/agents/a/ask", "/agents/a/batch"])
def test_a_body_that_is_too_long(service, path):
    before = log_of(service)
    long = b'{"request":"' + b"x" * Quotas().body + b'"}'
    assert refused(service("POST", path, long), 413)
    assert refused(service("POST", path, chunks=[long[:500_000], long[500_000:]]), 413)
    assert refused(service("POST", path, headers=[(b"content-length", b"9" * 30)], chunks=[b"{}"]), 413)
    assert log_of(service) == before


@pytest.mark.parametrize(
    "spec", ["os:system", "ts:oracle=os:system", "subprocess:Popen", "nobody", "informed:oracle=x:y"]
)
def test_a_client_does_not_choose_what_code_is_loaded(service, spec):
    reply = service("POST", "/agents", AGENT | {"name": "b", "learner": spec})
    assert refused(reply, 422)
    assert reply.json()["field"] == "learner"
    assert refused(service("PATCH", "/agents/a", {"learner": spec}), 422)


@pytest.mark.parametrize(("limit", "path", "status"), [("clients", "", 503), ("streams", "/a/stream", 429)])
def test_too_many_at_once(tmp_path, limit, path, status):
    inside = Inside(tmp_path, Quotas(**{limit: 0}))
    try:
        inside("POST", "/agents", AGENT)
        reply = inside("GET", f"/agents{path}")
        assert refused(reply, status)
        assert int(reply.headers["retry-after"]) >= 1
    finally:
        inside.close()


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/agents/a/ask", b'{"request": "1", "request": "2"}', "request"),
        ("/agents/a/ask", b'{"request": "1", "re\\u0071uest": "1"}', "request"),
        ("/agents/a/tell", b'{"decision": "1", "lost": false, "state": 0, "reward": 1.0, "lost": true}', "lost"),
        ("/agents/a/batch", b'{"operations": [{"skip": {}}, {"ask": {"request": "2", "request": "3"}}]}', "request"),
        ("/agents/a/batch", b'{"operations": [], "operations": [{"skip": {}}]}', "operations"),
        ("/agents/a/skip", b'{"slots": 1, "slots": 2}', "slots"),
        ("/agents", b'{"name": "d", "arms": ["x", {"name": "y", "n_states": 2, "n_states": 3}]}', "n_states"),
    ],
)
def test_a_key_that_is_there_twice(service, path, body, key):
    """The last one counts for us, and the first one maybe for a proxy that looks into bodies."""
    before = log_of(service)
    reply = service("POST", path, body)
    assert refused(reply, 400)
    assert reply.json()["field"] == key
    assert repr(key) in reply.json()["error"]
    assert log_of(service) == before


def test_numbers_of_any_length_are_no_fault(service):
    long = b"9" * 5000
    for body in (b'{"slots": %b}' % long, b'{"slots": 1, "request": %b}' % long):
        assert refused(service("POST", "/agents/a/skip", body), 400)
    body = b'{"decision": "1", "state": 0, "reward": 0.%b}' % long
    assert refused(service("POST", "/agents/a/tell", body), 404)


STRANGE = [
    "",
    "²",
    "٣",
    "１",
    "1_0",
    "+1",
    " 1",
    "1.0",
    "-0",
    "0x1",
    "1e3",
    "nan",
    "9" * 40,
    "\x00",
    "a/../b",
    "%2e%2e",
    "[]",
]
QUERIES = [
    "/agents/a/events?after={}",
    "/agents/a/events?limit={}",
    "/agents/a/events?after=1&after={}",
    "/agents/{}",
    "/agents/{}/estimate",
    "/page/agent?name={}",
    "/page/thoughts?name={}",
    "/page/overview?search={}",
    "/page/what-if?plays={}&arms=[]",
    "/page/what-if?arms={}",
    "/assets/{}",
    "/login?code={}",
]


def test_strange_parameters(service, caplog):
    for query in QUERIES:
        for value in STRANGE:
            reply = service("GET", query.format(quote(value, safe="")))
            assert reply.status in (200, 404, 422), (query, value, reply.body)
            assert b"Traceback" not in reply.body
    for value in STRANGE:
        reply = service("GET", "/agents/nobody/stream", headers=[(b"last-event-id", value.encode())])
        assert reply.status in (404, 422)
    assert not caplog.records


def faulty(rng):
    """A route and a body that is wrong for sure, in one of many ways."""
    decision = {"decision": "1", "state": 0, "reward": 1.0}
    route, right = rng.choice(
        [
            ("/agents/a/ask", {"request": "r"}),
            ("/agents/a/tell", decision),
            ("/agents/a/tell", decision | {"arm": ["x"], "slot": 3, "lost": False}),
            ("/agents/a/skip", {"slots": 1, "request": "s"}),
            ("/agents/a/batch", {"operations": [{"ask": {"request": "r"}}, {"tell": decision}]}),
            ("/agents", {**AGENT, "name": "c", "seed": 1, "late": 3, "reward_range": [0.0, 2.0]}),
        ]
    )
    right = json.loads(json.dumps(right))
    key = rng.choice(list(right))
    strange = rng.choice(
        [
            {"deep": {"deeper": [1, {"x": None}]}},
            [[[[1]]]],
            -5.5,
            "\x00",
            "x" * 5000,
            "\ud83d\ude00" * 300,
            10**30,
            {"$ne": 1},
            [{}],
        ]
    )
    way = rng.randrange(9)
    if way == 0:
        return route, json.dumps({**right, rng.choice(["__class__", "x", "Request", "requests", "нет"]): 1}).encode()
    if way == 1:
        return route, json.dumps({**right, key: strange}).encode()
    if way == 2:
        return route, json.dumps({**right, key: 0}).replace(
            ": 0", f": {rng.choice(['NaN', '-Infinity', '01', 'nul'])}", 1
        ).encode()
    if way == 3:
        text = json.dumps(right).encode()
        return route, text[: rng.randrange(len(text))]
    if way == 4:
        return route, rng.choice([b"[", b'{"a":']) * rng.randrange(150, 5000)
    if way == 5:
        return route, bytes(rng.randrange(128, 256) for _ in range(rng.randrange(1, 40)))
    if way == 6:
        return route, json.dumps(rng.choice([None, 1, "x", [right], [], True, [[]], 1.5])).encode()
    if way == 7:
        text = json.dumps(right)
        return route, f'{text[:-1]}, "{key}": {json.dumps(right[key])}}}'.encode()
    return route, json.dumps(dict.fromkeys(right, strange)).encode()


def test_ten_thousand_bodies(service, caplog):
    """8 000 that are wrong for sure change nothing; 2 000 with bytes exchanged change what they are answered to."""
    caplog.set_level(logging.WARNING)
    before, agents = log_of(service), service("GET", "/agents").json()["agents"]
    rng = random.Random(7)
    token = service.tokens["admin"]

    async def send_all(bodies):
        return [(body, await call(service.app, "POST", route, body, token)) for route, body in bodies]

    for body, reply in service.run(send_all(faulty(rng) for _ in range(8000)), 120):
        assert reply.status in (400, 404, 422), (body, reply.status, reply.body)
        assert refused(reply, reply.status)
    assert log_of(service) == before
    assert service("GET", "/agents").json()["agents"] == agents

    def exchanged():
        route, body = "/agents/a/ask", bytearray(b'{"request": "some request of mine"}')
        if rng.random() < 0.5:
            route, body = "/agents/a/tell", bytearray(b'{"decision": "77", "state": 1, "reward": 0.0, "lost": false}')
        for _ in range(rng.randrange(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        return route, bytes(body)

    accepted = 0
    for body, reply in service.run(send_all(exchanged() for _ in range(2000)), 120):
        assert reply.status in (200, 400, 404, 409, 422), (body, reply.status, reply.body)
        accepted += reply.status == 200
        assert not re.search(rb"Traceback|File \"|\.py", reply.body)
    assert len(log_of(service)) <= len(before) + 2 * accepted
    assert not caplog.records, "nothing of it is a fault of the service"
