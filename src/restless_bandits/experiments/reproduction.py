"""Runs the paper's experiments, decides its claims, and writes the report.

Everything that is played is stored in ``cells`` under the output folder as it comes, by its content: a reproduction
that was killed goes on where it stopped and ends with the same bytes, and a longer one uses what a shorter one has
played.
Only the times of ``table-1`` are measurements; they too are kept once they are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from restless_bandits import plots
from restless_bandits.arrays import whole
from restless_bandits.errors import ProblemError
from restless_bandits.experiments.design import design
from restless_bandits.experiments.items import Tell, Work
from restless_bandits.experiments.report import Reproduction, write_report
from restless_bandits.experiments.verdicts import Evidence, decide
from restless_bandits.simulation.engines import open_pool


class ReproductionInterrupted(KeyboardInterrupt):
    """Ctrl-C in the middle; all that was finished is stored."""

    def __init__(self, out: Path) -> None:
        super().__init__(f"Interrupted; what was played is stored in {out}, and the same again goes on from there")


def reproduce(
    items: Sequence[str] = (),
    *,
    quick: bool = False,
    out: str | Path = "out",
    seed: int = 0,
    runs: int | None = None,
    jobs: int | None = None,
    engine: str = "auto",
    address: str | None = None,
    progress: Tell | None = None,
) -> Reproduction:
    """Run the paper's experiments, or some of them, and write figures, numbers and the report.

    Parameters
    ----------
    items
        ``figure-a`` to ``figure-f``, ``appendix-a``, ``appendix-b``, ``table-1``, ``inside``, ``theory``; none for all.
    quick
        Fewer runs and shorter horizons: a minute or two instead of half an hour.
    out
        Gets ``report.html``, ``results.json``, ``figures/``, and ``cells/`` and ``times.json`` with what was played.
    seed
        The seed of everything.
    runs
        Runs of every line, in place of the design's.
    jobs
        Processes; all cores by default.
    engine
        ``threads``, ``processes``, ``dask``, or ``auto``: the cluster where there is an address, else processes.
    address
        The scheduler of a Dask cluster, as for ``simulate``. What is measured in seconds is measured here all the same.
    progress
        Told how far it is.

    """
    plan = design(items, quick=quick)
    plots.style()  # says so where there is nothing to draw with, before anything is played and not after
    whole("seed", seed, 0)
    if jobs is not None:
        whole("jobs", jobs)
    if runs is not None:
        whole("runs", runs, 2)
        plan = replace(plan, items=tuple(item.with_runs(runs) for item in plan.items))
    place = Path(out)
    try:
        with open_pool(engine, jobs, address, often=True) as pool:
            work = Work(place, seed, pool, progress)
            begun = [item.begin(work) for item in plan.items]
            work.play()
            parts = tuple(finish() for finish in begun)
    except KeyboardInterrupt:
        raise ReproductionInterrupted(place) from None
    evidence = Evidence.together(part.evidence() for part in parts)
    words = ["restless reproduce", *items, "--quick" if quick else "", f"--seed {seed}" if seed else ""]
    words.append("" if runs is None else f"--runs {runs}")
    found = Reproduction(
        plan=plan,
        command=" ".join(filter(None, words)),
        seed=seed,
        parts=parts,
        verdicts=tuple(verdict for claim in plan.claims for verdict in decide(claim, evidence)),
    )
    try:
        write_report(found, place)
    except OSError as error:
        raise ProblemError(f"cannot write to {place}: {error.strerror or error}") from None
    return found
