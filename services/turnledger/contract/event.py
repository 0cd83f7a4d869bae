"""The event: one immutable fact at one position of one stream (contract 2), as the rest of the code sees it."""

from __future__ import annotations

from typing import Any

import msgspec

NOT_ON_THE_WIRE = "\x00"
"""Prefix of names that no record can carry: a NUL inside text is a dead letter (contract 15)."""


class Event(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """One event with its defaults filled in.

    Empty and null correlation fields are ``None``. ``occurred_at`` and ``observed_at`` keep the text of the source.
    """

    session_id: str
    type: str
    schema_version: int = 1
    tenant: str = "default"
    producer: str = "harness"
    epoch: int = 0
    stream: str = "ledger"
    seq: int | None = None
    receipt_key: str | None = None
    """Identity only where ``seq`` is absent; data otherwise."""
    occurred_at: str | None = None
    observed_at: str | None = None
    kind: str = "live"
    run_id: str | None = None
    provenance: str = "observed"
    event_id: str | None = None
    trace_id: str | None = None
    turn_id: str | None = None
    model_call_id: str | None = None
    tool_call_id: str | None = None
    parent_session_id: str | None = None
    turn_index: int | None = None
    origin: dict[str, Any] | None = None
    payload: dict[str, Any] = {}

    at: int | None = msgspec.field(default=None, name=NOT_ON_THE_WIRE + "at")
    """``occurred_at`` in µs since 1970 UTC, digits beyond six cut off."""
    running: int | None = msgspec.field(default=None, name=NOT_ON_THE_WIRE + "running")
    """Running time in µs (contract 5); set by ``fold.order``."""
    position: int = msgspec.field(default=0, name=NOT_ON_THE_WIRE + "position")
    """Offset in its partition, or line number in ``turnledger fold``. Arrival history: the fold never looks at it."""
