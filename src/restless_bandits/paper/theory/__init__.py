"""The paper's mathematics as executable code; ``__all__`` of each module defines the names exported here."""

from __future__ import annotations

from restless_bandits.model.exploration import *
from restless_bandits.model.neighbours import *
from restless_bandits.model.optimism import exploration_count as exploration_count
from restless_bandits.model.optimism import gap as gap
from restless_bandits.model.optimism import optimistic_problem as optimistic_problem
from restless_bandits.model.optimism import radius as radius
from restless_bandits.model.optimism import radius_below_from as radius_below_from
from restless_bandits.model.perturbation import *
from restless_bandits.model.potentials import *
from restless_bandits.model.regret_bounds import *
from restless_bandits.model.stochastic_order import *
from restless_bandits.paper.regret_lower_bound import RegretLowerBound as RegretLowerBound
from restless_bandits.paper.regret_lower_bound import regret_limit as regret_limit
from restless_bandits.paper.theory.bias import *
from restless_bandits.paper.theory.coupling import *
from restless_bandits.paper.theory.dominance import *
from restless_bandits.paper.theory.event import *
from restless_bandits.paper.theory.slot_loss import *
