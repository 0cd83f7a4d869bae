"""Owns a replay's side of Kafka: a consumer of no group, its partitions by assignment, between fixed ends. It commits nothing and moves no offset."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from turnledger.errors import TurnledgerError
from turnledger.ingest.batch import Fetched, Partition
from turnledger.ingest.seats import Bounds
from turnledger.ingest.seats import BrokerAway as NoAnswer
from turnledger.kafka import connect
from turnledger.replay.ranges import Bound, Log, Missing

T = TypeVar("T")

PATIENCE_SECONDS = 30.0
"""A broker that gives nothing for so long is away."""
POLL_MS = 200


class BrokerAway(TurnledgerError):
    """Kafka does not answer."""


class NoSuchTopic(TurnledgerError):
    """The broker has no topic of that name."""


class Pace:
    """At most so many records a second; 0 is without limit."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.clock = clock
        self._free_at = clock()

    @property
    def at_once(self) -> int | None:
        """Records of one fetch: a tenth of a second's."""
        return max(1, int(self.rate / 10)) if self.rate else None

    def pause(self, records: int) -> float:
        """Seconds to wait after so many records."""
        if not self.rate:
            return 0.0
        now = self.clock()
        self._free_at = max(self._free_at, now) + records / self.rate
        return self._free_at - now


class Broker:
    """The broker as a replay asks it."""

    def __init__(self, bootstrap: str, consumer: AIOKafkaConsumer) -> None:
        self.bootstrap = bootstrap
        self.consumer = consumer

    async def _answer(self, asked: Awaitable[T]) -> T:
        return await asyncio.wait_for(asked, PATIENCE_SECONDS)

    async def logs(self, topic: str, start: Bound, end: Bound) -> dict[int, Log]:
        """Every partition of a topic as it is now. Raises :class:`NoSuchTopic`."""
        found = await self._answer(connect.partitions_of(self.bootstrap, [topic]))
        if topic not in found:
            raise NoSuchTopic(
                f"the broker at {self.bootstrap} has no topic {topic}: say another with --topic."
            )
        there = [TopicPartition(topic, number) for number in found[topic]]
        starts = await self._answer(self.consumer.beginning_offsets(there))
        ends = await self._answer(self.consumer.end_offsets(there))
        from_times, to_times = await self._times(there, start), await self._times(there, end)
        return {at.partition: Log(starts[at], ends[at], from_times.get(at), to_times.get(at)) for at in there}

    async def compacted(self, topic: str) -> bool | None:
        """Whether Kafka keeps of each key of it the last record alone. None where the broker does not say."""
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"cleanup.policy": None})
        async with connect.asking(self.bootstrap) as admin:
            (answer,) = await self._answer(admin.describe_configs([asked]))
        ((error_code, _, _, _, entries),) = answer.resources
        return None if error_code else any("compact" in entry[1].split(",") for entry in entries)

    async def _times(self, there: Sequence[TopicPartition], bound: Bound) -> dict[TopicPartition, int | None]:
        if bound.at is None:
            return {}
        found = await self._answer(self.consumer.offsets_for_times(dict.fromkeys(there, bound.at)))
        return {at: None if one is None else one.offset for at, one in found.items()}

    async def records(
        self, topic: str, partition: int, start: int, end: int, *, at_once: int, pace: Pace
    ) -> AsyncIterator[tuple[list[ConsumerRecord[bytes, bytes]], int]]:
        """The records of a range in pieces, each with the offset that it reaches. Offsets that retention takes meanwhile are passed over."""
        at = TopicPartition(topic, partition)
        self.consumer.assign([at])
        self.consumer.seek(at, start)
        position, moved = start, time.monotonic()
        while position < end:
            try:
                fetched = await self.consumer.getmany(
                    at, timeout_ms=POLL_MS, max_records=min(at_once, pace.at_once or at_once)
                )
            except OffsetOutOfRangeError:
                position = (await self._answer(self.consumer.beginning_offsets([at])))[at]
                self.consumer.seek(at, position)
                yield [], min(position, end)
                continue
            found = fetched.get(at, ())
            inside = [one for one in found if one.offset < end]
            reached = found[-1].offset + 1 if found else await self._answer(self.consumer.position(at))
            if reached > position:
                position, moved = reached, time.monotonic()
                yield inside, min(position, end)
                await asyncio.sleep(pace.pause(len(inside)))
            elif time.monotonic() - moved > PATIENCE_SECONDS:
                raise TimeoutError(f"nothing comes from offset {position} of partition {partition}")


@asynccontextmanager
async def broker(bootstrap: str) -> AsyncIterator[Broker]:
    """The broker, with a consumer of its own. What fails inside becomes :class:`BrokerAway`."""
    consumer = connect.reader(bootstrap, "turnledger replay")
    try:
        await asyncio.wait_for(consumer.start(), PATIENCE_SECONDS)
        yield Broker(bootstrap, consumer)
    except (*connect.AWAY, NoAnswer) as error:
        why = await connect.why(bootstrap, error)
        raise BrokerAway(
            f"the broker at {bootstrap} does not answer ({why}): start it or set TURNLEDGER_KAFKA_BOOTSTRAP, then run the same command again; it "
            "goes on where it was."
        ) from None
    finally:
        await consumer.stop()


@dataclass(slots=True)
class Ends:
    """Where a range begins and ends (exclusive)."""

    start: int
    end: int


class Feed:
    """Gives a handler the records of fixed ranges, as the group's consumer gives them to a worker (``ingest.seats.Log``)."""

    def __init__(
        self,
        broker: Broker,
        ranges: Mapping[Partition, tuple[int, int]],
        *,
        buffer_bytes: int,
        pace: Pace,
        missing: Mapping[int, Missing],
    ) -> None:
        """``missing``, by partition, hears which offsets have no record."""
        self.broker = broker
        self.ranges = ranges
        self.missing = missing
        self.buffer_bytes = buffer_bytes
        self.pace = pace
        self.put: Callable[[Fetched], None] = lambda batch: None
        """The handler's; set before :meth:`run`."""
        self.read: dict[Partition, int] = {}
        """Up to where each partition was handed out."""
        self._leases: dict[Partition, int] = {}
        self._used = 0
        self._room = asyncio.Event()
        self._placed = asyncio.Event()
        consumer = broker.consumer
        consumer.assign([TopicPartition(*one) for one in ranges])
        consumer.pause(*(TopicPartition(*one) for one in ranges))

    # ---- what the handler asks ---------------------------------------------------------------------------------------------------

    async def place(self, partition: Partition, offset: int, lease: int) -> bool:
        """Read a partition from ``offset`` on under ``lease``."""
        at = TopicPartition(*partition)
        self._leases[partition] = lease
        self.broker.consumer.seek(at, offset)
        self.read[partition] = offset
        if offset < self.ranges[partition][1]:
            self.broker.consumer.resume(at)
            self._placed.set()
        return True

    async def withdraw(self, partitions: Iterable[Partition]) -> None:
        """Stop reading them."""
        for one in partitions:
            self._leases.pop(one, None)
            self.broker.consumer.pause(TopicPartition(*one))

    async def bounds(self, partitions: Iterable[Partition]) -> Mapping[Partition, Bounds]:
        """Where each log begins for the handler: not before its range, so that a partition that was never read begins there."""
        wanted = {one: TopicPartition(*one) for one in partitions}
        try:
            starts = await self.broker.consumer.beginning_offsets(list(wanted.values()))
            ends = await self.broker.consumer.end_offsets(list(wanted.values()))
        except (KafkaError, TimeoutError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from None
        return {one: Ends(max(starts[at], self.ranges[one][0]), ends[at]) for one, at in wanted.items()}

    def give_back(self, size: int) -> None:
        """The handler is done with so many bytes."""
        self._used -= size
        self._room.set()

    # ---- reading -----------------------------------------------------------------------------------------------------------------

    def done(self, applied: Mapping[Partition, int], stopped: Iterable[Partition]) -> bool:
        """Whether all that was to be read is applied, but for partitions that stand still."""
        if self._used:
            return False
        still = set(stopped)
        return all(
            one in still or (one in applied and self.read.get(one, -1) >= end)
            for one, (_, end) in self.ranges.items()
        )

    async def run(self) -> None:
        """Read until cancelled; what is beyond a range's end is never handed out."""
        consumer = self.broker.consumer
        while True:
            reading = [
                TopicPartition(*one) for one in self._leases if self.read.get(one, 0) < self.ranges[one][1]
            ]
            if not reading:
                self._placed.clear()
                await self._placed.wait()
                continue
            while self._used >= self.buffer_bytes:
                self._room.clear()
                await self._room.wait()
            leases = dict(self._leases)
            fetched = await consumer.getmany(*reading, timeout_ms=POLL_MS, max_records=self.pace.at_once)
            count = 0
            for at in reading:
                one = (at.topic, at.partition)
                if self._leases.get(one) != leases[one]:
                    continue
                found = fetched.get(at, [])
                end = self.ranges[one][1]
                records = [record for record in found if record.offset < end]
                start = self.read[one]
                self.read[one] = found[-1].offset + 1 if found else max(start, await consumer.position(at))
                self.missing[at.partition].read(
                    start, [record.offset for record in records], min(self.read[one], end)
                )
                if self.read[one] >= end:
                    consumer.pause(at)
                if records:
                    size = sum(len(r.key or b"") + len(r.value or b"") for r in records)
                    self._used += size
                    count += len(records)
                    self.put(Fetched(one, leases[one], records, size))
            await asyncio.sleep(self.pace.pause(count))
