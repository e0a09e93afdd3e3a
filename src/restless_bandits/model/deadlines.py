"""Arms with deadlines, such as cars to charge: a compact form of large transition matrices in problem files.

An arm holds at most one job. A job has a time T up to its deadline and a load B, and one pull takes one unit from the
load, for the price of a unit less its cost. At the deadline a penalty, quadratic in the load that is left, is paid, and
a new job arrives in the next slot with a given probability; its time and load are uniform. An empty arm waits for a job
in the same way (Yu, Xu, Tong 2018, Deadline scheduling as restless bandits, arXiv 1610.00399).

    deadline = { longest = 12, load = 9, arrival = 0.7, cost = 0.5, penalty = 0.2 }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.validation import check_int, positive, probability

KEYS = ("longest", "load", "arrival", "cost", "penalty")
MOST_STATES = 2000


def deadline_states(longest: int, load: int) -> list[tuple[int, int]]:
    """Return the states (T, B): the empty arm, then the times in ascending order, each with loads from 0."""
    return [(0, 0), *((time, left) for time in range(1, longest + 1) for left in range(load + 1))]


def deadline_arm(given: Any, where: str) -> dict[str, Any]:
    """Return chains and mean rewards of an arm with deadlines from its table in a problem file."""
    if not isinstance(given, Mapping):
        raise ProblemError(f"{where} is {shortened(given)}; give a table with {', '.join(KEYS)}")
    for key in given:
        check_known(key, KEYS, f"{where}: unknown key")
    for key in KEYS:
        if key not in given:
            raise ProblemError(f"{where}: {key} is missing")
    longest = check_int(f"{where}: longest", given["longest"], 1)
    load = check_int(f"{where}: load", given["load"], 1)
    arrival = probability(f"{where}: arrival", given["arrival"])
    cost, penalty = (positive(f"{where}: {key}", given[key], or_zero=True) for key in ("cost", "penalty"))
    states = deadline_states(longest, load)
    if len(states) > MOST_STATES:
        raise ProblemError(f"{where} has {len(states):,} states; give at most {MOST_STATES:,}")
    place = {state: number for number, state in enumerate(states)}
    arrived = np.zeros(len(states))
    arrived[0] = 1 - arrival
    arrived[[place[time, left] for time in range(1, longest + 1) for left in range(1, load + 1)]] = arrival / (
        longest * load
    )
    chains, rewards = np.zeros((2, len(states), len(states))), np.zeros((2, len(states)))
    for number, (time, left) in enumerate(states):
        for action in range(2):
            after = max(left - action, 0)
            rewards[action, number] = (1 - cost) * (left - after)
            if time > 1:
                chains[action, number, place[time - 1, after]] = 1.0
            else:
                chains[action, number] = arrived
                rewards[action, number] -= penalty * after**2
    low, high = min(0.0, float(rewards.min())), max(0.0, float(rewards.max()))
    return {
        "transitions": chains[0].tolist(),
        "active_transitions": chains[1].tolist(),
        "rewards": rewards[1].tolist(),
        "passive_rewards": rewards[0].tolist(),
        "reward_range": [low, high],
    }
