"""Estimates and beliefs of an agent's arms as JSON: made in a worker, because a fit can take longer than a decision."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from restless_bandits._internal.validation import to_jsonable
from restless_bandits.learning.estimation import estimate
from restless_bandits.model import markov
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import Range

Known = tuple[Record, Sequence[str], Sequence[Range], Sequence[int]]
"""The record, names and ranges of all arms, and the numbers of those in service."""


def estimate_of(
    record: Record, names: Sequence[str], ranges: Sequence[Range], service: Sequence[int]
) -> dict[str, Any]:
    """Return the chains and mean rewards of all arms with their standard errors."""
    found = estimate(record, names=names, strict=False, reward_ranges=ranges)
    return {
        "slots": record.slots,
        "arms": [
            {
                "name": arm.name,
                "in_service": number in service,
                "observations": arm.observations,
                "identified": arm.identified,
                "transitions": to_jsonable(arm.transitions),
                "standard_errors": to_jsonable(arm.standard_errors),
                "modes": len(arm.modes),
                "rewards": to_jsonable(arm.rewards),
                "reward_errors": to_jsonable(arm.reward_errors),
            }
            for number, arm in enumerate(found.arms)
        ],
    }


def belief_of(record: Record, names: Sequence[str], ranges: Sequence[Range], service: Sequence[int]) -> dict[str, Any]:
    """Return the present state distribution of every arm by the estimated chains; None for an arm never seen."""
    found = estimate(record, names=names, strict=False, reward_ranges=ranges)
    arms = []
    for number, arm in enumerate(found.arms):
        state, elapsed = int(record.last_states[number]), int(record.elapsed[number])
        distribution = markov.power(arm.transitions, elapsed)[state] if state >= 0 else None
        arms.append(
            {
                "name": arm.name,
                "in_service": number in service,
                "last_state": state if state >= 0 else None,
                "elapsed": elapsed if state >= 0 else None,
                "law": None if distribution is None else to_jsonable(distribution),
                "reward": None if distribution is None else to_jsonable(distribution @ np.nan_to_num(arm.rewards)),
            }
        )
    return {"slots": record.slots, "arms": arms}


def encoded(view: Callable[..., dict[str, Any]], packed: bytes) -> bytes:
    """Return a view of pickled ``Known`` as JSON: a long one is encoded by the worker, not by the event loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.dumps(to_jsonable(view(*pickle.loads(packed))), separators=(",", ":"), allow_nan=False).encode()
