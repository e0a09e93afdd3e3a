"""How ``restless check --coupling`` looks: the first slots of one coupling, and what its whole run shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from restless_bandits.cli import output

if TYPE_CHECKING:
    from restless_bandits.theory.coupling import CouplingCheck, Fit

FIRST = 20
"""Slots that are shown one by one."""


def coupling_answer(found: CouplingCheck) -> dict[str, Any]:
    """The object ``coupling`` of the JSON answer; lists in ``first`` have one entry a play."""
    run = found.coupling
    return {
        "horizon": found.horizon,
        "radius": found.radius,
        "seed": found.seed,
        "slots": run.slots,
        "policy": _policy_name(found),
        "holds": found.holds,
        "order_violations": found.violations,
        "order_strict": int(run.setbacks.sum()),
        "rewards_ordered": run.rewards_ordered,
        "real_reward_mean": found.real_mean,
        "virtual_reward_mean": found.virtual_mean,
        "p_value": found.p_value,
        "virtual": _fit_answer(found.virtual_fit),
        "real": _fit_answer(found.real_fit),
        "first": [
            {
                "slot": t + 1,
                "arms": run.arms[t],
                "elapsed": run.elapsed[t],
                "real_states": run.real_states[t],
                "virtual_states": run.virtual_states[t],
                "real_rewards": run.real_rewards[t],
                "virtual_rewards": run.virtual_rewards[t],
            }
            for t in range(min(FIRST, run.slots))
        ],
    }


def _fit_answer(fit: Fit) -> dict[str, Any]:
    return {"statistic": fit.statistic, "alarm": fit.alarm, "p_value": fit.p_value}


def show_coupling(found: CouplingCheck) -> None:
    """One line for each of the first slots and plays, then the summary."""
    run = found.coupling
    title = f"coupling: {_policy_name(found)} of R, played in the optimistic R' of T = {found.horizon}"
    table = output.new_table("slot", "arm", "τ", "real state", "virtual state", "real reward", "virtual reward")
    table.title = output.plain_text(title)
    for t in range(min(FIRST, run.slots)):
        for c, arm in enumerate(run.arms[t].tolist()):
            real, virtual = run.real_rewards[t, c], run.virtual_rewards[t, c]
            table.add_row(
                str(t + 1) if c == 0 else "",
                output.plain_text(run.problem.arms[arm].name),
                str(run.elapsed[t, c]),
                str(run.real_states[t, c]),
                str(run.virtual_states[t, c]),
                f"{real:.4g}",
                f"{virtual:.4g}",
            )
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


def _policy_name(found: CouplingCheck) -> str:
    from restless_bandits.policies import JointPolicy

    return "the optimal policy" if isinstance(found.coupling.policy, JointPolicy) else "Whittle's index policy"


def _distance(fit: Fit) -> str:
    return f"largest √n·D {fit.statistic:.2f}, an alarm from {fit.alarm:.2f} on (false-alarm rate 1e-6)"
