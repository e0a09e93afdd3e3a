"""Checks of the contracts of learners and oracles, for classes of the package and of users.

    rb.testing.check_learner(MyLearner())
    rb.testing.check_oracle(my_oracle)

Both functions return nothing, or raise ``BrokenPromise`` with a sentence that names the broken promise and its place.
The learner or oracle need not be registered. The learners and oracles of the package pass the same checks.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.random_streams import plan_generator, world_generator, world_words
from restless_bandits._internal.validation import Array
from restless_bandits.agent.agent import Agent
from restless_bandits.learning.learners import Learner, same_learner
from restless_bandits.learning.learners import learner as learner_of
from restless_bandits.learning.learners.base import next_plan
from restless_bandits.learning.learners.simple import Informed
from restless_bandits.model.arms import Arm
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.problem import Problem
from restless_bandits.model.record import frozen_note, plain_notes
from restless_bandits.model.tasks import REVEALABLE, Task
from restless_bandits.oracles import Oracle, Solution, evaluate, exact, find_oracle
from restless_bandits.oracles.observed.rollout import ObservedWorld
from restless_bandits.oracles.observed.rollout_kernels import step_pulled
from restless_bandits.oracles.solution import CERTIFIED_WIDTH
from restless_bandits.policies.observed import ObservedPolicy
from restless_bandits.policies.plans import ObservedRuleWatch, Plan, check_plan
from restless_bandits.policies.policies import Policy
from restless_bandits.simulation.engine import UnplayablePolicyError, World, play_run
from restless_bandits.simulation.observed_engine import learn_observed
from restless_bandits.simulation.walks import DrawnWorld, play_slot

SEED = 1
ROUNDING = 1e-9

T = TypeVar("T")


class BrokenPromise(AssertionError, ProblemError):  # noqa: N818 - what it is, not that it is an error
    """A learner or an oracle violates its contract."""


def trial_problems() -> dict[str, Problem]:
    """Return the small problems for tests of learners and oracles, by their special property."""
    return {
        "paper": Problem.builtin("paper-1"),
        "three arms": Problem.builtin("table-3"),
        "unknown start": Problem.random(2, 2, seed=3, initial="unknown"),
        "mixed states": Problem.random(2, [2, 3], seed=4),
        "fixed rewards": Problem.random(2, 2, seed=5, reward_law="fixed"),
        "other units": Problem(
            [
                Arm.two_state(0.7, 0.8, (-20, -400), initial=1, reward_range=(-500, 0), reward_law="bernoulli"),
                Arm.two_state(0.5, 0.6, (-100, -250), reward_law="fixed", reward_range=(-300, -50)),
            ]
        ),
        "two plays": Problem.random(3, 2, seed=6, plays=2),
        "one arm": Problem([Arm.two_state(0.7, 0.8, initial=1)]),
    }


def observed_trial_problems() -> dict[str, Problem]:
    """Return the small problems for tests of learners and oracles whose states are all observed."""
    rng = np.random.default_rng(SEED)
    chains, means = rng.dirichlet(np.ones(2), (3, 2, 2)), rng.random((3, 2, 2))
    return {
        "observed": Problem.from_arrays(chains, means),
        "observed, two plays": Problem.from_arrays(chains, means, plays=2),
        "observed, one kind": Problem.from_arrays(chains[0], means[0], axes="saz", count=3),
    }


def check_learner(
    learner: Learner | type[Learner] | str, problems: Iterable[Problem] | None = None, *, horizon: int = 300
) -> None:
    """Check a learner against the contract on a list of problems, by default on those of ``trial_problems``, and on
    those whose states are all observed.

    A learner

    - is a description: a learner equals its copy, and its spec, if any, makes an equal learner;
    - refuses an unsuitable problem by ``check``, in one sentence, before the first slot, and accepts some problem;
    - makes plans as functions: the record is not written to, equal records and generators give equal plans, and memory
      is in the notes of the last plan, as JSON values that no later plan drops;
    - pulls exactly ``plays`` existing arms;
    - continues identically after its agent is saved and loaded, at any slot;
    - takes the same path in the simulator and in ``Agent``, whatever the horizon.
    """
    if isinstance(learner, type) and issubclass(learner, Learner):
        learner = learner()
    player = learner_of(learner) if isinstance(learner, str) else learner
    if not isinstance(player, Learner):
        raise BrokenPromise(f"{learner!r} is no learner: it does not derive from restless_bandits.Learner")
    _check_description(player)
    tried = [*trial_problems().values(), *observed_trial_problems().values()] if problems is None else problems
    for problem, task in _taken(player, tried, "play", partial(player.task, horizon=horizon)):
        if problem.observed == "all":
            _check_observed_path(player, problem, horizon)
            continue
        _check_path(player, problem, task, horizon)
        for short in (1, 2):
            taken, _ = _attempt(player, problem, "play", partial(player.task, horizon=short))
            if taken is not None:
                _played(Agent(player, taken, seed=SEED, on_change="ignore"), problem, short)


def _taken(
    what: Learner | Oracle, problems: Iterable[Problem], verb: str, take: Callable[[Problem], T]
) -> Iterator[tuple[Problem, T]]:
    """Yield the accepted problems, each with its result; at least one problem must be accepted."""
    tried = list(problems)
    refusals = []
    for problem in tried:
        made, refusal = _attempt(what, problem, verb, take)
        if made is None:
            refusals.append(refusal)
        else:
            yield problem, made
    if len(refusals) == len(tried):
        _broken(what, f"refuses every problem: {refusals[0]}")


def _attempt(what: Learner | Oracle, problem: Problem, verb: str, take: Callable[[Problem], T]) -> tuple[T | None, str]:
    """The result for a problem, or the reason of its refusal."""
    try:
        return take(problem), ""
    except ProblemError as error:
        if "\n" in str(error) or not str(error):
            _broken(what, f"refuses {problem} with {str(error)!r}; a refusal is one sentence")
        return None, str(error)
    except Exception as error:
        _broken(
            what,
            f"fails on {problem} with {_line(error)}; a problem that it cannot {verb} must be refused by ProblemError",
        )


def _broken(what: Learner | Oracle, promise: str) -> NoReturn:
    raise BrokenPromise(f"{what.label if isinstance(what, Learner) else what.name} {promise}") from None


def _check_description(player: Learner) -> None:
    if type(player).plan is Learner.plan:
        _broken(player, "defines no plan")
    if not same_learner(player, copy.deepcopy(player)):
        _broken(player, "does not equal its own copy; write it as a frozen dataclass")
    if not player.needs <= set(REVEALABLE):
        _broken(player, f"needs {sorted(player.needs)}; all that can be revealed is {', '.join(REVEALABLE)}")
    if "<locals>" in type(player).__qualname__:
        return
    try:
        again = learner_of(player.spec)
    except ProblemError:
        return  # A function among its options, or a class that cannot be found by name.
    if not same_learner(again, player):
        _broken(player, f"has the spec {player.spec!r}, which makes another learner: {again!r}")


def _check_path(player: Learner, problem: Problem, task: Task, horizon: int) -> None:
    def agent_of(learner: Learner) -> Agent:
        return Agent(learner, task, seed=SEED, content=problem.content, on_change="ignore")

    path = _played(agent_of(_CheckedLearner(player, copy.deepcopy(player))), problem, horizon)
    stops = sorted({1, max(1, horizon // 5), max(1, 3 * horizon // 4)})
    if _played(agent_of(player), problem, horizon, stops) != path:
        _broken(player, f"does not survive save and load: on {problem} it goes on with other decisions")
    try:
        run = play_run(player, World(problem), horizon, np.array([horizon]), seed=SEED, run=0, trace=True)
    except UnplayablePolicyError:
        return  # A policy of its own, which only Agent can follow.
    agent, traced = agent_of(player), zip(*(part.tolist() for part in run.trace), strict=True)

    def answer(asked: Sequence[int]) -> tuple[list[int], list[float]]:
        arms, states, rewards = next(traced)
        if list(asked) != arms:
            slot = agent.slots + 1
            _broken(player, f"takes another path in the simulator than in Agent, on {problem} in slot {slot}")
        return states, rewards

    for _ in range(horizon):
        play_slot(agent, answer)


def _check_observed_path(player: Learner, problem: Problem, horizon: int) -> None:
    path, record = played_on_observed(_CheckedLearner(player, copy.deepcopy(player)), problem, horizon)
    for arms in path:
        _check_arms(player, problem, arms)
    stops = {1, max(1, horizon // 5), max(1, 3 * horizon // 4)}
    agent_path = _observed_agent_path(player, problem, horizon)
    if agent_path != path:
        _broken(player, f"takes another path in Agent than by its plans alone, on {problem}")
    if _observed_agent_path(player, problem, horizon, stops) != agent_path:
        _broken(player, f"does not survive save and load: on {problem} it goes on with other decisions")
    if isinstance(player, Informed):
        return
    world = ObservedWorld(problem)
    if world.by_counts and player.pools_kinds:
        return  # The arms have no numbers in the simulator.
    run = learn_observed(player, world, horizon, np.array([horizon]), seed=SEED, run=0)
    if not _same_record(run.record, record):
        _broken(player, f"takes another path in the simulator than a slot at a time, on {problem}")
    for short in (1, 2):
        played_on_observed(player, problem, short)


class _ObservedArms:
    """Observed arms on the draws of the simulator's run 0 of seed ``SEED``, a slot at a time."""

    def __init__(self, problem: Problem) -> None:
        self._world = ObservedWorld(problem)
        if len(self._world.draws.pays):
            raise ProblemError("the rewards of this problem are drawn; give a problem with reward_law = 'fixed'")
        self._words = world_words(SEED, problem.content, 0)
        self.states = self._world.first_states(world_generator(SEED, problem.content, 0)).astype(np.uint16)

    def pull(self, arms: Sequence[int]) -> Array:
        """Return the rewards of all arms in the slot, and let all arms step."""
        pulled = np.isin(np.arange(len(self.states)), arms)
        paid = self._world.reward[2 * (self._world.layout.first + self.states) + pulled]
        step_pulled(self._words, self._world.arms, self._world.draws, self.states, pulled, np.zeros(2))
        return np.asarray(paid)


def _observed_agent_path(player: Learner, problem: Problem, horizon: int, stops: Iterable[int] = ()) -> list[list[int]]:
    """Return the arms that an agent pulls in each slot; after ``stops`` the agent is saved and loaded."""
    agent: Any = Agent(player, player.task(problem, horizon), seed=SEED, content=problem.content)
    world, path = _ObservedArms(problem), []
    for slot in range(1, horizon + 1):
        path.append(np.atleast_1d(agent.ask(world.states.tolist())).tolist())
        agent.tell(world.pull(path[-1]))
        if slot in stops:
            agent = _saved_and_loaded(agent)
    return path


def played_on_observed(learner: Learner, problem: Problem, horizon: int) -> tuple[list[list[int]], ObservedRecord]:
    """Play a learner on observed arms a slot at a time, by its plans and a record alone.

    Returns the arms pulled in each slot, and the record. The draws are those of the simulator's run 0 of seed ``SEED``.
    """
    task: Any = learner.task(problem, horizon)
    world, record = _ObservedArms(problem), ObservedRecord.of(task)
    plan, watch, begun = None, None, 0
    path = []
    for slot in range(1, horizon + 1):
        record.observe(world.states)
        if plan is None or watch is None or watch.met(record):
            if plan is not None:
                record.plan_lengths.append(record.slots - begun)
            plan = next_plan(learner, record, task, plan_generator(SEED, problem.content, 0, record.plans))
            watch, begun = ObservedRuleWatch(plan.until, record), record.slots
        policy = plan.policy
        assert isinstance(policy, ObservedPolicy)
        arms = policy.arms_in(slot, record.last_states)
        record.act(arms)
        record.pay(world.pull(arms.tolist()))
        path.append(arms.tolist())
    record.observe(world.states)
    record.plan_lengths.append(record.slots - begun)
    return path, record


def _same_record(one: ObservedRecord, other: ObservedRecord) -> bool:
    mine, theirs = one.to_arrays(), other.to_arrays()
    same = all(np.array_equal(mine[name], theirs[name], equal_nan=name == "last_rewards") for name in mine)
    return same and plain_notes(one.notes) == plain_notes(other.notes)


def _saved_and_loaded(agent: Agent) -> Agent:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.json"
        try:
            agent.save(path)
            return Agent.load(path, learner=agent.learner)
        except ProblemError as error:
            _broken(agent.learner, f"does not survive save and load: {error}")


def _check_arms(what: Learner | Oracle, problem: Problem, arms: list[int]) -> None:
    if len(set(arms)) != problem.plays or not set(arms) <= set(range(problem.n_arms)):
        _broken(what, f"pulls {arms} of {problem}: it must be {problem.plays} different arms that exist")


def _played(agent: Agent, problem: Problem, slots: int, stops: Sequence[int] = ()) -> list[list[int]]:
    """Play some slots on chains drawn in full, and return the arms pulled in each.

    After ``stops`` the agent is saved and loaded, at the last stop between a decision and its feedback.
    """
    world = DrawnWorld(problem, slots, np.random.default_rng(SEED))

    def answer(arms: Sequence[int]) -> tuple[list[int], list[float]]:
        _check_arms(agent.learner, problem, list(arms))
        return world.answer(arms)

    path = []
    for slot in range(1, slots + 1):
        path.append(list(play_slot(agent, answer)[0]))
        if slot in stops:
            if slot == stops[-1]:
                agent.ask()
            agent = _saved_and_loaded(agent)
    return path


@dataclass(frozen=True)
class _CheckedLearner(Learner):
    """A learner with a check of every plan; ``fresh`` is a copy without any calls."""

    inner: Learner
    fresh: Learner

    @property
    def label(self) -> str:
        return self.inner.label

    @property
    def needs(self) -> frozenset[str]:
        return self.inner.needs

    @property
    def features(self) -> frozenset[str]:
        return self.inner.features

    @property
    def observed(self) -> frozenset[str]:
        return self.inner.observed

    def plan(self, record: Any, task: Any, rng: np.random.Generator) -> Plan:
        plan = self._asked(self.inner, record, task, rng)
        where = f"in slot {record.slots + 1} of a run with {task.n_arms} arms"
        try:
            check_plan(plan, task, self.label)
            kept = plain_notes(plan.notes)
        except ProblemError as error:
            who = "" if str(error).startswith(self.label) else f"{self.label}: "
            raise BrokenPromise(f"{who}{error}, {where}") from None
        other = self._asked(copy.deepcopy(self.fresh), record, task, rng)
        again = [self._asked(self.inner, record, task, rng) for _ in range(1 if other == plan else 9)]
        if any(one != plan for one in again):
            _broken(self, f"is not deterministic: equal records and generators gave two plans {where}")
        if other != plan:
            _broken(self, f"has memory besides its notes: an equal new learner plans otherwise {where}")
        if frozen_note(kept) != frozen_note(plan.notes):
            _broken(self, f"loses notes: {dict(plan.notes)!r} comes back from JSON as {kept!r}, {where}")
        lost = sorted(set(record.notes) - set(kept))
        if lost:
            _broken(self, f"loses notes: {lost} of its last plan are not in the one made {where}; hand them on")
        return plan

    def _asked(self, learner: Learner, record: Any, task: Any, rng: np.random.Generator) -> Plan:
        """Ask with an equal record and generator; an error is explained."""
        given = record.copy()
        try:
            plan = learner.plan(given.frozen(), task, copy.deepcopy(rng))
        except Exception as error:
            try:
                learner.plan(record.copy(), task, copy.deepcopy(rng))
            except Exception:
                _broken(self, f"fails in slot {record.slots + 1}: {_line(error)}")
            _broken(self, f"writes to its record in slot {record.slots + 1}: {_line(error)}")
        unchanged = (
            _same_record(given, record) if isinstance(record, ObservedRecord) else given.to_dict() == record.to_dict()
        )
        if not unchanged:
            _broken(self, f"writes to its record in slot {record.slots + 1}; a plan's notes are the place to remember")
        return plan


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def check_oracle(
    oracle: str | Oracle | Callable[[Problem], Policy | Solution], problems: Iterable[Problem] | None = None
) -> None:
    """Check an oracle against the contract on a list of problems, by default on those of ``trial_problems``, and on
    those whose states are all observed.

    An oracle

    - answers with a ``Solution``, or with a ``Policy``, of the given problem, and repeats the same answer;
    - refuses an unsuitable problem by ``ProblemError``, in one sentence, and accepts some problem;
    - brackets the optimum: ``lower`` ≤ μ* ≤ ``upper``, with μ* of the exact oracle;
    - states the gain of its own policy, equal to the gain computed from the policy, or no gain;
    - certifies no policy further than ``CERTIFIED_WIDTH`` from its upper end;
    - pulls exactly ``plays`` arms, in every belief.
    """
    found = find_oracle(oracle)

    def solved_twice(problem: Problem) -> tuple[Solution, Solution]:
        found.accepts(problem)
        return found.solve(problem), found.solve(problem)

    tried = [*trial_problems().values(), *observed_trial_problems().values()] if problems is None else problems
    for problem, (solution, again) in _taken(found, tried, "take", solved_twice):
        if not isinstance(solution, Solution) or not isinstance(solution.policy, Policy):
            _broken(found, f"answers {problem} with {solution!r}; it must be a Solution with a Policy")
        _check_solution(found, problem, solution)
        if again.policy != solution.policy:
            _broken(found, f"is not deterministic: asked twice, it gave two policies for {problem}")
        _check_choices(found, problem, solution.policy, found.policy(problem))


def _check_solution(oracle: Oracle, problem: Problem, solution: Solution) -> None:
    if solution.problem != problem:
        _broken(oracle, f"answers {problem} with the solution of {solution.problem}")
    optimum = exact(problem)
    if not solution.lower - ROUNDING <= optimum.upper or not solution.upper + ROUNDING >= optimum.lower:
        bracket = f"[{solution.lower:.9g}, {solution.upper:.9g}]"
        _broken(oracle, f"claims the bracket {bracket} on {problem}, but μ* is {optimum.lower:.9g}")
    if problem.observed == "all":
        # The gain of such a policy is simulated, and a simulation proves nothing.
        return
    earned = evaluate(problem, solution.policy)
    if solution.gain is not None and abs(solution.gain - earned.gain) > earned.error + CERTIFIED_WIDTH / 10:
        _broken(oracle, f"claims a gain of {solution.gain:.9g} on {problem}, but its policy earns {earned.gain:.9g}")
    if solution.certified and earned.gain + earned.error < optimum.lower - CERTIFIED_WIDTH:
        _broken(oracle, f"certifies a policy on {problem} that earns {earned.gain:.9g} where μ* is {optimum.lower:.9g}")


def _check_choices(oracle: Oracle, problem: Problem, *policies: Policy) -> None:
    """Compare the policy of an answer with the oracle's policy-only answer in many situations."""
    rng = np.random.default_rng(SEED)
    for _ in range(50):
        if problem.observed == "all":
            policy = policies[0]
            assert isinstance(policy, ObservedPolicy)
            states = [int(rng.integers(n)) for n in problem.n_states]
            _check_arms(oracle, problem, np.atleast_1d(policy(states)).tolist())
            continue
        known: list[int | None] = [int(rng.integers(n)) for n in problem.n_states]
        if None in problem.initial and rng.random() < 0.3:
            known[problem.initial.index(None)] = None
        waits = [int(wait) for wait in rng.integers(1, 40, problem.n_arms)]
        chosen = [policy(known, waits) for policy in policies]
        _check_arms(oracle, problem, np.atleast_1d(chosen[0]).tolist())
        if chosen[1] != chosen[0]:
            _broken(oracle, f"plays {chosen[1]} where its solution plays {chosen[0]}, of {problem}")
