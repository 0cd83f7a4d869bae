"""What `flushed_batch` promises: of the batches up to it, every projection is whole, also when the worker is killed right behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.ingesting import at, environment, event, rows, until_applied
from tests.stack import servers
from tests.stack.commands import Running, eventually, run
from tests.stack.topics import Record, Topic, create_topic, produce

Start = Callable[..., Running]
RARELY = {"TURNLEDGER_OPEN_TURN_SECONDS": "90"}
"""Open turns are written so rarely that a kill comes before."""


def on(partition: int, record: Record) -> Record:
    return Record(record.value, record.key, partition)


def turn(session: str, seq: int, kind: str, **payload: Any) -> Record:
    return event(session, seq, kind, turn_id="t", occurred_at=at(seq), payload=payload)


def started(session: str) -> Record:
    return turn(session, 0, "turn.started", input_preview="hello")


def spoken(session: str, seq: int) -> Record:
    return turn(session, seq, "message.recorded", role="assistant", text="a word")


def until_open(database: str, *sessions: str) -> None:
    """Wait until the open turns of these sessions are projected: the next write of open turns is a while away then."""
    found = "select count(*) from turnledger.turns where session_id = any(%s) and status = 'open'"
    eventually(
        lambda: rows(database, found, list(sessions)) == [(len(sessions),)],
        what="the open turns are projected",
    )


def events_counted(database: str, session: str) -> int:
    found = rows(
        database,
        "select (record -> 'counts' ->> 'events')::int8 from turnledger.turns where session_id = %s",
        session,
    )
    return int(found[0][0])


@pytest.mark.partitions(2)
def test_what_came_through_another_partition_than_the_sessions_home_is_whole_after_a_kill(
    topic: Topic, database: str, start: Start
) -> None:
    settings = environment(topic, database)
    worker = start("worker", environment=settings | RARELY)
    produce(topic, [on(0, started("s"))])
    until_applied(database, topic, 1, worker)
    until_open(database, "s")
    produce(topic, [on(1, spoken("s", 1))])
    until_applied(database, topic, 2, worker)
    worker.kill9()
    assert rows(database, "select home_partition from ledger.sessions") == [(0,)]

    start("worker", environment=settings)
    eventually(lambda: events_counted(database, "s") == 2, seconds=30, what="the turn holds both events")


def test_a_killed_worker_comes_back_although_sessions_of_another_one_are_in_its_last_batches(
    stack: servers.Servers, topic: Topic, database: str, start: Start
) -> None:
    other = create_topic(stack.kafka_bootstrap, 1)
    home = environment(topic, database)
    abroad = environment(other, database)
    start("worker", environment=home)
    produce(topic, [started("s")])
    until_open(database, "s")
    worker = start("worker", environment=abroad | RARELY)
    produce(other, [started("t")])
    until_open(database, "t")
    produce(other, [spoken("t", 1)])
    until_applied(database, other, 2, worker)
    produce(other, [spoken("s", 1)])
    until_applied(database, other, 3, worker)
    worker.kill9()
    behind = (
        "select count(distinct st.session_no) from ledger.ingest_progress p join ledger.ingest_batches b using (topic, partition)"
        " join ledger.events e using (batch_no) join ledger.streams st using (stream_no) where p.topic = %s and b.batch_no > p.flushed_batch"
    )
    assert rows(database, behind, other.name) == [(2,)]

    again = start("worker", environment=abroad)
    produce(other, [spoken("t", 2)])
    until_applied(database, other, 4, again, seconds=30)
    eventually(lambda: events_counted(database, "t") == 3, seconds=15, what="the turn holds its three events")
    assert run("rollup", "--once", environment=abroad).returncode == 0
    done = run("verify", environment=abroad)
    assert done.returncode == 0, done.stdout + again.output()
