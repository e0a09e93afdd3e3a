"""Compiled kernels of the oracles: plain arrays in, plain arrays out."""

from __future__ import annotations

import numpy as np

from restless_bandits._compile import njit
from restless_bandits.arrays import ActionArray, Array, BoolArray, IntArray


@njit
def _advance(outcome: IntArray, arms: IntArray, count: int, n_states: IntArray) -> bool:
    """Turn to the next joint outcome of some arms, the last one fastest; after the last, back at the first, False."""
    p = count - 1
    while p >= 0:
        outcome[p] += 1
        if outcome[p] < n_states[arms[p]]:
            return True
        outcome[p] = 0
        p -= 1
    return False


@njit
def _most_gained(chances: Array, payoffs: Array, count: int, distance: float, sign: float) -> float:
    """How far the mean of ``sign``·payoff can rise when the law moves by at most a distance in total variation.

    Chance is taken from the worst payoffs first and given to the best one.
    """
    best = -np.inf
    for o in range(count):
        best = max(best, sign * payoffs[o])
    gained = 0.0
    left = distance
    below = -np.inf
    while left > 0.0:
        worst = np.inf
        for o in range(count):
            if sign * payoffs[o] > below:
                worst = min(worst, sign * payoffs[o])
        if worst >= best:
            break
        mass = 0.0
        for o in range(count):
            if sign * payoffs[o] == worst:
                mass += chances[o]
        moved = min(left, mass)
        gained += moved * (best - worst)
        left -= moved
        below = worst
    return gained


@njit
def sweep_rows(
    values: Array,
    improved: Array,
    action: ActionArray,
    first_row: int,
    last_row: int,
    block: int,
    step: float,
    shift: float,
    side: int,
    tie: float,
    actions: IntArray,
    offsets: IntArray,
    strides: IntArray,
    radix: IntArray,
    order: IntArray,
    law: Array,
    reward: Array,
    rewards: Array,
    passive: IntArray,
    first: IntArray,
    deviation: Array,
    n_states: IntArray,
) -> tuple[float, float, float, float]:
    """One step of value iteration on some rows of one block of joint beliefs (see ``beliefs.JointBeliefs``).

    A row is all digits of the arm that runs fastest, ``order[-1]``, with those of the others fixed: along it the laws
    and successors of every other arm's pull are constant or contiguous.

    The law of a capped belief stands for all laws within its deviation, so an action has three values: Q by the law
    itself, and the least and the most that a law so near can make of it. Of these ``side`` (−1, 0, 1 for least, plain,
    most) says which one is iterated: writes ``improved = v + step·(T v − v − shift)`` with T the maximum of that value
    over actions, and the action that attains it (lowest number within ``tie``). Returns over the rows

        min (Tv − v), max (Tv − v), min of the chosen action's least value − v, max of every action's most − v.

    The last two bracket the optimal gain, whatever v is.
    """
    n_arms = radix.shape[1]
    plays = actions.shape[1]
    inner = order[n_arms - 1]
    width = radix[block, inner]
    in_block = np.zeros(n_arms, dtype=np.bool_)
    for p in range(plays):
        in_block[actions[block, p]] = True

    row_belief = np.empty(width, dtype=np.int64)
    row_after = np.empty(width, dtype=np.int64)
    row_law = np.empty((n_states[inner], width))
    for d in range(width):
        row_belief[d] = first[inner, d] if in_block[inner] else d
        row_after[d] = passive[inner, row_belief[d]]
        for k in range(n_states[inner]):
            row_law[k, d] = law[inner, row_belief[d], k]
    # Waiting turns most beliefs into the next one, which makes for contiguous reads; the rest are mended one by one.
    contiguous = not in_block[inner]
    odd = np.empty(width, dtype=np.int64)
    n_odd = 0
    for d in range(width):
        if not contiguous or row_after[d] != d + 1:
            odd[n_odd] = d
            n_odd += 1
    odd_q = np.empty(n_odd)
    row_deviation = 0.0
    for d in range(width):
        row_deviation = max(row_deviation, deviation[inner, row_belief[d]])

    belief = np.empty(n_arms, dtype=np.int64)
    after = np.empty(n_arms, dtype=np.int64)
    digits = np.zeros(n_arms, dtype=np.int64)
    outcome = np.zeros(plays, dtype=np.int64)
    others = np.empty(plays, dtype=np.int64)
    n_outcomes = 1
    for a in range(actions.shape[0]):
        count = 1
        for p in range(plays):
            count *= n_states[actions[a, p]]
        n_outcomes = max(n_outcomes, count)
    chances = np.empty(n_outcomes)
    payoffs = np.empty(n_outcomes)

    q = np.empty(width)
    rise = np.empty(width)
    fall = np.empty(width)
    top = np.empty(width)
    chosen_q = np.empty(width)
    chosen_least = np.empty(width)
    optimistic = np.empty(width)
    chosen = np.empty(width, dtype=np.int64)

    least, most = np.inf, -np.inf
    lower, upper = np.inf, -np.inf

    rest = first_row
    for position in range(n_arms - 2, -1, -1):
        i = order[position]
        digits[i] = rest % radix[block, i]
        rest //= radix[block, i]

    for row in range(first_row, last_row):
        for position in range(n_arms - 1):
            i = order[position]
            belief[i] = first[i, digits[i]] if in_block[i] else digits[i]
            after[i] = passive[i, belief[i]]
        for d in range(width):
            top[d] = -np.inf
            chosen_q[d] = -np.inf
            optimistic[d] = -np.inf

        for a in range(actions.shape[0]):
            base = offsets[a]
            for position in range(n_arms - 1):
                base += after[order[position]] * strides[a, order[position]]
            fixed_reward = 0.0
            fixed_deviation = 0.0
            n_others = 0
            pulls_inner = False
            for p in range(plays):
                i = actions[a, p]
                if i == inner:
                    pulls_inner = True
                    continue
                base -= after[i] * strides[a, i]
                fixed_reward += reward[i, belief[i]]
                fixed_deviation += deviation[i, belief[i]]
                others[n_others] = i
                outcome[n_others] = 0
                n_others += 1
            for d in range(width):
                q[d] = fixed_reward
                rise[d] = 0.0
                fall[d] = 0.0
            if pulls_inner:
                for d in range(width):
                    q[d] += reward[inner, row_belief[d]]
            else:
                for j in range(n_odd):
                    odd_q[j] = fixed_reward

            while True:
                chance = 1.0
                place = base
                for p in range(n_others):
                    i = others[p]
                    chance *= law[i, belief[i], outcome[p]]
                    place += outcome[p] * strides[a, i]
                if pulls_inner:
                    for k in range(n_states[inner]):
                        weight = chance * values[place + k]
                        for d in range(width):
                            q[d] += weight * row_law[k, d]
                else:
                    if contiguous:
                        for d in range(width - 1):
                            q[d] += chance * values[place + d + 1]
                    for j in range(n_odd):
                        odd_q[j] += chance * values[place + row_after[odd[j]]]
                if not _advance(outcome, others, n_others, n_states):
                    break
            if not pulls_inner:
                for j in range(n_odd):
                    q[odd[j]] = odd_q[j]

            if fixed_deviation > 0.0 or (pulls_inner and row_deviation > 0.0):
                for d in range(width):
                    spread = fixed_deviation + (deviation[inner, row_belief[d]] if pulls_inner else 0.0)
                    if spread > 0.0:
                        n = 0
                        while True:
                            chance = 1.0
                            place = base if pulls_inner else base + row_after[d]
                            payoff = 0.0
                            for p in range(n_others):
                                i = others[p]
                                chance *= law[i, belief[i], outcome[p]]
                                place += outcome[p] * strides[a, i]
                                payoff += rewards[i, outcome[p]]
                            if pulls_inner:
                                for k in range(n_states[inner]):
                                    chances[n] = chance * row_law[k, d]
                                    payoffs[n] = payoff + rewards[inner, k] + values[place + k]
                                    n += 1
                            else:
                                chances[n] = chance
                                payoffs[n] = payoff + values[place]
                                n += 1
                            if not _advance(outcome, others, n_others, n_states):
                                break
                        rise[d] = _most_gained(chances, payoffs, n, spread, 1.0)
                        fall[d] = _most_gained(chances, payoffs, n, spread, -1.0)

            for d in range(width):
                optimistic[d] = max(optimistic[d], q[d] + rise[d])
                least_value = q[d] - fall[d]
                value = q[d]
                if side > 0:
                    value = q[d] + rise[d]
                elif side < 0:
                    value = least_value
                top[d] = max(top[d], value)
                better = value > chosen_q[d] + tie
                chosen_q[d] = value if better else chosen_q[d]
                chosen_least[d] = least_value if better else chosen_least[d]
                chosen[d] = a if better else chosen[d]

        start = offsets[block] + row * width
        for d in range(width):
            v = values[start + d]
            gain = top[d] - v
            least = min(least, gain)
            most = max(most, gain)
            lower = min(lower, chosen_least[d] - v)
            upper = max(upper, optimistic[d] - v)
            improved[start + d] = v + step * (gain - shift)
            action[start + d] = chosen[d]

        for position in range(n_arms - 2, -1, -1):
            i = order[position]
            digits[i] += 1
            if digits[i] < radix[block, i]:
                break
            digits[i] = 0
    return least, most, lower, upper


REGIME_LOOP = 0
REGIME_STOP = 1
ALL_ROWS = -1


@njit
def _solve_in_place(system: Array, right: Array) -> float:
    """Gauss-Jordan elimination with row pivoting: ``right`` becomes the solution, ``system`` is used up.

    Returns the smallest pivot; one near zero means that the system is singular.
    """
    n, columns = right.shape
    smallest = np.inf
    for i in range(n):
        pivot = i
        for j in range(i + 1, n):
            if abs(system[j, i]) > abs(system[pivot, i]):
                pivot = j
        size = abs(system[pivot, i])
        smallest = min(smallest, size)
        if size < 1e-300:
            return 0.0
        if pivot != i:
            for k in range(n):
                system[i, k], system[pivot, k] = system[pivot, k], system[i, k]
            for k in range(columns):
                right[i, k], right[pivot, k] = right[pivot, k], right[i, k]
        scale = 1.0 / system[i, i]
        for k in range(i, n):
            system[i, k] *= scale
        for k in range(columns):
            right[i, k] *= scale
        for j in range(n):
            factor = system[j, i]
            if j != i and factor != 0.0:
                for k in range(i, n):
                    system[j, k] -= factor * system[i, k]
                for k in range(columns):
                    right[j, k] -= factor * right[i, k]
    return smallest


@njit
def _policy_row(
    row: Array, state: int, sigma: int, law: Array, mean: Array, discount: float, regime: int
) -> tuple[float, float]:
    """Write one row of the linear system of a policy and return its right-hand side, affine in the subsidy."""
    n = law.shape[1]
    length = law.shape[2]
    row[:] = 0.0
    if regime == REGIME_STOP and sigma == length:
        row[state] = 1.0
        return 0.0, 0.0
    faded = discount**sigma
    for k in range(n):
        row[k] = -discount * faded * law[state, k, sigma]
    row[state] += 1.0
    if regime == REGIME_LOOP:
        # h of the last state is pinned to zero, so its column carries the gain.
        row[n - 1] = sigma + 1.0
        return mean[state, sigma], float(sigma)
    return faded * mean[state, sigma], -faded


@njit
def _active_values(
    base: Array, slope: Array, x0: Array, x1: Array, law: Array, mean: Array, discount: float, regime: int
) -> None:
    """Write A(s, τ) = R(s, τ) − g + P^τ(s)·h as base + m·slope, for the solution x of a policy's linear system."""
    rows, n, _ = law.shape
    loop = regime == REGIME_LOOP
    g0 = x0[n - 1] if loop else 0.0
    g1 = x1[n - 1] if loop else 1.0
    used = n - 1 if loop else n
    for s in range(rows):
        for t in range(law.shape[2]):
            base[s, t] = mean[s, t] - g0
            slope[s, t] = -g1
        for k in range(used):
            h0 = discount * x0[k]
            h1 = discount * x1[k]
            for t in range(law.shape[2]):
                base[s, t] += law[s, k, t] * h0
                slope[s, t] += law[s, k, t] * h1


@njit
def _turn_to_row(
    s: int,
    m: float,
    worst: float,
    d0: Array,
    d1: Array,
    base: Array,
    slope: Array,
    active: BoolArray,
    after: IntArray,
    x0: Array,
    x1: Array,
    fades: Array,
    regime: int,
) -> tuple[float, int, float]:
    """Renew D(s, τ) = active − passive value = d0 + m·d1 of one row, and look along it.

    ``after`` is the next active time, the length for none, and ``fades[w]`` the discount of w slots. Returns the least
    subsidy from ``m`` on at which an active belief of the row turns, its time, and the largest D of a passive one: an
    affine D is largest at an end of the range of m in which it holds, so it is asked as it goes and as it comes.
    """
    length = base.shape[1]
    n = x0.shape[0]
    loop = regime == REGIME_LOOP
    g0 = x0[n - 1] if loop else 0.0
    g1 = x1[n - 1] if loop else 1.0
    first, turn = np.inf, -1
    for t in range(length):
        resting = not active[s, t]
        if resting:
            worst = max(worst, d0[s, t] + m * d1[s, t])
        following = after[s, t]
        if following == length:
            # Passive for ever from here: worth m a slot, against the gain of the loop or against nothing.
            now0 = g0 if loop else base[s, t]
            now1 = g1 - 1.0 if loop else slope[s, t]
        else:
            wait = following - t
            faded = fades[wait]
            now0 = base[s, t] - faded * base[s, following] + wait * g0
            now1 = slope[s, t] - faded * slope[s, following] - wait * (1.0 - g1)
        d0[s, t] = now0
        d1[s, t] = now1
        if resting:
            worst = max(worst, now0 + m * now1)
        elif now1 < 0.0:
            root = max(m, -now0 / now1)
            # Of beliefs that turn together the one with the shortest wait goes first.
            if root < first:
                first, turn = root, t
    return first, turn, worst


@njit
def _worst_at(m: float, worst: float, d0: Array, d1: Array, active: BoolArray) -> float:
    """Return the largest D of a passive belief at a subsidy, if it is larger than ``worst``."""
    rows, length = d0.shape
    for s in range(rows):
        for t in range(length):
            if not active[s, t]:
                worst = max(worst, d0[s, t] + m * d1[s, t])
    return worst


@njit
def _stopping_values(law: Array, mean: Array, price: float, sigma: IntArray) -> Array:
    """Optimal stopping at subsidy = gain = price: pulling pays R − price, waiting is free, never pulling is worth 0.

    Policy iteration from waits ``sigma`` (the length for never), which must stop for sure. A policy that never stops
    has a singular system; it could only come up by rounding, or behind a belief that should have turned back, and is
    not taken.
    """
    _, n, length = law.shape
    h = np.zeros(n)
    trial = sigma.copy()
    system = np.empty((n, n))
    right = np.empty((n, 1))
    stop = int(REGIME_STOP)  # not a constant, for which Numba would compile what is called anew
    for _ in range(10_000):
        for s in range(n):
            c0, c1 = _policy_row(system[s], s, trial[s], law, mean, 1.0, stop)
            right[s, 0] = c0 + price * c1
        if _solve_in_place(system, right) < 1e-11:
            break
        h[:] = right[:, 0]
        changed = False
        for s in range(n):
            best = h[s] + 1e-11 * (1.0 + abs(h[s]))
            if best < 0.0:
                best = 0.0
                trial[s] = length
                changed = True
            for t in range(length):
                value = mean[s, t] - price
                for k in range(n):
                    value += law[s, k, t] * h[k]
                if value > best:
                    best = value
                    trial[s] = t
                    changed = True
        if not changed:
            break
    return h


@njit
def _enter_stopping(
    law: Array,
    mean: Array,
    price: float,
    h: Array,
    threshold: float,
    active: BoolArray,
    kept: BoolArray,
    after: IntArray,
    sigma: IntArray,
) -> tuple[int, float]:
    """Find the beliefs that stay active when stopping sets in: those better than waiting by more than a threshold.

    Writes them to ``kept``, with the next active times and first waits that follow; returns how many turned, and the
    largest advantage of a belief that had turned before.
    """
    rows, n, length = law.shape
    turned = 0
    worst = 0.0
    for s in range(rows):
        # From the back, against the best of what stays active: many tiny advantages must not add up.
        best = 0.0
        following = length
        for t in range(length - 1, -1, -1):
            value = mean[s, t] - price
            for k in range(n):
                value += law[s, k, t] * h[k]
            after[s, t] = following
            kept[s, t] = active[s, t] and value - best > threshold
            if kept[s, t]:
                following = t
                best = value
            elif active[s, t]:
                turned += 1
            else:
                worst = max(worst, value - best)
        sigma[s] = following
    return turned, worst


@njit
def whittle_homotopy(law: Array, mean: Array, discount: float, tolerance: float) -> tuple[Array, bool, float, bool]:
    """Whittle indices of the beliefs (s, τ = t + 1) of one arm by following the optimal policy in the subsidy m.

    ``law[s, k, t]`` is the chance to see k and ``mean[s, t]`` the mean reward; rows beyond the states are beliefs that
    are never returned to, such as that of an arm never seen. With ``discount`` 1 the criterion is the
    average reward: the policy loops with gain g > m until m° with g(m°) = m°, and from there on it is an optimal
    stopping problem. With a discount below 1 it is one stopping problem from the start.

    Returns the indices, whether the arm is indexable, the largest advantage of a belief that turned passive and
    should be active again, and whether the linear systems could be solved.
    """
    rows, n, length = law.shape
    index = np.full((rows, length), np.nan)
    active = np.ones((rows, length), dtype=np.bool_)
    kept = np.ones((rows, length), dtype=np.bool_)
    after = np.empty((rows, length), dtype=np.int64)
    for t in range(length):
        after[:, t] = t + 1
    sigma = np.zeros(rows, dtype=np.int64)
    fades = np.empty(length)
    for wait in range(length):
        fades[wait] = discount**wait
    regime = REGIME_LOOP if discount == 1.0 else REGIME_STOP

    system = np.empty((n, n))
    row = np.empty(n)
    c0 = np.empty(n)
    c1 = np.empty(n)
    x0 = np.empty(n)
    x1 = np.empty(n)
    inverse = np.empty((n, n))
    work = np.empty((n, n))
    solved = np.empty((n, n + 2))
    difference = np.empty(n)
    direction = np.empty(n)
    pushed = np.empty(n)
    base = np.empty((rows, length))
    slope = np.empty((rows, length))
    d0 = np.empty((rows, length))
    d1 = np.empty((rows, length))
    change = np.empty((rows, length))
    roots = np.empty(rows)
    turns = np.empty(rows, dtype=np.int64)
    stale = ALL_ROWS

    m = -np.inf
    worst = 0.0
    remaining = rows * length
    # Rank-one updates are cheap and lose digits; a fresh solution every so often keeps both cost and error small.
    refresh_every = max(2, n // 2)
    updates = refresh_every
    while remaining > 0:
        if updates >= refresh_every:
            for s in range(n):
                c0[s], c1[s] = _policy_row(system[s], s, sigma[s], law, mean, discount, regime)
            solved[:, :] = 0.0
            for s in range(n):
                solved[s, s] = 1.0
                solved[s, n] = c0[s]
                solved[s, n + 1] = c1[s]
                work[s] = system[s]
            if _solve_in_place(work, solved) < 1e-13:
                return index, False, worst, False
            for s in range(n):
                inverse[s] = solved[s, :n]
                x0[s] = solved[s, n]
                x1[s] = solved[s, n + 1]
            _active_values(base, slope, x0, x1, law, mean, discount, regime)
            updates = 0
            stale = ALL_ROWS
        for s in range(rows):
            if stale in (ALL_ROWS, s):
                roots[s], turns[s], worst = _turn_to_row(
                    s, m, worst, d0, d1, base, slope, active, after, x0, x1, fades, regime
                )
        turn_s = int(np.argmin(roots))
        turn_t = turns[turn_s]
        if turn_t < 0:
            return index, False, worst, False
        m = roots[turn_s]

        if regime == REGIME_LOOP and after[turn_s, turn_t] == length:
            # At m° the loop neither gains nor loses, so stopping where its relative value is least costs nothing. The
            # weights of the right-hand sides in the gain tell which states the loop returns to.
            worst = _worst_at(m, worst, d0, d1, active)
            d0[:, :] = -np.inf
            d1[:, :] = 0.0
            regime = REGIME_STOP
            least, stop = np.inf, -1
            for s in range(n):
                value = x0[s] + m * x1[s] if s < n - 1 else 0.0
                if inverse[n - 1, s] > 1e-12 and value < least:
                    least, stop = value, s
            sigma[stop] = length
            h = _stopping_values(law, mean, m, sigma)
            threshold = 1e-13
            while True:
                turned, advantage = _enter_stopping(law, mean, m, h, threshold, active, kept, after, sigma)
                for s in range(n):
                    _policy_row(work[s], s, sigma[s], law, mean, discount, regime)
                solved[:, :] = 0.0
                if threshold > 1e-9 or _solve_in_place(work, solved) >= 1e-11:
                    break
                # Beliefs that seem better active by rounding alone close a loop; ask for more.
                threshold *= 10.0
            worst = max(worst, advantage)
            for s in range(rows):
                for t in range(length):
                    if active[s, t] and not kept[s, t]:
                        active[s, t] = False
                        index[s, t] = m
            remaining -= turned
            updates = refresh_every
            continue

        index[turn_s, turn_t] = m
        active[turn_s, turn_t] = False
        # Not passive before, so it had no advantage then that would count.
        d0[turn_s, turn_t] = -np.inf
        d1[turn_s, turn_t] = 0.0
        remaining -= 1
        # A turn that no policy starts from changes what follows in its own row and nothing else.
        stale = turn_s
        following = after[turn_s, turn_t]
        t = turn_t - 1
        while t >= 0 and after[turn_s, t] == turn_t:
            after[turn_s, t] = following
            t -= 1
        if sigma[turn_s] != turn_t:
            continue
        sigma[turn_s] = following
        if turn_s >= n:
            continue
        stale = ALL_ROWS
        new_c0, new_c1 = _policy_row(row, turn_s, following, law, mean, discount, regime)
        scale = 1.0
        for k in range(n):
            difference[k] = row[k] - system[turn_s, k]
            scale += difference[k] * inverse[k, turn_s]
        updates += 1
        if abs(scale) < 1e-8:
            updates = refresh_every
            continue
        step0 = c0[turn_s] - new_c0
        step1 = c1[turn_s] - new_c1
        pushed[:] = 0.0
        for k in range(n):
            direction[k] = inverse[k, turn_s] / scale
            step0 += difference[k] * x0[k]
            step1 += difference[k] * x1[k]
            for j in range(n):
                pushed[j] += difference[k] * inverse[k, j]
        for k in range(n):
            x0[k] -= step0 * direction[k]
            x1[k] -= step1 * direction[k]
            for j in range(n):
                inverse[k, j] -= direction[k] * pushed[j]
        system[turn_s] = row
        c0[turn_s], c1[turn_s] = new_c0, new_c1
        loop = regime == REGIME_LOOP
        for s in range(rows):
            for t in range(length):
                change[s, t] = -direction[n - 1] if loop else 0.0
            for k in range(n - 1 if loop else n):
                weight = discount * direction[k]
                for t in range(length):
                    change[s, t] += law[s, k, t] * weight
            for t in range(length):
                base[s, t] -= step0 * change[s, t]
                slope[s, t] -= step1 * change[s, t]
    worst = _worst_at(m, worst, d0, d1, active)
    return index, worst <= tolerance, worst, True


@njit
def iterate_values(
    values: Array,
    improved: Array,
    action: ActionArray,
    step: float,
    tolerance: float,
    most_sweeps: int,
    tie: float,
    actions: IntArray,
    offsets: IntArray,
    strides: IntArray,
    radix: IntArray,
    order: IntArray,
    law: Array,
    reward: Array,
    rewards: Array,
    passive: IntArray,
    first: IntArray,
    deviation: Array,
    n_states: IntArray,
) -> tuple[float, float, int]:
    """Value iteration on a whole table of joint beliefs until the span of T v − v is within the tolerance.

    On return ``values`` holds v and ``action`` the greedy choice for it; returns the range of T v − v and the sweeps.
    """
    blocks = actions.shape[0]
    inner = order[radix.shape[1] - 1]
    # Numba compiles what is called anew for every constant it is handed; what comes out of a call is none.
    start, plain = int(0), int(0)  # noqa: RUF046, UP018
    shift = 0.0
    sweeps = 0
    while True:
        least, most = np.inf, -np.inf
        for block in range(blocks):
            rows = (offsets[block + 1] - offsets[block]) // radix[block, inner]
            low, high, _, _ = sweep_rows(
                values, improved, action, start, rows, block, step, shift, plain, tie,
                actions, offsets, strides, radix, order, law, reward, rewards, passive, first, deviation, n_states,
            )  # fmt: skip
            least, most = min(least, low), max(most, high)
        sweeps += 1
        if most - least <= tolerance or sweeps >= most_sweeps:
            return least, most, sweeps
        values[:] = improved
        shift = 0.5 * (least + most)


@njit
def settle(chain: Array, deviation: float, longest: int) -> tuple[Array, float]:
    """Powers ``[τ - 1, s, k]`` of a chain up to the first whose rows agree within a deviation, and how well they do.

    Rows that agree lie within that distance of the stationary law, and so do those of all later powers. Where they do
    not agree within ``longest`` slots, the distance returned is larger than asked for.
    """
    n = chain.shape[0]
    laws = np.empty((longest, n, n))
    laws[0] = chain
    for step in range(longest):
        if step > 0:
            for s in range(n):
                for k in range(n):
                    total = 0.0
                    for m in range(n):
                        total += laws[step - 1, s, m] * chain[m, k]
                    laws[step, s, k] = total
        worst = 0.0
        for s in range(n):
            for other in range(s):
                distance = 0.0
                for k in range(n):
                    distance += abs(laws[step, s, k] - laws[step, other, k])
                worst = max(worst, 0.5 * distance)
        if worst <= deviation:
            break
    return laws[: step + 1], worst


@njit
def link(
    offsets: IntArray,
    strides: IntArray,
    radix: IntArray,
    passive: IntArray,
    first: IntArray,
) -> tuple[IntArray, IntArray]:
    """Where each pull leads from each joint belief of a problem with one play.

    Returns ``belief[z, i]``, the belief of arm i in the joint belief z, and ``after[z, i]``, the place of the joint
    belief that follows when arm i is pulled and seen in state 0; for state k it is k · strides[i, i] further on.
    """
    n_arms = radix.shape[1]
    size = offsets[n_arms]
    belief = np.empty((size, n_arms), dtype=np.int64)
    after = np.empty((size, n_arms), dtype=np.int64)
    waited = np.empty(n_arms, dtype=np.int64)
    for block in range(n_arms):
        for place in range(offsets[block + 1] - offsets[block]):
            z = offsets[block] + place
            for i in range(n_arms):
                digit = place // strides[block, i] % radix[block, i]
                belief[z, i] = first[i, digit] if i == block else digit
                waited[i] = passive[i, belief[z, i]]
            for i in range(n_arms):
                target = offsets[i]
                for other in range(n_arms):
                    if other != i:
                        target += waited[other] * strides[i, other]
                after[z, i] = target
    return belief, after


@njit
def iterate_linked(
    values: Array,
    improved: Array,
    action: ActionArray,
    step: float,
    tolerance: float,
    most_sweeps: int,
    tie: float,
    belief: IntArray,
    after: IntArray,
    strides: IntArray,
    law: Array,
    reward: Array,
    n_states: IntArray,
) -> tuple[float, float, int]:
    """Value iteration as in ``iterate_values``, on links made once: many times faster on small tables."""
    size, n_arms = belief.shape
    shift = 0.0
    sweeps = 0
    while True:
        least, most = np.inf, -np.inf
        for z in range(size):
            top = -np.inf
            chosen = 0
            for i in range(n_arms):
                b = belief[z, i]
                q = reward[i, b]
                target, stride = after[z, i], strides[i, i]
                for k in range(n_states[i]):
                    q += law[i, b, k] * values[target + k * stride]
                if q > top + tie:
                    chosen = i
                top = max(top, q)
            change = top - values[z]
            least, most = min(least, change), max(most, change)
            improved[z] = values[z] + step * (change - shift)
            action[z] = chosen
        sweeps += 1
        if most - least <= tolerance or sweeps >= most_sweeps:
            return least, most, sweeps
        values[:] = improved
        shift = 0.5 * (least + most)


@njit
def rollout(
    indexed: bool,
    uniforms: Array,
    caps: IntArray,
    laws: Array,
    reward: Array,
    lengths: IntArray,
    tables: Array,
    columns: IntArray,
    numbers: IntArray,
    offsets: IntArray,
    strides: IntArray,
    action: ActionArray,
) -> Array:
    """Mean expected reward a slot under one of two policies, for each row of ``uniforms``, one slot a column.

    ``laws[arm, τ - 1, s]`` are running sums of the law of what is seen, up to the arm's cap, and ``reward[arm, τ - 1,
    s]`` its mean reward. The policies pull one arm: by indices ``tables[arm, s, τ - 1]`` up to their lengths, or by the
    table ``action`` over joint beliefs, numbered ``numbers[arm, s, τ - 1]`` up to their columns.
    """
    n_arms = laws.shape[0]
    state = np.zeros(n_arms, dtype=np.int64)
    elapsed = np.ones(n_arms, dtype=np.int64)
    pulled = 0
    means = np.empty(uniforms.shape[0])
    for batch in range(uniforms.shape[0]):
        total = 0.0
        for slot in range(uniforms.shape[1]):
            arm = 0
            if indexed:
                most = -np.inf
                for i in range(n_arms):
                    index = tables[i, state[i], min(elapsed[i], lengths[i]) - 1]
                    if index > most:
                        most, arm = index, i
            else:
                place = offsets[pulled] + state[pulled] * strides[pulled, pulled]
                for i in range(n_arms):
                    if i != pulled:
                        place += numbers[i, state[i], min(elapsed[i], columns[i]) - 1] * strides[pulled, i]
                arm = int(action[place])
            tau, last = min(elapsed[arm], caps[arm]) - 1, state[arm]
            total += reward[arm, tau, last]
            seen = 0
            while laws[arm, tau, last, seen] <= uniforms[batch, slot]:
                seen += 1
            for i in range(n_arms):
                elapsed[i] += 1
            state[arm], elapsed[arm] = seen, 1
            pulled = arm
        means[batch] = total / uniforms.shape[1]
    return means
