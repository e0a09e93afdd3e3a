"""Planning for arms whose states are all observed before the choice: indices, bounds, exact solutions.

    arms = ObservedArms.from_arrays(transitions, rewards, plays=400, axes="saz", count=[1000])
    relaxation = relax_observed(arms)
    relaxation.bound                    # no policy earns more a slot
    relaxation.whittle_index(arms)      # by kind and state

Experimental: these functions take arrays. ``rb.solve``, ``rb.rank`` and the command line take problems.
"""

from restless_bandits.model.kinds import KindGroup
from restless_bandits.oracles.observed.arms import ObservedArms
from restless_bandits.oracles.observed.exact import CountValues, JointValues, solve_counts, solve_joint
from restless_bandits.oracles.observed.fluid import fluid_gain
from restless_bandits.oracles.observed.index import Sweep, sweep_arms
from restless_bandits.oracles.observed.relaxation import ObservedRelaxation, relax_observed

__all__ = [
    "CountValues",
    "JointValues",
    "KindGroup",
    "ObservedArms",
    "ObservedRelaxation",
    "Sweep",
    "fluid_gain",
    "relax_observed",
    "solve_counts",
    "solve_joint",
    "sweep_arms",
]
