"""An algorithm of your own next to the known ones, in about twenty lines.

`plug-in` pulls each arm until it has seen every state often enough, estimates the chains, and plays Whittle's index on
the estimate; whenever it has lived twice as long, it estimates again. No optimism, no sampling: does it need any?

    python examples/own_learner.py --out own-learner.png
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

import restless_bandits as rb
from restless_bandits.model.record import Record
from restless_bandits.policies import EveryStateSeen, Plan, SingleArm, Slots


@dataclass(frozen=True)
class PlugIn(rb.Learner):
    """Look at every arm, then trust the estimate."""

    name: ClassVar[str] = "plug-in"
    first: int = 20

    def plan(self, record: Record, task: rb.Task, rng: np.random.Generator) -> Plan:
        for arm in range(task.n_arms):
            if not record.every_state_seen(arm, times=self.first):
                return Plan(SingleArm(arm, task.plays), until=EveryStateSeen(arm, times=self.first))
        found = rb.estimate(record, names=task.names, strict=False)
        arms = [
            rb.Arm(one.transitions, one.rewards, initial=int(state), name=one.name)
            for one, state in zip(found.arms, record.last_states, strict=True)
        ]
        policy = rb.oracles.policy("whittle", rb.Problem(arms, plays=task.plays))
        return Plan(policy, until=Slots(record.slots))


def main() -> None:
    options = argparse.ArgumentParser(description="A learner of your own.")
    options.add_argument("--out", type=Path, default=Path("own-learner.png"), help="where the picture goes")
    options.add_argument("--horizon", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=12)
    given = options.parse_args()

    problem = rb.Problem.builtin("paper-1")
    learners: list[rb.Learner | str] = [PlugIn(), PlugIn(first=3), "likelihood-ucb", "restless-ucb"]
    result = rb.simulate(problem, learners, given.horizon, runs=given.runs, checkpoints="log:12")
    for row in result.summaries():
        print(f"  {row['spec']:15} regret {row['regret_mean'][-1]:6.1f}, worst run {row['regret_max'][-1]:6.1f}")

    from matplotlib.figure import Figure

    with rb.plots.style():
        figure = Figure(figsize=(7, 4), layout="constrained")
        ax = rb.plots.regret(result, ax=figure.subplots(), log=True)
        ax.set_title(f"A learner in twenty lines, {problem.name}")
        figure.savefig(given.out)
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
