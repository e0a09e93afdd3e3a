"""Compiled choices: the arms that a policy pulls in a given situation.

The engine reads indices and tables of joint beliefs from its own packed rows, for speed, and shares the selection of
the best scores with the other callers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from restless_bandits._internal.compiling import helper, inlined
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import ActionArray, Array, IntArray
from restless_bandits.policies.policies import TIE, IndexPolicy, JointPolicy, Policy
from restless_bandits.processes.beliefs import column_of

_column_of = helper(column_of)


class Choices(NamedTuple):
    """A policy in the layout of the kernels: tables of indices, or, if ``action`` is not empty, a table over joint
    beliefs.
    """

    plays: int
    scores: Array
    base: IntArray
    length: IntArray
    score_period: IntArray
    actions: IntArray
    offsets: IntArray
    strides: IntArray
    numbers: IntArray
    truncation: IntArray
    period: IntArray
    action: ActionArray


_FLAT, _SQUARE, _CUBE = (np.zeros((1,) * axes, dtype=np.int64) for axes in (1, 2, 3))


def choices_of(policy: Policy, who: str) -> Choices:
    """Return a policy of an oracle in the layout of the kernels; ``who`` names the caller in errors."""
    if isinstance(policy, JointPolicy):
        table = policy.beliefs.table
        joint = table.actions, table.offsets, table.strides, table.numbers, table.truncation, table.period
        return Choices(policy.plays, np.zeros(1), _FLAT, _FLAT, _FLAT, *joint, policy.action)
    if not isinstance(policy, IndexPolicy):
        raise ProblemError(
            f"{who} cannot simulate ahead with an oracle that plays a {type(policy).__name__}; "
            "take an oracle that plays an IndexPolicy or a JointPolicy"
        )
    joint = _SQUARE, _FLAT, _SQUARE, _CUBE, _FLAT, _FLAT
    return Choices(policy.plays, *policy.flat, *joint, np.zeros(0, dtype=np.int16))


@inlined
def take_best(scores: Array, chosen: IntArray, plays: int) -> None:
    """Write the arms of highest score, the best first; ties within the tolerance go to the lowest number.

    The scores of the chosen arms are overwritten.
    """
    for p in range(plays):
        most = -np.inf
        for i in range(scores.shape[0]):
            most = max(most, scores[np.uint64(i)])
        best = 0
        while scores[np.uint64(best)] < most - TIE and scores[np.uint64(best)] != most:
            best += 1
        scores[np.uint64(best)] = -np.inf
        chosen[p] = best


@inlined
def sort_arms(chosen: IntArray) -> None:
    """Sort a few arms in place."""
    for p in range(1, chosen.shape[0]):
        arm, place = chosen[p], p
        while place > 0 and chosen[place - 1] > arm:
            chosen[place] = chosen[place - 1]
            place -= 1
        chosen[place] = arm


@helper
def choose(
    policy: Choices, state: IntArray, elapsed: IntArray, previous_action: int, scores: Array, chosen: IntArray
) -> None:
    """Write the arms that a policy pulls, in any order; ``previous_action`` is the action of the last slot for a policy
    with a table. ``scores`` is room for a number for each arm.
    """
    n_arms = state.shape[0]
    if policy.action.shape[0] > 0:
        place = policy.offsets[previous_action]
        for i in range(n_arms):
            digit = policy.numbers[i, state[i], _column_of(elapsed[i], policy.truncation[i], policy.period[i])]
            for pulled in policy.actions[previous_action]:
                if pulled == i:
                    digit = state[i]
            place += digit * policy.strides[previous_action, i]
        for play in range(policy.plays):
            chosen[play] = policy.actions[policy.action[place], play]
        return
    for i in range(n_arms):
        column = _column_of(elapsed[i], policy.length[i], policy.score_period[i])
        scores[i] = policy.scores[policy.base[i] + state[i] * policy.length[i] + column]
    take_best(scores, chosen, policy.plays)


@helper
def action_number(chosen: IntArray, actions: IntArray) -> int:
    """Return the number of an action with arms in ascending order, −1 if there is none."""
    for a in range(actions.shape[0]):
        for p in range(actions.shape[1]):
            if actions[a, p] != chosen[p]:
                break
        else:
            return a
    return -1
