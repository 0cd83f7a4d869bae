"""Owns the texts that are too long for their event: cut there, and moved whole into ``body.recorded`` events behind it (contract 6).

They are redacted before they come here, and a stream that keeps its bodies at home tells their size and hash alone (contract 14). A publisher cuts an
event's texts and gives the bodies the next numbers; a reader of files cut them where it read them, and a body's identity is what it tells.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from turnledger.contract.redact import BODY, NOTE, Note, Redactor
from turnledger.harness.facts import PLAIN_TEXT, TEXT_LIMIT, Cut, Envelope, cut, digest

PART_BYTES = 384 * 1024
"""Of a body in one event: half a megabyte in base64, which every broker takes."""
MOST_TEXTS = 64
"""Of one event that are moved, the first of them; all are cut."""
BODY_ABOUT = (
    "turn_id",
    "model_call_id",
    "tool_call_id",
    "trace_id",
    "turn_index",
    "origin",
    "provenance",
    "occurred_at",
)
"""What a body has in common with its event, so that it stands in the same turn."""
STREAM = ("session_id", "producer", "epoch", "stream", "kind")
"""What a body has in common with its event, so that it stands in the same stream."""
RANK = 5
"""Of a body among events of its instant: behind what begins and before what ends (contract 5 orders them by key)."""
TO_THE_MODEL = frozenset(("model_call.started", "tool_call.requested", "net.requested"))


class Moved(NamedTuple):
    """One text that was cut: where it stood, and all of it."""

    field: str
    text: bytes
    content_type: str = PLAIN_TEXT


def cut_texts(payload: Mapping[str, Any]) -> tuple[dict[str, Any], list[Moved]]:
    """The payload with every long text cut at a character, its full size beside it as ``<name>_bytes``, and ``truncated``; and those texts."""
    moved: list[Moved] = []
    changed = _object(payload, "", moved)
    if moved:
        changed["truncated"] = True
    return changed, moved


def _object(value: Mapping[str, Any], place: str, moved: list[Moved]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, item in value.items():
        before = len(moved)
        out[name] = _value(item, f"{place}.{name}" if place else name, moved)
        if isinstance(item, str) and len(moved) > before:
            out[f"{name}_bytes"] = len(moved[-1].text)
    return out


def _value(value: Any, place: str, moved: list[Moved]) -> Any:
    if isinstance(value, str):
        if len(value) <= TEXT_LIMIT // 4:  # no text of so few characters is longer
            return value
        short, size = cut(value)
        if size is not None:
            moved.append(Moved(place, value.encode()))
        return short
    if isinstance(value, Mapping):
        return _object(value, place, moved)
    if isinstance(value, (list, tuple)):
        return [_value(item, f"{place}[{at}]", moved) for at, item in enumerate(value)]
    return value


def bodies_of(
    kind: str, event_id: str, payload: Mapping[str, Any], moved: list[Moved], limit: int | None
) -> list[dict[str, Any]]:
    """Payloads of the ``body.recorded`` events of an event. ``limit``: bytes of one body that leave; None: none does, only what it was."""
    return [
        part
        for each in moved[:MOST_TEXTS]
        for part in _parts(kind, event_id, _direction(kind, payload), each, limit)
    ]


def with_bodies(events: Iterator[Envelope], redactor: Redactor) -> Iterator[Envelope]:
    """Events as a reader of files tells them, behind each the bodies of the texts that it had to cut.

    A body has a key and no number: it is told again with its data where that may leave one day, and no other event moves by it.
    """
    for event in events:
        moved = _cut_before(event["payload"])
        if not moved:
            yield event
            continue
        event = {**event, "event_id": event.get("event_id") or _event_id(event)}
        yield event
        limit = (redactor.body_limit or sys.maxsize) if redactor.keeps_body(event["stream"]) else None
        about = {name: event[name] for name in (*STREAM, *BODY_ABOUT) if name in event}
        for body in bodies_of(event["type"], event["event_id"], event["payload"], moved, limit):
            key = (
                f"{RANK}body:{event['event_id']}:{digest([event.get('seq'), event.get('receipt_key'), body])}"
            )
            yield {**about, "type": BODY, "receipt_key": key, "payload": body}


def _cut_before(payload: Mapping[str, Any]) -> list[Moved]:
    """The texts that were cut, each once."""
    if "truncated" not in payload:  # as nearly all payloads
        return []
    found: dict[str, Moved] = {}
    for name, value in payload.items():
        if isinstance(value, Cut):
            found.setdefault(value.whole, Moved(name, value.whole.encode(), value.content_type))
    return list(found.values())


def _event_id(event: Envelope) -> str:
    """12 hex digits of an event's identity, for one that its harness gave none."""
    names = ("session_id", "producer", "epoch", "stream", "seq", "receipt_key")
    return sha256(orjson.dumps([event.get(name) for name in names])).hexdigest()[:12]


def _parts(kind: str, event_id: str, direction: str, moved: Moved, limit: int | None) -> list[dict[str, Any]]:
    said = {
        "for_event_id": event_id,
        "source": kind.partition(".")[0],
        "direction": direction,
        "field": moved.field,
        "content_type": moved.content_type,
        "original_bytes": len(moved.text),
        "sha256": sha256(moved.text).hexdigest(),
    }
    if limit is None:
        return [{**said, "truncated": True, "data": None, NOTE: [Note("body", "payload.data", 1).row()]}]
    kept = moved.text[:limit]
    parts = [kept[at : at + PART_BYTES] for at in range(0, len(kept), PART_BYTES)] or [b""]
    return [
        {
            **said,
            "truncated": len(kept) < len(moved.text),
            "part": number,
            "parts": len(parts),
            "data": base64.b64encode(part).decode(),
        }
        for number, part in enumerate(parts)
    ]


def _direction(kind: str, payload: Mapping[str, Any]) -> str:
    asked = kind in TO_THE_MODEL or (kind == "message.recorded" and payload.get("role") != "assistant")
    return "request" if asked else "response"
