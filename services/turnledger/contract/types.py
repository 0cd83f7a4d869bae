"""The event types: name → payload model, and which fields of a payload have a wrong type (contract 6 and 15)."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from turnledger.contract import payloads as p
from turnledger.contract.canonical import integral
from turnledger.contract.envelope import INT64_MAX, INT64_MIN
from turnledger.contract.event import Event
from turnledger.contract.fields import Kind

EVENT_TYPES: dict[str, type[p.Payload]] = {
    "session.started": p.SessionStarted,
    "session.resumed": p.SessionStarted,
    "session.forked": p.SessionForked,
    "session.tools_changed": p.SessionToolsChanged,
    "session.ended": p.SessionEnded,
    "stream.declared": p.StreamDeclared,
    "stream.closed": p.StreamClosed,
    "stream.lost": p.StreamLost,
    "stream.elided": p.StreamElided,
    "stream.superseded": p.StreamSuperseded,
    "capture.recorded": p.CaptureRecorded,
    "driver.claimed": p.DriverClaimed,
    "driver.exited": p.DriverExited,
    "attempt.started": p.AttemptStarted,
    "attempt.finished": p.AttemptFinished,
    "provider_session.observed": p.ProviderSessionObserved,
    "turn.started": p.TurnStarted,
    "turn.completed": p.TurnCompleted,
    "message.recorded": p.MessageRecorded,
    "model_call.started": p.ModelCallStarted,
    "model_call.delta": p.ModelCallDelta,
    "model_call.completed": p.ModelCallCompleted,
    "model_call.failed": p.ModelCallFailed,
    "model_call.retried": p.ModelCallRetried,
    "usage.reported": p.UsageReported,
    "tool_call.requested": p.ToolCallRequested,
    "tool_call.started": p.ToolCallStarted,
    "tool_call.completed": p.ToolCallCompleted,
    "tool_call.denied": p.ToolCallDenied,
    "tool_results.submitted": p.ToolResultsSubmitted,
    "guard.evaluated": p.GuardEvaluated,
    "slot.written": p.SlotWritten,
    "transition.decided": p.TransitionDecided,
    "state.observed": p.StateObserved,
    "limit.reached": p.LimitReached,
    "context.compaction_started": p.CompactionStarted,
    "context.compacted": p.ContextCompacted,
    "answer.finalized": p.AnswerFinalized,
    "subagent.started": p.SubagentStarted,
    "subagent.finished": p.SubagentFinished,
    "net.requested": p.NetRequested,
    "dns.queried": p.DnsQueried,
    "fs.changed": p.FsChanged,
    "process.started": p.ProcessStarted,
    "process.exited": p.ProcessExited,
    "process.audited": p.ProcessAudited,
    "credential.used": p.CredentialUsed,
    "security.rule_matched": p.SecurityRuleMatched,
    "security.decided": p.SecurityDecided,
    "security.asked": p.SecurityAsked,
    "mcp.observed": p.McpObserved,
    "body.recorded": p.BodyRecorded,
    "artifact.checked": p.ArtifactChecked,
    "recorder.settled": p.RecorderSettled,
    "counter.reported": p.CounterReported,
}
"""Every type of contract 6. Any other is stored and counted as an unknown one."""

# A field's check: what to do with a value of a Python type. Absent: wrong. None: right. Else a function that says whether it is
# right, or the checks of an object's own fields.
_Table = dict[str, "_Check"]
_Check = dict[type, "Callable[[Any], bool] | _Table | None"]


def _within(least: int) -> Callable[[Any], bool]:
    def right(value: Any) -> bool:
        whole = integral(value)
        return whole is not None and least <= whole <= INT64_MAX

    return right


def field_kind(type_: str, name: str) -> str | None:
    """Which kind of number or identifier a payload field of an event type holds (``Kind.name``); None for plain text and the rest.

    Raises :class:`KeyError` for a type or field that contract 6 does not have.
    """

    def within(annotation: Any, marks: tuple[Any, ...]) -> str | None:
        for mark in marks:
            if isinstance(mark, Kind):
                return mark.name
        if get_origin(annotation) is Annotated:
            base, *inner = get_args(annotation)
            return within(base, tuple(inner))
        parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
        return next((kind for part in parts if (kind := within(part, ()))), None)

    field = EVENT_TYPES[type_].model_fields[name]
    return within(field.annotation, tuple(field.metadata))


def listed_words(type_: str, name: str) -> frozenset[str] | None:
    """The words of a payload field with a closed list; None for any other field.

    Raises :class:`KeyError` for a type or field that contract 6 does not have.
    """
    annotation = EVENT_TYPES[type_].model_fields[name].annotation
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((frozenset(get_args(part)) for part in parts if get_origin(part) is Literal), None)


def _kind_check(kind: Kind) -> _Check:
    if kind.name == "number":
        return {int: None, float: None}
    if kind.name == "identifier":
        return {str: None, int: None, float: lambda value: integral(value) is not None}
    right = _within(0 if kind.name == "count" else INT64_MIN)
    return {int: right, float: right}


def _check(annotation: Any) -> _Check | None:
    """The check of one field's annotation; None where anything goes."""
    if annotation is Any:
        return None
    if get_origin(annotation) is Annotated:
        base, *marks = get_args(annotation)
        kinds = [mark for mark in marks if isinstance(mark, Kind)]
        return _kind_check(kinds[0]) if kinds else _check(base)
    if get_origin(annotation) in (Union, types.UnionType):
        check: _Check = {}
        for part in get_args(annotation):
            found = _check(part)
            if found is None:
                return None
            check |= found
        return check
    if get_origin(annotation) is Literal:
        words = frozenset(get_args(annotation))
        return {str: words.__contains__}
    if isinstance(annotation, type) and issubclass(annotation, p.Fields):
        return {dict: _table(annotation)}
    kind = get_origin(annotation) or annotation
    if kind in (str, bool, list, dict, type(None)):
        return {kind: None}
    raise TypeError(f"no check is known for a payload field of type {annotation}")


def _table(model: type[p.Fields]) -> _Table:
    table: _Table = {}
    for name, field in model.model_fields.items():
        kinds = [mark for mark in field.metadata if isinstance(mark, Kind)]
        check = _kind_check(kinds[0]) if kinds else _check(field.annotation)
        if check is not None:
            table[name] = check | {type(None): None}
    return table


_TABLES: dict[str, _Table] = {name: _table(model) for name, model in EVENT_TYPES.items()}


def _wrong(payload: dict[str, Any], table: _Table, prefix: str) -> list[str]:
    wrong: list[str] = []
    for name, value in payload.items():
        check = table.get(name)
        if check is None:
            continue
        try:
            right = check[type(value)]
        except KeyError:
            wrong.append(prefix + name)
            continue
        if right is None:
            continue
        if type(right) is dict:
            wrong += _wrong(value, right, f"{prefix}{name}.")
        elif not right(value):  # type: ignore[operator]  # what is no dict here is a check
            wrong.append(prefix + name)
    return wrong


# The same as msgspec structs, which say in C whether a payload is right as it stands; what they doubt is looked at field by field.


def _quick_type(annotation: Any, marks: tuple[Any, ...] = ()) -> Any:
    kinds = [mark.name for mark in marks if isinstance(mark, Kind)]
    if kinds:
        if kinds[0] in ("count", "integer"):
            least = 0 if kinds[0] == "count" else INT64_MIN
            return Annotated[int, msgspec.Meta(ge=least, le=INT64_MAX)]
        # An integer kept as Decimal would become an infinite float.
        finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
        return int | finite if kinds[0] == "number" else str | int
    if get_origin(annotation) is Annotated:
        base, *inner = get_args(annotation)
        return _quick_type(base, tuple(inner))
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(_quick_type(part) for part in get_args(annotation))]  # noqa: UP007
    if isinstance(annotation, type) and issubclass(annotation, p.Fields):
        return _quick(annotation)
    return annotation


def _quick(model: type[p.Fields]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        model.__name__,
        [
            (name, _quick_type(field.annotation, tuple(field.metadata)) | None, None)
            for name, field in model.model_fields.items()
            if field.annotation is not Any
        ],
        gc=False,
    )


_QUICK: dict[str, type[msgspec.Struct]] = {name: _quick(model) for name, model in EVENT_TYPES.items()}


def wrong_fields(event: Event) -> list[str]:
    """The fields of an event's payload that have a wrong type and so read as null, in the payload's order.

    A field of an object inside is named like ``usage.input``. Empty for an unknown type, and for a payload that is right, which
    takes 0.7 µs for a model call's 18 fields.
    """
    quick = _QUICK.get(event.type)
    if quick is None:
        return []
    try:
        msgspec.convert(event.payload, quick)
    except msgspec.ValidationError:
        return _wrong(event.payload, _TABLES[event.type], "")
    return []


def typed(event: Event) -> Any | None:
    """The payload as a struct with every field of its type's model, absent ones None, but those that may be anything; not to be changed.

    None where a field would have to be read tolerantly (``wrong_fields``, ``12.0`` for 12) and for an unknown type.
    """
    quick = _QUICK.get(event.type)
    if quick is None:
        return None
    try:
        return msgspec.convert(event.payload, quick)
    except msgspec.ValidationError:
        return None
