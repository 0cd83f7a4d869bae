"""The floor: the least that any pipeline from this topic into this database must do.

``getmany``, msgspec decode of the envelope with the payload left raw, binary COPY of the decoded columns and the payload into a table with the event's
key as primary key, the offsets in the same transaction. No dedupe, no gaps, no turns; one duplicate would fail it. Like the worker it measures against, it
writes one round while it decodes the next.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import struct
import time
from typing import Any

import msgspec
import psycopg
from aiokafka import AIOKafkaConsumer, TopicPartition

EPOCH_2000_US = 946_684_800_000_000
DDL = """
drop table if exists floor_events, floor_offsets;
create table floor_events (
    tenant text, session_id text, producer text, epoch int4, stream text, seq int8, type text, occurred_at timestamptz,
    turn_id text, trace_id text, model_call_id text, tool_call_id text, kafka_partition int4, kafka_offset int8, payload bytea,
    stream_no int8, primary key ({key}));
create table floor_offsets (partition int4 primary key, next_offset int8)
"""
KEYS = {"narrow": "stream_no, seq", "natural": "tenant, session_id, producer, epoch, stream, seq"}
"""``narrow`` is the worker's own key (a number for the stream, here its hash); ``natural`` is the contract's key as it stands."""
HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)


class Envelope(msgspec.Struct):
    """The columns that the floor stores."""

    session_id: str
    seq: int
    type: str
    tenant: str = "default"
    producer: str = "harness"
    epoch: int = 0
    stream: str = "ledger"
    occurred_at: Any = None
    turn_id: str | None = None
    trace_id: str | None = None
    model_call_id: str | None = None
    tool_call_id: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")


def _rows(batches: dict[TopicPartition, list[Any]], decode: Any) -> tuple[bytes, list[tuple[int, int]]]:
    fixed = struct.Struct
    length = fixed(">i").pack
    out: list[bytes] = [HEADER]
    offsets = []
    for tp, messages in batches.items():
        for message in messages:
            e = decode(message.value)
            row: list[bytes] = [b"\x00\x10"]
            add = row.append
            for text in (e.tenant, e.session_id, e.producer):
                raw = text.encode()
                add(length(len(raw)))
                add(raw)
            add(struct.pack(">ii", 4, e.epoch))
            raw = e.stream.encode()
            add(length(len(raw)))
            add(raw)
            add(struct.pack(">iq", 8, e.seq))
            raw = e.type.encode()
            add(length(len(raw)))
            add(raw)
            at = e.occurred_at
            add(
                b"\xff\xff\xff\xff"
                if at is None
                else struct.pack(">iq", 8, round(at.timestamp() * 1e6) - EPOCH_2000_US)
            )
            for text in (e.turn_id, e.trace_id, e.model_call_id, e.tool_call_id):
                if text is None:
                    add(b"\xff\xff\xff\xff")
                else:
                    raw = text.encode()
                    add(length(len(raw)))
                    add(raw)
            add(struct.pack(">iiiq", 4, tp.partition, 8, message.offset))
            payload = bytes(e.payload)
            add(length(len(payload)))
            add(payload)
            add(struct.pack(">iq", 8, hash((e.tenant, e.session_id, e.producer, e.epoch, e.stream))))
            out.append(b"".join(row))
        offsets.append((tp.partition, messages[-1].offset + 1))
    out.append(b"\xff\xff")
    return b"".join(out), offsets


def _write(conn: psycopg.Connection, data: bytes, offsets: list[tuple[int, int]]) -> None:
    with conn.transaction(), conn.cursor() as cur:
        cur.execute(
            "insert into floor_offsets select * from unnest(%s::int[], %s::bigint[]) "
            "on conflict (partition) do update set next_offset = excluded.next_offset",
            ([p for p, _ in offsets], [o for _, o in offsets]),
        )
        with cur.copy("copy floor_events from stdin (format binary)") as copy:
            copy.write(data)


async def run(bootstrap: str, topic: str, dsn: str, round_size: int, key: str) -> dict[str, float]:
    """Drain the topic once; seconds are from the first fetched record to the last commit."""
    from datetime import datetime

    typed = msgspec.defstruct("Typed", [("occurred_at", datetime | None, None)], bases=(Envelope,))
    decode = msgspec.json.Decoder(typed).decode
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(DDL.format(key=KEYS[key]))  # type: ignore[arg-type]  # our own text
        consumer = AIOKafkaConsumer(
            topic,  # without a group: every partition is ours
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=1 << 20,
        )
        await consumer.start()
        try:
            total = sum((await consumer.end_offsets(list(consumer.assignment()))).values())
            loop = asyncio.get_running_loop()
            done, start, cpu, writing = 0, 0.0, 0.0, None
            while done < total:
                batches = await consumer.getmany(timeout_ms=500, max_records=round_size)
                if not batches:
                    continue
                if not start:
                    start, cpu = time.perf_counter(), _cpu()
                data, offsets = _rows(batches, decode)
                if writing:
                    await writing
                writing = loop.run_in_executor(None, _write, conn, data, offsets)
                done += sum(map(len, batches.values()))
            if writing:
                await writing
            seconds, used = time.perf_counter() - start, _cpu() - cpu
        finally:
            await consumer.stop()
        pid = conn.info.backend_pid
        backend = _cpu_of(pid)
        stored = conn.execute("select count(*) from floor_events").fetchone()
        assert stored is not None and stored[0] == total, (stored, total)
    return {
        "events": total,
        "seconds": seconds,
        "worker_cpu": used,
        "backend_cpu": backend,
    }


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _cpu_of(pid: int) -> float:
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("dsn")
    parser.add_argument("--round", type=int, default=5000)
    parser.add_argument("--key", choices=sorted(KEYS), default="narrow")
    args = parser.parse_args()
    print(json.dumps(asyncio.run(run(args.bootstrap, args.topic, args.dsn, args.round, args.key))))
