"""The ingest transaction: everything of one round, in one transaction that begins with the fence (design 3, point 2; 3.1).

Order: fence, sessions and streams, events, stream state, what came again, gaps, projections, dead letters, marks, the audit rows. No
value passes an adapter of its own: rows are bytes of binary COPY.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import sql

from turnledger.contract.canonical import content_hash
from turnledger.fold import columns
from turnledger.store import fence
from turnledger.store.copying import Copies
from turnledger.store.named import query
from turnledger.store.write_binary import (
    EPOCH_MICROSECONDS,
    NULL,
    Refused,
    RowEncoder,
    bytea,
    copied,
    day,
    field_count,
    int4,
    int8,
    jsonb,
    length,
    text,
    timestamptz,
)
from turnledger.store.write_rows import (
    DeadLetter,
    GapRow,
    Repeat,
    Round,
    Share,
    StreamTouch,
    Unit,
)

Connection = psycopg.Connection[Any]

_SESSION = (("session_no", "int8"),)
_TURN = (*_SESSION, ("turn_no", "int4"))
_POSITION = (*_SESSION, ("stream_no", "int8"), ("seq", "int8"))

TURNS = RowEncoder((*_TURN, ("revision", "int4"), ("digest", "text")), columns.TURNS)
TURN_RECORDS = RowEncoder((*_TURN, ("revision", "int4"), ("digest", "text"), ("record", "bytea")), ())
MODEL_CALLS = RowEncoder(_TURN, columns.MODEL_CALLS)
TOOL_CALLS = RowEncoder(_TURN, columns.TOOL_CALLS)
USAGE_PARTS = RowEncoder(_TURN, columns.USAGE_PARTS)
FACTS = RowEncoder(_SESSION, columns.FACTS)
FINDINGS = RowEncoder(
    (*_TURN, ("source", "text")),
    (("check", "text"), ("severity", "text"), ("count", "int8"), ("rows", "jsonb")),
)
POINTS: dict[str, RowEncoder] = {
    table: RowEncoder(_POSITION, (*columns.POINT_COMMON, *own)) for table, own in columns.POINT_TABLES.items()
}

PROJECTED: dict[str, RowEncoder] = {
    "turns": TURNS,
    "turn_records": TURN_RECORDS,
    "model_calls": MODEL_CALLS,
    "tool_calls": TOOL_CALLS,
    "usage_parts": USAGE_PARTS,
    "session_facts": FACTS,
    "findings": FINDINGS,
    **POINTS,
}
"""Tables that the fold fills, in the order in which they are written."""

OF_A_TURN = ("turns", "turn_records", "model_calls", "tool_calls", "usage_parts", "findings")
OUTSIDE_TURNS = ("model_calls", "tool_calls", "usage_parts")

_EVENT_COLUMNS = (
    "batch_no",
    "day",
    "type",
    "stream_no",
    "seq",
    "kafka_offset",
    "occurred_at",
    "received_sha256",
    "raw",
)
event_fields = struct.Struct(">iqiqiqiqii").pack
"""The numbers and lengths of :func:`event_parts`: each value after its width, the instant counted from 2000, no hash."""
_event_fields_untimed = struct.Struct(">iqiqiqiii").pack

_INT4_OID = 23
_ARRAY = struct.Struct(">iiiii").pack
"""Dimensions, no nulls, the type of the elements, how many, the first index."""
_NO_INT4 = struct.pack(">iiii", 12, 0, 0, _INT4_OID)

EVENT_PARTS = 4
"""Parts of an event's row: what the transaction knows, the type, the numbers and lengths, the raw bytes. They are joined once, when
the row is sent: its bytes are copied a single time on the way."""


def event_parts(
    stream_no: int,
    seq: int,
    offset: int,
    at: int | None,
    type_field: bytes,
    raw: bytes,
    received: bytes | None,
) -> tuple[bytes, bytes, bytes, bytes]:
    """An accepted event. ``at`` in µs since 1970; ``type_field`` as ``write_binary.text`` gives it; ``received`` the hash of what
    came where ``raw`` is not that."""
    if received is not None or at is None:
        fields = _event_fields_untimed(8, stream_no, 8, seq, 8, offset, -1, -1, len(raw))
        if received is not None:
            time = NULL if at is None else timestamptz(at)
            fields = b"".join((fields[:36], time, bytea(received), length(len(raw))))
        return b"", type_field, fields, raw
    return (
        b"",
        type_field,
        event_fields(8, stream_no, 8, seq, 8, offset, 8, at - EPOCH_MICROSECONDS, -1, len(raw)),
        raw,
    )


def stream_row(
    stream_no: int,
    session_no: int,
    producer: str,
    epoch: int,
    stream: str,
    state: tuple[int, int, int, int, int],
) -> bytes:
    """``state``: (low, hi, holes, receipts, open_gaps)."""
    return b"".join(
        (
            field_count(10),
            int8(stream_no),
            int8(session_no),
            text(producer),
            int8(epoch),
            text(stream),
            *map(int8, state),
        )
    )


def receipt_row(stream_no: int, key_hash: bytes, ordinal: int) -> bytes:
    """Without its day, which only the transaction knows."""
    return int8(stream_no) + bytea(key_hash) + int8(ordinal)


def redaction_row(
    session_no: int, stream_no: int, seq: int, receipt_key: str | None, notes: Sequence[dict[str, Any]]
) -> bytes:
    """An event that is stored redacted. ``seq`` as in ``ledger.events``; ``notes``: {what, where, count}."""
    return b"".join(
        (
            field_count(5),
            int8(session_no),
            int8(stream_no),
            int8(seq),
            NULL if receipt_key is None or seq >= 0 else text(receipt_key),
            jsonb(notes),
        )
    )


class FenceLost(Exception):
    """Some partitions did not come through the fence, or were written by a foreign writer meanwhile. Nothing was done."""

    def __init__(self, partitions: set[int]) -> None:
        super().__init__(sorted(partitions))
        self.partitions = partitions


class DataRefused(Exception):
    """Postgres refuses a projection row. The transaction is rolled back: write again with ``careful``."""


def write(connection: Connection, round_: Round, served_by: fence.Backend, *, careful: bool = False) -> None:
    """Write a round and commit it. Sets the counts of its shares.

    Raises :class:`FenceLost`, :class:`DataRefused` (never with ``careful``, which bisects under savepoints and dead-letters what is
    bad), or what psycopg raises: then nothing was done, or, where the connection broke while committing, it is not known.
    """
    with connection.transaction():
        passed = pass_fence(connection, round_, served_by)
        write_in(connection, round_, passed, careful=careful)


def write_in(
    connection: Connection, round_: Round, passed: dict[int, fence.Passed], *, careful: bool = False
) -> None:
    """The same inside a transaction that is already through the fence."""
    round_.day = today = day_of(round_, next(iter(passed.values())).day)
    for share in round_.shares:
        share.duplicates = share.unverified = share.conflicts = 0
        share.batch_no = passed[share.step.partition].batch_no
    marks = list(round_.marks)
    if round_.sessions:
        names = ("numbers", "tenants", "sessions", "topics", "partitions")
        connection.execute(
            query("write/sessions"),
            dict(zip(names, map(list, zip(*round_.sessions, strict=True)), strict=True)),
        )
    copies = Copies()
    copies.add(
        "ledger.streams",
        (
            "stream_no",
            "session_no",
            "producer",
            "epoch",
            "stream",
            "low",
            "hi",
            "holes",
            "receipts",
            "open_gaps",
        ),
        round_.streams,
    )
    _events(copies, round_.shares, today)
    if round_.receipts:
        head = field_count(4) + day(today)
        copies.add("ledger.receipts", ("day", "stream_no", "key_hash", "ordinal"), round_.receipts, head)
    copies.add(
        "ledger.key_mismatches",
        ("session_no", "topic", "partition", "first_offset", "last_offset", "count", "key"),
        round_.mismatches,
    )
    copies.add(
        "ledger.redactions",
        ("session_no", "stream_no", "seq", "receipt_key", "redactions"),
        round_.redactions,
    )
    copies.write(connection)
    if round_.extended and round_.known_day != today:
        round_.touched += [
            StreamTouch(number, first, last, days) for number, days, first, last in round_.extended
        ]
        round_.extended.clear()
    _stream_state(connection, round_.touched, today)
    marks += _repeats(connection, round_)
    _gaps(connection, round_)
    round_.refused = round_.unmade + _projections(connection, round_.slot, round_.units, careful)
    for unit, detail in round_.refused:
        connection.execute(
            query("write/refused"),
            {
                "topic": round_.topic,
                "partition": unit.partition,
                "offset": unit.offset,
                "session_no": unit.session_no,
                "detail": detail,
                "tenant": unit.tenant,
                "session_id": unit.session_id,
            },
        )
    _dead_letters(copies, round_)
    copies.add(
        "ledger.marks",
        ("session_no", "turns", "slot"),
        mark_rows(marks, round_.units, round_.slot),
    )
    if round_.requeued_by is None and not round_.accounted:
        _audit(copies, round_)
    copies.write(connection)
    _mark_named(connection, round_)
    if round_.disturb:
        connection.execute(
            "update ledger.ingest_progress p set disturbed = disturbed + 1 from unnest(%s::text[], %s::int4[]) u (topic, partition) "
            "where p.topic = u.topic and p.partition = u.partition",
            ([topic for topic, _ in round_.disturb], [partition for _, partition in round_.disturb]),
        )
    if round_.stops:
        fence.stop(connection, round_.topic, round_.stops)
    if round_.requeued_by is not None:
        _account(connection, round_)


def mark_rows(sessions: Iterable[int], units: Iterable[Unit], slot: str) -> list[bytes]:
    """A mark a session with the numbers of its turns that this round wrote or took back; null where it may be any of them.

    ``slot``: the schema in which the turns have these numbers.
    """
    turns: dict[int, set[int] | None] = {number: set() for number in sessions}
    for unit in units:
        moved = turns.setdefault(unit.session_no, set())
        if unit.wipe:
            turns[unit.session_no] = None
        elif moved is not None and unit.turn is not None:
            moved.add(unit.turn[1])
    where = text(slot)
    return [
        field_count(3) + int8(number) + (NULL if moved is None else int4_array(sorted(moved))) + where
        for number, moved in turns.items()
    ]


def int4_array(values: Sequence[int]) -> bytes:
    """An ``int4[]`` of one dimension in binary form."""
    if not values:
        return _NO_INT4
    body = _ARRAY(1, 0, _INT4_OID, len(values), 1) + b"".join(map(int4, values))
    return length(len(body)) + body


def day_of(round_: Round, today: date) -> date:
    """The day of ingest: the transaction's, but none before a day that one of the streams has reached. A clock may be set back, and a
    transaction that began before midnight may wait for one that began after it; a stream's last day alone is open upwards (design 3.2)."""
    reached = [touch.days.day for touch in round_.touched if touch.days.day is not None]
    if round_.extended and round_.known_day is not None:
        reached.append(round_.known_day)
    return max([today, *reached])


def pass_fence(connection: Connection, round_: Round, served_by: fence.Backend) -> dict[int, fence.Passed]:
    """Move all partitions of the round, or raise :class:`FenceLost`. The first statement of a data transaction."""
    steps = [share.step for share in round_.shares]
    passed = fence.apply(connection, round_.topic, steps, served_by)
    lost = {
        s.partition
        for s in steps
        if s.partition not in passed or passed[s.partition].disturbed != s.disturbed
    }
    if lost:
        raise FenceLost(lost)
    return passed


def day_table(day: date) -> str:
    """The partition of ``ledger.events`` of a day, with its schema."""
    return f"ledger.events_{day:%Y%m%d}"


def _events(copies: Copies, shares: Sequence[Share], today: date) -> None:
    parts: list[bytes] = []
    for share in shares:
        if share.rows and share.batch_no is not None:
            known = field_count(len(_EVENT_COLUMNS)) + int8(share.batch_no) + day(today)
            share.rows[::EVENT_PARTS] = [known] * (len(share.rows) // EVENT_PARTS)
            parts += share.rows
    if parts:
        # Straight into the day's partition: routing costs and gains nothing.
        copies.add_bodies(day_table(today), _EVENT_COLUMNS, parts)


def _stream_state(connection: Connection, touched: Sequence[StreamTouch], today: date) -> None:
    ranges: list[tuple[int, date, int, int]] = []
    for touch in touched:
        if touch.first is None or touch.last is None:
            continue
        days = touch.days
        if days.day == today:
            if touch.first < days.seq_from:
                ranges.append((touch.stream_no, today, touch.first, touch.last))
            continue
        if days.day is not None:
            # It is not the last day any more: from now on its end counts.
            ranges.append((touch.stream_no, days.day, days.seq_from, days.seq_to))
        ranges.append((touch.stream_no, today, touch.first, touch.last))
    if ranges:
        connection.execute(
            query("write/stream_days"),
            {
                "streams": [row[0] for row in ranges],
                "days": [row[1] for row in ranges],
                "froms": [row[2] for row in ranges],
                "tos": [row[3] for row in ranges],
            },
        )
    rows = [(touch.stream_no, *touch.row) for touch in touched if touch.row is not None]
    if rows:
        streams, lows, his, holes, receipts, open_gaps = map(list, zip(*rows, strict=True))
        connection.execute(
            query("write/streams"),
            {
                "streams": streams,
                "lows": lows,
                "his": his,
                "holes": holes,
                "receipts": receipts,
                "open_gaps": open_gaps,
            },
        )
    chunks = [(touch.stream_no, chunk, bits) for touch in touched for chunk, bits in touch.chunks]
    if chunks:
        streams, numbers, bits = map(list, zip(*chunks, strict=True))
        connection.execute(query("write/chunks"), {"streams": streams, "chunks": numbers, "bits": bits})
    gone = [(touch.stream_no, chunk) for touch in touched for chunk in touch.chunks_gone]
    if gone:
        streams, numbers = map(list, zip(*gone, strict=True))
        connection.execute(query("write/chunks_gone"), {"streams": streams, "chunks": numbers})


def move_days(touched: Iterable[StreamTouch], today: date) -> None:
    """After the commit: where the numbers of the touched streams lie now."""
    for touch in touched:
        if touch.first is None or touch.last is None:
            continue
        days = touch.days
        if days.day == today:
            days.seq_from = min(days.seq_from, touch.first)
            days.seq_to = max(days.seq_to, touch.last)
        else:
            days.day, days.seq_from, days.seq_to = today, touch.first, touch.last


def _repeats(connection: Connection, round_: Round) -> list[int]:
    """Tell duplicates from conflicts (contract 3): the stored bytes are compared, and hashed only when they differ.

    Returns the sessions that became disputed.
    """
    repeats = [(share, repeat) for share in round_.shares for repeat in share.repeats]
    if not repeats:
        return []
    numbered = [pair for pair in repeats if pair[1].key_hash is None]
    keyed = [pair for pair in repeats if pair[1].key_hash is not None]
    disputed: list[int] = []
    conflicts: dict[tuple[int, int, bytes], dict[str, Any]] = {}
    for pairs, name in ((numbered, "write/repeats"), (keyed, "write/repeated_receipts")):
        if not pairs:
            continue
        wanted: dict[str, Any] = {
            "streams": [repeat.stream_no for _, repeat in pairs],
            "seqs": [repeat.seq for _, repeat in pairs],
        }
        if name.endswith("receipts"):
            wanted["hashes"] = [repeat.key_hash for _, repeat in pairs]
        with connection.cursor(binary=True) as cursor:
            cursor.execute(query(name), wanted)
            stored = {row[0]: row[1:] for row in cursor}
        for index, (share, repeat) in enumerate(pairs, 1):
            found = stored.get(index)
            if found is None:
                # The first has left retention: nothing to compare with.
                share.duplicates += 1
                share.unverified += 1
                continue
            raw, received, offset, batch_no = found
            came = repeat.received_sha256
            if received is None and came is None and raw == repeat.raw:
                share.duplicates += 1
                continue
            kept = received if received is not None else content_hash(raw)
            lost = came if came is not None else content_hash(repeat.raw)
            if kept == lost:
                share.duplicates += 1
                continue
            share.conflicts += 1
            disputed.append(repeat.session_no)
            _conflict(conflicts, round_.topic, share, repeat, kept, lost, offset, batch_no)
    if conflicts:
        _store_conflicts(connection, list(conflicts.values()))
    return disputed


def _conflict(
    conflicts: dict[tuple[int, int, bytes], dict[str, Any]],
    topic: str,
    share: Share,
    repeat: Repeat,
    kept: bytes,
    lost: bytes,
    offset: int,
    batch_no: int,
) -> None:
    known = conflicts.get((repeat.stream_no, repeat.seq, lost))
    if known is not None:
        known["count"] += 1
        known["last_partition"], known["last_offset"] = share.step.partition, repeat.offset
        return
    conflicts[repeat.stream_no, repeat.seq, lost] = {
        "session_no": repeat.session_no,
        "stream_no": repeat.stream_no,
        "seq": repeat.seq,
        "receipt_key": repeat.receipt_key,
        "kept_sha256": kept,
        "lost_sha256": lost,
        "count": 1,
        "topic": topic,
        "kept_batch": batch_no,
        "kept_offset": offset,
        "first_partition": share.step.partition,
        "first_offset": repeat.offset,
        "last_partition": share.step.partition,
        "last_offset": repeat.offset,
    }


def _store_conflicts(connection: Connection, conflicts: list[dict[str, Any]]) -> None:
    batches = sorted({conflict["kept_batch"] for conflict in conflicts})
    partitions = dict(connection.execute(query("write/batch_partitions"), {"batches": batches}).fetchall())
    for conflict in conflicts:
        # The first may stand in this very round, whose audit rows come last: then it is of the same partition.
        conflict["kept_partition"] = partitions.get(conflict["kept_batch"], conflict["first_partition"])
        connection.execute(query("write/conflicts"), conflict)


def _gaps(connection: Connection, round_: Round) -> None:
    gaps = round_.gaps
    if gaps.opened:
        connection.execute(query("write/gaps_opened"), _gap_arrays(gaps.opened))
    if gaps.folded:
        streams, sources = map(list, zip(*gaps.folded, strict=True))
        connection.execute(query("write/gaps_folded"), {"streams": streams, "sources": sources})
    if gaps.changed:
        connection.execute(query("write/gaps_changed"), _gap_arrays(gaps.changed))


def _gap_arrays(rows: Sequence[GapRow]) -> dict[str, Any]:
    return {
        "streams": [row.stream_no for row in rows],
        "sources": [row.source for row in rows],
        "froms": [row.from_seq for row in rows],
        "tos": [row.to_seq for row in rows],
        "states": [row.state for row in rows],
        "ranges": [row.ranges for row in rows],
        "missing": [row.missing for row in rows],
    }


def _dead_letters(copies: Copies, round_: Round) -> None:
    bodies = []
    for share in round_.shares:
        if share.dead:
            head = b"".join(
                (
                    field_count(13),
                    NULL if share.batch_no is None else int8(share.batch_no),
                    text(round_.topic),
                    int4(share.step.partition),
                )
            )
            bodies.append(copied(head, [_dead_row(letter) for letter in share.dead]))
    if bodies:
        copies.add_bodies(
            "ledger.dead_letters",
            (
                "batch_no", "topic", "partition", "kafka_offset", "reason", "field", "detail", "tenant", "session_id", "raw",
                "raw_bytes", "key", "received_sha256",
            ),
            bodies,
        )  # fmt: skip


def _mark_named(connection: Connection, round_: Round) -> None:
    """A mark for each session that a dead letter names."""
    named = {
        (letter.tenant, letter.session_id)
        for share in round_.shares
        for letter in share.dead
        if letter.tenant is not None and letter.session_id is not None
    }
    if named:
        tenants, sessions = map(list, zip(*sorted(named), strict=True))
        connection.execute(query("write/mark_named"), {"tenants": tenants, "sessions": sessions})


def _dead_row(letter: DeadLetter) -> bytes:
    return b"".join(
        (
            int8(letter.offset),
            text(letter.reason),
            NULL if letter.field is None else text(letter.field),
            text(letter.detail),
            NULL if letter.tenant is None else text(letter.tenant),
            NULL if letter.session_id is None else text(letter.session_id),
            NULL if letter.raw is None else bytea(letter.raw),
            NULL if letter.raw_bytes is None else int8(letter.raw_bytes),
            NULL if letter.key is None else bytea(letter.key),
            NULL if letter.received_sha256 is None else bytea(letter.received_sha256),
        )
    )


def _projections(
    connection: Connection, slot: str, units: Sequence[Unit], careful: bool
) -> list[tuple[Unit, str]]:
    if not units:
        return []
    if not careful:
        try:
            _store_units(connection, slot, units)
        except REFUSALS as error:
            raise DataRefused(_refusal(error)) from error
        return []
    return _bisect(connection, slot, units)


def store_projection(connection: Connection, slot: str, units: Sequence[Unit]) -> list[tuple[Unit, str]]:
    """Write units into a generation, in the caller's transaction; those that Postgres refuses, each with why (contract 15)."""
    return _bisect(connection, slot, units) if units else []


REFUSALS = (
    psycopg.DataError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.NumericValueOutOfRange,
    Refused,
)
"""What one row's content can cause; everything else is an outage or a bug."""


def _bisect(connection: Connection, slot: str, units: Sequence[Unit]) -> list[tuple[Unit, str]]:
    """Store what Postgres takes, under savepoints; what it refuses becomes dead letters (contract 15, ``refused_by_database``)."""
    try:
        with connection.transaction():
            _store_units(connection, slot, units)
        return []
    except REFUSALS as error:
        if len(units) == 1:
            unit = units[0]
            what = "session-level rows" if unit.turn is None else f"turn_no {unit.turn[1]}"
            return [
                (
                    unit,
                    f"the projection of {what} was refused ({_refusal(error)}); its events are in the ledger",
                )
            ]
    half = len(units) // 2
    return _bisect(connection, slot, units[:half]) + _bisect(connection, slot, units[half:])


def _refusal(error: Exception) -> str:
    """Why a row was refused, without what it holds: messages of Postgres quote values."""
    if isinstance(error, psycopg.Error):
        where = f" in {error.diag.table_name}" if error.diag.table_name else ""
        return f"SQLSTATE {error.sqlstate}{where}"
    return str(error)


def _store_units(connection: Connection, slot: str, units: Sequence[Unit]) -> None:
    _delete(connection, slot, units)
    rows: dict[str, list[bytes]] = defaultdict(list)
    for unit in units:
        for table, row in unit.rows:
            rows[table].append(row)
    copies = Copies()
    for table, encoder in PROJECTED.items():
        copies.add(f"{slot}.{table}", encoder.names, rows.get(table, ()))
    copies.write(connection)


def _delete(connection: Connection, slot: str, units: Sequence[Unit]) -> None:
    """Delete-then-COPY: an upsert would leave rows that a refold took back (design 3, point 8)."""
    wiped = [unit.session_no for unit in units if unit.wipe]
    if wiped:
        for table in PROJECTED:
            extra = " and source = 'fold'" if table == "findings" else ""
            _delete_from(connection, slot, table, f"session_no = any(%s){extra}", (wiped,))
    turns = [unit.turn for unit in units if unit.delete_turn and unit.turn is not None]
    if turns:
        sessions, numbers = map(list, zip(*turns, strict=True))
        for table in OF_A_TURN:
            extra = " and source = 'fold'" if table == "findings" else ""
            _delete_from(
                connection, slot, table,
                f"(session_no, turn_no) in (select * from unnest(%s::int8[], %s::int4[])){extra}", (sessions, numbers),
            )  # fmt: skip
    loose = [unit.session_no for unit in units if unit.delete_loose]
    if loose:
        for table in OUTSIDE_TURNS:
            _delete_from(connection, slot, table, "session_no = any(%s) and turn_no is null", (loose,))
    findings = [unit.session_no for unit in units if unit.delete_findings]
    if findings:
        _delete_from(
            connection,
            slot,
            "findings",
            "session_no = any(%s) and turn_no is null and source = 'fold'",
            (findings,),
        )
    facts = [unit.session_no for unit in units if unit.delete_facts]
    if facts:
        _delete_from(connection, slot, "session_facts", "session_no = any(%s)", (facts,))
    points: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for unit in units:
        for table, stream_no, seq in unit.delete_points:
            points[table].append((unit.session_no, stream_no, seq))
    for table, positions in points.items():
        _delete_from(
            connection, slot, table,
            "(session_no, stream_no, seq) in (select * from unnest(%s::int8[], %s::int8[], %s::int8[]))",
            tuple(map(list, zip(*positions, strict=True))),
        )  # fmt: skip
    items = [(unit.session_no, *item) for unit in units for item in unit.delete_items]
    if items:
        _delete_from(
            connection, slot, "model_items",
            "(session_no, stream_no, seq, item_type) in (select * from unnest(%s::int8[], %s::int8[], %s::int8[], %s::text[]))",
            tuple(map(list, zip(*items, strict=True))),
        )  # fmt: skip


def _delete_from(connection: Connection, slot: str, table: str, where: str, values: tuple[Any, ...]) -> None:
    connection.execute(_delete_statement(slot, table, where), values)


@lru_cache(maxsize=256)
def _delete_statement(slot: str, table: str, where: str) -> bytes:
    return sql.SQL("delete from {} where " + where).format(sql.Identifier(slot, table)).as_bytes(None)


def _audit(copies: Copies, round_: Round) -> None:
    """One row a partition: read = accepted + duplicates + conflicts + dead. A projection row that Postgres refused is no record: its
    events count as accepted."""
    rows = []
    for share in round_.shares:
        if share.batch_no is None:
            continue
        step = share.step
        rows.append(
            b"".join(
                (
                    field_count(13), int8(share.batch_no), text(round_.topic), int4(step.partition), int8(step.epoch),
                    int8(step.from_offset), int8(step.to_offset), int4(share.records), int8(share.holes), int4(share.accepted),
                    int4(share.duplicates), int4(share.unverified), int4(share.conflicts), int4(len(share.dead)),
                )
            )
        )  # fmt: skip
    copies.add(
        "ledger.ingest_batches",
        (
            "batch_no", "topic", "partition", "epoch", "from_offset", "to_offset", "records", "holes", "accepted", "duplicates",
            "unverified", "conflicts", "dead",
        ),
        rows,
    )  # fmt: skip


def _account(connection: Connection, round_: Round) -> None:
    """One row a partition of what became of letters that are dead no more: a share is one letter."""
    sums: dict[int, list[int]] = {}
    partitions: dict[int, int] = {}
    for share in round_.shares:
        assert share.batch_no is not None
        partitions[share.batch_no] = share.step.partition
        row = sums.setdefault(share.batch_no, [0, 0, 0, 0, 0])
        for at, count in enumerate(
            (share.records, share.accepted, share.duplicates, share.unverified, share.conflicts)
        ):
            row[at] += count
    if not sums:
        return
    letters, accepted, duplicates, unverified, conflicts = map(list, zip(*sums.values(), strict=True))
    connection.execute(
        query("dead/account"),
        {
            "batches": list(sums),
            "topic": round_.topic,
            "partitions": list(partitions.values()),
            "letters": letters,
            "accepted": accepted,
            "duplicates": duplicates,
            "unverified": unverified,
            "conflicts": conflicts,
            "by": round_.requeued_by,
        },
    )
