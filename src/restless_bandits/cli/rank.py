"""``restless rank``: the arms to pull next, by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from restless_bandits.cli import completion, output
from restless_bandits.cli.options import JsonOption, ProblemArgument
from restless_bandits.cli.problems import ArmsOption, KindsOption, PlaysOption, check_output, is_table, read_problem

if TYPE_CHECKING:
    from restless_bandits.oracles.observed.ranking import Ranking

SHOWN_ARMS = 20
"""Arms in a table for people."""
RULES = ("lp-index", "whittle", "myopic")


def rank(
    problem: ProblemArgument,
    states: Annotated[
        Path,
        typer.Option(help="Table of the present states, with columns name and state.", metavar="FILE"),
    ],
    oracle: Annotated[
        str,
        typer.Option(help=", ".join(RULES) + ".", metavar="RULE", autocompletion=completion.one_of(lambda: RULES)),
    ] = "lp-index",
    horizon: Annotated[
        int | None,
        typer.Option(help="Slots left, the next one included, if the programme ends.", metavar="T"),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="Names of arms that cannot be pulled now, with commas, or a table of them.", metavar="NAMES|FILE"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the list to this file.", metavar="FILE.csv")] = None,
    arms: ArmsOption = None,
    plays: PlaysOption = None,
    kinds: KindsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the arms to pull next, by name: those with the highest indices of their present states.

    Example: restless rank arms.csv --states states.csv --plays 1000 --out list.csv
    """
    from restless_bandits.oracles.observed.ranking import rank as ranked

    check_output("--out", out, states, problem)
    stated = read_problem(problem, arms, plays, None, kinds)
    excluded = [name for given in exclude or () for name in _names(given)]
    found = ranked(stated, states, exclude=excluded, oracle=oracle, horizon=horizon)
    if out is not None:
        found.save(out)
    _show(found, out, as_json)


def _names(given: str) -> list[str]:
    """Return the names of an option: with commas, or in a table."""
    if is_table(given):
        from restless_bandits.model.arm_tables import read_names

        return read_names(given)
    return [name.strip() for name in given.split(",") if name.strip()]


def _show(found: Ranking, out: Path | None, as_json: bool) -> None:
    rows = list(found.rows())
    if as_json:
        listed = [{"name": name, "state": state, "index": score} for name, state, score in rows]
        output.emit(
            {"problem": getattr(found.problem, "name", ""), "arms": listed, "out": None if out is None else str(out)}
        )
        return
    table = output.new_table("arm", "state", "index", title=f"{len(found)} of {found.problem.n_arms} arms")
    for name, state, score in rows[:SHOWN_ARMS]:
        table.add_row(output.plain_text(name), str(state), f"{score:.6g}")
    more = f"the first {SHOWN_ARMS} of {len(found)} arms" if len(found) > SHOWN_ARMS else None
    output.show(table, *([more] if more else []))
    output.tell(None if out is None else f"the list is in {out}")
