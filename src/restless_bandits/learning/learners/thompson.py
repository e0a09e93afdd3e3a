"""Thompson sampling (Jung, Tewari 2019; Jung, Abeille, Tewari 2019): act on a problem drawn from the posterior.

Each arm has a finite support of chains with a uniform prior. An observation "k, τ slots after s" has under θ the
likelihood P_θ^τ(s, k), so with the counts n of the record

    log w(θ) = Σ n[s, τ, k] · log P_θ^τ(s, k),

and a state observed for the first time counts by the stationary distribution. At the start of an episode a chain is
drawn for every arm, together with rewards, and an oracle plans on the drawn problem as if true. An episode ends when it
gets one slot longer than the episode before, or when some count of (arm, s, τ) has doubled.

Differs from the papers, where they are silent or leave a choice:

- rewards are learned by default: a Beta(1, 1) prior for each state of an arm with Bernoulli rewards. For fixed rewards
  a state's reward is known from the first observation, and a Beta(1, 1) draw before. In the papers rewards are known;
- rewards that are neither 0 or 1 nor fixed count as fractional successes: a reward that is the share x of its arm's
  range adds x to the first parameter and 1 − x to the second. The result is not a posterior, because the distribution
  is unknown, but at least as wide as the posterior for rewards 0 or 1 with the same mean. A proof would need draws of 0
  or 1 in their place (Agrawal, Goyal 2012), which add noise;
- beyond 512 slots waits are binned, and every wait of a bin counts as the first wait. By then the distributions of
  every mixing support are stationary;
- a probability of zero counts as 1e-300. If the observations are impossible under the full support, the chains with the
  fewest impossible observations remain, and no draw fails;
- ``schedule=doubling`` keeps the second rule alone, the cause of the large variance reported by Wang, Huang, Lui
  (2020). ``doubling=strict`` ends an episode when a count is *more* than twice its old value, as in their program.

``prior=continuous`` (alias ``posterior``) has all birth-death chains of any number of states as its support, each row
with a flat prior. Draws from the posterior use independence Metropolis with candidates from both modes (see
``estimation.sampling``); the last draw is kept in the notes of the plan. From ``SOON`` slots on its episodes grow
geometrically. No regret bound is proved for this prior.

Of arms that react to pulls, or pay at rest, this prior has all chains as its support, without an order of states: a
chain for slots with a pull and one for slots without, each row with a flat prior. Draws go on by a random walk on the
scale of logits (see ``estimation.reacting_kernels``). Pay at rest is never observed and known from the task. A plan
lasts ``GROWTH`` of the slots so far, and ``oracle=auto`` is Whittle's index.

Of observed arms ``posterior`` draws every row from its posterior: see ``observed_posterior``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.compiling import njit
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, positive, probability
from restless_bandits.learning.estimation import sampling
from restless_bandits.learning.learners.base import ALL, PULLED, Learner, present_problem, require_choice
from restless_bandits.learning.learners.observed_posterior import plan_on_draw
from restless_bandits.learning.learners.planning_arms import policy_on, present_arms, reacting_arms, reacting_policy
from restless_bandits.learning.learners.violations import warn_of_violations
from restless_bandits.model import markov
from restless_bandits.model.arms import Arm
from restless_bandits.model.checks import MOST_SLOTS
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import BIN_EDGES, EXACT_ELAPSED, N_BINS, Record, elapsed_bin
from restless_bandits.model.support import REACTING, UNCONTROLLED
from restless_bandits.model.tasks import Task
from restless_bandits.oracles.myopic import table_length
from restless_bandits.oracles.whittle import two_state_index
from restless_bandits.policies.plans import CountDoubled, Plan, Rule, Slots
from restless_bandits.policies.policies import IndexPolicy, Policy

Matrix: TypeAlias = tuple[tuple[float, ...], ...]
SupportOption: TypeAlias = int | tuple[float | Matrix, ...]

Rewards: TypeAlias = Sequence[Array | Sequence[float]] | Array
"""The mean rewards of each arm's states, a row for each arm."""

SOON = 10_000
"""Slots from which on episodes of the continuous prior grow geometrically, by ``GROWTH``."""
GROWTH = 0.02
ONE_BY_ONE = 12
"""The largest number of rewards drawn one at a time: NumPy's start-up cost for arrays is larger."""
SMALLEST = 1e-300
NO_CHANCE = -746.0
"""The exponential of a smaller number is zero in double precision."""
LARGEST_SUPPORT = 20_000_000
"""The largest table of log-likelihoods of a support: 160 MB."""


@dataclass(frozen=True)
class ThompsonSampling(Learner):
    """Plan on a draw from the posterior, episode by episode.

    Parameters
    ----------
    support
        The possible chains of an arm. A number k: all two-state chains whose P(0,0) and P(1,1) are multiples of 1/(k+1)
        strictly between 0 and 1, such as {.1, …, .9}² for 9 and {.2, .4, .6, .8}² for 4. A list of numbers: the
        chains with P(0,0) and P(1,1) among these. A list of transition matrices: for each arm the matrices of its size.
    schedule
        ``both`` episode rules, or ``doubling`` alone.
    pool
        With a number c > 0 all waits of c slots and more count as c in the likelihood and together for the doubling,
        as in the published comparison with c = 10; 0 keeps them apart.
    rewards
        ``learned``, or ``known`` as in the papers.
    oracle
        The oracle that plans on the draw.
    prior
        ``finite``, the support, or ``continuous``, all birth-death chains, without use of ``support`` and ``pool``.
    doubling
        The rule for a doubled count: ``reached``, at twice its old value, or ``strict``, above twice its old value.
    concentration
        Of observed arms: draws are from Dirichlet distributions of so many times the parameters of the posterior.

    """

    name: ClassVar[str] = "ts"
    plans_often: ClassVar[bool] = True
    support: SupportOption = 9
    schedule: str = "both"
    pool: int = 0
    rewards: str = "learned"
    oracle: str = "whittle"
    prior: str = "finite"
    doubling: str = "reached"
    concentration: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "support", _checked_support(self.support))
        require_choice(self, "prior", self.prior, ("finite", "continuous"))
        require_choice(self, "schedule", self.schedule, ("both", "doubling"))
        require_choice(self, "doubling", self.doubling, ("reached", "strict"))
        check_int("ts: pool", self.pool, 0, MOST_SLOTS)
        positive("ts: concentration", self.concentration)
        require_choice(self, "rewards", self.rewards, ("learned", "known"))
        if oracles.find_oracle(self.oracle).ordered and self.rewards != "known":
            raise ProblemError(
                f"ts: oracle {self.oracle} wants the better state first, which drawn rewards need not obey; use whittle"
            )

    @property
    def features(self) -> frozenset[str]:
        return REACTING if self.prior == "continuous" else UNCONTROLLED

    @property
    def observed(self) -> frozenset[str]:
        return PULLED | ALL if self.prior == "continuous" else PULLED

    def check(self, task: Task | ObservedTask) -> None:
        if isinstance(task, ObservedTask) or self.prior == "continuous":
            return
        grid = isinstance(self.support, int) or not isinstance(self.support[0], tuple)
        for name, n_states in zip(task.names, task.n_states, strict=True):
            size, rows = _size(self.support, n_states), f"{n_states} rows"
            if size == 0:
                grid_for_two = f"a grid is a support for two; give support as a list of transition matrices of {rows}"
                why = grid_for_two if grid else f"no matrix of the support has {rows}"
                raise ProblemError(f"ts: arm {name!r} has {n_states} states, but {why}")
            if size * (n_states + 1) * N_BINS * n_states > LARGEST_SUPPORT:
                raise ProblemError(f"ts: {size} chains of {n_states} states are too many for a support; give fewer")
        if task.rewards is not None:
            # An oracle unsuitable for the arms raises now and not in the middle of a run.
            drawn = self.problem(task, Record.of(task), [0] * task.n_arms, _known_rewards(task))
            oracles.find_oracle(self.oracle).accepts(drawn)

    def plan(self, record: Record | ObservedRecord, task: Task | ObservedTask, rng: np.random.Generator) -> Plan:
        if isinstance(record, ObservedRecord) or isinstance(task, ObservedTask):
            assert isinstance(record, ObservedRecord)
            assert isinstance(task, ObservedTask)
            learned = self.rewards == "learned"
            return plan_on_draw(record, task, rng, concentration=self.concentration, learned=learned)
        if task.features:
            return self._plan_for_reacting_arms(record, task, rng)
        if self.prior == "continuous":
            notes = warn_of_violations(self.name, record, task)
            draws = sampling.draw_from_posterior(record, rng)
            arms = present_arms(record, draws.chains, np.concatenate(self.mean_rewards(record, task, rng)))
            policy = policy_on(self.oracle, arms, record, task)
            return Plan(policy, self.until(record), notes | draws.notes)
        chains = self.draw_chains(record, rng)
        rewards = self.mean_rewards(record, task, rng)
        return Plan(self.policy(record, task, chains, rewards), until=self.until(record))

    def _plan_for_reacting_arms(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        draws = sampling.draw_reacting_chains(record, rng)
        rewards = np.concatenate(self.mean_rewards(record, task, rng))
        arms = reacting_arms(record, task, draws.passive, draws.active, rewards)
        policy = reacting_policy(self.oracle, arms, record, task)
        return Plan(policy, Slots(max(1, math.ceil(GROWTH * record.slots))), draws.notes)

    def until(self, record: Record) -> Rule:
        """The stop rule of the episode that begins now."""
        doubled = CountDoubled(cap=self.pool or None, strict=self.doubling == "strict")
        if self.schedule == "doubling":
            return doubled
        longer = record.plan_lengths[-1] + 1 if record.plan_lengths else 1
        if self.prior == "continuous" and record.slots >= SOON:
            longer = max(longer, math.ceil(GROWTH * record.slots))
        return doubled | Slots(longer)

    def posterior(self, record: Record, arm: int) -> Array:
        """Return the probability of each chain of the arm's support, in the order of ``chains``."""
        tables = _tables(self.support, int(record.n_states[arm]), self.pool)
        weights = np.empty(len(tables.chains))
        _weigh(record.flat_visits, record.flat_counts, *_places(record, arm), tables.log_distributions, weights)
        return weights

    def chains(self, n_states: int) -> Array:
        """Return the support of an arm with a given number of states: a stack of transition matrices."""
        return _tables(self.support, n_states, self.pool).chains

    def draw_chains(self, record: Record, rng: np.random.Generator) -> IntArray:
        """Draw a chain of its support for every arm, by its number."""
        numbers = np.empty(record.n_arms, dtype=np.int64)
        uniforms = rng.random(record.n_arms)
        counted = record.flat_visits, record.flat_counts, record.row_base, record.count_base
        for n in set(record.n_states.tolist()):
            _draw(
                *counted, record.n_states, n, _tables(self.support, n, self.pool).log_distributions, uniforms, numbers
            )
        return numbers

    def mean_rewards(self, record: Record, task: Task, rng: np.random.Generator) -> Rewards:
        """Draw the mean rewards of every arm, or return known rewards."""
        return _known_rewards(task) if self.rewards == "known" else draw_rewards(record, task, rng)

    def policy(self, record: Record, task: Task, chains: Sequence[int] | IntArray, rewards: Rewards) -> Policy:
        """Return the oracle's policy for the drawn problem."""
        if self.oracle == "whittle" and set(task.n_states) == {2}:
            indices = _tables(self.support, 2, self.pool).indices
            return IndexPolicy(_stretched(indices, np.asarray(chains), np.asarray(rewards)), task.plays)
        problem = self.problem(task, record, chains, rewards)
        # With known rewards the same few problems are drawn again and again once the posterior has narrowed.
        answer = _remembered_policy if self.rewards == "known" else oracles.policy
        return answer(self.oracle, problem)

    def problem(self, task: Task, record: Record, chains: Sequence[int] | IntArray, rewards: Rewards) -> Problem:
        """Return the drawn problem, started from the last observed states."""
        drawn = [self.chains(n)[number] for n, number in zip(task.n_states, chains, strict=True)]
        return present_problem(record, task, drawn, rewards)


def _known_rewards(task: Task) -> Rewards:
    if task.rewards is None:
        raise ProblemError("ts: rewards=known must be told the rewards; make its task with reveal=['rewards']")
    return task.rewards


def draw_rewards(record: Record, task: Task, rng: np.random.Generator) -> Rewards:
    """Draw the mean reward of every state of every arm from its posterior; an observed fixed reward is known."""
    seen = record.flat_seen
    sums = task.normalized_sums(record.flat_rewards, seen)
    if len(sums) <= ONE_BY_ONE:
        both = zip(sums.tolist(), seen.tolist(), strict=True)
        drawn = np.array([rng.beta(1.0 + paid, 1.0 + (times - paid)) for paid, times in both])
    else:
        drawn = rng.beta(1.0 + sums, 1.0 + (seen - sums))
    if "fixed" in task.reward_laws:
        fixed = np.repeat(np.array(task.reward_laws) == "fixed", record.n_states)
        # Draws are made for all states, to keep the stream independent of the distribution; before the first
        # observation they stand.
        prior = rng.random(len(drawn))
        drawn = np.where(fixed, np.where(seen > 0, sums / np.maximum(seen, 1), prior), drawn)
    drawn = task.values(drawn)
    if set(task.n_states) == {2}:
        return drawn.reshape(-1, 2)
    return [drawn[low:high] for low, high in pairwise(record.state_base.tolist())]


_remembered_policy = lru_cache(maxsize=32)(oracles.policy)


def _checked_support(support: Any) -> SupportOption:
    """Return a support in a form that can be compared and hashed; an invalid support raises."""
    if isinstance(support, bool) or not isinstance(support, int | list | tuple | np.ndarray):
        raise ProblemError(
            f"ts: support is {shortened(support)}; give a number, a list of numbers, or a list of matrices"
        )
    if isinstance(support, int):
        if support < 1:
            raise ProblemError(f"ts: support is {shortened(support)}; a grid needs at least one value")
        return support
    entries = list(support)
    if not entries:
        raise ProblemError("ts: support is empty; give at least one number or matrix")
    if all(isinstance(entry, Iterable) and not isinstance(entry, str) for entry in entries):
        return tuple(_checked_matrix(entry, j) for j, entry in enumerate(entries))
    return tuple(probability(f"ts: support[{j}]", value) for j, value in enumerate(entries))


def _checked_matrix(entry: Any, j: int) -> Matrix:
    rows = [list(row) if isinstance(row, Iterable) and not isinstance(row, str) else row for row in entry]
    arm = Arm(rows, np.zeros(max(1, len(rows))), name=f"support[{j}]")
    return tuple(tuple(row) for row in arm.transitions.tolist())


def _size(support: SupportOption, n_states: int) -> int:
    """The number of chains of a support for an arm, without constructing the chains."""
    if isinstance(support, tuple) and isinstance(support[0], tuple):
        return len(_chains(support, n_states))
    values = support if isinstance(support, int) else len(support)
    return values**2 if n_states == 2 else 0


def _chains(support: SupportOption, n_states: int) -> list[Matrix]:
    if isinstance(support, int):
        support = tuple(j / (support + 1) for j in range(1, support + 1))
    matrices = [entry for entry in support if isinstance(entry, tuple)]
    if matrices:
        return [matrix for matrix in matrices if len(matrix) == n_states]
    values = [entry for entry in support if not isinstance(entry, tuple)]
    return [((best, 1 - best), (1 - worst, worst)) for best in values for worst in values] if n_states == 2 else []


@dataclass(frozen=True, eq=False)
class _Tables:
    """A support with all tables that plans need."""

    chains: Array
    log_distributions: Array
    """A row for each count of a record's ``counts(arm)``, flat; a column for each chain."""
    indices: Array
    """Two states only: Whittle's index of each chain, ``[rewards, chain, s, τ - 1]``, for rewards (1, 0) and (0, 1)."""


@lru_cache(maxsize=16)
def _tables(support: SupportOption, n_states: int, pool: int) -> _Tables:
    chains = [Arm(chain, np.zeros(n_states)).chain for chain in _chains(support, n_states)]
    distributions = np.stack([_distributions(chain) for chain in chains], axis=-1)
    if pool:
        last = elapsed_bin(pool)
        distributions[:, last + 1 :] = distributions[:, last, None]
    log_distributions = np.log(np.maximum(distributions, SMALLEST)).reshape(-1, len(chains))
    return _Tables(np.stack(chains), log_distributions, _indices(chains) if n_states == 2 else np.zeros((2, 0, 3, 1)))


def _distributions(chain: Array) -> Array:
    """Distributions ``[s, bin(τ), k]`` after s and the first wait of each bin; last the distribution of a first
    observation.
    """
    n = len(chain)
    distributions = np.empty((n + 1, N_BINS, n))
    exact = markov.powers(chain, EXACT_ELAPSED)
    distributions[:n, :EXACT_ELAPSED] = exact[1:].transpose(1, 0, 2)
    distributions[n] = markov.stationary(chain)
    later = BIN_EDGES[EXACT_ELAPSED:]
    if np.abs(exact[-1] - distributions[n, 0]).max() <= 1e-15:
        distributions[:n, EXACT_ELAPSED:] = exact[-1][:, None]
        return distributions
    reached = np.broadcast_to(np.eye(n), (len(later), n, n)).copy()
    square = chain
    for bit in range(int(later[-1]).bit_length()):
        wanted = (later >> bit) & 1 == 1
        reached[wanted] = reached[wanted] @ square
        reached /= reached.sum(axis=-1, keepdims=True)
        square = square @ square
        square = square / square.sum(axis=-1, keepdims=True)
    distributions[:n, EXACT_ELAPSED:] = reached.transpose(1, 0, 2)
    return distributions


def _indices(chains: list[Array]) -> Array:
    """Whittle's index of two-state chains, in tables of equal length; each is constant beyond its own end.

    Filled up rather than computed further: see ``oracles.myopic.TABLE_DEVIATION``.
    """
    lengths = [min(table_length(Arm(chain, [1.0, 0.0])), EXACT_ELAPSED) for chain in chains]
    indices = np.empty((2, len(chains), 3, max(lengths)))
    for j, (chain, length) in enumerate(zip(chains, lengths, strict=True)):
        for side, rewards in enumerate(([1.0, 0.0], [0.0, 1.0])):
            table = two_state_index(Arm(chain, rewards), length)
            indices[side, j, :, :length] = table
            indices[side, j, :, length:] = table[:, -1:]
    return indices


def _places(record: Record, arm: int) -> tuple[int, int, int, int]:
    """The range of an arm's visits, the offset of its counts, and its number of states."""
    first, last = record.row_base[arm : arm + 2].tolist()
    return first, last, int(record.count_base[arm]), int(record.n_states[arm])


@njit
def _weigh(
    visits: IntArray,
    counts: IntArray,
    first: int,
    last: int,
    count_base: int,
    n: int,
    log_distributions: Array,
    weights: Array,
) -> None:
    """Write the posterior of an arm's chains from its counts."""
    # Most visits are zero: the others are sought first, in a loop without a branch.
    rows = np.empty(last - first, dtype=np.int64)
    found = 0
    for row in range(last - first):
        rows[np.uint64(found)] = row
        found += visits[np.uint64(first + row)] != 0
    for chain in range(weights.shape[0]):
        weights[chain] = 0.0
    for i in range(found):
        for cell in range(rows[i] * n, (rows[i] + 1) * n):
            times = counts[count_base + cell]
            if times > 0:
                for chain in range(weights.shape[0]):
                    weights[chain] += times * log_distributions[np.uint64(cell), np.uint64(chain)]
    most = weights.max()
    total = 0.0
    for chain in range(weights.shape[0]):
        below = weights[chain] - most
        # The exponential function takes ten times as long for an underflow to zero.
        weights[chain] = np.exp(below) if below > NO_CHANCE else 0.0
        total += weights[chain]
    for chain in range(weights.shape[0]):
        weights[chain] /= total


@njit
def _draw(
    visits: IntArray,
    counts: IntArray,
    row_base: IntArray,
    count_base: IntArray,
    n_states: IntArray,
    n: int,
    log_distributions: Array,
    uniforms: Array,
    numbers: IntArray,
) -> None:
    """Write the number of the chain drawn from the posterior by a uniform draw, for every arm of n states."""
    weights = np.empty(log_distributions.shape[1])
    for arm in range(n_states.shape[0]):
        if n_states[arm] == n:
            _weigh(visits, counts, row_base[arm], row_base[arm + 1], count_base[arm], n, log_distributions, weights)
            left = uniforms[arm]
            number = 0
            while number < weights.shape[0] - 1:
                left -= weights[number]
                if left < 0:
                    break
                number += 1
            numbers[arm] = number


@njit
def _stretched(indices: Array, chains: IntArray, rewards: Array) -> Array:
    """Return the indices of all arms, from their chains' indices scaled between the lower and the higher of two
    rewards.
    """
    stretched = np.empty((chains.shape[0], indices.shape[2], indices.shape[3]))
    for arm in range(chains.shape[0]):
        least, most = min(rewards[arm, 0], rewards[arm, 1]), max(rewards[arm, 0], rewards[arm, 1])
        own = indices[int(rewards[arm, 0] < rewards[arm, 1]), chains[arm]]
        for s in range(own.shape[0]):
            for column in range(own.shape[1]):
                stretched[arm, s, column] = least + (most - least) * own[s, column]
    return stretched
