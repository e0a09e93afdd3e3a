"""A two-state approximation with a proof: the balanced dual of Guha, Munagala and Shi (2010).

Charge a price λ for every pull, and let H_i(λ) be the best average of arm i alone at the price λ. At the balanced price
λ* = Σ H_i(λ*), weak duality gives μ* ≤ λ* + Σ H_i(λ*) = 2λ*. For an arm with H > 0 the best play at λ* is "after bad
wait until τ = t, then pull; pull on while good". This play defines a potential

    ψ(bad, τ) = H (min(τ, t) − 1),   ψ(good, 1) = δ,   ψ(good, τ ≥ 2) = H (t − 1),
    δ = min_τ (H τ + λ* − r_bad) / Pr(good | bad, τ) − (r_good − r_bad),

and the policy pulls the arm with the largest reward plus expected change of the potentials, an index policy. For
positively correlated chains with r_bad = 0, every belief has an arm whose pull makes the sum at least λ*: an arm just
seen good, or a ready arm. If all arms are waiting, Pr(good | bad, τ) is concave in τ, so no pull is worse than idling,
which makes Σ H. The policy therefore earns at least λ* ≥ μ*/2. The ratio is stated only under these conditions;
otherwise the policy is played without a ratio.

``balanced_dual`` is the same construction with a certificate, for learners, which plan on tables of distributions.
Consider a table whose good row falls with τ, and whose bad row rises with τ and stays below the good row. Some pull or
idling then makes at least λ* in every belief. Tables need not be concave, and idling is no option here, so
``certificate`` computes the minimum over *all* joint beliefs. The computation takes polynomial time, because the
contributions of arms add up. ``certificate`` applies to every index policy. ``guarded_policy`` is Whittle's index, held
as close to the indices of the dual as the proof of λ* requires.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import scipy  # The imported parts load at their first use, which does not occur at every start.

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import AnyArm, Arm, TableArm
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.bracket import bracketed
from restless_bandits.oracles.index_kernels import table_index
from restless_bandits.oracles.myopic import index_distributions, table_length
from restless_bandits.oracles.normalization import normalized, solved_normalized
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.oracles.whittle import whittle_index
from restless_bandits.policies.policies import TIE, IndexPolicy

LEASHES = (math.inf, 8.0, 5.0, 3.0, 2.0, 1.5, 1.0)
"""Distances of Whittle's index from the dual's that a guard tries, in order; the factor 1 always keeps the proof."""
ROUNDING = 1e-9


@njit
def _best_average(from_bad: Array, from_good: float, good: float, bad: float, price: float) -> float:
    """The best average of "after bad wait until τ = t, pull on while good" over t, or 0: two linear equations solved.

    Compiled, because the search for a balance calls the function repeatedly.
    """
    extra = good - bad
    after_good = bad - price + from_good * extra
    leave = 1.0 - from_good
    most = 0.0
    for tau in range(1, from_bad.shape[0] + 1):
        probability = from_bad[tau - 1]
        length = tau * leave + probability
        if length > 0:
            most = max(most, ((bad - price + probability * extra) * leave + probability * after_good) / length)
        elif tau == 1:
            # Neither state can be left: an arm seen bad stays bad, and pays its bad reward when pulled in every slot.
            most = max(most, bad - price)
    return most


class PricedArm:
    def __init__(self, arm: AnyArm, length: int) -> None:
        self.distributions = index_distributions(arm, length)
        self.good, self.bad = (float(reward) for reward in arm.rewards)
        self.from_good = float(self.distributions[0, 0, 0])
        # A copy, because tables come in several layouts and Numba compiles for each layout.
        self.from_bad: Array = self.distributions[1, :, 0].copy()
        self.wait = np.arange(1.0, len(self.from_bad) + 1.0)

    def value(self, price: float) -> float:
        return _best_average(self.from_bad, self.from_good, self.good, self.bad, price)

    def terms(self, price: float) -> tuple[float, int, float]:
        """H, the wait t − 1 after bad until the arm is ready, and δ; all zero for an arm not worth the price."""
        profit = self.value(price)
        reachable = self.from_bad > 0
        if profit <= 0 or not reachable.any():
            return 0.0, 0, 0.0
        costs = np.full(len(self.wait), np.inf)
        costs[reachable] = (profit * self.wait + price - self.bad)[reachable] / self.from_bad[reachable]
        ready = int(costs.argmin())
        return profit, ready, float(costs[ready]) - (self.good - self.bad)

    def index(self, price: float) -> Array:
        """Reward plus expected change of the potential, of a pull compared with no pull, for every belief."""
        means: Array = self.distributions @ np.array([self.good, self.bad])
        profit, ready, bonus = self.terms(price)
        after = np.full_like(means, profit * ready)
        after[1] = profit * np.minimum(self.wait, ready)
        means += self.distributions[:, :, 0] * bonus - after
        return means

    def potential(self, price: float) -> Array:
        """ψ for every belief."""
        profit, ready, bonus = self.terms(price)
        values = np.full(self.distributions.shape[:2], profit * ready)
        values[0, 0] = bonus
        values[1] = profit * np.minimum(self.wait - 1, ready)
        return values


def balance_price(arms: list[PricedArm]) -> float:
    """The price that equals the sum of the arms' averages at the price."""

    def excess(price: float) -> float:
        return sum(arm.value(price) for arm in arms) - price

    high = 1.0 + sum(arm.value(0.0) for arm in arms)
    return float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-15, rtol=1e-14)) if excess(0.0) > 0 else 0.0


def _check(problem: Problem) -> None:
    for arm in problem.arms:
        if arm.n_states != 2:
            raise ProblemError(
                f"arm {arm.name!r} has {arm.n_states} states; guha is for two-state arms, so use whittle"
            )
    problem.require("monotone")


def _balanced(problem: Problem, *, whole_tables: bool = False) -> tuple[list[PricedArm], float, IndexPolicy]:
    """The arms of a problem, their balanced price, and the index policy at the balanced price."""
    _check(problem)
    lengths = [arm.length if whole_tables and isinstance(arm, TableArm) else table_length(arm) for arm in problem.arms]
    arms = [PricedArm(arm, length) for arm, length in zip(problem.arms, lengths, strict=True)]
    price = balance_price(arms)
    return arms, price, IndexPolicy.of(problem, [arm.index(price) for arm in arms])


@normalized
def guha_policy(problem: Problem) -> IndexPolicy:
    """Return the policy of the balanced dual."""
    return _balanced(problem)[2]


@solved_normalized
def guha(problem: Problem) -> Solution:
    """Approximate two-state problems by the balanced dual; a ratio of 1/2 where its conditions hold."""
    started = time.perf_counter()
    _, price, policy = _balanced(problem)
    chains = [arm.chain for arm in problem.arms if isinstance(arm, Arm)]
    # An arm that may stay in its state for ever earns more than the average that bounds other arms.
    bounds = problem.plays == 1 and all(chain[0, 1] > 0 and chain[1, 0] > 0 for chain in chains)
    correlated = len(chains) == problem.n_arms and all(chain[0, 0] >= chain[1, 0] for chain in chains)
    proved = bounds and correlated and all(arm.rewards[1] == 0 for arm in problem.arms)
    how = f"balanced dual at price {price:.6g}" if problem.plays == 1 else "balanced dual"
    if bounds:
        how += f", which bounds μ* by {2 * price:.6g}"
    if not proved:
        how += (
            "; no ratio is claimed (it needs one play, moves both ways, positive correlation, and reward 0 in the bad "
            "state)"
        )
    return bracketed(problem, "guha", policy, how, started, ratio=0.5 if proved else None, details={"price": price})


@dataclass(frozen=True, eq=False)
class BalancedDual:
    """The balanced dual of a two-state problem with one play.

    ``potentials[arm][s, τ - 1]`` is ψ, with a last row for an arm never seen. ``policy.tables`` are the indices: the
    gain in reward and potential of a pull over no pull.
    """

    policy: IndexPolicy
    price: float
    potentials: tuple[Array, ...]
    never_seen: tuple[bool, ...]
    """For each arm, whether the arm may start unseen."""

    @property
    def upper(self) -> float:
        """2λ*, an upper bound of the reward of any policy."""
        return 2.0 * self.price

    def certificate(self, scores: tuple[Array, ...] | None = None, *, idle: bool = False) -> float:
        """Return the least, over all joint beliefs after slot 1, of reward plus expected change of the potential.

        A policy that makes at least ρ everywhere earns at least ρ a slot. The policy pulls the arm of the highest
        ``scores``, the dual's own by default; ties count by the worst arm. With ``idle`` the policy may also pull no
        arm, at score 0.

        If arm j is pulled with score x, the other arms have arbitrary beliefs with scores up to x. Only the change of
        their potentials counts. Each other arm therefore contributes its least change. The arm of the slot
        before has τ = 1.
        """
        tables = self.policy.tables if scores is None else scores
        parts = [self._beliefs(i, table) for i, table in enumerate(tables)]
        if idle:
            parts.append(np.zeros((1, 4)))
        beliefs = np.concatenate(parts)
        arm = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.argsort(beliefs[:, 0], kind="stable")
        return _least_made(beliefs[order], arm[order], len(parts), TIE)

    def _beliefs(self, arm: int, scores: Array) -> Array:
        """Rows (score, change of the potential without a pull, index, whether τ = 1) for all beliefs of an arm."""
        potential = self.potentials[arm]
        rows, columns = (3 if self.never_seen[arm] else 2), potential.shape[1]
        # The last column stands for all later τ too. If the table has one column, the column counts twice: as just
        # seen, and as later.
        column = np.append(np.arange(columns), columns - 1)
        after = np.append(np.arange(1, columns), [columns - 1, columns - 1])
        table = np.empty((rows, columns + 1, 4))
        table[:, :, 0] = scores[:rows, column]
        table[:, :, 1] = potential[:rows, after] - potential[:rows, column]
        table[:, :, 2] = self.policy.tables[arm][:rows, column]
        table[:, :, 3] = 0.0
        table[:2, 0, 3] = 1.0
        return table.reshape(-1, 4)


@njit
def _least_made(beliefs: Array, arm: IntArray, n_arms: int, tie: float) -> float:
    """The least over all joint beliefs, from the rows of ``BalancedDual._beliefs`` in ascending order of score."""
    waited, just = np.full(n_arms, np.inf), np.full(n_arms, np.inf)
    least = np.inf
    below = 0
    for row in range(beliefs.shape[0]):
        while below < beliefs.shape[0] and beliefs[below, 0] <= beliefs[row, 0] + tie:
            i = arm[below]
            if beliefs[below, 3] > 0:
                just[i] = min(just[i], beliefs[below, 1])
            else:
                waited[i] = min(waited[i], beliefs[below, 1])
            below += 1
        total, nowhere, swap, forced = 0.0, 0, np.inf, np.inf
        for i in range(n_arms):
            if i == arm[row]:
                continue
            if waited[i] == np.inf:
                nowhere += 1
                forced = just[i]
            else:
                total += waited[i]
                swap = min(swap, just[i] - waited[i])
        own = beliefs[row, 1] + beliefs[row, 2]
        if beliefs[row, 3] > 0 or n_arms == 1:
            if nowhere == 0:
                least = min(least, own + total)
        elif nowhere == 0:
            least = min(least, own + total + swap)
        elif nowhere == 1:
            # The only belief of that arm below this score has τ = 1.
            least = min(least, own + total + forced)
    return least


@normalized
def balanced_dual(problem: Problem) -> BalancedDual:
    """Return the balanced dual of a two-state problem, chains or tables, with one play."""
    if problem.plays != 1:
        raise ProblemError(f"the balanced dual pulls one arm a slot, but the problem has plays = {problem.plays}")
    # A table of distributions has a fixed length; its settling time is irrelevant here and slow to find.
    arms, price, policy = _balanced(problem, whole_tables=True)
    potentials = tuple(arm.potential(price) for arm in arms)
    return BalancedDual(policy, price, potentials, tuple(arm.initial is None for arm in problem.arms))


@normalized
def guarded_policy(problem: Problem) -> IndexPolicy:
    """Return Whittle's index, held so close to the dual's that λ*, or the dual's own bound if less, stays proved.

    Both indices are prices of a pull, and agree on the beliefs that are worth λ*. If the scores are within κ of the
    dual's indices, the pulled arm is within 2κ of the best arm. So half of the dual's surplus over λ* is always a
    sufficient κ; larger distances are tried first. A guard slot by slot (Whittle's arm wherever its pull makes λ*)
    would allow more freedom, but is not an index policy.
    """
    dual = balanced_dual(problem)
    own = dual.policy.tables
    made = dual.certificate()
    whittle = [_whittle_table(arm, table.shape[1]) for arm, table in zip(problem.arms, own, strict=True)]
    for times in LEASHES if made > dual.price else ():
        reach = times * 0.5 * (made - dual.price)
        pairs = zip(whittle, own, strict=True)
        tables = tuple(np.clip(index, near - reach, near + reach) for index, near in pairs if index is not None)
        if len(tables) == len(own) and dual.certificate(tables) >= dual.price - ROUNDING:
            return IndexPolicy(tables, 1, dual.policy.periods)
    return dual.policy


def _whittle_table(arm: AnyArm, length: int) -> Array | None:
    """Whittle's index; the first crossing for an arm that is not indexable; None if its systems are singular."""
    if isinstance(arm, Arm):
        return whittle_index(arm, length=length).table
    # A copy, because Numba would compile everything anew for a read-only table.
    table = table_index(index_distributions(arm, length).copy(), arm.rewards.copy())
    return table if table.size else None


ORACLE = Oracle("guha", guha, guha_policy, accepts=_check, ordered=True)
