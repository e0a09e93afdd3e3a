"""Oracles, and their answers: a policy and a proved bracket of the best long-run reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from restless_bandits._internal.html_tables import html_table
from restless_bandits._internal.validation import Array
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.policies.policies import JointPolicy, Policy

CERTIFIED_WIDTH = 1e-4
"""The largest gap to the optimum of a certified policy, unless another tolerance is requested."""


@dataclass(frozen=True)
class Solution:
    """The answer of an oracle to a problem.

    ``lower`` ≤ μ* ≤ ``upper`` always holds, rounding included; μ* is the best long-run reward a slot from the problem's
    initial states. ``gain`` is the policy's own long-run reward, ``None`` if the problem is too large and no simulation
    was made. ``certified`` means that the policy is proved to be optimal up to ``CERTIFIED_WIDTH``, or up to the
    requested tolerance: the gain is at least ``lower``, and ``upper`` exceeds ``lower`` by at most the tolerance. Both
    tolerances are normalized by the range of rewards if the range is not (0, 1). Gains and bounds are in the units of
    the problem. The numbers of the policy, its bias among them, and of ``details`` are normalized.
    """

    problem: Problem
    oracle: str
    policy: Policy
    gain: float | None
    lower: float
    upper: float
    certified: bool
    how: str
    seconds: float
    multichain: bool = False
    ratio: float | None = None
    """A proved share of μ* that the policy earns at least, for oracles with a ratio."""
    details: Mapping[str, Any] = field(default_factory=dict)
    gain_stderr: float | None = None
    """The standard error of a simulated gain; None for a computed gain. No bound rests on a simulated gain."""
    why: str | None = None
    """The reason why ``auto`` chose this oracle."""

    @property
    def bias(self) -> Array | None:
        """The bias over ``policy.beliefs``: relative values whose one-step differences price every choice.

        ``None`` for policies that are not optimal over joint beliefs, and for multichain problems, which have no single
        bias.
        """
        if isinstance(self.policy, JointPolicy) and not self.multichain:
            return self.policy.bias
        return None

    @property
    def remark(self) -> str | None:
        """The warning about an answer for a model that its own log rejects."""
        return self.problem.findings.remark("certified for" if self.certified else "solved for")

    @property
    def width(self) -> float:
        """The width of the bracket."""
        return self.upper - self.lower

    @property
    def shown_ends(self) -> tuple[float | None, float, float, str]:
        """The gain, both ends of the bracket and the symbol of the optimum, as rewards or as costs."""
        if not self.problem.in_costs:
            return self.gain, self.lower, self.upper, "μ*"
        return None if self.gain is None else 0.0 - self.gain, 0.0 - self.upper, 0.0 - self.lower, "least cost"

    def as_dict(self, stored: str | None = None) -> dict[str, Any]:
        """Return the output of ``restless solve --json``; ``stored`` is the file of the policy, if any."""
        bracket = ("oracle", "gain", "gain_stderr", "lower", "upper", "width", "certified")
        others = ("seconds", "how", "why", "multichain", "ratio")
        return {
            "problem": self.problem.name,
            **{name: getattr(self, name) for name in (*bracket, *others)},
            **self._as_costs(),
            "policy": stored,
            "details": dict(self.details),
            "fit": self.problem.findings.as_dict(),
        }

    def _as_costs(self) -> dict[str, Any]:
        """The gain and the bracket as costs, of a problem stated by costs."""
        gain, lower, upper, _ = self.shown_ends
        return {"cost": gain, "cost_lower": lower, "cost_upper": upper} if self.problem.in_costs else {}

    def __repr__(self) -> str:
        own, lower, upper, optimum = self.shown_ends
        gain = "not evaluated" if own is None else f"{own:.12g}"
        if self.gain_stderr is not None:
            gain = f"{own:.6g} ± {self.gain_stderr:.2g} (simulated)"
        mark = "certified" if self.certified else "not certified"
        remark = f"; {self.remark}" if self.remark else ""
        word = "cost" if self.problem.in_costs else "gain"
        return f"<Solution by {self.oracle}: {word} {gain}, {lower:.12g} ≤ {optimum} ≤ {upper:.12g}, {mark}{remark}>"

    def _repr_html_(self) -> str:
        own, lower, upper, optimum = self.shown_ends
        gain = "not evaluated" if own is None else f"{own:.9g}"
        gain += f" ± {self.gain_stderr:.2g}, simulated" if self.gain_stderr is not None else ""
        rows = [
            ("cost of the policy" if self.problem.in_costs else "gain of the policy", gain),
            ("optimum", f"{lower:.9g} ≤ {optimum} ≤ {upper:.9g}"),
            ("certified", "yes" if self.certified else "no"),
            ("how", self.how),
        ]
        return html_table(f"Solution by {self.oracle}", ("", ""), rows, self.remark or "")


@dataclass(frozen=True)
class Oracle:
    """A method to solve problems, under its name; a call with a problem returns the solution."""

    name: str
    solve: Callable[..., Solution]
    """A function from a problem, with options, to a policy with a bracket."""
    policy: Callable[[Problem], Policy]
    """The policy alone."""
    plan: Callable[[Problem, int, int], Policy] | None = None
    """The policy for a learner: as precise as worthwhile after so many slots, for so many slots to come."""
    accepts: Callable[[Problem], None] = lambda problem: None
    """Raises ``ProblemError`` for a problem that the oracle cannot solve, before any work."""
    ordered: bool = False
    """Whether the oracle takes only arms whose better states come first."""

    def __call__(self, problem: AnyProblem, **options: Any) -> Solution:
        return self.solve(as_problem(problem), **options)
