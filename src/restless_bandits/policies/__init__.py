"""Policies as data, and plans: a policy with the rule that ends it."""

from __future__ import annotations

from restless_bandits.policies.plans import AnyOf as AnyOf
from restless_bandits.policies.plans import CountDoubled as CountDoubled
from restless_bandits.policies.plans import EveryStateSeen as EveryStateSeen
from restless_bandits.policies.plans import Forever as Forever
from restless_bandits.policies.plans import Plan as Plan
from restless_bandits.policies.plans import Rule as Rule
from restless_bandits.policies.plans import SeenIn as SeenIn
from restless_bandits.policies.plans import Slots as Slots
from restless_bandits.policies.policies import Cycle as Cycle
from restless_bandits.policies.policies import EmpiricalUCB as EmpiricalUCB
from restless_bandits.policies.policies import IndexPolicy as IndexPolicy
from restless_bandits.policies.policies import JointPolicy as JointPolicy
from restless_bandits.policies.policies import Policy as Policy
from restless_bandits.policies.policies import ScoredPolicy as ScoredPolicy
from restless_bandits.policies.policies import SingleArm as SingleArm
from restless_bandits.policies.policies import load_policy as load_policy
