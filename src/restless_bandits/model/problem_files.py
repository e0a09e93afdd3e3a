"""Problems as text: the TOML form, the folder of built-in problems, and random chains.

This module is independent of the class of an arm: ``problem`` uses this module and constructs arms from its data.
"""

from __future__ import annotations

import json
import tomllib
import warnings
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known
from restless_bandits._internal.validation import Array
from restless_bandits.model.deadlines import deadline_arm
from restless_bandits.model.support import ARM_FEATURES, PROBLEM_FEATURES

PROBLEM_KEYS = ("name", "source", "plays", "observed", "at_most", "fit", "arms", "changes")
FIT_KEYS = ("rejected", "findings")
ARM_KEYS = (
    "name",
    "count",
    "rewards",
    "costs",
    "passive_rewards",
    "passive_costs",
    "setup_cost",
    "transitions",
    "active_transitions",
    "initial",
    "reward_law",
    "reward_range",
    "cost_range",
    "reward_spread",
)
MADE_ARM_KEYS = ("deadline",)
"""Keys of an arm from which others follow; problems are written without them."""
CHANGE_KEYS = ("slot", "arm", "transitions", "rewards", "costs")
PROBLEM_FOLDER = Path(__file__).parent / "problems"
RANDOM_KINDS = ("paper", "birth-death", "general")
REACTING_KINDS = ("health", "dirichlet", "collapsing")


def read_problem_file(path: str | Path) -> str:
    """Return the text of a problem file, or raise with the reason of the failure."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ProblemError(f"{path} is not a text file in UTF-8; write the problem as TOML") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        remedy = "; `restless problems show paper-1` prints one to start from"
        hint = remedy if isinstance(error, FileNotFoundError) else ""
        raise ProblemError(f"cannot read {str(path)[:200]}: {reason}{hint}") from None


def parse_problem(text: str, origin: str) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the data of a TOML text: of the problem, of each of its arms and of each of its changes.

    Only known keys are accepted, required keys must be present, and every arm needs a name.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        # Besides invalid TOML: numbers too long to read, and brackets nested too deep.
        raise ProblemError(f"{origin} is not valid TOML: {error}") from None
    for key in data:
        check_known(key, PROBLEM_KEYS, f"{origin}: unknown key")
    if "fit" in data:
        if not isinstance(data["fit"], dict):
            raise ProblemError(
                f"{origin}: fit is {data['fit']!r}; it must be a table [fit], as `restless fit` writes it"
            )
        for key in data["fit"]:
            check_known(key, FIT_KEYS, f"{origin}: fit: unknown key")
    tables = data.pop("arms", None)
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise ProblemError(f"{origin}: no arms; give each one as a table [[arms]] with rewards and transitions")
    arms = [{"name": f"arm {i + 1}", **table} for i, table in enumerate(tables)]
    for arm in arms:
        where = f"{origin}: arm {arm['name']!r}"
        for key in arm:
            check_known(key, ARM_KEYS + MADE_ARM_KEYS, f"{where}: unknown key")
        if "deadline" in arm:
            made = deadline_arm(arm.pop("deadline"), f"{where}: deadline")
            for key in made.keys() & arm.keys():
                raise ProblemError(f"{where}: {key} follows from deadline; leave {key} out")
            arm.update(made)
            arm.setdefault("reward_law", "fixed")  # the payments for a unit and at a deadline are certain
        # The contract of problem files: a missing law is bernoulli, also for other ranges.
        if not {"reward_law", "reward_spread", "costs"} & arm.keys():
            arm["reward_law"] = "bernoulli"
            ends, means = arm.get("reward_range"), arm.get("rewards")
            if isinstance(ends, list) and isinstance(means, list) and not all(mean in ends for mean in means):
                warnings.warn(
                    f"{where}: no reward_law is given, so every reward is one of the two ends of reward_range; write "
                    'reward_law = "bernoulli" if that is meant, else "fixed", "beta" or "bounded"',
                    RuntimeWarning,
                    stacklevel=4,
                )
        for key in ("rewards", "transitions"):
            if key not in arm and (key, "costs" in arm) != ("rewards", True):
                raise ProblemError(f"{origin}: arm {arm['name']!r}: {key} is missing")
    changes = data.pop("changes", [])
    if not isinstance(changes, list) or not all(isinstance(change, dict) for change in changes):
        raise ProblemError(f"{origin}: changes must be tables [[changes]], each with a slot and an arm")
    for i, change in enumerate(changes):
        for key in change:
            check_known(key, CHANGE_KEYS, f"{origin}: changes[{i}]: unknown key")
        for key in ("slot", "arm"):
            if key not in change:
                raise ProblemError(f"{origin}: changes[{i}]: {key} is missing")
    return data, arms, changes


def problem_text(
    head: Mapping[str, Any],
    fit: Mapping[str, Any],
    arms: Iterable[Mapping[str, Any]],
    changes: Iterable[Mapping[str, Any]] = (),
) -> str:
    """Return a problem as TOML, number for number; empty and None values are left out."""
    tables = [_toml_table(head), *(f"[fit]\n{found}" for found in [_toml_table(fit)] if found)]
    tables += [f"[[arms]]\n{_toml_table(table)}" for table in arms]
    tables += [f"[[changes]]\n{_toml_table(table)}" for table in changes]
    return "\n\n".join(tables) + "\n"


def _toml_table(table: Mapping[str, Any]) -> str:
    return "\n".join(f"{key} = {_toml_value(value)}" for key, value in table.items() if value not in (None, "", []))


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        # JSON's escapes are valid in TOML; characters beyond ASCII stay unescaped, and DEL is escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(entry) for entry in value) + "]"
    return repr(value)


def builtin_problems(features: Collection[str] | None = None) -> list[str]:
    """Return the names of the problems of this package.

    ``features`` limits them to problems without further features (``Problem.features``): ``()`` to problems of
    uncontrolled arms that are seen when pulled.
    """
    names = sorted(path.stem for path in PROBLEM_FOLDER.glob("*.toml"))
    return names if features is None else [name for name in names if _features(name).issubset(features)]


@lru_cache
def _features(name: str) -> frozenset[str]:
    head, arms, _ = parse_problem(builtin_text(name), name)
    given = {key for arm in arms for key, value in arm.items() if key != "initial" or isinstance(value, list)}
    return frozenset(ARM_FEATURES) & given | frozenset(PROBLEM_FEATURES) & head.keys()


def builtin_text(name: str) -> str:
    """Return the TOML of a built-in problem."""
    check_known(name, builtin_problems(), "there is no built-in problem")
    return (PROBLEM_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def random_chain(rng: np.random.Generator, size: int, kind: str, floor: float) -> Array:
    """Draw a chain: rows uniform over the distributions that the kind allows (see ``Problem.random``)."""
    if kind == "general":
        return rng.dirichlet(np.ones(size), size=size)
    chain = np.zeros((size, size))
    least = floor if kind == "paper" else 0.0
    for k in range(size):
        low, high = max(0, k - 1), min(size, k + 2)
        width = high - low
        while True:
            # Uniform over the rows with all entries at least the floor: the draws of rng.dirichlet(np.ones(width)),
            # from the same stream, in a fifth of the time. A steep row needs many draws.
            draws = rng.standard_exponential(width).tolist()
            total = 0.0
            for draw in draws:
                total += draw
            share = 1.0 / total
            row = [least + (1 - width * least) * (draw * share) for draw in draws]
            if kind != "paper" or k == 0 or chain[k - 1, k] + row[0] <= 1:
                break
        chain[k, low:high] = row
    return chain


def random_arrays(rng: np.random.Generator, kind: str, n_arms: int, n_states: int) -> tuple[Array, Array]:
    """Draw transition probabilities (arm, state, action, next state) and mean rewards (arm, state, action) of reacting
    arms: see ``Problem.random_reacting``.
    """
    if kind == "collapsing":
        good = np.sort(rng.random((n_arms, 2, 2)), axis=2)
        return np.stack([1.0 - good, good], axis=-1), np.broadcast_to([[0.0, 0.0], [1.0, 1.0]], (n_arms, 2, 2))
    chains = rng.dirichlet(np.ones(n_states), (n_arms, n_states, 2))
    if kind == "dirichlet":
        return chains, rng.random((n_arms, n_states, 2))
    states = np.arange(n_states)
    worse_first = np.argsort(chains @ states, axis=2, kind="stable")[..., None]
    rewards = np.broadcast_to(states[:, None] / (n_states - 1), (n_arms, n_states, 2))
    return np.take_along_axis(chains, worse_first, axis=2), rewards
