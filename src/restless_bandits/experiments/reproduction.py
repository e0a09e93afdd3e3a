"""Runs the paper's experiments, decides its claims, and writes what was found: numbers as JSON, and one HTML file.

Everything that is played is stored in ``cells`` under the output folder as it comes, by its content: a reproduction
that was killed goes on where it stopped and ends with the same bytes, and a longer one uses what a shorter one has
played.
Only the times of ``table-1`` are measurements; they too are kept once they are made.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restless_bandits import __version__, plots
from restless_bandits.arrays import plain, whole
from restless_bandits.errors import ProblemError
from restless_bandits.experiments.design import Design, design
from restless_bandits.experiments.items import Part, Tell, Work
from restless_bandits.experiments.page import looks_of, page
from restless_bandits.experiments.verdicts import Evidence, Verdict, decide
from restless_bandits.files import write_file
from restless_bandits.simulation.engines import open_pool

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was measured, and what it says of the paper's claims."""

    plan: Design
    command: str
    seed: int
    parts: tuple[Part, ...]
    """One for each item."""
    verdicts: tuple[Verdict, ...]

    def part(self, name: str) -> Part:
        return next(part for part in self.parts if part.item.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers of the report, as ``restless reproduce --json`` prints them."""
        numbers: dict[str, Any] = {
            "figures": [],
            "table": [],
            "build_seconds": {},
            "weather": {},
            "posterior_at_truth": {},
            "meetings": {},
            "learned": {},
            "stretch": {},
            "machine": {},
        }
        for part in self.parts:
            for key, found in part.as_dict().items():
                numbers[key] = numbers[key] + found if isinstance(found, list) else numbers[key] | found
        return {
            "command": self.command,
            "quick": self.plan.quick,
            "seed": self.seed,
            **numbers,
            "claims": [verdict.as_dict() for verdict in self.verdicts],
            "versions": {
                "restless-bandits": __version__,
                "Python": platform.python_version(),
                **{name: version(name) for name in ("numpy", "scipy", "numba", "matplotlib")},
            },
        }


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
        Fewer runs and shorter horizons: about three minutes instead of forty.
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
    evidence = Evidence.together(part.evidence for part in parts)
    words = ["restless reproduce", *items, "--quick" if quick else "", f"--seed {seed}" if seed else ""]
    words.append("" if runs is None else f"--runs {runs}")
    verdicts = tuple(verdict for claim in plan.claims for verdict in decide(claim, evidence))
    found = Reproduction(plan, " ".join(filter(None, words)), seed, parts, verdicts)
    try:
        write_report(found, place)
    except OSError as error:
        raise ProblemError(f"cannot write to {place}: {error.strerror or error}") from None
    return found


def write_report(found: Reproduction, place: Path) -> None:
    """Write the numbers, the figures, and the report that contains them."""
    text = json.dumps(plain(found.as_dict()), indent=1, ensure_ascii=False) + "\n"
    write_file(place / "results.json", text.encode())
    folder = place / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    colours = {label: plots.COLOURS[n % len(plots.COLOURS)] for label, n in looks_of(found.plan).items()}
    for part in found.parts:
        for name, draw in part.pictures(colours).items():
            png, svg = _picture(name, draw)
            write_file(folder / f"{name}.png", png)
            write_file(folder / f"{name}.svg", svg)
    write_file(place / "report.html", page(found.plan, json.loads(text)).encode())


def _picture(name: str, draw: Callable[[], Figure]) -> tuple[bytes, bytes]:
    """A picture as PNG and as SVG, the same bytes every time."""
    import matplotlib

    # Names inside an SVG come from this salt; without it they would differ from one time to the next.
    with plots.style(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure = draw()
        png, svg = BytesIO(), BytesIO()
        figure.savefig(png, format="png", dpi=130, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return png.getvalue(), svg.getvalue()
