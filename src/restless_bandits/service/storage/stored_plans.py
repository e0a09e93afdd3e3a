"""Plans as bytes under the digest of their content: written once, read by every process, never recomputed.

The format is a line of JSON with policy, rule and notes, followed by the arrays in sequence, all compressed. The
digest is of the uncompressed bytes. The format contains no code.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits.agent.core import make_plan
from restless_bandits.agent.observed import make_observed_plan
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.record import plain_notes
from restless_bandits.policies import observed, plans, policies
from restless_bandits.policies.plans import AnyOf, Plan, Rule
from restless_bandits.policies.policies import IndexPolicy, JointPolicy, Policy

FORMAT = 1
_OF_ARRAYS: tuple[type[Policy], ...] = (
    IndexPolicy,
    JointPolicy,
    observed.PriorityPolicy,
    observed.UniformPolicy,
    observed.RandomizedPolicy,
    observed.JointStatePolicy,
    observed.CountTablePolicy,
)
_OF_NUMBERS = (policies.SingleArm, policies.Cycle, policies.EmpiricalUCB)
_RULES = (plans.Forever, plans.Slots, plans.EveryStateSeen, plans.CountDoubled, plans.SeenIn, plans.VisitsDoubled)
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*_OF_ARRAYS, *_OF_NUMBERS, *_RULES)}


@dataclass(frozen=True)
class StoredPlan:
    """Plan with its encoded bytes and their digest."""

    plan: Plan
    digest: str
    content: bytes


def packed(plan: Plan) -> tuple[str, bytes]:
    """Return the digest of a plan, and the encoded plan."""
    arrays = {name: np.asarray(array) for name, array in _arrays_of(plan.policy).items()}
    head = {
        "format": FORMAT,
        "policy": _as_pair(plan.policy, _OF_NUMBERS) if not arrays else [type(plan.policy).__name__, {}],
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()],
        "until": [
            _as_pair(rule, _RULES) for rule in (plan.until.rules if isinstance(plan.until, AnyOf) else [plan.until])
        ],
        "notes": plain_notes(plan.notes),
    }
    content = json.dumps(head, sort_keys=True).encode() + b"\n" + b"".join(array.tobytes() for array in arrays.values())
    return hashlib.sha256(content).hexdigest()[:32], zlib.compress(content, 1)


def unpacked(digest: str, content: bytes) -> StoredPlan:
    """Return the plan from the bytes of ``packed``; bytes with another digest are refused."""
    try:
        raw = zlib.decompress(content)
    except zlib.error:
        raw = b""
    if hashlib.sha256(raw).hexdigest()[:32] != digest:
        raise ProblemError(f"plan {digest} is damaged: it does not hold what was written; go back to an earlier copy")
    line, _, rest = raw.partition(b"\n")
    head = json.loads(line)
    if head["format"] != FORMAT:
        raise ProblemError(f"plan {digest} was written by a later release; use that release")
    arrays: dict[str, Any] = {}
    place = 0
    for name, kind, shape in head["arrays"]:
        array = np.frombuffer(rest, dtype=np.dtype(kind), count=int(np.prod(shape)), offset=place).reshape(shape)
        arrays[name] = array
        place += array.nbytes
    kind, fields = head["policy"]
    policy: Policy = _KINDS[kind].from_arrays(arrays) if arrays else _made(kind, fields)
    rules: list[Rule] = [_made(*rule) for rule in head["until"]]
    return StoredPlan(
        Plan(policy, rules[0] if len(rules) == 1 else AnyOf(tuple(rules)), head["notes"]), digest, content
    )


def make_packed_plan(*ingredients: Any) -> tuple[str, bytes]:
    """Return the digest and bytes of a new plan; worker processes execute this function."""
    make = make_observed_plan if isinstance(ingredients[2], ObservedTask) else make_plan
    return packed(make(*ingredients))


def _arrays_of(policy: Policy) -> dict[str, Any]:
    return policy.to_arrays() if type(policy) in _OF_ARRAYS else {}


def _as_pair(thing: Any, known: tuple[type, ...]) -> list[Any]:
    if type(thing) not in known or not is_dataclass(thing) or isinstance(thing, type):
        raise ProblemError(f"a plan with a {type(thing).__name__} cannot be stored; use a learner whose plans can")
    return [type(thing).__name__, asdict(thing)]


def _made(kind: str, fields: dict[str, Any]) -> Any:
    return _KINDS[kind](**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
