"""Requests on their way through the keeper, and the sentences with which they are refused."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import dataclass, field
from typing import Any

from restless_bandits.errors import ProblemError, shortened
from restless_bandits.service.hosted import Hosted
from restless_bandits.service.operations import Operation, ServiceError

RETRY_AFTER = 1.0
"""Seconds after which it is worth to ask again."""


@dataclass(eq=False)
class Job:
    """A request on its way."""

    agent: str
    operations: Sequence[Operation] = ()
    look: Callable[[Hosted], Any] | None = None
    """What to read of the agent, where nothing is to be changed."""
    future: Future[Any] = field(default_factory=Future)
    answers: Any = None
    error: BaseException | None = None
    now: int | None = None
    """When it was first begun: what is begun again goes the same way."""
    _seed: int | None = None

    @property
    def seed(self) -> int:
        """The seed of an agent that asks for none: drawn once, so that what is begun again goes the same way."""
        if self._seed is None:
            self._seed = secrets.randbits(32)
        return self._seed


@dataclass(frozen=True)
class Resume:
    """The requests of an agent that were put aside can go on."""

    agent: str


class NextGroupError(Exception):
    """What is asked for can be done after the commit."""


def refuse(job: Job, error: BaseException) -> None:
    if not job.future.done():
        job.future.set_exception(error)


def unknown(name: str) -> ServiceError:
    return ServiceError(404, f"there is no agent {name[:100]!r}", "name")


def busy() -> ServiceError:
    return ServiceError(503, "the writer is busy with other requests; ask again", retry_after=RETRY_AFTER)


def unavailable(error: Exception) -> ServiceError:
    return ServiceError(503, f"the store does not take anything now: {error}; ask again", retry_after=RETRY_AFTER)


def as_refusal(error: BaseException) -> BaseException:
    if isinstance(error, BrokenExecutor | CancelledError):
        return ServiceError(503, "the workers that make plans died; ask again", retry_after=RETRY_AFTER)
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, ProblemError):
        return ServiceError(422, str(error))
    why = f"the agent or its learner failed: {shortened(error, 200)}; look into the log of the service"
    return ServiceError(503, why, retry_after=RETRY_AFTER)
