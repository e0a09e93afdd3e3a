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
    from restless_bandits import data as data
    from restless_bandits import gym as gym
    from restless_bandits import learners as learners
    from restless_bandits import oracles as oracles
    from restless_bandits import plots as plots
    from restless_bandits import testing as testing
    from restless_bandits import theory as theory
    from restless_bandits.agent import Agent as Agent
    from restless_bandits.assumptions import Assumption as Assumption
    from restless_bandits.diagnosis import Diagnosis as Diagnosis
    from restless_bandits.diagnosis import check as check
    from restless_bandits.errors import ProblemError as ProblemError
    from restless_bandits.estimation import Estimate as Estimate
    from restless_bandits.estimation import NotIdentified as NotIdentified
    from restless_bandits.estimation import estimate as estimate
    from restless_bandits.learners import ColoredUCRL2 as ColoredUCRL2
    from restless_bandits.learners import Learner as Learner
    from restless_bandits.learners import LikelihoodDominance as LikelihoodDominance
    from restless_bandits.learners import LikelihoodUCB as LikelihoodUCB
    from restless_bandits.learners import RestlessUCB as RestlessUCB
    from restless_bandits.learners import ThompsonSampling as ThompsonSampling
    from restless_bandits.learners import learner as learner
    from restless_bandits.oracles import Solution as Solution
    from restless_bandits.policies import IndexPolicy as IndexPolicy
    from restless_bandits.policies import JointPolicy as JointPolicy
    from restless_bandits.policies import Policy as Policy
    from restless_bandits.policies import load_policy as load_policy
    from restless_bandits.problem import Arm as Arm
    from restless_bandits.problem import Change as Change
    from restless_bandits.problem import Findings as Findings
    from restless_bandits.problem import Problem as Problem
    from restless_bandits.problem import TableArm as TableArm
    from restless_bandits.problem import Task as Task
    from restless_bandits.problem import load_problem as load_problem
    from restless_bandits.problem_files import builtin_problems as builtin_problems
    from restless_bandits.service.client import Client as Client
    from restless_bandits.simulation import SimulationResult as SimulationResult
    from restless_bandits.simulation import simulate as simulate
    from restless_bandits.solving import evaluate as evaluate
    from restless_bandits.solving import solve as solve
    from restless_bandits.walks import Walk as Walk
    from restless_bandits.walks import walk as walk

__version__ = "0.1.0"

_NAMES = {
    "agent": "Agent",
    "assumptions": "Assumption",
    "diagnosis": "Diagnosis check",
    "errors": "ProblemError",
    "estimation": "Estimate NotIdentified estimate",
    "learners": "ColoredUCRL2 Learner LikelihoodDominance LikelihoodUCB RestlessUCB ThompsonSampling learner",
    "oracles": "Solution",
    "policies": "IndexPolicy JointPolicy Policy load_policy",
    "problem": "Arm Change Findings Problem TableArm Task load_problem",
    "problem_files": "builtin_problems",
    "service.client": "Client",
    "simulation": "SimulationResult simulate",
    "solving": "evaluate solve",
    "walks": "Walk walk",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = ("data", "experiments", "gym", "learners", "oracles", "plots", "policies", "record", "testing", "theory")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_HOMES, *_MODULES, "__version__"])
