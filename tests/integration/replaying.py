"""What the tests of replays share: a fleet in a topic, a ledger that lost a session, and what brokers do to topics."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import psycopg
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from tests.integration.ingesting import event
from tests.stack.topics import Record, Topic, run_apart


def turn(session: str, number: int, *, tenant: str = "default") -> list[Record]:
    """Five events: a turn with one call of 10 input and 5 output tokens. Numbers go on from turn to turn."""
    at = 5 * number
    links: dict[str, Any] = {"turn_id": f"t{number}", "tenant": tenant}
    call = {**links, "model_call_id": f"c{number}"}
    usage = {
        "usage": {"input": 10, "output": 5},
        "provider": "anthropic",
        "model": "claude-sonnet-4-5",
        "status_code": 200,
    }
    return [
        event(session, at, "turn.started", occurred_at=f"2026-03-01T12:{number % 60:02d}:00Z", **links),
        event(session, at + 1, "message.recorded", payload={"role": "user", "text": f"go {number}"}, **links),
        event(
            session,
            at + 2,
            "model_call.started",
            payload={"provider": "anthropic", "model": "claude-sonnet-4-5"},
            **call,
        ),
        event(session, at + 3, "model_call.completed", payload=usage, **call),
        event(session, at + 4, "turn.completed", payload={"status": "completed"}, **links),
    ]


def fleet(sessions: int, turns: int, *, first: int = 0) -> list[Record]:
    """So many turns of each session, numbered from ``first`` on."""
    return [
        one
        for number in range(first, first + turns)
        for s in range(sessions)
        for one in turn(f"s{s}", number)
    ]


def forget(database: str, session: str) -> None:
    """Delete a session by hand, as nobody should."""
    tables = {
        "of_streams": ["events", "stream_chunks", "stream_days", "receipts", "gaps"],
        "of_sessions": ["streams", "conflicts", "key_mismatches", "redactions", "marks", "sessions"],
    }
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "select session_no from ledger.sessions where session_id = %s", (session,)
        ).fetchone()
        assert found is not None
        streams = [
            row[0]
            for row in connection.execute("select stream_no from ledger.streams where session_no = %s", found)
        ]
        for table in tables["of_streams"]:
            connection.execute(f"delete from ledger.{table} where stream_no = any(%s)", (streams,))
        for table in tables["of_sessions"]:
            connection.execute(f"delete from ledger.{table} where session_no = %s", found)
        for (table,) in connection.execute(
            "select table_name from information_schema.columns where table_schema = 'projection_a' and column_name = 'session_no'"
        ).fetchall():
            connection.execute(f"delete from projection_a.{table} where session_no = %s", found)  # type: ignore[arg-type]


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
"""Of a topic whose records may go as soon as others of their keys, and another segment, have come."""


def compact(topic: Topic, left: int) -> None:
    """Wait until the broker has compacted partition 0 to so many records. A transaction ends the log: its marker is an offset without a record."""

    async def ask(admin: AIOKafkaAdminClient, backoff: dict[str, str]) -> None:
        node = str((await admin.describe_cluster())["controller_id"])
        await admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, node, configs=backoff)])

    async def there() -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=topic.bootstrap)
        await consumer.start()
        try:
            at = TopicPartition(topic.name, 0)
            consumer.assign([at])
            await consumer.seek_to_beginning(at)
            end, count = (await consumer.end_offsets([at]))[at], 0
            while await consumer.position(at) < end:
                count += len((await consumer.getmany(at, timeout_ms=200)).get(at, ()))
            return count
        finally:
            await consumer.stop()

    async def run() -> None:
        # The active segment is never compacted.
        await asyncio.sleep(0.1)
        producer = AIOKafkaProducer(bootstrap_servers=topic.bootstrap, transactional_id=topic.name)
        await producer.start()
        async with producer.transaction():
            last = event("last", 0)
            await producer.send(topic.name, last.value, key=last.key, partition=0)
        await producer.stop()
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            # The cleaner looks for work every 15 s.
            await ask(admin, {"log.cleaner.backoff.ms": "100"})
            until = time.monotonic() + 60
            while await there() > left:
                assert time.monotonic() < until, "the broker did not compact"
                await asyncio.sleep(0.1)
        finally:
            await ask(admin, {})
            await admin.close()

    run_apart(run())


def delete_before(topic: Topic, offset: int) -> None:
    """Retention, at once, of partition 0."""

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topic.name, 0): RecordsToDelete(before_offset=offset)})
        finally:
            await admin.close()

    run_apart(delete())


def more_partitions(topic: Topic, count: int) -> None:
    """From now on keys go elsewhere."""

    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic.name: NewPartitions(count)})
        finally:
            await admin.close()

    run_apart(create())
