"""How often a log that keeps to the model is rejected by it: ``python -m benchmarks.false_alarms [LOGS]``.

Logs of true chains, complete, with random gaps, and chosen by a policy that stays with a good arm. For each setting:
how many of them were rejected, where 0.001 of them may be, and for each kind of test how often its p-value was below
some levels, as a multiple of what the level says. docs/how-to/own-data.md tells the first.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

import numpy as np

import restless_bandits as rb
from restless_bandits._internal.validation import IntArray
from restless_bandits.logs import Clock, Trace
from restless_bandits.simulation.walks import drawn_chains

SLOTS = 500
LEVELS = (0.05, 0.01, 1e-3)
QUICK = rb.Problem(
    [
        rb.Arm([[0.8, 0.2, 0], [0.1, 0.7, 0.2], [0, 0.25, 0.75]], [0.9, 0.5, 0.1], name="a"),
        rb.Arm([[0.6, 0.4, 0], [0.3, 0.4, 0.3], [0, 0.3, 0.7]], [1.0, 0.3, 0.0], name="b"),
    ]
)
RARE = rb.Problem(
    [
        rb.Arm([[0.97, 0.03], [0.2, 0.8]], [0.9, 0.2], name="a"),
        rb.Arm([[0.9, 0.1], [0.05, 0.95]], [0.7, 0.4], name="b"),
    ]
)


def looks(states: IntArray, kind: str, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return slots and arms of what was logged."""
    slots, arms = states.shape
    if kind != "chosen":
        times, which = np.nonzero(rng.random(states.shape) < (1.0 if kind == "complete" else 0.5))
        return times, which
    chosen = np.zeros(slots, dtype=np.int64)
    for t in range(1, slots):
        last = chosen[t - 1]
        chosen[t] = last if states[t - 1, last] == 0 else (last + 1) % arms
    return np.arange(slots), chosen


def logs(problem: rb.Problem, kind: str, number: int, seed: int) -> Iterator[Trace]:
    """Yield logs of a problem with rewards of nothing or all, on a clock that shows hours."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        slots = SLOTS * (3 if kind == "chosen" else 1)
        states, reward = drawn_chains(problem, slots, rng)
        times, arms = looks(states, kind, rng)
        seen = states[times, arms]
        paid = np.array([reward(t, arm) for t, arm in zip(times.tolist(), arms.tolist(), strict=True)])
        names = np.array([arm.name for arm in problem.arms])[arms]
        yield dataclasses.replace(rb.data.trace(times, names, state=seen, reward=paid), clock=Clock(3600.0))


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name, problem in (("quick", QUICK), ("rare", RARE)):
        for kind in ("complete", "gaps", "chosen"):
            rejected, fitted = 0, 0
            found: dict[str, list[float]] = {}
            for trace in logs(problem, kind, number, seed=1):
                try:
                    tests = rb.data.fit(trace).tests
                except rb.NotIdentified:
                    continue
                fitted += 1
                rejected += any(test.rejects for test in tests)
                for test in tests:
                    found.setdefault(test.kind, []).append(test.p_value)
            print(f"{name}, {kind}: {rejected} of {fitted} logs rejected", flush=True)
            for test_kind, values in found.items():
                shares = "  ".join(f"{level:g}: {np.mean(np.array(values) <= level) / level:.2f}" for level in LEVELS)
                print(f"  {test_kind:14s} {len(values):6d} tests  {shares}", flush=True)


if __name__ == "__main__":
    main()
