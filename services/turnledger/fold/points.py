"""Owns point events (contract 11): one row an event, and the start and exit of a process merged into one.

A row is a function of its own event (of its two events for a process): membership and usage never move it.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from typing import Any

from turnledger.contract import fields
from turnledger.contract.envelope import scalar_text
from turnledger.contract.event import Event
from turnledger.contract.types import field_kind, listed_words
from turnledger.fold.columns import EXEC_EVENTS, POINTS
from turnledger.fold.fields import wrong_type
from turnledger.fold.model import Row
from turnledger.fold.order import order_key

EXEC_TABLE = "exec_events"
BODIES_TABLE = "event_bodies"

Reader = Callable[[dict[str, Any], str], Any]

_BY_KIND: dict[str, Reader] = {
    "count": fields.count,
    "integer": fields.integer,
    "identifier": fields.identifier,
}


def _anything(payload: dict[str, Any], name: str) -> Any:
    return payload.get(name)


def _reader(type_: str, name: str, kind: str) -> Reader:
    """How the payload model of the type reads a field."""
    if kind == "jsonb":
        return _anything
    if kind == "bool":
        return fields.boolean
    words = listed_words(type_, name)
    if words is not None:
        return partial(fields.choice, words=words)
    held = field_kind(type_, name)
    return fields.text if held is None else _BY_KIND[held]


_TABLE_OF: dict[str, tuple[str, tuple[tuple[str, Reader], ...]]] = {
    type_: (table, tuple((name, _reader(type_, name, kind)) for name, kind in columns))
    for table, (type_, columns) in POINTS.items()
}
_EXEC_COLUMNS = tuple(name for name, _ in EXEC_EVENTS)
_STARTED = tuple((name, _reader("process.started", name, "text")) for name in ("command", "source"))
_EXITED = tuple(
    (name, _reader("process.exited", name, kind))
    for name, kind in EXEC_EVENTS
    if name not in ("exec_id", "command", "source", "started_at", "exited_at")
)

TYPES = frozenset((*_TABLE_OF, "process.started", "process.exited"))
"""Event types that have a row here."""


def common_row(event: Event) -> Row:
    """The position and the common columns of a row (``columns.POINT_COMMON``)."""
    origin = event.origin
    return {
        "producer": event.producer,
        "epoch": event.epoch,
        "stream": event.stream,
        "seq": event.seq,
        "receipt_key": None if event.seq is not None else event.receipt_key,
        "event_id": event.event_id,
        "occurred_at": event.at,
        "trace_id": event.trace_id,
        "turn_id": event.turn_id,
        "turn_index": event.turn_index,
        "model_call_id": event.model_call_id,
        "tool_call_id": event.tool_call_id,
        "kind": event.kind,
        "process_name": None if origin is None else origin.get("process"),
        "pid": None if origin is None else origin.get("pid"),
    }


def _read(event: Event, columns: Iterable[tuple[str, Reader]], row: Row, findings: list[Row]) -> None:
    payload = event.payload
    for name, reader in columns:
        value = payload.get(name)
        if value is not None:
            value = reader(payload, name)
            if value is None:
                wrong_type(event, name, findings)
        row[name] = value


def point_row(event: Event, findings: list[Row]) -> tuple[str, Row] | None:
    """(table, row) of an event of ``columns.POINTS``; None for any other type. What cannot be read is null and a finding.

    A row holds its position (producer, epoch, stream, seq, receipt_key) before its columns.
    """
    found = _TABLE_OF.get(event.type)
    if found is None:
        return None
    table, columns = found
    row = common_row(event)
    _read(event, columns, row, findings)
    if table == "audit_events":
        audited = scalar_text(event.payload.get("pid"))
        if audited is not None:
            row["pid"] = audited
    elif table == BODIES_TABLE:
        _read_body(event, row, findings)
    return table, row


def body_bytes(event: Event) -> bytes | None:
    """The bytes of a part; None where they are not base64, spelt as base64 spells them."""
    data = event.payload.get("data")
    if type(data) is not str:
        return None
    try:
        given = data.encode()
        found = binascii.a2b_base64(given)
    except binascii.Error:
        return None
    return found if binascii.b2a_base64(found, newline=False) == given else None


def _read_body(event: Event, row: Row, findings: list[Row]) -> None:
    """What the bytes of a part say about it. Those of a whole body must hash to what it says, unless it says that it was cut."""
    found = body_bytes(event)
    if found is None and event.payload.get("data") is not None:
        wrong_type(event, "data", findings)
    row["stored_bytes"] = None if found is None else len(found)
    verified = None
    if found is not None and row["sha256"] is not None and in_one_part(row):
        verified = judged(sha256(found).hexdigest(), len(found), row)
    row["verified"] = verified
    row["data"] = event.payload["data"] if found is not None else None


def in_one_part(row: Row) -> bool:
    """A body that was not cut into parts."""
    return row["parts"] is None or row["parts"] == 1


def judged(digest: str, stored: int, row: Row) -> bool | None:
    """Whether all bytes that are there hash to what was told. None where less was kept than was hashed."""
    if digest == row["sha256"].lower():
        return True
    return None if was_cut(stored, row) else False


def was_cut(stored: int, row: Row) -> bool:
    """The body says so, or fewer bytes are there than it had."""
    return row["truncated"] is True or (row["original_bytes"] is not None and stored < row["original_bytes"])


ExecKey = tuple[str, int, str]
"""(producer, epoch, exec_id): what start and exit of one process share."""


class Processes:
    """Starts and exits of one session, merged (contract 11). Feed them in the order of contract 5."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[ExecKey, Row] = {}

    def add(self, event: Event, findings: list[Row]) -> tuple[Row, bool]:
        """The row that the event opens or ends, and whether it is new. An exit joins the latest start of its id that has no exit."""
        raw = event.payload.get("exec_id")
        exec_id = scalar_text(raw)
        if exec_id is None and raw is not None:
            wrong_type(event, "exec_id", findings)
        key = None if exec_id is None else (event.producer, event.epoch, exec_id)
        if event.type == "process.exited":
            row = None if key is None else self._open.pop(key, None)
            fresh = row is None
            if row is None:
                row = self._row(event, exec_id)
            row["exited_at"] = event.at
            _read(event, _EXITED, row, findings)
            return row, fresh
        row = self._row(event, exec_id)
        row["started_at"] = event.at
        _read(event, _STARTED, row, findings)
        if key is not None:
            self._open[key] = row
        return row, True

    @staticmethod
    def _row(event: Event, exec_id: str | None) -> Row:
        row = common_row(event)
        for name in _EXEC_COLUMNS:
            row[name] = None
        row["exec_id"] = exec_id
        return row


Placed = tuple[bytes, Row]
"""(order key of the event, its finding)."""


def fold_points(
    events: Iterable[Event], processes: Processes, findings: list[Placed]
) -> dict[str, list[Row]]:
    """Rows by table of one session's events, given in order; tables without rows are left out. Appends to ``findings``.

    ``processes`` knows afterwards which starts have no exit yet.
    """
    rows: dict[str, list[Row]] = {}
    for event in events:
        if event.type not in TYPES:
            continue
        found: list[Row] = []
        point = point_row(event, found)
        if point is not None:
            rows.setdefault(point[0], []).append(point[1])
        else:
            row, fresh = processes.add(event, found)
            if fresh:
                rows.setdefault(EXEC_TABLE, []).append(row)
        if found:
            key = order_key(event)
            findings += [(key, finding) for finding in found]
    return rows
