"""The Kafka transport of the Faust app: one Faust message is one fetched batch of one partition (design 3).

Registered under the scheme ``turnledger://`` by the entry-point group ``faust.transports``. Everything is an override in a
subclass; nothing is patched. Faust keeps group membership, rebalance and supervision. What is read from where is decided by
leases: a partition is fetched only after :meth:`Consumer.place` put it at the offset that Postgres names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import aiokafka
from aiokafka import TopicPartition
from aiokafka.errors import ConsumerStoppedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata
from faust.app import App
from faust.serializers.schemas import Schema
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from turnledger.ingest.batch import Fetched, Partition

log = logging.getLogger("turnledger.kafka")

T = TypeVar("T")

POLL_SECONDS = 0.2
"""Longest wait of one fetch: also how long a newly placed partition may have to wait for its first one beside others."""

FETCH_BYTES = 256 * 1024
FETCH_WAIT_MS = 50
"""The broker answers a fetch once it has so many bytes (compressed: some hundred events) or that long has passed. Answered at once, a fleet that sends all the
time caused a hundred fetches of ten batches a second, which were a third of the worker's processor time at a quarter of its rate."""

OUTAGE_PAUSE_SECONDS = 0.5
"""Pause after a fetch that failed, so that an outage does not spin."""


class GroupMembershipLost(Exception):
    """The group will not have this member back: another worker uses its static member id."""


class Budget:
    """A cap on the bytes that were handed out and are not yet finished: Faust's own back-pressure counts messages and naps a
    whole second when it is full (design 3.2)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._room = asyncio.Event()
        self._room.set()

    def take(self, size: int) -> None:
        self.used += size
        if self.used >= self.limit:
            self._room.clear()

    def give_back(self, size: int) -> None:
        self.used -= size
        if self.used < self.limit:
            self._room.set()

    async def room(self, seconds: float) -> bool:
        """Wait for room, at most so many seconds."""
        if not self._room.is_set():
            try:
                await asyncio.wait_for(self._room.wait(), seconds)
            except TimeoutError:
                return False
        return True


@dataclass
class Bounds:
    """Where a partition's log begins and ends (the offset after the last record)."""

    start: int
    end: int


@dataclass
class Wiring:
    """What the app gives its transport; found at ``app.wiring``."""

    budget: Budget
    applied: Mapping[Partition, int] = field(default_factory=dict)
    """Next offset of each partition as Postgres has it. Only this is ever committed to Kafka."""
    on_broker_error: Callable[[Exception], None] = lambda error: None
    on_membership_lost: Callable[[Exception], None] = lambda error: None
    static_member: str | None = None


class PassThrough(Schema[Any, Any]):
    """Hands a batch on unparsed: the value of the event is the :class:`Fetched`."""

    def compile(self, app: Any, **kwargs: Any) -> Any:
        create_event = app.create_event

        async def decode(message: Any, *, propagate: bool = False) -> Any:
            return create_event(None, message.value, message.headers, message)

        return decode


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread around ``AIOKafkaConsumer``: fetches under leases.

    Leases live in this thread. A seek sets the lease in the same step, and records are stamped in the step that takes them
    out of the fetcher, so a stamp never lies.
    """

    # mode logs each start and stop under the module's name otherwise.
    logger = driver.logger
    _leases: dict[TopicPartition, int]
    _placed: asyncio.Event
    _ahead: asyncio.Task[list[Fetched]] | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._leases = {}
        self._placed = asyncio.Event()
        self._ahead = None

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        # Faust hands neither on; both are read when the consumer starts.
        consumer._fetch_min_bytes, consumer._fetch_max_wait_ms = FETCH_BYTES, FETCH_WAIT_MS
        return consumer

    async def on_thread_stop(self) -> None:
        """End the fetch that runs ahead, then the consumer."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None
        await super().on_thread_stop()

    @property
    def wiring(self) -> Wiring:
        return cast(WiredApp, self.app).wiring

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in this thread's loop. Called from the main loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.thread_loop))

    async def _take(self, seconds: float) -> list[Fetched]:
        """What was fetched meanwhile, or the next fetch. While records come, one fetch runs ahead: they are unpacked here while the main
        thread folds those before, and it never waits for them. (It waited a seventh of its time.)"""
        fetch = self._ahead or asyncio.ensure_future(self._fetch(seconds))
        self._ahead = None
        fetched = await fetch
        if fetched:
            self._ahead = asyncio.ensure_future(self._fetch(seconds))
        return fetched

    async def _fetch(self, seconds: float) -> list[Fetched]:
        consumer = self._ensure_consumer()
        if not self.consumer.flow_active:
            return []
        fetcher = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        if not await self._member(consumer):
            return []
        assigned = consumer.assignment()
        wanted = [tp for tp in self._leases if tp in assigned]
        if not wanted:
            self._placed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._placed.wait(), seconds)
            return []
        with fetcher._subscriptions.fetch_context():
            records = await fetcher.fetched_records(
                wanted, timeout=seconds, max_records=consumer._max_poll_records
            )
        # No await between taking the records out and stamping them.
        return [
            Fetched(
                partition=(tp.topic, tp.partition),
                lease=self._leases[tp],
                records=batch,
                size=sum([r.serialized_key_size + r.serialized_value_size for r in batch]),
            )
            for tp, batch in records.items()
            if batch and tp in self._leases
        ]

    async def _member(self, consumer: aiokafka.AIOKafkaConsumer) -> bool:
        """Whether group membership is alive; a coordination task that died (a broker that restarts answers heartbeats with
        codes that aiokafka does not know) is begun anew with a new consumer."""
        try:
            consumer._coordinator.check_errors()
        except KafkaError as error:
            if self.wiring.static_member is not None and "UnknownError" in repr(error):
                raise GroupMembershipLost(str(error)) from None
            log.warning("group membership of this worker broke off (%s); it joins anew", error)
            await self._rejoin(consumer)
            return False
        return True

    async def _rejoin(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        topics = consumer.subscription()
        self._leases.clear()
        fresh = self._create_consumer(loop=self.thread_loop)
        try:
            await fresh.start()
        except KafkaError:
            await fresh.stop()
            raise
        self._consumer = fresh
        try:
            await consumer.stop()
        except KafkaError as error:
            log.info("the consumer that broke off did not end cleanly: %s", error)
        fresh.subscribe(topics=topics, listener=self._rebalance_listener)

    async def _place(self, tp: TopicPartition, offset: int, lease: int) -> bool:
        consumer = self._ensure_consumer()
        if tp not in consumer.assignment():
            return False
        consumer.seek(tp, offset)
        if tp in consumer.paused():
            consumer.resume(tp)
        self._leases[tp] = lease
        self._placed.set()
        return True

    async def _pause(self, tps: Iterable[TopicPartition]) -> None:
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        for tp in tps:
            self._leases.pop(tp, None)
            if tp in assigned:
                consumer.pause(tp)

    async def _bounds(self, tps: list[TopicPartition]) -> dict[Partition, Bounds]:
        consumer = self._ensure_consumer()
        starts = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        return {(tp.topic, tp.partition): Bounds(starts[tp], ends[tp]) for tp in tps}

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Tell Kafka how far we are. Advisory, for lag monitors: a refusal is no error, Postgres knows (design 3)."""
        consumer = self._ensure_consumer()
        assigned = consumer.assignment()
        wanted = {
            TopicPartition(tp.topic, tp.partition): OffsetAndMetadata(offset, "")
            for tp, offset in offsets.items()
            if TopicPartition(tp.topic, tp.partition) in assigned
        }
        try:
            if wanted:
                await consumer.commit(wanted)
        except (KafkaError, IllegalStateError) as error:
            log.info("Kafka did not take the advisory offsets: %s", error)
            return False
        return True


class Consumer(driver.Consumer):
    """Yields one message per fetched partition batch, its value a :class:`Fetched`."""

    logger = driver.logger
    _thread: ConsumerThread

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    @property
    def wiring(self) -> Wiring:
        return cast(WiredApp, self.app).wiring

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, ConsumerMessage]]:  # noqa: ASYNC109 - Faust's name
        """Fetch once and yield what came, one message a partition (design 3, point 1)."""
        if not self.flow_active:
            await self.wait(cast(Any, self.can_resume_flow))
        budget = self.wiring.budget
        if not await budget.room(timeout):
            return
        try:
            fetched = await self._thread.run(self._thread._take(POLL_SECONDS))
        except GroupMembershipLost as error:
            self.wiring.on_membership_lost(error)
            await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            return
        except KafkaError as error:
            if isinstance(error, self.consumer_stopped_errors):
                raise
            self.wiring.on_broker_error(error)
            await asyncio.sleep(OUTAGE_PAUSE_SECONDS)
            return
        if self.should_stop or not self.flow_active:
            return
        generation = self.app.consumer_generation_id
        for batch in fetched:
            tp = TP(*batch.partition)
            # Faust drops what lies before its read position and keeps every offset that it did not see in a list. Both are
            # ours to judge: the position comes from Postgres, and holes are counted there.
            self._read_offset[tp] = None
            budget.take(batch.size)
            yield tp, self._message(tp, batch, generation)

    def _message(self, tp: TP, batch: Fetched, generation: int | None) -> ConsumerMessage:
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            # The first offset: were it ever committed, nothing unprocessed would be passed.
            batch.first,
            cast(float, None),
            0,
            None,
            None,
            cast(Any, batch),
            None,
            0,
            batch.size,
            tp,
            generation_id=generation,
        )

    def _new_offset(self, tp: TP) -> int | None:
        """The offset to commit to Kafka: what Postgres holds, whatever was acknowledged (Faust acknowledges messages that it
        skips, and its own arithmetic passes messages in flight)."""
        self._acked[tp].clear()
        self._acked_index[tp].clear()
        return self.wiring.applied.get((tp.topic, tp.partition))

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Nothing: Kafka's committed offset decides nothing. The claim places each partition (design 3.1)."""
        return {}

    async def place(self, partition: Partition, offset: int, lease: int) -> bool:
        """Read ``partition`` from ``offset`` on, under ``lease``. False when it is not assigned to this worker any more."""
        return await self._thread.run(self._thread._place(TopicPartition(*partition), offset, lease))

    async def withdraw(self, partitions: Iterable[Partition]) -> None:
        """Stop fetching ``partitions``; they stay assigned."""
        await self._thread.run(self._thread._pause([TopicPartition(*p) for p in partitions]))

    async def bounds(self, partitions: Iterable[Partition]) -> dict[Partition, Bounds]:
        """Where each log begins and ends. Raises ``KafkaError`` when the broker does not answer."""
        return await self._thread.run(self._thread._bounds([TopicPartition(*p) for p in partitions]))


class Transport(driver.Transport):
    """``turnledger://host:port``."""

    Consumer = Consumer


class WiredApp(App):
    """A Faust app that carries the wiring of its transport."""

    logger = driver.logger
    wiring: Wiring
