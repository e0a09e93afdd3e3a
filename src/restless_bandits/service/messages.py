"""What clients send and are sent, as pydantic models: the shape is checked here, the sense by the keeper.

A message is read from bytes in one go: what is no JSON is answered by 400; a field that is unknown, missing, of another
kind, not finite or too long by 422, in one sentence that names it. Kinds are strict: "1" is no number, and neither is
true. No field holds objects of any shape, so nothing can be nested deeper than is written here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError, PydanticKnownError

from restless_bandits.errors import did_you_mean, shortened
from restless_bandits.service.limits import Limits
from restless_bandits.service.operations import Ask, Create, Operation, Patch, ServiceError, Skip, Tell

LIMITS = Limits()
MOST = 2**53 - 1
"""The largest whole number that every JSON reader keeps as it is."""

AgentName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]*$",
        description="Letters, digits, dot, dash, tilde and underscore.",
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=LIMITS.name, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Whole = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
States = Annotated[int, Field(ge=2, le=LIMITS.states)]
Law = Literal["bernoulli", "fixed", "bounded", "beta"]
OnChange = Literal["warn", "forget", "forget-all", "ignore"]
Range = tuple[float, float]


def digits_of(value: object) -> object:
    """Return a parameter of a path or query, if it is written as a whole number in plain digits."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise PydanticKnownError("int_parsing")
    return value


_DIGITS = re.compile(r"-?[0-9]{1,20}")


def checked_learner(spec: str) -> str:
    """Return a learner's spec, if it is a name: by one of a module a client would choose what code is loaded here."""
    from restless_bandits.registry import learner_names

    name, _, rest = spec.partition(":")
    if name.strip() not in learner_names() or ":" in rest:
        hint = did_you_mean(name[:60], learner_names())
        raise PydanticCustomError("sentence", "{s}", {"s": f"the service knows no learner {shortened(spec)}; {hint}"})
    return spec


class Message(BaseModel):
    """What every message keeps to."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ArmMessage(Message):
    """An arm: its name, and what differs from the agent's other arms."""

    name: Text
    n_states: States | None = None
    reward_law: Law | None = None
    reward_range: Range | None = None

    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class CreateMessage(Message):
    """A new agent."""

    name: AgentName
    arms: Annotated[list[Text | ArmMessage], Field(min_length=1, max_length=LIMITS.arms)]
    n_states: States = 2
    reward_law: Law = "bernoulli"
    reward_range: Range = (0.0, 1.0)
    plays: Annotated[int, Field(ge=1, le=LIMITS.plays)] = 1
    learner: Text = "likelihood-ucb"
    seed: Whole | None = None
    clock: Text = Field("ask", description="`ask`, or the length of a slot: 100ms, 1s, 5m, 1h.")
    late: Whole = 1024
    on_change: OnChange = "warn"
    memory: Count | None = None
    horizon: Count | None = None

    _learner = field_validator("learner")(checked_learner)

    def operation(self) -> Create:
        arms = [arm if isinstance(arm, str) else arm.fields() for arm in self.arms]
        return Create(**{name: getattr(self, name) for name in type(self).model_fields} | {"arms": arms})


class AskMessage(Message):
    """The coming slot's decision, or the one that was made for this request id."""

    request: Text

    def operation(self) -> Ask:
        return Ask(self.request)


class TellMessage(Message):
    """What was seen in a decision's slot; lists where several arms are pulled."""

    decision: Text | None = None
    slot: Count | None = None
    state: Whole | Annotated[list[Whole], Field(max_length=LIMITS.plays)] | None = None
    reward: float | Annotated[list[float], Field(max_length=LIMITS.plays)] | None = None
    arm: Text | Whole | Annotated[list[Text | Whole], Field(max_length=LIMITS.plays)] | None = None
    lost: bool = False

    def operation(self) -> Tell:
        return Tell(self.decision, self.slot, self.state, self.reward, self.arm, self.lost)


class SkipMessage(Message):
    """Slots in which nobody asked."""

    slots: Count = 1
    request: Text | None = None

    def operation(self) -> Skip:
        return Skip(self.slots, self.request)


class Step(Message):
    """One operation of a batch: exactly one of the three."""

    ask: AskMessage | None = None
    tell: TellMessage | None = None
    skip: SkipMessage | None = None


class BatchMessage(Message):
    """Many operations, all or nothing, in this order."""

    operations: Annotated[list[Step], Field(min_length=1, max_length=LIMITS.batch)]

    def each(self) -> Sequence[Operation]:
        found: list[Operation] = []
        for number, step in enumerate(self.operations):
            only = step.tell or step.ask or step.skip
            if only is None or len(step.model_fields_set) != 1:
                field = f"operations.{number}"
                raise ServiceError(422, f"{field}: an operation is exactly one of ask, tell, skip", field)
            found.append(only.operation())
        return found


class PatchMessage(Message):
    """What is to be changed of an agent; what is left out stays."""

    learner: Text | None = None
    late: Whole | None = None
    on_change: OnChange | None = None
    add_arm: Text | ArmMessage | None = None
    retire_arm: Text | None = None
    restore_arm: Text | None = None

    @field_validator("learner")
    @classmethod
    def _known(cls, spec: str | None) -> str | None:
        return None if spec is None else checked_learner(spec)

    @model_validator(mode="after")
    def _some(self) -> PatchMessage:
        if not any(getattr(self, name) is not None for name in type(self).model_fields):
            known = ", ".join(type(self).model_fields)
            raise PydanticCustomError("sentence", "{s}", {"s": f"nothing is to be changed; give any of {known}"})
        return self

    def operation(self) -> Patch:
        changes = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        if isinstance(self.add_arm, ArmMessage):
            changes["add_arm"] = self.add_arm.fields()
        elif self.add_arm is not None:
            changes["add_arm"] = {"name": self.add_arm}
        return Patch(changes)


class Reply(BaseModel):
    """What every answer keeps to: fields may join, none will go."""

    model_config = ConfigDict(extra="allow")


class ErrorReply(Reply):
    """Why a request was refused, in one sentence, and the field that is to blame."""

    error: str
    field: str | None = None


class DecisionReply(Reply):
    """A decision: which arms to pull in which slot, and the number of the plan that chose them."""

    decision: str
    slot: int
    arms: list[str]
    numbers: list[int]
    plan: int | None = None


class BatchReply(Reply):
    """The answers to the operations of a batch, in their order."""

    answers: list[dict[str, Any]]


class AgentsReply(Reply):
    """All agents."""

    agents: list[dict[str, Any]]


class EventReply(Reply):
    """An event of an agent's log."""

    seq: int
    kind: str
    decision: str | None = None


class EventsReply(Reply):
    """A page of events; ``next`` is what ``after`` of the next page is."""

    events: list[EventReply]
    next: int


class HealthReply(Reply):
    """That the service can answer and write."""

    status: str


M = TypeVar("M", bound=Message)


def read(model: type[M], body: bytes) -> M:
    """Return the message that a body holds, or refuse it in one sentence."""
    try:
        message = model.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None
    check_keys(body.decode())
    return message


def check_keys(text: str) -> None:
    """Refuse JSON with an object that holds a key twice: readers differ on which of the two counts."""
    _KEYS.decode(text)


def _check_pairs(pairs: list[tuple[str, None]]) -> None:
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ServiceError(400, f"the key {shortened(twice)} is there twice; send it once", twice[: LIMITS.name])


def _no_value(_: str) -> None:
    """Numbers are read by the model."""


_KEYS = json.JSONDecoder(
    object_pairs_hook=_check_pairs, parse_int=_no_value, parse_float=_no_value, parse_constant=_no_value
)


def refusal(error: ValidationError) -> ServiceError:
    """Return why a body is no message: its first fault."""
    faults = error.errors(include_url=False)
    if faults[0]["type"] == "json_invalid":
        why = str(faults[0].get("ctx", {}).get("error", "it cannot be read"))
        return ServiceError(400, f"the body is not JSON: {why}; send one JSON object")
    # Of a field that may be of several kinds, the fault of the kind that came nearest is told.
    fault = max(faults, key=lambda one: (one["loc"][:1] == faults[0]["loc"][:1], _depth(one["loc"])))
    field = ".".join(map(str, _place(fault["loc"]))) or None
    return ServiceError(422, sentence(fault, field), field)


_KINDS = {
    "int": "a whole number",
    "float": "a finite number",
    "string": "a text",
    "bool": "true or false",
    "list": "a list",
    "tuple": "a list",
    "model": "an object",
}


def _place(loc: tuple[int | str, ...]) -> list[int | str]:
    """Where in the message a fault is, without the names of the kinds that were tried."""
    kinds = ("ArmMessage", "str", "int", "float", "constrained-str", "constrained-int")
    return [part for part in loc if isinstance(part, int) or not (part in kinds or "[" in part)]


def _depth(loc: tuple[int | str, ...]) -> int:
    return len(_place(loc))


def sentence(fault: ErrorDetails, field: str | None) -> str:
    """Return what is wrong with a field, in one sentence."""
    kind, context, value = fault["type"], fault.get("ctx", {}), shortened(fault["input"])
    where = field or "the body"
    if kind == "sentence":
        return fault["msg"] if field is None or field == "learner" else f"{field}: {fault['msg']}"
    if kind == "missing":
        return f"{where} is missing"
    if kind == "extra_forbidden":
        return f"there is no field {shortened(where)}; leave it out"
    if kind == "literal_error":
        return f"{where} is {value}; give {context['expected']}"
    if kind == "string_pattern_mismatch":
        letters = "letters, digits and . _ ~ -, the first a letter or digit" if "A-Z" in context["pattern"] else None
        return f"{where} is {value}; give {letters or 'a text without control characters'}"
    bounds = {"ge": "at least {}", "le": "at most {}", "gt": "more than {}", "lt": "less than {}"}
    said = [text.format(context[name]) for name, text in bounds.items() if name in context]
    if said:
        return f"{where} is {value}; it must be {said[0]}"
    if "too_long" in kind or "too_short" in kind:
        end = f"at most {context['max_length']}" if "max_length" in context else f"at least {context['min_length']}"
        return f"{where} is too {'long' if 'long' in kind else 'short'}; it must be {end} long"
    wanted = _KINDS.get(kind.removesuffix("_type").removesuffix("_parsing").removesuffix("_from_float"))
    if kind == "finite_number":
        wanted = "a finite number"
    return f"{where} is {value}; give {wanted or 'what the API describes, see /openapi.json'}"
