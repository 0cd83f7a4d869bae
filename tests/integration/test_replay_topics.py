"""`turnledger replay topics`: known is left alone, missing is filled, unread is applied through the fence; beside workers, kills and retention."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.structs import TopicPartition

from tests.integration.here import Here
from tests.integration.ingesting import environment, event, outcomes, rows, until_applied
from tests.stack.commands import Running
from tests.stack.topics import Record, Topic, produce, run_apart
from turnledger.doctor.verify import Topics, verify
from turnledger.pricing import packaged, price_call
from turnledger.rollup.settings import RollupSettings
from turnledger.rollup.worker import Rollup

Start = Callable[..., Running]


class Replaying(Here):
    """Here, with the command that this file is about."""

    def replay(self, settings: dict[str, str], *arguments: str, status: int = 0) -> dict[str, Any]:
        """The object that `replay topics --json` prints."""
        ended, out, err = self.run(settings, "replay", "topics", *arguments, "--json")
        assert ended == status, (out, err)
        return dict(json.loads(out))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Replaying:
    return Replaying(monkeypatch, capsys)


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


def fleet(sessions: int, turns: int) -> list[Record]:
    return [one for number in range(turns) for s in range(sessions) for one in turn(f"s{s}", number)]


def ledger(database: str) -> dict[str, list[tuple[Any, ...]]]:
    """What must not differ: events, and the records of turns."""
    return {
        "events": rows(
            database, "select session_id, stream, seq, raw from turnledger.events order by 1, 2, 3"
        ),
        "turns": rows(database, "select session_id, turn_id, digest from turnledger.turns order by 1, 2"),
    }


def verified(database: str, topic: Topic) -> None:
    """Rollups are set, and all that `verify --topics` proves holds."""
    rollup = Rollup(RollupSettings(), database, partial(price_call, packaged()))
    rollup.drain()
    rollup.close()
    report = verify(
        database,
        partial(price_call, packaged()),
        topics=Topics(topic.bootstrap, 1 << 20),
        settle_seconds=30,
    )
    assert report.holds, report.as_json()


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


@pytest.mark.partitions(2)
def test_records_that_nobody_read_are_applied_once_and_a_third_reading_changes_nothing(
    topic: Topic, database: str, start: Start, here: Replaying
) -> None:
    settings = environment(topic, database)
    sent = fleet(4, 3)
    # A repeat, a contradiction, and what is no event.
    produce(
        topic,
        [
            *sent,
            sent[0],
            event("s1", 0, "note", payload={"text": "other"}),
            Record(b"garbage", key=b"default/s1"),
        ],
    )
    dry = here.replay(settings, "--dry-run")
    assert (dry["unread"]["records"], dry["unread"]["dead"]) == (63, 1)
    assert rows(database, "select count(*) from ledger.ingest_progress") == [(0,)]
    first = here.replay(settings)
    assert (first["again"]["records"], first["unread"]["records"]) == (0, 63)
    assert outcomes(database, topic) == {
        "records": 63,
        "accepted": 60,
        "duplicates": 1,
        "conflicts": 1,
        "dead": 1,
    }
    before = ledger(database)
    assert len(before["turns"]) == 12
    again = here.replay(settings)
    assert again["again"] == {
        "records": 63, "known": 62, "dead": 1, "requeued": 0, "filled": 0, "unverified": 0, "contradictions": 0, "unaccounted": 0,
        "others": 0,
    }  # fmt: skip
    assert here.replay(settings)["again"] == again["again"]
    assert ledger(database) == before
    assert rows(database, "select count from ledger.conflicts") == [(1,)]
    verified(database, topic)
    # A worker goes on where the replay ended.
    produce(topic, turn("s0", 3))
    worker = start("worker", environment=settings)
    until_applied(database, topic, 68, worker)
    assert outcomes(database, topic)["accepted"] == 65
    # And while it lives, what it has not read yet is its own; what it read is held against the ledger.
    beside = here.replay(settings)
    assert beside["again"]["known"] == 67
    worker.stop()
    assert outcomes(database, topic)["records"] == 68


@pytest.mark.partitions(2)
def test_a_session_that_the_ledger_lost_is_filled_in_to_the_same_bytes(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    produce(topic, fleet(3, 4))
    here.replay(settings)
    before = ledger(database)
    forget(database, "s1")
    assert len(ledger(database)["events"]) == 40
    dry = here.replay(settings, "--dry-run", "--session", "s1")
    assert (dry["again"]["filled"], dry["again"]["others"], len(ledger(database)["events"])) == (20, 40, 40)
    told = here.replay(settings, "--session", "default/s1")
    assert (told["again"]["filled"], told["again"]["known"], told["whole"]) == (20, 0, True)
    assert ledger(database) == before
    assert here.replay(settings)["again"]["known"] == 60
    verified(database, topic)


@pytest.mark.partitions(1)
def test_dead_letters_that_todays_rules_accept_are_events_and_those_that_stay_dead_are_said(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    large = event("s", 1, "note", payload={"text": "x" * 2000})
    produce(topic, [event("s", 0), large, Record(b"garbage", key=b"default/s"), event("s", 2)])
    # So little is kept of a letter that only Kafka has it whole.
    here.replay(settings | {"TURNLEDGER_RECORD_LIMIT_BYTES": "1500", "TURNLEDGER_DEAD_LETTER_BYTES": "100"})
    assert rows(database, "select count(*) from turnledger.dead_letters where outcome is null") == [(2,)]
    dry = here.replay(settings | {"TURNLEDGER_DEAD_LETTER_BYTES": "100"}, "--dry-run")
    told = here.replay(settings | {"TURNLEDGER_DEAD_LETTER_BYTES": "100"})
    assert dry["again"] == told["again"]
    assert (told["again"]["requeued"], told["again"]["dead"], told["again"]["known"]) == (1, 1, 2)
    assert rows(database, "select position, outcome, fixed from turnledger.dead_letters order by 1") == [
        (1, "accepted", False),
        (2, None, False),
    ]
    assert rows(database, "select seq from turnledger.events order by 1") == [(0,), (1,), (2,)]
    verified(database, topic)


@pytest.mark.partitions(1)
def test_what_has_left_kafka_is_said_before_anything_is_read(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    produce(topic, fleet(1, 4))
    here.replay(settings, "--to", "10")
    assert outcomes(database, topic)["records"] == 10
    _delete_before(topic, 5)
    status, said, _ = here.run(settings, "replay", "topics", "--to", "10")
    assert status == 0
    assert "partition 0: 5 records of what was asked for have left Kafka; the log begins at 5" in said
    assert "5 records read again: 5 known" in said
    # Nobody read 10 to 19, and beginning in the middle would leave some of them out for good.
    refused = here.replay(settings, "--from", "15", status=1)
    assert "would leave 5 records out for good" in refused["partitions"][0]["refused"]
    _delete_before(topic, 12)
    gone = here.replay(settings, status=1)
    assert "2 records are gone from Kafka" in gone["partitions"][0]["refused"]
    assert outcomes(database, topic)["records"] == 10


@pytest.mark.partitions(1)
def test_a_session_that_more_partitions_spread_is_one_session(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    produce(topic, turn("s", 0))
    here.replay(settings)
    _partitions(topic, 3)
    later = [
        Record(one.value, key=one.key, partition=number % 3)
        for number, one in enumerate([*turn("s", 1), *turn("s", 2)])
    ]
    produce(topic, later)
    here.replay(settings)
    assert rows(database, "select turn_id, status from turnledger.turns order by 1") == [
        ("t0", "completed"),
        ("t1", "completed"),
        ("t2", "completed"),
    ]
    assert here.replay(settings)["again"]["known"] == 15
    verified(database, topic)


@pytest.mark.partitions(2)
def test_a_replay_that_is_killed_again_and_again_ends_as_one_that_was_not(
    topic: Topic, database: str, start: Start, here: Replaying
) -> None:
    settings = environment(topic, database)
    produce(topic, fleet(6, 20))
    rng = random.Random(7)
    for _ in range(3):
        running = start("replay", "topics", "--rate", "150", environment=settings)
        time.sleep(rng.uniform(1.2, 3.0))
        running.kill9()
    here.replay(settings)
    assert outcomes(database, topic) == {
        "records": 600,
        "accepted": 600,
        "duplicates": 0,
        "conflicts": 0,
        "dead": 0,
    }
    assert len(ledger(database)["turns"]) == 120
    # The second reading, cut short, goes on where it was.
    running = start("replay", "topics", "--rate", "100", environment=settings)
    deadline = time.monotonic() + 20
    while not rows(
        database,
        "select 1 from ledger.topic_replay_partitions where next_offset between 1 and 250 and records > 0",
    ):
        assert time.monotonic() < deadline and running.running(), running.output()
        time.sleep(0.1)
    running.kill9()
    ended = here.replay(settings)
    assert (ended["resumed"], ended["again"]["records"], ended["again"]["known"]) == (True, 600, 600)
    verified(database, topic)


def _delete_before(topic: Topic, offset: int) -> None:
    """Retention, at once."""

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            await admin.delete_records({TopicPartition(topic.name, 0): RecordsToDelete(before_offset=offset)})
        finally:
            await admin.close()

    run_apart(delete())


def _partitions(topic: Topic, count: int) -> None:
    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=topic.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic.name: NewPartitions(count)})
        finally:
            await admin.close()

    run_apart(create())
