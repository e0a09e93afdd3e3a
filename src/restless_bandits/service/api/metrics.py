"""Prometheus metrics: requests by route and status, their durations, and the counters of the writer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class RouteTable:
    """The routes of an application, as labels of request counts."""

    def __init__(self, routes: Iterable[str]) -> None:
        self._by_length: dict[int, list[tuple[str, list[str]]]] = {}
        for route in sorted(routes, key=lambda one: one.count("{")):
            parts = route.split("/")
            self._by_length.setdefault(len(parts), []).append((route, parts))

    def label(self, path: str) -> str:
        """Return the route of a path, ``other`` for an unknown path: a client cannot make new labels."""
        parts = path.split("/")
        for route, template in self._by_length.get(len(parts), ()):
            if all(part == own or own.startswith("{") for part, own in zip(parts, template, strict=True)):
                return route
        return "other"


class Meter:
    """Counts requests, and exports the counts together with the counters of the writer."""

    def __init__(self, writer: Any) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "restless_requests", "Requests by route and status.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "restless_request_seconds",
            "Seconds from a request to its answer; streams are left out.",
            ["route"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._registry.register(_Writer(writer))
        self._children: dict[tuple[str, int], Any] = {}
        self._timers: dict[str, Any] = {}

    def note(self, route: str, status: int, seconds: float | None) -> None:
        """Count an answered request."""
        child = self._children.get((route, status))
        if child is None:
            child = self._children[route, status] = self._requests.labels(route, str(status))
        child.inc()
        if seconds is not None:
            timer = self._timers.get(route)
            if timer is None:
                timer = self._timers[route] = self._seconds.labels(route)
            timer.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Writer:
    """A collector of the writer's counters, which are read at every scrape."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        for name, value in sorted(self._writer.stats().items()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            clean = "restless_keeper_" + re.sub(r"\W", "_", name)
            if clean.endswith("_total"):
                counter = CounterMetricFamily(clean, f"The keeper's {name}.")
                counter.add_metric([], float(value))
                yield counter
            else:
                gauge = GaugeMetricFamily(clean, f"The keeper's {name}.")
                gauge.add_metric([], float(value))
                yield gauge
