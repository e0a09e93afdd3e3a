"""Restless bandits: learn which of several drifting things to use, when you only see the one you used.

    import restless_bandits as rb

    problem = rb.Problem.builtin("paper-1")
    solution = rb.oracles.exact(problem)        # .gain .lower .upper .certified .policy

Importing the package loads NumPy and nothing heavier; compilers and solvers are loaded by what needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from restless_bandits.errors import ProblemError
from restless_bandits.problem import (
    Arm,
    Assumption,
    Problem,
    TableArm,
    Task,
    builtin_problems,
    load_problem,
)

if TYPE_CHECKING:
    from restless_bandits import oracles as oracles

__version__ = "0.1.0"

__all__ = [
    "Arm",
    "Assumption",
    "Problem",
    "ProblemError",
    "TableArm",
    "Task",
    "__version__",
    "builtin_problems",
    "load_problem",
    "oracles",
]


def __getattr__(name: str) -> Any:
    if name == "oracles":
        return import_module("restless_bandits.oracles")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
