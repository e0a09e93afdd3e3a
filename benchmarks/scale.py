"""How long work on many arms takes. Run with ``python -m benchmarks.scale``; words pick the rows that hold them all.

Every row runs three times in a process of its own. Seconds are those of the processor, the least of the three, so that
compiled kernels are loaded; memory is the peak of the whole process. A row is a name, the seconds before this was
measured, the seconds wanted, and a function that prepares and returns the work to be timed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import restless_bandits as rb

SEED = 11
REPEATS = 3


class Row(NamedTuple):
    name: str
    before: float | None
    wanted: float
    prepare: Callable[[], Callable[[], object]]


def whittle(n_arms: int, n_states: int) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        # Made anew each time, as arms remember what was found out about them.
        problem = rb.Problem.random(n_arms=n_arms, n_states=n_states, seed=SEED)
        return lambda: rb.oracles.whittle(problem)

    return prepare


ROWS = [
    Row("whittle, M = 2, N = 1000", 9.1, 0.3, whittle(1_000, 2)),
    Row("whittle, M = 2, N = 10 000", None, 3.0, whittle(10_000, 2)),
    Row("whittle, M = 4, N = 100", 4.9, 0.5, whittle(100, 4)),
    Row("whittle, M = 4, N = 1000", None, 5.0, whittle(1_000, 4)),
]
MOST_MEMORY = 0.6
"""Gigabytes that any row may take."""


def measure(row: Row) -> tuple[float, float]:
    """Return processor seconds and the peak of memory in gigabytes, of this process."""
    spent = []
    for _ in range(REPEATS):
        work = row.prepare()
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only rows whose names hold these; all by default")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(measure(ROWS[options.row])))
        return
    print("| work | before, s | wanted, s | measured, s | peak GB | met |")
    print("|---|---|---|---|---|---|")
    for i, row in enumerate(ROWS):
        if not all(word in row.name for word in options.words):
            continue
        command = [sys.executable, "-m", "benchmarks.scale", "--row", str(i)]
        seconds, peak = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        before = "–" if row.before is None else f"{row.before:g}"
        met = "yes" if seconds <= row.wanted and peak <= MOST_MEMORY else "NO"
        print(f"| {row.name} | {before} | {row.wanted:g} | {seconds:.2f} | {peak:.2f} | {met} |", flush=True)


if __name__ == "__main__":
    main()
