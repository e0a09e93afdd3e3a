"""What learners earn on many arms, as a share of what Whittle's index earns: ``python -m benchmarks.earnings``.

Problems are ``Problem.random(n_arms=N, n_states=M, seed=11, plays=…)``. Whittle's player knows the problem; its reward
is the measure. Learners that need not know their horizon are read at 1e4 along a run of 1e5. Numbers of arms pick the
problems; what was measured is kept in docs/benchmarks/earnings.json, and the page and its figure are written from it.

``--problems`` plays ten other problems of some sizes once each instead, by the default learner and by ``posterior``.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import restless_bandits as rb
from benchmarks import pages
from restless_bandits import plots
from restless_bandits.simulation.pools import cores

KEPT = "earnings"
SEED = 11
HORIZONS = (10_000, 100_000)
SIZES = (2, 10, 30, 100, 1_000)
RUNS = {2: 16, 10: 16, 30: 8, 100: 4, 1_000: 1}
LEARNERS = ("likelihood-ucb", "posterior", "ts-9", "ucb1", "restless-ucb", "best-arm")
ANEW = ("restless-ucb",)
"""Learners that are told their horizon."""
MOST_SECONDS = 40.0
"""After a first run, there are as many more as fit into this."""
TOO_LONG: dict[str, float] = {"posterior": 400, "likelihood-ucb": 4_000}
"""Moves of all arms beyond which a run of a learner would take several minutes."""


OTHERS = "earnings-problems"
SEEDS = range(501, 511)
"""Of the other problems: none of them was looked at while the default learner was made."""


Earned = list[list[float]]
"""Mean rewards a slot, of every run at every horizon."""


class Setting(NamedTuple):
    n_arms: int
    n_states: int
    plays: int

    @property
    def key(self) -> str:
        return f"N = {self.n_arms}, M = {self.n_states}, plays = {self.plays}"

    def problem(self) -> rb.Problem:
        return rb.Problem.random(n_arms=self.n_arms, n_states=self.n_states, seed=SEED, plays=self.plays)


def settings() -> Iterator[Setting]:
    for n_arms in SIZES:
        for n_states in (2, 4):
            for plays in (1, 5):
                if plays < n_arms:
                    yield Setting(n_arms, n_states, plays)


def earned(problem: rb.Problem, spec: str, runs: int) -> Earned | None:
    """Return the mean rewards a slot of each run at every horizon; None for a learner that cannot play, or not soon."""
    if spec in TOO_LONG and problem.n_arms * max(problem.n_states) ** 2 > TOO_LONG[spec]:
        return None
    try:
        rb.learner(spec).task(problem, HORIZONS[-1])
    except rb.ProblemError:
        return None
    groups = [[horizon] for horizon in HORIZONS] if spec in ANEW else [list(HORIZONS)]
    with tempfile.TemporaryDirectory() as out:
        # The first run tells how many more there is time for, and is not played again.
        started = time.perf_counter()
        _rewards(problem, spec, groups, 1, out)
        return _rewards(problem, spec, groups, min(runs, 1 + int(MOST_SECONDS / (time.perf_counter() - started))), out)


def _rewards(problem: rb.Problem, spec: str, groups: list[list[int]], runs: int, out: str) -> Earned:
    found: Earned = [[] for _ in range(runs)]
    for horizons in groups:
        result = rb.simulate(problem, spec, horizons[-1], runs=runs, checkpoints=horizons, comparator=1.0, out=out)
        for run, rewards in enumerate(result.realised_reward[0] / np.array(horizons)):
            found[run] += rewards.tolist()
    return found


def other_settings() -> list[Setting]:
    """Sizes of the other problems."""
    return [Setting(10, 2, 1), Setting(30, 2, 1), Setting(100, 2, 1), Setting(100, 4, 1)]


def other_shares(setting: Setting, specs: Sequence[str], seed: int) -> dict[str, list[float]]:
    """Return the percentages of Whittle's expected reward at every horizon, by learner."""
    problem = rb.Problem.random(n_arms=setting.n_arms, n_states=setting.n_states, seed=seed)
    found = {}
    for spec, runs in (("whittle", 4), *((spec, 1) for spec in specs)):
        if problem.n_arms * max(problem.n_states) ** 2 <= TOO_LONG.get(spec, math.inf):
            result = rb.simulate(
                problem, spec, HORIZONS[-1], runs=runs, checkpoints=list(HORIZONS), comparator=1.0, jobs=1
            )
            found[spec] = result.expected_reward[0].mean(axis=0)
    whittle = found.pop("whittle")
    return {spec: (100 * earned / whittle).round(3).tolist() for spec, earned in found.items()}


def measure_others(jobs: int, specs: Sequence[str], sizes: Sequence[int]) -> None:
    for setting in other_settings():
        if sizes and setting.n_arms not in sizes:
            continue
        with ProcessPoolExecutor(jobs) as pool:
            shares = list(pool.map(partial(other_shares, setting, specs), SEEDS))
        by_spec = {spec: [one[spec] for one in shares] for spec in shares[0]}
        print(setting.key, {spec: np.mean(values, axis=0).round(2) for spec, values in by_spec.items()}, flush=True)
        kept = pages.load(OTHERS)
        pages.keep(OTHERS, kept | {setting.key: kept.get(setting.key, {}) | by_spec})


def other_table(kept: dict[str, Any]) -> str:
    """The mean over the other problems, and the worst of them, in percent of Whittle's reward."""
    lines = [
        "| | "
        + " | ".join(f"`{spec}`, T = {h:.0e}".replace("e+0", "e") for h in HORIZONS for spec in LEARNERS[:2])
        + " |",
        "|---" * 5 + "|",
    ]
    for key, by_spec in kept.items():
        cells = []
        for t in range(len(HORIZONS)):
            for spec in LEARNERS[:2]:
                shares = np.array(by_spec[spec])[:, t] if spec in by_spec else None
                cells.append("–" if shares is None else f"{shares.mean():.2f} ({shares.min():.1f})")
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tables(kept: dict[str, Any]) -> str:
    """The tables of docs/benchmarks.md: percent of Whittle's reward, the mean and the worst of some runs."""
    lines = []
    for t, horizon in enumerate(HORIZONS):
        lines += [f"T = {horizon:.0e}".replace("e+0", "e"), ""]
        lines += [
            "| | " + " | ".join(f"`{spec}`" for spec in LEARNERS) + " |",
            "|---" * (len(LEARNERS) + 1) + "|",
        ]
        for setting in settings():
            cells = kept.get(setting.key)
            if cells is not None:
                shown = [_share(cells[spec], cells["whittle"], t) for spec in LEARNERS]
                lines.append(f"| {setting.key} | " + " | ".join(shown) + " |")
        lines.append("")
    return "\n".join(lines).rstrip()


def _share(mine: Earned | None, whittle: Earned | None, t: int) -> str:
    if mine is None or whittle is None:
        return "–"
    shares = 100 * np.array(mine)[:, t] / np.array(whittle)[:, t].mean()
    return f"{shares.mean():.1f} ({shares.min():.1f} of {len(shares)})"


def figure(kept: dict[str, Any]) -> None:
    """Shares by the number of arms, for one play: a panel for each number of states and horizon."""
    from matplotlib.figure import Figure

    with plots.style():
        drawn = Figure(figsize=(10, 7), layout="constrained")
        axes = drawn.subplots(2, 2, sharex=True, sharey=True)
        for row, n_states in enumerate((2, 4)):
            for t, horizon in enumerate(HORIZONS):
                ax = axes[row, t]
                for i, spec in enumerate(LEARNERS):
                    points = [
                        (setting.n_arms, np.mean(cells[spec], axis=0)[t] / np.mean(cells["whittle"], axis=0)[t])
                        for setting in settings()
                        if setting.n_states == n_states and setting.plays == 1
                        if (cells := kept.get(setting.key)) is not None and cells[spec] is not None
                    ]
                    if points:
                        x, y = zip(*points, strict=True)
                        ax.plot(x, 100 * np.array(y), plots.MARKS[i] + "-", color=plots.COLOURS[i], label=spec)
                ax.set_xscale("log")
                ax.set_title(f"{n_states} states, T = {horizon:.0e}".replace("e+0", "e"))
                ax.grid(alpha=0.3)
        for ax in axes[1]:
            ax.set_xticks(SIZES, [f"{size}" for size in SIZES])
            ax.set_xlabel("arms")
        for ax in axes[:, 0]:
            ax.set_ylabel("% of Whittle's reward")
        drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LEARNERS))
        drawn.savefig(pages.FOLDER / "earnings.png", dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*", type=int, help="only problems with so many arms; all by default")
    parser.add_argument("--learner", choices=LEARNERS, help="only this one; the others stay as they were measured")
    parser.add_argument("--problems", action="store_true", help="ten other problems of some sizes instead")
    parser.add_argument(
        "--jobs", type=int, default=cores(), help="how many of those play at a time; all cores by default"
    )
    chosen = parser.parse_args()
    if chosen.problems:
        measure_others(chosen.jobs, [chosen.learner] if chosen.learner else LEARNERS[:2], chosen.arms)
        pages.write()
        return
    for setting in settings():
        if chosen.arms and setting.n_arms not in chosen.arms:
            continue
        problem = setting.problem()
        cells = pages.load(KEPT)[setting.key] if chosen.learner else {}
        for spec in [chosen.learner] if chosen.learner else ("whittle", *LEARNERS):
            started = time.perf_counter()
            cells[spec] = earned(problem, spec, RUNS[setting.n_arms])
            shown = _share(cells[spec], cells["whittle"], 1)
            print(f"{setting.key}, {spec}: {shown} % at T = 1e5, {time.perf_counter() - started:.1f} s", flush=True)
        pages.keep(KEPT, pages.load(KEPT) | {setting.key: cells})
    figure(pages.load(KEPT))
    pages.write()


if __name__ == "__main__":
    main()
