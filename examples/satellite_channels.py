"""Which satellite should a terminal in a city listen to?

Each satellite is in sight or behind a building, and the terminal sees that only of the one it listens to. The numbers
are those of the land-mobile-satellite channel that the Restless-UCB paper uses (`restless problems show lms-urban-s`).

    python examples/satellite_channels.py --out satellite.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import restless_bandits as rb

LEARNERS = ["likelihood-ucb", "restless-ucb", "ucb1", "round-robin"]


def main() -> None:
    options = argparse.ArgumentParser(description="Channel selection for a satellite terminal.")
    options.add_argument("--out", type=Path, default=Path("satellite.png"), help="where the picture goes")
    options.add_argument("--horizon", type=int, default=10_000)
    options.add_argument("--runs", type=int, default=10)
    given = options.parse_args()

    problem = rb.Problem.builtin("lms-urban-s")
    best, single = rb.oracles.exact(problem), rb.oracles.best_arm(problem)
    print(f"{problem.n_arms} satellites: {', '.join(arm.name for arm in problem.arms)}")
    print(f"always the same one earns {single.gain:.4f} a slot; the best possible is {best.gain:.4f}, certified")

    result = rb.simulate(problem, LEARNERS, given.horizon, runs=given.runs, checkpoints="log:12")
    for row in result.summaries():
        print(f"  {row['spec']:15} regret {row['regret_mean'][-1]:6.0f} ± {row['regret_stderr'][-1]:.0f}")

    # One run of the best of them, slot by slot: how often does it look at the other satellite?
    stretch = rb.walk(problem, "likelihood-ucb", 1000).part(881, 120)

    from matplotlib.figure import Figure

    with rb.plots.style():
        figure = Figure(figsize=(8, 6), layout="constrained")
        above, below = figure.subplots(2, height_ratios=[2, 1])
        rb.plots.regret(result, ax=above, log=True).set_title("What each learner loses, against the optimum")
        rb.plots.raster(stretch, ax=below).set_title("likelihood-ucb after 880 slots; dark: behind a building")
        figure.savefig(given.out)
    print(f"picture: {given.out}")


if __name__ == "__main__":
    main()
