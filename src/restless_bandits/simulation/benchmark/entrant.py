"""The process of an entrant: ``python -m restless_bandits.simulation.benchmark.entrant policy|learner NAME``.

The process reads messages from stdin and writes answers to stdout, as any other program of the benchmark does. Names
are those of oracles and learners of this package, ``random``, ``counted``, or ``module:function`` and ``module:Class``.

A function of a module gets the first message as a dictionary. The function returns an answer, or a function from later
messages to answers. An answer is a dictionary, or a list: the arms to pull, or the indices of an arm.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from restless_bandits import oracles
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import to_jsonable
from restless_bandits.agent.agent import Agent
from restless_bandits.learning.learners import learner as make_learner
from restless_bandits.model.problem import Problem
from restless_bandits.oracles.whittle import observed_indices
from restless_bandits.policies.observed import CountedPolicy, ObservedPolicy, PriorityPolicy, RandomizedPolicy
from restless_bandits.registry import ORACLES, load
from restless_bandits.simulation.benchmark.episodes import first_message, make_episode
from restless_bandits.simulation.benchmark.instances import Instance, Reference
from restless_bandits.simulation.benchmark.messages import encode, problem_of, task_of

Answer = Callable[[Mapping[str, Any]], Any]
"""A function from a message to an answer."""
RANDOM, COUNTED = "random", "counted"
"""Entrants of this module besides oracles and learners: random play, and counts with a uniform prior."""
OWN_POLICIES = (RANDOM, COUNTED)
WARM_UP_SLOTS = 30


class UnsuitableEntrantError(ProblemError):
    """An entrant that does not play an instance."""


def entrant(kind: str, name: str) -> Answer:
    """Return a function from first messages to first answers, or to functions for later messages."""
    if kind == "learner":
        return lambda start: learner_entrant(name, start)
    if name == RANDOM:
        return random_entrant
    if name == COUNTED:
        return counted_entrant
    if name in ORACLES:
        return lambda start: oracle_entrant(name, start)
    function = load(name, "policy")
    if not callable(function):
        raise ProblemError(f"{name} is no function; give module:function")
    return function  # type: ignore[no-any-return]


def random_entrant(start: Mapping[str, Any]) -> Any:
    """Play at random: a uniform choice of arms in each slot."""
    if start["track"] == "index":
        return [0.0] * len(start["arm"]["rewards"])
    if start["track"] == "logs":
        rng = np.random.default_rng(0)
        return {"scores": [rng.random(size).tolist() for size in start["task"]["n_states"]]}
    rng = np.random.default_rng(start["seed"])
    if start["view"] == "counts":
        plays = start["problem"]["plays"]

        def spread(message: Mapping[str, Any]) -> Any:
            rows = message["counts"]
            flat = rng.multivariate_hypergeometric([number for row in rows for number in row], plays).tolist()
            return {"pulls": [[flat.pop(0) for _ in row] for row in rows]}

        return spread
    if start["track"] == "planning":
        n_arms, plays = sum(arm["count"] for arm in start["problem"]["kinds"]), start["problem"]["plays"]
    else:
        n_arms, plays = len(start["task"]["n_states"]), start["task"]["plays"]
    return lambda message: rng.permutation(n_arms)[:plays].tolist()


def oracle_entrant(name: str, start: Mapping[str, Any]) -> Any:
    """Play an oracle's policy of a known problem."""
    if start["track"] == "index":
        if name != "whittle":
            raise UnsuitableEntrantError(f"{name} computes no Whittle index")
        problem = problem_of({"kinds": [start["arm"]], "plays": 1, "observed": "all"})
        (found,) = observed_indices(problem, start["discount"])
        return {"index": found.table[:, 0].tolist(), "indexable": found.indexable}
    given = start if "problem" in start else start["task"]
    if "problem" not in given:
        raise UnsuitableEntrantError(f"{name} needs the parameters of the problem")
    problem = problem_of(given["problem"])
    if start["track"] == "logs":
        return {"scores": _scores(oracles.find_oracle(name).policy(problem), problem)}
    if problem.observed != "all":
        return learner_entrant(f"informed:oracle={name}", start)
    return observed_entrant(oracles.find_oracle(name).policy(problem), start)


def observed_entrant(policy: Any, start: Mapping[str, Any]) -> Answer:
    """Play a policy of the present states."""
    assert isinstance(policy, ObservedPolicy)
    if start["view"] == "counts":
        if not isinstance(policy, CountedPolicy):
            raise UnsuitableEntrantError("the policy chooses single arms, and the instance shows numbers of arms")

        def by_counts(message: Mapping[str, Any]) -> Any:
            sizes = np.cumsum([len(row) for row in message["counts"]])[:-1]
            pulls = policy.pulls(np.concatenate(message["counts"]))
            return {"pulls": [part.tolist() for part in np.split(pulls, sizes)]}

        return by_counts
    rng = np.random.default_rng(start["seed"])

    def by_states(message: Mapping[str, Any]) -> Any:
        states = np.array(message["states"])
        return (policy.arms(states, rng) if isinstance(policy, RandomizedPolicy) else policy.arms(states)).tolist()

    return by_states


def learner_entrant(spec: str, start: Mapping[str, Any]) -> Answer:
    """Play a learner of states that are seen when pulled."""
    if start["track"] != "learning-pulled":
        raise UnsuitableEntrantError(f"{spec} learns from pulls alone")
    task = task_of(start["task"])
    agent = Agent(make_learner(spec), task, seed=start["seed"], on_change="ignore")

    def answer(message: Mapping[str, Any]) -> Any:
        if "last" in message:
            last = message["last"]
            agent.tell(**{key: given[0] if task.plays == 1 else given for key, given in _feedback(last).items()})
        arms = agent.ask()
        return [arms] if isinstance(arms, int) else list(arms)

    return answer


def _feedback(last: Mapping[str, Any]) -> dict[str, Any]:
    return {"state": last["states"], "reward": last["rewards"], "arm": last["arms"]}


def counted_entrant(start: Mapping[str, Any]) -> Any:
    """Score states by the Lagrangian index of posterior means: counts of a log, with one more in each row's cells."""
    if start["track"] != "logs":
        raise UnsuitableEntrantError("counted is for logs alone")
    task, log = start["task"], start["log"]
    states, sizes = np.array(log["states"]), task["n_states"]
    pulled = np.zeros(states.shape, dtype=np.int64)
    np.put_along_axis(pulled, np.array(log["pulls"]), 1, axis=1)
    arms = []
    for number, size in enumerate(sizes):
        counts = np.ones((2, size, size))
        np.add.at(counts, (pulled[:-1, number], states[:-1, number], states[1:, number]), 1.0)
        passive, active = counts / counts.sum(axis=2, keepdims=True)
        about = {"count": 1, "initial": None, "reward_range": task["reward_ranges"][number]}
        rewards = {key: task[key][number] for key in ("rewards", "passive_rewards")}
        chains = {"transitions": passive.tolist(), "active_transitions": active.tolist()}
        arms.append(about | rewards | chains | {"reward_law": task["reward_laws"][number]})
    problem = problem_of({"kinds": arms, "plays": task["plays"], "observed": "all"})
    return {"scores": _scores(oracles.find_oracle("lp-index").policy(problem), problem)}


def _scores(policy: Any, problem: Problem) -> list[list[float]]:
    """Return the scores of each arm's states by a priority of states."""
    if not isinstance(policy, PriorityPolicy):
        raise UnsuitableEntrantError("the policy is no priority of states")
    firsts = policy.layout.first.tolist()
    return [policy.score[first : first + size].tolist() for first, size in zip(firsts, problem.n_states, strict=True)]


def warm_up(begin: Answer, track: str, view: str) -> None:
    """Play a small problem, so that compiled code is loaded before CPU seconds are counted."""
    name = "paper-1" if track == "learning-pulled" else "three-states"
    given = {"builtin": name} | ({"arms": 1, "plays": 1} if track == "index" else {})
    none = ("", "", (1,), (1,))
    instance = Instance(track, "warm-up", *none, given, slots=WARM_UP_SLOTS, view=view, log_slots=WARM_UP_SLOTS)
    revealed = ("problem",) if track in ("learning-observed", "logs") else ()
    with contextlib.suppress(ProblemError):
        episode = make_episode(instance, 1, False, revealed, Reference(0.0, 1.0, "index", ""))
        message: dict[str, Any] | None = first_message(instance, episode)
        later: Any = None
        while message is not None:
            found = begin(message) if later is None else later(message)
            later = found if callable(found) else later
            message = episode.after({} if callable(found) else as_answer(found, track))


def as_answer(given: Any, track: str) -> dict[str, Any]:
    """Return an answer as a dictionary: a list names arms, or the indices of an arm."""
    if isinstance(given, Mapping):
        return {key: to_jsonable(value) for key, value in given.items()}
    listed = to_jsonable(given)
    return {"index" if track == "index" else "arms": listed if isinstance(listed, list) else [listed]}


def main() -> None:
    # Text printed by an entrant's code must not enter the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    kind, name = sys.argv[1:]
    begin, later, track = entrant(kind, name), None, ""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message["type"] == "end":
            break
        try:
            if message["type"] == "hello":
                if name in OWN_POLICIES or name in ORACLES or kind == "learner":
                    warm_up(begin, message["track"], message["view"])
                answer = {}
            elif message["type"] == "start":
                track = message["track"]
                found = begin(message)
                later = found if callable(found) else None
                answer = {} if later is not None else as_answer(found, track)
            else:
                assert later is not None
                answer = as_answer(later(message), track)
        except ProblemError as error:
            answer = {"decline": str(error)}
        answers.write(encode(answer))
        answers.flush()


if __name__ == "__main__":
    main()
