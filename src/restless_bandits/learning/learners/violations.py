"""Warnings of observations that contradict the assumptions of the theory.

Learners play on in any case; their bounds are then not proved. Each violation is reported once in a run, by a warning
that names the arm and the assumption of the Restless-UCB paper. The evidence must be beyond doubt: five standard
errors, or, for rewards, fifteen nats of likelihood.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits.learning.estimation import RIVAL, chain_of, modes_of, move_errors, observations_of
from restless_bandits.learning.learners.confidence_bounds import binary_divergence, monotone_fit
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task

LEAST_TRANSITION_OBSERVATIONS = 30
"""The least number of observations of an arm for tests of its transitions."""
STANDARD_ERRORS = 5.0
NATS = 15.0


def warn_of_violations(name: str, record: Record, task: Task) -> dict[str, Any]:
    """Warn of new violations, and return the note of all violations, to avoid repeated warnings.

    Tests run only at plans whose number is a power of two, and at the first plan without notes of earlier tests.
    """
    plans = record.plans
    before = record.notes.get("violations")
    for arm, number in before or ():
        if arm not in range(task.n_arms) or number not in (1, 2, 3):
            raise ProblemError(f"the notes of the last plan hold an assumption {number!r} of arm {arm!r}")
    if plans == 0 or (before is not None and plans & (plans - 1)):
        return {key: record.notes[key] for key in ("violations", "looked") if key in record.notes}
    told = [list(violation) for violation in before or ()]
    pulls, looked = record.pulls, np.array(record.notes.get("looked", [0] * task.n_arms))
    if looked.dtype != np.int64 or looked.shape != pulls.shape:
        raise ProblemError("the notes of the last plan hold looks at other arms than there are")
    # An arm without observations since the last test has the same result.
    for arm in np.flatnonzero(pulls != looked).tolist():
        found = (_rewards_out_of_order(record, task, arm), _jump(record, arm), _hop(record, arm))
        for number, text in enumerate(found, start=1):
            if text and [arm, number] not in told:
                told.append([arm, number])
                warnings.warn(
                    f"{name}: {task.names[arm]!r} violates Assumption {number}: {text}; it plays on, without a proof",
                    RuntimeWarning,
                    stacklevel=3,
                )
    return {"violations": told, "looked": pulls.tolist()}


def _rewards_out_of_order(record: Record, task: Task, arm: int) -> str:
    shares = task.normalized_sums(record.flat_rewards, record.flat_seen)
    seen, sums = record.seen(arm), shares[record.state_base[arm] : record.state_base[arm + 1]]
    # Copies, because Numba would compile the kernel once more for arrays that cannot be written.
    fitted = monotone_fit(sums.copy(), seen.copy())
    means = sums / np.maximum(seen, 1)
    if task.reward_laws[arm] == "fixed":
        worse = (np.abs(means - fitted) > 1e-9)[seen > 0].any()
    else:
        cost = sum(n * binary_divergence(mean, fit) for n, mean, fit in zip(seen, means, fitted, strict=True) if n)
        worse = cost > NATS
    return "a state of higher number pays more" if worse else ""


def _jump(record: Record, arm: int) -> str:
    """A step over more than one state."""
    for state, to in np.argwhere(record.transitions(arm)):
        if abs(to - state) > 1:
            return f"it was seen to jump from state {state} to state {to}"
    return ""


def _hop(record: Record, arm: int) -> str:
    """Neighbouring states that alternate: the probabilities of a step there and of a step back add up to more than
    1.
    """
    n = int(record.n_states[arm])
    if n == 1 or record.seen(arm).sum() < LEAST_TRANSITION_OBSERVATIONS:
        return ""
    best, *rivals = modes_of(observations_of(record, arm), n)
    if any(rival.value > best.value - RIVAL for rival in rivals):
        return ""
    chain, errors = chain_of(best.theta, n), move_errors(best)
    for state in range(n - 1):
        excess = chain[state, state + 1] + chain[state + 1, state] - 1
        if excess > STANDARD_ERRORS * math.hypot(errors[n - 1 + state], errors[state]):
            return f"it hops between states {state} and {state + 1}"
    return ""
