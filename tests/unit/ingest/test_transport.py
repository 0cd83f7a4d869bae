"""The transport: found by its scheme, bounded in bytes, never ahead of Postgres."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import faust.transport
from aiokafka import TopicPartition

from turnledger.ingest.app import build
from turnledger.ingest.batch import Fetched
from turnledger.ingest.settings import WorkerSettings
from turnledger.ingest.transport import (
    FETCH_BYTES,
    FETCH_WAIT_MS,
    POLL_SECONDS,
    Budget,
    Consumer,
    PassThrough,
    Transport,
)


def test_the_scheme_turnledger_selects_the_transport() -> None:
    assert faust.transport.by_name("turnledger") is Transport


async def test_a_full_budget_lets_nobody_fetch_until_something_is_finished() -> None:
    budget = Budget(100)
    assert await budget.room(0.01)
    budget.take(120)
    assert not await budget.room(0.01)
    waiting = asyncio.create_task(budget.room(5))
    await asyncio.sleep(0)
    budget.give_back(30)
    assert await waiting
    assert budget.used == 90


async def test_the_app_opens_no_port_and_takes_brokers_as_they_are_given() -> None:
    app = build("one:9092, two:9093", WorkerSettings(group_id="g"), Budget(1))
    assert [str(url) for url in app.conf.broker] == ["turnledger://one:9092", "turnledger://two:9093"]
    assert not app.conf.web_enabled
    assert list(app.boot_strategy.web_server()) == []
    assert list(app.boot_strategy.kafka_producer()) == []


async def test_the_broker_gathers_what_a_fleet_sends_and_answers_before_anybody_waits_for_it() -> None:
    app = build("one:9092", WorkerSettings(group_id="g"), Budget(1))
    consumer = app.consumer
    assert isinstance(consumer, Consumer)
    thread = consumer._new_consumer_thread()
    inner = thread._create_worker_consumer(app.transport)
    assert (inner._fetch_min_bytes, inner._fetch_max_wait_ms) == (FETCH_BYTES, FETCH_WAIT_MS)
    assert inner._max_partition_fetch_bytes > FETCH_BYTES
    assert FETCH_WAIT_MS < POLL_SECONDS * 1000


async def test_what_is_told_to_kafka_is_what_postgres_has_whatever_was_acknowledged() -> None:
    app = build("one:9092", WorkerSettings(group_id="g"), Budget(1))
    consumer = app.consumer
    assert isinstance(consumer, Consumer)
    tp = consumer._new_topicpartition("events", 3)
    consumer._acked[tp].extend([100, 200])
    assert consumer._new_offset(tp) is None
    app.wiring.applied = {("events", 3): 150}
    consumer._acked[tp].append(300)
    assert consumer._new_offset(tp) == 150
    assert list(consumer._acked[tp]) == []


async def test_a_batch_goes_through_unparsed_and_its_message_points_at_its_first_record() -> None:
    app = build("one:9092", WorkerSettings(group_id="g"), Budget(1))
    consumer = app.consumer
    assert isinstance(consumer, Consumer)

    class Record:
        offset = 41
        timestamp = 0
        key = value = b""

    fetched = Fetched(("events", 3), 7, [Record()], 0)
    message = consumer._message(consumer._new_topicpartition("events", 3), fetched, 2)
    assert (message.offset, message.generation_id) == (41, 2)
    event = await PassThrough().compile(app)(message)
    assert event.value is fetched


async def test_a_partition_that_is_placed_ends_the_wait_of_a_thread_that_reads_none() -> None:
    class Member:
        """A member of the group that was given a partition and reads none of it yet."""

        _closed = False
        seeks: tuple[tuple[TopicPartition, int], ...] = ()

        def __init__(self) -> None:
            self._fetcher = self._coordinator = self

        def check_errors(self) -> None:
            pass

        def assignment(self) -> set[TopicPartition]:
            return {TopicPartition("events", 0)}

        def paused(self) -> set[TopicPartition]:
            return set()

        def seek(self, tp: TopicPartition, offset: int) -> None:
            self.seeks += ((tp, offset),)

    app = build("one:9092", WorkerSettings(group_id="g"), Budget(1))
    consumer = app.consumer
    assert isinstance(consumer, Consumer)
    consumer.resume_flow()
    thread = consumer._new_consumer_thread()
    member = Member()
    thread._consumer = cast(Any, member)
    waiting = asyncio.create_task(thread._fetch(3600))
    await asyncio.sleep(0)
    assert await thread._place(TopicPartition("events", 0), 7, 1)
    assert await asyncio.wait_for(waiting, 60) == []
    assert member.seeks == ((TopicPartition("events", 0), 7),)
