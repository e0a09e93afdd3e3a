"""``rb.Client``: agents kept by a service, with the methods of ``Agent``.

    client = rb.Client("http://127.0.0.1:8787", token=token)
    agent = client.create("downlink", arms=["a", "b", "c"], n_states=2)
    arm = agent.ask()
    agent.tell(state=1, reward=0.0)

Every request that changes an agent carries an id, or its content shows that it is a repetition. A request without an
answer is therefore sent again. A lost connection or a restart of the service costs time and nothing else.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.optional_dependencies import check_installed
from restless_bandits.service.api.auth import is_loopback
from restless_bandits.service.operations import ServiceError

if TYPE_CHECKING:
    import httpx

TOKEN_VARIABLE = "RESTLESS_TOKEN"
REQUEST_TIMEOUT_SECONDS = 120.0
FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
AGAIN = (429, 502, 503, 504)
"""Statuses after which the same request may succeed a little later."""
Json = dict[str, Any]
Arm = str | Mapping[str, Any]


@dataclass(frozen=True)
class RemoteDecision:
    """A decision of the service: its id, its slot, and the arms to pull, by number and by name."""

    id: str
    slot: int
    arms: tuple[int, ...]
    names: tuple[str, ...]
    plan: int | None = None

    @classmethod
    def of(cls, answer: Json) -> RemoteDecision:
        return cls(
            str(answer["decision"]),
            int(answer["slot"]),
            tuple(answer.get("numbers", ())),
            tuple(answer.get("arms", ())),
            answer.get("plan"),
        )


class Connection:
    """HTTP requests to a service, repeated while the service is unreachable."""

    def __init__(self, url: str, http: httpx.Client, patience: float) -> None:
        self.url, self.http, self.patience = url, http, patience

    def send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        again: Callable[[ServiceError], bool] = lambda _: False,
    ) -> Json:
        """Send a request until an answer arrives, and return the answer; a refusal is a ``ServiceError``.

        An earlier attempt may have arrived although its answer was lost. ``again`` tells whether a refusal only means
        that the earlier attempt was carried out.
        """
        import httpx

        deadline, wait, doubtful = time.monotonic() + self.patience, FIRST_WAIT, False
        content = None if body is None else _encoded(body)
        while True:
            pause = wait
            try:
                response = self.http.request(method, path, content=content)
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                doubtful = doubtful or not isinstance(error, httpx.ConnectError)
                refused = ServiceError(503, f"{self.url} does not answer ({trouble})")
            else:
                if response.is_success:
                    return _decoded(response)
                refused = _refusal(response)
                if response.status_code not in AGAIN:
                    if doubtful and again(refused):
                        return {}
                    raise refused
                doubtful = doubtful or response.status_code in (502, 504)
                pause = max(wait, min(refused.retry_after or 0.0, 5.0))
            # A random wait, so that many clients of a restarting service do not return all at once.
            pause *= random.uniform(0.5, 1.0)
            if time.monotonic() + pause > deadline:
                raise refused
            time.sleep(pause)
            wait = min(2 * wait, LONGEST_WAIT)

    def lines(self, path: str, last: int | None) -> Iterator[str]:
        """Yield the lines of a stream until it ends or breaks."""
        import httpx

        headers = {} if last is None else {"last-event-id": str(last)}
        try:
            with self.http.stream("GET", path, headers=headers, timeout=httpx.Timeout(10.0, read=40.0)) as response:
                if not response.is_success:
                    response.read()
                    refused = _refusal(response)
                    if response.status_code not in AGAIN:
                        raise refused
                    time.sleep(min(refused.retry_after or FIRST_WAIT, 5.0))
                    return
                yield from response.iter_lines()
        except httpx.TransportError:
            return


class Client:
    """A connection to a service.

    Parameters
    ----------
    url
        The address of the service, as ``restless serve`` prints it.
    token
        The access token; None reads the environment variable ``RESTLESS_TOKEN``.
    timeout
        Seconds to wait for an answer before the request is sent again.
    patience
        Seconds of further attempts while the service is unreachable or unavailable, before an error is raised.
    insecure
        Send the token over ``http`` to another machine, although the network in between can read the token.
    verify
        A file of certificates to trust instead of the certificates of the system.

    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8787",
        token: str | None = None,
        *,
        timeout: float = 10.0,
        patience: float = REQUEST_TIMEOUT_SECONDS,
        insecure: bool = False,
        verify: str | None = None,
    ) -> None:
        check_installed("the client", "httpx")
        import httpx

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProblemError(f"the url is {url!r}; give one such as http://127.0.0.1:8787")
        near = is_loopback(parts.hostname)
        if parts.scheme == "http" and not near and not insecure:
            raise ProblemError(
                f"{url} is not encrypted, and everyone on the way could read the token; use https, or insecure=True"
            )
        token = token if token is not None else os.environ.get(TOKEN_VARIABLE, "")
        if not token or not token.isascii() or not token.isprintable():
            raise ProblemError(f"a token is needed; give token=, or set {TOKEN_VARIABLE}; restless token makes one")
        self.url = url.rstrip("/")
        http = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {token}"},
            timeout=timeout,
            trust_env=not near,
            verify=_trusted(verify) if verify is not None else True,
        )
        self.connection = Connection(self.url, http, patience)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of the client."""
        self.connection.http.close()

    def create(
        self,
        name: str,
        arms: Sequence[Arm] | int,
        n_states: int = 2,
        *,
        learner: str | None = None,
        clock: str = "ask",
        **more: Any,
    ) -> RemoteAgent:
        """Make an agent and return it; a repetition with the same arguments returns the existing agent.

        ``arms`` are names, or mappings with ``name``, ``n_states``, ``reward_law`` and ``reward_range`` for arms that
        differ. ``more`` is any of ``reward_law``, ``reward_range``, ``cost_range``, ``state_names``, ``plays``,
        ``seed``, ``late``, ``on_change``, ``memory`` and ``horizon``, with the meanings that ``Agent`` gives them. With
        ``observed="all"`` arms are names or a number, and ``more`` may hold ``kinds``, ``rewards`` and ``at_most``.
        """
        listed = arms if isinstance(arms, int) else [arm if isinstance(arm, str) else dict(arm) for arm in arms]
        body = {"name": name, "arms": listed, "n_states": n_states, "learner": learner, "clock": clock, **more}
        self.connection.send(
            "POST", "/agents", body, again=lambda error: error.status == 409 and self._is_there(name, body)
        )
        return self.agent(name)

    def agent(self, name: str) -> RemoteAgent:
        """Return an existing agent."""
        found = RemoteAgent(self, name)
        found.state()
        return found

    def agents(self) -> list[Json]:
        """Return the descriptions of all agents, as dictionaries."""
        agents: list[Json] = self.connection.send("GET", "/agents")["agents"]
        return agents

    def delete(self, name: str) -> None:
        """Delete an agent; the service keeps its log."""
        self.connection.send("DELETE", _path(name), again=lambda error: error.status == 404)

    def health(self) -> Json:
        """Return the health of the service; an unreachable service is an error."""
        return self.connection.send("GET", "/health")

    def _is_there(self, name: str, body: Json) -> bool:
        """Return whether the agent exists with the requested arguments."""
        available = self.connection.send("GET", _path(name))
        if body.get("observed") == "all":
            many = body["arms"] if isinstance(body["arms"], int) else len(body["arms"])
            return available.get("observed") == "all" and bool(available["task"]["n_arms"] == many)
        names = [arm if isinstance(arm, str) else arm["name"] for arm in body["arms"]]
        same = ("clock", "late", "on_change", "seed", "memory")
        return [arm["name"] for arm in available["task"]["arms"]] == names and all(
            body[key] == available.get(key) for key in same if key in body
        )


class RemoteAgent:
    """An agent kept by a service. ``Client.create`` and ``Client.agent`` make it.

    A remote agent has the methods of ``Agent``. Several programs, or threads with an object each, may play one agent at
    the same time. Each ``decide`` then makes a separate decision, and ``tell`` names the decision.
    """

    def __init__(self, client: Client, name: str) -> None:
        self._client, self.name = client, name
        self._path = _path(name)
        self._present: RemoteDecision | None = None

    def __repr__(self) -> str:
        return f"RemoteAgent({self.name!r} of {self._client.url!r})"

    def state(self) -> Json:
        """Return the full description of the agent, as a dictionary."""
        return self._client.connection.send("GET", self._path)

    def _arms(self) -> list[Json]:
        arms: list[Json] = self.state()["task"]["arms"]
        return arms

    @property
    def slots(self) -> int:
        """The number of slots that have passed."""
        return int(self.state()["slots"])

    @property
    def late(self) -> int:
        """The number of slots for which feedback may be late and still counts; may be set."""
        return int(self.state()["late"])

    @late.setter
    def late(self, slots: int) -> None:
        self._patch(late=slots)

    @property
    def learner(self) -> str:
        """The spec of the learner; may be set at any slot, and the new learner reads the existing record."""
        return str(self.state()["learner"])

    @learner.setter
    def learner(self, spec: object) -> None:
        self._patch(learner=spec if isinstance(spec, str) else getattr(spec, "spec", spec))

    @property
    def on_change(self) -> str:
        """The reaction to a detected change of an arm; may be set."""
        return str(self.state()["on_change"])

    @on_change.setter
    def on_change(self, what: str) -> None:
        self._patch(on_change=what)

    @property
    def alarms(self) -> list[Json]:
        """The detected changes, in the order of detection."""
        return list(self.state()["alarms"])

    @property
    def open(self) -> list[RemoteDecision]:
        """Decisions with pending feedback, the oldest first."""
        state = self.state()
        numbers = {arm["name"]: number for number, arm in enumerate(state["task"]["arms"])}
        return [RemoteDecision.of(one | {"numbers": [numbers[name] for name in one["arms"]]}) for one in state["open"]]

    @property
    def in_service(self) -> tuple[str, ...]:
        """The names of the available arms."""
        return tuple(arm["name"] for arm in self._arms() if arm["in_service"])

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of all arms, in the order of their numbers."""
        return tuple(arm["name"] for arm in self._arms())

    def ask_one(self) -> int:
        """Return the arm to pull in the coming slot of a task with one play a slot."""
        found = self.ask()
        if isinstance(found, tuple):
            raise ProblemError(f"{len(found)} arms are pulled a slot; ask() returns all of them")
        return found

    def ask(self, states: Any = None, *, exclude: Sequence[int | str] = ()) -> int | tuple[int, ...]:
        """Return the arm to pull in the coming slot, a tuple for several plays; asking again repeats the answer.

        ``states``, of observed arms, begin a new slot: a sequence in the order of the arms, or a mapping by name.
        """
        if self._present is None or states is not None:
            self._present = self.decide(states=states, exclude=exclude)
        arms = self._present.arms
        return arms[0] if len(arms) == 1 else arms

    def decide(
        self, request: str | None = None, *, states: Any = None, exclude: Sequence[int | str] = ()
    ) -> RemoteDecision:
        """Return a new decision, for callers with several open decisions at a time.

        ``request`` is an id chosen by the caller. The same id always gets the same decision, from any program.
        """
        body: Json = {"request": request if request is not None else uuid.uuid4().hex}
        body |= {"states": _listed(states)} if states is not None else {}
        body |= {"exclude": list(exclude)} if exclude else {}
        return RemoteDecision.of(self._client.connection.send("POST", f"{self._path}/ask", body))

    def tell(
        self,
        state: int | str | Sequence[int | str] | None = None,
        reward: float | Sequence[float] | None = None,
        arm: int | str | Sequence[int | str] | None = None,
        *,
        cost: float | Sequence[float] | None = None,
        slot: int | None = None,
        decision: RemoteDecision | str | None = None,
        lost: bool = False,
        pulled: bool | Sequence[int | str] = True,
        rewards: Any = None,
        costs: Any = None,
    ) -> Json:
        """Report the observation of the last decision, or of the decision or slot that an argument names.

        The arguments are those of ``Agent.tell``, and of observed arms those of ``ObservedAgent.tell``. Feedback that
        arrives too late to count is kept, and the return value says so.
        """
        body: Json = {}
        if decision is not None:
            body["decision"] = decision if isinstance(decision, str) else decision.id
        elif slot is not None:
            body["slot"] = slot
        elif self._present is not None:
            body["decision"] = self._present.id
        elif arm is not None:
            body["slot"] = self.slots + 1
        else:
            raise ProblemError("tell without ask: ask for an arm first, or name the decision or the slot")
        if lost:
            body["lost"] = True
        if not isinstance(pulled, bool):
            body["pulled_arms"] = list(pulled)
        elif not pulled:
            body["pulled"] = False
        for key, column in (("rewards", rewards), ("costs", costs)):
            if column is not None:
                body[key] = _listed(column)
        for key, value in (("state", state), ("reward", reward), ("cost", cost), ("arm", arm)):
            if value is not None:
                body[key] = value
        answer = self._client.connection.send("POST", f"{self._path}/tell", body)
        present = self._present
        if {"rewards", "costs", "pulled_arms"} & body.keys():
            return answer  # a slot of observed arms ends with the next states
        if present is not None and (body.get("decision") == present.id or body.get("slot") == present.slot):
            self._present = None
        return answer

    def rank(self, states: Any = None, *, top: int = 100, exclude: Sequence[int | str] = ()) -> Json:
        """Return the observed arms of the highest indices: ``arms``, ``numbers``, ``states`` and ``indices``."""
        body: Json = {"top": top, "exclude": list(exclude)}
        body |= {"states": _listed(states)} if states is not None else {}
        return self._client.connection.send("POST", f"{self._path}/rank", body)

    def skip(self, slots: int = 1) -> None:
        """Let slots pass without a pull; open decisions stay open."""
        self._client.connection.send("POST", f"{self._path}/skip", {"slots": slots, "request": uuid.uuid4().hex})
        self._present = None

    def batch(self, operations: Sequence[Mapping[str, Any]]) -> list[Json]:
        """Carry out many operations, all or nothing, and return their answers.

        Each operation is a mapping with one key: ``{"ask": {"request": …}}``, ``{"tell": {…}}`` or ``{"skip": {…}}``.
        """
        body = {"operations": [dict(one) for one in operations]}
        answers: list[Json] = self._client.connection.send("POST", f"{self._path}/batch", body)["answers"]
        return answers

    def add_arm(self, name: str, n_states: int | None = None, **more: Any) -> int:
        """Take a new arm into service, from the coming decision on; return its number.

        Arguments that are left out are as for all other arms, if they have them in common: see ``Agent.add_arm``.
        """
        own = {} if n_states is None else {"n_states": n_states}
        self._patch(add_arm={"name": name, **own, **more})
        return [arm["name"] for arm in self._arms()].index(name)

    def retire_arm(self, arm: str | int) -> None:
        """Take an arm out of service: later decisions do not pull the arm, and its observations are kept."""
        self._patch(retire_arm=self._name_of(arm))

    def restore_arm(self, arm: str | int) -> None:
        """Take a retired arm into service again, with its earlier observations."""
        self._patch(restore_arm=self._name_of(arm))

    def estimate(self) -> Json:
        """Return the estimated chains and rewards of all arms, with standard errors."""
        return self._client.connection.send("GET", f"{self._path}/estimate")

    def belief(self) -> Json:
        """Return the present distribution of the state of every arm."""
        return self._client.connection.send("GET", f"{self._path}/belief")

    def events(self, after: int = 0) -> Iterator[Json]:
        """Yield the events of the log with numbers above ``after``, up to the present."""
        while True:
            page = self._client.connection.send("GET", f"{self._path}/events?after={after}")
            yield from page["events"]
            if not page["events"] or page["next"] == after:
                return
            after = page["next"]

    history = events

    def follow(self, after: int | None = None) -> Iterator[Json]:
        """Yield events as they happen, without end: from number ``after`` on, by default only new events."""
        last = self.state()["seq"] if after is None else after
        while True:
            for line in self._client.connection.lines(f"{self._path}/stream", last):
                if line.startswith("data: "):
                    event: Json = json.loads(line[6:])
                    last = event["seq"]
                    yield event
            self.state()  # waits until the service answers again; a missing agent is an error

    def delete(self) -> None:
        """Delete the agent; the service keeps its log."""
        self._client.delete(self.name)

    def _name_of(self, arm: str | int) -> str:
        if isinstance(arm, str):
            return arm
        names = [one["name"] for one in self._arms()]
        if not 0 <= arm < len(names):
            raise ProblemError(f"there is no arm {arm!r}; arms are 0 to {len(names) - 1}")
        return str(names[arm])

    def _patch(self, **changes: Any) -> None:
        def happened(_: ServiceError) -> bool:
            """Whether the change is in effect: the service refuses the repetition of a completed change."""
            arms = {arm["name"]: arm["in_service"] for arm in self._arms()}
            return any(
                (
                    "add_arm" in changes and changes["add_arm"]["name"] in arms,
                    "retire_arm" in changes and arms.get(changes["retire_arm"]) is False,
                    "restore_arm" in changes and arms.get(changes["restore_arm"]) is True,
                )
            )

        self._client.connection.send("PATCH", self._path, changes, again=happened)


def _listed(column: Any) -> Any:
    """Return a number for each arm, or a mapping by name, for JSON: None where a number is missing."""
    if isinstance(column, Mapping):
        return {str(name): None if value != value else value for name, value in column.items()}
    return [None if value is None or value != value else value for value in column]


def _path(name: str) -> str:
    return f"/agents/{quote(name, safe='')}"


def _encoded(body: Json) -> bytes:
    # Non-finite numbers are sent unchanged, so that the service refuses them by their value.
    return json.dumps(body, separators=(",", ":"), default=_to_json).encode()


def _to_json(value: Any) -> Any:
    """Convert NumPy numbers and arrays for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ProblemError(f"{shortened(value)} cannot be sent; give numbers, texts, or lists of them")


def _decoded(response: httpx.Response) -> Json:
    try:
        found = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProblemError(
            f"{response.url.host} answered {response.status_code}, but is not this service; check the url"
        )
    return found


def _refusal(response: httpx.Response) -> ServiceError:
    """Return the message of a refusal; the refusal of a proxy in between has no message."""
    try:
        said = response.json()
        sentence, field = str(said["error"]), said.get("field")
    except (ValueError, TypeError, KeyError):
        sentence, field = f"{response.url.host} answered {response.status_code} {response.reason_phrase}", None
    after = response.headers.get("retry-after", "")
    return ServiceError(response.status_code, sentence, field, float(after) if after.isdigit() else None)


def _trusted(file: str) -> Any:
    import ssl

    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ProblemError(f"{file} holds no certificates to trust: {error.strerror or error}") from None
