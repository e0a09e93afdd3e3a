"""Planning for arms that are all observed: speed, accuracy and losses beside peers, ``python -m benchmarks.planning``.

Words pick the rows that hold them all. Every row runs in a process of its own with one thread, on compiled kernels that
are loaded before. Seconds are those of the processor, the least of some repetitions. A *peer* does the same work in the
same process: markovianbandit-pkg for indices, HiGHS for bounds, a loop in NumPy for simulations, Whittle's index for
the losses of the default policy.

Results are kept in docs/benchmarks/planning.json, row by row, and docs/benchmarks.md is written from them. Published
numbers are computed by ``python -m benchmarks.planning_instances``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy

import restless_bandits as rb
from benchmarks import pages
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.oracles.observed import ObservedArms, relax_observed, sweep_arms
from restless_bandits.oracles.observed.planners import observed_policy, observed_relaxation
from restless_bandits.oracles.observed.rollout import ObservedRun, ObservedWorld
from restless_bandits.policies.observed import PriorityPolicy

KEPT = "planning"
REPEATS = 5
SEED = 5
PEOPLE = 200_000
"""Arms of the weekly list."""
FAMILIES = ("dense", "sparse", "nearly deterministic", "absorbing", "rested", "slow")


class Found(NamedTuple):
    """What was measured, the same of a peer, and their number of which the target speaks."""

    found: float
    peer: float | None
    judged: float


class Row(NamedTuple):
    """A name, the target with its direction, the unit, the name of the peer, and a function that measures."""

    name: str
    target: float
    at_least: bool
    unit: str
    peer: str
    measure: Callable[[], Found]

    def met(self, judged: float) -> bool:
        return judged >= self.target if self.at_least else judged <= self.target


def processor(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Return the least processor seconds of some work."""
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


def arrays(n_arms: int, n_states: int, seed: int = SEED, concentration: float = 1.0) -> tuple[Array, Array]:
    """Return random chains (arm, state, action, next state) and mean rewards (arm, state, action)."""
    rng = np.random.default_rng([seed, n_arms, n_states])
    if n_states == 2 and concentration == 1.0:
        first = rng.random((n_arms, 2, 2))
        chains = np.stack([first, 1 - first], axis=3)
    else:
        chains = rng.dirichlet(np.full(n_states, concentration), (n_arms, n_states, 2))
    return chains, rng.random((n_arms, n_states, 2))


def problem_of(n_arms: int, n_states: int, plays: int, seed: int = SEED, **options: Any) -> rb.Problem:
    chains, rewards = arrays(n_arms, n_states, seed)
    return rb.Problem.from_arrays(chains, rewards, plays=plays, reward_axes="nsa", reward_law="fixed", **options)


def separate(chains: Array, rewards: Array) -> tuple[Array, Array, Array, Array]:
    """Return chains and rewards of pulling and of resting."""
    active, passive, paid, resting = (
        np.ascontiguousarray(part) for part in (chains[:, :, 1], chains[:, :, 0], rewards[..., 1], rewards[..., 0])
    )
    return active, passive, paid, resting


def plain(value: float) -> Found:
    return Found(value, None, value)


def batch(n_arms: int, n_states: int) -> Found:
    arms = separate(*arrays(n_arms, n_states))
    sweep_arms(*(part[:2] for part in arms))
    return plain(processor(lambda: sweep_arms(*arms).indices(n_states)))


def one_arm(n_states: int, many: int) -> Found:
    """Return the seconds of an index, and of the peer's, which checks indexability too."""
    import markovianbandit

    chains, rewards = arrays(many, n_states)
    arms = [
        rb.Arm(c[:, 0], r[:, 1], active_transitions=c[:, 1], passive_rewards=r[:, 0])
        for c, r in zip(chains, rewards, strict=True)
    ]
    active, passive, paid, resting = separate(chains, rewards)

    def ours() -> None:
        for arm in arms:
            rb.oracles.whittle_index(arm, observed="all")

    def theirs() -> None:
        for given in zip(passive, active, resting, paid, strict=True):
            markovianbandit.restless_bandit_from_P0P1_R0R1(*given).whittle_indices(check_indexability=True)

    ours()
    theirs()
    pairs = [(processor(ours, 1), processor(theirs, 1)) for _ in range(REPEATS)]
    found, peer = (min(one) / many for one in zip(*pairs, strict=True))
    return Found(found, peer, peer / found)


def differences() -> Found:
    """Return the largest difference from the peer's indices on 180 arms, infinite if a verdict differs."""
    import markovianbandit

    worst = 0.0
    for number in range(180):
        n, discount = 2 + number % 20, (1.0, 0.95)[number % 2]
        chains, rewards = arrays(1, n, 100 + number, (1.0, 0.1)[number % 3 == 0])
        chains = chains * 0.999 + 0.001 / n
        active, passive, paid, resting = separate(chains, rewards)
        other = markovianbandit.restless_bandit_from_P0P1_R0R1(passive[0], active[0], resting[0], paid[0])
        arm = rb.Arm(passive[0], paid[0], active_transitions=active[0], passive_rewards=resting[0])
        mine = rb.oracles.whittle_index(arm, observed="all", discount=None if discount == 1.0 else discount)
        if mine.indexable != other.is_indexable(discount=discount):
            return plain(np.inf)
        if mine.indexable:
            worst = max(worst, float(np.abs(mine.table[:, 0] - other.whittle_indices(discount=discount)).max()))
    return plain(worst)


def linear_program(arms: ObservedArms) -> float:
    """Return the value of the relaxation over state-action frequencies, by HiGHS."""
    group = arms.groups[0]
    many, n = group.n_kinds, group.n_states
    paid = np.concatenate([group.active_rewards, group.passive_rewards], axis=1).reshape(-1)
    blocks = [np.hstack([np.eye(n) - one.T for one in pair]) for pair in zip(group.active, group.passive, strict=True)]
    ones = scipy.sparse.kron(scipy.sparse.identity(many), np.ones((1, 2 * n)))
    pulls = scipy.sparse.csr_array(np.tile(np.repeat([1.0, 0.0], n), many)[None])
    equations: Any = scipy.sparse.vstack([scipy.sparse.block_diag(blocks), ones, pulls])
    right = np.concatenate([np.zeros(many * n), np.ones(many), [arms.plays]])
    return -float(scipy.optimize.linprog(-paid, A_eq=equations, b_eq=right, method="highs").fun or 0.0)


def bound(n_arms: int, n_states: int, *, beside_highs: bool = False) -> Found:
    arms = ObservedArms.of(problem_of(n_arms, n_states, n_arms // 5))
    relax_observed(arms)
    found = processor(lambda: relax_observed(arms))
    if not beside_highs:
        return plain(found)
    return Found(found, processor(lambda: linear_program(arms), 1), found)


def bound_difference() -> Found:
    """Return the largest relative difference of the bound from HiGHS on 40 problems."""
    worst = 0.0
    for number in range(40):
        arms = ObservedArms.of(problem_of(20, 2 + number % 9, 1 + number % 19, 300 + number))
        expected = linear_program(arms)
        worst = max(worst, abs(relax_observed(arms).bound / expected - 1))
    return plain(worst)


def slots(n_arms: int, many: int, count: int = 1, n_states: int = 2) -> Found:
    """Return slots a second of the Lagrangian index, and of a loop in NumPy where each arm is a kind."""
    problem = problem_of(n_arms, n_states, n_arms * count // 5, count=[count] * n_arms)
    policy, world = observed_policy(problem, "lp-index"), ObservedWorld(problem)
    assert isinstance(policy, PriorityPolicy)

    def play(length: int) -> None:
        ObservedRun(world, np.array([length]), seed=0, run=0).play(policy)

    play(2)
    found = many / processor(partial(play, many), 3)
    if count > 1:
        return plain(found)
    few = max(3, many // 100)
    return Found(found, few / processor(partial(numpy_play, problem, policy.score, few), 1), found)


def numpy_play(problem: rb.Problem, score: Array, length: int) -> None:
    """Play an index policy as a loop in NumPy does."""
    group, rng = problem.groups[0], np.random.default_rng(0)
    many, n = group.n_kinds, group.n_states
    ends = np.stack([group.passive, group.active], axis=2).cumsum(axis=3)
    paid = np.stack([group.passive_rewards, group.active_rewards], axis=2)
    arms, states = np.arange(many), np.zeros(many, dtype=np.int64)
    for _ in range(length):
        pulled = np.zeros(many, dtype=np.int64)
        pulled[np.argpartition(-score[arms * n + states], problem.plays)[: problem.plays]] = 1
        paid[arms, states, pulled].sum()
        states = (rng.random(many)[:, None] >= ends[arms, states, pulled][:, :-1]).sum(axis=1)


def lost(problem: rb.Problem, oracle: str = "auto") -> float:
    """Return the simulated loss of a policy below the bound, in per cent."""
    found = rb.solve(problem, oracle)
    assert found.gain is not None
    return 100 * (1 - found.gain / observed_relaxation(problem).bound)


def builtin_loss(name: str) -> Found:
    problem = rb.Problem.builtin(name).with_arms(1000)
    found = lost(problem)
    return Found(found, lost(problem, "whittle"), found)


def random_loss(n_arms: int) -> Found:
    """Return the largest loss of eight problems, with and without pay at rest."""
    found, peer = [], []
    for number in range(8):
        chains, rewards = arrays(n_arms, (2, 3, 5, 10)[number % 4], 400 + number)
        rewards[..., 0] *= number < 4
        problem = rb.Problem.from_arrays(chains, rewards, plays=n_arms // 5, reward_axes="nsa", reward_law="fixed")
        found.append(lost(problem))
        peer.append(lost(problem, "whittle"))
    return Found(max(found), max(peer), max(found))


def small_problems(family: str) -> Iterator[rb.Problem]:
    """Yield problems of at most 20 000 joint states."""
    for number in range(10):
        rng = np.random.default_rng([SEED, FAMILIES.index(family), number])
        n = int(rng.integers(2, 6))
        many = int(rng.integers(2, int(np.log(20_000) / np.log(n)) + 1))
        chains = rng.dirichlet(np.full(n, 0.1 if family == "sparse" else 1.0), (many, n, 2))
        if family == "nearly deterministic":
            chains = 0.99 * np.eye(n)[rng.integers(0, n, (many, n, 2))] + 0.01 * chains
        elif family == "absorbing":
            chains[:, -1, 0] = np.eye(n)[-1]
        elif family == "rested":
            chains[:, :, 0] = np.eye(n)
        elif family == "slow":
            chains = 0.001 * chains + 0.999 * np.eye(n)[:, None]
        plays = int(rng.choice([1, many // 2, many - 1]))
        rewards = rng.random((many, n, 2))
        yield rb.Problem.from_arrays(
            chains, rewards, plays=plays, at_most=number % 2 == 1, reward_axes="nsa", reward_law="fixed"
        )


def certified(family: str) -> Found:
    """Return the share of small problems whose solution by ``auto`` is certified."""
    return plain(float(np.mean([rb.solve(problem).certified for problem in small_problems(family)])))


def people() -> tuple[rb.Problem, IntArray]:
    names = [f"person {i}" for i in range(PEOPLE)]
    states = np.random.default_rng(SEED).integers(0, 2, PEOPLE)
    return problem_of(PEOPLE, 2, 1000, observed="all", names=names), states


def next_people() -> Found:
    """Return the seconds of the first list of a problem, names included."""
    problem, states = people()
    rb.rank(problem.with_plays(7), states)

    def work(plays: int) -> object:
        return rb.rank(problem, states, plays=plays, exclude=["person 3"]).names

    return plain(min(processor(partial(work, plays), 1) for plays in (1000, 2000, 3000)))


def solved_people() -> Found:
    rb.solve(problem_of(50, 2, 10))
    problem, _ = people()
    return plain(processor(lambda: rb.solve(problem), 1))


def peak_of_people() -> Found:
    rb.solve(people()[0])
    return plain(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def _rows() -> list[Row]:
    mb, highs, numpy_loop, whittle = "markovianbandit-pkg", "HiGHS", "NumPy", "whittle"
    return [
        Row("index of 1e6 arms of two states", 0.1, False, "s", "", partial(batch, 1_000_000, 2)),
        Row("index of 1e4 arms of ten states", 0.2, False, "s", "", partial(batch, 10_000, 10)),
        Row("index of an arm of 1000 states", 1.0, False, "s", "", partial(batch, 1, 1000)),
        *(
            Row(f"index of an arm of {n} states, times as fast", 3.0, True, "s", mb, partial(one_arm, n, many))
            for n, many in ((10, 200), (100, 20), (1000, 1))
        ),
        Row("indices of 180 arms, difference", 1e-9, False, "", mb, differences),
        Row("bound of 1e6 arms of two states", 0.3, False, "s", "", partial(bound, 1_000_000, 2)),
        Row("bound of 1000 arms of five states", 0.3, False, "s", highs, partial(bound, 1000, 5, beside_highs=True)),
        Row("bounds of 40 problems, relative difference", 1e-9, False, "", highs, bound_difference),
        *(
            Row(f"simulation, N = {n:,}", wanted, True, "slots/s", numpy_loop, partial(slots, n, many))
            for n, wanted, many in ((100, 1e6, 1_000_000), (10_000, 1.5e4, 20_000), (1_000_000, 100, 100))
        ),
        *(
            Row(f"simulation by counts, 1e6 arms of ten kinds, {n} states", 2e5, True, "slots/s", "", play)
            for n, play in ((n, partial(slots, 10, 200_000, 100_000, n)) for n in (2, 3))
        ),
        *(
            Row(f"default policy below the bound, {name}", most, False, "%", whittle, measure)
            for name, most, measure in (
                ("random arms, N = 100", 0.5, partial(random_loss, 100)),
                ("random arms, N = 1000", 0.1, partial(random_loss, 1000)),
                ("three-states, N = 1000", 1.5, partial(builtin_loss, "three-states")),
                ("conveyor-8, N = 1000", 2.5, partial(builtin_loss, "conveyor-8")),
            )
        ),
        *(Row(f"small problems certified, {name}", 1.0, True, "", "", partial(certified, name)) for name in FAMILIES),
        Row(f"rank of {PEOPLE:,} arms", 0.3, False, "s", "", next_people),
        Row(f"solve of {PEOPLE:,} arms", 2.0, False, "s", "", solved_people),
        Row(f"solve of {PEOPLE:,} arms, memory", 1.0, False, "GB", "", peak_of_people),
    ]


ROWS = _rows()


def table(kept: dict[str, list[float | None]]) -> str:
    """The table of docs/benchmarks.md; a row that was never measured is left out."""
    lines = ["| work | wanted | measured | peer | met |", "|---|---|---|---|---|"]
    for row in ROWS:
        if row.name in kept:
            found, peer, judged = kept[row.name]
            assert found is not None
            assert judged is not None
            wanted = f"{'≥' if row.at_least else '≤'} {_shown(row.target)}"
            ratio = f" ({judged:.1f} times)" if judged != found else ""
            beside = "" if peer is None else f"{row.peer}: {_shown(peer)}"
            unit = f" {row.unit}" if row.unit else ""
            met = "yes" if row.met(judged) else "**no**"
            wanted += " times" if judged != found else unit
            lines.append(f"| {row.name} | {wanted} | {_shown(found)}{unit}{ratio} | {beside} | {met} |")
    return "\n".join(lines)


def _shown(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only rows whose names hold these; all by default")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row is not None:
        print(json.dumps(ROWS[options.row].measure()))
        return
    one_thread = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    for i, row in enumerate(ROWS):
        if all(word in row.name for word in options.words):
            again = [sys.executable, "-m", "benchmarks.planning", "--row", str(i)]
            printed = subprocess.run(again, capture_output=True, text=True, check=True, env=one_thread).stdout
            kept = pages.load(KEPT) | {row.name: json.loads(printed.splitlines()[-1])}
            pages.keep(KEPT, kept)
            print(table({row.name: kept[row.name]}).splitlines()[-1], flush=True)
    pages.write()


if __name__ == "__main__":
    main()
