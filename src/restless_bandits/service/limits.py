"""How much the service takes: every number that a client could otherwise make as large as it likes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may ask for; what is beyond them is refused in one sentence.

    ``agents`` live at a time in a store, ``arms`` of one agent, ``states`` of one arm, ``plays`` in a slot,
    ``open_decisions`` of one agent whose answers may still come, ``late`` slots that an
    answer may come late, ``batch`` operations of one request, ``head`` bytes and ``header_lines`` of the request line,
    headers and trailers of one request, ``body`` bytes of one request, ``name`` letters of a name or a request id,
    ``page`` events of one answer, ``clients`` requests that are being answered, ``streams`` that are open,
    ``estimates`` and beliefs that are being computed, ``sessions`` of browsers, ``token_sessions`` of one token,
    ``queue`` operations that wait for the writer.
    """

    agents: int = 10_000
    arms: int = 10_000
    states: int = 100
    plays: int = 1_000
    open_decisions: int = 100_000
    late: int = 100_000
    batch: int = 1_000
    head: int = 1 << 16
    header_lines: int = 100
    body: int = 1 << 20
    name: int = 200
    page: int = 1_000
    clients: int = 512
    streams: int = 64
    estimates: int = 4
    sessions: int = 1_000
    token_sessions: int = 50
    queue: int = 20_000
