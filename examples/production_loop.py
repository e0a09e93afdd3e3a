"""A learner in a loop that dies and comes back.

Two machines, good or worn; each slot one of them makes a part, which is sound (1) or not (0). The program saves its
agent every hundred slots. Here it is killed in the middle, without a chance to say goodbye; the next one loads what was
saved and goes on.

    python examples/production_loop.py --out production.png

The three functions `start`, `work` and `use` are all that a real program needs; `World` stands for the machines.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import restless_bandits as rb

SAVE_EVERY = 100
TASK = rb.Task(
    n_states=(2, 2),
    plays=1,
    reward_laws=("bernoulli", "bernoulli"),
    initial=(None, None),
    names=("machine-a", "machine-b"),
)


class World:
    """The machines. A real program has real ones, and does not know these numbers."""

    problem = rb.Problem(
        [
            rb.Arm.two_state(stay_best=0.95, stay_worst=0.90, rewards=(0.95, 0.2), name="machine-a"),
            rb.Arm.two_state(stay_best=0.80, stay_worst=0.70, rewards=(0.90, 0.4), name="machine-b"),
        ]
    )

    def __init__(self, slots: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        draws = rng.random((slots, 2))
        self.luck = rng.random(slots)
        self.states = np.zeros((slots, 2), dtype=int)
        for arm, machine in enumerate(self.problem.arms):
            state = 0
            for slot in range(slots):
                state = int(draws[slot, arm] >= machine.one_step[state, 0])
                self.states[slot, arm] = state

    def use(self, arm: int, slot: int) -> tuple[int, float]:
        """Make a part: the state that was seen, and whether the part is sound."""
        state = int(self.states[slot, arm])
        return state, float(self.luck[slot] < self.problem.arms[arm].rewards[state])


def start(path: Path) -> rb.Agent:
    """The agent that was saved, or a new one."""
    if path.exists():
        agent = rb.Agent.load(path)
        print(f"  going on after slot {agent.slots}")
        return agent
    print("  a new agent")
    return rb.Agent("likelihood-ucb", TASK, seed=7)


def work(world: World, path: Path, slots: int, die_at: int | None) -> rb.Agent:
    """Ask, use, tell, and save now and then."""
    agent = start(path)
    while agent.slots < slots:
        if agent.slots == die_at:
            print(f"  killed in slot {agent.slots}", flush=True)
            os._exit(1)
        arm = agent.ask()
        assert isinstance(arm, int)
        state, reward = world.use(arm, agent.slots)
        agent.tell(state=state, reward=reward)
        if agent.slots % SAVE_EVERY == 0:
            agent.save(path)
    return agent


def main() -> None:
    options = argparse.ArgumentParser(description="A learner that survives the death of its process.")
    options.add_argument("--out", type=Path, default=Path("production.png"), help="where the picture goes")
    options.add_argument("--slots", type=int, default=3000)
    options.add_argument("--agent", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    world = World(given.slots, seed=1)
    if given.agent is not None:  # the process that is going to die
        work(world, given.agent, given.slots, die_at=given.slots // 2 + SAVE_EVERY // 2)
        return

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.json"
        print("first process:", flush=True)
        words = [sys.executable, __file__, "--slots", str(given.slots), "--agent", str(path)]
        died = subprocess.run(words, check=False).returncode
        print(f"  exit code {died}; {path.stat().st_size // 1000} kB were saved")
        print("second process:")
        agent = work(world, path, given.slots, die_at=None)
        unbroken = work(world, Path(folder) / "other.json", given.slots, die_at=None)

    # The second process lives through the slots after the last save once more, as these machines are drawn in advance.
    # Real ones drift on: a real program would `skip` the slots that have passed since.
    same = agent.record.to_dict() == unbroken.record.to_dict()
    print(f"the record is that of a process that never died: {same}")
    sound = sum(agent.record.reward_sums(arm).sum() for arm in range(TASK.n_arms))
    best = rb.oracles.exact(World.problem).gain
    print(f"{sound / given.slots:.3f} of the parts are sound; knowing the machines, {best:.3f} in the long run")

    draw(agent, given.out)
    print(f"picture: {given.out}")


def draw(agent: rb.Agent, out: Path) -> None:
    """What the agent knows of the machines by now, next to the truth."""
    from matplotlib.figure import Figure

    found = rb.estimate(agent.record, names=TASK.names, strict=False)
    value = np.concatenate([arm.transitions[:, 0] for arm in found.arms])
    error = np.concatenate([arm.standard_errors[:, 0] for arm in found.arms])
    truth = np.concatenate([arm.one_step[:, 0] for arm in World.problem.arms])
    labels = [f"{name}\n{what}" for name in TASK.names for what in ("stays good", "recovers")]
    with rb.plots.style():
        figure = Figure(figsize=(7, 4), layout="constrained")
        ax = figure.subplots()
        ax.errorbar(labels, value, 1.96 * error, fmt="o", capsize=4, color=rb.plots.COLOURS[0], label="estimate, 95 %")
        ax.plot(labels, truth, "_", markersize=40, color="black", label="truth")
        ax.set_ylim(0, 1)
        ax.set_ylabel("probability")
        ax.legend()
        ax.set_title(f"What the agent knows of the machines after {agent.slots} slots")
        figure.savefig(out)


if __name__ == "__main__":
    main()
