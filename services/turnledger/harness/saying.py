"""Owns the payloads that every reader needs: messages, tool requests and results, failures, answers. Texts are cut, values made safe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnledger.harness.facts import cut, identifier, known, put_text, put_value, text, whole

MESSAGE_LIMIT = 2048
"""Bytes of an error message."""
TYPE_BYTES = 128

STATUSES = {
    401: "auth",
    403: "auth",
    408: "timeout",
    429: "rate_limit",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}
"""HTTP status to the contract's class of failure."""
_STATUS = re.compile(r"(?<![0-9])([45][0-9]{2})(?![0-9])")
_WORDS = (
    (
        "rate_limit",
        ("rate limit", "ratelimit", "rate_limit", "quota", "resource_exhausted", "too many requests"),
    ),
    ("overloaded", ("overloaded", "unavailable", "capacity")),
    ("timeout", ("timeout", "timed out", "etimedout")),
    ("auth", ("unauthorized", "authentication", "api key", "permission denied", "forbidden")),
    ("cut", ("aborted", "connection reset", "econnreset", "socket hang up", "stream ended", "terminated")),
)


def message(role: str, said: str | None) -> dict[str, Any]:
    """``message.recorded``."""
    payload: dict[str, Any] = {"role": role}
    put_text(payload, "text", said)
    return payload


def started(said: str | None) -> dict[str, Any]:
    """``turn.started``."""
    payload: dict[str, Any] = {}
    put_text(payload, "input_preview", said)
    return payload


def answer(said: str) -> dict[str, Any]:
    """``answer.finalized``: exact unless it had to be cut."""
    payload: dict[str, Any] = {}
    put_text(payload, "text", said)
    return {**payload, "exact": "truncated" not in payload}


def ended(status: str, error: str | None = None, duration_ms: Any = None) -> dict[str, Any]:
    """``turn.completed``."""
    payload = known({"status": status, "duration_ms": whole(duration_ms)})
    put_text(payload, "error", error, MESSAGE_LIMIT)
    return payload


def requested(
    name: Any, arguments: Any, *, server: str | None = None, origin: str = "native"
) -> dict[str, Any]:
    """``tool_call.requested``. A name with ``__`` is an MCP server's tool, as every harness here writes them."""
    tool = identifier(name, 256)
    if server is None and tool is not None and "__" in tool:
        server = tool.removeprefix("mcp__").split("__")[0] or None
    payload = known(
        {"tool_name": tool, "call_tool_origin": "mcp" if server else origin, "server_name": server}
    )
    put_value(payload, "arguments", arguments)
    return payload


def completed(failed: bool, said: str | None, *, duration_ms: Any = None, name: Any = None) -> dict[str, Any]:
    """``tool_call.completed``."""
    payload = known(
        {
            "status": "error" if failed else "ok",
            "tool_name": identifier(name, 256),
            "duration_ms": whole(duration_ms),
            "bytes_received": len(said.encode()) if said is not None else None,
        }
    )
    put_text(payload, "preview", said)
    if failed:
        put_text(payload, "error_message", said, MESSAGE_LIMIT)
    return payload


def denied(by: str, reason: str | None) -> dict[str, Any]:
    """``tool_call.denied``."""
    payload: dict[str, Any] = {"by": by}
    put_text(payload, "reason", reason, MESSAGE_LIMIT)
    return payload


def failure(
    said: str | None, *, status: int | None = None, kind: str | None = None, **fields: Any
) -> dict[str, Any]:
    """``model_call.failed``: the class from ``kind``, else from the HTTP status, else from what the message says."""
    if status is None and said is not None:
        match = _STATUS.search(said[:200])
        status = int(match.group(1)) if match is not None else None
    payload = known(
        {
            "error_class": kind or STATUSES.get(status or 0) or _class_of(said),
            "status_code": status if status is not None and 100 <= status <= 599 else None,
            **fields,
        }
    )
    put_text(payload, "message", said, MESSAGE_LIMIT)
    return payload


def _class_of(said: str | None) -> str:
    lower = (said or "")[:1000].lower()
    for kind, words in _WORDS:
        if any(word in lower for word in words):
            return kind
    return "other"


def unknown(producer: str, kind: str, record: Any) -> tuple[str, dict[str, Any]]:
    """Type and payload of the event that keeps a record which the reader does not know."""
    payload: dict[str, Any] = {}
    put_value(payload, "record", record)
    name = re.sub(r"[^\w./:-]+", "_", kind) or "?"
    return cut(f"{producer.replace('-', '_')}.{name}", TYPE_BYTES)[0], payload


def text_of(value: Any) -> str | None:
    """A text, or the texts of a list of parts ``{text}``."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return text(value.get("text"))
    if isinstance(value, list):
        parts = [
            each if isinstance(each, str) else each.get("text")
            for each in value
            if isinstance(each, (str, dict))
        ]
        return text("\n".join(part for part in parts if isinstance(part, str))) if parts else None
    return None
