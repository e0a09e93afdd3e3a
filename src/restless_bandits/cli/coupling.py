"""How ``restless check --coupling`` looks: the first slots of one coupling, and what its whole run shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from restless_bandits.cli import output

if TYPE_CHECKING:
    from restless_bandits.theory.coupling import CouplingCheck, TrajectoryFit


def show_coupling(found: CouplingCheck) -> None:
    """One line for each of the first slots and plays, then the summary."""
    run = found.coupling
    title = f"coupling: {found.policy_name} of R, played in the optimistic R' of T = {found.horizon}"
    table = output.new_table("slot", "arm", "τ", "real state", "virtual state", "real reward", "virtual reward")
    table.title = output.plain_text(title)
    for row in found.as_dict()["first"]:
        slot, *columns = row.values()
        for c, (arm, *counts, real, virtual) in enumerate(zip(*columns, strict=True)):
            name = output.plain_text(run.problem.arms[arm].name)
            table.add_row(str(slot) if c == 0 else "", name, *map(str, counts), f"{real:.4g}", f"{virtual:.4g}")
    mark = "[green]holds[/]" if found.holds else "[red]fails[/]"
    output.show(
        table,
        f"{run.slots} slots, rad(T) = {found.radius:.4g}, seed {found.seed}: the coupling {mark}",
        f"virtual state better than the real one: {found.violations} times; worse: {run.setbacks.sum()} times",
        f"mean reward: {found.real_mean:.4f} real, in R'; {found.virtual_mean:.4f} virtual, in R",
        f"virtual states against R: {_distance(found.virtual_fit)}",
        f"real states against R': {_distance(found.real_fit)}",
        "",
    )


def _distance(fit: TrajectoryFit) -> str:
    return f"largest √n·D {fit.statistic:.2f}, an alarm from {fit.alarm:.2f} on (false-alarm rate 1e-6)"
