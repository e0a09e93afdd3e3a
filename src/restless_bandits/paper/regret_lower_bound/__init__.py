"""The lower bound of regret on a problem, and the nearest confusing model of an arm, its main ingredient.

The package is above the learners in the import order: learners that explore by the bound can use ``nearest_confusing``.
"""

from __future__ import annotations

from restless_bandits.paper.regret_lower_bound.arena import Arena as Arena
from restless_bandits.paper.regret_lower_bound.confusion import Confusing as Confusing
from restless_bandits.paper.regret_lower_bound.confusion import nearest_confusing as nearest_confusing
from restless_bandits.paper.regret_lower_bound.lower_bound import RegretLowerBound as RegretLowerBound
from restless_bandits.paper.regret_lower_bound.lower_bound import regret_limit as regret_limit
