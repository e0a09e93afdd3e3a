"""What may be asked of an agent that the service keeps, as data: the words between HTTP and the keeper.

The HTTP side checks the shape of a message and makes one of these; the keeper carries them out, many in one
transaction, and answers with what JSON can hold. Nothing here imports a web framework or a database.
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
    """A request that is refused: one sentence, the HTTP status it is sent with, and the field that is to blame."""

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
    """Decide on the coming slot, or repeat the decision that was made for this request id."""

    request: str


@dataclass(frozen=True)
class Tell:
    """What was seen in a decision's slot, or that its answer is lost; ``arm`` is what was really pulled."""

    decision: str | None = None
    slot: int | None = None
    state: int | Sequence[int] | None = None
    reward: float | Sequence[float] | None = None
    arm: str | int | Sequence[str | int] | None = None
    lost: bool = False


@dataclass(frozen=True)
class Skip:
    """Slots in which nobody asked; the request id makes a repetition harmless."""

    slots: int = 1
    request: str | None = None


@dataclass(frozen=True)
class Patch:
    """Exchange the learner, the late window, what is done on a change, or the arms in service."""

    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delete:
    """Delete an agent; its log is kept, marked as ended, and its name may be used again."""


Operation = Create | Ask | Tell | Skip | Patch | Delete
