"""Restless bandits: learn which of several drifting arms to pull, with observations of the pulled arm only.

    import restless_bandits as rb

    problem = rb.Problem.builtin("paper-1")
    solution = rb.solve(problem)                # .gain .lower .upper .certified .policy

Names are loaded on first use: the import of the package costs next to nothing, and compilers and solvers are loaded
with the names that need them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from restless_bandits import gym as gym
    from restless_bandits import logs as logs
    from restless_bandits import oracles as oracles
    from restless_bandits import plots as plots
    from restless_bandits import testing as testing
    from restless_bandits._internal.errors import ProblemError as ProblemError
    from restless_bandits.agent.agent import Agent as Agent
    from restless_bandits.agent.observed import ObservedAgent as ObservedAgent
    from restless_bandits.learning import learners as learners
    from restless_bandits.learning.estimation import Estimate as Estimate
    from restless_bandits.learning.estimation import NotIdentified as NotIdentified
    from restless_bandits.learning.estimation import estimate as estimate
    from restless_bandits.learning.learners import ColoredUCRL2 as ColoredUCRL2
    from restless_bandits.learning.learners import Learner as Learner
    from restless_bandits.learning.learners import LikelihoodDominance as LikelihoodDominance
    from restless_bandits.learning.learners import LikelihoodUCB as LikelihoodUCB
    from restless_bandits.learning.learners import RestlessUCB as RestlessUCB
    from restless_bandits.learning.learners import ThompsonSampling as ThompsonSampling
    from restless_bandits.learning.learners import default_learner as default_learner
    from restless_bandits.learning.learners import learner as learner
    from restless_bandits.model.arms import Arm as Arm
    from restless_bandits.model.arms import TableArm as TableArm
    from restless_bandits.model.assumptions import Assumption as Assumption
    from restless_bandits.model.changes import Change as Change
    from restless_bandits.model.findings import Findings as Findings
    from restless_bandits.model.observed_task import ObservedTask as ObservedTask
    from restless_bandits.model.problem import Problem as Problem
    from restless_bandits.model.problem import load_problem as load_problem
    from restless_bandits.model.problem_files import builtin_problems as builtin_problems
    from restless_bandits.model.tasks import Task as Task
    from restless_bandits.oracles import Solution as Solution
    from restless_bandits.oracles.diagnosis import Diagnosis as Diagnosis
    from restless_bandits.oracles.diagnosis import check as check
    from restless_bandits.oracles.observed.occupancy import Occupancy as Occupancy
    from restless_bandits.oracles.observed.occupancy import occupancy as occupancy
    from restless_bandits.oracles.observed.ranking import Ranking as Ranking
    from restless_bandits.oracles.observed.ranking import rank as rank
    from restless_bandits.paper import theory as theory
    from restless_bandits.policies.policies import IndexPolicy as IndexPolicy
    from restless_bandits.policies.policies import JointPolicy as JointPolicy
    from restless_bandits.policies.policies import Policy as Policy
    from restless_bandits.policies.policies import load_policy as load_policy
    from restless_bandits.service.client import Client as Client
    from restless_bandits.simulation import SimulationResult as SimulationResult
    from restless_bandits.simulation import simulate as simulate
    from restless_bandits.simulation.policy_values import evaluate as evaluate
    from restless_bandits.simulation.solving import solve as solve
    from restless_bandits.simulation.walks import Walk as Walk
    from restless_bandits.simulation.walks import walk as walk

    data = logs

__version__ = "0.1.0"

_NAMES = {
    "_internal.errors": "ProblemError",
    "agent": "Agent ObservedAgent",
    "learning.estimation": "Estimate NotIdentified estimate",
    "learning.learners": "ColoredUCRL2 Learner LikelihoodDominance LikelihoodUCB RestlessUCB ThompsonSampling "
    "default_learner learner",
    "model.arms": "Arm TableArm",
    "model.assumptions": "Assumption",
    "model.changes": "Change",
    "model.findings": "Findings",
    "model.observed_task": "ObservedTask",
    "model.problem": "Problem load_problem",
    "model.problem_files": "builtin_problems",
    "model.tasks": "Task",
    "oracles": "Solution",
    "oracles.diagnosis": "Diagnosis check",
    "oracles.observed.occupancy": "Occupancy occupancy",
    "oracles.observed.ranking": "Ranking rank",
    "policies": "IndexPolicy JointPolicy Policy load_policy",
    "service.client": "Client",
    "simulation": "SimulationResult simulate",
    "simulation.policy_values": "evaluate",
    "simulation.solving": "solve",
    "simulation.walks": "Walk walk",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = {
    "data": "logs",
    "experiments": "paper.experiments",
    "gym": "gym",
    "learners": "learning.learners",
    "logs": "logs",
    "oracles": "oracles",
    "plots": "plots",
    "policies": "policies",
    "record": "model.record",
    "testing": "testing",
    "theory": "paper.theory",
}
"""Modules and packages by the names that the package's front gives them."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_MODULES, "__version__"])
