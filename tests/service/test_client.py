"""``rb.Client``: an agent elsewhere that is used as one in this process, whatever happens on the way."""

import threading
import time

import httpx
import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.service import client as remote
from restless_bandits.service.operations import ServiceError
from tests.service.clients import GUARD, Inside, Process, call

TASK = dict(n_states=(2, 2, 3), plays=1, reward_laws=("bernoulli",) * 3, initial=(None,) * 3, names=("x", "y", "z"))
ARMS = ["x", "y", {"name": "z", "n_states": 3}]


class Wire(httpx.BaseTransport):
    """Leads a client into an application in this process; answers can be lost on the way back."""

    def __init__(self, inside):
        self.inside, self.trouble, self.sent = inside, [], []

    def handle_request(self, request):
        trouble = self.trouble.pop(0) if self.trouble else None
        self.sent.append((request.method, request.url.path))
        if trouble == "lost before":
            raise httpx.ConnectError("nobody there")
        if isinstance(trouble, int):
            return httpx.Response(trouble, headers={"retry-after": "0"}, json={"error": "later", "field": None})
        headers = [(key, value) for key, value in request.headers.raw if key.lower() == b"authorization"]
        path = request.url.raw_path.decode()
        reply = self.inside.run(call(self.inside.app, request.method, path, request.read(), headers=headers))
        if trouble == "lost after":
            raise httpx.ReadError("the connection broke")
        return httpx.Response(reply.status, headers=reply.headers, content=reply.body)


@pytest.fixture
def service(tmp_path):
    inside = Inside(tmp_path)
    yield inside
    inside.close()


@pytest.fixture
def wire(service):
    return Wire(service)


@pytest.fixture
def client(service, wire, monkeypatch):
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.001)
    client = rb.Client("http://127.0.0.1:1", service.tokens["admin"], patience=5)
    client.connection.http.close()
    client.connection.http = httpx.Client(transport=wire, base_url=client.url, headers=client.connection.http.headers)
    yield client
    client.close()


def play(agent):
    """What a program does with an agent, here or elsewhere."""
    rng = np.random.default_rng(3)
    chosen = []
    for slot in range(1, 31):
        arm = agent.ask()
        assert agent.ask() == arm
        chosen.append(arm)
        if slot % 7 == 0:
            agent.skip()
        elif slot % 5 == 0:
            agent.tell(lost=True)
        elif slot % 11 == 0:
            agent.tell(state=rng.integers(2), reward=1.0, arm="x")
        else:
            agent.tell(state=int(rng.integers(2)), reward=float(rng.integers(2)))
        if slot == 12:
            assert agent.add_arm("w", n_states=2) == 3
            agent.retire_arm("y")
        if slot == 20:
            agent.learner = "ucb1"
            agent.restore_arm(1)
    agent.tell(state=0, reward=0.0, slot=7)
    agent.tell(state=0, reward=0.0, slot=7)
    with pytest.raises(rb.ProblemError, match="slot 7"):
        agent.tell(state=1, reward=0.0, slot=7)
    with pytest.raises(rb.ProblemError):
        agent.tell(state=9, reward=0.0, slot=14)
    return chosen


def test_moving_to_the_service_is_one_line(client):
    here = rb.Agent("round-robin", rb.Task(**TASK), seed=4)
    available = client.create("a", ARMS, learner="round-robin", seed=4)
    assert play(here) == play(available)
    assert available.slots == here.slots
    assert available.in_service == here.in_service
    assert [(one.slot, one.arms, one.names) for one in available.open] == [
        (one.slot, one.arms, one.names) for one in here.open
    ]
    assert available.learner == here.learner.spec
    available.on_change, available.late = "ignore", 5
    assert (available.on_change, available.late) == ("ignore", 5)
    assert [one["name"] for one in client.agents()] == ["a"]


@pytest.mark.parametrize("trouble", ["lost before", "lost after", 503, 429, 502])
def test_whatever_is_lost_is_sent_again(client, wire, trouble):
    """The same program, with every request in trouble at its first try, leaves the same agent."""

    class Often(list):
        def pop(self, _):
            return trouble if len(wire.sent) % 2 == 0 else None

        def __bool__(self):
            return True

    here = rb.Agent("round-robin", rb.Task(**TASK), seed=4)
    wire.trouble = Often()
    available = client.create("a", ARMS, learner="round-robin", seed=4)
    assert play(here) == play(available)
    assert available.slots == here.slots
    available.delete()
    wire.trouble = []
    assert client.agents() == []


def test_several_decisions_at_once(client):
    agent = client.create("a", ARMS, learner="round-robin")
    decisions = [agent.decide() for _ in range(3)]
    assert [one.slot for one in decisions] == [1, 2, 3]
    assert agent.decide("mine") == agent.decide("mine")
    assert client.agent("a").decide("mine").names == agent.decide("mine").names
    for one in reversed(decisions):
        assert agent.tell(decision=one, state=0, reward=1.0)["used"]
    assert [one.slot for one in agent.open] == [4]
    answers = agent.batch([{"ask": {"request": "p"}}, {"tell": {"slot": 4, "state": 1, "reward": 0.0}}])
    assert answers[0]["slot"] == 5
    kinds = [event["kind"] for event in agent.events() if event["kind"] not in ("plan", "skip")]
    assert kinds == ["create", *4 * ["ask"], *3 * ["tell"], "ask", "tell"]
    assert agent.estimate()
    assert agent.belief()


def test_refusals_are_sentences(client, service):
    with pytest.raises(ServiceError, match="no agent 'b'") as refused:
        client.agent("b")
    assert refused.value.status == 404
    agent = client.create("a", ARMS)
    with pytest.raises(rb.ProblemError, match="tell without ask"):
        agent.tell(state=1, reward=0.0)
    agent.ask()
    with pytest.raises(rb.ProblemError, match="finite number"):
        agent.tell(state=1, reward=float("nan"))
    with pytest.raises(rb.ProblemError, match="cannot be sent"):
        agent.tell(state=object(), reward=0.0)
    with pytest.raises(ServiceError, match="already"):
        client.create("a", ["p", "q"])
    with pytest.raises(rb.ProblemError, match="arms are 0 to 2"):
        agent.retire_arm(7)
    assert service.tokens["admin"] not in repr(client) + repr(agent)


def test_what_is_wrong_with_an_address():
    with pytest.raises(rb.ProblemError, match=r"127\.0\.0\.1:8787"):
        rb.Client("127.0.0.1:8787", token="x")
    with pytest.raises(rb.ProblemError, match="insecure=True"):
        rb.Client("http://example.org", token="x")
    with pytest.raises(rb.ProblemError, match="RESTLESS_TOKEN"):
        rb.Client("http://127.0.0.1:8787")
    with pytest.raises(rb.ProblemError, match="no certificates"):
        rb.Client("https://127.0.0.1:8787", token="x", verify="/nowhere")


def test_the_token_of_the_environment(monkeypatch, service):
    monkeypatch.setenv("RESTLESS_TOKEN", service.tokens["read"])
    with rb.Client() as client:
        assert client.connection.http.headers["authorization"] == f"Bearer {service.tokens['read']}"


def test_nobody_there(free_port):
    with rb.Client(f"http://127.0.0.1:{free_port}", token="x", patience=0.2) as client:
        with pytest.raises(ServiceError, match="does not answer") as refused:
            client.agents()
        assert refused.value.status == 503


@pytest.fixture
def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_for(growing, more):
    wanted, deadline = len(growing) + more, time.monotonic() + GUARD
    while len(growing) < wanted:
        assert time.monotonic() < deadline, "nothing goes on"
        time.sleep(0.01)


def test_a_server_that_dies_is_nothing_worse_than_a_delay(tmp_path, free_port):
    """A program plays on and a reader reads on, while the service is killed and started again."""
    store = tmp_path / "s.db"
    server = Process(store, port=free_port)
    token = server.token
    decided, read, stop = [], [], threading.Event()
    with rb.Client(server.url, token, timeout=2) as client, rb.Client(server.url, token) as reader:
        agent = client.create("a", ["x", "y"], learner="round-robin")

        def play_on():
            while not stop.is_set():
                decision = agent.decide()
                decided.append(decision)
                agent.tell(decision=decision, state=0, reward=1.0)

        def read_on():
            for event in reader.agent("a").follow(after=0):
                read.append(event)
                if event["kind"] == "skip":
                    return

        threads = [threading.Thread(target=play_on, daemon=True), threading.Thread(target=read_on, daemon=True)]
        for thread in threads:
            thread.start()
        wait_for(decided, 20)
        server.kill()
        server = Process(store, port=free_port)
        wait_for(decided, 20)
        stop.set()
        threads[0].join(GUARD)
        agent.skip(3)
        threads[1].join(GUARD)
        assert not any(thread.is_alive() for thread in threads)
        events = list(agent.events())
    with server:
        assert read == events
        asked = [event for event in events if event["kind"] == "ask"]
        assert [event["decision"] for event in asked] == [one.id for one in decided], "nothing lost, nothing twice"
        assert [event["slot"] for event in asked] == list(range(1, len(asked) + 1))
        assert len([event for event in events if event["kind"] == "tell"]) == len(asked)
        assert server.stop()[0] == 0
