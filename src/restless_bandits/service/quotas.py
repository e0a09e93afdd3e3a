"""Quotas of the service: bounds on every number that a client could otherwise make arbitrarily large."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quotas:
    """Bounds on requests of clients; a request beyond a bound is refused in one sentence.

    - ``agents``: agents of a store at a time
    - ``arms``, ``states``, ``plays``: arms of an agent, states of an arm, pulls in a slot
    - ``observed_arms``: arms of an agent that observes all arms
    - ``observed_counts``: counts of steps of such an agent, 2 n² for each kind of n states
    - ``open_decisions``: decisions of an agent with pending feedback
    - ``late``: slots after which feedback may still arrive
    - ``batch``: operations of a request
    - ``head``, ``header_lines``: bytes and lines of the request line, headers and trailers of a request
    - ``body``, ``observed_body``: bytes of the body of a request, and of ask, tell and rank of observed arms
    - ``name``: letters of a name or a request id
    - ``page``: events of an answer
    - ``clients``: requests in progress
    - ``streams``: open streams
    - ``estimates``: estimates and beliefs in computation
    - ``sessions``, ``token_sessions``: sessions of browsers, and sessions of a single token
    - ``queue``: operations in the command queue
    """

    agents: int = 10_000
    arms: int = 10_000
    observed_arms: int = 1_000_000
    observed_counts: int = 1 << 26
    states: int = 100
    plays: int = 1_000
    open_decisions: int = 100_000
    late: int = 100_000
    batch: int = 1_000
    head: int = 1 << 16
    header_lines: int = 100
    body: int = 1 << 20
    observed_body: int = 1 << 24
    name: int = 200
    page: int = 1_000
    clients: int = 512
    streams: int = 64
    estimates: int = 4
    sessions: int = 1_000
    token_sessions: int = 50
    queue: int = 20_000
