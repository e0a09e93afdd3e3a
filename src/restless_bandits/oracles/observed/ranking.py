"""The arms to pull next, by name: the list that a programme of many observed arms needs for its next slot."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import save_file
from restless_bandits._internal.validation import Array, BoolArray, IntArray, check_int
from restless_bandits.model.arm_tables import read_states
from restless_bandits.model.kinds import names_of
from restless_bandits.model.layout import Layout
from restless_bandits.model.problem import AnyProblem, Problem, as_problem
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.observed.finite import next_priority
from restless_bandits.oracles.observed.planners import POLICIES
from restless_bandits.policies.observed import PriorityPolicy
from restless_bandits.policies.policies import Policy


@dataclass(frozen=True, eq=False)
class Ranking:
    """The arms to pull in the next slot, the most urgent first."""

    problem: Problem
    arms: IntArray
    """The numbers of the arms."""
    states: IntArray
    """The present states of these arms."""
    scores: Array
    """The indices of these states."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the arms."""
        every = self.problem.names
        return tuple(every[arm] for arm in self.arms.tolist())

    def __len__(self) -> int:
        return len(self.arms)

    def to_csv(self) -> str:
        """Return the list as CSV with the columns rank, name, state and index."""
        columns = range(1, len(self) + 1), self.names, self.states.tolist(), self.scores.tolist()
        return csv_text(("rank", "name", "state", "index"), zip(*columns, strict=True))

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
    states: Mapping[str, int] | npt.ArrayLike | str | Path,
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
        The present states of all arms: by name, in the order of the arms, or the path of a table with the columns
        ``name`` and ``state``. By name, an excluded arm needs no state. An arm of n states with a set-up cost is in
        state n + s if its state is s and it was pulled in the last slot.
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
    present = read_states(states) if isinstance(states, str | Path) else states
    if isinstance(present, Mapping):
        present = _states_by_name(problem, present, allowed)
    layout = Layout.of(problem)
    here = layout.checked(present)
    places = layout.first + here
    if horizon is None:
        policy, ranks = _priority(problem, oracle)
    elif oracle != "lp-index":
        raise ProblemError(f"horizon is for the rule fluid-priority, not for {oracle}; leave out one of them")
    else:
        policy = next_priority(problem, layout.numbers(here), horizon)
        ranks = _ranks(policy)
    allowed &= policy.score[places] > policy.floor
    candidates = np.flatnonzero(allowed)
    if len(candidates) < problem.plays and not problem.at_most:
        raise ProblemError(
            f"{len(candidates)} arms are left, fewer than plays = {problem.plays}; exclude fewer, or give fewer plays"
        )
    # Of one place the arms of lowest number come first.
    keys = ranks[places[candidates]] * problem.n_arms + candidates
    some = np.argpartition(keys, problem.plays - 1)[: problem.plays] if len(keys) > problem.plays > 0 else slice(None)
    keys = np.sort(keys[some])[: problem.plays]
    chosen = keys % problem.n_arms
    return Ranking(problem, chosen, here[chosen], policy.score[places[chosen]])


def save_indices(problem: Problem, policy: Policy, path: str | Path) -> None:
    """Write the indices of a policy to a CSV file: a row for each kind of arm and state, in the order of priority."""
    if not isinstance(policy, PriorityPolicy):
        raise ProblemError(
            f"the policy has no indices to write to {path}; give the oracle lp-index, or a file that ends in .npz"
        )
    layout, order, names = policy.layout, policy.order, list(names_of(problem.kinds))
    kinds = np.repeat(np.arange(len(layout.n_states)), layout.n_states)[order]
    states = order - layout.offset[kinds]
    named = [names[kind] for kind in kinds.tolist()]
    columns = range(1, len(order) + 1), named, states.tolist(), policy.score[order].tolist()
    save_file(path, csv_text(("rank", "name", "state", "index"), zip(*columns, strict=True)).encode())


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
