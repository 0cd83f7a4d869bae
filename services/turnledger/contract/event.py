"""The event: one immutable fact at one position of one stream (contract 2), as the rest of the code sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

NOT_ON_THE_WIRE = "\x7f"
"""Prefix of the wire names of fields that are not on the wire (msgspec knows no field without such a name). ``contract.fast`` gives
records that set them to the strict reader, which knows the envelope's fields alone."""


Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Text128 = Annotated[str, Meta(max_length=128)]
Text256 = Annotated[str, Meta(max_length=256)]
Text512 = Annotated[str, Meta(max_length=512)]
if TYPE_CHECKING:
    Origin = dict[str, Any] | None
else:
    # Its bytes, when msgspec decodes a record: the same origin comes with event after event, and contract.fast reads each once.
    Origin = msgspec.Raw
# msgspec counts characters; contract.fast counts the bytes where a text may have characters of more than one.


class Event(msgspec.Struct, kw_only=True, gc=False, eq=False, forbid_unknown_fields=True):
    """One event with its defaults filled in.

    Empty and null correlation fields are ``None``. ``occurred_at`` and ``observed_at`` keep the text of the source; the values of
    ``origin`` are text. Bounds in the annotations are checked by ``contract.fast`` when it decodes, not by the constructor.
    Get events from ``contract.reader`` or ``contract.fast``: decoding JSON into this class by other means checks too little.
    """

    session_id: Annotated[str, Meta(min_length=1, max_length=256)]
    type: Annotated[str, Meta(min_length=1, max_length=128)]
    schema_version: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] = 1
    tenant: Text128 = "default"
    producer: Text128 = "harness"
    epoch: Count = 0
    stream: Text256 = "ledger"
    seq: Count | None = None
    receipt_key: Text512 | None = None
    """Identity only where ``seq`` is absent; data otherwise."""
    occurred_at: str | None = None
    observed_at: str | None = None
    kind: str = "live"
    run_id: str | None = None
    provenance: str = "observed"
    event_id: str | None = None
    trace_id: Text512 | None = None
    turn_id: Text512 | None = None
    model_call_id: Text512 | None = None
    tool_call_id: Text512 | None = None
    parent_session_id: Text512 | None = None
    turn_index: Count | None = None
    origin: Origin = None
    """Values are text. Events may share one: not to be changed."""
    payload: dict[str, Any] = {}

    at: int | None = msgspec.field(default=None, name=NOT_ON_THE_WIRE + "at")
    """``occurred_at`` in µs since 1970 UTC, digits beyond six cut off."""
    running: int | None = msgspec.field(default=None, name=NOT_ON_THE_WIRE + "running")
    """Running time in µs (contract 5); set by ``fold.order``."""
    position: int = msgspec.field(default=0, name=NOT_ON_THE_WIRE + "position")
    """Offset in its partition, or line number in ``turnledger fold``. Arrival history: the fold never looks at it."""
    length: int = msgspec.field(default=0, name=NOT_ON_THE_WIRE + "length")
    """Bytes of the record, where whoever read it says so; 0 is unknown. It says what an event costs to hold, never what it means."""
