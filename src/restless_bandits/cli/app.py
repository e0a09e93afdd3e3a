"""The commands. Each command reads its input, calls the library, and passes the answer to ``output``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from restless_bandits import __version__
from restless_bandits._internal.errors import ProblemError, ReaderGoneError, StoppedError
from restless_bandits.cli import completion, output
from restless_bandits.cli.benchmark import benchmark_app
from restless_bandits.cli.evaluate import evaluate
from restless_bandits.cli.fit import fit
from restless_bandits.cli.logs import takes_log
from restless_bandits.cli.options import JsonOption, PieceOption, ProblemArgument, whole_number
from restless_bandits.cli.problems import (
    ArmsOption,
    KindsOption,
    ObservedOption,
    PlaysOption,
    check_output,
    read_problem,
)
from restless_bandits.cli.rank import rank
from restless_bandits.cli.replay import replay
from restless_bandits.cli.reproduce import reproduce
from restless_bandits.cli.service import audit, backup, serve, token_app
from restless_bandits.cli.simulate import simulate
from restless_bandits.registry import ORACLES

if TYPE_CHECKING:
    from restless_bandits.model.problem import Problem

MOST_LINES = 10_000
"""The most lines of a table for people, for which the whole layout is computed at once."""


class _Commands(TyperGroup):
    """Commands in the order of a newcomer's needs; Typer would put groups last."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Typer would end with exit code 1 here.
            raise ReaderGoneError from None
        except KeyboardInterrupt:
            # Typer would end without a message.
            raise StoppedError from None

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: name != "problems")


app = typer.Typer(
    name="restless",
    cls=_Commands,
    help="Restless bandits: plan or learn which of several changing arms to pull, seen when pulled or all observed.",
    epilog="PROBLEM is a built-in name, a TOML file or a table of arms. Each command's --help shows an example, and "
    "each takes --json. To begin with: restless solve paper-1",
    pretty_exceptions_enable=False,
    # Plain help can be copied and appears in a third of the time.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
problems_app = typer.Typer(rich_markup_mode=None)
app.add_typer(problems_app, name="problems")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"restless-bandits {__version__}")
        raise typer.Exit


START = """\
Restless bandits: decide which of several drifting things to use next. To begin with:

  restless solve paper-1                       the best possible reward of a problem, with a proof
  restless simulate paper-1 --horizon 1e4      learners, and what they lose against the best
  restless fit LOG.csv --out PROBLEM.toml      a problem from a log of your own
  restless replay LOG.csv                      what a learner would have earned on the log
  restless serve --demo paper-1 --open         a decision service with its live page

restless --help lists all commands, and restless COMMAND --help shows an example of each."""


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(START)


@problems_app.callback(invoke_without_command=True)
def problems(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the built-in problems with their sources.

    Example: restless problems
    """
    context.obj = as_json  # `problems --json show NAME` equals `problems show NAME --json`
    if context.invoked_subcommand is None:
        from restless_bandits.model.problem import Problem
        from restless_bandits.model.problem_files import builtin_problems

        output.problems([Problem.builtin(name) for name in builtin_problems()], as_json)


@problems_app.command("show")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A built-in name.", autocompletion=completion.builtin)],
    arms: ArmsOption = None,
    plays: PlaysOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a built-in problem as TOML, to copy and change.

    Example: restless problems show paper-1 > mine.toml
    """
    from restless_bandits.model.problem import Problem

    stated = Problem.builtin(name)
    if arms is not None or plays is not None:
        stated = read_problem(name, arms, plays)
    output.problem(stated, as_json or bool(context.obj))


@app.command()
def check(
    problem: ProblemArgument,
    horizon: Annotated[
        int,
        typer.Option(
            help="Horizon T for mixing to 1/√T, the bounds and the coupling.", metavar="T", parser=whole_number
        ),
    ] = 100_000,
    coupling: Annotated[
        bool, typer.Option("--coupling", help="Play the coupling of Lemma 1 once, and show it.")
    ] = False,
    limit: Annotated[
        bool, typer.Option("--limit", help="Compute the lower bound of any learner's regret, per unit of ln T.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the random draws of the coupling.", show_default="0", metavar="SEED")
    ] = None,
    arms: ArmsOption = None,
    plays: PlaysOption = None,
    observed: ObservedOption = None,
    kinds: KindsOption = None,
    piece: PieceOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Check assumptions, mixing and indexability of a problem.

    Example: restless check paper-1 --coupling
    """
    from restless_bandits.model.support import refuse_unsupported
    from restless_bandits.oracles.diagnosis import check as diagnose
    from restless_bandits.paper.theory import check_coupling, regret_limit

    stated = _piece_of(read_problem(problem, arms, plays, observed, kinds, default_plays=1), piece)
    if seed is not None and not coupling:
        raise ProblemError("--seed is for --coupling, the only random part of a check; leave --seed out")
    if coupling or limit:
        refuse_unsupported(stated, "theory")
    if not stated.features:
        _announce_by_part(stated, lambda part: diagnose(part, horizon=horizon), "check")
    coupled = check_coupling(stated, horizon, seed or 0) if coupling else None
    least = regret_limit(stated, announce=output.announce) if limit else None
    output.diagnosis(diagnose(stated, horizon=horizon), coupled, as_json, least)


@app.command()
def solve(
    problem: ProblemArgument,
    oracle: Annotated[
        str,
        typer.Option(
            help=", ".join(ORACLES.own) + ", a name of an installed plug-in, or package.module:function.",
            metavar="ORACLE",
            autocompletion=completion.one_of(lambda: ORACLES),
        ),
    ] = "auto",
    discount: Annotated[
        float | None,
        typer.Option(help="Discount β of arms that are all observed.", metavar="β", show_default="average reward"),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(help="Slots of a programme of arms that are all observed.", metavar="T", show_default="no end"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Store the policy in this file, or list the arms to pull, by name, in FILE.csv.", metavar="FILE.npz"
        ),
    ] = None,
    states: Annotated[
        Path | None,
        typer.Option(
            help="Table of the present states for the list, with columns name and state.",
            metavar="FILE",
            show_default="the distribution of slot 1",
        ),
    ] = None,
    indices: Annotated[
        Path | None,
        typer.Option(help="Write the index of each kind of arm and state to this file.", metavar="FILE.csv"),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(help="Target width of the bracket; implies the exact oracle.", metavar="X", show_default="1e-10"),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            help="Memory limit of the tables, in gigabytes; implies the exact oracle.",
            metavar="GB",
            show_default="at most 0.6",
        ),
    ] = None,
    arms: ArmsOption = None,
    plays: PlaysOption = None,
    observed: ObservedOption = None,
    kinds: KindsOption = None,
    piece: PieceOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Bracket the best long-run reward, with a proof and a policy.

    By default the oracle is exact if it needs at most a minute and a gigabyte, else whittle; for arms that are all
    observed it is exact, lp-index, whittle, id or lp-update.

    Example: restless solve paper-2 --oracle whittle
    """
    listed = out if out is not None and out.suffix.lower() == ".csv" else None
    check_output("--out", out, problem, states)
    check_output("--indices", indices, problem, states, out)
    stated = _piece_of(read_problem(problem, arms, plays, observed, kinds), piece)
    if states is not None and listed is None:
        raise ProblemError("--states is for a list of arms; give --out FILE.csv too, or leave --states out")
    if stated.observed != "all" and (listed or indices) is not None:
        raise ProblemError(
            f"a list of arms or of their indices is for arms that are all observed; give {problem} observed = 'all', "
            "or --out a name that ends in .npz"
        )
    from restless_bandits import oracles
    from restless_bandits.simulation import solving

    options: dict[str, Any] = {} if tolerance is None else {"tolerance": tolerance}
    if memory is not None:
        if not 0 < memory < 1e9:
            raise ProblemError(f"--memory is {memory:g} GB; it must be positive and finite")
        options["memory"] = int(memory * 1e9)
    chosen = oracles.find_oracle(oracle)
    if options and chosen.name not in ("auto", "exact"):
        raise ProblemError(f"--tolerance and --memory are for the exact oracle, not for {oracle}; leave them out")
    if discount is not None:
        options["discount"] = discount
    if horizon is not None:
        options["horizon"] = horizon
    present = None if states is None else oracles.present_states(stated, states)
    output.announce(solving.forecast(stated, chosen, options))
    solution = solving.solve(stated, chosen, report=output.progress, **options)
    if listed is not None:
        oracles.arms_of_policy(stated, solution.policy, present, discount).save(listed)
    elif out is not None:
        solution.policy.save(out)
    if indices is not None:
        oracles.save_indices(stated, solution.policy, indices, discount=discount)
    output.solution(solution, problem, out, indices, as_json)


@app.command()
def index(
    problem: ProblemArgument,
    arm: Annotated[str | None, typer.Option(help="Only the arm of this name.", metavar="NAME")] = None,
    tau_max: Annotated[
        int | None,
        typer.Option(help="Print τ = 1..K only; does not change the indices.", metavar="K", min=1, max=1_000_000),
    ] = None,
    discount: Annotated[
        float | None,
        typer.Option(help="The weight of the next slot's reward.", metavar="β", show_default="average reward"),
    ] = None,
    observed: ObservedOption = None,
    kinds: KindsOption = None,
    piece: PieceOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Print Whittle's index of every belief, or of every state of arms that are all observed.

    Example: restless index paper-1 --tau-max 5
    """
    if tau_max is not None and tau_max > MOST_LINES and not as_json:
        raise ProblemError(
            f"--tau-max is {tau_max}, more lines than a table holds ({MOST_LINES}); give --json for them"
        )
    stated = _piece_of(read_problem(problem, observed=observed, kinds=kinds, default_plays=1), piece)
    from restless_bandits.oracles.whittle import observed_indices, whittle_indices

    if stated.observed == "all":
        if tau_max is not None:
            raise ProblemError("--tau-max is for arms that are seen when pulled; leave it out")
        chosen = stated if arm is None else stated.only([stated.arm_number(arm)], plays=1)
        output.observed_indices(stated, chosen.kinds, observed_indices(chosen, discount), as_json)
        return
    arms = [stated.arms[stated.arm_number(arm)]] if arm is not None else list(stated.arms)
    if arm is None:
        _announce_by_part(stated, lambda part: whittle_indices(part.arms, discount=discount), "index")
    output.indices(stated, list(zip(arms, whittle_indices(arms, discount=discount), strict=True)), tau_max, as_json)


def _piece_of(problem: Problem, number: int) -> Problem:
    """Return the piece of a problem that a command uses; for several pieces, the output names the piece."""
    if not 1 <= number <= len(problem.pieces):
        raise ProblemError(f"--piece is {number}; the problem has pieces 1 to {len(problem.pieces)}")
    if problem.changes:
        slots = ", ".join(str(one.first) for one in problem.pieces[1:])
        output.announce(f"the problem changes at slots {slots}; this is piece {number} of {len(problem.pieces)}")
    return problem.pieces[number - 1].problem


def _announce_by_part(problem: Problem, work: Callable[[Problem], object], what: str) -> None:
    """Announce a long computation whose time grows with the number of arms."""
    from restless_bandits._internal.progress import warning
    from restless_bandits.simulation.solving import seconds_from_part

    output.announce(warning(seconds_from_part(problem, work), f"{what} of {problem.n_arms} arms"))


app.command()(rank)
app.command()(simulate)
app.command()(reproduce)
app.command()(takes_log(fit))
app.command()(takes_log(replay, without=("since", "until")))
app.command()(takes_log(evaluate, without=("wide",)))
app.command()(serve)
app.command()(audit)
app.command()(backup)
app.add_typer(token_app, name="token")
app.add_typer(benchmark_app, name="benchmark")


@app.command()
def bench(as_json: JsonOption = False) -> None:
    """Measure this machine: nanoseconds per simulated slot.

    Example: restless bench
    """
    from restless_bandits.simulation.bench import bench as measure

    output.measurements(measure(), as_json)
