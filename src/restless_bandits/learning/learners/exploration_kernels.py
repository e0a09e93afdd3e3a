"""Exploration levels: optimism only for parameters that the present plan would not estimate. Compiled.

A player who follows the likeliest model gets the observations of its plan for free. The plan is therefore simulated
ahead, on the arms of the model, and its coming observations count as if already made: standard errors and numbers of
observations are those of the later time. Arms that the plan does not pull, and transitions it does not observe, keep
their standard errors.

Every transition and every reward then has a separate level. The level depends on n, the number of observations of the
parameter alone with equal information, or for an arm that the plan does not pull on its number of pulls:

    x = ln(1 + share / n),      level = x · min(1, w · x / c),
    share = (t + ``HEAD_START``) / N + ``HEAD_START_EACH``,
    c = ``FULL`` + ``CROWD`` · ln(N / 3), the last for more than three arms.

A parameter known as well as from a fair share of t slots has a level near zero, as in MOSS (Audibert, Bubeck 2009). A
parameter with few observations has the full ln t of a confidence bound. In between, x² / c trades the two: a deviation
hidden by D nats, with probability e^(−D), is found after about N·n·e^√(cD) slots, and the sum over D of probability
times delay is finite. With more arms c is larger: exploring them all costs more, and a missed arm has others nearly as
good. A run is expected to continue for a while, and early discoveries pay longest: levels begin as if a few thousand
slots had been played.

A joint deviation of all transitions and rewards of an arm, all to the same side, is far less likely than a single
deviation. The models of a given likelihood form about an ellipsoid. If each direction alone may raise the value of the
arm by d, all of them together may raise the value by √Σd², not by Σd. Therefore x / c is multiplied by w = Σd² / (Σd)²,
from 1, for a single decisive direction, down to one over their number. The value here is the gain under permanent
pulls, which differs from the value to a player who pulls the arm in its better states alone; w therefore delays the
full level x and does not lower the level.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import helper, njit
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.learning.estimation import PRIOR, Fits, counts_of
from restless_bandits.learning.estimation.arm_kernels import Counts, gather, inverse, write_moved
from restless_bandits.learning.estimation.chain_kernels import chain_of, log_posterior, move_errors, move_of
from restless_bandits.learning.learners.confidence_bounds import kl_upper, order_cost
from restless_bandits.model.record import Record
from restless_bandits.oracles.index_kernels import FlatArms
from restless_bandits.policies.choice_kernels import Choices, action_number, choices_of, choose, sort_arms
from restless_bandits.policies.policies import Policy

FULL, CROWD = 3.0, 3.0
HEAD_START, HEAD_START_EACH = 2_000, 80
"""Slots that count as played before the first slot, in all and for each arm."""
LONGEST = 512
"""The longest wait, in slots, that simulations distinguish."""
MOST_STEPS = 256
"""The largest number of steps of a chain with more than two states between observations; longer waits use this
number.
"""


@helper
def _see(rng: np.random.Generator, chain: Array, limit: Array, state: int, elapsed: int) -> int:
    """Draw the state of an arm a number of slots after its last observation; a state beyond the last means never
    observed.
    """
    n = limit.shape[0]
    if n == 1:
        return 0
    if n == 2 or state == n:
        u, k, below = rng.random(), 0, limit[0]
        if n == 2 and state < n:
            below += (chain[0] - chain[2]) ** elapsed * ((1.0 - state) - limit[0])
        while u >= below and k < n - 1:
            k += 1
            below += limit[k]
        return k
    for _ in range(min(elapsed, MOST_STEPS)):
        u = rng.random()
        up = chain[state * n + state + 1] if state < n - 1 else 0.0
        down = chain[state * n + state - 1] if state > 0 else 0.0
        if u < up:
            state += 1
        elif u < up + down:
            state -= 1
    return state


@njit
def follow(
    rng: np.random.Generator, policy: Choices, other: Choices, arms: FlatArms, state: IntArray, elapsed: IntArray,
    slots: int,
) -> tuple[IntArray, int]:  # fmt: skip
    """Follow a policy on some arms from the present beliefs, which are overwritten by the final beliefs.

    Returns every observation, (arm, last state, elapsed slots, observed state), and the number of slots in which
    another policy would have pulled other arms.
    """
    n_arms, plays = state.shape[0], policy.plays
    chain_at, state_at = np.zeros(n_arms + 1, dtype=np.int64), np.zeros(n_arms + 1, dtype=np.int64)
    for i in range(n_arms):
        chain_at[i + 1], state_at[i + 1] = chain_at[i] + arms.n_states[i] ** 2, state_at[i] + arms.n_states[i]
    looks = np.empty((slots * plays, 4), dtype=np.int64)
    chosen, others = np.empty(plays, dtype=np.int64), np.empty(plays, dtype=np.int64)
    scores = np.empty(n_arms)
    # A table over joint beliefs has entries for arms just pulled: the arms of shortest wait get a wait of zero.
    for play in range(plays):
        least = -1
        for i in range(n_arms):
            free = True
            for earlier in range(play):
                free = free and chosen[earlier] != i
            if free and (least < 0 or elapsed[i] < elapsed[least]):
                least = i
        chosen[play] = least
        elapsed[least] = 1
        if state[least] == arms.n_states[least]:
            state[least] = 0
    sort_arms(chosen)
    previous_action, other_block = action_number(chosen, policy.actions), action_number(chosen, other.actions)
    differ, at = 0, 0
    for _ in range(slots):
        choose(other, state, elapsed, other_block, scores, others)
        choose(policy, state, elapsed, previous_action, scores, chosen)
        same = 0
        for arm in chosen:
            for another in others:
                same += arm == another
        differ += same < plays
        for i in range(n_arms):
            elapsed[i] += 1
        for arm in chosen:
            wait, last = elapsed[arm] - 1, state[arm]
            chain, limit = (
                arms.chains[chain_at[arm] : chain_at[arm + 1]],
                arms.limiting_distributions[state_at[arm] : state_at[arm + 1]],
            )
            seen = _see(rng, chain, limit, last, wait)
            looks[at, 0], looks[at, 1], looks[at, 2], looks[at, 3] = arm, last, wait, seen
            state[arm], elapsed[arm] = seen, 1
            at += 1
        previous_action, other_block = action_number(chosen, policy.actions), action_number(chosen, other.actions)
    return looks, differ


@njit
def anticipate(looks: IntArray, times: float, theta: Array, first: IntArray, record: Counts, errors: Array) -> Array:
    """Replace the standard errors of all transitions by those after some observations, repeated ``times`` times.

    Returns the expected number of observations of each state of each arm by then.
    """
    n_arms = record.n_states.shape[0]
    seen = np.empty(record.state_base[n_arms])
    for k in range(seen.shape[0]):
        seen[k] = record.seen[k]
    used = np.zeros(n_arms, dtype=np.int64)
    for c in range(looks.shape[0]):
        used[looks[c, 0]] += 1
        seen[record.state_base[looks[c, 0]] + looks[c, 3]] += times
    for arm in range(n_arms):
        n = record.n_states[arm]
        if n == 1 or used[arm] == 0:
            continue
        size = 2 * (n - 1)
        visits = np.zeros((LONGEST, n, n), dtype=np.int64)
        longest = 0
        for c in range(looks.shape[0]):
            if looks[c, 0] == arm and looks[c, 1] < n:
                wait = min(looks[c, 2], LONGEST)
                visits[wait - 1, looks[c, 1], looks[c, 3]] += 1
                longest = max(longest, wait)
        elapsed, states = np.empty(used[arm], dtype=np.int64), np.empty(used[arm], dtype=np.int64)
        shown = np.empty((used[arm], n), dtype=np.int64)
        cells = 0
        for wait in range(longest):
            for s in range(n):
                total = 0
                for k in range(n):
                    total += visits[wait, s, k]
                if total > 0:
                    elapsed[cells], states[cells] = wait + 1, s
                    for k in range(n):
                        shown[cells, k] = visits[wait, s, k]
                    cells += 1
        mine = theta[first[arm] : first[arm + 1]]
        gradient, now, then = np.empty(size), np.empty((size, size)), np.empty((size, size))
        log_posterior(mine, n, gather(arm, record), PRIOR, gradient, now)
        log_posterior(mine, n, (elapsed[:cells], states[:cells], shown[:cells]), 0.0, gradient, then)
        for j in range(size):
            for i in range(size):
                now[j, i] += times * then[j, i]
        found = move_errors(mine, n, inverse(now))
        for j in range(size):
            errors[first[arm] + j] = found[j]
    return seen


class LevelScale(NamedTuple):
    """The scale of levels: the fair share of observations, and the x from which on a level is full."""

    share: float
    full: float

    @classmethod
    def of(cls, n_arms: int, slots: int, explore: float = 1.0) -> LevelScale:
        """Return the scale for a number of arms and slots; ``explore`` multiplies the fair share."""
        share = (slots + HEAD_START) / n_arms + HEAD_START_EACH
        return cls(explore * share, FULL + CROWD * max(0.0, math.log(n_arms / 3)))


@helper
def level_of(looks: float, scale: LevelScale, pulls: float, weight: float) -> float:
    """The level of a bound from a number of observations, or from a number of pulls for an arm not in use."""
    x = math.log1p(scale.share / (looks if pulls == 0.0 else pulls))
    return x * min(1.0, weight * x / scale.full)


@njit
def optimistic_chains(
    theta: Array, first: IntArray, errors: Array, n_states: IntArray, scale: LevelScale, pulls: Array, weights: Array
) -> Array:
    """The chains of all arms, flat, with every transition as favourable as its own level allows."""
    chains, deviations = np.zeros((n_states * n_states).sum()), np.empty(2 * (n_states.max() - 1))
    at = 0
    for arm in range(n_states.shape[0]):
        n = n_states[arm]
        chain = chain_of(theta[first[arm] : first[arm + 1]], n)
        for j in range(2 * (n - 1)):
            row, target = move_of(j, n)
            probability, error = chain[row, target], errors[first[arm] + j]
            looks = probability * (1.0 - probability) / error**2
            deviations[j] = math.sqrt(2.0 * level_of(looks, scale, pulls[arm], weights[arm])) * error
        write_moved(chain, deviations, chains, at)
        at += n * n
    return chains


@njit
def optimistic_rewards(
    sums: Array, seen: IntArray, later: Array, first: IntArray, ordered: BoolArray, scale: LevelScale, pulls: Array,
    weights: Array,
) -> Array:  # fmt: skip
    """Upper bounds of all mean rewards, flat, each at its own level.

    Bounds fall with the state for ``ordered`` arms. ``sums`` and ``seen``, at least one observation of every state, are
    present values; ``later`` has the later numbers of observations. The loss of likelihood by the order is added to the
    levels, as in ``_bounds.monotone_upper_bounds``.
    """
    bounds = np.empty(sums.shape[0])
    for arm in range(ordered.shape[0]):
        low, high = first[arm], first[arm + 1]
        cost = order_cost(sums[low:high], seen[low:high]) if ordered[arm] else 0.0
        for k in range(low, high):
            level = level_of(later[k], scale, pulls[arm], weights[arm]) + cost
            bounds[k] = kl_upper(sums[k] / seen[k], level / later[k])
            if ordered[arm] and k > low:
                bounds[k] = min(bounds[k], bounds[k - 1])
    return bounds


@helper
def _worth(chain: Array, rewards: Array) -> float:
    """The gain of an arm with a birth-death chain, flat, under permanent pulls."""
    n = rewards.shape[0]
    weight, total, earned = 1.0, 1.0, rewards[0]
    for k in range(1, n):
        # A state never left for a better state holds nearly all of the weight.
        weight *= chain[(k - 1) * n + k] / max(chain[k * n + k - 1], 1e-12)
        total += weight
        earned += weight * rewards[k]
    return float(earned / total)


@njit
def weights_of(likely: FlatArms, widest: FlatArms) -> Array:
    """The directions' factor of the levels of each arm: Σd² / (Σd)², with d the separate effect of each direction on
    the value.

    ``widest`` has every transition and reward at its own level, ``likely`` none of them.
    """
    weights = np.ones(likely.n_states.shape[0])
    chain_at, state_at = 0, 0
    for arm in range(weights.shape[0]):
        n = likely.n_states[arm]
        chain = likely.chains[chain_at : chain_at + n * n].copy()
        rewards = likely.rewards[state_at : state_at + n].copy()
        plain = _worth(chain, rewards)
        total, squares = 0.0, 0.0
        for place in range(n * n):
            # Only moves to neighbours are read.
            if abs(place // n - place % n) != 1:
                continue
            kept, chain[place] = chain[place], widest.chains[chain_at + place]
            more = max(0.0, _worth(chain, rewards) - plain)
            chain[place] = kept
            total, squares = total + more, squares + more * more
        for k in range(n):
            kept, rewards[k] = rewards[k], widest.rewards[state_at + k]
            more = max(0.0, _worth(chain, rewards) - plain)
            rewards[k] = kept
            total, squares = total + more, squares + more * more
        if total > 0.0:
            weights[arm] = squares / (total * total)
        chain_at, state_at = chain_at + n * n, state_at + n
    return weights


class Ahead(NamedTuple):
    """The knowledge after a policy has been followed for a while."""

    errors: Array
    """Standard errors of all moves, in the order of ``Fits.errors``."""
    seen: Array
    """Expected numbers of observations of every state of every arm, flat."""
    pulls: Array
    """The number of past pulls of every arm, 0 for an arm that the policy pulls: its directions count separately."""
    used: IntArray
    """How often the policy pulled every arm."""

    def without(self, arms: BoolArray, record: Record, fits: Fits) -> Ahead:
        """Return the same with present knowledge of some arms."""
        moves, states = np.repeat(arms, np.diff(fits.first)), np.repeat(arms, record.n_states)
        return Ahead(
            np.where(moves, fits.errors, self.errors),
            np.where(states, record.flat_seen, self.seen),
            np.where(arms, np.maximum(record.pulls, 1), self.pulls),
            np.where(arms, 0, self.used),
        )


def look_ahead(
    rng: np.random.Generator, policy: Policy, arms: FlatArms, record: Record, fits: Fits, slots: int, ahead: float
) -> Ahead:
    """Return the knowledge after ``ahead`` slots of a policy, from ``slots`` simulated slots on some arms."""
    choices = choices_of(policy, "likelihood-ucb")
    looks, _ = follow(rng, choices, choices, arms, record.last_state.copy(), record.elapsed, slots)
    errors = fits.errors.copy()
    seen = anticipate(looks, ahead / slots, fits.theta, fits.first, counts_of(record), errors)
    used = np.bincount(looks[:, 0], minlength=record.n_arms)
    return Ahead(errors, seen, np.where(used > 0, 0.0, np.maximum(record.pulls, 1)), used)


def compare(
    rng: np.random.Generator, policy: Policy, other: Policy, arms: FlatArms, record: Record, slots: int
) -> tuple[float, IntArray]:
    """Follow a policy on some arms; return the share of slots in which another policy differs, and the policy's own
    pulls.
    """
    both = choices_of(policy, "likelihood-ucb"), choices_of(other, "likelihood-ucb")
    looks, differ = follow(rng, *both, arms, record.last_state.copy(), record.elapsed, slots)
    return differ / slots, np.bincount(looks[:, 0], minlength=record.n_arms)
