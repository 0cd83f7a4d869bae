"""`turnledger replay topics`: known is left alone, missing is filled, unread is applied through the fence; beside workers, kills and retention."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from tests.integration.here import Here
from tests.integration.ingesting import environment, event, outcomes, rows, until_applied
from tests.integration.replaying import (
    COMPACTED,
    compact,
    delete_before,
    fleet,
    forget,
    more_partitions,
    turn,
)
from tests.stack import databases
from tests.stack.commands import Running
from tests.stack.servers import Servers
from tests.stack.topics import Record, Topic, create_topic, produce
from turnledger.doctor.verify import Topics, verify
from turnledger.ingest.batch import Fetched
from turnledger.ingest.round import Ingest
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


@pytest.mark.partitions(1)
def test_what_nobody_read_is_applied_with_the_collector_off_and_held_by_nobody_afterwards(
    topic: Topic, database: str, here: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(topic, fleet(4, 3))
    handed: list[weakref.ref[Any]] = []
    enabled: set[bool] = set()
    held: list[int] = []
    put, run = Ingest.put, Ingest.run

    def hear(ingest: Ingest, batch: Fetched) -> None:
        enabled.add(gc.isenabled())
        handed.extend(weakref.ref(record) for record in batch.records)
        put(ingest, batch)

    async def to_the_end(ingest: Ingest) -> None:
        await run(ingest)
        held.append(sum(one() is not None for one in handed))

    monkeypatch.setattr(Ingest, "put", hear)
    monkeypatch.setattr(Ingest, "run", to_the_end)
    # Twenty records a fetch.
    here.replay(environment(topic, database), "--rate", "200")
    assert (len(handed), enabled, gc.isenabled()) == (60, {False}, True)
    # Whoever fetches still has the last of them in hand.
    assert held[0] <= 20
    assert outcomes(database, topic)["accepted"] == 60


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
def test_what_a_reader_that_died_had_not_projected_is_projected(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    produce(topic, fleet(2, 2))
    here.replay(settings)
    before = ledger(database)
    # As if it had died between the ledger and the projections.
    with psycopg.connect(database) as connection:
        connection.execute("delete from projection_a.turns")
        connection.execute("update ledger.ingest_progress set flushed_batch = 0")
    here.replay(settings, "--dry-run")
    assert ledger(database)["turns"] == []
    here.replay(settings)
    assert ledger(database) == before
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
    delete_before(topic, 5)
    status, said, _ = here.run(settings, "replay", "topics", "--to", "10")
    assert status == 0
    assert "partition 0: 5 records of what was asked for have left Kafka; the log begins at 5" in said
    assert "5 records read again: 5 known" in said
    # Nobody read 10 to 19, and beginning in the middle would leave some of them out for good.
    refused = here.replay(settings, "--from", "15", status=1)
    assert "would leave 5 records out for good" in refused["partitions"][0]["refused"]
    delete_before(topic, 12)
    gone = here.replay(settings, status=1)
    assert "2 records are gone from Kafka" in gone["partitions"][0]["refused"]
    assert outcomes(database, topic)["records"] == 10


def test_a_compacted_topic_is_said_and_offsets_without_a_record_are_named_and_not_waited_for(
    stack: Servers, database: str, database_template: str, here: Replaying
) -> None:
    topic = create_topic(stack.kafka_bootstrap, 1, config=COMPACTED)
    settings = environment(topic, database)
    produce(topic, fleet(2, 2))
    here.replay(settings)
    # Left of 20 records: the last one of each session, at 14 and 19, and one more at 20 whose transaction ended at 21.
    compact(topic, left=3)
    missing = [{"partition": 0, "offsets": 19, "ranges": 3, "named": [[0, 14], [15, 19], [21, 22]]}]

    again = here.replay(settings)
    assert (again["compacted"], again["missing"], again["again"]["known"]) == (True, missing, 2)
    assert (again["unread"]["records"], again["whole"]) == (1, True)
    assert len(ledger(database)["events"]) == 21
    verified(database, topic)

    other = databases.create(stack.database_url, template=database_template)
    settings = environment(topic, other)
    assert here.replay(settings, "--dry-run")["missing"] == missing
    status, said, _ = here.run(settings, "replay", "topics")
    assert status == 0
    before, _, after = said.partition("read again")
    assert f"{topic.name} is compacted" in before
    assert "partition 0: 19 offsets have no record" in after and "0 to 13, 15 to 18, 21\n" in after
    # What is gone from Kafka is missing from the streams, by its numbers.
    gaps = "select session_id, from_seq, to_seq, state from turnledger.gaps order by 1"
    assert rows(other, gaps) == [("s0", 0, 8, "open"), ("s1", 0, 8, "open")]
    assert here.replay(settings)["again"]["known"] == 3
    verified(other, topic)
    databases.drop(stack.database_url, other)


@pytest.mark.partitions(1)
def test_a_session_that_more_partitions_spread_is_one_session(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    produce(topic, turn("s", 0))
    here.replay(settings)
    more_partitions(topic, 3)
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


@pytest.mark.partitions(1)
def test_a_clock_that_jumps_leaves_no_record_between_the_ends_out(
    topic: Topic, database: str, here: Replaying
) -> None:
    settings = environment(topic, database)
    noon = 1_772_366_400_000  # 2026-03-01T12:00:00Z
    hours = (0, 2, -3, 4)
    produce(
        topic,
        [
            Record(one.value, one.key, timestamp_ms=noon + hours[number] * 3_600_000)
            for number in range(4)
            for one in turn("s", number)
        ],
    )
    told = here.replay(settings, "--to", "2026-03-01T13:00:00Z")
    assert told["unread"]["records"] == 5
    here.replay(settings)
    before = ledger(database)
    # The first record of 13:00 or later stands at 5; the turn behind it whose clock had jumped back is read with the others.
    assert here.replay(settings, "--from", "2026-03-01T13:00:00Z")["again"]["records"] == 15
    assert (
        here.replay(settings, "--from", "2026-03-01T08:00:00Z", "--to", "2026-03-01T15:30:00Z")["again"][
            "known"
        ]
        == 15
    )
    assert here.replay(settings, "--from", "2026-03-01T17:00:00Z")["again"]["records"] == 0
    assert ledger(database) == before and len(before["turns"]) == 4
    verified(database, topic)
