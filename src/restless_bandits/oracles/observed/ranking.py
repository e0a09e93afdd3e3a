"""The arms to pull next, by name: the list that a programme of many observed arms needs for its next slot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import save_file
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_int
from restless_bandits.model.arm_tables import read_states
from restless_bandits.model.kinds import names_of
from restless_bandits.model.layout import Layout
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.observed.finite import next_priority
from restless_bandits.oracles.observed.planners import POLICIES, lagrangian_priority
from restless_bandits.policies.finite_horizon import HorizonPolicy
from restless_bandits.policies.observed import ObservedPolicy, PriorityPolicy, RandomizedPolicy
from restless_bandits.policies.policies import Policy


@dataclass(frozen=True, eq=False)
class Ranking:
    """The arms to pull in the next slot, the most urgent first."""

    problem: Problem | ObservedTask
    arms: IntArray
    """The numbers of the arms."""
    states: IntArray | None
    """The present states of these arms, None where they are not known."""
    scores: Array
    """The indices of these states; expected indices in slot 1 where the states are not known."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the arms."""
        every = self.problem.names
        return tuple(every[arm] for arm in self.arms.tolist())

    def __len__(self) -> int:
        return len(self.arms)

    def to_csv(self) -> str:
        """Return the list as CSV with the columns rank, name, state and index."""
        return csv_text(("rank", "name", "state", "index"), ((rank, *row) for rank, row in enumerate(self.rows(), 1)))

    def rows(self) -> Iterator[tuple[str, int | None, float]]:
        """Return the name, the state and the index of each arm."""
        states = [None] * len(self) if self.states is None else self.states.tolist()
        return zip(self.names, states, self.scores.tolist(), strict=True)

    def save(self, path: str | Path) -> None:
        """Write the list to a CSV file, atomically."""
        save_file(path, self.to_csv().encode())

    def __repr__(self) -> str:
        first = ", ".join(self.names[:3]) + (", …" if len(self) > 3 else "")
        return f"<Ranking of {len(self)} of {self.problem.n_arms} arms: {first}>"


def csv_text(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def rank(
    problem: AnyProblem,
    states: Mapping[str, int] | npt.ArrayLike | str | Path | Any,
    *,
    plays: int | None = None,
    exclude: Iterable[str | int] = (),
    oracle: str = "lp-index",
    horizon: int | None = None,
) -> Ranking:
    """Return the arms to pull in the next slot, by name and in the order of their indices.

    Parameters
    ----------
    problem
        A problem with ``observed="all"``, or its name or path.
    states
        The present states of all arms: by name, in the order of the arms, or a table with the columns ``name`` and
        ``state``: the path of a file, a data frame, or an object with the Arrow stream interface. By name, an excluded
        arm needs no state. An arm of n states with a set-up cost is in state n + s if its state is s and it was pulled
        in the last slot.
    plays
        The number of arms to pull in every slot, for which the indices are computed; by default that of the problem.
    exclude
        Names or numbers of arms that cannot be pulled in the next slot.
    oracle
        The rule of the indices: ``lp-index``, ``whittle`` or ``myopic``.
    horizon
        The number of slots that are left, the next one included, if the programme ends. The rule is then
        fluid-priority, and the index of a state is its advantage of pulling in the next slot.

    """
    problem = as_problem(problem)
    if problem.observed != "all":
        raise ProblemError("rank needs the states of all arms; give a problem with observed = 'all'")
    if oracle not in ("lp-index", "whittle", "myopic"):
        raise ProblemError(f"oracle is {shortened(oracle)}; a ranking takes lp-index, whittle or myopic")
    refuse_unsupported(problem, oracle)
    if plays is not None and plays != problem.plays:
        problem = problem.with_plays(plays)
    allowed = np.ones(problem.n_arms, dtype=np.bool_)
    allowed[_numbers(problem, exclude)] = False
    layout = Layout.of(problem)
    here = present_states(problem, states, allowed)
    if horizon is None:
        policy, ranks = _priority(problem, oracle)
    elif oracle != "lp-index":
        raise ProblemError(f"horizon is for the rule fluid-priority, not for {oracle}; leave out one of them")
    else:
        policy = next_priority(problem, layout.numbers(here), horizon)
        ranks = _ranks(policy)
    places = layout.first + here
    allowed &= policy.score[places] > policy.floor
    candidates = np.flatnonzero(allowed)
    if len(candidates) < problem.plays and not problem.at_most:
        raise ProblemError(
            f"{len(candidates)} arms are left, fewer than plays = {problem.plays}; exclude fewer, or give fewer plays"
        )
    chosen = candidates[_first(ranks[places[candidates]], problem.plays)]
    return Ranking(problem, chosen, here[chosen], policy.score[places[chosen]])


def arms_of_policy(problem: Problem, policy: Policy, states: Any = None, discount: float | None = None) -> Ranking:
    """Return the arms that a policy pulls next, in the order of its index or of the Lagrangian index.

    Without ``states``, as ``rank`` takes them, the list has the arms of the highest expected index in slot 1. A policy
    for some slots is planned anew from the given states.
    """
    if not isinstance(policy, ObservedPolicy):
        raise ProblemError("arms are listed where all states are observed; give a problem with observed = 'all'")
    rule, layout = index_rule(problem, policy, discount), Layout.of(problem)
    if states is None:
        start = np.concatenate([group.start.reshape(-1) for group in problem.groups])
        of_kinds = np.add.reduceat(start * rule.score, layout.offset)
        scores = np.repeat(of_kinds, layout.counts)
        candidates = np.flatnonzero(scores > rule.floor)
        chosen = candidates[_first(-scores[candidates], problem.plays)]
        return Ranking(problem, chosen, None, scores[chosen])
    here = present_states(problem, states)
    if isinstance(policy, HorizonPolicy):
        return rank(problem, here, horizon=policy.horizon)
    # The wishes of ``id`` are the same in every call.
    rng = np.random.default_rng(0)
    pulled = policy.arms(here, rng) if isinstance(policy, RandomizedPolicy) else policy.arms(here)
    places = layout.first[pulled] + here[pulled]
    order = _first(_ranks(rule)[places], len(pulled))
    return Ranking(problem, pulled[order], here[pulled[order]], rule.score[places[order]])


def index_rule(problem: Problem, policy: Policy, discount: float | None = None) -> PriorityPolicy:
    """Return the priority of places of a policy: its own, that of slot 1, or the Lagrangian index if it has none."""
    if isinstance(policy, HorizonPolicy):
        return policy.at(1)
    return policy if isinstance(policy, PriorityPolicy) else lagrangian_priority(problem, discount)


def save_indices(problem: Problem, policy: Policy, path: str | Path, *, discount: float | None = None) -> None:
    """Write the index of each kind of arm and state to a CSV file, in the order of priority."""
    rule = index_rule(problem, policy, discount)
    layout, order, names = rule.layout, rule.order, list(names_of(problem.kinds))
    kinds = np.repeat(np.arange(len(layout.n_states)), layout.n_states)[order]
    states = order - layout.offset[kinds]
    named = [names[kind] for kind in kinds.tolist()]
    columns = range(1, len(order) + 1), named, states.tolist(), rule.score[order].tolist()
    save_file(path, csv_text(("rank", "name", "state", "index"), zip(*columns, strict=True)).encode())


def _first(keys: Array | IntArray, most: int) -> IntArray:
    """Return the places of the lowest keys in ascending order; of equal keys the first places."""
    if 0 < most < len(keys):
        worst = np.partition(keys, most - 1)[most - 1]
        some = np.flatnonzero(keys <= worst)
    else:
        some = np.arange(len(keys))
    return some[np.argsort(keys[some], kind="stable")][:most]


@lru_cache(maxsize=4)
def _priority(problem: Problem, oracle: str) -> tuple[PriorityPolicy, IntArray]:
    """Return the policy of an index, and the rank of each place."""
    policy = POLICIES[oracle](problem)
    assert isinstance(policy, PriorityPolicy)
    return policy, _ranks(policy)


def _ranks(policy: PriorityPolicy) -> IntArray:
    ranks = np.empty(policy.layout.size, dtype=np.int64)
    ranks[policy.order] = np.arange(policy.layout.size)
    return ranks


def present_states(problem: Problem, states: Any, needed: BoolArray | None = None) -> IntArray:
    """Return the states of all arms in the order of the arms, from what ``rank`` takes as states.

    By name, an arm that is not ``needed`` may be left out.
    """
    table = isinstance(states, str | Path) or hasattr(states, "columns")
    table |= hasattr(states, "__arrow_c_stream__") and not hasattr(states, "to_numpy")
    found = read_states(states) if table else states
    if isinstance(found, Mapping):
        found = _states_by_name(problem, found, np.ones(problem.n_arms, dtype=np.bool_) if needed is None else needed)
    return Layout.of(problem).checked(found)


def _states_by_name(problem: Problem, states: Mapping[str, int], allowed: BoolArray) -> IntArray:
    """Return the states of all arms in the order of the arms, 0 for excluded arms without a state."""
    numbers, sizes = problem.arm_numbers(states), Layout.of(problem).sizes
    given = np.array(list(states.values()))
    if given.dtype.kind not in "iu" or ((given < 0) | (given >= sizes[numbers])).any():
        for (name, state), number in zip(states.items(), numbers.tolist(), strict=True):
            check_int(f"the state of {name}", state, 0, int(sizes[number]) - 1)
    found, named = np.zeros(problem.n_arms, dtype=np.int64), np.zeros(problem.n_arms, dtype=np.bool_)
    found[numbers], named[numbers] = given, True
    missing = np.flatnonzero(allowed & ~named)
    if len(missing):
        name = problem.names[int(missing[0])]
        raise ProblemError(f"states has no state of arm {name!r}; give the state of every arm that is not excluded")
    return found


def _numbers(problem: Problem, arms: Iterable[str | int]) -> IntArray:
    """Return the numbers of arms given by name or number."""
    if isinstance(arms, str):
        raise ProblemError(f"exclude is {shortened(arms)}; give a list of names")
    given = list(arms)
    named = [arm for arm in given if isinstance(arm, str)]
    counted = [check_int("an arm", arm, 0, problem.n_arms - 1) for arm in given if not isinstance(arm, str)]
    return np.concatenate([problem.arm_numbers(named), np.array(counted, dtype=np.int64)])
