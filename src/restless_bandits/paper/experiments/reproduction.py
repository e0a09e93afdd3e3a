"""Runs the paper's experiments, decides its claims, and writes what was found: numbers as JSON, and one HTML file.

Everything that is played is stored in ``cells`` under the output folder as it comes, by its content: a reproduction
that was killed goes on where it stopped and ends with the same bytes, and a longer one uses what a shorter one has
played.
Only the times of ``table-1`` are measurements; they too are kept once they are made.

The quick form (``quick``) confirms the stored results of a full reproduction instead.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restless_bandits import __version__, plots
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import read_file, write_file
from restless_bandits._internal.validation import check_int, to_jsonable
from restless_bandits.paper.experiments.design import Design, design
from restless_bandits.paper.experiments.figures import RegretFigure
from restless_bandits.paper.experiments.items import Colours, Part, Tell, Work
from restless_bandits.paper.experiments.page import looks_of, page
from restless_bandits.paper.experiments.quick import Confirmation, ConfirmedVerdict, confirm
from restless_bandits.paper.experiments.stored import Sample, Stamp, StoredResults, shipped_folder
from restless_bandits.paper.experiments.timing import TimeTable
from restless_bandits.paper.experiments.verdicts import Evidence, Verdict, decide
from restless_bandits.simulation.engines import open_pool
from restless_bandits.simulation.storage import fingerprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The measurements of a reproduction and the verdicts on the paper's claims.

    In the quick form the stored results of a full reproduction, confirmed by a few runs on this machine.
    """

    plan: Design
    """The design that was run; in the quick form the full design of the wanted items."""
    command: str
    seed: int
    parts: tuple[Part, ...]
    """One for each item."""
    verdicts: tuple[Verdict | ConfirmedVerdict, ...]
    confirmation: Confirmation | None = None
    """The comparison with the stored results; None for a full reproduction."""

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers of the report, as ``restless reproduce --json`` prints them."""
        return {
            "command": self.command,
            "quick": self.plan.quick,
            "seed": self.seed,
            **_merged(part.numbers for part in self.parts),
            "claims": [verdict.as_dict() for verdict in self.verdicts],
            "versions": versions(),
            **({} if self.confirmation is None else {"confirmation": self.confirmation.as_dict()}),
        }


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The numbers of all items together."""
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
    for part in parts:
        for key, found in part.items():
            numbers[key] = numbers[key] + found if isinstance(found, list) else numbers[key] | found
    return numbers


def versions() -> dict[str, str]:
    """Return the versions of the package and of the libraries that decide the bits of its numbers."""
    own = {"restless-bandits": __version__, "Python": platform.python_version()}
    return own | {name: version(name) for name in ("numpy", "scipy", "numba", "matplotlib")}


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
        Play the first runs of each line again, compare them with the stored results of a full reproduction, and report
        the verdicts of that: about a minute instead of forty.
    out
        Gets ``report.html``, ``results.json``, ``figures/``, and ``cells/`` and ``times.json`` with what was played.
    seed
        The seed of everything. The quick form compares runs of another seed than the stored one by statistics.
    runs
        Runs of every line, in place of the design's.
    jobs
        Processes; all cores by default.
    engine
        ``threads``, ``processes``, ``dask``, or ``auto``: the cluster where there is an address, else processes, and
        threads in the quick form.
    address
        The scheduler of a Dask cluster, as for ``simulate``. What is measured in seconds is measured here all the same.
    progress
        Told how far it is.

    """
    plan = _checked(design(items, quick=quick), seed, runs, jobs)
    words = ["restless reproduce", *items, "--quick" if quick else "", f"--seed {seed}" if seed else ""]
    words.append("" if runs is None else f"--runs {runs}")
    command = " ".join(filter(None, words))
    place = Path(out)
    draw = partial(_write_pictures, colours_of(plan), place)
    if quick:
        stored = stored_results()
        with _work(place, seed, jobs, engine, address, progress, few=True) as work:
            confirmation = confirm(plan, work, stored, draw)
        full = replace(design(items), quick=True)
        found = Reproduction(full, command, seed, confirmation.parts, confirmation.verdicts, confirmation)
    else:
        with _work(place, seed, jobs, engine, address, progress) as work:
            begun = [item.begin(work) for item in plan.items]
            work.play()
            parts = tuple(finish() for finish in begun)
        evidence = Evidence.together(part.evidence for part in parts)
        verdicts = tuple(verdict for claim in plan.claims for verdict in decide(claim, evidence))
        found = Reproduction(plan, command, seed, parts, verdicts)
        for part in parts:
            draw(part)
    write_report(found, place)
    return found


def restamp(
    *,
    out: str | Path = "out",
    runs: int | None = None,
    jobs: int | None = None,
    progress: Tell | None = None,
    folder: Path | None = None,
) -> Confirmation:
    """Play a sample of the stored runs again, and renew the stored fingerprint of the code if all of them are equal.

    The sample is that of the quick form: the first runs of each line, the estimates and the theory, without times.
    """
    place = shipped_folder() if folder is None else folder
    stored = StoredResults.read(place)
    names = tuple(item.name for item in design(quick=True).items if not isinstance(item, TimeTable))
    plan = _checked(design(names, quick=True), stored.seed, runs, jobs)
    with _work(Path(out), stored.seed, jobs, "auto", None, progress, few=True) as work:
        found = confirm(plan, work, stored, lambda part: None)
    others = [one for one in found.checks if one.equal < one.played]
    if others:
        first = "; ".join(f"{one.name}: {one.text}" for one in others[:3])
        raise ProblemError(
            f"{len(others)} of {len(found.checks)} lines differ from the stored results ({first}); nothing is renewed, "
            "a full reproduction is needed"
        )
    stored.restamped(date.today().isoformat(), fingerprint()).write_stamp(place)
    return found


def with_sample(out: str | Path, *, jobs: int | None = None) -> StoredResults:
    """Return the results of a finished full reproduction in the form that ships with the package.

    The first runs of every line are played for it, as far as the quick form plays them.
    """
    place = Path(out)
    results = json.loads(read_file(place / "results.json"))
    plan = design(quick=True)
    samples: dict[tuple[str, str, str], Sample] = {}
    with _work(place, int(results["seed"]), jobs, "auto", None, None) as work:
        for item in plan.items:
            if isinstance(item, RegretFigure):
                panels = {one["protocol"]: one for one in results["figures"] if one["item"] == item.name}
                samples |= {(one.item, one.protocol, one.label): one for one in item.sample(work, panels)}
    return StoredResults(results, samples, Stamp(date.today().isoformat(), fingerprint()))


def stored_results() -> StoredResults:
    """Return the stored results that the quick form confirms."""
    return StoredResults.read()


def _checked(plan: Design, seed: int, runs: int | None, jobs: int | None) -> Design:
    """Refuse what cannot be run, before anything is played, and return the design with so many runs."""
    plots.style()  # says so where there is nothing to draw with
    check_int("seed", seed, 0)
    if jobs is not None:
        check_int("jobs", jobs)
    if runs is None:
        return plan
    check_int("runs", runs, 2)
    return replace(plan, items=tuple(item.with_runs(runs) for item in plan.items))


@contextmanager
def _work(
    place: Path,
    seed: int,
    jobs: int | None,
    engine: str,
    address: str | None,
    progress: Tell | None,
    *,
    few: bool = False,
) -> Iterator[Work]:
    try:
        # Few runs are over before processes have started, compiled and solved the problems each for themselves.
        with open_pool(engine, jobs, address, often=not few) as pool:
            yield Work(place, seed, pool, progress)
    except KeyboardInterrupt:
        raise ReproductionInterrupted(place) from None


def colours_of(plan: Design) -> Colours:
    """Return the colour of each line, the same in all figures."""
    return {label: plots.COLOURS[n % len(plots.COLOURS)] for label, n in looks_of(plan).items()}


@contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ProblemError(f"cannot write to {place}: {error.strerror or error}") from None


def write_report(found: Reproduction, place: Path) -> None:
    """Write the numbers, and the report that is made of them."""
    text = json.dumps(to_jsonable(found.as_dict()), indent=1, ensure_ascii=False) + "\n"
    with _writing(place):
        write_file(place / "results.json", text.encode())
        write_file(place / "report.html", page(found.plan, json.loads(text)).encode())


def _write_pictures(colours: Colours, place: Path, part: Part) -> None:
    folder = place / "figures"
    with _writing(place):
        folder.mkdir(parents=True, exist_ok=True)
        for name, draw in part.pictures.items():
            png, svg = _picture(name, partial(draw, colours))
            write_file(folder / f"{name}.png", png)
            write_file(folder / f"{name}.svg", svg)


def _picture(name: str, draw: Callable[[], Figure]) -> tuple[bytes, bytes]:
    """A picture as PNG and as SVG, the same bytes every time."""
    import matplotlib

    # Names inside an SVG come from this salt; without it they would differ from one time to the next.
    with plots.style(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure = draw()
        png, svg = BytesIO(), BytesIO()
        figure.savefig(png, format="png", dpi=130, metadata={"Software": None})
        figure.set_layout_engine("none")  # the second format takes the layout of the first; half of the time went to it
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return png.getvalue(), svg.getvalue()
