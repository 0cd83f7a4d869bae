"""Invariants of one session that a fresh fold proves: its projection (I4), its gaps (I7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
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


def _at_position(beside: str) -> Callable[[Row], Hashable]:
    return lambda row: (row["stream_no"], row["seq"], row[beside])


COMPARED: dict[str, tuple[tuple[columns.Column, ...], Callable[[Row], Hashable]]] = {
    "turns": ((*columns.TURNS, ("digest", "text")), itemgetter("turn_key")),
    "turn_records": (_RECORD, itemgetter("turn_no")),
    **{table: ((*listed, ("turn_no", "int4")), itemgetter(key)) for table, key, listed in _IN_TURN},
    "session_facts": (columns.FACTS, lambda row: 0),
    "findings": (_FINDING, itemgetter("turn_no", "check")),
    **{table: (listed, _at_position(SEVERAL.get(table, "seq"))) for table, listed in POINT_KINDS.items()},
}
"""Of each table the columns that are compared, and the key that is unique in a session."""


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


PROJECTED: dict[str, tuple[str, ...]] = {
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
    for table in PROJECTED:
        for row in _load(connection, slot, table, sessions):
            rows[table, row["session_no"]].append(row)
    return StoredProjection(rows)


def ask_projection(connection: psycopg.Connection[Any], slot: str) -> StoredProjection:
    """The same, read as it is asked for, in the caller's snapshot."""
    return StoredProjection({}, lambda table, number: _load(connection, slot, table, [number]))


def _load(connection: psycopg.Connection[Any], slot: str, table: str, sessions: Sequence[int]) -> list[Row]:
    where = sql.SQL("source = 'fold'") if table == "findings" else None
    return load(connection, slot, table, PROJECTED[table], sessions, where)


def projection_faults(
    ref: SessionRef, fold: SessionFold, events: Sequence[HeldEvent], stored: StoredProjection
) -> list[Fault]:
    """I4 of one session: records byte for byte, rows column by column."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    number = ref.session_no
    turns, records = stored.of("turns", number), stored.of("turn_records", number)
    numbers: dict[str, int] = {row["turn_key"]: row["turn_no"] for row in turns}
    held = {"turns": turns, "turn_records": records}
    revisions = _revision_faults(named, turns, records)
    del turns, records
    faults: list[Fault] = []
    for table, computed in projected(fold, numbers, there=bool(events)):
        rows = held.pop(table) if table in held else stored.of(table, number)
        faults += compare("I4", table, named, *COMPARED[table], computed, rows)
        if table == "turn_records":
            faults += revisions
    places = {point_place(one.event): (one.stream_no, one.seq) for one in events}
    for table in POINT_KINDS:
        found = []
        for row in fold.points.get(table, []):
            stream_no, seq = places[row_place(row)]
            found.append({**row, "stream_no": stream_no, "seq": seq})
        faults += compare("I4", table, named, *COMPARED[table], found, stored.of(table, number))
    return faults


def projected(
    fold: SessionFold, numbers: Mapping[str, int], *, there: bool
) -> Iterator[tuple[str, list[Row]]]:
    """The rows that a fold gives, by table, those at positions of events apart. ``numbers`` of turns by their keys, as they are stored; ``there``: the
    session has an event."""
    yield "turns", [{**turn.flat, "digest": turn.digest} for turn in fold.turns]
    yield (
        "turn_records",
        [
            {"turn_no": numbers[turn.turn.key], "digest": turn.digest, "record": turn.body}
            for turn in fold.turns
            if turn.turn.key in numbers
        ],
    )
    for table, _, _ in _IN_TURN:
        rows = [
            {**row, "turn_no": numbers.get(turn.turn.key)}
            for turn in fold.turns
            for row in _rows_of(table, turn.calls, turn.tools, turn.parts)
        ]
        rows += [{**row, "turn_no": None} for row in _rows_of(table, fold.calls, fold.tools, fold.parts)]
        yield table, rows
    yield "session_facts", [fold.facts] if there else []
    found = [
        *((numbers.get(turn.turn.key), turn.findings) for turn in fold.turns),
        (None, fold.findings),
    ]
    yield (
        "findings",
        [
            {**group, "turn_no": turn_no}
            for turn_no, of_turn in found
            for group in grouped(fold.tenant, fold.session_id, of_turn)
        ],
    )


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
        revision_fault(named, row["turn_key"], row["revision"], revisions.get(row["turn_no"]))
        for row in turns
        if row["revision"] < 1 or revisions.get(row["turn_no"], row["revision"]) != row["revision"]
    ]


def revision_fault(named: Row, turn_key: str, turn: int, record: int | None) -> Fault:
    row = {**named, "turn_key": turn_key, "turn": turn, "record": record}
    return Fault("I4", "a turn and its record are not of one revision", row)


def row_place(row: Row) -> tuple[str, int, str, int | None, str | None]:
    """The identity of the event at whose position a row stands."""
    return row["producer"], row["epoch"], row["stream"], row["seq"], row["receipt_key"]


def point_place(event: Event) -> tuple[str, int, str, int | None, str | None]:
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
