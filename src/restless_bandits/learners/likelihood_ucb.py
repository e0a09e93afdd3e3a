"""Likelihood-UCB: use every observation through its likelihood, explore by optimism, commit to the mode.

No regret bound is proved for this learner; ``dominance-ucb`` is the one with a proof. What it has is the least regret
that was measured.

Interleaved observations are samples of P^τ, and their counts are sufficient for the chain (see ``estimation``). At
every plan the mode of the posterior of each arm is found anew, from the last mode and from its twin of opposite
correlation (now and then from more starts: see ``estimation``). Two kinds of plans alternate:

- *optimistic*: moves to better states as likely and moves to worse ones as unlikely as √(2·α·ln t) standard errors
  allow, rewards at their KL upper bounds at the level α·ln t, nonincreasing in the state;
- *certainty-equivalent*: the mode, and mean rewards with half a pseudo-count.

Optimistic plans last max(5M, t^(2/3)/2) slots, M the most states of an arm, and are made as long as they have taken
fewer than ``explore``·t^(2/3) slots in all; otherwise the mode is followed until 1.1 t. A count of (arm, last state,
elapsed slots) that has doubled ends an optimistic plan too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from restless_bandits import oracles
from restless_bandits.arrays import Array, IntArray, positive, whole
from restless_bandits.estimation import LogitMode, chain_of, modes_from_last, move_errors
from restless_bandits.learners._bounds import kl_upper_bounds, monotone_upper_bounds
from restless_bandits.learners.base import Learner, present_problem, require_choice
from restless_bandits.learners.violations import warn_of_violations
from restless_bandits.optimism import optimistic_chain
from restless_bandits.plans import CountDoubled, Plan, Slots
from restless_bandits.problem import Problem, Task
from restless_bandits.record import Record

GROWTH = 0.1


@dataclass(frozen=True)
class LikelihoodUCB(Learner):
    """Optimistic and certainty-equivalent plans on the mode of the likelihood, in turn. No regret bound is proved.

    Parameters
    ----------
    alpha
        Scales the level α·ln t of the confidence bounds. Below ½ some runs lock onto one arm.
    explore
        Optimistic plans take at most about ``explore``·t^(2/3) slots.
    oracle
        What plans: ``auto`` (exact while the table of joint beliefs is small, Whittle beyond) or any other oracle.
    rewards
        ``learned``, or ``known``.

    """

    name: ClassVar[str] = "likelihood-ucb"
    plans_often: ClassVar[bool] = True
    alpha: float = 0.5
    explore: float = 5.0
    oracle: str = "auto"
    rewards: str = "learned"

    def __post_init__(self) -> None:
        for option in ("alpha", "explore"):
            positive(f"{self.name}: {option}", getattr(self, option))
        oracles.find_oracle(self.oracle)
        require_choice(self, "rewards", self.rewards, ("learned", "known"))

    def plan(self, record: Record, task: Task, rng: np.random.Generator) -> Plan:
        notes = warn_of_violations(self.name, record, task)
        t = record.slots + 1
        modes = [self.mode(record, arm) for arm in range(task.n_arms)]
        spent = optimistic_slots(record.notes, record)
        optimistic = spent < self.explore * t ** (2 / 3)
        if optimistic:
            disordered = [arm for arm, assumption in notes.get("violations", ()) if assumption == 1]
            problem = self.optimistic_problem(record, task, modes, disordered)
            slots = max(5 * max(task.n_states), math.ceil(0.5 * t ** (2 / 3)))
        else:
            problem = self.likeliest_problem(record, task, modes)
            slots = math.ceil(GROWTH * t)
        thetas = [None if mode is None else mode.theta.tolist() for mode in modes]
        notes |= {"modes": thetas, "optimistic": optimistic, "spent": spent}
        # A doubled count tells much to a plan that explores and next to nothing to one that follows the mode.
        until = Slots(slots) | CountDoubled() if optimistic else Slots(slots)
        # What is followed for long is worth more planning; optimistic plans are many and short.
        lasting = 0 if optimistic else slots
        return Plan(oracles.policy(self.oracle, problem, slots=t, lasting=lasting), until, notes)

    def mode(self, record: Record, arm: int) -> LogitMode | None:
        """The likeliest chain of an arm, on the scale of logits; None for an arm of one state."""
        return modes_from_last(record, arm)[0] if record.n_states[arm] > 1 else None

    def likeliest_problem(self, record: Record, task: Task, modes: list[LogitMode | None]) -> Problem:
        """The mode, with mean rewards."""

        def mean(_: int, seen: IntArray, sums: Array) -> Array:
            return (sums + 0.5) / (seen + 1)

        return _problem(record, task, [moved_chain(mode, 0.0) for mode in modes], mean, unseen=0.5)

    def optimistic_problem(
        self, record: Record, task: Task, modes: list[LogitMode | None], disordered: Sequence[int] = ()
    ) -> Problem:
        """Moves as favourable as the standard errors allow, and rewards at their upper bounds.

        Bounds fall with the state but for arms that are ``disordered``: seen to pay more in worse states.
        """
        level = self.alpha * math.log(record.slots + 1)
        width = math.sqrt(2 * level)

        def bound(arm: int, seen: IntArray, sums: Array) -> Array:
            return (kl_upper_bounds if arm in disordered else monotone_upper_bounds)(sums, seen, level)

        return _problem(record, task, [moved_chain(mode, width) for mode in modes], bound, unseen=1.0)


def optimistic_slots(notes: Mapping[str, Any], record: Record) -> int:
    """How many slots optimistic plans have taken so far."""
    last = record.plan_lengths[-1] if notes.get("optimistic") and record.plan_lengths else 0
    return whole("likelihood-ucb: spent", notes.get("spent", 0), 0, record.slots) + last


def moved_chain(mode: LogitMode | None, width: float) -> Array:
    """The chain whose moves are ``width`` standard errors better than the mode's; of one state without a mode."""
    if mode is None:
        return np.ones((1, 1))
    n = (len(mode.theta) + 2) // 2
    # Of moves to better states first, from the second state on; then of moves to worse ones.
    errors = width * move_errors(mode)
    worse, better = np.append(errors[n - 1 :], 0.0), np.append(0.0, errors[: n - 1])
    return optimistic_chain(chain_of(mode.theta, n), worse, better)


def _problem(
    record: Record, task: Task, chains: list[Array], reward: Callable[[int, IntArray, Array], Array], unseen: float
) -> Problem:
    """The present problem, with learned rewards unless they are known; a fixed one that was seen is known."""
    rewards: Sequence[Array | Sequence[float]] = task.rewards or [
        record.mean_rewards(arm, unseen) if law == "fixed" else reward(arm, record.seen(arm), record.reward_sums(arm))
        for arm, law in enumerate(task.reward_laws)
    ]
    return present_problem(record, task, chains, rewards)
