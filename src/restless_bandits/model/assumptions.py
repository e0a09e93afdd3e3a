"""The assumptions of the Restless-UCB paper (Wang, Huang, Lui 2020, Section 2), held against chains and rewards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import Array

ASSUMPTIONS = {
    "monotone": "Assumption 1: rewards do not increase with the state",
    "birth_death": "Assumption 2: no jump over more than one state",
    "positively_correlated": "Assumption 3: P(k, k+1) + P(k+1, k) ≤ 1",
    "bounded_below": "Assumption 4: neighbours have probability ≥ c1 > 0",
}


@dataclass(frozen=True)
class Assumption:
    """Whether one of the paper's assumptions holds, and the place with the worst violation or the smallest margin."""

    holds: bool
    arm: str
    state: int
    value: float


def assumptions_of(arms: Iterable[tuple[str, Array, Array]]) -> Mapping[str, Assumption]:
    """Return each assumption for arms given as (name, one-step distributions, mean rewards).

    The values: the largest rise of a reward; the largest jump probability; the largest P(k, k+1) + P(k+1, k); the
    smallest neighbour probability, c1.
    """
    found: dict[str, list[tuple[float, str, int]]] = {key: [] for key in ASSUMPTIONS}
    for name, chain, rewards in arms:
        n = len(rewards)
        far = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) > 1
        for k in range(n):
            found["birth_death"].append((float(np.where(far[k], chain[k], 0.0).max()), name, k))
            found["bounded_below"].append((float(np.where(far[k], 1.0, chain[k]).min()), name, k))
        for k in range(n - 1):
            found["monotone"].append((float(rewards[k + 1] - rewards[k]), name, k))
            found["positively_correlated"].append((float(chain[k, k + 1] + chain[k + 1, k]), name, k))
    most = {"monotone": 0.0, "birth_death": 0.0, "positively_correlated": 1 + 1e-12}
    worst = {}
    for key, places in found.items():
        extreme = min if key == "bounded_below" else max
        value, arm, state = extreme(places, key=lambda place: place[0], default=(0.0, found["birth_death"][0][1], 0))
        worst[key] = Assumption(value <= most[key] if key in most else value > 0, arm, state, value)
    return worst


def complaint(name: str, found: Assumption) -> str:
    """Return the sentence with the place of a violation and the remedy."""
    s, value = found.state, f"{found.value:.12g}"
    message = {
        "monotone": f"rewards[{s + 1}] exceeds rewards[{s}] by {value}; order the states from best to worst",
        "birth_death": f"transitions[{s}] jumps over a state with probability {value}; "
        "this needs a birth-death chain, which moves by at most one state",
        "positively_correlated": f"P({s},{s + 1}) + P({s + 1},{s}) is {value}; this needs at most 1",
        "bounded_below": f"transitions[{s}] reaches a neighbour with probability {value}; this needs more",
    }[name]
    return f"arm {found.arm!r}: {message}"
