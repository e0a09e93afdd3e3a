"""How long the oracles take and how narrow their brackets are. Run with ``make bench``.

Every problem is solved in a process of its own, after a small one has been solved there to load the compiled kernels:
seconds are warm, memory is the peak of the whole process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

TARGETS = {
    "paper-1": (1e-9, 0.1),
    "paper-2": (1e-9, 0.1),
    "lms-urban-s": (1e-8, 2.0),
    "lms-heavy-tree-s": (1e-8, 2.0),
    "rf-2": (None, None),
    "rf-3": (None, None),
    "lms-suburban-l": (1e-6, 20.0),
    "table-3": (None, None),
    "table-4": (None, None),
    "table-5": (None, None),
    "lms-urban-l": (1e-4, 180.0),
    "queue-5": (None, None),
}

SOLVE_ONE = """
import json, resource, sys
import restless_bandits as rb
rb.oracles.exact(rb.Problem.builtin("table-3"))
s = rb.oracles.exact(rb.Problem.builtin(sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps([s.gain, s.lower, s.upper, s.certified, s.seconds, peak, s.details["levels"][-1]["beliefs"]]))
"""


def exact_table(names: list[str]) -> None:
    print("| problem | gain | bracket width | seconds | peak GB | joint beliefs | target (width, s) | met |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        done = subprocess.run([sys.executable, "-c", SOLVE_ONE, name], capture_output=True, text=True, check=True)
        gain, lower, upper, certified, seconds, peak, beliefs = json.loads(done.stdout)
        width, limit = TARGETS[name]
        met = "–" if width is None or limit is None else "yes" if upper - lower <= width and seconds <= limit else "NO"
        value = f"{gain:.12f}" if certified else f"[{lower:.6f}, {upper:.6f}]"
        target = "–" if width is None else f"{width:g}, {limit:g}"
        print(
            f"| {name} | {value} | {upper - lower:.1e} | {seconds:.3f} | {peak:.2f} | {beliefs:,} | {target} | {met} |",
            flush=True,
        )


def whittle_table() -> None:
    import numpy as np

    import restless_bandits as rb

    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(1000):
        p11, p01 = rng.random(2)
        arm = rb.Arm([[p11, 1 - p11], [p01, 1 - p01]], np.sort(rng.random(2))[::-1], initial=0)
        closed = rb.oracles.whittle_index(arm, method="closed-form")
        followed = rb.oracles.whittle_index(arm, length=closed.table.shape[1], method="homotopy")
        worst = max(worst, float(np.abs(closed.table - followed.table).max()))
    print(f"\nWhittle, two states: closed form and homotopy differ by at most {worst:.1e} on 1000 arms (target 1e-12)")
    for states, length, limit in ((10, 100, 0.010), (50, 200, 5.0)):
        drawn = rb.Problem.random(1, states, seed=1, floor=0.001).arms[0]
        table = rb.TableArm(drawn.state_distributions(length), drawn.rewards, initial=drawn.initial)
        rb.oracles.whittle_index(table)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            rb.oracles.whittle_index(table)
            times.append(time.perf_counter() - start)
        print(
            f"Whittle, M = {states}, L = {length}: {1000 * min(times):.1f} ms, best of 5 (target {1000 * limit:.0f} ms)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*", help="only these; all by default")
    names = parser.parse_args().problems or list(TARGETS)
    exact_table(names)
    whittle_table()


if __name__ == "__main__":
    main()
