"""The output of the commands: JSON for programs, tables for people."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from restless_bandits._internal.errors import harmless

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from restless_bandits.model.arms import AnyArm
    from restless_bandits.model.problem import Problem
    from restless_bandits.oracles import ArmIndex, Solution
    from restless_bandits.oracles.diagnosis import Bounds, Diagnosis, KindsDiagnosis
    from restless_bandits.paper.regret_lower_bound import RegretLowerBound
    from restless_bandits.paper.theory.coupling import CouplingCheck
    from restless_bandits.simulation.bench import Bench

INTERRUPTED = 130
"""The exit code of a program ended by Ctrl-C."""


def emit(answer: dict[str, Any]) -> None:
    from restless_bandits._internal.validation import to_jsonable

    # In ASCII, for equal output on every terminal and in every locale.
    print(json.dumps(to_jsonable(answer)))


def progress(line: str) -> None:
    """Report on stderr the next step of a long command."""
    if sys.stderr.isatty():
        say(line)


def say(line: str) -> None:
    """Print a line on stderr."""
    print(harmless(line), file=sys.stderr)


def announce(line: str | None) -> None:
    """Announce a long command on stderr, to people and to programs."""
    if line is not None:
        print(line, file=sys.stderr, flush=True)


@cache
def tell_of_compiling() -> None:
    """Report a long compilation on stderr, once, to people and to programs."""
    from restless_bandits._internal.compiling import compiling_long

    def wait() -> None:
        compiling_long.wait()
        say("compiling, once: a first command takes some seconds longer")

    if not compiling_long.is_set():
        threading.Thread(target=wait, daemon=True).start()


def console() -> Console:
    """Return a console for people: a closed reader is an error, which ``main`` handles."""
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


def tell(line: str | None) -> None:
    """Print a line that may contain text from a user; None prints nothing."""
    if line is not None:
        console().print(harmless(line), markup=False, soft_wrap=True)


def lines(texts: Sequence[str]) -> None:
    """Print lines with a finished layout."""
    print("\n".join(map(harmless, texts)))


def plain_text(text: str) -> str:
    """Return text from a user, protected from markup and terminal control sequences."""
    from rich.markup import escape

    return escape(harmless(text))


SHOWN_KINDS = 50
"""Kinds of arms in a table."""


def new_table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table in the common style: the first column left, the rest right."""
    from rich import box
    from rich.table import Table

    heading = None if title is None else plain_text(title)
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", title_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", overflow="fold")
    return table


def problems(known: Sequence[Problem], as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "name": p.name,
                "arms": p.n_arms,
                "states": p.n_states,
                "plays": p.plays,
                "features": p.features,
                "source": p.source,
            }
            for p in known
        ]
        emit({"problems": rows})
        return
    table = new_table("problem", "arms", "states", "seen", "source")
    table.columns[4].justify = "left"
    for p in known:
        states = "/".join(map(str, sorted(set(p.n_states))))
        # The first sentence, or the part of it before a semicolon.
        gist = p.source.split(". ")[0].split(";")[0]
        table.add_row(plain_text(p.name), str(p.n_arms), states, p.observed, plain_text(gist))
    show(
        table, "restless problems show NAME prints one as TOML with its whole source; restless check NAME examines it."
    )


def problem(stated: Problem, as_json: bool) -> None:
    if as_json:
        emit({"name": stated.name, "source": stated.source, "plays": stated.plays, "toml": stated.to_toml()})
    else:
        sys.stdout.write(stated.to_toml())


def diagnosis(
    found: Diagnosis | KindsDiagnosis,
    coupled: CouplingCheck | None,
    as_json: bool,
    limit: RegretLowerBound | None = None,
) -> None:
    from restless_bandits.model.assumptions import ASSUMPTIONS
    from restless_bandits.oracles.diagnosis import KindsDiagnosis

    if as_json:
        asked = {"coupling": coupled, "limit": limit}
        emit(found.as_dict() | {name: one.as_dict() for name, one in asked.items() if one is not None})
        return
    if isinstance(found, KindsDiagnosis):
        _kinds(found)
        return
    assumptions = new_table("assumption", "holds", "worst arm", "state", "value", title=f"{found.problem.name}")
    for key, one in found.assumptions.items():
        mark = "[green]yes[/]" if one.holds else "[red]no[/]"
        assumptions.add_row(ASSUMPTIONS[key], mark, plain_text(one.arm), str(one.state), f"{one.value:.6g}")
    arms = new_table(
        "arm", "stationary distribution", "λ", f"mixing to 1/√{found.horizon}", "mixing to 1/4", "indexable"
    )
    for arm in found.arms:
        distribution = " ".join(f"{value:.4g}" for value in arm.stationary)
        indexable = "[green]yes[/]" if arm.indexable else f"[red]no[/] (by {arm.index_violation:.2g})"
        mixing = [("never" if slots is None else str(slots)) for slots in (arm.mixing, arm.mixing_quarter)]
        arms.add_row(plain_text(arm.name), distribution, f"{arm.second_eigenvalue:.6g}", *mixing, indexable)
    lines = [f"c1 = {found.c1:.6g}, d_min = {found.d_min:.6g}"]
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
    show(assumptions, arms, *lines, "", *([] if coupled is None else _coupling_parts(coupled)))
    tell(None if limit is None else limit.sentence)
    tell(found.problem.findings.remark("checked for"))


def _kinds(found: KindsDiagnosis) -> None:
    problem = found.problem
    title = f"{problem.name or 'problem'}: {problem.summary}"
    heads = ("kind", "arms", "state", "rests to", "pulled to", "pays at rest", "pays pulled", "share at rest")
    table = new_table(*heads, "share pulled", title=title)
    shown = found.kinds[:SHOWN_KINDS]
    for kind in shown:
        for s in range(len(kind.rewards)):
            rows = (" ".join(f"{p:.4g}" for p in row[s]) for row in (kind.transitions, kind.active_transitions))
            columns = (kind.passive_rewards, kind.rewards, kind.passive_stationary, kind.active_stationary)
            first = ("", "") if s else (plain_text(kind.name), str(kind.count))
            table.add_row(*first, str(s), *rows, *(f"{column[s]:.4g}" for column in columns))
    costs = [f"{plain_text(kind.name)} {kind.setup_cost:.6g}" for kind in shown if kind.setup_cost]
    slow = [plain_text(kind.name) for kind in shown if kind.mixing is None]
    lines = [f"set-up costs: {', '.join(costs)}"] if costs else []
    if slow:
        lines.append(f"no mixing without pulls: {', '.join(slow)}")
    if len(shown) < len(problem.kinds):
        lines.append(f"the first {len(shown)} of {len(problem.kinds)} kinds")
    lines.append("the assumptions of the Restless-UCB paper are for uncontrolled arms that are seen when pulled")
    show(table, *lines)


def _coupling_parts(found: CouplingCheck) -> list[Any]:
    """Return a line for each play of the first slots, followed by the summary of the whole run."""
    from restless_bandits.paper.theory.coupling import FIRST

    run = found.coupling
    title = f"coupling: {found.policy_name} of R, played in the optimistic R' of T = {found.horizon}"
    heads = ("slot", "arm", "τ", "real state", "virtual state", "real reward", "virtual reward")
    table = new_table(*heads, title=title)
    for t in range(min(FIRST, run.slots)):
        for c, arm in enumerate(run.arms[t].tolist()):
            numbers = (str(column[t, c]) for column in (run.elapsed, run.real_states, run.virtual_states))
            rewards = (f"{column[t, c]:.4g}" for column in (run.real_rewards, run.virtual_rewards))
            table.add_row("" if c else str(t + 1), plain_text(run.problem.arms[arm].name), *numbers, *rewards)
    fits = {"virtual states against R": found.virtual_fit, "real states against R'": found.real_fit}
    mark = "[green]holds[/]" if found.holds else "[red]fails[/]"
    return [
        table,
        f"{run.slots} slots, rad(T) = {found.radius:.4g}, seed {found.seed}: the coupling {mark}",
        f"virtual state better than the real one: {found.violations} times; worse: {run.setbacks.sum()} times",
        f"mean reward: {found.real_mean:.4f} real, in R'; {found.virtual_mean:.4f} virtual, in R",
        *(
            f"{what}: largest √n·D {fit.statistic:.2f}, an alarm from {fit.alarm:.2f} on (false-alarm rate 1e-6)"
            for what, fit in fits.items()
        ),
        "",
    ]


def _bound_lines(found: Bounds) -> list[str]:
    at, per_span = f"at T = {found.theorem_1.horizon}", f" + {found.theorem_2_per_span:.3g} U"
    theorem_2 = "Theorem 2, its policy's bias of span U"
    rows = [
        (f"Theorem 1 {at}", found.theorem_1.total, "", found.vacuous_until, ""),
        (f"Theorem 1 with proved constants {at}", found.theorem_1_proved.total, "", found.proved_vacuous_until, ""),
        (theorem_2, found.theorem_2_fixed, per_span, found.theorem_2_vacuous_until, " even for U = 0"),
    ]
    lines = []
    for theorem, value, more, horizon, where in rows:
        bound = f"{value:.3g}{more}" if math.isfinite(value) else "no bound"
        until = "1e36 or later" if horizon is None else f"{float(horizon):.2g}"
        lines.append(f"{theorem}: {bound}, vacuous until T ≈ {until}{where}")
    return lines


def solution(found: Solution, name: str, out: Path | None, indices: Path | None, as_json: bool) -> None:
    title = found.problem.name or name
    listed = out is not None and out.suffix.lower() == ".csv"
    files = {"list" if listed else "policy": out, "indices": indices}
    named = {what: str(path) for what, path in files.items() if path is not None}
    if as_json:
        emit(found.as_dict(named.get("policy")) | {"list": None, "indices": None} | named | {"problem": title})
        return
    table = new_table("", "", title=f"{title}, {found.oracle}")
    table.show_header = False
    table.columns[1].justify = "left"
    # 80 columns in all.
    table.columns[1].max_width = 62
    _, lower, upper, optimum = found.shown_ends
    table.add_row("cost" if found.problem.in_costs else "gain", _gain(found))
    # Twelve decimals of large numbers would be rounding errors.
    digits = 12 if max(abs(lower), abs(upper)) < 1000 else 9
    table.add_row("best possible", f"{lower:.{digits}f} ≤ {optimum} ≤ {upper:.{digits}f}  (width {found.width:.1e})")
    if found.problem.observed == "all" and found.problem.n_arms > 1:
        low, high = (end / found.problem.n_arms for end in (lower, upper))
        table.add_row("for each arm", f"{low:.12f} ≤ {optimum}/N ≤ {high:.12f}")
        table.add_row("problem", found.problem.summary)
    table.add_row("certified", "[green]yes[/]" if found.certified else "no")
    if found.ratio is not None:
        table.add_row("proved ratio", f"{found.ratio:g}")
    table.add_row("how", plain_text(found.how))
    if found.why is not None:
        table.add_row("oracle", plain_text(found.why))
    table.add_row("seconds", f"{found.seconds:.3g}")
    show(table)
    tell(found.remark)
    for what, path in named.items():
        tell(f"the {what} {'are' if what == 'indices' else 'is'} in {path}")


def _gain(found: Solution) -> str:
    gain, lower, upper, optimum = found.shown_ends
    if gain is None:
        return "not evaluated"
    if found.gain_stderr is None:
        return f"{gain:.12f}"
    # Two digits of the standard error, and the same decimal places of the gain.
    digits = min(12, 1 - math.floor(math.log10(found.gain_stderr))) if found.gain_stderr > 0 else 12
    bound = f" ({found.details['bound']})" if "bound" in found.details else ""
    known = f"{optimum} ≥ {lower:.{digits}f}" if found.problem.in_costs else f"{optimum} ≤ {upper:.{digits}f}"
    return f"{gain:.{digits}f} ± {found.gain_stderr:.{digits}f} (simulated), {known}{bound}"


def observed_indices(stated: Problem, kinds: Sequence[AnyArm], found: Sequence[ArmIndex], as_json: bool) -> None:
    """Print the indices of kinds of arms by state."""
    from restless_bandits.model.kinds import counts_of, names_of

    names, counts = list(names_of(kinds)), counts_of(kinds).tolist()
    if as_json:
        rows = zip(names, counts, found, strict=True)
        arms = [{"name": name, "count": count} | index.as_dict() for name, count, index in rows]
        emit({"problem": stated.name, "arms": arms})
        return
    shown = range(min(len(found), SHOWN_KINDS))
    sizes = [kinds[i].n_states for i in shown]
    heads = [f"state {s}" for s in range(max(sizes))]
    # A set-up cost doubles the states: an arm pulled in the last slot has indices of its own.
    doubled = any(len(found[i].table) > size for i, size in zip(shown, sizes, strict=True))
    heads += [f"{head} after a pull" for head in heads] if doubled else []
    table = new_table("kind", "arms", *heads, title=stated.name or "indices")
    for i, size in zip(shown, sizes, strict=True):
        values = [f"{value:.8g}" for value in found[i].table[:, 0].tolist()]
        values[size:size] = [""] * (max(sizes) - size)
        table.add_row(plain_text(names[i]), str(counts[i]), *values)
    lines = [f"the first {SHOWN_KINDS} of {len(found)} kinds; --json prints all"] if len(found) > SHOWN_KINDS else []
    worst = max(range(len(found)), key=lambda i: found[i].violation)
    broken = sum(not index.indexable for index in found)
    if broken:
        lines.append(
            f"not indexable: {broken} of {len(found)} kinds, {plain_text(names[worst])} by "
            f"{found[worst].violation:.3g}; the numbers are the last subsidies at which each state turns to rest"
        )
    several = sum("vanishing" in index.method for index in found)
    if several:
        lines.append(f"several recurrent classes: {several} of {len(found)} kinds, by a discount close to 1")
    show(table, *lines)


def measurements(found: Bench, as_json: bool) -> None:
    if as_json:
        emit(dataclasses.asdict(found))
        return
    table = new_table("one simulated slot, all recorded", "ns", "draws")
    for name, value in found.slot_ns.items():
        table.add_row(name, f"{value:.1f}", f"{found.ratio[name]:.1f}")
    show(
        table,
        f"A draw, one Generator.random() of PCG64 in a compiled loop, takes {found.draw_ns:.2f} ns here.",
        f"The same loop in plain Python with NumPy takes {found.python_loop_ratio:.0f} times as long (2 arms).",
    )


def indices(stated: Problem, found: Sequence[tuple[AnyArm, ArmIndex]], tau_max: int | None, as_json: bool) -> None:
    if as_json:
        arms = [{"name": arm.name} | index.as_dict(tau_max) for arm, index in found]
        emit({"problem": stated.name, "arms": arms})
        return
    for arm, index in found:
        values = index.columns(tau_max or min(10, index.table.shape[1]))
        names = [f"after state {s}" for s in range(arm.n_states)]
        names += ["never seen"] if arm.initial is None or index.lost_row else []
        names += ["after a lost answer"] if index.lost_row else []
        title = f"{arm.name} ({index.method}{'' if index.indexable else '; NOT indexable: first crossings'})"
        table = new_table("τ", *names, title=title)
        places = ".6f" if arm.reward_range == (0.0, 1.0) else ".8g"
        for t, column in enumerate(values.T):
            table.add_row(str(t + 1), *(f"{value:{places}}" for value in column[: len(names)]))
        show(table)
