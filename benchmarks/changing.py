"""Problems that change five times within 100 000 slots, and what learners lose: ``python -m benchmarks.changing``.

All are made of built-in problems. Regret is against the optimum of each piece, solved exactly, so a learner that takes
what it saw before a change for the present pays for it here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import restless_bandits as rb
from restless_bandits.registry import DEFAULT

HORIZON = 100_000
SLOTS = (15_001, 30_001, 50_001, 65_001, 85_001)
"""The first slots of the pieces after the first."""
RUNS = 20


def chains_of(problem: rb.Problem) -> list[rb.Arm]:
    """Return the arms of a problem that are chains, as all of those here are."""
    return [arm for arm in problem.arms if isinstance(arm, rb.Arm)]


def exchanged() -> rb.Problem:
    """The two arms of ``paper-1``, which change places each time."""
    problem = rb.Problem.builtin("paper-1")
    first, second = chains_of(problem)
    changes: list[rb.Change] = []
    for number, slot in enumerate(SLOTS):
        now = (second, first) if number % 2 == 0 else (first, second)
        changes += [rb.Change(slot, arm, one.transitions, one.rewards) for arm, one in enumerate(now)]
    return rb.Problem(problem.arms, name="exchanged", changes=changes)


def shadowed() -> rb.Problem:
    """Two satellite channels that change between the numbers of ``lms-urban-s`` and of ``lms-heavy-tree-s``."""
    city, trees = (chains_of(rb.Problem.builtin(f"lms-{place}-s")) for place in ("urban", "heavy-tree"))
    steps = ((1, trees[1]), (0, trees[0]), (1, city[1]), (0, city[0]), (1, trees[0]))
    changes = [rb.Change(slot, arm, to.transitions, to.rewards) for slot, (arm, to) in zip(SLOTS, steps, strict=True)]
    return rb.Problem(city, name="shadowed", changes=changes)


def occupied() -> rb.Problem:
    """The three channels of ``rf-3``; others begin to use one of them, and leave it again, chains alone changing."""
    problem = rb.Problem.builtin("rf-3")
    crowded, quiet = rb.Arm.two_state(0.6, 0.98), rb.Arm.two_state(0.97, 0.7)
    steps = ((1, crowded), (0, quiet), (1, chains_of(problem)[1]), (0, crowded), (2, quiet))
    changes = [rb.Change(slot, arm, to.transitions) for slot, (arm, to) in zip(SLOTS, steps, strict=True)]
    return rb.Problem(problem.arms, name="occupied", changes=changes)


def drifting() -> rb.Problem:
    """``table-3``, whose first arm gets worse step by step, in chain and pay, and the third one better."""
    problem = rb.Problem.builtin("table-3")
    changes: list[rb.Change] = []
    for step, slot in enumerate(SLOTS, start=1):
        worse = rb.Arm.two_state(0.7 - 0.08 * step, 0.8 + 0.03 * step)
        better = rb.Arm.two_state(0.7 + 0.04 * step, 0.9 - 0.06 * step)
        changes.append(rb.Change(slot, 0, worse.transitions, [1.0 - 0.1 * step, 0.0]))
        changes.append(rb.Change(slot, 2, better.transitions))
    return rb.Problem(problem.arms, name="drifting", changes=changes)


def problems() -> dict[str, rb.Problem]:
    """Return all of them, by name."""
    return {problem.name: problem for problem in (exchanged(), shadowed(), occupied(), drifting())}


def regrets(learners: list[str], runs: int = RUNS) -> Iterator[tuple[str, rb.SimulationResult]]:
    """Play learners on each problem."""
    for name, problem in problems().items():
        yield name, rb.simulate(problem, learners, HORIZON, runs=runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("learners", nargs="*", default=[DEFAULT, "whittle"])
    parser.add_argument("--runs", type=int, default=RUNS)
    asked = parser.parse_args()
    for _, result in regrets(asked.learners, asked.runs):
        print(result)


if __name__ == "__main__":
    main()
