"""Messages between the harness and an entrant: JSON objects, a line each.

The harness sends a message, the entrant answers with a line. ``docs/how-to/join-benchmark.md`` describes every message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.validation import IntArray, is_number, is_whole, to_jsonable
from restless_bandits.model.arms import AnyArm, Arm
from restless_bandits.model.problem import Problem
from restless_bandits.model.tasks import Task

PROTOCOL = 1
"""The version of the messages."""
ARM_FIELDS = ("rewards", "passive_rewards", "transitions", "active_transitions", "reward_law")


class AnswerError(ProblemError):
    """An answer of an entrant that does not fit its message."""


class DeclinedError(AnswerError):
    """An entrant's answer that it does not play an instance."""


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return the answer of a line."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        raise AnswerError(f"it answered {shortened(line.decode(errors='replace'))}, which is no JSON") from None
    if not isinstance(answer, dict):
        raise AnswerError(f"it answered {shortened(answer)}; an answer is a JSON object")
    if "decline" in answer:
        raise DeclinedError(f"it declined: {' '.join(str(answer['decline']).split())[:200]}")
    return answer


def _arm_message(arm: Arm) -> dict[str, Any]:
    about = {"count": arm.count, "initial": arm.initial_given, "reward_range": list(arm.reward_range)}
    return {key: to_jsonable(getattr(arm, key)) for key in ARM_FIELDS} | dict(to_jsonable(about))


def problem_message(problem: Problem) -> dict[str, Any]:
    """Return all parameters of a problem, without names."""
    arms = [_arm_message(arm) for arm in problem.kinds if isinstance(arm, Arm)]
    return {"plays": problem.plays, "observed": problem.observed, "kinds": arms}


def problem_of(message: Mapping[str, Any]) -> Problem:
    """Return the problem of a message."""
    arms = []
    for number, given in enumerate(message["kinds"], 1):
        fields = {key: value for key, value in given.items() if value is not None}
        fields["reward_range"] = tuple(fields["reward_range"])
        arms.append(Arm(**fields, name=f"kind {number}"))
    return Problem(arms, plays=message["plays"], observed=message["observed"])


def task_message(task: Task) -> dict[str, Any]:
    """Return a learner's knowledge of a problem."""
    words = ["n_states", "plays", "reward_laws", "reward_ranges", "initial", "horizon", "rewards", "mixing"]
    words += ["reacts", "passive_rewards"]
    found = {word: to_jsonable(getattr(task, word)) for word in words}
    return found if task.problem is None else found | {"problem": problem_message(task.problem)}


def task_of(message: Mapping[str, Any]) -> Task:
    """Return the task of a message; the problem's own task, if the message has a problem."""
    if "problem" in message:
        return problem_of(message["problem"]).task(message["horizon"], reveal=["problem"])
    words = ("n_states", "plays", "reward_laws", "initial", "horizon", "rewards", "mixing", "reacts", "passive_rewards")
    fields = {word: _tuples(message[word]) for word in words}
    names = tuple(f"arm {number}" for number in range(1, len(message["n_states"]) + 1))
    return Task(**fields, reward_ranges=_tuples(message["reward_ranges"]), names=names)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def arms_of(answer: Mapping[str, Any], n_arms: int, plays: int, slot: int) -> list[int]:
    """Return the arms to pull of an answer."""
    given = answer.get("arms")
    if not isinstance(given, list) or not all(is_whole(arm) for arm in given):
        raise AnswerError(f"slot {slot}: arms is {shortened(given)}; give a list of {plays} whole numbers")
    if len(given) != plays:
        raise AnswerError(f"slot {slot}: it named {len(given)} arms, and {plays} are pulled in each slot")
    wrong = next((arm for arm in given if not 0 <= arm < n_arms), None)
    if wrong is not None:
        raise AnswerError(f"slot {slot}: there is no arm {shortened(wrong)}; arms are 0 to {n_arms - 1}")
    if len(set(given)) < plays:
        raise AnswerError(f"slot {slot}: it named an arm twice; an arm can be pulled once a slot")
    return given


def pulls_of(answer: Mapping[str, Any], counts: Sequence[IntArray], plays: int, slot: int) -> list[list[int]]:
    """Return the number of arms to pull of each kind in each state."""
    given = answer.get("pulls")
    shape = [len(row) for row in counts]
    rows = given if isinstance(given, list) and all(isinstance(row, list) for row in given) else []
    if [len(row) for row in rows] != shape or not all(is_whole(number) for row in rows for number in row):
        raise AnswerError(f"slot {slot}: pulls is {shortened(given)}; give a whole number for each kind and state")
    for kind, (row, most) in enumerate(zip(rows, counts, strict=True)):
        for state, number in enumerate(row):
            if not 0 <= number <= most[state]:
                raise AnswerError(
                    f"slot {slot}: it pulls {shortened(number)} arms of kind {kind} in state {state}, where "
                    f"{most[state]} are"
                )
    total = sum(map(sum, rows))
    if total != plays:
        raise AnswerError(f"slot {slot}: it pulls {total} arms, and {plays} are pulled in each slot")
    return rows


def numbers_of(answer: Mapping[str, Any], key: str, length: int) -> list[float]:
    """Return a list of finite numbers of an answer."""
    given = answer.get(key)
    if (
        not isinstance(given, list)
        or len(given) != length
        or not all(is_number(value) and abs(value) < 1e300 for value in given)
    ):
        raise AnswerError(f"{key} is {shortened(given)}; give {length} finite numbers")
    return [float(value) for value in given]


def only_arm(kinds: Sequence[AnyArm]) -> dict[str, Any]:
    """Return the message of a single arm."""
    (arm,) = kinds
    assert isinstance(arm, Arm)
    return _arm_message(arm)
