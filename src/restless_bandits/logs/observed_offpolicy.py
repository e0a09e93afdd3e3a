"""The value of another policy, from a log of observed arms.

    found = rb.data.evaluate_policy(trace, ["lp-index", "myopic", "random"])
    found.policies[0].model.gain, found.policies[0].weighted.gain, found.logged

Values are rewards an arm and slot.

*By the fitted model.* Rows and mean rewards are drawn from their posterior given the counts. The policy is made once,
for the fitted problem, and then plays each drawn problem; the interval is that of its gains. A policy is too good on
the problem that it was made for, and that problem is not played.
``lift`` is the difference to pulls at random, whose gain is exact: an arm then moves by the mixture of both rows.

*By weighting*, for logs with a column ``probability``, the probability of the logged action of each line. The policy is
taken arm by arm: an arm of a kind in a state is pulled with a fixed probability. For an index policy the probability is
1 above the cut, 0 below, and in between at the cut. The cut is where the fitted model expects ``plays`` pulls, and an
index policy of many arms settles there. Lines are weighted by the products of the last W ratios of the arm's
probabilities. Fitted chains serve only to choose W and to allow for the remaining influence of the logger, as in
``weighting``. Arms are the independent parts of the log, so blocks of arms give the standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.progress import Report
from restless_bandits._internal.random_streams import check_generator
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.learning.estimation import PRIOR
from restless_bandits.logs.fitting import Fit, fit
from restless_bandits.logs.model_values import REDRAW, Modelled
from restless_bandits.logs.observed_counts import ObservedGroup
from restless_bandits.logs.traces import Trace
from restless_bandits.logs.weighting import (
    BLOCKS,
    DOUBT,
    LEAST_EFFECTIVE_PULLS,
    LONGEST_WINDOW,
    Weighted,
)
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.observed.rollout import Budget, ObservedWorld, mean_rewards
from restless_bandits.policies.observed import ObservedPolicy, PriorityPolicy, RandomizedPolicy
from restless_bandits.policies.policies import Policy, load_policy

SECONDS, LONGER, LONGEST = 0.02, 4.0, 4
"""Approximate seconds of a simulation on each drawn problem, the factor of its extension, and the extensions."""
SIMULATION_SHARE = 0.1
"""The largest share of the simulation in the spread, as a variance."""
BISECTIONS = 60
NO_PROBABILITIES = "the log has no column probability, the probability with which each line's action was taken"
RANDOM = "random"
"""The name of the policy that pulls as many arms at random."""
MODEL_ASSUMES = (
    "each arm moves by itself, by the row of its kind, state and action; its rewards depend on its state and action "
    "alone; and actions of the log depended on nothing else that tells how an arm moves"
)
WEIGHTING_ASSUMES = (
    "each action was taken with the logged probability, given the past, and the policy acts on each arm by its kind "
    "and state alone, as an index policy of many arms does"
)


@dataclass(frozen=True, eq=False)
class ObservedPolicyValue:
    """The values of a policy, as rewards an arm and slot."""

    label: str
    model: Modelled
    """``above`` is the lift over pulls at random."""
    weighted: Weighted

    def as_dict(self) -> dict[str, Any]:
        return {
            "policy": self.label,
            "model": {
                "reward_mean": self.model.gain,
                "interval": self.model.interval,
                "lift_over_random": float(self.model.above.mean()),
                "lift_interval": self.model.above_interval,
                "assumes": MODEL_ASSUMES,
            },
            "weighting": self.weighted.as_dict()
            | {"assumes": WEIGHTING_ASSUMES if self.weighted.gain is not None else None},
        }


@dataclass(frozen=True, eq=False)
class ObservedOffPolicy:
    """Values of policies other than the policy of a log of observed arms."""

    policies: tuple[ObservedPolicyValue, ...]
    fit: Fit
    logged: float
    """The mean logged reward of an arm and slot."""
    logged_interval: tuple[float, float] | None
    draws: int
    confidence: float
    seed: int
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return all fields in the form of ``restless evaluate --json``."""
        trace = self.fit.trace
        return {
            "trace": trace.source,
            "lines": len(trace),
            "first_slot": int(trace.times[0]),
            "last_slot": int(trace.times[-1]),
            "arms": trace.n_arms,
            "by": self.fit.by,
            "plays": self.fit.problem.plays,
            "draws": self.draws,
            "confidence": self.confidence,
            "seed": self.seed,
            "logged": {"reward_mean": self.logged, "interval": self.logged_interval},
            "policies": [one.as_dict() for one in self.policies],
            "notes": list(self.notes),
            "fit": self.fit.problem.findings.as_dict(),
        }

    def __repr__(self) -> str:
        trace = self.fit.trace
        lines = [f"<ObservedOffPolicy: {trace.source or 'trace'}, {trace.n_arms} arms, rewards an arm and slot"]
        for one in self.policies:
            low, high = one.model.interval
            weighted = "" if one.weighted.gain is None else f", weighted {one.weighted.gain:.4g}"
            lines.append(f"  {one.label}  {one.model.gain:.4g} [{low:.4g}, {high:.4g}]{weighted}")
        return "\n".join([*lines, f"  as logged  {self.logged:.4g}"]) + ">"


def evaluate_observed(
    trace: Trace,
    policies: Any,
    *,
    draws: int,
    confidence: float,
    seed: int,
    by: Any = None,
    observed: Any = None,
    report: Report | None = None,
) -> ObservedOffPolicy:
    """Return the values of policies, from a log of observed arms: see ``evaluate_policy``."""
    found = fit(trace, by=by, observed=observed)
    several = policies if isinstance(policies, Iterable) and not isinstance(policies, str) else [policies]
    players = [_named_policy(given, found.problem) for given in several]
    if not players:
        raise ProblemError("no policy is named; give at least one, such as 'lp-index'")
    rng = check_generator(seed, trace.content, REDRAW)
    drawn = [_drawn_problem(found, rng) for _ in range(draws)]
    at_random = np.array([_random_gain(problem) for problem in drawn])
    evaluated = []
    for label, policy in players:
        if report is not None:
            report(f"{label}: {draws} problems that explain the log")
        gains = at_random if policy is None else _gains(drawn, policy, seed)
        model = Modelled(gains, gains - at_random, confidence, _slot_range(found.problem))
        evaluated.append(ObservedPolicyValue(label, model, _weighted(found, policy, confidence)))
    logged, interval = _mean_of_log(trace, confidence)
    return ObservedOffPolicy(tuple(evaluated), found, logged, interval, draws, confidence, seed, _notes(evaluated))


def _slot_range(problem: Problem) -> tuple[float, float]:
    low, high = problem.reward_range
    return min(low, 0.0), max(high, 0.0)


def _named_policy(given: Any, problem: Problem) -> tuple[str, ObservedPolicy | None]:
    """A policy for the fitted problem and its label; None for pulls at random."""
    if given == RANDOM:
        return RANDOM, None
    if isinstance(given, str) and given.endswith(".npz"):
        label, policy = given, load_policy(given)
    elif isinstance(given, Policy):
        label, policy = type(given).__name__, given
    else:
        try:
            oracle = oracles.find_oracle(given)
        except ProblemError:
            raise ProblemError(
                f"{shortened(given)} is no policy of observed arms; give lp-index, whittle, myopic, id, best-arm or "
                f"{RANDOM}, or simulate a learner on the fitted problem (restless simulate)"
            ) from None
        label, policy = oracle.name, oracles.policy(oracle, problem)
    if not isinstance(policy, ObservedPolicy):
        raise ProblemError(f"{label} is no policy of observed arms; give lp-index, whittle, myopic, id or random")
    if policy.layout.n_arms != problem.n_arms or policy.layout.size != ObservedWorld(problem).layout.size:
        raise ProblemError(
            f"the policy {shortened(label)} is for {policy.layout.n_arms} arms of {policy.layout.size} places, and the "
            f"fitted problem has {problem.n_arms} of {ObservedWorld(problem).layout.size}; fit it to the same kinds"
        )
    return label, policy


def _drawn_problem(found: Fit, rng: np.random.Generator) -> Problem:
    """A problem drawn from the posterior given the counts of a fit; rewards are their means."""
    kinds = []
    low, high = found.trace.reward_range
    for arm, kind in zip(found.arms, found.problem.kinds, strict=True):
        assert arm.group is not None
        chains = _drawn_chains(arm.group, rng)
        errors = np.nan_to_num(arm.group.reward_errors)
        rewards = np.clip(arm.group.rewards + errors * rng.standard_normal(errors.shape), low, high)
        about: dict[str, Any] = {"reward_law": "fixed", "reward_range": found.trace.reward_range, "count": kind.count}
        kinds.append(
            Arm(
                chains[0],
                rewards[1],
                active_transitions=chains[1],
                passive_rewards=rewards[0],
                name=kind.name,
                **about,
            )
        )
    return Problem(kinds, plays=found.problem.plays, observed="all")


def _drawn_chains(group: ObservedGroup, rng: np.random.Generator) -> Array:
    """Rows drawn from their posterior, by action; a row without a step is that of the other action."""
    weights = rng.standard_gamma(group.counts + PRIOR)
    rows = weights / weights.sum(axis=2, keepdims=True)
    empty = group.totals == 0
    return np.asarray(np.where((empty & ~empty[::-1])[:, :, None], rows[::-1], rows))


def _gains(drawn: list[Problem], policy: ObservedPolicy, seed: int) -> Array:
    """A policy's gain in each problem, from simulations long enough to add little to the spread."""
    seconds = SECONDS
    for _ in range(LONGEST):
        budget = Budget.of(ObservedWorld(drawn[0]), policy, seconds)
        quarters = np.array([mean_rewards(problem, policy, budget, seed).mean(axis=0) for problem in drawn])
        gains = np.asarray(quarters.mean(axis=1)) / drawn[0].n_arms
        by_chance = float((np.diff(quarters, axis=1) ** 2).mean()) / 4 / drawn[0].n_arms ** 2
        if by_chance <= SIMULATION_SHARE * float(gains.var(ddof=1)):
            break
        seconds *= LONGER
    return gains


@dataclass(frozen=True, eq=False)
class _Places:
    """The rows and rewards of a problem by kind, action and state, for kinds of one number of states."""

    chains: Array
    rewards: Array
    counts: IntArray

    @classmethod
    def of(cls, problem: Problem) -> _Places:
        passive, active = (np.concatenate([getattr(g, w) for g in problem.groups]) for w in ("passive", "active"))
        pay = [np.concatenate([getattr(g, w) for g in problem.groups]) for w in ("passive_rewards", "active_rewards")]
        return cls(np.stack([passive, active], axis=1), np.stack(pay, axis=1), np.asarray(problem.kind_counts))

    def moved(self, wish: Array) -> Array:
        """The chain of each kind under probabilities of a pull by kind and state."""
        pulled = wish[:, :, None]
        return np.asarray((1 - pulled) * self.chains[:, 0] + pulled * self.chains[:, 1])

    def visits(self, wish: Array) -> Array:
        """The long-run share of time in each state, by kind."""
        n = wish.shape[1]
        system = np.swapaxes(self.moved(wish), 1, 2) - np.eye(n)
        system[:, -1] = 1.0
        right = np.zeros((len(wish), n, 1))
        right[:, -1] = 1.0
        # Rows have a prior, so every chain has one stationary distribution.
        return np.asarray(np.linalg.solve(system, right)[:, :, 0])

    def pay(self, wish: Array, visits: Array) -> Array:
        """The mean reward of each kind in a slot."""
        return np.asarray((visits * ((1 - wish) * self.rewards[:, 0] + wish * self.rewards[:, 1])).sum(axis=1))

    def mean(self, of_kind: Array) -> float:
        return float(self.counts @ of_kind) / float(self.counts.sum())


def _random_gain(problem: Problem) -> float:
    places = _Places.of(problem)
    wish = np.full(places.rewards[:, 0].shape, problem.plays / problem.n_arms)
    return places.mean(places.pay(wish, places.visits(wish)))


def _wishes(found: Fit, policy: ObservedPolicy | None) -> Array | None:
    """The probability of a pull by kind and state, for policies that act arm by arm; None for others."""
    problem = found.problem
    places = _Places.of(problem)
    shape = places.rewards[:, 0].shape
    if policy is None:
        return np.full(shape, problem.plays / problem.n_arms)
    if isinstance(policy, RandomizedPolicy):
        return policy.wish.reshape(shape)
    if not isinstance(policy, PriorityPolicy):
        return None
    ranks = np.empty(policy.layout.size)
    ranks[policy.order] = np.arange(policy.layout.size)

    def at(cut: float) -> Array:
        return np.clip(cut - ranks, 0.0, 1.0).reshape(shape)

    low, high = 0.0, float(policy.layout.size)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        wish = at(middle)
        pulls = float(places.counts @ (places.visits(wish) * wish).sum(axis=1))
        low, high = (middle, high) if pulls < problem.plays else (low, middle)
    return at(high)


def _weighted(found: Fit, policy: ObservedPolicy | None, level: float) -> Weighted:
    """Return the value of a policy by weights of its actions, or the reason why there is no number."""
    trace = found.trace
    if trace.probabilities is None:
        return Weighted(reason=NO_PROBABILITIES)
    wish = _wishes(found, policy)
    if wish is None:
        return Weighted(reason="the policy acts on all arms together, and weights follow arms one by one")
    if trace.n_arms < BLOCKS:
        return Weighted(reason=f"{trace.n_arms} arms are too few for blocks; {BLOCKS} are needed")
    assert trace.actions is not None
    kind_of_arm = np.empty(trace.n_arms, dtype=np.int64)
    for number, one in enumerate(found.arms):
        assert one.group is not None
        kind_of_arm[one.group.arms] = number
    order = np.lexsort((trace.times, trace.arms))
    arms, times, states = trace.arms[order], trace.times[order], trace.states[order]
    actions, rewards = trace.actions[order], trace.rewards[order]
    pulled = wish[kind_of_arm[arms], states]
    ratios = np.where(actions == 1, pulled, 1 - pulled) / trace.probabilities[order]
    follows = np.append(False, (np.diff(arms) == 0) & (np.diff(times) == 1))
    run = np.arange(len(arms)) - np.maximum.accumulate(np.where(follows, 0, np.arange(len(arms))))
    part = arms * BLOCKS // trace.n_arms
    sums = np.bincount(part, weights=ratios - ratios.mean(), minlength=BLOCKS)
    error = math.sqrt(float((sums**2).sum())) / len(ratios)
    mean = float(ratios.mean())
    if abs(mean - 1) > DOUBT * max(error, 1e-12):
        off = f"ratios of probabilities average {mean:.3g} ± {error:.1g}, where 1 is expected"
        return Weighted(mean_ratio=mean, reason=f"{off}: the logged probabilities are not those of the actions")
    by_model = _means_by_model(found, wish, kind_of_arm, arms, states)
    weights, tried = ratios.copy(), []
    for window in range(1, LONGEST_WINDOW + 1):
        if window > 1:
            shifted = np.append(np.ones(window - 1), ratios[: len(ratios) - window + 1])
            weights = weights * shifted
        used = run >= window - 1
        effective = float(weights[used].sum()) ** 2 / max(float((weights[used] ** 2).sum()), 1e-300)
        if not used.any() or effective < LEAST_EFFECTIVE_PULLS:
            break
        value, reach = _block_mean(weights, rewards, part, used, level)
        drift = by_model[window - 1]
        wide = reach + abs(drift)
        whole = Weighted(value, (value - wide, value + wide), window, effective, drift, mean, unit="line")
        tried.append((wide, abs(drift) <= reach, whole))
    if not tried:
        return Weighted(
            mean_ratio=mean, reason=f"fewer than {LEAST_EFFECTIVE_PULLS:.0f} lines, effectively, agree with this policy"
        )
    _, enough, best = min(tried, key=lambda one: one[0])
    if not enough:
        told = (
            f"windows of {best.window} slots are too short: what was before them changes the mean by {best.left:+.2g}"
        )
        return Weighted(
            window=best.window,
            effective=best.effective,
            left=best.left,
            mean_ratio=mean,
            reason=f"{told}; log more of the actions that the policy would take",
        )
    return best


def _means_by_model(found: Fit, wish: Array, kind_of_arm: IntArray, arms: IntArray, states: IntArray) -> Array:
    """The distance of the mean reward from the long run, by the fitted chains, W slots after the logger's states."""
    places = _Places.of(found.problem)
    kinds, n = wish.shape
    weight = np.bincount(kind_of_arm[arms] * n + states, minlength=kinds * n).reshape(kinds, n).astype(np.float64)
    lines = weight.sum(axis=1)
    now = weight / np.maximum(lines, 1)[:, None]
    chain, visits = places.moved(wish), places.visits(wish)
    long_run = float(lines @ places.pay(wish, visits)) / lines.sum()
    gaps = np.empty(LONGEST_WINDOW)
    for window in range(LONGEST_WINDOW):
        gaps[window] = float(lines @ places.pay(wish, now)) / lines.sum() - long_run
        now = np.einsum("ks,ksz->kz", now, chain)
    return gaps


def _block_mean(weights: Array, rewards: Array, part: IntArray, used: BoolArray, level: float) -> tuple[float, float]:
    """The weighted mean of lines, and half the width of its interval, from blocks of arms."""
    from scipy import stats

    total = float(weights[used].sum())
    value = float(weights[used] @ rewards[used]) / total
    sums = np.bincount(part[used], weights=weights[used] * (rewards[used] - value), minlength=BLOCKS) / total
    error = math.sqrt(float((sums**2).sum()) * BLOCKS / (BLOCKS - 1))
    return value, float(stats.t.ppf(0.5 + level / 2, BLOCKS - 1)) * error


def _mean_of_log(trace: Trace, level: float) -> tuple[float, tuple[float, float] | None]:
    """The mean logged reward, and its interval for a log of enough arms."""
    if trace.n_arms < BLOCKS:
        return float(trace.rewards.mean()), None
    ones, every = np.ones(len(trace)), np.ones(len(trace), dtype=np.bool_)
    value, reach = _block_mean(ones, trace.rewards, trace.arms * BLOCKS // trace.n_arms, every, level)
    return value, (value - reach, value + reach)


def _notes(evaluated: list[ObservedPolicyValue]) -> tuple[str, ...]:
    notes = []
    for one in evaluated:
        there = one.weighted.interval
        if there is not None and (there[0] > one.model.interval[1] or there[1] < one.model.interval[0]):
            notes.append(
                f"{one.label}: the model and the weights do not agree; if the probabilities in the log are right, "
                "the model is not, and the weights are to be believed"
            )
    return tuple(notes)
