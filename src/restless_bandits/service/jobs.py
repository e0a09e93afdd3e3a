"""Requests in the command queue of the writer, and the messages of their refusals."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from restless_bandits.errors import ProblemError, shortened
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.operations import RETRY_AFTER, Operation, ServiceError


@dataclass(eq=False)
class Job:
    """A request in the command queue."""

    agent: str
    operations: Sequence[Operation] = ()
    look: Callable[[Hosted], Any] | None = None
    """The function that reads the agent, for a request that changes nothing."""
    future: Future[Any] = field(default_factory=Future)
    answers: Any = None
    error: BaseException | None = None
    now: int | None = None
    """The time of the first attempt: a repeated attempt uses the same time and gives the same result."""
    _seed: int | None = None

    @property
    def seed(self) -> int:
        """The seed of an agent without a requested seed: drawn once, so that a repetition gives the same result."""
        if self._seed is None:
            self._seed = secrets.randbits(32)
        return self._seed


@dataclass(frozen=True)
class Resume:
    """A wake-up: the deferred requests of an agent can go on."""

    agent: str


class NextGroupError(Exception):
    """The request can only be carried out after the next commit."""


def refuse(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)


def unknown(name: str) -> ServiceError:
    return ServiceError(404, f"there is no agent {name[:100]!r}", "name")


def busy() -> ServiceError:
    return ServiceError(503, "the writer is busy with other requests; ask again", retry_after=RETRY_AFTER)


def as_refusal(error: BaseException) -> BaseException:
    if isinstance(error, BrokenExecutor | CancelledError):
        return ServiceError(503, "the workers that make plans died; ask again", retry_after=RETRY_AFTER)
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, ProblemError):
        return ServiceError(422, str(error))
    why = f"the agent or its learner failed: {shortened(error, 200)}; look into the log of the service"
    return ServiceError(503, why, retry_after=RETRY_AFTER)
