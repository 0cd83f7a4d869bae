"""The envelope as a pydantic model: what one Kafka record may hold (contract 2). The strict reader and the schemas come from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from turnledger.contract.canonical import CORRELATION, integral, number_text
from turnledger.contract.times import parse_instant

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)

KINDS = ("live", "eval", "import")
PROVENANCES = ("observed", "derived", "inherited", "claimed")

LIMITS: dict[str, int] = {
    "tenant": 128,
    "session_id": 256,
    "producer": 128,
    "stream": 256,
    "receipt_key": 512,
    "type": 128,
    "trace_id": 512,
    "turn_id": 512,
    "model_call_id": 512,
    "tool_call_id": 512,
    "parent_session_id": 512,
}
"""Greatest length of a text field, in bytes of UTF-8."""


def json_type(value: Any) -> str:
    """What a value is, in words of JSON: all that an error may say about it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    return "a number" if integral(value) is None else "an integer"


def whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = integral(value)
        if number is None:
            raise PydanticCustomError(
                "wrong_type", "must be an integer, not {got}", {"got": json_type(value)}
            )
        if not least <= number <= INT64_MAX:
            raise PydanticCustomError(
                "out_of_range",
                "must be an integer from {least} to {most}",
                {"least": least, "most": INT64_MAX},
            )
        return number

    return read


def _text(limit: int | None, required: bool = False) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if type(value) is not str:
            raise PydanticCustomError("wrong_type", "must be a text, not {got}", {"got": json_type(value)})
        if required and not value:
            raise PydanticCustomError("missing_field", "must not be empty")
        if limit is not None and len(value.encode()) > limit:
            raise PydanticCustomError("out_of_range", "must be at most {limit} bytes long", {"limit": limit})
        return value

    return read


def _one_of(words: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if type(value) is not str or value not in words:
            raise PydanticCustomError("wrong_type", "must be one of {words}", {"words": ", ".join(words)})
        return value

    return read


def _time(value: Any) -> str:
    if type(value) is not str:
        raise PydanticCustomError(
            "wrong_type", "must be an RFC 3339 time, not {got}", {"got": json_type(value)}
        )
    if parse_instant(value) is None:
        raise PydanticCustomError("wrong_type", "must be an RFC 3339 time with an offset")
    return value


def scalar_text(value: Any) -> str | None:
    """A scalar read as text: booleans as ``true`` and ``false``, numbers as their canonical text; None for what is no scalar."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]  # its kind is str
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return number_text(value)
    if kind is dict or kind is list or value is None:
        return None
    return str(value)


def _origin(value: Any) -> dict[str, str]:
    if type(value) is not dict:
        raise PydanticCustomError("wrong_type", "must be an object, not {got}", {"got": json_type(value)})
    out: dict[str, str] = {}
    for name, item in value.items():
        if item is None:
            continue
        text = scalar_text(item)
        if text is None:
            raise PydanticCustomError(
                "wrong_type", "must hold scalars alone, not {got}", {"got": json_type(item)}
            )
        out[name] = text
    return out


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise PydanticCustomError("wrong_type", "must be an object, not {got}", {"got": json_type(value)})
    return value


def _text_schema(limit: int | None, least: int = 0) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    if least:
        schema["minLength"] = least
    if limit is not None:
        schema["maxLength"] = limit
    return schema


def _text_type(name: str, required: bool = False) -> tuple[BeforeValidator, WithJsonSchema]:
    limit = LIMITS.get(name)
    return BeforeValidator(_text(limit, required)), WithJsonSchema(_text_schema(limit, int(required)))


_VERSION = (
    BeforeValidator(whole(INT64_MIN)),
    WithJsonSchema({"type": "integer", "minimum": INT64_MIN, "maximum": INT64_MAX}),
)
_COUNT = (BeforeValidator(whole(0)), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": INT64_MAX}))
_RFC3339 = (BeforeValidator(_time), WithJsonSchema({"type": "string", "format": "date-time"}))
_ORIGIN = (
    BeforeValidator(_origin),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}}
    ),
)
_PAYLOAD = (BeforeValidator(_object), WithJsonSchema({"type": "object"}))


class Envelope(BaseModel):
    """One immutable fact at one position of one stream: a UTF-8 JSON object under the record key ``<tenant>/<session_id>``.

    Lengths are in bytes of UTF-8. Null means absent in every field. What is required must not be empty. Unknown fields are kept.
    An integer is any number whose canonical text is one: 12.0 and 1e3 are.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    schema_version: Annotated[int, *_VERSION] = Field(
        1,
        description="Version of the envelope. A higher one is read with the fields known here, and flagged.",
    )
    tenant: Annotated[str, *_text_type("tenant")] = Field("default", description="Part of every key.")
    session_id: Annotated[str, *_text_type("session_id", required=True)] = Field(
        description="One agent conversation or VM run. Opaque, and the only key; a display name is an alias."
    )
    producer: Annotated[str, *_text_type("producer")] = Field(
        "harness", description="One writer inside a session."
    )
    epoch: Annotated[int, *_COUNT] = Field(
        0, description="A restart of the producer that begins a new numbering is a new epoch."
    )
    stream: Annotated[str, *_text_type("stream")] = Field(
        "ledger",
        description="One numbered sequence of a producer: ledger, state_trace, bus, file:<name>, otlp.",
    )
    seq: Annotated[int, *_COUNT] | None = Field(
        None,
        description="Position in the stream. Required unless receipt_key is given; with both, seq is the identity.",
    )
    receipt_key: Annotated[str, *_text_type("receipt_key")] | None = Field(
        None,
        description="Natural identity for sources that do not number. It names one observation, not the thing observed: "
        "a source whose record can change puts its revision or content hash into it.",
    )
    type: Annotated[str, *_text_type("type", required=True)] = Field(
        description="What happened: a name of the event catalogue. An unknown one is stored and counted."
    )
    occurred_at: Annotated[str, *_RFC3339] | None = Field(
        None,
        description="The source's clock, RFC 3339 with offset; digits beyond six are cut off, a second 60 is refused. "
        "Null when the source has no time; never invented.",
    )
    observed_at: Annotated[str, *_RFC3339] | None = Field(
        None, description="When the first collector saw it, RFC 3339. Not part of the content hash."
    )
    kind: Annotated[Literal["live", "eval", "import"], BeforeValidator(_one_of(KINDS))] = Field(
        "live", description="Live work, an evaluation run, or an import of files."
    )
    run_id: Annotated[str, *_text_type("run_id")] | None = Field(
        None, description="The evaluation run; required when kind is eval."
    )
    provenance: Annotated[
        Literal["observed", "derived", "inherited", "claimed"], BeforeValidator(_one_of(PROVENANCES))
    ] = Field(
        "observed",
        description="derived: synthesised (a crash closer); inherited: history copied from another session; "
        "claimed: the agent says it did this, nobody watched.",
    )
    event_id: Annotated[str, *_text_type("event_id")] | None = Field(
        None,
        description="The harness's own id: a join key inside its session, never an identity across sessions.",
    )
    trace_id: Annotated[str, *_text_type("trace_id")] | None = Field(
        None, description="One causal chain of runtime work. Empty means absent."
    )
    turn_id: Annotated[str, *_text_type("turn_id")] | None = Field(
        None, description="The turn that it belongs to, when known. Empty means absent."
    )
    model_call_id: Annotated[str, *_text_type("model_call_id")] | None = Field(
        None, description="The model call that it belongs to, when known. Empty means absent."
    )
    tool_call_id: Annotated[str, *_text_type("tool_call_id")] | None = Field(
        None, description="The logical tool call that it belongs to, when known. Empty means absent."
    )
    parent_session_id: Annotated[str, *_text_type("parent_session_id")] | None = Field(
        None, description="The session that started this one, when known. Empty means absent."
    )
    turn_index: Annotated[int, *_COUNT] | None = Field(
        None, description="Order of the turn in its session, when known."
    )
    origin: Annotated[dict[str, str], *_ORIGIN] | None = Field(
        None,
        description="Who did it: host, vm, process, pid, exec, generation, task, wave. Scalars, read as text; frozen by the "
        "producer when the work was dispatched.",
    )
    payload: Annotated[dict[str, Any], *_PAYLOAD] = Field(
        default_factory=dict,
        description="What the event type says; unknown fields are kept and given back unchanged.",
    )

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, record: Any) -> Any:
        if type(record) is not dict:
            raise PydanticCustomError(
                "not_an_object", "must be an object, not {got}", {"got": json_type(record)}
            )
        return {
            name: value
            for name, value in record.items()
            if value is not None and not (value == "" and name in CORRELATION)
        }

    @model_validator(mode="after")
    def _identity(self) -> Envelope:
        if self.seq is None and not self.receipt_key:
            raise PydanticCustomError(
                "missing_field", "neither seq nor receipt_key is given", {"field": "seq"}
            )
        if self.kind == "eval" and not self.run_id:
            raise PydanticCustomError("missing_field", "an eval event needs run_id", {"field": "run_id"})
        return self
