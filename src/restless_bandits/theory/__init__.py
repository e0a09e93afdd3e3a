"""The paper's mathematics as code that can be run and doubted."""

from __future__ import annotations

from restless_bandits.theory.coupling import (
    Coupling,
    CouplingCheck,
    Lemma1,
    check_coupling,
    correspond,
    couple,
    couple_starts,
    joint_law,
    lemma_1,
    trajectory_fit,
)
from restless_bandits.theory.dominance import (
    DominanceBound,
    dominance_bound,
    dominance_bound_from,
    explicit_potential,
    least_potential,
)
from restless_bandits.theory.optimism import optimistic_problem
from restless_bandits.theory.radii import exploration_count, radius, radius_below_from

__all__ = [
    "Coupling",
    "CouplingCheck",
    "DominanceBound",
    "Lemma1",
    "check_coupling",
    "correspond",
    "couple",
    "couple_starts",
    "dominance_bound",
    "dominance_bound_from",
    "explicit_potential",
    "exploration_count",
    "joint_law",
    "least_potential",
    "lemma_1",
    "optimistic_problem",
    "radius",
    "radius_below_from",
    "trajectory_fit",
]
