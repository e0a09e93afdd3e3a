"""The paper's mathematics as code that can be run and doubted."""

from __future__ import annotations

from restless_bandits.theory.bias import bias_between_successors, bias_bound, policy_bias_span
from restless_bandits.theory.bounds import (
    RegretBound,
    approximation_bound,
    approximation_bound_from,
    regret_bound,
    regret_bound_from,
    slot_loss,
)
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
from restless_bandits.theory.event import EventCheck, check_event, event_bound, event_probability
from restless_bandits.theory.exploration import (
    ExplorationLength,
    exploration_bound,
    exploration_length,
    hitting_moments,
    simulate_exploration,
)
from restless_bandits.theory.neighbours import is_neighbour, lambda_max, lambda_max_bounds, neighbour_distance
from restless_bandits.theory.optimism import optimistic_problem
from restless_bandits.theory.order import dominance_margin, dominates, monotone_margin, power_margins
from restless_bandits.theory.perturbation import (
    Comparison,
    any_law_gap,
    contractions,
    forgetting,
    kemeny_constant,
    law_gaps,
    linear_law_gap,
    proved_law_gap,
    reversible_forgetting,
    reward_gap,
    settled_law_gap,
    total_contraction,
)
from restless_bandits.theory.radii import exploration_count, gap, radius, radius_below_from

__all__ = [
    "Comparison",
    "Coupling",
    "CouplingCheck",
    "DominanceBound",
    "EventCheck",
    "ExplorationLength",
    "Lemma1",
    "RegretBound",
    "any_law_gap",
    "approximation_bound",
    "approximation_bound_from",
    "bias_between_successors",
    "bias_bound",
    "check_coupling",
    "check_event",
    "contractions",
    "correspond",
    "couple",
    "couple_starts",
    "dominance_bound",
    "dominance_bound_from",
    "dominance_margin",
    "dominates",
    "event_bound",
    "event_probability",
    "explicit_potential",
    "exploration_bound",
    "exploration_count",
    "exploration_length",
    "forgetting",
    "gap",
    "hitting_moments",
    "is_neighbour",
    "joint_law",
    "kemeny_constant",
    "lambda_max",
    "lambda_max_bounds",
    "law_gaps",
    "least_potential",
    "lemma_1",
    "linear_law_gap",
    "monotone_margin",
    "neighbour_distance",
    "optimistic_problem",
    "policy_bias_span",
    "power_margins",
    "proved_law_gap",
    "radius",
    "radius_below_from",
    "regret_bound",
    "regret_bound_from",
    "reversible_forgetting",
    "reward_gap",
    "settled_law_gap",
    "simulate_exploration",
    "slot_loss",
    "total_contraction",
    "trajectory_fit",
]
