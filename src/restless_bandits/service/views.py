"""Estimates and beliefs of an agent's arms as JSON: made in a worker, because a fit can take longer than a decision."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from restless_bandits._internal.validation import Array, IntArray, to_jsonable
from restless_bandits.agent.beliefs import state_distribution
from restless_bandits.agent.observed import estimate_kinds
from restless_bandits.learning.estimation import ArmEstimate, estimate
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import Range

Known = tuple[Record, Sequence[str], Sequence[Range], Sequence[int]]
"""The record, names and ranges of all arms, and the numbers of those in service."""
KnownObserved = tuple[ObservedRecord, ObservedTask, tuple[IntArray, Array], Sequence[int]]
"""Of observed arms: the record, the task, arms with missing states and their beliefs, the numbers in service."""


def estimate_of(record: Any, names: Any, ranges: Any, service: Sequence[int]) -> dict[str, Any]:
    """Return the chains and mean rewards of all arms with their standard errors; of observed arms those of kinds."""
    if isinstance(record, ObservedRecord):
        return _kinds_of(record, names)
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
                **_active(arm),
                "modes": len(arm.modes),
                "rewards": to_jsonable(arm.rewards),
                "reward_errors": to_jsonable(arm.reward_errors),
            }
            for number, arm in enumerate(found.arms)
        ],
    }


def belief_of(record: Any, names: Any, ranges: Any, service: Sequence[int]) -> dict[str, Any]:
    """Return the present state distribution of every arm by the estimated chains; None for an arm never seen.

    ``elapsed`` is the number of slots since the arm was seen, and ``unseen_pulls`` the slots since then in which an arm
    that reacts was pulled, without an answer so far.
    """
    if isinstance(record, ObservedRecord):
        return _missing_of(record, names, ranges)
    found = estimate(record, names=names, strict=False, reward_ranges=ranges)
    arms = []
    for number, arm in enumerate(found.arms):
        unseen = record.unseen.get(number)
        last, slot = (int(record.last_state[number]), int(record.last_slot[number])) if unseen is None else unseen[:2]
        state, elapsed = last if last < record.n_states[number] else -1, record.slots + 1 - slot
        active = arm.transitions if arm.active_transitions is None else arm.active_transitions
        distribution = state_distribution(record, number, arm.transitions, active) if state >= 0 else None
        arms.append(
            {
                "name": arm.name,
                "in_service": number in service,
                "last_state": state if state >= 0 else None,
                "elapsed": elapsed if state >= 0 else None,
                **({"unseen_pulls": list(unseen.pulls) if unseen else []} if record.tracks_pulls[number] else {}),
                "law": None if distribution is None else to_jsonable(distribution),
                "reward": None if distribution is None else to_jsonable(distribution @ np.nan_to_num(arm.rewards)),
            }
        )
    return {"slots": record.slots, "arms": arms}


def _kinds_of(record: ObservedRecord, task: ObservedTask) -> dict[str, Any]:
    """The rows of the kinds of observed arms."""
    kinds, counts = estimate_kinds(record, task).arms, task.layout.counts.tolist()
    names = task.kind_names or task.names
    return {
        "slots": record.slots,
        "kinds": [
            {
                "name": names[kind],
                "arms": counts[kind],
                "observations": one.observations,
                "identified": one.identified,
                "transitions": to_jsonable(one.transitions),
                "standard_errors": to_jsonable(one.standard_errors),
                **_active(one),
                "rewards": to_jsonable(one.rewards),
                "reward_errors": to_jsonable(one.reward_errors),
            }
            for kind, one in enumerate(kinds)
        ],
    }


def _missing_of(record: ObservedRecord, task: ObservedTask, missing: tuple[IntArray, Array]) -> dict[str, Any]:
    """The beliefs about observed arms whose state was not seen in the present slot."""
    arms, beliefs = missing
    laws = zip(arms.tolist(), beliefs.tolist(), strict=True)
    return {"slots": record.slots, "arms": [{"name": task.names[arm], "law": law} for arm, law in laws]}


def _active(arm: ArmEstimate) -> dict[str, Any]:
    """The chain of slots with a pull, of an arm that reacts."""
    if arm.active_transitions is None:
        return {}
    return {
        "active_transitions": to_jsonable(arm.active_transitions),
        "active_standard_errors": to_jsonable(arm.active_standard_errors),
        "not_identified": list(arm.not_identified),
    }


def encoded(view: Callable[..., dict[str, Any]], packed: bytes) -> bytes:
    """Return a view of pickled ``Known`` as JSON: a long one is encoded by the worker, not by the event loop."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return json.dumps(to_jsonable(view(*pickle.loads(packed))), separators=(",", ":"), allow_nan=False).encode()
