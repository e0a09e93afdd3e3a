"""Whittle's index: the subsidy for resting at which pulling and resting are equally good.

Three ways to it, all for the average-reward criterion.

*Two states*: the closed form of Liu and Zhao (2010). With p11 = Pr(good → good), p01 = Pr(bad → good), λ = p11 − p01,
ω° = p01/(1 − λ) and T^k(ω) = ω° + λ^k (ω − ω°), a belief ω = Pr(good now) has for rewards (1, 0) the index W(ω); any
other rewards stretch it to r_bad + (r_good − r_bad) W(ω).

*More states, and tables of distributions*: a homotopy in the subsidy m. Between breakpoints the optimal policy is
constant and all values are affine in m; at a breakpoint one belief turns from pulling to resting, and that m is its
index. See ``_homotopy.whittle_homotopy``. An arm is *indexable* if no belief ever turns back. Not every arm is: then
the first crossing is kept in the table, ``indexable`` is false, and ``whittle`` plays the Lagrangian index instead,
which is always defined (see ``relaxation``).

*Chains with several recurrent classes* have no single gain; their index is that of a discount so close to 1 that it is
within about 1e-7 of its limit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeGuard

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known, shortened
from restless_bandits._internal.validation import Array, IntArray, check_int, is_number
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.problem import OBSERVATIONS, Problem
from restless_bandits.model.rewards import ZERO_TO_ONE
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles import index_kernels as kernels
from restless_bandits.oracles.bracket import bracketed
from restless_bandits.oracles.evaluation import forgets_when_pulled
from restless_bandits.oracles.homotopy_kernels import whittle_homotopy
from restless_bandits.oracles.index_kernels import DISCOUNTED_TOLERANCE, NEAR_ONE, FlatArms
from restless_bandits.oracles.myopic import table_lengths
from restless_bandits.oracles.normalization import normalized, solved_normalized
from restless_bandits.oracles.observed.index import Sweep, sweep_arms
from restless_bandits.oracles.relaxation import lagrangian_policy
from restless_bandits.oracles.solution import Oracle, Solution
from restless_bandits.policies.policies import IndexPolicy
from restless_bandits.processes.arm_process import observed_process
from restless_bandits.processes.beliefs import has_lost_row, table_of, table_period, truncations_for
from restless_bandits.processes.resting_pay import pays_nothing_at_rest

Method = Literal["auto", "closed-form", "homotopy"]

INDEX_TV_ERROR = 1e-13
"""The homotopy runs on distributions up to their limits, so that the end of its table does not show in the indices."""
PERIODS = 8
HOMOTOPY_WORK = 4e9
"""Multiplications that a homotopy may take: about a second."""


@dataclass(frozen=True)
class ArmIndex:
    """Whittle's index of one arm.

    ``table[s, τ - 1]`` for every last seen state s and, in the last row, for an arm never seen. ``violation`` is the
    largest advantage of pulling in a belief that had turned to resting; an indexable arm has none.
    """

    table: Array
    indexable: bool
    violation: float
    method: str
    observed: bool = False
    """Whether the arm is always seen: the table then has a row for each state and a single column."""
    lost_row: bool = False
    """Whether the last row is for an arm whose last pull was not answered, and the row before for one never seen."""
    turns: tuple[tuple[float, int, int], ...] = ()
    """All turns of an arm that is always seen and not indexable, by rising subsidies for resting.

    A turn is the subsidy, the state, and the action in the state from this subsidy on; action 1 pulls. The table then
    holds the last subsidy at which each state turns to rest.
    """

    def columns(self, length: int | None = None) -> Array:
        """Return the table for τ = 1..length, cut or carried on: its last column holds for every longer wait."""
        have = self.table.shape[1]
        return self.table[:, np.minimum(np.arange(length or have), have - 1)]

    def as_dict(self, length: int | None = None) -> dict[str, Any]:
        """Return what ``restless index --json`` prints of an arm, for τ = 1..length."""
        table = self.columns(length)
        about = {"violation": self.violation, "method": self.method}
        if self.observed:
            return {
                "indexable": self.indexable,
                "index": table,
                **about,
                **({"turns": self.turns} if self.turns else {}),
            }
        n = len(table) - 1 - self.lost_row
        found = {"indexable": self.indexable, "index": table[:n], "never_seen": table[n, 0]}
        return found | ({"lost": table[n + 1]} if self.lost_row else {}) | about


def flat_arms(arms: Sequence[Arm]) -> FlatArms:
    """Return chains as kernels take them."""
    flat = (np.concatenate([getattr(arm, name).ravel() for arm in arms]) for name in ("chain", "rewards", "stationary"))
    return FlatArms(np.array([arm.n_states for arm in arms]), *flat)


def index_tables(arms: FlatArms, lengths: IntArray) -> tuple[Array, ...] | None:
    """Return Whittle's index of many chains for τ = 1..length each: the closed form of two states, else the homotopy.

    Each has a row for every state and one for an arm never seen. An arm that is not indexable keeps the first subsidy
    at which each belief turns passive. None where the systems behind an index are singular.
    """
    rows = arms.n_states + 1
    ends = np.cumsum(rows * lengths)
    base, flat = ends - rows * lengths, np.empty(ends[-1])
    kernels.two_state_tables(arms, base, lengths, flat)
    if (arms.n_states != 2).any() and not _write_homotopies(arms, base, lengths, flat):
        return None
    places = zip(base.tolist(), ends.tolist(), rows.tolist(), strict=True)
    return tuple(flat[start:end].reshape(n, -1) for start, end, n in places)


def _write_homotopies(arms: FlatArms, base: IntArray, lengths: IntArray, flat: Array) -> bool:
    """Write the index of every arm that has not two states; returns whether all systems behind them could be solved."""
    states = np.concatenate([[0], np.cumsum(arms.n_states)]).tolist()
    chains = np.concatenate([[0], np.cumsum(arms.n_states**2)]).tolist()
    for i in np.flatnonzero(arms.n_states != 2).tolist():
        chain, mine = arms.chains[chains[i] : chains[i + 1]], slice(states[i], states[i + 1])
        told = (array.tobytes() for array in (chain, arms.rewards[mine], arms.limiting_distributions[mine]))
        table = _homotopy(int(arms.n_states[i]), int(lengths[i]), *told)
        if table is None:
            return False
        flat[base[i] : base[i] + table.size] = table
    return True


@lru_cache(maxsize=2048)
def _homotopy(n_states: int, length: int, chain: bytes, rewards: bytes, limit: bytes) -> Array | None:
    """The index of one arm, flat; None where a system is singular.

    Kept, because a learner asks for most arms again with its next plan: those of which it has seen nothing since.
    """
    arm = FlatArms(np.array([n_states]), *(np.frombuffer(told) for told in (chain, rewards, limit)))
    table = np.empty((n_states + 1) * length)
    return table if kernels.homotopy_tables(arm, np.zeros(1, np.int64), np.array([length]), table) else None


def two_state_index(arm: Arm, length: int) -> Array:
    """Return the closed form of an arm of two states for τ = 1..length: rows for state 0, state 1, never seen."""
    found = index_tables(flat_arms([arm]), np.array([length]))
    assert found is not None  # the closed form solves nothing
    return found[0]


def whittle_index(
    arm: AnyArm,
    *,
    observed: Literal["pulled", "all"] = "pulled",
    discount: float | None = None,
    length: int | None = None,
    method: Method = "auto",
) -> ArmIndex:
    """Return Whittle's index of an arm for every belief, or for every state of an arm that is always seen.

    Parameters
    ----------
    arm
        The arm.
    observed
        Whether the state of the arm is seen when it is pulled, or in every slot (``"all"``).
    discount
        The weight of the next slot's reward; by default the criterion is the average reward.
    length
        The number of slots since the last pull, from 1 on, for which indices are returned; by default the number after
        which they stand still. An arm that is always seen has a single column.
    method
        By default two-state chains with the average reward take the closed form and all other arms the homotopy.

    """
    check_known(observed, OBSERVATIONS, "observed is")
    if discount is not None:
        check_discount(discount)
    if observed == "all":
        return observed_index(arm, discount)
    if length is not None:
        length = check_int("length", length)
    methods = ("auto", "closed-form", "homotopy")
    check_known(method, methods, "there is no method")
    if method == "closed-form" and not _is_closed(arm):
        raise ProblemError(f"arm {arm.name!r} has {arm.n_states} states; the closed form is for chains of two")
    return _indices([arm], length, method != "homotopy", discount)[0]


def gittins_index(arm: Arm, discount: float) -> Array:
    """Return the Gittins index of each state of an arm that moves only when pulled and pays nothing at rest."""
    check_discount(discount)
    if (
        not isinstance(arm, Arm)
        or not np.array_equal(arm.chain, np.eye(arm.n_states))
        or arm.passive_rewards is not None
    ):
        raise ProblemError(
            f"arm {getattr(arm, 'name', arm)!r} moves or pays at rest, so it has no Gittins index; make it with "
            "Arm.rested, or take whittle_index"
        )
    return observed_index(arm, discount).table[:, 0]


def check_discount(discount: float) -> None:
    """Refuse values that are no discount."""
    if not is_number(discount) or not 0 < discount < 1:
        raise ProblemError(f"discount is {shortened(discount)}; it must lie strictly between 0 and 1")


def observed_index(arm: AnyArm, discount: float | None) -> ArmIndex:
    """Return the index of each state of an arm that is always seen: a table with one column."""
    if not isinstance(arm, Arm):
        raise ProblemError(f"arm {arm.name!r} is a table of distributions, which is for arms seen when pulled")
    if arm.setup_cost:
        process = observed_process(arm)
        chains, rewards = (process.matrix(1), process.matrix(0)), process.reward
    else:
        chains, rewards = (arm.active_chain, arm.chain), arm.mean_rewards
    swept = sweep_arms(
        chains[0][None], chains[1][None], rewards[None, :, 1], rewards[None, :, 0], discount=discount or 1.0
    )
    return _swept_indices(swept, len(rewards))[0]


def whittle_indices(
    arms: Sequence[AnyArm], *, observed: Literal["pulled", "all"] = "pulled", discount: float | None = None
) -> list[ArmIndex]:
    """Return Whittle's index of each of many arms, as ``whittle_index`` does of one."""
    if discount is not None:
        check_discount(discount)
    return (
        [observed_index(arm, discount) for arm in arms] if observed == "all" else _indices(arms, None, True, discount)
    )


def observed_indices(problem: Problem, discount: float | None = None) -> list[ArmIndex]:
    """Return the index of each state for every kind of arm of a problem whose states are all observed."""
    if discount is not None:
        check_discount(discount)
    found: list[ArmIndex] = []
    for group in problem.groups:
        chains, rewards = (group.active, group.passive), (group.active_rewards, group.passive_rewards)
        swept = sweep_arms(*chains, *rewards, discount=discount or 1.0)
        found += _swept_indices(swept, group.n_states)
    return found


def _swept_indices(swept: Sweep, n_states: int) -> list[ArmIndex]:
    """Return the indices of arms that were swept together."""
    index, violations = swept.indices(n_states), swept.violations(n_states).tolist()
    found = []
    for arm, (violation, multichain) in enumerate(zip(violations, swept.discounted.tolist(), strict=True)):
        indexable = violation == 0.0
        turns = () if indexable else swept.turns(arm)
        method = "sweep at a vanishing discount" if multichain else "sweep"
        found.append(ArmIndex(index[arm][:, None], indexable, violation, method, observed=True, turns=turns))
    return found


def _is_closed(arm: AnyArm) -> TypeGuard[Arm]:
    return isinstance(arm, Arm) and arm.n_states == 2 and not has_lost_row(arm)


def _indices(
    arms: Sequence[AnyArm], length: int | None, closed_form: bool, discount: float | None = None
) -> list[ArmIndex]:
    """Indices are found for shares of each arm's own range and stretched: an index is an affine map of rewards."""
    for arm in arms:
        refuse_unsupported(arm, "index")
    arms = [pays_nothing_at_rest(arm, discount) for arm in arms]
    shares = [arm if arm.reward_range == ZERO_TO_ONE else arm.normalized_to(arm.reward_range) for arm in arms]
    found = _indices_of_shares(shares, length, closed_form and discount is None, discount)
    for i, arm in enumerate(arms):
        if arm.reward_range != ZERO_TO_ONE:
            low, high = arm.reward_range
            table, violation = low + (high - low) * found[i].table, (high - low) * found[i].violation
            found[i] = replace(found[i], table=table, violation=violation)
    return found


def _indices_of_shares(
    arms: Sequence[AnyArm], length: int | None, closed_form: bool, discount: float | None = None
) -> list[ArmIndex]:
    lengths = table_lengths(arms) if length is None else [length] * len(arms)
    found: dict[int, ArmIndex] = {}
    closed = {i: arm for i, arm in enumerate(arms) if closed_form and _is_closed(arm)}
    if closed:
        tables = index_tables(flat_arms(list(closed.values())), np.array([lengths[i] for i in closed]))
        for i, table in zip(closed, tables or (), strict=True):
            found[i] = ArmIndex(table, indexable=True, violation=0.0, method="closed form")
    others = [i for i in range(len(arms)) if i not in found]
    for i, settled in zip(others, truncations_for([arms[i] for i in others], INDEX_TV_ERROR), strict=True):
        arm, longest = arms[i], lengths[i]
        affordable = max(1, int(math.sqrt(HOMOTOPY_WORK / arm.n_states**3)))
        if length is None:
            longest = min(longest, affordable)
        # Distributions up to their limits; for a chain with a period, some rounds more: the end of a table is constant.
        width = settled + (PERIODS * table_period(arm) if table_period(arm) > 1 else 0)
        found[i] = index_by_homotopy(arm, longest, max(longest, min(width, affordable)), discount)
    return [found[i] for i in range(len(arms))]


def index_by_homotopy(arm: AnyArm, length: int, width: int, discount: float | None = None) -> ArmIndex:
    """Follow the homotopy on a table of ``width`` slots and return the first ``length`` of its columns.

    The arm pays nothing at rest: see ``resting_pay``.
    """
    table = table_of(arm, width)
    distributions, mean = table.distributions, table.mean
    # Always a copy: of a read-only view of a table of one slot Numba would compile all kernels anew.
    distribution = distributions.transpose(0, 2, 1).copy()
    solved, method = False, "homotopy"
    if discount is not None:
        found, indexable, violation, solved = whittle_homotopy(distribution, mean, discount, DISCOUNTED_TOLERANCE)
    elif arm.is_ergodic and forgets_when_pulled(arm):
        rarest = float(distribution[: arm.n_states, :, -1].max(axis=0).min())
        found, indexable, violation, solved = whittle_homotopy(
            distribution, mean, 1.0, kernels.violation_tolerance(rarest)
        )
    if not solved and discount is None:
        method = "homotopy at a vanishing discount"
        found, indexable, violation, solved = whittle_homotopy(distribution, mean, NEAR_ONE, DISCOUNTED_TOLERANCE)
    if not solved:
        raise ProblemError(f"arm {arm.name!r}: the systems behind its index are singular; use the relaxation oracle")
    left = float(np.abs(distributions[:, -1] - distributions[:, -2]).sum(axis=-1).max()) if width > 1 else 0.0
    if isinstance(arm, Arm) and table_period(arm) == 1 and left > 1e-9:
        method += f", cut at τ = {width} where distributions still move"
    return ArmIndex(found[:, :length], indexable, violation, method, lost_row=has_lost_row(arm))


@normalized
def whittle_policy(problem: Problem, indices: Sequence[ArmIndex] = ()) -> IndexPolicy:
    """Return the policy of Whittle's index, or of the Lagrangian index where an arm is not indexable."""
    indices = indices or whittle_indices(problem.arms)
    if all(index.indexable for index in indices):
        return IndexPolicy.of(problem, [index.table for index in indices])
    return lagrangian_policy(problem)


@solved_normalized
def whittle(problem: Problem) -> Solution:
    """Pull the arms of highest Whittle index; no optimality is claimed beyond the bracket."""
    started = time.perf_counter()
    indices = whittle_indices(problem.arms)
    culprits = [arm.name for arm, index in zip(problem.arms, indices, strict=True) if not index.indexable]
    how = "Whittle index"
    if culprits:
        how = f"Lagrangian index, as {', '.join(repr(name) for name in culprits)} is not indexable"
    details = {"indexable": [index.indexable for index in indices]}
    return bracketed(problem, "whittle", whittle_policy(problem, indices), how, started, details=details)


ORACLE = Oracle("whittle", whittle, whittle_policy)
