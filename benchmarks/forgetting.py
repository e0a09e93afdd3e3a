"""Agents on arms that change, and the test that tells them: ``python -m benchmarks.forgetting [loss] [delay] [rate]``.

``loss``: what the default learner loses on the problems of ``benchmarks.changing`` with and without forgetting. Every
decision is priced by the bias of the exact solution of its piece, so that luck with states and rewards does not count;
of an arm not seen since a change the price is that of a belief under the new chain. Agents with and without forgetting
meet the same states and rewards.

``delay``: pulls until an alarm, for changes of one arm. ``rate``: false alarms on arms that do not change, at rates of
alarms that are high enough to count them, and on the built-in problems at the rate by default.

What was measured is kept in docs/benchmarks/forgetting.json; docs/theory/changes.md and its picture are written from
it.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import restless_bandits as rb
from benchmarks import changing, pages
from restless_bandits import plots
from restless_bandits.learning.change_detection import ALARM_RATE, alarm_threshold
from restless_bandits.learning.change_detection.detector import ArmChangeDetector
from restless_bandits.learning.observations import Observation
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.registry import DEFAULT
from restless_bandits.simulation.engine import GapTable

KEPT = "forgetting"
PAGE = pages.DOCS / "theory" / "changes.md"
PICTURE = pages.FOLDER / "forgetting.png"
RUNS = 5
POINTS = 200
"""Slots at which the curves of the picture are kept."""
WAYS: dict[str, dict[str, Any]] = {
    "as before": {"on_change": "ignore"},
    "forgetting": {"on_change": "forget"},
    "forgetting all": {"on_change": "forget-all"},
    "memory of 20 000": {"on_change": "ignore", "memory": 20_000},
}


class Played(NamedTuple):
    """One run: gaps of all decisions, and the alarms."""

    gaps: list[float]
    alarms: list[list[int]]
    """Arm, slot, and about the first slot after the change."""


@cache
def prices(name: str) -> list[GapTable]:
    """Return what every decision costs in each piece of a problem."""
    found = [GapTable.of(rb.oracles.exact(piece.problem)) for piece in changing.problems()[name].pieces]
    return [price for price in found if price is not None]


def play(job: tuple[str, str, int]) -> Played:
    """Play an agent on a problem in one of the ways; return sums of gaps at ``POINTS`` slots."""
    name, way, run = job
    problem = changing.problems()[name]
    agent = rb.Agent(DEFAULT, problem.task(None), seed=run, **WAYS[way])
    rng = np.random.default_rng([run, 7])
    n, slots = problem.n_arms, changing.HORIZON
    last, elapsed = np.zeros((slots, n), dtype=np.int64), np.ones((slots, n), dtype=np.int64)
    pulled = np.zeros(slots, dtype=np.int64)
    states = [arm.n_states - 1 if arm.initial is None else arm.initial for arm in problem.arms]
    seen, since = list(states), [1] * n
    firsts = [piece.first for piece in problem.pieces]
    with warnings.catch_warnings(action="ignore"):  # of assumptions that some pieces violate
        for slot in range(slots):
            if slot + 1 in firsts:
                arms = problem.pieces[firsts.index(slot + 1)].problem.arms
                rows = [np.cumsum(arm.one_step, axis=1).tolist() for arm in arms]
                means = [arm.rewards.tolist() for arm in arms]
            luck = rng.random(n + 1).tolist()
            states = [
                sum(u >= end for end in rows[i][s][:-1]) for i, (u, s) in enumerate(zip(luck, states, strict=False))
            ]
            last[slot], elapsed[slot] = seen, since
            arm = agent.ask()
            assert isinstance(arm, int)
            pulled[slot], state = arm, states[arm]
            agent.tell(state, float(luck[-1] < means[arm][state]))
            since = [one + 1 for one in since]
            seen[arm], since[arm] = state, 1
    gaps = np.zeros(slots)
    for price, first, end in zip(prices(name), firsts, [*firsts[1:], slots + 1], strict=True):
        available = slice(max(first - 1, 1), end - 1)
        places = price.beliefs.index(price.beliefs.locate(last[available], elapsed[available]))
        gaps[available] = price.gap[places, pulled[available]]
    sums = np.cumsum(gaps)[np.linspace(0, slots - 1, POINTS).astype(int)]
    return Played(sums.round(1).tolist(), [[one.arm, one.slot, one.since] for one in agent.alarms])


def losses(runs: int) -> dict[str, Any]:
    """Return all runs, by problem and way."""
    jobs = [(name, way, run) for name in changing.problems() for way in WAYS for run in range(runs)]
    with ProcessPoolExecutor() as pool:
        played = list(pool.map(play, jobs))
    found: dict[str, Any] = {name: {way: [] for way in WAYS} for name in changing.problems()}
    for (name, way, _), one in zip(jobs, played, strict=True):
        found[name][way].append(one._asdict())
    return found


class Pulls:
    """One arm that is pulled after random waits, and the lookout for its changes."""

    def __init__(self, n_states: int, rng: np.random.Generator, wait: float, distribution: str) -> None:
        self.lookout = ArmChangeDetector(n_states, ZERO_TO_ONE, fixed=False)
        self.n_states, self.rng, self.wait, self.distribution = n_states, rng, wait, distribution
        self.state, self.last, self.slot = 0, n_states, 0
        self._laws: dict[tuple[bytes, int], Any] = {}

    def pull(self, chain: Any, rewards: Sequence[float], threshold: float) -> bool:
        """Pull it once, and return whether an alarm was raised."""
        elapsed = int(self.rng.geometric(self.wait))
        key = chain.tobytes(), elapsed
        if key not in self._laws:
            self._laws[key] = np.cumsum(np.linalg.matrix_power(chain, elapsed), axis=1)
        self.state = min(int(np.searchsorted(self._laws[key][self.state], self.rng.random())), self.n_states - 1)
        mean = rewards[self.state]
        if self.distribution == "bernoulli":
            reward = float(self.rng.random() < mean)
        else:
            reward = float(self.rng.beta(8 * mean + 1e-9, 8 * (1 - mean) + 1e-9))
        self.slot += elapsed
        self.lookout.enter(Observation(self.slot, 0, self.last, elapsed, self.state, reward))
        self.lookout.tell()
        self.last = self.state
        found = self.lookout.check(self.slot, (self.state, self.slot), (), threshold)
        if found:
            self.lookout.restart(self.slot + 1)
        return found is not None


def birth_death(n: int, down: float, up: float) -> Any:
    chain = np.zeros((n, n))
    for s in range(n):
        for k, chance in ((s - 1, down), (s + 1, up)):
            if 0 <= k < n:
                chain[s, k] = chance
        chain[s, s] = 1 - chain[s].sum()
    return chain


PAPER, PAPER_REWARDS = np.array([[0.7, 0.3], [0.2, 0.8]]), (1.0, 0.0)
QUEUE, QUEUE_REWARDS = birth_death(5, 0.3, 0.2), (0.9, 0.7, 0.5, 0.3, 0.1)
CHANGES: dict[str, tuple[Any, Sequence[float], Any, Sequence[float], str]] = {
    "paper-1, .7/.8 → .4/.5": (PAPER, PAPER_REWARDS, np.array([[0.4, 0.6], [0.5, 0.5]]), PAPER_REWARDS, "bernoulli"),
    "paper-1, .7/.8 → .6/.8": (PAPER, PAPER_REWARDS, np.array([[0.6, 0.4], [0.2, 0.8]]), PAPER_REWARDS, "bernoulli"),
    "paper-1, reward 1 → .8": (PAPER, PAPER_REWARDS, PAPER, (0.8, 0.0), "bernoulli"),
    "binary, reward .8 → .6": (PAPER, (0.8, 0.1), PAPER, (0.6, 0.1), "bernoulli"),
    "beta, reward .8 → .6": (PAPER, (0.8, 0.1), PAPER, (0.6, 0.1), "beta"),
    "5 states, moves .3/.2 → .2/.3": (QUEUE, QUEUE_REWARDS, birth_death(5, 0.2, 0.3), QUEUE_REWARDS, "bernoulli"),
}
WAITS = {"every slot": 1.0, "every 5th": 0.2}
BEFORE = (1_000, 10_000)
MOST = 5_000
"""Pulls after a change in which an alarm is waited for."""
REPEATS = 20


def delays(job: tuple[str, str, int]) -> list[int]:
    """Return the pulls from a change to its alarm in every repeat; more than ``MOST`` where there was none."""
    name, wait, pulls = job
    chain, rewards, later, later_rewards, distribution = CHANGES[name]
    threshold = alarm_threshold(ALARM_RATE, 2)
    found = []
    for repeat in range(REPEATS):
        arm = Pulls(len(chain), np.random.default_rng([repeat, pulls]), WAITS[wait], distribution)
        for _ in range(pulls):
            arm.pull(chain, rewards, threshold)
        found.append(next((i for i in range(1, MOST + 1) if arm.pull(later, later_rewards, threshold)), MOST + 1))
    return found


STEADY: dict[str, tuple[Any, Sequence[float], float, str]] = {
    "paper-1, every slot": (PAPER, PAPER_REWARDS, 1.0, "bernoulli"),
    "paper-1, every 5th": (PAPER, (0.9, 0.2), 0.2, "bernoulli"),
    "paper-1, every 100th": (PAPER, (0.9, 0.2), 0.01, "bernoulli"),
    "slow (.995/.99), every slot": (np.array([[0.995, 0.005], [0.01, 0.99]]), (0.8, 0.3), 1.0, "bernoulli"),
    "slow (.995/.99), every 5th": (np.array([[0.995, 0.005], [0.01, 0.99]]), (0.8, 0.3), 0.2, "bernoulli"),
    "fast (.1/.2), beta rewards": (np.array([[0.1, 0.9], [0.8, 0.2]]), (0.5, 0.4), 0.5, "beta"),
    "3 states, beta rewards, every 2nd": (birth_death(3, 0.3, 0.2), (0.9, 0.5, 0.2), 0.5, "beta"),
    "5 states, every slot": (QUEUE, QUEUE_REWARDS, 1.0, "bernoulli"),
}
ASKED = 0.01
"""Alarms a slot that are asked for where they are to be counted."""
STEADY_PULLS = 40_000


def false_alarms(name: str) -> list[float]:
    """Return slots, false alarms, and the mean number that is allowed, with ``ASKED`` alarms a slot."""
    chain, rewards, wait, distribution = STEADY[name]
    arm = Pulls(len(chain), np.random.default_rng(len(name)), wait, distribution)
    threshold = alarm_threshold(ASKED, 1)
    alarms = sum(arm.pull(chain, rewards, threshold) for _ in range(STEADY_PULLS))
    return [arm.slot, alarms, ASKED * arm.slot]


BUILTIN_RUNS = 2


def builtin_alarms(job: tuple[str, int]) -> int:
    """Return the alarms of the default learner in 1e5 slots of a problem that does not change."""
    name, run = job
    with warnings.catch_warnings(action="ignore"):
        problem = rb.Problem.builtin(name)
        agent = rb.Agent(DEFAULT, problem.task(None), seed=run, on_change="forget")
        rng = np.random.default_rng([run, 11])
        rows = [np.cumsum(arm.one_step, axis=1).tolist() for arm in problem.arms]
        means = [arm.rewards.tolist() for arm in problem.arms]
        states = [0] * problem.n_arms
        for _ in range(changing.HORIZON):
            luck = rng.random(problem.n_arms + 1).tolist()
            states = [
                sum(u >= end for end in rows[i][s][:-1]) for i, (u, s) in enumerate(zip(luck, states, strict=False))
            ]
            arm = agent.ask()
            assert isinstance(arm, int)
            mean = means[arm][states[arm]]
            fixed = problem.arms[arm].reward_law == "fixed"
            agent.tell(states[arm], mean if fixed else float(luck[-1] < mean))
    return len(agent.alarms)


def mapped(work: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    with ProcessPoolExecutor() as pool:
        return list(pool.map(work, jobs))


def loss_table(kept: dict[str, Any]) -> str:
    heads = ["problem", *WAYS, "share: forgetting, forgetting all", "alarms a run"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, ways in kept["loss"].items():
        ends = {way: np.array([run["gaps"][-1] for run in runs]) for way, runs in ways.items()}
        cells = [f"{end.mean():.0f} ± {end.std(ddof=1) / math.sqrt(len(end)):.0f}" for end in ends.values()]
        shares = [f"{ends[way].mean() / ends['as before'].mean():.2f}" for way in ("forgetting", "forgetting all")]
        alarms = [
            f"{np.mean([len(run['alarms']) for run in ways[way]]):.1f}" for way in ("forgetting", "forgetting all")
        ]
        lines.append(f"| {name} | {' | '.join(cells)} | {', '.join(shares)} | {', '.join(alarms)} |")
    return "\n".join(lines)


def delay_table(kept: dict[str, Any]) -> str:
    heads = [f"pulled {wait}, {before} before" for wait in WAITS for before in BEFORE]
    lines = [f"| change | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in CHANGES:
        found = [np.array(kept["delay"][f"{name}; {wait}; {before}"]) for wait in WAITS for before in BEFORE]
        lines.append(f"| {name} | {' | '.join(_delay(one) for one in found)} |")
    return "\n".join(lines)


def _delay(pulls: Any) -> str:
    middle, late = (f"{x:.0f}" if x <= MOST else f"over {MOST}" for x in np.quantile(pulls, [0.5, 0.9]))
    return f"{middle} ({late})"


def rate_table(kept: dict[str, Any]) -> str:
    lines = ["| arm | slots | allowed | false alarms |", "|---|---|---|---|"]
    for name, (slots, alarms, allowed) in kept["rate"].items():
        lines.append(f"| {name} | {slots:.0f} | {allowed:.0f} | {alarms:.0f} |")
    return "\n".join(lines)


def builtin_sentence(kept: dict[str, Any]) -> str:
    runs = sum(len(alarms) for alarms in kept["builtin"].values())
    alarms = sum(sum(alarms) for alarms in kept["builtin"].values())
    return (
        f"On the {len(kept['builtin'])} built-in problems, which do not change, the default learner raised {alarms} "
        f"alarms in {runs} runs of 1e5 slots."
    )


def figure(kept: dict[str, Any]) -> None:
    """What was lost by slot, with and without forgetting; alarms of the first run are marked below."""
    from matplotlib.figure import Figure

    slots = np.linspace(0, changing.HORIZON - 1, POINTS)
    with plots.style():
        drawn = Figure(figsize=(10, 7), layout="constrained")
        axes = drawn.subplots(2, 2, sharex=True)
        for ax, (name, ways) in zip(axes.flat, kept["loss"].items(), strict=True):
            for i, (way, runs) in enumerate(ways.items()):
                curves = np.array([run["gaps"] for run in runs])
                ax.plot(slots, curves.mean(axis=0), color=plots.COLOURS[i], label=way)
                ax.fill_between(slots, curves.min(axis=0), curves.max(axis=0), color=plots.COLOURS[i], alpha=0.15, lw=0)
            for change in changing.SLOTS:
                ax.axvline(change, color="0.6", lw=0.8, ls=":")
            marks = [slot for _, slot, _ in ways["forgetting"][0]["alarms"]]
            ax.plot(marks, np.zeros(len(marks)), "v", color=plots.COLOURS[1], label="alarms of one run", clip_on=False)
            ax.set_title(name)
            ax.set_ylim(bottom=0)
        for ax in axes[1]:
            ax.set_xlabel("slot")
        for ax in axes[:, 0]:
            ax.set_ylabel("regret")
        drawn.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        drawn.savefig(PICTURE, dpi=110)


def written(page: str) -> str:
    """Return docs/theory/changes.md as the kept results say."""
    kept = pages.load(KEPT)
    parts = {"loss": loss_table, "delay": delay_table, "rate": rate_table, "builtin": builtin_sentence}
    return pages.filled(page, {name: lambda part=part: part(kept) for name, part in parts.items()})  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", choices=["loss", "delay", "rate", []], help="all by default")
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args()
    parts = asked.parts or ["loss", "delay", "rate"]
    if "delay" in parts:
        jobs = [(name, wait, before) for name in CHANGES for wait in WAITS for before in BEFORE]
        names = [f"{name}; {wait}; {before}" for name, wait, before in jobs]
        pages.keep(KEPT, pages.load(KEPT) | {"delay": dict(zip(names, mapped(delays, jobs), strict=True))})
        print(delay_table(pages.load(KEPT)), flush=True)
    if "rate" in parts:
        rates = dict(zip(STEADY, mapped(false_alarms, STEADY), strict=True))
        pages.keep(KEPT, pages.load(KEPT) | {"rate": rates})
        print(rate_table(pages.load(KEPT)), flush=True)
        cells = [(name, run) for name in rb.builtin_problems(()) for run in range(BUILTIN_RUNS)]
        counts = mapped(builtin_alarms, cells)
        builtin: dict[str, list[int]] = {}
        for (name, _), count in zip(cells, counts, strict=True):
            builtin.setdefault(name, []).append(count)
        pages.keep(KEPT, pages.load(KEPT) | {"builtin": builtin})
        print(builtin_sentence(pages.load(KEPT)), flush=True)
    if "loss" in parts:
        pages.keep(KEPT, pages.load(KEPT) | {"loss": losses(asked.runs)})
        print(loss_table(pages.load(KEPT)), flush=True)
    if PAGE.exists() and {"loss", "delay", "rate", "builtin"} <= pages.load(KEPT).keys():
        figure(pages.load(KEPT))
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
