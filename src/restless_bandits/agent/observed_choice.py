"""The choice of arms where some states are missing or some arms cannot be pulled, and beliefs about missing states.

An arm whose state is missing has a *belief*: the distribution of its state, carried on from its last sighting by the
actions that were taken and by the posterior means of its rows. Its score is the mean score of its states under the
belief. A policy without scores takes the likeliest state instead.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array, BoolArray, IntArray
from restless_bandits.model.observed_record import UNSEEN, ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.policies.observed import ObservedPolicy, PriorityPolicy, UniformPolicy

PRIOR = 1.0
"""The pseudo-count of every move of a row, as learners have it."""


def next_beliefs(
    record: ObservedRecord, task: ObservedTask, missing: IntArray, beliefs: Array, known: IntArray
) -> Array:
    """Return the beliefs about missing arms in the coming slot: (arm, state), zeros beyond an arm's states.

    ``beliefs`` are those about the arms ``known`` that were missing in the last slot; an arm seen in the last slot
    starts from its state, an arm without either from the uniform distribution.
    """
    sizes, width = task.layout.sizes[missing], int(task.layout.n_states.max())
    found = (np.arange(width) < sizes[:, None]) / sizes[:, None]
    if record.slots == 0:
        return np.asarray(found)
    before = record.last_states[missing]
    at = np.searchsorted(known, missing)
    carried = (at < len(known)) & (before == UNSEEN)
    carried[carried] = known[at[carried]] == missing[carried]
    seen = before != UNSEEN
    found[seen] = 0.0
    found[seen, before[seen]] = 1.0
    found[carried] = beliefs[at[carried]]
    actions, kinds = record.last_pulled[missing].astype(np.int64), task.kinds[missing]
    for part, n in task.kind_groups:
        inside = np.flatnonzero((kinds >= part.start) & (kinds < part.stop) & (seen | carried))
        if len(inside):
            chosen = kinds[inside] - part.start
            counts = record.group_counts(part, n)
            of_kinds, which = np.unique(chosen, return_inverse=True)
            rows = _rows(task, record, part.start, n, counts, of_kinds)[which, :, actions[inside]]
            found[inside, :n] = np.einsum("as,asz->az", found[inside, :n], rows)
    return np.asarray(found)


def _rows(task: ObservedTask, record: ObservedRecord, start: int, n: int, counts: IntArray, kinds: IntArray) -> Array:
    """Return rows (kind, state, action, next state): the known ones, or the means of the posterior."""
    if task.problem is not None:
        group = next(g for g in task.problem.groups if g.first <= start < g.first + g.n_kinds)
        own = kinds + start - group.first
        return np.stack([group.passive[own], group.active[own]], axis=2)
    parameters = counts[kinds] + PRIOR
    return np.asarray(parameters / parameters.sum(axis=-1, keepdims=True))


def place_scores(policy: PriorityPolicy, states: IntArray, missing: IntArray, beliefs: Array) -> tuple[Array, Array]:
    """Return the rank of each arm, the lowest first, and its score; a missing arm has the mean score of its belief.

    Arms of one place share a rank, and of them the arms of lowest number come first, as in the policy itself. A missing
    arm stands behind the places of its score.
    """
    layout, score = policy.layout, policy.score
    places = layout.first + np.maximum(states, 0)
    ranks = np.empty(layout.size)
    ranks[policy.order] = np.arange(layout.size)
    of_arm, scores = ranks[places], score[places]
    if len(missing):
        width = beliefs.shape[1]
        at = np.minimum(layout.first[missing][:, None] + np.arange(width), layout.size - 1)
        scores[missing] = (beliefs * np.where(beliefs > 0, score[at], 0.0)).sum(axis=1)
        falling = -np.sort(-score)
        of_arm[missing] = np.searchsorted(-falling, -scores[missing], side="right") - 0.5
    return of_arm, scores


def chosen_arms(
    policy: ObservedPolicy, slot: int, states: IntArray, missing: IntArray, beliefs: Array, available: BoolArray
) -> IntArray:
    """Return the arms that a policy pulls, in ascending order, among the available arms."""
    if not len(missing) and available.all():
        return policy.arms_in(slot, states)
    if isinstance(policy, UniformPolicy):
        allowed = np.flatnonzero(available)
        return allowed[policy.arms_in(slot, states[allowed])]
    if isinstance(policy, PriorityPolicy):
        ranks, scores = place_scores(policy, states, missing, beliefs)
        return np.sort(first_arms(ranks, scores, available & (scores > policy.floor), policy.plays))
    if not available.all():
        raise ProblemError(
            f"a {type(policy).__name__} decides on all arms together, so none can be left out; give exclude=() or "
            "another learner"
        )
    likeliest = states.copy()
    likeliest[missing] = beliefs.argmax(axis=1)
    return policy.arms_in(slot, likeliest)


def first_arms(ranks: Array, scores: Array, available: BoolArray, most: int) -> IntArray:
    """Return the available arms of the lowest ranks, in the order of rank, score and number."""
    allowed = np.flatnonzero(available)
    if len(allowed) > most:
        cut = np.partition(ranks[allowed], most - 1)[most - 1] if most else -1.0
        allowed = allowed[ranks[allowed] <= cut]
    order = np.lexsort((allowed, -scores[allowed], ranks[allowed]))
    return allowed[order][:most]
