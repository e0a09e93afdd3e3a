"""CPU seconds of oracle calls on random tiny problems of chains that hardly move, switch in every slot, or never leave.

    python -m benchmarks.slow_chains                    # 150 problems, six oracles each
    python -m benchmarks.slow_chains --first 75 --problems 10 --limit 60

Each call has a process of its own, which ends after ``--limit`` seconds of the processor. Prints calls that took over
five seconds as they end, then how many were slow, and the slowest.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal

import numpy as np

import restless_bandits as rb

ORACLES = ("exact", "whittle", "myopic", "best-arm", "relaxation", "auto")
MOST_ARMS = MOST_STATES = 3
TOLD = 5.0
"""Seconds of a call that is printed at once."""


def random_row(rng: np.random.Generator, n: int, state: int) -> np.ndarray:
    """Return a row with leaks of 1e-3 to 1e-16 beside one near-certain move, or a row with zeros."""
    kind = rng.integers(4)
    row = 10.0 ** -rng.uniform(3, 16, n)
    if kind == 0:
        row[rng.random(n) < 0.5] = 0.0
    if kind == 1:
        row = np.where(rng.random(n) < 0.4, 0.0, rng.random(n))
        if not row.any():
            row[(state + 1) % n] = 1.0
        return np.asarray(row / row.sum())
    certain = (state + 1) % n if kind == 2 else state
    row[certain] = 0.0
    row[certain] = 1.0 - row.sum()
    return row


def random_problem(number: int) -> rb.Problem:
    """Return the problem of a number: one to three arms of one to three states."""
    rng = np.random.default_rng([28, number])
    arms = []
    for i in range(rng.integers(1, MOST_ARMS + 1)):
        n = int(rng.integers(1, MOST_STATES + 1))
        chain = np.array([random_row(rng, n, state) for state in range(n)])
        initial = None if rng.random() < 0.5 else int(rng.integers(n))
        rewards = np.sort(rng.random(n))[::-1].copy()
        if rng.random() < 0.2:
            rewards[:] = rewards[0]
        arms.append(rb.Arm(chain, rewards, initial=initial, name=f"arm {i}"))
    return rb.Problem(arms, plays=int(rng.integers(1, len(arms) + 1)))


def seconds_of(name: str, problem: rb.Problem, limit: int) -> tuple[float, str]:
    """Return the CPU seconds of one call, and how it ended."""
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2))
        code = 0
        try:
            rb.oracles.oracle(name)(problem)
        except rb.ProblemError:
            code = 1
        except BaseException:
            code = 2
        os._exit(code)
    _, status, used = os.wait4(child, 0)
    ended = "ended by the limit" if os.WIFSIGNALED(status) else ("solved", "refused", "failed")[os.WEXITSTATUS(status)]
    return used.ru_utime + used.ru_stime, ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problems", type=int, default=150)
    parser.add_argument("--first", type=int, default=0, help="number of the first problem")
    parser.add_argument("--limit", type=int, default=20, help="CPU seconds of a call")
    given = parser.parse_args()
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    for name in ORACLES:  # compiled once, here, for all the processes
        for number in (1, 3):
            rb.oracles.oracle(name)(random_problem(number))
    found = []
    for number in range(given.first, given.first + given.problems):
        for name in ORACLES:
            seconds, ended = seconds_of(name, random_problem(number), given.limit)
            found.append((seconds, number, name, ended))
            if seconds > TOLD:
                print(f"problem {number} {name}: {seconds:.1f} s, {ended}", flush=True)
    found.sort(reverse=True)
    slow = [sum(seconds > limit for seconds, *_ in found) for limit in (1, 10)]
    total = sum(seconds for seconds, *_ in found)
    print(f"{len(found)} calls, {total:.0f} s in all; {slow[0]} over 1 s, {slow[1]} over 10 s")
    for seconds, number, name, ended in found[:10]:
        print(f"{seconds:6.1f} s  problem {number:3} {name}: {ended}")


if __name__ == "__main__":
    main()
