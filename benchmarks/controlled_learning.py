"""Learning of observed arms, against planners that know the chains: ``python -m benchmarks.controlled_learning``.

Random problems of ``Problem.random_reacting`` with a tenth of the arms pulled, rewards known, uniform states in slot 1.
All players of a problem meet the same random numbers. *Share* is the reward as a share of that of Whittle's index with
known chains. *Lift* is the reward above random pulls, as a share of what Whittle's index earns above them: where
resting pays too, random pulls earn most of the reward.

What was measured is kept in docs/benchmarks/controlled-learning.json, and the tables of docs/head-to-head.md are
written from it. Of several workers each measures its own CPU time. Names of settings as arguments measure only these,
and the name of the default measures the default anew in the others.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy import stats

import restless_bandits as rb
from benchmarks import pages, reacting
from restless_bandits._internal.validation import Array
from restless_bandits.logs.checks import holm
from restless_bandits.oracles.observed.rollout import ObservedWorld, play_observed
from restless_bandits.policies.observed import PriorityPolicy
from restless_bandits.simulation.observed_engine import learn_observed

KEPT = "controlled-learning"
PAGE = pages.DOCS / "head-to-head.md"
FIRST_SEED = 7000
"""Problems from here on have decided no constant of a learner."""
CHECKPOINTS = (100, 1_000, 10_000, 100_000)
KNOWN = ("whittle", "auto")
DEFAULT = "bonus-posterior"
OTHERS = (
    "posterior",
    "posterior:concentration=2",
    "tsde",
    "ucwhittle:scale=.1",
    "certainty-equivalent",
    "ucwhittle",
    "ucwhittle:scale=.1,form=extreme",
    "random",
    "wiql",
    "wibql",
)
MOST_SLOTS = {
    "ucwhittle": 10_000,
    "ucwhittle:scale=.1,form=extreme": 10_000,
    "random": 10_000,
    "wiql": 1_000,
    "wibql": 1_000,
}
"""The slots of a run of players that are far behind, or plan in every slot."""
LEVEL = 0.05
KINDS = "kinds"
KIND_PROBLEMS, KIND_SLOTS, KIND_FACTOR = 10, (2, 5, 10, 20), 500
"""Problems of 20 kinds, the slots after which their plans are compared, and the arms of a kind."""


@dataclass(frozen=True)
class Setting:
    key: str
    kind: Literal["health", "dirichlet"]
    n_arms: int
    n_states: int
    problems: int
    horizon: int
    asked: tuple[int, float, float, float]
    """The slots, and the least share, worst share and lift to expect."""
    seconds: float | None = None
    """The most CPU seconds of a run of 10 000 slots."""
    first_seed: int = FIRST_SEED

    def problem(self, number: int) -> rb.Problem:
        drawn = rb.Problem.random_reacting(self.n_arms, self.n_states, seed=self.first_seed + number, kind=self.kind)
        group = drawn.groups[0]
        return rb.Problem.from_arrays(
            np.stack([group.passive, group.active], axis=2),
            np.stack([group.passive_rewards, group.active_rewards], axis=2),
            axes="nsaz",
            reward_axes="nsa",
            plays=drawn.plays,
            # The state of slot 1 is uniform, whatever the chains.
            initial=np.full((self.n_arms, self.n_states), 1 / self.n_states),
            reward_law="fixed",
        )


SETTINGS = (
    Setting("health, N = 30, n = 2", "health", 30, 2, 20, 100_000, (10_000, 0.998, 0.994, 0.985), 0.1),
    Setting("dirichlet, N = 30, n = 2", "dirichlet", 30, 2, 20, 100_000, (10_000, 0.9995, 0.998, 0.997)),
    # A look at the problems from 7000 on of this setting has led to wider draws late in long runs: these are others.
    Setting("health, N = 5, n = 2", "health", 5, 2, 20, 100_000, (100_000, 0.999, 0.995, 0.99), first_seed=9000),
    Setting("health, N = 100, n = 5", "health", 100, 5, 10, 100_000, (10_000, 0.995, 0.994, 0.92), 0.6),
    Setting("health, N = 100, n = 2", "health", 100, 2, 10, 100_000, (100_000, 0.9995, 0.999, 0.995)),
    Setting("health, N = 1000, n = 2", "health", 1000, 2, 10, 10_000, (10_000, 0.996, 0.995, 0.97), 2.0),
)
HEAD = "## Observed arms\n"
SECOND_HALF = (
    HEAD
    + """
All states are seen and transitions are unknown: random problems of `Problem.random_reacting`, a tenth of the arms
pulled, rewards known and without noise, uniform states in slot 1. `python -m benchmarks.controlled_learning` measures
and writes this half. No constant of a learner was chosen on these problems.

A cell is *share / worst problem / lift*. The share is the reward divided by that of Whittle's index with known
transitions, on the same random numbers. The lift is the reward above random pulls, divided by what Whittle's index
earns above them: where resting pays too, random pulls earn most of the reward. `whittle` and `auto` know the
transitions. CPU is that of the longest run, for the default that of 10 000 slots.

### What is asked of the default

{asked}

{pulled}

### Is another learner ahead?

Each learner is compared with the default on the same problems and random numbers, for every setting and every T.

{behind}

{tables}

### Kinds

Arms of a kind share their counts. The table has what the plan for the posterior means loses against the plan for the
known transitions, both played by 10 000 arms, mean ± standard error over the problems.

{kinds}"""
)
Played = tuple[dict[str, list[float]], dict[str, float], float]


def played(setting: Setting, number: int, *, default_alone: bool = False) -> Played:
    """Return the reward of each player at each checkpoint, the CPU seconds of its run, and the bound a slot.

    ``default_alone`` leaves out the players besides the default that the kept results have.
    """
    problem = setting.problem(number)
    world = ObservedWorld(problem)
    marks = [mark for mark in CHECKPOINTS if mark <= setting.horizon]
    rewards = {
        name: play_observed(rb.oracles.policy(name, problem), world, np.array(marks), seed=0, run=0)
        .totals.at[:, 0]
        .tolist()
        for name in (KNOWN[:1] if default_alone else KNOWN)
    }
    seconds: dict[str, float] = {}

    def learned(spec: str, to: list[int]) -> list[float]:
        known = spec if spec == "random" else f"{spec}{',' if ':' in spec else ':'}rewards=known"
        started = time.process_time()
        run = learn_observed(rb.learner(known), world, to[-1], np.array(to), seed=0, run=0)
        seconds[spec] = time.process_time() - started
        return [float(reward) for reward in run.totals.at[:, 0]]

    # The default reads the horizon: a run for each, but for those within the first slots.
    rewards[DEFAULT] = learned(DEFAULT, marks[:2])
    for mark in reversed(marks[2:]):
        rewards[DEFAULT].insert(2, learned(DEFAULT, [mark])[0])
    if default_alone:
        return rewards, seconds, 0.0
    for spec in OTHERS:
        rewards[spec] = learned(spec, [mark for mark in marks if mark <= MOST_SLOTS.get(spec, mark)])
    # Random pulls forget their start: the rate goes on.
    rewards["random"] += [mark / MOST_SLOTS["random"] * rewards["random"][-1] for mark in marks[3:]]
    return rewards, seconds, float(rb.oracles.relaxation_bound(problem))


def measured(setting: Setting) -> dict[str, Any]:
    """Return the shares and lifts of a setting by player and checkpoint, and the CPU seconds of a run."""
    played(setting, 0)  # compiles
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(played, [setting] * setting.problems, range(setting.problems)))
    best = np.array([rewards["whittle"] for rewards, _, _ in found])
    least = np.array([rewards["random"] for rewards, _, _ in found])
    bounds = np.array([bound for _, _, bound in found])
    cell: dict[str, Any] = {"marks": [mark for mark in CHECKPOINTS if mark <= setting.horizon]}
    cell["bound"] = [round(float(share), 6) for share in (best[:, -1] / (cell["marks"][-1] * bounds))]
    for player in (*KNOWN, DEFAULT, *OTHERS):
        earned = np.array([rewards[player] for rewards, _, _ in found])
        width = earned.shape[1]
        lift = (earned - least[:, :width]).sum(axis=0) / (best - least)[:, :width].sum(axis=0)
        cpu = [seconds[player] for _, seconds, _ in found if player in seconds]
        cell[player] = {
            "shares": np.round(earned / best[:, :width], 6).tolist(),
            "lift": np.round(lift, 4).tolist(),
            "cpu": round(float(np.mean(cpu)), 3) if cpu else None,
        }
    return cell


def default_anew(setting: Setting, cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kept setting with the default measured anew, on the same problems."""
    played(setting, 0, default_alone=True)  # compiles
    with ProcessPoolExecutor(2) as pool:
        numbers = range(setting.problems)
        found = list(pool.map(partial(played, default_alone=True), [setting] * setting.problems, numbers))
    best, earned = (np.array([rewards[player] for rewards, _, _ in found]) for player in ("whittle", DEFAULT))
    least = best * np.array(cell["random"]["shares"])
    row = {
        "shares": np.round(earned / best, 6).tolist(),
        "lift": np.round((earned - least).sum(axis=0) / (best - least).sum(axis=0), 4).tolist(),
        "cpu": round(float(np.mean([seconds[DEFAULT] for _, seconds, _ in found])), 3),
    }
    return {**cell, DEFAULT: row}


def kind_problem(number: int, kinds: int, count: int, plays: int) -> rb.Problem:
    """Return a "health" problem of kinds of so many arms each."""
    drawn = Setting("", "health", kinds, 2, 0, 0, (0, 0.0, 0.0, 0.0)).problem(number)
    return rb.Problem([arm.of_count(count) for arm in drawn.kinds], plays=plays, observed="all")


def kind_losses(number: int) -> list[list[float]]:
    """Return what the plan for the posterior means loses, of 10 000 arms of 20 kinds and of 20 arms.

    The 20 arms have ``KIND_FACTOR`` times the slots, so both have seen as many steps of each kind.
    """
    many = kind_problem(number, 20, KIND_FACTOR, 1000)
    world, slots = ObservedWorld(many), np.array([2000])
    task: Any = many.task(reveal=["rewards"])
    known = play_observed(rb.oracles.policy("lp-index", many), world, slots, seed=0, run=0).totals.at[-1, 1]
    found = []
    for problem, factor in ((many, 1), (kind_problem(number, 20, 1, 2), KIND_FACTOR)):
        learner, losses = rb.learner(f"{DEFAULT}:rewards=known"), []
        for mark in KIND_SLOTS:
            to = mark * factor
            record = learn_observed(learner, ObservedWorld(problem), to, np.array([to]), seed=0, run=0).record
            plan = rb.learner("certainty-equivalent:rewards=known").plan(
                record, problem.task(reveal=["rewards"]), np.random.default_rng(0)
            )
            assert isinstance(plan.policy, PriorityPolicy)
            policy = replace(plan.policy, layout=task.layout, plays=many.plays)
            earned = play_observed(policy, world, slots, seed=0, run=0).totals.at[-1, 1]
            losses.append(float(1 - earned / known))
        found.append(losses)
    return found


def kinds_measured() -> dict[str, Any]:
    """Return the losses of both, by problem, and the CPU seconds and memory of 100 000 arms of 50 kinds."""
    with ProcessPoolExecutor(2) as pool:
        losses = list(pool.map(kind_losses, range(KIND_PROBLEMS)))
    with ProcessPoolExecutor(1) as pool:
        large = pool.submit(large_run).result()
    return {"losses": np.round(losses, 6).tolist(), "large": large}


def large_run() -> list[float]:
    """Return the CPU seconds, the gigabytes and the share of 100 000 arms of 50 kinds, B = 1000, T = 1000."""
    problem = kind_problem(0, 50, 2000, 1000)
    marks, learner = np.array([1000]), rb.learner(f"{DEFAULT}:rewards=known")
    started = time.process_time()
    run = learn_observed(learner, ObservedWorld(problem), 1000, marks, seed=0, run=0)
    seconds = time.process_time() - started
    best = play_observed(rb.oracles.policy("whittle", problem), ObservedWorld(problem), marks, seed=0, run=0)
    share = run.totals.at[-1, 0] / best.totals.at[-1, 0]
    return [round(seconds, 2), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, round(float(share), 4)]


def kind_table(kept: Mapping[str, Any]) -> str:
    """Return the table of kinds, and a sentence on the large problem."""
    losses, (seconds, memory, share) = np.array(kept[KINDS]["losses"]), kept[KINDS]["large"]
    errors = losses.std(axis=0, ddof=1) / np.sqrt(len(losses))
    means = losses.mean(axis=0)
    heads = [f"{mark:,} and {mark * KIND_FACTOR:,} slots" for mark in KIND_SLOTS]
    lines = [f"| arms | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    names = "10 000 arms of 20 kinds", "20 arms, 500 times the slots"
    for name, mean, error in zip(names, means, errors, strict=True):
        shown = " | ".join(f"{one:.4f} ± {width:.4f}" for one, width in zip(mean, error, strict=True))
        lines.append(f"| {name} | {shown} |")
    lines += [
        "",
        f"100 000 arms of 50 kinds, 1000 pulls in each of 1000 slots: {seconds:.1f} CPU seconds, {memory:.2f} GB, and "
        f"{share:.4f} of the reward of Whittle's index.",
    ]
    return "\n".join(lines)


def comparisons(kept: Mapping[str, Any]) -> Iterator[tuple[str, str, int, Array]]:
    """Yield setting, learner, slots and the shares of the default less those of the learner, by problem."""
    for key, cell in kept.items():
        if key == KINDS:
            continue
        mine = np.array(cell[DEFAULT]["shares"])
        for spec in OTHERS:
            other = np.array(cell[spec]["shares"])
            for place in range(other.shape[1]):
                yield key, spec, cell["marks"][place], mine[:, place] - other[:, place]


def behind(kept: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the comparisons that show the default behind, and a sentence on the largest deficit."""
    listed = list(comparisons(kept))
    tested = [stats.ttest_1samp(gaps, 0.0, alternative="less").pvalue for *_, gaps in listed]
    adjusted = holm([float(p) for p in tested])
    found = [
        f"`{spec}`, {key}, T = {slots:,}: {gaps.mean():+.4f} (adjusted p {p:.3f})"
        for (key, spec, slots, gaps), p in zip(listed, adjusted, strict=True)
        if p <= LEVEL
    ]
    key, spec, slots, gaps = min(listed, key=lambda one: float(one[3].mean()))
    reach = stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
    largest = (
        f"Of {len(listed)} comparisons the largest deficit is {-gaps.mean():.4f} of Whittle's reward, with a 95 % "
        f"interval from {-gaps.mean() - reach:.4f} to {-gaps.mean() + reach:.4f}: against `{spec}` on {key}, "
        f"T = {slots:,}."
    )
    return found, largest


def table(kept: Mapping[str, Any], key: str) -> str:
    """Return the table of a setting: share, worst problem and lift at each checkpoint."""
    cell = kept[key]
    marks = [f"T = {mark:,}" for mark in cell["marks"]]
    bound = np.array(cell["bound"])
    lines = [
        f"### {key}",
        "",
        f"{len(bound)} problems. Whittle's index earns {bound.mean():.4f} of the bound on any policy, at least "
        f"{bound.min():.4f}.",
        "",
        f"| player | {' | '.join(marks)} | CPU of a run |",
        "|---" * (len(marks) + 2) + "|",
    ]
    for player in (*KNOWN, DEFAULT, *OTHERS):
        row = cell[player]
        shares = np.array(row["shares"])
        shown = [
            f"{share:.4f} / {worst:.4f} / {lift:.3f}"
            for share, worst, lift in zip(shares.mean(axis=0), shares.min(axis=0), row["lift"], strict=True)
        ]
        shown += ["–"] * (len(marks) - len(shown))
        cpu = "–" if row["cpu"] is None else f"{row['cpu']:.2f} s"
        lines.append(f"| `{player}` | {' | '.join(shown)} | {cpu} |")
    return "\n".join(lines)


def demands(kept: Mapping[str, Any]) -> str:
    """Return the table of what is asked of the default, and what was measured."""
    lines = [
        "| setting | T | share | worst problem | lift | CPU of 10 000 slots |",
        "|---|---|---|---|---|---|",
    ]
    for setting in SETTINGS:
        if setting.key not in kept:
            continue
        cell, (slots, *asked) = kept[setting.key], setting.asked
        place, row = cell["marks"].index(slots), cell[DEFAULT]
        shares = np.array(row["shares"])[:, place]
        found = [float(shares.mean()), float(shares.min()), float(row["lift"][place])]
        shown = [
            f"{value:.4f} (asked {least}{'' if value >= least else ', **missed**'})"
            for value, least in zip(found, asked, strict=True)
        ]
        cpu = f"{row['cpu']:.2f} s"
        if setting.seconds is not None:
            cpu += f" (asked {setting.seconds}{'' if row['cpu'] <= setting.seconds else ', **missed**'})"
        lines.append(f"| {setting.key} | {slots:,} | {' | '.join(shown)} | {cpu} |")
    return "\n".join(lines)


def verdict(kept: Mapping[str, Any]) -> str:
    found, largest = behind(kept)
    shown = "\n".join(f"- {line}" for line in found)
    start = f"The default is behind in {len(found)} of them at a family-wise level of 5 % (Holm):\n\n{shown}"
    return f"{largest} " + (start if found else "None shows the default behind at a family-wise level of 5 % (Holm).")


def second_half() -> str:
    """Return the part of docs/head-to-head.md on observed arms, as the kept results say."""
    kept = pages.load(KEPT)
    return SECOND_HALF.format(
        asked=demands(kept),
        pulled=pulled_only(),
        behind=verdict(kept),
        tables="\n\n".join(table(kept, setting.key) for setting in SETTINGS if setting.key in kept),
        kinds=kind_table(kept),
    )


def pulled_only() -> str:
    """Return a sentence on arms that are seen only when pulled, from the results of ``benchmarks.reacting``."""
    lifts = np.array(pages.load(reacting.KEPT)["posterior:rewards=known"]["lifts"])[:, -1]
    return (
        f"Arms seen only when pulled, ten of two states: `posterior` with known rewards has a mean lift of "
        f"{lifts.mean():.2f} at T = {reacting.CHECKPOINTS[-1]:,} ([table](learners.md#arms-that-react))."
    )


def main(names: list[str]) -> None:
    for setting in SETTINGS:
        if not names or any(name in setting.key for name in names):
            pages.keep(KEPT, pages.load(KEPT) | {setting.key: measured(setting)})
            print(table(pages.load(KEPT), setting.key), flush=True)
        elif DEFAULT in names:
            kept = pages.load(KEPT)
            pages.keep(KEPT, kept | {setting.key: default_anew(setting, kept[setting.key])})
    if not names or KINDS in names:
        pages.keep(KEPT, pages.load(KEPT) | {KINDS: kinds_measured()})
    kept = pages.load(KEPT)
    print(demands(kept), verdict(kept), sep="\n\n", flush=True)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.partition(HEAD)[0].rstrip() + "\n\n" + second_half() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
