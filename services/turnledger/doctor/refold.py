"""Invariants of one session: its events against what was seen (I1), its projection against a fresh fold (I4), its gaps (I7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from typing import Any

import psycopg
from psycopg import sql

from turnledger.contract.event import Event
from turnledger.doctor.faults import Fault
from turnledger.doctor.rows import Row, compare, load
from turnledger.fold import columns
from turnledger.fold.document import contribution_row
from turnledger.fold.findings import grouped
from turnledger.fold.model import SessionFold, StreamKey
from turnledger.fold.seen import StreamSeen
from turnledger.store.named import query
from turnledger.store.read import SessionRef, StoredEvent

MAX_OPEN_ROWS = 1000
"""Open gaps of one stream beyond this are one row ``fragmented`` (contract 4)."""

POINT_KINDS: dict[str, tuple[columns.Column, ...]] = {
    **{table: (*columns.POINT_COMMON, *own) for table, (_, own) in columns.POINTS.items()},
    "exec_events": (*columns.POINT_COMMON, *columns.EXEC_EVENTS),
}
TWICE = "an event is in the ledger twice"
_TURN = ("session_no", "turn_no")
_POSITION = ("session_no", "stream_no", "seq")
_FINDING: tuple[columns.Column, ...] = (("severity", "text"), ("count", "int8"), ("rows", "jsonb"))
_RECORD: tuple[columns.Column, ...] = (("digest", "text"), ("record", "bytea"))
_IN_TURN: tuple[tuple[str, str, tuple[columns.Column, ...]], ...] = (
    ("model_calls", "call_key", columns.MODEL_CALLS),
    ("tool_calls", "tool_key", columns.TOOL_CALLS),
    ("usage_parts", "part_key", columns.USAGE_PARTS),
)


@dataclass(slots=True)
class StoredStream:
    """One stream as the ledger remembers it."""

    stream_no: int
    key: StreamKey
    hi: int
    holes: int
    receipts: int
    chunks: dict[int, bytes] = field(default_factory=dict)
    days: dict[date, tuple[int, int]] = field(default_factory=dict)
    known: dict[int, tuple[bytes, date]] = field(default_factory=dict)
    """Receipts: (hash of the key, day) by ordinal."""
    gaps: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    """Live rows: (from, to, state, ranges, missing)."""


def load_streams(
    connection: psycopg.Connection[Any], sessions: Sequence[int]
) -> dict[int, list[StoredStream]]:
    """The streams of some sessions, with everything that is kept about them."""
    by_session: dict[int, list[StoredStream]] = defaultdict(list)
    by_number: dict[int, StoredStream] = {}
    with connection.cursor(binary=True) as cursor:
        for session_no, stream_no, producer, epoch, stream, hi, holes, receipts in cursor.execute(
            query("verify/streams"), {"sessions": list(sessions)}
        ):
            one = StoredStream(stream_no, (producer, epoch, stream), hi, holes, receipts)
            by_session[session_no].append(one)
            by_number[stream_no] = one
        numbers = {"streams": list(by_number)}
        for stream_no, chunk, bits in cursor.execute(query("verify/chunks"), numbers):
            by_number[stream_no].chunks[chunk] = bits
        for stream_no, day, first, last in cursor.execute(query("verify/days"), numbers):
            by_number[stream_no].days[day] = (first, last)
        for stream_no, key_hash, ordinal, day in cursor.execute(query("verify/receipts"), numbers):
            by_number[stream_no].known[ordinal] = (key_hash, day)
        for stream_no, first, last, state, ranges, missing in cursor.execute(query("verify/gaps"), numbers):
            by_number[stream_no].gaps.append((first, last, state, ranges, missing))
    return by_session


# --- I1 ---------------------------------------------------------------------------------------------------------------------------


def events_faults(
    ref: SessionRef, streams: Sequence[StoredStream], events: Iterable[StoredEvent]
) -> list[Fault]:
    """I1 of one session: each position once, under its own names, counted as seen, and found again where it would be looked for."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    faults: list[Fault] = []
    by_stream: dict[int, dict[int, date]] = defaultdict(dict)
    keys = {one.stream_no: one.key for one in streams}
    receipt_keys: dict[tuple[int, int], str] = {}
    for event, stream_no, seq, day in events:
        place = {**named, **_stream(keys[stream_no]), "seq": seq}
        if seq in by_stream[stream_no]:
            faults.append(Fault("I1", TWICE, place))
        by_stream[stream_no][seq] = day
        if seq < 0 and event.receipt_key is not None:
            receipt_keys[stream_no, seq] = event.receipt_key
        if _names(event) != (ref.tenant, ref.session_id, keys[stream_no], seq if seq >= 0 else None):
            faults.append(Fault("I1", "an event stands at a position that its bytes do not name", place))
    for one in streams:
        place = {**named, **_stream(one.key)}
        held = by_stream[one.stream_no]
        faults += _seen_faults(one, place, [seq for seq in held if seq >= 0])
        faults += _day_faults(one, place, held)
        faults += _receipt_faults(one, place, held, receipt_keys)
    return faults


def _names(event: Event) -> tuple[str, str, StreamKey, int | None]:
    return event.tenant, event.session_id, (event.producer, event.epoch, event.stream), event.seq


def _seen_faults(one: StoredStream, place: Row, numbers: Sequence[int]) -> list[Fault]:
    # A stream that is merely extended is written late: the greatest number in the ledger counts as well (design 3.2).
    hi = max([one.hi, *numbers])
    seen = StreamSeen(hi, one.chunks)
    unseen = next((seq for seq in sorted(numbers) if seq not in seen), None)
    if unseen is not None:
        return [
            Fault(
                "I1",
                "an event is in the ledger that its stream does not count as seen",
                {**place, "seq": unseen},
            )
        ]
    counted = hi + 1 - seen.missing
    if counted != len(numbers):
        lacking = _lacking(seen, sorted(numbers))
        row = {**place, "seq": lacking, "seen": counted, "events": len(numbers)}
        return [Fault("I1", "a number counts as seen whose event is not in the ledger", row)]
    if one.holes != seen.missing:
        row = {**place, "holes": one.holes, "missing": seen.missing}
        return [Fault("I1", "a stream's count of holes is not that of its chunks", row)]
    return []


def _lacking(seen: StreamSeen, numbers: Sequence[int]) -> int | None:
    """The least number that counts as seen and is not among ``numbers`` (ascending)."""
    after_hole = {first: last + 1 for first, last in seen.holes()}
    at = 0
    for seq in numbers:
        at = after_hole.get(at, at)
        if at != seq:
            return at
        at = seq + 1
    at = after_hole.get(at, at)
    return at if at <= seen.hi else None


def _day_faults(one: StoredStream, place: Row, held: Mapping[int, date]) -> list[Fault]:
    """A number whose day is not written down would not be found when it comes again."""
    latest = max(one.days, default=None)
    for seq, day in held.items():
        if seq < 0:
            continue
        known = one.days.get(day)
        if known is None or seq < known[0] or (seq > known[1] and day != latest):
            return [
                Fault(
                    "I1", "a number's day is not written down", {**place, "seq": seq, "day": day.isoformat()}
                )
            ]
    return []


def _receipt_faults(
    one: StoredStream, place: Row, held: Mapping[int, date], receipt_keys: Mapping[tuple[int, int], str]
) -> list[Fault]:
    stored = {-1 - ordinal: known for ordinal, known in one.known.items()}
    computed = {
        seq: (sha256(receipt_keys[one.stream_no, seq].encode()).digest()[:16], day)
        for seq, day in held.items()
        if (one.stream_no, seq) in receipt_keys
    }
    for seq in sorted(stored.keys() | computed.keys(), reverse=True):
        if stored.get(seq) != computed.get(seq):
            row = {**place, "ordinal": -1 - seq, "receipt_key": receipt_keys.get((one.stream_no, seq))}
            return [Fault("I1", "a receipt and the event that it stands for do not agree", row)]
    return []


# --- I4 ---------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoredProjection:
    """What the projection holds of some sessions: rows by table and session."""

    rows: dict[tuple[str, int], list[Row]]

    def of(self, table: str, session_no: int) -> list[Row]:
        return self.rows.get((table, session_no), [])


def load_projection(
    connection: psycopg.Connection[Any], slot: str, sessions: Sequence[int]
) -> StoredProjection:
    """Everything that ingest wrote of some sessions."""
    wanted: dict[str, tuple[str, ...]] = {
        "turns": (*_TURN, *_names_of(columns.TURNS), "revision", "digest"),
        "turn_records": (*_TURN, "revision", "digest", "record"),
        **{table: (*_TURN, *_names_of(listed)) for table, _, listed in _IN_TURN},
        "session_facts": ("session_no", *_names_of(columns.FACTS)),
        "findings": (*_TURN, "check", *_names_of(_FINDING)),
        **{table: (*_POSITION, *_names_of(listed)) for table, listed in POINT_KINDS.items()},
    }
    rows: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for table, names in wanted.items():
        where = sql.SQL("source = 'fold'") if table == "findings" else None
        for row in load(connection, slot, table, names, sessions, where):
            rows[table, row["session_no"]].append(row)
    return StoredProjection(rows)


def projection_faults(
    ref: SessionRef, fold: SessionFold, events: Sequence[StoredEvent], stored: StoredProjection
) -> list[Fault]:
    """I4 of one session: records byte for byte, rows column by column."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    number = ref.session_no
    turns = stored.of("turns", number)
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
        stored.of("turn_records", number),
    )
    faults += _revision_faults(named, turns, stored.of("turn_records", number))
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
            lambda row, key=key: row[key],  # type: ignore[misc]
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
        faults += compare(
            "I4",
            table,
            named,
            listed,
            lambda row: (row["stream_no"], row["seq"]),
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


def gap_faults(ref: SessionRef, fold: SessionFold, streams: Sequence[StoredStream]) -> list[Fault]:
    """I7 of one session: the live rows of ``ledger.gaps`` are what is missing, in its state."""
    named = {"tenant": ref.tenant, "session_id": ref.session_id}
    runs: dict[StreamKey, list[tuple[int, int, str]]] = defaultdict(list)
    for gap in fold.gaps:
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


def _names_of(listed: Sequence[columns.Column]) -> tuple[str, ...]:
    return tuple(name for name, _ in listed)
