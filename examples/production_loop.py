"""A learner in a loop as in the field: late and lost answers, a machine added, one that changes, a process that dies.

Two machines, good or worn, and later a third; each slot one of them makes a part, and a check of the part says later in
what state the machine was and whether the part is sound. Checks take up to five slots, and one in ten is never made.
The third machine is the best until it breaks: the agent finds that out, and forgets how it was. Every event is in a
history. The program is killed in the middle, without a chance to say goodbye; the next one makes the agent again of its
history and goes on as if nothing had happened.

    python examples/production_loop.py --out production.png

The functions `start` and `work` are all that a real program needs; `World` stands for the machines.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

import restless_bandits as rb

TASK = rb.Task(
    n_states=(2, 2),
    plays=1,
    reward_laws=("bernoulli", "bernoulli"),
    initial=(None, None),
    names=("machine-a", "machine-b"),
)
ADDED = "machine-c"
LOST, LATE = 0.1, 5


class World:
    """The machines and the checks. A real program has real ones, and does not know these numbers."""

    problem = rb.Problem(
        [
            rb.Arm.two_state(stay_best=0.95, stay_worst=0.90, rewards=(0.95, 0.2), name="machine-a"),
            rb.Arm.two_state(stay_best=0.80, stay_worst=0.70, rewards=(0.90, 0.4), name="machine-b"),
            rb.Arm.two_state(stay_best=0.97, stay_worst=0.80, rewards=(0.98, 0.3), name=ADDED),
        ]
    )

    broken = rb.Arm.two_state(stay_best=0.70, stay_worst=0.97, rewards=(0.90, 0.1), name=ADDED)

    def __init__(self, slots: int, seed: int) -> None:
        self.breaks = 3 * slots // 4
        rng = np.random.default_rng(seed)
        draws = rng.random((slots + 1, 3))
        luck = rng.random(slots + 1)
        self.states = np.zeros((slots + 1, 3), dtype=int)
        self.sound = np.zeros((slots + 1, 3), dtype=bool)
        for slot in range(1, slots + 1):
            for arm, machine in enumerate(self.machines(slot)):
                state = int(draws[slot, arm] >= machine.one_step[self.states[slot - 1, arm], 0])
                self.states[slot, arm], self.sound[slot, arm] = state, luck[slot] < machine.rewards[state]
        self.delay = np.where(rng.random(slots + 1) < LOST, -1, rng.integers(0, LATE + 1, slots + 1))

    def machines(self, slot: int) -> list[rb.Arm]:
        """The machines as they are in a slot."""
        arms = [arm for arm in self.problem.arms if isinstance(arm, rb.Arm)]
        return arms if slot < self.breaks else [*arms[:2], self.broken]

    def checks(self, agent: rb.Agent) -> list[tuple[int, int, float]]:
        """The checks that are made by now of parts that wait for theirs: slot, state of the machine, sound or not."""
        made = []
        for decision in agent.open:
            slot, arm = decision.slot, decision.arms[0]
            if 0 <= self.delay[slot] <= agent.slots + 1 - slot:
                made.append((slot, int(self.states[slot, arm]), float(self.sound[slot, arm])))
        return made


def start(path: Path) -> rb.Agent:
    """The agent of which a history tells, or a new one."""
    if path.exists():
        agent = rb.Agent.replay(path)
        print(f"  going on after slot {agent.slots}, with {len(agent.open)} checks under way")
        return agent
    print("  a new agent")
    return rb.Agent("likelihood-ucb", TASK, seed=7, late=LATE + 1, on_change="forget", history=path)


def work(world: World, path: Path, slots: int, die_at: int | None) -> rb.Agent:
    """Decide, make a part, and tell what has been checked by now."""
    agent = start(path)
    while agent.slots < slots:
        if agent.slots == die_at:
            print(f"  killed in slot {agent.slots}", flush=True)
            os._exit(1)
        if agent.slots == slots // 3 and ADDED not in agent.task.names:
            agent.add_arm(ADDED)
        agent.ask()
        present = agent.slots + 1
        for slot, state, sound in world.checks(agent):
            agent.tell(state=state, reward=sound, slot=slot)
        if agent.slots < present:
            agent.skip()  # Its check is not there yet, or never will be.
    return agent


def main() -> None:
    options = argparse.ArgumentParser(description="A learner with late and lost answers that survives its process.")
    options.add_argument("--out", type=Path, default=Path("production.png"), help="where the picture goes")
    options.add_argument("--slots", type=int, default=3000)
    options.add_argument("--history", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    world = World(given.slots, seed=1)
    if given.history is not None:  # the process that is going to die
        work(world, given.history, given.slots, die_at=given.slots // 2 + 50)
        return

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.jsonl"
        print("first process:", flush=True)
        words = [sys.executable, __file__, "--slots", str(given.slots), "--history", str(path)]
        died = subprocess.run(words, check=False).returncode
        print(f"  exit code {died}; a history of {path.stat().st_size // 1000} kB is left")
        print("second process:")
        agent = work(world, path, given.slots, die_at=None)
        unbroken = work(world, Path(folder) / "other.jsonl", given.slots, die_at=None)
        same = agent.record.to_dict() == unbroken.record.to_dict()
        print(f"the record is that of a process that never died: {same}")
        made = [event["arms"][0] for event in agent.history() if event["kind"] == "ask"]

    print(f"{ADDED} breaks in slot {world.breaks}")
    for alarm in agent.alarms:
        print(f"alarm: {alarm}")
    sound = world.sound[np.arange(1, given.slots + 1), made]
    for first, end in ((given.slots // 3, world.breaks - 1), (world.breaks, given.slots)):
        best = rb.oracles.exact(rb.Problem(world.machines(end))).gain
        found = sound[first - 1 : end].mean()
        print(f"slots {first} to {end}: {found:.3f} sound; all known and checked at once, {best:.3f} in the long run")

    draw(agent, world, np.array(made), given.out)
    print(f"picture: {given.out}")


def draw(agent: rb.Agent, world: World, made: npt.NDArray[np.int64], out: Path) -> None:
    """Who made the parts, and what the agent knows of the machines by now, next to the truth."""
    from matplotlib.figure import Figure

    found = rb.estimate(agent.record, names=agent.task.names, strict=False)
    value = np.concatenate([arm.transitions[:, 0] for arm in found.arms])
    error = np.concatenate([arm.standard_errors[:, 0] for arm in found.arms])
    truth = np.concatenate([arm.one_step[:, 0] for arm in world.machines(agent.slots)])
    labels = [f"{name}\n{what}" for name in agent.task.names for what in ("stays good", "recovers")]
    with rb.plots.style():
        figure = Figure(figsize=(8, 7), layout="constrained")
        above, below = figure.subplots(2)
        width = max(1, len(made) // 30)
        slots = np.arange(width, len(made) + 1)
        for arm, name in enumerate(agent.task.names):
            share = np.convolve(made == arm, np.full(width, 1 / width), mode="valid")
            above.plot(slots, share, color=rb.plots.COLOURS[arm], label=name)
        above.axvline(len(made) // 3, color="black", linestyle=":", label=f"{ADDED} is added")
        above.axvline(len(made) // 2 + 50, color="grey", linestyle="--", label="the process is killed")
        above.axvline(world.breaks, color="firebrick", linestyle="-.", label=f"{ADDED} breaks")
        found_in = [alarm.slot for alarm in agent.alarms]
        above.plot(found_in, [1.0] * len(found_in), "v", color="firebrick", label="alarm")
        above.set_xlabel("slot")
        above.set_ylabel(f"share of the last {width} parts")
        above.legend()
        above.set_title(f"Who makes the parts, with checks up to {LATE} slots late and one in ten lost")
        below.errorbar(
            labels, value, 1.96 * error, fmt="o", capsize=4, color=rb.plots.COLOURS[0], label="estimate, 95 %"
        )
        below.plot(labels, truth, "_", markersize=30, color="black", label="truth")
        below.set_ylim(0, 1)
        below.set_ylabel("probability")
        below.legend()
        below.set_title(f"What the agent knows of the machines after {agent.slots} slots")
        figure.savefig(out)


if __name__ == "__main__":
    main()
