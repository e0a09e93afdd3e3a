"""Tracks and instances: TOML files with a problem, its source, public seeds, and the values that scores relate to.

A score is the closed share of the gap between random play and the best: 0 for random play, 1 for the certified optimum
or the proved bound. The gain of random play has a closed form. A random instance draws a problem for each seed, and the
values are computed for each draw.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits.model import markov
from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem
from restless_bandits.model.problem_files import REACTING_KINDS
from restless_bandits.oracles.observed.planners import observed_relaxation
from restless_bandits.oracles.whittle import observed_indices

FOLDER = Path(__file__).parent / "tracks"
TRACKS: Mapping[str, str] = {
    "index": "Whittle's index of one arm: correct values, no simulation",
    "planning": "many arms, all observed, with known parameters",
    "learning-pulled": "unknown parameters, states seen when pulled",
    "learning-observed": "unknown parameters, all states observed",
    "logs": "a policy from a log alone, without further observations",
}
DISCOUNT_TOLERANCE = 1e-6
"""The largest error of a correct index, relative to the larger of one and the index."""


@dataclass(frozen=True)
class Reference:
    """The values of a score: the gain of random play and the best gain, a slot."""

    random: float
    best: float
    proof: str
    """``certified`` for a proved optimum, ``bound`` for a proved upper bound, ``index`` for correct indices."""
    by: str
    """Who computed the values, and how."""
    index: tuple[float, ...] = ()
    indexable: bool = True

    def score(self, reward: float) -> float:
        return (reward - self.random) / (self.best - self.random)


@dataclass(frozen=True)
class Published:
    """A published result of others, as printed."""

    by: str
    method: str
    reward: float
    """Reward a slot of all arms."""
    source: str
    note: str = ""


@dataclass(frozen=True)
class Instance:
    """An instance of a track."""

    track: str
    name: str
    source: str
    licence: str
    seeds: tuple[int, ...]
    full_seeds: tuple[int, ...]
    given: Mapping[str, Any]
    """The table ``problem`` of the file: a built-in problem, a random problem, or arms."""
    slots: int = 1
    full_slots: int = 1
    warmup: float = 0.0
    """The share of the slots whose rewards do not count."""
    view: str = "states"
    """``states`` shows the state of every arm; ``counts`` the number of arms of each kind in each state."""
    discount: float | None = None
    log_slots: int = 0
    """Slots of the log of a ``logs`` instance."""
    method: str = "bound"
    """How the best gain of a random problem is computed: ``exact`` or ``bound``."""
    stored: Reference | None = None
    published: tuple[Published, ...] = field(default=())

    @property
    def is_random(self) -> bool:
        return "random" in self.given

    def problem(self, seed: int) -> Problem:
        """Return the problem of a seed: a random instance draws the problem from the seed."""
        given = dict(self.given)
        if self.is_random:
            options = dict(given["random"])
            words = [*self.name.encode(), seed]
            rng = np.random.default_rng(np.random.SeedSequence(words))
            make = Problem.random_reacting if options["kind"] in REACTING_KINDS else Problem.random
            return make(seed=rng, **options)
        if "builtin" in given:
            problem = Problem.builtin(given["builtin"])
            if "arms" in given:
                return problem.with_arms(given["arms"], plays=given.get("plays"))
            return problem.with_plays(given["plays"]) if "plays" in given else problem
        arms = [Arm(**arm) for arm in given.pop("kinds")]
        return Problem(arms, **given)

    def reference(self, seed: int) -> Reference:
        """Return the values of the score: stored in the file, or computed for the draw of a seed."""
        return self.stored if self.stored is not None else compute_reference(self, seed)

    def seeds_of(self, full: bool) -> tuple[int, ...]:
        return self.full_seeds if full else self.seeds

    def slots_of(self, full: bool) -> int:
        return self.full_slots if full else self.slots


def random_gain(problem: Problem) -> float:
    """Return the long-run reward a slot of random play: in each slot a new uniform choice of the arms to pull.

    The choices of different slots are independent, so each arm moves by the mixture of its two chains.
    """
    share, total = problem.plays / problem.n_arms, 0.0
    for group in problem.groups:
        for kind in range(group.n_kinds):
            chain = share * group.active[kind] + (1 - share) * group.passive[kind]
            reward = share * group.active_rewards[kind] + (1 - share) * group.passive_rewards[kind]
            limit = group.start[kind] @ markov.limit_laws(chain)
            total += float(problem.kind_counts[group.first + kind]) * float(limit @ reward)
    return total


def compute_reference(instance: Instance, seed: int) -> Reference:
    """Return the values of a score by the oracles of this package."""
    problem = instance.problem(seed)
    if instance.track == "index":
        (found,) = observed_indices(problem, instance.discount)
        index = tuple(found.table[:, 0].tolist())
        return Reference(0.0, 1.0, "index", "restless-bandits, homotopy", index, found.indexable)
    if instance.method == "exact":
        solution = oracles.oracle("exact")(problem)
        return Reference(random_gain(problem), solution.upper, "certified", "restless-bandits, oracle exact")
    observed = problem.observed == "all"
    bound = observed_relaxation(problem).bound if observed else oracles.relaxation_bound(problem)
    return Reference(random_gain(problem), bound, "bound", "restless-bandits, relaxation")


@cache
def instances_of(track: str) -> tuple[Instance, ...]:
    """Return the instances of a track in the order of their names."""
    check_known(track, TRACKS, "there is no track")
    return tuple(read_instance(path, track) for path in sorted((FOLDER / track).glob("*.toml")))


def read_instance(path: Path, track: str) -> Instance:
    """Return the instance of a TOML file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        reference = data.pop("reference", None)
        published = tuple(Published(**row) for row in data.pop("published", []))
        seeds = tuple(data.pop("seeds"))
        full_seeds = tuple(data.pop("full_seeds", seeds))
        if reference is not None:
            reference["index"] = tuple(reference.get("index", ()))
            reference = Reference(**reference)
        return Instance(
            track,
            seeds=seeds,
            full_seeds=full_seeds,
            given=data.pop("problem"),
            stored=reference,
            published=published,
            **data,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProblemError(f"{path} is no instance of a track: {error}; see the files beside it") from None


def summaries(instances: Sequence[Instance]) -> list[str]:
    """Return a line for each instance: the name and the first sentence of its source."""
    return [f"{instance.name}: {instance.source.split('; ')[0]}" for instance in instances]
