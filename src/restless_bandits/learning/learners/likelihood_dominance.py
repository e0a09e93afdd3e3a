"""Likelihood dominance: plans on distributions at least as good as those of every chain consistent with the
observations.

For a two-state arm with chain θ, G_θ(s, τ) is the probability of the good state τ slots after s. Under Assumptions 1 to
3 of Wang, Huang, Lui (2020), values fall with the states. A problem with dominating distributions and rewards at least
as high is therefore worth at least as much. After t slots, with L the likelihood of all observations of the arm,
interleaved or not, and q the uniform distribution on 0 ≤ P(2, 1) ≤ P(1, 1) ≤ 1,

    C = {θ : ln L(θ) ≥ ln ∫ L dq − ln t},    U(s, τ) = max over C of G_θ(s, τ):

the learner plans on the table of distributions U, follows the plan until some count has doubled, and plans again. The
regret is of order √T for exact plans; docs/theory/likelihood-dominance.md has the theorem, its proof, and a table of
the program's deviations. Dominating distributions for an offline oracle are known from combinatorial bandits (SDCB:
Chen, Hu, Li, Li, Liu, Lu 2016); confidence sets from mixtures of likelihoods go back to Darling and Robbins.

``_likelihood_sets`` bounds U from above and the integral from below, both with a proof: the table is never below the
truth as long as C contains the truth. Mean rewards have KL bounds at the level ln t, each state separately, lowered to
the bounds of better states. The bounds hold for any distribution on the arm's range: of all distributions on [0, 1]
with a given mean the Bernoulli distribution has the largest exponential moments.

*More than two states.* Sufficiently fast bounds of the same kind are not known to us. There every *colour* (last state
s, elapsed slots τ) bounds Pr(state ≤ k) by its own observations (``_dominance_kernels``). These bounds are also
dominating and proved, but observations at one τ say little of another τ.

*Episodes* end when the count of some (arm, last state, elapsed slots) in them reaches its count before, or at slot 1.1
t + 5, or at the first or second observation of a state.

*Oracles*: the proof requires a plan that is good in every belief. Value iteration over joint beliefs is (``exact``, to
a tolerance of .05/√t); for many two-state arms the balanced dual is, at half the optimum (``dual``, ``guarded``);
``whittle`` comes without proof. Arms that break the assumptions are played as well, without proof. ``auto`` with more
than ``MOST_TABLE_ARMS`` arms makes no claim and is quick. Whittle's index uses coarser distributions, distinguished for
``MANY_ARMS_TRUNCATION`` slots, and episodes end when an arm was left from a state as often as before, whatever the
waits.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray, positive
from restless_bandits.learning.learners.base import Learner, present_problem, require_choice, require_one_play
from restless_bandits.learning.learners.confidence_bounds import kl_upper_bounds
from restless_bandits.learning.learners.dominance_kernels import optimistic_distributions
from restless_bandits.learning.learners.likelihood_sets import dominating_distributions
from restless_bandits.learning.learners.violations import warn_of_violations
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import EXACT_ELAPSED, Record
from restless_bandits.model.rewards import values_of
from restless_bandits.model.tasks import Task
from restless_bandits.oracles.guha import balanced_dual, guarded_policy
from restless_bandits.oracles.index_kernels import table_index
from restless_bandits.oracles.planning import LARGEST_TABLE, MOST_SWEEPS, MOST_TABLE_ARMS, iterated, most_beliefs_at
from restless_bandits.oracles.whittle import whittle_policy
from restless_bandits.policies.plans import CountDoubled, Forever, Plan, Rule, SeenIn, Slots
from restless_bandits.policies.policies import IndexPolicy, JointPolicy, Policy, SingleArm
from restless_bandits.processes.beliefs import JointBeliefs, forgetting_beliefs

LONGEST_ARM_TRUNCATION = EXACT_ELAPSED
"""The largest truncation of distributions, in elapsed slots."""
EPISODE_DIVISOR = 10
"""An episode lasts at most a tenth of the slots before it, and five more."""
COARSEST, LOSS = 1e-3, 0.05
"""Tolerance of a plan: LOSS/√t, which adds at most 2.5 LOSS √T to the regret, and at most COARSEST."""
ROUGHEST = 0.1
"""Distributions may be truncated at this precision if a table of joint beliefs fits then: index policies lose more."""
MANY_TOLERANCE, MANY_ARMS_TRUNCATION = 1e-2, 64
"""The tolerance and the truncation of distributions for many arms."""
SHORTEST_TABLE = 8
"""Exact planning is refused if a table has no room for this number of elapsed slots an arm."""


@dataclass(frozen=True, eq=False)
class OptimisticArm:
    """The optimistic bounds of an arm."""

    distributions: Array
    """``[τ, s, k]`` from τ = 0, the identity, up to agreement of all rows; the last row is for an arm never
    observed.
    """
    rewards: Array
    seen: IntArray
    """The number of observations of each state."""
    truncation: int
    """The truncation: elapsed slots from which on all count as one."""


@dataclass(frozen=True)
class LikelihoodDominance(Learner):
    """Optimistic episodes on distributions that dominate those of every likely chain.

    Parameters
    ----------
    level
        Scales the level ln t of the confidence sets; below 1 there is no proof.
    oracle
        The planning oracle: ``exact`` (value iteration over joint beliefs), ``dual`` or ``guarded`` (the balanced dual,
        or Whittle's index guarded by the dual; two-state arms and one play), ``whittle``, or ``auto``: exact while the
        table is small for the slots played, else guarded if possible for at most 10 arms, else whittle.
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "likelihood-dominance"
    plans_often: ClassVar[bool] = True
    level: float = 1.0
    oracle: str = "auto"
    rewards: str = "learned"

    def __post_init__(self) -> None:
        require_choice(self, "oracle", self.oracle, ("auto", "exact", "dual", "guarded", "whittle"))
        require_choice(self, "rewards", self.rewards, ("learned", "known"))
        positive(f"{self.name}: level", self.level)

    def check(self, task: Task) -> None:
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
        """The stop rule of the episode that begins now."""
        truncation = 1 if self._many(task) else max(arm.truncation for arm in arms)
        rule: Rule = CountDoubled(cap=truncation) | Slots(record.slots // EPISODE_DIVISOR + 5)
        if task.rewards is None:
            for i, arm in enumerate(arms):
                for k in np.flatnonzero(arm.seen <= 1).tolist():
                    rule = rule | SeenIn(i, k)
        return rule

    def _many(self, task: Task) -> bool:
        """Whether the number of arms requires quick plans, neither exact nor guarded."""
        return self.oracle == "auto" and task.n_arms > MOST_TABLE_ARMS

    def optimistic_arms(self, record: Record, task: Task, tolerance: float = 0.0) -> list[OptimisticArm]:
        """The distributions and rewards for planning; tables end once all later entries agree within the tolerance."""
        time = max(2, record.slots + 1)
        level = self.level * math.log(time)
        # Within the coming episode no arm can wait longer.
        longest = min(MANY_ARMS_TRUNCATION if self._many(task) else LONGEST_ARM_TRUNCATION, 11 * time // 10 + 6)
        arms = []
        shares = task.normalized_sums(record.flat_rewards, record.flat_seen)
        for i, n_states in enumerate(task.n_states):
            counts, seen = record.counts(i), record.seen(i)
            sums = shares[record.state_base[i] : record.state_base[i + 1]]
            if n_states == 2:
                distributions = dominating_distributions(counts, level, longest, tolerance)
                truncation = len(distributions) - 1
            else:
                distributions, truncation = optimistic_distributions(counts, level, 1 / time, longest, tolerance)
            if task.rewards is not None:
                rewards = np.array(task.rewards[i])
            elif task.reward_laws[i] == "fixed":
                # A single observation is enough.
                means = np.where(seen > 0, sums / np.maximum(seen, 1), 1.0)
                rewards = values_of(np.minimum.accumulate(means.clip(0.0, 1.0)), task.reward_ranges[i])
            else:
                bounds = np.minimum.accumulate(kl_upper_bounds(sums, seen, level))
                rewards = values_of(bounds, task.reward_ranges[i])
            arms.append(OptimisticArm(distributions, rewards, seen, truncation))
        return arms

    def policy(self, arms: list[OptimisticArm], record: Record, task: Task, tolerance: float) -> Policy:
        """Return the oracle's policy for the optimistic problem."""
        if self._many(task):
            tables = tuple(table_index(arm.distributions[1:].swapaxes(0, 1).copy(), arm.rewards) for arm in arms)
            if all(table.size for table in tables):
                return IndexPolicy(tables, task.plays)
        if self.oracle in ("auto", "exact"):
            most = most_beliefs_at(record.slots) if self.oracle == "auto" else LARGEST_TABLE
            coarsest = math.inf if self.oracle == "exact" else ROUGHEST
            cut = tolerance
            while _table_size(arms, task) > most and 4 * cut <= coarsest:
                # Coarser distributions, by ever larger steps, until their table fits; they still dominate.
                cut *= 4
                arms = self.optimistic_arms(record, task, cut)
            if _table_size(arms, task) <= most:
                return joint_policy(arms, record.last_state.tolist(), task.plays, tolerance)
        problem = present_problem(record, task, [arm.distributions for arm in arms], [arm.rewards for arm in arms])
        if self.oracle == "dual":
            return balanced_dual(problem).policy
        dual = self.oracle != "whittle" and task.plays == 1 and all(_dual_takes(task, i) for i in range(task.n_arms))
        return guarded_policy(problem) if dual else whittle_policy(problem)

    def optimistic_problem(self, record: Record, task: Task) -> Problem:
        """The problem for planning, started from the present belief."""
        arms = self.optimistic_arms(record, task)
        return present_problem(record, task, [arm.distributions for arm in arms], [arm.rewards for arm in arms])


def _dual_takes(task: Task, arm: int) -> bool:
    """Whether the balanced dual can plan for an arm: two states, and the better state first if rewards are known."""
    ordered = task.rewards is None or task.rewards[arm][0] >= task.rewards[arm][-1]
    return task.n_states[arm] == 2 and ordered


def _table_size(arms: list[OptimisticArm], task: Task) -> int:
    sizes = [n * (len(arm.distributions) - 2) + 1 for n, arm in zip(task.n_states, arms, strict=True)]
    return JointBeliefs.count(sizes, task.n_states, task.plays)


def joint_policy(arms: list[OptimisticArm], last_states: list[int], plays: int, tolerance: float) -> JointPolicy:
    """Plan by value iteration over joint beliefs, until the span of an update is within the tolerance.

    Warns if the sweeps run out before convergence: the proof does not cover such a plan.
    """
    beliefs = [
        forgetting_beliefs(
            arm.distributions[1:-1], arm.distributions[-1, 0], arm.rewards, state if state < len(arm.rewards) else None
        )
        for arm, state in zip(arms, last_states, strict=True)
    ]
    policy, span = iterated(beliefs, plays, tolerance, linked=False)
    if span > tolerance:
        warnings.warn(
            f"{LikelihoodDominance.name}: a plan took more than {MOST_SWEEPS} sweeps of value iteration and was cut "
            "short; it plays on, without a proof",
            RuntimeWarning,
            stacklevel=2,
        )
    return policy
