"""The paper's mathematics as executable code; ``__all__`` of each module defines the names exported here."""

from __future__ import annotations

from restless_bandits.limits import Limit as Limit
from restless_bandits.limits import regret_limit as regret_limit
from restless_bandits.optimism import exploration_count as exploration_count
from restless_bandits.optimism import gap as gap
from restless_bandits.optimism import optimistic_problem as optimistic_problem
from restless_bandits.optimism import radius as radius
from restless_bandits.optimism import radius_below_from as radius_below_from
from restless_bandits.theory.bias import *
from restless_bandits.theory.bounds import *
from restless_bandits.theory.coupling import *
from restless_bandits.theory.dominance import *
from restless_bandits.theory.event import *
from restless_bandits.theory.exploration import *
from restless_bandits.theory.neighbours import *
from restless_bandits.theory.order import *
from restless_bandits.theory.perturbation import *
