"""The dashboard's view of an agent of observed arms: states, pulls, indices at the margin, rows learned, lift.

``copied`` runs in the writer thread and copies. ``observed_view`` computes, in a thread of the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.validation import Array, to_jsonable
from restless_bandits.agent.observed import estimate_kinds
from restless_bandits.agent.observed_choice import first_arms, place_scores
from restless_bandits.model.observed_record import UNSEEN, ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.policies.observed import PriorityPolicy
from restless_bandits.policies.policies import Policy
from restless_bandits.service.agent import ServiceAgent

SHOWN_KINDS, SHOWN_PULLS, AT_MARGIN = 12, 20, 6
"""Kinds with a table of rows, pulled arms that are named, and arms on either side of the margin."""


@dataclass(frozen=True, eq=False)
class ObservedCopy:
    """What the view needs of an agent, independent of its further life."""

    head: dict[str, Any]
    record: ObservedRecord
    task: ObservedTask
    missing: tuple[Any, Array]
    in_service: Any
    policy: Policy | None
    recent: list[tuple[int, list[int], list[int]]]


def copied(agent_state: ServiceAgent) -> ObservedCopy:
    """Return a copy of an agent between two commits."""
    core: Any = agent_state.core
    totals = agent_state.totals
    head = {
        "seq": agent_state.seq,
        "slots": core.slots,
        "asked": totals.asked,
        "told": totals.told,
        "skipped": totals.skipped,
        "reward": totals.reward,
        "plan": core.plans,
        "learner": core.learner.spec,
    }
    arms = np.array(core.arms_in_service)
    return ObservedCopy(
        head, core.record.copy(), core.task, core.missing_beliefs, arms, core.present_policy, list(core.recent)
    )


def observed_view(copy: ObservedCopy) -> dict[str, Any]:
    """Return the view as JSON values."""
    record, task = copy.record, copy.task
    estimates = estimate_shown(copy)
    found = {
        **copy.head,
        "arms": task.n_arms,
        "in_service": len(copy.in_service),
        "plays": task.plays,
        "missing": len(copy.missing[0]),
        "state_names": list(task.state_names) or [str(s) for s in range(int(task.layout.n_states.max()))],
        "recent": [{"slot": slot, "states": states, "pulled": pulled} for slot, states, pulled in copy.recent],
        "kinds": estimates,
        "n_kinds": len(task.layout.counts),
        **_margin(copy),
        **_lift(record, task, len(copy.in_service)),
    }
    shown: dict[str, Any] = to_jsonable(found)
    return shown


def estimate_shown(copy: ObservedCopy) -> list[dict[str, Any]]:
    """The rows of the first kinds, with two standard errors."""
    task = copy.task
    names = task.kind_names or task.names
    found = []
    for kind, one in enumerate(estimate_kinds(copy.record, task, most=SHOWN_KINDS).arms):
        counts = copy.record.counts(kind).sum(axis=2)
        rows = [
            {
                "state": state,
                "action": action,
                "steps": int(counts[state, action]),
                "row": chain[state],
                "errors": 2 * errors[state],
            }
            for state in range(len(counts))
            for action, (chain, errors) in enumerate(
                (
                    (one.transitions, one.standard_errors),
                    (one.active_transitions, one.active_standard_errors),
                )
            )
            if chain is not None and errors is not None
        ]
        found.append({"name": names[kind], "arms": int(task.layout.counts[kind]), "rows": rows})
    return found


def _margin(copy: ObservedCopy) -> dict[str, Any]:
    """The arms that were pulled, and the arms on either side of the margin, by their indices."""
    record, task, own = copy.record, copy.task, copy.in_service
    pulled = record.last_pulled[own]
    states = record.last_states[own]
    at = np.searchsorted(own, copy.missing[0])
    scores = np.full(len(own), math.nan)
    order = np.flatnonzero(pulled)
    beside = np.zeros(0, dtype=np.int64)
    if isinstance(copy.policy, PriorityPolicy) and record.slots:
        ranks, scores = place_scores(copy.policy, states, at, copy.missing[1])
        order = order[np.argsort(ranks[order], kind="stable")]
        beside = first_arms(ranks, scores, ~pulled, AT_MARGIN)

    def line(one: int) -> dict[str, Any]:
        arm, state = int(own[one]), int(states[one])
        index = None if math.isnan(scores[one]) else float(scores[one])
        return {"name": task.names[arm], "state": None if state == UNSEEN else state, "index": index}

    return {
        "pulled": [line(one) for one in order[:SHOWN_PULLS].tolist()],
        "n_pulled": len(order),
        "above": [line(one) for one in order[-AT_MARGIN:].tolist()],
        "below": [line(one) for one in beside.tolist()],
    }


def _lift(record: ObservedRecord, task: ObservedTask, in_service: int) -> dict[str, Any]:
    """The reward of a slot so far, and that of as many pulls at random, both by the learned or known means.

    A random pull is one of all arms in service: an arm then moves by the mixture of its rows.
    """
    low, high = task.reward_range
    with np.errstate(invalid="ignore"):
        means = (record.flat_rewards / record.paid).reshape(-1, 2)
    known = np.nan_to_num(means, nan=(low + high) / 2) if task.rewards is None else task.rewards
    steps = int(record.visits.sum())
    if not steps:
        return {"earned": None, "at_random": None}
    earned = float((record.visits.reshape(-1, 2) * known).sum()) / steps
    share, total, arms, place = task.plays / max(1, in_service), 0.0, 0, 0
    for kinds, n in task.kind_groups:
        counts = record.group_counts(kinds, n) + 1.0
        rows = counts / counts.sum(axis=3, keepdims=True)
        mixed = (1 - share) * rows[:, :, 0] + share * rows[:, :, 1]
        system = np.swapaxes(mixed, 1, 2) - np.eye(n)
        system[:, -1] = 1.0
        right = np.zeros((len(mixed), n, 1))
        right[:, -1] = 1.0
        stay = np.linalg.solve(system, right)[:, :, 0]
        paid = known[place : place + len(mixed) * n].reshape(len(mixed), n, 2)
        of_kind = (stay * ((1 - share) * paid[:, :, 0] + share * paid[:, :, 1])).sum(axis=1)
        many = task.layout.counts[kinds]
        total, arms, place = total + float(of_kind @ many), arms + int(many.sum()), place + len(mixed) * n
    return {"earned": earned, "at_random": total / arms}
