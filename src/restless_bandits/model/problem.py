"""Restless-bandit problems as data: arms, problems, and the part of a problem that a learner may know.

The slot standard, common to the whole package. Slots are t = 1..T. In each slot

1. with ``observed = "all"`` the player sees the present states of all arms,
2. the player picks ``plays`` arms, or up to ``plays`` arms with ``at_most``,
3. of each it sees the present state and a random reward whose mean is ``rewards[state]``; each other arm pays
   ``passive_rewards[state]``, nothing by default, which the player sees with ``observed = "all"`` only,
4. every chain takes one step, seen or not: by ``active_transitions`` if the arm was pulled, else by ``transitions``.

A pull in a slot after a slot without a pull costs ``setup_cost``, and so does the first pull of an arm.

Initial states lie one step before slot 1, a step by ``transitions``. With ``observed = "pulled"``, all knowledge of an
arm is therefore the pair (last observed state, slots since then τ ≥ 1). Its present state has the distribution
``(P_active P^(τ−1))[last observed state]``, which is ``P^τ[last observed state]`` for an uncontrolled arm. States count
from 0 and **state 0 is the best** (Assumption 1 of Wang, Huang, Lui 2020: rewards do not increase with the state). The
package does not require the assumption, and no order of states is assumed for reacting or observed arms;
``Problem.assumptions`` tests it. An arm without an initial state starts from the stationary distribution of
``transitions``.

Rewards are in the user's units, within a range for each arm: see ``rewards``.

*Changes.* From a slot t on an arm may have another chain, or other mean rewards. The step into slot t, at the end of
slot t − 1, is the first step of the new chain, and slot t the first with the new rewards. A piece from slot t on is
therefore a separate problem, with initial states one step before its first slot. For an arm last observed in s in slot
r < t, the state in slot u ≥ t has the distribution ``P_old^(t−1−r) P_new^(u−t+1)[s]``. Learners are not informed of
changes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.errors import ProblemError, check_known, did_you_mean, shortened
from restless_bandits._internal.files import save_file
from restless_bandits._internal.html_tables import MOST_ROWS, html_table, numbers_text
from restless_bandits._internal.validation import (
    IntArray,
    check_int,
    is_whole,
    to_jsonable,
)
from restless_bandits.model import markov
from restless_bandits.model.arms import AnyArm, Arm, TableArm
from restless_bandits.model.assumptions import ASSUMPTIONS, Assumption, assumptions_of, complaint
from restless_bandits.model.changes import Change
from restless_bandits.model.checks import (
    OTHER_WORDS,
    PAGE,
    PROBLEM_PAGE,
    check_horizon,
    check_text,
    keywords_of,
    refusing_keywords,
)
from restless_bandits.model.findings import NO_FINDINGS, Findings
from restless_bandits.model.kinds import (
    ArmNames,
    ArrayKinds,
    KindGroup,
    content_bytes,
    counts_of,
    expanded,
    find_arm,
    group_kinds,
    kind_numbers,
    names_of,
    read_arrays,
)
from restless_bandits.model.layout import Layout
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.problem_files import (
    ARM_KEYS,
    CHANGE_KEYS,
    RANDOM_KINDS,
    REACTING_KINDS,
    builtin_problems,
    builtin_text,
    parse_problem,
    problem_text,
    random_arrays,
    random_chain,
    read_problem_file,
)
from restless_bandits.model.rewards import (
    ZERO_TO_ONE,
    Range,
    RewardLaw,
    common_range,
    normalized_rewards,
)
from restless_bandits.model.support import ARM_FEATURES, PROBLEM_FEATURES, refuse_unsupported
from restless_bandits.model.tasks import REVEALABLE, Task

OBSERVATIONS = ("pulled", "all")
"""What is seen of the states: those of pulled arms in the slot of the pull, or those of all arms before the choice."""
STATED_EITHER_WAY = frozenset(
    word.format(what) for word in ("{}s", "{}_range", "passive_{}s") for what in ("reward", "cost")
)
"""Keywords of arms of which those for rewards or those for costs are given."""
REMEDIES = {word: f"an arm takes {here} ({PAGE})" for word, here in OTHER_WORDS.items()} | dict.fromkeys(
    keywords_of(Arm.__init__), f"give it to each Arm ({PROBLEM_PAGE})"
)
"""Words for arms that are given to a problem, and their place."""
MOST_NAMES = 1000
"""Names among which a name like an unknown one is looked for."""


@dataclass(frozen=True)
class Piece:
    """An interval of slots without a change of the problem."""

    first: int
    """The first slot of the interval."""
    problem: Problem
    """The problem of this piece, with the initial states or beliefs of the full problem."""


class Problem:
    """Several arms, of which ``plays`` are pulled in each slot.

    A problem is immutable, and valid once made: an invalid problem raises ``ProblemError``. ``findings`` holds the
    findings of a fit to a log. Findings are no part of ``content`` and do not enter comparisons of problems.
    ``changes`` lists the changes of arms with their slots, and ``pieces`` the problems between the changes.

    ``kinds`` are the arms as given, ``arms`` the single arms: a kind with a ``count`` stands for so many of them. With
    ``observed="all"`` the states of all arms are seen before the choice, with ``"pulled"`` the states of pulled arms in
    the slot of the pull. With ``at_most`` fewer than ``plays`` arms may be pulled.

    >>> problem = Problem([Arm.two_state(0.7, 0.8), Arm.two_state(0.5, 0.6, rewards=(0.8, 0))])
    >>> problem
    <Problem: 2 arms of 2 states, 1 play>
    """

    @refusing_keywords("Problem", REMEDIES)
    def __init__(
        self,
        arms: Iterable[AnyArm],
        *,
        plays: int = 1,
        observed: Literal["pulled", "all"] = "pulled",
        at_most: bool = False,
        name: str = "",
        source: str = "",
        findings: Findings = NO_FINDINGS,
        changes: Iterable[Change] = (),
    ) -> None:
        if not isinstance(arms, Iterable):
            raise ProblemError(f"arms is {arms!r}; give a list of Arm or TableArm objects")
        self.kinds: Sequence[AnyArm] = arms if isinstance(arms, ArrayKinds) else _named(arms)
        check_text(name, "name")
        check_text(source, "source")
        if not isinstance(findings, Findings):
            raise ProblemError(f"findings is {findings!r}; give Findings, or leave it out")
        self.arms: Sequence[AnyArm] = expanded(self.kinds)
        self.plays = check_int("plays", plays, 1, len(self.arms), "the number of arms")
        check_known(observed, OBSERVATIONS, "observed is")
        if not isinstance(at_most, bool):
            raise ProblemError(f"at_most is {shortened(at_most)}; it must be true or false")
        self.observed, self.at_most = observed, at_most
        self.name, self.source, self.findings = name, source, findings
        if not isinstance(changes, Iterable) or isinstance(changes, str | Mapping):
            raise ProblemError(f"changes is {shortened(changes)}; give a list of Change objects")
        self.changes = self._checked(tuple(changes))
        if self.changes:
            if self.features:
                raise ProblemError(
                    f"the problem changes at slot {self.changes[0].slot} and has {self.features[0]}; only uncontrolled "
                    "arms that are seen when pulled can change"
                )
            _ = self.pieces  # An arm that cannot change so says so now.

    def _checked(self, changes: tuple[Change, ...]) -> tuple[Change, ...]:
        """Changes in the order of their slots, arms by name."""
        found = []
        for i, change in enumerate(changes):
            if not isinstance(change, Change):
                raise ProblemError(f"changes[{i}] is {shortened(change)}; give Change objects")
            number = change.arm if isinstance(change.arm, int) else self.arm_number(change.arm)
            if not 0 <= number < self.n_arms:
                raise ProblemError(f"changes[{i}]: there is no arm {number}; arms are 0 to {self.n_arms - 1}")
            found.append(dataclasses.replace(change, arm=self.arms[number].name))
        found.sort(key=lambda change: change.slot)
        twice = Counter((change.slot, change.arm) for change in found).most_common(1)
        if twice and twice[0][1] > 1:
            slot, arm = twice[0][0]
            raise ProblemError(f"arm {arm!r} changes twice at slot {slot}; say it in one change")
        return tuple(found)

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Read a problem from a TOML file; errors name the file."""
        return cls.from_toml(read_problem_file(path), origin=str(path))

    @classmethod
    def from_toml(cls, text: str, *, origin: str = "problem") -> Problem:
        """Return the problem of a TOML text; ``origin`` names the text in error messages."""
        head, arms, changes = parse_problem(text, origin)
        try:
            findings = Findings(**head.pop("fit", {}))
            changed = [Change(**change) for change in changes]
            return cls([Arm(**arm) for arm in arms], **head, findings=findings, changes=changed)
        except ProblemError as error:
            raise ProblemError(f"{origin}: {error}") from None

    @classmethod
    def builtin(cls, name: str) -> Problem:
        """Return a problem of the package by its name; ``builtin_problems()`` lists the names."""
        return cls.from_toml(builtin_text(name), origin=name)

    def to_toml(self) -> str:
        """Return the problem as TOML; reading the text returns the same problem, number for number."""
        tables = []
        for arm in self.kinds:
            if isinstance(arm, TableArm):
                raise ProblemError(f"arm {arm.name!r} is a TableArm, which has no TOML form; keep it in Python")
            stated = arm.stated()
            ends = "cost_range" if arm.in_costs else "reward_range"
            stated[ends] = None if stated[ends] == ZERO_TO_ONE else stated[ends]
            stated |= {"initial": arm.initial_given, "setup_cost": arm.setup_cost or None}
            stated["count"] = arm.count if arm.count > 1 else None
            own = {key: stated[key] if key in stated else getattr(arm, key, None) for key in ARM_KEYS}
            for key in STATED_EITHER_WAY - stated.keys():
                own[key] = None
            tables.append({key: to_jsonable(value) for key, value in own.items()})
        head: dict[str, Any] = {"name": self.name, "source": self.source, "plays": self.plays}
        head |= {key: getattr(self, key) for key in PROBLEM_FEATURES if key in self.features}
        changes = []
        for change in self.changes:
            table = {key: getattr(change, key, None) for key in CHANGE_KEYS}
            if self.in_costs and change.rewards is not None:
                table |= {"rewards": None, "costs": 0.0 - change.rewards}
            changes.append({key: to_jsonable(value) for key, value in table.items()})
        return problem_text(head, self.findings.as_dict(), tables, changes)

    def save(self, path: str | Path) -> None:
        """Write the problem to a TOML file, atomically."""
        save_file(path, self.to_toml().encode())

    @classmethod
    def from_arrays(
        cls,
        P: npt.ArrayLike,
        R: npt.ArrayLike,
        *,
        axes: str = "nsaz",
        reward_axes: str | None = None,
        plays: int = 1,
        observed: Literal["pulled", "all"] = "all",
        at_most: bool = False,
        count: int | Sequence[int] = 1,
        names: Sequence[str] | None = None,
        initial: npt.ArrayLike | None = None,
        reward_law: RewardLaw = "fixed",
        name: str = "",
        source: str = "",
    ) -> Problem:
        """Return the problem of arms given as arrays, whose axes have names: n arm, s state, a action, z next state.

        Action 1 pulls. A million arms take a second: the arrays are kept, and the arms made on demand.

        Parameters
        ----------
        P
            Transition probabilities, which sum to one along z.
        R
            Mean rewards. Rewards without the axis a are paid whatever is done. All rewards of a problem have one range:
            (0, 1), or the smallest one with all rewards and zero.
        axes
            The axes of ``P`` in their order. Without n there is one arm. Without z the array holds the probabilities of
            state 1 of two states.
        reward_axes
            The axes of ``R`` in their order; by default those that fit its shape, if one reading does.
        plays, observed, at_most
            As for ``Problem``; here all states are observed by default.
        count
            The number of arms of each kind, if ``P`` holds kinds of arms.
        names
            The names of the arms, by default ``arm 1``, ``arm 2``, ….
        initial
            The state one step before slot 1, for all arms or for each, or its distribution; by default stationary.
        reward_law
            The distribution of all rewards.
        name, source
            The name of the problem and the source of its numbers.

        """
        kinds = read_arrays(
            P,
            R,
            axes=axes,
            reward_axes=reward_axes,
            counts=count,
            names=names,
            initial=initial,
            reward_law=reward_law,
        )
        return cls(kinds, plays=plays, observed=observed, at_most=at_most, name=name, source=source)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        plays: int,
        kinds: Problem | Mapping[str, Arm] | Iterable[AnyArm] | None = None,
        rewards: npt.ArrayLike | None = None,
        passive_rewards: npt.ArrayLike | None = None,
        observed: Literal["pulled", "all"] = "all",
        at_most: bool = False,
        reward_law: RewardLaw = "fixed",
        name: str = "",
        source: str = "",
    ) -> Problem:
        """Return the problem of a table with a row for each arm.

        A column ``name`` (or ``arm``) has the names. Columns ``p_passive_0_1``, ``p_active_0_1``, … have the transition
        probabilities without and with a pull, of which one after each state may be left out. Columns ``reward_0``,
        ``passive_reward_0``, … have the mean rewards with and without a pull. ``initial`` and ``count`` are as for
        ``Arm``. Other columns are ignored.

        Parameters
        ----------
        table
            The path of a file (CSV, Parquet or JSON lines), a data frame, an object with the Arrow stream interface, or
            a mapping of columns.
        plays, observed, at_most, name, source
            As for ``from_arrays``.
        kinds
            Arms by their names, for a table whose column ``kind`` has the name of each arm's kind: a mapping, a list of
            arms, or a problem. Kinds with one number of states and one distribution of rewards are planned fastest.
        rewards, passive_rewards
            Mean rewards by state for all arms, for a table without columns of rewards.
        reward_law
            The distribution of all rewards of a table without kinds.

        """
        # Readers of tables take some time to load.
        from restless_bandits.model.arm_tables import read_table

        given = kinds.kinds if isinstance(kinds, Problem) else kinds
        arms = read_table(table, given, rewards, passive_rewards, reward_law)
        return cls(arms, plays=plays, observed=observed, at_most=at_most, name=name, source=source)

    @classmethod
    def random(
        cls,
        n_arms: int = 2,
        n_states: int | Sequence[int] = 2,
        *,
        seed: int | np.random.Generator | None = None,
        plays: int = 1,
        kind: Literal["paper", "birth-death", "general"] = "paper",
        floor: float = 0.02,
        initial: Literal["random", "worst", "unknown"] = "random",
        reward_law: RewardLaw = "bernoulli",
    ) -> Problem:
        """Draw a problem.

        Rows are uniform over the distributions that the kind allows, rewards uniform and sorted. ``paper`` keeps
        Assumptions 1 to 4 with c1 ≥ ``floor``; ``birth-death`` keeps 1 and 2 only: chains may be negatively correlated;
        and ``general`` keeps Assumption 1 alone. Each row is redrawn, given the row above, until the assumptions hold.
        """
        if kind not in RANDOM_KINDS:
            raise ProblemError(f"unknown kind {kind!r} of random problem; {did_you_mean(str(kind), RANDOM_KINDS)}")
        if initial not in ("random", "worst", "unknown"):
            raise ProblemError(f"initial is {initial!r}; choose from random, worst, unknown")
        if not 0 <= floor < 1 / 3:
            raise ProblemError(f"floor is {floor!r}; three neighbours leave room only for less than 1/3")
        check_int("n_arms", n_arms)
        sizes = list(n_states) if isinstance(n_states, Iterable) else [n_states] * n_arms
        if len(sizes) != n_arms or not all(is_whole(size) and size >= 1 for size in sizes):
            raise ProblemError(f"n_states is {n_states!r}; give one number of states, or one for each of {n_arms} arms")
        rng = _generator(seed)
        arms = []
        for i, size in enumerate(sizes):
            transitions = random_chain(rng, size, kind, floor)
            rewards = np.sort(rng.random(size))[::-1]
            start = {"random": int(rng.integers(size)), "worst": size - 1, "unknown": None}[initial]
            arms.append(Arm(transitions, rewards, name=f"arm {i + 1}", initial=start, reward_law=reward_law))
        return cls(arms, plays=plays, name=f"random {kind}")

    @classmethod
    def random_reacting(
        cls,
        n_arms: int,
        n_states: int = 2,
        *,
        seed: int | np.random.Generator | None = None,
        plays: int | None = None,
        kind: Literal["health", "dirichlet", "collapsing"] = "health",
        observed: Literal["pulled", "all"] | None = None,
        reward_law: RewardLaw = "bernoulli",
    ) -> Problem:
        """Draw a problem of arms that react to pulls, with a tenth of the arms pulled by default.

        All rows are uniform over distributions. ``dirichlet`` has uniform rewards for both actions. ``health`` pays
        s/(n − 1) in state s whatever is done, and of two rows the row with the higher expected state belongs to the
        pull. ``collapsing`` is ``health`` with two states whose probabilities of state 1 are uniform, seen when pulled
        by default; other arms are all observed.
        """
        check_known(kind, REACTING_KINDS, "unknown kind of random problem:")
        check_int("n_arms", n_arms)
        check_int("n_states", n_states, 2)
        if kind == "collapsing" and n_states != 2:
            raise ProblemError(f"n_states is {n_states}; collapsing arms have two states")
        P, R = random_arrays(_generator(seed), kind, n_arms, n_states)
        plays = max(1, n_arms // 10) if plays is None else plays
        observed = observed or ("pulled" if kind == "collapsing" else "all")
        return cls.from_arrays(
            P,
            R,
            reward_axes="nsa",
            plays=plays,
            observed=observed,
            reward_law=reward_law,
            name=f"random {kind}",
        )

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The problems between changes, each from its first slot on; a problem without changes has one piece."""
        if not self.changes:
            return (Piece(1, self),)
        firsts = sorted({1, *(change.slot for change in self.changes)})
        arms, found = list(self.arms), []
        for slot, after in zip(firsts, [*firsts[1:], None], strict=True):
            for change in (change for change in self.changes if change.slot == slot):
                number = self.arm_number(str(change.arm))
                arm = arms[number]
                if arm.reward_law == "fixed" and change.rewards is not None:
                    raise ProblemError(
                        f"change at slot {slot}: arm {arm.name!r} has fixed rewards, which learners take never to "
                        "change; give it another reward_law"
                    )
                if not isinstance(arm, Arm):
                    raise ProblemError(
                        f"change at slot {slot}: arm {arm.name!r} is a table of distributions, which cannot change"
                    )
                try:
                    arms[number] = arm.changed(change.transitions, change.rewards)
                except ProblemError as error:
                    raise ProblemError(f"change at slot {slot}: {error}") from None
            slots = f"from slot {slot} on" if after is None else f"slots {slot} to {after - 1}"
            name = f"{self.name}, {slots}" if self.name else slots
            of_all: dict[str, Any] = {key: getattr(self, key) for key in ("plays", "source", "findings")}
            found.append(Piece(slot, Problem(arms, name=name, **of_all)))
        return tuple(found)

    @cached_property
    def reward_range(self) -> Range:
        """The smallest range that contains the rewards of all arms."""
        if isinstance(self.kinds, ArrayKinds):
            return self.kinds.reward_range
        return common_range(arm.reward_range for arm in self.kinds)

    def normalized(self) -> Problem:
        """Return the same problem with rewards as shares of ``reward_range``: the problem itself for (0, 1)."""
        return self if self.reward_range == ZERO_TO_ONE else self._normalized

    @cached_property
    def _normalized(self) -> Problem:
        common, at_rest = self.reward_range, self.pays_at_rest
        if isinstance(self.kinds, ArrayKinds):
            return self._like(self.kinds.normalized_to(common, at_rest=at_rest))
        arms = [arm.normalized_to(common, at_rest=at_rest) for arm in self.kinds]
        changes = []
        for change in self.changes:
            ends = arms[self.arm_number(str(change.arm))].reward_range
            rewards = None if change.rewards is None else np.clip(normalized_rewards(change.rewards, common), *ends)
            changes.append(dataclasses.replace(change, rewards=rewards))
        return self._like(arms, changes=changes)

    def _like(self, arms: Iterable[AnyArm], **other: Any) -> Problem:
        """Return the problem of other arms with the other fields of this one, but for its changes."""
        words = ("plays", "observed", "at_most", "name", "source", "findings")
        return Problem(arms, **({word: getattr(self, word) for word in words} | other))

    def require_drawn(self) -> None:
        """Raise ``ProblemError`` for an arm with an unknown reward distribution: no simulator can draw its rewards."""
        for arm in self.kinds[:1] if isinstance(self.kinds, ArrayKinds) else self.kinds:
            if arm.reward_law == "bounded":
                raise ProblemError(
                    f"arm {arm.name!r} has bounded rewards of unknown distribution, which cannot be drawn; "
                    "give it reward_law 'beta' and a reward_spread"
                )

    def require_steady(self, what: str) -> None:
        """Raise ``ProblemError`` for a problem with changes; ``what`` names the caller, which accepts constant
        problems only.
        """
        if self.changes:
            raise ProblemError(
                f"the problem changes at slot {self.changes[0].slot}, and {what} is for problems that do not; take a "
                "piece of it, as problem.pieces[0].problem"
            )

    @cached_property
    def in_costs(self) -> bool:
        """Whether the arms were stated by costs: rewards are negative costs, and outputs show costs."""
        return not isinstance(self.kinds, ArrayKinds) and self.kinds[0].in_costs

    @property
    def n_arms(self) -> int:
        return len(self.arms)

    @property
    def n_states(self) -> tuple[int, ...]:
        if isinstance(self.kinds, ArrayKinds):
            return (self.kinds.n_states,) * self.n_arms
        return tuple(arm.n_states for arm in self.arms)

    @property
    def initial(self) -> tuple[int | None, ...]:
        return tuple(arm.initial for arm in self.arms)

    @cached_property
    def kind_counts(self) -> IntArray:
        """The number of arms of each kind."""
        return counts_of(self.kinds)

    @cached_property
    def kind_firsts(self) -> IntArray:
        """The position of the first arm of each kind."""
        return np.cumsum(self.kind_counts) - self.kind_counts

    @cached_property
    def kind_of_arm(self) -> IntArray:
        """The number of each arm's kind; the arms of a kind are consecutive."""
        return np.repeat(np.arange(len(self.kinds)), self.kind_counts)

    @cached_property
    def groups(self) -> tuple[KindGroup, ...]:
        """The kinds as arrays, for planners and simulators of many arms."""
        return (
            (self.kinds.group,)
            if isinstance(self.kinds, ArrayKinds)
            else group_kinds(self.kinds, setup_costs=self.observed == "all")
        )

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The fields of the arms and of the problem that differ from those of the paper's problems: see ``support``."""
        kinds = self.kinds
        of_arms = kinds.features if isinstance(kinds, ArrayKinds) else {word for arm in kinds for word in arm.features}
        own = {"observed": self.observed != "pulled", "at_most": self.at_most}
        return tuple(word for word in (*ARM_FEATURES, *PROBLEM_FEATURES) if word in of_arms or own.get(word))

    @property
    def reacts(self) -> bool:
        """Whether a pull changes the step of any arm."""
        return "active_transitions" in self.features

    @property
    def pays_at_rest(self) -> bool:
        """Whether a slot's reward depends on the arms that are not pulled, or on how many are pulled."""
        return not {"passive_rewards", "at_most"}.isdisjoint(self.features)

    @property
    def paying_arms(self) -> int:
        """The arms whose rewards of a slot are normalized: all of them if arms are paid at rest, else the pulled arms.

        A gain of normalized rewards is ``share``, in units ``paying_arms * low + (high - low) * share``.
        """
        return self.n_arms if self.pays_at_rest else self.plays

    @property
    def slot_range(self) -> Range | None:
        """The least and the greatest reward of a slot, None if only the pulled arms pay and no pull has a cost.

        The rewards of such a slot lie within ``plays`` times ``reward_range``.
        """
        costs = 0.0
        if "setup_cost" in self.features:
            costs = self.plays * max(kind.setup_cost for kind in self.kinds)
        elif not self.pays_at_rest:
            return None
        low, high = self.reward_range
        # An arm without pay at rest pays zero there, outside of some ranges.
        return self.n_arms * min(low, 0.0) - costs, self.n_arms * max(high, 0.0)

    def with_plays(self, plays: int) -> Problem:
        """Return the problem with another number of plays."""
        self.require_steady("another number of plays")
        return self._like(self.kinds, plays=plays)

    def with_arms(self, n_arms: int, *, plays: int | None = None) -> Problem:
        """Return the problem with another number of arms, in the same proportions of kinds, and of plays by default."""
        check_int("n_arms", n_arms)
        self.require_steady("another number of arms")
        shares = [*self.kind_counts.tolist(), *([self.plays] if plays is None else [])]
        if any(n_arms * share % self.n_arms for share in shares):
            least = self.n_arms // math.gcd(self.n_arms, *shares)
            given = f"{self.n_arms} arms" + (f" with {self.plays} plays" if plays is None else "")
            raise ProblemError(
                f"{n_arms} arms cannot be divided like {given}; give a multiple of {least}"
                + ("" if plays is not None else ", or give plays")
            )
        scaled = [n_arms * count // self.n_arms for count in self.kind_counts.tolist()]
        plays = n_arms * self.plays // self.n_arms if plays is None else plays
        if isinstance(self.kinds, ArrayKinds):
            return self._like(dataclasses.replace(self.kinds, counts=np.array(scaled)), plays=plays)
        return self._like([arm.of_count(count) for arm, count in zip(self.kinds, scaled, strict=True)], plays=plays)

    @cached_property
    def content(self) -> str:
        """A hash of the numbers alone, without names and sources. Seeds and stored results depend on the hash."""
        digest = hashlib.sha256(str(self.plays).encode())
        kinds = self.kinds
        of_arms = (
            kinds.content() if isinstance(kinds, ArrayKinds) else (content_bytes(arm.hashed_parts()) for arm in kinds)
        )
        for part in of_arms:
            digest.update(part)
        for change in self.changes:
            slot, arm, *numbers = change.hashed_parts()
            digest.update(content_bytes(("change", slot, self.arm_number(str(arm)), *numbers)))
        digest.update(content_bytes(word for word in PROBLEM_FEATURES if word in self.features))
        return digest.hexdigest()

    def only(self, arms: Sequence[int], *, plays: int | None = None) -> Problem:
        """Return the problem of some arms, numbered in this order, without its name and its changes."""
        other = {"plays": self.plays if plays is None else plays, "name": "", "source": "", "findings": NO_FINDINGS}
        return self._like([self.arms[arm] for arm in arms], **other)

    def arm_number(self, name: str) -> int:
        """Return the position of the arm with a given name."""
        known = self._kind_numbers, self.kind_counts, self.kind_firsts
        number = find_arm(*known, name) if isinstance(name, str) else None
        if number is None:
            check_known(name, self.names[:MOST_NAMES], "there is no arm")
            raise ProblemError(f"there is no arm {shortened(name)}")
        return number

    def arm_numbers(self, names: Iterable[str]) -> IntArray:
        """Return the positions of arms with given names."""
        names = list(names)
        if not names:
            # The table of all names is large.
            return np.zeros(0, dtype=np.int64)
        if len(names) == self.n_arms == len(self.kinds) and names == list(names_of(self.kinds)):
            return np.arange(self.n_arms)
        numbers, counts, firsts = self._kind_numbers, self.kind_counts, self.kind_firsts
        kinds = np.array([numbers.get(name, -1) if isinstance(name, str) else -1 for name in names], dtype=np.int64)
        single = (kinds >= 0) & (counts[kinds] == 1)
        found = np.where(single, firsts[kinds], -1)
        for place in np.flatnonzero(~single).tolist():
            found[place] = self.arm_number(names[place])
        return found

    @property
    def names(self) -> Sequence[str]:
        """The names of the arms, made on demand."""
        return ArmNames(self.kinds)

    @cached_property
    def _kind_numbers(self) -> dict[str, int]:
        return kind_numbers(self.kinds)

    def task(self, horizon: int | None = None, *, reveal: Iterable[str] = ()) -> Task:
        """Return the part of the problem that a learner may know: the shape, and the items that ``reveal`` names.

        ``mixing`` reveals, for each arm, the slots until its distribution is within 1/√horizon of the stationary
        distribution. Of observed arms the task is an ``ObservedTask``, of the same interface.
        """
        horizon = check_horizon(horizon)
        refuse_unsupported(self, "task")
        wanted = {reveal} if isinstance(reveal, str) else set(reveal)
        for word in sorted(wanted):
            check_known(word, REVEALABLE, "cannot reveal")
        if self.observed == "all":
            return cast(Task, self._observed_task(horizon, wanted))
        mixing: tuple[int | None, ...] | None = None
        if "mixing" in wanted:
            if horizon is None:
                raise ProblemError("mixing times are revealed to 1/√horizon; give a horizon")
            near = 1 / math.sqrt(horizon)
            mixing = tuple(
                markov.mixing_time(arm.chain, near) if isinstance(arm, Arm) else arm.length for arm in self.arms
            )
        return Task(
            n_states=self.n_states,
            plays=self.plays,
            reward_laws=tuple(arm.reward_law for arm in self.arms),
            initial=self.initial,
            names=tuple(arm.name for arm in self.arms),
            horizon=None if horizon is None else int(horizon),
            rewards=tuple(tuple(arm.rewards.tolist()) for arm in self.arms) if "rewards" in wanted else None,
            mixing=mixing,
            problem=self if "problem" in wanted else None,
            reward_ranges=tuple(arm.reward_range for arm in self.arms),
            in_costs=self.in_costs,
            **(self._task_features() if self.features else {}),
        )

    def _observed_task(self, horizon: int | None, wanted: set[str]) -> ObservedTask:
        if "mixing" in wanted:
            raise ProblemError("mixing times are for arms that are seen when pulled; leave mixing out of reveal")
        means = np.concatenate(
            [np.stack([g.passive_rewards, g.active_rewards], axis=2).reshape(-1, 2) for g in self.groups]
        )
        low, high = self.reward_range
        return ObservedTask(
            Layout.of(self),
            self.plays,
            self.names,
            at_most=self.at_most,
            horizon=None if horizon is None else int(horizon),
            rewards=means if "rewards" in wanted else None,
            # An arm without pay at rest earns zero there, which may lie outside of the range of its rewards.
            reward_range=(min(low, float(means.min())), max(high, float(means.max()))),
            problem=self if "problem" in wanted else None,
            kind_names=tuple(names_of(self.kinds)) if len(self.kinds) < self.n_arms else (),
            in_costs=self.in_costs,
        )

    def _task_features(self) -> dict[str, Any]:
        """The fields of a task of arms with features."""
        return {
            "reacts": tuple(arm.reacts for arm in self.arms),
            "passive_rewards": tuple(tuple(arm.mean_rewards[:, 0].tolist()) for arm in self.arms),
            "setup_costs": tuple(arm.setup_cost for arm in self.arms),
        }

    @cached_property
    def assumptions(self) -> Mapping[str, Assumption]:
        """The paper's Assumptions 1 to 4 over all pieces, each with the arm, state and value that decide it."""
        refuse_unsupported(self, "theory")
        arms = (arm for piece in self.pieces for arm in piece.problem.kinds)
        return assumptions_of((arm.name, arm.one_step, arm.rewards) for arm in arms)

    def require(self, *names: str) -> None:
        """Raise ``ProblemError`` for the first violation among the named assumptions.

        >>> Problem([Arm([[0.5, 0.5], [0.5, 0.5]], [0, 1])]).require("monotone")
        Traceback (most recent call last):
        ...
        restless_bandits._internal.errors.ProblemError: arm 'arm 1': rewards[1] exceeds rewards[0] by 1; ...
        """
        for name in names:
            check_known(name, ASSUMPTIONS, "there is no assumption")
            if not self.assumptions[name].holds:
                raise ProblemError(complaint(name, self.assumptions[name]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Problem):
            return NotImplemented
        parts = ("plays", "observed", "at_most", "name", "source", "changes")
        if not all(getattr(self, part) == getattr(other, part) for part in parts):
            return False
        if isinstance(self.kinds, tuple) and isinstance(other.kinds, tuple):
            return self.kinds == other.kinds
        same = len(self.kinds) == len(other.kinds) and self.content == other.content
        return same and all(one == two for one, two in zip(names_of(self.kinds), names_of(other.kinds), strict=True))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """A hash of three kinds alone: ``content`` takes longer than planning where a problem has very many kinds."""
        many = len(self.kinds)
        kinds = (self.kinds[place] for place in sorted({0, many // 2, many - 1}))
        return hash((self.plays, many, *(content_bytes(kind.hashed_parts()) for kind in kinds)))

    @property
    def summary(self) -> str:
        """The numbers of arms, states, kinds and plays, and how the arms move and are seen."""
        kinds = self.kinds
        sizes = [kinds.n_states] if isinstance(kinds, ArrayKinds) else sorted({arm.n_states for arm in kinds})
        states = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        plural = "s" if self.n_arms > 1 else ""
        parts = [f"{self.n_arms} arm{plural} of {states} state{'s' if sizes[-1] > 1 else ''}"]
        if len(kinds) < self.n_arms:
            parts.append(f"{len(kinds)} kind{'s' if len(kinds) > 1 else ''}")
        parts += ["reacting"] if self.reacts else []
        parts += ["all observed"] if self.observed == "all" else []
        parts.append(f"{'at most ' if self.at_most else ''}{self.plays} play{'s' if self.plays > 1 else ''}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        title = f" {self.name!r}" if self.name else ""
        doubt = ", rejected by its log" if self.findings.rejected else ""
        changes = f", {len(self.changes)} change{'s' if len(self.changes) > 1 else ''}" if self.changes else ""
        return f"<Problem{title}: {self.summary}{changes}{doubt}>"

    def _repr_html_(self) -> str:
        word = "costs" if self.in_costs else "rewards"
        rows = (
            (
                arm.name,
                arm.count,
                arm.n_states,
                numbers_text(arm.stated()[word]),
                "; ".join(map(numbers_text, arm.one_step)),
            )
            for arm in self.kinds[:MOST_ROWS]
        )
        heads = ("arm", "count", "states", f"mean {word}", "one step, row by row")
        left = len(self.kinds) - MOST_ROWS
        return html_table(repr(self)[1:-1], heads, rows, f"and {left:,} more" if left > 0 else "")


def _named(arms: Iterable[AnyArm]) -> tuple[AnyArm, ...]:
    """Return arms with names, all different."""
    arms = tuple(arms)
    if not arms:
        raise ProblemError("a problem needs at least one arm")
    for i, arm in enumerate(arms):
        if not isinstance(arm, Arm | TableArm):
            raise ProblemError(f"arms[{i}] is {arm!r}; give Arm or TableArm objects")
    named = tuple(arm if arm.name else arm.named(f"arm {i + 1}") for i, arm in enumerate(arms))
    if len({arm.in_costs for arm in named}) > 1:
        first, other = (next(arm.name for arm in named if arm.in_costs is costs) for costs in (True, False))
        raise ProblemError(
            f"arm {first!r} has costs and arm {other!r} has rewards; state all arms the same way, a cost being a "
            "negative reward"
        )
    names = Counter(arm.name for arm in named)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice is not None:
        raise ProblemError(f"two arms are called {twice!r}; give each arm its own name")
    return named


def _generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise ProblemError(f"seed is {seed!r}; give a whole number that is not negative") from None


def warn_of_rising_rewards(problem: Problem) -> None:
    """Warn of an uncontrolled arm whose rewards rise with the state: they may be meant as costs."""
    if problem.features or problem.observed == "all" or isinstance(problem.kinds, ArrayKinds):
        return
    for arm in problem.kinds:
        rise = np.diff(arm.rewards)
        if rise.size and rise.min() >= 0 < rise.max():
            means = tuple(arm.stated()["costs" if arm.in_costs else "rewards"].tolist())
            remedy = (
                f"number the states from the lowest cost {min(means):.12g} on"
                if arm.in_costs
                else f"for numbers to minimize write costs={means} with a cost_range, else number the states from the "
                "best one on"
            )
            warnings.warn(
                f"arm {arm.name!r}: rewards rise with the state, and state 0 should be the best; {remedy}",
                RuntimeWarning,
                stacklevel=3,
            )
            return


def as_problem(given: AnyProblem) -> Problem:
    """Return a problem given directly, by the name of a built-in problem, or by the path of a TOML file."""
    if isinstance(given, str | Path):
        return load_problem(given)
    if not isinstance(given, Problem):
        raise ProblemError(
            f"problem is {shortened(given)}; give a Problem, the name of a built-in problem or the path of a TOML file"
        )
    return given


def load_problem(name_or_path: str | Path) -> Problem:
    """Return a built-in problem by its name, or a problem from a TOML file: the meaning of ``PROBLEM`` on the command
    line.
    """
    text = str(name_or_path)
    if text in builtin_problems():
        return Problem.builtin(text)
    path = Path(text)
    try:
        is_file = path.suffix == ".toml" or path.exists() or len(path.parts) > 1
    except (OSError, ValueError):
        is_file = True
    if is_file:
        return Problem.load(path)
    hint = did_you_mean(text, builtin_problems())
    raise ProblemError(
        f"there is no built-in problem {text!r} and no such file; {hint} (`restless problems` lists them)"
    )


AnyProblem = Problem | str | Path
"""A problem, or the name or path of one: see ``as_problem``."""
