"""``restless benchmark``: play a track, verify a submission, write the page of all submissions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from restless_bandits._internal.errors import ProblemError
from restless_bandits.cli import completion, output
from restless_bandits.cli.options import JsonOption

if TYPE_CHECKING:
    from restless_bandits.simulation.benchmark.submissions import Entrant, Seeds, Submission

TRACKS = ("index", "planning", "learning-pulled", "learning-observed", "logs")
SUBMISSIONS = Path("benchmark/submissions")

benchmark_app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

PolicyOption = Annotated[
    str | None, typer.Option(help="An oracle, random, counted, or module:function.", metavar="NAME")
]
BenchmarkLearnerOption = Annotated[
    str | None, typer.Option("--learner", help="A learner's spec, or module:Class.", metavar="SPEC")
]
ProgramOption = Annotated[
    str | None, typer.Option(help="A command that reads and writes JSON lines.", metavar="COMMAND")
]
RevealOption = Annotated[
    list[str] | None,
    typer.Option(help="Reveal rewards, mixing or problem to an entrant of a learning track.", metavar="WHAT"),
]
HeldOutOption = Annotated[
    Path | None, typer.Option(help="File of seeds that are not public, one a line.", metavar="FILE")
]
AnswerOption = Annotated[float, typer.Option(help="Seconds for an answer.", metavar="S", min=0.01)]
RunLimitOption = Annotated[float, typer.Option(help="Seconds for a run.", metavar="S", min=0.01)]


@benchmark_app.callback()
def benchmark() -> None:
    """Compare policies and learners on common instances.

    Example: restless benchmark run index --policy whittle
    """


@benchmark_app.command("tracks")
def tracks(as_json: JsonOption = False) -> None:
    """List the tracks and their instances.

    Example: restless benchmark tracks
    """
    from restless_bandits.simulation.benchmark import instances

    listed = {track: instances.instances_of(track) for track in instances.TRACKS}
    if as_json:
        rows = [
            {"track": one.track, "name": one.name, "source": one.source, "licence": one.licence, "seeds": one.seeds}
            for several in listed.values()
            for one in several
        ]
        output.emit({"instances": rows})
        return
    for track, several in listed.items():
        table = output.new_table("instance", "source", title=f"{track}: {instances.TRACKS[track]}")
        table.columns[1].justify = "left"
        for one in several:
            table.add_row(one.name, output.plain_text(one.source.split("; ")[0]))
        output.show(table)


@benchmark_app.command("run")
def run(
    track: Annotated[
        str,
        typer.Argument(metavar="TRACK", help=", ".join(TRACKS), autocompletion=completion.one_of(lambda: TRACKS)),
    ],
    policy: PolicyOption = None,
    learner: BenchmarkLearnerOption = None,
    program: ProgramOption = None,
    revealed: RevealOption = None,
    full: Annotated[bool, typer.Option("--full", help="All seeds and long runs, which takes hours.")] = False,
    held_out: HeldOutOption = None,
    out: Annotated[Path, typer.Option(help="The submission.", metavar="FILE.json")] = Path("submission.json"),
    jobs: Annotated[
        int | None, typer.Option(help="Number of parallel runs.", metavar="N", min=1, show_default="all cores")
    ] = None,
    answer_limit: AnswerOption = 60.0,
    run_limit: RunLimitOption = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Play a track and write a submission; the same command goes on with an interrupted run.

    Example: restless benchmark run planning --policy lp-index
    """
    from restless_bandits.simulation.benchmark.processes import TimeLimits
    from restless_bandits.simulation.benchmark.running import run_track
    from restless_bandits.simulation.pools import cores

    entrant = _entrant(track, policy, learner, program, revealed)
    found = run_track(
        track,
        entrant,
        full=full,
        seeds=_seeds(held_out),
        out=out,
        jobs=jobs or cores(),
        time_limits=TimeLimits(answer_limit, run_limit),
        report=output.progress,
    )
    _show(found, out, as_json)


@benchmark_app.command("verify")
def verify(
    submission: Annotated[Path, typer.Argument(metavar="SUBMISSION", help="A file that run wrote.")],
    policy: PolicyOption = None,
    learner: BenchmarkLearnerOption = None,
    program: ProgramOption = None,
    held_out: HeldOutOption = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the choice of runs.", metavar="N", min=0, show_default="new each time")
    ] = None,
    answer_limit: AnswerOption = 60.0,
    run_limit: RunLimitOption = 600.0,
    as_json: JsonOption = False,
) -> None:
    """Play a random tenth of a submission's runs again, and say whether the rewards agree.

    An entrant outside of this package is named again, as a file must not choose the code that is run.

    Example: restless benchmark verify submission.json
    """
    from restless_bandits.simulation.benchmark.processes import TimeLimits
    from restless_bandits.simulation.benchmark.submissions import Entrant, load_submission
    from restless_bandits.simulation.benchmark.verifying import verify as played_again

    found = load_submission(submission)
    if policy is None and learner is None and program is None:
        if not found.is_own:
            raise ProblemError(
                f"{submission} is of {found.name}, which is not part of this package; name the code to run by "
                f"--{found.entrant['kind']}"
            )
        entrant = Entrant.of(found.track, found.entrant["kind"], found.name, found.entrant["revealed"])
    else:
        entrant = _entrant(found.track, policy, learner, program, found.entrant["revealed"])
    done = played_again(
        found,
        entrant,
        seeds=_seeds(held_out),
        seed=seed,
        time_limits=TimeLimits(answer_limit, run_limit),
        report=output.progress,
    )
    if as_json:
        output.emit({"runs": done.runs, "agrees": done.agrees, "differences": done.differences, "code": done.same_code})
    else:
        code = "the same code" if done.same_code else f"other code than the submission's ({found.code})"
        output.lines([f"{done.runs} runs played again with {code}: {'they agree' if done.agrees else 'they differ'}"])
    if not done.agrees:
        more = f", and {len(done.differences) - 1} more" if len(done.differences) > 1 else ""
        raise ProblemError(f"{submission} does not agree: {done.differences[0]}{more}")


@benchmark_app.command("table")
def table(
    submissions: Annotated[
        Path, typer.Option(help="Folder of submissions.", metavar="DIR", show_default=True)
    ] = SUBMISSIONS,
    out: Annotated[Path, typer.Option(help="The page.", metavar="FILE.md")] = Path("docs/benchmark.md"),
) -> None:
    """Write the page of all submissions, with a table and a picture for each track.

    Example: restless benchmark table
    """
    from restless_bandits.simulation.benchmark.pages import write_page

    done = write_page(submissions, out)
    output.lines([f"{done} submissions are in {out}"])


def _entrant(
    track: str, policy: str | None, learner: str | None, program: str | None, revealed: list[str] | None
) -> Entrant:
    """Return the entrant of the three options, of which one is given."""
    from restless_bandits._internal.errors import check_known
    from restless_bandits.simulation.benchmark.submissions import Entrant

    check_known(track, TRACKS, "there is no track")
    given = {"policy": policy, "learner": learner, "program": program}
    named = {kind: name for kind, name in given.items() if name is not None}
    if len(named) != 1:
        raise ProblemError("give one of --policy, --learner and --program")
    ((kind, name),) = named.items()
    return Entrant.of(track, kind, name, revealed or ())


def _seeds(held_out: Path | None) -> Seeds:
    from restless_bandits.simulation.benchmark.submissions import Seeds

    return Seeds() if held_out is None else Seeds.from_file(held_out)


def _show(found: Submission, out: Path, as_json: bool) -> None:
    if as_json:
        rows = {name: one.as_dict() for name, one in found.by_instance.items()}
        answer: dict[str, Any] = {"track": found.track, "entrant": dict(found.entrant), "score": found.score.as_dict()}
        output.emit(answer | {"worst": found.worst, "instances": rows, "out": str(out)})
        return
    listed = output.new_table(
        "instance", "score", "95 %", "CPU units", "failures", title=f"{found.track}, {found.name}"
    )
    for name, one in found.by_instance.items():
        listed.add_row(name, *_cells(one))
    listed.add_row("all", *_cells(found.score))
    failure = next((row for row in found.rows if row.error), None)
    output.show(listed)
    if failure is not None:
        output.tell(f"{failure.instance}, seed {failure.seed + 1}: {failure.error}; a failed run counts as random play")
    output.tell(f"the submission is in {out}")


def _cells(one: Any) -> tuple[str, str, str, str]:
    return f"{one.mean:.4f}", f"{one.low:.4f} to {one.high:.4f}", f"{one.cpu:.3g}", str(one.failures or "")
