"""Compiled homotopy in the subsidy of observed two-action arms: see ``index``.

One call sweeps many arms of one number of states. Rank-one updates keep the inverse of the policy's matrix up to date,
so an arm of n states takes O(n³) operations.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.oracles.homotopy_kernels import solve_in_place

Turns = tuple[Array, IntArray, Array, Array, IntArray, IntArray]

SINGULAR = 1e-12
"""A pivot or a ratio of determinants below this number means several recurrent classes."""
FLAT = 1e-12
"""An advantage that falls by less than this share of the subsidy is constant: pulls now or later are alike there."""
DONE, MULTICHAIN, CYCLING = 0, 1, 2
"""Outcomes of a sweep."""


@njit
def sweep(arms: tuple[Array, ...], discount: float, found: Turns) -> None:
    """Follow the optimal policy of each arm as the subsidy for resting rises from −∞ to ∞.

    ``arms`` holds chains of pulling and resting, mean rewards of pulling and resting, and start distributions.
    ``found`` holds the arrays to write: ``turn_at``, ``turn_state``, ``slope``, ``base``, ``turns`` and ``outcome``.
    ``turn_at[i, k]`` and ``turn_state[i, k]`` are the subsidy and the state of turn k; a state that turns back to
    pulling is stored as −1 − state. ``slope[i, k]`` is the share of time at rest after the turn, and ``base[i]`` the
    gain of an arm that is always pulled. A discount of 1 means the average reward; a smaller one the normalised
    discounted reward from the distribution ``start[i]``.
    """
    active, passive, active_reward, passive_reward, start = arms
    turn_at, turn_state, slope, base, turns, outcome = found
    n_arms, n = active_reward.shape
    most = turn_at.shape[1]
    system, right = np.empty((n, n)), np.empty((n, n + 1))
    advantage, fall, resting = np.empty(n), np.empty(n), np.zeros(n, dtype=np.bool_)
    column, updates = np.empty(n + 1), np.empty((most, n + 1))
    for i in range(n_arms):
        for s in range(n):
            for k in range(n):
                system[k, s] = -discount * active[i, s, k]
                right[k, s] = discount * (active[i, s, k] - passive[i, s, k])
            system[s, s] += 1.0
            right[s, n] = (1.0 - discount) * start[i, s]
            # The relative value of state 0 is zero; its column carries the gain.
            system[0, s], right[0, s] = 1.0, 0.0
        right[0, n] = 1.0
        turns[i] = 0
        if solve_in_place(system, right) < SINGULAR:
            outcome[i] = MULTICHAIN
            continue
        # right[k, s] is now X[s, k], the answer of the advantage of s to the reward of k; column n is the occupation.
        total = 0.0
        for k in range(n):
            total += right[k, n] * active_reward[i, k]
        base[i] = total
        for s in range(n):
            value = active_reward[i, s] - passive_reward[i, s]
            for k in range(n):
                value += right[k, s] * active_reward[i, k]
            advantage[s], fall[s], resting[s] = value, 1.0, False
        subsidy, at_rest, outcome[i] = 0.0, 0.0, CYCLING
        for turn in range(most + 1):
            step, chosen = np.inf, -1
            for s in range(n):
                if (fall[s] > 0.0) != resting[s] and abs(fall[s]) > FLAT:
                    ahead = advantage[s] / fall[s]
                    if turn > 0 and ahead < 0.0:
                        ahead = 0.0
                    if ahead < step:
                        step, chosen = ahead, s
            if chosen < 0:
                outcome[i] = DONE
                for s in range(n):
                    if not resting[s]:
                        outcome[i] = MULTICHAIN
                break
            if turn == most:
                break
            subsidy += step
            for s in range(n):
                advantage[s] -= step * fall[s]
            advantage[chosen] = 0.0
            # Of X only the column of the chosen state is needed, so all turns so far are applied to this column alone.
            column[:] = right[chosen]
            for past in range(turn):
                state = turn_state[i, past]
                factor = column[state if state >= 0 else -1 - state]
                if factor != 0.0:
                    for k in range(n + 1):
                        column[k] -= factor * updates[past, k]
            sign = -1.0 if resting[chosen] else 1.0
            ratio = 1.0 + sign * column[chosen]
            if ratio < SINGULAR:
                outcome[i] = MULTICHAIN
                break
            for k in range(n + 1):
                updates[turn, k] = column[k] * (sign / ratio)
            before = fall[chosen]
            for s in range(n):
                fall[s] -= updates[turn, s] * before
            at_rest += updates[turn, n] * before
            turn_at[i, turn] = subsidy
            turn_state[i, turn] = -1 - chosen if resting[chosen] else chosen
            slope[i, turn] = at_rest
            resting[chosen] = not resting[chosen]
            turns[i] = turn + 1


@njit
def sweep_two_states(arms: tuple[Array, ...], discount: float, found: Turns) -> None:
    """Sweep arms of two states by their closed form; arguments as those of ``sweep``.

    x and y are the discounted probabilities of state 1 after states 0 and 1, pulled (a) or at rest (p).
    """
    active, passive, active_reward, passive_reward, start = arms
    turn_at, turn_state, slope, base, turns, outcome = found
    for i in range(len(base)):
        xa, ya = discount * active[i, 0, 1], discount * active[i, 1, 1]
        xp, yp = discount * passive[i, 0, 1], discount * passive[i, 1, 1]
        ra0, ra1, rp0, rp1 = active_reward[i, 0], active_reward[i, 1], passive_reward[i, 0], passive_reward[i, 1]
        both_pulled, both_resting = 1.0 + xa - ya, 1.0 + xp - yp
        # With several recurrent classes nothing below is read; divisors are kept away from zero.
        value = (ra1 - ra0) / max(both_pulled, SINGULAR)
        first0 = ra0 - rp0 + (xa - xp) * value
        first1 = ra1 - rp1 + (ya - yp) * value
        zero_first = first0 <= first1
        if zero_first:
            low, one_resting = first0, 1.0 + xp - ya
            high = one_resting * (ra1 - rp1) + (ya - yp) * (ra1 - rp0)
        else:
            low, one_resting = first1, 1.0 + xa - yp
            high = one_resting * (ra0 - rp0) + (xa - xp) * (rp1 - ra0)
        high /= max(both_resting, SINGULAR)
        if discount == 1.0:
            rests = 1.0 - ya if zero_first else xa
            base[i] = ra0 + xa * value
        else:
            s0, s1 = start[i, 0], start[i, 1]
            in0, in1 = s0 * (1.0 - ya) + s1 * (discount - ya), s0 * xa + s1 * (1.0 - discount + xa)
            rests = in0 if zero_first else in1
            base[i] = (in0 * ra0 + in1 * ra1) / max(both_pulled, SINGULAR)
        # Rounding may put the second turn of a tie before the first.
        turn_at[i, 0], turn_at[i, 1] = low, max(low, high)
        turn_state[i, 0], turn_state[i, 1] = (0, 1) if zero_first else (1, 0)
        slope[i, 0], slope[i, 1] = rests / max(one_resting, SINGULAR), 1.0
        turns[i] = 2
        outcome[i] = MULTICHAIN if min(both_pulled, both_resting, one_resting) < SINGULAR else DONE
