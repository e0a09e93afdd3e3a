"""The value of a policy by importance weighting, from a log of pulls with known choice probabilities.

A policy here is a function of the beliefs: the last observed states and the slots since then. The log determines the
beliefs before every pull t, and therefore the policy's arm π(t). The *ratio* of a pull is 1 / (its choice probability)
if the pulled arm is π(t), else 0; given the past, its mean is 1. The weight of a pull is the product of the last W
ratios, its own included, and

    Σ weight · reward / Σ weight

is the mean reward of the W-th pull of a player who starts with the logger's beliefs and follows the policy from there.
Chains move independently of observations. The remaining influence of the logger is its knowledge of arms that the
policy did not pull within the window. Longer windows leave less influence, and fewer pulls with positive weight.

*The window.* The fitted model estimates the remaining influence. From the beliefs before pulls of the log, the policy
is followed for W pulls along the fitted chains, and the reward of the last pull is compared with the long run. The
chosen W has the shortest interval after addition of the estimate on both sides. No number is given if the estimate
exceeds the statistical part, or if no window leaves enough pulls: an effective number, (Σ weight)² / Σ weight², of at
least ``FEWEST``.

*The interval.* The log is cut into blocks, long against windows and memory. The variance comes from the sums of weight
· (reward − mean) over blocks, its degrees of freedom from the weights of the blocks.

*The check.* Ratios of single pulls average 1 if the logged probabilities are correct. If the mean differs from 1 by
more than ``DOUBT`` standard errors, no number is given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.logs.traces import Trace
from restless_bandits.model.problem import Problem
from restless_bandits.policies.policies import Policy
from restless_bandits.processes.beliefs import hidden_process, truncation_for

LEAST_EFFECTIVE_PULLS = 200.0
"""The least effective number of pulls for a result."""
LONGEST_WINDOW = 64
BLOCKS, SHORTEST_BLOCK = 20, 40
"""The number of blocks of a log for standard errors, and the least number of pulls in each."""
DOUBT = 5.0
STARTS = 20_000
"""The number of pulls of a log from which the fitted chains are followed."""
FORGOTTEN = 1e-9

NO_PROBABILITIES = "the log has no column probability, the probability with which each arm was chosen"
ASSUMES = "each arm was chosen with the logged probability, given the past; nothing is assumed about the chains"


@dataclass(frozen=True)
class Weighted:
    """The result of weighting for a policy."""

    gain: float | None = None
    """Reward a pull; None if the log is insufficient."""
    interval: tuple[float, float] | None = None
    window: int | None = None
    """The number of pulls over which choices are weighted."""
    effective: float | None = None
    """The effective number of pulls that agree with the policy."""
    left: float | None = None
    """The remaining influence on the mean of the logger's knowledge before the windows, by the fitted model."""
    mean_ratio: float | None = None
    """The mean ratio: 1 up to randomness, for correct probabilities."""
    reason: str | None = None
    """The reason for a missing number."""
    unit: str = "pull"
    """What is weighted: a pull, or a line of a log of observed arms."""

    @property
    def assumes(self) -> str:
        """The assumptions of the number."""
        return f"{ASSUMES}; {self.sense}"

    @property
    def sense(self) -> str:
        """How the number came about."""
        if self.gain is None:
            return self.reason or ""
        pulls = f"1 {self.unit}" if self.window == 1 else f"{self.window} {self.unit}s"
        return (
            f"windows of {pulls}, in which {self.effective:.0f} {self.unit}s count effectively; what was known before "
            f"them changes the mean by about {self.left:+.1g}, by the fitted model, which the interval allows for"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless evaluate --json``."""
        told = {"reward_mean": self.gain, "interval": self.interval, "window": self.window}
        told |= {"effective_pulls": self.effective, "left_by_model": self.left, "mean_ratio": self.mean_ratio}
        return told | {"assumes": None if self.gain is None else self.assumes, "reason": self.reason}


@dataclass(frozen=True, eq=False)
class Situations:
    """The beliefs before each pull of a log with one pull a slot, from the first slot with all arms known."""

    last_states: IntArray
    """By the arms' own numbers: (pull, arm)."""
    elapsed: IntArray
    arms: IntArray
    """The pulled arm."""
    rewards: Array
    probabilities: Array


def situations(trace: Trace) -> Situations | str:
    """Return the beliefs before each pull, or the reason why a log cannot be weighted."""
    if trace.probabilities is None:
        return NO_PROBABILITIES
    if (np.diff(trace.times) == 0).any():
        slot = int(trace.times[np.argmax(np.diff(trace.times) == 0)])
        return f"slot {slot} has several arms, and weights are for logs of one pull a slot"
    lines, own = np.arange(len(trace)), trace.states - np.array([best for best, _ in trace.spans])[trace.arms]
    looks = np.stack([np.where(trace.arms == arm, lines, -1) for arm in range(trace.n_arms)], axis=1)
    before = np.maximum.accumulate(looks, axis=0)[:-1]
    known = (before >= 0).all(axis=1)
    before, now = before[known], lines[1:][known]
    if not now.size:
        return "there is no pull before which every arm had been seen"
    elapsed = trace.times[now][:, None] - trace.times[before]
    return Situations(own[before], elapsed, trace.arms[now], trace.rewards[now], trace.probabilities[now])


def weigh(
    trace: Trace, policy: Policy, problem: Problem, gain: float, rng: np.random.Generator, level: float
) -> Weighted:
    """Return the estimated value of a policy from the pulls of a log that agree with the policy.

    ``problem`` is the fitted problem and ``gain`` the policy's gain there: both serve to choose the window.
    """
    found = situations(trace)
    if isinstance(found, str):
        return Weighted(reason=found)
    size = len(found.arms) // BLOCKS
    if size < SHORTEST_BLOCK:
        return Weighted(reason=f"{len(found.arms)} pulls are too few; {BLOCKS * SHORTEST_BLOCK} are needed")
    ratios = (policy.choose(found.last_states, found.elapsed)[:, 0] == found.arms) / found.probabilities
    mean, error = float(ratios.mean()), float(ratios.std()) / math.sqrt(len(ratios))
    if abs(mean - 1) > DOUBT * error:
        off = f"ratios of probabilities average {mean:.3g} ± {error:.1g}, where 1 is expected"
        return Weighted(
            mean_ratio=mean, reason=f"{off}: the logged probabilities are not the probabilities of the choices"
        )
    by_model = _means_by_model(found, policy, problem, rng)
    tried: list[tuple[float, float, Weighted]] = []
    weights = np.ones(len(ratios))
    for window in range(1, min(LONGEST_WINDOW, size) + 1):
        # The product of the last ``window`` ratios; the first pulls have fewer predecessors.
        weights[window - 1 :] *= ratios[: len(ratios) - window + 1]
        weights[: window - 1] = 0.0
        squares = float((weights**2).sum())
        effective = float(weights.sum()) ** 2 / squares if squares else 0.0
        if effective < LEAST_EFFECTIVE_PULLS:
            break
        value, reach = _mean(weights, found.rewards, level)
        drift = next(by_model) - gain
        wide = reach + abs(drift)
        tried.append((reach, abs(drift), Weighted(value, (value - wide, value + wide), window, effective, drift, mean)))
    if not tried:
        return Weighted(
            effective=effective,
            mean_ratio=mean,
            reason=(
                f"only {effective:.0f} pulls, effectively, agree with this policy; "
                f"{LEAST_EFFECTIVE_PULLS:.0f} are needed"
            ),
        )
    reach, left, best = min(tried, key=lambda one: one[0] + one[1])
    if left > reach:
        return Weighted(
            window=best.window,
            effective=best.effective,
            left=best.left,
            mean_ratio=mean,
            reason=f"windows of {best.window} pulls, the best there are, are too short: what was known before them "
            f"changes the mean by about {best.left:+.2g}; log more pulls, or more of those the policy would make",
        )
    low, high = trace.reward_range
    assert best.interval is not None
    inside = max(low, best.interval[0]), min(high, best.interval[1])
    return Weighted(best.gain, inside, best.window, best.effective, best.left, mean)


def mean_of_log(trace: Trace, level: float) -> tuple[float, tuple[float, float] | None]:
    """Return the mean logged reward, and its interval for a log of sufficient length."""
    value = float(trace.rewards.mean())
    if len(trace) < BLOCKS * SHORTEST_BLOCK:
        return value, None
    value, reach = _mean(np.ones(len(trace)), trace.rewards, level)
    return value, (value - reach, value + reach)


def _mean(weights: Array, rewards: Array, level: float) -> tuple[float, float]:
    """The weighted mean, and half the width of its interval, from blocks."""
    from scipy import stats

    total = float(weights.sum())
    value = float(weights @ rewards) / total
    bounds = np.linspace(0, len(rewards), BLOCKS + 1).astype(np.int64)[:-1]
    errors = np.add.reduceat(weights * (rewards - value), bounds) / total
    shares = np.add.reduceat(weights, bounds) / total
    degrees = max(1.0, 1 / float((shares**2).sum()) - 1)
    reach = float(stats.t.ppf(0.5 + level / 2, degrees)) * math.sqrt(float((errors**2).sum()) * (degrees + 1) / degrees)
    return value, reach


def _means_by_model(found: Situations, policy: Policy, problem: Problem, rng: np.random.Generator) -> Iterator[float]:
    """Expected rewards of the first, the second, … pull of a policy under the fitted chains, from the logger's
    beliefs.
    """
    rows = np.resize(rng.permutation(len(found.arms)), STARTS)
    last, elapsed = found.last_states[rows], found.elapsed[rows]
    beliefs = [hidden_process(arm, truncation_for(arm, FORGOTTEN), forget=False) for arm in problem.arms]
    while True:
        chosen = policy.choose(last, elapsed)[:, 0]
        total = 0.0
        for number, arm in enumerate(beliefs):
            mine: BoolArray = chosen == number
            now = arm.locate(last[mine, number], elapsed[mine, number])
            total += float(arm.reward[now].sum())
            distribution = arm.distribution[now].cumsum(axis=1)[:, :-1]
            last[mine, number] = (rng.random((len(distribution), 1)) >= distribution).sum(axis=1)
            elapsed[mine, number] = 0
        elapsed += 1
        yield total / STARTS
