"""How answers look: JSON for programs, tables for people."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from restless_bandits.arrays import plain
from restless_bandits.assumptions import ASSUMPTIONS
from restless_bandits.problem import AnyArm, Problem

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from restless_bandits.diagnosis import Bounds, Diagnosis
    from restless_bandits.oracles import ArmIndex, Solution
    from restless_bandits.theory import RegretBound

FEW_ROWS = 10


def emit(answer: dict[str, Any]) -> None:
    """Print one JSON object."""
    # In ASCII, so that it is the same on every terminal and in every locale.
    print(json.dumps(plain(answer)))


def progress(line: str) -> None:
    """Tell on stderr what a long command is about to do."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr)


def console() -> Console:
    """A console for people: a reader that went away is an error, which ``main`` knows what to do with."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else 110)


def show(*parts: Any) -> None:
    """Print tables and lines for people."""
    printer = console()
    for part in parts:
        printer.print(part)


def plain_text(text: str) -> str:
    """Text from a user, with brackets that must not be taken for markup."""
    from rich.markup import escape

    return escape(text)


def new_table(*columns: str, title: str | None = None) -> Table:
    """An empty table in the style of all others: the first column left, the rest right."""
    from rich import box
    from rich.table import Table

    heading = None if title is None else plain_text(title)
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", title_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    return table


def _number(value: float | None, digits: int = 6) -> str:
    return "–" if value is None else f"{value:.{digits}g}"


def problems(known: Sequence[Problem], as_json: bool) -> None:
    """The list of built-in problems."""
    if as_json:
        rows = [
            {
                "name": p.name,
                "arms": p.n_arms,
                "states": list(p.n_states),
                "plays": p.plays,
                "source": p.source,
            }
            for p in known
        ]
        emit({"problems": rows})
        return
    table = new_table("problem", "arms", "states", "source")
    table.columns[3].justify = "left"
    for p in known:
        states = "/".join(map(str, sorted(set(p.n_states))))
        table.add_row(plain_text(p.name), str(p.n_arms), states, plain_text(_gist(p.source)))
    show(
        table,
        "restless problems show NAME prints one as TOML with its whole source; restless check NAME examines it.",
    )


def _gist(source: str) -> str:
    """The first sentence, or as much of it as stands before a semicolon."""
    return source.split(". ")[0].split(";")[0]


def problem(stated: Problem, as_json: bool) -> None:
    """One problem as TOML."""
    if as_json:
        emit({"name": stated.name, "source": stated.source, "plays": stated.plays, "toml": stated.to_toml()})
    else:
        sys.stdout.write(stated.to_toml())


def diagnosis(found: Diagnosis, as_json: bool, extra: Mapping[str, Any] | None = None) -> None:
    """The answer of ``restless check``; ``extra`` goes into its JSON object."""
    if as_json:
        emit(
            {
                "problem": found.problem.name,
                "plays": found.problem.plays,
                "assumptions": {
                    key: {
                        "holds": one.holds,
                        "worst": {"arm": one.arm, "state": one.state, "value": one.value},
                    }
                    for key, one in found.assumptions.items()
                },
                "c1": found.c1,
                "d_min": found.d_min,
                "lambda_max": found.lambda_max,
                "lambda_max_bounds": found.lambda_max_bounds,
                "theory_from": found.theory_from,
                "bounds": None if found.bounds is None else _bounds(found.bounds),
                "horizon": found.horizon,
                "arms": [
                    {
                        "name": arm.name,
                        "stationary": arm.stationary,
                        "second_eigenvalue": arm.second_eigenvalue,
                        "mixing": arm.mixing,
                        "mixing_quarter": arm.mixing_quarter,
                        "indexable": arm.indexable,
                        "index_violation": arm.index_violation,
                    }
                    for arm in found.arms
                ],
                **(extra or {}),
            }
        )
        return
    assumptions = new_table("assumption", "holds", "worst arm", "state", "value", title=f"{found.problem.name}")
    for key, one in found.assumptions.items():
        mark = "[green]yes[/]" if one.holds else "[red]no[/]"
        assumptions.add_row(ASSUMPTIONS[key], mark, plain_text(one.arm), str(one.state), _number(one.value))
    arms = new_table("arm", "stationary law", "λ", f"mixing to 1/√{found.horizon}", "mixing to 1/4", "indexable")
    for arm in found.arms:
        law = " ".join(f"{value:.4g}" for value in arm.stationary)
        indexable = "[green]yes[/]" if arm.indexable else f"[red]no[/] (by {arm.index_violation:.2g})"
        mixing = [("never" if slots is None else str(slots)) for slots in (arm.mixing, arm.mixing_quarter)]
        arms.add_row(plain_text(arm.name), law, _number(arm.second_eigenvalue), *mixing, indexable)
    lines = [f"c1 = {_number(found.c1)}, d_min = {_number(found.d_min)}"]
    if found.lambda_max_bounds is None:
        lines.append("λ_max is not defined: it needs birth-death chains with c1 > 0")
    else:
        low, high = found.lambda_max_bounds
        bracket = "" if high - low < 1e-9 else f" (between {low:.9g} and {high:.9g})"
        lines.append(f"λ_max = {found.lambda_max:.6g}{bracket}, over the neighbour spaces of all arms")
    if found.theory_from is None:
        lines.append("the theory does not apply: it needs rad(T) ≤ c1/3, and so birth-death chains with c1 > 0")
    else:
        lines.append(f"the theory's condition rad(T) ≤ c1/3 holds from T = {found.theory_from} on")
    if found.bounds is not None:
        lines += _bound_lines(found.bounds)
    show(assumptions, arms, *lines, "")


def _bounds(found: Bounds) -> dict[str, Any]:
    """The ``bounds`` of ``restless check``: a bound that says nothing yet is null."""

    def terms(bound: RegretBound) -> dict[str, float]:
        return {name: getattr(bound, name) for name in ("exploration", "rewards", "laws", "failure", "ends")}

    def until(horizon: int | None) -> int | float | None:
        # Not every reader of JSON takes whole numbers beyond 2^53.
        return horizon if horizon is None or horizon < 1 << 53 else float(horizon)

    def theorem(bound: RegretBound, horizon: int | None) -> dict[str, Any]:
        return {"bound": bound.total, "terms": terms(bound), "vacuous_until": until(horizon)}

    return {
        "most": found.most,
        "theorem_1": theorem(found.theorem_1, found.vacuous_until),
        "theorem_1_proved": theorem(found.theorem_1_proved, found.proved_vacuous_until),
        "theorem_2": {
            "fixed": found.theorem_2_fixed,
            "per_span": found.theorem_2_per_span,
            "vacuous_until": until(found.theorem_2_vacuous_until),
        },
    }


def _bound_lines(found: Bounds) -> list[str]:
    def line(what: str, bound: RegretBound, until: int | None) -> str:
        value = f"{bound.total:.3g}" if math.isfinite(bound.total) else "no bound"
        return f"{what} at T = {bound.horizon}: {value}, vacuous until T ≈ {_until(until)}"

    fixed, per_span = found.theorem_2_fixed, found.theorem_2_per_span
    approximate = f"{fixed:.3g} + {per_span:.3g} U" if math.isfinite(fixed) else "no bound"
    return [
        line("Theorem 1", found.theorem_1, found.vacuous_until),
        line("Theorem 1 with proved constants", found.theorem_1_proved, found.proved_vacuous_until),
        f"Theorem 2, its policy's bias of span U: {approximate}, "
        f"vacuous until T ≈ {_until(found.theorem_2_vacuous_until)} even for U = 0",
    ]


def _until(horizon: int | None) -> str:
    return "1e36 or later" if horizon is None else f"{float(horizon):.2g}"


def solution(found: Solution, name: str, out: Path | None, as_json: bool) -> None:
    """The answer of ``restless solve``."""
    width = found.upper - found.lower
    if as_json:
        emit(
            {
                "problem": found.problem.name or name,
                "oracle": found.oracle,
                "gain": found.gain,
                "lower": found.lower,
                "upper": found.upper,
                "width": width,
                "certified": found.certified,
                "seconds": found.seconds,
                "how": found.how,
                "multichain": found.multichain,
                "ratio": found.ratio,
                "policy": None if out is None else str(out),
                "details": dict(found.details),
            }
        )
        return
    table = new_table("", "", title=f"{found.problem.name or name}, {found.oracle}")
    table.show_header = False
    table.columns[1].justify = "left"
    table.add_row("gain", "not evaluated" if found.gain is None else f"{found.gain:.12f}")
    table.add_row("best possible", f"{found.lower:.12f} ≤ μ* ≤ {found.upper:.12f}  (width {width:.1e})")
    table.add_row("certified", "[green]yes[/]" if found.certified else "no")
    if found.ratio is not None:
        table.add_row("proved ratio", f"{found.ratio:g}")
    table.add_row("how", plain_text(found.how))
    table.add_row("seconds", f"{found.seconds:.3g}")
    if out is not None:
        table.add_row("policy", plain_text(str(out)))
    show(table)


def indices(stated: Problem, found: Sequence[tuple[AnyArm, ArmIndex]], tau_max: int | None, as_json: bool) -> None:
    """The answer of ``restless index``: the last column of a table holds for every longer wait."""

    def columns(index: ArmIndex, count: int) -> Any:
        have = index.table.shape[1]
        return index.table[:, np.minimum(np.arange(count), have - 1)]

    if as_json:
        rows = []
        for arm, index in found:
            table = columns(index, tau_max or index.table.shape[1])
            rows.append(
                {
                    "name": arm.name,
                    "indexable": index.indexable,
                    "index": table[:-1],
                    "never_seen": table[-1, 0],
                    "violation": index.violation,
                    "method": index.method,
                }
            )
        emit({"problem": stated.name, "arms": rows})
        return
    for arm, index in found:
        values = columns(index, tau_max or min(FEW_ROWS, index.table.shape[1]))
        names = [f"after state {s}" for s in range(arm.n_states)] + (["never seen"] if arm.initial is None else [])
        title = f"{arm.name} ({index.method}{'' if index.indexable else '; NOT indexable: first crossings'})"
        table = new_table("τ", *names, title=title)
        for t, column in enumerate(values.T):
            table.add_row(str(t + 1), *(f"{value:.6f}" for value in column[: len(names)]))
        show(table)
