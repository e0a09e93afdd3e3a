"""``restless`` with a small design: two learners, short horizons. ``python small.py reproduce figure-a …``.

The quick form confirms the results in the folder that ``SMALL_STORED`` names.
"""

import os
from dataclasses import replace
from pathlib import Path

from restless_bandits.cli import main
from restless_bandits.paper.experiments import reproduction
from restless_bandits.paper.experiments.design import design
from restless_bandits.paper.experiments.figures import RegretFigure
from restless_bandits.paper.experiments.inside import Inside
from restless_bandits.paper.experiments.lemmas import Lemmas
from restless_bandits.paper.experiments.stored import StoredResults
from restless_bandits.paper.experiments.timing import TimeTable

HORIZONS = {"published": (1000, 2000, 4000, 6000, 8000, 10_000), "fair": (1000, 2000, 5000, 10_000)}
LABELS = ("Restless-UCB", "TS-9")
STORED_RUNS = 24


def small_design(wanted=(), *, quick=False):
    """The paper's design with two of its lines, and with horizons that take a moment."""
    plan = design(wanted, quick=quick)
    protocols = tuple(
        replace(
            protocol,
            horizons=HORIZONS[protocol.name],
            lines=tuple(line for line in protocol.lines if line.label in LABELS),
        )
        for protocol in plan.protocols
    )
    return replace(plan, protocols=protocols, items=tuple(_small(item, protocols, quick) for item in plan.items))


def _small(item, protocols, quick):
    if isinstance(item, RegretFigure):
        few = {"stored_runs": STORED_RUNS} if quick else {"runs": STORED_RUNS, "fair_runs": STORED_RUNS}
        return replace(item, protocols=protocols, **few)
    if isinstance(item, Inside):
        return replace(item, problems=("paper-1",), horizon=2000, runs=4 if quick else STORED_RUNS)
    if isinstance(item, Lemmas):
        return replace(item, problems=("paper-1",), horizons=(500,), event_runs=2000, exploration_runs=50)
    assert isinstance(item, TimeTable)
    lines = tuple(replace(line, runs=(2, 1), paper=line.paper[:2]) for line in item.lines[:2])
    return replace(item, horizon=3000, problems=("table-2", "table-3"), arms=(2, 3), lines=lines, repeats=2)


if __name__ == "__main__":
    reproduction.design = small_design
    if "SMALL_STORED" in os.environ:
        stored = StoredResults.read(Path(os.environ["SMALL_STORED"]))
        reproduction.stored_results = lambda: stored
    main()
