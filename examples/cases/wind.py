"""At which of twelve places does the wind blow?

Daily mean wind speeds at twelve stations in Ireland, 1961 to 1978. One place can be used each day, and only there the
wind is measured; a day pays if the mean speed is above ten knots. With ``--relative`` each place is measured by its own
mean of the month instead, so that no place is windier than another on average, and only timing counts. The data come
with the R package gstat; R itself is not needed, the Python package pyreadr reads the file.

    apt-get download r-cran-gstat && dpkg -x r-cran-gstat_*.deb gstat && pip install pyreadr
    python examples/cases/wind.py --data gstat/usr/lib/R/site-library/gstat/data/wind.rda --out wind.png
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import common
import numpy as np

import restless_bandits as rb

KNOTS, MORE_THAN_USUAL = 10.0, 1.25


def days(path: Path, relative: bool) -> Any:
    """Return the wind of each day in a column for each station."""
    try:
        import pyreadr

        wind = pyreadr.read_r(path)["wind"]
    except ImportError:
        raise SystemExit("this case needs a reader for R's files: pip install pyreadr") from None
    except Exception:  # of pyreadr, which has its own for what is no file and what is none of R's
        raise SystemExit(
            f"this case needs the file wind.rda of the R package gstat, which {path} is not: apt-get install "
            "r-cran-gstat, or see the head of this program"
        ) from None
    import pandas as pd

    day = pd.to_datetime(wind[["year", "month", "day"]].assign(year=1900 + wind.year))
    speeds = wind.drop(columns=["year", "month", "day"])
    if relative:
        speeds = speeds / speeds.groupby(wind.month).transform("mean")
    return speeds.assign(time=day)


def main() -> None:
    parser = common.options("Wind at twelve stations in Ireland.", "wind.png")
    usual = Path("/usr/lib/R/site-library/gstat/data/wind.rda")
    parser.add_argument("--data", type=Path, default=usual, help="the file wind.rda of gstat")
    parser.add_argument("--relative", action="store_true", help="measure each station by its own mean of the month")
    given = parser.parse_args()

    log = days(given.data, given.relative)[: given.slots]
    edge = MORE_THAN_USUAL if given.relative else KNOTS
    trace = rb.data.read_trace(log, columns={"time": "time", "value": "*"}, slot="1d", edges=[edge])
    print(trace)
    findings = common.findings_of(trace)
    print(common.listed(findings))

    paid = common.rewards_of(trace)
    months = log.time.dt.month.to_numpy()
    players = common.played(trace, None) + common.in_hindsight(paid, trace.names, months, "month of the year")
    rows, facts = common.rows_of(players), common.facts_of(trace, paid)
    print("", common.listed(facts), "", common.shown(rows), sep="\n")

    from matplotlib.figure import Figure

    with rb.plots.style():
        figure = Figure(figsize=(9, 4), layout="constrained", dpi=140)
        left, right = figure.subplots(1, 2)
        pairs = np.corrcoef(paid.T)
        left.imshow(pairs, vmin=0, vmax=1, cmap="Blues")
        left.set_xticks(range(trace.n_arms), trace.names, rotation=90)
        left.set_yticks(range(trace.n_arms), trace.names)
        left.grid(visible=False)
        left.set_title("One weather: correlation of good days, %")
        for (i, j), value in np.ndenumerate(pairs):
            left.text(
                j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=6, color="w" if value > 0.6 else "k"
            )
        common.draw_gains(right, log.time, players)
        right.set_title("Timing gains next to nothing" if given.relative else "Who leaves the best place loses")
        figure.savefig(given.out)
    if given.keep:
        which = "relative" if given.relative else "knots"
        common.keep("wind", {f"{which}-facts": facts, f"{which}-findings": findings, f"{which}-players": rows})
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
