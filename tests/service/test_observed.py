"""Agents of observed arms in the service: the choices of ``Agent``, durability, audit, quotas, and the client."""

import contextlib
import json
import sqlite3
import threading
import time

import numpy as np
import pytest
from benchmarks.browsing import browser, look, missing

import restless_bandits as rb
from restless_bandits.agent.packing import packed, unpacked
from restless_bandits.service.audit import audit
from restless_bandits.service.failpoints import NAMES
from restless_bandits.service.operations import Ask, Create, ServiceError, Tell
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.writer import CommandProcessor
from tests.service.clients import Inside, Process
from tests.service.one_agent import Kept
from tests.service.postgres import cluster, reason_to_skip
from tests.service.processes import Served, Visitor

GIVEN = {
    "arms": [f"p{k}" for k in range(12)],
    "kinds": ["north", "south"] * 6,
    "observed": "all",
    "n_states": 2,
    "plays": 3,
    "rewards": [1.0, 0.0],
    "learner": "posterior:rewards=known",
    "seed": 4,
}


def rows(slots, arms=12, seed=0, missing=0.0):
    """States of each slot, None for some of them."""
    rng = np.random.default_rng(seed)
    return [
        [None if rng.random() < missing else int(state) for state in rng.integers(0, 2, arms)] for _ in range(slots)
    ]


@contextlib.contextmanager
def opened(path):
    store = open_store(path)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def inside(tmp_path):
    made = []

    def make(**options):
        made.append(Inside(tmp_path, **options))
        assert made[-1]("POST", "/agents", {"name": "a", **GIVEN}).status in (201, 409)
        return made[-1]

    yield make
    for one in made:
        one.close()


def ask(service, request, states, **more):
    reply = service("POST", "/agents/a/ask", {"request": str(request), "states": states, **more}, role="play")
    assert reply.status == 200, reply.json()
    return reply.json()


def test_the_service_makes_the_choices_of_an_agent(inside):
    service, played = inside(), rows(30, missing=0.1)
    given = {key: value for key, value in GIVEN.items() if key not in ("learner", "seed")}
    agent = rb.Agent(GIVEN["learner"], seed=4, **given)
    for slot, states in enumerate(played):
        decision = ask(service, slot, states)
        assert tuple(decision["numbers"]) == agent.ask(states)
        assert decision["arms"] == [f"p{arm}" for arm in decision["numbers"]]
        assert decision["slot"] == slot + 1
        paid = [0.5] * 12
        agent.tell(paid)
        told = service("POST", "/agents/a/tell", {"decision": decision["decision"], "rewards": paid}, role="play")
        assert told.json()["used"]
    ranked = service("POST", "/agents/a/rank", {"top": 5}, role="play").json()
    assert "arms" in ranked, ranked
    mine = agent.rank(top=5)
    assert (ranked["arms"], ranked["indices"]) == (list(mine.names), mine.scores.tolist())
    estimate = service("GET", "/agents/a/estimate", role="read").json()
    assert [kind["name"] for kind in estimate["kinds"]] == ["north", "south"]
    assert estimate["kinds"][0]["active_transitions"] == agent.estimate().arms[0].active_transitions.tolist()
    belief = service("GET", "/agents/a/belief", role="read").json()["arms"]
    missing, beliefs = agent.missing_beliefs
    assert [one["name"] for one in belief] == [f"p{arm}" for arm in missing]
    assert [one["law"] for one in belief] == beliefs.tolist()


def test_same_request_same_decision_and_same_message_same_answer(inside):
    service, played = inside(), rows(3)
    first = ask(service, "x", played[0])
    assert ask(service, "x", played[1]) == first
    tell = {"decision": first["decision"], "rewards": {"p1": 0.25}}
    answers = [service("POST", "/agents/a/tell", tell, role="play").json() for _ in range(2)]
    assert answers[0] == answers[1]
    refused = service("POST", "/agents/a/tell", tell | {"rewards": {"p1": 0.5}}, role="play")
    assert (refused.status, "different feedback" in refused.json()["error"]) == (409, True)
    ask(service, "y", played[1])
    assert service("POST", "/agents/a/tell", tell, role="play").json() == answers[0]
    late = tell | {"rewards": {"p2": 0.5}}
    for _ in range(2):
        answer = service("POST", "/agents/a/tell", late, role="play").json()
        assert (answer["used"], "not used" in answer["reason"]) == (False, True)
    events = service("GET", "/agents/a/events", role="read").json()["events"]
    assert sum(event["kind"] == "tell" for event in events) == 2


def test_the_log_holds_changes_and_brings_everything_back(inside, tmp_path):
    service = inside()
    states = rows(1)[0]
    for slot in range(25):
        states[slot % 12] = 1 - states[slot % 12] if states[slot % 12] is not None else 0
        decision = ask(service, slot, states)
        if slot % 3 == 0:
            pulled = {"decision": decision["decision"], "pulled_arms": ["p0", "p5"], "rewards": [0.5] * 12}
            assert service("POST", "/agents/a/tell", pulled, role="play").status == 200
    for change in ({"add_arm": {"name": "new", "kind": "north"}}, {"retire_arm": "p3"}, {"learner": "tsde"}):
        assert service("PATCH", "/agents/a", change).status == 200
    decision = ask(service, "last", {"new": 1, "p0": 0}, exclude=["p7"])
    assert service("POST", "/agents/a/skip", {"slots": 2}, role="play").json()["slots"] == 28
    events = service("GET", "/agents/a/events", role="read").json()["events"]
    asks = [event for event in events if event["kind"] == "ask"]
    assert all("at" in event["states"] for event in asks[1:-1])
    view = service("GET", "/agents/a", role="read").json()
    assert (view["task"]["n_arms"], view["task"]["in_service"], view["learner"]) == (13, 12, "tsde")
    with opened(str(tmp_path / "inside.db")) as store:
        found = audit(store)
        assert found.same, found.sentence
        assert found.plans > 10
        other = CommandProcessor(store, snapshot_every=5)
        other.start()
        try:
            assert other.agent("a") == view
        finally:
            other.stop()
    assert decision["slot"] == 26


def test_a_snapshot_is_the_log(tmp_path):
    kept = Kept(str(tmp_path / "s.db"), snapshot_every=4)
    given = {key: value for key, value in GIVEN.items() if key != "arms"}
    kept.do(Create("a", GIVEN["arms"], **given))
    path = []
    for slot, states in enumerate(rows(20, missing=0.2)):
        decision = kept.do(Ask(str(slot), states))[0]
        kept.do(Tell(decision["decision"], rewards=[0.25] * 12))
        path.append(decision["numbers"])
        if slot in (7, 13):
            kept.reopen()
    given["observed"] = "all"
    agent = rb.Agent(GIVEN["learner"], arms=GIVEN["arms"], **{k: v for k, v in given.items() if k != "learner"})
    for states, numbers in zip(rows(20, missing=0.2), path, strict=True):
        assert agent.ask(states) == tuple(numbers)
        agent.tell([0.25] * 12)
    kept.close()
    with opened(str(tmp_path / "s.db")) as store:
        found = audit(store)
        assert found.same, found.sentence
        assert found.snapshots == 1


def test_a_changed_log_is_noticed(tmp_path):
    service = Inside(tmp_path)
    service("POST", "/agents", {"name": "a", **GIVEN})
    for slot, states in enumerate(rows(4)):
        ask(service, slot, states)
    service.close()
    with sqlite3.connect(tmp_path / "inside.db") as base:
        (body,) = base.execute("select body from events where kind = 'ask' order by seq desc limit 1").fetchone()
        event = json.loads(body)
        event["arms"] = packed((unpacked(event["arms"]) + 1) % 12)
        base.execute("update events set body = ? where body = ?", (json.dumps(event), body))
    with opened(str(tmp_path / "inside.db")) as store:
        assert not audit(store).same


def test_the_page_shows_states_pulls_margin_rows_and_lift(inside):
    service = inside()
    for slot, states in enumerate(rows(40, missing=0.1)):
        ask(service, slot, states)
    shown = service("GET", "/page/observed?name=a", role="read").json()
    last = rows(40, missing=0.1)[-1]
    assert (shown["slots"], shown["missing"], len(shown["recent"])) == (40, last.count(None), 40)
    assert shown["recent"][-1]["states"] == [last.count(0), last.count(1), last.count(None)]
    assert (len(shown["pulled"]), shown["n_pulled"], len(shown["below"])) == (3, 3, 6)
    lowest = min(one["index"] for one in shown["above"])
    assert lowest >= max(one["index"] for one in shown["below"]) - 1e-9
    kind = shown["kinds"][0]
    assert (kind["name"], kind["arms"], len(kind["rows"])) == ("north", 6, 4)
    assert all(abs(sum(one["row"]) - 1) < 1e-9 for one in kind["rows"])
    assert 0 < shown["at_random"] < 1
    assert 0 < shown["earned"] < 1
    overview = service("GET", "/page/overview", role="read").json()["agents"]
    assert [(one["name"], one["slots"]) for one in overview] == [("a", 40)]
    assert service("GET", "/page/agent?name=a", role="read").json()["agent"]["observed"] == "all"
    service("POST", "/agents", {"name": "c", "arms": ["x", "y"]})
    assert service("GET", "/page/observed?name=c", role="read").status == 409
    assert service("GET", "/page/thoughts?name=a", role="read").status == 409


def test_what_does_not_fit_is_refused_in_a_sentence(inside):
    service = inside()
    for action, body, status, why in (
        ("ask", {"request": "1"}, 422, "states is missing"),
        ("ask", {"request": "1", "states": [0, 1]}, 422, "give the state of each of 12 arms"),
        ("ask", {"request": "1", "states": [0] * 11 + [2]}, 422, "arm 'p11' has no state 2"),
        ("ask", {"request": "1", "states": {"q": 0}}, 422, "there is no arm 'q'"),
        ("ask", {"request": "1", "states": [0.5] * 12}, 422, "states"),
        ("rank", {}, 409, "no plan yet"),
        ("tell", {"slot": 1, "rewards": [1.0] * 12}, 404, "no decision of slot 1"),
        ("tell", {"slot": 1, "state": 0, "reward": 1.0}, 422, "tell rewards or costs"),
    ):
        reply = service("POST", f"/agents/a/{action}", body, role="play")
        assert (reply.status, why in reply.json()["error"]) == (status, True), reply.json()
    for more, why in (
        ({"late": 5}, "late is for arms that are seen when pulled"),
        ({"learner": "restless-ucb"}, "restless-ucb cannot play arms that are all observed"),
        ({"kinds": ["x"]}, "kinds"),
        (
            {"arms": 10_000, "kinds": None, "n_states": 90, "rewards": None, "learner": "random"},
            "give fewer kinds or states",
        ),
    ):
        reply = service("POST", "/agents", {"name": "b", **GIVEN, **more})
        assert (reply.status, why in reply.json()["error"]) == (422, True), reply.json()
    assert service("POST", "/agents", {"name": "c", "arms": ["x", "y"]}).status == 201
    for action, body in (("ask", {"request": "1", "states": [0, 1]}), ("rank", {"states": [0, 1]})):
        assert "sees the arms that are pulled" in service("POST", f"/agents/c/{action}", body).json()["error"]
    assert service("POST", "/agents", {"name": "d", "arms": 5}).json()["error"].startswith("arms is a number")


def test_long_bodies_are_for_observed_arms(inside):
    service = inside(quotas=Quotas(body=2000, observed_body=30_000))
    service("POST", "/agents", {"name": "plain", "arms": ["x", "y"]})
    assert service("POST", "/agents", {"name": "many", "arms": 1200, "observed": "all", "plays": 5}).status == 201
    long = {"request": "1", "states": [0] * 1200}
    assert service("POST", "/agents/many/ask", long, role="play").status == 200
    assert service("POST", "/agents/many/rank", {"states": [1] * 1200, "top": 3}, role="play").status == 200
    assert service("POST", "/agents/plain/ask", long, role="play").status == 413
    assert service("POST", "/agents/many/batch", {"operations": [{"ask": long}]}, role="play").status == 413
    assert service("POST", "/agents/many/ask", long | {"states": [0] * 20_000}, role="play").status == 413
    assert service("POST", "/agents/nobody/ask", long, role="play").status == 404


@pytest.mark.slow
def test_two_hundred_thousand_arms_in_one_request(tmp_path):
    # Before the threads of the service: two threads that load numpy.random at once block each other.
    many, rng = 200_000, np.random.default_rng(1)
    service = Inside(tmp_path)
    try:
        made = {"name": "a", "arms": many, "observed": "all", "plays": 2000, "rewards": [1, 0]}
        kinds = rng.integers(0, 50, many).tolist()
        assert service("POST", "/agents", made | {"kinds": kinds}).status == 201
        states = rng.integers(0, 2, many)
        for slot in range(3):
            decision = ask(service, slot, states.tolist())
            assert len(decision["numbers"]) == 2000
            states[rng.integers(0, many, 50)] ^= 1
        asks = [e for e in service("GET", "/agents/a/events").json()["events"] if e["kind"] == "ask"]
        assert len(json.dumps(asks[2]["states"])) < 1000
        ranked = service("POST", "/agents/a/rank", {"states": states.tolist(), "top": 1000}, role="play").json()
        assert len(ranked["arms"]) == 1000
    finally:
        service.close()


def test_the_client_has_the_face_of_an_agent(tmp_path):
    with Process(tmp_path / "s.db") as served, rb.Client(served.url, served.token) as client:
        given = {key: value for key, value in GIVEN.items() if key != "arms"}
        remote = client.create("a", GIVEN["arms"], **given)
        assert repr(client.create("a", GIVEN["arms"], **given)) == repr(remote)
        agent = rb.Agent(GIVEN["learner"], arms=GIVEN["arms"], **{k: v for k, v in given.items() if k != "learner"})
        for states in rows(6, missing=0.2):
            assert remote.ask(states) == agent.ask(states)
            assert remote.ask() == agent.ask()
            remote.tell(rewards=[0.5] * 12)
            agent.tell([0.5] * 12)
        assert remote.rank(top=4)["arms"] == list(agent.rank(top=4).names)
        assert remote.add_arm("new", kind="south") == agent.add_arm("new", "south")
        remote.retire_arm("p2"), agent.retire_arm("p2")
        states = {f"p{k}": k % 2 for k in range(12) if k != 2}
        assert remote.ask(states, exclude=["p5"]) == agent.ask(states, exclude=["p5"])
        assert remote.slots == agent.slots == 7
        assert served.stop()[0] == 0


class Programme:
    """A client that plays an agent to its end, whatever happens to the service; and the twin that nobody killed."""

    def __init__(self, folder, failpoints=(), slots=60):
        self.served, self.played, self.numbers = Served(folder / "k.db"), rows(slots, missing=0.1), []
        self.failpoints = iter(failpoints)
        self.served.start_somehow(self.failpoints)
        self.visitor = Visitor([self.served.port], self.served.token, self.revive)
        self.visitor.ok("POST", "/agents", {"name": "a", **GIVEN})

    def revive(self):
        """Wait where the service lives, and start it where it died."""
        if self.served.process.is_alive():
            time.sleep(0.02)
        else:
            self.served.start_somehow(self.failpoints)

    def play(self, before=lambda slot: None):
        for slot, states in enumerate(self.played):
            before(slot)
            decision = self.visitor.ok("POST", "/agents/a/ask", {"request": str(slot), "states": states})
            told = {"decision": decision["decision"], "rewards": [0.5] * 12}
            assert self.visitor.ok("POST", "/agents/a/tell", told)["used"]
            self.numbers.append(decision["numbers"])
        self.visitor.close()
        self.served.stop()

    def check(self):
        given = {key: value for key, value in GIVEN.items() if key not in ("learner", "seed")}
        twin = rb.Agent(GIVEN["learner"], seed=4, **given)
        for states, numbers in zip(self.played, self.numbers, strict=True):
            assert twin.ask(states) == tuple(numbers)
            twin.tell([0.5] * 12)
        with opened(self.served.store) as store:
            found = audit(store)
        assert found.same, found.sentence
        assert found.decisions == len(self.played)


@pytest.mark.slow
def test_nothing_acknowledged_is_missing_after_kills(tmp_path):
    programme = Programme(tmp_path)

    def kill_sometimes(slot):
        if slot % 6 == 5:
            # A kill while the request is on its way: the client sends the same again.
            threading.Timer(0.002 * (slot % 5), programme.served.kill).start()

    programme.play(kill_sometimes)
    assert programme.served.starts > 5
    programme.check()


@pytest.mark.slow
def test_a_death_at_each_failpoint_leaves_the_log_of_a_twin(tmp_path):
    points = [name for name in NAMES if "migration" not in name and "backup" not in name]
    deaths = [f"{name}:{number}" for name in points for number in ((1,) if "snapshot" in name else (2, 5))]
    programme = Programme(tmp_path, deaths, slots=160)
    programme.play()
    assert programme.served.starts == 1 + len(deaths)
    programme.check()


@pytest.mark.slow
@pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")
def test_two_processes_on_postgresql_know_the_same(at_once):
    with cluster() as make:
        url = make()
        one, two = Kept(url, snapshot_every=5), Kept(url, snapshot_every=7)
        one.do(Create("a", GIVEN["arms"], **{key: value for key, value in GIVEN.items() if key != "arms"}))
        given = {key: value for key, value in GIVEN.items() if key not in ("learner", "seed")}
        twin = rb.Agent(GIVEN["learner"], seed=4, **given)
        for slot, states in enumerate(rows(20, missing=0.1)):
            here, there = (one, two) if slot % 2 else (two, one)
            decision = here.do(Ask(str(slot), states))[0]
            assert there.do(Ask(str(slot), states))[0] == decision
            assert twin.ask(states) == tuple(decision["numbers"])
        one.close()
        assert audit(two.store).same
        two.close()


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_browser_shows_the_agent_on_wide_and_narrow_screens(tmp_path):
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    with Process(tmp_path / "s.db") as served, rb.Client(served.url, served.token) as client, browser() as driver:
        given = {key: value for key, value in GIVEN.items() if key != "arms"}
        agent = client.create("clinic", GIVEN["arms"], state_names=["well", "lapsed"], **given)
        for states in rows(20, missing=0.1):
            agent.ask(states)
        look(driver, 1400)
        driver.get(served.url)
        driver.switch_to.active_element.send_keys(served.token, Keys.ENTER)
        soon = WebDriverWait(driver, 150)
        soon.until(lambda _: driver.find_elements("css selector", "[data-agent], h2"))
        driver.get(f"{served.url}/#/agent/clinic")
        soon.until(lambda _: "Rows learned" in driver.find_element("css selector", "main").text)
        text = driver.find_element("css selector", "main").text
        assert all(
            word in text for word in ("States of all arms", "Indices at the margin", "lift over random", "north")
        )
        for width in (1400, 400):
            look(driver, width)
            assert driver.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        agent.ask([0] * 12)
        soon.until(lambda _: "21" in driver.find_element("css selector", ".numbers").text)
        assert not [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def test_a_refused_ask_changes_nothing(tmp_path):
    kept = Kept(str(tmp_path / "s.db"))
    given = {key: value for key, value in GIVEN.items() if key != "arms"}
    kept.do(Create("a", GIVEN["arms"], **given))
    kept.do(Ask("1", [0] * 12))
    before = kept.read()
    with pytest.raises(ServiceError, match="exclude fewer"):
        kept.do(Ask("2", [1] * 12, exclude=GIVEN["arms"][:11]))
    assert kept.read() == before
    kept.close()


def test_an_agent_with_a_clock_has_a_decision_for_each_slot(tmp_path, at_once):
    kept = Kept(str(tmp_path / "s.db"))
    kept.do(Create("a", GIVEN["arms"], clock="1s", **{key: value for key, value in GIVEN.items() if key != "arms"}))
    first = kept.do(Ask("1", [0] * 12))[0]
    assert kept.do(Ask("2", [1] * 12))[0] == first
    kept.time += 4_500_000
    late = kept.do(Ask("3", [1] * 12))[0]
    assert (first["slot"], late["slot"], kept.read()["skipped"]) == (1, 5, 3)
    kept.do(Tell(late["decision"], rewards=[0.5] * 12))
    assert kept.read()["told"] == 12
    kept.reopen()
    assert kept.do(Ask("3", None))[0] == late
    kept.close()
    with opened(str(tmp_path / "s.db")) as store:
        assert audit(store).same
