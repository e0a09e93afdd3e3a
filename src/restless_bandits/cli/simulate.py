"""``restless simulate``: many runs of several learners, and the output of their results."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from restless_bandits._internal.errors import ProblemError, harmless, shortened
from restless_bandits.cli import completion, options, output
from restless_bandits.cli.problems import ArmsOption, KindsOption, ObservedOption, PlaysOption, read_problem
from restless_bandits.registry import COMPARATORS, DEFAULT_OBSERVED

if TYPE_CHECKING:
    from rich.table import Table

    from restless_bandits.model.problem import Problem
    from restless_bandits.simulation import SimulationResult

PLAY_A_SLOT = (
    "from restless_bandits.model.problem import Problem\n"
    "from restless_bandits.simulation.engine import World\n"
    "from restless_bandits.simulation.jobs import play_a_slot\n"
    "play_a_slot(World(Problem.builtin('paper-1')))\n"
)
REHEARSE = (
    "from restless_bandits.learning.learners import learner\n"
    "from restless_bandits.model.record import Record\n"
    "player = learner({spec!r}, trust_modules=False)\n"
    "task = player.task(Problem.builtin('paper-1'), None)\n"
    "player.rehearse(Record.of(task), task)\n"
)
"""The later kernels of a learner; a learner from another package is not imported a second time."""


def simulate(
    problem: options.ProblemArgument,
    horizon: Annotated[int, typer.Option(metavar="T", help="Slots of every run.", parser=options.whole_number)],
    learner: options.LearnerOption = None,
    runs: Annotated[int, typer.Option(help="Runs of every learner.", metavar="N", parser=options.whole_number)] = 100,
    seed: options.SeedOption = 0,
    jobs: options.JobsOption = "all",
    engine: options.EngineOption = "auto",
    address: options.AddressOption = None,
    checkpoints: Annotated[
        str, typer.Option(help="Number of checkpoints, evenly spaced; log:20 for logarithmic spacing.", metavar="N")
    ] = "10",
    comparator: Annotated[
        str,
        typer.Option(
            help=", ".join(COMPARATORS) + " or a number.",
            metavar="WHAT",
            autocompletion=completion.one_of(lambda: COMPARATORS),
        ),
    ] = "auto",
    lost: Annotated[float, typer.Option(help="Probability of losing the feedback of a slot.", metavar="P")] = 0.0,
    late: Annotated[
        int, typer.Option(help="Feedback comes 0 to K slots late, each delay with equal probability.", metavar="K")
    ] = 0,
    ratio: Annotated[float, typer.Option(help="Approximation regret: ratio · T · μ* − Σ reward.", metavar="X")] = 1.0,
    out: Annotated[
        Path | None, typer.Option(help="Keep finished runs in this folder; the same command resumes.", metavar="DIR")
    ] = None,
    arms: ArmsOption = None,
    plays: PlaysOption = None,
    observed: ObservedOption = None,
    kinds: KindsOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Run learners and measure their regret against the optimum.

    Example: restless simulate paper-1 --learner ts-9 --horizon 50000 --runs 20
    """
    stated = read_problem(problem, arms, plays, observed, kinds)
    from restless_bandits.simulation import SimulationInterrupted
    from restless_bandits.simulation import simulate as run_all

    specs = learner or [_default(stated)]
    compile_slots_ahead(*specs)
    try:
        with show_progress(f"{stated.name or problem}, T = {horizon}") as advance, warnings_as_lines():
            result = run_all(
                stated,
                specs,
                horizon,
                runs=runs,
                seed=seed,
                jobs=jobs_of(jobs),
                engine=engine,
                address=address,
                checkpoints=checkpoints,
                comparator=_number_or_word(comparator),
                ratio=ratio,
                lost=lost,
                late=late,
                out=out,
                progress=advance,
                announce=output.announce,
            )
    except SimulationInterrupted as stop:
        output.say(str(stop))
        if stop.result is not None:
            _show(stop.result, problem, as_json)
        raise typer.Exit(output.INTERRUPTED) from None
    _show(result, problem, as_json)


def _default(problem: Problem) -> str:
    if problem.observed == "all":
        return DEFAULT_OBSERVED
    from restless_bandits.learning.learners import default_learner

    return default_learner(problem.task()).spec


@cache
def compile_slots_ahead(*specs: str) -> None:
    """Let another process compile the kernel of the slots, and then the later kernels of some learners.

    Learners plan before slots are played.
    """
    from restless_bandits._internal.compiling import compile_ahead
    from restless_bandits.simulation.pools import cores
    from restless_bandits.simulation.world_kernels import run_plan

    if cores() > 1:
        compile_ahead(run_plan, PLAY_A_SLOT + "".join(REHEARSE.format(spec=spec) for spec in specs))


def jobs_of(text: str) -> int | None:
    if text == "all":
        return None
    from restless_bandits._internal.validation import number_of

    number = number_of(text)
    if number is None:
        raise ProblemError(f"jobs is {shortened(text)}; give a positive number, or all")
    return number


def _number_or_word(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a progress bar with a time estimate on stderr for people, nothing for programs."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        # The total is unknown until the comparator is ready, which may take some seconds.
        title = harmless(title)
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Report the library's warnings in one line each."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        output.say(f"Warning: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show
        yield


def _show(result: SimulationResult, name: str, as_json: bool) -> None:
    if as_json:
        output.emit(result.as_dict() | {"problem": result.problem or name})
        return
    plural = "s" if result.runs > 1 else ""
    played = f"{result.runs} run{plural}, seed {result.seed}{result.how_answered}"
    title = f"{result.problem or name}, T = {result.horizon}, {played}"
    if result.comparator.ends:
        heads, rows = result.bracket_table
        table = output.new_table(*heads, title=title)
        for cells in rows:
            table.add_row(*map(output.plain_text, cells))
    else:
        table = _optimum_table(result, title)
    output.show(table)
    for line in (*result.comparator_lines, result.remark):
        output.tell(line)


def _optimum_table(result: SimulationResult, title: str) -> Table:
    """Return the table of regrets against a single gain."""
    rows = result.summaries()
    # Against Whittle's index, and above random pulls, where both are among the learners.
    measures = [word for word in ("share", "lift") if word in rows[0]]
    heads = ("learner", "regret", "sd", "worst", "kind", "reward a slot", *measures, "seconds", "slots/s")
    table = output.new_table(*heads, title=title)
    places = ".6f" if result.reward_range == (0.0, 1.0) else ".8g"
    alone = result.runs == 1
    for row in rows:
        regret = f"{row['regret_mean'][-1]:.5g}"
        table.add_row(
            output.plain_text(row["spec"]),
            regret if alone else f"{regret} ± {row['regret_stderr'][-1]:.2g}",
            "–" if alone else f"{row['regret_sd'][-1]:.4g}",
            f"{row['regret_max'][-1]:.5g}",
            row["regret_kind"],
            f"{row['reward_mean'][-1]:{places}}",
            *(f"{row[word][-1]:.4f}" for word in measures),
            f"{row['seconds']:.3g}",
            f"{row['slots_per_second']:.2g}",
        )
    return table
