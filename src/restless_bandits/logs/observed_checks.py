"""Tests of the model of observed arms: evidence of a log against counts by kind or by arm.

Under the model a step depends on the row (kind, action, state) alone, whatever came before. Each test asks whether the
next state, given its row, depends on another quantity that was known before the step:

- *kind*: the arm's own earlier steps from the same row: arms of one kind that share no chain repeat themselves;
- *memory*: the state and the action one slot earlier;
- *selection*: for arms at rest the share of earlier slots with a pull: pulls went to arms that differ, or last longer;
- *drift*: the part of the log.

Since every quantity precedes the step, actions may depend on the past in any way. ``memory``, ``selection`` and
``drift`` are likelihood ratios: see ``associations``. For ``kind`` the residuals of an arm's earlier steps from the row
are summed, and multiplied by the residual of the next step. The products have mean zero under the model, whatever the
number of steps of an arm depends on: they form a martingale, and their sum over its predictable standard deviation is
about normal. A further term of its distribution corrects for the skewness of rare moves.

The false-alarm probability of the tests of a log together is at most ``DOUBTFUL`` (Holm). Several rejections may have
one cause: arms that differ within a kind make states look remembered, and pulls look selective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.logs.associations import Association, association, tail_probabilities
from restless_bandits.logs.checks import LOOKS_A_PART, MOST_BLOCKS, Finding, ranked, shown_probability
from restless_bandits.logs.observed_counts import ACTIONS, ObservedGroup, Steps
from restless_bandits.logs.traces import Trace

MOST_TESTED = 500
"""The largest number of groups that are tested, those with the most steps."""
LEAST_REPEATS = 25.0
"""The least expected number of pairs of rare moves of one arm, for a move to enter the test of a kind."""
REMEDIES = {
    "kind": "split the kind, or fit by arm (--by arm)",
    "memory": "its states are no Markov chain: add what the past tells to the states",
    "selection": "what was pulled was chosen by something the states do not show, so the effect of a pull may not hold",
    "drift": "fit a recent part of the log",
}


def observed_findings(
    trace: Trace, steps: Steps, of_arm: IntArray, groups: Sequence[ObservedGroup], word: str
) -> tuple[Finding, ...]:
    """Return the results of all tests with enough data, rejections first; ``word`` is kind, arm or all."""
    group = of_arm[steps.arms]
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(group, minlength=len(groups)))[:-1])
    largest = sorted(range(len(groups)), key=lambda k: -len(parts[k]))[:MOST_TESTED]
    past = _past_pulls(steps)
    found: list[Finding] = []
    for k in sorted(largest):
        label = (
            f"arm {groups[k].name!r}" if word == "arm" else f"kind {groups[k].name!r}" if word == "kind" else "the arms"
        )
        found += _tests(trace, steps, parts[k], past, groups[k], label)
    return ranked(found, {"memory": 1, "selection": 2})


def _tests(
    trace: Trace, steps: Steps, rows: IntArray, past: Array, group: ObservedGroup, label: str
) -> Iterator[Finding]:
    n = trace.n_states
    strata = steps.actions[rows] * n + steps.before[rows]
    after, slots = steps.after[rows], steps.slots[rows]

    def told(found: Association, name: Callable[[int], str]) -> str:
        if found.contrast is None:
            return ""
        action, state = divmod(found.contrast.stratum, n)
        ends = f"{found.contrast.most_share:.0%} {name(found.contrast.most)}"
        other = f"{found.contrast.least_share:.0%} {name(found.contrast.least)}"
        return (
            f", after a {ACTIONS[action]} in state {state} it moves to {found.contrast.outcome} in {ends} and {other}"
        )

    def finding(kind: str, what: str, p_value: float, effect: float, example: str = "") -> Finding:
        sentence = f"{label}: {what}{example} ({shown_probability(p_value)})"
        return Finding(kind, group.name, p_value, effect, sentence, REMEDIES[kind])

    if len(group.arms) > 1:
        p_value, effect = shared_chain_test(strata, steps.arms[rows], after, n)
        yield finding("kind", "its arms do not share a chain: an arm repeats its own earlier steps", p_value, effect)
    known = steps.previous[rows] >= 0
    found = association(strata[known], steps.previous[rows][known], after[known])
    yield finding(
        "memory",
        "its steps depend on the slot before the last",
        found.p_value,
        found.effect,
        told(found, lambda g: f"after a {ACTIONS[g % 2]} in state {g // 2} before"),
    )
    if len(group.arms) > 1:
        resting = (steps.actions[rows] == 0) & np.isfinite(past[rows])
        share = past[rows][resting]
        middle = float(np.median(share)) if share.size else 0.0
        classes = (share > 0).astype(np.int64) + (share > middle)
        found = association(strata[resting], classes, after[resting])
        names = ("if never pulled before", "if rarely pulled before", "if often pulled before")
        yield finding(
            "selection",
            "its steps at rest depend on how often the arm was pulled before",
            found.p_value,
            found.effect,
            told(found, names.__getitem__),
        )
    blocks = int(np.clip(len(rows) // LOOKS_A_PART, 2, MOST_BLOCKS))
    first, last = (int(slots.min()), int(slots.max())) if slots.size else (0, 0)
    part = (slots - first) * blocks // (last - first + 1)
    found = association(strata, part, after)

    def of_part(g: int) -> str:
        inside = slots[part == g]
        return f"in slots {inside.min()} to {inside.max()}"

    yield finding(
        "drift",
        "its steps are not the same in all parts of the log",
        found.p_value,
        found.effect,
        told(found, of_part),
    )


def _past_pulls(steps: Steps) -> Array:
    """The share of an arm's earlier steps with a pull, NaN before its first step."""
    starts = np.flatnonzero(np.diff(steps.arms, prepend=-1))
    lengths = np.diff(np.append(starts, len(steps)))
    sums = np.cumsum(steps.actions) - steps.actions
    before = sums - np.repeat(sums[starts], lengths)
    place = np.arange(len(steps)) - np.repeat(starts, lengths)
    with np.errstate(invalid="ignore"):
        return np.asarray(before / place)


def shared_chain_test(strata: IntArray, arms: IntArray, after: IntArray, n: int) -> tuple[float, float]:
    """Test whether arms share their rows: return the one-sided p-value, and an effect on the scale of a correlation.

    Arguments have an entry for every step, the steps of an arm in the order of time. NaN without enough repeated steps.
    """
    total = variance = third = pairs = 0.0
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        rows = rows[np.argsort(arms[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(arms[rows], prepend=-1))
        lengths = np.diff(np.append(starts, len(rows)))
        repeats = float((lengths * (lengths - 1) / 2).sum())
        share = np.bincount(after[rows], minlength=n) / len(rows)
        # Moves whose coincidences within an arm are too few for a normal sum are left out.
        used = np.flatnonzero(np.minimum(share, 1 - share) ** 2 * repeats >= LEAST_REPEATS)
        if not used.size:
            continue
        p = share[used]
        residuals = (after[rows][:, None] == used) - p
        sums = np.cumsum(residuals, axis=0) - residuals
        earlier = (sums - np.repeat(sums[starts], lengths, axis=0)) / p
        total += float((earlier * residuals).sum())
        # Given the past, the sum over moves has these second and third moments.
        mean = earlier @ p
        squares = (earlier**2) @ p
        variance += float((squares - mean**2).sum())
        third += float(((earlier**3) @ p - 3 * mean * squares + 2 * mean**3).sum())
        pairs += repeats * float((1 - p).sum())
    if variance <= 0:
        return math.nan, 0.0
    z, skew = total / math.sqrt(variance), third / variance**1.5
    return tail_probabilities(z, skew)[0], math.sqrt(max(0.0, total / pairs))
