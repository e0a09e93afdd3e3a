"""Agents of both kinds of arms: made by a request, by the first event of a log, or by a snapshot."""

from __future__ import annotations

from typing import Any

from restless_bandits._internal.errors import ProblemError
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.agent_core import Event
from restless_bandits.service.observed import ServiceObserved
from restless_bandits.service.operations import Create
from restless_bandits.service.planning import Planner
from restless_bandits.service.quotas import Quotas
from restless_bandits.service.storage.schema import LOG_VERSION


def create_agent(number: int, given: Create, seed: int, now: int, planner: Planner, quotas: Quotas) -> ServiceAgent:
    """Return a new agent; its first event is ``create``."""
    kind = ServiceObserved if given.observed == "all" else ServiceAgent
    return kind.create(number, given, seed, now, planner, quotas)


def created_by(number: int, name: str, event: Event, planner: Planner) -> ServiceAgent:
    """Return the agent of a ``create`` event from the log."""
    if event["kind"] != "create" or event["version"] > LOG_VERSION:
        raise ProblemError(f"the log of agent {name!r} is of a later release, or its first event is not create")
    kind = ServiceObserved if event.get("observed") == "all" else ServiceAgent
    return kind.created_by(number, name, event, planner)


def of_state(number: int, data: dict[str, Any], planner: Planner) -> ServiceAgent:
    """Return the agent from the result of ``ServiceAgent.to_dict``."""
    kind = ServiceObserved if "window" not in data["player"] else ServiceAgent
    return kind.from_dict(number, data, planner)
