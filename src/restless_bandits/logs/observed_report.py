"""The page of a fit of observed arms: the verdict, states and pulls by time, rows of rest and of pull, tests, values.

``observed_report.html.j2`` is the template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from restless_bandits._internal.charts import stacked
from restless_bandits._internal.progress import Report
from restless_bandits._internal.templates import render
from restless_bandits._internal.validation import Array
from restless_bandits.logs.fitting import ArmFit, Fit
from restless_bandits.logs.model_values import CONFIDENCE
from restless_bandits.logs.observed_counts import ACTIONS
from restless_bandits.logs.observed_offpolicy import RANDOM, ObservedOffPolicy, evaluate_observed
from restless_bandits.logs.report_parts import about, test_rows, when

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_GROUPS = 12
"""The largest number of groups with their own drawing and tables."""
DRAWS = 20
PARTS = 12
"""Parts of the log in a drawing of states."""
POLICIES = ("lp-index", "myopic", RANDOM)


def observed_report(found: Fit, *, draws: int | None, seed: int, announce: Report | None) -> str:
    """Return a page of HTML about a fit of observed arms: see ``report``."""
    if announce is not None:
        announce("report: what policies could earn, on problems that explain the log")
    trace, several = found.trace, found.problem.n_arms > 1
    drawn = DRAWS if draws is None else draws
    asked: dict[str, Any] = {"draws": drawn, "confidence": CONFIDENCE, "seed": seed, "observed": "all", "by": found.by}
    values = evaluate_observed(trace, POLICIES, **asked) if several else None
    first, last = int(trace.times[0]), int(trace.times[-1])
    known = trace.clock is not None and trace.clock.origin is not None
    return render(
        "logs/observed_report.html.j2",
        found=found,
        trace=trace,
        span=f"{when(trace, first)} to {when(trace, last)}" if known else f"slots {first} to {last}",
        word={"arm": "arm", "kind": "kind"}.get(found.by, "kind"),
        occupancy=[_occupancy(found, arm) for arm in found.arms[:MOST_GROUPS]],
        rows=_rows,
        test_rows=test_rows,
        values=values,
        value_rows=_value_rows(values) if values else [],
        reasons=[f"{one.label}: {one.weighted.sense}" for one in values.policies] if values else [],
        notes=[*trace.notes, *found.notes, *(values.notes if values else ())],
        most=MOST_GROUPS,
    )


def _occupancy(found: Fit, arm: ArmFit) -> Markup:
    """The shares of the states of a group by the part of the log."""
    trace = found.trace
    assert arm.group is not None
    inside = np.isin(trace.arms, arm.group.arms)
    first, span = int(trace.times[0]), int(trace.times[-1] - trace.times[0]) + 1
    parts = min(PARTS, span)
    counts = np.zeros((trace.n_states, parts))
    np.add.at(counts, (trace.states[inside], (trace.times[inside] - first) * parts // span), 1)
    with np.errstate(invalid="ignore"):
        shares = counts / counts.sum(axis=0)
    names = [f"{k + 1}" for k in range(parts)]
    return stacked(arm.name, names, shares, f"Shares of the states of {arm.name} by part of the log")


def _rows(arm: ArmFit) -> tuple[list[str], list[list[str]]]:
    """The heads and the rows of the table of a group: one for each state and action."""
    group = arm.group
    assert group is not None
    n = group.counts.shape[2]
    heads = ["state", "", "steps", "arms", "reward", *(f"to {z}" for z in range(n))]
    rows = []
    for state in range(n):
        for action, verb in enumerate(ACTIONS):
            moves = _told(group.chains[action, state], group.errors[action, state])
            paid = about(float(group.rewards[action, state]), float(group.reward_errors[action, state]))
            steps, arms = int(group.totals[action, state]), group.behind[action, state]
            rows.append([str(state), verb, str(steps), f"{arms:.0f}", paid, *moves])
    return heads, rows


def _told(row: Array, errors: Array) -> list[str]:
    if np.isnan(errors).any():
        return [f"({p:.2g})" for p in row]
    return [about(float(p), float(error)) for p, error in zip(row, errors, strict=True)]


def _value_rows(values: ObservedOffPolicy) -> list[list[str]]:
    rows = []
    for one in values.policies:
        low, high = one.model.interval
        lift, weighted = one.model.above_interval, one.weighted
        by_weights = "–" if weighted.gain is None or weighted.interval is None else f"{weighted.gain:.4g}"
        if weighted.interval is not None:
            by_weights += f" ({weighted.interval[0]:.4g} to {weighted.interval[1]:.4g})"
        rows.append(
            [
                one.label,
                f"{one.model.gain:.4g} ({low:.4g} to {high:.4g})",
                ""
                if one.label == RANDOM
                else f"{float(one.model.above.mean()):+.4g} ({lift[0]:+.4g} to {lift[1]:+.4g})",
                by_weights,
            ]
        )
    logged = f"{values.logged:.4g}"
    if values.logged_interval is not None:
        logged += f" ({values.logged_interval[0]:.4g} to {values.logged_interval[1]:.4g})"
    return [*rows, ["as logged", logged, "", ""]]
