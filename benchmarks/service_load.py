"""Clients of a service under load, made cheap: one process, raw sockets that stay open, answers cut by hand.

Prints one JSON object: how many requests were answered in how many seconds, and the milliseconds of asks and tells.
Only ever talks to this machine, and ends after so many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from typing import Any

WARM = 0.5
"""Seconds at the beginning that are not counted."""


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, agent: str, token: str, number: int, batch: int, slot: int | None) -> None:
        self._agent, self._number, self._batch, self._slot = agent, number, batch, slot
        self._head = f" HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\ncontent-length: "
        self.spent: dict[str, list[tuple[float, float]]] = {"ask": [], "tell": [], "batch": []}
        self.refused: list[str] = []
        self.over = False
        self._count = 0
        self._decisions: list[str] = []
        self._kept = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def _next(self) -> None:
        self._count += 1
        if self._batch:
            self._what, body = "batch", self._operations()
        elif self._decisions:
            self._what = "tell"
            body = _told(self._decisions.pop(), self._count // 2)
        else:
            self._what, body = "ask", _asked(f"{self._number}.{self._count}")
        self._sent = time.perf_counter()
        self._transport.write(f"POST /agents/{self._agent}/{self._what}{self._head}{len(body)}\r\n\r\n{body}".encode())

    def _operations(self) -> str:
        """Answers to what was asked before, and as many new questions; or what somebody else chose and saw."""
        if self._slot is not None:
            first, self._slot = self._slot + 1, self._slot + self._batch
            seen = [
                f'{{"tell":{{"slot":{slot},"arm":"{"xy"[slot // 3 % 2]}","state":{slot // 7 % 2},"reward":0.0}}}}'
                for slot in range(first, self._slot + 1)
            ]
            return '{"operations":[' + ",".join(seen) + "]}"
        tells = [f'{{"tell":{_told(decision, i)}}}' for i, decision in enumerate(self._decisions)]
        asks = [f'{{"ask":{_asked(f"{self._number}.{self._count}.{i}")}}}' for i in range(self._batch)]
        self._decisions = []
        return '{"operations":[' + ",".join([*tells, *asks]) + "]}"

    def data_received(self, data: bytes) -> None:
        data = self._kept + data
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            start = head.lower().index(b"content-length: ") + 16
            length = int(head[start:].partition(b"\r\n")[0])
        if not end or len(body) < length:
            self._kept = data
            return
        self._kept = b""
        now = time.perf_counter()
        if head[9:12] != b"200":
            self.refused.append(body.decode()[:300])
        else:
            self.spent[self._what].append((now, now - self._sent))
            if self._what == "ask":
                self._decisions.append(json.loads(body)["decision"])
            elif self._what == "batch":
                self._decisions = [one["decision"] for one in json.loads(body)["answers"] if "numbers" in one]
        if self.over or len(self.refused) > 10:
            self._transport.close()
        else:
            self._next()


def _asked(request: str) -> str:
    return f'{{"request":"{request}"}}'


def _told(decision: str, number: int) -> str:
    return f'{{"decision":"{decision}","state":{number % 2},"reward":0.0}}'


def percentiles(values: list[float]) -> dict[str, float]:
    """The middle one, one in a hundred, and the longest, in milliseconds."""
    if not values:
        return {}
    values = sorted(values)
    return {
        "p50": round(1e3 * values[len(values) // 2], 3),
        "p99": round(1e3 * values[min(len(values) - 1, int(0.99 * len(values)))], 3),
        "max": round(1e3 * values[-1], 3),
    }


async def load(options: argparse.Namespace) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    agents = options.agents.split(",")
    slots = [int(slot) for slot in options.slots.split(",")] if options.slots else [None] * options.clients
    clients = [
        Client(agents[i % len(agents)], options.token, options.first + i, options.batch, slots[i])
        for i in range(options.clients)
    ]
    begin = time.perf_counter() + WARM
    for client in clients:
        await loop.create_connection(lambda one=client: one, "127.0.0.1", options.port)  # type: ignore[misc]
    await asyncio.sleep(WARM + options.seconds)
    end = time.perf_counter()
    for client in clients:
        client.over = True
    await asyncio.sleep(0.2)
    spent = {
        what: [took for client in clients for at, took in client.spent[what] if begin <= at <= end]
        for what in ("ask", "tell", "batch")
    }
    seconds = end - begin
    return {
        "seconds": round(seconds, 3),
        "requests": sum(map(len, spent.values())),
        "answered": sum(len(values) for client in clients for values in client.spent.values()),
        "rate": round(sum(map(len, spent.values())) / seconds, 1),
        "refused": [sentence for client in clients for sentence in client.refused][:3],
        **{what: percentiles(values) for what, values in spent.items()},
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--agents", required=True)
    options.add_argument("--clients", type=int, default=8)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--batch", type=int, default=0)
    options.add_argument(
        "--slots", default="", help="Tell what was seen after these slots, one for each client's agent."
    )
    options.add_argument("--first", type=int, default=0, help="Number of the first client, for request ids.")
    given = options.parse_args()
    given.token = sys.stdin.readline().strip()  # so that the list of processes does not show it
    try:
        import uvloop
    except ImportError:
        found = asyncio.run(load(given))
    else:
        found = uvloop.run(load(given))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
