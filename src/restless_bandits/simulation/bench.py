"""The speed of this machine: nanoseconds a slot, and slots in units of draws, comparable between machines.

A *draw* is a ``Generator.random()`` of NumPy's PCG64 in a compiled loop. A slot is a slot of an index policy with full
records: transition counts, rewards, pulls, realised and expected reward. Times are the best of several short rounds,
each ratio from alternating rounds, because machines are shared and noisy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from timeit import repeat, timeit

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.compiling import njit
from restless_bandits._internal.random_streams import world_words
from restless_bandits.model.problem import Problem
from restless_bandits.policies.plans import Forever, Plan
from restless_bandits.policies.policies import TIE, IndexPolicy
from restless_bandits.simulation.engine import Run, World

SIZES = (2, 10, 100, 10_000)
BENCH_SLOTS = 200_000
ROUNDS = 40
PLAIN_SLOTS = 3_000


@dataclass(frozen=True)
class Bench:
    """The results of ``restless bench``."""

    draw_ns: float
    slot_ns: dict[str, float]
    ratio: dict[str, float]
    python_loop_ratio: float


def bench(rounds: int = ROUNDS) -> Bench:
    """Measure draws and slots in turn and keep the best of each."""
    generator = np.random.default_rng(0)
    games = {f"{n} arms": _game(n) for n in SIZES}
    _draws(generator, 10)
    draw = min(repeat(lambda: _draws(generator, BENCH_SLOTS), number=1, repeat=rounds)) / BENCH_SLOTS
    slots = {}
    for name, (world, policy) in games.items():
        times = []
        for run in range(rounds if world.problem.n_arms <= 100 else max(3, rounds // 8)):
            played = Run(world, 2 * BENCH_SLOTS, np.array([BENCH_SLOTS]), world_words(0, world.problem.content, run))
            # The first slots, with changing indices, are played before the measurement.
            played.horizon = BENCH_SLOTS
            played.play(Plan(policy, Forever()))
            played.horizon = 2 * BENCH_SLOTS
            times.append(timeit(partial(played.play, Plan(policy, Forever())), number=1) / BENCH_SLOTS)
            draw = min(draw, timeit(lambda: _draws(generator, BENCH_SLOTS), number=1) / BENCH_SLOTS)
        slots[name] = min(times)
    world, policy = games["2 arms"]
    plain = min(repeat(lambda: plain_loop(world.problem, policy, PLAIN_SLOTS), number=1, repeat=5)) / PLAIN_SLOTS
    slot_ns = {name: 1e9 * value for name, value in slots.items()}
    ratio = {name: value / draw for name, value in slots.items()}
    return Bench(1e9 * draw, slot_ns, ratio, plain / slots["2 arms"])


@njit
def _draws(generator: np.random.Generator, count: int) -> float:
    total = 0.0
    for _ in range(count):
        total += generator.random()
    return total


def _game(n_arms: int) -> tuple[World, IndexPolicy]:
    """Two arms are the arms of paper-1; more arms are random and satisfy the paper's assumptions."""
    problem = Problem.builtin("paper-1") if n_arms == 2 else Problem.random(n_arms, 2, seed=n_arms, floor=0.1)
    policy = oracles.policy("whittle", problem)
    assert isinstance(policy, IndexPolicy)
    return World(problem), policy


def plain_loop(problem: Problem, policy: IndexPolicy, slots: int) -> float:
    """The same slot loop in plain NumPy: choose, draw the state from P^τ, pay, record."""
    rng = np.random.default_rng(0)
    n = problem.n_arms
    length = 600
    distributions = np.stack(
        [arm.state_distributions(length)[:, : arm.n_states].cumsum(axis=2) for arm in problem.arms]
    )
    tables = np.stack([np.pad(t, ((0, 0), (0, length - t.shape[1])), mode="edge") for t in policy.tables])
    rewards = np.stack([arm.rewards for arm in problem.arms])
    means = np.stack([arm.state_distributions(length)[:, : arm.n_states] @ arm.rewards for arm in problem.arms])
    last = np.array(problem.initial)
    elapsed = np.ones(n, dtype=np.int64)
    counts = np.zeros((n, 2, length, 2), dtype=np.int64)
    sums = np.zeros((n, 2))
    arms = np.arange(n)
    realised = expected = 0.0
    for _ in range(slots):
        index = tables[arms, last, np.minimum(elapsed, length) - 1]
        arm = int(np.argmax(index >= index.max() - TIE))
        tau = min(int(elapsed[arm]), length - 1)
        state = int(np.searchsorted(distributions[arm, tau, last[arm]], rng.random(), side="right"))
        reward = float(rng.random() < rewards[arm, state])
        realised += reward
        expected += means[arm, tau, last[arm]]
        counts[arm, last[arm], tau - 1, state] += 1
        sums[arm, state] += reward
        elapsed += 1
        last[arm], elapsed[arm] = state, 1
    return realised - expected
