"""Observations of single slots."""

from __future__ import annotations

from typing import NamedTuple


class Observation(NamedTuple):
    """An observation of an arm in a slot, with the belief before: the last state and the slots since then."""

    slot: int
    arm: int
    last_state: int
    elapsed: int
    state: int
    reward: float
