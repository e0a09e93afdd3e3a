"""Requests and replies as pydantic models: the models check the shape, the writer checks the meaning.

A message is read from its bytes in one pass. Bytes that are not JSON are refused with 400. A field that is unknown,
missing, too long, not finite or of a wrong type is refused with 422, in a sentence that names the field. Types are
strict: "1" and true are not numbers. No field holds objects of arbitrary shape, so the nesting depth is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError, PydanticKnownError

from restless_bandits._internal.errors import did_you_mean, shortened
from restless_bandits.service.operations import Ask, Create, Operation, Patch, ServiceError, Skip, Tell
from restless_bandits.service.quotas import Quotas

QUOTAS = Quotas()
MOST = 2**53 - 1
"""The largest whole number that every JSON reader represents exactly."""

AgentName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]*$",
        description="Letters, digits, dot, dash, tilde and underscore.",
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=QUOTAS.name, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Whole = Annotated[int, Field(ge=0, le=MOST)]
Count = Annotated[int, Field(ge=1, le=MOST)]
States = Annotated[int, Field(ge=2, le=QUOTAS.states)]
Law = Literal["bernoulli", "fixed", "bounded", "beta"]
OnChange = Literal["warn", "forget", "forget-all", "ignore"]
Range = tuple[float, float]


ObservedStates = (
    Annotated[list[Whole | Text | None], Field(max_length=QUOTAS.observed_arms)]
    | Annotated[dict[Text, Whole | Text | None], Field(max_length=QUOTAS.observed_arms)]
    | None
)
ObservedRewards = (
    Annotated[list[float | None], Field(max_length=QUOTAS.observed_arms)]
    | Annotated[dict[Text, float], Field(max_length=QUOTAS.observed_arms)]
    | None
)
NamedArms = Annotated[Sequence[Text | Whole], Field(max_length=QUOTAS.observed_arms)]


def digits_of(value: object) -> object:
    """Return a parameter of a path or query, if it is written as a whole number in plain digits."""
    if isinstance(value, str) and not _DIGITS.fullmatch(value):
        raise PydanticKnownError("int_parsing")
    return value


_DIGITS = re.compile(r"-?[0-9]{1,20}")


def checked_learner(spec: str) -> str:
    """Return a learner's spec if it is a name: a module path would let clients choose the code to load."""
    from restless_bandits.registry import learner_names

    name, _, rest = spec.partition(":")
    if name.strip() not in learner_names() or ":" in rest:
        hint = did_you_mean(name[:60], learner_names())
        raise PydanticCustomError("sentence", "{s}", {"s": f"the service knows no learner {shortened(spec)}; {hint}"})
    return spec


class Message(BaseModel):
    """The base class of all requests: strict types, no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    makes: ClassVar[Callable[..., Operation]]
    """The operation of the request; its fields are those of the message."""

    def to_operations(self) -> Sequence[Operation]:
        """Return the operations of the request, in their order."""
        return [self.makes(**self.__dict__)]


class ArmMessage(Message):
    """An arm: its name, and its differences from the agent's other arms."""

    name: Text
    n_states: States | None = None
    reward_law: Law | None = None
    reward_range: Range | None = None
    reacts: bool | None = Field(None, description="Whether a pull changes the step of the arm.")
    passive_rewards: Annotated[list[float], Field(max_length=QUOTAS.states)] | None = None
    setup_cost: Annotated[float, Field(ge=0)] | None = None
    state_names: Annotated[list[Text], Field(max_length=QUOTAS.states)] | None = None
    kind: Text | Whole | None = Field(None, description="Of an observed arm: its kind, by name or number.")

    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class CreateMessage(Message):
    """A request for a new agent."""

    name: AgentName
    arms: (
        Annotated[list[Text | ArmMessage], Field(min_length=1, max_length=QUOTAS.observed_arms)]
        | Annotated[int, Field(ge=1, le=QUOTAS.observed_arms, description="The number of observed arms.")]
    )
    n_states: States = 2
    reward_law: Law | None = Field(None, description="By default bernoulli for the range (0, 1), else bounded.")
    reward_range: Range = (0.0, 1.0)
    cost_range: Range | None = Field(None, description="Lowest and highest cost, in place of reward_range: minimized.")
    state_names: Annotated[list[Text], Field(max_length=QUOTAS.states)] | None = None
    plays: Annotated[int, Field(ge=1, le=QUOTAS.observed_arms)] = 1
    learner: Text | None = Field(None, description="By default likelihood-ucb, of observed arms bonus-posterior.")
    seed: Whole | None = None
    clock: Text = Field("ask", description="`ask`, or the length of a slot: 100ms, 1s, 5m, 1h.")
    late: Whole = 1024
    on_change: OnChange = "warn"
    memory: Count | None = None
    horizon: Count | None = None
    reacts: bool = Field(False, description="Whether pulls change the steps of the arms.")
    observed: Literal["pulled", "all"] = Field("pulled", description="`all`: all states are seen before the choice.")
    kinds: Annotated[list[Text | Whole], Field(max_length=QUOTAS.observed_arms)] | None = Field(
        None, description="The kind of each observed arm: arms of a kind share their chains."
    )
    rewards: list[float] | list[list[float]] | None = Field(
        None, description="Known mean rewards of observed arms, by state, or by state and action (rest, pull)."
    )
    at_most: bool = Field(False, description="Of observed arms: whether fewer than `plays` may be pulled.")

    @field_validator("learner")
    @classmethod
    def _known(cls, spec: str | None) -> str | None:
        return None if spec is None else checked_learner(spec)

    @model_validator(mode="after")
    def _plays(self) -> CreateMessage:
        most = QUOTAS.plays if self.observed == "pulled" else QUOTAS.observed_arms
        if self.plays > most:
            raise PydanticCustomError("sentence", "{s}", {"s": f"plays is {self.plays}; it must be at most {most}"})
        return self

    def to_operations(self) -> Sequence[Operation]:
        arms = self.arms
        if not isinstance(arms, int):
            arms = [arm if isinstance(arm, str) else arm.fields() for arm in arms]  # type: ignore[misc]
        learner = self.learner or ("" if self.observed == "all" else "likelihood-ucb")
        return [Create(**self.__dict__ | {"arms": arms, "learner": learner})]


class AskMessage(Message):
    """A request for the decision of the coming slot, or for the earlier decision of the same request id."""

    makes = Ask
    request: Text
    states: ObservedStates = Field(
        None, description="Of observed arms: the state of each, or a mapping by name; null or left out if not seen."
    )
    exclude: NamedArms = Field((), description="Observed arms that cannot be pulled in this slot.")


class RankMessage(Message):
    """A request for the observed arms of the highest indices, by the plan in use; it changes nothing."""

    states: ObservedStates = Field(None, description="By default those of the present slot.")
    top: Annotated[int, Field(ge=1, le=QUOTAS.observed_arms)] = 100
    exclude: NamedArms = ()


class TellMessage(Message):
    """The observation in a decision's slot; lists for several pulled arms."""

    makes = Tell
    decision: Text | None = None
    slot: Count | None = None
    state: Whole | Text | Annotated[list[Whole | Text], Field(max_length=QUOTAS.plays)] | None = None
    reward: float | Annotated[list[float], Field(max_length=QUOTAS.plays)] | None = None
    cost: float | Annotated[list[float], Field(max_length=QUOTAS.plays)] | None = None
    arm: Text | Whole | Annotated[list[Text | Whole], Field(max_length=QUOTAS.plays)] | None = None
    lost: bool = False
    pulled: bool = Field(True, description="False: the arms were not pulled. Lost feedback is that of a pull.")
    rewards: ObservedRewards = Field(None, description="Of observed arms: the reward of each, or a mapping by name.")
    costs: ObservedRewards = Field(None, description="Of observed arms: costs in place of rewards.")
    pulled_arms: Annotated[list[Text | Whole], Field(max_length=QUOTAS.observed_arms)] | None = Field(
        None, description="Of observed arms: the arms that were pulled in fact."
    )


class SkipMessage(Message):
    """Slots without a decision."""

    makes = Skip
    slots: Count = 1
    request: Text | None = None


class Step(Message):
    """A single operation of a batch: exactly one field is given."""

    ask: AskMessage | None = None
    tell: TellMessage | None = None
    skip: SkipMessage | None = None


class BatchMessage(Message):
    """Many operations, all or nothing, in the given order."""

    operations: Annotated[list[Step], Field(min_length=1, max_length=QUOTAS.batch)]

    def to_operations(self) -> Sequence[Operation]:
        found: list[Operation] = []
        for number, step in enumerate(self.operations):
            only = step.tell or step.ask or step.skip
            if only is None or len(step.model_fields_set) != 1:
                field = f"operations.{number}"
                raise ServiceError(422, f"{field}: an operation is exactly one of ask, tell, skip", field)
            found += only.to_operations()
        return found


class PatchMessage(Message):
    """Changes of an agent; an omitted field stays as it is."""

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
            raise PydanticCustomError("sentence", "{s}", {"s": f"the request changes nothing; give any of {known}"})
        return self

    def to_operations(self) -> Sequence[Operation]:
        changes = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        if isinstance(self.add_arm, ArmMessage):
            changes["add_arm"] = self.add_arm.fields()
        elif self.add_arm is not None:
            changes["add_arm"] = {"name": self.add_arm}
        return [Patch(changes)]


class Reply(BaseModel):
    """The base class of all replies: later versions may add fields and never remove fields."""

    model_config = ConfigDict(extra="allow")


class ErrorReply(Reply):
    """The reason of a refusal in one sentence, and the invalid field."""

    error: str
    field: str | None = None


class DecisionReply(Reply):
    """A decision: which arms to pull in which slot, and the number of the plan that chose them."""

    decision: str
    slot: int
    arms: list[str]
    numbers: list[int]
    plan: int | None = None


class RankReply(Reply):
    """Observed arms by their indices, the highest first."""

    slot: int
    arms: list[str]
    numbers: list[int]
    states: list[int | None]
    indices: list[float | None]


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
    """A page of events; ``next`` is the value of ``after`` for the following page."""

    events: list[EventReply]
    next: int


class HealthReply(Reply):
    """The health of the service: its status, agents with damaged logs or ahead of the clock, jumps of the clock."""

    status: str
    unreadable: list[str]
    ahead_of_clock: list[str]
    clock_jump: float


M = TypeVar("M", bound=Message)


def read(model: type[M], body: bytes) -> M:
    """Return the message in a body, or refuse the body in one sentence."""
    try:
        message = model.model_validate_json(body)
    except ValidationError as error:
        raise refusal(error) from None
    check_keys(body.decode())
    return message


def check_keys(text: str) -> None:
    """Refuse JSON with an object that holds a key twice: readers differ on the value that counts."""
    _KEYS.decode(text)


def _check_pairs(pairs: list[tuple[str, None]]) -> None:
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ServiceError(400, f"the key {shortened(twice)} occurs twice; send it once", twice[: QUOTAS.name])


def _no_value(_: str) -> None:
    """Skip a number; the model reads numbers."""


_KEYS = json.JSONDecoder(
    object_pairs_hook=_check_pairs, parse_int=_no_value, parse_float=_no_value, parse_constant=_no_value
)


def refusal(error: ValidationError) -> ServiceError:
    """Return the first reason why a body is not a valid message."""
    faults = error.errors(include_url=False)
    if faults[0]["type"] == "json_invalid":
        why = str(faults[0].get("ctx", {}).get("error", "it cannot be read"))
        return ServiceError(400, f"the body is not JSON: {why}; send one JSON object")
    # For a field of several possible types, report the fault of the closest type.
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
    """Return the place of a fault in the message, without the names of the attempted types."""
    kinds = ("ArmMessage", "str", "int", "float", "constrained-str", "constrained-int")
    return [part for part in loc if isinstance(part, int) or not (part in kinds or "[" in part)]


def _depth(loc: tuple[int | str, ...]) -> int:
    return len(_place(loc))


def sentence(fault: ErrorDetails, field: str | None) -> str:
    """Return the fault of a field, in one sentence."""
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
    return f"{where} is {value}; give {wanted or 'a value as /openapi.json describes'}"
