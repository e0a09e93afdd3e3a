"""The ASGI middleware: checks the host name, token and size of every request, and the number of requests in progress.

The middleware also answers ``ask``, ``tell`` and ``batch``, which arrive thousands of times a second, without the web
framework. ``app.py`` declares these routes for the API description and serves all other requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from restless_bandits._internal.errors import ProblemError
from restless_bandits.service.api import messages
from restless_bandits.service.api.auth import (
    AllowedHosts,
    Sessions,
    TokenAuthenticator,
    enough,
    needed_role,
    session_in,
)
from restless_bandits.service.api.event_streams import ROUTES as STREAM_ROUTES
from restless_bandits.service.api.event_streams import RoleOf, Streams
from restless_bandits.service.api.loop_bridge import LoopBridge
from restless_bandits.service.api.metrics import Meter, RouteTable
from restless_bandits.service.operations import ServiceError
from restless_bandits.service.quotas import Quotas

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_SECONDS, HURRY = 30.0, 0.5
"""Seconds to wait for a part of a body, in operation and while the service stops."""
HOT: dict[str, type[messages.Message]] = {
    "ask": messages.AskMessage,
    "tell": messages.TellMessage,
    "batch": messages.BatchMessage,
}
LONG = frozenset({"ask", "tell", "rank"})
"""Actions whose bodies may hold a number for each of very many observed arms."""
SAFE: list[Header] = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
JSON: list[Header] = [(b"content-type", b"application/json"), *SAFE]

log = logging.getLogger("restless_bandits.service")
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


class ServiceMiddleware:
    """The outermost ASGI application."""

    def __init__(
        self,
        app: App,
        writer: Any,
        authenticator: TokenAuthenticator,
        sessions: Sessions,
        allowed_hosts: AllowedHosts,
        quotas: Quotas,
        meter: Meter,
        routes: RouteTable,
        bridge: LoopBridge,
        streams: Streams,
    ) -> None:
        self.app, self._writer, self._authenticator, self._sessions = app, writer, authenticator, sessions
        self._allowed_hosts, self._quotas, self._meter, self._routes = allowed_hosts, quotas, meter, routes
        self._bridge = bridge
        self.streams = streams
        self._busy = 0
        self._stopping = False
        self._reading: set[asyncio.Timeout] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        start = time.perf_counter()
        answer = _Noting(send)
        path: str = scope["path"]
        route = self._routes.label(path)
        try:
            self._busy += 1
            if self._busy > self._quotas.clients:
                raise ServiceError(503, "too many requests are in progress; try again", retry_after=1.0)
            size = await self._admit(scope, path)
            head, _, action = path.rpartition("/")
            of_agent = scope["method"] == "POST" and head.startswith("/agents/") and "/" not in head[8:]
            most = self._quotas.body
            if size > most and of_agent and action in LONG:
                most = await self._most_bytes(head[8:])
            if size > most:
                raise too_large(most)
            if action in HOT and of_agent:
                body = await self._body(receive, most)
                # A long body would keep other requests waiting.
                is_long = len(body) > self._quotas.body
                read = functools.partial(messages.read, HOT[action], body)
                message = await asyncio.to_thread(read) if is_long else read()
                results = await self._bridge.awaited(self._writer.submit(head[8:], message.to_operations()))
                await reply(send, 200, {"answers": results} if action == "batch" else results[0])
                answer.status = 200
            else:
                with self.streams.place() if route in STREAM_ROUTES else contextlib.nullcontext():
                    await self.app(scope, self._measured(receive, most), answer)
        except ProblemError as error:
            if not answer.status:
                await refuse(answer, error if isinstance(error, ServiceError) else ServiceError(422, str(error)))
        except asyncio.CancelledError:
            raise
        except Exception:  # an internal error of any kind: the log shows the details, the answer does not
            log.exception("a request failed: %s %s", scope["method"], route)
            if not answer.status:
                await refuse(answer, fault())
        finally:
            self._busy -= 1
            seconds = None if route in STREAM_ROUTES else time.perf_counter() - start
            self._meter.note(route, answer.status, seconds)

    def stop(self) -> None:
        """End open streams and unfinished bodies, which would not end by themselves."""
        self._stopping = True
        self.streams.stop()
        for limit in self._reading:
            limit.reschedule(asyncio.get_running_loop().time() + HURRY)

    async def _admit(self, scope: Scope, path: str) -> int:
        """Refuse a request without permission; return the announced length of the body."""
        host = authorization = None
        size = 0
        for key, value in scope["headers"]:
            if key == b"authorization":
                if authorization is not None:
                    raise ServiceError(400, "the request has two Authorization headers; send one")
                authorization = value
            elif key == b"host":
                if host is not None:
                    raise ServiceError(400, "the request has two Host headers; send one")
                host = value
            elif key == b"content-length":
                size = int(value) if value.isdigit() and len(value) < 20 else self._quotas.body + 1
        if host not in self._allowed_hosts:
            raise ServiceError(
                400, "the name in the Host header is not allowed; start the service with --allow-host NAME"
            )
        method: str = scope["method"]
        needed = needed_role(method, path)
        if needed is None:
            return size
        token = _bearer(authorization)
        session = session_in(scope) if authorization is None and method == "GET" else None
        role_of: RoleOf = _nobody
        if token is not None:
            role_of = functools.partial(self._authenticator.role, token)
        elif session is not None:
            role_of = functools.partial(self._sessions.role, session)
        role = await role_of()
        if role is None:
            why = "this token is not known" if token else "this session has ended" if session else "a token is needed"
            raise ServiceError(401, f"{why}; send the header Authorization: Bearer TOKEN")
        scope.setdefault("state", {})["role_of"] = role_of
        if not enough(role, needed):
            raise ServiceError(403, f"this token may {role}, and {needed} is needed; restless token makes another")
        return size

    async def _part(self, receive: Receive) -> MutableMapping[str, Any]:
        """Return the next part of a body, if the part arrives in time."""
        limit = asyncio.timeout(HURRY if self._stopping else BODY_SECONDS)
        self._reading.add(limit)
        try:
            async with limit:
                return await receive()
        except TimeoutError:
            raise ServiceError(400, "the body of the request did not arrive in time; send it faster") from None
        finally:
            self._reading.discard(limit)

    async def _most_bytes(self, name: str) -> int:
        """Return the largest body of ask, tell and rank: longer for agents that observe all arms."""
        is_observed = await self._bridge.awaited(
            self._writer.look_later(name, lambda agent_state: agent_state.is_observed)
        )
        return self._quotas.observed_body if is_observed else self._quotas.body

    async def _body(self, receive: Receive, most: int) -> bytes:
        """Return the whole body of a request."""
        chunks, more, measured = [], True, self._measured(receive, most)
        while more:
            message = await measured()
            if message["type"] == "http.disconnect":
                raise gone()
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        return b"".join(chunks)

    def _measured(self, receive: Receive, most: int) -> Receive:
        """Return a receiver for the parts of a body, which refuses a body that is too long or too slow."""
        size, more = 0, True

        async def measured() -> MutableMapping[str, Any]:
            nonlocal size, more
            # Only the end of the connection follows the body, after an unbounded time.
            message = await (self._part(receive) if more else receive())
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
            if size > most:
                raise too_large(most)
            return message

        return measured


class _Noting:
    """A wrapper of ``send`` that records the status and adds the common headers of every answer."""

    __slots__ = ("_send", "status")

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"]
            if not isinstance(headers, list) or headers[: len(JSON)] != JSON:
                given = [(bytes(key).lower(), bytes(value)) for key, value in headers]
                available = {key for key, _ in given}
                message = {**message, "headers": [*given, *(one for one in SAFE if one[0] not in available)]}
        await self._send(message)


async def reply(send: Send, status: int, answer: Any, more: Iterable[Header] = ()) -> None:
    """Send an answer as JSON."""
    body = _encoded(answer).encode()
    headers = [*JSON, (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, error: ServiceError) -> None:
    """Send the reason of a refusal."""
    more = [(key.encode(), value.encode()) for key, value in headers_of(error).items()]
    if error.status in (413, 503):
        more.append((b"connection", b"close"))
    await reply(send, error.status, {"error": str(error), "field": error.field}, more)


def headers_of(error: ServiceError) -> dict[str, str]:
    """Return the headers of a refusal."""
    found = {}
    if error.retry_after is not None or error.status in (429, 503):
        found["retry-after"] = str(max(1, round(error.retry_after or 1)))
    if error.status == 401:
        found["www-authenticate"] = "Bearer"
    return found


def too_large(most: int) -> ServiceError:
    return ServiceError(413, f"the body is longer than {most} bytes; send less at a time")


def gone() -> ServiceError:
    return ServiceError(400, "the client disconnected before the end of the body")


def fault() -> ServiceError:
    """Return the refusal for an internal error: the answer gives no location, the log does."""
    return ServiceError(503, "the service failed on this request, and its log says why; try again", retry_after=1.0)


def _bearer(value: bytes | None) -> str | None:
    if value is None or value[:7].lower() != b"bearer ":
        return None
    return value[7:].strip().decode("latin-1") or None


async def _nobody() -> str | None:
    return None
