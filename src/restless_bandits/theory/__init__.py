"""The paper's mathematics as code that can be run and doubted."""

from __future__ import annotations

from restless_bandits.theory.dominance import (
    DominanceBound,
    dominance_bound,
    dominance_bound_from,
    explicit_potential,
    least_potential,
)
from restless_bandits.theory.radii import exploration_count, radius, radius_below_from

__all__ = [
    "DominanceBound",
    "dominance_bound",
    "dominance_bound_from",
    "explicit_potential",
    "exploration_count",
    "least_potential",
    "radius",
    "radius_below_from",
]
