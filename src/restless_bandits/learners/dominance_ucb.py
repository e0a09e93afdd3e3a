"""Optimism by dominance, colour by colour: plan on laws that are at least as good as the true ones, each from its own
observations.

A *colour* is (arm, last state s, elapsed slots τ). The law of what is seen depends on the colour alone, so its
observations are independent draws, and for each k an upper confidence bound U(s, τ, k) of Pr(state ≤ k) makes an upper
law. Where Assumptions 1 to 3 of Wang, Huang, Lui (2020) hold, values fall with the states, so a problem whose laws
dominate the true ones and whose rewards are at least as high is worth at least as much: plan on that, follow the plan
until something has been seen twice as often, plan again. No observation is thrown away (as by Restless-UCB), and the
upper laws are there before anything is planned (colored-UCRL2 finds them within its value iteration). Õ(√T) regret for
exact plans; docs/theory/dominance.md has the proof, and a table of what the program does otherwise. Feeding dominating
laws to an offline oracle is known from combinatorial bandits (SDCB: Chen, Hu, Li, Li, Liu, Lu 2016).

The bounds are Bernoulli KL bounds at a level (ln t, or that of the theorem), 1 where nothing was seen. Bounds of
different colours imply each other, and each is lowered to what the others imply:

(a) Pr(≤ k) grows with k; (b) and falls with s;
(c) the law after τ₁ slots, pushed through the rows of τ₂, bounds that of τ₁ + τ₂;
(d) from the cap on all states count as one pooled colour, plus what the laws still remember there, and the law of the
    best state, which falls with τ, bounds everything later;
(e) two states: the best row falls with τ, the worst rises, and never above the best.

*The cap* needs no mixing time and no exploration of its own. The largest difference that the last state makes,
D(τ) = max_k Pr(≤ k | best) − Pr(≤ k | worst), obeys D(τ + τ') ≤ D(τ) D(τ') on a monotone chain. Upper bounds of D at
τ = 1..8 come from the same observations, their powers bound the memory at every τ, the cap is the first τ at which this
is at most 1/t, and what is left there is added to the pooled bound. Until that is known, and where an arm does not
forget within ``LONGEST_CAP`` slots, the pooled bound says little and (c) and the best row do the work. A cap that is
given is used with the memory it leaves, so it costs sharpness and never optimism.

*Episodes* end when the count of a colour in them reaches its count before, or at slot 1.5 t + 5. Reward cells, of
which the theorem says the same, have no such rule of their own except while a state was seen at most once. Beyond
that the colours' rule does it up to constants: an episode visits no colour more often than all of the past did, so a
state is expected in it at most as often as it was expected in the past, and how often it was seen in the past is at
least half of that, less a multiple of the level, unless the confidence bounds fail.

*Without a horizon* nothing changes but that ``level=theorem``, a function of T, is refused: ln t and the memory 1/t
follow the time played.

*Oracles*: the proof wants a plan that is good in every belief. Value iteration over joint beliefs is (``exact``, to a
tolerance of .05/√t); for many two-state arms the balanced dual is, at half the optimum (``dual``, ``guarded``);
``whittle`` comes without proof. Arms that break the assumptions are played as well, without proof. ``auto`` with more
than ``MOST_TABLE_ARMS`` arms makes no claim and is quick: Whittle's index on coarser laws, pooled from ``MANY_CAP``
slots on, and episodes that end when an arm was left from a state as often as before, whatever the waits.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits.arrays import Array, IntArray, positive, whole
from restless_bandits.beliefs import JointBeliefs, forgetting_beliefs
from restless_bandits.errors import ProblemError
from restless_bandits.learners import _dominance_kernels as kernels
from restless_bandits.learners._bounds import kl_upper_bounds
from restless_bandits.learners.base import Learner, present_problem, require_choice, require_horizon, require_one_play
from restless_bandits.learners.violations import warn_of_violations
from restless_bandits.oracles._indices import table_index
from restless_bandits.oracles.guha import balanced_dual, guarded_policy
from restless_bandits.oracles.planning import (
    LARGEST_TABLE,
    MOST_SWEEPS,
    MOST_TABLE_ARMS,
    iterated,
    most_beliefs_at,
)
from restless_bandits.oracles.whittle import whittle_policy
from restless_bandits.plans import CountDoubled, Forever, Plan, Rule, SeenIn, Slots
from restless_bandits.policies import IndexPolicy, JointPolicy, Policy, SingleArm
from restless_bandits.problem import Problem, Task
from restless_bandits.record import EXACT_ELAPSED, Record

LONGEST_CAP = EXACT_ELAPSED
"""Elapsed slots up to which laws are told apart unless a cap is given."""
COARSEST, LOSS = 1e-3, 0.05
"""Tolerance of a plan: LOSS/√t, which adds at most 2.5 LOSS √T to the regret, and at most COARSEST."""
MANY_TOLERANCE, MANY_CAP = 1e-2, 64
"""The tolerance of laws, and the elapsed slots up to which they are told apart, where there are many arms."""
SHORTEST_TABLE = 8
"""Exact planning is refused where not even so many elapsed slots an arm would fit into a table."""


@dataclass(frozen=True, eq=False)
class OptimisticArm:
    """What an arm may be at best."""

    laws: Array
    """``[τ, s, k]`` from τ = 0, the identity, to where all rows agree; the last row is for an arm never seen."""
    rewards: Array
    seen: IntArray
    """How often each state was seen."""
    cap: int
    """Elapsed slots from which on observations were pooled."""


@dataclass(frozen=True)
class DominanceUCB(Learner):
    """Optimistic episodes on dominating laws.

    Parameters
    ----------
    level
        How sure the bounds are, n · kl(estimate, bound) ≤ level: ``ln-t``, ``theorem`` (the union bound of the theorem,
        which needs the horizon), or a positive number that scales ln t; below 1 nothing is proved.
    oracle
        What plans: ``exact`` (value iteration over joint beliefs), ``dual`` or ``guarded`` (the balanced dual, or
        Whittle's index guarded by it; two-state arms and one play), ``whittle``, or ``auto``: exact while the table is
        small for the slots played, else guarded where that is possible and there are at most 10 arms, else whittle.
    rewards
        ``learned``, or ``known``.
    cap
        Elapsed slots from which on they count as one, for every arm; found by itself if left out.

    """

    name: ClassVar[str] = "dominance-ucb"
    plans_often: ClassVar[bool] = True
    level: str | float = "ln-t"
    oracle: str = "auto"
    rewards: str = "learned"
    cap: int | None = None

    def __post_init__(self) -> None:
        require_choice(self, "oracle", self.oracle, ("auto", "exact", "dual", "guarded", "whittle"))
        require_choice(self, "rewards", self.rewards, ("learned", "known"))
        if isinstance(self.level, str):
            require_choice(self, "level", self.level, ("theorem", "ln-t"))
        else:
            positive(f"{self.name}: level", self.level)
        if self.cap is not None:
            whole(f"{self.name}: cap", self.cap, most=EXACT_ELAPSED)

    def check(self, task: Task) -> None:
        if self.level == "theorem":
            require_horizon(self, task)
        if task.n_arms == task.plays:
            return
        if self.oracle in ("dual", "guarded"):
            require_one_play(self, task)
            for i, name in enumerate(task.names):
                if not _dual_takes(task, i):
                    raise ProblemError(
                        f"{self.name}: oracle {self.oracle} is for arms of two states, the better one first, and "
                        f"{name!r} is none; use auto"
                    )
        if self.oracle == "exact":
            sizes = [n * SHORTEST_TABLE for n in task.n_states]
            if JointBeliefs.count(sizes, task.n_states, task.plays) > LARGEST_TABLE:
                raise ProblemError(f"{self.name}: {task.n_arms} arms are too many for oracle exact; use auto")

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        if task.n_arms == task.plays:
            return Plan(SingleArm(0, task.plays), until=Forever())
        notes = warn_of_violations(self.name, record, task)
        tolerance = MANY_TOLERANCE if self._many(task) else min(COARSEST, LOSS / math.sqrt(record.slots + 1))
        arms = self.optimistic_arms(record, task, tolerance)
        return Plan(self.policy(arms, record, task, tolerance), self.until(arms, record, task), notes)

    def until(self, arms: list[OptimisticArm], record: Record, task: Task) -> Rule:
        """When the episode that begins now ends."""
        cap = 1 if self._many(task) else max(arm.cap for arm in arms)
        rule: Rule = CountDoubled(cap=cap) | Slots(record.slots // 2 + 5)
        if task.rewards is None:
            for i, arm in enumerate(arms):
                for k in np.flatnonzero(arm.seen <= 1).tolist():
                    rule = rule | SeenIn(i, k)
        return rule

    def _many(self, task: Task) -> bool:
        """Whether there are so many arms that plans are neither exact nor guarded, and must be quick."""
        return self.oracle == "auto" and task.n_arms > MOST_TABLE_ARMS

    def log_level(self, slots: int, task: Task) -> float:
        """The level of the bounds after so many slots."""
        if self.level == "theorem":
            # ln(2C'T²): two sides, T counts each, to be wrong with probability 1/T. The C' bounds are those of laws by
            # colour, of laws pooled from any cap on, and of rewards.
            bounds = sum((n + 1) * (self.cap or LONGEST_CAP) * (n - 1) + n for n in task.n_states)
            return math.log(2 * bounds) + 2 * math.log(require_horizon(self, task))
        scale = 1.0 if self.level == "ln-t" else float(self.level)
        return scale * math.log(max(2, slots + 1))

    def optimistic_arms(self, record: Record, task: Task, tolerance: float = 0.0) -> list[OptimisticArm]:
        """The laws and rewards to plan on; tables end where all that follows agrees within the tolerance."""
        level = self.log_level(record.slots, task)
        time = max(2, record.slots + 1)
        # Within the coming episode no arm can wait longer than this.
        longest = self.cap or min(MANY_CAP if self._many(task) else LONGEST_CAP, 3 * time // 2 + 6)
        arms = []
        for i in range(task.n_arms):
            counts, seen, sums = record.counts(i), record.seen(i), record.reward_sums(i)
            laws, cap = kernels.optimistic_laws(counts, level, 1 / time, longest, self.cap is not None, tolerance)
            if task.rewards is not None:
                rewards = np.array(task.rewards[i])
            elif task.reward_laws[i] == "fixed":
                # One look is enough.
                rewards = np.minimum.accumulate(record.mean_rewards(i, 1.0).clip(0.0, 1.0))
            else:
                rewards = np.minimum.accumulate(kl_upper_bounds(sums, seen, level))
            arms.append(OptimisticArm(laws, rewards, seen, cap))
        return arms

    def policy(self, arms: list[OptimisticArm], record: Record, task: Task, tolerance: float) -> Policy:
        """Return what the oracle plays on the optimistic problem."""
        if self._many(task):
            tables = tuple(table_index(arm.laws[1:].swapaxes(0, 1).copy(), arm.rewards) for arm in arms)
            if all(table.size for table in tables):
                return IndexPolicy(tables, task.plays)
        if self.oracle in ("auto", "exact"):
            most = most_beliefs_at(record.slots) if self.oracle == "auto" else LARGEST_TABLE
            cut = tolerance
            while _table_size(arms, task) > most and self.oracle == "exact":
                # Coarser laws, by ever larger steps, until their table fits; they still dominate.
                cut *= 4
                arms = self.optimistic_arms(record, task, cut)
            if _table_size(arms, task) <= most:
                return joint_policy(arms, record.last_state.tolist(), task.plays, tolerance)
        problem = present_problem(record, task, [arm.laws for arm in arms], [arm.rewards for arm in arms])
        if self.oracle == "dual":
            return balanced_dual(problem).policy
        dual = self.oracle != "whittle" and task.plays == 1 and all(_dual_takes(task, i) for i in range(task.n_arms))
        return guarded_policy(problem) if dual else whittle_policy(problem)

    def optimistic_problem(self, record: Record, task: Task) -> Problem:
        """The problem that is planned on, started from the present belief."""
        arms = self.optimistic_arms(record, task)
        return present_problem(record, task, [arm.laws for arm in arms], [arm.rewards for arm in arms])


def _dual_takes(task: Task, arm: int) -> bool:
    """Whether the balanced dual can plan for an arm: two states, and the better one first where rewards are known."""
    ordered = task.rewards is None or task.rewards[arm][0] >= task.rewards[arm][-1]
    return task.n_states[arm] == 2 and ordered


def _table_size(arms: list[OptimisticArm], task: Task) -> int:
    sizes = [n * (len(arm.laws) - 2) + 1 for n, arm in zip(task.n_states, arms, strict=True)]
    return JointBeliefs.count(sizes, task.n_states, task.plays)


def joint_policy(arms: list[OptimisticArm], last_states: list[int], plays: int, tolerance: float) -> JointPolicy:
    """Plan by value iteration over joint beliefs, until the span of an update is within the tolerance.

    Warns where it is not when the sweeps run out: the proof does not cover that plan.
    """
    beliefs = [
        forgetting_beliefs(arm.laws[1:-1], arm.laws[-1, 0], arm.rewards, state if state < len(arm.rewards) else None)
        for arm, state in zip(arms, last_states, strict=True)
    ]
    policy, span = iterated(beliefs, plays, tolerance, linked=False)
    if span > tolerance:
        warnings.warn(
            f"{DominanceUCB.name}: a plan took more than {MOST_SWEEPS} sweeps of value iteration and was cut short; "
            "it plays on, without a proof",
            RuntimeWarning,
            stacklevel=2,
        )
    return policy
