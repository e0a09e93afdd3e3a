"""Learners by name: ``learner("restless-ucb:radius=none")`` and ``learner.spec`` are each other's inverse.

Names and homes are in ``registry``; ``LEARNERS`` gives the class of a name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from restless_bandits._internal.errors import ProblemError, did_you_mean
from restless_bandits.learning.learners.base import Learner, parse_option, split_outside_brackets
from restless_bandits.learning.learners.colored_ucrl2 import ColoredUCRL2
from restless_bandits.learning.learners.likelihood_dominance import LikelihoodDominance
from restless_bandits.learning.learners.likelihood_ucb import LikelihoodUCB
from restless_bandits.learning.learners.restless_ucb import RestlessUCB
from restless_bandits.learning.learners.simple import UCB1, Informed, RoundRobin
from restless_bandits.learning.learners.thompson import ThompsonSampling
from restless_bandits.learning.learners.weak import DSEE, RCA
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.tasks import Task
from restless_bandits.registry import (
    ALIASES,
    DEFAULT,
    DEFAULT_OBSERVED_LEARNER,
    DEFAULT_REACTING,
    LEARNERS,
    ORACLES,
    untrusted,
)

__all__ = [
    "ALIASES",
    "DEFAULT",
    "DSEE",
    "LEARNERS",
    "RCA",
    "UCB1",
    "ColoredUCRL2",
    "Informed",
    "Learner",
    "LikelihoodDominance",
    "LikelihoodUCB",
    "RestlessUCB",
    "RoundRobin",
    "ThompsonSampling",
    "as_learner",
    "by_label",
    "default_learner",
    "learner",
    "same_learner",
]


def learner(spec: str, *, trust_modules: bool = True) -> Learner:
    """Return the learner of a spec: ``name`` or ``name:key=value,…`` with lists in brackets.

    The name is the name of a learner of the package or of an installed plug-in; any other learner is given by its home,
    as in ``package.module:Class``. Resolving a home imports its module, which runs code: for a spec from an untrusted
    file, ``trust_modules=False`` refuses every unregistered home, of the learner and among its options.
    """
    short, _, more = spec.partition(":")
    full = ALIASES.get(short.strip(), spec)
    if full is not spec and more:
        full += ("," if ":" in full else ":") + more
    word, rest = LEARNERS.split(full)
    kind = LEARNERS.find(word, ALIASES, trust_modules=trust_modules)
    if not (isinstance(kind, type) and issubclass(kind, Learner)):
        raise ProblemError(f"{word} is no learner; give a class that derives from restless_bandits.Learner")
    if kind.plan is Learner.plan:
        raise ProblemError(f"{word} is no learner yet: it does not define plan")
    known = [field.name for field in dataclasses.fields(kind)]
    options = {}
    for part in split_outside_brackets(rest):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            raise ProblemError(f"{word}: {part.strip()!r} is not of the form key=value")
        if key not in known:
            hint = did_you_mean(key, known) if known else "it has no options"
            raise ProblemError(f"{word} has no option {key!r}; {hint}")
        if key in options:
            raise ProblemError(f"{word}: option {key!r} is given twice")
        options[key] = parse_option(value)
        if not trust_modules:
            _check_registered(f"option {key} of {word},", options[key])
    try:
        made = kind(**options)
    except TypeError as error:
        raise ProblemError(f"{word}: {error}") from None
    # Not a field, and therefore no part of comparisons: the original spec for output.
    object.__setattr__(made, "_asked", "".join(spec.split()))
    return made


def default_learner(task: Task | ObservedTask) -> Learner:
    """Return the default learner of a task: of the learners that play its arms, the one with the least measured
    regret. For observed arms it takes the rewards as known if the task reveals them.
    """
    if isinstance(task, ObservedTask):
        return learner(
            DEFAULT_OBSERVED_LEARNER if task.rewards is None else f"{DEFAULT_OBSERVED_LEARNER}:rewards=known"
        )
    return learner(DEFAULT_REACTING if task.features else DEFAULT)


def _check_registered(what: str, value: Any) -> None:
    """Refuse an option that names code in a module, as a text or within lists, unless the code is registered.

    The test is on the text alone, because any option may be resolved as a spec, when the learner is made or later.
    """
    if isinstance(value, tuple):
        for part in value:
            _check_registered(what, part)
    elif (
        isinstance(value, str)
        and ":" in value
        and not any(registry.is_registered(value) for registry in (LEARNERS, ORACLES))
    ):
        raise untrusted(what, value)


def as_learner(given: Learner | str, *, trust_modules: bool = True) -> Learner:
    """Return a learner given directly or by its spec; see ``learner`` for ``trust_modules``."""
    found = learner(given, trust_modules=trust_modules) if isinstance(given, str) else given
    if not isinstance(found, Learner):
        raise ProblemError(f"{given!r} is not a learner; give a spec such as 'restless-ucb', or a Learner")
    return found


def by_label(learners: Learner | str | Iterable[Learner | str]) -> dict[str, Learner]:
    """Return learners by label, or by name and number if functions among the options leave equal labels."""
    several = list(learners) if isinstance(learners, Iterable) and not isinstance(learners, str) else [learners]
    if not several:
        raise ProblemError("no learner is named; give at least one")
    players: dict[str, Learner] = {}
    for one in several:
        player = as_learner(one)
        try:
            label = player.label
        except ProblemError:
            label = f"{player.name}#{len(players) + 1}"
        twin = next((other for other, known in players.items() if same_learner(known, player)), None)
        if twin is not None:
            same = "" if twin == label else f", also as {twin!r}"
            raise ProblemError(f"learner {label!r} is given twice{same}; it would play the same runs again")
        players[label if label not in players else f"{label}#{len(players) + 1}"] = player
    return players


def same_learner(one: Learner, other: Learner) -> bool:
    """Whether two learners have the same class and options, whatever their original specs."""
    mine, theirs = ({key: value for key, value in vars(it).items() if key != "_asked"} for it in (one, other))
    return type(one) is type(other) and mine == theirs
