"""Compiled passes over kinds of observed arms of two states: see ``relaxation``."""

from __future__ import annotations

from restless_bandits._internal.compiling import njit
from restless_bandits._internal.validation import Array, BoolArray, IntArray

Duals = tuple[Array, Array, Array, Array, BoolArray]


@njit
def duals_of_two_states(
    arms: tuple[Array, ...], turns: tuple[Array, IntArray, BoolArray], prices: tuple[float, float, float], found: Duals
) -> None:
    """Write gains, upper bounds without their rounding, values of state 1, advantages and resting states of kinds.

    ``arms`` holds chains of pulling and resting, mean rewards of pulling and resting, and starts; ``turns`` the
    subsidies and states of a sweep and the multichain kinds; ``prices`` the subsidy, the discount, and the discount of
    multichain kinds. ``found`` holds the arrays to write: ``gain``, ``upper``, ``bias``, ``advantage``, ``resting``.
    """
    active, passive, active_reward, passive_reward, start = arms
    turn_at, turn_state, multichain = turns
    subsidy, discount, near_one = prices
    gain, upper, bias, advantage, resting = found
    for i in range(len(gain)):
        rests0, rests1 = False, False
        for k in range(turn_at.shape[1]):
            if turn_at[i, k] <= subsidy:
                state = turn_state[i, k]
                if state == 0 or state == -1:
                    rests0 = state == 0
                else:
                    rests1 = state == 1
        resting[i, 0], resting[i, 1] = rests0, rests1
        weight = near_one if multichain[i] else discount
        r0 = passive_reward[i, 0] + subsidy if rests0 else active_reward[i, 0]
        r1 = passive_reward[i, 1] + subsidy if rests1 else active_reward[i, 1]
        x = weight * (passive[i, 0, 1] if rests0 else active[i, 0, 1])
        y = weight * (passive[i, 1, 1] if rests1 else active[i, 1, 1])
        value = (r1 - r0) / (1.0 + x - y)
        pulled0 = active_reward[i, 0] + discount * (active[i, 0, 1] * value)
        pulled1 = active_reward[i, 1] + discount * (active[i, 1, 1] * value)
        rested0 = passive_reward[i, 0] + subsidy + discount * (passive[i, 0, 1] * value)
        rested1 = passive_reward[i, 1] + subsidy + discount * (passive[i, 1, 1] * value)
        from_start = (1.0 - discount) * (start[i, 1] * value)
        gain[i] = r0 + x * value + from_start
        upper[i] = max(max(pulled0, rested0), max(pulled1, rested1) - value) + from_start
        bias[i, 0], bias[i, 1] = 0.0, value
        advantage[i, 0], advantage[i, 1] = pulled0 - rested0, pulled1 - rested1
