"""The strict reader: raw bytes of one record to an ``Event``, or to the reason why it is a dead letter (contract 2 and 15)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from turnledger.contract.envelope import LIMITS, Envelope
from turnledger.contract.event import Event
from turnledger.contract.jsontext import JsonError, parse
from turnledger.contract.times import parse_instant
from turnledger.contract.upcast import CHAIN, Chain

DEFAULT_LIMIT = 1 << 20
"""Greatest size of a record in bytes, unless set (contract 15)."""

_FIELDS = tuple(Envelope.model_fields)


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a record is a dead letter. Never holds content of the record but its tenant and session."""

    reason: str
    """``encoding`` ``json`` ``not_an_object`` ``empty`` ``too_deep`` ``too_large`` ``nul`` ``missing_field`` ``wrong_type``
    ``out_of_range``."""
    field: str | None = None
    """The envelope field, where it is one."""
    detail: str = ""
    """A sentence for people; names types and bounds, never values."""
    tenant: str | None = None
    """Where it could be read (``default`` where the record names none)."""
    session_id: str | None = None
    """Where it could be read."""


def _readable(value: Any, field: str) -> str | None:
    """An identity field of a record that is refused for another reason, where it is one by itself."""
    if type(value) is not str or "\x00" in value:
        return None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return None
    return value if size <= LIMITS[field] else None


def _rejected(reason: str, field: str | None, detail: str, record: Any = None) -> Rejected:
    if type(record) is not dict:
        return Rejected(reason, field, detail)
    tenant = record.get("tenant")
    return Rejected(
        reason,
        field,
        detail,
        "default" if tenant is None else _readable(tenant, "tenant"),
        _readable(record.get("session_id"), "session_id") or None,
    )


def _lone(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


_FAULTS: dict[str, Callable[[Any], bool]] = {
    "nul": lambda value: type(value) is str and "\x00" in value,
    "encoding": lambda value: type(value) is str and _lone(value),
    "out_of_range": lambda value: type(value) is float and math.isinf(value),
}


def _holds(value: Any, fault: Callable[[Any], bool]) -> bool:
    if type(value) is dict:
        return any(fault(key) or _holds(item, fault) for key, item in value.items())
    if type(value) is list:
        return any(_holds(item, fault) for item in value)
    return fault(value)


def _place(error: JsonError) -> str | None:
    """The envelope field in which the text has its fault, where the text is JSON and the fault in what counts of it."""
    fault = _FAULTS.get(error.reason)
    if fault is not None and type(error.value) is dict:
        for name in _FIELDS:
            if name in error.value and _holds(error.value[name], fault):
                return name
    return None


def read(raw: bytes | None, *, limit: int = DEFAULT_LIMIT, chain: Chain = CHAIN) -> Event | Rejected:
    """The event that a record's value holds, or why it is a dead letter.

    ``raw`` is None for a Kafka tombstone; ``limit`` is in bytes. Never raises for what the record holds. With several faults the
    first in this order is told: empty, size, encoding, NUL, depth, JSON, then the envelope's fields in their order.
    """
    if not raw or not raw.strip(b" \t\n\r"):
        return Rejected("empty", None, "the record has no value")
    if len(raw) > limit:
        return Rejected("too_large", None, f"the record has {len(raw)} bytes, the limit is {limit}")
    try:
        record = parse(raw)
    except JsonError as error:
        return _rejected(error.reason, _place(error), error.detail, error.value)
    if type(record) is not dict:
        return Rejected("not_an_object", None, "the record is JSON but no object")
    return from_object(record, chain)


def from_object(record: dict[str, Any], chain: Chain = CHAIN) -> Event | Rejected:
    """The same for a parsed JSON object."""
    try:
        envelope = Envelope.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = first["loc"][0] if first["loc"] else first.get("ctx", {}).get("field")
        field = str(place) if place is not None else None
        if first["type"] == "missing":
            return _rejected("missing_field", field, f"{field} is required", record)
        detail = first["msg"] if not first["loc"] else f"{field} {first['msg']}"
        return _rejected(first["type"], field, detail, record)
    event = Event(**{name: getattr(envelope, name) for name in _FIELDS})
    if event.occurred_at is not None:
        event.at = parse_instant(event.occurred_at)
    return chain.up(event)
