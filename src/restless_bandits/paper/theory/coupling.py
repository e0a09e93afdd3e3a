"""The simulated policies of the paper's proofs, as programs (Wang, Huang, Lui 2020, appendix A, Algorithms 2 to 4).

Lemma 1 says that the best policy of the optimistic instance R' earns at least as much in R' as the best policy of R
earns in R. The proof plays π*, the policy of R, inside R'. A player in R' sees *real* states, draws for each a
*virtual* state with its distribution in R, and lets π* choose from the virtual belief. Then

- the virtual trajectory has exactly the distribution of π* in R: ``correspond`` maps each real state to a random
  virtual state, and the virtual state has distribution row s of P^τ, whatever happened before;
- the virtual state is never better than the real state. The proof needs P' ≽ P, and that P preserves the order of
  distributions, as Assumptions 2 and 3 imply.

``couple`` is Algorithm 2, ``correspond`` Algorithm 3, ``couple_starts`` Algorithm 4 (both players in the same instance,
with an arm started in different states), ``lemma_1`` the conclusion by the exact oracle, ``check_coupling`` all in a
summary. docs/theory/coupling.md has the argument and examples. As in the whole package, states count from 0, the best.

Differs from the paper:

- Algorithm 3 as printed gives no probabilities: its denominator has the wrong sign, its numerator belongs to state j +
  1, does not start at ``start``, and is negative for intervals beyond ``end``. The proof needs the overlap of
  ``[p_{j−1}, p_j]`` with ``[start, end]``, divided by ``end − start``;
- Algorithm 4 copies the real state of every other arm. With equal distributions ``correspond`` copies the state by
  itself: the algorithm is Algorithm 2 with R = R' and different starts;
- several arms may be pulled in a slot, each coupled separately;
- rewards are their means, ``r(i, s)``, as in the paper's pseudo-code.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import check_generator
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_int
from restless_bandits.model import markov
from restless_bandits.model.arms import Arm
from restless_bandits.model.optimism import chain_arms, optimistic_problem, radius
from restless_bandits.model.problem import Problem
from restless_bandits.paper.theory.event import FALSE_ALARM
from restless_bandits.policies.policies import JointPolicy, Policy

__all__ = [
    "Coupling",
    "CouplingCheck",
    "Lemma1",
    "check_coupling",
    "correspond",
    "couple",
    "couple_starts",
    "joint_law",
    "lemma_1",
    "trajectory_fit",
]

COUPLING_HORIZON = 100_000
CHECKED_SLOTS = 10_000
FIRST = 20
"""The number of slots shown individually."""
COUPLING, SPREAD = 3, 4
"""Numbers of random streams: of the two players, and of the test of their observations."""
DECISIONS = 1 << 16
CHAINS = "the coupling is for Markov chains"
Cuts = tuple[list[float], list[list[float]]]


def joint_law(virtual_law: Array, real_law: Array) -> Array:
    """Return Pr(real = k, virtual = j) under Correspond: the overlap of two cuts of [0, 1] into intervals.

    Row sums are the real distribution and column sums the virtual distribution. If the real distribution dominates,
    entries with j < k are zero.
    """
    p, real = _edges(virtual_law), _edges(real_law)[:, None]
    return np.asarray(np.maximum(0.0, np.minimum(p[1:], real[1:]) - np.maximum(p[:-1], real[:-1])))


def _edges(distribution: Array) -> Array:
    """0 = p_0 ≤ p_1 ≤ … ≤ p_M = 1."""
    sums = np.concatenate([[0.0], np.cumsum(distribution)])
    return np.asarray(sums / sums[-1])


def correspond(virtual_law: Array, real_law: Array, real_state: int) -> Array:
    """Return the distribution of the virtual state, given the real state: Algorithm 3.

    >>> correspond(np.array([0.2, 0.8]), np.array([0.5, 0.5]), 0).round(12).tolist()
    [0.4, 0.6]
    >>> correspond(np.array([0.2, 0.8]), np.array([0.5, 0.5]), 1).tolist()
    [0.0, 1.0]
    """
    if len(virtual_law) != len(real_law) or not 0 <= real_state < len(real_law):
        raise ProblemError(
            f"state {real_state} under distributions of {len(real_law)} and {len(virtual_law)} states; "
            "give two distributions over the same states, and one of these states"
        )
    shares = joint_law(virtual_law, real_law)[real_state]
    total = shares.sum()
    if not total > 0:
        raise ProblemError(f"real_state is {real_state}, which has probability zero under the real distribution")
    # The rounded value of end − start.
    return np.asarray(shares / total)


@dataclass(frozen=True, eq=False)
class Coupling:
    """A run of a simulated policy: observations and rewards of the real and the virtual player in every slot.

    Arrays have a row for each slot and a column for each play. Rewards are means.
    """

    problem: Problem
    """R, the problem of the virtual player."""
    optimistic: Problem
    """R', the problem of the real player."""
    policy: Policy
    arms: IntArray
    elapsed: IntArray
    """Slots since the arm was last pulled, the same for both players."""
    real_states: IntArray
    virtual_states: IntArray

    @property
    def slots(self) -> int:
        return len(self.arms)

    @cached_property
    def real_rewards(self) -> Array:
        return _rewards(self.optimistic, self.arms, self.real_states)

    @cached_property
    def virtual_rewards(self) -> Array:
        return _rewards(self.problem, self.arms, self.virtual_states)

    @property
    def violations(self) -> BoolArray:
        """Positions with a virtual state better than the real state."""
        return self.virtual_states < self.real_states

    @property
    def setbacks(self) -> BoolArray:
        """Positions with a virtual state worse than the real state."""
        return self.virtual_states > self.real_states

    @property
    def never_better(self) -> bool:
        """Whether the virtual state is never better than the real state: the claim inside the proof of Lemma 1."""
        return not self.violations.any()

    @property
    def rewards_ordered(self) -> bool:
        """Whether the real player earns at least as much in every slot and play."""
        return bool((self.real_rewards >= self.virtual_rewards).all())

    @property
    def met(self) -> int | None:
        """The first slot from which on both observe the same states; None if they differ in the last slot."""
        differ = np.flatnonzero((self.real_states != self.virtual_states).any(axis=1))
        if not differ.size:
            return 1
        return None if differ[-1] == self.slots - 1 else int(differ[-1]) + 2


def _rewards(problem: Problem, arms: IntArray, states: IntArray) -> Array:
    table = np.zeros((problem.n_arms, max(problem.n_states)))
    for i, arm in enumerate(problem.arms):
        table[i, : arm.n_states] = arm.rewards
    return table[arms, states]


def couple(
    problem: Problem,
    optimistic: Problem | None = None,
    *,
    policy: Policy | str = "auto",
    horizon: int = COUPLING_HORIZON,
    slots: int = CHECKED_SLOTS,
    seed: int = 0,
    checked: bool = True,
) -> Coupling:
    """Play the policy of a problem inside an optimistic problem, by virtual states: Algorithm 2.

    Parameters
    ----------
    problem
        R: birth-death, positively correlated, rewards that do not increase with the state.
    optimistic
        R': chains that dominate the chains of R row by row, rewards at least as high, and initial states at least as
        good. The default is R' of Restless-UCB at ``horizon`` with every estimate equal to the truth.
    policy
        The simulated policy: a policy for R, or the name of an oracle. The coupling holds for any policy; the default
        is optimal for a small table of joint beliefs, and Whittle's index otherwise.
    horizon
        T of the default R'; the run itself takes ``slots`` slots.
    slots, seed
        The length of the run, and the seed of the draws.
    checked
        Whether to refuse instances without a proof of the order of states.

    """
    better = optimistic_problem(problem, horizon) if optimistic is None else optimistic
    return _play(problem, better, policy, slots, seed, ordered=checked)


def couple_starts(
    problem: Problem,
    arm: int,
    *,
    real: int,
    virtual: int,
    policy: Policy | str = "auto",
    slots: int = CHECKED_SLOTS,
    seed: int = 0,
) -> Coupling:
    """Play a policy from two different states of an arm, within the same instance: Algorithm 4.

    The virtual player starts with the arm in state ``virtual``, the real player in ``real``, and both earn the same
    rewards. The players differ in this arm only, and never again after an observation of the same state. No assumption
    is needed; if the chain of the arm preserves the order of distributions, the player with the better start never
    falls behind.
    """
    if not 0 <= arm < problem.n_arms:
        raise ProblemError(f"arm is {arm!r}; the arms are 0 to {problem.n_arms - 1}")

    def started(state: int) -> Problem:
        arms = chain_arms(problem, CHAINS)
        one = arms[arm]
        arms[arm] = Arm(one.transitions, one.rewards, name=one.name, initial=state, reward_law=one.reward_law)
        return Problem(arms, plays=problem.plays, name=problem.name)

    return _play(started(virtual), started(real), policy, slots, seed, ordered=False)


def _pairs(problem: Problem, better: Problem, *, ordered: bool) -> list[tuple[Arm, Arm]]:
    """Return the arms of both, or refuse them; ``ordered`` also refuses arms outside the proof of Lemma 1."""
    if (problem.n_states, problem.plays) != (better.n_states, better.plays):
        raise ProblemError(
            f"the optimistic problem has states {list(better.n_states)} and plays {better.plays}, the problem "
            f"{list(problem.n_states)} and {problem.plays}; they must agree"
        )
    if ordered:
        problem.require("monotone", "birth_death", "positively_correlated")
    pairs = list(zip(chain_arms(problem, CHAINS), chain_arms(better, CHAINS), strict=True))
    for arm, other in pairs if ordered else ():
        if not markov.dominates(other.chain, arm.chain):
            ahead = np.cumsum(other.chain, axis=1) - np.cumsum(arm.chain, axis=1)
            s, k = np.unravel_index(int(ahead.argmin()), ahead.shape)
            raise ProblemError(
                f"arm {arm.name!r}: transitions[{s}] of the optimistic problem reaches the states 0 to {k} with a "
                f"probability that is {-ahead[s, k]:.6g} too low; every row must dominate that of the problem"
            )
        if (other.rewards < arm.rewards).any():
            worst = int((other.rewards - arm.rewards).argmin())
            raise ProblemError(
                f"arm {arm.name!r}: rewards[{worst}] of the optimistic problem is {other.rewards[worst]:.12g}, less "
                f"than {arm.rewards[worst]:.12g} in the problem; no reward may be lower"
            )
        if (arm.initial is None) != (other.initial is None) or (other.initial or 0) > (arm.initial or 0):
            raise ProblemError(
                f"arm {arm.name!r}: initial is {other.initial} in the optimistic problem and {arm.initial} in the "
                "problem; start it in a state at least as good, or leave out both"
            )
    return pairs


def _play(problem: Problem, better: Problem, policy: Policy | str, slots: int, seed: int, *, ordered: bool) -> Coupling:
    steps = [_transitions(*pair) for pair in _pairs(problem, better, ordered=ordered)]
    check_int("slots", slots)
    policy = oracles.policy(policy, problem) if isinstance(policy, str) else policy
    pull = lru_cache(DECISIONS)(policy)
    virtual, real = list(problem.initial), list(better.initial)
    elapsed = [1] * problem.n_arms
    shape = (slots, problem.plays)
    pulled, waited, real_states, virtual_states = (np.empty(shape, dtype=np.int64) for _ in range(4))
    uniform = check_generator(seed, problem.content, COUPLING).random((*shape, 2))
    for t, draws in enumerate(uniform.tolist()):
        chosen = pull(tuple(virtual), tuple(elapsed))
        waits = elapsed
        elapsed = [tau + 1 for tau in waits]
        for c, i in enumerate(chosen if isinstance(chosen, tuple) else (chosen,)):
            seen, correspondence = steps[i](virtual[i], real[i], waits[i])
            real_state = bisect_right(seen, draws[c][0])
            virtual_state = bisect_right(correspondence[real_state], draws[c][1])
            pulled[t, c], waited[t, c] = i, waits[i]
            real_states[t, c], virtual_states[t, c] = real_state, virtual_state
            real[i], virtual[i], elapsed[i] = real_state, virtual_state, 1
    return Coupling(problem, better, policy, pulled, waited, real_states, virtual_states)


def _transitions(arm: Arm, better: Arm) -> Callable[[int | None, int | None, int], Cuts]:
    """From the last virtual and real state and the slots since: the cuts of [0, 1] for the draws of the two states."""
    virtual_laws, real_laws = _distributions(arm), _distributions(better)

    @cache
    def step(virtual: int | None, real: int | None, tau: int) -> Cuts:
        v, v_real = virtual_laws(virtual, tau), real_laws(real, tau)
        # Correspond for every real state; a state too rare for doubles is never drawn.
        return _cuts(v_real), [_cuts(row) if row.any() else [] for row in joint_law(v, v_real)]

    return step


def _distributions(arm: Arm) -> Callable[[int | None, int], Array]:
    """The distribution of the state τ slots after s, or of an arm never observed."""

    @cache
    def distribution(state: int | None, tau: int) -> Array:
        return arm.stationary if state is None else markov.power(arm.chain, tau)[state]

    return distribution


def _cuts(distribution: Array) -> list[float]:
    """The inner edges of the intervals of a distribution: the state is the number of edges below a uniform draw."""
    cuts: list[float] = _edges(distribution)[1:-1].tolist()
    # An uncut tail of rounding must not make a state of probability zero.
    last = int(np.flatnonzero(distribution)[-1])
    return cuts[:last]


@dataclass(frozen=True)
class TrajectoryFit:
    """The fit of a trajectory to its theoretical distribution.

    ``statistic`` is the largest √n·D over cells (arm, last observed state), D the Kolmogorov distance between n
    randomised probability transforms and the uniform distribution. ``p_value`` bounds the tail probability, without
    asymptotics.
    """

    cells: int
    pulls: int
    statistic: float

    def as_dict(self) -> dict[str, float]:
        return {"statistic": self.statistic, "alarm": self.alarm, "p_value": self.p_value}

    @property
    def p_value(self) -> float:
        return min(1.0, 2 * self.cells * self.pulls * math.exp(-2 * self.statistic**2))

    @property
    def alarm(self) -> float:
        """The least statistic with a p-value below ``FALSE_ALARM``."""
        return math.sqrt(math.log(2 * self.cells * self.pulls / FALSE_ALARM) / 2)


def trajectory_fit(problem: Problem, arms: IntArray, states: IntArray, seed: int = 0) -> TrajectoryFit:
    """Test pulled arms and observed states against a problem: was every state drawn from row s of P^τ?

    Under the hypothesis F(k − 1) + W v_k is uniform given the past, with W uniform and F the cumulative sums of the
    distribution v of the state k. Within a cell these numbers are therefore independent and uniform, in their order,
    whatever their total number. The inequality of Dvoretzky, Kiefer, Wolfowitz and Massart holds for each possible
    number: Pr(√n D ≥ x) ≤ 2 exp(−2x²), times cells and times pulls. Beliefs are computed from the trajectory alone.
    """
    distributions = [_distributions(arm) for arm in chain_arms(problem, CHAINS)]
    last: list[int | None] = list(problem.initial)
    slot_of_last = [0] * problem.n_arms
    values: dict[tuple[int, int | None], list[float]] = {}
    spread = check_generator(seed, problem.content, SPREAD).random(arms.shape)
    for t, (row, seen) in enumerate(zip(arms.tolist(), states.tolist(), strict=True), start=1):
        for c, (i, state) in enumerate(zip(row, seen, strict=True)):
            distribution = distributions[i](last[i], t - slot_of_last[i])
            value = float(distribution[:state].sum() + spread[t - 1, c] * distribution[state])
            values.setdefault((i, last[i]), []).append(value)
            last[i], slot_of_last[i] = state, t
    cells = sum(arm.n_states + (arm.initial is None) for arm in problem.arms)
    return TrajectoryFit(cells, arms.size, max(map(_scaled_distance, values.values())))


def _scaled_distance(values: list[float]) -> float:
    """√n times the Kolmogorov distance between n values and the uniform distribution."""
    n = len(values)
    ordered = np.sort(values)
    steps = np.arange(n + 1) / n
    return math.sqrt(n) * float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))


@dataclass(frozen=True, eq=False)
class CouplingCheck:
    """A coupling with its tests: no virtual state is better, and both trajectories fit their problems."""

    coupling: Coupling
    horizon: int
    seed: int
    virtual_fit: TrajectoryFit
    """The virtual trajectory against π* in R."""
    real_fit: TrajectoryFit
    """The real trajectory against R'."""

    @property
    def radius(self) -> float:
        return radius(self.horizon)

    @property
    def violations(self) -> int:
        return int(self.coupling.violations.sum())

    @property
    def real_mean(self) -> float:
        """Mean reward a slot of the player in R'."""
        return float(self.coupling.real_rewards.sum() / self.coupling.slots)

    @property
    def virtual_mean(self) -> float:
        """Mean reward a slot of the player in R."""
        return float(self.coupling.virtual_rewards.sum() / self.coupling.slots)

    @property
    def p_value(self) -> float:
        """The smaller of both p-values, times two."""
        return min(1.0, 2 * min(self.virtual_fit.p_value, self.real_fit.p_value))

    @property
    def holds(self) -> bool:
        """Whether order held in every slot, for states and for rewards, and both distributions fit."""
        return not self.violations and self.coupling.rewards_ordered and self.p_value > FALSE_ALARM

    @property
    def policy_name(self) -> str:
        return "the optimal policy" if isinstance(self.coupling.policy, JointPolicy) else "Whittle's index policy"

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``restless check --coupling --json``; lists in ``first`` have an entry for each play."""
        run = self.coupling
        columns = ("arms", "elapsed", "real_states", "virtual_states", "real_rewards", "virtual_rewards")
        return {
            "horizon": self.horizon,
            "radius": self.radius,
            "seed": self.seed,
            "slots": run.slots,
            "policy": self.policy_name,
            "holds": self.holds,
            "order_violations": self.violations,
            "order_strict": int(run.setbacks.sum()),
            "rewards_ordered": run.rewards_ordered,
            "real_reward_mean": self.real_mean,
            "virtual_reward_mean": self.virtual_mean,
            "p_value": self.p_value,
            "virtual": self.virtual_fit.as_dict(),
            "real": self.real_fit.as_dict(),
            "first": [
                {"slot": t + 1} | {name: getattr(run, name)[t] for name in columns}
                for t in range(min(FIRST, run.slots))
            ],
        }


def check_coupling(
    problem: Problem, horizon: int = COUPLING_HORIZON, seed: int = 0, *, slots: int = CHECKED_SLOTS
) -> CouplingCheck:
    """Run Algorithm 2 once, against the optimistic instance of Restless-UCB at the given horizon, with all tests."""
    run = couple(problem, horizon=horizon, slots=slots, seed=seed)
    virtual_fit = trajectory_fit(run.problem, run.arms, run.virtual_states, seed)
    real_fit = trajectory_fit(run.optimistic, run.arms, run.real_states, seed)
    return CouplingCheck(run, horizon, seed, virtual_fit, real_fit)


@dataclass(frozen=True)
class Lemma1:
    """μ*(R) ≤ μ*(R') by the exact oracle: a proved bracket of each side."""

    horizon: int
    lower: float
    upper: float
    """The bracket of μ*(R)."""
    optimistic_lower: float
    optimistic_upper: float
    """The bracket of μ*(R')."""

    @property
    def verdict(self) -> Literal["certified", "undecided", "refuted"]:
        """``certified``: the brackets prove the lemma; ``refuted``: its opposite; ``undecided``: the brackets
        overlap.
        """
        if self.optimistic_lower >= self.upper:
            return "certified"
        return "refuted" if self.optimistic_upper < self.lower else "undecided"


def lemma_1(
    problem: Problem, horizon: int = COUPLING_HORIZON, optimistic: Problem | None = None, *, checked: bool = True
) -> Lemma1:
    """Compare the optimal gains of a problem and of an optimistic problem, by default ``optimistic_problem``.

    ``checked=False`` also accepts problems outside the lemma, to show its failure.
    """
    better = optimistic_problem(problem, horizon) if optimistic is None else optimistic
    _pairs(problem, better, ordered=checked)
    here, there = oracles.exact(problem), oracles.exact(better)
    return Lemma1(horizon, here.lower, here.upper, there.lower, there.upper)
