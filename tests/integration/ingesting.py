"""What the tests of the worker share: its environment, what it has applied, what the database says."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import psycopg

from tests.stack.commands import Running, eventually
from tests.stack.topics import Record, Topic


def environment(topic: Topic, database: str) -> dict[str, str]:
    """Settings of a worker on this topic and database; health on a free port, a short group session."""
    return topic.environment() | {
        "TURNLEDGER_DATABASE_URL": database,
        "TURNLEDGER_HEALTH_PORT": "0",
        "TURNLEDGER_SESSION_TIMEOUT_SECONDS": "6",
    }


def rows(database: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query, over a connection of its own."""
    with psycopg.connect(database, autocommit=True) as connection:
        return connection.execute(statement, values).fetchall()


def applied(database: str, topic: Topic) -> int:
    """How many offsets the partitions of the topic are beyond their first."""
    found = rows(
        database,
        "select coalesce(sum(next_offset - first_offset), 0) from ledger.ingest_progress where topic = %s",
        topic.name,
    )
    return int(found[0][0])


def until_applied(database: str, topic: Topic, records: int, worker: Running, *, seconds: float = 60) -> None:
    """Wait until so many records are applied; a worker that ended meanwhile fails the test with what it said."""

    def there() -> bool:
        assert worker.running(), worker.output()
        return applied(database, topic) >= records

    eventually(there, seconds=seconds, what=f"{records} records applied")


def until_projected(database: str, topic: Topic, *, seconds: float = 30) -> None:
    """Wait until the projections of all batches are whole."""

    def whole() -> bool:
        behind = rows(
            database,
            "select 1 from ledger.ingest_progress p where topic = %s and flushed_batch < "
            "(select coalesce(max(batch_no), 0) from ledger.ingest_batches b where b.topic = p.topic and b.partition = p.partition)",
            topic.name,
        )
        return not behind

    eventually(whole, seconds=seconds, what="projections whole")


def outcomes(database: str, topic: Topic) -> dict[str, int]:
    """Sums of the audit rows."""
    found = rows(
        database,
        "select sum(records), sum(accepted), sum(duplicates), sum(conflicts), sum(dead) from ledger.ingest_batches where topic = %s",
        topic.name,
    )
    names = ("records", "accepted", "duplicates", "conflicts", "dead")
    return {name: int(value or 0) for name, value in zip(names, found[0], strict=True)}


def event(session: str, seq: int | None, type_: str = "note", **fields: Any) -> Record:
    """A record of tenant ``default``, or of the ``tenant`` among the fields, under its proper key."""
    tenant = fields.get("tenant", "default")
    body: dict[str, Any] = {"session_id": session, "type": type_} | fields
    if seq is not None:
        body["seq"] = seq
    return Record(json.dumps(body).encode(), key=f"{tenant}/{session}".encode())


def at(second: float) -> str:
    """An instant of the tests' own day."""
    return f"2026-03-01T12:{int(second) // 60:02d}:{second % 60:09.6f}Z"


def one(found: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The only row."""
    everything = list(found)
    assert len(everything) == 1, everything
    return everything[0]
