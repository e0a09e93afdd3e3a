"""A two-state approximation with a proof: the balanced dual of Guha, Munagala and Shi (2010).

Charge a price λ for every pull and let H_i(λ) be the best average of arm i alone at that price; at the balanced price
λ* = Σ H_i(λ*) weak duality gives μ* ≤ λ* + Σ H_i(λ*) = 2λ*. For an arm with H > 0 the best play at that price is "after
bad wait until τ = t, then pull; pull on while good". It defines a potential

    ψ(bad, τ) = H (min(τ, t) − 1),   ψ(good, 1) = δ,   ψ(good, τ ≥ 2) = H (t − 1),
    δ = min_τ (H τ + λ* − r_bad) / Pr(good | bad, τ) − (r_good − r_bad),

and the policy pulls the arm with the largest reward plus expected change of the potentials, an index policy. For
positively correlated chains with r_bad = 0 every belief has an arm whose pull makes that at least λ*: one just seen
good or ready; and where all are waiting, Pr(good | bad, τ) is concave in τ, so no pull is worse than idling, which
makes Σ H. So the policy earns at least λ* ≥ μ*/2. The ratio is stated only there; elsewhere the policy is played
without one.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import brentq

from restless_bandits.beliefs import table_period
from restless_bandits.errors import ProblemError
from restless_bandits.markov import Array
from restless_bandits.oracles.bracket import bracketed
from restless_bandits.oracles.myopic import index_laws, table_length
from restless_bandits.oracles.solution import Solution
from restless_bandits.policies import IndexPolicy
from restless_bandits.problem import AnyArm, Arm, Problem


class _PricedArm:
    """A two-state arm that pays for its pulls."""

    def __init__(self, arm: AnyArm) -> None:
        self.laws = index_laws(arm, table_length(arm))
        self.good, self.bad = (float(reward) for reward in arm.rewards)
        self.from_good = float(self.laws[0, 0, 0])
        self.from_bad: Array = self.laws[1, :, 0]
        self.wait = np.arange(1.0, len(self.from_bad) + 1.0)

    def averages(self, price: float) -> Array:
        """Average of "after bad wait until τ = t, pull on while good" for every t: two linear equations solved."""
        extra = self.good - self.bad
        after_bad = self.bad - price + self.from_bad * extra
        after_good = self.bad - price + self.from_good * extra
        leave = 1.0 - self.from_good
        total = after_bad * leave + self.from_bad * after_good
        length = self.wait * leave + self.from_bad
        # No way out of either state: an arm seen bad stays bad, and pays that when pulled in every slot.
        stuck = np.where(self.wait == 1, self.bad - price, 0.0)
        averages: Array = np.divide(total, length, out=stuck, where=length > 0)
        return averages

    def value(self, price: float) -> float:
        return max(0.0, float(self.averages(price).max()))

    def index(self, price: float) -> Array:
        """Reward plus expected change of the potential when pulled rather than left, for every belief."""
        means: Array = self.laws @ np.array([self.good, self.bad])
        profit = self.value(price)
        if profit <= 0:
            return means
        reachable = self.from_bad > 0
        if not reachable.any():
            return means
        costs = np.full(len(self.wait), np.inf)
        costs[reachable] = (profit * self.wait + price - self.bad)[reachable] / self.from_bad[reachable]
        ready = int(costs.argmin())
        bonus = float(costs[ready]) - (self.good - self.bad)
        after_bad = profit * np.minimum(self.wait, ready)
        after = np.full_like(means, profit * ready)
        after[1] = after_bad
        means += self.laws[:, :, 0] * bonus - after
        return means


def _balance(arms: list[_PricedArm]) -> float:
    """The price that equals the sum of what the arms make at it."""

    def excess(price: float) -> float:
        return sum(arm.value(price) for arm in arms) - price

    high = 1.0 + sum(arm.value(0.0) for arm in arms)
    return float(brentq(excess, 0.0, high, xtol=1e-15, rtol=1e-14)) if excess(0.0) > 0 else 0.0


def _checked(problem: Problem) -> list[_PricedArm]:
    for arm in problem.arms:
        if arm.n_states != 2:
            raise ProblemError(
                f"arm {arm.name!r} has {arm.n_states} states; guha is for two-state arms, so use whittle"
            )
    problem.require("monotone")
    return [_PricedArm(arm) for arm in problem.arms]


def guha_policy(problem: Problem) -> IndexPolicy:
    """Return the policy of the balanced dual."""
    arms = _checked(problem)
    price = _balance(arms)
    return _policy(arms, price, problem)


def _policy(arms: list[_PricedArm], price: float, problem: Problem) -> IndexPolicy:
    tables = tuple(arm.index(price) for arm in arms)
    return IndexPolicy(tables, problem.plays, tuple(table_period(arm) for arm in problem.arms))


def guha(problem: Problem) -> Solution:
    """Approximate two-state problems by the balanced dual; a ratio of 1/2 where its conditions hold."""
    started = time.perf_counter()
    arms = _checked(problem)
    price = _balance(arms)
    policy = _policy(arms, price, problem)
    proved = problem.plays == 1 and all(_conditions_hold(arm) for arm in problem.arms)
    how = (
        f"balanced dual at price {price:.6g}, which bounds μ* by {2 * price:.6g}"
        if problem.plays == 1
        else "balanced dual"
    )
    if not proved:
        how += "; no ratio is claimed (it needs one play, positive correlation, and reward 0 in the bad state)"
    return bracketed(problem, "guha", policy, how, started, ratio=0.5 if proved else None, details={"price": price})


def _conditions_hold(arm: AnyArm) -> bool:
    return isinstance(arm, Arm) and bool(arm.chain[0, 0] >= arm.chain[1, 0]) and bool(arm.rewards[1] == 0)
