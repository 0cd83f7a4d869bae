"""Forty hostile records among good ones (contract 15): each ends as it must, the good ones are all there, the worker never restarts."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.fixtures.hostile import HOSTILE, Hostile
from tests.integration.ingesting import (
    environment,
    event,
    one,
    outcomes,
    rows,
    until_applied,
    until_projected,
)
from tests.stack.commands import Running, eventually
from tests.stack.servers import Servers
from tests.stack.topics import Record, Topic, produce, run_apart

GOOD = 200


def big_topic(stack: Servers, name: str) -> Topic:
    """A topic whose broker takes records beyond the worker's limit."""

    async def create() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka_bootstrap)
        await admin.start()
        try:
            await admin.create_topics(
                [NewTopic(name, 2, 1, topic_configs={"max.message.bytes": str(8 * 1024 * 1024)})]
            )
        finally:
            await admin.close()

    run_apart(create())
    return Topic(name, 2, stack.kafka_bootstrap)


def test_forty_hostile_records_end_as_they_must_and_harm_nobody(
    stack: Servers, database: str, start: Callable[..., Running]
) -> None:
    assert len(HOSTILE) == 40
    topic = big_topic(stack, f"hostile-{secrets.token_hex(6)}")
    records: list[Record] = []
    places: dict[int, Hostile] = {}
    for number in range(GOOD):
        records.append(event(f"good-{number % 10}", number // 10))
        if number < len(HOSTILE):
            places[len(records)] = HOSTILE[number]
            # All on one partition beside good ones: a poison record must not hold its neighbours up.
            key = b"default/odd" if HOSTILE[number].end == "accepted" else b"default/hostile"
            records.append(Record(HOSTILE[number].value, key=key))
    sent = produce(topic, records)
    worker = start("worker", environment=environment(topic, database))
    until_applied(database, topic, len(records), worker)
    until_projected(database, topic)

    letters = {
        (row[0], row[1]): row[2:]
        for row in rows(
            database,
            "select partition, kafka_offset, reason, field, raw, raw_bytes, detail from ledger.dead_letters",
        )
    }
    for index, hostile in places.items():
        found = letters.pop(sent[index], None)
        if hostile.end != "dead":
            assert found is None, hostile.name
            continue
        assert found is not None, hostile.name
        reason, field, raw, size, _ = found
        assert (hostile.name, reason, field) == (hostile.name, hostile.reason, hostile.field)
        assert size == (None if hostile.value is None else len(hostile.value)), hostile.name
        assert raw == (None if hostile.value is None else hostile.value[: 64 * 1024]), hostile.name
    assert letters == {}

    ends = [hostile.end for hostile in HOSTILE]
    assert outcomes(database, topic) == {
        "records": GOOD + 40,
        "accepted": GOOD + ends.count("accepted"),
        "duplicates": 0,
        "conflicts": 0,
        "dead": ends.count("dead"),
    }
    good = rows(
        database,
        "select s.session_id, count(*), max(e.seq) from ledger.events e join ledger.streams st using (stream_no) "
        "join ledger.sessions s using (session_no) where s.session_id like 'good-%%' group by 1 order by 1",
    )
    assert good == [(f"good-{n}", 20, 19) for n in range(10)]
    # Tokens that are no count: null, and the original stays.
    assert rows(
        database, "select message_id, output_tokens from turnledger.model_calls order by message_id"
    ) == [(f"m{n}", None) for n in range(4)]
    kept = one(rows(database, "select raw from ledger.events where type = 'usage.reported' and seq = 3"))[0]
    assert b"1" + b"0" * 30 in kept
    assert worker.running()
    assert "error of its own" not in worker.output()
    assert worker.stop() == 0


def test_a_key_that_disagrees_with_the_body_is_accepted_under_the_body_and_found(
    topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    body = json.dumps({"session_id": "inside", "seq": 0, "type": "note"}).encode()
    produce(topic, [Record(body, key=b"default/outside"), event("inside", 1)])
    worker = start("worker", environment=environment(topic, database))
    until_applied(database, topic, 2, worker)
    assert rows(database, "select session_id from ledger.sessions") == [("inside",)]
    found = one(
        rows(
            database,
            "select session_id, severity, count, rows from turnledger.findings where \"check\" = 'key_mismatch'",
        )
    )
    assert found[:3] == ("inside", "warning", 1)
    assert found[3][0]["topic"] == topic.name


def test_a_projection_row_that_postgres_refuses_is_a_dead_letter_and_the_rest_is_stored(
    topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    def matched(session: str, number: bytes) -> list[Record]:
        rule = b'{"session_id":"%b","seq":1,"type":"security.rule_matched","turn_id":"t","payload":{"rule_id":"r","rule":{"n":%b}}}'
        return [
            event(session, 0, "turn.started", turn_id="t"),
            Record(rule % (session.encode(), number), key=b"default/" + session.encode()),
            event(session, 2, "turn.completed", turn_id="t", payload={"status": "completed"}),
        ]

    # A number of more digits than Postgres' numeric holds, between two sessions that are as they should be.
    beyond = matched("beyond", b"1" + b"0" * 150_000)
    produce(topic, [*matched("before", b"1"), *beyond, *matched("after", b"1")])
    worker = start("worker", environment=environment(topic, database))
    until_applied(database, topic, 9, worker)
    until_projected(database, topic)
    letter = one(rows(database, "select reason, session_id, detail from ledger.dead_letters"))
    assert letter[:2] == ("refused_by_database", "beyond")
    assert "session-level rows was refused (SQLSTATE 22" in letter[2]
    assert "its events are in the ledger" in letter[2]
    assert outcomes(database, topic)["accepted"] == 9
    turns = rows(
        database,
        "select s.session_id from projection_a.turns t join ledger.sessions s using (session_no) order by 1",
    )
    assert turns == [("after",), ("before",), ("beyond",)]
    matches = rows(database, "select session_id from turnledger.security_rule_events order by 1")
    assert matches == [("after",), ("before",)]
    kept = one(
        rows(
            database,
            "select e.raw from ledger.events e join ledger.streams using (stream_no) join ledger.sessions s using (session_no) "
            "where s.session_id = 'beyond' and e.seq = 1",
        )
    )
    assert kept == (beyond[1].value,)
    assert worker.running()


@pytest.mark.partitions(1)
def test_a_refused_projection_points_at_the_sessions_last_record_also_where_it_was_read_from_the_ledger(
    topic: Topic, database: str, start: Callable[..., Running]
) -> None:
    rule = b'{"session_id":"beyond","seq":0,"type":"security.rule_matched","payload":{"rule_id":"r","rule":{"n":1%b}}}'
    found = "select partition, kafka_offset, batch_no from ledger.dead_letters"
    refused = Record(rule % (b"0" * 150_000), key=b"default/beyond")
    produce(topic, [event("before", 0), refused, event("beyond", 1), event("after", 0)])
    worker = start("worker", environment=environment(topic, database))
    until_applied(database, topic, 4, worker)
    until_projected(database, topic)
    assert rows(database, found) == [(0, 2, None)]
    assert worker.stop() == 0

    def folded_again() -> list[tuple[object, ...]]:
        """What a worker says that takes the session from the ledger: none of its records comes to it."""
        with psycopg.connect(database) as link:
            link.execute("update ledger.ingest_progress set flushed_batch = 0")
        again = start("worker", environment=environment(topic, database))
        eventually(
            lambda: rows(database, "select min(flushed_batch) > 0 from ledger.ingest_progress") == [(True,)],
            what="everything is folded again",
        )
        until_projected(database, topic)
        assert again.stop() == 0
        return rows(database, found)

    # It is the same refusal, so it is the same letter.
    assert folded_again() == [(0, 2, None)]
    with psycopg.connect(database) as link:
        link.execute("delete from ledger.dead_letters")
    assert folded_again() == [(0, 2, None)]
