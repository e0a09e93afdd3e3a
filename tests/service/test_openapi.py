"""What /openapi.json says is what is answered: schemathesis makes requests from it and holds the answers to it."""

from datetime import timedelta

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.clients import Inside

load_all_checks()
KEPT = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ENDLESS = "/agents/{name}/stream"
COUNT = 8
"""Requests to each route, right ones and as many wrong ones."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    inside = Inside(tmp_path_factory.mktemp("openapi"))
    yield inside
    inside.close()


@pytest.fixture(scope="module")
def described(service):
    return service("GET", "/openapi.json").json()


def operations(described):
    return {
        f"{one.method.upper()} {one.path}": one
        for found in schemathesis.openapi.from_dict(described).get_all_operations()
        if (one := found.ok()).path != ENDLESS
    }


def test_nothing_foreign_is_loaded(service, described):
    assert described["openapi"].startswith("3.")
    assert service("GET", "/docs").status == service("GET", "/redoc").status == 404


def hold_to_description(service, operation, mode, statuses):
    """Send requests that are made from the description, right or wrong, and compare the answers."""

    @settings(
        max_examples=COUNT,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def send(case, known):
        if known and "name" in (case.path_parameters or {}) and operation.method != "delete":
            case.path_parameters["name"] = "a"
        sent = case.as_transport_kwargs(base_url="http://127.0.0.1")
        names = {"params": "params", "json": "json", "data": "content"}
        given = {name: sent[key] for key, name in names.items() if sent.get(key) is not None}
        request = httpx.Request(sent["method"], sent["url"], **given)
        reply = service(sent["method"], request.url.raw_path.decode("ascii"), request.read())
        statuses.add(reply.status)
        received = httpx.Response(reply.status, headers=reply.headers, content=reply.body, request=request)
        received.elapsed = timedelta(0)
        case.validate_response(received, checks=KEPT)

    send()


def test_answers_are_what_is_described(service, described):
    service("POST", "/agents", {"name": "a", "arms": ["x", "y"], "learner": "round-robin"})
    statuses = set()
    for operation in operations(described).values():
        hold_to_description(service, operation, GenerationMode.POSITIVE, statuses)
        if operation.body:
            hold_to_description(service, operation, GenerationMode.NEGATIVE, statuses)
    assert {200, 404, 422} <= statuses
