"""The features of problems beyond the uncontrolled arms of the Restless-UCB paper, and what supports each feature.

A *feature* is a field of an arm or of a problem that differs from its default. ``SUPPORT`` names the features that each
entry of the package supports: an oracle, a command, or a part such as the theory. Every entry calls
``refuse_unsupported`` first, so a problem is refused in one sentence where a feature would be ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from restless_bandits._internal.errors import ProblemError

if TYPE_CHECKING:
    from restless_bandits.model.arms import AnyArm
    from restless_bandits.model.problem import Problem

ARM_FEATURES = ("active_transitions", "passive_rewards", "setup_cost", "initial")
"""Fields of arms; ``initial`` stands for an initial distribution, since every entry supports initial states."""
PROBLEM_FEATURES = ("observed", "at_most")
UNCONTROLLED: frozenset[str] = frozenset()
"""No feature: arms whose chains no pull changes, seen when pulled."""
REACTING = frozenset(ARM_FEATURES)
"""Arms that react to pulls, seen when pulled."""
OBSERVED = REACTING | set(PROBLEM_FEATURES)
"""Arms that react to pulls or not, all seen."""


@dataclass(frozen=True)
class Entry:
    """A part of the package that takes problems."""

    subject: str
    """The subject of the sentence of a refusal."""
    features: frozenset[str] = UNCONTROLLED
    """The supported features."""
    group: str = ""
    """The entries that may take the place of each other."""


SUPPORT: Mapping[str, Entry] = {
    "exact": Entry("the oracle exact", REACTING, group="oracles"),
    "auto": Entry("the oracle auto", REACTING, group="oracles"),
    "whittle": Entry("the oracle whittle", REACTING, group="oracles"),
    "relaxation": Entry("the oracle relaxation", REACTING, group="oracles"),
    "myopic": Entry("the oracle myopic", REACTING, group="oracles"),
    "best-arm": Entry("the oracle best-arm", REACTING, group="oracles"),
    "guha": Entry("the oracle guha", group="oracles"),
    "planning": Entry("the plan of a learner", REACTING),
    "beliefs": Entry("a table of beliefs", REACTING),
    "index": Entry("Whittle's index", REACTING),
    "bound": Entry("the bound of the relaxation", REACTING),
    "evaluate": Entry("the gain of a policy", REACTING),
    "simulate": Entry("a simulation", REACTING),
    "walk": Entry("a walk", REACTING),
    "gym": Entry("the Gymnasium environment", REACTING),
    "benchmark": Entry("an instance of a benchmark", REACTING),
    "demo": Entry("the demo of the service", REACTING),
    "task": Entry("a learner", REACTING),
    "check": Entry("a diagnosis", OBSERVED),
    "theory": Entry("the theory of the Restless-UCB paper"),
}


ALL_OBSERVED = frozenset(
    {"exact", "auto", "whittle", "relaxation", "myopic", "best-arm", "lp-index", "id", "lp-update"}
    | {"planning", "bound", "evaluate", "simulate"}
)
"""The entries that support ``OBSERVED`` for problems with ``observed = "all"``."""
NO_SETUP_COSTS = frozenset({"task"})
"""The entries that support the same problems, except for set-up costs."""
FIXED_PLAYS = frozenset({"gym", "benchmark"})
"""The entries that support the same problems, except for a choice of the number of plays in each slot."""

INSTEAD: Mapping[str, str] = {"at_most": ", and add an arm of one state that pays 0 for each play"}
"""What states the same as a feature, in the sentence of a refusal."""


def supported(entry: str, observed: str = "pulled") -> frozenset[str]:
    """Return the features that an entry supports in problems with a value of ``observed``."""
    if observed == "all" and entry in ALL_OBSERVED:
        return OBSERVED
    if observed == "all" and entry in NO_SETUP_COSTS:
        return OBSERVED - {"setup_cost"}
    if observed == "all" and entry in FIXED_PLAYS:
        return OBSERVED - {"at_most"}
    return SUPPORT[entry].features if entry in SUPPORT else UNCONTROLLED


def refuse_unsupported(problem: Problem | AnyArm, entry: str) -> None:
    """Raise ``ProblemError`` for a problem, or an arm, with a feature that an entry of ``SUPPORT`` lacks."""
    if not problem.features:
        return
    asked = SUPPORT.get(entry) or Entry(f"the oracle {entry}", group="oracles")
    observed = getattr(problem, "observed", "pulled")
    missing = next((feature for feature in problem.features if feature not in supported(entry, observed)), None)
    if missing is not None:
        others = [
            one.subject
            for name, one in SUPPORT.items()
            if asked.group and one.group == asked.group and supported(name, observed).issuperset(problem.features)
        ]
        remedy = f"take {' or '.join(others)}" if others else f"leave {missing} out{INSTEAD.get(missing, '')}"
        raise ProblemError(f"{_place(problem, missing)}, which {asked.subject} does not support; {remedy}")


def _place(problem: Problem | AnyArm, feature: str) -> str:
    if feature in PROBLEM_FEATURES:
        return f"the problem has {feature} = {getattr(problem, feature)!r}"
    arm = problem
    for kind in getattr(problem, "kinds", ()):
        if feature in kind.features:
            arm = kind
            break
    has = "an initial distribution" if feature == "initial" else feature
    return f"arm {arm.name!r} has {has}"
