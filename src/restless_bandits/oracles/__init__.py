"""Oracles: functions from a problem to a ``Solution``, a policy with a bracket of the best long-run reward.

    rb.oracles.exact(problem)                   # the optimum, with a proof
    rb.oracles.whittle(problem)                 # Whittle's index policy; also myopic, guha, relaxation, best_arm
    rb.oracles.evaluate(problem, policy)        # what any policy earns, computed
    rb.oracles.policy("whittle", problem)       # the policy alone, for learners that plan often

Importing this brings a compiler along; ``import restless_bandits`` alone does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from restless_bandits.errors import ProblemError, did_you_mean
from restless_bandits.oracles.best_arm import best_arm, best_arm_policy
from restless_bandits.oracles.evaluation import Evaluation, evaluate
from restless_bandits.oracles.exact import exact
from restless_bandits.oracles.guha import guha, guha_policy
from restless_bandits.oracles.myopic import myopic, myopic_policy
from restless_bandits.oracles.planning import auto_policy, exact_policy
from restless_bandits.oracles.relaxation import lagrangian_policy, relaxation, relaxation_bound
from restless_bandits.oracles.solution import Solution
from restless_bandits.oracles.whittle import ArmIndex, whittle, whittle_index, whittle_policy
from restless_bandits.policies import JointPolicy, Policy
from restless_bandits.problem import Problem

__all__ = [
    "ORACLES",
    "ArmIndex",
    "Evaluation",
    "Solution",
    "auto",
    "best_arm",
    "evaluate",
    "exact",
    "guha",
    "myopic",
    "oracle",
    "policy",
    "relaxation",
    "relaxation_bound",
    "whittle",
    "whittle_index",
]


def auto(problem: Problem) -> Solution:
    """Solve exactly where the table of joint beliefs is small, else by Whittle's index."""
    found = exact(problem) if isinstance(auto_policy(problem), JointPolicy) else whittle(problem)
    return replace(found, oracle="auto")


ORACLES: dict[str, Callable[[Problem], Solution]] = {
    "exact": exact,
    "auto": auto,
    "whittle": whittle,
    "myopic": myopic,
    "guha": guha,
    "relaxation": relaxation,
    "best-arm": best_arm,
}

_POLICIES: dict[str, Callable[[Problem], Policy]] = {
    "whittle": whittle_policy,
    "myopic": myopic_policy,
    "guha": guha_policy,
    "relaxation": lagrangian_policy,
    "best-arm": best_arm_policy,
}


def _known(name: str) -> str:
    """Return the oracle's name as the command line spells it; underscores do as well as hyphens."""
    spelt = name.replace("_", "-")
    if spelt not in ORACLES:
        raise ProblemError(f"there is no oracle {name!r}; {did_you_mean(spelt, ORACLES)}")
    return spelt


def oracle(name: str) -> Callable[[Problem], Solution]:
    """Return the oracle of that name."""
    return ORACLES[_known(name)]


def policy(name: str, problem: Problem, slots: int | None = None, lasting: int = 0) -> Policy:
    """Return what the oracle of that name would play, without the bracket around it.

    ``exact`` and ``auto`` plan as precisely as is worth it after so many slots, ``auto`` also as is worth it for a plan
    that will be followed for ``lasting`` slots (see ``planning``); without ``slots`` ``exact`` plans as precisely as it
    can.
    """
    spelt = _known(name)
    if spelt == "auto":
        return auto_policy(problem, slots, lasting)
    if spelt == "exact":
        return exact(problem).policy if slots is None else exact_policy(problem, slots)
    return _POLICIES[spelt](problem)
