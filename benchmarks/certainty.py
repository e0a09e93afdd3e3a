"""What certainty costs: the table "Where it is zero, and regret is not" of docs/theory/limit.md.

Where optimal play identifies every arm, a player who always plans for the best estimate learns all that there is to
learn, and still loses while a close decision falls on the wrong side. How much, if the estimate is as good as all that
optimal play shows in t slots allows, normal with the inverse of Fisher's information as its covariance? An exact plan
is made for many such estimates at each of some t, and what it loses a slot is averaged and summed over the slots.
``python -m benchmarks.certainty`` takes a few minutes, and keeps what it finds in docs/benchmarks/certainty.json.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import restless_bandits as rb
from benchmarks import head_to_head, limits
from benchmarks.pages import keep, load
from restless_bandits._internal.validation import Array
from restless_bandits.learning.learners import DEFAULT
from restless_bandits.oracles import joint_kernels
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels
from restless_bandits.paper.regret_lower_bound.arena import Arena
from restless_bandits.processes.beliefs import JointDistributions, joint_beliefs, truncation_for

KEPT = "certainty"
PROBLEMS = ("lms-heavy-tree-s", "lms-urban-s", "paper-1", "paper-2", "rf-2")
"""Two arms, and all of them identified by optimal play."""
TIMES = np.geomspace(1e4, 1e6, 13)
DRAWS = 2_000
DEVIATION, ZERO, TOLERANCE, MOST_SWEEPS = 1e-8, 1e-9, 1e-10, 20_000
STEP = 1e-6


def information(arm: rb.Arm, looks: Array, truncation: int) -> Array:
    """Fisher's information of a two-state arm, of (P(1, 1), P(2, 1)) and its rewards, from looks a slot by belief."""
    distribution = kernels.distributions_of(arm.chain, truncation)
    slopes = []
    for s in range(2):
        move = np.zeros((2, 2))
        move[s] = STEP, -STEP
        change = kernels.distributions_of(arm.chain + move, truncation) - kernels.distributions_of(
            arm.chain - move, truncation
        )
        slopes.append(change / (2 * STEP))
    found = np.zeros((4, 4))
    for a in range(2):
        for b in range(2):
            found[a, b] = looks @ (slopes[a] * slopes[b] / np.maximum(distribution, 1e-12)).sum(axis=1)
    # What always or never pays is known after a look or two.
    found[2, 2], found[3, 3] = looks @ distribution / np.maximum(arm.rewards * (1 - arm.rewards), 1e-9)
    return found


def with_estimates(arena: Arena, estimates: Sequence[Array]) -> JointDistributions:
    """The laws of an arena with other chains and rewards of all arms."""
    distributions = arena.joint.distributions
    distribution, reward = distributions.distribution.copy(), distributions.reward.copy()
    for i, (stay, reach, *rewards) in enumerate(estimates):
        other = kernels.distributions_of(np.array([[stay, 1 - stay], [reach, 1 - reach]]), arena.truncations[i])
        distribution[i, : len(other)], reward[i, : len(other)] = other, other @ np.array(rewards)
    return distributions._replace(distribution=distribution, reward=reward)


def losses(problem: rb.Problem) -> Array:
    """What plans for estimates lose a slot, ``[time, draw]``."""
    arms = [arm for arm in problem.arms if isinstance(arm, rb.Arm)]
    arena = Arena(problem, joint_beliefs(problem, [truncation_for(arm, DEVIATION) for arm in arms]), ZERO)
    looks = arena.solve(tolerance=TOLERANCE).play.pulls
    truth = [np.append(arm.chain[:, 0], arm.rewards) for arm in arms]
    roots = []
    for i, arm in enumerate(arms):
        mine = looks[i, : arena.joint.arms[i].size]
        roots.append(np.linalg.cholesky(np.linalg.inv(information(arm, mine, arena.truncations[i]))))
    draws = np.random.default_rng(0).standard_normal((DRAWS, len(arms), 4))
    lost = np.zeros((len(TIMES), DRAWS))
    for t, slots in enumerate(TIMES):
        for d, draw in enumerate(draws):
            # The same draws at all times, so that the sum over slots is smooth.
            off = [root @ one / np.sqrt(slots) for root, one in zip(roots, draw, strict=True)]
            estimates = [np.clip(true + by, 1e-6, 1 - 1e-6) for true, by in zip(truth, off, strict=True)]
            iterate = joint_kernels.Iterate(
                arena.values.copy(), np.empty(arena.joint.size), np.zeros(arena.joint.size, dtype=np.int16)
            )
            distributions = with_estimates(arena, estimates)
            joint_kernels.iterate_values(iterate, TOLERANCE, MOST_SWEEPS, arena.links, arena.joint.table, distributions)
            lost[t, d] = arena.follow(iterate.action).cost
    return lost


def measure(name: str) -> dict[str, Any]:
    """Return what is lost in both decades, and with which standard error."""
    lost = losses(rb.Problem.builtin(name))
    widths = np.diff(TIMES)[:, None]
    pieces = (lost[1:] + lost[:-1]) / 2 * widths
    half = len(pieces) // 2
    decades = [pieces[:half].sum(axis=0), pieces[half:].sum(axis=0)]
    return {
        "lost": [round(float(one.mean()), 2) for one in decades],
        "errors": [round(float(one.std(ddof=1) / np.sqrt(DRAWS)), 2) for one in decades],
    }


def table(kept: Mapping[str, Any]) -> str:
    """What is lost in each decade, beside what the default learner loses there."""
    lines = [
        "| problem | 1e4 to 1e5: best estimates | `likelihood-ucb` | 1e5 to 1e6: best estimates | `likelihood-ucb` |",
        "|---|---|---|---|---|",
    ]
    measured = head_to_head.kept_cells()
    for name, found in kept.items():
        theirs = [f"{m:.1f} ± {e:.1f}" for m, e in zip(found["lost"], found["errors"], strict=True)]
        ours = [f"{one:.1f}" for one in np.diff(np.array(measured[name][DEFAULT].means))]
        lines.append(f"| {name} | {theirs[0]} | {ours[0]} | {theirs[1]} | {ours[1]} |")
    return "\n".join(lines)


def main(names: Sequence[str]) -> None:
    kept = load(KEPT)
    for name in names or PROBLEMS:
        kept[name] = measure(name)
        print(name, kept[name], flush=True)
        keep(KEPT, {known: kept[known] for known in PROBLEMS if known in kept})
    limits.write()


if __name__ == "__main__":
    main(sys.argv[1:])
