"""Requests to the command processor, and their refusals as errors with a status."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits.service.agent import ServiceAgent
from restless_bandits.service.operations import RETRY_AFTER, Operation, ServiceError


@dataclass(eq=False)
class Request:
    """Request to the command processor, with a future and the result so far."""

    agent: str
    operations: Sequence[Operation] = ()
    read: Callable[[ServiceAgent], Any] | None = None
    """Function that reads the agent, for a request without changes."""
    future: Future[Any] = field(default_factory=Future)
    answers: Any = None
    error: BaseException | None = None
    now: int | None = None
    """Time of the first execution; a repeated execution uses the same time and gives the same result."""
    _seed: int | None = None

    @property
    def seed(self) -> int:
        """Seed of a new agent without a given seed; drawn once, because repeated executions must agree."""
        if self._seed is None:
            self._seed = secrets.randbits(32)
        return self._seed


@dataclass(frozen=True)
class Wakeup:
    """Message to the writer thread: the deferred requests of an agent can continue."""

    agent: str


class NextGroupError(Exception):
    """Signal to defer a request until the commit of the present group."""


def refuse(job: Request, error: BaseException) -> None:
    """Complete a request with an error, unless another thread has completed the request."""
    with contextlib.suppress(InvalidStateError):
        job.future.set_exception(error)


def unknown(name: str) -> ServiceError:
    return ServiceError(404, f"there is no agent {name[:100]!r}", "name")


def busy() -> ServiceError:
    return ServiceError(503, "the writer is busy with other requests; send again", retry_after=RETRY_AFTER)


def as_refusal(error: BaseException) -> BaseException:
    if isinstance(error, BrokenExecutor | CancelledError):
        return ServiceError(503, "the planning workers died; send the request again", retry_after=RETRY_AFTER)
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, ProblemError):
        return ServiceError(422, str(error))
    why = f"the agent or its learner failed: {shortened(error, 200)}; read the log of the service"
    return ServiceError(503, why, retry_after=RETRY_AFTER)
