"""Learners by name: ``learner("restless-ucb:radius=none")`` and ``learner.spec`` are each other's inverse."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from restless_bandits.errors import ProblemError, did_you_mean
from restless_bandits.learners.base import Learner, parse_option, split_outside_brackets
from restless_bandits.learners.colored_ucrl2 import ColoredUCRL2
from restless_bandits.learners.dominance_ucb import DominanceUCB
from restless_bandits.learners.likelihood_ucb import LikelihoodUCB
from restless_bandits.learners.restless_ucb import RestlessUCB
from restless_bandits.learners.simple import (
    UCB1,
    BestArmPlayer,
    ExactPlayer,
    GuhaPlayer,
    MyopicPlayer,
    RoundRobin,
    WhittlePlayer,
)
from restless_bandits.learners.thompson import ThompsonSampling
from restless_bandits.learners.weak import DSEE, RCA

__all__ = [
    "DEFAULT",
    "DSEE",
    "LEARNERS",
    "RCA",
    "UCB1",
    "ColoredUCRL2",
    "DominanceUCB",
    "Learner",
    "LikelihoodUCB",
    "RestlessUCB",
    "RoundRobin",
    "ThompsonSampling",
    "by_label",
    "learner",
]

LEARNERS: dict[str, type[Learner]] = {
    kind.name: kind
    for kind in (
        LikelihoodUCB,
        RestlessUCB,
        DominanceUCB,
        ColoredUCRL2,
        ThompsonSampling,
        RCA,
        DSEE,
        RoundRobin,
        UCB1,
        ExactPlayer,
        WhittlePlayer,
        MyopicPlayer,
        GuhaPlayer,
        BestArmPlayer,
    )
}

DEFAULT = "likelihood-ucb"
"""What is played where nobody names a learner: the least regret that was measured (docs/head-to-head.md)."""

ALIASES = {"ts-9": "ts:support=9", "ts-4": "ts:support=4", "posterior": "ts:prior=continuous,oracle=auto"}
"""Short names and the specs they stand for."""


def learner(spec: str) -> Learner:
    """Return the learner of a spec, ``name`` or ``name:key=value,…`` with lists in brackets."""
    name, _, rest = spec.partition(":")
    name = name.strip()
    if name in ALIASES:
        return learner(ALIASES[name] + ("," + rest if rest else ""))
    if name not in LEARNERS:
        raise ProblemError(f"there is no learner {name!r}; {did_you_mean(name, [*LEARNERS, *ALIASES])}")
    kind = LEARNERS[name]
    known = [field.name for field in dataclasses.fields(kind)]
    options = {}
    for part in split_outside_brackets(rest):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            raise ProblemError(f"{name}: {part.strip()!r} is not of the form key=value")
        if key not in known:
            hint = did_you_mean(key, known) if known else "it has no options"
            raise ProblemError(f"{name} has no option {key!r}; {hint}")
        if key in options:
            raise ProblemError(f"{name}: option {key!r} is given twice")
        options[key] = parse_option(value)
    try:
        return kind(**options)
    except TypeError as error:
        raise ProblemError(f"{name}: {error}") from None


def by_label(learners: Learner | str | Iterable[Learner | str]) -> dict[str, Learner]:
    """Return learners by spec, or by name and number where a function among the options leaves them without one."""
    several = list(learners) if isinstance(learners, Iterable) and not isinstance(learners, str) else [learners]
    if not several:
        raise ProblemError("no learner is named; give at least one")
    players: dict[str, Learner] = {}
    for one in several:
        player = learner(one) if isinstance(one, str) else one
        if not isinstance(player, Learner):
            raise ProblemError(f"{one!r} is not a learner; give a spec such as 'restless-ucb', or a Learner")
        try:
            label = player.spec
        except ProblemError:
            label = f"{player.name}#{len(players) + 1}"
        if label in players:
            raise ProblemError(f"learner {label!r} is given twice; it would play the same runs again")
        players[label] = player
    return players
