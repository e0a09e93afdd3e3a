"""The pictures of docs/how-to/plots.md, one of each kind and small, and of the example in docs/how-to/reacting-arms.md.

Run with ``python -m benchmarks.gallery`` (about a minute); pictures go to docs/images, or to a folder that is given.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import restless_bandits as rb
from restless_bandits import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DOCS = Path(__file__).resolve().parent.parent / "docs"
FOLDER = DOCS / "images"
PAPER = rb.Problem.builtin("paper-1")
QUEUE = rb.Problem.builtin("queue-5")
THREE_STATES = rb.Problem.builtin("three-states")


def regret(ax: Axes) -> None:
    learners = ["likelihood-ucb", "restless-ucb:anytime=yes", "ts-9", "ucb1"]
    result = rb.simulate(PAPER, learners, 100_000, runs=20, checkpoints="log:13")
    plots.regret(result, ax=ax, log=True)
    ax.set_title("Regret on paper-1, mean of 20 runs with 95 % bands")


def raster(ax: Axes) -> None:
    plots.raster(rb.walk(QUEUE, "whittle", 600, seed=2).part(401, 120), ax=ax)
    ax.set_title("Arms pulled, true states behind: light is good")


def belief(ax: Axes) -> None:
    plots.belief(rb.walk(PAPER, "whittle", 200, seed=2).part(101, 40), ax=ax)
    ax.set_title("What each arm would pay, as far as is known")


def belief_states(ax: Axes) -> None:
    plots.belief(rb.walk(QUEUE, "whittle", 600, seed=2).part(401, 120), arm="steady", ax=ax)
    ax.set_title("What is known of one arm")


def index(ax: Axes) -> None:
    plots.index_map(PAPER, ax=ax)
    ax.set_title("Whittle index on paper-1")


def state_indices(ax: Axes) -> None:
    plots.state_indices(rb.Problem.random_reacting(10, 4, kind="health", seed=1), ax=ax)
    ax.set_title("Ten patients of four states, who react to calls")


def gains(ax: Axes) -> None:
    lines = plots.gain_lines(THREE_STATES, [10, 30, 100, 300, 1000], ["whittle", "id", "lp-update"])
    plots.gains(lines, ax=ax)
    ax.set_title("three-states: 40 % of the arms are pulled")


def occupancy(ax: Axes) -> None:
    plots.occupancy(rb.occupancy(THREE_STATES.with_arms(1000), "whittle", 30, seed=1), ax=ax)
    ax.set_title("three-states, 1000 arms: Whittle's index falls into a cycle")


def transitions(ax: Axes) -> None:
    env = rb.gym.RestlessBanditEnv(QUEUE, horizon=None)
    agent = rb.gym.play(env, "round-robin", slots=4000, seed=1).agent
    plots.transitions(rb.estimate(agent.record), QUEUE, ax=ax)
    ax.set_title("What 4000 slots tell, a thousand of each arm")


def workshop() -> rb.Walk:
    """Return the part of a walk that the page shows, on the problem that the page states."""
    page = (DOCS / "how-to" / "reacting-arms.md").read_text(encoding="utf-8")
    stated = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert stated is not None
    problem = rb.Problem.from_toml(textwrap.dedent(stated[1]), origin="reacting-arms.md")
    return rb.walk(problem, "whittle", 200, seed=2).part(101, 60)


def visits(ax: Axes) -> None:
    plots.raster(workshop(), ax=ax)
    ax.set(title="Visits to three machines: light is as new, dark has failed", xlabel="")


def machine(ax: Axes) -> None:
    plots.belief(workshop(), arm="mill", ax=ax)
    ax.set_title("What the repairman knows of the mill")


def running_times(ax: Axes) -> None:
    times: dict[str, dict[int, float]] = {}
    for spec in ("restless-ucb", "ts-4", "colored-ucrl2:cap=3"):
        for name in ("table-2", "table-3", "table-4"):
            problem = rb.Problem.builtin(name)
            # Once to compile.
            rb.simulate(problem, spec, 100, runs=1, comparator="best-arm")
            result = rb.simulate(problem, spec, 20_000, runs=2, jobs=1, comparator="best-arm")
            times.setdefault(spec, {})[problem.n_arms] = float(result.seconds.mean())
    plots.running_times(times, ax=ax)
    ax.set_title("Runs of 20 000 slots")


PICTURES: dict[str, tuple[tuple[Callable[[Axes], None], ...], tuple[float, float]]] = {
    "regret": ((regret,), (7.6, 3.4)),
    "raster": ((raster,), (7.6, 2.2)),
    "belief": ((belief,), (7.6, 2.8)),
    "belief-states": ((belief_states,), (7.6, 2.8)),
    "index": ((index,), (7.6, 2.4)),
    "state-indices": ((state_indices,), (7.6, 3.0)),
    "gains": ((gains,), (7.6, 3.0)),
    "occupancy": ((occupancy,), (7.6, 2.8)),
    "transitions": ((transitions,), (9.0, 3.2)),
    "maintenance": ((visits, machine), (7.6, 4.4)),
    "running-times": ((running_times,), (6.4, 2.8)),
}
"""The panels of each picture, from above, and its size in inches."""


def main() -> None:
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="pictures to draw; all by default")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.names or PICTURES:
        panels, size = PICTURES[name]
        with plots.style():
            figure = Figure(figsize=size, layout="constrained")
            for draw, ax in zip(panels, figure.subplots(len(panels), squeeze=False)[:, 0], strict=True):
                draw(ax)
            path = given.out / f"{name}.png"
            figure.savefig(path, metadata={"Software": None})
        print(f"{path.name}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
