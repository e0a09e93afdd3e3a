"""Operations on agents as data: the interface between the HTTP layer and the command processor.

The HTTP layer validates a message and creates operations. The command processor executes many operations in one
transaction, and returns JSON-compatible answers. This module imports no web framework and no database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from restless_bandits._internal.errors import ProblemError

Answer = dict[str, Any]
ROLES = ("read", "play", "admin")
"""The roles of tokens; each includes the rights of the previous role."""
RETRY_AFTER = 1.0
"""Seconds before a client should repeat a refused request."""


class ServiceError(ProblemError):
    """Refusal of a request: a sentence, the HTTP status, the invalid field, and the seconds before a retry."""

    def __init__(self, status: int, sentence: str, field: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status, self.field, self.retry_after = status, field, retry_after


@dataclass(frozen=True)
class Create:
    """Make an agent. ``arms`` are names, or mappings with name, n_states, reward_law, reward_range, reacts,
    passive_rewards, setup_cost. Observed arms may be given by their number.
    """

    name: str
    arms: Sequence[str | Mapping[str, Any]] | int
    n_states: int = 2
    reward_law: str | None = None
    """By default ``bernoulli`` for the range (0, 1), and ``bounded``, any number within the range, for others."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    plays: int = 1
    learner: str = "likelihood-ucb"
    seed: int | None = None
    clock: str = "ask"
    late: int = 1024
    on_change: str = "warn"
    memory: int | None = None
    horizon: int | None = None
    reacts: bool = False
    cost_range: tuple[float, float] | None = None
    state_names: Sequence[str] | None = None
    observed: str = "pulled"
    kinds: Sequence[str | int] | None = None
    """Of observed arms, as are the following: the kind of each arm, known mean rewards, whether fewer may be pulled."""
    rewards: Sequence[Any] | None = None
    at_most: bool = False


@dataclass(frozen=True)
class Ask:
    """Return the decision of the next slot, or the earlier decision of the same request id.

    Observed arms are asked with their states, and with the arms that cannot be pulled.
    """

    request: str
    states: Sequence[int | str | None] | Mapping[str, int | str | None] | None = None
    exclude: Sequence[str | int] = ()


@dataclass(frozen=True)
class Tell:
    """Feedback of a decision, or a report of lost feedback; ``arm`` names the arms pulled in fact.

    ``pulled`` is false for a report that arms were not pulled: lost feedback that moves no arm.
    """

    decision: str | None = None
    slot: int | None = None
    state: int | str | Sequence[int | str] | None = None
    reward: float | Sequence[float] | None = None
    arm: str | int | Sequence[str | int] | None = None
    cost: float | Sequence[float] | None = None
    lost: bool = False
    pulled: bool = True
    rewards: Sequence[float | None] | Mapping[str, float] | None = None
    """Of observed arms: rewards of all arms, or costs, and the arms that were pulled in fact."""
    costs: Sequence[float | None] | Mapping[str, float] | None = None
    pulled_arms: Sequence[str | int] | None = None


@dataclass(frozen=True)
class Skip:
    """Advance by slots without a decision; the request id makes a repeated request harmless."""

    slots: int = 1
    request: str | None = None


@dataclass(frozen=True)
class Patch:
    """Change the learner, the maximum delay of feedback, the reaction to a detected change, or the arms in service."""

    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delete:
    """Delete an agent; the event log is kept and marked as ended, and the name may be used again."""


Operation = Create | Ask | Tell | Skip | Patch | Delete
