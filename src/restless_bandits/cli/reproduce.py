"""``restless reproduce``: the paper's experiments, a verdict on each of its claims, and a report."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits._internal.errors import ProblemError
from restless_bandits.cli import completion, output
from restless_bandits.cli.options import AddressOption, EngineOption, JobsOption, JsonOption, SeedOption
from restless_bandits.cli.simulate import jobs_of, warnings_as_lines

if TYPE_CHECKING:
    from restless_bandits.paper.experiments import Reproduction, Verdict
    from restless_bandits.paper.experiments.quick import ConfirmedVerdict

QUIET_SECONDS = 20.0
"""How often a reproduction whose progress nobody watches says how far it is."""


def reproduce(
    items: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ITEM",
            help="figure-a … figure-f, appendix-a, appendix-b, table-1, inside, theory; all of them if none.",
            autocompletion=completion.item,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Confirm the stored full results by a few runs of each line: about a minute."),
    ] = False,
    out: Annotated[
        Path, typer.Option(help="A folder for report, figures, numbers and what was played.", metavar="DIR")
    ] = Path("out"),
    seed: SeedOption = 0,
    runs: Annotated[int | None, typer.Option(help="Runs of every line, in place of the paper's.", metavar="N")] = None,
    jobs: JobsOption = "all",
    engine: EngineOption = "auto",
    address: AddressOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the table of all claims.")] = False,
    renew: Annotated[
        bool,
        typer.Option("--restamp", help="Replay stored runs; if all are equal, store the fingerprint of this code."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run the paper's experiments and judge each of its claims.

    Example: restless reproduce figure-a table-1 --quick
    """
    from restless_bandits.paper.experiments import reproduction
    from restless_bandits.simulation.storage import fingerprint

    if renew and (items or quick or seed or engine != "auto" or address is not None):
        raise ProblemError("--restamp replays a fixed sample; it goes with --out, --runs, --jobs and --json alone")
    with show_progress() as tell, warnings_as_lines():
        common: Any = {"out": out, "runs": runs, "jobs": jobs_of(jobs), "progress": tell}
        chosen: Any = {"quick": quick, "seed": seed, "engine": engine, "address": address}
        try:
            renewed = reproduction.restamp(**common) if renew else None
            found = None if renew else reproduction.reproduce(tuple(items or ()), **common, **chosen)
        except reproduction.ReproductionInterrupted as stop:
            output.say(str(stop))
            raise typer.Exit(output.INTERRUPTED) from None
    if renewed is not None:
        if as_json:
            output.emit(renewed.as_dict())
        else:
            output.lines([f"compared: {renewed.compared}", f"stored: the fingerprint of this code, {fingerprint()}"])
        return
    assert found is not None
    if as_json:
        output.emit(found.as_dict() | {"report": str(out / "report.html")})
        return
    if verbose:
        _show_claims(found)
    output.lines(_summary(found, out))


@contextmanager
def show_progress() -> Iterator[Callable[[float, float, str], None]]:
    """A bar with an estimate on stderr for people; a line now and then where nobody watches; one at once for both."""
    from restless_bandits._internal.progress import warning

    announced = False

    def announce_first(left: float) -> None:
        nonlocal announced
        if not announced:
            output.announce(warning(left))
        announced = True

    if not sys.stderr.isatty():
        started = told = time.monotonic()

        def line(done: float, total: float, what: str) -> None:
            nonlocal told
            announce_first(total - done)
            if time.monotonic() - told >= QUIET_SECONDS:
                told = time.monotonic()
                left = max(0.0, total - done)
                passed = told - started
                print(f"{done / total:4.0%} after {passed:.0f} s, about {left:.0f} s left: {what}", file=sys.stderr)

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TaskProgressColumn(),
        BarColumn(),
        TextColumn("{task.fields[left]}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("preparing", total=None, left="")

        def update(done: float, total: float, what: str) -> None:
            announce_first(total - done)
            left = f"about {max(0.0, total - done):.0f} s left"
            bar.update(task, completed=done, total=total, description=what, left=left)

        yield update


def _summary(found: Reproduction, out: Path) -> list[str]:
    """Three lines: what was compared, what was found, where the report is."""
    from restless_bandits.paper.experiments.verdicts import NOT_RUN, SHORT_TALLY

    tally = Counter(SHORT_TALLY[one.outcome] for one in found.verdicts if one.outcome != NOT_RUN)
    verdicts = f"{sum(tally.values())} verdicts: " + ", ".join(f"{number} {words}" for words, number in tally.items())
    confirmation = found.confirmation
    if confirmation is not None:
        compared = f"{confirmation.compared} ({confirmation.origin})"
        verdicts += f"; {confirmation.agreed}"
    else:
        lines = [line for figure in found.as_dict()["figures"] for line in figure["lines"]]
        compared = f"{sum(line['runs'] for line in lines)} runs of {len(lines)} lines, pair by pair"
    return [f"compared: {compared}", f"found: {verdicts}", f"report: {out / 'report.html'}"]


def _show_claims(found: Reproduction) -> None:
    """The ledger as a table, without the claims that this run says nothing of."""
    from restless_bandits.paper.experiments.verdicts import BADGES, NOT_RUN

    colours = {"holds": "green", "fails": "red", "from": "yellow"}
    titles = {protocol.name: protocol.title for protocol in found.plan.protocols}
    table = output.new_table("claim", *titles.values(), title="The paper's claims, and what was found")
    for column in table.columns:
        column.justify = "left"
    for claim in found.plan.claims:
        verdicts = {one.protocol: one for one in found.verdicts if one.claim.id == claim.id}
        if all(one.outcome == NOT_RUN for one in verdicts.values()):
            continue
        shown = {
            name: f"[{colours.get(BADGES[one.outcome], 'dim')}]{output.plain_text(one.text)}[/]{_beside(one)}"
            for name, one in verdicts.items()
        }
        # A claim that is not about a protocol has one verdict, in the first place.
        cells = [shown.get(name, shown.get("", "–") if n == 0 else "–") for n, name in enumerate(titles)]
        table.add_row(output.plain_text(claim.text), *cells)
    output.show(table)


def _beside(verdict: Verdict | ConfirmedVerdict) -> str:
    """The agreement of this machine with a stored verdict."""
    agreement = getattr(verdict, "agreement", None)
    return "" if agreement is None else f"\n{output.plain_text(agreement.text)}"
