"""Episodes: the harness's side of a run, from the first message to the outcome.

``start`` returns the first message. ``after`` takes the answer to the last message and returns the next message, or
None at the end. ``reward`` is the outcome: the mean reward given the true states and the choice, with the same
expectation as drawn rewards, and less noise. Draws depend on the seed and the problem alone, never on the choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.random_streams import answer_generator, world_generator
from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import Arm
from restless_bandits.model.layout import Layout
from restless_bandits.model.problem import Problem
from restless_bandits.model.rewards import normalized_rewards
from restless_bandits.oracles.observed.rollout import ObservedWorld, play_observed
from restless_bandits.policies.observed import PriorityPolicy
from restless_bandits.simulation.benchmark.instances import DISCOUNT_TOLERANCE, Instance, Reference
from restless_bandits.simulation.benchmark.messages import (
    PROTOCOL,
    AnswerError,
    arms_of,
    numbers_of,
    only_arm,
    problem_message,
    pulls_of,
    task_message,
)
from restless_bandits.simulation.chain_world import ChainWorld

LOG_RUN_SLOTS = 2000
"""Slots that evaluate a policy made from a log."""
REWARD_LAWS = ("fixed", "bernoulli")
"""Distributions of rewards in instances."""


class Episode(Protocol):
    """The harness's side of a run."""

    @property
    def reward(self) -> float: ...

    def start(self) -> dict[str, Any]: ...

    def after(self, answer: Mapping[str, Any]) -> dict[str, Any] | None: ...


class IndexEpisode:
    """One arm; the answer is the index of each state."""

    def __init__(self, instance: Instance, seed: int, reference: Reference) -> None:
        self.instance, self.reference, self.problem = instance, reference, instance.problem(seed)
        self.reward = 0.0

    def start(self) -> dict[str, Any]:
        return {"arm": only_arm(self.problem.kinds), "discount": self.instance.discount}

    def after(self, answer: Mapping[str, Any]) -> None:
        """Score an answer: the share of correct indices, or of correct statements that an arm is not indexable."""
        says = answer.get("indexable", True)
        if not isinstance(says, bool):
            raise AnswerError(f"indexable is {shortened(says)}; give true or false")
        if not says:
            self.reward = float(not self.reference.indexable)
            return
        true = np.array(self.reference.index)
        given = np.array(numbers_of(answer, "index", len(true)))
        if self.reference.indexable:
            near = np.abs(given - true) <= DISCOUNT_TOLERANCE * np.maximum(1.0, np.abs(true))
            self.reward = float(near.mean())


class ArmsEpisode:
    """Slots of a problem; the answers are arms to pull.

    In the planning track the first message has all parameters. In learning tracks it has the task of a learner, with
    the parts of the problem that are ``revealed``. Where all states are observed, each message has the states of all
    arms, else the states and rewards of the last pulls.
    """

    def __init__(self, instance: Instance, seed: int, full: bool, revealed: tuple[str, ...]) -> None:
        self.instance, self.revealed = instance, revealed
        self.problem = problem = instance.problem(seed)
        self.slots, self.slot = instance.slots_of(full), 0
        self.warmup = int(instance.warmup * self.slots)
        self._world = ChainWorld(problem, "benchmark")
        self._rng = world_generator(seed, problem.content, 0)
        self._reward_rng = answer_generator(seed, problem.content, 0)
        self._entrant_seed = int(answer_generator(seed, problem.content, 1).integers(1 << 31))
        self._pays = _RewardTable(problem)
        self._pulled: list[int] = []
        self._total = 0.0

    @property
    def reward(self) -> float:
        return self._total / (self.slots - self.warmup)

    def start(self) -> dict[str, Any]:
        problem, common = self.problem, {"slots": self.slots, "seed": self._entrant_seed}
        if self.instance.track == "planning":
            return common | {"problem": problem_message(problem)}
        if problem.observed == "all":
            return common | {"task": observed_task(problem, self.slots, self.revealed)}
        return common | {"task": task_message(problem.task(self.slots, reveal=self.revealed))}

    def after(self, answer: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.slot == 0:
            self._world.begin(self._rng.random(self.problem.n_arms))
            return self._next({})
        arms = arms_of(answer, self.problem.n_arms, self.problem.plays, self.slot)
        states = self._world.states
        if self.slot > self.warmup:
            self._total += self._pays.mean(states, arms)
        drawn = self._pays.drawn(states, arms, self._reward_rng)
        self._pulled = arms
        if self.slot == self.slots:
            return None
        pulled = {"arms": arms, "rewards": drawn}
        return self._next(
            {"last": pulled | ({"states": states[arms].tolist()} if self.problem.observed != "all" else {})}
        )

    def _next(self, last: dict[str, Any]) -> dict[str, Any]:
        self.slot += 1
        states = self._world.step(self._rng.random(self.problem.n_arms), self._pulled)
        seen = {"states": states.tolist()} if self.problem.observed == "all" else {}
        return {"slot": self.slot} | seen | ({} if self.instance.track == "planning" else last)


class CountsEpisode:
    """Slots of a problem of many arms of a few kinds; messages and answers have numbers of arms in each state."""

    def __init__(self, instance: Instance, seed: int, full: bool) -> None:
        self.problem = problem = instance.problem(seed)
        self.slots, self.slot = instance.slots_of(full), 0
        self.warmup = int(instance.warmup * self.slots)
        self._rng = world_generator(seed, problem.content, 0)
        self._entrant_seed = int(answer_generator(seed, problem.content, 1).integers(1 << 31))
        self._kinds = [
            (
                np.stack([group.passive[kind], group.active[kind]]),
                group.passive_rewards[kind],
                group.active_rewards[kind],
            )
            for group in problem.groups
            for kind in range(group.n_kinds)
        ]
        starts = [group.start[kind] for group in problem.groups for kind in range(group.n_kinds)]
        counts = problem.kind_counts.tolist()
        self._counts = [self._rng.multinomial(count, start) for count, start in zip(counts, starts, strict=True)]
        self._total = 0.0

    @property
    def reward(self) -> float:
        return self._total / (self.slots - self.warmup)

    def start(self) -> dict[str, Any]:
        return {"slots": self.slots, "seed": self._entrant_seed, "problem": problem_message(self.problem)}

    def after(self, answer: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.slot:
            pulls = pulls_of(answer, self._counts, self.problem.plays, self.slot)
            for number, (chains, passive, active) in enumerate(self._kinds):
                pulled = np.array(pulls[number])
                resting = self._counts[number] - pulled
                if self.slot > self.warmup:
                    self._total += float(pulled @ active + resting @ passive)
                moved = self._rng.multinomial(np.stack([resting, pulled]), chains)
                self._counts[number] = moved.sum(axis=(0, 1))
            if self.slot == self.slots:
                return None
        self.slot += 1
        return {"slot": self.slot, "counts": [row.tolist() for row in self._counts]}


class LogEpisode:
    """A log of random play on observed arms; the answer is a score of each state of each arm, the higher the sooner.

    The log has the states of all arms in each slot, and the arms pulled. The harness plays the priority policy of the
    scores on the true problem.
    """

    def __init__(self, instance: Instance, seed: int) -> None:
        self.instance, self.seed, self.problem = instance, seed, instance.problem(seed)
        self.reward = 0.0

    def start(self) -> dict[str, Any]:
        problem, slots = self.problem, self.instance.log_slots
        world, rng = ChainWorld(problem, "benchmark"), world_generator(self.seed, problem.content, 0)
        world.begin(rng.random(problem.n_arms))
        states: list[list[int]] = []
        pulls: list[list[int]] = []
        pulled: list[int] = []
        for _ in range(slots):
            states.append(world.step(rng.random(problem.n_arms), pulled).tolist())
            pulled = sorted(rng.permutation(problem.n_arms)[: problem.plays].tolist())
            pulls.append(pulled)
        log = {"states": states, "pulls": pulls}
        return {"task": observed_task(problem, None, ("rewards",)), "log": log}

    def after(self, answer: Mapping[str, Any]) -> None:
        # Arms of one kind may get different scores.
        problem = self.problem.only(range(self.problem.n_arms))
        sizes = problem.n_states
        rows = answer.get("scores")
        if not isinstance(rows, list) or len(rows) != len(sizes):
            raise AnswerError(f"scores is {shortened(rows)}; give a list of scores for each of {len(sizes)} arms")
        flat = [
            numbers_of({f"scores[{i}]": row}, f"scores[{i}]", n)
            for i, (row, n) in enumerate(zip(rows, sizes, strict=True))
        ]
        policy = PriorityPolicy(Layout.of(problem), np.concatenate(flat), problem.plays)
        marks = np.array([LOG_RUN_SLOTS // 4, LOG_RUN_SLOTS])
        played = play_observed(policy, ObservedWorld(problem), marks, seed=self.seed, run=0)
        self.reward = float(np.diff(played.totals.at[:, 1])[0] / np.diff(marks)[0])


class _RewardTable:
    """Mean and drawn rewards of all arms: (arm, state)."""

    def __init__(self, problem: Problem) -> None:
        most = max(problem.n_states)
        self._active, self._passive = np.zeros((2, problem.n_arms, most))
        self._normalized = np.zeros((problem.n_arms, most))
        for number, arm in enumerate(problem.arms):
            if not isinstance(arm, Arm) or arm.reward_law not in REWARD_LAWS or arm.setup_cost:
                raise ProblemError(
                    f"arm {arm.name!r} has no place in an instance; give chains with fixed or bernoulli rewards"
                )
            self._active[number, : arm.n_states] = arm.rewards
            self._normalized[number, : arm.n_states] = normalized_rewards(arm.rewards, arm.reward_range)
            if arm.passive_rewards is not None:
                self._passive[number, : arm.n_states] = arm.passive_rewards
        self._random = np.array([arm.reward_law == "bernoulli" for arm in problem.arms])
        self._low, self._high = np.array([arm.reward_range for arm in problem.arms]).T
        self._every = np.arange(problem.n_arms)

    def mean(self, states: IntArray, arms: list[int]) -> float:
        """Return the mean reward of a slot."""
        found = self._passive[self._every, states]
        found[arms] = self._active[arms, states[arms]]
        return float(found.sum())

    def drawn(self, states: IntArray, arms: list[int], rng: np.random.Generator) -> list[float]:
        """Draw the rewards of the arms pulled; the draws of a slot are as many whatever is pulled."""
        if not self._random.any():
            return self._listed(self._active[arms, states[arms]])
        wins = rng.random(len(states))[arms] < self._normalized[arms, states[arms]]
        ends = np.where(wins, self._high[arms], self._low[arms])
        return self._listed(np.where(self._random[arms], ends, self._active[arms, states[arms]]))

    @staticmethod
    def _listed(rewards: Array) -> list[float]:
        return [float(reward) for reward in rewards]


def observed_task(problem: Problem, horizon: int | None, revealed: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a problem of observed arms that a learner may know; rewards are known there."""
    task: dict[str, Any] = {
        "n_states": list(problem.n_states),
        "plays": problem.plays,
        "horizon": horizon,
        "rewards": [arm.rewards.tolist() for arm in problem.arms],
        "passive_rewards": [arm.mean_rewards[:, 0].tolist() for arm in problem.arms],
        "reward_laws": [arm.reward_law for arm in problem.arms],
        "reward_ranges": [list(arm.reward_range) for arm in problem.arms],
    }
    return task | ({"problem": problem_message(problem)} if "problem" in revealed else {})


def make_episode(instance: Instance, seed: int, full: bool, revealed: tuple[str, ...], reference: Reference) -> Episode:
    """Return the episode of an instance and a seed."""
    if instance.track == "index":
        return IndexEpisode(instance, seed, reference)
    if instance.track == "logs":
        return LogEpisode(instance, seed)
    if instance.view == "counts":
        return CountsEpisode(instance, seed, full)
    return ArmsEpisode(instance, seed, full, revealed)


def first_message(instance: Instance, episode: Episode) -> dict[str, Any]:
    """Return the first message of an episode, without the name of the instance, the seed and the run."""
    return {"type": "start", "protocol": PROTOCOL, "track": instance.track, "view": instance.view} | episode.start()
