"""HTTP/1.1 on a connection: uvicorn's protocol with bounds on the parts of a request that the parser accumulates.

The parser collects a request line, a header or a trailer until its end arrives, in quadratic time and without a bound.
This protocol counts bytes before the parser receives them. Bytes that complete a head, belong to a body or complete a
request reset the count, so the count of every request starts anew. A head beyond the bound is answered by 431.
"""

from __future__ import annotations

import json
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from restless_bandits.service.api.middleware import JSON
from restless_bandits.service.quotas import Quotas

QUOTAS = Quotas()
PIECE_BYTES = 1 << 14
"""Bytes that the parser receives at a time. A pipelined head may exceed the bound by the same number."""
PIPELINED_REQUESTS = 100
"""Requests of a connection that wait for the answer to an earlier one."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose request heads, trailers and waiting requests are bounded."""

    _pending_bytes = 0
    """Bytes received since the last end of a head, part of a body or end of a request."""
    _header_lines = 0
    """Headers and trailers of the present request."""
    _in_head = True
    _refused = False
    _unanswered: tuple[RequestResponseCycle, ...] = ()

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes, piece by piece, until a bound is exceeded."""
        rest = memoryview(data)
        while rest and not (self._refused or self.transport.is_closing()):
            room = QUOTAS.head - self._pending_bytes
            if room <= 0:
                self._refuse(f"the head of the request is longer than {QUOTAS.head} bytes; send shorter headers")
                return
            piece = rest[: min(room, PIECE_BYTES)]
            rest = rest[len(piece) :]
            self._pending_bytes += len(piece)
            super().data_received(bytes(piece))

    def on_message_begin(self) -> None:
        """Start the counts of a request."""
        self._header_lines, self._in_head = 0, True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header or a trailer; trailers are not passed on."""
        self._header_lines += 1
        if self._header_lines > QUOTAS.header_lines:
            self._refuse(f"the request has more than {QUOTAS.header_lines} headers; send fewer")
        elif self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Answer the request, unless a bound was exceeded."""
        self._pending_bytes, self._in_head = 0, False
        if len(self.pipeline) >= PIPELINED_REQUESTS:
            self._refuse("too many requests wait for the answer to an earlier one; wait for answers")
        if not self._refused:
            super().on_headers_complete()
            self._unanswered = (*(one for one in self._unanswered if not one.response_complete), self.cycle)

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self._pending_bytes = 0
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End the request."""
        self._pending_bytes, self._in_head = 0, True
        if not self._refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, in the common shape of refusals."""
        self._refuse("the bytes are not an HTTP request; send HTTP/1.1", HTTPStatus.BAD_REQUEST)

    def _refuse(self, sentence: str, status: HTTPStatus = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) -> None:
        """Answer with a refusal and close; where an earlier answer is under way, close only."""
        if self._refused:
            return
        self._refused = True
        cycle = self.cycle
        is_idle = cycle is None or cycle.response_complete
        is_own = not (self._in_head or is_idle or cycle.response_started or self.pipeline)
        if is_idle or is_own:
            body = json.dumps({"error": sentence, "field": None}).encode()
            headers = [*JSON, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
            lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b"%b: %b" % one for one in headers)]
            self.transport.write(b"\r\n".join([*lines, b"", body]))
        self._disconnect()
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End all requests; uvicorn would let the first of several pipelined ones write to a closed connection."""
        self._disconnect()
        super().connection_lost(exc)

    def _disconnect(self) -> None:
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
