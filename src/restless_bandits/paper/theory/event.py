"""The event E of Lemma 1 and its probability (Wang, Huang, Lui 2020, Appendix A.3, Lemma 17).

E says that every estimate is within rad(T) of the truth, transition probabilities and mean rewards alike, once every
state of every arm was observed m(T) times. Hoeffding's inequality for at most 3 transition probabilities and a reward
for each state, 2/T for each, gives Pr(E) ≥ 1 − 8NM/T.

After m observations the counts of a row are multinomial: ``event_probability`` computes Pr(E). ``check_event``
simulates.

Differs from the paper: exploration stops when the last state has its m(T) observations. The others have more, a random
number that depends on observations, which Hoeffding's inequality does not cover. The lemma holds all the same: p̂_n
from the first n observations is a martingale read backwards. By Doob's inequality exp(−2m rad²) bounds the probability
that p̂_n − p exceeds rad for *any* n ≥ m. (The paper's last line has Pr[|r − r̂| ≤ rad] where ≥ is meant.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import check_generator
from restless_bandits._internal.validation import Array
from restless_bandits.model.arms import AnyArm
from restless_bandits.model.optimism import exploration_count, radius
from restless_bandits.model.problem import Problem
from restless_bandits.model.rewards import normalized_rewards
from restless_bandits.model.support import refuse_unsupported

__all__ = ["EventCheck", "check_event", "event_bound", "event_probability"]

STREAM = 0
ROUNDING = 1e-9
FALSE_ALARM = 1e-6
"""The probability that a check by simulation refutes a true statement."""


@dataclass(frozen=True)
class EventCheck:
    """The frequency of E in a number of runs, against the lemma's bound and the computed probability."""

    horizon: int
    observations: int
    radius: float
    runs: int
    held: int
    bound: float
    """1 − 8NM/T."""
    probability: float
    """Pr(E) with m(T) observations of every state, computed."""

    @property
    def share(self) -> float:
        return self.held / self.runs

    @property
    def refuted(self) -> bool:
        """Whether E held too seldom for the lemma, at a false-alarm rate of 1e-6."""
        from scipy import stats

        return bool(stats.binom.cdf(self.held, self.runs, self.bound) < FALSE_ALARM)

    @property
    def agrees(self) -> bool:
        """Whether the runs agree with the computed probability, two-sided at a false-alarm rate of 1e-6."""
        from scipy import stats

        few = float(stats.binom.cdf(self.held, self.runs, self.probability))
        many = float(stats.binom.sf(self.held - 1, self.runs, self.probability))
        return min(few, many) >= FALSE_ALARM / 2


def event_bound(problem: Problem, horizon: int) -> float:
    """1 − 8NM/T, a lower bound of Pr(E); 0 if negative."""
    return max(0.0, 1 - 8 * problem.n_arms * max(problem.n_states) / horizon)


def event_probability(problem: Problem, horizon: int) -> float:
    """Return Pr(E) with exactly m(T) observations of every state, from multinomial counts."""
    _accept(problem)
    m, rad = exploration_count(horizon), radius(horizon)
    probability = 1.0
    for arm in problem.arms:
        for row in _rows(arm):
            probability *= _row_probability(row, m, rad)
        if arm.reward_law == "bernoulli":
            for mean in normalized_rewards(arm.rewards, arm.reward_range):
                probability *= _interval(m, float(mean), *_counts_within(m, float(mean), rad))
    return probability


def check_event(problem: Problem, horizon: int, runs: int = 10_000, seed: int = 0) -> EventCheck:
    """Draw the estimates of a number of runs and count the runs with all estimates within rad(T)."""
    _accept(problem)
    m, rad = exploration_count(horizon), radius(horizon)
    rng = check_generator(seed, problem.content, STREAM)
    held = np.ones(runs, dtype=bool)
    for arm in problem.arms:
        for row in _rows(arm):
            estimates = rng.multinomial(m, row, size=runs) / m
            held &= (np.abs(estimates - row) <= rad + ROUNDING / m).all(axis=1)
        if arm.reward_law == "bernoulli":
            means = normalized_rewards(arm.rewards, arm.reward_range)
            estimates = rng.binomial(m, means, size=(runs, arm.n_states)) / m
            held &= (np.abs(estimates - means) <= rad + ROUNDING / m).all(axis=1)
    bound, probability = event_bound(problem, horizon), event_probability(problem, horizon)
    return EventCheck(horizon, m, rad, runs, int(held.sum()), bound, probability)


def _accept(problem: Problem) -> None:
    """Refuse problems without a computable probability of the event."""
    problem.require_steady("the event")
    refuse_unsupported(problem, "theory")
    problem.require("birth_death")
    for arm in problem.arms:
        if arm.reward_law not in ("bernoulli", "fixed"):
            raise ProblemError(
                f"arm {arm.name!r} has {arm.reward_law} rewards, whose means have no probability in closed form; the "
                "event takes bernoulli or fixed ones"
            )


def estimate_within(chain: Array, rad: float, rng: np.random.Generator) -> Array:
    """Draw an estimated chain, uniform over the chains that the event E allows: every entry within the radius of its
    own.
    """
    n = len(chain)
    estimate = np.array(chain, dtype=float)
    for k in range(n):
        neighbours = [j for j in (k + 1, k - 1) if 0 <= j < n]
        while abs((shifts := rng.uniform(-rad, rad, len(neighbours))).sum()) > rad:
            pass
        estimate[k, neighbours] += shifts
        estimate[k, k] -= shifts.sum()
    return estimate


def _rows(arm: AnyArm) -> list[Array]:
    """The neighbour probabilities of every state: two or three, or one for a single state."""
    chain = arm.one_step
    return [chain[k, max(0, k - 1) : k + 2] for k in range(arm.n_states)]


def _counts_within(m: int, p: float, rad: float) -> tuple[int, int]:
    """The least and the largest count whose share is within the radius."""
    return math.ceil(m * (p - rad) - ROUNDING), math.floor(m * (p + rad) + ROUNDING)


def _interval(m: int, p: float, low: int, high: int) -> float:
    from scipy import stats

    return float(stats.binom.cdf(high, m, p) - stats.binom.cdf(low - 1, m, p))


def _row_probability(row: Array, m: int, rad: float) -> float:
    """The probability that all shares of a multinomial draw are within the radius of their means."""
    from scipy import stats

    limits = [_counts_within(m, float(p), rad) for p in row]
    if len(row) == 1:
        return 1.0
    if len(row) == 2:
        (low, high), (other_low, other_high) = limits
        return _interval(m, float(row[0]), max(low, m - other_high), min(high, m - other_low))
    (low, high), (middle_low, middle_high), (last_low, last_high) = limits
    first = np.arange(max(low, 0), min(high, m) + 1)
    rest = m - first
    bottom, top = np.maximum(middle_low, rest - last_high), np.minimum(middle_high, rest - last_low)
    share = float(row[1] / (row[1] + row[2])) if row[1] + row[2] > 0 else 0.0
    middle = stats.binom.cdf(top, rest, share) - stats.binom.cdf(bottom - 1, rest, share)
    return float(stats.binom.pmf(first, m, float(row[0])) @ np.maximum(middle, 0.0))
