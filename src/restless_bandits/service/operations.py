"""Operations on agents of the service, as data: the interface between HTTP and the writer.

The HTTP side checks the shape of a message and makes an operation. The writer carries out many operations in one
transaction, and answers with JSON values. This module imports neither a web framework nor a database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from restless_bandits.errors import ProblemError

Answer = dict[str, Any]
RETRY_AFTER = 1.0
"""Seconds after which it is worth to ask again."""


class ServiceError(ProblemError):
    """A refused request: a message of one sentence, the HTTP status, and the invalid field."""

    def __init__(self, status: int, sentence: str, field: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.field, self.retry_after = status, field, retry_after


@dataclass(frozen=True)
class Create:
    """Make an agent. ``arms`` are names, or mappings with name, n_states, reward_law, reward_range."""

    name: str
    arms: Sequence[str | Mapping[str, Any]]
    n_states: int = 2
    reward_law: str = "bernoulli"
    reward_range: tuple[float, float] = (0.0, 1.0)
    plays: int = 1
    learner: str = "likelihood-ucb"
    seed: int | None = None
    clock: str = "ask"
    late: int = 1024
    on_change: str = "warn"
    memory: int | None = None
    horizon: int | None = None


@dataclass(frozen=True)
class Ask:
    """Decide on the coming slot, or repeat the earlier decision of the same request id."""

    request: str


@dataclass(frozen=True)
class Tell:
    """The observation in a decision's slot, or the loss of its feedback; ``arm`` is the pulled arm if it differs."""

    decision: str | None = None
    slot: int | None = None
    state: int | Sequence[int] | None = None
    reward: float | Sequence[float] | None = None
    arm: str | int | Sequence[str | int] | None = None
    lost: bool = False


@dataclass(frozen=True)
class Skip:
    """Slots without a decision; the request id makes a repetition harmless."""

    slots: int = 1
    request: str | None = None


@dataclass(frozen=True)
class Patch:
    """Change the learner, the window of late feedback, the reaction to changes, or the arms in service."""

    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delete:
    """Delete an agent: its log is kept and marked as ended, and its name may be used again."""


Operation = Create | Ask | Tell | Skip | Patch | Delete
