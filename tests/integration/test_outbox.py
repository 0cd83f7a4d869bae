"""`turnledger outbox`: turn records reach their topic after the commit, at least once, each session's in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.integration.here import Here
from tests.integration.ingesting import environment, event, rows
from tests.stack.commands import Running, eventually
from tests.stack.topics import Record, Topic, create_topic, produce, run_apart
from turnledger.store import outbox

Start = Callable[..., Running]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capsys)


def turn(session: str, number: int) -> list[Record]:
    links: dict[str, Any] = {"turn_id": f"t{number}"}
    return [
        event(session, 3 * number, "turn.started", **links),
        event(session, 3 * number + 1, "message.recorded", payload={"role": "user", "text": "go"}, **links),
        event(session, 3 * number + 2, "turn.completed", payload={"status": "completed"}, **links),
    ]


def taken(topic: Topic) -> list[tuple[int, str, bytes, dict[str, str]]]:
    """(partition, key, value, headers) of every record of a topic, in their order."""

    async def read() -> list[tuple[int, str, bytes, dict[str, str]]]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=topic.bootstrap, group_id=None, enable_auto_commit=False
        )
        await consumer.start()
        try:
            found = []
            for number in range(topic.partitions):
                at = TopicPartition(topic.name, number)
                end = (await consumer.end_offsets([at]))[at]
                consumer.assign([at])
                consumer.seek(at, 0)
                while await consumer.position(at) < end:
                    for record in (await consumer.getmany(at, timeout_ms=500)).get(at, ()):
                        told = {name: value.decode() for name, value in record.headers}
                        found.append((number, record.key.decode(), record.value, told))
            return found
        finally:
            await consumer.stop()

    return run_apart(read())


def names(found: list[tuple[int, str, bytes, dict[str, str]]]) -> list[tuple[str, str]]:
    """(session, turn_id) in the order of the records."""
    return [(key.split("/")[1], json.loads(value)["turn_id"]) for _, key, value, _ in found]


@pytest.mark.partitions(2)
def test_turns_that_end_and_their_revisions_are_sent_after_their_commit_in_a_sessions_order(
    topic: Topic, database: str, start: Start, here: Here
) -> None:
    sent_to = create_topic(topic.bootstrap, 3)
    settings = environment(topic, database) | {
        "TURNLEDGER_OUTBOX_TOPIC": sent_to.name,
        "TURNLEDGER_OUTBOX_HEALTH_PORT": "0",
    }

    def command(*arguments: str) -> str:
        status, out, err = here.run(settings, *arguments)
        assert status == 0, err
        return out

    # Off: whoever writes turns writes nothing else.
    produce(topic, turn("a", 0))
    command("replay", "topics")
    assert command("outbox", "status") == "the outbox is off; nothing waits\n"
    assert command("outbox", "on", "--fill") == "the outbox is on; 1 turns that have ended wait to be sent\n"
    produce(topic, [*turn("a", 1), *turn("b", 0), event("c", 0, "turn.started", turn_id="open")])
    command("replay", "topics")
    assert rows(database, "select count(*) from ledger.outbox") == [(3,)]
    assert command("outbox", "run", "--once") == "3 rows of the outbox were sent; nothing waits\n"
    first = taken(sent_to)
    assert sorted(names(first)) == [("a", "t0"), ("a", "t1"), ("b", "t0")]
    assert [name for name in names(first) if name[0] == "a"] == [("a", "t0"), ("a", "t1")]
    # What is sent is the record as it is stored, whose hash is the digest.
    for partition, key, value, told in first:
        assert (told["revision"], told["digest"]) == ("1", hashlib.sha256(value).hexdigest())
        assert {row[0] for row in first if row[1].split("/")[1] == key.split("/")[1]} == {partition}
    # A late event revises a turn that has ended; a session that is folded again says the same and sends nothing new to readers of digests.
    produce(
        topic, [event("a", 6, "message.recorded", turn_id="t0", payload={"role": "user", "text": "late"})]
    )
    command("replay", "topics")
    command("outbox", "run", "--once")
    assert [(key, told["revision"]) for _, key, _, told in taken(sent_to) if told["revision"] != "1"] == [
        ("default/a/t0", "2")
    ]

    # A sender that is killed between the broker and the ledger's row sends once more, and loses nothing; another one stands by meanwhile.
    worker = start("worker", environment=settings)
    one = start("outbox", "run", environment=settings)
    eventually(lambda: "health at" in one.output(), seconds=30, what="a sender")
    for number in range(10):
        produce(topic, turn("d", number))
        if number == 5:
            one.kill9()
            one = start("outbox", "run", environment=settings)

    def all_there() -> bool:
        assert worker.running() and one.running(), worker.output() + one.output()
        return {name for name in names(taken(sent_to)) if name[0] == "d"} == {
            ("d", f"t{number}") for number in range(10)
        }

    eventually(all_there, seconds=60, what="ten turns sent")
    order = list(dict.fromkeys(name for name in names(taken(sent_to)) if name[0] == "d"))
    assert order == [("d", f"t{number}") for number in range(10)]
    eventually(
        lambda: rows(database, "select count(*) from ledger.outbox") == [(0,)],
        seconds=20,
        what="an empty outbox",
    )
    assert one.stop() == 0 and worker.stop() == 0

    assert command("outbox", "off") == "the outbox is off\n"
    produce(topic, turn("a", 9))
    command("replay", "topics")
    assert rows(database, "select count(*) from ledger.outbox") == [(0,)]


def test_a_broker_that_is_away_and_a_topic_that_is_not_there_are_sentences(
    database: str, topic: Topic, here: Here
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into ledger.sessions (session_no, tenant, session_id, home_topic, home_partition) values (1, 'acme', 's', 't', 0)"
        )
        outbox.switch(connection, on=True)
        connection.execute(
            "insert into projection_a.turns (session_no, turn_no, turn_key, status, digest) values (1, 1, '#t', 'completed', 'd')"
        )
        connection.execute(
            "insert into projection_a.turn_records (session_no, turn_no, revision, digest, record) values (1, 1, 1, 'd', '{}')"
        )
        assert outbox.state(connection).rows == 1
    settings = environment(topic, database) | {"TURNLEDGER_OUTBOX_TOPIC": "nobody-made-this"}
    status, _, said = here.run(
        settings | {"TURNLEDGER_KAFKA_BOOTSTRAP": "127.0.0.1:1"}, "outbox", "run", "--once"
    )
    assert (status, "the broker at 127.0.0.1:1 does not take records of nobody-made-this" in said) == (
        2,
        True,
    ), said
    assert rows(database, "select count(*) from ledger.outbox") == [(1,)]


def test_a_rebuild_fills_the_slot_that_is_not_shown_and_no_turn_of_it_waits(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        outbox.switch(connection, on=True)
        for slot in ("projection_b", "projection_a"):
            connection.execute(
                f"insert into {slot}.turns (session_no, turn_no, turn_key, status, digest) "  # type: ignore[arg-type]
                "values (1, 1, '#ended', 'completed', 'x'), (1, 2, '#open', 'open', 'y')"
            )
            told = connection.execute("select turn_key from ledger.outbox").fetchall()
            assert told == ([] if slot == "projection_b" else [("#ended",)])
