"""Jobs to four servers with five load levels each: the built-in problem queue-5.

Four servers of five states have more joint beliefs than can be solved exactly in seconds. What remains is a bracket
[best policy found, relaxation bound], and regret against both of its ends.

    python examples/job_dispatch.py --out dispatch.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import restless_bandits as rb

LEARNERS = ["likelihood-ucb", "restless-ucb:anytime=yes", "ucb1", "round-robin", "whittle"]


def main() -> None:
    options = argparse.ArgumentParser(description="Job dispatch to four servers.")
    options.add_argument("--out", type=Path, default=Path("dispatch.png"), help="where the picture goes")
    options.add_argument("--horizon", type=int, default=2_000)
    options.add_argument("--runs", type=int, default=4)
    given = options.parse_args()

    problem = rb.Problem.builtin("queue-5")
    relaxed = rb.oracles.relaxation(problem)
    print(f"{problem.n_arms} servers of {problem.n_states[0]} load levels, one job a slot")
    print(f"whatever anyone does, at most {relaxed.upper:.4f} of the jobs are done in time in the long run")

    result = rb.simulate(problem, LEARNERS, given.horizon, runs=given.runs, comparator=relaxed.upper)
    shares = dict(zip(result.learners, result.pulls.mean(axis=1) / given.horizon, strict=True))
    for row in result.summaries():
        used = ", ".join(
            f"{share:.0%} {arm.name}" for share, arm in zip(shares[row["spec"]], problem.arms, strict=True)
        )
        print(f"  {row['spec']:25} {row['reward_mean'][-1]:.4f} in time: {used}")

    stretch = rb.walk(problem, "whittle", 160).part(41, 120)

    from matplotlib.figure import Figure

    with rb.plots.style():
        figure = Figure(figsize=(8, 6), layout="constrained")
        above, below = figure.subplots(2)
        rb.plots.regret(result, ax=above).set_title("Jobs lost against the upper bound; whittle knows the servers")
        rb.plots.raster(stretch, ax=below).set_title("Where whittle sends jobs; dark: loaded")
        figure.savefig(given.out)
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
