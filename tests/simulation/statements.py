"""The statements of the ingest handler over the tables in memory: one function for each file of ``store/sql`` that it uses.

Each says in Python what its SQL says; ``tests/integration/test_simulated_statements.py`` asks Postgres the same questions and compares the answers.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import orjson
import psycopg

from tests.simulation.tables import Row, Server, Table, Transaction
from turnledger.fold import columns
from turnledger.fold.version import FOLD_VERSION
from turnledger.rollup.rows import HOUR_PARTS, ROLLUPS
from turnledger.store.named import query
from turnledger.store.write import PROJECTED
from turnledger.store.write_binary import SIGNATURE

SLOT = "projection_a"
Parameters = Mapping[str, Any]
Result = list[tuple[Any, ...]]


class Context:
    """What a statement may use beside its parameters."""

    def __init__(self, server: Server, transaction: Transaction, wait: Callable[[Any], None]) -> None:
        self.server = server
        self.transaction = transaction
        self.wait = wait

    def try_lock(self, name: str, number: int) -> bool:
        """An advisory lock until the transaction ends; False where another one has it."""
        lock = self.server.locks[name, number]
        if lock.holder is None:
            lock.holder = self.transaction
            self.transaction.locks.append(lock)
        return lock.holder is self.transaction

    def lock(self, topic: str, partition: int) -> None:
        self.server.lock(self.transaction, (topic, partition), self.wait)


Statement = Callable[[Context, Parameters], Result]
STATEMENTS: dict[str, Statement] = {}


def statement(name: str) -> Callable[[Statement], Statement]:
    def keep(function: Statement) -> Statement:
        STATEMENTS[name] = function
        return function

    return keep


# --- tables -----------------------------------------------------------------------------------------------------------------------

_INT8 = {"session_no", "stream_no", "seq"}
_LEADING = {
    **dict.fromkeys(_INT8, "int8"),
    "turn_no": "int4",
    "revision": "int4",
    "digest": "text",
    "record": "bytea",
    "source": "text",
    "tenant": "text",
}
_LEDGER: dict[str, dict[str, str]] = {
    "streams": {
        "stream_no": "int8", "session_no": "int8", "producer": "text", "epoch": "int8", "stream": "text", "low": "int8", "hi": "int8",
        "holes": "int8", "receipts": "int8", "open_gaps": "int8",
    },
    "events": {
        "batch_no": "int8", "day": "date", "type": "text", "stream_no": "int8", "seq": "int8", "kafka_offset": "int8",
        "occurred_at": "ts", "received_sha256": "bytea", "raw": "bytea",
    },
    "receipts": {"day": "date", "stream_no": "int8", "key_hash": "bytea", "ordinal": "int8"},
    "key_mismatches": {
        "session_no": "int8", "topic": "text", "partition": "int4", "first_offset": "int8", "last_offset": "int8", "count": "int8",
        "key": "bytea",
    },
    "dead_letters": {
        "batch_no": "int8", "topic": "text", "partition": "int4", "kafka_offset": "int8", "reason": "text", "field": "text",
        "detail": "text", "tenant": "text", "session_id": "text", "raw": "bytea", "raw_bytes": "int8", "key": "bytea",
        "received_sha256": "bytea",
    },
    "redactions": {
        "session_no": "int8", "stream_no": "int8", "seq": "int8", "receipt_key": "text", "redactions": "jsonb",
    },
    "marks": {"session_no": "int8", "turns": "int4[]", "slot": "text"},
    "ingest_batches": {
        "batch_no": "int8", "topic": "text", "partition": "int4", "epoch": "int8", "from_offset": "int8", "to_offset": "int8",
        "records": "int4", "holes": "int8", "accepted": "int4", "duplicates": "int4", "unverified": "int4", "conflicts": "int4",
        "dead": "int4",
    },
}  # fmt: skip
"""Columns that are written by COPY, and their kinds."""

_OWN: dict[str, tuple[columns.Column, ...]] = {
    "turns": columns.TURNS,
    "model_calls": columns.MODEL_CALLS,
    "tool_calls": columns.TOOL_CALLS,
    "usage_parts": columns.USAGE_PARTS,
    "session_facts": columns.FACTS,
    "findings": (("check", "text"), ("severity", "text"), ("count", "int8"), ("rows", "jsonb")),
    **{table: (*columns.POINT_COMMON, *own) for table, own in columns.POINT_TABLES.items()},
}
KINDS: dict[str, dict[str, str]] = {
    table: {
        **{name: _LEADING[name] for name in encoder.names if name in _LEADING},
        **dict(_OWN.get(table, ())),
    }
    for table, encoder in PROJECTED.items()
}
"""Kinds of the columns of projected tables."""


def tables() -> list[Table]:
    """The tables that matter, empty."""
    ledger = [
        Table("ingest_progress", ("topic", "partition")),
        Table("ingest_batches", ("topic", "partition", "from_offset"), ("topic", "partition")),
        Table("sessions", ("session_id", "tenant"), ("session_no",)),
        Table("streams", ("session_no", "producer", "epoch", "stream"), ("session_no",)),
        Table("stream_chunks", ("stream_no", "chunk"), ("stream_no",)),
        Table("stream_days", ("stream_no", "day"), ("stream_no",)),
        Table("receipts", ("stream_no", "key_hash"), ("stream_no",)),
        Table("events", ("day", "stream_no", "seq"), ("stream_no",)),
        Table("gaps", ("gap_no",), ("stream_no",)),
        Table("conflicts", ("stream_no", "seq", "lost_sha256"), ("stream_no",)),
        Table("dead_letters", ("topic", "partition", "kafka_offset")),
        Table("key_mismatches", ("serial",)),
        Table("partition_stops", ("topic", "partition", "at_offset")),
        Table("redactions", ("stream_no", "seq"), ("session_no",)),
        Table("marks", ("id",), ("session_no",)),
        Table("hour_parts", ("serial",), ("session_no",)),
        Table("hour_marks", ("id",)),
        Table("usage_hourly", ("tenant", "hour", "provider", "model")),
        *(Table(name, ("serial",), ("session_no",)) for name in ROLLUPS_SET),
    ]
    natural = {
        "turns": ("session_no", "turn_no"),
        "turn_records": ("session_no", "turn_no"),
        "session_facts": ("session_no",),
    }
    return [*ledger, *(Table(name, natural.get(name, ("serial",)), ("session_no",)) for name in PROJECTED)]


ROLLUPS_SET = tuple(f"rollup_{name}" for name in ROLLUPS)
assert HOUR_PARTS.names[0] == "session_no"

_SERIAL = {name for name in PROJECTED if name not in ("turns", "turn_records", "session_facts")} | {
    "key_mismatches"
}

# --- COPY -------------------------------------------------------------------------------------------------------------------------

_int2, _int4, _int8 = (
    struct.Struct(">h").unpack_from,
    struct.Struct(">i").unpack_from,
    struct.Struct(">q").unpack_from,
)
_EPOCH_DAY = date(2000, 1, 1).toordinal()
_EPOCH_MICROSECONDS = 946_684_800_000_000


def _numeric(data: bytes) -> Decimal:
    digits, weight, sign, scale = struct.unpack_from(">hhHH", data)
    value = Decimal(0)
    for index, group in enumerate(struct.unpack_from(f">{digits}h", data, 8)):
        value += Decimal(group) * Decimal(10000) ** (weight - index)
    return (-value if sign == 0x4000 else value).quantize(Decimal(1).scaleb(-scale))


DECODERS: dict[str, Callable[[bytes], Any]] = {
    "int4": lambda data: _int4(data)[0],
    "int8": lambda data: _int8(data)[0],
    "int4[]": lambda data: [number for (number,) in struct.iter_unpack(">4xi", data[20:])],
    "ts": lambda data: _int8(data)[0] + _EPOCH_MICROSECONDS,
    "date": lambda data: date.fromordinal(_int4(data)[0] + _EPOCH_DAY),
    "text": lambda data: data.decode(),
    "bytea": bytes,
    "bool": lambda data: data != b"\x00",
    "jsonb": lambda data: orjson.loads(data[1:]),
    "numeric": _numeric,
}


def copied_rows(data: bytes) -> Iterable[list[bytes | None]]:
    """The rows of a binary COPY."""
    if not data.startswith(SIGNATURE):
        raise psycopg.DataError("COPY file signature not recognized")
    at = len(SIGNATURE)
    while True:
        (count,) = _int2(data, at)
        at += 2
        if count == -1:
            if at != len(data):
                raise psycopg.DataError("received copy data after EOF marker")
            return
        fields: list[bytes | None] = []
        for _ in range(count):
            (size,) = _int4(data, at)
            at += 4
            if size < 0:
                fields.append(None)
            else:
                fields.append(data[at : at + size])
                at += size
        yield fields


def copy(context: Context, schema: str, name: str, names: list[str], data: bytes) -> None:
    """COPY into a table."""
    server, transaction = context.server, context.transaction
    if schema == SLOT:
        _copy_projected(context, name, names, data)
        return
    day: date | None = None
    if name.startswith("events_"):
        text = name.removeprefix("events_")
        day = date(int(text[:4]), int(text[4:6]), int(text[6:]))
        if day not in server.days:
            raise psycopg.errors.UndefinedTable(f'relation "ledger.{name}" does not exist')
        name = "events"
    kinds = _LEDGER[name]
    decoders = [DECODERS[kinds[column]] for column in names]
    for fields in copied_rows(data):
        if len(fields) != len(names):
            raise psycopg.DataError("row field count does not match")
        row = {
            column: None if value is None else decode(value)
            for column, decode, value in zip(names, decoders, fields, strict=True)
        }
        if day is not None and row["day"] != day:
            raise psycopg.errors.CheckViolation("new row violates the partition's bounds")
        if name in _SERIAL:
            row["serial"] = server.following(name)[0]
        if name == "marks":
            row["id"] = server.following("marks")[0]
            row["at"] = transaction.now
        elif name == "ingest_batches":
            if row["records"] != row["accepted"] + row["duplicates"] + row["conflicts"] + row["dead"]:
                raise psycopg.errors.CheckViolation("records = accepted + duplicates + conflicts + dead")
            if row["to_offset"] - row["from_offset"] != row["records"] + row["holes"]:
                raise psycopg.errors.CheckViolation("to_offset - from_offset = records + holes")
            row["committed_at"] = transaction.now
        transaction.insert(name, row)


_LOOKED_AT = frozenset(
    ("session_no", "turn_no", "stream_no", "seq", "item_type", "source", "turn_key", "revision", "digest")
)


def _copy_projected(context: Context, name: str, names: list[str], data: bytes) -> None:
    """Rows keep their fields as they came: decoded is what statements look at, the rest when somebody asks (:func:`decoded`)."""
    kinds = KINDS[name]
    looked_at = [
        (at, column, DECODERS[kinds[column]]) for at, column in enumerate(names) if column in _LOOKED_AT
    ]
    serial = name in _SERIAL
    for fields in copied_rows(data):
        if len(fields) != len(names):
            raise psycopg.DataError("row field count does not match")
        row: Row = {"fields": fields, "names": names}
        for at, column, decode in looked_at:
            value = fields[at]
            row[column] = None if value is None else decode(value)
        if serial:
            row["serial"] = context.server.following("serial")[0]
        context.transaction.insert(name, row)


def decoded(table: str, row: Row) -> Row:
    """All columns of a projected row."""
    kinds = KINDS[table]
    return {
        name: None if value is None else DECODERS[kinds[name]](value)
        for name, value in zip(row["names"], row["fields"], strict=True)
    }


# --- fence ------------------------------------------------------------------------------------------------------------------------


def _progress(context: Context, topic: str, partition: int) -> Row | None:
    return context.transaction.get("ingest_progress", (topic, partition))


@statement("fence/begin")
def _begin(context: Context, given: Parameters) -> Result:
    if _progress(context, given["topic"], given["partition"]) is None:
        row = {
            "topic": given["topic"], "partition": given["partition"], "group_id": given["group_id"], "first_offset": given["start"],
            "next_offset": given["start"], "owner_epoch": 0, "owner": None, "backend_pid": None, "backend_start": None, "disturbed": 0,
            "anchor_offset": None, "anchor_crc": None, "flushed_batch": 0,
        }  # fmt: skip
        # Whoever inserts it holds it: a second one waits, then does nothing.
        context.lock(given["topic"], given["partition"])
        if _progress(context, given["topic"], given["partition"]) is None:
            context.transaction.insert("ingest_progress", row)
    return []


@statement("fence/claim")
def _claim(context: Context, given: Parameters) -> Result:
    context.transaction.kind = "claim"
    if _progress(context, given["topic"], given["partition"]) is None:
        return []
    context.lock(given["topic"], given["partition"])
    row = _progress(context, given["topic"], given["partition"])
    assert row is not None
    if row["group_id"] != given["group_id"] and not given["take_over"]:
        return []
    backend = context.transaction.backend
    after = row | {
        "group_id": given["group_id"],
        "owner_epoch": row["owner_epoch"] + 1,
        "owner": given["owner"],
        "backend_pid": backend.pid,
        "backend_start": backend.start,
    }
    context.transaction.put("ingest_progress", after)
    return [
        (
            *(
                after[n]
                for n in (
                    "next_offset",
                    "owner_epoch",
                    "disturbed",
                    "anchor_offset",
                    "anchor_crc",
                    "flushed_batch",
                )
            ),
            row["owner"],
        )
    ]


@statement("fence/holder")
def _holder(context: Context, given: Parameters) -> Result:
    row = _progress(context, given["topic"], given["partition"])
    if row is None:
        return []
    names = ("group_id", "owner", "backend_pid", "backend_start", "owner_epoch")
    return [(*(row[name] for name in names), None)]


@statement("fence/terminate")
def _terminate(context: Context, given: Parameters) -> Result:
    backend = context.server.backends.get(given["pid"])
    if backend is None or backend.start != given["start"] or backend is context.transaction.backend:
        return []
    context.server.terminate(backend)
    return [(True,)]


@statement("fence/lock")
def _lock(context: Context, given: Parameters) -> Result:
    rows = []
    for topic, partition in sorted(zip(given["topics"], given["partitions"], strict=True)):
        if _progress(context, topic, partition) is not None:
            context.lock(topic, partition)
            rows.append((topic, partition))
    return rows


@statement("fence/read")
def _read(context: Context, given: Parameters) -> Result:
    rows = [_progress(context, given["topic"], partition) for partition in given["partitions"]]
    names = ("partition", "next_offset", "owner_epoch", "disturbed", "flushed_batch")
    return [tuple(row[name] for name in names) for row in rows if row is not None]


@statement("fence/apply")
def apply(context: Context, given: Parameters, *, fenced: bool = True) -> Result:
    """``fenced`` false is a mistake that a test of the simulator makes on purpose."""
    context.transaction.kind = "data"
    topic = given["topic"]
    names = ("partitions", "froms", "tos", "epochs", "anchors", "crcs", "flushed")
    steps = sorted(zip(*(given[name] for name in names), strict=True))

    def passes(step: tuple[Any, ...]) -> bool:
        row = _progress(context, topic, step[0])
        return row is not None and (
            not fenced or (row["next_offset"] == step[1] and row["owner_epoch"] == step[3])
        )

    locked = []
    for step in steps:
        # As READ COMMITTED does it: only rows that match are waited for, and looked at again afterwards.
        if passes(step):
            context.lock(topic, step[0])
            if passes(step):
                locked.append(step)
    found: Result = []
    backend = context.transaction.backend
    for partition, from_offset, to_offset, _, anchor, crc, flushed in locked:
        row = _progress(context, topic, partition)
        assert row is not None
        batch_no = context.server.following("ingest_batches")[0] if to_offset > from_offset else None
        whole = flushed if flushed is not None else batch_no
        after = row | {
            "next_offset": to_offset,
            "anchor_offset": anchor if anchor is not None else row["anchor_offset"],
            "anchor_crc": crc if crc is not None else row["anchor_crc"],
            "flushed_batch": max(row["flushed_batch"], whole) if whole is not None else row["flushed_batch"],
            "backend_pid": backend.pid,
            "backend_start": backend.start,
        }
        context.transaction.put("ingest_progress", after)
        found.append((partition, batch_no, row["disturbed"], context.transaction.today))
    return found


def disturb(context: Context, topics: list[str], partitions: list[int]) -> Result:
    for topic, partition in zip(topics, partitions, strict=True):
        context.lock(topic, partition)
        row = _progress(context, topic, partition)
        assert row is not None
        context.transaction.put("ingest_progress", row | {"disturbed": row["disturbed"] + 1})
    return []


# --- load -------------------------------------------------------------------------------------------------------------------------


@statement("load/sessions")
def _sessions(context: Context, given: Parameters) -> Result:
    rows = [
        context.transaction.get("sessions", (session_id, tenant))
        for tenant, session_id in zip(given["tenants"], given["ids"], strict=True)
    ]
    return [_found(row) for row in rows if row is not None]


def _found(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("session_no", "tenant", "session_id", "home_topic", "home_partition"))


@statement("load/sessions_by_number")
def _sessions_by_number(context: Context, given: Parameters) -> Result:
    return [_found(row) for row in context.transaction.of("sessions", *given["sessions"])]


@statement("load/streams")
def _streams(context: Context, given: Parameters) -> Result:
    transaction = context.transaction
    found: Result = []
    for row in transaction.of("streams", *given["sessions"]):
        days = transaction.of("stream_days", row["stream_no"])
        last = max(days, key=lambda one: one["day"], default=None)
        since = last["day"] if last is not None else transaction.today
        above = [
            event["seq"]
            for event in transaction.of("events", row["stream_no"])
            if event["seq"] > row["hi"] and event["day"] >= since
        ]
        found.append(
            (
                *(row[n] for n in ("stream_no", "session_no", "producer", "epoch", "stream")),
                *(row[n] for n in ("hi", "low", "holes", "receipts", "open_gaps")),
                max(above, default=None),
                *(
                    (last["day"], last["seq_from"], last["seq_to"])
                    if last is not None
                    else (None, None, None)
                ),
            )
        )
    return found


@statement("load/chunks")
def _chunks(context: Context, given: Parameters) -> Result:
    rows = context.transaction.of("stream_chunks", *given["streams"])
    return [(row["stream_no"], row["chunk"], row["bits"]) for row in rows]


@statement("load/receipts")
def _receipts(context: Context, given: Parameters) -> Result:
    rows = context.transaction.of("receipts", *given["streams"])
    return [(row["stream_no"], row["key_hash"], row["ordinal"]) for row in rows]


@statement("load/known_receipts")
def _known_receipts(context: Context, given: Parameters) -> Result:
    rows = [
        context.transaction.get("receipts", place)
        for place in zip(given["streams"], given["hashes"], strict=True)
    ]
    return [(row["stream_no"], row["key_hash"], row["ordinal"]) for row in rows if row is not None]


@statement("load/gaps")
def _gaps(context: Context, given: Parameters) -> Result:
    rows = [row for row in context.transaction.of("gaps", *given["streams"]) if row["closed_at"] is None]
    rows.sort(key=lambda row: (row["stream_no"], row["from_seq"]))
    return [
        tuple(row[n] for n in ("stream_no", "from_seq", "to_seq", "state", "ranges", "missing"))
        for row in rows
    ]


@statement("load/turns")
def _turns(context: Context, given: Parameters) -> Result:
    found: Result = []
    for row in context.transaction.of("turns", *given["sessions"]):
        record = context.transaction.get("turn_records", (row["session_no"], row["turn_no"]))
        if record is not None:
            place = tuple(row[n] for n in ("session_no", "turn_key", "turn_no", "revision"))
            found.append((*place, record["digest"]))
    return found


@statement("load/facts")
def _facts(context: Context, given: Parameters) -> Result:
    return [(row["session_no"],) for row in context.transaction.of("session_facts", *given["sessions"])]


def _batches(context: Context, given: Parameters) -> list[Row]:
    return context.transaction.of("ingest_batches", (given["topic"], given["partition"]))


@statement("vacuum/among")
def _vacuumed(context: Context, given: Parameters) -> Result:
    """Nobody vacuums here: what that does beside workers is tested on a real database."""
    return []


@statement("load/last_batch")
def _last_batch(context: Context, given: Parameters) -> Result:
    return [(max((row["batch_no"] for row in _batches(context, given)), default=None),)]


@statement("load/stale")
def _stale(context: Context, given: Parameters) -> Result:
    since = {
        row["batch_no"]: row["committed_at"].date()
        for row in _batches(context, given)
        if row["batch_no"] > given["flushed_batch"]
    }
    streams = {
        row["stream_no"]: None
        for row in (context.transaction.all("events") if since else ())
        if row["batch_no"] in since and row["day"] >= since[row["batch_no"]]
    }
    sessions = {
        row["session_no"]: None for row in context.transaction.all("streams") if row["stream_no"] in streams
    }
    return [(number,) for number in sessions]


@statement("load/recent_dead")
def _recent_dead(context: Context, given: Parameters) -> Result:
    place = (given["topic"], given["partition"])
    rows = [
        row["kafka_offset"]
        for row in context.transaction.all("dead_letters")
        if (row["topic"], row["partition"]) == place and row["batch_no"] is not None
    ]
    return [(offset,) for offset in sorted(rows) if offset >= given["start"]]


def _stops(context: Context, topic: str, partition: int) -> list[Row]:
    return [
        row
        for row in context.transaction.all("partition_stops")
        if (row["topic"], row["partition"]) == (topic, partition)
    ]


@statement("fence/stop")
def _stop(context: Context, given: Parameters) -> Result:
    rows = _stops(context, given["topic"], given["partition"])
    resumed = [row["at_offset"] for row in rows if row["resumed_at"] is not None]
    here = [row for row in rows if row["resumed_at"] is None and row["at_offset"] == given["next_offset"]]
    names = ("at_offset", "dead", "records_window", "share")
    return [(max(resumed, default=None), *(here[0][name] if here else None for name in names))]


@statement("fence/resumed")
def _resumed(context: Context, given: Parameters) -> Result:
    rows = [
        context.transaction.get("partition_stops", (given["topic"], *place))
        for place in zip(given["partitions"], given["offsets"], strict=True)
    ]
    return [(row["partition"],) for row in rows if row is not None and row["resumed_at"] is not None]


@statement("write/stops")
def _write_stops(context: Context, given: Parameters) -> Result:
    for partition, offset, dead, window, share in _lists(
        given, "partitions", "offsets", "dead", "windows", "shares"
    ):
        if context.transaction.get("partition_stops", (given["topic"], partition, offset)) is None:
            row = {"topic": given["topic"], "partition": partition, "at_offset": offset, "dead": dead}
            row |= {"records_window": window, "share": share, "resumed_at": None}
            context.transaction.insert("partition_stops", row)
    return []


@statement("load/numbers_sessions")
def _numbers_sessions(context: Context, given: Parameters) -> Result:
    return [(number,) for number in context.server.following("sessions", given["count"])]


@statement("load/numbers_streams")
def _numbers_streams(context: Context, given: Parameters) -> Result:
    return [(number,) for number in context.server.following("streams", given["count"])]


@statement("read/session_events")
def _session_events(context: Context, given: Parameters) -> Result:
    streams = [row["stream_no"] for row in context.transaction.of("streams", given["session_no"])]
    names = ("raw", "kafka_offset", "stream_no", "seq")
    return [tuple(row[n] for n in names) for row in context.transaction.of("events", *streams)]


# --- write ------------------------------------------------------------------------------------------------------------------------


def _lists(given: Parameters, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(given[name] for name in names), strict=True)


def _stream(context: Context, stream_no: int) -> Row:
    return next(row for row in context.transaction.all("streams") if row["stream_no"] == stream_no)


@statement("write/streams")
def _write_streams(context: Context, given: Parameters) -> Result:
    named = {row["stream_no"]: row for row in context.transaction.all("streams")}
    for stream_no, *values in _lists(given, "streams", "lows", "his", "holes", "receipts", "open_gaps"):
        row = named.get(stream_no)
        if row is not None:
            names = ("low", "hi", "holes", "receipts", "open_gaps")
            context.transaction.put("streams", row | dict(zip(names, values, strict=True)))
    return []


@statement("write/chunks")
def _write_chunks(context: Context, given: Parameters) -> Result:
    for stream_no, chunk, bits in _lists(given, "streams", "chunks", "bits"):
        context.transaction.put(
            "stream_chunks", {"stream_no": stream_no, "chunk": chunk, "bits": bytes(bits)}
        )
    return []


@statement("write/chunks_gone")
def _write_chunks_gone(context: Context, given: Parameters) -> Result:
    for place in _lists(given, "streams", "chunks"):
        row = context.transaction.get("stream_chunks", place)
        if row is not None:
            context.transaction.delete("stream_chunks", row)
    return []


@statement("write/stream_days")
def _write_stream_days(context: Context, given: Parameters) -> Result:
    touched = set()
    for stream_no, day, first, last in _lists(given, "streams", "days", "froms", "tos"):
        if (stream_no, day) in touched:
            raise psycopg.errors.CardinalityViolation("ON CONFLICT DO UPDATE cannot affect row a second time")
        touched.add((stream_no, day))
        row = context.transaction.get("stream_days", (stream_no, day))
        if row is not None:
            first, last = min(row["seq_from"], first), max(row["seq_to"], last)
        context.transaction.put(
            "stream_days", {"stream_no": stream_no, "day": day, "seq_from": first, "seq_to": last}
        )
    return []


@statement("write/repeats")
def _write_repeats(context: Context, given: Parameters) -> Result:
    transaction = context.transaction
    found: Result = []
    for index, (stream_no, seq) in enumerate(_lists(given, "streams", "seqs"), 1):
        days = transaction.of("stream_days", stream_no)
        latest = max((row["day"] for row in days), default=None)
        for row in days:
            if row["seq_from"] <= seq and (row["seq_to"] >= seq or row["day"] == latest):
                found += _stored(transaction, index, row["day"], stream_no, seq)
    return found


def _stored(transaction: Transaction, index: int, day: date, stream_no: int, seq: int) -> Result:
    event = transaction.get("events", (day, stream_no, seq))
    if event is None:
        return []
    return [(index, *(event[n] for n in ("raw", "received_sha256", "kafka_offset", "batch_no")))]


@statement("write/repeated_receipts")
def _write_repeated_receipts(context: Context, given: Parameters) -> Result:
    found: Result = []
    for index, (stream_no, seq, key_hash) in enumerate(_lists(given, "streams", "seqs", "hashes"), 1):
        row = context.transaction.get("receipts", (stream_no, key_hash))
        if row is not None:
            found += _stored(context.transaction, index, row["day"], stream_no, seq)
    return found


@statement("write/batch_partitions")
def _write_batch_partitions(context: Context, given: Parameters) -> Result:
    wanted = set(given["batches"])
    rows = context.transaction.all("ingest_batches")
    return [(row["batch_no"], row["partition"]) for row in rows if row["batch_no"] in wanted]


@statement("write/conflicts")
def _write_conflicts(context: Context, given: Parameters) -> Result:
    row = context.transaction.get("conflicts", (given["stream_no"], given["seq"], given["lost_sha256"]))
    if row is None:
        row = dict(given)
    else:
        moved = {name: given[name] for name in ("last_partition", "last_offset")}
        row = row | moved | {"count": row["count"] + given["count"]}
    context.transaction.put("conflicts", row)
    return []


_CLOSED = ("filled_late", "withdrawn")


def _live(context: Context, stream_no: int, source: int | None) -> list[Row]:
    rows = context.transaction.of("gaps", stream_no)
    return [row for row in rows if row["closed_at"] is None and row["from_seq"] == source]


_GAP_LISTS = ("streams", "sources", "froms", "tos", "states", "ranges", "missing")


def _gap(context: Context, values: tuple[Any, ...]) -> Row:
    stream_no, _, first, last, state, ranges, missing = values
    return {
        "stream_no": stream_no,
        "from_seq": first,
        "to_seq": last,
        "state": state,
        "ranges": ranges,
        "missing": missing,
        "closed_at": context.transaction.now if state in _CLOSED else None,
    }


@statement("write/gaps_opened")
def _write_gaps_opened(context: Context, given: Parameters) -> Result:
    made = []
    for values in _lists(given, *_GAP_LISTS):
        began = [row["opened_at"] for row in _live(context, values[0], values[1])]
        made.append(_gap(context, values) | {"opened_at": min(began, default=context.transaction.now)})
    for row in made:
        context.transaction.insert("gaps", row | {"gap_no": context.server.following("gaps")[0]})
    return []


@statement("write/gaps_folded")
def _write_gaps_folded(context: Context, given: Parameters) -> Result:
    gone = [row for place in _lists(given, "streams", "sources") for row in _live(context, *place)]
    for row in gone:
        context.transaction.delete("gaps", row)
    return []


@statement("write/gaps_changed")
def _write_gaps_changed(context: Context, given: Parameters) -> Result:
    moved = [(row, values) for values in _lists(given, *_GAP_LISTS) for row in _live(context, *values[:2])]
    for row, values in moved:
        context.transaction.put("gaps", row | _gap(context, values))
    return []


@statement("write/refused")
def _write_refused(context: Context, given: Parameters) -> Result:
    place = (given["topic"], given["partition"], given["offset"] or 0)
    if context.transaction.get("dead_letters", place) is None:
        row: Row = dict.fromkeys(_LEDGER["dead_letters"])
        row |= {name: given[name] for name in ("topic", "partition", "detail", "tenant", "session_id")}
        row |= {"kafka_offset": place[2], "reason": "refused_by_database"}
        context.transaction.insert("dead_letters", row)
    return []


@statement("write/sessions")
def _write_sessions(context: Context, given: Parameters) -> Result:
    names = ("session_no", "tenant", "session_id", "home_topic", "home_partition")
    for values in _lists(given, "numbers", "tenants", "sessions", "topics", "partitions"):
        context.transaction.insert("sessions", dict(zip(names, values, strict=True)))
    return []


@statement("write/mark_named")
def _write_mark_named(context: Context, given: Parameters) -> Result:
    for tenant, session_id in _lists(given, "tenants", "sessions"):
        row = context.transaction.get("sessions", (session_id, tenant))
        if row is not None:
            mark(context, [row["session_no"]])
    return []


def mark(context: Context, sessions: Iterable[int]) -> None:
    for session_no in sessions:
        row = {
            "id": context.server.following("marks")[0],
            "session_no": session_no,
            "at": context.transaction.now,
        }
        context.transaction.insert("marks", row)


# --- the rest ---------------------------------------------------------------------------------------------------------------------


@statement("maintain/missing_partitions")
def _missing_partitions(context: Context, given: Parameters) -> Result:
    today = context.transaction.today
    return [(sum(today + timedelta(n) not in context.server.days for n in range(given["days"])),)]


@statement("maintain/make_partitions")
def _make_partitions(context: Context, given: Parameters) -> Result:
    today = context.transaction.today
    wanted = {today + timedelta(n) for n in range(given["days"])}
    made = len(wanted - context.server.days)
    context.server.days |= wanted
    return [(made,)]


@statement("read/active")
def _active(context: Context, given: Parameters) -> Result:
    return [("a", FOLD_VERSION)]


def _disturb(context: Context, given: Any) -> Result:
    return disturb(context, *given)


def _set_local(context: Context, milliseconds: int) -> Result:
    context.transaction.lock_seconds = milliseconds / 1000
    return []


_PLAIN: dict[str, Statement] = {
    "update ledger.ingest_progress p set disturbed = disturbed + 1 from unnest(%s::text[], %s::int4[]) u (topic, partition) "
    "where p.topic = u.topic and p.partition = u.partition": _disturb,
}
_COPY = re.compile(r'copy "(\w+)"\."(\w+)" \((.*)\) from stdin \(format binary\)')
_LOCAL = re.compile(r"set local lock_timeout = (\d+)")
_DELETE = re.compile(r'delete from "(\w+)"\."(\w+)" where (.*)', re.S)
_FOLD = " and source = 'fold'"
_AMONG = re.compile(r"\(session_no, (.*)\) in \(select \* from unnest\((?:%s::\w+\[\](?:, )?)+\)\)")


def _deleted(transaction: Transaction, table: str, where: str, given: Any) -> list[Row]:
    if where == "session_no = any(%s)":
        return transaction.of(table, *given[0])
    if where == "session_no = any(%s) and turn_no is null":
        return [row for row in transaction.of(table, *given[0]) if row["turn_no"] is None]
    among = _AMONG.fullmatch(where)
    if among is None:
        raise KeyError(f"the simulator does not know how to delete where {where!r}")
    names = among[1].split(", ")
    return [
        row
        for session_no, places in _by_session(zip(*given, strict=True)).items()
        for row in transaction.of(table, session_no)
        if tuple(row[name] for name in names) in places
    ]


def _by_session(places: Iterable[tuple[Any, ...]]) -> dict[int, set[tuple[Any, ...]]]:
    found: dict[int, set[tuple[Any, ...]]] = defaultdict(set)
    for session_no, *rest in places:
        found[session_no].add(tuple(rest))
    return found


def _delete(context: Context, table: str, where: str, given: Any) -> Result:
    only_fold = where.endswith(_FOLD)
    for row in _deleted(context.transaction, table, where.removesuffix(_FOLD), given):
        if not only_fold or row["source"] == "fold":
            context.transaction.delete(table, row)
    return []


def named() -> dict[bytes, str]:
    """The name of each statement, by its text."""
    return {query(name).replace(b"{slot}", SLOT.encode()): name for name in STATEMENTS}


def copy_of(text: str) -> tuple[str, str, list[str]]:
    """(schema, table, columns) of a COPY."""
    found = _COPY.fullmatch(text)
    if found is None:
        raise KeyError(f"the simulator does not know the statement {text!r}")
    return found[1], found[2], [name.strip('" ') for name in found[3].split(",")]


def unnamed(text: str) -> tuple[str, Statement]:
    """A statement that has no file: what it is called, and what it does. KeyError for one that nobody modelled."""
    if text in _PLAIN:
        return text.split(" from ")[0], _PLAIN[text]
    local = _LOCAL.fullmatch(text)
    if local is not None:
        milliseconds = int(local[1])
        return "set local", lambda context, given: _set_local(context, milliseconds)
    deleted = _DELETE.fullmatch(text)
    if deleted is None or deleted[1] != SLOT:
        raise KeyError(f"the simulator does not know the statement {text!r}")
    table, where = deleted[2], deleted[3]
    return f"delete {table}", lambda context, given: _delete(context, table, where, given)
