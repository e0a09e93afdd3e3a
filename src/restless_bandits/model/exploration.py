"""The length of the exploration phase, Fact 1 of the paper (Wang, Huang, Lui 2020, Appendix A.3).

Fact 1 says E[T₁] = Õ(N m(T) / d_min) without further detail. Let A_k be the number of pulls of an arm until state k was
left m times: a hitting time and m − 1 return times. Their first two moments come from first-step analysis, with E A_k =
E H_k + 1 + (m − 1)/d_k. Exploring the arm takes max_k A_k, and

    max_k E A_k  ≤  E max_k A_k  ≤  max_k E A_k + √(Σ_k Var A_k),

because max_k A_k ≤ max_k E A_k + (Σ_k (A_k − E A_k)²)^½. An arm therefore takes at most m/d_min + O(√m) pulls, with a
constant of its chain in the O: the order of the fact. N m(T) / d_min without the O is no bound: if two states are
equally likely, the wait for the last state adds about √m (``ExplorationLength.fact_1`` against ``expected``).

For two states the mean is computed. Between two visits to state a the chain visits b not at all, with probability
P(a,a), or a geometric number of times, independently each time. J, the number of visits to b before the m-th to a, has
the generating function (v_a + v_b g)(P(a,a) + P(a,b) g)^(m−1), g(z) = P(b,a) z / (1 − P(b,b) z), and

    E max = E A_a + Σ_{j<m} Pr(J = j) (1/P(a,b) + (m − j − 1)/d_b).

Differs from the paper, where the paper is silent: only transitions under consecutive pulls count, as in
``restless-ucb``. The first pull of an arm gives only its state, except in slot 1, one step after a known start. Later
arms start from the distribution after the mean number of slots of the earlier arms; bounds are for the best and the
worst start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.random_streams import check_generator
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model import markov
from restless_bandits.model.optimism import exploration_count
from restless_bandits.model.problem import Problem
from restless_bandits.model.support import refuse_unsupported

__all__ = ["ExplorationLength", "exploration_bound", "exploration_length", "hitting_moments", "simulate_exploration"]

STREAM = 1
TAIL = 40.0
"""Standard deviations, and mean sojourns, beyond which a count has no probability in double precision."""


@dataclass(frozen=True)
class ExplorationLength:
    """Expected pulls of the exploration phase, arm by arm and in all.

    ``expected`` is NaN for arms of more than two states, and beyond T ≈ 1e10: there only a bracket of the mean is
    known.
    """

    horizon: int
    observations: int
    expected_by_arm: tuple[float, ...]
    lower_by_arm: tuple[float, ...]
    upper_by_arm: tuple[float, ...]
    fact_1: float
    """N m(T) / d_min."""

    @property
    def expected(self) -> float:
        return sum(self.expected_by_arm)

    @property
    def lower(self) -> float:
        return sum(self.lower_by_arm)

    @property
    def upper(self) -> float:
        return sum(self.upper_by_arm)


def exploration_length(problem: Problem, horizon: int) -> ExplorationLength:
    """Return the expected length of the exploration phase of Restless-UCB, with bounds."""
    _check(problem)
    m = exploration_count(horizon)
    brackets = [_bracket(problem, number, m) for number in range(problem.n_arms)]
    if any(math.isinf(low) for low, _ in brackets):
        raise ProblemError(
            f"horizon is {shortened(horizon)}; exploration takes over 1e308 slots; give a smaller horizon"
        )
    expected: list[float] = []
    for number, arm in enumerate(problem.arms):
        before = sum(low if math.isnan(mean) else mean for mean, (low, _) in zip(expected, brackets, strict=False))
        start, first = _start(problem, number, round(before))
        expected.append(first + expected_slots(arm.one_step, start, m))
    lower, upper = zip(*brackets, strict=True)
    return ExplorationLength(horizon, m, tuple(expected), lower, upper, fact_1(problem, horizon))


def fact_1(problem: Problem, horizon: int) -> float:
    """N m(T) / d_min: the length of the exploration phase by Fact 1, without its logarithms."""
    refuse_unsupported(problem, "theory")
    rarest = min(float(markov.stationary(arm.one_step).min()) for arm in problem.arms)
    return problem.n_arms * exploration_count(horizon) / rarest if rarest > 0 else math.inf


def exploration_bound(problem: Problem, horizon: int) -> float:
    """Return ``exploration_length(...).upper``, an upper bound of E[T₁], at any horizon at once."""
    _check(problem)
    m = exploration_count(horizon)
    return sum(_bracket(problem, number, m)[1] for number in range(problem.n_arms))


def simulate_exploration(
    problem: Problem, horizon: int, runs: int = 200, seed: int = 0
) -> tuple[IntArray, list[IntArray]]:
    """Simulate exploration in a number of runs: the pulls (run, arm), and for each arm its transition counts (run,
    from, to).
    """
    _check(problem)
    m = exploration_count(horizon)
    rng = check_generator(seed, problem.content, STREAM)
    lengths = np.zeros((runs, problem.n_arms), dtype=np.int64)
    counts = []
    for number, arm in enumerate(problem.arms):
        elapsed, place = np.unique(lengths.sum(axis=1), return_inverse=True)
        starts = [_start(problem, number, int(slots)) for slots in elapsed]
        distributions = np.cumsum([distribution for distribution, _ in starts], axis=1)[place]
        states = (rng.random((runs, 1)) > distributions[:, :-1]).sum(axis=1)
        counts.append(_leave_all(arm.one_step, states, m, rng))
        lengths[:, number] = starts[0][1] + counts[-1].sum(axis=(1, 2))
    return lengths, counts


def _leave_all(chain: Array, states: IntArray, m: int, rng: np.random.Generator) -> IntArray:
    """Step all runs until each has left every state m times, and return their transition counts."""
    n, runs = len(chain), len(states)
    steps = np.cumsum(chain, axis=1)[:, :-1]
    counts = np.zeros((runs, n, n), dtype=np.int64)
    visits = np.zeros((runs, n), dtype=np.int64)
    active = np.arange(runs)
    while active.size:
        after = (rng.random((active.size, 1)) > steps[states]).sum(axis=1)
        counts[active, states, after] += 1
        visits[active, states] += 1
        going = visits[active].min(axis=1) < m
        active, states = active[going], after[going]
    return counts


@lru_cache(maxsize=16)
def _check(problem: Problem) -> None:
    """Refuse exploration that never ends; cached, because the search for an informative horizon calls this very
    often.
    """
    refuse_unsupported(problem, "theory")
    if problem.plays != 1:
        raise ProblemError(f"plays is {problem.plays}; Fact 1 is about one pull a slot")
    for arm in problem.arms:
        if len(markov.recurrent_classes(arm.one_step)) != 1 or markov.stationary(arm.one_step).min() <= 0:
            raise ProblemError(f"arm {arm.name!r}: some state is never seen again, so exploration never ends")


def _start(problem: Problem, number: int, elapsed: int) -> tuple[Array, int]:
    """The distribution of the first state that an arm is observed to leave, after a number of slots, and the pulls
    needed.
    """
    arm = problem.arms[number]
    if arm.initial is None:
        return markov.stationary(arm.one_step), 1
    known = np.eye(arm.n_states)[arm.initial]
    if elapsed == 0 and number == 0:
        return known, 0
    return known @ markov.power(arm.one_step, elapsed + 1), 1


def hitting_moments(chain: Array, target: int) -> tuple[Array, Array]:
    """Return the mean and the second moment of the steps to a state, from every state, by first-step analysis."""
    n = len(chain)
    others = np.delete(np.arange(n), target)
    inside = chain[np.ix_(others, others)]
    leave = chain[others, target, None]
    mean, second = np.zeros(n), np.zeros(n)
    with np.errstate(over="ignore", invalid="ignore"):
        mean[others] = markov.first_steps(inside, leave, np.ones((n - 1, 1)))[:, 0]
        second[others] = markov.first_steps(inside, leave, 1 + 2 * inside @ mean[others, None])[:, 0]
    return mean, second


def _bracket(problem: Problem, number: int, m: int) -> tuple[float, float]:
    """Bounds of the pulls of an arm: max_k E A_k, and the same plus √(Σ Var A_k), at the best and the worst start."""
    first, hit, hit_variance, back, back_variance = _moments(problem)[number]
    again = float(m - 1)  # a whole number beyond 64 bits makes NumPy 1 fall back on Python objects
    with np.errstate(over="ignore"):
        longest = (hit + 1 + again * back).max(axis=0)
        spread = np.sqrt((hit_variance + again * back_variance).sum(axis=0))
    return first + float(longest.min()), first + float((longest + spread).max())


@lru_cache(maxsize=16)
def _moments(problem: Problem) -> list[tuple[int, Array, Array, Array, Array]]:
    """The moments of all arms.

    Cached, because the search for the first informative T calls this a hundred times.
    """
    return [_moments_of(problem, number) for number in range(problem.n_arms)]


def _moments_of(problem: Problem, number: int) -> tuple[int, Array, Array, Array, Array]:
    """Pulls before the first transition; moments of hitting times (state, start) and of return times (state, 1).

    Of both the mean and the variance.
    """
    arm = problem.arms[number]
    chain = arm.one_step
    start, first = _start(problem, number, 0)
    starts = start[None] if first == 0 else np.eye(len(chain))
    rows = []
    with np.errstate(over="ignore", invalid="ignore"):
        for k, row in enumerate(chain):
            mean, second = hitting_moments(chain, k)
            to, back = starts @ mean, 1 + row @ mean
            rows.append((to, starts @ second - to**2, [back], [1 + 2 * row @ mean + row @ second - back**2]))
    hit, hit_variance, returns, return_variance = (np.array(column) for column in zip(*rows, strict=True))
    if not all(np.isfinite(part).all() for part in (hit, hit_variance, returns, return_variance)):
        raise ProblemError(
            f"arm {arm.name!r}: some state is seen less than once in 1e150 slots, so exploration never ends"
        )
    return first, hit, np.maximum(hit_variance, 0.0), returns, np.maximum(return_variance, 0.0)


def expected_slots(chain: Array, start: Array, m: int) -> float:
    """E max_k A_k for one or two states; NaN for more."""
    if len(chain) == 1:
        return float(m)
    if len(chain) > 2:
        return math.nan
    distribution = markov.stationary(chain)
    # From the more frequent state, the visits to the other state need a shorter table.
    a = int(distribution[0] < distribution[1])
    b = 1 - a
    leave, back = float(chain[a, b]), float(chain[b, a])
    first = float(start[b]) / back
    mean = first + (m - 1) * leave / back
    spread = math.sqrt(m * leave * (2 - back - leave) / back**2 + 1 / back**2)
    size = 1 << math.ceil(math.log2(max(m, mean + TAIL * (spread + 1 / back)) + 1))
    if size > 1 << 24:
        return math.nan
    z = np.exp(-2j * np.pi * np.arange(size) / size)
    sojourn = back * z / (1 - (1 - back) * z)
    counts = np.fft.ifft((start[a] + start[b] * sojourn) * (1 - leave + leave * sojourn) ** (m - 1)).real
    missing = m - 1 - np.arange(m)
    until = first + 1 + (m - 1) / distribution[a]
    return float(until + counts[:m] @ (1 / leave + missing / distribution[b]))
