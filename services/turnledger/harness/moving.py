"""Owns the texts that are too long for their event: cut there, and moved whole into ``body.recorded`` events behind it (contract 6).

They are redacted before they come here, and a stream that keeps its bodies at home tells their size and hash alone (contract 14).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from turnledger.contract.redact import NOTE, Note
from turnledger.harness.facts import TEXT_LIMIT, cut

PART_BYTES = 384 * 1024
"""Of a body in one event: half a megabyte in base64, which every broker takes."""
MOST_TEXTS = 64
"""Of one event that are moved, the first of them; all are cut."""
TO_THE_MODEL = frozenset(("model_call.started", "tool_call.requested", "net.requested"))


class Moved(NamedTuple):
    """One text that was cut: where it stood, and all of it."""

    field: str
    text: bytes


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


def _parts(kind: str, event_id: str, direction: str, moved: Moved, limit: int | None) -> list[dict[str, Any]]:
    said = {
        "for_event_id": event_id,
        "source": kind.partition(".")[0],
        "direction": direction,
        "field": moved.field,
        "content_type": "text/plain; charset=utf-8",
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
