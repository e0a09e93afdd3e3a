"""How long a program waits for its agent. Run with ``python -m benchmarks.agent``.

Milliseconds by the wall of ``ask`` and ``tell``: the middle one, one in a hundred, and the longest, over a run of
``likelihood-ucb`` from its first slot on, with a pause between slots as a program has that does something else too.
Answers come in order, or after 0 to ten further slots, and so out of order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import restless_bandits as rb
from restless_bandits._internal import background

SPEC = "likelihood-ucb"
LATE = 10
PAUSE = 0.001
TARGET = 5.0
"""Milliseconds within which 99 of 100 decisions are wanted, at 100 arms with plans made in the background."""


class World:
    """Two-state arms that drift; made in advance, so that nothing of it is timed."""

    def __init__(self, problem: rb.Problem, slots: int) -> None:
        rng = np.random.default_rng(1)
        chains = np.stack([arm.one_step for arm in problem.arms])
        self.states = np.zeros((slots + 1, problem.n_arms), dtype=int)
        for slot in range(1, slots + 1):
            stay_best = chains[np.arange(problem.n_arms), self.states[slot - 1], 0]
            self.states[slot] = rng.random(problem.n_arms) >= stay_best
        means = np.stack([arm.rewards for arm in problem.arms])
        self.rewards = (rng.random(self.states.shape) < means[np.arange(problem.n_arms), self.states]).astype(float)


def timed(work: Callable[[], object], spent: list[float]) -> None:
    start = time.perf_counter()
    work()
    spent.append(1e3 * (time.perf_counter() - start))


def measure(n_arms: int, planning: str, late: int, slots: int) -> dict[str, list[float]]:
    """Return the milliseconds of every call of a run."""
    problem = rb.Problem.random(n_arms=n_arms, n_states=2, seed=11)
    world = World(problem, slots)
    agent = rb.Agent(SPEC, problem.task(), seed=1, planning=planning)
    delays = np.random.default_rng(2).integers(0, late + 1, slots)
    underway: dict[int, list[tuple[int, int]]] = {}
    spent: dict[str, list[float]] = {"ask": [], "tell": []}
    for slot in range(1, slots + 1):
        timed(agent.ask, spent["ask"])
        arm = agent.ask()
        assert isinstance(arm, int)
        underway.setdefault(slot + int(delays[slot - 1]), []).append((slot, arm))
        for of, pulled in underway.pop(slot, []):
            state, reward = int(world.states[of, pulled]), float(world.rewards[of, pulled])
            timed(partial(agent.tell, state, reward, slot=of), spent["tell"])
        if agent.slots < slot:
            agent.skip()
        time.sleep(PAUSE)
    return spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--slots", type=int, default=3000)
    slots = options.parse_args().slots
    rb.simulate(rb.Problem.random(n_arms=3, n_states=2, seed=11), SPEC, 500, runs=1)  # what is compiled is compiled now
    calls = "   ".join(f"{call + ': middle, 1 in 100, longest':29}" for call in ("ask", "tell"))
    print(f"{'arms':>4} {'plans':>10} {'answers':>8}   {calls}")
    for n_arms in (2, 30, 100):
        for planning in ("blocking", "background"):
            for late in (0, LATE):
                spent = measure(n_arms, planning, late, slots)
                shown = [
                    " ".join(f"{value:9.3f}" for value in (*np.percentile(spent[call], (50, 99)), max(spent[call])))
                    for call in ("ask", "tell")
                ]
                print(f"{n_arms:4} {planning:>10} {'late' if late else 'in order':>8}   {shown[0]}   {shown[1]}")
    background.close()
    print(f"wanted: 1 in 100 asks within {TARGET:g} ms at 100 arms with plans in the background")


if __name__ == "__main__":
    main()
