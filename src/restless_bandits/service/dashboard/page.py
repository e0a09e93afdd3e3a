"""The dashboard: login, static files, and the data routes.

The dashboard is plain HTML, CSS and JavaScript in ``assets``. A content security policy forbids foreign scripts and
foreign requests. Worker processes of low priority do the slow analyses (``analysis``), and results are cached briefly.
Ten viewers therefore cost as much as a single viewer. Current events arrive as a stream, a few frames a second,
whatever the number of slots in a frame.

The cookie holds the id of a session, not the token. Only pages of this host send the cookie (SameSite=Strict), and no
script can read it. The middleware accepts the cookie for GET requests only, with the role ``read``.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from restless_bandits._internal.templates import render
from restless_bandits._internal.validation import to_jsonable
from restless_bandits.model.record import Record
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.api.auth import SESSION_SECONDS, Sessions, TokenAuthenticator, cookie_name, session_in
from restless_bandits.service.api.event_streams import Streams
from restless_bandits.service.api.loop_bridge import BridgeThreads
from restless_bandits.service.api.messages import check_keys
from restless_bandits.service.dashboard import analysis
from restless_bandits.service.dashboard.executor import DashboardExecutor
from restless_bandits.service.dashboard.observed import copied, observed_view
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.writer import CommandProcessor

POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
CONTENT_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
EVERY, EVERY_OVERVIEW = 0.2, 1.0
"""Seconds between two frames."""
PAGE_THREADS = 4
SHOWN_SLOTS, READ_EVENTS = 300, 900
SHOWN_AGENTS, LATELY = 50, 200
"""Agents of an overview, and the events that give their recent rate and reward."""
LONGEST_TOKEN, LONGEST_CHANGE = 500, 50_000
SHOWN_PULLS = 64
CODE_SECONDS = 120.0
MOST_TRIED, MOST_STATES = 8, 8
"""Largest numbers of arms and states of a hypothetical problem."""


class Codes:
    """Single-use login codes for a browser that the service opens, so that no address shows a token."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[str, float]] = {}

    def make(self, token: str) -> str:
        """Return a login code for a token, valid once and for two minutes."""
        code = secrets.token_urlsafe(24)
        self._tokens[code] = token, time.monotonic() + CODE_SECONDS
        return code

    def take(self, code: str) -> str | None:
        """Return the token of an unused code."""
        token, until = self._tokens.pop(code, (None, 0.0))
        return token if time.monotonic() < until else None


def present_of(agent_state: ServiceAgent) -> dict[str, Any]:
    """Return the values that change with every slot."""
    core, totals = agent_state.core, agent_state.totals
    record = core.record
    if agent_state.is_observed:
        return {
            **{word: getattr(totals, word) for word in ("asked", "told", "lost", "unused", "skipped", "reward")},
            "seq": agent_state.seq,
            "slots": core.slots,
            "open": agent_state.open_decisions,
            "plan": core.plans,
            "planning": False,
            "alarms": 0,
        }
    shown = min(record.n_arms, 4 * analysis.SHOWN_ARMS)
    return {
        "seq": agent_state.seq,
        "slots": core.slots,
        "open": agent_state.open_decisions,
        "asked": totals.asked,
        "told": totals.told,
        "lost": totals.lost,
        "unused": totals.unused,
        "skipped": totals.skipped,
        "reward": totals.reward,
        "plan": core.plans,
        "planning": core.is_planning,
        "last_states": record.last_states[:shown].tolist(),
        "elapsed": record.elapsed[:shown].tolist(),
        **({"unseen": unseen_pulls(record, shown)} if record.unseen else {}),
        "alarms": len(core.alarms),
    }


def unseen_pulls(record: Record, shown: int) -> dict[str, list[Any]]:
    """Return, for each of the first arms with unanswered pulls: the last state, the slots since, and since each pull.

    The last state is −1 where it is unknown, or too many pulls ago.
    """
    present, found = record.slots + 1, {}
    for arm, (state, slot, pulls) in record.unseen.items():
        if arm < shown:
            known = state < record.n_states[arm] and len(pulls) <= SHOWN_PULLS
            since = [present - pull for pull in pulls[-SHOWN_PULLS:]]
            found[str(arm)] = [state if known else -1, present - slot, since]
    return found


def recent(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outcome of each slot in the events: the state of each arm, or the mark open or lost."""
    found: dict[int, dict[str, Any]] = {}
    for event in events:
        kind = event["kind"]
        # Events of observed arms hold their arms in packed columns.
        if kind not in ("ask", "tell", "lost") or event.get("again") or not isinstance(event.get("arms"), list):
            continue
        slot = found.setdefault(event["slot"], {"slot": event["slot"], "arms": {}})
        for n, arm in enumerate(event["arms"]):
            if kind == "ask":
                slot["arms"].setdefault(arm, {})
            elif kind == "lost":
                slot["arms"].setdefault(arm, {})["lost" if event.get("pulled", True) else "unpulled"] = True
            else:
                slot["arms"][arm] = {"state": event["states"][n], "reward": event["rewards"][n]}
    return [found[slot] for slot in sorted(found)][-SHOWN_SLOTS:]


def glance(row: Mapping[str, Any], present: Mapping[str, Any], events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the line of an agent in the overview."""
    asked = [event["at"] for event in events if event["kind"] == "ask" and not event.get("again")]
    told = [event for event in events if event["kind"] == "tell" and isinstance(event.get("rewards"), list)]
    rewards = [reward for event in told for reward in event["rewards"]]
    paid = [event["earned"] / event["told"] for event in events if event.get("told")]
    rewards = rewards or paid
    quiet = time.time() - asked[-1] if asked else 0.0
    # A pause counts: an agent without decisions for a minute does not keep the rate of a minute ago.
    span = (asked[-1] - asked[0] if len(asked) > 1 else 0.0) + (quiet if quiet > 2.0 else 0.0)
    return {
        **{key: row[key] for key in ("name", "learner", "arms", "clock")},
        **{key: present[key] for key in ("slots", "seq", "open", "lost", "alarms", "plan", "planning")},
        "rate": (len(asked) - 1) / span if len(asked) > 1 and span > 0 else 0.0,
        "lately": sum(rewards) / len(rewards) if rewards else None,
        "quiet": quiet if asked else None,
    }


class Page:
    """The handlers of the dashboard's routes."""

    def __init__(
        self,
        writer: CommandProcessor,
        authenticator: TokenAuthenticator,
        sessions: Sessions,
        streams: Streams,
        codes: Codes,
    ) -> None:
        self._writer, self._authenticator, self._sessions = writer, authenticator, sessions
        self._streams, self._codes = streams, codes
        self._aside = BridgeThreads("page", PAGE_THREADS)
        self._analysis = DashboardExecutor(writer, self._aside)
        streams.at_stop += [self._analysis.close, self._aside.close]
        self._glance: tuple[float, dict[str, Any]] = (0.0, {})
        self._views: dict[int, dict[str, Any]] = {}
        self.files = {
            path.name: path.read_bytes()
            for path in (resources.files(__package__) / "assets").iterdir()
            if path.name.rpartition(".")[2] in CONTENT_TYPES
        }

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.home),
            Route("/login", self.login_form),
            Route("/login", self.login, methods=["POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/assets/{name}", self.asset),
            Route("/favicon.ico", self.icon),
            Route("/page/overview", self.overview),
            Route("/page/agent", self.agent),
            Route("/page/observed", self.observed),
            Route("/page/thoughts", self.thoughts),
            Route("/page/what-if", self.what_if),
            Route("/page/live", self.live),
        ]

    async def home(self, request: Request) -> Response:
        session = session_in(request.scope)
        role = None if session is None else await self._sessions.role(session)
        if role is None:
            return RedirectResponse("/login", 303)
        await self._aside(self._analysis.begin)
        return self._html("index.html", role=role)

    async def login_form(self, request: Request) -> Response:
        token = self._codes.take(request.query_params.get("code", ""))
        if token is not None and await self._authenticator.role(token) is not None:
            return self._entered(request, token)
        return self._html("login.html", message="")

    async def login(self, request: Request) -> Response:
        if not _from_here(request):
            raise ServiceError(403, "another site has sent this form; log in on this page")
        body = await request.body()
        fields = parse_qs(body[: 2 * LONGEST_TOKEN].decode("latin-1"))
        token = fields.get("token", [""])[0].strip()
        if not token or len(token) > LONGEST_TOKEN or await self._authenticator.role(token) is None:
            return self._html("login.html", 401, message="This token is not known.")
        return self._entered(request, token)

    async def logout(self, request: Request) -> Response:
        if not _from_here(request):
            raise ServiceError(403, "another site has sent this form; log out on this page")
        self._end(request)
        answer = RedirectResponse("/login", 303)
        scheme = request.url.scheme
        answer.delete_cookie(cookie_name(scheme), httponly=True, samesite="strict", secure=scheme == "https")
        return answer

    def _end(self, request: Request) -> None:
        """End the session of a browser, if a session exists."""
        session = session_in(request.scope)
        if session is not None:
            self._sessions.end(session)

    def _entered(self, request: Request, token: str) -> Response:
        # A browser that follows a foreign link withholds a strict cookie in the next redirect. So the answer is a page
        # of this host that goes on by itself.
        self._end(request)
        answer = self._html("entered.html")
        scheme = request.url.scheme
        answer.set_cookie(
            cookie_name(scheme),
            self._sessions.begin(token),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=scheme == "https",
        )
        return answer

    async def icon(self, _: Request) -> Response:
        return self._file("icon.svg")

    async def asset(self, request: Request) -> Response:
        return self._file(request.path_params["name"])

    def _file(self, name: str) -> Response:
        if name not in self.files:
            raise ServiceError(404, "there is no such file")
        kind = CONTENT_TYPES[name.rpartition(".")[2]]
        return Response(self.files[name], media_type=f"{kind}; charset=utf-8", headers={"cache-control": "no-cache"})

    def _html(self, name: str, status: int = 200, **values: str) -> Response:
        text = render(f"service/dashboard/{name}.j2", **values)
        return Response(text, status, {"content-security-policy": POLICY}, "text/html; charset=utf-8")

    async def overview(self, request: Request) -> Response:
        return _json(await self._aside(self._overview, request.query_params.get("search", "")))

    def _overview(self, search: str) -> dict[str, Any]:
        """Return the overview of all agents, or of agents by name; cached briefly for several viewers."""
        at, known = self._glance
        if not search and time.monotonic() - at < EVERY_OVERVIEW / 2:
            return known
        rows = [row for row in self._writer.agents() if search.lower() in row["name"].lower()]
        shown = []
        for row in rows[:SHOWN_AGENTS]:
            try:
                present = self._writer.read(row["name"], present_of)
                events = self._writer.events(row["name"], max(0, present["seq"] - LATELY), LATELY)["events"]
            except ServiceError:  # deleted in between
                continue
            shown.append(glance(row, present, events))
        found = {"agents": shown, "count": len(rows)}
        if not search:
            self._glance = time.monotonic(), found
        return found

    async def agent(self, request: Request) -> Response:
        name = _name(request)

        def read() -> dict[str, Any]:
            view = self._writer.agent(name)
            events = self._writer.events(name, max(0, view["seq"] - READ_EVENTS), READ_EVENTS + 100)["events"]
            present = self._writer.read(name, present_of)
            return {"agent": view, "present": present, "recent": recent(events), "after": _last(events, view["seq"])}

        return _json(await self._aside(read))

    async def observed(self, request: Request) -> Response:
        return _json(await self._aside(self._observed, _name(request)))

    def _observed(self, name: str) -> dict[str, Any]:
        """Return the view of an agent of observed arms; cached by event for several viewers."""
        number, seq, is_observed = self._writer.read(name, lambda one: (one.number, one.seq, one.is_observed))
        if not is_observed:
            raise ServiceError(409, f"agent {name!r} sees the arms that are pulled; its view is /page/agent", "name")
        known = self._views.get(number)
        if known is not None and known["seq"] == seq:
            return known
        if len(self._views) >= SHOWN_AGENTS:
            self._views.clear()
        self._views[number] = found = observed_view(self._writer.read(name, copied))
        return found

    async def thoughts(self, request: Request) -> Response:
        name = _name(request)
        if await self._aside(self._writer.read, name, lambda one: one.is_observed):
            raise ServiceError(409, f"agent {name!r} observes all arms; its view is /page/observed", "name")
        return _json(await self._analysis.think(name))

    async def what_if(self, request: Request) -> Response:
        given = request.query_params.get("arms", "")
        if len(given) > LONGEST_CHANGE:
            raise ServiceError(413, f"the text of the arms is longer than {LONGEST_CHANGE} characters; give fewer arms")
        arms, plays = _tried(given, request.query_params.get("plays", "1"))
        return _json(await self._analysis.what_if(arms, plays))

    async def live(self, request: Request) -> Response:
        name = request.query_params.get("name")
        frames = self._overview_frames() if name is None else await self._agent_frames(name, request)
        every = EVERY_OVERVIEW if name is None else EVERY
        return StreamingResponse(
            self._streams.frames(name, frames, every, request.state.role_of),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    def _overview_frames(self) -> Callable[[], Awaitable[dict[str, Any] | None]]:
        async def frame() -> dict[str, Any] | None:
            found: dict[str, Any] = to_jsonable(await self._aside(self._overview, ""))
            return found

        return frame

    async def _agent_frames(self, name: str, request: Request) -> Callable[[], Awaitable[dict[str, Any] | None]]:
        after = request.query_params.get("after", "")
        known = int(after) if after.isascii() and after.isdigit() and len(after) < 17 else -1
        await self._aside(self._writer.read, name, present_of)  # a missing agent is refused before the stream begins

        def read() -> dict[str, Any] | None:
            nonlocal known
            present = self._writer.read(name, present_of)
            if present["seq"] == known:
                return None
            # After any number of events, a frame shows the latest events.
            begin = max(known, present["seq"] - READ_EVENTS)
            events = self._writer.events(name, begin, READ_EVENTS + 100)["events"]
            known = _last(events, present["seq"])
            frame: dict[str, Any] = to_jsonable({"present": present, "recent": recent(events), "after": known})
            return frame

        async def frame() -> dict[str, Any] | None:
            return await self._aside(read)

        return frame


def _last(events: list[dict[str, Any]], otherwise: int) -> int:
    return int(events[-1]["seq"]) if events else otherwise


def _name(request: Request) -> str:
    name = request.query_params.get("name")
    if name is None:
        raise ServiceError(422, "name is missing; name an agent", "name")
    return name


def _tried(given: str, plays: str) -> tuple[list[dict[str, Any]], int]:
    """Return the arms of a problem that a viewer tries; an invalid problem is refused at construction."""
    try:
        arms = json.loads(given)
        fine = isinstance(arms, list) and 1 <= len(arms) <= MOST_TRIED and 0 < len(plays) < 4
        fine &= plays.isascii() and plays.isdigit()
        for arm in arms if fine else []:
            fine &= set(arm) - set(analysis.FEATURES) == {"name", "transitions", "rewards", "reward_range"}
            active, resting = arm.get("active_transitions", arm["transitions"]), arm.get("passive_rewards", [])
            fine &= len(active) == len(arm["rewards"]) and len(resting) in (0, len(active))
            fine &= all(len(row) == len(active) for row in active)
            fine &= len(arm["transitions"]) == len(arm["rewards"]) <= MOST_STATES and len(arm["reward_range"]) == 2
            fine &= all(len(row) == len(arm["rewards"]) for row in arm["transitions"])
            numbers = [*arm["rewards"], *arm["reward_range"], *(p for row in arm["transitions"] for p in row)]
            numbers += [*resting, arm.get("setup_cost", 0.0), *(p for row in active for p in row)]
            fine &= all(isinstance(one, int | float) and abs(one) < 1e12 for one in numbers)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        fine = False
    if not fine:
        raise ServiceError(
            422, "arms are not a short list of small arms; give [{name, transitions, rewards, reward_range}, …]", "arms"
        )
    check_keys(given)
    return arms, int(plays)


def _from_here(request: Request) -> bool:
    """Whether a page of this host sent a form; browsers report the origin, other programs hold no cookies to abuse."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        return site in ("same-origin", "none")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def _json(answer: Any) -> Response:
    return Response(
        json.dumps(to_jsonable(answer), separators=(",", ":"), allow_nan=False), media_type="application/json"
    )


def routes(
    writer: CommandProcessor, authenticator: TokenAuthenticator, sessions: Sessions, streams: Streams, codes: Codes
) -> list[BaseRoute]:
    """Return the routes of the dashboard."""
    return Page(writer, authenticator, sessions, streams, codes).routes()


__all__ = ["Codes", "Page", "routes"]
