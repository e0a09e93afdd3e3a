"""Findings: evidence in a log against the problem that was fitted to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits.model.checks import check_text


@dataclass(frozen=True)
class Findings:
    """Findings of the fit of a problem to a log, as users of the problem should know them: the table ``[fit]``."""

    rejected: str | None = None
    """The reason why the log rejects the model, in a sentence; ``None`` without a rejection or without a log."""
    findings: tuple[str, ...] = ()
    """All evidence of the log against the model, the strongest first, each item with a remedy."""

    def __post_init__(self) -> None:
        if self.rejected is not None:
            check_text(self.rejected, "fit: rejected")
        object.__setattr__(self, "rejected", self.rejected or None)
        given: object = self.findings
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ProblemError(f"fit: findings is {shortened(given)}; give a list of sentences")
        object.__setattr__(self, "findings", tuple(given))
        for sentence in self.findings:
            check_text(sentence, "fit: findings")

    def remark(self, done: str) -> str | None:
        """Return a line that qualifies an answer, such as ``certified for`` the model; ``None`` without findings."""
        return f"{done} a model that its log rejects: {self.rejected}" if self.rejected else None

    def as_dict(self) -> dict[str, Any]:
        """Return the findings in the form of the JSON field ``fit``."""
        return {"rejected": self.rejected, "findings": list(self.findings)}


NO_FINDINGS = Findings()
