"""A simulated user program that asks and tells, with data for the dashboard: ``restless serve --demo PROBLEM``.

The demo runs beside the server and sends its operations through the same command queue. It plays some slots a second,
and some of its feedback is late or lost.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits.model.arms import AnyArm
from restless_bandits.model.problem import Problem, load_problem
from restless_bandits.service.operations import Ask, Create, Operation, ServiceError, Skip, Tell
from restless_bandits.service.writer import CommandProcessor
from restless_bandits.simulation.chain_world import ChainWorld

LOST_PROBABILITY, LATE_PROBABILITY, LATEST = 0.02, 0.1, 10
"""The shares of lost and of late feedback, and the longest delay in slots."""
PAUSE = 1000
"""Slots that pass when a demo continues with an existing agent: the world is drawn anew."""
FASTEST = 200.0

log = logging.getLogger("restless_bandits.service")


class DemoWorld(ChainWorld):
    """The simulated arms of a problem, which drift."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        super().__init__(problem, "demo")
        self._rng = rng
        self._pulled: list[int] = []
        self.begin(rng.random(problem.n_arms))

    def observe(self, slot: int, numbers: list[int]) -> tuple[list[int], list[float]]:
        """Advance the world to a slot, and return the states and rewards of arms there."""
        while self.slot < slot:
            self.step(self._rng.random(self.problem.n_arms), self._pulled)
            self._pulled = []
        self._pulled = numbers
        return self.states[numbers].tolist(), [self.reward(number, self._rng) for number in numbers]


def _features_of(arm: AnyArm) -> dict[str, Any]:
    """The fields of a created arm that reacts, pays at rest or has a set-up cost; none of them for another arm."""
    resting = None if arm.passive_rewards is None else arm.passive_rewards.tolist()
    fields = {"reacts": arm.reacts, "passive_rewards": resting, "setup_cost": arm.setup_cost}
    return {key: value for key, value in fields.items() if value}


class Demo:
    """A thread that plays a problem, as a context manager."""

    def __init__(self, writer: CommandProcessor, problem: str, speed: float) -> None:
        if not 0 < speed <= FASTEST:
            raise ProblemError(f"--speed is {speed:g} slots a second; give one up to {FASTEST:g}")
        self._writer, self._pause = writer, 1 / speed
        self._problem = load_problem(problem)
        ChainWorld(self._problem, "demo")  # An arm that cannot be drawn says so now.
        self.name = re.sub(r"[^A-Za-z0-9._~-]+", "-", self._problem.name or "demo").strip("-._~")[:100] or "demo"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)

    def __enter__(self) -> Demo:
        self._prepare()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(2.0)

    def _do(self, operation: Operation) -> dict[str, Any]:
        future: Future[list[dict[str, Any]]] = self._writer.submit(self.name, [operation])
        return future.result(60)[0]

    def _prepare(self) -> None:
        """Make the agent, or let some time pass for the existing agent."""
        try:
            found = self._writer.agent(self.name)
        except ServiceError:
            arms = [
                {
                    "name": name,
                    "n_states": arm.n_states,
                    "reward_law": arm.reward_law,
                    "reward_range": list(arm.reward_range),
                    **_features_of(arm),
                }
                for name, arm in zip(self._problem.task().names, self._problem.arms, strict=True)
            ]
            learner: dict[str, Any] = {"learner": "posterior"} if self._problem.features else {}
            self._do(Create(self.name, arms, plays=self._problem.plays, **learner))
            return
        if found["slots"]:
            self._do(Skip(PAUSE))

    def _run(self) -> None:
        try:
            for wait in self._play():
                if self._stopping.wait(wait):
                    return
        except Exception as error:
            # While the service stops, the demo is refused like every client.
            if not self._stopping.is_set() and getattr(error, "status", None) != 503:
                log.exception("the demo has ended")

    def _play(self) -> Iterator[float]:
        """Play slot by slot; yield the seconds to wait before the next step."""
        rng = np.random.default_rng()
        world = DemoWorld(self._problem, rng)
        underway: dict[int, list[Tell]] = {}
        start = int(rng.integers(2**62))
        count = 0
        while True:
            count += 1
            decision = self._do(Ask(f"demo.{start}.{count}"))
            # The world began with this demo; the agent may be older.
            states, rewards = world.observe(count, decision["numbers"])
            several = self._problem.plays > 1
            answer = Tell(
                decision["decision"],
                state=states if several else states[0],
                reward=rewards if several else rewards[0],
            )
            draw = rng.random()
            if draw < LOST_PROBABILITY:
                answer = Tell(decision["decision"], lost=True)
            delay = (
                int(rng.integers(1, LATEST + 1))
                if LOST_PROBABILITY <= draw < LOST_PROBABILITY + LATE_PROBABILITY
                else 0
            )
            underway.setdefault(count + delay, []).append(answer)
            yield self._pause / 2
            for told in underway.pop(count, []):
                self._do(told)
            yield self._pause / 2
