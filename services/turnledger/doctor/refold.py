"""Invariants of one session that a fresh fold proves: its projection (I4), its gaps (I7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from turnledger.contract.event import Event
from turnledger.doctor.faults import Fault
from turnledger.doctor.held import HeldEvent, StoredStream
from turnledger.doctor.rows import Row, compare, load
from turnledger.fold import columns
from turnledger.fold.document import contribution_row
from turnledger.fold.findings import grouped
from turnledger.fold.model import SessionFold, StreamKey
from turnledger.store.read import SessionRef

MAX_OPEN_ROWS = 1000
"""Open gaps of one stream beyond this are one row ``fragmented`` (contract 4)."""


def _names_of(listed: Sequence[columns.Column]) -> tuple[str, ...]:
    return tuple(name for name, _ in listed)


POINT_KINDS: dict[str, tuple[columns.Column, ...]] = {
    table: (*columns.POINT_COMMON, *own) for table, own in columns.POINT_TABLES.items()
}
SEVERAL = {"model_items": "item_type", "tool_responses": "response_index"}
"""What tells the rows of one position apart in tables where an event may have several."""
_TURN = ("session_no", "turn_no")
_POSITION = ("session_no", "stream_no", "seq")
_FINDING: tuple[columns.Column, ...] = (("severity", "text"), ("count", "int8"), ("rows", "jsonb"))
_RECORD: tuple[columns.Column, ...] = (("digest", "text"), ("record", "bytea"))
_IN_TURN: tuple[tuple[str, str, tuple[columns.Column, ...]], ...] = (
    ("model_calls", "call_key", columns.MODEL_CALLS),
    ("tool_calls", "tool_key", columns.TOOL_CALLS),
    ("usage_parts", "part_key", columns.USAGE_PARTS),
)


# --- I4 ---------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoredProjection:
    """What the projection holds of some sessions: rows by table and session."""

    rows: dict[tuple[str, int], list[Row]]
    ask: Callable[[str, int], list[Row]] | None = None
    """Reads a table of a session each time, so that a long session's tables are in memory one after the other."""

    def of(self, table: str, session_no: int) -> list[Row]:
        if self.ask is not None:
            return self.ask(table, session_no)
        return self.rows.get((table, session_no), [])


_PROJECTED: dict[str, tuple[str, ...]] = {
    "turns": (*_TURN, *_names_of(columns.TURNS), "revision", "digest"),
    "turn_records": (*_TURN, "revision", "digest", "record"),
    **{table: (*_TURN, *_names_of(listed)) for table, _, listed in _IN_TURN},
    "session_facts": ("session_no", *_names_of(columns.FACTS)),
    "findings": (*_TURN, "check", *_names_of(_FINDING)),
    **{table: (*_POSITION, *_names_of(listed)) for table, listed in POINT_KINDS.items()},
}


def load_projection(
    connection: psycopg.Connection[Any], slot: str, sessions: Sequence[int]
) -> StoredProjection:
    """Everything that ingest wrote of some sessions."""
    rows: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for table in _PROJECTED:
        for row in _load(connection, slot, table, sessions):
            rows[table, row["session_no"]].append(row)
    return StoredProjection(rows)


def ask_projection(connection: psycopg.Connection[Any], slot: str) -> StoredProjection:
    """The same, read as it is asked for, in the caller's snapshot."""
    return StoredProjection({}, lambda table, number: _load(connection, slot, table, [number]))


def _load(connection: psycopg.Connection[Any], slot: str, table: str, sessions: Sequence[int]) -> list[Row]:
    where = sql.SQL("source = 'fold'") if table == "findings" else None
    return load(connection, slot, table, _PROJECTED[table], sessions, where)


def projection_faults(
    ref: SessionRef, fold: SessionFold, events: Sequence[HeldEvent], stored: StoredProjection
) -> list[Fault]:
    """I4 of one session: records byte for byte, rows column by column."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    number = ref.session_no
    turns, records = stored.of("turns", number), stored.of("turn_records", number)
    numbers: dict[str, int | None] = {row["turn_key"]: row["turn_no"] for row in turns}
    faults = compare(
        "I4",
        "turns",
        named,
        (*columns.TURNS, ("digest", "text")),
        lambda row: row["turn_key"],
        [{**turn.flat, "digest": turn.digest} for turn in fold.turns],
        turns,
    )
    faults += compare(
        "I4",
        "turn_records",
        named,
        _RECORD,
        lambda row: row["turn_no"],
        [
            {"turn_no": numbers[turn.turn.key], "digest": turn.digest, "record": turn.body}
            for turn in fold.turns
            if turn.turn.key in numbers
        ],
        records,
    )
    faults += _revision_faults(named, turns, records)
    del turns, records
    for table, key, listed in _IN_TURN:
        computed = [
            {**row, "turn_no": numbers.get(turn.turn.key)}
            for turn in fold.turns
            for row in _rows_of(table, turn.calls, turn.tools, turn.parts)
        ]
        computed += [{**row, "turn_no": None} for row in _rows_of(table, fold.calls, fold.tools, fold.parts)]
        faults += compare(
            "I4",
            table,
            named,
            (*listed, ("turn_no", "int4")),
            lambda row, key=key: row[key],  # type: ignore[misc]  # a lambda has no annotations
            computed,
            stored.of(table, number),
        )
    faults += compare(
        "I4",
        "session_facts",
        named,
        columns.FACTS,
        lambda row: 0,
        [fold.facts] if events else [],
        stored.of("session_facts", number),
    )
    faults += compare(
        "I4",
        "findings",
        named,
        _FINDING,
        lambda row: (row["turn_no"], row["check"]),
        [
            {**group, "turn_no": turn_no}
            for turn_no, found in [
                *((numbers.get(turn.turn.key), turn.findings) for turn in fold.turns),
                (None, fold.findings),
            ]
            for group in grouped(ref.tenant, ref.session_id, found)
        ],
        stored.of("findings", number),
    )
    places = {_point_key(one.event): (one.stream_no, one.seq) for one in events}
    for table, listed in POINT_KINDS.items():
        rows = []
        for row in fold.points.get(table, []):
            stream_no, seq = places[
                row["producer"], row["epoch"], row["stream"], row["seq"], row["receipt_key"]
            ]
            rows.append({**row, "stream_no": stream_no, "seq": seq})
        beside = SEVERAL.get(table, "seq")
        faults += compare(
            "I4",
            table,
            named,
            listed,
            lambda row, beside=beside: (row["stream_no"], row["seq"], row[beside]),  # type: ignore[misc]  # a lambda has no annotations
            rows,
            stored.of(table, number),
        )
    return faults


def _rows_of(table: str, calls: Iterable[Row], tools: Iterable[Row], parts: Iterable[Any]) -> list[Row]:
    if table == "model_calls":
        return list(calls)
    if table == "tool_calls":
        return list(tools)
    return [contribution_row(part) for part in parts if part.call_key is None]


def _revision_faults(named: Row, turns: Iterable[Row], records: Iterable[Row]) -> list[Fault]:
    """Revisions are arrival history: no fold tells them, but both tables say the same and none is below 1."""
    revisions = {row["turn_no"]: row["revision"] for row in records}
    return [
        Fault(
            "I4",
            "a turn and its record are not of one revision",
            {
                **named,
                "turn_key": row["turn_key"],
                "turn": row["revision"],
                "record": revisions.get(row["turn_no"]),
            },
        )
        for row in turns
        if row["revision"] < 1 or revisions.get(row["turn_no"], row["revision"]) != row["revision"]
    ]


def _point_key(event: Event) -> tuple[str, int, str, int | None, str | None]:
    receipt_key = event.receipt_key if event.seq is None else None
    return event.producer, event.epoch, event.stream, event.seq, receipt_key


# --- I7 ---------------------------------------------------------------------------------------------------------------------------


def gap_faults(ref: SessionRef, gaps: Iterable[Row], streams: Sequence[StoredStream]) -> list[Fault]:
    """I7 of one session: the live rows of ``ledger.gaps`` are what is missing, in its state. ``gaps`` as a fold gives them."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    runs: dict[StreamKey, list[tuple[int, int, str]]] = defaultdict(list)
    for gap in gaps:
        runs[gap["producer"], gap["epoch"], gap["stream"]].append(
            (gap["from_seq"], gap["to_seq"], gap["state"])
        )
    faults: list[Fault] = []
    stored = {one.key: set(one.gaps) for one in streams}
    for key in sorted(stored.keys() | runs.keys()):
        computed = set(_live(runs[key]))
        have = stored.get(key, set())
        for first, last, state, ranges, missing in sorted(computed - have):
            row = {"from_seq": first, "to_seq": last, "state": state, "ranges": ranges, "missing": missing}
            faults.append(Fault("I7", "a hole has no gap row", {**named, **_stream(key), **row}))
        for first, last, state, ranges, missing in sorted(have - computed):
            row = {"from_seq": first, "to_seq": last, "state": state, "ranges": ranges, "missing": missing}
            faults.append(Fault("I7", "a gap row has no hole", {**named, **_stream(key), **row}))
    for one in streams:
        ranges = sum(row[3] for row in _live(runs[one.key]) if row[2] in ("open", "fragmented"))
        if one.open_gaps != ranges:
            row = {"stored": one.open_gaps, "computed": ranges}
            faults.append(
                Fault(
                    "I7",
                    "a stream's count of open gaps is not what is missing",
                    {**named, **one.names, **row},
                )
            )
    return faults


def _live(runs: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str, int, int]]:
    rows = [(first, last, state, 1, last - first + 1) for first, last, state in runs]
    opened = [row for row in rows if row[2] == "open"]
    if len(opened) <= MAX_OPEN_ROWS:
        return rows
    whole = (opened[0][0], opened[-1][1], "fragmented", len(opened), sum(row[4] for row in opened))
    return [whole, *(row for row in rows if row[2] != "open")]


def _stream(key: StreamKey) -> Row:
    return {"producer": key[0], "epoch": key[1], "stream": key[2]}
