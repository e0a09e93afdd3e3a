"""The HTTP application: every route with its request and its reply, and the API description at ``/openapi.json``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, BeforeValidator
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.routing import Route

from restless_bandits import __version__
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import to_jsonable
from restless_bandits.service.api import messages
from restless_bandits.service.api.agent_reader import AgentReader
from restless_bandits.service.api.auth import AllowedHosts, Sessions, TokenAuthenticator, TokenRoles
from restless_bandits.service.api.event_streams import Streams
from restless_bandits.service.api.loop_bridge import BridgeThreads, LoopBridge
from restless_bandits.service.api.messages import MOST, QUOTAS
from restless_bandits.service.api.metrics import CONTENT_TYPE, Meter, RouteTable
from restless_bandits.service.api.middleware import ServiceMiddleware, fault, gone, headers_of
from restless_bandits.service.dashboard.page import Codes
from restless_bandits.service.dashboard.page import routes as page_routes
from restless_bandits.service.operations import Answer, Delete, Operation, ServiceError
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.views import belief_of, estimate_of

DESCRIPTION = (
    "Agents that decide which of several drifting arms to pull, kept by a service that never loses an acknowledged "
    "operation. Requests carry `Authorization: Bearer TOKEN`. Every refusal is one sentence in `error`."
)
STATUSES = {
    400: "The request is malformed.",
    401: "The token is missing or unknown.",
    403: "The role of the token does not permit the request.",
    404: "The agent, decision or path does not exist.",
    409: "The request contradicts the stored state.",
    413: "The body is too long.",
    422: "A field is wrong; `field` names it.",
    429: "A limit is reached; try again after the seconds of Retry-After.",
    503: "The service cannot answer now; try again after the seconds of Retry-After.",
}
ACCESS_THREADS = 4
"""The number of threads reserved for lookups of tokens and of the store's health."""
Adding = Callable[[Callable[..., Any]], Any]
"""The decorator that adds a route."""
Name = Annotated[str, Path(description="The agent's name.")]
DIGITS = BeforeValidator(messages.digits_of)
After = Annotated[int, DIGITS, Query(ge=0, le=MOST, description="The number of the last known event.")]
Begin = Annotated[
    int | None, DIGITS, Query(ge=0, le=MOST, description="Like Last-Event-ID; without both, new events only.")
]
PageLength = Annotated[int, DIGITS, Query(ge=1, le=QUOTAS.page, description="Events of a page.")]


def build(
    writer: Any,
    tokens: TokenRoles,
    *,
    quotas: Quotas | None = None,
    known_hosts: Iterable[str] = (),
    page: bool = True,
    codes: Codes | None = None,
) -> ServiceMiddleware:
    """Return the whole service as an ASGI application; ``stop()`` ends open streams and unfinished bodies."""
    quotas = quotas or Quotas()
    access = BridgeThreads("access", ACCESS_THREADS)
    authenticator, meter = TokenAuthenticator(tokens, access), Meter(writer)
    streams = Streams(writer, quotas.streams, quotas.page)
    sessions = Sessions(authenticator, quotas.sessions, quotas.token_sessions)
    bridge = LoopBridge()
    reader = AgentReader(writer, bridge, quotas.estimates)
    streams.at_stop.append(reader.close)
    app = FastAPI(
        title="restless-bandits",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _handle_errors(app)
    _play_routes(app, writer, bridge, reader)
    _read_routes(app, writer, reader, streams, meter, access)
    if page:
        app.router.routes.extend(page_routes(writer, authenticator, sessions, streams, codes or Codes()))
    setattr(app, "openapi", lambda: _described(app))  # noqa: B010
    routes = RouteTable(route.path for route in app.routes if isinstance(route, Route))
    return ServiceMiddleware(
        app, writer, authenticator, sessions, AllowedHosts(known_hosts), quotas, meter, routes, bridge, streams
    )


def _json(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(to_jsonable(answer), separators=(",", ":"), allow_nan=False)
    return Response(body, status, headers, "application/json")


def _handle_errors(app: FastAPI) -> None:
    """Answer all errors in the same shape."""

    def refusal(request: Request, error: Exception) -> ServiceError:
        match error:
            case ServiceError():
                return error
            case ProblemError():
                return ServiceError(422, str(error))
            case RequestValidationError():
                first = error.errors()[0]
                field = str(first["loc"][-1])
                return ServiceError(422, messages.sentence(first, field), field)
            case HTTPException(status_code=404 | 405):
                return ServiceError(404, f"there is no {request.method} here; /openapi.json lists the routes")
            case HTTPException():
                return ServiceError(400, str(error.detail))
            case ClientDisconnect():
                return gone()
        return fault()  # The middleware finds the error too, and logs it.

    async def refused(request: Request, error: Exception) -> Response:
        found = refusal(request, error)
        return _json({"error": str(found), "field": found.field}, found.status, headers_of(found))

    for kind in (ProblemError, RequestValidationError, HTTPException, ClientDisconnect, Exception):
        app.add_exception_handler(kind, refused)


def _takes(model: type[BaseModel]) -> dict[str, Any]:
    """Return the description of a request body; the route itself reads the body from its bytes."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the refusals of a route, besides the refusals that all routes share."""
    always = (400, 401, 403, 503)
    return {
        status: {"model": messages.ErrorReply, "description": STATUSES[status]}
        for status in sorted({*always, *statuses})
    }


def _play_routes(app: FastAPI, writer: Any, bridge: LoopBridge, reader: AgentReader) -> None:
    """Add the routes that change an agent."""

    async def done(name: str, operations: Sequence[Operation]) -> list[Answer]:
        results: list[Answer] = await bridge.awaited(writer.submit(name, operations))
        return results

    def takes(method: str, path: str, model: type[messages.Message], answer: type[BaseModel], **more: Any) -> Adding:
        """Return the decorator of a route that reads a message from the body."""
        always: Any = {"responses": _refusals(404, 409, 413, 422, 429), "tags": ["play"]}
        extra = _takes(model)
        return app.api_route(path, methods=[method], openapi_extra=extra, response_model=answer, **always, **more)

    def changes(method: str, action: str, model: type[messages.Message], answer: type[BaseModel], summary: str) -> None:
        """Add a route whose message is a single operation on an agent."""

        @takes(method, "/agents/{name}" + action, model, answer, summary=summary, name=action[1:] or method.lower())
        async def change(request: Request, name: Name) -> Response:
            message = messages.read(model, await request.body())
            return _json((await done(name, message.to_operations()))[0])

    @takes("POST", "/agents", messages.CreateMessage, messages.Reply, status_code=201, summary="Make an agent.")
    async def create(request: Request) -> Response:
        message = messages.read(messages.CreateMessage, await request.body())
        return _json((await done(message.name, message.to_operations()))[0], 201)

    patched = "Exchange the learner, the late window, the arms in service."
    changes("PATCH", "", messages.PatchMessage, messages.Reply, patched)

    @app.delete(
        "/agents/{name}",
        response_model=messages.Reply,
        responses=_refusals(404, 409, 422, 429),
        tags=["play"],
        summary="Delete an agent; its log is kept.",
    )
    async def delete(name: Name) -> Response:
        return _json((await done(name, [Delete()]))[0])

    # The middleware answers ask, tell and batch directly, without the web framework in between.
    changes("POST", "/ask", messages.AskMessage, messages.DecisionReply, "Which arms to pull.")
    changes("POST", "/tell", messages.TellMessage, messages.Reply, "What was seen.")
    changes("POST", "/skip", messages.SkipMessage, messages.Reply, "Let slots pass.")

    @takes("POST", "/agents/{name}/rank", messages.RankMessage, messages.RankReply, summary="Observed arms by index.")
    async def rank(request: Request, name: Name) -> Response:
        # A long body would keep other requests waiting.
        message = await asyncio.to_thread(messages.read, messages.RankMessage, await request.body())
        asked = (message.states, message.top, message.exclude)
        return _json(await reader.look(name, lambda agent_state: agent_state.rank(*asked)))

    together = "Operations, all or nothing."

    @takes("POST", "/agents/{name}/batch", messages.BatchMessage, messages.BatchReply, summary=together)
    async def batch(request: Request, name: Name) -> Response:
        message = messages.read(messages.BatchMessage, await request.body())
        return _json({"answers": await done(name, message.to_operations())})


def _read_routes(
    app: FastAPI, writer: Any, reader: AgentReader, streams: Streams, meter: Meter, access: BridgeThreads
) -> None:
    """Add the routes that change nothing."""

    def get(path: str, answer: type[BaseModel], *refusals: int, **more: Any) -> Adding:
        responses = _refusals(404, 422, *refusals) if "{name}" in path else _refusals()
        return app.get(path, response_model=answer, responses=responses, tags=["read"], **more)

    @get("/agents", messages.AgentsReply, summary="All agents.")
    async def agents() -> Response:
        return _json({"agents": await asyncio.to_thread(writer.agents)})

    @get("/agents/{name}", messages.Reply, summary="An agent: its task, learner, clock, slots, rewards.")
    async def agent(name: Name) -> Response:
        return _json(await reader.look(name, lambda agent_state: agent_state.view()))

    @get("/agents/{name}/events", messages.EventsReply, summary="The log, a page at a time.")
    async def events(name: Name, after: After = 0, limit: PageLength = QUOTAS.page) -> Response:
        return _json(await asyncio.to_thread(writer.events, name, after, limit))

    @app.get(
        "/agents/{name}/stream",
        response_class=StreamingResponse,
        responses=_refusals(404, 422, 429) | {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        tags=["read"],
        summary="The log as it grows: server-sent events.",
    )
    async def stream(request: Request, name: Name, after: Begin = None) -> Response:
        said = request.headers.get("last-event-id", "")
        if said and not (said.isascii() and said.isdigit() and len(said) < 17):
            raise ServiceError(422, "Last-Event-ID is not the number of an event", "Last-Event-ID")
        if said or after is not None:
            await asyncio.to_thread(writer.events, name, 0, 1)  # a missing agent is refused before the stream begins
            begin = int(said) if said else int(after or 0)
        else:
            begin = await reader.look(name, lambda agent_state: agent_state.seq)
        return StreamingResponse(
            streams.lines(name, begin, request.state.role_of),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    @get("/agents/{name}/estimate", messages.Reply, 429, summary="Chains and rewards, with standard errors.")
    async def estimate(name: Name) -> Response:
        return Response(await reader.compute(estimate_of, name), media_type="application/json")

    @get("/agents/{name}/belief", messages.Reply, 429, summary="The present state distribution of every arm.")
    async def belief(name: Name) -> Response:
        return Response(await reader.compute(belief_of, name), media_type="application/json")

    @app.get(
        "/health",
        response_model=messages.HealthReply,
        responses={503: {"model": messages.ErrorReply, "description": STATUSES[503]}},
        tags=["read"],
        summary="Whether the service can answer and write; needs no token.",
    )
    async def health() -> Response:
        return _json(await access(writer.health))

    @app.get(
        "/metrics",
        response_class=Response,
        responses=_refusals() | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        tags=["read"],
        summary="Counters for Prometheus.",
    )
    async def metrics() -> Response:
        return Response(await asyncio.to_thread(meter.text), media_type=CONTENT_TYPE)


def _described(app: FastAPI) -> dict[str, Any]:
    """Return the API description, with the messages that routes read by themselves."""
    if app.openapi_schema is None:
        described = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=list(app.routes)
        )
        models: list[type[BaseModel]] = [
            messages.CreateMessage,
            messages.AskMessage,
            messages.TellMessage,
            messages.SkipMessage,
            messages.BatchMessage,
            messages.PatchMessage,
            messages.RankMessage,
        ]
        _, definitions = models_json_schema(
            [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
        )
        components = described.setdefault("components", {})
        components.setdefault("schemas", {}).update(definitions.get("$defs", {}))
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"token": []}]
        described["paths"]["/health"]["get"]["security"] = []
        app.openapi_schema = described
    return app.openapi_schema
